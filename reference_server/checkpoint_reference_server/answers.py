"""Sections 7 and 8: what callers are told, derived from the record that a script reports.

Stated anew from the contract; the harness compares it with the model's own statement.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from checkpoint_lua import Reply, StoredRecord
from checkpoint_model.vocabulary import (
    CONTRACT_LIMITS,
    ERRORS,
    MINIMUM_ACTION_SAFETY_MARGIN_SECONDS,
    ErrorCode,
)
from checkpoint_reference_server.registry.record import ERROR_WORDS, problem_type

RETRY_AFTER_SECONDS: Final = {
    ErrorCode.TOOL_PAUSED: 5,
    ErrorCode.RATE_LIMITED: 1,
    ErrorCode.DEPENDENCY_UNAVAILABLE: 1,
}
"""WC-ERR-3: what each retryable error asks callers to wait."""

_SETTLED: Final = ("caller_verified", "failed", "compensated")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(time_ms: int) -> str:
    """WC-TIME-5, from milliseconds since the epoch."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=8192)  # the deadlines of an hour, and now
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[: -len("+00:00")]


def result(
    reply: Reply, record: StoredRecord, *, action: str, workflow_hash: str, caller: str | None
) -> dict[str, Any]:
    """The result of section 7. ``caller`` is the digest of the request's holder, if it has one."""
    now_ms = reply.now_ms
    outcome = reply.outcome
    settled = record.stage in _SETTLED
    active = not settled and now_ms < record.claim_end_ms
    held = active and caller == record.holder
    lapsed = not settled and not active
    claimable = lapsed or (record.stage == "failed" and record.retry_failed)
    if held:
        next_actions = ["transition", "status", "abandon"]
    elif claimable and record.generation < CONTRACT_LIMITS.generations:
        next_actions = ["claim", "status"]
    else:
        next_actions = ["status"]
    return {
        "action": action,
        "workflow_hash": workflow_hash,
        "observed_at": timestamp(now_ms),
        "stage": record.stage,
        "generation": record.generation,
        "acquired": outcome in ("acquired", "recovered"),
        "recovered": outcome == "recovered",
        "reused": outcome == "reused",
        "recovery_required": record.stage == "uncertain" or lapsed or outcome == "reused",
        "transitioned": outcome == "transitioned",
        "observation_replayed": outcome == "observation_replayed",
        "abandoned": outcome == "abandoned",
        "claim_active": active,
        "held_by_caller": held,
        "claim_expires_at": timestamp(record.claim_end_ms) if active else None,
        "state_expires_at": timestamp(record.state_end_ms),
        "claim_ttl_seconds_remaining": (record.claim_end_ms - now_ms) // 1000 if active else 0,
        "state_ttl_seconds_remaining": (record.state_end_ms - now_ms) // 1000,
        "evidence_type": record.evidence_type,
        "evidence_fingerprint_present": record.evidence_fingerprint_present,
        "retry_failed_allowed": record.retry_failed,
        "allowed_next_actions": next_actions,
        "minimum_action_safety_margin_seconds": MINIMUM_ACTION_SAFETY_MARGIN_SECONDS,
        "external_proof": False,
    }


def decided_problem(code: ErrorCode, reply: Reply) -> dict[str, Any]:
    """An error that section 6 decided, with the members of WC-ERR-2 and WC-ERR-8."""
    members = problem(code)
    members["observed_at"] = timestamp(reply.now_ms)
    record = reply.record
    if record is None:
        return members
    members["stage"] = record.stage
    members["generation"] = record.generation
    if record.stage not in _SETTLED and reply.now_ms < record.claim_end_ms:
        members["claim_expires_at"] = timestamp(record.claim_end_ms)
    if code is ErrorCode.CONFIGURATION_CONFLICT:
        members["configuration"] = {
            "claim_ttl_seconds": record.claim_ttl_seconds,
            "state_ttl_seconds": record.state_ttl_seconds,
            "retry_failed": record.retry_failed,
        }
    return members


def problem(
    code: ErrorCode,
    *,
    http_status: int | None = None,
    detail: str | None = None,
    retry_after_seconds: int | None = None,
) -> dict[str, Any]:
    """The problem object of section 8. A ``detail`` must quote nothing of the request."""
    row = ERRORS[code]
    words = ERROR_WORDS[code]
    members: dict[str, Any] = {
        "type": problem_type(code),
        "title": words.title,
        "status": http_status or row.http_statuses[0],
        "detail": detail or words.detail,
        "code": str(code),
        "retry": row.retry,
        "charged": False,
        "recovery": words.recovery,
    }
    if row.retry:
        members["retry_after_seconds"] = retry_after_seconds or RETRY_AFTER_SECONDS[code]
    return members
