"""What MCP costs over HTTP: the same `status`, by both bindings of one server, in one run.

    python reference_server/benchmarks/mcp_overhead.py      (or: nox -s overhead)

One server on a Valkey of its own, one connection for each way, one call at a time. The ways take
turns, so that whatever else the machine does falls on all of them; each figure is the median of
the rounds. Requests are bytes made beforehand and answers are only cut apart, so that what is
measured is the server. Server time is the processor time that the system counts for it.
"""

import json
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROUNDS: Final = 9
CALLS: Final = 400
"""Of each way in each round."""
READY_SECONDS_MAX: Final = 60.0
STATELESS: Final = "2026-07-28"


@contextmanager
def serving() -> Iterator[tuple[str, int, int]]:
    """Host and port of a server, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        arguments = ["--mcp", "--dev-key", "--port", "0", "--log-level", "warning"]
        process = subprocess.Popen(  # noqa: S603 - our own program
            [
                *(sys.executable, "-m", "checkpoint_reference_server", *arguments),
                *("--ready-file", str(ready), "--exit-with-input"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        assert process.stdin is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        try:
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the server did not start")
                time.sleep(0.05)
            host, port = json.loads(ready.read_text())["url"].removeprefix("http://").split(":")
            yield host, int(port), process.pid
        finally:
            process.stdin.close()
            process.wait()


class Way:
    """One way to call the tool: a request that never changes, and a connection for it."""

    def __init__(self, name: str, request: bytes, address: tuple[str, int]) -> None:
        self.name = name
        self._request = request
        self._wire = socket.create_connection(address)
        self._wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wall_us: list[float] = []
        self.server_us: list[float] = []

    def call(self) -> bytes:
        """Send it; the body of the answer."""
        self._wire.sendall(self._request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._wire.recv(65536)
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._wire.recv(65536)
        return body

    def measure(self, pid: int) -> None:
        """One round."""
        used, started = processor_seconds(pid), time.perf_counter()
        for _ in range(CALLS):
            self.call()
        self.wall_us.append((time.perf_counter() - started) / CALLS * 1e6)
        self.server_us.append((processor_seconds(pid) - used) / CALLS * 1e6)

    def close(self) -> None:
        """End the connection."""
        self._wire.close()


def processor_seconds(pid: int) -> float:
    """What the process's one busy thread has used; nan where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        return float("nan")


def http(path: str, body: Mapping[str, Any], *headers: str) -> bytes:
    """A POST as bytes."""
    raw = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers, f"Content-Length: {len(raw)}", "", ""]).encode() + raw


def mcp(revision: str, method: str, params: Mapping[str, Any]) -> bytes:
    """A request of an MCP revision as bytes."""
    headers = ["Accept: application/json, text/event-stream", f"MCP-Protocol-Version: {revision}"]
    if revision == STATELESS:
        prefix = "io.modelcontextprotocol/"
        meta = {f"{prefix}protocolVersion": revision, f"{prefix}clientCapabilities": {}}
        params = {**params, "_meta": meta}
        headers.append(f"Mcp-Method: {method}")
        if "name" in params:
            headers.append(f"Mcp-Name: {params['name']}")
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return http("/mcp", message, *headers)


def main() -> None:
    """Measure, and print a table."""
    identity = {"namespace": "benchmark", "workflow_key": f"w_{secrets.token_hex(16)}"}
    claim = {
        **identity,
        "action": "claim",
        "holder": f"h_{secrets.token_hex(16)}",
        "claim_ttl_seconds": 900,
        "state_ttl_seconds": 3600,
        "retry_failed": False,
    }
    status = {**identity, "action": "status", "holder": claim["holder"]}
    call = {"name": "workflow_checkpoint", "arguments": status}
    tool = "/v1/tools/workflow-checkpoint"
    with serving() as (host, port, pid):
        address = (host, port)
        first = Way("claim", http(tool, claim), address)
        made = json.loads(first.call())
        first.close()
        assert made["acquired"] is True, made
        plain = Way("HTTP", http(tool, status), address)
        ways = [
            plain,
            Way(f"MCP {STATELESS}", mcp(STATELESS, "tools/call", call), address),
            Way("MCP 2025-11-25", mcp("2025-11-25", "tools/call", call), address),
            Way("MCP ping (no tool)", mcp("2025-11-25", "ping", {}), address),
        ]
        seen = json.loads(plain.call())
        for way in ways[1:3]:
            result = json.loads(way.call())["result"]
            stage = result["structuredContent"]["stage"]
            assert (result["isError"], stage) == (False, seen["stage"]), result
        for number in range(ROUNDS):
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                way.measure(pid)
        for way in ways:
            way.close()
    print_table(ways, plain)


def print_table(ways: list[Way], plain: Way) -> None:
    """Medians of the rounds, and what each way adds to HTTP."""
    base, base_server = statistics.median(plain.wall_us), statistics.median(plain.server_us)
    print("median µs of a call     whole  added   server  added")  # noqa: T201
    for way in ways:
        wall, server = statistics.median(way.wall_us), statistics.median(way.server_us)
        added = f"{wall - base:6.0f}  {server:6.0f} {server - base_server:6.0f}"
        print(f"{way.name:<22} {wall:6.0f} {added}")  # noqa: T201


if __name__ == "__main__":
    main()
