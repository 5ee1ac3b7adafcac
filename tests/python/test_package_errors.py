"""Bad input: what is refused, and that the message names the argument, what was given and what was expected."""

import sys
import types

import pytest
import torch
from package import OPTIMIZERS, make, parameters, run, set_gradients
from torch import nn
from torch._subclasses import FakeTensorMode

import came_optim
from came_optim import native


def weight():
    return [nn.Parameter(torch.ones(2, 3))]


@pytest.mark.parametrize(
    "cls, arguments, error, message",
    [
        (came_optim.CAME, {"lr": -1.0}, ValueError, "Invalid learning rate: -1.0"),
        (came_optim.CAME, {"lr": float("nan")}, ValueError, "Invalid learning rate: nan"),
        (came_optim.CAME, {"lr": "fast"}, TypeError, "lr: 'fast' \\(str\\) given, expected a number"),
        (came_optim.CAME, {"lr": None}, TypeError, "lr: None"),
        (came_optim.CAME, {"lr": torch.ones(2)}, ValueError, "Tensor lr must be 1-element"),
        (came_optim.CAME, {"betas": (0.9, 1.5, 0.9)}, ValueError, "betas\\[1\\] is 1.5, expected a number in \\[0, 1\\)"),
        (came_optim.CAME, {"betas": (0.9,)}, ValueError, "betas: \\(0.9,\\) given, expected 3 numbers, or 2: beta3 is"),
        (came_optim.CAME, {"betas": [0.9] * 4}, ValueError, "betas: .* given, expected 3 numbers"),
        (came_optim.CAME, {"betas": (0.9, 0.999), "beta2": 0.99}, ValueError, "beta2=0.99 given together with betas=.* write betas=\\(0.9, 0.99, 0.9999\\)"),
        (came_optim.CAME, {"beta2": 1.5}, ValueError, "betas\\[1\\] is 1.5, .*betas\\[1\\] is beta2"),
        (came_optim.CAME, {"eps": (1e-30, 1e-16, 1.0)}, ValueError, "eps: .* given, expected 2 numbers, or eps1 alone"),
        (came_optim.CAME, {"weight_decay": None}, TypeError, "weight_decay: None \\(NoneType\\) given, expected a number"),
        (came_optim.AdamW, {"betas": (0.9, 0.99, 0.999)}, ValueError, "betas: .* given, expected 2 numbers$"),
        (came_optim.Adafactor, {"eps": "1, 2, 3"}, ValueError, "eps: '1, 2, 3' given, expected 2 numbers, or eps1 alone"),
        (came_optim.CAME, {"betas": 0.9}, ValueError, "betas: 0.9 given"),
        (came_optim.CAME, {"betas": (0.9, "b", 0.9)}, TypeError, "betas\\[1\\]: 'b' \\(str\\) given, expected a number"),
        (came_optim.CAME, {"eps": (0.0, 1e-16)}, ValueError, "eps\\[0\\] is 0, expected a finite number > 0"),
        (came_optim.CAME, {"clip_threshold": 0}, ValueError, "clip_threshold is 0, expected a number > 0"),
        (came_optim.CAME, {"weight_decay": -0.1}, ValueError, "weight_decay is -0.1, expected a finite number >= 0"),
        (came_optim.CAME, {"max_grad_norm": -1}, ValueError, "max_grad_norm is -1"),
        (came_optim.CAME, {"view": "rows"}, ValueError, "view: 'rows' given, expected one of auto, fold, last_two"),
        (came_optim.CAME, {"momentum_dtype": "int2"}, ValueError, "momentum_dtype: 'int2' given, expected one of"),
        (came_optim.CAME, {"momentum_dtype": torch.int32}, ValueError, "momentum_dtype: 'int32' given"),
        (came_optim.CAME, {"seed": -1}, ValueError, "seed: -1 given, expected a whole number"),
        (came_optim.CAME, {"seed": 0.5}, TypeError, "seed: 0.5 given"),
        (came_optim.CAME, {"cautious": "yes"}, TypeError, "cautious: 'yes' given, expected True or False"),
        (came_optim.Adam, {"amsgrad": True}, ValueError, "amsgrad: True given, expected False"),
        (came_optim.Adam, {"betas": (1.0, 0.9)}, ValueError, "betas\\[0\\] is 1, expected a number in"),
        (came_optim.AdamW, {"eps": -1e-8}, ValueError, "eps is -1e-08, expected a finite number >= 0"),
        (came_optim.SM3, {"beta1": 0.0, "cautious": True}, ValueError, "cautious is set with beta1 0"),
        (came_optim.Adafactor, {"lr": 1e-3, "relative_step": True}, ValueError, "Cannot combine manual `lr` \\(0.001\\) and `relative_step=True`"),
        (came_optim.Adafactor, {"relative_step": False}, ValueError, "lr: None given"),
        (came_optim.Adafactor, {"decay_rate": 0.8}, ValueError, "decay_rate is 0.8, expected a finite number <= 0"),
        (
            came_optim.Adafactor,
            {"lr": 1e-3, "relative_step": False, "warmup_init": True},
            ValueError,
            "`warmup_init=True` requires `relative_step=True`",
        ),
    ],
)
def test_arguments(cls, arguments, error, message):
    with pytest.raises(error, match=message):
        cls(weight(), **arguments)


