"""The structs of include/came/came.h for ctypes, field by field."""

import ctypes
from typing import Any

_u32, _i32, _i64, _u64, _f64 = ctypes.c_uint32, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double
_ptr, _text, _sizes_ptr = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)

REALS = ("lr", "beta1", "beta2", "beta3", "eps", "eps1", "eps2", "clip_threshold", "weight_decay", "max_grad_norm")
REALS += ("beta2_decay",)
CHOICES = ("view", "momentum_dtype", "second_moment_dtype")
FLAGS = ("bias_correction", "confidence_1d", "cautious", "stochastic_rounding", "maximize", "relative_step")
FLAGS += ("warmup_init", "scale_parameter", "lr_in_momentum")
_MEMORY = ("parameter_bytes", "gradient_bytes", "state_bytes", "workspace_bytes", "reduction_bytes", "table_bytes")
_MEMORY += ("peak_bytes",)


class Sized(ctypes.Structure):
    """A struct that begins with its size, which is set here."""

    def __init__(self, *values: Any, **fields: Any) -> None:
        super().__init__(ctypes.sizeof(type(self)), *values, **fields)


class Options(Sized):
    """came_options."""

    _fields_ = [
        ("struct_size", _u32),
        ("algorithm", _i32),
        *((name, _f64) for name in REALS),
        ("seed", _u64),
        *((name, _i32) for name in CHOICES + FLAGS),
    ]


class Tensor(Sized):
    """came_tensor."""

    _fields_ = [
        ("struct_size", _u32),
        ("dtype", _i32),
        ("data", _ptr),
        ("shape", _sizes_ptr),
        ("ndim", _i32),
        ("device", _i32),
        ("device_index", _i32),
        ("reserved", _i32),
    ]


class TensorSpec(Sized):
    _fields_ = [
        ("struct_size", _u32),
        ("group", _i32),
        ("name", _text),
        ("shape", _sizes_ptr),
        ("ndim", _i32),
        ("dtype", _i32),
        ("grad_dtype", _i32),
        ("reduce_group", _i32),
        ("id", _u64),
        ("split_dims", _u64),
        ("shard_offset", _sizes_ptr),
        ("shard_extent", _sizes_ptr),
        ("matrix_group", _i32),
        ("reserved", _i32),
    ]


class StateInfo(Sized):
    _fields_ = [
        ("struct_size", _u32),
        ("dtype", _i32),
        ("name", _text),
        ("shape", _sizes_ptr),
        ("ndim", _i32),
        ("reserved", _i32),
        ("tensor", _i64),
        ("bytes", _i64),
        ("whole_shape", _sizes_ptr),
        ("offset", _sizes_ptr),
        ("dims", ctypes.POINTER(_i32)),
    ]


class MatrixView(Sized):
    _fields_ = [("struct_size", _u32), ("factored", _i32), ("batch", _i64), ("rows", _i64), ("cols", _i64)]


class ReductionInfo(Sized):
    _fields_ = [
        ("struct_size", _u32),
        ("op", _i32),
        ("phase", _text),
        ("offset", _i64),
        ("count", _i64),
        ("presence", _i64),
    ]


class Memory(Sized):
    """came_memory: bytes of what a plan needs."""

    _fields_ = [("struct_size", _u32), ("reserved", _i32), *((name, _i64) for name in _MEMORY)]


class Step(Sized):
    """came_step."""

    _fields_ = [
        ("struct_size", _u32),
        ("reserved", _i32),
        ("tensor_count", _i64),
        ("params", ctypes.POINTER(Tensor)),
        ("grads", ctypes.POINTER(Tensor)),
        ("state_count", _i64),
        ("states", ctypes.POINTER(Tensor)),
        ("step", ctypes.POINTER(Tensor)),
        ("active", _ptr),
        ("lr", ctypes.POINTER(Tensor)),
        ("grad_scale", ctypes.POINTER(Tensor)),
        ("found_inf", ctypes.POINTER(Tensor)),
        ("workspace", _ptr),
        ("workspace_bytes", _i64),
        ("reductions", _ptr),
        ("reduction_bytes", _i64),
        ("stream", _ptr),
        ("options", ctypes.POINTER(Options)),
    ]
