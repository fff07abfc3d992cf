"""What one element of a chat's message array holds, whichever API wrote it.

OpenAI chat messages, items of the Responses API, Anthropic messages and ShareGPT turns differ in
names more than in nature, and real files mix them, so one reader takes them all. Blocks follow the
content list; what an API keeps beside the content (reasoning, calls) counts as blocks before and
behind it.
"""

from __future__ import annotations

from typing import Any, Final

from sessiondex.indexer.sources.documents import (
    as_dict,
    as_list,
    as_text,
    base64_bytes,
    epoch_milliseconds,
    parse_json,
    url_attachment,
)
from sessiondex.model import (
    Attachment,
    Item,
    ItemKind,
    Record,
    compact_json,
    tool_input_text,
)

_MESSAGE_KINDS: Final[dict[str, ItemKind]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
}
_RESULT_ROLES: Final = frozenset(("tool", "function", "observation", "function_response"))
_CALL_ROLES: Final = frozenset(("function_call", "tool_call"))
_ROLES: Final = _MESSAGE_KINDS.keys() | _RESULT_ROLES | _CALL_ROLES

_TEXT_PARTS: Final = {
    "": "text",
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""Types of parts that hold text, and the field it stands in."""

_HIDDEN_PARTS: Final = frozenset(("thinking", "redacted_thinking", "reasoning", "reasoning_text"))
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
_TIME_FIELDS: Final = ("timestamp", "created_at", "created", "ts")


def is_message(value: Any) -> bool:
    """Whether a value is an element of a chat: a message with a known role, or an item."""
    if not isinstance(value, dict):
        return False
    if as_text(value.get("from")) in _ROLES and isinstance(value.get("value"), str):
        return True
    if as_text(value.get("role")) in _ROLES:
        content = value.get("content", False)
        has_calls = isinstance(value.get("tool_calls"), list) or "function_call" in value
        return content is None or isinstance(content, str | list) or has_calls
    item_type = as_text(value.get("type"))
    if item_type == "reasoning":
        return isinstance(value.get("summary"), list)
    if item_type.endswith("_call"):
        return isinstance(value.get("call_id") or value.get("id"), str)
    return item_type.endswith("_call_output") and isinstance(value.get("call_id"), str)


class MessageReader:
    """Reads the messages of one conversation, in order."""

    def __init__(self, *, has_user: bool = False) -> None:
        self.has_user = has_user
        """Whether a user message was read: before it, system messages are the prompt."""

    def read(self, record: Record, message: dict[str, Any]) -> None:
        """Fills a record from its message or item; takes any object."""
        record.timestamp = _time(message)
        record.model = as_text(message.get("model"))
        blocks = _Blocks()
        role = as_text(message.get("role")) or as_text(message.get("from"))
        item_type = as_text(message.get("type"))
        if role:
            field = "content" if "role" in message else "value"
            self._read_message(blocks, role, message, field)
        elif item_type == "reasoning":
            blocks.hide()
        elif item_type.endswith("_call_output"):
            blocks.result(message, "", message.get("output"), message.get("call_id"), "/output")
        elif item_type.endswith("_call"):
            _read_call_item(blocks, item_type, message)
        record.items = blocks.items
        record.blocks = max(1, blocks.count)
        kinds = {item.kind for item in blocks.items}
        record.closes_turn = "assistant" in kinds and "tool_call" not in kinds
        is_user = _MESSAGE_KINDS.get(role) == "user" and "tool_result" not in kinds
        self.has_user = self.has_user or is_user or "user" in kinds

    def _read_message(
        self, blocks: _Blocks, role: str, message: dict[str, Any], field: str
    ) -> None:
        content = message.get(field)
        if any(message.get(name) for name in _REASONING_FIELDS):
            blocks.hide()
        if role in _RESULT_ROLES:
            name = as_text(message.get("name"))
            blocks.result(message, name, content, message.get("tool_call_id"), f"/{field}")
            return
        if role in _CALL_ROLES:
            call = _parsed(content)
            if isinstance(call, dict) and isinstance(call.get("name"), str):
                blocks.call(call["name"], call.get("arguments"), "")
            else:
                blocks.call("", content, "")
            return
        kind = _MESSAGE_KINDS.get(role, "system")
        sub_kind = ""
        if role not in _MESSAGE_KINDS:
            # A role of some harness: what it says belongs to the history.
            sub_kind = role
        elif kind == "system" and not self.has_user:
            kind = "prompt"
        blocks.content(kind, content, sub_kind, f"/{field}")
        blocks.text(kind, message.get("refusal"), "/refusal", sub_kind)
        blocks.text(kind, as_dict(message.get("audio")).get("transcript"), "/audio", sub_kind)
        for i, call in enumerate(as_list(message.get("tool_calls"))):
            _read_chat_call(blocks, call, f"/tool_calls/{i}")
        legacy = message.get("function_call")
        if isinstance(legacy, dict) and not message.get("tool_calls"):
            # Some writers repeat the first of tool_calls here.
            blocks.call(legacy.get("name"), legacy.get("arguments"), "", "/function_call")


class _Blocks:
    """Collects the items of one message, counting the blocks."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.count = 0

    def hide(self) -> None:
        self.items.append(Item(self.count, "reasoning"))
        self.count += 1

    def call(self, name: Any, arguments: Any, call_id: Any, pointer: str = "") -> None:
        name = as_text(name)
        text = tool_input_text(name, _parsed(arguments))
        item = Item(
            self.count, "tool_call", text, call_id=as_text(call_id), name=name, pointer=pointer
        )
        self.items.append(item)
        self.count += 1

    def result(
        self, holder: dict[str, Any], name: str, content: Any, call_id: Any, pointer: str = ""
    ) -> None:
        text, attachments = _parts(content)
        error = holder.get("is_error")
        self.items.append(
            Item(
                self.count,
                "tool_result",
                text,
                call_id=as_text(call_id),
                name=name,
                error=error if isinstance(error, bool) else None,
                attachments=attachments,
                pointer=pointer,
            )
        )
        self.count += 1

    def text(self, kind: ItemKind, text: Any, pointer: str, sub_kind: str = "") -> None:
        """A message of its own block; none for an empty text."""
        if isinstance(text, str) and text:
            self._message(kind, sub_kind, pointer).text = "" if kind == "prompt" else text
            self.count += 1

    def content(self, kind: ItemKind, content: Any, sub_kind: str, pointer: str) -> None:
        """Content of a message: a string is one block, a list as many as it has parts.

        Neighbouring text parts are one message at the block of the first; attachments belong to
        the message that they stand in. A user message stays one whatever stands between its texts.
        """
        if isinstance(content, str):
            self.text(kind, content, pointer, sub_kind)
            return
        message: Item | None = None
        texts: list[tuple[Item, list[str]]] = []
        for i, part in enumerate(as_list(content)):
            part = {"text": part} if isinstance(part, str) else as_dict(part)
            text = _text_of(part)
            attachment = None if text is not None else _attachment(part)
            if text or attachment is not None:
                if message is None:
                    message = self._message(kind, sub_kind, f"{pointer}/{i}")
                    texts.append((message, []))
                if text:
                    texts[-1][1].append(text)
                if attachment is not None and kind != "prompt":
                    message.attachments.append(attachment)
                self.count += 1
            elif text is not None or not self._other_part(part, f"{pointer}/{i}"):
                self.count += 1
            elif kind != "user":
                message = None
        for message, parts in texts:
            message.text = "" if kind == "prompt" else "\n".join(parts)

    def _other_part(self, part: dict[str, Any], pointer: str) -> bool:
        """Takes a part that is no text; False if it is of no known type."""
        part_type = as_text(part.get("type"))
        if part_type in _HIDDEN_PARTS:
            self.hide()
        elif part_type.endswith("tool_use"):
            self.call(part.get("name"), part.get("input"), part.get("id"), pointer)
        elif part_type.endswith("tool_result"):
            self.result(part, "", part.get("content"), part.get("tool_use_id"), pointer)
        else:
            return False
        return True

    def _message(self, kind: ItemKind, sub_kind: str, pointer: str) -> Item:
        item = Item(self.count, kind, sub_kind=sub_kind, pointer=pointer)
        self.items.append(item)
        return item


# ---------------------------------------------------------------- calls


def _read_chat_call(blocks: _Blocks, call: Any, pointer: str) -> None:
    call = as_dict(call)
    function = as_dict(call.get("function"))
    if not function:
        # A custom tool takes text for arguments.
        function = as_dict(call.get("custom")) or call
    arguments = function.get("arguments", function.get("input", function.get("args")))
    blocks.call(function.get("name"), arguments, call.get("id"), pointer)


def _read_call_item(blocks: _Blocks, item_type: str, item: dict[str, Any]) -> None:
    """A call of the Responses API; tools that the server runs may bring their result along."""
    name = as_text(item.get("name")) or item_type.removesuffix("_call")
    call_id = item.get("call_id") or item.get("id")
    arguments = next(
        (
            item[field]
            for field in ("arguments", "input", "action", "code", "queries")
            if item.get(field) is not None
        ),
        "",
    )
    blocks.call(name, arguments, call_id)
    if isinstance(item.get("output"), str):
        blocks.result({}, name, item["output"], call_id, "/output")


def _parsed(arguments: Any) -> Any:
    """Arguments as an object where they are the JSON of one, else as they stand."""
    if not isinstance(arguments, str) or not arguments.lstrip().startswith("{"):
        return "" if arguments is None else arguments
    try:
        parsed = parse_json(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


# ---------------------------------------------------------------- parts


def _text_of(part: dict[str, Any]) -> str | None:
    field = _TEXT_PARTS.get(as_text(part.get("type")))
    text = part.get(field) if field else None
    return text if isinstance(text, str) else None


def _parts(content: Any) -> tuple[str, list[Attachment]]:
    """Text and attachments of a tool's output: a string, a list of parts, or any other value."""
    if isinstance(content, str):
        return content, []
    if content is None:
        return "", []
    if not isinstance(content, list):
        content = [content]
    texts: list[str] = []
    attachments: list[Attachment] = []
    for part in content:
        text = part if isinstance(part, str) else _text_of(as_dict(part))
        attachment = None if text is not None else _attachment(as_dict(part))
        if attachment is not None:
            attachments.append(attachment)
        else:
            texts.append(compact_json(_readable(part)) if text is None else text)
    return "\n".join(texts), attachments


def _readable(part: Any) -> Any:
    """A part of no known type without what only a provider can read."""
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if not str(key).startswith("encrypted")}


def _attachment(part: dict[str, Any]) -> Attachment | None:
    """What is kept of a part that holds an image, audio or a file; None for other parts."""
    part_type = as_text(part.get("type"))
    if part_type in ("image_url", "input_image", "computer_screenshot"):
        url = part.get("image_url")
        return url_attachment(url.get("url") if isinstance(url, dict) else url, "image")
    if part_type == "input_audio":
        audio = as_dict(part.get("input_audio"))
        media_type = f"audio/{as_text(audio.get('format')) or 'unknown'}"
        return Attachment(media_type, base64_bytes(audio.get("data")))
    if part_type in ("file", "input_file"):
        return url_attachment((as_dict(part.get("file")) or part).get("file_data"), "file")
    if part_type not in ("image", "document", "audio", "video", "resource"):
        return None
    # Anthropic describes the body in `source`, MCP in the part itself or in `resource`.
    source = as_dict(part.get("source")) or as_dict(part.get("resource")) or part
    if part_type == "resource" and "blob" not in source:
        return None
    media_type = as_text(source.get("media_type") or source.get("mimeType")) or part_type
    data = source.get("data", source.get("blob"))
    if source.get("type") == "text" and isinstance(data, str):
        return Attachment(media_type, len(data.encode()))
    return Attachment(media_type, base64_bytes(data))


def _time(message: dict[str, Any]) -> int | None:
    for fields in (message, as_dict(message.get("extra"))):
        for name in _TIME_FIELDS:
            moment = epoch_milliseconds(fields.get(name))
            if moment is not None:
                return moment
    return None
