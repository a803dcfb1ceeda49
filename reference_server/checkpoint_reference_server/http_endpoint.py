"""The HTTP binding (section 11): one POST, from its head and body to the bytes of its answer."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from checkpoint_model.vocabulary import BODY_BYTES_MAX
from checkpoint_reference_server import inputs
from checkpoint_reference_server.gate import NO_STORE, Caller, Gate, Refusal
from checkpoint_reference_server.measures import Measures
from checkpoint_reference_server.tool import Answer, Tool, refusal

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
            inputs.check_headers(headers)
            answer = await self._tool.answer(body, caller)
        except inputs.InvalidInputError as error:
            answer = refusal(error)
        finally:
            self._finish("http", answer, started, headers)
        return _response(answer)


def internal_fault() -> Response:
    """500, and the end of the connection.

    The HTTP layer closes it, which a caller must be told: else it sends its next request there.
    """
    return PlainTextResponse("Internal fault\n", 500, {"Connection": "close"})


class JsonResponse(Response):
    """Made at once, where the class that it is derived from looks at what it is given first."""

    def __init__(self, http_status: int, body: bytes, *, is_problem: bool = False) -> None:
        self.status_code = http_status
        length = (b"content-length", b"%d" % len(body))
        self.raw_headers = [_NO_STORE, length, _PROBLEM if is_problem else _RESULT]
        self.body = body
        self.background = None


def _response(answer: Answer) -> Response:
    body = _ENCODER.encode(answer.members)
    response = JsonResponse(answer.http_status, body, is_problem=answer.http_status != 200)
    retry_after = answer.members.get("retry_after_seconds")
    if retry_after is not None:
        response.raw_headers.append((b"retry-after", b"%d" % retry_after))
    return response
