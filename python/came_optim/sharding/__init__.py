"""Parameters that are split over ranks: DTensors of FSDP2, HSDP and tensor parallelism.

    shards.py    a DTensor's placements -> the part of rows and columns that this rank holds; state as DTensors
    ranks.py     which ranks reduce together, and whether they agree on what they are about to do
    binding.py   phases with an all-reduce between them

A parameter keeps its mesh and its placements; torch.distributed does the rest.  Nothing here is imported before there is a DTensor.
"""

import sys
from typing import Any

from torch import Tensor


def is_dtensor(tensor: Any) -> bool:
    """Whether it is a DTensor, without loading torch.distributed."""
    made = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return made is not None and isinstance(tensor, made)


def local(tensor: Tensor) -> Tensor:
    """What lies on this rank, once it has arrived; without a gradient of its own if torch.no_grad() holds."""
    if not is_dtensor(tensor):
        return tensor
    held = tensor.to_local()
    return held if type(held) is Tensor else _arrived(held)


def _arrived(held: Tensor) -> Tensor:
    return held.wait() if type(held).__name__ == "AsyncCollectiveTensor" else held


def check_mesh(have: Any, param: Any, what: str) -> None:
    """Raises unless a DTensor lies on the mesh of a parameter."""
    if not is_dtensor(param):
        raise ValueError(f"{what} is a DTensor beside a plain parameter, expected a plain tensor: full_tensor() makes it so")
    if have.device_mesh != param.device_mesh:
        raise ValueError(f"{what} is on {have.device_mesh}, expected the parameter's {param.device_mesh}")
