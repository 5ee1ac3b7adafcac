"""libcame's C ABI for Python: structs, options, plans, and the tables of pointers that a step reads.

Knows no framework: memory comes as addresses, types as names ("float32"), so that numpy, torch and plain ctypes buffers do
alike.  include/came/came.h says what everything means.

>>> import array
>>> plan = Plan([options("adamw", lr=0.5)], [Spec((3,), "float32")])
>>> [(state.name, state.shape, state.dtype) for state in plan.states]
[('exp_avg', (3,), 'float32'), ('exp_avg_sq', (3,), 'float32')]
>>> param, grad, *moments = (array.array("f", [1, 1, 1]) for _ in range(4))
>>> for moment in moments: moment[:] = array.array("f", [0, 0, 0])
>>> address = lambda buffer: buffer.buffer_info()[0]
>>> count, scratch = array.array("f", [0]), array.array("d", bytes(plan.memory.workspace_bytes))
>>> call = Call(plan)
>>> call.params.data, call.grads.data = [address(param)], [address(grad)]
>>> call.states.data = [address(moment) for moment in moments]
>>> call.set_scalar("step", address(count), "float32")
>>> call.set_buffers(address(scratch), 0)
>>> call.run()
>>> print([round(x, 3) for x in param], count)
[0.495, 0.495, 0.495] array('f', [1.0])
"""

import ctypes
from array import array
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .library import check, library
from .structs import MatrixView, Memory, Options, ReductionInfo, StateInfo, Step, Tensor, TensorSpec

AUTO, REFERENCE, CUDA, CPU = 0, 1, 2, 3  # backends
ON_HOST, ON_CUDA = 0, 1  # devices
DTYPES = {"float64": 1, "float32": 2, "bfloat16": 3, "float16": 4, "int64": 5, "int8": 6, "uint8": 7}
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
ALGORITHMS = ("came", "adafactor", "adam", "adamw", "lamb", "sm3")  # came_algorithm, without asking a library that may not be built

class Spec(NamedTuple):
    """One parameter of a plan."""

    shape: Tuple[int, ...]
    dtype: str
    grad_dtype: Optional[str] = None
    group: int = 0
    name: str = ""
    id: int = 0
    split_dims: int = 0  # bit d: dimension d is split over ranks; 0: not sharded, and the rest is not read
    offset: Tuple[int, ...] = ()
    extent: Tuple[int, ...] = ()
    reduce_group: int = 0
    matrix_group: int = 0

    @property
    def held(self) -> Tuple[int, ...]:
        """The shape of what this rank holds."""
        return self.extent if self.split_dims else self.shape


class State(NamedTuple):
    """One state tensor of a plan; it begins as zero bytes."""

    tensor: int
    name: str
    shape: Tuple[int, ...]  # what this rank holds
    dtype: str
    dims: Tuple[int, ...]  # per dimension of the parameter: that of this state which holds it, or -1: averaged over
    whole: Tuple[int, ...]  # the shape over all ranks
    offset: Tuple[int, ...]  # where this rank's part begins in it


class View(NamedTuple):
    """How a parameter is seen: so many matrices."""

    factored: bool
    batch: int
    rows: int
    cols: int


class Reduction(NamedTuple):
    """What the ranks of a reduce group all-reduce after a phase: doubles of the reduction buffer."""

    op: int
    phase: str
    offset: int
    count: int
    presence: int  # how many at the front say which parameters have a gradient: twice as many as parameters


def _sizes(shape: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(shape))(*shape)


def options(algorithm: str, **values: Any) -> Options:
    """The defaults of an optimizer with some fields changed; texts for `view` and the types, as came_options_set.

    >>> options("came", momentum_dtype="int8").momentum_dtype
    6
    """
    number, made = ctypes.c_int32(), Options()
    check(library().came_algorithm_find(algorithm.encode(), ctypes.byref(number)))
    check(library().came_options_init(ctypes.byref(made), number))
    for name, value in values.items():
        if isinstance(value, str) or not hasattr(made, name):
            text = str(value).encode()
            check(library().came_options_set(ctypes.byref(made), name.encode(), text))
        else:
            setattr(made, name, value)
    return made


def validate(made: Options) -> None:
    """Raises ValueError unless every option has a value that its optimizer takes."""
    check(library().came_options_validate(ctypes.byref(made)))


