"""Version counters, by which autograd knows that a tensor was written to since it was saved; it cannot see what kernels do.
"""

from typing import List, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import Parameter


def rise(tensors: Sequence[Tensor]) -> None:
    """Says that tensors were written to."""
    try:
        torch.autograd.graph.increment_version(tensors)
    except (TypeError, RuntimeError):  # torch 2.4 takes one at a time
        for tensor in tensors:
            torch.autograd.graph.increment_version(tensor)


class Versions:
    """The counters of a list of parameters, reached by aliases.

    An alias is an empty tensor that shares the counter of its parameter and none of its memory.  Where a tensor has a single
    reference in C++, each call into torch takes the interpreter's lock twice to keep its Python object; parameters have one,
    and must, since `torch.utils.swap_tensors` refuses others.  The aliases have two: a quarter of the time.
    """

    def __init__(self, params: List[Tensor]) -> None:
        self._params = params
        self._aliases: Tuple[Tensor, ...] = ()
        self._holders: List[Tensor] = []
        self._settled = False
        self._can_share = all(type(param) in (Tensor, Parameter) and not param.is_inference() for param in params)

    def forget(self) -> None:
        """A parameter may have another counter than it had."""
        self._aliases, self._holders, self._settled = (), [], False

    def rise(self) -> None:
        """Says that all of them were written to."""
        if self._aliases:
            rise(self._aliases)
        elif self._settled and self._can_share:
            self._share()
        else:  # Counters that change from step to step are not worth an alias.
            rise(self._params)
            self._settled = True

    def _share(self) -> None:
        counts = [param._version + 1 for param in self._params]
        aliases = [param.detach() for param in self._params]
        for alias in aliases:
            alias.data = alias.new_empty(0)
        rise(aliases)
        self._can_share = [param._version for param in self._params] == counts
        if not self._can_share:
            rise([p for p, count in zip(self._params, counts) if p._version != count])
            return
        self._holders = [alias.new_empty(0) for alias in aliases]
        for holder, alias in zip(self._holders, aliases):
            holder.grad = alias
        self._aliases = tuple(aliases)
