"""The workspace as a provider: asks its server at every list and every capture.

Whether a subject may be observed is the server's to say, each time. What was already received of
a session is kept in memory, so that a capture transfers what is new.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from pydantic import ValidationError

from sessiondex.errors import Failed, NotFound
from sessiondex.features.observation import SessionList
from sessiondex.features.state import subject_not_found
from sessiondex.features.subjects import RuntimeWorker, Subject, subject_key
from sessiondex.features.workspace_wire import (
    SessionReply,
    SessionRequest,
    SessionsReply,
    WireEntry,
)
from sessiondex.indexer.assembly import AssembledEntry, Assembler
from sessiondex.indexer.capture import Capture, LiveTail
from sessiondex.indexer.catalog import SourceRow
from sessiondex.indexer.host_items import HEAP_BYTES
from sessiondex.indexer.library import Library
from sessiondex.indexer.writing import LibraryWriter
from sessiondex.limits import MIB, SUBJECTS
from sessiondex.model import (
    PROVISIONAL,
    SUPERSEDED,
    Attachment,
    Entry,
    EntryRef,
    Fact,
    Record,
    SessionHeader,
    clean_text,
)

KEPT_SESSIONS: Final = 16

SESSION_BYTES: Final = 512 * MIB
"""Text of one session that is taken from a server; beyond it the session cannot be observed."""

HIDDEN_RECORDS: Final = 1_000_000
"""Records that a server may claim to have hidden between two entries."""


class WorkspaceObservationClient(Protocol):
    """The two routes of a workspace's server, with the caller's token."""

    def list_sessions(self) -> Mapping[str, Any]:
        """Body of the list.

        Raises:
            Failed: no answer, or one that is no success.
        """
        ...

    def session(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Body of one page of a session; `request` is a `SessionRequest`.

        Raises:
            NotFound: the server says so (404).
            Failed: no answer, or any other one that is no success.
        """
        ...


