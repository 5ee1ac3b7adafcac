"""LAMB: docs/algorithms.md, equations (22) to (24)."""

import torch

from .subject import Subject, blend


def step(s: Subject) -> None:
    o, g, theta = s.options, s.g(), s.theta()
    v = s.put_second_moment(blend(s.second_moment(), g.square(), o.beta2))
    m = s.put_momentum(blend(s.momentum(), g, o.beta1))
    if o.bias_correction:
        m, v = m / (1 - o.beta1**s.count), v / (1 - o.beta2**s.count)
    u = m / (v.sqrt() + o.eps) + o.weight_decay * theta
    u = u * s.agreement(u, s.uphill(), rescale=False)
    theta_norm, u_norm = (x.double().square().sum().sqrt() for x in (theta, u))
    known = (theta_norm > 0) & (u_norm > 0)
    ratio = torch.where(known, theta_norm / u_norm, torch.ones_like(u_norm)).to(s.dtype)
    s.move(0.0, s.lr * ratio * u)
