"""Section 3: what is no request is refused, changes nothing, and is told apart from what is one.

The cases are made from the contract's own schema, for every member of every action: a server
that is strict in one action may be lax in another.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from checkpoint_conformance.acceptance import members_by_action
from checkpoint_conformance.answers import Fault, Problem, is_decided, json_object
from checkpoint_conformance.checks.walk import FINGERPRINT, Cast
from checkpoint_conformance.client import JSON_HEADERS, Headers
from checkpoint_conformance.conversations import IN_FLIGHT_MAX, attempted, hold_all
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import (
    Conversation,
    LostError,
    Session,
    ViolationError,
    fresh_identity,
    fresh_key,
)
from checkpoint_model import (
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Identity,
    Request,
    Stage,
    Status,
    format_request,
)
from checkpoint_model.vocabulary import BODY_BYTES_MAX

_BAD: Final = 400
_TOO_LONG: Final = 413
_MEDIA: Final = 415
_GZIP: Final = (*JSON_HEADERS, ("content-encoding", "gzip"))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    rule: str
    what: str
    body: bytes | dict[str, Any]
    statuses: tuple[int, ...] = (_BAD,)
    headers: Headers = JSON_HEADERS

    @property
    def in_bytes(self) -> bytes:
        """Of those that are objects no more are encoded than are sent."""
        return self.body if isinstance(self.body, bytes) else _json(self.body)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _of_every_member(body: dict[str, Any]) -> Iterator[_Case]:
    """One wrong value after another for each member of one valid body."""
    action = body["action"]
    for member, schema in members_by_action()[action].items():
        if member not in body:
            continue
        value = body[member]
        for rule, what, wrong in _wrong_values(value, schema):
            yield _Case(
                rule=rule,
                what=f"`{member}` of {action} {what}",
                body={**body, member: wrong},
            )
        optional = member == "evidence_fingerprint" or (action, member) == ("status", "holder")
        if not optional:
            yield _Case(
                rule="WC-IN-1",
                what=f"`{member}` is missing from {action}",
                body={name: other for name, other in body.items() if name != member},
            )
    yield _Case(
        rule="WC-IN-1",
        what=f"a member that {action} does not have",
        body={**body, "comment": "hello"},
    )


def _wrong_values(value: object, schema: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """The rule, what it is in words, and the value."""
    yield "WC-IN-2", "is null", None
    if isinstance(value, bool):
        yield from (("WC-IN-2", f"is {wrong!r}", wrong) for wrong in (0, 1, "true"))
        return
    if isinstance(value, int):
        yield from (("WC-IN-2", f"is {w!r}", w) for w in (str(value), True, value + 0.5, [value]))
        least, most = schema["minimum"], schema["maximum"]
        yield from (("WC-IN-1", f"is {w}", w) for w in (least - 1, most + 1, -most, 10**30))
        return
    assert isinstance(value, str)
    yield from (("WC-IN-2", f"is {type(w).__name__}", w) for w in (1, [value], {"value": value}))
    if "pattern" not in schema:
        yield "WC-IN-1", "is another word", "another"
        yield "WC-IN-1", "is in capitals", value.upper()
        yield "WC-IN-3", "ends with a newline", value + "\n"
        return
    for what, wrong in [
        ("ends with a newline", value + "\n"),
        ("ends with a NUL", value[:-1] + "\x00"),
        ("has a non-ASCII digit", value[:-1] + "\u0661"),
        ("has a non-ASCII letter", value[:-1] + "\u00e9"),
        ("begins with a space", " " + value),
        ("has a second line", value + "\n" + value),
    ]:
        yield "WC-IN-3", what, wrong
    yield "WC-IN-1", "is empty", ""
    yield "WC-IN-1", "has a character that is not admitted", value[:-1] + "!"
    if value.startswith("sha256:"):
        yield "WC-IN-1", "is in capitals", value.replace("a", "A")
        yield "WC-IN-1", "is short", value[:-1]
        yield "WC-IN-1", "is long", value + "0"
    elif value[1] == "_":
        yield "WC-IN-1", "is short", value[:2] + "a" * 15
        yield "WC-IN-1", "is long", value[:2] + "a" * 65
        yield "WC-IN-1", "has another prefix", "x_" + "a" * 16
    else:
        yield "WC-IN-1", "begins with a dot", "." + value
        yield "WC-IN-1", "has 129 characters", "n" * 129


def _of_a_held_workflow(identity: Identity, cast: Cast) -> Iterator[_Case]:
    """Bodies each of which would change the record, or tell of it, if it were accepted."""
    transition = cast.move(
        cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=FINGERPRINT
    )
    abandon = Abandon(holder=cast.ann, generation=1)
    requests: list[Request] = [transition, abandon, Status(holder=cast.ann)]
    for request in requests:
        yield from _of_every_member(format_request(identity, request))
    move = format_request(identity, transition)
    without_evidence = {name: value for name, value in move.items() if name != "evidence_type"}
    yield _Case(rule="WC-IN-1", what="a fingerprint without evidence", body=without_evidence)
    yield _Case(
        rule="WC-IN-1", what="`to_stage` is `claimed`", body={**move, "to_stage": "claimed"}
    )
    yield from _of_no_object(_json(move))


def _of_no_object(text: bytes) -> Iterator[_Case]:
    yield _Case(rule="WC-IN-4", what="the body is empty", body=b"")
    yield _Case(rule="WC-IN-4", what="the body is an array", body=b"[" + text + b"]")
    yield _Case(rule="WC-IN-4", what="the body is a string", body=_json(text.decode()))
    yield _Case(rule="WC-IN-4", what="the body is null", body=b"null")
    yield _Case(rule="WC-IN-4", what="the body is cut short", body=text[:-1])
    yield _Case(rule="WC-IN-4", what="something follows the object", body=text + b" {}")
    yield _Case(rule="WC-IN-4", what="the body begins with a BOM", body=b"\xef\xbb\xbf" + text)
    yield _Case(rule="WC-IN-4", what="the body is UTF-16", body=text.decode().encode("utf-16"))
    nan = text.replace(b'"generation": 1', b'"generation": NaN')
    yield _Case(rule="WC-IN-4", what="a number is NaN", body=nan)
    bad_utf8 = text.replace(b"conformance:", b"conformance\xff", 1)
    yield _Case(rule="WC-IN-4", what="the body is no UTF-8", body=bad_utf8)
    yield _Case(rule="WC-IN-4", what="a comma too many", body=text[:-1] + b",}")
    yield _Case(rule="WC-IN-4", what="a quote is missing", body=text.replace(b'"', b"", 1))
    yield _Case(rule="WC-IN-4", what="nested a thousand deep", body=b'{"a":' + b"[" * 1000)
    yield _Case(
        rule="WC-IN-4",
        what=f"the body has {BODY_BYTES_MAX + 1} bytes",
        body=text.ljust(BODY_BYTES_MAX + 1),
        statuses=(_TOO_LONG,),
    )
    for what, headers in [
        ("the media type is text/plain", (("content-type", "text/plain"),)),
        ("the media type is a form's", (("content-type", "application/x-www-form-urlencoded"),)),
        ("there is no media type", ()),
        ("a content coding is named", _GZIP),
    ]:
        yield _Case(rule="WC-IN-1", what=what, body=text, statuses=(_MEDIA,), headers=headers)
    yield _Case(
        rule="WC-IN-1",
        what="a content coding is used",
        body=gzip.compress(text, mtime=0),
        statuses=(_BAD, _MEDIA),  # it is no JSON either: which of both is unspecified (WC-ERR-6)
        headers=_GZIP,
    )


def _of_an_unclaimed_workflow(identity: Identity, cast: Cast) -> Iterator[_Case]:
    """Claims each of which would make the record, if it were accepted."""
    claim = format_request(identity, cast.claim(cast.ann))
    yield from _of_every_member(claim)
    for what, claim_ttl, state_ttl in [
        ("equal to", 900, 900),
        ("less than", 900, 899),
        ("equal to", 1, 1),
    ]:
        yield _Case(
            rule="WC-IN-5",
            what=f"`state_ttl_seconds` is {what} `claim_ttl_seconds`",
            body={**claim, "claim_ttl_seconds": claim_ttl, "state_ttl_seconds": state_ttl},
        )
    yield _Case(rule="WC-IN-1", what="a member of another action", body={**claim, "generation": 1})


def _of_arguments(cases: Iterator[_Case]) -> list[_Case]:
    """Those that are arguments of a call: JSON objects. What else there may be is HTTP's."""
    return [
        case
        for case in cases
        if case.headers == JSON_HEADERS and case.statuses == (_BAD,)
        if isinstance(case.body, dict) or json_object(case.body) is not None
    ]


