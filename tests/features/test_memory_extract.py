from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import Failed, InvalidArgument
from sessiondex.features.extract_run import EXTRACT_RUN, ExtractRun
from sessiondex.features.memory_extract import (
    FINISH,
    STAGE,
    FinishOutput,
    MemoryExtract,
    StageOutput,
)
from sessiondex.features.registry import Registry
from sessiondex.features.services import CAPTURE, RUN_RANGE, RunRange, Services
from sessiondex.features.staging.ids import RecordIds
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.model import (
    COMPACTION_SUMMARY,
    COPIED,
    SIDECHAIN,
    SYNTHETIC,
    Item,
    Record,
)
from sessiondex.query.verify import verify
from tests.builders import claude_path, claude_user, conversation, index, write_lines
from tests.features.extract_runs import Host, Shelf, capture_of, record_ids
from tests.query.made_sessions import PRIVATE_KEY, RECORDS, SECRET, visible


def refused(reply: dict[str, Any], kind: str = "invalid_argument") -> str:
    """The message and hint of a refusal."""
    assert reply["error"]["class"] == "invalid_argument", reply
    assert reply["error"]["kind"] == kind, reply
    return f"{reply['error']['message']}; {reply['error']['hint']}"


# ---------------------------------------------------------------- the record


def test_a_candidate_becomes_a_flat_record_of_version_2() -> None:
    host = Host(run_range=(0, 5))
    reply = host.stage(
        claim="  Deploy from the release branch. ", staleness="When branches change.",
        entry_refs=["E00000000", "E3", "E4", "E5"],
    )  # fmt: skip

    assert reply == {
        "id": "019e7044-8800-7000-8000-000000000001", "already_staged": False, "staged_count": 1,
        "remaining": 49, "similar": [], "similar_total": 0,
    }  # fmt: skip
    StageOutput.model_validate(reply)
    record = host.shelf.records[reply["id"]].to_json()
    extensions = record.pop("extensions")
    text = "We always deploy   from the release\nbranch, never from main."
    summary = "We always deploy from the release branch, never from main."
    call, result = "Bash\ncommand: git branch", "* release\n  main"
    notice = "the build has finished"
    assert record == {
        "schema_version": 2,
        "id": reply["id"],
        "extract_run_id": "run-1",
        "source": {"segment_id": "s1", "range": [0, 5]},
        "kind": "constraint",
        "claim": "Deploy from the release branch.",
        "why_useful": "Deploys go right.",
        "staleness": "When branches change.",
        "evidence": [
            {"id": "E00000000", "kind": "message", "entry_range": [0, 0], "excerpt": text,
             "summary": summary},
            {"id": "E00000003", "kind": "tool_call", "entry_range": [3, 3], "excerpt": call,
             "summary": "Bash command: git branch"},
            {"id": "E00000004", "kind": "tool_result", "entry_range": [4, 4], "excerpt": result,
             "summary": "* release main"},
            {"id": "E00000005", "kind": "message", "entry_range": [5, 5], "excerpt": notice,
             "summary": notice},
        ],
        "source_refs": [
            {"session_id": "s1", "segment_id": "s1", "entry_range": [number, number],
             "evidence_id": f"E0000000{number}", "evidence_kind": kind, "label": label,
             "summary": shown}
            for number, kind, label, shown in [
                (0, "message", "user message", summary),
                (3, "tool_call", "tool input: Bash", "Bash command: git branch"),
                (4, "tool_result", "tool output: Bash", "* release main"),
                (5, "message", "system: notification", notice),
            ]
        ],
    }  # fmt: skip
    assert extensions["authority"] == "user"
    assert extensions["capture"] == host.capture.token
    assert extensions["evidence"]["E00000000"] == {
        "sha256": hashlib.sha256(text.encode()).hexdigest(), "text_version": 1,
        "excerpt_range": [0, len(text)],
    }  # fmt: skip


