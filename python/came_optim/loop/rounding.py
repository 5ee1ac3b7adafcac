"""Rounding to 16 bits, to nearest or stochastically, and the counter-based random bits behind the latter: the formulas of
src/algorithms/rounding.hpp on integers of 64 bits.  docs/numerics.md, "Rounding".
"""

from typing import Optional

import torch
from torch import Tensor

_MASK32, _MASK64 = 2**32 - 1, 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix64(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def rounding_key(seed: int, step: int, tensor: int, stream: int) -> int:
    """Key of all draws for one tensor at one step."""
    key = _mix64((seed + _GOLDEN) & _MASK64)
    key = _mix64(key ^ ((step + _GOLDEN) & _MASK64))
    key = _mix64(key ^ ((tensor + _GOLDEN) & _MASK64))
    return _mix64(key ^ stream)


def random_bits(key: int, count: int, device: torch.device) -> Tensor:
    """32 random bits for each of the elements 0 to count - 1, as int64."""

    def times(x: Tensor, factor: int) -> Tensor:
        return (x * factor) & _MASK32  # wraps in 64 bits, of which the lower half is right

    element = torch.arange(count, dtype=torch.int64, device=device)
    x = (element & _MASK32) ^ (key & _MASK32)
    x = times(x ^ (x >> 17), 0xED5AD4BB)
    x = x ^ ((times(element >> 32, 0x9E3779B9) + (key >> 32)) & _MASK32)
    x = times(x ^ (x >> 11), 0xAC4C1B51)
    x = times(x ^ (x >> 15), 0x31848BAB)
    return x ^ (x >> 14)


def _float_of(bits: Tensor) -> Tensor:
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)


def _stochastic(x: Tensor, random: Tensor, dropped: int) -> Tensor:
    """Away from zero with the probability that the dropped bits of the mantissa stand for."""
    bits = x.view(torch.int32).to(torch.int64) & _MASK32
    return _float_of((bits + (random >> (32 - dropped))) >> dropped << dropped)


def _stochastic_f16(x: Tensor, random: Tensor) -> Tensor:
    # Below 2^-14 the spacing of f16 is 2^-24 throughout.
    steps = x.abs() * 2.0**24
    fraction = steps - steps.floor()
    small = (steps.floor() + ((random >> 8).float() * 2.0**-24 < fraction).float()) * 2.0**-24
    return torch.where(x.abs() < 2.0**-14, torch.copysign(small, x), _stochastic(x, random, 13))


def to_dtype(x: Tensor, dtype: torch.dtype, random: Optional[Tensor] = None) -> Tensor:
    """x in another type; with random bits, 16-bit types are rounded stochastically."""
    if dtype not in (torch.bfloat16, torch.float16):
        return x.to(dtype)
    x = x.float()
    if random is None:
        return x.to(dtype)
    rounded = _stochastic(x, random, 16) if dtype == torch.bfloat16 else _stochastic_f16(x, random)
    return torch.where(x.isfinite(), rounded, x).to(dtype)
