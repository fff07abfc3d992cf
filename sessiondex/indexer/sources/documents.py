"""Reading formats that are one JSON document, rewritten as a whole at every save.

A record of a document is an element of its message or step array: it is named by a JSON pointer,
not by bytes. A document is held in memory to be parsed, so its size is bounded by a setting;
what cannot be parsed as a whole is refused with the reason, never read in part.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from sessiondex.errors import Failed
from sessiondex.indexer.sources.base import DamagedCompression, SourceFile
from sessiondex.indexer.sources.lines import TOO_DEEP, epoch_ms
from sessiondex.model import Attachment, Record, SessionHeader, clean_text, compact_json

LFS_POINTER: Final = b"version https://git-lfs"
"""How a Git LFS pointer begins: a file whose real content was never fetched."""

_DIGITS_TO_ZERO: Final = bytes(ord("0") if chr(i).isdigit() and i < 128 else i for i in range(256))
_HUGE_DIGITS: Final = b"0" * 20
"""orjson turns integers of more than 64 bits into floats, which loses their digits."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

_MOST_DIGITS: Final = 4300
"""Python refuses to convert longer integers; they are kept as their digits."""


# ---------------------------------------------------------------- JSON


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


DECODER: Final = json.JSONDecoder(parse_int=_integer)
"""Decodes values one after the other; takes NaN, lone surrogates and integers of any length."""


def parse_json(data: bytes | str) -> Any:
    """Parses one JSON value; takes NaN and integers of any length.

    What it gives is free of lone surrogates: they become U+FFFD.

    Raises:
        ValueError: for anything that is not one JSON value, or is nested too deeply.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if _HUGE_DIGITS not in raw.translate(_DIGITS_TO_ZERO):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    text = data if isinstance(data, str) else raw.decode("utf-8", "replace")
    try:
        value = DECODER.decode(text)
        return _clean(value) if _SURROGATE.search(text) else value
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return value


def decode_json_bytes(data: bytes) -> bytes | str:
    """The JSON text behind a byte order mark: UTF-8 stays bytes, UTF-16 is decoded."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8)


def read_document(source: SourceFile) -> Any:
    """Reads a file as one JSON value.

    Raises:
        Failed: if it is larger than `document_bytes`, no JSON, a Git LFS pointer,
            or damaged compression.
    """
    limit = source.options.document_bytes
    try:
        with source.open() as file:
            data = file.read(limit + 1)
    except DamagedCompression as error:
        raise Failed(f"'{source.path}' has {error}") from None
    if len(data) > limit:
        raise Failed(
            f"'{source.path}' is a JSON document of more than {limit} bytes",
            hint="raise the setting document_bytes to read it",
        )
    if data.startswith(LFS_POINTER):
        raise Failed(
            f"'{source.path}' is a Git LFS pointer, not the file itself",
            hint="fetch the file with 'git lfs pull'",
        )
    try:
        return parse_json(decode_json_bytes(data))
    except ValueError as error:
        raise Failed(
            f"'{source.path}' is not a valid JSON document: {error}",
            hint="it is read again when it changes",
        ) from None


class Cut(NamedTuple):
    """A value that goes on behind what was read, with the whole elements of a cut array."""

    elements: list[Any]


def leading_fields(head: bytes) -> dict[str, Any]:
    """The first fields of a JSON object as far as its head goes; the last may be `Cut`.

    Empty for anything that does not begin like an object.
    """
    text = head_text(head)
    fields: dict[str, Any] = {}
    position = _skip_space(text, 0)
    if text[position : position + 1] != "{":
        return fields
    try:
        while text[position : position + 1] in ("{", ","):
            key, position = DECODER.raw_decode(text, _skip_space(text, position + 1))
            position = _skip_space(text, position)
            if not isinstance(key, str) or text[position : position + 1] != ":":
                break
            start = _skip_space(text, position + 1)
            fields[key] = Cut(_elements(text, start))
            fields[key], position = DECODER.raw_decode(text, start)
            position = _skip_space(text, position)
    except (ValueError, RecursionError):
        pass
    return fields


