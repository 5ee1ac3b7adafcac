"""bench/compare.py keeps its promises: every row, sound figures, the right shapes, and nothing lost to an interrupt."""

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import command
import compare

OURS = [
    "adamw/libcame",
    "came/libcame",
    "came/libcame/bf16 momentum",
    "came/libcame/int8 momentum",
    "came/libcame/int4 momentum",
    "came/libcame/bf16",
    "adafactor/libcame",
    "sm3/libcame",
    "lamb/libcame",
]
PACKAGE = ["adamw/package", "came/package"]  # ours through torch's interface: it allocates as others do
RIVALS = [
    "adamw/torch-fused",
    "adamw/torch-fused/bf16",
    "adamw/torch-foreach",
    "came/came-pytorch",
    "adafactor/transformers",
    "sm3/pytorch_optimizer",
    "lamb/pytorch_optimizer",
]
BYTES_MOVED = {"adamw": 28, "came": 28, "adafactor": 24, "sm3": 20, "lamb": 40}  # per parameter, all f32
# One thread: on a machine that other tests keep busy, a second one makes every tiny step wait for a time slice.
QUICK = ["--quick", "--threads", "1"]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "quick.json"
    assert compare.main([*QUICK, "--json", str(path)]) == 0
    return json.loads(path.read_text())


def positive(figure):
    return isinstance(figure, (int, float)) and math.isfinite(figure) and figure > 0


def test_every_row_is_there(document):
    assert document["finished"] and not document["skipped"]
    assert list(document["models"]) == ["quick"]
    assert sorted(row["name"] for row in document["models"]["quick"]["rows"]) == sorted(OURS + PACKAGE + RIVALS)


def test_every_figure_is_sound(document):
    copy = document["copy_gb_per_s"]
    assert positive(copy["before"]) and positive(copy["after"])
    for row in document["models"]["quick"]["rows"]:
        always = ("ns_per_param", "baseline_ns_per_param", "state_bytes_per_param")
        of_ours = ("bytes_moved_per_param", "gb_per_s", "share_of_copy")
        assert all(positive(row[key]) for key in always), row
        assert all(positive(row[key]) if row["name"] in OURS + PACKAGE else row[key] is None for key in of_ours), row
        assert (row["buffer_bytes"] is not None) == (row["name"] in OURS), row
        assert row["growth_bytes"] is None or row["growth_bytes"] >= 0, row
        ratio = row["ratio"]
        assert positive(ratio["q1"]) and ratio["q1"] <= ratio["median"] <= ratio["q3"] < math.inf, row
        assert (row["ratio_bf16"] is not None) == (row["name"] == "came/libcame/bf16"), row
        assert len(row["seconds"]) == len(row["baseline_seconds"]) == 3 and all(map(positive, row["seconds"])), row


def test_the_byte_model_is_that_of_the_design(document):
    rows = {row["name"]: row for row in document["models"]["quick"]["rows"]}
    assert {word: rows[f"{word}/libcame"]["bytes_moved_per_param"] for word in BYTES_MOVED} == BYTES_MOVED
    assert rows["came/libcame/bf16"]["bytes_moved_per_param"] == 14


def test_the_shape_lists_are_the_models():
    sizes = {name: (len(shapes), sum(map(math.prod, shapes))) for name, shapes in command.known_models(compare.LIBRARY).items()}
    assert sizes == {
        "bert_large": (398, 336_226_108),
        "gpt2_small": (148, 124_439_808),
        "gpt2_medium": (292, 354_823_168),
        "unet": (46, 14_022_660),
        "small": (1000, 4_096_000),
        "llama_7b": (291, 6_738_415_616),
        "llama_70b": (723, 68_976_648_192),
    }


def test_an_interrupt_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    measure, calls = compare.measure, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(compare, "measure", interrupted)
    path = tmp_path / "interrupted.json"
    assert compare.main([*QUICK, "--json", str(path)]) == 130
    content = json.loads(path.read_text())
    assert not content["finished"] and len(content["models"]["quick"]["rows"]) == 2
    assert f"interrupted after 2 rows, kept in {path}" in capsys.readouterr().err


def test_a_filter_keeps_the_baseline(tmp_path):
    path = tmp_path / "only.json"
    assert compare.main([*QUICK, "--only", "^sm3/libcame$", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["models"]["quick"]["rows"]
    assert [row["name"] for row in rows] == ["adamw/torch-fused", "sm3/libcame"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--models", "bert"], "--models: given 'bert', expected some of bert_large, gpt2_small, "
         "gpt2_medium, unet, small, llama_7b"),
        (["--quick", "--threads", "0"], "--threads: given 0, expected at least 1"),
        (["--quick", "--only", "["], "--only: given '[', expected a regular expression"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        compare.main(arguments)
    assert message in capsys.readouterr().err
