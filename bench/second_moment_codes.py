"""Which code and which rounding should an 8-bit second moment have?  Measures candidates in a loop with the average.

    .venv/bin/python bench/second_moment_codes.py TEXT > bench/results/second_moment_codes.json

A code k of 255 levels stands for scale * (k / 255)^power, scale being the largest value of a block of 128 elements of a
row; a positive value never gets the code 0, for it is divided by.  Every step reads the codes, averages and writes them.

Synthetic: averages with beta2 0.999 of squared normal numbers, with deviations alike, spread over four decades inside a
block, or falling to a tenth half-way.  Shadow: averages of the gradients of three matrices of a GPT in
training.  Reported is the ratio of the root of the coded average to that of the f64 average, at the end: mean - 1, RMS
of ratio - 1, and RMS of 1 / ratio - 1, the error of the update.

Training: the byte-level GPT of momentum_codes.py with Adam, every tensor's second moment coded at every step.
TEXT is a text file of a few megabytes (or .xz).  Progress goes to standard error.
"""

import json
import lzma
import platform
import sys

import torch
import torch.nn.functional as F
from momentum_codes import BATCH, LAYERS, LENGTH, WIDTH, Gpt
from momentum_codes import code as momentum_code

LEVELS, BLOCK = 255, 128
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
POWERS = (2, 3, 4, 6, 8)
AVERAGE_STEPS, BLOCKS = 5000, 32
WATCHED = ("token.weight", "blocks.1.out.weight", "blocks.1.down.weight")
STEPS, LR, LAST = 400, 1e-3, 50  # of the training; the loss is averaged over the last ones


def code(v, power, stochastic, generator):
    """Values of shape [..., BLOCK] after a round trip through their codes."""
    scale = v.amax(-1, keepdim=True).clamp(min=1e-38)
    below = ((v / scale) ** (1 / power) * LEVELS).floor().clamp(max=LEVELS - 1)
    low, high = (below / LEVELS) ** power * scale, ((below + 1) / LEVELS) ** power * scale
    part = (v - low) / (high - low)
    draw = torch.rand(v.shape, generator=generator, dtype=v.dtype) if stochastic else 0.5
    level = torch.where(part > draw, below + 1, below)
    level = torch.where(v > 0, level.clamp(min=1), level)
    return (level / LEVELS) ** power * scale


def code_tensor(v, power, stochastic, generator):
    """The same for a tensor of any shape, in blocks of its rows."""
    rows = v.reshape(v.shape[0], -1) if v.ndim > 1 else v.reshape(1, -1)
    columns = rows.shape[1]
    blocks = F.pad(rows, (0, -columns % BLOCK)).reshape(rows.shape[0], -1, BLOCK)
    return code(blocks, power, stochastic, generator).reshape(rows.shape[0], -1)[:, :columns].reshape(v.shape)


