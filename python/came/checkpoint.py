"""State dicts: every tensor keeps its dtype, and those of other packages are understood.

torch casts floating state to the parameter's dtype on loading, which would cut f32 statistics of bf16 weights; tensors pass
through it wrapped.  Understood beside our own: came-pytorch, torch.optim.Adam(W), transformers.Adafactor, and older ones of
any of them, whose groups lack options (the optimizer's own stay) and whose `step` is a number.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch import Tensor

from . import native
from .options import from_group

if TYPE_CHECKING:
    from .optimizer import Optimizer

_FOREIGN = ("RMS",)  # what others keep for show


class _Kept:
    """A tensor that torch's loading passes on as it is."""

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
    before = optimizer.register_load_state_dict_pre_hook(_wrap)
    after = optimizer.register_load_state_dict_post_hook(_unwrap, prepend=True)
    try:
        load_as_torch(state_dict)
    except BaseException:
        if optimizer.state is not present["state"]:  # torch has replaced it before the view was found not to fit
            optimizer.__setstate__(present)
        raise
    finally:
        before.remove()
        after.remove()


def _wrap(optimizer: "Optimizer", state_dict: Dict[str, Any]) -> Dict[str, Any]:
    state = {}
    for key, slot in state_dict["state"].items():
        if isinstance(slot, dict):
            slot = {k: _Kept(v) if isinstance(v, Tensor) else v for k, v in slot.items() if k not in _FOREIGN}
        state[key] = slot
    groups = [dict(group) for group in state_dict["param_groups"]]
    for group, own in zip(groups, optimizer.param_groups):
        for name in optimizer.defaults:
            group.setdefault(name, own[name])
    return {**state_dict, "state": state, "param_groups": groups}


def _unwrap(optimizer: "Optimizer") -> None:
    for param, slot in optimizer.state.items():
        if not isinstance(slot, dict):
            continue
        if not isinstance(param, Tensor):  # somebody's own
            slot.update({name: value.tensor for name, value in slot.items() if isinstance(value, _Kept)})
            continue
        for name, value in slot.items():
            if name == "step":
                count = value.tensor if isinstance(value, _Kept) else torch.tensor(float(value))
                slot[name] = count.detach().clone().to(torch.float32).reshape(())
            elif isinstance(value, _Kept):
                slot[name] = value.tensor.to(param.device)
    for group in optimizer.param_groups:
        if "view" in group:
            _choose_view(optimizer, group)


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
    shapes = {name: list(value.shape) for name, value in found[0][1].items()}
    raise ValueError(
        f"{type(optimizer).__name__}: no view fits the loaded state of a parameter of shape {list(found[0][0].shape)}: {shapes}"
    )


def _layouts(
    optimizer: "Optimizer", group: Dict[str, Any], found: List[Tuple[Tensor, Dict[str, Any]]]
) -> Iterator[Tuple[Dict[str, Tuple[int, ...]], Dict[str, Any]]]:
    options = from_group(optimizer.word, optimizer._all_fields(), group)
    specs = [native.Spec(tuple(p.shape), str(p.dtype).replace("torch.", ""), id=k) for k, (p, _) in enumerate(found)]
    layouts: List[Dict[str, Tuple[int, ...]]] = [{} for _ in found]
    for state in native.Plan([options], specs).states:
        layouts[state.tensor][state.name] = state.shape
    return zip(layouts, (slot for _, slot in found))


def _same_shapes(wanted: Dict[str, Tuple[int, ...]], slot: Dict[str, Any]) -> bool:
    return all(tuple(slot[name].shape) == shape for name, shape in wanted.items() if name in slot)
