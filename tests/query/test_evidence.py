"""Resolve, evidence and verify: what is cited can be found again, and told from what changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import HiddenEntry, InvalidArgument, NotFound, PastEnd
from sessiondex.indexer.capture import Capture
from sessiondex.masking import mask
from sessiondex.model import EntryRef, Item
from sessiondex.query.evidence import evidence, resolve
from sessiondex.query.quotes import find_quote, nearest_text
from sessiondex.query.verify import parse_lines, verify
from tests.query.made_sessions import PRIVATE_KEY, SECRET, TEXTS, capture_of

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "samples"


def claude_session(path: Path, *texts: str) -> Path:
    """A small Claude Code session: a user record, then answers with a tool call each."""
    common = {"sessionId": path.stem, "cwd": "/home/dev/app", "version": "2.1.0"}
    lines = [
        {"type": "user", "uuid": "u0", "timestamp": "2026-03-10T12:00:00.000Z", **common,
         "message": {"role": "user", "content": texts[0]}}
    ]  # fmt: skip
    for number, text in enumerate(texts[1:], 1):
        content = [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": text},
            {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash",
             "input": {"command": f"echo {text}"}},
        ]  # fmt: skip
        lines.append(
            {"type": "assistant", "uuid": f"u{number}", "timestamp": "2026-03-10T12:00:01.000Z",
             **common, "message": {"role": "assistant", "content": content}}
        )  # fmt: skip
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def opened(*captures: Capture) -> Callable[[str], Capture]:
    """Opens captures by their session ids."""

    def open_capture(session: str) -> Capture:
        for capture in captures:
            if capture.session == session:
                return capture
        raise NotFound(f"no session {session!r}")

    return open_capture


def verified(cited: dict[str, Any], *captures: Capture, **options: Any) -> dict[str, Any]:
    """The one result of verifying what stands on one line of JSON."""
    lines = parse_lines([orjson.dumps(cited)])
    (result,) = verify(lines, open_capture=opened(*captures), **options)
    return result


# ---------------------------------------------------------------- resolve


def test_resolve_gives_bytes_that_hold_the_record(tmp_path: Path) -> None:
    path = claude_session(tmp_path / "s-1.jsonl", "go", "first 語", "second")
    capture = Capture.from_path(path)
    reply = resolve(capture, ["E1.1", ("E2", "E2")])
    assert [item["entry_ref"] for item in reply["entries"]] == [
        "E00000001.1", "E00000002.1", "E00000002.2",
    ]  # fmt: skip
    source = reply["entries"][0]["source"]
    data = path.read_bytes()
    start, length = source["byte_offset"], source["byte_length"]
    record = json.loads(data[start : start + length])
    assert record["uuid"] == "u1"
    assert source["line"] == 2
    assert (source["record"], source["block"]) == (1, 1)
    assert source["pointer"] == "/message/content/1"
    assert source["encoding"] == "utf-8"
    assert Path(source["file"]["root"], source["file"]["path"]) == path
    assert (reply["truncated"], reply["omitted_entries"], reply["next_ref"]) == (False, 0, None)


def test_resolve_for_a_model_names_no_file(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", "one"))
    reply = resolve(capture, ["E1.2"], for_model=True)
    assert reply["entries"] == [
        {
            "entry_ref": "E00000001.2",
            "entry_range": [1, 1],
            "source": {"session_id": "s-1", "segment_id": "s-1", "entry_range": [1, 1]},
        }
    ]
    assert str(tmp_path) not in json.dumps(reply)


def test_resolve_of_a_long_range_says_where_to_go_on() -> None:
    capture = capture_of(*["x"] * 800)
    reply = resolve(capture, [("E0", "E799")])
    assert len(orjson.dumps(reply)) <= 64 * 1024
    shown = len(reply["entries"])
    assert reply["omitted_entries"] == 800 - shown > 0
    assert reply["next_ref"] == str(EntryRef(shown))


def test_resolve_tells_unknown_refs_apart(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", "one"))
    for ref, error in (("E1", HiddenEntry), ("E2", PastEnd), ("E1.9", NotFound)):
        with pytest.raises(error):
            resolve(capture, [ref])


def test_a_source_that_is_gone_is_noted(tmp_path: Path) -> None:
    path = claude_session(tmp_path / "s-1.jsonl", "go", "one")
    capture = Capture.from_path(path)
    path.unlink()
    for reply in (resolve(capture, ["E0"]), evidence(capture, "E0")):
        assert [note["code"] for note in reply["notes"]] == ["source_gone"]


# ---------------------------------------------------------------- evidence


def test_evidence_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", "one"))
    reply = evidence(capture, "E1.2")
    text = "Bash\ncommand: echo one"
    source = reply.pop("source")
    assert source["pointer"] == "/message/content/2"
    assert reply == {
        "session": "s-1",
        "capture": capture.token,
        "entry_ref": "E00000001.2",
        "entry_range": [1, 1],
        "kind": "tool",
        "tool_part": "input",
        "tool_name": "Bash",
        "label": "tool input: Bash",
        "summary": "Bash command: echo one",
        "excerpt": text,
        "excerpt_range": [0, len(text)],
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "text_version": 1,
        "notes": [],
    }


@settings(max_examples=40)
@given(TEXTS, st.integers(1, 9000), st.data())
def test_an_excerpt_holds_its_bound_and_its_range_is_of_the_original(
    text: str, max_bytes: int, data: st.DataObject
) -> None:
    raw = text.encode()
    capture = capture_of(text)
    start = data.draw(st.integers(0, len(raw)))
    hit = data.draw(st.none() | st.just((start, data.draw(st.integers(start, len(raw))))))
    for reveal in (False, True):
        reply = evidence(capture, "E0", hit=hit, max_bytes=max_bytes, reveal=reveal)
        assert len(orjson.dumps(reply)) <= 64 * 1024
        assert len(reply["excerpt"].encode()) <= min(max_bytes, 8192)
        low, high = reply["excerpt_range"]
        assert reply["sha256"] == hashlib.sha256(raw).hexdigest()
        if reveal:
            assert raw[low:high].decode() == reply["excerpt"]
        else:
            assert reply["excerpt"] in mask(text).text
        assert verified(reply, capture)["status"] == "ok"


def test_the_excerpt_stands_around_a_quote_with_white_space_folded() -> None:
    text = "x " * 5000 + "we agreed\n\n   to use   tantivy for this" + " y" * 5000
    reply = evidence(capture_of(text), "E0", quote="agreed to use tantivy", max_bytes=200)
    assert "agreed\n\n   to use   tantivy" in reply["excerpt"]
    low, high = reply["excerpt_range"]
    assert text[low:high] == reply["excerpt"]
    assert 150 <= high - low <= 200


def test_a_quote_of_the_masked_text_is_found_and_nothing_is_unmasked() -> None:
    text = "a " * 3000 + f"the token {SECRET} was rotated" + " b" * 3000
    reply = evidence(
        capture_of(text), "E0", quote="token [REDACTED:github_token] was", max_bytes=120
    )
    assert "the token [REDACTED:github_token] was rotated" in reply["excerpt"]
    assert reply["redacted"] == 1
    assert SECRET not in json.dumps(reply)
    low, high = reply["excerpt_range"]
    assert SECRET in text[low:high]


def test_a_quote_that_the_entry_lacks_is_refused_with_the_nearest_text() -> None:
    capture = capture_of("We decided to keep the catalog in SQLite, for now.", "other")
    with pytest.raises(InvalidArgument, match="does not stand in entry E00000000") as caught:
        evidence(capture, "E0", quote="decided to keep the index in SQLite")
    assert "decided to keep the catalog in SQLite" in caught.value.hint
    with pytest.raises(InvalidArgument, match="blank"):
        evidence(capture, "E0", quote=" \n")


def test_the_nearest_text_is_named_masked_and_bounded() -> None:
    text = f"the key {SECRET} is one {'very ' * 100} long".encode()
    nearest = nearest_text(text, "the key is another one")
    assert nearest.startswith("the key [REDACTED:github_token] is one")
    assert len(nearest) <= 160
    assert nearest_text(text, "nothing alike") == ""


@settings(max_examples=60)
@given(TEXTS, st.data())
def test_any_words_of_a_text_are_found_as_a_quote(text: str, data: st.DataObject) -> None:
    words = text.split()
    if not words:
        return
    low = data.draw(st.integers(0, len(words) - 1))
    high = data.draw(st.integers(low + 1, len(words)))
    quote = " \n".join(words[low:high])
    place = find_quote(text.encode(), quote)
    assert place is not None
    found = text.encode()[place.start : place.end].decode()
    assert found.split() == words[low:high]


def test_bad_arguments_are_named() -> None:
    capture = capture_of("abc")
    with pytest.raises(InvalidArgument, match="do not lie in entry"):
        evidence(capture, "E0", hit=(0, 4))
    with pytest.raises(InvalidArgument, match="a quote and a hit"):
        evidence(capture, "E0", hit=(0, 1), quote="a")
    assert evidence(capture, "E0", max_bytes=9000)["notes"][0]["code"] == "clamped"
    with pytest.raises(PastEnd):
        evidence(capture, "E1")


def test_evidence_for_a_model_names_no_file(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", "one"))
    reply = evidence(capture, "E0", for_model=True)
    assert reply["source"] == {"session_id": "s-1", "segment_id": "s-1", "entry_range": [0, 0]}
    assert str(tmp_path) not in json.dumps(reply)
    assert verified(reply, capture)["source"] == "present"


# ---------------------------------------------------------------- verify


def test_evidence_of_an_unchanged_session_verifies(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", f"{SECRET} one"))
    for ref in ("E0", "E1.1", "E1.2"):
        result = verified(evidence(capture, ref), capture)
        assert result == {
            "session": "s-1", "entry_ref": str(EntryRef.parse(ref)), "status": "ok",
            "source": "present",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"sha256": "0" * 64}, "changed"),
        ({"excerpt": "something else"}, "changed"),
        ({"excerpt_range": [0, 99999]}, "changed"),
        ({"excerpt_range": [5, 2]}, "changed"),
        ({"kind": "assistant"}, "changed"),
        ({"entry_ref": "E00000001"}, "missing"),
        ({"entry_ref": "E00000077"}, "missing"),
        ({"session": "another"}, "missing"),
        ({"text_version": 0, "sha256": "0" * 64}, "ok"),
        ({"text_version": 0, "excerpt": "something else"}, "changed"),
    ],
)
def test_evidence_that_does_not_agree_is_told(
    tmp_path: Path, change: dict[str, Any], status: str
) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go on", "one"))
    result = verified(evidence(capture, "E0") | change, capture)
    assert result["status"] == status
    assert ("reason" in result) == (status != "ok")


def test_the_source_is_told_apart_from_the_stored_entry(tmp_path: Path) -> None:
    path = claude_session(tmp_path / "s-1.jsonl", "go", "one")
    capture = Capture.from_path(path)
    cited = evidence(capture, "E1.1")
    with path.open("a") as file:
        file.write('{"type":"summary","summary":"grown"}\n')
    assert verified(cited, capture)["source"] == "present"
    claude_session(path, "go", "two")
    result = verified(cited, capture)
    assert (result["status"], result["source"]) == ("ok", "changed")
    path.write_bytes(gzip.compress(b"junk"))
    assert verified(cited, capture)["source"] == "changed"
    path.unlink()
    assert verified(cited, capture)["source"] == "gone"


def test_a_moved_source_is_found_by_who_knows_where(tmp_path: Path) -> None:
    path = claude_session(tmp_path / "s-1.jsonl", "go", "one")
    capture = Capture.from_path(path)
    moved = Path(shutil.move(path, tmp_path / "moved.jsonl"))
    cited = evidence(capture, "E1.1")
    assert verified(cited, capture, find_source=lambda _: moved)["source"] == "present"
    assert verified(cited, capture, find_source=lambda _: None)["source"] == "gone"


def test_a_compressed_source_is_read_through_its_compression(tmp_path: Path) -> None:
    plain = claude_session(tmp_path / "s-1.jsonl", "go", "one").read_bytes()
    path = tmp_path / "s-1.jsonl"
    path.write_bytes(zstandard.compress(plain))
    capture = Capture.from_path(path)
    cited = evidence(capture, "E1.1")
    assert cited["source"]["encoding"] == "zstd"
    assert verified(cited, capture)["source"] == "present"
    path.write_bytes(path.read_bytes()[:-20] + b"damagedx" * 2)
    assert verified(cited, capture)["source"] == "changed"


def test_a_session_made_of_items_has_no_source() -> None:
    capture = capture_of("a", "b")
    assert verified(evidence(capture, "E0"), capture)["source"] == "gone"


def staging(capture: Capture, *refs: str, **extra: Any) -> dict[str, Any]:
    """A staging record of version 2 that cites entries of a capture."""
    kinds = {"input": "tool_call", "output": "tool_result", None: "message"}
    cited = [evidence(capture, ref, max_bytes=100) for ref in refs]
    return {
        "schema_version": 2,
        "id": "0199f0e1-0000-7000-8000-000000000000",
        "extract_run_id": "r",
        "source": {"segment_id": capture.session, "range": [0, 1]},
        "kind": "decision",
        "claim": "c",
        "why_useful": "w",
        "evidence": [
            {"id": e["entry_ref"], "kind": kinds[e["tool_part"]], "entry_range": e["entry_range"],
             "excerpt": e["excerpt"]}
            for e in cited
        ],
        "source_refs": [
            {"session_id": e["session"], "segment_id": e["session"],
             "entry_range": e["entry_range"], "evidence_id": e["entry_ref"],
             "evidence_kind": kinds[e["tool_part"]], "label": e["label"]}
            for e in cited
        ],
    } | extra  # fmt: skip


def test_a_staging_record_is_as_good_as_the_worst_it_cites(tmp_path: Path) -> None:
    path = claude_session(tmp_path / "s-1.jsonl", "go", f"{PRIVATE_KEY} one " * 3)
    capture = Capture.from_path(path)
    record = staging(capture, "E0", "E1.1", "E1.2")
    result = verified(record, capture)
    assert (result["id"], result["status"], result["source"]) == (record["id"], "ok", "present")
    assert [entry["status"] for entry in result["entries"]] == ["ok"] * 3
    record["evidence"][1]["excerpt"] = "never said"
    record["source_refs"][2]["evidence_id"] = "E00000099"
    result = verified(record, capture)
    assert [entry["status"] for entry in result["entries"]] == ["ok", "changed", "missing"]
    assert result["status"] == "missing"


def test_digests_in_the_extensions_of_a_staging_record_are_checked(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", "one"))
    noted = {
        "sha256": hashlib.sha256(b"go").hexdigest(),
        "excerpt_range": [0, 2],
        "text_version": 1,
    }
    good = staging(capture, "E0", extensions={"evidence": {"E00000000": noted}})
    assert verified(good, capture)["status"] == "ok"
    bad = staging(capture, "E0", extensions={"evidence": {"E00000000": noted | {"sha256": "0"}}})
    assert verified(bad, capture)["status"] == "changed"


def test_a_staged_message_that_cites_a_tool_call_is_changed(tmp_path: Path) -> None:
    capture = Capture.from_path(claude_session(tmp_path / "s-1.jsonl", "go", "one"))
    record = staging(capture, "E1.2")
    record["source_refs"][0]["evidence_kind"] = "message"
    assert verified(record, capture)["status"] == "changed"


def test_many_are_verified_in_their_order_across_sessions(tmp_path: Path) -> None:
    captures = [
        Capture.from_path(claude_session(tmp_path / f"s-{n}.jsonl", "go", *"abcd"))
        for n in range(3)
    ]
    cited = [
        evidence(capture, f"E{record}.1")
        for record in (3, 1, 4, 2)
        for capture in captures
        for _ in range(60)
    ]
    results = list(verify(cited, open_capture=opened(*captures)))
    assert [(r["session"], r["entry_ref"]) for r in results] == [
        (e["session"], e["entry_ref"]) for e in cited
    ]
    assert {(r["status"], r["source"]) for r in results} == {("ok", "present")}


def test_lines_may_be_blank_and_one_object_may_be_indented() -> None:
    value = {"a": [1, {"b": "c"}]}
    assert list(parse_lines(["", orjson.dumps(value), b"\n", '{"d":1}\n'])) == [value, {"d": 1}]
    indented = json.dumps(value, indent=2)
    assert list(parse_lines(indented.splitlines(keepends=True))) == [value]
    for lines, message in (
        (["[1]"], "line 1 is no JSON object"),
        (['{"a":1}', "{"], "line 2 is no JSON"),
        (["{", "never"], "line 1 is no JSON"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            list(parse_lines(lines))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"session": 1},
        {"schema_version": 1},
        {"schema_version": 2},
        {"schema_version": 2, "id": "x", "evidence": [], "source_refs": []},
        {"schema_version": 2, "id": "x", "evidence": [{}], "source_refs": [{}]},
    ],
)
def test_what_is_no_evidence_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="neither evidence nor a staging record"):
        list(verify([value], open_capture=opened()))


def test_a_damaged_ref_is_refused() -> None:
    cited = evidence(capture_of("a"), "E0") | {"entry_ref": "7"}
    with pytest.raises(InvalidArgument, match="malformed entry ref"):
        list(verify([cited], open_capture=opened()))


# ---------------------------------------------------------------- real sessions


@pytest.mark.parametrize(
    "pattern",
    ["home/.claude/projects/*/9*.jsonl", "home/.codex/**/10/*.jsonl", "atif/openhands*.json"],
)
def test_evidence_of_real_sessions_verifies(pattern: str) -> None:
    paths = sorted(SAMPLES.glob(pattern))
    if not paths:
        pytest.skip("no samples")
    capture = Capture.from_path(paths[0])
    entries = capture.entries(0, capture.entry_count)
    cited = [evidence(capture, entry.ref) for entry in entries]
    results = list(verify(cited, open_capture=opened(capture)))
    assert {(r["status"], r["source"]) for r in results} == {("ok", "present")}


def test_an_item_without_text_has_evidence_too() -> None:
    capture = Capture.from_items([Item(0, "user", ""), Item(0, "assistant", "x")])
    reply = evidence(capture, "E0")
    assert (reply["excerpt"], reply["excerpt_range"]) == ("", [0, 0])
    assert verified(reply, capture)["status"] == "ok"
