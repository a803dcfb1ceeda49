"""How near the store's limit the server is, and how far from it others are: ``nox -s bench``.

Everything runs side by side in one go, in turns, so that whatever else the machine does falls on
all of it; each figure is the median of the rounds. Results go to ``docs/performance.json`` and, as
a table, into ``docs/performance.md``. ``@ 64`` is on 64 connections, one request on each at a time.

``limit`` is the claim script on the same store by a minimal client: nothing in between. Processor
time is the system's count for each process: server, store, and the generator of the requests.
"""

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis
from topologies import nodes

from checkpoint_lua import loader
from checkpoint_reference_server.store import open_store

HERE: Final = Path(__file__).parent
DOCUMENT: Final = HERE.parents[1] / "docs" / "performance.md"
RESULTS: Final = DOCUMENT.with_suffix(".json")
BEGIN: Final = "<!-- measured -->\n"
END: Final = "<!-- end of measured -->\n"
ROUNDS: Final = 5
REQUESTS: Final = 12_000
"""Of one measurement at many connections; a tenth at one."""
READY_SECONDS_MAX: Final = 60.0
RECORDS: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Live ones, beside which a claim's cost is measured."""
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """Something that answers HTTP."""

    address: tuple[str, int]
    pids: tuple[int, ...]


@contextmanager
def serving(store_url: str, *arguments: str) -> Iterator[Service]:
    """The reference server."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "checkpoint_reference_server", "--port", "0"]
        command += ["--valkey-url", store_url, "--log-level", "warning", "--exit-with-input"]
        command += ["--ready-file", str(ready), "--mcp", *arguments]
        environment = {**os.environ, "WORKFLOW_CHECKPOINT_HMAC_KEY": secrets.token_hex(32)}
        with _process(command, environment) as process:
            _wait(ready.exists, process)
            url = json.loads(ready.read_text())["url"]
            host, _, port = url.removeprefix("http://").partition(":")
            address = (host, int(port))
            yield Service(address=address, pids=(process.pid, *_children(process.pid)))


@contextmanager
def peer(store_url: str) -> Iterator[Service]:
    """FastAPI with redis-py, on the same HTTP layer."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "port"
        program = (
            "import socket, sys, uvicorn, peers\n"
            "listener = socket.create_server(('127.0.0.1', 0))\n"
            f"open({str(socket)!r}, 'w').write(str(listener.getsockname()[1]))\n"
            "config = uvicorn.Config(peers.make_app(), log_level='warning', access_log=False)\n"
            "uvicorn.Server(config).run(sockets=[listener])\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(HERE), "BENCHMARK_STORE_URL": store_url}
        with _process([sys.executable, "-c", program], environment) as process:
            _wait(lambda: socket.exists() and socket.read_text() != "", process)
            address = ("127.0.0.1", int(socket.read_text()))
            yield Service(address=address, pids=(process.pid,))


@contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[Any]:
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


def _wait(ready: Any, process: Any) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("a server did not start")
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if _stat(int(path.name))[1] == str(pid)
    ]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["", ""] + ["0"] * 20


def processor_seconds(pids: tuple[int, ...]) -> float:
    """What processes have used, all threads together."""
    return sum((int(stat[11]) + int(stat[12])) / CLOCK_TICKS for stat in map(_stat, pids))


