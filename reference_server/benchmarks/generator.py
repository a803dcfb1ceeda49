"""Makes requests as fast as they are answered, on many connections, and says how it went.

    echo '{"target": "http", "address": ["127.0.0.1", 8080], …}' | python generator.py

A process of its own, so that its processor time is not the server's. Each line in is a job (see
:class:`Job`), each line out its figures. Requests are cut from a pattern that is made once; of an
answer only the length and the status are looked at, so that what is measured is whoever answers.
"""

import asyncio
import itertools
import json
import secrets
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import hiredis
import uvloop

TOOL: Final = "/v1/tools/workflow-checkpoint"
WARM_SECONDS: Final = 0.15
"""Sent before the measuring begins, so that connections are made and code is loaded."""
SLOW_TIMES_MAX: Final = 10
"""So many times a job's seconds are measured at most, where fewer answers came than it has
connections."""
PREPARED_SHARE: Final = 1.2
"""Claims that are made for transitions to follow, in seconds of a job's: the latter may be
faster."""
_MARK: Final = "#" * 32
"""Where a pattern has what differs from request to request, as long as that is."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do.

    ``work`` is one of ``claim`` (each on a fresh workflow), ``transition`` (each on a workflow that
    was claimed before), ``losing`` (a claim that another holder's claim refuses), ``status``,
    ``life`` (a claim and its settlement), ``whole`` (the same by one request) and, on the store
    itself, ``claim`` by EVALSHA.
    """

    target: str
    """``http``, ``mcp`` or ``store``."""
    address: tuple[str, int] | str
    """Host and port, or the path of a unix socket."""
    work: str
    connections: int
    seconds: float = 0.5
    """So long is measured, after :data:`WARM_SECONDS`."""
    requests: int = 0
    """At most, the warm ones too; without a bound but time where 0."""
    pipeline: int = 1
    """Commands at once on each connection, of a store."""
    sha1: str = ""
    host: str = "localhost"
    path: str = TOOL
    watched: dict[str, list[int]] = field(default_factory=dict)
    """Processes whose processor time is told for each request, by a name. They count with all
    their descendants."""


# -- What is asked ---------------------------------------------------------------------------------


def claim_of(workflow: str = _MARK, holder: str = _MARK) -> dict[str, Any]:
    """The first claim on a workflow."""
    lives = {"claim_ttl_seconds": 900, "state_ttl_seconds": 3600, "retry_failed": False}
    return {"action": "claim", **_who(workflow), "holder": f"h_{holder}", **lives}


def settle_of(workflow: str = _MARK, holder: str = _MARK) -> dict[str, Any]:
    """The transition that ends it well."""
    return {
        "action": "transition",
        **_who(workflow),
        "holder": f"h_{holder}",
        "generation": 1,
        "to_stage": "caller_verified",
        "observation_key": f"o_{holder}",
        "evidence_type": "provider_receipt",
    }


def _who(workflow: str) -> dict[str, str]:
    return {"namespace": "benchmark", "workflow_key": f"w_{workflow}"}


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


def as_step(job: Job) -> bytes:
    """The claim that the server would make of a request, as a command of the store."""
    digest = f"{_MARK}{'A' * 11}"
    command = ("EVALSHA", job.sha1, 1, f"wc:{{{digest}}}", "", digest, 900, 3600, "0")
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # typed as of one word
    return packed


def _tokens() -> Iterator[bytes]:
    """Numbers that nobody else has, each as long as a pattern's mark."""
    first = secrets.randbits(96) << 32
    return (b"%032x" % number for number in itertools.count(first))


_TOKENS: Final = _tokens()


def works(job: Job, prepared: list[bytes], held: str) -> Callable[[], list[bytes]]:
    """What makes the next requests, which follow one another on one connection.

    Args:
        job: what to do.
        prepared: of workflows that have been claimed, for ``transition``; none are left at the end.
        held: a workflow that somebody has claimed, for ``losing`` and ``status``.
    """
    if job.target == "store":
        command = as_step(job).split(_MARK.encode())
        return lambda: [next(_TOKENS).join(command)]
    claim = as_http(job, claim_of()).split(_MARK.encode())
    settle = as_http(job, settle_of()).split(_MARK.encode())
    match job.work:
        case "claim" | "whole":
            return lambda: [next(_TOKENS).join(claim)]
        case "prepare":

            def prepare() -> list[bytes]:
                prepared.append(next(_TOKENS))
                return [prepared[-1].join(claim)]

            return prepare
        case "transition":
            return lambda: [prepared.pop().join(settle)] if prepared else []
        case "losing":
            losing = as_http(job, claim_of(held)).split(_MARK.encode())
            return lambda: [next(_TOKENS).join(losing)]
        case "status":
            status = as_http(job, {"action": "status", **_who(held)})
            return lambda: [status]
        case "life":

            def life() -> list[bytes]:
                token = next(_TOKENS)
                return [token.join(claim), token.join(settle)]

            return life
    raise SystemExit(f"there is no work {job.work!r}")


# -- Processor time --------------------------------------------------------------------------------


