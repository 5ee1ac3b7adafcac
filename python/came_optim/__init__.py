"""Memory-efficient optimizers: CAME, and Adafactor, Adam, AdamW, LAMB, SM3 beside it, for PyTorch, on the kernels of libcame.

    optimizer = came_optim.CAME(model.parameters(), lr=1e-3)

`came_optim.native` is the layer below, for numpy or any other memory; it needs no torch, so names that do are imported when they
are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("CAME", "Adafactor", "Adam", "AdamW", "LAMB", "SM3"), "optimizers"),
    "estimate": "estimation",
    "gradient_release": "release",
}
__all__ = ["CAME", "Adafactor", "Adam", "AdamW", "LAMB", "SM3", "estimate", "gradient_release", "__version__"]

if TYPE_CHECKING:
    from .estimation import estimate
    from .optimizers import CAME, LAMB, SM3, Adafactor, Adam, AdamW
    from .release import gradient_release


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"came_optim.{name} needs PyTorch 2.4 or later: pip install torch") from error


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
