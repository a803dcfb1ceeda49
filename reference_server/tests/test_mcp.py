"""Section 12 on the wire, in every revision: the tool, its errors, and what is no call of it."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp_calls import (
    CLIENT_INFO,
    HANDSHAKES,
    REVISIONS,
    STATELESS,
    ask,
    call_raw,
    each_error,
    headers_of,
    message,
    post,
    post_exactly,
    raw_door,
    tool_result,
)
from real_server import (
    KEY_VARIABLE,
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    environment,
    fresh,
    get,
    own_store,
    same,
    send,
    serving,
    start_process,
    status,
    told,
)
from tools import not_run

from checkpoint_conformance.client import JSON_HEADERS, Client, Headers, HttpAnswer, land_all
from checkpoint_model import ErrorCode, schemas
from checkpoint_model.vocabulary import (
    BODY_BYTES_MAX,
    CONTRACT_VERSION,
    DEPENDENCY_ANSWER_SECONDS_MAX,
    MCP_PATH,
    MCP_TOOL,
)
from checkpoint_reference_server.registry import RECORD, make_mcp_tool

if importlib.util.find_spec("mcp") is None:
    not_run("the MCP binding", "the MCP SDK", "pip install 'workflow-checkpoint[mcp]'")

from checkpoint_reference_server import mcp_binding

RESULT = jsonschema.Draft202012Validator(schemas.load("result.schema.json"))
PROBLEM = jsonschema.Draft202012Validator(schemas.load("problem.schema.json"))
MESSAGE_BYTES_MAX = 1024 * 1024
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone, because a pause holds for every server on it."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore) -> Iterator[Server]:
    """One server with controls for this file; every test has workflows of its own."""
    with serving("--mcp", "--test-controls", store_url=own.url) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A connection for each test."""
    with server.client() as client:
        yield client


@pytest.fixture
def controls(server: Server) -> Iterator[Client]:
    """The controls, reset afterwards."""
    with server.controls() as client:
        yield client
        told(client, b"{}", path="/reset")


def is_error(answer: HttpAnswer, http_status: int, code: int, id_: Any = 7) -> dict[str, Any]:
    """The error of a JSON-RPC response that must be this one."""
    response = json.loads(answer.body)
    assert (answer.status, response["error"]["code"]) == (http_status, code), response
    assert (response["jsonrpc"], response["id"]) == ("2.0", id_)
    assert answer.header("content-type") == "application/json"
    assert answer.header("cache-control") == "no-store"
    error: dict[str, Any] = response["error"]
    return error


# -- What clients ask first -----------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKES)
def test_a_client_is_told_whom_it_talks_to(client: Client, revision: str) -> None:
    """WC-REG-2; the revision that it asks for, the one capability, and how to use the tool."""
    asked = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT_INFO}
    body = message("initialize", asked, revision=revision)
    answer = post(client, body, headers_of(revision, "initialize"))
    assert answer.status == 200
    assert answer.header("mcp-session-id") is None
    assert answer.header("cache-control") == "no-store"
    result = json.loads(answer.body)["result"]
    assert result["protocolVersion"] == revision
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["serverInfo"]["version"] == CONTRACT_VERSION
    assert result["serverInfo"]["name"] == "workflow-checkpoint"
    assert result["instructions"] == RECORD.instructions
    assert ask(client, "ping", revision=revision)["result"] == {}


def test_an_unknown_revision_is_answered_with_one_that_is_served(client: Client) -> None:
    """The handshake: the client decides whether it can go on with it."""
    asked = {"protocolVersion": "2999-01-01", "capabilities": {}, "clientInfo": CLIENT_INFO}
    body = message("initialize", asked, revision=HANDSHAKES[0])
    answer = post(client, body, (*JSON_HEADERS, ("accept", "application/json")))
    assert json.loads(answer.body)["result"]["protocolVersion"] == HANDSHAKES[-1]


