"""Adafactor: docs/algorithms.md, equations (14) to (17)."""

import torch

from .subject import Number, Subject, blend
from .update import clipped_update


def _rate(s: Subject) -> Number:
    """(15)"""
    o = s.options
    rate: Number = s.lr
    if o.relative_step:
        rate = min(1e-6 * s.count if o.warmup_init else 1e-2, s.count**-0.5)
    if o.scale_parameter:
        rms = s.theta().double().square().mean().sqrt()
        least = torch.as_tensor(o.eps2, dtype=rms.dtype, device=rms.device)
        rate = rate * rms.fmax(least).to(s.dtype)  # a NaN is not the larger one
    return rate


def step(s: Subject) -> None:
    o = s.options
    beta2 = 1 - s.count**o.beta2_decay if o.beta2_decay < 0 else o.beta2
    u, rate = clipped_update(s, beta2), _rate(s)
    if not s.has_momentum():
        s.move(rate * o.weight_decay, rate * u)
        return
    m = s.put_momentum(blend(s.momentum(), rate * u if o.lr_in_momentum else u, o.beta1))
    direction = m * s.agreement(m, s.uphill())
    s.move(rate * o.weight_decay, direction if o.lr_in_momentum else rate * direction)
