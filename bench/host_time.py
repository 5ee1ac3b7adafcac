"""What a step of the Python package costs the host, and what schedules of options add to it.  A minute, on an idle machine, CPU only.

    .venv/bin/python bench/host_time.py --json build/host_time.json
    cp build/host_time.json bench/results/host_time.json       to keep it: the documentation quotes that file

1. A step over as many tensors as BERT-Large has, so small that kernels cost little and skipped by `found_inf` after all is looked at, in units of
   `[p.grad for p in params]`, the least that any optimizer must do; and torch.optim.AdamW(fused=True), which steps for real.
2. Steps over 300 tensors of 64 x 64 under each scheduler of torch, with betas and weight decay that change at every step, over the time of
   steps under none.

All are taken in turn; every figure is the median of its rounds.
"""

import argparse
import datetime
import json
import statistics
import time
from pathlib import Path

import machine
import torch
from torch import nn
from torch.optim import lr_scheduler

import came_optim
from came_optim.library import library

MATRICES, VECTORS = 147, 251  # 398 tensors, about as BERT-Large has them
SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: 1 / (1 + k)),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.99),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 1000),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 1000),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 10),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-4, 1e-3, step_size_up=10),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1e-3, total_steps=100000),
}


def with_gradients(shapes):
    params = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for p in params:
        p.grad = torch.randn_like(p)
    return params


def timed(functions, rounds, calls=1, between=lambda name: None):
    """Seconds per call of each function, by name: the medians of rounds in which all take their turns, `between` before each."""
    seconds = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            between(name)
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(all_of_it) for name, all_of_it in seconds.items()}


def calls(rounds):
    params = with_gradients([(8, 8)] * MATRICES + [(8,)] * VECTORS)
    functions = {"[p.grad for p in params]": lambda: [p.grad for p in params]}
    for name, cls in (("came", came_optim.CAME), ("adamw", came_optim.AdamW)):
        optimizer = cls([nn.Parameter(p.detach().clone()) for p in params])
        for ours, p in zip(optimizer.param_groups[0]["params"], params):
            ours.grad = p.grad.clone()
        optimizer.step()
        optimizer.found_inf = torch.ones(())
        optimizer.step()
        functions[name] = optimizer.step
    fused = torch.optim.AdamW(params, fused=True)
    fused.step()
    functions["torch.optim.AdamW(fused=True)"] = fused.step
    seconds = timed(functions, rounds, 10)
    unit = seconds["[p.grad for p in params]"]
    return {name: {"microseconds": value * 1e6, "units": value / unit} for name, value in seconds.items()}


def schedules(rounds):
    optimizers = {name: came_optim.CAME(with_gradients([(64, 64)] * 300), lr=1e-3) for name in ("none", *SCHEDULERS)}
    schedulers = {name: make(optimizers[name]) for name, make in SCHEDULERS.items()}
    for optimizer in optimizers.values():
        for _ in range(3):
            optimizer.step()
    round_of = dict.fromkeys(optimizers, 0)

    def schedule(name):
        if name == "none":
            return
        schedulers[name].step()
        round_of[name] += 1
        group = optimizers[name].param_groups[0]
        group["weight_decay"] = 1e-4 * (round_of[name] % 10)
        group["betas"] = (group["betas"][0], 0.99 + 1e-4 * (round_of[name] % 10), group["betas"][2])

    seconds = timed({name: optimizer.step for name, optimizer in optimizers.items()}, rounds, between=schedule)
    return {name: {"milliseconds": value * 1e3, "over none": value / seconds["none"]} for name, value in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="of everything (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds: given {options.rounds}, expected at least 1")
    torch.set_num_threads(1)  # a second one would make tiny steps wait for each other
    content = {
        "what": "bench/host_time.py: what a step of the Python package costs the host; and under schedules",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(Path(library()._name)),
        "settings": {"rounds": options.rounds, "tensors": MATRICES + VECTORS, "threads": 1},
        "calls": calls(options.rounds),
        "schedules": schedules(options.rounds),
    }
    for part in ("calls", "schedules"):
        for name, row in content[part].items():
            print(f"{part}: {name}: " + ", ".join(f"{value:.3g} {what}" for what, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
