"""One workflow driven and judged request by request, remembered as a sequence to repeat.

Everything that a check sends goes through here, so that each request is counted, each answer
judged, and each failure comes with the whole sequence that led to it.

One door to the tool, :meth:`Session.ask`, and what can come through it:

1. no complete answer, or a 5xx without a code       LostError
2. ``DEPENDENCY_UNAVAILABLE``: applied or not        LostError
3. ``RATE_LIMITED``: nothing was changed             wait as told, send again
4. ``TOOL_PAUSED``                                   TargetPausedError
5. 401 or 407 to credentials that were taken before  TargetGoneError
6. anything else                                     for the caller, or the oracle, to judge

Any other path has :meth:`Session.http` and :meth:`Session.expect`, where a 5xx is lost as well: it
is a failure only where it comes each time (:meth:`Session.lose`).

A check that provoked 2, 3 or 4 with a control says so, and gets them like anything else.
"""

import json
import time
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from checkpoint_conformance.answers import (
    Answer,
    Fault,
    Foreign,
    Problem,
    Result,
    Unknown,
    as_integer,
    json_object,
    read,
)
from checkpoint_conformance.client import (
    JSON_HEADERS,
    Client,
    Exchange,
    Flight,
    Headers,
    HttpAnswer,
    Lost,
)
from checkpoint_conformance.clock import Clock
from checkpoint_conformance.graph import cell_of
from checkpoint_conformance.logs import digits
from checkpoint_conformance.mcp_client import ProtocolError, arguments_of
from checkpoint_conformance.oracle import Oracle
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.tally import Failure, Move, Sent, Tally, in_short
from checkpoint_model import ErrorCode, Identity, Request, Status, Step, answer, format_request
from checkpoint_model.vocabulary import TOOL_PATH, Action

LOST_IN_A_ROW_MAX: Final = 5
"""So many requests in a row without an answer, and the run ends rather than wait for each."""
RATE_LIMIT_WAITS_MAX: Final = 20
RATE_LIMIT_WAIT_SECONDS_MAX: Final = 10
IDENTIFIERS: Final = (
    "namespace",
    "workflow_key",
    "holder",
    "observation_key",
    "evidence_fingerprint",
)
"""The members that no answer, log or store may show (WC-PRIV-1)."""
IDENTIFIER_LENGTH_MIN: Final = 16
"""A shorter one may stand in an answer by chance: a namespace `a` does in every one."""


