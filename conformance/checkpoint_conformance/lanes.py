"""Checks side by side: lanes are processes that take one check after another, each with a run of
its own, whose tallies are put together as if one had gone through all of them in turn.

Rule 1: what a check finds depends on target, profile and seed alone, so every check has a tally of
its own, and they are added up in the order of the list, whoever was ready first.
Rule 2: a check that must be alone has its instance to itself: what uses controls (a clock stands
still for everybody), what looks at the whole store, what counts how many are served at once.
Rule 3: a check that shares its instance is not given the controls.
Rule 4: a check whose faults are made of a deployment of its own disturbs nobody, and overlaps
whatever there is to do.

A lane that is interrupted tells what it saw so far; one that ends by itself is a fault of the
harness, as is an exception in one.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Protocol, TypeAlias

from checkpoint_conformance import logs
from checkpoint_conformance.forked import processors
from checkpoint_conformance.interrupts import insistent
from checkpoint_conformance.run import Check, Profile, Run, Target
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.tally import Silence, Tally, Timing

JOBS_BY_DEFAULT_MAX: Final = 4
"""More gain nothing: so little may be done beside what must be alone. And a target that somebody
else runs need not expect more connections."""
INTERRUPT_SECONDS_MAX: Final = 30.0
"""How long a lane may take to tell what it saw, and to stop what it started, once it is told to."""
END_SECONDS_MAX: Final = 5.0
"""How long a lane with nothing to do may take to end."""
PROGRESS_SECONDS: Final = 0.1
"""A lane tells no more often than this how far it is."""
_READY: Final = "ready"
"""What a lane says first: from now on it can be interrupted."""
_THREAD_SECONDS_MAX: Final = 0.5
"""How long a thread that is ending is waited for."""


class Place(StrEnum):
    """Where a check may be done."""

    ALONE = "alone"
    """At an instance at which nothing else is done meanwhile."""
    SHARED = "shared"
    """At one at which others may be, as long as none of them must be alone."""
    APART = "apart"
    """At none: what it works on is its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A check, or one shard of it."""

    number: int
    """Its place in the order in which a run without lanes would come to it."""
    check: Check
    shard: int | None
    place: Place
    title: str
    """For people."""

    @property
    def only_unbroken(self) -> bool:
        """Whether it says nothing where something before it is broken."""
        return self.check.only_unbroken or bool(self.shard)


def tasks_of(checks: Sequence[Check], target: Target, profile: Profile) -> tuple[Task, ...]:
    """What a run of this target consists of."""
    tasks: list[Task] = []
    for check in checks:
        if not check.applies_to(target):
            continue
        shards = profile.shards_of(check)
        for shard in range(shards):
            part = f" ({shard + 1} of {shards})" if shards > 1 else ""
            tasks.append(
                Task(
                    number=len(tasks),
                    check=check,
                    shard=shard if check.drawn_in_shards else None,
                    place=_place_of(check, target),
                    title=check.title + part,
                )
            )
    return tuple(tasks)


def _place_of(check: Check, target: Target) -> Place:
    if check.needs_faults and target.fault_access is not None and target.fault_access.apart:
        return Place.APART
    return Place.ALONE if check.alone or check.needs_controls else Place.SHARED


class Schedule:
    """What is begun next, and at which instance: of what can be, that which takes longest, and
    before that one that waits, while no other does.

    Args:
        tasks: all that is to be done.
        instances: how many of the target there are.
    """

    def __init__(self, tasks: Sequence[Task], instances: int) -> None:
        self._waiting = sorted(tasks, key=_urgency)
        self._at: list[list[Task]] = [[] for _ in range(instances)]

    def begin(self) -> tuple[Task, int] | None:
        """The next task and the place of its instance in the list; None while none can begin."""
        one_waits = any(task.check.waits for tasks in self._at for task in tasks)
        # Two that wait leave the processors idle: the second is begun where nothing else can be.
        for task in sorted(self._waiting, key=lambda task: one_waits and task.check.waits):
            instance = self._free_for(task)
            if instance is not None:
                self._waiting.remove(task)
                if task.place is not Place.APART:
                    self._at[instance].append(task)
                return task, instance
        return None

    def end(self, task: Task) -> None:
        """It has ended."""
        for tasks in self._at:
            if task in tasks:
                tasks.remove(task)

    def broke(self, task: Task) -> None:
        """It found something broken, after which some say nothing."""
        self._waiting = [
            other
            for other in self._waiting
            if not (other.only_unbroken and other.number > task.number)
        ]

    def give_up(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()

    def _free_for(self, task: Task) -> int | None:
        if task.place is Place.APART:
            return 0
        idle = [number for number, tasks in enumerate(self._at) if not tasks]
        if task.place is Place.ALONE:
            return idle[0] if idle else None
        # Together with others that share, so that an instance is left for who must be alone.
        shared = [
            number
            for number, tasks in enumerate(self._at)
            if tasks and all(other.place is Place.SHARED for other in tasks)
        ]
        return next(iter([*shared, *idle]), None)


def _urgency(task: Task) -> tuple[bool, bool, float, int]:
    """The least is begun first."""
    apart = task.place is Place.APART
    return not apart, not task.check.waits, -task.check.seconds, task.number


class Ending(StrEnum):
    """How a task ended in its lane."""

    DONE = "done"
    GONE = "gone"
    """The target stopped answering, or was paused."""
    INTERRUPTED = "interrupted"
    FAULT = "fault"
    """An exception of the harness."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What a lane tells of a task when it has ended."""

    how: Ending
    told: str
    """Why the target is gone, or the traceback."""
    tally: Tally


