"""bench/gpu.py keeps its promises, as far as a machine without a GPU can tell: every row, sound figures, and a plain
CAME that is CAME."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import devices
import gpu
import gpu_subjects
import subjects

QUICK = ["--device", "cpu", "--quick"]
# What only a GPU has.
ABSENT = ("graph_milliseconds", "graph_ratio", "graph_error", "launches", "taken_bytes")


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    torch.set_num_threads(1)  # with more, tiny steps wait for time slices on a busy machine
    path = tmp_path_factory.mktemp("gpu") / "quick.json"
    assert gpu.main([*QUICK, "--json", str(path)]) == 0
    return json.loads(path.read_text())


def positive(figure):
    return isinstance(figure, (int, float)) and math.isfinite(figure) and figure > 0


def ordered(quartiles):
    return positive(quartiles["q1"]) and quartiles["q1"] <= quartiles["median"] <= quartiles["q3"] < math.inf


def test_every_subject_has_its_row(document):
    assert document["finished"] and not document["skipped"]
    names = [row["name"] for row in document["models"]["quick"]["rows"]]
    assert names == [subject.name for subject in gpu_subjects.SUBJECTS] and len(set(names)) == len(names)
    assert gpu_subjects.EVERYWHERE <= set(names)


def test_every_figure_is_sound(document):
    copy = document["copy_gb_per_s"]
    assert positive(copy["before"]) and positive(copy["after"])
    for row in document["models"]["quick"]["rows"]:
        assert all(positive(row[key]) for key in ("ns_per_param", "host_milliseconds", "state_bytes_per_param")), row
        assert all(ordered(row[key]) for key in ("milliseconds", "baseline_milliseconds", "ratio")), row
        assert (row["buffer_bytes"] is not None) == (row["implementation"] == "libcame"), row
        assert (row["share_of_copy"] is None) == (row["bytes_moved_per_param"] is None), row
        assert all(row[key] is None for key in ABSENT), row
        assert len(row["seconds"]) == len(row["baseline_seconds"]) == 3 and all(map(positive, row["seconds"])), row


def test_the_byte_model_is_that_of_the_design(document):
    moved = {row["name"]: row["bytes_moved_per_param"] for row in document["models"]["quick"]["rows"]}
    assert moved["adamw/torch-fused"] == 28 and moved["adamw/torch-fused/bf16"] == 14
    assert moved["came/libcame"] == 28 and moved["came/libcame/bf16, bf16 momentum"] == 14
    assert moved["came/libcame/bf16, int8 momentum"] == 8 + 3 * (1 + 4 / 128)


def test_the_plain_came_is_ours(monkeypatch):
    """The same steps, to the rounding of f32 in what divides: a few units in the last place of the displacement."""
    monkeypatch.setattr(gpu_subjects, "LR", 1e-3)
    monkeypatch.setattr(subjects, "LR", 1e-3)
    shapes = [[48, 64], [64], [8, 4, 3, 3]]
    plain, own = devices.make_parameters(devices.Host(), shapes), devices.make_parameters(devices.Host(), shapes)
    start = [p.detach().clone() for p in plain]
    lanes = gpu_subjects.CompiledCame(plain), subjects.Ours(own, "came", momentum_dtype="f32", view="fold", **subjects.PAPER)
    for _ in range(20):
        for lane in lanes:
            lane.step()
    for first, p, q in zip(start, plain, own):
        moved = (p - first).abs().max()
        assert moved > 1e-2 and (p - q).abs().max() <= 1e-4 * moved


def test_a_missing_package_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "came_pytorch", None)
    path = tmp_path / "missing.json"
    assert gpu.main([*QUICK, "--only", "came-pytorch|^sm3", "--json", str(path)]) == 0
    content = json.loads(path.read_text())
    assert list(content["skipped"]) == ["quick: came/came-pytorch"]
    names = [row["name"] for row in content["models"]["quick"]["rows"]]
    assert names == ["adamw/torch-fused", "sm3/libcame", "adamw/torch-fused/bf16"]


def test_a_failure_of_ours_is_one_of_the_run(monkeypatch, capsys):
    monkeypatch.setattr(subjects.Ours, "step", lambda self: 1 / 0)
    assert gpu.main([*QUICK, "--only", "^sm3"]) == 1
    assert "quick: sm3/libcame: skipped: ZeroDivisionError" in capsys.readouterr().out


def test_a_subject_that_is_never_ready_is_left_out():
    with pytest.raises(TimeoutError, match="not ready after 0.01 s"), gpu.deadline(0.01):
        while True:
            pass
