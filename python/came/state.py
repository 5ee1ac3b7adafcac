"""The state of one parameter: a dict that notices when somebody puts other tensors in it.

Kernels keep addresses of state tensors from step to step.  Tensors may be changed in place at will; one that is replaced, as
programs do that move state to the host and back, must be bound anew.
"""

from typing import Any, Dict, List, Sequence, Tuple

from torch import Tensor

_data_ptr = Tensor.data_ptr


class Watch:
    """Knows whether state that was bound has been replaced: told by slots, or found out."""

    LOOKS = 8  # tensors looked at in each step, in turn, beside the first and the last one

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.stale = False
        self._tensors: List[Tensor] = list(tensors)
        self._data = list(map(_data_ptr, self._tensors))
        self._memory = [tensor.untyped_storage() for tensor in self._tensors]  # lives as long as kernels may write to it
        self._next = 0

    def __call__(self) -> None:
        self.stale = True

    def finds(self) -> bool:
        """Whether anything was replaced, memory by `tensor.data = ...` or `share_memory_()` included."""
        if not self.stale and self._tensors:
            begin, end = self._next, self._next + self.LOOKS
            some = list(map(_data_ptr, self._tensors[begin:end]))
            ends = _data_ptr(self._tensors[0]), _data_ptr(self._tensors[-1])
            self.stale = some != self._data[begin:end] or ends != (self._data[0], self._data[-1])
            self._next = end if end < len(self._tensors) else 0
        return self.stale


class Slot(Dict[str, Any]):
    """State by name.  Copies and pickles are plain dicts."""

    __slots__ = ("changed",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.changed = _nothing

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
