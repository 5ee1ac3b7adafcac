"""The differential fuzzer in small: every kept case again, then some hundred drawn from a fixed seed.

CAME_DIFFERENTIAL_BACKEND says which backend steps plans: cpu, or emulated, the CUDA backend on the host.  The package has no
emulated device.  tests/differential/run does the same for as long as one likes.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzz
import plan
from oracle import Wrong

from came_optim.native import ALGORITHMS

BACKEND = os.environ.get("CAME_DIFFERENTIAL_BACKEND", "cpu")
EMULATED = BACKEND == "emulated"
CASES = {"plan": 150 if EMULATED else 600, "package": 300}
LEVELS = ["plan"] if EMULATED else ["plan", "package"]
KEPT = [path for path in sorted(fuzz.KEPT.glob("*.json")) if json.loads(path.read_text())["level"] in LEVELS]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_failed_holds(path):
    fuzz.replay(path, BACKEND)


@pytest.mark.parametrize("level", LEVELS)
def test_drawn_cases_hold(level):
    fuzzer = fuzz.Fuzzer(level, BACKEND)
    try:
        fuzzer.batch(1, CASES[level])
    except Exception:
        if fuzzer.failing is not None:
            print(fuzz.text_of(fuzzer.failing[0]))
        raise
    # A fuzzer that looks at nothing finds nothing.
    assert fuzzer.seen["refused"] < fuzzer.seen["cases"] / 5, fuzzer.reason
    assert fuzzer.tally["free"] < fuzzer.tally["checked"] / 4
    assert all(fuzzer.seen[word] > 0 for word in ALGORITHMS)


def stepped(word, options):
    """A plan of one matrix after two steps, and the images before and after the second."""
    tensors = [{"shape": [5, 7], "dtype": "float32", "family": "normal", "power": 0}]
    step = {"seed": 3, "power": 0, "lr": 1e-3}
    case = {"level": "plan", "optimizer": word, "options": [options], "tensors": tensors, "seed": 1, "steps": [step]}
    rank = plan.Rank(case, BACKEND)
    rank.params[0].array[...] = plan.numbers_of.parameter(tensors[0], 0, 1)
    images = []
    for number in range(3):
        rank.grads[0].array[...] = plan.numbers_of.gradient(tensors[0], 0, {**step, "seed": number}, number)
        rank.prepare(step)
        images.append(rank.image())
        rank.run()
    return case, rank, step, images[-1], rank.image()


@pytest.mark.parametrize("options", [{}, {"momentum_dtype": "int8"}, {"momentum_dtype": "int4"}, {"momentum_dtype": "bf16"}], ids=str)
@pytest.mark.parametrize("word", ALGORITHMS)
def test_the_oracle_notices_any_number_that_is_a_little_off(word, options):
    """By a hundred-thousandth of f32 numbers, two units of bf16, two codes: in each array that a step writes."""
    case, rank, step, before, after = stepped(word, options)
    tally = {"checked": 0, "free": 0}
    plan.judge(case, rank, step, before, after, False, tally)
    assert tally["free"] == 0
    for k, array in enumerate(after):
        spoilt = [a.copy() for a in after]
        flat = spoilt[k].reshape(-1)
        if array.dtype.kind == "f":
            flat[0] = flat[0] * (1 + 1e-5) if flat[0] else 1e-3
        elif array.dtype == np.uint8:  # two codes of 4 bits: the low one to the other end
            flat[0] ^= 7
        else:
            flat[0] = flat[0] + 2 if flat[0] < 100 else flat[0] - 2
        with pytest.raises(Wrong):
            plan.judge(case, rank, step, before, spoilt, False, tally)
