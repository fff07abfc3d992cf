"""All terms of the index as blobs that can be searched for a part of a term.

A blob is newline-joined UTF-8, in no order, and is never changed; `lexicon.json` names the blobs
that count. Extra and repeated terms are harmless, missing ones are not: the manifest says below
which `seq` every document is covered, and a search takes the documents above it as candidates.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import orjson

from sessiondex.errors import Damaged

MANIFEST: Final = "lexicon.json"
MAX_BLOBS: Final = 16
"""With more, the smaller half becomes one: each lookup pays for every blob."""

_CHUNK: Final = 1 << 20

Blob = bytes | mmap.mmap


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which documents the lexicon covers, and what it would cost to cover the rest."""

    below_seq: int = 0
    """Every term of every document with a smaller `seq` is in the blobs."""
    covered_bytes: int = 0
    """Text covered, by which listing the whole index is weighed against reading new texts."""
    uncovered_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lexicon:
    """An immutable state of the lexicon; its blobs stay readable after they are replaced."""

    folder: Path | None
    coverage: Coverage = Coverage()
    names: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()
    next_number: int = 1

    def suffixed(self, ending: str, limit: int) -> list[str] | None:
        """Terms that end with the text; None when there are more than the limit."""
        return self._find(ending.encode() + b"\n", limit)

    def containing(self, part: str, limit: int) -> list[str] | None:
        """Terms that hold the text anywhere; None when there are more than the limit."""
        return self._find(part.encode(), limit)

    def _find(self, needle: bytes, limit: int) -> list[str] | None:
        found: set[bytes] = set()
        for blob in self.blobs:
            for chunk in _chunks(blob):
                at = chunk.find(needle)
                while at >= 0:
                    start = chunk.rfind(b"\n", 0, at) + 1
                    stop = chunk.find(b"\n", at)
                    found.add(chunk[start:stop])
                    if len(found) > limit:
                        return None
                    at = chunk.find(needle, stop)
        return sorted(term.decode() for term in found)

    # ------------------------------------------------------------ states on disk

    @classmethod
    def load(cls, folder: Path, known: Lexicon | None = None) -> Lexicon:
        """Opens the state that the manifest names; shares blobs with a known state.

        Raises:
            Damaged: if the manifest does not parse or a blob has another size than it says.
        """
        path = folder / MANIFEST
        open_blobs = dict(zip(known.names, known.blobs, strict=True)) if known else {}
        while True:
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return cls(folder)
            try:
                manifest: dict[str, Any] = orjson.loads(data)
                if manifest.pop("crc") != crc32(orjson.dumps(manifest)):
                    raise Damaged(f"the lexicon manifest {path} has changed (crc32 check)")
                coverage = Coverage(*manifest["coverage"])
                names = tuple(manifest["blobs"])
                sizes = manifest["sizes"]
                next_number = manifest["next"]
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                raise Damaged(f"cannot read the lexicon manifest {path}: {error!r}") from error
            try:
                blobs = tuple(
                    open_blobs.get(name) or _map(folder / name, size)
                    for name, size in zip(names, sizes, strict=True)
                )
            except FileNotFoundError as error:
                # A writer may have replaced the blobs since, or taken all away; else one is lost.
                if _bytes_of(path) == data:
                    raise Damaged(
                        f"lexicon blob {error.filename} is missing",
                        hint="rebuild the index from the item store",
                    ) from error
                continue
            return cls(folder, coverage, names, blobs, next_number)

    def is_current(self) -> bool:
        """Whether the manifest on disk still names this state."""
        if self.folder is None:
            return True
        try:
            return (self.folder / MANIFEST).read_bytes() == self._manifest()
        except FileNotFoundError:
            return not self.names and self.coverage == Coverage()

    def with_coverage(self, coverage: Coverage) -> Lexicon:
        """Writes a state with other coverage; the same object when nothing changes."""
        return self if coverage == self.coverage else replace(self, coverage=coverage)._written()

    def with_terms(self, terms: Iterable[str], coverage: Coverage) -> Lexicon:
        """Writes a state that has more terms."""
        data = _joined(terms)
        if not data:
            return self.with_coverage(coverage)
        grown = replace(self, coverage=coverage)._with_blob(data)
        if len(grown.names) > MAX_BLOBS:
            grown = grown._merged()
        return grown._written(keep=self.names)

    def replaced(self, terms: Iterable[str], coverage: Coverage) -> Lexicon:
        """Writes a state that has these terms only."""
        empty = replace(self, coverage=coverage, names=(), blobs=())
        return empty._with_blob(_joined(terms))._written(keep=self.names)

    def _with_blob(self, data: bytes) -> Lexicon:
        name = f"lexicon-{self.next_number}.terms"
        if self.folder is not None and data:
            _write(self.folder / name, data)
        return replace(
            self,
            names=(*self.names, name) if data else self.names,
            blobs=(*self.blobs, data) if data else self.blobs,
            next_number=self.next_number + 1,
        )

    def _merged(self) -> Lexicon:
        """The smaller half of the blobs as one: each term is copied a logarithm of times."""
        by_size = sorted(zip(self.names, self.blobs, strict=True), key=lambda pair: len(pair[1]))
        half = len(by_size) // 2
        small, large = by_size[:half], by_size[half:]
        terms = {term for _, blob in small for term in blob[:].split(b"\n")} - {b""}
        rest = replace(
            self, names=tuple(name for name, _ in large), blobs=tuple(blob for _, blob in large)
        )
        return rest._with_blob(b"".join(term + b"\n" for term in terms))

    def _manifest(self) -> bytes:
        coverage = self.coverage
        manifest: dict[str, Any] = {
            "coverage": [coverage.below_seq, coverage.covered_bytes, coverage.uncovered_bytes],
            "blobs": self.names,
            "sizes": [len(blob) for blob in self.blobs],
            "next": self.next_number,
        }
        return orjson.dumps({**manifest, "crc": crc32(orjson.dumps(manifest))})

    def _written(self, keep: tuple[str, ...] = ()) -> Lexicon:
        if self.folder is None:
            return self
        _write(self.folder / MANIFEST, self._manifest())
        for name in set(keep) - set(self.names):
            (self.folder / name).unlink(missing_ok=True)
        return self


def _chunks(blob: Blob) -> Iterator[bytes]:
    """Copies of a blob that end with whole terms: `bytes.find` is much faster than `mmap.find`."""
    start = 0
    while start < len(blob):
        stop = start + _CHUNK
        stop = len(blob) if stop >= len(blob) else blob.rfind(b"\n", start, stop) + 1
        yield blob[start:stop]
        start = stop


def _joined(terms: Iterable[str]) -> bytes:
    return "".join(f"{term}\n" for term in terms).encode()


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _map(path: Path, size: int) -> Blob:
    with open(path, "rb") as file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise Damaged(
                f"lexicon blob {path} has {found} bytes, not {size}",
                hint="rebuild the index from the item store",
            )
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def _write(path: Path, data: bytes) -> None:
    """Replaces a file whole: a crash leaves the old or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
