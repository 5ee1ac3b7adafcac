"""Checksums of what optimizers leave: has a change kept every bit?

    PYTHONPATH=python:tests/differential .venv/bin/python tests/differential/same_bits.py > before    with one build,
    ...                                                                                     > after     with another; then diff

Every optimizer, with its defaults and with every option in turn, over every type of parameter and gradient, takes 50 steps (--steps) over
tensors of all kinds: matrices of one tile and of many, wide and tall ones, batches, vectors, none at all; cut over ranks, too.
A line is a case and the checksum of parameters, state and counters.  Two machines may differ in their last bit; two builds on one may not.
"""

import argparse
import hashlib
import os
import re
import sys
from multiprocessing import get_context

from came_optim.native import ALGORITHMS

SHAPES = [[7], [], [64, 64], [129, 65], [3, 1100], [900, 3], [2, 33, 20], [4, 3, 3, 5], [40, 8, 6], [0, 5], [1, 2048], [140, 1030]]
TYPES = [("float32", None), ("float64", None), ("bfloat16", None), ("float16", None), ("bfloat16", "float32"), ("float32", "bfloat16")]
CUTS = [[[0, [100]]], [[1, [300]]], [[0, [70]], [1, [300, 500]]]]
MOMENTS = [{"momentum_dtype": dtype} for dtype in ("bf16", "int8", "int4")]
COMMON = [{"weight_decay": 0.1}, {"max_grad_norm": 0.5}, {"maximize": 1}, {"stochastic_rounding": 1, "seed": 7}, {"beta1": 0.3}]
FACTORED = [{"view": "fold"}, {"view": "last_two"}]
ADAM = [*MOMENTS, {"second_moment_dtype": "int8"}, {"cautious": 1}, {"eps": 1e-3}, {"beta2": 0.2}]
OPTIONS = {
    "came": [*MOMENTS, *FACTORED, {"bias_correction": 0}, {"confidence_1d": 1}, {"cautious": 1}, {"clip_threshold": 0.1}, {"beta2": 0.2}, {"beta3": 0.3}],
    "adafactor": [
        *MOMENTS, *FACTORED, {"beta1": 0.0}, {"cautious": 1}, {"clip_threshold": 0.1}, {"beta2_decay": -0.8}, {"scale_parameter": 1}, {"lr_in_momentum": 1},
        {"relative_step": 1}, {"relative_step": 1, "warmup_init": 1},
    ],
    "adam": ADAM,
    "adamw": ADAM,
    "lamb": [*[o for o in ADAM if "cautious" not in o], {"bias_correction": 0}],
    "sm3": [*MOMENTS, *FACTORED, {"beta1": 0.0}, {"cautious": 1}],
}


def cases():
    for word in ALGORITHMS:
        for options in [{}, *COMMON, *OPTIONS[word]]:
            stores = not options or "momentum_dtype" in options or "stochastic_rounding" in options
            for dtype, grad_dtype in TYPES if stores else TYPES[:3]:
                cuts = CUTS if dtype == "float32" and grad_dtype is None and (stores or "max_grad_norm" in options) else []
                for cut in [None, *cuts]:
                    yield {
                        "optimizer": word,
                        "options": [options],
                        "tensors": [
                            {"shape": shape, "dtype": dtype, "grad_dtype": grad_dtype or dtype} for shape in ([[150, 520]] if cut else SHAPES)
                        ],
                        "cut": cut,
                    }


def name_of(case):
    options = ",".join(f"{k}={v}" for k, v in case["options"][0].items()) or "defaults"
    tensor = case["tensors"][0]
    return f"{case['optimizer']}/{options}/{tensor['dtype']}/{tensor['grad_dtype']}/{case['cut'] or 'whole'}".replace(" ", "")


def checksum(job):
    """Of all that a step may write, after the last one; or why the library takes no such plan."""
    import numpy as np

    import formats
    import plan

    case, backend, steps = job
    try:
        whole = plan.Rank(case, backend)
        ranks = plan.Ranks(case, backend, whole) if case["cut"] else None
    except plan.Refused as refusal:
        return name_of(case), f"refused: {refusal}"
    random = np.random.default_rng(3)

    def drawn(blocks, scale):
        return [formats.store(random.standard_normal(block.array.shape) * scale, block.dtype) for block in blocks]

    def fill(blocks, arrays):
        for block, array in zip(blocks, arrays):
            block.array[...] = array

    fill(whole.params, drawn(whole.params, 1.0))
    image = whole.image()
    gradients = [drawn(whole.grads, scale) for scale in (1e-2, 1e-3, 3e-2)]
    for number in range(steps):
        fill(whole.grads, gradients[number % len(gradients)])
        step = {"lr": 1e-2 if number % 2 else 1e-3}
        if ranks is not None and ranks.comparable:
            image = ranks.step(step, image)
        else:
            whole.prepare(step)
            whole.run(2)
    image = image if ranks is not None and ranks.comparable else whole.image()
    digest = hashlib.sha256()
    for array in image:
        digest.update(array.tobytes())
    return name_of(case), digest.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("cpu", "emulated", "reference"), default="cpu")
    parser.add_argument("--only", default="", help="cases whose name has this regular expression")
    parser.add_argument("--steps", type=int, default=50, help="on the emulated device 50 take an hour")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    from main import choose_library

    choose_library("emulated" if options.backend == "emulated" else "cpu")
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    chosen = [(case, options.backend, options.steps) for case in cases() if re.search(options.only, name_of(case))]
    with get_context("spawn").Pool(options.jobs) as pool:
        for name, text in pool.imap(checksum, chosen):
            print(name, text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
