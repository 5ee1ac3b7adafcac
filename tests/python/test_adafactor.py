"""Adafactor against the one in transformers, and against Algorithm 1 of the CAME paper in numpy."""

import pytest
import torch
from cases import FAMILIES, SHAPES, TOLERANCE, error, fold, gradients, learning_rates, start
from libcame import Stepper
from papers import Adafactor
from transformers.optimization import Adafactor as Rival

LR = 1e-3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_algorithm_1_of_the_paper(shape, family):
    ours = Stepper("adafactor", [start(shape)], view="fold")
    paper = Adafactor(start(shape).reshape(fold(shape)))
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        ours.step([g], lr)
        paper.step(g.reshape(fold(shape)), lr)
    assert error(ours.params[0], paper.p.reshape(shape), start(shape)) <= TOLERANCE


# Ours, theirs.  Theirs has no constant beta2, always keeps the momentum of rate * update, and uses the last two
# dimensions.
CONFIGURATIONS = {
    "plain": (dict(beta1=0), dict(beta1=None)),
    "momentum": (dict(beta1=0.9, lr_in_momentum=True), dict(beta1=0.9)),
    "scaled": (dict(beta1=0.9, lr_in_momentum=True, scale_parameter=True), dict(beta1=0.9, scale_parameter=True)),
    "relative": (
        dict(beta1=0, relative_step=True, warmup_init=True, scale_parameter=True),
        dict(beta1=None, relative_step=True, warmup_init=True, scale_parameter=True, lr=None),
    ),
}


def compare_with_transformers(configuration, shape, family, origin):
    mine, their = CONFIGURATIONS[configuration]
    ours = Stepper("adafactor", [origin], view="last_two", beta2_decay=-0.8, weight_decay=0.1, **mine)
    p = torch.nn.Parameter(torch.tensor(origin))
    arguments = dict(lr=LR, relative_step=False, scale_parameter=False, weight_decay=0.1, decay_rate=-0.8)
    theirs = Rival([p], **(arguments | their))
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        if configuration != "relative":
            theirs.param_groups[0]["lr"] = lr
        p.grad = torch.tensor(g)
        theirs.step()
        ours.step([g], lr)
    return error(ours.params[0], p.detach().numpy(), origin)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_equals_transformers(configuration, shape, family):
    assert compare_with_transformers(configuration, shape, family, start(shape)) <= TOLERANCE


@pytest.mark.parametrize("shape", [(23, 17), (31,)], ids=str)
def test_scale_of_tiny_parameters_has_a_floor(shape):
    assert compare_with_transformers("scaled", shape, "random", 1e-6 * start(shape)) <= TOLERANCE
