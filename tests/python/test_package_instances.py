"""An optimizer for each parameter, as some trainers make them: steps as one for all, and no more scratch than the largest needs."""

import gc
import threading

import pytest
import torch
from package import OPTIMIZERS, make, parameters, run, same, set_gradients
from torch import nn

from came_optim import CAME, scratch


def blocks_of(optimizers):
    storages = [buffer.untyped_storage() for o in optimizers for binding in o._bindings for buffer in binding.buffers]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_an_optimizer_for_each_parameter_steps_as_one_for_all(algorithm):
    params, others = parameters(torch.float32), parameters(torch.float32)
    each, together = [make(algorithm, [p]) for p in params], make(algorithm, others)
    for step in range(3):
        set_gradients(params, step)
        set_gradients(others, step)
        for optimizer in each:
            optimizer.step()
        together.step()
    assert all(same(p, q) for p, q in zip(params, others))


def in_a_thread(work):
    """What the work returns, done where nobody has stepped before."""
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    thread.join()
    return done[0]


def test_optimizers_of_a_thread_share_their_scratch():
    def work():
        params = [nn.Parameter(torch.ones(64 * k, 16)) for k in range(1, 20)]
        optimizers = [CAME([p]) for p in params]
        for _ in range(2):
            for p, optimizer in zip(params, optimizers):
                run(optimizer, [p], 1)
        known = scratch._blocks.of_stream
        found = blocks_of(optimizers), [sum(b.nbytes for b in o._bindings[0].buffers) for o in optimizers], len(known)
        del optimizers, optimizer
        gc.collect()
        return (*found, len(known))

    blocks, needed, before, after = in_a_thread(work)
    assert len(blocks) == 1 and max(needed) <= sum(blocks.values()) < max(needed) + 512 and sum(needed) > 2 * max(needed)
    assert (before, after) == (1, 0)  # nobody steps with it any more


def test_optimizers_of_two_threads_do_not_meet_in_scratch():
    """libcame lets go of the interpreter's lock, so that both are in a step at the same time."""

    def train(params, done):
        optimizers = [CAME([p], lr=1e-2) for p in params]
        for step in range(30):
            for p, optimizer in zip(params, optimizers):
                run(optimizer, [p], 1, first=step)
        done.append(blocks_of(optimizers))

    shapes = [(300, 200), (64, 500)]
    sides, done = [parameters(torch.float32, shapes) for _ in range(5)], []
    train(sides[0], done)
    start = threading.Barrier(4)
    threads = [threading.Thread(target=lambda side=side: (start.wait(), train(side, done))) for side in sides[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 5 and all(same(p, q) for side in sides[1:] for p, q in zip(sides[0], side))


def test_an_optimizer_that_goes_to_another_thread_uses_the_scratch_of_that():
    params, others = parameters(torch.float32), parameters(torch.float32)
    optimizer, twin = CAME(params), CAME(others)
    run(optimizer, params, 1)
    here = blocks_of([optimizer])
    in_a_thread(lambda: run(optimizer, params, 1, first=1))
    assert set(blocks_of([optimizer])) != set(here)
    run(optimizer, params, 1, first=2)
    run(twin, others, 3)
    assert all(same(p, q) for p, q in zip(params, others))
