"""Which code should a quantised momentum have?  Measures candidates on the momentum of a language model in training.

    .venv/bin/python bench/momentum_codes.py TEXT > bench/results/momentum_codes.json

TEXT is a text file of a few megabytes (or .xz).  A small byte-level GPT is trained with came-pytorch; then each code is
applied to the momentum it ends with (open loop), and the training is repeated with the momentum of all matrices coded at
every step (closed loop).  A code of n levels stores k with value scale * (k / n)^power, scale being the largest
magnitude of a block of a row; power 1 is linear.  Progress goes to standard error.
"""

import json
import lzma
import math
import platform
import sys

import torch
import torch.nn.functional as F
from came_pytorch import CAME
from torch import nn

WIDTH, LAYERS, HEADS, LENGTH, BATCH, STEPS, LR = 192, 3, 4, 96, 12, 400, 3e-4
LAST = 50  # steps over which the closed loop's loss is averaged


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False))

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens) + self.position.weight))


def code(m, bits, power, block):
    """The momentum after a round trip through its code, each element to the nearest value."""
    levels = 2 ** (bits - 1) - 1
    rows = m.reshape(m.shape[0], -1)
    columns = rows.shape[1]
    blocks = F.pad(rows, (0, -columns % block)).reshape(rows.shape[0], -1, block)
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-38)
    part = blocks.abs() / scale
    below = (part ** (1 / power) * levels).floor()
    middle = ((below / levels) ** power + ((below + 1) / levels) ** power) / 2
    level = torch.where(part > middle, below + 1, below).clamp(max=levels)
    return ((level / levels) ** power * scale * blocks.sign()).reshape(rows.shape[0], -1)[:, :columns].reshape(m.shape)


def train(data, coding=None):
    """Trains; returns the loss of the last steps and, per matrix, momentum and instability factors."""
    torch.manual_seed(0)
    order = torch.Generator().manual_seed(1)
    model = Gpt()
    optimizer = CAME(model.parameters(), lr=LR)
    losses = []
    for step in range(STEPS):
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,), generator=order)
        batch = torch.stack([data[s : s + LENGTH + 1] for s in starts])
        optimizer.param_groups[0]["lr"] = LR * min(1, (step + 1) / 50)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        matrices = [optimizer.state[p] for p in model.parameters() if p.ndim == 2]
        if coding:
            for state in matrices:
                state["exp_avg"].copy_(code(state["exp_avg"], *coding))
        if step % 100 == 99:
            print(f"{coding or 'f32'} step {step + 1}/{STEPS} loss {loss.item():.3f}", file=sys.stderr)
    return sum(losses[-LAST:]) / LAST, matrices


def open_loop(matrices, bits, power, block):
    error = size = update_error = update_size = zeroed = count = 0.0
    for state in matrices:
        m, r, c = state["exp_avg"], state["exp_avg_res_row"], state["exp_avg_res_col"]
        difference = code(m, bits, power, block) - m
        confidence = (r[:, None] * c / r.mean()).rsqrt()
        error += difference.square().sum().item()
        size += m.square().sum().item()
        update_error += (difference * confidence).square().sum().item()
        update_size += (m * confidence).square().sum().item()
        zeroed += ((difference == -m) & (m != 0)).sum().item()
        count += m.numel()
    return {
        "bits": bits,
        "block": block,
        "power": power,
        "momentum_error": round(math.sqrt(error / size), 5),
        "update_error": round(math.sqrt(update_error / update_size), 5),
        "zeroed": round(zeroed / count, 4),
    }


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: momentum_codes.py TEXT")
    path = sys.argv[1]
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        data = torch.frombuffer(bytearray(file.read(6_000_000)), dtype=torch.uint8).long()
    torch.set_num_threads(1)
    plain, matrices = train(data)
    candidates = [(bits, power, block) for bits in (8, 4) for block in (64, 128, 256) for power in (1, 1.5, 2, 3)]
    closed = {"f32": round(plain, 4)}
    for bits, power in ((8, 1), (8, 2), (4, 1), (4, 2)):
        closed[f"int{bits}, power {power}, block 128"] = round(train(data, (bits, power, 128))[0], 4)
    result = {
        "what": f"byte-level GPT, {LAYERS} layers of width {WIDTH}, {STEPS} steps of CAME at lr {LR}",
        "text": path.split("/")[-1],
        "machine": f"{platform.machine()} CPU, 1 thread, torch {torch.__version__}",
        "open_loop": [open_loop(matrices, *candidate) for candidate in candidates],
        f"closed_loop_loss_of_last_{LAST}_steps": closed,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
