"""The state of one parameter, and whether its entries or their memory were replaced.

Kernels keep addresses of state tensors from step to step.  A tensor may be changed in place.  If one is replaced, as programs do that
move state to the host and back, the binding is made again.
"""

from operator import attrgetter
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

from torch import Tensor

from . import memory, native
from .lender import Dicts, Holder, Lender, Storages

_LAYOUT = (Tensor.data_ptr, Tensor.stride, Tensor.size, Tensor.storage_offset, attrgetter("dtype", "device"))


class Watch:
    """Finds whether state that was bound has been replaced.

    Before every step it checks that slots hold the same tensor objects, that each tensor has the same address, shape, strides and type,
    and that it lies inside its storage.  An address alone proves nothing, since freed memory may be allocated again.  While all storages
    live, they are read directly and not through their tensors.

    Args:
        slots: those in use, each with state and a counter.
        steps: the tensor that their counters are views of; its memory is theirs.
    """

    def __init__(self, lender: Optional[Lender], slots: List[Any], states: List[Tensor], steps: Tensor) -> None:
        self._notices: List[Any] = []  # a list of its own: callbacks of storages hold nothing else
        self._looks: List[Any] = [Dicts(slots)]
        whole, counters = [*states, steps], [slot["step"] for slot in slots]
        if lender is None or steps.device != whole[0].device or steps.device.type not in ("cpu", "cuda"):
            self._looks += [_Layouts(whole), _Layouts(counters)]
            return
        storages = Storages(lender, list(map(Tensor.untyped_storage, whole)), self._notices)
        if storages.can_be_watched():  # Storages checks sizes, so that tensors need not
            self._looks += [_holder(lender.within, whole + counters), storages]
        else:
            self._looks += [_holder(lender.framework, whole), _holder(lender.within, counters)]

    def finds(self) -> bool:
        """Whether anything was replaced, memory included, as by `tensor.data = ...` or `share_memory_()`."""
        if not self._notices:
            try:
                if all(look.holds() for look in self._looks):
                    return False
            except (RuntimeError, BufferError, TypeError):  # one is no dense tensor
                pass
            self._notices.append("found")
        return True


class _Layouts:
    """A list of tensors as it was: what Holder does in C."""

    def __init__(self, tensors: List[Tensor]) -> None:
        self._tensors, self._seen = tensors, self._see(tensors)

    def holds(self) -> bool:
        return self._see(self._tensors) == self._seen

    @staticmethod
    def _see(tensors: List[Tensor]) -> List[List[Any]]:
        return [*(list(map(of, tensors)) for of in _LAYOUT), memory.sizes(tensors)]


def _holder(framework: Any, tensors: List[Tensor]) -> Holder:
    """For tensors of one device."""
    device, names = tensors[0].device, [str(tensor.dtype).replace("torch.", "") for tensor in tensors]
    place = (native.ON_CUDA, device.index or 0) if device.type == "cuda" else (native.ON_HOST, 0)
    table = native.Table([tuple(tensor.shape) for tensor in tensors], names, *place)
    table.data = list(map(Tensor.data_ptr, tensors))
    return Holder(framework, table, tensors)


class Slot(Dict[str, Any]):
    """State by name.  Copies and pickles are plain dicts."""

    __slots__ = ("complete",)

    def __init__(self, entries: Any = (), complete: Optional[FrozenSet[str]] = None) -> None:
        super().__init__(entries)
        self.complete = frozenset(self) if complete is None else complete  # entries of which none may be missing

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return dict, (dict(self),)


def lacking(slot: Any, wanted: Sequence[str]) -> Optional[str]:
    """The first entry that a slot should have and has not; None for one that is complete, or has no state yet.

    What options add later begins as zeros: a slot was complete without it.
    """
    if not any(name in slot for name in wanted):
        return None
    complete = slot.complete if isinstance(slot, Slot) else wanted
    return next((name for name in wanted if name not in slot and name in complete), None)
