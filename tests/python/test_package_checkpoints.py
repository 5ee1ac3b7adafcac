"""Save, load, go on equals never stopped, bit for bit; and checkpoints of other packages load."""

import io

import came_pytorch
import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import transformers
from package import MOMENTA, OPTIMIZERS, Convolutions, assert_as_the_loop, make, parameters, run, same, same_states, seeded, set_gradients
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

import came_optim

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def through_torch(state_dict):
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def through_safetensors(state_dict):
    """Tensors by name in one file, the groups beside it."""
    flat = {f"{key}.{name}": value for key, slot in state_dict["state"].items() for name, value in slot.items()}
    state = {}
    for name, value in safetensors.torch.load(safetensors.torch.save(flat)).items():
        key, name = name.split(".")
        state.setdefault(int(key), {})[name] = value
    return {"state": state, "param_groups": state_dict["param_groups"]}


WAYS = {"memory": lambda s: s, "torch.save": through_torch, "safetensors": through_safetensors}


def resume(algorithm, dtype, way, **options):
    """An optimizer that ran six steps, and one that ran three and was loaded into another for the rest."""
    params, others = parameters(dtype), parameters(dtype)
    straight, first, second = (make(algorithm, p, **options) for p in (params, others, others))
    run(straight, params, 6)
    run(first, others, 3)
    second.load_state_dict(way(first.state_dict()))
    run(second, others, 3, first=3)
    return straight, second, params, others


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("momentum_dtype", MOMENTA)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_resuming_changes_no_bit(algorithm, dtype, momentum_dtype, way):
    options = {"momentum_dtype": momentum_dtype, "stochastic_rounding": True}
    straight, second, params, others = resume(algorithm, dtype, WAYS[way], **options)
    assert all(same(p, q) for p, q in zip(params, others))
    assert same_states(straight.state_dict(), second.state_dict())


@pytest.mark.parametrize("algorithm", ["adam", "adamw", "lamb"])
def test_resuming_a_coded_second_moment_changes_no_bit(algorithm):
    straight, second, params, others = resume(algorithm, torch.bfloat16, through_torch, second_moment_dtype="int8")
    assert all(same(p, q) for p, q in zip(params, others))
    assert same_states(straight.state_dict(), second.state_dict())


@pytest.mark.parametrize("fused", [True, False])
def test_loop_and_kernels_resume_each_other(fused):
    """In steps that a third optimizer makes without changing over."""
    params, others = parameters(torch.float64), parameters(torch.float64)
    start = [p.detach().clone() for p in params]
    first, second, straight = (came_optim.CAME(ps, fused=f) for ps, f in ((params, fused), (params, not fused), (others, fused)))
    run(first, params, 2)
    second.load_state_dict(first.state_dict())
    second.param_groups[0]["fused"] = not fused
    run(second, params, 1, first=2)
    run(straight, others, 3)
    assert [binding.kernels for binding in (*second._bindings, *straight._bindings)] == [not fused, fused]
    for p, q, origin in zip(params, others, start):
        assert_as_the_loop(p, q, origin, 3)
        assert second.state[p].keys() == straight.state[q].keys() and second.state[p]["step"] == straight.state[q]["step"] == 3


