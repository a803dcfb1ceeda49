"""The test controls of a target (section 14), as calls."""

import json
from typing import Any

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.client import JSON_HEADERS, Client, Exchange, HttpAnswer
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.session import as_sent, json_members
from checkpoint_conformance.tally import Failure, Sent, Tally
from checkpoint_model import format_timestamp, parse_timestamp


class ControlError(Exception):
    """A control did not do as section 14 says; carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.fault.what)
        self.failure = failure


class Controls:
    """The controls below one base URL. What was sent is kept, for the sequences of failures."""

    def __init__(self, client: Client, tally: Tally) -> None:
        self._client = client
        self._tally = tally

    def freeze(self) -> FrozenClock:
        """Let the clock stand still where it is."""
        return FrozenClock(self._clock({"freeze": True})[0])

    def advance(self, clock: FrozenClock, milliseconds: int) -> Sent:
        """Move a frozen clock, and see that it went where it was sent (WC-CTL-1).

        Raises:
            ControlError: it did not.
        """
        now_ms, exchange = self._clock({"advance_ms": milliseconds})
        if now_ms != clock.now_ms + milliseconds:
            expected = format_timestamp(clock.now_ms + milliseconds)
            self._fail("WC-CTL-1", exchange, f'{{"now":"{expected}"}}')
        clock.now_ms = now_ms
        self._tally.hit("WC-CTL-1")
        return as_sent(exchange, None, on_controls=True)

    def run_on(self) -> int:
        """Let the clock run on from where it stands; the time in ms."""
        return self._clock({"freeze": False})[0]

    def pause(self, paused: bool) -> Exchange:
        """WC-CTL-2."""
        return self._post("/pause", {"paused": paused}, "WC-CTL-2")

    def rate_limit(self, remaining: int | None) -> Exchange:
        """WC-CTL-3."""
        return self._post("/rate-limit", {"remaining": remaining}, "WC-CTL-3")

    def dependency(self, available: bool) -> Exchange:
        """WC-CTL-4."""
        return self._post("/dependency", {"available": available}, "WC-CTL-4")

    def reset(self) -> Exchange:
        """WC-CTL-5."""
        return self._post("/reset", {}, "WC-CTL-5")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def raw(self, path: str, body: bytes) -> Exchange:
        """Whatever is to be sent to a control."""
        self._tally.sent()
        return self._client.exchange("POST", path, body, JSON_HEADERS)

    def _clock(self, body: dict[str, Any]) -> tuple[int, Exchange]:
        exchange = self._post("/clock", body, "WC-CTL-1")
        members = json_members(exchange) or {}
        try:
            return parse_timestamp(members.get("now")), exchange
        except ValueError:
            self._fail("WC-CTL-1", exchange, '{"now": a timestamp}')
            raise AssertionError from None  # not reached: _fail raises

    def _post(self, path: str, body: dict[str, Any], rule: str) -> Exchange:
        exchange = self.raw(path, json.dumps(body).encode())
        answered = exchange.answer
        if not isinstance(answered, HttpAnswer) or answered.status != 200:
            self._fail(rule, exchange, "200 with a JSON object")
        if json_members(exchange) is None:
            self._fail(rule, exchange, "200 with a JSON object")
        return exchange

    def _fail(self, rule: str, exchange: Exchange, expected: str) -> None:
        sent = as_sent(exchange, None, on_controls=True)
        fault = Fault(
            rules=(rule,),
            what=f"the control POST {exchange.path}",
            expected=expected,
            got=sent.answered,
        )
        raise ControlError(
            Failure(
                check="controls", fault=fault, sequence=(sent,), expected=None, got=sent.members
            )
        )
