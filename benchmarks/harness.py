"""What every benchmark shares: timing, child processes with their peak memory, tables, JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.generate import Manifest, generate, parse_size

ROOT: Final = Path(__file__).resolve().parent.parent


class Timing(NamedTuple):
    """How long a call took over many runs."""

    median_ms: float
    p95_ms: float
    runs: int


def summarise(seconds: Sequence[float]) -> Timing:
    """Median and 95th percentile of measured seconds."""
    ordered = sorted(seconds)
    at = min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))
    return Timing(statistics.median(ordered) * 1000, ordered[at] * 1000, len(ordered))


def measure(
    calls: Sequence[Callable[[], object]], *, repeats: int = 5, is_warm: bool = False
) -> Timing:
    """Times each call `repeats` times, in turns; unless warm, after one that is not counted."""
    for call in () if is_warm else calls:
        call()
    seconds: list[float] = []
    for _ in range(repeats):
        for call in calls:
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
    return summarise(seconds)


# ---------------------------------------------------------------- children


def peak_memory_bytes() -> int:
    """The most memory this process held at once, and the largest of its children beside it."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss survives exec on Linux, so it would count the parent's memory; VmHWM does not.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 + children
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit + children


class ChildResult(NamedTuple):
    """What a child process measured of itself."""

    seconds: float
    cpu_seconds: float
    """Of all its threads; steadier than `seconds` on a busy machine."""
    peak_bytes: int
    size_bytes: int
    """Of what it built on disk."""


def report_as_child(work: Callable[[], object], built: Path) -> None:
    """Does the work and prints a `ChildResult` for the parent; all that a child prints."""
    began, cpu_began = time.perf_counter(), time.process_time()
    work()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    size = folder_size(built) if built.exists() else 0
    print(json.dumps(ChildResult(seconds, cpu_seconds, peak_memory_bytes(), size)._asdict()))


def run_child(module: str, *arguments: str | Path) -> ChildResult:
    """Runs `python -m benchmarks.MODULE ARGUMENTS` and reads what it reports."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return ChildResult(**json.loads(done.stdout.splitlines()[-1]))


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder (or of one file)."""
    if folder.is_file():
        return folder.stat().st_size
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------- results


@dataclass
class Report:
    """A table of figures that answers one question."""

    question: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """What was measured on: sizes, counts, seed."""

    def row(self, **columns: Any) -> None:
        """Adds one line; every line has the same columns."""
        self.rows.append(columns)

    def table(self) -> str:
        """The rows as aligned text."""
        names = list(self.rows[0])
        cells = [names, *([_cell(row[name]) for name in names] for row in self.rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        is_text = [isinstance(self.rows[0][name], str) for name in names]
        lines = (
            "  ".join(
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(line, widths, is_text, strict=True)
            ).rstrip()
            for line in cells
        )
        facts = ", ".join(f"{name} {_cell(value)}" for name, value in self.facts.items())
        return "\n".join((self.question, facts, "", *lines, ""))

    def to_json(self) -> dict[str, Any]:
        """The rows with the machine, the versions and the commit that they hold for."""
        return {
            "question": self.question, "command": [Path(sys.argv[0]).stem, *sys.argv[1:]],
            "facts": self.facts, "rows": self.rows, "machine": machine_facts(),
            "commit": git_commit(),
        }  # fmt: skip

    def publish(self, json_file: Path | None) -> None:
        """Prints the table and writes the JSON file if one is wanted."""
        print(self.table())
        if json_file is not None:
            json_file.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value is None else str(value)


def machine_facts() -> dict[str, Any]:
    """Processors, memory and the versions that matter."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("sessiondex", "tantivy", "pyarrow")},
    }


def git_commit() -> str:
    """The commit that was measured, with `+` when the tree had changes."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip()


# ---------------------------------------------------------------- histories


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--small", action="store_true", help="a small history, for a quick look")
    parser.add_argument("--bytes", type=parse_size, dest="size", help="bytes of history")
    parser.add_argument("--files", type=int, help="files of history")
    parser.add_argument("--entries", type=parse_size, help="entries of history")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


class History(NamedTuple):
    """A generated home folder, and an empty folder to build in."""

    home: Path
    work: Path
    manifest: Manifest

    def facts(self) -> dict[str, Any]:
        """What a report says of it."""
        return {
            "files": self.manifest.files,
            "source_mb": self.manifest.bytes / 1e6,
            "entries": self.manifest.entry_count,
            "seed": self.manifest.seed,
        }


class Scale(NamedTuple):
    """How large a history a benchmark wants when nothing is said."""

    files: int
    size: int
    entries: int | None = None


@contextmanager
def history(options: argparse.Namespace, *, full: Scale, small: Scale) -> Generator[History]:
    """Generates the history that the options ask for; it is removed afterwards."""
    scale = small if options.small else full
    is_default = options.size is None and options.entries is None
    with tempfile.TemporaryDirectory(prefix="sessiondex-bench-") as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        manifest = generate(
            home,
            seed=options.seed,
            files=options.files or (scale.files if is_default else None),
            size=scale.size if is_default else options.size,
            entries=scale.entries if is_default else options.entries,
        )
        yield History(home, work, manifest)
