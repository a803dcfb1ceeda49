"""The harness's own HTTP client: one request, one answer, and when each byte moved.

h11 reads and writes the protocol; this file owns the sockets, because a judge must know what a
convenient client hides: nothing is ever sent twice, the whole exchange has one deadline however
slowly bytes trickle, an answer that stopped half-way is told from one that never began, and the
last byte of a request can be held back so that many requests are released at once.
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit

import h11

from checkpoint_conformance.rules import Binding

EXCHANGE_SECONDS_MAX: Final = 10.0
"""How long one exchange may take, from opening the connection to the answer's last byte."""
ANSWER_BYTES_MAX: Final = 1 << 20
"""A longer answer is given up: the contract's own are about a kilobyte."""
_CHUNK: Final = 65536
_WHOLE_BYTES_MAX: Final = 16384
"""A request that is no longer goes out in one piece, unless its last byte is to be held back."""
_HTTP: Final = b"HTTP/"
_EVENT_STREAM: Final = "text/event-stream"
_USER_AGENT: Final = "workflow-checkpoint"
_ACCEPT: Final = "application/json, application/problem+json"
_REQUESTS_KEPT: Final = 1024


class LostReason:
    """Why there is no complete answer."""

    REFUSED: Final = "the connection was refused or could not be made"
    TIMED_OUT: Final = "no complete answer in time"
    CLOSED: Final = "the connection was closed before an answer"
    CUT: Final = "the connection was closed in the middle of an answer"
    NOT_HTTP: Final = "what came back is not HTTP"
    TOO_LONG: Final = "the answer is too long to be one of the contract's"
    NOT_MET: Final = "no MCP client was let in"


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpAnswer:
    """A complete answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Names in lower case, in the order in which they came."""
    body: bytes

    @property
    def is_event_stream(self) -> bool:
        """Whether its body is events, one after the other, and need not end."""
        kind = (self.header("content-type") or "").partition(";")[0]
        return kind.strip().lower() == _EVENT_STREAM

    def header(self, name: str) -> str | None:
        """A header by its lower-case name; one that was sent in several lines, joined to a list."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """No complete answer: the request may or may not have been applied."""

    reason: str
    detail: str

    @property
    def why(self) -> str:
        """Both, for people."""
        return f"{self.reason}. {self.detail}".rstrip(". ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One request on the wire and what came of it. Times by the monotonic clock, in ns."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    """Those of this request alone."""
    target_headers: tuple[str, ...] = ()
    """Names of those that go with every request to the target, such as credentials."""
    body: bytes
    called_ns: int
    """Just before the request's last byte; of a short one that goes out in one piece, before it."""
    returned_ns: int
    """Just after the answer's last byte, or when it was given up."""
    answer: HttpAnswer | Lost
    binding: Binding = Binding.HTTP
    request_id: int | None = None
    """Of the JSON-RPC message, where it was one."""


class UrlError(ValueError):
    """The text is no URL that the harness can use; the message says what one looks like."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a server listens, as a base URL says it."""

    url: str
    """Without a trailing slash."""
    host: str
    port: int
    tls: bool
    base_path: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read ``http://host[:port][/base]``.

        Raises:
            UrlError: it is something else.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = None, None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise UrlError(f"{url!r} is no base URL; one looks like http://127.0.0.1:8080")
        if parts.query or parts.fragment or parts.username:
            raise UrlError(f"{url!r}: a base URL has no query, fragment or user")
        tls = parts.scheme == "https"
        return cls(
            url=url.rstrip("/"),
            host=parts.hostname,
            port=port or (443 if tls else 80),
            tls=tls,
            base_path=parts.path.rstrip("/"),
        )

    @property
    def host_header(self) -> str:
        """What the ``Host`` header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


Headers: TypeAlias = Sequence[tuple[str, str]]
JSON_HEADERS: Final[Headers] = (("content-type", "application/json"),)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """One request as it goes out."""

    connection: h11.Connection
    """The protocol's state once it has gone out."""
    wire: bytes
    """The whole of it."""


