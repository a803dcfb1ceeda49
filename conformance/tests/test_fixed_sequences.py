"""Fixed sequences, many at once: the same as one after the other, and each by itself."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from looking_away import Quiet
from modelled import model_at_url, model_server, one_connection_at_a_time
from refusals import refusing

from checkpoint_conformance import conversations, session
from checkpoint_conformance.checks import deadlines, vectors, walk
from checkpoint_conformance.client import Address, Client, Exchange, Flight, HttpAnswer, Owner, Pool
from checkpoint_conformance.conversations import IN_FLIGHT_MAX, hold_all
from checkpoint_conformance.fixed_sequences import (
    Due,
    FixedSequence,
    Making,
    at_once,
    send_all,
)
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering, with_members
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import ATTEMPTS_MAX, PROFILES, Run, Target
from checkpoint_conformance.session import TargetGoneError, ViolationError
from checkpoint_model import Claim, Status

SEQUENCES = 2 * IN_FLIGHT_MAX


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The right server, with controls."""
    with reference_server() as target:
        yield target


def run_of(target: Target) -> Run:
    """A run whose checks are called by hand."""
    return Run(target=target, profile=PROFILES["quick"], seed=1, progress=Quiet())


@contextmanager
def running(serve: Tamper) -> Iterator[Run]:
    """A run on a server of this process."""
    with model_at_url(serve) as target:
        run = run_of(target)
        yield run
        run.close()


def claim_and_look(number: int) -> FixedSequence:
    """Three requests, by a holder that is known by its number."""
    holder = f"h_{number:032d}"
    claim = Claim(holder=holder, claim_ttl_seconds=60, state_ttl_seconds=90, retry_failed=False)
    return at_once(claim, Status(holder=holder), claim)


def some() -> list[Making]:
    """More sequences than may be under way at once."""
    return [partial(claim_and_look, number) for number in range(SEQUENCES)]


def holder_of(message: Message) -> int:
    """Whose request it is."""
    return int(message.json["holder"].removeprefix("h_"))


# -- the same as one after the other ------------------------------------------------------


