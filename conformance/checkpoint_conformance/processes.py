"""Starts an implementation from its description, and stops the whole of it at the end."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from checkpoint_conformance.client import Address, Client, HttpAnswer, UrlError
from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import FOLDER, Description, TargetError
from checkpoint_model.vocabulary import HEALTH_PATH

LOG_NAME: Final = "target.log"
STORE_LOG_NAME: Final = "store.log"
LOG_LINES_SHOWN: Final = 20
STORE_READY_SECONDS_MAX: Final = 30.0
STORE_STOP_SECONDS_MAX: Final = 5.0
STORE_PORT_DEFAULT: Final = 6379
_PID_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.02
_PROBE_SECONDS_MAX: Final = 2.0


class Program:
    """One program as the leader of a process group, which ends with this process at the latest.

    Args:
        command: the program and its arguments.
        log: what it prints is appended there.
        directory: where it runs; here if None.
        environment: added to ours.
        stop_seconds: how long it may take to stop when it is asked to.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stop_seconds: float,
    ) -> None:
        self.command = tuple(command)
        self._log = log
        self._directory = directory
        self._environment = dict(environment or {})
        self._stop_seconds = stop_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._pid_file = log.with_name(f"{log.name}.{secrets.token_hex(4)}.pid")

    def start(self) -> None:
        """Start it, the first time or after it was killed."""
        assert self._process is None
        self._pid_file.unlink(missing_ok=True)
        guardian = Path(__file__).with_name("process_guardian.py")
        told = (str(self._stop_seconds), str(self._pid_file))
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - whoever wrote the description chose it
                [sys.executable, "-I", str(guardian), *told, *self.command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; nothing where it has ended by itself.

        Raises:
            LaunchError: it was never there to be signalled.
        """
        deadline = time.monotonic() + _PID_SECONDS_MAX
        while not self._pid_file.exists():
            if time.monotonic() > deadline or self.ended is not None:
                raise LaunchError(self.not_started("It was not there to be signalled"))
            time.sleep(_POLL_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(int(self._pid_file.read_text(encoding="ascii")), number)

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.wait()  # its guardian ends once the group has
        self._process.stdin.close()
        self._process = None

    def ask_to_stop(self) -> None:
        """Ask it to stop, as :meth:`stop` does, and wait for nothing: several stop at once."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def stop(self) -> None:
        """Ask it to stop, kill it when it does not, and wait until it is gone."""
        self.ask_to_stop()
        if self._process is not None:
            self._process.wait()
            self._process = None
        self._pid_file.unlink(missing_ok=True)

    @property
    def ended(self) -> int | None:
        """Its exit status once it has ended by itself."""
        return None if self._process is None else self._process.poll()

    def wait_until(self, ready: Callable[[], str], seconds_max: float, what: str) -> None:
        """Wait until ``ready`` says nothing more against it.

        Raises:
            LaunchError: it ended before, or was not ready in time.
        """
        deadline = time.monotonic() + seconds_max
        while why_not := ready():
            if self.ended is not None:
                raise LaunchError(self.not_started(f"It ended with status {self.ended}"))
            if time.monotonic() > deadline:
                waited = f"Nothing answered at {what} within {seconds_max:g} s ({why_not})"
                raise LaunchError(self.not_started(waited))
            time.sleep(_POLL_SECONDS)

    def not_started(self, what: str) -> str:
        """Word of it for people, with the last lines of what it printed."""
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        shown = "\n".join(f"  {line}" for line in said[-LOG_LINES_SHOWN:]) or "  (nothing)"
        command = " ".join(self.command)
        return f"The implementation did not start: {command}\n{what}. It said:\n{shown}"


@contextmanager
def running(description: Description, log_folder: Path | None = None) -> Iterator[Target]:
    """The target of a description, started where it says how.

    Args:
        description: as it was read.
        log_folder: where to keep what the implementation printed; thrown away if None.

    Raises:
        TargetError: a placeholder cannot be filled in.
        LaunchError: it did not start, or did not answer in time.
    """
    # Not at the top: it starts with this module's own functions what it harms.
    from checkpoint_conformance.deployment import fault_access

    access = fault_access(description)
    if description.start is None:
        logs = Logs(description.logs) if description.logs else None
        yield replace(description.filled_in({}).target(access), logs=logs)
        return
    with ExitStack() as stack:
        values: dict[str, int | str] = {name: free_port() for name in description.ports}
        if description.store_command is not None:
            values["store_port"] = values.setdefault("store_listen_port", free_port())
            values[FOLDER] = str(stack.enter_context(temporary_folder()))
        elif description.store is not None:
            values["store_port"] = urlsplit(description.store).port or STORE_PORT_DEFAULT
        filled = description.filled_in(values)
        target = filled.target(access)
        if log_folder is None:
            log_folder = stack.enter_context(temporary_folder())
        log_folder.mkdir(parents=True, exist_ok=True)
        log = log_folder / LOG_NAME
        log.write_bytes(b"")
        logs = Logs([*filled.logs, log])
        stack.callback(logs.look)  # when it has stopped, and before the folder is gone
        if filled.store_command is not None:
            stack.enter_context(started_store(filled, log_folder / STORE_LOG_NAME))
        stack.enter_context(started_server(filled, log))
        yield replace(target, logs=logs)


@contextmanager
def started_server(description: Description, log: Path) -> Iterator[Program]:
    """The server of a description that is filled in, until the end of the context.

    Raises:
        TargetError: there is no such folder, or no such URL.
        LaunchError: it did not start, or did not answer in time.
    """
    program = server_program(description, log)
    program.start()
    try:
        wait_for_server(description, program)
        yield program
    finally:
        program.stop()


def server_program(description: Description, log: Path) -> Program:
    """The server of a description that is filled in, not started yet.

    Raises:
        TargetError: there is no such folder.
    """
    start = description.start
    assert start is not None
    if not start.directory.is_dir():
        raise TargetError(f"`start.directory`: there is no folder {start.directory}")
    return Program(
        start.command,
        log,
        directory=start.directory,
        environment=start.environment,
        stop_seconds=start.stop_seconds,
    )


def wait_for_server(description: Description, program: Program) -> None:
    """Wait until a server answers, whatever it says.

    Raises:
        TargetError: the URL to ask is none.
        LaunchError: it ended, or did not answer in time.
    """
    start = description.start
    assert start is not None
    url = start.ready or description.url + HEALTH_PATH
    try:
        # A probe goes to one address: what stands behind the host is the path.
        address = Address.parse(url.partition("?")[0])
    except UrlError as error:
        raise TargetError(f"`start.ready`: {error}") from None

    def ready() -> str:
        with Client(address, seconds_max=_PROBE_SECONDS_MAX) as client:
            answer = client.exchange("GET", "").answer
        return "" if isinstance(answer, HttpAnswer) else answer.reason

    program.wait_until(ready, start.ready_seconds, url)


@contextmanager
def started_store(description: Description, log: Path) -> Iterator[Program]:
    """The store of a description that is filled in, until the end of the context.

    Raises:
        TargetError: its URL is none.
        LaunchError: it did not start, or did not answer in time.
    """
    command = description.store_command
    assert command is not None
    log.write_bytes(b"")
    program = Program(command, log, stop_seconds=STORE_STOP_SECONDS_MAX)
    program.start()
    try:
        wait_for_store(description, program)
        yield program
    finally:
        program.stop()


def wait_for_store(description: Description, program: Program) -> None:
    """Wait until a store answers.

    Raises:
        TargetError: its URL is none.
        LaunchError: it ended, or did not answer in time.
    """
    import redis

    url = description.store
    assert url is not None
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=_PROBE_SECONDS_MAX,
            socket_connect_timeout=_PROBE_SECONDS_MAX,
        )
    except ValueError as error:
        raise TargetError(f"`store`: {error}") from None

    def ready() -> str:
        try:
            client.ping()
        except redis.RedisError as error:
            return type(error).__name__
        return ""

    with client:
        program.wait_until(ready, STORE_READY_SECONDS_MAX, url.rpartition("@")[2])


def free_port() -> int:
    """A port of loopback that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
