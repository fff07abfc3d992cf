"""`export`: every format holds every entry, masked; hits alone where they are asked for."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sessiondex.cli.demo_sessions import CODEX_ID
from sessiondex.indexer.library import Library
from sessiondex.query.export import session_rows, write_export

from .conftest import CommandLine


def test_jsonl_holds_every_entry_of_the_library(demo: CommandLine) -> None:
    rows = demo("export").json_lines
    assert len(rows) == demo("stats", "--json").json["entries"]["total"]
    codex = [row for row in rows if row["session"] == CODEX_ID]
    listed = demo("list", CODEX_ID, "--all", "--jsonl").json_lines
    assert [row["entry_ref"] for row in codex] == [line["entry_ref"] for line in listed]
    assert codex[1]["text"].startswith("長崎")
    assert codex[1]["project"] == "/home/ada/tidewatch"


def test_columns_hold_what_jsonl_holds(demo: CommandLine, tmp_path: Path) -> None:
    rows = demo("export").json_lines
    for name in ("all.parquet", "all.arrow"):
        path = tmp_path / name
        ended = demo("export", "--output", str(path))
        assert ended.code == 0, ended.err
        assert f"{len(rows)} entries in {path}" in ended.err
        if name.endswith("parquet"):
            table = pq.read_table(path)
        else:
            with pa.memory_map(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
        columns = table.to_pylist()
        assert columns == [{key: row.get(key) for key in columns[0]} for row in rows]
        assert path.stat().st_mode & 0o777 == 0o600


def test_markdown_is_for_reading(demo: CommandLine) -> None:
    text = demo("export", CODEX_ID, "--format", "markdown").out
    assert text.startswith(f"# {CODEX_ID}\n\ncodex, /home/ada/tidewatch\n")
    assert "## E00000004 · user message · 2026-04-01T08:15:35.000Z\n\n長崎" in text
    assert "```\nshell\ncommand:" in text


def test_hits_alone_are_exported_as_search_finds_them(demo: CommandLine) -> None:
    for words in (("offset",), ("offset", "--literal"), ("o.fset", "--regex")):
        exported = demo("export", "--hits", *words).json_lines
        found = demo("search", *words, "--all", "--jsonl").json_lines
        assert {(row["session"], row["entry_ref"]) for row in exported} == {
            (hit["session"], hit["entry_ref"]) for hit in found
        }
    inside = demo("export", "019d3", "--hits", "満潮").json_lines
    assert [row["entry_ref"] for row in inside] == ["E00000004", "E00000014"]
    assert demo("export", "--hits", "--csv", "--literal", "--agent", "harbor").json_lines


def test_filters_choose_the_sessions(demo: CommandLine) -> None:
    rows = demo("export", "--agent", "codex").json_lines
    assert {row["session"] for row in rows} == {CODEX_ID}
    assert demo("export", "--project", "nowhere").out == ""


def test_credentials_are_masked_in_every_format(command_line: CommandLine, tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": f"token {secret} here"}]))
    for form in ("jsonl", "markdown", "arrow", "parquet"):
        path = tmp_path / f"out.{form}"
        words = ("export", str(chat), "--format", form, "--output", str(path))
        assert command_line(*words).code == 0
        assert secret.encode() not in path.read_bytes()
        assert command_line(*words, "--reveal").code == 2
        assert command_line(*words, "--reveal", is_terminal=True).code == 0
    assert secret.encode() in (tmp_path / "out.jsonl").read_bytes()


def test_an_export_that_fails_leaves_no_file(demo: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    assert demo("export", "nothing", "--output", str(path)).code == 3
    assert list(tmp_path.glob("x.jsonl*")) == []
    assert demo("export", "--output", str(tmp_path / "no/folder.jsonl")).code == 1
    reply = demo("export", CODEX_ID, "--output", str(path), "--json").json
    assert reply == {"entries": 8, "file": str(path), "format": "jsonl"}


def test_an_export_never_replaces_a_link_or_a_device(demo: CommandLine, tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.jsonl", tmp_path / "link.jsonl", tmp_path / "pipe.jsonl"
    real.write_text("old")
    link.symlink_to(real)
    assert demo("export", CODEX_ID, "--output", str(link)).code == 0
    assert link.is_symlink()
    assert len(real.read_text().splitlines()) == 8
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert demo("export", CODEX_ID, "--output", str(pipe)).code == 0
        assert os.read(descriptor, 1 << 20).count(b"\n") == 8
    finally:
        os.close(descriptor)
    assert pipe.is_fifo()


def test_memory_does_not_grow_with_the_export(demo_library: Path, tmp_path: Path) -> None:
    with Library.open(demo_library) as library:
        capture = library.capture(CODEX_ID, live=False)

        def rows(times: int):
            for _ in range(times):
                yield from session_rows(capture)

        peaks: list[int] = []
        for times in (1, 20, 60):
            with (tmp_path / "out.jsonl").open("wb") as file:
                tracemalloc.start()
                write_export(rows(times), file, "jsonl")
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    assert peaks[2] < peaks[1] * 1.5
