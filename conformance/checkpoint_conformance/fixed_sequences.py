"""Fixed sequences, many at once: what is due is sent, then the frozen clock moves to what is next.

Each sequence is data, for nothing in it depends on an answer: requests of one workflow, each due
so long after the sequence began. So all of them go through one schedule. A moment's requests are
sent over a few connections, as many of them under way as there are connections; when all of them
were answered the clock moves on, once for all sequences.

Rule 1: the requests of one workflow are sent in their order, each after the answer to the one
        before, at the time of the clock that it is due at.
Rule 2: what becomes of one sequence touches no other: a fault ends its own, a lost answer lets its
        own begin anew, on another workflow.
Rule 3: a sequence remembers what it alone would have sent: its own requests, and the clock's moves
        between two of them as one. So it can be repeated, and shortened, by itself.

Sequences that wait for answers in threads of their own would say the same in less code, and give
up what makes a run repeatable: who is next is decided here, not by whoever wakes up first.
"""

import heapq
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from checkpoint_conformance.client import Exchange, Pool
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.run import ATTEMPTS_MAX, Run
from checkpoint_conformance.session import (
    RATE_LIMIT_WAITS_MAX,
    LostError,
    RateLimitedError,
    Session,
    Told,
    ViolationError,
)
from checkpoint_conformance.tally import Move, Sent
from checkpoint_model import Request

IN_FLIGHT_MAX: Final = 16
"""How many requests are under way at once, each over a connection of its own."""


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


def send_all(run: Run, makings: Iterable[Making], *, in_flight_max: int = IN_FLIGHT_MAX) -> None:
    """Send fixed sequences, each to its end or to its first fault, which the tally keeps.

    One that lost an answer is begun anew, :data:`ATTEMPTS_MAX` times at most; then it is left out.

    Raises:
        TargetGoneError: the target stopped answering, or is paused.
        ControlError: the control of the clock did not do as it should.
    """
    going = [_Going(making=making) for making in makings]
    clients = [run.new_client() for _ in range(in_flight_max)]
    with Pool[_Going](clients) as pool:
        _Schedule(run, pool, going).go()


@dataclass(kw_only=True, eq=False, slots=True)
class _Going:
    """One sequence on its way."""

    making: Making
    attempts: int = 0
    sequence: FixedSequence = field(init=False)
    session: Session = field(init=False)
    place: int = 0
    """Which of its requests is next, or under way."""
    moves: list[Move] | None = None
    """What was sent before that one, as far as it can be repeated."""
    begun_ms: int | None = None
    noted_ms: int | None = None
    """Where the clock stood when the session last heard of it."""
    waits: int = 0
    """How often its request at hand was refused with ``RATE_LIMITED``."""

    @property
    def request(self) -> Request:
        return self.sequence.requests[self.place].request


class _Schedule:
    """Who is next, and when."""

    def __init__(self, run: Run, pool: Pool[_Going], going: Sequence[_Going]) -> None:
        self._run, self._pool = run, pool
        self._total, self._done = len(going), 0
        self._now = deque(going)
        self._order = itertools.count()
        self._later: list[tuple[int, int, _Going]] = []
        """By the frozen clock, in ms."""
        self._resting: list[tuple[float, int, _Going]] = []
        """By the monotonic clock, in seconds."""
        self._patient = False
        self._moved: Sent | None = None

    def go(self) -> None:
        while self._now or self._resting or self._later or self._pool.busy:
            while self._resting and self._resting[0][0] <= time.monotonic():
                self._now.append(heapq.heappop(self._resting)[2])
            # Where the rate is limited, many at once would only be refused in each other's stead.
            while self._now and (not self._pool.busy if self._patient else self._pool.has_room):
                self._send(self._now.popleft())
            if self._pool.busy:
                for going, exchange in self._pool.landed():
                    self._landed(going, exchange)
            elif self._resting and not self._now:
                time.sleep(max(0.0, self._resting[0][0] - time.monotonic()))
            elif self._later and not self._now and not self._move_on():
                return

    def _send(self, going: _Going) -> None:
        if going.place == 0 and going.waits == 0:
            self._begin(going)
        clock = self._run.clock
        if isinstance(clock, FrozenClock) and going.noted_ms is not None:
            waited_ms = clock.now_ms - going.noted_ms
            if waited_ms > 0:
                assert self._moved is not None
                body = json.dumps({"advance_ms": waited_ms}).encode()
                self._run.waited(going.session, waited_ms, replace(self._moved, body=body))
            going.noted_ms = clock.now_ms
        if going.waits == 0:
            going.moves = going.session.moves
        compose = going.session.composing(going.request)
        self._pool.send(going, compose)

    def _begin(self, going: _Going) -> None:
        going.attempts += 1
        going.sequence, going.session = going.making(), self._run.session()
        if going.sequence.namespace is not None:
            identity = replace(going.session.identity, namespace=going.sequence.namespace)
            going.session.rename(identity)
        clock = self._run.clock
        going.begun_ms = clock.now_ms if isinstance(clock, FrozenClock) else None
        going.noted_ms = going.begun_ms

    def _landed(self, going: _Going, exchange: Exchange) -> None:
        moves = None if going.moves is None else [*going.moves, going.request]
        try:
            told = going.session.landed(going.request, exchange, moves)
            going.waits = 0
            going.place += 1
            if going.place < len(going.sequence.requests):
                self._wait(going)
                return
            if going.sequence.at_end is not None:
                going.sequence.at_end(going.session, told, going.begun_ms)
        except RateLimitedError as refused:
            self._patient = True
            going.waits += 1
            if going.waits < RATE_LIMIT_WAITS_MAX:
                until = time.monotonic() + refused.wait_seconds
                heapq.heappush(self._resting, (until, next(self._order), going))
                return
            going.session.lost(str(refused), exchange)
            self._begin_anew(going)
            return
        except LostError:
            self._begin_anew(going)
            return
        except ViolationError as error:
            self._run.tally.fail(error.failure)
        self._ended()

    def _wait(self, going: _Going) -> None:
        clock, due = self._run.clock, going.sequence.requests[going.place]
        if going.begun_ms is None:
            assert due.at_ms == 0, "time passes in a sequence, and nobody holds the clock"
        elif isinstance(clock, FrozenClock) and going.begun_ms + due.at_ms > clock.now_ms:
            at_ms = going.begun_ms + due.at_ms
            heapq.heappush(self._later, (at_ms, next(self._order), going))
            return
        self._now.append(going)

    def _begin_anew(self, going: _Going) -> None:
        going.place = going.waits = 0
        if going.attempts < ATTEMPTS_MAX:
            self._now.append(going)
            return
        self._run.leave_sequence_out()
        self._ended()

    def _ended(self) -> None:
        self._done += 1
        self._run.progress.advance(self._done, self._total)

    def _move_on(self) -> bool:
        """Move the clock to what is due next; whether it is known where it stands now."""
        clock, at_ms = self._run.clock, self._later[0][0]
        assert isinstance(clock, FrozenClock)
        try:
            self._moved = self._run.advance(at_ms - clock.now_ms)
        except LostError:
            self._run.tally.leave_out(
                f"the sequences of the check «{self._run.check_name}» lost sight of the clock"
            )
            return False
        while self._later and self._later[0][0] <= at_ms:
            self._now.append(heapq.heappop(self._later)[2])
        return True
