"""Workers that run on the model loop: their turns, their sessions, and what others see of them."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pydantic_ai.models
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model

from sessiondex.errors import Busy, Damaged, Failed, Incomplete, InvalidArgument, NotFound
from sessiondex.features import live_session, worker_journal
from sessiondex.features.loop.budget import Budgets
from sessiondex.features.loop.models import open_model
from sessiondex.features.model_worker import ModelWorker, ModelWorkers, worker_session, worker_tools
from sessiondex.features.providers import SpawnedSubWorkerObservationProvider
from sessiondex.features.registry import Contribution, Registry
from sessiondex.features.runtime import WorkerRuntime, WorkerSpawnRequest
from sessiondex.features.state import State
from sessiondex.features.sub_worker import SubWorkerRegistry
from sessiondex.features.tool import Text, Tool, ToolInput, ToolOutput
from sessiondex.features.worker_journal import WorkerJournal
from sessiondex.features.worker_records import NO_RESULT
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.query.request import SearchRequest
from sessiondex.query.search import search
from tests.builders import Clock
from tests.features.loop.wire_server import WIRES, Answer, Call, Wire, WireServer
from tests.features.made_models import Script, call, held, loop_host, never, noted, results, told
from tests.features.made_workers import PATIENCE
from tests.query.made_sessions import SECRET

SESSION = "the-session"


@pytest.fixture(autouse=True)
def no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic_ai.models, "ALLOW_MODEL_REQUESTS", False)


class EchoInput(ToolInput):
    """What to repeat."""

    text: Text = Field(description="Any text.")


class EchoOutput(ToolOutput):
    """The text again."""

    text: str


ECHO = Tool("Echo", "Repeats a text.", EchoInput, EchoOutput)


def echo_registry(*_: Any) -> Registry:
    registry = Registry()
    registry.add(Contribution.of(ECHO, lambda asked: {"text": asked.text}))
    return registry


def worker_of(
    root: Path,
    script: Script | Model,
    *,
    is_restore: bool = False,
    session: str = SESSION,
    **options: Any,
) -> ModelWorker:
    """A worker with the tool Echo and a log below a folder."""
    history: Any = ()
    given: dict[str, Any] = {"model": "script", "clock": Clock()}
    if is_restore:
        journal, history = WorkerJournal.resume(root, session, **given)
    else:
        journal = WorkerJournal.begin(root, session, **given)
    options.setdefault("host", loop_host())
    model = script.model if isinstance(script, Script) else script
    return ModelWorker(
        model, echo_registry(), journal, instructions="Work.", history=history, **options
    )


def workers(root: Path, *scripts: Script, **options: Any) -> ModelWorkers:
    """Makes workers with these scripts, one after the other."""
    left = list(scripts)
    options.setdefault("tools", echo_registry)
    return ModelWorkers(
        root=root, open_model=lambda: left.pop(0).model, instructions="Work.", host=loop_host(),
        clock=Clock(), **options,
    )  # fmt: skip


def entries(capture: Capture) -> list[tuple[str, str, str]]:
    """Ref, kind and text of all entries."""
    return [
        (str(entry.ref), entry.kind, capture.text(entry).decode())
        for entry in capture.entries(0, capture.entry_count)
    ]


def texts(capture: Capture) -> list[str]:
    return [text for _, _, text in entries(capture)]


def log_of(root: Path) -> Path:
    [path] = root.glob("*/*.jsonl")
    return path


def join_turns() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("turn-"):
            thread.join(PATIENCE)


# ---------------------------------------------------------------- the session of a turn


def test_a_turn_is_a_session_of_what_was_said_called_and_returned(tmp_path: Path) -> None:
    script = Script([TextPart("I ask the wall."), call("Echo", text="hello")], "It said hello.")
    worker = worker_of(tmp_path, script)
    worker.run_turn("Call into the cave")
    capture = worker.capture()
    assert capture.session == f"{SESSION}/0001"
    [user, said, asked, came, answer] = entries(capture)
    assert user == ("E00000001", "user", "Call into the cave")
    assert said == ("E00000002", "assistant", "I ask the wall.")
    assert asked == ("E00000003", "tool", "Echo\ntext: hello")
    assert came[1] == "tool"
    assert json.loads(came[2].splitlines()[0]) == {"text": "hello"}
    assert answer[1:] == ("assistant", "It said hello.")


def test_an_error_of_a_tool_is_an_error_in_the_session(tmp_path: Path) -> None:
    worker = worker_of(tmp_path, Script(call("Echo", words="x"), "It takes no words."))
    worker.run_turn("Try it")
    capture = worker.capture()
    assert [entry.error for entry in capture.entries(0, capture.entry_count)][2] is True


def test_a_further_turn_goes_on_with_the_conversation_and_the_session(tmp_path: Path) -> None:
    script = Script("One.", "Two.")
    worker = worker_of(tmp_path, script)
    worker.run_turn("first")
    before = entries(worker.capture())
    worker.run_turn("second")
    assert entries(worker.capture())[: len(before)] == before
    assert texts(worker.capture()) == ["first", "One.", "second", "Two."]
    assert told(script.requests[-1]) == ["first", "second"]


def test_a_worker_that_was_told_nothing_has_a_session_without_entries(tmp_path: Path) -> None:
    assert worker_of(tmp_path, Script("")).capture().entry_count == 0


def test_the_instructions_of_worker_and_features_reach_the_model_and_no_session(
    tmp_path: Path,
) -> None:
    script = Script("Yes.")
    children = SubWorkerRegistry(clock=Clock())
    journal = WorkerJournal.begin(tmp_path, SESSION, model="script", clock=Clock())
    provider = SpawnedSubWorkerObservationProvider(children)
    worker = ModelWorker(
        script.model, worker_tools(provider, children), journal, instructions="Mind the gap.",
        host=loop_host(),
    )  # fmt: skip
    worker.run_turn("go")
    instructions = script.infos[0].instructions or ""
    assert instructions.startswith("Mind the gap.\n\n")
    assert "evidence" in instructions
    assert "Mind the gap" not in log_of(tmp_path).read_text()


def test_reasoning_counts_as_a_record_and_stands_nowhere(tmp_path: Path) -> None:
    thought = ThinkingPart("a thought of its own", signature="c2ln")
    script = Script([thought, call("Echo", text="x")], [thought, TextPart("Done.")])
    worker = worker_of(tmp_path, script)
    worker.run_turn("think")
    capture = worker.capture()
    assert [ref for ref, _, _ in entries(capture)] == [
        "E00000001", "E00000003", "E00000004", "E00000006",
    ]  # fmt: skip
    assert "of its own" not in log_of(tmp_path).read_text()
    assert "c2ln" not in log_of(tmp_path).read_text()


def test_folder_and_file_are_for_their_owner_alone(tmp_path: Path) -> None:
    worker_of(tmp_path / "sessions", Script(""))
    path = log_of(tmp_path / "sessions")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_text_that_is_no_unicode_is_a_record_all_the_same(tmp_path: Path) -> None:
    escaped = ToolCallPart("Echo", '{"text": "\\ud800"}', tool_call_id="c1")
    worker = worker_of(tmp_path, Script([TextPart("half \ud83e"), escaped], ""))
    worker.run_turn("odd \udc80 text")
    assert texts(worker.capture())[:3] == ["odd � text", "half �", "Echo\ntext: �"]


def test_a_blank_message_is_refused(tmp_path: Path) -> None:
    worker = worker_of(tmp_path, Script(""))
    with pytest.raises(InvalidArgument, match="blank"):
        worker.run_turn(" \n")


def test_a_capture_reads_what_is_new_and_not_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    whole = live_session.library_of_path
    monkeypatch.setattr(
        live_session, "library_of_path",
        lambda path, **options: (read.append(path), whole(path, **options))[1],
    )  # fmt: skip
    worker = worker_of(tmp_path, Script("a", "b", "c"))
    for message in ("1", "2", "3"):
        worker.run_turn(message)
        worker.capture()
    assert len(read) == 1
    assert len(texts(worker.capture())) == 6


# ---------------------------------------------------------------- ends of turns


def test_a_provider_that_refuses_makes_the_turn_fail_and_the_session_says_why(
    tmp_path: Path,
) -> None:
    worker = worker_of(tmp_path, Script(ModelHTTPError(401, "script", {"error": "bad key abc"})))
    with pytest.raises(Failed, match="the provider gave no answer"):
        worker.run_turn("go")
    user, note = entries(worker.capture())
    assert user[2] == "go"
    assert note[1] == "system"
    assert note[2].startswith("The turn failed: provider (")
    assert "bad key" not in note[2]


def test_a_turn_that_comes_to_its_limits_is_incomplete(tmp_path: Path) -> None:
    script = Script(call("Echo", text="again"))
    worker = worker_of(tmp_path, script, budgets=Budgets(turns=4))
    with pytest.raises(Incomplete, match="turn_limit"):
        worker.run_turn("never stop")
    assert len(script.requests) == 4
    assert texts(worker.capture())[-1] == "The turn failed: turn_limit."


def test_after_a_failure_of_the_provider_a_further_turn_may_succeed(tmp_path: Path) -> None:
    script = Script(ModelHTTPError(401, "script"), "Here I am.")
    worker = worker_of(tmp_path, script)
    with pytest.raises(Failed):
        worker.run_turn("one")
    worker.run_turn("two")
    assert texts(worker.capture())[-2:] == ["two", "Here I am."]


def test_a_call_that_nothing_could_answer_is_left_out_of_the_restored_conversation(
    tmp_path: Path,
) -> None:
    worker = worker_of(tmp_path, Script([TextPart("Now:"), call("", text="x")], "Never said."))
    with pytest.raises(Incomplete, match="protocol"):
        worker.run_turn("go")
    with pytest.raises(Failed, match="restore it"):
        worker.run_turn("go on")
    second = Script("Well.")
    worker_of(tmp_path, second, is_restore=True).run_turn("go on")
    assert _shape(second.requests[0])[1] == ("TextPart", "Now:")
    assert_every_call_has_its_result(second.requests[0])


def test_a_cancelled_turn_ends_and_says_so(tmp_path: Path) -> None:
    script = Script(never)
    worker = worker_of(tmp_path, script)
    turn = threading.Thread(target=worker.run_turn, args=("wait for ever",))
    turn.start()
    assert script.is_asked.wait(PATIENCE)
    assert texts(worker.capture()) == ["wait for ever"]
    worker.cancel()
    turn.join(PATIENCE)
    assert not turn.is_alive()
    assert texts(worker.capture()) == ["wait for ever", "The turn was cancelled."]


# ---------------------------------------------------------------- restoring


def test_a_restored_worker_goes_on_with_the_conversation_and_its_refs(tmp_path: Path) -> None:
    first = Script([TextPart("Let me ask."), call("Echo", text="hello")], "It said hello.")
    worker = worker_of(tmp_path, first)
    worker.run_turn("Call into the cave")
    before = entries(worker.capture())
    second = Script("It was hello.")
    restored = worker_of(tmp_path, second, is_restore=True)
    assert entries(restored.capture()) == before
    restored.run_turn("What did it say?")
    assert entries(restored.capture())[: len(before)] == before
    assert texts(restored.capture())[-2:] == ["What did it say?", "It was hello."]
    had = _shape(first.requests[-1])
    assert _shape(second.requests[0])[: len(had)] == had


def _shape(messages: Any) -> list[Any]:
    """What a conversation says, without times and ids of its own."""
    shapes: list[Any] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                shapes.append((part.tool_name, part.tool_call_id, part.args_as_dict()))
            elif isinstance(part, ToolReturnPart):
                shapes.append((part.tool_name, part.tool_call_id, part.content))
            else:
                shapes.append((type(part).__name__, part.content))
    return shapes


def test_a_restored_model_has_a_result_for_every_call(tmp_path: Path) -> None:
    is_answered = threading.Event()
    calls = [call("Echo", "c1", text="x"), call("Echo", "c2", text="y")]
    worker = worker_of(tmp_path, Script(calls, noted(is_answered, never)))
    turn = threading.Thread(target=worker.run_turn, args=("both",))
    turn.start()
    assert is_answered.wait(PATIENCE)
    worker.cancel()
    turn.join(PATIENCE)
    log = log_of(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5]))  # as a kill leaves it: two calls, one result
    second = Script("Only one came.")
    worker_of(tmp_path, second, is_restore=True).run_turn("go on")
    came = results(second.requests[0])
    assert len(came) == 2
    assert json.loads(came[0].splitlines()[0]) == {"text": "x"}
    assert came[1] == NO_RESULT


def test_a_restored_model_is_told_that_its_turn_was_cut_short(tmp_path: Path) -> None:
    worker = worker_of(tmp_path, Script(ModelHTTPError(401, "script")))
    with pytest.raises(Failed):
        worker.run_turn("go")
    second = Script("Again.")
    worker_of(tmp_path, second, is_restore=True).run_turn("once more")
    first, last = told(second.requests[0])
    assert first.startswith("go\n\n[Notification] The turn failed: provider (")
    assert last == "once more"


def test_what_is_not_there_cannot_be_restored(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        worker_of(tmp_path, Script(""), is_restore=True)


def test_another_beginning_is_another_segment_and_the_last_one_is_restored(tmp_path: Path) -> None:
    worker_of(tmp_path, Script("one")).run_turn("first life")
    worker_of(tmp_path, Script("two")).run_turn("second life")
    restored = worker_of(tmp_path, Script("three"), is_restore=True)
    assert restored.capture().session == f"{SESSION}/0002"
    assert texts(restored.capture()) == ["second life", "two"]


def test_a_segment_never_takes_the_place_of_another_one(tmp_path: Path) -> None:
    for _ in range(2):
        worker_of(tmp_path, Script(""))
    (tmp_path / SESSION / "0001.jsonl").unlink()
    assert worker_of(tmp_path, Script("")).capture().session == f"{SESSION}/0003"


def test_a_log_that_cannot_be_read_is_no_empty_conversation(tmp_path: Path) -> None:
    (tmp_path / SESSION / "0001.jsonl").mkdir(parents=True)
    with pytest.raises(Failed, match="the session cannot be read"):
        worker_of(tmp_path, Script(""), is_restore=True)


@pytest.mark.parametrize("session", ["", "..", "a/b", "/abs", "x" * 101, "a\nb"])
def test_a_session_is_named_by_one_plain_word(tmp_path: Path, session: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot name a session"):
        worker_of(tmp_path, Script(""), session=session)


def test_a_committed_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    worker_of(tmp_path, Script("x")).run_turn("go")
    path = log_of(tmp_path)
    size = path.stat().st_size
    for bad in (b"no json\n", b"[1]\n"):
        path.write_bytes(path.read_bytes()[:size] + bad)
        with pytest.raises(Damaged, match=f"byte {size}"):
            worker_of(tmp_path, Script(""), is_restore=True)


@pytest.mark.parametrize("wire", WIRES)
def test_turns_and_restoring_go_through_the_clients_of_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    """Each turn has an event loop of its own, and a client that works in it."""
    monkeypatch.setattr(pydantic_ai.models, "ALLOW_MODEL_REQUESTS", True)  # of loopback
    server = WireServer([
        Answer("Let me ask.", [Call("Echo", {"text": "a"}), Call("Echo", {"text": "b"})]),
        Answer("a and b."), Answer("Second."), Answer("Third."),
    ])  # fmt: skip
    with server:

        def begin(*, is_restore: bool = False) -> ModelWorker:
            model = open_model(f"{wire}:any", base_url=server.base_url(wire), environ={})
            return worker_of(tmp_path, model, is_restore=is_restore)

        worker = begin()
        worker.run_turn("one")
        worker.run_turn("two")
        restored = begin(is_restore=True)
        restored.run_turn("three")
    assert texts(restored.capture())[-5:] == ["a and b.", "two", "Second.", "three", "Third."]
    before, after = (received.messages for received in server.received[2:])
    assert after[: len(before)] == before


# ---------------------------------------------------------------- kills and faults of the disk


@pytest.fixture(scope="module")
def whole_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of two turns."""
    root = tmp_path_factory.mktemp("whole")
    script = Script(
        [ThinkingPart("hm"), TextPart("日本語"), call("Echo", "c1", text="x"),
         call("Echo", "c2", text="y")],
        "Done 🦀.", "And again.",
    )  # fmt: skip
    worker = worker_of(root, script)
    worker.run_turn("first")
    worker.run_turn("second")
    return log_of(root).read_bytes()


