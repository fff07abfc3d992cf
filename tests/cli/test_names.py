"""Names on the command line: as short as is unique, and taken back wherever they are printed."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.cli.names import Place, ShortNames, place_of, short_ref, split_word
from sessiondex.errors import NotFound, SessiondexError, UsageError
from sessiondex.indexer.catalog_rows import SourceRow
from sessiondex.indexer.library import Library
from sessiondex.indexer.writing import LibraryWriter
from sessiondex.model import Item, Record, SessionHeader

from .conftest import CommandLine

IDS = st.lists(st.text("ab-", min_size=1, max_size=7), min_size=1, max_size=6, unique=True)


def library_of(ids: list[str]) -> Library:
    library = Library.in_memory()
    with library.writing() as epoch:
        writer = LibraryWriter(epoch, heap_bytes=15_000_000, now_ms=lambda: 0)
        for session in ids:
            header = SessionHeader(session, "host", "items")
            source = SourceRow(0, "", "", "items", 1)
            sink = writer.new_session(
                header, source, parser_version=1, selector="", session_id=session
            )
            record = Record(0, 0, 0, 0, b"12345678", items=[Item(0, "user", "hello")])
            writer.add(sink, record, sink.assembler.assemble(record))
        writer.commit([])
        writer.close()
    return library


@given(IDS, st.data())
def test_a_short_name_resolves_to_its_session_and_no_shorter_one_does(
    parents: list[str], data: st.DataObject
) -> None:
    below = data.draw(st.lists(st.tuples(st.sampled_from(parents), st.text("xy", min_size=1))))
    ids = sorted({*parents, *(f"{parent}/{name}" for parent, name in below)})
    snapshot = library_of(ids).snapshot()
    names = ShortNames(snapshot)
    for session in ids:
        name = names.of(session)
        assert snapshot.resolve(name) == session
        for length in range(4, len(name)):
            with suppress(SessiondexError):
                assert snapshot.resolve(name[:length]) != session


def test_the_beginning_of_a_parent_and_its_sub_agents_names_the_parent() -> None:
    ids = ["abcd1", *(f"abcd1/agent-{n}" for n in range(8)), "abcd2", "zz/only"]
    snapshot = library_of(ids).snapshot()
    assert snapshot.resolve("abcd1") == "abcd1"
    with pytest.raises(SessiondexError, match="several"):
        snapshot.resolve("abcd")
    assert snapshot.resolve("z") == "zz/only"
    with pytest.raises(NotFound):
        snapshot.resolve("q")


def test_session_and_ref_are_split_where_the_ref_begins() -> None:
    assert split_word("abc:E12") == ("abc", "E12")
    assert split_word("abc:E12.3") == ("abc", "E12.3")
    assert split_word("abc") == ("abc", "")
    assert split_word("/home/a:b/c.jsonl") == ("/home/a:b/c.jsonl", "")
    assert split_word("/home/a:b/c.jsonl:E4") == ("/home/a:b/c.jsonl", "E4")
    assert split_word("abc:e12") == ("abc", "e12")  # refused later, with what was expected
    assert split_word(":E12") == (":E12", "")


def test_words_name_one_session_and_its_refs() -> None:
    assert place_of(["abc:E1", "E2", "abc:E3"]) == Place("abc", ["E1", "E2", "E3"])
    assert place_of(["abc", "E2", "-x"]) == Place("abc", ["E2", "-x"])
    for words in (["abc"], ["abc:E1", "abd:E2"]):
        with pytest.raises(UsageError):
            place_of(words)


def test_refs_are_printed_without_the_zeros() -> None:
    assert short_ref("E00000012") == "E12"
    assert short_ref("E00000000.3") == "E0.3"


def test_a_name_with_control_characters_is_one_harmless_line(
    command_line: CommandLine, tmp_path: Path
) -> None:
    record = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "hello"}}
    path = tmp_path / "new\nline\x1b[31m.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    library = ("--library", str(tmp_path / "library"))
    assert command_line("index", str(path), *library).code == 0
    session = path.stem
    shown = "new␊line␛[31m"
    for words in (
        ("sessions",), ("search", "hello"), ("list", session), ("resolve", session, "E0"),
        ("list", str(path)), ("open", session, "E0"), ("check",), ("forget", session),
    ):  # fmt: skip
        ended = command_line(*words, *library)
        assert ended.code == 0, ended.err
        assert "\x1b" not in ended.out + ended.err, words
        assert len(ended.lines) == 1, words
        assert words == ("check",) or shown[:4] in ended.out
    path.unlink()
    missing = command_line("list", session, *library)
    assert (missing.code, missing.err.count("\x1b")) == (3, 0)
