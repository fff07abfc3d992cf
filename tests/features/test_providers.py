"""Providers: what each lists and captures, and what a composite lets through."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import Failed, NotFound
from sessiondex.features.composite_provider import (
    CALLS_IN_FLIGHT,
    CompositeWorkerObservationProvider,
    Member,
    serves_children,
    serves_elsewhere,
    serves_local,
    serves_runtime,
)
from sessiondex.features.local_sessions import (
    LocalAgentObservationProvider,
    LocalAgentSessions,
    local_subject,
)
from sessiondex.features.observation import ObservableWorker
from sessiondex.features.providers import (
    RuntimeGrantedWorkerObservationProvider,
    SpawnedSubWorkerObservationProvider,
)
from sessiondex.features.state import State, subject_not_found
from sessiondex.features.sub_worker import SubWorkerRegistry
from sessiondex.features.subjects import RuntimeWorker, Subject, runtime_worker, sub_worker
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.model import EntryRef
from tests.builders import (
    Clock,
    claude_assistant,
    claude_path,
    claude_thinking,
    claude_user,
    conversation,
    index,
    write_lines,
)
from tests.features.made_workers import (
    Given,
    Hanging,
    Talker,
    impatient,
    listed,
    talk,
    with_uncommitted,
)

ADA = runtime_worker("shop", "ada")
BOB = runtime_worker("shop", "bob")


def subjects(provider: Any) -> list[Subject]:
    return [each.subject for each in provider.list_sessions().subjects]


def answer_to(provider: Any, subject: Subject) -> str:
    with pytest.raises(NotFound) as caught:
        provider.capture(subject)
    return json.dumps(caught.value.to_json())


NOT_THERE = json.dumps(subject_not_found().to_json())


# ---------------------------------------------------------------- children


def test_children_are_listed_until_they_are_stopped() -> None:
    clock = Clock()
    children = SubWorkerRegistry(clock=clock)
    children.add("old", Talker("hello", "old here"))
    clock.now += 1
    children.add("young", Talker("hello", "young here"), display_name="The young one")
    provider = SpawnedSubWorkerObservationProvider(children)
    found = list(provider.list_sessions().subjects)
    assert [(each.subject, each.display_name, each.relation, each.status) for each in found] == [
        (sub_worker("young"), "The young one", "child", "idle"),
        (sub_worker("old"), "old", "child", "idle"),
    ]
    assert provider.capture(sub_worker("old")).entry_count == 2
    children.stop("old")
    assert subjects(provider) == [sub_worker("young")]
    assert answer_to(provider, sub_worker("old")) == NOT_THERE
    assert answer_to(provider, sub_worker("never")) == NOT_THERE
    assert answer_to(provider, ADA) == NOT_THERE


def test_a_child_is_captured_without_what_it_has_not_committed() -> None:
    class Hasty(Talker):
        def capture(self):
            return with_uncommitted(super().capture())

    children = SubWorkerRegistry(clock=Clock())
    children.add("hasty", Hasty("hello", "there"))
    found = SpawnedSubWorkerObservationProvider(children).capture(sub_worker("hasty"))
    assert found.entry_count == found.committed_count == 2


# ---------------------------------------------------------------- granted peers


class Peers:
    """A runtime's table of workers, as the provider sees it."""

    def __init__(self) -> None:
        self.workers: dict[tuple[str, str], ObservableWorker] = {}

    def put(self, worker_id: str, worker: Any, *, workspace: str = "w", seen: int = 1) -> None:
        self.workers[workspace, worker_id] = ObservableWorker(
            worker_id, f"worker {worker_id}", "idle", seen, worker
        )

    def find(self, workspace: str, worker_id: str) -> ObservableWorker | None:
        return self.workers.get((workspace, worker_id))


def peers_of(peers: Peers, state: State, *granted: RuntimeWorker) -> Any:
    return RuntimeGrantedWorkerObservationProvider(
        observer="boss", workspace="w", runtime_id="shop", granted=granted, grants=state,
        find_peer=peers.find,
    )  # fmt: skip


@pytest.fixture
def state():
    with State.open(None) as opened:
        yield opened


def test_a_granted_live_peer_is_listed_and_captured(state: State) -> None:
    peers = Peers()
    peers.put("ada", Talker("hi", "ada here"))
    state.add_grant("boss", ADA, now=1, workspace="w")
    provider = peers_of(peers, state, ADA)
    assert subjects(provider) == [ADA]
    assert provider.capture(ADA).entry_count == 2


