"""Runs every mutant of the Lua scripts, and writes what became of them.

    python lua/tests/mutant_runs.py [--page FILE] [--check 400] [--seed 1] [--world configurations]

Each mutant is called as :mod:`calls` says until it does what it must not. Those that never do must
stand in ``listed_mutants.yaml`` as equivalent. With ``--check``, so many of those that a server
could show by its answers are then put into the reference server and checked as any target is. That
must not pass either, unless the list says why the mutant is hidden behind a server. With
``--world``, those that are said to be equivalent go through every step of a world besides.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import redis
import yaml
from calls import CLOCKS, MISUSE, PARTS, STEPS, WORLDS_OF_STEPS, Caller, Difference
from differential import Covered, differences
from differential import Difference as AnyDifference
from lua_mutants import LuaMutant, all_mutants

from checkpoint_conformance.checks import CHECKS
from checkpoint_conformance.checks.logs import judge_logs
from checkpoint_conformance.mutants.keeping import BRIEF, Keeper
from checkpoint_conformance.mutants.keeping import Outcome as Checked
from checkpoint_conformance.mutants.mutant import Edit, Edited, Kind, Mutant
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import Check, Run
from checkpoint_lua import scripts
from checkpoint_model.exploration import World
from checkpoint_model.worlds import WORLDS
from checkpoint_reference_server.store import open_store

LISTED: Final = Path(__file__).parent / "listed_mutants.yaml"


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    EQUIVALENT = "equivalent"
    """It survives, as is said of it."""
    NO_LUA = "no Lua"
    """It does not compile."""
    SURVIVED = "survived"
    """And nobody says why."""
    NOT_EQUIVALENT = "not equivalent"
    """It is said to survive, and does not, or is another change by now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A mutant and what became of it."""

    mutant: LuaMutant
    fate: Fate
    difference: Difference | None = None
    """What killed it."""

    def __str__(self) -> str:
        """For people."""
        return f"{self.mutant.id} {self.fate}: {self.mutant.diff}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why some mutants are none."""

    why: str
    changes: Mapping[str, str]
    """By id, what is changed."""


@cache
def reasons(kind: str) -> tuple[Reason, ...]:
    """What ``listed_mutants.yaml`` says of the ``equivalent`` or of the ``hidden``."""
    listed = yaml.safe_load(LISTED.read_text(encoding="utf-8"))[kind]
    return tuple(Reason(why=entry["reason"], changes=entry["mutants"]) for entry in listed)


def listed_changes(kind: str) -> dict[str, str]:
    """Of every listed mutant of a kind, by id, what is changed."""
    return dict(change for reason in reasons(kind) for change in reason.changes.items())


def run(caller: Caller, mutants: Iterable[LuaMutant]) -> Iterator[Outcome]:
    """Call every mutant until it does what it must not."""
    equivalent = listed_changes("equivalent")
    for mutant in mutants:
        listed = equivalent.get(mutant.id)
        try:
            difference = caller.first_difference(mutant.scripts())
        except redis.ResponseError:  # of SCRIPT LOAD
            fate, difference = Fate.NO_LUA, None
        else:
            fate = Fate.SURVIVED if difference is None else Fate.KILLED
        if listed is not None:
            survived = fate is Fate.SURVIVED and listed == mutant.diff
            fate = Fate.EQUIVALENT if survived else Fate.NOT_EQUIVALENT
        yield Outcome(mutant=mutant, fate=fate, difference=difference)


FIRST: Final = ("example", "walk", "vectors", "stateful", "controls", "store")
"""The checks that most faults of decisions show in come first."""


def decisions_first(run: Run) -> None:
    """Every check that a run goes through, in another order."""

    def late(check: Check) -> tuple[bool, int]:
        over_mcp = check.binding is Binding.MCP
        return over_mcp, FIRST.index(check.name) if check.name in FIRST else len(FIRST)

    for check in sorted(CHECKS, key=late):
        if check.applies_to(run.target):
            run.play(check)
    judge_logs(run)


def sample(caller: Caller, number: int, seed: int) -> Iterator[LuaMutant]:
    """So many of the mutants that a call such as a server makes tells by its answer, or by none."""
    shuffled = list(all_mutants())
    Random(seed).shuffle(shuffled)
    for mutant in shuffled:
        if number == 0:
            return
        with suppress(redis.ResponseError):  # no Lua
            found = caller.first_difference(mutant.scripts(), (CLOCKS, STEPS))
            if found is not None and found.what in ("reply", "error"):
                number -= 1
                yield mutant


