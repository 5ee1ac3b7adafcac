"""Arguments as trainers pass them: accepted with the meaning that docs/python.md gives them, or refused by name.

What is checked of an accepted one: the entries of the group, which are plain Python values, and the options that kernels get.
CAME_FUZZ_EXAMPLES=100000 draws more than the few hundred values of the normal run.
"""

import io
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
from package import OPTIMIZERS, make, parameters, run, same
from torch import nn

import came_optim
from came_optim.options import from_group

CAME, Adafactor, Adam, AdamW, LAMB, SM3 = (getattr(came_optim, name) for name in ("CAME", "Adafactor", "Adam", "AdamW", "LAMB", "SM3"))


def weight():
    return [nn.Parameter(torch.ones(2, 3))]


def group_of(cls, **arguments):
    return cls(weight(), **arguments).param_groups[0]


def is_plain(value):
    return type(value) in (float, int, bool, str, type(None)) or (type(value) is tuple and all(type(v) is float for v in value))


# ---- the table of docs/python.md ---------------------------------------------------------------------

THREE = (0.9, 0.95, 0.995)


@pytest.mark.parametrize(
    "cls, given, expected",
    [
        (CAME, {"lr": "1e-4"}, {"lr": 1e-4}),
        (CAME, {"weight_decay": " 0.1 "}, {"weight_decay": 0.1}),
        (CAME, {"bias_correction": "true", "cautious": "False", "maximize": "1"}, {"bias_correction": True, "cautious": False, "maximize": True}),
        (CAME, {"fused": "false", "foreach": "none"}, {"fused": False, "foreach": None}),
        (CAME, {"max_grad_norm": "none", "momentum_dtype": "None", "seed": "7"}, {"max_grad_norm": None, "momentum_dtype": None, "seed": 7}),
        (CAME, {"momentum_dtype": torch.int8, "view": "Last_Two"}, {"momentum_dtype": "int8", "view": "last_two"}),
        (Adam, {"momentum_dtype": "bfloat16", "amsgrad": "false"}, {"momentum_dtype": "bf16", "amsgrad": False}),
        (CAME, {"betas": "0.9, 0.95"}, {"betas": THREE}),
        (CAME, {"betas": "(0.9,0.999,0.9999)"}, {"betas": (0.9, 0.999, 0.9999)}),
        (CAME, {"betas": "[0.9, 0.95,]"}, {"betas": THREE}),
        (CAME, {"betas": ["0.9", 0.95, np.float64(0.995)]}, {"betas": THREE}),
        (CAME, {"betas": UserList([0.9, 0.95])}, {"betas": THREE}),
        (CAME, {"betas": np.array(THREE)}, {"betas": THREE}),
        (CAME, {"betas": torch.tensor(THREE, dtype=torch.float64)}, {"betas": THREE}),
        (CAME, {"betas": (0.9, 0.999)}, {"betas": (0.9, 0.999, 0.9999)}),
        (CAME, {"beta1": "0.8"}, {"betas": (0.8, 0.999, 0.9999)}),
        (CAME, {"beta2": 0.95}, {"betas": THREE}),
        (CAME, {"beta2": 0.95, "beta3": 0.999}, {"betas": (0.9, 0.95, 0.999)}),
        (CAME, {"eps": 1e-20}, {"eps": (1e-20, 1e-16)}),
        (CAME, {"eps": "1e-20"}, {"eps": (1e-20, 1e-16)}),
        (CAME, {"eps2": 1e-12}, {"eps": (1e-30, 1e-12)}),
        (Adafactor, {"eps": "1e-20"}, {"eps": (1e-20, 1e-3)}),
        (Adafactor, {"eps1": 1e-20, "eps2": 1e-4}, {"eps": (1e-20, 1e-4)}),
        (Adafactor, {"beta1": "0.9", "beta2": "0.99", "decay_rate": "none"}, {"beta1": 0.9, "beta2": 0.99, "decay_rate": None}),
        (Adafactor, {"lr": "none"}, {"lr": None, "relative_step": True}),
        (Adafactor, {"lr": "1e-3", "relative_step": "False"}, {"lr": 1e-3, "relative_step": False}),
        (AdamW, {"beta2": "0.95", "eps": "1e-6"}, {"betas": (0.9, 0.95), "eps": 1e-6}),
        (LAMB, {"betas": "0.9,0.99", "bias_correction": "FALSE"}, {"betas": (0.9, 0.99), "bias_correction": False}),
        (SM3, {"beta1": "0.8", "eps": "1e-20"}, {"beta1": 0.8, "eps": 1e-20}),
        (SM3, {"beta1": None}, {"beta1": None}),
    ],
    ids=str,
)
def test_what_trainers_pass_is_understood(cls, given, expected):
    of_all = group_of(cls, **given)
    of_group = cls([{"params": weight(), **given}]).param_groups[0]
    later = cls(weight())
    later.add_param_group({"params": weight(), **given})
    for group in (of_all, of_group, later.param_groups[1]):
        assert {name: group[name] for name in expected} == expected
        assert all(is_plain(value) for name, value in group.items() if name != "params")
        assert not {"beta3", "eps1", "eps2"} & set(group)


def test_the_third_beta_never_reaches_one():
    almost = math.nextafter(1.0, 0.0)
    assert group_of(CAME, betas=(0.9, almost))["betas"] == (0.9, almost, almost)
    assert group_of(CAME, betas=(0.9, 0.0))["betas"] == (0.9, 0.0, 0.9)


