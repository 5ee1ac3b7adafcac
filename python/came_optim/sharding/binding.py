"""A binding whose parameters are split over ranks: a step is phase, one all-reduce per group, phase.

Kernels see the local tensors, which are read anew at every step.  State tensors are DTensors, so that checkpoints can move them to
other ranks and other placements.
"""

from operator import attrgetter, is_
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import memory, native
from ..binding import Binding, Gradients
from ..layout import Layout
from ..members import Member, check_gradient, check_state, spec_of
from . import is_dtensor, local, shards
from .ranks import ALONE, WITHDRAWN, Line, Ranks

_held = attrgetter("_local_tensor")


class ShardedBinding(Binding):
    """State and a plan for some parameters on one device, DTensors among them."""

    def __init__(
        self, owner: str, members: Sequence[Member], groups: Sequence[native.Options], state: Dict[Tensor, Any], ranks: Ranks
    ) -> None:
        self._ranks = ranks
        self._wraps: List[Any] = []  # state tensors that are DTensors,
        self._wrapped: List[Tensor] = []  # and what they held when they were bound
        self._pending: Optional[Tuple[Tensor, Any]] = None  # presence on its way from a device
        self._labels = {member.id: f"{owner}: the gradient of {member}" for member in members}
        self._views = Layout(groups, [spec_of(member) for member in members])
        with torch.no_grad():
            super().__init__(owner, members, groups, state, kernels=True)
        sharded = [s for s in self.specs if s.split_dims]
        self._groups = sorted({s.reduce_group for s in sharded} | {s.matrix_group for s in sharded})
        self._reductions = [
            [(group, self.plan.reduction(phase, group)) for group in self._groups] for phase in range(self.plan.phase_count)
        ]

    # ---- binding -------------------------------------------------------------------------------------

    def _read_params(self) -> List[Tensor]:
        return list(map(local, self._owned))

    def _check_members(self) -> None:
        for member, held in zip(self.members, self.params):
            memory.check(held, f"{self.owner}: {member}")
            grad = member.param.grad
            if is_dtensor(member.param):
                shards.refuse(member.param, f"{self.owner}: {member}")
            elif not is_dtensor(grad):
                check_gradient(member, self.owner, member.param, grad)

    def _spec(self, k: int) -> native.Spec:
        member, whole = self.members[k], spec_of(self.members[k])
        split = shards.splits(member.param) if is_dtensor(member.param) else []
        if not split:
            return whole
        mesh = member.param.device_mesh
        part = shards.part_of(whole.shape, mesh, member.param.placements)
        in_batch = self._views.batch_dims(k)
        within = [axis for axis, dim in split if dim >= in_batch]
        across = [axis for axis, dim in split if dim < in_batch]
        return whole._replace(
            split_dims=sum(1 << dim for dim in {dim for _, dim in split}),
            offset=part.offset,
            extent=part.extent,
            reduce_group=self._ranks.number(mesh, [axis for axis, _ in split]),
            matrix_group=self._ranks.number(mesh, within) if within and across else 0,
        )

    def _bind_tensor(self, member: Member, wanted: native.State, have: Any) -> Tuple[Tensor, Tensor]:
        if not is_dtensor(member.param):
            return super()._bind_tensor(member, wanted, have)
        label = f"{self.owner}: state {wanted.name} of {member}"
        part = shards.Part(wanted.shape, wanted.offset)
        shards.check_state_part(member.param, wanted.whole, wanted.dims, part, label)
        if have is not None:
            check_state(self.owner, member, wanted._replace(shape=wanted.whole), have, self.device)
        given = None if have is None else self._part_of_state(member.param, wanted, have, part, label)
        _, held = super()._bind_tensor(member, wanted, given)
        keeps = is_dtensor(have) and held is local(have)
        entry = have if keeps else shards.wrap(held, member.param, wanted.whole, wanted.dims)
        self._wraps.append(entry)
        self._wrapped.append(local(entry))
        return entry, self._wrapped[-1]

    def _part_of_state(self, param: Any, wanted: native.State, have: Any, part: shards.Part, what: str) -> Tensor:
        """What this rank needs of a state tensor that may be placed in another way, or whole on every rank."""
        if not is_dtensor(have):
            return shards.cut(have, part)
        return shards.as_placed(have, param.device_mesh, shards.state_placements(param, wanted.dims), what)

    def _make_borrower(self) -> None:
        return None  # local tensors carry no gradients

    def lines(self) -> List[Line]:
        """What must be the same on all ranks for them to run the same phases and reductions."""
        described = []
        for member, s in zip(self.members, self.specs):
            placed = ""
            if is_dtensor(member.param):
                mesh = member.param.device_mesh
                placed = f", {shards.text(member.param.placements)} on a mesh of {list(mesh.shape)}"
            groups = f", reduce group {s.reduce_group}, {s.matrix_group}" if s.split_dims else ""
            value = f"shape {list(s.shape)}, {s.dtype}, gradient {s.grad_dtype}{placed}{groups}, param group {s.group}"
            described.append(Line(str(member), value))
        return described + self._option_lines()

    def first_reductions(self) -> List[Tuple[int, Any]]:
        """What ranks exchange first in a step: groups and reductions."""
        return self._reductions[0] if self._groups else []

    def _option_lines(self) -> List[Line]:
        return [
            Line(f"{name} of param group {k}", str(getattr(options, name)))
            for k, options in enumerate(self.options)
            for name, *_ in options._fields_[2:]
        ]

    def adopt(self, options: Sequence[native.Options]) -> bool:
        adopted = super().adopt(options)
        if adopted:
            self._ranks.adopt(self._option_lines())
        return adopted

    # ---- each step -----------------------------------------------------------------------------------

    @torch.no_grad()
    def take(self) -> Optional[Gradients]:
        self._raise_for_presence()
        self.params = self._read_params()
        if not all(map(is_, map(_held, self._wraps), self._wrapped)):
            return None
        return super().take()

    def _read_gradients(self) -> List[Optional[Tensor]]:
        return [None if member.param.grad is None else self._gradient(member) for member in self.members]

    def _gradient(self, member: Member) -> Tensor:
        param, grad = member.param, member.param.grad
        if not is_dtensor(param):
            if is_dtensor(grad):
                raise TypeError(f"{self.owner}: the gradient of {member} is a DTensor beside a plain parameter, expected a plain tensor")
            return grad
        return shards.as_placed(grad, param.device_mesh, param.placements, self._labels[member.id])

    def plain(self, gradients: Gradients) -> bool:
        return False

    def run(
        self, gradients: Gradients, rates: Sequence[Any], grad_scale: Optional[Tensor], found_inf: Optional[Tensor]
    ) -> None:
        """One step; if one rank found an infinite gradient, no rank changes anything."""
        if found_inf is not None:
            found_inf = self._ranks.largest(local(found_inf).detach())
        super().run(gradients, rates, grad_scale, found_inf)

    def _launch(self, stream: Optional[int], checked: bool) -> None:
        if not self._groups:  # nothing is split
            super()._launch(stream, checked)
            return
        numbers = self.buffers[1]
        for phase, reductions in enumerate(self._reductions):
            self.call.run_phase(phase, stream, checked=phase > 0)
            for group, r in reductions:
                if r.count:
                    self._ranks.all_reduce(numbers[r.offset : r.offset + r.count], r.op, group)
            if phase == 0 and not numbers.is_cuda and any(r.presence and numbers[r.offset].item() >= WITHDRAWN for _, r in reductions):
                raise RuntimeError(f"{self.owner}: {ALONE}")
        self._read_presence(numbers)

    def _read_presence(self, numbers: Tensor) -> None:
        """Keeps which tensors have a gradient on some rank, and on some rank none."""
        if not numbers.is_cuda and len(self._reductions) > 1:
            return  # the second phase has checked them
        parts = [numbers[r.offset : r.offset + r.presence] for _, r in self._reductions[0]]
        if not numbers.is_cuda:
            self._pending = torch.cat(parts), None
            self._raise_for_presence()
            return
        if self._pending is not None or torch.cuda.is_current_stream_capturing():
            return  # the last one has not arrived, or a graph would keep its memory
        arrived = torch.cuda.Event()
        host = torch.empty(sum(map(len, parts)), dtype=numbers.dtype, pin_memory=True)
        host.copy_(torch.cat(parts), non_blocking=True)
        arrived.record(torch.cuda.current_stream(self.device))
        self._pending = host, arrived

    def _raise_for_presence(self) -> None:
        """Raises if ranks disagreed about gradients; on CUDA, where nothing waits, a step later."""
        if self._pending is None or (self._pending[1] is not None and not self._pending[1].query()):
            return
        presence, self._pending = self._pending[0], None
        for group, r in self._reductions[0]:
            members = [m for m, s in zip(self.members, self.specs) if s.split_dims and s.reduce_group == group]
            count = r.presence // 2
            present, absent, presence = presence.split([count, count, len(presence) - 2 * count])
            for member, there, missing in zip(members, present.tolist(), absent.tolist()):
                if there >= WITHDRAWN:
                    raise RuntimeError(f"{self.owner}: {ALONE}")
                if there and missing:
                    raise RuntimeError(
                        f"{self.owner}: {member} has a gradient on some ranks and none on others, expected it on all of them or none"
                    )
