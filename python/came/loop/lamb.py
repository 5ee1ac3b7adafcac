"""LAMB: docs/algorithms.md, equations (22) to (24)."""

import torch

from .subject import Subject


def step(s: Subject) -> None:
    o, g, theta = s.options, s.g(), s.theta()
    v = s.put_second_moment(torch.lerp(s.second_moment(), g.square(), 1 - o.beta2))
    m = s.put_momentum(torch.lerp(s.momentum(), g, 1 - o.beta1))
    if o.bias_correction:
        m, v = m / (1 - o.beta1**s.count), v / (1 - o.beta2**s.count)
    u = m / (v.sqrt() + o.eps) + o.weight_decay * theta
    u = u * s.agreement(u, g, rescale=False)
    theta_norm, u_norm = (x.double().square().sum().sqrt() for x in (theta, u))
    known = (theta_norm > 0) & (u_norm > 0)
    ratio = torch.where(known, theta_norm / u_norm, torch.ones_like(u_norm)).to(s.dtype)
    s.move(0.0, s.lr * ratio * u)
