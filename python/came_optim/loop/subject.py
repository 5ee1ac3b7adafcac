"""One parameter of one step as the equations see it: a batch of matrices (b, i, j) in f32 (f64 for f64 parameters), the
state by name, and the storing of results in whatever types they have.
"""

from typing import Any, Dict, NamedTuple, Optional, Union

import torch
from torch import Tensor

from .. import native
from . import codes
from .rounding import random_bits, rounding_key, to_dtype

Number = Union[float, Tensor]
_PARAMETER, _MOMENTUM, _SECOND_MOMENT = 1, 2, 3  # streams of random bits


class Subject(NamedTuple):
    """What a step needs to know of one parameter."""

    algorithm: str
    options: Any  # native.Options, or the like with tensors
    lr: Number
    count: int  # number of this step, from 1
    id: int
    view: native.View
    param: Tensor
    grad: Tensor  # as it was given
    multiplier: float  # (1), (2): of the gradient
    slot: Dict[str, Any]
    differentiable: bool

    @property
    def dtype(self) -> torch.dtype:
        """Of arithmetic and statistics."""
        return torch.float64 if self.param.dtype == torch.float64 else torch.float32

    def matrices(self, tensor: Tensor) -> Tensor:
        """A tensor of the parameter's shape as (b, i, j)."""
        if self.differentiable:
            tensor = tensor.clone()  # it is overwritten before the derivative is taken
        return tensor.to(self.dtype).reshape(self.view.batch, self.view.rows, self.view.cols)

    def g(self) -> Tensor:
        g = self.matrices(self.grad)
        return g if self.multiplier == 1 else g * self.multiplier

    def uphill(self) -> Tensor:
        """A tensor with the signs of the gradient, even where its multiplier makes the numbers themselves vanish."""
        sign = (self.multiplier > 0) - (self.multiplier < 0)
        return self.matrices(self.grad) * sign

    def theta(self) -> Tensor:
        return self.matrices(self.param)

    # ---- state ---------------------------------------------------------------------------------------

    def average(self, name: str, value: Tensor, beta: float) -> Tensor:
        """A statistic <- beta statistic + (1 - beta) value, in the shape of the value."""
        return self.put(name, blend(self.get(name).reshape(value.shape), value, beta))

    def get(self, name: str) -> Tensor:
        tensor = self.slot[name]
        return tensor.clone() if self.differentiable else tensor

    def put(self, name: str, value: Tensor) -> Tensor:
        old = self.slot[name]
        value = value.to(old.dtype)
        if self.differentiable:
            self.slot[name] = value.reshape(old.shape)
        else:
            old.copy_(value.reshape(old.shape))
        return value

    def has_momentum(self) -> bool:
        return "exp_avg" in self.slot

    def momentum(self) -> Tensor:
        levels = codes.LEVELS.get(self.slot["exp_avg"].dtype)
        if levels is None:
            return self.matrices(self.get("exp_avg"))
        stored = self._rows("exp_avg")
        stored = codes.unpack_int4(stored, self.view.cols) if levels == codes.INT4 else stored
        return codes.decode(stored, self._rows("exp_avg_scale"), levels).to(self.dtype)

    def put_momentum(self, value: Tensor) -> Tensor:
        """Stores it and returns it as stored: everything downstream uses that."""
        levels = codes.LEVELS.get(self.slot["exp_avg"].dtype)
        if levels is None:
            narrow = self.slot["exp_avg"].dtype
            random = self._random(_MOMENTUM) if self.options.stochastic_rounding else None
            return self.put("exp_avg", to_dtype(value, narrow, random)).to(self.dtype)
        stored, scale = codes.encode(value.float(), levels)
        self.put("exp_avg_scale", scale)
        self.put("exp_avg", codes.pack_int4(stored) if levels == codes.INT4 else stored)
        return codes.decode(stored, scale, levels).to(self.dtype)

    def second_moment(self) -> Tensor:
        if self.slot["exp_avg_sq"].dtype != torch.uint8:
            return self.matrices(self.get("exp_avg_sq"))
        return codes.decode_second(self._rows("exp_avg_sq"), self._rows("exp_avg_sq_scale")).to(self.dtype)

    def put_second_moment(self, value: Tensor) -> Tensor:
        if self.slot["exp_avg_sq"].dtype != torch.uint8:
            return self.put("exp_avg_sq", value)
        stored, scale = codes.encode_second(value.float(), self._random(_SECOND_MOMENT))
        self.put("exp_avg_sq_scale", scale)
        self.put("exp_avg_sq", stored)
        return codes.decode_second(stored, scale).to(self.dtype)

    def _rows(self, name: str) -> Tensor:
        return self.slot[name].reshape(self.view.batch, self.view.rows, -1)

    def _random(self, stream: int) -> Tensor:
        """32 random bits per element."""
        key = rounding_key(self.options.seed, self.count, self.id, stream)
        bits = random_bits(key, self.param.numel(), self.param.device)
        return bits.reshape(self.view.batch, self.view.rows, self.view.cols)

    # ---- parameter -----------------------------------------------------------------------------------

    def agreement(self, direction: Tensor, gradient: Tensor, rescale: bool = True) -> Number:
        """(3): the multiplier of the direction; `direction` and `gradient` have the signs that count."""
        if not self.options.cautious:
            return 1.0
        # Not by their product, which may be too small to have a sign.
        agrees = ((direction > 0) & (gradient > 0) | (direction < 0) & (gradient < 0)).to(self.dtype)
        return agrees / agrees.mean().clamp(min=1e-3) if rescale else agrees

    def move(self, decay: Number, change: Tensor) -> None:
        """(4): theta <- theta - (decay theta + change), rounded once."""
        theta = self.theta()
        # Without decay no product: infinity times zero is not zero.
        value = theta - (change if is_zero(decay) else decay * theta + change)
        random: Optional[Tensor] = self._random(_PARAMETER) if self.options.stochastic_rounding else None
        self.param.copy_(to_dtype(value, self.param.dtype, random).reshape(self.param.shape))


def blend(old: Tensor, new: Tensor, beta: float) -> Tensor:
    """beta old + (1 - beta) new.

    Starting from the one with the larger weight: the weights add up to 1 though beta is rounded, and what has almost no weight
    leaves no trace of its size.
    """
    return old + (1 - beta) * (new - old) if beta >= 0.5 else new + beta * (old - new)


def is_zero(number: Number) -> bool:
    return not isinstance(number, Tensor) and number == 0
