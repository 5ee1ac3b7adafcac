"""What a program may do to an optimizer between two steps, and how cases with such changes are drawn.

A change is a list: its name, the number of a parameter or group, and what else it needs.  Numbers are taken modulo what there is.
"""

import copy
import io
import pickle

import torch
from hypothesis import strategies as st

from strategies import OPTIMIZERS, betas, decays, flags, options, powers, rates

FLOATS = ("float64", "float32", "bfloat16", "float16")


def _slot(side, k):
    """A parameter's state, and its names in order."""
    slot = side.optimizer.state.get(side.params[k % len(side.params)]) or {}
    return slot, sorted(slot)


def _entry(side, change):
    """Slot and name of one state tensor, other than the counter, if there is any."""
    slot, names = _slot(side, change[1])
    names = [name for name in names if name != "step" and isinstance(slot[name], torch.Tensor)]
    return (slot, names[change[2] % len(names)]) if names else (None, None)


def _on_entry(act):
    def apply(side, change):
        slot, name = _entry(side, change)
        if slot is not None:
            act(slot, name, change)

    return apply


def _assign(slot, name, change):
    slot[name] = slot[name].clone()


def _assign_half(slot, name, change):
    value = slot[name]
    slot[name] = value / 2 if value.is_floating_point() else value.clone()


def _data(slot, name, change):
    slot[name].data = slot[name].data.clone()


def _set(slot, name, change):
    slot[name].set_(slot[name].clone())


def _resize(slot, name, change):
    storage = slot[name].untyped_storage()
    # One that was read from a file may not be resizable, and torch 2.13 itself crashes on a shared one.
    if storage.resizable() and not storage.is_shared():
        storage.resize_(2 * storage.nbytes() + 4096)


def _share(slot, name, change):
    slot[name].share_memory_()


def _in_place(slot, name, change):
    if slot[name].is_floating_point():
        slot[name].mul_(0.5)


def _dtype(slot, name, change):
    if slot[name].is_floating_point():
        slot[name] = slot[name].to(getattr(torch, change[3]))


def _strided(slot, name, change):
    value = slot[name]
    if value.ndim:
        slot[name] = torch.stack((value, value), -1)[..., 0]


def _drop_entry(slot, name, change):
    del slot[name]


def _drop(side, change):
    side.optimizer.state.pop(side.params[change[1] % len(side.params)], None)


def _clear(side, change):
    side.optimizer.state.clear()


def _replace_slot(side, change):
    slot, _ = _slot(side, change[1])
    if slot:
        copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in slot.items()}  # `_counter` leaves numbers
        side.optimizer.state[side.params[change[1] % len(side.params)]] = copies


def _counter(side, change):
    slot, _ = _slot(side, change[1])
    if slot:
        slot["step"] = {"int": int, "float": float, "int64": torch.tensor}[change[3]](change[2])


def _option(side, change):
    groups = side.optimizer.param_groups
    group, name, value = groups[change[1] % len(groups)], change[2], change[3]
    if name == "beta1" and "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    elif name == "beta2" and "betas" in group:
        group["betas"] = (group["betas"][0], value, *group["betas"][2:])
    elif name in group and not (name == "beta1" and not value):
        group[name] = bool(value) if isinstance(group[name], bool) else value


def _param_data(side, change):
    p = side.params[change[1] % len(side.params)]
    p.data = p.data.clone()


def _param_strided(side, change):
    p = side.params[change[1] % len(side.params)]
    if p.ndim > 1:
        p.data = p.data.transpose(0, 1).contiguous().transpose(0, 1)


def _param_dtype(side, change):
    p = side.params[change[1] % len(side.params)]
    grad = p.grad
    p.grad = None
    p.data = p.data.to(getattr(torch, change[2]))
    p.grad = None if grad is None else grad.to(p.dtype)


def _reorder(side, change):
    for group in side.optimizer.param_groups:
        group["params"].reverse()


def _add(side, change):
    k = len(side.params)
    side.tensors.append({"shape": change[1], "dtype": change[2], "family": "normal", "power": 0})
    p = side.parameter(k)
    p.grad = torch.ones_like(p)
    side.optimizer.add_param_group({"params": [p]})
    side.params.append(p)


def _reload(side, change):
    side.optimizer.load_state_dict(copy.deepcopy(side.optimizer.state_dict()))


def _save(side, change):
    file = io.BytesIO()
    torch.save(side.optimizer.state_dict(), file)
    file.seek(0)
    side.optimizer.load_state_dict(torch.load(file, weights_only=True))


def _remake(side, change):
    groups = [{"params": group["params"]} for group in side.optimizer.param_groups]
    saved = copy.deepcopy(side.optimizer.state_dict())
    relative = {"relative_step": True} if side.optimizer.param_groups[0].get("relative_step") else {}
    rate = None if relative else 1e-3
    made = type(side.optimizer)(groups, lr=rate, fused=side.fused, **relative)
    made.load_state_dict(saved)
    side.optimizer = made


def _copied(copier):
    def apply(side, change):
        params = side.params
        grads = [p.grad for p in params]
        order = [k for group in side.optimizer.param_groups for k in (_place(params, p) for p in group["params"])]
        side.optimizer = copier(side.optimizer)
        made = [p for group in side.optimizer.param_groups for p in group["params"]]
        side.params = [made[order.index(k)] for k in range(len(params))]
        for p, grad in zip(side.params, grads):
            p.grad = grad

    return apply


def _place(params, p):
    return next(k for k, other in enumerate(params) if other is p)


def _default_dtype(side, change):
    torch.set_default_dtype(getattr(torch, change[1]))


