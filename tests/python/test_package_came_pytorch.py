"""The authors' class as came_optim has it: arguments, defaults, 300 steps, checkpoints both ways, and the name `came_pytorch`."""

import copy
import inspect
import subprocess
import sys

import came_pytorch as authors
import pytest
import torch
from cases import TOLERANCE, error, gradients, learning_rates, start
from package import parameters, run, same
from torch import nn

import came_optim
from came_optim import came_pytorch

LR, BEFORE = 2e-3, 20
SHAPES = [(7, 13), (1, 37), (41, 1), (31,), (1,), (), (4, 3, 5), (8, 3, 3, 3), (6, 5, 1, 1), (2, 65, 66)]
FAMILIES = ["random", "drifting"]
OURS = [came_pytorch.CAME, came_optim.CAME]


def copies(count):
    return [[nn.Parameter(torch.tensor(start(shape))) for shape in SHAPES] for _ in range(count)]


def train(sides, family, steps=None, seed=0, idle=()):
    """Steps pairs of optimizer and parameters by the same gradients and rates; parameters in `idle` get none."""
    numbers = zip(*(gradients(family, shape, seed) for shape in SHAPES))
    for step, (grads, lr) in enumerate(zip(numbers, learning_rates(LR))):
        if step == steps:
            break
        for optimizer, params in sides:
            for k, (p, g) in enumerate(zip(params, grads)):
                p.grad = None if k in idle else torch.tensor(g)
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()


def numpy_of(params):
    return [p.detach().numpy().copy() for p in params]


def assert_equal(ours, theirs, origin):
    for p, q, o in zip(numpy_of(ours), numpy_of(theirs), origin):
        assert error(p, q, o) <= TOLERANCE, p.shape


# ---- arguments ---------------------------------------------------------------------------------------


def test_arguments_and_defaults_are_the_authors():
    theirs = inspect.signature(authors.CAME).parameters
    ours = inspect.signature(came_pytorch.CAME).parameters
    assert {name: p.default for name, p in ours.items() if p.kind is not p.KEYWORD_ONLY} == {name: p.default for name, p in theirs.items()}
    assert list(ours)[: len(theirs)] == list(theirs)


def test_keywords_beside_them_are_those_of_came():
    base = inspect.signature(came_optim.CAME).parameters
    own = inspect.signature(came_pytorch.CAME).parameters
    assert list(base) == list(own)
    differing = {name: own[name].default for name in own if own[name].default != base[name].default}
    assert differing == {"lr": None, "bias_correction": False, "view": "last_two"}
    made = came_pytorch.CAME(parameters(torch.float32), 1e-3, momentum_dtype="int8")
    assert isinstance(made, came_optim.CAME) and made.defaults["momentum_dtype"] == "int8"


def test_arguments_go_by_place():
    given = (3e-4, (1e-29, 1e-15), 0.9, (0.8, 0.99, 0.999), 0.1)
    params = parameters(torch.float32)
    ours, theirs = came_pytorch.CAME(params, *given).param_groups[0], authors.CAME(params, *given).param_groups[0]
    assert {name: ours[name] for name in theirs} == theirs


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ({}, TypeError, "lr: None given, expected a number > 0: came_pytorch.CAME has no default"),
        ({"lr": 0}, ValueError, "Invalid learning rate: 0, expected a finite number > 0"),
        ({"lr": 0.0}, ValueError, "Invalid learning rate: 0.0, expected a finite number > 0"),
        ({"lr": -1e-3}, ValueError, "Invalid learning rate: -0.001, expected"),
        ({"lr": "fast"}, TypeError, "lr: 'fast' "),
        ({"lr": 1e-3, "betas": (0.9, 1.5, 0.9)}, ValueError, r"betas\[1\] is 1.5, expected a number in \[0, 1\)"),
    ],
)
def test_what_the_authors_assert_is_an_error_with_words(arguments, kind, message):
    with pytest.raises((AssertionError, TypeError)):
        authors.CAME(parameters(torch.float32), **arguments)
    with pytest.raises(kind, match=message):
        came_pytorch.CAME(parameters(torch.float32), **arguments)


def test_fairseq_finds_what_it_asks():
    for cls in (authors.CAME, came_pytorch.CAME):
        optimizer = cls(parameters(torch.float32), lr=1e-3)
        assert optimizer.supports_memory_efficient_fp16 is True and optimizer.supports_flat_params is False


# ---- steps and checkpoints ---------------------------------------------------------------------------


@pytest.mark.parametrize("family, fused", [("random", None), ("drifting", None), ("drifting", False)])
def test_300_steps_equal_the_authors(family, fused):
    ps, qs = copies(2)
    origin = numpy_of(ps)
    train([(came_pytorch.CAME(ps, LR, weight_decay=0.1, fused=fused), ps), (authors.CAME(qs, LR, weight_decay=0.1), qs)], family)
    assert_equal(ps, qs, origin)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cls", OURS)
def test_a_checkpoint_of_the_authors_goes_on_as_it_was_trained(cls, family):
    """Convolutions that have no state yet, too: only the checkpoint's origin tells how they are seen."""
    ps, qs = copies(2)
    theirs = authors.CAME(qs, LR, weight_decay=0.1)
    train([(theirs, qs)], family, BEFORE, seed=1, idle=(6, 7))
    for p, q in zip(ps, qs):
        p.data.copy_(q)
    ours = cls(ps, lr=1.0)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    origin = numpy_of(ps)
    train([(ours, ps), (theirs, qs)], family)
    assert_equal(ps, qs, origin)


