"""Starts an implementation from its description, and stops the whole of it at the end."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from checkpoint_conformance.client import Address, Client, HttpAnswer, UrlError
from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import Description, TargetError
from checkpoint_model.vocabulary import HEALTH_PATH

LOG_NAME: Final = "target.log"
LOG_LINES_SHOWN: Final = 20
_POLL_SECONDS: Final = 0.05
_PROBE_SECONDS_MAX: Final = 2.0


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
    if description.start is None:
        logs = Logs(description.logs) if description.logs else None
        yield replace(description.filled_in({}).target(), logs=logs)
        return
    with ExitStack() as stack:
        ports = {name: _free_port() for name in description.ports}
        filled = description.filled_in(ports)
        target = filled.target()
        if log_folder is None:
            log_folder = stack.enter_context(temporary_folder())
        log_folder.mkdir(parents=True, exist_ok=True)
        log = log_folder / LOG_NAME
        log.write_bytes(b"")
        logs = Logs([*filled.logs, log])
        stack.callback(logs.look)  # when it has stopped, and before the folder is gone
        stack.enter_context(_started(filled, log))
        yield replace(target, logs=logs)


@contextmanager
def _started(description: Description, log: Path) -> Iterator[None]:
    start = description.start
    assert start is not None
    if not start.directory.is_dir():
        raise TargetError(f"`start.directory`: there is no folder {start.directory}")
    guardian = Path(__file__).with_name("process_guardian.py")
    command = [sys.executable, "-I", str(guardian), str(start.stop_seconds), *start.command]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - whoever wrote the description chose it
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=start.directory,
            env={**os.environ, **start.environment},
            start_new_session=True,
        )
    try:
        _wait_until_ready(description, process, log)
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def _wait_until_ready(
    description: Description, process: "subprocess.Popen[bytes]", log: Path
) -> None:
    start = description.start
    assert start is not None
    url = start.ready or description.url + HEALTH_PATH
    try:
        # A probe goes to one address: what stands behind the host is the path.
        address = Address.parse(url.partition("?")[0])
    except UrlError as error:
        raise TargetError(f"`start.ready`: {error}") from None
    deadline = time.monotonic() + start.ready_seconds
    while True:
        with Client(address, seconds_max=_PROBE_SECONDS_MAX) as client:
            answer = client.exchange("GET", "").answer
        if isinstance(answer, HttpAnswer):
            return
        status = process.poll()
        if status is not None:
            raise LaunchError(_not_started(f"It ended with status {status}", start.command, log))
        if time.monotonic() > deadline:
            waited = f"Nothing answered at {url} within {start.ready_seconds:g} s ({answer.reason})"
            raise LaunchError(_not_started(waited, start.command, log))
        time.sleep(_POLL_SECONDS)


def _not_started(what: str, command: tuple[str, ...], log: Path) -> str:
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    shown = "\n".join(f"  {line}" for line in said) or "  (nothing)"
    return f"The implementation did not start: {' '.join(command)}\n{what}. It said:\n{shown}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
