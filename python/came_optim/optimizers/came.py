"""CAME: docs/algorithms.md, equations (5) to (13).  4 B/param of state in f32, about 1 with momentum_dtype="int8"."""

from typing import Any, Iterable, Optional, Sequence, Union

from torch import Tensor

from ..optimizer import Optimizer


class CAME(Optimizer):
    """CAME: Confidence-guided Adaptive Memory Efficient Optimization (Luo et al., ACL 2023).

    The first arguments are those of `came-pytorch`, whose checkpoints load and train on unchanged.
    came_optim.came_pytorch.CAME also has its defaults.

    Args:
        params: parameters, named parameters, or dicts of param groups.
        lr: learning rate; AdamW's fits.  A tensor is read when the step runs.
        eps: added to the squared gradient and to the instability; one number: the first.
        clip_threshold: largest RMS of an update.
        betas: decay of the momentum, the second moment and the instability; of two, the third is 1 - (1 - beta2) / 10.
        weight_decay: decoupled decay.
        bias_correction: correct the instability's cold start, so that AdamW's learning rate fits; False is the paper's Algorithm 2
            exactly.
        confidence_1d: a confidence factor also for tensors of one or no dimension.
        view: how tensors of three or more dimensions become matrices: "auto", "fold" or "last_two", the authors' choice.
        momentum_dtype: "f32", "bf16", or for matrices "int8" or "int4"; None: f32, or f64 for f64 parameters.
        cautious: drop elements of the update whose sign disagrees with the gradient's.
        max_grad_norm: clip the norm over all parameters; 0: off.
        stochastic_rounding: of bf16 and f16 parameters and of bf16 momentum.
        seed: key of stochastic rounding.
        maximize, foreach, capturable, differentiable, fused: as in torch.optim; `fused=None` takes the kernels of libcame,
            `fused=False` and `foreach=True` a loop in PyTorch.
        beta1, beta2, beta3, eps1, eps2: one number of `betas` or `eps`, in their place.

    >>> import torch, came_optim
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = came_optim.CAME(model.parameters(), lr=1e-3, weight_decay=0.01)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    >>> sorted(optimizer.state[model.weight])
    ['exp_avg', 'exp_avg_res_col', 'exp_avg_res_row', 'exp_avg_sq_col', 'exp_avg_sq_row', 'step']
    """

    algorithm = "came"
    fields = {
        **{"beta1": "betas[0]", "beta2": "betas[1]", "beta3": "betas[2]", "eps1": "eps[0]", "eps2": "eps[1]"},
        **{name: name for name in ("clip_threshold", "bias_correction", "confidence_1d", "view")},
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: Union[float, Tensor] = 1e-3,
        eps: Union[float, str, Sequence[float]] = (1e-30, 1e-16),
        clip_threshold: float = 1.0,
        betas: Union[str, Sequence[float]] = (0.9, 0.999, 0.9999),
        weight_decay: float = 0.0,
        *,
        bias_correction: bool = True,
        confidence_1d: bool = False,
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
        beta1: Union[None, float, str] = None,
        beta2: Union[None, float, str] = None,
        beta3: Union[None, float, str] = None,
        eps1: Union[None, float, str] = None,
        eps2: Union[None, float, str] = None,
    ) -> None:
        super().__init__(params, locals())
