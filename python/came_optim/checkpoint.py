"""State dicts: every tensor keeps its dtype, and those of other packages load.

torch's loading casts floating state to the parameter's dtype, which would round f32 statistics of bf16 weights, so tensors pass through
it wrapped.  Our own checkpoints load, and those of came-pytorch, torch.optim.Adam, AdamW and transformers.Adafactor.  Older ones, too: their
`step` is a number, an option that they lack is what that package did, or else stays as it is, and moments of vectors may be codes.  Checkpoints of another
optimizer, or without an entry, are refused.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Set, Tuple

import torch
from torch import Tensor

from . import native, origin
from .arguments import plain
from .layout import Layout
from .loop import codes
from .members import check_state, counter
from .options import from_group
from .state import lacking

if TYPE_CHECKING:
    from .optimizer import Optimizer

_FOREIGN = ("RMS",)  # entries that no step reads
_ADDING = {"confidence_1d": False}  # options that add state, and what they were in a checkpoint without them


class _Kept:
    """A tensor that torch's loading leaves unchanged."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def separate_steps(state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """Counters are views of one tensor while in use; a checkpoint gets one tensor each."""
    state = {
        key: {name: value.clone() if name == "step" and isinstance(value, Tensor) else value for name, value in slot.items()}
        if isinstance(slot, dict)
        else slot
        for key, slot in state_dict["state"].items()
    }
    return {**state_dict, "state": state}


def load(optimizer: "Optimizer", state_dict: Dict[str, Any], load_as_torch: Callable[[Dict[str, Any]], None]) -> None:
    """`load_state_dict` that loses no bit, and changes nothing if it fails."""
    present = {"state": optimizer.state, "param_groups": optimizer.param_groups}
    loading = _Loading()
    before = optimizer.register_load_state_dict_pre_hook(loading.wrap)
    after = optimizer.register_load_state_dict_post_hook(loading.unwrap, prepend=True)
    try:
        load_as_torch(state_dict)
    except BaseException:
        if optimizer.state is not present["state"]:  # torch replaced it before an error was found
            optimizer.__setstate__(present)
        raise
    finally:
        before.remove()
        after.remove()


class _Loading:
    """What happens before and after torch's own loading."""

    def __init__(self) -> None:
        self._unknown: List[Set[str]] = []  # options of each group that the checkpoint does not have

    def wrap(self, optimizer: "Optimizer", state_dict: Dict[str, Any]) -> Dict[str, Any]:
        origin.check(optimizer.algorithm, type(optimizer).__name__, state_dict["param_groups"])
        state = {}
        for key, slot in state_dict["state"].items():
            if isinstance(slot, dict):
                slot = {k: _Kept(v) if isinstance(v, Tensor) else v for k, v in slot.items() if k not in _FOREIGN}
            state[key] = slot
        groups = [dict(group) for group in state_dict["param_groups"]]
        self._unknown = [set(optimizer.defaults) - set(group) for group in groups]
        for group, own in zip(groups, optimizer.param_groups):
            others = origin.unsaid(optimizer.algorithm, group)
            for name in optimizer.defaults:
                group.setdefault(name, others.get(name, own[name]))
        return {**state_dict, "state": state, "param_groups": groups}

    def unwrap(self, optimizer: "Optimizer") -> None:
        owner = type(optimizer).__name__
        numbers = {member.param: member for member in optimizer._members()}
        for param, slot in optimizer.state.items():
            if not isinstance(slot, dict):
                if isinstance(param, Tensor):
                    raise TypeError(f"{owner}: the state of {numbers[param]} is {slot!r} in the checkpoint, expected a dict; nothing was loaded")
                continue
            if not isinstance(param, Tensor):  # an entry of the program's own
                slot.update({name: value.tensor for name, value in slot.items() if isinstance(value, _Kept)})
                continue
            for name, value in slot.items():
                given = value.tensor if isinstance(value, _Kept) else value
                if name == "step":
                    slot[name] = counter(given, f"{owner}: step of {numbers[param]}", torch.device("cpu")).clone()
                elif isinstance(given, Tensor):
                    slot[name] = given.to(param.device)
            if param.ndim < 2:
                _decode_vector(param, slot)
        for group, unknown in zip(optimizer.param_groups, self._unknown):
            group.update(plain(optimizer.algorithm, optimizer._all_fields(), {n: group[n] for n in optimizer.defaults}, {}))
            optimizer._check_own(group)
            if "view" in group:
                _choose_view(optimizer, group)
            made_with = {**group, **{name: value for name, value in _ADDING.items() if name in unknown}}
            _check_complete(optimizer, made_with, numbers)


