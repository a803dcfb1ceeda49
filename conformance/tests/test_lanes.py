"""Checks side by side: what they see is what one after the other sees, however they end."""

import io
import json
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import parent_process
from random import Random
from typing import Any

import pytest
from looking_away import Quiet
from modelled import NOWHERE, model_at_url, model_server
from raw_server import Talk, http, request_of, talking
from rich.console import Console

from checkpoint_conformance import logs
from checkpoint_conformance.answers import Fault
from checkpoint_conformance.checks import CHECKS
from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.deployment import deployed
from checkpoint_conformance.faults import Durability, FaultAccess, Kind
from checkpoint_conformance.interrupts import insistent
from checkpoint_conformance.lanes import (
    LaneError,
    Place,
    Schedule,
    Seen,
    Task,
    lanes,
    put_together,
    tasks_of,
)
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.mutants.proxy import Forward, Message, with_members
from checkpoint_conformance.preflight import serves_several
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.run import PROFILES, Check, Run, Target
from checkpoint_conformance.session import (
    LOST_IN_A_ROW_MAX,
    TargetGoneError,
    expect_somebody,
    fresh_identity,
    fresh_key,
)
from checkpoint_conformance.tally import Failure, Tally, Timing
from checkpoint_conformance.targets import Description
from checkpoint_conformance.terminal import LiveProgress
from checkpoint_model.vocabulary import TOOL_PATH

HANGS_SECONDS_MAX = 60
"""How long something here waits to be interrupted; only a test that fails takes so long."""
SOMEWHERE = Target(address=NOWHERE)
HARMED = FaultAccess(
    kinds=tuple(Kind),
    missing={},
    durability=Durability.CHANGE,
    starts=True,
    apart=True,
    deploy=lambda: deployed(Description(url=NOWHERE.url)),
)
WHOLE = Target(
    address=NOWHERE,
    controls=NOWHERE,
    mcp=NOWHERE,
    store_url="unix:///x",
    classes=frozenset(RuleClass),
    fault_access=HARMED,
)
BRIEF = replace(PROFILES["quick"], stateful_examples=20)


@dataclass(frozen=True)
class Event:
    """Something that was begun, or has ended."""

    number: int
    instance: int
    begins: bool


