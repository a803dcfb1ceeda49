"""The same job by other means: who may take a step once, under a lease, and what came of it.

Each peer does it in process, and behind HTTP: a claim and a settlement are a request each, as the
reference server has them, on uvicorn with an endpoint that does nothing else. What a library
offers for asyncio is used there; what it does not is called in Starlette's pool of threads.

    python peers.py measure URL                in process: a job a line, `{"name", "seconds"}`
    python peers.py serve URL PORT_FILE        all of them behind HTTP, each at its own path
    python peers.py serve-durable PORT_FILE    DBOS, whose store is its own: SQLite
    python peers.py serve-fastapi URL PORT_FILE   our scripts by FastAPI and redis-py
"""

import hmac
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

LEASE_SECONDS: Final = 60
KEEP_SECONDS: Final = 600
CONNECTIONS_MAX: Final = 128
"""To the store, of a peer behind HTTP."""


class Peer(NamedTuple):
    """A way to do the job."""

    name: str
    gives: str
    """What it does and what it does not, of that which the contract asks for."""
    durable: bool = False
    """Runs the step itself, in one request; its store is its own."""

    @property
    def path(self) -> str:
        """Where it answers behind HTTP."""
        return "/" + "".join(c if c.isalnum() else "-" for c in self.name.lower())


SET_NX: Final = Peer(
    "SET NX, then SET",
    "a lease; whoever is late overwrites the outcome of another (no fencing, no evidence)",
)
OUR_SCRIPTS: Final = Peer(
    "our scripts, by redis-py",
    "all that the contract asks of the store: lease, generation, fencing, outcome with evidence, "
    "in one atomic step each; no validation, no hashed identities",
)
REDIS_PY_LOCK: Final = Peer(
    "redis-py Lock",
    "a lease that only its holder releases; the outcome is a key beside it, written whether or not "
    "the lease still holds",
)
PYTHON_REDIS_LOCK: Final = Peer(
    "python-redis-lock",
    "the same, and waiting without polling; no outcome, no fencing",
)
POTTERY: Final = Peer(
    "pottery Redlock",
    "a lease by a quorum of stores (of one here); no outcome, no fencing",
)
POWERTOOLS: Final = Peer(
    "AWS Lambda Powertools",
    "in progress, then the stored result for whoever comes again; a late one overwrites it (no "
    "fencing), no stages, no evidence",
)
DBOS_SQLITE: Final = Peer(
    "DBOS on SQLite",
    "runs the step itself and stores each result, so that a restart goes on where it was; no "
    "holder, no lease, no evidence",
    durable=True,
)


