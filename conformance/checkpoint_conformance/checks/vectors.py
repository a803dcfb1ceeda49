"""The test vectors, sent to the target under a frozen clock.

Each decision is judged twice: by the oracle, as every other, and against the committed vector,
which is what implementers without this harness test by.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.fixed_sequences import Due, FixedSequence, send_all
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session, Told
from checkpoint_conformance.vectors import TIMES, Timed, Vector, load_vectors
from checkpoint_model import format_timestamp, parse_request


def vectors(run: Run) -> None:
    """Send the vectors; each goes to its end or to its first fault."""
    with run.frozen():
        send_vectors(run, spread(load_vectors(), run))


def send_vectors(run: Run, chosen: Iterable[Vector]) -> None:
    """Send vectors, each on a fresh workflow; raises as :func:`.send_all`.

    Without controls the clock runs: a vector in which time passes cannot be sent then.
    """
    send_all(run, [partial(_as_sequence, vector) for vector in chosen])


def spread(vectors: Sequence[Vector], run: Run) -> Sequence[Vector]:
    """All of them, or over MCP the profile's number, other ones with another seed."""
    if run.tally.binding is Binding.HTTP:
        return vectors
    apart = max(len(vectors) // run.profile.mcp_vectors, 1)
    return vectors[run.seed % apart :: apart]


def _as_sequence(vector: Vector) -> FixedSequence:
    timed = [*vector.given, Timed(at_ms=vector.at_ms, request=vector.request)]
    identity, _ = parse_request(vector.request)
    return FixedSequence(
        requests=[Due(at_ms=one.at_ms, request=parse_request(one.request)[1]) for one in timed],
        namespace=identity.namespace,
        at_end=partial(_compare, vector),
    )


def _compare(vector: Vector, session: Session, told: Told, start_ms: int | None) -> None:
    """Hold the last answer against the vector."""
    if start_ms is None:
        return  # on a slow target time passes all the same; the oracle has judged by that
    for member, value in vector.members.items():
        timed_value = member in TIMES and value is not None
        expected = format_timestamp(start_ms + value) if timed_value else value
        if told.members.get(member) != expected:
            session.fail(
                Fault(
                    rules=vector.rules,
                    what=f"`{member}`, by the vector {vector.id}",
                    expected=repr(expected),
                    got=repr(told.members.get(member, "(absent)")),
                )
            )


CHECKS = (
    Check(
        name="vectors",
        title="The test vectors, clock frozen",
        run=vectors,
        needs_controls=True,
        seconds=3,
    ),
)
