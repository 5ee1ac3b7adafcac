"""Any value for any argument of any optimizer: accepted with the meaning that docs/python.md gives it, or refused by name.

What is checked of an accepted one: the entries of the group, which are plain Python values, and the options that kernels get.
CAME_FUZZ_EXAMPLES=10000 draws more than the few hundred values of the normal run.
"""

import math
import os
import warnings
from collections import UserList
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn

from came_optim import CAME, LAMB, SM3, Adafactor, Adam, AdamW
from came_optim.options import from_group


def weight():
    return [nn.Parameter(torch.ones(2, 3))]


def is_plain(value):
    return type(value) in (float, int, bool, str, type(None)) or (type(value) is tuple and all(type(v) is float for v in value))


REALS = {  # the range of each argument: least, whether it may be that, most, whether it may be that
    "lr": (0, True, math.inf, False),
    "weight_decay": (0, True, math.inf, False),
    "max_grad_norm": (0, True, math.inf, False),
    "clip_threshold": (0, False, math.inf, True),
    "decay_rate": (-math.inf, False, 0, True),
    "eps": (0, False, math.inf, False),
    "eps1": (0, False, math.inf, False),
    "eps2": (0, False, math.inf, False),
    "beta1": (0, True, 1, False),
    "beta2": (0, True, 1, False),
    "beta3": (0, True, 1, False),
}
EPS_MAY_BE_ZERO = (Adam, AdamW)
FLAGS = ["cautious", "stochastic_rounding", "maximize"]
OWN = {
    CAME: (["clip_threshold", "eps1", "eps2", "beta1", "beta2", "beta3"], ["bias_correction", "confidence_1d"], {"betas": 3, "eps": 2}),
    Adafactor: (["clip_threshold", "decay_rate", "eps1", "eps2", "beta1", "beta2"], ["scale_parameter", "lr_in_momentum"], {"eps": 2}),
    Adam: (["eps", "beta1", "beta2"], [], {"betas": 2}),
    AdamW: (["eps", "beta1", "beta2"], [], {"betas": 2}),
    LAMB: (["eps", "beta1", "beta2"], ["bias_correction"], {"betas": 2}),
    SM3: (["eps", "beta1"], [], {}),
}
WORDS = {
    "momentum_dtype": {"f64": "f64", "f32": "f32", "bf16": "bf16", "int8": "int8", "int4": "int4", "float32": "f32", "default": "default"},
    "second_moment_dtype": {"int8": "int8", "default": "default"},
    "view": {"auto": "auto", "fold": "fold", "last_two": "last_two"},
}


def in_range(cls, name, x):
    least, may_be_least, most, may_be_most = REALS[name]
    if name == "eps" and cls in EPS_MAY_BE_ZERO or name == "eps2" and cls is Adafactor:
        may_be_least = True
    if name == "beta1" and cls is CAME:
        may_be_least = False
    return least < x < most or (x == least and may_be_least) or (x == most and may_be_most)


class Bare:
    pass


class Hostile:
    def __repr__(self):
        raise RuntimeError("no words for it")

    def item(self):
        raise OSError("no number in it")

    size = 1


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1),
    st.sampled_from([0.0, -0.0, 1.0, 0.9, 0.999, 1e-30, 1e-16, 1e-8, 5e-324, 1e308, math.inf, math.nan, -1e-300, 2.0]),
    st.integers(-3, 3).map(float),
)
DRESSES = [
    ("as it is", lambda x: x),
    ("text", repr),
    ("text with blanks", lambda x: f"  {x!r}\n"),
    ("upper case", lambda x: repr(x).upper()),
    ("numpy", np.float64),
    ("an array of one", lambda x: np.array([x])),
    ("an array of no dimension", lambda x: np.array(x)),
    ("a tensor", lambda x: torch.tensor(x, dtype=torch.float64)),
    ("a float of its own class", type("Float", (float,), {})),
]
DRESSED = st.builds(lambda x, dress: (x, dress[1](x)), NUMBERS, st.sampled_from(DRESSES))
OBJECTS = st.one_of(
    st.sampled_from([Bare(), Hostile(), Bare, object(), len, b"0.9,0.99", bytearray(b"1"), 1j, np.complex64(1j), Decimal(1), ..., range(0), {}, set()]),
    st.sampled_from([torch.ones(2), torch.ones(0), torch.ones(1, dtype=torch.complex64), torch.empty(1, device="meta"), torch.device("cpu")]),
    st.sampled_from([np.ones((2, 2)), np.ones(0), np.array("x"), np.array([None]), np.array([{}]), np.datetime64("2020-01-01"), 10**400, -(10**400)]),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
    st.lists(st.none() | st.text(max_size=3) | st.dictionaries(st.integers(), st.integers(), max_size=1), max_size=4),
    st.sets(st.floats(), max_size=2),
    st.text(max_size=8).filter(lambda text: not is_a_number(text)),
    st.text("0123456789.,()[]e- ", max_size=12).filter(lambda text: not is_a_number(text)),
)
MOST = settings(
    max_examples=int(os.environ.get("CAME_FUZZ_EXAMPLES", "300")), deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)


