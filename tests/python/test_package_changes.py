"""What programs do to an optimizer between steps: it must follow, as torch's do, or say no."""

import copy
import gc
import weakref
from functools import partial
from threading import Thread

import came_optim
import pytest
import torch
from came_optim import ops
from package import assert_as_torchs_adam
from torch import nn

PAIR = (came_optim.AdamW, torch.optim.AdamW)


def stepped(cls, shape=(40, 30), **options):
    """A parameter after two steps, in f64, where a comparison sees most."""
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    optimizer = cls([p], lr=0.1, **options)
    for _ in range(2):
        p.grad = torch.randn(shape, dtype=torch.float64)
        optimizer.step()
    return p, optimizer


def go_on(p, optimizer):
    torch.manual_seed(9)
    p.grad = torch.randn(p.shape, dtype=p.dtype)
    optimizer.step()
    return p.detach().clone()


def swap(optimizer):
    for slot in optimizer.state.values():
        for value in slot.values():
            value.data = value.data.clone()


def share(optimizer):
    for slot in optimizer.state.values():
        for value in slot.values():
            value.share_memory_()


def forget(optimizer):
    optimizer.state.clear()


def replace(optimizer):
    for p, slot in list(optimizer.state.items()):
        optimizer.state[p] = {name: torch.zeros_like(value) for name, value in slot.items()}


def halve(optimizer):
    for slot in optimizer.state.values():
        slot["exp_avg"] = slot["exp_avg"] / 2


@pytest.mark.parametrize("change", [swap, share, forget, replace, halve])
def test_state_is_followed(change):
    results = []
    for cls in PAIR:
        p, optimizer = stepped(cls)
        change(optimizer)
        results.append((go_on(p, optimizer), optimizer.state[p]["step"].item(), len(optimizer.state_dict()["state"])))
    (ours, our_step, our_count), (theirs, their_step, their_count) = results
    assert_as_torchs_adam(ours, theirs, 3)
    assert (our_step, our_count) == (their_step, their_count)


def test_a_parameter_may_move_to_the_next_group():
    for cls in PAIR:
        a, b, c = (nn.Parameter(torch.ones(4, 4)) for _ in range(3))
        optimizer = cls([{"params": [a, b], "lr": 0.1}, {"params": [c], "lr": 0.0}], weight_decay=0)
        for p in (a, b, c):
            p.grad = torch.ones(4, 4)
        optimizer.step()
        optimizer.param_groups[0]["params"].pop()
        optimizer.param_groups[1]["params"].insert(0, b)
        before = b.detach().clone()
        optimizer.step()
        assert torch.equal(before, b)


def test_biases_may_be_all_that_stays_in_a_group():
    net = nn.Linear(4, 4)
    optimizer = came_optim.CAME(net.parameters())
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["params"] = [net.bias]
    before = net.bias.detach().clone()
    optimizer.step()
    assert not torch.equal(before, net.bias)


def test_parameters_of_a_group_need_not_be_a_list():
    for cls in PAIR:
        p, optimizer = stepped(cls)
        optimizer.param_groups[0]["params"] = (p,)
        for _ in range(2):
            before = p.detach().clone()
            assert not torch.equal(before, go_on(p, optimizer))


def test_threads_that_compiled_the_same_step_take_turns():
    """They share one call of the operator, as two optimizers of equal shapes and options do."""
    make = torch.Generator().manual_seed(0)
    gradients = [torch.randn(256, 256, generator=make) * scale for scale in (1, 100)]

    def work(k, results):
        p = nn.Parameter(torch.full((256, 256), float(k)))
        optimizer = came_optim.CAME([p], lr=0.01)
        p.grad = gradients[k].clone()
        optimizer.step()
        for _ in range(100):
            for bound, rates, options, plan in optimizer._graph_calls():
                with torch.no_grad():
                    ops.step(bound.params, [p.grad], bound.states, bound.steps, rates, options, None, None, plan)
        results[k] = p.detach().clone()

    alone, together = {}, {}
    for k in range(2):
        work(k, alone)
    threads = [Thread(target=work, args=(k, together)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone[k], together[k]) for k in range(2))


def test_options_may_change_in_place():
    results = []
    for cls in PAIR:
        decay = torch.tensor(0.0, dtype=torch.float64)
        p, optimizer = stepped(cls, weight_decay=decay)
        decay.fill_(1.0)
        results.append(go_on(p, optimizer))
    assert_as_torchs_adam(*results, 3)


def test_strides_may_change_at_the_same_address():
    results = []
    for cls in PAIR:
        torch.manual_seed(0)
        draw = partial(torch.randn, dtype=torch.float64)
        a, b = nn.Parameter(draw(4, 4)), nn.Parameter(draw(5, 3).t())
        optimizer = cls([a, b], lr=0.1)
        for turn in (False, True):
            a.grad, b.grad = None, draw(3, 5)
            a.data = a.data.t() if turn else a.data
            a.grad = draw(4, 4)
            optimizer.step()
        results.append(a.detach().clone())
    assert_as_torchs_adam(*results, 2)


def test_options_that_no_optimizer_heeds_are_refused_when_a_checkpoint_brings_them():
    p, theirs = stepped(torch.optim.AdamW, amsgrad=True)
    optimizer = came_optim.AdamW([p])
    with pytest.raises(ValueError, match="amsgrad: True given, expected False"):
        optimizer.load_state_dict(theirs.state_dict())
    assert not optimizer.state and not optimizer.param_groups[0]["amsgrad"]


def test_nothing_outlives_an_optimizer():
    gc.collect()
    gc.disable()
    try:
        p, optimizer = stepped(came_optim.CAME)
        seen = weakref.ref(optimizer.state[p]["exp_avg"]), weakref.ref(p)
        del optimizer, p
        assert [reference() for reference in seen] == [None, None]
    finally:
        gc.enable()


def test_own_entries_in_the_state_survive_a_checkpoint():
    p, optimizer = stepped(came_optim.CAME)
    optimizer.state["mine"] = {"x": torch.ones(2)}
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert torch.equal(optimizer.state["mine"]["x"], torch.ones(2))
    go_on(p, optimizer)


def released():
    torch.manual_seed(0)
    net = nn.Linear(4, 4, bias=False)
    optimizer = came_optim.AdamW(net.parameters(), lr=0.1)
    came_optim.gradient_release(net, optimizer)
    return net, optimizer


def test_release_follows_a_checkpoint():
    (net, optimizer), x = released(), torch.ones(3, 4)
    net(x).sum().backward()
    optimizer.step()
    saved, weight = copy.deepcopy(optimizer.state_dict()), net.weight.detach().clone()
    net(x).square().sum().backward()
    optimizer.step()
    once = net.weight.detach().clone()
    optimizer.load_state_dict(saved)
    net.weight.data.copy_(weight)
    net(x).square().sum().backward()
    optimizer.step()
    assert torch.equal(once, net.weight) and optimizer.state[net.weight]["step"] == 2


def test_release_refuses_what_it_cannot_follow():
    net, optimizer = released()
    with pytest.raises(RuntimeError, match="param_group: given while gradients are released"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    net(torch.ones(1, 4)).sum().backward()
    optimizer.grad_scale = torch.tensor(2.0)
    with pytest.raises(RuntimeError, match="gradient release with a GradScaler"):
        optimizer.step()
