"""Every mutant of the zoo is killed by the rules that it must name, and the zoo can be called."""

import json
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from checkpoint_conformance import mutants_commands
from checkpoint_conformance.checks import CHECKS, walk
from checkpoint_conformance.cli import main
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.mutants import showing
from checkpoint_conformance.mutants.cells import EVIDENCE_CELLS, SETTLED_CELLS, name_of
from checkpoint_conformance.mutants.keeping import BRIEF, Fate, Keeper, Outcome, every_check
from checkpoint_conformance.mutants.mutant import Edit, Edited, Kind, Mutant
from checkpoint_conformance.mutants.playing import (
    How,
    Played,
    PlayerLostError,
    _told,
    known_results,
    play_all,
    write_results,
)
from checkpoint_conformance.mutants.zoo import ZOO
from checkpoint_conformance.rules import Binding, rules
from checkpoint_conformance.run import Run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    """The servers that the mutants are made from, started when they are needed."""
    with Keeper() as keeper:
        yield keeper


@pytest.mark.parametrize("mutant", ZOO.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_is_killed_by_its_rules(keeper: Keeper, mutant: Mutant) -> None:
    """Every rule that must be named is among those named, by the check assigned to it."""
    outcome = keeper.play(mutant)
    assert (outcome.fate, outcome.lost) == (Fate.KILLED, outcome.lost), outcome.named


def test_a_fault_that_is_none_survives(keeper: Keeper) -> None:
    """The right server in a mutant's place: nothing is named, so no kill is free."""
    mutant = replace(ZOO["recovers-as-claimed"], fault=Edited(()))
    outcome = keeper.play(mutant)
    assert (outcome.fate, outcome.named, outcome.lost) == (Fate.SURVIVED, (), 0)


def test_a_kill_by_another_rule_is_none(keeper: Keeper) -> None:
    """It must name all that it says."""
    mutant = replace(ZOO["recovers-as-claimed"], rules=("WC-CLAIM-8", "WC-CLAIM-5"))
    outcome = keeper.play(mutant)
    assert outcome.fate is Fate.WRONG_RULE
    assert "WC-CLAIM-8" in outcome.named


def test_an_edit_that_does_not_fit_kills_nobody(keeper: Keeper) -> None:
    """A text that no script has is an error of its own, whatever came of the requests."""
    mutant = replace(ZOO["recovers-as-claimed"], fault=Edited((Edit(old="no such text", new=""),)))
    outcome = keeper.play(mutant)
    assert outcome.fate is Fate.UNFIT
    assert outcome.why == ("not once in any script: no such text",)
    assert outcome.lost > 0
    assert keeper.play(ZOO["recovers-as-claimed"]).killed


SEEDS = range(1, 21)
CHEAP = replace(BRIEF, stateful_examples=5, contenders=10, storm_rounds=1)


def drawn(run: Run) -> None:
    """The checks in which a seed decides what is sent, and when."""
    for check in CHECKS:
        if check.name in ("stateful", "races", "storm") and check.binding is Binding.HTTP:
            run.play(check)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_right_server_is_never_called_wrong(keeper: Keeper, seed: int) -> None:
    """Whatever the seed: a rule that is said to be broken here is a false alarm."""
    assert keeper.alarms(seed, profile=CHEAP, part=drawn) == ()


def test_a_false_alarm_would_be_told(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong server in the right one's place, rules are named."""
    with keeper.mounted(ZOO["recovers-as-claimed"]) as wrong:
        monkeypatch.setattr(Keeper, "right", wrong)
        assert "WC-CLAIM-8" in keeper.alarms(1, part=walk.walk)


def test_a_mutant_can_go_through_every_check(keeper: Keeper) -> None:
    """In the order of a run, each check being a layer that finds it or does not."""

    def some(run: Run) -> None:
        for check in CHECKS:
            if check.name in ("example", "stateful") and check.applies_to(run.target):
                run.play(check)

    mutant = ZOO["starts-uncertain"]
    outcome = keeper.play(mutant, whole=True, profile=CHEAP, instead=some)
    assert outcome.killed
    assert outcome.layers == ("stateful", "stateful over MCP")
    assert keeper.play(mutant, instead=some).layers == ("stateful",)


def test_a_faulty_deployment_stands_beside_a_right_server(keeper: Keeper) -> None:
    """As in a run, so that every check can be gone through, and only the faults find it."""
    for name in ("repeats-a-lost-step", "starts-on-an-evicting-store"):
        with keeper.mounted(ZOO[name]) as target:
            assert target.fault_access is not keeper.right.fault_access
            assert replace(target, fault_access=None) == replace(
                keeper.right, fault_access=None, logs=target.logs
            )


def test_what_loses_its_answers_is_let_go_soon(keeper: Keeper) -> None:
    """A server whose scripts fail is called wrong by no rule, and passes no run."""
    fault = Edited((Edit(action="claim", old="return reply('acquired')", new="return nope()"),))
    mutant = replace(ZOO["recovers-as-claimed"], fault=fault, rules=())
    outcome = keeper.play(mutant, instead=every_check)
    assert (outcome.named, outcome.unanswered) == ((), True)


def test_each_is_well_described() -> None:
    """A name of words and hyphens, one sentence, rules that there are."""
    for mutant in ZOO.values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutant.name)
        assert re.fullmatch(r"[A-Z][^|\n]*\.", mutant.wrong)
        assert mutant.rules
        assert set(mutant.rules) <= rules().keys()
    sentences = [mutant.wrong for mutant in ZOO.values()]
    assert sorted({s for s in sentences if sentences.count(s) > 1}) == []


def test_every_rule_that_can_be_tested_has_a_mutant() -> None:
    """A rule with a floor that no mutant must name is one that nothing shows to be checked."""
    named = {rule for mutant in ZOO.values() for rule in mutant.rules}
    assert [r.id for r in rules().values() if r.floor is not None and r.id not in named] == []


def test_every_cell_of_the_graph_has_a_mutant() -> None:
    """Stage, stage and evidence; and out of every settled stage into every other."""
    assert len(EVIDENCE_CELLS) == 2 * 4 * 8
    assert [name for cell in EVIDENCE_CELLS if (name := name_of(cell)) not in ZOO] == []
    assert len({name_of(cell) for cell in EVIDENCE_CELLS}) == len(EVIDENCE_CELLS)
    settled = {f"cell-{a}-{b}".replace("_", "-") for a, b in SETTLED_CELLS}
    assert len(settled) == 3 * 4
    assert settled <= ZOO.keys()


def test_there_are_enough_of_them() -> None:
    """As many as the harness promises, and some of every kind."""
    assert len(ZOO) >= 120
    assert {mutant.kind for mutant in ZOO.values()} == set(Kind)


def test_the_command_knows_every_kind() -> None:
    """It states them anew, to be light."""
    assert tuple(Kind) == mutants_commands._KINDS


def call(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, ["mutants", *arguments])


def test_they_are_listed_for_people() -> None:
    """All of them, or those of a kind."""
    listed = call("list")
    assert listed.exit_code == 0
    assert all(re.search(f"^{name} ", listed.output, re.MULTILINE) for name in ZOO)
    assert f"\n{len(ZOO)} mutants." in listed.output
    logs = call("list", "--kind", "log")
    assert [line.split()[0] for line in logs.output.splitlines()[1:3]] == [
        "logs-the-holder",
        "logs-bodies",
    ]


def test_they_are_listed_for_programs() -> None:
    """With everything that is known of each."""
    listed = json.loads(call("list", "--format", "json").output)
    assert [entry["name"] for entry in listed] == list(ZOO)
    assert next(entry for entry in listed if entry["name"] == "records-of-its-own") == {
        "name": "records-of-its-own",
        "wrong": "Keeps records of its own behind MCP.",
        "kind": "mcp",
        "rules": ["WC-MCP-4"],
        "check": "doors.doors",
        "binding": "mcp",
        "access": "controls",
    }


def test_one_is_run_by_its_name() -> None:
    """Exit 0, and a line that says by which rule it was killed."""
    done = call("run", "recovers-as-claimed")
    assert done.exit_code == 0, done.output
    assert "✓ recovers-as-claimed  killed: WC-CLAIM-8" in done.output
    assert "1 mutant: 1 killed; " in done.output


def test_a_survivor_makes_the_command_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1, and what was to be named."""
    mutant = replace(ZOO["recovers-as-claimed"], fault=Edited(()), name="none")
    monkeypatch.setattr("checkpoint_conformance.mutants.zoo.ZOO", {"none": mutant})
    done = call("run", "none")
    assert done.exit_code == 1
    assert "✗ none  survived" in done.output
    assert "must name WC-CLAIM-8; named: none" in done.output


def test_a_misfit_makes_the_command_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told neither as killed nor as a survivor."""
    fault = Edited((Edit(old="no such text", new=""),))
    mutant = replace(ZOO["recovers-as-claimed"], fault=fault, name="misfit")
    monkeypatch.setattr("checkpoint_conformance.mutants.zoo.ZOO", {"misfit": mutant})
    done = call("run", "misfit")
    assert done.exit_code == 1
    assert "✗ misfit  is none: its edit does not fit" in done.output
    assert "not once in any script: no such text" in done.output


@pytest.mark.parametrize(("named", "status"), [((), 0), (("WC-TIME-1",), 1)])
def test_a_false_alarm_makes_the_command_fail(
    monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...], status: int
) -> None:
    """However well the mutants are caught."""
    seeds: list[int] = []

    def alarms(_: Keeper, seed: int, **__: object) -> tuple[str, ...]:
        seeds.append(seed)
        return named if seed == 2 else ()

    monkeypatch.setattr(Keeper, "alarms", alarms)
    done = call("run", "--seeds", "3", "starts-uncertain")
    assert seeds == [1, 2, 3]
    assert ("✗ says WC-TIME-1 of the right server, seed 2" in done.output) is bool(named)
    assert done.exit_code == status, done.output


