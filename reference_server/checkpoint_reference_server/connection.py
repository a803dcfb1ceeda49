"""The connection to the store: one client, one deadline, and what counts as unavailable."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)

from checkpoint_reference_server import clients
from checkpoint_reference_server.cluster import ClusterSteps
from checkpoint_reference_server.multiplexer import (
    STORE_ANSWER_SECONDS_MAX,
    STORE_CONNECT_SECONDS_MAX,
    ReplicasMissingError,
)
from checkpoint_reference_server.steps import SingleSteps, Steps

CLIENT_NAME: Final = "workflow-checkpoint"
"""By which ``CLIENT LIST`` shows whose connections these are."""

_UNAVAILABLE: Final = (
    redis.ConnectionError,
    redis.TimeoutError,
    OSError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,  # no node answers, or none has the slot
    ReplicasMissingError,
    TryAgainError,
)
# Replies that the library has no class for, by their first word.
_UNAVAILABLE_WORDS: Final = ("BUSY", "MISCONF", "NOREPLICAS")


class StoreUnavailableError(Exception):
    """The store did not answer in time or refused the write; the step may have been applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """A store as a server process knows it."""

    steps: Steps
    client: "redis.Redis | redis.RedisCluster"
    """For everything that is no part of the hot path."""

    async def aclose(self) -> None:
        """Give up every connection."""
        await self.steps.aclose()
        await self.client.aclose()


def connect(url: str, *, is_cluster: bool = False, wait_replicas: int = 0) -> Connection:
    """Clients that connect when they are needed and never repeat a command.

    The library would by default send a command again after a lost connection. The first may
    have been applied, so a claim would then be answered as its own reuse (WC-ERR-5).

    Raises:
        ValueError: it is no store's URL.
    """
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": STORE_ANSWER_SECONDS_MAX,
        "socket_connect_timeout": STORE_CONNECT_SECONDS_MAX,
        "retry": Retry(NoBackoff(), 0),
        "client_name": CLIENT_NAME,
    }
    if is_cluster:
        cluster = redis.RedisCluster.from_url(url, require_full_coverage=False, **options)
        return Connection(steps=ClusterSteps(cluster, wait_replicas=wait_replicas), client=cluster)
    pool = clients.pool(url, **options, retry_on_error=[])
    return Connection(
        steps=SingleSteps(pool, wait_replicas=wait_replicas), client=redis.Redis.from_pool(pool)
    )


class unavailable_when_it_fails:  # noqa: N801 - used as a function is
    """Turn whatever a lost, slow, full or busy store does into one error.

    It sets no time: whatever is inside ends in time by itself, or by ``asyncio.timeout`` inside.

    Raises:
        StoreUnavailableError: the calls inside did not finish, or were refused for now.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise the one error instead of what a store's fault raised."""
        if error is None:
            return
        if isinstance(error, _UNAVAILABLE):
            raise StoreUnavailableError(type(error).__name__) from error
        if isinstance(error, ResponseError):
            word = str(error).partition(" ")[0]
            if word in _UNAVAILABLE_WORDS:
                raise StoreUnavailableError(word) from error