def refused(run: Run) -> None:
    """Each body that is no request: INVALID_INPUT, with its status, and the record as it was."""
    of_binding = _of_arguments if run.tally.binding is Binding.MCP else list
    kinds: list[tuple[_CasesOf, bool]] = [
        (lambda *scene: of_binding(_of_an_unclaimed_workflow(*scene)), False),
        (lambda *scene: of_binding(_of_a_held_workflow(*scene)), True),
    ]
    totals = [len(cases_of(fresh_identity(), Cast())) for cases_of, _ in kinds]
    done = 0

    def some(cases_of: _CasesOf, held: bool, places: Iterator[int]) -> Conversation[None]:
        nonlocal done
        cast = Cast()
        session: Session | None = None
        cases: list[_Case] = []
        for place in places:

            def one(place: int = place) -> Conversation[None]:
                nonlocal session, cases
                if session is None:
                    session = run.session()
                    cases = cases_of(session.identity, cast)
                # What becomes of a workflow is unknown, or it is as it was and used again.
                at, session = session, None
                if (yield from _refuses(run, at, cast, cases[place], held=held)):
                    session = at

            yield from attempted(run, one)
            done += 1
            run.progress.advance(done, sum(totals))

    conversations = []
    for (cases_of, held), total in zip(kinds, totals, strict=True):
        places = iter(range(total))  # of which each conversation takes the next one that is left
        conversations += [some(cases_of, held, places) for _ in range(IN_FLIGHT_MAX)]
    hold_all(run, conversations)


