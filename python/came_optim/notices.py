"""Warnings that point at the line of the program that called the package."""

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn(message: str) -> None:
    """Warns, at the caller of the outermost function of the package: torch's own functions may lie in between."""
    level, outermost, frame = 1, 1, sys._getframe(1)
    while frame is not None:
        level += 1
        if frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            outermost = level
        frame = frame.f_back
    warnings.warn(message, stacklevel=outermost + 1)
