"""Adam and AdamW: docs/algorithms.md, equations (18) to (21).  8 B/param of state in f32, 2.06 with both moments in int8."""

from typing import Any, Dict, Iterable, Optional, Sequence, Union

from torch import Tensor

from ..optimizer import Optimizer


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015), equal to `torch.optim.Adam`, whose arguments and checkpoints it takes.

    Args:
        params, lr, betas, eps, weight_decay, maximize, foreach, capturable, differentiable, fused: as in torch.optim.Adam;
            `fused=None` takes the kernels of libcame, `fused=False` and `foreach=True` a loop in PyTorch.
        amsgrad: not supported; only False.
        momentum_dtype: "f32", "bf16", or for matrices "int8" or "int4"; None: f32, or f64 for f64 parameters.
        second_moment_dtype: "int8", for matrices; None: f32, or f64 for f64 parameters.
        cautious, max_grad_norm, stochastic_rounding, seed: as for came_optim.CAME.
        beta1, beta2: one number of `betas`, in their place.

    >>> import torch, came_optim
    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = came_optim.Adam([w], lr=0.5)
    >>> (w * w).sum().backward(); optimizer.step(); w.detach()
    tensor([0.5000, 0.5000])
    """

    algorithm = "adam"
    elementwise = True
    fields = {"beta1": "betas[0]", "beta2": "betas[1]", "eps": "eps", "second_moment_dtype": "second_moment_dtype"}

    def __init__(
        self,
        params: Iterable[Any],
        lr: Union[float, Tensor] = 1e-3,
        betas: Union[str, Sequence[float]] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
        momentum_dtype: Any = None,
        second_moment_dtype: Any = None,
        cautious: bool = False,
        max_grad_norm: float = 0.0,
        stochastic_rounding: bool = False,
        seed: int = 0,
        beta1: Union[None, float, str] = None,
        beta2: Union[None, float, str] = None,
    ) -> None:
        # As in the groups of torch 2.7 and later: the one difference between checkpoints of Adam and of AdamW.
        super().__init__(params, {**locals(), "decoupled_weight_decay": self.algorithm == "adamw"})

    def _check_own(self, group: Dict[str, Any]) -> None:
        if group.get("amsgrad"):
            raise ValueError(f"amsgrad: {group['amsgrad']!r} given, expected False: the maximum of v is not kept")
        decoupled = group.get("decoupled_weight_decay", self.algorithm == "adamw")
        if bool(decoupled) != (self.algorithm == "adamw"):
            raise ValueError(
                f"decoupled_weight_decay: {decoupled!r} given, expected {not decoupled}: came_optim.AdamW is Adam with decoupled decay"
            )


class AdamW(Adam):
    """AdamW (Loshchilov & Hutter 2019), equal to `torch.optim.AdamW`; arguments as for came_optim.Adam.

    >>> import torch, came_optim
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = came_optim.AdamW(model.parameters(), lr=1e-3, momentum_dtype="int8", second_moment_dtype="int8")
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    >>> {name: str(value.dtype) for name, value in optimizer.state[model.weight].items() if name != "step"}
    {'exp_avg': 'torch.int8', 'exp_avg_scale': 'torch.float32', 'exp_avg_sq': 'torch.uint8', 'exp_avg_sq_scale': 'torch.float32'}
    """

    algorithm = "adamw"

    def __init__(
        self,
        params: Iterable[Any],
        lr: Union[float, Tensor] = 1e-3,
        betas: Union[str, Sequence[float]] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
        momentum_dtype: Any = None,
        second_moment_dtype: Any = None,
        cautious: bool = False,
        max_grad_norm: float = 0.0,
        stochastic_rounding: bool = False,
        seed: int = 0,
        beta1: Union[None, float, str] = None,
        beta2: Union[None, float, str] = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, **arguments)
