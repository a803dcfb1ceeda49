"""Runs the server: sockets, store, processes, and the lines that say where everything is."""

import gc
import importlib.util
import multiprocessing
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from checkpoint_model.vocabulary import CONTRACT_VERSION, MCP_PATH, TOOL_PATH
from checkpoint_reference_server import clients, ready_file
from checkpoint_reference_server.accounts import TokensError, read_tokens
from checkpoint_reference_server.app import Settings, create_app
from checkpoint_reference_server.callers import Callers
from checkpoint_reference_server.controls import CONTROLS_HOST
from checkpoint_reference_server.digests import Digests
from checkpoint_reference_server.direct import DirectProtocol
from checkpoint_reference_server.key_change import OtherKeyError, check_key
from checkpoint_reference_server.protocol import CONNECTIONS_MAX
from checkpoint_reference_server.registry import Deployment, listening_url
from checkpoint_reference_server.store import (
    CONNECT_SECONDS_MAX,
    Store,
    StoreError,
    open_store,
    without_password,
)
from checkpoint_reference_server.store_settings import (
    StoreSettings,
    read_settings,
    refuse_if_it_evicts,
    refuse_if_too_few_replicas,
)
from checkpoint_reference_server.telemetry import TelemetryError, wanted_signals
from checkpoint_reference_server.tls import Tls