def test_optional_fields_are_left_out_when_empty() -> None:
    capture = capture_of([Item(0, "user", "hello there"), Item(0, "tool_result", "", call_id="x")])
    record = Host(capture).record(entry_refs=["E1"])
    assert "staleness" not in record
    assert set(record["evidence"][0]) == {"id", "kind", "entry_range"}
    assert "summary" not in record["source_refs"][0]


def test_a_source_with_segments_names_them() -> None:
    capture = Capture.from_items(
        [Item(0, "user", "hello there")], session_id="s1", segment_id="seg-9"
    )
    record = Host(capture).record()
    assert record["source"]["segment_id"] == "seg-9"
    assert record["source_refs"][0]["segment_id"] == "seg-9"
    assert record["source_refs"][0]["session_id"] == "s1"


def test_refs_are_kept_once_in_the_order_given() -> None:
    record = Host().record(entry_refs=["E6", "E00000000.0", "E6", "E0"])
    assert [each["id"] for each in record["evidence"]] == ["E00000006", "E00000000"]


def test_blocks_of_one_record_are_evidence_of_their_own() -> None:
    items = [
        Item(0, "assistant", "both"),
        Item(1, "tool_call", "Read\npath: a", call_id="r", name="Read"),
    ]
    capture = Capture.from_items([Record(0, 0, 0, 0, b"12345678", items=items, blocks=2)])
    record = Host(capture).record(entry_refs=["E0.1", "E0"])
    assert [(each["id"], each["entry_range"]) for each in record["evidence"]] == [
        ("E00000000.1", [0, 0]), ("E00000000", [0, 0])
    ]  # fmt: skip


def test_excerpts_shrink_before_the_record_passes_its_bound() -> None:
    capture = capture_of([Item(0, "user", f"{n} " + '"\\' * 3_000) for n in range(20)])
    host = Host(capture)
    reply = host.stage(claim="c" * 2_000, why_useful="w" * 2_000,
                       entry_refs=[f"E{n}" for n in range(20)])  # fmt: skip
    record = host.shelf.records[reply["id"]]
    assert 60_000 < len(record.to_bytes()) <= 65_536
    sizes = {len(each.excerpt) for each in record.evidence}
    assert 500 < min(sizes) <= max(sizes) < 2_048


def test_summaries_shrink_when_a_record_without_excerpts_is_still_too_large() -> None:
    capture = capture_of([
        Item(0, "tool_call", f"{n}\n" + "\x01" * 5_000, name="\x02" * 200) for n in range(20)
    ])  # fmt: skip
    host = Host(capture)
    reply = host.stage(claim="日" * 2_000, why_useful="本" * 2_000, staleness="語" * 500,
                       entry_refs=[f"E{n}" for n in range(20)])  # fmt: skip
    record = host.shelf.records[reply["id"]]
    assert len(record.to_bytes()) <= 65_536
    assert not any(each.excerpt for each in record.evidence)


def test_secrets_are_masked_in_everything_that_is_staged() -> None:
    capture = capture_of([
        Item(0, "user", f"use {SECRET} for it"),
        Item(0, "tool_call", f"Bash\n{SECRET}", name=f"Bash {SECRET}"),
    ])  # fmt: skip
    host = Host(capture)
    record = host.record(
        claim=f"The key is {SECRET}.", why_useful=f"because {SECRET}", staleness=f"till {SECRET}",
        entry_refs=["E0", "E1"], quotes=[{"entry_ref": "E0", "quote": f"use {SECRET} for"}],
    )  # fmt: skip
    assert SECRET not in json.dumps(record)
    assert record["claim"] == "The key is [REDACTED:github_token]."
    assert record["evidence"][0]["excerpt"] == "use [REDACTED:github_token] for it"


def test_a_record_can_be_verified_and_a_changed_one_is_found() -> None:
    capture = capture_of([Item(0, "user", "x " * 900 + f"needle {SECRET} end " + "y " * 900)])
    record = Host(capture).record(quotes=[{"entry_ref": "E0", "quote": "needle"}])
    changed = json.loads(json.dumps(record).replace("needle", "noodle"))
    found = list(verify([record, changed], open_capture=lambda session: capture))
    assert [each["status"] for each in found] == ["ok", "changed"]


