"""How long the judge of histories takes, and how much memory, from 10^3 to 10^6 operations.

Makes histories of a simulated store, judges each in a process of its own, and writes the table into
``docs/linearizability.md`` and the curve beside it: ``nox -s bench_judging``. With ``--histories
FOLDER`` they are kept there, and those of an earlier run are judged again.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from curves import Line, chart
from simulated import Load, simulate

from checkpoint_conformance.client import Lost
from checkpoint_conformance.forked import processors
from checkpoint_conformance.history import DROPPED, Call, HistoryWriter, begin_header
from checkpoint_conformance.judging import judge_folder
from checkpoint_model import format_request
from checkpoint_model.linearizability import Linearizable, check

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LOST = (0.0, 0.2)
TITLE = "Seconds of the processor that judging takes, by operations"
CLIENTS = 100
CALLS_PER_WORKFLOW = 100
ONE_WORKFLOW = (100, 50)
"""Clients and calls of each, all on one workflow."""
UNITS_A_MEGABYTE = 1 << 10 if sys.platform == "linux" else 1 << 20
"""Of what the system says of memory."""
BEGIN, END = "<!-- measured -->\n", "<!-- end of measured -->\n"
DOCUMENT = Path(__file__).parents[2] / "docs" / "linearizability.md"
CURVE = DOCUMENT.with_name("judging.svg")


def load_of(operations: int, lost: float) -> Load:
    """A mixed storm of so many operations, with deadlines that come while it goes on."""
    return Load(
        clients=CLIENTS,
        calls_each=operations // CLIENTS,
        workflows=max(1, operations // CALLS_PER_WORKFLOW),
        lost=lost,
        claim_ttl_seconds=1,
        state_ttl_seconds=2,
        answer_ms=5.0,
    )


def make(path: Path, operations: int, lost: float) -> None:
    """Write a history."""
    header = begin_header("mixed", {"url": "http://127.0.0.1:1"}, {"seed": 0})
    calls = [
        (operation, identity)
        for identity, found in simulate(Random(0), load_of(operations, lost)).items()
        for operation in found
    ]
    calls.sort(key=lambda pair: pair[0].returned_ns or pair[0].called_ns)
    with HistoryWriter(path, header) as writer:
        for operation, identity in calls:
            writer.call(
                Call(
                    client=operation.client,
                    request=format_request(identity, operation.request),
                    called_ns=operation.called_ns,
                    returned_ns=operation.returned_ns,
                    answer=operation.answer or Lost(reason=DROPPED, detail=""),
                )
            )


def judge(folder: Path) -> dict[str, object]:
    """Judge it, and say what that took: seconds, processor seconds, megabytes at most.

    Of this process and the one that it forks, whose memory is counted twice where they share it.
    """
    began, used = time.perf_counter(), time.process_time()
    judgement = judge_folder(folder)
    (storm,) = judgement["storms"]
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - used + others.ru_utime + others.ru_stime,
        "megabytes": _peak_megabytes() + others.ru_maxrss / UNITS_A_MEGABYTE,
        "verdict": judgement["verdict"],
        "workflows": storm["workflows"],
    }


def _peak_megabytes() -> float:
    """Of this process, since it runs this program: the system's count begins before."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / UNITS_A_MEGABYTE


def one_workflow(lost: float) -> tuple[float, int]:
    """Milliseconds of the processor for many operations on one workflow, the median of five."""
    clients, calls = ONE_WORKFLOW
    taken, count = [], 0
    for seed in range(5):
        load = Load(
            clients=clients,
            calls_each=calls,
            lost=lost,
            claim_ttl_seconds=1,
            state_ttl_seconds=60,
        )
        (operations,) = simulate(Random(seed), load).values()
        count = len(operations)
        used = time.process_time()
        verdict = check(operations)
        taken.append((time.process_time() - used) * 1000)
        assert isinstance(verdict, Linearizable), verdict
    return sorted(taken)[2], count


