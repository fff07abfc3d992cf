"""Invented sessions for the tests of queries, and the plain list of what is visible in them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from sessiondex.indexer.capture import Capture
from sessiondex.model import Item, Record

# Put together here, so that no scanner finds a key.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
PRIVATE_KEY = (
    "-----BEGIN PRIVATE " + "KEY-----\n" + ("MIIEabc0123456789ABCdef+/" * 2 + "\n") * 12
    + "-----END PRIVATE " + "KEY-----"
)  # fmt: skip

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(
            ["", "plain words ", "日本語の文章", "🦀" * 20, '"quoted" \\ \n\t', "\x00\x01\x1f",
             SECRET, f" {SECRET} ", PRIVATE_KEY, "a" * 300, "é" * 100, "한국어 "]
        ),
    ),
    max_size=6,
).map("".join)  # fmt: skip

ITEMS = st.one_of(
    st.builds(lambda text: Item(0, "user", text), TEXTS),
    st.builds(lambda text: Item(0, "assistant", text), TEXTS),
    st.builds(lambda text: Item(0, "system", text, sub_kind="notification"), TEXTS),
    st.builds(lambda text: Item(0, "tool_call", f"Bash\n{text}", call_id="c", name="Bash"), TEXTS),
    st.builds(lambda text: Item(0, "tool_result", text, call_id="c", error=False), TEXTS),
    st.just(Item(0, "reasoning")),
)


def _record(items: list[Item]) -> Record:
    items = [
        Item(block, item.kind, item.text, call_id=item.call_id, name=item.name, error=item.error,
             sub_kind=item.sub_kind)
        for block, item in enumerate(items)
    ]  # fmt: skip
    return Record(0, 0, 0, 0, b"12345678", items=items, blocks=max(len(items), 1), pointer="/0")


RECORDS = st.lists(st.lists(ITEMS, max_size=3).map(_record), min_size=1, max_size=24)


class Visible(NamedTuple):
    """One entry as a plain reading of the records gives it."""

    ref: str
    kind: str
    tool_part: str | None
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode()


def visible(records: list[Record]) -> list[Visible]:
    """The entries of a session, in source order."""
    parts = {"tool_call": "input", "tool_result": "output"}
    return [
        Visible(
            f"E{number:08d}" + (f".{item.block}" if item.block else ""),
            "tool" if item.kind in parts else item.kind,
            parts.get(item.kind),
            item.text,
        )
        for number, record in enumerate(records)
        for item in record.items
        if item.kind != "reasoning"
    ]


def capture_of(*texts: str, kinds: str = "") -> Capture:
    """A session of user and assistant messages in turn, or of kinds by their first letters."""
    names = {"u": "user", "a": "assistant", "s": "system", "i": "tool_call", "o": "tool_result",
             "r": "reasoning"}  # fmt: skip
    kinds = kinds or "ua" * len(texts)
    return Capture.from_items(
        Item(0, names[kind], text, name="Bash" if kind == "i" else "")  # type: ignore[arg-type]
        for kind, text in zip(kinds, texts, strict=False)
    )
