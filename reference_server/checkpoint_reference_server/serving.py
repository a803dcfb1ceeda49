"""Runs the server: sockets, store, processes, and the lines that say where everything is."""

import json
import os
import socket
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from checkpoint_model.vocabulary import CONTRACT_VERSION, TOOL_PATH
from checkpoint_reference_server.app import Settings, create_app
from checkpoint_reference_server.store import (
    Store,
    StoreError,
    open_store,
    refuse_if_it_evicts,
    without_password,
)

LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 2048
DRAIN_SECONDS_MAX: Final = 10
"""How long requests in flight may take to finish once the server was told to stop."""
KEEP_ALIVE_SECONDS: Final = 75


class ServeError(Exception):
    """The server cannot start; the message says what happened and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What ``workflow-checkpoint serve`` was told. Its text has neither the key nor the URL."""

    host: str
    port: int
    """0 for any free one."""
    valkey_url: str | None = field(repr=False)
    workers: int
    test_controls: bool
    hmac_key: bytes = field(repr=False)
    log_level: str
    ready_file: Path | None
    """Where to write, once requests are answered, the addresses as one JSON object."""
    exit_with_input: bool
    """Whether to stop when standard input ends, as it does when its writer dies."""


def serve(options: Options) -> None:
    """Serve until told to stop (SIGINT, SIGTERM), then drain.

    Raises:
        ServeError: the port is taken, the store is away or set to evict.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.port))
        try:
            store = stack.enter_context(open_store(options.valkey_url))
            refuse_if_it_evicts(store.url)
        except StoreError as error:
            raise ServeError(str(error)) from None
        sockets = [listener]
        controls_port = None
        if options.test_controls:
            sockets.append(stack.enter_context(_listen(LOOPBACK, 0)))
            controls_port = _port(sockets[-1])
        settings = Settings(
            store_url=store.url,
            hmac_key=options.hmac_key,
            controls_port=controls_port,
            log_level=options.log_level,
        )
        config = uvicorn.Config(
            partial(create_app, settings),
            factory=True,
            workers=options.workers,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS_MAX,
            backlog=BACKLOG,
        )
        addresses = _Addresses(options, store, _port(listener), controls_port)
        server = _Server(config, addresses)
        if options.exit_with_input:
            _stop_with_input()
        if options.workers > 1:
            addresses.tell()  # connections wait in the listener until a process takes them
            Multiprocess(config, sockets).run()
        else:
            server.run(sockets=sockets)


class _Addresses:
    """Where everything is, told once: as lines for people and as a file for programs."""

    def __init__(
        self, options: Options, store: Store, port: int, controls_port: int | None
    ) -> None:
        host = f"[{options.host}]" if ":" in options.host else options.host
        self._ready_file = options.ready_file
        self._store = store
        self.url = f"http://{host}:{port}"
        self.controls = None if controls_port is None else f"http://{LOOPBACK}:{controls_port}"

    def tell(self) -> None:
        lines = [
            f"Workflow Checkpoint {CONTRACT_VERSION}, reference server",
            f"  tool      {self.url}{TOOL_PATH}",
            f"  store     {without_password(self._store.url)}  ({self._store.description})",
        ]
        if self.controls is not None:
            lines.append(f"  controls  {self.controls}  (for tests alone: they set its clock)")
        print("\n".join(lines), flush=True)  # noqa: T201 - this is what the command is for
        if self._ready_file is not None:
            facts: dict[str, Any] = {
                "url": self.url,
                "controls": self.controls,
                "store": self._store.url,
                "store_description": self._store.description,
            }
            # Renamed into place, so that whoever waits for the file never reads half of it.
            partial_file = self._ready_file.with_suffix(".partial")
            partial_file.write_text(json.dumps(facts), encoding="utf-8")
            partial_file.replace(self._ready_file)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, addresses: _Addresses) -> None:
        super().__init__(config)
        self._addresses = addresses

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._addresses.tell()


def _listen(host: str, port: int) -> socket.socket:
    try:
        # Resolved here, so that `localhost` and IPv6 addresses find their family.
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ServeError(
            f"cannot listen at {host} port {port}: {reason}. "
            "Give another with --port, or 0 for any free one."
        ) from None


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _stop_with_input() -> None:
    """Stop as on SIGTERM when standard input ends."""
    import signal

    def wait() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
