"""Two real processes: data parallelism and FSDP1 step as one process does, or are refused; release is refused."""

import os
import socket

import came_optim
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

FACTORED = (came_optim.CAME, came_optim.Adafactor, came_optim.LAMB, came_optim.SM3)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).double()


def train(net, optimizer, rank=None, world=2, steps=5):
    """One half of each batch on a rank, or all of it."""
    for step in range(steps):
        x = torch.randn(2 * world, 8, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        mine = x if rank is None else x.chunk(world)[rank]
        optimizer.zero_grad()
        net(mine).square().mean().backward()
        optimizer.step()


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def assert_as_one_process(trained, cls, **options):
    """Gradients are averaged over ranks in another order than over a batch: sums of few numbers, apart by a few units in the last
    place, of which five steps make no more than some hundred of the displacement."""
    whole = model()
    start = weights(whole)
    train(whole, cls(whole.parameters(), **options))
    expected = weights(whole)
    assert (trained - expected).abs().max() <= 2.0**-52 * (256 * (expected - start).abs().max() + 5 * expected.abs().max())


def data_parallel(rank):
    net = DistributedDataParallel(model())
    train(net, came_optim.CAME(net.parameters(), lr=1e-2), rank)
    both = [torch.empty_like(weights(net)) for _ in range(2)]
    dist.all_gather(both, weights(net))
    assert torch.equal(*both)
    assert_as_one_process(weights(net), came_optim.CAME, lr=1e-2)
    with pytest.raises(RuntimeError, match="model: trained by 2 processes, expected one"):
        came_optim.gradient_release(net, came_optim.CAME(net.parameters()))


def flat(rank, use_orig_params):
    net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    for cls in FACTORED:
        with pytest.raises(RuntimeError, match="flat piece of several .*FSDP1.*use data parallelism"):
            cls(net.parameters())
    train(net, came_optim.AdamW(net.parameters(), lr=1e-2), rank)
    with FullyShardedDataParallel.summon_full_params(net):
        assert_as_one_process(weights(net), came_optim.AdamW, lr=1e-2)


def work(rank, port, what, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    what(rank, *arguments)
    dist.barrier()  # neither leaves while the other talks to it
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("what", "arguments"), [(data_parallel, ()), (flat, (False,)), (flat, (True,))], ids=str
)
def test_two_processes(what, arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (port, what, arguments), nprocs=2)
