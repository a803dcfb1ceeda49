"""What a person sees at the end of a run: the rules, every failure, and one line of verdict."""

import io
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checkpoint_conformance.plain import plain
from checkpoint_conformance.renderings.facts import (
    Report,
    cases,
    cause_of,
    commands,
    members,
    number,
    text_of,
)
from checkpoint_conformance.verdict import Status, Verdict

_COLOURS: Final = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.EXPECTED_FAILURE: "magenta",
    Status.NOT_APPLICABLE: "dim",
    Status.NOT_RUN: "yellow",
    Status.INSPECTION: "dim",
}
_VERDICT_COLOURS: Final = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCOMPLETE: "bold yellow",
    Verdict.ERROR: "bold red",
}
TOO_MANY_FAILURES: Final = 20
"""So many rules broken at once have one cause, as a rule."""
SEQUENCE_LINES_MAX: Final = 40
"""A longer sequence is cut in the terminal; the report has it whole."""
WIDTH: Final = 100
"""Of what is written to a file."""


def render(report: Report) -> str:
    """The same as plain text."""
    text = io.StringIO()
    show(Console(file=text, width=WIDTH, color_system=None, force_terminal=False), report)
    return text.getvalue()


def show(console: Console, report: Report) -> None:
    """The table of rules, every failure, and the verdict."""
    _show_rules(console, report)
    failures = report["failures"]
    if len(failures) >= TOO_MANY_FAILURES:
        console.print(
            f"\n{len(failures)} rules are broken at once. That is seldom so many faults: look at "
            "the first ones below, and whether this is the server that you mean.",
            highlight=False,
        )
    for failure in failures:
        show_failure(console, failure, report)
    _show_verdict(console, report)


def _show_rules(console: Console, report: Report) -> None:
    rows = list(cases(report))
    several = len({case.binding for case in rows if case.rule_class != "mcp"}) > 1
    names = [f"{case.rule} {case.binding}" if several else case.rule for case in rows]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    # Set by hand: these must be whole, however long the text beside them is.
    table.add_column("rule", no_wrap=True, min_width=max(map(len, names), default=0))
    table.add_column("status", no_wrap=True, min_width=max(map(len, Status)))
    table.add_column("hits", justify="right", no_wrap=True, min_width=6)
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for name, case in zip(names, rows, strict=True):
        first_words = textwrap.shorten(case.text, 70, placeholder=" …")
        table.add_row(
            escape(name),
            f"[{_COLOURS[case.status]}]{case.status}[/]",
            str(case.hits) if case.hits else "",
            f"[dim]{escape(case.reason or first_words)}[/]",
        )
    console.print()
    console.print(table)


def show_failure(console: Console, failure: Mapping[str, Any], report: Report) -> None:
    """A broken rule with its text, what was expected and got, and the sequence."""
    broken = [plain(rule, 40) for rule in failure["rules"]]
    console.print()
    console.rule(f"[bold red]{escape(broken[0])} is broken", align="left", style="red")
    for rule_id in broken:
        width = max(console.width - len(rule_id) - 2, 20)
        text = textwrap.fill(text_of(report, rule_id), width, break_on_hyphens=False)
        indented = textwrap.indent(text, " " * (len(rule_id) + 2)).lstrip()
        console.print(f"[bold]{escape(rule_id)}[/]  {escape(indented)}", highlight=False)
    what, expected, got = (escape(plain(failure[m])) for m in ("what", "expected", "got"))
    console.print()
    console.print(f"What is wrong: {what}", highlight=False)
    console.print(f"  expected  [green]{expected}[/]", highlight=False)
    console.print(f"  got       [red]{got}[/]", highlight=False)
    for member in members(failure):
        if member.differs and f"`{member.name}`" not in failure["what"]:
            told = f"and {member.name} is {member.got}, expected {member.expected}"
            console.print(f"  {escape(told)}", highlight=False)
    cause = cause_of(report, failure["rules"][0])
    if cause:
        console.print(f"  [dim]usual cause[/] {escape(cause)}", highlight=False)
    lines = commands(failure)
    console.print(
        f"\nTo see it again ({number(len(failure.get('sequence', [])), 'request')}, found by the "
        f"check «{escape(plain(failure['check'], 80))}»):",
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


def _show_verdict(console: Console, report: Report) -> None:
    verdict = Verdict(report["verdict"])
    console.print()
    for why in report.get("not_as_expected") or []:
        console.print(f"[bold red]Not as expected:[/] {escape(plain(why))}", highlight=False)
    heading = "Beside that" if verdict is Verdict.FAIL else "Incomplete"
    for gap in report.get("incomplete_because") or []:
        console.print(f"[yellow]{heading}:[/] {escape(plain(gap))}", highlight=False)
    for remark in report.get("remarks") or []:
        console.print(f"[dim]{escape(plain(remark))}[/]", highlight=False)
    if report.get("unanswered") and verdict is not Verdict.INCOMPLETE:
        console.print(f"{report['unanswered']} requests were not answered.", highlight=False)
    console.print(
        f"[{_VERDICT_COLOURS[verdict]}]{escape(plain(report['line']))}[/]",
        highlight=False,
        soft_wrap=True,
    )
    if "requests" in report:
        profile = escape(plain(report.get("profile") or "", 40))
        console.print(
            f"[dim]{report['requests']} requests in {report.get('seconds', 0):.1f} s; "
            f"profile {profile}; --seed {report.get('seed')} repeats it[/]",
            highlight=False,
        )