def _decode_vector(param: Tensor, slot: Dict[str, Any]) -> None:
    """Moments of vectors and scalars were codes in older checkpoints, as those of matrices are: takes what they stand for."""
    for name in ("exp_avg", "exp_avg_sq"):
        code, scale = slot.get(name), slot.get(name + "_scale")
        if not isinstance(code, Tensor) or not isinstance(scale, Tensor):
            continue
        values = codes.decode_list(code, scale, param.numel(), second=name == "exp_avg_sq")
        if values is not None:
            slot[name] = values.reshape(param.shape)
            del slot[name + "_scale"]


def _check_complete(optimizer: "Optimizer", group: Dict[str, Any], numbers: Dict[Tensor, Any]) -> None:
    """Raises if a parameter has some of its state and not all, or one of another shape or kind."""
    found = [(p, dict(optimizer.state[p])) for p in group["params"] if optimizer.state.get(p)]
    for (param, slot), (wanted, _) in zip(found, _layouts(optimizer, group, found)):
        member, owner = numbers[param], type(optimizer).__name__
        names = ["step", *(state.name for state in wanted)]
        missing = lacking(slot, names)
        if missing is not None:
            raise ValueError(
                f"{owner}: the checkpoint has no {missing!r} for {member}, expected {', '.join(map(repr, names))}, or no state "
                "of it at all; nothing was loaded"
            )
        for state in wanted:
            if state.name in slot:
                check_state(owner, member, state, slot[state.name], param.device)


def _choose_view(optimizer: "Optimizer", group: Dict[str, Any]) -> None:
    """Takes the view that the loaded state was made with, if the group's is another."""
    found = [(p, optimizer.state[p]) for p in group["params"] if p.ndim > 2 and optimizer.state.get(p)]
    if not found:
        return
    for view in (group["view"], "last_two", "fold", "auto"):
        trial = {**group, "view": view}
        if all(_same_shapes(wanted, slot) for wanted, slot in _layouts(optimizer, trial, found)):
            group["view"] = view
            return
    shapes = {name: list(value.shape) for name, value in found[0][1].items() if isinstance(value, Tensor)}
    raise ValueError(
        f"{type(optimizer).__name__}: no view fits the loaded state of a parameter of shape {list(found[0][0].shape)}: {shapes}"
    )


def _layouts(
    optimizer: "Optimizer", group: Dict[str, Any], found: List[Tuple[Tensor, Dict[str, Any]]]
) -> Iterator[Tuple[List[native.State], Dict[str, Any]]]:
    options = from_group(optimizer.algorithm, optimizer._all_fields(), group)
    specs = [native.Spec(tuple(p.shape), str(p.dtype).replace("torch.", ""), id=k) for k, (p, _) in enumerate(found)]
    layouts: List[List[native.State]] = [[] for _ in found]
    for state in Layout([options], specs).states:
        layouts[state.tensor].append(state)
    return zip(layouts, (slot for _, slot in found))


def _same_shapes(wanted: List[native.State], slot: Dict[str, Any]) -> bool:
    return all(tuple(slot[state.name].shape) == state.shape for state in wanted if state.name in slot)
