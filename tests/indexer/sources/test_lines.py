"""The laws of reading lines: everything is numbered, nothing raises, any cut reads the same."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.indexer.sources.base import HEAD_BYTES, SessionStub, SourceFile, SourceOptions
from sessiondex.indexer.sources.lines import (
    LineParser,
    RawValue,
    epoch_ms,
    head_objects,
    read_values,
)
from sessiondex.model import Item, Record, SessionHeader, compact_json


def read(data: bytes, *, record_bytes: int = 1 << 25, **options: Any) -> list[RawValue]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        source = SourceFile(Path(file.name), options=SourceOptions(record_bytes=record_bytes))
        return list(read_values(source, **options))


def values(data: bytes, **options: Any) -> list[Any]:
    return [raw.value for raw in read(data, **options)]


def resume_after(raws: list[RawValue]) -> dict[str, int]:
    committed = [raw for raw in raws if not raw.provisional]
    if not committed:
        return {}
    last = committed[-1]
    return {"offset": last.end, "number": last.number + 1, "line": last.end_line}


# ---------------------------------------------------------------- what a line is


def test_only_a_newline_ends_a_line():
    texts = ["a\u2028b", "a\u2029b", "a\u0085b", "a\x7fb"]
    data = "".join(f'{{"t":"{text}"}}\n' for text in texts).encode()
    assert [value["t"] for value in values(data)] == texts


def test_raw_form_feeds_and_separators_do_not_split_a_record():
    raws = read(b'{"a":\x0c1}\n{"a":2}\n')
    assert [(raw.number, raw.line) for raw in raws] == [(0, 1), (1, 2)]


def test_carriage_returns_and_a_byte_order_mark_are_no_part_of_a_record():
    raws = read(b'\xef\xbb\xbf{"a":1}\r\n{"a":2}\r\n')
    assert [(raw.value, raw.byte_offset, raw.byte_length) for raw in raws] == [
        ({"a": 1}, 3, 7),
        ({"a": 2}, 12, 7),
    ]


def test_a_file_of_nothing_or_of_a_mark_alone_holds_no_record():
    assert read(b"") == read(b"\xef\xbb\xbf") == read(b"\xff\xfe") == []


def test_blank_and_nul_only_lines_are_counted():
    raws = read(b'\n \t\r\n\0\0\0\n{"a":1}\n')
    assert [raw.blank for raw in raws] == [True, True, True, False]
    assert [raw.corrupt for raw in raws] == [""] * 4
    assert raws[3].number == 3
    assert raws[3].line == 4


def test_nul_bytes_around_a_record_are_padding():
    assert values(b'\0\0{"a":1}\0\0\n{"b":2}\n') == [{"a": 1}, {"b": 2}]


def test_values_that_are_no_objects_are_numbered():
    raws = read(b'null\n42\n[1,2]\n"text"\ntrue\n-1.5e3\n{"a":1}\n')
    assert [raw.value for raw in raws] == [None, 42, [1, 2], "text", True, -1500.0, {"a": 1}]
    assert not any(raw.corrupt or raw.blank for raw in raws)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_files_keep_offsets_of_their_own_bytes(encoding: str):
    # These characters hold the bytes of a newline, alone and out of step with the units.
    text = '\ufeff{"t":"\u0a00\u0100\u0a00\u010a中😀"}\r\n\r\n{"a":1}{"t":"é"}\n{"b":2}'
    data = text.encode(encoding)
    raws = read(data)
    assert [raw.value for raw in raws] == [
        {"t": "\u0a00\u0100\u0a00\u010a中😀"}, None, {"a": 1}, {"t": "é"}, {"b": 2},
    ]  # fmt: skip
    assert [raw.line for raw in raws] == [1, 2, 3, 3, 4]
    assert raws[-1].provisional
    for raw in raws:
        if raw.value is not None:
            body = data[raw.byte_offset : raw.byte_offset + raw.byte_length]
            assert json.loads(body.decode(encoding)) == raw.value
            assert raw.digest == sha256(body).digest()[:8]


def test_a_compressed_file_has_offsets_of_its_decompressed_stream(tmp_path: Path):
    data = b"".join(b'{"n":%d}\n' % number for number in range(1000))
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(zstandard.compress(data[:5000]) + zstandard.compress(data[5000:]))
    raws = list(read_values(SourceFile(path)))
    assert raws == read(data)
    assert list(read_values(SourceFile(path), **resume_after(raws[:500]))) == raws[500:]


# ---------------------------------------------------------------- glued and torn records


def test_glued_values_are_consecutive_records_of_one_line():
    raws = read(b'{"a":1}{"b":2} {"c":3}[4]"5" 6 true\n{"d":7}\n')
    assert [raw.value for raw in raws] == [
        {"a": 1}, {"b": 2}, {"c": 3}, [4], "5", 6, True, {"d": 7},
    ]  # fmt: skip
    assert [raw.number for raw in raws] == list(range(8))
    assert [raw.line for raw in raws] == [1] * 7 + [2]
    assert [raw.byte_offset for raw in raws[:3]] == [0, 7, 15]


@pytest.mark.parametrize(
    "line", ["{broken", "2024-01-01 12:00 started", "}{", "[1,2", "plain words", '{"a":1,}', "nul"]
)
def test_a_line_that_does_not_parse_is_one_record(line: str):
    raws = read(f'{{"a":1}}\n{line}\n{{"b":2}}\n'.encode())
    assert [bool(raw.corrupt) for raw in raws] == [False, True, False]
    assert raws[1].byte_length == len(line)
    assert raws[2].value == {"b": 2}


def test_the_unreadable_rest_of_a_line_is_one_record():
    raws = read(b'{"a":1} {"b": 2,, "c" more \n{"d":1}\n')
    assert [raw.value for raw in raws] == [{"a": 1}, None, {"d": 1}]
    assert raws[1].corrupt
    assert raws[1].line == 1
    assert raws[1].byte_length == len(b'{"b": 2,, "c" more')


TORN = {
    "type": "assistant",
    "uuid": "u-1",
    "n": -12.5,
    "done": True,
    "message": {"role": "é中", "content": [{"type": "text", "text": 'say "\\u00e9" {'}], "x": None},
}
WHOLE = [
    {"parentUuid": "p", "uuid": "u-2", "message": {"content": [{"type": "text", "text": "x"}]}},
    {"type": "user", "uuid": "u-3", "list": [{"type": "text"}]},
    {"timestamp": "2026-01-01T00:00:00Z", "payload": {"type": "message"}},
    {"kind": "user_input", "ts": 5, "segments": [{"kind": "text", "content": "x"}]},
]


@pytest.mark.parametrize("whole", WHOLE)
def test_a_whole_record_is_read_behind_a_torn_one_wherever_it_was_cut(whole: dict[str, Any]):
    torn = json.dumps(TORN, ensure_ascii=False, separators=(",", ":")).encode()
    line = json.dumps(whole, separators=(",", ":")).encode()
    for cut in range(1, len(torn)):
        raws = read(torn[:cut] + line + b'\n{"after":1}\n')
        assert [raw.value for raw in raws] == [None, whole, {"after": 1}], torn[:cut]
        assert raws[0].corrupt
        assert (raws[0].byte_offset, raws[0].byte_length) == (0, cut)
        assert raws[1].byte_offset == cut


def test_a_torn_record_alone_on_its_line_is_one_record_wherever_it_was_cut():
    torn = json.dumps(TORN, ensure_ascii=False, separators=(",", ":")).encode()
    for cut in range(1, len(torn)):
        raws = read(torn[:cut] + b'\n{"after":1}\n')
        assert [raw.value for raw in raws] == [None, {"after": 1}], torn[:cut]


def test_two_accidents_on_one_line_lose_only_the_torn_records():
    raws = read(b'{"type":"a","t":"x{"type":"b","uuid":1}{"type":"c","t":[{"type":"d","uuid":2}\n')
    assert [raw.value for raw in raws] == [
        None, {"type": "b", "uuid": 1}, None, {"type": "d", "uuid": 2},
    ]  # fmt: skip


def test_a_long_line_of_openers_is_read_in_linear_time():
    raws = read(b'{"type":' * 200_000 + b'\n{"a":1}\n')
    assert [bool(raw.corrupt) for raw in raws] == [True, False]
    assert raws[1].value == {"a": 1}
    broken = b'{"x" 1,"c":[' + b'{"type":"text"},' * 50_000
    raws = read(broken + b'{"type":"user","uuid":"u"}\n')
    assert raws[-1].value == {"type": "user", "uuid": "u"}
    assert len(raws) == 2


@pytest.mark.parametrize("nested", ['{"type":' * 100, '{"type":' * 500 + "[" * 2000])
def test_a_torn_record_of_hopeless_nesting_is_one_record(nested: str):
    raws = read(f'{{"x":"{{"kind":{nested}\n{{"a":1}}\n'.encode())
    assert [bool(raw.corrupt) for raw in raws] == [True, False]
    raws = read(f'{{"x":{nested}\n{{"a":1}}\n'.encode())
    assert [bool(raw.corrupt) for raw in raws] == [True, False]


# ---------------------------------------------------------------- values that are hard to read


def test_bad_bytes_are_replaced_in_their_line_only():
    raws = read(b'{"t":"a\xff\xe4\xb8b"}\n{"t":"\xe4\xb8\xad"}\n')
    assert [raw.value["t"] for raw in raws] == ["a\ufffd\ufffdb", "中"]
    assert [raw.byte_length for raw in raws] == [13, 11]


def test_a_cut_character_before_the_next_record_is_part_of_the_torn_one():
    raws = read(b'{"type":"a","t":"\xe4\xb8{"type":"b"}\n')
    assert [(raw.byte_offset, raw.byte_length) for raw in raws] == [(0, 19), (19, 12)]
    assert raws[1].value == {"type": "b"}


def test_lone_surrogates_become_replacement_characters_and_pairs_stay():
    data = rb'{"\ud800k":["\udfffx","\ud83d\ude00"]}' + b"\n"
    assert values(data) == [{"\ufffdk": ["\ufffdx", "😀"]}]


def test_nan_and_infinity_are_read():
    [value] = values(b'{"a":NaN,"b":-Infinity,"t":"x"}\n')
    assert value["t"] == "x"
    assert value["a"] != value["a"]


def test_integers_of_any_length_are_read():
    digits = "7" * 5000
    [value] = values(f'{{"n":{digits},"t":"x"}}\n'.encode())
    assert value == {"n": digits, "t": "x"}


def test_escaped_nul_characters_are_kept():
    assert values(b'{"t":"a\\u0000b"}\n') == [{"t": "a\0b"}]


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
def test_nesting_too_deep_to_read_is_one_corrupt_record(opening: str, closing: str):
    deep = opening * 100_000 + "1" + closing * 100_000
    raws = read(f'{deep}\n{{"b":1}}\n'.encode())
    assert [raw.value for raw in raws] == [None, {"b": 1}]
    assert "nested too deeply" in raws[0].corrupt
    assert raws[0].byte_length == len(deep)


def test_a_line_of_twelve_megabytes_is_read():
    text = "中x" * 3_000_000
    raws = read(f'{{"t":"{text}"}}\n{{"a":1}}\n'.encode())
    assert raws[0].value == {"t": text}
    assert raws[1].byte_offset == 12_000_000 + len('{"t":""}\n')


def test_a_record_above_the_bound_is_numbered_and_hashed_but_not_loaded():
    line = b'{"t":"' + b"x" * 24_000_000 + b'"}'
    with tempfile.NamedTemporaryFile() as file:
        file.write(b'{"a":1}\n' + line + b'\r\n{"b":2}\n')
        file.flush()
        source = SourceFile(Path(file.name), options=SourceOptions(record_bytes=1 << 20))
        tracemalloc.start()
        try:
            raws = list(read_values(source))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [(raw.number, raw.oversized) for raw in raws] == [(0, False), (1, True), (2, False)]
    assert (raws[1].byte_offset, raws[1].byte_length) == (8, len(line) + 1)
    assert raws[1].digest == sha256(line + b"\r").digest()[:8]
    assert raws[2].line == 3
    assert peak_bytes < 6_000_000


def test_the_bound_holds_for_short_lines_too():
    raws = read(b'{"a":1}\n{"b":"xxxxxxxxxxxxxxxxxxxx"}\n{"c":2}\n', record_bytes=20)
    assert [(raw.value, raw.oversized) for raw in raws] == [
        ({"a": 1}, False), (None, True), ({"c": 2}, False),
    ]  # fmt: skip


def test_an_unterminated_record_above_the_bound_has_no_number_yet():
    data = b'{"a":1}\n{"b":"' + b"x" * 100
    assert len(read(data, record_bytes=50)) == 1
    assert [raw.oversized for raw in read(data + b'"}\n', record_bytes=50)] == [False, True]


# ---------------------------------------------------------------- the tail


@pytest.mark.parametrize("tail", ['{"b":2}', "[2]", '"two"', '{"b":2} ', '{"b":2}\r'])
def test_an_unterminated_tail_that_delimits_itself_is_provisional(tail: str):
    data = b'{"a":1}\n' + tail.encode()
    raws = read(data)
    assert [(raw.number, raw.provisional) for raw in raws] == [(0, False), (1, True)]
    assert [raw.provisional for raw in read(data, settle=True)] == [False, False]
    whole = read(data + b"\n")
    assert raws[1].digest == whole[1].digest
    assert raws[1].byte_length == whole[1].byte_length


@pytest.mark.parametrize(
    "tail", ['{"b":', "42", "tru", "null", "\0\0", "  ", "words", '{"b":"\xe4']
)
def test_a_tail_that_could_still_become_something_else_has_no_number(tail: str):
    data = b'{"a":1}\n' + tail.encode("latin-1")
    assert len(read(data)) == len(read(data, settle=True)) == 1


def test_values_glued_in_the_tail_are_provisional_up_to_the_torn_one():
    raws = read(b'{"a":1}{"b":2}{"c":')
    assert [(raw.value, raw.provisional) for raw in raws] == [({"a": 1}, True), ({"b": 2}, True)]


def test_what_is_glued_to_a_settled_tail_gets_the_next_number_on_the_same_line():
    settled = read(b'{"a":1}', settle=True)
    data = b'{"a":1}{"b":2}\n{"c":3}\n'
    assert settled + read(data, **resume_after(settled)) == read(data)


def test_the_newline_that_ends_a_settled_tail_is_no_blank_line():
    settled = read(b'{"a":1}', settle=True)
    assert read(b'{"a":1}\r\n', **resume_after(settled)) == []
    [later] = read(b'{"a":1}\r\n{"b":2}\n', **resume_after(settled))
    assert (later.number, later.line) == (1, 2)


# ---------------------------------------------------------------- properties

FRAGMENTS = st.sampled_from(
    [
        b'{"type":"user","uuid":"u","t":"\xe4\xb8\xad"}', b'{"parentUuid":null,"a":[1,2]}',
        b'{"timestamp":"t","payload":{}}', b'{"type":"torn","t":"half',
        b'{"kind":"x","c":[{"kind":', b'"text"', b"[1,2]", b"42", b"null", b"-", b"words", b"\0\0",
        b" ", b"\r", b"\xff", b"}", b",",
        b'{"s":"\\ud800"}', b'{"n":NaN}', b"\xe4\xb8", b'"', b"\\",
        b"\n", b"\n", b"\n", b"\r\n",
    ]
)  # fmt: skip
FILES = st.tuples(
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]), st.lists(FRAGMENTS, max_size=14).map(b"".join)
).map(b"".join)
UTF16_FILES = st.tuples(
    st.sampled_from(["utf-16-le", "utf-16-be"]), st.lists(FRAGMENTS, max_size=10).map(b"".join)
).map(lambda pair: ("\ufeff" + pair[1].decode("utf-8", "replace")).encode(pair[0]))
ANY_FILE = st.one_of(FILES, FILES, UTF16_FILES, st.binary(max_size=200))


@settings(max_examples=250, deadline=None)
@given(data=ANY_FILE, place=st.floats(0, 1), settle=st.booleans())
def test_any_cut_into_two_reads_gives_the_same_records_as_one_read(
    data: bytes, place: float, settle: bool
):
    cut = int(len(data) * place)
    before = read(data[:cut], settle=settle)
    committed = [raw for raw in before if not raw.provisional]
    after = read(data, **resume_after(before))
    whole = read(data)
    # A record settled at the cut has its end there, not behind a newline that came later.
    assert [raw[:8] + raw[9:10] for raw in committed + after] == [
        raw[:8] + raw[9:10] for raw in whole
    ]
    assert after == whole[len(committed) :]


@settings(max_examples=250, deadline=None)
@given(data=ANY_FILE)
def test_whatever_the_bytes_records_are_numbered_in_order_and_placed_where_they_stand(data: bytes):
    raws = read(data)
    assert [raw.number for raw in raws] == list(range(len(raws)))
    at, line = 0, 1
    for raw in raws:
        assert raw.byte_offset >= at
        assert raw.line >= line
        at, line = raw.byte_offset + raw.byte_length, raw.line
        assert raw.end >= at
        body = data[raw.byte_offset : at]
        assert raw.digest == sha256(body).digest()[:8]
        json.dumps(raw.value, ensure_ascii=False).encode()
    assert at <= len(data)


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(FRAGMENTS.filter(lambda part: b"\n" not in part), min_size=1, max_size=8),
    place=st.integers(0, 8),
    garbage=st.sampled_from([b"words", b"}", b"\xff\xfe", b'{"type":"torn', b"", b"\0"]),
)
def test_an_inserted_garbage_line_moves_later_records_by_one_and_changes_no_other(
    lines: list[bytes], place: int, garbage: bytes
):
    place = min(place, len(lines))
    first = b"{}\n"  # So that no fragment stands where a byte order mark would.
    before = first + b"".join(line + b"\n" for line in lines[:place])
    after = b"".join(line + b"\n" for line in lines[place:])
    plain, disturbed = read(before + after), read(before + garbage + b"\n" + after)
    kept = len(read(before))
    assert disturbed[:kept] == plain[:kept]
    assert [(raw.number, raw.line, raw.value, raw.digest) for raw in disturbed[kept + 1 :]] == [
        (raw.number + 1, raw.line + 1, raw.value, raw.digest) for raw in plain[kept:]
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_lines_of_any_json_are_read_as_they_were_written(written: list[Any], is_ascii: bool):
    # Surrogates cannot be written raw; as escapes they have their own test.
    lines = [
        json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace") for value in written
    ]
    expected = [json.loads(line) for line in lines]
    assert [compact_json(raw.value) for raw in read(b"".join(line + b"\n" for line in lines))] == [
        compact_json(value) for value in expected
    ]


def test_lines_across_read_blocks_are_whole():
    lines = [
        b'{"n":%d,"t":"%s"}' % (number, b"x" * (number * 997 % 90_000)) for number in range(99)
    ]
    raws = read(b"\n".join(lines))
    assert [raw.value for raw in raws] == [json.loads(line) for line in lines]
    assert [raw.provisional for raw in raws] == [False] * 98 + [True]


# ---------------------------------------------------------------- recognition


def test_the_head_gives_its_objects_and_leaves_out_what_cannot_be_read(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'\xef\xbb\xbf\0\0\nwords\n[1]\n{"a":1}{"b":2}\n{"c":3}')
    source = SourceFile(path)
    assert list(head_objects(source.head(), source)) == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_first_line_longer_than_the_head_is_read_to_its_end(tmp_path: Path, encoding: str):
    path = tmp_path / "x"
    first = {"text": "x" * (HEAD_BYTES * 2), "type": "user"}
    path.write_bytes(f'\ufeff{json.dumps(first)}\n{{"b":1}}\n'.encode(encoding))
    source = SourceFile(path)
    assert list(head_objects(source.head(), source)) == [first]


def test_a_first_line_above_the_bound_is_not_read_for_recognition(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"a":"' + b"x" * HEAD_BYTES * 2 + b'"}\n{"b":1}\n')
    source = SourceFile(path, options=SourceOptions(record_bytes=HEAD_BYTES))
    assert list(head_objects(source.head(), source)) == []


def test_a_line_that_the_head_cuts_is_left_out(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"a":1}\n{"b":"' + b"x" * HEAD_BYTES + b'"}\n')
    source = SourceFile(path)
    assert list(head_objects(source.head(), source)) == [{"a": 1}]


@pytest.mark.parametrize(
    "value, expected",
    [
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-01T00:00:01", 1000),
        (1_767_225_600_000, 1_767_225_600_000),
        ("yesterday", None),
        ("", None),
        (None, None),
        (True, None),
        (float("nan"), None),
        (10**30, None),
        ([], None),
    ],
)
def test_times_are_epoch_milliseconds_or_nothing(value: Any, expected: int | None):
    assert epoch_ms(value) == expected


# ---------------------------------------------------------------- the parser base


class CountingParser(LineParser):
    """Numbers its objects, titles the session with the last text and renders values."""

    seen = 0

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        self.seen += 1
        self.header.title = str(value.get("t", ""))
        record.items = [Item(0, "user", f"{self.seen} {compact_json(value)}")]

    def save(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load(self, own: dict[str, Any]) -> None:
        self.seen = own["seen"]


def counting(path: Path, state: dict[str, Any] | None = None) -> CountingParser:
    header = SessionHeader("s", "chat", "test")
    return CountingParser(SourceFile(path), SessionStub("s"), header, state)


def test_a_parser_resumes_after_every_record_with_the_same_result(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"t":"a"}{"t":"b"}\n\nwords\n7\n{"t":"c"}\n{"t":"d"}')
    parser = counting(path)
    states = [parser.state()]
    records: list[Record] = []
    for record in parser.records():
        records.append(record)
        states.append(json.loads(json.dumps(parser.state())))
    assert [record.items[0].text for record in records if record.items] == [
        '1 {"t":"a"}', '2 {"t":"b"}', '3 {"t":"c"}', '4 {"t":"d"}',
    ]  # fmt: skip
    for count, state in enumerate(states[:-1]):
        assert list(counting(path, state).records()) == records[count:]


def test_the_provisional_tail_changes_no_state(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"t":"a"}\n{"t":"b"}{"t":"c"}')
    parser = counting(path)
    assert [record.provisional for record in parser.records()] == [False, True, True]
    state = parser.state()
    assert (state["number"], state["own"], state["header"]["title"]) == (1, {"seen": 1}, "a")
    assert parser.header.title == "c"


def test_a_settled_tail_is_committed(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"t":"a"}\n{"t":"b"}{"t":')
    parser = counting(path)
    parser.settle = True
    assert [record.provisional for record in parser.records()] == [False, False]
    assert parser.state()["number"] == 2
    assert parser.state()["offset"] == len(b'{"t":"a"}\n{"t":"b"}')


def test_a_value_too_deep_to_render_is_a_corrupt_record_and_the_next_is_read(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"a":' * 1000 + b"1" + b"}" * 1000 + b'\n{"t":"b"}\n')
    deep, plain = counting(path).records()
    assert deep.corrupt == "nested too deeply"
    assert not deep.items
    assert plain.items


def test_oversized_records_are_flagged(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b'{"t":"aaaaaaaaaaaaaaaaaaaa"}\n{"t":"b"}\n')
    source = SourceFile(path, options=SourceOptions(record_bytes=16))
    parser = CountingParser(source, SessionStub("s"), SessionHeader("s", "chat", "test"))
    first, second = parser.records()
    assert first.oversized
    assert not first.items
    assert second.items
