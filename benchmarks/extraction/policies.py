"""The scripted policies: an explorer of ours, one shot over a cut transcript, the head only.

They see what a model sees and share one reader. None knows anything of the gold, and a test holds
that by what this module and its helpers import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.extraction.cues import AGENT_CUES, any_cue, languages_of
from benchmarks.extraction.reader import (
    Finding,
    Message,
    findings,
    in_order,
    opened_by,
    settled,
)
from benchmarks.extraction.scripted_model import Policy, Reply, Steps, ToolCall
from sessiondex.features.staging.record import CandidateKind
from sessiondex.limits import CANDIDATES, KIB, PAGE, READ_BYTES, READ_ENTRIES

_READ_AT_ONCE: Final = 30
_LONGEST_READ_BYTES: Final = 24 * KIB
"""Of one message."""
_KIB_FOR_THE_END: Final = 130
_TURNS_FOR_THE_END: Final = 5
_NOT_A_PERSON: Final = frozenset({"synthetic", "copied", "sidechain", "compaction_summary"})
_HARNESS: Final = re.compile(r"<[a-z-]+>")

_WHY: Final[Mapping[CandidateKind, str]] = {
    "preference": "The work would be done in a way that the user does not like.",
    "working_assumption": "The work would rest on something else, or on this without knowing it.",
    "constraint": "The work would break a rule that holds for everyone.",
    "decision": "The choice would be discussed again, or made differently.",
    "open_question": "The question would be forgotten, or taken for decided.",
    "lesson": "The same mistake would be made again.",
}


# ---------------------------------------------------------------- the explorer


def explorer(first_message: str) -> Steps:
    """Searches for words that mark memories, reads the hits whole and what stands before them,
    drops what was corrected, puts repeats together, and stages with quotes."""
    languages = languages_of(first_message)
    searches = [_search(any_cue(each), "user") for each in languages]
    searches += [_search(f"(?i){AGENT_CUES[each]}", "assistant") for each in languages]
    refs: dict[str, None] = {}
    is_enough = False
    while searches and not is_enough:
        replies = yield searches
        refs |= dict.fromkeys(ref for reply in replies for ref in _hits(reply))
        is_enough = any(_is_short(reply) for reply in replies)
        searches = [
            ToolCall(call.name, call.arguments | {"cursor": reply.value["next_cursor"]})
            for call, reply in zip(searches, replies, strict=True)
            if reply.value.get("next_cursor")
        ]
    messages: list[Message] = []
    waiting = sorted(refs)
    while waiting and not is_enough:
        (reply,) = yield [_read(waiting[:_READ_AT_ONCE])]
        is_enough = _is_short(reply)
        read = _entries(reply)
        messages += [_message(each) for each in read]
        for each in read:
            if each["next_byte"] is not None and not is_enough:
                rest = yield from _rest(each)
                messages.append(rest)
        done = {each["entry_ref"] for each in read}
        if not done:
            break
        waiting = [ref for ref in waiting if ref not in done]
    found = [each for message in in_order(messages) for each in findings(message)]
    back = [each for each in found if each.points_back]
    if back and not is_enough:
        replies = yield [_neighbours(each.refs[0]) for each in back]
        for finding, reply in zip(back, replies, strict=True):
            before = [
                each
                for each in _entries(reply)
                if each["entry_ref"] < finding.refs[0] and not _NOT_A_PERSON & set(each["flags"])
            ]
            if before:
                opened_by(finding, _message(before[-1]))
    yield from _staging(settled(found))


def _search(pattern: str, kind: str) -> ToolCall:
    arguments = {"query": pattern, "match": "regex", "kind": kind, "limit": PAGE.maximum}
    return ToolCall("SearchEntries", arguments)


def _hits(reply: Reply) -> list[str]:
    hits: list[dict[str, Any]] = reply.value.get("hits", [])
    return [each["entry_ref"] for each in hits if not _NOT_A_PERSON & set(each["flags"])]


def _is_short(reply: Reply) -> bool:
    """Whether what is left is just enough to stage and to finish."""
    return reply.kib_left < _KIB_FOR_THE_END or reply.turns_left <= _TURNS_FOR_THE_END


def _read(refs: Sequence[str]) -> ToolCall:
    arguments = {
        "entry_refs": list(refs), "max_items": READ_ENTRIES.maximum,
        "max_bytes": READ_BYTES.maximum,
    }  # fmt: skip
    return ToolCall("ReadEntry", arguments)


def _neighbours(ref: str) -> ToolCall:
    arguments = {"entry_ref": ref, "context": 1, "kind": "user", "max_items": 3}
    return ToolCall("ReadEntry", arguments)


def _rest(entry: dict[str, Any]) -> Any:
    """Reads on inside one long message."""
    text, at = entry["text"], entry["next_byte"]
    while at is not None and at < _LONGEST_READ_BYTES:
        (reply,) = yield [ToolCall("ReadEntry", {"entry_ref": entry["entry_ref"], "from_byte": at})]
        read = _entries(reply)
        if not read or _is_short(reply):
            break
        text, at = text + read[0]["text"], read[0]["next_byte"]
    return Message(entry["entry_ref"], entry["kind"] == "user", text)


def _entries(reply: Reply) -> list[dict[str, Any]]:
    return reply.value.get("entries", [])


def _message(entry: Mapping[str, Any]) -> Message:
    return Message(entry["entry_ref"], entry["kind"] == "user", entry["text"])


# ---------------------------------------------------------------- the baselines


def head_only(first_message: str) -> Steps:
    """Stages from what the first message shows, and calls nothing else."""
    messages: list[Message] = []
    for line in first_message.splitlines():
        entry: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if entry.get("kind") in ("user", "assistant"):
            messages.append(_message(entry))
    yield from _staging(_all_findings(messages))


def one_shot(transcript: str) -> Policy:
    """Stages from a transcript that it is given whole, without looking anywhere."""

    def policy(first_message: str) -> Steps:
        yield from _staging(_all_findings(transcript_messages(transcript)))

    return policy


_TRANSCRIPT_LINE: Final = re.compile(r"(?:\[(E[0-9.]+)\] )?(User|Assistant|System|Tool): ?(.*)")


def transcript_messages(transcript: str) -> list[Message]:
    """The messages of a transcript as it looks: who speaks is what stands before the colon."""
    messages: list[Message] = []
    ref, speaker = "", ""
    lines: list[str] = []

    def end() -> None:
        if ref and speaker in ("User", "Assistant"):
            messages.append(Message(ref, speaker == "User", "\n".join(lines)))

    for line in transcript.splitlines():
        match = _TRANSCRIPT_LINE.fullmatch(line)
        if match is None:
            lines.append(line)
            continue
        end()
        ref, speaker, lines = match[1] or ref, match[2], [match[3]]
    end()
    return messages


def _all_findings(messages: Iterable[Message]) -> list[Finding]:
    found: list[Finding] = []
    before: Message | None = None
    for message in messages:
        if _HARNESS.match(message.text):
            continue
        for finding in findings(message):
            found.append(finding if before is None else opened_by(finding, before))
        if message.is_user:
            before = message
    return settled(found)


# ---------------------------------------------------------------- staging


def _staging(found: Sequence[Finding]) -> Steps:
    """Stages all in one answer, then finishes."""
    kept = found[: CANDIDATES.maximum]
    count = 0
    if kept:
        replies = yield [_stage(each) for each in kept]
        count = max((reply.value.get("staged_count", 0) for reply in replies), default=0)
    reason = {} if count else {"no_candidates_reason": "No message says anything that lasts."}
    yield [ToolCall("FinishMemoryExtraction", {"staged_count": count} | reason)]


def _stage(finding: Finding) -> ToolCall:
    arguments = {
        "kind": finding.kind, "claim": finding.claim[:2000], "why_useful": _WHY[finding.kind],
        "entry_refs": finding.refs[:20],
        "quotes": [{"entry_ref": ref, "quote": words} for ref, words in finding.quotes[:20]],
    }  # fmt: skip
    return ToolCall("StageMemoryCandidate", arguments)