class Model(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weights = nn.ParameterList(parameters(dtype, [(7, 13), (31,), (), (8, 3, 3, 3)]))


@pytest.mark.parametrize("momentum_dtype", [None, "int8"])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_distributed_checkpoints_change_no_bit(algorithm, momentum_dtype, tmp_path):
    model, other = Model(torch.bfloat16), Model(torch.bfloat16)
    params, others = list(model.parameters()), list(other.parameters())
    options = {"momentum_dtype": momentum_dtype, "stochastic_rounding": True}
    straight, first = make(algorithm, params, **options), make(algorithm, others, **options)
    run(straight, params, 6)
    run(first, others, 3)
    dcp.save({"o": get_optimizer_state_dict(other, first)}, checkpoint_id=tmp_path)
    first.zero_grad()  # where there are gradients, torch makes no state to load into
    second = make(algorithm, others, **options)
    before = [p.detach().clone() for p in others]
    state = {"o": get_optimizer_state_dict(other, second)}  # makes state by a step with zero rate and gradients
    assert all(same(p, q) for p, q in zip(others, before))
    dcp.load(state, checkpoint_id=tmp_path)
    set_optimizer_state_dict(other, second, state["o"])
    run(second, others, 3, first=3)
    assert all(same(p, q) for p, q in zip(params, others))
    assert same_states(straight.state_dict(), second.state_dict())


def go_on(ours, theirs, our_params, their_params):
    """One more step of both with the same gradients; the largest difference over the largest move."""
    before = [q.detach().clone() for q in their_params]
    set_gradients(our_params, 99)
    set_gradients(their_params, 99)
    ours.step()
    theirs.step()
    worst = 0.0
    for p, q, b in zip(our_params, their_params, before):
        if p.numel():
            worst = max(worst, ((p - q).abs().max() / (q - b).abs().max()).item())
    return worst


def test_checkpoints_of_came_pytorch_load_as_they_are():
    """State of convolutions over their last two dimensions included; in f64, so that only the formulas can differ."""
    theirs_net, ours_net = seeded(Convolutions).double(), seeded(Convolutions).double()
    theirs = came_pytorch.CAME(theirs_net.parameters(), lr=1e-3)
    for step in range(5):
        theirs.zero_grad()
        theirs_net.loss(step).backward()
        theirs.step()
    ours_net.load_state_dict(theirs_net.state_dict())
    ours = came_optim.CAME(ours_net.parameters(), lr=1.0)
    ours.load_state_dict(through_torch(theirs.state_dict()))
    group = ours.param_groups[0]
    assert group["view"] == "last_two" and group["bias_correction"] is False
    assert group["lr"] == 1e-3 and group["momentum_dtype"] is None
    assert "RMS" not in ours.state_dict()["state"][0]
    assert go_on(ours, theirs, list(ours_net.parameters()), list(theirs_net.parameters())) < 1e-10


def test_own_options_survive_a_checkpoint_without_them():
    params, others = parameters(torch.float32), parameters(torch.float32)
    theirs = came_pytorch.CAME(params, lr=1e-3)
    run(theirs, [p for p in params if p.numel()], 1)
    ours = came_optim.CAME([{"params": others, "stochastic_rounding": True}], weight_decay=0.5, max_grad_norm=2.0)
    ours.load_state_dict(theirs.state_dict())
    group = ours.param_groups[0]
    assert group["stochastic_rounding"] and group["max_grad_norm"] == 2.0 and group["weight_decay"] == 0.0


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW])
def test_checkpoints_of_torch_load(cls):
    params, others = parameters(torch.float64), parameters(torch.float64)
    theirs = cls(params, lr=1e-2, weight_decay=0.1)
    run(theirs, params, 4)
    for p, q in zip(others, params):
        p.data.copy_(q)
    ours = getattr(came_optim, cls.__name__)(others)
    state = through_torch(theirs.state_dict())
    for slot in state["state"].values():
        slot["step"] = int(slot["step"])  # as torch 1.11 had it
    ours.load_state_dict(state)
    assert go_on(ours, theirs, others, params) < 1e-12


def test_state_of_torch_in_bf16_becomes_f32():
    params = parameters(torch.bfloat16)
    theirs = torch.optim.AdamW(params)
    run(theirs, params, 2)
    ours = came_optim.AdamW(params)
    ours.load_state_dict(theirs.state_dict())
    run(ours, params, 1, first=2)
    assert ours.state[params[0]]["exp_avg"].dtype == torch.float32 and int(ours.state[params[0]]["step"]) == 3


def test_checkpoints_of_transformers_load():
    shapes = [(7, 13), (31,), (4, 3, 3, 3)]
    params, others = parameters(torch.float64, shapes), parameters(torch.float64, shapes)
    theirs = transformers.Adafactor(params, beta1=0.9)
    run(theirs, params, 4)
    for p, q in zip(others, params):
        p.data.copy_(q)
    ours = came_optim.Adafactor(others, beta1=0.9)
    ours.load_state_dict(through_torch(theirs.state_dict()))
    assert ours.param_groups[0]["view"] == "last_two"
    assert go_on(ours, theirs, others, params) < 1e-10


def test_state_of_no_view_is_refused():
    params = parameters(torch.float32, [(4, 3, 3)])
    optimizer = came_optim.CAME(params)
    run(optimizer, params, 1)
    state = optimizer.state_dict()
    state["state"][0]["exp_avg_sq_row"] = torch.zeros(5)
    with pytest.raises(ValueError, match=r"no view fits the loaded state of a parameter of shape \[4, 3, 3\]"):
        came_optim.CAME(params).load_state_dict(state)


def test_a_checkpoint_that_fails_leaves_everything_as_it_was():
    params, others = parameters(torch.float32, [(4, 3, 3), (5,)]), parameters(torch.float32, [(4, 3, 3), (5,)])
    optimizer, twin = came_optim.CAME(params), came_optim.CAME(others)
    run(optimizer, params, 2)
    run(twin, others, 2)
    other = optimizer.state_dict()
    other["state"][0]["exp_avg_sq_row"] = torch.zeros(5)
    other["state"][1]["exp_avg"] = torch.full((5,), 7.0)
    other["param_groups"][0]["lr"] = 1.0
    with pytest.raises(ValueError, match="no view fits"):
        optimizer.load_state_dict(other)
    same_states(optimizer.state_dict(), twin.state_dict())
    assert optimizer.param_groups[0]["lr"] == twin.param_groups[0]["lr"]
    run(optimizer, params, 2, first=2)
    run(twin, others, 2, first=2)
    assert all(same(p, q) for p, q in zip(params, others))


def test_state_of_other_options_is_refused():
    params = parameters(torch.float32, [(4, 3)])
    optimizer = came_optim.CAME(params, momentum_dtype="int8")
    run(optimizer, params, 1)
    optimizer.param_groups[0]["momentum_dtype"] = "f32"
    with pytest.raises(ValueError, match="state exp_avg of parameter 0 is torch.int8 .*expected float32"):
        run(optimizer, params, 1)


