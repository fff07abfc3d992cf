"""Sources: which session formats there are, and which of them a file has.

A format is recognised by what the file holds, never by its name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.sources.atif import ATIF
from sessiondex.indexer.sources.base import CUT, DamagedCompression, Format, SourceFile
from sessiondex.indexer.sources.chat import CHAT, CHAT_LINES
from sessiondex.indexer.sources.claude_code import CLAUDE_CODE
from sessiondex.indexer.sources.codex import CODEX
from sessiondex.indexer.sources.codex_document import CODEX_DOCUMENT
from sessiondex.indexer.sources.documents import LFS_POINTER
from sessiondex.indexer.sources.yoi import YOI

FORMATS: Final[tuple[Format, ...]] = (
    CLAUDE_CODE,
    CODEX,
    YOI,
    CODEX_DOCUMENT,
    ATIF,
    CHAT_LINES,
    CHAT,
)
"""In the order in which they are asked: plain chat takes what no other format claims."""


NO_SESSION: Final = ("empty file", "no session of a known format")
"""Reasons of files that are simply no sessions; any other reason is a failure."""

UNREADABLE: Final = "unreadable: "
"""Begins the reason of a file that could not be read this time."""


class Detection(NamedTuple):
    """The format of a file, or why it has none."""

    format: Format | None
    reason: str = ""


def recognise(source: SourceFile) -> Detection:
    """The format of a file by its content, or the reason why it cannot be indexed."""
    try:
        head = source.head()
        if not head:
            return Detection(None, CUT if source.is_cut() else NO_SESSION[0])
        if head.startswith(LFS_POINTER):
            return Detection(None, "a Git LFS pointer, not the file itself")
        for each in FORMATS:
            if each.matches(head, source):
                return Detection(each)
        return Detection(None, CUT if source.is_cut() else NO_SESSION[1])
    except (DamagedCompression, EOFError) as error:
        return Detection(None, str(error))
    except OSError as error:
        return Detection(None, f"{UNREADABLE}{error.strerror or error}")


def detect(source: SourceFile) -> Format | None:
    """The format of a file by its content; None for all that is no readable session."""
    return recognise(source).format


def format_named(name: str) -> Format:
    """The format of that name.

    Raises:
        InvalidArgument: if there is none; names those that there are.
    """
    for each in FORMATS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in FORMATS)
    raise InvalidArgument(f"unknown format {name!r}", hint=f"expected one of {known}")