class _Request:
    """Groups and parameters as came_plan_create and came_estimate take them."""

    def __init__(self, groups: Sequence[Options], specs: Sequence[Spec]) -> None:
        self.shapes = [_sizes(spec.shape) for spec in specs]
        self.shards = [(_sizes(spec.offset), _sizes(spec.extent)) for spec in specs]
        self.groups = (Options * len(groups))(*groups)
        self.specs = (TensorSpec * len(specs))()
        for made, spec, shape, shard in zip(self.specs, specs, self.shapes, self.shards):
            made.struct_size = ctypes.sizeof(TensorSpec)
            made.group, made.name, made.id = spec.group, spec.name.encode(), spec.id
            made.shape, made.ndim, made.dtype = shape, len(spec.shape), DTYPES[spec.dtype]
            made.grad_dtype = DTYPES[spec.grad_dtype] if spec.grad_dtype else 0
            if not spec.split_dims:
                continue
            if not len(spec.offset) == len(spec.extent) == len(spec.shape):
                raise ValueError(
                    f"'{spec.name}': shard has {len(spec.offset)} offsets and {len(spec.extent)} extents, "
                    f"expected {len(spec.shape)} of each"
                )
            made.split_dims, (made.shard_offset, made.shard_extent) = spec.split_dims, shard
            made.reduce_group, made.matrix_group = spec.reduce_group, spec.matrix_group
        self.arguments = (self.groups, len(groups), self.specs, ctypes.c_int64(len(specs)))


def estimate(groups: Sequence[Options], specs: Sequence[Spec], backend: int = AUTO) -> Memory:
    """Bytes that a plan would need, without making one."""
    memory, request = Memory(), _Request(groups, specs)
    check(library().came_estimate(*request.arguments, backend, ctypes.byref(memory)))
    return memory


class Plan:
    """What a step over a list of parameters does; immutable, and freed with the object."""

    def __init__(
        self, groups: Sequence[Options], specs: Sequence[Spec], backend: int = AUTO, device_index: int = 0
    ) -> None:
        self.handle = ctypes.c_void_p()
        self.specs, self.group_count = list(specs), len(groups)
        self.device = ON_CUDA if backend == CUDA else ON_HOST
        self.device_index = device_index
        request = _Request(groups, specs)
        check(library().came_plan_create(*request.arguments, backend, device_index, ctypes.byref(self.handle)))
        self.memory = Memory()
        check(library().came_plan_memory(self.handle, ctypes.byref(self.memory)))
        self.states = self._read_states()
        count = ctypes.c_int32()
        check(library().came_plan_phase_count(self.handle, ctypes.byref(count)))
        self.phase_count = count.value

    def _read_states(self) -> List[State]:
        count, info, states = ctypes.c_int64(), StateInfo(), []
        check(library().came_plan_state_count(self.handle, ctypes.byref(count)))
        for k in range(count.value):
            check(library().came_plan_state(self.handle, ctypes.c_int64(k), ctypes.byref(info)))
            shape, whole, offset = (tuple(x[: info.ndim]) for x in (info.shape, info.whole_shape, info.offset))
            dims = tuple(info.dims[: len(self.specs[info.tensor].shape)])
            states.append(State(info.tensor, info.name.decode(), shape, DTYPE_NAMES[info.dtype], dims, whole, offset))
        return states

    def takes(self, groups: Sequence[Options]) -> bool:
        """Whether a step may bring these options in place of those that the plan was made with."""
        return library().came_plan_check_options(self.handle, (Options * len(groups))(*groups), len(groups)) == 0

    def view(self, tensor: int) -> View:
        """How a parameter is seen."""
        seen = MatrixView()
        check(library().came_plan_view(self.handle, ctypes.c_int64(tensor), ctypes.byref(seen)))
        return View(bool(seen.factored), seen.batch, seen.rows, seen.cols)

    def reduction(self, phase: int, reduce_group: int = 0) -> Reduction:
        """What the ranks of a reduce group all-reduce after a phase."""
        found = ReductionInfo()
        check(library().came_plan_reduction(self.handle, phase, reduce_group, ctypes.byref(found)))
        return Reduction(found.op, found.phase.decode(), found.offset, found.count, found.presence)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            library().came_plan_destroy(self.handle)


class Table:
    """An array of came_tensor whose shapes and types stay while addresses come and go."""

    _WORDS = ctypes.sizeof(Tensor) // 8  # the address is the second

    def __init__(self, shapes: Sequence[Tuple[int, ...]], dtypes: Sequence[str], device: int, index: int) -> None:
        self.tensors = (Tensor * len(shapes))()
        self._shapes = [_sizes(shape) for shape in shapes]
        for made, shape, dtype in zip(self.tensors, self._shapes, dtypes):
            made.struct_size, made.dtype = ctypes.sizeof(Tensor), DTYPES[dtype]
            made.shape, made.ndim, made.device, made.device_index = shape, len(shape), device, index
        words = memoryview(self.tensors).cast("B").cast("Q") if shapes else memoryview(array("Q"))
        self._addresses = words[1 :: self._WORDS]
        self._data: List[int] = [0] * len(shapes)

    @property
    def data(self) -> List[int]:
        """Addresses, one per tensor; setting them costs little where none has changed."""
        return self._data

    @data.setter
    def data(self, addresses: List[int]) -> None:
        if addresses != self._data:
            self._addresses[:] = array("Q", addresses)
            self._data = addresses

    def forget(self) -> None:
        """Called before another function writes the addresses."""
        self._data = []


