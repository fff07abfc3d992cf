"""A scripted host plays the stories of this package end to end, through what it offers.

Each story is told by a host with its registries, runtime and state, and by models that know only
the tools: what they use next is what an earlier reply said.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from sessiondex.features import (
    CAPTURE,
    CLOCK,
    LIBRARY,
    RUN_RANGE,
    Clock,
    LibraryTools,
    MemoryExtract,
    Registry,
    RunRange,
    Services,
    SessionExplore,
    SessionLog,
    SubWorkerFeature,
    WorkerObservation,
    build_summary_input,
)
from sessiondex.features.extract_run import EXTRACT_RUN, ExtractRun
from sessiondex.features.runtime import WorkerHandle, WorkerRuntime, WorkerSpawnRequest
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.state import State
from sessiondex.features.sub_worker import SUB_WORKERS
from sessiondex.features.subjects import RuntimeWorker
from sessiondex.features.worker_observation import POLICY, PROVIDER
from sessiondex.indexer.library import Library
from sessiondex.limits import LOG_BYTES, REPLY_BYTES
from sessiondex.query.verify import verify
from tests import builders
from tests.builders import (
    claude_assistant,
    claude_call,
    claude_path,
    claude_result,
    claude_thinking,
    claude_user,
    conversation,
    index,
    write_lines,
)
from tests.features.extract_runs import record_ids
from tests.features.made_workers import PATIENCE, Talker
from tests.query.made_sessions import SECRET

SESSION = "11111111-1111-4111-8111-111111111111"


class Model:
    """Whoever calls the tools of a registry, and notes every byte it was shown."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.shown: list[bytes] = []

    def __call__(self, tool: str, **arguments: Any) -> Any:
        """A reply that is no error."""
        reply = self.call(tool, arguments)
        assert "error" not in reply, reply
        return reply

    def refused(self, tool: str, **arguments: Any) -> str:
        """The kind of the error that a call gets."""
        return self.call(tool, arguments)["error"]["kind"]

    def call(self, tool: str, arguments: Any) -> Any:
        data = self.registry.call_json(tool, json.dumps(arguments)).data
        assert len(data) <= REPLY_BYTES.maximum
        self.shown.append(data)
        return json.loads(data)


@pytest.fixture
def library(tmp_path: Path) -> Generator[Library]:
    """A library of one session: a decision, a thought, a secret, and much work around it."""
    lines = [
        claude_user("The export must keep the order of the drawings.", 0),
        claude_thinking("I could sort them by name.", 1),
        claude_call("Bash", {"command": f"curl -H 'x: {SECRET}' forge/api"}, "c1", 2),
        claude_result(f"ok, {SECRET}", "c1", 3),
        claude_assistant("Agreed: drawings are exported in the order of the board.", 4),
        *conversation(12, start=5),
        claude_user("And never deploy on a Friday.", 70),
        claude_assistant("Noted: no deployment on Fridays.", 71),
    ]
    write_lines(claude_path(tmp_path / "home", SESSION), lines)
    with Library.create(tmp_path / "library") as library:
        index(library, tmp_path / "home")
        yield library


def join_turns() -> None:
    """Waits for the ends of all turns of this process."""
    for thread in threading.enumerate():
        if thread.name.startswith("turn-"):
            thread.join(PATIENCE)


# ---------------------------------------------------------------- an extract run by hand


