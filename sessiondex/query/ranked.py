"""The syntax of a ranked query: words, "phrases", prefix*, -exclusion, OR, (groups), field:value.

Pure syntax: what a word finds is `ranked_plan`'s. OR joins the operands beside it, everything
else must hold. Nothing is refused: what does not parse is searched as plain words, and the reason
is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

FIELDS: Final = (
    "kind", "part", "tool", "tool_name", "call_id", "error", "flag",
    "session", "agent", "project", "branch", "model",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it was typed; one with punctuation inside is a phrase of its pieces."""

    text: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words one after the other."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a word."""

    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A filter, applied outside the ranking."""

    name: str
    value: str
    is_excluded: bool = False


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What must not match."""

    node: Node


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Operands of OR."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """What must all match, exclusions among it."""

    nodes: tuple[Node, ...]


Node = Word | Phrase | Prefix | Exclusion | AnyOf | AllOf


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A ranked query. `note` says what was searched as plain words and why; '' if all parsed."""

    root: AllOf
    fields: tuple[Field, ...] = ()
    note: str = ""


def parse(query: str) -> ParsedQuery:
    """Parses a ranked query; never fails."""
    try:
        return _Parser(query).parsed()
    except _Unparsable as reason:
        words = tuple(Word(word) for word in query.split())
        return ParsedQuery(AllOf(words), note=f"searched as plain words: {reason}")


class _Unparsable(Exception):
    """Why a query is no query of this syntax."""


_FIELD: Final = re.compile(r"([A-Za-z_]\w*):(?=\S)")
_EXCLUDED: Final = re.compile(r'-[\w"(]')
_OPERATORS: Final = ("AND", "OR")


class _Parser:
    def __init__(self, query: str) -> None:
        self._query = query
        self._at = 0
        self._depth = 0
        self._fields: list[Field] = []
        self._unknown: list[str] = []

    def parsed(self) -> ParsedQuery:
        nodes = self._sequence()
        if not nodes and not self._fields:
            raise _Unparsable("nothing to search for")
        note = ""
        if self._unknown:
            note = f"searched as plain words: {', '.join(self._unknown)} is no known field"
        return ParsedQuery(_all_of(nodes, may_be_empty=True), tuple(self._fields), note)

    def _sequence(self) -> list[Node]:
        nodes: list[Node] = []
        expects_operand = False
        while self._skip_space():
            if self._depth and self._query[self._at] == ")":
                break
            operator = self._operator()
            if operator:
                if expects_operand or not (nodes or self._fields):
                    raise _Unparsable(f"{operator} has nothing on one side")
                expects_operand = True
                if operator == "AND":
                    continue
                if not nodes:
                    raise _Unparsable("a field cannot be joined by OR")
                self._skip_space()
                left, right = nodes.pop(), self._operand()
                if right is None:
                    raise _Unparsable("a field cannot be joined by OR")
                if isinstance(left, Exclusion) or isinstance(right, Exclusion):
                    raise _Unparsable("an exclusion cannot be joined by OR")
                several = left.nodes if isinstance(left, AnyOf) else (left,)
                nodes.append(AnyOf((*several, right)))
            else:
                node = self._operand()
                if node is not None:
                    nodes.append(node)
            expects_operand = False
        if expects_operand:
            raise _Unparsable("an operator has nothing on one side")
        return nodes

    def _operand(self) -> Node | None:
        """The next operand; None when it was a field."""
        query = self._query
        if self._at >= len(query) or (self._depth and query[self._at] == ")"):
            raise _Unparsable("OR has nothing on one side")
        if _EXCLUDED.match(query, self._at):
            self._at += 1
            node = self._primary(is_excluded=True)
            return None if node is None else Exclusion(node)
        return self._primary(is_excluded=False)

    def _primary(self, *, is_excluded: bool) -> Node | None:
        query = self._query
        if query[self._at] == "(":
            return self._group()
        if query[self._at] == ")":
            raise _Unparsable("a closing bracket without an opening one")
        if query[self._at] == '"':
            return Phrase(self._quoted())
        field = _FIELD.match(query, self._at)
        if field is not None:
            name = field[1].lower()
            if name in FIELDS:
                if self._depth:
                    raise _Unparsable("a field cannot stand inside brackets")
                self._at = field.end()
                value = self._quoted() if query[self._at] == '"' else self._bare()
                self._fields.append(Field(name, value, is_excluded))
                return None
            self._unknown.append(repr(field[1]))
        word = self._bare()
        if word.upper() in _OPERATORS and word.isupper():
            raise _Unparsable(f"{word} has nothing on one side")
        if word.endswith("*") and word.strip("*"):
            return Prefix(word.rstrip("*"))
        return Word(word)

    def _group(self) -> Node:
        self._at += 1
        self._depth += 1
        fields = len(self._fields)
        nodes = self._sequence()
        self._depth -= 1
        if self._at >= len(self._query):
            raise _Unparsable("an opening bracket without a closing one")
        self._at += 1
        if not nodes or len(self._fields) != fields:
            raise _Unparsable("brackets with nothing inside")
        return _all_of(nodes) if len(nodes) > 1 else nodes[0]

    def _quoted(self) -> str:
        end = self._query.find('"', self._at + 1)
        if end < 0:
            raise _Unparsable("a quotation mark without a second one")
        text = self._query[self._at + 1 : end]
        self._at = end + 1
        return text

    def _bare(self) -> str:
        """A word up to white space, or up to the bracket that closes a group."""
        start, inner = self._at, 0
        while self._at < len(self._query) and not self._query[self._at].isspace():
            character = self._query[self._at]
            if character == "(":
                inner += 1
            elif character == ")":
                if self._depth and not inner:
                    break
                inner -= 1
            self._at += 1
        return self._query[start : self._at]

    def _operator(self) -> str:
        for operator in _OPERATORS:
            end = self._at + len(operator)
            if self._query.startswith(operator, self._at) and (
                end == len(self._query) or self._query[end].isspace()
            ):
                self._at = end
                return operator
        return ""

    def _skip_space(self) -> bool:
        """Moves to the next character that is no white space; False at the end."""
        while self._at < len(self._query) and self._query[self._at].isspace():
            self._at += 1
        return self._at < len(self._query)


def _all_of(nodes: list[Node], *, may_be_empty: bool = False) -> AllOf:
    if all(isinstance(node, Exclusion) for node in nodes) and (nodes or not may_be_empty):
        raise _Unparsable("only exclusions")
    return AllOf(tuple(nodes))


def leaves(node: Node) -> list[Word | Phrase | Prefix]:
    """The words that a match may be made of, exclusions left out, in order."""
    if isinstance(node, Exclusion):
        return []
    if isinstance(node, (AnyOf, AllOf)):
        return [leaf for each in node.nodes for leaf in leaves(each)]
    return [node]