def test_adafactor_takes_its_rate_from_the_step_unless_one_is_given():
    optimizer = came_optim.Adafactor([{"params": weight()}, {"params": weight(), "lr": 1e-3}])
    assert [group["relative_step"] for group in optimizer.param_groups] == [True, False]


def test_an_option_of_a_group_is_checked_when_it_is_added_and_when_it_changes():
    optimizer = came_optim.CAME(weight())
    with pytest.raises(ValueError, match="weight_decay is -1"):
        optimizer.add_param_group({"params": weight(), "weight_decay": -1.0})
    assert len(optimizer.param_groups) == 1
    run(optimizer, optimizer.param_groups[0]["params"], 1)
    optimizer.param_groups[0]["betas"] = (2.0, 0.9, 0.9)
    with pytest.raises(ValueError, match="betas\\[0\\] is 2"):
        run(optimizer, optimizer.param_groups[0]["params"], 1)


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_forbidden_combinations_raise_as_in_torch(algorithm):
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        make(algorithm, weight(), fused=True, foreach=True)
    with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
        make(algorithm, weight(), fused=True, differentiable=True)
    with pytest.raises(RuntimeError, match="`capturable` needs the kernels"):
        make(algorithm, weight(), fused=False, capturable=True)
    if algorithm != "adafactor":
        with pytest.raises(ValueError, match="lr as a Tensor is not supported for capturable=False and foreach=True"):
            make(algorithm, weight(), lr=torch.tensor(1e-3), foreach=True)


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
@pytest.mark.parametrize("dtype, device", [(torch.float32, "meta"), (torch.int32, "cpu")])
def test_fused_is_for_floats_in_memory_once_there_is_something_to_step(algorithm, dtype, device):
    """At the first step with a gradient, as in torch: a model on the meta device gets its memory after the optimizer is made."""
    param = nn.Parameter(torch.ones(2, dtype=dtype, device=device), requires_grad=False)
    optimizer = make(algorithm, [param], fused=True)
    optimizer.step()
    param.grad = torch.ones_like(param)
    with pytest.raises(RuntimeError, match=f"`fused=True` requires all the params to be floating point Tensors .* {dtype} on {device}"):
        optimizer.step()
    assert not optimizer.state


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_a_tensor_rate_of_two_is_refused_before_parameters_are_looked_at(algorithm):
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        make(algorithm, None, lr=torch.tensor([0.001, 0.001]))


@pytest.mark.parametrize("fused", [None, False])
def test_options_are_read_when_there_is_a_gradient(fused):
    """torch's OneCycleLR may set any momentum; a step without gradients reads none."""
    params = weight()
    optimizer = came_optim.Adam(params, fused=fused)
    optimizer.param_groups[0]["betas"] = (22.0, 0.999)
    optimizer.step()
    params[0].grad = torch.ones(2, 3)
    with pytest.raises(ValueError, match="betas\\[0\\] is 22"):
        optimizer.step()


def test_what_cannot_be_differentiated_is_refused():
    p = torch.ones(2, 2, requires_grad=True).clone()
    p.retain_grad()
    p.grad = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="`differentiable` does not support `momentum_dtype`"):
        came_optim.CAME([p], differentiable=True, momentum_dtype="int8").step()


@pytest.mark.parametrize("fused", [True, False])
def test_sparse_gradients(fused):
    params = weight()
    params[0].grad = torch.ones(2, 3).to_sparse()
    with pytest.raises(RuntimeError, match="CAME does not support sparse gradients"):
        came_optim.CAME(params, fused=fused).step()
    run(came_optim.CAME(params, fused=fused), params, 1)


def test_sparse_gradients_after_dense_ones():
    params = weight()
    optimizer = came_optim.CAME(params)
    run(optimizer, params, 1)
    params[0].grad = torch.ones(2, 3).to_sparse()
    with pytest.raises(RuntimeError, match="CAME does not support sparse gradients"):
        optimizer.step()


