"""libcame through its C ABI, for tests and benchmarks: arrays of numpy or torch in, optimizer steps out.

The library is the one that CAME_LIBRARY names.
"""

import ctypes
import os

import numpy as np

AUTO, REFERENCE, CUDA, CPU = 0, 1, 2, 3  # backends
DTYPES = {"float64": 1, "float32": 2, "bfloat16": 3, "float16": 4, "int64": 5, "int8": 6, "uint8": 7}
_NAMES = {number: name for name, number in DTYPES.items()}

_u32, _i32, _i64, _u64, _f64 = ctypes.c_uint32, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double
_ptr, _text = ctypes.c_void_p, ctypes.c_char_p


def _struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [("struct_size", _u32), *fields]})


_REALS = ("lr beta1 beta2 beta3 eps eps1 eps2 clip_threshold weight_decay max_grad_norm beta2_decay").split()
_FLAGS = (
    "view momentum_dtype second_moment_dtype bias_correction confidence_1d cautious stochastic_rounding maximize relative_step "
    "warmup_init scale_parameter lr_in_momentum"
).split()
Options = _struct(
    "Options", ("algorithm", _i32), *[(n, _f64) for n in _REALS], ("seed", _u64), *[(n, _i32) for n in _FLAGS]
)
Tensor = _struct(
    "Tensor",
    ("dtype", _i32),
    ("data", _ptr),
    ("shape", ctypes.POINTER(_i64)),
    ("ndim", _i32),
    ("device", _i32),
    ("device_index", _i32),
    ("reserved", _i32),
)
TensorSpec = _struct(
    "TensorSpec",
    ("group", _i32),
    ("name", _text),
    ("shape", ctypes.POINTER(_i64)),
    ("ndim", _i32),
    ("dtype", _i32),
    ("grad_dtype", _i32),
    ("reduce_group", _i32),
    ("id", _u64),
    ("split_dims", _u64),
    ("shard_offset", ctypes.POINTER(_i64)),
    ("shard_extent", ctypes.POINTER(_i64)),
)
StateInfo = _struct(
    "StateInfo",
    ("dtype", _i32),
    ("name", _text),
    ("shape", ctypes.POINTER(_i64)),
    ("ndim", _i32),
    ("reserved", _i32),
    ("tensor", _i64),
    ("bytes", _i64),
    ("whole_shape", ctypes.POINTER(_i64)),
    ("offset", ctypes.POINTER(_i64)),
)
Memory = _struct(
    "Memory",
    ("reserved", _i32),
    *[(n, _i64) for n in ("parameters", "gradients", "state", "workspace", "reductions", "tables", "peak")],
)
Step = _struct(
    "Step",
    ("reserved", _i32),
    ("tensor_count", _i64),
    ("params", ctypes.POINTER(Tensor)),
    ("grads", ctypes.POINTER(Tensor)),
    ("state_count", _i64),
    ("states", ctypes.POINTER(Tensor)),
    ("step", ctypes.POINTER(Tensor)),
    ("active", _ptr),
    *[(n, ctypes.POINTER(Tensor)) for n in ("lr", "grad_scale", "found_inf")],
    ("workspace", _ptr),
    ("workspace_bytes", _i64),
    ("reductions", _ptr),
    ("reduction_bytes", _i64),
    ("stream", _ptr),
)

lib = ctypes.CDLL(os.environ["CAME_LIBRARY"])
lib.came_error_message.restype = _text


def check(status):
    if status != 0:
        raise ValueError(lib.came_error_message().decode())


def _sizes(shape):
    return (_i64 * len(shape))(*shape)


def _dtype(array):
    """The number of an array's element type; torch's names have a prefix that numpy's have not."""
    return DTYPES[str(array.dtype).removeprefix("torch.")]


def _device(array):
    """Kind and index of the device whose memory an array lies in: (1, n) for CUDA, (0, 0) for the host."""
    return (1, array.get_device()) if getattr(array, "is_cuda", False) else (0, 0)


