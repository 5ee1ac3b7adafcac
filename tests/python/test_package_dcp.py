"""Checkpoints of sharded training: what some ranks wrote, others read, in other shardings, and train on as if nothing had been."""

import re
from functools import lru_cache
from math import prod

import pytest
import sharded_checkpoints
import torch
from package import OPTIMIZERS, same
from ranks import ranks
from sharded import start
from sharded_checkpoints import CASES, STEPS, build, straight
from sharded_codes import TENSORS, read_codes, write_codes
from sharded_models import apart, train, weights
from sharded_state import WAYS, counts, load_whole, makes_state, refuses, through

# Sums in f64 are added up in another order; see test_package_sharding.py.
TOLERANCE = 1e-10
WHOLE = None
FSDP4, FSDP3, FSDP2 = (("fsdp", (world,)) for world in (4, 3, 2))
TP2, BOTH, HYBRID = ("tp", (2,)), ("fsdp_tp", (2, 2)), ("hsdp", (2, 2))
MOVES = [(WHOLE, FSDP4), (WHOLE, FSDP3), (FSDP3, FSDP4), (FSDP2, TP2), (TP2, FSDP2), (BOTH, FSDP3), (FSDP4, BOTH), (HYBRID, TP2)]


def on(layout, function, *arguments):
    """function(...) on the ranks of a layout; what the first returned."""
    if layout is WHOLE:
        return getattr(sharded_checkpoints, function)(*arguments)
    return ranks(prod(layout[1]))(getattr(sharded_checkpoints, function), *arguments)[0]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Paths of checkpoints, each written once."""

    @lru_cache(maxsize=None)
    def write(layout, case, *options):
        path = str(tmp_path_factory.mktemp("checkpoint"))
        on(layout, "write", path, layout, case, *options)
        return path

    return write


never_stopped = lru_cache(maxsize=None)(straight)


def moved(written, case, source, target, *options):
    """How far training that went on elsewhere is from training that never stopped."""
    found = on(target, "go_on", written(source, case, *options), target, case, *options)
    expected, origin = never_stopped(case, *options[:1])
    return apart(found, expected, origin)


@pytest.mark.parametrize("momentum_dtype", [None, "bf16", "int8", "int4"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", [FSDP4, FSDP3, FSDP2, WHOLE], ids=str)
def test_four_ranks_write_and_others_read(written, target, case, momentum_dtype):
    assert moved(written, case, FSDP4, target, momentum_dtype) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("source, target", MOVES, ids=str)
def test_checkpoints_move_between_shardings(written, source, target, case):
    assert moved(written, case, source, target) <= TOLERANCE


@pytest.mark.parametrize("case", ["came", "adafactor-relative"])
@pytest.mark.parametrize("source, target", [(FSDP4, FSDP3), (FSDP4, WHOLE)], ids=str)
def test_flat_state_dicts_move(written, source, target, case):
    assert moved(written, case, source, target, None, True) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_without_state_of_what_never_had_a_gradient_is_read_partially(written, case):
    """One process makes state with the first gradient, ranks make all of it."""
    assert moved(written, case, WHOLE, FSDP2, None, False, False) <= TOLERANCE


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_state_dicts_of_every_kind_change_no_bit(case, way):
    assert all(ranks(2)(through, FSDP2, case, way))


@pytest.mark.parametrize("case", CASES)
def test_a_whole_state_dict_goes_into_a_sharded_optimizer_and_back(case, tmp_path):
    path = tmp_path / "whole.pt"
    net, optimizer, _ = build(WHOLE, case)
    origin = weights(net)
    train(net, optimizer, STEPS)
    torch.save({"weights": list(weights(net).values()), "optimizer": optimizer.state_dict()}, path)
    ranks(3)(load_whole, str(path), FSDP3, case)
    saved = torch.load(path, weights_only=True)
    net, optimizer, _ = build(WHOLE, case)
    with torch.no_grad():
        for param, value in zip(net.parameters(), saved["weights"]):
            param.copy_(value)
    optimizer.load_state_dict(state_dict=saved["optimizer"])
    train(net, optimizer, STEPS, first=2 * STEPS)
    expected, _ = never_stopped(case, None, 3 * STEPS)
    assert apart(weights(net), expected, origin) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", [FSDP3, BOTH, WHOLE], ids=str)
def test_the_step_that_makes_state_does_nothing_else(layout, case):
    found = [makes_state(layout, case)] if layout is WHOLE else ranks(prod(layout[1]))(makes_state, layout, case)
    assert not any(found)


@pytest.mark.parametrize("layout", [FSDP4, WHOLE], ids=str)
def test_other_first_steps_with_a_rate_of_zero_count(layout):
    """Of a warm-up; one rank alone may have a gradient that is not zero."""
    for arguments, expected in (
        ((0.0,), {0.0}),
        ((1.0,), {1.0}),
        ((0.0, (0.0, 0.0), 2), {1.0}),  # the second one counts: there is state
        ((0.0, (0.0, 1e-3)), {1.0}),
    ):
        found = [counts(layout, *arguments)] if layout is WHOLE else ranks(4)(counts, layout, *arguments)
        assert all(steps == expected for steps in found), arguments


REFUSED = {
    "no row statistics": "CAME: the checkpoint has no 'exp_avg_sq_row' for parameter 1",
    "no counter": "CAME: the checkpoint has no 'step' for parameter 1",
    "momentum of another shape": r"CAME: state exp_avg of parameter 1 is torch.float64 \[12, 6\] on cpu, expected float64 \[11, 6\]",
    "rows of another number": r"CAME: state exp_avg_sq_row of parameter 1 is torch.float64 \[12\] on cpu, expected float64 \[11\]",
    "whole, of another shape": r"CAME: state exp_avg of parameter 1 is torch.float64 \[12, 6\] on cpu, expected float64 \[11, 6\]",
    "the part of a rank": r"CAME: state exp_avg of parameter 1 is torch.float64 \[6, 6\] on cpu, expected float64 \[11, 6\]",
    "on another mesh": r"CAME: state exp_avg of parameter 1 is on DeviceMesh.*expected the parameter's DeviceMesh",
    "beside a plain parameter": "CAME: state exp_avg of parameter 1 is a DTensor beside a plain parameter, expected a plain tensor",
}


@pytest.mark.parametrize("how", REFUSED)
def test_spoiled_state_is_refused_on_all_ranks_and_nothing_is_lost(how):
    found = ranks(2)(refuses, WHOLE if "plain parameter" in how else FSDP2, how)
    assert found[0] == found[1] and re.search(REFUSED[how], found[0]), found


# ---- codes -------------------------------------------------------------------------------------------


def coded(function, path, world, *how):
    return ranks(world)(function, path, world, *how)[0] if world else function(path, world, *how)


def same_bits(found, expected):
    return all(same(slot[name], other[name]) for slot, other in zip(found, expected, strict=True) for name in other)


@pytest.mark.parametrize("momentum_dtype", ["int8", "int4"])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
@pytest.mark.parametrize("source, target", [(4, 4), (4, 3), (4, 2), (4, WHOLE), (WHOLE, 4)])
def test_codes_move_between_rows_bit_for_bit(source, target, algorithm, momentum_dtype, tmp_path):
    """Sums over columns are in f32 on each rank: with another number of ranks, statistics of factored optimizers differ in their last bits
    after a step.  Where each rank has its elements for itself, nothing does."""
    how = torch.float32, algorithm, momentum_dtype
    written, expected = coded(write_codes, str(tmp_path), source, *how)
    read, found = coded(read_codes, str(tmp_path), target, *how)
    assert same_bits(read, written)
    if source == target or algorithm in ("adam", "adamw"):
        assert same_bits(found, expected)


@pytest.mark.parametrize("momentum_dtype", ["int8", "int4"])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
@pytest.mark.parametrize("source, target", [(4, 3), (3, WHOLE)])
def test_training_with_codes_goes_on_as_if_never_stopped(source, target, algorithm, momentum_dtype, tmp_path):
    """In f64, sums in another order change a code with a chance of some 1e-14 each."""
    how = torch.float64, algorithm, momentum_dtype
    _, expected = coded(write_codes, str(tmp_path), source, *how)
    _, found = coded(read_codes, str(tmp_path), target, *how)
    for k, (slot, other) in enumerate(zip(found, expected, strict=True)):
        moved = (other[""] - start(TENSORS[k][0], k)).abs().max()
        assert (slot[""] - other[""]).abs().max() <= TOLERANCE * moved
        assert same(slot["exp_avg"], other["exp_avg"]) or slot["exp_avg"].dtype.is_floating_point