def test_a_stateless_client_discovers_the_same(client: Client) -> None:
    """WC-REG-2, as the latest revision has it."""
    result = ask(client, "server/discover", revision=STATELESS)["result"]
    assert result["supportedVersions"] == [STATELESS]
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    info = result["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert (info["name"], info["version"]) == ("workflow-checkpoint", CONTRACT_VERSION)
    assert result["instructions"] == RECORD.instructions
    assert (result["ttlMs"], result["cacheScope"]) == (300_000, "public")


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_one_tool_is_the_registry_s(client: Client, revision: str) -> None:
    """WC-MCP-1, WC-MCP-5, WC-MCP-6: whole, in every revision; one list may be kept for a while."""
    result = ask(client, "tools/list", revision=revision)["result"]
    assert result["tools"] == [make_mcp_tool()]
    assert ("ttlMs" in result) is (revision == STATELESS)


# -- The tool -------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_call_gives_the_result_twice(client: Client, revision: str) -> None:
    """WC-MCP-2: as an object and as text, nulls included."""
    call = raw_door(client, revision)
    request = claim()
    made = call(request).answer
    RESULT.validate(made)
    assert (made["acquired"], made["evidence_type"]) == (True, None)
    assert call(request).answer["reused"] is True


HELD = claim()
PLAIN_CALLS = {
    "a claim": HELD,
    "another's claim": {**HELD, "holder": fresh("h")},
    "nobody's": status(claim()),
    "no member": {"action": "claim"},
    "nothing": None,
}


@pytest.mark.parametrize("revision", [*HANDSHAKES, None])
@pytest.mark.parametrize("name", PLAIN_CALLS)
def test_a_plain_call_is_answered_as_the_sdk_does(
    client: Client, controls: Client, name: str, revision: str | None
) -> None:
    """To the byte, headers included: `_meta` alone makes the same call go by way of the SDK."""
    told(controls, {"freeze": True}, path="/clock")
    told(client, HELD)
    arguments = PLAIN_CALLS[name]
    params = {"name": MCP_TOOL} if arguments is None else {"name": MCP_TOOL, "arguments": arguments}
    headers = headers_of(revision or HANDSHAKES[0], "tools/call")
    if revision is None:
        headers = headers[:-1]
    answers, plain = [], []
    for given in (params, {**params, "_meta": {}}):
        body = message("tools/call", given, revision=HANDSHAKES[0])
        read = mcp_binding._read(json.dumps(body).encode())
        plain.append(mcp_binding._is_plain(read, revision))
        answer = post(client, body, headers)
        kept = [header for header in answer.headers if header[0] != "date"]
        answers.append((answer.status, kept, answer.body))
    assert plain == [True, False]
    assert answers[0] == answers[1]
    assert answers[0][0] == 200


@pytest.mark.parametrize("revision", REVISIONS)
def test_both_bindings_act_on_the_same_records(client: Client, revision: str) -> None:
    """WC-MCP-4: claimed here, moved there, seen by both alike."""
    call = raw_door(client, revision)
    request = claim()
    assert told(client, request)["acquired"] is True
    move = same(
        request,
        "transition",
        generation=1,
        to_stage="uncertain",
        observation_key=fresh("o"),
    )
    assert call(move).answer["transitioned"] is True
    assert told(client, move)["observation_replayed"] is True
    assert call(same(request, "abandon", generation=1)).answer["abandoned"] is True
    seen = told(client, {**request, "holder": fresh("h")})
    assert (seen["recovered"], seen["generation"]) == (True, 2)


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_error_is_the_tool_s_and_http_s(
    client: Client, controls: Client, revision: str
) -> None:
    """WC-MCP-3: the very object that HTTP gives, `status` included, in a result of the tool."""
    call = raw_door(client, revision)

    def start() -> None:
        told(controls, b"{}", path="/reset")
        told(controls, {"freeze": True}, path="/clock")

    start()
    met = set()
    for code, request in each_error(call, controls, start):
        by_http = send(client, request)
        by_mcp = call(request)
        assert by_mcp.is_error
        assert by_mcp.answer == json.loads(by_http.body)
        assert (by_mcp.answer["code"], by_mcp.answer["status"]) == (code, by_http.status)
        PROBLEM.validate(by_mcp.answer)
        met.add(code)
    assert met == set(ErrorCode)


ONE_CLAIM = claim()
ENCODED = json.dumps(ONE_CLAIM).encode()
REFUSED: dict[str, bytes | None] = {
    "no arguments": None,
    "no members": b"{}",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"claim"',
    "true for an integer": ENCODED.replace(b" 60,", b" true,"),
    "a text for an integer": ENCODED.replace(b" 60,", b' "60",'),
    "null for an integer": ENCODED.replace(b" 60,", b" null,"),
    "a half": ENCODED.replace(b" 60,", b" 60.5,"),
    "infinite": ENCODED.replace(b" 60,", b" 1e400,"),
    "an integer of five thousand digits": ENCODED.replace(b" 60,", b" " + b"9" * 5000 + b","),
    "a negative integer of twenty digits": ENCODED.replace(b" 60,", b" -99999999999999999999,"),
    "one for a boolean": ENCODED.replace(b" false", b" 0"),
    "null for a boolean": ENCODED.replace(b" false", b" null"),
    "a member that is not known": ENCODED.replace(b'"action"', b'"more": 1, "action"'),
    "a trailing newline": ENCODED.replace(b'", "claim_ttl', b'\\n", "claim_ttl'),
    "NUL": ENCODED.replace(b'"h_', b'"h_\\u0000'),
    "half of a surrogate pair": ENCODED.replace(b'"h_', b'"h_\\ud83d'),
    "half of a surrogate pair in a name": ENCODED.replace(b'"action"', b'"\\udc00": 1, "action"'),
    "no UTF-8": ENCODED.replace(b'"h_', b'"h_\xff'),
    "NaN": ENCODED.replace(b" 60,", b" NaN,"),
    "Infinity": ENCODED.replace(b" 60,", b" -Infinity,"),
    **{
        f"{depth} {kind} deep": ENCODED.replace(
            b" 60,", opening * depth + b"1" + closing * depth + b","
        )
        for depth in (100, 900, 1000, 1300)
        for kind, opening, closing in (("lists", b"[", b"]"), ("objects", b'{"a":', b"}"))
    },
    "4000 lists deep": ENCODED.replace(b" 60,", b"[" * 3900 + b"]" * 3900 + b","),
    "claim as long as state": ENCODED.replace(b" 60,", b" 600,"),
}
"""Arguments that no request of section 3 has."""


@pytest.mark.parametrize("revision", [HANDSHAKES[-1], STATELESS])
@pytest.mark.parametrize("what", REFUSED)
def test_arguments_are_refused_by_the_tool(client: Client, what: str, revision: str) -> None:
    """WC-MCP-3, WC-IN-1, WC-IN-2: never a protocol error, and what HTTP refuses, with its words."""
    arguments = REFUSED[what]
    assert arguments != ENCODED
    refused = call_raw(client, arguments, revision=revision)
    by_mcp = refused.answer
    assert (by_mcp["code"], by_mcp["status"]) == ("INVALID_INPUT", 400)
    by_http = json.loads(send(client, b"{}" if arguments is None else arguments).body)
    words = {by_mcp.pop("detail"), by_http.pop("detail")}
    assert by_mcp == by_http
    # What the parser gives up on has the words of what is no object.
    assert len(words) == 1 or "The request must be one JSON object." in words
    assert told(client, status(ONE_CLAIM))["code"] == "CHECKPOINT_NOT_FOUND"  # WC-IN-6


@pytest.mark.parametrize("revision", [HANDSHAKES[-1], STATELESS])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"claim"', rb'"\u0063laim"'),
        (b" 60,", b" 60.0,"),
        (b" 60,", b" 6e1,"),
        (b'{"action"', b'{"retry_failed": true, "action"'),
    ],
)
def test_arguments_are_read_as_a_body_is(
    client: Client, revision: str, old: bytes, new: bytes
) -> None:
    """What the contract leaves open (WC-IN-2, WC-IN-4) is the same through both doors."""
    arguments = json.dumps(claim()).encode().replace(old, new)
    by_mcp = call_raw(client, arguments, revision=revision).answer
    by_http = told(client, arguments)
    assert (by_mcp["acquired"], by_http["reused"]) == (True, True)
    assert by_mcp["retry_failed_allowed"] == by_http["retry_failed_allowed"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_bound_is_on_the_arguments(client: Client, revision: str) -> None:
    """WC-IN-4: exact, told by the tool far beyond it, whatever else the message has."""
    arguments = json.dumps(claim()).encode()
    fits = arguments[:-1].ljust(BODY_BYTES_MAX - 1) + b"}"
    assert call_raw(client, fits, revision=revision).answer["acquired"] is True
    for length in (BODY_BYTES_MAX + 1, 100_000, 1_000_000):
        long = arguments[:-1].ljust(length - 1) + b"}"
        refused = call_raw(client, long, revision=revision).answer
        assert (refused["code"], refused["status"]) == ("INVALID_INPUT", 413)


def test_a_message_beyond_all_bounds_is_not_read(client: Client) -> None:
    """It is refused as a message, and the connection goes on where there is more to come."""
    body = json.dumps(message("ping", revision=HANDSHAKES[0])).encode()
    headers = headers_of(HANDSHAKES[0], "ping")
    assert post(client, body.ljust(MESSAGE_BYTES_MAX), headers).status == 200
    answer = post(client, body.ljust(MESSAGE_BYTES_MAX + 1), headers)
    is_error(answer, 413, INVALID_REQUEST, id_=None)


def test_the_rate_limit_counts_both_bindings(client: Client, controls: Client) -> None:
    """WC-CTL-3."""
    call = raw_door(client, STATELESS)
    told(controls, {"remaining": 2}, path="/rate-limit")
    assert call(claim()).answer["acquired"] is True
    assert told(client, claim())["acquired"] is True
    assert call(claim()).answer["code"] == "RATE_LIMITED"
    assert told(client, claim())["code"] == "RATE_LIMITED"
    assert ask(client, "tools/list", revision=STATELESS)["result"]["tools"]


def test_a_pause_holds_for_both_bindings(client: Client, controls: Client) -> None:
    """WC-CTL-2, WC-ERR-7: claims are refused, work in flight is recorded."""
    call = raw_door(client, HANDSHAKES[-1])
    request = claim()
    call(request)
    told(controls, {"paused": True}, path="/pause")
    assert call(request).answer["code"] == "TOOL_PAUSED"
    assert told(client, request)["code"] == "TOOL_PAUSED"
    assert call(same(request, "abandon", generation=1)).answer["abandoned"] is True


def test_a_store_that_stands_still_is_told_in_time(own: OwnStore, server: Server) -> None:
    """WC-ERR-5: as a result of the tool, within the bound, in every revision."""
    clients = [server.client() for _ in REVISIONS]
    for client, revision in zip(clients, REVISIONS, strict=True):
        raw_door(client, revision)(status(claim()))
    own.pause_process()
    try:
        flights = []
        for client, revision in zip(clients, REVISIONS, strict=True):
            params = {"name": MCP_TOOL, "arguments": status(claim())}
            body = json.dumps(message("tools/call", params, revision=revision)).encode()
            headers = headers_of(revision, "tools/call", MCP_TOOL)
            flights.append(client.prepare("POST", MCP_PATH, body, headers))
        for flight in flights:
            flight.release()
        exchanges = land_all(flights)
    finally:
        own.continue_process()
    for exchange in exchanges:
        assert isinstance(exchange.answer, HttpAnswer), exchange.answer
        answer = tool_result(json.loads(exchange.answer.body)["result"]).answer
        assert (answer["code"], answer["retry"]) == ("DEPENDENCY_UNAVAILABLE", True)
        waited_ns = exchange.returned_ns - exchange.called_ns
        assert waited_ns < DEPENDENCY_ANSWER_SECONDS_MAX * 1_000_000_000
    for client in clients:
        client.close()


# -- What is no call of it ------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_another_tool_is_a_protocol_error_without_its_name(client: Client, revision: str) -> None:
    """The specification's error for it; nothing of what was sent comes back."""
    params = {"name": "zqmark_other", "arguments": claim()}
    body = message("tools/call", params, revision=revision)
    answer = post(client, body, headers_of(revision, "tools/call", "zqmark_other"))
    error = is_error(answer, 400 if revision == STATELESS else 200, INVALID_PARAMS)
    assert error == {"code": INVALID_PARAMS, "message": f"Unknown tool; the one here is {MCP_TOOL}"}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("method", ["zqmark/other", "resources/list", "prompts/get", "ZQMARK"])
def test_another_method_is_a_protocol_error_without_its_name(
    client: Client, revision: str, method: str
) -> None:
    """JSON-RPC's error for it; 404 where the revision has it so."""
    params = {"name": "zqmark"} if method == "prompts/get" else {}
    body = message(method, params, revision=revision)
    answer = post(client, body, headers_of(revision, method, params.get("name")))
    error = is_error(answer, 404 if revision == STATELESS else 200, METHOD_NOT_FOUND)
    assert error == {"code": METHOD_NOT_FOUND, "message": "Method not found"}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": None}])
def test_a_call_that_is_none_is_a_protocol_error(
    client: Client, revision: str, params: dict[str, Any]
) -> None:
    """Parameters that the revision does not have, beside the arguments that are the tool's."""
    body = message("tools/call", params, revision=revision)
    answer = post(client, body, headers_of(revision, "tools/call", params.get("name") and MCP_TOOL))
    response = json.loads(answer.body)
    assert response["error"]["code"] in (INVALID_PARAMS, HEADER_MISMATCH)
    assert "data" not in response["error"]


MALFORMED: list[tuple[bytes, int]] = [
    (b"", PARSE_ERROR),
    (b"zqmark", PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping"', PARSE_ERROR),
    (b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 7, "method": "ping"}', PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "zq\\ud800mark"}', PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "\xff"}', PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"_meta": "\xff"}}', PARSE_ERROR),
    (b"[" * 100_000, INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"a": ' + b"[" * 9000, PARSE_ERROR),
    (b"null", INVALID_REQUEST),
    (b'"zqmark"', INVALID_REQUEST),
    (b"[]", INVALID_REQUEST),
    (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', INVALID_REQUEST),
    (b'{"id": 7, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7, "method": 8}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7.5, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": {"zqmark": 1}, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": ["zqmark"]}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": null}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7, "result": {"zqmark": 1}}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "zqmark"}}', INVALID_REQUEST),
]


@pytest.mark.parametrize("revision", [None, HANDSHAKES[-1], STATELESS])
@pytest.mark.parametrize(("body", "code"), MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_message_is_refused_without_quoting_it(
    client: Client, body: bytes, code: int, revision: str | None
) -> None:
    """JSON-RPC: 400 and an error for nobody in particular."""
    headers: Headers = JSON_HEADERS if revision is None else headers_of(revision, "ping")
    error = is_error(post(client, body, headers), 400, code, id_=None)
    assert set(error) == {"code", "message"}
    assert "zqmark" not in error["message"]


@pytest.mark.parametrize("id_", ["seven", "", 0, -1, 2**53, 10**30])
def test_a_response_has_its_request_s_id(client: Client, id_: Any) -> None:
    """As it was sent."""
    body = message("ping", revision=HANDSHAKES[-1], id_=id_)
    answer = post(client, body, headers_of(HANDSHAKES[-1], "ping"))
    assert json.loads(answer.body) == {"jsonrpc": "2.0", "id": id_, "result": {}}


@pytest.mark.parametrize("revision", [None, *REVISIONS])
def test_a_notification_is_accepted_and_not_answered(client: Client, revision: str | None) -> None:
    """202 without a body; also one that would cancel what another client asked."""
    headers: Headers = JSON_HEADERS if revision is None else headers_of(revision, "x")
    for method in ("notifications/initialized", "notifications/cancelled", "zqmark"):
        body = {"jsonrpc": "2.0", "method": method, "params": {"requestId": 7}}
        answer = post(client, body, headers)
        assert (answer.status, answer.body) == (202, b"")


def test_a_revision_that_is_not_served_is_refused(client: Client) -> None:
    """400, with those that are; its name is said again only if it may be one."""
    for name, said in (("2999-01-01", True), (fresh("w"), False)):
        body = json.dumps(message("tools/list", revision=STATELESS))
        body = body.replace(STATELESS, name)
        headers = (*headers_of(STATELESS, "tools/list")[:-1], ("mcp-protocol-version", name))
        error = is_error(post(client, body.encode(), headers), 400, UNSUPPORTED_VERSION)
        assert error["data"] == {"supported": [STATELESS], **({"requested": name} if said else {})}
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = post(client, notification, (*JSON_HEADERS, ("mcp-protocol-version", name)))
        is_error(answer, 400, UNSUPPORTED_VERSION, id_=None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mcp-method", "tools/list"),
        ("mcp-name", "zqmark"),
        ("mcp-method", None),
        ("mcp-name", None),
        ("mcp-name", MCP_TOOL.upper()),
    ],
)
def test_headers_that_deny_the_message_are_refused(
    client: Client, name: str, value: str | None
) -> None:
    """The latest revision: whoever routes by the headers must not be deceived."""
    body = message("tools/call", {"name": MCP_TOOL, "arguments": claim()}, revision=STATELESS)
    headers = [pair for pair in headers_of(STATELESS, "tools/call", MCP_TOOL) if pair[0] != name]
    if value is not None:
        headers.append((name, value))
    error = is_error(post(client, body, tuple(headers)), 400, HEADER_MISMATCH)
    assert "zqmark" not in error["message"]


def test_a_header_that_is_there_twice_is_refused(client: Client) -> None:
    """Readers of the first and of the last would disagree."""
    body = message("tools/list", revision=STATELESS)
    headers = (*headers_of(STATELESS, "tools/list"), ("mcp-method", "tools/list"))
    is_error(post(client, body, headers), 400, HEADER_MISMATCH)


def test_white_space_around_a_header_is_none_of_its_value(client: Client) -> None:
    """RFC 9110, 5.5."""
    body = message("tools/list", revision=STATELESS)
    headers = tuple(
        (name, f" {value} \t" if name.startswith("mcp-") else value)
        for name, value in headers_of(STATELESS, "tools/list")
    )
    assert post_exactly(client, body, headers).status == 200


# -- HTTP -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "OPTIONS"])
def test_there_is_no_stream_and_no_session(client: Client, method: str) -> None:
    """405, as the specification has it for a server that offers neither."""
    answer = get(client, MCP_PATH, method)
    assert answer.status == 405
    assert answer.header("allow") == "POST"


@pytest.mark.parametrize(
    ("name", "value", "http_status"),
    [
        ("content-type", "text/plain", 415),
        ("content-type", None, 415),
        ("content-encoding", "gzip", 415),
        ("accept", "text/html", 406),
        ("accept", "text/event-stream", 406),
        ("accept", None, 200),
        ("accept", "*/*", 200),
        ("accept", "text/html, application/*;q=0.1", 200),
        ("accept", "Application/JSON", 200),
    ],
)
def test_bodies_are_json_both_ways(
    client: Client, name: str, value: str | None, http_status: int
) -> None:
    """A page cannot send this media type to another origin unasked."""
    headers = [pair for pair in headers_of(HANDSHAKES[-1], "ping") if pair[0] != name]
    if value is not None:
        headers.append((name, value))
    answer = post_exactly(client, message("ping", revision=HANDSHAKES[-1]), tuple(headers))
    assert answer.status == http_status
    assert answer.header("cache-control") == "no-store"


@pytest.mark.parametrize(
    ("name", "value", "http_status"),
    [
        ("host", "zqmark.example.com", 421),
        ("host", "localhost:8080", 200),
        ("origin", "https://zqmark.example.com", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:6274", 200),
    ],
)
def test_pages_from_elsewhere_do_not_get_in(
    client: Client, name: str, value: str, http_status: int
) -> None:
    """DNS rebinding: the host that a browser was told, and the origin of its page."""
    headers = (*headers_of(HANDSHAKES[-1], "ping"), (name, value))
    answer = post_exactly(client, message("ping", revision=HANDSHAKES[-1]), headers)
    assert answer.status == http_status
    assert b"zqmark" not in answer.body


def test_an_operator_names_hosts_and_origins() -> None:
    """Behind a proxy the host is the proxy's."""
    arguments = (
        "--allowed-host",
        "tools.example.com",
        "--allowed-origin",
        "https://app.example.com",
    )
    with serving("--mcp", *arguments) as server, server.client() as client:
        body = message("ping", revision=HANDSHAKES[-1])
        headers = headers_of(HANDSHAKES[-1], "ping")
        for host, origin, http_status in (
            ("tools.example.com", "https://app.example.com", 200),
            ("tools.example.com:8443", "https://app.example.com", 200),
            ("tools.example.com", "http://app.example.com", 403),
            ("other.example.com", "https://app.example.com", 421),
        ):
            answer = post_exactly(client, body, (*headers, ("host", host), ("origin", origin)))
            assert answer.status == http_status, (host, origin)


# -- Whether it is offered ------------------------------------------------------------------

WITHOUT_SDK = """
import sys
sys.modules["mcp"] = None  # as if it were not installed
from checkpoint_reference_server.commands import serve
serve()
"""


def test_it_is_offered_where_the_sdk_is_installed() -> None:
    """By default, on the port of HTTP; and it is said where."""
    with serving(WORKFLOW_CHECKPOINT_MCP="") as server, server.client() as client:
        assert server.out.splitlines()[2] == f"  MCP       {server.url}{MCP_PATH}"
        assert server.mcp_url == f"{server.url}{MCP_PATH}"
        assert raw_door(client, STATELESS)(claim()).answer["acquired"] is True


def test_it_is_not_offered_where_an_operator_says_so() -> None:
    """``--no-mcp``: its path is one of those that are unknown."""
    with serving("--no-mcp") as server, server.client() as client:
        assert server.out.splitlines()[2] == "  MCP       not offered (--no-mcp)"
        assert server.mcp_url is None
        body = message("ping", revision=HANDSHAKES[-1])
        assert post(client, body, headers_of(HANDSHAKES[-1], "ping")).status == 404


def test_without_the_sdk_it_is_not_offered(tmp_path: Path) -> None:
    """HTTP is served all the same, with a word on what is missing; asked for MCP, nothing is."""
    program = tmp_path / "without.py"
    program.write_text(WITHOUT_SDK)
    command = (sys.executable, str(program))
    remedy = "the SDK is missing: pip install 'workflow-checkpoint[mcp]'"
    env = {KEY_VARIABLE: "k" * 32, "WORKFLOW_CHECKPOINT_MCP": ""}
    with serving(command=command, **env) as server, server.client() as client:
        assert server.out.splitlines()[2] == f"  MCP       not offered; {remedy}"
        assert told(client, claim())["acquired"] is True
    process = start_process(["--mcp", "--port", "0"], env=environment(**env), command=command)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (2, b"")
    assert err.decode() == f"Error: MCP cannot be offered: {remedy}\n"


def test_a_host_that_is_none_is_refused_at_the_start() -> None:
    """An operator's slip is told to the operator."""
    arguments = ["--mcp", "--allowed-host", "https://tools.example.com", "--port", "0"]
    process = start_process(arguments, env=environment(**{KEY_VARIABLE: "k" * 32}))
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (2, b"")
    assert b"'https://tools.example.com' is no host" in err