def _view(array):
    sizes = _sizes(array.shape)
    address = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    view = Tensor(ctypes.sizeof(Tensor), _dtype(array), address, sizes, array.ndim, *_device(array))
    view.keep = (array, sizes)
    return view


class Plan:
    """One plan over `params`, which it steps in place; state and buffers come from `zeros(shape, dtype name)`, which
    allocates on the device of `params`."""

    def __init__(self, word, params, backend, zeros, **options):
        algorithm = _i32()
        check(lib.came_algorithm_find(word.encode(), ctypes.byref(algorithm)))
        self.options = Options(ctypes.sizeof(Options))
        check(lib.came_options_init(ctypes.byref(self.options), algorithm))
        for name, value in options.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            check(lib.came_options_set(ctypes.byref(self.options), name.encode(), text.encode()))
        self.params = params
        specs = (TensorSpec * len(params))()
        sizes = [_sizes(p.shape) for p in params]
        for spec, p, shape in zip(specs, params, sizes):
            spec.struct_size = ctypes.sizeof(TensorSpec)
            spec.shape, spec.ndim, spec.dtype = shape, p.ndim, _dtype(p)
        self.plan = _ptr()
        groups, count = ctypes.byref(self.options), _i64(len(params))
        index = _device(params[0])[1] if params else 0
        check(lib.came_plan_create(groups, 1, specs, count, backend, index, ctypes.byref(self.plan)))
        self._make_state(zeros)
        self.memory = Memory(ctypes.sizeof(Memory))
        check(lib.came_plan_memory(self.plan, ctypes.byref(self.memory)))
        self.workspace = zeros((-(-self.memory.workspace // 8),), "float64")
        self.reductions = zeros((-(-self.memory.reductions // 8),), "float64")
        self.count = zeros((), "int64")

    def _make_state(self, zeros):
        count = _i64()
        check(lib.came_plan_state_count(self.plan, ctypes.byref(count)))
        self.state = [{} for _ in self.params]
        self._flat = []
        for k in range(count.value):
            info = StateInfo(ctypes.sizeof(StateInfo))
            check(lib.came_plan_state(self.plan, _i64(k), ctypes.byref(info)))
            array = zeros(tuple(info.shape[: info.ndim]), _NAMES[info.dtype])
            self.state[info.tensor][info.name.decode()] = array
            self._flat.append(array)

    def bind(self, grads, lr=None):
        """What one step reads and writes, for any number of runs; a CUDA stream goes into its `stream`."""
        views = [[_view(a) for a in arrays] for arrays in (self.params, grads, self._flat)]
        arrays = [(Tensor * len(v))(*v) for v in views]
        count, rate = _view(self.count), _view(np.array(self.options.lr if lr is None else lr))
        workspace, reductions = _view(self.workspace), _view(self.reductions)
        step = Step(ctypes.sizeof(Step))
        step.tensor_count, step.params, step.grads = len(grads), arrays[0], arrays[1]
        step.state_count, step.states = len(self._flat), arrays[2]
        step.step, step.lr = ctypes.pointer(count), ctypes.pointer(rate)
        step.workspace, step.workspace_bytes = workspace.data, self.memory.workspace
        step.reductions, step.reduction_bytes = reductions.data, self.memory.reductions
        step.keep = (views, count, rate)
        return step

    def run(self, step):
        check(lib.came_plan_step(self.plan, ctypes.byref(step)))

    def __del__(self):
        if getattr(self, "plan", None):
            lib.came_plan_destroy(self.plan)


class Stepper(Plan):
    """Copies of numpy arrays on the backend that CAME_TEST_BACKEND names, the reference if none; `step(grads)` advances
    `self.params` in place."""

    def __init__(self, word, params, **options):
        backend = {"cpu": CPU, "reference": REFERENCE}[os.environ.get("CAME_TEST_BACKEND", "reference")]
        super().__init__(word, [np.array(p, copy=True, order="C") for p in params], backend, np.zeros, **options)

    def step(self, grads, lr=None):
        self.run(self.bind([np.asarray(g, order="C") for g in grads], lr))
