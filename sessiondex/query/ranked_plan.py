"""What a ranked query finds in a term index, and how it relaxes when that is nothing.

`exact`: words, identifier parts and accents as they are indexed. `infix`: every word anywhere
inside others, verified on the text. `typo`: words one edit away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from tantivy import Occur, Query

from sessiondex.indexer import term_fields as terms
from sessiondex.indexer.folding import FoldMap, Spans, fold, fold_accents
from sessiondex.indexer.term_index import TermSearcher
from sessiondex.indexer.tokens import MAX_TOKEN_BYTES, humped_words, identifier_parts
from sessiondex.query.ranked import AllOf, AnyOf, Exclusion, Node, Phrase, Prefix, Word, leaves

Step = Literal["exact", "infix", "typo"]
STEPS: Final[tuple[Step, ...]] = ("exact", "infix", "typo")

Leaf = Word | Phrase | Prefix

_PARTS_BOOST: Final = 0.6
_MIN_TYPO: Final = 4
"""Characters; a shorter word one edit away is another word."""
_EXPANSIONS: Final = 64


@dataclass(frozen=True, slots=True)
class RankedPlan:
    """A step of a ranked query over one searcher."""

    query: Query
    step: Step
    verify: Callable[[str], bool] | None
    """What the index cannot tell, asked of the folded text; None if nothing."""


def plan(root: AllOf, searcher: TermSearcher, step: Step) -> RankedPlan:
    """Compiles one step."""
    if step == "infix":
        return RankedPlan(
            _Infix(searcher).compile(root),
            step,
            lambda text: _holds(root, lambda leaf: fold(leaf.text.strip()) in text),
        )
    compiler = _Typo(searcher) if step == "typo" else _Exact(searcher)
    query = compiler.compile(root)
    wordless = _wordless(root, searcher)
    typo = compiler if isinstance(compiler, _Typo) and compiler.has_rows else None
    if not wordless and typo is None:
        return RankedPlan(query, step, None)

    def verify(text: str) -> bool:
        is_near = True if typo is None else _holds(root, partial(typo.is_near, folded=text))
        return is_near and all(part in text for part in wordless)

    return RankedPlan(query, step, verify)


def _wordless(root: AllOf, searcher: TermSearcher) -> list[str]:
    """Folded words without a term that must stand in the text: symbols, or all there is.

    ASCII punctuation among words is taken for syntax of another language and does not bind.
    """
    parts = [fold(node.text) for node in root.nodes if isinstance(node, (Word, Phrase, Prefix))]
    without = [part for part in parts if not searcher.tokens(part)]
    if len(without) == len(root.nodes):
        return without
    return [part for part in without if not part.isascii()]


class _Compiler:
    """Walks the syntax; subclasses say what a word is."""

    def __init__(self, searcher: TermSearcher) -> None:
        self.searcher = searcher

    def compile(self, node: Node) -> Query:
        query = self._compiled(node)
        return Query.all_query() if query is None else query

    def _compiled(self, node: Node) -> Query | None:
        """None for what binds nothing."""
        if isinstance(node, AnyOf):
            found = [self._compiled(each) for each in node.nodes]
            return terms.any_of(query for query in found if query is not None)
        if isinstance(node, AllOf):
            clauses: list[tuple[Occur, Query]] = []
            for each in node.nodes:
                excluded = isinstance(each, Exclusion)
                compiler = _Exact(self.searcher) if excluded else self
                query = compiler._compiled(each.node if isinstance(each, Exclusion) else each)
                if query is not None:
                    clauses.append((Occur.MustNot if excluded else Occur.Must, query))
            if not clauses:
                return None
            if all(occur == Occur.MustNot for occur, _ in clauses):
                clauses.append((Occur.Must, Query.all_query()))
            return Query.boolean_query(clauses)
        if isinstance(node, Exclusion):
            raise AssertionError("the parser keeps exclusions inside AllOf")
        return self.leaf(node)

    def leaf(self, node: Leaf) -> Query | None:
        raise NotImplementedError

    def words(self, text: str) -> list[str]:
        return [token.text for token in self.searcher.tokens(fold(text))]


class _Exact(_Compiler):
    def leaf(self, node: Leaf) -> Query | None:
        words = self.words(node.text)
        if not words:
            return None
        if isinstance(node, Prefix):
            return self._prefix(words)
        alternatives = [terms.phrase(words)]
        plain = self.words(fold_accents(node.text))
        if plain != words:
            alternatives.append(terms.phrase(plain))
        if isinstance(node, Word):
            alternatives.append(_in_parts(plain))
            if node.text in humped_words(node.text):
                parts = identifier_parts(node.text)
                alternatives += [Query.boost_query(terms.phrase(parts), 0.9), _in_parts(parts)]
        return Query.disjunction_max_query(alternatives, 0.1)

    def _prefix(self, words: list[str]) -> Query:
        beginning = words[-1]
        known = self.searcher.prefixed(beginning, _EXPANSIONS)
        if known is not None and len(words) > 1:
            return terms.any_of(terms.phrase([*words[:-1], term]) for term in known)
        alternatives = [
            Query.fuzzy_term_query(terms.SCHEMA, field, beginning, distance=0, prefix=True)
            for field in ("body", "parts")
        ]
        if known is not None:
            alternatives.append(terms.any_term("body", known))
        last = Query.disjunction_max_query(alternatives, 0.1)
        return last if len(words) == 1 else terms.all_of([terms.phrase(words[:-1]), last])


def _in_parts(words: Sequence[str]) -> Query:
    return Query.boost_query(
        terms.all_of(terms.term("parts", word) for word in words), _PARTS_BOOST
    )


class _Infix(_Compiler):
    def leaf(self, node: Leaf) -> Query | None:
        found = self.searcher.literal(node.text)
        if found.mode == "empty":
            return Query.empty_query()
        return found.query


class _Typo(_Exact):
    def __init__(self, searcher: TermSearcher) -> None:
        super().__init__(searcher)
        self.has_rows = False
        """Some word has several pieces; that they stand in a row has to be verified."""

    def leaf(self, node: Leaf) -> Query | None:
        words = self._pieces(node)
        if not words:
            return super().leaf(node)
        self.has_rows = self.has_rows or len(words) > 1
        return terms.all_of(self._near(word) for word in words)

    def is_near(self, node: Leaf, folded: str) -> bool:
        """Whether the pieces of a word stand in a row, each at most one edit away."""
        row = self._pieces(node)
        if not row:
            return True
        words = _WORD.findall(folded)
        return any(all(map(_is_like, words[at:], row)) for at in range(len(words) - len(row) + 1))

    def _pieces(self, node: Leaf) -> list[str]:
        """The pieces of a word that may be mistyped; none of anything else."""
        if not isinstance(node, Word):
            return []
        tokens = self.searcher.tokens(fold(node.text))
        if any(_is_unspaced(token.written) for token in tokens):
            return []
        return [token.text for token in tokens]

    def _near(self, word: str) -> Query:
        alternatives = [terms.term(field, word) for field in ("body", "parts")]
        if len(word) >= _MIN_TYPO and len(word.encode()) <= MAX_TOKEN_BYTES // 4:
            near = Query.fuzzy_term_query(terms.SCHEMA, "body", word, distance=1)
            alternatives.append(near)
        return Query.disjunction_max_query(alternatives)


def _is_unspaced(word: str) -> bool:
    # Scripts without spaces have no word boundaries, and a character for a word.
    return word[0] >= "\u0e00"


def _is_like(word: str, wanted: str) -> bool:
    return word == wanted or (len(wanted) >= _MIN_TYPO and _within_one_edit(word, wanted))


def _holds(node: Node, is_there: Callable[[Leaf], bool]) -> bool:
    """Whether a node holds, given which of its words do; exclusions are the index's, exactly."""
    if isinstance(node, AllOf):
        return all(_holds(each, is_there) for each in node.nodes)
    if isinstance(node, AnyOf):
        return any(_holds(each, is_there) for each in node.nodes)
    return isinstance(node, Exclusion) or is_there(node)


