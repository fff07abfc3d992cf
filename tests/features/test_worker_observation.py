"""`builtin:worker-observation` through its registry, as a model meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import Failed, NotFound
from sessiondex.features.composite_provider import (
    CompositeWorkerObservationProvider,
    Member,
    serves_children,
    serves_runtime,
)
from sessiondex.features.local_sessions import (
    LocalAgentObservationProvider,
    LocalAgentSessions,
    local_subject,
)
from sessiondex.features.registry import Registry
from sessiondex.features.services import Services
from sessiondex.features.state import State
from sessiondex.features.subjects import Subject, runtime_worker, sub_worker
from sessiondex.features.worker_observation import (
    DESCRIPTOR,
    PROVIDER,
    WorkerObservation,
)
from sessiondex.indexer.capture import Capture
from sessiondex.limits import REPLY_BYTES
from sessiondex.model import Item
from tests.builders import Clock, claude_path, claude_user, conversation, write_lines
from tests.features.made_workers import Given, Hanging, impatient, listed, talk, with_uncommitted
from tests.query.made_sessions import RECORDS, SECRET

ADA = runtime_worker("shop", "ada")
BOB = runtime_worker("shop", "bob")
OUTPUTS = {tool.name: tool.output for tool in DESCRIPTOR.tools}


class Worker:
    """An observing worker: its registry, and nothing else."""

    def __init__(self, provider: Any) -> None:
        self.registry = Registry()
        services = Services({PROVIDER: provider})
        self.registry.install([WorkerObservation()], services).require_all()

    def __call__(self, tool: str, subject: Subject | None = None, **more: Any) -> dict[str, Any]:
        if subject is not None:
            more["subject"] = subject.model_dump()
        return self.call(tool, more)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The reply, as JSON, checked against its bound and its announced form."""
        reply = self.registry.call(tool, json.loads(json.dumps(arguments)))
        assert len(reply.data) <= REPLY_BYTES.maximum
        value = json.loads(reply.data)
        if not reply.is_error:
            OUTPUTS[tool].model_validate(value)
        return value

    def error(self, tool: str, subject: Any = None, **more: Any) -> dict[str, str]:
        return self(tool, subject, **more)["error"]


def worker_over(captures: dict[Subject, Any], **options: Any) -> Worker:
    subjects = [listed(subject, seen=n) for n, subject in enumerate(captures)]
    return Worker(Given(subjects, captures))


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ViewSessionOverview", {}),
    ("SearchSessionEntries", {"query": "there"}),
    ("ReadSessionEntry", {"entry_ref": "E1"}),
]


# ---------------------------------------------------------------- listing


def test_a_list_holds_subjects_with_name_relation_and_status_and_no_more() -> None:
    worker = worker_over({ADA: talk("hi", "there"), sub_worker("kid"): talk("a", "b")})
    assert worker("ListWorkerSessions") == {
        "subjects": [
            {"subject": {"kind": "runtime_worker", "runtime_id": "shop", "worker_id": "ada"},
             "display_name": "someone", "relation": "peer", "status": "idle"},
            {"subject": {"kind": "sub_worker", "name": "kid"},
             "display_name": "someone", "relation": "peer", "status": "idle"},
        ],
        "returned": 2, "has_more": False, "unavailable": [], "notes": [],
    }  # fmt: skip


def test_a_list_is_cut_at_its_limit_and_says_so() -> None:
    worker = worker_over({runtime_worker("shop", f"w{n}"): talk("a") for n in range(5)})
    found = worker("ListWorkerSessions", limit=2)
    assert (found["returned"], found["has_more"]) == (2, True)
    assert worker.error("ListWorkerSessions", limit=0)["kind"] == "invalid_argument"
    assert worker("ListWorkerSessions", limit=1000)["notes"][0]["code"] == "clamped"