class Judged(NamedTuple):
    """What judging one history took."""

    operations: int
    lost: float
    workflows: int
    history_mb: float
    seconds: float
    processor: float
    """Seconds of the processor."""
    megabytes: float
    """Of memory, at most."""


def measure(sizes: Sequence[int], histories: Path) -> Iterator[Judged]:
    """Judge a history of each size, without lost answers and with some.

    Args:
        sizes: in operations.
        histories: a folder, in which those that are not there are made.
    """
    for operations in sizes:
        for lost in LOST:
            path = histories / f"{operations}-{lost:.0%}" / "mixed.jsonl"
            if not path.exists():
                _in_a_process("make", str(path), str(operations), str(lost))
            found = json.loads(_in_a_process("judge", str(path.parent)))
            assert found["verdict"] == "pass", found
            yield Judged(
                operations=operations,
                lost=lost,
                workflows=found["workflows"]["linearizable"],
                history_mb=path.stat().st_size / 1e6,
                seconds=found["seconds"],
                processor=found["processor"],
                megabytes=found["megabytes"],
            )


HEADINGS = (
    "operations",
    "workflows",
    "answers lost",
    "history",
    "seconds",
    "processor seconds",
    "µs an operation",
    "peak memory",
)


def row(one: Judged) -> str:
    """One line of the table, as Markdown."""
    return (
        f"| {one.operations:,} | {one.workflows:,} | {one.lost:.0%} | {one.history_mb:,.1f} MB "
        f"| {one.seconds:.1f} | {one.processor:.1f} "
        f"| {one.processor / one.operations * 1e6:.0f} | {one.megabytes:,.0f} MB |"
    )


def table(judged: Sequence[Judged]) -> str:
    """All that was measured, as Markdown."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|" + "--:|" * len(HEADINGS), *map(row, judged)]
    lines += ["", "On one workflow, in memory:", ""]
    for lost in LOST:
        milliseconds, count = one_workflow(lost)
        lines.append(
            f"- {count:,} operations of {ONE_WORKFLOW[0]} clients, {lost:.0%} of the answers lost: "
            f"{milliseconds:.0f} ms of the processor"
        )
    python = f"Python {platform.python_version()} on {platform.machine()}"
    said = (
        "The seconds of the clock say more of whatever else ran on that machine; those of the "
        "processor are the judge's, though it shared the caches, too."
    )
    lines += ["", f"({python}, {processors()} cores. {said})", ""]
    return "\n".join(lines)


def curve(judged: Sequence[Judged]) -> str:
    """Seconds of the processor by operations, as SVG."""
    lines = [
        Line(
            f"{lost:.0%} of the answers lost",
            [(one.operations, one.processor) for one in judged if one.lost == lost],
        )
        for lost in LOST
    ]
    return chart(
        lines, title=TITLE, x_label="operations judged", y_label="seconds of the processor"
    )


def _in_a_process(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, __file__, *arguments], check=True, capture_output=True, text=True
    ).stdout


def main() -> None:
    """Measure everything, or do one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part")
    made = parts.add_parser("make")
    made.add_argument("path", type=Path)
    made.add_argument("operations", type=int)
    made.add_argument("lost", type=float)
    parts.add_parser("judge").add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--histories", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.part == "make":
        make(given.path, given.operations, given.lost)
    elif given.part == "judge":
        print(json.dumps(judge(given.folder)))  # noqa: T201 - read by the process above
    else:
        judged = []
        with tempfile.TemporaryDirectory() as folder:
            for one in measure(given.sizes, given.histories or Path(folder)):
                judged.append(one)
                print(row(one), file=sys.stderr, flush=True)  # noqa: T201 - what it is for
        CURVE.write_text(curve(judged), encoding="utf-8")
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        DOCUMENT.write_text(before + BEGIN + table(judged) + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
