"""What the loop computes where f32 has no room, and what it checks before it writes."""

import math

import pytest
import torch
from package import OPTIMIZERS, make, parameters, raw, run, set_gradients
from torch import nn

import came_optim
from came_optim.loop.subject import blend

SMALL_BETAS = [0.0, 1e-10, 0.1, 0.3, 0.499]


def with_betas(algorithm, beta):
    """Of every average; those that must be positive for there to be a momentum are."""
    if algorithm == "sm3":
        return {"beta1": max(beta, 1e-10)}
    if algorithm == "adafactor":
        return {"beta1": max(beta, 1e-10), "decay_rate": None, "beta2": beta}
    # CAME's instability is the difference of update and momentum, of which a tiny beta leaves rounding alone.
    return {"betas": (max(beta, 0.1), beta, beta) if algorithm == "came" else (beta, beta)}


def steps_of(algorithm, dtype, magnitudes, fused=False, **options):
    generator = torch.Generator().manual_seed(3)
    params = [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in [(4, 6), (5,)]]
    optimizer = make(algorithm, params, fused=fused, **options)
    for magnitude in magnitudes:
        for p in params:
            p.grad = (torch.randn(p.shape, generator=generator, dtype=torch.float64) * magnitude).to(dtype)
        optimizer.step()
    return params, optimizer


# ---- averages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", SMALL_BETAS)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_averages_forget_what_has_no_weight(algorithm, beta):
    """Large gradients, then small ones: f32 against f64, state by state.

    Each average has two products and two sums, each right to 2**-24 of the largest of beta old and new; 64 of them for the
    squares, means and roots that went before.
    """
    options = with_betas(algorithm, beta)
    narrow, wide = (steps_of(algorithm, dtype, [1e4, 1e-4], **options) for dtype in (torch.float32, torch.float64))
    for p, q in zip(narrow[0], wide[0]):
        for name, value in wide[1].state[q].items():
            have = narrow[1].state[p][name].double()
            assert torch.isfinite(have).all(), name
            if not name.startswith("accumulator"):
                torch.testing.assert_close(have, value, rtol=64 * 2.0**-24, atol=64 * 2.0**-24 * value.abs().max().item(), msg=name)


