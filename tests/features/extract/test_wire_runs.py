"""Extract runs through the real provider clients, against a server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.loop.budget import Budgets
from sessiondex.features.loop.models import open_model
from tests.features.extract.scripted import World
from tests.features.extract.test_characters import CLAIM, FIVE_TOOLS
from tests.features.extract_runs import capture_of
from tests.features.loop.wire_server import WIRES, Answer, Call, Fault, Wire, WireServer

READ = Call("ReadEntry", {"entry_refs": ["E0"]})
STAGE = Call(
    "StageMemoryCandidate",
    {
        "kind": "constraint", "claim": CLAIM, "why_useful": "Deploys go right.",
        "entry_refs": ["E0"], "quotes": [{"entry_ref": "E0", "quote": "never from main"}],
    },
)  # fmt: skip
FINISH = Call("FinishMemoryExtraction", {"staged_count": 1})
NOTHING = Call(
    "FinishMemoryExtraction", {"staged_count": 0, "no_candidates_reason": "nothing durable"}
)

every_wire = pytest.mark.parametrize("wire", WIRES)


def run(
    world: World, wire: Wire, said: Sequence[Answer | Fault], **options: Any
) -> tuple[ExtractResult, WireServer]:
    """One run of the extract worker with the client of a wire."""
    with WireServer(said) as server:
        model = open_model(f"{wire}:tester", base_url=server.base_url(wire), environ={})
        extraction = world.extraction(capture_of(), _Opened(model), **options)  # type: ignore[arg-type]

        return extraction.run(), server


class _Opened:
    """Stands where a scripted model is expected."""

    def __init__(self, model: Any) -> None:
        self.model = model


@every_wire
def test_a_run_over_the_wire_stages_and_seals(world: World, wire: Wire) -> None:
    said = [Answer(calls=[READ]), Answer(calls=[STAGE]), Answer("Done.", calls=[FINISH])]
    result, server = run(world, wire, said)
    assert result.outcome == "staged" and world.claims() == [CLAIM]
    assert (result.report.input_tokens, result.report.output_tokens) == (33, 21)
    assert len(server.received) == 3
    for received in server.received:
        assert [tool.name for tool in received.tools] == FIVE_TOOLS
        assert not received.has_reasoning
        assert "StageMemoryCandidate" in received.instructions
    returned = server.received[1].messages[-1].returns[0].text
    assert "We always deploy" in returned and "[left: 23 turns" in returned


@every_wire
def test_parallel_calls_are_all_answered(world: World, wire: Wire) -> None:
    said = [Answer(calls=[READ, STAGE, READ]), Answer(calls=[FINISH])]
    result, server = run(world, wire, said)
    assert result.outcome == "staged"
    assert len(server.received[1].messages[-1].returns) == 3


@every_wire
def test_malformed_arguments_come_back_as_an_error_of_the_call(world: World, wire: Wire) -> None:
    broken = Call("ReadEntry", '{"entry_refs": ["E0"')
    if wire == "anthropic":  # its arguments are JSON already, so only their shape can be wrong
        broken = Call("ReadEntry", {"entry_refs": {"E0": 1}})
    said = [Answer(calls=[broken]), Answer(calls=[STAGE, FINISH])]
    result, server = run(world, wire, said)
    assert result.outcome == "staged" and result.report.refused_calls == 1
    assert "invalid_argument" in server.received[1].messages[-1].returns[0].text


@every_wire
@pytest.mark.parametrize(
    "fault",
    [
        Fault.rate_limit("2"), Fault.server_error(), Fault.overloaded(), Fault.cut(),
        Fault.reset(), Fault.garbage(),
    ],
    ids=lambda fault: fault.kind,
)  # fmt: skip
def test_a_fault_that_passes_costs_nothing_but_time(world: World, wire: Wire, fault: Fault) -> None:
    result, server = run(world, wire, [fault, Answer(calls=[STAGE, FINISH])])
    assert result.outcome == "staged" and world.claims() == [CLAIM]
    assert len(server.received) == 2 and len(world.clock.slept) == 1
    if fault.kind == "rate_limit":
        assert world.clock.slept[0] >= 2


@every_wire
@pytest.mark.parametrize(
    "fault", [Fault.rate_limit(), Fault.server_error(), Fault.cut()], ids=lambda fault: fault.kind
)
def test_a_fault_that_stays_ends_the_run_with_what_was_staged(
    world: World, wire: Wire, fault: Fault
) -> None:
    result, server = run(world, wire, [Answer(calls=[STAGE]), fault, fault, fault])
    assert (result.outcome, result.reason) == ("incomplete", "provider")
    assert world.claims() == [CLAIM] and world.pointer() is None
    assert len(server.received) == 4


@every_wire
@pytest.mark.parametrize(
    "fault",
    [Fault.unauthorized(), Fault.not_found(), Fault.rejected(), Fault.context_too_long()],
    ids=lambda fault: fault.kind,
)
def test_a_refusal_is_not_tried_again_and_quotes_nothing(
    world: World, wire: Wire, fault: Fault
) -> None:
    result, server = run(world, wire, [fault])
    assert (result.outcome, result.reason) == ("incomplete", "provider")
    assert len(server.received) == 1
    assert "release branch" not in result.detail and "no-key" not in result.detail


@every_wire
def test_a_provider_that_hangs_is_left_and_asked_again(world: World, wire: Wire) -> None:
    from dataclasses import replace

    host = world.host(capture_of)
    hurried = replace(host.loop, request_seconds=0.3)
    said = [Fault.hang(threading.Event()), Answer(calls=[STAGE, FINISH])]
    result, server = run(world, wire, said, loop=hurried)
    assert result.outcome == "staged" and len(server.received) == 2


@every_wire
def test_an_answer_that_says_nothing_is_sent_back_as_prose(world: World, wire: Wire) -> None:
    said = [Answer(""), Answer("hello"), Answer(calls=[NOTHING])]
    result, server = run(world, wire, said)
    assert result.outcome == "no_candidates" and len(server.received) == 3
    assert "FinishMemoryExtraction" in server.received[1].messages[-1].text


@every_wire
def test_an_answer_that_was_cut_short_is_no_end(world: World, wire: Wire) -> None:
    said = [Answer("I was about to", is_cut_short=True), Answer(calls=[NOTHING])]
    result, _ = run(world, wire, said, budgets=Budgets(turns=6))
    assert result.outcome == "no_candidates"


@every_wire
def test_lone_surrogates_of_a_model_break_nothing(world: World, wire: Wire) -> None:
    broken = Call("SearchEntries", {"query": "a\ud800b"})
    said = [Answer("so \ud800", calls=[broken]), Answer(calls=[STAGE, FINISH])]
    result, server = run(world, wire, said)
    assert result.outcome == "staged" and len(server.received) == 2
    sent = server.received[1].messages[1]
    assert "\ud800" not in sent.text and "\ud800" not in str(sent.calls[0].arguments)


@every_wire
@pytest.mark.parametrize("name", [5, True, ["words of a session"], {"words": 1}])
def test_a_call_whose_name_is_no_text_ends_the_run_and_is_no_fault(
    world: World, wire: Wire, name: Any
) -> None:
    said = [Answer(calls=[Call(name, {})])] * 2
    result, _ = run(world, wire, said)
    assert result.outcome == "incomplete" and result.reason in ("protocol", "provider")
    assert not world.faults


@every_wire
def test_a_name_and_an_id_with_lone_surrogates_break_nothing(world: World, wire: Wire) -> None:
    said = [Answer(calls=[Call("a\ud800b", {}, "c\udfff")]), Answer(calls=[STAGE, FINISH])]
    result, server = run(world, wire, said)
    assert result.outcome == "staged" and len(server.received) == 2


@pytest.mark.parametrize(
    "text", ["[1, 2]", "17", '{"limit": NaN}', '{"limit": 1e999}', '{"a":' * 900 + "1" + "}" * 900]
)
@every_wire
def test_arguments_that_are_no_object_or_no_json_are_told_to_the_model(
    world: World, wire: Wire, text: str
) -> None:
    said = [Answer(calls=[Call("ReadEntry", text)]), Answer(calls=[STAGE, FINISH])]
    result, server = run(world, wire, said)
    assert result.outcome == "staged" and result.report.refused_calls == 1
    assert "invalid_argument" in server.received[1].messages[-1].returns[0].text


@every_wire
def test_a_count_of_tokens_beyond_all_numbers_leaves_a_report(world: World, wire: Wire) -> None:
    result, _ = run(world, wire, [Answer(calls=[READ], input_tokens=10**30)])
    assert (result.outcome, result.reason) == ("incomplete", "token_limit")
    assert orjson.dumps(result.to_json())
