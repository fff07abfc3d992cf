"""What the payloads of Codex say: one response item or event message becomes at most one item.

Shared by the line format and the older documents. Nothing here knows of files or resume states.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from sessiondex.indexer.sources.documents import (
    as_dict,
    as_list,
    as_text,
    base64_bytes,
    parse_json,
    url_attachment,
)
from sessiondex.model import (
    COMPACTION_SUMMARY,
    SIDECHAIN,
    SYNTHETIC,
    Attachment,
    Item,
    clean_text,
    compact_json,
    tool_input_text,
)

SYNTHETIC_OPENERS: Final = (
    "# AGENTS.md instructions",
    "<app-context>",
    "<apps_instructions>",
    "<codex_internal_context",
    "<collaboration_mode>",
    "<context_window>",
    "<environment_context>",
    "<in-app-browser-context",
    "<permissions instructions>",
    "<plugins_instructions>",
    "<recommended_plugins>",
    "<skill>",
    "<skills_instructions>",
    "<user_action>",
    "<user_instructions>",
    "<user_shell_command>",
)
"""How texts begin that Codex itself writes in the user role."""

SYSTEM_OPENERS: Final = {
    "<turn_aborted>": "interrupt",
    "<subagent_notification>": "notification",
    "<hook_prompt": "hook",
    "Another language model started to solve this problem": "compaction_summary",
}
"""Those among them that are system entries, and their sub-kinds."""

# Only the lines that Codex writes above an output count: the output itself may quote the same.
_EXIT_CODE = re.compile(
    r"\s*(?:(?:Command|Chunk ID|Wall time|Total output lines|Original token count):[^\n]*\n)*"
    r"(?:Exit code:|Process exited with code)\s*(-?\d{1,18})"
)
_FAILURES: Final = ("execution error:", "apply_patch verification failed")
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_PLAN_MARKS: Final = {"completed": "x", "in_progress": "~"}


class Content(NamedTuple):
    """Text parts and attachments of a content list."""

    texts: list[str]
    attachments: list[Attachment]

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return clean_text("\n".join(self.texts))


class Output(NamedTuple):
    """A tool's output, unwrapped; `error` is None where nothing says."""

    text: str
    error: bool | None
    attachments: list[Attachment]


def content_parts(content: Any) -> Content:
    """Reads the content of a message or output: a string, or a list of parts."""
    if isinstance(content, str):
        return Content([content], [])
    texts: list[str] = []
    attachments: list[Attachment] = []
    for value in as_list(content):
        part = as_dict(value)
        kind = part.get("type")
        if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "input_image":
            attachments.append(url_attachment(part.get("image_url"), "image"))
        elif kind in ("image", "audio"):
            media_type = as_text(part.get("mimeType")) or kind
            attachments.append(Attachment(media_type, base64_bytes(part.get("data"))))
    return Content(texts, attachments)


def tool_output(output: Any) -> Output:
    """Reads the output of a tool: text, parts, or text that wraps one of them in JSON."""
    value = output
    if isinstance(output, str):
        head, tail = output.lstrip()[:1], output.rstrip()[-1:]
        if (head, tail) not in (("{", "}"), ("[", "]")):
            return Output(clean_text(output), _derived_error(output), [])
        try:
            value = parse_json(output)
        except ValueError:
            return Output(clean_text(output), _derived_error(output), [])
    unwrapped = _unwrapped(value)
    if unwrapped is not None:
        return unwrapped
    if isinstance(output, str):
        return Output(clean_text(output), _derived_error(output), [])
    return Output(compact_json(output) if output is not None else "", None, [])


def _unwrapped(value: Any) -> Output | None:
    """What a known wrapper holds; None for any other JSON."""
    if isinstance(value, list):
        kinds = [as_dict(part).get("type") for part in value]
        if not all(kind in (*_TEXT_PARTS, "input_image", "image") for kind in kinds):
            return None
        content = content_parts(value)
        return Output(content.text, _derived_error(content.text), content.attachments)
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("output"), str) and value.keys() <= {"output", "metadata"}:
        text = value["output"]
        code = as_dict(value.get("metadata")).get("exit_code")
        known = isinstance(code, int)
        return Output(clean_text(text), code != 0 if known else _derived_error(text), [])
    if isinstance(value.get("content"), str) and value.keys() <= {"content", "success"}:
        text, success = value["content"], value.get("success")
        known = isinstance(success, bool)
        return Output(clean_text(text), not success if known else _derived_error(text), [])
    if isinstance(value.get("content"), list) and ("isError" in value or "is_error" in value):
        content = content_parts(value["content"])
        failed = value.get("isError", value.get("is_error"))
        return Output(
            content.text, failed if isinstance(failed, bool) else None, content.attachments
        )
    return None


def _derived_error(text: str) -> bool | None:
    """Whether an output says that it failed; Codex keeps no flag."""
    if text.lstrip().startswith(_FAILURES):
        return True
    found = _EXIT_CODE.match(text)
    return int(found[1]) != 0 if found else None


