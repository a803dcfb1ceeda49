"""Between the machine and JSON: timestamps, requests, the result and the problem members.

Section 7 and the record's part of section 8, as the members that an answer must have.
Nothing here decides; each member follows from the record, the caller and the step's time
(WC-VIEW-3).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from checkpoint_model.machine import (
    Abandon,
    Claim,
    Record,
    Request,
    Status,
    Step,
    Success,
    Transition,
)
from checkpoint_model.vocabulary import (
    CONTRACT_LIMITS,
    ERRORS,
    MINIMUM_ACTION_SAFETY_MARGIN_SECONDS,
    Action,
    ErrorCode,
    EvidenceType,
    Limits,
    Stage,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECONDS_KEPT: Final = 1024
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", re.ASCII
)

FLAGS: Final = (
    "acquired",
    "recovered",
    "reused",
    "transitioned",
    "observation_replayed",
    "abandoned",
)
"""The members of a result that say what this call did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Which record a request is about (section 2, *workflow identity*)."""

    namespace: str
    workflow_key: str


def format_timestamp(time_ms: int) -> str:
    """Milliseconds since the epoch as WC-TIME-5 writes them: ``2026-07-25T12:00:00.000Z``.

    Raises:
        OverflowError: the time is outside the years 1 … 9999.
    """
    second, millisecond = divmod(time_ms, 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


@lru_cache(maxsize=_SECONDS_KEPT)
def _second(second: int) -> str:
    """The second since the epoch as a timestamp begins; most of a run's are in a few of them."""
    return (_EPOCH + timedelta(seconds=second)).isoformat().removesuffix("+00:00")


def parse_timestamp(text: object) -> int:
    """The milliseconds since the epoch of a timestamp in exactly WC-TIME-5's form.

    Raises:
        ValueError: it is not a string, not of that form, or no date of the calendar.
    """
    if not isinstance(text, str) or not _TIMESTAMP.fullmatch(text):
        raise ValueError("not a timestamp of the form 2026-07-25T12:00:00.000Z")
    return (datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND


def parse_request(body: Mapping[str, Any]) -> tuple[Identity, Request]:
    """Read a request that matches ``request.schema.json``.

    Raises:
        KeyError, ValueError: the body does not match the schema. This reads, it does not
            validate: a body that the schema refuses may be read all the same.
    """
    identity = Identity(namespace=body["namespace"], workflow_key=body["workflow_key"])
    request: Request
    match Action(body["action"]):
        case Action.CLAIM:
            request = Claim(
                holder=body["holder"],
                claim_ttl_seconds=body["claim_ttl_seconds"],
                state_ttl_seconds=body["state_ttl_seconds"],
                retry_failed=body["retry_failed"],
            )
        case Action.TRANSITION:
            evidence_type = body.get("evidence_type")
            request = Transition(
                holder=body["holder"],
                generation=body["generation"],
                to_stage=Stage(body["to_stage"]),
                observation_key=body["observation_key"],
                evidence_type=None if evidence_type is None else EvidenceType(evidence_type),
                evidence_fingerprint=body.get("evidence_fingerprint"),
            )
        case Action.STATUS:
            request = Status(holder=body.get("holder"))
        case Action.ABANDON:
            request = Abandon(holder=body["holder"], generation=body["generation"])
    return identity, request


def format_request(identity: Identity, request: Request) -> dict[str, Any]:
    """The JSON body of a request; the inverse of :func:`parse_request`."""
    body: dict[str, Any] = {
        "action": str(request.action),
        "namespace": identity.namespace,
        "workflow_key": identity.workflow_key,
    }
    for member in type(request).__dataclass_fields__:
        value = getattr(request, member)
        if value is not None:
            body[member] = str(value) if isinstance(value, str) else value
    return body


def answer(step: Step, request: Request, *, limits: Limits = CONTRACT_LIMITS) -> dict[str, Any]:
    """The members that the answer to a request must have, by section 7 or section 8.

    Left out is what the machine does not know: ``workflow_hash`` of a result, and of a
    problem the free wording (``type``, ``title``, ``detail``, ``recovery``).
    """
    if isinstance(step.outcome, Success):
        # A success without a record would contradict section 6: no row makes one.
        assert step.record is not None
        return _result(step.outcome, step.record, request, step.observed_at_ms, limits)
    return _problem(step.outcome, step.record, step.observed_at_ms)


def _result(
    outcome: Success, record: Record, request: Request, now_ms: int, limits: Limits
) -> dict[str, Any]:
    active = record.claim_active(now_ms)
    return {
        "action": str(request.action),
        "observed_at": format_timestamp(now_ms),
        "stage": str(record.stage),
        "generation": record.generation,
        **{flag: flag in outcome.value for flag in FLAGS},
        "recovery_required": (
            record.stage is Stage.UNCERTAIN
            or record.lapsed(now_ms)
            or outcome is Success.REUSED  # the server cannot know whether it already acted
        ),
        "claim_active": active,
        "held_by_caller": record.held_by(request.holder, now_ms),
        "claim_expires_at": format_timestamp(record.claim_expires_at_ms) if active else None,
        "state_expires_at": format_timestamp(record.state_expires_at_ms),
        "claim_ttl_seconds_remaining": (
            (record.claim_expires_at_ms - now_ms) // 1000 if active else 0
        ),
        "state_ttl_seconds_remaining": (record.state_expires_at_ms - now_ms) // 1000,
        "evidence_type": None if record.evidence_type is None else str(record.evidence_type),
        "evidence_fingerprint_present": record.evidence_fingerprint_present,
        "retry_failed_allowed": record.retry_failed,
        "allowed_next_actions": _allowed_next_actions(record, request.holder, now_ms, limits),
        "minimum_action_safety_margin_seconds": MINIMUM_ACTION_SAFETY_MARGIN_SECONDS,
        "external_proof": False,
    }


def _allowed_next_actions(
    record: Record, caller: str | None, now_ms: int, limits: Limits
) -> list[str]:
    """WC-VIEW-2, in the order that it gives."""
    if record.held_by(caller, now_ms):
        return ["transition", "status", "abandon"]
    if (record.lapsed(now_ms) or record.may_be_retried) and record.generation < limits.generations:
        return ["claim", "status"]
    return ["status"]


def _problem(code: ErrorCode, record: Record | None, now_ms: int) -> dict[str, Any]:
    row = ERRORS[code]
    members: dict[str, Any] = {
        "status": row.http_statuses[0],
        "code": str(code),
        "retry": row.retry,
        "charged": False,
        "observed_at": format_timestamp(now_ms),
    }
    if record is not None and record.exists(now_ms):
        members["stage"] = str(record.stage)
        members["generation"] = record.generation
        if record.claim_active(now_ms):
            members["claim_expires_at"] = format_timestamp(record.claim_expires_at_ms)
        if code is ErrorCode.CONFIGURATION_CONFLICT:
            members["configuration"] = {
                "claim_ttl_seconds": record.claim_ttl_seconds,
                "state_ttl_seconds": record.state_ttl_seconds,
                "retry_failed": record.retry_failed,
            }
    return members
