"""What is measured of a server, in one place; Prometheus and OpenTelemetry are told by it.

Nothing that a request carried is ever a label or an attribute: neither identifiers nor accounts,
addresses, paths or header values. All values come from short lists of our own words.

With nobody to tell, measuring costs a look at an empty tuple.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from checkpoint_reference_server.tool import Answer

FAULT: Final = "INTERNAL_FAULT"
"""The outcome of a request that was answered 500."""
LATENCY_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0)
"""Buckets: a step takes a fraction of a millisecond, and no answer more than five seconds."""
_RULES: Final = {
    ("claim", "CHECKPOINT_TERMINAL"): "WC-CLAIM-2",
    ("claim", "CONFIGURATION_CONFLICT"): "WC-CLAIM-3",
    ("claim", "reused"): "WC-CLAIM-4",
    ("claim", "CHECKPOINT_NOT_HELD"): "WC-CLAIM-5",
    ("claim", "CHECKPOINT_LIMIT_REACHED"): "WC-CLAIM-6",
    ("claim", "recovered"): "WC-CLAIM-8",
    ("transition", "CHECKPOINT_NOT_FOUND"): "WC-TRANS-1",
    ("transition", "observation_replayed"): "WC-TRANS-2",
    ("transition", "OBSERVATION_CONFLICT"): "WC-TRANS-3",
    ("transition", "STALE_GENERATION"): "WC-TRANS-4",
    ("transition", "CHECKPOINT_TERMINAL"): "WC-TRANS-5",
    ("transition", "CHECKPOINT_NOT_HELD"): "WC-TRANS-6",
    ("transition", "INVALID_TRANSITION"): "WC-TRANS-7",
    ("transition", "transitioned"): "WC-TRANS-8",
    ("abandon", "CHECKPOINT_NOT_FOUND"): "WC-ABANDON-1",
    ("abandon", "STALE_GENERATION"): "WC-ABANDON-2",
    ("abandon", "CHECKPOINT_TERMINAL"): "WC-ABANDON-3",
    ("abandon", "CHECKPOINT_NOT_HELD"): "WC-ABANDON-5",
    ("status", "CHECKPOINT_NOT_FOUND"): "WC-STATUS-1",
    ("status", "reported"): "WC-STATUS-2",
}
"""The rows of section 6 that an outcome tells. ``abandoned`` is WC-ABANDON-4 or -6."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One answered request."""

    binding: str
    """``http`` or ``mcp``."""
    action: str
    """``none`` where it could not be read."""
    outcome: str
    """What was decided, a code of section 8, or ``INTERNAL_FAULT``."""
    rule: str
    """The row of section 6; ``none`` where none decided, or two may have."""
    http_status: int
    seconds: float
    """From the first to the last thing that was done for it."""
    store_seconds: float | None
    """How long the atomic step took, if one was asked for."""
    store_error: str | None
    """The kind of fault in the store."""
    ended_ns: int
    """Since the epoch, by this machine's clock."""
    traceparent: str | None
    """As the caller sent it; for who makes traces, and to be checked by them."""


class Sink(Protocol):
    """Somebody who is told."""

    def began(self) -> None:
        """A request is in flight."""

    def ended(self, measured: Measured) -> None:
        """It is no more."""

    def refused(self, reason: str) -> None:
        """Somebody was not let in: ``host``, ``origin`` or ``token``."""

    def cut(self, reason: str) -> None:
        """A connection was ended: see ``protocol.py``."""

    def close(self) -> None:
        """The process ends: tell what was not told yet."""


class Measures:
    """Tells every sink.

    Args:
        sinks: who is told; nobody, unless an operator asked for it.
    """

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = tuple(sinks)

    def began(self) -> float:
        """A request is in flight; when it began, for :meth:`ended`."""
        for sink in self._sinks:
            sink.began()
        return time.perf_counter()

    def ended(
        self, binding: str, answer: Answer | None, began: float, headers: Mapping[str, str]
    ) -> None:
        """It is answered; ``None`` for an internal fault."""
        if not self._sinks:
            return
        action = (answer and answer.action) or "none"
        outcome = FAULT if answer is None else str(answer.outcome)
        measured = Measured(
            binding=binding,
            action=action,
            outcome=outcome,
            rule=_rule(action, outcome, answer),
            http_status=500 if answer is None else answer.http_status,
            seconds=time.perf_counter() - began,
            store_seconds=None if answer is None else answer.store_seconds,
            store_error=None if answer is None else answer.store_error,
            ended_ns=time.time_ns(),
            traceparent=headers.get("traceparent"),
        )
        for sink in self._sinks:
            sink.ended(measured)

    def refused(self, reason: str) -> None:
        """Somebody was not let in."""
        for sink in self._sinks:
            sink.refused(reason)

    def cut(self, reason: str) -> None:
        """A connection was ended."""
        for sink in self._sinks:
            sink.cut(reason)

    def close(self) -> None:
        """The process ends."""
        for sink in self._sinks:
            sink.close()


def _rule(action: str, outcome: str, answer: Answer | None) -> str:
    if action == "claim" and outcome == "acquired" and answer is not None:
        return "WC-CLAIM-1" if answer.members["generation"] == 1 else "WC-CLAIM-7"
    return _RULES.get((action, outcome), "none")
