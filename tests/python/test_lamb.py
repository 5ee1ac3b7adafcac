"""LAMB against its paper in numpy, and against pytorch_optimizer where that one is right.

pytorch_optimizer's Lamb departs from the paper in three places: it clamps the norm of the parameter to 10, adds eps to
the norm of the update, and divides the step by 1 - beta1^t after the trust ratio, where the paper's correction cancels
(adam_debias=True turns that off).  With small parameters, a vanishing eps and no bias correction the two must agree.
"""

import numpy as np
import pytest
import torch
from cases import FAMILIES, SHAPES, TOLERANCE, error, gradients, learning_rates, start
from libcame import Stepper
from papers import Lamb
from pytorch_optimizer import Lamb as Rival

LR = 1e-3
TINY = 1e-30


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_paper(shape, family, bias_correction):
    ours = Stepper("lamb", [start(shape)], bias_correction=bias_correction)
    paper = Lamb(start(shape), bias_correction=bias_correction)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        ours.step([g], lr)
        paper.step(g, lr)
    assert error(ours.params[0], paper.p, start(shape)) <= TOLERANCE


def test_parameters_that_start_at_zero_move():
    origin = np.zeros((23, 17))
    ours, paper = Stepper("lamb", [origin]), Lamb(origin.copy())
    for g, lr in zip(gradients("random", origin.shape), learning_rates(LR)):
        ours.step([g], lr)
        paper.step(g, lr)
    assert error(ours.params[0], paper.p, origin) <= TOLERANCE
    assert np.all(ours.params[0] != 0)


def run_both(shape, scale, **theirs):
    origin = start(shape) * scale
    ours = Stepper("lamb", [origin], bias_correction=False, eps=TINY)
    p = torch.nn.Parameter(torch.tensor(origin))
    arguments = dict(weight_decay=1e-2, weight_decouple=False, eps=TINY, adam_debias=True, foreach=False)
    theirs = Rival([p], lr=LR, **(arguments | theirs))
    for g, lr in zip(gradients("random", shape), learning_rates(LR)):
        theirs.param_groups[0]["lr"] = lr
        p.grad = torch.tensor(g)
        theirs.step()
        ours.step([g], lr)
    return error(ours.params[0], p.detach().numpy(), origin)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s], ids=str)
def test_equals_pytorch_optimizer_on_small_parameters(shape):
    assert run_both(shape, 0.1) <= TOLERANCE


def test_pytorch_optimizer_clamps_the_norm_of_large_parameters():
    assert run_both((23, 17), 10.0) > 0.1


def test_pytorch_optimizer_corrects_the_bias_after_the_trust_ratio():
    assert run_both((23, 17), 0.1, adam_debias=False) > 0.01
