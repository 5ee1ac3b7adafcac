"""Reads torch's tensors in C, with one call per list instead of several per tensor: src/python_bridge/bridge.h.

DLPack's exchange interface, which torch has from 2.10 on, describes tensors to C; storages know how large they are.  CPython's own
functions read lists and gradients and call methods.  All of them need the interpreter's lock, which ctypes.PyDLL keeps.
"""

import ctypes
import os
import weakref
from operator import is_
from typing import Any, List, Optional, Sequence

from .library import library, loads
from .native import Call, Table
from .structs import Sized
from .structs import Tensor as _Tensor

_ptr, _i32, _i64, _u32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
_DESCR_GET = 54  # Py_tp_descr_get of the stable ABI
_LEND = 40  # where dltensor_from_py_object_no_sync lies in version 1 of the interface
_CPYTHON = {
    "item": "PyList_GetItem",
    "put": "PyList_SetItem",
    "call": "PyObject_CallOneArg",
    "size": "PyObject_Size",
    "address": "PyLong_AsVoidPtr",
    "release": "Py_DecRef",
}


class Framework(Sized):
    """came_framework."""

    _fields_ = [
        ("struct_size", _u32),
        ("reserved", _i32),
        *((name, _ptr) for name in ("item", "put", "get", "gradient", "none", "lend", "call")),
        *((name, _ptr) for name in ("storage", "begin", "size", "address", "release")),
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
        ("missing", _i64),
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
    """Describes the tensors of a class to C, except torch's neg bit.

    `framework` checks storages, too; `within` is for tensors whose storages are checked elsewhere.
    """

    def __init__(self, tensor_class: Any, storage_class: Any, lend: int, get: int) -> None:
        self.gradient = tensor_class.grad
        self._functions = tensor_class.untyped_storage, storage_class.data_ptr  # which live as long
        own = {name: _python(function) for name, function in _CPYTHON.items()}
        own.update(get=get, gradient=id(self.gradient), none=id(None), lend=lend)
        storage, begin = map(id, self._functions)
        self.framework, self.within = Framework(storage=storage, begin=begin, **own), Framework(begin=begin, **own)

    @classmethod
    def of(cls, tensor_class: Any, storage_class: Any) -> "Optional[Lender]":
        """The lender of a class; None without version 1 of DLPack's interface, or in a Python that lacks the functions."""
        capsule = getattr(tensor_class, "__dlpack_c_exchange_api__", None)
        if capsule is None:
            return None
        pointer, slot = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyType_GetSlot
        pointer.restype, pointer.argtypes = _ptr, [ctypes.py_object, ctypes.c_char_p]
        slot.restype, slot.argtypes = _ptr, [ctypes.py_object, ctypes.c_int]
        interface = pointer(capsule, b"dlpack_exchange_api")
        lend = _ptr.from_address(interface + _LEND).value
        if _u32.from_address(interface).value != 1 or not lend:
            return None
        try:
            return cls(tensor_class, storage_class, lend, slot(type(tensor_class.grad), _DESCR_GET))
        except (SystemError, AttributeError):  # Python 3.9
            return None


def chosen(lender: Optional[Lender]) -> Optional[Lender]:
    """The lender, unless CAME_LENDER is "python"."""
    way = os.environ.get("CAME_LENDER") or "auto"
    if way not in ("auto", "dlpack", "python"):
        raise ValueError(f"CAME_LENDER: {way!r} given, expected 'auto', 'dlpack' or 'python'")
    if way == "dlpack" and lender is None:
        raise RuntimeError("CAME_LENDER: 'dlpack' given, which takes PyTorch 2.10 and Python 3.10, expected 'auto' or 'python'")
    return None if way == "python" else lender


class Holder:
    """Whether the objects of a list still are the tensors that a table describes, addresses and memory included."""

    def __init__(self, framework: Framework, table: Table, objects: List[Any]) -> None:
        self._table, self._framework, self._count = table, framework, len(objects)  # which live as long
        self._run = _function("came_tensors_hold", _i64, _ptr, ctypes.py_object, _ptr, _i64)
        self._arguments = ctypes.byref(framework), objects, table.tensors, self._count

    def holds(self) -> bool:
        return bool(self._run(*self._arguments) == self._count)


class Storages:
    """Whether storages that live are where they were, and as large.

    Holds none of them, so that state which moves elsewhere frees its memory; `gone` is a list that grows when one dies.
    """

    def __init__(self, lender: Lender, storages: Sequence[Any], gone: List[Any]) -> None:
        self._gone = gone
        distinct = list({id(storage): storage for storage in storages}.values())
        self._refs = [weakref.ref(storage, gone.append) for storage in distinct]
        self._framework, count = lender.framework, len(distinct)  # which live as long
        self._known = (
            (_ptr * count)(*map(id, distinct)),
            (_ptr * count)(*[storage.data_ptr() for storage in distinct]),
            (_i64 * count)(*map(len, distinct)),
        )
        self._arguments = ctypes.byref(self._framework), *self._known, count
        self._run, self._count = _function("came_storages_hold", _i64, _ptr, _ptr, _ptr, _ptr, _i64), count

    def can_be_watched(self) -> bool:
        """Whether tensors keep these objects alive; a torch may make a new object at each call of untyped_storage()."""
        return all(ref() is not None for ref in self._refs)

    def holds(self) -> bool:
        return not self._gone and bool(self._run(*self._arguments) == self._count)


class Borrower:
    """Points the tables of one call at parameters and their gradients, both in one pass."""

    def __init__(self, framework: Framework, call: Call) -> None:
        self._call, self._framework, self._nothing = call, framework, [None] * len(call.plan.specs)
        self.result = Borrowed(
            count=len(self._nothing),
            params=call.params.tensors,
            grads=call.grads.tensors,
            active=ctypes.addressof(call.active),
        )
        self._references = ctypes.byref(framework), ctypes.byref(self.result)
        self._run = _function("came_parameters_borrow", _i64, _ptr, ctypes.py_object, ctypes.py_object, _ptr)

    @classmethod
    def of(cls, lender: Optional[Lender], call: Call, params: Sequence[Any]) -> "Optional[Borrower]":
        """None where gradients cannot be read in C, such as those of classes with a `grad` of their own."""
        own = lender is not None and all(getattr(kind, "grad", None) is lender.gradient for kind in set(map(type, params)))
        return cls(lender.framework, call) if own else None

    def borrow(self, params: List[Any]) -> Optional[List[Any]]:
        """The gradients, None where there is none, with all addresses written; None if a tensor does not fit.

        `result` then says how many gradients are `missing`.
        """
        self._call.params.forget()
        self._call.grads.forget()
        grads = self._nothing.copy()
        framework, result = self._references
        return grads if self._run(framework, params, grads, result) == len(grads) else None


class Dicts:
    """Whether dicts hold the same objects as before, and no other, however they were written to.

    >>> Dicts([slot := {"a": object()}]).holds()
    True
    """

    def __init__(self, dicts: Sequence[Any]) -> None:
        self._dicts, counts = list(dicts), [len(one) for one in dicts]
        self._kept = [value for one in dicts for value in one.values()]  # or another could have the address of one
        self._counts, self._in_c = counts, loads()
        if not self._in_c:
            return
        ids, sizes = (_ptr * len(self._kept))(*map(id, self._kept)), (_i64 * len(counts))(*counts)
        self._run = _function("came_dicts_hold", _i64, ctypes.py_object, _ptr, _ptr, _ptr, _ptr, _i64)
        self._arguments = self._dicts, _python("PyList_GetItem"), _python("PyDict_Next"), ids, sizes, len(counts)

    def holds(self) -> bool:
        if self._in_c:
            return bool(self._run(*self._arguments) == len(self._dicts))
        values = [value for one in self._dicts for value in one.values()]
        return list(map(len, self._dicts)) == self._counts and all(map(is_, values, self._kept))


class Roster:
    """Remembers the objects of some lists and the values of a dict, to compare others with them.

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
        self._item = _python("PyList_GetItem")
        self._list = _function("came_list_holds", _i32, ctypes.py_object, _ptr, _ptr, _i64)

    def matches(self, *holders: Any) -> bool:
        """Identity, not equality, which tensors answer with a tensor."""
        if len(holders) != len(self._ids):
            return False
        for holder, kept, (ids, count) in zip(holders, self._kept, self._ids):
            objects = holder if type(holder) is list else list(_objects(holder))
            if len(objects) != count:
                return False
            if not (self._list(objects, self._item, ids, count) == 1 if self._in_c else all(map(is_, kept, objects))):
                return False
        return True


def _objects(holder: Any) -> Any:
    return holder.values() if hasattr(holder, "values") else holder
