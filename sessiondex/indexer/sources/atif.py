"""Harbor trajectories: the Agent Trajectory Interchange Format, ATIF-v1.0 to v1.8.

One file is one trajectory, perhaps with embedded trajectories of sub-agents; each is a session and
each step a record. The blocks of a step are, in this order, its reasoning, its message, its calls
and its results. Tool definitions, metrics and the bodies of images and audio are never read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sessiondex.errors import Failed
from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.indexer.sources.documents import (
    Cut,
    DocumentParser,
    array_elements,
    as_dict,
    as_list,
    as_text,
    base64_bytes,
    epoch_milliseconds,
    file_stem,
    leading_fields,
    read_document,
)
from sessiondex.indexer.sources.harbor_trial import read_trial
from sessiondex.model import (
    COPIED,
    SIDECHAIN,
    SYNTHETIC,
    Attachment,
    Item,
    Record,
    SessionHeader,
    clean_text,
    compact_json,
    tool_input_text,
)

_VERSION: Final = "ATIF-v1."
_CONTINUATION = re.compile(r"-cont-\d+\Z")


class AtifFormat:
    """The format of Harbor trajectories."""

    name = "atif"
    agent = "harbor"
    parser_version = 1
    is_line_format = False

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether the document's own `schema_version` is an ATIF version."""
        fields = leading_fields(head)
        if "schema_version" in fields:
            return _is_trajectory(fields)
        is_cut = any(isinstance(value, Cut) for value in fields.values())
        if not is_cut or not fields.keys() & {"agent", "steps", "final_metrics"}:
            return False
        try:
            return _is_trajectory(read_document(source))
        except Failed:
            return False

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The trajectory of the file, then those embedded in it, depth first."""
        found: list[SessionStub] = []

        def visit(trajectory: dict[str, Any], selector: str, fallback: str) -> None:
            session_id = as_text(trajectory.get("trajectory_id")) or fallback
            found.append(SessionStub(session_id, selector))
            for i, embedded in enumerate(as_list(trajectory.get("subagent_trajectories"))):
                if isinstance(embedded, dict):
                    visit(embedded, f"{selector}/{i}" if selector else str(i), f"{session_id}/{i}")

        root = _root(source)
        visit(root, "", _session_id(root, source.path))
        return found

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> AtifParser:
        """A parser of the file's trajectory or of the embedded one that the stub selects."""
        root = trajectory = _root(source)
        pointer = ""
        outer_id = _session_id(root, source.path)
        outer = [root]
        for index in stub.selector.split("/") if stub.selector else ():
            embedded = as_list(trajectory.get("subagent_trajectories"))
            if int(index) >= len(embedded):
                raise Failed(f"'{source.path}' has no embedded trajectory {stub.selector} any more")
            if len(outer) > 1:
                outer_id = as_text(trajectory.get("trajectory_id")) or f"{outer_id}/{index}"
            trajectory = as_dict(embedded[int(index)])
            outer.append(trajectory)
            pointer += f"/subagent_trajectories/{index}"
        header = _header(stub, source, outer)
        if stub.selector:
            header.parent, header.sub_agent = outer_id, True
        else:
            header.parent = _parent(root, source.path)
            header.sub_agent = bool(_parent_run(root))
        return AtifParser(header, trajectory, pointer, outer, source.path.parent, state)

    def resume_command(self, header: SessionHeader) -> list[str] | None:
        """None: a benchmark run cannot be resumed."""
        return None


ATIF: Final = AtifFormat()


