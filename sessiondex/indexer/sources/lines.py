"""Reads line formats: one JSON value a line, as real agents, crashes and editors leave them.

Numbers every value, also those that cannot be read, so that no bad line moves the refs behind
it. Offsets count bytes of the decompressed stream as it stands on disk: a UTF-16 file is decoded
line by line and its offsets stay those of the UTF-16 bytes. Nothing here knows what a value means.

It is a little over 500 lines long: how values, torn lines, oversized records and tails follow one
another is one scan with one state, which two modules would have to hand to and fro.
"""

from __future__ import annotations

import json
import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from sessiondex.indexer.sources.base import HEAD_BYTES, SessionStub, SourceFile
from sessiondex.model import OVERSIZED, Record, SessionHeader

BLOCK_BYTES: Final = 1 << 20

TOO_DEEP: Final = "nested too deeply"

_PADDING = re.compile(r"[ \t\r\n\x0b\x0c\0]*")
_OPENER = re.compile(r'\{"(?:parentUuid|type|timestamp|kind)":')
_SELF_DELIMITING = '{["'
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

_ENVELOPE_KEYS = frozenset(
    ("uuid", "sessionId", "leafUuid", "messageId", "timestamp", "ts", "payload")
)
"""What a whole record has and a content block nested in a torn one has not."""

_UNCLOSED_LIMIT = 64
"""Openers inside a torn record that are tried; each may cost a parse of the rest of the line."""


class RawValue(NamedTuple):
    """One numbered record of a line format, parsed but not understood."""

    number: int
    line: int
    byte_offset: int
    byte_length: int
    """Of the value itself, white space around it left out."""
    digest: bytes
    value: Any
    """The parsed value, free of lone surrogates; None where there is none to show."""
    corrupt: str
    oversized: bool
    provisional: bool
    blank: bool
    end: int
    """Where a later read goes on after it: behind the newline if it is the last of its line."""
    end_line: int


class _Encoding(NamedTuple):
    name: str
    errors: str
    """Maps undecodable bytes to characters that encode back to the same bytes."""
    bom: bytes
    newline: bytes


_UTF8 = _Encoding("utf-8", "surrogateescape", b"\xef\xbb\xbf", b"\n")
_UTF16 = (
    _Encoding("utf-16-le", "surrogatepass", b"\xff\xfe", b"\n\0"),
    _Encoding("utf-16-be", "surrogatepass", b"\xfe\xff", b"\0\n"),
)


class _LongLine(NamedTuple):
    """A line above the bound, hashed as it went by."""

    length: int
    digest: bytes


class _Piece(NamedTuple):
    """A stretch of a line: a value, or what could not be read."""

    start: int
    stop: int
    value: Any = None
    corrupt: str = ""


def _huge_integer(digits: str) -> int | str:
    # Python refuses to convert more than 4,300 digits; a number that long is kept as its text.
    return int(digits) if len(digits) <= 4300 else digits


_decode = json.JSONDecoder(parse_int=_huge_integer).raw_decode


def read_values(
    source: SourceFile, *, offset: int = 0, number: int = 0, line: int = 1, settle: bool = False
) -> Iterator[RawValue]:
    """Yields every record from a resume point on, in order, in memory bounded by the largest.

    `offset`, `number` and `line` are 0, 0, 1 or the `end`, number + 1 and `end_line` of a value
    read before: any cut gives the same records as one read. An unterminated tail yields only its
    self-delimiting values that parse: provisional, or committed with `settle`.
    """
    with _opened(source, offset) as (file, encoding, start, is_line_start):
        width = len(encoding.newline)
        lines = _lines(file, start, encoding.newline, source.options.record_bytes)
        for begin, data, is_terminated in lines:
            is_long = isinstance(data, _LongLine)
            size = data.length if is_long else len(data)
            if is_terminated and encoding is _UTF8 and not is_long:
                # The common case: one whole object, nothing around it.
                value = _whole_object(data)
                if value is not None:
                    end = begin + size + 1
                    digest = sha256(data).digest()[:8]
                    yield RawValue(
                        number, line, begin, size, digest, value, "", False, False, False, end,
                        line + 1,
                    )  # fmt: skip
                    number += 1
                    line += 1
                    is_line_start = True
                    continue
            pieces = (_Piece(0, size),) if is_long else _pieces(data, encoding, is_terminated)
            is_blank = not pieces and is_terminated and is_line_start
            if is_blank:
                pieces = (_Piece(0, size),)
            left = len(pieces)
            for start, stop, value, corrupt in pieces:
                left -= 1
                is_last = is_terminated and not left
                yield RawValue(
                    number,
                    line,
                    begin + start,
                    stop - start,
                    data.digest if is_long else sha256(data[start:stop]).digest()[:8],
                    value,
                    corrupt,
                    is_long,
                    not (is_terminated or settle),
                    is_blank,
                    begin + (size + width if is_last else stop),
                    line + is_last,
                )
                number += 1
            line += 1
            is_line_start = True


