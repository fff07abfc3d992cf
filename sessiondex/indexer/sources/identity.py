"""Names by which the same item is known in whatever session replays it.

For formats that copy items without keeping an id: the name is a digest of the scope that the item
belongs to (a thread, a session tree), its content, and which occurrence of that content it is.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from sessiondex.model import Item


class Occurrences:
    """Gives items their identities, in the order of their source.

    An item with a call id is named by its content alone; only others are counted, so that the
    resume state stays small in sessions of many calls.
    """

    def __init__(self, seen: dict[str, int] | None = None) -> None:
        self._seen = dict(seen or {})

    def identity(self, scope: str, item: Item) -> str:
        """The identity of the next item of a scope; '' for hidden items."""
        if item.kind in ("reasoning", "prompt"):
            return ""
        parts = (scope, item.kind, item.call_id, item.text, item.summary)
        content = "\0".join(parts).encode("utf-8", "replace")
        digest = blake2b(content, digest_size=12).hexdigest()
        if item.call_id:
            return digest
        occurrence = self._seen.get(digest, 0) + 1
        self._seen[digest] = occurrence
        return f"{digest}.{occurrence}"

    def save(self) -> dict[str, Any]:
        """JSON-able counts, to go on from."""
        return dict(self._seen)
