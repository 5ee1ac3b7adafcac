"""Tensors read in C: by handles, where torch has them, exactly what DLPack says, and what does not fit is left to others."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import came_optim
from came_optim import binding
from came_optim.handles import handles
from came_optim.lender import Borrower, Lender

SHAPES = [(), (1,), (5,), (3, 4), (1, 7), (0, 3), (2, 3, 4), (2, 1, 3, 1)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

if binding.lender() is None:
    pytest.skip("torch has no exchange interface before 2.10", allow_module_level=True)


def lenders():
    return {"handles": Lender.of(torch.Tensor, handles()), "dlpack": Lender.of(torch.Tensor)}


def borrower(params, kind="handles"):
    optimizer = came_optim.AdamW(params)
    optimizer.step()
    call = optimizer._bindings[0].call
    return Borrower.of(lenders()[kind], call, params), call


def made(dtype):
    params = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]
    for p in params:
        p.grad = torch.randn(p.shape).to(dtype)
    return params


def test_this_torch_has_handles():
    assert handles() is not None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["handles", "dlpack"])
def test_addresses_are_those_of_torch(kind, dtype):
    params = made(dtype)
    of, call = borrower(params, kind)
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
@pytest.mark.parametrize("kind", ["handles", "dlpack"])
def test_what_does_not_fit_is_noticed(kind, change, capfd):
    p = nn.Parameter(torch.randn(3, 4))
    p.grad = torch.randn(3, 4)
    of, _ = borrower([p], kind)
    assert takes(of, [p])
    assert not takes(of, [nn.Parameter(change(p.data))])
    assert capfd.readouterr().err == ""  # torch logs what its functions refuse


@pytest.mark.parametrize("change", ["other strides", "off its alignment", "a sparse layout"])
@pytest.mark.parametrize("kind", ["handles", "dlpack"])
def test_gradients_that_do_not_fit_are_noticed(kind, change, capfd):
    p = nn.Parameter(torch.randn(3, 4))
    p.grad = torch.randn(3, 4)
    of, _ = borrower([p], kind)
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


def test_steps_by_handles_are_steps_by_dlpack(monkeypatch):
    results = []
    for kind in ("handles", "dlpack"):
        monkeypatch.setattr(binding, "lender", lambda: lenders()[kind])
        torch.manual_seed(1)
        params = made(torch.float32)
        optimizer = came_optim.CAME(params, lr=1e-2)
        for _ in range(5):
            for p in params:
                p.grad = torch.randn(p.shape)
            optimizer.step()
        results.append(params)
    assert all(torch.equal(p, q) for p, q in zip(*results))
