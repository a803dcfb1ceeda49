"""Histories through which a store crashed that may lose something, judged twice."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from permutations import (
    _interesting_times,
    _is_lost,
    _lost_next,
    _Told,
    _told,
    _told_next,
)
from simulated import answered
from small_histories import _TWISTS, AIMS, _next_time, _request

from checkpoint_model import Abandon, Claim, Record, Status
from checkpoint_model.linearizability import (
    Answered,
    Crash,
    Illegal,
    Linearizable,
    Loss,
    Operation,
    check,
    retrace,
)

T = 1_795_000_000_000
HISTORIES = 3000
A = Claim(holder="h_a", claim_ttl_seconds=1, state_ttl_seconds=3, retry_failed=True)
B = replace(A, holder="h_b")
LOOK = Status(holder="h_z")


class Store:
    """A store that is right, but that it crashes; what it was told is a history."""

    def __init__(self) -> None:
        self.records: list[Record | None] = [None]
        self.operations: list[Operation] = []
        self.crashes: list[Crash] = []
        self._now_ns = 0

    def call(self, request: Claim | Abandon | Status, at_ms: int) -> "Store":
        """One call after the other."""
        came, record = answered(request, self.records[-1], T + at_ms)
        self.records.append(record)
        self._add(request, came)
        return self

    def lose(self, request: Claim | Abandon, *, earliest_ms: int) -> "Store":
        """One call that came to nothing."""
        called_ns, _ = self._interval()
        self.operations.append(
            Operation(
                client=f"c{called_ns}",
                request=request,
                called_ns=called_ns,
                returned_ns=None,
                answer=None,
                earliest_ms=T + earliest_ms,
            )
        )
        return self

    def crash(self, *, kept: int, lost_from_ms: int | None = None) -> "Store":
        """Go back to what was after so many calls."""
        self.records.append(self.records[kept])
        at_ms = None if lost_from_ms is None else T + lost_from_ms
        called_ns, returned_ns = self._interval()
        self.crashes.append(Crash(called_ns=called_ns, returned_ns=returned_ns, lost_from_ms=at_ms))
        return self

    def _add(self, request: Claim | Abandon | Status, came: Answered) -> None:
        called_ns, returned_ns = self._interval()
        self.operations.append(
            Operation(
                client=f"c{called_ns}",
                request=request,
                called_ns=called_ns,
                returned_ns=returned_ns,
                answer=came,
            )
        )

    def _interval(self) -> tuple[int, int]:
        self._now_ns += 10
        return self._now_ns, self._now_ns + 5


def test_what_nothing_may_lose_is_illegal_when_lost() -> None:
    """A record that is gone after a crash, of a store that keeps everything."""
    store = Store().call(A, 0).crash(kept=0).call(B, 100)
    assert isinstance(check(store.operations), Illegal)


def test_all_may_be_lost_where_nothing_is_promised() -> None:
    """The same is explained by the crash, and told as a loss of one change."""
    store = Store().call(A, 0).call(LOOK, 50).crash(kept=0).call(B, 100).call(LOOK, 110)
    verdict = check(store.operations, crashes=store.crashes)
    assert isinstance(verdict, Linearizable)
    assert [placed.operation for placed in verdict.order] == [0, 1, 2, 3]
    assert verdict.losses == (Loss(kept=0, before=2),)
    holders = [
        done.record.holder
        for done in retrace(store.operations, verdict.order, verdict.losses)
        if done.record is not None
    ]
    assert holders == ["h_a", "h_a", "h_b", "h_b"]


def test_what_was_kept_is_no_loss() -> None:
    """A crash that took nothing needs no word."""
    store = Store().call(A, 0).crash(kept=1).call(A, 100)
    verdict = check(store.operations, crashes=store.crashes)
    assert isinstance(verdict, Linearizable)
    assert verdict.losses == ()


def test_a_part_may_be_lost() -> None:
    """Back to the first generation, abandoned, which the second had followed."""
    gone = Store().call(A, 0).call(Abandon(holder="h_a", generation=1), 1).call(B, 500)
    gone.crash(kept=2).call(LOOK, 900)
    verdict = check(gone.operations, crashes=gone.crashes)
    assert isinstance(verdict, Linearizable)
    assert verdict.losses == (Loss(kept=2, before=3),)


@pytest.mark.parametrize(("lost_from_ms", "verdict"), [(500, Linearizable), (501, Illegal)])
def test_no_more_is_lost_than_may_be(lost_from_ms: int, verdict: type) -> None:
    """A change at 500 ms may be lost where what may be begins there, and not where it is later."""
    store = Store().call(A, 500).crash(kept=0, lost_from_ms=lost_from_ms).call(B, 900)
    assert type(check(store.operations, crashes=store.crashes)) is verdict


def test_nothing_is_lost_before_the_crash() -> None:
    """What was answered before it began must follow from all that was before."""
    store = Store().call(A, 0)
    store.records.append(None)
    store.call(B, 100).crash(kept=3)
    assert isinstance(check(store.operations, crashes=store.crashes), Illegal)


def test_nothing_comes_back_after_the_crash() -> None:
    """What was lost stays so."""
    store = Store().call(A, 0).crash(kept=0).call(B, 100)
    store.records.append(store.records[1])
    store.call(LOOK, 200)
    assert isinstance(check(store.operations, crashes=store.crashes), Illegal)


def test_the_state_that_is_blamed_is_that_after_the_loss() -> None:
    """What is shown of a failure after a crash has the loss in it."""
    store = Store().call(A, 0).crash(kept=0).call(B, 100)
    store.records.append(None)
    store.call(A, 200)
    verdict = check(store.operations, crashes=store.crashes)
    assert isinstance(verdict, Illegal)
    assert (verdict.operation, verdict.rule) == (2, "WC-CLAIM-5")
    assert verdict.losses == (Loss(kept=0, before=1),)
    assert verdict.record is not None
    assert verdict.record.holder == "h_b"


def test_two_crashes_may_each_take_something() -> None:
    """Each has a place of its own."""
    store = Store().call(A, 0).crash(kept=0).call(B, 100).crash(kept=0).call(A, 200)
    verdict = check(store.operations, crashes=store.crashes)
    assert isinstance(verdict, Linearizable)
    assert verdict.losses == (Loss(kept=0, before=1), Loss(kept=0, before=2))
    assert isinstance(check(store.operations, crashes=store.crashes[:1]), Illegal)


def test_many_lost_requests_around_two_crashes_are_decided_in_time() -> None:
    """As a storm makes them while its store is dead: what survives of them may follow the crash."""
    store = Store().call(A, 0)
    for round_number in range(2):
        store.call(LOOK, 400 * round_number + 100)
        for number in range(30):
            lost = replace(A, holder=f"h_{round_number}_{number}")
            store.lose(lost, earliest_ms=400 * round_number + 100)
            store.lose(Abandon(holder=lost.holder, generation=1), earliest_ms=400 * round_number)
        store.crash(kept=0)
        winner = replace(A, holder=f"h_w{round_number}")
        store.call(winner, 400 * round_number + 300).call(LOOK, 400 * round_number + 310)
    verdict = check(store.operations, crashes=store.crashes, steps_max=5_000)
    assert isinstance(verdict, Linearizable)
    assert len(verdict.losses) == 2


# -- trying everything ------------------------------------------------------------------


def _explained(operations: Sequence[Operation], crashes: Sequence[Crash]) -> bool:
    """The definition: every order, every place of each crash, everything it may leave."""
    told = tuple(one for one in map(_told, operations) if one is not None)
    lost = tuple(operation for operation in operations if _is_lost(operation))
    times = _interesting_times(told, lost)

    def follows(
        told: tuple[_Told, ...],
        lost: tuple[Operation, ...],
        records: tuple[Record | None, ...],
        left: tuple[Crash, ...],
        changed_at_ms: int,
    ) -> bool:
        if not told:
            return True
        for crash in left:
            if any((one.operation.returned_ns or 0) < crash.called_ns for one in told):
                continue
            others = tuple(other for other in left if other is not crash)
            if any(other.returned_ns < crash.called_ns for other in others):
                continue
            if any(
                follows(told, lost, kept, others, changed_at_ms)
                for kept in _left_by(crash, records)
            ):
                return True
        record = records[-1]
        nodes = [*_told_next(told, lost, record, False), *_lost_next(told, lost, record, times)]
        for told_left, lost_left, after in nodes:
            gone = [one.operation for one in told if one not in told_left]
            at_ms = [one.at_ms for one in told if one not in told_left]
            gone += [one for one in lost if one not in lost_left]
            if any(crash.returned_ns < one.called_ns for crash in left for one in gone):
                continue
            if any(ms < changed_at_ms for ms in at_ms):
                continue
            if after == record:
                if follows(told_left, lost_left, records, left, changed_at_ms):
                    return True
            elif after is not None and after.changed_at_ms >= changed_at_ms:
                grown = (*records, after)
                if follows(told_left, lost_left, grown, left, after.changed_at_ms):
                    return True
        return False

    return follows(told, lost, (None,), tuple(crashes), 0)


def _left_by(
    crash: Crash, records: tuple[Record | None, ...]
) -> Iterator[tuple[Record | None, ...]]:
    yield records
    for kept in range(len(records) - 1, 0, -1):
        changed = records[kept]
        assert changed is not None
        if crash.lost_from_ms is not None and changed.changed_at_ms < crash.lost_from_ms:
            return
        yield records[:kept]


def _drawn(rng: Random) -> tuple[list[Operation], list[Crash]]:
    """Some calls, one or two crashes between them that take something, or a twist."""
    aim = rng.choice(AIMS[:3])
    records: list[Record | None] = [None]
    operations: list[Operation] = []
    crashes: list[Crash] = []
    size = rng.choice((3, 4, 5))
    crash_at = set(rng.sample(range(1, size), rng.choice((1, 1, 2))))
    now_ms = T
    for position in range(size):
        called_ns = max(0, 10 * position - 5 * rng.randrange(6))
        returned_ns = 10 * position + 5 * rng.randrange(6)
        if position in crash_at:
            kept = rng.randrange(len(records))
            del records[kept + 1 :]
            lost_from_ms = rng.choice((None, now_ms - rng.choice((0, 1, 300, 1000))))
            crashes.append(
                Crash(called_ns=called_ns, returned_ns=returned_ns, lost_from_ms=lost_from_ms)
            )
            now_ms += rng.choice((0, 1, 300))
            continue
        now_ms = _next_time(rng, aim, records[-1], now_ms)
        request = _request(rng, records[-1])
        came: Answered | None
        came, record = answered(request, records[-1], now_ms)
        records.append(record)
        if rng.random() < 0.15:
            came = None
        operations.append(
            Operation(
                client=f"c{position}",
                request=request,
                called_ns=called_ns,
                returned_ns=None if came is None else returned_ns,
                answer=came,
                earliest_ms=now_ms - 1000 if came is None else None,
            )
        )
    for _ in range(rng.choice((0, 1, 2))):
        operations = rng.choice(_TWISTS)(rng, operations)
    rng.shuffle(operations)
    return operations, crashes


def test_it_says_what_trying_everything_says() -> None:
    """On small histories, right and wrong ones, with and without something lost."""
    rng = Random(8)
    said = {True: 0, False: 0}
    losses = 0
    for number in range(HISTORIES):
        operations, crashes = _drawn(rng)
        if all(_told(operation) is None for operation in operations):
            continue
        verdict = check(operations, crashes=crashes)
        right = _explained(operations, crashes)
        assert isinstance(verdict, Linearizable) is right, (number, operations, crashes)
        said[right] += 1
        losses += isinstance(verdict, Linearizable) and bool(verdict.losses)
    assert min(said.values()) > HISTORIES / 10
    assert losses > HISTORIES / 20
