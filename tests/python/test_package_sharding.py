"""DTensors step as whole tensors do: every placement on meshes of one, two and three dimensions."""

import pytest
from ranks import ranks
from sharded import CASES, OPTIONS, R, S0, S1, S2, compare

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


def ids(case):
    algorithm, k = case
    return f"{algorithm}-{'-'.join(OPTIONS[algorithm][k]) or 'default'}"


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_one_dimension(world, case):
    algorithm, k = case
    apart = ranks(world)(compare, (world,), ONE, algorithm, OPTIONS[algorithm][k], 25, (1,))
    assert max(apart) <= TOLERANCE
