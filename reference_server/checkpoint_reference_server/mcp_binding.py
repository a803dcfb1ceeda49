"""The MCP binding (section 12): Streamable HTTP, stateless, one JSON answer to each POST.

The conversation, and the answer of each step:

1. who calls (DNS rebinding, tokens)                    421, 403, 401
2. media type, content coding, what is accepted         415, 406
3. one JSON-RPC message in the body                     400, 413 and a JSON-RPC error
4. a notification: nothing here would act on it         202
5. the revision of the protocol                         400 and a JSON-RPC error
6. its methods and their parameters, by the SDK         a JSON-RPC error
7. the tool                                             a tool result, also for every error of
                                                        section 8 (WC-MCP-3)

A call that has nothing but the tool's name and arguments skips 6, where there is nothing to find.

The SDK never sees the arguments of a call. They are cut out of the message as the bytes that
they are, and go to the tool as the body of an HTTP request does: both bindings refuse the same,
and nothing that the SDK says or logs can quote them (WC-PRIV-1).

The SDK's own HTTP layer is not used, only what it has behind that: see
``docs/decisions/0005-mcp-without-the-sdk-s-http-layer.md``.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import anyio
import mcp_types
import msgspec
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from checkpoint_model.vocabulary import BODY_BYTES_MAX, CONTRACT_VERSION, MCP_TOOL
from checkpoint_reference_server import inputs
from checkpoint_reference_server.gate import NO_STORE, Caller, Gate
from checkpoint_reference_server.http_endpoint import Finish, GatedEndpoint, JsonResponse
from checkpoint_reference_server.logs import log_fault
from checkpoint_reference_server.measures import Measures
from checkpoint_reference_server.registry import RECORD, make_mcp_tool
from checkpoint_reference_server.tool import Answer, Tool

MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""A longer body is not read: far more than any call, so that WC-IN-4 can be told by the tool."""
DESCRIPTIONS_FRESH_MS: Final = 300_000
"""How long clients may keep the list of tools: it changes only with the server's version."""
_REVISION: Final = re.compile(r"[0-9A-Za-z.-]{1,16}")
"""What a revision's name may be; no identifier of section 3 with a prefix is so short."""
_INTERNAL_FAULT: Final = mcp_types.ErrorData(
    code=mcp_types.INTERNAL_ERROR, message="Internal fault"
)

JsonObject = dict[str, Any]
_PLAIN_PARAMS: Final = {"name": MCP_TOOL}
"""Beside the arguments."""


_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=False)


class _Wire(msgspec.Struct):
    """A JSON-RPC request or notification; the values of its parameters are left as they came."""

    jsonrpc: Literal["2.0"]
    method: str
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


_DECODER: Final = msgspec.json.Decoder(_Wire)


@dataclass(frozen=True, slots=True)
class _Message:
    method: str
    id: int | str | None
    """None in a notification."""
    params: JsonObject | None
    """Without the arguments."""
    arguments: bytes


@dataclass(frozen=True, slots=True)
class _Call:
    """What goes past the SDK, to the tool."""

    arguments: bytes
    caller: Caller
    headers: Headers


