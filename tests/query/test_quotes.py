"""Where quotes stand: what a plain pattern finds, at a cost that no text can drive up."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from sessiondex.query.quotes import find_quote, nearest_text

PIECES = st.lists(
    st.sampled_from(["a", "b", "é", "漢", " ", "  ", "\n", "\t \n", "\u2003", "\x1c"])
)


@given(PIECES.map("".join), PIECES.map("".join).filter(lambda quote: quote.strip()))
def test_a_quote_is_found_where_a_pattern_finds_it(text: str, quote: str) -> None:
    found = re.search(r"\s+".join(map(re.escape, quote.split())), text)
    place = find_quote(text.encode(), quote)
    assert (place is None) == (found is None)
    if place is not None and found is not None:
        assert place.start == len(text[: found.start()].encode())
        assert place.end == len(text[: found.end()].encode())


def test_a_quote_that_nearly_stands_everywhere_in_a_large_entry_is_refused_soon() -> None:
    text, quote = b"a " * 1_000_000, "a " * 900 + "b"
    began = time.process_time()
    assert find_quote(text, quote) is None
    assert nearest_text(text, quote).startswith("a a")
    assert time.process_time() - began < 4
