"""Many conversations with the target at once, and one place that decides who is next.

A conversation is a generator. What it yields is what it waits for, and what it is given is what
came of that:

    Ask      a request to send                    its exchange
    Rest     seconds that the target asked for    nothing
    Until    a time of the frozen clock           what moved the clock, as it was sent

So it reads like one that sends and waits, and :meth:`.Session.send` is one that is held by itself.

Rule 1: as many requests are under way as there are clients for their binding, one of a
        conversation at a time.
Rule 2: the clock moves when everybody waits for it, to what is due next, once for all.
Rule 3: once the target asks for rest, one request is sent after the other: many at once would only
        be refused in each other's stead.

Threads that wait for their answers would say the same in less code, and give up what makes a run
repeatable: who is next is decided here, not by whoever wakes up first.
"""

import heapq
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from checkpoint_conformance.client import Pool
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import ATTEMPTS_MAX, Run
from checkpoint_conformance.session import (
    Ask,
    Conversation,
    LostError,
    Rest,
    Session,
    ViolationError,
    expect_somebody,
)

if TYPE_CHECKING:
    from checkpoint_conformance.tally import Failure

IN_FLIGHT_MAX: Final = 16
"""How many requests are under way at once, each over a connection of its own."""


@dataclass(frozen=True, slots=True)
class Until:
    """Wait for a time of the frozen clock, in milliseconds since the epoch."""

    at_ms: int


class Moments:
    """The moments of one conversation, counted from its beginning.

    Args:
        run: whose clock it goes by: the frozen one, or none, and then no time may pass in it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._clock = run.clock if isinstance(run.clock, FrozenClock) else None
        self.begun_ms = None if self._clock is None else self._clock.now_ms
        """By the frozen clock."""
        self._noted_ms = self.begun_ms

    def until(self, at_ms: int, *sessions: Session) -> Conversation[None]:
        """Wait until so long after the beginning, and note it in the sessions' sequences."""
        if self._clock is None or self.begun_ms is None or self._noted_ms is None:
            assert at_ms == 0, "time passes, and nobody holds the clock"
            return
        if self.begun_ms + at_ms <= self._clock.now_ms:
            return
        moved = yield Until(self.begun_ms + at_ms)
        # What the clock did for others in between is one move of this conversation's.
        waited_ms = self._clock.now_ms - self._noted_ms
        self._noted_ms = self._clock.now_ms
        body = json.dumps({"advance_ms": waited_ms}).encode()
        for session in sessions:
            self._run.waited(session, waited_ms, replace(moved, body=body))


def attempted(run: Run, begin: Callable[[], Conversation[None]]) -> Conversation[None]:
    """A conversation that is begun anew where it lost an answer; see :meth:`.Run.attempt`."""
    lost: list[Failure | None] = []
    while len(lost) < ATTEMPTS_MAX:
        try:
            yield from begin()
        except LostError as error:
            lost.append(error.failure)
            continue
        except ViolationError as error:
            run.tally.fail(error.failure)
        return
    run.give_up(lost)


def counted(
    run: Run, conversations: Collection[Conversation[None]]
) -> Iterator[Conversation[None]]:
    """Conversations that tell the run's progress as each of them ends."""
    done = 0

    def telling(conversation: Conversation[None]) -> Conversation[None]:
        nonlocal done
        yield from conversation
        done += 1
        run.progress.advance(done, len(conversations))

    return map(telling, conversations)


def hold_all(
    run: Run,
    conversations: Iterable[Conversation[None]],
    *,
    bindings: Iterable[Binding] | None = None,
    in_flight_max: int = IN_FLIGHT_MAX,
    held_max: int | None = None,
) -> None:
    """Hold conversations, each to its end.

    Args:
        run: whose clock is moved, where it is frozen.
        conversations: each keeps what it finds in the tally, and raises what ends them all.
        bindings: that they go by; the one of the check at hand if None.
        in_flight_max: how many requests of each binding are under way at once.
        held_max: how many conversations have begun and not ended at once; all of them if None.
            Where all have begun, much time passes between two requests of each.

    Raises:
        TargetGoneError: the target stopped answering, or is paused.
        ControlError: the control of the clock did not do as it should.
    """
    if run.target.one_by_one:
        in_flight_max = 1
    if bindings is None and in_flight_max == 1:
        clients = [run.client]  # another connection beside it might never be served
    else:
        clients = [
            run.new_client(binding)
            for binding in bindings or [run.tally.binding]
            for _ in range(in_flight_max)
        ]
    with Pool[Conversation[None]](clients) as pool:
        schedule = _Schedule(run, pool, conversations, held_max)
        try:
            schedule.go()
        finally:
            schedule.close()


_When: TypeAlias = list[tuple[float, int, Conversation[None]]]
"""A heap of who waits for a moment, and of equal ones whoever came first."""


class _Schedule:
    """Who is next, and when."""

    def __init__(
        self,
        run: Run,
        pool: Pool[Conversation[None]],
        conversations: Iterable[Conversation[None]],
        held_max: int | None,
    ) -> None:
        self._run, self._pool = run, pool
        self._new = deque(conversations)
        self._held: set[Conversation[None]] = set()
        """Those that have begun and not ended."""
        self._held_max = len(self._new) if held_max is None else held_max
        self._ready: dict[Binding, deque[tuple[Conversation[None], Ask]]] = {
            binding: deque() for binding in Binding
        }
        self._order = itertools.count()
        self._later: _When = []
        """By the frozen clock, in ms."""
        self._resting: _When = []
        """By the monotonic clock, in seconds."""
        self._patient = False

    def go(self) -> None:
        while True:
            while self._new and len(self._held) < self._held_max:
                one = self._new.popleft()
                self._held.add(one)
                self._go_on(one, None)
            while self._resting and self._resting[0][0] <= time.monotonic():
                self._go_on(heapq.heappop(self._resting)[2], None)
            self._send_what_may()
            if self._pool.busy:
                for one, exchange in self._pool.landed():
                    self._go_on(one, exchange)
            elif self._resting:
                time.sleep(max(0.0, self._resting[0][0] - time.monotonic()))
            elif not self._later or not self._move_on():
                return

    def close(self) -> None:
        """End what is still being held."""
        for one in self._held:
            one.close()

    def _go_on(self, one: Conversation[None], came: Any) -> None:
        try:
            step = one.send(came)
        except StopIteration:
            self._held.remove(one)
            return
        if isinstance(step, Ask):
            self._ready[step.binding].append((one, step))
        elif isinstance(step, Rest):
            self._patient = True
            until = time.monotonic() + step.seconds
            heapq.heappush(self._resting, (until, next(self._order), one))
        else:
            assert isinstance(step, Until)
            heapq.heappush(self._later, (step.at_ms, next(self._order), one))

    def _send_what_may(self) -> None:
        for binding, ready in self._ready.items():
            while ready and self._pool.has_room(binding):
                if self._patient and self._pool.busy:
                    return
                expect_somebody(self._run.tally)
                one, ask = ready.popleft()
                self._pool.send(one, binding, ask.composed_by)

    def _move_on(self) -> bool:
        """Move the clock to what is due next; whether it is known where it stands now."""
        clock, at_ms = self._run.clock, int(self._later[0][0])
        assert isinstance(clock, FrozenClock)
        try:
            moved = self._run.advance(at_ms - clock.now_ms)
        except LostError:
            self._run.tally.leave_out(
                f"the sequences of the check «{self._run.check_name}» lost sight of the clock"
            )
            return False
        while self._later and self._later[0][0] <= at_ms:
            self._go_on(heapq.heappop(self._later)[2], moved)
        return True