class Call:
    """The arguments of a step of one plan, kept from step to step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        where = (plan.device, plan.device_index)
        shapes = [spec.held for spec in plan.specs]
        self.params = Table(shapes, [spec.dtype for spec in plan.specs], *where)
        self.grads = Table(shapes, [spec.grad_dtype or spec.dtype for spec in plan.specs], *where)
        self.states = Table([s.shape for s in plan.states], [s.dtype for s in plan.states], *where)
        self.step = Step(
            tensor_count=len(plan.specs),
            params=self.params.tensors,
            grads=self.grads.tensors,
            state_count=len(plan.states),
            states=self.states.tensors,
        )
        self._reference = ctypes.byref(self.step)
        self._run, self._run_unchecked = library().came_plan_step, library().came_plan_step_unchecked
        self._run_phase, self._run_phase_unchecked = library().came_plan_run_phase, library().came_plan_run_phase_unchecked
        self._states_fit = False  # a step has accepted them
        self._scalars = {name: Tensor() for name in ("step", "lr", "grad_scale", "found_inf")}
        self._counts = {"step": _sizes([len(plan.specs)]), "lr": _sizes([plan.group_count])}
        self._counts["grad_scale"] = self._counts["found_inf"] = _sizes([1])
        self._given = {name: (None, "", 0) for name in self._scalars}
        self.active = (ctypes.c_uint8 * len(plan.specs))()
        self.lr = (ctypes.c_double * plan.group_count)()

    def set_scalar(self, name: str, address: Optional[int], dtype: str = "float64", device: int = ON_HOST) -> None:
        """`step` (one each), `lr` (one per group), `grad_scale`, `found_inf`; None takes it back."""
        if self._given[name] == (address, dtype, device):
            return
        self._given[name] = address, dtype, device
        if address is None:
            setattr(self.step, name, None)
            return
        scalar, count = self._scalars[name], self._counts[name]
        scalar.dtype, scalar.data, scalar.shape, scalar.ndim = DTYPES[dtype], address, count, 1
        scalar.device, scalar.device_index = device, self.plan.device_index if device == ON_CUDA else 0
        setattr(self.step, name, ctypes.pointer(scalar))

    def set_host_lr(self, rates: Sequence[float]) -> None:
        """Learning rates in host memory, one per group."""
        self.lr[:] = rates
        self.set_scalar("lr", ctypes.addressof(self.lr))

    def set_options(self, groups: Sequence[Options]) -> None:
        """Options that the plan takes, one per group."""
        self.step.options = (Options * len(groups))(*groups)

    def set_active(self, active: Optional[Sequence[bool]]) -> None:
        """Which parameters the step touches; None: all."""
        if active is not None:
            self.active[:] = bytes(map(bool, active))
        self.use_active(active is not None)

    def use_active(self, use: bool) -> None:
        """Whether the step leaves out what `active` does, with its present values."""
        self.step.active = ctypes.addressof(self.active) if use else None

    def set_buffers(self, workspace: int, reductions: int) -> None:
        """Addresses of scratch of at least the plan's sizes."""
        memory = self.plan.memory
        self.step.workspace, self.step.workspace_bytes = workspace, memory.workspace_bytes
        self.step.reductions, self.step.reduction_bytes = reductions, memory.reduction_bytes

    def run(self, stream: Optional[int] = None, checked: bool = False) -> None:
        """Runs the step; on CUDA it is on its way when this returns.

        Args:
            checked: parameters and gradients were checked when their addresses were written, so libcame need not do it.
        """
        self.step.stream = stream
        status = (self._run_unchecked if checked and self._states_fit else self._run)(self.plan.handle, self._reference)
        if status:
            check(status)
        self._states_fit = True

    def run_phase(self, phase: int, stream: Optional[int] = None, checked: bool = False) -> None:
        """Runs one phase; the ranks then reduce Plan.reduction(phase) and run the next.

        Args:
            checked: as of run.  Scalars and options are then checked in phase 0 only, and must not change until the last.
        """
        self.step.stream = stream
        run = self._run_phase_unchecked if checked and self._states_fit else self._run_phase
        status = run(self.plan.handle, phase, self._reference)
        if status:
            check(status)
        self._states_fit = True
