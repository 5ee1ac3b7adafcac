"""The bindings of an optimizer: which parameters take part, which of them are stepped together, and whether all ranks do the same."""

from itertools import chain
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from torch import Tensor

from . import refuse
from .binding import Binding
from .members import Member
from .modes import check_fused, check_modes
from .sharding import is_dtensor

if TYPE_CHECKING:
    from .optimizer import Optimizer

_LOOP = "the loop, which runs for `fused=False`, `foreach` and `differentiable`, and where libcame is not built,"


def takes_part(optimizer: "Optimizer", param: Tensor) -> bool:
    """Whether a parameter is bound: it has, or has had, a gradient.

    Beside DTensors it may have one later, so that all ranks bind the same parameters.
    """
    return param.grad is not None or bool(optimizer.state.get(param)) or (optimizer._ranks is not None and param.requires_grad)


def make_bindings(optimizer: "Optimizer") -> Tuple[List[Binding], List[Tensor]]:
    """Bindings by device, and by kernels or loop; and the parameters that take no part."""
    sharded = [param for param in chain.from_iterable(g["params"] for g in optimizer.param_groups) if is_dtensor(param)]
    if not sharded:
        optimizer._ranks = None
        return _make(optimizer)
    from .sharding.ranks import Ranks

    if optimizer._ranks is None or not optimizer._ranks.holds(sharded):
        optimizer._ranks = Ranks(sharded)
    return _make_on_all_ranks(optimizer, optimizer._ranks)


def _make(optimizer: "Optimizer") -> Tuple[List[Binding], List[Tensor]]:
    owner = type(optimizer).__name__
    sorts: Dict[Any, List[Member]] = {}
    distinct: Dict[int, Member] = {}  # a parameter given twice is one; torch warns of it when it is given
    for member in optimizer._members():
        distinct.setdefault(id(member.param), member)
    idle = [member.param for member in distinct.values() if not takes_part(optimizer, member.param)]
    for member in distinct.values():
        if not takes_part(optimizer, member.param):
            continue
        refuse.parameter(member, owner, optimizer.elementwise)
        group = optimizer.param_groups[member.group]
        check_modes(group)
        check_fused(group, member.param)
        kernels = optimizer._wants_kernels(group)
        if not kernels:
            refuse.sharded(member, owner, _LOOP)
        sorts.setdefault((member.param.device, kernels), []).append(member)
    # Without gradients a step reads no option: some schedulers of torch put anything there before the first one.
    options = optimizer._options() if sorts else []
    if len(sorts) > 1 and any(o.max_grad_norm > 0 for o in options):
        places = [f"{'kernels' if kernels else 'loop'} on {device}" for device, kernels in sorts]
        raise ValueError(
            f"max_grad_norm: the norm is over all parameters, which are stepped in several places here ({', '.join(places)}), "
            "expected one device and one value of `fused`"
        )
    if optimizer._ranks is None:
        return [Binding(owner, members, options, optimizer.state, kernels) for (_, kernels), members in sorts.items()], idle
    from .sharding.binding import ShardedBinding

    return [ShardedBinding(owner, members, options, optimizer.state, optimizer._ranks) for members in sorts.values()], idle


def _make_on_all_ranks(optimizer: "Optimizer", ranks: Any) -> Tuple[List[Binding], List[Tensor]]:
    """Bindings, once all ranks are found to make the same ones."""
    from .sharding.ranks import ALONE, Line

    found_inf = getattr(optimizer, "found_inf", None)
    begins = not any(optimizer.state.values())
    try:
        bindings, idle = _make(optimizer)
    except Exception as error:
        ranks.fail(error, found_inf)
        raise
    lines = [line for binding in bindings for line in binding.lines()]
    if begins or ranks.must_compare(lines):
        if not ranks.withdraw(found_inf):
            raise RuntimeError(f"{type(optimizer).__name__}: {ALONE}")
        rates = [Line(f"lr of param group {k}", str(rate)) for k, rate in enumerate(map(optimizer._rate, optimizer.param_groups))]
        present = [Line(f"the gradient of {m}", "none" if m.param.grad is None else "there") for b in bindings for m in b.members]
        optimizer._only_makes_state = ranks.compare(lines, rates + present, optimizer._only_makes_state)
        ranks.begin_with(next((first for first in (binding.first_reductions() for binding in bindings) if first), []))
    return bindings, idle