def response_item(
    payload: dict[str, Any],
    *,
    is_prompt_over: bool,
    is_sub_agent: bool = False,
    exit_code: int | None = None,
) -> Item | None:
    """The item that a response item is; None for kinds that say nothing.

    Developer and system messages belong to the prompt until `is_prompt_over`. `exit_code` is what
    an event told of a call; it counts where its output says nothing.
    """
    kind = payload.get("type")
    call_id = as_text(payload.get("call_id")) or as_text(payload.get("id"))
    if kind == "message":
        return _message(payload, is_prompt_over)
    if kind == "agent_message":
        return _agent_message(payload, is_sub_agent)
    if kind == "reasoning":
        return Item(0, "reasoning")
    if kind == "function_call":
        return _function_call(payload, call_id)
    if kind == "custom_tool_call":
        return _call(as_text(payload.get("name")), payload.get("input", ""), call_id)
    if kind == "tool_search_call":
        return _call("tool_search", payload.get("arguments"), call_id)
    if kind in ("local_shell_call", "web_search_call"):
        return _call(kind.removesuffix("_call"), as_dict(payload.get("action")), call_id)
    if kind == "image_generation_call":
        item = _call(
            "image_generation", {"prompt": as_text(payload.get("revised_prompt"))}, call_id
        )
        item.attachments = [Attachment("image", base64_bytes(payload.get("result")))]
        return item
    # The tools that a tool search found are schemas, which are never shown.
    if isinstance(kind, str) and kind.endswith("_call_output"):
        text, error, attachments = tool_output(payload.get("output"))
        if error is None and exit_code is not None:
            error = exit_code != 0
        return Item(
            0,
            "tool_result",
            text,
            call_id=as_text(payload.get("call_id")),
            error=error,
            attachments=attachments,
        )
    return None


def _message(payload: dict[str, Any], is_prompt_over: bool) -> Item | None:
    role = payload.get("role")
    content = content_parts(payload.get("content"))
    if not content.text and not content.attachments:
        return None
    if role == "assistant":
        return Item(0, "assistant", content.text, attachments=content.attachments)
    if role == "user":
        return _user_message(content)
    if not is_prompt_over:
        return Item(0, "prompt")
    item = _user_message(content)
    if item.kind == "user":
        item.kind, item.flags = "system", 0
        item.sub_kind = "developer" if role == "developer" else ""
    return item


def _user_message(content: Content) -> Item:
    """A message in the user role: the user's own words, or text that Codex wrote."""
    item = Item(0, "user", content.text, attachments=content.attachments)
    texts = [text.lstrip() for text in content.texts if text.strip()]
    if not texts:
        return item
    for opener, sub_kind in SYSTEM_OPENERS.items():
        if texts[0].startswith(opener):
            item.kind, item.sub_kind = "system", sub_kind
            item.flags = COMPACTION_SUMMARY if sub_kind == "compaction_summary" else 0
            return item
    if all(text.startswith(SYNTHETIC_OPENERS) for text in texts):
        item.flags = SYNTHETIC
    return item


def _agent_message(payload: dict[str, Any], is_sub_agent: bool) -> Item | None:
    """A message between agents: to a sub-agent its task, to any other a notification."""
    content = content_parts(payload.get("content"))
    if not content.text:
        return None
    if is_sub_agent and content.text.startswith("Message Type: NEW_TASK"):
        return Item(0, "user", content.text, flags=SIDECHAIN)
    return Item(0, "system", content.text, sub_kind="notification")


def _function_call(payload: dict[str, Any], call_id: str) -> Item:
    name = as_text(payload.get("name"))
    raw = payload.get("arguments", "")
    arguments = _parsed_arguments(raw)
    try:
        item = _call(name, arguments, call_id)
    except RecursionError:
        # Nested deeper than its text could be rendered.
        return _call(name, as_text(raw), call_id)
    if name == "update_plan":
        item.plan = _plan(as_dict(arguments))
    return item


def _parsed_arguments(arguments: Any) -> Any:
    """Arguments as an object where they are the JSON of one, else as they stand."""
    if not isinstance(arguments, str) or not arguments.lstrip().startswith("{"):
        return arguments
    try:
        parsed = parse_json(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _plan(arguments: dict[str, Any]) -> str:
    lines: list[str] = []
    for value in as_list(arguments.get("plan")):
        step = as_dict(value)
        mark = _PLAN_MARKS.get(as_text(step.get("status")), " ")
        lines.append(f"[{mark}] {as_text(step.get('step'))}")
    return clean_text("\n".join(lines))


def _call(name: str, arguments: Any, call_id: str) -> Item:
    text = tool_input_text(name, "" if arguments is None else arguments)
    return Item(0, "tool_call", text, call_id=call_id, name=name)


def event_item(payload: dict[str, Any]) -> Item | None:
    """The item that an event message is, in a file that has no response items."""
    kind, text = payload.get("type"), clean_text(as_text(payload.get("message")))
    if kind == "user_message":
        images = [url_attachment(url, "image") for url in as_list(payload.get("images"))]
        images += [Attachment("image", 0) for _ in as_list(payload.get("local_images"))]
        return _user_message(Content([text], images)) if text or images else None
    if kind == "agent_message":
        return Item(0, "assistant", text) if text else None
    if kind in ("agent_reasoning", "agent_reasoning_raw_content"):
        return Item(0, "reasoning")
    if kind == "turn_aborted":
        reason = clean_text(as_text(payload.get("reason")))
        return Item(0, "system", f"turn aborted: {reason or 'interrupted'}", sub_kind="interrupt")
    if kind in ("error", "stream_error"):
        return Item(0, "system", text, sub_kind="api_error") if text else None
    return None


def compaction_item(payload: dict[str, Any]) -> Item | None:
    """The summary of a compaction; the history that it replays is not read."""
    text = clean_text(as_text(payload.get("message")))
    if not text:
        return None
    return Item(0, "system", text, sub_kind="compaction_summary", flags=COMPACTION_SUMMARY)
