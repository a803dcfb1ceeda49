"""WC-PRIV-1 at its widest: nothing raw in any answer, on standard output or error, or in the store.

The server runs at log level debug and meets what servers meet: good requests and bad ones, HTTP
that is none, callers that go away, faults of its own whose messages quote what was sent.
"""

import importlib.util
import json
import secrets
import socket
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import redis
from collector import collecting
from mcp_calls import HANDSHAKES, REVISIONS, STATELESS, call_raw, headers_of, message, post
from real_server import (
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    fresh,
    get,
    own_store,
    same,
    send,
    serving,
    status,
    wait_until,
)

from checkpoint_conformance.client import JSON_HEADERS, Client, HttpAnswer
from checkpoint_model.vocabulary import HEALTH_PATH, MCP_TOOL, TOOL_PATH

MARK = "zqmark"
"""In every text that no schema admits, and nowhere else."""
RAW = ("namespace", "workflow_key", "holder", "observation_key", "evidence_fingerprint")
BROKEN_PYTHON, BROKEN_SCRIPT, BROKEN_TASK = "broken/python", "broken/script", "broken/task"
BROKEN_LIBRARY = "broken/library"
MCP = ("--mcp",) if importlib.util.find_spec("mcp") else ()

FAULTY = f"""
import asyncio
import logging
from checkpoint_lua import loader
from checkpoint_reference_server import tool
from checkpoint_reference_server.commands import serve

step = tool.Tool._step

async def broken(self, request, workflow, caller):
    namespace = request["namespace"]
    if namespace.startswith("{BROKEN_PYTHON}"):
        try:
            raise KeyError(request["workflow_key"])
        except KeyError as error:
            raise ValueError(f"a message that quotes {{request}}") from error
    if namespace.startswith("{BROKEN_SCRIPT}"):
        await self._checkpoints._store.eval(
            "return redis.error_reply('ERR quoting ' .. ARGV[1])", 0, str(request)
        )
    if namespace.startswith("{BROKEN_TASK}"):
        async def nobody_waits():
            raise RuntimeError(str(request))
        asyncio.create_task(nobody_waits())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(lambda: int(request["holder"]))
    if namespace.startswith("{BROKEN_LIBRARY}"):
        for name in ("mcp.server.transport_security", "uvicorn.error", "asyncio"):
            logger = logging.getLogger(name)
            logger.warning("quoting %s", request)
            logger.error("quoting %(holder)s", request)
        # As the MCP SDK does: what it quotes is in the template.
        logging.getLogger("mcp.server.runner").warning(f"Invalid Host header: {{request}}")
    return await step(self, request, workflow, caller)

tool.Tool._step = broken
if __name__ == "__main__":  # a worker reads this file too, and serves by itself
    serve()
"""


@pytest.fixture
def faulty(tmp_path: Path) -> tuple[str, ...]:
    """The program with faults in it, as a command."""
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY)
    return (sys.executable, str(program))


def sent_raw(request: dict[str, Any]) -> set[str]:
    """The identifiers of a request, whole and in the parts that somebody might keep."""
    whole = {str(request[name]) for name in RAW if name in request}
    parts = {part for text in whole for part in (text.partition("_")[2], text.partition(":")[2])}
    ends = {text[cut] for text in whole for cut in (slice(12), slice(-12, None)) if len(text) > 24}
    parts |= {part for text in whole for part in text.split("/")}
    # A short one occurs by chance, or in a word: `sha256` and `tests` are not identifiers.
    return {text for text in (whole | parts | ends) if len(text) >= 12}


def marked(**members: Any) -> dict[str, Any]:
    """A claim whose identifiers are as long as they may be."""
    return claim(
        namespace=f"n/{secrets.token_hex(63)}",
        workflow_key=f"w_{secrets.token_hex(32)}",
        holder=f"h_{secrets.token_hex(32)}",
        **members,
    )


