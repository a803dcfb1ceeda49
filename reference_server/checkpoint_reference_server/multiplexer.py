"""Many requests' commands on one connection to the store, in the order in which they came.

What the commands of one turn of the event loop have in common are few writes and, mostly, one
read: a client that takes a connection from a pool for each command pays twenty times the
processor time (decision 0007). The library still makes the connection: address, TLS, password,
database, primary.

The conversation on a connection:

1. the commands of a turn, one after the other, in writes of :data:`COMMANDS_IN_A_WRITE`, so that
   the store has begun with the first before the last is made; where replicas are waited for, in
   one write;
2. where replicas are waited for and one of them is a step, a mark and ``WAIT`` behind them: none
   of the steps' answers is given out before as many replicas have what it tells of;
3. the answers, in the same order.

The mark is a write of its own, because ``WAIT`` waits for what was written on its own connection
and for nothing else. A claim may be told ``reused`` for what another process wrote a moment ago:
without the mark, ``WAIT`` would return at once, and a fail-over could still take that claim away.

Ahead of all, and now and then, a server is asked its role (``ROLE``; not a cluster's, which says
``MOVED``). A primary that was made a replica, and whose clients nobody killed, refuses what writes
and goes on answering what only reads: a holder would be told that it holds what the new primary has
given to another (WC-CONC-1).

A connection that is lost, that leads to a replica, or on which nothing was answered in time, is
given up whole: what was under way may or may not have been applied, and is never sent again
(WC-ERR-5). The next command makes a new one.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import hiredis
import redis.asyncio as redis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import InvalidResponse, ReadOnlyError, ResponseError

STORE_ANSWER_SECONDS_MAX: Final = 4.0
"""How long one request may wait for the store; leaves a second of WC-ERR-5's five."""
STORE_CONNECT_SECONDS_MAX: Final = 2.0
COMMANDS_MAX: Final = 4096
"""Under way at once in one process on one connection; what comes beyond is refused at once."""
COMMANDS_IN_A_WRITE: Final = 8
"""So many are not kept for the end of the turn. In one write, server and store waited for each
other by turns."""
WAIT_SECONDS_MAX: Final = 1.5
"""How long the replicas may take. Twice that is under the bound of one answer: behind a batch
that waits in vain, the next one must still have time to do the same."""
MARK_PREFIX: Final = "wc:mark:"
MARK_LIFE_MS: Final = 1000
_WATCH_SECONDS: Final = 0.25
"""How often it is looked for silence, and the role asked for."""
_NOT_ENOUGH: Final = object()
"""In place of an answer that has not come whole."""


class ReplicasMissingError(redis.RedisError):
    """Fewer replicas than are waited for have what was written; it may be lost with the primary."""


class _UnderWay(NamedTuple):
    """One answer that is expected."""

    future: "asyncio.Future[Any] | None"
    """Who waits for it; None where nobody does (``ASKING``)."""
    since_seconds: float
    step_key: str | None = None
    """The record's key, where it is a step."""
    closes_batch: bool = False
    """Whether it is the answer to ``WAIT``."""
    is_mark: bool = False
    is_role: bool = False


class Multiplexer:
    """One connection at a time, made when it is needed and again after it was lost."""

    def __init__(
        self,
        make_connection: Callable[[], AbstractConnection],
        *,
        wait_replicas: int = 0,
        asks_role: bool = True,
    ) -> None:
        self._make_connection = make_connection
        self._wait_replicas = wait_replicas
        self._asks_role = asks_role
        self._carrier: _Carrier | None = None

    def send(
        self, *command: str | int, step_key: str | None = None, asking: bool = False
    ) -> "asyncio.Future[Any]":
        """Send a command with the others of this turn; the future is its answer.

        Args:
            command: Its name and arguments.
            step_key: The key of a step, whose answer waits for the replicas, where any do.
            asking: Whether to send ``ASKING`` before it, as a cluster asks for.

        The future raises ``redis.exceptions.RedisError`` or ``OSError``: refused, lost, or too
        many under way. After all but a refusal it is unknown whether the command was executed.
        """
        carrier = self._carrier
        if carrier is None or carrier.is_over:
            carrier = self._carrier = _Carrier(
                self._make_connection, self._wait_replicas, asks_role=self._asks_role
            )
        return carrier.send(command, step_key, asking=asking)

    async def aclose(self) -> None:
        """Give up the connection, and whatever is under way on it."""
        if self._carrier is not None:
            await self._carrier.aclose()


