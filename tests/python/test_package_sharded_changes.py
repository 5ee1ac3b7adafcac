"""What programs do to an optimizer of sharded parameters between steps: each beside one process that does the same."""

import io
import pickle
import time

import pytest
import torch
import torch.distributed as dist
from package import make
from ranks import ranks
from sharded import S0, S1, displacement, parameters, set_gradients
from sharded_models import apart, batch, loss, model, on_mesh, train, weights
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from came_optim.optimizers import BY_NAME

STEPS = 20

# Sums in f64 are added up in another order, apart by some 1e-16; so few steps do not make 1e-10 of the displacement of it.
TOLERANCE = 1e-10


# ---- programs, each run on ranks and whole: (model, place) -> trained ---------------------------------


def halfway(net, place, change):
    optimizer = make("came", net.parameters())
    train(net, optimizer, 10, place)
    change(net, optimizer)
    train(net, optimizer, STEPS - 10, place, first=10)


def options(net, place):
    def change(net, optimizer):
        optimizer.param_groups[0].update(lr=3e-3, weight_decay=0.1, cautious=True, max_grad_norm=0.5)

    halfway(net, place, change)


def memory(net, place):
    """Parameters and state move to other memory."""

    def change(net, optimizer):
        for param in net.parameters():
            param.data = param.data.clone()
        for slot in optimizer.state.values():
            slot.update({name: value.clone() for name, value in slot.items()})

    halfway(net, place, change)


def one_rank(net, place):
    """State moves on one rank only, and another way of holding it is found there."""
    before = {}

    def change(net, optimizer):
        slot = optimizer.state[net.up.weight]
        momentum = slot["exp_avg"]
        if not isinstance(momentum, DTensor):
            return
        copy, whole = momentum.clone(), momentum.redistribute(placements=[Replicate()])
        if dist.get_rank() == 0:
            slot["exp_avg"] = copy
        before.update(same=torch.equal(whole.to_local(), momentum.full_tensor()))

    optimizer = make("came", net.parameters())
    train(net, optimizer, 5, place)
    optimizer.param_groups[0]["weight_decay"] = 0.1  # which needs no other plan
    train(net, optimizer, 5, place, first=5)
    change(net, optimizer)
    train(net, optimizer, STEPS - 10, place, first=10)
    assert before in ({}, {"same": True})


def replicated(net, place):
    """State is replicated on all ranks, as programs do that gather it."""

    def change(net, optimizer):
        slot = optimizer.state[net.up.weight]
        if isinstance(slot["exp_avg"], DTensor):
            slot["exp_avg"] = slot["exp_avg"].redistribute(placements=[Replicate()])

    halfway(net, place, change)


def unfrozen(net, place):
    net.up.requires_grad_(False)
    halfway(net, place, lambda net, optimizer: net.up.requires_grad_(True))


def one_more_group(net, place):
    optimizer = make("came", [p for name, p in net.named_parameters() if "up" not in name])
    train(net, optimizer, 10, place)
    net.up.zero_grad()
    optimizer.add_param_group({"params": list(net.up.parameters()), "lr": 3e-3, "weight_decay": 0.1})
    train(net, optimizer, STEPS - 10, place, first=10)


def interleaved(net, place):
    """Two optimizers, of which one steps twice as often."""
    one, two = make("came", [*net.up.parameters(), net.scale]), make("lamb", [*net.down.parameters(), *net.convolution.parameters()])
    for step in range(STEPS):
        words, targets = (part.chunk(place[1])[place[0]] for part in batch(step))
        net.zero_grad()
        loss(net, words, targets).backward()
        if step % 2 == 0:
            one.step()
        two.step()


def saved(net, place):
    optimizer = make("came", net.parameters())
    train(net, optimizer, 10, place)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = make("came", net.parameters(), lr=1.0)
    other.load_state_dict(torch.load(file, weights_only=False))
    train(net, other, STEPS - 10, place, first=10)


def tensor_rate(net, place):
    train(net, make("came", net.parameters(), lr=torch.tensor(1e-3, dtype=torch.float64)), STEPS, place)


def without_gradients(net, place):
    """Steps before there is any gradient do nothing."""
    optimizer = make("came", net.parameters())
    for _ in range(2):
        optimizer.step()
    train(net, optimizer, STEPS, place)


def both(program, kind, mesh):
    plain = model()
    origin = weights(plain)
    program(plain, (0, 1))
    # FSDP keeps which parameters want gradients when it wraps them, so all do then.
    net, place = on_mesh(model(), kind, mesh)
    program(net, place)
    return apart(weights(net), weights(plain), origin)


PROGRAMS = [options, memory, one_rank, replicated, unfrozen, one_more_group, interleaved, saved, tensor_rate, without_gradients]


def run(name, kind, mesh):
    return both(globals()[name], kind, mesh)


@pytest.mark.parametrize("program", [program.__name__ for program in PROGRAMS])
def test_changes_between_steps(program):
    assert max(ranks(2)(run, program, "fsdp", (2,))) <= TOLERANCE