class ViolationError(Exception):
    """The target broke a rule. Raised by the check that saw it, with the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.rule}: {failure.fault.what}")
        self.failure = failure


class LostError(Exception):
    """The outcome of a request is unknown, so the oracle cannot go on with its workflow.

    Args:
        why: in words.
        failure: what it is where it happens whenever the sequence is begun; None where that, too,
            would say nothing against the target.
        answered: whether there was an answer, though one that says nothing of the outcome.
    """

    def __init__(self, why: str, failure: Failure | None = None, *, answered: bool = False) -> None:
        super().__init__(why)
        self.failure = failure
        self.answered = answered


class TargetGoneError(Exception):
    """The target stopped answering, or was paused; the message says how. The run ends here."""


class TargetPausedError(TargetGoneError):
    """An operator paused the target: no run can say more of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """A judged answer."""

    step: Step
    members: dict[str, Any]
    exchange: Exchange


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request to the tool, sent by whoever holds the conversation."""

    body: bytes
    headers: Headers
    binding: Binding

    def composed_by(self, client: Client) -> Flight:
        """A flight of it, over a client of its binding.

        Raises:
            TargetGoneError: the endpoint lets no client in again.
        """
        try:
            return client.compose("POST", TOOL_PATH, self.body, self.headers)
        except ProtocolError as error:
            raise _shut_out(error) from None


@dataclass(frozen=True, slots=True)
class Rest:
    """Seconds to let pass, as the target asked for."""

    seconds: float


Part = TypeVar("Part")
Conversation: TypeAlias = Generator[object, Any, Part]
"""What is asked and waited for, and what comes of it: see ``conversations.py``. It yields
:class:`Ask` and :class:`Rest`, and whatever else its holder knows to wait for."""

_MEMBERS: Final = {"w": "workflow_key", "h": "holder", "o": "observation_key"}


def expect_somebody(tally: Tally) -> None:
    """Ask no more of a target that has not answered for some time.

    Raises:
        TargetGoneError: it has not.
    """
    if tally.silence.requests >= LOST_IN_A_ROW_MAX:
        raise TargetGoneError(f"the target stopped answering: {tally.silence.why}")


def fresh_identity() -> Identity:
    """A workflow identity that nobody has used; long, so that a leak of it can be told."""
    return Identity(namespace=f"conformance:{digits('namespace', 24)}", workflow_key=fresh_key("w"))


def fresh_key(kind: str) -> str:
    """A key of the kind ``w``, ``h`` or ``o`` that nobody has used."""
    return f"{kind}_{digits(_MEMBERS.get(kind, kind), 32)}"


def fresh_fingerprint() -> str:
    """A fingerprint of evidence that nobody has used."""
    return f"sha256:{digits('evidence_fingerprint', 64)}"


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
        self._identifiers: dict[str, bytes] = {}
        """What no answer may show, and how it would stand in one."""
        self._in_logs: set[str] = set()
        self._check = check
        self._client = client
        self._tally = tally

    # -- sending -------------------------------------------------------------------------

    def send(
        self,
        request: Request,
        *,
        headers: Headers = (),
        expecting: Collection[ErrorCode] = (),
    ) -> Told:
        """Send one request and judge its answer. ``expecting`` as in :meth:`ask`.

        Raises:
            ViolationError: the answer breaks a rule.
            LostError, TargetGoneError: as :meth:`ask`.
        """
        return self._at_once(self.sending(request, headers=headers, expecting=expecting))

    def send_raw(
        self, request: Request, *, headers: Headers = JSON_HEADERS, pad_to: int = 0
    ) -> Told:
        """Send one request with just these headers, its body padded with white space."""
        exchange, came = self.ask(self.body(request).ljust(pad_to), headers)
        return self.judge_answer(request, exchange, came)

    def ask(
        self,
        body: bytes,
        headers: Headers = JSON_HEADERS,
        *,
        expecting: Collection[ErrorCode] = (),
    ) -> tuple[Exchange, Answer]:
        """Send whatever body to the tool; what comes back is the caller's to judge.

        Args:
            body: the bytes.
            headers: those of this request, besides the target's own.
            expecting: codes that a control was told to bring about; without that they end the
                sequence or the run.

        Raises:
            LostError: nothing came that tells what was decided.
            TargetGoneError: nothing was answered for some time, the target is paused, or the
                credentials that it is sent have expired.
        """
        return self._at_once(self.asking(body, headers, expecting=expecting))

    # -- the same beside other conversations ---------------------------------------------

    def sending(
        self,
        request: Request,
        *,
        headers: Headers = (),
        expecting: Collection[ErrorCode] = (),
    ) -> Conversation[Told]:
        """What :meth:`send` does, as a part of a conversation; raises the same."""
        moves = None if headers or self.moves is None else [*self.moves, request]
        members = format_request(self.identity, request)
        self.know(members)
        exchange, came = yield from self._asking(
            _as_json(members), (*JSON_HEADERS, *headers), expecting
        )
        return self.judge_answer(request, exchange, came, moves)

    def asking(
        self,
        body: bytes,
        headers: Headers = JSON_HEADERS,
        *,
        expecting: Collection[ErrorCode] = (),
    ) -> Conversation[tuple[Exchange, Answer]]:
        """What :meth:`ask` does, as a part of a conversation; raises the same."""
        self.know(json_object(body) or {})
        return (yield from self._asking(body, headers, expecting))

    def _asking(
        self, body: bytes, headers: Headers, expecting: Collection[ErrorCode]
    ) -> Conversation[tuple[Exchange, Answer]]:
        ask = Ask(body=body, headers=headers, binding=self._client.binding)
        for _ in range(RATE_LIMIT_WAITS_MAX):
            exchange: Exchange = yield ask
            came = self.settle(exchange, expecting=expecting)
            if came is not None:
                return exchange, came
            yield Rest(wait_seconds(read(exchange)))
        why = f"{ErrorCode.RATE_LIMITED} again and again"
        self._tally.lose(why, self._named(exchange))
        raise LostError(why)

    def _at_once(self, conversation: Conversation[Part]) -> Part:
        """Hold a conversation over the session's own client, and nothing beside it."""
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Rest):
                    time.sleep(step.seconds)
                    step = next(conversation)
                else:
                    assert isinstance(step, Ask)
                    exchange = self._exchange("POST", TOOL_PATH, step.body, step.headers)
                    step = conversation.send(exchange)
        except StopIteration as ended:
            part: Part = ended.value
            return part

    # -- sending anything else -----------------------------------------------------------

    def http(self, method: str, path: str, body: bytes = b"") -> tuple[Exchange, HttpAnswer]:
        """Send whatever request; raises as :meth:`ask` does, but that any answer is one."""
        exchange = self._exchange(method, path, body, JSON_HEADERS if body else ())
        self.heard(exchange)
        if isinstance(exchange.answer, Lost):
            self._lose(exchange.answer.why, exchange)
        self._tally.answered()
        return exchange, exchange.answer

    def expect(
        self, status: int, rules: tuple[str, ...], method: str, path: str, body: bytes = b""
    ) -> HttpAnswer:
        """Send whatever request, and hold the status of its answer; ``rules`` ask for that one.

        Raises:
            ViolationError: it is another.
            LostError: it tells nothing, as a gateway's 502 does not; see :meth:`lose`.
            TargetGoneError: as :meth:`ask` does.
        """
        exchange, answer = self.http(method, path, body)
        if answer.status != status:
            fault = Fault(
                rules=rules,
                what=f"{method} {path}",
                expected=str(status),
                got=self.sequence[-1].answered,
            )
            if answer.status < 500:
                self.fail(fault)
            # Where 503 is expected the store is away on purpose, and the tool may well say so.
            away = (ErrorCode.DEPENDENCY_UNAVAILABLE,) if status == 503 else ()
            self.lose(exchange, fault, expecting=away)
        return answer

    def lose(
        self, exchange: Exchange, fault: Fault, *, expecting: Collection[ErrorCode] = ()
    ) -> NoReturn:
        """End the sequence at an exchange that tells nothing, to be begun anew.

        A 502 is a gateway's, whose server starts again; one that comes each time, while the tool
        is answered each time, is the fault that is given.

        Raises:
            LostError: always, with the failure if the tool is answered at this moment.
            TargetGoneError: as :meth:`ask` does.
        """
        failure, came = self.failure(fault), exchange.answer
        why = came.why if isinstance(came, Lost) else f"HTTP {came.status} without a code"
        self._tally.lose(why, self._named(exchange))
        self.ask(self.body(Status()), expecting=expecting)
        raise LostError(why, failure)

    def heard(self, exchange: Exchange) -> None:
        """Look at an exchange of which nothing is asked but that it repeats no identifier."""
        self.note(exchange, None)
        for fault in self._leaks(exchange):
            self.report(fault)

    def _exchange(self, method: str, path: str, body: bytes, headers: Headers) -> Exchange:
        expect_somebody(self._tally)
        try:
            return self._client.exchange(method, path, body, headers)
        except ProtocolError as error:
            raise _shut_out(error) from None

    def settle(self, exchange: Exchange, *, expecting: Collection[ErrorCode] = ()) -> Answer | None:
        """What an exchange with the tool came to; None when it is to be sent again later.

        Raises:
            LostError, TargetGoneError: as :meth:`ask` does.
        """
        came = read(exchange)
        self.note(exchange, came)
        # What is wrong with an answer's form does not keep its decision from being judged: a
        # missing header on every answer would otherwise hide all that is wrong besides.
        form = self._leaks(exchange)
        if isinstance(came, Result | Problem):
            form += came.faults
        for fault in form:
            self.report(fault)
        if isinstance(came, Unknown):
            # A server that answers 501 to what it does not have yet is there all the same.
            self._lose(came.why, exchange, answered=isinstance(exchange.answer, HttpAnswer))
        if isinstance(came, Foreign) and _expired(exchange):
            raise TargetGoneError("the target no longer takes the credentials that it is sent")
        code = came.code if isinstance(came, Problem) else None
        if code is not None and code not in expecting:
            if code is ErrorCode.DEPENDENCY_UNAVAILABLE:
                self._lose(str(code), exchange)
            if code is ErrorCode.TOOL_PAUSED:
                raise TargetPausedError("the target answers TOOL_PAUSED: an operator paused it")
            if code is ErrorCode.RATE_LIMITED:
                return None
        self._tally.answered()
        if not isinstance(came, Foreign):
            broken = {rule for fault in form for rule in fault.rules}
            self._tally.hit(*(_form_rules(came, exchange.binding) - broken))
        return came

    def _lose(self, why: str, exchange: Exchange, *, answered: bool = False) -> NoReturn:
        self._tally.lose(why, self._named(exchange))
        if answered:
            self._tally.answered()
        raise LostError(why, answered=answered)

    def _named(self, exchange: Exchange) -> str:
        """A request for people: its action, where it has one, and the check that sent it."""
        over_mcp = exchange.binding is Binding.MCP
        request = arguments_of(exchange.body) if over_mcp else json_object(exchange.body)
        action = (request or {}).get("action")
        to_tool = over_mcp or exchange.path == TOOL_PATH
        known = to_tool and isinstance(action, str) and action in set(Action)
        what = f"a `{action}`" if known else f"{exchange.method} {exchange.path}"
        return f"{what} of the check «{self._check}»"

    # -- judging -------------------------------------------------------------------------

    def judge(self, request: Request, exchange: Exchange) -> Told | None:
        """Judge an answer to what was sent for elsewhere; None where it was refused unseen.

        Raises as :meth:`send` does.
        """
        self.know(format_request(self.identity, request))
        came = self.settle(exchange)
        return None if came is None else self.judge_answer(request, exchange, came)

    def go_by(self, client: Client) -> None:
        """Send what follows through another connection, or another binding."""
        self._client = client

    def judge_answer(
        self,
        request: Request,
        exchange: Exchange,
        came: Answer,
        moves: list[Move] | None = None,
    ) -> Told:
        """Judge an answer that :meth:`ask` gave; raises as :meth:`send` does.

        ``moves`` is the sequence up to here, where it can be repeated as requests alone.
        """
        self.moves = moves
        before = self.oracle.record
        judgement = self.oracle.judge(request, exchange, came)
        cell = None if judgement.step is None else cell_of(before, request, judgement.step)
        if cell is not None:
            self._tally.moved(cell, held=not judgement.faults)
        if judgement.faults:
            self.fail(_most_telling(judgement.faults), request=request, decided=judgement.step)
        assert judgement.step is not None
        assert isinstance(came, Result | Problem)
        broken = {rule for fault in came.faults for rule in fault.rules}
        self._tally.hit(*(rule for rule in judgement.hits if rule not in broken))
        return Told(step=judgement.step, members=came.members, exchange=exchange)

    # -- remembering ---------------------------------------------------------------------

    def rename(self, identity: Identity) -> None:
        """Use another identity, before anything is sent."""
        self.identity = self.oracle.identity = identity

    def body(self, request: Request) -> bytes:
        """The JSON of a request of this workflow."""
        return _as_json(format_request(self.identity, request))

    def know(self, body: Mapping[str, Any], *, in_logs: bool = True) -> None:
        """Look out for the identifiers of this body in every answer from now on, and in logs."""
        for member in IDENTIFIERS:
            value = body.get(member)
            if not isinstance(value, str) or len(value) < IDENTIFIER_LENGTH_MIN:
                continue
            if in_logs and self._tally.logs is not None and value not in self._in_logs:
                self._in_logs.add(value)
                self._tally.logs.know(value, member)
            self._identifiers[value] = value.encode("utf-8", "surrogatepass")

    def _leaks(self, exchange: Exchange) -> list[Fault]:
        if not isinstance(exchange.answer, HttpAnswer):
            return []
        body = exchange.answer.body
        headers = "\n".join(value for _, value in exchange.answer.headers).encode("latin-1")
        for identifier, encoded in self._identifiers.items():
            for place, said in (("body", body), ("headers", headers)):
                if encoded in said:
                    fault = Fault(
                        rules=("WC-PRIV-1",),
                        what=f"the {place} of the answer repeats an identifier of the request",
                        expected="no raw identifier in any answer",
                        got=identifier,
                    )
                    return [fault]
        return []

    def note(self, exchange: Exchange, came: Answer | None) -> None:
        """Add an exchange to the sequence."""
        self._tally.sent()
        self.sequence.append(as_sent(exchange, came))
        self.moves = None

    def noted(self, sent: Iterable[Sent]) -> None:
        """Add what was sent to the controls to the sequence."""
        self.sequence += sent
        self.moves = None

    def waited(self, milliseconds: int, sent: Iterable[Sent]) -> None:
        """Add a move of the frozen clock to the sequence."""
        self.sequence += sent
        if self.moves is not None:
            self.moves.append(milliseconds)

    def report(self, fault: Fault) -> None:
        """Put a fault into the tally, and go on."""
        self._tally.fail(self.failure(fault))

    def fail(
        self, fault: Fault, *, request: Request | None = None, decided: Step | None = None
    ) -> NoReturn:
        """Raise a violation that ends the sequence here."""
        expected = None
        if request is not None and decided is not None:
            expected = answer(decided, request)
        raise ViolationError(self.failure(fault, expected))

    def failure(self, fault: Fault, expected: dict[str, Any] | None = None) -> Failure:
        """A fault with the sequence that led to it."""
        return Failure(
            check=self._check,
            fault=fault,
            sequence=tuple(self.sequence),
            expected=expected,
            got=self.sequence[-1].members if self.sequence else None,
            identity=self.identity,
            moves=None if self.moves is None else tuple(self.moves),
            binding=self._client.binding,
        )


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _as_json(members: Mapping[str, Any]) -> bytes:
    return _encode(members).encode()


