"""SM3-II: docs/algorithms.md, equations (25) to (27)."""

import torch

from .subject import Subject, blend


def step(s: Subject) -> None:
    o, g = s.options, s.g()
    if s.view.factored:
        shape = (s.view.batch, s.view.rows, s.view.cols)
        rows = s.get("accumulator_row").reshape(shape[:2])
        cols = s.get("accumulator_col").reshape(shape[0], shape[2])
        cover = torch.minimum(rows.unsqueeze(-1), cols.unsqueeze(-2)) + g.square()
        s.put("accumulator_row", cover.amax(-1))
        s.put("accumulator_col", cover.amax(-2))
    else:
        cover = s.put("accumulator", s.matrices(s.get("accumulator")) + g.square())
    direction = g / (cover + o.eps).sqrt()
    if s.has_momentum():
        m = s.put_momentum(blend(s.momentum(), direction, o.beta1))
        direction = m * s.agreement(m, s.uphill())
    s.move(s.lr * o.weight_decay, s.lr * direction)
