"""How fast does came-lab train on a GPU, and how much of a step is the optimizer?

    python3 bench/lab_speed.py --data FOLDER --json build/lab_speed.json --machine NAME [--program build/cuda/bin/came-lab]
    cp build/lab_speed.json bench/results/lab_speed.json          to keep it: docs/lab.md quotes that file

Each model and optimizer trains for 60 steps in a process of its own, in bf16 with parameters in f32.  Reported: the median of
the tokens per second between entries of timing.jsonl, a tenth of the run each, but for the first two; the optimizer's
share of measured steps; the allocator's peak.  `vocabulary` is the original model's, whatever the tokenizer has.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS, EVERY = 60, 6

# Model: length, batch, vocabulary.
MODELS = {"gpt2-small": (1024, 32, 50257), "bert-large": (128, 128, 30522), "t5-base": (512, 32, 32128)}
OPTIMIZERS = {
    "CAME": ["--optimizer", "came", "-o", "bias_correction=true"],
    "CAME, int8 momentum": ["--optimizer", "came", "-o", "bias_correction=true", "-o", "momentum_dtype=int8"],
    "AdamW": ["--optimizer", "adamw"],
    "libtorch AdamW": ["--optimizer", "torch-adamw"],
}


def measure(program: Path, data: Path, model: str, name: str) -> dict:
    length, batch, vocabulary = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run([program, "train", model, *OPTIMIZERS[name], "--lr", "1e-4", "--data", data, "--out", run, "--length",
                        str(length), "--batch", str(batch), "--vocabulary", str(vocabulary), "--device", "cuda", "--precision", "bf16",
                        "--steps", str(STEPS), "--log-every", str(EVERY), "--eval-every", "0", "--eval-sequences", str(batch),
                        "--checkpoint-every", "0"], check=True, capture_output=True)
        entries = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()][2:]
        result = json.loads((run / "result.json").read_text())
    speeds = [entry["tokens_per_second"] for entry in entries]
    return {"model": model, "optimizer": name, "length": length, "batch": batch, "parameters": result["parameters"],
            "tokens_per_second": statistics.median(speeds), "slowest": min(speeds), "fastest": max(speeds),
            "seconds_per_step": statistics.median(entry["seconds_per_step"] for entry in entries),
            "optimizer_seconds": statistics.median(entry["optimizer_seconds"] for entry in entries),
            "optimizer_share": statistics.median(entry["optimizer_share"] for entry in entries),
            "state_bytes": result["state_bytes"], "peak_bytes": result["peak_bytes"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "cuda" / "bin" / "came-lab")
    parser.add_argument("--machine", required=True, help="what the file says they ran on")
    options = parser.parse_args()
    found = []
    for model in MODELS:
        for name in OPTIMIZERS:
            one = measure(options.program, options.data, model, name)
            found.append(one)
            print(f"{model:11} {name:20} {one['tokens_per_second']:9.0f} tokens/s  optimizer {100 * one['optimizer_share']:4.1f} %  "
                  f"{one['peak_bytes'] / 2**30:.2f} GiB", flush=True)
            options.json.write_text(json.dumps({"machine": options.machine, "steps": STEPS, "runs": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
