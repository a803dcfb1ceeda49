"""Work that is shared by forked processes comes out as if one had done it."""

import multiprocessing
import os
import threading

import pytest

from checkpoint_conformance import forked
from checkpoint_conformance.forked import each, processes_for

CORES = {0, 1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_everything_is_done_once_and_in_order(count: int, processes: int) -> None:
    """However many do it."""
    assert each(lambda n: n * n, count, processes=processes) == [n * n for n in range(count)]


def test_each_process_has_its_share() -> None:
    """Of two, this one has every other number."""
    done_by = each(lambda _: os.getpid(), 5, processes=2)
    assert [pid == os.getpid() for pid in done_by] == [True, False, True, False, True]
    assert not multiprocessing.active_children()


def test_the_share_of_a_process_that_was_killed_is_done_here() -> None:
    """Nothing is missing, and nothing is made up."""
    here = os.getpid()

    def die_elsewhere(number: int) -> int:
        if os.getpid() != here:
            os._exit(9)
        return number

    assert each(die_elsewhere, 6, processes=3) == [0, 1, 2, 3, 4, 5]


def test_what_goes_wrong_elsewhere_is_raised_here() -> None:
    """As if it had been done here."""

    def fail(number: int) -> int:
        if number == 3:
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="3"):
        each(fail, 4, processes=2)


def test_how_far_it_is_is_told() -> None:
    """About, and in the end exactly."""
    told: list[int] = []
    each(lambda n: n, 5, processes=2, tell=told.append)
    assert told == [2, 4, 5]


def test_so_many_processes_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as have enough to do, as there are processors, and as memory allows."""
    monkeypatch.setattr(forked, "_TASKS", _Tasks(1))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: CORES)
    assert [processes_for(work, 10) for work in (0, 19, 20, 35, 1000)] == [1, 1, 2, 3, 4]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert processes_for(1000, 10) == 1


def test_beside_another_thread_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a lock, which would be held for ever in the process that is forked."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: CORES)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    assert processes_for(1000, 10) == 1
    ended.set()
    other.join()


class _Tasks:
    """A folder of so many threads."""

    def __init__(self, count: int) -> None:
        self._count = count

    def iterdir(self) -> range:
        return range(self._count)


def test_a_process_that_ends_with_another_forks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not be allowed to."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: CORES)
    monkeypatch.setattr(forked, "_TASKS", _Tasks(1))
    found = each(lambda _: processes_for(1000, 10), 2, processes=2)
    assert found == [4, 1]
