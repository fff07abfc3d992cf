"""Documents: JSON as tools leave it, bounded reading, records named by pointer."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import islice
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import Failed
from sessiondex.indexer.sources.base import SourceFile, SourceOptions
from sessiondex.indexer.sources.documents import (
    Cut,
    DocumentParser,
    array_elements,
    base64_bytes,
    element_digest,
    epoch_milliseconds,
    file_stem,
    leading_elements,
    leading_fields,
    parse_json,
    read_document,
    url_attachment,
)
from sessiondex.model import Attachment, Item, Record, SessionHeader

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


def document(path: Path, data: bytes, **options: int) -> SourceFile:
    path.write_bytes(data)
    return SourceFile(path, options=SourceOptions(**options))


class Listing(DocumentParser):
    """Shows the text of every element."""

    def parse(self, record: Record, value: dict[str, object]) -> None:
        record.items = [Item(0, "user", str(value.get("text")))]


def listing(values: object, state: dict[str, int] | None = None) -> Listing:
    header = SessionHeader("s", "chat", "chat")
    return Listing(header, array_elements("/steps", values), state)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom"])
def test_a_document_is_read_in_every_encoding_that_editors_write(
    tmp_path: Path, encoding: str
) -> None:
    text = '{"text": "größer 漢字 🙂"}'
    if encoding == "utf-16-le-bom":
        data = b"\xff\xfe" + text.encode("utf-16-le")
    else:
        data = text.encode(encoding)
    assert read_document(document(tmp_path / "d", data)) == {"text": "größer 漢字 🙂"}


def test_a_compressed_document_is_read_like_a_plain_one(tmp_path: Path) -> None:
    data = zstandard.ZstdCompressor().compress(b'{"a": 1}')
    assert read_document(document(tmp_path / "d.zst", data)) == {"a": 1}


def test_damaged_compression_is_named_as_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="damaged compression"):
        read_document(document(tmp_path / "d", b"\x28\xb5\x2f\xfd" + b"\xff" * 99))


def test_a_document_above_the_bound_is_refused_by_the_name_of_the_setting(tmp_path: Path) -> None:
    source = document(tmp_path / "d", b'{"a": "' + b"x" * 100 + b'"}', document_bytes=50)
    with pytest.raises(Failed, match=r"50 bytes.*document_bytes"):
        read_document(source)


def test_a_document_of_exactly_the_bound_is_read(tmp_path: Path) -> None:
    data = b'{"a": 12345}'
    assert read_document(document(tmp_path / "d", data, document_bytes=len(data)))


def test_a_git_lfs_pointer_is_named_as_one(tmp_path: Path) -> None:
    data = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    with pytest.raises(Failed, match=r"Git LFS pointer.*git lfs pull"):
        read_document(document(tmp_path / "d", data))


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"a": }', b'{"a": 1} {"b": 2}', b"\x80\x81", b"[" * 200_000]
)
def test_what_is_not_one_json_value_is_refused_with_the_reason(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Failed, match=r"not a valid JSON document: ."):
        read_document(document(tmp_path / "d", data))


def test_values_that_strict_parsers_refuse_are_read() -> None:
    value = parse_json(b'{"score": NaN, "text": "a\\ud800b", "id": 123456789012345678901234567890}')
    assert value["score"] != value["score"]
    assert value["text"] == "a\ufffdb"
    assert value["id"] == 123456789012345678901234567890


def test_surrogate_pairs_are_one_character_and_lone_ones_are_replaced() -> None:
    assert parse_json(b'{"\\ud83d\\ude42": ["\\ude42", NaN]}').popitem()[0] == "🙂"
    assert parse_json('["\ud800", "\\udfff"]') == ["\ufffd", "\ufffd"]


def test_an_integer_longer_than_python_converts_is_kept_as_its_digits() -> None:
    digits = "7" * 5000
    assert parse_json(f'{{"n": {digits}}}'.encode()) == {"n": digits}


@given(JSON_VALUES)
def test_parsing_gives_what_was_written(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


# ---------------------------------------------------------------- heads


@given(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=5), st.integers(0, 400))
def test_the_leading_fields_of_a_cut_object_are_its_first_fields(
    value: dict[str, object], cut: int
) -> None:
    whole = json.dumps(value).encode()
    fields = leading_fields(whole[:cut])
    assert list(fields) == list(value)[: len(fields)]
    for name, field in fields.items():
        assert isinstance(field, Cut) or field == value[name] or not isinstance(value[name], dict)


def test_a_cut_array_shows_its_whole_elements() -> None:
    fields = leading_fields(b'{"a": 1, "messages": [{"role": "user"}, {"ro')
    assert fields == {"a": 1, "messages": Cut([{"role": "user"}])}
    assert leading_elements(b' [{"role": "user"}, {"ro') == [{"role": "user"}]


@given(st.binary(max_size=80))
def test_any_bytes_have_leading_fields_and_elements(data: bytes) -> None:
    assert isinstance(leading_fields(data), dict)
    assert isinstance(leading_elements(data), list)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-02T03:04:05.678Z", 1767323045678),
        ("2026-01-02T03:04:05+02:00", 1767315845000),
        ("2026-01-02T03:04:05", 1767323045000),
        (1767323045, 1767323045000),
        (1767323045.5, 1767323045500),
        (1767323045678, 1767323045678),
        ("yesterday", None),
        (True, None),
        (float("nan"), None),
        (-1, None),
        (1e300, None),
        (None, None),
        ([], None),
    ],
)
def test_times_are_read_in_the_units_that_tools_write(value: object, expected: int | None) -> None:
    assert epoch_milliseconds(value) == expected


def test_sizes_of_attachments_are_those_of_the_decoded_body() -> None:
    assert base64_bytes("aGVsbG8=") == 5
    assert base64_bytes(None) == 0
    assert url_attachment("data:image/png;base64,aGVsbG8=", "image") == Attachment("image/png", 5)
    assert url_attachment("https://example.org/a.png", "image") == Attachment("image", 0)


def test_the_stem_of_a_file_leaves_out_its_compression() -> None:
    assert file_stem(Path("a/trajectory.cont-1.json")) == "trajectory.cont-1"
    assert file_stem(Path("a/trajectory.json.zst")) == "trajectory"


# ---------------------------------------------------------------- records


def test_every_element_is_a_record_named_by_its_pointer() -> None:
    records = list(listing([{"text": "a"}, None, 7, {"text": "b"}]).records())
    assert [(r.number, r.pointer) for r in records] == [
        (0, "/steps/0"), (1, "/steps/1"), (2, "/steps/2"), (3, "/steps/3"),
    ]  # fmt: skip
    assert [len(r.items) for r in records] == [1, 0, 0, 1]
    assert {(r.byte_offset, r.byte_length, r.line, r.blocks) for r in records} == {(0, 0, 0, 1)}


def test_the_digest_is_that_of_the_compact_json() -> None:
    value = {"b": [1, 2], "a": "ä"}
    expected = sha256('{"b":[1,2],"a":"ä"}'.encode()).digest()[:8]
    assert element_digest(value) == expected
    assert next(listing([value]).records()).digest == expected


@given(st.lists(JSON_VALUES, max_size=8), st.integers(0, 8))
def test_resuming_yields_the_records_that_were_not_yielded_before(
    values: list[object], stop: int
) -> None:
    whole = list(listing(values).records())
    parser = listing(values)
    seen = list(islice(parser.records(), stop))
    resumed = listing(values, json.loads(json.dumps(parser.state())))
    assert seen + list(resumed.records()) == whole
    assert resumed.state() == {"number": len(values)}


def test_an_element_nested_too_deeply_is_a_corrupt_record_and_stops_nothing() -> None:
    deep: object = "x"
    for _ in range(100_000):
        deep = [deep]
    first, second = listing([{"text": deep}, {"text": "b"}]).records()
    assert first.corrupt == "nested too deeply"
    assert len(first.digest) == 8
    assert second.items[0].text == "b"


def test_no_array_holds_no_records() -> None:
    assert list(listing({"text": "a"}).records()) == []
