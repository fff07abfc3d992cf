"""Which session owns what several sessions hold.

The owner of a replayed item is, in any state of the library, the session among those that hold
it whose first own item is the earliest, then the smaller id; so the order of indexing does not
matter. An item is a session's own when nobody else holds it, or when the source itself says that
the others replayed it. A session that has nothing of its own is as early as its first item.

What changes is written down as facts with the mark at which it became true.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sessiondex.indexer.assembly import DERIVED_IDENTITY
from sessiondex.indexer.catalog_rows import SessionRow
from sessiondex.indexer.view import View
from sessiondex.model import COPIED

_NEVER: Final = 1 << 62


@dataclass(slots=True)
class _Holder:
    row: SessionRow
    identities: dict[int, int] = field(default_factory=dict)
    """Ordinal → identity of the items that some other session holds too."""


def update_copies(
    db: sqlite3.Connection,
    view: View,
    added: list[tuple[int, int, int]],
    *,
    retired: Iterable[int],
    since: int,
) -> None:
    """Brings the facts about copies up to date with identities that were just added.

    Costs the new identities, and the sessions that share some with them.
    """
    touched = set(_touched(db, added))
    for ord in retired:
        touched.update(_partners(db, view, [ord]))
    if not touched:
        return
    for members in _components(db, view, touched):
        _decide(db, view, members, since)


def _touched(db: sqlite3.Connection, added: list[tuple[int, int, int]]) -> set[int]:
    if not added:
        return set()
    db.execute("CREATE TEMP TABLE IF NOT EXISTS new_ids (identity INTEGER, ord INTEGER)")
    db.execute("DELETE FROM new_ids")
    db.executemany("INSERT INTO new_ids VALUES (?,?)", [(i, ord) for i, ord, _ in added])
    found = {
        row[0]
        for row in db.execute(
            "SELECT DISTINCT n.ord FROM new_ids n WHERE EXISTS (SELECT 1 FROM identities i"
            " JOIN sessions s ON s.ord=i.ord WHERE i.identity=n.identity AND i.ord<>n.ord"
            " AND s.current=1)"
        )
    }
    # A session that shared everything may have got its first own item.
    grown = {ord for _, ord, _ in added}
    found |= {
        row[0]
        for row in db.execute("SELECT ord FROM forks WHERE own_since IS NULL")
        if row[0] in grown
    }
    db.execute("DELETE FROM new_ids")
    return found


def _identities(view: View, db: sqlite3.Connection, ord: int) -> list[int]:
    """Identity of each entry of a session, by ordinal; 0 where it has none."""
    found = db.execute("SELECT entries FROM sessions WHERE ord=?", (ord,)).fetchone()
    identities: list[int] = []
    if found and found[0]:
        for _, (part,) in view.columns(ord, 0, found[0], ("identity",)):
            identities.extend(part)
    return identities


def _partners(db: sqlite3.Connection, view: View, ords: Iterable[int]) -> set[int]:
    """Current sessions that hold items of these."""
    found: set[int] = set()
    for ord in ords:
        identities = [identity for identity in _identities(view, db, ord) if identity]
        for at in range(0, len(identities), 500):
            part = identities[at : at + 500]
            found.update(
                row[0]
                for row in db.execute(
                    "SELECT DISTINCT i.ord FROM identities i JOIN sessions s ON s.ord=i.ord"
                    f" WHERE i.identity IN ({','.join('?' * len(part))}) AND s.current=1",
                    part,
                )
            )
        found.discard(ord)
    return found


def _components(db: sqlite3.Connection, view: View, ords: set[int]) -> list[list[int]]:
    """Groups of current sessions that share items, directly or through others."""
    left = {
        ord
        for ord in ords
        if db.execute("SELECT 1 FROM sessions WHERE ord=? AND current=1", (ord,)).fetchone()
    }
    found: list[list[int]] = []
    while left:
        part: set[int] = set()
        todo = {left.pop()}
        while todo:
            ord = todo.pop()
            part.add(ord)
            todo |= _partners(db, view, [ord]) - part
        left -= part
        found.append(sorted(part))
    return found


def _decide(db: sqlite3.Connection, view: View, members: list[int], since: int) -> None:
    holders: dict[int, _Holder] = {}
    for ord in members:
        found = db.execute("SELECT row FROM sessions WHERE ord=?", (ord,)).fetchone()
        holders[ord] = _Holder(SessionRow.from_json(found[0]))
    places: dict[int, list[tuple[int, int]]] = {}
    for ord in members:
        for ordinal, identity in enumerate(_identities(view, db, ord)):
            if identity:
                places.setdefault(identity, []).append((ord, ordinal))
    shared = {
        identity: where for identity, where in places.items() if len({ord for ord, _ in where}) > 1
    }
    for identity, where in shared.items():
        for ord, ordinal in where:
            holders[ord].identities[ordinal] = identity
    explicit = {ord: _replayed(view, holder) for ord, holder in holders.items()}
    said = {
        identity
        for identity, where in shared.items()
        if any(ordinal in explicit[ord] for ord, ordinal in where)
    }
    for identity in [i for i in shared if i & DERIVED_IDENTITY and i not in said]:
        for ord, ordinal in shared.pop(identity):
            holders[ord].identities.pop(ordinal, None)
    starts: dict[int, tuple[int, str]] = {}
    for ord, holder in holders.items():
        moment = _first_own(view, holder, explicit[ord], said)
        db.execute("INSERT OR REPLACE INTO forks VALUES (?,?)", (ord, moment))
        if moment is None:
            moment = _moment_of(view, holder.row.ord, 0) if holder.row.entries else _NEVER
        starts[ord] = (moment, holder.row.session)
    for ord, holder in holders.items():
        copied = sorted(
            ordinal
            for ordinal, identity in holder.identities.items()
            if min((o for o, _ in shared[identity]), key=starts.__getitem__) != ord
        )
        _write(db, ord, copied, since)


def _replayed(view: View, holder: _Holder) -> set[int]:
    """Ordinals that the source itself says were replayed."""
    found: set[int] = set()
    for first, (marks,) in view.columns(holder.row.ord, 0, holder.row.entries, ("replayed",)):
        found.update(first + n for n, mark in enumerate(marks) if mark)
    return found


def _first_own(view: View, holder: _Holder, explicit: set[int], said: set[int]) -> int | None:
    for ordinal in range(holder.row.entries):
        if ordinal in explicit:
            continue
        identity = holder.identities.get(ordinal)
        if identity is None or identity in said:
            return _moment_of(view, holder.row.ord, ordinal)
    return None


def _moment_of(view: View, ord: int, ordinal: int) -> int:
    stored = view.stored(ord, ordinal, ordinal + 1)[0].entry.timestamp
    return _NEVER if stored is None else stored


def _write(db: sqlite3.Connection, ord: int, copied: list[int], since: int) -> None:
    """Writes the facts that turn what is known now into what is true now."""
    wanted = set(copied)
    known: set[int] = set()
    for first, last, value in db.execute(
        "SELECT first, last, value FROM facts WHERE ord=? AND flag=? AND unit='o' ORDER BY rowid",
        (ord, COPIED),
    ):
        span = range(first, last + 1)
        if value:
            known.update(span)
        else:
            known.difference_update(span)
    for ordinals, value in ((wanted - known, 1), (known - wanted, 0)):
        for first, last in _ranges(sorted(ordinals)):
            db.execute(
                "INSERT INTO facts VALUES (?,?,?,?,'o',?,?)",
                (ord, COPIED, first, last, since, value),
            )


def _ranges(ordinals: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for ordinal in ordinals:
        if found and ordinal == found[-1][1] + 1:
            found[-1] = (found[-1][0], ordinal)
        else:
            found.append((ordinal, ordinal))
    return found
