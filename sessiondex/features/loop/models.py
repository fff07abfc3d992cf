"""Models by name, and what their providers' errors mean.

A name is written as pydantic-ai writes it, `provider:model`. Keys come from the environment and
go nowhere but to the provider: what is said here of an error is a class, a status and the
provider's own error code, never the provider's words, because these may quote a key or a prompt.

The clients' own retries are off (`request_settings`), so that one attempt is one HTTP request and
`RetryPolicy` alone says what is asked again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from sessiondex.errors import Failed, InvalidArgument
from sessiondex.masking import mask

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

# ---------------------------------------------------------------- opening


class _Maker(NamedTuple):
    """Where a provider's key and address are looked for, and its address where none is said."""

    key: str
    address: str
    usual: str


_OPENAI: Final = _Maker("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1")
_MAKERS: Final[Mapping[str, _Maker]] = {
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "openai": _OPENAI,  # pydantic-ai's short name of openai-responses
    "anthropic": _Maker("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
}

_PLACEHOLDER_KEY: Final = "no-key"
"""What a server that needs no key is sent; the clients refuse an empty one."""

ANTHROPIC_ANSWER_TOKENS: Final = 16_384
"""The longest answer that is asked for where the wire format demands a number. From 21,334 on
Anthropic's client streams, which is no use to a loop that waits for whole answers."""

_INSTALL: Final = "pip install 'sessiondex[extract]'"
_EXPECTED: Final = (
    "expected openai-chat:NAME, openai-responses:NAME, anthropic:NAME, or PROVIDER:NAME of another"
    " provider that pydantic-ai knows"
)
_NAME: Final = re.compile(r"(?P<provider>[a-z][a-z0-9/_-]{0,63}):(?P<model>[!-~]{1,200})")


def open_model(name: str, *, base_url: str | None, environ: Mapping[str, str]) -> Model:
    """The model of a name, with one HTTP client of its own and nothing sent yet.

    The caller closes the client: every request belongs inside `async with model:`, whose end
    closes it. `base_url` wins over `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL` of `environ`; a
    server that is named either way is asked without a key where `environ` has none. Other
    providers than OpenAI's and Anthropic's take no `base_url`, and read key and address from the
    environment of the process, as pydantic-ai documents them.

    Raises:
        InvalidArgument: the name or the address has the wrong form or is unknown, or the key is
            missing; the hint names the variable.
        Failed: a package that this provider needs is not installed.
    """
    match = _NAME.fullmatch(name)
    if match is None or match["provider"] == "test":
        raise InvalidArgument(f"unknown model {_shown(name)!r}", hint=_EXPECTED)
    maker = _MAKERS.get(match["provider"])
    if maker is None:
        return _other_model(name, base_url)
    address = _address(base_url, "the base URL")
    if address is None:
        address = _address(environ.get(maker.address), maker.address)
    key = environ.get(maker.key, "").strip()
    if not key and address is None:
        raise InvalidArgument(
            f"no key for the model {_shown(name)!r}",
            hint=f"set {maker.key}, or give the base URL of a server that needs none",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidArgument(f"the key in {maker.key} is malformed", hint="set it as it was given")
    return _own_model(
        match["provider"], match["model"], address or maker.usual, key or _PLACEHOLDER_KEY
    )


def _own_model(provider: str, model: str, address: str, key: str) -> Model:
    """A model over OpenAI's or Anthropic's client, by whatever server stands at the address.

    A conversation is sent whole each time, so a server that would keep it is told not to.
    """
    try:
        if provider == "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            with _client():
                return AnthropicModel(
                    model,
                    provider=AnthropicProvider(api_key=key, base_url=address),
                    settings={"max_tokens": ANTHROPIC_ANSWER_TOKENS},
                )

        from pydantic_ai.models.openai import (
            OpenAIChatModel,
            OpenAIChatModelSettings,
            OpenAIResponsesModel,
            OpenAIResponsesModelSettings,
        )
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
    except ImportError as error:
        raise Failed("the packages of the extra 'extract' are missing", hint=_INSTALL) from error
    host = urlsplit(address).hostname or ""
    is_openai = host == "openai.com" or host.endswith(".openai.com")
    # Other servers are not asked for what only OpenAI's own API knows.
    with _client():
        server = (
            OpenAIProvider(base_url=address, api_key=key)
            if is_openai
            else OpenAICompatibleProvider("openai-compatible", base_url=address, api_key=key)
        )
    if provider == "openai-chat":
        # Some other servers refuse a chat request that has the field `store` at all.
        kept = OpenAIChatModelSettings(openai_store=False) if is_openai else None
        return OpenAIChatModel(model, provider=server, settings=kept)
    settings = OpenAIResponsesModelSettings(openai_store=False)
    return OpenAIResponsesModel(model, provider=server, settings=settings)


@contextmanager
def _client() -> Generator[None]:
    """Where an HTTP client is made; it takes proxies and certificates from the environment, whose
    values are not shown: they may hold a password.

    Raises:
        Failed: it cannot be made with these.
    """
    try:
        yield
    except ImportError as error:
        raise Failed(
            "the package for the SOCKS proxy in the environment is missing",
            hint="pip install socksio, or unset ALL_PROXY, HTTP_PROXY and HTTPS_PROXY",
        ) from error
    except (ValueError, OSError) as error:
        raise Failed(
            "no HTTP client can be made with the proxies and certificates in the environment",
            hint="see ALL_PROXY, HTTP_PROXY, HTTPS_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from error


def _other_model(name: str, base_url: str | None) -> Model:
    """A model of another provider, by pydantic-ai's own table of them."""
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider_class
    except ImportError as error:
        raise Failed("the packages of the extra 'extract' are missing", hint=_INSTALL) from error
    provider = name.partition(":")[0]
    try:
        infer_provider_class(provider)
        if base_url is not None:
            raise InvalidArgument(
                f"the provider {provider!r} takes no base URL",
                hint=f"one can be given with {', '.join(_MAKERS)}",
            )
        return infer_model(name)
    except ImportError as error:
        group = re.search(r"pydantic-ai-slim\[[a-z,-]+\]", str(error))
        raise Failed(
            f"the packages of the provider {provider!r} are missing",
            hint=f"pip install '{group[0]}'" if group else "see pydantic-ai's documents",
        ) from error
    except UserError as error:
        variables = sorted(set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", str(error))))
        raise InvalidArgument(
            f"the model {_shown(name)!r} cannot be opened as the environment is",
            hint=f"set {' or '.join(variables)}" if variables else "see pydantic-ai's documents",
        ) from None
    except ValueError as error:
        raise InvalidArgument(f"unknown model {_shown(name)!r}", hint=_EXPECTED) from error


def _address(url: str | None, what: str) -> str | None:
    """A checked address; None where none is said. Its text is never shown: it may hold a key."""
    url = (url or "").strip()
    if not url:
        return None
    try:
        parts = urlsplit(url)
        is_plain = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc
            and not parts.query
            and not parts.fragment
        )
    except ValueError:
        is_plain = False
    if not is_plain or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgument(
            f"{what} is no plain http or https URL", hint="expected one like http://127.0.0.1:8000"
        )
    return url


def _shown(name: str) -> str:
    """A model's name as an error may show it: someone may have passed a key in its place."""
    return mask(name[:200]).text[:100]


@asynccontextmanager
async def opened(model: Model) -> AsyncGenerator[None]:
    """A model while requests are made; closes its client. What goes wrong in closing it is no
    fault of the run that is over by then."""
    await model.__aenter__()
    try:
        yield
    finally:
        with suppress(Exception):
            await model.__aexit__(None, None, None)


# ---------------------------------------------------------------- settings of a request


def request_settings(timeout_seconds: float) -> ModelSettings:
    """Settings of one attempt: one HTTP request, which is over after that time, answered or not."""
    return {
        "max_retries": 0,
        "timeout": timeout_seconds,  # of each read and write
        "request_timeout": timeout_seconds,  # of the whole, however it trickles in
    }


# ---------------------------------------------------------------- errors

FaultKind = Literal[
    "rate_limit",
    "overloaded",
    "server",
    "connection",
    "timeout",
    "malformed",
    "authentication",
    "quota",
    "not_found",
    "rejected",
    "context_window",
    "unknown",
]
"""What went wrong with a request. `overloaded` is also a provider that says it is unavailable,
`malformed` an answer that is not the wire format or that the client stumbled over, `rejected` a
request that the provider refuses as it is, `unknown` whatever this list does not name."""

RETRYABLE: Final[frozenset[FaultKind]] = frozenset(
    {"rate_limit", "overloaded", "server", "connection", "timeout", "malformed"}
)
"""The kinds after which the same request may succeed."""

_CODE: Final = re.compile(r"[A-Za-z_]{2,48}|[0-9]{3,5}")
"""What is shown of a provider's error code: one word, so no key and no sentence."""


class ProviderFault(NamedTuple):
    """What an error of a provider means for the run."""

    kind: FaultKind
    is_retryable: bool
    retry_after: float | None
    """Seconds the provider asked to wait, where it said so."""
    detail: str
    """For people: status, error code and class of the error, in at most 300 characters. Nothing
    the provider wrote but its error code, so no key and no text of the prompt."""


def provider_fault(error: Exception) -> ProviderFault:
    """The class of an error that `pydantic_ai.direct.model_request` raised."""
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

    kind = _kind(error)
    is_retryable = kind in RETRYABLE
    retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
    words: list[str] = []
    if isinstance(error, ModelHTTPError):
        words.append(f"HTTP {error.status_code}")
        if error.provider_retry_hint is False:
            is_retryable = False
    if isinstance(error, ModelAPIError):
        codes = (error.provider_error_code, error.provider_error_type)
        words += [code for code in dict.fromkeys(codes) if code and _CODE.fullmatch(code)]
    words.append(type(error).__name__)
    cause = error.__cause__
    if cause is not None and type(cause).__name__ != type(error).__name__:
        words.append(type(cause).__name__)
    return ProviderFault(kind, is_retryable, retry_after, mask(", ".join(words)).text[:300])


def _kind(error: Exception) -> FaultKind:
    from pydantic import ValidationError
    from pydantic_ai import exceptions

    # Of a class and its subclasses the narrower one comes first.
    table: tuple[tuple[type[Exception], FaultKind], ...] = (
        (exceptions.ModelRequestTimeout, "timeout"),
        (exceptions.ModelTimeoutError, "timeout"),
        (exceptions.ModelConnectionError, "connection"),
        (exceptions.ModelRateLimitError, "rate_limit"),
        (exceptions.ModelQuotaExceededError, "quota"),
        (exceptions.ModelUnavailableError, "overloaded"),
        (exceptions.ModelServerError, "server"),
        (exceptions.ModelContextWindowExceededError, "context_window"),
        (exceptions.ModelAuthenticationError, "authentication"),
        (exceptions.ModelNotFoundError, "not_found"),
        (exceptions.ModelRequestRejectedError, "rejected"),
        (exceptions.ContentFilterError, "rejected"),
        (exceptions.UnexpectedModelBehavior, "malformed"),
        (ValidationError, "malformed"),
        (TimeoutError, "timeout"),
        # How the clients stumble over JSON of another shape than they expect.
        (TypeError, "malformed"),
        (AttributeError, "malformed"),
        (LookupError, "malformed"),
        (AssertionError, "malformed"),
    )
    for kind_of_error, kind in table:
        if isinstance(error, kind_of_error):
            return kind
    if isinstance(error, exceptions.ModelHTTPError):
        return _kind_of_status(error.status_code)
    if isinstance(error, exceptions.ModelAPIError):
        # Without status and code it is an answer that could not be decoded.
        return "unknown" if error.provider_error_code or error.body is not None else "malformed"
    return "unknown"


def _kind_of_status(status: int) -> FaultKind:
    """What a status means that pydantic-ai has no class for."""
    if status == 408:
        return "timeout"
    if status == 413:
        return "context_window"
    if status >= 500 or status == 409:
        return "server"
    return "rejected" if status >= 400 else "unknown"


# ---------------------------------------------------------------- retries

LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
"""A provider that asks for a longer wait is not waited for: its window is no hiccup."""

_SLOWER: Final[Mapping[FaultKind, float]] = {"rate_limit": 4.0, "overloaded": 2.0}
"""How much longer is waited than after a fault that has nothing to do with load."""

_ATTEMPTS_AT_MALFORMED: Final = 2
"""A server that twice answers in another form is no server of this wire format."""


class RetryPolicy(NamedTuple):
    """How often a request is sent and how long is waited in between."""

    attempts: int = 4
    """Requests at most, the first included."""
    first_seconds: float = 1.0
    factor: float = 2.0
    most_seconds: float = 30.0
    """Of our own back-off; a provider may ask for more, up to `LONGEST_RETRY_AFTER_SECONDS`."""

    def delay(
        self, attempt: int, fault: ProviderFault, random: Callable[[], float]
    ) -> float | None:
        """Seconds to wait after the failed attempt of that number, from 1; None gives up.

        The back-off doubles by default, is longer after `rate_limit` and `overloaded`, and lies
        between its half and its whole, by `random` in [0, 1). It is never less than what the
        provider asked for.
        """
        attempts = self.attempts
        if fault.kind == "malformed":
            attempts = min(attempts, _ATTEMPTS_AT_MALFORMED)
        if not fault.is_retryable or attempt >= attempts:
            return None
        asked = fault.retry_after or 0.0
        if asked > LONGEST_RETRY_AFTER_SECONDS:
            return None
        slower = _SLOWER.get(fault.kind, 1.0)
        back_off = min(
            self.first_seconds * slower * self.factor ** (attempt - 1), self.most_seconds
        )
        return max(asked, back_off * (0.5 + random() / 2))
