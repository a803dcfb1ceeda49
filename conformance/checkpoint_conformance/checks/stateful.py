"""Sequences that Hypothesis draws, each answer compared with the model, and shrunk when wrong.

Small pools, so that names collide: three holders, a few observation keys, generations that
are off by one, the clock moved to just before, at and just after the deadlines. The identities
are fresh in every sequence and no part of what is drawn, so a sequence means the same each
time it is sent.

Hypothesis draws a sequence as one string of bytes, so many for each step, and a :class:`Dice`
reads choices off them. Drawn choice by choice, as Hypothesis' own state machines do it, the drawing
cost as much as sending and judging together. Zeros are the simplest: a step of zeros is none, so
shrinking takes steps out where it can and makes the others plain.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

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

T = TypeVar("T")
_FINGERPRINTS: Final = (None, "sha256:" + "a" * 64, "sha256:" + "b" * 64)
_TO_STAGES: Final = tuple(stage for stage in Stage if stage is not Stage.CLAIMED)
_HOLDERS: Final = range(3)
_OBSERVATION_KEYS: Final = range(4)
_OFFSETS: Final = (0, 0, 0, 0, -1, 1)
"""Mostly the right one: what is right leads on, what is wrong is refused."""
_EVIDENCE: Final = (*[None] * len(EvidenceType), *EvidenceType)
_CLAIM_TTL_SECONDS: Final = (899, 900)
_STATE_TTL_SECONDS: Final = (1800, 3600)
_GENERATIONS_MAX: Final = 16
_BEGINNING_BYTES: Final = 32
"""For how a sequence begins and what it is made of."""
_STEP_BYTES: Final = 8
"""For each of its steps."""
EXAMPLES_PER_BATCH: Final = 500
SEEDS_APART: Final = 1 << 32
"""Between the seeds of two batches: beyond the seeds that a run can have."""
EXAMPLES_SHARE_MIN: Final = 10
"""On a slow target one in so many of the profile's sequences must still be drawn."""


