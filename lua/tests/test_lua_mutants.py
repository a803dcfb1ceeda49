"""Every single-point mutant of the Lua scripts is told from them, or listed with the reason."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from calls import CLOCKS, PARTS, STEPS, Caller
from lua_mutants import LuaMutant, all_mutants, files, nodes, tree
from mutant_runs import (
    Fate,
    figure_lines,
    first_step_apart,
    is_killed,
    listed_changes,
    listed_lines,
    run,
    sample,
    stale,
    through_check,
)

from checkpoint_conformance.mutants.keeping import Keeper
from checkpoint_lua import scripts
from checkpoint_lua.loader import source
from checkpoint_model.worlds import WORLDS

PAGE = Path(__file__).parents[2] / "docs/lua-mutants.md"


@pytest.fixture(scope="module")
def caller(valkey_url: str) -> Iterator[Caller]:
    """All calls, prepared once."""
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        yield Caller(client)


def mutant(name: str) -> LuaMutant:
    """One of them."""
    return next(mutant for mutant in all_mutants() if mutant.id == name)


def test_the_scripts_do_what_they_must(caller: Caller) -> None:
    """No call tells them from the model: whatever one tells of a mutant is the mutant's."""
    assert caller.first_difference({a: s.text for a, s in scripts().items()}) is None
    assert {call.part for call in caller.calls} == set(PARTS)


def test_every_mutant_is_told_or_listed(caller: Caller) -> None:
    """None survives that is not listed, and none is listed that does not survive as it is."""
    outcomes = list(run(caller, all_mutants()))
    wrong = [o for o in outcomes if o.fate in (Fate.SURVIVED, Fate.NOT_EQUIVALENT)]
    assert [str(outcome) for outcome in wrong] == []
    assert stale() == []
    fates = Counter(outcome.fate for outcome in outcomes)
    assert fates[Fate.EQUIVALENT] == len(listed_changes("equivalent"))
    # The grammar and the scripts decide how many there are; a few that are left would be no news.
    assert fates[Fate.KILLED] > 1_000
    page = PAGE.read_text(encoding="utf-8")
    for lines in (figure_lines(outcomes), listed_lines("equivalent"), listed_lines("hidden")):
        assert "\n".join(lines) in page, "to be written anew: nox -s lua_mutants"
    # Of the scripts alone, and of the whole check.
    assert page.count("Survivors that are not listed: none.") == 2
    ways = {outcome.difference.what for outcome in outcomes if outcome.difference}
    assert ways == {"reply", "error", "stored", "expiry"}


SAMPLE = 8
"""How many go through a check here; ``nox -s lua_mutants`` takes 400."""


def test_a_sample_of_what_answers_tell_is_caught_by_a_check(caller: Caller) -> None:
    """The harness sees no scripts, and finds what is wrong with the server that has them."""
    hidden = listed_changes("hidden")
    chosen = [m for m in sample(caller, SAMPLE, seed=1) if m.id not in hidden]
    with Keeper() as keeper:
        missed = [m.id for m in chosen if not is_killed(through_check(keeper, m))]
    assert missed == []
    assert len(chosen) > SAMPLE // 2


def test_what_is_listed_and_dies_is_told(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing is no licence: what kills a mutant shows, and so does a change that is another."""
    dead = next(m for m in all_mutants() if m.operator == "comparison")
    alive = next(iter(listed_changes("equivalent")))
    listed = {dead.id: dead.diff, alive: "another change", "claim.lua:1:none": ""}
    monkeypatch.setattr("mutant_runs.listed_changes", lambda _: listed)
    fates = [outcome.fate for outcome in run(caller, [dead, mutant(alive)])]
    assert fates == [Fate.NOT_EQUIVALENT, Fate.NOT_EQUIVALENT]
    assert stale() == sorted([alive, "claim.lua:1:none"])


def test_a_survivor_that_is_not_listed_is_told(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripts themselves survive."""
    alive = next(iter(listed_changes("equivalent")))
    monkeypatch.setattr("mutant_runs.listed_changes", lambda _: {})
    assert [outcome.fate for outcome in run(caller, [mutant(alive)])] == [Fate.SURVIVED]


def test_what_is_equivalent_can_go_through_a_world(valkey_url: str) -> None:
    """And what is not shows there."""
    alive = mutant(next(iter(listed_changes("equivalent"))))
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        assert first_step_apart(client, alive, WORLDS["tiny"]) is None
        assert first_step_apart(client, mutant("claim.lua:61:negated"), WORLDS["tiny"]) is not None


def test_what_does_not_compile_is_counted_apart(caller: Caller) -> None:
    """The store says what is Lua."""
    dropped = mutant("status.lua:8:element-dropped")
    assert dropped.diff == "local record_key = KEYS[1] → local record_key ="
    assert [outcome.fate for outcome in run(caller, [dropped])] == [Fate.NO_LUA]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("include/record.lua:41:comparison", "reply"),
        ("abandon.lua:40:pair-dropped:2", "stored"),
        ("include/expiry.lua:5:arithmetic", "expiry"),
        ("transition.lua:59:element-dropped", "error"),
    ],
)
def test_each_is_told_by_what_it_does(caller: Caller, name: str, what: str) -> None:
    """Replies, errors, what lies in the store, and when that expires."""
    found = caller.first_difference(mutant(name).scripts(), [STEPS, CLOCKS])
    assert found is not None
    assert found.what == what


def test_a_mutant_is_one_change_of_one_file() -> None:
    """With an id of its own, and another text than every other."""
    mutants = all_mutants()
    assert len({m.id for m in mutants}) == len({(m.file, m.text) for m in mutants}) == len(mutants)
    assert {m.file for m in mutants} == set(files())
    assert all(m.text != source(m.file) for m in mutants)
    assert all(m.scripts().keys() <= scripts().keys() for m in mutants)
    one = mutant("include/record.lua:41:comparison")
    assert (
        one.diff == "if now_ms >= record.state_end_ms then → if now_ms > record.state_end_ms then"
    )
    assert one.scripts().keys() == scripts().keys()
    assert mutant("claim.lua:54:negated").scripts().keys() == {"claim"}


def test_every_operator_is_in_use() -> None:
    """Operators, constants, words, variables, conditions, rows, statements, lists and calls."""
    assert {m.operator for m in all_mutants()} == {
        *("comparison", "arithmetic", "and-or", "not-dropped", "operand-dropped"),
        *("operands-swapped", "constant", "boolean", "string", "key", "variable"),
        *("negated", "condition-true", "condition-false", "elseif-dropped", "else-dropped"),
        *("rows-swapped", "statement-deleted"),
        *("element-dropped", "elements-swapped", "pair-dropped", "call-dropped", "function"),
    }


def test_every_mutant_ends() -> None:
    """The scripts have no loop, none calls itself, and no change makes either."""
    looping = re.compile(r"\b(while|for|repeat|goto)\b")
    texts = [(m.id, re.sub(r"--.*", "", m.text)) for m in all_mutants()]
    assert [name for name, text in texts if looping.search(text)] == []
    for file in files():
        for function in nodes(tree(file)):
            if function.type == "function_declaration":
                called = function.child_by_field_name("name")
                within = [node.text for node in nodes(function) if node.type == "identifier"]
                assert called is not None
                assert within.count(called.text) == 1
