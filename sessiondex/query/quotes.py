"""Where a quote stands in a text: white space folded, in the original or in what is shown of it."""

from __future__ import annotations

import re
import sys
from typing import Final, NamedTuple

from sessiondex.errors import InvalidArgument
from sessiondex.query.cutting import MaskedText
from sessiondex.query.reply import clip_text

NEAREST_BYTES: Final = 160
"""Text named for a quote that was not found."""


NEAREST_WORDS: Final = 32
"""Words of a missing quote that are looked for: each length is tried at each place."""


_RUN: Final = re.compile(r"\s{2,}")
_FOLDED: Final = re.compile(r"\s{2,}|[^\S ]")
"""White space that is more than one space, or another one."""


class QuotePlace(NamedTuple):
    """Bytes `[start, end)` of the original text."""

    start: int
    end: int


def find_quote(data: bytes, quote: str) -> QuotePlace | None:
    """The first place of a quote in a UTF-8 text, as it is or masked; None where it is not.

    Raises:
        InvalidArgument: the quote is blank.
    """
    words = quote.split()
    if not words:
        raise InvalidArgument("the quote is blank", hint="quote some words of the entry")
    folded = " ".join(words)
    text = data.decode()
    found = _span(text, folded)
    if found is not None:
        start = len(text[: found[0]].encode())
        return QuotePlace(start, start + len(text[slice(*found)].encode()))
    shown = MaskedText(data).fit(0, sys.maxsize)
    found = _span(shown.text, folded) if shown.redacted else None
    return None if found is None else QuotePlace(*shown.origin(*found))


def _span(text: str, folded: str) -> tuple[int, int] | None:
    """Where a text holds words that stand one space apart, however far apart they stand in it.

    Costs time by the length of both, whatever they repeat: entries may be large.
    """
    at = _FOLDED.sub(" ", text).find(folded)
    if at < 0:
        return None
    start, end = at, at + len(folded)
    for run in _RUN.finditer(text):
        more = run.end() - run.start() - 1
        if run.start() >= end:
            break
        start += more if run.start() < start else 0
        end += more
    return start, end


def nearest_text(data: bytes, quote: str) -> str:
    """What of the text comes nearest to a quote that it lacks: the longest run of its words, with
    what stands around it, masked; '' where no word of it occurs."""
    words = quote.split()[:NEAREST_WORDS]
    text = " ".join(MaskedText(data).fit(0, sys.maxsize).text.split())
    low, high = 0, len(words)
    while low < high:
        length = (low + high + 1) // 2
        if _run(text, words, length) >= 0:
            low = length
        else:
            high = length - 1
    if not low:
        return ""
    at = _run(text, words, low)
    return clip_text(text[max(at - NEAREST_BYTES // 4, 0) :], NEAREST_BYTES).strip()


def _run(text: str, words: list[str], length: int) -> int:
    """Where some `length` words of a row stand in the text; -1 if none do."""
    for first in range(len(words) - length + 1):
        at = text.find(" ".join(words[first : first + length]))
        if at >= 0:
            return at
    return -1