def test_the_page_counts_layers_and_false_alarms(keeper: Keeper) -> None:
    """Which check was first, and over how many runs of the right server nothing was said."""
    outcomes = [keeper.play(ZOO[name]) for name in ("starts-uncertain", "stays-abandoned")]
    how = How(profile="brief", whole=False, every_check=False)
    alarms: dict[int, tuple[str, ...]] = dict.fromkeys(range(1, 21), ())
    ran = showing.Ran(outcomes=outcomes, how=how, alarms={**alarms, 7: ("WC-TIME-1",)})
    page = showing.as_matrix(ran)
    assert "False alarms: 1 over 20 runs of every check" in page
    assert "| vectors | 1 | 1 | 1 |\n| walk | 1 | 1 | 1 |\n" in page
    assert "| WC-CLAIM-1 |  | walk |\n" in page
    assert "| WC-CLAIM-1 | 1 | walk 1 |\n" in page


def test_an_unknown_name_is_told_with_what_comes_near() -> None:
    """Exit 2."""
    done = call("run", "recover-as-claimed")
    assert done.exit_code == 2
    assert "There is no mutant recover-as-claimed. Did you mean recovers-as-claimed" in done.output


IN_FULL = How(profile="default", whole=True, every_check=True)


def test_the_page_is_of_today_s_zoo() -> None:
    """To be written anew: nox -s matrix, which plays what has no result yet."""
    known = known_results(ROOT / "docs/mutants.jsonl", IN_FULL)
    assert list(known.outcomes) == list(ZOO)
    assert known.alarms
    ran = showing.Ran(outcomes=list(known.outcomes.values()), how=IN_FULL, alarms=known.alarms)
    assert ran.all_well
    assert (ROOT / "docs/mutants.md").read_text(encoding="utf-8") == showing.as_matrix(ran)


