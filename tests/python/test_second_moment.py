"""The 8-bit second moment against docs/algorithms.md, (31), written down in numpy: codes, scales, draws, parameters."""

import numpy as np
import pytest
from cases import FAMILIES, TOLERANCE, error, gradients, learning_rates, start
from libcame import Stepper
from papers import AdamW

BLOCK, LEVELS, STREAM = 128, np.float32(255), 3
LR, SEED = 1e-3, 7
SHAPES = [(5, 300), (7, 13), (3, 4, 40), (1, 129), (3, 1)]


def mix64(x):
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def random_bits(seed, step, tensor, elements):
    golden, key = np.uint64(0x9E3779B97F4A7C15), np.uint64(0)
    with np.errstate(over="ignore"):
        for part in (seed, step, tensor):
            key = mix64(key ^ (np.uint64(part) + golden))
        key = int(mix64(key ^ np.uint64(STREAM)))
        x = elements.astype(np.uint32) ^ np.uint32(key & 0xFFFFFFFF)
        x = (x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB)
        x ^= np.uint32(key >> 32)  # elements here are below 2^32
        x = (x ^ (x >> np.uint32(11))) * np.uint32(0xAC4C1B51)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB)
    return x ^ (x >> np.uint32(14))


def values(codes, scale):
    t = codes.astype(np.float32) * (np.float32(1) / LEVELS)
    return scale * ((t * t) * (t * t))


def coded(v, step):
    """Codes, scales and values of the second moment of a matrix; f32 arithmetic."""
    rows = v.astype(np.float32).reshape(v.shape[0], -1)
    bits = random_bits(SEED, step, 0, np.arange(rows.size)).reshape(rows.shape)
    codes, scales, result = np.zeros(rows.shape, np.uint8), [], np.zeros_like(rows)
    for first in range(0, rows.shape[1], BLOCK):
        part = slice(first, first + BLOCK)
        x = rows[:, part]
        largest = x.max(1, keepdims=True)
        scale = np.where(largest > 0, np.maximum(largest, np.float32(2.0**-94)), np.float32(0))
        ratio = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
        below = np.minimum(np.floor(LEVELS * np.sqrt(np.sqrt(ratio))), np.float32(254))
        low, high = values(below, scale), values(below + 1, scale)
        draw = (bits[:, part] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        code = below + (draw * (high - low) < x - low)
        code = np.where(x > 0, np.maximum(code, 1), 0)
        codes[:, part], result[:, part] = code, values(code, scale)
        scales.append(scale)
    return codes.reshape(v.shape), np.concatenate(scales, 1), result.reshape(v.shape).astype(np.float64)


class CodedAdamW(AdamW):
    """Stores the second moment as codes before it is used."""

    def step(self, g, lr):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.codes, self.scales, self.v = coded(self.beta2 * self.v + (1 - self.beta2) * (g * g), self.t)
        m_hat, v_hat = self.m / (1 - self.beta1**self.t), self.v / (1 - self.beta2**self.t)
        self.p -= lr * (m_hat / (np.sqrt(v_hat) + self.eps) + self.wd * self.p)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_docs(shape, family):
    ours = Stepper("adamw", [start(shape)], second_moment_dtype="int8", seed=SEED)
    docs = CodedAdamW(start(shape))
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        ours.step([g], lr)
        docs.step(g, lr)
        assert np.array_equal(ours.state[0]["exp_avg_sq"], docs.codes)
        assert np.array_equal(ours.state[0]["exp_avg_sq_scale"].ravel(), docs.scales.ravel())
    assert error(ours.params[0], docs.p, start(shape)) <= TOLERANCE
