"""The formats of docs/numerics.md in numpy, from the documents: rounding to each type, random bits, codes of moments.

Every rounding here is monotonic for given random bits, so the stored form of a ball lies between those of its ends.
"""

import numpy as np

BLOCK = 128
LEVELS = {"int8": 127, "int4": 7}
PARAMETER, MOMENTUM, SECOND = 1, 2, 3  # streams of random bits
_M64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15

STORAGE = {"float64": np.float64, "float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}
STORAGE.update(int64=np.int64, int8=np.int8, uint8=np.uint8)


def f64(stored, dtype):
    """Numbers of a stored array."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def to_f32(x):
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float64).astype(np.float32)


def store(x, dtype):
    """f64 numbers to nearest, by way of f32 where the type is narrower."""
    if dtype == "float64":
        return np.asarray(x, np.float64)
    single = to_f32(x)
    if dtype == "float32":
        return single
    if dtype == "float16":
        with np.errstate(all="ignore"):
            return single.astype(np.float16)
    bits = single.view(np.uint32)
    nearest = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
    return np.where(np.isfinite(single), nearest, (bits >> 16).astype(np.uint16) | (np.isnan(single) * np.uint16(0x40)))


def rounded(x, dtype, random=None):
    """f64 value of x as stored; with random bits, 16-bit types are rounded stochastically."""
    if random is None or dtype not in ("bfloat16", "float16"):
        return f64(store(x, dtype), dtype)
    single = to_f32(x)
    bits, sign = single.view(np.uint32), np.where(np.signbit(single), -1.0, 1.0)
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.uint64)
    drop = 16 if dtype == "bfloat16" else 13
    up = (magnitude + (random.astype(np.uint64) >> np.uint64(32 - drop))) >> np.uint64(drop) << np.uint64(drop)
    with np.errstate(all="ignore"):
        value = up.astype(np.uint32).view(np.float32).astype(np.float64)
        if dtype == "float16":
            steps = np.abs(single).astype(np.float64) * 2.0**24
            draw = (random >> np.uint32(8)).astype(np.float64) * 2.0**-24
            small = (np.floor(steps) + (draw < steps - np.floor(steps))) * 2.0**-24
            value = np.where(steps < 2.0**10, small, np.where(value >= 65536, np.inf, value))
        return np.where(np.isfinite(single), sign * value, single.astype(np.float64))


def _mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _M64
    return x ^ (x >> 31)


def random_bits(seed, step, tensor, stream, elements):
    """32 bits for each element of a tensor at a step."""
    key = _mix((seed + _GOLDEN) & _M64)
    for part in (step, tensor):
        key = _mix(key ^ ((part + _GOLDEN) & _M64))
    key = _mix(key ^ stream)
    x = np.arange(elements, dtype=np.uint32) ^ np.uint32(key & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB)
    x ^= np.uint32(key >> 32)
    x = (x ^ (x >> np.uint32(11))) * np.uint32(0xAC4C1B51)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB)
    return x ^ (x >> np.uint32(14))


# ---- codes: docs/algorithms.md, (30) and (31) ----------------------------------------------------------


def each(scales, columns):
    """One scale per element, from one per block of a row."""
    return np.repeat(scales, BLOCK, -1)[..., :columns]


def unpack(packed, columns):
    """4-bit codes, two in a byte, the even column low."""
    nibbles = np.stack((packed & 15, packed >> 4), -1).reshape(*packed.shape[:-1], -1)[..., :columns].astype(np.int32)
    return np.where(nibbles < 8, nibbles, nibbles - 16)


def value_of(code, scale, levels):
    """f32, as codes are read."""
    code = code.astype(np.float32)
    with np.errstate(all="ignore"):
        return (scale * (code * np.abs(code) * (np.float32(1) / np.float32(levels * levels)))).astype(np.float64)


def code_of(m, scale, levels):
    """Nearest code of f64 numbers, in exact arithmetic; 0 where the scale is no number to divide by."""
    with np.errstate(all="ignore"):
        root = np.sqrt(np.abs(m) / scale) * levels
        low = np.minimum(np.floor(np.nan_to_num(root)), levels)
        code = low + (np.abs(m) / scale * levels * levels > low * low + low + 0.5)
        return np.where(scale > 0, np.copysign(np.minimum(code, levels), m), 0.0)


def second_value(code, scale):
    t = code.astype(np.float32) * (np.float32(1) / np.float32(255))
    with np.errstate(all="ignore"):
        return (scale * ((t * t) * (t * t))).astype(np.float64)


def second_code(v, scale, random):
    """The code that the draw gives a second moment v >= 0, in f64."""
    with np.errstate(all="ignore"):
        t = 255 * np.sqrt(np.sqrt(np.nan_to_num(v / scale)))
        below = np.minimum(np.floor(t), 254)
        low, high = scale * (below / 255) ** 4, scale * ((below + 1) / 255) ** 4
        code = below + ((random >> np.uint32(8)) * 2.0**-24 * (high - low) < v - low)
        code = np.where((code == 0) & (v > 0), 1, code)
        return np.where(scale > 0, code, 0)
