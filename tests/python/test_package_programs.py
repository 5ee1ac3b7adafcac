"""Every program in examples/python runs to its end and learns what it sets out to learn; docs/python.md prints what is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import BertConfig, BertForPreTraining

import came_optim

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "python"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))


def output_of(name, *arguments, processes=None):
    settings = {**os.environ, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    command = [sys.executable, *launcher, FOLDER / name, *arguments]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300)
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
    # Vectors, a hundredth of this small model, keep f32.
    assert "state: 1.14 bytes per parameter; gradients left: 0" in output


def test_graph_learns_or_says_why_not():
    output = output_of("cuda_graph.py")
    if torch.cuda.is_available():
        first, *_, last = losses(output)
        assert last < first / 10 and "303 steps, 300 of them replayed" in output
    else:
        assert output == "cuda_graph: no CUDA device here, nothing to do\n"


def test_sharded_training_goes_on_with_another_number_of_processes(tmp_path):
    """In f64, in which sums over other ranks are apart by 1e-16; eight steps do not make 1e-10 of the displacement of it."""
    half, stopped, whole = (str(tmp_path / name) for name in ("half", "stopped", "whole"))
    expected = output_of("fsdp2.py", "--dtype", "float64", "--steps", "16", "--save", whole, processes=4)
    first = output_of("fsdp2.py", "--dtype", "float64", "--steps", "8", "--save", half, processes=4)
    second = output_of("fsdp2.py", "--dtype", "float64", "--steps", "16", "--resume", half, "--save", stopped, processes=2)
    assert losses(expected)[-1] < losses(expected)[0] - 1
    assert second.splitlines() == expected.splitlines()[1:] and first.splitlines()[0] == expected.splitlines()[0]  # one process prints
    ours, theirs, origin = map(saved_model, (stopped, whole, half))
    for name, value in theirs.items():
        assert (ours[name] - value).abs().max() <= 1e-10 * (value - origin[name]).abs().max(), name


def saved_model(folder):
    """The whole weights of a checkpoint of torch.distributed.checkpoint."""
    dcp_to_torch_save(folder, folder + ".pt")
    return torch.load(folder + ".pt", weights_only=True)["model"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_short_and_tested(name):
    assert len((FOLDER / name).read_text().splitlines()) < (110 if name == "fsdp2.py" else 60)  # which has a model of its own
    assert f'output_of("{name}"' in Path(__file__).read_text()


def test_the_documented_table_is_what_estimate_prints():
    with torch.device("meta"):
        config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
        bert = BertForPreTraining(config)
    assert f"```\n{came_optim.estimate(bert)}\n```" in (ROOT / "docs" / "python.md").read_text()
