"""The contenders of one storm at one target, and the history of all that they do.

Every request of a storm goes through :meth:`Arena.together`, once: nothing is ever sent again by
itself, and a contender that lost an answer goes on under another name, because its request may
still be applied.
"""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from checkpoint_conformance.answers import json_object
from checkpoint_conformance.client import HttpAnswer, Lost
from checkpoint_conformance.history import Call, HistoryWriter, answer_of
from checkpoint_conformance.run import Target
from checkpoint_load.burst import Contender, Endpoint, Landed, Stop, burst, pause_until
from checkpoint_model import Identity, Request, format_request

SETUP: Final = "setup"
"""What only prepares rounds: it is no contention, so histories do not have it as a burst."""
_SECOND_NS: Final = 1_000_000_000
_SERVER_FAULT: Final = 500
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request that one contender is to send."""

    identity: Identity
    request: Request
    drop: bool = False
    """Whether to hang up without reading the answer."""
    round_number: int | None = None
    """The round that it belongs to, where that is another than its burst's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What came of it."""

    landed: Landed
    members: dict[str, Any]
    """Of the answer; empty where none came, or one that is no JSON object."""

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows what became of the request (WC-ERR-5, and any other 5xx)."""
        answer = self.landed.answer
        return isinstance(answer, Lost) or answer.status >= _SERVER_FAULT

    def has(self, flag: str) -> bool:
        """Whether the answer is a result with this flag."""
        return self.members.get(flag) is True


OnBurst = Callable[[int, Sequence[Ask], Sequence[Told]], None]
"""Told the round's number, what was asked and what came."""


class Runner(Protocol):
    """Carries out work that waits, such as in a thread of its own."""

    def __call__(self, work: Callable[[], Result], /) -> Result:
        """What the work returns."""


def _here(work: Callable[[], Result]) -> Result:
    return work()


class Arena:
    """Contenders, and what they may not exceed."""

    def __init__(
        self,
        target: Target,
        *,
        contenders: int,
        seed: int,
        stop: Stop,
        lose_share: float = 0,
        prefix: str = "",
        run: Runner = _here,
        on_burst: OnBurst = lambda *_: None,
    ) -> None:
        """Make contenders; they connect with their first request.

        Args:
            target: where to.
            contenders: how many.
            seed: repeats the choices of an earlier storm.
            stop: ends a burst at once.
            lose_share: of the answers how many to drop on purpose, where a storm does so.
            prefix: of the clients' names, where several processes write one history.
            run: what waits is carried out by it.
            on_burst: told of each burst once it is written.

        Raises:
            OSError: there is no such host.
        """
        endpoint = Endpoint(target.address)
        self.contenders = [
            Contender(target.address, endpoint, target.headers) for _ in range(contenders)
        ]
        self.stop = stop
        self.burst_ns = 0
        """How long the last burst of all took, from its first last byte to its last answer."""
        self.lose_share = lose_share
        self._seconds_max = target.seconds_max
        self._seed = f"{seed}{prefix}"
        self._prefix = prefix
        self._lives = [1] * contenders
        self._run = run
        self._on_burst = on_burst
        self._writer: HistoryWriter | None = None
        self._storm = ""
        self._deadline = 0.0

    @property
    def size(self) -> int:
        """How many contend."""
        return len(self.contenders)

    def begin(self, storm: str, writer: HistoryWriter, deadline: float) -> None:
        """Write into this history from now on, until a moment of the monotonic clock, in s."""
        self._storm, self._writer, self._deadline = storm, writer, deadline

    def end(self) -> None:
        """Begin nothing more: the time is over now."""
        self._deadline = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether to begin nothing more: it was stopped, or its time is over."""
        return self.stop.is_set or time.monotonic() >= self._deadline

    def random(self, *where: object) -> random.Random:
        """The choices to make at one place of the storm: the same for the same seed."""
        return random.Random("/".join(map(str, (self._seed, self._storm, *where))))  # noqa: S311

    def together(
        self,
        asks: Sequence[Ask],
        *,
        round_number: int,
        name: str,
        release_at_ns: int | None = None,
    ) -> list[Told]:
        """Send requests, one by each contender, released together; none once it was stopped.

        Args:
            asks: no more than there are contenders.
            round_number: of the storm, from 0.
            name: of the burst within its round.
            release_at_ns: when to release them, by the monotonic clock; at once if None.
        """
        assert len(asks) <= self.size
        if self.stop.is_set:
            return []
        requests = [format_request(ask.identity, ask.request) for ask in asks]
        bodies = [json.dumps(request, separators=(",", ":")).encode() for request in requests]
        dropped = {index for index, ask in enumerate(asks) if ask.drop}
        shuffle = self.random(round_number, name).shuffle
        landed = self._run(
            lambda: burst(
                self.contenders,
                bodies,
                seconds_max=self._seconds_max,
                stop=self.stop,
                dropped=dropped,
                release_at_ns=release_at_ns,
                shuffle=shuffle,
            )
        )
        returned = [one.returned_ns for one in landed if one.returned_ns is not None]
        if len(asks) == self.size and returned:
            called = [one.called_ns for one in landed if one.called_ns is not None]
            self.burst_ns = max(returned) - min(called)
        told = [
            self._written(index, ask, request, one, round_number, name)
            for index, (ask, request, one) in enumerate(zip(asks, requests, landed, strict=True))
        ]
        self._on_burst(round_number, asks, told)
        return told

    def pause_until(self, moment_ns: int) -> None:
        """Wait for a moment of the monotonic clock, unless the storm ends before."""
        latest_ns = min(moment_ns, int(self._deadline * _SECOND_NS))
        self._run(lambda: pause_until(latest_ns, self.stop))

    def close(self) -> None:
        """Close every connection."""
        for contender in self.contenders:
            contender.close()

    def _written(
        self, index: int, ask: Ask, request: dict[str, Any], landed: Landed, number: int, name: str
    ) -> Told:
        answer = landed.answer
        members = json_object(answer.body) if isinstance(answer, HttpAnswer) else None
        told = Told(landed=landed, members=members or {})
        if landed.called_ns is not None:
            assert self._writer is not None
            stored = answer if isinstance(answer, Lost) else answer_of(answer.status, answer.body)
            call = Call(
                client=f"{self._prefix}c{index}.{self._lives[index]}",
                request=request,
                called_ns=landed.called_ns,
                sent_ns=landed.sent_ns,
                returned_ns=landed.returned_ns,
                gave_up_ns=landed.gave_up_ns,
                answer=stored,
                round=number if ask.round_number is None else ask.round_number,
                burst=None if name == SETUP else name,
            )
            self._writer.call(call)
            self._lives[index] += told.is_unknown
        return told
