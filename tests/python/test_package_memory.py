"""Memory of one tensor among hundreds that somebody changed between two steps: what is there now is used, or an error is raised
before anything is written.  By kernels, however torch tells them what tensors are, and by the loop.
"""

import weakref

import pytest
import torch
from package import parameters, raw, same, set_gradients
from replacing import (
    MIDDLE,
    SHAPES,
    WAYS,
    assign,
    assign_around,
    cut,
    enlarge,
    everything,
    free,
    grown,
    halve,
    lay_bare,
    narrow,
    negate,
    other_class,
    readable,
    reinterpret,
    reshape,
    resize,
    reuse,
    set_data,
    set_storage,
    share,
    shrink_and_grow,
    swap,
    swap_twice,
    to_blocks,
    to_codes,
    to_meta,
    transpose,
    turn,
    turn_in_place,
    update_around,
    widen,
)
from torch import nn

import came_optim

FOLLOWED = [assign, set_data, set_storage, share, enlarge, shrink_and_grow, swap, widen, turn, other_class]
FOLLOWED += [assign_around, update_around, reuse, lay_bare, negate, swap_twice]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
@pytest.mark.parametrize("change", FOLLOWED)
def test_one_state_tensor_of_many_is_followed(change, name, way):
    """Its numbers stay, its memory changes: the next step gives the bits that it would have given, and writes there."""
    (params, optimizer), (others, twin) = grown(way=way), grown(way=way)
    slot = optimizer.state[params[MIDDLE]]
    if name == "step" and change in (enlarge, shrink_and_grow, reuse):
        slot["step"] = slot["step"].clone()  # one that has memory of its own
    change(slot, name, slot[name])
    for step in (3, 4):
        for ps, one in ((params, optimizer), (others, twin)):
            set_gradients(ps, step)
            one.step()
    assert all(same(p, q) for p, q in zip(params, others))
    for p, q in zip(params, others):
        assert all(torch.equal(optimizer.state[p][entry], value) for entry, value in twin.state[q].items())


@pytest.mark.parametrize("way", WAYS)
def test_state_that_moves_away_frees_its_memory(way):
    """As of programs that take state to the host while they do something else."""
    params, optimizer = grown(way=way)
    tensor = optimizer.state[params[MIDDLE]]["exp_avg"]
    gone = []
    watching = weakref.ref(tensor.untyped_storage(), lambda _: gone.append(1))
    tensor.data = tensor.data.clone()
    assert gone and watching() is None


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


REFUSED = {
    free: "a storage of 0 bytes, expected at least 96: its storage was resized",
    halve: "a storage of 48 bytes, expected at least 96",
    cut: "a storage of 95 bytes, expected at least 96",
    resize: r"\[2, 2\]",
    transpose: r"\[6, 4\]",
    narrow: r"\[2, 6\]",
    reshape: r"\[6, 4\]",
    turn_in_place: r"\[6, 4\]",
    reinterpret: "torch.int32",
    to_meta: "on meta",
    to_codes: "torch.int32",
    to_blocks: "of layout torch._mkldnn",
}


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


@pytest.mark.parametrize("way", ["dlpack", "python"])
def test_memory_that_is_shorter_at_the_very_address_is_refused(way):
    """As the allocator hands out the same again: nothing but the size of the storage tells."""
    params = parameters(torch.float32, [(10, 1 << 20)])  # memory that the system maps and unmaps by itself
    set_gradients(params, 0)
    optimizer = came_optim.AdamW(params)
    optimizer.step()
    tensor = optimizer.state[params[0]]["exp_avg"]
    address, size = tensor.data_ptr(), tensor.nbytes
    tensor.untyped_storage().resize_(0)
    tensor.untyped_storage().resize_(size - 1)
    assert tensor.data_ptr() == address
    with pytest.raises(ValueError, match=f"state exp_avg of parameter 0 .* a storage of {size - 1} bytes, expected at least {size}"):
        optimizer.step()


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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", ["parameter", "gradient"])
@pytest.mark.parametrize("left, short", [(0, 0), (95, 0), (96, 1), (191, 1)])
def test_a_storage_that_several_share_is_refused_for_each_that_it_is_too_short_for(left, short, role, way):
    """Pieces of one flat tensor: the first that does not lie inside any more is named."""
    params, optimizer = grown(way=way)
    flat = torch.ones(48)
    for p, piece in zip((params[MIDDLE - 1], params[MIDDLE]), flat.view(2, 24)):
        if role == "parameter":
            p.data = piece.view(p.shape)
        else:
            p.grad = piece.view(p.shape)
    optimizer.step()
    flat.untyped_storage().resize_(left)
    with pytest.raises(ValueError, match=rf"parameter {MIDDLE - 1 + short} has shape .* a storage of {left} bytes"):
        optimizer.step()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("same_memory", [True, False])
def test_parameters_that_turn_negated_are_refused(same_memory, way):
    params, optimizer = grown(way=way)
    param = params[MIDDLE]
    param.data = torch._neg_view(param.data if same_memory else param.data.clone())
    before = [raw(p.resolve_neg()) for p in params]
    for _ in range(2):
        with pytest.raises(TypeError, match=rf"parameter {MIDDLE} has the neg bit.*resolve_neg\(\)"):
            optimizer.step()
    assert [raw(p.resolve_neg()) for p in params] == before


@pytest.mark.parametrize("way", WAYS)
def test_a_parameter_of_blocks_is_refused_for_its_layout(way, capfd):
    """It has its shape, type and device, and says of itself that it is contiguous; torch lets no gradient become one."""
    params, optimizer = grown(way=way)
    params[MIDDLE].grad = None
    to_blocks(params[MIDDLE])
    for _ in range(2):
        with pytest.raises(TypeError, match=f"parameter {MIDDLE} is of layout torch._mkldnn, expected a plain dense tensor"):
            optimizer.step()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("way", ["dlpack", "python"])
def test_parameters_that_are_swapped_twice_are_followed(way):
    """torch may hand out an address again: the memory and the version counter are the present ones."""
    (params, optimizer), (others, twin) = grown(way=way), grown(way=way)
    for step in range(3, 7):
        params[MIDDLE].grad = None
        for _ in range(2):
            torch.utils.swap_tensors(params[MIDDLE], nn.Parameter(params[MIDDLE].detach().clone()))
        set_gradients(params, step)
        set_gradients(others, step)
        before = [p._version for p in params]
        optimizer.step()
        twin.step()
        assert [p._version for p in params] == [count + 1 for count in before]
    assert all(same(p, q) for p, q in zip(params, others))


@pytest.mark.parametrize("value", ["handles", "DLPACK"])
def test_a_way_that_there_is_not_is_refused(value, monkeypatch):
    monkeypatch.setenv("CAME_LENDER", value)
    with pytest.raises(ValueError, match=f"CAME_LENDER: '{value}' given, expected 'auto', 'dlpack' or 'python'"):
        grown()


def test_a_gradient_that_was_resized_is_refused():
    params, optimizer = grown()
    params[MIDDLE].grad.resize_(2, 2)
    before = everything(params, optimizer)
    with pytest.raises(ValueError, match=rf"the gradient of parameter {MIDDLE} has shape \[2, 2\] on cpu, expected \[4, 6\]"):
        optimizer.step()
    assert everything(params, optimizer) == before


@pytest.mark.parametrize("kind", [nn.Parameter, torch.Tensor])
def test_classes_of_ones_own_are_looked_at_too(kind):
    """DLPack tells addresses and not how much memory there is."""

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
