"""How an entry stands in a reply: the fields that every overview, hit, listing and read share."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sessiondex.limits import FIELD, SUMMARY, TITLE
from sessiondex.masking import SHORTEST_BYTES, mask
from sessiondex.model import derived_summary, entry_label, flag_names
from sessiondex.query.cutting import MaskedText, entry_head
from sessiondex.query.times import format_time

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

SHOWN_ATTACHMENTS = 20
"""Attachments listed for one entry; more are counted."""


def entry_view(capture: Capture, entry: Entry, *, reveal: bool = False) -> dict[str, Any]:
    """The fields of an entry without its text, every one of bounded size.

    Tool fields are null for other kinds; `sub_kind` and `attachments` stand only where there
    are some.
    """
    view: dict[str, Any] = {
        "entry_ref": str(entry.ref),
        "entry_range": [entry.ref.record, entry.ref.record],
        "kind": entry.kind,
        "tool_part": entry.tool_part,
        "tool_name": shown_field(entry.tool_name, reveal=reveal) or None,
        "call_id": shown_field(entry.call_id, reveal=reveal) or None,
        "error": entry.error,
        "timestamp": format_time(entry.timestamp),
        "label": label(capture, entry, reveal=reveal),
        "flags": flag_names(capture.flags(entry)),
    }
    if entry.sub_kind:
        view["sub_kind"] = shown_field(entry.sub_kind, reveal=reveal)
    if entry.attachments:
        view["attachments"] = [
            {"media_type": shown_field(kept.media_type, reveal=reveal), "size": kept.size}
            for kept in entry.attachments[:SHOWN_ATTACHMENTS]
        ]
        if len(entry.attachments) > SHOWN_ATTACHMENTS:
            view["attachments_total"] = len(entry.attachments)
    return view


def label(capture: Capture, entry: Entry, *, reveal: bool = False) -> str:
    """The label of an entry in a capture, for reading only."""
    said = entry_label(entry, capture.is_final(entry))
    has_own_words = entry.kind in ("tool", "system")
    return shown_field(said, reveal=reveal) if has_own_words else said


def summary(capture: Capture, entry: Entry, *, reveal: bool = False) -> str:
    """The source's own summary, else the beginning of the text; masked before it is cut."""
    if entry.summary:
        shown = entry.summary if reveal else mask(entry.summary).text
    else:
        # Folding white space only shortens, so a few times the length is enough.
        head = entry_head(capture, entry, SUMMARY.maximum * 4, reveal=reveal)
        shown = derived_summary(head.text, SUMMARY.maximum + len(_PLACEHOLDER) + 60)
    cut = shown[: SUMMARY.maximum]
    at = cut.rfind("[")
    if at >= 0 and "]" not in cut[at:] and shown.startswith(_PLACEHOLDER, at):
        return cut[:at]
    return cut


_PLACEHOLDER: Final = "[REDACTED:"


_LAST_WORD = re.compile(r"[!-~]+\Z")


def shown_title(title: str, *, reveal: bool = False) -> str:
    """The title of a session, masked. One that was cut when it was stored is shown without its
    last word, which may be half a credential."""
    if reveal:
        return title
    if len(title) >= TITLE.maximum:
        title = _LAST_WORD.sub("", title)
    return mask(title).text


@lru_cache(maxsize=1024)
def _masked_fact(text: str) -> str:
    return mask(text).text


def shown_fact(text: str, *, reveal: bool = False) -> str:
    """A folder, branch, model or other fact of a session as people are shown it: masked, whole."""
    return text if reveal or len(text) < SHORTEST_BYTES else _masked_fact(text)


def shown_field(text: str, *, reveal: bool = False) -> str:
    """A short field of a source as a reply shows it: masked, and cut at the bound of a field."""
    if len(text) < SHORTEST_BYTES:
        return text
    data = text.encode()
    cut = MaskedText(data, reveal=reveal).fit(0, FIELD.maximum)
    return cut.text if cut.end == len(data) else f"{cut.text}…"