Order: TypeAlias = tuple[int, int, Silence]
"""A task's number, its instance, and what that instance lost since it answered last."""


class LaneError(Exception):
    """A lane did not do what it was told: a fault of the harness."""


class _InLaneError(Exception):
    """The traceback of an exception in another process, as the cause of the one here."""


class Watcher(Protocol):
    """Who is told what is under way."""

    def check(self, title: str, lane: int = 0) -> None:
        """A check begins in a lane."""

    def advance(self, done: int, of: int, lane: int = 0) -> None:
        """The check in a lane has done so much of so many."""

    def end(self, lane: int = 0) -> None:
        """The check in a lane has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What all lanes together saw."""

    tally: Tally
    interrupted: str
    """Why not everything was done; empty where it was."""


# -- in the lane -----------------------------------------------------------------------------


class _Told:
    """Progress that is told to whoever gave the task."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._not_before = 0.0

    def check(self, title: str) -> None:
        """It is known to whoever gave the task."""

    def advance(self, done: int, of: int) -> None:
        """Tell it, now and then."""
        now = time.monotonic()
        if now >= self._not_before:
            self._not_before = now + PROGRESS_SECONDS
            self._connection.send((done, of))


def _lane(
    connection: "Connection[Any, Any]",
    tasks: Sequence[Task],
    targets: Sequence[Target],
    profile: Profile,
    seed: int,
    mark: str,
) -> None:
    """Do one task after another until there is none."""
    interrupts = _Interrupts()
    # Ctrl-C on a terminal goes to every process of its group; this one is told by its parent.
    with suppress(AttributeError):  # a system without process groups
        os.setpgid(0, 0)
    logs.share_mark(mark)
    end_with_parent()
    connection.send(_READY)
    with insistent():
        while (order := connection.recv()) is not None:
            number, instance, silence = order
            run = _run_of(
                tasks[number],
                targets[instance],
                profile=profile,
                seed=seed,
                progress=_Told(connection),
                tally=Tally(silence=silence),
            )
            connection.send(_done(tasks[number], run, interrupts))


def end_with_parent() -> None:
    """Have this process, which another one started, end as soon as that one has, however it did.

    What it is about is lost. Programs and folders of its own end with it, as they always do.
    """
    parent = parent_process()
    assert parent is not None
    awaited = parent.sentinel

    def end() -> None:
        wait([awaited])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


class _Interrupts:
    """Interrupts of this process, which end what is done and never anything in between."""

    def __init__(self) -> None:
        self._asked = self._welcome = False
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True
        if self._welcome:
            raise KeyboardInterrupt

    @contextmanager
    def welcome(self) -> Iterator[None]:
        """Be interrupted in here, by what came before as well."""
        try:
            self._welcome = True
            if self._asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._welcome = False


def _run_of(
    task: Task, target: Target, *, profile: Profile, seed: int, progress: _Told, tally: Tally
) -> Run:
    if task.place is Place.SHARED:
        target = replace(target, controls=None)
    # Of this task alone: what has no mark is looked for in the logs when all have ended.
    target = replace(target, logs=target.logs and target.logs.anew())
    return Run(
        target=target,
        profile=profile,
        seed=seed,
        progress=progress,
        tally=tally,
        shard=task.shard,
    )


def _done(task: Task, run: Run, interrupts: _Interrupts) -> Ended:
    how, told = Ending.DONE, ""
    try:
        with interrupts.welcome():
            run.play(task.check)
    except TargetGoneError as error:
        how, told = Ending.GONE, str(error)
    except KeyboardInterrupt:
        how = Ending.INTERRUPTED
    except Exception:
        how, told = Ending.FAULT, traceback.format_exc()
    finally:
        run.leave()
    return Ended(how=how, told=told, tally=run.tally)


# -- in the parent ---------------------------------------------------------------------------


class _Lane:
    """A lane as its parent sees it."""

    def __init__(self, process: BaseProcess, connection: "Connection[Any, Any]") -> None:
        self.process = process
        self.connection = connection
        self.task: Task | None = None
        self.instance = 0

    def interrupt(self) -> None:
        """Let it come to an end with what it has."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGINT)


