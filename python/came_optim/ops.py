"""The step as an operator of torch, `torch.ops.came_optim.step`, with its writes declared, so that torch.compile keeps it in its graph.

Eager steps do not come through here: an operator unpacks its lists of tensors and packs them again, which for some thousand
tensors would cost more than the rest of the step.
"""

import ctypes
import json
from functools import lru_cache
from threading import Lock
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import native
from .binding import Binding
from .members import DTYPES


# Before 2.5, graphs cannot hold an operator that writes to a list of tensors.
IN_GRAPHS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)


class _Prepared:
    """A plan with its tables and scratch, for tensors of given shapes and types on one device and stream."""

    def __init__(
        self,
        plan: str,
        shapes: Tuple[Any, ...],
        dtypes: Tuple[str, ...],
        grad_dtypes: Tuple[str, ...],
        device: Any,
        stream: Optional[int],
    ):
        self.lock = Lock()  # threads with equal steps share it
        described = json.loads(plan)
        groups = [native.options(described["algorithm"], **fields) for fields in described["groups"]]
        specs = [
            native.Spec(shape, dtype, grad_dtype, group, "", id)
            for shape, dtype, grad_dtype, (group, id) in zip(shapes, dtypes, grad_dtypes, described["tensors"])
        ]
        on_cuda = device.type == "cuda"
        backend, index = (native.CUDA, device.index or 0) if on_cuda else (native.AUTO, 0)
        self.place = native.ON_CUDA if on_cuda else native.ON_HOST
        self.call = native.Call(native.Plan(groups, specs, backend, index))
        memory = self.call.plan.memory
        sizes = [-(-size // 8) for size in (memory.workspace_bytes, memory.reduction_bytes)]
        self.buffers = [torch.empty(size, dtype=torch.float64, device=device) for size in sizes]
        self.call.set_buffers(*(buffer.data_ptr() for buffer in self.buffers))

    def set_scalar(self, name: str, scalar: Optional[Tensor]) -> None:
        if scalar is None:
            self.call.set_scalar(name, None)
        else:
            place = native.ON_CUDA if scalar.is_cuda else native.ON_HOST
            self.call.set_scalar(name, scalar.data_ptr(), DTYPES[scalar.dtype], place)


_prepared = lru_cache(maxsize=64)(_Prepared)


def _names(tensors: Sequence[Tensor]) -> Tuple[str, ...]:
    return tuple(DTYPES[tensor.dtype] for tensor in tensors)


@torch.library.custom_op("came_optim::step", mutates_args=("params", "states", "steps"))
def step(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    steps: Tensor,
    lr: Tensor,
    options: Tensor,
    grad_scale: Optional[Tensor],
    found_inf: Optional[Tensor],
    plan: str,
) -> None:
    """One step of contiguous tensors of one device: `states` in the plan's order, `steps` one counter per parameter, `lr` one
    rate per group, `options` from `pack`, `plan` from `describe`."""
    for tensor in (*params, *grads, *states, steps, lr):
        if not tensor.is_contiguous():
            raise ValueError(f"came_optim::step: a tensor of shape {list(tensor.shape)} is strided, expected contiguous ones")
    device = params[0].device
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    prepared = _prepared(plan, tuple(tuple(p.shape) for p in params), _names(params), _names(grads), device, stream)
    call = prepared.call
    with prepared.lock:
        for table, tensors in ((call.params, params), (call.grads, grads), (call.states, states)):
            table.data = [tensor.data_ptr() for tensor in tensors]
        for name, scalar in (("step", steps), ("lr", lr), ("grad_scale", grad_scale), ("found_inf", found_inf)):
            prepared.set_scalar(name, scalar)
        call.set_options(unpack(options))
        call.run(stream)


@step.register_fake
def _(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    steps: Tensor,
    lr: Tensor,
    options: Tensor,
    grad_scale: Optional[Tensor],
    found_inf: Optional[Tensor],
    plan: str,
) -> None:
    return None


def rates(values: Sequence[Any], device: torch.device) -> Tensor:
    """Learning rates, one per group; on the device if one of them is a tensor there."""
    if any(isinstance(value, Tensor) and value.is_cuda for value in values):
        return torch.stack([torch.as_tensor(value, dtype=torch.float64, device=device).reshape(()) for value in values])
    return torch.tensor([float(value) for value in values], dtype=torch.float64, device="cpu")


def pack(options: Sequence[native.Options]) -> Tensor:
    """Options of a step as bytes: a tensor, since torch.compile takes a text for a constant."""
    return torch.frombuffer(bytearray(b"".join(map(bytes, options))), dtype=torch.uint8)


def unpack(packed: Tensor) -> List[native.Options]:
    size = ctypes.sizeof(native.Options)
    data = packed.numpy().tobytes()
    return [native.Options.from_buffer_copy(data, k) for k in range(0, len(data), size)]


def describe(algorithm: str, binding: Binding) -> str:
    """The `plan` of an operator call that does what a binding does."""
    names = [name for name, *_ in native.Options._fields_ if name not in ("struct_size", "algorithm", "lr")]
    groups = [{name: getattr(options, name) for name in names} for options in binding.planned]
    tensors = [(member.group, member.id) for member in binding.members]
    return json.dumps({"algorithm": algorithm, "groups": groups, "tensors": tensors})
