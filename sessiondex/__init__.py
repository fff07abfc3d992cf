"""Full-text search, bounded reading and evidence for the sessions of AI agents.

    >>> import sessiondex
    >>> library = sessiondex.Library.create("my-library")
    >>> sessiondex.index_library(library, ["session.jsonl"])
    >>> sessiondex.search(library.snapshot(), sessiondex.SearchRequest(query="timeout"))

Everything public is named here and loaded when it is first used, so that importing the package
costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiondex._version import __version__

if TYPE_CHECKING:
    from sessiondex.errors import Busy as Busy
    from sessiondex.errors import Damaged as Damaged
    from sessiondex.errors import Failed as Failed
    from sessiondex.errors import HiddenEntry as HiddenEntry
    from sessiondex.errors import Incomplete as Incomplete
    from sessiondex.errors import InternalError as InternalError
    from sessiondex.errors import InvalidArgument as InvalidArgument
    from sessiondex.errors import NotFound as NotFound
    from sessiondex.errors import PastEnd as PastEnd
    from sessiondex.errors import SessiondexError as SessiondexError
    from sessiondex.errors import Stale as Stale
    from sessiondex.errors import UnsupportedVersion as UnsupportedVersion
    from sessiondex.errors import UsageError as UsageError
    from sessiondex.indexer.capture import SessionCapture as SessionCapture
    from sessiondex.indexer.check import CheckReport as CheckReport
    from sessiondex.indexer.check import check_library as check_library
    from sessiondex.indexer.check import repair_library as repair_library
    from sessiondex.indexer.forget import forget_sessions as forget_sessions
    from sessiondex.indexer.library import Library as Library
    from sessiondex.indexer.refresh import IndexReport as IndexReport
    from sessiondex.indexer.refresh import Progress as Progress
    from sessiondex.indexer.refresh import RefreshOptions as RefreshOptions
    from sessiondex.indexer.refresh import index_library as index_library
    from sessiondex.indexer.snapshot import LibrarySnapshot as LibrarySnapshot
    from sessiondex.indexer.statistics import library_stats as library_stats
    from sessiondex.limits import LIMITS as LIMITS
    from sessiondex.limits import Limit as Limit
    from sessiondex.model import Attachment as Attachment
    from sessiondex.model import Entry as Entry
    from sessiondex.model import Item as Item
    from sessiondex.model import SessionEntryRef as SessionEntryRef
    from sessiondex.query.evidence import evidence as evidence
    from sessiondex.query.evidence import resolve as resolve
    from sessiondex.query.overview import overview as overview
    from sessiondex.query.reading import ReadRequest as ReadRequest
    from sessiondex.query.reading import iterate_entries as iterate_entries
    from sessiondex.query.reading import read as read
    from sessiondex.query.request import SearchRequest as SearchRequest
    from sessiondex.query.search import (
        iterate as iterate_hits,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    )
    from sessiondex.query.search import search as search
    from sessiondex.query.session_list import SessionFilter as SessionFilter
    from sessiondex.query.session_list import iterate_sessions as iterate_sessions
    from sessiondex.query.session_list import list_sessions as list_sessions
    from sessiondex.query.verify import (
        parse_lines as parse_evidence_lines,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    )
    from sessiondex.query.verify import verify as verify

_PLACES = {
    "sessiondex.errors": (
        "Busy Damaged Failed HiddenEntry Incomplete InternalError InvalidArgument NotFound PastEnd"
        " SessiondexError Stale UnsupportedVersion UsageError"
    ),
    "sessiondex.indexer.capture": "SessionCapture",
    "sessiondex.indexer.check": "CheckReport check_library repair_library",
    "sessiondex.indexer.forget": "forget_sessions",
    "sessiondex.indexer.library": "Library",
    "sessiondex.indexer.refresh": "IndexReport Progress RefreshOptions index_library",
    "sessiondex.indexer.snapshot": "LibrarySnapshot",
    "sessiondex.indexer.statistics": "library_stats",
    "sessiondex.limits": "LIMITS Limit",
    "sessiondex.model": "Attachment Entry Item SessionEntryRef",
    "sessiondex.query.evidence": "evidence resolve",
    "sessiondex.query.overview": "overview",
    "sessiondex.query.reading": "ReadRequest iterate_entries read",
    "sessiondex.query.request": "SearchRequest",
    "sessiondex.query.search": "iterate:iterate_hits search",
    "sessiondex.query.session_list": "SessionFilter iterate_sessions list_sessions",
    "sessiondex.query.verify": "parse_lines:parse_evidence_lines verify",
}
"""Module → public names; `name:public` where they differ."""

_HOMES = {
    public: (module, name)
    for module, names in _PLACES.items()
    for name, _, public in (
        (each.partition(":")[0], "", each.rpartition(":")[2]) for each in names.split()
    )
}

__all__ = ["__version__", *sorted(_HOMES)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    try:
        module, inner = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'sessiondex' has no attribute {name!r}") from None
    from importlib import import_module

    value = getattr(import_module(module), inner)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
