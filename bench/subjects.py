"""Who is compared: our optimizers through the C ABI, and each one's best-known implementation for PyTorch.

A subject is made from a list of torch parameters with gradients, which it shares with the baseline, and then has
`step()`, `step_afresh()`, `state_bytes` and `buffer_bytes`.  Ours and theirs of the same name do the same arithmetic, as far as their
options allow.  SUBJECTS is for compare.py; gpu_subjects.py has those of gpu.py.
"""

import importlib
import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

for folder in ("tests/python", "python"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / folder))
import libcame

Parameters = list[torch.nn.Parameter]

# Small: parameters stay of order one however many steps are taken, and bf16 ones do not move at all.
LR = 1e-8
DECAY = 0.01
PAPER = {"bias_correction": False}  # CAME as came-pytorch has it

# A code's scale is an f32 for each block of 128 elements.
BYTES = {"none": 0, "f32": 4, "bf16": 2, "int8": 1 + 4 / 128, "int4": 0.5 + 4 / 128}


def bytes_moved(algorithm: str, parameter: str, momentum: str) -> float:
    """Bytes that a step must read and write per parameter of a large matrix; gradients have the parameters' dtype."""
    p = g = BYTES[parameter]
    m, v = BYTES[momentum], 4
    return {
        "adamw": g + 2 * m + 2 * v + 2 * p,
        "lamb": g + 3 * m + 3 * v + 3 * p,  # the second pass needs moments and parameters again
        "sm3": g + 2 * m + 2 * p,
        "adafactor": 2 * g + 2 * m + 2 * p,
        "came": 2 * g + 3 * m + 2 * p,  # three passes: statistics, momentum, apply
    }[algorithm]


def _zeros(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    """From torch's allocator, as an adapter would: aligned to 64 bytes, which numpy's memory is not."""
    return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)


def _untouched(size: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)


class Ours:
    """One of our optimizers on the memory of torch tensors."""

    capturable = True

    def __init__(self, params: Parameters, algorithm: str, **options):
        device = params[0].device
        self._on_gpu = device.type == "cuda"
        backend = libcame.CUDA if self._on_gpu else libcame.AUTO
        self._plan = libcame.Plan(algorithm, params, backend, partial(_zeros, device=device), lr=LR, **options)
        self._grads = [p.grad for p in params]
        self._step = self._plan.bind(self._grads)
        memory = self._plan.memory
        self.state_bytes = memory.state_bytes
        self.buffer_bytes = memory.workspace_bytes + memory.reduction_bytes + memory.table_bytes

    def step(self) -> None:
        # Another stream while a graph is captured.
        self._step.run(torch.cuda.current_stream().cuda_stream if self._on_gpu else None)

    def step_afresh(self) -> None:
        """A step whose buffers no one has touched: the process grows by what the step uses of them."""
        memory, kept = self._plan.memory, self._plan.buffers
        self._plan.buffers = [_untouched(size) for size in (memory.workspace_bytes, memory.reduction_bytes)]
        self._plan.bind(self._grads).run()
        self._plan.buffers = kept


class Theirs:
    """Any torch optimizer."""

    capturable = False  # most read a step counter on the host
    buffer_bytes = None  # it allocates during the step

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        self.step = self.step_afresh = optimizer.step

    @property
    def state_bytes(self) -> int:
        """Known after the first step, which allocates the state."""
        values = (value for state in self._optimizer.state.values() for value in state.values())
        return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


@dataclass(frozen=True)
class Subject:
    optimizer: str
    implementation: str
    make: Callable[[Parameters], Ours | Theirs]
    variant: str = ""
    dtype: torch.dtype = torch.float32
    bytes_moved: float | Callable[[list[list[int]]], float] | None = None  # of others we do not know
    against: "Subject | None" = None  # a second baseline, in the subject's dtype

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.optimizer, self.implementation, self.variant)))


def ours(algorithm: str, variant: str = "", momentum: str = "f32", parameter: str = "f32", **options) -> Subject:
    dtype = torch.bfloat16 if parameter == "bf16" else torch.float32
    make = partial(Ours, algorithm=algorithm, momentum_dtype=momentum, **options)
    kept = momentum if options.get("beta1") != 0 else "none"
    return Subject(algorithm, "libcame", make, variant, dtype, bytes_moved(algorithm, parameter, kept))


def imported(module: str, name: str) -> Callable:
    """A class of a package that may be missing, which is found out when the subject is made: the others can run."""
    return lambda *arguments, **options: getattr(importlib.import_module(module), name)(*arguments, **options)


def _make_theirs(params: Parameters, optimizer: Callable, **options) -> Theirs:
    return Theirs(optimizer(params, lr=LR, **options))


def theirs(algorithm: str, implementation: str, optimizer: Callable, variant: str = "", moved: float | None = None,
           **options) -> Subject:
    dtype = torch.bfloat16 if variant == "bf16" else torch.float32
    make = partial(_make_theirs, optimizer=optimizer, **options)
    return Subject(algorithm, implementation, make, variant, dtype, moved)


def package(algorithm: str, name: str, variant: str = "", momentum: str = "f32", parameter: str = "f32", **options) -> Subject:
    """A class of our Python package, through its `step()`."""
    subject = theirs(algorithm, "package", imported("came_optim", name), variant, bytes_moved(algorithm, parameter, momentum),
                     momentum_dtype=momentum, **options)
    return replace(subject, dtype=torch.bfloat16 if parameter == "bf16" else torch.float32)


_FUSED = dict(optimizer=torch.optim.AdamW, weight_decay=DECAY, fused=True)
BASELINE = theirs("adamw", "torch-fused", **_FUSED)
BASELINE_BF16 = theirs("adamw", "torch-fused", variant="bf16", **_FUSED)
FOREACH = theirs("adamw", "torch-foreach", torch.optim.AdamW, weight_decay=DECAY, foreach=True)
CAME_PYTORCH = theirs("came", "came-pytorch", imported("came_pytorch", "CAME"))
TRANSFORMERS = theirs("adafactor", "transformers", imported("transformers.optimization", "Adafactor"),
                      beta1=0.9, scale_parameter=False, relative_step=False)

SUBJECTS = [
    BASELINE,  # against itself: how far two equal measurements differ
    FOREACH,
    ours("adamw", weight_decay=DECAY),
    package("adamw", "AdamW", weight_decay=DECAY),
    CAME_PYTORCH,
    ours("came", **PAPER),
    package("came", "CAME", **PAPER),
    *(ours("came", f"{momentum} momentum", momentum, **PAPER) for momentum in ("bf16", "int8", "int4")),
    TRANSFORMERS,
    ours("adafactor", beta1=0.9, beta2_decay=-0.8, lr_in_momentum=True),
    theirs("sm3", "pytorch_optimizer", imported("pytorch_optimizer", "SM3"), momentum=0.9),
    ours("sm3", beta1=0.9),
    theirs("lamb", "pytorch_optimizer", imported("pytorch_optimizer", "Lamb")),
    ours("lamb", bias_correction=False),
    BASELINE_BF16,
    replace(ours("came", "bf16", momentum="bf16", parameter="bf16", **PAPER), against=BASELINE_BF16),
]