def head_objects(head: bytes, source: SourceFile) -> Iterator[dict[str, Any]]:
    """Yields the first JSON objects of a file that may be of a line format, to recognise it by.

    Looks at the head alone, unless not even its first line ends there; then reads that line.
    """
    encoding = _encoding(head)
    body = head.removeprefix(encoding.bom)
    lines: Iterable[bytes | _LongLine] = _split(body, encoding.newline)
    if len(head) >= HEAD_BYTES:
        lines = list(lines)[:-1]
        if not lines and body.lstrip(b" \t\r\n\0")[:1] == b"{":
            with source.open(len(head) - len(body)) as file:
                reader = _lines(file, 0, encoding.newline, source.options.record_bytes)
                lines = [data for _, data, _ in islice(reader, 1)]
    for data in lines:
        if isinstance(data, bytes):
            for piece in _pieces(data, encoding, True):
                if isinstance(piece.value, dict):
                    yield piece.value


def epoch_ms(value: Any) -> int | None:
    """Epoch milliseconds of an ISO 8601 string (no zone is UTC) or of a number of milliseconds."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15:
        return int(value)
    return None


class LineParser(ABC):
    """Base of the parsers of line formats: numbers, places and resumes; subclasses map values.

    Strings reach `parse` free of lone surrogates. Set `settle` before `records` to commit an
    unterminated tail that parses.
    """

    settle: bool = False

    def __init__(
        self,
        source: SourceFile,
        stub: SessionStub,
        header: SessionHeader,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.stub = stub
        self.header = header
        self._offset, self._number, self._line = 0, 0, 1
        self._committed: dict[str, Any] | None = None
        if state is not None:
            self._offset, self._number, self._line = (
                state["offset"], state["number"], state["line"],
            )  # fmt: skip
            for name, value in state["header"].items():
                if name not in ("session_id", "agent", "format"):
                    setattr(header, name, value)
            self.load(state["own"])

    @abstractmethod
    def parse(self, record: Record, value: dict[str, Any]) -> None:
        """Fills in what the object says; must accept any object."""

    @abstractmethod
    def save(self) -> dict[str, Any]:
        """The subclass's own JSON-able state."""

    @abstractmethod
    def load(self, own: dict[str, Any]) -> None:
        """Takes up what `save` gave."""

    def state(self) -> dict[str, Any]:
        """The resume state as of the last committed record that was yielded."""
        if self._committed is not None:
            return self._committed
        return {
            "offset": self._offset,
            "number": self._number,
            "line": self._line,
            "header": {name: getattr(self.header, name) for name in SessionHeader.__slots__},
            "own": pickle.loads(pickle.dumps(self.save())),  # a copy: parsing goes on
        }

    def records(self) -> Iterator[Record]:
        """Yields every record after the resume point, the provisional tail last."""
        values = read_values(
            self.source,
            offset=self._offset,
            number=self._number,
            line=self._line,
            settle=self.settle,
        )
        for (
            number, line, byte_offset, byte_length, digest, value, corrupt, oversized, provisional,
            _, end, end_line,
        ) in values:  # fmt: skip
            record = Record(number, byte_offset, byte_length, line, digest)
            if corrupt or oversized:
                record.corrupt, record.oversized = corrupt, oversized
                record.flags = OVERSIZED if oversized else 0
            if not provisional:
                self._offset, self._number, self._line = end, number + 1, end_line
            else:
                record.provisional = True
                if self._committed is None:
                    self._committed = self.state()
            if isinstance(value, dict):
                try:
                    self.parse(record, value)
                except RecursionError:
                    # orjson reads deeper nesting than rendering a value as text can follow.
                    record.items = []
                    record.corrupt = TOO_DEEP
            yield record