# ---------------------------------------------------------------- what is marked in a snippet


class Marker:
    """Finds in a text what made it match a ranked query."""

    def __init__(self, root: AllOf, searcher: TermSearcher, step: Step) -> None:
        self._step = step
        patterns: list[str] = []
        anywhere: list[str] = []
        self._near: list[str] = []
        for leaf in leaves(root):
            folded = fold_accents(leaf.text.strip())
            words = [token.written for token in searcher.tokens(folded)]
            anywhere.append(re.escape(folded))
            if not words:
                patterns.append(re.escape(folded))
                continue
            begin = "" if _is_unspaced(words[0]) else r"(?<![^\W_])"
            end = "" if _is_unspaced(words[-1]) else r"(?![^\W_])"
            body = r"[\W_]*".join(re.escape(word) for word in words)
            patterns.append(begin + body + (r"[^\W_]*" if isinstance(leaf, Prefix) else end))
            anywhere += [re.escape(word) for word in words]
            if isinstance(leaf, Word) and leaf.text in humped_words(leaf.text):
                anywhere += [re.escape(part) for part in identifier_parts(leaf.text)]
            self._near += [word for word in words if len(word) >= _MIN_TYPO]
        self._whole = re.compile("|".join(patterns) or r"(?!)")
        self._anywhere = re.compile("|".join(part for part in anywhere if part) or r"(?!)")

    def find(self, text: str, limit: int) -> Spans:
        """The matches in source characters; whole words first, else parts of words."""
        folded = FoldMap(text, fold_accents)
        if self._step == "typo":
            spans = _spans(folded, _WORD, limit, self._is_near)
            if spans.spans:
                return spans
        spans = _spans(folded, self._whole, limit)
        return spans if spans.spans else _spans(folded, self._anywhere, limit)

    def _is_near(self, word: str) -> bool:
        return any(_within_one_edit(word, wanted) for wanted in self._near)


_WORD: Final = re.compile(r"[^\W_]+")


def _spans(
    folded: FoldMap, pattern: re.Pattern[str], limit: int, keep: Callable[[str], bool] | None = None
) -> Spans:
    spans: list[tuple[int, int]] = []
    more = end = 0
    for match in pattern.finditer(folded.folded):
        if match.start() == match.end() or (keep is not None and not keep(match[0])):
            continue
        if len(spans) >= limit:
            more += 1
        elif match.start() >= end:
            span, end = folded.covering(*match.span())
            spans.append(span)
    return Spans(spans, more)


def _within_one_edit(word: str, wanted: str) -> bool:
    """Whether one insertion, deletion, replacement or exchange of neighbours makes them equal."""
    if abs(len(word) - len(wanted)) > 1:
        return False
    at = 0
    while at < min(len(word), len(wanted)) and word[at] == wanted[at]:
        at += 1
    left, right = word[at:], wanted[at:]
    return (
        left[1:] == right[1:]
        or left[1:] == right
        or left == right[1:]
        or (left[:2] == right[1::-1] and left[2:] == right[2:])
    )