def test_an_extract_run_by_hand(library: Library, tmp_path: Path) -> None:
    """A host has its tools; beside them a run reads one session and stages two candidates, which
    are verified and closed. Nothing but staging is written, and the host's tools stay the same."""
    source = claude_path(tmp_path / "home", SESSION)
    before = source.read_bytes()
    main = Registry()
    main.install([LibraryTools()], Services({LIBRARY: library})).require_all()
    fingerprint = main.fingerprint()

    capture = library.capture(SESSION).committed()
    whole = RunRange(0, capture.record_count - 1)
    staging = StagingFolder.beside(tmp_path / "library")
    run = ExtractRun(capture, run_id="run-1", backend=staging, ids=record_ids(), run_range=whole)
    registry = Registry(taken=[tool.name for tool in main.tools])
    services = Services({CAPTURE: capture, RUN_RANGE: whole, EXTRACT_RUN: run})
    registry.install([SessionExplore(), MemoryExtract()], services).require_all()
    assert [tool.name for tool in registry.tools] == [
        "ShowOverview", "SearchEntries", "ReadEntry", "StageMemoryCandidate",
        "FinishMemoryExtraction",
    ]  # fmt: skip
    assert main.fingerprint() == fingerprint
    model = Model(registry)

    anchors = model("ShowOverview")["anchors"]
    first = model("ReadEntry", entry_ref=anchors[0]["entry_ref"])["entries"][0]
    assert first["text"] == "The export must keep the order of the drawings."
    agreed = model("SearchEntries", query="agreed", kind="assistant")["hits"][0]["entry_ref"]
    order = {
        "kind": "constraint", "claim": "Exports keep the order of the drawings on the board.",
        "why_useful": "Sorting by name would break it.",
        "entry_refs": [first["entry_ref"], agreed, agreed],
        "quotes": [{"entry_ref": agreed, "quote": "exported in the order of the board"}],
    }  # fmt: skip
    assert model.refused("StageMemoryCandidate", **{**order, "entry_refs": ["E999"]}) != ""
    wrong = [{"entry_ref": agreed, "quote": "sorted by the name of the file"}]
    assert model.refused("StageMemoryCandidate", **{**order, "quotes": wrong}) != ""
    assert staging.waiting().records == []

    staged = model("StageMemoryCandidate", **order)
    assert (staged["staged_count"], staged["already_staged"]) == (1, False)
    assert model("StageMemoryCandidate", **order)["already_staged"]
    friday = model("SearchEntries", query="friday")["hits"]
    second = model(
        "StageMemoryCandidate", kind="preference", claim="Nothing is deployed on a Friday.",
        why_useful="Plan deployments for other days.",
        entry_refs=[hit["entry_ref"] for hit in friday],
    )  # fmt: skip
    assert second["staged_count"] == 2
    assert model.refused("FinishMemoryExtraction", staged_count=3) == "invalid_argument"
    assert model("FinishMemoryExtraction", staged_count=2)["sealed"]
    assert model.refused("StageMemoryCandidate", **order) == "invalid_argument"
    assert model.refused("FinishMemoryExtraction", staged_count=2) == "invalid_argument"

    records = staging.waiting().records
    assert [record.id for record in records] == [staged["id"], second["id"]]
    assert [record.extensions["authority"] for record in records] == ["user", "user"]
    verdicts = verify(
        [record.to_json() for record in records], open_capture=library.capture,
        find_source=lambda _: None,
    )  # fmt: skip
    assert [(each["status"], each["source"]) for each in verdicts] == [("ok", "present")] * 2
    staging.close(staged["id"], "applied", "written down", closed_at="2026-05-04T00:00:00.000Z")
    assert [record.id for record in staging.waiting().records] == [second["id"]]

    model("ReadEntry", **{"from": "E0", "through": "E4"})
    seen = b"".join(model.shown) + b"".join(record.to_bytes() for record in records)
    for hidden in (SECRET, "sort them by name"):
        assert hidden.encode() not in seen
    assert source.read_bytes() == before
    assert main.fingerprint() == fingerprint
    main_model = Model(main)
    assert main_model("SearchLibrary", query="drawings")["hits"]


# ---------------------------------------------------------------- an orchestrator


