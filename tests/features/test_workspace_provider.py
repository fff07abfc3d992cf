"""The workspace as a provider, against a server of plain functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import Failed, NotFound, Stale
from sessiondex.features.state import subject_not_found
from sessiondex.features.subjects import runtime_worker, sub_worker
from sessiondex.features.workspace_provider import WorkspaceClientWorkerObservationProvider
from sessiondex.features.workspace_wire import SessionRequest, session_reply, sessions_reply
from sessiondex.indexer.capture import Capture
from sessiondex.model import SUPERSEDED, EntryRef, Fact, Item, Record
from sessiondex.query.overview import overview
from sessiondex.query.reading import ReadRequest, read
from sessiondex.query.request import SearchRequest
from sessiondex.query.search import search
from tests.builders import Clock
from tests.features.made_workers import listed, talk, with_uncommitted
from tests.query.made_sessions import RECORDS, SECRET

ADA = runtime_worker("forge", "ada")


class Server:
    """Answers as a workspace server does, through JSON; a test sets what it holds."""

    def __init__(self, capture: Capture | None = None) -> None:
        self.held = capture
        self.requests: list[dict[str, Any]] = []
        self.sent = 0
        self.replies: list[dict[str, Any]] = []

    def list_sessions(self) -> Mapping[str, Any]:
        return json.loads(json.dumps(sessions_reply([listed(ADA, seen=3)], has_more=False)))

    def session(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.requests.append(dict(request))
        if self.replies:
            return self.replies.pop(0)
        if self.held is None:
            raise NotFound("nothing of that name", hint="404")
        body = json.dumps(session_reply(self.held, SessionRequest.model_validate(request)))
        self.sent += len(body)
        return json.loads(body)


def provider_of(server: Server) -> WorkspaceClientWorkerObservationProvider:
    return WorkspaceClientWorkerObservationProvider(server, clock=Clock())


def texts(capture: Capture) -> list[tuple[EntryRef, str, str]]:
    return [
        (entry.ref, entry.kind, capture.text(entry).decode())
        for entry in capture.entries(0, capture.entry_count)
    ]


def test_the_server_lists_what_it_allows() -> None:
    found = list(provider_of(Server()).list_sessions().subjects)
    assert [(each.subject, each.last_seen) for each in found] == [(ADA, 3)]


@settings(max_examples=25, deadline=None)
@given(RECORDS, st.integers(0, 24))
def test_a_session_reads_alike_on_both_sides_however_it_grew(
    records: list[Record], cut: int
) -> None:
    server = Server(Capture.from_items(records[:cut] or records))
    provider = provider_of(server)
    provider.capture(ADA)
    server.held = whole = Capture.from_items(records)
    found = provider.capture(ADA)
    assert found.record_count == whole.record_count
    for request in ({}, {"query": "words"}, {"kind": "user"}):
        here = search(found, SearchRequest.from_arguments(request))
        there = search(whole, SearchRequest.from_arguments(request))
        refs = [[hit["entry_ref"] for hit in reply["hits"]] for reply in (here, there)]
        assert refs[0] == refs[1]
    sides = [overview(side, stride=1) for side in (found, whole)]
    anchors = [
        [(each["entry_ref"], each["label"], each["text"]) for each in side["anchors"]]
        for side in sides
    ]
    assert anchors[0] == anchors[1]


def test_only_what_is_new_is_transferred() -> None:
    words = ["some words " * 50] * 40
    server = Server(talk(*words))
    provider = provider_of(server)
    assert provider.capture(ADA).entry_count == 40
    before = server.sent
    server.held = talk(*words, "one more")
    found = provider.capture(ADA)
    assert texts(found)[-1] == (EntryRef(40), "user", "one more")
    assert server.sent - before < 1_000
    assert server.requests[-1]["count"] == 40


def test_a_large_session_comes_in_pages_of_whole_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiondex.features.workspace_wire.PAGE_ENTRIES", 3)
    records = [
        Record(0, 0, 0, 0, bytes([n]) * 8, blocks=4,
               items=[Item(block, "user", f"{n} {block}") for block in range(4)])
        for n in range(5)
    ]  # fmt: skip
    server = Server(Capture.from_items(records))
    found = provider_of(server).capture(ADA)
    assert [ref for ref, _, _ in texts(found)] == [
        EntryRef(n, block) for n in range(5) for block in range(4)
    ]
    assert [request["count"] for request in server.requests] == [0, 4, 8, 12, 16]


def test_uncommitted_entries_do_not_leave_the_server() -> None:
    reply = session_reply(with_uncommitted(talk("a", "b")), SessionRequest(subject=ADA))
    assert [entry["text"] for entry in reply["entries"]] == ["a", "b"]


def test_secrets_do_not_leave_the_server() -> None:
    capture = Capture.from_items(
        [Item(0, "tool_call", f"Bash\n{SECRET}", name=SECRET, call_id=SECRET, plan=SECRET,
              summary=SECRET)]
    )  # fmt: skip
    assert SECRET not in json.dumps(session_reply(capture, SessionRequest(subject=ADA)))


def test_a_rewritten_session_is_sent_anew_and_its_old_refs_are_stale() -> None:
    from dataclasses import replace

    server = Server(talk("one", "two", "three"))
    provider = provider_of(server)
    before = provider.capture(ADA)
    fresh = talk("one", "other", "things")
    fresh.row = replace(fresh.row, generation=2, shared=[1])
    fresh.generation = 2
    server.held = fresh
    after = provider.capture(ADA)
    assert [text for _, _, text in texts(after)] == ["one", "other", "things"]
    after.admit(before.token, [EntryRef(0)])
    with pytest.raises(Stale):
        after.admit(before.token, [EntryRef(1)])


def test_entries_that_were_rewound_later_are_marked() -> None:
    items = [Item(0, "user", text) for text in ("one", "two")]
    server = Server(Capture.from_items(items))
    provider = provider_of(server)
    provider.capture(ADA)
    last = Record(0, 0, 0, 0, b"87654321", items=[Item(0, "user", "three")],
                  facts=[Fact(SUPERSEDED, 1, 1)])  # fmt: skip
    server.held = Capture.from_items([*items, last])
    found = provider.capture(ADA)
    flags = [found.flags(entry) & SUPERSEDED for entry in found.entries(0, 3)]
    assert flags == [0, SUPERSEDED, 0]


def test_a_404_is_the_one_answer_and_what_was_kept_is_forgotten() -> None:
    server = Server(talk("one", "two"))
    provider = provider_of(server)
    provider.capture(ADA)
    server.held = None
    with pytest.raises(NotFound) as caught:
        provider.capture(ADA)
    assert caught.value.to_json() == subject_not_found().to_json()
    with pytest.raises(NotFound):
        provider.capture(sub_worker("kid"))
    server.held = talk("one", "two")
    provider.capture(ADA)
    assert server.requests[-1]["count"] == 0


GOOD = session_reply(talk("one", "two"), SessionRequest(subject=ADA))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"first": 5}, "begins in the middle"),
        ({"entries": [], "has_more": True}, "sent none"),
        ({"records": 2_000_000_000}, "more records"),
        ({"entries": [GOOD["entries"][0], GOOD["entries"][0]]}, "two entries of one block"),
        ({"entries": [GOOD["entries"][0] | {"flags": ["provisional"]}]}, "not committed"),
        ({"entries": [{"kind": "reasoning", "record": 0}]}, "entries.0.kind"),
        ({"entries": [GOOD["entries"][0] | {"record": -1}]}, "entries.0.record"),
        ({"generation": "one"}, "generation"),
        ({"entries": None}, "entries"),
    ],
)
def test_a_server_that_lies_fails_and_leaves_nothing_behind(
    change: dict[str, Any], complaint: str
) -> None:
    server = Server(talk("one", "two"))
    server.replies = [{**GOOD, **change}]
    provider = provider_of(server)
    with pytest.raises(Failed, match=complaint):
        provider.capture(ADA)
    assert provider.capture(ADA).entry_count == 2


@settings(max_examples=60, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["entries", "sessions", "records", "first", "kind", "record", "capture",
                         "segment_id", "session", "agent", "generation"]), inner, max_size=6),
    max_leaves=12,
))  # fmt: skip
def test_arbitrary_json_of_a_server_is_a_failure(value: Any) -> None:
    server = Server()
    server.replies = [value]
    with pytest.raises(Failed):
        provider_of(server).capture(ADA)


def test_only_so_many_sessions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiondex.features.workspace_provider.KEPT_SESSIONS", 1)
    server = Server(talk("one", "two"))
    provider = provider_of(server)
    for subject in (ADA, runtime_worker("forge", "bob"), ADA):
        assert provider.capture(subject).entry_count == 2
    assert [request["count"] for request in server.requests] == [0, 0, 0]


def test_a_session_of_boundless_size_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiondex.features.workspace_provider.SESSION_BYTES", 1_000)
    with pytest.raises(Failed, match="more than 1000 bytes"):
        provider_of(Server(talk("x" * 600, "y" * 600))).capture(ADA)


def test_entries_that_were_not_asked_for_are_refused() -> None:
    server = Server(talk("one", "two"))
    provider = provider_of(server)
    provider.capture(ADA)
    server.replies = [GOOD]
    with pytest.raises(Failed, match="other entries"):
        provider.capture(ADA)
    provider.capture(ADA)
    server.replies = [{**GOOD, "first": 2, "records": 9}]
    with pytest.raises(Failed, match="sent before"):
        provider.capture(ADA)


def test_a_malformed_list_is_a_failure() -> None:
    class Liar(Server):
        def list_sessions(self) -> Mapping[str, Any]:
            return {"sessions": [{"subject": {"kind": "sub_worker", "name": "x" * 999}}]}

    with pytest.raises(Failed, match="another form"):
        provider_of(Liar()).list_sessions()


def test_what_was_received_is_read_like_any_other_capture() -> None:
    found = provider_of(Server(talk("one", "two"))).capture(ADA)
    reply = read(found, ReadRequest(entry_ref="E00000001"))
    assert reply["entries"][0]["text"] == "two"
