"""What the tests of came-lab share: the program, a dataset of real text, runs."""
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(os.environ.get("CAME_LAB", ROOT / "build" / "bin")) / "came-lab"

# Small enough for a second a run, and all that a run has: warm-up, evaluations, checkpoints, dropout.
SMALL = ["--steps", "24", "--batch", "4", "--micro-batch", "2", "--length", "32", "--dropout", "0.1", "--warmup", "4",
         "--eval-every", "6", "--eval-sequences", "8", "--checkpoint-every", "4", "--log-every", "1", "--threads", "1"]
ARGUMENTS = ["train", "gpt2-tiny", "--optimizer", "came", *SMALL]


def lab(*arguments, check=True, **options):
    """Runs came-lab; returns what it printed and its exit status."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def complaint(*arguments, **options):
    """The one line that a run which must fail ends with."""
    done = lab(*arguments, check=False, **options)
    assert done.returncode == 1, (done.returncode, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("came-lab: "), done.stderr
    assert sum(line.startswith("came-lab: ") for line in lines) == 1, done.stderr
    assert "  in " not in done.stderr and "Exception raised" not in done.stderr, done.stderr
    return lines[-1].removeprefix("came-lab: ")


def begin(dataset, run, *more):
    """A run that goes on while the test does."""
    return subprocess.Popen([PROGRAM, *ARGUMENTS, "--data", str(dataset), "--out", str(run), *map(str, more)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_checkpoint(run, step):
    for _ in range(2000):
        if (run / "checkpoints" / f"step-{step:08d}").exists():
            return
        time.sleep(0.005)
    raise AssertionError("no checkpoint")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """The project's own documentation, as came-lab data prepares it."""
    folder = tmp_path_factory.mktemp("data") / "docs"
    lab("data", folder, ROOT / "docs", ROOT / "README.md", "--vocabulary", 600, "--validation", 0.2)
    return folder


def metrics(run):
    return (Path(run) / "metrics.jsonl").read_bytes()


def checkpoints(run):
    return sorted((Path(run) / "checkpoints").glob("step-*"))


def weights(run, step=None):
    """Bytes of a checkpoint's tensors: all but what depends on time."""
    folder = checkpoints(run)[-1] if step is None else Path(run) / "checkpoints" / f"step-{step:08d}"
    return {name: (folder / name).read_bytes()
            for name in ("model.safetensors", "optimizer.safetensors", "random.safetensors")}


def contents(folder):
    """Names and bytes of all files but hidden ones, which are nobody's: locks and what is half written."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*"))
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)}


def result(run):
    return json.loads((Path(run) / "result.json").read_text())
