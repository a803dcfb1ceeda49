"""The operator's switch: a flag in the store that every process of every server sees.

``workflow-checkpoint pause`` sets it and ``resume`` clears it. Each process remembers what it
read for at most ``FLAG_AGE_SECONDS_MAX``, counted from before it asked, so a pause holds
everywhere that long after it was set, and the hot path pays one extra read a second.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from checkpoint_lua import KEY_PREFIX

if TYPE_CHECKING:
    import redis

FLAG_KEY: Final = f"{KEY_PREFIX}paused"
FLAG_AGE_SECONDS_MAX: Final = 1.0


class Store(Protocol):
    """What the switch needs of a client: ``redis.asyncio``'s has it, among others."""

    def exists(self, name: str, /) -> Awaitable[Any]:
        """Whether the key is there."""


class Switch:
    """Whether the tool is paused, as one process knows it."""

    def __init__(
        self, store: Store, monotonic_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._monotonic_seconds = monotonic_seconds
        self._paused = False
        self._read_at_seconds = float("-inf")
        self._forgotten = 0

    async def paused(self) -> bool:
        """Whether an operator paused the tool (WC-ERR-7).

        Raises what the client raises when the store cannot be asked.
        """
        known = self.known
        if known is not None:
            return known
        now, forgotten = self._monotonic_seconds(), self._forgotten
        paused = bool(await self._store.exists(FLAG_KEY))
        # An answer that was on its way while the flag was set tells of before: it is good for
        # the request that asked, which came before too, and for no other.
        if forgotten == self._forgotten and now >= self._read_at_seconds:
            self._paused, self._read_at_seconds = paused, now
        return paused

    @property
    def known(self) -> bool | None:
        """What :meth:`paused` tells without asking anybody; None where it would ask."""
        if self._monotonic_seconds() - self._read_at_seconds < FLAG_AGE_SECONDS_MAX:
            return self._paused
        return None

    def forget(self) -> None:
        """Read the flag again before the next decision."""
        self._read_at_seconds = float("-inf")
        self._forgotten += 1


def set_paused(client: "redis.Redis | redis.RedisCluster", *, paused: bool) -> None:
    """Set or clear the flag, and return when every process must have read it anew.

    Raises:
        redis.exceptions.RedisError: the store did not take it.
    """
    if paused:
        client.set(FLAG_KEY, "1")
    else:
        client.delete(FLAG_KEY)
    time.sleep(FLAG_AGE_SECONDS_MAX)
