"""Services: what a host gives to features, by typed names.

A feature gets what it declared and nothing else; a model gets none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.capture import SessionCapture
from sessiondex.indexer.library import Library

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServiceKey(Generic[T]):
    """The name of a service and the type that it must have."""

    name: str
    type: type[T]


class RunRange(NamedTuple):
    """Records of a capture, inclusive: all that a run may see."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CallingSession:
    """The session in which the calls are made, where the host knows it."""

    session: str


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is, for times that are given as an age; UTC."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)


CAPTURE: Final = ServiceKey("capture", SessionCapture)
RUN_RANGE: Final = ServiceKey("run_range", RunRange)
LIBRARY: Final = ServiceKey("library", Library)
CALLING_SESSION: Final = ServiceKey("calling_session", CallingSession)
CLOCK: Final = ServiceKey("clock", Clock)


class Services:
    """The services that a host provides, each at most once."""

    def __init__(self, provided: Mapping[ServiceKey[Any], object] | None = None) -> None:
        """Raises:
        InvalidArgument: a service is not of its type.
        """
        self._provided: dict[str, object] = {}
        for key, service in (provided or {}).items():
            if not isinstance(service, key.type):
                raise InvalidArgument(
                    f"service {key.name!r} is a {type(service).__name__}",
                    hint=f"expected a {key.type.__name__}",
                )
            self._provided[key.name] = service

    def __contains__(self, key: ServiceKey[Any]) -> bool:
        return key.name in self._provided

    def get(self, key: ServiceKey[T]) -> T | None:
        """An optional service; None where nobody provides it."""
        return cast(T | None, self._provided.get(key.name))

    def require(self, key: ServiceKey[T]) -> T:
        """A required service.

        Raises:
            InvalidArgument: nobody provides it.
        """
        if key.name not in self._provided:
            raise InvalidArgument(
                f"service {key.name!r} is not provided", hint="provide it, or leave the feature out"
            )
        return cast(T, self._provided[key.name])

    def only(self, keys: Iterable[ServiceKey[Any]]) -> Services:
        """These services without those that are not named."""
        kept = Services()
        names = {key.name for key in keys}
        kept._provided = {name: each for name, each in self._provided.items() if name in names}
        return kept
