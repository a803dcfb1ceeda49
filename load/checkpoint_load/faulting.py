"""Faults while a storm goes on: which comes when, for how long, and what is written of it.

The storm tells how many answers it has had. With so many more the next fault is begun, in an order
that the seed draws; it is healed after some time, and the target has recovered, before answers are
counted for the one after it. When every kind was made, and the time that was asked for is over, the
storm is told to end.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from checkpoint_conformance.deployment import Deployment, DeploymentError
from checkpoint_conformance.faults import Kind
from checkpoint_conformance.history import Header, HistoryWriter
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.nemesis import Nemesis

FILE_NAME: Final = "mixed-nemesis.jsonl"
ANSWERS: Final = (50, 400)
"""So many more answers there are before the next fault: from, to."""
HOLD_SECONDS: Final = (0.3, 1.5)
"""How long a fault is in force: from, to."""
HOLD_FROZEN_SECONDS: Final = (0.3, 6.0)
"""The same while the store is silent: long enough, at times, that a server gives it up."""
HOLD_KILLED_SECONDS: Final = (0.0, 0.3)
"""The same while something is dead. To start it takes its time, and what the storm goes on with
must still live when it is back: else nothing would tell what a crash took."""
ANSWERS_SECONDS_MAX: Final = 60.0
"""A storm that has no further answers for so long is not waited for."""


class Faulting:
    """Faults of one deployment, made in a thread of its own beside a storm.

    Args:
        deployment: what is stormed.
        kinds: of faults, each of which is made at least once.
        seed: draws order, moments and lengths.
        seconds_min: how long it goes on at least, once each kind was made or not.
        path: the history's file of faults.
        header: of that file.
        end: called when all is done, however it ended.
    """

    def __init__(
        self,
        deployment: Deployment,
        kinds: Sequence[Kind],
        *,
        seed: int,
        seconds_min: float,
        path: Path,
        header: Header,
        end: Callable[[], None],
    ) -> None:
        self._kinds = kinds
        self._random = random.Random(f"faulting:{seed}")  # noqa: S311 - draws, no secrets
        self._nemesis = Nemesis(deployment, seed=seed)
        self._seconds_min = seconds_min
        self._path = path
        self._header = header
        self._end = end
        self._answers = 0
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.fault = ""
        """Why no more could be made, where that is so."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def answered(self, answers: int) -> None:
        """Be told how many answers the storm has had so far."""
        with self._changed:
            self._answers = answers
            self._changed.notify_all()

    def stop(self) -> None:
        """Make no further fault, heal what is in force, and wait until that is done."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with HistoryWriter(self._path, self._header) as writer:
                self._make_all(writer)
        except (DeploymentError, LaunchError) as error:
            self.fault = str(error)
        finally:
            self._end()

    def _make_all(self, writer: HistoryWriter) -> None:
        began = time.monotonic()
        try:
            for number, kind in enumerate(self._order()):
                made_all = number >= len(self._kinds)
                if made_all and time.monotonic() - began >= self._seconds_min:
                    break
                if not self._wait_for_answers(self._random.randint(*ANSWERS)):
                    return
                self._nemesis.begin(kind)
                self._hold(kind)
                fault = self._nemesis.heal()
                for step in self._nemesis.clock_steps:
                    writer.clock_step(step)
                self._nemesis.clock_steps.clear()
                writer.fault(fault)
                if fault.recovered_ns is None:
                    return
            self._wait_for_answers(ANSWERS[0])
        finally:
            self._nemesis.settle()

    def _order(self) -> Iterator[Kind]:
        """Every kind, in one order after another."""
        while True:
            yield from self._random.sample(self._kinds, len(self._kinds))

    def _wait_for_answers(self, more: int) -> bool:
        """Wait for some more answers; whether to go on."""
        with self._changed:
            wanted = self._answers + more
            came = self._changed.wait_for(
                lambda: self._stopped or self._answers >= wanted, ANSWERS_SECONDS_MAX
            )
            return came and not self._stopped

    def _hold(self, kind: Kind) -> None:
        """Leave a fault in force for some time."""
        within = {
            Kind.STORE_FREEZE: HOLD_FROZEN_SECONDS,
            Kind.STORE_PARTITION: HOLD_FROZEN_SECONDS,
            Kind.STORE_KILL: HOLD_KILLED_SECONDS,
            Kind.SERVER_KILL: HOLD_KILLED_SECONDS,
        }
        seconds = self._random.uniform(*within.get(kind, HOLD_SECONDS))
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)
