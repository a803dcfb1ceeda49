"""Whether the server's memory stays flat: as many requests as an hour may bring, in a few minutes.

    python reference_server/benchmarks/soak.py      (or: nox -s soak)

Every kind of work, by both bindings and on fresh connections each time, in batches; after each
batch the server's resident memory is read. After the first quarter, in which caches fill, it may
not grow by more than ``GROWTH_MB_MAX`` from half to half. Exit status 1 where it does.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Final

import redis
from bench import generator, serving
from generator import TOOL

from checkpoint_reference_server.store import open_store

REQUESTS: Final = 1_000_000
BATCH: Final = 20_000
BATCH_SECONDS_MAX: Final = 120.0
GROWTH_MB_MAX: Final = 8.0
KINDS: Final = (("claim", "http"), ("life", "http"), ("losing", "http"), ("claim", "mcp"))


def resident_mb(pid: int) -> float:
    """A process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Send them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    told = parser.parse_args()
    read = []
    with (
        open_store(None) as store,
        redis.Redis.from_url(store.url) as admin,
        serving(store.url) as service,
        generator() as requests,
    ):
        for number in range(max(4, told.requests // BATCH)):
            work, target = KINDS[number % len(KINDS)]
            path = "/mcp" if target == "mcp" else TOOL
            where: dict[str, Any] = {"address": list(service.address), "path": path}
            job = {"work": work, "target": target, "connections": 64, "requests": BATCH}
            requests.do(**where, **job, seconds=BATCH_SECONDS_MAX)
            read.append(resident_mb(service.pid))
            sent = f"{(number + 1) * BATCH:>9,} requests"
            print(f"{sent}  {read[-1]:7.1f} MB", flush=True)  # noqa: T201 - what it is for
            admin.flushall()
    settled = read[len(read) // 4 :]
    half = len(settled) // 2
    growth = statistics.median(settled[half:]) - statistics.median(settled[:half])
    print(f"{growth:+.1f} MB between the halves, after the first quarter")  # noqa: T201
    sys.exit(growth > GROWTH_MB_MAX)


if __name__ == "__main__":
    main()