class WorkspaceClientWorkerObservationProvider:
    """The subjects of a workspace that its server lets the caller observe."""

    def __init__(self, client: WorkspaceObservationClient, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._received: dict[str, _Received] = {}

    def list_sessions(self) -> SessionList:
        """What the server lists at this moment."""
        try:
            reply = SessionsReply.model_validate(self._client.list_sessions())
        except ValidationError as error:
            raise _malformed(error) from None
        listed = [each.listed() for each in reply.sessions[: SUBJECTS.maximum]]
        return SessionList(listed, reply.has_more or len(reply.sessions) > len(listed))

    def capture(self, subject: Subject) -> Capture:
        """The committed entries at this moment; see `WorkerObservationProvider`."""
        if not isinstance(subject, RuntimeWorker):
            raise subject_not_found()
        key = subject_key(subject)
        with self._lock:
            received = self._received.pop(key, None) or _Received(self._clock)
            self._received[key] = received
            if len(self._received) > KEPT_SESSIONS:
                del self._received[next(iter(self._received))]
        try:
            return received.capture(subject, self._client)
        except (Failed, NotFound):
            # What was kept may no longer be shown, and may be half of something.
            with self._lock:
                self._received.pop(key, None)
            raise


class _Received:
    """What was received of one session, in a library in memory."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reply: SessionReply | None = None
        self._library = Library.in_memory()
        self._count = 0
        self._records = 0
        self._bytes = 0

    def capture(self, subject: RuntimeWorker, client: WorkspaceObservationClient) -> Capture:
        with self._lock:
            while True:
                held = self._reply
                request = SessionRequest(
                    subject=subject,
                    generation=held.generation if held else 0,
                    count=self._count,
                )
                try:
                    reply = SessionReply.model_validate(client.session(request.model_dump()))
                except NotFound:
                    raise subject_not_found() from None
                except ValidationError as error:
                    raise _malformed(error) from None
                self._take(reply)
                if not reply.has_more:
                    return self._made(reply)

    def _take(self, reply: SessionReply) -> None:
        held = self._reply
        if held is None or (held.session, held.generation) != (reply.session, reply.generation):
            if reply.first:
                raise Failed("the workspace answered with a session that begins in the middle")
            self._library = Library.in_memory()
            self._count = self._records = self._bytes = 0
        elif reply.first != self._count:
            raise Failed("the workspace answered with other entries than were asked for")
        if reply.has_more and not reply.entries:
            raise Failed("the workspace promised more entries and sent none")
        self._write(reply)
        self._reply = reply

    def _write(self, reply: SessionReply) -> None:
        """Appends entries, and the hidden records up to where the reply reaches."""
        last = max((entry.record for entry in reply.entries), default=self._records - 1)
        stop = last + 1 if reply.has_more else max(reply.records, last + 1)
        if stop - self._records > len(reply.entries) + HIDDEN_RECORDS:
            raise Failed("the workspace claims more records than a session can have")
        if stop <= self._records and self._reply is not None:
            if reply.entries:
                raise Failed("the workspace sent entries of records that it had sent before")
            return
        with self._library.writing() as epoch:
            writer = LibraryWriter(
                epoch, heap_bytes=HEAP_BYTES, now_ms=lambda: int(self._clock() * 1000)
            )
            row = epoch.catalog.current(reply.session)
            source = SourceRow(0, "", "", "items", 1)
            if row is None:
                header = SessionHeader(
                    reply.session, reply.agent, "items", segment_id=reply.segment_id
                )
                sink = writer.new_session(
                    header, source, parser_version=1, selector="", session_id=reply.session
                )
                writer.take_header(sink, header)
            else:
                sink = writer.open_session(row, source, Assembler())
            by_record: dict[int, list[WireEntry]] = {}
            for entry in reply.entries:
                by_record.setdefault(entry.record, []).append(entry)
            if by_record and min(by_record) < self._records:
                raise Failed("the workspace sent entries of records that it had sent before")
            for number in range(self._records, stop):
                entries = sorted(by_record.get(number, ()), key=lambda each: each.block)
                if len({each.block for each in entries}) < len(entries):
                    raise Failed("the workspace sent two entries of one block")
                writer.add(sink, _record(number, entries), self._assembled(entries))
            writer.commit([])
            writer.close()
        self._records = stop

    def _assembled(self, entries: list[WireEntry]) -> list[AssembledEntry]:
        made: list[AssembledEntry] = []
        for entry in entries:
            if entry.bits & PROVISIONAL:
                raise Failed("the workspace sent an entry that is not committed")
            text = clean_text(entry.text)
            data = text.encode()
            self._bytes += len(data)
            if self._bytes > SESSION_BYTES:
                raise Failed(f"the session holds more than {SESSION_BYTES} bytes of text")
            made.append(AssembledEntry(_entry(entry, self._count, len(data)), text, data))
            self._count += 1
        return made

    def _made(self, reply: SessionReply) -> Capture:
        snapshot = self._library.snapshot()
        row = snapshot.catalog.current(reply.session)
        if row is None:
            raise Failed("the session holds no committed entry yet", hint="try again later")
        row = replace(row, generation=reply.generation, shared=list(reply.shared))
        facts = tuple(Fact(SUPERSEDED, first, last) for first, last in reply.superseded)
        return Capture(
            row, snapshot.view, mark=snapshot.mark, searcher=snapshot.searcher,
            tail=LiveTail(facts=facts), owner=self._library,
        )  # fmt: skip


def _record(number: int, entries: list[WireEntry]) -> Record:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(entry.model_dump_json(exclude={"flags"}).encode("utf-8", "replace"))
    blocks = max((max(entry.blocks, entry.block + 1) for entry in entries), default=1)
    return Record(number, 0, 0, 0, digest.digest()[:8], blocks=blocks, pointer=f"/{number}")


def _entry(wire: WireEntry, ordinal: int, size: int) -> Entry:
    is_tool = wire.kind == "tool"
    return Entry(
        ordinal=ordinal,
        ref=EntryRef(wire.record, wire.block),
        kind=wire.kind,
        tool_part=(wire.tool_part or "input") if is_tool else None,
        tool_name=clean_text(wire.tool_name) if is_tool else "",
        call_id=clean_text(wire.call_id) if is_tool else "",
        error=wire.error,
        sub_kind=clean_text(wire.sub_kind),
        flags=wire.bits,
        timestamp=wire.timestamp,
        turn=wire.turn,
        step=wire.step,
        cwd="",
        branch=clean_text(wire.branch),
        model=clean_text(wire.model),
        total_bytes=size,
        summary=clean_text(wire.summary),
        attachments=[Attachment(each.media_type, each.size) for each in wire.attachments],
        is_anchor=wire.is_anchor,
        identity=0,
        replayed=False,
        plan=clean_text(wire.plan),
        pointer="",
    )


def _malformed(error: ValidationError) -> Failed:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return Failed(
        f"the workspace answered in another form than expected: {where}: {first['msg']}",
        hint="check that server and client are of one release",
    )
