"""What an extract run was shown: which entries, by which calls, and what could not be served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sessiondex.features.loop.loop import Call
from sessiondex.features.memory_extract import MemoryExtract
from sessiondex.features.session_explore import SessionExplore
from sessiondex.features.staging.record import StagingRecord
from sessiondex.model import EntryRef

TOOLS = (*SessionExplore.descriptor.tools, *MemoryExtract.descriptor.tools)
"""All that a run is served."""

_WRITING = frozenset(tool.name for tool in MemoryExtract.descriptor.tools)
_SHOWING = ("anchors", "hits", "entries")
"""Fields of replies whose items show entries."""

UNKNOWN_TOOL = "unknown"
"""Under it calls of tools that there are not are counted: their names are a model's invention."""


class ShownEntries:
    """Counts the calls of one run and keeps the refs that their replies showed."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.refused_calls = 0
        self.by_tools: set[EntryRef] = set()
        self.broken: list[str] = []
        """Calls that could not be served, for no fault of the model. Those that stage and finish
        are not among them: the run itself knows what may not have been kept."""
        self._names = frozenset(tool.name for tool in TOOLS)

    def note(self, call: Call) -> None:
        """Counts a call and looks at its reply."""
        self.calls[call.name if call.name in self._names else UNKNOWN_TOOL] += 1
        if call.reply.is_error:
            self.refused_calls += 1
            if call.fault and call.name not in _WRITING:
                self.broken.append(call.fault)
            return
        for name in _SHOWING:
            for each in call.reply.value.get(name, ()):
                is_left_out = each.get("returned_bytes") == 0 < each["total_bytes"]
                if not is_left_out:
                    self.by_tools.add(EntryRef.parse(each["entry_ref"]))

    def unseen(self, records: Iterable[StagingRecord]) -> list[str]:
        """Refs that records cite and no tool has shown, in order, each once."""
        cited = {EntryRef.parse(evidence.id) for record in records for evidence in record.evidence}
        return [str(ref) for ref in sorted(cited - self.by_tools)]
