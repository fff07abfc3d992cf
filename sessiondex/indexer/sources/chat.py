"""Plain chat: message arrays as OpenAI, Anthropic and ShareGPT data sets write them.

`CHAT` reads what is rewritten as a whole: a document with one conversation, a bare list of
messages, or JSON lines with one conversation each. `CHAT_LINES` reads JSON lines with one message
each, which only grow. Nothing in them says where they come from, so a session is known by the
place of its file, and whatever another format would claim is left to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from sessiondex.errors import Failed
from sessiondex.indexer.sources.base import HEAD_BYTES, SessionStub, SourceFile, real_path
from sessiondex.indexer.sources.chat_messages import MessageReader, is_message
from sessiondex.indexer.sources.documents import (
    DECODER,
    Cut,
    DocumentParser,
    Element,
    array_elements,
    as_dict,
    as_text,
    head_text,
    leading_elements,
    leading_fields,
    parse_json,
    read_document,
)
from sessiondex.indexer.sources.lines import LineParser, RawValue, head_objects, read_values
from sessiondex.model import Record, SessionHeader

_PADDING: Final = "\0 \t\r\n"

_MESSAGE_FIELDS: Final = ("messages", "conversations", "conversation")
"""Where a conversation object keeps its messages; the first that is there counts."""

_ARRAY_FIELDS: Final = (*_MESSAGE_FIELDS, "input", "output")
"""The same, and the two arrays of the Responses API, which follow each other."""


class ChatFormat:
    """Conversations that are written as a whole."""

    name = "chat"
    agent = "chat"
    parser_version = 1
    is_line_format = False

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether the file holds whole conversations."""
        return _shape(head, source) in ("document", "conversations")

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The session of a document, or one for each line that holds a conversation.

        A line that cannot be read counts too: its session has one corrupt record.
        """
        session_id = _session_id(source)
        if _shape(source.head(), source) != "conversations":
            return [SessionStub(session_id)]
        places = [
            (raw.line, raw.byte_offset, raw.byte_length)
            for raw in read_values(source)
            if raw.corrupt or raw.oversized or _is_conversation(raw.value)
        ]
        return [
            SessionStub(
                f"{session_id}/{line}" if len(places) > 1 else session_id,
                f"{line} {offset} {length}",
            )
            for line, offset, length in places
        ]

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> ChatParser | UnreadableLine:
        """A parser of the document or of the line that the stub selects."""
        header = SessionHeader(stub.session_id, self.agent, self.name)
        if not stub.selector:
            return ChatParser(header, read_document(source), state=state)
        line, offset, length = map(int, stub.selector.split())
        if length <= source.options.record_bytes:
            # The common case, without reading on to the lines behind it.
            with source.open(offset) as file:
                data = file.read(length)
            try:
                return ChatParser(header, parse_json(data), line=line, state=state)
            except ValueError:
                pass
        raw = next(read_values(source, offset=offset, line=line, settle=True), None)
        if raw is None:
            raise Failed(f"'{source.path}' has no line {line} any more")
        if raw.corrupt or raw.oversized:
            return UnreadableLine(header, raw, state)
        return ChatParser(header, raw.value, line=raw.line, state=state)

    def resume_command(self, header: SessionHeader) -> list[str] | None:
        """None: a chat belongs to no agent that could resume it."""
        return None


class ChatLinesFormat:
    """One conversation in JSON lines of one message each."""

    name = "chat_lines"
    agent = "chat"
    parser_version = 1
    is_line_format = True

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether each line of the file holds one message."""
        return _shape(head, source) == "messages"

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The one session of the file."""
        return [SessionStub(_session_id(source))]

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> ChatLinesParser:
        """A parser from the beginning or from a state."""
        header = SessionHeader(stub.session_id, self.agent, self.name)
        return ChatLinesParser(source, stub, header, state)

    def resume_command(self, header: SessionHeader) -> list[str] | None:
        """None: a chat belongs to no agent that could resume it."""
        return None


CHAT: Final = ChatFormat()
CHAT_LINES: Final = ChatLinesFormat()


# ---------------------------------------------------------------- parsers


class ChatParser(DocumentParser):
    """Reads the messages of one conversation."""

    def __init__(
        self,
        header: SessionHeader,
        conversation: Any,
        *,
        line: int = 0,
        state: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(header, _elements(conversation), state)
        self.line = line
        fields = as_dict(conversation)
        header.model = as_text(fields.get("model"))
        header.title = as_text(fields.get("title"))
        self._reader = MessageReader()

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        """Fills the record of one message."""
        self._reader.read(record, value)
        self.header.model = self.header.model or record.model


class UnreadableLine:
    """The session of a line that cannot be read: one record that says why."""

    settle: bool = False

    def __init__(
        self, header: SessionHeader, raw: RawValue, state: dict[str, Any] | None = None
    ) -> None:
        self.header = header
        self._raw = raw
        self._number: int = state["number"] if state else 0

    def records(self) -> Iterator[Record]:
        """Yields the one record."""
        if self._number == 0:
            raw = self._raw
            self._number = 1
            yield Record(
                number=0,
                byte_offset=raw.byte_offset,
                byte_length=raw.byte_length,
                line=raw.line,
                digest=raw.digest,
                corrupt=raw.corrupt,
                oversized=raw.oversized,
            )

    def state(self) -> dict[str, Any]:
        """`{"number"}` of the next record."""
        return {"number": self._number}


class ChatLinesParser(LineParser):
    """Reads one message a line."""

    _reader: MessageReader

    def __init__(
        self,
        source: SourceFile,
        stub: SessionStub,
        header: SessionHeader,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._reader = MessageReader()
        super().__init__(source, stub, header, state)

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        """Fills the record of one message."""
        self._reader.read(record, value)
        self.header.model = self.header.model or record.model

    def save(self) -> dict[str, Any]:
        """Whether the prompt is over."""
        return {"has_user": self._reader.has_user}

    def load(self, own: dict[str, Any]) -> None:
        """Takes up what `save` gave."""
        self._reader = MessageReader(has_user=own["has_user"])


# ---------------------------------------------------------------- recognising


def _session_id(source: SourceFile) -> str:
    """First 16 hex digits of SHA-256 over the real path."""
    return sha256(os.fsencode(real_path(source.path))).hexdigest()[:16]


def _shape(head: bytes, source: SourceFile) -> str:
    """`document`, `conversations` or `messages` (one a line), '' for what is no chat."""
    text = head_text(head)
    start = len(text) - len(text.lstrip(_PADDING))
    if text[start : start + 1] not in ("{", "["):
        return ""
    try:
        value, stop = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _shape_of_cut(head, source, "\n" in text[start:])
    is_one_line = "\n" not in text[start:stop]
    if text[stop:].strip(_PADDING):
        return _shape_of_line(value) if is_one_line else ""
    if is_one_line and is_message(value):
        return "messages"
    return "document" if _is_conversation(value) else ""


def _shape_of_cut(head: bytes, source: SourceFile, has_newline: bool) -> str:
    """The shape of a file whose head does not begin with a whole value."""
    if _is_foreign(leading_fields(head)):
        return ""
    if len(head) >= HEAD_BYTES and _may_be_conversation(head, source):
        if not has_newline:
            # A document in one line, or JSON lines of which the first is longer than the head.
            values = list(islice(read_values(source, settle=True), 2))
            readable = [each.value for each in values if not each.oversized]
            if readable and len(values) == 2:
                return _shape_of_line(readable[0])
            if readable and is_message(readable[0]):
                return "messages"
            del values, readable
        try:
            return "document" if _is_conversation(read_document(source)) else ""
        except Failed:
            pass
    # JSON lines of which the first is torn.
    return _shape_of_line(next(iter(head_objects(head, source)), None))


def _shape_of_line(value: Any) -> str:
    if is_message(value):
        return "messages"
    return "conversations" if _is_conversation(value) else ""


def _may_be_conversation(head: bytes, source: SourceFile) -> bool:
    """Whether the head of a document, cut somewhere, could be that of a conversation."""
    fields = leading_fields(head)
    arrays = [value for name in _ARRAY_FIELDS if isinstance(value := fields.get(name), Cut | list)]
    if not fields:
        arrays = [leading_elements(head)]
    elif not arrays:
        return _mentions_messages(source)
    for array in arrays:
        elements = array.elements if isinstance(array, Cut) else array
        if elements and not is_message(elements[0]):
            return False
    return True


def _mentions_messages(source: SourceFile) -> bool:
    """Whether the name of a message array stands anywhere in the file.

    Spares large documents of another kind from being held in memory only to be refused.
    """
    names = [f'"{name}"'.encode() for name in _ARRAY_FIELDS]
    tail = b""
    with source.open() as file:
        while block := file.read(1 << 20):
            window = tail + block
            if any(name in window for name in names):
                return True
            tail = window[-32:]
    return False


def _is_foreign(fields: dict[str, Any]) -> bool:
    """Whether an object is of a format that may hold messages too, but is not plain chat."""
    return (
        as_text(fields.get("schema_version")).startswith("ATIF-")
        or "trajectory_format" in fields  # mini-swe-agent
        or "resourceSpans" in fields  # OpenTelemetry
        or {"eval", "samples"} <= fields.keys()  # Inspect
        or {"trajectory", "history"} <= fields.keys()  # SWE-agent
    )


def _is_conversation(value: Any) -> bool:
    elements = _elements(value)[:3]
    return bool(elements) and all(is_message(element.value) for element in elements)


def _elements(conversation: Any) -> list[Element]:
    """The messages of a conversation: a bare list, or an object that holds them."""
    if isinstance(conversation, list):
        return array_elements("", conversation)
    if not isinstance(conversation, dict) or _is_foreign(conversation):
        return []
    for name in _MESSAGE_FIELDS:
        if isinstance(conversation.get(name), list):
            return array_elements(f"/{name}", conversation[name])
    elements = array_elements("/output", conversation.get("output"))
    given = conversation.get("input")
    if isinstance(given, str) and elements:
        # The Responses API takes a text for a list of one user message.
        return [Element("/input", {"role": "user", "content": given}), *elements]
    return array_elements("/input", given) + elements
