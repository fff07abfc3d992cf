"""How much of what is worth remembering does the extract worker find, and how much else?

Scripted policies and, where a key is set, a real model run over generated sessions through the
real runner. Sorted by precision, then recall. The same seed gives the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.extraction.generate import SIZES, generate
from benchmarks.extraction.running import SCRIPTED, evaluate
from benchmarks.extraction.scores import PolicyScores, ranked
from benchmarks.harness import Report
from sessiondex.errors import SessiondexError
from sessiondex.features.loop.models import open_model

if TYPE_CHECKING:
    from pydantic_ai.models import Model

QUESTION: Final = "How much of what is worth remembering is staged, and how much else?"


DEFAULT_SEED: Final = 1


class Scale(NamedTuple):
    """How many sessions, and their sizes in entries, in turn."""

    sessions: int
    sizes: tuple[int, ...]


FULL: Final = Scale(16, SIZES)
SMALL: Final = Scale(6, (30, 120, 500, 4_000, 60, 250))


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extraction", description=__doc__)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--sessions", type=int, help="how many sessions")
    parser.add_argument("--small", action="store_true", help="fewer and smaller sessions")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="also run this model")
    parser.add_argument("--base-url", metavar="URL", help="where the model is served")
    parser.add_argument("--document", type=Path, help="also renew the table in this document")
    return parser


def with_output(document: str, command: str, output: str) -> str:
    """A document in which the block that shows a command holds this output.

    Raises:
        ValueError: the document shows no such command.
    """
    head = f"```console\n$ {command}\n"
    before, found, rest = document.partition(head)
    if not found:
        raise ValueError(f"the document shows no output of {command!r}")
    after = rest[rest.index("\n```") :]
    return f"{before}{head}{output.strip()}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.document and (options.seed != DEFAULT_SEED or options.sessions or options.model):
        parser.error("a document shows the default seed, sessions and policies")
    scale = SMALL if options.small else FULL
    policies = list(SCRIPTED)

    def opened() -> Model:
        return open_model(options.model, base_url=options.base_url, environ=os.environ)

    has_model = False
    if options.model:
        try:
            opened()
            has_model = True
            policies.append(options.model)
        except SessiondexError as error:
            print(f"{options.model} is skipped: {error.message} ({error.hint})", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="sessiondex-extraction-") as made:
        sources, staging = Path(made, "sources"), Path(made, "staging")
        sources.mkdir()
        golds = generate(
            sources, seed=options.seed, sessions=options.sessions or scale.sessions,
            sizes=scale.sizes,
        )  # fmt: skip
        scores = evaluate(
            golds, staging, policies=policies, open_model=opened if has_model else None
        )
    report = Report(
        QUESTION,
        facts={
            "sessions": len(golds),
            "entries": sum(gold.entries for gold in golds),
            "planted": sum(len(gold.facts) for gold in golds),
            "seed": options.seed,
        },
    )
    for each in ranked(scores):
        report.row(**each.row())
    print(report.table())
    for each in scores:
        if each.unfinished:
            print(f"{each.policy}: of {each.sessions} runs {each.unfinished}", file=sys.stderr)
    if options.document is not None:
        command = " ".join(("python -m benchmarks.extraction", *["--small"] * options.small))
        document = options.document.read_text(encoding="utf-8")
        renewed = with_output(document, command, report.table())
        options.document.write_text(renewed, encoding="utf-8")
    if options.json is not None:
        figures = json.dumps(to_json(report, scores), indent=2, ensure_ascii=False)
        options.json.write_text(figures + "\n", encoding="utf-8")


def to_json(report: Report, scores: Sequence[PolicyScores]) -> dict[str, Any]:
    """The table with the machine and the commit, and all that was counted of each policy."""
    return report.to_json() | {"policies": [each.to_json() for each in ranked(scores)]}


if __name__ == "__main__":
    main()
