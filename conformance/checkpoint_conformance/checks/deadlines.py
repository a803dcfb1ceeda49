"""The time rules in real time, for targets without controls: short deadlines, waited for at once.

Each scenario runs in a thread of its own, so the whole takes as long as the longest one. What
is expected follows from each answer's ``observed_at``, so a slow moment changes which side of a
deadline is tested, never the verdict.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import Client
from checkpoint_conformance.clock import RunningClock
from checkpoint_conformance.run import Check, Run
from checkpoint_model import Abandon, Claim, EvidenceType, Stage, Status

_CLAIM_SECONDS: Final = 1
_STATE_SECONDS: Final = 2
_AROUND_MS: Final = (-60, -30, -15, -6, -3, -1, 0, 1, 3, 6, 15, 30, 60)
"""When to ask, relative to a deadline; a network's delay moves them all alike."""
STATUSES_PER_DEADLINE: Final = 4
"""How many scenarios ask for the status around each deadline."""


class _Stage:
    """One scenario: a workflow, its cast, and a way to wait for the target's clock."""

    def __init__(self, run: Run, client: Client) -> None:
        self.run = run
        self.cast = Cast()
        self.session = run.session(client)
        self.session.moves = None  # the waiting is a part of the sequence

    def claim(self, holder: str, *, retry: bool = False) -> Claim:
        return Claim(
            holder=holder,
            claim_ttl_seconds=_CLAIM_SECONDS,
            state_ttl_seconds=_STATE_SECONDS,
            retry_failed=retry,
        )

    def deadline(self, which: str) -> int:
        record = self.session.oracle.record
        assert record is not None
        return record.claim_expires_at_ms if which == "claim" else record.state_expires_at_ms

    def wait_until(self, target_ms: float) -> None:
        """Wait until the target's clock shows a time, as far as its answers tell it."""
        clock = self.run.clock
        assert isinstance(clock, RunningClock)
        offset_ms = clock.offset_ms
        assert offset_ms is not None
        time.sleep(max(0.0, (target_ms - offset_ms) / 1000 - time.monotonic()))


def _look_around(which: str) -> Callable[[_Stage], None]:
    def scenario(stage: _Stage) -> None:
        """Ask for the status just before and after a deadline."""
        session, cast = stage.session, stage.cast
        session.send(stage.claim(cast.ann))
        deadline_ms = stage.deadline(which)
        for offset_ms in _AROUND_MS:
            stage.wait_until(deadline_ms + offset_ms)
            session.send(Status(holder=cast.ann))

    return scenario


def _take_over(stage: _Stage) -> None:
    """Another tries until the claim lapses; then the old holder is refused."""
    session, cast = stage.session, stage.cast
    session.send(stage.claim(cast.ann))
    deadline_ms = stage.deadline("claim")
    for offset_ms in _AROUND_MS:
        stage.wait_until(deadline_ms + offset_ms)
        session.send(stage.claim(cast.bob))
    verified = EvidenceType.PROVIDER_RECEIPT
    session.send(cast.move(cast.ann, 1, Stage.CALLER_VERIFIED, verified))
    session.send(Abandon(holder=cast.ann, generation=1))
    # The second claim would outlive the record, so it ends with it (WC-TIME-3).
    deadline_ms = stage.deadline("state")
    for offset_ms in _AROUND_MS:
        stage.wait_until(deadline_ms + offset_ms)
        session.send(Status(holder=cast.bob))
    session.send(stage.claim(cast.cy, retry=True))


def _too_late(stage: _Stage) -> None:
    """The holder itself, after its claim lapsed, and then recovering its own."""
    session, cast = stage.session, stage.cast
    session.send(stage.claim(cast.ann))
    session.send(cast.move(cast.ann, 1, Stage.UNCERTAIN))
    stage.wait_until(stage.deadline("claim"))
    session.send(cast.move(cast.ann, 1, Stage.COMPENSATED, EvidenceType.COMPENSATION_RECEIPT))
    session.send(Abandon(holder=cast.ann, generation=1))
    session.send(stage.claim(cast.ann))
    session.send(stage.claim(cast.ann))


def _gone(stage: _Stage) -> None:
    """Settled, then expired: nothing of it is left, neither stage nor observation."""
    session, cast = stage.session, stage.cast
    session.send(stage.claim(cast.ann))
    failure = cast.move(cast.ann, 1, Stage.FAILED, EvidenceType.NOT_ATTEMPTED)
    session.send(failure)
    stage.wait_until(stage.deadline("state"))
    session.send(failure)
    session.send(Abandon(holder=cast.ann, generation=1))
    session.send(stage.claim(cast.bob))
    session.send(failure)


def deadlines(run: Run) -> None:
    """Every scenario at once, or one after the other where nothing else can be."""
    # One answer first, so that the offset between the clocks is known.
    with run.guarded():
        run.session().send(Status())
    scenarios: list[Callable[[_Stage], None]] = [_take_over, _too_late, _gone]
    for which in ("claim", "state"):
        scenarios += [_look_around(which)] * STATUSES_PER_DEADLINE
    if run.target.one_by_one:
        for number, scenario in enumerate(scenarios):
            run.progress.advance(number, len(scenarios))
            with run.guarded():
                scenario(_Stage(run, run.client))
    else:
        _all_at_once(run, scenarios)


def _all_at_once(run: Run, scenarios: Sequence[Callable[[_Stage], None]]) -> None:
    errors: list[BaseException] = []
    done = threading.Semaphore(0)

    def play(scenario: Callable[[_Stage], None]) -> None:
        try:
            with run.guarded(), run.new_client() as client:
                scenario(_Stage(run, client))
        except BaseException as error:
            errors.append(error)
        finally:
            done.release()

    for scenario in scenarios:
        threading.Thread(target=play, args=(scenario,), daemon=True).start()
    for number in range(len(scenarios)):
        run.progress.advance(number, len(scenarios))
        done.acquire()
    for error in errors:
        raise error


CHECKS = (
    Check(
        name="deadlines",
        title="Both deadlines in real time",
        run=deadlines,
        alone=True,
        seconds=2,
        waits=True,
    ),
)
