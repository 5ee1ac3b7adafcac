"""The kernels equal the loop: every optimizer, option, type and kind of tensor.

Both do the same arithmetic in the same type, but add up in other orders: package.UNITS.  The parameter is rounded at each step
besides.  Results in 16 bits or codes differ only where such a difference meets the border between two.
"""

import pytest
import torch
from package import EPSILON, MOMENTA, OPTIMIZERS, SHAPES, UNITS, make, parameters, run, same, set_gradients

import came_optim

STEPS = 20
NARROW = (torch.bfloat16, torch.float16)


def pair(algorithm, dtype, steps=STEPS, prepare=lambda params: params, **options):
    """The kernels' optimizer and the loop's after some steps, with their parameters and where these began."""
    sides = [prepare(parameters(dtype)) for _ in range(2)]
    start = [p.detach().double().clone() for p in sides[0]]
    optimizers = [make(algorithm, sides[0], fused=True, **options), make(algorithm, sides[1], fused=False, **options)]
    for optimizer, params in zip(optimizers, sides):
        run(optimizer, params, steps)
    return optimizers, sides, start


def compare(algorithm, dtype, **options):
    optimizers, sides, start = pair(algorithm, dtype, **options)
    arithmetic = EPSILON[torch.float64 if dtype == torch.float64 else torch.float32]
    differing = count = 0
    for p, q, origin in zip(*sides, start):
        if p.numel() == 0:
            continue
        moved, largest = (q.double() - origin).abs().max(), max(q.abs().max(), origin.abs().max())
        difference = (p.double() - q.double()).abs()
        if dtype in NARROW:
            assert difference.max() <= 2 * EPSILON[dtype] * largest
        elif options.get("momentum_dtype") is None and not options.get("second_moment_dtype"):
            assert difference.max() <= arithmetic * (UNITS * moved + STEPS * largest), tuple(p.shape)
        differing += int((p != q).sum())
        count += p.numel()
    # One border in 2**-8 is met by differences of 2**-21, a few units: at each of so many steps.
    assert dtype not in NARROW or differing <= STEPS * 2.0**-13 * count + 1
    # The instability is taken of the stored momentum: one that is rounded the other way is 2**-8 apart.
    instability = 2.0**-7 if options.get("momentum_dtype") else 32 * arithmetic
    compare_states(*(optimizer.state_dict()["state"] for optimizer in optimizers), 32 * arithmetic, instability)


def compare_states(ours, theirs, statistics, instability):
    assert ours.keys() == theirs.keys()
    codes = [0, 0]
    for key, slot in ours.items():
        assert slot.keys() == theirs[key].keys()
        for name, value in slot.items():
            other = theirs[key][name]
            assert value.dtype == other.dtype and value.shape == other.shape, name
            if value.dtype in (torch.int8, torch.uint8):
                codes[0] += int((value != other).sum())
                codes[1] += value.numel()
            elif value.numel() and name != "exp_avg" and not name.endswith("scale"):
                bound = instability if "res" in name else statistics
                assert (value - other).abs().max() <= bound * other.abs().max(), name
    assert codes[0] <= codes[1] / 100, "codes"


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_every_type(algorithm, dtype):
    compare(algorithm, dtype, weight_decay=0.1)


