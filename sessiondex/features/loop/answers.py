"""What a model answered, as it can be kept and sent back, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from sessiondex.limits import BYTES_PER_TOKEN
from sessiondex.model import clean_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart

_MOST_TOKENS: Final = 2**53 - 1
"""More are taken for so many: no budget is near, and no JSON holds all larger numbers."""

_TOO_DEEP: Final = "(arguments that are nested too deeply)"


def cleaned(answer: ModelResponse) -> ModelResponse:
    """The answer without what no request could carry back to its provider: lone surrogates,
    numbers that are none, and arguments that are no object, which become their text."""
    parts = [_cleaned_part(part) for part in answer.parts]
    return replace(answer, parts=parts)


def _cleaned_part(part: ModelResponsePart) -> ModelResponsePart:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    if isinstance(part, TextPart | ThinkingPart):
        return replace(part, content=_cleaned(part.content))
    if isinstance(part, ToolCallPart):
        return replace(
            part, tool_name=_cleaned(part.tool_name), tool_call_id=_cleaned(part.tool_call_id),
            args=_cleaned_arguments(part.args),
        )  # fmt: skip
    return part


def _cleaned_arguments(arguments: Any) -> Any:
    """An object that is JSON, or a text."""
    if arguments is None or isinstance(arguments, str):
        return _cleaned(arguments)
    try:
        clean = _cleaned(arguments)
        text = json.dumps(clean)
    except RecursionError:
        return _TOO_DEEP
    return cast(Any, clean) if isinstance(clean, dict) else text


def _cleaned(value: Any) -> Any:
    """A JSON value with clean texts and names, and numbers that are some."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        named = cast(dict[Any, Any], value)
        return {_cleaned(name): _cleaned(each) for name, each in named.items()}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


def within_calls(answer: ModelResponse, most: int) -> tuple[ModelResponse, int]:
    """The answer with its first calls only, and how many were taken out."""
    from pydantic_ai.messages import ToolCallPart

    kept: list[ModelResponsePart] = []
    calls = 0
    for part in answer.parts:
        calls += isinstance(part, ToolCallPart)
        if not isinstance(part, ToolCallPart) or calls <= most:
            kept.append(part)
    return (answer, 0) if calls <= most else (replace(answer, parts=kept), calls - most)


def tokens(answer: ModelResponse, before: Sequence[ModelMessage]) -> tuple[int, int]:
    """Tokens of the request and of the answer: the provider's numbers, else bytes / 4."""
    usage = answer.usage
    if usage.input_tokens or usage.output_tokens:
        return _counted(usage.input_tokens), _counted(usage.output_tokens)
    return sum(_size(each) for each in before), _size(answer)


def _counted(number: int) -> int:
    return max(0, min(number, _MOST_TOKENS))


def _size(message: ModelMessage) -> int:
    """Tokens of a message by its bytes, rounded up."""
    size = 0
    for part in message.parts:
        for text in (getattr(part, "content", None), getattr(part, "args", None)):
            if isinstance(text, str):
                size += len(text.encode("utf-8", "replace"))
            elif text is not None:
                size += len(json.dumps(text, default=str))
    return -(-size // BYTES_PER_TOKEN)
