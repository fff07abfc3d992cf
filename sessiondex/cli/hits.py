"""How hits of a search and lines of a listing are printed, page by page or to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import short_ref
from sessiondex.cli.texts import columns, count_of, local_time, one_line, snippet_pieces
from sessiondex.limits import PAGE, RANKED_HITS

NameOf = Callable[[str], str]
"""Session id → the shortest name that is taken back."""

Page = dict[str, Any]


def print_page(
    invocation: Invocation, page: Page, *, field: str, name_of: NameOf, scope: str, origin: str
) -> None:
    """Prints one page; `field` is what JSON calls its hits."""
    output = invocation.output
    hits = page["hits"]
    if output.is_jsonl:
        for hit in hits:
            output.json_line(hit)
    elif output.is_json:
        output.json({field: hits, **{key: value for key, value in page.items() if key != "hits"}})
    else:
        with output.paged():
            for hit in hits:
                print_hit(invocation, hit, name_of(hit["session"]))
        output.notes(page)
        noun = "hit" if field == "hits" else "entry"
        output.message(", ".join([_extent(page, noun), scope, origin]))
        if page["has_more"]:
            reason = f" (stopped: {page['stopped']})" if page.get("stopped") else ""
            output.message(f"more{reason} with --cursor {page['next_cursor']} or --all")


def print_all(
    invocation: Invocation,
    hits: Iterable[dict[str, Any]],
    *,
    field: str,
    name_of: NameOf,
    scope: str,
    origin: str,
    head: dict[str, Any],
    is_ranked: bool = False,
) -> None:
    """Prints every hit of a stream, holding none; `is_ranked` where relevance orders them."""
    output = invocation.output
    if output.is_jsonl:
        for hit in hits:
            output.json_line(hit)
    elif output.is_json:
        tail: dict[str, Any] = {"returned": 0, "has_more": False, "next_cursor": None, "notes": []}

        def counted() -> Iterable[dict[str, Any]]:
            for hit in hits:
                tail["returned"] += 1
                yield hit

        output.json_stream(head, field, counted(), tail)
    else:
        count = 0
        with output.paged():
            for hit in hits:
                print_hit(invocation, hit, name_of(hit["session"]))
                count += 1
        words = ("hit", "hits") if field == "hits" else ("entry", "entries")
        if is_ranked and count >= PAGE.maximum:
            extent = f"the best {count_of(count, *words)}"
            more = f"relevance ranks {RANKED_HITS.maximum:,} at most; --order newest gives all"
        else:
            extent, more = f"all {count_of(count, *words)}", ""
        output.message(", ".join([extent, scope, origin]))
        if more:
            output.message(more)


def print_hit(invocation: Invocation, hit: dict[str, Any], name: str) -> None:
    """One line of a pipe, or a few on a terminal."""
    output = invocation.output
    place = output.styled(f"{name}:{short_ref(hit['entry_ref'])}", "name")
    when = local_time(hit["timestamp"], invocation.surroundings.zone)
    facts = [hit["label"], "error" if hit.get("error") else "", *hit.get("flags", ())]
    if hit.get("also_in_total"):
        facts.append(f"also in {count_of(hit['also_in_total'], 'session')}")
    if "snippet" in hit:
        snippet = hit["snippet"]
        text = output.marked(snippet_pieces(snippet["text"], snippet["matches"]))
        if snippet.get("more_matches"):
            text += output.styled(f" (+{snippet['more_matches']})", "dim")
    else:
        text = one_line(hit.get("text", ""))
    facts = [one_line(fact) for fact in facts if fact]
    if output.is_terminal:
        output.line(columns((place, output.styled(when, "dim"), *facts)))
        output.paragraph(text, indent=4)
    else:
        output.line(columns((place, when, *facts, text)))


def _extent(page: Page, noun: str) -> str:
    returned = page["returned"]
    plural = "entries" if noun == "entry" else ""
    if page.get("total") is not None:
        return f"{returned:,} of {count_of(page['total'], noun, plural)}"
    if page["has_more"] and page.get("total_at_least") is not None:
        return f"{returned:,} of at least {count_of(page['total_at_least'], noun, plural)}"
    return count_of(returned, noun, plural) if returned else f"no {plural or noun + 's'}"
