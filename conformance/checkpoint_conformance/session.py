"""One workflow driven and judged request by request, remembered as a sequence to repeat.

Everything that a check sends goes through here, so that each request is counted, each answer
judged, and each failure comes with the whole sequence that led to it.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from checkpoint_conformance.answers import (
    Answer,
    Fault,
    Problem,
    Result,
    Unknown,
    read,
)
from checkpoint_conformance.client import JSON_HEADERS, Client, Exchange, Headers, HttpAnswer, Lost
from checkpoint_conformance.clock import Clock
from checkpoint_conformance.oracle import Oracle
from checkpoint_conformance.tally import Failure, Move, Sent, Tally, in_short
from checkpoint_model import ErrorCode, Identity, Request, Step, answer, format_request
from checkpoint_model.vocabulary import TOOL_PATH

LOST_IN_A_ROW_MAX: Final = 5
"""So many requests in a row without an answer, and the run ends rather than wait for each."""
RATE_LIMIT_WAITS_MAX: Final = 5
RATE_LIMIT_WAIT_SECONDS_MAX: Final = 10
_IDENTIFIERS: Final = (
    "namespace",
    "workflow_key",
    "holder",
    "observation_key",
    "evidence_fingerprint",
)


class ViolationError(Exception):
    """The target broke a rule. Raised by the check that saw it, with the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.rule}: {failure.fault.what}")
        self.failure = failure


class LostError(Exception):
    """The outcome of a request is unknown, so the oracle cannot go on with its workflow."""


class TargetGoneError(Exception):
    """The target stopped answering; the message says how. The run ends here."""