def with_descendants(pids: list[int]) -> list[int]:
    """These processes, and all that they started, however deep."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.name))
    found = list(pids)
    for pid in found:  # grows meanwhile
        found += children.get(pid, [])
    return found


def processor_seconds(pids: list[int]) -> float:
    """What processes have used, all their threads together."""
    used_ns = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                used_ns += int(path.read_text().split()[0])
            except OSError:
                continue  # a thread that has just ended
    return used_ns / 1e9


# -- The run ---------------------------------------------------------------------------------------


class Run:
    """The requests of all connections together."""

    def __init__(self, job: Job, make: Callable[[], list[bytes]]) -> None:
        self.job = job
        self._make = make
        self._expected = b"4" if (job.work, job.target) == ("losing", "http") else b"2"
        self._left = job.requests or sys.maxsize
        self._in_flight = 0
        self._measuring = self._over = False
        self._watched = {name: with_descendants(pids) for name, pids in job.watched.items()}
        self._began: dict[str, float] = {}
        self._used: dict[str, float] = {}
        self.latencies = array("d")
        self.refused = 0
        self._loop = asyncio.get_running_loop()
        self.done = self._loop.create_future()
        self._loop.call_later(WARM_SECONDS, self._begin)

    def _now(self) -> dict[str, float]:
        used = {name: processor_seconds(pids) for name, pids in self._watched.items()}
        return {**used, "generator": time.process_time(), "seconds": time.perf_counter()}

    def _begin(self) -> None:
        self._measuring = True
        self._began = self._now()
        self._loop.call_later(self.job.seconds, self._end_if_enough, SLOW_TIMES_MAX - 1)

    def _end_if_enough(self, times: int) -> None:
        """Go on where most connections have had no answer yet, but not for ever."""
        if len(self.latencies) < self.job.connections and times and not self._over:
            self._loop.call_later(self.job.seconds, self._end_if_enough, times - 1)
        else:
            self._end()

    def _end(self) -> None:
        if self._measuring and not self._used:
            now = self._now()
            self._used = {name: now[name] - self._began[name] for name in now}
        self._over = True
        self._look_whether_done()

    def take(self) -> list[bytes]:
        """The next requests of a connection, none at the end."""
        if self._over or self._left <= 0:
            return []
        taken = self._make()
        self._left -= len(taken)
        if not taken:
            self._left = 0
        return taken

    def sent(self, count: int) -> None:
        """So many requests went out."""
        self._in_flight += count

    def landed(self, sent_at: float, status: bytes) -> None:
        """An answer came."""
        self._in_flight -= 1
        self.refused += status != self._expected
        if self._measuring and not self._over:
            self.latencies.append(time.perf_counter() - sent_at)

    def rest(self) -> None:
        """A connection has nothing to do any more."""
        if self._left <= 0 and not self._in_flight and not self._over:
            self._end()
        self._look_whether_done()

    def _look_whether_done(self) -> None:
        if self._over and not self._in_flight and not self.done.done():
            self.done.set_result(None)

    def figures(self) -> dict[str, float]:
        """Requests a second, latencies in microseconds, and processor time for each request."""
        ordered = sorted(self.latencies)
        count = len(ordered)
        if not count:
            raise SystemExit(f"no answer within the time of {self.job}")
        seconds = self._used.pop("seconds")
        return {
            "requests": count,
            "refused": self.refused,
            "per_second": count / seconds,
            "p50_us": ordered[count // 2] * 1e6,
            "p99_us": ordered[int(count * 0.99)] * 1e6,
            **{f"{name}_us": used / count * 1e6 for name, used in self._used.items()},
        }


class HttpConnection(asyncio.Protocol):
    """One request at a time; a life's two follow one another."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._queue: list[bytes] = []
        self._received = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        if not self._queue:
            self._queue = self._run.take()
        if not self._queue:
            self._run.rest()
            return
        self._run.sent(1)
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
        self._run.landed(self._sent_at, received[9:10])
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody may hang up on it before the end."""
        if not self._run.done.done():
            self._run.done.set_exception(exc or ConnectionError("the server hung up"))


class StoreConnection(asyncio.Protocol):
    """As many commands at once as the pipeline says."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        commands = [one for _ in range(self._run.job.pipeline) for one in self._run.take()]
        if not commands:
            self._run.rest()
            return
        self._left = len(commands)
        self._run.sent(len(commands))
        self._sent_at = time.perf_counter()
        self._transport.write(b"".join(commands))

    def data_received(self, data: bytes) -> None:
        """Count the answers."""
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not Ellipsis:
            self._left -= 1
            self._run.landed(self._sent_at, b"5" if isinstance(answer, Exception) else b"2")
        if self._left == 0:
            self._send()


async def run(job: Job) -> dict[str, float]:
    """Do a job."""
    prepared: list[bytes] = []
    held = next(_TOKENS).decode()
    if job.work in ("losing", "status"):
        await _hold(job, held)
    if job.work == "transition":
        seconds = (job.seconds + WARM_SECONDS) * PREPARED_SHARE
        await _run(replace(job, work="prepare", seconds=seconds, watched={}), prepared, held)
    return (await _run(job, prepared, held)).figures()


async def _run(job: Job, prepared: list[bytes], held: str) -> Run:
    doing = Run(job, works(job, prepared, held))
    loop = asyncio.get_running_loop()
    transports: list[asyncio.BaseTransport] = []
    for _ in range(job.connections):
        if isinstance(job.address, str):
            made = await loop.create_unix_connection(lambda: StoreConnection(doing), job.address)
            transports.append(made[0])
        else:
            met = await loop.create_connection(lambda: HttpConnection(doing), *job.address)
            transports.append(met[0])
    await doing.done
    for transport in transports:
        transport.close()
    return doing


async def _hold(job: Job, workflow: str) -> None:
    reader, writer = await asyncio.open_connection(*job.address)
    claim = claim_of(workflow, next(_TOKENS).decode())
    writer.write(as_http(replace(job, target="http", path=TOOL), claim))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer, answer
    writer.close()


def main() -> None:
    """Do one job after the other, and print the figures of each."""
    for line in sys.stdin:
        told = json.loads(line)
        if isinstance(told["address"], list):
            told["address"] = tuple(told["address"])
        print(json.dumps(uvloop.run(run(Job(**told)))), flush=True)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
