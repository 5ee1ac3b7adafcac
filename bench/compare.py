"""Our optimizers beside those of PyTorch: same tensors, same process, same threads, steps taken in turn.

    .venv/bin/python bench/compare.py --json build/compare.json        what `make bench` runs: some ten minutes
    .venv/bin/python bench/compare.py --models unet --only '^came/'    some of it
    cp build/compare.json bench/results/cpu.json                       to keep it: the documentation quotes that file

The baseline, torch.optim.AdamW(fused=True) in f32, stays in memory with its state.  One subject at a time joins it,
sharing parameters and gradients, and the two step in turn: whatever else the machine does meets both, so the median
of the ratios within pairs is steadier than the times themselves.  Tables go to standard output, progress to standard
error; the JSON document is written after every row, so an interrupted run keeps what it has.

Needs a build (CAME_LIBRARY, or build/lib/libcame.so) and the packages of requirements-dev.txt.
"""

import argparse
import math
import os
import sys
from pathlib import Path

LIBRARY = Path(os.environ.setdefault("CAME_LIBRARY", "build/lib/libcame.so"))
if not LIBRARY.is_file():
    sys.exit(f"compare: CAME_LIBRARY: given {LIBRARY}, which is no file; expected libcame.so ('make build')")
try:
    # Before libcame, so that both use the OpenMP runtime that torch brings.
    import numpy as np
    import torch

    import command
    import machine
    import report
    import subjects
    from command import Shapes, say
    from devices import Host, make_parameters, quartiles, seconds_in_turn
    from document import Document
except ImportError as error:
    sys.exit(f"compare: {error}; 'make setup' installs the packages of requirements-dev.txt into .venv")

WARMUP = 2  # the first step allocates state, the second touches what the first left to be touched
PEAK_BYTES_PER_PARAM = 36  # parameters, gradients, two optimizers' state, temporaries of the hungriest
MODELS = "bert_large,gpt2_small,unet,small"  # the others take hours
HOST = Host()


def converted(params: subjects.Parameters, dtype: torch.dtype) -> subjects.Parameters:
    if dtype == torch.float32:
        return params
    copies = [torch.nn.Parameter(p.detach().to(dtype)) for p in params]
    for copy, p in zip(copies, params):
        copy.grad = p.grad.to(dtype)
    return copies


def measure(subject: subjects.Subject, params: subjects.Parameters, baseline, settings: dict) -> dict:
    """One row of the table."""
    count = sum(p.numel() for p in params)
    own = converted(params, subject.dtype)
    running = baseline if subject is subjects.BASELINE else subject.make(own)
    lanes = [baseline, running] + ([subject.against.make(own)] if subject.against else [])
    for lane in lanes[1:]:
        for _ in range(WARMUP):
            lane.step()
    growth = machine.growth_bytes(running.step_afresh)
    steps = [lane.step for lane in lanes]
    seconds = seconds_in_turn(HOST, steps, settings["repetitions"], settings["time_limit"])
    nanoseconds = np.median(seconds, axis=0) / count * 1e9
    moved = subject.bytes_moved
    return {
        "name": subject.name,
        "optimizer": subject.optimizer,
        "implementation": subject.implementation,
        "variant": subject.variant,
        "extra": bool(subject.variant),
        "ns_per_param": float(nanoseconds[1]),
        "baseline_ns_per_param": float(nanoseconds[0]),
        "ratio": quartiles(seconds[:, 1] / seconds[:, 0]),
        "ratio_bf16": quartiles(seconds[:, 1] / seconds[:, 2]) if subject.against else None,
        "bytes_moved_per_param": moved,
        "gb_per_s": moved and moved / float(nanoseconds[1]),
        "state_bytes_per_param": running.state_bytes / count,
        "buffer_bytes": running.buffer_bytes,
        "growth_bytes": growth,
        "seconds": seconds[:, 1].round(9).tolist(),
        "baseline_seconds": seconds[:, 0].round(9).tolist(),
    }


def run(document: Document, models: dict[str, Shapes], chosen: list[subjects.Subject]) -> None:
    settings = document.content["settings"]
    for name, shapes in models.items():
        need = PEAK_BYTES_PER_PARAM * sum(map(math.prod, shapes))
        if not document.fits(name, need, machine.available_bytes()):
            continue
        params = make_parameters(HOST, shapes)
        baseline = subjects.BASELINE.make(params)
        for _ in range(WARMUP):
            baseline.step()
        for subject in chosen:
            document.attempt(name, shapes, subject, lambda: measure(subject, params, baseline, settings))
            machine.free_unused()


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.parser(__doc__.splitlines()[0], MODELS, repetitions=15, time_limit=12)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    options = parser.parse_args(argv)
    command.check(parser, options, LIBRARY, threads=1)
    options.chosen = [s for s in subjects.SUBJECTS if s is subjects.BASELINE or options.only.search(s.name)]
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    torch.set_num_threads(options.threads)
    settings = {name: getattr(options, name) for name in ("threads", "repetitions", "time_limit")}
    settings |= {"warmup": WARMUP, "lr": subjects.LR, "weight_decay_of_adamw": subjects.DECAY}
    what = "one optimizer step, ours beside others: bench/compare.py"
    here = machine.describe(LIBRARY)
    document = Document(options.json, what, here, settings, HOST.copy_gb_per_s, 4 if options.quick else 512)
    if len(here["openmp"]) > 1:
        say(f"several OpenMP runtimes, whose threads disturb each other: {', '.join(here['openmp'])}")
    if here["load"] > 0.5:
        say(f"the machine is busy (load {here['load']:.2f}): times will be too long, ratios unsteady")
    status = document.follow(lambda: run(document, options.models, options.chosen))
    print(report.cpu_text(document.content))
    return status


if __name__ == "__main__":
    sys.exit(main())
