"""The class of the authors' package: arguments, defaults, results and checkpoints of came-pytorch 0.1.3, on the kernels of libcame.

    from came_optim import came_pytorch
    came_pytorch.install()           # before anything imports the authors' package
    from came_pytorch import CAME    # this class, in any module

Trainers that import that package by name then get this one, whether theirs is installed or not.
"""

import sys
from typing import Any, Iterable, Optional, Sequence, Union

from torch import Tensor

from . import optimizers

__version__ = "0.1.3"  # of the package that this module replaces
_NAMES = ("came_pytorch", "came_pytorch.CAME")  # in both of which the authors have their class


class CAME(optimizers.CAME):
    """CAME exactly as in the paper's Algorithm 2, with the arguments and defaults of the authors' class.

    It is came_optim.CAME with `bias_correction=False`, `view="last_two"` and no default rate; the keywords of that class may
    be given here, too.

    Args:
        params: parameters, named parameters, or dicts of param groups.
        lr: learning rate, above 0; must be given.
        eps: added to the squared gradient and to the instability.
        clip_threshold: largest RMS of an update.
        betas: decay of the momentum, the second moment and the instability.
        weight_decay: decoupled decay.
        bias_correction, confidence_1d, view, momentum_dtype, cautious, max_grad_norm, stochastic_rounding, seed, maximize,
            foreach, capturable, differentiable, fused, beta1 to eps2: as for came_optim.CAME.

    >>> import torch
    >>> from came_optim.came_pytorch import CAME
    >>> w = torch.nn.Parameter(torch.ones(3, 2))
    >>> optimizer = CAME([w], 2e-4)
    >>> optimizer.defaults["bias_correction"], optimizer.defaults["view"]
    (False, 'last_two')
    """

    # What fairseq asks of an optimizer.
    supports_memory_efficient_fp16 = True
    supports_flat_params = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: Optional[Union[float, Tensor]] = None,
        eps: Union[float, str, Sequence[float]] = (1e-30, 1e-16),
        clip_threshold: float = 1.0,
        betas: Union[str, Sequence[float]] = (0.9, 0.999, 0.9999),
        weight_decay: float = 0.0,
        *,
        bias_correction: bool = False,
        confidence_1d: bool = False,
        view: str = "last_two",
        momentum_dtype: Any = None,
        cautious: bool = False,
        max_grad_norm: float = 0.0,
        stochastic_rounding: bool = False,
        seed: int = 0,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
        beta1: Union[None, float, str] = None,
        beta2: Union[None, float, str] = None,
        beta3: Union[None, float, str] = None,
        eps1: Union[None, float, str] = None,
        eps2: Union[None, float, str] = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if lr is None:
            raise TypeError("lr: None given, expected a number > 0: came_pytorch.CAME has no default")
        if not isinstance(lr, Tensor) and lr == 0:
            raise ValueError(f"Invalid learning rate: {lr}, expected a finite number > 0")
        super().__init__(**arguments)


def install() -> None:
    """Makes `import came_pytorch` find this module from now on; a second call does nothing.

    Raises:
        RuntimeError: the authors' package is already imported, and other modules may hold its class.
    """
    this = sys.modules[__name__]
    for name in _NAMES:
        other = sys.modules.get(name, this)
        if other is not this and other is not None:
            raise RuntimeError(
                f"came_pytorch: already imported from {getattr(other, '__file__', None) or 'somewhere else'}, and other modules "
                "may hold its class; expected came_optim.came_pytorch.install() before its first import"
            )
    sys.modules.update(dict.fromkeys(_NAMES, this))


def uninstall() -> None:
    """Undoes `install`: the next import finds the authors' package, if there is one."""
    for name in _NAMES:
        if sys.modules.get(name) is sys.modules[__name__]:
            del sys.modules[name]
