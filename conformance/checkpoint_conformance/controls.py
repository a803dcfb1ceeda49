"""The test controls of a target (section 14), as calls."""

import json
from typing import Any, Final, NoReturn

from checkpoint_conformance.answers import Fault, json_object
from checkpoint_conformance.client import JSON_HEADERS, Client, Exchange, HttpAnswer, Lost
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.session import LostError, as_sent, fresh_identity
from checkpoint_conformance.tally import Failure, Sent, Tally
from checkpoint_model import format_timestamp, parse_timestamp

TRIES_MAX: Final = 3
"""How often a control is told the same before an answer that does not come is given up, and one
that a gateway may have given in a bad moment is taken for the control's."""


class ControlError(Exception):
    """A control did not do as section 14 says; carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.fault.what)
        self.failure = failure


class Controls:
    """The controls below one base URL.

    Every call but :meth:`tell` and :meth:`raw` raises ControlError where the control does not do
    as section 14 says, and LostError where nobody knows what it did.
    """

    def __init__(self, client: Client, tally: Tally) -> None:
        self._client = client
        self._tally = tally

    def freeze(self) -> tuple[FrozenClock, Sent]:
        """Let the clock stand still where it is."""
        now_ms, exchange = self._clock({"freeze": True})
        return FrozenClock(now_ms), as_sent(exchange, None, on_controls=True)

    def advance(self, clock: FrozenClock, milliseconds: int) -> Sent:
        """Move a frozen clock, and see that it went where it was sent (WC-CTL-1)."""
        wanted_ms = clock.now_ms + milliseconds
        for _ in range(TRIES_MAX):
            told = exchange = self.raw("/clock", json.dumps({"advance_ms": milliseconds}).encode())
            if not _tells_nothing(told):
                break
            # It may have been applied. The frozen clock itself tells: asked to move by nothing,
            # it says where it stands.
            standing_ms, exchange = self._clock({})
            if standing_ms == wanted_ms:
                break
        else:
            self._expect_object(told, "WC-CTL-1")
        now_ms = self._now(exchange)
        if now_ms != wanted_ms:
            self.fail("WC-CTL-1", exchange, f'{{"now":"{format_timestamp(wanted_ms)}"}}')
        clock.now_ms = now_ms
        self._tally.hit("WC-CTL-1")
        return as_sent(exchange, None, on_controls=True)

    def now_ms(self) -> int:
        """What the clock shows."""
        return self._clock({})[0]

    def run_on(self) -> int:
        """Let the clock run on from where it stands; the time in ms."""
        return self._clock({"freeze": False})[0]

    def shift(self, milliseconds: int) -> int:
        """Move a running clock; the time in ms. A lost answer is not asked for again."""
        exchange = self.raw("/clock", json.dumps({"advance_ms": milliseconds}).encode())
        if _tells_nothing(exchange):
            self._lose(exchange)
        return self._now(exchange)

    def pause(self, paused: bool) -> Sent:
        """WC-CTL-2."""
        return self._tell("/pause", {"paused": paused}, "WC-CTL-2")

    def rate_limit(self, remaining: int | None) -> Sent:
        """WC-CTL-3."""
        return self._tell("/rate-limit", {"remaining": remaining}, "WC-CTL-3")

    def dependency(self, available: bool) -> Sent:
        """WC-CTL-4."""
        return self._tell("/dependency", {"available": available}, "WC-CTL-4")

    def reset(self) -> Sent:
        """WC-CTL-5."""
        return self._tell("/reset", {}, "WC-CTL-5")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def tell(self, path: str, body: bytes) -> Exchange:
        """Whatever may be sent to a control again without harm, until it says something."""
        for _ in range(TRIES_MAX):
            exchange = self.raw(path, body)
            if not _tells_nothing(exchange):
                break
        return exchange

    def raw(self, path: str, body: bytes) -> Exchange:
        """Whatever is to be sent to a control, once."""
        self._tally.sent()
        return self._client.exchange("POST", path, body, JSON_HEADERS)

    def fail(self, rule: str, exchange: Exchange, expected: str) -> NoReturn:
        """Raise what a control did instead of what it should."""
        sent = as_sent(exchange, None, on_controls=True)
        fault = Fault(
            rules=(rule,),
            what=f"the control POST {exchange.path}",
            expected=expected,
            got=sent.answered,
        )
        raise ControlError(
            Failure(
                check="controls",
                fault=fault,
                sequence=(sent,),
                expected=None,
                got=sent.members,
                identity=fresh_identity(),
            )
        )

    def _clock(self, body: dict[str, Any]) -> tuple[int, Exchange]:
        exchange = self._post("/clock", body, "WC-CTL-1")
        return self._now(exchange), exchange

    def _now(self, exchange: Exchange) -> int:
        self._expect_object(exchange, "WC-CTL-1")
        assert isinstance(exchange.answer, HttpAnswer)
        try:
            return parse_timestamp((json_object(exchange.answer.body) or {}).get("now"))
        except ValueError:
            self.fail("WC-CTL-1", exchange, '200 with {"now": a timestamp}')

    def _tell(self, path: str, body: dict[str, Any], rule: str) -> Sent:
        return as_sent(self._post(path, body, rule), None, on_controls=True)

    def _post(self, path: str, body: dict[str, Any], rule: str) -> Exchange:
        exchange = self.tell(path, json.dumps(body).encode())
        self._expect_object(exchange, rule)
        return exchange

    def _expect_object(self, exchange: Exchange, rule: str) -> None:
        answered = exchange.answer
        if isinstance(answered, Lost):
            self._lose(exchange)
        if answered.status != 200 or json_object(answered.body) is None:
            self.fail(rule, exchange, "200 with a JSON object")

    def _lose(self, exchange: Exchange) -> NoReturn:
        answered = exchange.answer
        told = answered.reason if isinstance(answered, Lost) else f"HTTP {answered.status}"
        why = f"the control POST {exchange.path}: {told}"
        self._tally.lose(why, "a control")
        raise LostError(why)


def _tells_nothing(exchange: Exchange) -> bool:
    """Whether nobody knows what the control did: no answer, or somebody's 5xx."""
    answered = exchange.answer
    return isinstance(answered, Lost) or answered.status >= 500
