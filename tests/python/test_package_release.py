"""came_optim.gradient_release: the same steps during backward, and never two gradients at once.  came_optim.estimate: what was said is so."""

import pytest
import torch
from package import OPTIMIZERS, Block, make, parameters, run, same, seeded
from torch import nn

import came_optim


def train(model, optimizer, steps, scheduler=None):
    for step in range(steps):
        optimizer.zero_grad()
        model.loss(step).backward()
        optimizer.step()
        if scheduler:
            scheduler.step()


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_released_steps_change_no_bit(algorithm):
    models = [seeded(Block).to(torch.bfloat16) for _ in range(2)]
    optimizers = [make(algorithm, model.parameters(), stochastic_rounding=True) for model in models]
    release = came_optim.gradient_release(models[1], optimizers[1])
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, 4)
    assert all(p.grad is None for p in models[1].parameters())
    assert all(same(p, q) for p, q in zip(*(m.parameters() for m in models)))
    release.remove()
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, 2)
    assert all(same(p, q) for p, q in zip(*(m.parameters() for m in models)))


def test_groups_and_schedulers_are_followed():
    models = [seeded(Block) for _ in range(2)]
    for k, model in enumerate(models):
        params = list(model.parameters())
        optimizer = came_optim.CAME([{"params": params[:3], "lr": 1e-2}, {"params": params[3:], "weight_decay": 0.1}])
        if k:
            came_optim.gradient_release(model, optimizer)
        train(model, optimizer, 4, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    assert all(same(p, q) for p, q in zip(*(m.parameters() for m in models)))


def test_checkpoints_resume_released_runs():
    model, other = seeded(Block), seeded(Block)
    straight, first = (came_optim.CAME(m.parameters()) for m in (model, other))
    train(model, straight, 4)
    came_optim.gradient_release(other, first)
    train(other, first, 2)
    first.load_state_dict(first.state_dict())
    for step in (2, 3):
        other.loss(step).backward()
        first.step()
    assert all(same(p, q) for p, q in zip(model.parameters(), other.parameters()))


def test_at_most_one_gradient_lives():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)))
    optimizer = came_optim.CAME(model.parameters())
    came_optim.gradient_release(model, optimizer)
    alive = []
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda _: alive.append(sum(q.grad is not None for q in model.parameters())))
    model(torch.ones(2, 8)).sum().backward()
    assert len(alive) == 12 and max(alive) == 0  # this hook runs after the release's


def test_accumulation_is_refused():
    model = nn.Linear(3, 2)
    optimizer = came_optim.CAME(model.named_parameters())
    came_optim.gradient_release(model, optimizer)
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="parameter . '(weight|bias)' has its second gradient.*cannot be accumulated"):
        model(torch.ones(1, 3)).sum().backward()


def test_several_processes_are_refused(monkeypatch):
    """Hooks of DistributedDataParallel average gradients after ours would have stepped."""
    model = nn.Linear(3, 2)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RuntimeError, match="model: trained by 2 processes, expected one"):
        came_optim.gradient_release(model, came_optim.CAME(model.parameters()))


def test_what_cannot_be_released_is_refused():
    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="max_grad_norm: is set, expected 0"):
        came_optim.gradient_release(model, came_optim.CAME(model.parameters(), max_grad_norm=1.0))
    with pytest.raises(TypeError, match="optimizer: SGD given, expected one of came_optim's"):
        came_optim.gradient_release(model, torch.optim.SGD(model.parameters()))
    with pytest.raises(ValueError, match="optimizer: has no parameter 'bias' of the model"):
        came_optim.gradient_release(model, came_optim.CAME([model.weight]))
    optimizer = came_optim.CAME(model.parameters())
    came_optim.gradient_release(model, optimizer)
    with pytest.raises(RuntimeError, match="released already"):
        came_optim.gradient_release(model, optimizer)


@pytest.mark.parametrize("options", [{}, {"momentum_dtype": "int8"}], ids=str)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_estimate_is_what_is_allocated(algorithm, options):
    model = seeded(Block).to(torch.bfloat16)
    optimizer = make(algorithm, model.parameters(), **options)
    (row,) = came_optim.estimate(model, optimizer)
    run(optimizer, list(model.parameters()), 1)
    (binding,) = optimizer._bindings
    state = sum(s.nbytes for s in binding.states)
    workspace = sum(b.nbytes for b in binding.buffers)
    assert row.state == state and row.workspace == workspace and row.peak == state + workspace
    assert row.gradients == row.parameters == sum(p.nbytes for p in model.parameters())


def test_estimate_takes_classes_names_and_shapes():
    shapes = [(64, 32), (32,)]
    of_class, of_name, of_shapes = (
        came_optim.estimate(parameters(torch.float32, shapes), came_optim.CAME),
        came_optim.estimate(parameters(torch.float32, shapes), "came"),
        came_optim.estimate(iter(shapes), ["came"]),
    )
    assert of_class == of_name == of_shapes
    assert [row.optimizer for row in came_optim.estimate(shapes)] == list(OPTIMIZERS)
    # The class keeps no momentum unless told.
    with_momentum, without = came_optim.estimate(shapes, [came_optim.Adafactor], beta1=0.9)[0], came_optim.estimate(shapes, came_optim.Adafactor)[0]
    assert with_momentum.state - without.state == 4 * (64 * 32 + 32)
    assert came_optim.estimate(nn.Sequential(nn.Linear(64, 32)), came_optim.CAME) == came_optim.estimate([(32, 64), (32,)], came_optim.CAME)
    assert came_optim.estimate(shapes, "came", momentum_dtype=None) == of_name
    with torch.device("meta"):
        assert came_optim.estimate(nn.Linear(10**6, 10**6), "came", device="cpu")[0].state > 4 * 10**12


def test_estimate_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="optimizer: 'lion' given, expected one of came"):
        came_optim.estimate([(2, 2)], "lion")
    with pytest.raises(TypeError, match="betaz: given, but came has no such argument"):
        came_optim.estimate([(2, 2)], came_optim.CAME, betaz=1)
    with pytest.raises(TypeError, match="model_or_shapes\\[0\\]"):
        came_optim.estimate([(2, "x")], "came")
