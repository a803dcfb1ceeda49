"""Histories on disk for tests, as storms write them, from a simulated store."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from simulated import EPOCH_MS, Load, answered, simulate

from checkpoint_conformance.client import Lost
from checkpoint_conformance.history import (
    DROPPED,
    Call,
    ClockIdentity,
    HistoryWriter,
    begin_header,
)
from checkpoint_model import (
    Claim,
    Identity,
    Record,
    Request,
    Stage,
    Status,
    Transition,
    format_request,
)
from checkpoint_model.linearizability import Answered

URL = "http://127.0.0.1:1"
_MS = 1_000_000
Twist = Callable[[int, Call], Call]
"""Changes calls on their way into the history, each with its number."""


def write_history(
    path: Path,
    calls: Iterable[Call],
    *,
    storm: str = "claim",
    twist: Twist = lambda _, call: call,
    clock: str = "one",
    parameters: dict[str, Any] | None = None,
) -> Path:
    """A file of a history with these calls; its folder."""
    header = replace(
        begin_header(storm, {"url": URL}, parameters), clock=ClockIdentity(id=clock, host=clock)
    )
    with HistoryWriter(path, header) as writer:
        for number, call in enumerate(calls):
            writer.call(twist(number, call))
    return path.parent


def mixed_calls(seed: int, load: Load) -> list[Call]:
    """The calls of a mixed storm, in the order in which they came to their end."""
    found = [
        Call(
            client=operation.client,
            request=format_request(identity, operation.request),
            called_ns=operation.called_ns,
            returned_ns=operation.returned_ns,
            answer=operation.answer or Lost(reason=DROPPED, detail=""),
        )
        for identity, operations in simulate(Random(seed), load).items()
        for operation in operations
    ]
    return sorted(found, key=lambda call: call.returned_ns or call.called_ns)


def claim_calls(
    *, rounds: int = 3, contenders: int = 20, atomic: bool = True, together: bool = True
) -> list[Call]:
    """Rounds of one claim each by many at once, then of one transition by many at once.

    Args:
        rounds: each on a workflow of its own.
        contenders: how many at once.
        atomic: whether the store decides and writes in one step; if not, the second to decide
            still sees what the first saw.
        together: whether the calls of a burst overlap.
    """
    calls: list[Call] = []
    for number in range(rounds):
        identity = Identity(namespace="storm.claims", workflow_key=f"w_{number:020d}")
        begin_ns = (number + 1) * 1000 * _MS
        claims: list[Request] = [
            Claim(
                holder=f"h_{contender:020d}",
                claim_ttl_seconds=30,
                state_ttl_seconds=60,
                retry_failed=True,
            )
            for contender in range(contenders)
        ]
        move = Transition(
            holder=f"h_{0:020d}", generation=1, to_stage=Stage.UNCERTAIN, observation_key="o_" * 9
        )
        record: Record | None = None
        for burst, requests in (("claims", claims), ("sends", [move] * contenders)):
            before = record
            for contender, request in enumerate(requests):
                called_ns = begin_ns + contender * 10_000
                at_ns = begin_ns + 5 * _MS + contender * 100_000
                if not together:
                    called_ns = at_ns - 10_000
                sees = record if atomic or contender != 1 else before
                came, record = answered(request, sees, EPOCH_MS + at_ns // _MS, number)
                calls.append(
                    Call(
                        client=f"c{contender}",
                        request=format_request(identity, request),
                        called_ns=called_ns,
                        sent_ns=called_ns + 1000,
                        returned_ns=at_ns + 20_000,
                        answer=came,
                        round=number,
                        burst=burst,
                    )
                )
            begin_ns += 100 * _MS
        came, _ = answered(Status(), record, EPOCH_MS + begin_ns // _MS, number)
        calls.append(
            Call(
                client="c0",
                request=format_request(identity, Status()),
                called_ns=begin_ns,
                returned_ns=begin_ns + _MS,
                answer=came,
                round=number,
            )
        )
    return calls


def with_members(call: Call, **members: Any) -> Call:
    """The same call with other members in its answer."""
    assert isinstance(call.answer, Answered)
    return replace(
        call,
        answer=Answered(
            status=call.answer.status, members={**(call.answer.members or {}), **members}
        ),
    )