# -- many of them, side by side and on from where a run was stopped --------------------------------

BRIEFLY = How(profile="brief", whole=False, every_check=False)


def told_of(outcome: Outcome) -> tuple[object, ...]:
    """An outcome but for its seconds."""
    return outcome.mutant.name, outcome.fate, outcome.named, outcome.found, outcome.lost


def test_mutants_that_are_played_side_by_side_come_to_the_same(keeper: Keeper) -> None:
    """Each of them once, by whichever process."""
    mutants = [ZOO[name] for name in ("recovers-as-claimed", "logs-bodies", "starts-uncertain")]
    alone = [BRIEFLY.play(keeper, mutant) for mutant in mutants]
    beside = sorted(play_all(mutants, BRIEFLY, jobs=2), key=lambda o: mutants.index(o.mutant))
    assert [told_of(outcome) for outcome in beside] == [told_of(outcome) for outcome in alone]


def test_a_player_that_ends_is_told_with_its_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    """What became of the mutant is unknown, which is not the same as a survivor."""
    nobody = replace(ZOO["recovers-as-claimed"], name="nobody-knows-this-one")
    with pytest.raises(PlayerLostError, match="played nobody-knows-this-one ended"):
        list(play_all([nobody], BRIEFLY, jobs=2))
    monkeypatch.setattr("checkpoint_conformance.mutants.zoo.ZOO", {nobody.name: nobody})
    done = call("run", "--jobs", "2", nobody.name)
    assert done.exit_code == 2
    assert "Error: the process that played nobody-knows-this-one ended" in done.output


class ForAMinute(How):
    """A way to play that takes its time."""

    def play(self, keeper: Keeper, mutant: Mutant) -> Outcome:
        """Say so, and do nothing."""
        print("playing", flush=True)  # noqa: T201 - to whoever waits for it
        time.sleep(60)
        return super().play(keeper, mutant)


