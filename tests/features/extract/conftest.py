"""What tests of the extract worker share."""

from __future__ import annotations

from pathlib import Path

import pydantic_ai.models
import pytest

from tests.features.extract.scripted import World


@pytest.fixture
def no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model but a scripted one can be asked."""
    monkeypatch.setattr(pydantic_ai.models, "ALLOW_MODEL_REQUESTS", False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A state, a staging folder and a clock of this test alone."""
    return World(tmp_path)