class _Carrier(asyncio.Protocol):
    """One connection, from before it is made until it is lost, and what is sent on it.

    The library makes the connection; its socket is then read here, where the answers of one read
    are given out at once.
    """

    def __init__(
        self,
        make_connection: Callable[[], AbstractConnection],
        wait_replicas: int,
        *,
        asks_role: bool,
    ) -> None:
        self._make_connection = make_connection
        self._wait_replicas = wait_replicas
        self._asks_role = asks_role
        self._wait = _packed("WAIT", wait_replicas, int(WAIT_SECONDS_MAX * 1000))
        self._outgoing: list[bytes] = []
        self._last_step_key: str | None = None
        """Of a step among them."""
        self._under_way: deque[_UnderWay] = deque()
        self._held: list[tuple[asyncio.Future[Any], Any, float]] = []
        """Answers that came and are not given out before the one to ``WAIT`` has come too; each
        with who waits for it, and since when."""
        self._is_marked = False
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=DefaultParser.parse_error,
            encoding="utf-8",
            notEnoughData=_NOT_ENOUGH,
        )
        self._transport: asyncio.WriteTransport | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self.is_over = False
        """Whether it takes no more: what comes now goes to the next."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._task = self._loop.create_task(self._carry())
        if asks_role:
            self._ask_role()  # before all that is sent on it

    def send(
        self, command: Sequence[str | int], step_key: str | None, *, asking: bool
    ) -> "asyncio.Future[Any]":
        """See :meth:`Multiplexer.send`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if len(self._under_way) >= COMMANDS_MAX:
            future.set_exception(redis.ConnectionError("too many commands wait for the store"))
            return future
        now = self._loop.time()
        if not self._outgoing and self._transport is not None:
            self._loop.call_soon(self._flush)
        if asking:
            self._outgoing.append(_packed("ASKING"))
            self._under_way.append(_UnderWay(None, now))
        self._outgoing.append(_packed(*command))
        self._under_way.append(_UnderWay(future, now, step_key))
        self._last_step_key = step_key or self._last_step_key
        if len(self._outgoing) >= COMMANDS_IN_A_WRITE and not self._wait_replicas:
            self._flush()
        return future

    async def aclose(self) -> None:
        """Give up the connection, and whatever is under way on it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._end(None)  # where it was cancelled before it began

    # -- the connection ---------------------------------------------------------------------

    async def _carry(self) -> None:
        reason: BaseException | None = None
        try:
            connection: Any = self._make_connection()
            try:
                async with asyncio.timeout(STORE_CONNECT_SECONDS_MAX):
                    await connection.connect()
                self._take_over(connection._reader, connection._writer.transport)  # noqa: SLF001 - decision 0007
                self._flush()
                self._look_again()
                await self._ended
            finally:
                self._transport = None
                if self._look_timer is not None:
                    self._look_timer.cancel()
                with contextlib.suppress(redis.RedisError, OSError):
                    await connection.disconnect(nowait=True)
        except (redis.RedisError, OSError) as error:  # a TimeoutError is an OSError
            reason = error
        finally:
            self._end(reason)  # whatever ended it, nobody may be left waiting

    def _take_over(self, reader: asyncio.StreamReader, transport: asyncio.WriteTransport) -> None:
        """Read what comes from now on. Nothing is under way, so there is nothing of before."""
        if reader.at_eof() or transport.is_closing():  # of which nobody is told a second time
            raise redis.ConnectionError("the connection ended before it was used")
        transport.set_protocol(self)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The store, or the way to it, is gone."""
        self._end(exc)

    def _ask_role(self) -> None:
        self._outgoing.append(_ROLE)
        self._under_way.append(_UnderWay(None, self._loop.time(), is_role=True))
        self._flush()

    def _look_again(self) -> None:
        self._look_timer = self._loop.call_later(_WATCH_SECONDS, self._look)

    def _look(self) -> None:
        """End it where nothing was answered for too long, or no primary is there any more."""
        if self._under_way:
            # Those of whom something is held have waited longer than anything that is under way:
            # to connect may take two seconds, and a store that takes the steps and then freezes
            # would have its four for `WAIT` alone.
            since_seconds = self._held[0][2] if self._held else self._under_way[0].since_seconds
            if self._loop.time() - since_seconds > STORE_ANSWER_SECONDS_MAX:
                self._end(redis.TimeoutError("the store says nothing"))
                return
        if self._asks_role:
            self._ask_role()
        self._look_again()

    def _end(self, reason: BaseException | None) -> None:
        """Take no more, and tell whoever waits."""
        self.is_over = True
        futures = [future for future, _, _ in self._held]
        futures += [one.future for one in self._under_way if one.future is not None]
        self._held.clear()
        self._under_way.clear()
        self._outgoing.clear()
        for future in futures:
            error = redis.ConnectionError("the connection to the store was lost")
            error.__cause__ = reason
            _settle(future, error)
        if not self._ended.done():
            self._ended.set_result(None)

    # -- what is sent and what comes --------------------------------------------------------

    def _flush(self) -> None:
        """Send what was given until now, and was not sent yet, in one write."""
        if self._transport is None or not self._outgoing:
            return
        if self._wait_replicas and self._last_step_key is not None:
            # In the slot of a step, so that a cluster's node takes it.
            name = f"{MARK_PREFIX}{_tag(self._last_step_key)}"
            self._outgoing += [_packed("SET", name, "", "PX", MARK_LIFE_MS), self._wait]
            now = self._loop.time()
            self._under_way.append(_UnderWay(None, now, is_mark=True))
            self._under_way.append(_UnderWay(None, now, closes_batch=True))
        self._last_step_key = None
        batch = b"".join(self._outgoing)
        self._outgoing.clear()
        self._transport.write(batch)

    def data_received(self, data: bytes) -> None:
        """Give out the answers that came."""
        try:
            self._reader.feed(data)
            while not self.is_over and (answer := self._reader.gets()) is not _NOT_ENOUGH:
                # What the store says without being asked, as of a key that changed.
                if not isinstance(answer, hiredis.PushNotification):
                    self._answered(answer)
        except InvalidResponse as error:
            self._end(error)

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            if not isinstance(answer, ResponseError):  # of the connection, and of no one command
                self._end(answer)
                return
            # No primary any more; a name may by now lead to the new one.
            self.is_over = isinstance(answer, ReadOnlyError)
        if not self._under_way:
            self._end(InvalidResponse("an answer that nobody asked for"))
            return
        future, since_seconds, step_key, closes_batch, is_mark, is_role = self._under_way.popleft()
        if is_mark:
            self._is_marked = not isinstance(answer, ResponseError)
        elif closes_batch:
            self._release(answer if self._is_marked else 0)
        elif future is not None:
            # A refusal by the store tells of no record, so there is nothing to wait for.
            if self._wait_replicas and step_key and not isinstance(answer, ResponseError):
                self._held.append((future, answer, since_seconds))
            else:
                _settle(future, answer)
        elif is_role and isinstance(answer, list) and answer[0] == _REPLICA:
            self._end(ReadOnlyError("the server there is a replica"))
        if self.is_over:
            self._end(None)

    def _release(self, replicas: Any) -> None:
        """Give out what the answer to ``WAIT`` allows."""
        enough = isinstance(replicas, int) and replicas >= self._wait_replicas
        held, self._held = self._held, []
        for future, answer, _ in held:
            if enough:
                _settle(future, answer)
            else:
                missing = f"{replicas} of {self._wait_replicas} replicas answered in time"
                _settle(future, ReplicasMissingError(missing))


def _tag(key: str) -> str:
    """The part of a key by which a cluster places it, braces and all."""
    return key[key.index("{") : key.index("}") + 1]


def _packed(*command: str | int) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # typed as of one word
    return packed


_ROLE: Final = _packed("ROLE")
_REPLICA: Final = "slave"
"""As ``ROLE`` has it. Where a user may not ask, it answers with an error and nothing is known."""


def _settle(future: "asyncio.Future[Any]", answer: Any) -> None:
    if future.done():
        return  # whoever waited for it went away
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
