"""How many requests an account may send: counted in the store, by all processes together.

A window begins with an account's first request and ends a fixed time later, when its key, which
holds the count alone, expires by itself. The key's name is a keyed digest of the account, or of
the address where callers are not authenticated: nobody can be told from it (WC-PRIV-1, WC-PRIV-2).

``limits`` counts, by a script of its own, on the connection that the records' steps go by: one
deadline holds for both, and no command is ever repeated.
"""

import math
import time
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from limits import RateLimitItem, parse_many
from limits.aio.storage import Storage
from limits.aio.storage.redis.bridge import RedisBridge
from limits.aio.strategies import FixedWindowRateLimiter
from redis.exceptions import RedisError

from checkpoint_lua import KEY_PREFIX
from checkpoint_reference_server.digests import Digests
from checkpoint_reference_server.gate import Caller

if TYPE_CHECKING:
    from checkpoint_reference_server.steps import Steps

WINDOW_SECONDS_MAX: Final = 3600
"""Nothing lies in the store for longer, whatever it is for (WC-PRIV-3)."""
_CALLERS_REMEMBERED: Final = 4096
_IPV6_HOST_BITS: Final = 64
"""Whoever has one address of IPv6 has as many as they like, with the same first half."""


def read_rate(text: str) -> RateLimitItem:
    """A rate such as ``100/minute``.

    Raises:
        ValueError: it is none, or its window is longer than an hour; the message says which.
    """
    try:
        (rate,) = parse_many(text)
    except ValueError:
        raise ValueError(f"{text!r} is no rate; one looks like: 100/minute") from None
    if rate.get_expiry() > WINDOW_SECONDS_MAX or rate.amount < 1:
        raise ValueError(
            f"{text!r}: at least one request, in a window of at most {WINDOW_SECONDS_MAX} s"
        )
    return rate


class _Counts(Storage):
    """The library's counts, on the way that the records' steps go."""

    STORAGE_SCHEME = None  # not to be found by a URL

    def __init__(self, store: "Steps") -> None:
        super().__init__()
        self._store = store

    @property
    def base_exceptions(self) -> type[Exception]:
        """Of which none is made another."""
        return RedisError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a count, which expires so many seconds after the first was added."""
        name = count_key(key)
        counting = RedisBridge.SCRIPT_INCR_EXPIRE.decode()
        # Not as a step: no replica is waited for, as nothing of a record depends on a count.
        return int(await self._store.send(name, "EVAL", counting, 1, name, expiry, amount))

    async def get(self, key: str) -> int:
        """The count."""
        name = count_key(key)
        return int(await self._store.send(name, "GET", name) or 0)

    async def get_expiry(self, key: str) -> float:
        """When the count expires, in seconds since the epoch by this machine's clock."""
        return time.time() + await self.seconds_left(key)

    async def seconds_left(self, key: str) -> float:
        """How long the count still lies there."""
        name = count_key(key)
        return max(0, int(await self._store.send(name, "PTTL", name))) / 1000

    async def check(self) -> bool:
        """Whether the store answers; raises what the client raises where it does not."""
        await self._store.ping()
        return True

    async def reset(self) -> int | None:
        """Nothing: counts expire by themselves."""
        return None

    async def clear(self, key: str) -> None:
        """Forget a count."""
        name = count_key(key)
        await self._store.send(name, "DEL", name)


def count_key(key: str) -> str:
    """Where a count lies in the store."""
    return f"{KEY_PREFIX}limit:{key}"


class Limiter:
    """Admits so many requests of each account in each window."""

    def __init__(self, store: "Steps", digests: Digests, rate: RateLimitItem) -> None:
        self._rate = rate
        self._counts = _Counts(store)
        self._windows = FixedWindowRateLimiter(self._counts)
        # Who they are never changes, and a digest takes longer to make than to find.
        self._digest = lru_cache(_CALLERS_REMEMBERED)(digests.limited)

    async def seconds_to_wait(self, caller: Caller) -> int | None:
        """Count a request: None where it is admitted, else when the window will have ended.

        Raises what the client raises when the store cannot be asked.
        """
        who = self._digest(*_named(caller))
        if await self._windows.hit(self._rate, who):
            return None
        return max(1, math.ceil(await self._counts.seconds_left(self._rate.key_for(who))))


def _named(caller: Caller) -> tuple[str, str]:
    """What is digested: an account and an address never share a count."""
    if caller.account is not None:
        return "account", caller.account
    try:
        address = ip_address(caller.address.partition("%")[0])
    except ValueError:
        return "address", caller.address
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return "network", str(int(address) >> _IPV6_HOST_BITS)
    return "address", caller.address
