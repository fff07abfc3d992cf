"""How long does one cold `sessiondex search` take, from the shell and back?

Beside it: starting Python with the imports that it cannot do without, and the tools one would
otherwise type, `rg` and `grep`, over the same session files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import History, Report, Scale, history, make_parser, summarise


def _run(command: Sequence[str | Path]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    seconds = time.perf_counter() - began
    # 1: grep and ripgrep found nothing.
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} failed: {done.stderr.decode()}")
    return seconds


def _commands(made: History) -> dict[str, list[str | Path]]:
    needle = next(needle for needle in made.manifest.needles if needle.category == "tool_output")
    ours = Path(sys.executable).with_name("sessiondex")
    library = made.work / "library"
    search: list[str | Path] = [ours, "search", "--library", library]
    subprocess.run(
        [ours, "index", "--library", library, "--home", made.home],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    commands: dict[str, list[str | Path]] = {
        "import click, tantivy, pyarrow": [sys.executable, "-c", "import click, tantivy, pyarrow"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "sessiondex search, ranked": [*search, needle.query],
        "sessiondex search, literal": [*search, "--literal", needle.query],
        "sessiondex search, literal, common": [*search, "--literal", made.manifest.words[0]],
        "sessiondex search, nothing found": [*search, "--literal", "qxnothinglikethis"],
        "sessiondex --help": [ours, "--help"],
    }
    if ripgrep := shutil.which("rg"):
        commands["rg -i -F"] = [
            ripgrep,
            "-i",
            "-F",
            "--no-messages",
            "--hidden",
            needle.query,
            made.home,
        ]
    if grep := shutil.which("grep"):
        commands["grep -r -i -F"] = [grep, "-r", "-i", "-F", needle.query, made.home]
    return commands


def main() -> None:
    """The command line."""
    parser = make_parser(__doc__)
    parser.set_defaults(repeats=15)
    options = parser.parse_args()
    full, small = Scale(3_000, 280_000_000), Scale(200, 19_000_000)
    with history(options, full=full, small=small) as made:
        report = Report("How long does a cold command take?", facts=made.facts())
        commands = _commands(made)
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(options.repeats + 1):
            for name, command in commands.items():
                took = _run(command)
                # The first turn warms the file cache and compiles bytecode.
                if turn:
                    seconds[name].append(took)
    timings = {name: summarise(taken) for name, taken in seconds.items()}
    base = timings["import click, tantivy, pyarrow"].median_ms
    for name, timing in timings.items():
        report.row(
            what=name, median_ms=timing.median_ms, p95_ms=timing.p95_ms,
            times_imports=timing.median_ms / base, runs=timing.runs,
        )  # fmt: skip
    report.publish(options.json)


if __name__ == "__main__":
    main()