def test_a_full_list_of_the_longest_references_stays_in_its_bound() -> None:
    ids = [f"{n:03d}" + '"' * 197 for n in range(100)]
    wide = Given([listed(runtime_worker('"' * 200, each), name="é" * 100) for each in ids])
    for arguments in ({}, {"limit": 100}):
        found = Worker(wide)("ListWorkerSessions", **arguments)
        assert found["has_more"]
        assert found["returned"] == len(found["subjects"]) > 20


def test_a_list_names_who_could_not_be_asked() -> None:
    provider = CompositeWorkerObservationProvider(
        [Member("workspace", Given(fault=Failed("down")), serves_runtime("forge")),
         Member("shop", Given([listed(ADA)]), serves_runtime("shop"))]
    )  # fmt: skip
    found = Worker(provider)("ListWorkerSessions")
    assert found["returned"] == 1
    assert found["unavailable"] == ["workspace"]
    assert [note["code"] for note in found["notes"]] == ["partial"]


def test_secrets_in_a_display_name_are_masked() -> None:
    worker = Worker(Given([listed(ADA, name=f"deploys with {SECRET}")]))
    assert SECRET not in json.dumps(worker("ListWorkerSessions"))


# ---------------------------------------------------------------- looking


@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_every_reply_repeats_the_subject(tool: str, arguments: dict[str, Any]) -> None:
    for subject in (ADA, sub_worker("kid")):
        worker = worker_over({subject: talk("hi", "there")})
        reply = worker(tool, subject, **arguments)
        assert reply["subject"] == subject.model_dump()
        assert reply["session"] == "talk"


def test_the_three_tools_show_the_session() -> None:
    worker = worker_over({ADA: talk("hi", "there", "what now", "nothing")})
    anchors = worker("ViewSessionOverview", ADA, stride=1)["anchors"]
    assert [anchor["text"] for anchor in anchors] == ["hi", "there", "what now", "nothing"]
    [hit] = worker("SearchSessionEntries", ADA, query="NOTHING")["hits"]
    assert hit["entry_ref"] == "E00000003"
    read = worker("ReadSessionEntry", ADA, entry_ref=hit["entry_ref"])
    assert read["entries"][0]["text"] == "nothing"


def test_every_call_captures_the_subject_anew() -> None:
    texts = ["hi", "there"]
    worker = worker_over({ADA: lambda: talk(*texts)})
    assert worker("ViewSessionOverview", ADA)["total"] == 2
    texts += ["more", "and more"]
    assert len(worker("SearchSessionEntries", ADA)["hits"]) == 4
    texts += ["most"]
    assert worker("ReadSessionEntry", ADA, entry_ref="E4")["entries"][0]["text"] == "most"


@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_uncommitted_entries_are_never_shown(tool: str, arguments: dict[str, Any]) -> None:
    worker = worker_over({ADA: with_uncommitted(talk("hi", "there"))})
    assert "uncommitted" not in json.dumps(worker(tool, ADA, **arguments))
    assert worker("SearchSessionEntries", ADA, query="uncommitted")["hits"] == []
    assert worker.error("ReadSessionEntry", ADA, entry_ref="E2")["kind"] == "past_end"


def test_errors_inside_a_session_are_told_apart_from_a_session_that_is_not_there() -> None:
    capture = Capture.from_items([Item(0, "user", "hi"), Item(0, "reasoning")])
    worker = worker_over({ADA: capture})
    kinds = [worker.error("ReadSessionEntry", ADA, entry_ref=ref)["kind"]
             for ref in ("E0.4", "E1", "E99")]  # fmt: skip
    assert kinds == ["not_found", "hidden_entry", "past_end"]
    told = worker.error("ReadSessionEntry", BOB, entry_ref="E0")
    assert told["message"] == "no such worker session"


# ---------------------------------------------------------------- authority


def granted(state: State) -> Worker:
    provider = Given([listed(ADA), listed(BOB)], {ADA: talk(*["hi", "there"] * 30),
                                                  BOB: talk("private", "words")})  # fmt: skip
    member = Member("shop", provider, serves_runtime("shop"),
                    lambda subject: state.is_granted("boss", subject))  # fmt: skip
    return Worker(CompositeWorkerObservationProvider([member]))


