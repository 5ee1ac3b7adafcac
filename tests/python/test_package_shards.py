"""Shards through native.py: local shapes of state, phases, reductions.  The test adds up what ranks would all-reduce."""

from array import array
from math import prod

import pytest

from came_optim import native
from came_optim.native import Call, Plan, Spec

SHAPE = (5, 4)


class Rank:
    """One plan with its memory; `rows` of the matrix, or all of it."""

    def __init__(self, word, rows=None):
        begin, count = rows or (0, SHAPE[0])
        shard = dict(split_dims=1, offset=(begin, 0), extent=(count, SHAPE[1])) if rows else {}
        self.plan = Plan([native.options(word)], [Spec(SHAPE, "float64", **shard), Spec((3,), "float64", id=1)], native.REFERENCE)
        sizes = [count * SHAPE[1], 3]
        self.params = [array("d", [0.1 * (k + SHAPE[1] * begin) for k in range(size)]) for size in sizes]
        self.grads = [array("d", [1.0 + k % 3 + begin for k in range(size)]) for size in sizes]
        if rows is None:  # as the two ranks have it
            self.grads[0] = array("d", [1.0 + k % 3 for k in range(8)] + [3.0 + k % 3 for k in range(12)])
            self.params[0] = array("d", [0.1 * k for k in range(20)])
        self.states = [array("d", [0.0] * max(1, prod(state.shape))) for state in self.plan.states]
        self.buffers = [array("d", bytes(max(8, size))) for size in (self.plan.memory.workspace_bytes, self.plan.memory.reduction_bytes)]
        self.count = array("q", [0, 0])
        self.call = Call(self.plan)
        address = lambda buffer: buffer.buffer_info()[0]
        self.call.params.data, self.call.grads.data, self.call.states.data = (
            [address(b) for b in buffers] for buffers in (self.params, self.grads, self.states)
        )
        self.call.set_scalar("step", address(self.count), "int64")
        self.call.set_buffers(*map(address, self.buffers))

    def shared(self, phase):
        found = self.plan.reduction(phase)
        return range(found.offset, found.offset + found.count)


@pytest.mark.parametrize("word", native.ALGORITHMS)
def test_two_ranks_give_what_one_gives(word):
    whole, ranks = Rank(word), [Rank(word, (0, 2)), Rank(word, (2, 3))]
    for _ in range(3):
        whole.call.run()
        for phase in range(ranks[0].plan.phase_count):
            for rank in ranks:
                rank.call.run_phase(phase, checked=True)
            combine = max if ranks[0].plan.reduction(phase).op else lambda a, b: a + b
            for i, j in zip(*(rank.shared(phase) for rank in ranks)):
                both = combine(ranks[0].buffers[1][i], ranks[1].buffers[1][j])
                ranks[0].buffers[1][i] = ranks[1].buffers[1][j] = both
    assert list(ranks[0].count) == [3, 3]
    for k, expected in enumerate(whole.params[0]):
        rank, local = (ranks[0], k) if k < 8 else (ranks[1], k - 8)
        assert rank.params[0][local] == pytest.approx(expected, rel=1e-12)
    assert list(ranks[0].params[1]) == list(whole.params[1])


def test_states_of_a_shard_know_their_place_and_dimensions():
    spec = Spec((8, 100, 90), "float32", split_dims=3, offset=(4, 60, 0), extent=(2, 40, 90), matrix_group=1)
    states = {state.name: state for state in Plan([native.options("came")], [spec]).states}
    momentum, row, col = (states[name] for name in ("exp_avg", "exp_avg_sq_row", "exp_avg_sq_col"))
    assert (momentum.shape, momentum.whole, momentum.offset, momentum.dims) == ((2, 40, 90), (8, 100, 90), (4, 60, 0), (0, 1, 2))
    assert (row.shape, row.whole, row.offset, row.dims) == ((2, 40), (8, 100), (4, 60), (0, 1, -1))
    assert (col.shape, col.whole, col.offset, col.dims) == ((2, 90), (8, 90), (4, 0), (0, -1, 1))


def test_a_shard_of_other_dimensions_is_refused():
    spec = Spec((8, 9), "float32", name="w", split_dims=1, offset=(4,), extent=(2, 9))
    with pytest.raises(ValueError, match="'w': shard has 1 offsets and 2 extents, expected 2 of each"):
        Plan([native.options("came")], [spec])


def test_an_unchecked_phase_still_checks_scalars_in_the_first():
    rank = Rank("came", (0, 2))
    rank.call.run_phase(0)
    rank.call.set_host_lr([-1.0])
    rank.call.run_phase(1, checked=True)
    with pytest.raises(ValueError, match="lr of group 0 is -1"):
        rank.call.run_phase(0, checked=True)
    with pytest.raises(ValueError, match="phase: 3 given, expected 0 to 2"):
        rank.call.run_phase(3, checked=True)
