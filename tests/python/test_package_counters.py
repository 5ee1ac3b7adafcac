"""Counters count on past 2**24, are exact whatever torch's defaults are, and nothing else takes those by accident."""

import pytest
import torch
from package import OPTIMIZERS, make, parameters, raw, run, same, set_gradients

import came_optim

EDGE = 2**24
SHAPES = [(4, 6), (5,), ()]
GIVEN = {
    "float32": lambda count: torch.tensor(float(count), dtype=torch.float32),
    "int": int,
    "float": float,
    "int64": lambda count: torch.tensor(count, dtype=torch.int64),
    "one element": lambda count: torch.tensor([count], dtype=torch.float64),
}


def counts(optimizer):
    return [float(slot["step"]) for slot in optimizer.state.values()]


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_counters_pass_the_edge_of_float32(algorithm, fused):
    params = parameters(torch.float32, SHAPES)
    optimizer = make(algorithm, params, fused=fused)
    run(optimizer, params, 1)
    for slot in optimizer.state.values():
        slot["step"].fill_(EDGE - 2)
    run(optimizer, params, 4)
    assert counts(optimizer) == [EDGE + 2.0] * len(SHAPES)


@pytest.mark.parametrize("way", ["checkpoint", "assigned"])
@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("given", GIVEN)
def test_counters_go_on_from_whatever_is_given(given, fused, way):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.AdamW(params, fused=fused)
    run(optimizer, params, 1)
    state_dict = optimizer.state_dict()
    for slot in state_dict["state"].values() if way == "checkpoint" else optimizer.state.values():
        slot["step"] = GIVEN[given](EDGE)
    if way == "checkpoint":
        optimizer.load_state_dict(state_dict)
    run(optimizer, params, 2)
    assert counts(optimizer) == [EDGE + 2.0] * len(SHAPES)


def test_released_and_compiled_steps_count_on():
    net = torch.nn.Linear(4, 3)
    optimizer = came_optim.AdamW(net.parameters())
    came_optim.gradient_release(net, optimizer)
    for step in range(3):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if step == 0:
            for slot in optimizer.state.values():
                slot["step"].fill_(EDGE)
    assert counts(optimizer) == [EDGE + 2.0] * 2
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.AdamW(params)
    run(optimizer, params, 1)
    for slot in optimizer.state.values():
        slot["step"].fill_(EDGE)
    torch._dynamo.reset()
    compiled = torch.compile(lambda: optimizer.step(), backend="aot_eager")
    set_gradients(params, 1)
    compiled()
    compiled()
    assert counts(optimizer) == [EDGE + 2.0] * len(SHAPES)


def test_random_bits_do_not_repeat_at_the_edge():
    """Kernels and loop draw the same bits at each step, and others at the next: a half of all numbers differ."""
    drawn = {}
    for fused in (None, False):
        for count in range(EDGE - 2, EDGE + 3):
            p = torch.nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))
            p.grad = torch.ones(64, 64, dtype=torch.bfloat16)
            optimizer = came_optim.SM3([p], lr=2.0**-9, beta1=0.0, stochastic_rounding=True)  # half of a spacing below 1
            optimizer.param_groups[0]["fused"] = fused
            optimizer.step()
            p.data.fill_(1.0)
            optimizer.state[p]["accumulator_row"].zero_()
            optimizer.state[p]["accumulator_col"].zero_()
            optimizer.state[p]["step"].fill_(count)
            optimizer.step()
            drawn[fused, count] = p.detach().clone()
            assert 0.4 < float((p != 1).float().mean()) < 0.6
    for count in range(EDGE - 2, EDGE + 3):
        assert same(drawn[None, count], drawn[False, count])
        if count > EDGE - 2:
            assert float((drawn[None, count] != drawn[None, count - 1]).float().mean()) > 0.4


# ---- torch's defaults --------------------------------------------------------------------------------


@pytest.fixture(params=[torch.bfloat16, torch.float16, torch.float64], ids=str)
def default_dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("given", ["int", "float", "int64"])
@pytest.mark.parametrize("count", [1001, 70000, EDGE + 1])
def test_counters_are_exact_whatever_the_default_type(count, given, fused, default_dtype):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.AdamW(params, fused=fused)
    run(optimizer, params, 1)
    state_dict = optimizer.state_dict()
    state_dict["state"][0]["step"] = GIVEN[given](count)
    optimizer.load_state_dict(state_dict)
    assert counts(optimizer)[0] == count
    optimizer.state[params[1]]["step"] = GIVEN[given](count)
    run(optimizer, params, 1)
    assert counts(optimizer) == [count + 1.0, count + 1.0, 2.0]


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_defaults_change_no_bit(algorithm, fused, default_dtype):
    params, others = parameters(torch.float32, SHAPES), parameters(torch.float32, SHAPES)
    options = {"max_grad_norm": 1.0, "momentum_dtype": "int8"}
    run(make(algorithm, params, fused=fused, **options), params, 3)
    torch.set_default_dtype(torch.float32)
    run(make(algorithm, others, fused=fused, **options), others, 3)
    assert all(same(p, q) for p, q in zip(params, others))


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_a_default_device_changes_nothing(algorithm, fused):
    """The first step, a checkpoint, released and compiled steps."""
    params, others = parameters(torch.float32, SHAPES), parameters(torch.float32, SHAPES)
    options = {"max_grad_norm": 1.0, "momentum_dtype": "int8", "stochastic_rounding": True}
    optimizer, twin = make(algorithm, params, fused=fused, **options), make(algorithm, others, fused=fused, **options)
    for step in range(3):
        for ps in (params, others):
            set_gradients(ps, step)
        if step == 1:
            state_dict = optimizer.state_dict()
            state_dict["state"][0]["step"] = 1
        with torch.device("meta"):
            if step == 1:
                optimizer.load_state_dict(state_dict)
            optimizer.step()
        twin.step()
    assert all(same(p, q) for p, q in zip(params, others))
    assert all(value.device.type == "cpu" for slot in optimizer.state.values() for value in slot.values())


def test_a_default_device_changes_no_compiled_step():
    params, others = parameters(torch.float32, SHAPES), parameters(torch.float32, SHAPES)
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others)
    torch._dynamo.reset()
    compiled = torch.compile(lambda: optimizer.step(), backend="aot_eager")
    for step in range(2):
        for ps in (params, others):
            set_gradients(ps, step)
        with torch.device("meta"):
            compiled()
        twin.step()
    assert [raw(p) for p in params] == [raw(q) for q in others]
