"""The time of a sharded step on the CPU: two ranks of one thread each beside one process of two threads, and the bytes that cross.

    .venv/bin/python bench/sharded_step.py --json build/sharded_step.json
    cp build/sharded_step.json bench/results/sharded_step.json       to keep it: the documentation quotes that file

Some minutes on two idle cores and 12 GB of memory for BERT-Large.  Parameters are sharded as FSDP2 shards them, along dimension 0; the same
optimizer steps the whole list in another process.  The two take turns; while one steps, the other sleeps.  A step of the ranks lasts
until the last of them is done.
"""

import argparse
import datetime
import json
import os
import socket
import statistics
import time
from pathlib import Path

import command
import machine
import torch
import torch.distributed as dist
from torch import multiprocessing, nn

import came_optim
from came_optim.library import library

RANKS = 2
OPTIMIZERS = {
    "came": (came_optim.CAME, {}),
    "adafactor": (came_optim.Adafactor, {"lr": 1e-8, "beta1": 0.9}),
    "adamw": (came_optim.AdamW, {}),
    "lamb": (came_optim.LAMB, {}),
    "sm3": (came_optim.SM3, {}),
}


def optimizer_over(shapes, name, mesh):
    """An optimizer whose parameters hardly move, however many steps are taken."""
    from torch.distributed.tensor import Shard, distribute_tensor, zeros

    torch.manual_seed(0)
    params = []
    for shape in shapes:
        whole = torch.randn(shape)
        placed = whole if mesh is None else distribute_tensor(whole, mesh, [Shard(0)])
        params.append(nn.Parameter(placed))
        params[-1].grad = torch.randn_like(placed) if mesh is None else zeros(shape, device_mesh=mesh, placements=[Shard(0)])
        if mesh is not None:
            params[-1].grad.to_local().normal_()
    cls, options = OPTIMIZERS[name]
    return cls(params, **{"lr": 1e-8, **options})


def work(pipe, shapes, name, threads, rank=None, port=0):
    """Steps when it is told to, and tells how long that took and how many bytes it gave to all-reduces."""
    torch.set_num_threads(threads)
    crossed = [0]
    mesh = None
    if rank is not None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=RANKS)
        mesh = dist.init_device_mesh("cpu", (RANKS,))
        plain = dist.all_reduce

        def counted(tensor, *arguments, **named):
            crossed[0] += tensor.nbytes
            return plain(tensor, *arguments, **named)

        dist.all_reduce = counted
    with torch.no_grad():
        optimizer = optimizer_over(shapes, name, mesh)
    optimizer.step()
    planned = sum(8 * r.count for b in optimizer._bindings for of_phase in getattr(b, "_reductions", []) for _, r in of_phase)
    pipe.send(planned)
    while pipe.recv():
        crossed[0] = 0
        if rank is not None:
            dist.barrier()
        begin = time.perf_counter()
        optimizer.step()
        pipe.send((time.perf_counter() - begin, crossed[0]))


class Crew:
    """Processes that step together."""

    def __init__(self, shapes, name, sharded):
        context = multiprocessing.get_context("spawn")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        places = [(1, rank, port) for rank in range(RANKS)] if sharded else [(2, None, 0)]
        self.pipes, self.processes = [], []
        for place in places:
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=work, args=(theirs, shapes, name, *place), daemon=True))
            self.processes[-1].start()
            self.pipes.append(ours)
        self.planned = [pipe.recv() for pipe in self.pipes]

    def step(self):
        """Seconds of the slowest, bytes of the most."""
        for pipe in self.pipes:
            pipe.send(True)
        seconds, crossed = zip(*[pipe.recv() for pipe in self.pipes])
        return max(seconds), max(crossed)

    def close(self):
        for process in self.processes:
            process.kill()
            process.join()


def measure(shapes, name, rounds):
    whole, ranks = Crew(shapes, name, False), Crew(shapes, name, True)
    try:
        pairs, crossed = [], 0
        for k in range(rounds + 2):
            one, (several, crossed) = whole.step()[0], ranks.step()
            if k >= 2:  # the first ones find their memory
                pairs.append((one, several))
        ratios = sorted(several / one for one, several in pairs)
        return {
            "whole_milliseconds": 1e3 * statistics.median(one for one, _ in pairs),
            "sharded_milliseconds": 1e3 * statistics.median(several for _, several in pairs),
            "ratio": {"median": statistics.median(ratios), "quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]]},
            "bytes_all_reduced_per_rank": crossed,
            "bytes_of_the_plan": ranks.planned[0],
        }
    finally:
        whole.close()
        ranks.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert_large", help="a list of bench/shapes.hpp (default: %(default)s)")
    parser.add_argument("--only", default=",".join(OPTIMIZERS), help="comma-separated optimizers (default: all)")
    parser.add_argument("--rounds", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in OPTIMIZERS]
    if unknown or options.rounds < 1:
        parser.error(f"--only or --rounds: expected some of {', '.join(OPTIMIZERS)}, and at least 1")
    built = Path(library()._name)
    models = {**command.QUICK, **({} if options.model == "quick" else command.known_models(built))}
    if options.model not in models:
        parser.error(f"--model: given {options.model!r}, expected one of {', '.join(models)}")
    shapes = models[options.model]
    content = {
        "what": "bench/sharded_step.py: two ranks of one thread, parameters sharded along dimension 0, over one process of two threads",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(built),
        "settings": {"model": options.model, "rounds": options.rounds, "ranks": RANKS},
        "rows": {},
    }
    for name in options.only.split(","):
        row = content["rows"][name] = measure(shapes, name, options.rounds)
        low, high = row["ratio"]["quartiles"]
        print(
            f"{name}: whole {row['whole_milliseconds']:.1f} ms, sharded {row['sharded_milliseconds']:.1f} ms, "
            f"ratio {row['ratio']['median']:.3f} [{low:.3f} {high:.3f}], all-reduced {row['bytes_all_reduced_per_rank']:,} bytes, "
            f"plan {row['bytes_of_the_plan']:,}",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
