"""Handles of torch's tensors, by which the functions of its stable C interface tell one property each.

They count no references, and so take half the time of a description as a whole: where a tensor has a single reference in C++,
as parameters have, counting takes the interpreter's lock to keep its Python object.
"""

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import Parameter

from .lender import Handles

PLAIN = {Tensor, Parameter}  # classes whose objects hold a tensor of their own; others may wrap some
_PROPERTIES = {
    "layout": "layout",
    "data": "data_ptr",
    "shape": "sizes",
    "strides": "strides",
    "ndim": "dim",
    "dtype": "dtype",
    "device": "device_type",
    "device_index": "device_index",
}
_NAMES = {
    "strided": "layout_strided",
    "cpu": "device_type_cpu",
    "cuda": "device_type_cuda",
    "f64": "dtype_float64",
    "f32": "dtype_float32",
    "bf16": "dtype_bfloat16",
    "f16": "dtype_float16",
}


@lru_cache(maxsize=None)
def handles() -> Optional[Handles]:
    """None if this torch has no such functions, or its objects are laid out in another way."""
    offset = object.__basicsize__  # the first field after what every object begins with
    probe = torch.empty(1)
    if ctypes.c_void_p.from_address(id(probe) + offset).value != probe._cdata:
        return None
    try:
        interface = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        properties = {name: _address(interface["aoti_torch_get_" + of]) for name, of in _PROPERTIES.items()}
        names = {name: interface["aoti_torch_" + of]() for name, of in _NAMES.items()}
    except (OSError, AttributeError):
        return None
    return Handles(offset=offset, **properties, **names)


def _address(function: Any) -> Optional[int]:
    return ctypes.cast(function, ctypes.c_void_p).value
