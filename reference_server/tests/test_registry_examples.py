"""The examples of the published descriptions: what the model answers, and enough of them."""

from typing import Any

import jsonschema
import pytest
import registry_examples

from checkpoint_model import ERRORS, Action, ErrorCode, schemas
from checkpoint_reference_server.registry import RECORD
from checkpoint_reference_server.registry.examples import Example

REQUEST = jsonschema.Draft202012Validator(schemas.load("request.schema.json"))
EXAMPLES = RECORD.examples
REMEDY = "python reference_server/tests/registry_examples.py"


def test_the_committed_examples_are_what_the_model_answers() -> None:
    """Every one of them, member for member."""
    assert registry_examples.COMMITTED.read_text(encoding="utf-8") == registry_examples.text(), (
        f"write them anew: {REMEDY}"
    )


def test_there_is_one_for_each_action_and_each_code_that_is_decided() -> None:
    """And for ``INVALID_INPUT``, which the schema decides."""
    decided = {code for code, row in ERRORS.items() if row.decided}
    assert {e.request["action"] for e in EXAMPLES if e.code is None} == set(Action)
    assert {e.code for e in EXAMPLES} == {None, *decided, ErrorCode.INVALID_INPUT}


@pytest.mark.parametrize(
    "members",
    [
        {"action": "claim", "recovered": True},
        {"action": "claim", "generation": 2, "recovered": False},
        {"action": "claim", "reused": True, "recovery_required": True},
        {"action": "transition", "observation_replayed": True},
    ],
)
def test_the_turns_of_a_workflow_are_shown(members: dict[str, Any]) -> None:
    """Taking over, retrying, and repeating a request whose answer was lost."""
    assert [e.name for e in EXAMPLES if members.items() <= e.response.items()]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_can_be_sent_as_it_stands(example: Example) -> None:
    """Its requests are valid, but for the one that shows what is not, and about one workflow."""
    assert all(REQUEST.is_valid(given) for given in example.given)
    assert REQUEST.is_valid(example.request) == (example.code != ErrorCode.INVALID_INPUT)
    about = {(r["namespace"], r["workflow_key"]) for r in [*example.given, example.request]}
    assert len(about) == 1


def test_names_tell_examples_apart() -> None:
    """Each begins with the action that succeeds or the code of the error."""
    assert len({e.name for e in EXAMPLES}) == len(EXAMPLES)
    for example in EXAMPLES:
        assert example.name.startswith(f"{example.code or example.request['action']}: ")