# ---------------------------------------------------------------- lines of a stream


def _encoding(beginning: bytes) -> _Encoding:
    return next((each for each in _UTF16 if beginning.startswith(each.bom)), _UTF8)


class _Opened(NamedTuple):
    """A file at the place where reading begins."""

    file: BinaryIO
    encoding: _Encoding
    start: int
    is_line_start: bool


@contextmanager
def _opened(source: SourceFile, offset: int) -> Generator[_Opened]:
    with ExitStack() as stack:
        file = stack.enter_context(source.open())
        beginning = file.read(3)
        encoding = _encoding(beginning)
        start = len(encoding.bom) if beginning.startswith(encoding.bom) else 0
        is_line_start = offset <= start
        start = max(start, offset)
        place = start if is_line_start else start - len(encoding.newline)
        if offset or source.is_compressed:
            file = stack.enter_context(source.open(place))
        else:
            file.seek(place)
        if not is_line_start:
            is_line_start = file.read(len(encoding.newline)) == encoding.newline
        yield _Opened(file, encoding, start, is_line_start)


def _split(data: bytes, newline: bytes) -> list[bytes]:
    """Splits at newlines; of two bytes only where they are one aligned unit."""
    if len(newline) == 1:
        return data.split(newline)
    parts: list[bytes] = []
    begin = 0
    found = data.find(newline)
    while found >= 0:
        if found % 2:
            found = data.find(newline, found + 1)
            continue
        parts.append(data[begin:found])
        begin = found + 2
        found = data.find(newline, begin)
    parts.append(data[begin:])
    return parts


def _lines(
    file: BinaryIO, start: int, newline: bytes, limit: int
) -> Iterator[tuple[int, bytes | _LongLine, bool]]:
    """Yields offset, line without its newline, and whether it had one; no tail above the limit."""
    width = len(newline)
    held: list[bytes] = []
    held_bytes = 0
    block = file.read(BLOCK_BYTES)
    while block:
        parts = _split(block, newline)
        tail = parts.pop()
        if parts and held:
            parts[0] = b"".join((*held, parts[0]))
            held, held_bytes = [], 0
        for data in parts:
            size = len(data)
            if size > limit:
                yield start, _LongLine(size, sha256(data).digest()[:8]), True
            else:
                yield start, data, True
            start += size + width
        if tail:
            held.append(tail)
            held_bytes += len(tail)
        if held_bytes <= limit:
            block = file.read(BLOCK_BYTES)
            continue
        skipped = _skip_line(file, held, newline)
        held, held_bytes = [], 0
        if skipped is None:
            return
        line, block = skipped
        yield start, line, True
        start += line.length + width
        block = block or file.read(BLOCK_BYTES)
    if held:
        yield start, b"".join(held), False


def _skip_line(file: BinaryIO, held: list[bytes], newline: bytes) -> tuple[_LongLine, bytes] | None:
    """Reads to the end of a line without keeping it; gives it and what was read behind it."""
    hasher = sha256()
    length = 0
    for data in held:
        hasher.update(data)
        length += len(data)
    while block := file.read(BLOCK_BYTES):
        head = _split(block, newline)[0]
        hasher.update(head)
        length += len(head)
        if len(head) < len(block):
            digest = hasher.digest()[:8]
            return _LongLine(length, digest), block[len(head) + len(newline) :]
    return None


# ---------------------------------------------------------------- values of a line


