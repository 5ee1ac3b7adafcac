"""Who is compared on a GPU: the subjects of bench/gpu.py, f32 first, each group led by its baseline.

Besides what subjects.py has there is a CAME that anyone could write: the equations in plain torch, for torch.compile.
"""

import math
from dataclasses import replace

import torch

from subjects import (CAME_PYTORCH, DECAY, FOREACH, LR, PAPER, TRANSFORMERS, Parameters, Subject, bytes_moved, ours,
                      package, theirs)

BETA1, BETA2, BETA3, EPS1, EPS2, CLIP = 0.9, 0.999, 0.9999, 1e-30, 1e-16, 1.0


def _clipped(u: torch.Tensor) -> torch.Tensor:
    """Equation (8)."""
    return u / (u.square().mean().sqrt() / CLIP).clamp(min=1)


def _factored_root(rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    """1 / sqrt(r_i c_j / mean(r)), as in equations (7) and (13)."""
    return (rows.mean() / rows).sqrt().unsqueeze(1) * cols.rsqrt()


def came_matrix(p, g, m, r, c, R, C) -> None:
    """One step of CAME on a matrix, in place: equations (5) to (13) by their names there."""
    square = g * g + EPS1
    r.lerp_(square.mean(1), 1 - BETA2)
    c.lerp_(square.mean(0), 1 - BETA2)
    u = _clipped(g * _factored_root(r, c))
    m.lerp_(u, 1 - BETA1)
    instability = (u - m).square() + EPS2
    R.lerp_(instability.mean(1), 1 - BETA3)
    C.lerp_(instability.mean(0), 1 - BETA3)
    p.sub_(LR * m * _factored_root(R, C))


def came_vector(p, g, m, v) -> None:
    """The same on a tensor without rows and columns."""
    v.lerp_(g * g + EPS1, 1 - BETA2)
    m.lerp_(_clipped(g * v.rsqrt()), 1 - BETA1)
    p.sub_(LR * m)


class CompiledCame:
    """Plain CAME, compiled once per shape: a graph of all tensors of a model takes minutes to compile."""

    capturable = True
    buffer_bytes = None  # it allocates during the step

    def __init__(self, params: Parameters):
        backend = "inductor" if params[0].is_cuda else "eager"
        matrix, vector = (
            torch.compile(function, fullgraph=True, dynamic=False, backend=backend)
            for function in (came_matrix, came_vector)
        )
        self._calls = []
        self.state_bytes = 0
        for p in params:
            folded = p.detach().view(len(p), -1) if p.ndim > 1 else p.detach()
            sizes = [(len(p),), folded.shape[1:]] * 2 if p.ndim > 1 else [p.shape]
            state = [torch.zeros_like(folded), *map(folded.new_zeros, sizes)]
            self._calls.append((matrix if p.ndim > 1 else vector, (folded, p.grad.view_as(folded), *state)))
            self.state_bytes += sum(s.nbytes for s in state)

    def step(self) -> None:
        for function, arguments in self._calls:
            function(*arguments)


def _fused(variant: str, moved: float) -> Subject:
    return theirs("adamw", "torch-fused", torch.optim.AdamW, variant, moved, weight_decay=DECAY, fused=True)


def _bf16(algorithm: str, momentum: str, **options) -> Subject:
    return ours(algorithm, f"bf16, {momentum} momentum", momentum, "bf16", **options)


def _came_moves(shapes: list[list[int]]) -> float:
    """Resident matrices: docs/cuda.md.  Per parameter, on average."""
    streamed, kept = bytes_moved("came", "f32", "f32"), 20
    device = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    if device is None or device.multi_processor_count < 128 or device.shared_memory_per_multiprocessor < 228 << 10:
        return streamed

    def each(shape: list[int]) -> float:
        rows, cols = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
        rows_of_piece = 32 if cols <= 1024 else 16 if cols <= 2048 else 8
        stays = len(shape) > 1 and 512 <= cols <= 4096 and cols % 4 == 0 and rows <= 128 * rows_of_piece
        return kept if stays else streamed

    return sum(math.prod(s) * each(s) for s in shapes) / sum(map(math.prod, shapes))


SUBJECTS = [
    _fused("", bytes_moved("adamw", "f32", "f32")),  # against itself: how far two equal measurements differ
    FOREACH,
    ours("adamw", weight_decay=DECAY),
    package("adamw", "AdamW", weight_decay=DECAY),
    CAME_PYTORCH,
    Subject("came", "torch-compile", CompiledCame),
    replace(ours("came", **PAPER), bytes_moved=_came_moves),
    replace(package("came", "CAME", **PAPER), bytes_moved=_came_moves),
    *(ours("came", f"{momentum} momentum", momentum, **PAPER) for momentum in ("bf16", "int8", "int4")),
    theirs("adafactor", "torch-foreach", torch.optim.Adafactor, foreach=True),
    TRANSFORMERS,
    ours("adafactor"),
    ours("adafactor", "no momentum", beta1=0),  # as torch.optim.Adafactor
    ours("sm3"),
    ours("lamb"),
    _fused("bf16", 14),  # both its moments are bf16
    _bf16("adamw", "bf16", weight_decay=DECAY),
    *(_bf16("came", momentum, **PAPER) for momentum in ("f32", "bf16", "int8", "int4")),
    package("came", "CAME", "bf16, bf16 momentum", "bf16", "bf16", **PAPER),
    _bf16("adafactor", "bf16"),
]

# What every model is measured with; the others are for the first one.
EVERYWHERE = {
    "adamw/libcame",
    "came/libcame",
    "adafactor/libcame",
    "adamw/libcame/bf16, bf16 momentum",
    "came/libcame/bf16, bf16 momentum",
    "came/libcame/bf16, int8 momentum",
    "adafactor/libcame/bf16, bf16 momentum",
}
