"""Ranks that do not agree, placements that cannot be stepped, a rank that dies: an error on every rank that says why, and no hang."""

import os
import time

import came_optim
import pytest
import torch
import torch.distributed as dist
from ranks import Pool, RankError, ranks
from sharded import R, S0, S1, parameters, place, set_gradients, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

TENSORS = [((13, 11), [S0]), ((6, 5), [S0]), ((7,), [S0])]


def raised(step):
    """What a rank says of an error; None if it steps."""
    try:
        step()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def messages(world, function, *arguments):
    """What each rank raises; all of them do."""
    found = ranks(world)(function, *arguments)
    assert None not in found, found
    return found


def disagree(how):
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    tensors, options = list(TENSORS), {}
    odd = rank == dist.get_world_size() - 1
    if how == "order" and odd:
        tensors.reverse()
    if how == "shape" and odd:
        tensors[1] = ((6, 4), [S0])
    if how == "number" and odd:
        tensors.pop()
    if how == "placement" and odd:
        tensors[0] = ((13, 11), [S1])
    if how == "dtype" and odd:
        options["momentum_dtype"] = "bf16"
    if how == "beta" and odd:
        options["betas"] = (0.9, 0.99, 0.9999)
    if how == "lr" and odd:
        options["lr"] = 2e-3
    params = parameters(tensors, mesh)
    set_gradients(params, tensors, mesh, 0)
    if how == "gradient" and odd:
        params[2].grad = None
    if how == "frozen" and odd:
        params[0].grad = None
        params[0].requires_grad_(False)
    before = [p.to_local().clone() for p in params]
    optimizer = came_optim.CAME(params, **options)
    message = raised(optimizer.step)
    assert all(torch.equal(p.to_local(), b) for p, b in zip(params, before)) and not optimizer.state
    return message


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("order", "parameter 0: shape [13, 11]"),
        ("shape", "parameter 1: shape [6, 5], float64, gradient float64, (Shard(0)) on a mesh of [3]"),
        ("number", "only rank 0 has parameter 2"),
        ("placement", "(Shard(1))"),
        ("dtype", "momentum_dtype of param group 0: 0 on rank 0, 3 on rank 2"),
        ("beta", "beta2 of param group 0: 0.999 on rank 0, 0.99 on rank 2"),
        ("lr", "lr of param group 0: 0.001 on rank 0, 0.002 on rank 2"),
        ("gradient", "the gradient of parameter 2: there on rank 0, none on rank 2"),
        ("frozen", "only rank 0 has parameter 0"),
    ],
)
def test_ranks_that_disagree_at_the_first_step(how, said):
    for message in messages(3, disagree, how):
        assert "ranks disagree" in message and said in message and "expected the same parameters" in message, message


def lose_a_gradient(algorithm):
    from package import make

    mesh = init_device_mesh("cpu", (2,))
    params = parameters(TENSORS, mesh)
    optimizer = make(algorithm, params)
    for step in range(3):
        set_gradients(params, TENSORS, mesh, step)
        optimizer.step()
    set_gradients(params, TENSORS, mesh, 3)
    if dist.get_rank() == 1:
        params[1].grad = None
    return raised(optimizer.step)


@pytest.mark.parametrize("algorithm", ["came", "adafactor", "adam", "adamw", "lamb", "sm3"])
def test_a_gradient_that_is_missing_on_one_rank_later(algorithm):
    for message in messages(2, lose_a_gradient, algorithm):
        assert "1" in message and "a gradient on some ranks and none on others" in message, message


def partial_gradient():
    """A gradient that is a sum over ranks, or is placed in another way, counts as what it means."""
    mesh = init_device_mesh("cpu", (2,))
    stepped = []
    for placements in ([S0], [Partial()], [S1], [R]):
        params = parameters(TENSORS[:1], mesh)
        optimizer = came_optim.CAME(params, lr=1e-2)
        for step in range(3):
            set_gradients(params, TENSORS[:1], mesh, step)
            whole = params[0].grad.full_tensor()
            if placements == [Partial()]:
                share = 0.25 if dist.get_rank() == 0 else 0.75
                params[0].grad = DTensor.from_local(share * whole, mesh, placements)
            else:
                params[0].grad = place(whole, mesh, placements)
            optimizer.step()
        stepped.append(params[0].full_tensor())
    return max((other - stepped[0]).abs().max().item() for other in stepped)


def test_partial_gradients_are_reduced_first():
    # Two shares of a number add up to it but for a rounding: a few units of the parameters' last place.
    assert max(ranks(2)(partial_gradient)) <= 2.0**-48


def refused(what):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    options = {}
    if what == "partial":
        param = DTensor.from_local(torch.ones(4, 4, dtype=torch.float64), mesh, [Partial()])
    elif what == "convolution":
        param = place(start((5, 4, 3, 3), 0), mesh, [S1])
    elif what == "columns in pieces":
        param = place(start((5, 4, 3, 3), 0), mesh, [Shard(3)])
        options["view"] = "fold"
    elif what == "code block":
        param, options["momentum_dtype"] = place(start((4, 300), 0), mesh, [S1]), "int8"
    elif what == "loop":
        param, options["foreach"] = place(start((4, 4), 0), mesh, [S0]), True
    param = nn.Parameter(param)
    if what != "partial":
        param.grad = torch.ones_like(param)
    return raised(lambda: came_optim.CAME([param], **options).step())


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("partial", ["parameter 0 is a DTensor with placements (Partial(sum))", "expected Shard or Replicate", "redistribute()"]),
        ("convolution", ["exp_avg_sq_col of parameter 0", "expected a parameter whose split dimension the ranks divide, or a split of dimension 0"]),
        ("columns in pieces", ["no range of rows and columns of its view (fold)", "expected a split of dimension 0 or another view"]),
        ("code block", ["shard of columns [", "cuts a block"]),
        ("loop", ["foreach", "does not support DTensors", "parameter 0"]),
    ],
)
def test_what_cannot_be_stepped_is_refused_on_all_ranks(what, said):
    for message in messages(3, refused, what):
        assert all(part in message for part in said) or "cannot step" in message, message


def die():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    params = parameters(TENSORS, mesh)
    optimizer = came_optim.CAME(params)
    set_gradients(params, TENSORS, mesh, 0)
    optimizer.step()
    if dist.get_rank() == 1:
        os._exit(1)
    begin = time.monotonic()
    message = raised(optimizer.step)
    return message, time.monotonic() - begin


def test_a_rank_that_dies_is_an_error_within_torchs_time_limit():
    pool = Pool(3, seconds=5)
    with pytest.raises(RankError) as found:
        pool(die, timeout=60)
    assert list(found.value.errors) == [1], found.value
