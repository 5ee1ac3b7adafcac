"""Codes of quantised moments in blocks of 128 columns with one f32 scale each: docs/algorithms.md, equations (30), (31).

The formulas of src/algorithms/quantize.hpp; tensors are (b, i, j), scales (b, i, block).
"""

from typing import Optional, Tuple

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 128
INT8, INT4, SECOND = 127, 7, 255
LEVELS = {torch.int8: INT8, torch.uint8: INT4}  # of a momentum, by what its codes are stored in


def _largest(magnitudes: Tensor) -> Tensor:
    """Of each block; NaN if one is."""
    b, i, j = magnitudes.shape
    padded = pad(magnitudes, (0, -j % BLOCK))
    return padded.reshape(b, i, padded.shape[-1] // BLOCK, BLOCK).amax(-1)


def _each(scale: Tensor, columns: int) -> Tensor:
    return scale.repeat_interleave(BLOCK, -1)[..., :columns]


def encode(m: Tensor, levels: int) -> Tuple[Tensor, Tensor]:
    """Codes as int8, and scales; a scale too small to divide by counts as zero."""
    largest = _largest(m.abs())
    scale = torch.where(largest < 2.0**-110, torch.zeros_like(largest), largest)
    each = _each(scale, m.shape[-1])
    squares = m.abs() * (levels * levels / each)
    root = squares.sqrt()
    k = torch.where(root < levels, root.trunc(), torch.full_like(root, levels))
    # Between k^2 and (k+1)^2 the middle is k^2 + k + 1/2.
    k = k + ((k < levels) & (squares > k * k + k + 0.5))
    k = torch.where(each > 0, torch.where(m < 0, -k, k), torch.zeros_like(k))
    return k.to(torch.int8), scale


def decode(code: Tensor, scale: Tensor, levels: int) -> Tensor:
    k = code.float()
    inverse = torch.tensor(1.0, dtype=torch.float32, device=k.device) / (levels * levels)
    return _each(scale, k.shape[-1]) * (k * k.abs() * inverse)


def pack_int4(code: Tensor) -> Tensor:
    """Two codes in a byte, the even column low."""
    nibbles = pad(code, (0, code.shape[-1] % 2)).to(torch.uint8) & 15
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def unpack_int4(packed: Tensor, columns: int) -> Tensor:
    nibbles = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)[..., :columns].to(torch.int8)
    return torch.where(nibbles < 8, nibbles, nibbles - 16)


def encode_second(v: Tensor, random: Tensor) -> Tuple[Tensor, Tensor]:
    """One of the two codes around v, as uint8, drawn so that the value is v on average; and scales."""
    largest = _largest(v)
    least = torch.full_like(largest, 2.0**-94)
    scale = torch.where((largest > 0) & (largest < 2.0**-94), least, largest)
    each = _each(scale, v.shape[-1])
    t = SECOND * (v / each).sqrt().sqrt()
    below = torch.where(t < SECOND - 1, t.trunc(), torch.full_like(t, SECOND - 1))
    low, high = _value(below, each), _value(below + 1, each)
    draw = (random >> 8).float() * 2.0**-24
    code = below + (draw * (high - low) < v - low)
    code = torch.where((code == 0) & (v > 0), torch.ones_like(code), code)
    return torch.where(each > 0, code, torch.zeros_like(code)).to(torch.uint8), scale


def decode_second(code: Tensor, scale: Tensor) -> Tensor:
    return _value(code.float(), _each(scale, code.shape[-1]))


def _value(code: Tensor, each: Tensor) -> Tensor:
    t = code * (torch.tensor(1.0, dtype=torch.float32, device=code.device) / SECOND)
    square = t * t
    return each * (square * square)


def decode_list(code: Tensor, scale: Tensor, count: int, second: bool) -> Optional[Tensor]:
    """What the codes of a vector's moment stand for, in f32; None if these are none of so many numbers."""
    expected = (torch.uint8,) if second else tuple(LEVELS)
    pairs = not second and code.dtype == torch.uint8
    sizes = (count + 1) // 2 if pairs else count, -(-count // BLOCK)
    if code.dtype not in expected or (code.numel(), scale.numel()) != sizes or not scale.is_floating_point():
        return None
    rows, scales = code.reshape(1, 1, -1), scale.float().reshape(1, 1, -1)
    if second:
        return decode_second(rows, scales).reshape(-1)
    return decode(unpack_int4(rows, count) if pairs else rows, scales, LEVELS[code.dtype]).reshape(-1)
