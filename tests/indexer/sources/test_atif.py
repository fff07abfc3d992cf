"""Harbor trajectories: steps, blocks, sub-agents, continuations, run fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import Failed
from sessiondex.indexer.sources.atif import ATIF
from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.model import COPIED, SIDECHAIN, SYNTHETIC, Attachment, Record, SessionHeader

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples" / "atif"


def trajectory(steps: list[Any], **fields: Any) -> dict[str, Any]:
    root = {
        "schema_version": "ATIF-v1.5",
        "session_id": "run-1",
        "agent": {"name": "helper", "version": "2", "model_name": "acme/large"},
        "steps": [
            {"step_id": i, **step} if isinstance(step, dict) else step
            for i, step in enumerate(steps, 1)
        ],
    }
    return {**root, **fields}


def write(path: Path, document: Any) -> SourceFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return SourceFile(path)


def read(source: SourceFile, stub: SessionStub | None = None) -> tuple[SessionHeader, list[Record]]:
    parser = ATIF.parser(source, stub or ATIF.stubs(source)[0])
    records = list(parser.records())
    return parser.header, records


def records_of(tmp_path: Path, steps: list[Any], **fields: Any) -> list[Record]:
    return read(write(tmp_path / "trajectory.json", trajectory(steps, **fields)))[1]


USER = {"source": "user", "message": "Make hello.txt"}


# ---------------------------------------------------------------- recognising


@pytest.mark.parametrize("version", [f"ATIF-v1.{minor}" for minor in range(9)])
def test_every_version_is_recognised_by_content(tmp_path: Path, version: str) -> None:
    source = write(tmp_path / "anything.txt", trajectory([USER], schema_version=version))
    assert ATIF.matches(source.head(), source)


def test_a_version_behind_a_long_field_is_found(tmp_path: Path) -> None:
    document = trajectory([USER])
    document = {
        "agent": {"extra": "x" * 100_000},
        **{k: document[k] for k in ("steps",)},
        **document,
    }
    document["agent"] = {"extra": "x" * 100_000}
    source = write(tmp_path / "t.json", document)
    assert ATIF.matches(source.head(), source)


@pytest.mark.parametrize(
    "document",
    [
        {"schema_version": "1.0", "steps": []},
        {"schema_version": 7},
        {"steps": [USER]},
        [{"schema_version": "ATIF-v1.5"}],
        {"note": '{"schema_version": "ATIF-v1.5"}'},
        [{"conversations": [{"role": "user", "content": "a"}]}],
    ],
)
def test_other_documents_are_not_claimed(tmp_path: Path, document: Any) -> None:
    source = write(tmp_path / "t.json", document)
    assert not ATIF.matches(source.head(), source)


def test_a_file_that_changed_its_format_since_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "t.json", {"messages": []})
    with pytest.raises(Failed, match="not an ATIF trajectory"):
        ATIF.stubs(source)


# ---------------------------------------------------------------- session ids


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"trajectory_id": "t-9"}, "t-9"),
        ({}, "run-1/trajectory.cont-1"),
        ({"session_id": None}, "trajectory.cont-1"),
        ({"session_id": 7}, "trajectory.cont-1"),
    ],
)
def test_a_session_is_known_by_its_trajectory_else_by_run_and_file(
    tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    source = write(tmp_path / "trajectory.cont-1.json", trajectory([USER], **fields))
    assert ATIF.stubs(source) == [SessionStub(expected)]


def test_embedded_trajectories_are_sessions_of_their_parent(tmp_path: Path) -> None:
    inner = trajectory([USER], trajectory_id="inner")
    middle = trajectory(
        [{"source": "user", "message": "look"}],
        trajectory_id="middle",
        session_id=None,
        subagent_trajectories=[inner],
    )
    nameless = trajectory([USER], session_id=None)
    root = trajectory([USER], trajectory_id="root", subagent_trajectories=[middle, 3, nameless])
    source = write(tmp_path / "trajectory.json", root)
    stubs = ATIF.stubs(source)
    assert stubs == [
        SessionStub("root", ""),
        SessionStub("middle", "0"),
        SessionStub("inner", "0/0"),
        SessionStub("root/2", "2"),
    ]
    headers = {stub.session_id: read(source, stub)[0] for stub in stubs}
    assert {name: header.parent for name, header in headers.items()} == {
        "root": "", "middle": "root", "inner": "middle", "root/2": "root",
    }  # fmt: skip
    assert [header.sub_agent for header in headers.values()] == [False, True, True, True]
    record = read(source, stubs[1])[1][0]
    assert record.pointer == "/subagent_trajectories/0/steps/0"
    assert record.items[0].text == "look"
    assert record.flags == SIDECHAIN


def test_an_embedded_trajectory_that_is_gone_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "trajectory.json", trajectory([USER]))
    with pytest.raises(Failed, match="no embedded trajectory 0"):
        ATIF.parser(source, SessionStub("x", "0"))


# ---------------------------------------------------------------- steps


def test_a_step_holds_reasoning_message_calls_and_results_in_this_order(tmp_path: Path) -> None:
    step = {
        "source": "agent",
        "timestamp": "2026-01-02T03:04:05Z",
        "message": "I look and write.",
        "reasoning_content": "secret thought",
        "tool_calls": [
            {"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "."}},
            {"tool_call_id": "c2", "function_name": "write", "arguments": {"lines": [1, 2]}},
        ],
        "observation": {
            "results": [
                {"source_call_id": "c2", "content": "written"},
                {"source_call_id": "c1", "content": "a.txt"},
            ]
        },
        "metrics": {"prompt_token_ids": [1, 2, 3]},
    }
    record = records_of(tmp_path, [USER, step])[1]
    assert [(i.block, i.kind, i.text, i.name, i.call_id, i.pointer) for i in record.items] == [
        (0, "reasoning", "", "", "", "/reasoning_content"),
        (1, "assistant", "I look and write.", "", "", "/message"),
        (2, "tool_call", "ls\npath: .", "ls", "c1", "/tool_calls/0"),
        (3, "tool_call", "write\nlines: [1,2]", "write", "c2", "/tool_calls/1"),
        (4, "tool_result", "written", "", "c2", "/observation/results/0"),
        (5, "tool_result", "a.txt", "", "c1", "/observation/results/1"),
    ]
    assert record.blocks == 6
    assert (record.number, record.pointer, record.timestamp) == (1, "/steps/1", 1767323045000)
    assert record.model == "acme/large"


def test_reasoning_and_tool_definitions_are_never_shown(tmp_path: Path) -> None:
    agent = {"name": "a", "version": "1", "tool_definitions": [{"function": {"name": "needle"}}]}
    step = {"source": "agent", "message": "ok", "reasoning_content": "needle"}
    records = records_of(tmp_path, [USER, step], agent=agent)
    assert "needle" not in repr(records)


def test_system_steps_before_the_first_user_step_are_the_prompt(tmp_path: Path) -> None:
    system = {"source": "system", "message": "You are an agent."}
    records = records_of(tmp_path, [system, system, USER, system])
    assert [(r.items[0].kind, r.items[0].text) for r in records] == [
        ("prompt", ""),
        ("prompt", ""),
        ("user", "Make hello.txt"),
        ("system", "You are an agent."),
    ]


@pytest.mark.parametrize(("calls", "name"), [(0, ""), (1, "run"), (2, "")])
def test_the_result_of_a_whole_step_has_a_name_only_if_there_was_one_call(
    tmp_path: Path, calls: int, name: str
) -> None:
    call = {"tool_call_id": "c", "function_name": "run", "arguments": {}}
    observation = {"results": [{"content": "$ ls"}]}
    step = {"source": "agent", "message": "", "tool_calls": [call] * calls}
    result = records_of(tmp_path, [USER, {**step, "observation": observation}])[1].items[-1]
    assert (result.kind, result.name, result.call_id) == ("tool_result", name, "")


@pytest.mark.parametrize(
    ("of_result", "of_step", "several", "expected"),
    [
        ({}, {}, False, None),
        ({"is_error": True}, {"is_error": False}, False, True),
        ({}, {"tool_result_is_error": True}, False, True),
        ({}, {"tool_result_is_error": True}, True, None),
        ({}, {"tool_result_is_error": False}, True, False),
        ({"is_error": "yes"}, {}, False, None),
    ],
)
def test_errors_are_known_from_extra_fields(
    tmp_path: Path,
    of_result: dict[str, Any],
    of_step: dict[str, Any],
    several: bool,
    expected: bool | None,
) -> None:
    results = [{"content": "x", "extra": of_result}] + [{"content": "y"}] * several
    step = {"source": "agent", "message": "m", "observation": {"results": results}}
    items = records_of(tmp_path, [USER, {**step, "extra": of_step}])[1].items
    assert items[1].error is expected


def test_parts_are_joined_and_media_become_attachments(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"x" * 70)
    (tmp_path.parent / "outside.png").write_bytes(b"x" * 70)
    parts = [
        {"type": "text", "text": "look at"},
        {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
        {"type": "image", "source": {"media_type": "image/png", "path": "../outside.png"}},
        {"type": "audio", "source": {"path": "gone.wav"}},
        {"type": "text", "text": "this"},
    ]
    step = {"source": "agent", "message": "m", "observation": {"results": [{"content": parts}]}}
    records = records_of(tmp_path, [{"source": "user", "message": parts}, step])
    for item in (records[0].items[0], records[1].items[1]):
        assert item.text == "look at\nthis"
        assert item.attachments == [
            Attachment("image/png", 70),
            Attachment("image/png", 0),
            Attachment("audio", 0),
        ]


def test_a_step_keeps_its_folder_branch_and_model(tmp_path: Path) -> None:
    agent = {"name": "a", "extra": {"cwds": ["/app", "/b"], "git_branches": ["main"]}}
    step = {"source": "agent", "message": "m", "model_name": "acme/small", "extra": {"cwd": "/c"}}
    header, records = read(write(tmp_path / "t.json", trajectory([USER, step], agent=agent)))
    assert (header.project, header.branch, header.model) == ("/app", "main", "acme/small")
    assert [(r.cwd, r.branch, r.model) for r in records] == [
        ("/app", "main", ""),
        ("/c", "main", "acme/small"),
    ]


def test_an_answer_without_calls_closes_the_turn(tmp_path: Path) -> None:
    call = {"tool_call_id": "c", "function_name": "run", "arguments": {}}
    busy = {"source": "agent", "message": "m", "tool_calls": [call]}
    done = {"source": "agent", "message": "done"}
    assert [r.closes_turn for r in records_of(tmp_path, [USER, busy, done])] == [False, False, True]


def test_steps_of_no_known_shape_are_numbered_records(tmp_path: Path) -> None:
    odd = [None, 3, "x", [], {}, {"source": "robot", "message": "m"}, {"source": "agent"}, USER]
    records = records_of(tmp_path, odd)
    assert [r.number for r in records] == list(range(8))
    assert [bool(r.items) for r in records] == [False] * 7 + [True]


# ---------------------------------------------------------------- delegation and copies


def delegation(path: str, summary: str = "") -> dict[str, Any]:
    ref = {"session_id": "s", "trajectory_path": path, "extra": {"summary": summary}}
    return {"results": [{"subagent_trajectory_ref": [ref]}]}


def test_a_step_that_only_delegates_is_a_marker_and_what_follows_is_no_word_of_a_user(
    tmp_path: Path,
) -> None:
    marker = {"source": "system", "message": "Handed off.", "observation": delegation("x.json")}
    handoff = {"source": "user", "message": "Here are the answers"}
    records = records_of(tmp_path, [USER, marker, handoff, handoff])
    assert [(i.kind, i.sub_kind, i.text) for i in records[1].items] == [
        ("system", "delegation", "Handed off.")
    ]
    assert records[1].blocks == 2
    assert [r.items[0].flags for r in records] == [0, 0, SYNTHETIC, 0]


def test_a_call_that_delegates_has_a_result_with_the_summary_of_the_reference(
    tmp_path: Path,
) -> None:
    call = {"tool_call_id": "c", "function_name": "task", "arguments": {}}
    observation = delegation("x.json", "searched the code")
    observation["results"][0]["source_call_id"] = "c"
    step = {"source": "agent", "message": "", "tool_calls": [call], "observation": observation}
    result = records_of(tmp_path, [USER, step])[1].items[1]
    assert (result.kind, result.text, result.summary) == ("tool_result", "", "searched the code")


def test_results_in_system_steps_belong_to_earlier_calls(tmp_path: Path) -> None:
    observation = {"results": [{"source_call_id": "c", "content": "out"}]}
    step = {"source": "system", "message": "", "observation": observation}
    record = records_of(tmp_path, [USER, step])[1]
    assert [(i.block, i.kind, i.call_id, i.text) for i in record.items] == [
        (0, "tool_result", "c", "out")
    ]


def test_copied_steps_are_known_as_those_that_they_copy(tmp_path: Path) -> None:
    call = {"tool_call_id": "c", "function_name": "run", "arguments": {"cmd": "ls"}}
    agent = {
        "source": "agent",
        "message": "I list.",
        "reasoning_content": "hm",
        "tool_calls": [call],
        "observation": {"results": [{"content": "a.txt"}]},
        "metrics": {"prompt_tokens": 1},
        "timestamp": "2026-01-02T03:04:05Z",
    }
    last = {"source": "agent", "message": "done"}
    original = write(tmp_path / "trajectory.json", trajectory([USER, agent, agent, last]))
    left_out = ("metrics", "timestamp", "reasoning_content")
    copy = {key: value for key, value in agent.items() if key not in left_out}
    copies = [{**step, "is_copied_context": True} for step in (USER, copy, copy)]
    continued = write(
        tmp_path / "trajectory.cont-1.json",
        trajectory([*copies, last], session_id="run-1-cont-1"),
    )
    stranger = write(tmp_path / "b" / "trajectory.json", trajectory([USER], session_id="run-2"))

    first, second, other = (
        [[i.identity for i in r.items if i.kind != "reasoning"] for r in read(source)[1]]
        for source in (original, continued, stranger)
    )
    assert first[:3] == second[:3]
    assert first[1] != first[2]
    assert len({name for names in first for name in names}) == 8
    assert other[0] != first[0]
    records = read(continued)[1]
    assert [r.replayed for r in records] == [True, True, True, False]
    assert [r.flags for r in records] == [COPIED, COPIED, COPIED, 0]


def test_without_a_run_nothing_is_known_as_a_copy(tmp_path: Path) -> None:
    record = records_of(tmp_path, [USER], session_id=None)[0]
    assert record.items[0].identity == ""


def test_the_file_that_names_a_sub_agent_or_continuation_is_its_parent(tmp_path: Path) -> None:
    parent_run = {"name": "a", "extra": {"parent_session_id": "run-1"}}
    marker = {
        "source": "system",
        "message": "Handed off.",
        "observation": delegation("trajectory.summarization-1-summary.json"),
    }
    later = {**marker, "observation": delegation("subagents/search.json")}
    write(
        tmp_path / "trajectory.json",
        trajectory([USER, marker, later], continued_trajectory_ref="trajectory.cont-1.json"),
    )
    children = {
        "trajectory.summarization-1-summary.json": True,
        "trajectory.cont-1.json": False,
        "subagents/search.json": True,
        "trajectory.unrelated-1.json": False,
    }
    found = {}
    for name, is_sub_agent in children.items():
        agent = parent_run if is_sub_agent else {"name": "a"}
        source = write(tmp_path / name, trajectory([USER], session_id="run-1", agent=agent))
        header = read(source)[0]
        found[name] = (header.parent, header.sub_agent)
    assert found == {
        "trajectory.summarization-1-summary.json": ("run-1/trajectory", True),
        "trajectory.cont-1.json": ("run-1/trajectory", False),
        "subagents/search.json": ("run-1/trajectory", True),
        "trajectory.unrelated-1.json": ("", False),
    }


# ---------------------------------------------------------------- runs


def test_run_fields_come_from_the_trial_around_the_trajectory(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "nightly"
    trial = job / "hello__abc"
    source = write(trial / "agent" / "trajectory.json", trajectory([USER]))
    write(job / "result.json", {"n_total_trials": 3, "stats": {}})
    write(
        trial / "config.json",
        {"trial_name": "hello__abc", "task": {"path": "tasks/hello"}, "agent": {}},
    )
    assert read(source)[0].run == {
        "run": "nightly",
        "trial": "hello__abc",
        "task": "hello",
        "agent": "helper 2",
        "model": "acme/large",
    }
    write(
        trial / "result.json",
        {
            "task_name": "hello-world",
            "trial_name": "hello__abc",
            "verifier_result": {"rewards": {"reward": 0.5}},
            "exception_info": {"exception_type": "Timeout", "exception_message": "after 60 s"},
            "finished_at": "2026-01-02T03:04:05Z",
        },
    )
    run = read(source)[0].run
    assert (run["task"], run["scores"], run["status"], run["error"]) == (
        "hello-world",
        {"reward": 0.5},
        "error",
        "Timeout: after 60 s",
    )


def test_run_fields_come_from_the_trajectory_where_there_is_no_trial(tmp_path: Path) -> None:
    document = trajectory(
        [USER],
        extra={"task": "hello", "stop_reason": "max_steps", "attempt": 2, "status": "success"},
        final_metrics={"total_cost_usd": 0.1, "extra": {"reward": 1.0}},
    )
    source = write(tmp_path / "trajectory.json", document)
    (tmp_path / "result.json").write_text('{"task_name": "half', encoding="utf-8")
    assert read(source)[0].run == {
        "run": "run-1",
        "task": "hello",
        "epoch": 2,
        "agent": "helper 2",
        "model": "acme/large",
        "scores": {"reward": 1.0},
        "status": "success",
        "stop_reason": "max_steps",
    }


def test_a_trajectory_has_no_command_that_resumes_it(tmp_path: Path) -> None:
    header = read(write(tmp_path / "t.json", trajectory([USER])))[0]
    assert ATIF.resume_command(header) is None
    assert (header.agent, header.format) == ("harbor", "atif")


# ---------------------------------------------------------------- anything

SMALL = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SMALL, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3)
)
STEPS = st.lists(
    VALUES
    | st.fixed_dictionaries(
        {},
        optional={
            "source": st.sampled_from(["user", "agent", "system"]) | VALUES,
            "message": VALUES | st.lists(st.fixed_dictionaries({"type": VALUES, "text": VALUES})),
            "reasoning_content": VALUES,
            "tool_calls": VALUES | st.lists(st.dictionaries(
                st.sampled_from(["tool_call_id", "function_name", "arguments"]), VALUES
            ), max_size=2),
            "observation": VALUES | st.fixed_dictionaries({"results": VALUES | st.lists(
                st.dictionaries(
                    st.sampled_from(
                        ["source_call_id", "content", "subagent_trajectory_ref", "extra"]
                    ),
                    VALUES,
                ), max_size=2,
            )}),
            "extra": VALUES,
            "timestamp": VALUES,
            "is_copied_context": VALUES,
            "model_name": VALUES,
        },
    ),
    max_size=4,
)  # fmt: skip


@given(
    STEPS | VALUES,
    st.dictionaries(
        st.sampled_from(["session_id", "trajectory_id", "agent", "extra", "final_metrics",
                         "subagent_trajectories", "continued_trajectory_ref"]),
        VALUES,
    ),
)  # fmt: skip
def test_no_content_of_a_trajectory_stops_the_parser(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, fields: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz" / "trajectory.part-1.json"
    source = write(path, {"schema_version": "ATIF-v1.8", **fields, "steps": steps})
    stubs = ATIF.stubs(source)
    assert stubs[0].selector == ""
    for stub in stubs:
        header, records = read(source, stub)
        assert header.session_id == stub.session_id
        json.dumps(header.run)
        for record in records:
            blocks = [item.block for item in record.items]
            assert blocks == sorted(set(blocks))
            assert all(block < record.blocks for block in blocks)
            for item in record.items:
                item.text.encode()
    expected = len(steps) if isinstance(steps, list) else 0
    assert len(read(source)[1]) == expected


# ---------------------------------------------------------------- real files

needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples")


@needs_samples
def test_real_trajectories_have_as_many_records_as_steps() -> None:
    paths = sorted(SAMPLES.glob("*.json"))
    assert len(paths) == 6
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        source = SourceFile(path)
        assert ATIF.matches(source.head(), source)
        records = read(source)[1]
        assert len(records) == len(document["steps"])
        calls = sum(len(step.get("tool_calls") or []) for step in document["steps"])
        assert calls == sum(i.kind == "tool_call" for r in records for i in r.items)
        for record, step in zip(records, document["steps"], strict=True):
            assert record.replayed == bool(step.get("is_copied_context"))
            shown = [i.text for i in record.items if i.kind in ("user", "assistant", "system")]
            assert shown in ([step["message"]], []) or step["source"] == "system"


@needs_samples
def test_real_copied_steps_are_those_of_the_trajectory_that_delegated() -> None:
    name = "terminus_2__hello-world-context-summarization.trajectory"
    header, records = read(SourceFile(SAMPLES / f"{name}.json"))
    sub_header, sub_records = read(SourceFile(SAMPLES / f"{name}.summarization-1-summary.json"))
    assert sub_header.parent == header.session_id
    assert sub_header.sub_agent
    originals = [[i.identity for i in r.items] for r in records]
    copies = [[i.identity for i in r.items] for r in sub_records if r.replayed]
    assert len(copies) == 3
    assert copies == originals[:3]
    assert [r.items[0].sub_kind for r in records].count("delegation") == 1
