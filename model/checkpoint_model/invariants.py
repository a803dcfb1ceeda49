"""What must hold of the machine, by name: of states, of steps, and what must be reachable.

Rule 1: nothing here calls the machine. The invariants are a second reading of the contract, in
terms of the record's members and the clock, the graph included; whoever breaks a row or a cell in
:mod:`checkpoint_model.machine` cannot break the judge with it.
Rule 2: an invariant that only speaks of states is not enough. A machine that lets anybody move
any record satisfies every one of ``ALWAYS``: each record, looked at alone, is a record that
could be. So ``ON_STEPS`` says who may change what.
Rule 3: an invariant that nothing puts to the test proves nothing. So ``SOMETIMES`` lists what an
exploration must have met.

Times are whole milliseconds since the epoch. Predicates are total: they never raise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from checkpoint_model.machine import (
    Abandon,
    Claim,
    Outcome,
    Record,
    Request,
    Status,
    Step,
    Success,
    Transition,
)
from checkpoint_model.vocabulary import Action, ErrorCode, EvidenceType, Limits, Stage

StatePredicate: TypeAlias = Callable[[Record, int, Limits], bool]
"""Of a stored record, the time in milliseconds, and the limits of the world it lives in."""
StepPredicate: TypeAlias = Callable[[Record | None, Request, int, Step, Limits], bool]
"""Of the record before, the request, the clock's reading in milliseconds, the step, the limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Always:
    """True of every stored record at every time, also of one that expired and still lies there."""

    name: str
    rules: tuple[str, ...]
    sentence: str
    holds: StatePredicate


@dataclass(frozen=True, kw_only=True, slots=True)
class OnStep:
    """True of every step: before, request, clock, and what the step says and leaves behind."""

    name: str
    rules: tuple[str, ...]
    sentence: str
    holds: StepPredicate


@dataclass(frozen=True, kw_only=True, slots=True)
class Sometimes:
    """A goal that some step of an exploration must reach."""

    name: str
    rules: tuple[str, ...]
    sentence: str
    on: frozenset[str]
    """The decision rows whose steps can reach it; others need not be asked."""
    reached: StepPredicate


Invariant: TypeAlias = Always | OnStep


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionRow:
    """One row of section 6's tables: whose it is, how it may end, whether it has a ✎."""

    action: Action
    outcome: Outcome
    changes: bool = False


def _table(prefix: str, action: Action, *ends: Outcome, pens: set[int]) -> dict[str, DecisionRow]:
    return {
        f"WC-{prefix}-{number}": DecisionRow(action=action, outcome=end, changes=number in pens)
        for number, end in enumerate(ends, start=1)
    }


DECISION_ROWS: Final[Mapping[str, DecisionRow]] = MappingProxyType(
    {
        **_table(
            "CLAIM",
            Action.CLAIM,
            Success.ACQUIRED,
            ErrorCode.CHECKPOINT_TERMINAL,
            ErrorCode.CONFIGURATION_CONFLICT,
            Success.REUSED,
            ErrorCode.CHECKPOINT_NOT_HELD,
            ErrorCode.CHECKPOINT_LIMIT_REACHED,
            Success.ACQUIRED,
            Success.RECOVERED,
            pens={1, 7, 8},
        ),
        **_table(
            "TRANS",
            Action.TRANSITION,
            ErrorCode.CHECKPOINT_NOT_FOUND,
            Success.OBSERVATION_REPLAYED,
            ErrorCode.OBSERVATION_CONFLICT,
            ErrorCode.STALE_GENERATION,
            ErrorCode.CHECKPOINT_TERMINAL,
            ErrorCode.CHECKPOINT_NOT_HELD,
            ErrorCode.INVALID_TRANSITION,
            Success.TRANSITIONED,
            pens={8},
        ),
        **_table(
            "ABANDON",
            Action.ABANDON,
            ErrorCode.CHECKPOINT_NOT_FOUND,
            ErrorCode.STALE_GENERATION,
            ErrorCode.CHECKPOINT_TERMINAL,
            Success.ABANDONED,
            ErrorCode.CHECKPOINT_NOT_HELD,
            Success.ABANDONED,
            pens={6},
        ),
        **_table(
            "STATUS",
            Action.STATUS,
            ErrorCode.CHECKPOINT_NOT_FOUND,
            Success.REPORTED,
            pens=set(),
        ),
    }
)
"""Section 6's twenty-four rows."""


# -- Section 2 and WC-TIME-2, said once more and apart from the machine -------------------

_CLAIMED: Final = Stage.CLAIMED
_UNCERTAIN: Final = Stage.UNCERTAIN
_FAILED: Final = Stage.FAILED
_ACQUIRED: Final = Success.ACQUIRED
_RECOVERED: Final = Success.RECOVERED
_REUSED: Final = Success.REUSED
_TRANSITIONED: Final = Success.TRANSITIONED
_REPLAYED: Final = Success.OBSERVATION_REPLAYED
_ABANDONED: Final = Success.ABANDONED
_REPORTED: Final = Success.REPORTED
_NOT_FOUND: Final = ErrorCode.CHECKPOINT_NOT_FOUND
_NOT_HELD: Final = ErrorCode.CHECKPOINT_NOT_HELD
_TERMINAL: Final = ErrorCode.CHECKPOINT_TERMINAL
_STALE: Final = ErrorCode.STALE_GENERATION
_INVALID: Final = ErrorCode.INVALID_TRANSITION
_OBSERVED: Final = ErrorCode.OBSERVATION_CONFLICT
_CONFLICT: Final = ErrorCode.CONFIGURATION_CONFLICT
_LIMIT: Final = ErrorCode.CHECKPOINT_LIMIT_REACHED
_SECOND_MS: Final = 1000


