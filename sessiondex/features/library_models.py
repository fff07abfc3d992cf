"""Arguments and replies of the tools that look across a library."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sessiondex.features.capture_inputs import TIME, OverviewInput, ReadInput, SearchInput
from sessiondex.features.capture_outputs import (
    CountsOutput,
    NoteOutput,
    OverviewOutput,
    ReadOutput,
    SearchOutput,
)
from sessiondex.features.tool import Text, Texts, ToolInput, ToolOutput, Whole
from sessiondex.limits import PAGE

_SESSION = "A session id from an earlier reply, whole and unchanged; never a path."
_AGENT = "Only sessions of this agent: claude-code, codex, yoi, harbor, chat."
_PROJECT = "Only sessions of this project: a folder with those below it, or the last part of one."
_CALLING = "true: also the session in which you are called, which is else left out and counted."
_OWN = "true: also calls of sessiondex itself and their results, which are else left out, counted."


class SearchLibraryInput(SearchInput):
    """What to search for across the sessions of the library."""

    session: Text | Texts | None = Field(
        None,
        description=f"Only this session, or these. {_SESSION} With one session the default match is"
        " literal and the default order source; entry refs go with one session only.",
    )
    agent: Text | Texts | None = Field(None, description=_AGENT)
    project: Text | Texts | None = Field(None, description=_PROJECT)
    branch: Text | Texts | None = Field(None, description="Only entries of this git branch.")
    model: Text | Texts | None = Field(None, description="Only entries of this model.")
    copies: bool = Field(
        False, description="true: also entries that were replayed from another session."
    )
    include_own_output: bool = Field(False, description=_OWN)
    include_calling_session: bool = Field(False, description=_CALLING)


class ListSessionsInput(ToolInput):
    """Which sessions to list."""

    words: Text | None = Field(
        None,
        description="All of them stand in title, id, project, branch, agent or model; no case.",
    )
    agent: Text | Texts | None = Field(None, description=_AGENT)
    project: Text | Texts | None = Field(None, description=_PROJECT)
    branch: Text | Texts | None = Field(None, description="Only sessions of this git branch.")
    model: Text | Texts | None = Field(None, description="Only sessions of this model.")
    since: Text | None = Field(None, description=f"Active then or later. {TIME}")
    until: Text | None = Field(None, description=f"Begun then or before. {TIME}")
    include_calling_session: bool = Field(False, description=_CALLING)
    limit: Whole | None = Field(
        None, description=f"Sessions, at most {PAGE.maximum}; default {PAGE.default}."
    )
    cursor: Text | None = Field(
        None, description="The 'next_cursor' of the last page, with the same other arguments."
    )


class LibraryOverviewInput(OverviewInput):
    """Which session's table of contents to show."""

    session: Text = Field(description=_SESSION)


class ReadLibraryInput(ReadInput):
    """What to read of which session."""

    session: Text = Field(description=_SESSION)


class LeftOutOutput(ToolOutput):
    """Hits or sessions that were left out, as far as this page looked."""

    own_output: int | None = None
    calling_session: int | None = None


class SearchLibraryOutput(SearchOutput):
    """A page of hits across sessions."""

    left_out: LeftOutOutput | None = None
    refreshed_at: str | None


class SessionOutput(ToolOutput):
    """One session of the library."""

    session: str
    agent: str
    project: str | None
    branch: str | None
    model: str | None
    title: str | None
    started: str | None
    ended: str | None
    turns: int
    entries: CountsOutput
    parent: str | None
    sub_agent: bool


class ListSessionsOutput(ToolOutput):
    """A page of sessions, newest first."""

    sessions: list[SessionOutput]
    returned: int
    has_more: bool
    next_cursor: str | None
    stopped: Literal["bytes"] | None = None
    left_out: LeftOutOutput | None = None
    refreshed_at: str | None
    notes: list[NoteOutput]


class LibraryOverviewOutput(OverviewOutput):
    """A page of a session's table of contents."""

    refreshed_at: str | None


class ReadLibraryOutput(ReadOutput):
    """Entries of a session with their text."""

    refreshed_at: str | None
