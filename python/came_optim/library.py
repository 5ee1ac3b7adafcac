"""Finds and loads libcame, and turns its statuses into exceptions.  Needs nothing but the standard library.

The file is, in this order: what CAME_LIBRARY names; the one inside the package (a wheel); the build of the source tree that
the package lies in.
"""

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import List

from .notices import warn

ABI_VERSION = 2  # of include/came/version.h, as native.py has its structs

_NAME = "libcame.so"
_PACKAGE = Path(__file__).resolve().parent
_HOW_TO_BUILD = (
    "build it with `make build` in a source tree of came, or install the package with `pip install .`, which builds it; "
    "CAME_LIBRARY names one that lies elsewhere"
)
# By status, from 1: invalid argument, unsupported, ABI mismatch, out of memory, internal, device.
_ERRORS = (ValueError, NotImplementedError, RuntimeError, MemoryError, RuntimeError, RuntimeError)


def candidates() -> List[Path]:
    """The files that are looked for, best first."""
    named = os.environ.get("CAME_LIBRARY")
    if named:
        return [Path(named)]
    found = [_PACKAGE / "lib" / _NAME]
    tree = _PACKAGE.parent.parent
    if (tree / "include" / "came" / "came.h").is_file():
        found += [tree / "build" / "lib" / _NAME, tree / "build" / "cuda" / "lib" / _NAME]
    return found


@lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The loaded library.

    >>> library().came_abi_version()
    2
    """
    looked = candidates()
    path = next((p for p in looked if p.is_file()), None)
    if path is None:
        raise ImportError(f"libcame: looked for {', '.join(map(str, looked))}: no such file; {_HOW_TO_BUILD}")
    try:
        loaded = ctypes.CDLL(str(path))
        version = loaded.came_abi_version()
    except (OSError, AttributeError) as error:
        raise ImportError(f"libcame: {path} cannot be loaded: {error}; {_HOW_TO_BUILD}") from error
    if version != ABI_VERSION:
        raise ImportError(
            f"libcame: {path} has version {version} of the ABI, expected {ABI_VERSION}, that of this package "
            f"({_PACKAGE}); {_HOW_TO_BUILD}"
        )
    for name in ("came_error_message", "came_version", "came_algorithm_name"):
        getattr(loaded, name).restype = ctypes.c_char_p
    return loaded


@lru_cache(maxsize=None)
def is_built() -> bool:
    """Whether there is a library; warns, once, if none was built.

    One that CAME_LIBRARY names, or that lies where it should, must load: ImportError says why it does not.
    """
    if os.environ.get("CAME_LIBRARY") or any(path.is_file() for path in candidates()):
        library()
        return True
    warn(
        "came_optim: libcame is not built, so steps run as the loop in PyTorch, with the same results but slower; looked for "
        f"{', '.join(map(str, candidates()))}; {_HOW_TO_BUILD}; `fused=False` chooses the loop without this warning",
    )
    return False


def loads() -> bool:
    """Whether there is a library that loads: for callers that can do without."""
    try:
        library()
    except ImportError:
        return False
    return True


def check(status: int) -> None:
    """Raises what a status that is not 0 stands for, with the library's message."""
    if status:
        raise _ERRORS[min(status, len(_ERRORS)) - 1](library().came_error_message().decode())
