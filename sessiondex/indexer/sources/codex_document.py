"""Codex sessions of early 2025: one JSON document with `session` and `items`.

The release that wrote them made a new file, with a new session id, at every save.
"""

from __future__ import annotations

from typing import Any

from sessiondex.indexer.sources.base import Parser, SessionStub, SourceFile
from sessiondex.indexer.sources.codex_items import response_item
from sessiondex.indexer.sources.documents import (
    DocumentParser,
    array_elements,
    as_dict,
    as_text,
    file_stem,
    leading_fields,
    read_document,
)
from sessiondex.model import Record, SessionHeader


class CodexDocumentFormat:
    """`rollout-*.json` files."""

    name = "codex_document"
    agent = "codex"
    parser_version = 1
    is_line_format = False

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether the document begins with a `session` and `items`."""
        fields = leading_fields(head)
        session = as_dict(fields.get("session"))
        return "items" in fields and bool(as_text(session.get("id")))

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The one session of the document."""
        session = as_dict(as_dict(read_document(source)).get("session"))
        return [SessionStub(as_text(session.get("id")) or file_stem(source.path))]

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> Parser:
        """A parser from the beginning or a state."""
        header = SessionHeader(session_id=stub.session_id, agent=self.agent, format=self.name)
        elements = array_elements("/items", as_dict(read_document(source)).get("items"))
        return CodexDocumentParser(header, elements, state)

    def resume_command(self, header: SessionHeader) -> list[str] | None:
        """None: no present release resumes these files."""
        return None


CODEX_DOCUMENT = CodexDocumentFormat()


class CodexDocumentParser(DocumentParser):
    """Reads the items of one document."""

    _is_prompt_over = False

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        item = response_item(value, is_prompt_over=self._is_prompt_over)
        if value.get("role") == "user":
            self._is_prompt_over = True
        if item is not None:
            record.items.append(item)