@pytest.mark.parametrize("betas", [(0.0, 0.99), (0.0, 0.0), (0.3, 0.4), (0.9, 0.0)])
@pytest.mark.parametrize("cls", ["Adam", "AdamW"])
def test_adam_with_small_betas_is_that_of_torch(cls, betas):
    """Twice f32 arithmetic of a few roundings a step; a step is a tenth or so."""
    results = []
    for made in (getattr(came_optim, cls), getattr(torch.optim, cls)):
        p = nn.Parameter(torch.ones(4, 6))
        optimizer = made([p], lr=1e-3, betas=betas, **({"fused": False} if made is getattr(came_optim, cls) else {}))
        for magnitude in (1e4, 1e-4, 1.0):
            p.grad = torch.linspace(-1, 1, 24).reshape(4, 6) * magnitude
            optimizer.step()
        results.append((p.detach(), optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7 * theirs.abs().max().item())


def test_blends_begin_with_the_larger_weight():
    old, new = torch.tensor([1e8, 3e38, 0.0]), torch.tensor([1e-8, 1.0, 5.0])
    assert torch.equal(blend(old, new, 0.0), new)
    for beta in (0.25, 0.5, 0.75):
        expected = beta * old.double() + (1 - beta) * new.double()
        torch.testing.assert_close(blend(old, new, beta).double(), expected, rtol=2.0**-22, atol=0)


# ---- signs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, 2.0**40])
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_cautious_compares_signs(algorithm, scale):
    """Gradients so small that a product with the momentum is zero in f32: all signs agree at the first step, nothing is dropped."""
    moves = []
    for cautious in (False, True):
        p = nn.Parameter(torch.ones(4, 6))
        start = p.detach().clone()
        optimizer = make(algorithm, [p], fused=False, cautious=cautious, weight_decay=0.0)
        p.grad = torch.where(torch.arange(24).reshape(4, 6) % 2 == 0, 1e-24, -1e-24)
        if scale:
            optimizer.grad_scale = torch.tensor(scale)
        optimizer.step()
        moves.append(p.detach() - start)
    assert torch.equal(*moves)


def test_a_gradient_that_its_factor_makes_zero_keeps_its_sign():
    """The momentum is as it was, its sign that of the gradient: 1e-30 / 2**60 is zero in f32."""
    p = nn.Parameter(torch.ones(8))
    optimizer = came_optim.AdamW([p], fused=False, cautious=True, weight_decay=0.0)
    p.grad = torch.ones(8)
    optimizer.step()
    for sign, moves in ((1.0, True), (-1.0, False), (0.0, False), (math.nan, False)):
        optimizer.state[p]["exp_avg"].fill_(0.1)
        optimizer.state[p]["exp_avg_sq"].fill_(0.1)
        before = p.detach().clone()
        p.grad = torch.full((8,), sign * 1e-30)
        optimizer.grad_scale = torch.tensor(2.0**60)
        optimizer.step()
        if not math.isnan(sign):
            assert (not torch.equal(before, p)) == moves, sign


def test_with_l2_the_gradient_has_the_sign_of_the_sum():
    p = nn.Parameter(torch.full((4,), 100.0))
    optimizer = came_optim.Adam([p], lr=0.1, fused=False, cautious=True, weight_decay=0.1)
    p.grad = torch.full((4,), -1.0)  # beside 10 from the decay
    optimizer.step()
    assert (p < 100.0).all()


# ---- lengths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["came", "adafactor"])
def test_squares_that_underflow_hide_no_update(algorithm):
    """Gradients of 1e-25 and one of 1: the update keeps to its threshold, as in f64.  Averages of 16 numbers, of 16 of those and the
    length of 256 take some fifty additions, of which each may round by 2**-24."""
    lengths = []
    for dtype in (torch.float32, torch.float64):
        p = nn.Parameter(torch.zeros(16, 16, dtype=dtype))
        options = {"lr": 1.0} if algorithm == "came" else {"lr": 1.0, "scale_parameter": False, "beta1": None, "relative_step": False}
        optimizer = make(algorithm, [p], fused=False, **options)
        p.grad = torch.full((16, 16), 1e-25, dtype=dtype)
        p.grad[0, 0] = 1.0
        optimizer.step()
        lengths.append(p.detach().double().square().mean().sqrt().item())
    assert lengths[0] == pytest.approx(lengths[1], rel=50 * 2.0**-24)
    assert algorithm == "came" or lengths[0] <= 1 + 50 * 2.0**-24


@pytest.mark.parametrize("algorithm", ["came", "adafactor"])
def test_rows_that_sleep_beside_huge_ones_stay_finite(algorithm):
    """sqrt(mean(r) / (r_i c_j)) is 1e40 there: more than f32 holds, times a gradient of zero."""
    p = nn.Parameter(torch.ones(8, 8))
    optimizer = make(algorithm, [p], fused=False)
    p.grad = torch.zeros(8, 8)
    p.grad[:4, :4] = 1e12
    optimizer.step()
    assert torch.isfinite(p).all() and torch.equal(p[4:].detach(), torch.ones(4, 8))


# ---- before anything is written ----------------------------------------------------------------------


def two_groups(**options):
    params = parameters(torch.float32, [(4, 6), (5,), (2, 3), (7,)])
    optimizer = came_optim.AdamW([{"params": params[:2]}, {"params": params[2:]}], fused=False, **options)
    run(optimizer, params, 2)
    set_gradients(params, 2)
    return params, optimizer


def set_group(**options):
    return lambda optimizer, params: optimizer.param_groups[1].update(options)


def set_counter(count):
    return lambda optimizer, params: optimizer.state[params[3]]["step"].fill_(count)


def set_scale(scale):
    return lambda optimizer, params: setattr(optimizer, "grad_scale", torch.tensor(scale))


BAD = [
    (set_group(lr=math.nan), ValueError, "lr of group 1 is nan, expected a finite number >= 0"),
    (set_group(lr=-1.0), ValueError, "lr of group 1 is -1.0"),
    (set_group(lr=torch.tensor(math.inf)), ValueError, "lr of group 1 is inf"),
    (set_counter(math.nan), ValueError, "step of parameter 3 is nan, expected a whole number from 0 to 9007199254740991"),
    (set_counter(1.5), ValueError, "step of parameter 3 is 1.5"),
    (set_counter(-1.0), ValueError, "step of parameter 3 is -1.0"),
    (set_counter(2.0**53), ValueError, "step of parameter 3 is 9007199254740992.0"),
    (set_scale(0.0), ValueError, "grad_scale is 0.0, expected a finite number > 0"),
    (set_scale(math.nan), ValueError, "grad_scale is nan"),
    (set_scale(math.inf), ValueError, "grad_scale is inf"),
    (set_group(differentiable=True, stochastic_rounding=True), RuntimeError, "does not support `stochastic_rounding`"),
    (set_group(betas=(2.0, 0.9)), ValueError, r"betas\[0\] is 2"),
]


@pytest.mark.parametrize("change, error, message", BAD, ids=[message[:24] for _, _, message in BAD])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_loop_checks_everything_before_it_writes(change, error, message, mixed):
    """Also where kernels step the other group."""
    params, optimizer = two_groups()
    if mixed:
        optimizer.param_groups[0]["fused"] = True
        optimizer.step()
    change(optimizer, params)
    before = [raw(t) for t in (*params, *(v for s in optimizer.state.values() for v in s.values()))]
    with pytest.raises(error, match=message):
        optimizer.step()
    assert [raw(t) for t in (*params, *(v for s in optimizer.state.values() for v in s.values()))] == before


def test_a_skipped_step_needs_no_scale():
    params, optimizer = two_groups()
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(math.inf), torch.tensor(1.0)
    before = [raw(p) for p in params]
    optimizer.step()
    assert [raw(p) for p in params] == before


def test_a_norm_over_no_gradient_is_nothing():
    params, optimizer = two_groups(max_grad_norm=1.0)
    for p in params:
        p.grad = None
    optimizer.step()
    assert optimizer.state[params[0]]["step"] == 2


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("cls", ["Adam", "AdamW"])
def test_eps_may_be_zero_as_in_torch(cls, fused):
    sides = []
    for made, options in ((getattr(came_optim, cls), {"fused": fused}), (getattr(torch.optim, cls), {})):
        p = nn.Parameter(torch.ones(4))
        p.grad = torch.tensor([1.0, -2.0, 1e-20, 3.0])
        made([p], lr=0.1, eps=0, **options).step()
        sides.append(p.detach())
    torch.testing.assert_close(*sides, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fused", [True, False])
def test_a_parameter_that_is_nan_does_not_scale_the_rest(fused):
    """max(eps2, RMS(θ)) is eps2 where the RMS is NaN, as in transformers: the finite elements move on."""
    p = nn.Parameter(torch.tensor([math.nan, 1.0]))
    optimizer = make("adafactor", [p], fused=fused, lr=1.0, beta1=None, scale_parameter=True, eps=(1e-30, 1e-3), clip_threshold=1e9)
    p.grad = torch.tensor([0.0, 1.0])
    optimizer.step()
    assert p[0].isnan()
    assert p[1].item() == pytest.approx(1 - 1e-3, abs=2.0**-23)
