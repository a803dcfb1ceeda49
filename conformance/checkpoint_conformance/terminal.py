"""What a person sees: progress while it runs, then rules, failures and one line of verdict."""

import textwrap
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as RichProgress
from rich.table import Table

from checkpoint_conformance.report import Outcome
from checkpoint_conformance.reproduction import commands
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import Target
from checkpoint_conformance.tally import Failure
from checkpoint_conformance.verdict import RuleStatus, Status, Verdict

_COLOURS = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.EXPECTED_FAILURE: "magenta",
    Status.NOT_APPLICABLE: "dim",
    Status.NOT_RUN: "yellow",
    Status.INSPECTION: "dim",
}
_VERDICT_COLOURS = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCOMPLETE: "bold yellow",
    Verdict.ERROR: "bold red",
}
TOO_MANY_FAILURES = 20
"""So many rules broken at once have one cause, as a rule."""
SEQUENCE_LINES_MAX = 40
"""A longer sequence is cut in the terminal; the report has it whole."""


class LiveProgress:
    """A line for each check: a bar while it runs on a terminal, a plain line elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: RichProgress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._bars = RichProgress(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
            )

    def __enter__(self) -> "LiveProgress":
        """Begin to draw."""
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._bars is not None:
            self._finish()
            self._bars.stop()

    def check(self, title: str) -> None:
        """A check begins."""
        if self._bars is None:
            self._console.print(f"… {title}", highlight=False)
            return
        self._finish()
        self._task = self._bars.add_task(escape(title), total=1)

    def advance(self, done: int, of: int) -> None:
        """The check at hand has done so much of so many."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, total=of)

    def _finish(self) -> None:
        if self._bars is None or self._task is None:
            return
        task = next(task for task in self._bars.tasks if task.id == self._task)
        self._bars.update(self._task, completed=task.total)


def show(console: Console, outcome: Outcome) -> None:
    """The table of rules, every failure, and the verdict."""
    _show_rules(console, outcome)
    failures = outcome.run.tally.failures
    if len(failures) >= TOO_MANY_FAILURES:
        console.print(
            f"\n{len(failures)} rules are broken at once. That is seldom so many faults: look at "
            "the first ones below, and whether this is the server that you mean.",
            highlight=False,
        )
    for failure in failures.values():
        show_failure(console, failure, outcome.run.target)
    _show_verdict(console, outcome)


def _show_rules(console: Console, outcome: Outcome) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    # Set by hand: these must be whole, however long the text beside them is.
    table.add_column("rule", no_wrap=True, min_width=max(map(len, rules())))
    table.add_column("status", no_wrap=True, min_width=max(map(len, Status)))
    table.add_column("hits", justify="right", no_wrap=True, min_width=6)
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for status in outcome.judged.rules.values():
        colour = _COLOURS[status.status]
        table.add_row(
            status.rule.id,
            f"[{colour}]{status.status}[/]",
            str(status.hits) if status.hits else "",
            f"[dim]{escape(status.reason or _first_words(status))}[/]",
        )
    console.print()
    console.print(table)


def _first_words(status: RuleStatus) -> str:
    return textwrap.shorten(status.rule.text, 70, placeholder=" …")


def show_failure(console: Console, failure: Failure, target: Target) -> None:
    """A broken rule with its text, what was expected and got, and the sequence."""
    fault = failure.fault
    console.print()
    console.rule(f"[bold red]{failure.rule} is broken", align="left", style="red")
    for rule_id in fault.rules:
        text = textwrap.fill(
            rules()[rule_id].text, console.width - len(rule_id) - 2, break_on_hyphens=False
        )
        indented = textwrap.indent(text, " " * (len(rule_id) + 2)).lstrip()
        console.print(f"[bold]{rule_id}[/]  {escape(indented)}", highlight=False)
    console.print()
    console.print(f"What is wrong: {escape(fault.what)}", highlight=False)
    console.print(f"  expected  [green]{escape(fault.expected)}[/]", highlight=False)
    console.print(f"  got       [red]{escape(fault.got)}[/]", highlight=False)
    _show_members(console, failure)
    usual = rules()[failure.rule].breaks
    if usual:
        console.print(f"  [dim]usual cause[/] {escape(usual)}", highlight=False)
    lines = commands(failure.sequence, target.address, target.controls)
    number = len(failure.sequence)
    console.print(
        f"\nTo see it again ({number} request{'' if number == 1 else 's'}, found by the check "
        f"«{failure.check}»):",
        highlight=False,
    )
    if len(lines) > SEQUENCE_LINES_MAX:
        console.print(
            f"  [dim](the first {len(lines) - SEQUENCE_LINES_MAX} lines are in the report)[/]"
        )
        lines = lines[-SEQUENCE_LINES_MAX:]
    for line in lines:
        style = "dim" if line.startswith("#") else ""
        console.print(f"  {escape(line)}", style=style, soft_wrap=True, highlight=False)


def _show_members(console: Console, failure: Failure) -> None:
    expected, got = failure.expected, failure.got
    if expected is None or got is None:
        return
    differing = [m for m in expected if m in got and expected[m] != got[m]]
    differing += [m for m in expected if m not in got]
    if not differing or ("code" in expected) != ("code" in got):
        return
    told = failure.fault.what
    for member in differing:
        if f"`{member}`" not in told:
            values = f"{_json(got[member]) if member in got else '(absent)'}"
            console.print(
                f"  and {member} is {values}, expected {_json(expected[member])}", highlight=False
            )


def _json(value: Any) -> str:
    import json

    return escape(json.dumps(value))


def _show_verdict(console: Console, outcome: Outcome) -> None:
    run, judged = outcome.run, outcome.judged
    console.print()
    for why in judged.stale:
        console.print(f"[bold red]Not as expected:[/] {escape(why)}", highlight=False)
    heading = "Beside that" if judged.verdict is Verdict.FAIL else "Incomplete"
    for gap in judged.gaps:
        console.print(f"[yellow]{heading}:[/] {escape(gap)}", highlight=False)
    for remark in run.tally.remarks:
        console.print(f"[dim]{escape(remark)}[/]", highlight=False)
    if run.tally.lost and judged.verdict is not Verdict.INCOMPLETE:
        console.print(f"{run.tally.lost} requests were not answered.", highlight=False)
    console.print(
        f"[{_VERDICT_COLOURS[judged.verdict]}]{escape(judged.line)}[/]",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"[dim]{run.tally.requests} requests in {outcome.seconds:.1f} s; "
        f"profile {run.profile.name}; --seed {run.seed} repeats it[/]",
        highlight=False,
    )
