"""A source file, and the compression around it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from sessiondex.indexer.fingerprint import fingerprint
from sessiondex.indexer.sources.base import SourceFile


def frame(data: bytes, *, checksum: bool) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum).compress(data)


@pytest.mark.parametrize("checksum", [False, True])
def test_a_compressed_file_is_cut_unless_it_ends_with_a_frame(
    tmp_path: Path, checksum: bool
) -> None:
    skippable = b"\x53\x2a\x4d\x18\x05\0\0\0later"
    frames = [
        frame(bytes(range(256)) * 2, checksum=checksum),
        frame(b"x" * 300_000, checksum=checksum),  # blocks that repeat one byte
        skippable,
        frame(b"", checksum=checksum),
    ]
    ends = {sum(map(len, frames[:n])) for n in range(1, 5)}
    data = b"".join(frames)
    path = tmp_path / "x.zst"
    for size in range(4, len(data) + 1):
        path.write_bytes(data[:size])
        assert SourceFile(path).is_cut() == (size not in ends), size


def test_a_file_without_compression_is_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a')
    assert not SourceFile(path).is_cut()


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    os.mkfifo(path)
    asks: list[Callable[[], object]] = [
        lambda: SourceFile(path).is_compressed, SourceFile(path).open, SourceFile(path).head,
        lambda: fingerprint(path, 0),
    ]  # fmt: skip
    for ask in asks:
        told: list[BaseException] = []

        def asked(ask: Callable[[], object] = ask, told: list[BaseException] = told) -> None:
            try:
                ask()
            except OSError as error:
                told.append(error)

        thread = threading.Thread(target=asked, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive() and "not a regular file" in str(told)