def through_check(keeper: Keeper, mutant: LuaMutant) -> Checked:
    """The reference server with a mutant in it, checked until something fails."""
    edits = tuple(
        Edit(action=action, old=scripts()[action].text, new=text)
        for action, text in mutant.scripts().items()
    )
    wrong = Mutant(
        name=mutant.id,
        wrong=mutant.diff,
        kind=Kind.DECISION,
        fault=Edited(edits),
        rules=(),
        part=decisions_first,
    )
    return keeper.play(wrong, profile=BRIEF, instead=decisions_first)


def first_step_apart(
    client: "redis.Redis", mutant: LuaMutant, world: World
) -> AnyDifference | None:
    """The first step of a world on which a mutant is not the scripts; None where it is in all."""
    return next(differences(client, world, Covered(), texts=mutant.scripts()), None)


def is_killed(checked: Checked) -> bool:
    """Whether a check said something against a mutant, or could say nothing for lost answers."""
    return bool(checked.named) or checked.unanswered


def stale() -> list[str]:
    """The ids that are listed with another change than the mutant's, or of no mutant."""
    listed = listed_changes("equivalent") | listed_changes("hidden")
    changes = {mutant.id: mutant.diff for mutant in all_mutants()}
    return sorted(name for name, change in listed.items() if changes.get(name) != change)


# -- the page -----------------------------------------------------------------------------

_HEAD: Final = """\
# Mutants of the Lua scripts

Every single-point change of `lua/checkpoint_lua/scripts` that its grammar allows: operators,
constants, words, variables, conditions, rows in another order, statements and elements left out.
`lua/tests/lua_mutants.py` makes them. The one-step differential calls each until it does what the
model says it must not: a wrong reply, an error, another hash in the store, another native expiry.
Written by `nox -s lua_mutants`; tests run every mutant, and hold the figures and the lists to what
came of it.

"""


def page(
    outcomes: Sequence[Outcome], seconds: float, checks: Sequence[Checked], world: str | None
) -> str:
    """The page of the documentation.

    Args:
        outcomes: of every mutant.
        seconds: of the processor, that of the store included, which they took.
        checks: of those that the reference server was checked with.
        world: through which the equivalent ones went besides.
    """
    return "\n".join(
        [
            _HEAD + "## Figures",
            "",
            *figure_lines(outcomes),
            "",
            f"All of them took {seconds:.0f} s of the processor, the store's included.",
            "",
            "## What tells them",
            "",
            *_told(outcomes),
            "",
            "## Through a whole check",
            "",
            *_checked(checks),
            "",
            "## Equivalent",
            "",
            "Changes that nobody can tell from the scripts"
            + (f"; they went through every step of the world `{world}` besides:" if world else ":"),
            "",
            *listed_lines("equivalent"),
            "",
            "## Hidden behind the server",
            "",
            "Changes that the differential tells, and that nobody can who has a server alone:",
            "",
            *listed_lines("hidden"),
            "",
        ]
    )


