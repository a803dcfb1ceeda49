"""Machines with one fault each, and the invariant that must catch it in which world.

Each is written around the real ``step`` or in place of one of its rows, so that everything else
stays right: what is caught is the fault, not a machine that does nothing properly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from checkpoint_model import (
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Limits,
    Record,
    Request,
    Stage,
    Status,
    Step,
    Success,
    Transition,
    step,
)
from checkpoint_model.exploration import StepFunction


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A faulty machine, where it shows, and what it must be caught by."""

    step: StepFunction
    world: str
    invariant: str
    length: int
    """Events of the shortest counterexample."""


def _claim_lives_on_at_its_deadline(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """``<=`` for ``<`` (WC-TIME-2)."""
    if record is None or record.claim_expires_at_ms != now_ms or record.abandoned:
        return step(record, request, now_ms, limits=limits)
    longer = replace(record, claim_expires_at_ms=now_ms + 1)
    done = step(longer, request, now_ms, limits=limits)
    return replace(done, record=record) if done.record is longer else done


def _record_lives_on_at_its_deadline(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """``<=`` for ``<`` at the record's own deadline (WC-TIME-2)."""
    if record is None or record.state_expires_at_ms != now_ms:
        return step(record, request, now_ms, limits=limits)
    longer = replace(record, state_expires_at_ms=now_ms + 1)
    done = step(longer, request, now_ms, limits=limits)
    return replace(done, record=record) if done.record is longer else done


def _generation_is_not_compared(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A holder acts on whatever generation there is (WC-TRANS-4, WC-ABANDON-2)."""
    if record is not None and isinstance(request, Abandon):
        request = replace(request, generation=record.generation)
    return step(record, request, now_ms, limits=limits)


def _older_generations_pass(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """``<=`` for ``==`` when generations are compared."""
    if (
        record is not None
        and isinstance(request, Abandon)
        and request.generation <= record.generation
    ):
        request = replace(request, generation=record.generation)
    return step(record, request, now_ms, limits=limits)


def _holder_is_not_compared(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """Whoever knows the generation may move it (WC-TRANS-6)."""
    if record is not None and isinstance(request, Transition):
        request = replace(request, holder=record.holder)
    return step(record, request, now_ms, limits=limits)


def _status_renews_the_claim(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """Looking keeps a claim alive (WC-STATUS-2, WC-TIME-3)."""
    done = step(record, request, now_ms, limits=limits)
    if isinstance(request, Status) and done.record and done.record.claim_active(now_ms):
        return replace(done, record=_renewed(done.record, now_ms))
    return done


def _reuse_renews_the_claim(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A claim sent again starts the time anew (WC-CLAIM-4)."""
    done = step(record, request, now_ms, limits=limits)
    if done.outcome is Success.REUSED and done.record:
        return replace(done, record=_renewed(done.record, now_ms))
    return done


def _renewed(record: Record, now_ms: int) -> Record:
    end_ms = min(now_ms + record.claim_ttl_seconds * 1000, record.state_expires_at_ms)
    return replace(record, claim_expires_at_ms=end_ms)


def _take_over_keeps_the_generation(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A new holder without a new number (WC-CLAIM-8)."""
    done = step(record, request, now_ms, limits=limits)
    if done.outcome is Success.RECOVERED and record and done.record:
        return replace(done, record=replace(done.record, generation=record.generation))
    return done


def _take_over_starts_claimed(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A lapse taken as proof that nothing was done (WC-CLAIM-8)."""
    done = step(record, request, now_ms, limits=limits)
    if done.outcome is Success.RECOVERED and done.record:
        return replace(done, record=replace(done.record, stage=Stage.CLAIMED))
    return done


def _every_failure_may_be_retried(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """``retry_failed`` is kept and never asked (WC-CLAIM-2)."""
    if record is None or not isinstance(request, Claim) or not record.configured_as(request):
        return step(record, request, now_ms, limits=limits)
    gate = replace(record, retry_failed=True)
    done = step(gate, replace(request, retry_failed=True), now_ms, limits=limits)
    if done.record is gate or done.record is None:
        return replace(done, record=record)
    return replace(done, record=replace(done.record, retry_failed=record.retry_failed))


def _refusal_records_its_key(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A key is used up by a request that was refused (WC-TRANS-7)."""
    done = step(record, request, now_ms, limits=limits)
    if (
        done.outcome is ErrorCode.INVALID_TRANSITION
        and isinstance(request, Transition)
        and done.record
    ):
        observations = (*done.record.observations, (request.observation_key, request.body))
        return replace(done, record=replace(done.record, observations=observations))
    return done


def _replay_after_the_guards(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """Whether a generation is stale is asked before whether the key is known (WC-TRANS-2)."""
    if (
        record is not None
        and record.exists(now_ms)
        and isinstance(request, Transition)
        and request.generation != record.generation
    ):
        stale = ErrorCode.STALE_GENERATION
        return Step(record=record, outcome=stale, rule="WC-TRANS-4", observed_at_ms=now_ms)
    return step(record, request, now_ms, limits=limits)


def _claim_outlives_the_record(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """The claim's end is not held to the record's (WC-TIME-3)."""
    done = step(record, request, now_ms, limits=limits)
    if done.outcome is Success.RECOVERED and done.record:
        end_ms = now_ms + done.record.claim_ttl_seconds * 1000
        return replace(done, record=replace(done.record, claim_expires_at_ms=end_ms))
    return done


def _clock_is_believed(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A clock that was set back dates a step before the last change (WC-TIME-4)."""
    if record is None or record.changed_at_ms <= now_ms:
        return step(record, request, now_ms, limits=limits)
    early = replace(record, changed_at_ms=now_ms)
    done = step(early, request, now_ms, limits=limits)
    return replace(done, record=record) if done.record is early else done


def _one_generation_too_many(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """``>`` for ``>=`` at the limit (WC-LIMIT-1)."""
    return step(record, request, now_ms, limits=replace(limits, generations=limits.generations + 1))


def _rejection_of_the_uncertain(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A rejection fails what is uncertain (WC-GRAPH-3): one cell of the evidence matrix."""
    done = step(record, request, now_ms, limits=limits)
    if (
        done.outcome is ErrorCode.INVALID_TRANSITION
        and record is not None
        and isinstance(request, Transition)
        and record.stage is Stage.UNCERTAIN
        and request.to_stage is Stage.FAILED
        and request.evidence_type is EvidenceType.PROVIDER_REJECTION
    ):
        absence = replace(request, evidence_type=EvidenceType.EXTERNAL_ABSENCE)
        right = step(record, absence, now_ms, limits=limits)
        assert right.record is not None
        after = replace(
            right.record,
            evidence_type=request.evidence_type,
            observations=(*record.observations, (request.observation_key, request.body)),
        )
        return replace(right, record=after)
    return done


def _new_generation_forgets(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """Observation keys live for one generation instead of one record (section 6)."""
    done = step(record, request, now_ms, limits=limits)
    if record and done.record and done.record.generation > record.generation:
        return replace(done, record=replace(done.record, observations=()))
    return done


def _retry_keeps_the_evidence(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """A new generation shows the evidence of the last (WC-VIEW-4)."""
    done = step(record, request, now_ms, limits=limits)
    if done.rule == "WC-CLAIM-7" and record and done.record:
        return replace(done, record=replace(done.record, evidence_type=record.evidence_type))
    return done


def _fingerprint_is_no_part_of_the_body(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """The same key with another fingerprint is taken for a repetition (WC-TRANS-3)."""
    done = step(record, request, now_ms, limits=limits)
    if (
        done.outcome is ErrorCode.OBSERVATION_CONFLICT
        and record is not None
        and isinstance(request, Transition)
        and dict(record.observations)[request.observation_key][:-1] == request.body[:-1]
    ):
        return replace(done, outcome=Success.OBSERVATION_REPLAYED, rule="WC-TRANS-2")
    return done


def _configuration_before_terminal(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """Two rows of the claim's table swapped (WC-CLAIM-2, WC-CLAIM-3)."""
    done = step(record, request, now_ms, limits=limits)
    if (
        done.rule == "WC-CLAIM-2"
        and record is not None
        and isinstance(request, Claim)
        and not record.configured_as(request)
    ):
        conflict = ErrorCode.CONFIGURATION_CONFLICT
        return replace(done, outcome=conflict, rule="WC-CLAIM-3")
    return done


def _settled_without_an_end(
    record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
) -> Step:
    """The claim runs on in a settled record (WC-TRANS-8)."""
    done = step(record, request, now_ms, limits=limits)
    if done.outcome is Success.TRANSITIONED and record and done.record:
        end_ms = record.claim_expires_at_ms
        return replace(done, record=replace(done.record, claim_expires_at_ms=end_ms))
    return done


FAULTS: Final[Mapping[str, Fault]] = {
    fault.step.__name__.removeprefix("_"): fault  # type: ignore[attr-defined]  # they are functions
    for fault in (
        Fault(
            step=_claim_lives_on_at_its_deadline,
            world="tiny",
            invariant="the-free-is-granted",
            length=3,
        ),
        Fault(
            step=_record_lives_on_at_its_deadline,
            world="tiny",
            invariant="generations-grow-by-one",
            length=3,
        ),
        Fault(
            step=_generation_is_not_compared,
            world="tiny",
            invariant="only-the-entitled-change",
            length=2,
        ),
        Fault(
            step=_older_generations_pass,
            world="tiny",
            invariant="only-the-entitled-change",
            length=4,
        ),
        Fault(
            step=_holder_is_not_compared,
            world="tiny",
            invariant="only-the-entitled-change",
            length=2,
        ),
        Fault(
            step=_status_renews_the_claim,
            world="tiny",
            invariant="observers-change-nothing",
            length=3,
        ),
        Fault(
            step=_reuse_renews_the_claim,
            world="tiny",
            invariant="observers-change-nothing",
            length=3,
        ),
        Fault(
            step=_take_over_keeps_the_generation,
            world="tiny",
            invariant="generations-grow-by-one",
            length=3,
        ),
        Fault(
            step=_take_over_starts_claimed,
            world="tiny",
            invariant="stages-move-along-the-graph",
            length=3,
        ),
        Fault(
            step=_every_failure_may_be_retried,
            world="pair",
            invariant="terminal-is-final",
            length=3,
        ),
        Fault(
            step=_refusal_records_its_key,
            world="tiny",
            invariant="refusals-change-nothing",
            length=2,
        ),
        Fault(
            step=_replay_after_the_guards,
            world="tiny",
            invariant="replays-are-exact",
            length=3,
        ),
        Fault(
            step=_claim_outlives_the_record,
            world="tiny",
            invariant="grants-are-whole",
            length=3,
        ),
        Fault(
            step=_clock_is_believed,
            world="clock",
            invariant="time-never-goes-back",
            length=2,
        ),
        Fault(
            step=_one_generation_too_many,
            world="last",
            invariant="generations-grow-by-one",
            length=3,
        ),
        Fault(
            step=_rejection_of_the_uncertain,
            world="everything",
            invariant="stages-move-along-the-graph",
            length=3,
        ),
        Fault(
            step=_new_generation_forgets,
            world="tiny",
            invariant="observations-only-grow",
            length=3,
        ),
        Fault(
            step=_retry_keeps_the_evidence,
            world="tiny",
            invariant="grants-are-whole",
            length=3,
        ),
        Fault(
            step=_fingerprint_is_no_part_of_the_body,
            world="fingerprints",
            invariant="replays-are-exact",
            length=3,
        ),
        Fault(
            step=_configuration_before_terminal,
            world="last",
            invariant="the-first-row-decides",
            length=3,
        ),
        Fault(
            step=_settled_without_an_end,
            world="tiny",
            invariant="deadlines-and-configuration-stay",
            length=2,
        ),
    )
}
