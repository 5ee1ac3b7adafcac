"""Cases that kill the process: found by the file that a fuzzer leaves behind, and made smaller in processes of their own."""

import os
import signal
import sys

import fuzz


def fate(case, backend, seconds=60):
    """How a process that runs the case ends: 0, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            run, _, _ = fuzz.runner(case["level"], backend)
            run(case, {"checked": 0, "free": 0})
        except BaseException:  # an error is no crash
            pass
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _smaller(value):
    """The same data with one item less somewhere, largest parts first."""
    if isinstance(value, list):
        for k in range(len(value)):
            yield value[:k] + value[k + 1 :]
        for k, item in enumerate(value):
            for other in _smaller(item):
                yield value[:k] + [other] + value[k + 1 :]
    if isinstance(value, dict):
        optional = set(value) - {"level", "optimizer", "options", "tensors", "seed", "steps", "shape", "dtype", "family", "power", "lr"}
        for name in sorted(optional):
            yield {key: item for key, item in value.items() if key != name}
        for name in ("steps", "changes", "tensors", "options"):
            for other in _smaller(value.get(name)):
                yield {**value, name: other}


def _sound(case):
    """Whether it is still a case: some lists may not be empty, and changes keep their length."""
    if not (case["steps"] and case["tensors"] and case["options"]):
        return False
    lengths = {"option": 4, "counter": 4, "dtype": 4, "param dtype": 3, "add": 3, "default dtype": 2, "other optimizer": 2}
    return all(len(c) == lengths.get(c[0], 3) for step in case["steps"] for c in step.get("changes", []) if c) and all(
        c for step in case["steps"] for c in step.get("changes", [])
    )


def shrink(case, backend):
    """The smallest case found that still kills its process; three tries each, since memory is not the same in all."""
    dies = lambda c: any(fate(c, backend) for _ in range(3))
    again = True
    while again:
        again = False
        for other in _smaller(case):
            if _sound(other) and dies(other):
                case, again = other, True
                break
    return case


def report(path, backend, code, out):
    """Shrinks the case that a dead process has left, and keeps it."""
    import json

    case = json.loads(path.read_text())
    print(f"\nthe process died of signal {-code}; making its last case smaller", flush=True)
    if any(fate(case, backend) for _ in range(3)):
        case = shrink(case, backend)
    kept = fuzz.keep(case, out)
    print(f"{fuzz.text_of(case)}written to {kept}", file=sys.stdout, flush=True)
    return kept
