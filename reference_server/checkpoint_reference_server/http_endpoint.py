"""The HTTP binding (section 11): one POST, from its head and body to the bytes of its answer."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from checkpoint_model.vocabulary import BODY_BYTES_MAX
from checkpoint_reference_server.gate import NO_STORE, Caller, Gate, Refusal
from checkpoint_reference_server.measures import Measures
from checkpoint_reference_server.tool import Answer, Tool

Finish: TypeAlias = Callable[[str, Answer | None, float, Mapping[str, str]], None]
# As they go out: to make them of text again for each answer takes longer than to encode it.
_NO_STORE = (b"cache-control", NO_STORE["Cache-Control"].encode())
_RESULT = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", b"application/problem+json")
_ENCODER = msgspec.json.Encoder()


class GatedEndpoint:
    """What both bindings have in common as endpoints: who may call, and what a fault becomes.

    Args:
        tool: what decides.
        gate: who lets callers in.
        measures: who is told of those that are not.
        finish: what is done after an answer: binding, answer or None for a fault, when it
            began, headers.
    """

    def __init__(self, tool: Tool, gate: Gate, measures: Measures, finish: Finish) -> None:
        self._tool = tool
        self._gate = gate
        self._measures = measures
        self._finish = finish

    def admit(self, headers: Headers, client: Any) -> Caller | Response:
        """Whoever calls, or the response to somebody who may not. ``client`` is ASGI's."""
        caller = self._gate.admit(headers, client)
        if isinstance(caller, Refusal):
            self._measures.refused(caller.reason)
            return caller.response()
        return caller

    def fault(self) -> Response:
        """The answer where answering raised."""
        return internal_fault()


class HttpEndpoint(GatedEndpoint):
    """``POST /v1/tools/workflow-checkpoint``, an endpoint as ``direct.py`` and ASGI call it."""

    bytes_max = BODY_BYTES_MAX

    async def answer(self, headers: Headers, body: bytes, caller: Caller) -> Response:
        """The answer to a whole request."""
        started = self._measures.began()
        answer = None
        try:
            # Repeated, a header is one list (RFC 9110): `identity` first may be followed by `gzip`.
            codings = ", ".join(headers.getlist("content-encoding")) or None
            answer = await self._tool.answer(body, headers.get("content-type"), codings, caller)
        finally:
            self._finish("http", answer, started, headers)
        return _response(answer)


def internal_fault() -> Response:
    """500, and the end of the connection.

    The HTTP layer closes it, which a caller must be told: else it sends its next request there.
    """
    return PlainTextResponse("Internal fault\n", 500, {"Connection": "close"})


def _response(answer: Answer) -> Response:
    body = _ENCODER.encode(answer.members)
    response = Response()
    response.status_code = answer.http_status
    response.body = body
    length = (b"content-length", str(len(body)).encode())
    if answer.http_status == 200:
        response.raw_headers = [_NO_STORE, length, _RESULT]
        return response
    response.raw_headers = [_NO_STORE, length, _PROBLEM]
    retry_after = answer.members.get("retry_after_seconds")
    if retry_after is not None:
        response.raw_headers.append((b"retry-after", str(retry_after).encode()))
    return response
