"""The Python package on a GPU: loop and kernels, graphs, scalers, autocast, torch.compile, resuming, release.

    CAME_LIBRARY=build/cuda/lib/libcame.so PYTHONPATH=python python3 tests/gpu/package_test.py [NAME...]

Needs torch and nothing else, so that it runs where nothing can be installed.  Leaves with 77 where there is no GPU.
"""

import copy
import io
import os
import sys
import traceback

import torch

import came_optim
from came_optim.optimizers import BY_NAME


def adafactor(params, **options):
    return came_optim.Adafactor(params, **{"relative_step": False, "scale_parameter": False, "beta1": 0.9, **options})


CLASSES = list({**BY_NAME, "adafactor": adafactor}.values())
# Of the displacement: docs/numerics.md, "How close".
WITHIN = 5e-6
SHAPES = [(64, 96), (33, 7), (5,), (), (8, 4, 3, 3), (1, 300), (130, 2050)]


def parameters(dtype=torch.float32, shapes=SHAPES, seed=0):
    make = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter((torch.randn(s, generator=make) * 0.1).to("cuda", dtype)) for s in shapes]


def gradients(params, step):
    make = torch.Generator().manual_seed(1000 + step)
    for p in params:
        p.grad = (torch.randn(p.shape, generator=make) * 0.01).to("cuda", p.dtype)


def run(optimizer, params, steps, first=0):
    for step in range(first, first + steps):
        gradients(params, step)
        optimizer.step()


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs):
        assert torch.equal(a.detach(), b.detach()), (a.shape, (a - b).abs().max().item())


def displacement(after, before, reference):
    """Largest difference of two runs, relative to how far the reference went."""
    worst = 0.0
    for a, b, r in zip(after, before, reference):
        if a.numel():
            moved = (r.double() - b.double()).norm().item()
            worst = max(worst, (a.double() - r.double()).norm().item() / max(moved, 1e-30))
    return worst


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to("cuda", dtype)


def batch(step):
    make = torch.Generator().manual_seed(step)
    return torch.randn(16, 32, generator=make).cuda(), torch.randint(8, (16,), generator=make).cuda()


def loss_of(net, step):
    x, y = batch(step)
    return torch.nn.functional.cross_entropy(net(x).float(), y)


def test_kernels_follow_the_loop():
    """Each is f32 and may end within WITHIN of where f64 would, so they are twice that apart at most."""
    for cls in CLASSES:
        loop, fused, start = parameters(), parameters(), parameters()
        run(cls(loop, lr=1e-3, fused=False), loop, 60)
        run(cls(fused, lr=1e-3), fused, 60)
        worst = displacement(fused, start, loop)
        print(f"  {cls.__name__}: {worst:.1e} of the displacement")
        assert worst <= 2 * WITHIN, (cls.__name__, worst)


def test_no_synchronisation():
    for cls in CLASSES:
        params = parameters()
        optimizer = cls(params, lr=torch.tensor(1e-3, device="cuda"), weight_decay=0.01)
        run(optimizer, params, 2)
        gradients(params, 2)
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_graph_follows_the_rate():
    for cls in CLASSES:
        eager, replayed = parameters(), parameters()
        lr = torch.tensor(1e-3, device="cuda")
        one, other = cls(eager, lr=torch.tensor(1e-3, device="cuda")), cls(replayed, lr=lr, capturable=True)
        run(one, eager, 3)
        run(other, replayed, 3)
        gradients(replayed, 3)
        held = [p.grad for p in replayed]
        graph = torch.cuda.CUDAGraph()
        saved = copy.deepcopy([p.detach() for p in replayed])
        with torch.cuda.graph(graph):
            other.step()
        assert_same(replayed, saved)  # capture does not run anything
        for step in range(3, 8):
            rate = 1e-3 / step
            lr.fill_(rate)
            one.param_groups[0]["lr"].fill_(rate)
            gradients(eager, step)
            for h, p in zip(held, eager):
                h.copy_(p.grad)
            graph.replay()
            one.step()
        assert_same(replayed, eager)


def change_options(optimizer, step):
    """Options that travel with a step."""
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.1 * step
        if "betas" in group:
            group["betas"] = (0.9 - 0.05 * step, *group["betas"][1:])


def test_options_travel():
    """Beside it, an optimizer that is made anew at every step, with the state of the one before."""
    for cls in CLASSES:
        params, others = parameters(), parameters()
        optimizer, other = cls(params, lr=1e-3), cls(others, lr=1e-3)
        for step in range(5):
            change_options(optimizer, step)
            gradients(params, step)
            gradients(others, step)
            if step:
                state = other.state_dict()["state"]
                other = cls(others, lr=1e-3)
                other.load_state_dict({"state": state, "param_groups": other.state_dict()["param_groups"]})
            change_options(other, step)
            bound = optimizer._bindings
            optimizer.step()
            other.step()
            assert step == 0 or optimizer._bindings is bound
            assert_same(params, others)


def test_a_captured_step_keeps_its_options_and_its_scratch():
    for cls in CLASSES:
        eager, replayed, more = parameters(), parameters(), parameters(seed=1)
        one, other, third = (cls(p, lr=1e-3) for p in (eager, replayed, more))
        for optimizer, params in ((one, eager), (other, replayed)):
            run(optimizer, params, 3)
            change_options(optimizer, 2)
        gradients(replayed, 3)
        held = [p.grad for p in replayed]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            other.step()
        change_options(other, 4)  # which the graph does not follow
        for step in range(3, 7):
            gradients(eager, step)
            for h, p in zip(held, eager):
                h.copy_(p.grad)
            run(third, more, 1, step)  # with scratch that all share
            graph.replay()
            run(third, more, 1, step)
            one.step()
        assert_same(replayed, eager)


