"""Names of models, classes of errors and the times between attempts, without any server."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import exceptions
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from sessiondex.errors import Failed, InvalidArgument, SessiondexError
from sessiondex.features.loop.models import (
    LONGEST_RETRY_AFTER_SECONDS,
    RETRYABLE,
    FaultKind,
    ProviderFault,
    RetryPolicy,
    open_model,
    provider_fault,
)

KEY = "sk-ant-made-up-000000000000000000000001"
KINDS: tuple[FaultKind, ...] = typing.get_args(FaultKind)


def opened(name: str, base_url: str | None = None, **environ: str) -> Model:
    return open_model(name, base_url=base_url, environ=environ)


def address(model: Model) -> str:
    assert model.provider is not None
    return model.provider.base_url.rstrip("/")


# ---------------------------------------------------------------- names, keys and addresses


@pytest.mark.parametrize(
    ("name", "kind", "usual"),
    [
        ("openai-chat:gpt-any", OpenAIChatModel, "https://api.openai.com/v1"),
        ("openai-responses:gpt-any", OpenAIResponsesModel, "https://api.openai.com/v1"),
        ("openai:gpt-any", OpenAIResponsesModel, "https://api.openai.com/v1"),
        ("anthropic:claude-any", AnthropicModel, "https://api.anthropic.com"),
    ],
)
def test_a_name_with_a_key_opens_the_providers_own_model(
    name: str, kind: type[Model], usual: str
) -> None:
    model = opened(name, OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)
    assert type(model) is kind
    assert model.model_name == name.partition(":")[2]
    assert address(model) == usual


def test_a_name_may_hold_colons_of_its_own() -> None:
    assert opened("openai-chat:llama3.2:3b", "http://127.0.0.1:1/v1").model_name == "llama3.2:3b"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai-chat:any", "OPENAI_BASE_URL"),
        ("openai-responses:any", "OPENAI_BASE_URL"),
        ("anthropic:any", "ANTHROPIC_BASE_URL"),
    ],
)
def test_the_argument_wins_over_the_variable_and_the_variable_over_the_usual_address(
    name: str, variable: str
) -> None:
    environ = {variable: "http://127.0.0.1:2/v1"}
    assert address(opened(name, **environ)) == "http://127.0.0.1:2/v1"
    assert address(opened(name, "http://127.0.0.1:3/v1", **environ)) == "http://127.0.0.1:3/v1"


def test_the_environment_that_is_passed_counts_and_not_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for maker in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{maker}_API_KEY", KEY)
        monkeypatch.setenv(f"{maker}_BASE_URL", "http://127.0.0.1:4/v1")
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY"):
        opened("openai-chat:any")
    model = opened("anthropic:any", ANTHROPIC_API_KEY="another")
    assert address(model) == "https://api.anthropic.com"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai-chat:any", "OPENAI_API_KEY"),
        ("openai-responses:any", "OPENAI_API_KEY"),
        ("anthropic:any", "ANTHROPIC_API_KEY"),
        ("deepseek:any", "DEEPSEEK_API_KEY"),
    ],
)
def test_a_missing_key_is_refused_by_the_name_of_its_variable(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InvalidArgument) as refusal:
        opened(name, OPENAI_BASE_URL=" ", OPENAI_API_KEY=" ")
    assert variable in refusal.value.hint
    assert name in refusal.value.message


@pytest.mark.parametrize(
    "name",
    [
        "", "test", "test:any", "gpt-any", "openai-chat:", ":any", "any:", "nobody:any",
        "openai-chat:with space", "openai-chat:any\n", "OpenAI-chat:any", "gateway/nobody:any",
        "openai-chat:" + "x" * 201, "mcp-sampling:any",
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_what_was_expected(name: str) -> None:
    with pytest.raises(InvalidArgument, match="unknown model") as refusal:
        opened(name, OPENAI_API_KEY=KEY)
    assert "openai-responses:NAME" in refusal.value.hint


def test_another_provider_opens_as_pydantic_ai_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "made-up")
    model = opened("deepseek:any")
    assert isinstance(model, OpenAIChatModel)
    assert model.system == "deepseek"


def test_another_provider_takes_no_base_url() -> None:
    with pytest.raises(InvalidArgument, match="takes no base URL") as refusal:
        opened("deepseek:any", "http://127.0.0.1:1/v1")
    assert "openai-chat" in refusal.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1", "127.0.0.1:8000", "http://", "http://user:secret-word@host/v1",
        "http://host/v1?key=secret-word", "http://host:99999999/v1", "http://host/v1#secret-word",
        "http://[::1", "http://ho st/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["argument", "variable"])
def test_an_address_that_is_no_plain_url_is_refused_and_not_quoted(url: str, way: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        if way == "argument":
            opened("openai-chat:any", url)
        else:
            opened("openai-chat:any", OPENAI_BASE_URL=url)
    assert "secret-word" not in str(refusal.value)
    assert ("OPENAI_BASE_URL" in refusal.value.message) == (way == "variable")


@pytest.mark.parametrize("key", ["with space", "with\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_quoted(key: str) -> None:
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY") as refusal:
        opened("openai-chat:any", OPENAI_API_KEY=key)
    assert key not in str(refusal.value)


def test_a_key_in_the_place_of_a_name_is_not_quoted() -> None:
    for name in (KEY, f"nobody:{KEY}"):
        with pytest.raises(InvalidArgument) as refusal:
            opened(name)
        assert KEY not in str(refusal.value)


_WITHOUT = """
import sys
from sessiondex.errors import Failed
from sessiondex.features.loop.models import open_model
assert not {"pydantic_ai", "openai", "anthropic"} & set(sys.modules)
for missing in sys.argv[1:]:
    sys.modules[missing] = None
