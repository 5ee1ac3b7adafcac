"""A framework's tensors read in C: a call per list, where Python would need several per tensor.

A class of tensors that has DLPack's exchange interface, as torch's has from 2.10 on, describes its tensors to C; where they
have handles, too, those are faster.  CPython's own functions read the lists and gradients.  All of them want the interpreter's
lock, which ctypes.PyDLL keeps.
"""

import ctypes
from collections import defaultdict
from operator import is_
from typing import Any, List, Optional, Sequence

from .library import library, loads
from .native import Call, Sized, Table
from .native import Tensor as _Tensor

_ptr, _i32, _i64, _u32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
_DESCR_GET = 54  # Py_tp_descr_get of the stable ABI


class Handles(Sized):
    """came_handles."""

    _fields_ = [
        ("struct_size", _u32),
        *((name, _i32) for name in ("offset", "type_offset", "reserved")),
        *((name, _ptr) for name in ("type", "other_type")),
        *((name, _ptr) for name in ("data", "shape", "strides", "ndim", "dtype", "device", "device_index")),
        *((name, _ptr) for name in ("layout", "memory_bytes", "memory_offset")),
        *((name, _i32) for name in ("cpu", "cuda", "f64", "f32", "bf16", "f16", "i8", "u8", "strided")),
    ]


class Framework(Sized):
    """came_framework."""

    _fields_ = [
        ("struct_size", _u32),
        ("reserved", _i32),
        ("item", _ptr),
        ("put", _ptr),
        ("get", _ptr),
        ("gradient", _ptr),
        ("none", _ptr),
        ("lend", _ptr),
        ("handles", _ptr),
    ]


class Borrowed(Sized):
    """came_borrowed."""

    _fields_ = [
        ("struct_size", _u32),
        ("reserved", _i32),
        ("count", _i64),
        ("params", ctypes.POINTER(_Tensor)),
        ("grads", ctypes.POINTER(_Tensor)),
        ("active", _ptr),
        ("shapes", _ptr),
        ("missing", _i64),
        ("replaced", _i64),
        ("untold", _i64),
    ]


def _python(name: str) -> int:
    """Address of one of CPython's functions."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), _ptr).value or 0


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of libcame that is called with the interpreter's lock held."""
    function = getattr(ctypes.PyDLL(library()._name), name)
    function.restype, function.argtypes = result, arguments
    return function


class Lender:
    """A class of tensors that tells addresses in C.

    Forty times as fast as asking each tensor in Python for its address, type, shape and strides.
    """

    _LEND = 40  # where dltensor_from_py_object_no_sync lies in version 1 of the interface

    def __init__(self, tensor_class: Any, capsule: Any, handles: Optional[Handles]) -> None:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = _ptr, [ctypes.py_object, ctypes.c_char_p]
        interface = pointer(capsule, b"dlpack_exchange_api")
        self.major = _u32.from_address(interface).value
        self.lend = _ptr.from_address(interface + self._LEND).value
        self._item = _python("PyList_GetItem")
        self._borrow = _function("came_tensors_borrow", _i64, _ptr, _i64, ctypes.py_object, _ptr, _ptr, _ptr)
        self.gradient = tensor_class.grad
        self.framework = self._make_framework(handles)

    @classmethod
    def of(cls, tensor_class: Any, handles: Optional[Handles] = None) -> "Optional[Lender]":
        """The lender of a class, and of handles that its tensors may have; None if it has none that is understood here."""
        capsule = getattr(tensor_class, "__dlpack_c_exchange_api__", None)
        made = cls(tensor_class, capsule, handles) if capsule is not None else None
        return made if made is not None and made.major == 1 and made.lend else None

    def _make_framework(self, handles: Optional[Handles]) -> Optional[Framework]:
        slot = ctypes.pythonapi.PyType_GetSlot
        slot.restype, slot.argtypes = _ptr, [ctypes.py_object, ctypes.c_int]
        try:
            get = slot(type(self.gradient), _DESCR_GET)
        except SystemError:  # Python 3.9 does not tell
            get = None
        if not get:
            return None
        framework = Framework(
            item=self._item,
            put=_python("PyList_SetItem"),
            get=get,
            gradient=id(self.gradient),
            none=id(None),
            lend=self.lend,
            handles=None if handles is None else ctypes.addressof(handles),
        )
        framework.pointed_at = handles  # lives as long
        return framework

    def borrow(self, table: Table, objects: List[Any]) -> bool:
        """Points a table at the memory of tensors; False if one does not fit."""
        table.forget()
        count = len(table.tensors)
        return self._borrow(table.tensors, count, objects, self._item, id(None), self.lend) == count