@given(RECORDS, st.data())
@settings(max_examples=40)
def test_any_entries_make_a_record_that_is_bounded_masked_and_true(
    records: list[Record], data: st.DataObject
) -> None:
    refs = [each.ref for each in visible(records)]
    if not refs:
        return
    chosen = data.draw(st.lists(st.sampled_from(refs), min_size=1, max_size=20))
    capture = Capture.from_items(records)
    host = Host(capture)
    reply = host.stage(entry_refs=chosen)
    record = host.shelf.records[reply["id"]]
    written = record.to_bytes()
    assert len(written) <= 65_536
    assert SECRET.encode() not in written and PRIVATE_KEY[40:80].encode() not in written
    assert [each.id for each in record.evidence] == list(dict.fromkeys(chosen))
    (checked,) = verify([record.to_json()], open_capture=lambda session: capture)
    assert checked["status"] == "ok", checked


# ---------------------------------------------------------------- refs and quotes


@pytest.mark.parametrize(
    ("refs", "kind", "said"),
    [
        ([], "invalid_argument", "no entry is cited"),
        (["E9"], "invalid_argument", "outside the range of this run: E00000009"),
        (["E3", "E0", "E6"], "invalid_argument", "range of this run: E00000000, E00000006"),
        (["E2", "E1"], "invalid_argument", "E00000001"),
        (["e2"], "invalid_argument", "malformed entry ref 'e2'"),
        (["E2.4"], "not_found", "'E00000002.4'"),
        ([f"E2.{n}" for n in range(21)], "invalid_argument", "cite at most 20"),
    ],
)
def test_a_ref_that_does_not_resolve_inside_the_range_is_refused_by_name(
    refs: list[str], kind: str, said: str
) -> None:
    host = Host(run_range=(2, 5))
    assert said in refused(host.stage(entry_refs=refs), kind)
    assert host.shelf.calls == 0


def test_a_hidden_entry_is_refused() -> None:
    host = Host()
    assert "E00000001" in refused(host.stage(entry_refs=["E0", "E1"]), "hidden_entry")
    assert host.shelf.calls == 0


def test_a_quote_may_differ_in_white_space_and_moves_the_excerpt() -> None:
    text = "start " * 1_000 + "the  oil\n\tcan stands here " + "rest " * 1_000
    host = Host(capture_of([Item(0, "user", text)]))
    record = host.record(quotes=[{"entry_ref": "E0", "quote": " the oil can "}])
    place = text.index("the  oil"), text.index("can") + 3
    extension = record["extensions"]["evidence"]["E00000000"]
    assert extension["quotes"] == [list(place)]
    assert "the  oil\n\tcan" in record["evidence"][0]["excerpt"]
    start, end = extension["excerpt_range"]
    assert text[start:end] == record["evidence"][0]["excerpt"]


def test_a_quote_of_the_masked_text_stands_in_its_entry() -> None:
    host = Host(capture_of([Item(0, "user", f"export TOKEN={SECRET} now")]))
    quote = "TOKEN=[REDACTED:github_token] now"
    record = host.record(quotes=[{"entry_ref": "E0", "quote": quote}])
    assert record["extensions"]["evidence"]["E00000000"]["quotes"] == [[7, 17 + len(SECRET)]]


@pytest.mark.parametrize(
    ("quote", "said"),
    [
        ("deploy from the release train", "nearest is: "),
        ("zebra crossing", "none of its words do"),
        (" \n", "blank"),
        ("x" * 2_049, "quote at most 2048"),
    ],
)
def test_a_quote_that_does_not_stand_in_its_entry_is_refused(quote: str, said: str) -> None:
    host = Host()
    assert said in refused(host.stage(quotes=[{"entry_ref": "E0", "quote": quote}]))
    assert host.shelf.calls == 0


