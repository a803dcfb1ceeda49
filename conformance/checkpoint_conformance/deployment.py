"""What faults are made of: servers, the store behind them, and the ways between.

    clients ── client link ── servers ── store link ── store

Both links are proxies of ours (:mod:`checkpoint_conformance.tcp_proxy`). Where the description says
how to start the servers, an instance of its own is started for faults, and its store with it where
that is described too; nothing of it is left. Else it is the one that runs already, to which only
that is done which its description allows.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from checkpoint_conformance.client import Address
from checkpoint_conformance.faults import (
    Command,
    Durability,
    FaultAccess,
    Kind,
    ServerFaults,
    StoreFaults,
)
from checkpoint_conformance.folders import put_text, temporary_folder
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.processes import (
    STORE_LOG_NAME,
    Program,
    free_port,
    server_program,
    started_store,
    wait_for_server,
    wait_for_store,
)
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import FOLDER, PORTS, Description, TargetError
from checkpoint_conformance.tcp_proxy import TcpProxy, Upstream

if TYPE_CHECKING:
    import redis

COMMAND_SECONDS_MAX: Final = 60.0
"""How long a command that makes or heals a fault may take."""
CONFIG_SECONDS_MAX: Final = 5.0
_CLOCK: Final = "`faults.store` with `clock_file`, which libfaketime reads"
_STORE_PORT: Final = "${store_port}"
_CUTS_CLIENT: Final = tuple(kind for kind in Kind if kind.startswith("client-cut-"))
_CUTS_STORE: Final = tuple(kind for kind in Kind if kind.startswith("store-cut-"))


class DeploymentError(Exception):
    """A fault could not be made or healed; the message says which and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Server:
    """One server that was started."""

    description: Description
    program: Program


class Deployment:
    """Servers over one store that may be harmed. Made by :func:`deployed`."""

    def __init__(
        self,
        *,
        target: Target,
        description: Description,
        client_link: TcpProxy,
        store_link: TcpProxy | None,
        servers: Sequence[_Server],
        store: Program | None,
        durability: Durability,
        values: Mapping[str, int | str],
        folder: Path,
    ) -> None:
        self.target = target
        """As clients see it, through the link."""
        self.client_link = client_link
        self.store_link = store_link
        self.durability = durability
        self._description = description
        self._servers = servers
        self._store = store
        self._values = values
        self._folder = folder
        self._settings: dict[str, str] = {}

    @property
    def server_address(self) -> Address:
        """The first server itself, past the link."""
        first = self._servers[0].description if self._servers else self._description
        return Address.parse(first.url)

    @property
    def _server_faults(self) -> ServerFaults:
        faults = self._description.faults
        assert faults is not None
        assert faults.server is not None
        return faults.server

    @property
    def _store_faults(self) -> StoreFaults:
        faults = self._description.faults
        assert faults is not None
        assert faults.store is not None
        return faults.store

    # -- servers ------------------------------------------------------------------------------

    def kill_servers(self, number: int | None = None) -> None:
        """Kill every server, or so many; without a word.

        Raises:
            DeploymentError: it could not be done.
        """
        if not self._servers:
            _carry_out(self._server_faults.kill)
        for server in self._servers[:number]:
            server.program.kill()

    def start_servers(self, number: int | None = None) -> None:
        """Start again what was killed, and return before it answers.

        Raises:
            DeploymentError: it could not be done.
        """
        if not self._servers:
            _carry_out(self._server_faults.start)
        for server in self._servers[:number]:
            server.program.start()

    def wait_for_servers(self) -> None:
        """Wait until every server answers.

        Raises:
            LaunchError: one does not.
        """
        for server in self._servers:
            wait_for_server(server.description, server.program)

    def another_server(self) -> tuple[Program, Description]:
        """One more server over the same store, not started yet."""
        another = self._description.filled_in({**self._values, **_ports(self._description)})
        return server_program(another, self._folder / "another.log"), another

    # -- the store ----------------------------------------------------------------------------

    def kill_store(self) -> None:
        """Kill the store, and return when it is gone.

        Raises:
            DeploymentError: it could not be done.
        """
        self._signal_store(signal.SIGKILL, self._store_faults.kill)

    def start_store(self) -> None:
        """Start the store again, and return when it answers.

        Raises:
            DeploymentError: it could not be done.
            LaunchError: it does not answer.
        """
        if self._store is not None:
            self._store.start()
            wait_for_store(self._description, self._store)
            return
        start = self._store_faults.start
        assert start is not None
        _carry_out(start)

    def freeze_store(self) -> None:
        """Stop the store with SIGSTOP, or as was told."""
        self._signal_store(signal.SIGSTOP, self._store_faults.freeze)

    def thaw_store(self) -> None:
        """Let it go on."""
        self._signal_store(signal.SIGCONT, self._store_faults.thaw)

    def _signal_store(self, number: signal.Signals, command: Command | None) -> None:
        if command is not None:
            _carry_out(command)
        elif self._store is not None and number is signal.SIGKILL:
            self._store.kill()
        elif self._store is not None:
            self._store.signal(number)
        else:
            _signal_process(self._store_faults.pid_file, number)

    def fill_store(self) -> None:
        """Leave the store no memory for a write.

        Raises:
            DeploymentError: it could not be done.
        """
        self.set_store("maxmemory", "1")

    def set_store(self, name: str, value: str, *, for_good: bool = False) -> None:
        """Change one setting of the store, until :meth:`restore_settings` or for good.

        Raises:
            DeploymentError: it could not be done.
        """
        with self._configured() as client:
            if not for_good:
                self._settings.setdefault(name, str(client.config_get(name)[name]))
            client.config_set(name, value)

    def restore_settings(self) -> None:
        """Put back every setting that was changed.

        Raises:
            DeploymentError: it could not be done.
        """
        with self._configured() as client:
            while self._settings:
                name, value = self._settings.popitem()
                client.config_set(name, value)

    @contextmanager
    def _configured(self) -> Iterator["redis.Redis"]:
        import redis

        url = self._description.store
        assert url is not None
        try:
            with redis.Redis.from_url(
                url, decode_responses=True, socket_timeout=CONFIG_SECONDS_MAX
            ) as client:
                yield client
        except redis.RedisError as error:
            raise DeploymentError(f"the store could not be set: {error}") from None

    # -- the clock ----------------------------------------------------------------------------

    def move_clock(self, seconds: float) -> None:
        """Set the store's clock so far ahead of the host's; 0 puts it back.

        Raises:
            DeploymentError: it could not be done.
        """
        path = self._store_faults.clock_file
        assert path is not None
        try:
            # In one step: it is read whenever somebody asks what time it is.
            put_text(path, f"{seconds:+.3f}\n")
        except OSError as error:
            raise DeploymentError(f"cannot write {path}: {error.strerror}") from None


