"""The other door: the tool called over MCP (section 12), request by request like over HTTP.

A client for a person's agent hides what a judge must see, as with HTTP: so this is the harness's
own client with a JSON-RPC envelope put around each body, and the envelope's answer left as it
came. What a caller sends to the tool's path goes to the MCP endpoint; anything else, such as the
health path, goes where it would without.

Two ways to be introduced. A client of revision 2026-07-28 sends everything with each request; one
of an earlier revision shakes hands first, and a server may give it a session.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import metadata
from typing import Any, Final

from checkpoint_conformance.client import (
    EXCHANGE_SECONDS_MAX,
    JSON_HEADERS,
    Address,
    Client,
    Exchange,
    Flight,
    Headers,
    HttpAnswer,
    Lost,
    LostReason,
)
from checkpoint_conformance.plain import plain
from checkpoint_conformance.rules import Binding
from checkpoint_model.vocabulary import MCP_TOOL, TOOL_PATH

SESSION_HEADER: Final = "mcp-session-id"
REVISION_HEADER: Final = "mcp-protocol-version"
_ACCEPT: Final = "application/json, text/event-stream"
_META: Final = "io.modelcontextprotocol"
TOLD_MAX: Final = 200
"""Characters of an answer that is not what was asked for."""
PAGES_MAX: Final = 20
"""Of a list of tools; a longer one is not read to its end."""


class Revision(StrEnum):
    """The revisions of the protocol whose clients WC-MCP-1 speaks of, the oldest first."""

    JUNE_2025 = "2025-06-18"
    NOVEMBER_2025 = "2025-11-25"
    JULY_2026 = "2026-07-28"

    @property
    def shakes_hands(self) -> bool:
        """Whether a client of it begins with ``initialize``."""
        return self is not Revision.JULY_2026


class ProtocolError(Exception):
    """The server does not speak MCP with a client of some revision; the message says how."""


class UnansweredError(ProtocolError):
    """Nothing came that tells whether it does: a moment later it may.

    Whoever judges by it asks again; see :meth:`Session.lose`.
    """

    def __init__(self, told: str, exchange: Exchange) -> None:
        super().__init__(told)
        self.exchange = exchange


@dataclass(frozen=True, kw_only=True, slots=True)
class Introduced:
    """What a server said when it was met."""

    revision: Revision
    session_id: str | None
    server_info: Mapping[str, Any]


class Endpoint:
    """An MCP endpoint, and on what terms it is spoken to. Shared by the clients of a run."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str] | None = None,
        seconds_max: float = EXCHANGE_SECONDS_MAX,
    ) -> None:
        self.address = address
        self.headers = dict(headers or {})
        self.seconds_max = seconds_max
        self.introduced: Introduced | None = None
        self.heard: Callable[[Exchange], None] | None = None
        """Told of every exchange but those of :class:`McpClient`."""
        self._ids = iter(range(1, 1 << 62))
        self._lock = threading.Lock()

    # -- meeting it ----------------------------------------------------------------------

    def meet(self, revision: Revision | None = None) -> Introduced:
        """Be introduced, as a client of a revision; of the newest that it takes if None.

        Raises:
            ProtocolError: it does not take such a client.
            UnansweredError: whether it does is unknown.
        """
        with Client(self.address, headers=self.headers, seconds_max=self.seconds_max) as client:
            if revision is not None:
                self.introduced = self._meet(client, revision)
                return self.introduced
            try:
                self.introduced = self._meet(client, Revision.JULY_2026)
            except ProtocolError:
                self.introduced = self._meet(client, Revision.NOVEMBER_2025)
        return self.introduced

    def _meet(self, client: Client, revision: Revision) -> Introduced:
        if not revision.shakes_hands:
            result = self._result(client, "server/discover", {}, revision, None)
            versions = result.get("supportedVersions")
            if not isinstance(versions, list) or revision not in versions:
                told = f"server/discover of revision {revision} offers {json.dumps(versions)}"
                raise ProtocolError(told)
            info = (result.get("_meta") or {}).get(f"{_META}/serverInfo")
            return Introduced(revision=revision, session_id=None, server_info=_members(info))
        params = {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": _client_info(),
        }
        exchange = self.exchange(client, "initialize", params, revision=None, session_id=None)
        result = result_of(exchange, "initialize")
        agreed = result.get("protocolVersion")
        # A counter-offer between the two is a revision that this client speaks as well.
        if agreed not in tuple(r for r in Revision if r.shakes_hands and r <= revision):
            raise ProtocolError(
                f"initialize with revision {revision} was answered with {json.dumps(agreed)}"
            )
        assert isinstance(exchange.answer, HttpAnswer)
        session_id = exchange.answer.header(SESSION_HEADER)
        self.exchange(
            client,
            "notifications/initialized",
            None,
            revision=Revision(agreed),
            session_id=session_id,
        )
        return Introduced(
            revision=Revision(agreed),
            session_id=session_id,
            server_info=_members(result.get("serverInfo")),
        )

    # -- asking it -----------------------------------------------------------------------

    def list_tools(self) -> list[dict[str, Any]]:
        """The tools that it has.

        Raises:
            ProtocolError: it does not say.
            UnansweredError: it may yet.
        """
        met = self.introduced or self.meet()
        tools: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        with Client(self.address, headers=self.headers, seconds_max=self.seconds_max) as client:
            for _ in range(PAGES_MAX):
                result = self._result(client, "tools/list", params, met.revision, met.session_id)
                page = result.get("tools")
                if not isinstance(page, list) or not all(isinstance(tool, dict) for tool in page):
                    raise ProtocolError("tools/list was answered without a list of tools")
                tools += page
                if result.get("nextCursor") is None:
                    return tools
                params = {"cursor": result["nextCursor"]}
        raise ProtocolError(f"tools/list has more than {PAGES_MAX} pages")

    def _result(
        self,
        client: Client,
        method: str,
        params: dict[str, Any],
        revision: Revision,
        session_id: str | None,
    ) -> dict[str, Any]:
        exchange = self.exchange(client, method, params, revision=revision, session_id=session_id)
        return result_of(exchange, method)

    def exchange(
        self,
        client: Client,
        method: str,
        params: dict[str, Any] | None,
        *,
        revision: Revision | None,
        session_id: str | None,
    ) -> Exchange:
        """Send one message; a notification where ``params`` is None."""
        request_id = None if params is None else self.next_id()
        text = b"" if params is None else json.dumps(params).encode()
        body, headers = envelope(
            method, text, request_id=request_id, revision=revision, session_id=session_id
        )
        return self.post(client, body, headers, request_id)

    def post(
        self, client: Client, body: bytes, headers: Headers, request_id: int | None
    ) -> Exchange:
        """Send whatever is to be sent to the endpoint."""
        exchange = _MessageFlight(client, body, headers, request_id).go()
        if isinstance(exchange.answer, HttpAnswer) and exchange.answer.status == 404:
            self.forgotten()
        if self.heard is not None:
            self.heard(exchange)
        return exchange

    def forgotten(self) -> None:
        """The session is known no more: be introduced anew before what comes next."""
        if self.introduced is not None and self.introduced.session_id is not None:
            self.introduced = None

    def next_id(self) -> int:
        """A request id that this harness has not used with the server."""
        with self._lock:
            return next(self._ids)


