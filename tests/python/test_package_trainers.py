"""How trainers call an optimizer: arguments from YAML and command lines, steps of single parameters in hooks, and a trap that says
that it is there.
"""

import io
import math
import re
import warnings
from collections import UserList
from pathlib import Path

import numpy as np
import pytest
import torch
from package import OPTIMIZERS, Block, make, parameters, run, same, seeded, set_gradients
from torch import nn

import came_optim
from came_optim import CAME, LAMB, SM3, Adafactor, Adam, AdamW


def weight():
    return [nn.Parameter(torch.ones(2, 3))]


def group_of(cls, **arguments):
    return cls(weight(), **arguments).param_groups[0]


def is_plain(value):
    return type(value) in (float, int, bool, str, type(None)) or (type(value) is tuple and all(type(v) is float for v in value))


# ---- arguments ---------------------------------------------------------------------------------------

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


TABLE = (Path(__file__).parents[2] / "docs/python.md").read_text().split("## From a YAML or a command line")[1].split("\n## ")[0]
LINES = re.findall(r"^\| `(.+)` \| `(.+)` \|$", TABLE, re.M)


@pytest.mark.parametrize("call, understood", LINES)
def test_the_table_of_the_documentation_is_true(call, understood):
    names = {**vars(came_optim), "torch": torch, "params": weight()}
    for name in came_optim.__all__:
        names[name] = getattr(came_optim, name)
    error, _, message = understood.partition(": ")
    if error in ("ValueError", "TypeError"):
        with pytest.raises((ValueError, TypeError), match=re.escape(message)) as raised:
            eval(call, names)
        assert raised.type.__name__ == error
    else:
        expected = eval(f"dict({understood})")
        assert {name: eval(call, names).param_groups[0][name] for name in expected} == expected


def test_the_table_is_there():
    assert len(LINES) == TABLE.count("\n| `") == 24


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
        with pytest.raises(TypeError, match=f"{entry}: 0.5 given, but {cls.algorithm} has no such argument"):
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


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_saved_states_load_without_pickles(algorithm):
    """numpy's numbers and OmegaConf's lists in a group would keep torch.load from reading the file with weights_only."""
    cls = OPTIMIZERS[algorithm][0]
    own = {"came": {"betas": UserList([0.9, 0.99])}, "adafactor": {"eps": UserList([1e-30, 1e-3])}, "sm3": {"beta1": np.float64(0.9)}}
    entries = {"weight_decay": np.float64(0.1), "seed": np.uint64(3), **own.get(algorithm, {"betas": UserList([0.9, 0.99])})}
    params = parameters(torch.float32)
    optimizer = make(algorithm, [{"params": params[:3], "cautious": np.bool_(algorithm == "came"), **entries}, {"params": params[3:]}], **entries)
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


@pytest.mark.parametrize("rate", [torch.tensor(True), torch.ones((), dtype=torch.complex64), torch.ones((), device="meta")])
def test_a_tensor_rate_is_a_real_number_in_memory(rate):
    with pytest.raises(TypeError, match="lr: a tensor of .* given, expected a real number in memory"):
        CAME(weight(), lr=rate)


# ---- step_parameter ----------------------------------------------------------------------------------


def fuse(model, optimizer, clip=None):
    """What OneTrainer does before it trains with a fused back pass."""
    for group in optimizer.param_groups:
        for i, param in enumerate(group["params"]):

            def hook(tensor, group=group, i=i):
                if clip is not None:
                    nn.utils.clip_grad_norm_(tensor, clip)
                optimizer.step_parameter(tensor, group, i)
                tensor.grad = None

            param.register_post_accumulate_grad_hook(hook)


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_steps_of_single_parameters_change_no_bit(algorithm, fused):
    models = [seeded(Block).to(torch.bfloat16) for _ in range(2)]
    optimizers, schedulers = [], []
    for model in models:
        params = list(model.parameters())
        groups = [{"params": params[:5], "weight_decay": 0.1}, {"params": params[5:]}]
        optimizers.append(make(algorithm, groups, stochastic_rounding=True, fused=fused))
        if algorithm != "adafactor":
            schedulers.append(torch.optim.lr_scheduler.ExponentialLR(optimizers[-1], 0.5))
    fuse(models[1], optimizers[1])
    for step in range(4):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            model.loss(step).backward()
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    assert all(same(p, q) for p, q in zip(*(m.parameters() for m in models)))
    assert {int(slot["step"]) for slot in optimizers[1].state.values()} == {4}


def test_a_step_after_single_ones_steps_only_what_is_left():
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = CAME(params), CAME(others)
    for step in range(3):
        set_gradients(params, step)
        for k, p in enumerate(params[:4]):
            optimizer.step_parameter(p, optimizer.param_groups[0], k)
            assert p.grad is None  # so that the next line finds nothing to do for it
        optimizer.step()
        optimizer.step_parameter(params[0])  # which has no gradient
    run(twin, others, 3)
    assert all(same(p, q) for p, q in zip(params, others))