def _carry_out(command: Command) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - whoever wrote the description chose it
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeploymentError(f"{command[0]}: {error}") from None
    if done.returncode:
        said = done.stdout.strip()[-1000:]
        raise DeploymentError(f"{' '.join(command)} ended with {done.returncode}: {said}")


def _signal_process(pid_file: Path | None, number: signal.Signals) -> None:
    assert pid_file is not None
    try:
        os.kill(int(pid_file.read_text(encoding="ascii")), number)
    except (OSError, ValueError) as error:
        raise DeploymentError(f"the process that {pid_file} names: {error}") from None


# -- from a description -----------------------------------------------------------------------


def fault_access(
    description: Description,
    wrapped: Callable[[Deployment], AbstractContextManager[None]] | None = None,
) -> FaultAccess | None:
    """Access to the faults of a description; None where it allows none.

    Args:
        description: not filled in.
        wrapped: what is put around each deployment, such as a fault of its own.
    """
    if description.faults is None:
        return None
    missing = {kind: why for kind in Kind if (why := _missing(description, kind))}
    return FaultAccess(
        kinds=tuple(kind for kind in Kind if kind not in missing),
        missing=missing,
        durability=description.durability or Durability.NONE,
        starts=description.start is not None,
        apart=description.start is not None and description.store_command is not None,
        deploy=partial(_deployed_within, description, wrapped),
    )


@contextmanager
def _deployed_within(
    description: Description,
    wrapped: Callable[[Deployment], AbstractContextManager[None]] | None,
) -> Iterator[Deployment]:
    with ExitStack() as stack:
        deployment = stack.enter_context(deployed(description))
        if wrapped is not None:
            stack.enter_context(wrapped(deployment))
        yield deployment


