"""How an agent resumes one of its sessions, and why it sometimes cannot."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sessiondex.errors import Failed
from sessiondex.indexer.sources import format_named
from sessiondex.model import SessionHeader

if TYPE_CHECKING:
    from sessiondex.indexer.catalog_rows import SessionRow

_SECOND_SOURCE = re.compile(r"~[0-9]+\Z", re.ASCII)
"""Ends the id of a session whose own id another source had already."""

_HOMES: Final = {
    "claude_code": ("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    "codex": ("CODEX_HOME", ".codex", "sessions"),
}
"""Format → variable that names the agent's home, its default, the folder of its sessions."""


class Resume(NamedTuple):
    """The agent's own command and the folder in which it is run."""

    command: list[str]
    folder: str
    """Working directory of the session; '' where the source names none."""

    @property
    def shell(self) -> str:
        """One line for a shell."""
        line = shlex.join(self.command)
        return f"cd {shlex.quote(self.folder)} && {line}" if self.folder else line


def resume_command(row: SessionRow) -> Resume | None:
    """The command that resumes a session, by its format alone; None where there is none."""
    if row.format == "items" or _SECOND_SOURCE.search(row.session):
        return None
    header = SessionHeader(row.session, row.agent, row.format, sub_agent=row.sub_agent)
    command = format_named(row.format).resume_command(header)
    return Resume(command, row.project) if command else None


def resume(row: SessionRow, *, default_home: Path) -> Resume:
    """The command that resumes a session now, on this machine.

    A session of a home that is not the default one is resumed with that home.

    Raises:
        Failed: it cannot be resumed; says why.
    """
    found = resume_command(row)
    if found is None:
        raise _why_not(row)
    if not os.path.isfile(row.source_path):
        raise Failed(
            f"the source of session {row.session!r} is gone: {row.source_path}",
            hint="the agent can no longer resume it; the library still has its entries",
        )
    if found.folder and not os.path.isdir(found.folder):
        raise Failed(
            f"the folder of session {row.session!r} is gone: {found.folder}",
            hint=f"make it again, then run: {found.shell}",
        )
    home = _agent_home(row, default_home)
    if home is not None:
        return found._replace(command=["env", home, *found.command])
    return found


def _agent_home(row: SessionRow, default_home: Path) -> str | None:
    """`VARIABLE=folder` for a session that the agent would not look for in its default home."""
    if row.format not in _HOMES:
        return None
    variable, default, sessions = _HOMES[row.format]
    for folder in Path(row.source_path).parents:
        if folder.name in (sessions, f"archived_{sessions}"):
            usual = os.environ.get(variable) or default_home / default
            if os.path.realpath(usual) != os.path.realpath(folder.parent):
                return f"{variable}={folder.parent}"
            return None
    return None


def _why_not(row: SessionRow) -> Failed:
    name = repr(row.session)
    if row.sub_agent:
        hint = f"resume its parent: sessiondex resume {row.parent}" if row.parent else ""
        return Failed(f"session {name} is a sub-agent's, which only its parent resumes", hint=hint)
    if _SECOND_SOURCE.search(row.session):
        return Failed(f"session {name} shares its id with another, which the agent would resume")
    return Failed(f"sessions of {row.agent} cannot be resumed")
