"""Gradient release: each parameter is stepped as soon as its gradient arrives, which is then freed.

Only one gradient is in memory at a time.
"""

from typing import List, Set

import torch
from torch import Tensor
from torch.nn import Module

from .notices import warn
from .one_by_one import check_options, instead_of_clipping
from .optimizer import Optimizer
from .options import from_group


class GradientRelease:
    """What `gradient_release` returns; after `remove()` `optimizer.step()` steps again."""

    def __init__(self, optimizer: Optimizer, params: List[Tensor]) -> None:
        self._optimizer = optimizer
        self._single = optimizer._singles()
        self._done: Set[Tensor] = set()
        self._hooks = [param.register_post_accumulate_grad_hook(self._release) for param in params]
        optimizer._released = self

    def _release(self, param: Tensor) -> None:
        if param in self._done:
            place = self._single.place(param)
            raise RuntimeError(
                f"{place.member if place else 'a parameter'} has its second gradient since the last optimizer.step(): gradient "
                "release steps with each gradient at once, so gradients cannot be accumulated; call optimizer.step() after every "
                "backward, which here only marks the end of the step, or remove() the release"
            )
        self._done.add(param)
        self._single.step(param)

    def end_step(self) -> None:
        """Called by optimizer.step(): gradients may come again."""
        self._done.clear()

    def remove(self) -> None:
        """Takes the hooks away; optimizer.step() steps all parameters again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._optimizer._released = None


_warned = False  # in this process


def _warn_of_clipping(optimizer: Optimizer) -> None:
    """Warns, since a call of clip_grad_norm_ cannot be noticed: it finds no gradient and returns a norm of 0."""
    global _warned
    if not _warned:
        _warned = True
        warn(
            "gradient_release: gradients are freed during backward(), so that clip_grad_norm_ and the max_grad_norm of trainers (1.0 in "
            "that of transformers by default) find no gradient and do nothing.  Turn them off; "
            f"{instead_of_clipping(optimizer)}",
        )


def _ranks() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def gradient_release(model: Module, optimizer: Optimizer) -> GradientRelease:
    """Steps each parameter of `model` during `backward()`, as its gradient arrives, and frees the gradient at once.

    The loop stays what it was: `backward()`, `optimizer.step()`, `scheduler.step()`; `optimizer.step()` now only marks the end
    of a step.  Gradient accumulation, `max_grad_norm`, a GradScaler and several processes are errors.  clip_grad_norm_ finds no
    gradient; the first call in a process warns of that.

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
    check_options([from_group(optimizer.algorithm, optimizer._all_fields(), group) for group in optimizer.param_groups], optimizer)
    own = {param for group in optimizer.param_groups for param in group["params"]}
    params = [param for param in model.parameters() if param.requires_grad]
    missing = [name for name, param in model.named_parameters() if param.requires_grad and param not in own]
    if missing:
        raise ValueError(f"optimizer: has no parameter {missing[0]!r} of the model, expected all that require gradients")
    _warn_of_clipping(optimizer)
    return GradientRelease(optimizer, params)
