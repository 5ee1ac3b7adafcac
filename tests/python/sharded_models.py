"""A model whose sizes divide nothing, trained on ranks and in one process."""

import torch
from package import make
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORDS, WIDTH, INNER = 11, 6, 13


class Model(nn.Module):
    """An embedding, a convolution, two linear layers, a scalar, and a layer that never has a gradient."""

    def __init__(self, inner=INNER):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.convolution = nn.Conv2d(1, 5, 3, padding=1)
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)
        self.scale = nn.Parameter(torch.ones(1))
        self.unused = nn.Linear(4, 3)

    def forward(self, words):
        x = self.embedding(words)  # batch, length, width
        x = x + self.convolution(x[:, None]).mean(1)
        x = x + self.down(torch.tanh(self.up(x)))
        return self.scale * x


def model(inner=INNER):
    torch.manual_seed(0)
    return Model(inner).double()


def batch(step, size=12):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(WORDS, (size, 5), generator=generator), torch.randn(size, 5, WIDTH, generator=generator, dtype=torch.float64)


def loss(net, words, targets):
    return (net(words) - targets).square().sum() / targets.numel()


def on_mesh(net, kind, mesh_shape):
    """The model under FSDP2 ("fsdp"), hybrid sharding ("hsdp"), tensor parallelism ("tp"), or both ("fsdp_tp"); and this rank's place
    among those that have other data: (number, of how many)."""
    names = {"fsdp": ("data",), "hsdp": ("replica", "data"), "tp": ("model",), "fsdp_tp": ("data", "model")}[kind]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    if "model" in names:
        parallel = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
        parallelize_module(net, mesh["model"], parallel)
    if "data" in names:
        data = mesh if kind == "hsdp" else mesh["data"]
        for module in (net.up, net.convolution):
            fully_shard(module, mesh=data)
        fully_shard(net, mesh=data)
    number, of = 0, 1
    for name in names:
        if name != "model":
            number, of = number * mesh[name].size() + mesh[name].get_local_rank(), of * mesh[name].size()
    return net, (number, of)


def train(net, optimizer, steps, place=(0, 1), first=0):
    """Each place has its part of the batch; gradients are averages over places."""
    for step in range(first, first + steps):
        words, targets = (part.chunk(place[1])[place[0]] for part in batch(step))
        optimizer.zero_grad()
        loss(net, words, targets).backward()
        optimizer.step()


def weights(net):
    return {name: (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for name, p in net.named_parameters()}


def apart(ours, theirs, origin):
    """The largest difference of a parameter by how far it has moved."""
    worst = 0.0
    for name, expected in theirs.items():
        moved = (expected - origin[name]).abs().max().item()
        difference = (ours[name] - expected).abs().max().item()
        worst = max(worst, difference / moved if moved else difference)
    return worst


def beside_one_process(kind, mesh_shape, algorithm, options, steps=25):
    """How far a model on a mesh is from one process after some steps; nothing of the whole one is seen before."""
    plain = model()
    origin = weights(plain)
    train(plain, make(algorithm, plain.parameters(), **options), steps)
    net, place = on_mesh(model(), kind, mesh_shape)
    optimizer = make(algorithm, net.parameters(), **options)
    train(net, optimizer, steps, place)
    assert all(isinstance(p, DTensor) for p in net.up.parameters())
    return apart(weights(net), weights(plain), origin)
