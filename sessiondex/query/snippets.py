"""Snippets: the text around the matches of a hit, masked and cut, with where the matches stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sessiondex.indexer.folding import Spans
from sessiondex.limits import LISTING_LINE, SNIPPET, SNIPPET_MATCHES
from sessiondex.query.cutting import Cut, MaskedText, entry_head, entry_text, unmasked_stretch
from sessiondex.query.scope import Found

_WINDOW_BYTES: Final = 128 * 1024
"""A longer text is masked around its matches only."""

MATCHES_LOOKED_AT: Final = 256
"""Matches of one entry among which one that is not masked is looked for."""


class ByteSpan(NamedTuple):
    """A match in bytes of the original text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MatchedText:
    """The text of a hit with its matches."""

    found: Found
    text: str
    spans: Spans
    reveal: bool = False

    def byte_spans(self) -> Iterator[ByteSpan]:
        """The matches in bytes; costs the text up to the last one taken."""
        if self.text.isascii():
            yield from (ByteSpan(*span) for span in self.spans.spans)
            return
        characters = size = 0
        for start, end in self.spans.spans:
            begin = size + len(self.text[characters:start].encode())
            size = begin + len(self.text[start:end].encode())
            characters = end
            yield ByteSpan(begin, size)

    def masked(self, around: ByteSpan) -> MaskedText:
        """The masked text, at least around a match."""
        capture, entry = self.found
        margin = SNIPPET.maximum
        if entry.total_bytes <= _WINDOW_BYTES:
            data = self.text.encode()
            if not self.reveal and len(data) > 2 * margin:
                start, stop = max(around.start - margin, 0), min(around.end + margin, len(data))
                plain = unmasked_stretch(data, start, stop)
                if plain is not None:
                    return plain
            return MaskedText(data, reveal=self.reveal)
        return entry_text(
            capture,
            entry,
            max(around.start - margin, 0),
            min(around.end, around.start + margin) + margin,
            reveal=self.reveal,
        )


def snippet(matched: MatchedText, *, drop_hidden: bool) -> dict[str, Any] | None:
    """The text around the first match that may be shown.

    `more_matches` counts the matches of the entry that are not listed. With `drop_hidden`, None
    when all matches lie wholly inside masked values.
    """
    spans = list(matched.byte_spans())
    if not spans:
        head = entry_head(*matched.found, SNIPPET.maximum, reveal=matched.reveal)
        return {"text": head.text, "matches": [], "more_matches": 0}
    masked = matched.masked(spans[0])
    first = spans[0]
    if masked.hides(*first):
        for span in spans[1:]:
            around = masked if masked.end >= span.end else matched.masked(span)
            if not around.hides(*span):
                first, masked = span, around
                break
        else:
            if drop_hidden:
                return None
    cut = masked.around(first.start, first.end, SNIPPET.maximum)
    shown = _shown(cut, masked, spans, drop_hidden)
    total = len(matched.spans.spans) + matched.spans.more
    return {"text": cut.text, "matches": shown, "more_matches": total - len(shown)}


def _shown(
    cut: Cut, masked: MaskedText, spans: list[ByteSpan], drop_hidden: bool
) -> list[dict[str, int]]:
    shown: list[dict[str, int]] = []
    for span in spans:
        if span.end <= cut.start or span.start >= cut.end:
            continue
        if drop_hidden and masked.hides(*span):
            continue
        start, end = cut.locate(*span)
        shown.append({"start": start, "end": end, "byte_start": span.start, "byte_end": span.end})
        if len(shown) == SNIPPET_MATCHES.maximum:
            break
    return shown


def listing_line(found: Found, *, reveal: bool) -> str:
    """One line for an entry of a listing: its summary, else the beginning of its text."""
    capture, entry = found
    if entry.summary:
        cut = MaskedText(entry.summary.encode(), reveal=reveal).fit(0, LISTING_LINE.maximum)
    else:
        cut = entry_head(capture, entry, LISTING_LINE.maximum, reveal=reveal)
    return " ".join(cut.text.split())