def figure_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What became of them, by file and by change."""
    columns = (Fate.KILLED, Fate.EQUIVALENT, Fate.NO_LUA)
    yield "| file | made | killed | equivalent | no Lua |"
    yield "|---|--:|--:|--:|--:|"
    yield from _counted(outcomes, lambda outcome: f"`{outcome.mutant.file}`", columns)
    yield ""
    yield "| change | made | killed | equivalent | no Lua |"
    yield "|---|--:|--:|--:|--:|"
    yield from _counted(outcomes, lambda outcome: outcome.mutant.operator, columns)
    survivors = [f"`{o.mutant.id}`" for o in outcomes if o.fate not in columns]
    yield ""
    yield f"Survivors that are not listed: {', '.join(survivors) or 'none'}."


def _counted(
    outcomes: Sequence[Outcome], group: Callable[[Outcome], str], columns: Sequence[Fate]
) -> Iterator[str]:
    counts = Counter((group(outcome), outcome.fate) for outcome in outcomes)
    for name in [*dict.fromkeys(map(group, outcomes)), "all"]:
        numbers = [
            sum(n for (of, fate), n in counts.items() if name in (of, "all") and fate in fates)
            for fates in (tuple(Fate), *((fate,) for fate in columns))
        ]
        yield f"| {name} | {' | '.join(map(str, numbers))} |"


def _told(outcomes: Sequence[Outcome]) -> Iterator[str]:
    found = [outcome.difference for outcome in outcomes if outcome.difference]
    ways = ("reply", "error", "stored", "expiry")
    said = {
        CLOCKS: "under the store's clock, shifted ones, and ones that stand still or go back",
        STEPS: "a step of each kind of the worlds " + ", ".join(f"`{w}`" for w in WORLDS_OF_STEPS),
        MISUSE: "calls that no server makes",
    }
    yield f"| by calls | {' | '.join(ways)} |"
    yield f"|---|{'--:|' * len(ways)}"
    for part in PARTS:
        numbers = [sum(f.call.part == part and f.what == way for f in found) for way in ways]
        yield f"| {part}: {said[part]} | {' | '.join(map(str, numbers))} |"


def _checked(checks: Sequence[Checked]) -> Iterator[str]:
    hidden = listed_changes("hidden")
    missed = [checked for checked in checks if not is_killed(checked)]
    beyond = [checked.mutant.name for checked in missed if checked.mutant.name not in hidden]
    first = Counter(
        checked.layers[0] if checked.layers else "so much went unanswered that no run passes"
        for checked in checks
        if is_killed(checked)
    )
    yield (
        f"Of those that a call such as a server makes told by its answer, {len(checks)} "
        "were put into the reference server, and checked until something failed:"
    )
    yield ""
    yield "| first found by | mutants |"
    yield "|---|--:|"
    for layer, number in first.most_common():
        yield f"| {layer} | {number} |"
    yield f"| nothing, as listed below | {len(missed) - len(beyond)} |"
    yield ""
    yield f"Survivors that are not listed: {', '.join(f'`{name}`' for name in beyond) or 'none'}."


def listed_lines(kind: str) -> Iterator[str]:
    """A table of the reasons of a kind, with the changes that each is of."""
    yield "| why | changes |"
    yield "|---|---|"
    for reason in reasons(kind):
        changes = "<br>".join(
            f"`{name}`: `` {change.replace('|', chr(92) + '|')} ``"
            for name, change in reason.changes.items()
        )
        yield f"| {reason.why.strip()} | {changes} |"


def main() -> None:
    """Run them all, and write the page where one is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write what came of it there")
    parser.add_argument("--check", type=int, default=0, help="how many go through a whole check")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of those")
    parser.add_argument("--world", choices=WORLDS, help="what equivalent ones go through besides")
    given = parser.parse_args()
    with (
        open_store(None) as store,
        redis.Redis.from_url(store.url, decode_responses=True) as client,
    ):
        began = time.process_time()
        caller = Caller(client)
        outcomes = list(run(caller, all_mutants()))
        usage = client.info("cpu")
        seconds = time.process_time() - began
        seconds += float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])
        chosen = list(sample(caller, given.check, given.seed))
        apart = [
            f"{outcome.mutant.id} is no equivalent: {found}"
            for outcome in outcomes
            if given.world and outcome.fate is Fate.EQUIVALENT
            if (found := first_step_apart(client, outcome.mutant, WORLDS[given.world]))
        ]
    wrong = [*apart]
    wrong += [str(o) for o in outcomes if o.fate in (Fate.SURVIVED, Fate.NOT_EQUIVALENT)]
    wrong += [f"{name} is listed, and is another mutant or none by now" for name in stale()]
    checks = []
    hidden = listed_changes("hidden")
    with Keeper(command="mutants run") as keeper:
        for mutant in chosen:
            checked = through_check(keeper, mutant)
            checks.append(checked)
            killed = is_killed(checked)
            sys.stdout.write(f"{'killed' if killed else 'passed'} {mutant.id}\n")
            sys.stdout.flush()
            if killed is (mutant.id in hidden):
                what = "is hidden, and was found" if killed else "passed the check"
                wrong.append(f"{mutant.id} {what}: {mutant.diff}")
    if given.page:
        given.page.write_text(page(outcomes, seconds, checks, given.world), encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    fates = Counter(outcome.fate for outcome in outcomes)
    said = ", ".join(f"{number} {fate}" for fate, number in fates.items())
    sys.stdout.write(f"{len(outcomes)} mutants: {said}; {seconds:.0f} s of the processor\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