def deviations(family, step, spread):
    if family == "alike":
        return torch.ones_like(spread)
    if family == "four decades":
        return spread
    return torch.full_like(spread, 1.0 if step < AVERAGE_STEPS // 2 else 0.1)


class Averages:
    """An exact average and one per candidate, all of which see the same numbers."""

    def __init__(self, shape):
        self.exact = torch.zeros(shape, dtype=torch.float64)
        self.coded = {(p, s): torch.zeros(shape, dtype=torch.float64) for p in POWERS for s in (False, True)}
        self.draws = torch.Generator().manual_seed(2)

    def add(self, square):
        self.exact.mul_(BETA2).add_(square, alpha=1 - BETA2)
        for (power, stochastic), v in self.coded.items():
            v.copy_(code_tensor(BETA2 * v + (1 - BETA2) * square, power, stochastic, self.draws))

    def ratios(self, candidate):
        return (self.coded[candidate] / self.exact).sqrt()[self.exact > 0]


def errors(family, averages):
    """Errors of every candidate over all elements of some averages."""
    results = []
    for power, stochastic in averages[0].coded:
        ratio = torch.cat([a.ratios((power, stochastic)) for a in averages])
        results.append(
            {
                "family": family,
                "power": power,
                "rounding": "stochastic" if stochastic else "nearest",
                "bias": round(ratio.mean().item() - 1, 4),
                "rms": round((ratio - 1).square().mean().sqrt().item(), 4),
                "rms_of_inverse": round((1 / ratio - 1).square().mean().sqrt().item(), 4),
            }
        )
    print(f"{family}: done", file=sys.stderr)
    return results


def synthetic(family):
    numbers = torch.Generator().manual_seed(1)
    spread = 10 ** (-4 * torch.rand(BLOCKS, BLOCK, generator=numbers, dtype=torch.float64))
    averages = Averages(spread.shape)
    for step in range(AVERAGE_STEPS):
        normal = torch.randn(spread.shape, generator=numbers, dtype=torch.float64)
        averages.add((normal * deviations(family, step, spread)).square())
    return errors(family, [averages])


def train(data, seed, power=None, stochastic=True, int8_momentum=False, shadows=None):
    """Trains with Adam; returns the loss of the last steps.  `shadows`, if given, gets averages of some gradients."""
    torch.manual_seed(seed)
    order, draws = torch.Generator().manual_seed(seed + 1), torch.Generator().manual_seed(seed + 2)
    model = Gpt()
    params = list(model.parameters())
    m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    watched = [k for k, (name, _) in enumerate(model.named_parameters()) if name in WATCHED]
    if shadows is not None:
        shadows.extend(Averages(params[k].shape) for k in watched)
    losses = []
    for step in range(1, STEPS + 1):
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,), generator=order)
        batch = torch.stack([data[s : s + LENGTH + 1] for s in starts])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        grads = torch.autograd.grad(loss, params)
        losses.append(loss.item())
        for shadow, k in zip(shadows or (), watched):
            shadow.add(grads[k].double().square())
        rate = LR * min(1, step / 50)
        with torch.no_grad():
            for k, (p, g) in enumerate(zip(params, grads)):
                m[k].mul_(BETA1).add_(g, alpha=1 - BETA1)
                v[k].mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                if int8_momentum and p.ndim > 1:
                    m[k].copy_(momentum_code(m[k], 8, 2, BLOCK))
                if power:
                    v[k].copy_(code_tensor(v[k], power, stochastic, draws))
                root = (v[k] / (1 - BETA2**step)).sqrt_().add_(EPS)
                p.addcdiv_(m[k], root, value=-rate / (1 - BETA1**step))
    result = sum(losses[-LAST:]) / LAST
    print(f"seed {seed} power {power} stochastic {stochastic}: {result:.4f}", file=sys.stderr)
    return round(result, 4)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: second_moment_codes.py TEXT")
    path = sys.argv[1]
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        data = torch.frombuffer(bytearray(file.read(6_000_000)), dtype=torch.uint8).long()
    torch.set_num_threads(1)
    averages = [r for family in ("alike", "four decades", "falling") for r in synthetic(family)]
    seeds = (0, 10, 20)
    shadows = []
    loss = {"f32": [train(data, s, shadows=shadows if s == seeds[0] else None) for s in seeds]}
    averages += errors("gradients of the GPT", shadows)
    for power in POWERS:
        loss[f"power {power}, stochastic"] = [train(data, s, power) for s in seeds[: 3 if power == 4 else 1]]
    for power in (2, 4):
        loss[f"power {power}, nearest"] = [train(data, seeds[0], power, False)]
    loss["power 4, stochastic, and int8 momentum"] = [train(data, seeds[0], 4, True, True)]
    result = {
        "averages": {"what": f"{AVERAGE_STEPS} steps (GPT: {STEPS}), blocks of {BLOCK}, beta2 {BETA2}", "errors": averages},
        "training": {
            "what": f"byte-level GPT, {LAYERS} layers of width {WIDTH}, {STEPS} steps of Adam at lr {LR}",
            "text": path.split("/")[-1],
            "machine": f"{platform.machine()} CPU, 1 thread, torch {torch.__version__}",
            "seeds": seeds,
            f"mean_loss_of_last_{LAST}_steps": loss,
        },
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
