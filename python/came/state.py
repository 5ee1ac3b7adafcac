"""The state of one parameter: a dict that notices when somebody puts other tensors in it.

Kernels keep addresses of state tensors from step to step.  Tensors may be changed in place at will; one that is replaced, as
programs do that move state to the host and back, must be bound anew.
"""

from typing import Any, Dict, Tuple


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
