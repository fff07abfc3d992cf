"""The records of a worker's session log, and the conversation with a model that they tell of.

Both ways: what is said becomes records as it happens, and a restored worker goes on from them.
Of reasoning only that there was some becomes a record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from sessiondex.indexer.sources.documents import as_dict, as_list, as_text
from sessiondex.indexer.sources.yoi import user_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponsePart

Value = dict[str, Any]
"""One record of the log."""

NO_RESULT: Final = "There is no result: the turn ended before the call was answered."
"""What a restored conversation answers a call with whose result was not committed."""

_NOTIFICATION: Final = "[Notification] "


def user_record(text: str) -> Value:
    """What the worker was told."""
    return {"kind": "user_input", "segments": [{"kind": "text", "content": text}]}


def note_record(text: str) -> Value:
    """What the host tells the worker and its readers."""
    return {"kind": "system_item", "item": {"kind": "notification", "body": text}}


def end_record(*, is_error: bool = False) -> Value:
    """The end of a turn."""
    return {"kind": "run_errored" if is_error else "turn_end"}


def prompt_text(notes: Iterable[str], text: str) -> str:
    """Notes and a message as the model gets them, in one text."""
    return "\n\n".join([*(_NOTIFICATION + note for note in notes), *([text] if text else [])])


def message_records(message: ModelMessage, are_errors: Iterable[bool] = ()) -> list[Value]:
    """An answer, or the results of calls and for each whether it is an error; one record for each
    part."""
    from pydantic_ai.messages import ModelResponse, ToolReturnPart

    if isinstance(message, ModelResponse):
        return [{"kind": "assistant_item", "item": _item(part)} for part in message.parts]
    return [
        {
            "kind": "tool_result",
            "item": {
                "kind": "tool_result",
                "call_id": part.tool_call_id,
                "content": part.model_response_str(),
                "is_error": is_error,
            },
        }
        for part, is_error in zip(message.parts, are_errors, strict=True)
        if isinstance(part, ToolReturnPart)
    ]


def _item(part: ModelResponsePart) -> Value:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    if isinstance(part, TextPart):
        content = [{"kind": "text", "text": part.content}]
        return {"kind": "message", "role": "assistant", "content": content}
    if isinstance(part, ToolCallPart):
        given = part.args
        arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
        return {
            "kind": "tool_call",
            "call_id": part.tool_call_id,
            "name": part.tool_name,
            "arguments": arguments,
        }
    return {"kind": "reasoning" if isinstance(part, ThinkingPart) else part.part_kind}


def conversation(values: Iterable[Value]) -> list[ModelMessage]:
    """The messages that records tell of. Every call has a result: `NO_RESULT` where none was
    committed, as providers refuse a conversation with a call that is left open."""
    reader = _Reader()
    for value in values:
        reader.take(value)
    return reader.finish()


class _Reader:
    """Puts records together to messages."""

    def __init__(self) -> None:
        self._messages: list[ModelMessage] = []
        self._told: list[str] = []
        self._answer: list[ModelResponsePart] = []
        self._open_calls: list[tuple[str, str]] = []
        """Id and name of the calls that have no result yet."""
        self._results: list[ModelRequestPart] = []

    def take(self, value: Value) -> None:
        """Takes the next record."""
        kind, item = value.get("kind"), as_dict(value.get("item"))
        if kind == "user_input":
            self._end_answer()
            self._told.append(user_text(value.get("segments")))
        elif kind == "system_item":
            self._end_answer()
            self._told.append(_NOTIFICATION + as_text(item.get("body")))
        elif kind == "assistant_item":
            if not self._answer:
                self._begin_answer()
            self._add(item)
        elif kind == "tool_result":
            self._keep_answer()
            self._result(item)

    def finish(self) -> list[ModelMessage]:
        """All messages."""
        self._end_answer()
        self._begin_answer()
        return self._messages

    def _add(self, item: Value) -> None:
        from pydantic_ai.messages import TextPart, ToolCallPart

        if item.get("kind") == "message":
            texts = [as_text(as_dict(part).get("text")) for part in as_list(item.get("content"))]
            self._answer.append(TextPart("\n".join(texts)))
        elif item.get("kind") == "tool_call":
            name, call = as_text(item.get("name")), as_text(item.get("call_id"))
            self._answer.append(
                ToolCallPart(name, as_text(item.get("arguments")), tool_call_id=call)
            )
            self._open_calls.append((call, name))

    def _result(self, item: Value) -> None:
        from pydantic_ai.messages import ToolReturnPart

        for call in self._open_calls:
            id, name = call
            if id == item.get("call_id"):
                self._results.append(ToolReturnPart(name, as_text(item.get("content")), id))
                self._open_calls.remove(call)
                return

    def _begin_answer(self) -> None:
        """What was told until now, or the results, are one request."""
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        self._end_answer()
        if self._told:
            self._messages.append(ModelRequest([UserPromptPart("\n\n".join(self._told))]))
            self._told = []

    def _keep_answer(self) -> None:
        from pydantic_ai.messages import ModelResponse

        if self._answer:
            self._messages.append(ModelResponse(self._answer))
            self._answer = []

    def _end_answer(self) -> None:
        """An answer and the results of its calls are over."""
        from pydantic_ai.messages import ModelRequest

        self._keep_answer()
        for id, _ in list(self._open_calls):
            self._result({"call_id": id, "content": NO_RESULT})
        if self._results:
            self._messages.append(ModelRequest(self._results))
            self._results = []