@pytest.mark.parametrize("cls", OURS)
def test_where_nothing_but_vectors_has_state_the_view_is_theirs(cls):
    ps, qs = copies(2)
    theirs = authors.CAME(qs, LR)
    matrices = [k for k, shape in enumerate(SHAPES) if len(shape) > 1]
    train([(theirs, qs)], "random", 1, idle=matrices)
    ours = cls(ps, lr=1.0)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    assert ours.param_groups[0]["view"] == "last_two" and ours.param_groups[0]["bias_correction"] is False


@pytest.mark.parametrize("family", FAMILIES)
def test_the_authors_go_on_from_ours(family):
    ps, qs = copies(2)
    ours, theirs = came_pytorch.CAME(ps, LR, weight_decay=0.1), authors.CAME(qs, lr=1.0)
    train([(ours, ps)], family, BEFORE, seed=1)
    for p, q in zip(ps, qs):
        q.data.copy_(p)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    origin = numpy_of(ps)
    train([(ours, ps), (theirs, qs)], family)
    assert_equal(ps, qs, origin)


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.parametrize("given, cls", [OURS, OURS[::-1]])
def test_a_checkpoint_that_says_how_it_was_trained_is_believed(given, cls, form):
    params, others = parameters(torch.float32), parameters(torch.float32)
    first, second = given(params, lr=1e-3, bias_correction=form, view="fold"), cls(others, lr=1.0, bias_correction=not form)
    run(first, params, 2)
    for p, q in zip(params, others):
        q.data.copy_(p)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.param_groups == [{**first.param_groups[0], "params": others}]
    run(first, params, 2, first=2)
    run(second, others, 2, first=2)
    assert all(same(p, q) for p, q in zip(params, others))


def test_groups_that_tell_nothing_keep_the_form_that_was_chosen():
    params = parameters(torch.float32)
    theirs = authors.CAME(params, lr=1e-3)
    run(theirs, [p for p in params if p.numel()], 1)
    bare = {"state": theirs.state_dict()["state"], "param_groups": [{"params": list(range(len(params))), "lr": 0.5}]}
    ours = came_optim.CAME(params)
    ours.load_state_dict(bare)
    assert ours.param_groups[0]["bias_correction"] is True


# ---- the name ----------------------------------------------------------------------------------------

HIDE = """
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "came_pytorch":
            raise ModuleNotFoundError("no came_pytorch here", name=name)
sys.meta_path.insert(0, Hide())
"""
OURS_WINS = """
from came_optim import came_pytorch as ours
ours.install()
ours.install()
from came_pytorch import CAME
from came_pytorch.CAME import CAME as again
import came_pytorch, came_pytorch.CAME
assert CAME is again is came_pytorch.CAME is ours.CAME is importlib.import_module("came_pytorch.CAME").CAME
assert importlib.util.find_spec("came_pytorch") and importlib.util.find_spec("came_pytorch.CAME")
assert came_pytorch.__version__ == "0.1.3"
import torch
w = torch.nn.Parameter(torch.ones(3, 2))
w.grad = torch.ones(3, 2)
optimizer = CAME([w], lr=1e-3)
optimizer.step()
assert isinstance(optimizer, came_optim.CAME) and pickle.loads(pickle.dumps(CAME)) is ours.CAME
"""


def python(program):
    head = "import importlib, importlib.util, pickle, sys\nimport came_optim\n"
    done = subprocess.run([sys.executable, "-c", head + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_installed_it_is_what_every_import_finds():
    python(OURS_WINS)


def test_it_needs_no_package_of_the_authors():
    python(HIDE + OURS_WINS)


def test_uninstalled_the_authors_are_found_again():
    python(OURS_WINS + "ours.uninstall(); ours.uninstall()\nimport came_pytorch\nassert came_pytorch.CAME.__module__ == 'came_pytorch.CAME'")


def test_without_the_authors_nothing_is_found_after_uninstalling():
    python(HIDE + OURS_WINS + "ours.uninstall()\ntry: import came_pytorch\nexcept ModuleNotFoundError: pass\nelse: raise SystemExit('found')")


def test_importing_this_module_alone_takes_no_name():
    python("from came_optim import came_pytorch\nassert 'came_pytorch' not in sys.modules\ncame_pytorch.uninstall()")


@pytest.mark.parametrize("line", ["import came_pytorch", "from came_pytorch.CAME import CAME", "import came_pytorch; del sys.modules['came_pytorch']"])
def test_it_is_refused_where_somebody_may_hold_the_authors_class(line):
    python(f"""
{line}
before = dict(sys.modules)
from came_optim import came_pytorch as ours
try:
    ours.install()
except RuntimeError as error:
    assert "came_pytorch: already imported from " in str(error) and "site-packages" in str(error), error
else:
    raise SystemExit("not refused")
assert all(sys.modules.get(name) is before.get(name) for name in ("came_pytorch", "came_pytorch.CAME"))
ours.uninstall()
assert sys.modules["came_pytorch.CAME"] is before["came_pytorch.CAME"]
""")
