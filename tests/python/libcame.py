"""libcame's plans for tests and benchmarks: arrays of numpy or torch in, optimizer steps out; on came_optim.native.

The library is the one that CAME_LIBRARY names.
"""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from came_optim import native
from came_optim.native import AUTO, CPU, CUDA, REFERENCE

__all__ = ["AUTO", "CPU", "CUDA", "REFERENCE", "Plan", "Stepper"]


def _address(array):
    return array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data


def _dtype(array):
    """The name of an array's element type; torch's have a prefix that numpy's have not."""
    return str(array.dtype).replace("torch.", "")


class Plan:
    """One plan over `params`, which it steps in place; state and buffers come from `zeros(shape, dtype name)`, which
    allocates on the device of `params`."""

    def __init__(self, word, params, backend, zeros, **options):
        self.options, self.params = native.options(word, **options), params
        specs = [native.Spec(tuple(p.shape), _dtype(p)) for p in params]
        on_cuda = bool(params) and getattr(params[0], "is_cuda", False)
        self.plan = native.Plan([self.options], specs, backend, params[0].get_device() if on_cuda else 0)
        self.memory = self.plan.memory
        self.state, self._flat = [{} for _ in params], []
        for state in self.plan.states:
            self._flat.append(zeros(state.shape, state.dtype))
            self.state[state.tensor][state.name] = self._flat[-1]
        self.buffers = [zeros((-(-n // 8),), "float64") for n in (self.memory.workspace_bytes, self.memory.reduction_bytes)]
        self._count = zeros((len(params),), "int64")
        self._place = native.ON_CUDA if on_cuda else native.ON_HOST

    def bind(self, grads, lr=None):
        """What one step reads and writes, for any number of runs; a CUDA stream goes into `run`."""
        call = native.Call(self.plan)
        for table, arrays in ((call.params, self.params), (call.grads, grads), (call.states, self._flat)):
            table.data = [_address(a) for a in arrays]
        call.set_host_lr([self.options.lr if lr is None else lr])
        call.set_scalar("step", _address(self._count), "int64", self._place)
        call.set_buffers(*map(_address, self.buffers))
        call.keep = grads
        return call


class Stepper(Plan):
    """Copies of numpy arrays on the backend that CAME_TEST_BACKEND names, the reference if none; `step(grads)` advances
    `self.params` in place."""

    def __init__(self, word, params, **options):
        backend = {"cpu": CPU, "reference": REFERENCE}[os.environ.get("CAME_TEST_BACKEND", "reference")]
        super().__init__(word, [np.array(p, copy=True, order="C") for p in params], backend, np.zeros, **options)

    def step(self, grads, lr=None):
        self.bind([np.asarray(g, order="C") for g in grads], lr).run()
