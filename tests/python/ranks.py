"""Real processes that talk by gloo, kept for all tests of a session: starting one takes longer than most tests.

    ranks(4)(function, *arguments) -> what function(*arguments) returned on each rank

`function` is importable from its module.  What a rank raises is raised here, with its traceback.  Ranks that hang are killed.
"""

import atexit
import importlib
import os
import socket
import sys
import time
import traceback

import torch
from torch import multiprocessing

_pools = {}


class RankError(AssertionError):
    """What ranks raised: `errors` by rank."""

    def __init__(self, errors):
        self.errors = {rank: (kind, message) for rank, (kind, message, _) in errors.items()}
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, (_, _, text) in sorted(errors.items())))


def ranks(world):
    """A pool of so many processes."""
    if world not in _pools or not _pools[world].alive():
        _pools[world] = Pool(world)
    return _pools[world]


class Pool:
    def __init__(self, world, seconds=20):
        """`seconds`: how long torch waits for a rank that does not come."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, world, port, theirs, seconds, sys.path), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        atexit.register(self.close)

    def alive(self):
        return bool(self.processes) and all(process.is_alive() for process in self.processes)

    def close(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        self.processes = []

    def __call__(self, function, *arguments, timeout=300):
        for pipe in self.pipes:
            pipe.send((function.__module__, function.__name__, arguments))
        results, errors, end = [], {}, time.monotonic() + timeout
        for rank, pipe in enumerate(self.pipes):
            try:
                if not pipe.poll(max(0.0, end - time.monotonic())):
                    errors[rank] = ("TimeoutError", f"no answer within {timeout} s", "no answer")
                    continue
                error, result = pipe.recv()
            except (EOFError, ConnectionResetError):
                error, result = ("EOFError", "the process ended", "the process ended"), None
            results.append(result)
            if error:
                errors[rank] = error
        if errors:
            self.close()  # what a collective left behind is not for the next test
            raise RankError(errors)
        return results


def _serve(rank, world, port, pipe, seconds, path):
    from datetime import timedelta

    import torch.distributed as dist

    sys.path[:] = path
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=seconds))
    while True:
        try:
            module, name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = None, getattr(importlib.import_module(module), name)(*arguments)
        except BaseException as error:  # a test looks at it
            answer = (type(error).__name__, str(error), traceback.format_exc()), None
        pipe.send(answer)
