"""The state of one parameter: a dict that notices when somebody puts other tensors in it, and a watch over their memory.

Kernels keep addresses of state tensors from step to step.  Tensors may be changed in place at will; one that is replaced, as
programs do that move state to the host and back, must be bound anew.
"""

from operator import attrgetter
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

from torch import Tensor

from . import memory, native
from .handles import handles
from .lender import Holder
from .library import loads

_LAYOUT = (Tensor.data_ptr, Tensor.stride, Tensor.size, Tensor.storage_offset, attrgetter("dtype", "device"))


class Watch:
    """Knows whether state that was bound has been replaced: told by slots, or found out.

    Every tensor is looked at before every step: its address, shape, strides, type, and whether its storage is as large as that
    takes; an address alone proves nothing, since memory that was freed may be handed out again.
    """

    def __init__(self, *lists: Sequence[Tensor]) -> None:
        self.stale = False
        self._lists: List[Any] = [_look(list(tensors)) for tensors in lists if tensors]

    def __call__(self) -> None:
        self.stale = True

    def finds(self) -> bool:
        """Whether anything was replaced, memory by `tensor.data = ...` or `share_memory_()` included."""
        if not self.stale:
            self.stale = not all([look.holds() for look in self._lists])
        return self.stale


class _Layouts:
    """A list of tensors as it was: what Holder does in C, where torch has handles and they are plain."""

    def __init__(self, tensors: List[Tensor]) -> None:
        self._tensors, self._seen = tensors, self._see(tensors)
        self._memory = list(map(Tensor.untyped_storage, tensors))  # no other can have its address while it lives

    def holds(self) -> bool:
        try:
            return self._see(self._tensors) == self._seen
        except (RuntimeError, NotImplementedError):  # one is no dense tensor
            return False

    @staticmethod
    def _see(tensors: List[Tensor]) -> List[List[Any]]:
        return [*(list(map(of, tensors)) for of in _LAYOUT), memory.sizes(tensors)]


def _look(tensors: List[Tensor]) -> Any:
    held = _holder(tensors)
    return held if held is not None and held.holds() else _Layouts(tensors)


def _holder(tensors: List[Tensor]) -> Optional[Holder]:
    """For tensors of one device."""
    of, device = handles() if loads() else None, tensors[0].device
    names = [str(tensor.dtype).replace("torch.", "") for tensor in tensors]
    if of is None or device.type not in ("cpu", "cuda") or not set(names) <= native.DTYPES.keys():
        return None
    place = (native.ON_CUDA, device.index or 0) if device.type == "cuda" else (native.ON_HOST, 0)
    table = native.Table([tuple(tensor.shape) for tensor in tensors], names, *place)
    table.data = list(map(Tensor.data_ptr, tensors))
    return Holder(of, table, tensors)


class Slot(Dict[str, Any]):
    """State by name.  Copies and pickles are plain dicts."""

    __slots__ = ("changed", "known")

    def __init__(self, entries: Any = (), known: Optional[FrozenSet[str]] = None) -> None:
        super().__init__(entries)
        self.changed = _nothing
        self.known = frozenset(self) if known is None else known  # entries that were complete; one may be missing no more

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return dict, (dict(self),)


def _nothing() -> None:
    pass


def _noticed(name: str) -> Any:
    plain = getattr(dict, name)

    def method(self: Slot, *args: Any, **named: Any) -> Any:
        self.changed()
        return plain(self, *args, **named)

    return method


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    if hasattr(dict, _name):
        setattr(Slot, _name, _noticed(_name))


def lacking(slot: Any, wanted: Sequence[str]) -> Optional[str]:
    """The first entry that a slot should have and has not; None for one that is complete, or has no state yet.

    What options add later begins as zeros: it is not known to a slot that was complete without it.
    """
    if not any(name in slot for name in wanted):
        return None
    known = slot.known if isinstance(slot, Slot) else wanted
    return next((name for name in wanted if name not in slot and name in known), None)
