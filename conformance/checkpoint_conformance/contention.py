"""How closely requests met: the figures that tell whether it was a storm, and how long it took.

Whoever tells them takes them from here, so that a report and a judgement never differ.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol


class Stamped(Protocol):
    """Anything with the stamps of a request, in nanoseconds of one monotonic clock."""

    @property
    def called_ns(self) -> int | None:
        """Just before its last byte was sent; None where it was never sent whole."""

    @property
    def sent_ns(self) -> int | None:
        """Just after, where that was stamped."""

    @property
    def returned_ns(self) -> int | None:
        """When the answer's last byte was read; None where none came."""


def spread_ns(calls: Iterable[Stamped]) -> int:
    """From the first to the last of the last bytes."""
    called = [one.called_ns for one in calls if one.called_ns is not None]
    return max(called) - min(called) if called else 0


def in_flight_max(calls: Iterable[Stamped]) -> int:
    """How many requests were in flight at once: last byte sent, and the answer not yet received.

    Counted among those that were answered: what a server never takes up contends with nothing.
    """
    answered = [
        (one.sent_ns or one.called_ns, one.returned_ns)
        for one in calls
        if one.called_ns is not None and one.returned_ns is not None
    ]
    return most_at_once([sent or 0 for sent, _ in answered], [returned for _, returned in answered])


def most_at_once(begun: Iterable[float], ended: Iterable[float]) -> int:
    """Of spans of time the most that went on at any one moment; touching is no overlap.

    Args:
        begun: when each began, in any order.
        ended: when each ended, in any order.
    """
    ends = sorted(ended)
    most = over = 0
    for number, begin in enumerate(sorted(begun)):
        while over < number and ends[over] <= begin:
            over += 1
        most = max(most, number + 1 - over)
    return most


def percentile(ordered: Sequence[float], percent: int) -> float:
    """One of the values, which are in order and at least one: the nearest to so many percent."""
    return ordered[round((len(ordered) - 1) * percent / 100)]
