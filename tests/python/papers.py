"""The papers' algorithms in numpy, each from its own text: sums where the paper has sums, no shared code with libcame.

A class holds one tensor: p (changed in place), and step(g, lr).  Matrices are 2-D arrays; other arrays are elementwise.
"""

import numpy as np


def cautious_mask(momentum, g):
    """Elements that agree with the gradient, rescaled: docs/algorithms.md, equation (3)."""
    mask = (momentum * g > 0).astype(float)
    return mask / max(mask.mean(), 1e-3)


class Adafactor:
    """CAME paper, Algorithm 1: Adafactor with momentum."""

    def __init__(self, p, beta1=0.9, beta2=0.999, eps1=1e-30, d=1.0, cautious=False):
        self.p, self.beta1, self.beta2, self.eps1, self.d, self.cautious = p, beta1, beta2, eps1, d, cautious
        self.r, self.c, self.v, self.m = 0.0, 0.0, 0.0, np.zeros_like(p)

    def clipped_update(self, g):
        if g.ndim == 2:
            ones_n, ones_m = np.ones(g.shape[0]), np.ones(g.shape[1])
            square = g**2 + self.eps1 * np.outer(ones_n, ones_m)
            self.r = self.beta2 * self.r + (1 - self.beta2) * square @ ones_m
            self.c = self.beta2 * self.c + (1 - self.beta2) * ones_n @ square
            self.v = np.outer(self.r, self.c) / (ones_n @ self.r)
        else:
            self.v = self.beta2 * self.v + (1 - self.beta2) * (g**2 + self.eps1)
        u = g / np.sqrt(self.v)
        return u / max(1, np.sqrt(np.mean(u**2)) / self.d)

    def step(self, g, lr):
        self.m = self.beta1 * self.m + (1 - self.beta1) * self.clipped_update(g)
        self.p -= lr * self.m * (cautious_mask(self.m, g) if self.cautious else 1)


class Came(Adafactor):
    """CAME paper, Algorithm 2; with the options that docs/algorithms.md adds to it."""

    def __init__(
        self, p, beta3=0.9999, eps2=1e-16, wd=0.0, bias_correction=False, confidence_1d=False, **rest
    ):
        super().__init__(p, **rest)
        self.beta3, self.eps2, self.wd = beta3, eps2, wd
        self.bias_correction, self.confidence_1d = bias_correction, confidence_1d
        self.R, self.C, self.S, self.t = 0.0, 0.0, 0.0, 0

    def step(self, g, lr):
        self.t += 1
        u = self.clipped_update(g)
        self.m = self.beta1 * self.m + (1 - self.beta1) * u
        U = (u - self.m) ** 2
        if g.ndim == 2:
            n, m = g.shape
            self.R = self.beta3 * self.R + (1 - self.beta3) * (U + self.eps2) @ np.ones(m)
            self.C = self.beta3 * self.C + (1 - self.beta3) * np.ones(n) @ (U + self.eps2)
            self.S = np.outer(self.R, self.C) / self.R.sum()
        elif self.confidence_1d:
            self.S = self.beta3 * self.S + (1 - self.beta3) * (U + self.eps2)
        else:
            self.S = 1.0
        S = self.S
        if self.bias_correction and (g.ndim == 2 or self.confidence_1d):
            S = S / (1 - self.beta3**self.t)
        direction = self.m / np.sqrt(S)
        if self.cautious:
            direction = direction * cautious_mask(self.m, g)
        self.p -= lr * self.wd * self.p + lr * direction


class AdamW:
    """Decoupled weight decay regularization, Algorithm 2, with the cautious mask of docs/algorithms.md."""

    def __init__(self, p, beta1=0.9, beta2=0.999, eps=1e-8, wd=1e-2, cautious=False):
        self.p, self.beta1, self.beta2, self.eps, self.wd, self.cautious = p, beta1, beta2, eps, wd, cautious
        self.m, self.v, self.t = np.zeros_like(p), np.zeros_like(p), 0

    def step(self, g, lr):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g**2
        m_hat, v_hat = self.m / (1 - self.beta1**self.t), self.v / (1 - self.beta2**self.t)
        direction = m_hat / (np.sqrt(v_hat) + self.eps)
        if self.cautious:
            direction = direction * cautious_mask(self.m, g)
        self.p -= lr * (direction + self.wd * self.p)


class Lamb:
    """Large batch optimization for deep learning, Algorithm 2, with the identity as scaling function."""

    def __init__(self, p, beta1=0.9, beta2=0.999, eps=1e-6, wd=1e-2, bias_correction=True, cautious=False):
        self.cautious = cautious
        self.p, self.beta1, self.beta2, self.eps, self.wd = p, beta1, beta2, eps, wd
        self.bias_correction, self.m, self.v, self.t = bias_correction, np.zeros_like(p), np.zeros_like(p), 0

    def step(self, g, lr):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g**2
        m, v = self.m, self.v
        if self.bias_correction:
            m, v = m / (1 - self.beta1**self.t), v / (1 - self.beta2**self.t)
        update = m / (np.sqrt(v) + self.eps) + self.wd * self.p
        if self.cautious:  # the trust ratio rescales
            update = update * (update * g > 0)
        norms = np.linalg.norm(self.p), np.linalg.norm(update)
        ratio = norms[0] / norms[1] if norms[0] > 0 and norms[1] > 0 else 1.0
        self.p -= lr * ratio * update


class Sm3:
    """Memory-efficient adaptive optimization, Algorithm SM3-II; the cover: rows and columns, or single elements."""

    def __init__(self, p, beta1=0.0, wd=0.0, cautious=False):
        self.p, self.beta1, self.wd, self.cautious, self.m = p, beta1, wd, cautious, np.zeros_like(p)
        self.mu = [np.zeros_like(p.sum(axis=k, keepdims=True)) for k in range(2)] if p.ndim == 2 else [np.zeros_like(p)]

    def step(self, g, lr):
        nu = g**2 + (np.minimum(*self.mu) if g.ndim == 2 else self.mu[0])
        self.mu = [nu.max(axis=k, keepdims=True) for k in range(2)] if g.ndim == 2 else [nu]
        with np.errstate(invalid="ignore"):
            u = np.where(nu > 0, g / np.sqrt(nu), 0.0)  # 0/0 := 0
        self.m = self.beta1 * self.m + (1 - self.beta1) * u
        self.p -= lr * self.wd * self.p + lr * self.m * (cautious_mask(self.m, g) if self.cautious else 1)
