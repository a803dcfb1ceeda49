"""``workflow-checkpoint rules`` and ``explain``: the contract's rules, for people."""

import json
import textwrap
from difflib import get_close_matches
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checkpoint_conformance.client import Address
from checkpoint_conformance.reproduction import commands
from checkpoint_conformance.rules import Access, Rule, rules
from checkpoint_conformance.tally import Sent, in_short
from checkpoint_conformance.terminal import Output
from checkpoint_conformance.vectors import Vector, load_vectors
from checkpoint_model.vocabulary import TOOL_PATH

_HOW: Final = {
    Access.BLACK_BOX: "black-box: by requests and answers alone",
    Access.CONTROLS: "with the test controls of section 14 (--controls)",
    Access.STORE: "with a connection to the store (--store)",
    Access.FAULTS: "with faults: processes stopped while requests run (faults in target.yaml)",
    Access.INSPECTION: "by inspection only: no test can tell",
}
_EXAMPLE: Final = Address.parse("http://127.0.0.1:8080")
_CONTROLS: Final = Address.parse("http://127.0.0.1:8081")


class UnknownRuleError(Exception):
    """The contract has no such rule; the message says which come near."""


def show_rules(section: int | None) -> None:
    """Print every rule with what testing it takes."""
    console = Output()
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("rule", no_wrap=True, min_width=max(map(len, rules())))
    table.add_column("class", no_wrap=True, min_width=len("descriptions"))
    table.add_column("tested", no_wrap=True, min_width=len("no check yet"))
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for rule in rules().values():
        if section in (None, rule.section):
            text = textwrap.shorten(rule.text, 90, placeholder=" …")
            table.add_row(rule.id, str(rule.rule_class), _tested(rule), escape(text))
    console.print(table)


def _tested(rule: Rule) -> str:
    if rule.floor is None and rule.access is not Access.INSPECTION:
        return "no check yet"
    return str(rule.access)


def explain_rule(rule_id: str) -> None:
    """Print one rule's text, how it is tested, what breaks it, and how to see it.

    Raises:
        UnknownRuleError: the contract has no such rule.
    """
    rule = rules().get(rule_id)
    if rule is None:
        near = get_close_matches(rule_id, rules(), n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UnknownRuleError(f"The contract has no rule {rule_id}.{hint}")
    console = Output()
    console.print(f"[bold]{rule.id}[/]  section {rule.section}, class {rule.rule_class}\n")
    _paragraph(console, rule.text)
    console.print(f"\n[bold]Tested[/] {_HOW[rule.access]}", highlight=False)
    if rule.floor is None:
        if rule.access is not Access.INSPECTION:
            console.print("  There is no check yet.", highlight=False)
    else:
        times = "once" if rule.floor == 1 else f"{rule.floor} times"
        console.print(f"  It counts as passed once it was exercised {times} and held.")
    if rule.breaks:
        console.print("\n[bold]What usually breaks it[/]")
        _paragraph(console, rule.breaks)
    vector = _vector_of(rule_id)
    if vector is not None:
        _show_vector(console, vector)


def _paragraph(console: Console, text: str) -> None:
    filled = textwrap.indent(textwrap.fill(text, 78, break_on_hyphens=False), "  ")
    console.print(filled, markup=False, highlight=False, soft_wrap=True)


def _vector_of(rule_id: str) -> Vector | None:
    """The shortest vector that a rule decides, or that it bears on."""
    vectors = [vector for vector in load_vectors() if rule_id in vector.rules]
    return min(vectors, key=lambda v: (v.rules[0] != rule_id, len(v.given), v.at_ms), default=None)


def _show_vector(console: Console, vector: Vector) -> None:
    console.print("\n[bold]To see it[/], on a server and controls at these addresses:")
    timed = [*((t.at_ms, t.request) for t in vector.given), (vector.at_ms, vector.request)]
    moves = vector.at_ms > 0
    lines: list[Sent] = [_control('{"freeze": true}')] if moves else []
    now_ms = 0
    for at_ms, request in timed:
        if at_ms > now_ms:
            lines.append(_control(f'{{"advance_ms": {at_ms - now_ms}}}'))
            now_ms = at_ms
        body = json.dumps(request).encode()
        headers = (("content-type", "application/json"),)
        lines.append(Sent(method="POST", path=TOOL_PATH, headers=headers, body=body, answered=""))
    for line in commands(lines, _EXAMPLE, _CONTROLS):
        if not line.startswith("#"):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    told = in_short(vector.http_status, vector.members)
    console.print(f"  [green]must be answered[/] {told}", highlight=False)


def _control(body: str) -> Sent:
    return Sent(
        method="POST",
        path="/clock",
        headers=(("content-type", "application/json"),),
        body=body.encode(),
        answered="",
        on_controls=True,
    )
