"""How a group is stepped: by kernels or in the loop, at a rate that is a number or a tensor.  What torch's optimizers refuse is refused with
their messages.
"""

from numbers import Real
from typing import Any, Mapping

import torch
from torch import Tensor

from .library import is_built, library

KERNEL_DEVICES = ("cpu", "cuda")
MODES = {"foreach", "fused", "differentiable", "capturable"}


def check_rate(lr: Any, group: Mapping[str, Any]) -> None:
    """Raises for a rate that no step could take."""
    if isinstance(lr, Tensor):
        if group["foreach"] and not group["capturable"]:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, has shape {list(lr.shape)}")
        if lr.is_complex() or lr.dtype is torch.bool or lr.is_meta:
            raise TypeError(f"lr: a tensor of {lr.dtype} on {lr.device} given, expected a real number in memory")
        return
    if isinstance(lr, bool) or not isinstance(lr, Real):
        raise TypeError(f"lr: {lr!r} ({type(lr).__name__}) given, expected a number or a tensor of one")
    if not 0 <= lr < float("inf"):
        raise ValueError(f"Invalid learning rate: {lr}, expected a finite number >= 0")


def check_modes(group: Mapping[str, Any]) -> None:
    """Raises for modes that do not go together, or want kernels that are not there."""
    if group["fused"] and group["differentiable"]:
        raise RuntimeError("`fused` does not support `differentiable`")
    if group["fused"] and group["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if group["fused"]:
        try:
            library()
        except ImportError as error:
            raise RuntimeError(f"`fused=True` needs the kernels; {error}") from error
    if group["capturable"] and (group["fused"] is False or group["foreach"] or group["differentiable"] or not is_built()):
        raise RuntimeError(
            "`capturable` needs the kernels, whose counters lie on the device; the loop, which runs for `fused=False`, `foreach` and "
            "`differentiable`, and where libcame is not built, reads them on the host"
        )


def check_fused(group: Mapping[str, Any], param: Tensor) -> None:
    """When a parameter is first stepped, as in torch: until then it may be on the meta device."""
    if group["fused"] and (param.device.type not in KERNEL_DEVICES or not param.is_floating_point()):
        raise RuntimeError(
            f"`fused=True` requires all the params to be floating point Tensors of supported devices: {KERNEL_DEVICES}; one is "
            f"{param.dtype} on {param.device}"
        )