def test_every_check_is_made_at_every_call(state: State) -> None:
    peers = Peers()
    peers.put("ada", Talker("hi", "there"))
    peers.put("eve", Talker("hi", "there"), workspace="elsewhere")
    eve, elsewhere = runtime_worker("shop", "eve"), runtime_worker("forge", "ada")
    for subject in (ADA, eve, elsewhere):
        state.add_grant("boss", subject, now=1, workspace="w")
    provider = peers_of(peers, state, ADA, eve, elsewhere)
    assert subjects(provider) == [ADA]
    for missing in (eve, elsewhere, BOB, sub_worker("ada")):
        assert answer_to(provider, missing) == NOT_THERE
    state.remove_grant("boss", ADA, now=2, workspace="w")
    assert subjects(provider) == []
    assert answer_to(provider, ADA) == NOT_THERE
    state.add_grant("boss", ADA, now=3, workspace="w")
    assert subjects(provider) == [ADA]
    del peers.workers["w", "ada"]
    assert subjects(provider) == []
    assert answer_to(provider, ADA) == NOT_THERE


def test_a_grant_with_which_the_observer_was_not_bound_opens_nothing(state: State) -> None:
    peers = Peers()
    peers.put("bob", Talker("hi", "there"))
    state.add_grant("boss", BOB, now=1, workspace="w")
    assert answer_to(peers_of(peers, state, ADA), BOB) == NOT_THERE


def test_a_grant_revoked_while_the_capture_is_made_counts_no_more(state: State) -> None:
    class Slow(Talker):
        def capture(self):
            state.remove_grant("boss", ADA, now=2, workspace="w")
            return super().capture()

    peers = Peers()
    peers.put("ada", Slow("hi", "there"))
    state.add_grant("boss", ADA, now=1, workspace="w")
    assert answer_to(peers_of(peers, state, ADA), ADA) == NOT_THERE


# ---------------------------------------------------------------- local agent sessions


class Home:
    """The home of an invented user, and what an observer sees of it."""

    def __init__(self, folder: Path, state: State, library: Library | None = None) -> None:
        self.folder = folder
        self.state = state
        self.clock = Clock()
        self.sessions = LocalAgentSessions(
            [folder / ".claude" / "projects"], clock=self.clock, library=library
        )
        self.provider = LocalAgentObservationProvider(self.sessions, observer="boss", grants=state)

    def write(self, session: str, records: list[dict[str, Any]], *, append: bool = True) -> Path:
        path = claude_path(self.folder, session)
        write_lines(path, records, append=append)
        self.clock.now += 1
        os.utime(path, (self.clock.now, self.clock.now))
        return path

    def grant(self, session: str) -> RuntimeWorker:
        subject = local_subject("claude-code", session)
        self.state.add_grant("boss", subject, now=1)
        return subject


@pytest.fixture(params=["in no library", "in a library"])
def home(request: pytest.FixtureRequest, tmp_path: Path, state: State):
    """A home with one session, `s`, of two turns."""
    if request.param == "in no library":
        made = Home(tmp_path, state)
        made.write("s", conversation(2))
        yield made
        return
    with Library.create(tmp_path / "library") as library:
        made = Home(tmp_path, state, library)
        made.write("s", conversation(2))
        index(library, tmp_path, clock=made.clock)
        yield made


def test_a_local_session_has_an_opaque_bounded_name(home: Home) -> None:
    [session] = home.sessions.active()
    assert session.subject.runtime_id == "local:claude-code"
    assert session.session == "s"
    assert len(session.subject.worker_id) == 32
    assert session.subject == local_subject("claude-code", "s")


def test_only_granted_local_sessions_are_listed(home: Home) -> None:
    home.write("t", conversation(1))
    assert subjects(home.provider) == []
    subject = home.grant("s")
    [found] = home.provider.list_sessions().subjects
    assert (found.subject, found.relation, found.status) == (subject, "local", "active")
    assert answer_to(home.provider, local_subject("claude-code", "t")) == NOT_THERE
    assert answer_to(home.provider, local_subject("claude-code", "missing")) == NOT_THERE


def test_local_sessions_come_newest_first(home: Home) -> None:
    home.write("t", conversation(1))
    names = [home.grant(session) for session in ("s", "t")]
    assert subjects(home.provider) == list(reversed(names))
    home.write("s", conversation(1, start=50))
    assert subjects(home.provider) == names


