"""Checkpoints of sharded training: what some ranks wrote, others read, in other shardings, and train on as if nothing had been."""

from functools import lru_cache

import pytest
import sharded_checkpoints
from ranks import ranks
from sharded_checkpoints import CASES, straight
from sharded_models import apart

# Sums in f64 are added up in another order; see test_package_sharding.py.
TOLERANCE = 1e-10
WHOLE = None
FSDP4, FSDP3, FSDP2 = (("fsdp", (world,)) for world in (4, 3, 2))
TP2, BOTH, HYBRID = ("tp", (2,)), ("fsdp_tp", (2, 2)), ("hsdp", (2, 2))


def on(layout, function, *arguments):
    """function(...) on the ranks of a layout; what the first returned."""
    if layout is WHOLE:
        return getattr(sharded_checkpoints, function)(*arguments)
    world = layout[1][0] * (layout[1][1] if len(layout[1]) > 1 else 1)
    return ranks(world)(getattr(sharded_checkpoints, function), *arguments)[0]


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


@pytest.mark.parametrize("momentum_dtype", [None, "bf16"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", [FSDP4, FSDP3, FSDP2, WHOLE], ids=str)
def test_four_ranks_write_and_others_read(written, target, case, momentum_dtype):
    assert moved(written, case, FSDP4, target, momentum_dtype) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("source, target", [(WHOLE, FSDP4), (WHOLE, FSDP3), (FSDP3, FSDP4), (FSDP2, TP2), (TP2, FSDP2), (BOTH, FSDP3), (FSDP4, BOTH), (HYBRID, TP2)], ids=str)
def test_checkpoints_move_between_shardings(written, source, target, case):
    assert moved(written, case, source, target) <= TOLERANCE
