"""Search against a naive scan of the same entries: every mode, filter, order and page size."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.indexer.capture import Capture
from sessiondex.indexer.folding import fold
from sessiondex.limits import REPLY_BYTES
from sessiondex.model import SIDECHAIN, SYNTHETIC, Item, Record
from sessiondex.query.search import SearchRequest, iterate, search

WORDS = st.sampled_from(
    ["cargo", "Cargo.toml", "foo_bar", "fooBar", "a::b", "src/main.py", "--flag",
     "検索する", "実装",
     "ｶﾞｲﾄﾞ", "안녕하세요", "Straße", "ﬁne",
     "e\u0301te\u0301", "été", "👍🏽", "ไทยภาษา", "हिन्दी",
     "0f" * 32,
     "x" * 1100, "?!", "(", "😀", "İ", "résumé", "resume"]
)  # fmt: skip
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([" ", "", "\n", "、"])), max_size=8).map(
    lambda row: "".join(word + gap for word, gap in row)
)
KINDS = st.sampled_from(
    ["user", "assistant", "system", "tool_call", "tool_result", "tool_result", "reasoning"]
)
ITEMS = st.builds(
    lambda kind, text, name, call, error, flags, time: Item(
        0,
        kind,
        "" if kind == "reasoning" else text,
        call_id=call if kind.startswith("tool") else "",
        name=name if kind.startswith("tool") else "",
        error=error if kind == "tool_result" else None,
        sub_kind="notification" if kind == "system" else "",
        flags=flags,
        timestamp=time,
    ),
    KINDS,
    TEXTS,
    st.sampled_from(["Bash", "Read"]),
    st.sampled_from(["c1", "c2"]),
    st.sampled_from([None, True, False]),
    st.sampled_from([0, SYNTHETIC, SIDECHAIN, SYNTHETIC | SIDECHAIN]),
    st.one_of(st.none(), st.integers(1, 5)),
)


def _record(items: list[Item]) -> Record:
    for block, item in enumerate(items):
        item.block = block
    return Record(0, 0, 0, 0, b"12345678", items=items, blocks=max(len(items), 1), pointer="/0")


SESSIONS = st.lists(st.lists(ITEMS, max_size=3).map(_record), min_size=6, max_size=16)

FILTER_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["user", "agent", ["tool"], ["system", "tool"], ["user", "tool"]]),
    "tool_part": st.sampled_from(["input", "output", "both"]),
    "tool_name": st.sampled_from(["Bash", ["Read", "Bash"], "Write"]),
    "call_id": st.sampled_from(["c1", "c3"]),
    "error": st.booleans(),
    "flags": st.sampled_from(["synthetic", ["synthetic", "sidechain"], ["superseded"]]),
    "since": st.integers(0, 4),
    "until": st.integers(4, 6),
    "from": st.integers(0, 4).map("E{}".format),
    "through": st.integers(2, 6).map("E{}".format),
}
FILTERS = st.lists(st.sampled_from(list(FILTER_VALUES)), max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FILTER_VALUES[name] for name in names})
)


class Plain(NamedTuple):
    """One entry as a plain reading of the records gives it."""

    record: int
    block: int
    item: Item

    @property
    def ref(self) -> str:
        return f"E{self.record:08d}" + (f".{self.block}" if self.block else "")

    @property
    def kind(self) -> str:
        return "tool" if self.item.kind.startswith("tool") else self.item.kind

    @property
    def part(self) -> str | None:
        return {"tool_call": "input", "tool_result": "output"}.get(self.item.kind)


def plain(records: list[Record]) -> list[Plain]:
    return [
        Plain(number, item.block, item)
        for number, record in enumerate(records)
        for item in record.items
        if item.kind != "reasoning"
    ]


def as_list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def passes(entry: Plain, filters: dict[str, Any]) -> bool:
    """The filters, word for word as the contract has them."""
    kinds = [{"agent": "assistant"}.get(kind, kind) for kind in as_list(filters.get("kind"))]
    names = as_list(filters.get("tool_name"))
    part = filters.get("tool_part")
    if not kinds and (names or part):
        kinds = ["tool"]
    if kinds and entry.kind not in kinds:
        return False
    if entry.kind == "tool":
        if names and entry.item.name not in names:
            return False
        if part in ("input", "output") and entry.part != part:
            return False
    if "call_id" in filters and entry.item.call_id != filters["call_id"]:
        return False
    if "error" in filters and entry.item.error is not filters["error"]:
        return False
    bits = {"synthetic": SYNTHETIC, "sidechain": SIDECHAIN, "superseded": 1 << 30}
    if not all(entry.item.flags & bits[name] for name in as_list(filters.get("flags"))):
        return False
    time = entry.item.timestamp
    if "since" in filters and (time is None or time < filters["since"]):
        return False
    if "until" in filters and (time is None or time > filters["until"]):
        return False
    if "from" in filters and entry.record < int(filters["from"][1:]):
        return False
    return not ("through" in filters and entry.record > int(filters["through"][1:]))


def is_served(records: list[Record], filters: dict[str, Any]) -> bool:
    """Whether the filters are no invalid argument."""
    kinds = as_list(filters.get("kind"))
    if kinds and "tool" not in kinds and ("tool_name" in filters or "tool_part" in filters):
        return False
    ends = [int(filters[name][1:]) for name in ("from", "through") if name in filters]
    return ends == sorted(ends) and all(end < len(records) for end in ends)


def pages(capture: Capture, arguments: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    """All hits, page by page; checks what every page promises."""
    hits: list[dict[str, Any]] = []
    cursor = None
    while True:
        request = {**arguments, "limit": limit, "cursor": cursor}
        page = search(capture, SearchRequest.from_arguments(request))
        assert len(orjson.dumps(page)) <= REPLY_BYTES.maximum
        assert page["returned"] == len(page["hits"]) <= limit
        assert page["has_more"] == (page["next_cursor"] is not None)
        assert page["returned"] == limit or not page["has_more"]
        hits += page["hits"]
        if page["has_more"]:
            assert page.get("total", len(hits) + 1) > len(hits)
            assert page.get("total_at_least", len(hits) + 1) == len(hits) + 1
        else:
            assert page["total"] == len(hits)
            return hits
        cursor = page["next_cursor"]


def in_order(entries: list[Plain], order: str | None) -> list[str]:
    if order == "newest":
        entries = sorted(
            entries, key=lambda e: (e.item.timestamp is None, -(e.item.timestamp or 0))
        )
    return [entry.ref for entry in entries]


def check(
    records: list[Record],
    arguments: dict[str, Any],
    matches: Callable[[str], bool],
    limit: int,
) -> None:
    if not is_served(records, arguments):
        return
    capture = Capture.from_items(records)
    expected = [e for e in plain(records) if passes(e, arguments) and matches(e.item.text)]
    hits = pages(capture, arguments, limit)
    assert [hit["entry_ref"] for hit in hits] == in_order(expected, arguments.get("order"))
    texts = {entry.ref: entry.item.text for entry in expected}
    for hit in hits:
        if "snippet" in hit:
            check_snippet(hit["snippet"], texts[hit["entry_ref"]])
    streamed = list(iterate(capture, SearchRequest.from_arguments(arguments)))
    assert streamed == hits


def check_snippet(snippet: dict[str, Any], text: str) -> None:
    data = text.encode()
    assert len(snippet["text"].encode()) <= 300
    assert snippet["text"] in text
    assert len(snippet["matches"]) <= 8
    for match in snippet["matches"]:
        shown = snippet["text"][match["start"] : match["end"]]
        original = data[match["byte_start"] : match["byte_end"]].decode()
        assert shown and original.startswith(shown)


ORDERS = st.sampled_from([None, "source", "newest"])


@settings(max_examples=120)
@given(SESSIONS, FILTERS, ORDERS, st.integers(1, 5), st.data())
def test_literal_hits_equal_a_naive_scan(
    records: list[Record], filters: dict[str, Any], order: str | None, limit: int, data: Any
) -> None:
    whole = "".join(entry.item.text for entry in plain(records)) or "x"
    start = data.draw(st.integers(0, len(whole) - 1))
    query = whole[start : start + data.draw(st.integers(1, 30))].strip() or "o"
    folded = fold(query)
    arguments = {**filters, "query": query, "order": order}
    check(records, arguments, lambda text: folded in fold(text), limit)


@settings(max_examples=60)
@given(SESSIONS, FILTERS, ORDERS, st.integers(1, 5))
def test_a_listing_equals_the_filtered_entries(
    records: list[Record], filters: dict[str, Any], order: str | None, limit: int
) -> None:
    check(records, {**filters, "order": order}, lambda text: True, limit)


PATTERNS = [
    ("car+go", "car+go"), ("^cargo", r"\Acargo"), ("[a-z]$", r"[a-z]\Z"), ("(?m)^foo", "(?m)^foo"),
    ("(?i)CARGO|検索", "(?i)CARGO|検索"), ("[0-9]{2}", "[0-9]{2}"),
    (".", "."), (r"\(", r"\("), ("q", "q"),
]  # fmt: skip


@settings(max_examples=60)
@given(SESSIONS, FILTERS, ORDERS, st.integers(1, 5), st.sampled_from(PATTERNS))
def test_regex_hits_equal_a_naive_scan(
    records: list[Record],
    filters: dict[str, Any],
    order: str | None,
    limit: int,
    pattern: tuple[str, str],
) -> None:
    arguments = {**filters, "query": pattern[0], "match": "regex", "order": order}
    naive = re.compile(pattern[1], re.ASCII)
    check(records, arguments, lambda text: bool(naive.search(text)), limit)


@settings(max_examples=60)
@given(
    SESSIONS, FILTERS, ORDERS, st.integers(1, 5),
    st.sampled_from(["cargo", "toml", "main", "検", "녕하", "strasse", "fine", "flag"]),
)  # fmt: skip
def test_ranked_hits_of_a_word_equal_a_naive_scan(
    records: list[Record], filters: dict[str, Any], order: str | None, limit: int, word: str
) -> None:
    # Scripts that the index spaces by character bind no neighbour.
    # Signs of vowels in Indian scripts are letters to Unicode, though not to Python.
    letter = r"(?:[^\W_]|[\u0900-\u0dff])"
    edge = "" if ord(word[0]) > 0xE00 else rf"(?![\u0e00-\U0010ffff]){letter}"
    pattern = re.compile(f"(?<!{edge}){word}(?!{edge})" if edge else word)

    def matches(text: str) -> bool:
        # A word is also found as a piece of an identifier: `cargo` in `cargoCargo`.
        # Longer ones than 64 characters are data, not names.
        humps = re.sub(
            r"(?<![^\W_])[^\W_]{1,64}(?![^\W_])",
            lambda name: re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name[0]),
            text,
        )
        return bool(pattern.search(fold(text)) or pattern.search(fold(humps)))

    # Where no whole word matches, a ranked query relaxes; that is another test's.
    if any(matches(e.item.text) and passes(e, filters) for e in plain(records)):
        arguments = {**filters, "query": word, "match": "ranked", "order": order}
        check(records, arguments, matches, limit)


@settings(max_examples=40)
@given(SESSIONS, st.integers(1, 4), st.sampled_from(["cargo", "a", "検索"]))
def test_relevance_visits_what_source_order_does(
    records: list[Record], limit: int, query: str
) -> None:
    capture = Capture.from_items(records)
    for match in ("literal", "regex", "ranked"):
        arguments = {"query": query, "match": match}
        ranked = pages(capture, {**arguments, "order": "relevance"}, limit)
        source = pages(capture, {**arguments, "order": "source"}, limit)
        refs = [hit["entry_ref"] for hit in ranked]
        assert sorted(refs) == [hit["entry_ref"] for hit in source]


@pytest.mark.parametrize("order", ["source", "newest"])
@settings(max_examples=30)
@given(records=SESSIONS, more=SESSIONS, limit=st.integers(1, 4))
def test_entry_refs_narrow_to_those_entries(
    order: str, records: list[Record], more: list[Record], limit: int
) -> None:
    entries = plain(records)
    chosen = entries[:: len(more) % 3 + 1]
    if chosen:
        capture = Capture.from_items(records)
        arguments = {"entry_refs": [e.ref for e in reversed(chosen)], "order": order}
        hits = pages(capture, arguments, limit)
        assert [hit["entry_ref"] for hit in hits] == in_order(chosen, order)
