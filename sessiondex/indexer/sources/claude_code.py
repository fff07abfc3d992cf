"""Claude Code: session files, the files of sub-agents, and the copies of them in `progress` lines.

One file is one session, known by its name; the `sessionId` inside a file changes its mind. Records
that only tell the harness something (snapshots, queue, modes, copies of requests) and types yet
unknown are numbered and otherwise left alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.indexer.sources.claude_blocks import (
    assistant_items,
    real_model,
    text_of,
    user_items,
)
from sessiondex.indexer.sources.lines import LineParser, epoch_ms, head_objects
from sessiondex.model import (
    COPIED,
    SIDECHAIN,
    SUPERSEDED,
    SYNTHETIC,
    Fact,
    Item,
    Record,
    clean_text,
)
from sessiondex.model import SessionHeader as Header

_AGENT_PREFIX: Final = "agent-"

_BARE_TYPES: Final = frozenset(
    (
        "summary", "file-history-snapshot", "file-history-delta", "last-prompt", "ai-title",
        "custom-title", "agent-name", "mode", "permission-mode", "atis-latch", "bridge-session",
        "cost-state", "queue-operation", "pr-link", "api-request", "api-request-shape",
        "api-request-blob",
    )
)  # fmt: skip
"""Types of records that are no part of the conversation's chain."""

_TITLE_FIELDS: Final = {
    "summary": (1, "summary"),
    "ai-title": (2, "aiTitle"),
    "custom-title": (3, "customTitle"),
    "agent-name": (3, "agentName"),
}
"""Type of a title record -> its rank (none gives way to a lower one) and its field."""

_TURN_ENDS: Final = frozenset(("turn_duration", "stop_hook_summary"))

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")

_META_BYTES: Final = 1 << 20