def outgoing(address: Address, method: str, path: str, body: bytes, headers: Headers) -> Outgoing:
    """Write a request; its length is said, unless a header says that it comes in chunks.

    Raises:
        h11.LocalProtocolError: a header is none.
    """
    in_chunks = any(name == "transfer-encoding" for name, _ in headers)
    length = len(body) if (body or method == "POST") and not in_chunks else None
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES_MAX)
    request = _request(
        address.host_header, method, address.base_path + path, tuple(headers), length
    )
    wire = connection.send(request) or b""
    if body:
        wire += connection.send(h11.Data(data=body)) or b""
    return Outgoing(connection=connection, wire=wire + (connection.send(h11.EndOfMessage()) or b""))


@lru_cache(maxsize=_REQUESTS_KEPT)
def _request(
    host: str, method: str, target: str, headers: Headers, length: int | None
) -> h11.Request:
    """A request's head, looked at by h11 once: a run sends few different ones."""
    names = {name for name, _ in headers}
    return h11.Request(
        method=method,
        target=target,
        headers=[
            ("host", host),
            ("user-agent", _USER_AGENT),
            *([] if "accept" in names else [("accept", _ACCEPT)]),
            ("accept-encoding", "identity"),
            *headers,
            *([] if length is None else [("content-length", str(length))]),
        ],
    )


class AnswerReader:
    """Reads one answer as its bytes come, and tells how the connection stands after it.

    Args:
        sent: the request.
        surplus: what came on this connection after the last answer.
    """

    def __init__(self, sent: Outgoing, surplus: bytes = b"") -> None:
        self._connection = sent.connection
        self._surplus = surplus
        self._response: h11.Response | None = None
        self._parts: list[bytes] = []
        self._begun = False

    def feed(self, data: bytes) -> HttpAnswer | Lost | None:
        """Read on; None while more is to come. Empty data is the end of the stream."""
        if not self._begun:
            data, self._surplus = self._surplus + data, b""
            if not data:
                return Lost(reason=LostReason.CLOSED, detail="")
            if not data.startswith(_HTTP[: len(data)]):
                shown = data[:40].decode("ascii", "backslashreplace")
                return Lost(reason=LostReason.NOT_HTTP, detail=f"it begins with {shown!r}")
        self._begun = True
        try:
            return self._understood(data)
        except h11.RemoteProtocolError as error:
            reason = LostReason.NOT_HTTP if data else LostReason.CUT
            return Lost(reason=reason, detail=str(error))

    def broken(self, detail: str) -> Lost:
        """What a connection that failed meanwhile makes of the answer."""
        return Lost(reason=LostReason.CUT if self._begun else LostReason.CLOSED, detail=detail)

    @property
    def may_be_used_again(self) -> bool:
        """Whether the connection is ready for another request."""
        connection = self._connection
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    @property
    def surplus(self) -> bytes:
        """What came after the answer: it stands before the next one."""
        return bytes(self._connection.trailing_data[0])

    def so_far(self) -> HttpAnswer | None:
        """The answer as far as it has come; None before its head."""
        if self._response is None:
            return None
        return HttpAnswer(
            status=self._response.status_code,
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in self._response.headers
            ),
            body=b"".join(self._parts),
        )

    def _understood(self, data: bytes) -> HttpAnswer | Lost | None:
        self._connection.receive_data(data)
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Response):
                self._response = event
            elif isinstance(event, h11.Data):
                self._parts.append(bytes(event.data))
                if sum(map(len, self._parts)) > ANSWER_BYTES_MAX:
                    return Lost(reason=LostReason.TOO_LONG, detail="")
            elif isinstance(event, h11.EndOfMessage):
                return self.so_far()
            elif not isinstance(event, h11.InformationalResponse):
                # End of stream, and still not complete?
                return None if data else Lost(reason=LostReason.CUT, detail="")


