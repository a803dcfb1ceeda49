"""The linearizability checker: named cases, every fault of its own, and trying everything."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from permutations import explained, holds
from simulated import Load, simulate
from small_histories import AIMS, Aim, draw

from checkpoint_model import (
    Abandon,
    Claim,
    EvidenceType,
    Record,
    Request,
    Stage,
    Status,
    Step,
    Success,
    Transition,
    answer,
    format_timestamp,
    linearizability,
    parse_timestamp,
    step,
)
from checkpoint_model.linearizability import (
    Answered,
    ClockViolation,
    Illegal,
    Linearizable,
    Offsets,
    Operation,
    Placed,
    Seen,
    Unknown,
    Verdict,
    check,
    check_seen,
    find_order,
    retrace,
    see,
)

SHARE = 4000
"""Histories of each kind that are tried by both judges: 20 000 together."""
T = 1_795_000_000_000
A = Claim(holder="h_a", claim_ttl_seconds=1, state_ttl_seconds=3, retry_failed=True)
B = replace(A, holder="h_b")
C = replace(A, holder="h_c")
LOOK = Status(holder="h_z")
VERIFIED = Transition(
    holder="h_a",
    generation=1,
    to_stage=Stage.CALLER_VERIFIED,
    observation_key="o_1",
    evidence_type=EvidenceType.EXTERNAL_READ,
)


class History:
    """Builds a history step by step: what the store did, and what was seen of it."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.operations: list[Operation] = []

    def call(
        self,
        request: Request,
        at_ms: int,
        interval: tuple[int, int],
        *,
        answer_to: Request | None = None,
        record: Record | str | None = "own",
    ) -> "History":
        """A call whose answer came; with ``record`` the answer is as if that were the state."""
        before = self.record if isinstance(record, str) else record
        done = step(before, answer_to or request, T + at_ms)
        if isinstance(record, str):
            self.record = done.record
        self._add(request, interval[0], interval[1], _answered(done, answer_to or request))
        return self

    def lose(
        self,
        request: Request,
        called_ns: int,
        *,
        applied_at_ms: int | None = None,
        earliest_ms: int | None = None,
    ) -> "History":
        """A call whose answer did not come, and whether it was applied all the same."""
        if applied_at_ms is not None:
            self.record = step(self.record, request, T + applied_at_ms).record
        earliest = None if earliest_ms is None else T + earliest_ms
        self._add(request, called_ns, None, None, earliest)
        return self

    def _add(
        self,
        request: Request,
        called_ns: int,
        returned_ns: int | None,
        came: Answered | None,
        earliest_ms: int | None = None,
    ) -> None:
        self.operations.append(
            Operation(
                client=f"c{len(self.operations)}",
                request=request,
                called_ns=called_ns,
                returned_ns=returned_ns,
                answer=came,
                earliest_ms=earliest_ms,
            )
        )


def _answered(done: Step, request: Request) -> Answered:
    members = answer(done, request)
    return Answered(
        status=200 if isinstance(done.outcome, Success) else members["status"], members=members
    )


def _claimed(claim: Claim, at_ms: int) -> Record:
    record = step(None, claim, T + at_ms).record
    assert record is not None
    return record


# -- named cases, and the faults of a checker that each of them catches -----------------

