"""Memory of training a GPT of 1.3 billion parameters in bf16 with one optimizer or another, measured on a GPU.

    python3 bench/training_memory.py --json build/cuda/training_memory.json [--packages FOLDER]
    cp build/cuda/training_memory.json bench/results/training_memory.json       to keep it: the README quotes that file

Each way of training has a process of its own and takes 20 steps on the bytes of docs/.  `peak` is what PyTorch's
allocator had given out at most; `optimizer` is what of it was there after the last step and not before the optimizer was
made, when all gradients were gone: state, master weights, workspace.  The library's tables, a few MB, come on top of both.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

STEPS, BATCH, LENGTH = 20, 1, 1024


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, width = x.shape
        q, k, v = self.attention(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(b, n, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """GPT-2's shapes with the width and depth of GPT-3 XL; input and output embeddings are one."""

    def __init__(self, width: int = 2048, depth: int = 24, heads: int = 16, vocabulary: int = 50257):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


class MasterAdamW:
    """AdamW of f32 copies of the weights, with f32 moments and, during the step, f32 gradients."""

    def __init__(self, params):
        self.params = list(params)
        self.master = [nn.Parameter(p.detach().float()) for p in self.params]
        self.inner = torch.optim.AdamW(self.master, lr=1e-4, fused=True)

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.params, self.master):
            m.grad, p.grad = p.grad.float(), None
        self.inner.step()
        for p, m in zip(self.params, self.master):
            p.copy_(m)
            m.grad = None


def make(way: str, model: nn.Module):
    """The optimizer, and what came_optim.estimate says it will take."""
    if way == "AdamW, f32 master weights":
        return MasterAdamW(model.parameters()), None
    if way == "came-pytorch":
        from came_pytorch import CAME

        return CAME(model.parameters(), lr=1e-4), None
    import came_optim

    optimizer = came_optim.CAME(
        model.parameters(),
        lr=1e-4,
        bias_correction=False,  # as came-pytorch: the losses are compared
        momentum_dtype="int8" if "int8" in way else None,
        stochastic_rounding=True,
    )
    if "release" in way:
        came_optim.gradient_release(model, optimizer)
    return optimizer, came_optim.estimate(model, optimizer)[0].peak


WAYS = ["AdamW, f32 master weights", "came-pytorch", "CAME", "CAME, int8 momentum", "CAME, int8 momentum, gradient release"]


def gradients(model: nn.Module, data: torch.Tensor) -> float:
    """Of the loss on some sequences, which it returns."""
    at = torch.randint(len(data) - LENGTH - 1, (BATCH,))
    window = torch.stack([data[k : k + LENGTH + 1] for k in at.tolist()])
    logits = model(window[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1).float(), window[:, 1:].flatten())
    loss.backward()
    return loss.item()


def train(way: str) -> dict:
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().cuda()
    torch.manual_seed(0)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = Gpt()
        torch.set_default_dtype(torch.float32)
    weights = sum(p.nbytes for p in model.parameters())
    gradients(model, data)  # takes what libraries of torch keep for themselves
    model.zero_grad()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    optimizer, estimated = make(way, model)
    losses, seconds = [], []
    for _ in range(STEPS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        losses.append(gradients(model, data))
        optimizer.step()
        model.zero_grad()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return {
        "way": way,
        "parameters": sum(p.numel() for p in model.parameters()),
        "weight_bytes": weights,
        "optimizer_bytes": torch.cuda.memory_allocated() - before,
        "estimated_bytes": estimated,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "seconds_per_step": sorted(seconds)[len(seconds) // 2],
        "losses": losses,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("build/cuda/training_memory.json"), metavar="PATH")
    parser.add_argument("--packages", type=Path, metavar="FOLDER", help="where came_pytorch can be imported from")
    parser.add_argument("--way", choices=WAYS, help="this one, in this process, as JSON on standard output")
    options = parser.parse_args()
    if options.packages:
        sys.path.append(str(options.packages))
    if not torch.cuda.is_available():
        parser.error("no GPU: this measures memory of one")
    if options.way:
        print(json.dumps(train(options.way)))
        return 0
    rows, skipped = [], {}
    for way in WAYS:
        print(f"{way} ...", file=sys.stderr, flush=True)
        call = [sys.executable, __file__, "--way", way, *(["--packages", str(options.packages)] if options.packages else [])]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, env=os.environ)
        if done.returncode:
            skipped[way] = f"left with {done.returncode}"
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"  peak {row['peak_bytes'] / 2**30:.2f} GiB, optimizer {row['optimizer_bytes'] / 2**30:.2f} GiB"
            f" (estimated {(row['estimated_bytes'] or 0) / 2**30:.2f}), {row['seconds_per_step']:.3f} s per step,"
            f" loss {row['losses'][0]:.2f} to {row['losses'][-1]:.2f}",
            file=sys.stderr,
        )
    document = {
        "what": f"{STEPS} steps of a GPT in bf16, {BATCH} x {LENGTH} bytes of docs/ each, no activation checkpointing",
        "machine": {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda},
        "rows": rows,
        "skipped": skipped,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