def _live(record: Record | None, at_ms: int) -> Record | None:
    """The record if it exists at that time; at its deadline it is gone."""
    return record if record is not None and at_ms < record.state_expires_at_ms else None


def _open(record: Record) -> bool:
    return record.stage is _CLAIMED or record.stage is _UNCERTAIN


def _active(record: Record, at_ms: int) -> bool:
    return _open(record) and at_ms < record.claim_expires_at_ms


def _lapsed(record: Record, at_ms: int) -> bool:
    return _open(record) and at_ms >= record.claim_expires_at_ms


def _retryable(record: Record) -> bool:
    return record.stage is _FAILED and record.retry_failed


def _terminal(record: Record) -> bool:
    return not _open(record) and not _retryable(record)


def _same_configuration(record: Record, claim: Claim) -> bool:
    return (
        record.claim_ttl_seconds == claim.claim_ttl_seconds
        and record.state_ttl_seconds == claim.state_ttl_seconds
        and record.retry_failed is claim.retry_failed
    )


_GRAPH: Final[Mapping[Stage, Mapping[Stage, tuple[EvidenceType | None, ...]]]] = MappingProxyType(
    {
        Stage.CLAIMED: {
            Stage.UNCERTAIN: (None,),
            Stage.CALLER_VERIFIED: (
                EvidenceType.PROVIDER_RECEIPT,
                EvidenceType.EXTERNAL_READ,
                EvidenceType.OPERATOR_ATTESTATION,
            ),
            Stage.FAILED: (
                EvidenceType.NOT_ATTEMPTED,
                EvidenceType.PROVIDER_REJECTION,
                EvidenceType.EXTERNAL_ABSENCE,
                EvidenceType.OPERATOR_ATTESTATION,
            ),
            Stage.COMPENSATED: (
                EvidenceType.COMPENSATION_RECEIPT,
                EvidenceType.OPERATOR_ATTESTATION,
            ),
        },
        Stage.UNCERTAIN: {
            Stage.CALLER_VERIFIED: (
                EvidenceType.PROVIDER_RECEIPT,
                EvidenceType.EXTERNAL_READ,
                EvidenceType.OPERATOR_ATTESTATION,
            ),
            Stage.FAILED: (EvidenceType.EXTERNAL_ABSENCE, EvidenceType.OPERATOR_ATTESTATION),
            Stage.COMPENSATED: (
                EvidenceType.COMPENSATION_RECEIPT,
                EvidenceType.OPERATOR_ATTESTATION,
            ),
        },
    }
)
"""WC-GRAPH-1 … WC-GRAPH-3 a second time: one cell of the machine's ``MOVES`` exchanged for another
leaves every count of states as it was, so nothing but a second copy would notice."""


def _in_graph(source: Stage, target: Stage, evidence: EvidenceType | None) -> bool:
    moves = _GRAPH.get(source)
    return moves is not None and evidence in moves.get(target, ())


def _applied(record: Record, key: str) -> object:
    for known, body in record.observations:
        if known == key:
            return body
    return None


def _changed(before: Record | None, done: Step) -> bool:
    return done.record is not before and done.record != before


# -- Always -------------------------------------------------------------------------------


def _generation_in_bounds(record: Record, _: int, limits: Limits) -> bool:
    return 1 <= record.generation <= limits.generations


def _observations_in_bounds(record: Record, _: int, limits: Limits) -> bool:
    moves: dict[int, int] = {}
    for _key, body in record.observations:
        moves[body[1]] = moves.get(body[1], 0) + 1
    return (
        len(record.observations) <= limits.observations
        and all(1 <= generation <= record.generation for generation in moves)
        and all(count <= 2 for count in moves.values())
    )


def _keys_are_unique(record: Record, _: int, __: Limits) -> bool:
    return len({key for key, _body in record.observations}) == len(record.observations)


def _claim_ends_with_the_record(record: Record, _: int, __: Limits) -> bool:
    return record.claim_expires_at_ms <= record.state_expires_at_ms


def _lifetimes_in_bounds(record: Record, now_ms: int, _: Limits) -> bool:
    at_ms = max(now_ms, record.changed_at_ms)
    return (
        record.claim_expires_at_ms <= at_ms + record.claim_ttl_seconds * _SECOND_MS
        and record.state_expires_at_ms <= at_ms + record.state_ttl_seconds * _SECOND_MS
    )


def _settled_is_unclaimed(record: Record, now_ms: int, _: Limits) -> bool:
    at_ms = max(now_ms, record.changed_at_ms)
    return _open(record) or record.claim_expires_at_ms <= at_ms


def _abandoned_is_lapsed(record: Record, now_ms: int, _: Limits) -> bool:
    at_ms = max(now_ms, record.changed_at_ms)
    return not record.abandoned or _lapsed(record, at_ms)


def _evidence_fits_the_stage(record: Record, _: int, __: Limits) -> bool:
    if _open(record):
        return record.evidence_type is None and not record.evidence_fingerprint_present
    return any(
        _in_graph(source, record.stage, record.evidence_type) for source in (_CLAIMED, _UNCERTAIN)
    )


def _observations_tell_the_stage(record: Record, _: int, __: Limits) -> bool:
    current = [body for _key, body in record.observations if body[1] == record.generation]
    if not current:
        return _open(record)
    *_path, (_holder, _generation, stage, evidence, fingerprint) = current
    return (
        stage is record.stage
        and evidence is record.evidence_type
        and (fingerprint is not None) is record.evidence_fingerprint_present
    )


