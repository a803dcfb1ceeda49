"""Runs every mutant of the Lua scripts, and writes what became of them.

    python lua/tests/mutant_runs.py [--page docs/lua-mutants.md] [--check 60] [--seed 1]

Each mutant is called as :mod:`calls` says until it does what it must not. Those that never do must
stand in ``equivalent_mutants.yaml``. With ``--check``, so many of those that a server could show
are then put into the reference server and checked as any target is; that must not pass either.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

import redis
import yaml
from calls import Caller, Difference
from lua_mutants import LuaMutant, all_mutants

EQUIVALENT: Final = Path(__file__).parent / "equivalent_mutants.yaml"


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
def reasons() -> tuple[Reason, ...]:
    """What ``equivalent_mutants.yaml`` says."""
    listed = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8"))
    return tuple(Reason(why=entry["reason"], changes=entry["mutants"]) for entry in listed)


def equivalent_changes() -> dict[str, str]:
    """Of every mutant that is none, by id, what is changed."""
    return dict(change for reason in reasons() for change in reason.changes.items())


def run(caller: Caller, mutants: Iterable[LuaMutant]) -> Iterator[Outcome]:
    """Call every mutant until it does what it must not."""
    equivalent = equivalent_changes()
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


def stale() -> list[str]:
    """The ids that are said to be equivalent and are of no mutant."""
    return sorted(equivalent_changes().keys() - {mutant.id for mutant in all_mutants()})
