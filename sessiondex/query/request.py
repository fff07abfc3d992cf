"""`SearchRequest`: what can be asked of a search or listing, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, cast

from sessiondex.errors import InvalidArgument
from sessiondex.limits import QUERY_BYTES
from sessiondex.model import FLAG_BITS, EntryRef, clean_text
from sessiondex.query.selection import as_ref, is_backward, kind_codes

Match = Literal["literal", "ranked", "regex"]
SearchOrder = Literal["source", "relevance", "newest"]

_LISTS: Final = (
    "kind", "tool_name", "flags", "entry_refs", "session", "agent", "project", "branch", "model",
)  # fmt: skip
_TEXTS: Final = (
    "query", "match", "tool_part", "call_id", "order", "cursor", "capture", "calling_session",
)  # fmt: skip
_BOUND: Final = ("limit", "cursor", "capture")
"""What may differ from page to page."""

Words = str | Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A search, or without a query a listing. A list means any of its values, of `flags` all.

    Raises:
        InvalidArgument: an argument has a value that cannot be served; names it.
    """

    query: str | None = None
    match: Match | None = None
    """None: literal inside one session, ranked across a library."""
    kind: Words = None
    tool_part: str | None = None
    tool_name: Words = None
    call_id: str | None = None
    error: bool | None = None
    flags: Words = None
    entry_refs: str | EntryRef | Sequence[str | EntryRef] | None = None
    from_ref: str | EntryRef | None = None
    through_ref: str | EntryRef | None = None
    since: int | None = None
    """Epoch milliseconds, inclusive."""
    until: int | None = None
    order: SearchOrder | None = None
    limit: int | None = None
    cursor: str | None = None
    capture: str | None = None
    session: Words = None
    agent: Words = None
    project: Words = None
    """A folder, which takes in those below it, or the last part of one."""
    branch: Words = None
    model: Words = None
    copies: bool = False
    """Across a library: also entries that were replayed from another session."""
    without_own_output: bool = False
    """Leaves out calls of sessiondex itself and their results; the page counts them."""
    calling_session: str | None = None
    """The session in which the search is made: left out, and counted by the page."""

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> SearchRequest:
        """A request from the arguments of a call, by their names in the contract."""
        named = {_FIELD_OF.get(name, name): value for name, value in arguments.items()}
        unknown = sorted(set(named) - {field.name for field in fields(cls)})
        if unknown:
            raise InvalidArgument(
                f"unknown argument {unknown[0]!r}",
                hint=f"expected some of {', '.join(_ARGUMENTS)}",
            )
        return cls(**named)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise _wrong(name, value, "a string")
        for name in ("since", "until", "limit"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise _wrong(name, value, "a whole number")
        for name in ("error", "copies", "without_own_output"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise _wrong(name, value, "true or false")
        for name in _LISTS:
            self._set(name, _as_tuple(name, getattr(self, name)))
        if self.query is not None:
            size = len(self.query.encode("utf-8", "replace"))
            if size > QUERY_BYTES.maximum:
                raise InvalidArgument(
                    f"the query has {size} bytes", hint=f"expected at most {QUERY_BYTES.maximum}"
                )
            self._set("query", clean_text(self.query).strip() or None)
        _one_of("match", self.match, ("literal", "ranked", "regex"))
        _one_of("order", self.order, ("source", "relevance", "newest"))
        for flag in self.all_of("flags"):
            _one_of("flags", flag, tuple(FLAG_BITS))
        self.kind_codes()
        self._set("entry_refs", tuple(as_ref(ref) for ref in self.all_of("entry_refs")))
        for name in ("from_ref", "through_ref"):
            value = getattr(self, name)
            self._set(name, None if value is None else as_ref(value))
        begin, end = self.range_refs
        if begin is not None and end is not None and is_backward(begin, end):
            raise InvalidArgument(f"from {begin} lies after through {end}", hint="exchange them")
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InvalidArgument("since lies after until", hint="exchange them")
        if self.limit is not None and self.limit < 1:
            raise InvalidArgument(
                f"limit is {self.limit}", hint="expected a whole number of at least 1"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def all_of(self, name: str) -> tuple[str, ...]:
        """A list argument; empty when it was not given."""
        return cast(tuple[str, ...], getattr(self, name))

    @property
    def refs(self) -> tuple[EntryRef, ...]:
        """The entries named by `entry_refs`."""
        return cast(tuple[EntryRef, ...], self.entry_refs)

    @property
    def range_refs(self) -> tuple[EntryRef | None, EntryRef | None]:
        """`from` and `through`."""
        return cast(tuple[EntryRef | None, EntryRef | None], (self.from_ref, self.through_ref))

    def kind_codes(self) -> frozenset[int]:
        """The kinds that are asked for; a tool name, as a tool part, implies tools."""
        return kind_codes(self.all_of("kind"), self.tool_part, tool_names=self.all_of("tool_name"))

    def fingerprint_fields(self) -> list[Any]:
        """What a cursor is bound to, as JSON-able values."""
        return [
            [str(each) for each in value] if isinstance(value, tuple) and name in _LISTS
            else str(value) if isinstance(value, EntryRef)
            else value
            for name in _NAMES if name not in _BOUND
            for value in (getattr(self, name),)
        ]  # fmt: skip


_NAMES: Final = tuple(field.name for field in fields(SearchRequest))
_FIELD_OF: Final = {"from": "from_ref", "through": "through_ref"}
_ARGUMENTS: Final = tuple(
    {"from_ref": "from", "through_ref": "through"}.get(name, name) for name in _NAMES
)


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    several = (value,) if isinstance(value, (str, EntryRef)) else value
    if not isinstance(several, Sequence):
        raise _wrong(name, value, "a string or a list of strings")
    for each in several:
        if not isinstance(each, str) and not (name == "entry_refs" and isinstance(each, EntryRef)):
            raise _wrong(name, each, "a string or a list of strings")
    return tuple(several)


def _one_of(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise InvalidArgument(f"unknown {name} {value!r}", hint=f"expected {', '.join(known)}")


def _wrong(name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is {str(value)[:40]!r}", hint=f"expected {expected}")
