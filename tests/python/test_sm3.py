"""SM3 against its paper in numpy, and against pytorch_optimizer.

On tensors of three or more dimensions pytorch_optimizer keeps one accumulator per dimension; ours are rows and columns
of the matrix view, a cover as good by the paper.  There the two are compared on the matrix.
"""

import pytest
import torch
from cases import FAMILIES, SHAPES, TOLERANCE, error, fold, gradients, learning_rates, start
from libcame import Stepper
from papers import Sm3
from pytorch_optimizer import SM3 as Rival

LR = 1e-2


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_paper(shape, family, beta1):
    ours = Stepper("sm3", [start(shape)], beta1=beta1, view="fold", weight_decay=0.1)
    paper = Sm3(start(shape).reshape(fold(shape)), beta1=beta1, wd=0.1)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        ours.step([g], lr)
        paper.step(g.reshape(fold(shape)), lr)
    assert error(ours.params[0], paper.p.reshape(shape), start(shape)) <= TOLERANCE
    assert ("exp_avg" in ours.state[0]) == (beta1 > 0)


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_pytorch_optimizer(shape, family, beta1):
    ours = Stepper("sm3", [start(shape)], beta1=beta1, view="fold")
    p = torch.nn.Parameter(torch.tensor(start(shape).reshape(fold(shape))))
    theirs = Rival([p], lr=LR, momentum=beta1, foreach=False)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        theirs.param_groups[0]["lr"] = lr
        p.grad = torch.tensor(g.reshape(fold(shape)))
        theirs.step()
        ours.step([g], lr)
    assert error(ours.params[0], p.detach().numpy().reshape(shape), start(shape)) <= TOLERANCE