class Lanes:
    """Lanes that are ready, of one target. Made by :func:`lanes`."""

    def __init__(
        self, lanes: Sequence[_Lane], tasks: Sequence[Task], targets: Sequence[Target]
    ) -> None:
        self._lanes = lanes
        self._tasks = tasks
        self._targets = targets
        self._schedule = Schedule(tasks, len(targets))
        self._silences = [Silence()] * len(targets)
        self._ended: dict[int, Ended] = {}
        self._interrupted = ""
        self._stop_by = float("inf")
        self.places: list[tuple[Task, int, bool]] = []
        """What was begun (True) and ended at which instance, in order."""

    def go_through(self, progress: Watcher) -> Seen:
        """Do everything, until the end or Ctrl-C.

        Raises:
            LaneError: a lane ended by itself, or an exception was raised in one.
            KeyboardInterrupt: it came a second time.
        """
        with _ctrl_c() as asked:
            while True:
                self._begin(progress)
                busy = [lane for lane in self._lanes if lane.task is not None]
                if not busy:
                    break
                self._listen(busy, asked, progress)
        gone = [e for _, e in sorted(self._ended.items()) if e.how is Ending.GONE]
        return Seen(
            tally=put_together(
                self._tasks,
                {number: ended.tally for number, ended in self._ended.items()},
                target=self._targets[0],
                interrupted=bool(self._interrupted),
            ),
            interrupted=gone[0].told if gone else self._interrupted,
        )

    def _begin(self, progress: Watcher) -> None:
        for number, lane in enumerate(self._lanes):
            if lane.task is not None:
                continue
            begun = self._schedule.begin()
            if begun is None:
                return
            lane.task, lane.instance = begun
            self.places.append((lane.task, lane.instance, True))
            progress.check(lane.task.title, number)
            order: Order = (lane.task.number, lane.instance, self._silences[lane.instance])
            with suppress(BrokenPipeError):  # it is dead, which is seen where it is listened to
                lane.connection.send(order)

    def _listen(
        self, busy: Sequence[_Lane], asked: "Connection[Any, Any]", progress: Watcher
    ) -> None:
        awaited: list[Any] = [asked]
        for lane in busy:
            awaited += [lane.connection, lane.process.sentinel]
        seconds = self._stop_by - time.monotonic()
        ready = wait(awaited, None if seconds == float("inf") else max(seconds, 0))
        if not ready:
            for lane in busy:
                lane.process.kill()  # it does not listen; what it saw is lost
                lane.task = None
            return
        if asked in ready:
            asked.recv_bytes()
            if self._interrupted:
                raise KeyboardInterrupt
            self._stop("interrupted before the end")
        for lane in busy:
            if lane.connection in ready or lane.process.sentinel in ready:
                self._hear(lane, progress)

    def _hear(self, lane: _Lane, progress: Watcher) -> None:
        task = lane.task
        assert task is not None
        number = self._lanes.index(lane)
        try:
            said: Ended | tuple[int, int] = lane.connection.recv()
        except (EOFError, ConnectionResetError):
            lane.process.join()
            lane.task = None
            raise LaneError(
                f"a process of the harness ended with {lane.process.exitcode} in the middle of "
                f"«{task.title}»"
            ) from None
        if isinstance(said, tuple):
            progress.advance(*said, number)
            return
        lane.task = None
        self._schedule.end(task)
        self.places.append((task, lane.instance, False))
        self._ended[task.number] = said
        if said.how is Ending.DONE:
            progress.end(number)
        if said.how is Ending.FAULT:
            raise LaneError(f"an exception in «{task.title}»") from _InLaneError(said.told)
        if task.place is not Place.APART:
            self._silences[lane.instance] = said.tally.silence
        if said.tally.failures:
            self._schedule.broke(task)
        if said.how is Ending.GONE and not self._interrupted:
            self._stop(said.told)

    def _stop(self, why: str) -> None:
        """Begin nothing more, and let everything under way come to an end."""
        self._interrupted = why
        self._schedule.give_up()
        self._stop_by = time.monotonic() + INTERRUPT_SECONDS_MAX
        for lane in self._lanes:
            if lane.task is not None:
                lane.interrupt()

    def end(self) -> None:
        """Let every lane end, those that are busy with what they started put away."""
        for lane in self._lanes:
            if lane.task is not None:
                lane.interrupt()
            with suppress(OSError):
                lane.connection.send(None)
        for lane in self._lanes:
            deadline = time.monotonic() + (
                END_SECONDS_MAX if lane.task is None else INTERRUPT_SECONDS_MAX
            )
            # Whoever is to end may have to be listened to before.
            while lane.process.is_alive() and time.monotonic() < deadline:
                with suppress(EOFError, OSError):
                    if lane.connection.poll(0):
                        lane.connection.recv()
                lane.process.join(PROGRESS_SECONDS)
            if lane.process.is_alive():
                lane.process.kill()
            lane.process.join()
            lane.connection.close()