@pytest.mark.parametrize("momentum_dtype", MOMENTA[1:])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_every_momentum(algorithm, momentum_dtype):
    compare(algorithm, torch.float32, momentum_dtype=momentum_dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_stochastic_rounding_draws_the_same_numbers(algorithm, dtype):
    compare(algorithm, dtype, stochastic_rounding=True, momentum_dtype="bf16", seed=7)


@pytest.mark.parametrize("options", [{"cautious": True}, {"maximize": True}, {"max_grad_norm": 1.0}], ids=str)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_every_shared_option(algorithm, options):
    compare(algorithm, torch.float64, **options)


@pytest.mark.parametrize(
    "algorithm, options",
    [
        ("came", {"bias_correction": False}),
        ("came", {"confidence_1d": True}),
        ("came", {"confidence_1d": True, "bias_correction": False, "cautious": True}),
        ("came", {"clip_threshold": 0.1}),
        ("came", {"view": "last_two"}),
        ("came", {"view": "fold"}),
        ("adafactor", {"beta1": None}),
        ("adafactor", {"warmup_init": True}),
        ("adafactor", {"lr": 1e-3, "relative_step": False, "scale_parameter": False, "lr_in_momentum": False}),
        ("adafactor", {"decay_rate": None, "beta2": 0.9}),
        ("adam", {"second_moment_dtype": "int8"}),
        ("adamw", {"second_moment_dtype": "int8", "momentum_dtype": "int8"}),
        ("lamb", {"bias_correction": False}),
        ("lamb", {"second_moment_dtype": "int8", "momentum_dtype": "int4"}),
        ("sm3", {"beta1": 0.0}),
        ("sm3", {"view": "last_two"}),
    ],
    ids=str,
)
def test_every_option_of_its_own(algorithm, options):
    compare(algorithm, torch.float64, **options)


@pytest.mark.parametrize("warmup_init", [True, False])
def test_the_relative_step_falls_in_the_end(warmup_init):
    """Beyond 10000 steps 1/sqrt(step) is the smaller one."""
    sides = [parameters(torch.float64) for _ in range(2)]
    for params, fused in zip(sides, (True, False)):
        optimizer = came_optim.Adafactor(params, fused=fused, warmup_init=warmup_init)
        run(optimizer, params, 1)
        for slot in optimizer.state.values():
            slot["step"].fill_(40000)
        run(optimizer, params, 1, first=1)
    assert all(torch.allclose(p, q, rtol=1e-13, atol=1e-15) for p, q in zip(*sides))


def strided(params):
    """The same numbers in memory of another order: channels last, transposed, every second column."""
    made = []
    for p in params:
        x = p.detach()
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        elif x.ndim == 2:
            x = x.t().contiguous().t() if x.shape[0] % 2 else torch.stack((x, x), -1)[..., 0]
        made.append(torch.nn.Parameter(x))
    return made


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_strided_parameters_step_as_contiguous_ones(algorithm):
    """Bit for bit: rows and columns are those of the logical tensor, whatever the order of its memory."""
    dense, loose = parameters(torch.float32), strided(parameters(torch.float32))
    assert sum(not p.is_contiguous() for p in loose) >= 3
    optimizers = make(algorithm, dense), make(algorithm, loose)
    for step in range(5):
        for optimizer, params in zip(optimizers, (dense, loose)):
            set_gradients(params, step)
            optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(dense, loose))
    assert any(not p.is_contiguous() for p in loose)


def test_strided_gradients_step_as_contiguous_ones():
    dense, loose = parameters(torch.float32), parameters(torch.float32)
    optimizers = came_optim.CAME(dense), came_optim.CAME(loose)
    for step in range(3):
        for params in (dense, loose):
            set_gradients(params, step)
        for p in loose:
            if p.ndim == 2:
                p.grad = p.grad.t().contiguous().t()
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(dense, loose))


def test_gradients_of_another_type():
    """torch 2.10 lets a parameter have gradients of another type; so do the kernels."""
    if not hasattr(torch.Tensor, "grad_dtype"):
        return
    sides = [parameters(torch.bfloat16, SHAPES[:4]) for _ in range(2)]
    for fused, params in zip((True, False), sides):
        optimizer = came_optim.CAME(params, lr=1e-2, fused=fused)
        for step in range(4):
            generator = torch.Generator().manual_seed(step)
            for p in params:
                p.grad = None
                p.grad_dtype = torch.float32 if step % 2 else torch.bfloat16
                p.grad = torch.randn(p.shape, generator=generator).to(p.grad_dtype)
            optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(*sides))


