"""Detection: each file is claimed by its own format or by none, by content alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.sources import FORMATS, detect, format_named, recognise
from sessiondex.indexer.sources.base import SourceFile

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples"

EXPECTED = {
    "atif": "atif",
    "growth/claude-2a55af89": "claude_code",
    "growth/gemini-rewritten": None,
    "home/.claude": "claude_code",
    "home/.codex": "codex",
    "inspect": None,
    "mini_swe_agent/deepseek": None,
    # The older files of mini-swe-agent are bare lists of messages, which is what plain chat is.
    "mini_swe_agent/tests": "chat",
    "swe_agent": None,
    "README.md": None,
}


def write(path: Path, data: bytes) -> SourceFile:
    path.write_bytes(data)
    return SourceFile(path)


def name_of(source: SourceFile) -> str | None:
    found = detect(source)
    return found.name if found else None


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples")
def test_each_real_file_is_claimed_by_its_own_format_or_by_none() -> None:
    paths = [path for path in SAMPLES.rglob("*") if path.is_file()]
    assert len(paths) > 30
    for path in paths:
        relative = path.relative_to(SAMPLES).as_posix()
        expected = next(name for start, name in EXPECTED.items() if relative.startswith(start))
        assert name_of(SourceFile(path)) == expected, relative


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples")
def test_no_real_file_is_claimed_by_two_formats() -> None:
    for path in SAMPLES.rglob("*"):
        if path.is_file():
            source = SourceFile(path)
            head = source.head()
            assert sum(each.matches(head, source) for each in FORMATS) <= 1, path.name


def session(name: str) -> bytes:
    message = {"role": "user", "content": "hi"}
    values: dict[str, list[Any]] = {
        "claude_code": [
            {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "message": message}
        ],
        "codex": [{"timestamp": "2026-01-02T03:04:05Z", "type": "session_meta",
                   "payload": {"id": "s", "cwd": "/app"}}],
        "yoi": [{"kind": "segment_start", "ts": 1, "session_id": "s", "history": []}],
        "codex_document": [{"session": {"id": "s"}, "items": [message]}],
        "atif": [{"schema_version": "ATIF-v1.6", "agent": {}, "steps": []}],
        "chat_lines": [message, message],
        "chat": [{"messages": [message]}],
    }  # fmt: skip
    return b"".join(json.dumps(value).encode() + b"\n" for value in values[name])


@pytest.mark.parametrize("name", [each.name for each in FORMATS])
def test_a_format_is_recognised_whatever_the_file_is_called_and_however_it_is_packed(
    tmp_path: Path, name: str
) -> None:
    data = session(name)
    packed = zstandard.ZstdCompressor().compress(data)
    assert name_of(write(tmp_path / "notes.txt", data)) == name
    assert name_of(write(tmp_path / "notes.bin", packed)) == name
    assert format_named(name).name == name


def test_names_of_formats_are_unique_and_others_are_refused() -> None:
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    with pytest.raises(InvalidArgument, match="unknown format 'gemini'"):
        format_named("gemini")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the file itself"),
        (b"\x28\xb5\x2f\xfd" + b"\xff" * 99, "damaged compression"),
        (zstandard.compress(b'{"a": 1}')[:-3], "damaged compression (the file was cut)"),
        (zstandard.compress(b""), "empty file"),
        (b"\0" * 100_000, "no session of a known format"),
        (b"\x89PNG\r\n\x1a\n\0\0", "no session of a known format"),
        (b'{"a": 1}', "no session of a known format"),
        (b"[" * 100_000, "no session of a known format"),
        (b'{"a":' * 100_000, "no session of a known format"),
    ],
)  # fmt: skip
def test_what_cannot_be_indexed_has_a_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    found = recognise(write(tmp_path / "f.jsonl", data))
    assert found.format is None
    assert found.reason.startswith(reason)


def test_a_file_that_cannot_be_opened_has_a_reason(tmp_path: Path) -> None:
    assert recognise(SourceFile(tmp_path / "gone")).reason == (
        "unreadable: No such file or directory"
    )
    assert recognise(SourceFile(tmp_path)).reason == "unreadable: Is a directory"


@given(st.binary(max_size=200))
def test_any_bytes_are_recognised_or_not_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-detect"
    for prefix in (b"", b"{", b"[", b'{"messages":[', b"\xff\xfe{\0", b"\x28\xb5\x2f\xfd"):
        found = recognise(write(path, prefix + data))
        assert found.format is not None or found.reason
