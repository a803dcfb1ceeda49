"""The checkpoint machine: section 6 of the contract as one pure function.

Rule 1: whatever decides a request is in this file, and nowhere else in the package.
Rule 2: this file knows nothing of HTTP, MCP, JSON, Valkey or the wall clock.
Rule 3: ``step`` never raises, never mutates and never remembers.

How to read it beside the contract: ``MOVES`` is the graph; each action has one
function, and that function is its decision table, row by row in the same order,
each row naming its rule. Time is a whole number of milliseconds that the caller
passes in. Expiry is lazy: a record whose ``state_expires_at_ms`` has come is
treated as absent, never swept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from checkpoint_model.vocabulary import (
    CONTRACT_LIMITS,
    Action,
    ErrorCode,
    EvidenceType,
    Limits,
    Stage,
)

# -- The graph (WC-GRAPH-1 … WC-GRAPH-3) ------------------------------------------------

_VERIFIED_BY: Final = frozenset(
    {
        EvidenceType.PROVIDER_RECEIPT,
        EvidenceType.EXTERNAL_READ,
        EvidenceType.OPERATOR_ATTESTATION,
    }
)
_COMPENSATED_BY: Final = frozenset(
    {EvidenceType.COMPENSATION_RECEIPT, EvidenceType.OPERATOR_ATTESTATION}
)

MOVES: Final[Mapping[Stage, Mapping[Stage, frozenset[EvidenceType]]]] = MappingProxyType(
    {
        Stage.CLAIMED: MappingProxyType(
            {
                Stage.UNCERTAIN: frozenset(),  # takes no evidence (WC-GRAPH-2)
                Stage.CALLER_VERIFIED: _VERIFIED_BY,
                Stage.FAILED: frozenset(
                    {
                        EvidenceType.NOT_ATTEMPTED,
                        EvidenceType.PROVIDER_REJECTION,
                        EvidenceType.EXTERNAL_ABSENCE,
                        EvidenceType.OPERATOR_ATTESTATION,
                    }
                ),
                Stage.COMPENSATED: _COMPENSATED_BY,
            }
        ),
        Stage.UNCERTAIN: MappingProxyType(
            {
                Stage.CALLER_VERIFIED: _VERIFIED_BY,
                # Fewer than from `claimed` (WC-GRAPH-3): an attempt may have taken
                # effect before the one that the provider now rejects.
                Stage.FAILED: frozenset(
                    {EvidenceType.EXTERNAL_ABSENCE, EvidenceType.OPERATOR_ATTESTATION}
                ),
                Stage.COMPENSATED: _COMPENSATED_BY,
            }
        ),
        # Nothing leaves a settled stage within its generation, and the table says so.
        Stage.CALLER_VERIFIED: MappingProxyType({}),
        Stage.FAILED: MappingProxyType({}),
        Stage.COMPENSATED: MappingProxyType({}),
    }
)
"""From stage to stage, the evidence that the move needs; an empty set means *none*."""

SETTLED: Final = frozenset(stage for stage, targets in MOVES.items() if not targets)
"""The stages that nothing leaves (section 2, *settled*)."""


# -- Requests (section 3), without the identity that picks the record -------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Ask for the next generation, or for word that one's own is still active."""

    holder: str
    claim_ttl_seconds: int
    state_ttl_seconds: int
    retry_failed: bool

    @property
    def action(self) -> Action:
        """Always ``claim``."""
        return Action.CLAIM


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """Assert what the holder observed of the outcome."""

    holder: str
    generation: int
    to_stage: Stage
    observation_key: str
    evidence_type: EvidenceType | None = None
    evidence_fingerprint: str | None = None

    @property
    def action(self) -> Action:
        """Always ``transition``."""
        return Action.TRANSITION

    @property
    def body(self) -> "TransitionBody":
        """What must be equal for a repeated observation key to be a replay (section 6)."""
        return (
            self.holder,
            self.generation,
            self.to_stage,
            self.evidence_type,
            self.evidence_fingerprint,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """Ask how things stand; changes nothing."""

    holder: str | None = None

    @property
    def action(self) -> Action:
        """Always ``status``."""
        return Action.STATUS


@dataclass(frozen=True, kw_only=True, slots=True)
class Abandon:
    """Give up the claim before its deadline, saying nothing about the outcome."""

    holder: str
    generation: int

    @property
    def action(self) -> Action:
        """Always ``abandon``."""
        return Action.ABANDON


Request: TypeAlias = Claim | Transition | Status | Abandon
TransitionBody: TypeAlias = tuple[str, int, Stage, EvidenceType | None, str | None]


# -- The record -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What is remembered of one workflow identity (section 2, *record*).

    Times are whole milliseconds since the epoch, by the store's clock (WC-TIME-1).
    """

    stage: Stage
    generation: int
    holder: str
    claim_expires_at_ms: int
    """When the claim ends or ended: at its deadline, or where abandon or settlement cut it."""
    state_expires_at_ms: int
    changed_at_ms: int
    """The time of the last change; no later step is earlier (WC-TIME-4)."""
    claim_ttl_seconds: int
    state_ttl_seconds: int
    retry_failed: bool
    abandoned: bool = False
    """Whether the current generation's claim ended by an abandon (WC-ABANDON-4)."""
    evidence_type: EvidenceType | None = None
    evidence_fingerprint_present: bool = False
    observations: tuple[tuple[str, TransitionBody], ...] = ()
    """Every applied observation key with its transition body, oldest first (WC-LIMIT-2)."""

    def exists(self, now_ms: int) -> bool:
        """WC-TIME-2: at the deadline itself the record is gone."""
        return now_ms < self.state_expires_at_ms

    def claim_active(self, now_ms: int) -> bool:
        """WC-TIME-2: at the deadline itself the claim is gone."""
        return self.stage not in SETTLED and now_ms < self.claim_expires_at_ms

    def lapsed(self, now_ms: int) -> bool:
        """Section 2: in `claimed` or `uncertain`, and the claim is not active."""
        return self.stage not in SETTLED and not self.claim_active(now_ms)

    @property
    def may_be_retried(self) -> bool:
        """`failed` in a record whose `retry_failed` is true: settled, yet not terminal."""
        return self.stage is Stage.FAILED and self.retry_failed

    @property
    def terminal(self) -> bool:
        """Section 2: settled, except what may be retried."""
        return self.stage in SETTLED and not self.may_be_retried

    def held_by(self, caller: str | None, now_ms: int) -> bool:
        """Whether the claim is active and the caller is the holder."""
        return caller == self.holder and self.claim_active(now_ms)

    def configured_as(self, claim: Claim) -> bool:
        """Whether a claim brings the configuration that the record was made with."""
        return (
            claim.claim_ttl_seconds == self.claim_ttl_seconds
            and claim.state_ttl_seconds == self.state_ttl_seconds
            and claim.retry_failed == self.retry_failed
        )

    def applied(self, observation_key: str) -> TransitionBody | None:
        """The body that this observation key was applied with in this record, if it was."""
        for key, body in self.observations:
            if key == observation_key:
                return body
        return None


# -- One step ---------------------------------------------------------------------------


class Success(Enum):
    """How a request succeeded; the value is the set of flags that it raises (section 7)."""

    ACQUIRED = frozenset({"acquired"})
    RECOVERED = frozenset({"acquired", "recovered"})
    REUSED = frozenset({"reused"})
    TRANSITIONED = frozenset({"transitioned"})
    OBSERVATION_REPLAYED = frozenset({"observation_replayed"})
    ABANDONED = frozenset({"abandoned"})
    REPORTED = frozenset[str]()  # status raises none


Outcome: TypeAlias = Success | ErrorCode


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What one request did: the record after it, the outcome, and the row that decided."""

    record: Record | None
    """As it was, the same object, unless a row marked ✎ applied."""
    outcome: Outcome
    rule: str
    """The id of the decision row that applied, such as ``WC-CLAIM-4``."""
    observed_at_ms: int
    """The step's time (WC-TIME-1, WC-TIME-4)."""


def step(
    record: Record | None, request: Request, now_ms: int, *, limits: Limits = CONTRACT_LIMITS
) -> Step:
    """Decide one request (section 6).

    Args:
        record: what is remembered of the workflow, or None. It may have expired.
        request: a request that section 3 admits.
        now_ms: the store's clock, in milliseconds since the epoch.
        limits: the contract's, or smaller ones for a small world.

    Returns:
        The record after the step, the outcome, the deciding rule and the step's time.
        Never raises: every request in every state at every time has a row.
    """
    if record is not None:
        # A clock that reads earlier than the last change does not undo it (WC-TIME-4):
        # claimed at 100, clock set back to 50, abandoned: the claim ends at 100, not 50.
        now_ms = max(now_ms, record.changed_at_ms)
    existing = record if record is not None and record.exists(now_ms) else None
    match request:
        case Claim():
            after, outcome, rule = _claim(existing, request, now_ms, limits)
        case Transition():
            after, outcome, rule = _transition(existing, request, now_ms)
        case Abandon():
            after, outcome, rule = _abandon(existing, request, now_ms)
        case Status():
            after, outcome, rule = _status(existing)
    # `after` is None where no row marked ✎ applied.
    return Step(record=after or record, outcome=outcome, rule=rule, observed_at_ms=now_ms)


_Decision: TypeAlias = tuple[Record | None, Outcome, str]


def _claim(record: Record | None, request: Claim, now_ms: int, limits: Limits) -> _Decision:
    if record is None:
        return _new_record(request, now_ms), Success.ACQUIRED, "WC-CLAIM-1"
    if record.terminal:
        return None, ErrorCode.CHECKPOINT_TERMINAL, "WC-CLAIM-2"
    if not record.configured_as(request):
        return None, ErrorCode.CONFIGURATION_CONFLICT, "WC-CLAIM-3"
    if record.held_by(request.holder, now_ms):
        return None, Success.REUSED, "WC-CLAIM-4"
    if record.claim_active(now_ms):
        return None, ErrorCode.CHECKPOINT_NOT_HELD, "WC-CLAIM-5"
    if record.generation >= limits.generations:
        return None, ErrorCode.CHECKPOINT_LIMIT_REACHED, "WC-CLAIM-6"
    if record.may_be_retried:
        after = _next_generation(record, request.holder, Stage.CLAIMED, now_ms)
        return after, Success.ACQUIRED, "WC-CLAIM-7"
    # Lapsed. Nothing is known of what the last holder did, not even when that was
    # this same holder, so the new generation starts `uncertain`.
    after = _next_generation(record, request.holder, Stage.UNCERTAIN, now_ms)
    return after, Success.RECOVERED, "WC-CLAIM-8"


def _transition(record: Record | None, request: Transition, now_ms: int) -> _Decision:
    if record is None:
        return None, ErrorCode.CHECKPOINT_NOT_FOUND, "WC-TRANS-1"
    applied = record.applied(request.observation_key)
    if applied == request.body:
        return None, Success.OBSERVATION_REPLAYED, "WC-TRANS-2"
    if applied is not None:
        return None, ErrorCode.OBSERVATION_CONFLICT, "WC-TRANS-3"
    if request.generation != record.generation:
        return None, ErrorCode.STALE_GENERATION, "WC-TRANS-4"
    if record.terminal:
        return None, ErrorCode.CHECKPOINT_TERMINAL, "WC-TRANS-5"
    if not record.held_by(request.holder, now_ms):
        return None, ErrorCode.CHECKPOINT_NOT_HELD, "WC-TRANS-6"
    if not permitted(record.stage, request.to_stage, request.evidence_type):
        return None, ErrorCode.INVALID_TRANSITION, "WC-TRANS-7"
    settles = request.to_stage in SETTLED
    after = replace(
        record,
        stage=request.to_stage,
        claim_expires_at_ms=now_ms if settles else record.claim_expires_at_ms,
        changed_at_ms=now_ms,
        evidence_type=request.evidence_type,
        evidence_fingerprint_present=request.evidence_fingerprint is not None,
        observations=(*record.observations, (request.observation_key, request.body)),
    )
    return after, Success.TRANSITIONED, "WC-TRANS-8"


def _abandon(record: Record | None, request: Abandon, now_ms: int) -> _Decision:
    if record is None:
        return None, ErrorCode.CHECKPOINT_NOT_FOUND, "WC-ABANDON-1"
    if request.generation != record.generation:
        return None, ErrorCode.STALE_GENERATION, "WC-ABANDON-2"
    if record.terminal:
        return None, ErrorCode.CHECKPOINT_TERMINAL, "WC-ABANDON-3"
    if record.abandoned and request.holder == record.holder:
        return None, Success.ABANDONED, "WC-ABANDON-4"
    if not record.held_by(request.holder, now_ms):
        return None, ErrorCode.CHECKPOINT_NOT_HELD, "WC-ABANDON-5"
    after = replace(record, claim_expires_at_ms=now_ms, changed_at_ms=now_ms, abandoned=True)
    return after, Success.ABANDONED, "WC-ABANDON-6"


def _status(record: Record | None) -> _Decision:
    if record is None:
        return None, ErrorCode.CHECKPOINT_NOT_FOUND, "WC-STATUS-1"
    return None, Success.REPORTED, "WC-STATUS-2"


def permitted(from_stage: Stage, to_stage: Stage, evidence_type: EvidenceType | None) -> bool:
    """Whether the graph has this move with this evidence (WC-GRAPH-1 … WC-GRAPH-3)."""
    needed = MOVES[from_stage].get(to_stage)
    if needed is None:
        return False
    return evidence_type in needed if needed else evidence_type is None


def graph_rules(stage: Stage, request: Transition) -> tuple[str, ...]:
    """Which rules of the graph bear on a move that the holder asks for (section 6)."""
    needed = MOVES[stage].get(request.to_stage)
    if needed is None:
        return ("WC-GRAPH-1",)
    rules = ["WC-GRAPH-1"] if request.evidence_type in needed or not needed else []
    if request.evidence_type is None or request.to_stage is Stage.UNCERTAIN:
        rules.append("WC-GRAPH-2")
    if (
        stage is Stage.UNCERTAIN
        and request.to_stage is Stage.FAILED
        and request.evidence_type in MOVES[Stage.CLAIMED][Stage.FAILED] - needed
    ):
        rules.append("WC-GRAPH-3")
    if request.evidence_type in needed:
        rules.append("WC-GRAPH-4")
    return tuple(rules)


def _new_record(request: Claim, now_ms: int) -> Record:
    state_expires_at_ms = now_ms + request.state_ttl_seconds * 1000
    return Record(
        stage=Stage.CLAIMED,
        generation=1,
        holder=request.holder,
        claim_expires_at_ms=min(now_ms + request.claim_ttl_seconds * 1000, state_expires_at_ms),
        state_expires_at_ms=state_expires_at_ms,
        changed_at_ms=now_ms,
        claim_ttl_seconds=request.claim_ttl_seconds,
        state_ttl_seconds=request.state_ttl_seconds,
        retry_failed=request.retry_failed,
    )


def _next_generation(record: Record, holder: str, stage: Stage, now_ms: int) -> Record:
    """WC-CLAIM-7 and -8, with the claim's end by WC-TIME-3 and no evidence by WC-VIEW-4."""
    return replace(
        record,
        stage=stage,
        generation=record.generation + 1,
        holder=holder,
        claim_expires_at_ms=min(
            now_ms + record.claim_ttl_seconds * 1000, record.state_expires_at_ms
        ),
        changed_at_ms=now_ms,
        abandoned=False,
        evidence_type=None,
        evidence_fingerprint_present=False,
    )
