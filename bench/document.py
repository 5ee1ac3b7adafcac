"""The JSON document of a benchmark, written after every row, so that an interrupted run keeps what it has."""

import datetime
import json
import math
from collections.abc import Callable
from pathlib import Path

from command import Shapes, say


class Document:
    """What is measured, and the file that follows it."""

    def __init__(self, path: Path | None, what: str, machine: dict, settings: dict, copy: Callable[[int], float],
                 megabytes: int):
        self.path = path
        self.rows = 0
        self.failed = False
        self._copy = copy
        self.content = {
            "what": what,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "finished": False,
            "machine": machine,
            "settings": settings,
            "copy_gb_per_s": {"megabytes": megabytes, "before": copy(megabytes)},
            "skipped": {},
            "models": {},
        }

    def skip(self, name: str, why: str) -> None:
        self.content["skipped"][name] = why
        say(f"{name}: skipped: {why}")

    def fits(self, name: str, need: int, have: int) -> bool:
        """Whether there is memory for a model; if not, that is written down."""
        if need > have:
            self.skip(name, f"needs about {need / 1e9:.1f} GB of memory, {have / 1e9:.1f} GB are available")
        return need <= have

    def attempt(self, model: str, shapes: Shapes, subject, measure: Callable[[], dict]) -> None:
        """Adds the row that `measure` returns.  A subject that fails costs its row, not the run; ours, its success."""
        try:
            row = measure()
        except Exception as error:  # whatever a package raises
            self.failed |= subject.implementation == "libcame"
            lines = str(error).strip().splitlines() or [""]
            return self.skip(f"{model}: {subject.name}", f"{type(error).__name__}: {lines[0]}")
        entry = {"tensors": len(shapes), "parameters": sum(map(math.prod, shapes)), "rows": []}
        self.content["models"].setdefault(model, entry)["rows"].append(row)
        self.rows += 1
        self.write()
        ns, ratio = row["ns_per_param"], row["ratio"]["median"]
        say(f"{model}: {row['name']}: {ns:.3g} ns/param, {ratio:.3f} of the baseline")

    def follow(self, run: Callable[[], None]) -> int:
        """Runs to the end or to an interrupt; returns the exit status."""
        try:
            run()
        except KeyboardInterrupt:
            kept = f", kept in {self.path}" if self.path and self.rows else ""
            say(f"interrupted after {self.rows} rows{kept}")
            return 130
        copy = self.content["copy_gb_per_s"]
        copy["after"] = self._copy(copy["megabytes"])
        self.content["finished"] = True
        self.write()
        return int(self.failed)

    def write(self) -> None:
        copy = self.content["copy_gb_per_s"]
        best = max(copy["before"], copy.get("after", 0))
        for model in self.content["models"].values():
            for row in model["rows"]:
                row["share_of_copy"] = row["gb_per_s"] and row["gb_per_s"] / best
        if self.path:
            # Renamed into place: an interrupt never leaves half a document.
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(self.content, indent=1) + "\n")
            part.replace(self.path)