PLAYS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_mutants import ZOO, ForAMinute, play_all
how = ForAMinute(profile="brief", whole=False, every_check=False)
list(play_all([ZOO["recovers-as-claimed"]], how, jobs=2))
"""


def test_players_end_with_the_command_however_it_does() -> None:
    """In the middle of a mutant as well, which may take a minute."""
    # Its output ends with the last of the processes that have it.
    with subprocess.Popen([sys.executable, "-c", PLAYS], stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"playing\n"
        command.kill()
        assert command.communicate(timeout=30)[0] == b""


def test_a_server_that_is_not_there_is_told_by_any_player() -> None:
    """As in a run of one at a time; told of by the process that wanted it."""
    ours, theirs = multiprocessing.Pipe()
    ours.send(LaunchError("it is not installed"))
    with pytest.raises(LaunchError, match="it is not installed"):
        _told(theirs, ZOO["recovers-as-claimed"])


def test_a_run_goes_on_from_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the file is not played again, and counts like what was."""
    played: list[str] = []
    play = Keeper.play

    def watched(keeper: Keeper, mutant: Mutant, **how: object) -> Outcome:
        played.append(mutant.name)
        return play(keeper, mutant, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Keeper, "play", watched)
    results = tmp_path / "results.jsonl"
    first = call("run", "--results", str(results), "starts-uncertain")
    again = call("run", "--results", str(results), "recovers-as-claimed", "starts-uncertain")
    assert (first.exit_code, again.exit_code) == (0, 0), again.output
    assert played == ["starts-uncertain", "recovers-as-claimed"]
    assert "1 mutant played before" in again.output
    assert "2 mutants: 2 killed" in again.output
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    in_zoo = [name for name in ZOO if name in played]
    assert [line["mutant"] for line in lines] == in_zoo
    assert {line["mutant"]: line["found"] for line in lines}["starts-uncertain"] == {
        "walk": ["WC-CLAIM-1"]
    }
    assert list(known_results(results, BRIEFLY).outcomes) == in_zoo


def test_results_of_a_survivor_still_make_a_run_fail(tmp_path: Path) -> None:
    """However long ago it was played."""
    results = tmp_path / "results.jsonl"
    survivor = Outcome(
        mutant=ZOO["starts-uncertain"],
        fate=Fate.SURVIVED,
        named=(),
        why=(),
        lost=0,
        seconds=1,
    )
    write_results(results, Played(outcomes={survivor.mutant.name: survivor}), BRIEFLY)
    done = call("run", "--results", str(results), "starts-uncertain")
    assert done.exit_code == 1
    assert "1 mutant: 1 survived" in done.output


def test_the_right_server_is_not_checked_again_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed by seed; what was a false alarm before still makes a run fail, and is counted."""
    seeds: list[int] = []

    def alarms(_: Keeper, seed: int, **__: object) -> tuple[str, ...]:
        seeds.append(seed)
        return ("WC-TIME-1",) if seed == 2 else ()

    monkeypatch.setattr(Keeper, "alarms", alarms)
    results = tmp_path / "results.jsonl"
    command = ("run", "--results", str(results), "starts-uncertain", "--seeds")
    assert call(*command, "2").exit_code == 1
    again = call(*command, "3")
    assert seeds == [1, 2, 3]
    assert "1 mutant played before, and the right server with 2 seeds" in again.output
    assert "False alarms: 1 over 3 runs" in again.output
    assert again.exit_code == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}\n", "line 1: no result of a mutant"),
        ("not JSON\n", "line 1: no result of a mutant"),
        ("[1]\n", "line 1: no result of a mutant"),
    ],
)
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """Rather than written over."""
    results = tmp_path / "results.jsonl"
    results.write_text(text, encoding="utf-8")
    done = call("run", "--results", str(results), "starts-uncertain")
    assert done.exit_code == 2
    assert why in done.output
    assert results.read_text(encoding="utf-8") == text


def test_results_of_another_way_to_play_are_not_mixed_with_these(tmp_path: Path) -> None:
    """A brief run says less than a whole one."""
    results = tmp_path / "results.jsonl"
    write_results(results, Played(), BRIEFLY)
    assert call("run", "--results", str(results), "starts-uncertain").exit_code == 0
    done = call("run", "--results", str(results), "--whole", "starts-uncertain")
    assert done.exit_code == 2
    assert "line 1: played otherwise, with {'profile': 'brief', 'whole': False" in done.output