def moves(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What follows a claim, in an order in which some are granted and some refused."""
    evidence = {
        "evidence_type": "external_read",
        "evidence_fingerprint": f"sha256:{secrets.token_hex(32)}",
    }
    uncertain = {"to_stage": "uncertain", "observation_key": f"o_{secrets.token_hex(32)}"}
    verified = {"to_stage": "caller_verified", "observation_key": f"o_{secrets.token_hex(32)}"}
    other = {**request, "holder": f"h_{secrets.token_hex(32)}"}
    return [
        request,
        request,
        other,
        {**request, "claim_ttl_seconds": 61},
        status(other),
        same(request, "transition", generation=2, **uncertain),
        same(request, "transition", generation=1, **uncertain, **evidence),
        same(request, "transition", generation=1, **uncertain),
        same(request, "transition", generation=1, **uncertain),
        same(other, "transition", generation=1, **uncertain),
        same(request, "abandon", generation=3),
        same(request, "transition", generation=1, **verified, **evidence),
        request,
        same(request, "abandon", generation=1),
        status(request),
    ]


def bad_bodies(request: dict[str, Any]) -> list[bytes]:
    """Bodies that are refused, each with something in it that must not come back."""
    wrong: list[dict[str, Any]] = [
        {**request, MARK: request["holder"]},
        {**request, "action": f"{MARK}{request['holder']}"},
        {**request, "holder": f"{MARK}{request['holder']}"},
        {**request, "holder": f"{request['holder']}\n"},
        {**request, "namespace": f"!{request['namespace']}"},
        {**request, "workflow_key": [request["workflow_key"]]},
        {**request, "retry_failed": request["holder"]},
        {**request, "claim_ttl_seconds": request["workflow_key"]},
        {**request, "claim_ttl_seconds": 600},
        {**request, "namespace": {MARK: {MARK: MARK}}},
        {name: value for name, value in request.items() if name != "retry_failed"},
    ]
    good = json.dumps(request).encode()
    return [
        *(json.dumps(body).encode() for body in wrong),
        good[:-1],
        good + MARK.encode(),
        good.replace(b"60,", MARK.encode()),
        b"\xef\xbb\xbf" + good,
        good.ljust(9000),
        good.replace(b'"claim"', b'"\xff' + MARK.encode() + b'"'),
    ]


def headers_with(request: dict[str, Any]) -> list[tuple[tuple[str, str], ...]]:
    """Headers that are refused or ignored, with identifiers in them."""
    name = request["holder"]
    return [
        (("content-type", name),),
        (("content-type", f"application/json; {MARK}={name}"),),
        (*JSON_HEADERS, ("content-encoding", name)),
        (*JSON_HEADERS, ("idempotency-key", name)),
        (*JSON_HEADERS, (f"x-{MARK}", name), ("cookie", name), ("authorization", name)),
        (*JSON_HEADERS, ("traceparent", name), ("x-request-id", name), ("x-forwarded-for", name)),
    ]


def everything_stored(store: redis.Redis) -> Iterable[Any]:
    """Every key of the store, whatever it is for, and all that lies under it."""
    for key in store.scan_iter(count=1000):
        yield key
        kind = store.type(key)
        if kind == b"hash":
            yield from (part for pair in store.hgetall(key).items() for part in pair)
        else:
            assert kind == b"string", key
            yield store.get(key) or b""


def check(raw: set[str], texts: Iterable[bytes], where: str) -> None:
    """None of the raw texts is in any of these."""
    whole = b"\n".join(texts)
    for text in raw:
        assert text.encode() not in whole, f"{text} in {where}"
        # Escaped, as a log might have it.
        assert text.encode().hex().encode() not in whole, f"{text} in hexadecimal in {where}"


def garbage(server: Server, *lines: str) -> bytes:
    """What comes back on bytes that are no HTTP."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as wire:
        wire.sendall("\r\n".join([*lines, "", ""]).encode())
        said = b""
        while received := wire.recv(65536):
            said += received
    return said


def drive(server: Server, client: Client) -> tuple[set[str], list[bytes]]:
    """Send everything; what was sent, and what came back."""
    raw: set[str] = {MARK}
    came: list[bytes] = []

    def keep(answer: HttpAnswer) -> HttpAnswer:
        head = "\n".join(f"{name}: {value}" for name, value in answer.headers)
        came.extend((head.encode(), answer.body))
        return answer

    statuses = set()
    for _ in range(5):
        request = marked(retry_failed=True)
        for move in moves(request):
            raw |= sent_raw(move)
            statuses.add(keep(send(client, move)).status)
        for body in bad_bodies(request):
            assert keep(send(client, body)).status in (400, 413)
        for headers in headers_with(request):
            keep(send(client, request, headers))
        for path in (f"/{request['holder']}", f"{TOOL_PATH}?{request['holder']}={MARK}"):
            keep(send(client, request, path=path))
            keep(get(client, path))
            keep(get(client, path, "DELETE"))
        keep(get(client, f"{HEALTH_PATH}?{request['holder']}"))
        came.append(garbage(server, f"{request['holder']} {MARK}"))
        upgrade = ("Connection: close, Upgrade", f"Upgrade: {MARK}", "Host: x")
        came.append(garbage(server, f"GET /{request['holder']} HTTP/1.1", *upgrade))
    assert statuses == {200, 409}
    library = {**marked(), "namespace": f"{BROKEN_LIBRARY}/{fresh('n')}"}
    raw |= sent_raw(library)
    assert keep(send(client, library)).status == 200
    for namespace in (BROKEN_PYTHON, BROKEN_SCRIPT):
        request = {**marked(), "namespace": f"{namespace}/{fresh('n')}"}
        for move in (request, same(request, "abandon", generation=1), status(request)):
            raw |= sent_raw(move)
            assert keep(send(client, move)).status == 500
    request = {**marked(), "namespace": f"{BROKEN_TASK}/{fresh('n')}"}
    raw |= sent_raw(request)
    keep(send(client, request))
    if MCP:
        by_mcp, answers = drive_mcp(client)
        raw |= by_mcp
        for answer in answers:
            keep(answer)
    return raw, came


def drive_mcp(client: Client) -> tuple[set[str], list[HttpAnswer]]:
    """The same through the other door, and what is no message or no call, with arguments in it."""
    raw: set[str] = set()
    came: list[HttpAnswer] = []

    def ask(revision: str, method: str, params: Any, name: str | None = MCP_TOOL) -> None:
        body = message(method, params, revision=revision)
        came.append(post(client, body, headers_of(revision, method, name)))

    for revision in REVISIONS:
        request = marked(retry_failed=True)
        for move in moves(request):
            raw |= sent_raw(move)
            ask(revision, "tools/call", {"name": MCP_TOOL, "arguments": move})
            assert came[-1].status == 200
        for body in bad_bodies(request):
            headers = headers_of(revision, "tools/call", MCP_TOOL)
            head, tail = json.dumps(
                message("tools/call", {"name": MCP_TOOL, "arguments": "x"}, revision=revision)
            ).split('"x"')
            came.append(post(client, head.encode() + body + tail.encode(), headers))
            came.append(post(client, body, headers))
        mark, arguments = request["holder"], {"arguments": request}
        ask(revision, "tools/call", {"name": mark, **arguments}, mark)
        ask(revision, "tools/call", {"name": [mark], **arguments})
        ask(revision, "tools/call", {"name": MCP_TOOL, MARK: mark, **arguments})
        ask(revision, "tools/call", {"name": MCP_TOOL, **arguments}, f"{MARK}{mark}")
        ask(revision, "tools/list", {"cursor": mark, **arguments})
        ask(revision, "tools/list", {"cursor": {mark: MARK}, **arguments})
        ask(revision, "initialize", {"protocolVersion": mark, "capabilities": MARK, **arguments})
        ask(revision, f"{MARK}/{mark}", arguments)
        ask(revision, "notifications/progress", {"progressToken": mark, **arguments})
        for namespace in (BROKEN_PYTHON, BROKEN_SCRIPT):
            broken = {**marked(), "namespace": f"{namespace}/{fresh('n')}"}
            raw |= sent_raw(broken)
            ask(revision, "tools/call", {"name": MCP_TOOL, "arguments": broken})
            error = json.loads(came[-1].body)["error"]
            assert error == {"code": -32603, "message": "Internal fault"}
        for bad in (
            {"jsonrpc": mark, "id": 1, "method": "tools/call", "params": arguments},
            {"jsonrpc": "2.0", "id": [mark], "method": "tools/call", "params": arguments},
            {"jsonrpc": "2.0", "id": 1, "method": [mark], "params": arguments},
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [request]},
            {"jsonrpc": "2.0", "id": 1, "result": arguments},
            {"jsonrpc": "2.0", "method": mark, "params": arguments},
            [message("tools/call", {"name": MCP_TOOL, **arguments}, revision=revision)],
        ):
            came.append(post(client, bad, headers_of(revision, "tools/call", MCP_TOOL)))
            came.append(post(client, json.dumps(bad).encode()[:-3], headers_of(revision, mark)))
    for name in ("mcp-protocol-version", "mcp-session-id", "last-event-id", "origin", "accept"):
        headers = (*headers_of(HANDSHAKES[-1], "tools/call")[:-1], (name, request["holder"]))
        call = message("tools/call", {"name": MCP_TOOL, **arguments}, revision=STATELESS)
        came.append(post(client, call, headers))
    return raw, came