def test_the_text_nearest_to_a_wrong_quote_is_named() -> None:
    reply = Host().stage(quotes=[{"entry_ref": "E0", "quote": "deploy from the release train"}])
    assert "deploy from the release branch, never from main." in refused(reply)


def test_a_quote_of_an_entry_that_is_not_cited_is_refused() -> None:
    host = Host()
    said = refused(host.stage(quotes=[{"entry_ref": "E6", "quote": "the lathe"}]))
    assert "E00000006" in said and "entry_refs" in said


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("field", ["claim", "why_useful", "staleness"])
@pytest.mark.parametrize(
    "text",
    ["", " \n ", "TODO", "n/a", "...", "<claim>", "[your claim here]", "Lorem ipsum dolor sit amet",
     "— — —", "{{ claim }}", "bell\x07", SECRET, "\u200b\u202e", "\u3164\u3164", "TO\u200bDO"],
)  # fmt: skip
def test_blank_and_placeholder_texts_are_refused(field: str, text: str) -> None:
    host = Host()
    assert field in refused(host.stage(**{field: text}))
    assert host.shelf.calls == 0


@pytest.mark.parametrize(
    ("field", "most"), [("claim", 2000), ("why_useful", 2000), ("staleness", 500)]
)
def test_over_long_texts_are_refused_and_the_longest_are_kept_whole(field: str, most: int) -> None:
    host = Host()
    assert str(most) in refused(host.stage(**{field: "é" * (most + 1)}))
    assert host.record(**{field: "é" * most})[field] == "é" * most


@pytest.mark.parametrize(
    "claim", ["Test the lathe.", "None of the tests may sleep.", "日本語で書く。", "[ci] runs"]
)
def test_texts_that_only_mention_such_words_are_no_placeholders(claim: str) -> None:
    assert Host().record(claim=claim)["claim"] == claim


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    said = refused(Host().stage(kind="fact"))
    for kind in (
        "preference",
        "working_assumption",
        "constraint",
        "decision",
        "open_question",
        "lesson",
    ):
        assert kind in said


def test_the_model_cannot_set_authority() -> None:
    host = Host()
    assert "'authority'" in refused(host.stage(authority="user"))
    assert "'extensions'" in refused(host.stage(extensions={}))


# ---------------------------------------------------------------- repeats, similar claims, limits


def test_an_exact_repeat_returns_the_earlier_id_and_writes_nothing() -> None:
    host = Host()
    first = host.stage("Deploy from the release branch.")
    again = host.stage(
        "  ＤＥＰＬＯＹ from\n the release branch", entry_refs=["E2"], why_useful="else"
    )
    assert (again["id"], again["already_staged"], again["staged_count"]) == (first["id"], True, 1)
    assert host.shelf.calls == 1
    other = host.stage("Deploy from the release branch.", kind="decision")
    assert other["id"] != first["id"] and other["staged_count"] == 2


@pytest.mark.parametrize("unseen", ["\u200b", "\u202e", "\u2060", "\xad", "\ufeff", "\u3164"])
def test_a_claim_with_characters_that_nobody_sees_is_a_repeat(unseen: str) -> None:
    host = Host()
    first = host.stage("Deploy from the release branch.")
    again = host.stage(f"{unseen}Deploy from the re{unseen}lease branch.{unseen}")
    assert (again["id"], again["already_staged"]) == (first["id"], True)


def test_a_repeat_with_a_wrong_ref_is_refused_like_any_other() -> None:
    host = Host()
    host.stage()
    refused(host.stage(entry_refs=["E99"]))


def test_similar_claims_are_named_and_never_merged() -> None:
    host = Host()
    first = host.stage("Deploy from the release branch.")
    host.stage("The lathe must be oiled on Mondays.")
    reply = host.stage("Always deploy from the release branch, never from main.")
    assert reply["similar"] == [
        {"id": first["id"], "kind": "constraint", "claim": "Deploy from the release branch."}
    ]
    assert reply["staged_count"] == 3
    assert host.shelf.records[reply["id"]].extensions["similar"] == [first["id"]]


