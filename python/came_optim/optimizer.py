"""What the optimizers share as `torch.optim.Optimizer`: options from param groups, lazy state, the choice between the
kernels of libcame and the loop in PyTorch.
"""

from functools import lru_cache
from itertools import chain
from numbers import Real
from operator import itemgetter
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Mapping, Optional, Type

import torch
from torch import Tensor

from . import checkpoint, loop, ops, refuse, scalars
from .binding import Binding, Member, check_gradient
from .lender import Roster
from .options import COMMON, from_group
from .state import Slot

KERNEL_DEVICES = ("cpu", "cuda")
_params = itemgetter("params")


class Optimizer(torch.optim.Optimizer):
    """Base of all optimizers here; not an optimizer itself."""

    word: ClassVar[str]  # of the library
    fields: ClassVar[Mapping[str, str]]  # came_options -> arguments, beyond options.COMMON
    elementwise: ClassVar[bool] = False  # a flat piece of several tensors is as good as they are

    _bindings: Optional[List[Binding]] = None
    _released: Optional[Any] = None  # came_optim.gradient_release, if it has taken over

    def __init__(self, params: Iterable[Any], arguments: Dict[str, Any]) -> None:
        defaults = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)

    @classmethod
    def _all_fields(cls) -> Dict[str, str]:
        return {**{name: name for name in COMMON}, **cls.fields}

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Kernels divide by `grad_scale` and heed `found_inf` themselves; before the loop, GradScaler does."""
        return all(self._wants_kernels(group) for group in self.param_groups)

    # ---- param groups --------------------------------------------------------------------------------

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if self._released is not None:
            raise RuntimeError("param_group: given while gradients are released, expected remove() first, and release again after")
        super().add_param_group(param_group)
        self._bindings = None
        try:
            self._check_group(param_group)
        except Exception:
            self.param_groups.pop()
            raise
        self._note_ranks()

    def _note_ranks(self) -> None:
        """Dimensions of the group's parameters as the user gave them, to notice wrappers that flatten them."""
        self._ranks = [max((p.ndim for p in group["params"]), default=0) for group in self.param_groups]
        self._given = set(map(id, chain.from_iterable(group["params"] for group in self.param_groups)))

    def _check_group(self, group: Dict[str, Any]) -> None:
        _check_rate(self._rate(group), group)
        _check_modes(group)
        self._check_own(group)
        from_group(self.word, self._all_fields(), group)
        number = sum(len(other["params"]) for other in self.param_groups if other is not group)
        for k, param in enumerate(group["params"]):
            name = (group.get("param_names") or [""] * len(group["params"]))[k]
            refuse.parameter(Member(param, 0, number + k, name), type(self).__name__, self.elementwise)

    def _check_own(self, group: Dict[str, Any]) -> None:
        """Raises for entries that no option stands for; a checkpoint may bring them."""

    def _wants_kernels(self, group: Mapping[str, Any]) -> bool:
        if group["foreach"] or group["differentiable"] or group["fused"] is False:
            return False
        if group["fused"]:
            return True
        return all(param.device.type in KERNEL_DEVICES for param in group["params"])

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        for key, slot in self.state.items():
            if type(slot) is dict:
                self.state[key] = Slot(slot)  # which was complete where it comes from
        self._bindings = None
        if self._released is not None:
            self._released.forget()
        self._note_ranks()

    # ---- steps ---------------------------------------------------------------------------------------

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step over all parameters that have a gradient.

        Args:
            closure: evaluates the model anew and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scaling = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if self._released is not None:
            if scaling[0] is not None:
                raise RuntimeError(
                    "gradient release with a GradScaler: parameters were stepped with scaled gradients during backward(); train "
                    "in bf16, which needs no scaler, or remove() the release"
                )
            if self._released.end_step():
                return loss
        if torch.compiler.is_compiling() and not self.defaults["differentiable"]:
            self._step_in_graph(*scaling)
        else:
            with torch.set_grad_enabled(bool(self.defaults["differentiable"])):
                self._step(*scaling)
        return loss

    def _step(self, grad_scale: Optional[Tensor], found_inf: Optional[Tensor]) -> None:
        bound = self._bound()
        rates = [self._rate(group) for group in self.param_groups]
        for binding, gradients in bound:
            # A single call of the kernels validates itself before it writes.
            if not binding.kernels or len(bound) > 1:
                scalars.check(binding, self.param_groups, gradients, rates, grad_scale, found_inf)
        for binding, gradients in bound:
            self._run(binding, gradients, rates, grad_scale, found_inf)

    def _run(self, binding: Binding, *arguments: Any) -> None:
        if binding.kernels:
            binding.run(*arguments)
        else:
            loop.run(self.word, binding, self.param_groups, *arguments)

    def _step_in_graph(self, grad_scale: Optional[Tensor], found_inf: Optional[Tensor]) -> None:
        """The step as torch.compile sees it: one operator per device, or a call outside the graph if no operator will do."""
        calls = self._graph_calls()
        if calls is None:
            self._step_outside_graph(grad_scale, found_inf)
            return
        for binding, rates, plan in calls:
            grads = [param.grad for param in binding.params]
            with torch.no_grad():
                ops.step(binding.params, grads, binding.states, binding.steps, rates, grad_scale, found_inf, plan)

    @torch._dynamo.disable
    def _graph_calls(self) -> Optional[List[Any]]:
        bound = self._bound()
        if not ops.IN_GRAPHS or not all(binding.plain(gradients) for binding, gradients in bound):
            return None
        rates = [self._rate(group) for group in self.param_groups]
        return [(binding, ops.rates(rates, binding.device), ops.describe(self.word, binding)) for binding, _ in bound]

    @torch._dynamo.disable
    def _step_outside_graph(self, grad_scale: Optional[Tensor], found_inf: Optional[Tensor]) -> None:
        with torch.no_grad():
            self._step(grad_scale, found_inf)

    def _rate(self, group: Mapping[str, Any]) -> Any:
        return group["lr"]

    def _bound(self) -> Any:
        """Bindings and gradients for this step; made anew where anything but addresses has changed."""
        if self._bindings is not None and self._same():
            pairs = [(binding, binding.take()) for binding in self._bindings]
            if all(grads is not None for _, grads in pairs):
                return pairs
        self._bind()
        pairs = [(binding, binding.take()) for binding in self._bindings]
        if any(grads is None for _, grads in pairs):
            raise RuntimeError(f"{type(self).__name__}: a parameter, gradient or state changed while they were being bound")
        return pairs

    def _key(self) -> List[Any]:
        """What decides whether a plan still fits: all entries of the groups but the rate."""
        pick = _picker(type(self))
        return [tuple(map(_frozen, pick(group))) for group in self.param_groups]

    def _same(self) -> bool:
        return (
            self.state is self._bound_state
            and self._roster.matches(*self._objects())
            and self._same_options()
            and not any(param.grad is not None for param in self._idle)
        )

    def _objects(self) -> List[Any]:
        """What holds the parameters of each group, and all states."""
        return [*map(_params, self.param_groups), self.state]

    def _same_options(self) -> bool:
        if self._bound_values is None:
            return self._key() == self._bound_key
        return list(map(_picker(type(self)), self.param_groups)) == self._bound_values

    def _bind(self) -> None:
        """Sorts the parameters that have, or have had, a gradient by device and by who steps them."""
        for rank, group in zip(self._ranks, self.param_groups):
            if not self.elementwise:
                refuse.replaced(rank, group["params"], self._given, type(self).__name__)
        flat = chain.from_iterable(map(_params, self.param_groups))
        self._idle = [p for p in flat if p.grad is None and not self.state.get(p)]
        sorts: Dict[Any, List[Member]] = {}
        for member in self._members():
            if member.param.grad is None and not self.state.get(member.param):
                continue
            refuse.parameter(member, type(self).__name__, self.elementwise)
            check_gradient(member, type(self).__name__)
            group = self.param_groups[member.group]
            _check_modes(group)
            self._check_own(group)
            kernels = self._wants_kernels(group)
            sorts.setdefault((member.param.device, kernels), []).append(member)
        options = [from_group(self.word, self._all_fields(), group) for group in self.param_groups]
        if len(sorts) > 1 and any(o.max_grad_norm > 0 for o in options):
            raise ValueError(
                "max_grad_norm: the norm is over all parameters, which are in several places here "
                f"({', '.join(str(device) for device, _ in sorts)}), expected one device and one value of `fused`"
            )
        bindings = [
            Binding(type(self).__name__, members, options, self.state, kernels)
            for (_, kernels), members in sorts.items()
        ]
        for binding in bindings:  # now that nothing of any can fail
            binding.install(self.state)
        self._bindings = bindings
        self._bound_state, self._roster = self.state, Roster(*self._objects())
        self._bound_key = self._key()
        values = list(map(_picker(type(self)), self.param_groups))
        frozen = not any(isinstance(value, (list, Tensor)) for value in chain.from_iterable(values))
        self._bound_values = values if frozen else None
        if self._released is not None:
            self._released.forget()

    def _members(self) -> Iterable[Member]:
        number = 0
        for k, group in enumerate(self.param_groups):
            names = group.get("param_names") or [""] * len(group["params"])
            for param, name in zip(group["params"], names):
                yield Member(param, k, number, name)
                number += 1

    # ---- checkpoints ---------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        return checkpoint.separate_steps(super().state_dict())

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        checkpoint.load(self, state_dict, super().load_state_dict)


