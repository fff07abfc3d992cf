"""The committed entries of the sessions that a workspace server can reach, by their ids."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sessiondex.errors import NotFound
from sessiondex.features.live_session import LiveSession
from sessiondex.features.state import subject_not_found
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.sources.base import SessionStub

if TYPE_CHECKING:
    from sessiondex.features.local_sessions import LocalAgentSessions
    from sessiondex.indexer.catalog import SessionRow
    from sessiondex.indexer.library import Library

KEPT_SESSIONS: Final = 32
"""Sessions whose new entries are kept in memory between captures; the longest unused one goes."""


class ReachableSessions:
    """Sessions of a library, and active ones of this machine that are in no library yet.

    A capture of a growing file costs its new bytes. Writes nothing.
    """

    def __init__(
        self,
        library: Library,
        *,
        clock: Callable[[], float],
        local: LocalAgentSessions | None = None,
    ) -> None:
        self._library = library
        self._clock = clock
        self._local = local
        self._lock = threading.Lock()
        self._live: OrderedDict[str, LiveSession] = OrderedDict()

    def capture(self, session: str) -> Capture:
        """The committed entries of a session at this moment.

        Only a whole id names one: neither the beginning of an id nor a path does.

        Raises:
            NotFound: no such session can be reached.
        """
        snapshot = self._library.snapshot()
        row = snapshot.catalog.current(session)
        if row is None:
            return self._local_capture(session)
        if row.source_path and Path(row.source_path).is_file():
            try:
                return self._live_session(row).capture(now=self._clock())
            except NotFound:
                pass  # the file is gone meanwhile, or holds other sessions; the library keeps it
        return snapshot.capture(session, live=False).committed()

    def _local_capture(self, session: str) -> Capture:
        for each in self._local.active() if self._local is not None else ():
            if each.session == session and self._local is not None:
                return self._local.capture(each.subject)
        raise subject_not_found()

    def _live_session(self, row: SessionRow) -> LiveSession:
        path = Path(row.source_path)
        with self._lock:
            live = self._live.pop(row.session, None)
            if live is None or live.path != path:
                stub = SessionStub(row.session, row.selector)
                live = LiveSession(path, Path(row.source_root), stub, library=self._library)
            self._live[row.session] = live
            if len(self._live) > KEPT_SESSIONS:
                self._live.popitem(last=False)
            return live
