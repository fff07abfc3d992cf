"""One run of the command line: what was given, the settings in force, the library, the output.

This is the edge of the program: the clock, the terminal and the current folder are looked at here
and handed on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sessiondex.errors import NotFound, UsageError
from sessiondex.settings import Value, read_settings, settings_in_force, settings_path

if TYPE_CHECKING:
    from sessiondex.cli.output import Output
    from sessiondex.indexer.capture import Capture
    from sessiondex.indexer.library import Library
    from sessiondex.indexer.refresh import IndexReport, RefreshOptions
    from sessiondex.indexer.snapshot import LibrarySnapshot


class LocalZone(tzinfo):
    """The zone of this machine, with its summer times of any date."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        return "local"

    def fromutc(self, dt: datetime) -> datetime:
        return dt.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run sees of the world; tests give their own."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    zone: tzinfo = field(default_factory=LocalZone)
    is_terminal: bool | None = None
    """Whether stdout is a terminal; None asks it."""
    wait: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)
    """Waits some seconds between two looks at the files; True ends the watching."""


class Scope(NamedTuple):
    """The part of the library that is looked at."""

    projects: list[str]
    """Their folders, as sessions name them; empty for all."""
    name: str


class Named(NamedTuple):
    """A session that the command line named."""

    capture: Capture
    name: str
    """The shortest name that is taken back."""
    origin: str
    """Where it was read from, for the footer."""

    def title(self, *, reveal: bool) -> str:
        """Its title, masked."""
        from sessiondex.query.entry_view import shown_title

        return shown_title(self.capture.title, reveal=reveal)


