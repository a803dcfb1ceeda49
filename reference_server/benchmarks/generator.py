"""Makes requests as fast as they are answered, on many connections, and says how it went.

    python generator.py '{"target": "http", "address": ["127.0.0.1", 8080], …}'

A process of its own, so that its processor time is not the server's. One JSON object in, one out
(see :class:`Job`). Requests are bytes made beforehand; of an answer only the length and the status
are looked at, so that what is measured is whoever answers.
"""

import asyncio
import json
import resource
import secrets
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import hiredis
import uvloop

TOOL: Final = "/v1/tools/workflow-checkpoint"
WARM_SHARE: Final = 0.1
"""Of the requests are sent before the measuring begins, so that connections are made and code is
loaded."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do.

    ``work`` is one of ``claim`` (each on a fresh workflow), ``losing`` (a claim that another
    holder's claim refuses), ``status``, ``life`` (a claim and its settlement) and, on the store
    itself, ``claim`` by EVALSHA.
    """

    target: str
    """``http``, ``mcp`` or ``store``."""
    address: tuple[str, int] | str
    """Host and port, or the path of a unix socket."""
    work: str
    connections: int
    requests: int
    pipeline: int = 1
    """Commands at once on each connection, of a store."""
    sha1: str = ""
    host: str = "localhost"
    path: str = TOOL


def identity() -> dict[str, str]:
    """A workflow that nobody else has, and its holder."""
    token = secrets.token_hex(16)
    return {"namespace": "benchmark", "workflow_key": f"w_{token}", "holder": f"h_{token}"}


def claim_of(who: dict[str, str]) -> dict[str, Any]:
    """Its first claim."""
    lives = {"claim_ttl_seconds": 900, "state_ttl_seconds": 3600, "retry_failed": False}
    return {"action": "claim", **who, **lives}


def settle_of(who: dict[str, str]) -> dict[str, Any]:
    """The transition that ends it well."""
    return {
        "action": "transition",
        **who,
        "generation": 1,
        "to_stage": "caller_verified",
        "observation_key": f"o_{who['holder'][2:]}",
        "evidence_type": "provider_receipt",
    }


def works(work: str) -> Callable[[], list[dict[str, Any]]]:
    """What makes the next requests, which follow one another on one connection."""
    who = identity()
    match work:
        case "claim":
            return lambda: [claim_of(identity())]
        case "losing":
            return lambda: [{**claim_of(who), "holder": identity()["holder"]}]
        case "status":
            return lambda: [{"action": "status", **who}]
        case "life":

            def life() -> list[dict[str, Any]]:
                one = identity()
                return [claim_of(one), settle_of(one)]

            return life
    raise SystemExit(f"there is no work {work!r}")


def as_http(job: Job, request: dict[str, Any]) -> bytes:
    """A POST."""
    headers = [f"POST {job.path} HTTP/1.1", f"Host: {job.host}", "Content-Type: application/json"]
    body = json.dumps(request).encode()
    if job.target == "mcp":
        params = {"name": "workflow_checkpoint", "arguments": request}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        body = json.dumps(message).encode()
        headers += ["Accept: application/json, text/event-stream"]
        headers += ["MCP-Protocol-Version: 2025-11-25"]
    return "\r\n".join([*headers, f"Content-Length: {len(body)}", "", ""]).encode() + body


def as_step(job: Job, request: dict[str, Any]) -> bytes:
    """The claim that the server would make of it, as a command of the store."""
    digest = (request["workflow_key"][2:] + "A" * 43)[:43]
    command = ("EVALSHA", job.sha1, 1, f"wc:{{{digest}}}", "", digest, 900, 3600, "0")
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # typed as of one word
    return packed


