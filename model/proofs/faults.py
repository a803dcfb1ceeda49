"""Seeded faults of the symbolic machine: each decides wrongly in one place.

Each names the invariants that it breaks. The tests ask that z3 finds a way from nothing to that
breach, and that every invariant is broken by one fault at least: an invariant that no fault
breaks might say nothing.
"""

from dataclasses import replace
from typing import Any, ClassVar, Final

import z3
from symbolic import (
    EVIDENCE,
    NO_EVIDENCE,
    STAGE,
    BodySort,
    Machine,
    Row,
    SymbolicRecord,
    SymbolicRequest,
    may_be_retried,
    permitted,
    settled,
)

from checkpoint_model import Stage

_Rows = tuple[Row, ...]


def _edited(rows: _Rows, rule: str, **changes: Any) -> _Rows:  # members of Row
    """A decision table with one row changed."""
    assert rule in {row.rule for row in rows}
    return tuple(replace(row, **changes) if row.rule == rule else row for row in rows)


def _without(rows: _Rows, rule: str) -> _Rows:
    """A decision table in which one row never applies."""
    return _edited(rows, rule, when=z3.BoolVal(False))


class Fault(Machine):
    """A machine that decides wrongly in one place."""

    breaks: ClassVar[tuple[str, ...]]
    """The names of invariants that it breaks, first the one that it was made for."""


# -- Time -------------------------------------------------------------------------------


