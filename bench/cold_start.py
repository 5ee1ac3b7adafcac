"""How long are CAME's first steps?  Measures them, in learning rates, beside AdamW's.

    .venv/bin/python bench/cold_start.py

Writes bench/results/cold_start.json and docs/images/cold_start.svg.  One matrix of 128 x 128, gradients of independent normal
numbers, the same for all; reported is the RMS of the change of a step over the learning rate.  No weight decay; the
parameter is set back to zero before each step, so that its change is exact.  Some half a minute.
"""

import json
import math
import platform
from pathlib import Path

import torch
from plot import log_log

import came_optim

ROOT = Path(__file__).resolve().parent.parent
SHAPE, STEPS, LR = (128, 128), 50_000, 1e-3
SUBJECTS = {
    "CAME, as in the paper": ("#c0392b", came_optim.CAME, {"bias_correction": False}),
    "CAME, betas (0.9, 0.95, 0.995)": ("#d68910", came_optim.CAME, {"bias_correction": False, "betas": (0.9, 0.95, 0.995)}),
    "CAME, bias_correction": ("#2471a3", came_optim.CAME, {"bias_correction": True}),
    "torch.optim.AdamW": ("#666666", torch.optim.AdamW, {"weight_decay": 0.0}),
}


def reported() -> list[int]:
    """Steps spread evenly on a logarithmic axis."""
    return sorted({round(10 ** (k / 12)) for k in range(math.floor(12 * math.log10(STEPS)) + 1)} | {STEPS})


def lengths(cls, options) -> dict[int, float]:
    """RMS of a step over the rate, by step."""
    generator = torch.Generator().manual_seed(0)
    param = torch.nn.Parameter(torch.zeros(SHAPE))
    optimizer = cls([param], lr=LR, **options)
    wanted, found = set(reported()), {}
    for step in range(1, STEPS + 1):
        param.grad = torch.randn(SHAPE, generator=generator)
        param.data.zero_()
        optimizer.step()
        if step in wanted:
            found[step] = round(param.detach().square().mean().sqrt().item() / LR, 4)
    return found


def main() -> None:
    torch.set_num_threads(1)
    measured = {name: lengths(cls, options) for name, (_, cls, options) in SUBJECTS.items()}
    result = {
        "what": f"RMS of a step over the learning rate, one matrix of {SHAPE[0]} x {SHAPE[1]}, independent normal gradients",
        "machine": f"{platform.machine()} CPU, 1 thread, torch {torch.__version__}",
        "steps": reported(),
        "rms_over_lr": {name: list(found.values()) for name, found in measured.items()},
    }
    (ROOT / "bench/results/cold_start.json").write_text(json.dumps(result) + "\n")
    curves = [(name, SUBJECTS[name][0], list(found), list(found.values())) for name, found in measured.items()]
    title = "The cold start: length of a step in learning rates, independent gradients"
    log_log(ROOT / "docs/images/cold_start.svg", title, "step", "RMS of the step / lr", (0.05, 20), curves)
    for name, found in measured.items():
        print(f"{name:32}", *(f"{step}: {found[step]:.2f}" for step in (1, 10, 100, 1000, 10_000, STEPS)), sep="  ")


if __name__ == "__main__":
    main()
