"""A TCP proxy that can cut, hold back and freeze what goes through it.

It stands between client and server, or between server and store, and understands neither: a
*request* is what comes from the side that connected, an *answer* what comes back. Whoever makes
faults tells it where to cut the next connections:

    before-request   the request is not passed on
    in-request       half of what came is
    before-answer    all of it is; the answer is thrown away: it was applied, and nobody is told
    in-answer        half of the answer arrives
    after-answer     all of it arrives, then the connection is gone

It runs in a thread of its own and may be told from any other. What it holds is bounded: so many
connections, and of each one piece in either direction.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self
from urllib.parse import urlsplit

CONNECTIONS_MAX: Final = 4096
"""Further ones are closed at once."""
CONNECT_SECONDS_MAX: Final = 2.0
CHUNK_BYTES: Final = 65536
"""One piece: more is not read before it was passed on."""
QUIET_SECONDS: Final = 0.02
"""An answer that goes on for longer than this without a byte is taken to be at its end."""
_STORE_PORT: Final = 6379
_BACKLOG: Final = 1024
_HOST: Final = "127.0.0.1"


class Cut(StrEnum):
    """Where a connection is cut."""

    BEFORE_REQUEST = "before-request"
    IN_REQUEST = "in-request"
    BEFORE_ANSWER = "before-answer"
    IN_ANSWER = "in-answer"
    AFTER_ANSWER = "after-answer"


_OF_REQUESTS: Final = frozenset({Cut.BEFORE_REQUEST, Cut.IN_REQUEST})


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where connections are passed on to: a port of a host, or a unix socket."""

    host: str
    port: int
    path: str = ""
    """Of the socket; host and port count for nothing then."""

    @classmethod
    def of_store(cls, url: str) -> "Upstream":
        """What a store's URL names, such as ``redis://127.0.0.1:6379/0`` or ``unix:///run/x``.

        Raises:
            ValueError: it is none, or one with TLS, whose name the proxy does not bear.
        """
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return cls(host="", port=0, path=parts.path)
        if parts.scheme not in ("redis", "valkey") or not parts.hostname:
            raise ValueError("only redis://HOST:PORT/N and unix:///PATH can be passed on to")
        return cls(host=parts.hostname, port=parts.port or _STORE_PORT)


class _Link:
    """One connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._ends = (near, far)

    def cut(self) -> None:
        for end in self._ends:
            end.transport.abort()


class TcpProxy:
    """Listens on loopback until it is closed; what it does is told by the module.

    Args:
        upstreams: the first that can be reached gets the connection, beginning with the one
            after that of the last connection.

    Raises:
        OSError: no port is free.
    """

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self.upstreams = tuple(upstreams)
        """May be replaced at any time, for connections from then on."""
        self._listener = socket.create_server((_HOST, 0), backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._turn = 0
        self._links: set[_Link] = set()
        self._where: Cut | None = None
        self._left = 0
        self._made = 0
        self._delay_seconds = 0.0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Event()
        self._gate.set()
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # -- told from any thread ---------------------------------------------------------------

    def cut(self, where: Cut, times: int) -> None:
        """Cut the next so many connections that come to this place."""
        with self._changed:
            self._where, self._left, self._made = where, times, 0

    def wait_until_cut(self, seconds_max: float) -> int:
        """How many were cut, once that is all of them or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._left, seconds_max)
            return self._made

    def delay(self, seconds: float) -> None:
        """Pass every piece of an answer on only so much later; 0 for at once."""
        self._delay_seconds = seconds

    def freeze(self) -> None:
        """Pass nothing on, and keep the connections."""
        self._do(self._gate.clear)

    def cut_all(self) -> None:
        """Cut every connection that there is."""

        def cut() -> None:
            for link in list(self._links):
                link.cut()

        self._do(cut)

    def heal(self) -> None:
        """Pass everything on, at once; what was cut stays so."""
        with self._changed:
            self._where, self._left = None, 0
            self._delay_seconds = 0.0
        self._do(self._gate.set)

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._links)

    def close(self) -> None:
        """Cut everything and listen no more."""

        def stop() -> None:
            if self._accepting is not None:
                self._accepting.cancel()

        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(stop)
            self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _do(self, work: Callable[[], None]) -> None:
        """Carry something out in the proxy's thread, and wait until it is done."""
        done: Future[None] = Future()

        def run() -> None:
            work()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result()

    # -- in its own thread ------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._accepting = self._loop.create_task(self._accept())
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._accepting)
        finally:
            for link in list(self._links):
                link.cut()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()

    async def _accept(self) -> None:
        self._listener.setblocking(False)
        while True:
            accepted, _ = await self._loop.sock_accept(self._listener)
            if len(self._links) >= CONNECTIONS_MAX:
                accepted.close()
                continue
            task = self._loop.create_task(self._pass_on(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near_reader, near = await asyncio.open_connection(sock=accepted)
        far_reader_and_writer = await self._connected()
        if far_reader_and_writer is None:
            near.transport.abort()
            return
        far_reader, far = far_reader_and_writer
        link = _Link(near, far)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._requests(near_reader, far)),
            asyncio.ensure_future(self._answers(far_reader, near)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            link.cut()
            self._links.discard(link)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the upstream whose turn it is, or to the next that can be reached."""
        upstreams = self.upstreams
        self._turn += 1
        for number in range(len(upstreams)):
            upstream = upstreams[(self._turn + number) % len(upstreams)]
            with suppress(OSError, TimeoutError):
                if upstream.path:
                    opening = asyncio.open_unix_connection(upstream.path)
                else:
                    opening = asyncio.open_connection(upstream.host, upstream.port)
                return await asyncio.wait_for(opening, CONNECT_SECONDS_MAX)
        return None

    async def _requests(self, near: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await near.read(CHUNK_BYTES):
                await self._gate.wait()
                where = self._cuts_here(_OF_REQUESTS)
                if where is Cut.BEFORE_REQUEST:
                    return
                if where is Cut.IN_REQUEST:
                    await _write(far, data[: len(data) // 2])
                    return
                await _write(far, data)
            far.write_eof()
            await asyncio.Event().wait()  # what is still answered is passed on

    async def _answers(self, far: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await far.read(CHUNK_BYTES):
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                await self._gate.wait()
                where = self._cuts_here(frozenset(Cut) - _OF_REQUESTS)
                if where is Cut.BEFORE_ANSWER:
                    return
                if where is Cut.IN_ANSWER:
                    await _write(near, data[: len(data) // 2])
                    break
                await _write(near, data)
                if where is Cut.AFTER_ANSWER:
                    await self._rest(far, near)
                    break
            # Not as a cut does it: what was passed on must arrive.
            near.close()
            await near.wait_closed()

    @staticmethod
    async def _rest(far: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        """What is left of an answer that has begun."""
        with suppress(TimeoutError):
            while data := await asyncio.wait_for(far.read(CHUNK_BYTES), QUIET_SECONDS):
                await _write(near, data)

    def _cuts_here(self, places: frozenset[Cut]) -> Cut | None:
        with self._changed:
            if not self._left or self._where not in places:
                return None
            self._left -= 1
            self._made += 1
            if not self._left:
                self._changed.notify_all()
            return self._where


async def _write(end: asyncio.StreamWriter, data: bytes) -> None:
    end.write(data)
    await end.drain()


__all__ = ["Cut", "TcpProxy", "Upstream"]
