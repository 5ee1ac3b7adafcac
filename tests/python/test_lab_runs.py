"""Runs of came-lab: what it leaves behind, and that stopping it, however rudely, changes nothing."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest

pytest.importorskip("torch")
from lab import (ARGUMENTS, PROGRAM, ROOT, SMALL, begin, checkpoints, complaint, dataset, lab, metrics,  # noqa: F401
                 result, wait_for_checkpoint, weights)

if not PROGRAM.exists():
    pytest.skip("came-lab is not built", allow_module_level=True)


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    lab(*ARGUMENTS, "--data", dataset, "--out", run)
    return run


def test_two_runs_are_the_same_bit_for_bit(dataset, whole, tmp_path):
    lab(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(whole)
    assert weights(tmp_path / "run") == weights(whole)


def test_kill_at_random_moments_loses_nothing(dataset, whole, tmp_path):
    """Ten runs, each killed at a random moment, some of them twice, then resumed to the end."""
    seed = int(os.environ.get("CAME_TEST_SEED", time.time_ns() % 2**32))
    dice = random.Random(seed)
    start = time.monotonic()
    lab(*ARGUMENTS, "--data", dataset, "--out", tmp_path / "timed")
    length = time.monotonic() - start
    for trial in range(10):
        run = tmp_path / f"run{trial}"
        process = begin(dataset, run)
        time.sleep(dice.uniform(0, length))
        process.kill()
        process.communicate()
        if not (run / "config.toml").exists():  # killed before it had begun
            lab(*ARGUMENTS, "--data", dataset, "--out", run)
        elif dice.random() < 0.3:
            again = subprocess.Popen([PROGRAM, "train", "--resume", str(run)], stderr=subprocess.DEVNULL)
            time.sleep(dice.uniform(0, length))
            again.kill()
            again.wait()
        lab("train", "--resume", run)
        assert metrics(run) == metrics(whole), (seed, trial)
        assert weights(run) == weights(whole), (seed, trial)
        shutil.rmtree(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_step_and_save(dataset, whole, tmp_path, number):
    run = tmp_path / "run"
    process = begin(dataset, run)
    wait_for_checkpoint(run, 4)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"go on with: came-lab train --resume {run}" in said
    lab("train", "--resume", run)
    assert metrics(run) == metrics(whole)
    assert weights(run) == weights(whole)


def test_resume_from_an_older_checkpoint(dataset, whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    older, written = checkpoints(run)[0], checkpoints(run)[-1].stat().st_ino
    said = lab("train", "--resume", older)
    assert f"going on after step {int(older.name[5:])} of 24" in said.stderr
    assert checkpoints(run)[-1].stat().st_ino != written, "it was not trained again"
    assert metrics(run) == metrics(whole)
    assert weights(run) == weights(whole)


def limit_files(size):
    """Files cannot grow beyond the limit: write() fails in the middle of one, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_failing_to_go_back_leaves_the_newer_checkpoints_usable(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    complaint("train", "--resume", checkpoints(run)[0], preexec_fn=lambda: limit_files(20))
    lab("train", "--resume", run)
    assert metrics(run) == metrics(whole)
    assert weights(run) == weights(whole)


def test_going_back_unmakes_the_result(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    said = lab("train", "--resume", checkpoints(run)[0], check=False, preexec_fn=lambda: limit_files(100_000))
    assert said.returncode == 1
    assert not (run / "result.json").exists()


def test_diverging_saves_nothing_and_says_so(dataset, tmp_path):
    run = tmp_path / "run"
    arguments = ["train", "gpt2-tiny", "--data", dataset, *SMALL, "--lr", "1e30", "--clip", "0", "--out", run]
    said = complaint(*arguments, "--log-every", 50, "--eval-every", 0, "--checkpoint-every", 1, "--warmup", 0)
    assert "smaller lr" in said
    torch, load_file = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch").load_file
    for checkpoint in checkpoints(run):
        assert all(torch.isfinite(tensor).all() for tensor in load_file(checkpoint / "model.safetensors").values())
    assert not (run / "result.json").exists()


def test_a_terminal_that_is_gone_stops_nothing(dataset, whole, tmp_path):
    run = tmp_path / "run"
    with open("/dev/full", "w") as full:
        process = subprocess.run([PROGRAM, *ARGUMENTS, "--data", str(dataset), "--out", str(run)], stderr=full)
        assert process.returncode == 0
        assert subprocess.run([PROGRAM, "train", "--resume", tmp_path / "none"], stderr=full).returncode == 1
    assert weights(run) == weights(whole)


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    lab("train", "--resume", run)
    assert result(run) | {"peak_bytes": 0} == result(whole) | {"peak_bytes": 0}
    assert metrics(run) == metrics(whole)


def test_data_with_another_tokenizer_is_refused(dataset, whole, tmp_path):
    other = tmp_path / "other"
    lab("data", other, *sorted((ROOT / "lab").rglob("*.hpp")), "--vocabulary", 600, "--validation", 0.2)
    assert "tokenizer" in complaint("eval", whole, "--data", other)


@pytest.mark.parametrize("more", [["--mixup", "0.4"], ["--activation-checkpoints"]])
def test_options_resume_too(dataset, tmp_path, more):
    lab(*ARGUMENTS, *more, "--data", dataset, "--out", tmp_path / "whole")
    process = begin(dataset, tmp_path / "run", *more)
    wait_for_checkpoint(tmp_path / "run", 4)
    process.kill()
    process.communicate()
    lab("train", "--resume", tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_two_writers_are_refused(dataset, tmp_path):
    run = tmp_path / "run"
    process = begin(dataset, run)
    wait_for_checkpoint(run, 4)
    said = complaint("train", "--resume", run)
    process.kill()
    process.communicate()
    assert str(process.pid) in said


def test_full_disk_loses_no_checkpoint(dataset, whole, tmp_path):
    run = tmp_path / "run"
    process = begin(dataset, run)
    wait_for_checkpoint(run, 4)
    process.kill()
    process.communicate()
    kept = checkpoints(run)
    limit = (kept[0] / "model.safetensors").stat().st_size // 2
    said = complaint("train", "--resume", run, preexec_fn=lambda: limit_files(limit))
    assert "model.safetensors" in said and ("large" in said or "space" in said), said
    assert checkpoints(run) == kept
    lab("train", "--resume", run)
    assert weights(run) == weights(whole)


def break_file(kind, path, other):
    data = bytearray(path.read_bytes())
    if kind == "truncated":
        path.write_bytes(data[:-100])
    elif kind == "corrupted":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif kind == "foreign":
        path.write_bytes((other / path.name).read_bytes())
    else:
        path.unlink()


@pytest.mark.parametrize("kind", ["truncated", "corrupted", "foreign", "missing"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "manifest.json"])
def test_damaged_checkpoints_are_named(whole, tmp_path, kind, name):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    newest, older = checkpoints(run)[-1], checkpoints(run)[-2]
    break_file(kind, newest / name, older)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    if kind == "corrupted" and name == "manifest.json":
        said = lab("train", "--resume", run, check=False).stderr  # a digit or a name: whichever bit was hit
        assert "came-lab:" in said
    else:
        said = complaint("train", "--resume", run)
    assert str(newest) in said and older.name in said, said
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}.items() <= before.items()
    lab("train", "--resume", older)
    assert weights(run) == weights(whole)


def test_checkpoint_of_another_model_is_refused(dataset, whole, tmp_path):
    other, run = tmp_path / "other", tmp_path / "run"
    lab("train", "bert-tiny", "--optimizer", "came", *SMALL, "--data", dataset, "--out", other)
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other / "checkpoints", run / "checkpoints")
    said = complaint("train", "--resume", run)
    assert "bert-tiny" in said and "gpt2-tiny" in said


def test_metrics_are_what_tensorboard_reads(whole):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(whole), size_guidance={"scalars": 0})
    events.Reload()
    entries = [json.loads(line) for line in metrics(whole).splitlines()]
    for tag, key in (("loss/train", "loss"), ("lr", "lr"), ("grad_norm", "grad_norm"), ("loss/valid", "valid_loss")):
        read = [(event.step, event.value) for event in events.Scalars(tag)]
        want = [(entry["step"], entry[key]) for entry in entries if key in entry]
        assert [step for step, _ in read] == [step for step, _ in want], tag
        assert read == [(step, pytest.approx(value, rel=1e-6)) for step, value in want], tag


