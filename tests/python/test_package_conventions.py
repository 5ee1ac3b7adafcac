"""The package keeps torch.optim's conventions: gradients, closures, hooks, schedulers, names, mixed precision."""

import copy
import warnings
from collections import OrderedDict, UserDict

import pytest
import torch
from package import OPTIMIZERS, Block, make, parameters, raw, run, same, seeded, set_gradients
from torch import nn

import came_optim


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_gradients_are_never_written(algorithm, fused):
    params = parameters(torch.bfloat16)
    optimizer = make(algorithm, params, fused=fused, maximize=True, max_grad_norm=0.1)
    set_gradients(params, 0)
    grads = [p.grad for p in params]
    before = [raw(g) for g in grads]
    optimizer.step()
    assert all(p.grad is g and raw(g) == b for p, g, b in zip(params, grads, before))


@pytest.mark.parametrize("fused", [True, False])
def test_parameters_without_a_gradient_are_skipped(fused):
    params, alone = parameters(torch.float32), parameters(torch.float32)
    optimizer, single = came_optim.CAME(params, fused=fused), came_optim.CAME([alone[0]], fused=fused)
    start = [p.detach().clone() for p in params]
    set_gradients(params, 0)
    for p in params[1:]:
        p.grad = None
    optimizer.step()
    assert list(optimizer.state) == [params[0]]
    assert all(torch.equal(p, s) for p, s in zip(params[1:], start[1:]))
    set_gradients(params, 1)
    optimizer.step()  # now all have one
    set_gradients(params, 2)
    params[3].grad = None
    third = params[3].detach().clone()
    optimizer.step()
    assert [int(optimizer.state[p]["step"]) for p in params[:4]] == [3, 2, 2, 1] and torch.equal(params[3], third)
    run(single, alone[:1], 3)
    assert same(alone[0], params[0])


def test_no_gradient_at_all_does_nothing():
    params = parameters(torch.float32)
    optimizer = came_optim.AdamW(params)
    assert optimizer.step() is None and not optimizer.state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("fused", [True, False])
def test_learning_rate_as_a_tensor(fused, shape, dtype):
    sides = [parameters(torch.float64) for _ in range(2)]
    rate = torch.full(shape, 0.5, dtype=dtype)
    optimizers = came_optim.CAME(sides[0], lr=rate, fused=fused), came_optim.CAME(sides[1], lr=0.5, fused=fused)
    for step in range(3):
        rate.fill_(0.5**step)
        optimizers[1].param_groups[0]["lr"] = 0.5**step
        for optimizer, params in zip(optimizers, sides):
            set_gradients(params, step)
            optimizer.step()
    assert all(torch.allclose(p, q, rtol=1e-12, atol=0) for p, q in zip(*sides))


def test_a_scheduler_changes_the_rate():
    sides = [parameters(torch.float32) for _ in range(2)]
    optimizers = [came_optim.AdamW(sides[0], lr=0.1), torch.optim.AdamW(sides[1], lr=0.1)]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in optimizers]
    for step in range(5):
        for optimizer, params, scheduler in zip(optimizers, sides, schedulers):
            set_gradients(params, step)
            optimizer.step()
            scheduler.step()
    # Two f32 roundings a step of numbers below 4.
    assert all(torch.allclose(p, q, rtol=0, atol=5 * 2 * 2.0**-22) for p, q in zip(*sides))
    assert optimizers[0].param_groups[0]["lr"] == optimizers[1].param_groups[0]["lr"] == 0.1 / 32


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_options_are_read_at_each_step(algorithm, fused):
    """Changing one makes a new plan and leaves the state as it is: as one that was made so and took the state over."""
    changed = {"weight_decay": 0.3, "maximize": True, "cautious": True}
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, first = make(algorithm, params, fused=fused), make(algorithm, others, fused=fused)
    run(optimizer, params, 2)
    run(first, others, 2)
    second = make(algorithm, others, fused=fused)
    second.load_state_dict(first.state_dict())
    for o in (optimizer, second):
        o.param_groups[0].update(changed)
    run(optimizer, params, 2, first=2)
    run(second, others, 2, first=2)
    assert all(same(p, q) for p, q in zip(params, others))


def test_groups_have_their_own_options():
    params, others = parameters(torch.float32), parameters(torch.float32)
    together = came_optim.CAME([{"params": params[:3], "lr": 1e-2}, {"params": params[3:], "weight_decay": 0.5}], lr=1e-3)
    apart = came_optim.CAME(others[:3], lr=1e-2), came_optim.CAME(others[3:], lr=1e-3, weight_decay=0.5)
    for step in range(3):
        set_gradients(params, step)
        together.step()
        set_gradients(others, step)
        for optimizer in apart:
            optimizer.step()
    assert all(same(p, q) for p, q in zip(params, others))


def test_a_group_can_be_added():
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer = came_optim.CAME(params[:2])
    run(optimizer, params[:2], 2)
    optimizer.add_param_group({"params": params[2:], "lr": 1e-2})
    run(optimizer, params, 2, first=2)
    assert int(optimizer.state[params[0]]["step"]) == 4 and int(optimizer.state[params[2]]["step"]) == 2


def test_closure_is_evaluated_with_gradients():
    model = seeded(Block)
    optimizer = came_optim.CAME(model.parameters(), lr=1e-3)

    def closure():
        optimizer.zero_grad()
        loss = model.loss(0)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(10)]
    assert losses[-1] < losses[0] and all(p.requires_grad for p in model.parameters())


