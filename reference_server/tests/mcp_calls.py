"""Calls of the tool over MCP, by whatever client, and one of each error of section 8.

A :class:`Door` is whatever takes arguments and gives a tool result back. The one here writes the
messages of the protocol itself, in any revision, so that a test can send what no client would.
"""

import http.client
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from real_server import SECONDS_MAX, claim, fresh, same, status, told

from checkpoint_conformance.client import Client, Headers, HttpAnswer
from checkpoint_model.vocabulary import MCP_PATH, MCP_TOOL, ErrorCode

HANDSHAKES: Final = ("2025-06-18", "2025-11-25")
"""Revisions whose clients begin with `initialize`."""
STATELESS: Final = "2026-07-28"
"""The revision in which each request says by itself what it is."""
REVISIONS: Final = (*HANDSHAKES, STATELESS)
CLIENT_INFO: Final = {"name": "tests", "version": "1"}
_META: Final = "io.modelcontextprotocol/"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a call of a tool gave."""

    is_error: bool
    structured: Any
    text: str

    @property
    def answer(self) -> dict[str, Any]:
        """The result or problem object, which must be there twice (WC-MCP-2, WC-MCP-3)."""
        assert isinstance(self.structured, dict)
        assert json.loads(self.text) == self.structured
        assert self.is_error is ("code" in self.structured)
        return self.structured


class Door(Protocol):
    """A way to call the tool."""

    def __call__(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call it."""


def headers_of(revision: str, method: str, name: str | None = None) -> Headers:
    """The headers that a client of the revision sends with a request."""
    headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ]
    if revision == STATELESS:
        headers.append(("mcp-method", method))
        if name is not None:
            headers.append(("mcp-name", name))
    return (*headers, ("mcp-protocol-version", revision))


def message(
    method: str, params: Mapping[str, Any] | None = None, *, revision: str, id_: Any = 7
) -> dict[str, Any]:
    """A request of the revision."""
    params = dict(params or {})
    if revision == STATELESS:
        params["_meta"] = {
            f"{_META}protocolVersion": revision,
            f"{_META}clientInfo": CLIENT_INFO,
            f"{_META}clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def post(
    client: Client, body: Mapping[str, Any] | list[Any] | bytes, headers: Headers
) -> HttpAnswer:
    """POST to the endpoint; the answer, which must be complete."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.exchange("POST", MCP_PATH, raw, headers).answer
    assert isinstance(answer, HttpAnswer), answer
    return answer


def post_exactly(client: Client, body: Mapping[str, Any], headers: Headers) -> HttpAnswer:
    """POST with these headers and a length; a host is added where none of them is one."""
    address = client.address
    wire = http.client.HTTPConnection(address.host, address.port, timeout=SECONDS_MAX)
    try:
        given = any(name == "host" for name, _ in headers)
        wire.putrequest("POST", MCP_PATH, skip_host=given, skip_accept_encoding=True)
        raw = json.dumps(body).encode()
        for name, value in (*headers, ("content-length", str(len(raw)))):
            wire.putheader(name, value)
        wire.endheaders(raw)
        answer = wire.getresponse()
        came = tuple((name.lower(), value) for name, value in answer.getheaders())
        return HttpAnswer(status=answer.status, headers=came, body=answer.read())
    finally:
        wire.close()


def ask(
    client: Client, method: str, params: Mapping[str, Any] | None = None, *, revision: str
) -> dict[str, Any]:
    """The JSON-RPC response to a request."""
    name = None if params is None else params.get("name")
    body = message(method, params, revision=revision)
    answer = post(client, body, headers_of(revision, method, name))
    response: dict[str, Any] = json.loads(answer.body)
    assert response.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    assert (response["jsonrpc"], response["id"]) == ("2.0", 7)
    return response


def call_raw(client: Client, arguments: bytes | None, *, revision: str) -> ToolResult:
    """Call the tool with arguments that are these bytes; None for none at all."""
    body = json.dumps(
        message("tools/call", {"name": MCP_TOOL, "arguments": "HERE"}, revision=revision)
    ).encode()
    if arguments is None:
        body = body.replace(b', "arguments": "HERE"', b"")
    else:
        body = body.replace(b'"HERE"', arguments)
    assert b"HERE" not in body
    answer = post(client, body, headers_of(revision, "tools/call", MCP_TOOL))
    response = json.loads(answer.body)
    assert (answer.status, response["id"]) == (200, 7), response
    return tool_result(response["result"])


def tool_result(result: Mapping[str, Any]) -> ToolResult:
    """From the result of a call as it is on the wire."""
    (content,) = result["content"]
    assert content["type"] == "text"
    return ToolResult(
        is_error=result["isError"], structured=result["structuredContent"], text=content["text"]
    )


def raw_door(client: Client, revision: str) -> Door:
    """The tool, called in one revision by messages of our own."""
    return lambda arguments: call_raw(client, json.dumps(arguments).encode(), revision=revision)


def each_error(
    first: Door, controls: Client, reset: Callable[[], object]
) -> Iterator[tuple[ErrorCode, dict[str, Any]]]:
    """A request that meets each error of section 8, when everything is as it has to be for it.

    ``first`` makes the records; ``reset`` undoes what the controls were told.
    """
    base = claim(claim_ttl_seconds=60, state_ttl_seconds=3600)
    yield ErrorCode.INVALID_INPUT, {**base, "retry_failed": "no"}
    yield ErrorCode.INVALID_INPUT, {}
    yield ErrorCode.CHECKPOINT_NOT_FOUND, status(base)
    first(base)
    yield ErrorCode.CHECKPOINT_NOT_HELD, {**base, "holder": fresh("h")}
    yield ErrorCode.STALE_GENERATION, same(base, "abandon", generation=2)
    yield ErrorCode.CONFIGURATION_CONFLICT, {**base, "claim_ttl_seconds": 61}
    move = same(base, "transition", generation=1, to_stage="uncertain", observation_key=fresh("o"))
    evidence = {"evidence_type": "external_read"}
    yield ErrorCode.INVALID_TRANSITION, {**move, **evidence}
    first(move)
    yield ErrorCode.OBSERVATION_CONFLICT, {**move, "to_stage": "caller_verified", **evidence}
    key = {"observation_key": fresh("o")}
    first({**move, "to_stage": "caller_verified", **evidence, **key})
    yield ErrorCode.CHECKPOINT_TERMINAL, base
    limited = claim(claim_ttl_seconds=1, state_ttl_seconds=3600)
    for generation in range(1, 17):
        assert first(limited).answer["generation"] == generation
        first(same(limited, "abandon", generation=generation))
    yield ErrorCode.CHECKPOINT_LIMIT_REACHED, limited
    told(controls, {"paused": True}, path="/pause")
    yield ErrorCode.TOOL_PAUSED, claim()
    reset()
    told(controls, {"remaining": 0}, path="/rate-limit")
    yield ErrorCode.RATE_LIMITED, claim()
    reset()
    told(controls, {"available": False}, path="/dependency")
    yield ErrorCode.DEPENDENCY_UNAVAILABLE, claim()
    reset()


def marked(mark: str) -> dict[str, Any]:
    """A claim whose every identifier has the mark in it, for a test that looks for it."""
    return claim(
        namespace=f"n/{mark}/{secrets.token_hex(8)}",
        workflow_key=f"w_{mark}_{secrets.token_hex(12)}",
        holder=f"h_{mark}_{secrets.token_hex(12)}",
    )
