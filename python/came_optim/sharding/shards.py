"""From the placements of a DTensor to the part that this rank holds, and from those of a parameter to those of its state.

Offsets and sizes come from torch's own function.  A part must be a contiguous box.
"""

from functools import lru_cache
from itertools import product
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset as _local_part

from . import is_dtensor, local

Sizes = Tuple[int, ...]


class Part(NamedTuple):
    """What this rank holds of a tensor."""

    extent: Sizes
    offset: Sizes


def sharded_dim(placement: Any) -> Optional[int]:
    """The dimension of the tensor that a placement splits, in whatever way; None if it splits none."""
    dim = getattr(placement, "dim", None)
    return dim if isinstance(dim, int) else None


def part_of(shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> Part:
    """This rank's part of a tensor of that shape."""
    extent, offset = _local_part(tuple(shape), tuple(mesh.shape), mesh.get_coordinate(), placements)
    return Part(tuple(extent), tuple(offset))


def splits(tensor: DTensor) -> List[Tuple[int, int]]:
    """(dimension of the mesh, dimension of the tensor that it splits), where there is more than one rank."""
    found = [(k, sharded_dim(placement)) for k, placement in enumerate(tensor.placements)]
    return [(k, dim) for k, dim in found if dim is not None and tensor.device_mesh.size(k) > 1]


def refuse(param: DTensor, what: str) -> None:
    """Raises for placements that kernels cannot step; what can be seen on one rank can be seen on all."""
    placed = f"{what} is a DTensor with placements {text(param.placements)} on a mesh of {list(param.device_mesh.shape)}"
    if param.device_mesh.get_coordinate() is None:
        raise ValueError(f"{placed}, which this rank is not part of, expected an optimizer over parameters that it holds")
    for placement in param.placements:
        if not isinstance(placement, Replicate) and sharded_dim(placement) is None:
            raise ValueError(f"{placed}, expected Shard or Replicate: redistribute() makes it so")
    for dim in {dim for _, dim in splits(param)}:
        if not _is_cut_in_order(param.shape[dim], tuple(param.device_mesh.shape), _on_one_dim(param.placements, dim)):
            raise ValueError(
                f"{placed}: dimension {dim} of size {param.shape[dim]} is cut into parts that do not lie together, expected a size that "
                "the ranks divide, or shards of different dimensions"
            )


def text(placements: Sequence[Any]) -> str:
    """Placements for messages.

    >>> text([Shard(0), Replicate()])
    '(Shard(0), Replicate())'
    """
    return f"({', '.join(repr(placement).replace('dim=', '') for placement in placements)})"


def _on_one_dim(placements: Sequence[Any], dim: int) -> Tuple[Any, ...]:
    """The placements that split one dimension, as of a vector."""
    return tuple(_moved(p, 0) if sharded_dim(p) == dim else Replicate() for p in placements)


@lru_cache(maxsize=None)
def _is_cut_in_order(size: int, mesh: Sizes, placements: Tuple[Any, ...]) -> bool:
    """Whether the part of every rank is a range.

    Torch tells sizes and first elements.  If ranges of these sizes cover everything once, the parts are these ranges.
    """
    ranks = [range(n) if sharded_dim(p) is not None else range(1) for n, p in zip(mesh, placements)]
    parts = [_local_part((size,), mesh, list(at), placements) for at in product(*ranks)]
    end = 0
    for begin, count in sorted((offset[0], extent[0]) for extent, offset in parts if extent[0]):
        if begin != end:
            return False
        end += count
    return end == size


# ---- local tensors -----------------------------------------------------------------------------------


def as_placed(tensor: Any, mesh: Any, placements: Sequence[Any], what: str) -> Tensor:
    """The local part of a tensor, placed like this; ranks exchange it if it is not yet."""
    if not is_dtensor(tensor):
        raise TypeError(f"{what} is a plain tensor beside a DTensor, expected a DTensor, too")
    if tensor.device_mesh is not mesh and tensor.device_mesh != mesh:
        raise ValueError(f"{what} is on {tensor.device_mesh}, expected the parameter's {mesh}")
    if tensor.placements is not placements and tuple(tensor.placements) != tuple(placements):
        tensor = tensor.redistribute(placements=placements)
    return local(tensor)


# ---- state -------------------------------------------------------------------------------------------


def _moved(placement: Any, dim: int) -> Any:
    """The same split of another dimension."""
    factor = getattr(placement, "split_factor", None)
    return Shard(dim) if factor is None else type(placement)(dim, split_factor=factor)


def state_placements(param: DTensor, dims: Sequence[int]) -> Tuple[Any, ...]:
    """Placements of a state tensor.  `dims` says in which of its dimensions each of the parameter's lies; -1: it was averaged over."""
    made: List[Any] = []
    for placement in param.placements:
        dim = sharded_dim(placement)
        to = -1 if dim is None else dims[dim]
        made.append(Replicate() if to < 0 else _moved(placement, to))
    return tuple(made)


def contiguous_strides(shape: Sequence[int]) -> Sizes:
    """
    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if len(shape) else ()


def wrap(held: Tensor, param: DTensor, whole: Sizes, dims: Sequence[int]) -> DTensor:
    """A state tensor of which `held` is this rank's part."""
    placements = state_placements(param, dims)
    return DTensor.from_local(
        held, param.device_mesh, placements, run_check=False, shape=torch.Size(whole), stride=contiguous_strides(whole)
    )


def check_state_part(param: DTensor, whole: Sizes, dims: Sequence[int], part: Part, what: str) -> None:
    """Raises unless torch would cut this state where the plan cuts it, so that checkpoints can move it."""
    placements = state_placements(param, dims)
    cut = part_of(whole, param.device_mesh, placements)
    if cut.extent != part.extent or (0 not in part.extent and cut.offset != part.offset):
        raise ValueError(
            f"{what} of shape {list(whole)} has rows or columns {list(part.offset)} + {list(part.extent)} here, but a DTensor with "
            f"placements {text(placements)} has {list(cut.offset)} + {list(cut.extent)}, expected a parameter whose split dimension the "
            "ranks divide, or a split of dimension 0"
        )


def cut(whole: Tensor, part: Part) -> Tensor:
    """A copy of this rank's part of a whole tensor."""
    for dim, (begin, count) in enumerate(zip(part.offset, part.extent)):
        whole = whole.narrow(dim, min(begin, whole.shape[dim]), count)
    return whole.clone(memory_format=torch.contiguous_format)
