"""The figures of a storm, taken from its history: nothing else is needed, wherever it was made.

A history is read line by line. Only one burst of it is held at a time, and for each answer the
eight bytes of its latency.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from checkpoint_conformance.client import Lost
from checkpoint_conformance.contention import in_flight_max, percentile, spread_ns
from checkpoint_conformance.history import DROPPED, Call, HistoryFile
from checkpoint_conformance.verdict import LOST_SHARE_MAX
from checkpoint_load.limits import IN_FLIGHT_SHARE_MIN
from checkpoint_load.storms import Storm
from checkpoint_model import ERRORS, ErrorCode
from checkpoint_model.wire import FLAGS

ROUNDS_TOLD_MAX: Final = 1000
"""So many bursts are listed one by one; the figures are of all."""
PERCENTILES: Final = (50, 90, 99)
_NS_PER_MS: Final = 1_000_000
_NS_PER_SECOND: Final = 1_000_000_000


@dataclass(kw_only=True, slots=True)
class Figures:
    """Of one storm, over all the files of its history."""

    storm: Storm
    contenders: int
    """How many there were to be in each burst."""
    rounds_asked: int | None = None
    """Of all files together; None where time was the bound."""
    under_faults: bool = False
    """Whether faults were made meanwhile, so that bursts may be smaller."""
    rounds: int = 0
    requests: int = 0
    setup_requests: int = 0
    dropped: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """By reason, but for those dropped on purpose."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those that section 6 did not decide, by code or status."""
    outcomes: Counter[str] = field(default_factory=Counter)
    winners: Counter[int] = field(default_factory=Counter)
    """How many rounds had so many winners."""
    latencies_ns: "array[int]" = field(default_factory=lambda: array("Q"))
    spreads_ns: "array[int]" = field(default_factory=lambda: array("Q"))
    in_flight: "array[int]" = field(default_factory=lambda: array("Q"))
    shares: "array[float]" = field(default_factory=lambda: array("d"))
    """In flight at once, of those in the burst that were to wait for an answer."""
    busy_ns: int = 0
    """From the first last byte to the last answer, summed over the bursts."""
    told: list[dict[str, Any]] = field(default_factory=list)

    def read(self, file: HistoryFile) -> None:
        """Add a file of the history.

        Raises:
            HistoryError: a line is not what the format says.
        """
        rounds: set[int | None] = set()
        for part in _parts(file):
            if part[0].burst is None:  # it only prepared a round
                self.setup_requests += len(part)
                for call in part:
                    self._count(call)
            else:
                rounds.add(part[0].round)
                self._burst(part, file.path.name)
        self.rounds += len(rounds)

    def _burst(self, calls: Sequence[Call], file_name: str) -> None:
        for call in calls:
            self._count(call)
        dropped = sum(isinstance(c.answer, Lost) and c.answer.reason == DROPPED for c in calls)
        spread, in_flight = spread_ns(calls), in_flight_max(calls)
        returned = [call.returned_ns for call in calls if call.returned_ns is not None]
        self.latencies_ns.extend(
            call.returned_ns - call.called_ns for call in calls if call.returned_ns is not None
        )
        if returned:
            self.busy_ns += max(returned) - min(call.called_ns for call in calls)
        self.requests += len(calls)
        self.dropped += dropped
        self.spreads_ns.append(spread)
        self.in_flight.append(in_flight)
        self.shares.append(in_flight / max(self.contenders - dropped, 1))
        told: dict[str, Any] = {
            "file": file_name,
            "round": calls[0].round,
            "burst": calls[0].burst,
            "requests": len(calls),
            "spread_ms": _ms(spread),
            "in_flight": in_flight,
        }
        if self.storm.flag is not None:
            winners = [call.client for call in calls if _has(call, self.storm.flag)]
            self.winners[len(winners)] += 1
            told["winners"] = winners[:2]
        if len(self.told) < ROUNDS_TOLD_MAX:
            self.told.append(told)

    def _count(self, call: Call) -> None:
        answer = call.answer
        if isinstance(answer, Lost):
            if answer.reason != DROPPED:
                self.lost[answer.reason] += 1
            self.outcomes[answer.reason] += 1
            return
        members = answer.members or {}
        code = members.get("code")
        if isinstance(code, str) and code in ErrorCode.__members__:
            outcome, decided = code, ERRORS[ErrorCode(code)].decided
        elif answer.status == 200:
            flags = [flag for flag in FLAGS if members.get(flag) is True]
            outcome, decided = flags[0] if flags else "result", True
        else:
            outcome, decided = f"HTTP {answer.status}", False
        self.outcomes[outcome] += 1
        # What does not tell whether it was applied is no refusal; the judge counts it as lost.
        untold = outcome == ErrorCode.DEPENDENCY_UNAVAILABLE or outcome.startswith("HTTP 5")
        if not decided and not untold:
            self.refused[outcome] += 1

    @property
    def incomplete_because(self) -> list[str]:
        """Why the storm was too little of one; what its answers lack is the judge's to say."""
        why = []
        if not self.requests:
            return ["no round could be played"]
        if self.rounds_asked is not None and self.rounds < self.rounds_asked:
            why.append(f"{self.rounds} of {self.rounds_asked} rounds were played")
        if median(self.shares) < IN_FLIGHT_SHARE_MIN:
            why.append(
                f"too little contention: in the median burst {median(self.in_flight):g} of "
                f"{self.contenders} requests were in flight at once, and "
                f"{IN_FLIGHT_SHARE_MIN:.0%} must be; where target and storm share processors, "
                "storm from elsewhere or grant real-time priority (CAP_SYS_NICE)"
            )
        every = self.requests + self.setup_requests
        if self.refused.total() > LOST_SHARE_MAX * every:
            named = "; ".join(f"{name} ({n} times)" for name, n in self.refused.most_common(3))
            why.append(f"{self.refused.total()} of {every} requests were not decided: {named}")
        if self.not_connected > LOST_SHARE_MAX * every and not self.under_faults:
            why.append(
                f"{self.not_connected} times a contender had no connection: the target takes fewer "
                "at once, or they were not made in time"
            )
        return why

    @property
    def not_connected(self) -> int:
        """How often a contender was missing from a burst."""
        return max(0, self.contenders * len(self.in_flight) - self.requests)

    @property
    def document(self) -> dict[str, Any]:
        """The figures as JSON; see ``storm.schema.json``."""
        latencies = sorted(self.latencies_ns)
        percentiles = {
            f"p{percent}": _ms(percentile(latencies, percent))
            for percent in PERCENTILES
            if latencies
        }
        return {
            "name": self.storm.name,
            "title": self.storm.title,
            "rounds": self.rounds,
            "rounds_asked": self.rounds_asked,
            "contenders": self.contenders,
            "requests": self.requests,
            "setup_requests": self.setup_requests,
            "dropped": self.dropped,
            "lost": self.lost.total(),
            "not_connected": self.not_connected,
            "outcomes": dict(self.outcomes.most_common()),
            "winners": None
            if self.storm.flag is None
            else {
                "flag": self.storm.flag,
                "rounds_by_number": {str(n): k for n, k in sorted(self.winners.items())},
            },
            "requests_per_second": round(len(latencies) * _NS_PER_SECOND / self.busy_ns, 1)
            if self.busy_ns
            else 0.0,
            "latency_ms": {**percentiles, "max": _ms(latencies[-1])} if latencies else None,
            "spread_ms": {"median": _ms(median(self.spreads_ns)), "max": _ms(max(self.spreads_ns))}
            if self.spreads_ns
            else None,
            "in_flight": {"median": median(self.in_flight), "min": min(self.in_flight)}
            if self.in_flight
            else None,
            "bursts": self.told,
        }


def _parts(file: HistoryFile) -> Iterator[list[Call]]:
    """The bursts of a file one after another, the preparation of rounds like one."""
    part: list[Call] = []
    for entry in file:
        if isinstance(entry, Call):
            if part and _burst_of(part[0]) != _burst_of(entry):
                yield part
                part = []
            part.append(entry)
    if part:
        yield part


def _burst_of(call: Call) -> tuple[str | None, int | None]:
    return call.burst, None if call.burst is None else call.round


def _has(call: Call, flag: str) -> bool:
    answer = call.answer
    return not isinstance(answer, Lost) and (answer.members or {}).get(flag) is True


def _ms(nanoseconds: float) -> float:
    return round(nanoseconds / _NS_PER_MS, 3)