def fastapi_app(url: str) -> Any:
    """FastAPI, a model that validates, redis-py's asyncio client, and the scripts of ours."""
    import redis.asyncio as redis
    from fastapi import FastAPI
    from pydantic import BaseModel, ConfigDict, Field

    from checkpoint_lua import loader

    key = secrets.token_bytes(32)
    store = redis.Redis.from_pool(
        redis.BlockingConnectionPool.from_url(
            url, decode_responses=True, max_connections=CONNECTIONS_MAX
        )
    )
    scripts = loader.scripts()

    class Request(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        action: Literal["claim", "transition"]
        namespace: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")
        workflow_key: str = Field(pattern=r"^w_[A-Za-z0-9_-]{16,64}$")
        holder: str = Field(pattern=r"^h_[A-Za-z0-9_-]{16,64}$")
        claim_ttl_seconds: int = Field(default=1, ge=1, le=900)
        state_ttl_seconds: int = Field(default=1, ge=1, le=3600)
        retry_failed: bool = False
        generation: int = Field(default=1, ge=1, le=16)
        to_stage: str = ""
        observation_key: str = ""
        evidence_type: str = ""

    app = FastAPI()

    def digest(*parts: str) -> str:
        made = hmac.new(key, "\n".join(parts).encode(), sha256).digest()
        return urlsafe_b64encode(made).rstrip(b"=").decode()

    @app.post("/v1/tools/workflow-checkpoint")
    async def checkpoint(request: Request) -> dict[str, Any]:
        name = digest(request.namespace, request.workflow_key)
        holder = digest(name, request.holder)
        if request.action == "claim":
            retry = "1" if request.retry_failed else "0"
            lives = (request.claim_ttl_seconds, request.state_ttl_seconds)
            arguments: tuple[Any, ...] = (holder, *lives, retry)
        else:
            body = digest(name, request.to_stage, request.evidence_type)
            seen = digest(name, request.observation_key)
            move = (request.generation, request.to_stage, seen, body, request.evidence_type, "0")
            arguments = (holder, *move)
        script = scripts[request.action]
        try:
            reply = await store.evalsha(script.sha1, 1, f"wc:{{{name}}}", "", *arguments)
        except redis.ResponseError:
            reply = await store.eval(script.text, 1, f"wc:{{{name}}}", "", *arguments)
        return {"outcome": reply[0], "observed_at": reply[1], "record": reply[2:]}

    return app


# -- In process ------------------------------------------------------------------------------------


def scripts_of_ours(url: str) -> Callable[[], None]:
    """Our claim and transition by redis-py, as a library would be used."""
    import redis

    from checkpoint_lua import loader

    store = redis.Redis.from_url(url, decode_responses=True)
    for script in loader.scripts().values():
        store.script_load(script.text)
    claim, transition = (loader.scripts()[name].sha1 for name in ("claim", "transition"))

    def life() -> None:
        name = secrets.token_hex(32)[:43]
        key = f"wc:{{{name}}}"
        assert store.evalsha(claim, 1, key, "", name, 60, 600, "0")[0] == "acquired"
        move = ("1", "caller_verified", name, name, "provider_receipt", "0")
        assert store.evalsha(transition, 1, key, "", name, *move)[0] == "transitioned"

    return life


def set_nx(url: str) -> Callable[[], None]:
    """The least that there is: a key with a lease, then the outcome; refuses no stale holder."""
    import redis

    store = redis.Redis.from_url(url, decode_responses=True)

    def life() -> None:
        key = secrets.token_hex(16)
        assert store.set(key, "claimed", nx=True, px=LEASE_SECONDS * 1000)
        store.set(key, "done", px=KEEP_SECONDS * 1000)

    return life


def redis_py_lock(url: str) -> Callable[[], None]:
    """redis-py's Lock, and the outcome beside it."""
    import redis

    store = redis.Redis.from_url(url, decode_responses=True)

    def life() -> None:
        key = secrets.token_hex(16)
        lock = store.lock(f"lock:{key}", timeout=LEASE_SECONDS)
        assert lock.acquire(blocking=False)
        store.set(key, "done", px=KEEP_SECONDS * 1000)
        lock.release()

    return life


def python_redis_lock(url: str) -> Callable[[], None]:
    """The package python-redis-lock, and the outcome beside it."""
    import redis
    import redis_lock

    store = redis.Redis.from_url(url)

    def life() -> None:
        key = secrets.token_hex(16)
        lock = redis_lock.Lock(store, key, expire=LEASE_SECONDS)
        assert lock.acquire(blocking=False)
        store.set(key, "done", px=KEEP_SECONDS * 1000)
        lock.release()

    return life


def pottery_redlock(url: str) -> Callable[[], None]:
    """pottery's Redlock on one store, and the outcome beside it."""
    import redis
    from pottery import Redlock

    store = redis.Redis.from_url(url)

    def life() -> None:
        key = secrets.token_hex(16)
        lock = Redlock(key=key, masters={store}, auto_release_time=LEASE_SECONDS)
        assert lock.acquire(blocking=False)
        store.set(key, "done", px=KEEP_SECONDS * 1000)
        lock.release()

    return life


def powertools(url: str) -> Callable[[], None]:
    """AWS Lambda Powertools' idempotency with its Redis layer: claim, function, outcome."""
    import redis
    from aws_lambda_powertools.utilities.idempotency import (
        IdempotencyConfig,
        idempotent_function,
    )
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import (
        CachePersistenceLayer,
    )

    os.environ.setdefault("AWS_LAMBDA_FUNCTION_NAME", "benchmark")
    layer = CachePersistenceLayer(client=redis.Redis.from_url(url, decode_responses=True))
    config = IdempotencyConfig(expires_after_seconds=KEEP_SECONDS)

    @idempotent_function(data_keyword_argument="work", persistence_store=layer, config=config)
    def act(*, work: dict[str, str]) -> dict[str, str]:
        return {"done": work["id"]}

    def life() -> None:
        act(work={"id": secrets.token_hex(16)})

    return life


def dbos_sqlite(url: str) -> Callable[[], None]:
    """DBOS: a workflow of one step, under an identity that is taken once."""
    from dbos import SetWorkflowID

    del url
    run = _durable()

    def life() -> None:
        key = secrets.token_hex(16)
        with SetWorkflowID(key):
            assert run(key) == "done"

    return life


def _durable() -> Callable[[str], str]:
    """The workflow, with DBOS started on a database of its own in a folder that stays till exit."""
    import atexit

    from dbos import DBOS

    folder = tempfile.TemporaryDirectory()
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": f"sqlite:///{folder.name}/dbos.sqlite",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @DBOS.step()
    def act(key: str) -> str:
        del key
        return "done"

    @DBOS.workflow()
    def life(key: str) -> str:
        done: str = act(key)
        return done

    def end() -> None:
        DBOS.destroy()
        folder.cleanup()

    atexit.register(end)
    DBOS.launch()
    durable: Callable[[str], str] = life
    return durable


IN_PROCESS: Final = {
    SET_NX: set_nx,
    OUR_SCRIPTS: scripts_of_ours,
    REDIS_PY_LOCK: redis_py_lock,
    PYTHON_REDIS_LOCK: python_redis_lock,
    POTTERY: pottery_redlock,
    POWERTOOLS: powertools,
    DBOS_SQLITE: dbos_sqlite,
}


def measure(url: str) -> None:
    """Do jobs, one after the other: workflows a second."""
    lives: dict[str, Callable[[], None]] = {}
    for line in sys.stdin:
        job = json.loads(line)
        if job["name"] not in lives:
            (make,) = (make for peer, make in IN_PROCESS.items() if peer.name == job["name"])
            lives[job["name"]] = make(url)
        life = lives[job["name"]]
        life()
        began, count = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < job["seconds"]:
            life()
            count += 1
        print(json.dumps(count / took), flush=True)  # noqa: T201 - what it is for


# -- Behind HTTP -----------------------------------------------------------------------------------

Take = Callable[[str, str], Awaitable[bool]]
"""One request, of a workflow and a holder; whether it was granted."""


class Service(NamedTuple):
    """Both requests of a peer behind HTTP; a library's lock waits in memory between them."""

    claim: Take
    settle: Take


def set_nx_service(url: str) -> Service:
    """Both by redis-py's asyncio client."""
    store = _asyncio_client(url)

    async def claim(workflow: str, holder: str) -> bool:
        return bool(await store.set(workflow, holder, nx=True, px=LEASE_SECONDS * 1000))

    async def settle(workflow: str, holder: str) -> bool:
        del holder
        return bool(await store.set(workflow, "done", px=KEEP_SECONDS * 1000))

    return Service(claim, settle)


def redis_py_lock_service(url: str) -> Service:
    """redis-py's Lock for asyncio."""
    store = _asyncio_client(url)
    held: dict[tuple[str, str], Any] = {}

    async def claim(workflow: str, holder: str) -> bool:
        lock = store.lock(f"lock:{workflow}", timeout=LEASE_SECONDS, thread_local=False)
        held[workflow, holder] = lock
        return bool(await lock.acquire(blocking=False))

    async def settle(workflow: str, holder: str) -> bool:
        await store.set(workflow, "done", px=KEEP_SECONDS * 1000)
        await held.pop((workflow, holder)).release()
        return True

    return Service(claim, settle)


def python_redis_lock_service(url: str) -> Service:
    """It knows no asyncio: in the pool of threads."""
    import redis
    import redis_lock

    store = redis.Redis.from_url(url)
    held: dict[tuple[str, str], Any] = {}

    def claim(workflow: str, holder: str) -> bool:
        lock = held[workflow, holder] = redis_lock.Lock(store, workflow, expire=LEASE_SECONDS)
        return bool(lock.acquire(blocking=False))

    def settle(workflow: str, holder: str) -> bool:
        store.set(workflow, "done", px=KEEP_SECONDS * 1000)
        held.pop((workflow, holder)).release()
        return True

    return Service(_in_threads(claim), _in_threads(settle))


def pottery_service(url: str) -> Service:
    """pottery's AIORedlock."""
    from pottery import AIORedlock

    store = _asyncio_client(url)
    held: dict[tuple[str, str], Any] = {}

    async def claim(workflow: str, holder: str) -> bool:
        lock = AIORedlock(key=workflow, masters={store}, auto_release_time=LEASE_SECONDS)
        held[workflow, holder] = lock
        return bool(await lock.acquire(blocking=False))

    async def settle(workflow: str, holder: str) -> bool:
        await store.set(workflow, "done", px=KEEP_SECONDS * 1000)
        await held.pop((workflow, holder)).release()
        return True

    return Service(claim, settle)


def powertools_service(url: str) -> Service:
    """What its decorator does before and after the function; in the pool of threads."""
    import redis
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import (
        CachePersistenceLayer,
    )

    layer = CachePersistenceLayer(client=redis.Redis.from_url(url, decode_responses=True))
    layer.configure(IdempotencyConfig(expires_after_seconds=KEEP_SECONDS), "benchmark")

    def claim(workflow: str, holder: str) -> bool:
        del holder
        layer.save_inprogress(data={"id": workflow}, remaining_time_in_millis=LEASE_SECONDS * 1000)
        return True

    def settle(workflow: str, holder: str) -> bool:
        del holder
        layer.save_success(data={"id": workflow}, result={"done": workflow})
        return True

    return Service(_in_threads(claim), _in_threads(settle))


def dbos_service(url: str) -> Service:
    """The whole workflow by the claim; in the pool of threads."""
    from dbos import SetWorkflowID

    del url
    run = _durable()

    def claim(workflow: str, holder: str) -> bool:
        del holder
        with SetWorkflowID(workflow):
            return run(workflow) == "done"

    return Service(_in_threads(claim), _in_threads(claim))


def _asyncio_client(url: str) -> Any:
    import redis.asyncio as redis

    pool = redis.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS_MAX)
    return redis.Redis.from_pool(pool)


