"""The connection to the store: one client, one deadline, and what counts as unavailable."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

STORE_ANSWER_SECONDS_MAX: Final = 4.0
"""How long one request may wait for the store; leaves a second of WC-ERR-5's five."""
STORE_CONNECT_SECONDS_MAX: Final = 2.0
CONNECTIONS_MAX: Final = 128
"""Open connections a process; requests beyond that wait for one, within their deadline."""

_UNAVAILABLE: Final = (
    ClusterDownError,
    MasterDownError,
    NoScriptError,  # flushed again between the load and the call
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
# Replies that the library has no class for, by their first word.
_UNAVAILABLE_WORDS: Final = ("BUSY", "MISCONF", "NOREPLICAS")


class StoreUnavailableError(Exception):
    """The store did not answer in time or refused the write; the step may have been applied."""


def connect(url: str) -> redis.Redis:
    """A client that opens connections when they are needed and never repeats a command.

    The library would by default send a command again after a lost connection. The first may
    have been applied, so a claim would then be answered as its own reuse (WC-ERR-5).
    """
    return redis.Redis.from_pool(
        redis.BlockingConnectionPool.from_url(
            url,
            decode_responses=True,
            max_connections=CONNECTIONS_MAX,
            timeout=STORE_ANSWER_SECONDS_MAX,
            socket_timeout=STORE_ANSWER_SECONDS_MAX,
            socket_connect_timeout=STORE_CONNECT_SECONDS_MAX,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
        )
    )


@asynccontextmanager
async def unavailable_when_it_fails() -> AsyncIterator[None]:
    """Turn whatever a lost, slow, full or busy store does into one error, in bounded time.

    Raises:
        StoreUnavailableError: the calls inside did not finish, or were refused for now.
    """
    try:
        async with asyncio.timeout(STORE_ANSWER_SECONDS_MAX):
            yield
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise StoreUnavailableError(type(error).__name__) from error
    except _UNAVAILABLE as error:
        raise StoreUnavailableError(type(error).__name__) from error
    except ResponseError as error:
        word = str(error).partition(" ")[0]
        if word in _UNAVAILABLE_WORDS:
            raise StoreUnavailableError(word) from error
        raise