for name in ("openai-chat:any", "openai-responses:any", "anthropic:any", "deepseek:any"):
    try:
        open_model(name, base_url=None, environ={"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
    except Failed as error:
        print(error.hint)
"""


def test_a_missing_extra_is_named_with_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, "pydantic_ai"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["pip install 'sessiondex[extract]'"] * 4


def test_a_missing_client_is_named_with_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, "openai", "anthropic"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours = "pip install 'sessiondex[extract]'"
    assert done.stdout.splitlines() == [ours, ours, ours, "pip install 'pydantic-ai-slim[openai]'"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALL_PROXY", "socks5://ada:secret@127.0.0.1:1", "SOCKS proxy"),
        ("ALL_PROXY", "gopher://ada:secret@127.0.0.1:1", "proxies"),
        ("SSL_CERT_FILE", "/nowhere/secret", "certificates"),
    ],
)
@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses", "anthropic"])
def test_a_proxy_or_certificate_that_cannot_be_used_is_a_failure_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, provider: str, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(Failed, match=said) as caught:
        open_model(f"{provider}:any", base_url="http://127.0.0.1:1", environ={})
    assert "secret" not in str(caught.value) and name in caught.value.hint


def test_errors_of_opening_are_of_the_one_tree() -> None:
    assert issubclass(InvalidArgument, SessiondexError)
    assert issubclass(Failed, SessiondexError)


# ---------------------------------------------------------------- classes of errors


def test_no_word_of_the_provider_is_in_a_fault_but_its_code() -> None:
    body = {"message": f"your key {KEY} and your prompt 'the secret plan'"}
    error = exceptions.ModelHTTPError.for_category(
        exceptions.ModelRequestRejectedError,
        status_code=400,
        model_name="any",
        body=body,
        provider_error_code="invalid_value",
        provider_error_type=f"the secret plan {KEY}",
    )
    fault = provider_fault(error)
    assert fault == ProviderFault(
        "rejected", False, None, "HTTP 400, invalid_value, ModelRequestRejectedError"
    )


def test_a_detail_is_bounded() -> None:
    class_of_long_name = type("E" * 1000, (Exception,), {})
    assert len(provider_fault(class_of_long_name()).detail) == 300


def test_a_provider_that_says_not_to_retry_is_obeyed() -> None:
    error = exceptions.ModelHTTPError.for_category(
        exceptions.ModelServerError,
        status_code=500,
        model_name="any",
        headers={"X-Should-Retry": "false"},
    )
    assert provider_fault(error)[:2] == ("server", False)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(408, "timeout"), (409, "server"), (413, "context_window"), (418, "rejected")],
)
def test_a_status_without_a_class_has_one_here(status: int, kind: FaultKind) -> None:
    fault = provider_fault(exceptions.ModelHTTPError(status, "any"))
    assert (fault.kind, fault.is_retryable) == (kind, kind in RETRYABLE)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ModelRequestTimeout("any", 3.0), "timeout"),
        (exceptions.ContentFilterError("no"), "rejected"),
        (exceptions.UnexpectedModelBehavior("?"), "malformed"),
        (exceptions.ModelAPIError("any", "?", provider_error_code="strange"), "unknown"),
        (TimeoutError(), "timeout"),
        (exceptions.UserError("?"), "unknown"),
        (RuntimeError("?"), "unknown"),
    ],
)
def test_errors_without_a_status_have_a_class(error: Exception, kind: FaultKind) -> None:
    assert provider_fault(error).kind == kind


# ---------------------------------------------------------------- times between attempts


def fault(kind: FaultKind, retry_after: float | None = None) -> ProviderFault:
    return ProviderFault(kind, kind in RETRYABLE, retry_after, "")


def delays(kind: FaultKind, chance: float, policy: RetryPolicy | None = None) -> list[float | None]:
    policy = policy or RetryPolicy()
    return [policy.delay(attempt, fault(kind), lambda: chance) for attempt in range(1, 5)]


def test_the_back_off_doubles_and_then_gives_up() -> None:
    assert delays("server", 0.0) == [0.5, 1.0, 2.0, None]
    assert delays("connection", 1.0) == [1.0, 2.0, 4.0, None]


def test_load_is_waited_for_longer() -> None:
    assert delays("overloaded", 1.0) == [2.0, 4.0, 8.0, None]
    assert delays("rate_limit", 1.0) == [4.0, 8.0, 16.0, None]


def test_a_malformed_answer_is_tried_again_once() -> None:
    assert delays("malformed", 1.0) == [1.0, None, None, None]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - RETRYABLE))
def test_what_waiting_does_not_help_is_given_up_at_once(kind: FaultKind) -> None:
    assert delays(kind, 0.5) == [None] * 4


def test_the_provider_is_not_asked_before_it_wants_to_be() -> None:
    policy = RetryPolicy()
    assert policy.delay(1, fault("rate_limit", 60.0), lambda: 0.0) == 60.0
    assert policy.delay(1, fault("server", 0.0), lambda: 0.0) == 0.5
    longest = LONGEST_RETRY_AFTER_SECONDS
    assert policy.delay(1, fault("rate_limit", longest), lambda: 0.0) == longest
    assert policy.delay(1, fault("rate_limit", longest + 1), lambda: 0.0) is None


@given(
    policy=st.builds(
        RetryPolicy,
        attempts=st.integers(0, 20),
        first_seconds=st.floats(0, 100),
        factor=st.floats(1, 10),
        most_seconds=st.floats(0, 1000),
    ),
    attempt=st.integers(1, 25),
    kind=st.sampled_from(KINDS),
    retry_after=st.none() | st.floats(0, 1e9),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_every_delay_is_within_its_bounds(
    policy: RetryPolicy, attempt: int, kind: FaultKind, retry_after: float | None, chance: float
) -> None:
    delay = policy.delay(attempt, fault(kind, retry_after), lambda: chance)
    if delay is None:
        is_last = attempt >= policy.attempts or (kind == "malformed" and attempt >= 2)
        is_long = (retry_after or 0) > LONGEST_RETRY_AFTER_SECONDS
        assert is_last or is_long or kind not in RETRYABLE
        return
    assert attempt < policy.attempts
    assert (retry_after or 0) <= delay <= max(retry_after or 0, policy.most_seconds)
