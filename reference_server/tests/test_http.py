"""Section 11 on the wire: methods, paths, headers, bodies whole and in pieces, connections."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import h11
import jsonschema
import pytest
from real_server import (
    SECONDS_MAX,
    Server,
    claim,
    fresh,
    get,
    own_store,
    same,
    send,
    serving,
    status,
    told,
)

from checkpoint_conformance.client import JSON_HEADERS, Client, HttpAnswer
from checkpoint_model import ERRORS, ErrorCode, schemas
from checkpoint_model.vocabulary import BODY_BYTES_MAX, HEALTH_PATH, TOOL_PATH

RESULT = jsonschema.Draft202012Validator(schemas.load("result.schema.json"))
PROBLEM = jsonschema.Draft202012Validator(schemas.load("problem.schema.json"))
HEALTHY = {"store": "answers", "writes": "taken"}
ILL = {"store": "does not answer", "writes": "not taken"}
SECRET_PATH = "/zq-secret-part-of-a-path"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server with controls for this file; every test has workflows of its own.

    The store is the file's own too, because a pause holds for every server on it.
    """
    with own_store() as store, serving("--test-controls", store_url=store.url) as server:
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


def is_problem(answer: HttpAnswer, code: str, http_status: int) -> dict[str, Any]:
    """The problem object of an answer that must be this error."""
    members: dict[str, Any] = json.loads(answer.body)
    PROBLEM.validate(members)
    assert (answer.status, members["status"], members["code"]) == (http_status, http_status, code)
    assert answer.header("content-type") == "application/problem+json"
    assert answer.header("cache-control") == "no-store"
    return members


def is_plain(answer: HttpAnswer, http_status: int) -> None:
    """WC-ERR-9: an answer without a code, which quotes nothing of the request."""
    assert answer.status == http_status
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    assert b"code" not in answer.body
    assert SECRET_PATH.encode() not in answer.body
    assert not any(SECRET_PATH in value for _, value in answer.headers)


def test_a_result_is_json_that_nobody_stores(client: Client) -> None:
    """WC-HTTP-1."""
    answer = send(client, claim())
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    assert answer.header("cache-control") == "no-store"
    RESULT.validate(json.loads(answer.body))


def test_an_error_of_section_6_is_a_problem_object(client: Client) -> None:
    """WC-HTTP-1, WC-ERR-1."""
    is_problem(send(client, status(claim())), "CHECKPOINT_NOT_FOUND", 404)
    first = claim()
    send(client, first)
    is_problem(send(client, {**first, "holder": fresh("h")}), "CHECKPOINT_NOT_HELD", 409)
    is_problem(send(client, same(first, "abandon", generation=2)), "STALE_GENERATION", 409)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
def test_other_methods_are_told_which_one_is_allowed(client: Client, method: str) -> None:
    """WC-HTTP-2."""
    body = b"{}" if method in ("PUT", "PATCH") else b""
    answer = client.exchange(method, TOOL_PATH, body, JSON_HEADERS if body else ()).answer
    assert isinstance(answer, HttpAnswer)
    is_plain(answer, 405)
    assert answer.header("allow") == "POST"


