"""The benchmark suite: what it counts, what it refuses, and the page that it writes."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.etree import ElementTree

import bench
import page
import pytest
from curves import Line, chart
from generator import processor_seconds, with_descendants

SVG = "{http://www.w3.org/2000/svg}"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="not run: there is no /proc")


@LINUX
def test_processes_that_a_server_starts_later_are_counted_with_it() -> None:
    """And those that these start: a server with two processes has three."""
    inner = "import sys; print(1, flush=True); sys.stdin.read()"
    outer = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {inner!r}], stdin=sys.stdin, check=True)\n"
    )
    command = [sys.executable, "-c", outer]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        found = with_descendants([process.pid])
        assert len(found) == 2
        assert found[0] == process.pid
        assert processor_seconds(found) > processor_seconds(found[:1]) > 0
        process.stdin.close()
    assert with_descendants([process.pid]) == [process.pid]
    assert processor_seconds(found) == 0


@contextmanager
def answering(status: int) -> Iterator[tuple[str, int]]:
    """A server that answers everything so."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "127.0.0.1", server.server_port
        server.shutdown()


@LINUX
def test_an_answer_that_is_not_the_expected_one_is_refused() -> None:
    """A losing claim is to lose, every other request is to be granted."""
    found = {}
    with bench.generator() as requests:
        for status, works in ((200, ("claim", "life", "status", "losing")), (409, ("claim",))):
            with answering(status) as address:
                for work in works:
                    job = {"target": "http", "address": list(address), "work": work}
                    figures = requests.do(**job, connections=2, seconds=0.1)
                    assert figures["requests"] > 0
                    found[status, work] = figures["refused"] > 0
    assert found == {
        (200, "claim"): False,
        (200, "life"): False,
        (200, "status"): False,
        (200, "losing"): True,
        (409, "claim"): True,
    }


def row(by: str, per_second: float, **what: Any) -> dict[str, Any]:
    """A row of two rounds, of which the second was twice as fast as the first."""
    figures = [
        {
            "per_second": rate,
            "p50_us": 1e6 / rate,
            "p99_us": 2e6 / rate,
            "server_us": 50.0,
            "store_us": 20.0,
            "generator_us": 5.0,
        }
        for rate in (per_second * 2 / 3, per_second * 4 / 3)
    ]
    told = {"work": "claim", "door": "http", "connections": 64, "processes": 1, "pipeline": 1}
    return {"by": by, **told, **what, "figures": figures}


def results() -> dict[str, Any]:
    """Of a run whose claim reaches half of the limit and five times FastAPI's."""
    rows = [row("limit", 40_000.0, door="store", connections=n) for n in (1, 16, 64, 256)]
    rows.append(row("limit", 60_000.0, door="store", pipeline=16))
    rows += [
        row("server", 20_000.0, work=work, door=door, connections=n, processes=processes)
        for work in page.WORKS
        for door in page.DOORS
        for processes in (1, 2)
        for n in (1, 16, 64, 256)
    ]
    rows += [row(page.FASTAPI, 4000.0, connections=n) for n in (1, 16, 64, 256)]
    rows.append(row(page.FASTAPI, 4000.0, work="life"))
    rows += [
        row("a lock", 30_000.0, work="life"),
        row("a lock", 5000.0, work="whole", door="in process"),
    ]
    return {
        "machine": {
            **dict.fromkeys(("processor", "architecture", "system", "python"), "x"),
            **dict.fromkeys(("cores", "load"), 2),
        },
        "valkey": "8.1",
        "rounds": 2,
        "rows": rows,
        "peers": [{"name": "a lock", "gives": "a lease", "own_store": False}],
        "records": [
            {
                "allocator": "libc",
                "records": n,
                "store_us": cost,
                "per_second": 9.0,
                "bytes": 512,
            }
            for n, cost in ((1000, 20.0), (1_000_000, 30.0))
        ],
        "replicated": [row(page.CARELESS, 100.0), row(page.CAREFUL, 50.0)],
    }


def test_goals_that_are_missed_are_said_to_be() -> None:
    """Each by the medians, and none of what was not measured."""
    goals = {
        name: (is_, met)
        for name, _, is_, met in page._goals(results())  # all that is told of each
    }
    assert goals == {
        "a claim, of the limit": ("0.50", "yes"),
        "a claim's p99, to the limit's": ("2.00", "yes"),
        f"a claim, to {page.FASTAPI}": ("5.00", "yes"),
        "a workflow's full life over HTTP, to the best peer": ("0.67", "no"),
        "store µs beside the most records, to the fewest (C library)": ("1.50", "no"),
        "bytes a record with two observations": ("512.00", "yes"),
    }


def test_every_row_is_on_the_page() -> None:
    """In tables whose lines have as many cells as their headings."""
    text = page.tables(results())
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1, block
    for work in page.WORKS.values():
        for door in page.DOORS.values():
            assert f"| {work} by {door}, two processes |" in text
    assert "| a lock | 5,000 | 15,000 | 1.50 |" in text
    assert "- *a lock*: a lease." in text


def test_pictures_have_a_line_for_each_of_what_they_compare() -> None:
    """Every one with all its points, and words for whoever does not see it."""
    found = {}
    for path, picture in page.pictures(results()):
        root = ElementTree.fromstring(picture)
        assert root.findtext(f"{SVG}title")
        assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}style") or "")
        found[path.name] = (
            len(root.findall(f"{SVG}polyline")),
            len(root.findall(f"{SVG}circle")),
        )
    assert found == {
        "requests-by-connections.svg": (5, 20),
        "p99-by-connections.svg": (5, 20),
        "cost-by-records.svg": (1, 2),
    }


def test_a_picture_goes_by_powers_of_ten() -> None:
    """What is in the middle of two of them by its logarithm is in the middle of the picture."""
    line = Line("l", [(1, 1), (10, 10), (100, 100)])
    root = ElementTree.fromstring(chart([line], title="t", x_label="x", y_label="y"))
    dots = [
        (float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.findall(f"{SVG}circle")
    ]
    assert dots[1] == ((dots[0][0] + dots[2][0]) / 2, (dots[0][1] + dots[2][1]) / 2)
    assert dots[0][0] < dots[2][0]
    assert dots[0][1] > dots[2][1]


def test_what_is_nearly_flat_looks_so() -> None:
    """A third more is drawn on a whole power of ten at least."""
    line = Line("l", [(1, 27), (1000, 36)])
    root = ElementTree.fromstring(chart([line], title="t", x_label="x", y_label="y"))
    ends = [text.text for text in root.findall(f"{SVG}text") if text.get("text-anchor") == "end"]
    assert ends == ["10", "20", "50", "100"]
