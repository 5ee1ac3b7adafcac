"""Training on several processes with whole parameters: data parallelism, FSDP1, ZeRO and pipelines step as one process does, or are refused."""

from copy import deepcopy

import came_optim
import pytest
import torch
import torch.distributed as dist
from package import make, same
from ranks import RankError, ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from came_optim.optimizers import BY_NAME

FACTORED = (came_optim.CAME, came_optim.Adafactor, came_optim.LAMB, came_optim.SM3)
STEPS = 10

# Gradients are averaged over ranks in another order than over a batch, which is apart by some 1e-16.  Ten steps do not make 1e-10 of it.
TOLERANCE = 1e-10


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 5), nn.GELU(), nn.Linear(5, 7)).double()


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 8, generator=generator, dtype=torch.float64), torch.randn(8, 7, generator=generator, dtype=torch.float64)


def train(net, optimizer, place=(0, 1), steps=STEPS, first=0):
    """With this rank's part of each batch."""
    for step in range(first, first + steps):
        x, y = (part.chunk(place[1])[place[0]] for part in batch(step))
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return net


def weights(net):
    return [(p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for p in net.parameters()]


def apart(ours, theirs):
    """The largest difference of a parameter by how far it has moved since `model()`."""
    return max(((a - b).abs().max() / (b - o).abs().max()).item() for a, b, o in zip(ours, theirs, weights(model())))


def place():
    return dist.get_rank(), dist.get_world_size()


def one_process(algorithm, steps=STEPS, **options):
    net = model()
    return weights(train(net, make(algorithm, net.parameters(), **options), steps=steps))


# ---- data parallelism --------------------------------------------------------------------------------


def data_parallel(algorithm):
    expected, made = one_process(algorithm), []
    for views in (False, True):
        net = DistributedDataParallel(model(), gradient_as_bucket_view=views)
        made.append(weights(train(net, make(algorithm, net.parameters()), place())))
    assert all(map(same, *made))
    both = [None, None]
    dist.all_gather_object(both, made[0])
    assert all(map(same, *both))
    return apart(made[0], expected)


@pytest.mark.parametrize("algorithm", BY_NAME)
def test_data_parallelism_is_one_process(algorithm):
    """Gradients that are views of buckets give the same bits as others, and ranks have the same bits."""
    assert max(ranks(2)(data_parallel, algorithm)) <= TOLERANCE


def release():
    net = DistributedDataParallel(model())
    came_optim.gradient_release(net, came_optim.CAME(net.parameters()))


def test_gradient_release_is_refused():
    with pytest.raises(RankError) as raised:
        ranks(2)(release)
    for kind, message in raised.value.errors.values():
        assert kind == "RuntimeError" and message.startswith("model: trained by 2 processes, expected one")
    assert len(raised.value.errors) == 2


def flat(use_orig_params):
    net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    for cls in FACTORED:
        with pytest.raises(RuntimeError, match="flat piece of several .*FSDP1.*use data parallelism"):
            cls(net.parameters())
    train(net, came_optim.AdamW(net.parameters(), lr=1e-3), place())
    with FullyShardedDataParallel.summon_full_params(net):
        return apart(weights(net), one_process("adamw"))


@pytest.mark.parametrize("use_orig_params", [False, True])
def test_fsdp1_is_refused_but_for_elementwise_optimizers(use_orig_params):
    assert max(ranks(2)(flat, use_orig_params)) <= TOLERANCE


# ---- ZeRO --------------------------------------------------------------------------------------------


def zero(algorithm, options):
    """Trains, consolidates on rank 0, and goes on in one process there and with ZeRO again."""
    net = DistributedDataParallel(model())
    cls, given = BY_NAME[algorithm], {"lr": 1e-3, **options}
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=cls, **given)
    train(net, optimizer, place())
    count = sum(len(slot) > 0 for slot in optimizer.optim.state.values())
    whole = model()
    plain = cls(whole.parameters(), **given)
    train(whole, plain)
    found = [apart(weights(net), weights(whole))]
    optimizer.consolidate_state_dict(to=0)
    saved = [optimizer.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(saved)
    again, alone = DistributedDataParallel(model()), model()
    for other in (again.module, alone):
        other.load_state_dict(net.module.state_dict())
    single = cls(alone.parameters(), **given)
    single.load_state_dict(deepcopy(saved[0]))  # as torch's, it keeps the tensors
    resumed = ZeroRedundancyOptimizer(again.parameters(), optimizer_class=cls, **given)
    resumed.load_state_dict(saved[0])  # which takes what it does not need out of the dict
    with pytest.raises(TypeError, match="the state of parameter . is None in the checkpoint, expected a dict"):
        single.load_state_dict(saved[0])
    train(whole, plain, first=STEPS)
    found.append(apart(weights(train(again, resumed, place(), first=STEPS)), weights(whole)))
    found.append(apart(weights(train(alone, single, first=STEPS)), weights(whole)))
    return count, max(found)


@pytest.mark.parametrize("algorithm", BY_NAME)
def test_zero_holds_a_part_of_the_state_and_consolidates_it(algorithm):
    found = ranks(2)(zero, algorithm, {"beta1": 0.9} if algorithm == "adafactor" else {})
    assert sum(count for count, _ in found) == 6 and all(count for count, _ in found)
    assert max(far for _, far in found) <= TOLERANCE


def zero_views():
    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=came_optim.CAME, parameters_as_bucket_view=True, lr=1e-3)
    train(net, optimizer, place())
    with pytest.raises(ValueError, match="CAME"):
        ZeroRedundancyOptimizer(net.parameters(), optimizer_class=came_optim.CAME, overlap_with_ddp=True, lr=1e-3)
    return apart(weights(net), one_process("came"))


def test_zero_with_parameters_in_buckets_and_no_overlap():
    assert max(ranks(2)(zero_views)) <= TOLERANCE


# ---- pipelines ---------------------------------------------------------------------------------------


def stages():
    """The layers of each of two stages."""
    net = model()
    return net[:2], net[2:]


def pipeline(data):
    """Two stages, `data` ranks each, every stage with an optimizer and a plan of its own."""
    mesh = init_device_mesh("cpu", (2, data), mesh_dim_names=("stage", "data"))
    number, index = mesh["stage"].get_local_rank(), mesh["data"].get_local_rank()
    part = stages()[number]
    if data > 1:
        fully_shard(part, mesh=mesh["data"])
    optimizer = came_optim.CAME(part.parameters(), lr=1e-3)
    stage = PipelineStage(part, number, 2, torch.device("cpu"), group=mesh.get_group("stage"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    for step in range(STEPS):
        x, y = (whole.chunk(data)[index] for whole in batch(step))
        optimizer.zero_grad()
        schedule.step(*([x] if number == 0 else []), **({} if number == 0 else {"target": y}))
        optimizer.step()
    mine, before = weights(part), weights(stages()[number])
    expected = one_process("came")
    expected = expected[:2] if number == 0 else expected[2:]
    return max(((a - b).abs().max() / (b - o).abs().max()).item() for a, b, o in zip(mine, expected, before))


@pytest.mark.parametrize("data", [1, 2])
def test_pipeline_stages_have_optimizers_of_their_own(data):
    assert max(ranks(2 * data)(pipeline, data)) <= TOLERANCE
