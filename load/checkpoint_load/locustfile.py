"""The storms as a Locust file: ``locust -f`` this one, or a file of your own that imports from it.

    from checkpoint_load.locustfile import StormUser as StormUser

One user is a whole storm: it owns as many raw connections as there are contenders, and fires one
request event for each contender. In a distributed run each user storms workflows of its own, and
writes histories of its own, which the master gathers. At the end they are judged, and the verdict
is Locust's exit status.

``workflow-checkpoint storm`` starts Locust with this file.
"""

import json
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gevent
from gevent import GreenletExit, monkey
from locust import User, task
from locust import events as locust_events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser

from checkpoint_conformance.client import Lost
from checkpoint_conformance.history import HistoryWriter, begin_header
from checkpoint_load.arena import Arena, Ask, Told
from checkpoint_load.coordination import Coordinator, Part
from checkpoint_load.limits import (
    CONTENDERS_DEFAULT,
    LOSE_DEFAULT_PERCENT,
    OPEN_FILES_BESIDES,
)
from checkpoint_load.open_files import allow_open_files
from checkpoint_load.plan import HEADERS_VARIABLE, LIFELINE_VARIABLE, Plan
from checkpoint_load.storms import STORMS, play
from checkpoint_model.vocabulary import TOOL_PATH

Result = TypeVar("Result")
events: Any = locust_events  # says nothing of its types
_COORDINATORS: dict[int, Coordinator] = {}


class NoAnswerError(Exception):
    """What Locust counts as a failure: no answer came, or it was dropped on purpose."""


class StormUser(User):
    """All the contenders of one process."""

    @task
    def storm(self) -> None:
        """Play every storm of the plan, once."""
        coordinator = _COORDINATORS[id(self.environment)]
        with coordinator.user() as part:
            plan = Plan.of(self.environment)
            allow_open_files(plan.contenders + OPEN_FILES_BESIDES)
            _Campaign(plan, part).play()
        raise StopUser


class _Campaign:
    """One user's way through the storms."""

    def __init__(self, plan: Plan, part: Part) -> None:
        self._plan = plan
        self._part = part
        self._storm = ""

    def play(self) -> None:
        """Play every storm, each for its share of the time."""
        plan, part = self._plan, self._part
        arena = Arena(
            plan.target,
            contenders=plan.contenders,
            seed=plan.seed,
            stop=part.stop,
            lose_share=plan.lose_percent / 100,
            prefix=part.prefix,
            run=self._in_thread,
            on_burst=self._tell,
        )
        try:
            for storm, deadline in plan.deadlines():
                if part.stop.is_set:
                    return
                self._storm = storm.name
                path = plan.folder / part.file_name(storm.name)
                path.unlink(missing_ok=True)  # of an earlier run, on a machine of workers
                header = begin_header(storm.name, plan.asked, plan.parameters)
                with HistoryWriter(path, header) as writer:
                    part.files.append(path.name)
                    arena.begin(storm.name, writer, deadline)
                    if plan.nemesis:
                        gevent.spawn(_end_with_input, arena)
                    play(storm, arena, plan.rounds_max)
        finally:
            arena.close()

    def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Carry out what waits in a thread of its own, so that Locust goes on meanwhile."""
        doing: Any = gevent.get_hub().threadpool.spawn(work)
        while True:
            try:
                result: Result = doing.get()
            except GreenletExit:
                # This user is to end. What is under way was sent, and must be written down.
                self._part.stop.set()
            else:
                return result

    def _tell(self, number: int, asks: Sequence[Ask], told: Sequence[Told]) -> None:
        self._part.answers += sum(one.landed.returned_ns is not None for one in told)
        for ask, one in zip(asks, told, strict=True):
            landed = one.landed
            if landed.called_ns is None or landed.returned_ns is None:
                error = NoAnswerError(
                    landed.answer.reason if isinstance(landed.answer, Lost) else ""
                )
                milliseconds, length = 0.0, 0
            else:
                error = None
                milliseconds = (landed.returned_ns - landed.called_ns) / 1e6
                length = 0 if isinstance(landed.answer, Lost) else len(landed.answer.body)
            events.request.fire(
                request_type=self._storm,
                name=str(ask.request.action),
                response_time=milliseconds,
                response_length=length,
                exception=error,
                context={},
                url=TOOL_PATH,
            )
        self._part.progress(self._storm, number)


def _end_with_input(arena: Arena) -> None:
    """End a storm when the process that makes faults meanwhile closes our input."""
    pool = gevent.get_hub().threadpool
    while pool.apply(os.read, (0, 1)):
        pass
    arena.end()


def add_options(parser: LocustArgumentParser, **_: Any) -> None:
    """The options of the storms, beside Locust's own; the web page shows them too."""

    def add(name: str, help_text: str, **more: Any) -> None:
        parser.add_argument(name, help=help_text, **more)

    add("--storms", f"which, separated by commas: {', '.join(STORMS)}; all if empty", default="")
    add("--contenders", "requests at once", type=int, default=CONTENDERS_DEFAULT)
    add("--rounds", "of each storm; 0: 20, or as many as --duration allows", type=int, default=0)
    add(
        "--duration",
        "seconds, of all storms together; 0: until the rounds are done",
        type=float,
        default=0,
    )
    add("--seed", "repeats the choices of an earlier run", type=int, default=None)
    add(
        "--lose",
        "percent of the answers that the mixed storm drops on purpose",
        type=int,
        default=LOSE_DEFAULT_PERCENT,
    )
    add("--report", "folder of the histories and the report", default="storm-report")
    add("--answer-timeout", "seconds until an answer counts as lost", type=float, default=0)
    hidden: dict[str, Any] = {"include_in_web_ui": False}
    add(
        "--storm-headers",
        "headers for every request, as a JSON object",
        type=json.loads,
        default={},
        env_var=HEADERS_VARIABLE,
        **hidden,
    )
    add("--storm-nemesis", "faults that are made meanwhile", default="", **hidden)
    add("--storm-durability", "what its store keeps through a crash", default="", **hidden)
    add("--target-name", "the target's name in reports", default="", **hidden)
    add("--target-version", "its version", default="", **hidden)
    add("--target-description", "one line on it", default="", **hidden)
    add("--storm-progress", "tell of each burst as a line of JSON", action="store_true", **hidden)


def coordinate(environment: Environment, **_: Any) -> None:
    """Bring users, history and verdict together."""
    lifeline = os.environ.get(LIFELINE_VARIABLE)
    if lifeline is not None:
        # A thread of the system's: one that gevent switches would not run while the judge
        # calculates, and one of its pool would be waited for at the end.
        monkey.get_original("_thread", "start_new_thread")(_end_with, (int(lifeline),))
    _COORDINATORS[id(environment)] = Coordinator(environment)


def _end_with(lifeline: int) -> None:
    """End this process and those beside it when whoever started them is gone.

    Killed itself, it could stop none of them, and the target would be stormed on and on.
    """
    while os.read(lifeline, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


events.init_command_line_parser.add_listener(add_options)
events.init.add_listener(coordinate)
