"""Nothing is deleted before there is something better: going back, beginning again, outputs that are links."""
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest

pytest.importorskip("torch")
from lab import (ARGUMENTS, PROGRAM, ROOT, SMALL, checkpoints, complaint, contents, dataset, lab, metrics,  # noqa: F401
                 result, weights)

if not PROGRAM.exists():
    pytest.skip("came-lab is not built", allow_module_level=True)


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    lab(*ARGUMENTS, "--data", dataset, "--out", run)
    return run


@pytest.fixture
def run(whole, tmp_path):
    """A copy of a run that is done."""
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def cut_metrics(run):
    (run / "metrics.jsonl").write_bytes(metrics(run)[:100])


def change_metrics(run):
    (run / "metrics.jsonl").write_bytes(b"x" * len(metrics(run)))


def spoil_configuration(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("batch = 4 ", "batch = 8 "))


def spoil_checkpoint(run):
    path = checkpoints(run)[0] / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("spoil", [cut_metrics, change_metrics, spoil_configuration, spoil_checkpoint])
def test_going_back_that_fails_deletes_nothing(run, spoil):
    spoil(run)
    before = contents(run)
    said = complaint("train", "--resume", checkpoints(run)[0])
    assert contents(run) == before
    assert "earlier" not in said


def test_going_back_without_its_data_deletes_nothing(dataset, tmp_path):
    shutil.copytree(dataset, tmp_path / "data")
    run = tmp_path / "run"
    lab(*ARGUMENTS, "--data", tmp_path / "data", "--out", run)
    before = contents(run)
    (tmp_path / "data").rename(tmp_path / "moved")
    complaint("train", "--resume", checkpoints(run)[0])
    assert contents(run) == before
    lab("data", tmp_path / "data", *sorted((ROOT / "lab").rglob("*.hpp")), "--vocabulary", 600, "--validation", 0.2)
    assert "tokenizer" in complaint("train", "--resume", checkpoints(run)[0])
    assert contents(run) == before


def test_metrics_that_do_not_fit_are_not_cut_and_the_advice_deletes_nothing(run, whole):
    before = metrics(run)
    cut_metrics(run)
    said = complaint("train", "--resume", run)
    assert "metrics.jsonl" in said and "100 bytes" in said and "put the run's own file back" in said
    (run / "metrics.jsonl").write_bytes(before)
    lab("train", "--resume", checkpoints(run)[0])
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


@pytest.mark.parametrize("rest", [None, b"", b"not JSON at all\n", b'{"step": 1, "seco'])
def test_a_lost_timing_file_does_not_block(run, whole, rest):
    (run / "timing.jsonl").unlink()
    if rest is not None:
        (run / "timing.jsonl").write_bytes(rest)
    said = lab("train", "--resume", checkpoints(run)[0]).stderr
    assert "timing.jsonl" in said and "came-lab:" not in said
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)
    assert result(run)["valid_loss"] == result(whole)["valid_loss"]
    lab("compare", run, whole)


def test_times_that_are_unknown_are_not_zero(run, whole):
    (run / "timing.jsonl").unlink()
    lab("train", "--resume", run)  # is done: takes no step that could be timed
    assert result(run)["seconds_per_step"] is None and result(run)["optimizer_share"] is None
    row = next(line for line in lab("compare", run).stdout.splitlines() if " came " in line).split()
    assert row[row.index("MiB") - 3:row.index("MiB") - 1] == ["-", "-"], row


def test_lost_metrics_begin_anew_and_it_is_said(run, whole):
    step = int(checkpoints(run)[0].name[5:])
    (run / "metrics.jsonl").unlink()
    said = lab("train", "--resume", checkpoints(run)[0]).stderr
    assert "metrics.jsonl: lost" in said
    assert weights(run) == weights(whole)
    assert metrics(whole).endswith(metrics(run)) and metrics(run).startswith(f'{{"step":{step + 1},'.encode())


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again(run, tmp_path):
    (run / "checkpoints").rename(tmp_path / "elsewhere")
    before = contents(run)
    assert "checkpoints are gone" in complaint("train", "--resume", run)
    (run / "result.json").unlink()
    assert "checkpoints are gone" in complaint("train", "--resume", run)
    assert contents(run) == {name: data for name, data in before.items() if name != "result.json"}
    (tmp_path / "elsewhere").rename(run / "checkpoints")
    lab("train", "--resume", run)
    assert "result.json" in contents(run)


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))


