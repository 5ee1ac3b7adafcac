"""Memory of one tensor among hundreds that somebody changed between two steps: what is there now is used, or an error is raised
before anything is written.  By kernels, by the loop, when gradients are released, and inside torch.compile.
"""

import pytest
import torch
from package import parameters, raw, same, set_gradients
from torch import nn

import came_optim
from came_optim import binding, state

COUNT, MIDDLE = 120, 57
SHAPES = [(4, 6) if k % 3 else (5,) for k in range(COUNT)]
SHAPES[MIDDLE] = (4, 6)
WAYS = ["kernels", "loop", "no handles"]


def grown(optimizer_class=came_optim.AdamW, way="kernels", count=COUNT, **options):
    """An optimizer of many parameters after three steps."""
    params = parameters(torch.float32, SHAPES[:count])
    optimizer = optimizer_class(params, lr=0.1, fused=False if way == "loop" else None, **options)
    for step in range(3):
        set_gradients(params, step)
        optimizer.step()
    return params, optimizer


@pytest.fixture
def without_handles(monkeypatch, request):
    if request.getfixturevalue("way") == "no handles":  # a torch that tells C nothing
        monkeypatch.setattr(binding, "lender", lambda: None)
        monkeypatch.setattr(state, "handles", lambda: None)


def everything(params, optimizer):
    """Bytes of parameters and of all state that can still be read."""
    slots = [v for s in optimizer.state.values() for v in s.values() if v.device.type == "cpu" and readable(v)]
    return [raw(t) for t in [*params, *slots]]


def readable(tensor):
    return tensor.layout is torch.strided and tensor.untyped_storage().nbytes() >= tensor.nbytes


def set_data(slot, name, tensor):
    tensor.data = tensor.data.clone()


def assign(slot, name, tensor):
    slot[name] = tensor.clone()


def set_storage(slot, name, tensor):
    tensor.set_(tensor.clone())


def share(slot, name, tensor):
    tensor.share_memory_()


def enlarge(slot, name, tensor):
    tensor.untyped_storage().resize_(4 * tensor.untyped_storage().nbytes())


