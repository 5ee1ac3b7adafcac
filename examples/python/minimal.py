"""A plain training loop with CAME: fits a network to z = sin(3x) cos(3y).

    .venv/bin/python examples/python/minimal.py
"""

import torch
from torch import nn

import came_optim

STEPS = 300

torch.manual_seed(0)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)

# Instead of torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0): the rate stays AdamW's.
optimizer = came_optim.CAME(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

for step in range(STEPS):
    points = torch.rand(256, 2, device=device) * 2 - 1
    wanted = torch.sin(3 * points[:, :1]) * torch.cos(3 * points[:, 1:])
    loss = nn.functional.mse_loss(model(points), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 50 == 0 or step == STEPS - 1:
        print(f"step {step:3}  loss {loss.item():.5f}")

# A state dict is saved and loaded as any other optimizer's; the run continues with the same bits as if it had not stopped.
other = came_optim.CAME(model.parameters())
other.load_state_dict(optimizer.state_dict())
print(f"state after {int(other.state[model[0].weight]['step'])} steps: {', '.join(other.state[model[0].weight])}")