class AtifParser(DocumentParser):
    """Reads the steps of one trajectory."""

    def __init__(
        self,
        header: SessionHeader,
        trajectory: dict[str, Any],
        pointer: str,
        outer: Sequence[dict[str, Any]],
        folder: Path,
        state: dict[str, Any] | None,
    ) -> None:
        super().__init__(header, array_elements(f"{pointer}/steps", trajectory.get("steps")), state)
        self._folder = folder
        self._run = _run_id(outer)
        self._seen: Counter[bytes] = Counter()
        self._has_user = False
        self._after_delegation = False

    def parse(self, record: Record, value: dict[str, Any]) -> None:
        """Fills the record of one step."""
        step_source = value.get("source")
        extra = as_dict(value.get("extra"))
        record.timestamp = epoch_milliseconds(value.get("timestamp"))
        record.cwd = as_text(extra.get("cwd")) or self.header.project
        record.branch = as_text(extra.get("git_branch")) or self.header.branch
        record.model = as_text(value.get("model_name"))
        if step_source == "agent":
            record.model = record.model or self.header.model
        if self.header.sub_agent:
            record.flags |= SIDECHAIN
        if value.get("is_copied_context") is True:
            record.flags |= COPIED
            record.replayed = True

        items, blocks = self._items(value)
        is_delegation = step_source == "system" and _is_delegation(value)
        for item in items:
            if item.kind == "system":
                item.sub_kind = "delegation" if is_delegation else ""
                if not self._has_user:
                    item.kind, item.text, item.sub_kind, item.attachments = "prompt", "", "", []
            elif item.kind == "user" and self._after_delegation:
                # What a harness hands on after it delegated is no word of a user.
                item.flags |= SYNTHETIC
        self._name(items, value)
        record.items = items
        record.blocks = max(1, blocks)
        record.closes_turn = (
            step_source == "agent" and not value.get("tool_calls") and not value.get("observation")
        )
        self._has_user = self._has_user or step_source == "user"
        self._after_delegation = is_delegation

    def _items(self, step: dict[str, Any]) -> tuple[list[Item], int]:
        """The items of a step and how many blocks it has."""
        items: list[Item] = []
        block = 0
        if step.get("reasoning_content"):
            items.append(Item(block, "reasoning", pointer="/reasoning_content"))
            block += 1
        kind = {"user": "user", "agent": "assistant", "system": "system"}.get(
            as_text(step.get("source"))
        )
        text, attachments = self._content(step.get("message"))
        if text or attachments:
            if kind is not None:
                items.append(
                    Item(block, kind, text, attachments=attachments, pointer="/message")  # type: ignore[arg-type]
                )
            block += 1
        calls = as_list(step.get("tool_calls"))
        for i, call in enumerate(calls):
            if isinstance(call, dict):
                items.append(_call(block, call, f"/tool_calls/{i}"))
            block += 1
        results = as_list(as_dict(step.get("observation")).get("results"))
        for i, result in enumerate(results):
            if isinstance(result, dict):
                item = self._result(block, result, step, calls, alone=len(results) == 1)
                item.pointer = f"/observation/results/{i}"
                if not (step.get("source") == "system" and _only_delegates(result)):
                    items.append(item)
            block += 1
        return items, block

    def _result(
        self,
        block: int,
        result: dict[str, Any],
        step: dict[str, Any],
        calls: list[Any],
        *,
        alone: bool,
    ) -> Item:
        text, attachments = self._content(result.get("content"))
        item = Item(block, "tool_result", text, attachments=attachments)
        item.call_id = as_text(result.get("source_call_id"))
        if not item.call_id and len(calls) == 1:
            # The result of a whole step can only be that of its one call.
            item.name = as_text(as_dict(calls[0]).get("function_name"))
        item.error = _error(result.get("extra"))
        if item.error is None:
            of_step = _error(step.get("extra"))
            # Of several results the step does not say which one failed.
            item.error = of_step if alone or of_step is False else None
        refs = as_list(result.get("subagent_trajectory_ref"))
        for ref in refs:
            summary = as_dict(as_dict(ref).get("extra")).get("summary")
            if not text and isinstance(summary, str) and not item.summary:
                item.summary = summary
        return item

    def _content(self, content: Any) -> tuple[str, list[Attachment]]:
        """Text and attachments of a message or result: a string, or a list of parts."""
        if isinstance(content, str):
            return content, []
        texts: list[str] = []
        attachments: list[Attachment] = []
        for part in as_list(content):
            if isinstance(part, str):
                texts.append(part)
                continue
            part = as_dict(part)
            if isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif part.get("type"):
                attachments.append(self._attachment(part))
        return "\n".join(texts), attachments

    def _attachment(self, part: dict[str, Any]) -> Attachment:
        described = as_dict(part.get("source"))
        media_type = as_text(described.get("media_type")) or as_text(part.get("type"))
        size = base64_bytes(described.get("data"))
        path = as_text(described.get("path"))
        # Media lie next to the trajectory; a path that leads elsewhere is not followed.
        if path and "\0" not in path and not path.startswith("/") and ".." not in Path(path).parts:
            try:
                size = (self._folder / path).stat().st_size
            except OSError:
                size = 0
        return Attachment(media_type, size)

    def _name(self, items: list[Item], step: dict[str, Any]) -> None:
        """Gives the items names that a step copied inside the same run has too.

        Reasoning, metrics, times and the step's number are not part of them: copies leave them out.
        """
        if not self._run:
            return
        canonical = [step.get(key) for key in ("source", "message", "tool_calls", "observation")]
        content = sha256(compact_json(canonical).encode()).digest()[:12]
        nth = self._seen[content]
        self._seen[content] += 1
        for item in items:
            if item.kind != "reasoning":
                item.identity = f"{self._run}:{content.hex()}:{nth}:{item.pointer}"


# ---------------------------------------------------------------- parts of a step


def _call(block: int, call: dict[str, Any], pointer: str) -> Item:
    name = as_text(call.get("function_name"))
    return Item(
        block,
        "tool_call",
        tool_input_text(name, call.get("arguments")),
        call_id=as_text(call.get("tool_call_id")),
        name=name,
        pointer=pointer,
    )


def _error(extra: Any) -> bool | None:
    """The error flag that some writers keep in `extra`: ATIF has none of its own."""
    for key in ("is_error", "tool_result_is_error"):
        value = as_dict(extra).get(key)
        if isinstance(value, bool):
            return value
    return None


def _only_delegates(result: dict[str, Any]) -> bool:
    return not result.get("content") and bool(result.get("subagent_trajectory_ref"))


