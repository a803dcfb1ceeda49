"""Section 14: the test controls, on a listener of their own. Off unless an operator asks.

Their state lies in this one process, which is why one worker serves while they are on. The
pause is the operator's own switch, in the store.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from checkpoint_lua import KEY_PREFIX
from checkpoint_reference_server.answers import timestamp
from checkpoint_reference_server.connection import Connection
from checkpoint_reference_server.switch import FLAG_KEY, Switch

CONTROLLED_SLACK_MS: Final = 3600 * 1000
"""WC-CTL-6: how much later native expiry may be under a controlled clock."""
CONTROLS_HOST: Final = "127.0.0.1"
"""Where the controls listen, and nowhere else."""
_KEYS_AT_ONCE: Final = 500
_EXPIRE: Final = """
-- KEYS  record; ARGV  the controlled clock or '', the store's own, the slack of WC-CTL-6: all in ms
local state_end, changed = unpack(redis.call('HMGET', KEYS[1], 'state_end', 'changed'))
if not state_end then return 0 end -- gone meanwhile
local at_ms = tonumber(state_end)
if ARGV[1] ~= '' then
  local left_ms = at_ms - math.max(tonumber(ARGV[1]), tonumber(changed))
  at_ms = tonumber(ARGV[2]) + math.max(0, left_ms) + tonumber(ARGV[3])
end
return redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', at_ms))
"""
"""A script, so that an expired record that is replaced meanwhile does not leave its deadline to
the new one."""
LATEST_NOW_MS: Final = 253_402_300_799_999 - 3600 * 1000
"""The clock stays where WC-TIME-5 can still write every deadline: in the years to 9999."""


class Controls:
    """Clock, limit and dependency, as the tool asks for them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """WC-CTL-5, but for the pause."""
        self._shift_ms = 0
        self._frozen_at_ms: int | None = None
        self._remaining: int | None = None
        self.dependency_available = True

    @property
    def clock(self) -> str:
        """What the scripts are told of the time (WC-CTL-1); empty for the store's own."""
        if self._frozen_at_ms is not None:
            return f"at:{self._frozen_at_ms}"
        return f"shift:{self._shift_ms}" if self._shift_ms else ""

    def now_ms(self, store_ms: int) -> int:
        """The time of WC-TIME-1 while the store's own clock reads ``store_ms``."""
        if self._frozen_at_ms is not None:
            return self._frozen_at_ms
        return store_ms + self._shift_ms

    def set_clock(self, store_ms: int, advance_ms: int, freeze: bool | None) -> int:
        """Shift the clock, then freeze it or let it run on; the time that it now shows.

        Raises:
            ValueError: timestamps could not show the time.
        """
        now_ms = self.now_ms(store_ms) + advance_ms
        if not 0 <= now_ms <= LATEST_NOW_MS:
            raise ValueError("the clock would leave the years that timestamps can show")
        if freeze is None:
            freeze = self._frozen_at_ms is not None
        self._frozen_at_ms = now_ms if freeze else None
        self._shift_ms = now_ms - store_ms
        return now_ms

    def set_remaining(self, remaining: int | None) -> None:
        """WC-CTL-3: admit so many more requests; None lifts the limit."""
        self._remaining = remaining

    def admit(self) -> bool:
        """Count one request; whether it is still within the limit."""
        if self._remaining is None:
            return True
        if self._remaining == 0:
            return False
        self._remaining -= 1
        return True


class _Clock(msgspec.Struct, forbid_unknown_fields=True):
    advance_ms: int = 0
    freeze: bool | msgspec.UnsetType = msgspec.UNSET


class _Pause(msgspec.Struct, forbid_unknown_fields=True):
    paused: bool


class _RateLimit(msgspec.Struct, forbid_unknown_fields=True):
    remaining: Annotated[int, msgspec.Meta(ge=0)] | None


class _Dependency(msgspec.Struct, forbid_unknown_fields=True):
    available: bool


class _Reset(msgspec.Struct, forbid_unknown_fields=True):
    pass


Body = TypeVar("Body", bound=msgspec.Struct)


def create_controls_app(controls: Controls, store: Connection, switch: Switch) -> Starlette:
    """The five controls as an ASGI application."""

    async def store_ms() -> int:
        seconds, microseconds = await store.client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def clock(body: _Clock) -> dict[str, Any]:
        freeze = None if isinstance(body.freeze, msgspec.UnsetType) else body.freeze
        store_now_ms = await store_ms()
        was_controlled = controls.clock != ""
        now_ms = controls.set_clock(store_now_ms, body.advance_ms, freeze)
        if (controls.clock != "") is not was_controlled:
            await _expire_by(controls, store, store_now_ms)
        return {"now": timestamp(now_ms)}

    async def set_paused(paused: bool) -> None:
        client = store.client
        await (client.set(FLAG_KEY, "1") if paused else client.delete(FLAG_KEY))
        switch.forget()

    async def pause(body: _Pause) -> dict[str, Any]:
        await set_paused(body.paused)
        return {"paused": body.paused}

    async def rate_limit(body: _RateLimit) -> dict[str, Any]:
        controls.set_remaining(body.remaining)
        return {"remaining": body.remaining}

    async def dependency(body: _Dependency) -> dict[str, Any]:
        controls.dependency_available = body.available
        return {"available": body.available}

    async def reset(_: _Reset) -> dict[str, Any]:
        was_controlled = controls.clock != ""
        controls.reset()
        await set_paused(False)
        if was_controlled:
            await _expire_by(controls, store, await store_ms())
        return {}

    return Starlette(
        routes=[
            Route("/clock", _taking(_Clock, clock), methods=["POST"]),
            Route("/pause", _taking(_Pause, pause), methods=["POST"]),
            Route("/rate-limit", _taking(_RateLimit, rate_limit), methods=["POST"]),
            Route("/dependency", _taking(_Dependency, dependency), methods=["POST"]),
            Route("/reset", _taking(_Reset, reset), methods=["POST"]),
        ]
    )


def _taking(
    kind: type[Body], endpoint: Callable[[Body], Awaitable[dict[str, Any]]]
) -> Callable[[Request], Awaitable[Response]]:
    """Read the body as ``kind``; where it is not, answer 400 without a code."""
    decoder = msgspec.json.Decoder(kind)

    async def handle(request: Request) -> Response:
        try:
            answer = await endpoint(decoder.decode(await request.body()))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            answer = {"title": "Bad request", "status": 400, "detail": str(error)}
            return Response(msgspec.json.encode(answer), 400, media_type="application/json")
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return handle


async def _expire_by(controls: Controls, store: Connection, store_ms: int) -> None:
    """Give every record the native expiry that it needs under a clock that was taken or given back.

    Records made from now on get it from their script. One that was made before the clock was
    frozen, with a second to live, would be gone after that second although the frozen clock says
    that it exists; and one that was made under a controlled clock would lie there for an hour
    more than WC-PRIV-3 allows once the clock is the store's again.
    """
    now_ms = controls.now_ms(store_ms) if controls.clock else ""
    arguments = (now_ms, store_ms, CONTROLLED_SLACK_MS)
    keys = [key async for key in store.client.scan_iter(match=f"{KEY_PREFIX}{{*", count=1000)]
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[start : start + _KEYS_AT_ONCE]
        await asyncio.gather(*(store.steps.eval(_EXPIRE, 1, key, *arguments) for key in some))