def envelope(
    method: str,
    params: bytes,
    *,
    request_id: int | None,
    revision: Revision | None,
    session_id: str | None,
    name: str | None = None,
) -> tuple[bytes, Headers]:
    """A JSON-RPC message and its headers.

    Args:
        method: the method.
        params: the JSON of its parameters, one object; empty for a notification without.
        request_id: None for a notification.
        revision: on whose terms; None for ``initialize``, which has none yet.
        session_id: of the session, where there is one.
        name: the tool that is called.
    """
    headers: list[tuple[str, str]] = [*JSON_HEADERS, ("accept", _ACCEPT)]
    if revision is not None:
        headers.append((REVISION_HEADER, revision))
    if session_id is not None:
        headers.append((SESSION_HEADER, session_id))
    if revision is not None and not revision.shakes_hands:
        headers.append(("mcp-method", method))
        if name is not None:
            headers.append(("mcp-name", name))
        rest = params.strip()[1:-1].strip() if params else b""
        params = b'{"_meta":' + _meta(revision) + (b"," + rest if rest else b"") + b"}"
    parts = [b'"jsonrpc":"2.0"']
    if request_id is not None:
        parts.append(b'"id":%d' % request_id)
    parts.append(b'"method":' + json.dumps(method).encode())
    if params:
        parts.append(b'"params":' + params)
    return b"{" + b",".join(parts) + b"}", tuple(headers)


def call_params(arguments: bytes | None) -> bytes:
    """The parameters of a call of the tool, its arguments byte for byte; None leaves them out."""
    name = b'{"name":' + json.dumps(MCP_TOOL).encode()
    return name + (b"}" if arguments is None else b',"arguments":' + arguments + b"}")


def arguments_of(body: bytes) -> dict[str, Any] | None:
    """The arguments of a call, from its message; None where it is none."""
    try:
        message = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    params = message.get("params") if isinstance(message, dict) else None
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return arguments if isinstance(arguments, dict) else None


def message_of(answer: HttpAnswer, request_id: int | None) -> dict[str, Any] | None:
    """The JSON-RPC message that answers a request, as JSON or as an event; None if none does."""
    for message in _responses(answer):
        # An error that came before the id was read has none.
        if message.get("id") == request_id or (message.get("id") is None and "error" in message):
            return message
    return None


def is_cut_stream(answer: HttpAnswer) -> bool:
    """Whether it is an event stream that ended before it answered anything."""
    return answer.is_event_stream and not any(_responses(answer))


