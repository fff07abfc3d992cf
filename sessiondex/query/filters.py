"""Filters of a search: what an entry must be, and as much of it as the term index can tell.

The index only narrows; whether an entry passes is decided on the stored entry and its session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.assembly import kind_code
from sessiondex.indexer.term_fields import facet
from sessiondex.model import COPIED, FLAG_BITS, OWN_OUTPUT, PROVISIONAL, SUPERSEDED, Entry
from sessiondex.query.ranked import Field
from sessiondex.query.selection import ALL_KINDS, kind_codes

if TYPE_CHECKING:
    from sessiondex.indexer.catalog_rows import SessionRow
    from sessiondex.query.request import SearchRequest

_TOOLS: Final = frozenset((3, 4))
_KIND_FACETS: Final = (
    ("kind", "user"), ("kind", "assistant"), ("kind", "system"), ("part", "input"),
    ("part", "output"),
)  # fmt: skip
_CHANGING: Final = COPIED | SUPERSEDED | PROVISIONAL
"""Flags that become true after an entry was indexed."""
_TRUE: Final = ("true", "yes", "1")
_FALSE: Final = ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """What an entry and its session must be; empty parts let everything pass."""

    codes: frozenset[int] = ALL_KINDS
    """Kinds, as positions in `Counts`."""
    tool_names: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    error: bool | None = None
    flags: int = 0
    since: int | None = None
    until: int | None = None
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @classmethod
    def of_request(cls, request: SearchRequest) -> EntryFilter:
        """The filters of a request; its ranges of refs are the scope's."""
        flags = 0
        for name in request.all_of("flags"):
            flags |= FLAG_BITS[name]
        return cls(
            codes=request.kind_codes(),
            tool_names=request.all_of("tool_name"),
            call_ids=() if request.call_id is None else (request.call_id,),
            error=request.error,
            flags=flags,
            since=request.since,
            until=request.until,
            sessions=request.all_of("session"),
            agents=request.all_of("agent"),
            projects=request.all_of("project"),
            branches=request.all_of("branch"),
            models=request.all_of("model"),
        )

    @classmethod
    def of_field(cls, field: Field) -> EntryFilter:
        """The filter of one `field:value` of a ranked query.

        Raises:
            InvalidArgument: the field has no such value.
        """
        value = (field.value,)
        match field.name:
            case "kind":
                return cls(codes=kind_codes(field.value))
            case "part":
                return cls(codes=kind_codes(None, field.value))
            case "tool" | "tool_name":
                return cls(codes=_TOOLS, tool_names=value)
            case "call_id":
                return cls(call_ids=value)
            case "error":
                if field.value.lower() not in _TRUE + _FALSE:
                    raise InvalidArgument(f"unknown error {field.value!r}", hint="true or false")
                return cls(error=field.value.lower() in _TRUE)
            case "flag":
                if field.value not in FLAG_BITS:
                    raise InvalidArgument(
                        f"unknown flag {field.value!r}", hint=f"expected {', '.join(FLAG_BITS)}"
                    )
                return cls(flags=FLAG_BITS[field.value])
            case "session":
                return cls(sessions=value)
            case "agent":
                return cls(agents=value)
            case "project":
                return cls(projects=value)
            case "branch":
                return cls(branches=value)
            case _:
                return cls(models=value)

    @property
    def is_about_entries(self) -> bool:
        """Whether it asks more than which session an entry is of."""
        return self != EntryFilter(
            sessions=self.sessions, agents=self.agents, projects=self.projects
        )

    def admits_session(self, row: SessionRow) -> bool:
        """Whether entries of the session may pass at all."""
        return (
            (not self.sessions or row.session in self.sessions)
            and (not self.agents or row.agent in self.agents)
            and (not self.projects or any(_is_below(row.project, each) for each in self.projects))
        )

    def admits(self, entry: Entry, flags: int, row: SessionRow) -> bool:
        """Whether an entry of a session that is admitted passes; `flags` with later facts."""
        time = entry.timestamp
        return (
            kind_code(entry) in self.codes
            and (not self.tool_names or entry.kind != "tool" or entry.tool_name in self.tool_names)
            and (not self.call_ids or entry.call_id in self.call_ids)
            and (self.error is None or entry.error is self.error)
            and flags & self.flags == self.flags
            and (self.since is None or (time is not None and time >= self.since))
            and (self.until is None or (time is not None and time <= self.until))
            and (not self.branches or (entry.branch or row.branch) in self.branches)
            and (not self.models or (entry.model or row.model) in self.models)
        )

    def facet_groups(self) -> list[tuple[int, ...]]:
        """Groups of facets of which an entry that passes has one each."""
        groups: list[tuple[int, ...]] = []
        if self.codes != ALL_KINDS or self.tool_names:
            names = [_KIND_FACETS[code] for code in sorted(self.codes)]
            if self.tool_names and self.codes & _TOOLS:
                names = [_KIND_FACETS[code] for code in sorted(self.codes - _TOOLS)]
                names += [("tool", name) for name in self.tool_names]
                if self.codes & _TOOLS != _TOOLS:
                    groups.append(_group(_KIND_FACETS[code] for code in sorted(self.codes)))
            groups.append(_group(names))
        if self.call_ids:
            groups.append(_group(("call", call_id) for call_id in self.call_ids))
        if self.error is not None:
            groups.append((facet("error", "1" if self.error else "0"),))
        for name, bit in FLAG_BITS.items():
            if bit & self.flags & ~_CHANGING:
                groups.append((facet("flag", name),))
        if self.agents:
            groups.append(_group(("agent", agent) for agent in self.agents))
        return groups