@pytest.mark.parametrize(("kind", "mesh"), [("fsdp", (1,)), ("fsdp_tp", (1, 1)), ("hsdp", (1, 1))], ids=str)
def test_one_process_with_a_mesh(kind, mesh):
    assert ranks(1)(run, "options", kind, mesh)[0] <= TOLERANCE


@pytest.mark.parametrize(("kind", "mesh"), [("fsdp_tp", (1, 2)), ("fsdp_tp", (2, 1)), ("hsdp", (2, 1)), ("hsdp", (1, 2))], ids=str)
def test_meshes_with_a_dimension_of_one(kind, mesh):
    assert max(ranks(2)(run, "options", kind, mesh)) <= TOLERANCE


# ---- tensors -----------------------------------------------------------------------------------------


def pickled():
    """The copy has parameters of its own, which step as the first ones do."""
    net, place = on_mesh(model(), "fsdp", (2,))
    optimizer = make("came", net.parameters())
    train(net, optimizer, 3, place)
    other = pickle.loads(pickle.dumps(optimizer))
    ours, theirs = (o.param_groups[0]["params"] for o in (optimizer, other))
    for a, b in zip(ours, theirs):
        b.grad = None if a.grad is None else a.grad.clone()
    before = [p.to_local().clone() for p in ours]
    other.step()
    assert all(map(torch.equal, before, (p.to_local() for p in ours)))
    optimizer.step()
    return all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(ours, theirs))


def test_a_pickled_optimizer_goes_on_with_the_same_bits():
    assert ranks(2)(pickled) == [True, True]


SMALL = [((0, 5), [S0]), ((1, 5), [S0]), ((1,), [S0]), ((1, 1, 1), [S0]), ((5, 0), [S0])]


def small(algorithm, tensors, dtype, arguments):
    """Whether sharded tensors end with the bits of whole ones, and how far they are apart."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plain = [(shape, None) for shape, _ in tensors]
    ours, theirs = parameters(tensors, mesh, dtype), parameters(plain, None, dtype)
    optimizers = make(algorithm, ours, **arguments), make(algorithm, theirs, **arguments)
    for step in range(10):
        set_gradients(ours, tensors, mesh, step)
        set_gradients(theirs, plain, None, step)
        for optimizer in optimizers:
            optimizer.step()
    return all(torch.equal(p.full_tensor(), q) for p, q in zip(ours, theirs)), displacement(ours, theirs)


@pytest.mark.parametrize("algorithm", BY_NAME)
def test_ranks_that_hold_nothing(algorithm):
    assert max(far for _, far in ranks(4)(small, algorithm, SMALL, torch.float64, {"max_grad_norm": 0.1})) <= TOLERANCE


def test_no_rank_holds_anything():
    assert [same for same, _ in ranks(2)(small, "came", SMALL[:1], torch.float64, {})] == [True, True]


@pytest.mark.parametrize("placement", [S0, S1], ids=str)
@pytest.mark.parametrize("algorithm", ["adamw", "came", "adafactor"])
def test_stochastic_rounding_draws_the_same_numbers(algorithm, placement):
    """Sums in f64 are apart by 1e-16, which no rounding to bf16 with random bits sees but for one in billions."""
    tensors = [((70, 66), [placement]), ((13, 11), [placement]), ((33,), [S0]), ((4, 6, 8), [S0])]
    assert all(same for same, _ in ranks(2)(small, algorithm, tensors, torch.bfloat16, {"stochastic_rounding": True}))


# ---- changes on one rank -----------------------------------------------------------------------------


def alone(algorithm, what, scaled):
    """Changes something on one rank that needs another plan; what each rank says, and whether it said so at once."""
    net, place = on_mesh(model(), "fsdp", (2,))
    optimizer = make(algorithm, net.parameters())
    if scaled:
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0), torch.tensor(0.0)
    train(net, optimizer, 3, place)
    if dist.get_rank() == 0:
        if what == "option":
            optimizer.param_groups[0]["max_grad_norm"] = 0.5
        if what == "clear":
            optimizer.state.clear()
        if what == "entry":
            del optimizer.state[net.up.weight]["step"]
        if what == "group":
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2).double())]})
    begin = time.monotonic()
    try:
        train(net, optimizer, 1, place, first=3)
    except (RuntimeError, ValueError) as error:
        return str(error), time.monotonic() - begin < 10
    return "nothing", False


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("what", ["option", "clear", "group", "entry"])
@pytest.mark.parametrize("algorithm", ["came", "adamw"])
def test_a_change_on_one_rank_is_an_error_on_all(algorithm, what, scaled):
    (first, soon), (second, at_once) = ranks(2)(alone, algorithm, what, scaled)
    assert soon and at_once
    assert "some ranks have changed" in second
    assert ("has no 'step'" if what == "entry" else "some ranks have changed") in first
