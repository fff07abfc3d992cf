"""A text as the term index takes it, made without the index: the costly part of adding an entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson

from sessiondex.indexer.term_fields import SCAN, time_code
from sessiondex.indexer.tokens import text_terms

MAX_DOCUMENT: Final = 1 << 20
"""Characters; a longer text becomes several overlapping documents of one key."""
OVERLAP: Final = 1 << 17
"""Characters; holds any folded query (4 KiB grow to 25,000 characters, spaced to 50,000) and the
whole tokens at its edges."""


class TermDocument(NamedTuple):
    """One entry for the index, but for what only its writer knows: key, mark, further facets."""

    facets: str
    """Numbers, joined by commas."""
    pieces: list[str]
    """The other fields as JSON objects without their opening brace: one for each document."""
    characters: int
    """Of the whole prepared text."""

    def documents(self, *, key: int, seq: int, facets: str = "") -> list[str]:
        """The documents as JSON, with more facets."""
        listed = f"{self.facets},{facets}" if self.facets and facets else self.facets or facets
        return [f'{{"key":{key},"seq":{seq},"facet":[{listed}],{piece}' for piece in self.pieces]

    def bodies(self) -> list[str]:
        """The prepared text of each document."""
        return [orjson.loads("{" + piece)["body"] for piece in self.pieces]


def facet_list(facets: Sequence[int]) -> str:
    """Facets as a document keeps them."""
    return ",".join(map(str, facets))


def term_document(*, time: int | None, facets: str, text: str) -> TermDocument:
    """Prepares one entry; `time` is in epoch milliseconds, facets are a `facet_list`."""
    terms = text_terms(text)
    body = terms.body
    fields: dict[str, object] = {"time": time_code(time), "body": body}
    if terms.parts:
        fields["parts"] = terms.parts
    if terms.has_long_tokens:
        facets = f"{facets},{SCAN}" if facets else f"{SCAN}"
    if len(body) <= MAX_DOCUMENT:
        return TermDocument(facets, [orjson.dumps(fields)[1:].decode()], len(body))
    pieces: list[str] = []
    for start in range(0, len(body) - OVERLAP, MAX_DOCUMENT - OVERLAP):
        fields["body"] = body[start : start + MAX_DOCUMENT]
        pieces.append(orjson.dumps(fields)[1:].decode())
    return TermDocument(facets, pieces, len(body))