class Client:
    """Exchanges with one server, over one connection that is kept open between them.

    Not for several threads at once: each contender has a client of its own.
    """

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str] | None = None,
        seconds_max: float = EXCHANGE_SECONDS_MAX,
    ) -> None:
        self.address = address
        self._extra = tuple((headers or {}).items())
        self.seconds_max = seconds_max
        self._socket: socket.socket | None = None
        self._surplus = b""
        self._keep_alive = True

    @property
    def binding(self) -> Binding:
        """By which binding it calls the tool."""
        return Binding.HTTP

    def exchange(
        self, method: str, path: str, body: bytes = b"", headers: Headers = ()
    ) -> Exchange:
        """Send one request and wait for its answer. Never raises for what the server does."""
        flight = self.compose(method, path, body, headers)
        flight.release()
        return flight.land()

    def prepare(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Headers = (),
        *,
        deadline: float | None = None,
    ) -> "Flight":
        """Send a request but for its last byte; else as :meth:`compose`."""
        flight = self.compose(method, path, body, headers, deadline=deadline)
        flight.load()
        return flight

    def compose(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Headers = (),
        *,
        deadline: float | None = None,
    ) -> "Flight":
        """A request that is ready to be sent, on a connection that is open.

        ``deadline`` is one that several requests share, by the monotonic clock in seconds.
        """
        return Flight(self, method, path, body, headers, self.deadline(deadline))

    def deadline(self, shared: float | None = None) -> float:
        """When an exchange that begins now is given up, by the monotonic clock in seconds."""
        return time.monotonic() + self.seconds_max if shared is None else shared

    def forgotten(self) -> None:
        """The server says that what was addressed is not there; for bindings with sessions."""

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def __enter__(self) -> "Client":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def reuse_no_more(self) -> None:
        """Open a connection for each request: the server closes them without saying so."""
        self._keep_alive = False

    def _open(self, deadline: float) -> tuple[socket.socket, bytes | None]:
        """A connection that is ready for a request, and what it said unasked since the last one.

        That is None where there was no last one.

        Raises:
            OSError: it could not be made in time.
        """
        if self._socket is not None:
            if self._keep_alive and not _closed_by_peer(self._socket):
                return self._socket, self._surplus
            self.close()
        opened = socket.create_connection(
            (self.address.host, self.address.port), timeout=max(0.001, deadline - time.monotonic())
        )
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.address.tls:
            opened = _tls().wrap_socket(opened, server_hostname=self.address.host)
        self._socket = opened
        return opened, None


@cache
def _tls() -> ssl.SSLContext:
    # Once: it reads all of the system's certificates, which takes longer than a handshake.
    return ssl.create_default_context()


