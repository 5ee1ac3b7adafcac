"""The optimizers as plain loops over tensors in PyTorch: the executable specification that the kernels are compared with, and
what runs for `fused=False`, `foreach`, `differentiable`, and on devices without kernels.

Every option is here.  One file per optimizer, whose `step(subject)` reads like its equations in docs/algorithms.md;
subject.py has what they share.  Kernels and loop differ by the order of sums only.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
from torch import Tensor

from ..binding import Binding, Gradients
from . import adafactor, adam, came, lamb, sm3
from .subject import Subject

_STEPS = {
    "came": came.step,
    "adafactor": adafactor.step,
    "adam": adam.step,
    "adamw": adam.step,
    "lamb": lamb.step,
    "sm3": sm3.step,
}


def _norm(grads: Sequence[Optional[Tensor]], unscale: Any) -> Tensor:
    squares = [(grad.detach().double() * unscale).square().sum() for grad in grads if grad is not None]
    return torch.stack(squares).sum().sqrt()


def _factor(norm: Tensor, most: float) -> Tensor:
    """(2)"""
    clipped = torch.clamp(most / (norm + 1e-6), max=1.0)
    return torch.where(norm.isfinite(), clipped, torch.zeros_like(norm))


def run(
    word: str,
    binding: Binding,
    groups: List[Dict[str, Any]],
    gradients: Gradients,
    rates: Sequence[Any],
    grad_scale: Optional[Tensor],
    found_inf: Optional[Tensor],
) -> None:
    """One step of the parameters of a binding, one after the other."""
    if found_inf is not None and bool(found_inf):
        return
    unscale: Any = 1.0 if grad_scale is None else 1.0 / grad_scale.detach().double().to(binding.device)
    options = binding.options
    norm = _norm(gradients.tensors, unscale) if any(o.max_grad_norm for o in options) else None
    for k, (member, grad) in enumerate(zip(binding.members, gradients.tensors)):
        if grad is None:
            continue
        group, o = groups[member.group], options[member.group]
        if group["differentiable"]:
            _check_differentiable(o)
        factor: Any = unscale if norm is None or not o.max_grad_norm else unscale * _factor(norm, o.max_grad_norm)
        subject = Subject(
            word=word,
            options=o,
            lr=rates[member.group],
            count=int(binding.slots[k]["step"]) + 1,
            id=member.id,
            view=binding.plan.view(k),
            param=member.param,
            grad=grad * (-factor if o.maximize else factor) if grad_changes(o, factor) else grad,
            slot=binding.slots[k],
            differentiable=bool(group["differentiable"]),
        )
        if member.param.numel() > 0:
            _STEPS[word](subject)
        binding.slots[k]["step"].add_(1)


def grad_changes(o: Any, factor: Any) -> bool:
    """Whether (1) and (2) leave another gradient than was given."""
    return bool(o.maximize) or isinstance(factor, Tensor)


def _check_differentiable(o: Any) -> None:
    refused: Mapping[str, Any] = {
        "stochastic_rounding": o.stochastic_rounding,
        "momentum_dtype": o.momentum_dtype >= 6,
        "second_moment_dtype": o.second_moment_dtype,
    }
    for name, is_set in refused.items():
        if is_set:
            raise RuntimeError(f"`differentiable` does not support `{name}`: rounding has no derivative")
