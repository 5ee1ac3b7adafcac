"""What a step may not overlook for the sake of speed: whoever watches it, other tensors behind the same objects, signs."""

import pytest
import torch
from package import assert_as_the_loop, parameters, run, same, set_gradients
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import came_optim


def among_others(p, optimizer_class=came_optim.CAME, **options):
    """An optimizer whose second of three parameters is p; the others have gradients."""
    first, last = nn.Parameter(torch.ones(4, 5)), nn.Parameter(torch.ones(6))
    for other in (first, last):
        other.grad = torch.ones_like(other)
    return optimizer_class([first, p, last], **options)


def matrix(optimizer_class=came_optim.CAME, **options):
    p = nn.Parameter(torch.ones(3, 2))
    p.grad = torch.ones(3, 2)
    return p, among_others(p, optimizer_class, **options)


def same_parameters(optimizer, twin):
    return all(same(p, q) for p, q in zip(optimizer.param_groups[0]["params"], twin.param_groups[0]["params"]))


# ---- who watches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("register", [register_optimizer_step_pre_hook, register_optimizer_step_post_hook])
def test_hooks_of_all_optimizers_run(register):
    _, optimizer = matrix()
    calls = []
    handle = register(lambda *_: calls.append(1))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert calls == [1]


def test_a_hook_may_come_and_change_the_arguments():
    _, optimizer = matrix()
    optimizer.step()
    optimizer.register_step_pre_hook(lambda self, args, named: ((self, lambda: 42), {}))
    assert optimizer.step() == 42


def test_a_profiler_sees_the_step():
    _, optimizer = matrix(came_optim.AdamW)
    optimizer.step()
    with torch.profiler.profile() as profile:
        optimizer.step()
    found = [event for event in profile.events() if event.name == "Optimizer.step#AdamW.step"]
    assert found and all(getattr(event, "is_user_annotation", True) for event in found)


def test_a_step_of_ones_own_runs_hooks_as_often_as_torch_does():
    def calls(base):
        class Own(base):
            def step(self, closure=None):
                return super().step(closure)

        matrix(base, lr=0.1)
        _, optimizer = matrix(Own, lr=0.1)
        made = []
        optimizer.register_step_post_hook(lambda *_: made.append(1))
        optimizer.step()
        return made

    assert calls(came_optim.CAME) == calls(torch.optim.SGD)


def test_schedulers_find_the_step_they_expect(recwarn):
    _, optimizer = matrix()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()
    assert not recwarn.list


# ---- version counters --------------------------------------------------------------------------------


def counts(params):
    return [p._version for p in params]


def test_every_step_raises_every_counter_by_one():
    params = parameters(torch.float32)
    optimizer = came_optim.CAME(params)
    for step in range(4):
        set_gradients(params, step)
        before = counts(params)
        optimizer.step()
        assert counts(params) == [count + 1 for count in before]


def test_only_what_was_stepped_has_its_counter_raised():
    params = parameters(torch.float32, [(3, 2), (4,), (2, 2)])
    optimizer = came_optim.CAME(params)
    run(optimizer, params, 3)
    params[1].grad = None
    before = counts(params)
    optimizer.step()
    assert [a - b for a, b in zip(counts(params), before)] == [1, 0, 1]


def test_counters_of_swapped_tensors_are_followed():
    """The same memory behind the same parameter, and another counter."""
    params = parameters(torch.float32, [(3, 2), (4,)])
    optimizer = came_optim.CAME(params)
    run(optimizer, params, 4)
    params[0].grad = None
    torch.utils.swap_tensors(params[0], nn.Parameter(params[0].data))
    for step in range(4, 7):
        before = counts(params)
        set_gradients(params, step)
        optimizer.step()
        assert counts(params) == [count + 1 for count in before]


def test_saved_tensors_are_known_to_be_old_at_any_step():
    _, optimizer = matrix()
    for _ in range(4):
        losses = [(p * p).sum() for p in optimizer.param_groups[0]["params"]]
        optimizer.step()
        for loss in losses:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