def as_sent(exchange: Exchange, came: Answer | None, *, on_controls: bool = False) -> Sent:
    """An exchange as one line of a sequence."""
    answered = exchange.answer
    members = None
    status = answered.status if isinstance(answered, HttpAnswer) else 0
    if isinstance(came, Result | Problem):
        members = came.members
        if exchange.binding is Binding.MCP and isinstance(came, Problem):
            # What HTTP would say: the status of the message with a tool result says nothing.
            told_status = members.get("status")
            status = told_status if type(told_status) is int else status
    elif isinstance(answered, HttpAnswer):
        members = json_object(answered.body)
    if isinstance(answered, Lost):
        told = answered.reason
    elif isinstance(came, Unknown):
        told = came.why
    else:
        told = in_short(status, members)
    return Sent(
        method=exchange.method,
        path=exchange.path,
        headers=exchange.headers,
        target_headers=exchange.target_headers,
        body=exchange.body,
        answered=told,
        members=members,
        on_controls=on_controls,
        binding=exchange.binding,
    )


def _expired(exchange: Exchange) -> bool:
    """Whether a request with headers of the target's own, once taken, is asked who it is.

    Such as an `Authorization` whose token ended meanwhile: WC-ERR-9 leaves it outside the table.
    """
    answered = exchange.answer
    told = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)
    asked = isinstance(answered, HttpAnswer) and answered.status in told
    return asked and bool(exchange.target_headers)


