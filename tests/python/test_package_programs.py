"""Every program in examples/python runs to its end and learns what it sets out to learn; docs/python.md prints what is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForPreTraining

import came_optim

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "python"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))


def output_of(name):
    settings = {**os.environ, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, FOLDER / name], env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(output):
    return [float(loss) for loss in re.findall(r"loss (\d\.\d+)", output)]


def test_minimal_learns():
    output = output_of("minimal.py")
    first, *_, last = losses(output)
    assert last < first / 10
    assert "state after 300 steps" in output


def test_trainer_learns_and_saves_the_state():
    output = output_of("huggingface_trainer.py")
    first, *_, last = map(float, re.search(r"mean loss of each 20: (.*)", output)[1].split())
    assert last < first - 1
    assert "state of 28 parameters" in output


def test_bf16_weights_with_int8_momentum_learn_and_keep_no_gradient():
    output = output_of("bf16_int8_release.py")
    first, *_, last = losses(output)
    assert last < first / 10
    assert "state: 1.12 bytes per parameter; gradients left: 0" in output


def test_graph_learns_or_says_why_not():
    output = output_of("cuda_graph.py")
    if torch.cuda.is_available():
        first, *_, last = losses(output)
        assert last < first / 10 and "303 steps, 300 of them replayed" in output
    else:
        assert output == "cuda_graph: no CUDA device here, nothing to do\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_short_and_tested(name):
    assert len((FOLDER / name).read_text().splitlines()) < 60
    assert f'output_of("{name}")' in Path(__file__).read_text()


def test_the_documented_table_is_what_estimate_prints():
    with torch.device("meta"):
        config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
        bert = BertForPreTraining(config)
    assert f"```\n{came_optim.estimate(bert)}\n```" in (ROOT / "docs" / "python.md").read_text()