_CasesOf: TypeAlias = Callable[[Identity, Cast], list[_Case]]
"""The cases of one workflow: always as many, in the same order."""


def _fault(session: Session, case: _Case, *rules: str) -> Fault:
    wanted = " or ".join(map(str, case.statuses))
    return Fault(
        rules=rules,
        what=case.what,
        expected=f"{wanted} INVALID_INPUT",
        got=session.sequence[-1].answered,
    )


def _refuses(
    run: Run, session: Session, cast: Cast, case: _Case, *, held: bool
) -> Conversation[bool]:
    """Send one body, then look at the record; whether it is as it was, as far as is known.

    Each case stands alone in what is reported: the claim, where there is one, and the body.

    Raises:
        LostError: nobody knows.
        ViolationError: the record is not as it was.
    """
    session.know(format_request(session.identity, cast.move(cast.ann, 1, Stage.UNCERTAIN)))
    if held and session.oracle.record is None:
        yield from session.sending(cast.claim(cast.ann))
    del session.sequence[1 if held else 0 :]
    try:
        _, came = yield from session.asking(case.in_bytes, case.headers)
    except LostError as error:
        if not error.answered:
            raise
        # A 5xx each time is no moment of a gateway's: it does not refuse the body, it fails for it.
        failure = session.failure(_fault(session, case, case.rule))
        raise LostError(str(error), failure, answered=True) from None
    right = isinstance(came, Problem) and came.code is ErrorCode.INVALID_INPUT
    status = came.members.get("status") if isinstance(came, Problem) else None
    if not right or status not in case.statuses:
        rules = ("WC-ERR-1", case.rule) if right else (case.rule,)
        session.report(_fault(session, case, *rules))
        if not right:
            return False  # it may have been applied
    try:
        yield from session.sending(Status(holder=cast.ann))  # the oracle knows the record as it was
    except ViolationError as error:
        # What stood before is not as it stood: whatever else that breaks, the refusal changed it.
        fault = error.failure.fault
        blamed = replace(fault, rules=(*fault.rules, "WC-IN-6", "WC-ERR-4"))
        raise ViolationError(replace(error.failure, fault=blamed)) from None
    run.tally.hit("WC-IN-1", "WC-IN-6", "WC-ERR-4", case.rule)
    return True


def accepted(run: Run) -> None:
    """The longest, shortest and largest that the schema admits, each on a fresh workflow."""
    key = "Az09_-" * 11
    for namespace, tail in [("n", key[:16]), ("N" + "._:/-0aZ" * 15 + "1234567", key[:64])]:
        for claim_ttl, state_ttl, retry in [(1, 2, True), (900, 3600, False), (899, 900, True)]:
            run.attempt(_accepts, run, namespace, tail, claim_ttl, state_ttl, retry)
    if run.tally.binding is Binding.HTTP:
        run.attempt(_accepts_framing, run)


def _accepts(
    run: Run, namespace: str, tail: str, claim_ttl: int, state_ttl: int, retry: bool
) -> None:
    session = run.session()
    unique = fresh_key("w")[2:]
    session.rename(Identity(namespace=namespace, workflow_key="w_" + (unique + tail)[: len(tail)]))
    session.send(
        Claim(
            holder="h_" + tail,
            claim_ttl_seconds=claim_ttl,
            state_ttl_seconds=state_ttl,
            retry_failed=retry,
        )
    )


def _too_long_in_chunks(run: Run) -> None:
    """WC-IN-4 where no length is said before: such a body may be refused as any other, and is not
    decided."""
    cast, session = Cast(), run.session()
    session.send(cast.claim(cast.ann))
    case = _Case(
        rule="WC-IN-4",
        what=f"the body has {BODY_BYTES_MAX + 1} bytes, and comes in chunks",
        body=session.body(Abandon(holder=cast.ann, generation=1)).ljust(BODY_BYTES_MAX + 1),
        statuses=(_TOO_LONG,),
        headers=(*JSON_HEADERS, ("transfer-encoding", "chunked")),
    )
    _, came = session.ask(case.in_bytes, case.headers)
    if is_decided(came):
        session.fail(_fault(session, case, case.rule))
    session.send(Status(holder=cast.ann))


def _accepts_framing(run: Run) -> None:
    cast, session = Cast(), run.session()
    session.send(cast.claim(cast.ann))
    for headers in [
        (("content-type", "application/json; charset=utf-8"),),
        (("content-type", "Application/JSON"),),
        (*JSON_HEADERS, ("content-encoding", "identity")),
    ]:
        session.send_raw(Status(holder=cast.ann), headers=headers)
    # White space is no part of the JSON object, but it is of the body's length.
    session.send_raw(Status(holder=cast.ann), pad_to=BODY_BYTES_MAX)


def input_checks(run: Run) -> None:
    """Both halves of WC-IN-1's *exactly when*."""
    refused(run)
    if run.tally.binding is Binding.HTTP:
        run.attempt(_too_long_in_chunks, run)
    accepted(run)


CHECKS = (Check(name="inputs", title="What is a request and what is none", run=input_checks),)
