"""The storms: what contenders do to one workflow at once, and to many.

    claim      N claims of a new workflow           one is acquired
    recovery   N claims of a lapsed claim           one takes over: generation + 1, uncertain
    retry      N claims of a failed workflow that   one is acquired: generation + 1, claimed
               may be retried
    replay     one transition, sent N times         one is transitioned, the others replayed
    conflict   N bodies under one observation key   one is applied, the others refused
    hand-over  an abandon, transitions and claims   whatever one order of them explains
               at the deadline and before it
    mixed      everything, on many workflows        whatever one order of it explains

What the right-hand column says is not decided here: histories are judged by the model. A storm
only makes traffic, and looks at answers no further than it needs to go on.

Each is played round by round, on workflows that nobody has used. Rounds are prepared some at a
time, so that they wait for their deadlines together: claims last a second at least.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeVar

from checkpoint_conformance.session import fresh_identity, fresh_key
from checkpoint_load.arena import SETUP, Arena, Ask, Told
from checkpoint_model import (
    CONTRACT_LIMITS,
    MOVES,
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Identity,
    Request,
    Stage,
    Status,
    Transition,
)

BATCH: Final = 10
"""So many rounds are prepared together."""
STORM: Final = "storm"
"""The burst of a round in which all contend."""
LAPSE_SECONDS: Final = 1
"""The shortest claim that there is (section 3)."""
LAPSE_MARGIN_NS: Final = 20_000_000
"""Added to the deadline where a claim is to have lapsed whatever the resolution of clocks."""
HAND_OVER_GAP_NS: Final = 150_000_000
"""Between the deadlines of rounds that were prepared together: each takes about a tenth of it."""
HAND_OVER_EARLY_NS: Final = 4_000_000
"""A hand-over is released up to so much before the deadline, where a burst takes no longer."""
CONTENDERS_PER_WORKFLOW: Final = 10
"""In the mixed storm."""
MIXED_STEPS: Final = 5
"""Bursts of a round of the mixed storm."""
MIXED_STEP_NS: Final = 60_000_000
"""Between them: a round takes a third of a second, so that deadlines pass within a few."""
MIXED_LIFE_ROUNDS: Final = 8
"""After so many rounds a workflow of the mixed storm is left, and a new one follows."""
MIXED_TERMINAL_ROUNDS: Final = 2
"""So many rounds after it was seen to be terminal already."""
_LONG_SECONDS: Final = 60
_STATE_SECONDS: Final = 600
_SECOND_NS: Final = 1_000_000_000
_REMEMBERED: Final = 16
Item = TypeVar("Item")


Player = Callable[[Iterable[int]], None]
"""Plays some rounds, given by their numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Storm:
    """One kind of traffic."""

    name: str
    title: str
    player: Callable[[Arena], Player]
    flag: str | None = None
    """The member of a result that the winner of a round has; None where there need not be one."""
    drops_answers: bool = False
    """Whether answers may be dropped on purpose."""


def play(storm: Storm, arena: Arena, rounds_max: int) -> None:
    """Play rounds until there were so many, the time is over, or the arena was stopped."""
    player = storm.player(arena)
    numbers = iter(range(rounds_max))
    while not arena.over:
        batch = list(itertools.islice(numbers, BATCH))
        if not batch:
            return
        player(batch)


# -- What they are made of --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scene:
    """A round that is prepared: a workflow with a holder."""

    number: int
    identity: Identity
    claim: Claim
    lapses_at_ns: int
    """By our clock, and no earlier than by the store's."""


def _claim(*, ttl: int = _LONG_SECONDS, retry: bool = False) -> Claim:
    return Claim(
        holder=fresh_key("h"),
        claim_ttl_seconds=ttl,
        state_ttl_seconds=_STATE_SECONDS,
        retry_failed=retry,
    )


def _as_another(claim: Claim) -> Claim:
    """The same by another holder."""
    return replace(claim, holder=fresh_key("h"))


def _settle(claim: Claim, stage: Stage, evidence: EvidenceType | None, key: str = "") -> Transition:
    return Transition(
        holder=claim.holder,
        generation=1,
        to_stage=stage,
        observation_key=key or fresh_key("o"),
        evidence_type=evidence,
    )


