"""Numbers of a step, read on the host and checked before anything is written, as libcame checks those of its kernels.

The loop needs this at every step; kernels do where parameters are in several places, since each call of libcame sees its own.
"""

import math
from typing import Any, Dict, List, Optional, Sequence

from torch import Tensor

from .arguments import real
from .binding import Binding, Gradients

_MOST_STEPS = 2**53  # of a counter in float64


def check(
    binding: Binding,
    groups: List[Dict[str, Any]],
    gradients: Gradients,
    rates: Sequence[Any],
    grad_scale: Optional[Tensor],
    found_inf: Optional[Tensor],
) -> None:
    """Raises ValueError or RuntimeError for what a step of this binding could not go through with.

    What lies on a device is data to kernels: nobody waits for it.
    """

    def is_known(value: Any) -> bool:
        return not (binding.kernels and isinstance(value, Tensor) and value.is_cuda)

    for k, rate in enumerate(rates):
        if is_known(rate) and not (math.isfinite(_number(rate)) and _number(rate) >= 0):
            raise ValueError(f"step: lr of group {k} is {_number(rate)}, expected a finite number >= 0")
    counts = binding.steps.tolist() if is_known(binding.steps) else []
    for member, count in zip(binding.members, counts):
        if not 0 <= count < _MOST_STEPS or count != math.floor(count):
            raise ValueError(f"step: step of {member} is {count}, expected a whole number from 0 to {_MOST_STEPS - 1}")
    if grad_scale is not None and is_known(grad_scale) and is_known(found_inf):
        scale, skipped = _number(grad_scale, "grad_scale"), found_inf is not None and _number(found_inf, "found_inf") != 0
        if not skipped and not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"step: grad_scale is {scale}, expected a finite number > 0")
    for member, grad in zip(binding.members, gradients.tensors):
        if grad is not None and groups[member.group]["differentiable"]:
            _check_differentiable(binding.options[member.group])


def _number(value: Any, what: str = "lr") -> float:
    try:
        return float(value.detach()) if isinstance(value, Tensor) else float(value)
    except (TypeError, ValueError, RuntimeError):
        return real(what, value)


def _check_differentiable(o: Any) -> None:
    refused: Dict[str, Any] = {
        "stochastic_rounding": o.stochastic_rounding,
        "momentum_dtype": o.momentum_dtype >= 6,
        "second_moment_dtype": o.second_moment_dtype,
    }
    for name, is_set in refused.items():
        if is_set:
            raise RuntimeError(f"`differentiable` does not support `{name}`: rounding has no derivative")
