"""What callers are told: against the model's own statement, and against the contract's schemas."""

from typing import Any

import jsonschema
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from sequences import LINKS, T0, walk

from checkpoint_lua import Reply, StoredRecord
from checkpoint_model import ERRORS, ErrorCode, Record, Request, Step, Success, answer, schemas
from checkpoint_model.wire import format_timestamp
from checkpoint_reference_server.answers import (
    RETRY_AFTER_SECONDS,
    decided_problem,
    problem,
    result,
    timestamp,
)

RESULT = jsonschema.Draft202012Validator(schemas.load("result.schema.json"))
PROBLEM = jsonschema.Draft202012Validator(schemas.load("problem.schema.json"))
HASH = "hmac-sha256:" + "0a" * 32
WORDING = ("type", "title", "detail", "recovery")


def as_reply(step: Step) -> Reply:
    """What a script replies where the model made this step."""
    record = None
    if step.record is not None and step.record.exists(step.observed_at_ms):
        record = as_stored(step.record)
    outcome = step.outcome
    word = outcome.name.lower() if isinstance(outcome, Success) else str(outcome)
    return Reply(outcome=word, now_ms=step.observed_at_ms, record=record)


def as_stored(record: Record) -> StoredRecord:
    """The model's record as a script reports it."""
    return StoredRecord(
        stage=str(record.stage),
        generation=record.generation,
        holder=record.holder,
        claim_end_ms=record.claim_expires_at_ms,
        state_end_ms=record.state_expires_at_ms,
        claim_ttl_seconds=record.claim_ttl_seconds,
        state_ttl_seconds=record.state_ttl_seconds,
        retry_failed=record.retry_failed,
        evidence_type=None if record.evidence_type is None else str(record.evidence_type),
        evidence_fingerprint_present=record.evidence_fingerprint_present,
    )


def told(step: Step, request: Request) -> dict[str, Any]:
    """The server's answer to a step of the model."""
    reply = as_reply(step)
    if isinstance(step.outcome, ErrorCode):
        return decided_problem(step.outcome, reply)
    assert reply.record is not None
    return result(
        reply,
        reply.record,
        action=str(request.action),
        workflow_hash=HASH,
        caller=request.holder,
    )


@given(LINKS)
def test_the_server_tells_what_the_model_tells(links: list[tuple[Request, int]]) -> None:
    """Sections 7 and 8, two statements of them written apart, over whatever sequences arise."""
    for _, request, _, step in walk(links):
        event(step.rule)
        came, expected = told(step, request), answer(step, request)
        if isinstance(step.outcome, Success):
            assert came == {**expected, "workflow_hash": HASH}
            RESULT.validate(came)
        else:
            assert {name: came[name] for name in came if name not in WORDING} == expected
            PROBLEM.validate(came)


@given(
    st.builds(
        StoredRecord,
        stage=st.sampled_from(["claimed", "uncertain", "caller_verified", "failed", "compensated"]),
        generation=st.integers(1, 16),
        holder=st.sampled_from(["ann", "bob"]),
        claim_end_ms=st.integers(T0 - 900_000, T0 + 900_000),
        state_end_ms=st.integers(T0 + 1, T0 + 3_600_000),
        claim_ttl_seconds=st.integers(1, 900),
        state_ttl_seconds=st.integers(1, 3600),
        retry_failed=st.booleans(),
        evidence_type=st.none() | st.just("external_read"),
        evidence_fingerprint_present=st.booleans(),
    ),
    st.sampled_from([None, "ann", "bob"]),
)
def test_any_record_gives_a_result_that_hangs_together(
    record: StoredRecord, caller: str | None
) -> None:
    """WC-VIEW-2, WC-VIEW-3, WC-TIME-6: also for generations that no short sequence reaches."""
    came = result(
        Reply(outcome="reported", now_ms=T0, record=record),
        record,
        action="status",
        workflow_hash=HASH,
        caller=caller,
    )
    RESULT.validate(came)
    open_stage = record.stage in ("claimed", "uncertain")
    lapsed = open_stage and record.claim_end_ms <= T0
    may_claim = lapsed or (record.stage == "failed" and record.retry_failed)
    assert came["claim_active"] is (open_stage and record.claim_end_ms > T0)
    assert came["held_by_caller"] is (came["claim_active"] and caller == record.holder)
    assert came["recovery_required"] is (record.stage == "uncertain" or lapsed)
    assert ("claim" in came["allowed_next_actions"]) is (may_claim and record.generation < 16)
    assert ("transition" in came["allowed_next_actions"]) is came["held_by_caller"]
    assert came["state_ttl_seconds_remaining"] == (record.state_end_ms - T0) // 1000


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_problem_object(code: ErrorCode) -> None:
    """WC-ERR-1, WC-ERR-3: the table's status, retry and charged, and words for people."""
    came = problem(code)
    PROBLEM.validate(came)
    row = ERRORS[code]
    expected = {"status": row.http_statuses[0], "code": str(code), "retry": row.retry}
    if row.retry:
        expected["retry_after_seconds"] = RETRY_AFTER_SECONDS[code]
    assert {name: came[name] for name in came if name not in WORDING} == {
        **expected,
        "charged": False,
    }
    assert all(came[name].strip() for name in WORDING)


def test_every_code_is_worded_for_itself() -> None:
    """Nobody is told one thing for two reasons."""
    problems = [problem(code) for code in ErrorCode]
    for name in ("type", "title", "detail"):
        assert len({p[name] for p in problems}) == len(ErrorCode)


@pytest.mark.parametrize("status", ERRORS[ErrorCode.INVALID_INPUT].http_statuses)
def test_invalid_input_says_which_status_and_why(status: int) -> None:
    """Section 8: 400, 413 and 415, with a detail of their own."""
    came = problem(ErrorCode.INVALID_INPUT, http_status=status, detail="Because.")
    PROBLEM.validate(came)
    assert (came["status"], came["detail"]) == (status, "Because.")


@given(st.integers(0, 253_402_300_799_999))
def test_timestamps_are_the_model_s(time_ms: int) -> None:
    """WC-TIME-5, over all the years that it can write."""
    assert timestamp(time_ms) == format_timestamp(time_ms)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_785_000_000_000, "2026-07-25T17:20:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_timestamps_have_three_digits_of_a_second(time_ms: int, text: str) -> None:
    """WC-TIME-5."""
    assert timestamp(time_ms) == text