def _is_delegation(step: dict[str, Any]) -> bool:
    """Whether all that a step's observation holds are references to sub-agents."""
    results = as_list(as_dict(step.get("observation")).get("results"))
    return bool(results) and all(_only_delegates(as_dict(result)) for result in results)


# ---------------------------------------------------------------- trajectories


def _is_trajectory(document: Any) -> bool:
    return as_text(as_dict(document).get("schema_version")).startswith(_VERSION)


def _root(source: SourceFile) -> dict[str, Any]:
    document = read_document(source)
    if not _is_trajectory(document):
        raise Failed(f"'{source.path}' is not an ATIF trajectory any more")
    return document


def _session_id(trajectory: dict[str, Any], path: Path) -> str:
    """`trajectory_id`, else `<session_id>/<file stem>`, else the file stem."""
    own = as_text(trajectory.get("trajectory_id"))
    run = as_text(trajectory.get("session_id"))
    stem = clean_text(file_stem(path))
    return own or (f"{run}/{stem}" if run else stem)


def _parent_run(trajectory: dict[str, Any]) -> str:
    """The run that a trajectory says it is a sub-agent of."""
    extra = as_dict(as_dict(trajectory.get("agent")).get("extra"))
    return as_text(extra.get("parent_session_id"))


def _run_id(outer: Sequence[dict[str, Any]]) -> str:
    """What all trajectories of one run share, from the innermost to the outermost that says it.

    Terminus appends `-cont-N` to the session id of a continuation.
    """
    for trajectory in reversed(outer):
        run = _parent_run(trajectory) or as_text(trajectory.get("session_id"))
        if run:
            return _CONTINUATION.sub("", run)
    return ""


def _header(
    stub: SessionStub, source: SourceFile, outer: Sequence[dict[str, Any]]
) -> SessionHeader:
    trajectory = outer[-1]
    agent = as_dict(trajectory.get("agent"))
    agent_extra = as_dict(agent.get("extra"))
    extra = as_dict(trajectory.get("extra"))
    model = as_text(agent.get("model_name")) or next(
        (name for step in as_list(trajectory.get("steps")) if (name := _step_model(step))), ""
    )
    header = SessionHeader(stub.session_id, ATIF.agent, ATIF.name, model=model)
    for fields in (extra, agent_extra):
        header.project = header.project or _first_text(fields, "cwd", "cwds")
        header.branch = header.branch or _first_text(fields, "git_branch", "git_branches")
    header.run = read_trial(source.path, [trajectory, *outer[:1]], run=_run_id(outer))
    if not header.model:
        header.model = as_text(header.run.get("model"))
    return header


def _step_model(step: Any) -> str:
    return as_text(as_dict(step).get("model_name"))


def _first_text(fields: dict[str, Any], single: str, several: str) -> str:
    first = (as_list(fields.get(several)) or [""])[0]
    return as_text(fields.get(single)) or as_text(first)


# ---------------------------------------------------------------- neighbouring files


def _parent(trajectory: dict[str, Any], path: Path) -> str:
    """Session id of the trajectory that names this file as a sub-agent's or as its continuation.

    Looked for where writers put it: `trajectory.json` and its continuations beside
    `trajectory.summarization-1-summary.json`, and one folder up for files in a folder of their own.
    '' if none of them names this file.
    """
    parts = file_stem(path).split(".")
    bases = [".".join(parts[:n]) for n in range(1, len(parts))]
    candidates = [
        candidate
        for base in bases
        for candidate in (path.parent / f"{base}.json", *_continuations(path.parent, base))
    ]
    if _parent_run(trajectory) or not bases:
        candidates += [path.parent.parent / "trajectory.json"]
    for candidate in dict.fromkeys(candidates):
        if candidate == path or not candidate.is_file():
            continue
        try:
            document = read_document(SourceFile(candidate))
        except (Failed, OSError):
            continue
        if _is_trajectory(document) and any(
            _refers(candidate, ref, path) for ref in _references(document)
        ):
            return _session_id(document, candidate)
    return ""


def _continuations(folder: Path, base: str) -> list[Path]:
    found: list[Path] = []
    while (candidate := folder / f"{base}.cont-{len(found) + 1}.json").is_file():
        found.append(candidate)
    return found


def _references(trajectory: dict[str, Any]) -> list[str]:
    """The files that a trajectory names as its continuation and its sub-agents'."""
    found = [as_text(trajectory.get("continued_trajectory_ref"))]
    for step in as_list(trajectory.get("steps")):
        for result in as_list(as_dict(as_dict(step).get("observation")).get("results")):
            for ref in as_list(as_dict(result).get("subagent_trajectory_ref")):
                found.append(as_text(as_dict(ref).get("trajectory_path")))
    return [path for path in found if path]


def _refers(parent: Path, reference: str, child: Path) -> bool:
    """Whether a reference in one file means another.

    A prefix that both file names were given when they were gathered in one folder does not matter.
    """
    if "\0" in reference:
        return False
    if (parent.parent / reference).resolve() == child.resolve():
        return True
    prefix = child.name.removesuffix(reference)
    return parent.parent == child.parent and prefix != child.name and parent.name.startswith(prefix)
