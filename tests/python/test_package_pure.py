"""Without libcame: the package alone in a folder, as it is where nobody could build the library.

Steps are those of the loop, bit for bit those of `fused=False` beside a library; checkpoints pass from one to the other.
"""

import os
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from package import EPSILON, MOMENTA, OPTIMIZERS, UNITS, make, parameters, run, same, same_states

import came_optim

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHAPES = [(7, 13), (31,), (), (8, 3, 3, 3), (3, 300), (0, 5)]
CASES = [(algorithm, momentum) for algorithm in OPTIMIZERS for momentum in MOMENTA]
PROLOGUE = f"import sys; sys.path.insert(1, {str(HERE)!r}); import torch, came_optim, package; from came_optim import library\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    ignored = shutil.ignore_patterns("__pycache__", "lib")
    shutil.copytree(ROOT / "python" / "came_optim", folder / "came_optim", ignore=ignored)
    return folder


def process(alone, *arguments, **environment):
    settings = {name: value for name, value in os.environ.items() if name != "CAME_LIBRARY"}
    settings.update(PYTHONPATH=str(alone), OMP_NUM_THREADS="1", **environment)
    return subprocess.run([sys.executable, *map(str, arguments)], env=settings, capture_output=True, text=True)


def call(alone, code, *flags, **environment):
    """What code prints, to both streams, in a process that finds no library."""
    done = process(alone, *flags, "-c", PROLOGUE + code, **environment)
    return done.stdout + done.stderr


def optimizer(algorithm, momentum, **options):
    params = parameters(torch.float32, SHAPES)
    return params, make(algorithm, params, momentum_dtype=momentum, **options)


def test_steps_with_one_warning_that_says_how_to_get_the_kernels(alone):
    code = """
for algorithm in package.OPTIMIZERS:
    for _ in range(2):
        params = package.parameters(torch.float32)
        package.run(package.make(algorithm, params), params, 2)
print(not library.loads())
"""
    printed = call(alone, code, "-W", "always")
    assert printed.count("UserWarning") == 1 and "True\n" in printed, printed
    [line] = (line for line in printed.splitlines() if "UserWarning" in line)
    assert "/package.py:" in line, "the line that called, not one of the package's or torch's"
    for part in ("libcame is not built", f"{alone}/came_optim/lib/libcame.so", "make build", "pip install .", "`fused=False` chooses"):
        assert part in printed


def test_the_loop_asked_for_says_nothing(alone):
    code = """
for algorithm in package.OPTIMIZERS:
    for options in ({"fused": False}, {"foreach": True}):
        params = package.parameters(torch.float32)
        package.run(package.make(algorithm, params, **options), params, 2)
params = package.parameters(torch.bfloat16)
package.run(package.make("came", params, fused=False, stochastic_rounding=True), params, 2)
"""
    assert call(alone, code, "-W", "error::UserWarning") == ""


def test_kernels_and_capture_that_are_asked_for_are_missed(alone):
    code = """
for algorithm in package.OPTIMIZERS:
    for options in ({"fused": True}, {"capturable": True}):
        try:
            package.make(algorithm, package.parameters(torch.float32), **options)
        except RuntimeError as error:
            print(error)
"""
    lines = call(alone, code, "-W", "ignore").splitlines()
    assert len(lines) == 2 * len(OPTIMIZERS)
    for fused, captured in zip(lines[0::2], lines[1::2]):
        assert fused.startswith(f"`fused=True` needs the kernels; libcame: looked for {alone}/came_optim/lib/libcame.so: no such file; build it")
        assert captured.startswith("`capturable` needs the kernels") and "where libcame is not built" in captured


@pytest.mark.parametrize("content", [None, "not a library"])
def test_a_library_that_was_named_must_load(alone, tmp_path, content):
    """It is an error, not a reason for another way; asked for, the loop steps all the same."""
    named = tmp_path / "libcame.so"
    if content is not None:
        named.write_text(content)
    code = """
params = package.parameters(torch.float32)
package.run(package.make("came", params, fused=False), params, 1)
print("stepped")
package.make("came", params)
"""
    printed = call(alone, code, CAME_LIBRARY=str(named))
    assert printed.startswith("stepped\n") and f"ImportError: libcame: {'looked for ' if content is None else ''}{named}" in printed
    assert "is not built" not in printed


def test_a_broken_library_inside_the_package_is_an_error(alone, tmp_path):
    shutil.copytree(alone / "came_optim", tmp_path / "came_optim", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "came_optim" / "lib").mkdir()
    (tmp_path / "came_optim" / "lib" / "libcame.so").write_text("broken")
    printed = call(tmp_path, 'package.make("came", package.parameters(torch.float32))')
    assert f"ImportError: libcame: {tmp_path}/came_optim/lib/libcame.so cannot be loaded" in printed


