"""What the optimizers share as `torch.optim.Optimizer`: options from param groups, lazy state, the choice between the
kernels of libcame and the loop in PyTorch.
"""

from functools import lru_cache
from inspect import signature
from itertools import chain
from operator import itemgetter
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Mapping, Optional, Type

import torch
from torch import Tensor

from . import checkpoint, loop, native, ops, refuse, scalars
from .arguments import plain, sequences, shown
from .binding import Binding
from .bindings import make_bindings, takes_part
from .lender import Roster
from .library import is_built
from .members import Member
from .modes import KERNEL_DEVICES, MODES, check_modes, check_rate
from .one_by_one import OneByOne
from .options import COMMON, from_group
from .sharding import local
from .state import Slot

_params = itemgetter("params")


class Optimizer(torch.optim.Optimizer):
    """Base of all optimizers here; not an optimizer itself."""

    algorithm: ClassVar[str]  # its name in libcame
    fields: ClassVar[Mapping[str, str]]  # came_options -> arguments, beyond options.COMMON
    elementwise: ClassVar[bool] = False  # a flat piece of several tensors steps as they would

    _bindings: Optional[List[Binding]] = None
    _released: Optional[Any] = None  # came_optim.gradient_release, if it has taken over
    _one_by_one: Optional[OneByOne] = None  # plans of single parameters, once one is stepped alone
    _ranks: Optional[Any] = None  # sharding.ranks.Ranks, if there is a DTensor
    _idle: List[Tensor] = []  # parameters that take no part yet
    _only_makes_state = False  # this step allocates, and does nothing else

    def __init__(self, params: Iterable[Any], arguments: Dict[str, Any]) -> None:
        given = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
        defaults = self._plain_defaults(given)
        if isinstance(defaults["lr"], Tensor):  # as torch does, before parameters are checked
            check_rate(defaults["lr"], defaults)
        super().__init__(params, defaults)

    @classmethod
    def _plain_defaults(cls, given: Dict[str, Any]) -> Dict[str, Any]:
        """What a group has where it does not say; `beta1` and its like in the place of `betas`, if that was not given."""
        left = {name for name in sequences(cls.fields) if any(given[name] is own.get(name) for own in _signatures(cls))}
        base = {name: given[name] for name in left}
        made = plain(cls.algorithm, cls._all_fields(), {name: value for name, value in given.items() if name not in left}, base)
        return {name: made.get(name, value) for name, value in given.items() if name in made or name in left}

    @classmethod
    def _all_fields(cls) -> Dict[str, str]:
        return {**{name: name for name in COMMON}, **cls.fields}

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Kernels divide by `grad_scale` and read `found_inf` themselves; for the loop, GradScaler does."""
        return all(self._wants_kernels(group) for group in self.param_groups)

    # ---- param groups --------------------------------------------------------------------------------

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if self._released is not None:
            raise RuntimeError("param_group: given while gradients are released, expected remove() first, and release again after")
        if isinstance(param_group, dict):
            made = plain(self.algorithm, self._all_fields(), param_group, self.defaults)
            for name in set(param_group) - set(made):
                del param_group[name]
            param_group.update(made)
        super().add_param_group(param_group)
        self._bindings = None
        try:
            self._check_group(param_group)
        except Exception:
            self.param_groups.pop()
            raise
        self._note_given()

    def _note_given(self) -> None:
        """Dimensions of the group's parameters as the user gave them, to notice wrappers that flatten them."""
        self._most_dims = [max((p.ndim for p in group["params"]), default=0) for group in self.param_groups]
        self._given = set(map(id, chain.from_iterable(group["params"] for group in self.param_groups)))

    def _check_group(self, group: Dict[str, Any]) -> None:
        check_rate(self._rate(group), group)
        check_modes(group)
        self._check_own(group)
        self._wants_kernels(group)  # warns or raises if there are none
        from_group(self.algorithm, self._all_fields(), group)
        number = sum(len(other["params"]) for other in self.param_groups if other is not group)
        for k, param in enumerate(group["params"]):
            name = (group.get("param_names") or [""] * len(group["params"]))[k]
            refuse.parameter(Member(param, 0, number + k, name), type(self).__name__, self.elementwise)

    def _check_own(self, group: Dict[str, Any]) -> None:
        """Raises for entries that no option supports; a checkpoint may have them."""

    def _wants_kernels(self, group: Mapping[str, Any]) -> bool:
        if group["foreach"] or group["differentiable"] or group["fused"] is False:
            return False
        if group["fused"]:
            return True
        return all(param.device.type in KERNEL_DEVICES for param in group["params"]) and is_built()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        for key, slot in self.state.items():
            if type(slot) is dict:
                self.state[key] = Slot(slot)  # it was complete where it was saved
        self._bindings = None
        if self._one_by_one is not None:
            self._one_by_one.forget()
        self._note_given()

    # ---- steps ---------------------------------------------------------------------------------------

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step over all parameters that have a gradient.

        Args:
            closure: evaluates the model again and returns the loss.
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
            self._released.end_step()
        if self._one_by_one is not None and self._has_no_gradient():
            return loss  # each was stepped alone
        if torch.compiler.is_compiling() and not self.defaults["differentiable"]:
            self._step_in_graph(*scaling)
        else:
            with torch.set_grad_enabled(bool(self.defaults["differentiable"])):
                self._step(*scaling)
        return loss

    def step_parameter(self, p: Tensor, group: Optional[Dict[str, Any]] = None, i: Optional[int] = None) -> None:
        """Steps one parameter with its gradient, and frees that: for trainers that step in hooks during backward.

        `optimizer.step()` then passes it over; a gradient that comes later is another step.  `max_grad_norm` is an error, since
        there is no norm over all gradients.

        Args:
            p: a parameter of this optimizer; without a gradient it is passed over.
            group, i: its param group, and its number there; may be left out, and wrong ones are refused.
        """
        if self._released is not None:
            raise RuntimeError("step_parameter: gradients are released already, expected remove() of the release first")
        single = self._singles()
        place = single.place(p) if isinstance(p, Tensor) else None
        if place is None:
            raise ValueError(f"p: {shown(p)} given, expected a parameter of this optimizer")
        number, k = place.member.group, place.index
        if group is not None and group is not self.param_groups[number]:
            raise ValueError(
                f"group: given is not that of {place.member}, expected optimizer.param_groups[{number}] as it is now: load_state_dict "
                "makes new ones"
            )
        if i is not None and i != k:
            raise ValueError(f"i: {shown(i)} given, expected {k}, the number of {place.member} in its group")
        if p.grad is not None:
            single.step(p, getattr(self, "grad_scale", None), getattr(self, "found_inf", None))

    def _singles(self) -> OneByOne:
        if self._one_by_one is None:
            self._one_by_one = OneByOne(self)
        return self._one_by_one

    def _has_no_gradient(self) -> bool:
        return all(param.grad is None for group in self.param_groups for param in group["params"])

    def _step(self, grad_scale: Optional[Tensor], found_inf: Optional[Tensor]) -> None:
        self._only_makes_state = self._asks_for_state()
        bound = self._bound()
        if self._only_makes_state:
            self._only_makes_state = False
            return
        rates = [self._rate(group) for group in self.param_groups]
        for binding, gradients in bound:
            # A single call of the kernels validates itself before it writes.
            if not binding.kernels or len(bound) > 1:
                scalars.check(binding, self.param_groups, gradients, rates, grad_scale, found_inf)
        for binding, gradients in bound:
            self._run(binding, gradients, rates, grad_scale, found_inf)

    def _asks_for_state(self) -> bool:
        """Whether this step can be there for nothing but the state that it allocates, as torch.distributed.checkpoint makes one before
        it loads: no state yet, a rate of 0 in every group, and gradients that are 0."""
        if any(self.state.values()) or any(group["lr"] is None or bool(group["lr"] != 0) for group in self.param_groups):
            return False
        grads = [local(param.grad) for group in self.param_groups for param in group["params"] if param.grad is not None]
        return all(grad.layout is torch.strided and not grad.any() for grad in grads)

    def _run(self, binding: Binding, *arguments: Any) -> None:
        if binding.kernels:
            binding.run(*arguments)
        else:
            loop.run(self.algorithm, self._all_fields(), binding, self.param_groups, *arguments)

    def _step_in_graph(self, grad_scale: Optional[Tensor], found_inf: Optional[Tensor]) -> None:
        """The step as torch.compile sees it: one operator per device, or a call outside the graph where an operator cannot do it."""
        calls = self._graph_calls()
        if calls is None:
            self._step_outside_graph(grad_scale, found_inf)
            return
        for binding, rates, options, plan in calls:
            grads = [param.grad for param in binding.params]
            with torch.no_grad():
                ops.step(binding.params, grads, binding.states, binding.steps, rates, options, grad_scale, found_inf, plan)

    @torch._dynamo.disable
    def _graph_calls(self) -> Optional[List[Any]]:
        if self._asks_for_state():
            return None
        bound = self._bound()
        if not ops.IN_GRAPHS or not all(binding.plain(gradients) for binding, gradients in bound):
            return None
        rates = [self._rate(group) for group in self.param_groups]
        return [
            (binding, ops.rates(rates, binding.device), ops.pack(binding.options), ops.describe(self.algorithm, binding))
            for binding, _ in bound
        ]

    @torch._dynamo.disable
    def _step_outside_graph(self, grad_scale: Optional[Tensor], found_inf: Optional[Tensor]) -> None:
        with torch.no_grad():
            self._step(grad_scale, found_inf)

    def _rate(self, group: Mapping[str, Any]) -> Any:
        return group["lr"]

    def _bound(self) -> Any:
        """Bindings and gradients for this step.  A change of anything but addresses makes new bindings."""
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
        """What the options of a step follow from: all entries of the groups but the rate."""
        return list(map(self._key_of, self.param_groups))

    def _key_of(self, group: Mapping[str, Any]) -> Any:
        return tuple(map(_frozen, _picker(type(self))(group)))

    def _modes(self) -> List[Any]:
        """What decides between kernels and loop."""
        return [[group[mode] for mode in sorted(MODES)] for group in self.param_groups]

    def _read_groups(self) -> None:
        """Reads entries that were set since: texts for modes, `beta1` for the first of `betas`."""
        parts = set(chain.from_iterable(sequences(self.fields).values()))
        for group in self.param_groups:
            given = {name: value for name, value in group.items() if name in parts or name in MODES}
            for name in parts & given.keys():
                del group[name]
            group.update(plain(self.algorithm, self._all_fields(), given, group))

    def _options(self) -> List[native.Options]:
        for group in self.param_groups:
            self._check_own(group)
        return [from_group(self.algorithm, self._all_fields(), group) for group in self.param_groups]

    def _same(self) -> bool:
        return (
            self.state is self._bound_state
            and self._roster.matches(*self._objects())
            and (self._same_options() or self._adopt_options())
            and not any(takes_part(self, param) for param in self._idle)
        )

    def _objects(self) -> List[Any]:
        """What holds the parameters of each group, and all states."""
        return [*map(_params, self.param_groups), self.state]

    def _same_options(self) -> bool:
        if list(map(len, self.param_groups)) != self._bound_sizes:
            return False
        if self._bound_values is None:
            return self._key() == self._bound_key
        return list(map(_picker(type(self)), self.param_groups)) == self._bound_values

    def _adopt_options(self) -> bool:
        """Steps with changed options from now on; False if they need other plans."""
        self._read_groups()
        if self._modes() != self._bound_modes:
            return False
        options = self._options() if self._bindings else []
        if not all([binding.adopt(options) for binding in self._bindings or ()]):
            return False
        self._note_options()
        return True

    def _note_options(self) -> None:
        self._bound_key, self._bound_modes, self._bound_sizes = self._key(), self._modes(), list(map(len, self.param_groups))
        values = list(map(_picker(type(self)), self.param_groups))
        frozen = not any(map(_may_change, chain.from_iterable(values)))
        self._bound_values = values if frozen else None

    def _bind(self) -> None:
        """Sorts the parameters that have, or have had, a gradient by device, and by kernels or loop."""
        self._read_groups()
        for dims, group in zip(self._most_dims, self.param_groups):
            if not self.elementwise:
                refuse.replaced(dims, group["params"], self._given, type(self).__name__)
        bindings, self._idle = make_bindings(self)
        for binding in bindings:  # none of them can fail any more
            binding.install(self.state)
        self._bindings = bindings
        self._bound_state, self._roster = self.state, Roster(*self._objects())
        self._note_options()
        if self._one_by_one is not None:
            self._one_by_one.forget()

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
def _signatures(cls: Type[Optimizer]) -> List[Dict[str, Any]]:
    """The defaults of the arguments of a class and of those it is made of: what has one of these objects was not given."""
    makers = [base.__dict__["__init__"] for base in cls.__mro__ if issubclass(base, Optimizer) and "__init__" in base.__dict__]
    return [{name: p.default for name, p in signature(maker).parameters.items()} for maker in makers]


@lru_cache(maxsize=None)
def _picker(cls: Type[Optimizer]) -> Callable[[Mapping[str, Any]], Any]:
    return itemgetter(*sorted({argument.split("[")[0] for argument in cls._all_fields().values()} | MODES))


def _may_change(value: Any) -> bool:
    """Whether a value may change in place."""
    return isinstance(value, (list, Tensor)) or (isinstance(value, tuple) and any(map(_may_change, value)))


def _frozen(value: Any) -> Any:
    """What a value is now."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
