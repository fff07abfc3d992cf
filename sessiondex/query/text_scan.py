"""Scans: which texts cannot match, told from whole batches of texts, each looked at once.

Entries are neither decoded nor ordered for it: a text that may match is looked at again by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from sessiondex.indexer.store_texts import TextChunks
from sessiondex.indexer.view import View


class TextScan:
    """What one query has learnt of the texts of one view.

    `find` gives the rows of a batch that match; it may give too many, never too few.
    """

    def __init__(self, find: Callable[[TextChunks], Iterable[int]]) -> None:
        self.looked_at_bytes = 0
        """Text that was scanned so far."""
        self._find = find
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._unclear: set[int] = set()
        """Texts that match, and those that are several chunks."""
        self._sizes: dict[int, int] = {}
        """Bytes of the last text of a batch that stand in it: there may be more behind it."""

    def may_match(self, view: View, ids: Sequence[int], sizes: Sequence[int]) -> Iterator[bool]:
        """Whether each text, of its size, has to be looked at."""
        first, last = 1, 0
        for text_id, size in zip(ids, sizes, strict=True):
            if not size:
                yield True
                continue
            if not first <= text_id <= last:
                first, last = self._covered(view, text_id)
            yield text_id in self._unclear or self._sizes.get(text_id, size) != size

    def _covered(self, view: View, text_id: int) -> tuple[int, int]:
        """The first and last of a row of texts that were looked at, with a text in it."""
        at = bisect_right(self._firsts, text_id) - 1
        if at < 0 or text_id > self._lasts[at]:
            self._look(view, text_id)
            at = bisect_right(self._firsts, text_id) - 1
        return self._firsts[at], self._lasts[at]

    def _look(self, view: View, text_id: int) -> None:
        chunks = view.passing_chunks(text_id)
        ids, starts = chunks.ids, chunks.starts
        self._unclear.update(ids[row] for row in self._find(chunks))
        self._unclear.update(id for id, start in zip(ids, starts, strict=True) if start)
        last = len(ids) - 1
        if not starts[last]:
            self._sizes[ids[last]] = len(chunks.chunk(last))
        at = bisect_right(self._firsts, text_id)
        # A text that goes on in this batch belongs to the one in which it begins.
        self._firsts.insert(
            at, next(id for id, start in zip(ids, starts, strict=True) if not start)
        )
        self._lasts.insert(at, ids[last])
        self.looked_at_bytes += len(chunks.data)