def logged(server: Server) -> set[str]:
    """The kinds of fault in its log; a last line may still be incomplete."""
    lines = server.err.split("\n")[:-1]
    return {str(json.loads(line).get("error")) for line in lines}


def loses_the_store(own: OwnStore, client: Client) -> set[str]:
    """The store dies, and with it what the server says of that."""
    request = marked()
    own.kill()
    try:
        assert send(client, request).status == 503
    finally:
        own.start()
    return sent_raw(request)


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "two"])
def test_nothing_raw_is_told_logged_or_stored(
    workers: tuple[str, ...], faulty: tuple[str, ...]
) -> None:
    """WC-PRIV-1, WC-PRIV-2: each raw identifier, whole and in parts, is looked for everywhere."""
    arguments = ("--log-level", "debug", "--metrics-port", "0", *MCP, *workers)
    with (
        own_store() as own,
        redis.Redis.from_url(own.url) as store,
        collecting() as collector,
    ):
        with (
            serving(
                *arguments, store_url=own.url, command=faulty, **collector.environment
            ) as server,
            server.client() as client,
        ):
            raw, came = drive(server, client)
            stored = list(everything_stored(store))
            raw |= loses_the_store(own, client)
            kinds = {"ValueError", "ResponseError", "RuntimeError"}
            wait_until(lambda: kinds <= logged(server), "every kind of fault is logged")
            assert server.metrics_url is not None
            with urllib.request.urlopen(server.metrics_url, timeout=SECONDS_MAX) as answer:
                metrics = answer.read()
        out, err = server.out.encode(), server.err.encode()
    assert len(raw) > 150
    assert len(stored) > 50
    check(raw, came, "an answer")
    check(raw, stored, "the store")
    check(raw, [out], "standard output")
    check(raw, [err], "standard error")
    assert b'outcome="INTERNAL_FAULT"' in metrics
    check(raw, [metrics], "the metrics")
    names = {span.name for span in collector.spans()}
    assert {"workflow_checkpoint claim", "workflow_checkpoint none", "store step"} <= names
    assert any(metric.name == "workflow_checkpoint.answers" for _, metric in collector.metrics())
    check(raw, collector.raw, "traces and metrics that were sent")


