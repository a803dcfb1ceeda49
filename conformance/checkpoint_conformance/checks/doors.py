"""Both doors at once: HTTP and MCP act on the same records (WC-MCP-4) and say the same.

Each sequence goes three ways in step, on a workflow each: all of it by HTTP, all of it by MCP, and
by one door and the other in turn. What is wrong behind one door alone shows there; what is wrong
only in turn is two doors with records of their own.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any, Final

from checkpoint_conformance.answers import Fault, Problem
from checkpoint_conformance.checks.example import MOVING
from checkpoint_conformance.checks.vectors import spread
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import Client
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.conversations import (
    IN_FLIGHT_MAX,
    Moments,
    attempted,
    counted,
    hold_all,
)
from checkpoint_conformance.rules import Binding, RuleClass
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Conversation, LostError, Session, Told, ViolationError
from checkpoint_conformance.vectors import Vector, load_vectors
from checkpoint_model import ErrorCode, Request, Status, answer, parse_request

_FREE: Final = frozenset(
    {"workflow_hash", "type", "title", "detail", "recovery", "retry_after_seconds"}
)
"""What may differ between two answers to the same request: whose workflow it is, and wording."""
_ADMITTED: Final = 5


def doors(run: Run) -> None:
    """The profile's number of vectors, spread over all of them."""
    vectors = [v for v in load_vectors() if run.controls is not None or not v.takes_time]
    chosen = spread(vectors, run)
    with run.new_client(Binding.HTTP) as http, run.new_client(Binding.MCP) as mcp:
        with run.frozen() if run.controls is not None else nullcontext():
            ways = []
            for number, vector in enumerate(chosen):
                order = [http, mcp] if number % 2 else [mcp, http]
                ways.append(attempted(run, partial(_three_ways, run, vector, http, mcp, order)))
            hold_all(
                run,
                counted(run, ways),
                bindings=[Binding.HTTP, Binding.MCP],
                # Claims of some vectors last for a second, which must not pass between requests.
                held_max=None if isinstance(run.clock, FrozenClock) else IN_FLIGHT_MAX,
            )
        if run.controls is not None:
            run.attempt(_one_limit, run, [http, mcp])


def _three_ways(
    run: Run, vector: Vector, http: Client, mcp: Client, order: Sequence[Client]
) -> Conversation[None]:
    by_http, by_mcp, in_turn = (run.session() for _ in range(3))
    by_http.go_by(http)
    by_mcp.go_by(mcp)
    timed = [*((given.at_ms, given.request) for given in vector.given)]
    timed.append((vector.at_ms, vector.request))
    moments = Moments(run)
    for (at_ms, body), client in zip(timed, cycle(order), strict=False):
        yield from moments.until(at_ms, by_http, by_mcp, in_turn)
        _, request = parse_request(body)
        one = yield from by_http.sending(request)
        other = yield from by_mcp.sending(request)
        _compare(run, by_mcp, request, one, other)
        in_turn.go_by(client)
        try:
            yield from in_turn.sending(request)
        except ViolationError as error:
            # By each door alone it was right.
            fault = error.failure.fault
            blamed = replace(
                fault,
                rules=("WC-MCP-4", *fault.rules),
                what=f"by one door and the other in turn: {fault.what}",
            )
            raise ViolationError(replace(error.failure, fault=blamed, moves=None)) from None
        in_turn.moves = None  # sent again by one door, it would show nothing
    run.tally.hit("WC-MCP-4")


def _compare(run: Run, session: Session, request: Request, one: Told, other: Told) -> None:
    """Hold the answer by MCP against the one by HTTP, the sequence of the former at hand."""
    free = _FREE if isinstance(run.clock, FrozenClock) else _FREE | MOVING
    if _differing(answer(one.step, request), answer(other.step, request), free):
        return  # a deadline came between the two: each was right at its own time
    differ = _differing(one.members, other.members, free)
    if differ:
        session.fail(
            Fault(
                rules=("WC-MCP-3" if "code" in other.members else "WC-MCP-2",),
                what=f"the same sequence by HTTP and by MCP: {', '.join(differ)}",
                expected=str({member: one.members.get(member, "(absent)") for member in differ}),
                got=str({member: other.members.get(member, "(absent)") for member in differ}),
            )
        )


def _differing(
    one: Mapping[str, Any], other: Mapping[str, Any], free: Collection[str]
) -> list[str]:
    """The members in which two answers differ and may not."""
    return [
        member
        for member in {**one, **other}
        if member not in free and one.get(member, ...) != other.get(member, ...)
    ]


def _one_limit(run: Run, order: Sequence[Client]) -> None:
    """WC-CTL-3: what is admitted is counted over both bindings.

    Raises:
        LostError: a request too many was refused, which somebody else may have done this time.
        ViolationError: a request too many was admitted.
    """
    assert run.controls is not None
    cast, session = Cast(), run.session()
    session.send(cast.claim(cast.ann))
    session.noted([run.controls.rate_limit(_ADMITTED)])
    limited = frozenset({ErrorCode.RATE_LIMITED})
    try:
        for number, client in enumerate(islice(cycle(order), _ADMITTED + len(order))):
            session.go_by(client)
            _, came = session.ask(session.body(Status(holder=cast.ann)), expecting=limited)
            refused = isinstance(came, Problem) and came.code is ErrorCode.RATE_LIMITED
            if refused is not (number >= _ADMITTED):
                fault = Fault(
                    rules=("WC-CTL-3",),
                    what=f"request {number + 1} by both doors in turn, {_ADMITTED} admitted",
                    expected="RATE_LIMITED" if number >= _ADMITTED else "a result",
                    got=session.sequence[-1].answered,
                )
                if refused:
                    raise LostError("RATE_LIMITED", session.failure(fault), answered=True)
                session.fail(fault)
    finally:
        run.controls.rate_limit(None)
    run.tally.hit("WC-CTL-3")


CHECKS = (
    Check(
        name="doors",
        title="HTTP and MCP in turn and side by side",
        run=doors,
        binding=Binding.MCP,
        needs_class=RuleClass.MCP,
        alone=True,  # with controls it freezes the clock, though it needs none
        seconds=2,
    ),
)