class Run:
    """The requests of all connections together."""

    def __init__(self, job: Job, requests: list[bytes]) -> None:
        self.job = job
        self._requests = requests
        self._next = 0
        self._landed = 0
        self._warm = int(len(requests) * WARM_SHARE)
        self.latencies = array("d")
        self.refused = 0
        self.done = asyncio.get_running_loop().create_future()
        self.began = 0.0
        self.used = 0.0

    def take(self, count: int) -> list[bytes]:
        """The next requests, fewer at the end."""
        taken = self._requests[self._next : self._next + count]
        self._next += len(taken)
        return taken

    def landed(self, sent_at: float, ok: bool) -> None:
        """An answer came."""
        self._landed += 1
        if self._landed == self._warm:
            self.began, self.used = time.perf_counter(), time.process_time()
        elif self._landed > self._warm:
            self.latencies.append(time.perf_counter() - sent_at)
            self.refused += not ok
        if self._landed == len(self._requests):
            self.done.set_result(None)

    def figures(self) -> dict[str, float]:
        """Requests a second, latencies in microseconds, and what making them cost."""
        seconds = time.perf_counter() - self.began
        used = time.process_time() - self.used
        ordered = sorted(self.latencies)
        count = len(ordered)
        return {
            "requests": count,
            "refused": self.refused,
            "per_second": count / seconds,
            "p50_us": ordered[count // 2] * 1e6,
            "p99_us": ordered[int(count * 0.99)] * 1e6,
            "generator_us": used / count * 1e6,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


class HttpConnection(asyncio.Protocol):
    """One request at a time; a life's two follow one another."""

    def __init__(self, run: Run, step: int) -> None:
        self._run = run
        self._step = step
        self._queue: list[bytes] = []
        self._received = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        if not self._queue:
            self._queue = self._run.take(self._step)
        if self._queue:
            self._sent_at = time.perf_counter()
            self._transport.write(self._queue.pop(0))

    def data_received(self, data: bytes) -> None:
        """Cut the answer off; it says how long it is."""
        received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            self._received = received
            return
        at = received.lower().find(b"content-length:", 0, end)
        length = int(received[at + 15 : received.find(b"\r", at)])
        if len(received) < end + 4 + length:
            self._received = received
            return
        self._received = b""
        self._run.landed(self._sent_at, received[9:10] in b"24")
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody may hang up on it before the end."""
        if not self._run.done.done():
            self._run.done.set_exception(exc or ConnectionError("the server hung up"))


class StoreConnection(asyncio.Protocol):
    """As many commands at once as the pipeline says."""

    def __init__(self, run: Run, pipeline: int) -> None:
        self._run = run
        self._pipeline = pipeline
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        commands = self._run.take(self._pipeline)
        if commands:
            self._left = len(commands)
            self._sent_at = time.perf_counter()
            self._transport.write(b"".join(commands))

    def data_received(self, data: bytes) -> None:
        """Count the answers."""
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not Ellipsis:
            self._left -= 1
            self._run.landed(self._sent_at, not isinstance(answer, Exception))
        if self._left == 0:
            self._send()


async def run(job: Job) -> dict[str, float]:
    """Do a job."""
    make = works(job.work)
    encode = as_step if job.target == "store" else as_http
    step = len(make())
    requests = [encode(job, request) for _ in range(job.requests // step) for request in make()]
    if job.work in ("losing", "status"):
        # Somebody holds it: the claim that these requests find.
        first = {**json.loads(requests[0].partition(b"\r\n\r\n")[2])}
        await _hold(job, first)
    doing = Run(job, requests)
    loop = asyncio.get_running_loop()

    def connection() -> asyncio.Protocol:
        if job.target == "store":
            return StoreConnection(doing, job.pipeline)
        return HttpConnection(doing, step)

    for _ in range(job.connections):
        if isinstance(job.address, str):
            await loop.create_unix_connection(connection, job.address)
        else:
            await loop.create_connection(connection, *job.address)
    await doing.done
    return doing.figures()


async def _hold(job: Job, request: dict[str, Any]) -> None:
    arguments = request.get("params", {}).get("arguments", request)
    who = {name: arguments[name] for name in ("namespace", "workflow_key")}
    claim = claim_of({**who, "holder": identity()["holder"]})
    reader, writer = await asyncio.open_connection(*job.address)
    writer.write(as_http(Job(**{**vars(job), "target": "http", "path": TOOL}), claim))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer or b" 409 " in answer, answer
    writer.close()


def main() -> None:
    """Do the job in the argument, and print its figures."""
    told = json.loads(sys.argv[1])
    if isinstance(told["address"], list):
        told["address"] = tuple(told["address"])
    print(json.dumps(uvloop.run(run(Job(**told)))))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
