"""The tests of the harness notice when the harness is wrong, and this very machinery can fail."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from changed_packages import Fate, MisfitError, changed, changed_text, play_elsewhere
from harness_mutants import (
    HARNESS_MUTANTS,
    PAGE,
    SEEDED_ELSEWHERE,
    HarnessMutant,
    elsewhere,
    table,
)

ROOT = Path(__file__).parents[2]
PARTS = 2
"""In CI they are played in as many tests, side by side where there are processors."""
QUICK = [mutant for mutant in HARNESS_MUTANTS.values() if not mutant.slow]


@pytest.mark.parametrize("part", range(PARTS))
def test_each_is_killed_by_the_tests_that_it_names(part: int) -> None:
    """Each of its tests fails, by an assertion; what takes longer is nox's to play."""
    mutants = QUICK[part::PARTS]
    played = play_elsewhere(mutants)
    assert [one.name for one in played] == [mutant.name for mutant in mutants]
    assert {one.name: one.why for one in played if one.fate is not Fate.KILLED} == {}


def test_there_are_enough_of_them() -> None:
    """As many as were promised, described in sentences, of names that tell them apart."""
    assert len(HARNESS_MUTANTS) >= 40
    assert len(QUICK) >= 40
    for mutant in HARNESS_MUTANTS.values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutant.name)
        assert re.fullmatch(r"[A-Z][^|\n]*\.", mutant.wrong)
        assert re.fullmatch(r"[A-Z][^|\n]*[.)?]", mutant.matters)
        assert mutant.tests
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)
    assert all((ROOT / path).exists() for path in SEEDED_ELSEWHERE)


def test_each_fits_its_file() -> None:
    """The slow ones too: a change whose text is gone is an error, not a survivor."""
    for mutant in HARNESS_MUTANTS.values():
        assert mutant.new in changed_text(mutant)


FLOORS = HARNESS_MUTANTS["one-hit-is-a-floor"]


@pytest.mark.parametrize("old", ["no such text", "return"], ids=["nowhere", "in several places"])
def test_a_text_that_does_not_stand_there_once_is_an_error(old: str) -> None:
    """Whatever its tests would say."""
    with pytest.raises(MisfitError), changed(replace(FLOORS, old=old)):
        pass


_VERDICT = "conformance/tests/test_verdict.py"
_TODAY = "def today() -> date:"
ODD: list[tuple[HarnessMutant, Fate, str]] = [
    (
        replace(FLOORS, name="changes nothing that matters", new="if not hits < rule.floor:"),
        Fate.SURVIVED,
        r".*\[WC-CONC-2\] passed",
    ),
    (
        replace(FLOORS, name="cannot be compiled", new="if hits >= rule.floor"),
        Fate.BROKEN,
        "(?s).*SyntaxError",
    ),
    (
        replace(FLOORS, name="cannot be loaded", old=_TODAY, new=f"import no_such_one\n{_TODAY}"),
        Fate.BROKEN,
        "(?s).*No module named 'no_such_one'",
    ),
    (
        replace(FLOORS, name="ends in another error", new="if hits >= 1 / 0:"),
        Fate.BROKEN,
        r".*\[WC-CONC-2\], call: ZeroDivisionError",
    ),
    (
        replace(FLOORS, name="ends in an assertion of ours", new="assert False\n    if True:"),
        Fate.BROKEN,
        r".*\[WC-CONC-2\], call: AssertionError",
    ),
    (
        replace(
            FLOORS,
            name="is seen by one of two tests",
            tests=(*FLOORS.tests, f"{_VERDICT}::test_exit_codes_are_the_design_s"),
        ),
        Fate.SURVIVED,
        ".*test_exit_codes_are_the_design_s passed",
    ),
    (
        replace(FLOORS, name="names a test that there is not", tests=(f"{_VERDICT}::test_none",)),
        Fate.BROKEN,
        "no test was run",
    ),
]


def test_what_is_no_kill_does_not_count_as_one() -> None:
    """A survivor is told from what could not be played, and why is said of each."""
    played = play_elsewhere([mutant for mutant, *_ in ODD])
    for one, (mutant, fate, why) in zip(played, ODD, strict=True):
        assert (one.name, one.fate) == (mutant.name, fate), one.why
        assert re.match(why, one.why), one.why


def test_the_working_tree_is_left_alone() -> None:
    """What is changed is a copy of the package, which is gone afterwards."""
    before = (ROOT / FLOORS.file).read_bytes()
    with changed(FLOORS) as folder:
        assert (ROOT / FLOORS.file).read_bytes() == before
        assert [path.name for path in folder.iterdir()] == ["checkpoint_conformance"]
        copy = folder.joinpath(*Path(FLOORS.file).parts[1:])
        assert copy.read_text(encoding="utf-8") == changed_text(FLOORS)
    assert not folder.exists()


def test_the_page_is_of_today_s_mutants() -> None:
    """To be written anew: nox -s harness_mutants."""
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    for expected in (table(), elsewhere()):
        start = lines.index(expected[0])
        assert lines[start : start + len(expected)] == expected
    count = len(HARNESS_MUTANTS)
    assert any(line.startswith(f"{count} mutants, {count} killed, ") for line in lines)
