"""The state beside a library: grants, tokens, workers, the orchestrator, the audit."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from sessiondex.errors import Damaged, Failed, InvalidArgument, NotFound
from sessiondex.features.local_host import open_state
from sessiondex.features.state import State
from sessiondex.features.subjects import runtime_worker, sub_worker
from sessiondex.features.tokens import TokenRows
from sessiondex.features.worker_rows import ACTIVE_MS, WorkerRow, WorkerRows

ADA = runtime_worker("shop", "ada")
BOB = runtime_worker("shop", "bob")
SECRET = "s3cret-" + "x" * 20


@pytest.fixture
def state(tmp_path: Path):
    with State.beside(tmp_path) as opened:
        yield opened


def worker(subject, *, workspace="w", seen=1_000_000, status="idle") -> WorkerRow:
    return WorkerRow(workspace, subject, f"session of {subject.worker_id}", status, seen, "a lathe")


# ---------------------------------------------------------------- the file


def test_the_state_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    with State.beside(tmp_path) as state:
        state.add_grant("boss", ADA, now=1)
        for path in tmp_path.glob("state.sqlite3*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (tmp_path / "state.sqlite3-wal").exists()


def test_a_file_of_another_kind_is_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite3").write_bytes(b"no database at all, only words" * 100)
    with pytest.raises(Damaged, match="damaged"):
        State.beside(tmp_path)


@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_state_that_cannot_be_written_can_be_read(tmp_path: Path, is_in_use: bool) -> None:
    path = tmp_path / "state.sqlite3"
    with State.open(path) as state:
        state.add_grant("boss", ADA, now=1)
        if is_in_use:
            with State.open_read_only(path) as opened:
                assert opened.is_granted("boss", ADA)
    with State.open_read_only(path) as opened:
        assert opened.is_granted("boss", ADA)
        with pytest.raises(Failed, match="readonly"):
            opened.add_grant("boss", BOB, now=2)


def test_a_command_that_only_reads_opens_a_state_that_it_may_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with State.beside(tmp_path) as state:
        state.add_grant("boss", ADA, now=1)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with open_state(tmp_path, is_read=True) as opened:
        assert opened.is_granted("boss", ADA)
        with pytest.raises(Failed, match="readonly"):
            opened.add_grant("boss", BOB, now=2)


def test_a_file_of_another_kind_is_damaged_also_where_it_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    path.write_bytes(b"no database at all, only words" * 100)
    with pytest.raises(Damaged, match="damaged"):
        State.open_read_only(path)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_nothing_is_read_from_or_written_to_a_file_that_was_taken_away(
    tmp_path: Path, is_made_again: bool
) -> None:
    with State.beside(tmp_path) as state:
        state.add_grant("boss", ADA, now=1)
        (tmp_path / "state.sqlite3").rename(tmp_path / "elsewhere.sqlite3")
        if is_made_again:
            with State.beside(tmp_path) as other:
                assert not other.is_granted("boss", ADA)
        with pytest.raises(Failed, match="moved or deleted"):
            state.is_granted("boss", ADA)
        with pytest.raises(Failed, match="moved or deleted"):
            state.add_grant("boss", BOB, now=2)


def test_a_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot be opened"):
        State.beside(tmp_path / "nowhere")


def test_a_state_in_memory_needs_no_file() -> None:
    with State.open(None) as state:
        state.add_grant("boss", ADA, now=1)
        assert state.is_granted("boss", ADA)


# ---------------------------------------------------------------- grants


def test_a_grant_holds_for_its_observer_and_subject_only(state: State) -> None:
    grant = state.add_grant("boss", ADA, now=5)
    assert (grant.observer, grant.subject, grant.verb, grant.created, grant.revoked) == (
        "boss", ADA, "observe", 5, None,
    )  # fmt: skip
    assert state.is_granted("boss", ADA)
    assert not state.is_granted("boss", BOB)
    assert not state.is_granted("clerk", ADA)
    assert not state.is_granted("boss", ADA, workspace="elsewhere")


def test_a_revoked_grant_is_gone_at_the_next_call_of_another_connection(tmp_path: Path) -> None:
    with State.beside(tmp_path) as one, State.beside(tmp_path) as other:
        one.add_grant("boss", ADA, now=1)
        assert other.is_granted("boss", ADA)
        other.remove_grant("boss", ADA, now=2)
        assert not one.is_granted("boss", ADA)
        assert one.granted_subjects("boss") == []


def test_a_revoked_grant_is_remembered_and_can_be_given_again(state: State) -> None:
    state.add_grant("boss", ADA, now=1)
    state.remove_grant("boss", ADA, now=2)
    state.add_grant("boss", ADA, now=3)
    assert [grant.created for grant in state.grants()] == [3]
    history = state.grants(include_revoked=True)
    assert [(grant.created, grant.revoked) for grant in history] == [(3, None), (1, 2)]


def test_granting_twice_keeps_one_grant(state: State) -> None:
    state.add_grant("boss", ADA, now=1)
    assert state.add_grant("boss", ADA, now=2).created == 1
    assert len(state.grants(include_revoked=True)) == 1


def test_granted_subjects_come_newest_first_and_of_both_kinds(state: State) -> None:
    state.add_grant("boss", ADA, now=1)
    state.add_grant("boss", sub_worker("apprentice"), now=2)
    assert state.granted_subjects("boss") == [sub_worker("apprentice"), ADA]


def test_revoking_what_was_never_granted_is_not_found(state: State) -> None:
    with pytest.raises(NotFound, match="no such grant"):
        state.remove_grant("boss", ADA, now=1)


@pytest.mark.parametrize("observer", ["", "  ", "x" * 201, "two\nlines"])
def test_an_observer_has_a_printable_name(state: State, observer: str) -> None:
    with pytest.raises(InvalidArgument, match="malformed observer"):
        state.add_grant(observer, ADA, now=1)


def test_many_threads_grant_and_revoke_without_losing_one(state: State) -> None:
    subjects = [runtime_worker("shop", f"w{n}") for n in range(24)]
    start = threading.Barrier(4)

    def work(part: int) -> None:
        start.wait()
        for subject in subjects[part::4]:
            state.add_grant("boss", subject, now=1)
            state.add_grant("clerk", subject, now=1)
            state.remove_grant("clerk", subject, now=2)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(state.granted_subjects("boss")) == set(subjects)
    assert state.granted_subjects("clerk") == []


# ---------------------------------------------------------------- tokens


def test_a_token_names_its_bearer_until_it_is_revoked(state: State) -> None:
    tokens = TokenRows(state)
    tokens.add(SECRET, name="boss", role="user", workspace="w", now=1)
    found = tokens.find(SECRET)
    assert found is not None
    assert (found.workspace, found.name, found.role) == ("w", "boss", "user")
    tokens.revoke("boss", workspace="w", now=2)
    assert tokens.find(SECRET) is None
    assert [token.revoked for token in tokens.all(include_revoked=True)] == [2]
    assert tokens.all() == []


def test_a_token_itself_is_nowhere_in_the_file(tmp_path: Path) -> None:
    with State.beside(tmp_path) as state:
        TokenRows(state).add(SECRET, name="boss", role="runtime", workspace="w", now=1)
    for path in tmp_path.iterdir():
        assert SECRET.encode() not in path.read_bytes()


def test_a_name_has_one_token_in_force_in_a_workspace(state: State) -> None:
    tokens = TokenRows(state)
    tokens.add(SECRET, name="boss", role="user", workspace="w", now=1)
    with pytest.raises(InvalidArgument, match="has a token"):
        tokens.add(SECRET + "2", name="boss", role="user", workspace="w", now=2)
    tokens.add(SECRET + "3", name="boss", role="user", workspace="other", now=2)
    assert [token.workspace for token in tokens.all(workspace="other")] == ["other"]


def test_an_unknown_token_and_role_are_refused(state: State) -> None:
    tokens = TokenRows(state)
    assert tokens.find("never made") is None
    with pytest.raises(InvalidArgument, match="unknown role"):
        tokens.add(SECRET, name="x", role="root", workspace="w", now=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="too short"):
        tokens.add("short", name="x", role="user", workspace="w", now=1)
    with pytest.raises(NotFound, match="no such token"):
        tokens.revoke("x", workspace="w", now=1)


# ---------------------------------------------------------------- workers


def test_an_observer_sees_granted_workers_and_the_orchestrator_all(state: State) -> None:
    workers = WorkerRows(state)
    workers.put(worker(ADA, seen=1_000_001))
    workers.put(worker(BOB, seen=1_000_002))
    state.add_grant("clerk", ADA, now=1, workspace="w")
    now = 1_000_010
    assert [row.subject for row in workers.observable("w", "clerk", now=now)] == [ADA]
    assert workers.observable("w", "boss", now=now) == []
    workers.set_orchestrator("w", "boss")
    assert [row.subject for row in workers.observable("w", "boss", now=now)] == [BOB, ADA]


def test_a_change_of_orchestrator_holds_at_the_next_call(state: State) -> None:
    workers = WorkerRows(state)
    workers.put(worker(ADA))
    workers.set_orchestrator("w", "boss")
    assert workers.observable_one("w", "boss", ADA, now=1_000_000).subject == ADA
    workers.set_orchestrator("w", "heir")
    assert workers.orchestrator("w") == "heir"
    with pytest.raises(NotFound):
        workers.observable_one("w", "boss", ADA, now=1_000_000)
    workers.set_orchestrator("w", None)
    assert workers.orchestrator("w") is None


def test_missing_forbidden_stopped_and_silent_workers_answer_alike(state: State) -> None:
    workers = WorkerRows(state)
    stopped = runtime_worker("shop", "stopped")
    silent = runtime_worker("shop", "silent")
    foreign = runtime_worker("shop", "foreign")
    workers.put(worker(ADA))
    workers.put(worker(stopped, status="stopped"))
    workers.put(worker(silent, seen=1_000_000 - ACTIVE_MS))
    workers.put(worker(foreign, workspace="other"))
    for subject in (stopped, silent, foreign, runtime_worker("shop", "missing")):
        state.add_grant("clerk", subject, now=1, workspace="w")
    answers = set()
    for subject in (ADA, stopped, silent, foreign, runtime_worker("shop", "missing")):
        with pytest.raises(NotFound) as caught:
            workers.observable_one("w", "clerk", subject, now=1_000_000)
        answers.add(str(caught.value.to_json()))
    assert len(answers) == 1
    assert workers.observable("w", "clerk", now=1_000_000) == []


def test_a_grant_of_another_workspace_opens_nothing(state: State) -> None:
    workers = WorkerRows(state)
    workers.put(worker(ADA))
    state.add_grant("clerk", ADA, now=1, workspace="other")
    assert workers.observable("w", "clerk", now=1_000_000) == []


def test_ungranted_workers_take_no_place_in_a_bounded_list(state: State) -> None:
    workers = WorkerRows(state)
    for n in range(20):
        workers.put(worker(runtime_worker("shop", f"w{n}"), seen=2_000_000 + n))
    workers.put(worker(ADA))
    state.add_grant("clerk", ADA, now=1, workspace="w")
    found = workers.observable("w", "clerk", now=1_000_100, limit=1)
    assert [row.subject for row in found] == [ADA]


def test_a_failed_worker_stays_observable_and_a_removed_one_does_not(state: State) -> None:
    workers = WorkerRows(state)
    workers.put(worker(ADA, status="failed"))
    state.add_grant("clerk", ADA, now=1, workspace="w")
    assert workers.observable("w", "clerk", now=1_000_000)[0].status == "failed"
    workers.remove("w", ADA)
    assert workers.observable("w", "clerk", now=1_000_000) == []


def test_a_worker_with_an_unknown_status_is_refused(state: State) -> None:
    with pytest.raises(InvalidArgument, match="unknown status 'resting'"):
        WorkerRows(state).put(worker(ADA, status="resting"))


# ---------------------------------------------------------------- audit


def test_the_audit_can_only_be_appended_to(tmp_path: Path) -> None:
    with State.beside(tmp_path) as state:
        state.audit("grant", actor="cli", outcome="done", now=7, subject=ADA)
        state.audit("capture", actor="boss", outcome="not_found", now=8)
        assert [(row.time, row.action, row.outcome) for row in state.audit_rows()] == [
            (8, "capture", "not_found"), (7, "grant", "done"),
        ]  # fmt: skip
    db = sqlite3.connect(tmp_path / "state.sqlite3")
    for statement in ("DELETE FROM audit", "UPDATE audit SET outcome=''"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


def test_a_state_that_was_closed_is_a_failure_not_damage(tmp_path: Path) -> None:
    state = State.beside(tmp_path)
    state.close()
    with pytest.raises(Failed, match="cannot be used"):
        state.is_granted("boss", ADA)
