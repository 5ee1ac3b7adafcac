"""Checkpoints of another optimizer, and those that lack an entry, are refused when they are loaded; nothing changes then."""

import copy
import io

import came_pytorch
import pytest
import torch
import transformers
from package import OPTIMIZERS, make, parameters, raw, run, same, set_gradients

import came_optim

SHAPES = [(4, 6), (5,), (3, 2, 2), (2, 3)]
WORDS = list(OPTIMIZERS)
TORCH = {
    "SGD": {"lr": 0.1},
    "SGD, momentum": {"lr": 0.1, "momentum": 0.9},
    "RMSprop": {},
    "Adagrad": {},
    "Adadelta": {},
    "Adam": {},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "ASGD": {},
    "Rprop": {},
    "Adafactor": {},
}


class Lion(torch.optim.Optimizer):
    """State and groups as its authors have them."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["exp_avg"] = p.grad.clone()


def grouped(algorithm, params, **options):
    return make(algorithm, [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.1}], **options)


def snapshot(params, optimizer):
    state = {k: {n: raw(v) for n, v in slot.items()} for k, slot in optimizer.state_dict()["state"].items()}
    return [raw(p) for p in params], state, copy.deepcopy(optimizer.state_dict()["param_groups"])


def refuses(algorithm, state_dict, message):
    """The optimizer is as it was, and steps on as one that was never asked."""
    params, others = parameters(torch.float32, SHAPES), parameters(torch.float32, SHAPES)
    optimizer, twin = grouped(algorithm, params), grouped(algorithm, others)
    for ps, one in ((params, optimizer), (others, twin)):
        run(one, ps, 2)
    before, held = snapshot(params, optimizer), optimizer.state[params[2]]
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state_dict)
    assert snapshot(params, optimizer) == before and optimizer.state[params[2]] is held
    for ps, one in ((params, optimizer), (others, twin)):
        run(one, ps, 1, first=2)
    assert all(same(p, q) for p, q in zip(params, others))


def name_of(algorithm):
    return OPTIMIZERS[algorithm][0].__name__


@pytest.mark.parametrize("given", WORDS)
@pytest.mark.parametrize("algorithm", WORDS)
def test_only_its_own_checkpoints_load(algorithm, given):
    params = parameters(torch.float32, SHAPES)
    other = grouped(given, params)
    run(other, params, 2)
    if given != algorithm:
        message = f"^{name_of(algorithm)}: the checkpoint is of {name_of(given)}, .* expected one of {name_of(algorithm)}; nothing was loaded"
        refuses(algorithm, other.state_dict(), message)
        return
    buffer = io.BytesIO()
    torch.save(other.state_dict(), buffer)
    buffer.seek(0)
    grouped(algorithm, parameters(torch.float32, SHAPES)).load_state_dict(torch.load(buffer, weights_only=True))


@pytest.mark.parametrize("given", [*TORCH, "Lion"])
@pytest.mark.parametrize("algorithm", WORDS)
def test_checkpoints_of_torch_load_into_their_namesakes_alone(algorithm, given):
    params = parameters(torch.float32, SHAPES)
    groups = [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.1}]
    name = given.split(",")[0]
    other = Lion(groups) if name == "Lion" else getattr(torch.optim, name)(groups, **TORCH[given])
    run(other, params, 1)
    tells_decay = "decoupled_weight_decay" in other.param_groups[0]  # as torch does from 2.7 on
    if name in ("Adam", "AdamW") and (name == name_of(algorithm) or (algorithm in ("adam", "adamw") and not tells_decay)):
        grouped(algorithm, params).load_state_dict(other.state_dict())
    else:
        refuses(algorithm, other.state_dict(), f"^{name_of(algorithm)}: the checkpoint is of ")


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW])
def test_torch_loads_ours(cls):
    """Counters in float64 and what we add to groups included; by each of its implementations."""
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        params, others = parameters(torch.float64, SHAPES), parameters(torch.float64, SHAPES)
        ours, theirs = getattr(came_optim, cls.__name__)(params, lr=0.1), cls(others, lr=0.1, **options)
        run(ours, params, 3)
        for p, q in zip(params, others):
            q.data.copy_(p.data)
        theirs.load_state_dict({**copy.deepcopy(ours.state_dict()), "param_groups": with_options(ours, options)})
        for one, ps in ((ours, params), (theirs, others)):
            run(one, ps, 1, first=3)
        assert all(torch.allclose(p, q, rtol=1e-12, atol=1e-14) for p, q in zip(params, others)), options


def with_options(optimizer, options):
    return [{**group, **options} for group in optimizer.state_dict()["param_groups"]]


def test_came_pytorch_loads_ours():
    params, others = parameters(torch.float64, SHAPES), parameters(torch.float64, SHAPES)
    ours, theirs = came_optim.CAME(params, lr=0.1, view="last_two", bias_correction=False), came_pytorch.CAME(others, lr=0.1)
    run(ours, params, 3)
    for p, q in zip(params, others):
        q.data.copy_(p.data)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    for one, ps in ((ours, params), (theirs, others)):
        run(one, ps, 1, first=3)
    assert all(torch.allclose(p, q, rtol=1e-10, atol=1e-12) for p, q in zip(params, others))


def test_groups_that_tell_nothing_are_believed():
    """As a program may write them that keeps the state alone."""
    params = parameters(torch.float32, SHAPES)
    other = came_optim.AdamW(params)
    run(other, params, 1)
    bare = {"state": other.state_dict()["state"], "param_groups": [{"params": [0, 1, 2, 3], "lr": 0.5}]}
    optimizer = came_optim.AdamW(params, betas=(0.8, 0.9))
    optimizer.load_state_dict(bare)
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9) and optimizer.param_groups[0]["lr"] == 0.5


# ---- what is missing ---------------------------------------------------------------------------------

ENTRIES = [
    ("came", {}, 0, "exp_avg"),
    ("came", {}, 0, "exp_avg_sq_row"),
    ("came", {}, 0, "exp_avg_res_col"),
    ("came", {}, 1, "exp_avg_sq"),
    ("came", {"confidence_1d": True}, 1, "exp_avg_res"),
    ("came", {"momentum_dtype": "int8"}, 0, "exp_avg_scale"),
    ("came", {}, 3, "step"),
    ("adafactor", {}, 0, "exp_avg"),
    ("adafactor", {}, 0, "exp_avg_sq_col"),
    ("adam", {}, 1, "exp_avg"),
    ("adamw", {}, 3, "exp_avg_sq"),
    ("adamw", {"second_moment_dtype": "int8"}, 0, "exp_avg_sq_scale"),
    ("lamb", {}, 2, "exp_avg_sq"),
    ("sm3", {}, 0, "accumulator_row"),
    ("sm3", {}, 1, "accumulator"),
    ("sm3", {}, 1, "exp_avg"),
]


@pytest.mark.parametrize("algorithm, options, number, name", ENTRIES)
def test_a_checkpoint_that_lacks_an_entry_is_refused(algorithm, options, number, name):
    params = parameters(torch.float32, SHAPES)
    other = grouped(algorithm, params, **options)
    run(other, params, 2)
    state_dict = other.state_dict()
    del state_dict["state"][number][name]
    refuses(algorithm, state_dict, f"^{name_of(algorithm)}: the checkpoint has no '{name}' for parameter {number}, expected ")


def test_a_parameter_without_state_never_had_a_gradient():
    params = parameters(torch.float32, SHAPES)
    other = came_optim.CAME(params)
    set_gradients(params, 0)
    params[2].grad = None
    other.step()
    optimizer = came_optim.CAME(params)
    optimizer.load_state_dict(other.state_dict())
    set_gradients(params, 1)
    optimizer.step()
    assert [int(optimizer.state[p]["step"]) for p in params] == [2, 2, 1, 2]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda slot: slot.update(exp_avg=torch.zeros(6, 4)), r"state exp_avg of parameter 0 is torch.float32 \[6, 4\] .*expected"),
        (lambda slot: slot.update(exp_avg=torch.zeros(4, 6, dtype=torch.int8)), "state exp_avg of parameter 0 is torch.int8"),
        (lambda slot: slot.update(exp_avg_sq=1.0), "state exp_avg_sq of parameter 0 is 1.0"),
        (lambda slot: slot.update(step=None), "step of parameter 0 is None, expected a number"),
        (lambda slot: slot.update(step=torch.zeros(2)), "step of parameter 0 is tensor.*expected a number"),
        (lambda slot: slot["exp_avg"].untyped_storage().resize_(8), "state exp_avg of parameter 0 has .*a storage of 8 bytes"),
    ],
)
def test_state_that_does_not_fit_is_refused_when_it_is_loaded(change, message):
    params = parameters(torch.float32, SHAPES)
    other = came_optim.AdamW(params)
    run(other, params, 1)
    state_dict = copy.deepcopy(other.state_dict())
    change(state_dict["state"][0])
    before = snapshot(params, other)
    with pytest.raises((ValueError, TypeError), match=message):
        other.load_state_dict(state_dict)
    assert snapshot(params, other) == before


def test_what_the_other_package_does_not_know_begins_as_zeros():
    params = parameters(torch.float32, SHAPES)
    theirs = came_pytorch.CAME(params, lr=1e-3)
    run(theirs, params, 2)
    ours = came_optim.CAME(params, confidence_1d=True)
    ours.load_state_dict(theirs.state_dict())
    run(ours, params, 1)
    assert ours.state[params[1]]["exp_avg_res"].any() and ours.state[params[1]]["step"] == 3


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda o: reloaded(o)])
def test_options_may_add_state_after_loading(copier):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.CAME(params)
    run(optimizer, params, 2)
    other = copier(optimizer)
    other.param_groups[0]["confidence_1d"] = True
    own = other.param_groups[0]["params"]
    run(other, own, 1)
    assert other.state[own[1]]["exp_avg_res"].any() and other.state[own[1]]["step"] == 3


def reloaded(optimizer):
    other = came_optim.CAME(optimizer.param_groups[0]["params"])
    other.load_state_dict(optimizer.state_dict())
    return other


def test_transformers_loads_into_adafactor_alone():
    params = parameters(torch.float32, SHAPES)
    theirs = transformers.Adafactor(params, beta1=0.9)
    run(theirs, params, 1)
    came_optim.Adafactor(params, beta1=0.9).load_state_dict(theirs.state_dict())
    for algorithm in set(WORDS) - {"adafactor"}:
        with pytest.raises(ValueError, match="the checkpoint is of Adafactor"):
            make(algorithm, params).load_state_dict(theirs.state_dict())
