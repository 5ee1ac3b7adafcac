"""Adafactor: docs/algorithms.md, equations (14) to (17).  4 B/param of state in f32 with momentum, almost none without."""

from typing import Any, Dict, Iterable, Mapping, Optional, Sequence, Union

from torch import Tensor

from ..optimizer import Optimizer


class Adafactor(Optimizer):
    """Adafactor (Shazeer & Stern 2018), equal to `transformers.Adafactor`, whose arguments, defaults and checkpoints it takes.

    Algorithm 1 of the CAME paper is
    `Adafactor(params, lr, decay_rate=None, beta1=0.9, scale_parameter=False, lr_in_momentum=False)`.

    Args:
        params: parameters, named parameters, or dicts of param groups.
        lr: learning rate; None with `relative_step`.
        eps: added to the squared gradient; least scale of a parameter; one number: the first.
        clip_threshold: largest RMS of an update.
        decay_rate: the decay of the second moment is 1 - step**decay_rate; None or 0: `beta2` at every step.
        beta1: decay of the momentum; None: no momentum.
        weight_decay: decoupled decay.
        scale_parameter: multiply the rate by the RMS of the parameter.
        relative_step: min(1e-2, 1/sqrt(step)) in place of lr; None: where lr is None.
        warmup_init: with relative_step, 1e-6 * step in place of 1e-2.
        beta2: decay of the second moment where `decay_rate` is None.
        lr_in_momentum: momentum of rate times update, as in the original, not of the update.
        view, momentum_dtype, cautious, max_grad_norm, stochastic_rounding, seed, maximize, foreach, capturable,
            differentiable, fused: as for came_optim.CAME.
        eps1, eps2: one number of `eps`, in its place.

    >>> import torch, came_optim
    >>> w = torch.nn.Parameter(torch.ones(3, 2))
    >>> optimizer = came_optim.Adafactor([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.detach()[0]
    tensor([0.9900, 0.9900])
    """

    algorithm = "adafactor"
    fields = {
        **{"beta1": "beta1", "beta2": "beta2", "beta2_decay": "decay_rate", "eps1": "eps[0]", "eps2": "eps[1]"},
        **{name: name for name in ("clip_threshold", "scale_parameter", "relative_step", "warmup_init")},
        **{name: name for name in ("lr_in_momentum", "view")},
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: Optional[Union[float, Tensor]] = None,
        eps: Union[float, str, Sequence[float]] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: Optional[float] = -0.8,
        beta1: Optional[float] = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: Optional[bool] = None,
        warmup_init: bool = False,
        *,
        beta2: float = 0.999,
        lr_in_momentum: bool = True,
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
        eps1: Union[None, float, str] = None,
        eps2: Union[None, float, str] = None,
    ) -> None:
        super().__init__(params, locals())

    def _check_group(self, group: Dict[str, Any]) -> None:
        if group["relative_step"] is None:
            group["relative_step"] = group["lr"] is None
        if group["lr"] is not None and group["relative_step"]:
            raise ValueError(f"Cannot combine manual `lr` ({group['lr']}) and `relative_step=True` options")
        if group["lr"] is None and not group["relative_step"]:
            raise ValueError("lr: None given, expected a number, or `relative_step=True`")
        if group["warmup_init"] and not group["relative_step"]:
            raise ValueError("`warmup_init=True` requires `relative_step=True`")
        super()._check_group(group)

    def _rate(self, group: Mapping[str, Any]) -> Any:
        return 0.0 if group["relative_step"] else group["lr"]
