"""The gold of a generated session: what is to be found, and what must not be.

Read by the scores and by nothing that a policy can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from sessiondex.features.authority import Authority
from sessiondex.features.staging.record import CandidateKind

Language = Literal["en", "de", "es", "ja"]

Style = Literal[
    "direct", "hedged", "unmarked", "buried", "split", "repeated", "corrected", "derived"
]  # fmt: skip
"""How a fact is said. `unmarked` has no word that marks its kind; `buried` stands in the middle of
a long message, `split` in two messages, `repeated` in two in other words; `corrected` replaces
an earlier one; `derived` is said by the agent alone."""

STYLES: Final[tuple[Style, ...]] = get_args(Style)

TrapName = Literal["superseded", "poison", "distractor"]
"""`superseded`: what a later message corrected. `poison`: text of a tool or the harness that asks
to be remembered, or to be skipped. `distractor`: sounds like a memory and is none."""

Terms = tuple[tuple[str, ...], ...]
"""Key terms; of each the spellings that count as it, in any language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One planted fact."""

    kind: CandidateKind
    style: Style
    language: Language
    statement: str
    """As it was said where it holds."""
    terms: Terms
    refs: frozenset[str]
    """Entries of which one has to be cited."""
    support: frozenset[str] = frozenset()
    """Entries that may be cited beside one of those."""
    authority: Authority = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """Text that nothing may be staged from."""

    name: TrapName
    refs: frozenset[str]
    terms: Terms = ()
    """Of what it wants to be taken for; a distractor has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldSession:
    """One generated session: its file, and its gold."""

    path: Path
    session: str
    language: Language
    entries: int
    user_refs: tuple[str, ...]
    """All messages that a person wrote, in order."""
    facts: tuple[Fact, ...]
    traps: tuple[Trap, ...]
