"""The schemas of the MCP tool accept what the contract's accept, by each of several validators.

WC-MCP-6, the strict part: the root has no combinator, yet nothing more and nothing less is
accepted than by the request schema, and by the result's or the problem's.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from answer_bodies import PROBLEM_SCHEMA, RESULT_SCHEMA, near_answers, values_of
from hypothesis import event, given, settings
from hypothesis import strategies as st
from request_bodies import GOOD, JUNK, REQUIRED, nearly_requests

from checkpoint_model import schemas
from checkpoint_reference_server.registry import make_mcp_tool
from checkpoint_reference_server.registry.mcp_tool import DESCRIPTION_CHARACTERS_MAX

Judge = Callable[[Any], bool]
TOOL = make_mcp_tool()
REFUSED_AT_THE_ROOT = {"oneOf", "anyOf", "allOf", "$ref", "not", "enum", "const"}
"""By one host or another; the first four by the contract too."""


def judges(schema: dict[str, Any]) -> dict[str, Judge]:
    """Two validators of the draft that MCP means, and both again by the one of older clients."""
    return {
        "jsonschema 2020-12": jsonschema.Draft202012Validator(schema).is_valid,
        "jsonschema draft 7": jsonschema.Draft7Validator(schema).is_valid,
        "jsonschema-rs 2020-12": jsonschema_rs.Draft202012Validator(schema).is_valid,
        "jsonschema-rs draft 7": jsonschema_rs.Draft7Validator(schema).is_valid,
    }


def either(schema: Mapping[str, Any], other: Mapping[str, Any]) -> Judge:
    """Accepts what either schema accepts, by the contract's own two documents."""
    one, two = (jsonschema.Draft202012Validator(s).is_valid for s in (schema, other))
    return lambda value: one(value) or two(value)


INPUT = judges(TOOL["inputSchema"])
OUTPUT = judges(TOOL["outputSchema"])
REQUEST = {
    "jsonschema": jsonschema.Draft202012Validator(schemas.load("request.schema.json")).is_valid,
    "jsonschema-rs": jsonschema_rs.Draft202012Validator(
        schemas.load("request.schema.json")
    ).is_valid,
}
ANSWER = either(RESULT_SCHEMA, PROBLEM_SCHEMA)


def verdicts(judges: Mapping[str, Judge], value: Any) -> dict[str, bool]:
    """What each judge says of a value."""
    return {name: judge(value) for name, judge in judges.items()}


def agreed(judges: Mapping[str, Judge], value: Any, *, accepted: bool) -> None:
    """Fail unless every judge says the same of a value."""
    assert verdicts(judges, value) == dict.fromkeys(judges, accepted)


@given(nearly_requests() | JUNK)
def test_the_input_schema_accepts_what_the_request_schema_accepts(arguments: Any) -> None:
    """WC-MCP-6 on requests that are good, or nearly so, or junk."""
    accepted = REQUEST["jsonschema"](arguments)
    event("accepted" if accepted else "refused")
    agreed(REQUEST | INPUT, arguments, accepted=accepted)


@pytest.mark.parametrize("action", GOOD)
def test_each_action_is_admitted_with_exactly_its_members(action: str) -> None:
    """With all, without each in turn, and with each member that only other actions have."""
    agreed(INPUT, GOOD[action], accepted=True)
    for name in GOOD[action]:
        less = {other: value for other, value in GOOD[action].items() if other != name}
        bereft = action == "transition" and name == "evidence_type"
        agreed(INPUT, less, accepted=not bereft and name not in REQUIRED[action])
    foreign = {name: value for good in GOOD.values() for name, value in good.items()}
    for name in foreign.keys() - GOOD[action].keys() - {"holder"}:
        agreed(INPUT, {**GOOD[action], name: foreign[name]}, accepted=False)


@pytest.mark.parametrize(
    "arguments", [{}, {"action": "claim"}, None, [], "claim", [GOOD["status"]]]
)
def test_what_is_no_request_is_refused(arguments: Any) -> None:
    """Arguments that are absent arrive as ``{}`` (WC-MCP-2)."""
    agreed(INPUT, arguments, accepted=False)


@given(near_answers() | JUNK)
def test_the_output_schema_accepts_results_and_problems_and_nothing_else(answer: Any) -> None:
    """WC-MCP-6: a client validates what comes with an error too."""
    accepted = ANSWER(answer)
    event("accepted" if accepted else "refused")
    agreed(OUTPUT, answer, accepted=accepted)


@st.composite
def both_in_one(draw: st.DrawFn) -> dict[str, Any]:
    """A problem object inside a result: neither."""
    members = {**PROBLEM_SCHEMA["properties"], **RESULT_SCHEMA["properties"]}
    return {name: draw(values_of(schema)) for name, schema in members.items()}


@settings(max_examples=10)  # each has every member there is
@given(both_in_one())
def test_nothing_is_a_result_and_a_problem_at_once(answer: dict[str, Any]) -> None:
    """``code`` tells them apart."""
    agreed(OUTPUT, answer, accepted=False)


@pytest.mark.parametrize("name", ["inputSchema", "outputSchema"])
def test_the_root_is_plain(name: str) -> None:
    """An object with described members, and no keyword that hosts refuse there."""
    schema = TOOL[name]
    assert schema["type"] == "object"
    assert not REFUSED_AT_THE_ROOT & schema.keys()
    assert "$schema" not in schema  # official clients that know another dialect alone refuse one
    assert all(member["description"] for member in schema["properties"].values())
    for validator in (jsonschema.Draft202012Validator, jsonschema.Draft7Validator):
        validator.check_schema(schema)


def test_the_tool_is_what_the_contract_says() -> None:
    """WC-MCP-1 and WC-MCP-5, and the bound that some hosts set on a description."""
    assert TOOL["name"] == "workflow_checkpoint"
    assert TOOL["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert len(TOOL["description"]) <= DESCRIPTION_CHARACTERS_MAX


def test_each_call_makes_a_tool_of_its_own() -> None:
    """Whoever changes one changes no other."""
    make_mcp_tool()["inputSchema"]["properties"].clear()
    assert make_mcp_tool() == TOOL
