"""CAME against the authors' package, and against the paper's Algorithm 2 in numpy."""

import numpy as np
import pytest
import torch
from came_pytorch import CAME
from cases import FAMILIES, SHAPES, TOLERANCE, error, fold, gradients, learning_rates, start
from libcame import Stepper
from papers import Came

LR = 2e-3
PAPER = {"bias_correction": False}  # the form of the authors' package and of the paper's Algorithm 2


def run_ours(shape, family, **options):
    ours = Stepper("came", [start(shape)], **options)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        ours.step([g], lr)
    return ours


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_authors_package(shape, family):
    ours = run_ours(shape, family, view="last_two", weight_decay=0.1, **PAPER)
    p = torch.nn.Parameter(torch.tensor(start(shape)))
    theirs = CAME([p], lr=LR, weight_decay=0.1)
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        theirs.param_groups[0]["lr"] = lr
        p.grad = torch.tensor(g)
        theirs.step()
    assert error(ours.params[0], p.detach().numpy(), start(shape)) <= TOLERANCE
    for name, array in ours.state[0].items():
        their = theirs.state[p][name].numpy()
        assert array.shape == their.shape, name
        np.testing.assert_allclose(array, their, rtol=1e-10, atol=1e-10 * np.abs(their).max(initial=0), err_msg=name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_folds_tensors_of_many_dimensions_into_one_matrix(shape, family):
    ours = run_ours(shape, family, view="fold", **PAPER)
    paper = Came(start(shape).reshape(fold(shape)))
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        paper.step(g.reshape(fold(shape)), lr)
    assert error(ours.params[0], paper.p.reshape(shape), start(shape)) <= TOLERANCE


@pytest.mark.parametrize(
    "options",
    [
        {"bias_correction": True},
        {"confidence_1d": True, **PAPER},
        {"confidence_1d": True, "bias_correction": True},
        {"cautious": True, **PAPER},
        {"cautious": True, "confidence_1d": True, "bias_correction": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(23, 17), (31,), ()], ids=str)
def test_options_follow_the_documented_equations(shape, options):
    ours = run_ours(shape, "drifting", weight_decay=0.1, **options)
    paper = Came(start(shape), wd=0.1, **options)
    for g, lr in zip(gradients("drifting", shape), learning_rates(LR)):
        paper.step(g, lr)
    assert error(ours.params[0], paper.p, start(shape)) <= TOLERANCE


@pytest.mark.parametrize("bias_correction, expected", [(False, [11.1, 2.5, 0.80]), (True, [0.11, 0.25, 0.25])])
def test_cold_start_is_as_long_as_documented(bias_correction, expected):
    """Length of steps 1, 100 and 1000 in learning rates, for independent gradients: docs/algorithms.md."""
    rng = np.random.default_rng(0)
    ours = Stepper("came", [np.zeros((64, 64))], bias_correction=bias_correction)
    lengths = {}
    for step in range(1, 1001):
        before = ours.params[0].copy()
        ours.step([rng.standard_normal((64, 64))], 1.0)
        lengths[step] = np.sqrt(np.mean((ours.params[0] - before) ** 2))
    np.testing.assert_allclose([lengths[1], lengths[100], lengths[1000]], expected, rtol=0.05)