@pytest.mark.parametrize(
    "path",
    [
        SECRET_PATH,
        f"{TOOL_PATH}/",
        f"{TOOL_PATH}{SECRET_PATH}",
        f"{TOOL_PATH.upper()}{SECRET_PATH}",
        f"/v1/tools{SECRET_PATH}?a={SECRET_PATH}",
        f"{HEALTH_PATH}/",
        "/",
        "/clock",
        "/reset",
        "/docs",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_paths_are_404_and_not_repeated(client: Client, method: str, path: str) -> None:
    """WC-HTTP-2, WC-PRIV-1: no code, no redirect, nothing of the path."""
    answer = client.exchange(method, path, b"{}" if method == "POST" else b"").answer
    assert isinstance(answer, HttpAnswer)
    is_plain(answer, 404)
    assert answer.header("location") is None


def test_a_query_changes_nothing(client: Client) -> None:
    """WC-HTTP-1: it is the path that names the tool."""
    assert send(client, claim(), path=f"{TOOL_PATH}?trace=1").status == 200


def test_a_wrong_media_type_is_415(client: Client) -> None:
    """Section 8; a missing one too."""
    for headers in [(), (("content-type", "text/plain"),), (("content-type", "application/xml"),)]:
        is_problem(send(client, claim(), headers), "INVALID_INPUT", 415)


def test_parameters_of_the_media_type_are_ignored(client: Client) -> None:
    """Section 8."""
    given = (("content-type", 'Application/JSON;charset="iso-8859-1"'),)
    assert send(client, claim(), given).status == 200


@pytest.mark.parametrize("codings", [("gzip",), ("identity, br",), ("identity", "gzip"), ("x",)])
def test_a_content_coding_is_415(client: Client, codings: tuple[str, ...]) -> None:
    """Section 8; also in a second header, which HTTP reads as one list."""
    headers = (*JSON_HEADERS, *(("content-encoding", coding) for coding in codings))
    is_problem(send(client, claim(), headers), "INVALID_INPUT", 415)


def test_the_identity_coding_is_none(client: Client) -> None:
    """Section 8."""
    assert send(client, claim(), (*JSON_HEADERS, ("content-encoding", "identity"))).status == 200


def test_the_longest_body_is_read_and_a_longer_one_is_413(client: Client) -> None:
    """WC-IN-4; the connection goes on afterwards."""
    body = json.dumps(claim()).encode()
    assert send(client, body.ljust(BODY_BYTES_MAX)).status == 200
    is_problem(send(client, body.ljust(BODY_BYTES_MAX + 1)), "INVALID_INPUT", 413)
    assert send(client, body).status == 200


def test_a_refused_body_changes_nothing(client: Client) -> None:
    """WC-IN-6, WC-ERR-4."""
    request = claim()
    for refused in ({**request, "more": 1}, {**request, "claim_ttl_seconds": 600}):
        is_problem(send(client, refused), "INVALID_INPUT", 400)
    is_problem(send(client, status(request)), "CHECKPOINT_NOT_FOUND", 404)


def test_an_idempotency_key_changes_nothing(client: Client) -> None:
    """WC-IDEM-2."""
    request = claim()
    headers = (*JSON_HEADERS, ("idempotency-key", "!" * 255))
    assert json.loads(send(client, request, headers).body)["acquired"] is True
    assert json.loads(send(client, request, headers).body)["reused"] is True


def test_a_retryable_error_says_when_in_body_and_header(client: Client, controls: Client) -> None:
    """WC-ERR-3."""
    cases: list[tuple[str, dict[str, Any], ErrorCode]] = [
        ("/pause", {"paused": True}, ErrorCode.TOOL_PAUSED),
        ("/rate-limit", {"remaining": 0}, ErrorCode.RATE_LIMITED),
        ("/dependency", {"available": False}, ErrorCode.DEPENDENCY_UNAVAILABLE),
    ]
    for path, body, code in cases:
        told(controls, b"{}", path="/reset")
        told(controls, body, path=path)
        answer = send(client, claim())
        members = is_problem(answer, code, ERRORS[code].http_statuses[0])
        assert answer.header("retry-after") == str(members["retry_after_seconds"])
        assert members["retry_after_seconds"] >= 1
    told(controls, b"{}", path="/reset")
    assert send(client, status(claim())).header("retry-after") is None


def test_health_is_told(client: Client, controls: Client) -> None:
    """WC-HTTP-3."""
    answer = get(client, HEALTH_PATH)
    assert (answer.status, json.loads(answer.body)) == (200, HEALTHY)
    assert answer.header("cache-control") == "no-store"
    told(controls, {"available": False}, path="/dependency")
    answer = get(client, HEALTH_PATH)
    assert (answer.status, json.loads(answer.body)) == (503, ILL)


# -- Bytes that the client above would not send ---------------------------------------------


class Wire:
    """A connection on which every byte is the test's."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._received = h11.Connection(h11.CLIENT)

    def head(self, *headers: str) -> None:
        """Send the head of a POST to the tool."""
        lines = [f"POST {TOOL_PATH} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
        self.socket.sendall("\r\n".join([*lines, *headers, "", ""]).encode())
        self._received.send(h11.Request(method="POST", target=TOOL_PATH, headers=[("host", "x")]))
        self._received.send(h11.EndOfMessage())

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        http_status, body = 0, b""
        while True:
            event = self._received.next_event()
            if event is h11.NEED_DATA:
                self._received.receive_data(self.socket.recv(65536))
            elif isinstance(event, h11.Response):
                http_status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return http_status, body

    def next(self) -> None:
        """Expect another answer on the same connection."""
        self._received.start_next_cycle()


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """One such connection."""
    wire = Wire(server)
    yield wire
    wire.socket.close()


def chunked(*pieces: bytes) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def test_a_body_in_chunks_is_one_body(wire: Wire) -> None:
    """RFC 9112: cut anywhere, also inside a member's name."""
    body = json.dumps(claim()).encode()
    wire.head("transfer-encoding: chunked")
    wire.socket.sendall(chunked(body[:1], body[1:7], body[7:]))
    http_status, answer = wire.answer()
    assert (http_status, json.loads(answer)["acquired"]) == (200, True)


def test_the_bound_holds_for_chunks_too(wire: Wire) -> None:
    """WC-IN-4: no length is announced, so it is counted."""
    body = json.dumps(claim()).encode()
    wire.head("transfer-encoding: chunked")
    wire.socket.sendall(chunked(body, b" " * (BODY_BYTES_MAX - len(body))))
    assert wire.answer()[0] == 200
    wire.next()
    wire.head("transfer-encoding: chunked")
    wire.socket.sendall(chunked(body, b" " * (BODY_BYTES_MAX + 1 - len(body))))
    assert wire.answer()[0] == 413


def test_a_huge_body_is_refused_without_waiting_for_it(wire: Wire) -> None:
    """WC-IN-4: the answer comes when the bound is crossed, with a gigabyte still to be sent."""
    wire.head(f"content-length: {1 << 30}")
    wire.socket.sendall(b" " * (BODY_BYTES_MAX + 1))
    http_status, body = wire.answer()
    assert (http_status, json.loads(body)["code"]) == (413, "INVALID_INPUT")


def test_an_endless_body_is_refused_without_waiting_for_it(wire: Wire) -> None:
    """WC-IN-4: chunks that never end."""
    wire.head("transfer-encoding: chunked")
    wire.socket.sendall(b"%x\r\n" % (1 << 30) + b" " * (BODY_BYTES_MAX + 1))
    assert wire.answer()[0] == 413


def test_a_connection_carries_many_requests(wire: Wire, server: Server) -> None:
    """Keep-alive: after results, errors and refusals alike."""
    request = claim()
    bodies: list[tuple[dict[str, Any], int]] = [
        (request, 200),
        ({}, 400),
        (same(request, "abandon", generation=9), 409),
        (status(request), 200),
    ]
    for body, http_status in bodies:
        raw = json.dumps(body).encode()
        wire.head(f"content-length: {len(raw)}")
        wire.socket.sendall(raw)
        assert wire.answer()[0] == http_status
        wire.next()
    with server.client() as other:
        assert told(other, status(request))["stage"] == "claimed"


def test_a_body_that_never_ends_well_changes_nothing(wire: Wire, client: Client) -> None:
    """A caller that goes away half-way has asked for nothing, and the server goes on."""
    request = claim()
    body = json.dumps(request).encode()
    wire.head(f"content-length: {len(body) + 1}")
    wire.socket.sendall(body)
    wire.socket.close()
    is_problem(send(client, status(request)), "CHECKPOINT_NOT_FOUND", 404)


def test_what_is_no_http_is_answered_without_its_bytes(server: Server) -> None:
    """WC-ERR-9, WC-PRIV-1."""
    wire = Wire(server)
    with wire.socket:
        wire.socket.sendall(f"{SECRET_PATH} {SECRET_PATH}\r\n\r\n".encode())
        said = b""
        while received := wire.socket.recv(65536):
            said += received
    assert SECRET_PATH.encode() not in said