def test_a_session_that_is_not_written_any_more_is_not_there(home: Home) -> None:
    subject = home.grant("s")
    assert home.provider.capture(subject).entry_count == 8
    home.clock.now += 10_000
    assert subjects(home.provider) == []
    assert answer_to(home.provider, subject) == NOT_THERE
    home.write("s", conversation(1, start=50))
    assert home.provider.capture(subject).entry_count == 12


def test_a_file_that_vanished_is_not_there(home: Home) -> None:
    subject = home.grant("s")
    home.provider.capture(subject)
    claude_path(home.folder, "s").unlink()
    assert answer_to(home.provider, subject) == NOT_THERE


def test_a_revoked_local_grant_is_gone_at_the_next_call(home: Home) -> None:
    subject = home.grant("s")
    home.provider.capture(subject)
    home.state.remove_grant("boss", subject, now=2)
    assert answer_to(home.provider, subject) == NOT_THERE
    assert subjects(home.provider) == []


def test_a_growing_session_keeps_its_refs_and_shows_new_entries_at_once(home: Home) -> None:
    subject = home.grant("s")
    before = home.provider.capture(subject)
    shown = [(e.ref, before.text(e)) for e in before.entries(0, before.entry_count)]
    for turn in range(30):
        home.write("s", conversation(1, start=100 + 5 * turn))
        capture = home.provider.capture(subject)
        assert capture.entry_count == before.entry_count + 4 * (turn + 1)
        assert capture.generation == before.generation
        last = capture.entry(capture.entry_count - 1)
        assert capture.text(last).decode() == f"The spindle number {100 + 5 * turn} turns freely."
    now = [(e.ref, capture.text(e)) for e in capture.entries(0, len(shown))]
    assert now == shown
    assert before.entry_count == 8


def test_a_capture_writes_nothing_and_costs_the_new_bytes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = home.grant("s")
    home.provider.capture(subject)
    files = {
        path: (path.stat().st_size, path.stat().st_mtime_ns)
        for path in home.folder.rglob("*")
        if path.is_file()
    }
    path = home.write("s", conversation(1, start=100))
    read: list[int] = []
    from sessiondex.indexer.sources.base import SourceFile

    opened = SourceFile.open

    def counting(self: SourceFile, offset: int = 0):
        read.append(offset)
        return opened(self, offset)

    monkeypatch.setattr(SourceFile, "open", counting)
    assert home.provider.capture(subject).entry_count == 12
    old_size = files.pop(path)[0]
    assert [offset for offset in read if offset] == [old_size - 1]
    assert all(
        (found.stat().st_size, found.stat().st_mtime_ns) == stamp for found, stamp in files.items()
    )


def test_an_unterminated_tail_is_not_observed_until_it_is_committed(home: Home) -> None:
    subject = home.grant("s")
    line = json.dumps(claude_user("half said", 99))
    path = claude_path(home.folder, "s")
    for part, entries in ((line, 8), ("\n", 9)):
        with open(path, "a") as file:
            file.write(part)
        home.clock.now += 1
        os.utime(path, (home.clock.now, home.clock.now))
        capture = home.provider.capture(subject)
        assert capture.entry_count == capture.committed_count == entries
    assert capture.entry(8).ref == EntryRef(10)
    home.write("s", [claude_assistant("fully answered", 100)])
    capture = home.provider.capture(subject)
    assert [e.ref.record for e in capture.entries(8, 10)] == [10, 11]


def test_a_rewritten_session_is_another_generation_with_a_shared_prefix(home: Home) -> None:
    subject = home.grant("s")
    home.provider.capture(subject)
    home.write("s", conversation(1, start=100))
    before = home.provider.capture(subject)
    records = conversation(2)
    home.write("s", [*records[:7], claude_user("all different now", 7)], append=False)
    after = home.provider.capture(subject)
    assert after.generation == before.generation + 1
    after.admit(before.token, [EntryRef(2)])
    with pytest.raises(Exception, match="stale"):
        after.admit(before.token, [EntryRef(9)])
    home.write("s", conversation(1, start=200))
    again = home.provider.capture(subject)
    assert again.generation == after.generation
    assert again.entry_count == after.entry_count + 4