CASES: dict[str, tuple[list[Operation], type]] = {
    "one order": (
        History().call(A, 0, (0, 9)).call(B, 1, (0, 9)).call(VERIFIED, 2, (10, 11)).operations,
        Linearizable,
    ),
    "two acquired the same generation": (
        History().call(A, 0, (0, 9)).call(B, 1, (0, 9), record=None).operations,
        Illegal,
    ),
    "two acquired by one request sent twice": (
        # In one millisecond, too, the second of two equal claims finds the first's.
        History().call(A, 0, (0, 9)).call(A, 0, (0, 9), record=None).operations,
        Illegal,
    ),
    "a refusal that nothing justifies": (
        # Nobody else ever claimed, so nobody can have held it.
        History().call(B, 0, (0, 9), record=step(None, A, T).record).operations,
        Illegal,
    ),
    "intervals that touch": (
        # B had its answer at 5, when A called: A may still be first.
        History().call(A, 0, (5, 9)).call(B, 0, (0, 5)).operations,
        Linearizable,
    ),
    "intervals that do not touch": (
        History().call(A, 0, (6, 9)).call(B, 0, (0, 5)).operations,
        Illegal,
    ),
    "lost, and applied": (
        History().lose(A, 0, applied_at_ms=0).call(B, 5, (10, 19)).operations,
        Linearizable,
    ),
    "lost, and not applied": (
        History().lose(A, 0).call(B, 5, (10, 19)).operations,
        Linearizable,
    ),
    "lost, and applied twice": (
        # It may be applied once; two takeovers in its name would need it twice.
        History()
        .call(A, 0, (0, 1))
        .lose(B, 2, applied_at_ms=1000)
        .lose(Abandon(holder="h_b", generation=2), 3, applied_at_ms=1001)
        .call(
            LOOK,
            1002,
            (4, 9),
            record=step(
                step(
                    step(step(None, A, T).record, B, T + 1000).record,
                    Abandon(holder="h_b", generation=2),
                    T + 1001,
                ).record,
                B,
                T + 1002,
            ).record,
        )
        .operations,
        Illegal,
    ),
    "lost, and applied before it was called": (
        History().call(LOOK, 5, (0, 1), record=step(None, A, T).record).lose(A, 2).operations,
        Illegal,
    ),
    "lost, and applied just before a deadline": (
        # The claim is still active at 1000 only if it was made after 0, and the answers tell
        # neither its deadline nor any time near.
        History()
        .lose(A, 0, applied_at_ms=1)
        .call(
            Transition(
                holder="h_a",
                generation=1,
                to_stage=Stage.CALLER_VERIFIED,
                observation_key="o_1",
                evidence_type=EvidenceType.EXTERNAL_READ,
            ),
            1000,
            (10, 19),
        )
        .operations,
        Linearizable,
    ),
    "lost, and applied on entering a group": (
        # The take-over is possible at 1000 at the earliest, and seen at 1000.
        History()
        .call(A, 0, (0, 1))
        .lose(B, 2, applied_at_ms=1000)
        .call(LOOK, 1000, (3, 9))
        .call(C, 1000, (3, 9))
        .operations,
        Linearizable,
    ),
    "lost twice, and the record's end seen as a claim's": (
        # Nothing tells when the record was made but where the later claim is cut off.
        History()
        .lose(A, 0, applied_at_ms=37, earliest_ms=0)
        .lose(B, 1, applied_at_ms=2500, earliest_ms=2450)
        .call(C, 2900, (10, 19))
        .operations,
        Linearizable,
    ),
    "two lives that went, and only one order of them in time": (
        # What the second leaves room for depends on which of the two lost claims it was of.
        History()
        .lose(B, 1, applied_at_ms=0)
        .call(replace(VERIFIED, holder="h_z", generation=2), 1500, (10, 11))
        .lose(replace(A, state_ttl_seconds=2), 0, applied_at_ms=9000)
        .call(replace(VERIFIED, holder="h_z"), 9500, (12, 13))
        .lose(replace(C, state_ttl_seconds=60), 3, applied_at_ms=11_500)
        .call(LOOK, 14_000, (14, 15))
        .operations,
        Linearizable,
    ),
    "a lost holder that came too late": (
        # By the clocks it was sent half a second after its claim had lapsed.
        History()
        .call(A, 0, (0, 1))
        .lose(VERIFIED, 2, earliest_ms=1500)
        .call(LOOK, 1600, (3, 9), record=step(step(None, A, T).record, VERIFIED, T + 5).record)
        .operations,
        Illegal,
    ),
    "the server's state taken over": (
        History()
        .call(A, 0, (0, 1))
        .call(
            LOOK,
            5,
            (2, 3),
            record=step(
                step(step(None, A, T).record, Abandon(holder="h_a", generation=1), T + 1).record,
                B,
                T + 2,
            ).record,
        )
        .operations,
        Illegal,
    ),
    "a state before the first call": (
        History().call(LOOK, 5, (0, 1), record=step(None, A, T).record).operations,
        Illegal,
    ),
    "nothing at all": ([], Unknown),
    "only answers that say nothing": (
        [Operation(client="c", request=A, called_ns=0, returned_ns=None, answer=None)],
        Unknown,
    ),
    "a time before that of an earlier change": (
        History()
        .call(A, 100, (0, 1))
        .call(LOOK, 50, (2, 3), record=replace(_claimed(A, 100), changed_at_ms=T))
        .operations,
        ClockViolation,
    ),
    "times of observers alone": (
        # The second look has the earlier time; between the two nothing changed.
        History().call(A, 0, (0, 1)).call(LOOK, 50, (2, 3)).call(LOOK, 40, (4, 5)).operations,
        Linearizable,
    ),
    "the time of the last change": (
        # The clock was set back, and the store keeps to the record's last change (WC-TIME-4).
        History()
        .call(A, 100, (0, 1))
        .call(Abandon(holder="h_a", generation=1), 50, (2, 3))
        .operations,
        Linearizable,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_its_verdict(name: str) -> None:
    """Each is named for what decides it."""
    operations, expected = CASES[name]
    verdict = check(operations)
    assert type(verdict) is expected, verdict
    if isinstance(verdict, Linearizable):
        assert holds(operations, verdict.order)


def _accept_refusals(patch: pytest.MonkeyPatch) -> None:
    fits = linearizability._Expecting.fits

    def lenient(self: Any, done: Step, seen: Seen) -> bool:
        if "code" in (seen.members or {}):
            return True
        return fits(self, done, seen)

    patch.setattr(linearizability._Expecting, "fits", lenient)


def _take_lost_as_applied(patch: pytest.MonkeyPatch) -> None:
    find = linearizability._find

    def needing_all(seen: Sequence[Seen], steps_max: int, *crashes: Any) -> Any:
        found, search = find(seen, steps_max, *crashes)
        if isinstance(found, Linearizable) and len(found.order) < len(seen):
            return Unknown(steps=0, why=""), search
        return found, search

    patch.setattr(linearizability, "_find", needing_all)


def _take_lost_as_not_applied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(linearizability._Lost, "of", lambda *_: iter(()))


def _half_open_intervals(patch: pytest.MonkeyPatch) -> None:
    original = linearizability.see

    def shorter(operation: Operation) -> Seen | None:
        seen = original(operation)
        return seen and seen._replace(returned_ns=seen.returned_ns - 1)

    patch.setattr(linearizability, "see", shorter)


def _wider_intervals(patch: pytest.MonkeyPatch) -> None:
    original = linearizability.see

    def wider(operation: Operation) -> Seen | None:
        seen = original(operation)
        return seen and seen._replace(returned_ns=seen.returned_ns + 1)

    patch.setattr(linearizability, "see", wider)


def _lost_ones_forever_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        linearizability._Lost,
        "_first",
        lambda _self, members, _bounds, placed: next((i for i in members if not placed[i]), None),
    )


def _lost_ones_at_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(linearizability._Lost, "_earliest", lambda *_: -(1 << 60))


def _apply_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        linearizability._Lost, "_first", lambda _self, members, _bounds, _placed: members[0]
    )


