"""Adam and AdamW: docs/algorithms.md, equations (18) to (21)."""

from .subject import Subject, blend, is_zero


def step(s: Subject) -> None:
    o, g, uphill = s.options, s.g(), s.uphill()
    decoupled = s.algorithm == "adamw"
    if not is_zero(o.weight_decay) and not decoupled:
        g = uphill = g + o.weight_decay * s.theta()
    v = s.put_second_moment(blend(s.second_moment(), g.square(), o.beta2))
    m = s.put_momentum(blend(s.momentum(), g, o.beta1))
    correction1, correction2 = 1 - o.beta1**s.count, 1 - o.beta2**s.count
    direction = (m / correction1) / ((v / correction2).sqrt() + o.eps)
    s.move(s.lr * o.weight_decay if decoupled else 0.0, s.lr * direction * s.agreement(m, uphill))
