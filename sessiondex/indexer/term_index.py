"""The term index: one tantivy index of folded words over all entries, and its one writer.

It answers with keys only and may return too much, never too little: what a hit holds is read and
verified elsewhere. Nothing is stored in it, so it can always be rebuilt from the item store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import tantivy

from sessiondex.errors import Damaged, Failed
from sessiondex.indexer import tokens
from sessiondex.indexer.engine import engine_errors
from sessiondex.indexer.lexicon import Coverage, Lexicon
from sessiondex.indexer.term_document import TermDocument, facet_list, term_document
from sessiondex.indexer.term_fields import SCHEMA, facet, range_query
from sessiondex.indexer.term_searcher import TermSearcher

HEAP_BYTES: Final = 64_000_000

_SMALL_BATCH: Final = 1 << 20
_LISTING_ADVANTAGE: Final = 9
"""Reading a text for its terms costs as much as listing this many times the text indexed."""

_Result = TypeVar("_Result")


class TermIndex:
    """A term index in memory or in a folder; makes searchers and its one writer."""

    def __init__(self, index: tantivy.Index | None, folder: Path | None) -> None:
        self.folder = folder
        self._index = index
        self.words = tokens.analyzer()
        self.lexicon = Lexicon(folder)

    @classmethod
    def create(cls, folder: Path | None) -> TermIndex:
        """Makes an empty index; `None` keeps it in memory."""
        with engine_errors("create the term index"):
            if folder is None:
                index = tantivy.Index(SCHEMA)
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                index = tantivy.Index(SCHEMA, str(folder), reuse=False)
        return cls(_prepared(index), folder)

    @classmethod
    def open(cls, folder: Path) -> TermIndex:
        """Opens the index of a folder, also of one that cannot be written to.

        Raises:
            Damaged: if the folder holds no index that can be read.
        """
        with _reading(folder):
            if _is_writable(folder):
                return cls(_prepared(tantivy.Index.open(str(folder))), folder)
        return cls(None, folder)

    @property
    def is_read_only(self) -> bool:
        """Whether the folder refuses the lock that a reader takes."""
        return self._index is None

    def searcher(self) -> TermSearcher:
        """A view of the last commit; it stays true while it is held."""
        while True:
            lexicon = self._current_lexicon()
            searcher = self._engine_searcher()
            # The lexicon must not be older than a commit that reuses numbers it claims to cover.
            if lexicon is self._current_lexicon():
                return TermSearcher(searcher, self.words, lexicon)

    def writer(self, heap_bytes: int = HEAP_BYTES, *, num_threads: int = 0) -> TermWriter:
        """Opens the one writer, for one batch; 0 threads lets the engine choose.

        Raises:
            Busy: if another writer is open, in any process.
        """
        if self._index is None:
            raise Failed(f"cannot write to the read-only index {self.folder}")
        before = self.searcher()  # first: where it fails, no writer must be left behind
        with engine_errors("open the index writer"):
            return TermWriter(self, self._index.writer(heap_bytes, num_threads), before)

    def _current_lexicon(self) -> Lexicon:
        if self.folder is not None and not self.lexicon.is_current():
            self.lexicon = Lexicon.load(self.folder, self.lexicon)
        return self.lexicon

    def _engine_searcher(self) -> tantivy.Searcher:
        if self._index is not None:
            with _reading(self.folder):
                self._index.reload()
                return self._index.searcher()
        assert self.folder is not None
        import tempfile

        # A reader must create a lock file: links to the files in a folder of our own let it.
        # The open searcher keeps its maps when the links are gone.
        with tempfile.TemporaryDirectory(prefix="sessiondex-") as links, _reading(self.folder):
            for name in os.listdir(self.folder):
                if not name.endswith(".lock"):
                    os.symlink(self.folder / name, Path(links) / name)
            return _prepared(tantivy.Index.open(links)).searcher()


def _prepared(index: tantivy.Index) -> tantivy.Index:
    index.register_tokenizer("words", tokens.analyzer())
    index.config_reader("manual")
    return index


def _is_writable(folder: Path) -> bool:
    lock = folder / ".tantivy-meta.lock"
    return os.access(folder, os.W_OK) and (not lock.exists() or os.access(lock, os.W_OK))


@contextmanager
def _reading(folder: Path | None) -> Generator[None]:
    try:
        with engine_errors(f"read the term index {folder or 'in memory'}"):
            yield
    except Failed as error:
        raise Damaged(error.message, hint="rebuild the index from the item store") from error


class TermWriter:
    """Writes one batch. Any exception ends it: open another one and feed the batch again."""

    def __init__(self, index: TermIndex, writer: tantivy.IndexWriter, before: TermSearcher) -> None:
        self._owner = index
        self._writer: tantivy.IndexWriter | None = writer
        """Holds the engine's lock until `abandon`, also when it is dead: an error that somebody
        keeps refers to it, so dropping it would not end it."""
        self._is_dead = False
        self._before = before
        self._lexicon = self._before.lexicon
        self._added_documents = 0
        self._added_bytes = 0
        self._seqs: tuple[int, int] | None = None
        self._own_bytes = 0
        self._reset_terms()

    @property
    def document_count(self) -> int:
        """Documents of the last commit."""
        return self._before.document_count

    def add(self, *, key: int, seq: int, time: int | None, facets: Sequence[int], text: str) -> int:
        """Adds one entry.

        Args:
            time: Epoch milliseconds.

        Returns:
            How many documents it became: more than one for texts over `MAX_DOCUMENT`.
        """
        document = term_document(time=time, facets=facet_list(facets), text=text)
        return self.add_document(document, key=key, seq=seq)

    def add_document(self, document: TermDocument, *, key: int, seq: int, facets: str = "") -> int:
        """Adds one prepared entry, with more facets; returns how many documents it became."""
        if self._new_terms is not None:
            for body in document.bodies():
                self._new_terms.update(self._owner.words.analyze(body))
        self._added_bytes += document.characters
        if self._added_bytes > self._reading_budget:
            self._new_terms = None
        first, last = self._seqs or (seq, seq)
        self._seqs = (min(first, seq), max(last, seq))
        documents = document.documents(key=key, seq=seq, facets=facets)
        for each in documents:
            self._call(lambda writer, each=each: writer.add_json(each))
        self._added_documents += len(documents)
        return len(documents)

    def delete_seq_from(self, seq: int) -> None:
        """Deletes the documents at or past a mark; call it before adding."""
        self._delete("seq", seq, None)

    def delete_sessions(self, session_ords: Sequence[int]) -> None:
        """Deletes all documents of sessions, by the session part of their key."""
        for ordinal in session_ords:
            self._delete("key", ordinal << 32, (ordinal + 1) << 32)

    def _delete(self, field: str, first: int, stop: int | None) -> None:
        query = range_query(field, first, stop)
        self._call(lambda writer: writer.delete_documents_by_query(query))

    def commit(self, expected_documents: int | None = None) -> int:
        """Makes the batch durable, and proves it with a fresh searcher.

        Args:
            expected_documents: What the whole index must hold afterwards, where the caller knows.

        Returns:
            The documents of the whole index.

        Raises:
            Failed: if the engine refused, or says that it committed but did not.
        """
        try:
            with engine_errors("write the lexicon"):
                self._cover_before_commit()
        except BaseException:
            self._is_dead = True
            raise
        self._call(lambda writer: writer.commit())
        try:
            searcher = self._owner.searcher()
            held = 0
            if self._seqs is not None:
                held = searcher.count_seqs(*self._seqs)
            total = searcher.document_count
            if held != self._added_documents or expected_documents not in (None, total):
                raise Failed(
                    f"the index holds {held} of {self._added_documents} documents of the batch"
                    f" and {total} in all after a commit that reported success",
                    hint="index the batch again",
                )
        except BaseException:
            self._is_dead = True
            raise
        self._before = searcher
        self._added_documents = self._added_bytes = 0
        self._seqs = None
        self._reset_terms()
        return total

    def close(self, *, final: bool = False) -> None:
        """Ends the writer; what was not committed is gone.

        Args:
            final: The last batch of a run: completes the lexicon.
        """
        try:
            if not self._is_dead:
                self._complete_lexicon(final)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Ends the writer, also a dead one; what was not committed is gone."""
        self._is_dead = True
        writer, self._writer = self._writer, None
        if writer is not None:
            # A writer that is dropped during a merge goes on for a moment, beside the next writer,
            # and removes files by what it knew.
            with engine_errors("finish the index"):
                writer.wait_merging_threads()

    # ------------------------------------------------------------ lexicon

    def _reset_terms(self) -> None:
        """Chooses for the next batch: read its texts for terms, or list the index later."""
        coverage = self._lexicon.coverage
        self._reading_budget = max(_SMALL_BATCH, coverage.covered_bytes // _LISTING_ADVANTAGE)
        self._new_terms: set[str] | None = None if coverage.uncovered_bytes else set()

    def _cover_before_commit(self) -> None:
        if self._seqs is None:
            return
        self._own_bytes += self._added_bytes
        coverage = self._lexicon.coverage
        first, last = self._seqs
        if self._new_terms is None:
            uncovered = replace(
                coverage,
                below_seq=min(coverage.below_seq, first),
                uncovered_bytes=coverage.uncovered_bytes + self._added_bytes,
            )
            self._lexicon = self._lexicon.with_coverage(uncovered)
        else:
            # The state before knows every term of the index, as nothing is uncovered.
            new = [term for term in self._new_terms if not self._before.has_term(term)]
            self._lexicon = self._lexicon.with_terms(
                new,
                replace(
                    coverage,
                    below_seq=max(coverage.below_seq, last + 1),
                    covered_bytes=coverage.covered_bytes + self._added_bytes,
                ),
            )
        self._owner.lexicon = self._lexicon

    def _complete_lexicon(self, final: bool) -> None:
        coverage = self._lexicon.coverage
        if coverage.uncovered_bytes and (
            final
            or self._own_bytes < _SMALL_BATCH
            or coverage.uncovered_bytes > max(coverage.covered_bytes, 8 * _SMALL_BATCH)
        ):
            with engine_errors("write the lexicon"):
                self._cover_by_listing()

    def _cover_by_listing(self) -> None:
        coverage = self._lexicon.coverage
        searcher = self._before
        terms = searcher.all_terms()
        below_seq = searcher.last_seq() + 1
        self._lexicon = self._lexicon.replaced(
            terms, Coverage(below_seq, coverage.covered_bytes + coverage.uncovered_bytes)
        )
        self._owner.lexicon = self._lexicon

    # ------------------------------------------------------------ engine

    def _call(self, action: Callable[[tantivy.IndexWriter], _Result]) -> _Result:
        if self._is_dead or self._writer is None:
            raise Failed("the index writer is closed", hint="open another one and add again")
        try:
            return action(self._writer)
        except BaseException:
            # A writer that failed once may go on "committing" nothing.
            self._is_dead = True
            with engine_errors("write the term index"):
                raise
            raise AssertionError("unreachable") from None


__all__ = ["TermIndex", "TermSearcher", "TermWriter", "facet"]
