"""Codex rollouts, line by line: enveloped records, and the bare items of mid-2025.

Response items are the conversation; event messages repeat them for the screen and become entries
only in a file that has a finished turn and no response item. That choice is made once and kept:
where a file later contradicts it, the parser sets `needs_reread` instead of mending entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from sessiondex.indexer.sources.base import Parser, SessionStub, SourceFile
from sessiondex.indexer.sources.codex_items import compaction_item, event_item, response_item
from sessiondex.indexer.sources.codex_lineage import Lineage, Thread, uuid_time
from sessiondex.indexer.sources.documents import as_dict, as_text, file_stem
from sessiondex.indexer.sources.identity import Occurrences
from sessiondex.indexer.sources.lines import LineParser, epoch_ms, head_objects, read_values
from sessiondex.model import COPIED, SIDECHAIN, SUPERSEDED, SYNTHETIC, Fact, Item, Record
from sessiondex.model import SessionHeader as Header

ENVELOPE_TYPES: Final = frozenset(
    (
        "compacted",
        "event_msg",
        "inter_agent_communication_metadata",
        "response_item",
        "session_meta",
        "token_usage_record",
        "turn_context",
        "world_state",
    )
)
TURN_ENDS: Final = ("task_complete", "turn_complete", "turn_aborted")

HEAD_RECORDS: Final = 16
"""Objects at the beginning of a file that are looked at to recognise it."""

META_SEARCH_RECORDS: Final = 256
"""How far a file is read for its meta; without one its name gives the session id."""

PENDING_EXIT_CODES: Final = 64
"""Calls whose end was reported and whose output is still to come."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_CWD = re.compile(r"<cwd>([^<\n]+)</cwd>|Current working directory: ([^\n]+)")


class CodexFormat:
    """Rollout files, `.jsonl` and `.jsonl.zst`, of every release that wrote lines."""

    name = "codex"
    agent = "codex"
    parser_version = 1
    is_line_format = True

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether an enveloped record or a legacy meta stands at the beginning."""
        objects = list(islice(head_objects(head, source), HEAD_RECORDS))
        return any(_is_enveloped(value) for value in objects) or (
            bool(objects) and _is_legacy_meta(objects[0])
        )

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The one session of the file, named by its first meta."""
        return [SessionStub(_session_id(source))]

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> Parser:
        """A parser from the beginning or a state."""
        header = Header(session_id=stub.session_id, agent=self.agent, format=self.name)
        return CodexParser(source, stub, header, state)

    def resume_command(self, header: Header) -> list[str] | None:
        """`codex resume ID`."""
        return ["codex", "resume", header.session_id]


CODEX = CodexFormat()


