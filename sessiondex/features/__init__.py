"""Tools for models, and what installs and serves them.

    >>> from sessiondex.features import CAPTURE, Registry, Services, SessionExplore
    >>> registry = Registry()
    >>> registry.install([SessionExplore()], Services({CAPTURE: capture})).require_all()
    >>> registry.call("SearchEntries", {"query": "timeout"}).data

Everything public is named here and loaded when it is first used: a command that serves no tool
loads no schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sessiondex.features.catalogue import all_features as all_features
    from sessiondex.features.catalogue import all_tools as all_tools
    from sessiondex.features.library_tools import LibraryTools as LibraryTools
    from sessiondex.features.memory_extract import MemoryExtract as MemoryExtract
    from sessiondex.features.registry import Contribution as Contribution
    from sessiondex.features.registry import Feature as Feature
    from sessiondex.features.registry import FeatureDescriptor as FeatureDescriptor
    from sessiondex.features.registry import InstallReport as InstallReport
    from sessiondex.features.registry import Instruction as Instruction
    from sessiondex.features.registry import Registry as Registry
    from sessiondex.features.registry import Skipped as Skipped
    from sessiondex.features.reply import ToolReply as ToolReply
    from sessiondex.features.services import CALLING_SESSION as CALLING_SESSION
    from sessiondex.features.services import CAPTURE as CAPTURE
    from sessiondex.features.services import CLOCK as CLOCK
    from sessiondex.features.services import LIBRARY as LIBRARY
    from sessiondex.features.services import RUN_RANGE as RUN_RANGE
    from sessiondex.features.services import CallingSession as CallingSession
    from sessiondex.features.services import Clock as Clock
    from sessiondex.features.services import RunRange as RunRange
    from sessiondex.features.services import ServiceKey as ServiceKey
    from sessiondex.features.services import Services as Services
    from sessiondex.features.session_explore import SessionExplore as SessionExplore
    from sessiondex.features.session_log import SessionLog as SessionLog
    from sessiondex.features.sub_worker import SubWorkerFeature as SubWorkerFeature
    from sessiondex.features.summary_input import SummaryInput as SummaryInput
    from sessiondex.features.summary_input import build_summary_input as build_summary_input
    from sessiondex.features.tool import Annotations as Annotations
    from sessiondex.features.tool import Tool as Tool
    from sessiondex.features.tool import ToolInput as ToolInput
    from sessiondex.features.tool import ToolOutput as ToolOutput
    from sessiondex.features.tool import schema_fingerprint as schema_fingerprint
    from sessiondex.features.worker_observation import WorkerObservation as WorkerObservation

_PLACES = {
    "catalogue": "all_features all_tools",
    "library_tools": "LibraryTools",
    "memory_extract": "MemoryExtract",
    "registry": (
        "Contribution Feature FeatureDescriptor InstallReport Instruction Registry Skipped"
    ),
    "reply": "ToolReply",
    "services": (
        "CALLING_SESSION CAPTURE CLOCK LIBRARY RUN_RANGE CallingSession Clock RunRange ServiceKey"
        " Services"
    ),
    "session_explore": "SessionExplore",
    "session_log": "SessionLog",
    "sub_worker": "SubWorkerFeature",
    "summary_input": "SummaryInput build_summary_input",
    "tool": "Annotations Tool ToolInput ToolOutput schema_fingerprint",
    "worker_observation": "WorkerObservation",
}
"""Module of this package → public names."""

_HOMES = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    try:
        module = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
