"""What the tests of state dicts under sharding run on each rank: state goes from one optimizer into another, or is refused."""

import came_optim
import torch
import torch.distributed as dist
from package import make, raw
from sharded import whole
from sharded_checkpoints import CASES, STEPS, build, states
from sharded_models import train
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

# Options with which a state dict is taken, and with which it is given.
WAYS = {
    "sharded": ({}, {}),
    "on the host": ({"cpu_offload": True}, {"cpu_offload": True}),
    "whole": ({"full_state_dict": True}, {"full_state_dict": True}),
    "flat": ({"flatten_optimizer_state_dict": True}, {"flatten_optimizer_state_dict": True}),
    "whole and flat": ({"full_state_dict": True, "flatten_optimizer_state_dict": True}, {"full_state_dict": True}),  # torch takes it so only
    "whole, of rank 0": ({"full_state_dict": True, "cpu_offload": True}, {"full_state_dict": True, "broadcast_from_rank0": True}),
}


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def bits(net, optimizer):
    """What lies on this rank, by name."""
    found = {name: raw(local(param)) for name, param in net.named_parameters()}
    for name, param in net.named_parameters():
        found.update({f"{name}.{entry}": raw(local(value)) for entry, value in optimizer.state[param].items()})
    return found


def tensors_of(state_dict):
    """Those of the state, in a dict of dicts or a flat one."""
    if "state" in state_dict:
        return [value for slot in state_dict["state"].values() for value in slot.values()]
    return [value for name, value in state_dict.items() if name.startswith("state.")]


def trained(layout, case, steps):
    net, optimizer, place = build(layout, case)
    states(net, optimizer)
    train(net, optimizer, steps, place)
    optimizer.zero_grad()
    return net, optimizer, place


# ---- from one optimizer into another -----------------------------------------------------------------


def through(layout, case, way):
    """Whether training goes on with the same bits in an optimizer that was given a state dict of the first."""
    (taking, giving), (algorithm, options) = WAYS[way], CASES[case]
    net, optimizer, place = trained(layout, case, STEPS)
    taken, before = states(net, optimizer, **taking)["optimizer"], bits(net, optimizer)
    if "full_state_dict" in taking and "cpu_offload" in taking and dist.get_rank():
        assert taken == {}
    else:
        assert len(tensors_of(taken)) == sum(map(len, optimizer.state.values()))
        assert ("full_state_dict" in taking) != any(isinstance(tensor, DTensor) for tensor in tensors_of(taken))
    other = make(algorithm, net.parameters(), **options)
    set_optimizer_state_dict(net, other, taken, options=StateDictOptions(**giving))
    assert bits(net, other) == before and other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == optimizer.defaults["lr"]
    train(net, other, STEPS, place, first=STEPS)
    straight = trained(layout, case, 2 * STEPS)[:2]
    return bits(net, other) == bits(*straight)


def as_whole(state_dict):
    """A state dict as one process has it."""
    return {**state_dict, "state": {key: {name: whole(value) for name, value in slot.items()} for key, slot in state_dict["state"].items()}}


def load_whole(path, layout, case):
    """Trains on with what one process saved, and saves as that did; torch.save and torch.load throughout."""
    net, optimizer, place = build(layout, case)
    saved = torch.load(path, weights_only=True)
    with torch.no_grad():
        for param, value in zip(net.parameters(), saved["weights"]):
            param.copy_(distribute_tensor(value, param.device_mesh, param.placements) if isinstance(param, DTensor) else value)
    optimizer.load_state_dict(state_dict=saved["optimizer"])
    train(net, optimizer, STEPS, place, first=STEPS)
    result = {"weights": [param.full_tensor().detach() for param in net.parameters()], "optimizer": as_whole(optimizer.state_dict())}
    if not dist.get_rank():
        torch.save(result, path)


# ---- the step that makes state -----------------------------------------------------------------------


def makes_state(layout, case):
    """Names of what the step that torch.distributed.checkpoint makes has changed, or has not made."""
    net, optimizer, _ = build(layout, case)
    before, rates = {name: raw(local(param)) for name, param in net.named_parameters()}, [group["lr"] for group in optimizer.param_groups]
    states(net, optimizer)
    changed = [name for name, param in net.named_parameters() if raw(local(param)) != before[name] or param.grad is not None]
    for name, param in net.named_parameters():
        slot = optimizer.state[param]
        changed += [f"{name}.{entry}" for entry, value in slot.items() if local(value).any()]
        changed += [f"{name} has no {entry}" for entry in {"step"} - slot.keys()]
    return changed + [group["lr"] for group, rate in zip(optimizer.param_groups, rates) if group["lr"] != rate]


def counts(layout, gradient, rates=(0.0, 0.0), steps=1):
    """The counters after steps with these rates.  `gradient`: 0, or the value of one element, which one rank has."""
    net, *_ = build(layout, "came")
    params = list(net.parameters())
    optimizer = came_optim.CAME([{"params": params[:3], "lr": rates[0]}, {"params": params[3:], "lr": rates[1]}])
    for _ in range(steps):
        for param in params:
            param.grad = torch.zeros_like(param)
        if local(params[0]).numel() and (layout is None or dist.get_rank() == 0):
            local(params[0].grad).view(-1)[0] = gradient
        before = [raw(local(param)) for param in params]
        optimizer.step()
        assert 0.0 not in rates[:1] or before[:3] == [raw(local(param)) for param in params[:3]]
    return {float(optimizer.state[param]["step"]) for param in params}


# ---- what is refused ---------------------------------------------------------------------------------


def without(entry):
    def spoil(slot, param):
        del slot[entry]

    return spoil


def plain(entry, *shape):
    def spoil(slot, param):
        slot[entry] = torch.zeros(shape, dtype=torch.float64)

    return spoil


def sharded(entry, *shape, dims=1):
    """`dims`: of the mesh; the parameter's has one."""

    def spoil(slot, param):
        same = isinstance(param, DTensor) and dims == 1
        mesh = param.device_mesh if same else init_device_mesh("cpu", (1,) * (dims - 1) + (dist.get_world_size(),))
        slot[entry] = distribute_tensor(torch.zeros(shape, dtype=torch.float64), mesh, [Replicate()] * dims)

    return spoil


SPOILED = {
    "no row statistics": without("exp_avg_sq_row"),
    "no counter": without("step"),
    "momentum of another shape": sharded("exp_avg", 12, 6),
    "rows of another number": sharded("exp_avg_sq_row", 12),
    "whole, of another shape": plain("exp_avg", 12, 6),
    "the part of a rank": plain("exp_avg", 6, 6),
    "on another mesh": sharded("exp_avg", 11, 6, dims=2),
    "beside a plain parameter": sharded("exp_avg", 11, 6),
}


def refuses(layout, how):
    """What loading a spoiled state dict says.  Training goes on as if nobody had tried."""
    net, optimizer, place = trained(layout, "came", STEPS)
    before, groups = bits(net, optimizer), [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    state_dict = optimizer.state_dict()
    SPOILED[how](state_dict["state"][1], net.embedding.weight)
    try:
        optimizer.load_state_dict(state_dict)
        message = "loaded"
    except (ValueError, TypeError) as error:
        message = str(error)
    assert bits(net, optimizer) == before
    assert [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] == groups
    train(net, optimizer, STEPS, place, first=STEPS)
    straight = trained(layout, "came", 2 * STEPS)[:2]
    assert bits(net, optimizer) == bits(*straight)
    return message