def test_whoever_looks_at_tensors_changes_no_bit():
    images = []
    for way in ("dlpack", "python"):
        os.environ["CAME_LENDER"] = way
        try:
            params = parameters()
            run(came_optim.CAME(params), params, 3)
        finally:
            del os.environ["CAME_LENDER"]
        images.append(params)
    assert_same(*images)


def test_scaler_skips_an_overflow():
    """The scale is a power of two, so that scaled and unscaled training differ by nothing but one skipped step."""
    for cls in (came_optim.CAME, came_optim.AdamW):
        net, plain = model(), model()
        scaled, unscaled = cls(net.parameters(), lr=1e-3), cls(plain.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=10**6)
        for step in range(6):
            scaled.zero_grad()
            scaler.scale(loss_of(net, step)).backward()
            overflow = step == 3
            if overflow:
                net[0].weight.grad[0, 0] = float("inf")
            before = copy.deepcopy(net.state_dict())
            scaler.step(scaled)
            scaler.update()
            if overflow:
                assert_same(net.state_dict().values(), before.values())
                continue
            unscaled.zero_grad()
            loss_of(plain, step).backward()
            unscaled.step()
        assert scaler.get_scale() == 2.0**9
        assert int(scaled.state[net[0].weight]["step"]) == 5
        worst = displacement(net.parameters(), model().parameters(), plain.parameters())
        assert worst < 1e-4, worst


def test_autocast_training_learns():
    for cls in (came_optim.CAME, came_optim.AdamW, adafactor):
        net = model()
        optimizer = cls(net.parameters(), lr=1e-3)
        losses = []
        for _ in range(60):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(net, 0)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0], (cls.__name__, losses[0], losses[-1])


def test_compiled_step_equals_eager():
    for cls in (came_optim.CAME, came_optim.AdamW):
        eager, compiled = parameters(), parameters()
        one, other = cls(eager, lr=1e-3), cls(compiled, lr=1e-3)
        run(one, eager, 1)
        run(other, compiled, 1)
        step = torch.compile(other.step, backend="aot_eager")
        for k in range(1, 5):
            gradients(eager, k)
            gradients(compiled, k)
            one.step()
            step()
        assert_same(compiled, eager)


def test_resuming_is_never_having_stopped():
    for cls in CLASSES:
        for dtype in (torch.float32, torch.bfloat16):
            for momentum in ("bf16", "int8", "int4", None):
                options = dict(lr=1e-3, momentum_dtype=momentum, stochastic_rounding=dtype is torch.bfloat16)
                through, stopped = parameters(dtype), parameters(dtype)
                run(cls(through, **options), through, 6)
                first = cls(stopped, **options)
                run(first, stopped, 3)
                file = io.BytesIO()
                torch.save(first.state_dict(), file)
                file.seek(0)
                second = cls(stopped, **options)
                second.load_state_dict(torch.load(file, weights_only=True, map_location="cuda"))
                run(second, stopped, 3, first=3)
                assert_same(stopped, through)


def test_release_steps_the_same():
    net, plain = model(), model()
    released, optimizer = came_optim.CAME(net.parameters(), lr=1e-3), came_optim.CAME(plain.parameters(), lr=1e-3)
    release = came_optim.gradient_release(net, released)
    for step in range(4):
        loss_of(net, step).backward()
        assert all(p.grad is None for p in net.parameters())
        released.step()
        optimizer.zero_grad()
        loss_of(plain, step).backward()
        optimizer.step()
    release.remove()
    assert_same(net.parameters(), plain.parameters())


def test_other_streams():
    """A step is in the order of the current stream."""
    params, plain = parameters(), parameters()
    one, other = came_optim.CAME(params, lr=1e-3), came_optim.CAME(plain, lr=1e-3)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(5):
            torch.cuda._sleep(1_000_000)
            run(one, params, 1, step)
    torch.cuda.current_stream().wait_stream(stream)
    run(other, plain, 5)
    assert_same(params, plain)


def test_estimate_is_what_is_taken():
    shapes = [(2048, 2048)] * 8 + [(2048,)] * 8
    params = parameters(torch.bfloat16, shapes)
    gradients(params, 0)
    torch.cuda.synchronize()
    free, before = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    optimizer = came_optim.CAME(params, momentum_dtype="int8")
    optimizer.step()
    torch.cuda.synchronize()
    taken = torch.cuda.memory_allocated() - before
    row = came_optim.estimate(params, optimizer, device="cuda")[0]
    print(f"  estimated {row.peak} B, allocated by torch {taken} B, of the device {free - torch.cuda.mem_get_info()[0]} B")
    assert abs(taken - row.peak) < 0.02 * row.peak


def main() -> int:
    if not torch.cuda.is_available():
        print("no GPU: skipped")
        return 77
    failed = []
    for name, test in sorted(globals().items()):
        if not name.startswith("test_") or (sys.argv[1:] and name not in sys.argv[1:]):
            continue
        try:
            test()
            print(f"passed  {name}")
        except Exception:
            failed.append(name)
            traceback.print_exc()
            print(f"FAILED  {name}")
    print(f"{len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
