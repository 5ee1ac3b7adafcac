"""One parameter of an optimizer: what it, its gradient and its state must be."""

from numbers import Real
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from . import memory, native
from .sharding import check_mesh, is_dtensor

DTYPES = {getattr(torch, name): name for name in native.DTYPES}
COUNTER = torch.float64  # counts to 2**53, float32 only to 2**24
_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Member(NamedTuple):
    """One parameter and where the optimizer has it."""

    param: Tensor
    group: int
    id: int  # its number among all parameters of the optimizer
    name: str

    def __str__(self) -> str:
        return f"parameter {self.id}" + (f" '{self.name}'" if self.name else "")


def spec_of(member: Member) -> native.Spec:
    """A parameter as libcame sees it."""
    param, grad = member.param, member.param.grad
    for what, tensor in (("parameter", param), ("gradient", grad)):
        if tensor is not None and tensor.dtype not in _FLOATS:
            raise TypeError(f"{member}: its {what} is {tensor.dtype}, expected float64, float32, bfloat16 or float16")
    grad_dtype = DTYPES[param.dtype if grad is None else grad.dtype]
    return native.Spec(tuple(param.shape), DTYPES[param.dtype], grad_dtype, member.group, member.name, member.id)


def check_gradient(member: Member, owner: str, param: Tensor, grad: Optional[Tensor]) -> None:
    """Raises for a gradient that no optimizer here can take; both as they lie on this rank."""
    if grad is None:
        return
    if grad.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        raise RuntimeError(f"{owner} does not support sparse gradients: that of {member} is {grad.layout}")
    if grad.is_complex():
        raise RuntimeError(f"{owner} does not support complex gradients: that of {member} is {grad.dtype}")
    memory.check(grad, f"{owner}: the gradient of {member}")
    if (grad.shape, grad.device) != (param.shape, param.device):
        raise ValueError(
            f"{owner}: the gradient of {member} has shape {list(grad.shape)} on {grad.device}, expected {list(param.shape)} on "
            f"{param.device}"
        )


def check_state(owner: str, member: Member, wanted: native.State, have: Any, device: torch.device) -> None:
    """Raises for a state tensor that is not what a plan wants."""
    label = f"{owner}: state {wanted.name} of {member}"
    if not isinstance(have, Tensor):
        raise TypeError(f"{label} is {have!r} ({type(have).__name__}), expected a tensor")
    if is_dtensor(have):
        check_mesh(have, member.param, label)
    else:
        memory.check(have, label)
    both_float = have.dtype in _FLOATS and wanted.dtype in map(DTYPES.get, _FLOATS)
    same_kind = both_float or DTYPES.get(have.dtype) == wanted.dtype
    if tuple(have.shape) != wanted.shape or not same_kind or have.device != device:
        raise ValueError(
            f"{label} is {have.dtype} {list(have.shape)} on {have.device}, expected {wanted.dtype} {list(wanted.shape)} on "
            f"{device}: set view, momentum_dtype and other options that decide the state before the first step, or after "
            "`optimizer.state.clear()`; a checkpoint must be of the same parameters in the same order"
        )


def counter(value: Any, what: str, device: torch.device) -> Tensor:
    """A number of steps as a tensor that counts on, exact whatever torch's default type is."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return torch.tensor(value, dtype=COUNTER, device=device)
    if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
        raise TypeError(f"{what} is {value!r}, expected a number or a tensor of one")
    memory.check(value, what)
    if value.device.type == "meta":
        raise ValueError(f"{what} is on meta, expected a number of steps")
    return value.detach().to(device, COUNTER).reshape(())
