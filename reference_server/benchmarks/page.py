"""What was measured as a page: tables in ``docs/performance.md``, and the pictures beside it.

Everything here comes from ``docs/performance.json``, so ``bench.py --only page`` writes it anew
without measuring.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from curves import Line, chart

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "performance.md"
RESULTS: Final = DOCUMENT.with_suffix(".json")
RATES: Final = DOCUMENT.with_name("requests-by-connections.svg")
TAILS: Final = DOCUMENT.with_name("p99-by-connections.svg")
GROWTH: Final = DOCUMENT.with_name("cost-by-records.svg")
BEGIN: Final = "<!-- measured -->\n"
END: Final = "<!-- end of measured -->\n"
FASTAPI: Final = "FastAPI + redis-py"
CARELESS: Final = "claim @ 64"
CAREFUL: Final = "claim @ 64, --wait-replicas 1"
WORKS: Final = {
    "claim": "claim",
    "transition": "transition",
    "status": "status",
    "losing": "losing claim",
    "life": "claim and settle",
}
DOORS: Final = {"http": "HTTP", "mcp": "MCP"}
BUSY: Final = 64
"""Connections at which ratios are taken."""
SHOWN: Final = (1, 64, 256)
NONE: Final = "n/a"


def read() -> dict[str, Any]:
    """What was measured last."""
    if not RESULTS.exists():
        return {}
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def write(results: dict[str, Any]) -> None:
    """Write down what was measured: JSON, tables and pictures."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{tables(results)}\n{END}{after}", encoding="utf-8")
    for path, picture in pictures(results):
        path.write_text(picture, encoding="utf-8")


def median(row: dict[str, Any], figure: str) -> float:
    """Of the rounds."""
    return float(statistics.median(one[figure] for one in row["figures"]))