def _group(names: Iterable[tuple[str, str]]) -> tuple[int, ...]:
    return tuple(facet(*name) for name in names)


def _is_below(project: str, asked: str) -> bool:
    if "/" not in asked:
        return project.rsplit("/", 1)[-1] == asked
    folder = asked.rstrip("/")
    return project == folder or project.startswith(f"{folder}/")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters that must all let an entry pass, and some that must not."""

    wanted: tuple[EntryFilter, ...]
    excluded: tuple[EntryFilter, ...] = ()
    left_out: tuple[tuple[str, EntryFilter], ...] = ()
    """What would be a hit but is only counted, by what it is counted as."""

    @classmethod
    def of_request(cls, request: SearchRequest) -> Filters:
        """The filters of a request, with what it leaves out."""
        left_out: list[tuple[str, EntryFilter]] = []
        if request.without_own_output:
            left_out.append(("own_output", EntryFilter(flags=OWN_OUTPUT)))
        if request.calling_session:
            calling = EntryFilter(sessions=(request.calling_session,))
            left_out.append(("calling_session", calling))
        return cls((EntryFilter.of_request(request),), left_out=tuple(left_out))

    def with_fields(self, fields: Iterable[Field]) -> Filters:
        """These and the fields of a ranked query.

        Raises:
            InvalidArgument: a field has no such value.
        """
        wanted, excluded = list(self.wanted), list(self.excluded)
        for field in fields:
            (excluded if field.is_excluded else wanted).append(EntryFilter.of_field(field))
        return Filters(tuple(wanted), tuple(excluded), self.left_out)

    @property
    def needs_entries(self) -> bool:
        """Whether passing can not be told from the session alone."""
        return bool(self.excluded) or any(each.is_about_entries for each in self.wanted)

    def admits_session(self, row: SessionRow) -> bool:
        """Whether entries of the session may pass at all."""
        return all(each.admits_session(row) for each in self.wanted)

    def admits(self, entry: Entry, flags: int, row: SessionRow) -> bool:
        """Whether an entry of an admitted session passes and is not left out."""
        return self.passes(entry, flags, row) and not self.left_out_as(entry, flags, row)

    def left_out_as(self, entry: Entry, flags: int, row: SessionRow) -> str:
        """What an entry is counted as instead of being a hit; '' if it may be one."""
        for name, each in self.left_out:
            if each.admits_session(row) and each.admits(entry, flags, row):
                return name
        return ""

    def passes(self, entry: Entry, flags: int, row: SessionRow) -> bool:
        """Whether an entry of an admitted session passes."""
        return all(each.admits(entry, flags, row) for each in self.wanted) and not any(
            each.admits_session(row) and each.admits(entry, flags, row) for each in self.excluded
        )

    def facet_groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of facets of which an entry that passes has one each."""
        return tuple(group for each in self.wanted for group in each.facet_groups())

    @property
    def since(self) -> int | None:
        """The latest lower bound of the time."""
        return max((f.since for f in self.wanted if f.since is not None), default=None)

    @property
    def until(self) -> int | None:
        """The earliest upper bound of the time."""
        return min((f.until for f in self.wanted if f.until is not None), default=None)
