"""Slots of state that somebody replaced, emptied or left incomplete between two steps; and state that changes while gradients
are released, and inside torch.compile.
"""

import pytest
import torch
from package import parameters, raw, same, set_gradients
from replacing import (
    MIDDLE,
    SHAPES,
    WAYS,
    assign,
    everything,
    free,
    grown,
    halve,
    reshape,
    set_data,
    set_storage,
    share,
    shrink_and_grow,
    swap,
    to_meta,
    turn,
)
from torch import nn

import came_optim

def new_slot(optimizer, param):
    optimizer.state[param] = {name: value.clone() for name, value in optimizer.state[param].items()}


def new_slot_around(optimizer, param):
    dict.__setitem__(optimizer.state, param, {name: value.clone() for name, value in optimizer.state[param].items()})


def new_state(optimizer, param):
    optimizer.state = type(optimizer.state)(dict, {p: dict(slot) for p, slot in optimizer.state.items()})
    new_slot(optimizer, param)


def loaded(optimizer, param):
    optimizer.load_state_dict(optimizer.state_dict())


def in_another_order(optimizer, param):
    slot = optimizer.state[param]
    slot["exp_avg"] = slot.pop("exp_avg").clone()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [new_slot, new_slot_around, new_state, loaded, in_another_order])
def test_whole_slots_that_are_replaced_are_followed(change, way):
    (params, optimizer), (others, twin) = grown(way=way), grown(way=way)
    change(optimizer, params[MIDDLE])
    for step in (3, 4):
        for ps, one in ((params, optimizer), (others, twin)):
            set_gradients(ps, step)
            one.step()
    assert all(same(p, q) for p, q in zip(params, others))
    for p, q in zip(params, others):
        assert all(torch.equal(optimizer.state[p][entry], value) for entry, value in twin.state[q].items())


# ---- slots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq_row", "exp_avg_res_col", "step"])
def test_an_entry_that_was_deleted_is_not_made_up(name, fused):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.CAME([{"params": params[:50]}, {"params": params[50:], "lr": 1e-3}], fused=fused)
    set_gradients(params, 0)
    optimizer.step()
    kept = optimizer.state[params[MIDDLE]].pop(name)
    before = everything(params, optimizer)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"CAME: the state of parameter {MIDDLE} has no '{name}', expected 'step', "):
            optimizer.step()
    assert everything(params, optimizer) == before
    optimizer.state[params[MIDDLE]][name] = kept
    optimizer.step()
    assert optimizer.state[params[MIDDLE]]["step"] == 2


def test_a_slot_that_is_replaced_must_be_complete():
    params, optimizer = grown()
    slot = optimizer.state[params[MIDDLE]]
    optimizer.state[params[MIDDLE]] = {name: value for name, value in slot.items() if name != "exp_avg_sq"}
    with pytest.raises(ValueError, match=f"the state of parameter {MIDDLE} has no 'exp_avg_sq'"):
        optimizer.step()


@pytest.mark.parametrize("empty", [lambda slot: slot.clear(), lambda slot: [slot.pop(name) for name in list(slot)]])
def test_a_slot_that_is_emptied_begins_anew(empty):
    params, optimizer = grown()
    empty(optimizer.state[params[MIDDLE]])
    optimizer.step()
    assert optimizer.state[params[MIDDLE]]["step"] == 1 and optimizer.state[params[0]]["step"] == 4


@pytest.mark.parametrize("fused", [None, False])
def test_what_an_option_adds_later_begins_as_zeros(fused):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.CAME(params, fused=fused)
    for confidence in (False, True, True):
        set_gradients(params, 0)
        optimizer.param_groups[0]["confidence_1d"] = confidence
        optimizer.step()
    assert optimizer.state[params[0]]["exp_avg_res"].any()
    del optimizer.state[params[0]]["exp_avg_res"]
    with pytest.raises(ValueError, match="the state of parameter 0 has no 'exp_avg_res'"):
        optimizer.step()
    optimizer.param_groups[0]["confidence_1d"] = False  # nobody wants it
    optimizer.step()
    optimizer.param_groups[0]["confidence_1d"] = True
    optimizer.step()
    assert "exp_avg_res" in optimizer.state[params[0]]


def test_a_slot_that_somebody_holds_stays_the_slot():
    params, optimizer = grown()
    held = optimizer.state[params[MIDDLE]]
    held["exp_avg"] = held["exp_avg"].clone()
    optimizer.step()
    held["exp_avg"] = torch.full((4, 6), 1e6)
    optimizer.step()
    assert optimizer.state[params[MIDDLE]] is held and held["step"] == 5
    assert optimizer.state[params[MIDDLE]]["exp_avg"].min() > 1e5


# ---- release and compile -----------------------------------------------------------------------------


def released():
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(60)))
    optimizer = came_optim.AdamW(net.parameters(), lr=0.1)
    came_optim.gradient_release(net, optimizer)
    params = list(net.parameters())
    for _ in range(2):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return net, params, optimizer


@pytest.mark.parametrize("change", [set_data, set_storage, share, swap, shrink_and_grow, turn])
def test_released_steps_follow_state(change):
    sides = [released(), released()]
    net, params, optimizer = sides[0]
    slot = optimizer.state[params[40]]
    change(slot, "exp_avg", slot["exp_avg"])
    for net, _, one in sides:
        for _ in range(2):
            net(torch.ones(2, 4)).sum().backward()
            one.step()
    assert all(same(p, q) for p, q in zip(sides[0][1], sides[1][1]))


@pytest.mark.parametrize("change", [free, halve, to_meta, reshape])
def test_released_steps_refuse_state(change):
    net, params, optimizer = released()
    victim = optimizer.state[params[40]]["exp_avg"]
    victim.data = torch.zeros(4, 6) if change is reshape else victim.data
    change(victim)
    before = raw(params[40])
    with pytest.raises(ValueError, match="state exp_avg of parameter 40"):
        net(torch.ones(2, 4)).sum().backward()
    assert raw(params[40]) == before


@pytest.mark.parametrize("change", [assign, set_data, shrink_and_grow])
def test_compiled_steps_follow_state(change):
    (params, optimizer), (others, twin) = (grown(count=MIDDLE + 2) for _ in range(2))
    torch._dynamo.reset()
    compiled = torch.compile(lambda: optimizer.step(), backend="aot_eager")
    for step in (3, 4, 5):
        if step == 4:
            slot = optimizer.state[params[MIDDLE]]
            change(slot, "exp_avg", slot["exp_avg"])
        for ps, one in ((params, compiled), (others, twin.step)):
            set_gradients(ps, step)
            one()
    assert all(same(p, q) for p, q in zip(params, others))


@pytest.mark.parametrize("change", [free, reshape])
def test_compiled_steps_refuse_state(change):
    params, optimizer = grown(count=MIDDLE + 2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda: optimizer.step(), backend="aot_eager")
    compiled()
    change(optimizer.state[params[MIDDLE]]["exp_avg"])
    before = everything(params, optimizer)
    with pytest.raises(Exception, match=f"state exp_avg of parameter {MIDDLE}"):
        compiled()
    assert everything(params, optimizer) == before
