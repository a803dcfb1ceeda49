"""The exploration: pinned counts, faults refuted by a shortest sequence, nothing lost."""

from collections.abc import Iterator
from dataclasses import replace
from textwrap import fill

import pytest
from wrong_steps import FAULTS

from checkpoint_model import MOVES, EvidenceType, Limits, Record, Stage, Transition, machine, step
from checkpoint_model.exploration import (
    NOW_MS,
    Advanced,
    Cleared,
    Configuration,
    Progress,
    Sent,
    World,
    explore,
    passing,
    replay,
)
from checkpoint_model.invariants import ALWAYS, DECISION_ROWS, SOMETIMES
from checkpoint_model.worlds import WORLDS

# States, transitions, and events to the furthest state. A change here is a change of the machine.
SMALL = {
    "tiny": (419, 18_637, 7),
    "last": (281, 12_329, 5),
    "clock": (431, 25_493, 7),
    "fingerprints": (747, 57_117, 7),
    "configurations": (1_713, 86_495, 8),
    "cells": (1_661, 236_395, 7),
    "pair": (2_701, 298_027, 8),
    "differential": (2_555, 705_433, 9),
    "contract-limits": (14_757, 1_257_987, 49),
}
LARGE = {
    "everything": (10_389, 2_807_275, 8),
    "observations": (12_407, 1_741_501, 9),
    "three": (23_137, 3_789_958, 11),
    "large": (193_649, 40_027_699, 13),
}
TINY = WORLDS["tiny"]


def test_every_world_has_its_numbers() -> None:
    """A world without a pinned count would be explored to no end."""
    assert set(SMALL) | set(LARGE) == set(WORLDS)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        *SMALL.items(),
        *(pytest.param(*world, marks=pytest.mark.large, id=world[0]) for world in LARGE.items()),
    ],
)
@pytest.mark.timeout(1200)
def test_a_world_is_explored_to_its_end(name: str, numbers: tuple[int, int, int]) -> None:
    """No invariant broken, the goals reached that it promises, as many states as ever."""
    found = explore(WORLDS[name])
    assert str(found.counterexample) == "None"
    assert found.shortfalls == ()
    assert found.passed
    assert (found.states, found.transitions, found.depth) == numbers
    assert set(found.hit) | set(found.missed) == {goal.name for goal in SOMETIMES}
    assert {rule for rule, count in found.rows.items() if count} == {
        name.removeprefix("row ") for name in found.hit if name.startswith("row ")
    }


def test_the_worlds_between_them_reach_every_goal() -> None:
    """What one world calls out of reach, another reaches; the small and quick ones nearly do."""
    hit = {
        name
        for world in ("cells", "pair", "last", "clock", "configurations")
        for name in explore(WORLDS[world]).hit
    }
    # Two observations of each of sixteen generations, or of two: these have too few keys.
    assert {goal.name for goal in SOMETIMES} - hit == set()


# -- Faults -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refuted_by_the_invariant_that_names_it(name: str) -> None:
    """With a shortest sequence: its length is pinned, its last event alone breaks something."""
    fault = FAULTS[name]
    world = WORLDS[fault.world]
    found = explore(world, step=fault.step)
    assert found.counterexample is not None
    assert not found.passed
    assert found.counterexample.invariant.name == fault.invariant
    assert len(found.counterexample.moments) == fault.length
    events = tuple(moment.event for moment in found.counterexample.moments)
    # Up to the last event the faulty machine did nothing that the right one would not.
    assert replay(world, events[:-1], step=fault.step) == replay(world, events[:-1])
    assert replay(world, events, step=fault.step) != replay(world, events)


def test_an_exchanged_cell_of_the_graph_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One evidence type for another: as many states and transitions as ever, but not the same."""
    moves = {source: dict(targets) for source, targets in MOVES.items()}
    moves[Stage.UNCERTAIN][Stage.FAILED] = frozenset(
        {EvidenceType.EXTERNAL_ABSENCE, EvidenceType.NOT_ATTEMPTED}
    )
    monkeypatch.setattr(machine, "MOVES", moves)
    found = explore(WORLDS["cells"])
    assert found.counterexample is not None
    assert found.counterexample.invariant.name == "stages-move-along-the-graph"
    assert len(found.counterexample.moments) == 4


SUPERSEDED = """
only-the-entitled-change is broken: Only the holder of the active claim, naming its generation,
     or a claimer of an absent, lapsed or retryable record changes anything. (WC-CLAIM-5,
     WC-TRANS-4, WC-TRANS-6, WC-ABANDON-2, WC-ABANDON-5)
  1. at 0 ms: ann claims for 1 s of 2 s, failures may be retried: acquired by WC-CLAIM-1; claimed
     in generation 1, claim of ann for 1000 ms, record for 2000 ms, 0 observed
  2. at 0 ms: ann moves generation 1 to failed under key one with external_absence: transitioned
     by WC-TRANS-8; failed in generation 1, evidence external_absence, last held by ann, record
     for 2000 ms, 1 observed
  3. at 0 ms: ann claims for 1 s of 2 s, failures may be retried: acquired by WC-CLAIM-7; claimed
     in generation 2, claim of ann for 1000 ms, record for 2000 ms, 1 observed
  4. at 0 ms: ann abandons generation 1: abandoned by WC-ABANDON-6; claimed in generation 2,
     claim of ann over, record for 2000 ms, 1 observed
