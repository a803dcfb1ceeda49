"""Plays many mutants: in processes side by side, and on from where an earlier run was stopped.

All of them against every check of the default profile take hours, so what became of each is kept in
a file, one JSON object to a line, as soon as it is known; and so is what was said of the right
server, seed by seed. A run that is given the file plays what is not in it.
"""

import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from checkpoint_conformance.folders import put_text
from checkpoint_conformance.lanes import end_with_parent
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.mutants.keeping import BRIEF, Fate, Keeper, Outcome, every_check
from checkpoint_conformance.mutants.mutant import Mutant
from checkpoint_conformance.mutants.zoo import ZOO
from checkpoint_conformance.run import PROFILES


class PlayerLostError(Exception):
    """A process that played a mutant ended; the message says which mutant."""


class ResultsError(Exception):
    """A file of results cannot be gone on with; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class How:
    """In which way each mutant is played."""

    profile: str
    whole: bool
    """Whether to go on to the end of each check."""
    every_check: bool
    """Whether to go through every check of a run, rather than the assigned one."""

    def play(self, keeper: Keeper, mutant: Mutant) -> Outcome:
        """Play one; raises LaunchError as :meth:`Keeper.play`."""
        return keeper.play(
            mutant,
            profile=PROFILES.get(self.profile, BRIEF),
            whole=self.whole,
            instead=every_check if self.every_check else None,
        )

    def as_members(self) -> dict[str, Any]:
        """As it stands in each line of a file of results."""
        return {"profile": self.profile, "whole": self.whole, "every_check": self.every_check}


def play_all(
    mutants: Sequence[Mutant], how: How, *, jobs: int = 1, keeper: Keeper | None = None
) -> Iterator[Outcome]:
    """Play mutants, and give what became of each as soon as it is known, in whatever order.

    Args:
        mutants: of the zoo.
        how: in which way.
        jobs: how many at a time, each in a process of its own, on servers of its own.
        keeper: plays them in this process instead, one after the other, if ``jobs`` is 1.

    Raises:
        LaunchError: a server is not installed, or did not start.
        PlayerLostError: a process ended without saying what became of its mutant.
    """
    if jobs == 1:
        with keeper or Keeper() as kept:
            for mutant in mutants:
                yield how.play(kept, mutant)
        return
    waiting = iter(mutants)
    with ExitStack() as stack:
        playing: dict[Connection, Mutant] = {}
        for mutant in islice(waiting, jobs):
            ours = stack.enter_context(_player(stack, how))
            ours.send(mutant.name)
            playing[ours] = mutant
        while playing:
            ready = wait(list(playing))
            for ours in [pipe for pipe in playing if pipe in ready]:
                mutant = playing.pop(ours)
                yield _told(ours, mutant)
                for following in islice(waiting, 1):
                    ours.send(following.name)
                    playing[ours] = following


def _player(stack: ExitStack, how: How) -> Connection:
    """Our end of the pipe to a process that plays whatever it is named."""
    # Spawned rather than forked: what a keeper holds is for one process.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_plays, args=(theirs, how), daemon=False)
    process.start()
    theirs.close()
    # Closed before it is waited for: the end of the pipe is what ends the process.
    stack.callback(process.join)
    return ours


def _plays(pipe: Connection, how: How) -> None:
    """What a player's process does, until nothing more is named."""
    end_with_parent()
    with Keeper() as keeper:
        while True:
            try:
                name = pipe.recv()
                outcome = how.play(keeper, ZOO[name])
                pipe.send(as_line(outcome, how))
            except LaunchError as error:
                pipe.send(error)
                return
            except (EOFError, OSError, KeyboardInterrupt):
                return


def _told(ours: Connection, mutant: Mutant) -> Outcome:
    try:
        told = ours.recv()
    except (EOFError, OSError):
        raise PlayerLostError(f"the process that played {mutant.name} ended") from None
    if isinstance(told, LaunchError):
        raise told
    return _outcome(told)


# -- results in a file ----------------------------------------------------------------------------


def as_line(outcome: Outcome, how: How) -> dict[str, Any]:
    """An outcome as an object of a file of results."""
    return {
        "mutant": outcome.mutant.name,
        "fate": outcome.fate,
        **how.as_members(),
        "named": outcome.named,
        "found": outcome.found,
        "why": outcome.why,
        "lost": outcome.lost,
        "seconds": round(outcome.seconds, 1),
        "unanswered": outcome.unanswered,
    }


def _outcome(line: Mapping[str, Any]) -> Outcome:
    return Outcome(
        mutant=ZOO[line["mutant"]],
        fate=Fate(line["fate"]),
        named=tuple(line["named"]),
        found={layer: tuple(rules) for layer, rules in line["found"].items()},
        why=tuple(line["why"]),
        lost=line["lost"],
        seconds=line["seconds"],
        unanswered=line["unanswered"],
    )


@dataclass(kw_only=True, slots=True)
class Played:
    """What is known of mutants, and of the right server, from one way to play."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By the names of mutants."""
    alarms: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By seed, the rules that the right server was said to break; empty where it was none."""


def known_results(path: Path, how: How) -> Played:
    """What a file of results says of the mutants that there still are; nothing if there is none.

    Raises:
        ResultsError: it is of another way to play, or is no such file.
    """
    known = Played()
    if not path.exists():
        return known
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            played = {member: line[member] for member in how.as_members()}
            if played != how.as_members():
                raise ResultsError(f"{path}, line {number}: played otherwise, with {played}")
            if "seed" in line:
                known.alarms[line["seed"]] = tuple(line["named"])
            elif line["mutant"] in ZOO:
                known.outcomes[line["mutant"]] = _outcome(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultsError(f"{path}, line {number}: no result of a mutant ({error})") from None
    return known


def write_results(path: Path, known: Played, how: How) -> None:
    """Write a file of results: the right server by its seeds, then mutants in the zoo's order."""
    lines = [
        {"seed": seed, **how.as_members(), "named": named}
        for seed, named in sorted(known.alarms.items())
    ]
    lines += [as_line(known.outcomes[name], how) for name in ZOO if name in known.outcomes]
    put_text(path, "".join(f"{json.dumps(line)}\n" for line in lines))
