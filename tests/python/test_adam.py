"""Adam and AdamW against torch.optim, and the cautious mask against numpy."""

import pytest
import torch
from cases import FAMILIES, SHAPES, TOLERANCE, error, gradients, learning_rates, start
from libcame import Stepper
from papers import AdamW

LR = 1e-3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("word, rival", [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_equals_torch(word, rival, shape, family):
    ours = Stepper(word, [start(shape)], weight_decay=0.1)
    p = torch.nn.Parameter(torch.tensor(start(shape)))
    theirs = rival([p], lr=LR, weight_decay=0.1)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        theirs.param_groups[0]["lr"] = lr
        p.grad = torch.tensor(g)
        theirs.step()
        ours.step([g], lr)
    assert error(ours.params[0], p.detach().numpy(), start(shape)) <= TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_cautious_drops_what_disagrees_with_the_gradient(family):
    shape = (23, 17)
    ours = Stepper("adamw", [start(shape)], cautious=True)
    paper = AdamW(start(shape), cautious=True)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        ours.step([g], lr)
        paper.step(g, lr)
    assert error(ours.params[0], paper.p, start(shape)) <= TOLERANCE
