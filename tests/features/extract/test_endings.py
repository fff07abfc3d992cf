"""How runs end that do not end well, and what the report says: outcome, records, pointer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sessiondex.errors import Failed
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.prompt import extract_prompt
from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.loop.budget import Budgets, Meter
from sessiondex.indexer.capture import Capture
from sessiondex.limits import REPLY_BYTES
from sessiondex.model import Item
from tests.features.extract.scripted import Scripted, Talk, World, calls, finish, read, stage
from tests.features.extract.test_characters import CLAIM, OBEDIENT
from tests.features.extract_runs import ITEMS, Shelf, capture_of

pytestmark = pytest.mark.usefixtures("no_requests")


def assert_given_up(world: World, result: ExtractResult) -> None:
    """The pointer stays, the end is written, and the next run may go on at once."""
    assert world.pointer() is None and not result.report.pointer_moved
    assert result.report.pointer_records == 0
    row = world.ledger.last_run("s1")
    assert row is not None and row.outcome == result.outcome
    assert row.staged_count == len(result.staged)
    lease = world.ledger.lease("s1")
    assert lease is not None and not lease.is_live(world.now)


SEARCH = calls(("SearchEntries", {"query": "release"}))


def test_a_run_past_its_wall_clock_is_incomplete_with_what_it_staged(world: World) -> None:
    def late(talk: Talk) -> Any:
        world.clock.now += 500
        return SEARCH

    result = world.run(capture_of(), [calls(stage(CLAIM, "E0")), late])
    assert (result.outcome, result.reason) == ("incomplete", "deadline")
    assert world.claims() == [CLAIM]
    assert_given_up(world, result)


@pytest.mark.parametrize(
    "budgets", [Budgets(tokens=2_000), Budgets(shown_bytes=REPLY_BYTES.maximum + 4_000)]
)
def test_a_run_that_used_up_its_tokens_or_bytes_is_incomplete(
    world: World, budgets: Budgets
) -> None:
    result = world.run(capture_of(), [calls(stage(CLAIM, "E0")), SEARCH], budgets=budgets)
    assert (result.outcome, result.reason) == ("incomplete", "token_limit")
    assert world.claims() == [CLAIM]
    assert_given_up(world, result)


def test_a_candidate_that_may_be_kept_or_not_makes_the_run_failed(world: World) -> None:
    shelf = Shelf()
    shelf.error, shelf.keeps_before_failing = Failed("the disk is full"), True

    def end(talk: Talk) -> Any:
        assert talk.replies[0]["error"]["class"] == "failed"
        return calls(finish(0, "staging does not work"))

    result = world.run(capture_of(), [calls(stage(CLAIM, "E0")), end], backend=shelf)
    assert result.outcome == "failed" and "may be kept, or not" in result.reason
    assert result.exit_code == 1
    assert_given_up(world, result)


def test_a_candidate_that_was_staged_at_last_leaves_nothing_in_doubt(world: World) -> None:
    shelf = Shelf()
    shelf.error = Failed("the disk is full")

    def again(talk: Talk) -> Any:
        shelf.error = None
        return calls(stage(CLAIM, "E0"))

    result = world.run(
        capture_of(),
        [calls(stage(CLAIM, "E0")), again, calls(finish(1))],
        backend=shelf,
        records_of_run=lambda run_id: list(shelf.records.values()),
    )
    assert result.outcome == "staged" and len(shelf.records) == 1


def test_records_that_are_gone_when_the_run_ends_make_it_failed(world: World) -> None:
    def lose(talk: Talk) -> Any:
        (path,) = world.staging.folder.glob("*.json")
        path.unlink()
        return calls(finish(1))

    result = world.run(capture_of(), [calls(stage(CLAIM, "E0")), lose])
    assert (result.outcome, result.reason) == ("failed", "1 staged records are not there any more")
    assert world.pointer() is None


def test_a_record_that_was_closed_during_the_run_is_not_lost(world: World) -> None:
    def close(talk: Talk) -> Any:
        (record,) = world.staging.waiting().records
        world.staging.close(record.id, "applied", "at once", closed_at="2026-05-28T20:26:40Z")
        return calls(finish(1))

    assert world.run(capture_of(), [calls(stage(CLAIM, "E0")), close]).outcome == "staged"


def test_what_could_not_be_read_makes_the_run_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **named: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("sessiondex.features.session_explore.search_entries", broken)
    result = world.run(capture_of(), [SEARCH, calls(finish(0, "nothing found"))])
    assert (result.outcome, result.reason) == ("failed", "SearchEntries answered internal")
    assert_given_up(world, result)


def test_a_run_that_breaks_itself_is_failed_and_says_why(world: World) -> None:
    world.run(capture_of(), [calls(stage(CLAIM, "E0")), ZeroDivisionError()])

    def unreadable(run_id: str) -> Any:
        raise Failed("the staging folder cannot be used: Permission denied")

    result = world.run(capture_of(), [calls(finish(1))], records_of_run=unreadable)
    assert (result.outcome, result.reason) == ("failed", "the run broke: Failed")
    assert "Permission denied" in result.detail and len(world.faults) == 1
    assert_given_up(world, result)


def test_an_end_that_cannot_be_written_is_told_and_the_lease_expires(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **named: Any) -> Any:
        raise Failed("the state cannot be used: database is locked")

    monkeypatch.setattr(ExtractLedger, "end", broken)
    result = world.run(capture_of(), [ZeroDivisionError()])
    assert result.outcome == "incomplete" and "the end could not be written" in result.detail
    lease = world.ledger.lease("s1")
    assert lease is not None and lease.is_live(world.now) and world.pointer() is None


def test_a_seal_that_fails_for_a_moment_is_mended_by_finishing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, tries = ExtractLedger.seal, []

    def seal(self: ExtractLedger, *arguments: Any, **named: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise Failed("the state cannot be used: database is locked")
        return whole(self, *arguments, **named)

    monkeypatch.setattr(ExtractLedger, "seal", seal)
    capture = capture_of()
    result = world.run(capture, [calls(stage(CLAIM, "E0")), calls(finish(1)), calls(finish(1))])
    assert result.outcome == "staged" and world.pointer() == capture.record_count


# ---------------------------------------------------------------- cancellation


def cancelled_in_turn(world: World, turn: int, *, times: int = 1) -> ExtractResult:
    """A run that is cancelled while the model thinks about its answer number `turn`."""
    made: list[Any] = []

    def cancelling(number: int) -> Any:
        def answer(talk: Talk) -> Any:
            if number == turn:
                for _ in range(times):
                    made[0].cancel()
            said = OBEDIENT[number]
            return said(talk) if callable(said) else said

        return answer

    script = Scripted([cancelling(number) for number in range(3)])
    made.append(world.extraction(capture_of(), script))
    if turn < 0:
        made[0].cancel()
    return made[0].run()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("turn", [-1, 0, 1, 2])
def test_a_run_that_is_cancelled_in_a_turn_is_incomplete_and_gone_on_with(
    world: World, turn: int, times: int
) -> None:
    result = cancelled_in_turn(world, turn, times=times)
    assert (result.outcome, result.reason) == ("incomplete", "cancelled")
    assert world.claims() == ([CLAIM] if turn == 2 else [])
    assert_given_up(world, result)
    again = world.run(capture_of(), OBEDIENT)
    assert again.outcome == "staged" and world.claims() == [CLAIM]
    assert again.report.run_id == result.report.run_id


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_run_that_is_cancelled_at_a_call_is_true_to_what_that_call_did(
    world: World, call: int
) -> None:
    made: list[Any] = []
    seen: list[int] = []

    def progress(meter: Meter, staged: int) -> None:
        seen.append(meter.shown_bytes)
        if len(set(seen)) == call + 1:  # the first number is that of the first message
            made[0].cancel()

    answer = calls(read("E0"), stage(CLAIM, "E0"), read("E2"), finish(1))
    script = Scripted([answer])
    made.append(world.extraction(capture_of(), script, on_progress=progress))
    result = made[0].run()
    if call == 4:  # it was sealed before
        assert result.outcome == "staged" and world.pointer() == len(ITEMS)
    else:
        assert (result.outcome, result.reason) == ("incomplete", "cancelled")
        assert world.claims() == ([CLAIM] if call > 1 else [])
        assert_given_up(world, result)


def test_cancelling_the_task_of_a_run_ends_it_and_is_raised(world: World) -> None:
    made: list[asyncio.Task[Any]] = []

    def cancelling(talk: Talk) -> Any:
        made[0].get_loop().call_soon_threadsafe(made[0].cancel)
        return SEARCH

    extraction = world.extraction(capture_of(), Scripted([calls(stage(CLAIM, "E0")), cancelling]))

    async def run() -> None:
        made.append(asyncio.create_task(extraction.run_async()))
        with pytest.raises(asyncio.CancelledError):
            await made[0]

    asyncio.run(run())
    row = world.ledger.last_run("s1")
    assert row is not None and (row.outcome, row.reason) == ("incomplete", "cancelled")
    assert world.claims() == [CLAIM] and world.pointer() is None


# ---------------------------------------------------------------- the report


def test_the_report_counts_what_was_shown_of_the_users(world: World) -> None:
    items: list[Item] = []
    for n in range(3):
        items += [Item(0, "user", f"wish {n}"), Item(0, "assistant", "ok")]
    result = world.run(capture_of(items), [calls(finish(0, "nothing"))])
    report = result.report.to_json()
    assert (report["user_entries"], report["shown_user_entries"], report["user_share"]) == (3, 3, 1)
    assert report["prompt_digest"] == extract_prompt().digest
    assert report["started"] == "2026-05-28T20:26:40.000Z" and report["seconds"] == 0


def test_refs_of_a_run_that_is_gone_on_with_are_not_called_unseen(world: World) -> None:
    world.run(capture_of(), [calls(read("E0"), stage(CLAIM, "E0")), ZeroDivisionError()])
    other = "The lathe must be oiled on Mondays."
    result = world.run(capture_of(), [calls(stage(other, "E6")), calls(finish(2))])
    assert result.report.unseen_refs == ["E00000006"]


def test_an_entry_whose_text_was_left_out_counts_as_unseen(world: World) -> None:
    compact = ("ReadEntry", {"entry_ref": "E4", "mode": "compact"})
    result = world.run(capture_of(), [calls(compact, stage(CLAIM, "E4")), calls(finish(1))])
    assert result.report.unseen_refs == ["E00000004"]


def test_the_run_may_wait_before_it_begins_without_using_its_wall_clock(world: World) -> None:
    extraction = world.extraction(capture_of(), Scripted([calls(finish(0, "nothing"))]))
    world.clock.now += 10_000
    assert extraction.run().outcome == "no_candidates"


def test_the_model_is_closed_when_the_run_is_over(world: World) -> None:
    script = Scripted([calls(finish(0, "nothing"))])
    closed: list[bool] = []
    kind = type(script.model)

    class Closing(kind):  # type: ignore[misc, valid-type]
        async def __aexit__(self, *exc: object) -> None:
            await asyncio.sleep(0)
            closed.append(True)

    script.model.__class__ = Closing
    assert world.run(capture_of(), script).outcome == "no_candidates" and closed == [True]


def test_a_pointer_that_cannot_be_checked_stays_and_says_why(world: World) -> None:
    def gone() -> Capture:
        raise Failed("its file cannot be read")

    result = world.run(capture_of(), OBEDIENT, current=gone)
    assert result.outcome == "staged" and world.pointer() is None
    assert result.report.pointer_reason == "the session cannot be looked at: failed"
    assert replace(result, outcome="failed").exit_code == 1
