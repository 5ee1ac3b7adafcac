"""Adam and AdamW against torch.optim."""

import pytest
import torch
from cases import FAMILIES, SHAPES, TOLERANCE, error, gradients, learning_rates, start
from libcame import Stepper

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
