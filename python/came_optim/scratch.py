"""Workspace that all optimizers share which step on one device, in one stream, from one thread.

A step leaves nothing in it that a later one reads, and steps of one stream run one after the other.  So hundreds of optimizers of one
parameter each need no more than the largest of them.  It lives as long as a binding that has stepped with it last.
"""

from threading import local
from typing import Any, Optional, Tuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor


class _Blocks(local):
    """Of this thread: another one may step at the same time, on CUDA even between two launches of a step."""

    def __init__(self) -> None:
        self.of_stream: "WeakValueDictionary[Tuple[Any, Optional[int]], Tensor]" = WeakValueDictionary()


_blocks = _Blocks()


def new(device: torch.device, size: int) -> Tensor:
    """A block of so many bytes, aligned for every type."""
    return torch.empty(-(-size // 8), dtype=torch.float64, device=device)


def block(device: torch.device, stream: Optional[int], size: int) -> Tensor:
    """At least so many bytes, to be used for steps of this stream and thread only."""
    found = _blocks.of_stream.get((device, stream))
    if found is None or found.nbytes < size:
        found = _blocks.of_stream[device, stream] = new(device, size)
    return found
