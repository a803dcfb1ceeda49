"""The target's clock is used but not trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_conformance.clock import CLOCK_TOLERANCE_MS, FrozenClock, RunningClock

MS = 1_000_000
CALLS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 5_000), st.floats(0, 1)), min_size=1
)


@given(CALLS, st.integers(-(10**9), 10**9))
def test_a_clock_with_a_constant_offset_is_believed(
    calls: list[tuple[int, int, float]], offset_ms: int
) -> None:
    """Whatever the calls' lengths, and wherever within each the server reads its clock."""
    clock = RunningClock()
    for called_ms, length_ms, where in calls:
        read_ms = called_ms + length_ms * where
        observed_ms = int(read_ms + offset_ms // 1)
        assert clock.judge(observed_ms, called_ms * MS, (called_ms + length_ms) * MS) is None


@given(st.integers(-(10**6), 10**6), st.integers(int(CLOCK_TOLERANCE_MS) + 5, 10**6))
def test_an_invented_time_is_not(offset_ms: int, wrong_by_ms: int) -> None:
    """Later than the call ended, or earlier than it began."""
    for sign in (-1, 1):
        clock = RunningClock()
        assert clock.judge(1000 + offset_ms, 1000 * MS, 1001 * MS) is None
        fault = clock.judge(2000 + offset_ms + sign * wrong_by_ms, 2000 * MS, 2001 * MS)
        assert fault is not None
        assert ("after" if sign > 0 else "before") in fault.got


def test_a_constant_time_is_not_believed() -> None:
    """A server that answers a cached time is found once the calls are further apart."""
    clock = RunningClock()
    faults = [clock.judge(5, at_ms * MS, (at_ms + 1) * MS) for at_ms in (0, 10, 200)]
    assert faults[0] is None
    assert faults[2] is not None


@pytest.mark.parametrize("speed", [0.96, 1.04])
def test_a_clock_that_runs_at_another_speed_is_not_believed(speed: float) -> None:
    """Each answer fits the one before it; over ten seconds no one offset explains them all."""
    clock = RunningClock()
    faults = [
        clock.judge(int(at_ms * speed), at_ms * MS, (at_ms + 5) * MS)
        for at_ms in range(0, 10_000, 20)
    ]
    assert faults[0] is None
    assert any(fault is not None for fault in faults)


def test_the_offset_is_known_after_one_answer() -> None:
    """In the middle of what is possible."""
    clock = RunningClock()
    assert clock.offset_ms is None
    clock.judge(1000, 10 * MS, 14 * MS)
    assert clock.offset_ms == (986 + 991) / 2


def test_a_frozen_clock_is_known_exactly() -> None:
    """One millisecond off is wrong."""
    clock = FrozenClock(1000)
    assert clock.judge(1000, 0, 0) is None
    wrong = clock.judge(1001, 0, 0)
    assert wrong is not None
    assert wrong.got == "+1 ms from it"
