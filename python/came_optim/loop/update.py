"""What CAME and Adafactor share: factored averages (5), (6), the update (7) and its clipping (8)."""

import torch
from torch import Tensor

from .subject import Subject


def factored(s: Subject, prefix: str, x: Tensor, beta: float, eps: float) -> Tensor:
    """Takes the averages of rows and columns of x and returns sqrt(mean(r) / (r_i c_j)), in f64: it may exceed f32
    where other rows and columns are huge."""
    r = s.average(f"{prefix}_row", x.mean(-1) + eps, beta).double()
    c = s.average(f"{prefix}_col", x.mean(-2) + eps, beta).double()
    # Two roots: the product of two tiny averages would be 0.
    return r.mean(-1, keepdim=True).sqrt().unsqueeze(-1) / (r.sqrt().unsqueeze(-1) * c.sqrt().unsqueeze(-2))


def clipped_update(s: Subject, beta2: float) -> Tensor:
    """The gradient over the root of its second moment, with an RMS of at most clip_threshold.

    In f64 until it is clipped: an update that f32 does not hold, or whose square it does not, is still to be made short.
    """
    g, o = s.g(), s.options
    if s.view.factored:
        u = g.double() * factored(s, "exp_avg_sq", g.square(), beta2, o.eps1)
    else:
        u = g.double() / s.average("exp_avg_sq", g.square() + o.eps1, beta2).double().sqrt()
    rms = u.square().mean().sqrt()
    # An RMS that is NaN does not clip.
    return (u / torch.where(rms > o.clip_threshold, rms / o.clip_threshold, torch.ones_like(rms))).to(s.dtype)
