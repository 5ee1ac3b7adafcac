"""Gradient release: each parameter is stepped as soon as its gradient is there, which is then freed.

Only one gradient lives at a time, so the peak of memory drops by the gradients' size.
"""

from typing import Any, Dict, List, Set, Tuple

import torch
from torch import Tensor
from torch.nn import Module

from . import native, refuse, scalars
from .binding import Binding, Member
from .optimizer import Optimizer
from .options import from_group


class GradientRelease:
    """What `gradient_release` returns; `remove()` gives the steps back to `optimizer.step()`."""

    def __init__(self, optimizer: Optimizer, params: List[Tensor]) -> None:
        self._optimizer = optimizer
        self._members: Dict[Tensor, Member] = {member.param: member for member in optimizer._members()}
        self._bindings: Dict[Tensor, Any] = {}
        self._done: Set[Tensor] = set()
        self._key: Any = None  # of the options below
        self._known: List[native.Options] = []
        self._hooks = [param.register_post_accumulate_grad_hook(self._release) for param in params]
        optimizer._released = self

    def _release(self, param: Tensor) -> None:
        if param in self._done:
            raise RuntimeError(
                f"{self._members[param]} has its second gradient since the last optimizer.step(): gradient release steps with "
                "each gradient at once, so gradients cannot be accumulated; call optimizer.step() after every backward, which "
                "here only marks the end of the step, or remove() the release"
            )
        self._done.add(param)
        optimizer = self._optimizer
        with torch.no_grad():
            binding, gradients = self._bound(param)
            rates = [optimizer._rate(group) for group in optimizer.param_groups]
            if not binding.kernels:
                scalars.check(binding, optimizer.param_groups, gradients, rates, None, None)
            optimizer._run(binding, gradients, rates, None, None)
        param.grad = None

    def _bound(self, param: Tensor) -> Tuple[Binding, Any]:
        """A plan for this parameter alone, made anew when one that decides it has changed, and its gradient."""
        optimizer, member, key = self._optimizer, self._members[param], self._optimizer._key()
        known, binding = self._bindings.get(param, (None, None))
        fits = binding is not None and optimizer.state.get(param) is binding.slots[0]
        if fits and known != key:
            fits = self._adopt(binding, param, key)
        gradients = binding.take() if fits else None
        if gradients is None:
            refuse.parameter(member, type(optimizer).__name__, optimizer.elementwise)
            options = self._options(key)
            kernels = optimizer._wants_kernels(optimizer.param_groups[member.group])
            binding = Binding(type(optimizer).__name__, [member], options, optimizer.state, kernels)
            binding.install(optimizer.state)
            gradients = binding.take()
            self._bindings[param] = key, binding
            optimizer._bindings = None
        return binding, gradients

    def _options(self, key: Any) -> List[native.Options]:
        """Those that groups of this key stand for; they change once per step at most, not with each parameter."""
        if self._key != key:
            options = self._optimizer._options()
            _check_options(options)
            self._key, self._known = key, options
        return self._known

    def _adopt(self, binding: Binding, param: Tensor, key: Any) -> bool:
        """Whether options that have changed leave the plan as it is."""
        wants_kernels = self._optimizer._wants_kernels(self._optimizer.param_groups[self._members[param].group])
        if wants_kernels != binding.kernels or not binding.adopt(self._options(key)):
            return False
        self._bindings[param] = key, binding
        return True

    def forget(self) -> None:
        """Called when the optimizer itself has bound the state."""
        self._bindings.clear()

    def end_step(self) -> bool:
        """Called by optimizer.step(): gradients may come again.  Whether there is nothing left to step."""
        self._done.clear()
        return all(param.grad is None for group in self._optimizer.param_groups for param in group["params"])

    def remove(self) -> None:
        """Takes the hooks away; optimizer.step() steps all parameters again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._optimizer._released = None


def _check_options(options: List[Any]) -> None:
    if any(o.max_grad_norm for o in options):
        raise ValueError("max_grad_norm: is set, expected 0: with gradient release no norm over all gradients is ever known")


def _ranks() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def gradient_release(model: Module, optimizer: Optimizer) -> GradientRelease:
    """Steps each parameter of `model` during `backward()`, as its gradient arrives, and frees the gradient at once.

    The loop stays what it was: `backward()`, `optimizer.step()`, `scheduler.step()`; `optimizer.step()` now only marks the end
    of a step.  Not to be had together with gradient accumulation, `max_grad_norm`, a GradScaler or several processes.

    >>> import torch, came_optim
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = came_optim.CAME(model.parameters())
    >>> release = came_optim.gradient_release(model, optimizer)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> model.weight.grad is None and int(optimizer.state[model.weight]["step"]) == 1
    True
    >>> optimizer.step()
    >>> release.remove()
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer: {type(optimizer).__name__} given, expected one of came_optim's optimizers")
    if _ranks() > 1:
        raise RuntimeError(
            f"model: trained by {_ranks()} processes, expected one: a parameter would be stepped with the gradient of its own "
            "process, before DistributedDataParallel has averaged them, and the processes would drift apart"
        )
    if optimizer._released is not None:
        raise RuntimeError("optimizer: its gradients are released already, expected remove() first")
    _check_options([from_group(optimizer.word, optimizer._all_fields(), group) for group in optimizer.param_groups])
    own = {param for group in optimizer.param_groups for param in group["params"]}
    params = [param for param in model.parameters() if param.requires_grad]
    missing = [name for name, param in model.named_parameters() if param.requires_grad and param not in own]
    if missing:
        raise ValueError(f"optimizer: has no parameter {missing[0]!r} of the model, expected all that require gradients")
    return GradientRelease(optimizer, params)