# ---- gradients ---------------------------------------------------------------------------------------


def test_gradients_may_come_and_go():
    params, others = parameters(torch.float64), parameters(torch.float64)
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others, fused=False)
    for step in range(6):
        for own, ps in ((optimizer, params), (twin, others)):
            set_gradients(ps, step)
            for k, p in enumerate(ps):
                if step > 0 and (k + step) % 3 == 0:
                    p.grad = None
            own.step()
    for p, q, origin in zip(params, others, parameters(torch.float64)):
        assert_as_the_loop(p, q, origin, 6)
        assert int(optimizer.state[p]["step"]) == int(twin.state[q]["step"])


def test_gradients_are_let_go_of():
    p, optimizer = matrix()
    for _ in range(3):
        optimizer.step()
    alive = torch.zeros(3, 2)
    p.grad = alive
    optimizer.step()
    p.grad = None
    if hasattr(alive, "_use_count"):
        assert alive._use_count() == 1


def test_a_class_may_have_gradients_of_its_own():
    class Mine(nn.Parameter):
        @property
        def grad(self):
            return self._mine

        @grad.setter
        def grad(self, value):
            self._mine = value

    p, q = Mine(torch.ones(3, 2)), nn.Parameter(torch.ones(3, 2))
    p.grad, q.grad = torch.full((3, 2), 2.0), torch.full((3, 2), 2.0)
    optimizers = [among_others(param, came_optim.SM3, lr=0.1) for param in (p, q)]
    for optimizer in optimizers:
        optimizer.step()
        optimizer.step()
    assert same_parameters(*optimizers) and not same(q, torch.ones(3, 2))


@pytest.mark.parametrize("role", ["param", "grad"])
def test_memory_off_its_alignment_is_refused(role):
    bytes_ = torch.zeros(4 * 6 + 1, dtype=torch.uint8)
    odd = torch.frombuffer(bytes_.numpy().data, dtype=torch.float32, offset=1, count=6).reshape(3, 2)
    p, optimizer = matrix()
    optimizer.step()
    if role == "grad":
        p.grad = odd
    else:
        p.data = odd
    with pytest.raises(ValueError, match=rf"{role}\.data is .*expected a multiple of 4 bytes"):
        optimizer.step()


# ---- signs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["dlpack", "python"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_negated_gradients_are_read_with_their_sign(shape, way):
    p, q = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.ones(shape))
    optimizer, twin = (among_others(param, came_optim.AdamW) for param in (p, q))
    for step in range(3):
        grad = torch.full(shape, step + 1.0)
        p.grad, q.grad = torch._neg_view(-grad), grad
        assert p.grad.is_neg()
        optimizer.step()
        twin.step()
    assert same_parameters(optimizer, twin)


def test_imaginary_parts_of_conjugates_are_read_with_their_sign():
    """As autograd leaves them for one number: after steps with plain gradients, too."""
    p, q = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
    optimizer, twin = (among_others(param, came_optim.AdamW) for param in (p, q))
    for imaginary in (False, False, True, True):
        value = torch.complex(torch.tensor(1.0), torch.tensor(-2.0)).conj().imag
        assert value.is_neg()
        p.grad, q.grad = value if imaginary else value.resolve_neg(), torch.tensor(2.0)
        optimizer.step()
        twin.step()
    assert same_parameters(optimizer, twin)


def test_one_matrix_of_many_may_turn_negated():
    shapes = [(3, 2)] * 100
    params, others = parameters(torch.float32, shapes), parameters(torch.float32, shapes)
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others)
    for step in range(4):
        set_gradients(params, step)
        set_gradients(others, step)
        if step > 1:
            params[57].grad = torch._neg_view(-others[57].grad)
            assert params[57].grad.is_neg()
        optimizer.step()
        twin.step()
    assert all(same(p, q) for p, q in zip(params, others))


def test_negated_parameters_are_refused():
    with pytest.raises(TypeError, match=r"parameter 1 has the neg bit.*resolve_neg\(\)"):
        among_others(nn.Parameter(torch._neg_view(torch.ones(3, 2))))
