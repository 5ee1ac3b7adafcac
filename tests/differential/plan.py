"""Cases at the level of the C interface: a backend steps raw memory, and the oracle judges every number it leaves.

A kernel backend and the f64 reference step from the same bytes at every step, in a plan of whole tensors and, where the case cuts
its first tensor, in one plan per rank.  Bits must not depend on the number of threads, nor on the processor's mode for denormal
numbers, nor on where buffers lie; nothing but what a step writes may change.
"""

import ctypes
from functools import lru_cache
from itertools import product

import numpy as np

import numbers_of
import oracle
from ball import arithmetic_of
from came_optim import native
from came_optim.library import check, library
from formats import STORAGE
from oracle import Wrong

BACKENDS = {"cpu": native.CPU, "reference": native.REFERENCE, "emulated": native.CUDA}
GUARD, PATTERN = 64, 0xA5


class Refused(Exception):
    """The library does not take the case's options, and says why."""


@lru_cache(maxsize=None)
def _openmp():
    return ctypes.CDLL("libgomp.so.1")


def _wait(backend):
    if backend == native.CUDA and library().came_emulated_wait():
        raise Wrong("the emulated device could not finish")


def aligned(shape, dtype, shift=0):
    """Zeroed numbers between guards, `shift` elements from a multiple of 64 bytes."""
    dtype = STORAGE[dtype]
    size = int(np.prod(shape, dtype=np.int64)) * dtype().itemsize
    raw = np.full(size + 4 * GUARD + 64, PATTERN, np.uint8)
    begin = GUARD + (-(raw.ctypes.data + GUARD)) % 64 + shift * dtype().itemsize
    view = raw[begin : begin + size]
    view[:] = 0
    return raw, begin, view.view(dtype).reshape(shape)


class Block:
    """A buffer with guards around it."""

    def __init__(self, shape, dtype, shift=0):
        self.dtype, (self.raw, self.begin, self.array) = dtype, aligned(shape, dtype, shift)

    def intact(self):
        end = self.begin + self.array.nbytes
        return (self.raw[: self.begin] == PATTERN).all() and (self.raw[end:] == PATTERN).all()


