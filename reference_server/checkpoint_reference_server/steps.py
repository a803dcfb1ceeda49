"""The steps of the hot path on one server; on a cluster they are in ``cluster.py``."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any

import redis.asyncio as redis

from checkpoint_reference_server.multiplexer import Multiplexer


class Steps(ABC):
    """What the hot path asks of a store, in the words of the library's own client.

    Every method raises ``redis.exceptions.RedisError`` or ``OSError``: refused, or lost, after
    which it is unknown whether the command was executed. Nothing is ever sent again.
    """

    is_bounded: bool = False
    """Whether a step ends in time by itself: after ``STORE_ANSWER_SECONDS_MAX`` at the latest,
    and a moment."""

    @abstractmethod
    def send(self, key: str, *command: str | int, is_step: bool = False) -> Awaitable[Any]:
        """Send a command about one key; a step's answer waits for the replicas, if any do."""

    @abstractmethod
    async def ping(self) -> None:
        """Return when the store answered."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give up every connection."""

    def evalsha(self, sha: str, keys: int, key: str, *arguments: str | int) -> Awaitable[Any]:
        """Take the step of a script that the store knows by its digest."""
        return self.send(key, "EVALSHA", sha, keys, key, *arguments, is_step=True)

    def eval(self, script: str, keys: int, key: str, *arguments: str | int) -> Awaitable[Any]:
        """Take the step of a script, which the store knows from then on."""
        return self.send(key, "EVAL", script, keys, key, *arguments, is_step=True)

    async def exists(self, key: str) -> int:
        """1 where the key is there, else 0."""
        return int(await self.send(key, "EXISTS", key))


class SingleSteps(Steps):
    """Steps on one server, or on the primary that Sentinel names."""

    is_bounded = True

    def __init__(self, pool: redis.ConnectionPool, *, wait_replicas: int) -> None:
        self._pool = pool  # which a connection to Sentinel's primary refers to weakly
        self._multiplexer = Multiplexer(pool.make_connection, wait_replicas=wait_replicas)

    def send(self, key: str, *command: str | int, is_step: bool = False) -> Awaitable[Any]:
        """See :class:`Steps`."""
        return self._multiplexer.send(*command, step_key=key if is_step else None)

    async def ping(self) -> None:
        """See :class:`Steps`."""
        await self._multiplexer.send("PING")

    async def aclose(self) -> None:
        """See :class:`Steps`."""
        await self._multiplexer.aclose()
