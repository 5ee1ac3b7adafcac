"""A whole training step as one CUDA graph: forward, backward and CAME, replayed with new data and a new learning rate.

    .venv/bin/python examples/python/cuda_graph.py

A graph replays the same kernels on the same memory.  What shall change from replay to replay must lie on the device: the batch,
and the learning rate as a tensor.  The step counters of the optimizer lie there by themselves.
"""

import math

import torch
from torch import nn

import came_optim

WARM_UP, STEPS, LR = 3, 300, 3e-3
if not torch.cuda.is_available():
    print("cuda_graph: no CUDA device here, nothing to do")
    raise SystemExit(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
points, wanted = torch.zeros(256, 2, device="cuda"), torch.zeros(256, 1, device="cuda")
lr = torch.tensor(LR, device="cuda")
optimizer = came_optim.CAME(model.parameters(), lr=lr, capturable=True)


def fill():
    """Puts a new batch where the graph reads it."""
    points.uniform_(-1, 1)
    wanted.copy_(torch.sin(3 * points[:, :1]) * torch.cos(3 * points[:, 1:]))


def train_step():
    optimizer.zero_grad(set_to_none=False)  # gradients keep their memory
    loss = nn.functional.mse_loss(model(points), wanted)
    loss.backward()
    optimizer.step()
    return loss


# Before capture, a few steps on another stream: they make the gradients, the state and the workspace.
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(WARM_UP):
        fill()
        train_step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):  # recorded, not run
    loss = train_step()
for step in range(STEPS):
    fill()
    lr.fill_(LR * (1 + math.cos(math.pi * step / STEPS)) / 2)  # in place: `lr = ...` would leave the graph with the old tensor
    graph.replay()
    if step % 50 == 0 or step == STEPS - 1:
        print(f"step {step:3}  lr {lr.item():.2e}  loss {loss.item():.5f}")
print(f"{int(optimizer.state[model[0].weight]['step'])} steps, {STEPS} of them replayed")