@contextmanager
def lanes(
    number: int,
    checks: Sequence[Check],
    targets: Sequence[Target],
    *,
    profile: Profile,
    seed: int,
) -> Iterator[Lanes]:
    """So many lanes for a target, for as long as the context.

    To be opened before anything that has a thread, such as a progress bar, is.

    Args:
        number: how many checks are done at a time.
        checks: all that there are; those are done to which the target gives access.
        targets: the instances of it, every one with the same access.
        profile: how much is done.
        seed: what is drawn.
    """
    context = get_context("fork") if _forking_is_safe() else get_context("spawn")
    tasks = tasks_of(checks, targets[0], profile)
    made: list[_Lane] = []
    opened = Lanes(made, tasks, targets)
    try:
        with _deaf():
            for place in range(number):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_lane,
                    args=(theirs, tasks, tuple(targets), profile, seed, logs.mark()),
                    name=f"lane {place + 1}",
                )
                process.start()
                theirs.close()  # so that its end is the end of what can be heard of it
                made.append(_Lane(process, ours))
        for lane in made:
            lane.connection.recv()
        yield opened
    finally:
        opened.end()


def jobs_by_default() -> int:
    """How many checks are done at a time where nobody says: two more than there are processors.

    One of the two is for the check that waits for a deadline, the other for the one that makes
    faults, and waits for a store that is away or a server that starts.
    """
    return min(processors() + 2, JOBS_BY_DEFAULT_MAX)


def load_what_checks_need() -> None:
    """Load what checks load when they begin, so that lanes that are forked have it already."""
    import schemathesis.openapi  # noqa: F401


def _forking_is_safe() -> bool:
    """Whether a fork takes everything along: where no other thread may be in the middle of
    something, and no library of the system's minds."""
    if sys.platform != "linux":
        return False
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_THREAD_SECONDS_MAX)
    return threading.active_count() == 1


@contextmanager
def _deaf() -> Iterator[None]:
    """Start processes that ignore Ctrl-C until they have their own way with it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _ctrl_c() -> "Iterator[Connection[Any, Any]]":
    """Where Ctrl-C can be heard, instead of in the middle of whatever is done."""
    heard, said = get_context().Pipe(duplex=False)
    before = signal.signal(signal.SIGINT, lambda *_: said.send_bytes(b"x"))
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)
        said.close()
        heard.close()


def put_together(
    tasks: Sequence[Task], parts: Mapping[int, Tally], *, target: Target, interrupted: bool
) -> Tally:
    """The tally of a run that had gone through the tasks in their order.

    Args:
        tasks: all that was to be done.
        parts: of those that were done, by their numbers.
        target: whose logs look out for what was sent.
        interrupted: whether some were not come to.
    """
    whole = Tally(logs=target.logs)
    for task in tasks:
        if task.only_unbroken and whole.failures:
            if task.number in parts or not interrupted:
                nothing = Timing(
                    name=task.check.name, title=task.check.title, seconds=0, requests=0
                )
                whole.add(Tally(timings=[nothing]))
        elif task.number in parts:
            whole.add(parts[task.number])
    return whole
