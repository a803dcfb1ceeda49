"""Whose clock: the target's, used but not trusted (decision D4).

Expected answers are computed at the answer's own ``observed_at``. That time must itself be
believable: under a frozen clock it is known exactly; otherwise one constant offset between our
monotonic clock and the target's must put every ``observed_at`` within its call.
"""

from dataclasses import dataclass
from typing import Final

CLOCK_TOLERANCE_MS: Final = 50.0
"""Room for a clock that is coarse, or was set a little while the run went on."""
CLOCK_DRIFT_PPM: Final = 500
"""How much faster one clock may run than the other: as far as clocks are disciplined."""
_MS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockFault:
    """An ``observed_at`` that cannot be."""

    expected: str
    got: str


class RunningClock:
    """A clock that runs by itself, so far ahead of ours as all answers together allow."""

    def __init__(self) -> None:
        self._least_ms = float("-inf")
        self._most_ms = float("inf")
        self._first_ns: int | None = None

    @property
    def offset_ms(self) -> float | None:
        """The target's time less ours, in the middle of what is possible; None before any answer.

        Our time is the monotonic clock's, in milliseconds.
        """
        if self._least_ms == float("-inf"):
            return None
        return (self._least_ms + self._most_ms) / 2

    def judge(self, observed_ms: int, called_ns: int, returned_ns: int) -> ClockFault | None:
        """Whether the time lies within the call, given every answer before."""
        # A whole millisecond m was read somewhere in [m, m + 1).
        least_ms = observed_ms - returned_ns / _MS
        most_ms = observed_ms + 1 - called_ns / _MS
        if self._first_ns is None:
            self._first_ns = called_ns
        run_ms = abs(called_ns - self._first_ns) / _MS
        tolerance_ms = CLOCK_TOLERANCE_MS + run_ms * CLOCK_DRIFT_PPM / 1e6
        if least_ms > self._most_ms + tolerance_ms:
            return self._fault(least_ms - self._most_ms, "after")
        if most_ms < self._least_ms - tolerance_ms:
            return self._fault(self._least_ms - most_ms, "before")
        # Plain intersections, though they may cross within the tolerance: were one bound to
        # follow the other, a clock that runs 4 % fast would drag both along and never be caught.
        self._least_ms = max(self._least_ms, least_ms)
        self._most_ms = min(self._most_ms, most_ms)
        return None

    @staticmethod
    def _fault(off_by_ms: float, side: str) -> ClockFault:
        return ClockFault(
            expected="a time within the call, by one clock that all answers share",
            got=f"a time {off_by_ms:.0f} ms {side} any moment of the call",
        )


@dataclass(slots=True)
class FrozenClock:
    """A clock that stands still at ``now_ms`` until it is moved."""

    now_ms: int

    def judge(self, observed_ms: int, called_ns: int, returned_ns: int) -> ClockFault | None:
        """Whether the time is exactly the one that the clock stands at."""
        del called_ns, returned_ns
        if observed_ms == self.now_ms:
            return None
        return ClockFault(
            expected="the time at which the clock was frozen",
            got=f"{observed_ms - self.now_ms:+d} ms from it",
        )


Clock = RunningClock | FrozenClock
