"""Figures: what a history says of the storm that made it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoint_conformance.client import Lost
from checkpoint_conformance.history import (
    DROPPED,
    Call,
    HistoryWriter,
    begin_header,
    read_file,
)
from checkpoint_load.figures import Figures
from checkpoint_load.storms import STORMS
from checkpoint_model.linearizability import Answered

CONTENDERS = 20
_MS = 1_000_000


def call(
    index: int,
    *,
    round_number: int = 0,
    sent_ms: float,
    returned_ms: float | None,
    burst: str | None = "storm",
    status: int = 409,
    **members: Any,
) -> Call:
    """A call; the answer was dropped where it never returned."""
    lost = Lost(reason=DROPPED, detail="")
    sent_ns = int(sent_ms * _MS)
    return Call(
        client=f"c{index}.1",
        request={"action": "claim", "namespace": "n", "workflow_key": f"w_{round_number:016}"},
        called_ns=sent_ns,
        sent_ns=sent_ns,
        returned_ns=None if returned_ms is None else int(returned_ms * _MS),
        answer=lost if returned_ms is None else Answered(status=status, members=members),
        round=round_number,
        burst=burst,
    )


def burst(round_number: int, winners: int, *, code: str = "CHECKPOINT_NOT_HELD") -> list[Call]:
    """All sent within 2 ms and answered after 5, of which some have acquired."""
    begun = 100 * round_number
    return [
        call(index, round_number=round_number, sent_ms=begun + index * 2 / (CONTENDERS - 1),
             returned_ms=begun + 5 + index, status=200, acquired=True)
        if index < winners
        else call(index, round_number=round_number,
                  sent_ms=begun + index * 2 / (CONTENDERS - 1),
                  returned_ms=begun + 5 + index, code=code)
        for index in range(CONTENDERS)
    ]  # fmt: skip


def figures_of(folder: Path, calls: Sequence[Call], *, rounds_asked: int | None = None) -> Figures:
    """Written as a history, and read again."""
    path = folder / "claim.jsonl"
    header = begin_header("claim", {"url": "http://127.0.0.1:9"})
    with HistoryWriter(path, header) as writer:
        for one in calls:
            writer.call(one)
    figures = Figures(storm=STORMS["claim"], contenders=CONTENDERS, rounds_asked=rounds_asked)
    figures.read(read_file(path))
    return figures


def test_figures_are_exact(tmp_path: Path) -> None:
    """Winners, spread, in flight, latencies; what prepared a round is counted apart."""
    setup = call(0, sent_ms=-50 + 60, returned_ms=70, burst=None, status=200, acquired=True)
    figures = figures_of(tmp_path, [setup, *burst(1, 1), *burst(2, 2)], rounds_asked=2)
    told = figures.document
    assert figures.incomplete_because == []
    assert (told["rounds"], told["requests"], told["setup_requests"]) == (2, 40, 1)
    assert told["winners"] == {"flag": "acquired", "rounds_by_number": {"1": 1, "2": 1}}
    assert told["outcomes"] == {"CHECKPOINT_NOT_HELD": 37, "acquired": 4}
    assert told["spread_ms"] == {"median": 2.0, "max": 2.0}
    assert told["in_flight"] == {"median": 20, "min": 20}
    assert told["latency_ms"]["max"] == pytest.approx(22.0, abs=0.001)
    assert told["requests_per_second"] == pytest.approx(40 / 0.048, abs=0.1)
    assert [one["winners"] for one in told["bursts"]] == [["c0.1"], ["c0.1", "c1.1"]]


def test_less_than_half_in_flight_at_once_is_no_storm(tmp_path: Path) -> None:
    """However many took part: each was answered before the next was sent."""
    calls = [
        call(index, sent_ms=index, returned_ms=index + 0.5, code="CHECKPOINT_NOT_HELD")
        for index in range(CONTENDERS)
    ]
    said = (
        "too little contention: in the median burst 1 of 20 requests were in flight at once, "
        "and 50% must be; where target and storm share processors, storm from elsewhere or grant "
        "real-time priority (CAP_SYS_NICE)"
    )
    assert figures_of(tmp_path, calls).incomplete_because == [said]


def test_dropped_answers_are_not_asked_to_be_in_flight(tmp_path: Path) -> None:
    """Half of them hung up; all of the others were in flight."""
    calls = [
        call(index, sent_ms=index / 10, returned_ms=9 if index % 2 else None, code="X")
        for index in range(CONTENDERS)
    ]
    figures = figures_of(tmp_path, calls)
    assert (figures.dropped, list(figures.in_flight), list(figures.shares)) == (10, [10], [1.0])


@pytest.mark.parametrize(
    ("calls", "rounds_asked", "expected"),
    [
        ([], 1, "no round could be played"),
        (burst(0, 1), 3, "1 of 3 rounds were played"),
        (burst(0, 1)[:15], None, "5 times a contender had no connection"),
        (
            burst(0, 0, code="RATE_LIMITED"),
            None,
            "20 of 20 requests were not decided: RATE_LIMITED (20 times)",
        ),
    ],
)
def test_what_is_missing_is_said(
    calls: Sequence[Call], rounds_asked: int | None, expected: str, tmp_path: Path
) -> None:
    """One reason each."""
    said = figures_of(tmp_path, calls, rounds_asked=rounds_asked).incomplete_because
    assert [why[: len(expected)] for why in said] == [expected]
