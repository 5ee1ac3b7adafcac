"""Steps of one parameter at a time, each with a plan of its own: what `gradient_release` and `step_parameter` have in common."""

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import loop, refuse, scalars
from .binding import Binding, Gradients
from .members import Member
from .options import from_group

if TYPE_CHECKING:
    from .optimizer import Optimizer


class Place(NamedTuple):
    """Where the optimizer has a parameter."""

    member: Member
    index: int  # in its group


class OneByOne:
    """The plans of single parameters of an optimizer, made when they are first needed."""

    def __init__(self, optimizer: "Optimizer") -> None:
        self._optimizer = optimizer
        self._places: Dict[Tensor, Place] = {}
        self._bindings: Dict[Tensor, Tuple[Any, Binding]] = {}

    def place(self, param: Tensor) -> Optional[Place]:
        """None if the optimizer does not have it."""
        groups = self._optimizer.param_groups
        found = self._places.get(param)
        if found is None or found.member.group >= len(groups) or not _is_at(groups[found.member.group]["params"], found.index, param):
            members = iter(self._optimizer._members())
            self._places = {p: Place(next(members), k) for group in groups for k, p in enumerate(group["params"])}
            found = self._places.get(param)
        return found

    def step(self, param: Tensor, grad_scale: Optional[Tensor] = None, found_inf: Optional[Tensor] = None) -> None:
        """Steps a parameter that the optimizer has with its gradient, and frees that."""
        optimizer, place = self._optimizer, self.place(param)
        assert place is not None
        group = optimizer.param_groups[place.member.group]
        rates = [optimizer._rate(group)]
        with torch.no_grad():
            binding, gradients = self._bound(place.member, group)
            if binding.kernels:
                binding.run(gradients, rates, grad_scale, found_inf)
            else:
                scalars.check(binding, [group], gradients, rates, grad_scale, found_inf)
                loop.run(optimizer.algorithm, optimizer._all_fields(), binding, [group], gradients, rates, grad_scale, found_inf)
        param.grad = None
        optimizer._opt_called = True  # schedulers check that a step came before theirs

    def _bound(self, member: Member, group: Dict[str, Any]) -> Tuple[Binding, Gradients]:
        """A plan for this parameter alone, and its gradient.  A changed option that decides the plan makes a new one."""
        optimizer, key = self._optimizer, self._optimizer._key_of(group)
        bound_key, binding = self._bindings.get(member.param, (None, None))
        fits = binding is not None and optimizer.state.get(member.param) is binding.slots[0]
        if binding is not None and fits and bound_key != key:
            fits = self._adopt(binding, member.param, group, key)
        gradients = binding.take() if binding is not None and fits else None
        if binding is None or gradients is None:
            owner = type(optimizer).__name__
            refuse.sharded(member, owner, "stepping one parameter at a time")
            refuse.parameter(member, owner, optimizer.elementwise)
            options = self._options(group)
            alone = [member._replace(group=0)]
            binding = Binding(owner, alone, options, optimizer.state, optimizer._wants_kernels(group))
            binding.install(optimizer.state)
            gradients = binding.take()
            if gradients is None:
                raise RuntimeError(f"{owner}: {member}, its gradient or state changed while they were being bound")
            self._bindings[member.param] = key, binding
            optimizer._bindings = None
        return binding, gradients

    def _options(self, group: Dict[str, Any]) -> List[Any]:
        optimizer = self._optimizer
        options = [from_group(optimizer.algorithm, optimizer._all_fields(), group)]
        check_options(options, optimizer)
        if group["differentiable"]:
            raise RuntimeError("`differentiable` does not support steps of one parameter at a time, which free gradients")
        return options

    def _adopt(self, binding: Binding, param: Tensor, group: Dict[str, Any], key: Any) -> bool:
        """Steps with changed options from now on; False if they need another plan."""
        if self._optimizer._wants_kernels(group) != binding.kernels or not binding.adopt(self._options(group)):
            return False
        self._bindings[param] = key, binding
        return True

    def forget(self) -> None:
        """Called when the optimizer itself has bound the state, or has other parameters."""
        self._bindings.clear()


def _is_at(params: List[Tensor], index: int, param: Tensor) -> bool:
    return index < len(params) and params[index] is param


def instead_of_clipping(optimizer: "Optimizer") -> str:
    """Advice on what bounds updates where there is no norm over all gradients."""
    bounds = f"the clip_threshold of {type(optimizer).__name__} bounds the update of each tensor; or " if "clip_threshold" in optimizer.fields else ""
    return f"{bounds}clip each gradient by itself, in a hook that was registered before: register_post_accumulate_grad_hook"


def check_options(options: List[Any], optimizer: "Optimizer") -> None:
    """Raises for what needs all gradients at once."""
    if any(o.max_grad_norm for o in options):
        raise ValueError(
            f"max_grad_norm: is set, expected 0: gradient release has no norm over all gradients; {instead_of_clipping(optimizer)}"
        )