def test_claims_in_scripts_without_spaces_are_compared_too() -> None:
    host = Host()
    first = host.stage("旋盤は毎週月曜日に油を差す")
    assert host.stage("旋盤には毎週月曜日に油を差すこと")["similar"][0]["id"] == first["id"]
    assert host.stage("配備は常に枝から行う")["similar"] == []


def test_claims_of_earlier_runs_are_named_by_id_alone() -> None:
    earlier = Host()
    earlier.stage("Deploy from the release branch.")
    (known,) = earlier.shelf.records.values()
    other = known.model_copy(update={"extract_run_id": "run-0"})
    reply = Host(earlier=[other]).stage("Deploy from a release branch.")
    assert reply["similar"] == [{"id": known.id, "kind": "constraint"}]


def test_similar_claims_are_counted_beyond_those_that_are_shown() -> None:
    host = Host()
    for n in range(8):
        reply = host.stage(f"Deploy from the release branch number {n}.")
    assert len(reply["similar"]) == 5 and reply["similar_total"] == 7


def test_a_run_stages_at_most_fifty_candidates() -> None:
    host = Host()
    for n in range(50):
        reply = host.stage(f"Claim number {n} is true.")
    assert reply["remaining"] == 0
    assert "50" in refused(host.stage("One more claim."))
    assert host.stage("Claim number 7 is true.")["already_staged"] is True
    assert host.finish(staged_count=50)["sealed"] is True


def test_ids_rise_within_one_millisecond_and_when_the_clock_goes_back() -> None:
    host = Host()
    ids = [host.stage(f"Claim number {n} is true.")["id"] for n in range(5)]
    assert ids == sorted(ids) and len(set(ids)) == 5
    ticks = iter([5_000, 4_000, 4_000])
    make = RecordIds(now_ms=lambda: next(ticks), random_bytes=bytes)
    assert make() < make() < make()


# ---------------------------------------------------------------- authority


def user(text: str = "We deploy from the release branch.", flags: int = 0) -> Item:
    return Item(0, "user", text, flags=flags)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (user(), "user"),
        (user(flags=SYNTHETIC), "derived"),
        (user(flags=SIDECHAIN), "derived"),
        (user(flags=COMPACTION_SUMMARY), "derived"),
        (Item(0, "assistant", "We deploy."), "derived"),
        (Item(0, "system", "We deploy.", sub_kind="hook"), "derived"),
        (Item(0, "tool_result", "We deploy."), "derived"),
    ],
)
def test_only_a_real_user_entry_gives_a_users_authority(item: Item, expected: str) -> None:
    record = Host(capture_of([user("first"), item])).record(entry_refs=["E1"])
    assert record["extensions"]["authority"] == expected


def test_one_real_user_entry_among_many_is_enough() -> None:
    assert Host().record(entry_refs=["E2", "E4", "E6"])["extensions"]["authority"] == "user"
    assert Host().record(entry_refs=["E2", "E4"])["extensions"]["authority"] == "derived"


def authority_of(library: Library, session: str, ref: str) -> str:
    capture = library.capture(session, live=False)
    return Host(capture).record(entry_refs=[ref])["extensions"]["authority"]


def test_a_prompt_in_a_sub_agents_session_is_no_users_word(tmp_path: Path) -> None:
    main = claude_path(tmp_path, "11111111-1111-4111-8111-111111111111")
    write_lines(main, conversation(2))
    agent = main.with_suffix("") / "subagents" / "agent-a1.jsonl"
    prompt = claude_user("look at the spindle", 50, isSidechain=True, agentId="a1")
    write_lines(agent, [prompt])
    library = Library.in_memory()
    index(library, tmp_path)
    sub = next(row for row in library.snapshot().rows() if row.sub_agent)
    assert authority_of(library, sub.session, "E0") == "derived"
    assert authority_of(library, main.stem, "E0") == "user"


