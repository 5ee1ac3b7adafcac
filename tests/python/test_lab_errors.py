"""What came-lab says to input that makes no sense: one line, with advice, and status 1."""
import json

import pytest

pytest.importorskip("torch")
from lab import PROGRAM, SMALL, complaint, dataset, lab  # noqa: F401

if not PROGRAM.exists():
    pytest.skip("came-lab is not built", allow_module_level=True)


def text(folder, name, content):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_corpus(tmp_path):
    out = tmp_path / "out"
    assert "nothing-there" in complaint("data", out, tmp_path / "nothing-there")
    (tmp_path / "empty").mkdir()
    assert "empty" in complaint("data", out, tmp_path / "empty")
    assert "blank.txt" in complaint("data", out, text(tmp_path, "blank.txt", "\n \n\n"))
    latin = text(tmp_path, "latin.txt", b"caf\xe9\n\nmore\n\nand more\n" * 100)
    said = complaint("data", out, latin)
    assert "latin.txt" in said and "UTF-8" in said and "3" in said
    lines = text(tmp_path, "lines.jsonl", json.dumps({"text": "fine"}) + "\n{\"body\": 3}\n")
    said = complaint("data", out, lines)
    assert "lines.jsonl:2" in said and "text" in said
    assert not out.exists()


def test_vocabulary_larger_than_the_text_supports(tmp_path):
    small = text(tmp_path, "small.txt", "one two three\n\nfour five six\n\nseven eight\n" * 5)
    said = complaint("data", tmp_path / "out", small, "--vocabulary", 5000)
    assert "5000" in said
    said = complaint("data", tmp_path / "out", small, "--vocabulary", 10)
    assert "10" in said


def test_output_that_is_no_dataset_is_left_alone(tmp_path):
    mine = text(tmp_path / "mine", "letter.txt", "dear all")
    complaint("data", tmp_path / "mine", "--force")
    assert mine.read_text() == "dear all"


@pytest.mark.parametrize("arguments, words", [
    (["gpt2-huge"], ["gpt2-huge", "gpt2-tiny"]),
    (["gpt2-tiny", "--optimizer", "adamx"], ["adamx", "adamw"]),
    (["gpt2-tiny", "--length", "5000"], ["5000", "256"]),
    (["gpt2-tiny", "--batch", "10", "--micro-batch", "4"], ["10", "4"]),
    (["gpt2-tiny", "--batch", "40000"], ["40000", "32768"]),
    (["gpt2-tiny", "-o", "beta9=3"], ["beta9"]),
    (["gpt2-tiny", "-o", "beta3=high"], ["beta3", "high"]),
    (["gpt2-tiny", "-o", "beta3"], ["beta3", "NAME=VALUE"]),
    (["gpt2-tiny", "-o", "lr=0.1"], ["lr", "--lr"]),
    (["gpt2-tiny", "--seed", str(2**63)], ["seed", "2^63"]),
    (["gpt2-tiny", "--mixup", "0.2", "--micro-batch", "1"], ["mixup", "micro_batch"]),
    (["t5-tiny", "--length", "250", "--mask-rate", "0.6", "--span-length", "10"], ["decoder", "256"]),
    (["gpt2-tiny", "--device", "tpu"], ["tpu", "cuda"]),
    (["gpt2-tiny", "--vocabulary", "50"], ["50", "600"]),
    (["gpt2-tiny", "--next-sentence"], ["next_sentence", "BERT"]),
    (["gpt2-tiny", "--steps", "0"], ["steps", "0"]),
])
def test_training(dataset, tmp_path, arguments, words):
    said = complaint("train", *arguments, "--data", dataset, "--out", tmp_path / "run")
    for word in words:
        assert word in said, said


def test_no_cuda_where_it_is_asked_for(dataset, tmp_path):
    import torch
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    said = complaint("train", "gpt2-tiny", "--data", dataset, "--device", "cuda", "--out", tmp_path / "run")
    assert "cuda" in said and "--device cpu" in said


def test_data_that_is_missing_or_too_short(dataset, tmp_path):
    assert "nowhere" in complaint("train", "gpt2-tiny", "--data", tmp_path / "nowhere", "--out", tmp_path / "run")
    short = text(tmp_path, "short.txt", "\n\n".join(f"Line number {k} is here." for k in range(60)) + "\n")
    lab("data", tmp_path / "short", short, "--vocabulary", 380)
    said = complaint("train", "gpt2-tiny", "--data", tmp_path / "short", "--length", 256, "--out", tmp_path / "run")
    assert "256" in said


def test_folders_that_are_taken(dataset, tmp_path):
    arguments = ["train", "gpt2-tiny", "--data", dataset, *SMALL, "--steps", 2, "--warmup", 0]
    lab(*arguments, "--out", tmp_path / "run")
    assert "--resume" in complaint(*arguments, "--out", tmp_path / "run")
    lab(*arguments, "--out", tmp_path / "run", "--overwrite")
    text(tmp_path / "mine", "letter.txt", "dear all")
    assert "mine" in complaint(*arguments, "--out", tmp_path / "mine")
    assert "no run" in complaint("train", "--resume", tmp_path / "mine")
    assert "--lr" in complaint("train", "--resume", tmp_path / "run", "--lr", 1)


def test_folder_of_a_run_that_was_killed_as_it_began(dataset, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    lab("train", "gpt2-tiny", "--data", dataset, *SMALL, "--steps", 2, "--warmup", 0, "--out", tmp_path / "run")


def test_evaluation_and_prompts(dataset, tmp_path):
    lab("train", "gpt2-tiny", "--data", dataset, *SMALL, "--steps", 2, "--warmup", 0, "--out", tmp_path / "run")
    assert "--sequences" in complaint("eval", tmp_path / "run", "--sequences", -1)
    assert "--length" in complaint("eval", tmp_path / "run", "--length", -7)
    assert "UTF-8" in complaint("generate", tmp_path / "run", "--prompt", b"\xff\xfe".decode(errors="surrogateescape"))
    said = lab("generate", tmp_path / "run", "--top", 0, "--temperature", 3, "--tokens", 100).stdout
    assert said.encode()


def test_configuration_files(tmp_path):
    path = text(tmp_path, "mine.toml", "[train]\nstepz = 3\n")
    said = complaint("train", "--config", path)
    assert "mine.toml:2" in said and "stepz" in said
    assert "absent.toml" in complaint("train", "--config", tmp_path / "absent.toml")


def test_generate_wants_a_model_that_writes(dataset, tmp_path):
    lab("train", "bert-tiny", "--data", dataset, *SMALL, "--steps", 2, "--warmup", 0, "--out", tmp_path / "run")
    assert "GPT-2" in complaint("generate", tmp_path / "run")


@pytest.mark.parametrize("command", ["data", "train", "eval", "generate", "export", "compare"])
def test_help_has_an_example(command):
    said = lab(command, "--help").stdout
    assert f"came-lab {command}" in said and "Example" in said


def test_no_sense_on_the_command_line_is_status_2():
    assert lab(check=False).returncode == 2
    assert lab("trian", check=False).returncode == 2
    assert lab("train", "gpt2-tiny", "--stepz", "3", check=False).returncode == 2
    assert lab("train", "gpt2-tiny", "--steps", "many", check=False).returncode == 2