"""
RENEWED = """
observers-change-nothing is broken: A reuse, a replay and a status change nothing, no deadline
     included. (WC-CLAIM-4, WC-TRANS-2, WC-STATUS-2)
  1. at 0 ms: ann claims for 1 s of 2 s, failures may be retried: acquired by WC-CLAIM-1; claimed
     in generation 1, claim of ann for 1000 ms, record for 2000 ms, 0 observed
  2. at 999 ms: 999 ms have passed, to 1 ms before the claim's end
  3. at 999 ms: somebody asks: reported by WC-STATUS-2; claimed in generation 1, claim of ann for
     1000 ms, record for 1001 ms, 0 observed
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("older_generations_pass", SUPERSEDED), ("status_renews_the_claim", RENEWED)],
)
def test_a_counterexample_reads_as_a_sequence(name: str, text: str) -> None:
    """Times, requests, answers and what is left behind, one event to a line (here folded)."""
    found = explore(WORLDS[FAULTS[name].world], step=FAULTS[name].step)
    lines = str(found.counterexample).splitlines()
    folded = [
        fill(line, width=97, subsequent_indent=" " * 5, break_on_hyphens=False) for line in lines
    ]
    assert "\n".join(folded) == text.strip("\n")


def test_the_end_of_a_record_reads_as_such() -> None:
    """Deadlines and clearing away are events too."""
    gone = replay(
        TINY,
        (
            Sent(request=TINY.sent(None)[0].request),
            Advanced(deadline="record", offset_ms=0, elapsed_ms=2000),
            Cleared(),
        ),
    )
    assert [str(moment) for moment in gone[1:]] == [
        "at 2000 ms: 2000 ms have passed, to the record's end",
        "at 2000 ms: the expired record is cleared away",
    ]


@pytest.mark.parametrize("name", ["holder_is_not_compared", "generation_is_not_compared"])
def test_a_machine_without_fencing_leaves_only_records_that_could_be(name: str) -> None:
    """Why state invariants are not enough: along the whole counterexample each of them holds."""
    fault = FAULTS[name]
    found = explore(WORLDS[fault.world], step=fault.step)
    assert found.counterexample is not None
    limits = WORLDS[fault.world].limits
    for moment in found.counterexample.moments:
        assert moment.after is not None
        assert all(always.holds(moment.after, NOW_MS, limits) for always in ALWAYS)


# -- Goals --------------------------------------------------------------------------------


def test_a_world_that_misses_a_goal_is_reported() -> None:
    """An exploration that met nothing has shown nothing, however many states it has."""
    silent = replace(TINY, evidence=())
    found = explore(silent)
    assert found.counterexample is None
    assert not found.passed
    assert "missed: stage failed" in found.shortfalls
    assert "missed: row WC-CLAIM-7" in found.shortfalls


def test_a_world_without_time_misses_what_takes_time() -> None:
    """Lapses can still be had by abandoning, so only deadlines are missed."""
    found = explore(replace(TINY, time_advances=False))
    assert found.shortfalls == (
        "missed: take-over at the deadline itself",
        "missed: held in the last millisecond",
        "missed: claim cut by the record's end",
        "missed: record there in its last millisecond",
        "missed: record gone at its deadline",
    )


def test_a_goal_that_is_wrongly_called_out_of_reach_is_reported() -> None:
    """An excuse that is no longer needed is taken back."""
    found = explore(replace(TINY, out_of_reach=(*TINY.out_of_reach, "row WC-CLAIM-8")))
    assert found.shortfalls == ("called out of reach, yet reached: row WC-CLAIM-8",)


# -- Nothing is lost ----------------------------------------------------------------------


def concrete(world: World, depth: int) -> Iterator[tuple[Record | None, int]]:
    """Every (record, time) that so many events lead to, with real dates and nothing merged."""
    level: set[tuple[Record | None, int]] = {(None, NOW_MS)}
    seen = set(level)
    for _ in range(depth):
        following: set[tuple[Record | None, int]] = set()
        for record, now_ms in level:
            for sent in world.sent(None):
                following.add(
                    (step(record, sent.request, now_ms, limits=world.limits).record, now_ms)
                )
            if record is None:
                continue
            for end_ms in (record.claim_expires_at_ms, record.state_expires_at_ms):
                following |= {
                    (record, end_ms + offset_ms)
                    for offset_ms in (-1, 0, 1)
                    if end_ms >= now_ms and end_ms + offset_ms > now_ms
                }
            if record.state_expires_at_ms <= now_ms:
                following.add((None, now_ms))
        level = following - seen
        seen |= level
    yield from seen


