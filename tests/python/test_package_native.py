"""The layer below torch: it needs no torch, works in every Python here, and says what is wrong with a library."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import came_optim
from came_optim import lender, library, native

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def pythons():
    """One interpreter of each version from 3.9 on that there is here: on the path, or kept by pyenv."""
    found = {sys.version_info[:2]: sys.executable}
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python"))
    for path in [*map(str, kept), *filter(None, (shutil.which(f"python3.{k}") for k in range(9, 20)))]:
        asked = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
        if asked.returncode == 0 and tuple(map(int, asked.stdout.split())) >= (3, 9):
            found.setdefault(tuple(map(int, asked.stdout.split())), path)
    return {"{}.{}".format(*version): path for version, path in sorted(found.items())}


PYTHONS = pythons()


def call(code, python=sys.executable, **environment):
    """Runs Python in a process of its own; whatever it prints."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}
    done = subprocess.run([python, "-c", code], env=settings, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("version", PYTHONS)
def test_steps_plain_buffers_in_every_python(version):
    code = "import doctest, came_optim.native; print(doctest.testmod(came_optim.native))"
    assert re.fullmatch(r"TestResults\(failed=0, attempted=1\d\)\n", call(code, PYTHONS[version]))


@pytest.mark.parametrize("version", PYTHONS)
def test_steps_numpy_buffers_without_torch(version):
    if "No module named 'numpy'" in call("import numpy", PYTHONS[version]):
        assert PYTHONS[version] != sys.executable
        return
    command = [PYTHONS[version], str(HERE / "native_smoke.py")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
    assert done.stdout.startswith("ok"), done.stderr


def test_importing_the_package_imports_no_torch():
    assert call("import came_optim, came_optim.native, sys; print('torch' in sys.modules)") == "False\n"


def test_a_missing_library_says_where_it_was_looked_for_and_how_to_build_it(tmp_path):
    wanted = tmp_path / "nowhere.so"
    text = call("from came_optim import native; native.options('came')", CAME_LIBRARY=str(wanted))
    assert f"ImportError: libcame: looked for {wanted}: no such file; build it with `make build`" in text


def test_without_a_build_all_places_are_named(tmp_path):
    shutil.copytree(ROOT / "python" / "came_optim", tmp_path / "came_optim")
    settings = {"PYTHONPATH": str(tmp_path), "CAME_LIBRARY": ""}
    text = call("from came_optim import native; native.options('came')", **settings)
    assert f"looked for {tmp_path / 'came_optim' / 'lib' / 'libcame.so'}: no such file" in text
    assert "pip install ." in text


def test_something_that_is_no_library_is_named(tmp_path):
    wrong = tmp_path / "libcame.so"
    wrong.write_text("not a library")
    text = call("from came_optim import native; native.options('came')", CAME_LIBRARY=str(wrong))
    assert f"ImportError: libcame: {wrong} cannot be loaded: " in text and "make build" in text


def test_a_library_of_another_abi_is_refused(tmp_path):
    source, built = tmp_path / "other.c", tmp_path / "libcame.so"
    source.write_text("int came_abi_version(void) { return 7; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    text = call("from came_optim import native; native.options('came')", CAME_LIBRARY=str(built))
    assert f"libcame: {built} has version 7 of the ABI, expected {library.ABI_VERSION}, that of this package" in text


def test_versions_agree_with_the_header():
    header = (ROOT / "include" / "came" / "version.h").read_text()
    assert re.search(r'CAME_VERSION_STRING "(.*)"', header)[1] == came_optim.__version__
    assert int(re.search(r"CAME_ABI_VERSION (\d+)", header)[1]) == library.ABI_VERSION


def test_structs_have_the_fields_of_the_header():
    """Names and order, as the two headers have them."""
    header = "".join((ROOT / path).read_text() for path in ("include/came/came.h", "src/python_bridge/bridge.h"))
    structs = {
        "came_options": native.Options,
        "came_tensor": native.Tensor,
        "came_tensor_spec": native.TensorSpec,
        "came_state_info": native.StateInfo,
        "came_matrix_view": native.MatrixView,
        "came_reduction": native.ReductionInfo,
        "came_memory": native.Memory,
        "came_step": native.Step,
        "came_framework": lender.Framework,
        "came_borrowed": lender.Borrowed,
    }
    for name, struct in structs.items():
        body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", header, re.S)[1]
        fields = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", body, flags=re.S))
        assert [field[0] for field in struct._fields_] == fields, name


def test_python_3_9_can_read_every_file():
    """Syntax, at least: there need not be one here to run."""
    import ast

    for path in (ROOT / "python" / "came_optim").rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
