"""Turns the content of a Claude message into items: who really speaks, what was called, returned.

Strings come from `lines`, free of lone surrogates. Anything of an unexpected shape is a block
without an item; nothing here raises on content.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sessiondex.model import (
    COMPACTION_SUMMARY,
    SYNTHETIC,
    Attachment,
    Item,
    tool_input_text,
)

_SYNTHETIC_OPENINGS: Final = (
    "<command-message>",
    "<command-name>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<system-reminder>",
    "<teammate-message",
    "<ide_opened_file>",
    "<ide_selection>",
    "<ide_diagnostics>",
)

_SYSTEM_OPENINGS: Final = (
    ("<task-notification>", "notification"),
    ("[Request interrupted by user", "interrupt"),
    ("<user-prompt-submit-hook>", "hook"),
    ("<session-start-hook>", "hook"),
    ("Stop hook feedback:", "hook"),
)

_COMMAND_NAME = re.compile(r"<command-name>\s*/?(.*?)\s*</command-name>", re.DOTALL)
_COMMAND_ARGS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)

_PLAN_MARKS: Final = {"completed": "[x]", "in_progress": "[~]"}

_SYNTHETIC_MODEL: Final = "<synthetic>"


def text_of(value: Any) -> str:
    """The value if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def user_text_item(block: int, text: str, *, is_harness: bool = False, pointer: str = "") -> Item:
    """The item of text in a user role: what a person typed, or what the harness put there."""
    opening = text[:80].lstrip()
    if opening.startswith(("<command-name>", "<command-message>")) and not is_harness:
        name = _COMMAND_NAME.search(text)
        arguments = _COMMAND_ARGS.search(text)
        if name and arguments and arguments[1]:
            return Item(block, "user", f"/{name[1]} {arguments[1]}", pointer=pointer)
    for prefix, sub_kind in _SYSTEM_OPENINGS:
        # A person may well write "Stop hook feedback:"; the harness marks its own.
        if opening.startswith(prefix) and (prefix[0] in "<[" or is_harness):
            return Item(block, "system", text, sub_kind=sub_kind, pointer=pointer)
    is_harness = is_harness or opening.startswith(_SYNTHETIC_OPENINGS)
    return Item(block, "user", text, flags=SYNTHETIC if is_harness else 0, pointer=pointer)


def user_items(
    content: Any, *, pointer: str, is_harness: bool = False, is_compaction_summary: bool = False
) -> list[Item]:
    """The items of a user message's content; images and documents hang on its text."""
    items: list[Item] = []
    attached: list[tuple[Item, Attachment]] = []
    blocks = content if isinstance(content, list) else [content]
    for block, part in enumerate(blocks):
        place = f"{pointer}/{block}" if blocks is content else pointer
        if isinstance(part, str):
            text = part
        elif not isinstance(part, dict):
            continue
        elif part.get("type") == "tool_result":
            items.append(tool_result_item(block, part, place))
            continue
        elif part.get("type") in ("image", "document"):
            alone = Item(block, "user", flags=SYNTHETIC if is_harness else 0, pointer=place)
            attached.append((alone, attachment_of(part)))
            continue
        elif part.get("type") == "text":
            text = text_of(part.get("text"))
        else:
            continue
        if is_compaction_summary:
            item = Item(block, "system", text, sub_kind="compaction_summary", pointer=place)
            item.flags = COMPACTION_SUMMARY
        else:
            item = user_text_item(block, text, is_harness=is_harness, pointer=place)
        items.append(item)
    if attached:
        owner = next((item for item in items if item.kind == "user"), None)
        if owner is None:
            owner = attached[0][0]
            items.append(owner)
            items.sort(key=lambda item: item.block)
        owner.attachments.extend(attachment for _, attachment in attached)
    return items


