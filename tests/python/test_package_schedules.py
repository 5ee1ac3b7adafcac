"""Options that schedules change travel with the step: no plan is made anew, and the result is that of one made anew at every step."""

import math

import pytest
import torch
import torch._dynamo.testing
from package import OPTIMIZERS, make, parameters, same, same_states, set_gradients
from torch.optim import lr_scheduler

import came_optim
from came_optim.binding import Binding

SHAPES = [(7, 13), (31,), (4, 3, 3), ()]


@pytest.fixture
def plans(monkeypatch):
    """How many times parameters were bound, a plan of the kernels or a layout of the loop with them."""
    made = []
    plain = Binding.__init__

    def counted(self, *args, **named):
        made.append(1)
        plain(self, *args, **named)

    monkeypatch.setattr(Binding, "__init__", counted)
    return made


SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: 1 / (1 + k)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda k: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [3]),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-4, 1e-3, step_size_up=3, cycle_momentum="betas" in o.defaults),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=20, cycle_momentum="betas" in o.defaults),
}


@pytest.mark.parametrize("fused", [None, False], ids=["kernels", "loop"])
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_a_schedule_makes_no_plan_and_changes_no_bit(algorithm, name, fused, plans):
    """Beside it, an optimizer that begins anew at every step, from a checkpoint."""
    before = {}
    sides = [parameters(torch.float32, SHAPES) for _ in range(2)]
    optimizer, other = (make(algorithm, params, fused=fused, lr=1e-3) for params in sides)
    scheduler = SCHEDULERS[name](optimizer)
    for step in range(8):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.01 * step
        for params in sides:
            set_gradients(params, step)
        if step > 0:
            other = make(algorithm, sides[1], fused=fused)
        # Whole: betas, weight decay and rate of this step, and the state of the one before.
        other.load_state_dict({**optimizer.state_dict(), "state": before})
        del plans[:]
        optimizer.step()
        assert len(plans) == (1 if step == 0 else 0)
        other.step()
        assert all(same(p, q) for p, q in zip(*sides))
        assert same_states(optimizer.state_dict(), other.state_dict())
        before = other.state_dict()["state"]
        scheduler.step()


# An option, and values that follow each other.
TRAVELLING = {
    "betas": [(0.9, 0.999, 0.9999), (0.8, 0.99, 0.999), (0.95, 0.9, 0.5)],
    "eps": [(1e-30, 1e-16), (1e-20, 1e-10), (1e-10, 1e-6)],
    "clip_threshold": [1.0, 0.3, math.inf],
    "weight_decay": [0.0, 200.0, 50.0],
    "bias_correction": [True, False, True],
    "maximize": [False, True, False],
    "seed": [0, 1, 2**63],
    "stochastic_rounding": [True, False, True],
    "max_grad_norm": [1.0, 0.0, 0.1],
}
DECIDING = {
    "momentum_dtype": [None, "f32"],
    "cautious": [False, True],
    "confidence_1d": [False, True],
    "max_grad_norm": [0.0, 1.0],
}


@pytest.mark.parametrize("option", TRAVELLING)
def test_an_option_travels(option, plans):
    values = TRAVELLING[option]
    sides = [parameters(torch.bfloat16, SHAPES) for _ in range(2)]
    others = {"stochastic_rounding": True} if option == "seed" else {}
    optimizer = came_optim.CAME(sides[0], **{option: values[0]}, **others)
    state = {}
    for step, value in enumerate(values):
        for params in sides:
            set_gradients(params, step)
        optimizer.param_groups[0][option] = value
        other = came_optim.CAME(sides[1], **{option: value}, **others)
        if state:
            other.load_state_dict({"state": state, "param_groups": other.state_dict()["param_groups"]})
        del plans[:]
        optimizer.step()
        assert len(plans) == (step == 0)
        other.step()
        state = other.state_dict()["state"]
        assert all(same(p, q) for p, q in zip(*sides)), value
        assert same_states(optimizer.state_dict(), other.state_dict())


@pytest.mark.parametrize("option", DECIDING)
def test_an_option_that_decides_the_plan_makes_one(option, plans):
    before, after = DECIDING[option]
    params = parameters(torch.float32, [(7, 13)])
    optimizer = came_optim.CAME(params, **{option: before})
    for value, made in ((before, 1), (after, 1), (after, 0)):
        set_gradients(params, 0)
        optimizer.param_groups[0][option] = value
        del plans[:]
        optimizer.step()
        # None and f32 are one storage under two names: another plan, the same state.
        assert len(plans) == made, value