class Shop:
    """A host with a runtime, grants, and workers that it keeps alive."""

    def __init__(self) -> None:
        self.state = State.open(None)
        self.talkers: dict[str, Talker] = {}
        self.runtime = WorkerRuntime(
            "shop", make=self._make, grants=self.state, clock=builders.Clock()
        )
        self._kept: list[WorkerHandle] = []

    def _make(self, request: Any, provider: Any, children: Any) -> Talker:
        talker = Talker(f"You are {request.worker_id}.", "Ready.", session=request.worker_id)
        self.talkers[request.worker_id] = talker
        return talker

    def spawn(
        self, name: str, *, grants: tuple[RuntimeWorker, ...] = (), is_parent: bool = False
    ) -> WorkerHandle:
        request = WorkerSpawnRequest(
            worker_id=name, workspace="mill", display_name=name.title(), has_sub_workers=is_parent
        )
        handle = self.runtime.spawn(
            request.with_resolved_observation(enabled=bool(grants), grants=grants)
        )
        for subject in grants:
            self.state.add_grant(handle.request.observer, subject, now=1, workspace="mill")
        self._kept.append(handle)
        return handle

    def model_of(self, handle: WorkerHandle) -> Model:
        """The model in a worker: the tools that the host installs for it."""
        assert handle.provider is not None
        provided: dict[Any, Any] = {PROVIDER: handle.provider, CLOCK: Clock()}
        features: list[Any] = [WorkerObservation()]
        if handle.children is not None:
            provided[SUB_WORKERS] = handle.children
            features.append(SubWorkerFeature())
        registry = Registry()
        registry.install(features, Services(provided)).require_all()
        assert POLICY in registry.instructions
        return Model(registry)


@pytest.fixture
def shop() -> Generator[Shop]:
    made = Shop()
    yield made
    made.state.close()


def pages(first: Any, go_on: Callable[[str], Any]) -> Generator[Any]:
    """All hits of a search whose pages are followed."""
    page = first
    while True:
        yield from page["hits"]
        if not page["has_more"]:
            return
        page = go_on(page["next_cursor"])


def test_an_orchestrator_watches_two_workers_loses_one_grant_and_is_told_of_a_finished_turn(
    shop: Shop,
) -> None:
    ada, bob, eve = (shop.spawn(name) for name in ("ada", "bob", "eve"))
    boss = shop.spawn("boss", grants=(ada.subject, bob.subject), is_parent=True)
    assert boss.children is not None
    scout = Talker("You are the scout.", "Ready.", session="scout")
    scout.goes_on.clear()
    boss.children.add("scout", scout)
    model = shop.model_of(boss)

    listed = {each["display_name"]: each for each in model("ListWorkerSessions")["subjects"]}
    assert set(listed) == {"Ada", "Bob", "scout"}
    assert [listed[name]["relation"] for name in ("Ada", "Bob", "scout")] == [
        "peer", "peer", "child",
    ]  # fmt: skip
    of_ada, of_bob = listed["Ada"]["subject"], listed["Bob"]["subject"]

    # Both work; what they commit is seen at once, under refs that stay.
    overview = model("ViewSessionOverview", subject=of_ada)
    assert overview["subject"] == of_ada
    ready = model("SearchSessionEntries", subject=of_ada, query="ready")["hits"][0]["entry_ref"]
    for worker in (ada, bob):
        worker.turns.send("count the drawings")
    join_turns()
    found = model("SearchSessionEntries", subject=of_ada, query="drawings", limit=1)
    cursor = found["next_cursor"]
    texts = pages(
        found,
        lambda at: model(
            "SearchSessionEntries", subject=of_ada, query="drawings", limit=1, cursor=at
        ),
    )
    assert [hit["snippet"]["text"] for hit in texts] == [
        "count the drawings", "done: count the drawings",
    ]  # fmt: skip
    entry = model("ReadSessionEntry", subject=of_ada, entry_ref=ready)["entries"][0]
    assert entry["text"] == "Ready."
    assert model("ViewSessionOverview", subject=of_bob, stride=1)["total"] == 4

    # One grant is taken back between two pages; the rest goes on.
    shop.state.remove_grant(boss.request.observer, ada.subject, now=2, workspace="mill")
    refused = model.call(
        "SearchSessionEntries",
        {"subject": of_ada, "query": "drawings", "limit": 1, "cursor": cursor},
    )
    never = model.call("ViewSessionOverview", {"subject": eve.subject.model_dump()})
    assert refused == never
    assert refused["error"]["kind"] == "not_found"
    left = [each["display_name"] for each in model("ListWorkerSessions")["subjects"]]
    assert sorted(left) == ["Bob", "scout"]
    assert model("ReadSessionEntry", subject=of_bob, entry_ref="E0")["entries"]

    # A child is sent to work; its end is told between turns, and read as evidence.
    assert model("SubWorkerSend", name="scout", message="look for the gauge")["status"] == "running"
    assert boss.children.take_notifications() == []
    scout.goes_on.set()
    join_turns()
    [told] = boss.children.take_notifications()
    assert told.status == "idle"
    assert "look for the gauge" not in told.text
    subject = json.loads(re.search(r"\{.*\}", told.text)[0])  # type: ignore[index]
    hits = model("SearchSessionEntries", subject=subject, query="done:")["hits"]
    assert [hit["snippet"]["text"] for hit in hits] == ["done: look for the gauge"]
    assert boss.children.take_notifications() == []


