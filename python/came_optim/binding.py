"""The parameters of an optimizer that one plan steps, bound to memory: state, counters, scratch, tables of pointers.

A binding holds the parameters of one device that have had a gradient.  It lives until a shape, a type, the list of parameters or
an option that decides the plan changes; between steps only addresses and other options are written.  Lists are read by functions in C where possible, since a model
has hundreds of tensors.
"""

from functools import lru_cache
from operator import attrgetter, is_
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import memory, native, scratch
from .arguments import real
from .layout import Layout
from .lender import Borrower, Lender, chosen
from .library import loads
from .members import COUNTER, DTYPES, Member, check_gradient, check_state, counter, spec_of
from .state import Slot, Watch, lacking

_data_ptr, _is_contiguous, _is_neg, _grad = Tensor.data_ptr, Tensor.is_contiguous, Tensor.is_neg, attrgetter("grad")
_LAYOUT = (_data_ptr, Tensor.stride, Tensor.size, Tensor.storage_offset, attrgetter("dtype", "device"))
_kind = attrgetter("shape", "dtype", "device")


@lru_cache(maxsize=None)
def lender() -> Optional[Lender]:
    """How C reads torch's tensors; None before torch 2.10, and without libcame."""
    return Lender.of(Tensor, torch.UntypedStorage) if loads() else None


def _rise(params: Sequence[Tensor]) -> None:
    """Raises the counters by which autograd knows what was written to; it cannot see what kernels do."""
    try:
        torch.autograd.graph.increment_version(params)
    except (TypeError, RuntimeError):  # torch 2.4 takes one at a time
        for param in params:
            torch.autograd.graph.increment_version(param)


def _stream(device: torch.device) -> int:
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # what torch.cuda.current_stream calls
    return raw(device.index) if raw else torch.cuda.current_stream(device).cuda_stream


def _any_negated(tensors: List[Any]) -> bool:
    """Whether one has torch's neg bit: what it means is minus what lies in memory, which kernels cannot see."""
    return any(map(_is_neg, tensors))


class Gradients(NamedTuple):
    """Gradients of one step, dense and contiguous."""

    tensors: List[Any]  # None where there is none
    active: Optional[Sequence[int]]  # whether there is one; None: all there
    placed: bool = False  # their addresses are in the table already, and sound


