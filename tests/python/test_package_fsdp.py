"""What programs do around an optimizer of sharded parameters: accumulation, offload, checkpointing, mixed precision, clipping, scaling,
torch.compile."""

import came_optim
import pytest
import torch
import torch.distributed as dist
from package import make
from ranks import RankError, ranks
from sharded_models import apart, batch, loss, model, on_mesh, train, weights
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

STEPS = 20

# Sums in f64 are added up in another order, apart by some 1e-16; so few steps do not make 1e-10 of the displacement of it.
TOLERANCE = 1e-10


def sharded(net=None, **policy):
    """A model whose parameters are split over all ranks, and this rank's place."""
    net, mesh = net or model(), init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (net.up, net.convolution, net):
        fully_shard(module, mesh=mesh, **policy)
    return net, (dist.get_rank(), dist.get_world_size())


def from_one_process(net, algorithm="came", **options):
    """How far a model is from one process after as many steps."""
    plain = model()
    origin = weights(plain)
    train(plain, make(algorithm, plain.parameters(), **options), STEPS)
    ours = {name.replace("_checkpoint_wrapped_module.", ""): value for name, value in weights(net).items()}
    return apart(ours, weights(plain), origin)


# ---- gradients ---------------------------------------------------------------------------------------


def accumulate(algorithm):
    net, place = sharded()
    optimizer = make(algorithm, net.parameters())
    for step in range(STEPS):
        words, targets = (part.chunk(place[1])[place[0]] for part in batch(step))
        optimizer.zero_grad()
        for k, (w, t) in enumerate(zip(words.chunk(2), targets.chunk(2))):
            net.set_requires_gradient_sync(k == 1)
            (loss(net, w, t) / 2).backward()
        optimizer.step()
    return from_one_process(net, algorithm)


@pytest.mark.parametrize("algorithm", ["came", "adamw"])
def test_gradients_add_up_over_batches_without_exchange(algorithm):
    assert max(ranks(2)(accumulate, algorithm)) <= TOLERANCE


def offload():
    net, place = sharded(offload_policy=CPUOffloadPolicy(pin_memory=False))
    train(net, make("came", net.parameters()), STEPS, place)
    return from_one_process(net)


def test_parameters_that_are_offloaded_to_the_host():
    assert max(ranks(2)(offload)) <= TOLERANCE


def recompute():
    net = model()
    net.up = checkpoint_wrapper(net.up)
    net, place = sharded(net)
    train(net, make("came", net.parameters()), STEPS, place)
    return from_one_process(net)


def test_activations_that_are_computed_again():
    assert max(ranks(2)(recompute)) <= TOLERANCE


def mixed_precision(forward, reduce):
    """Beside whole parameters that get the gradients of the sharded ones."""
    net, place = sharded(mp_policy=MixedPrecisionPolicy(forward, reduce))
    plain = model()
    origin = weights(plain)
    ours, theirs = make("came", net.parameters()), make("came", plain.parameters())
    for step in range(STEPS):
        words, targets = (part.chunk(place[1])[place[0]] for part in batch(step))
        ours.zero_grad()
        loss(net, words, targets).backward()
        for a, b in zip(net.parameters(), plain.parameters()):
            b.grad = None if a.grad is None else a.grad.full_tensor()
        ours.step()
        theirs.step()
    assert all(p.dtype == torch.float64 for p in net.parameters())
    return apart(weights(net), weights(plain), origin)


@pytest.mark.parametrize(("forward", "reduce"), [(None, torch.bfloat16), (torch.bfloat16, torch.float32)], ids=str)
def test_mixed_precision(forward, reduce):
    assert max(ranks(2)(mixed_precision, forward, reduce)) <= TOLERANCE


def clip(kind, mesh_shape):
    made = []
    for limit in (0.0, 0.5):
        net, place = on_mesh(model(), kind, mesh_shape)
        optimizer = make("adamw", net.parameters(), max_grad_norm=limit)
        for step in range(STEPS):
            words, targets = (part.chunk(place[1])[place[0]] for part in batch(step))
            optimizer.zero_grad()
            loss(net, words, targets).backward()
            if not limit:
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
        made.append(weights(net))
    unclipped, place = on_mesh(model(), kind, mesh_shape)
    train(unclipped, make("adamw", unclipped.parameters()), STEPS, place)
    origin = weights(model())
    return apart(*made, origin), apart(weights(unclipped), made[0], origin)


@pytest.mark.parametrize(("kind", "mesh"), [("fsdp", (2,)), ("hsdp", (2, 2))])
def test_max_grad_norm_is_clip_grad_norm(kind, mesh):
    found = ranks(2 if kind == "fsdp" else 4)(clip, kind, mesh)
    assert max(same for same, _ in found) <= TOLERANCE
    assert min(other for _, other in found) > 0.01  # it does clip