class Flight:
    """One request on its way: composed, released with its last byte, landed with its answer.

    In between it may be loaded, which sends all but that last byte. One that is ``lost`` from the
    start, because nobody would take it, is never sent.
    """

    def __init__(
        self,
        client: Client,
        method: str,
        path: str,
        body: bytes,
        headers: Headers,
        deadline: float,
        lost: Lost | None = None,
    ) -> None:
        self._client = client
        self._deadline = deadline
        self._method, self._body = method, body
        self._own_headers = tuple(headers)
        self._path = client.address.base_path + path
        self._unsent = b""
        self._called_ns = 0
        self._lost = lost
        self._answer: HttpAnswer | None = None
        if lost is not None:
            return
        try:
            self._socket, surplus = client._open(deadline)  # noqa: SLF001
        except (OSError, UnicodeError) as error:  # Unicode: a host name
            self._give_up(LostReason.REFUSED, _said(error))
            return
        self._reused = surplus is not None
        sent = outgoing(client.address, method, path, body, (*client._extra, *headers))  # noqa: SLF001
        self._reader = AnswerReader(sent, surplus or b"")
        self._unsent = sent.wire

    def load(self) -> None:
        """Send all but the last byte."""
        self._send(self._unsent[:-1])
        self._unsent = self._unsent[-1:]

    def release(self) -> None:
        """Send the last byte, and whatever was not sent before it."""
        if len(self._unsent) > _WHOLE_BYTES_MAX:
            self.load()  # which may take a while, and is not yet the call
        self._called_ns = time.monotonic_ns()
        self._send(self._unsent)

    def land(self) -> Exchange:
        """Wait for the answer."""
        while self._lost is None and not self.read_some():
            pass
        return self.landed()

    def read_some(self) -> bool:
        """Read what has come; whether that completed the answer, or ended all hope of one."""
        if self._lost is not None:
            return True
        try:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            if time.monotonic() >= self._deadline:
                self._give_up(LostReason.TIMED_OUT, "")
            return self._lost is not None
        except OSError as error:
            lost = self._reader.broken(_said(error))
            self._give_up(lost.reason, lost.detail)
            return True
        came = self._reader.feed(data)
        if came is None:
            so_far = self._reader.so_far()
            came = so_far if so_far is not None and self.enough(so_far) else None
        if isinstance(came, Lost):
            if came.reason == LostReason.CLOSED and self._reused:
                # Closed while this request was on its way. Whether it was read is unknown; that
                # it does not happen again is all that can be done.
                self._client.reuse_no_more()
            self._give_up(came.reason, came.detail)
        else:
            self._answer = came
        return came is not None

    def landed(self) -> Exchange:
        """The exchange as it stands; an answer that is not complete counts as lost."""
        return self.exchange()

    def enough(self, answer: HttpAnswer) -> bool:
        """Whether no more of an answer need come than has; for answers that are streams.

        One that was asked for by GET, as MCP's may be, says nothing for as long as nobody does.
        """
        return self._method == "GET" and answer.is_event_stream

    def exchange(
        self, *, binding: Binding = Binding.HTTP, request_id: int | None = None
    ) -> Exchange:
        """The exchange as :meth:`landed` gives it, of this binding."""
        returned_ns = time.monotonic_ns()
        answer: HttpAnswer | Lost
        if self._lost is not None:
            answer = self._lost
        else:
            assert self._answer is not None
            answer = self._answer
            if self._reader.may_be_used_again:
                self._client._surplus = self._reader.surplus  # noqa: SLF001
            else:
                self._client.close()
        return Exchange(
            method=self._method,
            path=self._path,
            headers=self._own_headers,
            target_headers=tuple(name for name, _ in self._client._extra),  # noqa: SLF001
            body=self._body,
            called_ns=self._called_ns or returned_ns,
            returned_ns=returned_ns,
            answer=answer,
            binding=binding,
            request_id=request_id,
        )

    @property
    def deadline(self) -> float:
        """When it is given up, by the monotonic clock in seconds."""
        return self._deadline

    @property
    def opened(self) -> socket.socket:
        """The connection that it goes by, where it has one."""
        return self._socket

    def fileno(self) -> int:
        """For selectors; negative when there is no connection."""
        return -1 if self._lost is not None else self._socket.fileno()

    def _send(self, data: bytes) -> None:
        if self._lost is not None:
            return
        try:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            self._socket.sendall(data)
        except TimeoutError:
            self._give_up(LostReason.TIMED_OUT, "the request could not be sent")
        except OSError:
            # The server may have answered before it closed (413 to a long body): read on.
            pass

    def _give_up(self, reason: str, detail: str) -> None:
        self._lost = Lost(reason=reason, detail=detail)
        self._client.close()


Owner = TypeVar("Owner")