BACKLOG: Final = 2048
ACCEPTED_AT_ONCE: Final = 8
"""How many waiting connections a process takes in one turn of its event loop."""
COLLECT_AFTER_OBJECTS: Final = 10_000
"""How many objects more there must be before cycles among the youngest are looked for."""
DRAIN_SECONDS_MAX: Final = 10
"""How long requests in flight may take to finish once the server was told to stop."""
KEEP_ALIVE_SECONDS: Final = 75
_OTHER_FILES: Final = 256
"""What a process has open beside the connections of its callers, generously."""
_METRICS_REMEDY: Final = "the library is missing: pip install 'workflow-checkpoint[metrics]'"
_MCP_REMEDY: Final = "the SDK is missing: pip install 'workflow-checkpoint[mcp]'"


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
    mcp: bool | None
    """Whether to offer MCP; None to offer it where the SDK is installed."""
    hmac_key: bytes = field(repr=False)
    log_level: str
    ready_file: Path | None
    """Where to write, once requests are answered, the addresses as one JSON object."""
    exit_with_input: bool
    """Whether to stop when standard input ends, as it does when its writer dies."""
    public_url: str | None = None
    """How callers reach the server; ``None`` for where it listens."""
    publisher_domain: str = ""
    durability: str | None = None
    """What survives a crash of the store; ``None`` for what its settings give (WC-PRIV-5)."""
    wait_replicas: int = 0
    """How many replicas must have a change before it is acknowledged."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    tokens_file: Path | None = None
    """Accounts and their tokens; None where everybody may call."""
    rate_limit: str | None = None
    """Requests of each account, such as ``100/minute``; None for any number."""
    max_connections: int = CONNECTIONS_MAX
    """Of each process."""
    tls: Tls | None = None
    metrics_port: int | None = None
    """0 for any free one; None to show none."""
    metrics_host: str = "127.0.0.1"
    marks_key: bool = True
    """Whether the store is told which key claims are decided under; not a made-up one."""
    forget_records: bool = False
    """Whether records that were made under another key may be lost."""


def serve(options: Options) -> None:
    """Serve until told to stop (SIGINT, SIGTERM), then drain.

    Raises:
        ServeError: a port is taken, the store is away, set to evict or has records of another
            key, a file cannot be read or written, or something cannot be done as it was told.
        KeyboardInterrupt: after draining, where SIGINT was what stopped it.
    """
    server: _Server | None = None

    def terminate(_: int, __: FrameType | None) -> None:
        # The HTTP layer drains on the signal and then raises it again; by default that would
        # end this process before the store that it started is closed.
        if server is None or not server.should_exit:
            raise SystemExit(0)  # not serving yet

    signal.signal(signal.SIGTERM, terminate)
    offers_mcp = _offers_mcp(options)
    callers = _callers(options)
    _check(options)
    with ExitStack() as stack:
        if options.ready_file is not None:
            try:
                ready_file.prepare(options.ready_file)
            except OSError as error:
                raise ServeError(
                    f"cannot write the ready file {options.ready_file}: {error.strerror}"
                ) from None
        listener = stack.enter_context(_listen(options.host, options.port))
        try:
            store = stack.enter_context(open_store(options.valkey_url))
            store_settings = read_settings(store.url)
            refuse_if_it_evicts(store_settings)
            refuse_if_too_few_replicas(store_settings, options.wait_replicas)
            _check_key(options, store.url)
        except StoreError as error:
            raise ServeError(str(error)) from None
        deployment = _deployment(options, _port(listener), store_settings, offers_mcp=offers_mcp)
        # Callers reach it by the name that is published, too.
        callers = replace(callers, hosts=callers.hosts | {deployment.host})
        metrics_port = _metrics(options, stack)
        sockets = _shared(listener, stack)
        controls_port = None
        if options.test_controls:
            sockets.append(stack.enter_context(_listen(CONTROLS_HOST, 0)))
            controls_port = _port(sockets[-1])
        settings = Settings(
            store_url=store.url,
            store_is_cluster=store_settings.is_cluster,
            wait_replicas=options.wait_replicas,
            hmac_key=options.hmac_key,
            controls_port=controls_port,
            callers=callers,
            offers_mcp=offers_mcp,
            tokens_file=options.tokens_file,
            rate_limit=options.rate_limit,
            marks_key=options.marks_key,
            metrics=metrics_port is not None,
            log_level=options.log_level,
            deployment=deployment,
        )
        config = uvicorn.Config(
            partial(_create_worker, settings),
            factory=True,
            workers=options.workers,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS_MAX,
            backlog=BACKLOG,
            http=DirectProtocol,
            ws="none",
            # One more is cut at once; uvicorn's own refusal, which answers each of their requests
            # as if the tool were away, is never reached.
            limit_concurrency=options.max_connections + 1,
            **({} if options.tls is None else _tls(options.tls)),
        )
        _allow_open_files(options.max_connections)
        addresses = _Addresses(
            options,
            store,
            _port(listener),
            controls_port,
            metrics_port,
            offers_mcp=offers_mcp,
        )
        server = _Server(config, addresses)
        if options.exit_with_input:
            _stop_with_input()
        if options.workers > 1:
            addresses.tell()  # connections wait in the listener until a process takes them
            workers = _Workers(config, sockets)
            workers.shows_metrics = metrics_port is not None
            workers.run()
            if workers.interrupted:
                raise KeyboardInterrupt
        else:
            server.run(sockets=sockets)


def _deployment(
    options: Options, port: int, store: StoreSettings, *, offers_mcp: bool
) -> Deployment:
    """What the published descriptions say.

    Raises:
        ServeError: it cannot be published.
    """
    try:
        return Deployment(
            public_url=options.public_url or listening_url(options.host, port, _scheme(options)),
            publisher_domain=options.publisher_domain,
            offers_mcp=offers_mcp,
            asks_for_token=options.tokens_file is not None,
            durability=options.durability or store.durability(options.wait_replicas),
        )
    except ValueError as error:
        raise ServeError(f"cannot describe this deployment: {error}") from None


def _offers_mcp(options: Options) -> bool:
    """Whether MCP is offered.

    Raises:
        ServeError: it was asked for, and the SDK is not installed.
    """
    if options.mcp is False:
        return False
    if importlib.util.find_spec("mcp") is not None:
        return True
    if options.mcp:
        raise ServeError(f"MCP cannot be offered: {_MCP_REMEDY}")
    return False


def _callers(options: Options) -> Callers:
    """Who may call, by host and origin.

    Raises:
        ServeError: a name cannot be one.
    """
    try:
        callers = Callers.of(options.allowed_hosts, options.allowed_origins)
    except ValueError as error:
        raise ServeError(str(error)) from None
    # A name that it listens at is its own; an address needs not be named.
    return replace(callers, hosts=callers.hosts | {options.host.lower()})


def _check(options: Options) -> None:
    """Find out now what each process would else find out when it starts.

    Raises:
        ServeError: the tokens file, the rate limit, or what OTEL_… says cannot be used.
    """
    if options.tokens_file is not None:
        try:
            read_tokens(options.tokens_file)
        except TokensError as error:
            raise ServeError(f"the tokens file {options.tokens_file}: {error}") from None
    try:
        wanted_signals(os.environ)
    except TelemetryError as error:
        raise ServeError(str(error)) from None
    if options.rate_limit is not None:
        from checkpoint_reference_server.limiter import read_rate

        try:
            read_rate(options.rate_limit)
        except ValueError as error:
            raise ServeError(f"--rate-limit: {error}") from None


def _check_key(options: Options, store_url: str) -> None:
    """Make sure that no record of another key is lost.

    Raises:
        ServeError: some may be, or the store cannot be asked.
    """
    if not options.marks_key:
        return
    try:
        with clients.client_of(store_url, CONNECT_SECONDS_MAX) as client:
            fingerprint = Digests(options.hmac_key).fingerprint
            check_key(client, fingerprint, forget_records=options.forget_records)
    except (OtherKeyError, *clients.STORE_ERRORS) as error:
        raise ServeError(str(error)) from None


def _metrics(options: Options, stack: ExitStack) -> int | None:
    """Show the metrics; the port, or None where none are asked for.

    Raises:
        ServeError: the library is missing, or the port is taken.
    """
    if options.metrics_port is None:
        return None
    if importlib.util.find_spec("prometheus_client") is None:
        raise ServeError(f"metrics cannot be shown: {_METRICS_REMEDY}")
    from checkpoint_reference_server.prometheus import metrics_served

    host, port = options.metrics_host, options.metrics_port
    try:
        return stack.enter_context(metrics_served(host, port))
    except OSError as error:
        raise ServeError(
            f"cannot show metrics at {host} port {port}: {error.strerror}. "
            "Give another with --metrics-port, or 0 for any free one."
        ) from None


def _allow_open_files(connections: int) -> None:
    """Let each process have so many open, as far as the system allows.

    Where it does not, the loop stops accepting for a while when none is left; nothing is lost.
    """
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _tls(tls: Tls) -> dict[str, Any]:
    return {
        "ssl_certfile": tls.certificate,
        "ssl_keyfile": tls.key,
        "ssl_keyfile_password": tls.password,
    }


def _scheme(options: Options) -> str:
    return "http" if options.tls is None else "https"


class _Addresses:
    """Where everything is, told once: as lines for people and as a file for programs."""

    def __init__(
        self,
        options: Options,
        store: Store,
        port: int,
        controls_port: int | None,
        metrics_port: int | None,
        *,
        offers_mcp: bool,
    ) -> None:
        host = _in_url(options.host)
        scheme = _scheme(options)
        self._ready_file = options.ready_file
        self._store = store
        self.url = f"{scheme}://{host}:{port}"
        self.mcp = f"{self.url}{MCP_PATH}" if offers_mcp else None
        self._mcp_line = self.mcp or (
            "not offered (--no-mcp)" if options.mcp is False else f"not offered; {_MCP_REMEDY}"
        )
        # On the same terms: one server serves both listeners.
        controls = f"{scheme}://{CONTROLS_HOST}:{controls_port}"
        self.controls = None if controls_port is None else controls
        metrics = f"http://{_in_url(options.metrics_host)}:{metrics_port}/metrics"
        self.metrics = None if metrics_port is None else metrics

    def tell(self) -> None:
        lines = [
            f"Workflow Checkpoint {CONTRACT_VERSION}, reference server",
            f"  tool      {self.url}{TOOL_PATH}",
            f"  MCP       {self._mcp_line}",
            f"  store     {without_password(self._store.url)}  ({self._store.description})",
        ]
        if self.controls is not None:
            lines.append(f"  controls  {self.controls}  (for tests alone: they set its clock)")
        if self.metrics is not None:
            lines.append(f"  metrics   {self.metrics}")
        print("\n".join(lines), flush=True)  # noqa: T201 - this is what the command is for
        if self._ready_file is not None:
            facts: dict[str, Any] = {
                "url": self.url,
                "mcp": self.mcp,
                "controls": self.controls,
                "metrics": self.metrics,
                "store": self._store.url,
                "store_description": self._store.description,
            }
            ready_file.write(self._ready_file, facts)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, addresses: _Addresses) -> None:
        super().__init__(config)
        self._addresses = addresses

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._addresses.tell()


class _Workers(Multiprocess):
    """The processes that serve. Ctrl-C reaches this one alone, which then stops them.

    Reaching a worker that is still importing, it would print where the import was interrupted.
    """

    interrupted = False
    shows_metrics = False

    def init_processes(self) -> None:
        with _interrupts_held_back():
            super().init_processes()

    def restart_all(self) -> None:
        with _interrupts_held_back():
            super().restart_all()

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        with _interrupts_held_back():
            super().keep_subprocess_alive()
        if self.shows_metrics:
            from checkpoint_reference_server.prometheus import forget_process

            for pid in before - {process.pid for process in self.processes}:
                if pid is not None:
                    forget_process(pid)

    def terminate_all(self) -> None:
        # Else whoever connects while the workers drain would wait for nobody.
        for listener in self.sockets:
            listener.close()
        super().terminate_all()

    def handle_int(self) -> None:
        self.interrupted = True
        super().handle_int()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let a process that is started here never see SIGINT, and this one see it afterwards."""
    resource_tracker.ensure_running()  # it lets SIGINT through again where it starts by itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _create_worker(settings: Settings) -> ASGIApp:
    """The application of one process, which does not outlive the process that started it.

    That one holds the store's life line too: killed, it would leave workers behind that keep
    the port and can answer nothing.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        _stop_after(parent.join)
    app = create_app(settings)
    _collect_seldom()
    return app


def _collect_seldom() -> None:
    """Let the collector of cycles stop requests for less time, and less often.

    What there is by now lives as long as the process. To look through it again and again would
    stop everything for some 50 ms each time; and no request leaves cycles behind.
    """
    gc.collect()
    gc.freeze()
    _, *older = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *older)


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


def _shared(listener: socket.socket, stack: ExitStack) -> list[socket.socket]:
    """One listener as several, each of which takes a connection in a turn of the event loop.

    The loop takes one from each. With a hundred connections busy a turn is long, and a hundred
    more that came at once would be let in over more than a second, one after the other.
    """
    others = [stack.enter_context(listener.dup()) for _ in range(ACCEPTED_AT_ONCE - 1)]
    return [listener, *others]


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _stop_with_input() -> None:
    """Stop as on SIGTERM when standard input ends."""

    def wait() -> None:
        # Not through sys.stdin: a thread that waits inside its buffer makes the interpreter
        # abort when it shuts down for another reason.
        while os.read(0, 4096):
            pass

    _stop_after(wait)


def _stop_after(wait: Callable[[], None]) -> None:
    """Stop this process as on SIGTERM once something has been waited for."""

    def run() -> None:
        wait()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=run, daemon=True).start()
