"""One step of every optimizer on numpy buffers, without torch; run by any Python from 3.9 on: native_smoke.py.

Prints "ok" and a checksum of the parameters, which is the same everywhere.
"""

import sys

sys.modules["torch"] = None  # importing it is an error from here on

import numpy as np

from came_optim import estimate, native


def step(word, params, grads, steps=3, **options):
    plan = native.Plan(
        [native.options(word, **options)],
        [native.Spec(p.shape, str(p.dtype), id=k) for k, p in enumerate(params)],
    )
    call = native.Call(plan)
    states = [np.zeros(s.shape, s.dtype) for s in plan.states]
    count = np.zeros(len(params))
    buffers = [np.zeros(-(-size // 8)) for size in (plan.memory.workspace_bytes, plan.memory.reduction_bytes)]
    call.params.data = [p.ctypes.data for p in params]
    call.grads.data = [g.ctypes.data for g in grads]
    call.states.data = [s.ctypes.data for s in states]
    call.set_scalar("step", count.ctypes.data)
    call.set_buffers(*(b.ctypes.data for b in buffers))
    for _ in range(steps):
        call.set_host_lr([0.1])
        call.run()
    assert list(count) == [steps] * len(params)


def main():
    total = 0.0
    for word in native.ALGORITHMS:
        for momentum in ("f32", "bf16", "int8", "int4"):
            params = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.ones(5, np.float32)]
            if momentum == "bf16":
                continue  # numpy has no such type to allocate
            grads = [np.cos(p).astype(np.float32) for p in params]
            before = [g.copy() for g in grads]
            step(word, params, grads, momentum_dtype=momentum)
            assert all(np.isfinite(p).all() for p in params)
            assert all((g == b).all() for g, b in zip(grads, before))
            total += sum(float(np.abs(p).sum(dtype=np.float64)) for p in params)
    assert "came" in str(estimate([(4, 3)], "came"))
    try:
        native.Plan([native.options("came")], [native.Spec((2,), "int64")])
    except ValueError as error:
        assert "expected f64, f32, bf16 or f16" in str(error)
    else:
        raise AssertionError("a parameter of integers was taken")
    print("ok", f"{total:.9f}")


main()
