"""Which optimizer wrote a checkpoint, by the entries of its groups: names of state are the same in several optimizers.

A checkpoint of another optimizer is refused, since its numbers mean something else.  One of another package lacks options that the
package does not have: _UNSAID has their values where our default differs.
"""

from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

# Entries that every optimizer has, or that schedulers and programs add.
_COMMON = {"params", "param_names", "lr", "initial_lr", "weight_decay", "maximize", "foreach", "capturable"}
_COMMON |= {"differentiable", "fused"}


class Sort(NamedTuple):
    """What the groups of an optimizer have, and how many numbers its betas are."""

    name: str
    has: Tuple[str, ...]
    betas: int = 0
    has_not: Tuple[str, ...] = ()

    def fits(self, group: Mapping[str, Any]) -> bool:
        betas = group.get("betas")
        return (
            all(key in group for key in self.has)
            and not any(key in group for key in self.has_not)
            and (not self.betas or (hasattr(betas, "__len__") and len(betas) == self.betas))
        )


_OURS = {
    "came": Sort("CAME", ("betas", "eps", "clip_threshold"), 3, ("decay_rate", "amsgrad")),
    "adafactor": Sort("Adafactor", ("eps", "clip_threshold", "decay_rate", "beta1")),
    "adam": Sort("Adam", ("betas", "eps", "amsgrad"), 2, ("clip_threshold",)),
    "adamw": Sort("AdamW", ("betas", "eps", "amsgrad"), 2, ("clip_threshold",)),
    "lamb": Sort("LAMB", ("betas", "eps", "bias_correction"), 2, ("amsgrad", "clip_threshold")),
    "sm3": Sort("SM3", ("beta1", "eps"), 0, ("betas", "clip_threshold", "decay_rate")),
}
# What came-pytorch does without an option for it, where our default differs.
_UNSAID: Mapping[str, Mapping[str, Any]] = {"came": {"bias_correction": False, "view": "last_two"}}
_OTHERS = (
    Sort("SGD", ("momentum", "dampening")),
    Sort("RMSprop", ("alpha", "centered")),
    Sort("Adagrad", ("lr_decay",)),
    Sort("Adadelta", ("rho",)),
    Sort("NAdam", ("momentum_decay",)),
    Sort("torch.optim.Adafactor", ("beta2_decay", "d")),
    Sort("ASGD", ("lambd", "t0")),
    Sort("Rprop", ("etas",)),
    Sort("LBFGS", ("history_size",)),
)


def check(algorithm: str, owner: str, groups: Iterable[Mapping[str, Any]]) -> None:
    """Raises ValueError if a group of a checkpoint is not one of this optimizer's."""
    for k, group in enumerate(groups):
        entries = sorted(set(group) - _COMMON)
        if entries and _name(algorithm, group) != _OURS[algorithm].name:
            raise ValueError(
                f"{owner}: the checkpoint is of {_name(algorithm, group)}, by the entries of its group {k} ({', '.join(entries)}), "
                f"expected one of {_OURS[algorithm].name}; nothing was loaded"
            )


def unsaid(algorithm: str, group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options that a group of a checkpoint may lack, with the values that its package had for them.

    >>> unsaid("came", {"params": [0], "lr": 1e-3, "clip_threshold": 1.0})["bias_correction"]
    False
    """
    return _UNSAID.get(algorithm, {}) if set(group) - _COMMON else {}


def _name(algorithm: str, group: Mapping[str, Any]) -> str:
    """The optimizer that a group is of: this one, if it may be."""
    first: Dict[str, Sort] = {algorithm: _OURS[algorithm]}
    for key, sort in {**first, **_OURS}.items():
        if sort.fits(group) and _decay(key, group):
            return sort.name
    return next((sort.name for sort in _OTHERS if sort.fits(group)), "another optimizer")


def _decay(algorithm: str, group: Mapping[str, Any]) -> bool:
    """Adam and AdamW differ in what weight_decay does; torch says which since 2.7."""
    decoupled: Optional[bool] = group.get("decoupled_weight_decay")
    return decoupled is None or algorithm not in ("adam", "adamw") or bool(decoupled) == (algorithm == "adamw")