def test_a_value_out_of_range_is_refused_and_the_next_step_goes_on():
    params = parameters(torch.float32, [(7, 13)])
    optimizer = came_optim.CAME(params)
    set_gradients(params, 0)
    optimizer.step()
    image = [p.detach().clone() for p in params]
    optimizer.param_groups[0]["betas"] = (0.9, 1.5, 0.9999)
    with pytest.raises(ValueError, match=r"betas\[1\] is 1.5"):
        optimizer.step()
    assert all(same(p, q) for p, q in zip(params, image))
    optimizer.param_groups[0]["betas"] = (0.9, 0.99, 0.9999)
    optimizer.step()
    assert int(optimizer.state[params[0]]["step"]) == 2


def test_it_travels_through_gradient_release(plans):
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3))
    other = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3))
    other.load_state_dict(model.state_dict())
    released, plain = (came_optim.CAME(m.parameters()) for m in (model, other))
    came_optim.gradient_release(model, released)
    for step in range(4):
        for optimizer in (released, plain):
            optimizer.param_groups[0]["betas"] = (0.9 - 0.1 * step, 0.99, 0.999)
            optimizer.param_groups[0]["weight_decay"] = 0.1 * step
        if step == 2:
            del plans[:]
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(step))
        for m, optimizer in ((model, released), (other, plain)):
            m(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert plans == []
    assert all(same(p, q) for p, q in zip(model.parameters(), other.parameters()))


def test_options_travel_into_a_compiled_step():
    sides = [parameters(torch.float32, SHAPES) for _ in range(2)]
    eager, other = (came_optim.CAME(params) for params in sides)
    backend = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(lambda: other.step(), backend=backend)
    for step in range(4):
        for optimizer in (eager, other):
            optimizer.param_groups[0]["weight_decay"] = 0.1 * step
            optimizer.param_groups[0]["betas"] = (0.9 - 0.1 * step, 0.99, 0.999)
        for params, one in zip(sides, (eager.step, compiled)):
            set_gradients(params, step)
            one()
    assert all(same(p, q) for p, q in zip(*sides))
    assert backend.frame_count == 1


@pytest.mark.parametrize("given, kernels", [("False", False), (0, False), ("none", True), ("true", True)])
def test_a_mode_that_is_set_later_means_what_it_says(given, kernels):
    params = parameters(torch.float32, [(7, 13)])
    optimizer = came_optim.CAME(params)
    for value in (None, given):
        optimizer.param_groups[0]["fused"] = value
        set_gradients(params, 0)
        optimizer.step()
    assert optimizer._bindings[0].kernels is kernels
    optimizer.param_groups[0]["fused"] = None
    optimizer.param_groups[0]["foreach"] = "false"
    optimizer.step()
    assert optimizer._bindings[0].kernels
    optimizer.param_groups[0]["foreach"] = "nope"
    with pytest.raises(TypeError, match="foreach: 'nope' given, expected True or False"):
        optimizer.step()


def test_a_part_of_betas_that_is_set_later_is_one_of_them():
    sides = [parameters(torch.float32, SHAPES) for _ in range(2)]
    optimizers = [came_optim.CAME(params) for params in sides]
    for step in range(3):
        optimizers[0].param_groups[0]["beta2"] = 0.9 + 0.01 * step
        optimizers[1].param_groups[0]["betas"] = (0.9, 0.9 + 0.01 * step, 1 - (0.1 - 0.01 * step) / 10)
        for params, optimizer in zip(sides, optimizers):
            set_gradients(params, step)
            optimizer.step()
        assert "beta2" not in optimizers[0].param_groups[0]
        assert optimizers[0].param_groups[0]["betas"] == pytest.approx(optimizers[1].param_groups[0]["betas"], rel=1e-12)
    assert all(torch.allclose(p, q, rtol=1e-6) for p, q in zip(*sides))


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("lr", [None, torch.ones(2), "fast"])
def test_a_rate_that_is_none_is_refused_by_name(lr, fused):
    params = parameters(torch.float32, [(7, 13)])
    optimizer = came_optim.CAME(params, fused=fused)
    set_gradients(params, 0)
    optimizer.step()
    image = params[0].detach().clone()
    optimizer.param_groups[0]["lr"] = lr
    with pytest.raises((TypeError, ValueError), match="lr"):
        optimizer.step()
    assert same(params[0], image)
