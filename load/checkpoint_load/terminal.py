"""What a person is shown of a run of storms, from its report alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checkpoint_conformance.judging import UNDECIDED
from checkpoint_conformance.judging_commands import show_failure
from checkpoint_conformance.plain import plain
from checkpoint_conformance.renderings.faults import fault_rows, faults_line
from checkpoint_conformance.rules import rules
from checkpoint_load.report import LOCUST_HTML, PAGE

FAILURES_SHOWN_MAX: Final = 1
"""Of each storm: what else is broken is in the report."""
COLOURS: Final = {"pass": "green", "fail": "red", "incomplete": "yellow", "error": "red"}


def show(console: Console, document: Mapping[str, Any], folder: Path) -> None:
    """Show the figures, what is wrong, the verdict, and where everything is."""
    if document["storms"]:
        console.print(_table(document["storms"]))
    for storm in document["storms"]:
        if storm.get("faults"):
            console.print(_faults(storm["faults"]))
            console.print(faults_line(storm["faults"]), markup=False, highlight=False)
        for failure in storm["failures"][:FAILURES_SHOWN_MAX]:
            _show_failure(console, storm["name"], failure)
    for why in document["incomplete_because"]:
        console.print(f"[yellow]incomplete:[/] {escape(plain(why))}", highlight=False)
    if document.get("details"):
        console.print(document["details"], markup=False, highlight=False)
    colour = COLOURS[document["verdict"]]
    verdict, _, rest = document["line"].partition(":")
    console.print(f"[bold {colour}]{verdict}[/]:{escape(plain(rest))}", highlight=False)
    for name, what in ((PAGE, "Page"), (LOCUST_HTML, "Locust's statistics")):
        if (folder / name).exists():
            line = f"[dim]{what}: {escape(str(folder / name))}[/]"
            console.print(line, highlight=False, soft_wrap=True)
    line = (
        f"[dim]Histories: {escape(str(folder))}  (workflow-checkpoint recheck judges them again)[/]"
    )
    console.print(line, highlight=False, soft_wrap=True)


def _table(storms: list[dict[str, Any]]) -> Table:
    # As wide as the narrowest terminal that people use.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("storm")
    for title in ("rounds", "won once", "spread ms", "in flight", "req/s", "p50 ms", "p99 ms"):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for storm in storms:
        colour = COLOURS[storm["verdict"]]
        table.add_row(storm["name"], *_cells(storm), f"[{colour}]{storm['verdict']}[/]")
    return table


def _faults(faults: Mapping[str, Any]) -> Table:
    """Each kind of fault, and how long it was until the first good answer after it."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("fault")
    for title in ("made", "recovered", "cut", "median ms", "longest ms"):
        table.add_column(title, justify="right")
    for row in fault_rows(faults):
        cells = (row.kind, str(row.runs), str(row.recovered), row.cuts, row.median, row.longest)
        table.add_row(*cells)
    return table


def _cells(storm: Mapping[str, Any]) -> Iterator[str]:
    yield str(storm["rounds"])
    winners = storm["winners"]
    if winners is None:
        yield "-"
    else:
        yield str(winners["rounds_by_number"].get("1", 0))
    spread, in_flight, latency = storm["spread_ms"], storm["in_flight"], storm["latency_ms"]
    yield "-" if spread is None else f"{spread['median']:.1f}"
    yield "-" if in_flight is None else f"{in_flight['median']:g}"
    yield f"{storm['requests_per_second']:,.0f}"
    yield "-" if latency is None else f"{latency['p50']:.1f}"
    yield "-" if latency is None else f"{latency['p99']:.1f}"


def _show_failure(console: Console, name: str, failure: Mapping[str, Any]) -> None:
    """The rules with their text, what came, what would have been right, and after what."""
    became = "could not be decided" if failure["kind"] == UNDECIDED else "is broken"
    console.rule(f"[red]{name}: {failure['rules'][0]} {became}[/]", align="left")
    for rule_id in failure["rules"]:
        console.print(f"[bold]{rule_id}[/]  {escape(rules()[rule_id].text)}", highlight=False)
    show_failure(console, failure)
    console.print()