class CodexParser(LineParser):
    """Reads one rollout.

    When `needs_reread` is set after `records`, what was yielded since the resume state is void:
    the file is to be read again from its beginning, as a new generation.
    """

    def __init__(
        self,
        source: SourceFile,
        stub: SessionStub,
        header: Header,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.needs_reread = False
        self._reads = ""
        """`items` or `events`, once it is decided which of them are the conversation."""
        self._has_finished_turn = False
        self._is_prompt_over = False
        self._cwd = self._branch = self._model = ""
        self._prompts: list[int] = []
        """Records of the user's prompts, for rollbacks."""
        self._exit_codes: dict[str, int] = {}
        self._lineage = Lineage()
        self._occurrences = Occurrences()
        super().__init__(source, stub, header, state)

    def save(self) -> dict[str, Any]:
        return {
            "reads": self._reads,
            "has_finished_turn": self._has_finished_turn,
            "is_prompt_over": self._is_prompt_over,
            "cwd": self._cwd,
            "branch": self._branch,
            "model": self._model,
            "prompts": self._prompts,
            "exit_codes": self._exit_codes,
            "lineage": self._lineage.save(),
            "occurrences": self._occurrences.save(),
        }

    def load(self, own: dict[str, Any]) -> None:
        self._reads = own["reads"]
        self._has_finished_turn = own["has_finished_turn"]
        self._is_prompt_over = own["is_prompt_over"]
        self._cwd, self._branch, self._model = own["cwd"], own["branch"], own["model"]
        self._prompts = list(own["prompts"])
        self._exit_codes = dict(own["exit_codes"])
        self._lineage = Lineage(own["lineage"])
        self._occurrences = Occurrences(own["occurrences"])

    def records(self) -> Iterator[Record]:
        """Yields every record after the resume point; none if the file needs a reread."""
        if self._reads != "items":
            self._decide()
        if not self.needs_reread:
            yield from super().records()

    def _decide(self) -> None:
        """Looks ahead for what the conversation is made of, as far as the file goes now."""
        found = ""
        is_finished = self._has_finished_turn
        values = read_values(
            self.source,
            offset=self._offset,
            number=self._number,
            line=self._line,
            settle=self.settle,
        )
        for raw in values:
            if raw.provisional or not isinstance(raw.value, dict):
                continue
            if _response_payload(raw.value) is not None:
                found = "items"
                break
            is_finished = is_finished or _ends_turn(raw.value)
        decided = found or ("events" if is_finished else "")
        if self._number:
            self.needs_reread = decided != self._reads and "events" in (decided, self._reads)
        self._reads = decided

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        record.timestamp = epoch_ms(value.get("timestamp"))
        kind, payload = value.get("type"), as_dict(value.get("payload"))
        if kind == "session_meta":
            self._meta(record, payload)
        elif _is_legacy_meta(value) and not self._lineage.has_own:
            self._meta(record, value)
        else:
            thread_id = self._place(record, value, payload)
            if kind == "turn_context":
                self._turn_context(record, payload)
            item = self._item(record, value, payload)
            if item is not None:
                item.replayed = record.replayed
                item.identity = self._occurrences.identity(thread_id, item)
                record.items.append(item)
        record.cwd, record.branch, record.model = self._cwd, self._branch, self._model

    def _meta(self, record: Record, payload: dict[str, Any]) -> None:
        thread_id = _thread_id(payload) or self.header.session_id
        times = (epoch_ms(payload.get("timestamp")), uuid_time(thread_id), record.timestamp)
        thread = Thread(thread_id, next((time for time in times if time is not None), None))
        if self._lineage.has_own:
            record.replayed = self._lineage.add_ancestor(thread)
            return
        subagent = as_dict(payload.get("source")).get("subagent")
        spawn = as_dict(as_dict(subagent).get("thread_spawn"))
        header = self.header
        header.parent = (
            as_text(payload.get("forked_from_id"))
            or as_text(payload.get("parent_thread_id"))
            or as_text(spawn.get("parent_thread_id"))
        )
        header.sub_agent = bool(subagent) or payload.get("thread_source") == "subagent"
        header.project = self._cwd = as_text(payload.get("cwd"))
        header.branch = self._branch = as_text(as_dict(payload.get("git")).get("branch"))
        start = payload.get("subagent_history_start_ordinal")
        self._lineage.add_own(
            thread, parent=header.parent, start=start if _is_integer(start) else None
        )

    def _place(self, record: Record, value: dict[str, Any], payload: dict[str, Any]) -> str:
        """Marks what is replayed or a sub-agent's own; gives the thread that the record is of."""
        ordinal = value.get("ordinal")
        place = self._lineage.place(
            ordinal=ordinal if _is_integer(ordinal) else None,
            timestamp=record.timestamp,
            turn_id="" if self._lineage.is_over else _turn_id(value, payload),
        )
        if place.is_replayed:
            record.replayed = True
            record.flags |= COPIED
        elif self.header.sub_agent:
            record.flags |= SIDECHAIN
        if place.follows_replay:
            # The thread has its own prompt behind the one of the thread that it replays.
            self._is_prompt_over = False
            self._cwd = self._cwd if place.is_replayed else self.header.project
        return place.thread_id or self.header.session_id

    def _turn_context(self, record: Record, payload: dict[str, Any]) -> None:
        self._cwd = as_text(payload.get("cwd")) or self._cwd
        self._model = as_text(payload.get("model")) or self._model
        if not record.replayed:
            self.header.model = self._model
            self.header.project = self.header.project or self._cwd

    def _item(self, record: Record, value: dict[str, Any], payload: dict[str, Any]) -> Item | None:
        response = _response_payload(value)
        if response is not None:
            return self._response(record, response)
        if value.get("type") == "compacted":
            return compaction_item(payload)
        if value.get("type") == "event_msg":
            return self._event(record, payload)
        return None

    def _response(self, record: Record, payload: dict[str, Any]) -> Item | None:
        if self._reads == "events":
            self.needs_reread = self.needs_reread or not record.provisional
            return None
        self._reads = "items"
        item = response_item(
            payload,
            is_prompt_over=self._is_prompt_over,
            is_sub_agent=self.header.sub_agent,
            exit_code=self._exit_codes.pop(as_text(payload.get("call_id")), None)
            if "output" in payload
            else None,
        )
        if payload.get("role") == "user" or (item is not None and item.kind == "user"):
            self._is_prompt_over = True
        if item is not None and item.kind == "user":
            self._user(record, item)
        return item

    def _user(self, record: Record, item: Item) -> None:
        if not item.flags & SYNTHETIC:
            self._prompts.append(record.number)
        elif not self._cwd and (found := _CWD.search(item.text)):
            # Legacy files name the folder nowhere else.
            self._cwd = (found[1] or found[2]).strip()
            self.header.project = self.header.project or self._cwd

    def _event(self, record: Record, payload: dict[str, Any]) -> Item | None:
        kind = payload.get("type")
        if kind in TURN_ENDS:
            record.closes_turn = self._has_finished_turn = True
        elif kind == "thread_name_updated" and not record.replayed:
            record.title = as_text(payload.get("thread_name"))
        elif kind == "thread_rolled_back":
            self._roll_back(record, payload.get("num_turns"))
        elif kind == "exec_command_end" and _is_integer(payload.get("exit_code")):
            self._exit_codes[as_text(payload.get("call_id"))] = payload["exit_code"]
            if len(self._exit_codes) > PENDING_EXIT_CODES:
                del self._exit_codes[next(iter(self._exit_codes))]
        if self._reads != "events":
            return None
        item = event_item(payload)
        if item is not None and item.kind == "user":
            self._user(record, item)
        return item

    def _roll_back(self, record: Record, turns: Any) -> None:
        if not _is_integer(turns) or turns < 1 or not self._prompts:
            return
        first = self._prompts[-turns:][0]
        del self._prompts[-turns:]
        record.facts.append(Fact(SUPERSEDED, first, record.number - 1))


def ends_run(value: dict[str, Any], *, is_sub_agent: bool) -> bool | None:
    """Whether the agent has stopped working with this record; None: it says nothing of that.

    The context of a turn stands at its beginning, in old releases before anything else of it.
    """
    if _ends_turn(value):
        return True
    kind = value.get("type")
    is_start = kind == "event_msg" and as_dict(value.get("payload")).get("type") == "task_started"
    is_inside = is_start or kind == "turn_context" or _response_payload(value) is not None
    return False if is_inside else None


def _session_id(source: SourceFile) -> str:
    for raw in read_values(source):
        if isinstance(raw.value, dict):
            payload = as_dict(raw.value.get("payload"))
            if raw.value.get("type") == "session_meta" and _thread_id(payload):
                return _thread_id(payload)
            if _is_legacy_meta(raw.value):
                return raw.value["id"]
        if raw.number >= META_SEARCH_RECORDS:
            break
    stem = file_stem(source.path)
    found = _UUID.search(stem)
    return found[0] if found else stem


def _thread_id(payload: dict[str, Any]) -> str:
    return as_text(payload.get("id")) or as_text(payload.get("session_id"))


def _is_enveloped(value: dict[str, Any]) -> bool:
    return as_text(value.get("type")) in ENVELOPE_TYPES and isinstance(value.get("payload"), dict)


def _is_legacy_meta(value: dict[str, Any]) -> bool:
    return (
        bool(as_text(value.get("id")))
        and "type" not in value
        and "timestamp" in value
        and ("instructions" in value or "git" in value)
    )


def _response_payload(value: dict[str, Any]) -> dict[str, Any] | None:
    """The response item that a record is, enveloped or bare; None for any other record."""
    kind, payload = value.get("type"), value.get("payload")
    if kind == "response_item":
        return payload if isinstance(payload, dict) else None
    if payload is not None or not isinstance(kind, str):
        return None
    is_bare = kind in ("message", "reasoning") or kind.endswith(("_call", "_call_output"))
    return value if is_bare else None


def _ends_turn(value: dict[str, Any]) -> bool:
    return value.get("type") == "event_msg" and (
        as_dict(value.get("payload")).get("type") in TURN_ENDS
    )


def _turn_id(value: dict[str, Any], payload: dict[str, Any]) -> str:
    places = (
        payload,
        as_dict(payload.get("metadata")),
        as_dict(payload.get("internal_chat_message_metadata_passthrough")),
        as_dict(value.get("metadata")),
    )
    return next((place["turn_id"] for place in places if as_text(place.get("turn_id"))), "")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