def _responses(answer: HttpAnswer) -> Iterator[dict[str, Any]]:
    for text in _events(answer.body) if answer.is_event_stream else [answer.body]:
        try:
            message = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict) and ("result" in message or "error" in message):
            yield message


def result_of(exchange: Exchange, method: str) -> dict[str, Any]:
    """What a method other than a tool's call came to.

    Raises:
        ProtocolError: to no result.
        UnansweredError: to nothing that tells.
    """
    answer = exchange.answer
    if isinstance(answer, Lost):
        raise UnansweredError(f"{method} was not answered: {answer.why}", exchange)
    message = message_of(answer, exchange.request_id)
    result = None if message is None else message.get("result")
    if isinstance(result, dict):
        return result
    error = None if message is None else message.get("error")
    said = answer.body.decode("utf-8", "replace") if error is None else json.dumps(error)
    told = f"{method} was answered with HTTP {answer.status} {plain(said, TOLD_MAX)}"
    # As with a call: a gateway's, an internal fault, a stream that was cut, or a session that was
    # forgotten, whatever is said of that.
    had_session = any(name == SESSION_HEADER for name, _ in exchange.headers)
    is_forgotten = answer.status == 404 and (message is None or had_session)
    if answer.status >= 500 or is_forgotten or is_cut_stream(answer):
        raise UnansweredError(told, exchange)
    raise ProtocolError(told)


class McpClient(Client):
    """Calls of the tool over MCP; anything else over HTTP as without it."""

    def __init__(self, endpoint: Endpoint, plain: Client) -> None:
        super().__init__(
            endpoint.address, headers=endpoint.headers, seconds_max=endpoint.seconds_max
        )
        self.endpoint = endpoint
        self._plain = plain

    @property
    def binding(self) -> Binding:
        """MCP."""
        return Binding.MCP

    def compose(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Headers = (),
        *,
        deadline: float | None = None,
    ) -> Flight:
        """As :meth:`Client.compose`; a request to the tool is put into its envelope.

        Raises:
            ProtocolError: the server was not met yet, and does not want to be. (Where it cannot
                be met at the moment, the call is lost.)
        """
        if (method, path) != ("POST", TOOL_PATH):
            return self._plain.compose(method, path, body, headers, deadline=deadline)
        return self.compose_call(body, headers, deadline=deadline)

    def compose_call(
        self, arguments: bytes | None, headers: Headers = (), *, deadline: float | None = None
    ) -> Flight:
        """A call of the tool, its arguments byte for byte; None leaves them out."""
        met, lost = self.endpoint.introduced, None
        try:
            met = met or self.endpoint.meet()
        except UnansweredError as error:
            lost = Lost(reason=LostReason.NOT_MET, detail=str(error))
        request_id = self.endpoint.next_id()
        text, own = envelope(
            "tools/call",
            call_params(arguments),
            request_id=request_id,
            revision=None if met is None else met.revision,
            session_id=None if met is None else met.session_id,
            name=MCP_TOOL,
        )
        others = [header for header in headers if header[0] != "content-type"]
        return _MessageFlight(self, text, (*own, *others), request_id, deadline=deadline, lost=lost)

    def forgotten(self) -> None:
        """The session is known no more."""
        self.endpoint.forgotten()

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self._plain.close()


class _MessageFlight(Flight):
    """One JSON-RPC message on its way.

    An event stream may stay open after the answer; it has landed with the message all the same.
    """

    def __init__(
        self,
        client: Client,
        body: bytes,
        headers: Headers,
        request_id: int | None,
        *,
        deadline: float | None = None,
        lost: Lost | None = None,
    ) -> None:
        self._request_id = request_id
        self._forgotten = client.forgotten
        super().__init__(client, "POST", "", body, headers, client.deadline(deadline), lost)

    def go(self) -> Exchange:
        """Release it, and wait for its answer."""
        self.release()
        return self.land()

    def landed(self) -> Exchange:
        """The exchange, as one over MCP."""
        exchange = self.exchange(binding=Binding.MCP, request_id=self._request_id)
        if isinstance(exchange.answer, HttpAnswer) and exchange.answer.status == 404:
            self._forgotten()
        return exchange

    def enough(self, answer: HttpAnswer) -> bool:
        """Whether the answer is there though the stream has not ended."""
        return answer.is_event_stream and message_of(answer, self._request_id) is not None


def _events(body: bytes) -> Sequence[bytes]:
    """The data of each whole event of a stream."""
    blocks = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    return [
        b"\n".join(
            line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")
        )
        for block in blocks[:-1]
    ]


@cache
def _meta(revision: Revision) -> bytes:
    """What a client of a revision without a handshake says of itself each time."""
    meta = {
        f"{_META}/protocolVersion": revision,
        f"{_META}/clientInfo": _client_info(),
        f"{_META}/clientCapabilities": {},
    }
    return json.dumps(meta).encode()


@cache
def _client_info() -> dict[str, str]:
    return {"name": "workflow-checkpoint", "version": metadata.version("workflow-checkpoint")}


def _members(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