def _claimed(arena: Arena, claims: Mapping[int, Claim], *, gap_ns: int = 0) -> list[_Scene]:
    """Claim a new workflow for each round; those that were acquired."""
    identities = {number: fresh_identity() for number in claims}
    if gap_ns:
        bursts = [[number] for number in claims]
    else:
        bursts = [list(part) for part in _parts(claims, arena.size)]
    scenes = []
    began_ns = time.monotonic_ns()
    for turn, numbers in enumerate(bursts):
        arena.pause_until(began_ns + turn * gap_ns)
        asks = [Ask(identity=identities[n], request=claims[n], round_number=n) for n in numbers]
        told = arena.together(asks, round_number=numbers[0], name=SETUP)
        for number, one in zip(numbers, told, strict=False):
            if one.has("acquired"):
                assert one.landed.returned_ns is not None
                ttl_ns = claims[number].claim_ttl_seconds * _SECOND_NS
                scene = _Scene(
                    number=number,
                    identity=identities[number],
                    claim=claims[number],
                    lapses_at_ns=one.landed.returned_ns + ttl_ns,
                )
                scenes.append(scene)
    return scenes


def _prepared(
    arena: Arena, scenes: Sequence[_Scene], request: Callable[[_Scene], Request], flag: str
) -> list[_Scene]:
    """Send one more request for each; those whose answer has the flag."""
    done = []
    for part in _parts(scenes, arena.size):
        asks = [
            Ask(identity=scene.identity, request=request(scene), round_number=scene.number)
            for scene in part
        ]
        told = arena.together(asks, round_number=part[0].number, name=SETUP)
        done += [scene for scene, one in zip(part, told, strict=False) if one.has(flag)]
    return done


def _storm(
    arena: Arena, scene: _Scene, requests: Iterable[Request], release_at_ns: int | None = None
) -> None:
    asks = [Ask(identity=scene.identity, request=request) for request in requests]
    if not arena.over:
        arena.together(asks, round_number=scene.number, name=STORM, release_at_ns=release_at_ns)