def is_a_number(text):
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in ("none", "null", "true", "false")
    return True


def made(cls, arguments, in_group=False):
    """A group of an optimizer made so, and what its kernels are told; or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            group = (cls([{"params": weight(), **arguments}]) if in_group else cls(weight(), **arguments)).param_groups[0]
        except (ValueError, TypeError) as error:
            return None, error
    assert all(is_plain(value) or isinstance(value, torch.Tensor) for name, value in group.items() if name != "params")
    return group, from_group(cls.algorithm, cls._all_fields(), group)


def refused(error, name):
    assert isinstance(error, (ValueError, TypeError)) and name in str(error) and "\n" not in str(error), repr(error)


CLASSES = st.sampled_from(list(OWN))


@given(st.data(), CLASSES, DRESSED, st.booleans())
@MOST
def test_numbers(data, cls, dressed, in_group):
    name = data.draw(st.sampled_from(["lr", "weight_decay", "max_grad_norm", *OWN[cls][0]]))
    x, value = dressed
    assume(not (name == "lr" and isinstance(value, torch.Tensor) and not in_range(cls, name, x)))  # which the step looks at
    group, told = made(cls, {name: value}, in_group)
    if not in_range(cls, name, x):
        assert group is None
        refused(told, "learning rate" if name == "lr" else name)
        return
    of_several = next((k for k, n in OWN[cls][2].items() if name.startswith(k[:-1]) and name[-1].isdigit()), None)
    entry = group[name] if of_several is None else group[of_several][int(name[-1]) - 1]
    assert entry == x and (isinstance(entry, torch.Tensor) == (of_several is None and isinstance(value, torch.Tensor)))
    if name != "lr":
        assert getattr(told, {"decay_rate": "beta2_decay"}.get(name, name)) == x
    if name == "beta2" and cls is CAME:
        assert 1 - told.beta3 == pytest.approx((1 - x) / 10, rel=1e-3, abs=2e-16) and told.beta3 < 1


@given(st.data(), CLASSES, st.booleans())
@MOST
def test_several_numbers(data, cls, in_group):
    if not OWN[cls][2]:
        return
    name, most = data.draw(st.sampled_from(sorted(OWN[cls][2].items())))
    xs = data.draw(st.lists(NUMBERS, max_size=most + 2))
    as_list = [data.draw(st.sampled_from(DRESSES))[1](x) for x in xs]
    texts = [repr(x) for x in xs]
    value = data.draw(
        st.sampled_from(
            [as_list, tuple(as_list), UserList(as_list), np.array(xs), torch.tensor(xs, dtype=torch.float64), "[" + ",".join(texts) + "]"]
            + ([", ".join(texts), "(" + ",".join(texts) + ")"] if len(xs) > 1 else [])
        )
    )
    group, told = made(cls, {name: value}, in_group)
    parts = [f"{'beta' if name == 'betas' else name}{k + 1}" for k in range(most)]
    right = len(xs) == most or (most == 3 and len(xs) == 2)
    if not right or not all(in_range(cls, part, x) for part, x in zip(parts, xs)):
        assert group is None
        refused(told, name)
        return
    assert group[name][: len(xs)] == tuple(xs) and len(group[name]) == most
    assert tuple(getattr(told, part) for part in parts) == group[name]


@given(st.data(), CLASSES, DRESSED)
@MOST
def test_a_part_and_the_whole_together_are_refused(data, cls, dressed):
    if not OWN[cls][2]:
        return
    name, most = data.draw(st.sampled_from(sorted(OWN[cls][2].items())))
    part = f"{'beta' if name == 'betas' else name}{data.draw(st.integers(1, most))}"
    for in_group in (False, True):
        group, told = made(cls, {name: [0.5] * most, part: dressed[1]}, in_group)
        assert group is None
        refused(told, part)
        refused(told, name)
        assert "write" in str(told)


@given(st.data(), CLASSES, st.booleans())
@MOST
def test_flags(data, cls, in_group):
    name = data.draw(st.sampled_from(FLAGS + OWN[cls][1] + ["fused", "capturable"]))
    truth = data.draw(st.booleans())
    assume(not (name == "cautious" and truth and cls is Adafactor))  # which has no momentum to compare with
    dresses = [lambda x: x, int, str, lambda x: str(x).lower(), lambda x: f" {x} ".upper(), np.bool_, torch.tensor, lambda x: str(int(x)), np.array]
    group, told = made(cls, {name: data.draw(st.sampled_from(dresses))(truth)}, in_group)
    assert group[name] is truth and getattr(told, name, truth) == truth
    wrong = data.draw(st.one_of(st.sampled_from(["yes", "no", "on", "", "2", 2, -1, 0.5, 1.0, [True], torch.ones(2)]), OBJECTS))
    group, told = made(cls, {name: wrong}, in_group)
    assert group is None
    refused(told, name)


@given(st.data(), CLASSES, st.booleans())
@MOST
def test_seeds(data, cls, in_group):
    seed = data.draw(st.integers(0, 2**64 - 1) | st.integers(-3, 3) | st.integers(2**64 - 2, 2**66))
    value = data.draw(st.sampled_from([lambda x: x, str, lambda x: f" {x} "] + ([np.uint64] if 0 <= seed < 2**64 else [])))(seed)
    group, told = made(cls, {"seed": value}, in_group)
    if 0 <= seed < 2**64:
        assert group["seed"] == told.seed == seed and type(group["seed"]) is int
    else:
        assert group is None
        refused(told, "seed")


@given(st.data(), CLASSES, st.booleans())
@MOST
def test_words(data, cls, in_group):
    names = [name for name in WORDS if name in cls._all_fields()]
    name = data.draw(st.sampled_from(names))
    text = data.draw(st.sampled_from(sorted(WORDS[name])) | st.text(max_size=6).filter(lambda t: t.strip().lower() not in ("none", "null")))
    group, told = made(cls, {name: data.draw(st.sampled_from([str, str.upper, lambda t: f" {t} "]))(text)}, in_group)
    if text.strip().lower() in WORDS[name]:
        assert group[name] == WORDS[name][text.strip().lower()]
        return
    assert group is None
    refused(told, name)


@given(st.data(), CLASSES, OBJECTS, st.booleans())
@MOST
def test_anything_else_is_refused_by_name(data, cls, value, in_group):
    numbers, flags, several = OWN[cls]
    name = data.draw(st.sampled_from(["lr", "weight_decay", "max_grad_norm", "seed", *FLAGS, *numbers, *flags, *several, *WORDS]))
    assume(name in cls.__init__.__annotations__)
    group, told = made(cls, {name: value}, in_group)
    if group is None:
        refused(told, name)
    elif name in several:  # a text of digits may list numbers
        inner = value.strip()[1:-1] if value.strip()[:1] in ("(", "[") else value
        listed = tuple(float(part) for part in inner.split(",") if part.strip())
        assert group[name][: len(listed)] == listed
    else:
        assert group[name] == WORDS[name][value.strip().lower()]


@given(CLASSES, st.data())
@MOST
def test_none(cls, data):
    names = [n for n in cls.__init__.__annotations__ if n not in ("params", "return")]
    name = data.draw(st.sampled_from(names))
    value = data.draw(st.sampled_from([None, "none", "None", " null "]))
    optional = {"max_grad_norm", "momentum_dtype", "second_moment_dtype", "foreach", "fused"}
    optional |= {n for n in ("beta1", "beta2", "beta3", "eps1", "eps2") if cls is not SM3 and not (cls is Adafactor and n.startswith("beta"))}
    optional |= {Adafactor: {"lr", "decay_rate", "beta1", "relative_step"}, SM3: {"beta1"}}.get(cls, set())
    group, told = made(cls, {name: value}, False)
    if name in optional:
        assert group.get(name) is None or name == "relative_step"
    else:
        assert group is None
        refused(told, name)


def test_fractions_are_numbers():
    assert CAME(weight(), clip_threshold=Fraction(1, 2)).param_groups[0]["clip_threshold"] == 0.5
