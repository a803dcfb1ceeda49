"""Exhaustive exploration of small worlds: every request in every state that can arise.

Rule 1: what is explored is the real :func:`checkpoint_model.machine.step`, handed the world's
limits, or whatever is given in its place.
Rule 2: breadth first, so the first violation found is one that no shorter sequence reaches.
Rule 3: what is left out of a state is listed here, with the reason why nothing is lost.

A state is a record together with the present, and the present is always ``NOW_MS``: what is
kept is how much time is left, not when. Left out of a state are

- how long ago a deadline passed, beyond one millisecond: the machine compares deadlines with the
  present and does nothing else with one that has passed;
- when the record last changed: the machine only asks whether that lies in the future, and here
  time moves forwards. Every stored record says ``NOW_MS - 1``. A world in which the clock may read
  less than it did (``clock_steps_back``) keeps whether the last change was at this very instant;
- in a world with ``remembered_generations``, whatever :meth:`World.canonical` describes.

Time moves only to where something can turn: one millisecond before, at and after each deadline.
Between two such instants no comparison of the machine changes its result.

How transitions are counted: one for every request in every state, also where it is refused and
leads back to the same state; one for every instant that time can move to, for each deadline of
its own, so that two deadlines which coincide count twice; one where an expired record may be
cleared away. A state is counted once, the empty one included. Murphi's ``rumur`` counts states
and rules fired in the same way (``model/murphi``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from operator import attrgetter
from time import perf_counter
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias

from checkpoint_model.invariants import (
    ALWAYS,
    DECISION_ROWS,
    ON_STEPS,
    SOMETIMES,
    Invariant,
    Sometimes,
)
from checkpoint_model.machine import (
    Abandon,
    Claim,
    Record,
    Request,
    Status,
    Step,
    Success,
    Transition,
    TransitionBody,
    step,
)
from checkpoint_model.vocabulary import EvidenceType, Limits, Stage

NOW_MS: Final = 1_000_000_000_000
"""The present of every state, in milliseconds."""
_PAST_MS: Final = NOW_MS - 1
"""Stands for every moment before the present."""
_TWO_GENERATIONS: Final = Limits(generations=2, observations=4)
CLOCK_BACK_MS: Final = 500
"""How far back the clock reads in a world where it may."""


# -- Worlds -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What a claim brings: its lifetimes in seconds, and whether a failure may be retried."""

    claim_ttl_seconds: int
    state_ttl_seconds: int
    retry_failed: bool