def test_counters_of_a_checkpoint_share_no_memory():
    params = parameters(torch.float32)
    optimizer = came_optim.CAME(params)
    run(optimizer, params, 1)
    state = optimizer.state_dict()["state"]
    assert len({slot["step"].untyped_storage().data_ptr() for slot in state.values()}) == len(params)
    assert all(type(slot) is dict for slot in state.values())
    run(optimizer, params, 1)
    assert int(state[0]["step"]) == 1


# ---- checkpoints with codes of vectors, as those of matrices are: docs/algorithms.md, (30) and (31) ---------------------

VECTORS = [(131,), (5, 300), (), (0,), (1,)]


def coded(count, momentum_dtype, seed):
    """Codes and scales of a momentum of so many numbers, byte by byte, and what they mean."""
    random = np.random.default_rng(seed)
    levels = {"int8": 127, "int4": 7}[momentum_dtype]
    codes = random.integers(-levels, levels + 1, count)
    scales = random.uniform(0.1, 3, -(-count // 128)).astype(np.float32)
    values = scales.repeat(128)[:count] * ((codes * abs(codes)).astype(np.float32) * (np.float32(1) / np.float32(levels**2)))
    if momentum_dtype == "int8":
        return codes.astype(np.int8), scales, values
    nibbles = np.append(codes, [0] * (count % 2)).astype(np.uint8) & 15
    return nibbles[0::2] | nibbles[1::2] << 4, scales, values


def coded_second(count, seed):
    random = np.random.default_rng(seed)
    codes, scales = random.integers(1, 256, count).astype(np.uint8), random.uniform(0.1, 3, -(-count // 128)).astype(np.float32)
    t = codes.astype(np.float32) * (np.float32(1) / np.float32(255))
    return codes, scales, scales.repeat(128)[:count] * ((t * t) * (t * t))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("momentum_dtype", ["int8", "int4"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_codes_of_vectors_are_read_as_what_they_mean(algorithm, dtype, momentum_dtype, fused):
    params, others = parameters(dtype, VECTORS), parameters(dtype, VECTORS)
    options = {"momentum_dtype": momentum_dtype, "fused": fused}
    if algorithm in ("adam", "adamw", "lamb"):
        options["second_moment_dtype"] = "int8"
    first, second, straight = make(algorithm, params, **options), make(algorithm, params, **options), make(algorithm, others, **options)
    run(straight, others, 2)
    run(first, params, 2)
    old = first.state_dict()
    for k, p in enumerate(params):
        if p.ndim > 1:
            continue
        moments = {"exp_avg": coded(p.numel(), momentum_dtype, k)}
        if "second_moment_dtype" in options:
            moments["exp_avg_sq"] = coded_second(p.numel(), k)
        for name, (codes, scales, values) in moments.items():
            stored = torch.from_numpy(codes)
            packed = momentum_dtype == "int4" and name == "exp_avg"
            old["state"][k].update({name: stored if packed else stored.reshape(p.shape), name + "_scale": torch.from_numpy(scales)})
            straight.state[others[k]][name].copy_(torch.from_numpy(values).reshape(p.shape))
    second.load_state_dict(through_torch(old))
    for p, q in zip(params, others):
        assert second.state[p].keys() == straight.state[q].keys()
        assert all(torch.equal(value, straight.state[q][name]) for name, value in second.state[p].items())
    run(second, params, 2, first=2)
    run(straight, others, 2, first=2)
    assert all(same(p, q) for p, q in zip(params, others))
    assert same_states(second.state_dict(), straight.state_dict())


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"exp_avg_scale": torch.ones(1)}, r"state exp_avg of parameter 0 is torch.int8 \[131\] .*expected float32 \[131\]"),
        ({"exp_avg": torch.ones(130, dtype=torch.int8)}, r"state exp_avg of parameter 0 is torch.int8 \[130\] .*expected float32 \[131\]"),
        ({"exp_avg": torch.ones(131, dtype=torch.int32)}, r"state exp_avg of parameter 0 is torch.int32 \[131\] .*expected float32 \[131\]"),
        ({"exp_avg": torch.ones(131, dtype=torch.uint8)}, r"state exp_avg of parameter 0 is torch.uint8 \[131\] .*expected float32 \[131\]"),
        ({"exp_avg_scale": None}, r"state exp_avg of parameter 0 is torch.int8 \[131\] .*expected float32 \[131\]"),
    ],
)
def test_codes_of_vectors_that_do_not_fit_are_refused(entries, message):
    params = parameters(torch.float32, [(131,)])
    optimizer = came_optim.CAME(params, momentum_dtype="int8")
    run(optimizer, params, 1)
    before, old = optimizer.state_dict(), optimizer.state_dict()
    old["state"][0].update(exp_avg=torch.ones(131, dtype=torch.int8), exp_avg_scale=torch.ones(2))
    old["state"][0].update(entries)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(old)
    assert same_states(before, optimizer.state_dict())