def test_the_log_tells_what_an_operator_needs(faulty: tuple[str, ...]) -> None:
    """One JSON object a line: what was asked, how it ended, how long it took; a fault's place."""
    with serving("--log-level", "debug", command=faulty) as server, server.client() as client:
        request = claim()
        send(client, request)
        send(client, {**request, "holder": fresh("h")})
        send(client, b"{}")
        broken = send(client, claim(namespace=f"{BROKEN_PYTHON}/x"))
        assert (broken.status, broken.body) == (500, b"Internal fault\n")
        assert broken.header("connection") == "close"  # as it then does
    lines = [json.loads(line) for line in server.err.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [(r["binding"], r["action"], r["status"], r["code"]) for r in requests] == [
        ("http", "claim", 200, None),
        ("http", "claim", 409, "CHECKPOINT_NOT_HELD"),
        ("http", None, 400, "INVALID_INPUT"),
    ]
    assert all(r["milliseconds"] >= 0 and r["timestamp"].endswith("Z") for r in requests)
    (fault,) = [line for line in lines if line["level"] == "error"]
    assert fault["error"] == "ValueError"
    assert any("tool.py" in place for place in fault["at"])


@pytest.mark.skipif(not MCP, reason="not run: the SDK is not installed")
def test_the_log_tells_by_which_door_a_call_came(faulty: tuple[str, ...]) -> None:
    """The same line for each call over MCP; a fault in it, and what the SDK logs, by its place."""
    with (
        serving("--log-level", "debug", *MCP, command=faulty) as server,
        server.client() as client,
    ):
        broken = claim(namespace=f"{BROKEN_LIBRARY}/x")
        call_raw(client, json.dumps(broken).encode(), revision=STATELESS)
        call_raw(client, b"{}", revision=HANDSHAKES[-1])
    lines = [json.loads(line) for line in server.err.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [(r["binding"], r["action"], r["status"], r["code"]) for r in requests] == [
        ("mcp", "claim", 200, None),
        ("mcp", None, 400, "INVALID_INPUT"),
    ]
    sdk = [line["event"] for line in lines if line.get("where", "").startswith("mcp.")]
    assert sdk == [f"faulty.py:{number}" for number in sdk_lines(faulty)]


def sdk_lines(faulty: tuple[str, ...]) -> list[int]:
    """Where the faulty program logs in the SDK's name."""
    text = Path(faulty[1]).read_text().splitlines()
    return [
        number
        for number, line in enumerate(text, 1)
        if "logger.warning" in line or "logger.error" in line or "mcp.server.runner" in line
    ]


def test_by_default_a_log_has_no_line_for_each_request() -> None:
    """As long as nobody asks for it: a storm would otherwise be a storm of lines, too."""
    with serving() as server, server.client() as client:
        send(client, claim())
        send(client, b"{}")
    assert "request" not in {json.loads(line)["event"] for line in server.err.splitlines()}
