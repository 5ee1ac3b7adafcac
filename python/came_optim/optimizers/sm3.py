"""SM3-II: docs/algorithms.md, equations (25) to (27).  4 B/param of state in f32 with momentum, almost none without."""

from typing import Any, Iterable, Optional, Union

from torch import Tensor

from ..optimizer import Optimizer


class SM3(Optimizer):
    """SM3-II (Anil et al. 2019) with the rows and columns of the matrix view as cover.

    Args:
        params: parameters, named parameters, or dicts of param groups.
        lr: learning rate; a tensor is read when the step runs.
        beta1: decay of the momentum; 0 or None keeps none.
        eps: under the root, for accumulators that are still zero.
        weight_decay: decoupled decay.
        view, momentum_dtype, cautious, max_grad_norm, stochastic_rounding, seed, maximize, foreach, capturable,
            differentiable, fused: as for came_optim.CAME.

    >>> import torch, came_optim
    >>> w = torch.nn.Parameter(torch.ones(3, 2))
    >>> optimizer = came_optim.SM3([w], lr=0.1, beta1=0.0)
    >>> (w * w).sum().backward(); optimizer.step(); w.detach()[0]
    tensor([0.9000, 0.9000])
    """

    algorithm = "sm3"
    fields = {name: name for name in ("beta1", "eps", "view")}

    def __init__(
        self,
        params: Iterable[Any],
        lr: Union[float, Tensor] = 0.1,
        beta1: float = 0.9,
        eps: float = 1e-30,
        weight_decay: float = 0.0,
        *,
        view: str = "auto",
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
    ) -> None:
        super().__init__(params, locals())