def test_a_change_of_what_was_only_shown_live_is_another_generation_too(home: Home) -> None:
    subject = home.grant("s")
    home.provider.capture(subject)
    tail = [claude_user(f"step {n}", 20 + n) for n in range(6)]
    home.write("s", tail)
    before = home.provider.capture(subject)
    records = [*conversation(2), *tail[:3], *(claude_user(f"other {n}", 30 + n) for n in range(9))]
    home.write("s", records, append=False)
    library = home.sessions._library
    if library is not None:
        index(library, home.folder, clock=home.clock)
    after = home.provider.capture(subject)
    assert after.generation == before.generation + 1
    after.admit(before.token, [EntryRef(12)])
    with pytest.raises(Exception, match="stale"):
        after.admit(before.token, [EntryRef(13)])


def test_a_long_tail_is_folded_and_refs_stay(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FOLD_ENTRIES", "REREAD_ENTRIES"):
        monkeypatch.setattr(f"sessiondex.features.live_session.{name}", 10)
    subject = home.grant("s")
    first = home.provider.capture(subject)
    for turn in range(8):
        home.write("s", conversation(1, start=100 + 5 * turn))
        capture = home.provider.capture(subject)
        assert capture.entry_count == 8 + 4 * (turn + 1)
        assert (capture.generation, capture.session) == (first.generation, first.session)
        assert len(capture.tail.entries) <= 10
        capture.admit(first.token, [EntryRef(0), EntryRef(9)])


def test_a_library_that_is_refreshed_meanwhile_changes_no_ref(tmp_path: Path, state: State) -> None:
    with Library.create(tmp_path / "library") as library:
        home = Home(tmp_path, state, library)
        home.write("s", conversation(2))
        index(library, tmp_path, clock=home.clock)
        subject = home.grant("s")
        shown: dict[EntryRef, bytes] = {}
        for turn in range(6):
            home.write("s", conversation(1, start=100 + 5 * turn))
            if turn % 2:
                index(library, tmp_path, clock=home.clock)
            capture = home.provider.capture(subject)
            assert capture.generation == 1
            assert capture.entry_count == 8 + 4 * (turn + 1)
            for entry in capture.entries(0, capture.entry_count):
                assert shown.setdefault(entry.ref, capture.text(entry)) == capture.text(entry)


def test_thoughts_of_a_local_session_are_not_in_its_capture(home: Home) -> None:
    subject = home.grant("s")
    home.write("s", [claude_thinking("a secret thought", 40)])
    capture = home.provider.capture(subject)
    assert all(
        b"secret thought" not in capture.text(entry)
        for entry in capture.entries(0, capture.entry_count)
    )


def test_a_session_that_the_library_forgets_is_observed_on_with_the_same_refs(
    tmp_path: Path, state: State
) -> None:
    from sessiondex.indexer.forget import forget_sessions

    with Library.create(tmp_path / "library") as library:
        home = Home(tmp_path, state, library)
        home.write("s", conversation(2))
        index(library, tmp_path, clock=home.clock)
        subject = home.grant("s")
        before = home.provider.capture(subject)
        forget_sessions(library, ["s"])
        home.write("s", conversation(1, start=50))
        after = home.provider.capture(subject)
        assert after.generation == before.generation
        assert after.entry_count == before.entry_count + 4


def test_records_that_mean_something_else_since_are_another_generation(
    tmp_path: Path, state: State
) -> None:
    folder = tmp_path / "sessions"
    path = folder / "rollout-2026-05-04T00-00-00-0197a000-0000-7000-8000-000000000001.jsonl"
    events = [
        {"timestamp": "2026-05-04T00:00:00Z", "type": kind, "payload": payload}
        for kind, payload in (
            ("session_meta", {"id": "0197a000-0000-7000-8000-000000000001", "cwd": "/w"}),
            ("event_msg", {"type": "user_message", "message": "hello"}),
            ("event_msg", {"type": "agent_message", "message": "hi"}),
            ("event_msg", {"type": "task_complete"}),
        )
    ]
    write_lines(path, events)
    clock = Clock(path.stat().st_mtime)
    sessions = LocalAgentSessions([folder], clock=clock)
    [found] = sessions.active()
    before = sessions.capture(found.subject)
    assert before.entry_count == 2
    message = {"type": "message", "role": "user",
               "content": [{"type": "input_text", "text": "hello"}]}  # fmt: skip
    write_lines(path, [events[0] | {"type": "response_item", "payload": message}], append=True)
    after = sessions.capture(found.subject)
    assert after.generation == before.generation + 1
    assert [after.text(entry) for entry in after.entries(0, 9)] == [b"hello"]
    with pytest.raises(Exception, match="stale"):
        after.admit(before.token, [EntryRef(1)])


def test_a_file_that_cannot_be_read_is_a_failure_that_names_no_path(home: Home) -> None:
    subject = home.grant("s")
    home.sessions.active()
    path = claude_path(home.folder, "s")
    path.unlink()
    path.mkdir()
    os.utime(path, (home.clock.now, home.clock.now))
    with pytest.raises((Failed, NotFound)) as caught:
        home.provider.capture(subject)
    assert str(home.folder) not in str(caught.value)


def test_only_so_many_sessions_are_kept_in_memory(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessiondex.features.local_sessions.KEPT_SESSIONS", 1)
    monkeypatch.setattr("sessiondex.features.local_sessions.KNOWN_FILES", 1)
    home.write("t", conversation(1))
    one, two = home.grant("s"), home.grant("t")
    for _ in range(2):
        assert home.provider.capture(one).entry_count == 8
        assert home.provider.capture(two).entry_count == 4
    assert len(home.sessions._live) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("begin a line"), st.just(0)),
        st.tuples(st.just("rewrite from record"), st.integers(0, 12)),
        st.tuples(st.just("refresh the library"), st.just(0)),
    ),
    min_size=2, max_size=9,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(STEPS, st.booleans())