HYPERPARAMETERS = {
    "came": {"betas": (0.9, 0.99, 0.999), "eps": (1e-3, 1e-2), "clip_threshold": 0.1, "weight_decay": 0.1},
    "adafactor": {"beta1": 0.9, "decay_rate": -0.8, "eps": (1e-3, 1e-3), "clip_threshold": 0.1, "weight_decay": 0.1},
    "adam": {"betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.0},
    "adamw": {"betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.0},
    "lamb": {"betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.1},
    "sm3": {"beta1": 0.9, "eps": 1e-3, "weight_decay": 0.1},
}


@pytest.mark.parametrize("algorithm, name", [(algorithm, name) for algorithm, names in HYPERPARAMETERS.items() for name in names])
def test_loop_is_differentiable_by_every_number(algorithm, name):
    """The derivative of two steps by a hyperparameter that is a tensor, against a difference."""
    value = HYPERPARAMETERS[algorithm][name]
    several = isinstance(value, tuple)
    point = torch.tensor(value if several else [value], dtype=torch.float64)

    def stepped(at):
        theta = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_().clone()
        given = tuple(at.unbind()) if several else at[0]
        optimizer = make(algorithm, [theta], **{"lr": 0.1, **HYPERPARAMETERS[algorithm], name: given}, differentiable=True)
        for step in range(2):
            theta.grad = torch.linspace(-1, 2 + step, 6, dtype=torch.float64).reshape(2, 3)
            optimizer.step()
        return theta.square().sum()

    slopes = torch.autograd.functional.jacobian(stepped, point)
    for k, slope in enumerate(slopes):
        width = torch.zeros_like(point)
        width[k] = 1e-6 * point[k].abs().clamp(min=1e-2)
        low = point - width if name == "decay_rate" or point[k] > 0 else point  # a decay of 0 is the least there is
        high = point + width
        difference = (stepped(high.requires_grad_()) - stepped(low.clone().requires_grad_())) / (high - low)[k]
        assert slope.item() == pytest.approx(difference.item(), rel=1e-3, abs=1e-8), k


def test_a_norm_has_no_derivative():
    p = torch.ones(2, requires_grad=True).clone()
    p.grad = torch.ones(2)
    most = torch.tensor(1.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="`differentiable` does not support a `max_grad_norm` that requires grad"):
        came_optim.Adam([p], differentiable=True, max_grad_norm=most).step()


@pytest.mark.parametrize("fused", [True, False])
def test_betas_that_are_tensors_may_change_in_place(fused):
    params, fixed = parameters(torch.float32), parameters(torch.float32)
    beta, beta2 = torch.tensor(0.9), torch.tensor(0.999)
    optimizers = [came_optim.Adam(ps, betas=betas, fused=fused) for ps, betas in ((params, (beta, beta2)), (fixed, (float(beta), float(beta2))))]
    for optimizer, others, value in zip(optimizers, (params, fixed), (beta, None)):
        run(optimizer, others, 1)
        if value is None:
            optimizer.param_groups[0]["betas"] = (0.5, float(beta2))
        else:
            value.fill_(0.5)
        run(optimizer, others, 1, first=1)
    assert all(same(p, q) for p, q in zip(params, fixed))


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_loop_is_differentiable(algorithm):
    """The derivative of one step by its learning rate, against a difference."""
    options = {"lr": torch.tensor(0.01, dtype=torch.float64, requires_grad=True)}
    if algorithm == "adafactor":
        options.update(relative_step=False)

    def stepped(lr):
        theta = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_().clone()
        theta.retain_grad()
        theta.grad = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3)
        make(algorithm, [theta], differentiable=True, **{**options, "lr": lr}).step()
        return theta.sum()

    (slope,) = torch.autograd.grad(stepped(options["lr"]), options["lr"])
    width = 1e-4
    with torch.no_grad():
        rates = [options["lr"] + width, options["lr"] - width]
    high, low = (stepped(rate.requires_grad_()).item() for rate in rates)
    assert slope.item() == pytest.approx((high - low) / (2 * width), rel=1e-6)