class Dice:
    """Choices that were drawn as bytes: each byte is one, and the first of what there is at zero.

    Raises:
        StopIteration: more is chosen than was drawn.
    """

    def __init__(self, drawn: bytes) -> None:
        self._faces = iter(drawn)

    def of(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[next(self._faces) % len(choices)]

    def face(self) -> int:
        """A byte as it is."""
        return next(self._faces)


Step: TypeAlias = "Callable[[Drawn, Dice], None]"


class Drawn:
    """One workflow, and the steps that a drawn sequence is made of.

    Args:
        run: the run.
        stopped: where what ends all drawing is put. Raised to Hypothesis it would count as one
            more failure to shrink.
    """

    def __init__(self, run: Run, stopped: list[TargetGoneError | ControlError]) -> None:
        self.run, self.stopped = run, stopped
        self.session = run.session()
        self.holders = [fresh_key("h") for _ in _HOLDERS]
        self.keys = [fresh_key("o") for _ in _OBSERVATION_KEYS]
        self.sent: list[Request] = []
        self.over = False

    def play(self, drawn: bytes) -> None:
        """Go through a sequence, to its end or until nobody knows how the workflow stands.

        Raises:
            ViolationError: an answer breaks a rule; the failure is in the tally.
        """
        dice = Dice(drawn[:_BEGINNING_BYTES])
        self.begin(dice)
        steps = self.STEPS
        if isinstance(self.run.clock, FrozenClock):
            steps += self.TIMED_STEPS
        # Of each sequence some kinds of steps are left out, of some nearly all: whatever takes
        # many of a kind in a row is rare where all kinds are mixed.
        rare = dice.face()
        steps = tuple(step for step in steps if dice.face() >= rare) or steps
        for at in range(_BEGINNING_BYTES, len(drawn), _STEP_BYTES):
            dice = Dice(drawn[at : at + _STEP_BYTES])
            kind = dice.face()
            if kind > 0 and not self.over:
                steps[(kind - 1) % len(steps)](self, dice)

    # -- helpers -----------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Send a request, or nothing once the sequence is over."""
        if self.over:
            return
        if self.stopped or self.run.out_of_time:
            self.over = True
            return
        try:
            self.session.send(request)
        except LostError:
            self.over = True  # nobody knows how this workflow stands
            return
        except (TargetGoneError, ControlError) as error:
            self.over = True
            self.stopped.append(error)
            return
        except ViolationError as error:
            self.run.tally.fail(error.failure)
            raise by_its_rule(error) from None
        self.sent.append(request)

    def near(self, offset: int) -> int:
        """The generation that the workflow is in, or one beside it."""
        record = self.session.oracle.record
        generation = 1 if record is None else record.generation
        return min(max(generation + offset, 1), _GENERATIONS_MAX)

    def configured(self, holder: int) -> Claim:
        """A claim with the configuration that the sequence began with."""
        return Claim(
            holder=self.holders[holder],
            claim_ttl_seconds=self.claim_ttl_seconds,
            state_ttl_seconds=self.state_ttl_seconds,
            retry_failed=self.retry_failed,
        )

    def wait_until(self, at_ms: int) -> None:
        """Move the clock on to a moment, where that is one to come."""
        assert isinstance(self.run.clock, FrozenClock)
        if at_ms <= self.run.clock.now_ms:
            return
        try:
            self.run.advance(at_ms - self.run.clock.now_ms, self.session)
        except LostError:
            self.over = True  # nobody knows where the clock stands
            self.stopped.append(TargetGoneError("the control POST /clock stopped answering"))
        except ControlError as error:
            self.over = True
            self.stopped.append(error)

    # -- what is drawn -----------------------------------------------------------------------

    def begin(self, dice: Dice) -> None:
        """Choose a configuration, and mostly claim the workflow."""
        holder = dice.of(_HOLDERS)
        self.claim_ttl_seconds = dice.of(_CLAIM_TTL_SECONDS)
        self.state_ttl_seconds = dice.of(_STATE_TTL_SECONDS)
        self.retry_failed = dice.of((False, True))
        if dice.of((True, True, True, False)):
            self.send(self.configured(holder))

    def claim(self, dice: Dice) -> None:
        """A claim by anybody."""
        self.send(self.configured(dice.of(_HOLDERS)))

    def claim_configured_anew(self, dice: Dice) -> None:
        """A claim that is configured as it may be."""
        self.send(
            Claim(
                holder=self.holders[dice.of(_HOLDERS)],
                claim_ttl_seconds=dice.of(_CLAIM_TTL_SECONDS),
                state_ttl_seconds=dice.of(_STATE_TTL_SECONDS),
                retry_failed=dice.of((False, True)),
            )
        )

    def transition(self, dice: Dice) -> None:
        """Any transition."""
        evidence_type, fingerprint = dice.of(_EVIDENCE), dice.of(_FINGERPRINTS)
        self.send(
            Transition(
                holder=self.holders[dice.of(_HOLDERS)],
                generation=self.near(dice.of(_OFFSETS)),
                to_stage=dice.of(_TO_STAGES),
                observation_key=self.keys[dice.of(_OBSERVATION_KEYS)],
                evidence_type=evidence_type,
                evidence_fingerprint=fingerprint if evidence_type else None,
            )
        )

    def move_as_the_graph_allows(self, dice: Dice) -> None:
        """A transition that is right, where there is one."""
        record = self.session.oracle.record
        if record is None or record.stage in SETTLED:
            return
        moves: list[tuple[Stage, EvidenceType | None]] = [
            (to_stage, kind)
            for to_stage, kinds in MOVES[record.stage].items()
            for kind in (*sorted(kinds),) or (None,)
        ]
        to_stage, evidence_type = dice.of(moves)
        fingerprint, known = dice.of(_FINGERPRINTS), dice.of((False, True))
        self.send(
            Transition(
                holder=record.holder,
                generation=record.generation,
                to_stage=to_stage,
                observation_key=dice.of(self.keys) if known else fresh_key("o"),
                evidence_type=evidence_type,
                evidence_fingerprint=fingerprint if evidence_type else None,
            )
        )

    def abandon(self, dice: Dice) -> None:
        """An abandon by anybody."""
        holder = self.holders[dice.of(_HOLDERS)]
        self.send(Abandon(holder=holder, generation=self.near(dice.of(_OFFSETS))))

    def abandon_as_the_holder(self, _: Dice) -> None:
        """An abandon that is right, where the claim is active."""
        record = self.session.oracle.record
        if record is not None:
            self.send(Abandon(holder=record.holder, generation=record.generation))

    def status(self, dice: Dice) -> None:
        """A status by anybody or nobody."""
        named, holder = dice.of((False, True)), dice.of(self.holders)
        self.send(Status(holder=holder if named else None))

    def repeat(self, dice: Dice) -> None:
        """A request that was sent before, once more."""
        back = dice.of((1, 1, 1, 2, 3, 5, 8))
        if back <= len(self.sent):
            self.send(self.sent[-back])

    def lapse_again_and_again(self, dice: Dice) -> None:
        """Some generations, each abandoned and claimed anew; perhaps up to the last."""
        generations, holder = dice.of((1, 2, 2, 15)), dice.of(_HOLDERS)
        for _ in range(generations):
            record = self.session.oracle.record
            if record is None or record.terminal or record.generation == _GENERATIONS_MAX:
                return
            self.abandon_as_the_holder(dice)
            self.send(self.configured(holder))
            if self.over:
                return

    def wait_for_a_deadline(self, dice: Dice) -> None:
        """Move to a deadline, or a millisecond before or after it."""
        record = self.session.oracle.record
        if record is None:
            return
        deadline, offset_ms = dice.of(("claim", "claim", "state")), dice.of((0, 0, -1, 1))
        at_ms = record.claim_expires_at_ms if deadline == "claim" else record.state_expires_at_ms
        self.wait_until(at_ms + offset_ms)

    def wait_a_little(self, dice: Dice) -> None:
        """Move on by a second or so."""
        assert isinstance(self.run.clock, FrozenClock)
        self.wait_until(self.run.clock.now_ms + dice.of((1, 999, 1000, 1001)))

    STEPS: Final[tuple[Step, ...]] = (
        status,
        repeat,
        claim,
        abandon_as_the_holder,
        abandon,
        claim_configured_anew,
        move_as_the_graph_allows,
        move_as_the_graph_allows,
        transition,
        transition,
        lapse_again_and_again,
    )
    """The plainest first; twice what can go wrong in more ways."""
    TIMED_STEPS: Final[tuple[Step, ...]] = (wait_for_a_deadline, wait_a_little)
    """Those that take a clock which stands still."""


def stateful(run: Run) -> None:
    """Draw sequences until the profile's number is reached; every fault goes to the tally."""
    from hypothesis import given, seed
    from hypothesis import strategies as st

    run.begin_drawing()
    stopped: list[TargetGoneError | ControlError] = []
    begun, whole = 0, 0
    total = run.profile.stateful_examples

    def play(drawn: bytes) -> None:
        nonlocal begun, whole
        begun += 1
        run.progress.advance(min(begun, total), total)
        sequence = Drawn(run, stopped)
        sequence.play(drawn)
        whole += not sequence.over and not run.out_of_time

    size = _BEGINNING_BYTES + run.profile.stateful_steps * _STEP_BYTES
    for batch, examples in enumerate(_batches(total)):
        drawn = seed(run.seed + batch * SEEDS_APART)(
            given(st.binary(min_size=size, max_size=size))(play)
        )
        draw(drawn, examples=examples)
        if stopped or run.tally.failures or run.out_of_time:
            break
    for why in stopped:
        raise why
    least = total // EXAMPLES_SHARE_MIN
    if whole < least and not run.tally.failures:
        run.tally.leave_out(
            f"the target is slow: in {run.profile.drawing_seconds_max:g} s only {whole} "
            f"sequences were drawn, of at least {least}; a larger profile gives them more time"
        )
    elif run.out_of_time:
        run.tally.remark(f"The target is slow: {whole} of {total} sequences were drawn.")


def _batches(examples: int) -> Iterator[int]:
    """So many at a time: Hypothesis remembers all that it drew, and forgets it after a run."""
    while examples > 0:
        yield min(examples, EXAMPLES_PER_BATCH)
        examples -= EXAMPLES_PER_BATCH


def stateful_frozen(run: Run) -> None:
    """The same under a frozen clock, which the sequences move."""
    with run.frozen():
        stateful(run)


CHECKS = (
    Check(
        name="stateful",
        title="Drawn sequences against the model",
        run=stateful,
        only_without_controls=True,
    ),
    Check(
        name="stateful",
        title="Drawn sequences against the model, clock frozen",
        run=stateful_frozen,
        needs_controls=True,
    ),
)