def shrink_and_grow(slot, name, tensor):
    """Through sizes for which the allocator hands out memory again."""
    kept, storage = tensor.clone(), tensor.untyped_storage()
    size = storage.nbytes()
    for other in (0, size, size // 2, size, 0, size):
        storage.resize_(other)
    tensor.copy_(kept)


def swap(slot, name, tensor):
    torch.utils.swap_tensors(tensor, tensor.clone())


def widen(slot, name, tensor):
    tensor.data = tensor.data.double()


def turn(slot, name, tensor):
    """The same numbers in another order of memory."""
    tensor.data = tensor.data.t().contiguous().t() if tensor.ndim == 2 else torch.stack((tensor, tensor), -1).data[..., 0]


def other_class(slot, name, tensor):
    slot[name] = nn.Parameter(tensor.clone(), requires_grad=False)


FOLLOWED = [assign, set_data, set_storage, share, enlarge, shrink_and_grow, swap, widen, turn, other_class]


@pytest.mark.usefixtures("without_handles")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
@pytest.mark.parametrize("change", FOLLOWED)
def test_one_state_tensor_of_many_is_followed(change, name, way):
    """Its numbers stay, its memory changes: the next step gives the bits that it would have given, and writes there."""
    (params, optimizer), (others, twin) = grown(way=way), grown(way=way)
    slot = optimizer.state[params[MIDDLE]]
    if name == "step" and change in (enlarge, shrink_and_grow):
        slot["step"] = slot["step"].clone()  # one that has memory of its own
    change(slot, name, slot[name])
    for step in (3, 4):
        for ps, one in ((params, optimizer), (others, twin)):
            set_gradients(ps, step)
            one.step()
    assert all(same(p, q) for p, q in zip(params, others))
    for p, q in zip(params, others):
        assert all(torch.equal(optimizer.state[p][entry], value) for entry, value in twin.state[q].items())


@pytest.mark.parametrize("change", [assign, set_data, set_storage])
def test_other_numbers_are_used_at_once(change):
    """A momentum that is set to zero, in other memory than it was bound in."""
    (params, optimizer), (others, twin) = grown(came_optim.CAME), grown(came_optim.CAME)
    slot = optimizer.state[params[MIDDLE]]
    change(slot, "exp_avg", slot["exp_avg"])
    slot["exp_avg"].zero_()
    twin.state[others[MIDDLE]]["exp_avg"].zero_()
    for ps, one in ((params, optimizer), (others, twin)):
        set_gradients(ps, 3)
        one.step()
    assert all(same(p, q) for p, q in zip(params, others))


def free(tensor):
    tensor.untyped_storage().resize_(0)


def halve(tensor):
    tensor.untyped_storage().resize_(tensor.nbytes // 2)


def cut(tensor):
    """By one byte, in memory that was freed and taken again."""
    storage, size = tensor.untyped_storage(), tensor.nbytes
    for other in (0, size, size // 2, size - 1):
        storage.resize_(other)


def resize(tensor):
    tensor.resize_(2, 2)


def transpose(tensor):
    tensor.data = tensor.data.t()


def narrow(tensor):
    tensor.data = tensor.data.as_strided((2, 6), (6, 1))


def reshape(tensor):
    tensor.data = tensor.data.reshape(6, 4)


def to_meta(tensor):
    torch.utils.swap_tensors(tensor, tensor.to("meta"))


def to_codes(tensor):
    tensor.data = tensor.data.to(torch.int32)


def to_blocks(tensor):
    torch.utils.swap_tensors(tensor, tensor.detach().clone().to_mkldnn())


REFUSED = {
    free: "a storage of 0 bytes, expected at least 96: its storage was resized",
    halve: "a storage of 48 bytes, expected at least 96",
    cut: "a storage of 95 bytes, expected at least 96",
    resize: r"\[2, 2\]",
    transpose: r"\[6, 4\]",
    narrow: r"\[2, 6\]",
    reshape: r"\[6, 4\]",
    to_meta: "on meta",
    to_codes: "torch.int32",
    to_blocks: "of layout torch._mkldnn",
}


@pytest.mark.usefixtures("without_handles")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", REFUSED)
def test_one_state_tensor_that_cannot_be_used_is_refused_by_name(change, way):
    params, optimizer = grown(way=way)
    change(optimizer.state[params[MIDDLE]]["exp_avg"])
    before = everything(params, optimizer)
    for _ in range(2):  # again and again
        with pytest.raises((ValueError, TypeError), match=f"AdamW: state exp_avg of parameter {MIDDLE} .*{REFUSED[change]}"):
            optimizer.step()
    assert everything(params, optimizer) == before
    del optimizer.state[params[MIDDLE]]
    optimizer.step()  # it begins anew
    assert optimizer.state[params[MIDDLE]]["step"] == 1 and optimizer.state[params[0]]["step"] == 4


@pytest.mark.usefixtures("without_handles")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [free, resize, to_meta])
def test_a_counter_that_cannot_be_used_is_refused_by_name(change, way):
    params, optimizer = grown(way=way)
    counter = optimizer.state[params[MIDDLE]]["step"]
    counter.data = counter.data.clone()  # bound counters lie side by side
    change(counter)
    before = [raw(p) for p in params]
    with pytest.raises((ValueError, TypeError), match=f"step of parameter {MIDDLE}"):
        optimizer.step()
    assert [raw(p) for p in params] == before


@pytest.mark.usefixtures("without_handles")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "change, role",
    [(free, "parameter"), (halve, "parameter"), (to_blocks, "parameter"), (free, "gradient"), (cut, "gradient")],
)
def test_parameters_and_gradients_without_their_memory_are_refused(change, role, way, capfd):
    params, optimizer = grown(way=way)
    set_gradients(params, 3)
    if change is to_blocks:
        params[MIDDLE].grad = None
    change(params[MIDDLE] if role == "parameter" else params[MIDDLE].grad)
    before = everything([p for p in params if readable(p)], optimizer)
    with pytest.raises((ValueError, TypeError), match=rf"AdamW: (the gradient of )?parameter {MIDDLE} "):
        optimizer.step()
    assert everything([p for p in params if readable(p)], optimizer) == before
    assert capfd.readouterr().err == ""


def test_a_gradient_that_was_resized_is_refused():
    params, optimizer = grown()
    params[MIDDLE].grad.resize_(2, 2)
    before = everything(params, optimizer)
    with pytest.raises(ValueError, match=rf"the gradient of parameter {MIDDLE} has shape \[2, 2\] on cpu, expected \[4, 6\]"):
        optimizer.step()
    assert everything(params, optimizer) == before


@pytest.mark.parametrize("kind", [nn.Parameter, torch.Tensor])
def test_classes_of_ones_own_are_looked_at_too(kind):
    """They have no handles: DLPack tells addresses and not how much memory there is."""

    class Own(kind):
        pass

    params = parameters(torch.float32, SHAPES)
    if kind is nn.Parameter:
        params[MIDDLE].__class__ = Own
    optimizer = came_optim.AdamW(params)
    for step in range(3):
        set_gradients(params, step)
        params[MIDDLE].grad = params[MIDDLE].grad.as_subclass(Own) if kind is torch.Tensor else params[MIDDLE].grad
        if step == 2:
            free(params[MIDDLE].grad)
            with pytest.raises(ValueError, match=f"the gradient of parameter {MIDDLE} has .*a storage of 0 bytes"):
                optimizer.step()
        else:
            optimizer.step()


# ---- slots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq_row", "exp_avg_res_col", "step"])
def test_an_entry_that_was_deleted_is_not_made_up(name, fused):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.CAME([{"params": params[:50]}, {"params": params[50:], "lr": 1e-3}], fused=fused)
    set_gradients(params, 0)
    optimizer.step()
    kept = optimizer.state[params[MIDDLE]].pop(name)
    before = everything(params, optimizer)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"CAME: the state of parameter {MIDDLE} has no '{name}', expected 'step', "):
            optimizer.step()
    assert everything(params, optimizer) == before
    optimizer.state[params[MIDDLE]][name] = kept
    optimizer.step()
    assert optimizer.state[params[MIDDLE]]["step"] == 2