class ClaudeCodeFormat:
    """The files below a Claude Code home, and such files anywhere else."""

    name = "claude_code"
    agent = "claude-code"
    parser_version = 1
    is_line_format = True

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether the first objects are Claude Code records, whatever comes first."""
        for count, value in enumerate(head_objects(head, source), 1):
            if _is_claude_record(value):
                return True
            if count >= 8:
                break
        return False

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """One session: the file's stem, or `<parent id>/<agent id>` of a sub-agent's own file."""
        stem = _stem(source.path)
        parent = _parent_session(source) if stem.startswith(_AGENT_PREFIX) else ""
        agent = stem.removeprefix(_AGENT_PREFIX)
        return [SessionStub(f"{parent}/{agent}" if parent else stem)]

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> ClaudeCodeParser:
        """A parser from the beginning, or from a state that `state` of another gave."""
        header = Header(session_id=stub.session_id, agent=self.agent, format=self.name)
        header.parent = stub.session_id.rpartition("/")[0]
        header.sub_agent = bool(header.parent)
        if header.sub_agent and state is None:
            _read_agent_meta(source.path, header)
        return ClaudeCodeParser(source, stub, header, state)

    def resume_command(self, header: Header) -> list[str] | None:
        """`claude --resume <id>`; none for a sub-agent, which only its parent can resume."""
        return None if header.sub_agent else ["claude", "--resume", header.session_id]


class ClaudeCodeParser(LineParser):
    """Reads one Claude Code file."""

    def __init__(
        self,
        source: SourceFile,
        stub: SessionStub,
        header: Header,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._is_inline = False
        self._title_rank = 0
        self._human_children: dict[str, list[Any]] = {}
        """Parent uuid -> number and uuid of its last child that a person wrote."""
        self._has_own_file: dict[str, bool] = {}
        """Agent id -> whether its copies are hidden; decided once, so that refs stay."""
        super().__init__(source, stub, header, state)

    def save(self) -> dict[str, Any]:
        """What later records are judged by."""
        return {
            "title_rank": self._title_rank,
            "human_children": self._human_children,
            "has_own_file": self._has_own_file,
        }

    def load(self, own: dict[str, Any]) -> None:
        """Takes up what `save` gave."""
        self._title_rank = own["title_rank"]
        self._human_children = own["human_children"]
        self._has_own_file = own["has_own_file"]

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        """Fills in one record by its type."""
        kind = text_of(value.get("type"))
        if kind in _TITLE_FIELDS:
            self._read_title(record, value, *_TITLE_FIELDS[kind])
            return
        self._read_envelope(record, value)
        if kind == "user" or kind == "assistant":
            self._read_message(record, value)
        elif kind == "progress":
            self._read_progress(record, value)
        elif kind == "attachment":
            self._read_attachment(record, value)
        elif kind == "system":
            self._read_system(record, value)

    def _read_title(self, record: Record, value: dict[str, Any], rank: int, field: str) -> None:
        title = text_of(value.get(field)).replace("\0", "").strip()
        if title and rank >= self._title_rank:
            self._title_rank = rank
            record.title = self.header.title = title

    def _read_envelope(self, record: Record, value: dict[str, Any]) -> None:
        header = self.header
        record.timestamp = epoch_ms(value.get("timestamp"))
        record.record_id = text_of(value.get("uuid"))
        record.cwd = text_of(value.get("cwd")).replace("\0", "")
        record.branch = text_of(value.get("gitBranch")).replace("\0", "")
        if value.get("isSidechain") is True or header.sub_agent:
            record.flags |= SIDECHAIN
        # A sub-agent's line inside the session that called it, which is no session of its own.
        self._is_inline = value.get("isSidechain") is True and not header.sub_agent
        origin = value.get("forkedFrom")
        if origin:
            record.replayed = True
            record.flags |= COPIED
            if isinstance(origin, dict) and not header.parent:
                header.parent = text_of(origin.get("sessionId"))
        header.project = header.project or record.cwd
        header.branch = record.branch or header.branch

    def _read_message(self, record: Record, value: dict[str, Any], pointer: str = "") -> None:
        """Reads a user or assistant record, also one nested in another at `pointer`."""
        message = value.get("message")
        if not isinstance(message, dict):
            return
        content = message.get("content")
        record.blocks = max(1, len(content)) if isinstance(content, list) else 1
        pointer += "/message/content"
        if value.get("type") == "assistant":
            model = text_of(message.get("model"))
            record.model = real_model(message)
            record.items = assistant_items(
                content, pointer=pointer, model=model,
                is_api_error=bool(value.get("isApiErrorMessage")),
            )  # fmt: skip
            if not self._is_inline:
                self.header.model = record.model or self.header.model
                record.closes_turn = message.get("stop_reason") == "end_turn" and (
                    bool(record.items) and record.items[-1].kind == "assistant"
                )
            return
        origin = value.get("origin")
        kind = text_of(origin.get("kind")) if isinstance(origin, dict) else ""
        record.items = user_items(
            content,
            pointer=pointer,
            is_harness=bool(value.get("isMeta") or kind not in ("", "human", "user")),
            is_compaction_summary=bool(value.get("isCompactSummary")),
        )
        if self._is_inline:
            for item in record.items:
                if item.kind == "user":
                    item.flags |= SYNTHETIC
        elif any(item.kind == "user" and not item.flags & SYNTHETIC for item in record.items):
            self._note_human_child(record, text_of(value.get("parentUuid")))

    def _note_human_child(self, record: Record, parent: str) -> None:
        """A second human child of one parent begins a new branch: what lies between is rewound."""
        if not parent:
            return
        number, uuid = self._human_children.get(parent, (None, ""))
        if number is not None and uuid != record.record_id:
            record.facts.append(Fact(SUPERSEDED, number, record.number - 1))
        self._human_children[parent] = [record.number, record.record_id]

    def _read_progress(self, record: Record, value: dict[str, Any]) -> None:
        """Shows a sub-agent's record that is copied here, unless its own file holds it."""
        data = value.get("data")
        nested = data.get("message") if isinstance(data, dict) else None
        if not isinstance(data, dict) or data.get("type") != "agent_progress":
            return
        if not isinstance(nested, dict) or nested.get("type") not in ("user", "assistant"):
            return
        record.flags |= SIDECHAIN
        self._is_inline = True
        self._read_message(record, nested, "/data/message")
        if self._is_read_elsewhere(text_of(data.get("agentId"))):
            record.items = []
            return
        # The id that the sub-agent's own file would give it, so that copies are found.
        record.record_id = text_of(nested.get("uuid")) or record.record_id
        record.timestamp = epoch_ms(nested.get("timestamp")) or record.timestamp

    def _is_read_elsewhere(self, agent: str) -> bool:
        if agent not in self._has_own_file:
            self._has_own_file[agent] = bool(_SAFE_NAME.match(agent)) and _has_agent_file(
                self.source.path, agent
            )
        return self._has_own_file[agent]

    def _read_attachment(self, record: Record, value: dict[str, Any]) -> None:
        """Keeps queued user text and hook output; all else is context of the harness."""
        attachment = value.get("attachment")
        if not isinstance(attachment, dict):
            return
        kind = text_of(attachment.get("type"))
        if kind == "queued_command":
            is_notification = attachment.get("commandMode") == "task-notification"
            record.items = user_items(
                attachment.get("prompt"),
                pointer="/attachment/prompt",
                is_harness=bool(value.get("isMeta")),
            )
            prompt = attachment.get("prompt")
            record.blocks = max(1, len(prompt)) if isinstance(prompt, list) else 1
            for item in record.items:
                if is_notification:
                    item.kind, item.sub_kind = "system", "notification"
                elif self._is_inline and item.kind == "user":
                    item.flags |= SYNTHETIC
        elif kind.startswith("hook_"):
            text = _rendered_text(value, attachment) or _hook_text(attachment)
            if text:
                record.items = [Item(0, "system", text, sub_kind="hook", pointer="/attachment")]

    def _read_system(self, record: Record, value: dict[str, Any]) -> None:
        subtype = text_of(value.get("subtype"))
        record.closes_turn = subtype in _TURN_ENDS and not self._is_inline
        text = text_of(value.get("content"))
        if text.strip() and not value.get("isMeta"):
            record.items = [Item(0, "system", text, sub_kind=subtype, pointer="/content")]


