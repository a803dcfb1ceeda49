"""What a person sees at the end of a run: every failure, what was not run, and the verdict.

Every rule with its hits is a page and a half, so a run that ends shows it only when it is asked to.
On a terminal lines are broken between words; in a file or a pipe each stays one line, for grep.
"""

import io
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checkpoint_conformance.plain import number, plain
from checkpoint_conformance.renderings.facts import (
    Report,
    cases,
    cause_of,
    commands,
    lost,
    members,
    text_of,
)
from checkpoint_conformance.renderings.faults import faults_line
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
LOST_KINDS_SHOWN: Final = 5
WIDTH: Final = 100
"""Of what is written to a file."""


def render(report: Report) -> str:
    """The whole as plain text."""
    text = io.StringIO()
    show(Console(file=text, width=WIDTH, color_system=None, force_terminal=False), report)
    return text.getvalue()


def show(console: Console, report: Report, *, whole: bool = True) -> None:
    """Every failure, what did not run, and the verdict; first, if ``whole``, every rule's hits."""
    if whole:
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
    if not whole:
        _show_not_passed(console, report)
    _show_verdict(console, report)


def _say(console: Console, text: str, style: str = "", *, indent: int = 2) -> None:
    """One line of prose; on a terminal that is narrower, broken between words."""
    if console.is_terminal:
        text = textwrap.fill(
            text,
            max(console.width, 20),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _show_not_passed(console: Console, report: Report) -> None:
    """The rules that did not pass, by status and reason."""
    groups: dict[tuple[Status, str], list[str]] = {}
    for case in cases(report):
        if case.status not in (Status.PASSED, Status.FAILED):
            groups.setdefault((case.status, case.reason), []).append(case.rule)
    if groups:
        console.print()
    for (status, reason), names in groups.items():
        head = f"{status}: {reason}" if reason else str(status)
        listed = ", ".join(_runs(dict.fromkeys(names)))
        _say(console, f"{head}: {listed}", _COLOURS[status])


def _runs(names: Iterable[str]) -> Iterator[str]:
    """``WC-MCP-1``, ``WC-MCP-2``, ``WC-MCP-3`` as ``WC-MCP-1 … 3``."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        stem, _, digits = name.rpartition("-")
        number = int(digits) if digits.isdecimal() else 0
        if runs and runs[-1][0] == stem and runs[-1][2] + 1 == number:
            runs[-1] = (stem, runs[-1][1], number)
        else:
            runs.append((stem, number, number))
    for stem, first, last in runs:
        yield f"{stem}-{first}" if first == last else f"{stem}-{first} … {last}"


def _show_rules(console: Console, report: Report) -> None:
    rows = list(cases(report))
    several = len({case.binding for case in rows if case.rule_class != "mcp"}) > 1
    names = [f"{case.rule} {case.binding}" if several else case.rule for case in rows]
    told = [case.reason or textwrap.shorten(case.text, 70, placeholder=" …") for case in rows]
    console.print()
    if not console.is_terminal:
        # No terminal sets a width, so nothing is cut.
        name_width, status_width = max(map(len, names), default=0), max(map(len, Status))
        for name, case, text in zip(names, rows, told, strict=True):
            hits = str(case.hits) if case.hits else ""
            line = f"{name:{name_width}}  {case.status:{status_width}}  {hits:>6}  {text}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    # Set by hand: these must be whole, however long the text beside them is.
    table.add_column("rule", no_wrap=True, min_width=max(map(len, names), default=0))
    table.add_column("status", no_wrap=True, min_width=max(map(len, Status)))
    table.add_column("hits", justify="right", no_wrap=True, min_width=6)
    table.add_column("", overflow="fold")
    for name, case, text in zip(names, rows, told, strict=True):
        table.add_row(
            escape(name),
            f"[{_COLOURS[case.status]}]{case.status}[/]",
            str(case.hits) if case.hits else "",
            f"[dim]{escape(text)}[/]",
        )
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
        _say(console, f"Not as expected: {plain(why)}", "bold red")
    heading = "Beside that" if verdict is Verdict.FAIL else "Incomplete"
    for gap in report.get("incomplete_because") or []:
        _say(console, f"{heading}: {plain(gap)}", "yellow")
    for remark in report.get("remarks") or []:
        _say(console, plain(remark), "dim")
    if report.get("faults"):
        _say(console, faults_line(report["faults"]), "dim")
    if report.get("unanswered"):
        _say(console, f"{number(report['unanswered'], 'request')} not answered:")
        kinds = lost(report)
        for kind in kinds[:LOST_KINDS_SHOWN]:
            _say(console, f"  {kind}", indent=4)
        if len(kinds) > LOST_KINDS_SHOWN:
            _say(console, f"  and {len(kinds) - LOST_KINDS_SHOWN} other kinds")
    _say(console, plain(report["line"]), _VERDICT_COLOURS[verdict])
    if "requests" in report:
        _say(
            console,
            f"{report['requests']} requests in {report.get('seconds', 0):.1f} s; "
            f"profile {plain(report.get('profile') or '', 40)}; "
            f"--seed {report.get('seed')} repeats it",
            "dim",
        )