def test_a_slot_that_is_replaced_must_be_complete():
    params, optimizer = grown()
    slot = optimizer.state[params[MIDDLE]]
    optimizer.state[params[MIDDLE]] = {name: value for name, value in slot.items() if name != "exp_avg_sq"}
    with pytest.raises(ValueError, match=f"the state of parameter {MIDDLE} has no 'exp_avg_sq'"):
        optimizer.step()


@pytest.mark.parametrize("empty", [lambda slot: slot.clear(), lambda slot: [slot.pop(name) for name in list(slot)]])
def test_a_slot_that_is_emptied_begins_anew(empty):
    params, optimizer = grown()
    empty(optimizer.state[params[MIDDLE]])
    optimizer.step()
    assert optimizer.state[params[MIDDLE]]["step"] == 1 and optimizer.state[params[0]]["step"] == 4


@pytest.mark.parametrize("fused", [None, False])
def test_what_an_option_adds_later_begins_as_zeros(fused):
    params = parameters(torch.float32, SHAPES)
    optimizer = came_optim.CAME(params, fused=fused)
    for confidence in (False, True, True):
        set_gradients(params, 0)
        optimizer.param_groups[0]["confidence_1d"] = confidence
        optimizer.step()
    assert optimizer.state[params[0]]["exp_avg_res"].any()
    del optimizer.state[params[0]]["exp_avg_res"]
    with pytest.raises(ValueError, match="the state of parameter 0 has no 'exp_avg_res'"):
        optimizer.step()
    optimizer.param_groups[0]["confidence_1d"] = False  # nobody wants it
    optimizer.step()
    optimizer.param_groups[0]["confidence_1d"] = True
    optimizer.step()
    assert "exp_avg_res" in optimizer.state[params[0]]


def test_a_slot_that_somebody_holds_stays_the_slot():
    params, optimizer = grown()
    held = optimizer.state[params[MIDDLE]]
    held["exp_avg"] = held["exp_avg"].clone()
    optimizer.step()
    held["exp_avg"] = torch.full((4, 6), 1e6)
    optimizer.step()
    assert optimizer.state[params[MIDDLE]] is held and held["step"] == 5
    assert optimizer.state[params[MIDDLE]]["exp_avg"].min() > 1e5


# ---- release and compile -----------------------------------------------------------------------------


def released():
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(60)))
    optimizer = came_optim.AdamW(net.parameters(), lr=0.1)
    came_optim.gradient_release(net, optimizer)
    params = list(net.parameters())
    for _ in range(2):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return net, params, optimizer


@pytest.mark.parametrize("change", [set_data, set_storage, share, swap, shrink_and_grow, turn])
def test_released_steps_follow_state(change):
    sides = [released(), released()]
    net, params, optimizer = sides[0]
    slot = optimizer.state[params[40]]
    change(slot, "exp_avg", slot["exp_avg"])
    for net, _, one in sides:
        for _ in range(2):
            net(torch.ones(2, 4)).sum().backward()
            one.step()
    assert all(same(p, q) for p, q in zip(sides[0][1], sides[1][1]))


@pytest.mark.parametrize("change", [free, halve, to_meta, reshape])
def test_released_steps_refuse_state(change):
    net, params, optimizer = released()
    victim = optimizer.state[params[40]]["exp_avg"]
    victim.data = torch.zeros(4, 6) if change is reshape else victim.data
    change(victim)
    before = raw(params[40])
    with pytest.raises(ValueError, match="state exp_avg of parameter 40"):
        net(torch.ones(2, 4)).sum().backward()
    assert raw(params[40]) == before


@pytest.mark.parametrize("change", [assign, set_data, shrink_and_grow])
def test_compiled_steps_follow_state(change):
    (params, optimizer), (others, twin) = (grown(count=MIDDLE + 2) for _ in range(2))
    torch._dynamo.reset()
    compiled = torch.compile(lambda: optimizer.step(), backend="aot_eager")
    for step in (3, 4, 5):
        if step == 4:
            slot = optimizer.state[params[MIDDLE]]
            change(slot, "exp_avg", slot["exp_avg"])
        for ps, one in ((params, compiled), (others, twin.step)):
            set_gradients(ps, step)
            one()
    assert all(same(p, q) for p, q in zip(params, others))


@pytest.mark.parametrize("change", [free, reshape])
def test_compiled_steps_refuse_state(change):
    params, optimizer = grown(count=MIDDLE + 2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda: optimizer.step(), backend="aot_eager")
    compiled()
    change(optimizer.state[params[MIDDLE]]["exp_avg"])
    before = everything(params, optimizer)
    with pytest.raises(Exception, match=f"state exp_avg of parameter {MIDDLE}"):
        compiled()
    assert everything(params, optimizer) == before