# 2^24 rows of 3200 floats: 200 GiB, more than the limit above.
TOO_LARGE = ["train", "bert-4b", "--vocabulary", 2**24, "--length", 32, "--batch", 2, "--steps", 2]


def test_a_new_run_that_cannot_be_allocated_leaves_the_old_one(dataset, whole, run):
    before = contents(run)
    said = complaint(*TOO_LARGE, "--data", dataset, "--out", run, "--overwrite", preexec_fn=limit_memory)
    assert "memory" in said and "smaller" in said, said
    assert contents(run) == before
    lab("train", "--resume", checkpoints(run)[0])
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


def test_a_first_run_that_cannot_be_allocated_leaves_the_folder_free(dataset, tmp_path):
    complaint(*TOO_LARGE, "--data", dataset, "--out", tmp_path / "run", preexec_fn=limit_memory)
    assert contents(tmp_path / "run") == {}
    lab(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "run")


def test_a_new_run_that_is_killed_at_any_moment_leaves_one_of_the_two(dataset, whole, tmp_path):
    """Before its first step the old run is as it was; after it, the new one goes on to its end."""
    seed = int(os.environ.get("CAME_TEST_SEED", time.time_ns() % 2**32))
    dice = random.Random(seed)
    other = ["train", "bert-mini", "--optimizer", "adamw", *SMALL, "--steps", "2", "--warmup", "0", "--data", str(dataset)]
    start = time.monotonic()
    lab(*other, "--out", tmp_path / "timed")
    length = time.monotonic() - start
    for trial in range(8):
        run = tmp_path / f"run{trial}"
        shutil.copytree(whole, run)
        process = subprocess.Popen([PROGRAM, *other, "--out", str(run), "--overwrite"], stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0, length))
        process.send_signal(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        process.wait()
        untouched = contents(run) == contents(whole)
        lab("train", "--resume", run)
        if untouched:
            assert weights(run) == weights(whole) and metrics(run) == metrics(whole), (seed, trial)
        else:
            assert weights(run) == weights(tmp_path / "timed"), (seed, trial)
            assert metrics(run) == metrics(tmp_path / "timed"), (seed, trial)


def test_overwriting_replaces_all_of_the_old_run(dataset, whole, run):
    (run / "notes.txt").write_text("mine")
    lab("train", "mlp", *SMALL, "--dropout", 0, "--steps", 2, "--warmup", 0, "--data", dataset, "--out", run, "--overwrite")
    assert [path.name for path in checkpoints(run)] == ["step-00000002"]
    assert len(metrics(run).splitlines()) == 3 and len(list(run.glob("events.out.tfevents.*"))) == 1
    assert (run / "notes.txt").read_text() == "mine"


def test_a_folder_of_something_else_is_not_overwritten(dataset, tmp_path):
    site = tmp_path / "site"
    (site / "checkpoints" / "step-00000001").mkdir(parents=True)
    (site / "config.toml").write_text('title = "my site"\n')
    (site / "result.json").write_text("mine")
    before = contents(site)
    said = complaint(*ARGUMENTS, "--data", dataset, "--out", site, "--overwrite")
    assert "not of a run" in said and "another --out" in said
    assert contents(site) == before
    (tmp_path / "file").write_text("mine")
    assert "not a folder" in complaint(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "file", "--overwrite")


def test_links_to_folders_are_followed_and_stay(dataset, whole, tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("run", "exported"):
        (tmp_path / "disk" / name).mkdir()
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    lab(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "run")
    lab(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "run", "--overwrite")
    lab("train", "--resume", tmp_path / "run")
    lab("export", tmp_path / "run", tmp_path / "exported")
    (tmp_path / "older").symlink_to(checkpoints(tmp_path / "run")[0])
    lab("train", "--resume", tmp_path / "older")
    assert weights(tmp_path / "disk" / "run") == weights(whole)
    assert (tmp_path / "disk" / "exported" / "model.safetensors").exists()
    (tmp_path / "page.html").symlink_to(tmp_path / "disk" / "page.html")
    assert "nowhere" in complaint("compare", whole, "--html", tmp_path / "page.html")
    (tmp_path / "disk" / "page.html").write_text("old")
    lab("compare", whole, "--html", tmp_path / "page.html")
    assert "<svg" in (tmp_path / "disk" / "page.html").read_text()
    for name in ("run", "exported", "page.html"):
        assert (tmp_path / name).is_symlink(), name
    (tmp_path / "broken").symlink_to(tmp_path / "gone")
    complaint(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "broken")
    complaint("export", whole, tmp_path / "broken")
    assert (tmp_path / "broken").is_symlink() and not (tmp_path / "gone").exists()


def test_data_follows_links_and_refuses_the_current_folder(tmp_path):
    text = ROOT / "docs"
    arguments = [text, "--vocabulary", 600, "--validation", 0.2]
    (tmp_path / "here").mkdir()
    for place in (".", "..", tmp_path):
        said = complaint("data", place, *arguments, cwd=tmp_path / "here")
        assert "the current folder" in said and "name a new folder" in said
    assert "home folder" in complaint("data", tmp_path / "here", *arguments, env=os.environ | {"HOME": str(tmp_path / "here")})
    assert list((tmp_path / "here").iterdir()) == []
    (tmp_path / "link").symlink_to(tmp_path / "here")
    lab("data", tmp_path / "link", *arguments)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "here" / "data.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "link"]


def test_what_a_killed_data_leaves_is_removed_by_the_next(tmp_path):
    arguments = [PROGRAM, "data", str(tmp_path / "data"), str(ROOT / "docs"), str(ROOT / "src"), "--suffixes", ".cpp", "--suffixes",
                 ".md", "--vocabulary", "2000"]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    left = tmp_path / f".data.partial-{process.pid}"
    for _ in range(2000):
        if left.exists() or process.poll() is not None:
            break
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert left.exists(), "it was not there when the process was killed"
    assert subprocess.run(arguments, capture_output=True).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_data_path_that_is_not_utf8_is_refused_when_the_run_begins(dataset, tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    shutil.copytree(dataset, os.fsdecode(odd))
    done = subprocess.run([PROGRAM, *ARGUMENTS, "--data", odd, "--out", str(tmp_path / "run")], capture_output=True)
    assert done.returncode == 1
    assert b"data is " in done.stderr and b"not UTF-8" in done.stderr and b"config.toml" in done.stderr
    assert not (tmp_path / "run").exists()
    # Everything else comes back as it was, whatever it looks like.
    plain = tmp_path / "a 'b' \"c\" \\ \t# é\U0001f600\n"
    shutil.copytree(dataset, plain)
    lab(*ARGUMENTS, "--data", plain, "--steps", 2, "--warmup", 0, "--out", tmp_path / "run")
    lab("train", "--resume", tmp_path / "run")


@pytest.mark.parametrize("text", [b"", b"{}", b"{", b"[]", b"null", b'{"valid_loss": null}', b'{"valid_loss": "low"}'])
def test_a_result_without_numbers_is_no_result(run, whole, text):
    whole_text = (run / "result.json").read_bytes()
    for damaged in (text, whole_text[:len(whole_text) // 2]):
        (run / "result.json").write_bytes(damaged)
        said = complaint("compare", whole, run)
        assert "result.json" in said and f"--resume {run}" in said
    lab("train", "--resume", run)
    assert f"{result(whole)['valid_loss']:.4f}" in lab("compare", run).stdout
