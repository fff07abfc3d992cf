"""The library: many sessions on disk under one folder, or in memory, by one code path.

    library.json            versions and the number of the current epoch
    catalog-<n>.sqlite3     catalog of epoch n
    items-<n>/              item store of epoch n
    index-<n>/              term index of epoch n
    writer.lock             held by the one writer

Refreshes append to the current epoch. What rewrites (`forget`, `check --repair`, a new index
version) builds the next epoch beside it and switches by renaming `library.json`: whoever has the
old one open keeps it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sessiondex.errors import Busy, Damaged, Failed, NotFound, UnsupportedVersion
from sessiondex.indexer.catalog import Catalog, put_meta
from sessiondex.indexer.item_store import ItemStore
from sessiondex.indexer.lock import writer_lock
from sessiondex.indexer.snapshot import LibrarySnapshot
from sessiondex.indexer.store_files import failing, sync_folder
from sessiondex.indexer.view import View

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.indexer.term_index import TermIndex, TermSearcher

FORMAT_VERSION: Final = 1
"""Version of library.json, catalog and item store."""

INDEX_VERSION: Final = 2
"""Version of the term index: fields, tokens, folding."""

CONSISTENT_TRIES: Final = 200


Stamp = tuple[int, int] | None
"""Tells one `library.json` from the next; None where there is none."""


class Epoch:
    """One catalog, item store and term index that belong together."""

    def __init__(self, number: int, catalog: Catalog, store: ItemStore, index: TermIndex | None):
        self.number = number
        self.catalog = catalog
        self.store = store
        self.index = index
        self.view = View(catalog, store)
        self._lock = threading.Lock()
        self._searcher: tuple[int, TermSearcher] | None = None
        self._held_commit = -1

    def hold(self, commit: int) -> None:
        """Opens all item files of a commit: a later rewrite removes only their names."""
        with self._lock:
            if self._held_commit != commit:
                self.store.pinned()
                self._held_commit = commit

    def searcher(self, commit: int) -> TermSearcher:
        """A searcher that holds at least what a commit made visible."""
        if self.index is None:
            raise Failed(
                "the term index was made by an older release",
                hint="run 'sessiondex index' to rebuild it",
            )
        with self._lock:
            if self._searcher is None or self._searcher[0] != commit:
                self._searcher = (commit, self.index.searcher())
            return self._searcher[1]

    def close(self) -> None:
        self.catalog.close()


class Library:
    """Sessions, captured and indexed. Readers and one writer, across threads and processes."""

    def __init__(
        self, path: Path | None, epoch: Epoch, *, stamp: Stamp = None, read_only: bool = False
    ) -> None:
        self.path = path
        self.is_read_only = read_only
        self._epoch = epoch
        self._stamp = stamp
        """Of the manifest that named the epoch."""
        self._lock = threading.RLock()
        self._writers_turn = threading.Lock()

    # ------------------------------------------------------------ opening

    @classmethod
    def in_memory(cls) -> Library:
        """An empty library that lives as long as the process."""
        return cls(None, create_epoch(None, 1))

    @classmethod
    def create(cls, path: str | Path) -> Library:
        """Makes an empty library, folder 0700 and files 0600, or opens the one that is there.

        Raises:
            Failed: when the folder cannot be made or holds something else.
        """
        folder = Path(path)
        if (folder / "library.json").exists():
            return cls.open(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            foreign = [p.name for p in folder.iterdir() if not _is_ours(p.name)]
            if foreign:
                raise Failed(
                    f"{folder} is no library and holds other files ({foreign[0]}, …)",
                    hint="name an empty or new folder with --library",
                )
            os.chmod(folder, 0o700)
        except OSError as error:
            raise Failed(
                f"the library folder cannot be made: {error.strerror}: {folder}",
                hint="name another folder with --library",
            ) from error
        with writer_lock(folder / "writer.lock", wait_seconds=30):
            if not (folder / "library.json").exists():
                if any(path.stat().st_size for path in folder.glob("items-*/*")):
                    raise Damaged(
                        f"{folder / 'library.json'} is missing, but there is an item store",
                        hint="run 'sessiondex check --repair'",
                    )
                remove_epochs(folder, keep=0)
                with closing(create_epoch(folder, 1)) as epoch:
                    _finish(epoch)
                    write_manifest(folder, 1)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path, *, read_only: bool = False) -> Library:
        """Opens a library; read-only if its folder cannot be written to.

        Raises:
            NotFound: there is none; says which command makes one.
            UnsupportedVersion: a newer release wrote it.
            Damaged: a part is missing or unreadable.
        """
        folder = Path(path)
        read_only = read_only or not os.access(folder, os.W_OK)
        stamp, epoch = _open_current(folder, read_only=read_only)
        return cls(folder, epoch, stamp=stamp, read_only=read_only)

    def close(self) -> None:
        """Closes the catalog; captures that were taken can no longer be read."""
        with self._lock:
            self._epoch.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ reading

    def epoch(self) -> Epoch:
        """The current epoch; opens the next one when a rewrite has switched to it."""
        with self._lock:
            if self.path is not None and (
                _stamp(self.path) != self._stamp or self._epoch.catalog.is_behind
            ):
                # The old epoch stays open for the captures that hold it.
                self._stamp, self._epoch = _open_current(self.path, read_only=self.is_read_only)
            return self._epoch

    def snapshot(self) -> LibrarySnapshot:
        """The library as it stands now: one commit, one searcher."""
        for _ in range(CONSISTENT_TRIES):
            epoch = self.epoch()
            with epoch.catalog.reading():
                commit, mark = epoch.catalog.meta("commit"), epoch.catalog.meta("seq")
                next_ord = epoch.catalog.meta("next_ord")
                refreshed_at = epoch.catalog.meta("refreshed_at")
            try:
                epoch.hold(commit)
                searcher = epoch.searcher(commit) if epoch.index is not None else None
            except (Damaged, Failed):
                if self.epoch() is not epoch:
                    continue  # its files went when another process switched to the next one
                raise
            # Deletions follow one commit behind, so an unchanged commit means nothing is missing.
            if epoch.catalog.meta("commit") == commit and self.epoch() is epoch:
                return LibrarySnapshot(
                    self, epoch.view, epoch=epoch.number, commit=commit, mark=mark,
                    next_ord=next_ord, searcher=searcher, refreshed_at=refreshed_at,
                )  # fmt: skip
        raise Failed("the library changes faster than it can be read", hint="try again later")

    def capture(self, session: str, *, live: bool = True, now: float | None = None) -> Capture:
        """A capture of a session as it stands now; see `LibrarySnapshot.capture`."""
        return self.snapshot().capture(session, live=live, now=now)

    # ------------------------------------------------------------ writing

    @contextmanager
    def writing(self, *, wait_seconds: float = 30.0) -> Generator[Epoch]:
        """Holds the writer lock; gives the epoch to write to, cleared of what a crash left.

        Raises:
            Busy: another writer holds it.
            Failed: the library was opened read-only or cannot be written.
        """
        if self.is_read_only:
            raise Failed(
                "the library was opened read-only", hint="open it for writing to change it"
            )
        if self.path is None:
            if not self._writers_turn.acquire(timeout=wait_seconds):
                raise Busy("another thread of this process writes to the library in memory")
            try:
                yield self.epoch()
            finally:
                self._writers_turn.release()
            return
        with writer_lock(self.path / "writer.lock", wait_seconds=wait_seconds):
            epoch = self.epoch()
            remove_epochs(self.path, keep=epoch.number)
            if epoch.catalog.is_frozen:  # opened when the disk was full
                with self._lock:
                    self._stamp, self._epoch = _open_current(self.path, read_only=False)
                    epoch = self._epoch
            yield epoch

    def switch(self, epoch: Epoch) -> None:
        """Makes a newly built epoch the current one; the writer lock must be held.

        Raises:
            Failed: the disk refused. Either the epoch is closed, and the next look at the library
                tells which one is current, or it is the current one and files of others stay.
        """
        with self._lock:
            if self.path is not None:
                try:
                    _finish(epoch)
                    write_manifest(self.path, epoch.number)
                except BaseException:
                    epoch.close()
                    raise
                self._stamp = _stamp(self.path)
            self._epoch = epoch
        if self.path is not None:
            remove_epochs(self.path, keep=epoch.number)

    def index(self, paths: Any = (), **options: Any) -> Any:
        """Indexes files and folders, or refreshes what is known; see `refresh.index_library`."""
        from sessiondex.indexer.refresh import index_library

        return index_library(self, paths, **options)


# ---------------------------------------------------------------- manifest and epochs


def read_manifest(folder: Path) -> dict[str, int]:
    """`library.json`.

    Raises:
        NotFound: there is no library.
        UnsupportedVersion: a newer release wrote it.
        Damaged: it cannot be read.
    """
    path = folder / "library.json"
    try:
        manifest = json.loads(path.read_bytes())
        version, index, epoch = (
            _number(manifest[name], least)
            for name, least in (("format_version", 1), ("index_version", 0), ("epoch", 1))
        )
    except FileNotFoundError:
        raise NotFound(
            f"no library at {folder}", hint="run 'sessiondex index' to make one"
        ) from None
    except OSError as error:
        raise Failed(
            f"the library cannot be read: {error.strerror}: {path}", hint="check its permissions"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(
            f"{path} is not a library manifest ({error})", hint="run 'sessiondex check --repair'"
        ) from error
    if version > FORMAT_VERSION or index > INDEX_VERSION:
        raise UnsupportedVersion(
            f"the library at {folder} was written by a newer release"
            f" (format {version}, index {index}; this one reads {FORMAT_VERSION}, {INDEX_VERSION})",
            hint="upgrade sessiondex, or use another library with --library",
        )
    return {"format_version": version, "index_version": index, "epoch": epoch}


def _number(value: int, least: int) -> int:
    if int(value) < least:
        raise ValueError(f"{value} is below {least}")
    return int(value)


def _finish(epoch: Epoch) -> None:
    """Says in the catalog what the manifest will say: the epoch is whole, and of which version."""
    with epoch.catalog.transaction() as db:
        put_meta(db, finished=1, index_version=INDEX_VERSION)


def write_manifest(folder: Path, epoch: int) -> None:
    """Replaces `library.json` atomically and durably.

    Raises:
        Failed: the disk refused; the file is the old one or the new one.
    """
    manifest = {"format_version": FORMAT_VERSION, "index_version": INDEX_VERSION, "epoch": epoch}
    temporary = folder / "library.json.new"
    with failing("write", folder / "library.json"):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(json.dumps(manifest).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, folder / "library.json")
        sync_folder(folder)


def create_epoch(folder: Path | None, number: int) -> Epoch:
    """Makes the empty files of an epoch; visible only once the manifest names it."""
    from sessiondex.indexer.term_index import TermIndex

    if folder is None:
        return Epoch(number, Catalog.create(None), ItemStore.create(None), TermIndex.create(None))
    items, index = folder / f"items-{number}", folder / f"index-{number}"
    catalog = Catalog.create(folder / f"catalog-{number}.sqlite3")
    return Epoch(number, catalog, ItemStore.create(items), TermIndex.create(index))


def open_epoch(folder: Path, manifest: dict[str, int], *, read_only: bool) -> Epoch:
    """Opens the files of an epoch; an older term index stays closed."""
    number = manifest["epoch"]
    catalog = Catalog.open(folder / f"catalog-{number}.sqlite3", read_only=read_only)
    store = ItemStore.open(folder / f"items-{number}")
    index = None
    if manifest["index_version"] == INDEX_VERSION:
        from sessiondex.indexer.term_index import TermIndex

        index = TermIndex.open(folder / f"index-{number}")
    return Epoch(number, catalog, store, index)


def _open_current(folder: Path, *, read_only: bool) -> tuple[Stamp, Epoch]:
    """The epoch that the manifest names, and the stamp of that manifest."""
    for _ in range(CONSISTENT_TRIES):
        stamp = _stamp(folder)
        manifest = read_manifest(folder)
        try:
            return stamp, open_epoch(folder, manifest, read_only=read_only)
        except (Damaged, Failed):
            # What is missing may have gone when another process switched to the next epoch.
            if _stamp(folder) == stamp and read_manifest(folder) == manifest:
                raise
    raise Failed("the library is being rewritten again and again", hint="try again later")


def _stamp(folder: Path) -> Stamp:
    try:
        found = os.stat(folder / "library.json")
    except OSError:  # who reads the manifest is told why
        return None
    return found.st_ino, found.st_mtime_ns


def _is_ours(name: str) -> bool:
    return name in {"library.json", "library.json.new", "writer.lock"} or name.startswith(
        ("catalog-", "items-", "index-", "state.sqlite3", "staging")
    )


def remove_epochs(folder: Path, *, keep: int) -> None:
    """Removes the files of every other epoch: an old one, or one that a crash left unfinished.

    Raises:
        Failed: some of them stay.
    """
    import shutil

    with failing("remove an old part of the library below", folder):
        for path in folder.iterdir():
            stem, _, rest = path.name.partition("-")
            number = rest.split(".")[0]
            if stem in {"catalog", "items", "index"} and number.isdecimal() and int(number) != keep:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