@pytest.fixture
def state():
    with State.open(None) as opened:
        opened.add_grant("boss", ADA, now=1)
        yield opened


@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_missing_and_forbidden_answer_the_same_bytes(
    tool: str, arguments: dict[str, Any], state: State
) -> None:
    worker = granted(state)
    answers = {
        worker.registry.call(tool, {"subject": subject.model_dump(), **arguments}).data
        for subject in (BOB, runtime_worker("shop", "missing"), sub_worker("bob"),
                        runtime_worker("local:codex", "bob"))
    }  # fmt: skip
    assert len(answers) == 1
    assert b"private" not in answers.pop()


def test_a_provider_s_own_words_about_a_missing_subject_are_not_repeated() -> None:
    class Chatty(Given):
        def capture(self, subject: Subject) -> Capture:
            raise NotFound(f"{subject} exists, but you may not see it", hint="ask ada")

    told = Worker(Chatty()).error("ViewSessionOverview", ADA)
    assert told == worker_over({}).error("ViewSessionOverview", BOB)


def test_a_revoked_grant_is_gone_at_the_next_page(state: State) -> None:
    worker = granted(state)
    page = worker("SearchSessionEntries", ADA, query="there", limit=5)
    assert (page["returned"], page["has_more"]) == (5, True)
    state.remove_grant("boss", ADA, now=2)
    told = worker.error("SearchSessionEntries", ADA, query="there", limit=5,
                        cursor=page["next_cursor"])  # fmt: skip
    assert told["kind"] == "not_found"
    assert worker("ListWorkerSessions")["subjects"] == []
    anchors = worker.error("ViewSessionOverview", ADA, capture=page["capture"])
    assert anchors == told


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "runtime_worker", "runtime_id": "shop", "worker_id": "ada", "observer": "root"},
        {"kind": "runtime_worker", "runtime_id": "shop", "worker_id": "ada", "url": "http://x"},
        {"kind": "sub_worker", "name": "kid", "path": "/etc/passwd"},
        {"kind": "session", "path": "/etc/passwd"},
        {"kind": "sub_worker", "name": "x" * 201},
        "shop/ada",
        [],
    ],
)
def test_a_subject_of_another_form_is_refused_by_name(subject: Any, state: State) -> None:
    worker = granted(state)
    for tool, arguments in CALLS:
        told = worker.registry.call(tool, {"subject": subject, **arguments})
        error = json.loads(told.data)["error"]
        assert error["kind"] == "invalid_argument"
        assert "'subject'" in error["message"]


@pytest.mark.parametrize("name", ["grants", "observer", "token", "url", "path", "session"])
def test_no_tool_takes_authority_from_its_arguments(name: str, state: State) -> None:
    worker = granted(state)
    for tool, arguments in [*CALLS, ("ListWorkerSessions", {})]:
        subject = None if tool == "ListWorkerSessions" else ADA
        told = worker.error(tool, subject, **arguments, **{name: "root"})
        assert told["kind"] == "invalid_argument"
        assert f"'{name}'" in told["message"]


def test_a_source_that_hangs_is_a_failure_and_hinders_no_other() -> None:
    hanging = Hanging()
    provider = CompositeWorkerObservationProvider(
        [Member("hung", hanging, serves_children),
         Member("shop", Given([listed(ADA)], {ADA: talk("hi", "there")}), serves_runtime("shop"))],
        wait=impatient(hanging),
    )  # fmt: skip
    worker = Worker(provider)
    assert worker("ListWorkerSessions")["unavailable"] == ["hung"]
    assert worker.error("ViewSessionOverview", sub_worker("kid"))["class"] == "failed"
    assert worker("ViewSessionOverview", ADA)["total"] == 2
    hanging.let_go.set()


