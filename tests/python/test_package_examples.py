"""Every example in the package's docstrings does what it says."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import came_optim

MODULES = [name for _, name, _ in pkgutil.walk_packages(came_optim.__path__, "came_optim.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_every_public_class_and_function_has_an_example():
    for name in came_optim.__all__:
        if name != "__version__":
            assert ">>> " in (getattr(came_optim, name).__doc__ or ""), name