def test_one_eps_of_adams_size_warns():
    with pytest.warns(UserWarning, match=r"eps: 1e-08 given alone is taken as eps1.*Write eps=\(1e-08, 1e-16\) if you mean it"):
        assert group_of(CAME, eps=1e-8)["eps"] == (1e-8, 1e-16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group_of(CAME, eps=(1e-8, 1e-16)), group_of(CAME, eps=1e-16), group_of(Adam, eps=1e-8)


def test_a_group_takes_what_it_leaves_out_from_the_optimizer():
    groups = [{"params": weight(), "beta1": 0.5}, {"params": weight(), "eps": 1e-20}, {"params": weight(), "beta2": 0.95}]
    first, second, third = CAME(groups, betas=(0.8, 0.99, 0.9995), eps=(1e-30, 1e-12)).param_groups
    assert first["betas"] == (0.5, 0.99, 0.9995) and second["eps"] == (1e-20, 1e-12) and third["betas"] == (0.8, 0.95, 0.995)


def test_what_another_optimizer_takes_is_refused_in_a_group():
    for cls, entry in ((SM3, "betas"), (Adam, "eps1"), (CAME, "decay_rate"), (Adafactor, "betas"), (LAMB, "clip_threshold"), (CAME, "amsgrad")):
        with pytest.raises(TypeError, match=f"{entry}: 0.5 given, but {cls.word} has no such argument"):
            cls([{"params": weight(), entry: 0.5}])
    assert CAME([{"params": weight(), "initial_lr": "kept", "layer": [1]}]).param_groups[0]["layer"] == [1]


def test_a_group_that_is_refused_is_left_as_it_was():
    optimizer, entries = CAME(weight()), {"params": weight(), "lr": "1e-4", "betas": "0.9", "beta1": 0.5}
    before = dict(entries)
    with pytest.raises(ValueError, match="betas: '0.9' given, expected 3 numbers"):
        optimizer.add_param_group(entries)
    assert entries == before and len(optimizer.param_groups) == 1


def test_a_tensor_rate_stays_a_tensor():
    rate = torch.tensor(1e-3)
    assert group_of(CAME, lr=rate)["lr"] is rate
    assert CAME([{"params": weight(), "lr": rate}], lr="1e-4").param_groups[0]["lr"] is rate


def test_subclasses_with_defaults_of_their_own_take_parts_of_them():
    class Mine(CAME):
        def __init__(self, params, betas=(0.5, 0.6, 0.7), **others):
            super().__init__(params, betas=betas, **others)

    assert group_of(Mine, beta1=0.4)["betas"] == (0.4, 0.6, 0.7)
    with pytest.raises(ValueError, match="beta1=0.4 given together with betas"):
        group_of(Mine, beta1=0.4, betas=(0.5, 0.6, 0.7001))


@pytest.mark.parametrize("word", OPTIMIZERS)
def test_saved_states_load_without_pickles(word):
    """numpy's numbers and OmegaConf's lists in a group would keep torch.load from reading the file with weights_only."""
    cls = OPTIMIZERS[word][0]
    own = {"came": {"betas": UserList([0.9, 0.99])}, "adafactor": {"eps": UserList([1e-30, 1e-3])}, "sm3": {"beta1": np.float64(0.9)}}
    entries = {"weight_decay": np.float64(0.1), "seed": np.uint64(3), **own.get(word, {"betas": UserList([0.9, 0.99])})}
    params = parameters(torch.float32)
    optimizer = make(word, [{"params": params[:3], "cautious": np.bool_(word == "came"), **entries}, {"params": params[3:]}], **entries)
    run(optimizer, params, 1)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(is_plain(v) for group in loaded["param_groups"] for k, v in group.items() if k != "params")
    cls([{"params": params[:3]}, {"params": params[3:]}]).load_state_dict(loaded)


def test_lists_in_a_checkpoint_become_tuples_when_it_is_loaded():
    sides = [parameters(torch.float32) for _ in range(2)]
    first, second = (CAME(params, betas=(0.8, 0.99, 0.999)) for params in sides)
    run(first, sides[0], 2)
    run(second, sides[1], 2)
    saved = second.state_dict()
    for entries in saved["param_groups"]:
        entries.update(betas=[0.8, 0.99, 0.999], eps=["1e-30", "1e-16"], weight_decay="0")
    second.load_state_dict(saved)
    assert second.param_groups[0]["betas"] == (0.8, 0.99, 0.999) and second.param_groups[0]["eps"] == (1e-30, 1e-16)
    run(first, sides[0], 2, first=2)
    run(second, sides[1], 2, first=2)
    assert all(same(p, q) for p, q in zip(*sides))


def test_estimate_takes_the_same_arguments():
    assert came_optim.estimate([(8, 8)], CAME, beta2="0.95", momentum_dtype="INT8") == came_optim.estimate([(8, 8)], CAME, momentum_dtype="int8")
    with pytest.raises(ValueError, match="betas"):
        came_optim.estimate([(8, 8)], CAME, betas=(0.9,))


# ---- any value at all --------------------------------------------------------------------------------

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
EPS_MAY_BE_ZERO = (Adam, AdamW, LAMB)
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
    return group, from_group(cls.word, cls._all_fields(), group)


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
    assert entry == x and (isinstance(entry, torch.Tensor) == (name == "lr" and isinstance(value, torch.Tensor)))
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
    assert group_of(CAME, clip_threshold=Fraction(1, 2))["clip_threshold"] == 0.5
