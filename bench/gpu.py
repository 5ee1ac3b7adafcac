"""Our optimizers on a GPU beside those of PyTorch: same tensors, same process, same stream, steps taken in turn.

    python3 bench/gpu.py --library build/cuda/lib/libcame.so --json build/cuda/gpu.json     all of it: some four minutes
    python3 bench/gpu.py --models unet --only '^came/'                                      some of it
    python3 bench/gpu.py --device cpu --quick                                               the program itself, tested
    cp build/cuda/gpu.json bench/results/gpu.json              to keep it: the documentation quotes that file

As in compare.py a baseline stays in memory and one subject at a time steps in turn with it on the same parameters; here
each dtype has its own, torch.optim.AdamW(fused=True) in f32 and in bf16.  Times are the GPU's, between events in its
queue.  A package that cannot be imported or is not ready in time is left out, and the document says why.
"""

import argparse
import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import command
import report
from command import Shapes, say
from devices import Cuda, Host, host_seconds, make_parameters, quartiles, seconds_in_turn
from document import Document

WARMUP = 3  # the first step allocates state and compiles
READY = 60  # seconds in which a subject must be made and warm
PEAK_TO_PARAMETERS = 9  # memory, by that of the parameters: gradients, two optimizers' state, temporaries
MODELS = "bert_large,gpt2_medium,unet,small,llama_7b"


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def expire(*_):
        raise TimeoutError(f"not ready after {seconds} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def prepare(subject, params, device: Host | Cuda):
    """The subject, made and warm."""
    with deadline(READY):
        running = subject.make(params)
        for _ in range(WARMUP):
            running.step()
        device.synchronize()
    return running


def captured(running, device: Host | Cuda) -> tuple[list, str | None]:
    """The step as a graph, in a list that is empty where there is none, and why not if it ought to be there."""
    try:
        replay = device.capture(running.step) if running.capturable else None
    except Exception as error:  # from the library, torch or CUDA
        return [], f"{type(error).__name__}: {error}".splitlines()[0]
    return [replay] if replay else [], None


def measure(subject, running, baseline, shapes: Shapes, device: Host | Cuda, settings: dict) -> dict:
    """One row of the table."""
    count = sum(map(math.prod, shapes))
    memory = device.step_memory(running.step)
    graph, graph_error = captured(running, device)
    steps = [baseline.step, running.step, *graph]
    seconds = seconds_in_turn(device, steps, settings["repetitions"], settings["time_limit"])
    host = host_seconds(device, running.step, settings["time_limit"])
    nanoseconds = float(np.median(seconds[:, 1])) / count * 1e9
    moved, buffers = subject.bytes_moved, running.buffer_bytes
    if callable(moved):
        moved = moved(shapes)
    return {
        "name": subject.name,
        "optimizer": subject.optimizer,
        "implementation": subject.implementation,
        "variant": subject.variant,
        "dtype": str(subject.dtype).removeprefix("torch."),
        "milliseconds": quartiles(seconds[:, 1] * 1e3),
        "baseline_milliseconds": quartiles(seconds[:, 0] * 1e3),
        "ratio": quartiles(seconds[:, 1] / seconds[:, 0]),
        "graph_milliseconds": quartiles(seconds[:, 2] * 1e3) if graph else None,
        "graph_ratio": quartiles(seconds[:, 2] / seconds[:, 0]) if graph else None,
        "graph_error": graph_error,
        "host_milliseconds": host * 1e3,
        "launches": None,  # counted last of all
        "ns_per_param": nanoseconds,
        "bytes_moved_per_param": moved,
        "gb_per_s": moved and moved / nanoseconds,
        "state_bytes_per_param": running.state_bytes / count,
        "buffer_bytes": buffers,
        "buffer_share_of_state": None if buffers is None else buffers / running.state_bytes,
        **memory,
        "seconds": seconds[:, 1].round(9).tolist(),
        "baseline_seconds": seconds[:, 0].round(9).tolist(),
    }


def measure_group(document: Document, name: str, shapes: Shapes, group: list, device: Host | Cuda) -> None:
    """All subjects of one dtype on one model; the first of them is the baseline."""
    dtype, count = group[0].dtype, sum(map(math.prod, shapes))
    if not document.fits(f"{name}: {dtype}", PEAK_TO_PARAMETERS * dtype.itemsize * count, device.available_bytes()):
        return
    params = make_parameters(device, shapes, dtype)
    baseline = prepare(group[0], params, device)

    def row(subject) -> dict:
        running = baseline if subject is group[0] else prepare(subject, params, device)
        result = measure(subject, running, baseline, shapes, device, document.content["settings"])
        if result["graph_error"]:
            document.skip(f"{name}: {subject.name}: graph", result["graph_error"])
        return result

    for subject in group:
        document.attempt(name, shapes, subject, lambda: row(subject))
        device.release()


def count_launches(document: Document, name: str, shapes: Shapes, group: list, device: Host | Cuda) -> None:
    """Writes them into the rows that there are."""
    rows = {row["name"]: row for row in document.content["models"].get(name, {"rows": []})["rows"]}
    params = None
    for subject in (subject for subject in group if subject.name in rows):
        try:
            params = params or make_parameters(device, shapes, subject.dtype)
            rows[subject.name]["launches"] = device.launches(prepare(subject, params, device).step)
            document.write()
        except Exception as error:  # the figure is worth less than the row
            say(f"{name}: {subject.name}: launches not counted: {error}")
        device.release()


def run(document: Document, options: argparse.Namespace, device: Host | Cuda) -> None:
    import gpu_subjects  # loads the library, which main has named by now

    document.content["settings"] |= {"lr": gpu_subjects.LR, "weight_decay_of_adamw": gpu_subjects.DECAY}
    groups = []
    for position, (name, shapes) in enumerate(options.models.items()):
        for dtype in (torch.float32, torch.bfloat16):
            baseline, *others = (s for s in gpu_subjects.SUBJECTS if s.dtype == dtype)
            some = position > 0 and not options.only.pattern
            kept = (s for s in others if s.name in gpu_subjects.EVERYWHERE or not some)
            groups.append((name, shapes, [baseline, *(s for s in kept if options.only.search(s.name))]))
    # Counted by a profiler, which leaves every launch of the process slower than it was.
    for act in (measure_group, count_launches) if device.traces else (measure_group,):
        for name, shapes, group in groups:
            act(document, name, shapes, group, device)
            device.release()


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.parser(__doc__.splitlines()[0], MODELS, repetitions=50, time_limit=2)
    default = os.environ.get("CAME_LIBRARY", "build/cuda/lib/libcame.so")
    parser.add_argument("--library", type=Path, default=Path(default), metavar="PATH", help="default: %(default)s")
    parser.add_argument("--packages", type=Path, metavar="PATH", help="a folder with packages that are not installed")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to test the program itself")
    options = parser.parse_args(argv)
    if not options.library.is_file():
        parser.error(f"--library: given {options.library}, which is no file; expected libcame.so ('make gpu')")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: given cuda, but torch finds no such device")
    command.check(parser, options, options.library)
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    os.environ["CAME_LIBRARY"] = str(options.library.resolve())
    if options.packages:
        sys.path.append(str(options.packages))
    device = Cuda() if options.device == "cuda" else Host()
    settings = {name: getattr(options, name) for name in ("device", "repetitions", "time_limit")}
    settings |= {"warmup": WARMUP, "rounds_between_synchronisations": device.batch, "seconds_to_be_ready": READY}
    what = "one optimizer step on a GPU, ours beside others: bench/gpu.py"
    megabytes = 4 if options.quick else 1024
    here = device.describe(options.library)
    document = Document(options.json, what, here, settings, device.copy_gb_per_s, megabytes)
    status = document.follow(lambda: run(document, options, device))
    print(report.gpu_text(document.content))
    return status


if __name__ == "__main__":
    sys.exit(main())
