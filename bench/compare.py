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
import datetime
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

LIBRARY = Path(os.environ.setdefault("CAME_LIBRARY", "build/lib/libcame.so"))
if not LIBRARY.is_file():
    sys.exit(f"compare: CAME_LIBRARY: given {LIBRARY}, which is no file; expected libcame.so ('make build')")
try:
    # Before libcame, so that both use the OpenMP runtime that torch brings.
    import numpy as np
    import torch

    import machine
    import report
    import subjects
except ImportError as error:
    sys.exit(f"compare: {error}; 'make setup' installs the packages of requirements-dev.txt into .venv")

WARMUP = 2  # the first step allocates state, the second touches what the first left to be touched
LEAST = 5  # pairs, whatever the time limit says
PEAK_BYTES_PER_PARAM = 36  # parameters, gradients, two optimizers' state, temporaries of the hungriest
QUICK = {"quick": [[48, 64], [64], [8, 4, 3, 3]]}

Shapes = list[list[int]]


def say(text: str) -> None:
    print(f"compare: {text}", file=sys.stderr, flush=True)


def known_models() -> dict[str, Shapes]:
    """The shape lists of bench/shapes.hpp, from the program that is built with them."""
    program = LIBRARY.resolve().parent.parent / "bin/came_memory"
    if not program.is_file():
        sys.exit(f"compare: {program} is missing; expected it beside the library ('make build')")
    return json.loads(subprocess.run([program, "--shapes"], check=True, capture_output=True, text=True).stdout)


def make_parameters(shapes: Shapes) -> subjects.Parameters:
    """Parameters and gradients of fixed random numbers.  None is so small that its square is a denormal number."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for p in params:
        p.grad = torch.randn(p.shape).mul_(0.01)
    return params


def converted(params: subjects.Parameters, dtype: torch.dtype) -> subjects.Parameters:
    if dtype == torch.float32:
        return params
    copies = [torch.nn.Parameter(p.detach().to(dtype)) for p in params]
    for copy, p in zip(copies, params):
        copy.grad = p.grad.to(dtype)
    return copies


def seconds_in_turn(lanes: list, repetitions: int, limit: float) -> np.ndarray:
    """Seconds of each lane's steps, [rounds, lanes]; rounds end with the repetitions or with the time limit."""
    rounds, begin = [], time.perf_counter()
    while len(rounds) < repetitions and (len(rounds) < LEAST or time.perf_counter() - begin < limit):
        marks = [time.perf_counter()]
        for lane in lanes:
            lane.step()
            marks.append(time.perf_counter())
        rounds.append(np.diff(marks))
    return np.array(rounds)


def quartiles(values: np.ndarray) -> dict[str, float]:
    return dict(zip(("q1", "median", "q3"), map(float, np.percentile(values, (25, 50, 75)))))


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
    seconds = seconds_in_turn(lanes, settings["repetitions"], settings["time_limit"])
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


def measure_model(shapes: Shapes, chosen: list[subjects.Subject], settings: dict) -> Iterable[dict]:
    params = make_parameters(shapes)
    baseline = subjects.BASELINE.make(params)
    for _ in range(WARMUP):
        baseline.step()
    for subject in chosen:
        yield measure(subject, params, baseline, settings)
        machine.free_unused()


