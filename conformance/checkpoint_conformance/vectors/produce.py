"""Produces the vectors from the exploration of the model.

Every pair of state and request of some small worlds is looked at, in the order of the shortest
way to the state. A pair becomes a vector when it shows something that no vector before it did:
a decision row in another stage, at another side of a deadline, by another caller, a cell of
graph and evidence, a member in which two bodies or configurations differ, another view. So every
vector is as short as can be, and there are no more of them than there is to show.

    python -m checkpoint_conformance.vectors.produce    writes the committed file anew
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from checkpoint_conformance.vectors import FILE_NAME, Vector, write_vectors
from checkpoint_conformance.vectors.making import make_vector
from checkpoint_model import (
    CONTRACT_VERSION,
    SETTLED,
    Abandon,
    Claim,
    EvidenceType,
    Identity,
    Record,
    Request,
    Stage,
    Step,
    Success,
    Transition,
    answer,
    step,
)
from checkpoint_model.exploration import NOW_MS, Advanced, Event, Sent, explore
from checkpoint_model.worlds import WORLDS

WORLD_NAMES: Final = ("cells", "fingerprints", "configurations", "pair")
"""Small worlds that together have every row, cell and boundary but the last generation's."""
GENERATIONS_MAX: Final = 16
IDENTITY: Final = Identity(
    namespace="vectors:workflow-checkpoint", workflow_key="w_put-a-fresh-one-here"
)
"""Whoever sends a vector puts a fresh ``workflow_key`` in."""
FINGERPRINT: Final = "sha256:" + "c" * 64
"""Sent with every evidence once more, because most worlds have none."""


def produce() -> list[Vector]:
    """All vectors, in order of rule and length."""
    shown: set[object] = set()
    vectors: dict[str, Vector] = {}
    for way, record, now_ms, request in chain(_explored(), _last_generation()):
        facets = set(_facets(record, request, now_ms, step(record, request, now_ms)))
        if facets <= shown:
            continue
        shown |= facets
        vector = make_vector(_moves(way(), request), IDENTITY)
        vectors[vector.id] = vector
    return sorted(vectors.values(), key=_order)


def _order(vector: Vector) -> tuple[str, int, int, str]:
    table, _, number = vector.rules[0].rpartition("-")
    return table, int(number), len(vector.given), vector.id


Way: TypeAlias = tuple[Event, ...]
_Pair: TypeAlias = tuple[Callable[[], Way], Record | None, int, Request]
"""The way to a state, the state, the time there, and a request that is sent in it."""


def _explored() -> Iterator[_Pair]:
    for name in WORLD_NAMES:
        world = WORLDS[name]
        space = explore(world).space
        for index, state in enumerate(space.states):
            way = partial(space.events, index)
            for sent in world.sent(state):
                yield way, state, NOW_MS, sent.request
                if isinstance(sent.request, Transition) and sent.request.evidence_type:
                    printed = replace(sent.request, evidence_fingerprint=FINGERPRINT)
                    yield way, state, NOW_MS, printed


def _last_generation() -> Iterator[_Pair]:
    """WC-CLAIM-6 and what is next to it: sixteen generations, each abandoned or failed."""
    for retry in (False, True):
        claim = Claim(
            holder="ann", claim_ttl_seconds=60, state_ttl_seconds=3600, retry_failed=retry
        )
        events: list[Event] = []
        for generation in range(1, GENERATIONS_MAX + 1):
            events.append(Sent(request=claim))
            if generation == GENERATIONS_MAX:
                break
            events.append(Sent(request=Abandon(holder="ann", generation=generation)))
        last = tuple(events)
        ends: list[Request] = [
            Abandon(holder="ann", generation=GENERATIONS_MAX),
            Transition(
                holder="ann",
                generation=GENERATIONS_MAX,
                to_stage=Stage.FAILED,
                observation_key="one",
                evidence_type=EvidenceType.EXTERNAL_ABSENCE,
            ),
        ]
        ways: list[tuple[Way, Request]] = [(last, claim)]
        for end in ends:
            ended = (*last, Sent(request=end))
            ways += [(last, end), (ended, claim), (ended, replace(claim, holder="bob"))]
        for way, request in ways:
            record: Record | None = None
            for event in way:
                if isinstance(event, Sent):
                    record = step(record, event.request, NOW_MS).record
            yield partial(tuple, way), record, NOW_MS, request


def _moves(way: Way, request: Request) -> list[Request | int]:
    moves: list[Request | int] = []
    for event in way:
        if isinstance(event, Advanced):
            moves.append(event.elapsed_ms)
        elif isinstance(event, Sent):
            moves.append(_long(event.request))
    return [*moves, _long(request)]


def _long(request: Request) -> Request:
    """The request, its short names made as long as the contract wants them."""
    if request.holder is None:
        return request
    request = replace(request, holder=_padded("h_", request.holder))
    if isinstance(request, Transition):
        request = replace(request, observation_key=_padded("o_", request.observation_key))
    return request


def _padded(prefix: str, name: str) -> str:
    return (prefix + name + "-" * 16)[:20]


def _facets(record: Record | None, request: Request, now_ms: int, done: Step) -> Iterator[object]:
    """What a pair shows, each as something to be compared."""
    rule = done.rule
    there = record if record is not None and record.exists(now_ms) else None
    if there is None:
        yield rule, "nothing" if record is None else "expired"
        if record is not None:
            yield rule, "state", _near(record.state_expires_at_ms - now_ms)
        return
    yield rule, there.stage, _standing(there, now_ms)
    yield rule, "state", _near(there.state_expires_at_ms - now_ms)
    if there.stage not in SETTLED and not there.abandoned:
        yield rule, "claim", _near(there.claim_expires_at_ms - now_ms)
    yield rule, "caller", request.holder is None, request.holder == there.holder
    if isinstance(request, Transition | Abandon):
        difference = request.generation - there.generation
        yield rule, "generation", (difference > 0) - (difference < 0)
    if isinstance(done.outcome, Success):
        told = answer(done, request)
        yield rule, "view", *told["allowed_next_actions"], told["recovery_required"]
    if isinstance(request, Claim) and rule == "WC-CLAIM-3":
        differing = [
            member.name
            for member in fields(request)
            if getattr(request, member.name) != getattr(there, member.name)
        ]
        yield rule, "differing", *differing
    if isinstance(request, Transition):
        fingerprint = request.evidence_fingerprint is not None
        if rule in ("WC-TRANS-7", "WC-TRANS-8"):
            yield rule, there.stage, request.to_stage, request.evidence_type, fingerprint
        applied = there.applied(request.observation_key)
        if applied is not None:
            parts = zip(applied, request.body, strict=True)
            yield rule, "body", *(one == other for one, other in parts)


def _near(left_ms: int) -> int | None:
    return left_ms if abs(left_ms) <= 1 else None


def _standing(record: Record, now_ms: int) -> str:
    if record.stage in SETTLED:
        return "retry" if record.may_be_retried else "final"
    if record.abandoned:
        return "abandoned"
    return "active" if record.claim_active(now_ms) else "lapsed"


if __name__ == "__main__":
    committed = Path(__file__).with_name(FILE_NAME)
    committed.write_text(write_vectors(produce(), contract=CONTRACT_VERSION), encoding="utf-8")
