"""A store that is right, simulated: calls that overlap, some of whose answers are lost.

What it records is what a storm would, so whoever judges histories can be tried on any number of
them in no time.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from checkpoint_model import (
    Abandon,
    Action,
    Claim,
    EvidenceType,
    Identity,
    Record,
    Request,
    Stage,
    Status,
    Success,
    Transition,
    answer,
    step,
)
from checkpoint_model.linearizability import Answered, Operation

EPOCH_MS = 1_795_000_000_000
"""The store's time when our monotonic clock reads 0."""
_MS = 1_000_000
_STAGES = tuple(Stage)[1:]
_EVIDENCE = (None, *EvidenceType)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the clients do."""

    clients: int = 20
    calls_each: int = 20
    workflows: int = 1
    lost: float = 0.0
    """The share of answers that get lost, of which some were applied, some later, some never."""
    claim_ttl_seconds: int = 1
    state_ttl_seconds: int = 60
    answer_ms: float = 20.0
    """How long an answer takes on average."""
    think_ms: float = 1.0


@dataclass(slots=True)
class _Call:
    slot: int
    client: str
    workflow: int
    called_ns: int
    returned_ns: int
    lost: bool
    applied_ns: int | None
    order: tuple[bool, int] = field(init=False)

    def __post_init__(self) -> None:
        self.order = (self.applied_ns is None, self.applied_ns or 0)


def workflow_identity(number: int) -> Identity:
    """The identity of one of the simulated workflows."""
    return Identity(namespace="storm.simulated", workflow_key=f"w_{number:020d}")


def answered(
    request: Request, record: Record | None, at_ms: int, workflow: int = 0
) -> tuple[Answered, Record | None]:
    """What a store that is right answers, and the record after it."""
    done = step(record, request, at_ms)
    members: dict[str, Any] = answer(done, request)
    status = 200
    if isinstance(done.outcome, Success):
        members["workflow_hash"] = f"hmac-sha256:{workflow:064x}"
    else:
        status = members["status"]
    return Answered(status=status, members=members), done.record


def simulate(rng: Random, load: Load) -> dict[Identity, list[Operation]]:
    """Every call that the clients made, by workflow, in the order in which they were applied."""
    records: dict[int, Record | None] = defaultdict(lambda: None)
    found: dict[Identity, list[Operation]] = defaultdict(list)
    for number, call in enumerate(sorted(_calls(rng, load), key=lambda call: call.order)):
        record = records[call.workflow]
        request = _request(rng, load, call, record, number)
        came = None
        if call.applied_ns is not None:
            at_ms = EPOCH_MS + call.applied_ns // _MS
            came, records[call.workflow] = answered(request, record, at_ms, call.workflow)
        found[workflow_identity(call.workflow)].append(
            Operation(
                client=call.client,
                request=request,
                called_ns=call.called_ns,
                returned_ns=None if call.lost else call.returned_ns,
                answer=None if call.lost else came,
            )
        )
    return found


def _calls(rng: Random, load: Load) -> list[_Call]:
    waiting = [(rng.randrange(5 * _MS), slot, 0) for slot in range(load.clients)]
    heapq.heapify(waiting)
    names = [f"c{slot}" for slot in range(load.clients)]
    calls = []
    while waiting:
        called_ns, slot, made = heapq.heappop(waiting)
        took_ns = 20_000 + int(rng.expovariate(1 / (load.answer_ms * _MS)))
        lost = rng.random() < load.lost
        applied_ns: int | None = called_ns + rng.randrange(took_ns)
        if lost and applied_ns is not None:
            fate = rng.random()
            applied_ns = None if fate < 0.4 else applied_ns + (fate > 0.8) * rng.randrange(50 * _MS)
        calls.append(
            _Call(
                slot=slot,
                client=names[slot],
                workflow=rng.randrange(load.workflows),
                called_ns=called_ns,
                returned_ns=called_ns + took_ns,
                lost=lost,
                applied_ns=applied_ns,
            )
        )
        if lost:
            names[slot] = f"c{slot}.{made}"
        if made + 1 < load.calls_each:
            thinks_ns = int(rng.random() * load.think_ms * _MS)
            heapq.heappush(waiting, (called_ns + took_ns + thinks_ns, slot, made + 1))
    return calls


def _request(rng: Random, load: Load, call: _Call, record: Record | None, number: int) -> Request:
    holder = f"h_{call.slot:020d}"
    action = rng.choices(list(Action), weights=(5, 3, 3, 1))[0]
    if action is Action.STATUS:
        return Status(holder=holder)
    if record is not None and action is Action.TRANSITION:
        return Transition(
            holder=rng.choice((holder, record.holder)),
            generation=record.generation if rng.random() < 0.8 else 1,
            to_stage=rng.choice(_STAGES),
            evidence_type=rng.choice(_EVIDENCE),
            observation_key=f"o_{number - rng.randrange(2):020d}",
        )
    if record is not None and action is Action.ABANDON:
        return Abandon(
            holder=holder if rng.random() < 0.3 else record.holder, generation=record.generation
        )
    return Claim(
        holder=holder,
        claim_ttl_seconds=load.claim_ttl_seconds,
        state_ttl_seconds=load.state_ttl_seconds,
        retry_failed=True,
    )
