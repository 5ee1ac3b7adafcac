"""Does every optimizer learn every objective?  Trains tiny models on real text and keeps the curves.

    python3 bench/lab_learning.py --data NAME=FOLDER [NAME=FOLDER...] --out build/learning [--device cuda] [--jobs 8]
    cp build/learning/learning.json bench/results/lab_learning.json; cp build/learning/*.svg docs/images/   to keep them

Each FOLDER is what `came-lab data` wrote.  All runs of a model see the same sequences in the same order; the rates are
those below, the best of two to four tried on Python's documentation in runs of 500 or 1000 steps.  Every run must end below the unigram baseline, a
model that knows only token frequencies; the script fails otherwise.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Sequences and steps of a run.
MODELS = {
    "gpt2-tiny": (["--length", "128", "--batch", "32"], 600),
    "bert-tiny": (["--length", "128", "--batch", "128"], 1000),
    "t5-tiny": (["--length", "128", "--batch", "64"], 600),
}
# Name in the picture: optimizer, learning rate for each model, options.
SUBJECTS = {
    "CAME": ("came", (5e-4, 2.5e-4, 2.5e-4), ["bias_correction=false"]),  # as in the paper
    "CAME, bias_correction": ("came", (4e-3, 4e-3, 2e-3), ["bias_correction=true"]),
    "Adafactor": ("adafactor", (4e-3, 2e-3, 2e-3), []),
    "Adam": ("adam", (4e-3, 2e-3, 2e-3), []),
    "AdamW": ("adamw", (4e-3, 2e-3, 2e-3), []),
    "LAMB": ("lamb", (2e-2, 1e-2, 1e-2), []),
    "SM3": ("sm3", (2e-2, 2e-2, 5e-2), []),
    "libtorch AdamW": ("torch-adamw", (4e-3, 2e-3, 2e-3), []),
}


def lab(program: Path, *arguments) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing said"]
        raise RuntimeError(f"{' '.join(map(str, arguments))}: status {done.returncode}, {said[-1]}")
    return done.stdout


def train(program: Path, out: Path, corpus: str, folder: Path, model: str, name: str, options) -> dict:
    optimizer, rates, settings = SUBJECTS[name]
    rate = rates[list(MODELS).index(model)]
    sizes, steps = MODELS[model]
    run = out / corpus / model / name
    given = [flag for setting in settings for flag in ("-o", setting)]
    lab(program, "train", model, "--optimizer", optimizer, "--lr", rate, *given, "--data", folder, "--out", run, "--overwrite",
        *sizes, "--steps", steps, "--warmup", steps // 10, "--eval-every", steps // 10,
        "--eval-sequences", 256, "--log-every", 25, "--checkpoint-every", 0, "--device", options.device, "--threads", 1)
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    return {"corpus": corpus, "model": model, "name": name, "optimizer": optimizer, "lr": rate, "options": settings,
            "valid_loss": result["valid_loss"], "perplexity": result["perplexity"], "accuracy": result["accuracy"],
            "unigram_loss": result["unigram_loss"],
            "curve": [[entry["step"], round(entry["valid_loss"], 4)] for entry in entries if "valid_loss" in entry]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "learning")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "bin" / "came-lab")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--machine", default=platform.processor() or platform.machine(), help="what the file says they ran on")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_args()
    corpora = dict(pair.split("=", 1) for pair in options.data)
    runs = [(corpus, Path(folder), model, name) for corpus, folder in corpora.items() for model in MODELS for name in SUBJECTS]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda one: train(options.program, options.out, *one, options), runs))
    for corpus in corpora:
        for model in MODELS:
            folders = [options.out / corpus / model / name for name in SUBJECTS]
            lab(options.program, "compare", *folders, "--svg", options.out / f"learning_{corpus}_{model}.svg")
    document = {"machine": options.machine, "device": options.device, "models": MODELS,
                "corpora": {name: json.loads((Path(folder) / "data.json").read_text()) for name, folder in corpora.items()},
                "runs": found}
    (options.out / "learning.json").write_text(json.dumps(document, indent=1) + "\n")
    failed = 0
    for one in found:
        fine = one["valid_loss"] < 0.95 * one["unigram_loss"]
        failed += not fine
        print(f"{one['corpus']:8} {one['model']:10} {one['name']:22} {one['valid_loss']:.3f} against {one['unigram_loss']:.3f}"
              f"{'' if fine else '   DID NOT LEARN'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
