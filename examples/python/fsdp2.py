"""FSDP2 with tensor parallelism: a small GPT learns Python's documentation on 4 processes, and goes on with 2.

    .venv/bin/torchrun --nproc-per-node 4 examples/python/fsdp2.py --steps 60 --save checkpoint
    .venv/bin/torchrun --nproc-per-node 2 examples/python/fsdp2.py --steps 90 --resume checkpoint

The optimizer is made and used as in one process.  Each rank holds the state of its part of the parameters.
"""

import argparse
import os
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

import came_optim

WIDTH, HEAD, LAYERS, LENGTH, BATCH = 64, 16, 2, 32, 16
TENSOR_PARALLEL = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel(),
                   "up": ColwiseParallel(), "down": RowwiseParallel()}  # fmt: skip


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm_1(x)
        q, k, v = (heads(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for heads in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128, bias=False)

    def forward(self, words):
        x = self.words(words) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=60, help="of both runs together, if it resumes")
parser.add_argument("--resume", metavar="DIR", help="goes on from this checkpoint, written by any number of processes")
parser.add_argument("--save", metavar="DIR", help="writes a checkpoint at the end")
parser.add_argument("--dtype", default="float32", help="of parameters; float64 to compare runs")
options = parser.parse_args()

cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if cuda else "gloo")
world = dist.get_world_size()
columns = 2 if world % 4 == 0 else 1  # 4: 2 x 2, 2: 2 x 1, 1: 1 x 1
mesh = dist.init_device_mesh("cuda" if cuda else "cpu", (world // columns, columns), mesh_dim_names=("data", "tensor"))

torch.manual_seed(0)  # the same start on all ranks
model = GPT().to(mesh.device_type, getattr(torch, options.dtype))
for block in model.blocks:
    parallelize_module(block, mesh["tensor"], TENSOR_PARALLEL)
    fully_shard(block, mesh=mesh["data"])
fully_shard(model, mesh=mesh["data"])
optimizer = came_optim.CAME(model.parameters(), lr=1e-3, max_grad_norm=1.0)  # the norm of the whole model

begin = 0
if options.resume:
    weights, state = get_state_dict(model, optimizer)
    saved = {"model": weights, "optimizer": state, "step": 0}
    dcp.load(saved, checkpoint_id=options.resume)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    begin = saved["step"]

text = torch.tensor(list("\n".join(topics.values()).encode("ascii", "replace")))
for step in range(begin, options.steps):
    # A batch depends on the step alone; each row of the mesh takes its part of it.
    starts = torch.randint(len(text) - LENGTH, (BATCH,), generator=torch.Generator().manual_seed(step))
    mine = starts.tensor_split(world // columns)[mesh["data"].get_local_rank()]
    words = torch.stack([text[at : at + LENGTH + 1] for at in mine]).to(mesh.device_type)
    loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == options.steps - 1:
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step:3}  loss {mean.item():.4f}", flush=True)

if options.save:
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state, "step": options.steps}, checkpoint_id=options.save)
dist.destroy_process_group()
