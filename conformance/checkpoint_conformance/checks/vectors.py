"""The test vectors, sent to the target under a frozen clock.

Each decision is judged twice: by the oracle, as every other, and against the committed vector,
which is what implementers without this harness test by.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session
from checkpoint_conformance.vectors import TIMES, Vector, load_vectors
from checkpoint_model import format_timestamp, parse_request


def vectors(run: Run) -> None:
    """Send the vectors; each goes to its end or to its first fault, and the next begins."""
    chosen = spread(load_vectors(), run)
    with run.frozen():
        for number, vector in enumerate(chosen):
            run.progress.advance(number, len(chosen))
            run.attempt(send_vector, run, vector)


def spread(vectors: Sequence[Vector], run: Run) -> Sequence[Vector]:
    """All of them, or over MCP the profile's number, other ones with another seed."""
    if run.tally.binding is Binding.HTTP:
        return vectors
    apart = max(len(vectors) // run.profile.mcp_vectors, 1)
    return vectors[run.seed % apart :: apart]


def send_vector(run: Run, vector: Vector) -> None:
    """Send one vector on a fresh workflow.

    Raises:
        ViolationError: an answer is not what the model, or the vector, says.
        LostError: an answer did not come.
    """
    session = run.session()
    # Without controls the clock runs: a vector in which time passes cannot be sent then.
    start_ms = run.clock.now_ms if isinstance(run.clock, FrozenClock) else None
    for timed in vector.given:
        _wait(run, session, start_ms, timed.at_ms)
        _send(session, timed.request)
    _wait(run, session, start_ms, vector.at_ms)
    got = _send(session, vector.request)
    if start_ms is None:
        return  # on a slow target time passes all the same; the oracle has judged by that
    for member, value in vector.members.items():
        timed_value = member in TIMES and value is not None
        expected = format_timestamp(start_ms + value) if timed_value else value
        if got.get(member) != expected:
            session.fail(
                Fault(
                    rules=vector.rules,
                    what=f"`{member}`, by the vector {vector.id}",
                    expected=repr(expected),
                    got=repr(got.get(member, "(absent)")),
                )
            )


def _wait(run: Run, session: Session, start_ms: int | None, after_ms: int) -> None:
    if start_ms is None:
        assert after_ms == 0
        return
    assert isinstance(run.clock, FrozenClock)
    if start_ms + after_ms > run.clock.now_ms:
        run.advance(start_ms + after_ms - run.clock.now_ms, session)


def _send(session: Session, body: dict[str, Any]) -> dict[str, Any]:
    identity, request = parse_request(body)
    session.rename(replace(identity, workflow_key=session.identity.workflow_key))
    return session.send(request).members


CHECKS = (
    Check(
        name="vectors",
        title="The test vectors, clock frozen",
        run=vectors,
        needs_controls=True,
        seconds=3,
    ),
)
