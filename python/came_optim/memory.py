"""The memory of a tensor: some have none that kernels could read, and some less than their shape needs.

torch checks neither: a tensor whose storage was resized, as programs do that free memory and fill it again later, reads and
writes beyond its end.
"""

from operator import add, ge, mul
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor

_storage, _nbytes = Tensor.untyped_storage, torch.UntypedStorage.nbytes
_offset, _numel, _element_size = Tensor.storage_offset, Tensor.numel, Tensor.element_size
_is_contiguous, _data_ptr = Tensor.is_contiguous, Tensor.data_ptr


def kind(tensor: Tensor) -> Optional[str]:
    """Why a tensor has no memory of its own; None if it has some, by its class and layout."""
    if tensor.layout is not torch.strided:
        return f"of layout {tensor.layout}"
    name = type(tensor).__name__
    if name in ("FakeTensor", "FunctionalTensor"):
        return f"a {name}, which has a shape and no numbers"
    if tensor.device.type == "meta":
        return None
    try:
        has_memory = tensor.numel() == 0 or tensor.untyped_storage().nbytes() == 0 or _data_ptr(tensor) != 0
    except (RuntimeError, NotImplementedError):
        has_memory = False
    return None if has_memory else f"a {name}, a wrapper around other tensors that has no memory of its own"


def extent(tensor: Tensor) -> int:
    """Bytes that the storage of a tensor must have."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


def sizes(tensors: Sequence[Tensor]) -> List[int]:
    """Bytes of the storages of tensors."""
    return list(map(_nbytes, map(_storage, tensors)))


def are_whole(tensors: Sequence[Tensor]) -> bool:
    """Whether every tensor has memory for all of its elements."""
    have = sizes(tensors)
    rows = map(mul, map(add, map(_offset, tensors), map(_numel, tensors)), map(_element_size, tensors))
    if all(map(_is_contiguous, tensors)) and all(map(ge, have, rows)):
        return True
    return all(size >= extent(tensor) for size, tensor in zip(have, tensors))


def check(tensor: Tensor, what: Any) -> None:
    """Raises for a tensor that has no memory, or less than its shape needs."""
    without = kind(tensor)
    if without is not None:
        raise TypeError(f"{what} is {without}, expected a plain dense tensor")
    if tensor.untyped_storage().nbytes() < extent(tensor):
        raise ValueError(
            f"{what} has shape {list(tensor.shape)} and a storage of {tensor.untyped_storage().nbytes()} bytes, expected at "
            f"least {extent(tensor)}: its storage was resized"
        )
