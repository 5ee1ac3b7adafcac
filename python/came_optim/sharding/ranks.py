"""Ranks that hold parts of the same tensors: who reduces with whom, and whether all are about to do the same.

A reduce group is a set of ranks, found from the dimensions of a mesh that split a tensor.  Groups are numbered by the order of the
parameters, so the numbers are the same on every rank.
"""

import hashlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from . import local

OPERATIONS = (dist.ReduceOp.SUM, dist.ReduceOp.MAX)  # came_reduce_op
_made: "WeakKeyDictionary[Any, Dict[Tuple[int, ...], Any]]" = WeakKeyDictionary()  # of several dimensions, per default group


WITHDRAWN = 2.0**20  # what a rank that makes another plan writes for presence; more than there are ranks
ALONE = (
    "some ranks have changed parameters, options, state or types of gradients since the last step and others have not, expected the same "
    "changes on all ranks"
)
_ERROR = "an error"  # what a line of a rank that cannot go on is about


class Line(NamedTuple):
    """One thing that ranks must agree on."""

    subject: str
    value: str


def _members(mesh: Any, dims: Sequence[int]) -> Tuple[int, ...]:
    """Ranks that differ from this one in these dimensions of a mesh only."""
    at = [slice(None) if dim in dims else place for dim, place in enumerate(mesh.get_coordinate())]
    return tuple(sorted(mesh.mesh[tuple(at)].flatten().tolist()))


def _process_group(mesh: Any, dims: Sequence[int], members: Tuple[int, ...]) -> Any:
    if len(dims) == 1:
        return mesh.get_group(dims[0])
    whole = dist.group.WORLD
    if len(members) == dist.get_world_size():
        return whole
    groups = _made.setdefault(whole, {})
    if members not in groups:
        groups[members] = ref(dist.new_group(list(members), use_local_synchronization=True))
    return groups[members]()


