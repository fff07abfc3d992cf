"""What fault tests share: the server of child processes, and prepared histories."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.faults.children import Children, children, fast_folder
from tests.faults.histories import History, history


@pytest.fixture(scope="session")
def server() -> Generator[Children]:
    with children() as started:
        yield started


@pytest.fixture
def place() -> Generator[Path]:
    with fast_folder() as folder:
        yield folder


@pytest.fixture
def past(request: pytest.FixtureRequest, place: Path, server: Children) -> History:
    return history(request.param, place, server)
