"""layout.py says what libcame says: options, views, state, and what is refused, in the same words."""

import itertools
import math
import re

import pytest

import came_optim
from came_optim import layout, native
from came_optim.library import library
from came_optim.loop import _STEPS
from came_optim.native import ALGORITHMS, Spec
from came_optim.optimizers import BY_NAME
from came_optim.structs import CHOICES, FLAGS, REALS

SHAPES = [(), (1,), (7,), (128,), (300,), (0,), (1, 1), (7, 13), (3, 300), (256, 1), (1, 257), (0, 5), (5, 0), (2, 65, 66), (2, 0, 3), (64, 2, 2)]
SHAPES += [(8, 3, 3, 3), (16, 8, 1, 1), (2, 3, 4, 129), (3, 3, 3, 8, 8), (1, 1, 1)]
DTYPES = ["float64", "float32", "bfloat16", "float16"]
# Options that decide what the state looks like.
LAYOUTS = {
    "came": {"confidence_1d": (0, 1), "view": (0, 1, 2)},
    "adafactor": {"beta1": (0.0, 0.9), "view": (0, 1, 2)},
    "adam": {"second_moment_dtype": (0, 6)},
    "adamw": {"second_moment_dtype": (0, 6)},
    "lamb": {"second_moment_dtype": (0, 6)},
    "sm3": {"beta1": (0.0, 0.9), "view": (0, 1, 2)},
}
MOMENTA = [0, 1, 2, 3, 6, 8]


def said(function, *arguments):
    """What a call returns or raises."""
    try:
        return function(*arguments)
    except ValueError as error:
        return str(error)


def fields(options):
    """Bit for bit but for NaN, which is not equal to itself."""
    return [(name, repr(getattr(options, name))) for name, *_ in options._fields_]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_state_and_views_are_those_of_the_library(algorithm, dtype):
    specs = [Spec(shape, dtype, id=k) for k, shape in enumerate(SHAPES)]
    names, values = zip(*{**LAYOUTS[algorithm], "momentum_dtype": MOMENTA}.items())
    for chosen in itertools.product(*values):
        options = native.options(algorithm, **dict(zip(names, chosen)))
        ours, theirs = said(layout.Layout, [options], specs), said(native.Plan, [options], specs)
        if isinstance(theirs, str):  # f64 momentum beside narrower parameters
            assert ours == theirs
            continue
        assert ours.states == theirs.states, chosen
        for k, shape in enumerate(SHAPES):
            assert ours.view(k) == theirs.view(k), (chosen, shape)


def test_groups_of_parameters_have_their_own_options():
    groups = [native.options("came"), native.options("came", momentum_dtype="int4", view="last_two")]
    specs = [Spec((4, 5, 6), "float32", id=k, group=k % 2, name=f"p{k}") for k in range(4)]
    ours, theirs = layout.Layout(groups, specs), native.Plan(groups, specs)
    assert ours.states == theirs.states and [ours.view(k) for k in range(4)] == [theirs.view(k) for k in range(4)]


def test_algorithms_are_those_of_the_library_and_each_has_a_class():
    names = itertools.takewhile(lambda name: name, map(library().came_algorithm_name, itertools.count()))
    assert [name.decode() for name in names] == list(ALGORITHMS) == list(BY_NAME) == list(_STEPS)
    assert [cls.__name__ for cls in BY_NAME.values()] == came_optim.__all__[: len(BY_NAME)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_defaults_are_those_of_the_library(algorithm):
    assert fields(layout.options(algorithm)) == fields(native.options(algorithm))


NUMBERS = [-math.inf, -1.0, -1e-300, 0.0, 1e-300, 1e-40, 1e-30, 0.5, 1 - 2**-53, 1.0, 1.5, 1e300, math.inf, math.nan]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_value_of_every_option_is_taken_or_refused_as_the_library_does(algorithm):
    cases = [{name: value} for name in REALS for value in NUMBERS]
    cases += [{name: value} for name in FLAGS for value in (-1, 0, 1, 2)]
    cases += [{name: value} for name in CHOICES for value in range(-1, 11)]
    cases += [{"warmup_init": 1, "relative_step": 1}, {"cautious": 1, "beta1": 0.0}, {"seed": 2**64 - 1}]
    refused = 0
    for case in cases:
        ours, theirs = said(layout.validate, layout.options(algorithm, **case)), said(native.validate, native.options(algorithm, **case))
        assert ours == theirs, case
        refused += theirs is not None
    assert len(cases) / 4 < refused < len(cases)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_texts_are_understood_as_the_library_does(algorithm):
    texts = ["1", "0", "true", "false", "True", "", "x", "0.5", "1e-3", "-1", "nan", "auto", "last_two", "fold", "int8", "f32", "bf16", "default", "i64"]
    for name in (*REALS, *FLAGS, *CHOICES, "seed", "beta4", "struct"):
        for text in texts:
            ours, theirs = (said(lambda: fields(of.options(algorithm, **{name: text}))) for of in (layout, native))
            assert ours == theirs, (name, text)
    assert said(layout.options, "lion") == said(native.options, "lion")


@pytest.mark.parametrize("dtype", DTYPES)
def test_epsilons_that_would_round_to_nothing_are_refused_alike(dtype):
    for algorithm, name, eps, beta2 in itertools.product(
        ("came", "adafactor"), ("eps1", "eps2"), (0.0, 5e-324, 1e-300, 1e-42, 1e-38, 1e-36, 1e-30), (0.0, 0.999)
    ):
        options = native.options(algorithm, **{name: eps}, beta2=beta2)
        ours, theirs = (said(lambda: of([options], [Spec((2, 3), dtype)]) and None) for of in (layout.Layout, native.Plan))
        assert ours == theirs, (algorithm, name, eps)


def test_shapes_too_large_to_count_and_other_types_are_refused():
    options = native.options("adamw")
    for shape in ((2**59,), (2**62,), (2**31, 2**31), (2**62, 0)):
        spec = [Spec(shape, "float32", name="w")]
        assert said(layout.Layout, [options], spec) == said(native.Plan, [options], spec)
    message = said(layout.Layout, [options], [Spec((2,), "int64", name="w")])
    assert re.sub(r" \(\d\)", "", said(native.Plan, [options], [Spec((2,), "int64", name="w")])).replace("i64", "int64", 1) == message