class Ranks:
    """The meshes of an optimizer's parameters and the groups in which their parts are reduced."""

    def __init__(self, params: Sequence[DTensor]) -> None:
        meshes = {param.device_mesh: None for param in params}
        self._meshes = sorted(meshes, key=lambda mesh: (mesh.ndim, mesh.mesh.flatten().tolist()))
        self._numbers: Dict[Tuple[int, ...], int] = {}
        self._groups: List[Any] = []  # weak references: torch holds groups until they are destroyed, and nobody may hold them longer
        self._device = torch.device(self._meshes[0].device_type)
        self._compared: Optional[List[Line]] = None
        self._first: List[Tuple[int, Any]] = []  # groups and reductions of the first phase of the plan that was compared

    def holds(self, params: Sequence[DTensor]) -> bool:
        """Whether these parameters are on the meshes that it was made for."""
        return {param.device_mesh for param in params} == set(self._meshes)

    def number(self, mesh: Any, dims: Sequence[int]) -> int:
        """The reduce group of ranks that differ in these dimensions of a mesh."""
        members = _members(mesh, dims)
        if members not in self._numbers:
            self._numbers[members] = len(self._groups)
            self._groups.append(ref(_process_group(mesh, dims, members)))
        return self._numbers[members]

    def _group(self, number: int) -> Any:
        group = self._groups[number]()
        if group is None:
            raise RuntimeError("the process group of an optimizer's parameters was destroyed, expected it to live as long as the training")
        return group

    def all_reduce(self, numbers: Tensor, operation: int, group: int) -> None:
        """Combines numbers in place over a reduce group, in the order of the stream."""
        self._combine(numbers, OPERATIONS[operation], self._group(group))

    def _combine(self, numbers: Tensor, operation: Any, group: Any) -> None:
        if numbers.device.type == self._device.type:
            dist.all_reduce(numbers, operation, group)
            return
        there = numbers.to(self._device)  # parameters were moved to the host, ranks talk through their devices
        dist.all_reduce(there, operation, group)
        numbers.copy_(there)

    def largest(self, numbers: Tensor) -> Tensor:
        """The largest of each number over all ranks of all meshes."""
        result = numbers.to(self._device, copy=True)
        for _ in self._meshes:  # as often as it may take to pass from one mesh to all others
            for mesh in self._meshes:
                for group in _of_all_dims(mesh):
                    dist.all_reduce(result, dist.ReduceOp.MAX, group)
        return result.to(numbers.device)

    # ---- agreement -----------------------------------------------------------------------------------

    def must_compare(self, lines: List[Line]) -> bool:
        """Whether this is another plan than the one that was compared last."""
        return lines != self._compared

    def compare(self, lines: List[Line], more: List[Line], yes: bool) -> bool:
        """Raises RuntimeError on every rank unless all have the same lines; whether all said `yes`.

        Args:
            lines: what decides the plan.
            more: what may change from step to step, but must be the same now.
        """
        self._compared = None
        mark = _mark([*lines, *more])
        found = self.largest(torch.tensor([mark, -mark, int(not yes)], dtype=torch.int64))
        if int(found[0]) != -int(found[1]):
            raise RuntimeError(self._difference([*lines, *more]))
        self._compared = lines
        return not int(found[2])

    def begin_with(self, reductions: List[Tuple[int, Any]]) -> None:
        """Keeps the reductions with which a step of the plan begins that was compared."""
        self._first = reductions

    def withdraw(self, found_inf: Optional[Tensor]) -> bool:
        """Tells ranks that step the plan that was compared last that this one does not; whether all said so.

        It takes part in their first reductions.  Where these keep the largest number, it cannot tell whether all did.
        """
        if self._compared is None:
            return True
        self._compared, alone = None, False
        if self._first and found_inf is not None:
            self.largest(local(found_inf).detach())
        for group, r in self._first:
            numbers = torch.zeros(r.count, dtype=torch.float64, device=self._device)
            numbers[: r.presence] = WITHDRAWN
            if r.count:
                self.all_reduce(numbers, r.op, group)
                everyone = dist.get_world_size(self._group(group)) * WITHDRAWN
                alone = alone or (r.presence > 0 and OPERATIONS[r.op] == dist.ReduceOp.SUM and bool(numbers[0] != everyone))
        return not alone

    def adopt(self, lines: List[Line]) -> None:
        """Takes over lines about which nothing is compared, since they need no other plan."""
        if self._compared is not None:
            new = dict(lines)
            self._compared = [Line(subject, new.get(subject, value)) for subject, value in self._compared]

    def fail(self, error: BaseException, found_inf: Optional[Tensor]) -> None:
        """Tells the others, who are about to step or to compare, that this rank cannot go on."""
        if self.withdraw(found_inf):
            line = Line(_ERROR, f"{type(error).__name__}: {error}")
            found = self.largest(torch.tensor([_mark([line]), -_mark([line]), 1], dtype=torch.int64))
            if int(found[0]) != -int(found[1]):
                self._gather([line])

    def _gather(self, lines: List[Line]) -> Dict[int, List[Line]]:
        """The lines of all ranks."""
        known = {dist.get_rank(): lines}
        for _ in self._meshes:
            for mesh in self._meshes:
                for group in _of_all_dims(mesh):
                    parts: List[Any] = [None] * dist.get_world_size(group)
                    dist.all_gather_object(parts, known, group)
                    for part in parts:
                        known.update(part)
        return dict(sorted(known.items()))

    def _difference(self, own: List[Line]) -> str:
        known = self._gather(own)
        for rank, lines in known.items():
            if lines[:1] and lines[0].subject == _ERROR:
                return f"rank {rank} cannot step: {lines[0].value}"
        first, *others = known
        for other in others:
            if known[other] != known[first]:
                return _first_difference(first, known[first], other, known[other])
        return "ranks disagree"  # only if what they are comparing changes meanwhile


def _of_all_dims(mesh: Any) -> List[Any]:
    return [mesh.get_group(dim) for dim in range(mesh.ndim) if mesh.size(dim) > 1]


def _mark(lines: List[Line]) -> int:
    """A number that differs where lines do."""
    return int.from_bytes(hashlib.sha256(repr(lines).encode()).digest()[:7], "big")


def _first_difference(a: int, ours: List[Line], b: int, theirs: List[Line]) -> str:
    advice = "expected the same parameters, options and gradients on all ranks"
    of_a, of_b = dict(ours), dict(theirs)
    for subject, value in of_a.items():
        if subject in of_b and of_b[subject] != value:
            return f"ranks disagree about {subject}: {value} on rank {a}, {of_b[subject]} on rank {b}, {advice}"
    alone = [(a, subject) for subject in of_a if subject not in of_b] + [(b, subject) for subject in of_b if subject not in of_a]
    return f"ranks disagree: only rank {alone[0][0]} has {alone[0][1]}, {advice}" if alone else f"ranks disagree about the order of parameters, {advice}"
