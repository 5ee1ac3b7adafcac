"""Which learning rate does CAME want on a short run?  Trains a byte-level GPT with AdamW and with settings of CAME.

    .venv/bin/python bench/learning_rates.py TEXT > bench/results/learning_rates.json

TEXT is a text file of a few megabytes (or .xz); its last twentieth is held out.  All runs see the same batches and the same
schedule: linear warm-up, then linearly to zero.  Every setting is trained at each of its rates with one seed, at its best
one with two more, which change the initial weights and the order of the batches.  Reported is the loss on the held-out
text after the last step, in nats per byte.  Some fifteen minutes on one thread; progress goes to standard error.
"""

import json
import lzma
import platform
import sys

import torch
import torch.nn.functional as F
from momentum_codes import LAYERS, LENGTH, WIDTH, Gpt

import came_optim

BATCH, STEPS, WARM_UP, SEEDS = 4, 400, 40, 3
HELD_OUT_BATCHES, HELD_OUT_BATCH = 32, 8
LONG_WARM_UP = STEPS // 2
CORRECTED = {"bias_correction": True}
PAPER = {"bias_correction": False}
SHORT_MEMORY = {**PAPER, "betas": (0.9, 0.95, 0.995)}
LADDER = tuple(2e-3 * 2.0**k for k in range(-5, 3))  # 6.25e-5 to 8e-3
# Optimizer, options, steps of warm-up, rates.
SETTINGS = {
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.0}, WARM_UP, LADDER[3:]),
    "AdamW, half the run warm-up": (torch.optim.AdamW, {"weight_decay": 0.0}, LONG_WARM_UP, LADDER[4:7]),
    "CAME, bias_correction": (came_optim.CAME, CORRECTED, WARM_UP, LADDER[3:]),
    "CAME, bias_correction, half the run warm-up": (came_optim.CAME, CORRECTED, LONG_WARM_UP, LADDER[4:]),
    "CAME as in the paper": (came_optim.CAME, PAPER, WARM_UP, LADDER[:6]),
    "CAME as in the paper, half the run warm-up": (came_optim.CAME, PAPER, LONG_WARM_UP, LADDER[1:6]),
    "CAME, betas (0.9, 0.95, 0.995)": (came_optim.CAME, SHORT_MEMORY, WARM_UP, LADDER[2:6]),
}


def batches(data, count, size, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(0, len(data) - LENGTH - 1, (size,), generator=generator)
        yield torch.stack([data[s : s + LENGTH + 1] for s in starts])


def loss_of(model, batch):
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(data, held_out, name, lr, seed):
    """Loss on the held-out text after training."""
    cls, options, warm_up, _ = SETTINGS[name]
    torch.manual_seed(seed)
    model = Gpt()
    optimizer = cls(model.parameters(), lr=lr, **options)

    def factor(step):
        return min((step + 1) / warm_up, (STEPS - step) / (STEPS - warm_up))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for batch in batches(data, STEPS, BATCH, 1000 + seed):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        losses = [loss_of(model, batch).item() for batch in batches(held_out, HELD_OUT_BATCHES, HELD_OUT_BATCH, 0)]
    loss = round(sum(losses) / len(losses), 4)
    print(f"{name}, lr {lr:g}, seed {seed}: {loss}", file=sys.stderr, flush=True)
    return loss


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: learning_rates.py TEXT")
    path = sys.argv[1]
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read(6_000_000)), dtype=torch.uint8).long()
    torch.set_num_threads(1)
    data, held_out = text[: len(text) * 19 // 20], text[len(text) * 19 // 20 :]
    rows = []
    for name, (_, _, warm_up, rates) in SETTINGS.items():
        losses = {lr: train(data, held_out, name, lr, 0) for lr in rates}
        best = min(losses, key=losses.get)
        seeds = [losses[best], *(train(data, held_out, name, best, seed) for seed in range(1, SEEDS))]
        by_rate = {f"{lr:g}": loss for lr, loss in losses.items()}
        rows.append({"setting": name, "warm_up": warm_up, "loss_by_lr": by_rate, "best_lr": best, "loss_by_seed": seeds})
    result = {
        "what": f"byte-level GPT, {LAYERS} layers of width {WIDTH}, {STEPS} steps of {BATCH} x {LENGTH} bytes, no weight decay; "
        f"held-out loss in nats per byte",
        "text": path.split("/")[-1],
        "machine": f"{platform.machine()} CPU, 1 thread, torch {torch.__version__}",
        "rows": rows,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
