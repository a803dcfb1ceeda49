"""Fixed sequences, many at once: what is due is sent, then the frozen clock moves to what is next.

Each sequence is data, for nothing in it depends on an answer: requests of one workflow, each due
so long after the sequence began. They are held like any conversations (``conversations.py``).

Rule 1: the requests of one workflow are sent in their order, each after the answer to the one
        before, at the time of the clock that it is due at.
Rule 2: what becomes of one sequence touches no other: a fault ends its own, a lost answer lets its
        own begin anew, on another workflow.
Rule 3: a sequence remembers what it alone would have sent: its own requests, and the clock's moves
        between two of them as one. So it can be repeated, and shortened, by itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from checkpoint_conformance.conversations import Moments, attempted, counted, hold_all
from checkpoint_conformance.run import Run
from checkpoint_conformance.session import Conversation, Session, Told
from checkpoint_model import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A request of a sequence, and when it is sent: milliseconds after the sequence began."""

    request: Request
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedSequence:
    """Requests of one workflow that nobody has used."""

    requests: Sequence[Due]
    namespace: str | None = None
    """Of the workflow; a fresh one where there is none."""
    at_end: Callable[[Session, Told, int | None], None] | None = None
    """Looks at the last answer, once that was judged, and may raise ViolationError. It is given
    the time of the frozen clock when the sequence began, in ms; None where the clock runs."""


Making: TypeAlias = Callable[[], FixedSequence]
"""Makes a sequence, with fresh names each time that it is begun."""


def at_once(*requests: Request) -> FixedSequence:
    """A sequence in which no time passes."""
    return FixedSequence(requests=[Due(request=request) for request in requests])


def send_all(run: Run, makings: Iterable[Making]) -> None:
    """Send fixed sequences, each to its end or to its first fault, which the tally keeps.

    One that lost an answer is begun anew, :data:`.ATTEMPTS_MAX` times at most; then it is left out.

    Raises:
        TargetGoneError: the target stopped answering, or is paused.
        ControlError: the control of the clock did not do as it should.
    """
    begun = [attempted(run, partial(_sent, run, making)) for making in makings]
    hold_all(run, counted(run, begun))


def _sent(run: Run, making: Making) -> Conversation[None]:
    sequence, session, moments = making(), run.session(), Moments(run)
    if sequence.namespace is not None:
        session.rename(replace(session.identity, namespace=sequence.namespace))
    for due in sequence.requests:
        yield from moments.until(due.at_ms, session)
        told = yield from session.sending(due.request)
    if sequence.at_end is not None:
        sequence.at_end(session, told, moments.begun_ms)