def _adopt_the_servers_state(patch: pytest.MonkeyPatch) -> None:
    fits = linearizability._Expecting.fits

    def adopting(self: Any, done: Step, seen: Seen) -> bool:
        return fits(self, done, seen) or (
            isinstance(done.outcome, Success)
            and seen.generation is not None
            and done.observed_at_ms == seen.observed_at_ms
        )

    patch.setattr(linearizability._Expecting, "fits", adopting)


def _guess_the_initial_state(patch: pytest.MonkeyPatch) -> None:
    original = step

    def guessing(record: Record | None, request: Request, now_ms: int) -> Step:
        if record is None and isinstance(request, Status):
            record = original(None, A, T).record
        return original(record, request, now_ms)

    patch.setattr(linearizability, "step", guessing)


def _leave_out_deadlines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(linearizability, "_between", lambda *_: [])


def _leave_out_the_group_entry(patch: pytest.MonkeyPatch) -> None:
    of = linearizability._Lost.of

    def before_it(
        self: Any, record: Record | None, until_ms: int, bounds: Any, placed: bytearray
    ) -> Any:
        return of(self, record, until_ms - 1, bounds, placed)

    patch.setattr(linearizability._Lost, "of", before_it)


def _pass_on_nothing(patch: pytest.MonkeyPatch) -> None:
    find = linearizability._find

    def empty_passes(seen: Sequence[Seen], steps_max: int, *crashes: Any) -> Any:
        if all(one.observed_at_ms is None for one in seen):
            return Linearizable(order=()), None
        return find(seen, steps_max, *crashes)

    patch.setattr(linearizability, "_find", empty_passes)