def leading_elements(head: bytes) -> list[Any]:
    """The first whole elements of a JSON array as far as its head goes."""
    text = head_text(head)
    return _elements(text, _skip_space(text, 0))


def head_text(head: bytes) -> str:
    """The text of a file's head; a character cut at its end becomes U+FFFD."""
    text = decode_json_bytes(head)
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\n", "\r", "\t"):
        position += 1
    return position


def _elements(text: str, position: int) -> list[Any]:
    """The leading whole elements, at most three, of the array that starts at a position."""
    elements: list[Any] = []
    if text[position : position + 1] != "[":
        return elements
    try:
        while len(elements) < 3 and text[position : position + 1] in ("[", ","):
            value, position = DECODER.raw_decode(text, _skip_space(text, position + 1))
            elements.append(value)
            position = _skip_space(text, position)
    except (ValueError, RecursionError):
        pass
    return elements


# ---------------------------------------------------------------- values


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def epoch_milliseconds(value: Any) -> int | None:
    """Epoch milliseconds of an ISO time (no zone = UTC), epoch seconds or epoch milliseconds."""
    if isinstance(value, str):
        return epoch_ms(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # 1e11 seconds lie beyond the year 5000, 1e11 milliseconds in 1973.
    milliseconds = value if abs(value) >= 1e11 else value * 1000
    # Beyond the year 9999, and NaN, it is no time.
    return round(milliseconds) if 0 < milliseconds < 253_402_300_800_000 else None


def base64_bytes(data: Any) -> int:
    """Decoded size of a base64 text, without decoding it; 0 for anything else."""
    if not isinstance(data, str):
        return 0
    return max(0, len(data) * 3 // 4 - data[-2:].count("="))


def url_attachment(url: Any, media_type: str) -> Attachment:
    """An attachment given by URL; a data URL says its own media type and size."""
    if isinstance(url, str) and url.startswith("data:"):
        described, _, body = url[5:].partition(",")
        return Attachment(described.partition(";")[0] or media_type, base64_bytes(body))
    return Attachment(media_type, 0)


def file_stem(path: Path) -> str:
    """The name of a file without its extension and without that of its compression."""
    return Path(path.name.removesuffix(".zst")).stem


# ---------------------------------------------------------------- records


class Element(NamedTuple):
    """One element of a document's message or step array, and its JSON pointer."""

    pointer: str
    value: Any


def array_elements(pointer: str, values: Any) -> list[Element]:
    """The elements of the array at a pointer; none if it is no array."""
    return [Element(f"{pointer}/{i}", value) for i, value in enumerate(as_list(values))]


def element_digest(value: Any) -> bytes:
    """First 8 bytes of SHA-256 over the compact JSON of an element."""
    return sha256(compact_json(value).encode()).digest()[:8]


class DocumentParser:
    """Base of the parsers of document formats: one record for each element, in order.

    A document is always read whole; resuming leaves out the records already known.
    """

    line: int = 0
    """Physical line of the document where a file holds one on each line, else 0."""
    settle: bool = False
    """A document has no tail to settle: it parses as a whole or not at all."""

    def __init__(
        self,
        header: SessionHeader,
        elements: Sequence[Element],
        state: dict[str, Any] | None = None,
    ) -> None:
        self.header = header
        self._elements = elements
        self._number: int = state["number"] if state else 0

    def records(self) -> Iterator[Record]:
        """Yields every record after the resume point, in order."""
        first = self._number
        for number, element in enumerate(self._elements):
            record = Record(number, 0, 0, self.line, b"", pointer=element.pointer)
            try:
                record.digest = element_digest(element.value)
                if isinstance(element.value, dict):
                    self.parse(record, element.value)
            except RecursionError:
                # orjson reads deeper nesting than rendering a value as text can follow.
                record.digest = sha256(element.pointer.encode()).digest()[:8]
                record.items, record.corrupt = [], TOO_DEEP
            if number >= first:
                self._number = number + 1
                yield record

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        """Fills a record from its element; called for every object, in order."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """`{"number"}` of the next record."""
        return {"number": self._number}