class Pool(Generic[Owner]):
    """Clients over which as many requests are under way at once as there are of them.

    Not for several threads at once.
    """

    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients = list(clients)
        self._free: dict[Binding, list[int]] = {binding: [] for binding in Binding}
        for place, client in enumerate(self._clients):
            self._free[client.binding].append(place)
        self._under_way: dict[int, tuple[Owner, Flight]] = {}
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, socket.socket] = {}
        self._at_once: list[int] = []

    def has_room(self, binding: Binding) -> bool:
        """Whether another request may be sent by a binding."""
        return bool(self._free[binding])

    @property
    def busy(self) -> bool:
        """Whether any request is under way."""
        return bool(self._under_way)

    def send(self, owner: Owner, binding: Binding, compose: "Callable[[Client], Flight]") -> None:
        """Send what is composed for one of a binding's clients; it is ``owner`` who is answered."""
        free = self._free[binding]
        assert free, "no client is free"
        flight = compose(self._clients[free[-1]])
        place = free.pop()
        self._under_way[place] = (owner, flight)
        flight.release()
        if flight.fileno() < 0:
            self._at_once.append(place)
        else:
            self._watch(place, flight.opened)

    def landed(self) -> list[tuple[Owner, Exchange]]:
        """Wait until some were answered, or given up at their deadlines: whose, and what came."""
        while True:
            ended, self._at_once = self._at_once, []
            deadlines = [flight.deadline for _, flight in self._under_way.values()]
            wait = 0.0 if ended else max(0.0, min(deadlines) - time.monotonic())
            for key, _ in self._selector.select(wait):
                if key.data not in self._under_way:
                    self._watch(key.data, None)  # closed or chatty while nothing was asked
                elif self._under_way[key.data][1].read_some():
                    ended.append(key.data)
            now = time.monotonic()
            for place, (_, flight) in self._under_way.items():
                if flight.deadline <= now and place not in ended and flight.read_some():
                    ended.append(place)
            if ended:
                return [self._ended(place) for place in ended]

    def close(self) -> None:
        """Close all connections, whatever is still under way."""
        self._selector.close()
        for client in self._clients:
            client.close()

    def __enter__(self) -> "Pool[Owner]":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.close()

    def _ended(self, place: int) -> tuple[Owner, Exchange]:
        owner, flight = self._under_way.pop(place)
        self._free[self._clients[place].binding].append(place)
        exchange = flight.landed()
        if self._watched.get(place) is not None and self._watched[place].fileno() < 0:
            self._watch(place, None)
        return owner, exchange

    def _watch(self, place: int, opened: socket.socket | None) -> None:
        """Watch a client's connection, in the place of the one that it had before."""
        before = self._watched.get(place)
        if before is opened:
            return
        if before is not None:
            # By what it is, for it may be closed, and have no descriptor any more.
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(before)
            del self._watched[place]
        if opened is not None:
            self._selector.register(opened, selectors.EVENT_READ, place)
            self._watched[place] = opened


def land_all(flights: Iterable[Flight]) -> list[Exchange]:
    """Wait for the answers of many requests at once, each within its own deadline."""
    flights = list(flights)
    landed: dict[int, Exchange] = {}
    with selectors.DefaultSelector() as selector:
        for index, flight in enumerate(flights):
            if flight.fileno() < 0:
                landed[index] = flight.landed()
            else:
                selector.register(flight.fileno(), selectors.EVENT_READ, index)
        while len(landed) < len(flights):
            ready = selector.select(timeout=0.1)
            waiting = {key.data for key in selector.get_map().values()}
            late = [(i, None) for i in waiting if time.monotonic() >= flights[i].deadline]
            for index, key in [*((key.data, key) for key, _ in ready), *late]:
                descriptor = key.fd if key is not None else flights[index].fileno()
                if index not in landed and flights[index].read_some():
                    with contextlib.suppress(KeyError, ValueError):
                        selector.unregister(descriptor)
                    landed[index] = flights[index].landed()
    return [landed[index] for index in range(len(flights))]


def _closed_by_peer(opened: socket.socket) -> bool:
    """Whether the server closed a connection that was kept open: nothing was sent on it yet."""
    try:
        opened.setblocking(False)
        return opened.recv(1, 0 if isinstance(opened, ssl.SSLSocket) else socket.MSG_PEEK) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