def _whole_object(data: bytes) -> Any:
    """The object that a UTF-8 line is, from its first byte to its last; else None."""
    if data[:1] == b"{" and data[-1:] == b"}":
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            return None
    return None


def _pieces(data: bytes, encoding: _Encoding, is_terminated: bool) -> Sequence[_Piece]:
    """The values of a line and what cannot be read of it, with places in bytes."""
    if encoding is _UTF8:
        value = _whole_object(data)
        if value is not None:
            return (_Piece(0, len(data), value),)
        if data.isascii():
            return list(_values(data.decode("ascii"), is_terminated))
    elif len(data) % 2:
        data = data[:-1]
    name, errors = encoding.name, encoding.errors
    text = data.decode(name, errors)
    is_invalid = encoding is _UTF8 and _LONE_SURROGATE.search(text) is not None
    pieces: list[_Piece] = []
    characters = position = 0
    for start, stop, value, corrupt in _values(text, is_terminated):
        body = text[start:stop].encode(name, errors)
        begin = position + len(text[characters:start].encode(name, errors))
        position, characters = begin + len(body), stop
        if is_invalid and not corrupt:
            value = _clean(_decode(body.decode("utf-8", "replace"))[0])
        pieces.append(_Piece(begin, position, value, corrupt))
    return pieces


def _values(text: str, is_terminated: bool) -> Iterator[_Piece]:
    """Yields glued values as consecutive pieces; what does not parse is one piece."""
    at = _after_padding(text, 0)
    while at < len(text):
        is_delimited = text[at] in _SELF_DELIMITING
        fault = at
        reason = ""
        value = None
        stop = at
        try:
            value, stop = _decode(text, at)
            if not is_delimited and not _ends_scalar(text, stop):
                fault, reason = stop, "Extra data"
            elif _SURROGATE_ESCAPE.search(text, at, stop) or _LONE_SURROGATE.search(text, at, stop):
                value = _clean(value)
        except json.JSONDecodeError as error:
            fault, reason = error.pos, error.msg
        except RecursionError:
            fault, reason = len(text), TOO_DEEP
        if not is_terminated and (reason or not is_delimited):
            return
        if reason:
            stop = len(text) if reason == TOO_DEEP else _next_record(text, at, fault)
            torn = text[at:stop]
            if stop == len(text):
                torn = torn.rstrip(" \t\r\n\x0b\x0c\0")
            yield _Piece(at, at + len(torn), None, f"not JSON: {reason} (character {fault - at})")
        else:
            yield _Piece(at, stop, value)
        at = _after_padding(text, stop)


def _after_padding(text: str, at: int) -> int:
    found = _PADDING.match(text, at)
    return found.end() if found else at


def _ends_scalar(text: str, stop: int) -> bool:
    """Whether a number or literal ends here, rather than runs on as in `2024-01-01`."""
    return stop == len(text) or text[stop] in _SELF_DELIMITING or _after_padding(text, stop) > stop


def _next_record(text: str, at: int, fault: int) -> int:
    """Where a whole record begins behind a torn one that begins at `at`, else the line's end.

    A parser fails where the new record begins, at most two characters behind it (a string torn
    open ends at its first quote). Openers before that are nested in the torn record, unless it
    was cut just where a value may stand: then the record must look like one.
    """
    search = at + 1
    unclosed = 0
    while found := _OPENER.search(text, search):
        begin = found.start()
        is_nested = begin < fault - 2
        try:
            value, stop = _decode(text, begin)
        except json.JSONDecodeError as error:
            unclosed += is_nested
            if unclosed > _UNCLOSED_LIMIT:
                break
            search = begin + 1 if is_nested else max(begin + 1, error.pos - 2)
            continue
        except RecursionError:
            break
        follow = _after_padding(text, stop)
        is_followed = follow == len(text) or text[follow] == "{"
        if is_followed and (not is_nested or not _ENVELOPE_KEYS.isdisjoint(value)):
            return begin
        search = stop
    return len(text)


def _clean(value: Any) -> Any:
    """The value with every lone surrogate replaced by U+FFFD, in keys too."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return value
