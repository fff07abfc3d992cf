"""The registry: features install their tools into it, and every call goes through it.

A feature declares, the registry checks, and installing one is all or nothing. No feature sees
another. A call answers whatever JSON it is given: with a bounded reply, or with an error of one
of three classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol

import orjson

from sessiondex.errors import (
    Failed,
    InternalError,
    InvalidArgument,
    NotFound,
    SessiondexError,
)
from sessiondex.features.reply import ToolReply
from sessiondex.features.services import ServiceKey, Services
from sessiondex.features.tool import Input, Tool, schema_fingerprint
from sessiondex.model import clean_text

_FEATURE_ID: Final = re.compile(r"builtin:[a-z0-9]+(?:-[a-z0-9]+)*")

OnFault = Callable[[str, Exception], None]
"""Told of a fault inside a tool, by the tool's name; a model is told only that there was one."""


class Instruction(NamedTuple):
    """A text that a host puts before a model while a feature is installed."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class FeatureDescriptor:
    """What a feature declares of itself, before it is given anything."""

    id: str
    """`builtin:<slug>`."""
    display_name: str
    description: str
    tools: tuple[Tool[Any], ...]
    requires: tuple[ServiceKey[Any], ...] = ()
    optional: tuple[ServiceKey[Any], ...] = ()
    instructions: tuple[Instruction, ...] = ()


@dataclass(frozen=True, slots=True)
class Contribution(Generic[Input]):
    """A tool with what serves it. `name` is what it is contributed as: the name of the tool."""

    name: str
    tool: Tool[Input]
    serve: Callable[[Input], Mapping[str, Any]]

    @classmethod
    def of(
        cls, tool: Tool[Input], serve: Callable[[Input], Mapping[str, Any]]
    ) -> Contribution[Input]:
        """A contribution under the tool's own name."""
        return cls(tool.name, tool, serve)


class Skipped(NamedTuple):
    """A declared tool that is not installed, and why."""

    name: str
    why: str


class Feature(Protocol):
    """A module that declares tools and makes them from services."""

    @property
    def descriptor(self) -> FeatureDescriptor:
        """What it declares."""
        ...

    def contribute(self, services: Services) -> Sequence[Contribution[Any] | Skipped]:
        """Its tools, or why one of them is left out; changes nothing outside itself.

        Raises:
            SessiondexError: it cannot be installed with these services.
        """
        ...


@dataclass(frozen=True, slots=True)
class FeatureReport:
    """How the installation of one feature went."""

    feature: str
    installed: bool
    tools: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    diagnostics: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self) | {"skipped": [each._asdict() for each in self.skipped]}


