"""Adam and AdamW: docs/algorithms.md, equations (18) to (21)."""

import torch

from .subject import Subject


def step(s: Subject) -> None:
    o, g = s.options, s.g()
    decoupled = s.word == "adamw"
    if o.weight_decay and not decoupled:
        g = g + o.weight_decay * s.theta()
    v = s.put_second_moment(torch.lerp(s.second_moment(), g.square(), 1 - o.beta2))
    m = s.put_momentum(torch.lerp(s.momentum(), g, 1 - o.beta1))
    correction1, correction2 = 1 - o.beta1**s.count, 1 - o.beta2**s.count
    direction = (m / correction1) / ((v / correction2).sqrt() + o.eps)
    s.move(s.lr * o.weight_decay if decoupled else 0.0, s.lr * direction * s.agreement(m, g))