def assistant_items(
    content: Any, *, pointer: str, model: str, is_api_error: bool = False
) -> list[Item]:
    """The items of an assistant message's content; reasoning keeps its block and no text."""
    items: list[Item] = []
    blocks = content if isinstance(content, list) else [content]
    for block, part in enumerate(blocks):
        place = f"{pointer}/{block}" if blocks is content else pointer
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        elif not isinstance(part, dict):
            continue
        kind = text_of(part.get("type"))
        if kind == "text":
            text = text_of(part.get("text"))
            if is_api_error or (model == _SYNTHETIC_MODEL and text.startswith("API Error")):
                item = Item(block, "system", text, sub_kind="api_error", pointer=place)
            else:
                item = Item(block, "assistant", text, pointer=place)
                item.flags = SYNTHETIC if model == _SYNTHETIC_MODEL else 0
            items.append(item)
        elif kind in ("thinking", "redacted_thinking"):
            items.append(Item(block, "reasoning", pointer=place))
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            items.append(_tool_call_item(block, part, place))
        elif kind.endswith("_tool_result"):
            items.append(tool_result_item(block, part, place))
    return items


def real_model(message: dict[str, Any]) -> str:
    """The model that wrote a message; nothing where the harness did."""
    model = text_of(message.get("model"))
    return "" if model == _SYNTHETIC_MODEL else model


def _tool_call_item(block: int, part: dict[str, Any], pointer: str) -> Item:
    name = text_of(part.get("name"))
    arguments = part.get("input")
    return Item(
        block,
        "tool_call",
        tool_input_text(name, arguments if arguments is not None else {}),
        call_id=text_of(part.get("id")),
        name=name,
        pointer=pointer,
        plan=_todo_plan(arguments) if name == "TodoWrite" else "",
    )


def _todo_plan(arguments: Any) -> str:
    todos = arguments.get("todos") if isinstance(arguments, dict) else None
    lines: list[str] = []
    for todo in todos if isinstance(todos, list) else []:
        if isinstance(todo, dict) and isinstance(todo.get("content"), str):
            mark = _PLAN_MARKS.get(text_of(todo.get("status")), "[ ]")
            lines.append(f"{mark} {todo['content']}")
    return "\n".join(lines)


def tool_result_item(block: int, part: dict[str, Any], pointer: str) -> Item:
    """The item of a tool result: its text parts joined by newlines, its images as attachments."""
    error = part.get("is_error")
    item = Item(
        block,
        "tool_result",
        call_id=text_of(part.get("tool_use_id")),
        error=error if isinstance(error, bool) else None,
        pointer=pointer,
    )
    content = part.get("content")
    if isinstance(content, str):
        item.text = content
        return item
    texts: list[str] = []
    for each in content if isinstance(content, list) else [content]:
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, dict):
            _add_result_part(item, texts, each)
    item.text = "\n".join(texts)
    return item


def _add_result_part(item: Item, texts: list[str], part: dict[str, Any]) -> None:
    kind = text_of(part.get("type"))
    if kind in ("image", "document"):
        item.attachments.append(attachment_of(part))
    elif kind.endswith("_error"):
        item.error = True
        texts.append(text_of(part.get("error_code")))
    elif isinstance(part.get("text"), str):
        texts.append(part["text"])
    elif kind in ("web_search_result", "web_fetch_result"):
        texts.extend(part[key] for key in ("title", "url") if isinstance(part.get(key), str))
    else:
        # Server-side code execution.
        outputs = (text_of(part.get(key)) for key in ("stdout", "stderr"))
        texts.extend(text for text in outputs if text)


def attachment_of(part: dict[str, Any]) -> Attachment:
    """Media type and decoded size of an image or document block; the body is dropped."""
    source = part.get("source")
    if not isinstance(source, dict):
        source = {}
    data = text_of(source.get("data"))
    if source.get("type") == "text":
        size = len(data.encode())
    else:
        size = len(data) * 3 // 4 - data[-2:].count("=")
    return Attachment(text_of(source.get("media_type")) or text_of(part.get("type")), max(size, 0))
