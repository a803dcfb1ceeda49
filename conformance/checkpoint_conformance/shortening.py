"""Makes a failing sequence as short as it can be, by sending parts of it again.

Hypothesis shrinks what it draws, but fixed sequences are long by design, and what is drawn can
keep a step that nothing needs. So at the end each failure's moves are sent again, on a fresh
workflow, without one part after another (delta debugging), for as long as the same rule breaks.
"""

from contextlib import nullcontext
from typing import Final

from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.controls import ControlError
from checkpoint_conformance.run import Run
from checkpoint_conformance.session import LostError, TargetGoneError, ViolationError
from checkpoint_conformance.tally import Failure, Move

REQUESTS_MAX: Final = 400
"""How many requests one failure may cost; then the shortest so far is kept."""


def shorten_failures(run: Run) -> None:
    """Replace each failure in the tally that can be sent again by a shorter one."""
    failures = [failure for failure in run.tally.failures.values() if failure.moves]
    if not failures:
        return
    with run.frozen() if run.controls is not None else nullcontext():
        for number, failure in enumerate(failures):
            run.progress.advance(number, len(failures))
            run.check_name = failure.check
            with run.over(failure.binding):
                _shorten(run, failure)


def _shorten(run: Run, failure: Failure) -> None:
    moves = failure.moves
    assert moves is not None
    requests_left = REQUESTS_MAX
    size = max(len(moves) // 2, 1)
    while True:
        for start in range(0, len(moves), size):
            part = moves[:start] + moves[start + size :]
            if not part or len(part) > requests_left:
                continue
            requests_left -= len(part)
            shorter = _send_again(run, part, failure.rule)
            if shorter is not None and shorter.moves is not None:
                run.tally.fail(shorter)
                moves = shorter.moves
                size = max(min(size, len(moves) // 2), 1)
                break
        else:
            if size == 1:
                return
            size //= 2


def _send_again(run: Run, moves: tuple[Move, ...], rule: str) -> Failure | None:
    """The failure of the same rule that these moves show, if they do."""
    session = run.session()
    try:
        for move in moves:
            if not isinstance(move, int):
                session.send(move)
            elif isinstance(run.clock, FrozenClock):
                run.advance(move, session)
            else:
                return None
    except ViolationError as error:
        return error.failure if error.failure.rule == rule else None
    except (LostError, TargetGoneError, ControlError):
        return None
    return None