class Watched(Quiet):
    """Progress that is written down."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def check(self, title: str, lane: int = 0) -> None:
        """A check begins."""
        self.said.append(("begins", title, lane))

    def advance(self, done: int, of: int, lane: int = 0) -> None:
        """So far it is."""
        self.said.append((done, of, lane))

    def end(self, lane: int = 0) -> None:
        """It has ended."""
        self.said.append(("ends", lane))


def go_through(checks: Sequence[Check], number: int = 2, target: Target = SOMEWHERE) -> Seen:
    """What so many lanes see of a target."""
    with lanes(number, checks, (target,), profile=BRIEF, seed=1) as opened:
        return opened.go_through(Watched())


# -- what is seen ----------------------------------------------------------------------------

REAL = tuple(check for check in CHECKS if check.name in {"http", "walk", "stateful"})


_right = model_server()


def wrong_server(message: Message, forward: Forward) -> HttpAnswer:
    """One that says of every claim that it was recovered."""
    answer = _right(message, forward)
    return with_members(answer, recovered=True) if b'"acquired"' in answer.body else answer


def figures(tally: Tally) -> dict[str, Any]:
    """All of a tally that a seed repeats."""
    return {
        "hits": tally.hits,
        "hits over": tally.hits_over,
        "failures": [(f.key, f.fault.what, len(f.sequence)) for f in tally.failures.values()],
        "requests": tally.requests,
        "lost": (tally.lost, tally.lost_why, tally.lost_what),
        "said": (tally.incomplete, tally.remarks),
        "moves": (tally.moves, tally.broken_moves),
        "checks": [(t.name, t.title, t.requests) for t in tally.timings],
    }


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_lanes_see_what_one_run_sees(wrong: bool) -> None:
    """Counts, failures in their order, timings in theirs: of the same seed the same."""
    with model_at_url(wrong_server if wrong else None) as target:
        run = Run(target=target, profile=BRIEF, seed=1, progress=Quiet())
        for check in REAL:
            if check.applies_to(target):
                run.play(check)
        run.close()
        seen = go_through(REAL, target=target)
    assert seen.interrupted == ""
    assert ("WC-HTTP-2" in run.tally.failures, "WC-CLAIM-1" in run.tally.failures) == (True, wrong)
    assert figures(seen.tally) == figures(run.tally)
    assert seen.tally.requests > 100


def failure(rule: str, *, size: int = 1, of_many: bool = False) -> Failure:
    """A failure with a sequence of so many nothings."""
    return Failure(
        check="c",
        fault=Fault(rules=(rule, "WC-X"), what="w", expected="e", got=str(size)),
        sequence=(),
        got={"size": size},
        expected=None,
        identity=fresh_identity(),
        of_many=of_many,
    )


def part(*failures: Failure, **of: Any) -> Tally:
    """A tally of one check."""
    tally = Tally(**of)
    for one in failures:
        tally.fail(one)
    return tally


def tasks(*checks: Check) -> tuple[Task, ...]:
    """Those of checks that apply to anything."""
    return tasks_of(checks, SOMEWHERE, BRIEF)


def test_everything_that_was_counted_is_counted_once() -> None:
    """Over all tasks, in their order, whoever was ready first."""
    one, other = Tally(requests=2, lost=1), Tally(requests=3, lost=1)
    for tally, rule in ((one, "WC-A"), (other, "WC-B")):
        tally.hit(rule, "WC-BOTH")
        tally.lost_why["why"] += 1
        tally.lost_what["what"] += 1
        tally.leave_out("left out")
        tally.remark(f"of {rule}")
        tally.timings.append(Timing(name="n", title=rule, seconds=1, requests=2))
    other.faults = {"calls": 1}
    whole = put_together(
        tasks(check("one"), check("two")), {1: other, 0: one}, target=SOMEWHERE, interrupted=False
    )
    assert whole.hits == {"WC-A": 1, "WC-B": 1, "WC-BOTH": 2}
    assert sum(hits.total() for hits in whole.hits_over.values()) == 4
    assert (whole.requests, whole.lost) == (5, 2)
    assert (whole.lost_why, whole.lost_what) == ({"why": 2}, {"what": 2})
    assert (whole.incomplete, whole.remarks) == (["left out"], ["of WC-A", "of WC-B"])
    assert [timing.title for timing in whole.timings] == ["WC-A", "WC-B"]
    assert whole.faults == {"calls": 1}


def test_no_failure_is_forgotten_and_of_two_the_first_is_kept() -> None:
    """As if one run had come upon them in turn."""
    first, again, other = failure("WC-A", size=1), failure("WC-A", size=2), failure("WC-B")
    whole = put_together(
        tasks(check("one"), check("two")),
        {1: part(again, other), 0: part(first)},
        target=SOMEWHERE,
        interrupted=False,
    )
    assert list(whole.failures.values()) == [first, other]


def test_shards_are_one_check() -> None:
    """What it took is what all of them took."""
    whole = Tally()
    for seconds in (1, 2):
        timing = Timing(name="n", title="t", seconds=seconds, requests=5)
        whole.add(Tally(timings=[timing]))
    assert whole.timings == [Timing(name="n", title="t", seconds=3, requests=10)]


def test_what_only_many_show_is_told_where_nothing_else_is_broken() -> None:
    """No order explains what is decided wrongly one by one; a hit of its rule is none, either."""
    by_order, by_answer = failure("WC-CONC-1", of_many=True), failure("WC-A")
    orders = part(by_order, by_answer)
    orders.hit("WC-CONC-1", "WC-ERR-5")
    right, wrong = Tally(), part(failure("WC-B"))
    right.add(orders)
    assert list(right.failures) == ["WC-CONC-1", "WC-A"]
    assert right.hits["WC-CONC-1"] == 1
    wrong.add(orders)
    assert list(wrong.failures) == ["WC-B", "WC-A"]
    assert wrong.hits == {"WC-ERR-5": 1}


@pytest.mark.parametrize("done", [True, False])
def test_what_says_nothing_of_what_is_broken_says_nothing(done: bool) -> None:
    """Whether it was done meanwhile or not: it is told as a check that took no time."""
    before, storm = check("before"), check("storm", only_unbroken=True)
    seen = part(failure("WC-CONC-1"), requests=7)
    seen.hit("WC-CONC-2")
    parts: Mapping[int, Tally] = {0: part(failure("WC-A")), **({1: seen} if done else {})}
    whole = put_together(tasks(before, storm), parts, target=SOMEWHERE, interrupted=False)
    assert list(whole.failures) == ["WC-A"]
    assert (whole.requests, whole.hits) == (0, {})
    assert whole.timings == [Timing(name="storm", title="storm", seconds=0, requests=0)]


def test_a_tally_goes_from_one_process_to_another_whole() -> None:
    """All but its lock, of which the other end has one of its own."""
    tally = part(failure("WC-A"), requests=3)
    tally.hit("WC-B")
    again: Tally = pickle.loads(pickle.dumps(tally))
    assert again == tally
    again.hit("WC-B")
    assert (tally.hits["WC-B"], again.hits["WC-B"]) == (1, 2)


# -- when and where --------------------------------------------------------------------------


def check(name: str, run: Any = None, **of: Any) -> Check:
    """A check that does something."""
    return Check(name=name, title=name, run=run or nothing, **of)


def nothing(_: Run) -> None:
    """Nothing."""


def assert_alone(tasks: Sequence[Task], events: Sequence[Event], instances: int) -> None:
    """At no time is anything beside what must be alone, and nothing is done twice or never."""
    at: list[set[int]] = [set() for _ in range(instances)]
    for event in events:
        if tasks[event.number].place is Place.APART:
            continue
        here = at[event.instance]
        (here.add if event.begins else here.remove)(event.number)
        places = [tasks[number].place for number in here]
        assert len(places) <= 1 or Place.ALONE not in places
    assert not any(at)
    assert sorted(e.number for e in events if e.begins) == list(range(len(tasks)))


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("lanes", [1, 2, 3, 5])
@pytest.mark.parametrize("access", ["whole", "without controls", "black box"])
def test_what_must_be_alone_is(instances: int, lanes: int, access: str) -> None:
    """Of every check that there is, in whatever order they end."""
    target = {
        "whole": WHOLE,
        "without controls": replace(WHOLE, controls=None),
        "black box": SOMEWHERE,
    }[access]
    tasks = tasks_of(CHECKS, target, PROFILES["default"])
    for seed in range(20):
        random, schedule = Random(seed), Schedule(tasks, instances)
        events: list[Event] = []
        under_way: list[tuple[Task, int]] = []
        together = 0
        while True:
            while len(under_way) < lanes and (begun := schedule.begin()):
                under_way.append(begun)
                events.append(Event(begun[0].number, begun[1], True))
            if not under_way:
                break
            together = max(together, len(under_way))
            task, instance = under_way.pop(random.randrange(len(under_way)))
            schedule.end(task)
            events.append(Event(task.number, instance, False))
        assert_alone(tasks, events, instances)
        assert together == lanes


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, Place.ALONE) for name in ("races", "storm", "store", "deadlines", "doors")),
        *((name, Place.ALONE) for name in ("walk", "vectors", "stateful", "controls")),
        *((name, Place.SHARED) for name in ("inputs", "fuzzing", "http", "mcp", "descriptions")),
        ("faults", Place.APART),
    ],
)
def test_where_a_check_may_be_done(name: str, place: Place) -> None:
    """Of a target with every access."""
    found = tasks_of(CHECKS, WHOLE, PROFILES["quick"])
    assert {task.place for task in found if task.check.name == name} == {place}


def test_faults_of_what_others_use_are_made_alone() -> None:
    """Where they are made of the instance that runs, or of the store behind it."""
    target = replace(WHOLE, fault_access=replace(HARMED, apart=False))
    (faults,) = [t for t in tasks_of(CHECKS, target, BRIEF) if t.check.name == "faults"]
    assert faults.place is Place.ALONE


def test_what_takes_longest_is_begun_first() -> None:
    """Of what can be: who shares goes to others who do, and leaves an instance to who must not."""
    checks = [
        check("short"),
        check("long", seconds=9),
        check("also long", seconds=9),
        check("alone", seconds=5, alone=True),
        check("also alone", seconds=7, alone=True),
    ]
    schedule = Schedule(tasks(*checks), 2)
    begun = [schedule.begin() for _ in range(5)]
    names = [(one[0].check.name, one[1]) for one in begun if one]
    assert names == [("long", 0), ("also long", 0), ("also alone", 1), ("short", 0)]
    assert begun[0] is not None
    for one in (begun[0], begun[1], begun[3]):
        assert one is not None
        assert schedule.begin() is None
        schedule.end(one[0])
    last = schedule.begin()
    assert last is not None
    assert (last[0].check.name, last[1]) == ("alone", 0)


def test_one_that_waits_is_begun_first_and_two_only_where_nothing_else_can_be() -> None:
    """So that somebody works meanwhile; and faults, which are apart, come before all."""
    checks = [
        check("long", seconds=9, alone=True),
        check("waits", waits=True, alone=True),
        check("waits longer", seconds=2, waits=True, alone=True),
        check("short", alone=True),
    ]
    faults = replace(tasks(check("faults"))[0], number=4, place=Place.APART)
    schedule = Schedule([*tasks(*checks), faults], 3)
    begun = [one[0] for one in iter(schedule.begin, None)]
    assert [task.check.name for task in begun] == ["faults", "waits longer", "long", "short"]
    schedule.end(begun[2])  # and there is nothing but the other one that waits
    last = schedule.begin()
    assert last is not None
    assert (last[0].check.name, last[1]) == ("waits", 1)


def test_a_profile_says_in_how_many_shards_it_is_drawn() -> None:
    """Not the lanes: a seed draws the same by however many."""
    shards = {
        name: [t.title for t in tasks_of(CHECKS, WHOLE, profile) if t.check.name == "stateful"]
        for name, profile in PROFILES.items()
    }
    title = "Drawn sequences against the model, clock frozen"
    assert shards["quick"] == [title, f"{title}, over MCP"]
    parts = [f"{title} ({number} of 4)" for number in range(1, 5)]
    assert shards["default"] == [*parts, f"{title}, over MCP"]
    assert len(shards["thorough"]) == 42


def looks_for_controls(run: Run) -> None:
    """Hit one rule where there are controls, another where there are none."""
    run.tally.hit("WC-NONE" if run.controls is None else "WC-SOME")


def test_who_shares_an_instance_cannot_touch_its_controls() -> None:
    """Whatever it says of itself."""
    target = replace(SOMEWHERE, controls=NOWHERE)
    found = [check("shares", looks_for_controls), check("alone", looks_for_controls, alone=True)]
    assert go_through(found, target=target).tally.hits == {"WC-NONE": 1, "WC-SOME": 1}


# -- how it ends -----------------------------------------------------------------------------


def hits(run: Run) -> None:
    """One rule."""
    run.tally.hit("WC-HIT")


def hangs(run: Run) -> None:
    """Hit a rule, and wait to be interrupted."""
    run.tally.hit("WC-HANGS")
    threading.Event().wait(HANGS_SECONDS_MAX)


def hangs_and_says_so(run: Run) -> None:
    """Hit a rule, press Ctrl-C, and wait to be interrupted."""
    run.tally.hit("WC-HANGS")
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    os.kill(parent.pid, signal.SIGINT)
    threading.Event().wait(HANGS_SECONDS_MAX)


class HangsWhenItIsGone:
    """Does what is to be interrupted when nobody has it any more."""

    def __init__(self, hang: Callable[[], None]) -> None:
        self._hang = hang

    def __del__(self) -> None:
        """Where an exception is dropped."""
        self._hang()


def hangs_where_nothing_can_be_raised(run: Run) -> None:
    """Press Ctrl-C in a finalizer, and wait to be interrupted."""
    HangsWhenItIsGone(partial(hangs_and_says_so, run))
    run.tally.hit("WC-WENT-ON")
    threading.Event().wait(HANGS_SECONDS_MAX)
    run.tally.hit("WC-LOST")


def is_broken(_: Run) -> None:
    """A fault of the harness."""
    raise ZeroDivisionError("ours")


def dies(_: Run) -> None:
    """A lane that ends by itself."""
    os._exit(3)


def goes_away(run: Run) -> None:
    """A target that is gone."""
    run.tally.hit("WC-BEFORE")
    raise TargetGoneError("the target stopped answering: it hangs up")


def test_every_check_of_a_lane_is_told_of() -> None:
    """When it begins, and when it ends; the recorded places are those of the schedule."""
    watched, found = Watched(), [check("one", hits), check("two", hits, alone=True)]
    with lanes(1, found, (SOMEWHERE,), profile=BRIEF, seed=1) as opened:
        seen = opened.go_through(watched)
    assert watched.said == [
        *(("begins", "one", 0), ("ends", 0)),
        *(("begins", "two", 0), ("ends", 0)),
    ]
    assert seen.tally.hits == {"WC-HIT": 2}
    events = [Event(task.number, instance, begins) for task, instance, begins in opened.places]
    assert_alone(tasks(*found), events, 1)


def test_an_exception_in_a_lane_is_a_fault_of_the_harness() -> None:
    """With its own traceback; what hangs beside it is ended."""
    with pytest.raises(LaneError, match="an exception in «broken»") as error:
        go_through([check("hangs", hangs, seconds=9), check("broken", is_broken)])
    assert "ZeroDivisionError: ours" in str(error.value.__cause__)
    assert "in is_broken" in str(error.value.__cause__)


def test_a_lane_that_dies_is_a_fault_of_the_harness() -> None:
    """Never a run that saw less."""
    with pytest.raises(LaneError, match="ended with 3 in the middle of «dies»"):
        go_through([check("hits", hits, seconds=9), check("dies", dies)])


def test_ctrl_c_ends_every_lane_with_what_it_saw() -> None:
    """And nothing more is begun."""
    seen = go_through([check("first", hangs_and_says_so, seconds=9), check("later", hits)], 1)
    assert seen.interrupted == "interrupted before the end"
    assert seen.tally.hits == {"WC-HANGS": 1}
    assert [timing.name for timing in seen.tally.timings] == ["first"]


def test_ctrl_c_ends_a_lane_that_could_not_hear_it(capfd: pytest.CaptureFixture[str]) -> None:
    """It comes again, and nothing is printed of the one that was dropped."""
    seen = go_through([check("hangs", hangs_where_nothing_can_be_raised)], 1)
    assert seen.interrupted == "interrupted before the end"
    assert seen.tally.hits == {"WC-HANGS": 1, "WC-WENT-ON": 1}
    assert capfd.readouterr().err == ""


def test_what_else_a_finalizer_raises_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """To whomever it was told before."""
    told: list[Any] = []
    monkeypatch.setattr(
        sys, "unraisablehook", hook := lambda dropped: told.append(dropped.exc_type)
    )
    with insistent():
        HangsWhenItIsGone(partial(divmod, 1, 0))
    assert told == [ZeroDivisionError]
    assert sys.unraisablehook is hook


def test_a_target_that_is_gone_ends_the_others_with_what_they_saw() -> None:
    """The run ends there, as it does without lanes."""
    found = [check("hangs", hangs), check("goes", goes_away, seconds=9), check("later", hits)]
    seen = go_through([*found[:2], replace(found[2], seconds=0)])
    assert seen.interrupted == "the target stopped answering: it hangs up"
    assert seen.tally.hits["WC-BEFORE"] == 1
    assert seen.tally.hits["WC-HIT"] == 0


def loses_one(run: Run) -> None:
    """An answer, and say how many were lost in a row."""
    run.tally.lose("a reason")
    run.tally.remark(f"{run.tally.silence.requests} in a row")


def test_answers_lost_in_a_row_are_counted_over_the_checks() -> None:
    """Each of which may lose fewer than end a run."""
    seen = go_through([check("one", loses_one), check("two", loses_one)], 1)
    assert seen.tally.remarks == ["1 in a row", "2 in a row"]


def loses_so_many(run: Run) -> None:
    """As many answers in a row as end a run, and nothing is asked afterwards."""
    for _ in range(LOST_IN_A_ROW_MAX):
        run.tally.lose("a reason")


def asks(run: Run) -> None:
    """Ask the target, if there is somebody."""
    expect_somebody(run.tally)
    run.tally.hit("WC-HIT")


def test_a_target_that_fell_silent_in_one_check_is_gone_in_the_next() -> None:
    """Which has lost nothing itself, and says why all the same."""
    seen = go_through([check("one", loses_so_many), check("two", asks), check("three", hits)], 1)
    assert seen.interrupted == "the target stopped answering: a reason"
    assert seen.tally.hits["WC-HIT"] == 0


def knows(run: Run) -> None:
    """Send an identifier that is made up, and one that is not."""
    run.tally.remark(fresh_key("h"))
    assert run.tally.logs is not None
    run.tally.logs.know("w_" + "k" * 20, "workflow_key")


def test_what_a_lane_sent_is_looked_for_in_the_logs(tmp_path: Any) -> None:
    """By the mark of this process, and by what has none."""
    log = tmp_path / "log"
    log.write_text("")
    looking = Logs([log])
    seen = go_through([check("one", knows)], target=replace(SOMEWHERE, logs=looking))
    (made_up,) = seen.tally.remarks
    assert made_up.endswith(logs.mark())
    log.write_text(f"a {made_up}\nb w_{'k' * 20}\n")
    looking.look()
    assert [place.member for place in looking.places] == ["holder", "workflow_key"]


# -- whether there are lanes at all ----------------------------------------------------------


def nobody(message: Message) -> HttpAnswer:
    """Whom there is nothing to forward to."""
    raise AssertionError(message)


def one_at_a_time() -> Talk:
    """A right server that serves a connection to its end before it takes up the next."""
    turn, serve = threading.Lock(), model_server()

    def talk(connection: socket.socket) -> None:
        with turn:
            while request := request_of(connection):
                body = request.partition(b"\r\n\r\n")[2]
                message = Message(method="POST", path=TOOL_PATH, headers={}, body=body)
                answer = serve(message, nobody)
                kind = answer.header("content-type") or ""
                connection.sendall(http(f"{answer.status} x", answer.body, kind))

    return talk


LIMITED = {
    **dict.fromkeys(("type", "title", "detail", "recovery"), "x"),
    "status": 429,
    "code": "RATE_LIMITED",
    "retry": True,
    "retry_after_seconds": 1,
}


def limited(message: Message, forward: Forward) -> HttpAnswer:
    """One that admits nobody now."""
    del message, forward
    headers = (("content-type", "application/problem+json"), ("retry-after", "1"))
    return HttpAnswer(status=429, headers=headers, body=json.dumps(LIMITED).encode())


def test_a_target_that_serves_one_connection_has_no_lanes() -> None:
    """Nor has one that limits the rate: both are right, and gone through one check at a time."""
    with talking(one_at_a_time()) as url:
        target = Target(address=Address.parse(url), seconds_max=0.3)
        assert not serves_several(target)
    with model_at_url() as target:
        assert serves_several(target)
    with model_at_url(limited) as target:
        assert not serves_several(target)


# -- what is shown ---------------------------------------------------------------------------


def test_every_lane_has_a_bar() -> None:
    """One that came to its end is full; one that was stopped stays where it was."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, color_system=None)
    with LiveProgress(console) as progress:
        progress.check("The first", 0)
        progress.check("The second", 1)
        progress.advance(3, 10, 1)
        progress.end(0)
        progress.check("The third", 0)
        progress.stopped()
    last = text.getvalue().rsplit("The first", 1)[1]
    first, second, third = last.splitlines()[:3]
    assert "1/1" in first
    assert "The second" in second
    assert "3/10" in second
    assert "The third" in third
    assert "0/1" in third