def test_resolved_configuration_repeats_the_run(whole, tmp_path):
    lab("train", "--config", whole / "config.toml", "--out", tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(whole)


def test_export_agrees_with_transformers(dataset, whole, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file
    said = lab("export", whole, tmp_path / "exported").stdout
    assert "transformers.GPT2LMHeadModel" in said
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "exported")
    assert sum(p.numel() for p in model.parameters()) == result(whole)["parameters"]
    trained = load_file(checkpoints(whole)[-1] / "model.safetensors")
    loaded = model.state_dict()
    assert trained and all(torch.equal(loaded[name], tensor) for name, tensor in trained.items())
    assert (tmp_path / "exported" / "tokenizer.model").read_bytes() == (dataset / "tokenizer.model").read_bytes()


def test_eval_repeats_the_last_evaluation(whole):
    said = lab("eval", whole, "--sequences", 8).stdout
    assert f"loss {result(whole)['valid_loss']:.4f}" in said


def test_generate_writes_after_the_prompt(whole):
    first = lab("generate", whole, "--prompt", "The optimizer", "--tokens", 30).stdout
    assert first.startswith("The optimizer") and len(first) > 40
    assert lab("generate", whole, "--prompt", "The optimizer", "--tokens", 30).stdout == first
    assert lab("generate", whole, "--prompt", "The optimizer", "--tokens", 30, "--seed", 2).stdout != first


@pytest.mark.parametrize("model", ["bert-tiny", "t5-tiny", "mlp"])
def test_every_family_trains_and_resumes(dataset, tmp_path, model):
    arguments = ["train", model, "--optimizer", "adamw", "--data", dataset, *SMALL]
    if model == "mlp":
        arguments += ["--dropout", "0"]  # it has none
    lab(*arguments, "--out", tmp_path / "whole")
    process = subprocess.Popen([PROGRAM, *map(str, arguments), "--out", tmp_path / "run"], stderr=subprocess.DEVNULL)
    wait_for_checkpoint(tmp_path / "run", 4)
    process.kill()
    process.wait()
    lab("train", "--resume", tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    losses = [json.loads(line).get("valid_loss") for line in metrics(tmp_path / "run").splitlines()]
    losses = [loss for loss in losses if loss]
    assert losses[-1] < losses[0]