@lru_cache(maxsize=None)
def _picker(cls: Type[Optimizer]) -> Callable[[Mapping[str, Any]], Any]:
    return itemgetter(*sorted({argument.split("[")[0] for argument in cls._all_fields().values()} | _MODES))


def _frozen(value: Any) -> Any:
    """What a value is now: lists and tensors may change in place."""
    return tuple(value) if isinstance(value, list) else value.item() if isinstance(value, Tensor) else value


_MODES = {"foreach", "fused", "differentiable", "capturable"}


def _check_rate(lr: Any, group: Mapping[str, Any]) -> None:
    if isinstance(lr, Tensor):
        if group["foreach"] and not group["capturable"]:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, has shape {list(lr.shape)}")
        return
    if isinstance(lr, bool) or not isinstance(lr, Real):
        raise TypeError(f"lr: {lr!r} ({type(lr).__name__}) given, expected a number or a tensor of one")
    if not 0 <= lr < float("inf"):
        raise ValueError(f"Invalid learning rate: {lr}, expected a finite number >= 0")


def _check_modes(group: Mapping[str, Any]) -> None:
    """What torch's optimizers refuse, in their words."""
    if group["fused"] and group["differentiable"]:
        raise RuntimeError("`fused` does not support `differentiable`")
    if group["fused"] and group["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if group["fused"]:
        for param in group["params"]:
            if param.device.type not in KERNEL_DEVICES or not param.is_floating_point():
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of supported devices: "
                    f"{KERNEL_DEVICES}; one is {param.dtype} on {param.device}"
                )
    if group["capturable"] and (group["fused"] is False or group["foreach"] or group["differentiable"]):
        raise RuntimeError(
            "`capturable` needs the kernels, whose counters lie on the device; the loop of `fused=False`, `foreach` and "
            "`differentiable` reads them on the host"
        )