class Binding:
    """State and a plan for some parameters on one device."""

    def __init__(
        self,
        owner: str,
        members: Sequence[Member],
        groups: Sequence[native.Options],
        state: Dict[Tensor, Any],
        kernels: bool,
    ) -> None:
        self.owner, self.members, self.options, self.kernels = owner, list(members), list(groups), kernels
        self._owned = [member.param for member in members]
        self.params = self._read_params()
        self.device = self.params[0].device
        on_cuda = kernels and self.device.type == "cuda"
        self._check_members()
        self.specs = [self._spec(k) for k in range(len(members))]
        self.plan: Any = self._make_plan(groups, on_cuda) if kernels else Layout(groups, self.specs)
        self.planned = list(groups)
        self.slots = self._bind_slots(state)
        self.states = self._bind_state()
        self.steps = self._bind_steps(torch.device("cpu") if not on_cuda else self.device)
        self._lends = chosen(lender())
        self._shapes = [tuple(param.shape) for param in self.params]
        self._grad_kinds = [(p.shape, getattr(torch, str(s.grad_dtype)), p.device) for p, s in zip(self.params, self.specs)]
        self._param_data: Optional[List[int]] = []  # addresses, unless they are in the table already
        self._layout: Optional[List[Any]] = None
        self._strided: List[int] = []
        self._borrower: Optional[Borrower] = None
        if kernels:
            self._bind_call()
            self._borrower = self._make_borrower()

    # ---- what a parameter that is split over ranks has otherwise: sharding/binding.py ----------------

    def _read_params(self) -> List[Tensor]:
        """What kernels read and write."""
        return self._owned

    def _read_gradients(self) -> List[Optional[Tensor]]:
        return list(map(_grad, self.params))

    def _check_members(self) -> None:
        for member in self.members:
            memory.check(member.param, f"{self.owner}: {member}")
            check_gradient(member, self.owner, member.param, member.param.grad)

    def _spec(self, k: int) -> native.Spec:
        return spec_of(self.members[k])

    def _bind_tensor(self, member: Member, wanted: native.State, have: Any) -> Tuple[Tensor, Tensor]:
        """The entry of a slot and what kernels read and write of it; zeros where there is none."""
        dtype = getattr(torch, wanted.dtype)
        if have is None:
            have = torch.zeros(wanted.shape, dtype=dtype, device=self.device)
        check_state(self.owner, member, wanted, have, self.device)
        if have.dtype != dtype or not have.is_contiguous() or have.is_neg():
            have = have.to(dtype).contiguous().resolve_neg()
        return have, have

    def _make_borrower(self) -> Optional[Borrower]:
        return Borrower.of(self._lends, self.call, self.params)

    def _launch(self, stream: Optional[int], checked: bool) -> None:
        """Runs the step that `call` describes."""
        self.call.run(stream, checked)

    # ---- binding -------------------------------------------------------------------------------------

    def _make_plan(self, groups: Sequence[native.Options], on_cuda: bool) -> native.Plan:
        backend, index = (native.CUDA, self.device.index or 0) if on_cuda else (native.AUTO, 0)
        return native.Plan(groups, self.specs, backend, index)

    def _bind_slots(self, state: Dict[Tensor, Any]) -> List[Slot]:
        """Copies of the slots there are, each complete or without state."""
        wanted: List[List[str]] = [["step"] for _ in self.params]
        for entry in self.plan.states:
            wanted[entry.tensor].append(entry.name)
        made = []
        for member, names in zip(self.members, wanted):
            have = state.get(member.param, {})
            missing = lacking(have, names)
            if missing is not None:
                raise ValueError(
                    f"{self.owner}: the state of {member} has no {missing!r}, expected {', '.join(map(repr, names))}, or no state "
                    "at all, which begins again"
                )
            made.append(Slot(have, complete=frozenset(names)))
        return made

    def install(self, state: Dict[Tensor, Any]) -> None:
        """Puts the slots into the optimizer's state, which is unchanged until then."""
        for k, (member, made) in enumerate(zip(self.members, self.slots)):
            slot = state.get(member.param)
            if isinstance(slot, Slot):  # the program may hold it
                slot.update(made)
                slot.complete = made.complete
                self.slots[k] = slot
            else:
                state[member.param] = made
        self._watch = Watch(self._lends, self.slots, self.states, self.steps)

    def _bind_state(self) -> List[Tensor]:
        """State tensors in the plan's order: those there are, zeros where there are none."""
        made = []
        for wanted in self.plan.states:
            member, slot = self.members[wanted.tensor], self.slots[wanted.tensor]
            slot[wanted.name], held = self._bind_tensor(member, wanted, slot.get(wanted.name))
            made.append(held)
        return made

    def _bind_steps(self, device: torch.device) -> Tensor:
        """Counters of all parameters side by side; each `step` in the state is a view of its own."""
        steps = torch.stack(
            [counter(slot.get("step", 0), f"{self.owner}: step of {m}", device) for m, slot in zip(self.members, self.slots)]
        )
        for slot, step in zip(self.slots, steps.unbind()):
            slot["step"] = step
        return steps

    def _bind_call(self) -> None:
        self.call = native.Call(self.plan)
        self.call.states.data = list(map(_data_ptr, self.states))
        self._place = native.ON_CUDA if self.steps.is_cuda else native.ON_HOST
        self.call.set_scalar("step", self.steps.data_ptr(), DTYPES[COUNTER], self._place)
        self._block: Optional[Tensor] = None  # the scratch that the call has
        self._captured: Optional[Tensor] = None  # that of a graph, which keeps its address
        self._use_scratch(self._stream())
        self.rates: Optional[Tensor] = None
        self._host_rates: Optional[List[float]] = None  # as the call has them

    def _stream(self) -> Optional[int]:
        return _stream(self.device) if self._place == native.ON_CUDA else None

    def _use_scratch(self, stream: Optional[int]) -> None:
        """Hands the call the scratch of this stream and thread."""
        memory = self.plan.memory
        cut = -(-memory.workspace_bytes // 512) * 64  # numbers, in whole units of an allocator
        size = 8 * cut + memory.reduction_bytes
        if stream is not None and torch.cuda.is_current_stream_capturing():
            block = self._captured = scratch.new(self.device, size) if self._captured is None else self._captured
        else:
            block = scratch.block(self.device, stream, size)
        if block is self._block:
            return
        self._block = block
        numbers = -(-memory.workspace_bytes // 8), -(-memory.reduction_bytes // 8)
        self.buffers = [block[: numbers[0]], block[cut : cut + numbers[1]]]
        self.call.set_buffers(*map(_data_ptr, self.buffers))

    # ---- each step -----------------------------------------------------------------------------------

    def adopt(self, options: Sequence[native.Options]) -> bool:
        """Steps with these options from now on; False if they need another plan."""
        if not self.plan.takes(options):
            return False
        self.options = list(options)
        if self.kernels:
            self.call.set_options(options)
        return True

    def take(self) -> Optional[Gradients]:
        """The gradients of this step, once parameters, state and they are found to be as they were bound, addresses apart;
        None if something must be bound again."""
        if self._watch.finds():
            return None
        taken = self._take_in_one_pass()
        if taken is None and self._fits():
            taken = self._gradients()
        return taken

    def _take_in_one_pass(self) -> Optional[Gradients]:
        borrower = self._borrower
        if borrower is None:
            return None
        try:
            grads = borrower.borrow(self.params)
        except (RuntimeError, BufferError, TypeError):  # one is not a dense tensor
            return None
        if grads is None:
            return None
        missing = borrower.result.missing
        there = [grad for grad in grads if grad is not None] if missing else grads
        if _any_negated(there) or _any_negated(self.params):
            return None
        self._strided, self._param_data, self._layout = [], None, None
        return Gradients(grads, bytes(self.call.active) if missing else None, placed=True)

    def _fits(self) -> bool:
        """Whether parameters are still those that were bound; addresses may have changed."""
        try:
            layout = [*(list(map(of, self.params)) for of in _LAYOUT), memory.sizes(self.params)]
            if _any_negated(self.params):
                return False
        except (RuntimeError, NotImplementedError):  # one is not a dense tensor
            return False
        if layout == self._layout:
            return True
        for param, shape, spec in zip(self.params, self._shapes, self.specs):
            if tuple(param.shape) != shape or DTYPES.get(param.dtype) != spec.dtype or param.device != self.device:
                return False
        if any(memory.kind(param) for param in self.params) or not memory.are_whole(self.params):
            return False
        self._strided = [k for k, param in enumerate(self.params) if not param.is_contiguous()]
        self._param_data, self._layout = list(map(_data_ptr, self.params)), layout
        return True

    def _gradients(self) -> Optional[Gradients]:
        """Gradients of all parameters; None if their types are no longer those that were bound."""
        grads = self._read_gradients()
        try:
            if all(map(_is_contiguous, grads)) and list(map(_kind, grads)) == self._grad_kinds and memory.are_whole(grads):
                if not self.kernels or not _any_negated(grads):
                    return Gradients(grads, None)
        except (TypeError, AttributeError, RuntimeError):  # no gradient, or none that lies in rows
            pass
        for k, (member, grad) in enumerate(zip(self.members, grads)):
            if grad is None:
                continue
            check_gradient(member, self.owner, self.params[k], grad)
            if grad.dtype != self._grad_kinds[k][1]:
                return None
            grads[k] = grad.resolve_neg().contiguous()
        active = [grad is not None for grad in grads]
        return Gradients(grads, None if all(active) else active)

    def plain(self, gradients: Gradients) -> bool:
        """Whether kernels can take every parameter and gradient as it lies in memory."""
        own = all(map(is_, gradients.tensors, (param.grad for param in self.params)))
        return self.kernels and not self._strided and gradients.active is None and own

    def run(
        self,
        gradients: Gradients,
        rates: Sequence[Any],
        grad_scale: Optional[Tensor],
        found_inf: Optional[Tensor],
    ) -> None:
        """One step of the kernels."""
        call, (grads, active, placed) = self.call, gradients
        if placed:
            call.use_active(active is not None)
        else:
            call.set_active(active)
            call.grads.data = [0 if grad is None else grad.data_ptr() for grad in grads]
        copies = [(k, self.params[k].detach().contiguous()) for k in self._strided if grads[k] is not None]
        if self._param_data is not None:
            # Kernels see rows and columns of the logical tensor, whatever order its memory has.
            data = list(self._param_data)
            for k, copy in copies:
                data[k] = copy.data_ptr()
            call.params.data = data
        self._set_rates(rates)
        kept = [self._set_scalar("grad_scale", grad_scale), self._set_scalar("found_inf", found_inf)]
        stream = self._stream()
        self._use_scratch(stream)
        self._launch(stream, placed)
        del kept
        for k, copy in copies:
            self.params[k].detach().copy_(copy)
        _rise(self._owned if active is None else [param for param, grad in zip(self._owned, grads) if grad is not None])

    def _set_rates(self, rates: Sequence[Any]) -> None:
        if self._place == native.ON_HOST or not any(isinstance(r, Tensor) and r.is_cuda for r in rates):
            try:
                values = [float(rate) for rate in rates]
            except (TypeError, ValueError, RuntimeError):
                values = [real("lr", rate) for rate in rates]
            if values != self._host_rates:
                self.call.set_host_lr(values)
                self._host_rates = values
            return
        self._host_rates = None
        # In the order of the stream, so that a captured graph follows the tensors.
        if self.rates is None:
            self.rates = torch.zeros(len(rates), dtype=torch.float64, device=self.device)
        for to, rate in zip(self.rates.unbind(), rates):
            to.copy_(rate.reshape(())) if isinstance(rate, Tensor) else to.fill_(rate)
        self.call.set_scalar("lr", self.rates.data_ptr(), "float64", native.ON_CUDA)

    def _set_scalar(self, name: str, scalar: Optional[Tensor]) -> Optional[Tensor]:
        if scalar is None:
            self.call.set_scalar(name, None)
            return None
        if scalar.device == self.steps.device and scalar.dtype is torch.float32 and scalar.numel() == 1:
            self.call.set_scalar(name, scalar.data_ptr(), "float32", self._place)
            return scalar
        # A scalar of another device is copied to ours.
        here = scalar.detach().to(self.steps.device, non_blocking=True).reshape(1)
        if here.dtype not in (torch.float32, torch.float64):
            here = here.to(torch.float32)
        self.call.set_scalar(name, here.data_ptr(), DTYPES[here.dtype], self._place)
        return here

