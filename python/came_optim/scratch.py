"""Scratch of steps: one block of memory for all optimizers that step on one device, in one stream, from one thread.

A step leaves nothing in it that a later one reads, and steps of one stream come one after the other, so that hundreds of
optimizers of a parameter each need no more than the largest of them.  A block lives as long as somebody has stepped with it last.
"""

from threading import local
from typing import Any, Optional, Tuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor


class _Blocks(local):
    """Those of this thread: another one may step at the same time, and on CUDA between two launches of ours."""

    def __init__(self) -> None:
        self.known: "WeakValueDictionary[Tuple[Any, Optional[int]], Tensor]" = WeakValueDictionary()


_blocks = _Blocks()


def new(device: torch.device, size: int) -> Tensor:
    """A block of so many bytes, aligned for every type."""
    return torch.empty(-(-size // 8), dtype=torch.float64, device=device)


def block(device: torch.device, stream: Optional[int], size: int) -> Tensor:
    """At least so many bytes, to be used for steps of this stream and thread only."""
    known = _blocks.known.get((device, stream))
    if known is None or known.nbytes < size:
        known = _blocks.known[device, stream] = new(device, size)
    return known
