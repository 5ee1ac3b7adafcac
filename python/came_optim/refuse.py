"""Refuses parameters that no optimizer here can step correctly, with advice."""

from typing import Any

from torch import Tensor

from . import memory
from .sharding import is_dtensor

_FLAT = (
    "{owner} works on the rows and columns of whole tensors and cannot step a flat piece of several ({what}), which has "
    "none; use data parallelism that keeps whole tensors on every rank, such as DistributedDataParallel, with "
    'a small state (momentum_dtype="int8"), or an elementwise optimizer such as came_optim.AdamW'
)


def parameter(member: Any, owner: str, elementwise: bool) -> None:
    """Raises for a parameter that kernels would misread."""
    param: Tensor = member.param
    without = None if is_dtensor(param) else memory.kind(param)
    if without is not None:
        raise TypeError(f"{owner}: {member} is {without}, expected a plain dense tensor")
    if param.is_complex():
        raise TypeError(f"{owner}: {member} is {param.dtype}, expected real numbers; torch.view_as_real gives them")
    if param.is_neg():
        raise TypeError(f"{owner}: {member} has the neg bit, which kernels cannot see; resolve_neg() gives one without")
    if elementwise:
        return
    flat = None
    if type(param).__name__ == "FlatParameter" or getattr(param, "_is_flat_param", False):
        flat = "FlatParameter of FSDP1"
    elif getattr(param, "_fsdp_flattened", False):
        flat = "piece of a FlatParameter of FSDP1, use_orig_params=True"
    elif hasattr(param, "ds_id") or hasattr(param, "ds_tensor"):
        flat = "partition of DeepSpeed ZeRO-3"
    if flat is not None:
        raise RuntimeError(_FLAT.format(owner=owner, what=flat))


def sharded(member: Any, owner: str, what: str) -> None:
    """Raises for a DTensor, by what it cannot do."""
    if is_dtensor(member.param):
        raise RuntimeError(
            f"{owner}: {what} does not support DTensors, and {member} is one, expected parameters that lie whole on every rank, or the "
            "kernels and optimizer.step()"
        )


def replaced(before: int, params: "list[Tensor]", given: "set[int]", owner: str) -> None:
    """Raises if a wrapper such as DeepSpeed's ZeRO has replaced matrices by its own flat tensors.

    `before` is the largest number of dimensions that the group had, `given` are the ids of the user's parameters."""
    if before > 1 and any(id(p) not in given for p in params) and all(p.ndim == 1 for p in params):
        raise RuntimeError(_FLAT.format(owner=owner, what="1-D tensors in place of a group's matrices, as of DeepSpeed ZeRO"))
