"""The bindings (HTTP here, MCP put in) and the published descriptions as an ASGI application."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from checkpoint_lua import KEY_PREFIX
from checkpoint_model.vocabulary import HEALTH_PATH, MCP_PATH, TOOL_PATH
from checkpoint_reference_server import telemetry
from checkpoint_reference_server.accounts import Accounts
from checkpoint_reference_server.callers import Callers
from checkpoint_reference_server.connection import (
    StoreUnavailableError,
    connect,
    unavailable_when_it_fails,
)
from checkpoint_reference_server.controls import CONTROLS_HOST, Controls, create_controls_app
from checkpoint_reference_server.digests import Digests
from checkpoint_reference_server.direct import DIRECT, Endpoint
from checkpoint_reference_server.documents import descriptions
from checkpoint_reference_server.gate import NO_STORE, Gate
from checkpoint_reference_server.http_endpoint import HttpEndpoint, internal_fault
from checkpoint_reference_server.key_change import KeyMark
from checkpoint_reference_server.logs import configure, log_notice
from checkpoint_reference_server.measures import Measures, Sink
from checkpoint_reference_server.multiplexer import STORE_ANSWER_SECONDS_MAX
from checkpoint_reference_server.protocol import ARRIVED
from checkpoint_reference_server.registry import Deployment
from checkpoint_reference_server.tool import Answer, Tool

HEALTH_KEY: Final = f"{KEY_PREFIX}health"
HEALTH_KEY_MS: Final = 1000
"""How long what was written to see whether the store takes writes lies there."""
HEALTH_WRITE_SECONDS_MAX: Final = 1.0
"""How long that write may take; whoever asks for the health waits for it too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a server process is told. Holds the key, so it is never printed or logged."""

    store_url: str
    store_is_cluster: bool = False
    wait_replicas: int = 0
    """How many replicas must have a change before its answer is given out."""
    hmac_key: bytes
    controls_port: int | None = None
    """The loopback port whose connections reach the test controls, where they are on."""
    callers: Callers = field(default_factory=Callers)
    """The hosts and origins that are admitted."""
    offers_mcp: bool = False
    tokens_file: Path | None = None
    """The accounts and their tokens; None where everybody may call."""
    rate_limit: str | None = None
    """How many requests each account may send, such as ``100/minute``; None for any number."""
    marks_key: bool = True
    """Whether the store is told which key claims are decided under; not a made-up one."""
    metrics: bool = False
    """Whether Prometheus is told what is measured, in files that another thread serves."""
    log_level: str = "info"
    deployment: Deployment = field(default_factory=Deployment)
    """What the published descriptions say of this deployment."""

    def __repr__(self) -> str:
        """Without the key."""
        return "Settings(…)"


def create_app(settings: Settings) -> ASGIApp:
    """The application of one process. Connects to the store when the first request needs it.

    Raises:
        ValueError: the HMAC key is too short (WC-ID-5), or the rate limit is no rate.
        TokensError: the tokens file cannot be used.
        TelemetryError: the environment asks for telemetry that there is not.
    """
    configure(settings.log_level)
    log = structlog.get_logger()
    logs_requests = settings.log_level == "debug"
    store = connect(
        settings.store_url,
        is_cluster=settings.store_is_cluster,
        wait_replicas=settings.wait_replicas,
    )
    controls = None if settings.controls_port is None else Controls()
    digests = Digests(settings.hmac_key)
    mark = KeyMark(store.client, digests.fingerprint) if settings.marks_key else None
    limiter = None
    if settings.rate_limit is not None:
        from checkpoint_reference_server.limiter import Limiter, read_rate

        limiter = Limiter(store.steps, digests, read_rate(settings.rate_limit))
    tool = Tool(store.steps, digests, controls, mark=mark, limiter=limiter)
    accounts = None if settings.tokens_file is None else Accounts(settings.tokens_file)
    gate = Gate(settings.callers, accounts)
    measures = Measures(_sinks(settings))

    def finish(
        binding: str, answer: Answer | None, started: float, headers: Mapping[str, str]
    ) -> None:
        measures.ended(binding, answer, started, headers)
        if answer is None or not logs_requests:
            return
        log.debug(
            "request",
            binding=binding,
            action=answer.action,
            status=answer.http_status,
            code=answer.members.get("code"),
            milliseconds=round((time.perf_counter() - started) * 1000, 2),
        )

    async def health(_: Request) -> Response:
        """WC-HTTP-3; and whether it takes writes, which a store that answers need not."""
        answers, writes = False, False
        if controls is None or controls.dependency_available:
            try:
                with unavailable_when_it_fails():
                    async with asyncio.timeout(STORE_ANSWER_SECONDS_MAX):
                        await store.steps.ping()
                        answers = True
                        async with asyncio.timeout(HEALTH_WRITE_SECONDS_MAX):
                            # Not among the steps, which would wait behind it.
                            await store.client.set(HEALTH_KEY, "", px=HEALTH_KEY_MS)
                        writes = True
            except StoreUnavailableError:
                pass  # what was found until then is told
        body = {
            "store": "answers" if answers else "does not answer",
            "writes": "taken" if writes else "not taken",
        }
        return Response(
            msgspec.json.encode(body),
            200 if answers else 503,
            NO_STORE,
            media_type="application/json",
        )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        # Which the HTTP layer finds there (`protocol.py`, `direct.py`).
        yield {"cut": measures.cut, DIRECT: offered}
        await store.aclose()
        measures.close()

    endpoints: dict[str, Endpoint] = {
        TOOL_PATH: HttpEndpoint(tool, gate, measures, finish),
    }
    served = [
        Route(HEALTH_PATH, health, methods=["GET"]),
        *descriptions(settings.deployment, gate),
    ]
    if settings.offers_mcp:
        # Imported here, for it needs an extra of its own.
        from checkpoint_reference_server.mcp_binding import McpBinding

        endpoints[MCP_PATH] = McpBinding(tool, gate, measures, finish)
    # No stream to GET and no session to DELETE for MCP: both are 405, as the protocol has it.
    served += [
        Route(path, _by_asgi(endpoint), methods=["POST"]) for path, endpoint in endpoints.items()
    ]
    in_bytes = {path.encode(): endpoint for path, endpoint in endpoints.items()}

    def offered(server: object) -> Mapping[bytes, Endpoint]:
        return {} if server == (CONTROLS_HOST, settings.controls_port) else in_bytes

    public = Starlette(
        routes=served,
        exception_handlers={
            HTTPException: _plain,
            ClientDisconnect: _gone,
            Exception: _internal_fault,
        },
        lifespan=lifespan,
    )
    public.router.redirect_slashes = False
    if controls is None or settings.controls_port is None:
        return public
    return _by_listener(
        public, create_controls_app(controls, store, tool.switch), settings.controls_port
    )


def _sinks(settings: Settings) -> list[Sink]:
    """Who is told what is measured. Each needs an extra of its own, so imported here."""
    sinks: list[Sink] = []
    if settings.metrics:
        from checkpoint_reference_server.prometheus import PrometheusSink

        sinks.append(PrometheusSink())
    if telemetry.wanted_signals(os.environ):
        if telemetry.is_installed():
            sink = telemetry.make_sink(os.environ)
            assert sink is not None
            sinks.append(sink)
        else:
            log_notice("telemetry", "OTEL_… is set, and the extra [otel] is not installed")
    return sinks


def _by_asgi(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for whatever does not reach it directly."""

    async def handle(request: Request) -> Response:
        caller = endpoint.admit(request.headers, request.scope["client"])
        if isinstance(caller, Response):
            return caller
        body = await _read(request, endpoint.bytes_max)
        now = asyncio.get_running_loop().time()
        # None is there where it waited for no other.
        waited_seconds = now - request.scope["state"].get(ARRIVED, now)
        caller = caller._replace(waited_seconds=waited_seconds)
        return await endpoint.answer(request.headers, body, caller)

    return handle


async def _read(request: Request, bytes_max: int) -> bytes:
    """The body, or as much of it as shows that it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            break
    return bytes(body)


def _plain(_: Request, error: Exception) -> Response:
    """WC-ERR-9: an unknown path or a wrong method, without a code and quoting nothing."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)


def _gone(_: Request, __: Exception) -> Response:
    return PlainTextResponse("", 400)  # nobody is there to read it


def _internal_fault(_: Request, __: Exception) -> Response:
    return internal_fault()


def _by_listener(public: ASGIApp, controls: ASGIApp, controls_port: int) -> ASGIApp:
    """Send what arrived on the controls' own listener to them, and nothing else.

    ``scope["server"]`` is the local address of the connection's socket, which no header of a
    request can change. Its host counts too: the kernel gives ports for each address, so a public
    address may have the same one.
    """

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        server: Any = scope.get("server")
        on_controls = server is not None and tuple(server) == (CONTROLS_HOST, controls_port)
        await (controls if on_controls else public)(scope, receive, send)

    return dispatch
