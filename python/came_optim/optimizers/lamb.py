"""LAMB: docs/algorithms.md, equations (22) to (24).  8 B/param of state in f32, 2.06 with both moments in int8."""

from typing import Any, Iterable, Optional, Sequence, Union

from torch import Tensor

from ..optimizer import Optimizer


class LAMB(Optimizer):
    """LAMB (You et al. 2020, Algorithm 2), with the identity as scaling function.

    Args:
        params: parameters, named parameters, or dicts of param groups.
        lr: learning rate; a tensor is read when the step runs.
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: part of the update that the trust ratio scales.
        bias_correction: correct both moments for their start at zero.
        momentum_dtype: "f32", "bf16", or for matrices "int8" or "int4"; None: f32, or f64 for f64 parameters.
        second_moment_dtype: "int8", for matrices; None: f32, or f64 for f64 parameters.
        cautious, max_grad_norm, stochastic_rounding, seed, maximize, foreach, capturable, differentiable, fused: as for
            came_optim.CAME.
        beta1, beta2: one number of `betas`, in their place.

    >>> import torch, came_optim
    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = came_optim.LAMB([w], lr=0.5, weight_decay=0)
    >>> (w * w).sum().backward(); optimizer.step(); w.detach()
    tensor([0.5000, 0.5000])
    """

    algorithm = "lamb"
    fields = {
        **{"beta1": "betas[0]", "beta2": "betas[1]", "eps": "eps"},
        **{name: name for name in ("bias_correction", "second_moment_dtype")},
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: Union[float, Tensor] = 1e-3,
        betas: Union[str, Sequence[float]] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        bias_correction: bool = True,
        momentum_dtype: Any = None,
        second_moment_dtype: Any = None,
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
    ) -> None:
        super().__init__(params, locals())