def generate(**job: Any) -> dict[str, float]:
    """Let the generator do a job."""
    command = [sys.executable, str(HERE / "generator.py"), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"the generator failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing to measure."""

    name: str
    job: dict[str, Any]
    pids: tuple[int, ...] = ()


class Bench:
    """The rows, measured in turns."""

    def __init__(self, store: redis.Redis, requests: int) -> None:
        self._store = store
        self._store_pids = (int(store.info("server")["process_id"]),)
        self._requests = requests
        self.figures: dict[str, list[dict[str, float]]] = {}

    def measure(self, row: Row) -> None:
        """One round of one row."""
        connections = row.job["connections"]
        requests = self._requests if connections > 1 else self._requests // 6
        if row.job["target"] == "store":
            requests *= 2
        before = processor_seconds(row.pids), processor_seconds(self._store_pids)
        figures = generate(requests=requests, **row.job)
        after = processor_seconds(row.pids), processor_seconds(self._store_pids)
        figures["server_us"] = (after[0] - before[0]) / requests * 1e6
        figures["store_us"] = (after[1] - before[1]) / requests * 1e6
        self.figures.setdefault(row.name, []).append(figures)
        self._store.flushall()

    def median(self, name: str, figure: str) -> float:
        """Of the rounds."""
        return statistics.median(one[figure] for one in self.figures[name])


def rows(store_url: str, one: Service, two: Service, other: Service, sha1: str) -> list[Row]:
    """What is measured on one store."""
    path = store_url.removeprefix("unix://")
    found = []
    for connections, pipeline in ((1, 1), (64, 1), (64, 16)):
        deep = f", pipelines of {pipeline}" if pipeline > 1 else ""
        job = {"target": "store", "address": path, "work": "claim", "connections": connections}
        job |= {"pipeline": pipeline, "sha1": sha1}
        found.append(Row(name=f"limit: EVALSHA @ {connections}{deep}", job=job))
    for work, connections, service, target, label in (
        ("claim", 1, one, "http", "claim @ 1"),
        ("claim", 64, one, "http", "claim @ 64"),
        ("claim", 256, one, "http", "claim @ 256"),
        ("losing", 64, one, "http", "losing claim @ 64"),
        ("status", 64, one, "http", "status @ 64"),
        ("life", 64, one, "http", "claim and settle @ 64"),
        ("claim", 64, two, "http", "claim @ 64, two processes"),
        ("claim", 64, one, "mcp", "claim over MCP @ 64"),
    ):
        job = {"target": target, "address": list(service.address), "work": work}
        job |= {"connections": connections}
        if target == "mcp":
            job["path"] = "/mcp"
        found.append(Row(name=label, job=job, pids=service.pids))
    for work, label in (
        ("claim", "FastAPI + redis-py: claim @ 64"),
        ("life", "FastAPI + redis-py: claim and settle @ 64"),
    ):
        job = {"target": "http", "address": list(other.address), "work": work}
        found.append(Row(name=label, job=job | {"connections": 64}, pids=other.pids))
    return found


def replicated_rows(careless: Service, careful: Service) -> list[Row]:
    """What is measured on a primary with a replica."""
    job = {"target": "http", "work": "claim", "connections": 64}
    return [
        Row(name=name, job=job | {"address": list(service.address)}, pids=service.pids)
        for name, service in ((CARELESS, careless), (CAREFUL, careful))
    ]


CARELESS: Final = "claim @ 64"
CAREFUL: Final = "claim @ 64, --wait-replicas 1"
HEADINGS: Final = (
    "",
    "requests/s",
    "of the limit",
    "p50 µs",
    "p99 µs",
    "p99 to the limit's",
    "server µs",
    "store µs",
    "generator µs",
)


def replicated_table(bench: Bench) -> str:
    """What waiting for a replica costs, as Markdown."""
    lines = [
        "On a primary with one replica, all three processes of a store and its server on the same",
        "cores:",
        "",
        "| | requests/s | to not waiting | p50 µs | p99 µs | server µs |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    base = bench.median(CARELESS, "per_second")
    for name in (CARELESS, CAREFUL):
        rate = bench.median(name, "per_second")
        latencies = f"{bench.median(name, 'p50_us'):,.0f} | {bench.median(name, 'p99_us'):,.0f}"
        server = bench.median(name, "server_us")
        lines.append(f"| {name} | {rate:,.0f} | {rate / base:.2f} | {latencies} | {server:.0f} |")
    return "\n".join(lines)


def table(bench: Bench, lives: dict[str, list[float]], grown: list[dict[str, float]]) -> str:
    """What was measured, as Markdown."""
    limit = "limit: EVALSHA @ 64"
    most, slowest = bench.median(limit, "per_second"), bench.median(limit, "p99_us")
    lines = [
        f"| {' | '.join(HEADINGS)} |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in bench.figures:
        rate, tail = bench.median(name, "per_second"), bench.median(name, "p99_us")
        cells = [
            f"{rate:,.0f}",
            f"{rate / most:.2f}",
            f"{bench.median(name, 'p50_us'):,.0f}",
            f"{tail:,.0f}",
            f"{tail / slowest:.1f}",
            f"{bench.median(name, 'server_us'):.0f}",
            f"{bench.median(name, 'store_us'):.0f}",
            f"{bench.median(name, 'generator_us'):.0f}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    ours = bench.median("claim @ 64", "per_second")
    theirs = bench.median("FastAPI + redis-py: claim @ 64", "per_second")
    life = bench.median("claim and settle @ 64", "per_second") / 2
    their_life = bench.median("FastAPI + redis-py: claim and settle @ 64", "per_second") / 2
    said = (
        f"At 64 connections a claim reaches {ours / most:.2f} of the limit and {ours / theirs:.1f} "
        f"times what FastAPI with redis-py does; {life:,.0f} workflows a second are claimed and "
        f"settled, {life / their_life:.1f} times theirs."
    )
    in_process = "In process, one after the other, workflows claimed and settled a second:"
    lines += [
        "",
        said,
        "",
        in_process,
        "",
        "| by | workflows/s | to our scripts |",
        "|---|--:|--:|",
    ]
    base = statistics.median(lives["our scripts, by redis-py"])
    for name, rates in lives.items():
        rate = statistics.median(rates)
        lines.append(f"| {name} | {rate:,.0f} | {rate / base:.2f} |")
    lines += [
        "",
        "Beside so many live records, each with two observations:",
        "",
        "| live records | store µs a claim | to the first | bytes a record (MEMORY USAGE) |",
        "|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {one['records']:,.0f} | {one['store_us']:.1f} "
        f"| {one['store_us'] / grown[0]['store_us']:.2f} | {one['bytes']:,.0f} |"
        for one in grown
    ]
    return "\n".join([*lines, "", f"({machine()})", ""])


def machine() -> str:
    """What it ran on."""
    cores = os.cpu_count()
    return f"Python {platform.python_version()}, {platform.machine()}, {cores} cores, medians"


FILLED_AT_ONCE: Final = 10_000
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


def grow(store: redis.Redis, store_url: str, sha1: str, sizes: tuple[int, ...]) -> list[Any]:
    """A claim's cost beside ever more records, and what a record takes."""
    pids = (int(store.info("server")["process_id"]),)
    found = []
    for size in sizes:
        store.flushall(asynchronous=False)
        for start in range(0, size, FILLED_AT_ONCE):
            store.eval(FILL, 0, start, min(start + FILLED_AT_ONCE, size) - 1)
        record_bytes = int(store.memory_usage(f"wc:{{{0:043d}}}", samples=0) or 0)
        costs = []
        for _ in range(3):
            before = processor_seconds(pids)
            job = {"target": "store", "address": store_url.removeprefix("unix://"), "sha1": sha1}
            generate(**job, work="claim", connections=64, requests=40_000)
            costs.append((processor_seconds(pids) - before) / 40_000 * 1e6)
        found.append({"records": size, "store_us": statistics.median(costs), "bytes": record_bytes})
    return found


def measure_replicated(rounds: int, requests: int) -> Bench:
    """The same claim with and without waiting for a replica, in turns."""
    with nodes() as started:
        primary = started.start()
        started.replica_of(primary)
        with (
            serving(primary.url) as careless,
            serving(primary.url, "--wait-replicas", "1") as careful,
        ):
            bench = Bench(primary.admin, requests)
            found = replicated_rows(careless, careful)
            for number in range(rounds):
                for row in found[number % 2 :] + found[: number % 2]:
                    bench.measure(row)
    return bench


def main() -> None:
    """Measure everything, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--records", type=int, default=max(RECORDS), help="at most")
    parser.add_argument("--print", action="store_true", help="and write nothing")
    told = parser.parse_args()
    with ExitStack() as stack:
        url = stack.enter_context(open_store(None)).url
        store = stack.enter_context(redis.Redis.from_url(url))
        sha1 = str(store.script_load(loader.scripts()["claim"].text))
        one = stack.enter_context(serving(url))
        two = stack.enter_context(serving(url, "--workers", "2"))
        other = stack.enter_context(peer(url))
        bench = Bench(store, told.requests)
        found = rows(url, one, two, other, sha1)
        for number in range(told.rounds):
            for row in found[number % len(found) :] + found[: number % len(found)]:
                bench.measure(row)
            print(f"round {number + 1} of {told.rounds}", file=sys.stderr, flush=True)  # noqa: T201
        bench.figures = {row.name: bench.figures[row.name] for row in found}
        command = [sys.executable, str(HERE / "peers.py"), url, str(told.requests // 12)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        lives = json.loads(done.stdout)
        sizes = tuple(size for size in RECORDS if size <= told.records)
        grown = grow(store, url, sha1, sizes)
    replicated = measure_replicated(told.rounds, told.requests)
    text = f"{table(bench, lives, grown)}\n{replicated_table(replicated)}\n"
    print(text)  # noqa: T201 - what it is for
    if not told.print:
        results = {"machine": machine(), "rounds": bench.figures, "peers": lives, "records": grown}
        results["replicated"] = replicated.figures
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
