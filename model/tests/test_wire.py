"""The answer's members (sections 7 and 8), checked against the contract's own schemas."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sequences import LINKS, walk

from checkpoint_model import (
    CONTRACT_LIMITS,
    CONTRACT_VERSION,
    ERRORS,
    Action,
    Claim,
    ErrorCode,
    EvidenceType,
    Record,
    Request,
    Stage,
    Status,
    Success,
    Transition,
    answer,
    format_timestamp,
    parse_request,
    parse_timestamp,
    schemas,
    step,
)
from checkpoint_model.vocabulary import BODY_BYTES_MAX

RESULT = jsonschema.Draft202012Validator(schemas.load("result.schema.json"))
PROBLEM = jsonschema.Draft202012Validator(schemas.load("problem.schema.json"))
REQUEST = schemas.load("request.schema.json")
T0 = parse_timestamp("2026-07-25T12:00:00.000Z")
CLAIM = Claim(holder="ann", claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=True)
WORDING = {"type": "about:blank", "title": "t", "detail": "d", "recovery": "r"}


def test_the_contract_example_is_what_the_model_says() -> None:
    """The worked example of ``manifest.example.json``, all members but the hash."""
    example = schemas.load("manifest.example.json")["examples"][0]
    _, request = parse_request(example["request"])
    expected = dict(example["response"])
    del expected["workflow_hash"]
    now_ms = parse_timestamp(expected["observed_at"])
    assert answer(step(None, request, now_ms), request) == expected


@given(LINKS)
def test_every_answer_matches_its_schema(links: list[tuple[Request, int]]) -> None:
    """Section 7 and section 8, over whatever sequences arise."""
    for _, request, _, done in walk(links):
        told = answer(done, request)
        if isinstance(done.outcome, Success):
            RESULT.validate({"workflow_hash": "hmac-sha256:" + "0" * 64, **told})
        else:
            PROBLEM.validate({**WORDING, **told})
            assert told["status"] in ERRORS[done.outcome].http_statuses


@given(LINKS)
def test_flags_follow_the_action(links: list[tuple[Request, int]]) -> None:
    """WC-VIEW-1: flags that belong to another action are false."""
    own = {
        Action.CLAIM: {"acquired", "recovered", "reused"},
        Action.TRANSITION: {"transitioned", "observation_replayed"},
        Action.ABANDON: {"abandoned"},
        Action.STATUS: set[str](),
    }
    for _, request, _, done in walk(links):
        told = answer(done, request)
        raised = {flag for flags in own.values() for flag in flags if told.get(flag) is True}
        assert raised <= own[request.action]


def _after(*requests: tuple[Request, int]) -> tuple[Record | None, int]:
    record: Record | None = None
    now_ms = T0
    for request, now in requests:
        now_ms = T0 + now
        record = step(record, request, now_ms).record
    return record, now_ms


@pytest.mark.parametrize(
    ("elapsed_ms", "claim_left", "state_left"),
    [
        (0, 60, 600),
        (1, 59, 599),
        (1000, 59, 599),
        (1001, 58, 598),
        (59_000, 1, 541),
        (59_001, 0, 540),
    ],
)
def test_seconds_remaining_are_rounded_down(
    elapsed_ms: int, claim_left: int, state_left: int
) -> None:
    """WC-TIME-6."""
    record, _ = _after((CLAIM, 0))
    told = answer(step(record, Status(), T0 + elapsed_ms), Status())
    assert told["claim_ttl_seconds_remaining"] == claim_left
    assert told["state_ttl_seconds_remaining"] == state_left


def _status(record: Record | None, caller: str | None, now_ms: int) -> dict[str, object]:
    request = Status(holder=caller)
    return answer(step(record, request, now_ms), request)


FAIL = Transition(
    holder="ann",
    generation=1,
    to_stage=Stage.FAILED,
    observation_key="one",
    evidence_type=EvidenceType.NOT_ATTEMPTED,
    evidence_fingerprint="sha256:1",
)
OWN = ["transition", "status", "abandon"]
CLAIMABLE = ["claim", "status"]
NOTHING = ["status"]


def test_allowed_next_actions() -> None:
    """WC-VIEW-2, case by case."""
    held, _ = _after((CLAIM, 0))
    failed, _ = _after((CLAIM, 0), (FAIL, 1))
    final, _ = _after((replace(CLAIM, retry_failed=False), 0), (FAIL, 1))
    assert held is not None
    assert failed is not None
    lapse = T0 + 60_000
    got = {
        "the holder": _status(held, "ann", T0)["allowed_next_actions"],
        "another": _status(held, "bob", T0)["allowed_next_actions"],
        "nobody": _status(held, None, T0)["allowed_next_actions"],
        "lapsed": _status(held, "ann", lapse)["allowed_next_actions"],
        "lapsed at 16": _status(replace(held, generation=16), "ann", lapse)["allowed_next_actions"],
        "failed, retry": _status(failed, "ann", T0 + 2)["allowed_next_actions"],
        "failed, retry at 16": _status(replace(failed, generation=16), "ann", T0 + 2)[
            "allowed_next_actions"
        ],
        "failed": _status(final, "ann", T0 + 2)["allowed_next_actions"],
    }
    assert got == {
        "the holder": OWN,
        "another": NOTHING,
        "nobody": NOTHING,
        "lapsed": CLAIMABLE,
        "lapsed at 16": NOTHING,
        "failed, retry": CLAIMABLE,
        "failed, retry at 16": NOTHING,
        "failed": NOTHING,
    }


def test_a_new_generation_starts_without_evidence() -> None:
    """WC-VIEW-4, after a failure with evidence and a fingerprint."""
    failed, _ = _after((CLAIM, 0), (FAIL, 1))
    assert _status(failed, None, T0 + 2)["evidence_type"] == "not_attempted"
    assert _status(failed, None, T0 + 2)["evidence_fingerprint_present"] is True
    again, _ = _after((CLAIM, 0), (FAIL, 1), (CLAIM, 2))
    assert _status(again, None, T0 + 2)["evidence_type"] is None
    assert _status(again, None, T0 + 2)["evidence_fingerprint_present"] is False


def test_a_problem_says_what_stands_in_the_way() -> None:
    """WC-ERR-2 and WC-ERR-8: members where they apply, absent elsewhere."""
    held, _ = _after((CLAIM, 0))
    other = replace(CLAIM, holder="bob", claim_ttl_seconds=59)
    base = {"retry": False, "charged": False, "observed_at": format_timestamp(T0)}
    standing = {"stage": "claimed", "generation": 1}
    assert answer(step(held, other, T0), other) == {
        **base,
        **standing,
        "status": 409,
        "code": "CONFIGURATION_CONFLICT",
        "claim_expires_at": format_timestamp(T0 + 60_000),
        "configuration": {
            "claim_ttl_seconds": 60,
            "state_ttl_seconds": 600,
            "retry_failed": True,
        },
    }
    lapse = T0 + 60_000
    assert answer(step(held, replace(FAIL, generation=2), lapse), FAIL) == {
        **base,
        **standing,
        "observed_at": format_timestamp(lapse),
        "status": 409,
        "code": "STALE_GENERATION",
    }
    gone = {**base, "status": 404, "code": "CHECKPOINT_NOT_FOUND"}
    assert answer(step(None, Status(), T0), Status()) == gone
    expired = T0 + 600_000
    assert answer(step(held, Status(), expired), Status()) == {
        **gone,
        "observed_at": format_timestamp(expired),
    }


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-25T12:00:00Z",
        "2026-07-25T12:00:00.0000Z",
        "2026-07-25T12:00:00.000+00:00",
        "2026-07-25T12:00:00.000Z\n",
        "2026-07-25 12:00:00.000Z",
        "2026-07-25t12:00:00.000z",
        "2026-02-30T12:00:00.000Z",
        "2026-07-25T24:00:00.000Z",
        "\uff12026-07-25T12:00:00.000Z",
        1_785_000_000_000,
        None,
    ],
)
def test_other_forms_of_time_are_refused(text: object) -> None:
    """WC-TIME-5: exactly three fraction digits and ``Z``."""
    with pytest.raises(ValueError, match=r"timestamp|month|day|hour"):
        parse_timestamp(text)


def test_the_vocabulary_is_that_of_the_schemas() -> None:
    """Stages, actions, evidence, codes and limits stand once in the model, once in the schemas."""
    result = schemas.load("result.schema.json")["properties"]
    problem = schemas.load("problem.schema.json")["properties"]
    branches = {branch["title"]: branch["properties"] for branch in REQUEST["oneOf"]}
    assert list(branches) == list(Action)
    assert result["stage"]["enum"] == list(Stage)
    assert branches["transition"]["evidence_type"]["enum"] == list(EvidenceType)
    assert problem["code"]["enum"] == list(ErrorCode)
    assert set(ERRORS) == set(ErrorCode)


def test_the_limits_are_those_of_the_manifest() -> None:
    """Section 13 publishes them; the model decides by them."""
    manifest = schemas.load("manifest.example.json")
    assert manifest["version"] == CONTRACT_VERSION
    assert manifest["limits"] == {
        "generations": CONTRACT_LIMITS.generations,
        "observations": CONTRACT_LIMITS.observations,
        "claim_ttl_seconds": list(CONTRACT_LIMITS.claim_ttl_seconds),
        "state_ttl_seconds": list(CONTRACT_LIMITS.state_ttl_seconds),
        "body_bytes": BODY_BYTES_MAX,
    }


def test_the_error_table_is_that_of_the_contract() -> None:
    """WC-ERR-1: code, statuses and retry, read from the table of section 8."""
    contract = (Path(__file__).parents[1] / "CONTRACT.md").read_text(encoding="utf-8")
    rows = {}
    for line in contract.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].strip("`") in ErrorCode.__members__:
            statuses = tuple(int(word) for word in re.findall(r"\b[45]\d\d\b", cells[1]))
            rows[cells[0].strip("`")] = (statuses, json.loads(cells[2]))
    assert rows == {str(c): (row.http_statuses, row.retry) for c, row in ERRORS.items()}


@given(st.sampled_from(ErrorCode))
def test_what_section_6_decides_is_marked(code: ErrorCode) -> None:
    """The other codes come from section 3, an operator, a limit or the store."""
    outside = {"INVALID_INPUT", "TOOL_PAUSED", "RATE_LIMITED", "DEPENDENCY_UNAVAILABLE"}
    assert ERRORS[code].decided is (code not in outside)
