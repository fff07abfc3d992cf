"""Where extraction of a session stands in a capture: the pointer, and what it counts there."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from sessiondex.features.extract.ledger_rows import Lease, Pointer
from sessiondex.indexer.capture import Capture, Token
from sessiondex.indexer.prefix import begins_with
from sessiondex.model import COPIED

_ENTRIES_AT_FIRST: Final = 4
_ENTRIES_AT_ONCE: Final = 256
"""Most sessions begin with no copy, and one look tells; a fork may begin with thousands."""

Position = Literal["pointer", "stored", "shared", "rewritten", "copied", "new"]


class Done(NamedTuple):
    """How many leading records of a capture are done, and what says so.

    `pointer`: the capture begins with what the pointer saw; `stored`: it begins with the part of
    that which the library held, and the live part is gone or another; `shared`: the session was
    rewritten after these records; `rewritten`: none of it is what the pointer saw; `copied`: no
    pointer, the session begins with copies; `new`: no pointer.
    """

    records: int
    why: Position


def done_records(capture: Capture, pointer: Pointer | None) -> Done:
    """How many leading records of a capture are done; see `ExtractLedger.done_records`."""
    capture = capture.committed()
    if pointer is None:
        copied, held = _copied_prefix(capture), capture.held
        if held is not capture:
            # Only the library knows of copies that do not say so.
            known = min([_copied_prefix(held), *capture.row.shared[held.generation - 1 :]])
            copied = max(copied, known)
        return Done(copied, "copied" if copied else "new")
    records = min(pointer.records, capture.record_count)
    if pointer.generation == capture.generation and begins_with_token(capture, pointer.token):
        return Done(records, "pointer")
    # What the library never read it compares with nothing: only what it held is counted on.
    stored, base = min(records, pointer.base_records), pointer.base or pointer.token
    generation = Token.parse(base)[1]
    if generation < capture.generation:
        shared = min(stored, min(capture.row.shared[generation - 1 :], default=0))
        return Done(shared, "shared" if shared else "rewritten")
    if generation == capture.generation and begins_with_token(capture, base):
        return Done(stored, "stored")
    return Done(0, "rewritten")


def begins_with_token(capture: Capture, token: str) -> bool:
    """Whether a capture of a session begins with what another one of that session held."""
    _, _, entries, digest = Token.parse(token)
    return begins_with(capture, entries, digest)


def _copied_prefix(capture: Capture) -> int:
    """Leading records before the first with an entry that is no copy."""
    first, size = 0, _ENTRIES_AT_FIRST
    while first < capture.entry_count:
        for entry in capture.entries(first, first + size):
            if not capture.flags(entry) & COPIED:
                return entry.ref.record if entry.ordinal else 0
        first, size = first + size, min(2 * size, _ENTRIES_AT_ONCE)
    return capture.record_count if capture.entry_count else 0


def still_holds(capture: Capture, lease: Lease) -> bool:
    """Whether a capture begins with all that the run of a lease read."""
    generation = Token.parse(lease.token)[1]
    return (
        generation == capture.generation
        and lease.last < capture.record_count
        and begins_with_token(capture, lease.token)
    )


class NextPointer(NamedTuple):
    """Where the pointer may go when a run is sealed, and a sentence that says why."""

    pointer: Pointer | None
    reason: str


def next_pointer(lease: Lease, current: Capture, *, now: int) -> NextPointer:
    """The pointer to seal a run with; see `ExtractLedger.next_pointer`."""
    current = current.committed()
    _, generation, entries, _ = Token.parse(lease.token)
    if current.generation != generation or not begins_with_token(current, lease.token):
        return NextPointer(None, "the session is no longer the one that the run read")
    held, base, base_records = current.held.row, lease.token, lease.last + 1
    if held.generation < generation or held.entries <= entries:
        base = Token.make(current.session, held.generation, held.entries, held.digest)
        # Of a rewrite that the library has not read it holds what both share.
        base_records = min([held.records, *current.row.shared[held.generation - 1 :]])
    pointer = Pointer(
        lease.session, lease.token, generation, lease.last + 1, lease.run_id, now, base,
        base_records,
    )  # fmt: skip
    return NextPointer(pointer, "the records of the run are extracted")
