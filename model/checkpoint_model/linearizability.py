"""Linearizability of one workflow, with the store's own time (WC-CONC-1).

Given what many clients asked and were told, is there one order of the atomic steps that explains
every answer? There are four results, and only :class:`Linearizable` is a pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from checkpoint_model.machine import Record, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What came back, complete: the HTTP status, and the members of its JSON object if it is one.

    What does not tell whether the request was applied (``DEPENDENCY_UNAVAILABLE``, a 5xx without
    a code) is an answer as well; the checker takes it as lost.
    """

    status: int
    members: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One call on the workflow. Times are nanoseconds of a monotonic clock; both ends belong to
    the interval in which the step took place."""

    client: str
    request: Request
    called_ns: int
    returned_ns: int | None
    """None where no answer came: the request may take effect at any later time."""
    answer: Answered | None
    """None where no answer came."""
    clock: str = ""
    """Which monotonic clock; only times of the same one are compared."""


class Placed(NamedTuple):
    """One step of an order: which operation, and the store's time at which it took place."""

    operation: int
    """Its place in the sequence that was checked."""
    observed_at_ms: int
    """Milliseconds since the epoch: the answer's own, or the one found for a lost answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Linearizable:
    """One order explains every answer; lost answers that are not in it were not applied."""

    order: tuple[Placed, ...]
    """The witness. What was known to change nothing is not in it."""
    remarks: tuple[str, ...] = ()
    """What is not wrong, and worth saying."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Illegal:
    """No order explains the answers."""

    order: tuple[Placed, ...]
    """The shortest prefix, by the store's time, that fails, as far as it can be ordered."""
    operation: int
    """The first that cannot be placed after it."""
    rule: str
    """The decision row that applies to it there, such as ``WC-CLAIM-5``."""
    expected: Mapping[str, Any]
    """The members that its answer would have there."""
    got: Mapping[str, Any]
    """The members that it has."""
    differs: tuple[str, ...]
    """The members that are not as expected; empty where the answer fits and real time forbids
    the place."""
    record: Record | None
    """The state after ``order``."""
    why: str
    """One sentence for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockViolation:
    """Only an order that ignores the store's time explains the answers: it went back."""

    order: tuple[Placed, ...]
    """The order that explains all but the times."""
    operation: int
    """The first whose time cannot be."""
    earlier: int | None
    """The operation that it follows and yet claims to precede; None where it is the time within
    the call that cannot be."""
    expected: str
    got: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """Not decided, which is no pass: the budget was spent, or there was nothing to judge."""

    steps: int
    """How many steps of the model were tried."""
    why: str


Verdict: TypeAlias = Linearizable | Illegal | ClockViolation | Unknown
