"""CAME: docs/algorithms.md, equations (5) to (13)."""

from .subject import Subject, blend
from .update import clipped_update, factored


def step(s: Subject) -> None:
    o = s.options
    u = clipped_update(s, o.beta2)
    m = s.put_momentum(blend(s.momentum(), u, o.beta1))
    instability = (u - m).square()
    correction = 1 - o.beta3**s.count if o.bias_correction else 1.0
    direction = m
    if s.view.factored:
        direction = (m * factored(s, "exp_avg_res", instability, o.beta3, o.eps2) * correction**0.5).to(s.dtype)
    elif o.confidence_1d:
        direction = m / (s.average("exp_avg_res", instability + o.eps2, o.beta3) / correction).sqrt()
    s.move(s.lr * o.weight_decay, s.lr * direction * s.agreement(m, s.uphill()))
