"""Sequences that Hypothesis draws, each answer compared with the model, and shrunk when wrong.

Small pools, so that names collide: three holders, a few observation keys, generations that
are off by one, the clock moved to just before, at and just after the deadlines. The identities
are fresh in every sequence and no part of what is drawn, so a sequence means the same each
time it is sent.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from checkpoint_conformance.checks.drawing import by_its_rule, draw
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.controls import ControlError
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import LostError, TargetGoneError, ViolationError, fresh_key
from checkpoint_model import (
    MOVES,
    SETTLED,
    Abandon,
    Claim,
    EvidenceType,
    Request,
    Stage,
    Status,
    Transition,
)

_FINGERPRINTS: Final = (None, "sha256:" + "a" * 64, "sha256:" + "b" * 64)
_TO_STAGES: Final = tuple(stage for stage in Stage if stage is not Stage.CLAIMED)
_HOLDERS: Final = 3
_OBSERVATION_KEYS: Final = 4
_CLAIM_TTL_SECONDS: Final = (899, 900)
_STATE_TTL_SECONDS: Final = (1800, 3600)
_GENERATIONS_MAX: Final = 16
SEEDS_APART: Final = 1 << 32
"""Between the seeds of two shards: beyond the seeds that a run can have."""
SHARDS_AT_A_TIME: Final = 2
"""By so many lanes the time of the profile is shared out."""
EXAMPLES_SHARE_MIN: Final = 10
"""On a slow target one in so many of the profile's sequences must still be drawn."""


def stateful(run: Run) -> None:
    """Draw sequences until the profile's number is reached; every fault goes to the tally."""
    for shard in _shards_to_draw(run):
        _draw(run, shard)


def stateful_frozen(run: Run) -> None:
    """The same under a frozen clock, which the sequences move."""
    for shard in _shards_to_draw(run):
        with run.frozen():
            _draw(run, shard)


def _shards_to_draw(run: Run) -> Iterator[int]:
    """Every shard of the profile, until one finds a fault; or the one that the run is told."""
    if run.shard is not None:
        yield run.shard
        return
    for shard in range(run.profile.stateful_shards):
        if shard == 0 or not run.tally.failures:
            yield shard


def _draw(run: Run, shard: int) -> None:
    """Draw one shard of the sequences, by a seed of its own."""
    from hypothesis import seed
    from hypothesis.stateful import run_state_machine_as_test

    shards = run.profile.stateful_shards
    examples = run.profile.stateful_examples
    examples = examples * (shard + 1) // shards - examples * shard // shards
    # In a lane others are drawn at the same time.
    run.begin_drawing((1 if run.shard is None else min(SHARDS_AT_A_TIME, shards)) / shards)
    stopped: list[TargetGoneError | ControlError] = []
    machine, drawn = _machine(run, stopped, examples)
    seed(run.seed + shard * SEEDS_APART)(machine)
    draw(
        lambda settings: run_state_machine_as_test(machine, settings=settings),
        examples=examples,
        steps=run.profile.stateful_steps,
    )
    for why in stopped:
        raise why
    least = examples // EXAMPLES_SHARE_MIN
    within = f"in {run.drawing_seconds_max:g} s"
    if drawn() < least and not run.tally.failures:
        run.tally.leave_out(
            f"the target is slow: {within} only {drawn()} sequences were drawn, of at least "
            f"{least}; a larger profile gives them more time"
        )
    elif run.out_of_time:
        run.tally.remark(
            f"The target is slow: {within} {drawn()} of {examples} sequences were drawn."
        )


