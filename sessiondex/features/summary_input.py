"""The first message of a compaction worker, made from the capture that its tools read.

Recent messages, newest first, within a target; then recent tool items by name and summary. Never
arguments, results or reasoning. Thresholds, where a session is split, and what a summary must
hold are the host's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sessiondex.errors import InvalidArgument
from sessiondex.features.log_text import LogText, block_head, compact_block, shown_text
from sessiondex.limits import ANCHOR_TEXT
from sessiondex.model import EntryRef
from sessiondex.query.cutting import entry_head, entry_text
from sessiondex.query.entry_view import entry_view
from sessiondex.query.selection import Selection, as_ref, kind_codes, range_bounds

if TYPE_CHECKING:
    from sessiondex.indexer.capture import SessionCapture
    from sessiondex.model import Entry

LEAST_TARGET_BYTES: Final = 4_096
"""A smaller message could not say what it leaves out."""

MESSAGE_SHARE: Final = 0.75
"""How much of the target messages may take where there are tool items too."""

_ANY_JSON: Final = 1 << 40
"""The message is no reply: only its text is bounded."""

_MESSAGES: Final = ("user", "assistant", "system")
_CHUNK: Final = 32


@dataclass(frozen=True, slots=True)
class SummaryInput:
    """The message, and what of the session is in it."""

    text: str
    messages: int
    clipped_messages: int
    tool_items: int
    omitted_messages: int
    omitted_tool_items: int


def build_summary_input(
    capture: SessionCapture,
    *,
    target_bytes: int,
    hard_deadline_bytes: int = 0,
    from_ref: EntryRef | str | None = None,
    through_ref: EntryRef | str | None = None,
) -> SummaryInput:
    """The first message of a compaction worker, at most `target_bytes` of text.

    A message that does not fit whole is clipped. With a target below `hard_deadline_bytes` there
    is no time left for more than clipped messages: all are clipped, and no tool item is named.
    Costs what is shown, not the session.

    Raises:
        InvalidArgument: the target is too small, or the range is backward.
        PastEnd: an end of the range lies behind the last record.
    """
    if target_bytes < LEAST_TARGET_BYTES:
        raise InvalidArgument(
            f"target_bytes is {target_bytes}", hint=f"expected at least {LEAST_TARGET_BYTES}"
        )
    capture = capture.committed()
    begin = None if from_ref is None else as_ref(from_ref)
    end = None if through_ref is None else as_ref(through_ref)
    first, stop = range_bounds(capture, begin, end)
    is_late = target_bytes < hard_deadline_bytes
    messages = _Newest(capture, Selection(capture, kind_codes(_MESSAGES)), first, stop)
    tools = _Newest(capture, Selection(capture, kind_codes("tool")), first, stop)
    share = 1 if is_late or not tools.total else MESSAGE_SHARE
    text = LogText(int(target_bytes * share), json_bytes=_ANY_JSON)
    clipped = 0
    for entry in messages.entries():
        whole = None if is_late else _whole(capture, entry, target_bytes)
        if whole is None or not text.add(whole):
            block, is_clipped = _clipped(capture, entry)
            if not text.add(block):
                break
            clipped += is_clipped
        messages.shown += 1
    said = text.build()
    text = LogText(target_bytes - len(said.encode()), json_bytes=_ANY_JSON)
    for entry in () if is_late else tools.entries():
        if not text.add(compact_block(capture, entry)):
            break
        tools.shown += 1
    text.close(
        f"left out: {messages.omitted} messages and {tools.omitted} tool items;"
        " search_session_log and read_session_items show them"
    )
    parts = [part for part in (said, text.build()) if part]
    return SummaryInput(
        "\n\n".join(parts),
        messages.shown,
        clipped,
        tools.shown,
        messages.omitted,
        tools.omitted,
    )


class _Newest:
    """The selected entries of a range, the newest first, and how many were taken."""

    def __init__(
        self, capture: SessionCapture, selection: Selection, first: int, stop: int
    ) -> None:
        self._selection = selection
        self._low, self._high = selection.number(first), selection.number(stop)
        self.shown = 0

    @property
    def total(self) -> int:
        return self._high - self._low

    @property
    def omitted(self) -> int:
        return self.total - self.shown

    def entries(self) -> Iterator[Entry]:
        at = self._high
        while at > self._low:
            begin = max(at - _CHUNK, self._low)
            yield from reversed(list(self._selection.entries(begin, at)))
            at = begin


def _whole(capture: SessionCapture, entry: Entry, target_bytes: int) -> str | None:
    """The block of a message with all of its text; None where it cannot fit."""
    if entry.total_bytes > target_bytes:
        return None
    shown = entry_text(capture, entry).fit(0, target_bytes * 2)
    if shown.end < entry.total_bytes:
        return None
    return f"{block_head(entry_view(capture, entry))}\n{shown_text(shown.text)}"


def _clipped(capture: SessionCapture, entry: Entry) -> tuple[str, bool]:
    """The block of a message with the beginning of its text, and whether that is less than all."""
    head = entry_head(capture, entry, ANCHOR_TEXT.maximum)
    block = f"{block_head(entry_view(capture, entry))}\n{shown_text(head.text)}"
    if head.end == entry.total_bytes:
        return block, False
    return f"{block}\n[cut: {head.end} of {entry.total_bytes} bytes are shown]", True
