"""Every number has a range: what is outside of it is refused in one line that names it, and nothing is written."""
import re

import pytest

pytest.importorskip("torch")
from lab import PROGRAM, ROOT, SMALL, complaint, dataset, lab  # noqa: F401

if not PROGRAM.exists():
    pytest.skip("came-lab is not built", allow_module_level=True)

MOST, LEAST = 2**63 - 1, -(2**63)
WHOLE = ["--vocabulary", "--length", "--steps", "--batch", "--micro-batch", "--threads", "--warmup", "--eval-every",
         "--eval-sequences", "--log-every", "--checkpoint-every", "--keep"]
REAL = ["--dropout", "--mask-rate", "--span-length", "--clip", "--mixup", "--final-rate", "--lr"]
TRAIN = [(flag, value) for flag in WHOLE for value in (MOST, LEAST, -1, 2**32)]
TRAIN += [(flag, value) for flag in REAL for value in ("nan", "inf", "-inf", "1e308", "-1e-308")]
TRAIN += [("--steps", 10**30), ("--seed", 2**63), ("--seed", 2**64 - 1), ("--threads", 100000), ("--mixup", "1e-300"), ("--mixup", "1e300")]


def name_of(flag):
    return flag[2:].replace("-", "_")


@pytest.mark.parametrize("flag, value", TRAIN)
def test_numbers_of_train(dataset, tmp_path, flag, value):
    # The MLP reads sequences of any length, so that no model's own limit is in the way.
    said = complaint("train", "mlp", "--data", dataset, "--out", tmp_path / "run", flag, value)
    assert said.startswith(f"{name_of(flag)} is "), said
    assert not (tmp_path / "run").exists()


def test_every_number_of_train_is_tried():
    said = lab("train", "--help").stdout
    numbers = set(re.findall(r"(--[a-z-]+)(?:,\S+)? (?:INT|FLOAT|UINT)", said))
    assert numbers == set(WHOLE + REAL + ["--seed"])


@pytest.mark.parametrize("key, value", [("length", MOST), ("threads", 100000), ("lr", "nan"), ("clip", "inf"),
                                        ("steps", LEAST), ("final_rate", "-inf"), ("vocabulary", 2**40)])
def test_numbers_of_the_configuration_file(dataset, tmp_path, key, value):
    section = {"length": "data", "lr": "optimizer", "vocabulary": "model"}.get(key, "train")
    (tmp_path / "mine.toml").write_text(f"[{section}]\n{key} = {value}\n")
    said = complaint("train", "mlp", "--data", dataset, "--config", tmp_path / "mine.toml", "--out", tmp_path / "run")
    assert said.startswith(f"{key} is "), said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("flag, value", [("--vocabulary", MOST), ("--vocabulary", -5), ("--validation", "nan"),
                                         ("--validation", "inf"), ("--validation", 0), ("--sample", MOST), ("--sample", 0),
                                         ("--threads", 100000), ("--threads", -1), ("--threads", 2**33)])
def test_numbers_of_data(tmp_path, flag, value):
    said = complaint("data", tmp_path / "data", ROOT / "docs", flag, value)
    assert flag[2:] in said, said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranges") / "run"
    lab("train", "mlp", "--data", dataset, *SMALL, "--dropout", 0, "--steps", 2, "--warmup", 0, "--out", folder)
    return folder


@pytest.mark.parametrize("flag, value", [("--length", MOST), ("--length", LEAST), ("--length", 2**40), ("--sequences", MOST),
                                         ("--sequences", -1)])
def test_numbers_of_eval(run, flag, value):
    assert complaint("eval", run, flag, value).startswith(f"{flag} is {value}, but must be from 0 to ")


@pytest.mark.parametrize("flag, value", [("--temperature", "nan"), ("--temperature", "inf"), ("--temperature", -1),
                                         ("--temperature", "1e-320"), ("--temperature", "1e300"), ("--top", -3),
                                         ("--top", MOST), ("--tokens", 0), ("--tokens", MOST)])
def test_numbers_of_generate(run, flag, value):
    said = complaint("generate", run, "--tokens", 3, flag, value) if flag != "--tokens" else complaint("generate", run, flag, value)
    assert said.startswith(f"{flag} is "), said


def test_the_ends_of_the_ranges_work(run):
    for more in (["--temperature", 0.01], ["--temperature", 100, "--top", 0], ["--top", 2**24, "--seed", 2**64 - 1]):
        lab("generate", run, "--tokens", 5, *more)
    lab("eval", run, "--sequences", 10**9, "--length", 64)


@pytest.mark.parametrize("option, value", [("beta1", "nan"), ("beta2", "1"), ("beta1", "-0.1"), ("eps", "inf"), ("eps", "-1e-8"),
                                           ("weight_decay", "nan"), ("weight_decay", "inf")])
@pytest.mark.parametrize("optimizer", ["torch-adamw", "adamw"])
def test_numbers_of_the_optimizer(dataset, tmp_path, optimizer, option, value):
    said = complaint("train", "mlp", "--data", dataset, "--optimizer", optimizer, "-o", f"{option}={value}", "--out", tmp_path / "run")
    assert option in said, said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("arguments", [["train", "mlp", "--seed", "-1"], ["train", "mlp", "--seed", str(2**64)],
                                       ["train", "mlp", "--steps", "1e400"], ["generate", "run", "--seed", "-1"],
                                       ["data", "out", "--seed", "-7"], ["train", "mlp", "--lr", "1e999999x"]])
def test_what_is_no_number_of_its_kind_is_a_command_line_that_makes_no_sense(tmp_path, arguments):
    done = lab(*arguments, check=False, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("came-lab: "), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cuda:999", "cuda:99999999999999999999", "cuda:-3", "cpu:7", "", "cuda:"])
def test_devices(dataset, tmp_path, device):
    said = complaint("train", "mlp", "--data", dataset, "--device", device, "--out", tmp_path / "run")
    assert said.startswith(f"device is {device}"), said
