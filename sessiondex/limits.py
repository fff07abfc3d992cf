"""Every limit of the product, in one place; `sessiondex limits` prints this table."""

from __future__ import annotations

from typing import Final, NamedTuple


class Limit(NamedTuple):
    """One limit: what is asked for when nothing is said, and the most that is served."""

    name: str
    unit: str
    default: int
    maximum: int
    what: str


KIB: Final = 1024
MIB: Final = 1024 * 1024

PAGE = Limit("page", "hits", 20, 100, "anchors, hits or lines in one page")
ANCHOR_TEXT = Limit("anchor_text", "bytes", 500, 500, "text of one anchor")
SNIPPET = Limit("snippet", "bytes", 300, 300, "text around the matches of one hit")
LISTING_LINE = Limit("listing_line", "bytes", 160, 160, "text of one line of a listing")
READ_ENTRIES = Limit("read_entries", "entries", 10, 80, "entries in one read")
READ_BYTES = Limit("read_bytes", "bytes", 16 * KIB, 48 * KIB, "bytes in one read")
READ_TOKENS = Limit("read_tokens", "tokens", 4 * KIB, 12 * KIB, "tokens in one read (bytes / 4)")
REPLY_BYTES = Limit("reply_bytes", "bytes", 64 * KIB, 64 * KIB, "serialized reply of any tool")
DEFAULT_REPLY = Limit(
    "default_reply", "bytes", 39 * KIB, 39 * KIB, "serialized reply where no limit is asked for"
)  # 10,000 tokens of 4 bytes, with room
QUERY_BYTES = Limit("query_bytes", "bytes", 4 * KIB, 4 * KIB, "query; longer is refused, never cut")
EXCERPT_BYTES = Limit("excerpt_bytes", "bytes", 2 * KIB, 8 * KIB, "excerpt of one evidence")
STAGING_BYTES = Limit("staging_bytes", "bytes", 64 * KIB, 64 * KIB, "one staging record")
SUBJECT_PART = Limit("subject_part", "bytes", 200, 200, "each part of a subject reference")
SUBJECTS = Limit("subjects", "subjects", 100, 100, "subjects in one list")
CHILD_MESSAGE = Limit("child_message", "bytes", 32 * KIB, 32 * KIB, "message to a sub-worker")
CANDIDATES = Limit("candidates", "candidates", 50, 50, "candidates in one extract run")
CANDIDATE_REFS = Limit("candidate_refs", "refs", 20, 20, "refs in one candidate")
CLAIM = Limit("claim", "characters", 2000, 2000, "claim and why_useful of a candidate")
STALENESS = Limit("staleness", "characters", 500, 500, "staleness of a candidate")
LOG_HITS = Limit("log_hits", "hits", 20, 50, "hits in one reply of search_session_log")
LOG_RECORDS = Limit("log_records", "records", 80, 80, "records in one read of a session log")
LOG_BYTES = Limit("log_bytes", "bytes", 48_000, 48_000, "text in one reply about a session log")
RECORD_BYTES = Limit(
    "record_bytes", "bytes", 32 * MIB, 1024 * MIB, "one record; larger is oversized"
)
SNIPPET_MATCHES = Limit("snippet_matches", "matches", 8, 8, "matches marked in one snippet")
ALSO_IN = Limit("also_in", "sessions", 20, 20, "sessions named as holders of a copy")
TOKEN_BYTES = Limit("token_bytes", "bytes", 120, 120, "identity token of a capture")
RANKED_HITS = Limit("ranked_hits", "hits", 1000, 1000, "hits ranked by relevance")
TASK_CONTEXT = Limit("task_context", "bytes", 2 * KIB, 2 * KIB, "task list or plan in an overview")
FIELD = Limit("field", "bytes", 200, 200, "tool name, call id or label of an entry in a reply")
SUMMARY = Limit("summary", "characters", 240, 240, "derived summary of an entry")
TITLE = Limit("title", "characters", 120, 120, "title that a library keeps of a session")
LOOP_TURNS = Limit("loop_turns", "turns", 24, 200, "answers of a model in one run")
LOOP_CALLS = Limit("loop_calls", "calls", 120, 1000, "calls of tools in one run of a model")
LOOP_SHOWN_BYTES = Limit(
    "loop_shown_bytes", "bytes", 480 * KIB, 8 * MIB, "replies of tools in one run of a model"
)  # 120,000 tokens of 4 bytes: with the prompt it fits the common window of 128,000
LOOP_TOKENS = Limit(
    "loop_tokens", "tokens", 1_500_000, 20_000_000, "tokens of all requests in one run of a model"
)
LOOP_SECONDS = Limit("loop_seconds", "seconds", 900, 14_400, "wall clock of one run of a model")
NUDGES = Limit("nudges", "answers", 2, 2, "prose answers of an extract run that are sent back")
FIRST_MESSAGE = Limit(
    "first_message", "bytes", 24 * KIB, 24 * KIB, "first message of an extract run"
)
SUMMARY_BYTES = Limit(
    "summary_bytes", "bytes", 12 * KIB, 48 * KIB, "summary that a compaction worker writes"
)

LIMITS: Final[tuple[Limit, ...]] = (
    PAGE, ANCHOR_TEXT, SNIPPET, LISTING_LINE, READ_ENTRIES, READ_BYTES, REPLY_BYTES, QUERY_BYTES,
    EXCERPT_BYTES, STAGING_BYTES, SUBJECT_PART, SUBJECTS, CANDIDATES, CANDIDATE_REFS, CLAIM,
    STALENESS, RECORD_BYTES, SNIPPET_MATCHES, ALSO_IN, TOKEN_BYTES, RANKED_HITS, SUMMARY,
    TASK_CONTEXT, FIELD, READ_TOKENS, DEFAULT_REPLY, LOG_HITS, LOG_RECORDS, LOG_BYTES,
    CHILD_MESSAGE, LOOP_TURNS, LOOP_CALLS, LOOP_SHOWN_BYTES, LOOP_TOKENS, LOOP_SECONDS, NUDGES,
    FIRST_MESSAGE, SUMMARY_BYTES, TITLE,
)  # fmt: skip

BYTES_PER_TOKEN: Final = 4
"""Of text whose tokens nobody counted; a started token counts whole. Contract 2 and 5."""

SETTLE_SECONDS: Final = 300
"""Quiet time after which an unterminated tail that parses counts as committed."""
