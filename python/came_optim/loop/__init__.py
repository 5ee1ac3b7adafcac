"""The optimizers as plain loops over tensors in PyTorch: the executable specification that the kernels are compared with, and
what runs for `fused=False`, `foreach`, `differentiable`, and on devices without kernels.

Every option is here.  One file per optimizer, whose `step(subject)` reads like its equations in docs/algorithms.md;
subject.py has what they share.  Kernels and loop differ by the order of sums only.
"""

import math
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence

from torch import Tensor

from .. import native
from ..binding import Binding, Gradients
from ..options import element
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


def _norm(grads: Sequence[Optional[Tensor]], unscale: float) -> float:
    return sum(float((grad.detach().double() * unscale).square().sum()) for grad in grads if grad is not None) ** 0.5


def _clipping(norm: float, most: float) -> float:
    """(2)"""
    return min(1.0, most / (norm + 1e-6)) if math.isfinite(norm) else 0.0


def _differentiable(options: native.Options, fields: Mapping[str, str], group: Mapping[str, Any]) -> Any:
    """Options of a group in which those that a derivative may be taken of are the user's tensors."""
    given = {field: element(group, argument) for field, argument in fields.items()}
    tensors = {field: value.reshape(()) for field, value in given.items() if isinstance(value, Tensor) and value.requires_grad}
    if "max_grad_norm" in tensors:
        raise RuntimeError("`differentiable` does not support a `max_grad_norm` that requires grad: the norm is taken as a number")
    return SimpleNamespace(**{**{name: getattr(options, name) for name, *_ in native.Options._fields_}, **tensors})


def run(
    algorithm: str,
    fields: Mapping[str, str],
    binding: Binding,
    groups: List[Dict[str, Any]],
    gradients: Gradients,
    rates: Sequence[Any],
    grad_scale: Optional[Tensor],
    found_inf: Optional[Tensor],
) -> None:
    """One step of the parameters of a binding, one after the other; scalars.check comes before."""
    if found_inf is not None and bool(found_inf):
        return
    unscale = 1.0 if grad_scale is None else 1.0 / float(grad_scale)
    options = binding.options
    norm = _norm(gradients.tensors, unscale) if any(o.max_grad_norm for o in options) else 0.0
    for k, (member, grad) in enumerate(zip(binding.members, gradients.tensors)):
        if grad is None:
            continue
        o = options[member.group]
        differentiable = bool(groups[member.group]["differentiable"])
        multiplier = unscale * (_clipping(norm, o.max_grad_norm) if o.max_grad_norm else 1.0)
        subject = Subject(
            algorithm=algorithm,
            options=_differentiable(o, fields, groups[member.group]) if differentiable else o,
            lr=rates[member.group],
            count=int(binding.slots[k]["step"]) + 1,
            id=member.id,
            view=binding.plan.view(k),
            param=member.param,
            grad=grad,
            multiplier=-multiplier if o.maximize else multiplier,
            slot=binding.slots[k],
            differentiable=differentiable,
        )
        if member.param.numel() > 0:
            _STEPS[algorithm](subject)
        binding.slots[k]["step"].add_(1)