def _observations_walk_the_graph(record: Record, _: int, __: Limits) -> bool:
    generation, stage = 0, None
    for _key, (_holder, of, to, evidence, _fingerprint) in record.observations:
        if of < generation:
            return False
        # The first move of a generation starts where the claim left it: `claimed` or `uncertain`.
        starts = (stage,) if of == generation and stage is not None else (_CLAIMED, _UNCERTAIN)
        if not any(_in_graph(start, to, evidence) for start in starts):
            return False
        generation, stage = of, to
    return True


def _one_holder(record: Record, _: int, __: Limits) -> bool:
    holders: dict[int, str] = {record.generation: record.holder}
    return all(
        holders.setdefault(generation, holder) == holder
        for _key, (holder, generation, *_rest) in record.observations
    )


def _superseded_were_open_or_retried(record: Record, _: int, __: Limits) -> bool:
    return all(
        stage is _UNCERTAIN or (stage is _FAILED and record.retry_failed)
        for _key, (_holder, generation, stage, *_rest) in record.observations
        if generation < record.generation
    )


ALWAYS: Final = (
    Always(
        name="generation-in-bounds",
        rules=("WC-LIMIT-1",),
        sentence="A record's generation is at least 1 and at most the limit.",
        holds=_generation_in_bounds,
    ),
    Always(
        name="observations-in-bounds",
        rules=("WC-LIMIT-2",),
        sentence="A record keeps no more observations than the limit, and two of any generation.",
        holds=_observations_in_bounds,
    ),
    Always(
        name="keys-are-unique",
        rules=("WC-TRANS-2", "WC-TRANS-3"),
        sentence="No observation key is recorded twice in one record.",
        holds=_keys_are_unique,
    ),
    Always(
        name="claim-ends-with-the-record",
        rules=("WC-TIME-3",),
        sentence="A claim's deadline is never past the record's.",
        holds=_claim_ends_with_the_record,
    ),
    Always(
        name="lifetimes-in-bounds",
        rules=("WC-TIME-3", "WC-PRIV-3"),
        sentence="Neither claim nor record has more time left than the record was made with.",
        holds=_lifetimes_in_bounds,
    ),
    Always(
        name="settled-is-unclaimed",
        rules=("WC-TRANS-8",),
        sentence="In a settled stage the claim has ended.",
        holds=_settled_is_unclaimed,
    ),
    Always(
        name="abandoned-is-lapsed",
        rules=("WC-ABANDON-6",),
        sentence="An abandoned generation is lapsed: open, and its claim over.",
        holds=_abandoned_is_lapsed,
    ),
    Always(
        name="evidence-fits-the-stage",
        rules=("WC-GRAPH-2", "WC-GRAPH-4", "WC-VIEW-4"),
        sentence="A settled stage has evidence that some move into it accepts; an open one none.",
        holds=_evidence_fits_the_stage,
    ),
    Always(
        name="observations-tell-the-stage",
        rules=("WC-TRANS-8", "WC-PRIV-2"),
        sentence="The current generation's last observation is what the record shows.",
        holds=_observations_tell_the_stage,
    ),
    Always(
        name="observations-walk-the-graph",
        rules=("WC-GRAPH-1", "WC-GRAPH-3"),
        sentence="The observations of each generation follow one another by the graph.",
        holds=_observations_walk_the_graph,
    ),
    Always(
        name="one-holder",
        rules=("WC-TRANS-6", "WC-CONC-2"),
        sentence="A generation has one holder: nobody else has observed anything in it.",
        holds=_one_holder,
    ),
    Always(
        name="superseded-were-open-or-retried",
        rules=("WC-CLAIM-2", "WC-CLAIM-7"),
        sentence="No generation was followed by another after a terminal stage.",
        holds=_superseded_were_open_or_retried,
    ),
)
"""What holds of every record at every time."""


# -- On steps -----------------------------------------------------------------------------


def _time_never_goes_back(
    before: Record | None, _: Request, now_ms: int, done: Step, __: Limits
) -> bool:
    if before is None or now_ms >= before.changed_at_ms:
        return done.observed_at_ms == now_ms
    return done.observed_at_ms == before.changed_at_ms


def _changes_are_dated(before: Record | None, _: Request, __: int, done: Step, ___: Limits) -> bool:
    if not _changed(before, done):
        return True
    return done.record is not None and done.record.changed_at_ms == done.observed_at_ms


def _refusals_change_nothing(
    before: Record | None, _: Request, __: int, done: Step, ___: Limits
) -> bool:
    return isinstance(done.outcome, Success) or not _changed(before, done)