def test_a_ref_never_changes_its_meaning_within_a_generation(
    steps: list[tuple[str, int]], in_library: bool
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        State.open(None) as state,
        Library.in_memory() as library,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("FOLD_ENTRIES", "REREAD_ENTRIES"):
            patch.setattr(f"sessiondex.features.live_session.{name}", 7)
        home = Home(Path(folder), state, library)
        path = home.write("s", conversation(1))
        if in_library:
            index(library, home.folder, clock=home.clock)
        subject = home.grant("s")
        shown: dict[tuple[int, EntryRef], bytes] = {}
        generation = 0
        for number, (step, count) in enumerate(steps):
            if step == "refresh the library":
                index(library, home.folder, clock=home.clock)
            elif step == "begin a line":
                with open(path, "a") as file:
                    file.write(json.dumps(claude_user(f"half {number}", 900 + number)))
            elif step == "append":
                with open(path, "a") as file:
                    file.write("\n")
                home.write("s", [claude_user(f"{number} {n}", n) for n in range(count)])
            else:
                lines = path.read_bytes().splitlines(keepends=True)[:count]
                path.write_bytes(b"".join(lines))
                home.write("s", [claude_user(f"other {number} {n}", n) for n in range(3)])
            home.clock.now += 1
            os.utime(path, (home.clock.now, home.clock.now))
            found = home.provider.capture(subject)
            truth = Capture.from_path(path).committed()
            assert [(e.ref, found.text(e)) for e in found.entries(0, found.entry_count)] == [
                (e.ref, truth.text(e)) for e in truth.entries(0, truth.entry_count)
            ]
            assert found.record_count == truth.record_count
            assert found.generation >= generation
            generation = found.generation
            for entry in found.entries(0, found.entry_count):
                text = found.text(entry)
                assert shown.setdefault((generation, entry.ref), text) == text


# ---------------------------------------------------------------- the composite


def composite(*members: Member, **options: Any) -> CompositeWorkerObservationProvider:
    return CompositeWorkerObservationProvider(members, **options)


def shop(provider: Any, *granted: Subject) -> Member:
    return Member("shop", provider, serves_runtime("shop"), lambda each: each in granted)


def test_lists_are_merged_newest_first_and_each_subject_stands_once() -> None:
    twice = Given([listed(ADA, seen=5), listed(BOB, seen=9), listed(ADA, seen=5)])
    children = Given([listed(sub_worker("kid"), seen=7)])
    provider = composite(shop(twice, ADA, BOB), Member("kids", children, serves_children))
    assert subjects(provider) == [BOB, sub_worker("kid"), ADA]
    assert provider.list_sessions().unavailable == ()


@pytest.mark.parametrize("fault", [RuntimeError("boom"), Failed("down"), KeyboardInterrupt()])
def test_one_failing_provider_hides_no_other_and_is_named(fault: BaseException) -> None:
    provider = composite(
        Member("broken", Given(fault=fault), serves_children),
        shop(Given([listed(ADA)], {ADA: talk("hi", "there")}), ADA),
    )
    found = provider.list_sessions()
    assert [each.subject for each in found.subjects] == [ADA]
    assert found.unavailable == ("broken",)
    assert provider.capture(ADA).entry_count == 2
    with pytest.raises(Failed, match="'broken' could not be asked") as caught:
        provider.capture(sub_worker("kid"))
    assert "boom" not in str(caught.value)


def test_a_hanging_provider_is_left_behind_at_the_deadline() -> None:
    hanging = Hanging()
    provider = composite(
        Member("hung", hanging, serves_children),
        shop(Given([listed(ADA)], {ADA: talk("hi", "there")}), ADA),
        wait=impatient(hanging),
    )
    found = provider.list_sessions()
    assert ([each.subject for each in found.subjects], found.unavailable) == ([ADA], ("hung",))
    with pytest.raises(Failed, match="'hung' could not be asked"):
        provider.capture(sub_worker("kid"))
    hanging.let_go.set()


def test_a_provider_that_goes_on_hanging_takes_a_bounded_number_of_threads() -> None:
    hanging = Hanging()
    provider = composite(Member("hung", hanging, serves_children), wait=lambda futures: None)
    for _ in range(CALLS_IN_FLIGHT + 5):
        assert provider.list_sessions().unavailable == ("hung",)
    assert hanging.calls <= CALLS_IN_FLIGHT
    hanging.let_go.set()


def test_what_is_not_granted_or_not_its_part_is_dropped_from_a_list() -> None:
    liar = Given([listed(BOB), listed(runtime_worker("forge", "x")), listed(sub_worker("kid")),
                  listed(ADA), "no subject", listed(ADA, name="x" * 5_000),
                  listed(RuntimeWorker.model_construct(kind="runtime_worker", runtime_id="shop",
                                                       worker_id="w" * 900))])  # fmt: skip
    assert subjects(composite(Member("shop", liar, serves_runtime("shop"),
                                     lambda each: each != BOB))) == [ADA]  # fmt: skip


def test_a_provider_is_not_asked_for_what_is_not_granted() -> None:
    liar = Given([], {BOB: talk("stolen", "words")})
    assert answer_to(composite(shop(liar, ADA)), BOB) == NOT_THERE
    assert liar.calls == 0


def test_a_grant_revoked_while_a_provider_is_asked_counts_no_more() -> None:
    granted = [ADA]

    def slow() -> Any:
        granted.clear()
        return talk("hi", "there")

    member = Member("shop", Given([], {ADA: slow}), serves_runtime("shop"),
                    lambda each: each in granted)  # fmt: skip
    assert answer_to(composite(member), ADA) == NOT_THERE


def test_uncommitted_entries_of_a_lying_provider_are_cut_off() -> None:
    liar = Given([], {ADA: with_uncommitted(talk("hi", "there"))})
    assert composite(shop(liar, ADA)).capture(ADA).entry_count == 2


def test_what_is_no_capture_is_a_failure_of_the_provider() -> None:
    with pytest.raises(Failed, match="'shop' could not be asked"):
        composite(shop(Given([], {ADA: "no capture"}), ADA)).capture(ADA)


def test_an_endless_list_is_cut_off_and_named() -> None:
    endless = Given(listed(BOB) for _ in itertools.count())
    found = composite(shop(endless, ADA)).list_sessions()
    assert (list(found.subjects), found.unavailable, found.has_more) == ([], ("shop",), True)


def test_ungranted_subjects_take_no_place_in_a_list() -> None:
    many = [listed(runtime_worker("shop", f"w{n}"), seen=1000 - n) for n in range(500)]
    assert subjects(composite(shop(Given([*many, listed(ADA)]), ADA))) == [ADA]


def test_a_list_holds_at_most_a_hundred_subjects_and_says_when_there_are_more() -> None:
    many = [runtime_worker("shop", f"w{n}") for n in range(150)]
    found = composite(shop(Given([listed(each) for each in many]), *many)).list_sessions()
    assert (len(list(found.subjects)), found.has_more) == (100, True)


def test_missing_and_forbidden_answer_the_same_bytes() -> None:
    provider = composite(shop(Given([], {BOB: talk("x", "y")}), ADA))
    answers = {
        answer_to(provider, each)
        for each in (ADA, BOB, sub_worker("kid"), runtime_worker("local:codex", "q"))
    }
    assert answers == {NOT_THERE}


def test_every_kind_of_subject_has_one_part() -> None:
    parts = (serves_children, serves_local, serves_runtime("shop"), serves_elsewhere("shop"))
    for subject in (sub_worker("k"), runtime_worker("local:codex", "x"), ADA,
                    runtime_worker("forge", "x")):  # fmt: skip
        assert sum(part(subject) for part in parts) == 1
