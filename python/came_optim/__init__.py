"""Memory-efficient optimizers for PyTorch on the kernels of libcame: CAME, Adafactor, Adam, AdamW, LAMB and SM3.

    optimizer = came_optim.CAME(model.parameters(), lr=1e-3)

`came_optim.native` is the layer below, for numpy or any other memory; it needs no torch, so names that do are imported when they
are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

__version__ = "0.1.0"

__all__ = ["CAME", "Adafactor", "Adam", "AdamW", "LAMB", "SM3", "estimate", "gradient_release", "__version__"]
_MODULES = {"estimate": "estimation", "gradient_release": "release"}  # of all others: optimizers

if TYPE_CHECKING:
    from .estimation import estimate
    from .optimizers import CAME, LAMB, SM3, Adafactor, Adam, AdamW
    from .release import gradient_release


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_MODULES.get(name, 'optimizers')}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"came_optim.{name} needs PyTorch 2.4 or later: pip install torch") from error


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
