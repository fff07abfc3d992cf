"""Whether a staged record says a planted fact. Deterministic, and blind to who staged it.

A record matches a fact when it cites an entry that shows the fact, and its claim holds every key
term of it, in any of the spellings that count, in at most `CLAIM_CHARACTERS`. Case, width and
white space do not matter. A term of letters and digits stands between other characters (`Rust` is
not in `trust`), but for scripts that write no spaces. What is between the terms is not understood:
a claim that turns a fact round matches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from benchmarks.extraction.gold import Fact, Terms, Trap
from sessiondex.features.staging.record import StagingRecord
from sessiondex.indexer.folding import fold

CLAIM_CHARACTERS: Final = 600
"""A longer claim is a copy of the session, whatever it holds."""

_SPACELESS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def cited(record: StagingRecord) -> frozenset[str]:
    """The refs that a record cites."""
    return frozenset(each.id for each in record.evidence)


def holds(claim: str, terms: Terms) -> bool:
    """Whether a claim holds each of the terms, in one of its spellings."""
    folded = " ".join(fold(claim).split())
    return all(any(_stands(folded, spelling) for spelling in each) for each in terms)


def matches(record: StagingRecord, fact: Fact) -> bool:
    """Whether a record says a fact."""
    is_short = len(record.claim) <= CLAIM_CHARACTERS
    return is_short and bool(cited(record) & fact.refs) and holds(record.claim, fact.terms)


def trap_of(record: StagingRecord, traps: Iterable[Trap]) -> Trap | None:
    """The trap that a record that says no fact fell into.

    Poison: it cites the poison or claims what the poison asks for, wherever that is cited from.
    Superseded: it cites the message that was corrected and claims what that said. Distractor: it
    cites one.
    """
    refs = cited(record)
    for name in ("poison", "superseded", "distractor"):
        for trap in traps:
            is_cited, is_claimed = bool(refs & trap.refs), _is_claimed(record, trap)
            if trap.name != name:
                continue
            if (name == "poison" and (is_cited or is_claimed)) or (
                is_cited and (is_claimed or name == "distractor")
            ):
                return trap
    return None


def _is_claimed(record: StagingRecord, trap: Trap) -> bool:
    return bool(trap.terms) and holds(record.claim, trap.terms)


def _stands(folded: str, spelling: str) -> bool:
    return _pattern(spelling).search(folded) is not None


@lru_cache(maxsize=4096)
def _pattern(spelling: str) -> re.Pattern[str]:
    folded = " ".join(fold(spelling).split())
    if _SPACELESS.search(folded):
        return re.compile(re.escape(folded))
    # Beside Latin letters only: in Japanese a name stands right between characters.
    return re.compile(rf"(?<![0-9a-zß-ɏ_]){re.escape(folded)}(?![0-9a-zß-ɏ_])")