class Holder:
    """Whether the objects of a list still are the tensors that a table describes, addresses and memory included."""

    def __init__(self, handles: Handles, table: Table, objects: List[Any]) -> None:
        self._table, self._count, self._handles = table, len(objects), handles  # which live as long
        self._run = _function("came_tensors_hold", _i64, _ptr, ctypes.py_object, _ptr, _ptr, _i64)
        self._arguments = ctypes.byref(handles), objects, _python("PyList_GetItem"), table.tensors, self._count

    def holds(self) -> bool:
        return bool(self._run(*self._arguments) == self._count)


class Borrower:
    """Points the tables of one call at parameters and their gradients, both in one pass."""

    def __init__(self, framework: Framework, call: Call) -> None:
        count = len(call.plan.specs)
        self._call, self._count, self._nothing = call, count, [None] * count
        self._shapes = (_ptr * count)()
        self.result = Borrowed(
            count=count,
            params=call.params.tensors,
            grads=call.grads.tensors,
            active=ctypes.addressof(call.active),
            shapes=ctypes.addressof(self._shapes),
        )
        self._references = ctypes.byref(framework), ctypes.byref(self.result)
        self._run = _function("came_parameters_borrow", _i64, _ptr, ctypes.py_object, ctypes.py_object, _ptr)

    @classmethod
    def of(cls, lender: Optional[Lender], call: Call, params: Sequence[Any]) -> "Optional[Borrower]":
        """None where gradients cannot be read in C, such as those of classes with a `grad` of their own."""
        if lender is None or lender.framework is None:
            return None
        own = all(getattr(kind, "grad", None) is lender.gradient for kind in set(map(type, params)))
        return cls(lender.framework, call) if own else None

    def borrow(self, params: List[Any]) -> Optional[List[Any]]:
        """The gradients, None where there is none, with all addresses written; None if a tensor does not fit.

        `result` then says how many gradients are `missing` and how many parameters were `replaced` since the last call.
        """
        self._call.params.forget()
        self._call.grads.forget()
        grads = self._nothing.copy()
        framework, result = self._references
        return grads if self._run(framework, params, grads, result) == self._count else None


class Roster:
    """Remembers the objects of some lists and the values of some dicts: do others hold the very same ones?

    >>> roster = Roster([first := object()], {"a": (second := object())})
    >>> roster.matches([first], {"b": second}), roster.matches([second], {"a": first}), roster.matches([first])
    (True, False, False)
    """

    def __init__(self, *holders: Any) -> None:
        self._kept = [list(_objects(holder)) for holder in holders]  # or another could have the address of one
        self._ids = [((_ptr * len(kept))(*map(id, kept)), len(kept)) for kept in self._kept]
        self._in_c = loads()
        if not self._in_c:
            return
        self._item, self._next = _python("PyList_GetItem"), _python("PyDict_Next")
        self._list = _function("came_list_holds", _i32, ctypes.py_object, _ptr, _ptr, _i64)
        self._dict = _function("came_dict_holds", _i32, ctypes.py_object, _ptr, _ptr, _i64)

    def matches(self, *holders: Any) -> bool:
        """Identity, not equality, which tensors answer with a tensor."""
        if len(holders) != len(self._ids):
            return False
        for holder, kept, (ids, count) in zip(holders, self._kept, self._ids):
            if len(holder) != count:
                return False
            if not (self._holds(holder, ids, count) if self._in_c else all(map(is_, kept, _objects(holder)))):
                return False
        return True

    def _holds(self, holder: Any, ids: Any, count: int) -> bool:
        if type(holder) in _DICTS:
            return self._dict(holder, self._next, ids, count) == 1
        return self._list(holder if type(holder) is list else list(_objects(holder)), self._item, ids, count) == 1


_DICTS = (dict, defaultdict)  # whose order is that of C; others may have one of their own


def _objects(holder: Any) -> Any:
    return holder.values() if hasattr(holder, "values") else holder
