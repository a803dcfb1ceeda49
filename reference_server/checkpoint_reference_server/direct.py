"""Whole, plain POSTs to the tool, answered without what ASGI needs around a request.

An ASGI request costs a scope, a task, two queues of messages and a routing table: more than all
that is done for its answer. Most requests need none of it: they came whole, by HTTP/1.1, with a
length within the bound, and nobody waits before them. Those go straight to the endpoint's two
functions, and every other one to the same two by way of ASGI (decision 0009). A test holds the two
ways to the same answers.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from starlette.datastructures import Headers
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from checkpoint_reference_server.protocol import BoundedProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECT: Final = "direct"
"""Where the application's state says which endpoints there are, by listener."""

DIRECT_BYTES_MAX: Final = 16 * 1024
"""Of a body that is kept before it is known who sent it; a longer one goes the other way."""
HEADS_MAX: Final = 8
"""Heads that a connection remembers: a caller's differ by nothing but the length of the body."""
HEAD_BYTES_MAX: Final = 2048
"""Of a head that is remembered."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class Endpoint(Protocol):
    """One path that takes POSTs."""

    bytes_max: int
    """Of a body."""

    def admit(self, headers: Headers, client: Any) -> Any:
        """Whoever calls, or the response to somebody who may not."""

    async def answer(self, headers: Headers, body: bytes, caller: Any) -> Response:
        """The answer to a whole request."""

    def fault(self) -> Response:
        """The answer where that raised."""


class RequestHeaders(Headers):
    """A request's headers, for which names in lower case are asked; most are not there."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        # The first of several, as in the class that this is derived from.
        self._first = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(raw)
        }

    def get(self, key: str, default: Any = None) -> Any:
        """The header's value, the first where it is repeated."""
        return self._first.get(key, default)


class _Nobody:
    """In place of the event that an ASGI application waits for."""

    def set(self) -> None:
        """Nothing waits."""


class _DirectCycle:
    """What the HTTP layer wants to know of a request under way."""

    __slots__ = (
        "body",
        "disconnected",
        "endpoint",
        "headers",
        "keep_alive",
        "more_body",
        "response_complete",
        "task",
    )
    message_event = _Nobody()
    response_started = False
    """And not complete: it is written at once."""

    def __init__(self, endpoint: Endpoint, headers: RequestHeaders, *, keep_alive: bool) -> None:
        self.endpoint = endpoint
        self.headers = headers
        self.body = b""
        self.more_body = True
        self.disconnected = False
        self.keep_alive = keep_alive
        self.response_complete = False
        self.task: asyncio.Task[None] | None = None


class _Head(NamedTuple):
    """A head that was read before, on the same connection."""

    endpoint: Endpoint
    headers: RequestHeaders
    body_bytes: int


class DirectProtocol(BoundedProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._endpoints: Mapping[bytes, Endpoint] = {}
        self._heads: dict[bytes, _Head] = {}
        self._default_headers: list[tuple[bytes, bytes]] | None = None
        self._default_text = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Find out what this listener offers."""
        super().connection_made(transport)
        self._endpoints = self.app_state[DIRECT](self.server)

    def data_received(self, data: bytes) -> None:
        """Answer a whole request behind a head that is remembered; let all else be parsed.

        The same bytes are parsed to the same request, wherever the parser stands between two.
        """
        before: Any = self.cycle
        if self._receiving_since is not None or type(before) is not _DirectCycle:
            super().data_received(data)
            return
        end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        head = self._heads.get(data[:end])
        if (
            head is None
            or head.body_bytes != len(data) - end
            or not before.response_complete
            or self.flow.write_paused
        ):
            super().data_received(data)
            self._remember(data, end)
            return
        self._idle_since = None
        cycle = _DirectCycle(head.endpoint, head.headers, keep_alive=True)
        self.cycle = cycle  # type: ignore[assignment]
        cycle.body = data[end:]
        self._begin(cycle)

    def _remember(self, data: bytes, end: int) -> None:
        """Remember the head of what came, if that was one whole request and nothing else."""
        cycle: Any = self.cycle
        if (
            type(cycle) is _DirectCycle
            and self._receiving_since is None
            and cycle.body == data[end:]  # else it began elsewhere, behind an empty line, say
            and end <= HEAD_BYTES_MAX
        ):
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            self._heads[data[:end]] = _Head(cycle.endpoint, cycle.headers, len(data) - end)

    def on_request(self) -> None:
        """Choose the way."""
        endpoint = self._endpoints.get(self.url)
        if endpoint is None or not self._is_plain(endpoint):
            super().on_request()
            return
        # Its own headers: before it is answered, the next request may have been parsed.
        headers = RequestHeaders(self.headers)
        cycle = _DirectCycle(endpoint, headers, keep_alive=self.parser.should_keep_alive())
        self.cycle = cycle  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """A part of the body; mostly all of it."""
        cycle: Any = self.cycle
        if type(cycle) is not _DirectCycle:
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.body += body

    def on_message_complete(self) -> None:
        """Answer what is whole."""
        cycle: Any = self.cycle
        if type(cycle) is not _DirectCycle or self._offers_upgrade:
            super().on_message_complete()
            return
        self._receiving_since = None
        self._begin(cycle)

    def _begin(self, cycle: _DirectCycle) -> None:
        """Answer a request that is whole."""
        cycle.more_body = False
        cycle.task = task = self.loop.create_task(self._answer(cycle))
        self.tasks.add(task)  # which a server that stops waits for

    def _is_plain(self, endpoint: Endpoint) -> bool:
        before: Any = self.cycle
        parser = self.parser
        if (
            parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or self.expect_100_continue
            or self.flow.write_paused
            or (before is not None and not before.response_complete)
        ):
            return False
        for name, value in self.headers:
            if name == b"content-length":
                return int(value) <= min(endpoint.bytes_max, DIRECT_BYTES_MAX)
        return False

    async def _answer(self, cycle: _DirectCycle) -> None:
        endpoint, headers = cycle.endpoint, cycle.headers
        try:
            try:
                caller = endpoint.admit(headers, self.client)
                if isinstance(caller, Response):
                    response = caller
                else:
                    response = await endpoint.answer(headers, cycle.body, caller)
            except Exception:
                self.logger.exception("Exception in the application")
                response = endpoint.fault()
            if not cycle.disconnected:
                self._write(cycle, response)
        finally:
            assert cycle.task is not None
            self.tasks.discard(cycle.task)

    def _write(self, cycle: _DirectCycle, response: Response) -> None:
        parts = [STATUS_LINE[response.status_code], self._default_lines()]
        for name, value in response.raw_headers:
            if name == b"connection" and value.lower() == b"close":
                cycle.keep_alive = False
                continue  # said below
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        parts.append(bytes(response.body))
        self.transport.write(b"".join(parts))
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _default_lines(self) -> bytes:
        """The headers of every answer; the server makes their list anew each second."""
        made = self.server_state.default_headers
        if made is not self._default_headers:
            self._default_headers = made
            self._default_text = b"".join(b"%b: %b\r\n" % header for header in made)
        return self._default_text