@settings(max_examples=25)
@given(data=st.data())
def test_a_log_cut_anywhere_is_a_prefix_that_goes_on(
    whole_log: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("cut")
    cut = data.draw(st.integers(0, len(whole_log)))
    path = root / SESSION / "0001.jsonl"
    path.parent.mkdir()
    path.write_bytes(whole_log)
    whole = entries(Capture.from_path(path))
    path.write_bytes(whole_log[:cut])
    script = Script("Still here.")
    worker = worker_of(root, script, is_restore=True)
    kept = _capture_or_none(worker)
    assert kept == whole[: len(kept)]
    worker.run_turn("are you there?")
    after = entries(worker.capture())
    assert after[: len(kept)] == kept
    assert [text for _, _, text in after[len(kept) :]] == ["are you there?", "Still here."]
    assert after == entries(Capture.from_path(path))
    assert_every_call_has_its_result(script.requests[0])


def _capture_or_none(worker: ModelWorker) -> list[tuple[str, str, str]]:
    """The entries of a log that may be cut before its first line."""
    try:
        return entries(worker.capture())
    except NotFound:
        return []


def assert_every_call_has_its_result(messages: Any) -> None:
    for message, following in pairwise(messages):
        if isinstance(message, ModelResponse):
            asked = [each.tool_call_id for each in message.parts if isinstance(each, ToolCallPart)]
            came = [each.tool_call_id for each in following.parts
                    if isinstance(each, ToolReturnPart)]  # fmt: skip
            assert came == asked
    assert isinstance(messages[-1], ModelRequest)
    assert isinstance(messages[-1].parts[-1], UserPromptPart)


class FailingDisk:
    """Writes as many bytes as a test says, then no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr(worker_journal.os, "write", self)

    def __call__(self, file: int, data: bytes) -> int:
        if self.room is None:
            return self._write(file, data)
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_new_session_is_found_after_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    flushed: list[Path] = []
    fsync = os.fsync

    def watched(file: int) -> None:
        fsync(file)
        kept = os.fstat(file)
        found = [each for each in (tmp_path, *tmp_path.rglob("*"))
                 if os.path.samestat(each.stat(), kept)]  # fmt: skip
        flushed.extend(found)
        if is_refused and found[0].is_dir():
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(worker_journal.os, "fsync", watched)
    root = tmp_path / "new" / "root"
    if is_refused:
        with pytest.raises(Failed, match="cannot be written: Input/output error"):
            worker_of(root, Script("one"))
        return
    worker_of(root, Script("one"))
    folders = {tmp_path, tmp_path / "new", root, root / SESSION}
    assert set(flushed) == folders | {root / SESSION / "0001.jsonl"}
    flushed.clear()
    worker_of(root, Script("two"))
    assert set(flushed) == {root, root / SESSION, root / SESSION / "0002.jsonl"}


@pytest.mark.parametrize("room", [0, 30, 250, 400])
def test_a_full_disk_makes_the_turn_fail_and_loses_nothing_that_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    disk = FailingDisk(monkeypatch)
    worker = worker_of(tmp_path, Script("one", [TextPart("two"), TextPart("three " * 100)]))
    worker.run_turn("first")
    before = entries(worker.capture())
    disk.room = room
    with pytest.raises(Failed, match="cannot be written: No space left"):
        worker.run_turn("second")
    assert entries(worker.capture())[: len(before)] == before
    assert log_of(tmp_path).read_bytes().endswith(b"\n")
    disk.room = None
    with pytest.raises(Failed, match="broke in an earlier turn"):
        worker.run_turn("third")
    restored = worker_of(tmp_path, Script("well again"), is_restore=True)
    restored.run_turn("third")
    assert texts(restored.capture())[-2:] == ["third", "well again"]
    assert entries(restored.capture())[: len(before)] == before


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="cannot be written"):
        worker_of(tmp_path / "file", Script(""))


def test_a_log_that_is_gone_makes_the_turn_fail(tmp_path: Path) -> None:
    worker = worker_of(tmp_path, Script("x"))
    log_of(tmp_path).unlink()
    with pytest.raises(Failed, match="cannot be written"):
        worker.run_turn("go")
    with pytest.raises(NotFound):
        worker.capture()


def test_two_workers_of_one_session_do_not_mix_their_turns(tmp_path: Path) -> None:
    goes_on = threading.Event()
    script = Script(held(goes_on, "done"))
    worker = worker_of(tmp_path, script)
    other = worker_of(tmp_path, Script("me too"), is_restore=True)
    turn = threading.Thread(target=worker.run_turn, args=("slowly",))
    turn.start()
    assert script.is_asked.wait(PATIENCE)
    with pytest.raises(Busy):
        other.run_turn("quickly")
    goes_on.set()
    turn.join(PATIENCE)
    with pytest.raises(Failed, match="has gone on with this session"):
        other.run_turn("quickly")
    assert texts(worker.capture()) == ["slowly", "done"]


# ---------------------------------------------------------------- the library


def test_a_log_is_indexed_like_any_session_with_the_same_refs(tmp_path: Path) -> None:
    worker = worker_of(tmp_path / "sessions", Script(call("Echo", text="cave"), "The cave spoke."))
    worker.run_turn("Call into the cave")
    with Library.in_memory() as library:
        from sessiondex.indexer.refresh import RefreshOptions, index_library

        index_library(
            library, [tmp_path / "sessions"],
            options=RefreshOptions(home=tmp_path, environ={}, clock=Clock()),
        )  # fmt: skip
        snapshot = library.snapshot()
        indexed = snapshot.capture(f"{SESSION}/0001")
        assert entries(indexed) == entries(worker.capture())
        found = search(indexed, SearchRequest(query="cave spoke"))
        assert [hit["entry_ref"] for hit in found["hits"]] == ["E00000004"]


# ---------------------------------------------------------------- parents and children


class Family:
    """A model-run parent with model-run children."""

    def __init__(self, root: Path, parent: Script, *children: Script, **options: Any) -> None:
        self.children = SubWorkerRegistry(clock=Clock())
        self.provider = SpawnedSubWorkerObservationProvider(self.children)
        self.makers = workers(root, *children, **options)
        for number in range(len(children)):
            self.makers.spawn(self.children, f"kid{number}", parent="boss")
        self.registry = worker_tools(self.provider, self.children)
        journal = WorkerJournal.begin(root, "boss", model="script", clock=Clock())
        self.parent = ModelWorker(
            parent.model, self.registry, journal, instructions="Lead.", host=loop_host(),
            children=self.children,
        )  # fmt: skip

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return json.loads(self.registry.call(tool, arguments).data)

    def status(self, name: str = "kid0") -> str:
        [status] = [each.status for each in self.children.children() if each.subject.name == name]
        return status


KID = {"kind": "sub_worker", "name": "kid0"}


def test_a_parent_sends_a_child_off_is_told_when_it_is_done_and_reads_what_it_said(
    tmp_path: Path,
) -> None:
    def read_the_hit(messages: Any) -> Any:
        hit = json.loads(results(messages)[-1].splitlines()[0])["hits"][0]
        return call("ReadSessionEntry", "c4", subject=KID, entry_ref=hit["entry_ref"])

    boss = Script(
        call("SubWorkerSend", name="kid0", message="count the sheep"),
        "It counts.",
        call("ViewSessionOverview", "c2", subject=KID),
        call("SearchSessionEntries", "c3", subject=KID, query="seventeen"),
        read_the_hit,
        "The kid says seventeen.",
    )
    goes_on = threading.Event()
    kid = Script(call("Echo", text="17"), held(goes_on, "There are seventeen sheep."))
    family = Family(tmp_path, boss, kid)
    family.parent.run_turn("How many sheep are there?")
    assert kid.is_asked.wait(PATIENCE)
    assert family.status() == "running"
    goes_on.set()
    join_turns()
    assert family.status() == "idle"
    family.parent.run_turn("")
    notice = told(boss.requests[2])[-1]
    assert notice.startswith("[Notification] Sub-worker 'kid0' has finished its turn")
    assert json.dumps(KID, separators=(",", ":")) in notice
    assert "seventeen" not in notice
    overview, found, read = (
        json.loads(each.splitlines()[0]) for each in results(boss.requests[-1])[-3:]
    )
    assert [each["text"] for each in overview["anchors"]] == [
        "count the sheep", "There are seventeen sheep.",
    ]  # fmt: skip
    assert overview["subject"] == found["subject"] == read["subject"] == KID
    assert read["entries"][0]["text"] == "There are seventeen sheep."
    [entry] = [each for each in entries(family.parent.capture()) if each[1] == "system"]
    assert f"[Notification] {entry[2]}" == notice


def test_a_restored_parent_had_the_same_notifications(tmp_path: Path) -> None:
    boss = Script(call("SubWorkerSend", name="kid0", message="go"), "Sent.", "I see.")
    family = Family(tmp_path, boss, Script("done"))
    family.parent.run_turn("begin")
    join_turns()
    family.parent.run_turn("and now?")
    again = Script("Yes.")
    journal, history = WorkerJournal.resume(tmp_path, "boss", model="script", clock=Clock())
    restored = ModelWorker(
        again.model, family.registry, journal, instructions="Lead.", host=loop_host(),
        history=history,
    )  # fmt: skip
    restored.run_turn("still there?")
    assert told(again.requests[0])[:2] == told(boss.requests[-1])
    assert told(boss.requests[-1])[1].endswith("\n\nand now?")


@pytest.mark.parametrize(("room", "told_before"), [(0, 0), (200, 0), (400, 1), (800, 2)])
def test_a_notification_that_could_not_be_committed_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, told_before: int
) -> None:
    disk = FailingDisk(monkeypatch)
    family = Family(tmp_path, Script("unheard"), Script("done"), Script("done"))
    for name in ("kid0", "kid1"):
        family.children.send(name, "go")
        join_turns()
    disk.room = room
    with pytest.raises(Failed, match="No space left"):
        family.parent.run_turn("and now? " * 40)
    disk.room = None
    [path] = tmp_path.glob("boss/*.jsonl")
    assert path.read_text().count("has finished its turn") == told_before
    again = Script("Yes.")
    journal, history = WorkerJournal.resume(tmp_path, "boss", model="script", clock=Clock())
    restored = ModelWorker(
        again.model, family.registry, journal, instructions="Lead.", host=loop_host(),
        history=history, children=family.children,
    )  # fmt: skip
    restored.run_turn("still there?")
    said = "\n\n".join(told(again.requests[0]))
    places = [said.find(f"[Notification] Sub-worker 'kid{n}'") for n in (0, 1)]
    assert 0 <= places[0] < places[1] and said.count("[Notification] Sub-worker") == 2
    assert path.read_text().count("has finished its turn") == 2
    assert family.children.take_notifications() == []


def test_a_notification_is_kept_by_a_turn_that_is_cancelled_before_it_begins(
    tmp_path: Path,
) -> None:
    family = Family(tmp_path, Script("unheard"), Script("done"))
    family.children.send("kid0", "go")
    join_turns()
    family.parent.cancel()
    family.parent.run_turn("and now?")
    [kept] = family.children.take_notifications()
    assert kept.subject.name == "kid0"


def test_a_child_is_read_during_its_turn(tmp_path: Path) -> None:
    goes_on, began = threading.Event(), threading.Event()
    last = noted(began, held(goes_on, "I end."))
    kid = Script([TextPart("I begin."), call("Echo", text="x")], last)
    family = Family(tmp_path, Script(""), kid)
    family.children.send("kid0", "work")
    assert began.wait(PATIENCE)
    hits = family("SearchSessionEntries", subject=KID)["hits"]
    assert [each["kind"] for each in hits] == ["user", "assistant", "tool", "tool"]
    goes_on.set()
    join_turns()


def test_stop_cancels_a_turn_of_the_model(tmp_path: Path) -> None:
    kid = Script(never)
    family = Family(tmp_path, Script(""), kid)
    family.children.send("kid0", "never ending work")
    assert kid.is_asked.wait(PATIENCE)
    assert family("SubWorkerStop", name="kid0")["status"] == "stopped"
    assert family.children.take_notifications() == []
    assert family("ListWorkerSessions")["subjects"] == []


def test_a_child_whose_provider_fails_is_failed_and_observable_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    family = Family(tmp_path, Script(""), Script(ModelHTTPError(400, "script")))
    family.children.send("kid0", "try")
    join_turns()
    [notification] = family.children.take_notifications()
    assert notification.status == "failed"
    [hit] = family("SearchSessionEntries", subject=KID, query="The turn failed")["hits"]
    assert hit["kind"] == "system"
    family("SubWorkerStop", name="kid0")
    assert family("SearchSessionEntries", subject=KID)["error"]["message"] == (
        "no such worker session"
    )


def test_credentials_in_a_childs_session_are_masked_for_its_parent(tmp_path: Path) -> None:
    family = Family(tmp_path, Script(""), Script(call("Echo", text=SECRET), f"It is {SECRET}."))
    family.children.send("kid0", f"repeat {SECRET}")
    join_turns()
    shown = [
        family("ViewSessionOverview", subject=KID),
        family("SearchSessionEntries", subject=KID),
        *(family("ReadSessionEntry", subject=KID, entry_ref=each["entry_ref"])
          for each in family("SearchSessionEntries", subject=KID)["hits"]),
    ]  # fmt: skip
    assert "REDACTED" in json.dumps(shown)
    assert SECRET not in json.dumps(shown)


def test_a_child_is_restored_with_its_conversation(tmp_path: Path) -> None:
    family = Family(tmp_path, Script(""), Script("I know."))
    family.children.send("kid0", "remember seventeen")
    join_turns()
    family.children.stop("kid0")
    second = Script("Seventeen.")
    workers(tmp_path, second).spawn(family.children, "kid0", parent="boss", is_restore=True)
    family.children.send("kid0", "which number?")
    join_turns()
    assert told(second.requests[0]) == ["remember seventeen", "which number?"]
    found = family("ReadSessionEntry", subject=KID, entry_ref="E1")["entries"]
    assert found[0]["text"] == "remember seventeen"


def test_a_child_whose_name_is_taken_leaves_no_log(tmp_path: Path) -> None:
    family = Family(tmp_path, Script(""), Script(""))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidArgument, match="there already"):
        workers(tmp_path, Script("")).spawn(family.children, "kid0", parent="boss")
    with pytest.raises(InvalidArgument):
        workers(tmp_path, Script("")).spawn(family.children, "", parent="boss")
    assert sorted(tmp_path.rglob("*")) == before


def test_children_of_two_parents_have_sessions_of_their_own() -> None:
    sessions = {
        worker_session(parent, name) for parent in ("a", "b") for name in ("x", "y", "a\0x")
    }
    assert len(sessions) == 6


# ---------------------------------------------------------------- a runtime


def test_a_runtime_spawns_and_restores_model_run_workers(tmp_path: Path) -> None:
    first, second = Script("I am here."), Script("I am back.")
    state = State.open(None)
    runtime = WorkerRuntime(
        "shop", make=workers(tmp_path, first, second, tools=worker_tools), grants=state,
        clock=Clock(),
    )  # fmt: skip
    request = WorkerSpawnRequest(worker_id="w1", workspace="w", has_sub_workers=True)
    handle = runtime.spawn(request)
    handle.turns.send("hello")
    join_turns()
    assert handle.turns.status == "idle"
    restored = runtime.restore(request)
    restored.turns.send("hello again")
    join_turns()
    assert told(second.requests[0]) == ["hello", "hello again"]
    assert [tool.name for tool in second.infos[0].function_tools] == [
        "ListWorkerSessions", "ViewSessionOverview", "SearchSessionEntries", "ReadSessionEntry",
        "SubWorkerList", "SubWorkerSend", "SubWorkerStop",
    ]  # fmt: skip
    assert texts(restored.turns.worker.capture()) == [
        "hello", "I am here.", "hello again", "I am back.",
    ]  # fmt: skip
    state.close()