def _in_threads(function: Callable[[str, str], bool]) -> Take:
    from starlette.concurrency import run_in_threadpool

    async def take(workflow: str, holder: str) -> bool:
        return await run_in_threadpool(function, workflow, holder)

    return take


BEHIND_HTTP: Final = {
    SET_NX: set_nx_service,
    REDIS_PY_LOCK: redis_py_lock_service,
    PYTHON_REDIS_LOCK: python_redis_lock_service,
    POTTERY: pottery_service,
    POWERTOOLS: powertools_service,
    DBOS_SQLITE: dbos_service,
}


def starlette_app(url: str, *, durable: bool) -> Any:
    """All peers, or those with a store of their own, each at its path."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    def endpoint(service: Service) -> Callable[[Request], Awaitable[JSONResponse]]:
        async def answer(request: Request) -> JSONResponse:
            asked = json.loads(await request.body())
            take = service.claim if asked["action"] == "claim" else service.settle
            granted = await take(asked["workflow_key"], asked["holder"])
            return JSONResponse({"granted": granted}, status_code=200 if granted else 409)

        return answer

    return Starlette(
        routes=[
            Route(peer.path, endpoint(make(url)), methods=["POST"])
            for peer, make in BEHIND_HTTP.items()
            if peer.durable is durable
        ]
    )


def serve(app: Any, port_file: Path) -> None:
    """Answer until somebody ends this, on a port that the file tells."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    port_file.write_text(str(listener.getsockname()[1]))
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    """Measure or serve, as told."""
    match sys.argv[1:]:
        case ["measure", url]:
            measure(url)
        case ["serve", url, port_file]:
            serve(starlette_app(url, durable=False), Path(port_file))
        case ["serve-durable", port_file]:
            serve(starlette_app("", durable=True), Path(port_file))
        case ["serve-fastapi", url, port_file]:
            serve(fastapi_app(url), Path(port_file))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
