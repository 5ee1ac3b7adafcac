"""Where steps run, on what, and what can be asked there: time, memory, launches.

Marks are points in the device's own time.  A GPU's are events in its queue, read when the queue is empty, so nothing
waits between two steps; the elapsed time of a step whose host side is slower than its kernels is that of its host side.
"""

import gc
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

import machine
from command import LEAST, Shapes

Step = Callable[[], object]
ROUNDS = 12  # over all cores, for the host's time


class Host:
    """The CPU.  What only a GPU has is None."""

    name = "cpu"
    batch = 1
    traces = False
    describe = staticmethod(machine.describe)
    available_bytes = staticmethod(machine.available_bytes)
    copy_gb_per_s = staticmethod(machine.copy_gb_per_s)
    release = staticmethod(machine.free_unused)
    mark = staticmethod(time.perf_counter)

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def synchronize(self) -> None:
        pass

    def lead_in(self, step: Step) -> None:
        pass

    def step_memory(self, step: Step) -> dict:
        return {"temporary_bytes": machine.growth_bytes(step), "taken_bytes": None}

    def capture(self, step: Step) -> Step | None:
        return None


class Cuda:
    """The current CUDA device, through torch."""

    name = "cuda"
    batch = 10  # rounds between two synchronisations
    traces = True  # launches
    synchronize = staticmethod(torch.cuda.synchronize)

    def describe(self, library: Path) -> dict:
        here = torch.cuda.get_device_properties()
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            driver = subprocess.run(query, check=True, capture_output=True, text=True).stdout.split()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            driver = "unknown"
        return machine.describe(library) | {
            "gpu": here.name,
            "multiprocessors": here.multi_processor_count,
            "l2_bytes": here.L2_cache_size,
            "gpu_memory_gib": round(here.total_memory / 2**30, 1),
            "driver": driver,
            "cuda": torch.version.cuda,
        }

    def available_bytes(self) -> int:
        return torch.cuda.mem_get_info()[0]

    def release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def copy_gb_per_s(self, megabytes: int, repetitions: int = 20) -> float:
        """Bytes read and written per second by a copy within the device; the best of several."""
        source = torch.ones(megabytes * 2**20 // 4, device="cuda")
        target = torch.empty_like(source).copy_(source)
        marks = [self.mark()]
        for _ in range(repetitions):
            target.copy_(source)
            marks.append(self.mark())
        self.synchronize()
        return 2 * source.nbytes / min(self.seconds(a, b) for a, b in pairwise(marks)) / 1e9

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end) / 1e3

    def lead_in(self, step: Step) -> None:
        """A step no one measures: the first after an idle queue waits for the host."""
        step()

    def step_memory(self, step: Step) -> dict:
        """What a step takes from torch's allocator at most, and what it takes from the device for good."""
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        allocated, free = torch.cuda.memory_allocated(), self.available_bytes()
        step()
        self.synchronize()
        temporary = torch.cuda.max_memory_allocated() - allocated
        return {"temporary_bytes": temporary, "taken_bytes": free - self.available_bytes()}

    def launches(self, step: Step) -> int | None:
        """Kernels of a step, whoever launches them; None where they cannot be traced."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            self.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        return sum(event.get("cat") == "kernel" for event in events) or None

    def capture(self, step: Step) -> Step:
        """The step as a graph to replay."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay


def make_parameters(device: Host | Cuda, shapes: Shapes, dtype=torch.float32) -> list[torch.nn.Parameter]:
    """Parameters and gradients of fixed random numbers.  None is so small that its square is a denormal number."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, dtype=dtype, device=device.name)) for shape in shapes]
    for p in params:
        p.grad = torch.randn_like(p).mul_(0.01)
    return params


def seconds_in_turn(device: Host | Cuda, steps: list[Step], repetitions: int, limit: float) -> np.ndarray:
    """Seconds of each step, [rounds, steps]; rounds end with the repetitions or with the time limit."""
    rounds, begin = [], time.perf_counter()
    while len(rounds) < repetitions and (len(rounds) < LEAST or time.perf_counter() - begin < limit):
        device.lead_in(steps[0])
        batch = []
        for _ in range(device.batch):
            marks = [device.mark()]
            for step in steps:
                step()
                marks.append(device.mark())
            batch.append(marks)
        device.synchronize()
        rounds += [[device.seconds(a, b) for a, b in pairwise(marks)] for marks in batch]
    return np.array(rounds)


def host_seconds(device: Host | Cuda, step: Step, time_limit: float = 2.0) -> float:
    """Seconds until a step returns, which on a GPU is when its work is queued; each finds an empty queue.

    The least of the medians on each core, up to ROUNDS times over: cores of one machine were seen to differ by a factor of
    two, and not always the same ones.
    """

    def seconds() -> float:
        device.synchronize()
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin

    cores, medians, began = sorted(os.sched_getaffinity(0)), [], time.perf_counter()
    repetitions = min(8, max(1, int(time_limit / len(cores) / seconds())))
    try:
        while len(medians) < ROUNDS * len(cores) and (not medians or time.perf_counter() - began < time_limit):
            for core in cores:
                os.sched_setaffinity(0, {core})
                medians.append(float(np.median([seconds() for _ in range(repetitions)])))
    finally:
        os.sched_setaffinity(0, cores)
        device.synchronize()
    return min(medians)


def quartiles(values: np.ndarray) -> dict[str, float]:
    return dict(zip(("q1", "median", "q3"), map(float, np.percentile(values, (25, 50, 75)))))
