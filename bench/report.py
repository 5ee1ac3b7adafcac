"""Tables of what bench/compare.py and bench/gpu.py measured, from their JSON documents alone."""

from collections.abc import Callable

Column = tuple[str, Callable[[dict], str]]  # title, cell of a row


def _number(key: str, form: str, scale: float = 1) -> Callable[[dict], str]:
    return lambda row: "" if row[key] is None else format(row[key] * scale, form)


def _quartiles(key: str) -> Callable[[dict], str]:
    return lambda row: "" if row[key] is None else "{median:.3f}  [{q1:.3f} {q3:.3f}]".format(**row[key])


COLUMNS = [
    ("optimizer", lambda row: row["name"]),
    ("ns/param", _number("ns_per_param", ".3f")),
    ("moved B/param", _number("bytes_moved_per_param", ".2f")),
    ("GB/s", _number("gb_per_s", ".1f")),
    ("of copy", _number("share_of_copy", ".0%")),
    ("time / fused AdamW  [quartiles]", _quartiles("ratio")),
    ("/ bf16 fused AdamW", _quartiles("ratio_bf16")),
    ("state B/param", _number("state_bytes_per_param", ".2f")),
    ("buffers MB", _number("buffer_bytes", ".1f", 1e-6)),
    ("growth MB", _number("growth_bytes", ".1f", 1e-6)),
]

GPU_COLUMNS = [
    ("optimizer", lambda row: row["name"]),
    ("ms  [quartiles]", _quartiles("milliseconds")),
    ("time / fused AdamW  [quartiles]", _quartiles("ratio")),
    ("graph ms  [quartiles]", _quartiles("graph_milliseconds")),
    ("host ms", _number("host_milliseconds", ".3f")),
    ("launches", _number("launches", "d")),
    ("moved B/param", _number("bytes_moved_per_param", ".2f")),
    ("of copy", _number("share_of_copy", ".0%")),
    ("state B/param", _number("state_bytes_per_param", ".2f")),
    ("buffers MB", _number("buffer_bytes", ".1f", 1e-6)),
    ("of state", _number("buffer_share_of_state", ".2%")),
    ("temporary MB", _number("temporary_bytes", ".1f", 1e-6)),
    ("taken MB", _number("taken_bytes", ".1f", 1e-6)),
]


def table(document: dict, name: str, columns: list[Column]) -> str:
    model = document["models"][name]
    lines = [[title for title, _ in columns], *([cell(row) for _, cell in columns] for row in model["rows"])]
    widths = [max(map(len, column)) for column in zip(*lines)]
    aligns = "<" + ">" * (len(columns) - 1)
    text = ["  ".join(f"{cell:{align}{w}}" for cell, align, w in zip(line, aligns, widths)) for line in lines]
    text.insert(1, "-" * len(text[0]))
    return "\n".join([f"{name}: {model['tensors']} tensors, {model['parameters']:,} parameters", *text])


def _text(document: dict, machine: str, legend: str, columns: list[Column]) -> str:
    copy = document["copy_gb_per_s"]
    copies = ", ".join(f"{copy[when]:.1f} GB/s {when}" for when in ("before", "after") if when in copy)
    load = f"load of the machine when this began: {document['machine']['load']:.2f}"
    head = [machine, f"copy of {copy['megabytes']} MB: {copies}; {load}", legend]
    skipped = [f"{name}: skipped: {why}" for name, why in document["skipped"].items()]
    return "\n\n".join(["\n".join(head + skipped), *(table(document, name, columns) for name in document["models"])])


def cpu_text(document: dict) -> str:
    here, threads = document["machine"], document["settings"]["threads"]
    machine = f"{here['cpu']}, threads: {threads}, torch {here['torch']}, libcame by {here['compiler']}"
    legend = "buffers: what our plan asks for; growth: how much the process grows at most during one step"
    return _text(document, machine, legend, COLUMNS)


def gpu_text(document: dict) -> str:
    here = document["machine"]
    gpu = f"{here['gpu']}, CUDA {here['cuda']}, driver {here['driver']}" if "gpu" in here else here["cpu"]
    legend = (
        "graph: the step replayed; host: until its call returns, on the fastest core; buffers: what our plan asks for; "
        "temporary: what a step takes from torch at most; taken: from the device for good"
    )
    return _text(document, f"{gpu}, torch {here['torch']}", legend, GPU_COLUMNS)