def _machine(
    run: Run, stopped: list[TargetGoneError | ControlError], examples: int
) -> tuple[type[Any], Callable[[], int]]:
    """The machine, and how many of its sequences were sent to their end."""
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

    frozen = isinstance(run.clock, FrozenClock)
    progress = {"examples": 0, "whole": 0}
    holders = st.integers(0, _HOLDERS - 1)
    # Mostly the right one: what is right leads on, what is wrong is refused.
    offsets = st.sampled_from([0, 0, 0, 0, -1, 1])
    evidence = st.none() | st.sampled_from(EvidenceType)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            progress["examples"] += 1
            run.progress.advance(min(progress["examples"], examples), examples)
            self.session = run.session()
            self.holders = [fresh_key("h") for _ in range(_HOLDERS)]
            self.keys = [fresh_key("o") for _ in range(_OBSERVATION_KEYS)]
            self.sent: list[Request] = []
            self.over = False

        # -- helpers ---------------------------------------------------------------------

        def send(self, request: Request) -> None:
            if self.over:
                return
            if stopped or run.out_of_time:
                self.over = True
                return
            try:
                self.session.send(request)
            except LostError:
                self.over = True  # nobody knows how this workflow stands
                return
            except (TargetGoneError, ControlError) as error:
                # Raised to Hypothesis it would count as one more failure to shrink.
                self.over = True
                stopped.append(error)
                return
            except ViolationError as error:
                run.tally.fail(error.failure)
                raise by_its_rule(error) from None
            self.sent.append(request)

        @property
        def generation(self) -> int:
            record = self.session.oracle.record
            return 1 if record is None else record.generation

        def near(self, offset: int) -> int:
            return min(max(self.generation + offset, 1), _GENERATIONS_MAX)

        def configured(self, holder: int) -> Claim:
            return Claim(
                holder=self.holders[holder],
                claim_ttl_seconds=self.claim_ttl_seconds,
                state_ttl_seconds=self.state_ttl_seconds,
                retry_failed=self.retry_failed,
            )

        def observation_key(self, number: int | None) -> str:
            return fresh_key("o") if number is None else self.keys[number]

        # -- what is drawn ---------------------------------------------------------------

        @initialize(
            holder=holders,
            claim_ttl_seconds=st.sampled_from(_CLAIM_TTL_SECONDS),
            state_ttl_seconds=st.sampled_from(_STATE_TTL_SECONDS),
            retry_failed=st.booleans(),
            claimed=st.sampled_from([True, True, True, False]),
        )
        def begin(
            self,
            holder: int,
            claim_ttl_seconds: int,
            state_ttl_seconds: int,
            retry_failed: bool,
            claimed: bool,
        ) -> None:
            self.claim_ttl_seconds = claim_ttl_seconds
            self.state_ttl_seconds = state_ttl_seconds
            self.retry_failed = retry_failed
            if claimed:
                self.send(self.configured(holder))

        @rule(holder=holders)
        def claim(self, holder: int) -> None:
            self.send(self.configured(holder))

        @rule(
            holder=holders,
            claim_ttl_seconds=st.sampled_from(_CLAIM_TTL_SECONDS),
            state_ttl_seconds=st.sampled_from(_STATE_TTL_SECONDS),
            retry_failed=st.booleans(),
        )
        def claim_configured_anew(
            self,
            holder: int,
            claim_ttl_seconds: int,
            state_ttl_seconds: int,
            retry_failed: bool,
        ) -> None:
            self.send(
                Claim(
                    holder=self.holders[holder],
                    claim_ttl_seconds=claim_ttl_seconds,
                    state_ttl_seconds=state_ttl_seconds,
                    retry_failed=retry_failed,
                )
            )

        @rule(
            holder=holders,
            offset=offsets,
            to_stage=st.sampled_from(_TO_STAGES),
            evidence_type=evidence,
            fingerprint=st.sampled_from(_FINGERPRINTS),
            key=st.integers(0, _OBSERVATION_KEYS - 1),
        )
        def transition(
            self,
            holder: int,
            offset: int,
            to_stage: Stage,
            evidence_type: EvidenceType | None,
            fingerprint: str | None,
            key: int,
        ) -> None:
            self.send(
                Transition(
                    holder=self.holders[holder],
                    generation=self.near(offset),
                    to_stage=to_stage,
                    observation_key=self.keys[key],
                    evidence_type=evidence_type,
                    evidence_fingerprint=fingerprint if evidence_type else None,
                )
            )

        @rule(
            pick=st.integers(0, 63),
            fingerprint=st.sampled_from(_FINGERPRINTS),
            key=st.none() | st.integers(0, _OBSERVATION_KEYS - 1),
        )
        def move_as_the_graph_allows(
            self, pick: int, fingerprint: str | None, key: int | None
        ) -> None:
            record = self.session.oracle.record
            if record is None or record.stage in SETTLED:
                return
            moves: list[tuple[Stage, EvidenceType | None]] = [
                (to_stage, kind)
                for to_stage, kinds in MOVES[record.stage].items()
                for kind in (*sorted(kinds),) or (None,)
            ]
            to_stage, evidence_type = moves[pick % len(moves)]
            self.send(
                Transition(
                    holder=record.holder,
                    generation=record.generation,
                    to_stage=to_stage,
                    observation_key=self.observation_key(key),
                    evidence_type=evidence_type,
                    evidence_fingerprint=fingerprint if evidence_type else None,
                )
            )

        @rule(holder=holders, offset=offsets)
        def abandon(self, holder: int, offset: int) -> None:
            self.send(Abandon(holder=self.holders[holder], generation=self.near(offset)))

        @rule()
        def abandon_as_the_holder(self) -> None:
            record = self.session.oracle.record
            if record is not None:
                self.send(Abandon(holder=record.holder, generation=record.generation))

        @rule(holder=st.none() | holders)
        def status(self, holder: int | None) -> None:
            self.send(Status(holder=None if holder is None else self.holders[holder]))

        @rule(back=st.sampled_from([1, 1, 1, 2, 3, 5, 8]))
        def repeat(self, back: int) -> None:
            if back <= len(self.sent):
                self.send(self.sent[-back])

        @rule(generations=st.sampled_from([1, 2, 15]), holder=holders)
        def lapse_again_and_again(self, generations: int, holder: int) -> None:
            for _ in range(generations):
                record = self.session.oracle.record
                if record is None or record.terminal or record.generation == _GENERATIONS_MAX:
                    return
                self.abandon_as_the_holder()
                self.send(self.configured(holder))
                if self.over:
                    return

        @precondition(lambda _: frozen)
        @rule(
            deadline=st.sampled_from(["claim", "claim", "state"]),
            offset_ms=st.sampled_from([-1, 0, 0, 1]),
        )
        def wait_for_a_deadline(self, deadline: str, offset_ms: int) -> None:
            record = self.session.oracle.record
            if record is None or self.over:
                return
            at_ms = (
                record.claim_expires_at_ms if deadline == "claim" else record.state_expires_at_ms
            )
            self.wait_until(at_ms + offset_ms)

        @precondition(lambda _: frozen)
        @rule(milliseconds=st.sampled_from([1, 999, 1000, 1001]))
        def wait_a_little(self, milliseconds: int) -> None:
            assert isinstance(run.clock, FrozenClock)
            if not self.over:
                self.wait_until(run.clock.now_ms + milliseconds)

        def wait_until(self, at_ms: int) -> None:
            assert isinstance(run.clock, FrozenClock)
            if self.over or at_ms <= run.clock.now_ms:
                return
            try:
                run.advance(at_ms - run.clock.now_ms, self.session)
            except LostError:
                self.over = True  # nobody knows where the clock stands
                stopped.append(TargetGoneError("the control POST /clock stopped answering"))
            except ControlError as error:
                self.over = True
                stopped.append(error)

        def teardown(self) -> None:
            if not self.over and not run.out_of_time:
                progress["whole"] += 1

    return Machine, lambda: progress["whole"]


CHECKS = (
    Check(
        name="stateful",
        title="Drawn sequences against the model",
        run=stateful,
        drawn_in_shards=True,
        seconds=10,
        only_without_controls=True,
    ),
    Check(
        name="stateful",
        title="Drawn sequences against the model, clock frozen",
        run=stateful_frozen,
        drawn_in_shards=True,
        seconds=10,
        needs_controls=True,
    ),
)