class Rows:
    """The rows of a run, found by what they are."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows

    def all(self, **wanted: Any) -> list[dict[str, Any]]:
        """Those that are as told."""
        return [r for r in self._rows if all(r[name] == value for name, value in wanted.items())]

    def one(self, **wanted: Any) -> dict[str, Any]:
        """The one that is; of one process and without pipelines where nothing is said of them."""
        (found,) = self.all(**{"processes": 1, "pipeline": 1, **wanted})
        return found

    @property
    def limit(self) -> dict[str, Any]:
        """That everything is held against."""
        return self.one(by="limit", connections=BUSY)


# -- Tables ----------------------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Markdown; the first column is words, the others are numbers."""
    lines = [f"| {' | '.join(headings)} |", "|---|" + "--:|" * (len(headings) - 1)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def tables(results: dict[str, Any]) -> str:
    """All of the generated part, as Markdown."""
    lines: list[str] = []
    if "rows" in results:
        rows = Rows(results["rows"])
        goals = table(("goal", "to be", "is", "met"), _goals(results))
        lines += ["### Goals", "", *goals]
        lines += ["### At 64 connections", "", *_busy(rows)]
        lines += ["### By connections", "", *_pictured(), *_by_connections(rows)]
        lines += ["### Peers", "", *_peers(rows, results["peers"])]
        lines += ["### Beside many records", "", *_records(results["records"])]
        lines += ["### Waiting for a replica", "", *_replicated(Rows(results["replicated"]))]
    if "harness" in results:
        lines += ["### The harness", "", *_harness(results["harness"])]
    if "rows" in results:
        lines.append(f"({_machine(results)})")
    return "\n".join([*lines, ""])


def life_rate(row: dict[str, Any]) -> float:
    """Workflows a second."""
    return median(row, "per_second") / (2 if row["work"] == "life" else 1)


class Goal(NamedTuple):
    """What was to be reached."""

    name: str
    which: str
    """``at least`` or ``at most``."""
    to_be: float
    reached: Callable[[dict[str, Any]], float]
    """Of the results; those of a part that was not measured raise :class:`LookupError`."""


def _claim(results: dict[str, Any]) -> dict[str, Any]:
    return Rows(results["rows"]).one(by="server", work="claim", door="http", connections=BUSY)


def _to_limit(results: dict[str, Any], figure: str) -> float:
    return median(_claim(results), figure) / median(Rows(results["rows"]).limit, figure)


def _to_fastapi(results: dict[str, Any]) -> float:
    theirs = Rows(results["rows"]).one(by=FASTAPI, work="claim", connections=BUSY)
    return median(_claim(results), "per_second") / median(theirs, "per_second")


def _to_best_peer(results: dict[str, Any]) -> float:
    rows = Rows(results["rows"])
    peers = {peer["name"] for peer in results["peers"]} | {FASTAPI}
    ours = rows.one(by="server", work="life", door="http", connections=BUSY)
    lives = [r for r in rows.all(door="http") if r["by"] in peers and r["work"] != "claim"]
    return life_rate(ours) / max(map(life_rate, lives))


def _growth(results: dict[str, Any], allocator: str) -> float:
    grown = [one for one in results["records"] if one["allocator"] == allocator]
    return float(grown[-1]["store_us"] / grown[0]["store_us"])


def _bytes(results: dict[str, Any]) -> float:
    return float(max(one["bytes"] for one in results["records"]))


def _seconds(results: dict[str, Any], profile: str) -> float:
    return float(results["harness"]["profiles"][profile]["seconds"])


GOALS: Final = (
    Goal("a claim, of the limit", "at least", 0.40, lambda r: _to_limit(r, "per_second")),
    Goal("a claim's p99, to the limit's", "at most", 3, lambda r: _to_limit(r, "p99_us")),
    Goal(f"a claim, to {FASTAPI}", "at least", 4, _to_fastapi),
    Goal("a workflow's full life over HTTP, to the best peer", "at least", 1, _to_best_peer),
    Goal(
        "store µs beside the most records, to the fewest (C library)",
        "at most",
        1.15,
        lambda r: _growth(r, "libc"),
    ),
    Goal("the same with jemalloc", "at most", 1.15, lambda r: _growth(r, "jemalloc")),
    Goal("bytes a record with two observations", "at most", 600, _bytes),
    Goal(
        "`--help`, to an empty Click program",
        "at most",
        1.5,
        lambda r: float(r["harness"]["start"]["ratio"]),
    ),
    Goal("quick profile, seconds", "at most", 10, lambda r: _seconds(r, "quick")),
    Goal("default profile, seconds", "at most", 60, lambda r: _seconds(r, "default")),
    Goal(
        "all formats of a report, seconds",
        "at most",
        1,
        lambda r: float(r["harness"]["rendering"]["command"]),
    ),
    Goal(
        "5,000 operations judged, ms",
        "at most",
        100,
        lambda r: float(r["harness"]["one_workflow"]["milliseconds"]),
    ),
)


def _goals(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for goal in GOALS:
        try:
            reached = goal.reached(results)
        except LookupError:
            continue
        met = reached >= goal.to_be if goal.which == "at least" else reached <= goal.to_be
        yield goal.name, f"{goal.which} {goal.to_be:g}", f"{reached:,.2f}", "yes" if met else "no"


def _busy(rows: Rows) -> list[str]:
    limit = rows.limit
    most, slowest = median(limit, "per_second"), median(limit, "p99_us")
    shown = [*rows.all(by="limit"), *rows.all(by="server", connections=BUSY)]
    shown += rows.all(by=FASTAPI, connections=BUSY)
    headings = (
        *("", "requests/s", "of the limit", "p50 µs", "p99 µs", "p99 to the limit's"),
        *("server µs", "store µs", "generator µs"),
    )

    def cells(row: dict[str, Any]) -> tuple[str, ...]:
        rate, tail = median(row, "per_second"), median(row, "p99_us")
        used = [
            f"{median(row, name):.0f}" if name in row["figures"][0] else NONE
            for name in ("server_us", "store_us", "generator_us")
        ]
        p50 = f"{median(row, 'p50_us'):,.0f}"
        numbers = (f"{rate:,.0f}", f"{rate / most:.2f}", p50, f"{tail:,.0f}")
        return (_named(row), *numbers, f"{tail / slowest:.1f}", *used)

    return table(headings, map(cells, shown))


def _named(row: dict[str, Any]) -> str:
    if row["by"] == "limit":
        deep = f", pipelines of {row['pipeline']}" if row["pipeline"] > 1 else ""
        return f"limit: EVALSHA @ {row['connections']}{deep}"
    said = f"{WORKS[row['work']]} by {DOORS[row['door']]}"
    if row["by"] != "server":
        said = f"{row['by']}: {WORKS[row['work']]}"
    return f"{said}, two processes" if row["processes"] == 2 else said


def _pictured() -> list[str]:
    return [
        f"![Requests a second by connections]({RATES.name})",
        "",
        f"![The 99th percentile of latency by connections]({TAILS.name})",
        "",
    ]


def _by_connections(rows: Rows) -> list[str]:
    headings = [""]
    for what in ("requests/s", "p99 µs", "server µs"):
        headings += [f"{what} @ {n}" for n in SHOWN]
    lines = []
    for work in WORKS:
        for door in DOORS:
            for processes in (1, 2):
                wanted = {"by": "server", "work": work, "door": door, "processes": processes}
                found = [rows.one(**wanted, connections=n) for n in SHOWN]
                cells = [
                    f"{median(row, figure):,.0f}"
                    for figure in ("per_second", "p99_us", "server_us")
                    for row in found
                ]
                lines.append((_named(found[0]), *cells))
    return table(headings, lines)


def _peers(rows: Rows, peers: Sequence[dict[str, Any]]) -> list[str]:
    server = [
        rows.one(by="server", work="life", door=door, processes=processes, connections=BUSY)
        for door in DOORS
        for processes in (1, 2)
    ]
    base = life_rate(server[0])

    def cells(name: str, row: dict[str, Any] | None, alone: float | None) -> tuple[str, ...]:
        inside = NONE if alone is None else f"{alone:,.0f}"
        if row is None:
            return name, inside, NONE, NONE, NONE, NONE
        rate = life_rate(row)
        each = 2 if row["work"] == "life" else 1
        used = f"{median(row, 'server_us') * each:,.0f}"
        return (
            *(name, inside, f"{rate:,.0f}", f"{rate / base:.2f}"),
            *(f"{median(row, 'p99_us'):,.0f}", used),
        )

    lines = [cells(f"**server**, {_named(row)}", row, None) for row in server]
    lines.append(cells(FASTAPI + " (our scripts)", rows.one(by=FASTAPI, work="life"), None))
    for peer in peers:
        behind = rows.all(by=peer["name"], door="http")
        alone = rows.one(by=peer["name"], door="in process")
        lines.append(cells(peer["name"], behind[0] if behind else None, life_rate(alone)))
    headings = (
        *("", "in process, workflows/s", f"over HTTP @ {BUSY}, workflows/s", "to the server"),
        *("p99 µs of a request", "server µs a workflow"),
    )
    said = (
        "The same job: claim a step once with a lease, then record its outcome. Over HTTP each is "
        "a request, on uvicorn with Starlette and nothing but the job; what has no asyncio runs in "
        "its pool of threads. In process one workflow follows the other."
    )
    gives = [f"- *{peer['name']}*: {peer['gives']}." for peer in peers]
    return [said, "", *table(headings, lines), "What each gives:", "", *gives, ""]


def _records(grown: Sequence[dict[str, Any]]) -> list[str]:
    headings = (
        *("live records", "memory by", "store µs a claim", "to the first", "claims/s"),
        "bytes a record",
    )
    first = {one["allocator"]: one["store_us"] for one in reversed(grown)}
    lines = [
        (
            *(f"{one['records']:,.0f}", one["allocator"], f"{one['store_us']:.1f}"),
            f"{one['store_us'] / first[one['allocator']]:.2f}",
            *(f"{one['per_second']:,.0f}", f"{one['bytes']:,.0f}"),
        )
        for one in grown
    ]
    said = (
        "Claims at 64 connections straight at the store, beside so many live records with two "
        "observations each. Bytes are those of MEMORY USAGE."
    )
    return [said, "", f"![The store's cost of a claim]({GROWTH.name})", "", *table(headings, lines)]


def _replicated(rows: Rows) -> list[str]:
    headings = ("", "requests/s", "to not waiting", "p50 µs", "p99 µs", "server µs")
    base = median(rows.one(by=CARELESS), "per_second")
    lines = []
    for by in (CARELESS, CAREFUL):
        row = rows.one(by=by)
        rate = median(row, "per_second")
        figures = [f"{median(row, name):,.0f}" for name in ("p50_us", "p99_us", "server_us")]
        lines.append((by, f"{rate:,.0f}", f"{rate / base:.2f}", *figures))
    said = "On a primary with one replica, which take the same cores as the server."
    return [said, "", *table(headings, lines)]


def _harness(found: dict[str, Any]) -> list[str]:
    lines: list[tuple[str, ...]] = []
    for name, one in found["profiles"].items():
        used = f"{one['processor']:.1f}"
        said = f"{one['requests']:,} requests"
        lines.append((f"profile {name}, to its verdict", f"{one['seconds']:.1f}", used, said))
    storm = found["storm"]
    lines.append(
        (
            *("a mixed storm, judged", f"{storm['seconds']:.1f}", f"{storm['processor']:.1f}"),
            f"{storm['operations']:,} requests, made at {storm['per_second']:,.0f}/s",
        )
    )
    explored = found["exploration"]
    seconds = explored["states"] / explored["states_per_second"]
    rates = f"{explored['states_per_second']:,.0f} states/s, "
    rates += f"{explored['transitions_per_second']:,.0f} transitions/s"
    used = f"{seconds:.1f}"
    lines.append((f"exploration of the world `{explored['world']}`", used, used, rates))
    rendering = found["rendering"]
    each = ", ".join(
        f"{name} {taken * 1000:.0f} ms" for name, taken in rendering.items() if name != "command"
    )
    formats = sum(taken for name, taken in rendering.items() if name != "command")
    taken = f"{rendering['command']:.2f}"
    lines.append(("all formats of a report", taken, f"{formats:.2f}", each))
    listed = table(("what", "seconds", "of the processor", ""), lines)
    profiles = found["profiles"].values()
    listed += [
        f"- {check['title']}: {check['requests']:,} requests at {check['per_second']:,.0f}/s."
        for check in [one for profile in profiles for one in profile["stateful"]][-2:]
    ]
    start = found["start"]
    listed.append(
        f"- `workflow-checkpoint --help`: {start['ours_ms']:.0f} ms of the processor, "
        f"{start['ratio']:.2f} of the {start['bare_ms']:.0f} ms that an empty Click program takes."
    )
    listed.append(
        f"- {found['one_workflow']['operations']:,} operations on one workflow, a fifth of the "
        f"answers lost, are judged in {found['one_workflow']['milliseconds']:.0f} ms."
    )
    listed.append("")
    judged = [
        (
            *(f"{one['operations']:,}", f"{one['lost']:.0%}", f"{one['seconds']:.2f}"),
            *(f"{one['processor'] / one['operations'] * 1e6:.0f}", f"{one['megabytes']:,.0f} MB"),
        )
        for one in found["judging"]
    ]
    headings = ("operations judged", "answers lost", "seconds", "µs an operation", "peak memory")
    return [*listed, *table(headings, judged)]


def _machine(results: dict[str, Any]) -> str:
    one = results["machine"]
    told = [one["processor"], f"{one['cores']} cores", one["architecture"], one["system"]]
    told += [f"Python {one['python']}", f"Valkey {results['valkey']}"]
    told.append(f"medians of {results['rounds']} rounds")
    told.append(f"load {one['load']} before")
    return ", ".join(word for word in told if word)


# -- Pictures --------------------------------------------------------------------------------------


def pictures(results: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Each with where it goes."""
    if "rows" not in results:
        return
    rows = Rows(results["rows"])
    for path, figure, scale, title, label in (
        (RATES, "per_second", 1, "Claims a second, by connections", "claims/s"),
        (TAILS, "p99_us", 1000, "99th percentile of a claim's latency, by connections", "p99, ms"),
    ):
        lines = []
        for name, wanted in _pictured_rows():
            found = sorted(rows.all(work="claim", pipeline=1, **wanted), key=_connections)
            points = [(row["connections"], median(row, figure) / scale) for row in found]
            lines.append(Line(name, points))
        yield path, chart(lines, title=title, x_label="connections", y_label=label)
    grown = [
        Line(
            f"memory by {allocator}",
            [
                (one["records"], one["store_us"])
                for one in results["records"]
                if one["allocator"] == allocator
            ],
        )
        for allocator in dict.fromkeys(one["allocator"] for one in results["records"])
    ]
    yield (
        GROWTH,
        chart(
            grown,
            title="Microseconds of the store for a claim, by live records",
            x_label="live records",
            y_label="µs of the store a claim",
        ),
    )


def _pictured_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "limit: EVALSHA", {"by": "limit"}
    yield "server, two processes", {"by": "server", "door": "http", "processes": 2}
    yield "server, one process", {"by": "server", "door": "http", "processes": 1}
    yield "server over MCP", {"by": "server", "door": "mcp", "processes": 1}
    yield FASTAPI, {"by": FASTAPI}


def _connections(row: dict[str, Any]) -> int:
    connections: int = row["connections"]
    return connections