def test_estimates_count_the_state(alone):
    code = "print([tuple(row) for row in came_optim.estimate([(7, 13), (31,), (2, 65, 66)], momentum_dtype='int4')])"
    rows = eval(call(alone, code, "-W", "ignore"))  # noqa: S307
    ours = came_optim.estimate([(7, 13), (31,), (2, 65, 66)], momentum_dtype="int4")
    assert [row[:4] for row in rows] == [row[:4] for row in ours] and [row[0] for row in rows] == list(OPTIMIZERS)
    assert all(row[4:] == (None, row[3]) for row in rows)


def test_the_packages_own_tests_pass(alone):
    """Those of checkpoints, release and the derivative, with the loop where they have kernels here."""
    chosen = [HERE / f"test_package_{name}.py" for name in ("checkpoints", "release", "loop")]
    which = "(resuming and (float32 or second_moment) or load or release or differentiable) and not estimate and not kernels"
    done = process(alone, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, *chosen)
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 50


def test_a_scaler_unscales_and_skips(alone):
    code = """
for algorithm in package.OPTIMIZERS:
    scaled, plain = package.parameters(torch.float32), package.parameters(torch.float32)
    optimizer, twin = package.make(algorithm, scaled), package.make(algorithm, plain)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    scaler.scale(torch.ones(()))
    for step in range(4):
        package.set_gradients(scaled, step)
        package.set_gradients(plain, step)
        for p in scaled:
            p.grad *= scaler.get_scale()
        if step == 2:
            scaled[0].grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        if step != 2:
            twin.step()
    assert scaler.get_scale() == 512.0
    assert all(package.same(p, q) for p, q in zip(scaled, plain)), algorithm
"""
    assert call(alone, code, "-W", "ignore") == ""


@pytest.fixture(scope="module")
def moved(alone, tmp_path_factory):
    """Runs of three steps here and three there, the other way round, and six there."""
    path = tmp_path_factory.mktemp("moved") / "states.pt"
    here = {}
    for algorithm, momentum in CASES:
        params, ours = optimizer(algorithm, momentum, fused=False)
        run(ours, params, 3)
        here[algorithm, momentum] = ([p.detach() for p in params], ours.state_dict())
    torch.save(here, path)
    code = f"""
import copy
made = {{}}
for (algorithm, momentum), (values, state) in torch.load({str(path)!r}, weights_only=False).items():
    params = package.parameters(torch.float32, {SHAPES})
    fresh = package.make(algorithm, params, momentum_dtype=momentum)
    package.run(fresh, params, 3)
    half = copy.deepcopy(([p.detach() for p in params], fresh.state_dict()))
    package.run(fresh, params, 3, first=3)
    other = [torch.nn.Parameter(value) for value in values]
    loaded = package.make(algorithm, other, momentum_dtype=momentum, fused=False)
    loaded.load_state_dict(state)
    package.run(loaded, other, 3, first=3)
    made[algorithm, momentum] = half, ([p.detach() for p in params], fresh.state_dict()), ([p.detach() for p in other], loaded.state_dict())
torch.save(made, {str(path)!r})
"""
    assert call(alone, code, "-W", "ignore") == ""
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize("algorithm, momentum", CASES)
def test_state_moves_between_a_process_with_the_library_and_one_without(moved, algorithm, momentum):
    half, six, from_here = deepcopy(moved[algorithm, momentum])
    params, ours = optimizer(algorithm, momentum, fused=False)
    run(ours, params, 6)
    for values, state in (six, from_here):
        assert all(same(p, q) for p, q in zip(params, values))
        assert same_states(ours.state_dict(), state)
    back = [torch.nn.Parameter(value.clone()) for value in half[0]]
    loaded = make(algorithm, back, momentum_dtype=momentum, fused=False)
    loaded.load_state_dict({**half[1], "param_groups": loaded.state_dict()["param_groups"]})
    run(loaded, back, 3, first=3)
    assert all(same(p, q) for p, q in zip(params, back)) and same_states(ours.state_dict(), loaded.state_dict())


@pytest.mark.parametrize("algorithm, momentum", CASES)
def test_kernels_go_on_from_state_of_a_process_without_them(moved, algorithm, momentum):
    """Within what rounding at the border between two codes makes of three steps: bf16 has 8 bits, a code is 1/127 or 1/7 of the
    largest, and some may add up."""
    half, six, _ = deepcopy(moved[algorithm, momentum])
    params = [torch.nn.Parameter(value.clone()) for value in half[0]]
    kernels = make(algorithm, params, momentum_dtype=momentum)
    kernels.load_state_dict(half[1])
    run(kernels, params, 3, first=3)
    assert all(binding.kernels for binding in kernels._bindings)
    share = {None: 0, "bf16": 2**-7, "int8": 0.05, "int4": 0.5}[momentum]
    for p, q, start in zip(params, six[0], half[0]):
        if p.numel():
            moved, largest = (q - start).abs().max(), q.abs().max()
            assert (p - q).abs().max() <= share * moved + EPSILON[p.dtype] * (UNITS * moved + 3 * largest)
