"""Brings the users of a run together: when all are done, who is stopped, what is gathered.

A run is on one process, or on a master and its workers. What they say to each other:

    worker → master   storm_done    this user is done, and wrote these files
    master → worker   storm_send    these files I do not have: send them
    worker → master   storm_chunk   a piece of one
    master → worker   storm_stop    stop at once

A worker on the same machine wrote into the master's own folder, so nothing is sent. When every
user is done and every file is there, the run is concluded: judged, reported, and Locust ends with
the verdict as its exit status.
"""

import json
import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import MasterRunner, Runner, WorkerRunner

from checkpoint_conformance.verdict import EXIT_CODES, EXIT_UNREACHABLE, Verdict
from checkpoint_load import report
from checkpoint_load.burst import Stop
from checkpoint_load.concluding import conclude
from checkpoint_load.plan import Plan, PlanError

STOP_SECONDS_MAX: Final = 5.0
"""How long users that were told to stop may take to write down what was under way."""
GRACE_SECONDS: Final = 30.0
"""A run that lasts so much longer than it should has lost a worker, and is ended."""
_CHUNK_BYTES: Final = 1 << 18
_PROGRESS_SECONDS: Final = 0.1


@dataclass(kw_only=True, slots=True)
class Part:
    """What one user has of a run."""

    label: str
    """Unique within the run; empty where there is only one."""
    tells: bool
    """Whether to tell of progress on standard output."""
    stop: Stop = field(default_factory=Stop)
    files: list[str] = field(default_factory=list)
    fault: str = ""
    """What went wrong in the harness itself."""
    told_at: float = 0
    answers: int = 0
    """How many there have been so far."""

    @property
    def prefix(self) -> str:
        """What the names of this user's clients begin with."""
        return f"{self.label}." if self.label else ""

    def file_name(self, storm: str) -> str:
        """Of its history of one storm."""
        return "-".join(filter(None, (storm, self.label))) + ".jsonl"

    def progress(self, storm: str, round_number: int) -> None:
        """Tell how far it is, now and then."""
        now = time.monotonic()
        if self.tells and now - self.told_at > _PROGRESS_SECONDS:
            self.told_at = now
            _tell({"storm": storm, "round": round_number, "answers": self.answers})


def _tell(members: Mapping[str, Any]) -> None:
    """A line for the process that shows how far this one is."""
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(members).encode() + b"\n")  # at once: processes mix no lines


def _tell_judging(what: str, done: int, of: int) -> None:
    del what
    _tell({"judging": done, "of": of})