def _observers_change_nothing(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    outcome = done.outcome
    observes = (
        outcome is _REUSED
        or outcome is _REPLAYED
        or outcome is _REPORTED
        or isinstance(request, Status)
    )
    return not observes or not _changed(before, done)


def _successes_are_what_they_say(
    before: Record | None, _: Request, __: int, done: Step, ___: Limits
) -> bool:
    outcome, after = done.outcome, done.record
    if not isinstance(outcome, Success):
        return True
    if after is None or done.observed_at_ms >= after.state_expires_at_ms:
        return False
    if outcome is _ACQUIRED or outcome is _RECOVERED or outcome is _TRANSITIONED:
        return _changed(before, done)
    return outcome is not _ABANDONED or (after.abandoned and _lapsed(after, done.observed_at_ms))


def _only_the_entitled_change(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    if not _changed(before, done):
        return True
    at_ms = done.observed_at_ms
    existing = _live(before, at_ms)
    if isinstance(request, Claim):
        return existing is None or _lapsed(existing, at_ms) or _retryable(existing)
    if existing is None or isinstance(request, Status):
        return False
    return (
        request.holder == existing.holder
        and request.generation == existing.generation
        and _active(existing, at_ms)
    )


def _terminal_is_final(before: Record | None, _: Request, __: int, done: Step, ___: Limits) -> bool:
    existing = _live(before, done.observed_at_ms)
    return existing is None or not _terminal(existing) or not _changed(before, done)


def _generations_grow_by_one(
    before: Record | None, request: Request, _: int, done: Step, limits: Limits
) -> bool:
    after = done.record
    granted = done.outcome is _ACQUIRED or done.outcome is _RECOVERED
    if after is before and not granted:
        return True
    existing = _live(before, done.observed_at_ms)
    if after is None:
        return existing is None
    if granted and not isinstance(request, Claim):
        return False
    if existing is None:
        return after.generation == 1 if granted else not _changed(before, done)
    if granted:
        return after.generation == existing.generation + 1 <= limits.generations
    return after.generation == existing.generation


def _stages_move_along_the_graph(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    after = done.record
    if after is before or after is None:
        return True
    existing = _live(before, done.observed_at_ms)
    if existing is None:
        return after.stage is _CLAIMED or not _changed(before, done)
    if after.generation != existing.generation:
        return after.stage is (_CLAIMED if existing.stage is _FAILED else _UNCERTAIN)
    if isinstance(request, Transition) and done.outcome is _TRANSITIONED:
        return after.stage is request.to_stage and _in_graph(
            existing.stage, request.to_stage, request.evidence_type
        )
    return after.stage is existing.stage


def _deadlines_and_configuration_stay(
    before: Record | None, _: Request, __: int, done: Step, ___: Limits
) -> bool:
    after = done.record
    existing = _live(before, done.observed_at_ms)
    if after is existing or existing is None:
        return True
    if (
        after is None
        or after.state_expires_at_ms != existing.state_expires_at_ms
        or after.claim_ttl_seconds != existing.claim_ttl_seconds
        or after.state_ttl_seconds != existing.state_ttl_seconds
        or after.retry_failed is not existing.retry_failed
    ):
        return False
    if after.generation != existing.generation:
        return True
    # Within a generation the claim's end moves only by being cut short, here and now.
    cut = after.abandoned or not _open(after)
    expected_ms = done.observed_at_ms if cut else existing.claim_expires_at_ms
    return after.claim_expires_at_ms == expected_ms


def _holders_stay(before: Record | None, request: Request, _: int, done: Step, __: Limits) -> bool:
    after = done.record
    if after is before or after is None:
        return True
    existing = _live(before, done.observed_at_ms)
    if existing is not None and after.generation == existing.generation:
        return after.holder == existing.holder
    return not _changed(before, done) or after.holder == request.holder


def _grants_are_whole(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    after, at_ms = done.record, done.observed_at_ms
    if done.outcome is not _ACQUIRED and done.outcome is not _RECOVERED:
        return True
    if after is None or not isinstance(request, Claim):
        return False
    existing = _live(before, at_ms)
    end_ms = (
        at_ms + request.state_ttl_seconds * _SECOND_MS
        if existing is None
        else existing.state_expires_at_ms
    )
    return (
        after.holder == request.holder
        and _same_configuration(after, request)
        and after.state_expires_at_ms == end_ms
        and after.claim_expires_at_ms == min(at_ms + request.claim_ttl_seconds * _SECOND_MS, end_ms)
        and _active(after, at_ms)
        and not after.abandoned
        and after.evidence_type is None
        and not after.evidence_fingerprint_present
    )


def _observations_only_grow(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    after = done.record
    if after is before:
        return done.outcome is not _TRANSITIONED
    existing = _live(before, done.observed_at_ms)
    if after is None:
        return existing is None
    if existing is None:
        return after.observations == () or not _changed(before, done)
    if done.outcome is not _TRANSITIONED:
        return after.observations == existing.observations
    return (
        isinstance(request, Transition)
        and after.observations[:-1] == existing.observations
        and after.observations[-1:] == ((request.observation_key, request.body),)
        and after.evidence_type is request.evidence_type
        and after.evidence_fingerprint_present is (request.evidence_fingerprint is not None)
    )


def _replays_are_exact(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    outcome = done.outcome
    if not isinstance(request, Transition):
        return outcome is not _REPLAYED and outcome is not _OBSERVED
    existing = _live(before, done.observed_at_ms)
    applied = None if existing is None else _applied(existing, request.observation_key)
    if applied is None:
        return outcome is not _REPLAYED and outcome is not _OBSERVED
    return outcome is (_REPLAYED if applied == request.body else _OBSERVED)


def _refusals_are_true(
    before: Record | None, request: Request, _: int, done: Step, limits: Limits
) -> bool:
    code, at_ms = done.outcome, done.observed_at_ms
    existing = _live(before, at_ms)
    if existing is None or code is _NOT_FOUND:
        # Nothing remembered: a claim is granted, everything else finds nothing.
        return existing is None and (
            isinstance(request, Claim) if code is _ACQUIRED else code is _NOT_FOUND
        )
    if isinstance(code, Success):
        return True
    if code is _TERMINAL:
        return _terminal(existing)
    if isinstance(request, Claim):
        if code is _CONFLICT:
            return not _same_configuration(existing, request)
        if code is _NOT_HELD:
            return _active(existing, at_ms) and request.holder != existing.holder
        return (
            code is _LIMIT
            and existing.generation == limits.generations
            and not _active(existing, at_ms)
        )
    if isinstance(request, Status):
        return False
    if code is _STALE:
        return request.generation != existing.generation
    if code is _NOT_HELD:
        return request.holder != existing.holder or not _active(existing, at_ms)
    if isinstance(request, Abandon):
        return False
    if code is _INVALID:
        return not _in_graph(existing.stage, request.to_stage, request.evidence_type)
    return code is _OBSERVED


def _the_free_is_granted(
    before: Record | None, request: Request, _: int, done: Step, limits: Limits
) -> bool:
    if not isinstance(request, Claim):
        return True
    at_ms = done.observed_at_ms
    existing = _live(before, at_ms)
    if existing is None:
        return done.outcome is _ACQUIRED
    if existing.generation == limits.generations or not _same_configuration(existing, request):
        return done.outcome is not _ACQUIRED and done.outcome is not _RECOVERED
    if _lapsed(existing, at_ms):
        return done.outcome is _RECOVERED
    return not _retryable(existing) or done.outcome is _ACQUIRED


def _reuse_is_true(before: Record | None, request: Request, _: int, done: Step, __: Limits) -> bool:
    at_ms = done.observed_at_ms
    existing = _live(before, at_ms)
    holds = (
        existing is not None
        and isinstance(request, Claim)
        and request.holder == existing.holder
        and _active(existing, at_ms)
        and _same_configuration(existing, request)
    )
    return (done.outcome is _REUSED) is holds


def _the_holder_can_settle(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    if not isinstance(request, Transition):
        return done.outcome is not _TRANSITIONED
    at_ms = done.observed_at_ms
    existing = _live(before, at_ms)
    entitled = (
        existing is not None
        and request.holder == existing.holder
        and request.generation == existing.generation
        and _active(existing, at_ms)
        and _in_graph(existing.stage, request.to_stage, request.evidence_type)
        and _applied(existing, request.observation_key) is None
    )
    return (done.outcome is _TRANSITIONED) is entitled


def _the_holder_can_abandon(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    if not isinstance(request, Abandon):
        return done.outcome is not _ABANDONED
    at_ms = done.observed_at_ms
    existing = _live(before, at_ms)
    entitled = (
        existing is not None
        and request.holder == existing.holder
        and request.generation == existing.generation
        and (_active(existing, at_ms) or (existing.abandoned and _lapsed(existing, at_ms)))
    )
    return (done.outcome is _ABANDONED) is entitled


def _everyone_may_look(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    looks = isinstance(request, Status) and _live(before, done.observed_at_ms) is not None
    return (done.outcome is _REPORTED) is looks


def _rows_are_as_written(
    before: Record | None, request: Request, _: int, done: Step, __: Limits
) -> bool:
    row = DECISION_ROWS.get(done.rule)
    return (
        row is not None
        and row.outcome is done.outcome
        and row.action is request.action
        and row.changes is _changed(before, done)
    )


_Condition: TypeAlias = Callable[[Record, int, Limits, Request], bool]


def _no_claim(record: Record, at_ms: int, request: Request) -> bool:
    """WC-TRANS-6 and WC-ABANDON-5: not the holder, or no active claim."""
    return request.holder != record.holder or not _active(record, at_ms)


def _other_generation(record: Record, _: int, __: Limits, request: Request) -> bool:
    return isinstance(request, Transition | Abandon) and request.generation != record.generation


# The column *when* of section 6, for a record that exists; the first row of each table is
# the one for a record that does not.
_WHEN: Final[Mapping[type[Request], tuple[tuple[str, _Condition], ...]]] = MappingProxyType(
    {
        Claim: (
            ("WC-CLAIM-2", lambda b, _t, _l, _r: _terminal(b)),
            (
                "WC-CLAIM-3",
                lambda b, _t, _l, r: isinstance(r, Claim) and not _same_configuration(b, r),
            ),
            ("WC-CLAIM-4", lambda b, t, _l, r: _active(b, t) and r.holder == b.holder),
            ("WC-CLAIM-5", lambda b, t, _l, r: _active(b, t) and r.holder != b.holder),
            ("WC-CLAIM-6", lambda b, _t, limits, _r: b.generation == limits.generations),
            ("WC-CLAIM-7", lambda b, _t, _l, _r: b.stage is _FAILED),
            ("WC-CLAIM-8", lambda b, t, _l, _r: _lapsed(b, t)),
        ),
        Transition: (
            (
                "WC-TRANS-2",
                lambda b, _t, _l, r: (
                    isinstance(r, Transition) and _applied(b, r.observation_key) == r.body
                ),
            ),
            (
                "WC-TRANS-3",
                lambda b, _t, _l, r: (
                    isinstance(r, Transition) and _applied(b, r.observation_key) is not None
                ),
            ),
            ("WC-TRANS-4", _other_generation),
            ("WC-TRANS-5", lambda b, _t, _l, _r: _terminal(b)),
            ("WC-TRANS-6", lambda b, t, _l, r: _no_claim(b, t, r)),
            (
                "WC-TRANS-7",
                lambda b, _t, _l, r: (
                    isinstance(r, Transition)
                    and not _in_graph(b.stage, r.to_stage, r.evidence_type)
                ),
            ),
            ("WC-TRANS-8", lambda _b, _t, _l, _r: True),
        ),
        Abandon: (
            ("WC-ABANDON-2", _other_generation),
            ("WC-ABANDON-3", lambda b, _t, _l, _r: _terminal(b)),
            (
                "WC-ABANDON-4",
                lambda b, t, _l, r: b.abandoned and _lapsed(b, t) and r.holder == b.holder,
            ),
            ("WC-ABANDON-5", lambda b, t, _l, r: _no_claim(b, t, r)),
            ("WC-ABANDON-6", lambda _b, _t, _l, _r: True),
        ),
        Status: (("WC-STATUS-2", lambda _b, _t, _l, _r: True),),
    }
)
_WITHOUT_RECORD: Final[Mapping[type[Request], str]] = MappingProxyType(
    {
        Claim: "WC-CLAIM-1",
        Transition: "WC-TRANS-1",
        Abandon: "WC-ABANDON-1",
        Status: "WC-STATUS-1",
    }
)


def _the_first_row_decides(
    before: Record | None, request: Request, _: int, done: Step, limits: Limits
) -> bool:
    at_ms, rule = done.observed_at_ms, done.rule
    existing = _live(before, at_ms)
    if existing is None:
        return rule == _WITHOUT_RECORD[type(request)]
    for row, applies in _WHEN[type(request)]:
        if applies(existing, at_ms, limits, request):
            return rule == row
    return False


ON_STEPS: Final = (
    OnStep(
        name="refusals-change-nothing",
        rules=("WC-IN-6", "WC-CLAIM-2", "WC-TRANS-7", "WC-ABANDON-5"),
        sentence="A refused request changes nothing.",
        holds=_refusals_change_nothing,
    ),
    OnStep(
        name="observers-change-nothing",
        rules=("WC-CLAIM-4", "WC-TRANS-2", "WC-STATUS-2"),
        sentence="A reuse, a replay and a status change nothing, no deadline included.",
        holds=_observers_change_nothing,
    ),
    OnStep(
        name="terminal-is-final",
        rules=("WC-CLAIM-2", "WC-TRANS-5", "WC-ABANDON-3"),
        sentence="While it exists, a record in a terminal stage never changes again.",
        holds=_terminal_is_final,
    ),
    OnStep(
        name="only-the-entitled-change",
        rules=("WC-CLAIM-5", "WC-TRANS-4", "WC-TRANS-6", "WC-ABANDON-2", "WC-ABANDON-5"),
        sentence=(
            "Only the holder of the active claim, naming its generation, or a claimer of an "
            "absent, lapsed or retryable record changes anything."
        ),
        holds=_only_the_entitled_change,
    ),
    OnStep(
        name="generations-grow-by-one",
        rules=("WC-CLAIM-1", "WC-CLAIM-7", "WC-CLAIM-8", "WC-LIMIT-1"),
        sentence="A generation grows by exactly one, by an acquired claim, and by nothing else.",
        holds=_generations_grow_by_one,
    ),
    OnStep(
        name="stages-move-along-the-graph",
        rules=("WC-GRAPH-1", "WC-GRAPH-2", "WC-GRAPH-3", "WC-CLAIM-7", "WC-CLAIM-8"),
        sentence=(
            "Within a generation the stage moves only by the graph and with its evidence; a retry "
            "starts claimed, a recovery uncertain."
        ),
        holds=_stages_move_along_the_graph,
    ),
    OnStep(
        name="deadlines-and-configuration-stay",
        rules=("WC-TIME-3", "WC-CLAIM-1", "WC-CLAIM-4"),
        sentence=(
            "Within a record neither its deadline nor its configuration changes, and within a "
            "generation the claim's deadline only by being cut to the present."
        ),
        holds=_deadlines_and_configuration_stay,
    ),
    OnStep(
        name="holders-stay",
        rules=("WC-CLAIM-1", "WC-CLAIM-7", "WC-CLAIM-8"),
        sentence="A generation keeps the holder whose claim made it.",
        holds=_holders_stay,
    ),
    OnStep(
        name="grants-are-whole",
        rules=("WC-CLAIM-1", "WC-TIME-3", "WC-VIEW-4"),
        sentence=(
            "A granted claim is its caller's, active, of the length asked for or to the record's "
            "end, and starts without evidence."
        ),
        holds=_grants_are_whole,
    ),
    OnStep(
        name="observations-only-grow",
        rules=("WC-TRANS-8", "WC-PRIV-2"),
        sentence="An applied transition records exactly its observation; nothing is forgotten.",
        holds=_observations_only_grow,
    ),
    OnStep(
        name="time-never-goes-back",
        rules=("WC-TIME-1", "WC-TIME-4"),
        sentence="A step is at the clock's time, or at the last change where the clock reads less.",
        holds=_time_never_goes_back,
    ),
    OnStep(
        name="changes-are-dated",
        rules=("WC-TIME-4", "WC-PRIV-2"),
        sentence="A change leaves its own time behind.",
        holds=_changes_are_dated,
    ),
    OnStep(
        name="successes-are-what-they-say",
        rules=("WC-CLAIM-1", "WC-TRANS-8", "WC-ABANDON-4", "WC-ABANDON-6"),
        sentence="What is called acquired, transitioned or abandoned is so, in a live record.",
        holds=_successes_are_what_they_say,
    ),
    OnStep(
        name="replays-are-exact",
        rules=("WC-TRANS-2", "WC-TRANS-3"),
        sentence=(
            "A recorded observation key is answered by replay to the same body and by conflict to "
            "another, before anything else is asked."
        ),
        holds=_replays_are_exact,
    ),
    OnStep(
        name="refusals-are-true",
        rules=("WC-CLAIM-2", "WC-CLAIM-3", "WC-CLAIM-5", "WC-CLAIM-6", "WC-TRANS-1", "WC-TRANS-4"),
        sentence="The reason that a refusal gives is the case.",
        holds=_refusals_are_true,
    ),
    OnStep(
        name="the-free-is-granted",
        rules=("WC-CLAIM-1", "WC-CLAIM-6", "WC-CLAIM-7", "WC-CLAIM-8", "WC-TIME-2"),
        sentence=(
            "A claim that fits is granted on an absent record, and on a lapsed or retryable one "
            "below the last generation, from the deadline itself on."
        ),
        holds=_the_free_is_granted,
    ),
    OnStep(
        name="reuse-is-true",
        rules=("WC-CLAIM-4", "WC-TIME-2"),
        sentence="A claim is called reused exactly when its caller holds the active claim.",
        holds=_reuse_is_true,
    ),
    OnStep(
        name="the-holder-can-settle",
        rules=("WC-TRANS-8", "WC-LIMIT-2"),
        sentence=(
            "While its claim is active, a granted generation takes every move of the graph under a "
            "fresh key from its holder, and from nobody else: so it can always be settled."
        ),
        holds=_the_holder_can_settle,
    ),
    OnStep(
        name="the-holder-can-abandon",
        rules=("WC-ABANDON-4", "WC-ABANDON-6"),
        sentence="The holder can give up its active claim, and say so again, and nobody else can.",
        holds=_the_holder_can_abandon,
    ),
    OnStep(
        name="everyone-may-look",
        rules=("WC-STATUS-1", "WC-STATUS-2"),
        sentence="A record that exists is reported to anybody, one that does not to nobody.",
        holds=_everyone_may_look,
    ),
    OnStep(
        name="rows-are-as-written",
        rules=tuple(DECISION_ROWS),
        sentence="The row that decided is of this action, has this outcome, and keeps to its ✎.",
        holds=_rows_are_as_written,
    ),
    OnStep(
        name="the-first-row-decides",
        rules=tuple(DECISION_ROWS),
        sentence="Of the rows whose condition holds, the first of the table decides.",
        holds=_the_first_row_decides,
    ),
)
"""What holds of every step. The first that a step breaks is the one that is reported."""


# -- Sometimes ----------------------------------------------------------------------------


def _rows_of(outcome: Outcome) -> frozenset[str]:
    return frozenset(rule for rule, row in DECISION_ROWS.items() if row.outcome is outcome)


_GRANTS: Final = frozenset({"WC-CLAIM-1", "WC-CLAIM-7", "WC-CLAIM-8"})
_CHANGES: Final = frozenset(rule for rule, row in DECISION_ROWS.items() if row.changes)


def _whenever(_: Record | None, __: Request, ___: int, ____: Step, _____: Limits) -> bool:
    return True


def _leaves(stage: Stage) -> StepPredicate:
    return lambda _b, _r, _n, done, _l: done.record is not None and done.record.stage is stage


def _crosses(source: Stage, target: Stage, evidence: EvidenceType | None) -> StepPredicate:
    return lambda before, request, _n, _d, _l: (
        before is not None
        and before.stage is source
        and isinstance(request, Transition)
        and request.to_stage is target
        and request.evidence_type is evidence
    )


def _differs_in(member: str) -> StepPredicate:
    members = {"claim_ttl_seconds", "state_ttl_seconds", "retry_failed"}
    return lambda before, request, _n, _d, _l: (
        before is not None
        and {m for m in members if getattr(before, m) != getattr(request, m)} == {member}
    )


def _story(
    name: str, rules: tuple[str, ...], sentence: str, on: frozenset[str], reached: StepPredicate
) -> Sometimes:
    return Sometimes(name=name, rules=rules, sentence=sentence, on=on, reached=reached)


SOMETIMES: Final = (
    *(
        Sometimes(
            name=f"row {rule}",
            rules=(rule,),
            sentence=f"The row {rule} decides.",
            on=frozenset({rule}),
            reached=_whenever,
        )
        for rule in DECISION_ROWS
    ),
    *(
        Sometimes(
            name=f"stage {stage}",
            rules=("WC-GRAPH-1",),
            sentence=f"A record is brought to {stage}.",
            on=_CHANGES,
            reached=_leaves(stage),
        )
        for stage in Stage
    ),
    *(
        Sometimes(
            name=f"error {code}",
            rules=tuple(sorted(_rows_of(code))),
            sentence=f"A request is refused with {code}.",
            on=_rows_of(code),
            reached=_whenever,
        )
        for code in ErrorCode
        if _rows_of(code)
    ),
    *(
        Sometimes(
            name=f"move {source} {target} {evidence or 'none'}",
            rules=("WC-GRAPH-1", "WC-GRAPH-2"),
            sentence=f"{source} moves to {target} with evidence {evidence or 'none'}.",
            on=frozenset({"WC-TRANS-8"}),
            reached=_crosses(source, target, evidence),
        )
        for source, targets in _GRAPH.items()
        for target, kinds in targets.items()
        for evidence in kinds
    ),
    *(
        Sometimes(
            name=f"conflict over {member}",
            rules=("WC-CLAIM-3",),
            sentence=f"A claim is refused because its {member} alone differs.",
            on=frozenset({"WC-CLAIM-3"}),
            reached=_differs_in(member),
        )
        for member in ("claim_ttl_seconds", "state_ttl_seconds", "retry_failed")
    ),
    _story(
        "take-over after a lapse",
        ("WC-CLAIM-8",),
        "Another holder takes over a generation that lapsed.",
        frozenset({"WC-CLAIM-8"}),
        lambda before, request, _n, _d, _l: before is not None and before.holder != request.holder,
    ),
    _story(
        "own lapse recovered",
        ("WC-CLAIM-8",),
        "A holder recovers its own lapsed generation.",
        frozenset({"WC-CLAIM-8"}),
        lambda before, request, _n, _d, _l: before is not None and before.holder == request.holder,
    ),
    _story(
        "take-over at the deadline itself",
        ("WC-CLAIM-8", "WC-TIME-2"),
        "A claim that nobody abandoned is taken over at the millisecond it expires.",
        frozenset({"WC-CLAIM-8"}),
        lambda before, _r, now_ms, _d, _l: (
            before is not None and not before.abandoned and before.claim_expires_at_ms == now_ms
        ),
    ),
    _story(
        "take-over after an abandon",
        ("WC-CLAIM-8", "WC-ABANDON-6"),
        "An abandoned generation is taken over.",
        frozenset({"WC-CLAIM-8"}),
        lambda before, _r, _n, _d, _l: before is not None and before.abandoned,
    ),
    _story(
        "retry by another holder",
        ("WC-CLAIM-7",),
        "Somebody else than who failed tries again.",
        frozenset({"WC-CLAIM-7"}),
        lambda before, request, _n, _d, _l: before is not None and before.holder != request.holder,
    ),
    _story(
        "held in the last millisecond",
        ("WC-TRANS-8", "WC-TIME-2"),
        "A transition is applied one millisecond before the claim expires.",
        frozenset({"WC-TRANS-8"}),
        lambda before, _r, now_ms, _d, _l: (
            before is not None and before.claim_expires_at_ms == now_ms + 1
        ),
    ),
    _story(
        "claim cut by the record's end",
        ("WC-TIME-3",),
        "A claim is shorter than asked for, because the record ends sooner.",
        _GRANTS,
        lambda _b, _r, _n, done, _l: (
            done.record is not None
            and done.record.claim_expires_at_ms
            < done.observed_at_ms + done.record.claim_ttl_seconds * _SECOND_MS
        ),
    ),
    _story(
        "record there in its last millisecond",
        ("WC-TIME-2",),
        "A record is reported one millisecond before it expires.",
        frozenset({"WC-STATUS-2"}),
        lambda before, _r, now_ms, _d, _l: (
            before is not None and before.state_expires_at_ms == now_ms + 1
        ),
    ),
    _story(
        "record gone at its deadline",
        ("WC-TIME-2", "WC-CLAIM-1"),
        "A new record is made at the millisecond that the old one expires.",
        frozenset({"WC-CLAIM-1"}),
        lambda before, _r, now_ms, _d, _l: (
            before is not None and before.state_expires_at_ms == now_ms
        ),
    ),
    _story(
        "replay after take-over",
        ("WC-TRANS-2",),
        "An observation is replayed when its generation has been superseded.",
        frozenset({"WC-TRANS-2"}),
        lambda before, request, _n, _d, _l: (
            before is not None
            and isinstance(request, Transition)
            and request.generation < before.generation
        ),
    ),
    _story(
        "replay in a terminal record",
        ("WC-TRANS-2", "WC-TRANS-5"),
        "A settling observation is replayed in the record that it settled.",
        frozenset({"WC-TRANS-2"}),
        lambda before, _r, _n, _d, _l: before is not None and _terminal(before),
    ),
    _story(
        "replay after the lapse",
        ("WC-TRANS-2", "WC-TRANS-6"),
        "An observation is replayed when the claim has lapsed and nobody has taken over.",
        frozenset({"WC-TRANS-2"}),
        lambda before, _r, now_ms, _d, _l: before is not None and _lapsed(before, now_ms),
    ),
    _story(
        "conflict after take-over",
        ("WC-TRANS-3",),
        "A key of a superseded generation is refused to the present one.",
        frozenset({"WC-TRANS-3"}),
        lambda before, request, now_ms, _d, _l: (
            before is not None
            and isinstance(request, Transition)
            and _active(before, now_ms)
            and request.holder == before.holder
            and request.generation == before.generation
            and all(
                body[1] < before.generation
                for key, body in before.observations
                if key == request.observation_key
            )
        ),
    ),
    _story(
        "former holder refused",
        ("WC-TRANS-4",),
        "A holder that was superseded finds its generation stale.",
        frozenset({"WC-TRANS-4"}),
        lambda before, request, _n, _d, _l: (
            before is not None
            and isinstance(request, Transition)
            and request.generation < before.generation
            and request.holder != before.holder
        ),
    ),
    _story(
        "last generation reached",
        ("WC-LIMIT-1",),
        "A claim makes the last generation that the limit allows.",
        _GRANTS,
        lambda _b, _r, _n, done, limits: (
            done.record is not None and done.record.generation == limits.generations
        ),
    ),
    _story(
        "settled at the last generation",
        ("WC-LIMIT-1", "WC-LIMIT-2"),
        "The last generation that the limit allows is settled.",
        frozenset({"WC-TRANS-8"}),
        lambda _b, _r, _n, done, limits: (
            done.record is not None
            and done.record.generation == limits.generations
            and not _open(done.record)
        ),
    ),
    _story(
        "all observations used",
        ("WC-LIMIT-2",),
        "A record holds two observations of each generation that the limit allows.",
        frozenset({"WC-TRANS-8"}),
        lambda _b, _r, _n, done, limits: (
            done.record is not None and len(done.record.observations) == 2 * limits.generations
        ),
    ),
    _story(
        "clock behind the last change",
        ("WC-TIME-4",),
        "A claim is abandoned while the clock reads less than when it was made.",
        frozenset({"WC-ABANDON-6"}),
        lambda before, _r, now_ms, _d, _l: before is not None and now_ms < before.changed_at_ms,
    ),
)
"""What an exploration must have met, or it shows nothing."""
