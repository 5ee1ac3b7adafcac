"""The step inside torch.compile: the same bits, one operator in the graph, and the operator keeps its promises."""

import pytest
import torch
import torch._dynamo.testing
from package import OPTIMIZERS, make, parameters, run, same, same_states, set_gradients

import came_optim
from came_optim import ops

SHAPES = [(7, 13), (31,), (4, 3, 3), ()]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compare(algorithm, backend, **options):
    sides = [parameters(torch.bfloat16, SHAPES) for _ in range(2)]
    eager, other = (make(algorithm, params, **options) for params in sides)
    compiled = torch.compile(lambda: other.step(), backend=backend)
    for step in range(4):
        for params, one in zip(sides, (eager.step, compiled)):
            set_gradients(params, step)
            one()
        for optimizer in (eager, other):
            if algorithm != "adafactor":
                optimizer.param_groups[0]["lr"] *= 0.7
    assert all(same(p, q) for p, q in zip(*sides))
    assert same_states(eager.state_dict(), other.state_dict())


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_compiled_step_equals_eager(algorithm):
    backend = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compare(algorithm, backend, momentum_dtype="int8", stochastic_rounding=True)
    # One graph, which changing rates do not compile again, with the operator in it.
    assert backend.frame_count == 1
    assert [node.target for node in backend.graphs[0].graph.nodes].count(torch.ops.came_optim.step.default) == 1


def test_inductor_compiles_it():
    compare("came", "inductor")


def test_what_no_operator_takes_runs_outside_the_graph():
    """A gradient that is missing, a parameter that is strided."""
    sides = [parameters(torch.float32, SHAPES) for _ in range(2)]
    for params in sides:
        params[0].data = params[0].data.t().contiguous().t()
    eager, other = (came_optim.CAME(params) for params in sides)
    compiled = torch.compile(lambda: other.step(), backend="aot_eager")
    for step in range(3):
        for params, one in zip(sides, (eager.step, compiled)):
            set_gradients(params, step)
            params[1].grad = None
            one()
    assert all(same(p, q) for p, q in zip(*sides))


def test_the_loop_steps_outside_the_graph():
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.CAME(params, fused=False)
    set_gradients(params, 0)
    torch.compile(lambda: optimizer.step(), backend="aot_eager")()
    assert int(optimizer.state[params[0]]["step"]) == 1


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_operator_keeps_its_promises(algorithm, scaled):
    params = parameters(torch.float32, SHAPES)
    optimizer = make(algorithm, params)
    run(optimizer, params, 1)
    (binding,) = optimizer._bindings
    scalars = (torch.tensor(2.0), torch.tensor(0.0)) if scaled else (None, None)
    torch.library.opcheck(
        torch.ops.came_optim.step.default,
        (
            [p.detach().clone() for p in params],
            [p.grad for p in params],
            [s.clone() for s in binding.states],
            binding.steps.clone(),
            torch.tensor([1e-3], dtype=torch.float64),
            ops.pack(binding.options),
            *scalars,
            ops.describe(algorithm, binding),
        ),
    )