class _RefusedError(Exception):
    """A JSON-RPC error that was found before the SDK is asked; its words quote nothing."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = mcp_types.ErrorData(code=code, message=message, data=data)


@dataclass(slots=True)
class _Dispatch:
    """What the SDK asks of a transport: here one that tells its client nothing but the answer."""

    request_id: int | str
    message_metadata: MessageMetadata
    cancel_requested: anyio.Event
    transport: TransportContext = _TRANSPORT
    can_send_request: bool = False

    async def send_raw_request(
        self, method: str, _: Mapping[str, Any] | None, __: CallOptions | None = None
    ) -> JsonObject:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Dropped: there is no stream that it could go to."""

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Dropped, likewise."""


class McpBinding(GatedEndpoint):
    """The tool, as MCP clients see it. Keeps nothing between two messages."""

    bytes_max = MESSAGE_BYTES_MAX

    def __init__(self, tool: Tool, gate: Gate, measures: Measures, finish: Finish) -> None:
        super().__init__(tool, gate, measures, finish)
        self._never = anyio.Event()
        self._listed = {"tools": [make_mcp_tool()], "resultType": "complete"}
        fresh = CacheHint(ttl_ms=DESCRIPTIONS_FRESH_MS, scope="public")
        self._server = Server(
            RECORD.name,
            version=CONTRACT_VERSION,  # WC-REG-2
            title=RECORD.title,
            description=RECORD.summary,
            instructions=RECORD.instructions,
            cache_hints={"tools/list": fresh, "server/discover": fresh},
        )
        # By method, because these answer plain objects: the SDK holds whatever it is given to the
        # revision's schema, so a model would only be made twice.
        self._server.add_request_handler(
            "tools/list", mcp_types.PaginatedRequestParams, self._list_tools
        )
        self._server.add_request_handler(
            "tools/call", mcp_types.CallToolRequestParams, self._call_tool
        )
        # The one that is there makes traces, with the messages of exceptions in them.
        self._server.middleware.clear()

    async def answer(self, headers: Headers, body: bytes, caller: Caller) -> Response:
        """Answer one POST of who was admitted. Never raises for anything that they sent."""
        refusal = _refuse_headers(headers)
        if refusal is not None:
            status, text = refusal
            return PlainTextResponse(f"{text}\n", status, NO_STORE)
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        message: _Message | None = None
        try:
            message = _read(body)
            if message.id is None:
                _check_notification(version)
                return Response(None, 202, NO_STORE)
            call = _Call(message.arguments, caller, headers)
            if _is_plain(message, version):
                answer = await self._straight(call)
            else:
                connection = _connect(message, headers, version)
                answer = await self._serve(message, message.id, connection, call)
        except _RefusedError as refused:
            status = ERROR_CODE_HTTP_STATUS[refused.error.code]
            if len(body) > MESSAGE_BYTES_MAX:
                status = 413
            return _respond(None if message is None else message.id, refused.error, status)
        if isinstance(answer, mcp_types.ErrorData) and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return _respond(message.id, answer, ERROR_CODE_HTTP_STATUS.get(answer.code, 200))
        return _respond(message.id, answer, 200)

    async def _straight(self, call: "_Call") -> JsonObject | mcp_types.ErrorData:
        """The result of a plain call, as the SDK would have it; a test holds it to that."""
        try:
            answer = await self._decide(call)
        except Exception as error:
            log_fault("mcp", error)
            return _INTERNAL_FAULT
        members = msgspec.json.encode(answer.members)
        return {
            "content": [{"text": members.decode(), "type": "text"}],
            "isError": answer.http_status != 200,
            "structuredContent": msgspec.Raw(members),
        }

    async def _serve(
        self, message: _Message, request_id: int | str, connection: Connection, call: "_Call"
    ) -> JsonObject | mcp_types.ErrorData:
        dispatch = _Dispatch(
            request_id=request_id,
            message_metadata=ServerMessageMetadata(request_context=call, can_send_request=False),
            cancel_requested=self._never,
        )
        try:
            # Without the closing of what a connection may hold open, for nothing is.
            runner = ServerRunner(self._server, connection, {})
            return await runner.on_request(dispatch, message.method, message.params)
        except MCPError as error:
            # Without its data, where the SDK puts names that the caller made up.
            return mcp_types.ErrorData(code=error.error.code, message=error.error.message)
        except ValidationError:
            return mcp_types.ErrorData(
                code=mcp_types.INVALID_PARAMS, message="Invalid request parameters"
            )
        except Exception as error:
            log_fault("mcp", error)
            return _INTERNAL_FAULT

    async def _list_tools(
        self, _: ServerRequestContext[Any], __: mcp_types.PaginatedRequestParams | None
    ) -> JsonObject:
        return self._listed

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: mcp_types.CallToolRequestParams
    ) -> JsonObject:
        if params.name != MCP_TOOL:
            raise MCPError(
                code=mcp_types.INVALID_PARAMS, message=f"Unknown tool; the one here is {MCP_TOOL}"
            )
        call = context.request
        assert isinstance(call, _Call)
        answer = await self._decide(call)
        return {
            "content": [{"type": "text", "text": msgspec.json.encode(answer.members).decode()}],
            "structuredContent": answer.members,
            "isError": answer.http_status != 200,
            "resultType": "complete",
        }

    async def _decide(self, call: "_Call") -> Answer:
        started = self._measures.began()
        answer = None
        try:
            answer = await self._tool.answer(call.arguments, call.caller)
        finally:
            self._finish("mcp", answer, started, call.headers)
        return answer


def _is_plain(message: _Message, version: str | None) -> bool:
    """Whether a request needs no SDK: a call of the tool, with nothing but its arguments.

    In the revisions with a handshake there is nothing else to look at, and the result is the same.
    """
    return (
        message.method == "tools/call"
        and message.params == _PLAIN_PARAMS
        and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)
    )


def _refuse_headers(headers: Headers) -> tuple[int, str] | None:
    try:
        inputs.check_headers(headers)
    except inputs.InvalidInputError as error:
        return error.http_status, error.detail
    if not _accepts_json(headers.get("accept", "*/*")):
        return 406, f"The answer is {inputs.MEDIA_TYPE}, which must be accepted."
    return None


@lru_cache(maxsize=64)  # each client sends the same one with every request
def _accepts_json(accept: str) -> bool:
    accepted = {kind.partition(";")[0].strip().lower() for kind in accept.split(",")}
    return not accepted.isdisjoint(("*/*", "application/*", inputs.MEDIA_TYPE))


def _read(body: bytes) -> _Message:
    """The message in a body.

    Raises:
        _RefusedError: it is too long, no JSON, or no request or notification.
    """
    if len(body) > MESSAGE_BYTES_MAX:
        raise _RefusedError(
            mcp_types.INVALID_REQUEST, f"The message is longer than {MESSAGE_BYTES_MAX} bytes"
        )
    try:
        try:
            wire = _DECODER.decode(body)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, RecursionError):
            wire = _DECODER.decode(_mend(body))
        fields = {} if wire.params is msgspec.UNSET else wire.params
        arguments = bytes(fields.pop("arguments", b"{}"))  # absent: WC-MCP-2
        params = {name: msgspec.json.decode(value) for name, value in fields.items()}
    except msgspec.ValidationError:
        raise _RefusedError(
            mcp_types.INVALID_REQUEST, "The body must be one JSON-RPC request or notification"
        ) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise _RefusedError(mcp_types.PARSE_ERROR, "The body is not JSON in UTF-8") from None
    return _Message(
        wire.method,
        None if wire.id is msgspec.UNSET else wire.id,
        None if wire.params is msgspec.UNSET else params,
        arguments,
    )


_MENDED_BYTES_MAX: Final = 8 * BODY_BYTES_MAX
_MENDED_DEPTH_MAX: Final = 8
# A string that never ends is one token too: looked for anew from each quotation mark in it, the
# end would be looked for as often as there are marks.
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]|[^"\[\]{}]+', re.DOTALL)


def _mend(body: bytes) -> bytes:
    """The same message with arguments that the tool refuses, where they alone do not parse.

    Models write half of a surrogate pair, and programs NaN or a thousand brackets. No request of
    section 3 has them, and that is for the tool to say (WC-MCP-3), to the request's own id.

    Raises:
        ValueError: the message is no JSON elsewhere too.
        RecursionError: likewise.
    """
    if len(body) > _MENDED_BYTES_MAX:
        raise ValueError("too long to look at again")
    message = json.loads(_without_the_deep(body.decode()))
    if isinstance(message, dict) and isinstance(message.get("params"), dict):
        message["params"]["arguments"] = None
    return msgspec.json.encode(message)


def _without_the_deep(text: str) -> str:
    """JSON with a number in the place of whatever is nested deeper than any message is."""
    depth, kept = 0, []
    for token in _TOKENS.findall(text):
        if token in ("[", "{"):
            depth += 1
            if depth == _MENDED_DEPTH_MAX + 1:
                kept.append("0")
        if depth <= _MENDED_DEPTH_MAX:
            kept.append(token)
        if token in ("]", "}"):
            depth -= 1
    return "".join(kept)


def _check_notification(version: str | None) -> None:
    """Accept it, unless its header names a revision that is not served.

    Raises:
        _RefusedError: it does.
    """
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        rejection = unsupported_protocol_version_rejection(version)
        if rejection is not None:
            raise _refused(rejection)


def _connect(message: _Message, headers: Headers, version: str | None) -> Connection:
    """The revision to serve a request by, and what it says of its client.

    Raises:
        _RefusedError: the revision is not served, or headers and message disagree.
    """
    if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
        # Stateless: the handshake is answered and forgotten, so every request comes after it.
        return Connection.from_envelope(version or mcp_types.DEFAULT_NEGOTIATED_VERSION, None, None)
    if find_duplicated_routing_header(headers.items()) is not None:
        raise _RefusedError(mcp_types.HEADER_MISMATCH, "A header appears more than once")
    # The HTTP layer leaves white space that RFC 9110 (5.5) does not count as part of a value.
    values = {name: value.strip(" \t") for name, value in headers.items()}
    route = classify_inbound_request(
        {"method": message.method, "params": message.params}, headers=values
    )
    if isinstance(route, InboundLadderRejection):
        raise _refused(route)
    # What the client is and can do is not read: nothing here depends on it.
    return Connection.from_envelope(route.protocol_version, None, None)


def _refused(rejection: InboundLadderRejection) -> _RefusedError:
    data = rejection.data
    if data is not None and not _REVISION.fullmatch(data["requested"]):
        data = {"supported": data["supported"]}  # that is no revision's name: not said again
    return _RefusedError(rejection.code, rejection.message, data)


def _respond(
    request_id: int | str | None, answer: JsonObject | mcp_types.ErrorData, status: int
) -> Response:
    message: JsonObject = {"jsonrpc": "2.0", "id": request_id}
    if isinstance(answer, mcp_types.ErrorData):
        message["error"] = {"code": answer.code, "message": answer.message}
        if answer.data is not None:
            message["error"]["data"] = answer.data
    else:
        message["result"] = answer
    return JsonResponse(status, msgspec.json.encode(message))
