"""Every mutant of the zoo is killed by the rules that it must name, and the zoo can be called."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from checkpoint_conformance import mutants_commands
from checkpoint_conformance.cli import main
from checkpoint_conformance.mutants import showing
from checkpoint_conformance.mutants.keeping import Fate, Keeper
from checkpoint_conformance.mutants.mutant import Edit, Edited, Kind, Mutant
from checkpoint_conformance.mutants.zoo import ZOO
from checkpoint_conformance.rules import rules

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
    """A text that no script has: every request ends in a fault, and no rule is named."""
    mutant = replace(ZOO["recovers-as-claimed"], fault=Edited((Edit(old="no such text", new=""),)))
    outcome = keeper.play(mutant)
    assert outcome.fate is Fate.SURVIVED
    assert outcome.lost > 0


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


def test_an_unknown_name_is_told_with_what_comes_near() -> None:
    """Exit 2."""
    done = call("run", "recover-as-claimed")
    assert done.exit_code == 2
    assert "There is no mutant recover-as-claimed. Did you mean recovers-as-claimed" in done.output


def test_the_page_is_of_today_s_zoo() -> None:
    """To be written anew: nox -s mutants -- --matrix docs/mutants.md."""
    page = (ROOT / "docs/mutants.md").read_text(encoding="utf-8").splitlines()
    cells = [line.rpartition(" |")[0].rpartition("|")[0] + "|" for line in page]
    described = [showing.mutant_cells(mutant) for mutant in ZOO.values()]
    start = cells.index(described[0])
    assert cells[start:] == described
    for table in (showing.rule_lines(ZOO.values()), showing.equivalent_lines()):
        start = page.index(table[0])
        assert page[start : start + len(table)] == table
    assert "Survivors: none." in page
