"""Subject references: two forms, opaque, bounded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import InvalidArgument
from sessiondex.features.subjects import (
    RuntimeWorker,
    SubWorker,
    parse_runtime_worker,
    parse_subject,
    runtime_worker,
    sub_worker,
    subject_key,
)


def test_both_forms_are_parsed() -> None:
    found = parse_subject({"kind": "runtime_worker", "runtime_id": "r", "worker_id": "w"})
    assert found == RuntimeWorker(kind="runtime_worker", runtime_id="r", worker_id="w")
    assert parse_subject({"kind": "sub_worker", "name": "n"}) == SubWorker(
        kind="sub_worker", name="n"
    )


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"kind": "sub_worker", "name": "n", "url": "http://x"}, "url"),
        ({"kind": "sub_worker", "name": "n", "runtime_id": "r"}, "runtime_id"),
        ({"kind": "runtime_worker", "runtime_id": "r"}, "worker_id"),
        ({"kind": "runtime_worker", "runtime_id": "r", "worker_id": 3}, "worker_id"),
        ({"kind": "path", "name": "/etc"}, "kind"),
        ({"name": "n"}, "kind"),
        ("sub_worker", "subject"),
        (None, "subject"),
        ([], "subject"),
    ],
)
def test_anything_else_is_refused_and_the_field_is_named(value: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        parse_subject(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["", " ", "é" * 101, "x" * 201, "a\nb", "a\x00", "\ud800"])
def test_a_part_is_neither_blank_nor_long_nor_unprintable(part: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        sub_worker(part)


def test_a_part_of_exactly_200_bytes_is_taken() -> None:
    assert sub_worker("é" * 100).name == "é" * 100


def test_a_child_is_refused_where_only_a_runtime_worker_can_stand() -> None:
    with pytest.raises(InvalidArgument, match="only a runtime_worker"):
        parse_runtime_worker({"kind": "sub_worker", "name": "n"})


PARTS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40).filter(
    lambda text: bool(text.strip())
)


@settings(max_examples=60, deadline=None)
@given(PARTS, PARTS)
def test_a_reference_survives_its_json_and_its_key_is_its_own(one: str, two: str) -> None:
    subject = runtime_worker(one, two)
    assert parse_subject(json.loads(subject_key(subject))) == subject
    assert (subject_key(subject) == subject_key(runtime_worker(two, one))) == (one == two)


@settings(max_examples=100, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["kind", "name", "runtime_id", "x"]), inner, max_size=4),
))  # fmt: skip
def test_arbitrary_json_is_a_subject_or_an_invalid_argument(value: object) -> None:
    try:
        found = parse_subject(value)  # type: ignore[arg-type]
    except InvalidArgument:
        return
    assert json.loads(subject_key(found)) == value