# ---- gradient scaling --------------------------------------------------------------------------------


def skip():
    """One rank finds an infinite gradient, the others do not."""
    net, place = sharded()
    optimizer = make("came", net.parameters())
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0), torch.tensor(0.0)
    train(net, optimizer, 3, place)
    before = weights(net), {p: {k: local(v).clone() for k, v in slot.items()} for p, slot in optimizer.state.items()}
    optimizer.found_inf = torch.tensor(1.0 if dist.get_rank() == 1 else 0.0)
    train(net, optimizer, 1, place, first=3)
    same = all(torch.equal(after, before[0][name]) for name, after in weights(net).items())
    same = same and all(torch.equal(local(v), before[1][p][k]) for p, slot in optimizer.state.items() for k, v in slot.items())
    optimizer.found_inf = torch.tensor(0.0)
    train(net, optimizer, STEPS - 3, place, first=3)
    return same, from_one_process(net)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def test_all_ranks_skip_a_step_if_one_finds_an_infinity():
    for same, far in ranks(3)(skip):
        assert same and far <= TOLERANCE


def scaler():
    """GradScaler's own loop; the loss is infinite on one rank in one step."""
    net, place = sharded()
    optimizer = make("came", net.parameters())
    scaler, scales = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000), []
    for step in range(-1, STEPS):
        words, targets = (part.chunk(place[1])[place[0]] for part in batch(max(step, 0)))
        optimizer.zero_grad()
        factor = float("inf") if step == -1 and dist.get_rank() == 0 else 1.0
        scaler.scale(loss(net, words, targets) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales[0], scales[-1], from_one_process(net)


def test_grad_scaler():
    for first, last, far in ranks(2)(scaler):
        assert first == last == 512.0 and far <= TOLERANCE


# ---- the same bits -----------------------------------------------------------------------------------


def bits(algorithm):
    net, place = on_mesh(model(), "hsdp", (2, 2))
    optimizer = make(algorithm, net.parameters())
    train(net, optimizer, 100, place)
    held = [p for p in net.parameters()] + [v for p in net.parameters() for _, v in sorted(optimizer.state.get(p, {}).items())]
    return [local(tensor.detach()).contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in held]


@pytest.mark.parametrize("algorithm", ["came", "adafactor", "sm3"])
def test_replicas_and_runs_have_the_same_bits(algorithm):
    first, second = ranks(4)(bits, algorithm), ranks(4)(bits, algorithm)
    assert first[0] == first[2] and first[1] == first[3] and first[0] != first[1]
    assert first == second


# ---- torch.compile -----------------------------------------------------------------------------------


def compiled():
    net, place = sharded()
    optimizer = make("came", net.parameters())
    optimizer.step = torch.compile(optimizer.step)
    train(net, optimizer, STEPS, place)
    return from_one_process(net)


def test_compiled_steps():
    assert max(ranks(2)(compiled)) <= TOLERANCE


# ---- refusals ----------------------------------------------------------------------------------------


def refused(what, on):
    net, place = sharded()
    optimizer = make("came", net.parameters(), **({what: True} if what != "step_parameter" and dist.get_rank() in on else {}))
    words, targets = (part.chunk(place[1])[place[0]] for part in batch(0))
    loss(net, words, targets).backward()
    if what == "step_parameter":
        optimizer.step_parameter(net.scale)
    else:
        optimizer.step()


@pytest.mark.parametrize("what", ["foreach", "differentiable", "step_parameter"])
def test_what_does_not_support_shards_is_refused_on_all_ranks(what):
    with pytest.raises(RankError) as raised:
        ranks(2)(refused, what, (0, 1))
    assert len(raised.value.errors) == 2
    for kind, message in raised.value.errors.values():
        assert kind == "RuntimeError" and "does not support DTensors, and parameter 0" in message


def test_what_one_rank_refuses_all_refuse():
    with pytest.raises(RankError) as raised:
        ranks(2)(refused, "foreach", (1,))
    first, second = raised.value.errors[0], raised.value.errors[1]
    assert first[0] == "RuntimeError" and "rank 1 cannot step: RuntimeError: CAME: the loop" in first[1]
    assert second[0] == "RuntimeError" and "does not support DTensors" in second[1]


def released():
    net, _ = sharded()
    came_optim.gradient_release(net, make("came", net.parameters()))


def test_gradient_release_is_refused():
    with pytest.raises(RankError, match="model: trained by 2 processes, expected one"):
        ranks(2)(released)
