"""Tiny histories, right and wrong ones, drawn at random or aimed at what is hard to judge."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from simulated import answered

from checkpoint_model import (
    Abandon,
    Claim,
    EvidenceType,
    Record,
    Request,
    Stage,
    Status,
    Transition,
    format_timestamp,
    parse_timestamp,
)
from checkpoint_model.linearizability import Answered, Operation

BASE_MS = 1_795_000_000_000
_HOLDERS = ("h_a", "h_b")
_MOVES = (
    (Stage.UNCERTAIN, None),
    (Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
    (Stage.FAILED, EvidenceType.OPERATOR_ATTESTATION),
)
_TURNED_AWAY = Answered(status=429, members={"code": "RATE_LIMITED"})
_UNTOLD = (
    Answered(status=503, members={"code": "DEPENDENCY_UNAVAILABLE"}),
    Answered(status=502, members=None),
)


@dataclass(frozen=True, kw_only=True)
class Aim:
    """How histories are drawn."""

    name: str
    sizes: tuple[int, ...]
    lost_max: int
    ties: float
    """How often the store's clock stands still between two steps."""
    deadlines: float
    """How often it moves to just before, at, or just after a deadline."""
    back: float = 0.0
    """How often it steps back."""
    clocks: tuple[str, ...] = ("",)


AIMS = (
    Aim(name="random", sizes=(2, 3, 4, 5), lost_max=1, ties=0.3, deadlines=0.2),
    Aim(name="ties", sizes=(3, 4, 5), lost_max=1, ties=0.8, deadlines=0.1),
    Aim(name="losses before a deadline", sizes=(2, 3, 4), lost_max=2, ties=0.3, deadlines=0.6),
    Aim(name="clocks that step back", sizes=(3, 4), lost_max=1, ties=0.3, deadlines=0.4, back=0.3),
    Aim(
        name="two machines",
        sizes=(3, 4),
        lost_max=1,
        ties=0.5,
        deadlines=0.2,
        clocks=("one", "two"),
    ),
)


def draw(rng: Random, aim: Aim) -> list[Operation]:
    """One history: of a store that is right, and then, more often than not, made wrong."""
    history = _right(rng, aim)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        history = rng.choice(_TWISTS)(rng, history)
    rng.shuffle(history)
    return history


def _right(rng: Random, aim: Aim) -> list[Operation]:
    record: Record | None = None
    now_ms = BASE_MS
    history = []
    lost_left = rng.randint(0, aim.lost_max)
    size = rng.choice(aim.sizes)
    lost_at = set(rng.sample(range(size + lost_left), lost_left))
    # Times of ours are few, so that intervals often touch.
    for position in range(size + lost_left):
        now_ms = _next_time(rng, aim, record, now_ms)
        request = _request(rng, record)
        called_ns = max(0, 10 * position - 5 * rng.randrange(6))
        returned_ns: int | None = 10 * position + 5 * rng.randrange(6)
        came: Answered | None = None
        earliest_ms = None
        if position in lost_at:
            if rng.random() < 0.6:
                _, record = answered(request, record, now_ms)
            came = rng.choice((None, None, *_UNTOLD))
            returned_ns = None if came is None else returned_ns
            earliest_ms = rng.choice((None, now_ms - rng.choice((0, 1, 500))))
        elif rng.random() < 0.04:
            came = _TURNED_AWAY
        else:
            came, record = answered(request, record, now_ms)
        history.append(
            Operation(
                client=f"c{position}",
                request=request,
                called_ns=called_ns,
                returned_ns=returned_ns,
                answer=came,
                clock=rng.choice(aim.clocks),
                earliest_ms=earliest_ms,
            )
        )
    return history


def _next_time(rng: Random, aim: Aim, record: Record | None, now_ms: int) -> int:
    if rng.random() < aim.back:
        return now_ms - rng.choice((1, 400, 1000))
    if rng.random() < aim.deadlines and record is not None:
        deadline_ms = rng.choice((record.claim_expires_at_ms, record.state_expires_at_ms))
        return max(now_ms, deadline_ms + rng.choice((-1, 0, 1)))
    if rng.random() < aim.ties:
        return now_ms
    return now_ms + rng.choice((1, 2, 300, 999, 1000))