def test_each_gradient_is_a_step():
    """Without optimizer.step() between them, too: OneTrainer leaves that out where it has a GradScaler."""
    params, others = weight(), weight()
    optimizer, twin = CAME(params), CAME(others)
    for step in range(3):
        set_gradients(params, step)
        optimizer.step_parameter(params[0], optimizer.param_groups[0], 0)
    assert int(optimizer.state[params[0]]["step"]) == 3
    run(twin, others, 3)
    assert same(params[0], others[0])


def test_single_steps_keep_their_plans():
    params = parameters(torch.float32)
    optimizer = CAME(params)
    bound = []
    for step in range(3):
        set_gradients(params, step)
        for p in params:
            optimizer.step_parameter(p)
        optimizer.step()
        bound.append([id(binding) for _, binding in optimizer._one_by_one._bindings.values()])
    assert bound[0] == bound[1] == bound[2] and len(bound[0]) == len(params)


def test_single_steps_read_their_options():
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = CAME(params), CAME(others)
    for step in range(3):
        for o in (optimizer, twin):
            o.param_groups[0]["weight_decay"] = 0.1 * step
        set_gradients(params, step)
        for p in params:
            optimizer.step_parameter(p)
        run(twin, others, 1, first=step)
    assert all(same(p, q) for p, q in zip(params, others))


def test_single_steps_go_on_from_checkpoints():
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = CAME(params), CAME(others)
    for step in range(4):
        if step == 2:
            optimizer.load_state_dict(optimizer.state_dict())
        set_gradients(params, step)
        for p in params:
            optimizer.step_parameter(p)
    run(twin, others, 4)
    assert all(same(p, q) for p, q in zip(params, others))


def test_parameters_that_join_later_are_stepped():
    optimizer, late = CAME(weight()), weight()
    optimizer.step_parameter(optimizer.param_groups[0]["params"][0])
    optimizer.add_param_group({"params": late, "lr": 1e-2})
    set_gradients(late, 0)
    optimizer.step_parameter(late[0], optimizer.param_groups[1], 0)
    assert int(optimizer.state[late[0]]["step"]) == 1


def test_an_overflow_is_heeded_by_single_steps():
    params = weight()
    optimizer = CAME(params)
    set_gradients(params, 0)
    optimizer.found_inf = torch.ones(())
    optimizer.step_parameter(params[0])
    assert int(optimizer.state[params[0]]["step"]) == 0 and torch.equal(params[0], torch.ones(2, 3))


def test_what_single_steps_cannot_do_is_refused():
    params = weight()
    optimizer = CAME(params)
    group = optimizer.param_groups[0]
    set_gradients(params, 0)
    with pytest.raises(ValueError, match="p: .* given, expected a parameter of this optimizer"):
        optimizer.step_parameter(weight()[0])
    with pytest.raises(ValueError, match="p: 3 given"):
        optimizer.step_parameter(3)
    with pytest.raises(ValueError, match="group: given is not that of parameter 0, expected optimizer.param_groups\\[0\\] as it is now"):
        optimizer.step_parameter(params[0], dict(group), 0)
    with pytest.raises(ValueError, match="i: 1 given, expected 0"):
        optimizer.step_parameter(params[0], group, 1)
    group["max_grad_norm"] = 1.0
    with pytest.raises(ValueError, match="max_grad_norm: is set, expected 0: .* the clip_threshold of CAME bounds"):
        optimizer.step_parameter(params[0], group, 0)
    group.update(max_grad_norm=0.0, differentiable=True)
    with pytest.raises(RuntimeError, match="`differentiable` does not support"):
        optimizer.step_parameter(params[0], group, 0)
    assert not optimizer.state and torch.equal(params[0], torch.ones(2, 3)) and params[0].grad is not None
    model = nn.Linear(3, 2)
    released = CAME(model.parameters())
    released_by = came_optim.gradient_release(model, released)
    with pytest.raises(RuntimeError, match="step_parameter: gradients are released already"):
        released.step_parameter(model.weight)
    released_by.remove()


def test_gradients_clipped_one_by_one_arrive_clipped():
    """What the error above advises."""
    models = [seeded(Block) for _ in range(2)]
    optimizers = [AdamW(model.parameters()) for model in models]

    def clip(param):  # a hook of torch returns nothing
        nn.utils.clip_grad_norm_(param, 1e-3)

    for p in models[0].parameters():
        p.register_post_accumulate_grad_hook(clip)
    came_optim.gradient_release(models[0], optimizers[0])
    for step in range(2):
        models[0].loss(step).backward()
        models[1].loss(step).backward()
        for p in models[1].parameters():
            nn.utils.clip_grad_norm_(p, 1e-3)
        for optimizer in optimizers:
            optimizer.step()
        optimizers[1].zero_grad()
    assert all(same(p, q) for p, q in zip(*(m.parameters() for m in models)))


# ---- clipping that finds no gradients ----------------------------------------------------------------


def test_gradient_release_says_that_clipping_outside_does_nothing():
    came_optim.release._warned = False
    model = nn.Linear(3, 2)
    with pytest.warns(UserWarning, match=r"clip_grad_norm_ .*find no gradient.*the clip_threshold of CAME bounds"):
        came_optim.gradient_release(model, CAME(model.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = nn.Linear(3, 2)
        came_optim.gradient_release(again, CAME(again.parameters()))
    model(torch.ones(1, 3)).sum().backward()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) == 0  # the trap
