"""The HTTP layer with bounds: on heads, on the time that a client may take, on connections.

uvicorn bounds neither a head nor how slowly a request may come, and a client that reads no answer
may keep one waiting for ever. What is bounded here, and how a connection ends that goes beyond:

- a head that is too long, or has too many headers          431, closed
- a request whose last byte does not come in time           closed
- an answer that is not read in time                        closed
- one connection too many                                   closed at once
- requests sent ahead of their answers                      not parsed, then not read

Whatever is refused, the requests before it are answered first: answers come in the order of their
requests (RFC 9112, 9.3.2), and a refusal in the place of an answer would be taken for it.

A body has its bound where it is read (``app.py``), for only there is a tool that must say so
(WC-IN-4). An idle connection is closed by uvicorn's setting (``KEEP_ALIVE_SECONDS``).

One timer a connection looks now and then; nothing is set up for each request.
"""

import asyncio
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
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
"""Where the state of a request that waits for another says when its last byte came, by the loop's
clock."""
PIECE_BYTES: Final = 4096
"""Of what was read, so much is parsed at once, and the rest when no request waits for another.

This bounds how many wait: a read of 256 KiB has room for ten thousand.
"""


class _Refusal(NamedTuple):
    """The last answer on a connection."""

    reason: str
    """As it is counted."""
    http_status: int
    text: str


_TOO_LARGE: Final = _Refusal("large head", 431, "The head is too large.\n")
_NO_HTTP: Final = _Refusal("no HTTP", 400, "Invalid HTTP request received.")
_NOT_IMPLEMENTED: Final = _Refusal("no HTTP", 501, "This is not implemented here.\n")


class _RefusedError(Exception):
    """Raised inside the parser, to stop it, with the refusal."""


