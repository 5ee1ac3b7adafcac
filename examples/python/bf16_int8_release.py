"""The least memory: bf16 weights without an f32 copy, int8 momentum, gradients freed as soon as they have been used.

    .venv/bin/python examples/python/bf16_int8_release.py

Per parameter: 2 bytes of weight and about 1 of state; one gradient lives at a time.  AdamW with f32 states and an f32 copy of
bf16 weights: 2 + 4 + 8, and 2 of gradient.
"""

import torch
from torch import nn

import came_optim

STEPS = 200
OPTIONS = {"momentum_dtype": "int8", "stochastic_rounding": True}

torch.manual_seed(0)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers = [nn.Linear(32, 256), *(nn.Sequential(nn.GELU(), nn.Linear(256, 256)) for _ in range(6)), nn.Linear(256, 1)]
model = nn.Sequential(*layers).to(device, torch.bfloat16)

# What it will take, before anything is allocated: with f32 momentum, and as it is used here.
print(came_optim.estimate(model.parameters(), [came_optim.AdamW, came_optim.CAME], device=device))
print(came_optim.estimate(model.parameters(), came_optim.CAME, device=device, **OPTIONS))

# Stochastic rounding lets changes that are smaller than half a unit of bf16 add up instead of being rounded away.
optimizer = came_optim.CAME(model.parameters(), lr=1e-3, **OPTIONS)
came_optim.gradient_release(model, optimizer)

true = torch.randn(32, 1, device=device)
for step in range(STEPS):
    for group in optimizer.param_groups:  # a schedule by hand; those of torch work as well
        group["lr"] = 1e-3 * (1 - step / STEPS)
    x = torch.randn(128, 32, device=device)
    loss = nn.functional.mse_loss(model(x.bfloat16()).float(), torch.tanh(x @ true))
    loss.backward()  # each parameter is stepped here, as soon as its gradient is there
    optimizer.step()  # marks the end of the step; there is no gradient left to clear
    if step % 50 == 0 or step == STEPS - 1:
        print(f"step {step:3}  loss {loss.item():.4f}")

state = sum(t.nbytes for slot in optimizer.state.values() for name, t in slot.items() if name != "step")
count = sum(p.numel() for p in model.parameters())
print(f"state: {state / count:.2f} bytes per parameter; gradients left: {sum(p.grad is not None for p in model.parameters())}")
if device == "cuda":
    print(f"peak of allocated memory: {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB")
