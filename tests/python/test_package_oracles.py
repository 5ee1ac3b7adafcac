"""The package against came-pytorch, torch.optim and transformers: 500 steps of a transformer and of a convolutional net."""

import came_pytorch
import pytest
import torch
import transformers
from package import EPSILON, UNITS, Block, Convolutions, seeded

import came_optim

STEPS = 500
FIXED = {"scale_parameter": False, "relative_step": False}
# name: (ours, theirs, arguments of both, ours in addition)
PAIRS = {
    "came": (came_optim.CAME, came_pytorch.CAME, {"lr": 1e-3}, {"view": "last_two", "bias_correction": False}),
    "adamw": (came_optim.AdamW, torch.optim.AdamW, {"weight_decay": 0.0}, {}),
    "adam": (came_optim.Adam, torch.optim.Adam, {}, {}),
    "adafactor": (came_optim.Adafactor, transformers.Adafactor, {}, {"view": "last_two"}),
    "adafactor with momentum": (
        came_optim.Adafactor,
        transformers.Adafactor,
        {"lr": 1e-3, "beta1": 0.9, **FIXED},
        {"view": "last_two"},
    ),
}


def train(name, model, dtype, **options):
    """Trains theirs and gives ours the same gradients: left to themselves, two runs part at the first rounding of a gradient
    that is zero but for rounding, such as that of the bias of attention's keys, which all of these scale up."""
    cls, their_cls, shared, own = PAIRS[name]
    ours, theirs = seeded(model).to(dtype), seeded(model).to(dtype)
    start = [p.detach().double().clone() for p in theirs.parameters()]
    our = cls(ours.parameters(), **{**shared, **own, **options})
    their = their_cls(theirs.parameters(), **{**shared, **options})
    for step in range(STEPS):
        theirs.zero_grad()
        theirs.loss(step).backward()
        for p, q in zip(ours.parameters(), theirs.parameters()):
            p.grad = q.grad.clone()
        our.step()
        their.step()
    return zip(ours.parameters(), theirs.parameters(), start)


def bound(q, start):
    """Updates are apart as those of kernels and loop are.  Ours and theirs also round the parameter at each step by up to half a unit
    in the last place, each on its own: after 500 steps the two walks are sqrt(2 * 500 / 3) such halves apart, or four times that."""
    moved, largest = (q.double() - start).abs().max(), torch.maximum(start.abs().max(), q.abs().max())
    return EPSILON[torch.float32] * (UNITS * moved + 4 * (2 * STEPS / 3) ** 0.5 / 2 * largest)


@pytest.mark.parametrize("model", [Block, Convolutions])
@pytest.mark.parametrize("name", PAIRS)
def test_f32_stays_as_close_as_roundings_let_it(name, model):
    for p, q, start in train(name, model, torch.float32):
        assert (p - q).abs().max() <= bound(q, start)


@pytest.mark.parametrize("model", [Block, Convolutions])
@pytest.mark.parametrize("name", ["came", "adamw", "adafactor with momentum"])
def test_decay_differs_by_their_roundings_only(name, model):
    """Ours decays and moves in one rounding; theirs rounds the decayed parameter, or the factor 1 - lr * decay, by half a unit
    in the last place, 2**-24 of the parameter, at every step, and always the same way if it is the factor."""
    for p, q, start in train(name, model, torch.float32, weight_decay=0.01):
        largest = torch.maximum(start.abs().max(), q.abs().max())
        assert (p - q).abs().max() <= bound(q, start) + STEPS * 2.0**-24 * largest


@pytest.mark.parametrize("model", [Block, Convolutions])
def test_bf16_weights_round_alike(model):
    """Where the two differ by f32 rounding, some 2**-22 of the parameter, the 16-bit result is another one in about one of
    2**-22 / 2**-8 cases per step, and stays one unit apart, as gradients are the same.  The unit is that of the magnitude
    which the parameter had then: at most the tensor's largest."""
    differing = count = 0
    for p, q, start in train("came", model, torch.bfloat16):
        unit = 2.0**-7 * max(start.abs().max(), q.abs().max())
        assert (p.double() - q.double()).abs().max() <= 2 * unit
        differing += int((p != q).sum())
        count += p.numel()
    assert differing <= STEPS * 2.0**-14 * count