class Coordinator:
    """Of one process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parts: list[Part] = []
        self._begun = 0
        self._done: dict[str, Mapping[str, Any]] = {}
        """What each user that is done said at its end."""
        self._all_done = Event()
        self._expected = 0
        self._workers = 0
        self._concluded = True
        self._started = False
        runner = self._runner
        if isinstance(runner, WorkerRunner):
            runner.register_message("storm_send", self._send_files)
            runner.register_message("storm_stop", lambda **_: self._stop_users())
        elif isinstance(runner, MasterRunner):
            runner.register_message("storm_done", self._on_done)
            runner.register_message("storm_chunk", self._on_chunk)
        events: Any = environment.events
        events.test_start.add_listener(self._on_start)
        events.test_stop.add_listener(self._on_stop)
        events.quitting.add_listener(self._on_quitting)
        self._choose_seed()
        if environment.host and not isinstance(runner, WorkerRunner):
            try:
                self._plan  # noqa: B018 - to find out now what is wrong with it
            except PlanError as error:
                sys.stderr.write(f"{error}\n")
                raise SystemExit(EXIT_UNREACHABLE) from None
        # Python's own way would interrupt whatever runs at the moment, such as the writing of a
        # history. This one lets that end, and then interrupts Locust.
        self._interrupts: Any = gevent.signal_handler(signal.SIGINT, self._on_interrupt)

    @property
    def _runner(self) -> Runner:
        assert self._environment.runner is not None
        return self._environment.runner

    def _choose_seed(self) -> None:
        """One for all, where none was given: workers have the master's options."""
        options = self._environment.parsed_options
        if options is not None and options.seed in (None, ""):
            options.seed = secrets.randbits(32)

    @property
    def _plan(self) -> Plan:
        return Plan.of(self._environment)

    @staticmethod
    def _on_interrupt() -> NoReturn:
        raise KeyboardInterrupt

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C interrupt one long calculation, in Python's own way.

        gevent's would wait until something else may go on, which is at its end.
        """
        self._interrupts.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            self._interrupts = gevent.signal_handler(signal.SIGINT, self._on_interrupt)

    # -- Users --------------------------------------------------------------------------------

    @contextmanager
    def user(self) -> Iterator[Part]:
        """The part of a user, from its beginning to its end, however that comes about."""
        self._begun += 1
        runner = self._runner
        alone = not isinstance(runner, WorkerRunner) and self._begun == 1
        index = runner.worker_index if isinstance(runner, WorkerRunner) else 0
        options = self._environment.parsed_options
        part = Part(
            label="" if alone else f"w{index}-{self._begun}",
            tells=bool(options is not None and options.storm_progress),
        )
        self._parts.append(part)
        early = True
        try:
            yield part
            early = part.stop.is_set
        except Exception:  # Locust would log it and begin anew, for ever
            part.fault = traceback.format_exc()
        finally:
            self._parts.remove(part)
            part.stop.close()
            told = {"user": part.label, "early": early, "fault": part.fault}
            if isinstance(runner, WorkerRunner):
                runner.send_message("storm_done", {**told, "files": part.files})
            else:
                self._is_done(told)

    def _stop_users(self) -> None:
        for part in self._parts:
            part.stop.set()

    # -- Master and workers -------------------------------------------------------------------

    def _on_done(self, msg: Any, **_: Any) -> None:
        folder = self._plan.folder
        missing = [name for name in msg.data["files"] if not (folder / Path(name).name).exists()]
        if not missing:
            self._is_done(msg.data)
            return
        asked = {**msg.data, "files": missing}
        self._runner.send_message("storm_send", asked, client_id=msg.node_id)

    def _send_files(self, msg: Any, **_: Any) -> None:
        folder = self._plan.folder
        for name in msg.data["files"]:
            with (folder / name).open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    self._runner.send_message("storm_chunk", {"file": name, "data": data})
                    gevent.sleep(0)
        self._runner.send_message("storm_chunk", {**msg.data, "file": None})

    def _on_chunk(self, msg: Any, **_: Any) -> None:
        name = msg.data["file"]
        if name is None:
            self._is_done(msg.data)
            return
        folder = self._plan.folder
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / Path(name).name).open("ab") as file:
            file.write(msg.data["data"])

    def _is_done(self, told: Mapping[str, Any]) -> None:
        self._done[told["user"]] = told
        if len(self._done) >= self._expected:
            self._all_done.set()

    # -- The run ------------------------------------------------------------------------------

    def _on_start(self, **_: Any) -> None:
        if isinstance(self._runner, WorkerRunner):
            return
        self._choose_seed()
        options = self._environment.parsed_options
        if not self._started and not (options is not None and options.storm_progress):
            # Under Locust's own command; ours has done so already.
            report.begin(self._plan.folder, seed=self._plan.seed)
        self._started = True
        self._done.clear()
        self._all_done.clear()
        self._expected = max(1, self._runner.target_user_count)
        if isinstance(self._runner, MasterRunner):
            self._workers = self._runner.worker_count
        self._concluded = False
        gevent.spawn(self._watch)

    def _watch(self) -> None:
        """End the run when all are done, or when one of them never will be."""
        runner = self._runner
        deadline = time.monotonic() + self._plan.time_max_seconds + GRACE_SECONDS
        while not self._all_done.wait(0.05) and time.monotonic() < deadline:
            if self._concluded:
                return
            if isinstance(runner, MasterRunner) and runner.worker_count < self._workers:
                break
        if self._environment.web_ui is None:
            runner.quit()
        else:
            runner.stop()

    def _on_stop(self, **_: Any) -> None:
        # With the web page Locust goes on after a run, so this is the end of one.
        if self._environment.web_ui is not None:
            self._conclude()

    def _on_quitting(self, **_: Any) -> None:
        if isinstance(self._runner, WorkerRunner):
            self._stop_users()
            deadline = time.monotonic() + STOP_SECONDS_MAX
            while self._parts and time.monotonic() < deadline:
                gevent.sleep(0.01)
        else:
            self._conclude()
            if self._environment.process_exit_code is None:  # nothing was ever begun
                self._environment.process_exit_code = EXIT_CODES[Verdict.INCOMPLETE]

    def _conclude(self) -> None:
        if self._concluded:
            return
        self._concluded = True
        interrupted = ""
        if not self._all_done.is_set():
            self._stop_users()
            if isinstance(self._runner, MasterRunner):
                self._runner.send_message("storm_stop")
            if not self._all_done.wait(STOP_SECONDS_MAX):
                missing = self._expected - len(self._done)
                interrupted = f"{missing} of {self._expected} users did not report"
        if any(told["early"] for told in self._done.values()):
            interrupted = interrupted or "stopped before the end"
        options = self._environment.parsed_options
        self._environment.process_exit_code = conclude(
            self._plan,
            users=self._expected,
            interrupted=interrupted,
            faults=[told["fault"] for told in self._done.values() if told["fault"]],
            tell=_tell_judging if options is not None and options.storm_progress else None,
            interruptible=self._interruptible(),
        )