def _request(rng: Random, record: Record | None) -> Request:
    holder = rng.choice(_HOLDERS)
    kind = rng.random()
    if kind < 0.15:
        return Status(holder=holder)
    if record is None or kind < 0.6:
        return Claim(
            holder=holder,
            claim_ttl_seconds=1,
            state_ttl_seconds=rng.choice((2, 2, 2, 3)),
            retry_failed=True,
        )
    if rng.random() < 0.7:
        holder = record.holder
    if kind < 0.7:
        return Abandon(holder=holder, generation=record.generation)
    to_stage, evidence_type = rng.choice(_MOVES)
    return Transition(
        holder=holder,
        generation=record.generation,
        to_stage=to_stage,
        evidence_type=evidence_type,
        observation_key=rng.choice(("o_1", "o_2")),
    )


# -- making it wrong --------------------------------------------------------------------


def _with(history: list[Operation], i: int, operation: Operation) -> list[Operation]:
    return [*history[:i], operation, *history[i + 1 :]]


def _pick(rng: Random, history: list[Operation]) -> int:
    return rng.randrange(len(history))


def _another_answer(rng: Random, history: list[Operation]) -> list[Operation]:
    """An answer that was somebody else's."""
    i, j = _pick(rng, history), _pick(rng, history)
    if history[i].answer is None or history[j].answer is None:
        return history
    return _with(history, i, replace(history[i], answer=history[j].answer))


def _decided_on_nothing(rng: Random, history: list[Operation]) -> list[Operation]:
    """An answer as if there were no record, at its own time: a look before another's write."""
    i = _pick(rng, history)
    at_ms = _time(history[i])
    if at_ms is None:
        return history
    came, _ = answered(history[i].request, None, at_ms)
    return _with(history, i, replace(history[i], answer=came))


def _another_time(rng: Random, history: list[Operation]) -> list[Operation]:
    """An ``observed_at`` that is off, with the seconds that follow from it."""
    i = _pick(rng, history)
    at_ms = _time(history[i])
    came = history[i].answer
    if at_ms is None or came is None or came.members is None:
        return history
    at_ms += rng.choice((-1000, -1, 1, 1000))
    members: dict[str, Any] = {**came.members, "observed_at": format_timestamp(at_ms)}
    for kind in ("claim", "state"):
        until = members.get(f"{kind}_expires_at")
        if f"{kind}_ttl_seconds_remaining" in members and until is not None:
            left_ms = parse_timestamp(until) - at_ms
            members[f"{kind}_ttl_seconds_remaining"] = left_ms // 1000
    return _with(history, i, replace(history[i], answer=replace(came, members=members)))


def _another_call(rng: Random, history: list[Operation]) -> list[Operation]:
    """A call that came at another moment of ours."""
    i = _pick(rng, history)
    called_ns = 5 * rng.randrange(2 * len(history) + 1)
    returned_ns = history[i].returned_ns
    if returned_ns is not None:
        returned_ns = called_ns + 5 * rng.randrange(4)
    return _with(history, i, replace(history[i], called_ns=called_ns, returned_ns=returned_ns))


def _never_sent(rng: Random, history: list[Operation]) -> list[Operation]:
    """A call that the history does not have."""
    i = _pick(rng, history)
    return [*history[:i], *history[i + 1 :]] if len(history) > 2 else history


def _lost(rng: Random, history: list[Operation]) -> list[Operation]:
    """An answer that never came."""
    i = _pick(rng, history)
    if sum(one.answer is None for one in history) >= 2:
        return history
    return _with(history, i, replace(history[i], answer=None, returned_ns=None))


def _time(operation: Operation) -> int | None:
    members = None if operation.answer is None else operation.answer.members
    text = None if members is None else members.get("observed_at")
    return None if text is None else parse_timestamp(text)


_TWISTS: tuple[Callable[[Random, list[Operation]], list[Operation]], ...] = (
    _another_answer,
    _decided_on_nothing,
    _another_time,
    _another_call,
    _never_sent,
    _lost,
)