class _Flow(FlowControl):
    """Reads on only while no request waits for another, and never behind the last one.

    Else an answer, or an application that asks for its body, would resume what the queue paused.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Collection[object]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline
        self._is_over = False

    def goes_on(self) -> bool:
        """Whether what comes is for now."""
        return not self._pipeline and not self._is_over

    def resume_reading(self) -> None:
        """If it may be."""
        if self.read_paused and self.goes_on():
            super().resume_reading()

    def end_reading(self) -> None:
        """For good."""
        self._is_over = True
        self.pause_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    flow: _Flow

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
        self._fields: list[tuple[bytes, bytes]] | None = None
        """The headers or trailers that are received, or were last."""
        self._fields_bytes = 0
        self._unparsed_bytes = 0
        self._offers_upgrade = False
        self._unparsed = b""
        self._read_at = 0.0
        """When the last bytes came: what is parsed later has come then as well."""
        self._last_words: bytes | None = None
        """What is said behind the last answer, once nothing more is parsed."""

    # -- the connection ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let it in, if there are not too many."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
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
        # With TLS no side can end alone.
        if self.scheme != "https" and self._finish(b""):
            self.cycle.keep_alive = False
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
        else:
            if _passed(self._idle_since, now, self.timeout_keep_alive):
                self.transport.close()  # which waits for an answer that is not read: look again
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

    def _finish(self, last_words: bytes) -> bool:
        """Parse nothing more, answer what came whole, and say the last words behind it.

        Returns:
            Whether anything is still to be answered.
        """
        cycle: Any = self.cycle
        waits = cycle is not None and not cycle.response_complete
        if cycle is not None and cycle.more_body:
            # A half request, the last: it is not answered, or not a second time.
            cycle.disconnected = True
            cycle.message_event.set()
            waits = bool(self.pipeline)
            if waits:
                self.pipeline.popleft()
            elif cycle.response_started:
                last_words = b""
        self._last_words = last_words
        self.flow.end_reading()
        if not waits:
            self._say_last_words(last_words)
        return waits

    def _say_last_words(self, last_words: bytes) -> None:
        self.transport.write(last_words)
        self.transport.close()

    # -- a request --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what came, within the bounds."""
        self._read_at = self.loop.time()
        self._parse(self._unparsed + data)

    def _parse(self, data: bytes) -> None:
        at = 0
        while at < len(data) and self.flow.goes_on():
            piece = data[at : at + PIECE_BYTES]
            at += len(piece)
            self._idle_since = None
            if self._receiving_since is None:
                # Not only where a request begins: bytes that never become one are bounded too.
                self._receiving_since = self.loop.time()
            fields = self._fields
            try:
                self.parser.feed_data(piece)
                if fields is not None and fields is self._fields:
                    # The parser keeps a field until it is whole, however long it becomes.
                    self._count_unparsed(len(piece))
            except httptools.HttpParserUpgrade as upgrade:
                (offset,) = upgrade.args
                data, at = self._without_upgrade() + data[at - len(piece) + offset :], 0
            except (httptools.HttpParserError, _RefusedError) as error:
                # A callback's own error is this one's context.
                cause = error if isinstance(error, _RefusedError) else error.__context__
                self._refuse(cause.args[0] if isinstance(cause, _RefusedError) else _NO_HTTP)
        self._unparsed = data[at:]

    def _without_upgrade(self) -> bytes:
        """The head again, as if it offered no other protocol, for a parser that begins anew.

        An Upgrade may be ignored (RFC 9110, 7.8). The parser takes it that what follows is of the
        other protocol, the request's body too, and leaves it to us. So would the body be lost of
        whoever offers HTTP/2 with a POST, as Java's client does by itself; and whoever hides a
        request in a body could have it answered.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b:%b" % field for field in self.headers if field[0] != b"upgrade"]
        self._offers_upgrade = False
        # The one that there is parses nothing more behind a Connection: close.
        self.parser = httptools.HttpRequestParser(self)
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, refusal: _Refusal) -> None:
        # Not logged, as uvicorn does: whoever sends a million of them fills no disk.
        self._cut(refusal.reason)
        text = refusal.text.encode()
        headers = (
            *self.server_state.default_headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        )
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self._finish(b"%b%b\r\n%b" % (STATUS_LINE[refusal.http_status], lines, text))

    def on_message_begin(self) -> None:
        """A request begins. ASGI's scope is made when the head is whole, if it is needed at all."""
        self.url = b""
        self._fields = self.headers = []
        self._fields_bytes = self._unparsed_bytes = 0
        self._receiving_since = self._receiving_since or self.loop.time()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        super().on_url(url)
        self._count_fields(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or a trailer, which is counted and is none (RFC 9110, 6.5.1)."""
        assert self._fields is not None
        self._fields.append((name.lower(), value))
        self._count_fields(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._fields = None
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _RefusedError(_NOT_IMPLEMENTED)  # what follows is for somebody else
            self._offers_upgrade = True
            return
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise _RefusedError(_NO_HTTP)  # RFC 9112, 3.2
        if b"transfer-encoding" in names:
            self._check_codings()
        self.expect_100_continue = b"expect" in names and self._expects_100_continue()
        self.on_request()

    def on_request(self) -> None:
        """A request has begun whose head can be used."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes the scope, and forgets these
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The bytes of a chunk follow; or trailers, if it was the last."""
        # A list of their own that nobody reads, but for its length: with the headers.
        self._fields = self.headers.copy()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._fields = None
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        if self._offers_upgrade:
            return  # it comes behind the head without that
        self._receiving_since = None
        if self.pipeline:
            self.scope["state"][ARRIVED] = self._read_at
        cycle = self.cycle
        cycle.more_body = False
        if cycle.response_complete:
            # Its answer did not wait for its body, so nothing comes that could begin this.
            self._idle_since = self.loop.time()
        else:
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """An answer is written. Unlike uvicorn's own, this sets no timer for the next request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            self._parse(self._unparsed)
        elif self._last_words is not None:
            self._say_last_words(self._last_words)
            return
        else:
            self._idle_since = self.loop.time()
        self.flow.resume_reading()

    def _count_fields(self, count: int) -> None:
        self._fields_bytes += count
        if self._fields_bytes > HEAD_BYTES_MAX or len(self._fields or ()) > HEADERS_MAX:
            raise _RefusedError(_TOO_LARGE)

    def _count_unparsed(self, count: int) -> None:
        self._unparsed_bytes += count
        if self._unparsed_bytes > HEAD_BYTES_MAX:
            raise _RefusedError(_TOO_LARGE)

    def _check_codings(self) -> None:
        """Chunked, and nothing within. What is not chunked at last is the parser's to refuse."""
        values = (value for name, value in self.headers if name == b"transfer-encoding")
        *within, last = (coding.strip().lower() for coding in b",".join(values).split(b","))
        if within and last == b"chunked":
            raise _RefusedError(_NOT_IMPLEMENTED)

    def _expects_100_continue(self) -> bool:
        """Whether this is asked by somebody who may: not by HTTP/1.0 (RFC 9110, 10.1.1)."""
        return self.parser.get_http_version() != "1.0" and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )


def _passed(since: float | None, now: float, seconds_max: float) -> bool:
    return since is not None and now - since > seconds_max
