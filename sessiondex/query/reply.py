"""Bounded replies: the one writer that counts what a reply will weigh when it is serialized.

A budget is a number of bytes of compact JSON in UTF-8, as `orjson` writes it, of the whole reply.
Nothing here knows what a reply is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, overload

import orjson

from sessiondex.errors import InternalError, InvalidArgument
from sessiondex.limits import Limit


class Note(NamedTuple):
    """Something a caller should know about a reply; `code` is one of the contract's."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """The note as it stands in a reply."""
        return {"code": self.code, "message": self.message}


PROVISIONAL_NOTE: Final = Note(
    "provisional", "the last entry is not committed yet and may still change"
)


class Clamped(NamedTuple):
    """A requested number as it will be served, and the note that says so if it was lowered."""

    value: int
    note: Note | None


def clamp(limit: Limit, asked: int | None, *, name: str = "limit") -> Clamped:
    """The number to serve: the default for None, at most the maximum.

    Raises:
        InvalidArgument: for a number below 1; `name` is the argument that the message blames.
    """
    if asked is None:
        return Clamped(limit.default, None)
    if asked < 1:
        raise InvalidArgument(f"{name} is {asked}", hint="expected a whole number of at least 1")
    if asked > limit.maximum:
        most = f"{limit.maximum} {limit.unit}"
        message = f"{name} {asked} is above the maximum of {most}, which was used"
        return Clamped(limit.maximum, Note("clamped", message))
    return Clamped(asked, None)


@overload
def clip_text(text: str, max_bytes: int) -> str: ...
@overload
def clip_text(text: bytes, max_bytes: int) -> bytes: ...
def clip_text(text: str | bytes, max_bytes: int) -> str | bytes:
    """The longest beginning of at most `max_bytes` UTF-8 bytes that splits no code point."""
    if isinstance(text, str):
        if len(text) * 4 <= max_bytes:
            return text
        # A character is at least one byte, so the encoded slice holds all that can be kept.
        return text[:max_bytes].encode()[:max_bytes].decode(errors="ignore")
    return text[: code_point_start(text, max_bytes)]


def code_point_start(text: bytes, offset: int) -> int:
    """The largest offset at or before `offset` at which no code point is split."""
    if offset >= len(text):
        return len(text)
    while offset > 0 and text[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


def json_size(value: Any) -> int:
    """Bytes of the value as compact JSON."""
    return len(orjson.dumps(value))


_PLAIN = bytes(byte for byte in range(256) if byte >= 0x20 and byte not in b'"\\')
_SHORT_ESCAPES = b'"\\\b\t\n\f\r'


def text_cost(text: bytes) -> int:
    """Bytes that UTF-8 text takes inside a JSON string, without the quotes."""
    special = text.translate(None, _PLAIN)
    # \u00XX takes six bytes, \n and its like two.
    long_escapes = len(special.translate(None, _SHORT_ESCAPES))
    return len(text) + len(special) + 4 * long_escapes


def longest_prefix(text: bytes, budget: int, cost: Callable[[bytes], int]) -> int:
    """Length of the longest beginning that costs at most `budget` and splits no code point.

    `cost` must be additive over bytes and at least 1 for each.
    """
    low, high = 0, min(len(text), max(budget, 0))
    if cost(text[:high]) > budget:
        while low < high:
            middle = (low + high + 1) // 2
            if cost(text[:middle]) <= budget:
                low = middle
            else:
                high = middle - 1
    return code_point_start(text, high)


class Reply:
    """Builds one reply of at most `max_bytes` serialized bytes.

    Items are refused once they would eat into `reserve_bytes`, which is kept for what is put
    last: the fields that say what was left out, a cursor, late notes.
    """

    def __init__(self, max_bytes: int, *, reserve_bytes: int = 1024) -> None:
        self.max_bytes = max_bytes
        self.reserve_bytes = reserve_bytes
        self._fields: dict[str, Any] = {}
        self._notes: list[Note] = []
        self._size = len('{"notes":[]}')

    @property
    def size_bytes(self) -> int:
        """Serialized bytes of what is in the reply so far, its notes included."""
        return self._size

    @property
    def room_bytes(self) -> int:
        """Bytes that one more list item may take; negative when there is no room at all."""
        return self.max_bytes - self.reserve_bytes - self._size - 1

    def put(self, name: str, value: Any) -> None:
        """Sets a field, or replaces it; may use the reserve."""
        if name in self._fields:
            self._size -= json_size(self._fields[name])
        else:
            self._size += json_size(name) + len(":,")
        self._fields[name] = value
        self._size += json_size(value)

    def add(self, name: str, item: Any) -> bool:
        """Appends to the list `name` if the item fits beside the reserve; says whether it did."""
        if name not in self._fields:
            self.put(name, [])
        size = json_size(item)
        if size > self.room_bytes:
            return False
        self._fields[name].append(item)
        self._size += size + len(",")
        return True

    def note(self, note: Note | None) -> None:
        """Adds a note, each only once; None is no note."""
        if note is None or note in self._notes:
            return
        self._notes.append(note)
        self._size += json_size(note.to_json()) + len(",")

    def items(self, name: str) -> list[Any]:
        """The list `name` as it stands; changing an item in place is not counted."""
        return self._fields[name]

    def build(self) -> dict[str, Any]:
        """The finished reply, `notes` last.

        Raises:
            InternalError: when it is larger than was promised.
        """
        reply = {**self._fields, "notes": [note.to_json() for note in self._notes]}
        size = json_size(reply)
        if size > self.max_bytes:
            raise InternalError(f"a reply of {size} bytes passed its bound of {self.max_bytes}")
        return reply