def _parts(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while part := list(itertools.islice(iterator, size)):
        yield part


# -- The storms -------------------------------------------------------------------------------


def _claim_player(arena: Arena) -> Player:
    def play_rounds(numbers: Iterable[int]) -> None:
        for number in numbers:
            claim = _claim()
            scene = _Scene(number=number, identity=fresh_identity(), claim=claim, lapses_at_ns=0)
            _storm(arena, scene, (_as_another(claim) for _ in arena.contenders))

    return play_rounds


def _recovery_player(arena: Arena) -> Player:
    """Every other claim lapses at its deadline, the others by an abandon."""

    def play_rounds(numbers: Iterable[int]) -> None:
        ttls = {number: _LONG_SECONDS if number % 2 else LAPSE_SECONDS for number in numbers}
        scenes = _claimed(arena, {number: _claim(ttl=ttl) for number, ttl in ttls.items()})
        long = [scene for scene in scenes if scene.claim.claim_ttl_seconds == _LONG_SECONDS]
        ready = _prepared(
            arena, long, lambda scene: Abandon(holder=scene.claim.holder, generation=1), "abandoned"
        )
        for scene in ready:
            _storm(arena, scene, (_as_another(scene.claim) for _ in arena.contenders))
        for scene in scenes:
            if scene.claim.claim_ttl_seconds == LAPSE_SECONDS:
                arena.pause_until(scene.lapses_at_ns + LAPSE_MARGIN_NS)
                _storm(arena, scene, (_as_another(scene.claim) for _ in arena.contenders))

    return play_rounds


def _retry_player(arena: Arena) -> Player:
    def play_rounds(numbers: Iterable[int]) -> None:
        scenes = _claimed(arena, {number: _claim(retry=True) for number in numbers})
        failed = _prepared(
            arena,
            scenes,
            lambda scene: _settle(scene.claim, Stage.FAILED, EvidenceType.NOT_ATTEMPTED),
            "transitioned",
        )
        for scene in failed:
            _storm(arena, scene, (_as_another(scene.claim) for _ in arena.contenders))

    return play_rounds


def _replay_player(arena: Arena) -> Player:
    def play_rounds(numbers: Iterable[int]) -> None:
        for scene in _claimed(arena, {number: _claim() for number in numbers}):
            stage, evidence = arena.random(scene.number).choice(_MOVES_FROM_CLAIMED)
            transition = _settle(scene.claim, stage, evidence)
            _storm(arena, scene, [transition] * arena.size)

    return play_rounds


def _conflict_player(arena: Arena) -> Player:
    """All bodies differ, and each would be applied if it came first."""

    def play_rounds(numbers: Iterable[int]) -> None:
        for scene in _claimed(arena, {number: _claim() for number in numbers}):
            random = arena.random(scene.number)
            key = fresh_key("o")
            bodies = []
            for index in range(arena.size):
                stage, evidence = random.choice(_MOVES_FROM_CLAIMED[1:])
                body = _settle(scene.claim, stage, evidence, key)
                bodies.append(replace(body, evidence_fingerprint=f"sha256:{index:064x}"))
            _storm(arena, scene, bodies)

    return play_rounds


def _hand_over_player(arena: Arena) -> Player:
    """Every other round meets the claim's deadline, the others are well before it."""

    def play_rounds(numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        at_deadline = {n: _claim(ttl=LAPSE_SECONDS) for n in numbers if n % 2 == 0}
        before = {n: _claim() for n in numbers if n % 2}
        for scene in _claimed(arena, at_deadline, gap_ns=HAND_OVER_GAP_NS):
            # So early that the deadline falls somewhere into the burst, as long as that takes.
            longest_ns = max(HAND_OVER_EARLY_NS, arena.burst_ns)
            early_ns = int(arena.random(scene.number, "early").random() * longest_ns)
            requests = _handing_over(arena, scene)
            _storm(arena, scene, requests, release_at_ns=scene.lapses_at_ns - early_ns)
        for scene in _claimed(arena, before):
            _storm(arena, scene, _handing_over(arena, scene))

    return play_rounds


def _handing_over(arena: Arena, scene: _Scene) -> list[Request]:
    """The holder abandons and moves its claim, and others want it."""
    random = arena.random(scene.number)
    requests: list[Request] = []
    for index in range(arena.size):
        match index % 3:
            case 0:
                requests.append(_as_another(scene.claim))
            case 1:
                # Half of them leave the claim as it is, so that others still meet its deadline.
                uncertain = random.random() < 0.5
                move = _MOVES_FROM_CLAIMED[0] if uncertain else random.choice(_MOVES_FROM_CLAIMED)
                requests.append(_settle(scene.claim, *move))
            case _:
                requests.append(Abandon(holder=scene.claim.holder, generation=1))
    return requests


_MOVES_FROM_CLAIMED: Final[Sequence[tuple[Stage, EvidenceType | None]]] = [
    (Stage.UNCERTAIN, None),
    *(
        (stage, evidence)
        for stage in (Stage.CALLER_VERIFIED, Stage.FAILED, Stage.COMPENSATED)
        for evidence in sorted(MOVES[Stage.CLAIMED][stage])
    ),
]


# -- The mixed storm --------------------------------------------------------------------------


@dataclass(slots=True)
class _Workflow:
    """A workflow of the mixed storm, and what its contenders let each other know."""

    config: Claim
    until: int
    """The round from which on another takes its place."""
    identity: Identity = field(default_factory=fresh_identity)
    generation: int = 1
    """The highest that was heard of."""
    transitions: list[Transition] = field(default_factory=list)
    """Some that were sent, to be sent again."""


@dataclass(slots=True)
class _Worker:
    """What one contender believes."""

    holder: str = field(default_factory=lambda: fresh_key("h"))
    holds: int | None = None
    """The generation that it holds, as far as it knows."""
    stage: Stage = Stage.CLAIMED
    again: Request | None = None
    """The request whose answer it lost, and will send again."""


class _Mixed:
    """Workers that claim, move, abandon, look, repeat themselves, err, stop and begin anew."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        count = max(1, arena.size // CONTENDERS_PER_WORKFLOW)
        # They do not all begin at once, so that in each round some are new and some are old.
        self._workflows = [
            self._new(index, 0, 1 + index % MIXED_LIFE_ROUNDS) for index in range(count)
        ]
        self._workers = [_Worker() for _ in arena.contenders]

    def __call__(self, numbers: Iterable[int]) -> None:
        """Play the rounds."""
        for number in numbers:
            for index, workflow in enumerate(self._workflows):
                if workflow.until <= number:
                    self._workflows[index] = self._new(index, number, MIXED_LIFE_ROUNDS)
                    for worker in self._workers[index :: len(self._workflows)]:
                        worker.holds = worker.again = None
            began_ns = time.monotonic_ns()
            for step in range(MIXED_STEPS):
                self._arena.pause_until(began_ns + step * MIXED_STEP_NS)
                if self._arena.over:
                    return
                self._step(number, step)
            self._arena.pause_until(began_ns + MIXED_STEPS * MIXED_STEP_NS)

    def _new(self, index: int, number: int, life: int) -> _Workflow:
        random = self._arena.random("workflow", index, number)
        config = Claim(
            holder="",
            claim_ttl_seconds=LAPSE_SECONDS,
            state_ttl_seconds=random.choice((LAPSE_SECONDS + 1, LAPSE_SECONDS + 1, _LONG_SECONDS)),
            retry_failed=random.random() < 0.7,
        )
        return _Workflow(config=config, until=number + life)

    def _step(self, number: int, step: int) -> None:
        asks = []
        for index, worker in enumerate(self._workers):
            workflow = self._workflow_of(index)
            random = self._arena.random(number, step, index)
            request = worker.again or _choose(worker, workflow, random)
            if isinstance(request, Transition) and len(workflow.transitions) < _REMEMBERED:
                workflow.transitions.append(request)
            drop = random.random() < self._arena.lose_share
            asks.append(Ask(identity=workflow.identity, request=request, drop=drop))
        told = self._arena.together(asks, round_number=number, name=f"{STORM}-{step}")
        for index, (ask, one) in enumerate(zip(asks, told, strict=False)):
            self._learn(index, ask, one, self._arena.random(number, step, index, "learn"))
            if one.members.get("code") == ErrorCode.CHECKPOINT_TERMINAL:
                workflow = self._workflow_of(index)
                workflow.until = min(workflow.until, number + MIXED_TERMINAL_ROUNDS)

    def _workflow_of(self, index: int) -> _Workflow:
        return self._workflows[index % len(self._workflows)]

    def _learn(self, index: int, ask: Ask, told: Told, random: Random) -> None:
        worker, workflow = self._workers[index], self._workflow_of(index)
        worker.again = None
        if told.is_unknown:
            if random.random() < 0.5:
                worker.again = ask.request
            return
        generation = told.members.get("generation")
        if isinstance(generation, int):
            heard = min(generation, CONTRACT_LIMITS.generations)
            workflow.generation = max(workflow.generation, heard)
        stage = told.members.get("stage")
        if told.has("held_by_caller") and isinstance(generation, int) and stage in set(Stage):
            worker.holds, worker.stage = generation, Stage(stage)
        else:
            worker.holds = None


def _choose(worker: _Worker, workflow: _Workflow, random: Random) -> Request:
    """What a worker does next, by what it believes."""
    claim = replace(workflow.config, holder=worker.holder)
    chance = random.random()
    if worker.holds is None:
        if chance < 0.55:
            return claim
        if chance < 0.60:
            return replace(claim, retry_failed=not claim.retry_failed)
        if chance < 0.75:
            return Status(holder=random.choice((None, worker.holder)))
        if chance < 0.85 and workflow.transitions:
            return random.choice(workflow.transitions)
        if chance < 0.90 and workflow.transitions:
            return replace(random.choice(workflow.transitions), holder=worker.holder)
        if chance < 0.95:
            return Abandon(holder=worker.holder, generation=workflow.generation)
        return _move(worker, random, workflow.generation)
    if chance < 0.20:
        # It stops, and its claim lapses; another worker begins in its place.
        worker.holder, worker.holds = fresh_key("h"), None
        return replace(claim, holder=worker.holder)
    if chance < 0.30:
        return claim
    if chance < 0.40:
        return Abandon(holder=worker.holder, generation=worker.holds)
    if chance < 0.50:
        return Status(holder=worker.holder)
    return _move(worker, random, worker.holds)


def _move(worker: _Worker, random: Random, generation: int) -> Transition:
    """A transition that the graph mostly has."""
    moves = MOVES[worker.stage if random.random() < 0.9 else Stage.CLAIMED]
    stages = sorted(moves) or [Stage.UNCERTAIN]
    weights = [3 if stage in (Stage.UNCERTAIN, Stage.FAILED) else 1 for stage in stages]
    (stage,) = random.choices(stages, weights)
    evidence = sorted(moves.get(stage, ()))
    fingerprint = f"sha256:{random.getrandbits(256):064x}" if random.random() < 0.3 else None
    return Transition(
        holder=worker.holder,
        generation=generation,
        to_stage=stage,
        observation_key=fresh_key("o"),
        evidence_type=random.choice(evidence) if evidence else None,
        evidence_fingerprint=fingerprint if evidence else None,
    )


STORMS: Final[Mapping[str, Storm]] = {
    storm.name: storm
    for storm in (
        Storm(
            name="claim",
            title="Claims of a new workflow",
            player=_claim_player,
            flag="acquired",
        ),
        Storm(
            name="recovery",
            title="Claims of a lapsed claim",
            player=_recovery_player,
            flag="recovered",
        ),
        Storm(
            name="retry",
            title="Claims of a failed workflow",
            player=_retry_player,
            flag="acquired",
        ),
        Storm(
            name="replay",
            title="One transition, sent by all",
            player=_replay_player,
            flag="transitioned",
        ),
        Storm(
            name="conflict",
            title="Many bodies under one observation key",
            player=_conflict_player,
            flag="transitioned",
        ),
        Storm(
            name="hand-over",
            title="Abandons, transitions and claims at the deadline",
            player=_hand_over_player,
        ),
        Storm(
            name="mixed",
            title="Everything, on many workflows",
            player=_Mixed,
            drops_answers=True,
        ),
    )
}