def test_the_parent_of_a_failed_child_reads_why(shop: Shop) -> None:
    parent = shop.spawn("parent", is_parent=True)
    assert parent.children is not None
    smith = Talker("You are the smith.", "Ready.", session="smith")
    smith.breaks_with = RuntimeError(f"the anvil has no handle {SECRET}")
    parent.children.add("smith", smith)
    model = shop.model_of(parent)

    model("SubWorkerSend", name="smith", message="forge a hinge")
    join_turns()
    [told] = parent.children.take_notifications()
    assert told.status == "failed"
    assert "anvil" not in told.text
    assert model("SubWorkerList")["children"][0]["status"] == "failed"
    assert model.refused("SubWorkerSend", name="smith", message="again") == "invalid_argument"

    subject = told.subject.model_dump()
    [listed] = model("ListWorkerSessions")["subjects"]
    assert (listed["subject"], listed["status"]) == (subject, "failed")
    last = model("ViewSessionOverview", subject=subject)["anchors"][-1]["entry_ref"]
    why = model("ReadSessionEntry", subject=subject, entry_ref=last)["entries"][0]["text"]
    assert why.startswith("failed: the anvil has no handle [REDACTED:")

    assert model("SubWorkerStop", name="smith")["status"] == "stopped"
    assert model.refused("ReadSessionEntry", subject=subject, entry_ref=last) == "not_found"
    assert model("ListWorkerSessions")["subjects"] == []
    assert all(SECRET.encode() not in data for data in model.shown)


# ---------------------------------------------------------------- a compaction reader


def test_a_compaction_reader_goes_through_the_session_it_summarises(library: Library) -> None:
    capture = library.capture(SESSION).committed()
    message = build_summary_input(capture, target_bytes=4_096)
    assert len(message.text.encode()) <= 4_096
    assert "Noted: no deployment on Fridays." in message.text
    assert message.omitted_messages > 0
    for left_out in ("grep -rn", SECRET, "secret thought", "sort them by name"):
        assert left_out not in message.text

    registry = Registry()
    registry.install([SessionLog()], Services({CAPTURE: capture})).require_all()
    model = Model(registry)

    found = model("search_session_log", query="DRAWINGS")["text"]
    assert found.startswith("[E00000000 user")
    assert "[E00000004 assistant" in found
    assert found.splitlines()[-1] == "[end: no more hits]"
    where = model("search_session_log", query="grep -rn", limit=2)["text"]
    assert "(match in the arguments at byte" in where
    assert "grep -rn" not in where
    more = re.search(r"with offset (\d+)\]$", where)
    assert more is not None
    assert "(match in the arguments" in model(
        "search_session_log", query="grep -rn", offset=int(more[1])
    )["text"]  # fmt: skip

    # Compact first, to the end; then one stretch in full.
    seen: list[str] = []
    offset = 0
    while True:
        text = model("read_session_items", offset=offset, limit=30)["text"]
        assert len(text.encode()) <= LOG_BYTES.maximum
        seen += re.findall(r"^\[(E\d+(?:\.\d+)?) ", text, re.MULTILINE)
        going_on = re.search(r"offset (\d+)\]$", text)
        if going_on is None:
            break
        offset = int(going_on[1])
    entries = capture.entries(0, capture.entry_count)
    assert seen == [str(entry.ref) for entry in entries]
    full = model("read_session_items", **{"from": "E2", "through": "E4"}, mode="full")["text"]
    assert "curl -H" in full
    assert "[REDACTED:" in full
    assert all(SECRET.encode() not in data for data in model.shown)
