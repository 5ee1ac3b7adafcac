"""DTensors step as whole tensors do: every placement on meshes of one, two and three dimensions; models under FSDP2, HSDP and tensor parallelism."""

from math import prod

import pytest
from ranks import ranks
from sharded import CASES, OPTIONS, R, S0, S1, S2, compare, version_counters
from sharded_models import beside_one_process

# Sums in f64 are added up in another order; a step moves an element by less than ten of these times the largest displacement.
TOLERANCE = 1e-10

# (shape, placements): sizes that divide nothing, empty parts, a convolution, experts, one element, a parameter that is not split.
ONE = [
    ((13, 11), [S0]),
    ((13, 11), [S1]),
    ((13, 11), [R]),
    ((13, 11), None),
    ((2, 300), [S0]),
    ((70, 65), [S0]),
    ((70, 66), [S1]),
    ((7, 4, 3, 3), [S0]),
    ((3, 8, 9), [S0]),
    ((3, 65, 64), [S0]),
    ((31,), [S0]),
    ((1,), [S0]),
    ((5,), [R]),
    ((), [R]),
    ((0, 5), [S0]),
]
TWO = [
    ((13, 11), [S0, R]),
    ((13, 11), [R, S0]),
    ((13, 11), [R, S1]),
    ((13, 11), [S0, S1]),
    ((70, 65), [S1, S0]),
    ((13, 11), [S0, S0]),
    ((12, 8), [S0, S0]),
    ((13, 11), [R, R]),
    ((13, 11), None),
    ((3, 65, 64), [S0, S1]),
    ((3, 66, 64), [S0, S2]),
    ((3, 65, 64), [R, S1]),
    ((31,), [S0, R]),
    ((31,), [S0, S0]),
    ((1,), [R, S0]),
    ((), [R, R]),
]
THREE = [
    ((13, 11), [R, S0, S1]),
    ((13, 11), [S0, R, R]),
    ((4, 65, 64), [S0, S1, S2]),
    ((4, 65, 64), [S0, S0, S1]),
    ((13, 5), [S1, S0, R]),
    ((16,), [S0, S0, S0]),
    ((9,), [R, R, S0]),
]
MODELS = [("fsdp", (2,)), ("fsdp", (3,)), ("fsdp", (4,)), ("tp", (2,)), ("tp", (4,)), ("hsdp", (2, 2)), ("fsdp_tp", (2, 2))]


def ids(case):
    algorithm, k = case
    return f"{algorithm}-{'-'.join(OPTIONS[algorithm][k]) or 'default'}"


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_one_dimension(world, case):
    algorithm, k = case
    apart = ranks(world)(compare, (world,), ONE, algorithm, OPTIONS[algorithm][k], 25, (1,))
    assert max(apart) <= TOLERANCE


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_two_dimensions(case):
    algorithm, k = case
    assert max(ranks(4)(compare, (2, 2), TWO, algorithm, OPTIONS[algorithm][k], 25, (2,))) <= TOLERANCE


@pytest.mark.parametrize("algorithm", OPTIONS)
def test_three_dimensions(algorithm):
    """Of eight ranks, and of four on a mesh with a dimension of size one."""
    for world, mesh in ((4, (2, 1, 2)), (8, (2, 2, 2))):
        assert max(ranks(world)(compare, mesh, THREE, algorithm, OPTIONS[algorithm][-1], 25)) <= TOLERANCE


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize(("kind", "mesh"), MODELS, ids=str)
def test_models(kind, mesh, case):
    algorithm, k = case
    assert max(ranks(prod(mesh))(beside_one_process, kind, mesh, algorithm, OPTIONS[algorithm][k])) <= TOLERANCE


def test_autograd_sees_that_parameters_were_written():
    assert ranks(2)(version_counters) == [1, 1]
