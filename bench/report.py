"""Tables of what bench/compare.py measured, from its JSON document alone."""

COLUMNS = [
    ("optimizer", "<"),
    ("ns/param", ">"),
    ("moved B/param", ">"),
    ("GB/s", ">"),
    ("of copy", ">"),
    ("time / fused AdamW  [quartiles]", ">"),
    ("/ bf16 fused AdamW", ">"),
    ("state B/param", ">"),
    ("buffers MB", ">"),
    ("growth MB", ">"),
]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _ratio(ratio: dict | None) -> str:
    return "" if ratio is None else f"{ratio['median']:.3f}  [{ratio['q1']:.3f} {ratio['q3']:.3f}]"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f}"


def _cells(row: dict) -> list[str]:
    return [
        row["name"],
        _number(row["ns_per_param"], ".3f"),
        _number(row["bytes_moved_per_param"], ".2f"),
        _number(row["gb_per_s"], ".1f"),
        _number(row["share_of_copy"], ".0%"),
        _ratio(row["ratio"]),
        _ratio(row["ratio_bf16"]),
        _number(row["state_bytes_per_param"], ".2f"),
        _megabytes(row["buffer_bytes"]),
        _megabytes(row["growth_bytes"]),
    ]


def table(document: dict, name: str) -> str:
    model = document["models"][name]
    lines = [[title for title, _ in COLUMNS], *map(_cells, model["rows"])]
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join(f"{cell:{align}{w}}" for cell, w, (_, align) in zip(line, widths, COLUMNS)) for line in lines]
    text.insert(1, "-" * len(text[0]))
    return "\n".join([f"{name}: {model['tensors']} tensors, {model['parameters']:,} parameters", *text])


def text(document: dict) -> str:
    machine, settings, copy = document["machine"], document["settings"], document["copy_gb_per_s"]
    copies = ", ".join(f"{copy[when]:.1f} GB/s {when}" for when in ("before", "after") if when in copy)
    head = [
        f"{machine['cpu']}, threads: {settings['threads']}, torch {machine['torch']}, libcame by {machine['compiler']}",
        f"copy of {copy['megabytes']} MB: {copies}; load of the machine when this began: {machine['load']:.2f}",
        "buffers: what our plan asks for; growth: how much the process grows at most during one step",
    ]
    skipped = [f"{name}: skipped: {why}" for name, why in document["skipped"].items()]
    return "\n\n".join(["\n".join(head + skipped), *(table(document, name) for name in document["models"])])
