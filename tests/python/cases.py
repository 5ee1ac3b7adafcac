"""Shapes and gradient families of the conformance tests, and the measure of agreement."""

import numpy as np

STEPS = 300
TOLERANCE = 1e-10  # of the displacement, in f64

SHAPES = [
    (1, 1),
    (1, 37),
    (41, 1),
    (7, 13),
    (23, 17),
    (16, 8),
    (2, 3, 5),
    (5, 4, 3),
    (8, 3, 3, 3),
    (6, 5, 1, 1),
    (67, 71),  # more than 4096 elements: no longer taken whole by one worker
    (2, 65, 66),
    (31,),
    (1,),
    (),
]
FAMILIES = ["random", "anisotropic", "sparse_rows", "constant", "drifting"]


def _unit(rng, shape):
    return rng.standard_normal(shape)


def gradients(family, shape, seed=0):
    """Yields STEPS gradients of one family."""
    rng = np.random.default_rng([seed, FAMILIES.index(family), *shape])
    scale = np.exp(2 * _unit(rng, shape))
    base = _unit(rng, shape)
    drift = _unit(rng, shape)
    for step in range(STEPS):
        if family == "random":
            yield _unit(rng, shape)
        elif family == "anisotropic":
            yield _unit(rng, shape) * scale
        elif family == "sparse_rows":
            g = _unit(rng, shape)
            # Every row sleeps nine steps of ten; the tensor as a whole is sometimes all zero.
            awake = (np.arange(shape[0] if shape else 1) + step) % 10 == 0
            yield g * (awake.reshape((-1,) + (1,) * (len(shape) - 1)) if shape else float(awake[0]))
        elif family == "constant":
            yield base.copy()
        else:
            angle = step / 40
            yield base * np.cos(angle) + drift * np.sin(angle) + 0.05 * _unit(rng, shape)


def start(shape, seed=0):
    return np.random.default_rng([seed, 99, *shape]).standard_normal(shape)


def learning_rates(base):
    """A rate that changes at every step: implementations that bake it into the momentum differ."""
    return [base * (0.5 + (step % 7) / 7) for step in range(STEPS)]


ERRORS = []  # of all comparisons so far; conftest.py reports the largest


def error(ours, theirs, origin):
    """Largest difference of the parameters, relative to the largest displacement."""
    moved = np.max(np.abs(theirs - origin), initial=0.0)
    difference = np.max(np.abs(ours - theirs), initial=0.0)
    assert np.all(np.isfinite(ours)), "ours is not finite"
    ERRORS.append(difference / moved if moved > 0 else difference)
    return ERRORS[-1]


def fold(shape):
    """The matrix [dim0, rest] of a shape with more than two dimensions."""
    return (shape[0], int(np.prod(shape[1:]))) if len(shape) > 2 else shape
