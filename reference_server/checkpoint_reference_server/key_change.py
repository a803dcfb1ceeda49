"""The change of the HMAC key, by drain: no claim under one key while records of another live.

A record is found by a digest that the key makes, so under another key every live record is gone:
its workflow would start again at generation 1 (WC-ID-5). Therefore the store remembers which key
claims are decided under, by a fingerprint (a keyed digest in a domain of its own) that every
server keeps for as long as a record made under the key may live, and that expires by itself:

1. ``workflow-checkpoint drain`` pauses claims under the old key (work in flight is still
   recorded), waits until no record is left, and forgets the fingerprint;
2. the servers are stopped and started with the new key; ``resume``.

A server with another key does not start while the fingerprint is there. One that runs while
another took the store over (``--forget-records``) refuses every claim from then on. A key that
was made up for development leaves no fingerprint and minds none.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from checkpoint_lua import KEY_PREFIX
from checkpoint_model.vocabulary import CONTRACT_LIMITS
from checkpoint_reference_server.clients import STORE_ERRORS
from checkpoint_reference_server.logs import log_fault

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    Client = redis.Redis | redis.RedisCluster

MARK_KEY: Final = f"{KEY_PREFIX}key"
LOOK_SECONDS: Final = 1.0
"""How old may be what is known of whose the store is."""
RENEW_SECONDS: Final = 30.0
MARK_SLACK_SECONDS: Final = 300
"""For the time since the fingerprint was renewed, and for a claim that lay in a store that stood
still and was applied when nobody waited for it any more."""
MARK_MS: Final = (CONTRACT_LIMITS.state_ttl_seconds[1] + MARK_SLACK_SECONDS) * 1000
DRAIN_POLL_SECONDS: Final = 10.0
CLAIM_UNDER_WAY_SECONDS: Final = 5.0
"""WC-ERR-5: how long a claim that came before the pause may still be on its way."""
_BATCH: Final = 500


class OtherKeyError(Exception):
    """Records made under another key may live; the message says until when, and what to do."""


class KeyMark:
    """The fingerprint in the store, as one process keeps it.

    Beside the requests, on a connection of its own: a claim waits for none of this. So for a
    moment after the first claim, or after a store that forgot everything, it may be missing.
    """

    def __init__(
        self,
        store: "redis.asyncio.Redis | redis.asyncio.RedisCluster",
        fingerprint: str,
        monotonic_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._monotonic_seconds = monotonic_seconds
        self._looked_at_seconds = float("-inf")
        self._renewed_at_seconds = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._ours = True

    def holds(self) -> bool:
        """Whether claims may be decided under this key, as far as is known; now and then, look."""
        now = self._monotonic_seconds()
        if now - self._looked_at_seconds >= LOOK_SECONDS and self._looking is None:
            self._looked_at_seconds = now
            self._looking = asyncio.create_task(self._look(now))
        return self._ours

    async def _look(self, now_seconds: float) -> None:
        try:
            await self.keep(now_seconds)
        except (*STORE_ERRORS, OSError):
            pass  # the claims themselves tell of a store that is away
        finally:
            self._looking = None

    async def keep(self, now_seconds: float) -> None:
        """Find out whose the store is; where it is nobody's or ours, keep it for the next hour.

        Raises what the client raises when the store cannot be asked.
        """
        there: Any = await self._store.get(MARK_KEY)
        if there is None:
            await self._store.set(MARK_KEY, self._fingerprint, nx=True, px=MARK_MS)
            there = await self._store.get(MARK_KEY)  # another server's may have come first
        elif there == self._fingerprint and self._is_due(now_seconds):
            await self._store.pexpire(MARK_KEY, MARK_MS)
            self._renewed_at_seconds = now_seconds
        # None: emptied between the two, so nobody's; the next look sets it again.
        ours = there is None or there == self._fingerprint
        if self._ours and not ours:
            log_fault("key", None, event="claims are refused: the store has another key's records")
        self._ours = ours

    def _is_due(self, now_seconds: float) -> bool:
        return now_seconds - self._renewed_at_seconds >= RENEW_SECONDS


def check_key(client: "Client", fingerprint: str, *, forget_records: bool) -> None:
    """Make sure that no record of another key is lost by starting with this one.

    Args:
        client: one that decodes responses.
        fingerprint: of the key to start with.
        forget_records: take the store over all the same.

    Raises:
        OtherKeyError: the store has the fingerprint of another key.
        redis.exceptions.RedisError: it could not be asked.
    """
    there: Any = client.get(MARK_KEY)
    if there is None or there == fingerprint:
        return
    if forget_records:
        client.set(MARK_KEY, fingerprint, px=MARK_MS)
        return
    seconds = max(0, int(client.pttl(MARK_KEY))) // 1000
    raise OtherKeyError(
        "claims on this store were decided under another HMAC key, and records made under it may "
        f"live for another {seconds} s. With this key they could not be found, and their workflows "
        "would start again at generation 1 (WC-ID-5).\n"
        "To change the key: workflow-checkpoint drain, then start with the new one. Another "
        "deployment needs a store, or a database of one, to itself.\n"
        "To lose those records: --forget-records"
    )


def drain(client: "Client", tell: Callable[[int, float], None]) -> None:
    """Wait until the last record has expired, then forget the key. Claims must be paused.

    Args:
        client: one that decodes responses.
        tell: told now and then how many records are left, and the seconds until the last expires.

    Raises:
        redis.exceptions.RedisError: the store could not be asked.
    """
    under_way_until = time.monotonic() + CLAIM_UNDER_WAY_SECONDS
    while True:
        waits_for_claims = time.monotonic() < under_way_until
        records, longest_seconds = _records(client)
        if not records and not waits_for_claims:
            break
        tell(records, longest_seconds)
        left = under_way_until - time.monotonic() if waits_for_claims else DRAIN_POLL_SECONDS
        time.sleep(max(0.01, min(left, longest_seconds or left)))
    client.delete(MARK_KEY)


def _records(client: "Client") -> tuple[int, float]:
    """How many records there are, and the seconds until the last of them expires."""
    keys = list(client.scan_iter(match=f"{KEY_PREFIX}{{*", count=1000))
    found, longest_ms = 0, 0
    for start in range(0, len(keys), _BATCH):
        with client.pipeline(transaction=False) as asking:
            for key in keys[start : start + _BATCH]:
                asking.pttl(key)
            left = [ms for ms in asking.execute() if ms >= 0]
        found += len(left)
        longest_ms = max(longest_ms, *left, 0)
    return found, longest_ms / 1000
