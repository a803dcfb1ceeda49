"""Many requests' commands on one connection to the store, in the order in which they came.

What the commands of one turn of the event loop have in common is one write and, mostly, one read:
a client that takes a connection from a pool for each command pays twenty times the processor time
(decision 0007). The library still makes the connection: address, TLS, password, database, primary.

The conversation on a connection:

1. the commands of a turn, one after the other, in one write;
2. where replicas are waited for and one of them is a step, ``WAIT`` behind them: none of the
   answers is given out before as many replicas have what they tell of;
3. the answers, in the same order.

A connection that is lost, or on which nothing was answered in time, is given up whole: what was
under way may or may not have been applied, and is never sent again (WC-ERR-5). The next command
makes a new one.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import hiredis
import redis.asyncio as redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ReadOnlyError, ResponseError

STORE_ANSWER_SECONDS_MAX: Final = 4.0
"""How long one request may wait for the store; leaves a second of WC-ERR-5's five."""
STORE_CONNECT_SECONDS_MAX: Final = 2.0
COMMANDS_MAX: Final = 4096
"""Under way at once in one process on one connection; what comes beyond is refused at once."""
WAIT_SECONDS_MAX: Final = 1.5
"""How long the replicas may take. Twice that is under the bound of one answer: behind a batch
that waits in vain, the next one must still have time to do the same."""
_WATCH_SECONDS: Final = 0.25


class ReplicasMissingError(redis.RedisError):
    """Fewer replicas than are waited for have what was written; it may be lost with the primary."""


class _UnderWay(NamedTuple):
    """One answer that is expected."""

    future: "asyncio.Future[Any] | None"
    """Who waits for it; None where nobody does (``ASKING``)."""
    since_seconds: float
    is_step: bool
    closes_batch: bool = False
    """Whether it is the answer to ``WAIT``."""


class Multiplexer:
    """One connection at a time, made when it is needed and again after it was lost."""

    def __init__(
        self, make_connection: Callable[[], AbstractConnection], *, wait_replicas: int = 0
    ) -> None:
        self._make_connection = make_connection
        self._wait_replicas = wait_replicas
        self._wait = _packed("WAIT", wait_replicas, int(WAIT_SECONDS_MAX * 1000))
        self._outgoing: list[tuple[bytes, _UnderWay]] = []
        self._under_way: deque[_UnderWay] = deque()
        self._held: list[tuple[asyncio.Future[Any], Any]] = []
        """Answers that came and are not given out before the one to ``WAIT`` has come too."""
        self._something_to_send = asyncio.Event()
        self._carrier: asyncio.Task[None] | None = None

    def send(
        self, *command: str | int, is_step: bool = False, asking: bool = False
    ) -> "asyncio.Future[Any]":
        """Send a command with the others of this turn; the future is its answer.

        Args:
            command: Its name and arguments.
            is_step: Whether replicas are waited for, where any are.
            asking: Whether to send ``ASKING`` before it, as a cluster asks for.

        The future raises ``redis.exceptions.RedisError`` or ``OSError``: refused, lost, or too
        many under way. After all but a refusal it is unknown whether the command was executed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if len(self._outgoing) + len(self._under_way) >= COMMANDS_MAX:
            future.set_exception(redis.ConnectionError("too many commands wait for the store"))
            return future
        now = loop.time()
        if asking:
            self._outgoing.append((_packed("ASKING"), _UnderWay(None, now, False)))
        self._outgoing.append((_packed(*command), _UnderWay(future, now, is_step)))
        if self._carrier is None:
            self._carrier = loop.create_task(self._carry())
        self._something_to_send.set()
        return future

    async def aclose(self) -> None:
        """Give up the connection, and whatever is under way on it."""
        if self._carrier is not None:
            self._carrier.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._carrier

    async def _carry(self) -> None:
        """Make a connection and use it until it is lost."""
        connection = self._make_connection()
        reason: BaseException | None = None
        try:
            async with asyncio.timeout(STORE_CONNECT_SECONDS_MAX):
                await connection.connect()  # type: ignore[no-untyped-call]
            tasks = [
                asyncio.create_task(part(connection))
                for part in (self._send_all, self._receive_all, self._watch)
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                reason = done.pop().exception()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except (redis.RedisError, OSError) as error:  # a TimeoutError is an OSError
            reason = error
        finally:
            self._give_up(reason)
            with contextlib.suppress(redis.RedisError, OSError):
                await connection.disconnect(nowait=True)

    def _give_up(self, reason: BaseException | None) -> None:
        waiting = [*self._under_way, *(under_way for _, under_way in self._outgoing)]
        futures = [future for future, _ in self._held]
        futures += [under_way.future for under_way in waiting if under_way.future is not None]
        self._held.clear()
        self._under_way.clear()
        self._outgoing.clear()
        self._something_to_send.clear()
        self._carrier = None
        for future in futures:
            error = redis.ConnectionError("the connection to the store was lost")
            error.__cause__ = reason
            _settle(future, error)

    async def _send_all(self, connection: AbstractConnection) -> None:
        while True:
            await self._something_to_send.wait()
            self._something_to_send.clear()
            batch, self._outgoing = self._outgoing, []
            packed = [command for command, _ in batch]
            self._under_way.extend(under_way for _, under_way in batch)
            if self._wait_replicas and any(under_way.is_step for _, under_way in batch):
                packed.append(self._wait)
                self._under_way.append(_UnderWay(None, batch[-1][1].since_seconds, False, True))
            await connection.send_packed_command(packed, check_health=False)

    async def _receive_all(self, connection: AbstractConnection) -> None:
        while True:
            try:
                answer: Any = await connection.read_response(
                    timeout=math.inf, disconnect_on_error=False
                )
            except ResponseError as error:
                answer = error
            under_way = self._under_way.popleft()
            if under_way.closes_batch:
                self._release(answer)
            elif under_way.future is not None:
                if self._wait_replicas and under_way.is_step:
                    self._held.append((under_way.future, answer))
                else:
                    _settle(under_way.future, answer)
            if isinstance(answer, ReadOnlyError):
                return  # no primary any more; a name may by now lead to the new one

    def _release(self, replicas: Any) -> None:
        """Give out what the answer to ``WAIT`` allows."""
        enough = isinstance(replicas, int) and replicas >= self._wait_replicas
        held, self._held = self._held, []
        for future, answer in held:
            if enough:
                _settle(future, answer)
            else:
                missing = f"{replicas} of {self._wait_replicas} replicas answered in time"
                _settle(future, ReplicasMissingError(missing))

    async def _watch(self, _: AbstractConnection) -> None:
        """Return when nothing was answered for too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if self._under_way:
                silent_seconds = loop.time() - self._under_way[0].since_seconds
                if silent_seconds > STORE_ANSWER_SECONDS_MAX:
                    return


def _packed(*command: str | int) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # typed as of one word
    return packed


def _settle(future: "asyncio.Future[Any]", answer: Any) -> None:
    if future.done():
        return  # whoever waited for it went away
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
