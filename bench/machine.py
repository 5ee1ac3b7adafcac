"""The machine that is measured: what it is, how fast it copies memory, how much memory a call takes."""

import ctypes
import gc
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch

_CPU = Path("/sys/devices/system/cpu")


def _proc_field(file: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.*)$", Path("/proc", file).read_text(), re.M)
    return match[1] if match else ""


def _kilobytes(file: str, name: str) -> int:
    return int(_proc_field(file, name).split()[0])


def available_bytes() -> int:
    return _kilobytes("meminfo", "MemAvailable") * 1024


def _caches() -> dict[str, str]:
    """Size of each cache as the first core sees it, such as {"L1 Data": "32K", "L3 Unified": "32768K"}."""
    caches = {}
    for index in sorted((_CPU / "cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        caches[f"L{level} {kind}"] = size
    return caches


def _huge_pages() -> str:
    """The system's setting; a container may not show it."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.read_text().strip() if setting.exists() else "unknown"


def _compiler(library: Path) -> str:
    """What compiled the library, from the note that GCC and Clang leave in it."""
    match = re.search(rb"GCC: \([^\0]*|[\w ]*clang version [^\0]*", library.read_bytes())
    return match[0].decode() if match else "unknown"


def openmp_runtimes() -> list[str]:
    """Names of the OpenMP runtimes in this process.  Two would each keep threads that spin on the other's cores."""
    paths = re.findall(r"/\S*lib(?:gomp|i?omp5?)[-.]\S*", Path("/proc/self/maps").read_text())
    return [Path(path).name for path in sorted(set(paths))]


def describe(library: Path) -> dict:
    return {
        "cpu": _proc_field("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_gib": round(_kilobytes("meminfo", "MemTotal") / 2**20, 1),
        "kernel": f"{platform.system()} {re.match(r'[0-9.]*', platform.release())[0]}",
        "huge_pages": _huge_pages(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_simd": torch.backends.cpu.get_cpu_capability(),
        "compiler": _compiler(library),
        "openmp": openmp_runtimes(),
        "load": os.getloadavg()[0],
    }


def copy_gb_per_s(megabytes: int, repetitions: int = 7) -> float:
    """Bytes read and written per second by a copy of a buffer of this size; the best of several."""
    source = torch.ones(megabytes * 2**20 // 4)
    target = torch.empty_like(source).copy_(source)
    best = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best / 1e9


def free_unused() -> None:
    """Gives freed memory back to the system: optimizers form cycles, and malloc keeps what it may need again."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def growth_bytes(call: Callable[[], object]) -> int | None:
    """By how much the process grows at most during a call; None where the system does not let us ask."""
    free_unused()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    except OSError:
        return None
    before = _kilobytes("self/status", "VmRSS")
    call()
    return max(0, _kilobytes("self/status", "VmHWM") - before) * 1024