def test_a_copy_counts_if_its_owner_does(tmp_path: Path) -> None:
    first = claude_path(tmp_path, "11111111-1111-4111-8111-111111111111")
    fork = claude_path(tmp_path, "22222222-2222-4222-8222-222222222222")
    records = conversation(2)
    records[5]["isMeta"] = True
    write_lines(first, records)
    forked = [
        {**record, "sessionId": fork.stem,
         "forkedFrom": {"sessionId": first.stem, "messageUuid": record["uuid"]}}
        for record in records
    ]  # fmt: skip
    write_lines(fork, [*forked, claude_user("and now something else", 30)])
    library = Library.in_memory()
    index(library, tmp_path)
    capture = library.capture(fork.stem, live=False)
    assert capture.flags(capture.entry(0)) & COPIED
    assert authority_of(library, fork.stem, "E0") == "user"
    assert authority_of(library, fork.stem, "E5") == "derived"


# ---------------------------------------------------------------- finishing


def test_finishing_needs_the_count_that_was_staged() -> None:
    host = Host()
    host.stage()
    assert "has staged 1" in refused(host.finish(staged_count=2))
    assert "has staged 1" in refused(host.finish(staged_count=-1))
    assert not host.run.is_sealed
    reply = host.finish(staged_count=1)
    assert reply == {"sealed": True, "staged_count": 1}
    FinishOutput.model_validate(reply)
    assert host.run.is_sealed


def test_finishing_without_candidates_needs_a_reason() -> None:
    host = Host()
    assert "no_candidates_reason" in refused(host.finish(staged_count=0))
    assert "no_candidates_reason" in refused(host.finish(staged_count=0, no_candidates_reason=" "))
    assert "placeholder" in refused(host.finish(staged_count=0, no_candidates_reason="N/A"))
    reply = host.finish(staged_count=0, no_candidates_reason="Only small talk.")
    assert reply["no_candidates_reason"] == "Only small talk."


def test_a_reason_given_with_a_positive_count_is_kept() -> None:
    host = Host()
    host.stage()
    host.finish(staged_count=1, no_candidates_reason="The rest was small talk.")
    assert host.run.finished is not None
    assert host.run.finished.no_candidates_reason == "The rest was small talk."


def test_the_first_valid_finish_seals_the_run() -> None:
    host = Host()
    host.stage()
    host.finish(staged_count=1)
    assert "finished" in refused(host.finish(staged_count=1))
    assert "finished" in refused(host.stage("Another claim entirely."))
    assert "finished" in refused(host.stage())
    assert host.shelf.calls == 1


# ---------------------------------------------------------------- backends, adoption


def test_a_failing_backend_counts_nothing_and_the_same_record_is_sent_again() -> None:
    host = Host()
    host.shelf.error, host.shelf.keeps_before_failing = Failed("the disk is full"), True
    assert host.stage()["error"]["class"] == "failed"
    assert len(host.run.unsure) == 1 and host.run.staged == ()
    host.shelf.error = None
    reply = host.stage(why_useful="Said in other words.")
    assert reply["staged_count"] == 1 and not reply["already_staged"]
    assert list(host.shelf.records) == [reply["id"]]
    assert host.run.unsure == ()


def test_a_rejecting_backend_is_the_callers_error_and_keeps_nothing_in_mind() -> None:
    host = Host()
    host.shelf.error = InvalidArgument("the workspace knows this already")
    assert "knows this already" in refused(host.stage())
    host.shelf.error = None
    assert host.stage(why_useful="Said in other words.")["staged_count"] == 1
    assert host.run.staged[0].why_useful == "Said in other words."


