"""The catalogue: every feature and every tool, whether or not what they work on is present."""

from __future__ import annotations

from typing import Any

from sessiondex.features.library_tools import LibraryTools
from sessiondex.features.memory_extract import MemoryExtract
from sessiondex.features.registry import FeatureDescriptor
from sessiondex.features.session_explore import SessionExplore
from sessiondex.features.session_log import SessionLog
from sessiondex.features.sub_worker import SubWorkerFeature
from sessiondex.features.tool import Tool
from sessiondex.features.worker_observation import WorkerObservation


def all_features() -> tuple[FeatureDescriptor, ...]:
    """What every feature declares of itself."""
    return (
        SessionExplore.descriptor,
        MemoryExtract.descriptor,
        WorkerObservation.descriptor,
        SessionLog.descriptor,
        SubWorkerFeature.descriptor,
        LibraryTools.descriptor,
    )


def all_tools() -> dict[str, Tool[Any]]:
    """The definition of every tool of every feature by its name; needs no services."""
    return {tool.name: tool for feature in all_features() for tool in feature.tools}
