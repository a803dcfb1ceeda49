"""Mutants and what became of them, for people, for programs and for the documentation."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.markup import escape
from rich.table import Table

from checkpoint_conformance.mutants.keeping import BRIEF, Fate, Keeper, Outcome
from checkpoint_conformance.mutants.mutant import Kind, Mutant
from checkpoint_conformance.mutants.playing import (
    How,
    Played,
    known_results,
    play_all,
    write_results,
)
from checkpoint_conformance.mutants.zoo import EQUIVALENT
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import PROFILES
from checkpoint_conformance.terminal import Output

_SIGNS: Final = {
    Fate.KILLED: "[green]✓[/]",
    Fate.WRONG_RULE: "[red]✗[/]",
    Fate.SURVIVED: "[red]✗[/]",
    Fate.UNFIT: "[red]✗[/]",
}
_HEAD: Final = """\
# Mutants

Servers with one thing wrong, and the rules by which the harness catches each. Written by
`nox -s matrix` from [the results of each](mutants.jsonl), which it adds to: what is in there is not
played again, and all of it takes hours. A test holds the page to both the zoo and those results.
The single-point mutants of the Lua scripts have a [page](lua-mutants.md) of their own.

`workflow-checkpoint mutants list` lists them, `workflow-checkpoint mutants run NAME` runs one: the
reference server on a Valkey of its own, made wrong in that place, against the part of a check that
is assigned to it. A mutant is killed when every rule that it *must name* was named; whatever else
is named counts for nothing. With `--every-check` it goes through all that a run does instead, and
with `--whole` to the end, so that each check says by itself whether it finds the fault.

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """Mutants that were run, and how."""

    outcomes: Sequence[Outcome]
    how: How
    alarms: Mapping[int, tuple[str, ...]]
    """By each seed that the right server was checked with, the rules that it was said to break."""

    @property
    def false_alarms(self) -> int:
        """In how many runs the right server was called wrong."""
        return sum(map(bool, self.alarms.values()))

    @property
    def all_well(self) -> bool:
        """Whether every mutant was killed, and the right server never called wrong."""
        return all(outcome.killed for outcome in self.outcomes) and not self.false_alarms


def play(
    mutants: Sequence[Mutant],
    how: How,
    *,
    seeds: int = 0,
    jobs: int = 1,
    results: Path | None = None,
) -> Ran:
    """Run the right server, then mutants, with a line for each as it ends.

    Args:
        mutants: of the zoo.
        how: in which way each is played.
        seeds: how often the right server is checked before.
        jobs: how many mutants are played at a time.
        results: a file of outcomes: what is in it is not played again, and what is played is added.
            The right server was checked with all seeds that are in it.

    Raises:
        LaunchError: the server is not installed, or did not start.
        PlayerLostError: a process that played a mutant ended.
        ResultsError: ``results`` is no file of outcomes, or of another way to play.
    """
    output = Output(highlight=False, soft_wrap=True)
    known = known_results(results, how) if results else Played()
    if known.outcomes or known.alarms:
        runs = f", and the right server with {len(known.alarms)} seeds" if known.alarms else ""
        output.print(f"{_number(len(known.outcomes))} played before{runs}, by {results}")

    def keep() -> None:
        if results is not None:
            write_results(results, known, how)

    with Keeper() as keeper:
        for seed in range(1, seeds + 1):
            if seed in known.alarms:
                continue
            named = keeper.alarms(seed, profile=PROFILES.get(how.profile, BRIEF))
            known.alarms[seed] = named
            keep()
            told = f"[red]✗[/] says {', '.join(named)}" if named else "[green]✓[/] says nothing"
            output.print(f"{told} of the right server, seed {seed}")
        left = [mutant for mutant in mutants if mutant.name not in known.outcomes]
        for outcome in play_all(left, how, jobs=jobs, keeper=keeper):
            known.outcomes[outcome.mutant.name] = outcome
            keep()
            output.print(_line(outcome))
    outcomes = [known.outcomes[mutant.name] for mutant in mutants]
    ran = Ran(outcomes=outcomes, how=how, alarms=known.alarms)
    output.print(_summary(ran))
    return ran


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