@dataclass(frozen=True, kw_only=True)
class World:
    """What there is to explore. Every combination of its members is sent in every state.

    Raises:
        ValueError: a claim that section 3 would refuse, or an abstraction that is none.
    """

    name: str
    sentence: str
    """What it is for."""
    holders: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    observation_keys: tuple[str, ...]
    evidence: tuple[EvidenceType, ...]
    """Sent with every transition, beside none."""
    fingerprints: tuple[str, ...] = ()
    """Sent with every evidence type, beside none."""
    limits: Limits = _TWO_GENERATIONS
    time_advances: bool = True
    instants_ms: tuple[int, ...] = (-1, 0, 1)
    """Where time can move to, relative to a deadline."""
    clock_steps_back: bool = False
    """Whether the clock may also read less than when the record last changed (WC-TIME-4)."""
    remembered_generations: int | None = None
    """How many generations' observations a state keeps in full; None keeps all. See
    :meth:`canonical`."""
    takes_minutes: bool = False
    """Whether to leave it for when somebody asks for it."""
    out_of_reach: tuple[str, ...] = ()
    """Goals that this world cannot reach, as shell patterns of their names."""
    _sent: dict[tuple[int, int], tuple["Sent", ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse worlds that would explore requests which cannot arrive."""
        for configuration in self.configurations:
            if configuration.claim_ttl_seconds >= configuration.state_ttl_seconds:
                raise ValueError(f"{self.name}: a claim as long as its record (WC-IN-5)")
        remembered = self.remembered_generations
        if remembered is not None and len(self.observation_keys) <= 2 * remembered:
            raise ValueError(
                f"{self.name}: {remembered} generations make {2 * remembered} observations, and a "
                "fresh key must be left for the next"
            )
        if remembered is not None and remembered < 1:
            raise ValueError(f"{self.name}: the current generation's observations must be kept")

    def sent(self, record: Record | None) -> tuple["Sent", ...]:
        """Every request of this world, as it is sent in this state.

        All of them in every state, but where older generations are forgotten: there the
        generations named are the last, this and the next one, and the keys those in sight and
        one fresh one (see :meth:`canonical`).
        """
        behind = self.clock_steps_back and record is not None and record.changed_at_ms == NOW_MS
        if self.remembered_generations is None:
            shape = (0, 0)
        elif record is None:
            shape = (1, 0)
        else:
            remembered = self._remembered(record.generation, record.observations)
            shape = (record.generation, len(remembered))
        known = self._sent.get(shape)
        if known is None:
            known = self._sent[shape] = tuple(Sent(request=r) for r in self._requests(*shape))
        if behind:
            return known + tuple(replace(sent, clock_back_ms=CLOCK_BACK_MS) for sent in known)
        return known

    def canonical(self, record: Record) -> Record:
        """The one state that stands for this record, as it is at ``NOW_MS``.

        Where ``remembered_generations`` is n, two more things are merged, so that a world with the
        contract's own limits of 16 generations and 32 observations is small enough:

        1. *Observation keys are named in the order of their use.* The machine compares keys for
           equality and does nothing else with them, so to rename them throughout renames the
           steps and changes no row. One key that no observation has stands for all such.
        2. *Observations of generations before the last n are kept as a number.* They are
           replaced by as many of one agreed history, under keys that no request has. A request
           under a replaced key is therefore not sent; it would be a replay or a conflict, which
           changes nothing. For every other request the machine finds the key, or does not, just
           as before, and looks at the observations no further. So whatever changes a concrete
           record changes its canonical one likewise, and every canonical record stands for some
           concrete one.

        And of the generations that a request may name, the last, this and the next one stand for
        all: the machine compares the number with the record's and those in sight, for equality.
        What such a world cannot show is a replay or a conflict under a replaced key.
        """
        observations = record.observations
        if self.remembered_generations is not None:
            kept = self._remembered(record.generation, observations)
            forgotten = len(observations) - len(kept)
            observations = (
                *_agreed_history(forgotten),
                *((self.observation_keys[n], body) for n, (_key, body) in enumerate(kept)),
            )
        changed_at_ms = _PAST_MS
        if self.clock_steps_back and record.changed_at_ms >= NOW_MS:
            changed_at_ms = NOW_MS
        return replace(
            record,
            claim_expires_at_ms=max(record.claim_expires_at_ms, _PAST_MS),
            state_expires_at_ms=max(record.state_expires_at_ms, _PAST_MS),
            changed_at_ms=changed_at_ms,
            observations=observations,
        )

    def _remembered(self, generation: int, observations: "_Observations") -> "_Observations":
        if self.remembered_generations is None:
            return observations
        oldest = generation - self.remembered_generations + 1
        return tuple(
            (key, body)
            for key, body in observations
            if body[1] >= oldest and not key.startswith(_FORGOTTEN)
        )

    def _requests(self, generation: int, keys_in_sight: int) -> Iterator[Request]:
        generations: Sequence[int] = range(1, self.limits.generations + 1)
        keys = self.observation_keys
        if self.remembered_generations is not None:
            generations = [g for g in generations if abs(g - generation) <= 1]
            keys = keys[: keys_in_sight + 1]
        evidence: list[tuple[EvidenceType | None, str | None]] = [(None, None)]
        evidence += product(self.evidence, (None, *self.fingerprints))
        for holder, configuration in product(self.holders, self.configurations):
            yield Claim(
                holder=holder,
                claim_ttl_seconds=configuration.claim_ttl_seconds,
                state_ttl_seconds=configuration.state_ttl_seconds,
                retry_failed=configuration.retry_failed,
            )
        targets = [stage for stage in Stage if stage is not Stage.CLAIMED]
        for holder, number, stage, key, (kind, fingerprint) in product(
            self.holders, generations, targets, keys, evidence
        ):
            yield Transition(
                holder=holder,
                generation=number,
                to_stage=stage,
                observation_key=key,
                evidence_type=kind,
                evidence_fingerprint=fingerprint,
            )
        for holder, number in product(self.holders, generations):
            yield Abandon(holder=holder, generation=number)
        yield Status()
        for holder in self.holders:
            yield Status(holder=holder)


_Observations: TypeAlias = tuple[tuple[str, TransitionBody], ...]
_FORGOTTEN: Final = "forgotten-"


def _agreed_history(length: int) -> _Observations:
    """One history of so many observations, two to a generation, as a graph of failures makes it."""
    return tuple(
        (
            f"{_FORGOTTEN}{number}",
            (_FORGOTTEN, number // 2 + 1, Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE, None)
            if number % 2
            else (_FORGOTTEN, number // 2 + 1, Stage.UNCERTAIN, None, None),
        )
        for number in range(length)
    )


# -- What happens in a world --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A request arrives while the clock reads so many milliseconds less than the time."""

    request: Request
    clock_back_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Advanced:
    """Time moves on, to so many milliseconds after (or before) a deadline."""

    deadline: Literal["claim", "record"]
    offset_ms: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """The store clears away a record that has expired (WC-PRIV-3)."""


Event: TypeAlias = Sent | Advanced | Cleared


class StepFunction(Protocol):
    """Anything with the signature of :func:`checkpoint_model.machine.step`."""

    def __call__(
        self, record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
    ) -> Step:
        """Decide one request."""


def passing(
    world: World, record: Record | None
) -> Iterator[tuple[Advanced | Cleared, Record | None]]:
    """Where time alone can lead from a state: the event and the state after it."""
    if record is None or not world.time_advances:
        return
    deadlines: tuple[tuple[Literal["claim", "record"], int], ...] = (
        ("claim", record.claim_expires_at_ms - NOW_MS),
        ("record", record.state_expires_at_ms - NOW_MS),
    )
    for deadline, left_ms in deadlines:
        for offset_ms in world.instants_ms:
            elapsed_ms = left_ms + offset_ms
            # A deadline that has passed by a millisecond or more is behind us for good.
            if left_ms >= 0 and elapsed_ms > 0:
                event = Advanced(deadline=deadline, offset_ms=offset_ms, elapsed_ms=elapsed_ms)
                yield (
                    event,
                    replace(
                        record,
                        claim_expires_at_ms=max(record.claim_expires_at_ms - elapsed_ms, _PAST_MS),
                        state_expires_at_ms=max(record.state_expires_at_ms - elapsed_ms, _PAST_MS),
                        changed_at_ms=_PAST_MS,
                    ),
                )
    if record.state_expires_at_ms <= NOW_MS:
        yield Cleared(), None


# -- What an exploration finds ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """One event of a path: when, from what to what, and the step where a request was decided."""

    elapsed_ms: int
    """Since the path began."""
    event: Event
    before: Record | None
    after: Record | None
    step: Step | None

    def __str__(self) -> str:
        """One line for people to read."""
        return f"at {self.elapsed_ms} ms: {_told(self)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Counterexample:
    """A shortest sequence of events whose last one breaks an invariant."""

    invariant: Invariant
    moments: tuple[Moment, ...]

    def __str__(self) -> str:
        """The invariant with its rules, then the numbered sequence."""
        rules = ", ".join(_ranges(self.invariant.rules))
        lines = [f"{self.invariant.name} is broken: {self.invariant.sentence} ({rules})"]
        lines += [f"{number:3}. {moment}" for number, moment in enumerate(self.moments, start=1)]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far an exploration has come."""

    states: int
    transitions: int
    depth: int
    waiting: int
    """States found whose transitions have not been taken yet."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Space:
    """The states that were found, in the order of finding, and how each was reached first."""

    world: World
    states: tuple[Record | None, ...]
    parents: tuple[tuple[int, Event], ...]
    """Of each state but the first: the state before it, and what happened."""

    def events(self, index: int) -> tuple[Event, ...]:
        """A shortest sequence of events to the state of that index."""
        path: list[Event] = []
        while index:
            index, event = self.parents[index - 1]
            path.append(event)
        return tuple(reversed(path))


@dataclass(frozen=True, kw_only=True, slots=True)
class Exploration:
    """What was found. An exploration that met a violation stopped there."""

    world: World
    states: int
    transitions: int
    depth: int
    """Events on the way to the state that is furthest from the empty one."""
    seconds: float
    rows: Mapping[str, int]
    """How many transitions each decision row decided."""
    hit: tuple[str, ...]
    missed: tuple[str, ...]
    """The goals of ``SOMETIMES`` that were reached, and those that were not."""
    counterexample: Counterexample | None
    space: Space = field(repr=False)

    @property
    def promised(self) -> tuple[str, ...]:
        """The goals that the world does not call out of reach."""
        patterns = self.world.out_of_reach
        return tuple(
            goal.name
            for goal in SOMETIMES
            if not any(fnmatchcase(goal.name, pattern) for pattern in patterns)
        )

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Promised goals that were missed, and reached ones that are called out of reach."""
        promised = frozenset(self.promised)
        return (
            *(f"missed: {name}" for name in self.missed if name in promised),
            *(f"called out of reach, yet reached: {n}" for n in self.hit if n not in promised),
        )

    @property
    def passed(self) -> bool:
        """No invariant broken, and the goals reached are those that the world promises."""
        return self.counterexample is None and not self.shortfalls


# -- The exploration ----------------------------------------------------------------------

_PROGRESS_EVERY: Final = 1024
_state_of: Final = attrgetter(
    "stage",
    "generation",
    "holder",
    "claim_expires_at_ms",
    "state_expires_at_ms",
    "claim_ttl_seconds",
    "state_ttl_seconds",
    "retry_failed",
    "abandoned",
    "evidence_type",
    "evidence_fingerprint_present",
    "observations",
)


def explore(
    world: World,
    *,
    step: StepFunction = step,
    on_progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Visit every state of a world, and try every invariant on every state and step.

    Args:
        world: what is sent and how time passes.
        step: the machine, or another in its place.
        on_progress: called about every thousand states, and once at the end.

    Returns:
        Counts, goals, and a shortest counterexample where an invariant is broken.
    """
    began = perf_counter()
    limits = world.limits
    always = tuple((invariant, invariant.holds) for invariant in ALWAYS)
    on_steps = tuple((invariant, invariant.holds) for invariant in ON_STEPS)
    exact = world.remembered_generations is None and not world.clock_steps_back

    def identify(record: Record | None) -> object:
        if record is None:
            return None
        state: tuple[object, ...] = _state_of(record)
        return (*state, record.changed_at_ms) if world.clock_steps_back else state

    states: list[Record | None] = [None]
    parents: list[tuple[int, Event]] = []
    found: dict[object, int] = {None: 0}
    rows = dict.fromkeys(DECISION_ROWS, 0)
    pending: dict[str, list[Sometimes]] = {rule: [] for rule in DECISION_ROWS}
    for goal in SOMETIMES:
        for rule in goal.on:
            pending[rule].append(goal)
    hit: set[str] = set()
    transitions = 0
    depth = 0
    level_ends = 1

    def finish(
        broken: Invariant | None = None, source: int = 0, event: Event | None = None
    ) -> Exploration:
        space = Space(world=world, states=tuple(states), parents=tuple(parents))
        counterexample = None
        if broken is not None and event is not None:
            events = (*space.events(source), event)
            counterexample = Counterexample(
                invariant=broken, moments=replay(world, events, step=step)
            )
        if on_progress is not None:
            on_progress(progress())
        return Exploration(
            world=world,
            states=len(states),
            transitions=transitions,
            depth=depth,
            seconds=perf_counter() - began,
            rows=MappingProxyType(rows),
            hit=tuple(goal.name for goal in SOMETIMES if goal.name in hit),
            missed=tuple(goal.name for goal in SOMETIMES if goal.name not in hit),
            counterexample=counterexample,
            space=space,
        )

    def progress() -> Progress:
        return Progress(
            states=len(states),
            transitions=transitions,
            depth=depth,
            waiting=len(states) - index - 1,
            seconds=perf_counter() - began,
        )

    def broken_by(record: Record) -> Invariant | None:
        for invariant, holds in always:
            if not holds(record, NOW_MS, limits):
                return invariant
        return None

    index = -1
    while index + 1 < len(states):
        index += 1
        if index == level_ends:
            depth += 1
            level_ends = len(states)
        if on_progress is not None and index % _PROGRESS_EVERY == 0:
            on_progress(progress())
        before = states[index]

        for sent in world.sent(before):
            request = sent.request
            now_ms = NOW_MS - sent.clock_back_ms
            done = step(before, request, now_ms, limits=limits)
            transitions += 1
            for invariant, holds_on in on_steps:
                if not holds_on(before, request, now_ms, done, limits):
                    return finish(invariant, index, sent)
            rule = done.rule
            rows[rule] += 1
            goals = pending[rule]
            if goals:
                for goal in tuple(goals):
                    if goal.name in hit or goal.reached(before, request, now_ms, done, limits):
                        hit.add(goal.name)
                        goals.remove(goal)
            after = done.record
            if after is before or after is None:
                continue
            # A correct step leaves an exact world's record canonical but for `changed_at_ms`, so
            # the lookup comes first and the copy is made once per state, not once per step.
            if not exact:
                canonical = world.canonical(after)
                key = identify(canonical)
                if key in found:
                    continue
            else:
                key = _state_of(after)
                if key in found:
                    continue
                canonical = world.canonical(after)
                key = _state_of(canonical)
                if key in found:
                    continue
            if (violated := broken_by(after) or broken_by(canonical)) is not None:
                return finish(violated, index, sent)
            found[key] = len(states)
            states.append(canonical)
            parents.append((index, sent))

        for event, later in passing(world, before):
            transitions += 1
            key = identify(later)
            if key in found:
                continue
            if later is not None and (violated := broken_by(later)) is not None:
                return finish(violated, index, event)
            found[key] = len(states)
            states.append(later)
            parents.append((index, event))

    return finish()


def replay(
    world: World, events: Sequence[Event], *, step: StepFunction = step
) -> tuple[Moment, ...]:
    """Walk a sequence of events from the empty state, through canonical states."""
    record: Record | None = None
    elapsed_ms = 0
    moments = []
    for event in events:
        before, done = record, None
        if isinstance(event, Sent):
            done = step(before, event.request, NOW_MS - event.clock_back_ms, limits=world.limits)
            record = None if done.record is None else world.canonical(done.record)
        else:
            record = next(later for other, later in passing(world, before) if other == event)
            elapsed_ms += event.elapsed_ms if isinstance(event, Advanced) else 0
        moments.append(
            Moment(elapsed_ms=elapsed_ms, event=event, before=before, after=record, step=done)
        )
    return tuple(moments)


# -- In words -----------------------------------------------------------------------------


def _told(moment: Moment) -> str:
    match moment.event:
        case Advanced(deadline=deadline, offset_ms=offset_ms, elapsed_ms=elapsed_ms):
            where = {-1: "1 ms before ", 0: "", 1: "1 ms after "}.get(
                offset_ms, f"{offset_ms:+} ms from "
            )
            whose = "the claim's end" if deadline == "claim" else "the record's end"
            return f"{elapsed_ms} ms have passed, to {where}{whose}"
        case Cleared():
            return "the expired record is cleared away"
        case Sent(request=request, clock_back_ms=clock_back_ms):
            assert moment.step is not None
            clock = f", the clock {clock_back_ms} ms behind" if clock_back_ms else ""
            outcome = moment.step.outcome
            answer = outcome.name.lower() if isinstance(outcome, Success) else str(outcome)
            return (
                f"{_asked(request)}{clock}: {answer} by {moment.step.rule}; "
                f"{_standing(moment.step.record)}"
            )


def _asked(request: Request) -> str:
    match request:
        case Claim(holder=holder, claim_ttl_seconds=claim, state_ttl_seconds=state):
            retry = "may" if request.retry_failed else "may not"
            return f"{holder} claims for {claim} s of {state} s, failures {retry} be retried"
        case Transition(holder=holder, generation=generation, to_stage=stage):
            evidence = request.evidence_type or "no evidence"
            printed = ", fingerprint" if request.evidence_fingerprint is not None else ""
            return (
                f"{holder} moves generation {generation} to {stage} under key "
                f"{request.observation_key} with {evidence}{printed}"
            )
        case Abandon(holder=holder, generation=generation):
            return f"{holder} abandons generation {generation}"
        case Status(holder=holder):
            return f"{holder or 'somebody'} asks"


def _standing(record: Record | None) -> str:
    if record is None:
        return "nothing is stored"
    claim_ms = record.claim_expires_at_ms - NOW_MS
    claim = f"claim of {record.holder} for {claim_ms} ms"
    if record.stage not in (Stage.CLAIMED, Stage.UNCERTAIN):
        claim = f"last held by {record.holder}"
    elif claim_ms <= 0:
        claim = f"claim of {record.holder} over"
    left_ms = record.state_expires_at_ms - NOW_MS
    evidence = f", evidence {record.evidence_type}" if record.evidence_type else ""
    return (
        f"{record.stage} in generation {record.generation}{evidence}, {claim}, "
        f"record {f'for {left_ms} ms' if left_ms > 0 else 'over'}, "
        f"{len(record.observations)} observed"
    )


def _ranges(rules: Sequence[str]) -> Iterator[str]:
    """Rules one after the other as the contract writes them: ``WC-TRANS-1 … WC-TRANS-8``."""
    runs: list[list[str]] = []
    for rule in rules:
        table, _, number = rule.rpartition("-")
        if runs and runs[-1][-1] == f"{table}-{int(number) - 1}":
            runs[-1].append(rule)
        else:
            runs.append([rule])
    for run in runs:
        yield run[0] if len(run) == 1 else f"{run[0]} … {run[-1]}"
