"""The judge of tiny histories that tries everything: the definition, and nothing clever.

Written from the contract and from FORMAL's words, sharing only the machine with the checker that it
is compared with: every order that real time allows, every subset of the lost operations, every
time for each that could make a difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkpoint_model import (
    Claim,
    ErrorCode,
    Record,
    Request,
    Status,
    Step,
    answer,
    parse_timestamp,
    step,
)
from checkpoint_model.linearizability import Operation

_OF_THE_RECORD = ("code", "observed_at", "stage", "generation", "claim_expires_at", "configuration")
_NOTHING_CHANGED = {"INVALID_INPUT", "RATE_LIMITED", "TOOL_PAUSED"}


@dataclass(frozen=True, kw_only=True)
class _Told:
    operation: Operation
    members: dict[str, Any]
    at_ms: int


def explained(
    operations: Sequence[Operation], *, times: Sequence[int] | None = None, timeless: bool = False
) -> bool:
    """Whether some order of some of the operations explains every answer.

    Args:
        operations: on one workflow.
        times: at which a lost operation may have taken place; those that could matter if None.
        timeless: whether the store's clock may go back between changes.
    """
    told = [one for one in map(_told, operations) if one is not None]
    lost = [operation for operation in operations if _is_lost(operation)]
    if times is None:
        times = _interesting_times(told, lost)
    return _explained(tuple(told), tuple(lost), None, times, timeless, set())


def _told(operation: Operation) -> _Told | None:
    if operation.answer is None or operation.answer.members is None:
        return None
    members = dict(operation.answer.members)
    code = members.get("code")
    if code in _NOTHING_CHANGED or code == "DEPENDENCY_UNAVAILABLE":
        return None
    if code is None and operation.answer.status != 200:
        return None
    return _Told(
        operation=operation, members=members, at_ms=parse_timestamp(members["observed_at"])
    )


def _is_lost(operation: Operation) -> bool:
    if isinstance(operation.request, Status):
        return False
    members = None if operation.answer is None else operation.answer.members
    if members is None:
        return True
    if "code" in members:
        return bool(members["code"] == "DEPENDENCY_UNAVAILABLE")
    return operation.answer is not None and operation.answer.status >= 500


def _explained(
    told: tuple[_Told, ...],
    lost: tuple[Operation, ...],
    record: Record | None,
    times: Sequence[int],
    timeless: bool,
    dead: set[Any],
) -> bool:
    if not told:
        return True
    state = (tuple(id(t) for t in told), tuple(id(o) for o in lost), record)
    if state in dead:
        return False
    followers = (
        *_told_next(told, lost, record, timeless),
        *_lost_next(told, lost, record, times),
    )
    if any(_explained(*after, times, timeless, dead) for after in followers):
        return True
    dead.add(state)
    return False


_Node = tuple[tuple[_Told, ...], tuple[Operation, ...], Record | None]


def _told_next(
    told: tuple[_Told, ...],
    lost: tuple[Operation, ...],
    record: Record | None,
    timeless: bool,
) -> Iterator[_Node]:
    for one in told:
        rest = tuple(other for other in told if other is not one)
        if not _may_precede(one.operation, rest):
            continue
        before = record
        if timeless and record is not None and record.changed_at_ms > one.at_ms:
            before = replace(record, changed_at_ms=one.at_ms)
        done = step(before, one.operation.request, one.at_ms)
        if _says(done, one.operation.request, one.members):
            after = record if done.record == before else done.record
            yield rest, lost, after


def _lost_next(
    told: tuple[_Told, ...],
    lost: tuple[Operation, ...],
    record: Record | None,
    times: Sequence[int],
) -> Iterator[_Node]:
    for one in lost:
        if not _may_precede(one, told):
            continue
        rest = tuple(other for other in lost if other is not one)
        for at_ms in times:
            if one.earliest_ms is not None and at_ms < one.earliest_ms:
                continue
            done = step(record, one.request, at_ms)
            if done.record != record and done.observed_at_ms == at_ms:
                yield told, rest, done.record


def _may_precede(one: Operation, others: Sequence[_Told]) -> bool:
    """Whether none of the others had returned before this one was called."""
    return not any(
        other.operation.clock == one.clock
        and other.operation.returned_ns is not None
        and other.operation.returned_ns < one.called_ns
        for other in others
    )


def _says(done: Step, request: Request, members: dict[str, Any]) -> bool:
    outcome = done.outcome
    if isinstance(outcome, ErrorCode):
        if members.get("code") != outcome:
            return False
        expected = answer(done, request)
        return all(_same(expected, members, name) for name in _OF_THE_RECORD)
    if "code" in members or any(members.get(flag) is not True for flag in outcome.value):
        return False
    expected = answer(done, request)
    return all(_same(expected, members, name) for name in expected)


def _same(expected: dict[str, Any], got: dict[str, Any], name: str) -> bool:
    if (name in expected) != (name in got):
        return False
    return type(expected.get(name)) is type(got.get(name)) and expected.get(name) == got.get(name)


def _interesting_times(told: Sequence[_Told], lost: Sequence[Operation]) -> list[int]:
    """Every time that is some deadlines away from a time that is known, and its neighbours."""
    known = {one.at_ms for one in told}
    known |= {one.earliest_ms for one in lost if one.earliest_ms is not None}
    for one in told:
        for name in ("claim_expires_at", "state_expires_at"):
            if one.members.get(name) is not None:
                known.add(parse_timestamp(one.members[name]))
    claims = [o for o in lost if isinstance(o.request, Claim)]
    asked = [one.operation.request for one in told] + [o.request for o in claims]
    spans = {
        ttl * 1000
        for request in asked
        if isinstance(request, Claim)
        for ttl in (request.claim_ttl_seconds, request.state_ttl_seconds)
    }
    reached = set(known)
    for _ in range(1 + len(claims)):
        reached |= {at_ms + sign * span for at_ms in reached for span in spans for sign in (-1, 1)}
    first, last = min(known, default=0) - max(spans, default=0) - 1, max(known, default=0)
    return sorted(
        {at_ms + near for at_ms in reached for near in (-1, 0, 1) if first <= at_ms + near <= last}
    )


def holds(operations: Sequence[Operation], order: Sequence[tuple[int, int]]) -> bool:
    """Whether an order is a witness: complete, in real time, and every answer the model's."""
    placed = [i for i, _ in order]
    told = {i: one for i, o in enumerate(operations) if (one := _told(o)) is not None}
    if len(set(placed)) != len(placed) or not set(told) <= set(placed):
        return False
    record: Record | None = None
    for place, (i, at_ms) in enumerate(order):
        operation = operations[i]
        later = [told[j] for j, _ in order[place + 1 :] if j in told]
        done = step(record, operation.request, at_ms)
        if not _may_precede(operation, later) or done.observed_at_ms != at_ms:
            return False
        earliest_ms = operation.earliest_ms
        if i in told:
            if told[i].at_ms != at_ms or not _says(done, operation.request, told[i].members):
                return False
        elif not _is_lost(operation) or (earliest_ms is not None and at_ms < earliest_ms):
            return False
        record = done.record
    return True