class ClaimActiveAtItsDeadline(Fault):
    """``<=`` for ``<`` at the claim's deadline."""

    breaks = ("only_the_entitled_change_a_record",)

    def claim_active(self, record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
        return z3.And(z3.Not(settled(record.stage)), now_ms <= record.claim_expires_at_ms)


class RecordExistsAtItsDeadline(Fault):
    """``<=`` for ``<`` at the record's deadline."""

    breaks = ("what_expired_is_gone", "the_last_change_was_while_the_record_existed")

    def exists(self, record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
        return z3.And(record.remembered, now_ms <= record.state_expires_at_ms)


class ClaimDeadlineNotCapped(Fault):
    """A claim may outlive its record."""

    breaks = ("claim_ends_within_the_record",)

    def claim_deadline_ms(
        self,
        now_ms: z3.ArithRef,
        claim_ttl_seconds: z3.ArithRef,
        state_expires_at_ms: z3.ArithRef,  # noqa: ARG002  # the fault is not to look at it
    ) -> z3.ArithRef:
        return now_ms + claim_ttl_seconds * 1000


class ClaimRunsToTheRecordsEnd(Fault):
    """A claim ends with its record, however short it was asked to be."""

    breaks = ("deadlines_are_within_their_lifetimes",)

    def claim_deadline_ms(
        self,
        now_ms: z3.ArithRef,  # noqa: ARG002  # nor at these
        claim_ttl_seconds: z3.ArithRef,  # noqa: ARG002
        state_expires_at_ms: z3.ArithRef,
    ) -> z3.ArithRef:
        return state_expires_at_ms


class LifetimesUnchecked(Fault):
    """A new record keeps a claim's lifetime for the record's and the other way round."""

    breaks = ("configuration_is_admitted",)

    def new_record(self, request: SymbolicRequest, now_ms: z3.ArithRef) -> SymbolicRecord:
        return replace(
            super().new_record(request, now_ms),
            claim_ttl_seconds=request.state_ttl_seconds,
            state_ttl_seconds=request.claim_ttl_seconds,
        )


class ReuseRenews(Fault):
    """A claim that is sent again while active gets a new deadline."""

    breaks = ("nothing_renews_a_claim",)

    def claim(self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef) -> _Rows:
        renewed = replace(
            record,
            claim_expires_at_ms=self.claim_deadline_ms(
                now_ms, record.claim_ttl_seconds, record.state_expires_at_ms
            ),
            changed_at_ms=now_ms,
        )
        return _edited(super().claim(record, request, now_ms), "WC-CLAIM-4", after=renewed)


class ClockRunsBack(Fault):
    """The clock is believed also where it reads earlier than the last change."""

    breaks = ("time_never_runs_back",)

    def now_ms(
        self,
        record: SymbolicRecord,  # noqa: ARG002  # the fault is not to look at it
        clock_ms: z3.ArithRef,
    ) -> z3.ArithRef:
        return clock_ms


class NextGenerationExtendsTheRecord(Fault):
    """A take-over gives the record a new lifetime."""

    breaks = ("the_records_deadline_and_configuration_never_move",)

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        return replace(
            super().next_generation(record, request, stage, now_ms),
            state_expires_at_ms=now_ms + record.state_ttl_seconds * 1000,
        )


# -- Fencing ----------------------------------------------------------------------------


class ActiveClaimTakenOver(Fault):
    """Another's claim is not respected while it is active."""

    breaks = ("one_holder_at_a_time",)

    def claim(self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef) -> _Rows:
        return _without(super().claim(record, request, now_ms), "WC-CLAIM-5")


class GenerationNotCompared(Fault):
    """A transition of an earlier generation is taken for one of the current."""

    breaks = ("only_the_current_generation_moves",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        return _without(super().transition(record, request, now_ms), "WC-TRANS-4")


class LaterGenerationAccepted(Fault):
    """Generations are compared by ``<`` only, so one that nobody was granted is recorded."""

    breaks = ("observations_are_of_generations_granted",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        rows = super().transition(record, request, now_ms)
        return _edited(rows, "WC-TRANS-4", when=request.generation < record.generation)


class AbandonByAnybody(Fault):
    """An abandon does not compare the holder."""

    breaks = ("only_the_entitled_change_a_record",)

    def abandon(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        rows = super().abandon(record, request, now_ms)
        return _edited(rows, "WC-ABANDON-5", when=z3.Not(self.claim_active(record, now_ms)))


class TakeOverKeepsTheGeneration(Fault):
    """A take-over goes on in the generation that lapsed."""

    breaks = ("generation_grows_by_one_and_only_by_an_acquired_claim",)

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        made = super().next_generation(record, request, stage, now_ms)
        return replace(made, generation=record.generation)


class TakeOverKeepsTheHolder(Fault):
    """A take-over is granted, but the record names the former holder."""

    breaks = ("an_acquired_claim_is_held",)

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        made = super().next_generation(record, request, stage, now_ms)
        return replace(made, holder=record.holder)


class OneGenerationTooMany(Fault):
    """``>`` for ``>=`` at the limit of generations."""

    breaks = ("generations_are_bounded",)

    def claim(self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef) -> _Rows:
        rows = super().claim(record, request, now_ms)
        return _edited(rows, "WC-CLAIM-6", when=record.generation > self.limits.generations_max)


class AbandonKeepsTheClaim(Fault):
    """An abandon is noted, but the claim goes on to its deadline."""

    breaks = ("abandoned_means_lapsed",)

    def abandon(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        after = replace(record, changed_at_ms=now_ms, abandoned=z3.BoolVal(True))
        return _edited(super().abandon(record, request, now_ms), "WC-ABANDON-6", after=after)


class AbandonNotNoted(Fault):
    """An abandon ends the claim, but is not noted, so it cannot be repeated."""

    breaks = ("only_an_abandon_or_a_settlement_cuts_a_claim",)

    def abandon(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        after = replace(record, changed_at_ms=now_ms, claim_expires_at_ms=now_ms)
        return _edited(super().abandon(record, request, now_ms), "WC-ABANDON-6", after=after)


class AbandonOutlivesItsGeneration(Fault):
    """A new generation is still marked as abandoned."""

    breaks = ("abandoned_means_lapsed", "what_the_rows_say_in_passing")

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        made = super().next_generation(record, request, stage, now_ms)
        return replace(made, abandoned=record.abandoned)


# -- Graph ------------------------------------------------------------------------------


class RecoveredStartsClaimed(Fault):
    """A take-over of a lapsed generation starts as if nothing had happened."""

    breaks = ("stage_moves_along_the_graph_or_by_a_claim",)

    def claim(self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef) -> _Rows:
        after = self.next_generation(record, request, Stage.CLAIMED, now_ms)
        return _edited(super().claim(record, request, now_ms), "WC-CLAIM-8", after=after)


class RejectionAfterUncertain(Fault):
    """Once uncertain, a rejection by the provider is believed (against WC-GRAPH-3)."""

    breaks = ("stage_moves_along_the_graph_or_by_a_claim",)

    def permitted(
        self, from_stage: z3.DatatypeRef, to_stage: z3.DatatypeRef, evidence_type: z3.DatatypeRef
    ) -> z3.BoolRef:
        return z3.Or(
            super().permitted(from_stage, to_stage, evidence_type),
            z3.And(
                from_stage == STAGE["uncertain"],
                to_stage == STAGE["failed"],
                evidence_type == EVIDENCE["provider_rejection"],
            ),
        )


class UncertainIsReentered(Fault):
    """A generation may say ever again that it is uncertain."""

    breaks = ("observations_leave_room_for_the_moves_left", "observations_are_bounded")

    def permitted(
        self, from_stage: z3.DatatypeRef, to_stage: z3.DatatypeRef, evidence_type: z3.DatatypeRef
    ) -> z3.BoolRef:
        return z3.Or(
            super().permitted(from_stage, to_stage, evidence_type),
            z3.And(
                from_stage == STAGE["uncertain"],
                to_stage == STAGE["uncertain"],
                evidence_type == EVIDENCE[NO_EVIDENCE],
            ),
        )


class SettledWithoutEvidence(Fault):
    """A settled stage needs no evidence."""

    breaks = ("evidence_is_of_the_stage",)

    def permitted(
        self, from_stage: z3.DatatypeRef, to_stage: z3.DatatypeRef, evidence_type: z3.DatatypeRef
    ) -> z3.BoolRef:
        operator = EVIDENCE["operator_attestation"]
        return z3.Or(
            super().permitted(from_stage, to_stage, evidence_type),
            z3.And(
                permitted(from_stage, to_stage, operator), evidence_type == EVIDENCE[NO_EVIDENCE]
            ),
        )


class RetryFailedIgnored(Fault):
    """``failed`` may be retried whatever the record was made with."""

    breaks = ("terminal_is_final",)

    def terminal(self, record: SymbolicRecord) -> z3.BoolRef:
        return z3.And(settled(record.stage), record.stage != STAGE["failed"])


class CompensatedIsNotTerminal(Fault):
    """``compensated`` is left by a claim, as if it had lapsed."""

    breaks = ("every_request_has_a_row",)

    def terminal(self, record: SymbolicRecord) -> z3.BoolRef:
        return z3.And(
            settled(record.stage),
            record.stage != STAGE["compensated"],
            z3.Not(may_be_retried(record)),
        )


class SettlementKeepsTheClaim(Fault):
    """A settled record still has its claim's deadline."""

    breaks = ("settled_means_that_the_claim_ended",)

    def moved(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        made = super().moved(record, request, now_ms)
        return replace(made, claim_expires_at_ms=record.claim_expires_at_ms)


class LastObservationRefused(Fault):
    """A record refuses the last observation that it has room for."""

    breaks = ("a_granted_generation_can_be_settled",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        full = record.observation_count + 1 >= self.limits.observations_max
        rows = super().transition(record, request, now_ms)
        (invalid,) = (row for row in rows if row.rule == "WC-TRANS-7")
        return _edited(rows, "WC-TRANS-7", when=z3.Or(full, invalid.when))


# -- Replay and refusal -----------------------------------------------------------------


class ReplayActsAgain(Fault):
    """A repeated observation is recorded once more."""

    breaks = ("refusals_and_observers_change_nothing",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        rows = super().transition(record, request, now_ms)
        return _edited(rows, "WC-TRANS-2", after=self.moved(record, request, now_ms))


class RefusalRecordsItsKey(Fault):
    """A refused transition uses up its observation key."""

    breaks = ("refusals_and_observers_change_nothing",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        after = replace(
            record,
            observations=z3.Store(record.observations, request.observation_key, request.body),
            observation_count=record.observation_count + 1,
        )
        return _edited(super().transition(record, request, now_ms), "WC-TRANS-7", after=after)


class AnotherBodyReplayed(Fault):
    """An observation key that is known is a replay, whatever its body."""

    breaks = ("an_observation_acts_once",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        known = record.observations[request.observation_key] != BodySort.not_applied
        return _edited(super().transition(record, request, now_ms), "WC-TRANS-2", when=known)


class ObservationsForgotten(Fault):
    """A new generation starts with no observations."""

    breaks = ("no_observation_is_forgotten",)

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        return replace(
            super().next_generation(record, request, stage, now_ms),
            observations=z3.K(z3.IntSort(), BodySort.not_applied),
            observation_count=z3.IntVal(0),
        )


class ReplayAskedTooLate(Fault):
    """Replays are looked for after the guards: a settled record refuses its own repetition."""

    breaks = ("a_repeat_changes_nothing_more",)

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> _Rows:
        rows = super().transition(record, request, now_ms)
        return (rows[0], *rows[3:6], *rows[1:3], *rows[6:])


class ConfigurationOverwritten(Fault):
    """A claim's configuration is not compared, and the record takes it over."""

    breaks = ("the_records_deadline_and_configuration_never_move",)

    def claim(self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef) -> _Rows:
        return _without(super().claim(record, request, now_ms), "WC-CLAIM-3")

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        return replace(
            super().next_generation(record, request, stage, now_ms),
            claim_ttl_seconds=request.claim_ttl_seconds,
            retry_failed=request.retry_failed,
        )


FAULTS: Final[tuple[type[Fault], ...]] = tuple(Fault.__subclasses__())
"""Every seeded fault, in the order above."""