class Invocation:
    """One run. Everything is opened when it is first needed and closed at the end."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        self.surroundings = surroundings or Surroundings()
        self._given: dict[str, Value] = {}
        self._library: Library | None = None
        self.opened = ExitStack()
        """What is closed at the end of the run, before the library."""

    # ------------------------------------------------------------ options and settings

    def give(self, name: str, value: Any, *, is_option: bool, environment: str) -> None:
        """Notes the value of a shared option; one on the command line wins."""
        if is_option:
            self._given[name] = Value(value, f"option --{name.replace('_', '-')}")
        elif name not in self._given:
            self._given[name] = Value(value, f"environment {environment}")

    def option(self, name: str, default: Any = None) -> Any:
        """The value of a shared option that is no setting."""
        found = self._given.get(name)
        return default if found is None else found.value

    @cached_property
    def settings(self) -> dict[str, Value]:
        """Every setting in force.

        Raises:
            InvalidArgument: the settings file cannot be used.
        """
        path = settings_path()
        return settings_in_force(self._settings_given, read_settings(path), path)

    @property
    def _settings_given(self) -> dict[str, Value]:
        given = dict(self._given)
        if "home" in given:
            home = given["home"]
            given["homes"] = Value([home.value], home.origin)
        return given

    @property
    def library_path(self) -> Path:
        """The folder of the library."""
        if "library" in self._given:
            # Known without the file, which then need not be looked for.
            return Path(self._given["library"].value).expanduser()
        return Path(self.settings["library"].value).expanduser()

    @property
    def color(self) -> str:
        """auto, always or never."""
        return self.settings["color"].value

    def reveal(self, asked: bool) -> bool:
        """Whether originals are shown instead of masked values.

        Raises:
            UsageError: it is asked for where it is not allowed.
        """
        if asked and not self.is_terminal and not self.settings["allow_reveal"].value:
            raise UsageError(
                "--reveal works only where stdout is a terminal",
                hint=f"or set 'allow_reveal = true' in {settings_path()}",
            )
        return asked

    # ------------------------------------------------------------ time, terminal, output

    @property
    def is_terminal(self) -> bool:
        """Whether people look at stdout."""
        given = self.surroundings.is_terminal
        return sys.stdout.isatty() if given is None else given

    @cached_property
    def output(self) -> Output:
        from sessiondex.cli.output import Output

        return Output(self)

    def time(self, text: str | None, *, is_end: bool = False) -> int | None:
        """Epoch milliseconds of a time as people write it; None for none.

        Raises:
            InvalidArgument: it is no time.
        """
        if text is None:
            return None
        from sessiondex.query.times import parse_time

        around = self.surroundings
        return parse_time(text, now=around.now(), zone=around.zone, is_end=is_end)

    # ------------------------------------------------------------ library

    @property
    def library(self) -> Library:
        """The library, opened.

        Raises:
            NotFound: there is none; says which command makes one.
        """
        if self._library is None:
            from sessiondex.indexer.library import Library

            path = self.library_path
            read_only = not os.access(path, os.W_OK) and path.exists()
            self._library = Library.open(path, read_only=read_only)
        return self._library

    def make_library(self) -> Library:
        """The library, made where there is none yet."""
        if self._library is None:
            from sessiondex.indexer.library import Library

            self._library = Library.create(self.library_path)
        return self._library

    @cached_property
    def snapshot(self) -> LibrarySnapshot:
        """The library as it stood when it was first asked for in this run."""
        if self.option("fresh"):
            self.refresh()
        return self.library.snapshot()

    def refresh(self) -> IndexReport:
        """Brings the library up to date."""
        from sessiondex.indexer.refresh import index_library

        return index_library(self.make_library(), options=self.refresh_options())

    def refresh_options(self, **changes: Any) -> RefreshOptions:
        """How a refresh looks for sessions, by the settings in force."""
        from sessiondex.indexer.refresh import RefreshOptions

        homes = [Path(home).expanduser() for home in self.settings["homes"].value]
        if "home" in self._given and not homes[0].is_dir():
            raise UsageError(f"no folder {homes[0]}", hint="--home names the home to look in")
        wait_seconds = self.option("wait")
        if wait_seconds is not None:
            changes["wait_seconds"] = wait_seconds
        return RefreshOptions(
            home=homes[0] if homes else None,
            more_homes=tuple(homes[1:]),
            exclude=tuple(self.settings["exclude"].value),
            **changes,
        )

    def named(self, session: str) -> Named:
        """A capture of a session by id, unique prefix or path; of a file that is in no library
        one in memory.

        Raises:
            NotFound: there is no such session, file or library.
            InvalidArgument: several sessions are meant.
        """
        from sessiondex.cli.names import ShortNames
        from sessiondex.cli.texts import visible
        from sessiondex.indexer.capture import Capture

        try:
            snapshot = self.snapshot
            capture = snapshot.capture(session, now=self.surroundings.now().timestamp())
            return Named(capture, ShortNames(snapshot).of(capture.session), self.freshness())
        except NotFound:
            path = Path(session)
            if not path.exists():
                raise
            if path.is_dir():
                raise UsageError(
                    f"{session} is a folder", hint="name one session file, or index the folder"
                ) from None
        capture = Capture.from_path(path)
        return Named(capture, visible(session), "read from the file, which no library has")

    def scope(self, projects: Sequence[str], *, here: bool) -> Scope:
        """The projects that are asked for, and how a footer names them.

        A project is named by its folder, one above it, or its last part; `here` stands for the
        repository of the current folder.
        """
        if here and projects:
            raise UsageError("--here and --project were both given", hint="give one of them")
        if here:
            from sessiondex.cli.scope import repository_at

            folder = Path.cwd()
            repository = repository_at(folder)
            if not repository.is_git:
                self.output.message(f"no git repository at {folder}: this folder and those below")
            what = "repository" if repository.is_git else "folder"
            return Scope(repository.folders, f"{what} {folder}")
        if projects:
            folders = [_absolute(project) for project in projects]
            return Scope(folders, f"project {', '.join(folders)}")
        return Scope([], f"the whole library in {self.library_path}")

    def freshness(self) -> str:
        """When the library was last refreshed."""
        refreshed_at = self.snapshot.refreshed_at
        if not refreshed_at:
            return "never refreshed"
        from sessiondex.cli.texts import age

        return f"refreshed {age(self.surroundings.now().timestamp() - refreshed_at / 1000)}"

    def close(self) -> None:
        """Closes what was opened."""
        self.opened.close()
        if self._library is not None:
            self._library.close()


def _absolute(project: str) -> str:
    """A project that is written as a path, as a whole path; the last part of one as it is."""
    if project.startswith((".", "~", "/")) or "/" in project:
        return os.path.abspath(os.path.expanduser(project))
    return project