def ends_run(value: dict[str, Any], *, is_sub_agent: bool) -> bool | None:
    """Whether the agent has stopped working with this record; None: it says nothing of that.

    A hook that runs when the agent wants to stop may still send it back to work, so the summary
    of such hooks says nothing. Nor does a sub-agent's line in the session that called it.
    """
    kind = value.get("type")
    if value.get("isSidechain") is True and not is_sub_agent:
        return None
    if kind == "system":
        return True if value.get("subtype") == "turn_duration" else None
    if kind == "user":
        return False
    if kind != "assistant":
        return None
    message = value.get("message")
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text"}]
    kinds = [each.get("type") for each in blocks if isinstance(each, dict)]
    return (
        message.get("stop_reason") in ("end_turn", "stop_sequence")
        and "tool_use" not in kinds
        # Every block of a message is a line of its own, and each of them may have the reason.
        and kinds[-1:] == ["text"]
    )


# ---------------------------------------------------------------- recognition and places


def _is_claude_record(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    message = value.get("message")
    if kind in ("user", "assistant"):
        # Qwen Code has the same envelope around Gemini parts.
        return (
            isinstance(message, dict)
            and "parts" not in message
            and any(key in value for key in ("uuid", "parentUuid", "sessionId", "isSidechain"))
        )
    if kind in ("summary", "file-history-snapshot", "file-history-delta"):
        return any(key in value for key in ("leafUuid", "messageId", "snapshot", "sessionId"))
    if kind in ("attachment", "progress", "system"):
        return "uuid" in value and ("isSidechain" in value or "userType" in value)
    return kind in _BARE_TYPES and "sessionId" in value


def _stem(path: Path) -> str:
    return path.name.removesuffix(".zst").removesuffix(".jsonl")


def _parent_session(source: SourceFile) -> str:
    """The session of a sub-agent's file, by its folder, else by its records; '' if it is none."""
    folders = source.path.parts[:-1]
    if "subagents" in folders[1:]:
        last = len(folders) - 1 - folders[::-1].index("subagents")
        return folders[last - 1]
    for value in head_objects(source.head(), source):
        if "agentId" in value or value.get("isSidechain") is True:
            return text_of(value.get("sessionId"))
    return ""


def _read_agent_meta(path: Path, header: Header) -> None:
    """Takes title and parent from the `.meta.json` beside a sub-agent's file, if there is one."""
    try:
        with open(path.with_name(f"{_stem(path)}.meta.json"), "rb") as file:
            meta = json.loads(file.read(_META_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(meta, dict):
        return
    header.title = clean_text(text_of(meta.get("description")))
    spawner = text_of(meta.get("parentAgentId"))
    if spawner and header.parent:
        header.parent = f"{header.parent}/{spawner}"


def _has_agent_file(path: Path, agent: str) -> bool:
    name = f"{_AGENT_PREFIX}{agent}.jsonl"
    if path.with_name(name).exists():
        return True
    folder = path.parent / _stem(path) / "subagents"
    return (folder / name).exists() or any(folder.glob(f"workflows/*/{name}"))


# ---------------------------------------------------------------- hook output


def _rendered_text(value: dict[str, Any], attachment: dict[str, Any]) -> str:
    """What the model saw of an attachment, where the record says it."""
    rendered = value.get("rendered") or attachment.get("rendered")
    texts = [
        text_of(each.get("content"))
        for each in (rendered if isinstance(rendered, list) else [])
        if isinstance(each, dict)
    ]
    return "\n".join(text for text in texts if text)


def _hook_text(attachment: dict[str, Any]) -> str:
    texts: list[str] = []
    for key in ("content", "blockingError", "systemMessage", "stdout", "stderr"):
        part = attachment.get(key)
        if isinstance(part, dict):
            part = part.get(key)
        for text in part if isinstance(part, list) else [part]:
            if isinstance(text, str) and text.strip() and text not in texts:
                texts.append(text)
    return "\n".join(texts)


CLAUDE_CODE: Final = ClaudeCodeFormat()
