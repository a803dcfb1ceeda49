"""The one-step differential: every request in every state of a world, by model and by script.

A script is a function of the record, the request and the clock, so one step from every state
says all that there is to say of it in that world; how the state arose does not matter. Each
state is put into a real Valkey as the scripts store it, each request is sent with the clock
held, and the reply and what then lies in the store are compared with the model's step.

The worlds have fewer generations than the contract. So that the scripts, which know only the
contract's limit, meet it where the world does, every generation is moved up to end at 16.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from scripted import as_outcome, as_stored, digest

from checkpoint_lua import record_key, scripts
from checkpoint_model import (
    CONTRACT_LIMITS,
    Abandon,
    Claim,
    Record,
    Request,
    Status,
    Step,
    Transition,
    permitted,
    step,
)
from checkpoint_model.exploration import NOW_MS, World, explore
from checkpoint_model.vocabulary import Stage

if TYPE_CHECKING:
    import redis

CLOCK = f"at:{NOW_MS}"
BATCH = 400
"""Requests sent in one go; the store answers them in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One step on which model and script differ."""

    record: Record | None
    request: Request
    expected: Step
    expected_reply: list[str]
    reply: object
    expected_stored: dict[str, str]
    stored: object

    def __str__(self) -> str:
        """The step with both answers, for people."""
        return "\n".join(
            [
                f"{self.expected.rule}: model and script differ",
                f"  record   {self.record}",
                f"  request  {self.request}",
                f"  reply    expected {self.expected_reply}",
                f"           got      {self.reply}",
                f"  stored   expected {self.expected_stored}",
                f"           got      {self.stored}",
            ]
        )


@dataclass(kw_only=True, slots=True)
class Covered:
    """What a differential went through."""

    pairs: int = 0
    rows: set[str] | None = None
    cells: set[tuple[str, str, str | None]] | None = None


def differences(
    client: "redis.Redis",
    world: World,
    covered: Covered,
    *,
    part: int = 0,
    parts: int = 1,
    texts: dict[str, str] | None = None,
) -> Iterator[Difference]:
    """Every step on which the scripts differ from the model, in one part of a world's states.

    Args:
        client: of a real Valkey, decoding responses.
        world: whose states and requests are tried.
        covered: counts what was tried.
        part: which part of the states, from 0.
        parts: how many parts there are.
        texts: other texts of some scripts, by action, to be compared instead.
    """
    loaded = {
        action: str(client.script_load((texts or {}).get(action, script.text)))
        for action, script in scripts().items()
    }
    covered.rows = set() if covered.rows is None else covered.rows
    covered.cells = set() if covered.cells is None else covered.cells
    up = CONTRACT_LIMITS.generations - world.limits.generations
    key = record_key(digest(f"{world.name} {part}"))
    states = explore(world).space.states
    pairs = (
        (state, moved_up(state, up), request_moved_up(sent.request, up))
        for state in states[part::parts]
        for sent in world.sent(state)
        if sent.clock_back_ms == 0
    )
    while batch := list(islice(pairs, BATCH)):
        yield from _compare(client, key, loaded, batch, covered)


def _compare(
    client: "redis.Redis",
    key: str,
    loaded: dict[str, str],
    batch: list[tuple[Record | None, Record | None, Request]],
    covered: Covered,
) -> Iterator[Difference]:
    assert covered.rows is not None
    assert covered.cells is not None
    expected: list[tuple[Record | None, Request, Step]] = []
    replies_at: list[int] = []
    lying: Record | str | None = "unknown"
    with client.pipeline(transaction=False) as pipeline:
        for _, record, request in batch:
            if lying is not record:
                pipeline.delete(key)
                if record is not None:
                    pipeline.hset(key, mapping=_stored(record))  # type: ignore[arg-type]
            done = step(record, request, NOW_MS)
            expected.append((record, request, done))
            replies_at.append(len(pipeline.command_stack))
            pipeline.evalsha(loaded[request.action], 1, key, CLOCK, *arguments_of(request))
            pipeline.hgetall(key)
            lying = record if done.record is record else "changed"
            covered.rows.add(done.rule)
            if isinstance(request, Transition) and record is not None:
                _note_cell(covered.cells, record, request, done)
        replies = pipeline.execute(raise_on_error=False)
    covered.pairs += len(batch)
    for (record, request, done), at in zip(expected, replies_at, strict=True):
        reply, stored = replies[at], replies[at + 1]
        wanted, wanted_stored = reply_of(done), _stored(done.record)
        if reply != wanted or stored != wanted_stored:
            yield Difference(
                record=record,
                request=request,
                expected=done,
                expected_reply=wanted,
                reply=reply,
                expected_stored=wanted_stored,
                stored=stored,
            )


def _note_cell(
    cells: set[tuple[str, str, str | None]], record: Record, request: Transition, done: Step
) -> None:
    if done.rule in ("WC-TRANS-7", "WC-TRANS-8"):
        cells.add((record.stage, request.to_stage, request.evidence_type))
        right = permitted(record.stage, request.to_stage, request.evidence_type)
        assert right is (done.rule == "WC-TRANS-8")


ALL_CELLS = {
    (source, target, evidence)
    for source in (Stage.CLAIMED, Stage.UNCERTAIN)
    for target in (Stage.UNCERTAIN, Stage.CALLER_VERIFIED, Stage.FAILED, Stage.COMPENSATED)
    for evidence in (
        None,
        *("provider_receipt", "external_read", "provider_rejection", "external_absence"),
        *("not_attempted", "compensation_receipt", "operator_attestation"),
    )
}
"""Every from, to and evidence that the holder of an active claim may ask for."""


@cache
def moved_up(record: Record | None, up: int) -> Record | None:
    """A record as many generations later."""
    if record is None:
        return None
    return replace(
        record,
        generation=record.generation + up,
        observations=tuple(
            (key, (body[0], body[1] + up, *body[2:])) for key, body in record.observations
        ),
    )


@cache
def request_moved_up(request: Request, up: int) -> Request:
    """A request as many generations later."""
    if isinstance(request, Transition | Abandon):
        return replace(request, generation=request.generation + up)
    return request


@cache
def arguments_of(request: Request) -> tuple[str | int, ...]:
    """What a script is given of a request, after the clock."""
    match request:
        case Claim():
            retry = "1" if request.retry_failed else "0"
            ttl = (request.claim_ttl_seconds, request.state_ttl_seconds)
            return (digest(request.holder), *ttl, retry)
        case Transition():
            fingerprint = "0" if request.evidence_fingerprint is None else "1"
            return (
                digest(request.holder),
                request.generation,
                str(request.to_stage),
                digest(request.observation_key),
                digest(repr(request.body)),
                str(request.evidence_type or ""),
                fingerprint,
            )
        case Abandon():
            return (digest(request.holder), request.generation)
        case Status():
            return ()


@cache
def _stored(record: Record | None) -> dict[str, str]:
    # A script judges by the stored deadlines alone, so an expired record lies there unchanged.
    return as_stored(record)


def reply_of(done: Step) -> list[str]:
    """What a script replies to a step of the model's."""
    head = [as_outcome(done.outcome), str(done.observed_at_ms)]
    record = done.record
    if record is None or not record.exists(done.observed_at_ms):
        return head
    return [
        *head,
        str(record.stage),
        str(record.generation),
        digest(record.holder),
        str(record.claim_expires_at_ms),
        str(record.state_expires_at_ms),
        str(record.claim_ttl_seconds),
        str(record.state_ttl_seconds),
        "1" if record.retry_failed else "0",
        str(record.evidence_type or ""),
        "1" if record.evidence_fingerprint_present else "0",
    ]
