"""All that a library answers, in a form that compares."""

from __future__ import annotations

from typing import Any

from sessiondex.indexer.capture import Capture
from sessiondex.indexer.folding import fold
from sessiondex.indexer.library import Library
from sessiondex.indexer.snapshot import LibrarySnapshot
from sessiondex.query.request import SearchRequest
from sessiondex.query.search import search

QUERIES = ("pindle number 5", "grep -rn", "隙間")
"""A cut word, a phrase over a sign, and no Latin: each finds a few entries."""


def everything(capture: Capture) -> list[Any]:
    """All that a capture says."""
    entries = capture.entries(0, capture.entry_count)
    return [
        capture.token,
        capture.record_count,
        capture.anchor_ordinals(0, capture.anchor_count),
        [capture.counts(n) for n in range(capture.entry_count + 1)],
        [(e, capture.text(e), capture.flags(e), capture.is_final(e)) for e in entries],
        [capture.record(n) for n in range(capture.record_count)],
    ]


def found(snapshot: LibrarySnapshot, query: str) -> list[str]:
    """The refs of all hits of a literal, copies too."""
    request = SearchRequest(query=query, match="literal", order="source", copies=True, limit=100)
    page = search(snapshot, request)
    assert page["next_cursor"] is None
    return sorted(f"{hit['session']}:{hit['entry_ref']}" for hit in page["hits"])


def picture(library: Library, *queries: str) -> dict[str, Any]:
    """All that a library says of its sessions, and what it finds."""
    return picture_at(library.snapshot(), *queries)


def picture_at(snapshot: LibrarySnapshot, *queries: str) -> dict[str, Any]:
    captures = (snapshot.capture_of(row.ord) for row in list(snapshot.rows()))
    told: dict[str, Any] = {c.session: everything(c) for c in captures if c is not None}
    told["found"] = {query: found(snapshot, query) for query in queries or QUERIES}
    return told


def found_by_reading(told: dict[str, Any]) -> dict[str, list[str]]:
    """What a picture should have found, by the texts that it has."""
    return {
        query: sorted(
            f"{name}:{entry.ref}"
            for name, all_told in told.items()
            if name != "found"
            for entry, text, _, _ in all_told[4]
            if fold(query) in fold(text.decode())
        )
        for query in told["found"]
    }


def texts(told: dict[str, Any]) -> dict[str, list[tuple[str, bytes]]]:
    """The refs and texts of each session."""
    return {
        name: [(str(entry.ref), text) for entry, text, _, _ in all_told[4]]
        for name, all_told in told.items()
        if name != "found"
    }
