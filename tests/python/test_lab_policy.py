"""What a run keeps and shows of itself: the best and the newest checkpoints, its rates, its curves beside another's."""
import json
import math
import re
import shutil

import pytest

pytest.importorskip("torch")
from lab import (ARGUMENTS, PROGRAM, begin, checkpoints, dataset, lab, metrics, result,  # noqa: F401
                 wait_for_checkpoint)

if not PROGRAM.exists():
    pytest.skip("came-lab is not built", allow_module_level=True)


def steps_kept(run):
    return [int(path.name[5:]) for path in checkpoints(run)]


def losses(run, key="valid_loss"):
    """One entry of metrics.jsonl by its step."""
    entries = [json.loads(line) for line in metrics(run).splitlines()]
    return {entry["step"]: entry[key] for entry in entries if key in entry}


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    lab(*ARGUMENTS, "--data", dataset, "--out", run)
    return run


# Checkpoints every second step, every second of them with an evaluation.
SAVED_OFTEN = ["--eval-every", 4, "--checkpoint-every", 2, "--keep", 2, "--schedule", "constant"]


@pytest.fixture(scope="module")
def worsening(dataset, tmp_path_factory):
    """A run that learns while its rate is low and forgets as the rate rises."""
    run = tmp_path_factory.mktemp("worsening") / "run"
    lab(*ARGUMENTS, *SAVED_OFTEN, "--lr", 0.02, "--warmup", 24, "--data", dataset, "--out", run)
    return run


def test_the_best_checkpoint_stays_when_later_ones_are_worse(worsening):
    valid = losses(worsening)
    best = min(valid, key=valid.get)
    assert list(valid) == [4, 8, 12, 16, 20, 24] and 4 < best < 20, valid
    assert steps_kept(worsening) == [best, 22, 24], "those before the best are gone"


def test_a_resumed_run_keeps_the_best_of_before(worsening, dataset, tmp_path):
    """It stops right after a worse evaluation than that of the best checkpoint, which lies before the stop."""
    valid, run = losses(worsening), tmp_path / "run"
    best = min(valid, key=valid.get)
    process = begin(dataset, run, *SAVED_OFTEN, "--lr", 0.02, "--warmup", 24)
    wait_for_checkpoint(run, best + 4)
    process.kill()
    process.communicate()
    lab("train", "--resume", run)
    assert metrics(run) == metrics(worsening)
    assert steps_kept(run) == [best, 22, 24]
    # From the best itself, whose loss it has only from the manifest.
    lab("train", "--resume", checkpoints(run)[0])
    assert metrics(run) == metrics(worsening)
    assert steps_kept(run) == [best, 22, 24]


def test_a_better_checkpoint_takes_the_place_of_the_best(dataset, tmp_path):
    run = tmp_path / "run"
    lab(*ARGUMENTS, *SAVED_OFTEN, "--data", dataset, "--out", run)
    valid = losses(run)
    best = min(valid, key=valid.get)
    assert valid[4] > valid[8] > valid[best], "each of them was the best for a while"
    assert steps_kept(run) == sorted({best, 22, 24})


def test_of_equal_losses_the_newest_is_the_best(dataset, tmp_path):
    run = tmp_path / "run"
    lab(*ARGUMENTS, *SAVED_OFTEN, "--lr", "1e-30", "--steps", 22, "--data", dataset, "--out", run)
    assert len(set(losses(run).values())) == 1, "nothing is learned"
    assert steps_kept(run) == [20, 22]


def test_the_logged_rate_is_that_of_the_schedule(whole):
    peak, warmup, steps, last = 1e-3, 4, 24, 0.1
    expected = {}
    for step in range(1, steps + 1):
        height = (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
        expected[step] = peak * (step / warmup if step < warmup else last + (1 - last) * height)
    assert losses(whole, "lr") == pytest.approx(expected, rel=8 * 2**-53)


def test_compare_shows_all_runs(whole, worsening, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(whole, first)
    shutil.copytree(worsening, second)
    said = lab("compare", first, second, "--html", tmp_path / "page.html", "--svg", tmp_path / "curves.svg").stdout
    page, picture = (tmp_path / "page.html").read_text(), (tmp_path / "curves.svg").read_text()
    for run, rate in ((first, "0.001"), (second, "0.02")):
        row = next(line.split() for line in said.splitlines() if line.startswith(run.name))
        found = result(run)
        assert row[:5] == [run.name, "came", rate, f"{found['valid_loss']:.4f}", f"{found['perplexity']:.2f}"]
        assert row[5] == f"{found['unigram_loss']:.4f}"
        for text in (f"<td>{run.name}</td>", f"{found['valid_loss']:.4f}", f"<h2>{run.name}</h2>"):
            assert text in page, text
        assert run.name in picture
    assert picture.startswith("<svg") and page.count("<svg") == 2
    curves = re.findall(r'd="(M[^"]*L[^"]*)"', picture)
    assert [curve.count("L") + 1 for curve in curves] == [len(losses(first)), len(losses(second))] == [4, 6]