class Document:
    """What is measured, and the file that follows it."""

    def __init__(self, path: Path | None, settings: dict, megabytes: int):
        self.path = path
        self.rows = 0
        self.content = {
            "what": "one optimizer step, ours beside others: bench/compare.py",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "finished": False,
            "machine": machine.describe(LIBRARY),
            "settings": settings,
            "copy_gb_per_s": {"megabytes": megabytes, "before": machine.copy_gb_per_s(megabytes)},
            "skipped": {},
            "models": {},
        }

    def add(self, model: str, shapes: Shapes, row: dict) -> None:
        parameters = sum(map(math.prod, shapes))
        entry = {"tensors": len(shapes), "parameters": parameters, "rows": []}
        self.content["models"].setdefault(model, entry)["rows"].append(row)
        self.rows += 1
        self.write()

    def finish(self) -> None:
        copy = self.content["copy_gb_per_s"]
        copy["after"] = machine.copy_gb_per_s(copy["megabytes"])
        self.content["finished"] = True
        self.write()

    def write(self) -> None:
        copy = self.content["copy_gb_per_s"]
        best = max(copy["before"], copy.get("after", 0))
        for model in self.content["models"].values():
            for row in model["rows"]:
                row["share_of_copy"] = row["gb_per_s"] and row["gb_per_s"] / best
        if self.path:
            # Renamed into place: an interrupt never leaves half a document.
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(self.content, indent=1) + "\n")
            part.replace(self.path)


def run(document: Document, models: dict[str, Shapes], chosen: list[subjects.Subject]) -> None:
    for name, shapes in models.items():
        need, have = PEAK_BYTES_PER_PARAM * sum(map(math.prod, shapes)), machine.available_bytes()
        if need > have:
            why = f"needs about {need / 1e9:.1f} GB of memory, {have / 1e9:.1f} GB are available"
            document.content["skipped"][name] = why
            say(f"{name}: skipped: {why}")
            continue
        for row in measure_model(shapes, chosen, document.content["settings"]):
            document.add(name, shapes, row)
            ratio = row["ratio"]["median"]
            say(f"{name}: {row['name']}: {row['ns_per_param']:.3f} ns/param, {ratio:.3f} of the baseline")
    document.finish()


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help="comma-separated shape lists of bench/shapes.hpp (default: all)")
    parser.add_argument("--only", default="", metavar="REGEX", help="measure subjects whose name it is found in")
    parser.add_argument("--repetitions", type=int, default=15, help="pairs of steps per subject (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=12, metavar="S",
                        help=f"seconds per subject, after which no pair begins beyond {LEAST} (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    parser.add_argument("--quick", action="store_true", help="a few tiny tensors, to test the program itself")
    options = parser.parse_args(argv)
    for name, least in (("repetitions", 1), ("threads", 1), ("time_limit", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')}: given {getattr(options, name)}, expected at least {least}")
    try:
        only = re.compile(options.only)
    except re.error as error:
        parser.error(f"--only: given {options.only!r}, expected a regular expression: {error}")
    options.chosen = [s for s in subjects.SUBJECTS if s is subjects.BASELINE or only.search(s.name)]
    options.models = QUICK if options.quick else pick_models(options.models, parser)
    return options


def pick_models(names: str | None, parser: argparse.ArgumentParser) -> dict[str, Shapes]:
    models = known_models()
    wanted = names.split(",") if names else list(models)
    for name in wanted:
        if name not in models:
            parser.error(f"--models: given {name!r}, expected some of {', '.join(models)}")
    return {name: models[name] for name in wanted}


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    torch.set_num_threads(options.threads)
    if options.quick:
        options.repetitions, options.time_limit = 3, 1
    settings = {name: getattr(options, name) for name in ("threads", "repetitions", "time_limit")}
    settings |= {"warmup": WARMUP, "lr": subjects.LR, "weight_decay_of_adamw": subjects.DECAY}
    document = Document(options.json, settings, megabytes=4 if options.quick else 512)
    here = document.content["machine"]
    if len(here["openmp"]) > 1:
        say(f"several OpenMP runtimes, whose threads disturb each other: {', '.join(here['openmp'])}")
    if here["load"] > 0.5:
        say(f"the machine is busy (load {here['load']:.2f}): times will be too long, ratios unsteady")
    try:
        run(document, options.models, options.chosen)
    except KeyboardInterrupt:
        kept = f", kept in {options.json}" if options.json and document.rows else ""
        say(f"interrupted after {document.rows} rows{kept}")
    print(report.text(document.content))
    return 0 if document.content["finished"] else 130


if __name__ == "__main__":
    sys.exit(main())
