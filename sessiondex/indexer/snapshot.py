"""The library as it stood at one commit, and captures of its sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.indexer.catalog import Catalog
from sessiondex.indexer.catalog_rows import SessionRow
from sessiondex.indexer.view import View

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.indexer.library import Library
    from sessiondex.indexer.term_index import TermSearcher


_WAS_CURRENT: Final = (
    "ord=(SELECT max(ord) FROM sessions AS later WHERE later.session=sessions.session"
    " AND later.ord<?)"
)
"""Of a generation, before an ordinal was given out: what takes a place has a larger ordinal."""


class LibrarySnapshot:
    """One commit of a library: a mark, a searcher, and the sessions that were current.

    Which generations these are stays true; the row of one that goes on to grow is the latest.
    """

    def __init__(
        self,
        library: Library,
        view: View,
        *,
        epoch: int,
        commit: int,
        mark: int,
        next_ord: int,
        searcher: TermSearcher | None,
        refreshed_at: int,
    ) -> None:
        self.library = library
        self.view = view
        self.epoch = epoch
        self.commit = commit
        self.mark = mark
        """Documents with a `seq` at or above it came later."""
        self._next_ord = next_ord
        """Generations with this ordinal or a larger one came later."""
        self.searcher = searcher
        self.refreshed_at = refreshed_at
        """Epoch milliseconds of the last refresh; 0 if there was none."""
        self._rows: dict[int, SessionRow | None] = {}
        self._captures: dict[int, Capture] = {}

    @property
    def catalog(self) -> Catalog:
        return self.view.catalog

    # ------------------------------------------------------------ sessions

    def session_row(self, ord: int) -> SessionRow | None:
        """The row of a session ordinal if that generation was current at the commit."""
        if ord not in self._rows:
            found = self.catalog.row(
                f"SELECT row FROM sessions WHERE ord=? AND {_WAS_CURRENT}", (ord, self._next_ord)
            )
            self._rows[ord] = SessionRow.from_json(found[0]) if found else None
        return self._rows[ord]

    def rows(self, *, newest_first: bool = True) -> Iterator[SessionRow]:
        """All sessions of the commit, by the time of their last entry, those without one last."""
        order = "ended DESC, ord" if newest_first else "ord"
        with self.catalog.reading():
            if self.catalog.meta("commit") == self.commit:
                which, arguments = "current=1", ()  # an index has them in order
            else:
                which, arguments = _WAS_CURRENT, (self._next_ord,)
            found = self.catalog.rows(
                f"SELECT row FROM sessions WHERE {which} ORDER BY {order}", arguments
            )
        for row in found:
            yield SessionRow.from_json(row[0])

    def resolve(self, name: str) -> str:
        """The id of a session that is named by its id, a unique prefix, or its file.

        Raises:
            NotFound: nothing of that name.
            InvalidArgument: several; lists some.
        """
        if not name:
            raise InvalidArgument("no session was named", hint="see 'sessiondex sessions'")
        if self.catalog.row("SELECT 1 FROM sessions WHERE session=? AND current=1", (name,)):
            return name
        found = self.catalog.like(name, 6)
        if len(found) == 1:
            return found[0]
        # What only a parent and its sub-agents begin with names the parent.
        if found and not self.catalog.row(
            "SELECT 1 FROM sessions WHERE current=1 AND substr(session,1,?)=? AND session<>?"
            " AND substr(session,1,?)<>?",
            (len(name), name, found[0], len(found[0]) + 1, f"{found[0]}/"),
        ):
            return found[0]
        if found:
            shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise InvalidArgument(
                f"{name!r} is the beginning of several sessions: {shown}",
                hint="give more of the id",
            )
        path = Path(name)
        if "/" in name or path.suffix:
            by_path = self._of_path(path)
            if by_path:
                return by_path
        raise NotFound(
            f"no session {name!r}", hint="see 'sessiondex sessions' for the ids in the library"
        )

    def _of_path(self, path: Path) -> str:
        from sessiondex.indexer.sources.base import real_path

        source = self.catalog.source(str(real_path(path))) or self.catalog.source(
            str(path.absolute())
        )
        if source is None:
            return ""
        rows = self.catalog.of_source(source.source)
        if len(rows) > 1:
            ids = ", ".join(row.session for row in rows[:20])
            raise InvalidArgument(
                f"{path} holds {len(rows)} sessions: {ids}", hint="name one of them by its id"
            )
        return rows[0].session if rows else ""

    # ------------------------------------------------------------ captures

    def capture(self, session: str, *, live: bool = True, now: float | None = None) -> Capture:
        """A capture of a session by id, unique prefix or file, as it stands now.

        `live` adds what its source has beyond the library, read from the source's new bytes.

        Raises:
            NotFound: no such session.
        """
        from sessiondex.indexer.capture import Capture
        from sessiondex.indexer.live import live_tail

        snapshot = self if self.catalog.meta("commit") == self.commit else self.library.snapshot()
        row = snapshot.catalog.current(snapshot.resolve(session))
        if row is None:
            raise NotFound(f"no session {session!r}", hint="see 'sessiondex sessions'")
        if snapshot.catalog.meta("commit") != snapshot.commit:
            return self.library.snapshot().capture(session, live=live, now=now)
        tail = None
        if live and row.source_path:
            tail = live_tail(snapshot.view, row, now=time.time() if now is None else now)
            if tail is not None and tail.rewritten is not None:
                return tail.rewritten
        return Capture(
            row, snapshot.view, mark=snapshot.mark, searcher=snapshot.searcher,
            tail=tail.tail if tail else None, owner=self.library,
        )  # fmt: skip

    def capture_of(self, ord: int) -> Capture | None:
        """A capture of the committed entries of a session ordinal, if it was current; kept."""
        from sessiondex.indexer.capture import Capture

        if ord not in self._captures:
            row = self.session_row(ord)
            if row is None:
                return None
            self._captures[ord] = Capture(
                row, self.view, mark=self.mark, searcher=self.searcher, owner=self.library
            )
        return self._captures[ord]
