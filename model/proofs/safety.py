"""What is safe about the checkpoint machine: named statements about records and about steps.

Each cites the rules of the contract that it says again in other words. They use the contract's
terms (:mod:`symbolic`: `exists`, `claim_active`, …) and never a machine's own idea of these, so
that a machine which is wrong about a deadline cannot be right about it here. Where a statement is
about what could be done next, it asks the machine for that step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import z3
from symbolic import (
    ACTION,
    EVIDENCE,
    MOVES_A_GENERATION,
    NO_EVIDENCE,
    OUTCOME,
    RULE,
    STAGE,
    BodySort,
    FingerprintSort,
    Machine,
    SymbolicLimits,
    SymbolicRecord,
    SymbolicRequest,
    SymbolicStep,
    claim_active,
    earlier_of,
    exists,
    held_by,
    lapsed,
    may_be_retried,
    moves_left,
    permitted,
    same,
    settled,
    terminal,
)

from checkpoint_model import SETTLED, Action, EvidenceType, Stage

# -- Always: of every record that can arise ---------------------------------------------


@dataclass(frozen=True, kw_only=True)
class World:
    """What a statement about a record may speak of."""

    record: SymbolicRecord
    limits: SymbolicLimits
    key: z3.ArithRef
    """Any observation key."""


@dataclass(frozen=True, kw_only=True)
class Always:
    """A named statement about every remembered record; ``rules`` are what it follows from."""

    name: str
    rules: tuple[str, ...]
    holds: Callable[[World], z3.BoolRef]


def _claim_ends_within_the_record(world: World) -> z3.BoolRef:
    return world.record.claim_expires_at_ms <= world.record.state_expires_at_ms


def _deadlines_are_within_their_lifetimes(world: World) -> z3.BoolRef:
    record = world.record
    return z3.And(
        record.claim_expires_at_ms <= record.changed_at_ms + record.claim_ttl_seconds * 1000,
        record.state_expires_at_ms <= record.changed_at_ms + record.state_ttl_seconds * 1000,
    )


def _the_last_change_was_while_the_record_existed(world: World) -> z3.BoolRef:
    return world.record.changed_at_ms < world.record.state_expires_at_ms


def _configuration_is_admitted(world: World) -> z3.BoolRef:
    record = world.record
    return z3.And(
        record.claim_ttl_seconds >= 1, record.claim_ttl_seconds < record.state_ttl_seconds
    )


def _generations_are_bounded(world: World) -> z3.BoolRef:
    generation = world.record.generation
    return z3.And(generation >= 1, generation <= world.limits.generations_max)


def _observations_are_bounded(world: World) -> z3.BoolRef:
    count, generation = world.record.observation_count, world.record.generation
    return z3.And(
        count >= 0,
        count <= MOVES_A_GENERATION * generation,
        count <= world.limits.observations_max,
    )


def _observations_leave_room_for_the_moves_left(world: World) -> z3.BoolRef:
    # The bound alone is not inductive: claimed in generation 1 with 2 observations
    # satisfies it, and one move later there are 3. Such a record cannot arise, and this
    # is what says so.
    record = world.record
    return (
        record.observation_count + moves_left(record.stage)
        <= MOVES_A_GENERATION * record.generation
    )


def _settled_means_that_the_claim_ended(world: World) -> z3.BoolRef:
    record = world.record
    return z3.Implies(
        settled(record.stage),
        z3.And(record.claim_expires_at_ms == record.changed_at_ms, z3.Not(record.abandoned)),
    )


def _abandoned_means_lapsed(world: World) -> z3.BoolRef:
    # Of the time of the last change, so of every later one (WC-TIME-4): a deadline that
    # has come stays come.
    record = world.record
    return z3.Implies(record.abandoned, lapsed(record, record.changed_at_ms))


def _only_an_abandon_or_a_settlement_cuts_a_claim(world: World) -> z3.BoolRef:
    record = world.record
    return z3.Or(
        record.abandoned,
        settled(record.stage),
        record.changed_at_ms < record.claim_expires_at_ms,
    )


def _evidence_is_of_the_stage(world: World) -> z3.BoolRef:
    record = world.record
    return z3.And(
        z3.If(
            settled(record.stage),
            z3.Or(
                [
                    permitted(STAGE[str(source)], record.stage, record.evidence_type)
                    for source in Stage
                ]
            ),
            record.evidence_type == EVIDENCE[NO_EVIDENCE],
        ),
        z3.Implies(
            record.evidence_fingerprint_present, record.evidence_type != EVIDENCE[NO_EVIDENCE]
        ),
    )


def _observations_are_of_generations_granted(world: World) -> z3.BoolRef:
    body = world.record.observations[world.key]
    return z3.Or(
        body == BodySort.not_applied,
        z3.And(
            BodySort.body_generation(body) >= 1,
            BodySort.body_generation(body) <= world.record.generation,
            BodySort.body_to_stage(body) != STAGE[str(Stage.CLAIMED)],
            world.record.observation_count >= 1,
        ),
    )


ALWAYS: Final = (
    Always(
        name="claim_ends_within_the_record",
        rules=("WC-TIME-3",),
        holds=_claim_ends_within_the_record,
    ),
    Always(
        name="deadlines_are_within_their_lifetimes",
        rules=("WC-TIME-3", "WC-PRIV-3"),
        holds=_deadlines_are_within_their_lifetimes,
    ),
    Always(
        name="the_last_change_was_while_the_record_existed",
        rules=("WC-TIME-2", "WC-TIME-4"),
        holds=_the_last_change_was_while_the_record_existed,
    ),
    Always(
        name="configuration_is_admitted",
        rules=("WC-IN-5", "WC-CLAIM-1"),
        holds=_configuration_is_admitted,
    ),
    Always(
        name="generations_are_bounded",
        rules=("WC-LIMIT-1", "WC-CLAIM-6"),
        holds=_generations_are_bounded,
    ),
    Always(
        name="observations_are_bounded",
        rules=("WC-LIMIT-2",),
        holds=_observations_are_bounded,
    ),
    Always(
        name="observations_leave_room_for_the_moves_left",
        rules=("WC-LIMIT-2", "WC-GRAPH-1"),
        holds=_observations_leave_room_for_the_moves_left,
    ),
    Always(
        name="settled_means_that_the_claim_ended",
        rules=("WC-TRANS-8",),
        holds=_settled_means_that_the_claim_ended,
    ),
    Always(
        name="abandoned_means_lapsed",
        rules=("WC-ABANDON-4", "WC-ABANDON-6"),
        holds=_abandoned_means_lapsed,
    ),
    Always(
        name="only_an_abandon_or_a_settlement_cuts_a_claim",
        rules=("WC-TIME-3", "WC-TRANS-8", "WC-ABANDON-6"),
        holds=_only_an_abandon_or_a_settlement_cuts_a_claim,
    ),
    Always(
        name="evidence_is_of_the_stage",
        rules=("WC-GRAPH-2", "WC-GRAPH-4", "WC-VIEW-4"),
        holds=_evidence_is_of_the_stage,
    ),
    Always(
        name="observations_are_of_generations_granted",
        rules=("WC-TRANS-4", "WC-TRANS-8"),
        holds=_observations_are_of_generations_granted,
    ),
)
"""What is true of every record that can arise."""


# -- Step: of what one request may do ---------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Move:
    """What a statement about a step may speak of."""

    machine: Machine
    before: SymbolicRecord
    request: SymbolicRequest
    clock_ms: z3.ArithRef
    done: SymbolicStep
    key: z3.ArithRef
    """Any observation key."""
    other: z3.ArithRef
    """Any other number: a holder, a later time."""

    @property
    def after(self) -> SymbolicRecord:
        """The record that the step left."""
        return self.done.after

    @property
    def existed(self) -> z3.BoolRef:
        """Whether there was a record at the step's time."""
        return exists(self.before, self.done.now_ms)

    @property
    def changed(self) -> z3.BoolRef:
        """Whether the step left another record than it found."""
        return z3.Not(same(self.before, self.after))

    def is_(self, action: Action) -> z3.BoolRef:
        """Whether the request is of this action."""
        return self.request.action == ACTION[str(action)]

    def came_out(self, *outcomes: str) -> z3.BoolRef:
        """Whether the outcome is one of these."""
        return z3.Or([self.done.outcome == OUTCOME[outcome] for outcome in outcomes])


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A named statement about every step from a record that can arise."""

    name: str
    rules: tuple[str, ...]
    holds: Callable[[Move], z3.BoolRef]


def _every_request_has_a_row(move: Move) -> z3.BoolRef:
    tables = move.machine.tables(move.before, move.request, move.done.now_ms)
    return z3.And([z3.Or([row.when for row in table]) for table in tables.values()])


def _one_holder_at_a_time(move: Move) -> z3.BoolRef:
    before, after, now_ms = move.before, move.after, move.done.now_ms
    return z3.And(
        # Of one record, at any one time:
        z3.Implies(
            z3.And(held_by(after, move.request.holder, now_ms), held_by(after, move.other, now_ms)),
            move.request.holder == move.other,
        ),
        # and while a claim is active, nothing passes it on:
        z3.Implies(
            z3.And(move.existed, claim_active(before, now_ms), claim_active(after, now_ms)),
            after.holder == before.holder,
        ),
    )


def _generation_grows_by_one_and_only_by_an_acquired_claim(move: Move) -> z3.BoolRef:
    acquired = z3.And(move.is_(Action.CLAIM), move.came_out("ACQUIRED", "RECOVERED"))
    return z3.If(
        move.existed,
        move.after.generation == move.before.generation + z3.If(acquired, 1, 0),
        z3.If(acquired, move.after.generation == 1, z3.Not(move.changed)),
    )


def _only_the_entitled_change_a_record(move: Move) -> z3.BoolRef:
    before, now_ms = move.before, move.done.now_ms
    free = z3.Or(z3.Not(move.existed), lapsed(before, now_ms), may_be_retried(before))
    return z3.Implies(
        move.changed,
        z3.If(
            move.is_(Action.CLAIM),
            free,
            z3.And(move.existed, held_by(before, move.request.holder, now_ms)),
        ),
    )


def _only_the_current_generation_moves(move: Move) -> z3.BoolRef:
    return z3.Implies(
        z3.And(move.changed, z3.Not(move.is_(Action.CLAIM))),
        z3.And(
            move.request.generation == move.before.generation,
            move.after.generation == move.before.generation,
            move.after.holder == move.before.holder,
        ),
    )


def _an_acquired_claim_is_held(move: Move) -> z3.BoolRef:
    after, now_ms = move.after, move.done.now_ms
    return z3.Implies(
        move.came_out("ACQUIRED", "RECOVERED"),
        z3.And(
            exists(after, now_ms),
            held_by(after, move.request.holder, now_ms),
            after.claim_expires_at_ms
            == earlier_of(now_ms + after.claim_ttl_seconds * 1000, after.state_expires_at_ms),
            after.evidence_type == EVIDENCE[NO_EVIDENCE],
        ),
    )


def _stage_moves_along_the_graph_or_by_a_claim(move: Move) -> z3.BoolRef:
    before, after, request = move.before, move.after, move.request
    claimed, uncertain = STAGE[str(Stage.CLAIMED)], STAGE[str(Stage.UNCERTAIN)]
    by_a_claim = z3.If(
        z3.Or(z3.Not(move.existed), may_be_retried(before)),
        after.stage == claimed,
        z3.And(lapsed(before, move.done.now_ms), after.stage == uncertain),
    )
    moved = z3.And(
        move.came_out("TRANSITIONED"),
        permitted(before.stage, after.stage, request.evidence_type),
        after.stage == request.to_stage,
        after.evidence_type == request.evidence_type,
    )
    return z3.And(
        z3.Implies(move.came_out("ACQUIRED", "RECOVERED"), by_a_claim),
        z3.Implies(
            z3.And(move.existed, before.stage != after.stage),
            z3.Or(z3.And(move.is_(Action.CLAIM), by_a_claim), moved),
        ),
        z3.Implies(move.came_out("TRANSITIONED"), moved),
    )


def _the_records_deadline_and_configuration_never_move(move: Move) -> z3.BoolRef:
    before, after = move.before, move.after
    return z3.Implies(
        move.existed,
        z3.And(
            after.remembered,
            after.state_expires_at_ms == before.state_expires_at_ms,
            after.claim_ttl_seconds == before.claim_ttl_seconds,
            after.state_ttl_seconds == before.state_ttl_seconds,
            after.retry_failed == before.retry_failed,
        ),
    )


def _nothing_renews_a_claim(move: Move) -> z3.BoolRef:
    before, after = move.before, move.after
    ended = z3.Or(
        z3.And(move.came_out("TRANSITIONED"), settled(after.stage)),
        z3.And(move.came_out("ABANDONED"), after.abandoned),
    )
    return z3.Implies(
        z3.And(move.existed, after.generation == before.generation),
        z3.Or(
            after.claim_expires_at_ms == before.claim_expires_at_ms,
            z3.And(
                ended,
                after.claim_expires_at_ms == move.done.now_ms,
                after.claim_expires_at_ms < before.claim_expires_at_ms,
            ),
        ),
    )


def _refusals_and_observers_change_nothing(move: Move) -> z3.BoolRef:
    may_change = move.came_out("ACQUIRED", "RECOVERED", "TRANSITIONED", "ABANDONED")
    return z3.And(
        z3.Implies(z3.Not(may_change), z3.Not(move.changed)),
        z3.Implies(move.before.abandoned, z3.Implies(move.is_(Action.ABANDON), ~move.changed)),
    )


def _terminal_is_final(move: Move) -> z3.BoolRef:
    return z3.Implies(z3.And(move.existed, terminal(move.before)), z3.Not(move.changed))


def _what_expired_is_gone(move: Move) -> z3.BoolRef:
    now_ms, before = move.done.now_ms, move.before
    gone = z3.Or(z3.Not(before.remembered), now_ms >= before.state_expires_at_ms)
    return z3.If(
        gone,
        z3.If(
            move.is_(Action.CLAIM),
            z3.And(move.came_out("ACQUIRED"), move.after.state_expires_at_ms > now_ms),
            z3.And(move.came_out("CHECKPOINT_NOT_FOUND"), z3.Not(move.changed)),
        ),
        z3.Not(move.came_out("CHECKPOINT_NOT_FOUND")),
    )


def _time_never_runs_back(move: Move) -> z3.BoolRef:
    now_ms, before, after = move.done.now_ms, move.before, move.after
    return z3.And(
        now_ms >= move.clock_ms,
        z3.Implies(
            before.remembered,
            z3.And(now_ms >= before.changed_at_ms, after.changed_at_ms >= before.changed_at_ms),
        ),
        z3.Implies(move.changed, after.changed_at_ms == now_ms),
    )


def _no_observation_is_forgotten(move: Move) -> z3.BoolRef:
    before, after = move.before, move.after
    transitioned = move.came_out("TRANSITIONED")
    kept = before.observations[move.key] == after.observations[move.key]
    return z3.If(
        move.existed,
        z3.And(
            z3.Implies(before.observations[move.key] != BodySort.not_applied, kept),
            z3.Implies(z3.Not(transitioned), kept),
            after.observation_count == before.observation_count + z3.If(transitioned, 1, 0),
        ),
        z3.Implies(move.changed, after.observations[move.key] == BodySort.not_applied),
    )


def _an_observation_acts_once(move: Move) -> z3.BoolRef:
    request = move.request
    was, is_ = (each.observations[request.observation_key] for each in (move.before, move.after))
    known = z3.And(move.is_(Action.TRANSITION), move.existed, was != BodySort.not_applied)
    return z3.And(
        z3.Implies(
            known,
            z3.If(
                was == request.body,
                move.came_out("OBSERVATION_REPLAYED"),
                move.came_out("OBSERVATION_CONFLICT"),
            ),
        ),
        z3.Implies(
            move.came_out("TRANSITIONED"),
            z3.And(was == BodySort.not_applied, is_ == request.body),
        ),
    )


def _a_granted_generation_can_be_settled(move: Move) -> z3.BoolRef:
    # That its holder has a key left which was never applied is assumed: there are far
    # more of them than observations.
    before, now_ms = move.before, move.machine.now_ms(move.before, move.clock_ms)
    can = []
    for to_stage in SETTLED:
        steps = [
            move.machine.step(
                before,
                replace(
                    move.request,
                    action=ACTION[str(Action.TRANSITION)],
                    holder=before.holder,
                    generation=before.generation,
                    to_stage=STAGE[str(to_stage)],
                    observation_key=move.key,
                    evidence_type=EVIDENCE[str(evidence_type)],
                    evidence_fingerprint=FingerprintSort.no_fingerprint,
                ),
                move.clock_ms,
            )
            for evidence_type in EvidenceType
        ]
        can.append(
            z3.Or(
                [
                    z3.And(
                        done.outcome == OUTCOME["TRANSITIONED"],
                        settled(done.after.stage),
                        done.after.observation_count <= move.machine.limits.observations_max,
                    )
                    for done in steps
                ]
            )
        )
    return z3.Implies(
        z3.And(
            exists(before, now_ms),
            claim_active(before, now_ms),
            before.observations[move.key] == BodySort.not_applied,
        ),
        z3.And(can),
    )


def _a_repeat_changes_nothing_more(move: Move) -> z3.BoolRef:
    done, after, later_ms = move.done, move.after, move.other
    again = move.machine.step(after, move.request, later_ms)
    no_deadline_came = z3.And(
        [
            z3.Not(z3.And(done.now_ms < deadline_ms, deadline_ms <= later_ms))
            for deadline_ms in (after.claim_expires_at_ms, after.state_expires_at_ms)
        ]
    )
    now_reported = z3.If(
        move.came_out("ACQUIRED", "RECOVERED"),
        OUTCOME["REUSED"],
        z3.If(move.came_out("TRANSITIONED"), OUTCOME["OBSERVATION_REPLAYED"], done.outcome),
    )
    return z3.Implies(
        z3.And(later_ms >= move.clock_ms, no_deadline_came),
        z3.And(same(after, again.after), again.outcome == now_reported),
    )


def _what_the_rows_say_in_passing(move: Move) -> z3.BoolRef:
    before, done = move.before, move.done
    retried = z3.And(move.existed, may_be_retried(before))
    new_key = before.observations[move.request.observation_key] == BodySort.not_applied
    current = move.request.generation == before.generation
    return z3.And(
        # WC-CLAIM-7: "`failed` (so `retry_failed` is true)".
        z3.Implies(done.rule == RULE["WC-CLAIM-7"], before.retry_failed),
        # WC-TRANS-6 and WC-ABANDON-5: "so also `failed` that may be retried".
        z3.Implies(
            z3.And(retried, move.is_(Action.TRANSITION), new_key, current),
            done.rule == RULE["WC-TRANS-6"],
        ),
        z3.Implies(
            z3.And(retried, move.is_(Action.ABANDON), current),
            done.rule == RULE["WC-ABANDON-5"],
        ),
        # WC-ABANDON-4: "lapsed by an abandon".
        z3.Implies(done.rule == RULE["WC-ABANDON-4"], lapsed(before, done.now_ms)),
    )


STEPS: Final = (
    Steps(
        name="every_request_has_a_row",
        rules=("WC-IN-1",),
        holds=_every_request_has_a_row,
    ),
    Steps(
        name="one_holder_at_a_time",
        rules=("WC-CLAIM-5", "WC-CONC-2"),
        holds=_one_holder_at_a_time,
    ),
    Steps(
        name="generation_grows_by_one_and_only_by_an_acquired_claim",
        rules=("WC-CLAIM-1", "WC-CLAIM-7", "WC-CLAIM-8", "WC-CONC-2"),
        holds=_generation_grows_by_one_and_only_by_an_acquired_claim,
    ),
    Steps(
        name="only_the_entitled_change_a_record",
        rules=("WC-CLAIM-5", "WC-TRANS-6", "WC-ABANDON-5", "WC-TIME-2"),
        holds=_only_the_entitled_change_a_record,
    ),
    Steps(
        name="only_the_current_generation_moves",
        rules=("WC-TRANS-4", "WC-ABANDON-2"),
        holds=_only_the_current_generation_moves,
    ),
    Steps(
        name="an_acquired_claim_is_held",
        rules=("WC-CLAIM-1", "WC-CLAIM-7", "WC-CLAIM-8", "WC-TIME-3", "WC-VIEW-4"),
        holds=_an_acquired_claim_is_held,
    ),
    Steps(
        name="stage_moves_along_the_graph_or_by_a_claim",
        rules=("WC-GRAPH-1", "WC-GRAPH-2", "WC-GRAPH-3", "WC-CLAIM-7", "WC-CLAIM-8"),
        holds=_stage_moves_along_the_graph_or_by_a_claim,
    ),
    Steps(
        name="the_records_deadline_and_configuration_never_move",
        rules=("WC-TIME-3", "WC-CLAIM-1", "WC-CLAIM-3"),
        holds=_the_records_deadline_and_configuration_never_move,
    ),
    Steps(
        name="nothing_renews_a_claim",
        rules=("WC-TIME-3", "WC-CLAIM-4", "WC-TRANS-8", "WC-ABANDON-6"),
        holds=_nothing_renews_a_claim,
    ),
    Steps(
        name="refusals_and_observers_change_nothing",
        rules=("WC-CLAIM-4", "WC-TRANS-2", "WC-ABANDON-4", "WC-STATUS-2", "WC-IDEM-1"),
        holds=_refusals_and_observers_change_nothing,
    ),
    Steps(
        name="terminal_is_final",
        rules=("WC-CLAIM-2", "WC-TRANS-5", "WC-ABANDON-3"),
        holds=_terminal_is_final,
    ),
    Steps(
        name="what_expired_is_gone",
        rules=("WC-TIME-2", "WC-CLAIM-1", "WC-TRANS-1", "WC-ABANDON-1", "WC-STATUS-1"),
        holds=_what_expired_is_gone,
    ),
    Steps(
        name="time_never_runs_back",
        rules=("WC-TIME-4", "WC-CONC-1"),
        holds=_time_never_runs_back,
    ),
    Steps(
        name="no_observation_is_forgotten",
        rules=("WC-TRANS-2", "WC-TRANS-8"),
        holds=_no_observation_is_forgotten,
    ),
    Steps(
        name="an_observation_acts_once",
        rules=("WC-TRANS-2", "WC-TRANS-3", "WC-TRANS-8"),
        holds=_an_observation_acts_once,
    ),
    Steps(
        name="a_granted_generation_can_be_settled",
        rules=("WC-LIMIT-2",),
        holds=_a_granted_generation_can_be_settled,
    ),
    Steps(
        name="a_repeat_changes_nothing_more",
        rules=("WC-IDEM-1",),
        holds=_a_repeat_changes_nothing_more,
    ),
    Steps(
        name="what_the_rows_say_in_passing",
        rules=("WC-CLAIM-7", "WC-TRANS-6", "WC-ABANDON-4", "WC-ABANDON-5"),
        holds=_what_the_rows_say_in_passing,
    ),
)
"""What is true of every step from a record that can arise."""

Invariant = Always | Steps
INVARIANTS: Final[tuple[Invariant, ...]] = (*ALWAYS, *STEPS)
"""Everything that is proved."""
NAMED: Final = {invariant.name: invariant for invariant in INVARIANTS}
"""The same, by name."""
