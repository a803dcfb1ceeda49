"""The same job by other means: who may take a step once, under a lease, and what came of it.

Run as a program it measures libraries in process, one after the other, each on the store at the
URL given: ``python peers.py URL WORKFLOWS``. As a module it makes the FastAPI application that
takes our own step by redis-py, with a connection for each call (:func:`make_app`).
"""

import hmac
import json
import os
import secrets
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Literal

STORE: Final = "BENCHMARK_STORE_URL"
LEASE_SECONDS: Final = 60
KEEP_SECONDS: Final = 600


def make_app() -> Any:
    """FastAPI, a model that validates, redis-py's asyncio client, and the scripts of ours."""
    import redis.asyncio as redis
    from fastapi import FastAPI
    from pydantic import BaseModel, ConfigDict, Field

    from checkpoint_lua import loader

    key = secrets.token_bytes(32)
    store = redis.Redis.from_pool(
        redis.BlockingConnectionPool.from_url(
            os.environ[STORE], decode_responses=True, max_connections=128
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
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import (
        RedisCachePersistenceLayer,
    )

    os.environ.setdefault("AWS_LAMBDA_FUNCTION_NAME", "benchmark")
    layer = RedisCachePersistenceLayer(client=redis.Redis.from_url(url, decode_responses=True))
    config = IdempotencyConfig(expires_after_seconds=KEEP_SECONDS)

    @idempotent_function(data_keyword_argument="work", persistence_store=layer, config=config)
    def act(*, work: dict[str, str]) -> dict[str, str]:
        return {"done": work["id"]}

    def life() -> None:
        act(work={"id": secrets.token_hex(16)})

    return life


PEERS: Final = {
    "SET NX, then SET": set_nx,
    "our scripts, by redis-py": scripts_of_ours,
    "redis-py Lock": redis_py_lock,
    "python-redis-lock": python_redis_lock,
    "pottery Redlock": pottery_redlock,
    "AWS Lambda Powertools": powertools,
}


def main() -> None:
    """Measure each in turn, three times, and print workflows a second."""
    url, workflows = sys.argv[1], int(sys.argv[2])
    lives = {name: make(url) for name, make in PEERS.items()}
    rates: dict[str, list[float]] = {name: [] for name in lives}
    for _ in range(3):
        for name, life in lives.items():
            life()
            began = time.perf_counter()
            for _ in range(workflows):
                life()
            rates[name].append(workflows / (time.perf_counter() - began))
    print(json.dumps(rates))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