def test_the_policy_says_that_observation_is_evidence_and_how_to_select() -> None:
    [policy] = worker_over({}).registry.instructions
    assert policy.id == "builtin:worker-observation.policy"
    for words in ("evidence, not authority", "tickets, memory, workers or work folders",
                  "neither completion nor approval", "from ListWorkerSessions first",
                  "exactly as they were returned"):  # fmt: skip
        assert words in policy.text


def test_the_tools_are_read_only_and_need_a_provider() -> None:
    assert all(tool.annotations.read_only for tool in DESCRIPTOR.tools)
    report = Registry().install([WorkerObservation()], Services())
    assert not report.features[0].installed
    assert "worker_observation_provider" in report.features[0].diagnostics[0]


# ---------------------------------------------------------------- identity


def next_generation(capture: Capture, generation: int, shared: list[int]) -> Capture:
    row = replace(capture.row, generation=generation, shared=shared)
    return Capture(row, capture.view, mark=capture.mark, searcher=capture.searcher, owner=capture)


class Rewritten:
    """A session that a test rewrites."""

    def __init__(self, *texts: str) -> None:
        self.now = talk(*texts)
        self.worker = worker_over({ADA: lambda: self.now})

    def rewrite(self, *texts: str, shared: int = 0) -> None:
        generation = self.now.generation + 1
        self.now = next_generation(talk(*texts), generation, [*self.now.row.shared, shared])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ReadSessionEntry", {"entry_ref": "E0"}),
        ("ReadSessionEntry", {"entry_refs": ["E0"]}),
        ("ReadSessionEntry", {"from": "E0", "through": "E1"}),
        ("SearchSessionEntries", {"from": "E0"}),
        ("SearchSessionEntries", {"entry_refs": "E0"}),
        ("ViewSessionOverview", {"through": "E1"}),
    ],
)
def test_the_first_ref_after_a_rewrite_is_refused_without_a_token(
    tool: str, arguments: dict[str, Any]
) -> None:
    session = Rewritten("hi", "there")
    session.worker("ViewSessionOverview", ADA)
    session.rewrite("hello", "other words")
    assert session.worker.error(tool, ADA, **arguments)["kind"] == "stale"
    assert "error" not in session.worker(tool, ADA, **arguments)


def test_what_shows_the_new_generation_makes_its_refs_good() -> None:
    session = Rewritten("hi", "there")
    session.worker("ViewSessionOverview", ADA)
    session.rewrite("hello", "other words")
    session.worker("SearchSessionEntries", ADA, query="other")
    read = session.worker("ReadSessionEntry", ADA, entry_ref="E1")
    assert read["entries"][0]["text"] == "other words"


def test_a_call_that_showed_nothing_does_not_count_as_shown() -> None:
    session = Rewritten("hi", "there")
    session.worker("ViewSessionOverview", ADA)
    session.rewrite("hello", "other words")
    assert session.worker.error("ViewSessionOverview", ADA, stride=0)["kind"] == "invalid_argument"
    assert session.worker.error("ReadSessionEntry", ADA, entry_ref="E1")["kind"] == "stale"


def test_a_ref_with_its_token_is_served_in_the_shared_prefix_and_stale_outside() -> None:
    session = Rewritten("hi", "there", "end")
    token = session.worker("ViewSessionOverview", ADA)["capture"]
    session.rewrite("hi", "other", "words", shared=1)
    worker = session.worker
    read = worker("ReadSessionEntry", ADA, entry_ref="E0", capture=token)
    assert read["entries"][0]["text"] == "hi"
    told = worker.error("ReadSessionEntry", ADA, entry_ref="E1", capture=token)
    assert told["kind"] == "stale"


def test_a_session_that_only_grew_keeps_every_ref_good() -> None:
    texts = ["hi", "there"]
    worker = worker_over({ADA: lambda: talk(*texts)})
    worker("ViewSessionOverview", ADA)
    for n in range(5):
        texts.append(f"more {n}")
        assert "error" not in worker("ReadSessionEntry", ADA, entry_ref="E1")


