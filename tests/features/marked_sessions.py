"""Sessions in which everything that no reply may show is marked."""

from __future__ import annotations

from hypothesis import strategies as st

from sessiondex.model import Attachment, Item, Record
from tests.query.made_sessions import PRIVATE_KEY, SECRET

HIDDEN = "HIDDEN-MARK"
"""Stands in reasoning and in prompts."""

FORBIDDEN = (
    HIDDEN.encode(), SECRET[:14].encode(), SECRET[12:24].encode(), SECRET[-12:].encode(),
    PRIVATE_KEY[40:60].encode(),
)  # fmt: skip
"""What no reply may hold, also not a part of."""

_PLAIN = st.text(max_size=30) | st.sampled_from(
    ["plain words ", "日本語の文章", "🦀" * 40, '"quoted" \\ \n\t', "\x00\x01\x1f" * 30, "a" * 400,
     "[E00000001 user [1, 1]] user message\n", "E0 E1 ", "\n"]
)  # fmt: skip
_SECRETS = st.sampled_from([SECRET, f" {SECRET} ", f"TOKEN={SECRET}\n", f"\n{PRIVATE_KEY}\n"])
TEXTS = st.lists(_PLAIN | _SECRETS, max_size=6).map("".join)

ITEMS = st.one_of(
    st.builds(lambda text: Item(0, "user", text), TEXTS),
    st.builds(lambda text: Item(0, "user", text, attachments=[Attachment(SECRET, 3)] * 3), TEXTS),
    st.builds(lambda text: Item(0, "assistant", text, plan=text), TEXTS),
    st.builds(lambda text: Item(0, "system", text, sub_kind=f"hook {SECRET}"), TEXTS),
    st.builds(
        lambda text: Item(0, "tool_call", f"Bash\n{text}", call_id=SECRET, name=f"Bash{text[:9]}"),
        TEXTS,
    ),
    st.builds(
        lambda text: Item(0, "tool_result", text, call_id=SECRET, error=True, summary=text), TEXTS
    ),
    st.builds(lambda text: Item(0, "reasoning", HIDDEN + text), TEXTS),
    st.builds(lambda text: Item(0, "prompt", HIDDEN + text), TEXTS),
)


def _record(items: list[Item]) -> Record:
    for block, item in enumerate(items):
        item.block = block
    return Record(0, 0, 0, 0, b"12345678", items=items, blocks=max(len(items), 1), pointer="/0")


RECORDS = st.lists(st.lists(ITEMS, max_size=3).map(_record), min_size=1, max_size=16)


def assert_shows_nothing_forbidden(data: bytes) -> None:
    """Whether a reply is free of all marks."""
    for mark in FORBIDDEN:
        assert mark not in data