@pytest.mark.parametrize("check", [walk.walk_frozen, vectors.vectors], ids=["walk", "vectors"])
def test_all_at_once_is_what_one_after_the_other_is(
    target: Target, check: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same workflows are gone through, and the same is counted of every rule."""

    def gone_through(in_flight_max: int) -> tuple[Counter[str], Counter[str], int]:
        defaults = {**(hold_all.__kwdefaults__ or {}), "in_flight_max": in_flight_max}
        monkeypatch.setattr(hold_all, "__kwdefaults__", defaults)
        lock, workflows = threading.Lock(), defaultdict[str, list[str]](list)

        def tamper(message: Message, forward: Forward) -> HttpAnswer:
            answer = forward(message)
            with lock:
                asked = message.json
                told = json.loads(answer.body)
                kept = {k: v for k, v in asked.items() if k not in session.IDENTIFIERS}
                line = [kept, told.get("stage"), told.get("generation"), told.get("code")]
                workflows[asked["workflow_key"]].append(json.dumps(line))
            return answer

        with tampering(target.address, tamper) as address:
            run = run_of(replace(target, address=address))
            check(run)
            run.close()
        assert run.tally.failures == {}
        assert run.tally.incomplete == []
        return Counter(map("\n".join, workflows.values())), run.tally.hits, run.tally.requests

    assert gone_through(1) == gone_through(IN_FLIGHT_MAX)


def test_many_are_under_way_at_once() -> None:
    """A server that answers nobody until there is one for each connection is not waited for."""
    together = threading.Barrier(IN_FLIGHT_MAX, timeout=30)
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        together.wait()
        return right(message, forward)

    with running(serve) as run:
        send_all(run, some())
    assert run.tally.failures == {}
    assert run.tally.requests == 3 * SEQUENCES


def test_of_one_workflow_one_is_under_way() -> None:
    """In the order of the sequence, each after the answer to the one before; and never too many."""
    lock, under_way, most = threading.Lock(), Counter[int](), Counter[int]()
    of_all: list[int] = []
    actions = defaultdict[int, list[str]](list)
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        holder = holder_of(message)
        with lock:
            under_way[holder] += 1
            most[holder] = max(most[holder], under_way[holder])
            of_all.append(under_way.total())
            actions[holder].append(message.json["action"])
        answer = right(message, forward)
        with lock:
            under_way[holder] -= 1
        return answer

    with running(serve) as run:
        send_all(run, some())
    assert set(most.values()) == {1}
    assert max(of_all) <= IN_FLIGHT_MAX
    assert set(map(tuple, actions.values())) == {("claim", "status", "claim")}
    assert len(actions) == SEQUENCES


# -- each by itself -----------------------------------------------------------------------


def test_a_fault_in_one_ends_that_one_alone() -> None:
    """All others go to their end, and are judged."""
    right = model_server()
    asked = Counter[int]()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        asked[holder_of(message)] += 1
        answer = right(message, forward)
        wrong = holder_of(message) == 5 and message.json["action"] == "status"
        return with_members(answer, generation=2) if wrong else answer

    with running(serve) as run:
        send_all(run, some())
    assert set(run.tally.failures) == {"WC-STATUS-2"}
    failure = run.tally.failures["WC-STATUS-2"]
    assert {json.loads(sent.body)["holder"] for sent in failure.sequence} == {f"h_{5:032d}"}
    assert failure.moves == tuple(due.request for due in claim_and_look(5).requests[:2])
    assert asked == Counter({number: 2 if number == 5 else 3 for number in range(SEQUENCES)})
    assert run.tally.hits["WC-STATUS-2"] == SEQUENCES - 1


def test_a_lost_answer_begins_that_one_anew_alone() -> None:
    """On another workflow; the others are asked nothing twice."""
    right = model_server()
    keys = defaultdict[int, list[str]](list)

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        holder, status = holder_of(message), message.json["action"] == "status"
        keys[holder].append(message.json["workflow_key"])
        if holder == 3 and status and len(keys[3]) == 2:
            raise ConnectionAbortedError
        return right(message, forward)

    with running(serve) as run:
        send_all(run, some())
    assert run.tally.failures == {}
    assert (run.tally.incomplete, run.tally.lost) == ([], 1)
    first, second, *anew = keys.pop(3)
    assert first == second
    assert [first not in anew, len(anew), len(set(anew))] == [True, 3, 1]
    assert {len(asked) for asked in keys.values()} == {3}


def test_one_that_always_loses_its_answers_is_left_out() -> None:
    """After so many attempts; the run says so, and the others are gone through."""
    right = model_server()
    begun = Counter[int]()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        begun[holder_of(message)] += 1
        if holder_of(message) == 3:
            raise ConnectionAbortedError
        return right(message, forward)

    with running(serve) as run:
        send_all(run, some())
    assert begun[3] == ATTEMPTS_MAX
    assert run.tally.incomplete == ["a sequence of the check «» lost its answers"]
    assert begun.total() == ATTEMPTS_MAX + 3 * (SEQUENCES - 1)


def test_where_the_rate_is_limited_one_is_sent_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused request is sent again as it was; all at once would be refused in turns."""
    right = model_server()
    refused: list[bytes] = []
    bodies: list[bytes] = []
    told = False
    busy_after: list[bool] = []

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        bodies.append(message.body)
        if not refused and holder_of(message) == SEQUENCES // 2:
            refused.append(message.body)
            return refusing("RATE_LIMITED", 429)
        return right(message, forward)

    class Watched(Pool[Owner]):
        def send(self, owner: Owner, binding: Binding, compose: Callable[[Client], Flight]) -> None:
            if told:
                busy_after.append(self.busy)
            super().send(owner, binding, compose)

        def landed(self) -> list[tuple[Owner, Exchange]]:
            nonlocal told
            landed = super().landed()
            told = told or any(_status(exchange) == 429 for _, exchange in landed)
            return landed

    monkeypatch.setattr(session, "wait_seconds", lambda _: 0.0)
    monkeypatch.setattr(conversations, "Pool", Watched)
    with running(serve) as run:
        send_all(run, some())
    assert run.tally.failures == {}
    assert Counter(bodies)[refused[0]] == 3  # its claim is sent twice, and was refused once
    assert run.tally.requests == 3 * SEQUENCES + 1
    assert busy_after.count(False) >= SEQUENCES
    assert not any(busy_after)


@pytest.mark.parametrize(("one_by_one", "seconds_max"), [(True, 20.0), (False, 0.2)])
def test_a_target_that_serves_one_connection_is_asked_by_one(
    one_by_one: bool, seconds_max: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that the run has already; by any other nothing would ever be answered."""
    monkeypatch.setattr(deadlines, "STATUSES_PER_DEADLINE", 0)  # for they wait in turn
    with one_connection_at_a_time() as url:
        address = Address.parse(url)
        run = run_of(Target(address=address, seconds_max=seconds_max, one_by_one=one_by_one))
        try:
            run.session().send(Status())
            if one_by_one:
                send_all(run, some())
                deadlines.deadlines(run)
                assert (run.tally.lost, run.tally.incomplete) == (0, [])
                assert run.tally.hits["WC-CLAIM-1"] >= SEQUENCES
            else:
                with pytest.raises(TargetGoneError, match="stopped answering"):
                    send_all(run, some())
        finally:
            run.close()
    assert run.tally.failures == {}


def test_who_is_gone_is_not_asked_on() -> None:
    """Once nothing was answered for some time, whatever is still to be sent."""

    def serve(_: Message, __: Forward) -> HttpAnswer:
        raise ConnectionAbortedError

    with running(serve) as run, pytest.raises(TargetGoneError, match="stopped answering"):
        send_all(run, some())
    assert run.tally.requests <= IN_FLIGHT_MAX + session.LOST_IN_A_ROW_MAX


# -- time ---------------------------------------------------------------------------------


def timed(claimed: dict[str, int]) -> Making:
    """Claimed, lapsed, claimed anew, and looked at as it expires."""

    def make() -> FixedSequence:
        ann, bob = "h_" + "a" * 32, "h_" + "b" * 32
        claims = [
            Claim(holder=holder, claim_ttl_seconds=20, state_ttl_seconds=30, retry_failed=False)
            for holder in (ann, bob)
        ]
        return FixedSequence(
            requests=[
                Due(request=claims[0]),
                Due(request=claims[1], at_ms=claimed["anew"]),
                Due(request=Status(holder=bob), at_ms=claimed["looked"]),
            ]
        )

    return make


MOMENTS = (
    {"anew": 20_000, "looked": 29_999},
    {"anew": 25_000, "looked": 30_000},
    {"anew": 25_000, "looked": 29_999},
)


def test_the_clock_moves_once_for_all(target: Target) -> None:
    """To each of the moments at which something is due, however many sequences wait for it."""
    run = run_of(target)
    with run.frozen():
        send_all(run, [timed(claimed) for claimed in MOMENTS])
    run.close()
    assert run.tally.failures == {}
    assert run.tally.hits["WC-CLAIM-8"] == 3
    assert run.tally.hits["WC-STATUS-1"] == 1
    assert run.tally.hits["WC-CTL-1"] == len([20_000, 25_000, 29_999, 30_000])


def test_a_sequence_remembers_its_own_waits_and_can_be_repeated_alone(target: Target) -> None:
    """What the clock did for others in between is one move of its own."""
    recovered: list[str] = []

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        told: dict[str, Any] = json.loads(answer.body)
        if not told.get("recovered"):
            return answer
        recovered.append(message.json["workflow_key"])
        return with_members(answer, recovered=False) if len(recovered) > 1 else answer

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        with run.frozen():
            send_all(run, [timed(claimed) for claimed in MOMENTS])
            failure = run.tally.failures["WC-CLAIM-8"]
            told = [json.loads(line.body) for line in failure.sequence if line.on_controls]
            assert told == [{"freeze": True}, {"advance_ms": 25_000}]
            assert failure.moves is not None
            first, waited_ms, second = failure.moves
            assert isinstance(first, Claim)
            assert isinstance(second, Claim)
            assert waited_ms == 25_000
            again = run.session()
            again.send(first)
            run.advance(25_000, again)
            with pytest.raises(ViolationError, match="WC-CLAIM-8"):
                again.send(second)
        run.close()


def test_the_clock_out_of_sight_is_no_fault_of_the_sequences(target: Target) -> None:
    """Where the control stops answering, what is left is left out and said so."""
    assert target.controls is not None
    moves: list[bytes] = []

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if b"advance_ms" in message.body or moves:
            moves.append(message.body)
            raise ConnectionAbortedError
        return forward(message)

    def check(run: Run) -> None:
        with run.frozen():
            send_all(run, [timed(claimed) for claimed in MOMENTS])

    with tampering(target.controls, tamper) as address:
        run = run_of(replace(target, controls=address))
        with pytest.raises(session.LostError, match="/reset"):
            check(run)  # which tells the controls at the end to be as they were
        run.close()
    with target.controls_client() as controls:
        controls.exchange("POST", "/reset", b"{}")
    assert run.tally.failures == {}
    assert run.tally.incomplete == ["the sequences of the check «» lost sight of the clock"]
    assert run.tally.hits["WC-CLAIM-1"] == len(MOMENTS)


def _status(exchange: Exchange) -> int:
    return exchange.answer.status if isinstance(exchange.answer, HttpAnswer) else 0
