"""Candidates: what a model proposes, checked against the capture before anything is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sessiondex.errors import InvalidArgument
from sessiondex.features.similarity import visible_text
from sessiondex.features.staging.record import CandidateKind
from sessiondex.limits import CANDIDATE_REFS, CLAIM, EXCERPT_BYTES
from sessiondex.masking import mask
from sessiondex.model import EntryRef
from sessiondex.query.quotes import QuotePlace, find_quote, nearest_text

if TYPE_CHECKING:
    from sessiondex.features.services import RunRange
    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

QUOTE_BYTES: Final = EXCERPT_BYTES.default
"""A longer quote would not stand in the excerpt that is written down."""

_PLACEHOLDERS: Final = frozenset(
    {
        "todo", "tbd", "tba", "fixme", "xxx", "n/a", "na", "none", "null", "nil", "undefined",
        "unknown", "not applicable", "placeholder", "string", "text", "claim", "your claim",
        "your claim here", "claim here", "kind", "why_useful", "why useful", "staleness",
        "example", "sample", "dummy", "test", "foo", "bar", "lorem ipsum",
    }
)  # fmt: skip
_TEMPLATE = re.compile(r"<[^<>]*>|\{[^{}]*\}|\[[^\[\]]*\]|\(\s*(?:todo|tbd|placeholder)[^()]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A possible memory, checked: its texts are masked, its entries stand in the run's range."""

    kind: CandidateKind
    claim: str
    why_useful: str
    staleness: str
    entries: tuple[Entry, ...]
    quotes: Mapping[EntryRef, tuple[QuotePlace, ...]]


def checked_text(name: str, text: str, *, max_characters: int = CLAIM.maximum) -> str:
    """A text of a model as it is kept: trimmed and masked.

    Raises:
        InvalidArgument: it is blank, over-long, holds control characters, or is a placeholder.
    """
    words = text.strip()
    if not words:
        raise InvalidArgument(f"{name} is blank", hint=f"say something in {name}, or leave it out")
    if len(words) > max_characters:
        raise InvalidArgument(
            f"{name} has {len(words)} characters", hint=f"expected at most {max_characters}"
        )
    if any(unicodedata.category(each) == "Cc" and not each.isspace() for each in words):
        raise InvalidArgument(f"{name} holds control characters", hint="leave them out")
    shown = mask(words).text
    if _is_placeholder(shown):
        raise InvalidArgument(
            f"{name} is a placeholder: {shown[:60]!r}", hint="say what the cited entries show"
        )
    return shown


def _is_placeholder(text: str) -> bool:
    plain = " ".join(visible_text(text).casefold().split())
    rest = _TEMPLATE.sub("", plain)
    if not any(character.isalnum() for character in rest):
        return True
    return plain.strip(" .!?…:-_*#\"'`") in _PLACEHOLDERS or plain.startswith("lorem ipsum")


def cited_entries(
    capture: Capture, run_range: RunRange, refs: Iterable[EntryRef]
) -> tuple[Entry, ...]:
    """The entries of refs in the order given, each once.

    Raises:
        InvalidArgument: there is no ref, or too many, or some lie outside the run's range.
        NotFound: a ref names no entry (`hidden_entry` where that is why).
    """
    wanted = tuple(dict.fromkeys(refs))
    if not wanted:
        raise InvalidArgument("no entry is cited", hint="give the refs of what the claim rests on")
    if len(wanted) > CANDIDATE_REFS.maximum:
        raise InvalidArgument(
            f"{len(wanted)} entries are cited",
            hint=f"cite at most {CANDIDATE_REFS.maximum}, those that show it best",
        )
    outside = [str(ref) for ref in wanted if not run_range.first <= ref.record <= run_range.last]
    if outside:
        raise InvalidArgument(
            f"outside the range of this run: {', '.join(outside)}",
            hint=f"the run covers {EntryRef(run_range.first)} to {EntryRef(run_range.last)}",
        )
    return tuple(capture.entry(capture.ordinal(ref)) for ref in wanted)


def quote_places(
    capture: Capture, entries: Iterable[Entry], quotes: Sequence[tuple[EntryRef, str]]
) -> dict[EntryRef, tuple[QuotePlace, ...]]:
    """Where quotes stand in their entries, by entry.

    Raises:
        InvalidArgument: one stands in an entry that is not cited, is blank or over-long, or does
            not stand in its entry; names what comes nearest.
    """
    by_ref = {entry.ref: entry for entry in entries}
    found: dict[EntryRef, tuple[QuotePlace, ...]] = {}
    if len(quotes) > CANDIDATE_REFS.maximum:
        raise InvalidArgument(
            f"{len(quotes)} quotes are given", hint=f"give at most {CANDIDATE_REFS.maximum}"
        )
    for ref, quote in quotes:
        entry = by_ref.get(ref)
        if entry is None:
            raise InvalidArgument(
                f"a quote names {ref}, which is not cited", hint="add it to entry_refs"
            )
        size = len(quote.encode())
        if size > QUOTE_BYTES:
            raise InvalidArgument(
                f"the quote of {ref} has {size} bytes", hint=f"quote at most {QUOTE_BYTES}"
            )
        data = capture.text(entry)
        place = find_quote(data, quote)
        if place is None:
            nearest = nearest_text(data, quote)
            raise InvalidArgument(
                f"the quote does not stand in entry {ref}",
                hint=f"nearest is: {nearest}" if nearest else "none of its words do",
            )
        found[ref] = (*found.get(ref, ()), place)
    return found
