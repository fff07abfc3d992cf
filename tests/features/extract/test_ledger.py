"""The extract ledger: pointer, lease, claims, ends, decisions; who may do what, and when."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex import Library, forget_sessions
from sessiondex.errors import Busy, InvalidArgument
from sessiondex.features.extract.leases import LostLease
from sessiondex.features.extract.ledger import (
    CANCELLED_BY_REWRITE,
    Begun,
    DecisionRow,
    ExtractLedger,
    Lease,
    Pointer,
)
from sessiondex.features.state import State
from sessiondex.indexer.capture import Capture
from sessiondex.model import Item
from tests.builders import (
    claude_assistant,
    claude_path,
    claude_user,
    conversation,
    index,
    write_lines,
)

LEASE_MS = 60_000
SECRET = "the lathe is oiled on mondays"


def items(count: int, *, word: str = "spindle") -> list[Item]:
    return [Item(0, "user", f"{word} {n}: {SECRET}") for n in range(count)]


def capture_of(count: int, *, word: str = "spindle") -> Capture:
    return Capture.from_items(items(count, word=word), session_id="s")


def digest(claim: str) -> str:
    return hashlib.sha256(claim.encode()).hexdigest()


@pytest.fixture
def state(tmp_path: Path):
    with State.beside(tmp_path) as opened:
        yield opened


@pytest.fixture
def ledger(state: State) -> ExtractLedger:
    return ExtractLedger(state)


def begin(ledger: ExtractLedger, capture: Capture, run: str = "r1", **more: Any) -> Begun:
    given: dict[str, Any] = {
        "first": 0, "last": capture.record_count - 1, "run_id": run, "holder": f"holder of {run}",
        "now": 1_000, "lease_ms": LEASE_MS,
    }  # fmt: skip
    return ledger.begin(capture, **given | more)


def seal(
    ledger: ExtractLedger, lease: Lease, current: Capture, *, now: int = 2_000, **more: Any
) -> Any:
    found = ledger.next_pointer(lease, current, now=now)
    given: dict[str, Any] = {
        "outcome": "no_candidates", "staged_count": 0, "pointer": found.pointer,
        "pointer_reason": found.reason, "now": now,
    }  # fmt: skip
    return ledger.seal(lease, **given | more)


def extracted(ledger: ExtractLedger, capture: Capture, run: str = "r1", **more: Any) -> None:
    seal(ledger, begin(ledger, capture, run, **more).lease, capture)


def audited(state: State) -> list[tuple[str, str, str]]:
    rows = reversed(state.audit_rows(limit=1000))
    return [(row.action, row.actor, row.outcome) for row in rows]


# ---------------------------------------------------------------- taking a lease


def test_a_run_takes_the_lease_of_its_session(ledger: ExtractLedger) -> None:
    capture = capture_of(6)
    begun = begin(ledger, capture, first=2, last=4)
    assert begun == Begun(
        Lease("s", "r1", "holder of r1", 1, capture.token, 2, 4, 0, 1_000, 61_000), False, {}
    )
    assert ledger.lease("s") == begun.lease
    assert ledger.pointer("s") is None
    assert ledger.last_run("s") is None


def test_a_second_run_is_told_who_works_and_until_when(ledger: ExtractLedger) -> None:
    begin(ledger, capture_of(3), now=0)
    with pytest.raises(Busy) as caught:
        begin(ledger, capture_of(3), "r2", now=LEASE_MS - 1)
    assert caught.value.message == (
        "another run extracts from session 's': run 'r1' of holder of r1"
    )
    assert caught.value.hint == "its lease expires at 1970-01-01T00:01:00+00:00"
    assert not isinstance(caught.value, LostLease)


def test_runs_on_two_sessions_do_not_exclude_each_other(ledger: ExtractLedger) -> None:
    begin(ledger, capture_of(3))
    other = Capture.from_items(items(3), session_id="other")
    assert begin(ledger, other, "r2").lease.fence == 1


def _race(folder: str, name: str, start: Any, results: Any) -> None:
    with State.beside(Path(folder)) as state:
        ledger = ExtractLedger(state)
        capture = capture_of(3)
        start.wait()
        try:
            lease = begin(ledger, capture, name).lease
            results.put((name, "works", lease.fence))
        except Busy as error:
            results.put((name, "is told", error.message))


def test_of_two_processes_one_works_and_the_other_is_told(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    racers = [
        context.Process(target=_race, args=(str(tmp_path), name, start, results))
        for name in ("r1", "r2")
    ]
    for racer in racers:
        racer.start()
    found = sorted((results.get(timeout=60) for _ in racers), key=lambda each: each[1])
    for racer in racers:
        racer.join(60)
    (_, _, said), (winner, _, fence) = found
    assert [each[1] for each in found] == ["is told", "works"]
    assert fence == 1
    assert f"run {winner!r} of holder of {winner}" in said


def test_of_many_threads_one_adopts_an_expired_run(tmp_path: Path) -> None:
    with State.beside(tmp_path) as state:
        begin(ExtractLedger(state), capture_of(3), now=0)
    start, results = threading.Barrier(6), []

    def work(number: int) -> None:
        with State.beside(tmp_path) as own:
            start.wait()
            try:
                begun = begin(ExtractLedger(own), capture_of(3), f"n{number}", now=LEASE_MS)
                results.append((begun.is_adopted, begun.lease.run_id, begun.lease.fence))
            except Busy:
                results.append("told")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=str) == [(True, "r1", 2), *["told"] * 5]


def test_a_run_can_go_on_where_extraction_came_to(ledger: ExtractLedger) -> None:
    begun = begin(ledger, capture_of(6), first=None, last=3)
    assert (begun.lease.first, begun.lease.last) == (0, 3)
    seal(ledger, begun.lease, capture_of(6))
    assert begin(ledger, capture_of(6), "r2", first=None).lease.first == 4


def test_a_run_that_goes_on_begins_after_what_another_one_extracted_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with State.beside(tmp_path) as state, State.beside(tmp_path) as other:
        ledger, rival = ExtractLedger(state), ExtractLedger(other)
        transaction = state.transaction

        def overtaken(last: int, run: str) -> Any:
            monkeypatch.setattr(state, "transaction", transaction)
            extracted(rival, capture_of(6), run, first=None, last=last)
            return transaction()

        monkeypatch.setattr(state, "transaction", lambda: overtaken(2, "rival"))
        late = begin(ledger, capture_of(6), "late", first=None).lease
        assert (late.first, late.last, late.done) == (3, 5, 3)
        ledger.end(late, outcome="incomplete", reason="deadline", staged_count=0, now=1_000)
        monkeypatch.setattr(state, "transaction", lambda: overtaken(5, "rival-2"))
        with pytest.raises(InvalidArgument, match="nothing was added"):
            begin(ledger, capture_of(6), "later", first=None)
        assert ledger.lease("s") is None
        assert [run.run_id for run in ledger.runs()] == ["late", "late", "rival"]


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (0, 3), (2, 1)])
def test_a_range_outside_the_capture_is_refused(
    ledger: ExtractLedger, first: int, last: int
) -> None:
    with pytest.raises(InvalidArgument, match="no range of the capture"):
        begin(ledger, capture_of(3), first=first, last=last)
    with pytest.raises(InvalidArgument, match="no range of the capture"):
        begin(ledger, Capture.from_items([], session_id="empty"), first=0, last=0)


def test_a_capture_with_an_uncommitted_entry_is_refused(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    path = write_lines(claude_path(tmp_path, "one"), conversation(1))
    with path.open("a") as file:
        file.write(json.dumps(claude_user("not yet", 9)))
    capture = Capture.from_path(path)
    with pytest.raises(InvalidArgument, match="not committed"):
        begin(ledger, capture)
    assert begin(ledger, capture.committed()).lease.last == 4


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 201])
def test_runs_and_holders_have_printable_names(ledger: ExtractLedger, name: str) -> None:
    with pytest.raises(InvalidArgument, match="malformed run id"):
        begin(ledger, capture_of(3), name)
    with pytest.raises(InvalidArgument, match="malformed holder"):
        begin(ledger, capture_of(3), holder=name)


def test_a_run_id_is_used_once(ledger: ExtractLedger) -> None:
    extracted(ledger, capture_of(3))
    with pytest.raises(InvalidArgument, match="run id 'r1' was used before"):
        begin(ledger, capture_of(3))
    begin(ledger, capture_of(3), "r2")
    with pytest.raises(InvalidArgument, match="'r2' was used before"):
        begin(ledger, Capture.from_items(items(2), session_id="other"), "r2")


# ---------------------------------------------------------------- adopting


def test_an_expired_lease_is_adopted_with_its_id_and_its_claims(ledger: ExtractLedger) -> None:
    first = begin(ledger, capture_of(3)).lease
    ledger.reserve(first, digest("a"), "record-a", now=1_500, lease_ms=LEASE_MS)
    with pytest.raises(Busy):
        begin(ledger, capture_of(3), "r2", now=61_499)
    begun = begin(ledger, capture_of(3), "r2", now=61_500)
    assert (begun.is_adopted, begun.claims) == (True, {digest("a"): "record-a"})
    assert begun.lease == first._replace(holder="holder of r2", fence=2, expires=121_500)


def test_a_run_whose_lease_was_adopted_can_do_nothing_more(ledger: ExtractLedger) -> None:
    zombie = begin(ledger, capture_of(3)).lease
    heir = begin(ledger, capture_of(3), "r2", now=100_000).lease
    before = ledger.lease("s")
    for act in (
        lambda: ledger.renew(zombie, now=100_001, lease_ms=LEASE_MS),
        lambda: ledger.reserve(zombie, digest("a"), "x", now=100_001, lease_ms=LEASE_MS),
        lambda: seal(ledger, zombie, capture_of(3)),
        lambda: ledger.end(
            zombie, outcome="failed", reason="", staged_count=0, now=100_001
        ),
    ):  # fmt: skip
        with pytest.raises(LostLease, match="no longer holds the lease of session 's'"):
            act()
    assert ledger.lease("s") == before
    assert (ledger.claims("r1"), ledger.runs(), ledger.pointer("s")) == ({}, [], None)
    seal(ledger, heir, capture_of(3))
    with pytest.raises(LostLease):
        seal(ledger, heir, capture_of(3))
    assert [row.fence for row in ledger.runs()] == [2]


def test_the_same_holder_that_came_back_is_no_zombie_of_itself(ledger: ExtractLedger) -> None:
    zombie = begin(ledger, capture_of(3), holder="cron").lease
    again = begin(ledger, capture_of(3), "r2", holder="cron", now=100_000).lease
    assert (again.run_id, again.holder) == (zombie.run_id, zombie.holder)
    with pytest.raises(LostLease):
        ledger.renew(zombie, now=100_001, lease_ms=LEASE_MS)


def test_an_expired_lease_that_nobody_took_is_still_the_runs(ledger: ExtractLedger) -> None:
    lease = begin(ledger, capture_of(3)).lease
    renewed = ledger.renew(lease, now=500_000, lease_ms=LEASE_MS)
    assert renewed == lease._replace(expires=560_000)
    with pytest.raises(Busy):
        begin(ledger, capture_of(3), "r2", now=559_999)
    assert seal(ledger, lease, capture_of(3), now=900_000).outcome == "no_candidates"


@pytest.mark.parametrize(
    ("old", "asked", "covered"),
    [
        ((2, 5), (2, 5), (2, 5)),
        ((2, 5), (2, 9), (2, 9)),
        ((2, 5), (0, 3), (0, 5)),
        ((2, 5), (3, 4), (2, 5)),
        ((2, 5), (6, 9), (2, 9)),
        ((4, 5), (0, 3), (0, 5)),
        ((2, 5), (7, 9), (2, 5)),
        ((5, 6), (0, 3), (5, 6)),
    ],
)
def test_an_adopted_run_covers_both_ranges_unless_a_gap_lies_between(
    ledger: ExtractLedger, old: tuple[int, int], asked: tuple[int, int], covered: tuple[int, int]
) -> None:
    begin(ledger, capture_of(10), first=old[0], last=old[1])
    begun = begin(ledger, capture_of(10), "r2", first=asked[0], last=asked[1], now=100_000)
    assert begun.is_adopted
    assert (begun.lease.first, begun.lease.last) == covered


def test_a_run_on_a_session_that_grew_is_adopted_and_covers_the_growth(
    ledger: ExtractLedger,
) -> None:
    begin(ledger, capture_of(3))
    begun = begin(ledger, capture_of(8), "r2", now=100_000)
    assert begun.is_adopted
    assert begun.lease.token == capture_of(8).token
    assert (begun.lease.run_id, begun.lease.first, begun.lease.last) == ("r1", 0, 7)


def test_a_run_whose_session_was_rewritten_is_closed_and_a_new_one_begins(
    ledger: ExtractLedger, state: State
) -> None:
    lease = begin(ledger, capture_of(3)).lease
    ledger.reserve(lease, digest("a"), "record-a", now=1_500, lease_ms=LEASE_MS)
    begun = begin(ledger, capture_of(5, word="gear"), "r2", now=100_000)
    assert (begun.is_adopted, begun.claims) == (False, {})
    assert (begun.lease.run_id, begun.lease.fence, begun.lease.last) == ("r2", 2, 4)
    closed = ledger.last_run("s")
    assert closed is not None
    assert (closed.run_id, closed.outcome, closed.reason, closed.detail) == (
        "r1", "incomplete", "cancelled", CANCELLED_BY_REWRITE,
    )  # fmt: skip
    assert closed.staged_count == 1
    assert ledger.claims("r1") == {digest("a"): "record-a"}
    with pytest.raises(LostLease):
        ledger.renew(lease, now=100_001, lease_ms=LEASE_MS)
    assert [action for action, _, _ in audited(state)] == [
        "extract.begin", "extract.end", "extract.begin",
    ]  # fmt: skip


def test_a_live_run_is_left_alone_though_its_session_was_rewritten(ledger: ExtractLedger) -> None:
    begin(ledger, capture_of(3))
    with pytest.raises(Busy):
        begin(ledger, capture_of(3, word="gear"), "r2")


def test_a_process_that_was_killed_leaves_a_lease_that_expires_and_is_adopted(
    tmp_path: Path,
) -> None:
    with State.beside(tmp_path) as killed:
        ledger = ExtractLedger(killed)
        lease = begin(ledger, capture_of(3)).lease
        ledger.reserve(lease, digest("a"), "record-a", now=1_000, lease_ms=LEASE_MS)
    with State.beside(tmp_path) as state:
        ledger = ExtractLedger(state)
        with pytest.raises(Busy):
            begin(ledger, capture_of(3), "r2", now=60_999)
        begun = begin(ledger, capture_of(3), "r2", now=61_000)
        assert begun.claims == {digest("a"): "record-a"}
        keep = {"now": 61_001, "lease_ms": LEASE_MS}
        assert ledger.reserve(begun.lease, digest("a"), "record-b", **keep) == "record-a"
        seal(ledger, begun.lease, capture_of(3), outcome="staged", staged_count=1)
    with State.beside(tmp_path) as state:
        assert ExtractLedger(state).done_records(capture_of(3)) == (3, "pointer")
        assert not begin(ExtractLedger(state), capture_of(3), "r3").is_adopted


@pytest.mark.parametrize("round", range(8))
def test_a_run_is_either_sealed_or_adopted_however_close_they_meet(
    tmp_path: Path, round: int
) -> None:
    with State.beside(tmp_path) as state:
        lease = begin(ExtractLedger(state), capture_of(3), now=0).lease
    start = threading.Barrier(2)
    found: dict[str, bool] = {}

    def seal_it() -> None:
        with State.beside(tmp_path) as own:
            start.wait()
            try:
                seal(ExtractLedger(own), lease, capture_of(3), now=LEASE_MS)
                found["sealed"] = True
            except LostLease:
                found["sealed"] = False

    def adopt_it() -> None:
        with State.beside(tmp_path) as own:
            start.wait()
            found["adopted"] = begin(
                ExtractLedger(own), capture_of(3), "r2", now=LEASE_MS
            ).is_adopted

    threads = [threading.Thread(target=each) for each in (seal_it, adopt_it)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["sealed"] is not found["adopted"]


# ---------------------------------------------------------------- claims


def test_a_claim_has_one_record_however_often_it_is_reserved(ledger: ExtractLedger) -> None:
    lease = begin(ledger, capture_of(3)).lease
    keep = {"now": 2_000, "lease_ms": LEASE_MS}
    assert ledger.reserve(lease, digest("a"), "record-1", **keep) == "record-1"
    assert ledger.reserve(lease, digest("b"), "record-2", **keep) == "record-2"
    assert ledger.reserve(lease, digest("a"), "record-3", **keep) == "record-1"
    assert ledger.claims("r1") == {digest("a"): "record-1", digest("b"): "record-2"}


def test_reserving_renews_the_lease(ledger: ExtractLedger) -> None:
    lease = begin(ledger, capture_of(3)).lease
    ledger.reserve(lease, digest("a"), "record-1", now=50_000, lease_ms=LEASE_MS)
    assert ledger.lease("s") == lease._replace(expires=110_000)


def test_a_claim_itself_is_never_kept(ledger: ExtractLedger) -> None:
    lease = begin(ledger, capture_of(3)).lease
    for text in (SECRET, "", digest("a").upper(), digest("a")[:-1]):
        with pytest.raises(InvalidArgument, match="malformed claim digest"):
            ledger.reserve(lease, text, "record-1", now=2_000, lease_ms=LEASE_MS)


# ---------------------------------------------------------------- sealing and ending


def test_sealing_writes_the_end_moves_the_pointer_and_frees_the_session(
    ledger: ExtractLedger, state: State
) -> None:
    capture = capture_of(6)
    lease = begin(ledger, capture, last=3).lease
    ledger.reserve(lease, digest("a"), "record-1", now=1_500, lease_ms=LEASE_MS)
    row = seal(
        ledger, lease, capture, outcome="staged", staged_count=1,
        facts={"turns": 3, "model": "openai-chat:m", "share": 0.5, "seen": True, "none": None},
    )  # fmt: skip
    assert row == ledger.last_run("s") == ledger.runs()[0]
    assert (row.outcome, row.reason, row.staged_count, row.pointer_records) == ("staged", "", 1, 4)
    assert row.facts == {
        "turns": 3, "model": "openai-chat:m", "share": 0.5, "seen": True, "none": None,
    }  # fmt: skip
    assert ledger.pointer("s") == Pointer("s", capture.token, 1, 4, "r1", 2_000, capture.token, 6)
    assert ledger.lease("s") is None
    assert ledger.done_records(capture) == (4, "pointer")
    assert audited(state) == [
        ("extract.begin", "holder of r1", "run r1"),
        ("extract.end", "holder of r1", "staged, staged 1, run r1"),
        ("extract.pointer", "holder of r1", "0 to 4 records"),
    ]
    assert {row.subject for row in state.audit_rows()} == {'{"kind":"session","session":"s"}'}


def test_fences_grow_over_sealed_runs_too(ledger: ExtractLedger) -> None:
    for number in range(4):
        lease = begin(ledger, capture_of(3), f"r{number}").lease
        assert lease.fence == number + 1
        seal(ledger, lease, capture_of(3))


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("incomplete", "turn_limit"), ("incomplete", "cancelled"), ("failed", "")],
)
def test_a_run_that_gave_up_is_adopted_at_once_and_its_pointer_stays(
    ledger: ExtractLedger, outcome: Any, reason: str
) -> None:
    lease = begin(ledger, capture_of(3)).lease
    ledger.reserve(lease, digest("a"), "record-1", now=1_500, lease_ms=LEASE_MS)
    row = ledger.end(
        lease, outcome=outcome, reason=reason, staged_count=1, now=2_000, detail="the host stopped",
    )  # fmt: skip
    assert (row.outcome, row.reason, row.detail) == (outcome, reason, "the host stopped")
    assert ledger.pointer("s") is None
    with pytest.raises(LostLease):
        ledger.reserve(lease, digest("b"), "record-2", now=2_000, lease_ms=LEASE_MS)
    with pytest.raises(LostLease):
        seal(ledger, lease, capture_of(3))
    begun = begin(ledger, capture_of(3), "r2", now=2_000)
    assert (begun.is_adopted, begun.lease.run_id) == (True, "r1")
    assert begun.claims == {digest("a"): "record-1"}
    assert not begun.lease.has_ended
    assert seal(ledger, begun.lease, capture_of(3), outcome="staged", staged_count=1).run_id == "r1"
    assert [each.outcome for each in ledger.runs()] == ["staged", outcome]


def test_a_run_that_gave_up_keeps_nobody_away_whatever_their_clocks_say(
    ledger: ExtractLedger,
) -> None:
    lease = begin(ledger, capture_of(3)).lease
    ledger.end(lease, outcome="incomplete", reason="provider", staged_count=0, now=2_000)
    given_up = ledger.lease("s")
    assert given_up is not None and given_up.has_ended and not given_up.is_live(1_500)
    with pytest.raises(LostLease):
        ledger.renew(lease, now=2_000, lease_ms=LEASE_MS)
    assert begin(ledger, capture_of(3), "r2", now=1_500).is_adopted


def test_an_end_says_only_what_the_closed_set_has(ledger: ExtractLedger) -> None:
    lease = begin(ledger, capture_of(3)).lease
    outcome: Any
    more: Any
    for outcome, reason in (
        ("incomplete", "tired"), ("incomplete", ""), ("failed", "provider"), ("staged", ""),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            ledger.end(lease, outcome=outcome, reason=reason, staged_count=0, now=1)
    for more in (
        {"reason": SECRET}, {"outcome": "failed"}, {"outcome": "staged"}, {"staged_count": 2},
        {"facts": {"text": "x" * 201}}, {"facts": {"list": [1]}},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            seal(ledger, lease, capture_of(3), **more)
    assert ledger.runs() == []
    assert ledger.lease("s") == lease


def test_a_pointer_of_another_session_or_after_the_run_is_refused(ledger: ExtractLedger) -> None:
    capture = capture_of(6)
    lease = begin(ledger, capture, last=3).lease
    pointer = Pointer("s", capture.token, 1, 4, "r1", 1)
    for wrong, said in (
        (pointer._replace(session="t"), "of another session than the lease"),
        (pointer._replace(records=5), "lies after record 3, the run's last"),
    ):
        with pytest.raises(InvalidArgument, match=f"the pointer (is )?{said}"):
            seal(ledger, lease, capture, pointer=wrong)
    assert ledger.pointer("s") is None


@pytest.mark.parametrize("failing", ["extract.end", "extract.pointer"])
def test_sealing_that_fails_on_the_way_changes_nothing(
    ledger: ExtractLedger, state: State, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    lease = begin(ledger, capture_of(3)).lease
    audit = state.audit

    def breaking(action: str, **more: Any) -> None:
        audit(action, **more)
        if action == failing:
            raise KeyboardInterrupt

    monkeypatch.setattr(state, "audit", breaking)
    with pytest.raises(KeyboardInterrupt):
        seal(ledger, lease, capture_of(3))
    monkeypatch.undo()
    assert (ledger.lease("s"), ledger.pointer("s"), ledger.runs()) == (lease, None, [])
    assert [action for action, _, _ in audited(state)] == ["extract.begin"]
    assert seal(ledger, lease, capture_of(3)).pointer_records == 3


def test_ends_of_runs_can_only_be_appended_to(tmp_path: Path) -> None:
    with State.beside(tmp_path) as state:
        extracted(ExtractLedger(state), capture_of(3))
    db = sqlite3.connect(tmp_path / "state.sqlite3")
    for statement in ("DELETE FROM extract_runs", "UPDATE extract_runs SET outcome='staged'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


# ---------------------------------------------------------------- the pointer


def test_the_pointer_moves_only_if_the_run_begins_at_or_before_it(ledger: ExtractLedger) -> None:
    capture = capture_of(10)
    row = seal(ledger, begin(ledger, capture, first=4).lease, capture)
    assert (row.pointer_records, ledger.pointer("s")) == (None, None)
    assert row.pointer_reason == "records 0 to 3 before the run are not extracted"
    extracted(ledger, capture, "r2", last=3)
    extracted(ledger, capture, "r3", first=4, last=6)
    assert ledger.done_records(capture) == (7, "pointer")
    extracted(ledger, capture, "r4", first=2, last=8)
    assert ledger.done_records(capture) == (9, "pointer")


def test_the_pointer_never_moves_back(ledger: ExtractLedger) -> None:
    capture = capture_of(10)
    extracted(ledger, capture)
    before = ledger.pointer("s")
    row = seal(ledger, begin(ledger, capture, "r2", last=3).lease, capture)
    assert row.pointer_records is None
    assert row.pointer_reason == "10 leading records were extracted before"
    assert ledger.pointer("s") == before


def test_the_pointer_stays_where_the_host_gives_none(ledger: ExtractLedger) -> None:
    row = seal(
        ledger, begin(ledger, capture_of(3)).lease, capture_of(3), pointer=None,
        pointer_reason="a dry run",
    )  # fmt: skip
    assert (row.pointer_records, row.pointer_reason) == (None, "a dry run")
    assert ledger.pointer("s") is None


def test_the_pointer_counts_in_a_capture_that_grew(ledger: ExtractLedger) -> None:
    extracted(ledger, capture_of(4))
    assert ledger.done_records(capture_of(9)) == (4, "pointer")
    lease = begin(ledger, capture_of(9), "r2", first=4).lease
    assert seal(ledger, lease, capture_of(12)).pointer_records == 9


def test_a_session_that_was_rewritten_during_a_run_keeps_its_pointer(
    ledger: ExtractLedger,
) -> None:
    extracted(ledger, capture_of(4))
    before = ledger.pointer("s")
    lease = begin(ledger, capture_of(9), "r2", first=4).lease
    row = seal(ledger, lease, capture_of(9, word="gear"))
    assert (row.outcome, row.pointer_records) == ("no_candidates", None)
    assert row.pointer_reason == "the session is no longer the one that the run read"
    assert ledger.pointer("s") == before


def library_of(tmp_path: Path, name: str = "library") -> Library:
    return Library.create(tmp_path / name)


def test_after_a_rewrite_the_pointer_counts_what_the_generations_share(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", library_of(tmp_path)
    path = write_lines(claude_path(home, "one"), conversation(4))
    index(library, home)
    extracted(ledger, library.capture("one"))
    write_lines(path, [*conversation(2), *conversation(3, start=50, word="gear")])
    index(library, home)
    rewritten = library.capture("one")
    assert rewritten.generation == 2
    assert ledger.done_records(rewritten) == (10, "shared")
    write_lines(path, conversation(1))
    index(library, home)
    assert ledger.done_records(library.capture("one")) == (5, "shared")
    write_lines(path, conversation(4))
    index(library, home)
    grown_again = library.capture("one")
    assert ledger.done_records(grown_again) == (5, "shared")
    extracted(ledger, grown_again, "r2", first=5)
    assert ledger.done_records(grown_again) == (20, "pointer")
    write_lines(path, conversation(3, word="gear"))
    index(library, home)
    assert ledger.done_records(library.capture("one")) == (0, "rewritten")


def test_in_another_library_the_pointer_counts_only_if_the_session_begins_alike(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", library_of(tmp_path)
    path = write_lines(claude_path(home, "one"), conversation(3))
    index(library, home)
    extracted(ledger, library.capture("one"))
    write_lines(path, conversation(2, start=15), append=True)
    other = library_of(tmp_path, "other")
    index(other, home)
    assert ledger.done_records(other.capture("one")) == (15, "pointer")
    forget_sessions(other, ["one"])
    for rewritten in (conversation(5, word="gear"), conversation(1)):
        write_lines(path, rewritten)
        third = library_of(tmp_path, f"third-{len(rewritten)}")
        index(third, home)
        assert third.capture("one").generation == 1
        assert ledger.done_records(third.capture("one")) == (0, "rewritten")


def test_a_pointer_of_a_later_generation_counts_nothing(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", library_of(tmp_path)
    path = write_lines(claude_path(home, "one"), conversation(3, word="gear"))
    index(library, home)
    write_lines(path, conversation(3))
    index(library, home)
    assert library.capture("one").generation == 2
    extracted(ledger, library.capture("one"))
    again = library_of(tmp_path, "again")
    index(again, home)
    capture = again.capture("one")
    assert (capture.generation, ledger.done_records(capture)) == (1, (0, "rewritten"))
    extracted(ledger, capture, "r2", last=6)
    assert ledger.done_records(capture) == (7, "pointer")


def test_a_source_that_vanished_keeps_the_identity_that_the_library_holds(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", library_of(tmp_path)
    path = write_lines(claude_path(home, "one"), conversation(3))
    index(library, home)
    lease = begin(ledger, library.capture("one")).lease
    path.unlink()
    assert seal(ledger, lease, library.capture("one")).pointer_records == 15
    assert ledger.done_records(library.capture("one")) == (15, "pointer")


def test_a_live_tail_that_vanished_leaves_what_the_library_held_extracted(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", library_of(tmp_path)
    path = write_lines(claude_path(home, "one"), conversation(3))
    index(library, home)
    write_lines(path, conversation(2, start=15), append=True)
    live = library.capture("one")
    assert live.record_count == 25
    extracted(ledger, live)
    assert ledger.done_records(live) == (25, "pointer")
    before = path.read_bytes()
    path.unlink()
    stored = library.capture("one")
    assert (stored.record_count, ledger.done_records(stored)) == (15, (15, "stored"))
    path.write_bytes(before)
    index(library, home)
    assert ledger.done_records(library.capture("one")) == (25, "pointer")


def test_a_run_on_a_live_tail_that_vanished_meanwhile_moves_nothing(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", library_of(tmp_path)
    path = write_lines(claude_path(home, "one"), conversation(3))
    index(library, home)
    write_lines(path, conversation(2, start=15), append=True)
    lease = begin(ledger, library.capture("one")).lease
    path.unlink()
    assert seal(ledger, lease, library.capture("one")).pointer_records is None


# ---------------------------------------------------------------- copies


def test_without_a_pointer_a_fork_begins_after_what_it_repeats(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    library = library_of(tmp_path)
    origin = {"forkedFrom": {"sessionId": "one"}}
    path = write_lines(
        claude_path(tmp_path / "home", "two"),
        [
            {"type": "permission-mode", "permissionMode": "default", "sessionId": "two"},
            claude_user("copied", 1, **origin), claude_assistant("copied too", 2, **origin),
            {"type": "ai-title", "aiTitle": "a title", "sessionId": "two"},
            claude_user("my own", 4), claude_assistant("copied late", 5, **origin),
        ],
    )  # fmt: skip
    index(library, tmp_path / "home")
    capture = library.capture("two")
    assert ledger.done_records(capture) == (4, "copied")
    row = seal(ledger, begin(ledger, capture, first=4).lease, capture)
    assert row.pointer_records == 6
    write_lines(path, [claude_user("copied", 1, **origin)])
    assert ledger.done_records(Capture.from_path(path)) == (0, "rewritten")
    only = Capture.from_items([], session_id="none")
    assert ledger.done_records(only) == (0, "new")


def test_a_session_of_copies_alone_has_nothing_to_extract(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    origin = {"forkedFrom": {"sessionId": "one"}}
    records = [claude_user(f"copied {n}", n, **origin) for n in range(600)]
    path = write_lines(claude_path(tmp_path, "two"), records)
    assert ledger.done_records(Capture.from_path(path)) == (600, "copied")
    write_lines(path, [claude_user("own", 600)], append=True)
    assert ledger.done_records(Capture.from_path(path)) == (600, "copied")


def test_a_session_without_copies_begins_at_its_beginning(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    hidden = {"type": "permission-mode", "permissionMode": "default", "sessionId": "two"}
    path = write_lines(claude_path(tmp_path, "two"), [hidden, claude_user("own", 1)])
    assert ledger.done_records(Capture.from_path(path)) == (0, "new")


# ---------------------------------------------------------------- what is known


def test_decisions_are_kept_and_audited_when_their_reason_changes(
    ledger: ExtractLedger, state: State
) -> None:
    row = DecisionRow("s", 10, "below_threshold", 12, 3, 9, 50_000)
    for decided, reason in ((10, "off"), (11, "off"), (12, "due"), (13, "off")):
        ledger.record_decision(row._replace(decided=decided, reason=reason), actor="boss")
    assert ledger.decision("s") == row._replace(decided=13, reason="off")
    assert ledger.decision("t") is None
    assert [(each.time, each.outcome) for each in reversed(state.audit_rows())] == [
        (10, "off"), (12, "due"), (13, "off"),
    ]  # fmt: skip
    assert {(each.actor, each.action) for each in state.audit_rows()} == {
        ("boss", "extract.decision")
    }


def test_every_session_that_was_ever_looked_at_is_known(ledger: ExtractLedger) -> None:
    assert ledger.sessions() == []
    ledger.record_decision(DecisionRow("d", 10, "off", 0, 0, 0, 0))
    begin(ledger, capture_of(3))
    extracted(ledger, Capture.from_items(items(2), session_id="p"), "r2")
    ledger.record_decision(DecisionRow("p", 10, "off", 0, 0, 0, 0))
    assert ledger.sessions() == ["d", "p", "s"]


def test_a_run_leaves_no_word_of_the_session_in_the_state(tmp_path: Path) -> None:
    with State.beside(tmp_path) as state:
        ledger = ExtractLedger(state)
        lease = begin(ledger, capture_of(3)).lease
        ledger.reserve(lease, digest(SECRET), "record-1", now=1_500, lease_ms=LEASE_MS)
        ledger.end(lease, outcome="incomplete", reason="deadline", staged_count=1, now=2_000)
        begun = begin(ledger, capture_of(4), "r2", now=3_000)
        seal(ledger, begun.lease, capture_of(4), outcome="staged", staged_count=1)
        for path in tmp_path.iterdir():
            data = path.read_bytes()
            assert b"lathe" not in data
            assert b"spindle" not in data


# ---------------------------------------------------------------- any order of things


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "reserve", "seal", "end", "wait", "grow", "rewrite", "die"]),
            st.integers(0, 5),
        ),
        max_size=25,
    )
)
def test_whatever_happens_no_claim_has_two_records_and_the_pointer_is_true(
    steps: list[tuple[str, int]],
) -> None:
    """Runs begin, stage, end, die and are adopted while the session grows and is rewritten."""
    with State.open(None) as state:
        ledger = ExtractLedger(state)
        now, count, word = 1_000, 3, "spindle"
        holders: list[Lease] = []
        read: dict[str, tuple[int, str]] = {}
        ids: dict[tuple[str, str], str] = {}
        sealed: list[tuple[int, int, str, str]] = []
        for step, (act, choice) in enumerate(steps):
            capture = capture_of(count, word=word)
            now += 1
            if act == "begin":
                live = ledger.lease("s")
                is_taken = live is not None and live.is_live(now)
                try:
                    first = min(choice, ledger.done_records(capture).records, count - 1)
                    begun = begin(ledger, capture, f"r{step}", first=first, now=now)
                except Busy:
                    assert is_taken
                    continue
                assert not is_taken
                holders.append(begun.lease)
                read[begun.lease.run_id] = (begun.lease.last, word)
            elif act == "reserve" and holders:
                lease = holders[choice % len(holders)]
                claim = digest(str(choice % 3))
                try:
                    found = ledger.reserve(lease, claim, f"id-{step}", now=now, lease_ms=LEASE_MS)
                except LostLease:
                    assert lease is not holders[-1] or ledger.lease("s") is None or (
                        ledger.lease("s").has_ended  # type: ignore[union-attr]
                    )  # fmt: skip
                    continue
                assert ids.setdefault((lease.run_id, claim), found) == found
            elif act in ("seal", "end") and holders:
                lease = holders[choice % len(holders)]
                try:
                    if act == "seal":
                        row = seal(ledger, lease, capture, now=now)
                        if row.pointer_records is not None:
                            assert read[row.run_id][1] == word
                            sealed.append((row.fence, row.pointer_records, row.run_id, word))
                    else:
                        ledger.end(
                            lease, outcome="incomplete", reason="deadline", staged_count=0, now=now
                        )
                except LostLease:
                    continue
                assert lease is holders[-1]
            elif act == "wait":
                now += LEASE_MS
            elif act == "grow":
                count += choice
            elif act == "rewrite":
                count, word = choice + 1, f"{word}x"
        for run in {run for run, _ in ids}:
            claims = ledger.claims(run)
            assert claims == {claim: id for (each, claim), id in ids.items() if each == run}
            assert len(set(claims.values())) == len(claims)
        done = ledger.done_records(capture_of(count, word=word)).records
        same = [records for _, records, _, each in sealed if each == word]
        assert done == min(max(same, default=0), count)
        fences = [row.fence for row in ledger.runs()]
        assert fences == sorted(fences, reverse=True)
