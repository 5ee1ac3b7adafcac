"""`pip install .` of a clean copy gives one wheel for every Python 3, which steps in a venv that holds nothing but torch; without
a compiler it says how to get a wheel that has no library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMOKE = """
import torch, came_optim
from came_optim import library
from came_optim.optimizers import BY_NAME
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
for cls in BY_NAME.values():
    optimizer = cls(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters())
print("ok", library.library()._name if library.loads() else "no library")
"""


def attempt(*command, **environment):
    settings = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CAME_LIBRARY")}
    return subprocess.run([*map(str, command)], env={**settings, **environment}, capture_output=True, text=True)


def run(*command, **environment):
    done = attempt(*command, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip_wheel(source, folder):
    return sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, source


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    copy = tmp_path_factory.mktemp("source") / "came"
    files = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(*pip_wheel(source, folder))
    (made,) = folder.glob("*.whl")
    return made


def test_one_wheel_for_every_python(wheel):
    assert wheel.name == "came_optim-0.1.0-py3-none-linux_x86_64.whl"


def test_installs_beside_torch_alone(wheel, tmp_path):
    import torch

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", f"torch=={torch.__version__.split('+')[0]}", wheel)
    printed = run(python, "-c", SMOKE)
    assert printed == f"ok {tmp_path.resolve() / 'venv'}" + printed[printed.index("/lib/") :] and "/came_optim/lib/libcame.so" in printed


def test_without_a_compiler_the_error_says_how_to_do_without(source, tmp_path):
    done = attempt(*pip_wheel(source, tmp_path), CC="/nowhere/cc", CXX="/nowhere/c++")
    assert done.returncode != 0 and not list(tmp_path.glob("*.whl"))
    assert "CAME_KERNELS=OFF pip install . leaves it out" in done.stdout + done.stderr


def test_a_wheel_without_the_library_is_for_every_system_and_steps(source, tmp_path):
    run(*pip_wheel(source, tmp_path), CAME_KERNELS="OFF", CC="/nowhere/cc", CXX="/nowhere/c++")
    (made,) = tmp_path.glob("*.whl")
    assert made.name == "came_optim-0.1.0-py3-none-any.whl"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "site", made)
    assert not list((tmp_path / "site").rglob("*.so"))
    done = attempt(sys.executable, "-c", SMOKE, PYTHONPATH=str(tmp_path / "site"))
    assert done.stdout == "ok no library\n" and done.stderr.count("libcame is not built") == 1, done.stderr
