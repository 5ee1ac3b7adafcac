"""What a step exchanges when a model is sharded over many ranks, and what a rank holds, from the plan itself.

    .venv/bin/python bench/sharding.py --json build/sharding.json
    cp build/sharding.json bench/results/sharding.json        to keep it: docs/sharding.md quotes that file

No GPU and no ranks are needed, and no model is allocated: seconds.  Parameters are bf16 and split along dimension 0 as FSDP2
does it, into chunks of ceil(n / ranks) rows.  No rank holds more than rank 0, whose plan this is; what is reduced is the same
on all.  Beside it stands what FSDP2 itself sends for the model.  FORMULAS says how every figure is reached.

Needs a build (CAME_LIBRARY, or build/lib/libcame.so) and the packages of requirements-dev.txt.
"""

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import command
import machine
from came_optim import library, native
from command import Shapes

FORMULAS = {
    "doubles": "by phase: count of came_plan_reduction",
    "presence": "how many of the first phase's doubles say which tensors have a gradient",
    "reduction_bytes": "8 bytes for each double of a step: the buffers that a rank gives to all-reduces",
    "ring_bytes": "2 (N - 1) / N of reduction_bytes: what each of N ranks sends in ring all-reduces",
    "fsdp2_bytes": "3 (N - 1) / N of 2 bytes per parameter: what each rank sends in ring all-gathers of bf16 parameters, before "
    "forward and backward, and in the ring reduce-scatter of bf16 gradients; without padding",
    "state_bytes": "came_memory.state_bytes of rank 0; default options: momentum and statistics in f32",
}


def shard(shape: list[int], ranks: int, rank: int) -> native.Spec:
    """The rows of a tensor that a rank holds: torch's chunks, of which the last may be smaller or empty."""
    rows = -(-shape[0] // ranks)
    first = min(shape[0], rank * rows)
    held = min(rows, shape[0] - first)
    offset, extent = (first, *[0] * (len(shape) - 1)), (held, *shape[1:])
    return native.Spec(tuple(shape), "bfloat16", split_dims=1, offset=offset, extent=extent)


def measure(shapes: Shapes, optimizer: str, ranks: int, rank: int = 0) -> dict:
    """One row of the table."""
    plan = native.Plan([native.options(optimizer)], [shard(shape, ranks, rank) for shape in shapes])
    reductions = [plan.reduction(phase) for phase in range(plan.phase_count)]
    size = 8 * sum(reduction.count for reduction in reductions)
    parameters = sum(map(math.prod, shapes))
    return {
        "optimizer": optimizer,
        "ranks": ranks,
        "doubles": {reduction.phase: reduction.count for reduction in reductions},
        "presence": reductions[0].presence,
        "reduction_bytes": size,
        "ring_bytes": round(2 * (ranks - 1) / ranks * size),
        "fsdp2_bytes": round(3 * (ranks - 1) / ranks * 2 * parameters),
        "state_bytes": plan.memory.state_bytes,
    }


def amount(size: int) -> str:
    """Bytes for a reader.

    >>> amount(12), amount(1536), amount(3 << 30)
    ('12 B', '1.50 KiB', '3.00 GiB')
    """
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    power = min(max(size, 1).bit_length() - 1, 40) // 10
    return f"{size / 1024**power:.{2 if power else 0}f} {units[power]}"


def table(rows: list[dict]) -> str:
    """The rows of a model, one per line."""
    heads = ["ranks", "optimizer", "reduced per step", "sent in a ring", "sent by FSDP2", "share", "state of rank 0", "doubles by phase"]
    lines = [heads]
    for row in rows:
        doubles = ", ".join(f"{phase} {count}" for phase, count in row["doubles"].items() if count) or "-"
        sizes = [amount(row[name]) for name in ("reduction_bytes", "ring_bytes", "fsdp2_bytes")]
        share = f"{row['ring_bytes'] / row['fsdp2_bytes']:.3%}" if row["fsdp2_bytes"] else "-"
        lines.append([str(row["ranks"]), row["optimizer"], *sizes, share, amount(row["state_bytes"]), doubles])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in lines)


def arguments(argv: list[str] | None, path: Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="bert_large,llama_7b,llama_70b", help="comma-separated lists of bench/shapes.hpp")
    parser.add_argument("--ranks", default="8,64,512", help="comma-separated numbers of ranks (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    options = parser.parse_args(argv)
    known = command.known_models(path)
    for name in options.models.split(","):
        if name not in known:
            parser.error(f"--models: given {name!r}, expected some of {', '.join(known)}")
    for text in options.ranks.split(","):
        if not text.isdecimal() or int(text) < 1:
            parser.error(f"--ranks: given {text!r}, expected whole numbers from 1")
    options.models = {name: known[name] for name in options.models.split(",")}
    options.ranks = [int(text) for text in options.ranks.split(",")]
    return options


def main(argv: list[str] | None = None) -> int:
    path = next((path for path in library.candidates() if path.is_file()), None)
    if path is None:
        sys.exit(f"sharding: looked for {', '.join(map(str, library.candidates()))}; expected libcame.so ('make build')")
    options = arguments(argv, path)
    models = {}
    for name, shapes in options.models.items():
        rows = [measure(shapes, word, ranks) for ranks in options.ranks for word in native.ALGORITHMS]
        models[name] = {"tensors": len(shapes), "parameters": sum(map(math.prod, shapes)), "rows": rows}
        print(f"{name}: {models[name]['tensors']} tensors, {models[name]['parameters']} parameters\n{table(rows)}\n")
    if options.json:
        document = {
            "what": "bytes of a step sharded by rows, from the plan: bench/sharding.py",
            "machine": machine.describe(path),
            "formulas": FORMULAS,
            "models": models,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