def _summary(ran: Ran) -> str:
    fates = Counter(outcome.fate for outcome in ran.outcomes)
    said = ", ".join(f"{fates[fate]} {fate}" for fate in Fate if fates[fate])
    seconds = sum(outcome.seconds for outcome in ran.outcomes)
    told = f"\n{_number(len(ran.outcomes))}: {said}; {seconds:.0f} s"
    return f"{told}\n{_false_alarms(ran)}" if ran.alarms else told


def _false_alarms(ran: Ran) -> str:
    runs = f"{len(ran.alarms)} runs of every check on the right server"
    return f"False alarms: {ran.false_alarms} over {runs}, each with a seed of its own."


def _number(count: int) -> str:
    return "1 mutant" if count == 1 else f"{count} mutants"


# -- the documentation --------------------------------------------------------------------


def as_matrix(ran: Ran) -> str:
    """The page of the documentation: figures, layers, rule by rule, mutant by mutant."""
    return (
        _HEAD
        + _figures(ran)
        + "\n## Layers\n\n"
        + _layers(ran)
        + "\n## Rules and checks\n\n"
        + _rules_and_checks(ran)
        + "\n## No mutants\n\n"
        + "\n".join(equivalent_lines())
        + "\n\n## Rule by rule\n\n"
        + "\n".join(rule_lines(outcome.mutant for outcome in ran.outcomes))
        + "\n\n## Mutant by mutant\n\n"
        + "\n".join(_mutant_lines(ran.outcomes))
        + "\n"
    )


def _figures(ran: Ran) -> str:
    what = "every check of a run" if ran.how.every_check else "the check assigned to each"
    until = "to the end" if ran.how.whole else "until it was killed"
    outcomes = ran.outcomes
    lines = [
        f"## Figures, of the profile `{ran.how.profile}`, {what}, {until}",
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
    if ran.alarms:
        lines += [_false_alarms(ran), ""]
    return "\n".join(lines)


def _layers(ran: Ran) -> str:
    """By which checks mutants are killed, and of each kind how many by each first."""
    first = Counter(outcome.layers[0] for outcome in ran.outcomes if outcome.layers)
    any_at_all = Counter(layer for outcome in ran.outcomes for layer in outcome.layers)
    kinds = [kind for kind in Kind if any(o.mutant.kind is kind for o in ran.outcomes)]
    of_kind = Counter((o.layers[0], o.mutant.kind) for o in ran.outcomes if o.layers)
    lines = [
        "Which check of a run is the first to find fault with a mutant, and which do at all.",
        "",
        f"| check | first | at all | {' | '.join(kinds)} |",
        f"|---|--:|--:|{'--:|' * len(kinds)}",
    ]
    for layer, _ in sorted(any_at_all.items(), key=lambda entry: (-first[entry[0]], entry[0])):
        counts = " | ".join(str(of_kind[layer, kind] or "") for kind in kinds)
        lines.append(f"| {layer} | {first[layer]} | {any_at_all[layer]} | {counts} |")
    return "\n".join([*lines, ""])


def _rules_and_checks(ran: Ran) -> str:
    """Of each rule, how often it was named, and by which checks how often."""
    named = Counter(rule for outcome in ran.outcomes for rule in outcome.named)
    by_check = defaultdict[str, Counter[str]](Counter)
    for outcome in ran.outcomes:
        for layer, found in outcome.found.items():
            for rule in found:
                by_check[rule][layer] += 1
    lines = [
        "Of how many mutants each rule was named, and of how many by each check, whether it must",
        "be named or not.",
        "",
        "| rule | mutants | by |",
        "|---|--:|---|",
    ]
    for rule in rules():
        if named[rule]:
            most = sorted(by_check[rule].items(), key=lambda entry: (-entry[1], entry[0]))
            checks = ", ".join(f"{layer} {count}" for layer, count in most)
            lines.append(f"| {rule} | {named[rule]} | {checks} |")
    return "\n".join([*lines, ""])


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
        "| mutant | what is wrong | kind | check | must name | also named | found by |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        also = sorted(set(outcome.named) - set(outcome.mutant.rules))
        layers = ", ".join(outcome.layers)
        lines.append(f"{mutant_cells(outcome.mutant)} {', '.join(also)} | {layers} |")
    return lines