def _ignore_the_order_of_changes(patch: pytest.MonkeyPatch) -> None:
    begin = linearizability._Search.__init__

    def timeless(self: Any, *given: Any, **options: Any) -> None:
        begin(self, *given, **(options | {"timeless": True}))

    patch.setattr(linearizability._Search, "__init__", timeless)


def _hold_observers_to_the_order_of_time(patch: pytest.MonkeyPatch) -> None:
    find = linearizability._find

    def strict(seen: Sequence[Seen], steps_max: int, *crashes: Any) -> Any:
        in_time = sorted(range(len(seen)), key=lambda i: seen[i].observed_at_ms or 0)
        if linearizability._out_of_order(seen, in_time):
            return Unknown(steps=0, why=""), None
        return find(seen, steps_max, *crashes)

    patch.setattr(linearizability, "_find", strict)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "refusals accepted unchecked": (_accept_refusals, "a refusal that nothing justifies"),
    "unknown taken as applied": (_take_lost_as_applied, "lost, and not applied"),
    "unknown taken as not applied": (_take_lost_as_not_applied, "lost, and applied"),
    "half-open intervals": (_half_open_intervals, "intervals that touch"),
    "intervals too wide": (_wider_intervals, "intervals that do not touch"),
    "lost ones placed before they were called": (
        _lost_ones_forever_early,
        "lost, and applied before it was called",
    ),
    "lost ones placed at any time": (_lost_ones_at_any_time, "a lost holder that came too late"),
    "lost ones placed twice": (_apply_twice, "lost, and applied twice"),
    "the model adopting the server's state": (
        _adopt_the_servers_state,
        "the server's state taken over",
    ),
    "guessed initial state": (_guess_the_initial_state, "a state before the first call"),
    "deadline boundaries left out": (
        _leave_out_deadlines,
        "lost, and applied just before a deadline",
    ),
    "group entry left out": (
        _leave_out_the_group_entry,
        "lost, and applied on entering a group",
    ),
    "empty history passing": (_pass_on_nothing, "nothing at all"),
    "history of lost answers passing": (_pass_on_nothing, "only answers that say nothing"),
    "the store's time not looked at": (
        _ignore_the_order_of_changes,
        "a time before that of an earlier change",
    ),
    "observers held to the order of time": (
        _hold_observers_to_the_order_of_time,
        "times of observers alone",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_checker_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault in it, the case that is named for it has the wrong verdict."""
    put_in, name = FAULTS[fault]
    operations, expected = CASES[name]
    assert type(check(operations)) is expected
    put_in(monkeypatch)
    assert type(check(operations)) is not expected


# -- against trying everything ----------------------------------------------------------


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: aim.name)
def test_the_checker_agrees_with_trying_everything(aim: Aim, part: int) -> None:
    """Every verdict of 20 000 small histories, random and aimed, and every witness."""
    verdicts: dict[type, int] = dict.fromkeys((Linearizable, Illegal, ClockViolation, Unknown), 0)
    for number in range(part * SHARE // 4, (part + 1) * SHARE // 4):
        history = draw(Random(f"{aim.name} {number}"), aim)
        verdict = check(history)
        verdicts[type(verdict)] += 1
        if isinstance(verdict, Unknown):
            assert verdict.steps == 0, (aim.name, number)  # nothing was answered
            continue
        assert isinstance(verdict, Linearizable) == explained(history), (aim.name, number)
        if isinstance(verdict, Linearizable):
            assert holds(history, verdict.order), (aim.name, number)
        elif all(one.answer is not None and one.answer.status < 500 for one in history):
            out_of_time = explained(history, timeless=True)
            assert isinstance(verdict, ClockViolation) == out_of_time, (aim.name, number)
    assert all(verdicts[kind] for kind in (Linearizable, Illegal, ClockViolation)), verdicts


def test_the_times_that_matter_are_all() -> None:
    """Of a lost answer every single millisecond is tried, and the verdict is the same."""
    aim = replace(AIMS[2], sizes=(2,), lost_max=1)
    tried = 0
    for number in range(200):
        history = draw(Random(f"every ms {number}"), aim)
        if sum(one.answer is None for one in history) != 1:
            continue
        told = [
            parse_timestamp(members["observed_at"])
            for one in history
            if one.answer is not None
            and (members := one.answer.members or {}).get("observed_at") is not None
        ]
        if not told or max(told) - min(told) > 1500:
            continue
        every = range(min(told) - 1200, max(told) + 1)
        expected = explained(history, times=every)
        assert isinstance(check(history), Linearizable) == expected, number
        tried += 1
    assert tried > 10


# -- what must not matter ---------------------------------------------------------------

SMALL = Load(clients=12, calls_each=8, lost=0.15, claim_ttl_seconds=1, state_ttl_seconds=2)


def _right(seed: int) -> list[Operation]:
    (operations,) = simulate(Random(seed), SMALL).values()
    return operations


def _wrong(seed: int) -> list[Operation]:
    """One answer was decided on a state that had gone, if that shows."""
    rng, operations = Random(seed), _right(seed)
    told = [i for i, one in enumerate(operations) if one.answer is not None]
    i, j = rng.sample(told, 2)
    operations[i] = replace(operations[i], answer=operations[j].answer)
    return operations


SEEDS = range(20)


@pytest.mark.parametrize("make", [_right, _wrong])
def test_the_order_in_which_operations_are_given_does_not_matter(
    make: Callable[[int], list[Operation]],
) -> None:
    """They are a set."""
    for seed in SEEDS[:8]:
        operations = make(seed)
        shuffled = list(operations)
        Random(seed).shuffle(shuffled)
        assert type(check(shuffled)) is type(check(operations)), seed


@pytest.mark.parametrize("make", [_right, _wrong])
def test_when_it_was_does_not_matter(make: Callable[[int], list[Operation]]) -> None:
    """Both clocks may be set to anything."""
    for seed in SEEDS[:8]:
        operations = make(seed)
        moved = [_moved(operation, ns=987_654_321, ms=-123_456_789) for operation in operations]
        assert type(check(moved)) is type(check(operations)), seed


def _moved(operation: Operation, *, ns: int, ms: int) -> Operation:
    came = operation.answer
    if came is not None and came.members is not None:
        members = {
            name: format_timestamp(parse_timestamp(value) + ms)
            if name.endswith("_at") and value is not None
            else value
            for name, value in came.members.items()
        }
        came = replace(came, members=members)
    returned_ns = operation.returned_ns
    return replace(
        operation,
        called_ns=operation.called_ns + ns,
        returned_ns=None if returned_ns is None else returned_ns + ns,
        answer=came,
    )


def test_an_observer_that_is_left_out_does_not_matter() -> None:
    """What changed nothing explains nothing either."""
    for seed in SEEDS:
        operations, rng = _right(seed), Random(seed)
        verdict = check(operations)
        assert isinstance(verdict, Linearizable)
        steps = list(retrace(operations, verdict.order))
        observers = [
            placed.operation
            for placed, before, after in zip(verdict.order[1:], steps, steps[1:], strict=False)
            if before.record is after.record and operations[placed.operation].answer is not None
        ]
        gone = set(rng.sample(observers, 5))
        left = [one for i, one in enumerate(operations) if i not in gone]
        assert isinstance(check(left), Linearizable), seed


def test_a_wider_interval_never_makes_a_history_illegal() -> None:
    """It only allows more orders."""
    for seed in SEEDS:
        rng = Random(seed)
        operations = [
            one
            if one.returned_ns is None
            else replace(
                one,
                called_ns=one.called_ns - rng.randrange(10**8),
                returned_ns=one.returned_ns + rng.randrange(10**8),
            )
            for one in _right(seed)
        ]
        assert isinstance(check(operations), Linearizable), seed


def test_an_answer_that_gets_lost_never_makes_a_history_illegal() -> None:
    """Not to know is no contradiction."""
    for seed in SEEDS:
        operations = _right(seed)
        for i in Random(seed).sample(range(len(operations)), 4):
            operations[i] = replace(operations[i], answer=None, returned_ns=None)
        assert isinstance(check(operations), Linearizable), seed


# -- what is said -----------------------------------------------------------------------


def test_an_illegal_history_is_explained() -> None:
    """The shortest prefix, the first that cannot be placed, what it should say, and the state."""
    history = History().call(A, 0, (0, 9)).call(B, 1, (0, 9), record=None).call(LOOK, 5, (10, 11))
    verdict = check(history.operations)
    assert isinstance(verdict, Illegal)
    assert (verdict.order, verdict.operation) == ((Placed(0, T),), 1)
    assert (verdict.rule, verdict.differs) == ("WC-CLAIM-5", ("code",))
    assert verdict.expected["code"] == "CHECKPOINT_NOT_HELD"
    assert verdict.got["acquired"] is True
    assert verdict.record == step(None, A, T).record
    assert "CHECKPOINT_NOT_HELD (claimed, generation 1)" in verdict.why


def test_the_shortest_prefix_leaves_out_what_comes_after() -> None:
    """However long the history goes on."""
    history = History().call(A, 0, (0, 9)).call(B, 1, (0, 9), record=None)
    for number in range(300):
        history.call(LOOK, 5 + number, (10 + number, 11 + number))
    verdict = check(history.operations)
    assert isinstance(verdict, Illegal)
    assert (len(verdict.order), verdict.operation) == (1, 1)


def test_a_clock_violation_names_both_operations() -> None:
    """The one whose time cannot be, and the change that it claims to precede."""
    operations, _ = CASES["a time before that of an earlier change"]
    verdict = check(operations)
    assert isinstance(verdict, ClockViolation)
    assert (verdict.earlier, verdict.operation) == (0, 1)
    assert verdict.expected == f"{format_timestamp(T + 100)} or later"
    assert verdict.got == format_timestamp(T + 50)


def test_observers_out_of_time_are_remarked() -> None:
    """No fault by the contract, and worth saying."""
    verdict = check(CASES["times of observers alone"][0])
    assert isinstance(verdict, Linearizable)
    assert len(verdict.remarks) == 1
    assert check(CASES["one order"][0]) == Linearizable(
        order=(Placed(0, T), Placed(1, T + 1), Placed(2, T + 2))
    )


def test_a_spent_budget_is_unknown() -> None:
    """Not decided, and no pass."""
    verdict = check(CASES["lost, and applied"][0], steps_max=0)
    assert isinstance(verdict, Unknown)
    assert "Not decided within 0 steps" in verdict.why


def test_an_answer_without_a_time_cannot_be_placed() -> None:
    """It was decided, and nobody can say when."""
    came = Answered(status=200, members={"acquired": True})
    operation = Operation(client="c", request=A, called_ns=0, returned_ns=1, answer=came)
    verdict = check([operation])
    assert isinstance(verdict, Illegal)
    assert (verdict.rule, verdict.differs) == ("WC-TIME-5", ("observed_at",))


@pytest.mark.parametrize(
    "member",
    [name for name in answer(step(None, A, T), A) if name not in ("observed_at", "workflow_hash")],
)
def test_every_member_of_a_result_is_compared(member: str) -> None:
    """One that is wrong, of another JSON type, or missing, makes the answer another."""
    right = History().call(A, 0, (0, 9)).operations[0]
    assert right.answer is not None
    assert right.answer.members is not None
    value = right.answer.members[member]
    others: list[Any] = ["other", 7, [], None, True, False]
    if type(value) is int:
        others.append(float(value))
    for other in others:
        if type(other) is type(value) and other == value:
            continue
        members = {**right.answer.members, member: other}
        wrong = replace(right, answer=replace(right.answer, members=members))
        assert isinstance(check([wrong]), Illegal), other
    left = {name: v for name, v in right.answer.members.items() if name != member}
    assert isinstance(check([replace(right, answer=replace(right.answer, members=left))]), Illegal)


@pytest.mark.parametrize(
    "member", ["code", "stage", "generation", "claim_expires_at", "configuration"]
)
def test_every_member_of_a_problem_is_compared(member: str) -> None:
    """Those that follow from the record, whether they are there or not."""
    other = replace(B, claim_ttl_seconds=2)
    history = History().call(A, 0, (0, 1)).call(other, 5, (2, 3)).operations
    assert isinstance(check(history), Linearizable)
    came = history[1].answer
    assert came is not None
    assert came.members is not None
    left = {name: v for name, v in came.members.items() if name != member}
    # Without a code it is no error of the contract, and tells nothing.
    for members in ([left] if member != "code" else []) + [
        {**came.members, member: "CHECKPOINT_NOT_HELD"}
    ]:
        wrong = [history[0], replace(history[1], answer=replace(came, members=members))]
        assert not isinstance(check(wrong), Linearizable), members


def test_the_answer_is_compared_as_the_wire_module_says_it() -> None:
    """The quick comparison of thousands of right answers has the result of the plain one."""
    fits = linearizability._Expecting().fits
    for seed in SEEDS:
        record: Record | None = None
        for operation in _right(seed):
            if operation.answer is None or operation.answer.members is None:
                continue
            seen = see(operation)
            assert seen is not None
            for at_ms in (T, seen.observed_at_ms or T, (seen.observed_at_ms or T) + 1):
                done = step(record, operation.request, at_ms)
                said = {k: v for k, v in operation.answer.members.items() if k != "workflow_hash"}
                assert fits(done, seen) == (answer(done, operation.request) == said)
                if fits(done, seen):
                    record = done.record


# -- scale, without a clock -------------------------------------------------------------


@pytest.mark.parametrize("lost", [0.0, 0.05, 0.2])
def test_the_steps_that_are_tried_grow_with_the_history(lost: float) -> None:
    """5 000 operations of 100 clients on one workflow take a few steps of the model each."""
    load = Load(clients=100, calls_each=50, lost=lost, claim_ttl_seconds=1, state_ttl_seconds=2)
    for seed in range(2):
        (operations,) = simulate(Random(seed), load).values()
        verdict = check(operations, steps_max=20 * len(operations))
        assert isinstance(verdict, Linearizable), verdict


def test_many_lost_answers_of_one_kind_are_not_tried_one_by_one() -> None:
    """A thousand lost claims of strangers before a take-over that none of them made."""
    history = History().call(A, 0, (0, 1))
    for number in range(1000):
        history.lose(replace(A, holder=f"h_{number}"), 2 + number)
    history.call(B, 1500, (5000, 5001)).call(LOOK, 1501, (5002, 5003), record=None)
    assert isinstance(check(history.operations, steps_max=2000), Illegal)


def test_without_an_explanation_it_is_the_same_verdict() -> None:
    """What judges a million operations asks for the order alone."""
    for operations, expected in CASES.values():
        seen = [one for operation in operations if (one := see(operation)) is not None]
        found = find_order(seen)
        verdict: Verdict = check_seen(seen)
        assert type(verdict) is expected
        assert (found == verdict) if expected in (Linearizable, Unknown) else (found is None)


# -- the two clocks ---------------------------------------------------------------------

MS = 1_000_000


def _offsets(*calls: tuple[float, float, int], steps: Sequence[tuple[int, int]] = ()) -> Offsets:
    offsets = Offsets(steps)
    for number, (called_ms, returned_ms, observed_ms) in enumerate(calls):
        offsets.add(number, int(called_ms * MS), int(returned_ms * MS), observed_ms)
    return offsets


@pytest.mark.parametrize("reverse", [False, True])
def test_one_offset_explains_the_times_of_a_right_store(reverse: bool) -> None:
    """However long the calls take, and in whatever order they are told."""
    rng = Random(5)
    calls = []
    for number in range(500):
        at_ms = 40 * number
        calls.append((at_ms - rng.random() * 30, at_ms + 1 + rng.random() * 30, T + at_ms))
    assert _offsets(*(reversed(calls) if reverse else calls)).fault() is None


@pytest.mark.parametrize("off_ms", [-80, 80])
def test_a_time_outside_its_call_contradicts_another(off_ms: int) -> None:
    """By more than clocks are ever off."""
    right = [(float(at), at + 2.0, T + at + 1) for at in range(0, 9000, 500)]
    for place in range(len(right)):
        calls = list(right)
        called, returned, observed = calls[place]
        calls[place] = (called, returned, observed + off_ms)
        fault = _offsets(*calls).fault()
        assert fault is not None
        assert place in (fault.early, fault.late)
        assert 0 < fault.off_by_ms < abs(off_ms)


def test_a_clock_that_runs_fast_is_found() -> None:
    """Four per cent, which no disciplined clock is off."""
    calls = [(float(at), at + 2.0, T + int(at * 1.04)) for at in range(0, 60_000, 500)]
    assert _offsets(*calls).fault() is not None


def test_a_clock_that_drifts_a_little_is_none() -> None:
    """As far as clocks are disciplined."""
    calls = [(float(at), at + 2.0, T + int(at * 1.0004)) for at in range(0, 600_000, 5000)]
    assert _offsets(*calls).fault() is None


def test_a_step_that_was_told_starts_another_offset() -> None:
    """And what overlaps it is held to neither."""
    calls = ((0.0, 1.0, T), (5.0, 15.0, T + 7), (20.0, 21.0, T + 3600_020))
    assert _offsets(*calls).fault() is not None
    assert _offsets(*calls, steps=[(10 * MS, 11 * MS)]).fault() is None


def test_the_earliest_time_of_a_lost_call() -> None:
    """By the offset, less the tolerance; unknown where nothing was answered under a later one."""
    calls = ((0.0, 2.0, T + 1), (1000.0, 1001.0, T + 1000))
    earliest = _offsets(*calls).earliest_ms(500 * MS)
    assert earliest is not None
    assert T + 500 - 60 < earliest < T + 500 - 40
    assert _offsets(*calls, steps=[(2000 * MS, 2001 * MS)]).earliest_ms(500 * MS) is None
    assert Offsets().earliest_ms(0) is None


@pytest.mark.parametrize(
    ("ahead_ms", "until_ns", "least_ms"),
    [
        (10_000, None, 500),  # set forward: its own time is the least
        (-10_000, None, 2000 - 10_000),  # set back: it may be applied then, and show that time
        (-10_000, 1999 * MS, 500),  # too late to matter
        (-10_000, 2000 * MS, 2000 - 10_000),
    ],
)
def test_a_clock_that_is_set_back_later_makes_a_lost_call_s_time_earlier(
    ahead_ms: int, until_ns: int | None, least_ms: int
) -> None:
    """As far as whatever it may bear on goes on for so long."""
    before = ((0.0, 2.0, T + 1), (1000.0, 1001.0, T + 1000))
    after = ((3000.0, 3001.0, T + 3000 + ahead_ms),)
    offsets = _offsets(*before, *after, steps=[(2000 * MS, 2001 * MS)])
    earliest = offsets.earliest_ms(500 * MS, until_ns)
    assert earliest is not None
    assert T + least_ms - 60 < earliest < T + least_ms - 40
    assert offsets.earliest_ms(2000 * MS) is None  # while it is moved


def test_lost_answers_between_lives_cost_hardly_more_than_one_step_each() -> None:
    """Records expire between the calls, and a claim whose answer was lost may begin each anew.

    Whatever was tried of a life that is over is not tried again for the next.
    """
    load = Load(
        clients=10,
        calls_each=400,
        workflows=40,
        lost=0.2,
        state_ttl_seconds=2,
        answer_ms=50.0,
        think_ms=50.0,
    )
    steps = judged = 0
    for operations in simulate(Random(0), load).values():
        seen = [one for one in map(see, operations) if one is not None]
        found, search = linearizability._find(seen, linearizability.STEPS_MAX)
        assert isinstance(found, Linearizable)
        steps += 0 if search is None else search.steps
        judged += len(seen)
    assert judged == 4000
    assert steps < 1.5 * judged
