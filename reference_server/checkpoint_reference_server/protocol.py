"""The HTTP layer with bounds: on heads, on the time that a client may take, on connections.

uvicorn bounds neither a head nor how slowly a request may come, and a client that reads no answer
may keep one waiting for ever. What is bounded here, and how a connection ends that goes beyond:

- a head that is too long, or has too many headers          431, closed
- a request whose last byte does not come in time           closed
- an answer that is not read in time                        closed
- one connection too many                                   closed at once

A body has its bound where it is read (``app.py``), for only there is a tool that must say so
(WC-IN-4). An idle connection is closed by uvicorn's setting (``KEEP_ALIVE_SECONDS``).

One timer a connection looks now and then; nothing is set up for each request.
"""

import asyncio
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

HEAD_BYTES_MAX: Final = 16 * 1024
HEADERS_MAX: Final = 100
REQUEST_SECONDS_MAX: Final = 10.0
"""From a request's first byte, or the connection's opening, to the last byte of its body."""
ANSWER_SECONDS_MAX: Final = 30.0
"""How long an answer may wait to be read."""
LOOKS: Final = 4
"""How often within those times it is looked, so much later than at them a connection may end."""
CONNECTIONS_MAX: Final = 4096
"""Open connections of a process, unless an operator says otherwise."""
ARRIVED: Final = "arrived"
"""Where a request's state says when its last byte came, by the loop's clock."""
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"content-length: 23\r\n"
    b"connection: close\r\n"
    b"\r\n"
    b"The head is too large.\n"
)


class _TooLargeError(Exception):
    """Raised inside the parser, to stop it."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._cut = app_state["cut"]
        self._look_timer: asyncio.TimerHandle | None = None
        self._receiving_since: float | None = None
        self._unread_since: float | None = None
        self._idle_since: float | None = None
        self._in_head = False
        self._head_bytes = 0

    # -- the connection ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let it in, if there are not too many."""
        super().connection_made(transport)
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) >= limit:
            self.connections.discard(self)
            self._end("too many")
            return
        self._receiving_since = self.loop.time()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to look at."""
        if self._look_timer is not None:
            self._look_timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends no more. What it has sent whole is answered, and then it is the end."""
        cycle: RequestResponseCycle | None = self.cycle
        one_sided = self.scheme != "https"  # where no side can end alone
        if one_sided and cycle and not cycle.more_body and not cycle.response_complete:
            cycle.keep_alive = False
            return True
        self._answer_nothing_more()
        return None

    def pause_writing(self) -> None:
        """An answer is not read as fast as it is written."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It is."""
        self._unread_since = None
        super().resume_writing()

    def _look_again(self) -> None:
        seconds = min(REQUEST_SECONDS_MAX, ANSWER_SECONDS_MAX) / LOOKS
        self._look_timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused and self._receiving_since is not None:
            self._receiving_since = now  # it is we who take our time
        if _passed(self._receiving_since, now, REQUEST_SECONDS_MAX):
            self._end("slow request")
        elif _passed(self._unread_or_closing_since(now), now, ANSWER_SECONDS_MAX):
            self._end("unread answer")
        elif _passed(self._idle_since, now, self.timeout_keep_alive):
            self.transport.close()
        else:
            self._look_again()

    def _unread_or_closing_since(self, now: float) -> float | None:
        """Since when an answer waits to be read, also a last one before the connection closes."""
        if self._unread_since is None and self.transport.is_closing():
            self._unread_since = now
        return self._unread_since

    def _end(self, reason: str) -> None:
        self._cut(reason)
        self._answer_nothing_more()
        self.transport.abort()

    def _answer_nothing_more(self) -> None:
        """Let what is still being answered end as if its caller had gone: nobody is written to."""
        for cycle in (self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()

    # -- a request --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what came, within the bounds."""
        self._idle_since = None
        if self._receiving_since is None:
            # Not only where a request begins: bytes that never become one are bounded too.
            self._receiving_since = self.loop.time()
        try:
            self.parser.feed_data(data)
            if self._in_head:
                # The parser keeps a header until it is whole, however long it becomes.
                self._count_head(len(data))
        except httptools.HttpParserUpgrade:
            pass  # nothing is offered to go over to; the request is answered as any other
        except (httptools.HttpParserError, _TooLargeError):
            self._answer_nothing_more()
            if self._head_bytes > HEAD_BYTES_MAX or len(self.headers or ()) > HEADERS_MAX:
                self._cut("large head")
                self.transport.write(_TOO_LARGE)
                self.transport.close()
            else:
                # Not logged, as uvicorn does: whoever sends a million of them fills no disk.
                self._cut("no HTTP")
                self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """A request begins. ASGI's scope is made when the head is whole, if it is needed at all."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._in_head = True
        self._head_bytes = 0
        self._receiving_since = self._receiving_since or self.loop.time()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after the body."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes the scope, and forgets these
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._receiving_since = None
        self.scope["state"][ARRIVED] = self.loop.time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is written. Unlike uvicorn's own, this sets no timer for the next request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = self.loop.time()

    def _count_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            raise _TooLargeError


def _passed(since: float | None, now: float, seconds_max: float) -> bool:
    return since is not None and now - since > seconds_max
