"""The command line that bench/compare.py and bench/gpu.py share: which models and subjects, how often, where to."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

LEAST = 5  # rounds, whatever the time limit says
QUICK = {"quick": [[48, 64], [64], [8, 4, 3, 3]]}

Shapes = list[list[int]]


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def known_models(library: Path) -> dict[str, Shapes]:
    """The shape lists of bench/shapes.hpp, from the program that is built with them."""
    program = library.resolve().parent.parent / "bin/came_memory"
    if not program.is_file():
        sys.exit(f"bench: {program} is missing; expected it beside the library ('make build')")
    return json.loads(subprocess.run([program, "--shapes"], check=True, capture_output=True, text=True).stdout)


def parser(description: str, models: str, repetitions: int, time_limit: float) -> argparse.ArgumentParser:
    """A parser of what both programs take, with these defaults."""
    result = argparse.ArgumentParser(description=description)
    add = result.add_argument
    add("--models", default=models, help="comma-separated shape lists of bench/shapes.hpp (default: %(default)s)")
    add("--only", default="", metavar="REGEX", help="measure subjects whose name it is found in")
    add("--repetitions", type=int, default=repetitions, help="rounds of steps per subject (default: %(default)s)")
    add("--time-limit", type=float, default=time_limit, metavar="S",
        help=f"seconds per subject, after which no round begins beyond {LEAST} (default: %(default)s)")
    add("--json", type=Path, metavar="PATH", help="write everything there")
    add("--quick", action="store_true", help="a few tiny tensors, to test the program itself")
    return result


def check(parser: argparse.ArgumentParser, options: argparse.Namespace, library: Path, **least: int) -> None:
    """Refuses what is out of range; turns models into shapes and `only` into a pattern."""
    for name, bound in {"repetitions": 1, "time_limit": 0, **least}.items():
        if getattr(options, name) < bound:
            parser.error(f"--{name.replace('_', '-')}: given {getattr(options, name)}, expected at least {bound}")
    try:
        options.only = re.compile(options.only)
    except re.error as error:
        parser.error(f"--only: given {options.only!r}, expected a regular expression: {error}")
    if options.quick:
        options.models, options.repetitions, options.time_limit = QUICK, 3, 1
        return
    models = known_models(library)
    wanted = options.models.split(",")
    for name in wanted:
        if name not in models:
            parser.error(f"--models: given {name!r}, expected some of {', '.join(models)}")
    options.models = {name: models[name] for name in wanted}
