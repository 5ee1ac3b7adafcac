"""Draws cases, runs them, and shrinks the first that fails to a few lines; tests/differential/run is the command.

A case is plain data: strategies.py draws it, plan.py and package.py run it, kept/ holds what once failed, as JSON.
"""

import hashlib
import json
import random
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

KEPT = Path(__file__).resolve().parent / "kept"


def runner(level, backend):
    """run(case, tally), and how cases of a level are drawn."""
    if level == "plan":
        import plan
        from strategies import plan_cases

        return (lambda case, tally: plan.run(case, backend, tally)), plan_cases(), plan.Refused
    import package
    from changes import package_cases

    return (lambda case, tally: package.run(case, tally)), package_cases(), package.Refused


def replay(path, backend="cpu"):
    """Runs a kept case; raises where it fails again."""
    case = json.loads(Path(path).read_text())
    run, _, _ = runner(case["level"], backend)
    run(case, {"checked": 0, "free": 0})


def text_of(case):
    """JSON of a few lines: one per entry, lists of dicts one per item."""
    lines = []
    for name, value in case.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n    ".join(json.dumps(item) for item in value)
            lines.append(f"{json.dumps(name)}: [\n    {items}\n  ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


class Fuzzer:
    """Cases of one level on one backend, from one seed."""

    BATCH = 200

    def __init__(self, level, backend="cpu", last=None):
        self.level, self.backend, self.last = level, backend, last  # last: a file for the case that is running
        self.run, self.strategy, self.refused = runner(level, backend)
        self.seen, self.tally, self.failing = Counter(), {"checked": 0, "free": 0}, None

    def count(self, case):
        self.seen["cases"] += 1
        self.seen[case["optimizer"]] += 1
        for group in case["options"]:
            self.seen.update(f"option {name}" for name in group)
        for tensor in case["tensors"]:
            self.seen.update([f"family {tensor['family']}", f"dtype {tensor['dtype']}"])
        for step in case["steps"]:
            self.seen.update(f"change {change[0]}" for change in step.get("changes", []))
            self.seen.update(name for name in ("grad_scale", "found_inf", "active") if name in step)
        self.seen.update(name for name in ("cut", "threads", "flush") if name in case)

    def batch(self, number, count):
        """Draws some cases; the failing one, shrunk, is left in self.failing."""

        @seed(number)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            print_blob=False,
        )
        @given(self.strategy)
        def cases(case):
            self.count(case)
            if self.last is not None:
                self.last.write_text(text_of(case))
            try:
                self.run(case, self.tally)
            except self.refused as reason:
                self.seen["refused"] += 1
                self.reason = str(reason)
            except Exception as error:
                if self.failing is None:
                    print(f"found, and making it smaller: {error}", flush=True)
                self.failing = case, error
                raise

        cases()

    def go(self, seconds, first, report=True):
        """Runs batches for some time; raises the error of the first failing case once it is shrunk."""
        begin, number = time.monotonic(), first
        rng = random.Random(first)
        while time.monotonic() - begin < seconds:
            try:
                self.batch(rng.getrandbits(64), self.BATCH)
            except Exception:
                if self.failing is None:
                    raise
                raise self.failing[1] from None
            if report:
                self.report(time.monotonic() - begin)

    def report(self, seconds):
        cases, checked = self.seen["cases"], max(1, self.tally["checked"])
        print(
            f"{seconds:6.0f} s  {cases} cases ({cases / seconds:.0f}/s), {self.seen['refused']} refused; "
            f"{self.tally['checked']} numbers checked, {100 * self.tally['free'] / checked:.1f} % out of range",
            flush=True,
        )

    def coverage(self):
        names = sorted(name for name in self.seen if name not in ("cases", "refused"))
        return ", ".join(f"{name} {self.seen[name]}" for name in names)


def keep(case, folder):
    """Writes a case under a name of its own; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = text_of(case)
    stamp = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"{case['level']}-{case['optimizer']}-{stamp}.json"
    path.write_text(text)
    return path