def test_dates_may_be_left_out_of_a_state() -> None:
    """To a depth of four, real dates lead to exactly the states that the exploration has."""
    depth = 4

    def relative(record: Record | None, now_ms: int) -> Record | None:
        if record is None:
            return None
        return TINY.canonical(
            replace(
                record,
                claim_expires_at_ms=record.claim_expires_at_ms - now_ms + NOW_MS,
                state_expires_at_ms=record.state_expires_at_ms - now_ms + NOW_MS,
            )
        )

    space = explore(TINY).space
    near = {state for index, state in enumerate(space.states) if len(space.events(index)) <= depth}
    assert {relative(*state) for state in concrete(TINY, depth)} == near


THREE_GENERATIONS = World(
    name="three generations",
    sentence="Every key that three generations can use, by one name each.",
    holders=("ann", "bob"),
    configurations=(Configuration(claim_ttl_seconds=1, state_ttl_seconds=2, retry_failed=True),),
    observation_keys=tuple(f"key-{number}" for number in range(7)),
    evidence=(EvidenceType.EXTERNAL_ABSENCE,),
    limits=Limits(generations=3, observations=6),
    instants_ms=(0,),
    remembered_generations=3,
)


def test_older_observations_may_be_kept_as_a_number() -> None:
    """What forgets finds the abstraction of what does not: the first merging of `canonical`."""
    forgetful = replace(THREE_GENERATIONS, remembered_generations=1)
    full, short = explore(THREE_GENERATIONS).space.states, explore(forgetful).space.states
    assert len(full) > 3 * len(short)
    assert {state and forgetful.canonical(state) for state in full} == set(short)


def test_observation_keys_may_be_named_in_the_order_of_their_use() -> None:
    """Against every order of four keys over two generations: the other merging of `canonical`."""
    ordered = replace(
        WORLDS["observations"],
        observation_keys=("one", "two", "three", "four", "five"),
        remembered_generations=2,
        time_advances=False,
    )
    exact = replace(
        ordered, observation_keys=ordered.observation_keys[:4], remembered_generations=None
    )
    full, short = explore(exact).space.states, explore(ordered).space.states
    assert len(full) > 3 * len(short)
    assert {state and ordered.canonical(state) for state in full} == set(short)


def test_every_state_is_where_its_events_lead() -> None:
    """What vectors are made from: a shortest sequence of events to each state."""
    space = explore(TINY).space
    for index, state in enumerate(space.states):
        events = space.events(index)
        path = replay(TINY, events)
        assert (path[-1].after if path else None) == state


def test_time_stops_at_each_deadline_and_beside_it() -> None:
    """One millisecond before, at and after; a deadline long past is nowhere to stop."""
    claim = next(iter(TINY.sent(None))).request
    record = step(None, claim, NOW_MS).record
    assert record is not None
    assert [
        event.elapsed_ms for event, _ in passing(TINY, record) if isinstance(event, Advanced)
    ] == [
        999,
        1000,
        1001,
        1999,
        2000,
        2001,
    ]
    long_gone = replace(record, claim_expires_at_ms=NOW_MS - 1, state_expires_at_ms=NOW_MS - 1)
    assert [event for event, _ in passing(TINY, long_gone)] == [Cleared()]


# -- The world as such --------------------------------------------------------------------


def test_progress_is_told_and_ends_with_the_totals() -> None:
    """Numbers only grow, and the last are those of the result."""
    told: list[Progress] = []
    found = explore(WORLDS["cells"], on_progress=told.append)
    assert len(told) == 3
    assert [p.transitions for p in told] == sorted(p.transitions for p in told)
    last = told[-1]
    assert (last.states, last.transitions, last.depth, last.waiting) == (
        found.states,
        found.transitions,
        found.depth,
        0,
    )


def test_a_world_that_section_3_forbids_is_refused() -> None:
    """WC-IN-5, and abstractions that would leave nothing to see."""
    forever = Configuration(claim_ttl_seconds=2, state_ttl_seconds=2, retry_failed=True)
    with pytest.raises(ValueError, match="WC-IN-5"):
        replace(TINY, configurations=(forever,))
    with pytest.raises(ValueError, match="fresh key"):
        replace(TINY, remembered_generations=1)
    with pytest.raises(ValueError, match="current generation"):
        replace(TINY, remembered_generations=0)


def test_everything_is_sent_in_everything() -> None:
    """The world for every cell sends every target with every evidence type, and none."""
    requests = [sent.request for sent in WORLDS["cells"].sent(None)]
    assert len(requests) == len(set(requests))
    cells = {
        (request.to_stage, request.evidence_type)
        for request in requests
        if isinstance(request, Transition)
    }
    targets = {target for moves in MOVES.values() for target in moves}
    assert cells == {(target, kind) for target in targets for kind in (None, *EvidenceType)}
    assert Stage.CLAIMED not in targets
    assert len(DECISION_ROWS) == 24
