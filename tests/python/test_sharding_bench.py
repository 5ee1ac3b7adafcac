"""bench/sharding.py: what the plans of its ranks say is what the shapes say by hand."""

import doctest
import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import command
import sharding
from came_optim import library, native


@pytest.fixture(scope="module")
def models():
    return command.known_models(next(path for path in library.candidates() if path.is_file()))


# What a tensor split by rows must exchange, in doubles: a matrix of n rows and m columns, and a vector.
EXCHANGED = {
    "came": {"statistics": (lambda n, m: 2 * m + 1, 1), "momentum": (lambda n, m: m + 1, 0), "apply": (lambda n, m: 0, 0)},
    "adafactor": {"statistics": (lambda n, m: 2 * m + 1, 1), "apply": (lambda n, m: 0, 0)},
    "adam": {"apply": (lambda n, m: 0, 0)},
    "adamw": {"apply": (lambda n, m: 0, 0)},
    "lamb": {"moments": (lambda n, m: 2, 2), "apply": (lambda n, m: 0, 0)},
    "sm3": {"cover": (lambda n, m: n + m, 0), "apply": (lambda n, m: 0, 0)},
}
# What rank 0 holds, of n rows of m elements, in f32: moments, and statistics per row and per column of a matrix.
HELD = {
    "came": (lambda n, m: n * m + 2 * (n + m), lambda n: 2 * n),
    "adafactor": (lambda n, m: n * m + n + m, lambda n: 2 * n),
    "adam": (lambda n, m: 2 * n * m, lambda n: 2 * n),
    "adamw": (lambda n, m: 2 * n * m, lambda n: 2 * n),
    "lamb": (lambda n, m: 2 * n * m, lambda n: 2 * n),
    "sm3": (lambda n, m: n * m + n + m, lambda n: 2 * n),
}


@pytest.mark.parametrize("word", native.ALGORITHMS)
@pytest.mark.parametrize("name, ranks", [("bert_large", 8), ("llama_7b", 64), ("llama_70b", 512)])
def test_a_row_is_what_the_shapes_say(models, name, ranks, word):
    shapes = models[name]
    row = sharding.measure(shapes, word, ranks)
    doubles = {
        phase: sum(matrix(*shape) if len(shape) == 2 else vector for shape in shapes)
        for phase, (matrix, vector) in EXCHANGED[word].items()
    }
    doubles[next(iter(doubles))] += 2 * len(shapes)  # has a gradient, has none
    assert row["presence"] == 2 * len(shapes)
    assert row["doubles"] == doubles
    assert row["reduction_bytes"] == 8 * sum(doubles.values())
    assert row["ring_bytes"] == round(2 * row["reduction_bytes"] * (ranks - 1) / ranks)
    assert row["fsdp2_bytes"] == pytest.approx(6 * sum(map(math.prod, shapes)) * (1 - 1 / ranks), abs=1)

    matrix, vector = HELD[word]
    held = [(math.ceil(n / ranks), *rest) for n, *rest in shapes]
    assert row["state_bytes"] == 4 * sum(matrix(*shape) if len(shape) == 2 else vector(*shape) for shape in held)


def test_ranks_exchange_the_same_and_none_holds_more_than_rank_0(models):
    shapes, ranks = [*models["bert_large"], *models["unet"]], 24
    rows = [sharding.measure(shapes, "came", ranks, rank) for rank in range(ranks)]
    states = [row.pop("state_bytes") for row in rows]
    assert all(row == rows[0] for row in rows)
    assert states[0] == max(states) and len(set(states)) > 1


def test_shards_make_up_the_tensor():
    parts = [sharding.shard([10, 3], 4, rank) for rank in range(4)]
    assert [part.extent for part in parts] == [(3, 3), (3, 3), (3, 3), (1, 3)]
    assert [part.offset for part in parts] == [(0, 0), (3, 0), (6, 0), (9, 0)]
    assert [sharding.shard([2], 3, rank).extent for rank in range(3)] == [(1,), (1,), (0,)]


def test_the_document_and_the_table(tmp_path, capsys):
    path = tmp_path / "sharding.json"
    assert sharding.main(["--models", "unet", "--ranks", "8,1", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    rows = document["models"]["unet"]["rows"]
    assert [(row["ranks"], row["optimizer"]) for row in rows] == [(n, word) for n in (8, 1) for word in native.ALGORITHMS]
    assert set(document["formulas"]) == set(rows[0]) - {"optimizer", "ranks"}
    assert document["machine"]["cpu"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "unet: 46 tensors, 14022660 parameters" and len(lines) == 15
    assert doctest.testmod(sharding).failed == 0


@pytest.mark.parametrize("given", [["--models", "bert"], ["--ranks", "0"], ["--ranks", "8,many"]])
def test_a_bad_argument_is_named(given, capsys):
    with pytest.raises(SystemExit) as error:
        sharding.main(given)
    told = capsys.readouterr().err
    assert error.value.code == 2 and f"{given[0]}: given" in told and "expected" in told