@dataclass(frozen=True, slots=True)
class InstallReport:
    """How the installation of several features went."""

    features: tuple[FeatureReport, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {"features": [each.to_json() for each in self.features]}

    def require_all(self) -> InstallReport:
        """This report, for a host that wants all or none.

        Raises:
            Failed: a feature was not installed; says why.
        """
        for each in self.features:
            if not each.installed:
                raise Failed(
                    f"feature {each.feature!r} was not installed: {'; '.join(each.diagnostics)}",
                    hint="see the install report",
                )
        return self


class Registry:
    """The tools of one model, by name. Installing is for one thread, calling for any."""

    def __init__(self, *, taken: Iterable[str] = (), on_fault: OnFault | None = None) -> None:
        """`taken` are names of tools that the host has already, outside this registry."""
        self._taken = frozenset(taken)
        self._on_fault = on_fault
        self._tools: dict[str, Contribution[Any]] = {}
        self._features: dict[str, FeatureDescriptor] = {}

    # ------------------------------------------------------------ installing

    def add(self, contribution: Contribution[Any]) -> None:
        """Adds a tool of the host's own, of no feature.

        Raises:
            InvalidArgument: its name is taken, or is not that of its tool.
        """
        complaint = self._complaint(contribution)
        if complaint:
            raise InvalidArgument(complaint)
        self._tools[contribution.name] = contribution

    def install(self, features: Iterable[Feature], services: Services) -> InstallReport:
        """Installs features one by one, each whole or not at all; one that fails hinders none."""
        return InstallReport(tuple(self._install(feature, services) for feature in features))

    def _install(self, feature: Feature, services: Services) -> FeatureReport:
        descriptor = feature.descriptor
        diagnostics = self._undeclarable(descriptor, services)
        offered: Sequence[Contribution[Any] | Skipped] = ()
        if not diagnostics:
            declared = (*descriptor.requires, *descriptor.optional)
            try:
                offered = feature.contribute(services.only(declared))
            except SessiondexError as error:
                diagnostics = [str(error)]
        skipped = tuple(each for each in offered if isinstance(each, Skipped))
        contributed = [each for each in offered if isinstance(each, Contribution)]
        if not diagnostics:
            diagnostics = self._uninstallable(descriptor, contributed, skipped)
        if diagnostics:
            why = diagnostics[0]
            skipped = tuple(Skipped(tool.name, why) for tool in descriptor.tools)
            return FeatureReport(descriptor.id, False, (), skipped, tuple(diagnostics))
        self._tools.update({each.name: each for each in contributed})
        self._features[descriptor.id] = descriptor
        missing = tuple(
            f"optional service {key.name!r} is not provided"
            for key in descriptor.optional
            if key not in services
        )
        names = tuple(each.name for each in contributed)
        return FeatureReport(descriptor.id, True, names, skipped, missing)

    def _undeclarable(self, descriptor: FeatureDescriptor, services: Services) -> list[str]:
        """What is wrong before the feature is given anything."""
        found: list[str] = []
        if not _FEATURE_ID.fullmatch(descriptor.id):
            found.append(f"feature id {descriptor.id!r} is not of the form builtin:<slug>")
        if descriptor.id in self._features:
            found.append(f"feature id {descriptor.id!r} is installed already")
        found += [
            f"required service {key.name!r} is not provided"
            for key in descriptor.requires
            if key not in services
        ]
        return found

    def _uninstallable(
        self,
        descriptor: FeatureDescriptor,
        contributed: Sequence[Contribution[Any]],
        skipped: Sequence[Skipped],
    ) -> list[str]:
        """What is wrong with the tools that the feature contributes."""
        declared = {tool.name: tool for tool in descriptor.tools}
        found: list[str] = []
        if len(declared) < len(descriptor.tools):
            found.append("a tool is declared twice")
        seen: set[str] = set()
        for each in contributed:
            name = each.tool.name
            if complaint := self._complaint(each):
                found.append(complaint)
            if name not in declared:
                found.append(f"tool {name!r} was not declared")
            elif declared[name] is not each.tool:
                found.append(f"tool {name!r} is not the one that was declared")
            if name in seen:
                found.append(f"tool {name!r} is contributed twice")
            seen.add(name)
        absent = set(declared) - seen - {each.name for each in skipped}
        found += [f"tool {name!r} was declared and not contributed" for name in sorted(absent)]
        return found

    def _complaint(self, contribution: Contribution[Any]) -> str:
        """What is wrong with the name of a contribution; '' if nothing is."""
        name = contribution.tool.name
        if contribution.name != name:
            return f"contribution {contribution.name!r} is seen by models as {name!r}"
        if name in self._taken or name in self._tools:
            return f"the tool name {name!r} is taken"
        return ""

    # ------------------------------------------------------------ what is installed

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        """The definitions of all tools, in the order of installation."""
        return tuple(each.tool for each in self._tools.values())

    @property
    def features(self) -> tuple[FeatureDescriptor, ...]:
        """The descriptors of the features that are installed."""
        return tuple(self._features.values())

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all features, in the order of installation."""
        return tuple(each for feature in self.features for each in feature.instructions)

    def fingerprint(self) -> str:
        """The schema fingerprint: changes with every name, text and schema that models see."""
        return schema_fingerprint(self.tools)

    # ------------------------------------------------------------ calling

    def call(self, name: str, arguments: Any = None) -> ToolReply:
        """Calls a tool with a JSON value. Never raises for what a model can say or a tool can do:
        every failure is an error object."""
        try:
            contribution = self._tools.get(name)
            if contribution is None:
                shown = clean_text(name)[:80]
                known = ", ".join(self._tools) or "none"
                raise NotFound(f"no tool {shown!r}", hint=f"the tools are {known}")
            return ToolReply.of(contribution.serve(contribution.tool.parse(arguments)))
        except SessiondexError as error:
            if isinstance(error, InternalError):
                return self._fault(name, error)
            return ToolReply.of_error(error)
        except Exception as error:  # noqa: BLE001 - the one gate: no fault of a tool leaves a call
            return self._fault(name, error)

    def call_json(self, name: str, arguments: str | bytes) -> ToolReply:
        """Calls a tool with arguments as JSON text, as models write them; blank text is none."""
        try:
            value = orjson.loads(arguments) if arguments.strip() else None
        except orjson.JSONDecodeError as error:
            return ToolReply.of_error(
                InvalidArgument(f"the arguments are no JSON: {error}", hint="pass one JSON object")
            )
        return self.call(name, value)

    def _fault(self, name: str, error: Exception) -> ToolReply:
        if self._on_fault is not None:
            self._on_fault(name, error)
        return ToolReply.of_error(
            InternalError(
                f"{name} failed by a fault of its own",
                hint="try other arguments; the fault is not in what you asked",
            )
        )