def test_a_run_that_goes_on_with_another_stages_nothing_twice() -> None:
    host = Host()
    first = host.stage()
    second = Host(adopted=host.shelf.records.values())
    reply = second.stage()
    assert (reply["id"], reply["already_staged"], reply["staged_count"]) == (first["id"], True, 1)
    assert second.shelf.calls == 0
    assert second.finish(staged_count=1)["sealed"] is True
    with pytest.raises(InvalidArgument, match="run-1"):
        ExtractRun(host.capture, run_id="run-2", backend=Shelf(), ids=record_ids(),
                   adopted=host.run.staged)  # fmt: skip


# ---------------------------------------------------------------- installation


def installed(provided: dict[Any, Any]) -> tuple[bool, str]:
    report = Registry().install([MemoryExtract()], Services(provided)).features[0]
    return report.installed, "; ".join(report.diagnostics)


def test_the_run_must_hold_the_very_capture_that_is_read() -> None:
    host = Host()
    is_installed, why = installed({CAPTURE: capture_of(), EXTRACT_RUN: host.run})
    assert not is_installed and "another capture" in why


def test_the_run_must_cover_the_range_that_is_read() -> None:
    host = Host(run_range=(0, 3))
    for provided in ({RUN_RANGE: RunRange(0, 4)}, {}):
        is_installed, why = installed({CAPTURE: host.capture, EXTRACT_RUN: host.run, **provided})
        assert not is_installed and "other records" in why


def test_what_is_missing_is_named() -> None:
    assert installed({CAPTURE: capture_of()}) == (
        False, "required service 'extract_run' is not provided"
    )  # fmt: skip


def test_a_run_of_uncommitted_entries_is_refused(tmp_path: Path) -> None:
    path = claude_path(tmp_path, "11111111-1111-4111-8111-111111111111")
    write_lines(path, conversation(1))
    library = Library.in_memory()
    index(library, tmp_path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(claude_user("not finished", 9)))
    capture = library.capture(path.stem)
    assert capture.committed_count < capture.entry_count
    with pytest.raises(InvalidArgument, match="committed"):
        ExtractRun(capture, run_id="run-1", backend=Shelf(), ids=record_ids())
    Host(capture.committed())


@pytest.mark.parametrize("bounds", [(0, 8), (3, 2), (-1, 3)])
def test_a_range_that_the_capture_does_not_have_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="no range"):
        Host(run_range=bounds)


def test_the_tools_write_and_their_maxima_stand_in_descriptions() -> None:
    for tool in (STAGE, FINISH):
        assert not tool.annotations.read_only
        assert "maxItems" not in json.dumps(tool.input_schema())
    assert "2,000 characters" in json.dumps(STAGE.input_schema())


# ---------------------------------------------------------------- any JSON

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["decision", "lesson", "x"]) | JSON,
        "claim": st.sampled_from(["One claim.", SECRET, "\ud800 x"]) | JSON,
        "why_useful": st.sampled_from(["It is useful.", "x" * 3_000]) | JSON,
        "staleness": JSON,
        "entry_refs": st.lists(
            st.sampled_from(["E0", "E1", "E2", "E6", "E99", "E2.1"]) | JSON, max_size=4
        )
        | JSON,
        "quotes": st.lists(
            st.fixed_dictionaries(
                {"entry_ref": st.just("E0") | JSON, "quote": st.just("deploy from") | JSON}
            ),
            max_size=3,
        )
        | JSON,
        "staged_count": st.integers(0, 3) | JSON,
        "no_candidates_reason": JSON,
        "other": JSON,
    },
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["StageMemoryCandidate", "FinishMemoryExtraction"]), ARGUMENTS | JSON
        ),
        max_size=6,
    )
)
@settings(max_examples=40)
def test_any_json_is_answered_with_a_bounded_reply_and_no_fault(
    calls: list[tuple[str, Any]],
) -> None:
    host = Host(_CAPTURE)
    for name, arguments in calls:
        reply = host.registry.call(name, arguments)
        assert len(reply.data) <= 65_536
        assert SECRET.encode() not in reply.data
    assert host.faults == []
    assert len(host.shelf.records) == len(host.run.staged)


_CAPTURE = capture_of()
