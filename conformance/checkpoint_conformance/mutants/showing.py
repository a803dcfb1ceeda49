"""Mutants and what became of them, for people, for programs and for the documentation."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from checkpoint_conformance.mutants.keeping import BRIEF, Fate, Keeper, Outcome
from checkpoint_conformance.mutants.mutant import Kind, Mutant
from checkpoint_conformance.mutants.zoo import EQUIVALENT
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import PROFILES
from checkpoint_conformance.terminal import Output

_SIGNS: Final = {
    Fate.KILLED: "[green]✓[/]",
    Fate.WRONG_RULE: "[red]✗[/]",
    Fate.SURVIVED: "[red]✗[/]",
}
_HEAD: Final = """\
# Mutants

Servers with one thing wrong, and the rules by which the harness catches each. Written by
`nox -s mutants -- --matrix docs/mutants.md`; a test holds all but figures and the last column to
the code.

`workflow-checkpoint mutants list` lists them, `workflow-checkpoint mutants run NAME` runs one: the
reference server on a Valkey of its own, made wrong in that place, against the part of a check that
is assigned to it. A mutant is killed when every rule that it *must name* was named; whatever else
is named counts for nothing.

"""


def as_json(mutants: Iterable[Mutant]) -> str:
    """Every mutant as an object of an array."""
    described = [
        {
            "name": mutant.name,
            "wrong": mutant.wrong,
            "kind": mutant.kind,
            "rules": mutant.rules,
            "check": mutant.check,
            "binding": mutant.binding,
            "access": mutant.access,
        }
        for mutant in mutants
    ]
    return json.dumps(described, indent=2)


def show_list(mutants: Sequence[Mutant]) -> None:
    """Print every mutant with what is wrong and what must be named."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("mutant", no_wrap=True, min_width=max(map(len, (m.name for m in mutants))))
    table.add_column("must name", no_wrap=True)
    table.add_column("what is wrong", overflow="ellipsis", no_wrap=True)
    for mutant in mutants:
        table.add_row(mutant.name, " ".join(mutant.rules), escape(mutant.wrong))
    output = Output()
    output.print(table)
    output.print(f"\n{_number(len(mutants))}.", highlight=False)


def play(mutants: Sequence[Mutant], *, profile: str, whole: bool) -> list[Outcome]:
    """Run mutants, with a line for each as it ends.

    Raises:
        LaunchError: the server is not installed, or did not start.
    """
    output = Output(highlight=False, soft_wrap=True)
    outcomes = []
    with Keeper() as keeper:
        for mutant in mutants:
            outcome = keeper.play(mutant, profile=PROFILES.get(profile, BRIEF), whole=whole)
            outcomes.append(outcome)
            output.print(_line(outcome))
    output.print(_summary(outcomes))
    return outcomes


def _line(outcome: Outcome) -> str:
    mutant = outcome.mutant
    told = f"{_SIGNS[outcome.fate]} {mutant.name}  {outcome.fate}"
    if outcome.killed:
        told += f": {', '.join(mutant.rules)}"
    else:
        named = ", ".join(outcome.named) or "none"
        told += f": {escape(mutant.wrong)}\n    must name {', '.join(mutant.rules)}; named: {named}"
        for why in outcome.why:
            told += f"\n    {escape(why)}"
        if outcome.lost:
            told += f"\n    {outcome.lost} answers were lost"
    return f"{told}  [dim]{outcome.seconds:.1f} s[/]"


def _summary(outcomes: Sequence[Outcome]) -> str:
    fates = Counter(outcome.fate for outcome in outcomes)
    said = ", ".join(f"{fates[fate]} {fate}" for fate in Fate if fates[fate])
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"\n{_number(len(outcomes))}: {said}; {seconds:.0f} s"


def _number(count: int) -> str:
    return "1 mutant" if count == 1 else f"{count} mutants"


# -- the documentation --------------------------------------------------------------------


def as_matrix(outcomes: Sequence[Outcome], *, profile: str, whole: bool) -> str:
    """The page of the documentation: figures, rule by rule, mutant by mutant."""
    return (
        _HEAD
        + _figures(outcomes, profile, whole=whole)
        + "\n## No mutants\n\n"
        + "\n".join(equivalent_lines())
        + "\n\n## Rule by rule\n\n"
        + "\n".join(rule_lines(outcome.mutant for outcome in outcomes))
        + "\n\n## Mutant by mutant\n\n"
        + "\n".join(_mutant_lines(outcomes))
        + "\n"
    )


def _figures(outcomes: Sequence[Outcome], profile: str, *, whole: bool) -> str:
    until = "to the end of each check" if whole else "until each was killed, as CI runs them"
    lines = [
        f"## Figures, of the profile `{profile}`, {until}",
        "",
        "| kind | mutants | killed by the rules that must be named | seconds |",
        "|---|--:|--:|--:|",
    ]
    for kind in Kind:
        of = [outcome for outcome in outcomes if outcome.mutant.kind is kind]
        if of:
            lines.append(_figure_line(kind, of))
    lines += [_figure_line("all", outcomes), ""]
    survivors = [f"`{outcome.mutant.name}`" for outcome in outcomes if not outcome.killed]
    lines += [f"Survivors: {', '.join(survivors) or 'none'}.", ""]
    return "\n".join(lines)


def _figure_line(what: str, outcomes: Sequence[Outcome]) -> str:
    killed = sum(outcome.killed for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"| {what} | {len(outcomes)} | {killed} | {seconds:.0f} |"


def equivalent_lines() -> list[str]:
    """A table of the changes that cannot be told from a right server."""
    return [
        "Changes that nobody can tell from a right server:",
        "",
        "| change | why |",
        "|---|---|",
        *(f"| {change} | {why} |" for change, why in EQUIVALENT.items()),
    ]


def rule_lines(mutants: Iterable[Mutant]) -> list[str]:
    """A table of every rule that can be tested, with the mutants that must be caught by it."""
    by_rule = defaultdict[str, list[str]](list)
    for mutant in mutants:
        for rule in mutant.rules:
            by_rule[rule].append(f"`{mutant.name}`")
    return [
        "| rule | mutants that must name it |",
        "|---|---|",
        *(
            f"| {rule.id} | {', '.join(by_rule[rule.id])} |"
            for rule in rules().values()
            if rule.floor is not None
        ),
    ]


def mutant_cells(mutant: Mutant) -> str:
    """What the documentation says of a mutant, but for what else it was named by."""
    must = ", ".join(mutant.rules)
    return f"| `{mutant.name}` | {mutant.wrong} | {mutant.kind} | `{mutant.check}` | {must} |"


def _mutant_lines(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "| mutant | what is wrong | kind | check | must name | also named |",
        "|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        also = sorted(set(outcome.named) - set(outcome.mutant.rules))
        lines.append(f"{mutant_cells(outcome.mutant)} {', '.join(also)} |")
    return lines