def _shut_out(error: ProtocolError) -> TargetGoneError:
    return TargetGoneError(f"its MCP endpoint lets no client in again: {error}")


def wait_seconds(came: Answer) -> float:
    """How long a refusal asks to wait, within reason and whatever it says."""
    asked = came.members.get("retry_after_seconds") if isinstance(came, Problem) else None
    asked = as_integer(asked)
    if asked is None:
        return 1
    return min(max(asked, 1), RATE_LIMIT_WAIT_SECONDS_MAX)


def _form_rules(came: Answer, binding: Binding) -> set[str]:
    """The rules of form that an answer of this kind exercises."""
    is_problem = isinstance(came, Problem)
    of_binding = "WC-HTTP-1"
    if binding is Binding.MCP:
        of_binding = "WC-MCP-3" if is_problem else "WC-MCP-2"
    return {"WC-PRIV-1", of_binding, *(["WC-ERR-1"] if is_problem else [])}


def _most_telling(faults: tuple[Fault, ...]) -> Fault:
    """One fault to report: the first, with whatever else is wrong with the same answer."""
    first, *others = faults
    if not others:
        return first
    rules = dict.fromkeys(rule for fault in faults for rule in fault.rules)
    also = "; ".join(f"{fault.what}: {fault.got}" for fault in others)
    return replace(first, rules=tuple(rules), what=f"{first.what} (and {also})")
