"""Tensors read in C: exactly what DLPack and their storages say, and what does not fit is left to others."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import came_optim
from came_optim import binding
from came_optim.lender import Borrower, Storages

SHAPES = [(), (1,), (5,), (3, 4), (1, 7), (0, 3), (2, 3, 4), (2, 1, 3, 1)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

if binding.lender() is None:
    pytest.skip("torch has no exchange interface before 2.10", allow_module_level=True)


def borrower(params):
    optimizer = came_optim.AdamW(params)
    optimizer.step()
    call = optimizer._bindings[0].call
    return Borrower.of(binding.lender(), call, params), call


def made(dtype):
    params = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]
    for p in params:
        p.grad = torch.randn(p.shape).to(dtype)
    return params


@pytest.mark.parametrize("dtype", DTYPES)
def test_addresses_are_those_of_torch(dtype):
    params = made(dtype)
    of, call = borrower(params)
    for p in params[3:5]:  # somewhere within other memory
        p.data = torch.cat([p.data, p.data])[p.shape[0] :]
    grads = of.borrow(params)
    assert all(grad is p.grad for grad, p in zip(grads, params))
    assert [t.data or 0 for t in call.params.tensors] == [p.data_ptr() for p in params]
    assert [t.data or 0 for t in call.grads.tensors] == [p.grad.data_ptr() for p in params]


CHANGES = {
    "another type": lambda t: t.double(),
    "another shape": lambda t: t.reshape(4, 3),
    "fewer dimensions": lambda t: t.reshape(12),
    "other strides": lambda t: t.t().contiguous().t(),
    "another device": lambda t: t.to("meta"),
    "off its alignment": lambda t: torch.frombuffer(bytearray(64), dtype=torch.float32, offset=1, count=12).reshape(3, 4),
    "a sparse layout": lambda t: t.to_sparse(),
    "a layout of blocks": lambda t: t.to_mkldnn() if torch.backends.mkldnn.is_available() else t.to_sparse(),
}


def takes(of, params):
    try:
        return of.borrow(params) is not None
    except (RuntimeError, BufferError, TypeError):  # what DLPack has no words for
        return False


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_does_not_fit_is_noticed(change, capfd):
    p = nn.Parameter(torch.randn(3, 4))
    p.grad = torch.randn(3, 4)
    of, _ = borrower([p])
    assert takes(of, [p])
    assert not takes(of, [nn.Parameter(change(p.data))])
    assert capfd.readouterr().err == ""  # torch logs what its functions refuse


@pytest.mark.parametrize("change", ["other strides", "off its alignment", "a sparse layout"])
def test_gradients_that_do_not_fit_are_noticed(change, capfd):
    p = nn.Parameter(torch.randn(3, 4))
    p.grad = torch.randn(3, 4)
    of, _ = borrower([p])
    p.grad = CHANGES[change](torch.randn(3, 4))
    assert not takes(of, [p])
    assert capfd.readouterr().err == ""


class Returning(TorchFunctionMode):
    """Hands out another object as the gradient."""

    def __init__(self, grad):
        super().__init__()
        self.grad = grad

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return self.grad if function == torch.Tensor.grad.__get__ else function(*args, **(kwargs or {}))


@pytest.mark.parametrize("grad", [object(), 7, "gradient", [1.0]], ids=str)
def test_what_is_no_tensor_is_no_gradient(grad):
    p = nn.Parameter(torch.randn(3, 4))
    p.grad = torch.randn(3, 4)
    optimizer = came_optim.AdamW([p])
    optimizer.step()
    before = p.detach().clone()
    with Returning(grad), pytest.raises((AttributeError, TypeError)):
        optimizer.step()
    assert torch.equal(p, before)


@pytest.mark.parametrize("role", ["parameter", "gradient"])
def test_classes_of_ones_own_are_read_as_a_whole(role):
    """They may hold their memory elsewhere."""

    class Own(nn.Parameter if role == "parameter" else torch.Tensor):
        pass

    p = nn.Parameter(torch.randn(3, 4))
    q = nn.Parameter(p.detach().clone())
    optimizers = [came_optim.CAME([p]), came_optim.CAME([q])]
    for step in range(4):
        p.grad = torch.randn(3, 4)
        q.grad = p.grad.clone()
        if step == 2 and role == "parameter":  # bound as a plain one
            q.__class__ = Own
        if step == 2 and role == "gradient":
            q.grad = q.grad.as_subclass(Own)
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(p, q)


def test_both_ways_give_the_same_bits(monkeypatch):
    results = []
    for way in ("dlpack", "python"):
        monkeypatch.setenv("CAME_LENDER", way)
        torch.manual_seed(1)
        params = made(torch.float32)
        optimizer = came_optim.CAME(params, lr=1e-2)
        for _ in range(5):
            for p in params:
                p.grad = torch.randn(p.shape)
            optimizer.step()
        assert (optimizer._bindings[0]._borrower is None) == (way == "python")
        results.append(params)
    assert all(torch.equal(p, q) for p, q in zip(*results))


def test_dlpack_is_refused_where_torch_has_none(monkeypatch):
    monkeypatch.setattr(binding, "lender", lambda: None)
    came_optim.AdamW(made(torch.float32)).step()
    monkeypatch.setenv("CAME_LENDER", "dlpack")
    with pytest.raises(RuntimeError, match="CAME_LENDER: 'dlpack' given, which takes PyTorch 2.10 and Python 3.10"):
        came_optim.AdamW(made(torch.float32)).step()


def test_storages_that_die_are_asked_for_through_their_tensors(monkeypatch):
    """As of a torch that makes another object for each who asks."""
    monkeypatch.setattr(Storages, "can_be_watched", lambda self: False)
    params = made(torch.float32)
    optimizer = came_optim.AdamW(params)
    optimizer.step()
    bound = optimizer._bindings
    optimizer.step()
    assert optimizer._bindings is bound
    optimizer.state[params[3]]["exp_avg"].untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="state exp_avg of parameter 3 .*a storage of 0 bytes"):
        optimizer.step()
