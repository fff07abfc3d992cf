"""The rivals: what one would use instead, each in its plainest form.

All of them get the same entry texts. None of them knows refs, filters, captures or cursors.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, Protocol

import tantivy

PAGE: Final = 20


class Rival(Protocol):
    """A way to search texts; rows are numbered in order from 0."""

    def build(self, texts: Iterable[str]) -> None:
        """Indexes texts and makes them durable."""
        ...

    def find(self, query: str) -> list[int]:
        """The rows of one page for a plain query."""
        ...


class NaiveScan:
    """Folded texts in memory, `in`, newest first, up to a page."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._folded: list[str] = []

    def build(self, texts: Iterable[str]) -> None:
        self.texts = list(texts)
        self._folded = [text.casefold() for text in self.texts]

    def find(self, query: str) -> list[int]:
        query = query.casefold()
        rows: list[int] = []
        for row in range(len(self._folded) - 1, -1, -1):
            if query in self._folded[row]:
                rows.append(row)
                if len(rows) == PAGE:
                    break
        return rows

    def find_regex(self, pattern: str) -> list[int]:
        """The same with Python's `re`."""
        search = re.compile(pattern).search
        rows: list[int] = []
        for row in range(len(self.texts) - 1, -1, -1):
            if search(self.texts[row]):
                rows.append(row)
                if len(rows) == PAGE:
                    break
        return rows


class Fts5:
    """SQLite FTS5: `unicode61` finds words, `trigram` finds substrings of three characters on."""

    def __init__(self, path: Path, tokenizer: Literal["unicode61", "trigram"]) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS entries USING fts5(text, tokenize='{tokenizer}')"
        )
        self._order = "rank" if tokenizer == "unicode61" else "rowid DESC"

    def build(self, texts: Iterable[str]) -> None:
        with self._connection:
            self._connection.executemany(
                "INSERT INTO entries(text) VALUES (?)", ((text,) for text in texts)
            )

    def find(self, query: str) -> list[int]:
        quoted = '"' + query.replace('"', '""') + '"'
        found = self._connection.execute(
            f"SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY {self._order} LIMIT {PAGE}",
            (quoted,),
        )
        return [row - 1 for (row,) in found]

    def text(self, row: int) -> str:
        """The text of one row."""
        found = self._connection.execute("SELECT text FROM entries WHERE rowid = ?", (row + 1,))
        return found.fetchone()[0]

    def close(self) -> None:
        """Moves the log into the database and closes it."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


class BareTantivy:
    """tantivy-py as its README shows it: one text field, one writer, nothing stored."""

    def __init__(self, path: Path, *, threads: int = 0) -> None:
        path.mkdir(parents=True, exist_ok=True)
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field("row", fast=True)
        schema.add_text_field("text", tokenizer_name="default", index_option="position")
        self._index = tantivy.Index(schema.build(), str(path))
        self._threads = threads
        self._rows = 0
        self._searcher = self._index.searcher()

    def build(self, texts: Iterable[str]) -> None:
        writer = self._index.writer(num_threads=self._threads)
        for text in texts:
            document = tantivy.Document()
            document.add_unsigned("row", self._rows)
            document.add_text("text", text)
            writer.add_document(document)
            self._rows += 1
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def find(self, query: str) -> list[int]:
        # Quoted, so that no operator or field name in it makes the parser raise.
        escaped = query.replace("\\", " ").replace('"', " ")
        parsed, _ = self._index.parse_query_lenient(f'"{escaped}"', ["text"])
        hits = self._searcher.search(parsed, PAGE).hits
        rows = self._searcher.fast_field_values("row", [address for _, address in hits])
        return [int(row) for row in rows if row is not None]
