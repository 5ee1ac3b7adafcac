"""The command line of the differential fuzzer.

Draws cases until the time is over or one fails.  A failing case is shrunk, its two results are shown side by side, and it is
written to a file that --replay, or tests/differential/kept/, runs again.
"""

import argparse
import multiprocessing
import os
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {"cpu": "libcame.so", "emulated": "libcame_emulated.so"}


def arguments():
    parser = argparse.ArgumentParser(prog="tests/differential/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--level", choices=("plan", "package"), default="plan", help="C interface, or Python package")
    parser.add_argument("--backend", choices=tuple(LIBRARIES), default="cpu", help="emulated: CUDA on the host")
    parser.add_argument("--seed", type=int, default=None, help="default: from the system")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a seed of its own")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "differential", help="where failing cases go")
    parser.add_argument("--replay", type=Path, help="run this case and nothing else")
    return parser.parse_args()


def choose_library(backend):
    if backend == "emulated" or "CAME_LIBRARY" not in os.environ:
        os.environ["CAME_LIBRARY"] = os.environ.get("CAME_EMULATED_LIBRARY" if backend == "emulated" else "CAME_LIBRARY") or str(
            ROOT / "build" / "lib" / LIBRARIES[backend]
        )


def last_of(options, number):
    return options.out / f"last-{options.level}-{options.backend}-{number}.json"


def work(options, number):
    """One process: 0 if nothing failed."""
    import fuzz

    last = last_of(options, number)
    fuzzer = fuzz.Fuzzer(options.level, options.backend, last)
    print(f"differential: level {options.level}, backend {options.backend}, seed {number}", flush=True)
    failed = 0
    try:
        fuzzer.go(options.seconds, number)
    except Exception as error:
        if fuzzer.failing is None:
            raise
        failed = 1
        case, _ = fuzzer.failing
        path = fuzz.keep(case, options.out)
        print(f"\n{fuzz.text_of(case)}", end="")
        if isinstance(error, AssertionError):
            print(f"{type(error).__name__}: {error}")
        else:
            traceback.print_exception(error, file=sys.stdout)
        print(f"written to {path}; again: tests/differential/run --backend {options.backend} --replay {path}", flush=True)
    print(f"covered: {fuzzer.coverage()}", flush=True)
    last.unlink(missing_ok=True)
    sys.exit(failed)


def main():
    options = arguments()
    choose_library(options.backend)
    if options.replay:
        import fuzz

        fuzz.replay(options.replay, options.backend)
        print("nothing wrong")
        return 0
    first = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    options.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    workers = {first + k: context.Process(target=work, args=(options, first + k)) for k in range(options.jobs)}
    for worker in workers.values():
        worker.start()
    failed = 0
    for number, worker in workers.items():
        worker.join()
        failed = failed or int(worker.exitcode != 0)
        if worker.exitcode < 0:
            import crash

            crash.report(last_of(options, number), options.backend, worker.exitcode, options.out)
    return failed


if __name__ == "__main__":
    sys.exit(main())