def test_hooks_run_around_the_step():
    params, calls = parameters(torch.float32), []
    optimizer = came_optim.CAME(params)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    run(optimizer, params, 1)
    assert calls == ["before", "after"]


def test_named_parameters_name_the_errors():
    model = nn.Linear(3, 2)
    optimizer = came_optim.CAME(model.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    model.weight.grad = torch.ones(2, 3).to_sparse()
    with pytest.raises(RuntimeError, match="sparse gradients: that of parameter 0 'weight'"):
        optimizer.step()


@pytest.mark.parametrize("fused", [True, False])
def test_version_counters_move(fused):
    p = nn.Parameter(torch.ones(3, 2))
    loss = (p * p).sum()
    p.grad = torch.ones(3, 2)
    came_optim.CAME([p], fused=fused).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_memory_that_moves_is_followed():
    """`.data` of parameters may be swapped, and types changed, between steps."""
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others)
    for step in range(3):
        for p in params:
            p.data = p.data.clone()
        set_gradients(params, step)
        optimizer.step()
    run(twin, others, 3)
    assert all(same(p, q) for p, q in zip(params, others))
    for p in params:
        p.grad = None
        p.data = p.data.to(torch.bfloat16)
    run(optimizer, params, 1)
    assert params[0].dtype == torch.bfloat16 and optimizer.state[params[0]]["exp_avg"].dtype == torch.float32


def test_state_that_is_replaced_is_followed():
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others)
    for step in range(4):
        set_gradients(params, step)
        optimizer.step()
        for slot in optimizer.state.values():
            for name, value in slot.items():
                slot[name] = value.clone()
    run(twin, others, 4)
    assert all(same(p, q) for p, q in zip(params, others))
    assert int(optimizer.state[params[0]]["step"]) == 4


@pytest.mark.parametrize("mapping", [dict, OrderedDict, UserDict])
def test_state_that_is_replaced_is_followed_in_whatever_mapping(mapping):
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others)
    run(optimizer, params, 1)
    optimizer.state = mapping(optimizer.state)
    for step in range(1, 4):
        set_gradients(params, step)
        optimizer.step()
        for param, slot in list(optimizer.state.items()):
            optimizer.state[param] = {name: value.clone() for name, value in slot.items()}
    run(twin, others, 4)
    assert all(same(p, q) for p, q in zip(params, others))
    assert int(optimizer.state[params[0]]["step"]) == 4


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_grad_scaler_unscales_and_skips(algorithm):
    scaled, plain = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = make(algorithm, scaled), make(algorithm, plain)
    assert optimizer._step_supports_amp_scaling
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    scaler.scale(torch.ones(()))
    for step in range(4):
        set_gradients(scaled, step)
        set_gradients(plain, step)
        for p in scaled:
            p.grad *= scaler.get_scale()
        if step == 2:
            scaled[0].grad[0, 0] = float("inf")
            before = [raw(p) for p in scaled] + [raw(v) for s in optimizer.state.values() for v in s.values()]
        scaler.step(optimizer)
        scaler.update()
        if step == 2:
            after = [raw(p) for p in scaled] + [raw(v) for s in optimizer.state.values() for v in s.values()]
            assert before == after, "a step with an overflow changed something"
        else:
            twin.step()
    assert scaler.get_scale() == 512.0
    # Scales are powers of two: unscaling is exact.
    assert all(same(p, q) for p, q in zip(scaled, plain))


@pytest.mark.parametrize("fused", [True, False])
def test_scale_and_overflow_are_forgotten_after_their_step(fused):
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = came_optim.CAME(params, fused=fused), came_optim.CAME(others, fused=fused)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(1.0)
    run(optimizer, params, 1)
    del optimizer.grad_scale, optimizer.found_inf
    run(optimizer, params, 2)
    run(twin, others, 2)
    assert all(same(p, q) for p, q in zip(params, others))


def test_grad_scaler_serves_the_loop_itself():
    assert not came_optim.CAME(parameters(torch.float32), fused=False)._step_supports_amp_scaling


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda o: torch.load(save(o), weights_only=False)])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_copies_go_on_alike(algorithm, copier):
    params = parameters(torch.bfloat16)
    optimizer = make(algorithm, params)
    run(optimizer, params, 3)
    other = copier(optimizer)
    others = other.param_groups[0]["params"]
    assert others[0] is not params[0]
    for o, p in ((optimizer, params), (other, others)):
        run(o, p, 3, first=3)
    assert all(same(p, q) for p, q in zip(params, others))


def save(thing):
    import io

    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


def test_autocast_training_learns():
    model = seeded(Block)
    optimizer = came_optim.CAME(model.parameters(), lr=1e-3, bias_correction=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model.loss(0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = parameters(torch.float32)
        run(came_optim.CAME(params), params, 2)


@pytest.mark.parametrize("fused", (None, False))
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_a_parameter_given_twice_is_stepped_once(algorithm, fused):
    def stepped(times):
        params = parameters(torch.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of duplicates
            optimizer = make(algorithm, params * times, fused=fused)
        run(optimizer, params, 3)
        assert all(optimizer.state[p]["step"] == 3 for p in params)
        return params

    assert all(map(torch.equal, stepped(1), stepped(2)))
