"""Tensors read in C: by handles, where torch has them, exactly what DLPack says, and what does not fit is left to others."""

import pytest
import torch
from torch import nn

import came
from came import binding
from came.handles import PLAIN, handles
from came.lender import Borrower, Lender

SHAPES = [(), (1,), (5,), (3, 4), (1, 7), (0, 3), (2, 3, 4), (2, 1, 3, 1)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

if binding.lender() is None:
    pytest.skip("torch has no exchange interface before 2.10", allow_module_level=True)


def lenders():
    return {"handles": Lender.of(torch.Tensor, handles(), PLAIN), "dlpack": Lender.of(torch.Tensor)}


def borrower(params, kind="handles"):
    optimizer = came.AdamW(params)
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


def test_wrappers_are_read_as_a_whole():
    """A class of one's own may hold its memory elsewhere."""

    class Own(nn.Parameter):
        pass

    p = Own(torch.randn(3, 4))
    p.grad = torch.randn(3, 4)
    for params, fast in (([p], False), ([nn.Parameter(torch.randn(2))], True)):
        params[0].grad = torch.randn(params[0].shape)
        of, _ = borrower(params)
        framework, _ = of._references
        assert (framework._obj.handles is not None) == fast


def test_steps_by_handles_are_steps_by_dlpack(monkeypatch):
    results = []
    for kind in ("handles", "dlpack"):
        monkeypatch.setattr(binding, "lender", lambda: lenders()[kind])
        torch.manual_seed(1)
        params = made(torch.float32)
        optimizer = came.CAME(params, lr=1e-2)
        for _ in range(5):
            for p in params:
                p.grad = torch.randn(p.shape)
            optimizer.step()
        results.append(params)
    assert all(torch.equal(p, q) for p, q in zip(*results))
