"""Options that every optimizer has, each against the paper's algorithm in numpy with the option written out."""

import numpy as np
import pytest
import torch
from cases import FAMILIES, TOLERANCE, error, gradients, learning_rates, start
from libcame import Stepper
from papers import Adafactor, AdamW, Came, Lamb, Sm3

LR = 1e-3
PAPERS = {
    "came": Came,
    "adafactor": Adafactor,
    "adam": lambda p, **options: AdamW(p, wd=0, **options),  # the same without decay
    "adamw": AdamW,
    "lamb": Lamb,
    "sm3": lambda p, **options: Sm3(p, beta1=0.9, **options),
}
AS_IN_THE_PAPER = {"came": {"bias_correction": False}}  # options whose default is not the paper's
SHAPES = [(23, 17), (67, 71), (31,)]


def compare(word, shape, family, change_gradient=lambda g: g, ours=(), paper=()):
    """Steps ours with options and the raw gradient, the paper with what the option makes of it."""
    stepper = Stepper(word, [start(shape)], **{**AS_IN_THE_PAPER.get(word, {}), **dict(ours)})
    written = PAPERS[word](start(shape), **dict(paper))
    for g, lr in zip(gradients(family, shape), learning_rates(LR)):
        stepper.step([g], lr)
        written.step(change_gradient(g), lr)
    return error(stepper.params[0], written.p, start(shape))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("word", PAPERS)
def test_cautious_drops_what_disagrees_with_the_gradient(word, shape, family):
    assert compare(word, shape, family, ours={"cautious": True}, paper={"cautious": True}) <= TOLERANCE


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("word", PAPERS)
def test_maximize_turns_the_gradient(word, shape):
    assert compare(word, shape, "drifting", lambda g: -g, ours={"maximize": True}) <= TOLERANCE


def clipped(g, norm):
    p = torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64))
    p.grad = torch.tensor(g)
    torch.nn.utils.clip_grad_norm_([p], norm)
    return p.grad.numpy()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("word", PAPERS)
def test_max_grad_norm_clips_as_torch_does(word, shape):
    norm = 0.9 * np.sqrt(np.prod(shape))  # the gradients' norms lie on both sides of it
    assert compare(word, shape, "drifting", lambda g: clipped(g, norm), ours={"max_grad_norm": norm}) <= TOLERANCE


def test_max_grad_norm_is_over_all_tensors():
    shapes = [(23, 17), (31,)]
    ours = Stepper("came", [start(s) for s in shapes], max_grad_norm=0.5)
    plain = Stepper("came", [start(s) for s in shapes])
    for gs in zip(*(gradients("anisotropic", s) for s in shapes)):
        both = clipped(np.concatenate([g.ravel() for g in gs]), 0.5)
        ours.step(gs)
        plain.step([both[: gs[0].size].reshape(shapes[0]), both[gs[0].size :]])
    for a, b, s in zip(ours.params, plain.params, shapes):
        assert error(a, b, start(s)) <= TOLERANCE