def test_complex_parameters():
    with pytest.raises(TypeError, match="CAME: parameter 0 is torch.complex64, expected real numbers"):
        came_optim.CAME([nn.Parameter(torch.ones(2, dtype=torch.complex64))])


def test_float8_parameters():
    p = nn.Parameter(torch.ones(2, 2).to(torch.float8_e4m3fn), requires_grad=False)
    p.grad = torch.ones(2, 2).to(torch.float8_e4m3fn)
    with pytest.raises(TypeError, match="parameter 0: its parameter is torch.float8_e4m3fn, expected float64"):
        came_optim.CAME([p]).step()


class Wrapper(torch.Tensor):
    """Two tensors behind one shape."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = [a.inner if isinstance(a, cls) else a for a in args]
        return function(*plain, **(kwargs or {}))


def fake():
    with FakeTensorMode():
        return torch.ones(3, 4)


KINDS = {
    "a Wrapper, a wrapper around other tensors that has no memory": lambda: Wrapper(torch.ones(3, 4)),
    "a FakeTensor, which has a shape and no numbers": fake,
    "of layout torch._mkldnn": lambda: torch.ones(3, 4).to_mkldnn(),
    "of layout torch.sparse_coo": lambda: torch.ones(3, 4).to_sparse(),
}


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_without_memory_of_their_own_are_refused_by_kind(kind, fused):
    with pytest.raises(TypeError, match=f"CAME: parameter 1 is {kind}.*expected a plain dense tensor"):
        came_optim.CAME([nn.Parameter(torch.ones(3, 4)), KINDS[kind]()], fused=fused)
    named = [("weight", nn.Parameter(torch.ones(3, 4)))]
    optimizer = came_optim.CAME(named, fused=fused)
    with pytest.raises(TypeError, match=f"CAME: parameter 1 'odd' is {kind}"):
        optimizer.add_param_group({"params": [("odd", KINDS[kind]())]})
    assert len(optimizer.param_groups) == 1


def test_messages_name_the_field_of_an_argument():
    plan = native.Plan([native.options("adamw")], [native.Spec((3,), "float32")])
    call = native.Call(plan)
    for role in ("params", "grads"):
        call = native.Call(plan)
        getattr(call, role).tensors[0].ndim = 99
        call.params.data, call.grads.data = [64], [64]
        with pytest.raises(ValueError, match=f"{role[:-1]}\\.ndim is 99, expected 0 to 64"):
            call.run()


class FlatParameter(nn.Parameter):
    """Named like FSDP1's."""


@pytest.mark.parametrize(
    "flat",
    [
        lambda: FlatParameter(torch.ones(6)),
        lambda: marked("_fsdp_flattened", True),
        lambda: marked("ds_id", 3),
    ],
)
def test_flat_parameters_are_refused_with_advice(flat):
    for algorithm in ("came", "adafactor", "lamb", "sm3"):
        with pytest.raises(RuntimeError, match="flat piece of several .*use data parallelism .*came_optim.AdamW"):
            make(algorithm, [flat()])
    came_optim.AdamW([flat()])  # to it a piece is as good as the whole


def marked(name, value):
    p = nn.Parameter(torch.ones(6))
    setattr(p, name, value)
    return p


def test_a_group_that_a_wrapper_flattens_is_refused():
    """As DeepSpeed's ZeRO 1 and 2 do to an optimizer they are given."""
    params = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))]
    optimizer = came_optim.CAME(params)
    flat = nn.Parameter(torch.ones(9))
    flat.grad = torch.ones(9)
    optimizer.param_groups[0]["params"] = [flat]
    with pytest.raises(RuntimeError, match="1-D tensors in place of a group's matrices"):
        optimizer.step()


def test_a_norm_over_two_places_is_refused():
    params = parameters(torch.float32)
    optimizer = came_optim.CAME([{"params": params[:2]}, {"params": params[2:], "fused": False}], max_grad_norm=1.0)
    set_gradients(params, 0)
    with pytest.raises(ValueError, match="max_grad_norm: the norm is over all parameters"):
        optimizer.step()


def test_without_torch_the_names_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [n for n in sys.modules if n.startswith("came_optim.") and n not in ("came_optim.native", "came_optim.library")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(came_optim.__dict__, "optimizers", raising=False)
    with pytest.raises(ImportError, match="came_optim.CAME needs PyTorch 2.4 or later: pip install torch"):
        came_optim.CAME  # noqa: B018
    assert isinstance(came_optim, types.ModuleType)
    with pytest.raises(AttributeError, match="has no attribute 'Lion'"):
        came_optim.Lion  # noqa: B018