def _lost_entry(side, change):
    """A checkpoint that lacks an entry."""
    saved = copy.deepcopy(side.optimizer.state_dict())
    for slot in saved["state"].values():
        names = sorted(name for name in slot if name != "step")
        if names:
            del slot[names[change[1] % len(names)]]
    side.optimizer.load_state_dict(saved)


def _other_optimizer(side, change):
    """A checkpoint of another optimizer."""
    from came_optim.optimizers import BY_NAME

    word = change[1]
    if word == side.word or {word, side.word} == {"adam", "adamw"}:
        return
    copies = [torch.nn.Parameter(p.detach().clone()) for group in side.optimizer.param_groups for p in group["params"]]
    other = BY_NAME[word](copies)
    for p in copies:
        p.grad = torch.ones_like(p)
    other.step()
    side.optimizer.load_state_dict(other.state_dict())


CHANGES = {
    "assign": _on_entry(_assign),
    "assign half": _on_entry(_assign_half),
    "data": _on_entry(_data),
    "set_": _on_entry(_set),
    "resize": _on_entry(_resize),
    "share": _on_entry(_share),
    "in place": _on_entry(_in_place),
    "dtype": _on_entry(_dtype),
    "strided": _on_entry(_strided),
    "drop entry": _on_entry(_drop_entry),
    "drop": _drop,
    "clear": _clear,
    "replace slot": _replace_slot,
    "counter": _counter,
    "option": _option,
    "param data": _param_data,
    "param strided": _param_strided,
    "param dtype": _param_dtype,
    "reorder": _reorder,
    "add": _add,
    "reload": _reload,
    "save": _save,
    "remake": _remake,
    "deepcopy": _copied(copy.deepcopy),
    "pickle": _copied(lambda optimizer: pickle.loads(pickle.dumps(optimizer))),
    "default dtype": _default_dtype,
    "lost entry": _lost_entry,
    "other optimizer": _other_optimizer,
}
# After these a step, or the change itself, may raise an error; after all others it must go on.
_REFUSABLE = {"drop entry", "option", "param dtype", "add", "lost entry", "other optimizer"}


def may_be_refused(change):
    return change[0] in _REFUSABLE


def apply(side, change):
    CHANGES[change[0]](side, change)


# ---- drawing ------------------------------------------------------------------------------------------

numbers = st.integers(0, 50)
dtypes = st.sampled_from(["float32", "float64", "bfloat16", "float16"])
_options = st.one_of(
    st.tuples(st.sampled_from(["weight_decay"]), decays),
    st.tuples(st.sampled_from(["beta1", "beta2"]), betas),
    st.tuples(st.sampled_from(["maximize", "cautious", "stochastic_rounding", "bias_correction", "confidence_1d"]), flags),
    st.tuples(st.just("momentum_dtype"), st.sampled_from(["f32", "bf16", "int8"])),
    st.tuples(st.just("view"), st.sampled_from(["fold", "last_two"])),
)
_counts = st.tuples(st.sampled_from([1001, 70000, 0, 2**24 - 1, 2**24, 2**31 + 1]), st.sampled_from(["int", "float", "int64"]))


def _drawn(name):
    if name in ("option",):
        return st.tuples(numbers, _options).map(lambda x: [name, x[0], *x[1]])
    if name == "counter":
        return st.tuples(numbers, _counts).map(lambda x: [name, x[0], *x[1]])
    if name == "dtype":
        return st.tuples(numbers, numbers, st.sampled_from(["float64", "bfloat16"])).map(lambda x: [name, *x])
    if name == "param dtype":
        return st.tuples(numbers, dtypes).map(lambda x: [name, *x])
    if name == "add":
        return st.tuples(st.sampled_from([[3], [2, 3], [4, 1, 2]]), dtypes).map(lambda x: [name, *x])
    if name == "default dtype":
        return st.sampled_from(["float64", "bfloat16", "float16"]).map(lambda x: [name, x])
    if name == "other optimizer":
        return st.sampled_from(OPTIMIZERS).map(lambda x: [name, x])
    return st.tuples(numbers, numbers).map(lambda x: [name, *x])


_changes = st.lists(st.sampled_from(sorted(CHANGES)).flatmap(_drawn), max_size=3)
_shapes = st.sampled_from([[2, 3], [3], [], [1, 1], [7, 5], [2, 3, 4], [0, 2], [1, 130], [17, 9], [2, 2, 3, 3], [66, 65]])
_families = st.sampled_from(["normal", "constant", "signs", "zero", "zero_rows", "sleeping_columns", "decades", "nan"])
_tensors = st.fixed_dictionaries(
    {"shape": _shapes, "dtype": dtypes, "family": _families, "power": st.sampled_from([0, -2, None])}
)
_kinds = st.sampled_from(["none", "strided"])


@st.composite
def package_cases(draw):
    word = draw(st.sampled_from(OPTIMIZERS))
    made = {"level": "package", "optimizer": word, "options": [draw(options(word))]}
    made["tensors"] = draw(st.lists(_tensors, min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 3:
        made["copies"] = 12
    made["seed"] = draw(st.integers(0, 100))
    made["steps"] = []
    for number in range(draw(st.integers(1, 4))):
        step = {"seed": draw(st.integers(0, 1000)), "power": draw(st.one_of(st.just(0), powers)), "lr": draw(rates)}
        kinds = draw(st.dictionaries(st.integers(0, 3).map(str), _kinds, max_size=2))
        if kinds:
            step["grads"] = kinds
        changed = draw(_changes) if number else []
        if changed:
            step["changes"] = changed
        made["steps"].append(step)
    return made