class Rank:
    """One plan with its memory: all tensors whole, or the first one's part of a rank."""

    def __init__(self, case, backend, box=None):
        self.case, self.backend, self.box = case, BACKENDS[backend], box
        self.device = native.ON_CUDA if self.backend == native.CUDA else native.ON_HOST
        self.options = [native.options(case["optimizer"], **group) for group in case["options"]]
        specs = [
            native.Spec(tuple(t["shape"]), t["dtype"], t.get("grad_dtype"), t.get("group", 0), f"t{k}", k)
            for k, t in enumerate(case["tensors"])
        ]
        request = native._Request(self.options, specs)
        if box is not None:
            split, offset, extent = box
            self._kept = native._sizes(offset), native._sizes(extent)
            spec = request.specs[0]
            spec.split_dims, spec.shard_offset, spec.shard_extent = split, *self._kept
            spec.matrix_group = 1
        self.handle = ctypes.c_void_p()
        try:
            check(library().came_plan_create(*request.arguments, self.backend, 0, ctypes.byref(self.handle)))
        except (ValueError, NotImplementedError) as error:
            raise Refused(str(error)) from None
        self.memory = native.Memory()
        check(library().came_plan_memory(self.handle, ctypes.byref(self.memory)))
        self._read_states()
        shift = case.get("shift", 0)
        locals_ = [tuple(box[2]) if box and k == 0 else spec.shape for k, spec in enumerate(specs)]
        self.params = [Block(shape, s.dtype, shift) for shape, s in zip(locals_, specs)]
        self.grads = [Block(shape, s.grad_dtype or s.dtype, shift) for shape, s in zip(locals_, specs)]
        self.states = [Block(s.shape, s.dtype, shift if s.dtype in numbers_of.LARGEST else 0) for s in self.infos]
        self.counts = Block((len(specs),), case.get("counter_dtype", "int64"))
        self.counts.array[:] = case.get("count", 0)
        sizes = self.memory.workspace_bytes, self.memory.reduction_bytes
        self.buffers = [Block((-(-size // 8),), "float64") for size in sizes]
        self._bind()

    def __del__(self):
        if getattr(self, "handle", None):
            library().came_plan_destroy(self.handle)

    def _read_states(self):
        count, info = ctypes.c_int64(), native.StateInfo()
        check(library().came_plan_state_count(self.handle, ctypes.byref(count)))
        self.infos, self.places = [], []
        for k in range(count.value):
            check(library().came_plan_state(self.handle, ctypes.c_int64(k), ctypes.byref(info)))
            shape, whole, offset = (tuple(x[: info.ndim]) for x in (info.shape, info.whole_shape, info.offset))
            dims = tuple(info.dims[: len(self.case["tensors"][info.tensor]["shape"])])
            self.infos.append(native.State(info.tensor, info.name.decode(), shape, native.DTYPE_NAMES[info.dtype], dims, whole, offset))
            self.places.append((whole, offset))

    def view(self, k):
        seen = native.MatrixView()
        check(library().came_plan_view(self.handle, ctypes.c_int64(k), ctypes.byref(seen)))
        return bool(seen.factored), seen.batch, seen.rows, seen.cols

    def _bind(self):
        tables = []
        for blocks in (self.params, self.grads, self.states):
            shapes, dtypes = [b.array.shape for b in blocks], [b.dtype for b in blocks]
            table = native.Table(shapes, dtypes, self.device, 0)
            table.data = [b.array.ctypes.data for b in blocks]
            tables.append(table)
        self.tables = tables
        self.step = native.Step(
            tensor_count=len(self.params),
            params=tables[0].tensors,
            grads=tables[1].tensors,
            state_count=len(self.states),
            states=tables[2].tensors,
        )
        for name, block in zip(("workspace", "reductions"), self.buffers):
            setattr(self.step, name, block.array.ctypes.data)
            setattr(self.step, name.removesuffix("s") + "_bytes", block.array.nbytes)

    def _scalar(self, name, array, dtype):
        place = self.device if self.case.get("scalars") == "device" or name == "step" else native.ON_HOST
        self._sizes = getattr(self, "_sizes", {})
        self._sizes[name] = native._sizes(array.shape)
        made = native.Tensor(native.DTYPES[dtype], array.ctypes.data, self._sizes[name], 1, place, 0, 0)
        setattr(self.step, name, ctypes.pointer(made))

    def image(self):
        """Copies of all that a step may write."""
        return [b.array.copy() for b in (*self.params, *self.states, self.counts)]

    def restore(self, image):
        for block, saved in zip((*self.params, *self.states, self.counts), image):
            block.array[...] = saved

    def prepare(self, step):
        """Scalars of a step; scratch holds NaNs."""
        self._lr = np.array([step["lr"]] * len(self.options), np.float64)
        self._scalar("step", self.counts.array, self.counts.dtype)
        self._scalar("lr", self._lr, "float64")
        for name in ("grad_scale", "found_inf"):
            value = step.get(name)
            setattr(self, "_" + name, np.array([0.0 if value is None else value], np.float64))
            if value is None:
                setattr(self.step, name, None)
            else:
                self._scalar(name, getattr(self, "_" + name), "float64")
        active = step.get("active")
        self._active = (ctypes.c_uint8 * len(self.params))(*map(int, active or []))
        self.step.active = ctypes.addressof(self._active) if active else None
        for block in self.buffers:
            block.array[:] = np.nan

    def run(self, threads=1):
        if self.backend == native.CPU:
            _openmp().omp_set_num_threads(threads)
        check(library().came_plan_step(self.handle, ctypes.byref(self.step)))
        _wait(self.backend)

    def phases(self):
        count = ctypes.c_int32()
        check(library().came_plan_phase_count(self.handle, ctypes.byref(count)))
        return count.value

    def run_phase(self, phase):
        check(library().came_plan_run_phase(self.handle, phase, ctypes.byref(self.step)))
        _wait(self.backend)

    def reduction(self, phase, group):
        """The doubles that the ranks of a group combine after a phase, and how."""
        made = native.ReductionInfo()
        check(library().came_plan_reduction(self.handle, phase, group, ctypes.byref(made)))
        return self.buffers[1].array[made.offset : made.offset + made.count], made.op

    def check_guards(self, grads):
        for what, blocks in (("parameter", self.params), ("gradient", self.grads), ("state", self.states), ("scratch", self.buffers)):
            for k, block in enumerate(blocks):
                if not block.intact():
                    raise Wrong(f"memory beside {what} {k} was written")
        for k, (block, saved) in enumerate(zip(self.grads, grads)):
            if block.array.tobytes() != saved:
                raise Wrong(f"gradient {k} was written")


# ---- judging ------------------------------------------------------------------------------------------


def memory_of(case, rank, image, k):
    """Numbers of one tensor by name, from an image of a plan of whole tensors."""
    n = len(case["tensors"])
    named = {"param": (image[k], rank.params[k].dtype), "grad": (rank.grads[k].array, rank.grads[k].dtype)}
    for s, info in enumerate(rank.infos):
        if info.tensor == k:
            named[info.name] = (image[n + s], info.dtype)
    return named


def judge(case, rank, step, before, after, exact, tally):
    """Raises Wrong unless `after` is what a step may make of `before`; both are images of a plan of whole tensors."""
    n, skipped, active = len(case["tensors"]), bool(step.get("found_inf")), step.get("active")
    counts = [before[-1][k] + (not skipped and (active is None or active[k])) for k in range(n)]
    if list(after[-1]) != counts:
        raise Wrong(f"counters are {list(after[-1])}, expected {counts}")
    going = [k for k in range(n) if not skipped and (active is None or active[k])]
    scale = 1.0 if step.get("grad_scale") is None else step["grad_scale"]
    stored = [(rank.grads[k].array, rank.grads[k].dtype) for k in going]
    grads = [oracle.gradient(g, arithmetic_of(case["tensors"][k], exact, rank.device == native.ON_CUDA)) for g, k in zip(stored, going)]
    for k in range(n):
        old, new = (memory_of(case, rank, image, k) for image in (before, after))
        tensor = case["tensors"][k]
        if k not in going or 0 in tensor["shape"]:
            for name in old:
                if old[name][0].tobytes() != new[name][0].tobytes():
                    raise Wrong(f"tensor {k}: {name} was written, though the step leaves it alone")
            continue
        o = rank.options[tensor.get("group", 0)]
        factor = oracle.gradient_factor(o, scale, grads)
        a = arithmetic_of(tensor, exact, rank.device == native.ON_CUDA)
        s = oracle.Subject(o, rank.view(k), old, new, a, step["lr"], int(counts[k]), k, factor)
        try:
            with np.errstate(all="ignore"):
                oracle.STEPS[case["optimizer"]](s)
        except Wrong as error:
            raise Wrong(f"tensor {k} {tensor['shape']} {tensor['dtype']}: {error}") from None
        finally:
            tally["checked"] += s.checked
            tally["free"] += s.free


# ---- ranks --------------------------------------------------------------------------------------------


def boxes(shape, cut):
    """The parts of a shape that is cut at points along some dimensions: (split_dims, offset, extent) each."""
    ranges = [[(0, size)] for size in shape]
    for d, points in cut:
        ends = [0, *sorted(min(p, shape[d]) for p in points), shape[d]]
        ranges[d] = [(a, b - a) for a, b in zip(ends, ends[1:])]
    split = sum(1 << d for d, _ in cut)
    return [(split, [a for a, _ in box], [n for _, n in box]) for box in product(*ranges)]


def _slices(offset, shape):
    return tuple(slice(a, a + n) for a, n in zip(offset, shape))


def _combine(parts):
    combine = np.maximum.reduce if parts[0][1] else np.add.reduce
    with np.errstate(all="ignore"):
        total = combine([values for values, _ in parts])
    for values, _ in parts:
        values[:] = total


class Ranks:
    """The plans of all ranks of a case that cuts its first tensor; reductions are combined here."""

    def __init__(self, case, backend, whole):
        self.whole = whole
        self.ranks = [Rank(case, backend, box) for box in boxes(case["tensors"][0]["shape"], case["cut"])]
        same_matrices = {}
        for rank in self.ranks:
            same_matrices.setdefault((*rank.box[1][:-2], *rank.box[2][:-2]), []).append(rank)
        self.groups = [[self.ranks], list(same_matrices.values())]  # reduce_group, matrix_group
        self.comparable = all(
            place[0] == info.shape for rank in self.ranks for place, info in zip(rank.places, whole.infos)
        )

    def _spread(self, rank, image):
        """What of an image of whole tensors a rank holds."""
        n, parts = len(rank.params), []
        for k, (block, saved) in enumerate(zip((*rank.params, *rank.states, rank.counts), image)):
            if k == 0:
                parts.append(_slices(rank.box[1], rank.box[2]))
            elif n <= k < n + len(rank.states) and rank.infos[k - n].tensor == 0:
                parts.append(_slices(rank.places[k - n][1], block.array.shape))
            else:
                parts.append(())
        return parts

    def step(self, step, before):
        """Runs a step from an image of whole tensors; returns one of what all ranks have made of it."""
        after = [array.copy() for array in before]
        for rank in self.ranks:
            for part, block, saved in zip(self._spread(rank, before), (*rank.params, *rank.states, rank.counts), before):
                block.array[...] = saved[part]
            for k, (block, grad) in enumerate(zip(rank.grads, self.whole.grads)):
                block.array[...] = grad.array[_slices(rank.box[1], rank.box[2])] if k == 0 else grad.array
            rank.prepare(step)
        saved = [[block.array.tobytes() for block in rank.grads] for rank in self.ranks]
        for phase in range(self.ranks[0].phases()):
            for rank in self.ranks:
                rank.run_phase(phase)
            for group, sets in enumerate(self.groups):
                for ranks in sets:
                    _combine([rank.reduction(phase, group) for rank in ranks])
        for rank, grads in zip(self.ranks, saved):
            rank.check_guards(grads)
            for k, (part, block) in enumerate(zip(self._spread(rank, before), (*rank.params, *rank.states, rank.counts))):
                after[k][part] = block.array
        return after


# ---- a whole case -------------------------------------------------------------------------------------


def run(case, backend="cpu", tally=None):
    """Steps a case on a backend and on the reference; raises Wrong, or Refused where the library takes no such plan."""
    tally = {"checked": 0, "free": 0} if tally is None else tally
    kernel, exact = Rank(case, backend), Rank(case, "reference")
    ranks = None
    if case.get("cut"):
        try:
            ranks = Ranks(case, backend, kernel)
        except Refused:
            tally["uncut"] = tally.get("uncut", 0) + 1
    for k, t in enumerate(case["tensors"]):
        kernel.params[k].array[...] = numbers_of.parameter(t, k, case["seed"])
    for number, step in enumerate(case["steps"]):
        for k, t in enumerate(case["tensors"]):
            for side in (kernel, exact):
                side.grads[k].array[...] = numbers_of.gradient(t, k, step, number)
        try:
            _step(case, step, kernel, exact, ranks, tally)
        except Wrong as error:
            raise Wrong(f"step {number}: {error}") from None


def _step(case, step, kernel, exact, ranks, tally):
    before, grads = kernel.image(), [block.array.tobytes() for block in kernel.grads]
    after = _kernel_step(case, step, kernel, before)
    kernel.check_guards(grads)
    exact.restore(before)
    exact.prepare(step)
    exact.run()
    for name, image, precise in (("reference", exact.image(), True), ("kernels", after, False)):
        try:
            judge(case, kernel, step, before, image, precise, tally)
        except Wrong as error:
            raise Wrong(f"{name}: {error}") from None
    if ranks is not None and ranks.comparable:
        try:
            judge(case, kernel, step, before, ranks.step(step, before), False, tally)
        except Wrong as error:
            raise Wrong(f"ranks: {error}") from None
    kernel.restore(after)


def _kernel_step(case, step, kernel, before):
    """The kernels' step, taken twice in different circumstances that must not matter."""
    threads, flush = case.get("threads", 1), case.get("flush", False) and kernel.backend == native.CPU
    kernel.prepare(step)
    if flush:
        _flush(True)
    try:
        kernel.run(threads)
        if flush and not _flushes():
            raise Wrong("the caller's mode for denormal numbers was changed")
    finally:
        if flush:
            _flush(False)
    after = kernel.image()
    if threads > 1 or flush:
        kernel.restore(before)
        kernel.prepare(step)
        kernel.run(1)
        for k, (one, other) in enumerate(zip(after, kernel.image())):
            if one.tobytes() != other.tobytes():
                raise Wrong(f"array {k} has other bits with {threads} threads{', flushing denormals' if flush else ''}")
    return after


def _flush(on):
    import torch

    torch.set_flush_denormal(on)


def _flushes():
    return float(np.float32(1e-40) * np.float32(1)) == 0.0