def _missing(description: Description, kind: Kind) -> str:
    """Why a fault cannot be made of what is described; empty where it can."""
    faults = description.faults
    assert faults is not None
    store = faults.store or StoreFaults()
    ours = store.command is not None
    started = description.start is not None
    link_told = started and _STORE_PORT in " ".join(
        [*description.start.command, *description.start.environment.values()]
        if description.start is not None
        else []
    )
    if kind in _CUTS_CLIENT:
        return "" if description.url.startswith("http:") else "a link of ours has no TLS"
    if kind in _CUTS_STORE or kind in (Kind.STORE_SLOW, Kind.STORE_PARTITION):
        if description.store is None:
            return "`store` says where the store is"
        return "" if link_told else f"a `start` that looks for its store at {_STORE_PORT}"
    if kind is Kind.SERVER_KILL_ONE:
        return "" if faults.servers > 1 else "`faults.servers` of at least 2"
    needed = {
        Kind.SERVER_KILL: (started or faults.server is not None, "`start`, or `faults.server`"),
        Kind.STORE_KILL: (
            ours or bool((store.kill or store.pid_file) and store.start),
            "`faults.store` with `command`, or with `start` and `kill` or `pid_file`",
        ),
        Kind.STORE_FREEZE: (
            ours or bool(store.freeze or store.pid_file),
            "`faults.store` with `command`, `pid_file`, or `freeze` and `thaw`",
        ),
        Kind.STORE_FULL: (
            store.may_be_spoiled and description.store is not None,
            "`faults.store` with `may_be_spoiled`",
        ),
        Kind.CLOCK_FORWARD: (store.clock_file is not None, _CLOCK),
        Kind.CLOCK_BACK: (store.clock_file is not None, _CLOCK),
    }
    there, what = needed[kind]
    return "" if there else what


@contextmanager
def deployed(description: Description) -> Iterator[Deployment]:
    """What a description describes, for faults.

    Raises:
        TargetError: a placeholder cannot be filled in, or an address is none.
        LaunchError: something did not start, or did not answer in time.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        values: dict[str, int | str] = {FOLDER: str(folder)}
        if description.store_command is not None:
            values["store_port"] = values["store_listen_port"] = free_port()
        early = description.filled_in({**dict.fromkeys(PORTS, 0), **values})
        # Of all that is filled in only once, when the servers' ports are not known yet.
        base = replace(description, store=early.store, faults=early.faults)
        store = store_link = None
        if early.store_command is not None:
            store = stack.enter_context(started_store(early, folder / STORE_LOG_NAME))
        if not _missing(description, Kind.STORE_SLOW):
            assert early.store is not None
            try:
                upstream = Upstream.of_store(early.store)
            except ValueError as error:
                raise TargetError(f"`store`: {error}") from None
            store_link = stack.enter_context(TcpProxy([upstream]))
            values["store_port"] = store_link.port
        servers = _started_servers(stack, base, values, folder) if base.start is not None else []
        described = servers[0].description if servers else base.filled_in(values)
        target = described.target()
        addresses = [Address.parse(one.description.url) for one in servers] or [target.address]
        client_link = stack.enter_context(
            TcpProxy([Upstream(host=at.host, port=at.port) for at in addresses])
        )
        address = target.address
        if not address.tls:
            address = Address.parse(
                f"http://127.0.0.1:{client_link.port}{target.address.base_path}"
            )
        deployment = Deployment(
            target=replace(target, address=address, controls=None, mcp=None),
            description=base,
            client_link=client_link,
            store_link=store_link,
            servers=servers,
            store=store,
            durability=description.durability or Durability.NONE,
            values=values,
            folder=folder,
        )
        yield deployment


def _ports(description: Description) -> dict[str, int | str]:
    return {name: free_port() for name in ("port", "controls_port") if name in description.ports}


def _started_servers(
    stack: ExitStack, base: Description, values: dict[str, int | str], folder: Path
) -> list[_Server]:
    """Every server, all starting at once."""
    assert base.faults is not None
    servers = []
    for number in range(base.faults.servers):
        described = base.filled_in({**values, **_ports(base)})
        program = server_program(described, folder / f"server-{number}.log")
        program.start()
        stack.callback(program.stop)
        servers.append(_Server(description=described, program=program))
    for server in servers:
        stack.callback(server.program.ask_to_stop)  # every one, before the first is waited for
    for server in servers:
        wait_for_server(server.description, server.program)
    return servers


__all__ = ["Deployment", "DeploymentError", "LaunchError", "deployed", "fault_access"]
