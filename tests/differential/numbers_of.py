"""Parameters and gradients of a case, as functions of a few words: family, power of ten, seed."""

import numpy as np

from formats import STORAGE, store

LARGEST = {"float64": 1e300, "float32": 3e38, "bfloat16": 3e38, "float16": 65504.0}


def _normal(rng, shape, step):
    return rng.standard_normal(shape)


def _decades(rng, shape, step):
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape)


def _rows(rng, shape, step):
    scale = 10.0 ** rng.uniform(-6, 6, shape[:1] + (1,) * max(0, len(shape) - 1))
    return rng.standard_normal(shape) * scale


def _outlier(rng, shape, step):
    x = 1e-25 * rng.standard_normal(shape)
    x.reshape(-1)[:1] = 1
    return x


def _zero(rng, shape, step):
    return np.zeros(shape)


def _zero_rows(rng, shape, step):
    x = rng.standard_normal(shape)
    if shape:
        x[::2] = 0
    return x


def _sleeping_columns(rng, shape, step):
    x = rng.standard_normal(shape)
    if shape:
        x[..., np.arange(shape[-1]) % 3 != step % 3] = 0
    return x


def _constant(rng, shape, step):
    return np.full(shape, 0.5)


def _signs(rng, shape, step):
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def _one(value):
    def family(rng, shape, step):
        x = rng.standard_normal(shape)
        x.reshape(-1)[-1:] = value
        return x

    return family


FAMILIES = {
    "normal": _normal,
    "decades": _decades,
    "rows": _rows,
    "outlier": _outlier,
    "zero": _zero,
    "zero_rows": _zero_rows,
    "sleeping_columns": _sleeping_columns,
    "constant": _constant,
    "signs": _signs,
    "nan": _one(np.nan),
    "inf": _one(np.inf),
}


def gradient(tensor, index, step, number):
    """f64 numbers that the gradient's type can hold."""
    rng = np.random.default_rng([step["seed"], index])
    x = FAMILIES[tensor["family"]](rng, tuple(tensor["shape"]), number) * 10.0 ** step["power"]
    return _held(x, tensor.get("grad_dtype") or tensor["dtype"])


def parameter(tensor, index, seed):
    rng = np.random.default_rng([seed, index, 1])
    x = rng.standard_normal(tuple(tensor["shape"]))
    power = tensor["power"]
    return _held(np.zeros_like(x) if power is None else x * 10.0**power, tensor["dtype"])


def _held(x, dtype):
    """Stored numbers; what is too large for the type becomes its largest, and only infinities are infinite."""
    most = LARGEST[dtype]
    return store(np.where(np.isinf(x), x, np.clip(x, -most, most)), dtype).astype(STORAGE[dtype], copy=False)
