"""Yoi segment logs: `<root>/<session>/<segment>.jsonl`, one record a line, tagged by `kind`.

A newline commits. The writer truncates an unterminated tail before it appends, so such a tail is
no record here, however long it stays. A segment that was forked or compacted from another repeats
its history in the first record; those blocks have the identities of the items they repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sessiondex.indexer.sources.base import Parser, SessionStub, SourceFile
from sessiondex.indexer.sources.documents import (
    as_dict,
    as_list,
    as_text,
    base64_bytes,
    file_stem,
    parse_json,
)
from sessiondex.indexer.sources.identity import Occurrences
from sessiondex.indexer.sources.lines import LineParser, epoch_ms, head_objects, read_values
from sessiondex.model import (
    COMPACTION_SUMMARY,
    COPIED,
    SUPERSEDED,
    Attachment,
    Fact,
    Item,
    Record,
    SessionHeader,
    clean_text,
    tool_input_text,
)

RECORD_KINDS: Final = frozenset(
    (
        "assistant_item",
        "config_changed",
        "extension",
        "invoke",
        "llm_usage",
        "paused_turn_abandoned",
        "run_completed",
        "run_errored",
        "segment_start",
        "system_item",
        "tool_result",
        "turn_end",
        "user_input",
    )
)
RUN_ENDS: Final = ("turn_end", "run_completed", "run_errored", "paused_turn_abandoned")
_RUN_PARTS: Final = ("invoke", "user_input", "assistant_item", "tool_result")
IGNORED_SYSTEM_ITEMS: Final = ("knowledge", "workflow")
"""Of earlier releases; Yoi itself does not replay them."""

TASK_SNAPSHOT: Final = "[Session TaskStore snapshot]"
HISTORY_OPENERS: Final = {
    TASK_SNAPSHOT: "task_snapshot",
    "[Compacted context summary]": "compaction_summary",
    "<system-reminder>": "task_reminder",
    "[Notification]": "notification",
    "[File: ": "file_attachment",
    "[Dir: ": "file_attachment",
}
"""How system messages begin whose sub-kind a history does not keep."""

_PLAN_MARKS: Final = {"completed": "x", "inprogress": "~", "in_progress": "~"}


class YoiFormat:
    """Segment logs; a debug trace (`*.trace.jsonl`) beside one is none."""

    name = "yoi"
    agent = "yoi"
    parser_version = 1
    is_line_format = True

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether the first object is a record of a segment log."""
        if source.path.name.removesuffix(".zst").endswith(".trace.jsonl"):
            return False
        first = next(iter(head_objects(head, source)), {})
        return as_text(first.get("kind")) in RECORD_KINDS and ("ts" in first or _is_start(first))

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The one segment, named `<session>/<segment>`."""
        first = next((raw.value for raw in read_values(source)), None)
        start = as_dict(first) if _is_start(as_dict(first)) else {}
        session = as_text(start.get("session_id")) or source.path.parent.name
        return [SessionStub(f"{session}/{file_stem(source.path)}")]

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> Parser:
        """A parser from the beginning or a state."""
        header = SessionHeader(session_id=stub.session_id, agent=self.agent, format=self.name)
        return YoiParser(source, stub, header, state)

    def resume_command(self, header: SessionHeader) -> list[str] | None:
        """None: Yoi resumes workers, not segments."""
        return None


YOI = YoiFormat()


class YoiParser(LineParser):
    """Reads one segment."""

    def __init__(
        self,
        source: SourceFile,
        stub: SessionStub,
        header: SessionHeader,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._session, _, header.segment_id = stub.session_id.rpartition("/")
        self._model = ""
        self._occurrences = Occurrences()
        super().__init__(source, stub, header, state)

    def save(self) -> dict[str, Any]:
        return {"model": self._model, "occurrences": self._occurrences.save()}

    def load(self, own: dict[str, Any]) -> None:
        self._model = own["model"]
        self._occurrences = Occurrences(own["occurrences"])

    def records(self) -> Iterator[Record]:
        """Yields every committed record after the resume point; `settle` changes nothing."""
        self.settle = False
        return (record for record in super().records() if not record.provisional)

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        if record.provisional:
            return
        kind = value.get("kind")
        record.timestamp = epoch_ms(value.get("ts"))
        record.closes_turn = kind in RUN_ENDS
        if kind == "segment_start":
            self._start(record, value)
        elif kind == "config_changed":
            self._configure(value)
        elif kind == "user_input":
            text = user_text(value.get("segments"))
            self._add(record, Item(0, "user", text) if text else None)
        elif kind in ("assistant_item", "tool_result"):
            self._add(record, history_item(as_dict(value.get("item"))))
        elif kind == "system_item":
            self._add(record, system_item(as_dict(value.get("item"))))
        record.model = self._model

    def _start(self, record: Record, value: dict[str, Any]) -> None:
        self._configure(value)
        origins = (value.get("forked_from"), value.get("compacted_from"))
        origin = next((each for each in origins if each), None)
        if origin is not None:
            record.replayed = True
            record.flags |= COPIED
            segment = as_text(as_dict(origin).get("segment_id")) or as_text(origin)
            self.header.parent = f"{self._session}/{segment}" if segment else ""
        if record.number:
            # Its history replaces what stands before it.
            record.facts.append(Fact(SUPERSEDED, 0, record.number - 1))
        history = as_list(value.get("history"))
        record.blocks = max(1, len(history))
        for block, entry in enumerate(history):
            self._add(record, history_item(as_dict(entry)), block, f"/history/{block}")

    def _configure(self, value: dict[str, Any]) -> None:
        self._model = as_text(as_dict(value.get("config")).get("model")) or self._model
        self.header.model = self._model

    def _add(self, record: Record, item: Item | None, block: int = 0, pointer: str = "") -> None:
        if item is None:
            return
        item.block, item.pointer = block, pointer
        item.replayed = record.replayed
        item.identity = self._occurrences.identity(self._session, item)
        record.items.append(item)


def ends_run(value: dict[str, Any], *, is_sub_agent: bool) -> bool | None:
    """Whether the worker has stopped working with this record; None: it says nothing of that."""
    kind = value.get("kind")
    if kind in RUN_ENDS:
        return True
    return False if kind in _RUN_PARTS else None


def _is_start(value: dict[str, Any]) -> bool:
    return value.get("kind") == "segment_start"


def _tag(value: dict[str, Any]) -> str:
    """The tag of an item, segment or part: `kind` on disk, `type` in memory."""
    return as_text(value.get("kind")) or as_text(value.get("type"))


def user_text(segments: Any) -> str:
    """What the user wrote, as the model gets it: segments joined without a separator."""
    texts: list[str] = []
    for each in as_list(segments):
        segment = as_dict(each)
        kind = _tag(segment)
        if kind in ("text", "paste"):
            texts.append(as_text(segment.get("content")))
        elif kind == "file_ref":
            texts.append(f"@{as_text(segment.get('path'))}")
        elif kind == "flow":
            texts.append(f"[Flow: {as_text(segment.get('selector'))}]")
    return clean_text("".join(texts))


def history_item(value: dict[str, Any]) -> Item | None:
    """The item of a history, an `assistant_item` or a `tool_result`; None for unknown ones."""
    kind = _tag(value)
    if kind == "message":
        return _message(value)
    if kind == "reasoning":
        return Item(0, "reasoning")
    call_id = as_text(value.get("call_id"))
    if kind == "tool_call":
        name = as_text(value.get("name"))
        return Item(
            0, "tool_call", _call_text(name, value.get("arguments")), call_id=call_id, name=name
        )
    if kind == "tool_result":
        summary = clean_text(as_text(value.get("summary")))
        content = value.get("content")
        return Item(
            0,
            "tool_result",
            clean_text(content) if isinstance(content, str) else summary,
            call_id=call_id,
            # Yoi writes the flag only where it is true.
            error=value.get("is_error") is True,
            summary=summary,
            attachments=_attachments(value.get("attachments")),
        )
    return None


def _call_text(name: str, arguments: Any) -> str:
    raw = as_text(arguments)
    try:
        parsed = parse_json(raw) if raw.lstrip().startswith("{") else arguments
        return tool_input_text(name, raw if parsed is None else parsed)
    except (ValueError, RecursionError):
        # Cut, or nested deeper than its text could be rendered.
        return tool_input_text(name, raw)


def _attachments(values: Any) -> list[Attachment]:
    attachments: list[Attachment] = []
    for each in as_list(values):
        value = as_dict(each)
        media_type = as_text(value.get("mime_type")) or _tag(value)
        attachments.append(Attachment(media_type, base64_bytes(value.get("data"))))
    return attachments


def _message(value: dict[str, Any]) -> Item | None:
    texts: list[str] = []
    for each in as_list(value.get("content")):
        part = as_dict(each)
        kind = _tag(part)
        if kind == "text":
            texts.append(as_text(part.get("text")))
        elif kind == "refusal":
            texts.append(as_text(part.get("refusal")) or as_text(part.get("text")))
    text = clean_text("\n".join(texts))
    role = as_text(value.get("role"))
    if not text or role not in ("user", "assistant", "system"):
        return None
    if role == "user":
        return Item(0, "user", text)
    if role == "assistant":
        return Item(0, "assistant", text)
    openers = (kind for opener, kind in HISTORY_OPENERS.items() if text.startswith(opener))
    return _system(next(openers, ""), text)


def system_item(value: dict[str, Any]) -> Item | None:
    """The entry of a system item: its `body`, with its kind as the sub-kind."""
    kind = _tag(value)
    body = clean_text(as_text(value.get("body")))
    if not body or kind in IGNORED_SYSTEM_ITEMS:
        return None
    return _system(kind, body)


def _system(sub_kind: str, text: str) -> Item:
    system = Item(0, "system", text, sub_kind=clean_text(sub_kind))
    if sub_kind == "compaction_summary":
        system.flags = COMPACTION_SUMMARY
    elif sub_kind == "task_reminder":
        system.plan = _inside(text, "<system-reminder>", "</system-reminder>").strip()
    elif sub_kind == "task_snapshot":
        system.plan = _snapshot_plan(text)
    return system


def _snapshot_plan(text: str) -> str:
    """The tasks of a snapshot as lines, or its text where it holds no JSON."""
    body = text.removeprefix(TASK_SNAPSHOT).strip()
    try:
        tasks = as_dict(parse_json(_inside(body, "```json\n", "\n```"))).get("tasks")
    except ValueError:
        return body
    lines: list[str] = []
    for each in as_list(tasks):
        task = as_dict(each)
        status = as_text(task.get("status"))
        if status != "deleted":
            mark = _PLAN_MARKS.get(status, " ")
            lines.append(f"[{mark}] {as_text(task.get('subject'))}")
    return clean_text("\n".join(lines)) or body


def _inside(text: str, opening: str, closing: str) -> str:
    """The text between two marks, or all of it where they are missing."""
    _, opened, rest = text.partition(opening)
    inner, closed, _ = rest.partition(closing)
    return inner if opened and closed else text
