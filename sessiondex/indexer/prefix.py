"""Whether a capture still begins with what an earlier one held.

A generation counts the rewrites that a library saw. It says nothing of those that happened where
nobody counted: before a session was forgotten and indexed again, in a library that was made anew,
in a file that no library has, in a host's own list. There the digest of the committed prefix tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture

DIGEST_CHARACTERS: Final = 16
"""Of the chain digest of the committed prefix, as many as an identity token carries."""


def begins_with(capture: Capture, entries: int, digest: str) -> bool:
    """Whether the committed prefix with so many entries has this digest.

    Free where nothing was added since; else it costs the digests of the prefix.
    """
    if digest == capture.digest[:DIGEST_CHARACTERS]:
        return True
    if entries > capture.committed_count:
        return False
    last = capture.entry(entries - 1).ref.record if entries else -1
    following = capture.entry(entries).ref.record if entries < capture.entry_count else None
    # Records without entries may stand between the two: the prefix ends behind one of them.
    chain = b""
    for number, each in enumerate(_digests(capture, following)):
        if number > last and chain.hex()[:DIGEST_CHARACTERS] == digest:
            return True
        chain = hashlib.sha256(chain + each).digest()[:16]
    return chain.hex()[:DIGEST_CHARACTERS] == digest


def _digests(capture: Capture, stop: int | None) -> Iterator[bytes]:
    """The digests of the records before one, or of all."""
    stored = capture.row.records
    end = stored if stop is None else min(stop, stored)
    view, at = capture.view, 0
    while at < end:
        run = view.catalog.record_run(capture.session_ord, at)
        if run is None or at >= run.first + run.rows:
            return
        batch = view.batch(view.batch_info(run.batch), ("digest",))
        length = min(end, run.first + run.rows) - at
        yield from batch.column("digest").slice(run.row0 + at - run.first, length).to_pylist()
        at += length
    for record in capture.tail.records:
        if record.provisional or (stop is not None and record.number >= stop):
            return
        yield record.digest