class TargetPausedError(Exception):
    """An operator paused the target: no run can say anything of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """A judged answer."""

    step: Step
    members: dict[str, Any]
    exchange: Exchange


def fresh_identity() -> Identity:
    """A workflow identity that nobody has used; long, so that a leak of it can be told."""
    return Identity(namespace=f"conformance:{secrets.token_hex(12)}", workflow_key=fresh_key("w"))


def fresh_key(kind: str) -> str:
    """A key of the kind ``w``, ``h`` or ``o`` that nobody has used."""
    return f"{kind}_{secrets.token_hex(16)}"


class Session:
    """One workflow at the target, with its oracle and its sequence so far."""

    def __init__(
        self,
        *,
        check: str,
        client: Client,
        clock: Clock,
        tally: Tally,
        identity: Identity | None = None,
    ) -> None:
        self.identity = identity or fresh_identity()
        self.oracle = Oracle(self.identity, clock)
        self.sequence: list[Sent] = []
        self.moves: list[Move] | None = []
        """The sequence as requests to send again; None once anything else was part of it."""
        self._check = check
        self._client = client
        self._tally = tally

    def send(self, request: Request, *, headers: Mapping[str, str] | None = None) -> Told:
        """Send one request and judge its answer.

        Raises:
            ViolationError: the answer breaks a rule.
            LostError: it is unknown whether the request was applied.
            TargetGoneError: nothing was answered for some time.
            TargetPausedError: an operator paused the target.
        """
        body = self.body(request)
        extra = (*JSON_HEADERS, *(headers or {}).items())
        for _ in range(RATE_LIMIT_WAITS_MAX):
            exchange = self._exchange("POST", TOOL_PATH, body, extra)
            came = read(exchange)
            if not (isinstance(came, Problem) and came.code is ErrorCode.RATE_LIMITED):
                replayable = None if headers or self.moves is None else [*self.moves, request]
                return self.judge(request, exchange, came, moves=replayable)
            self.note(exchange, came)
            wait_seconds = came.members.get("retry_after_seconds", 1)
            time.sleep(min(float(wait_seconds), RATE_LIMIT_WAIT_SECONDS_MAX))
        self._tally.lose("RATE_LIMITED again and again")
        raise LostError("the target limits the rate too tightly to be checked")

    def send_raw(
        self, request: Request, *, headers: Headers = JSON_HEADERS, pad_to: int = 0
    ) -> Told:
        """Send one request with just these headers, its body padded with white space."""
        body = self.body(request).ljust(pad_to)
        exchange = self._exchange("POST", TOOL_PATH, body, headers)
        return self.judge(request, exchange, read(exchange))

    def ask(self, body: bytes, headers: Headers = JSON_HEADERS) -> tuple[Exchange, Answer]:
        """Send whatever body to the tool; what comes back is the caller's to judge.

        Raises:
            LostError: nothing came that tells what was decided.
            TargetGoneError: nothing was answered for some time.
        """
        exchange = self._exchange("POST", TOOL_PATH, body, headers)
        came = read(exchange)
        self.note(exchange, came)
        if isinstance(came, Unknown):
            self._tally.lose(came.why)
            raise LostError(came.why)
        self._tally.answered()
        return exchange, came

    def http(self, method: str, path: str, body: bytes = b"") -> tuple[Exchange, HttpAnswer]:
        """Send whatever request; raises as :meth:`ask` does."""
        exchange = self._exchange(method, path, body, JSON_HEADERS if body else ())
        self.note(exchange, None)
        self._tally.answered()
        assert isinstance(exchange.answer, HttpAnswer)
        return exchange, exchange.answer

    def _exchange(self, method: str, path: str, body: bytes, headers: Headers) -> Exchange:
        if self._tally.lost_in_a_row >= LOST_IN_A_ROW_MAX:
            why = self._tally.lost_why.most_common(1)[0][0]
            raise TargetGoneError(f"the target stopped answering: {why}")
        exchange = self._client.exchange(method, path, body, headers)
        if isinstance(exchange.answer, Lost):
            self.note(exchange, None)
            self._tally.lose(exchange.answer.reason)
            raise LostError(exchange.answer.reason)
        return exchange

    def rename(self, identity: Identity) -> None:
        """Use another identity, before anything is sent."""
        self.identity = self.oracle.identity = identity

    def body(self, request: Request) -> bytes:
        """The JSON of a request of this workflow."""
        return json.dumps(format_request(self.identity, request), separators=(",", ":")).encode()

    def judge(
        self,
        request: Request,
        exchange: Exchange,
        came: Answer,
        *,
        moves: list[Move] | None = None,
    ) -> Told:
        """Judge an answer that was sent for elsewhere; raises as :meth:`send` does.

        ``moves`` are those of the sequence with this request, where all of it can be sent again.
        """
        self.note(exchange, came)
        self.moves = moves
        # What is wrong with an answer's form does not keep its decision from being judged: a
        # missing header on every answer would otherwise hide all that is wrong besides.
        form = leaks(format_request(self.identity, request), exchange)
        if isinstance(came, Result | Problem):
            form += came.faults
        for fault in form:
            self.report(fault)
        if isinstance(came, Problem) and came.code is ErrorCode.TOOL_PAUSED:
            raise TargetPausedError(
                "The target answers TOOL_PAUSED: an operator paused it. Resume it, then run again."
            )
        if isinstance(came, Problem) and came.code is ErrorCode.DEPENDENCY_UNAVAILABLE:
            came = Unknown(why="DEPENDENCY_UNAVAILABLE")
        if isinstance(came, Unknown):
            self._tally.lose(came.why)
            raise LostError(came.why)
        self._tally.answered()
        judgement = self.oracle.judge(request, exchange, came)
        if judgement.faults:
            self.fail(_most_telling(judgement.faults), request=request, decided=judgement.step)
        assert judgement.step is not None
        broken = {rule for fault in form for rule in fault.rules}
        self._tally.hit(*(rule for rule in (*judgement.hits, "WC-PRIV-1") if rule not in broken))
        assert isinstance(came, Result | Problem)
        return Told(step=judgement.step, members=came.members, exchange=exchange)

    def report(self, fault: Fault) -> None:
        """Put a fault into the tally, and go on."""
        self._tally.fail(self._failure(fault))

    def note(self, exchange: Exchange, came: Answer | None) -> None:
        """Add an exchange to the sequence."""
        self._tally.sent()
        self.sequence.append(as_sent(exchange, came))
        self.moves = None

    def waited(self, milliseconds: int, sent: Sent) -> None:
        """Add a move of the frozen clock to the sequence."""
        self.sequence.append(sent)
        if self.moves is not None:
            self.moves.append(milliseconds)

    def fail(
        self, fault: Fault, *, request: Request | None = None, decided: Step | None = None
    ) -> NoReturn:
        """Raise a violation that ends the sequence here."""
        expected = None
        if request is not None and decided is not None:
            expected = answer(decided, request)
        raise ViolationError(self._failure(fault, expected))

    def _failure(self, fault: Fault, expected: dict[str, Any] | None = None) -> Failure:
        return Failure(
            check=self._check,
            fault=fault,
            sequence=tuple(self.sequence),
            expected=expected,
            got=self.sequence[-1].members if self.sequence else None,
            moves=None if self.moves is None else tuple(self.moves),
        )


def as_sent(exchange: Exchange, came: Answer | None, *, on_controls: bool = False) -> Sent:
    """An exchange as one line of a sequence."""
    members = json_members(exchange)
    if isinstance(exchange.answer, HttpAnswer):
        answered = in_short(exchange.answer.status, members)
    else:
        answered = came.why if isinstance(came, Unknown) else exchange.answer.reason
    return Sent(
        method=exchange.method,
        path=exchange.path,
        headers=tuple(
            header
            for header in exchange.headers
            if header[0] not in ("host", "user-agent", "accept", "content-length")
        ),
        body=exchange.body.decode("utf-8", "backslashreplace"),
        answered=answered,
        members=members,
        on_controls=on_controls,
    )


def json_members(exchange: Exchange) -> dict[str, Any] | None:
    """The members of an answer that is a JSON object."""
    if not isinstance(exchange.answer, HttpAnswer):
        return None
    try:
        members = json.loads(exchange.answer.body)
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) else None


def leaks(body: Mapping[str, Any], exchange: Exchange) -> list[Fault]:
    """Whether an answer repeats an identifier of its request (WC-PRIV-1)."""
    if not isinstance(exchange.answer, HttpAnswer):
        return []
    headers = "\n".join(f"{name}: {value}" for name, value in exchange.answer.headers)
    said = exchange.answer.body + b"\n" + headers.encode("latin-1", "replace")
    for member in _IDENTIFIERS:
        value = body.get(member)
        if isinstance(value, str) and len(value) >= 16 and value.encode() in said:
            place = "body" if value.encode() in exchange.answer.body else "headers"
            fault = Fault(
                rules=("WC-PRIV-1",),
                what=f"the answer repeats the request's {member}",
                expected="no raw identifier in any answer",
                got=f"{value} in the answer's {place}",
            )
            return [fault]
    return []


def _most_telling(faults: tuple[Fault, ...]) -> Fault:
    """One fault to report: the first, with whatever else is wrong with the same answer."""
    first, *others = faults
    if not others:
        return first
    rules = dict.fromkeys(rule for fault in faults for rule in fault.rules)
    return Fault(
        rules=tuple(rules),
        what="; ".join(fault.what for fault in faults),
        expected="; ".join(fault.expected for fault in faults),
        got="; ".join(fault.got for fault in faults),
    )