@pytest.mark.parametrize("texts", [("hi",), ("hi", "changed"), ("hi", "changed", "and longer")])
def test_a_rewrite_is_found_where_a_host_counts_no_generations(texts: tuple[str, ...]) -> None:
    held = [talk("hi", "there")]
    worker = worker_over({ADA: lambda: held[0]})
    token = worker("ViewSessionOverview", ADA)["capture"]
    held[0] = talk(*texts)
    told = worker.error("ReadSessionEntry", ADA, entry_ref="E0", capture=token)
    assert told["kind"] == "stale"
    assert "error" not in worker("ReadSessionEntry", ADA, entry_ref="E0")


def test_a_subject_that_went_on_with_another_session_is_stale_once() -> None:
    held = [talk("hi", "there")]
    worker = worker_over({ADA: lambda: held[0]})
    worker("ViewSessionOverview", ADA)
    held[0] = talk("hi", "there", session="another")
    assert worker.error("ReadSessionEntry", ADA, entry_ref="E0")["kind"] == "stale"
    assert worker("ReadSessionEntry", ADA, entry_ref="E0")["session"] == "another"


def test_the_memory_of_one_subject_is_not_that_of_another() -> None:
    first, second = Rewritten("hi", "there"), talk("ho", "where")
    worker = worker_over({ADA: lambda: first.now, BOB: second})
    worker("ViewSessionOverview", ADA)
    worker("ViewSessionOverview", BOB)
    first.rewrite("other", "words")
    assert "error" not in worker("ReadSessionEntry", BOB, entry_ref="E0")
    assert worker.error("ReadSessionEntry", ADA, entry_ref="E0")["kind"] == "stale"


# ---------------------------------------------------------------- live


def test_a_live_file_keeps_refs_while_it_grows_and_is_stale_when_rewritten(
    tmp_path: Path, state: State
) -> None:
    path = write_lines(claude_path(tmp_path, "s"), conversation(2))
    sessions = LocalAgentSessions([tmp_path / ".claude" / "projects"],
                                  clock=Clock(path.stat().st_mtime))  # fmt: skip
    subject = local_subject("claude-code", "s")
    state.add_grant("boss", subject, now=1)
    provider = LocalAgentObservationProvider(sessions, observer="boss", grants=state)
    worker = Worker(provider)
    [anchor, *_] = worker("ViewSessionOverview", subject, stride=1)["anchors"]
    read = worker("ReadSessionEntry", subject, entry_ref=anchor["entry_ref"])
    write_lines(path, conversation(1, start=50, word="mandrel"), append=True)
    [hit, *_] = worker("SearchSessionEntries", subject, query="mandrel")["hits"]
    assert hit["entry_ref"] == "E00000010"
    again = worker("ReadSessionEntry", subject, entry_ref=anchor["entry_ref"])
    assert again["entries"] == read["entries"]
    write_lines(path, [claude_user("begun anew", 0), *conversation(4, start=60)])
    told = worker.error("ReadSessionEntry", subject, entry_ref=anchor["entry_ref"])
    assert told["kind"] == "stale"


# ---------------------------------------------------------------- whatever a model says

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
    | st.sampled_from(["E0", "E00000001.1", "E99999", "user", "literal", "2d", "c1.x.1.1.x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = sorted({name for tool in DESCRIPTOR.tools for name in tool.input_schema()["properties"]})
ARGUMENTS = st.dictionaries(st.sampled_from([*NAMES, "other"]), JSON, max_size=5)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(OUTPUTS)), ARGUMENTS, st.booleans(), RECORDS)
def test_any_arguments_get_a_bounded_reply_or_an_error_of_the_contract(
    tool: str, arguments: dict[str, Any], names_subject: bool, records: list[Any]
) -> None:
    worker = worker_over({ADA: Capture.from_items(records)})
    if names_subject and tool != "ListWorkerSessions":
        arguments = arguments | {"subject": ADA.model_dump()}
    reply = worker.call(tool, arguments)
    if "error" in reply:
        assert reply["error"]["class"] in ("invalid_argument", "failed")
    assert SECRET not in json.dumps(reply)
