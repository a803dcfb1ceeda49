"""Section 3: what is no request is refused, changes nothing, and is told apart from what is one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from checkpoint_conformance.answers import Fault, Problem
from checkpoint_conformance.checks.walk import FINGERPRINT, Cast
from checkpoint_conformance.client import JSON_HEADERS, Headers
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import LostError, Session, fresh_key, leaks
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    rule: str
    what: str
    body: bytes
    statuses: tuple[int, ...] = (_BAD,)
    headers: Headers = JSON_HEADERS


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _cases(identity: Identity, cast: Cast) -> Iterator[_Case]:
    """Bodies that would each change the record of ``identity`` if they were accepted."""
    transition = cast.move(
        cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=FINGERPRINT
    )
    requests: list[Request] = [
        transition,
        Abandon(holder=cast.ann, generation=1),
        cast.claim(cast.bob),
        Status(holder=cast.ann),
    ]
    valid = {str(request.action): format_request(identity, request) for request in requests}
    move, claim = valid["transition"], valid["claim"]

    def changed(rule: str, what: str, base: dict[str, Any], **members: object) -> _Case:
        return _Case(rule=rule, what=what, body=_json({**base, **members}))

    for member, text in [("generation", "1"), ("generation", True), ("generation", 1.5)]:
        yield changed("WC-IN-2", f"`{member}` is {text!r}", move, **{member: text})
    yield changed("WC-IN-2", "`evidence_type` is null", move, evidence_type=None)
    yield changed("WC-IN-2", "`evidence_fingerprint` is null", move, evidence_fingerprint=None)
    yield changed("WC-IN-2", "`holder` of a status is null", valid["status"], holder=None)
    yield changed("WC-IN-2", "`retry_failed` is 0", claim, retry_failed=0)
    yield changed("WC-IN-2", '`claim_ttl_seconds` is "900"', claim, claim_ttl_seconds="900")
    yield changed("WC-IN-2", "`to_stage` is a list", move, to_stage=["failed"])
    for member in ("holder", "workflow_key", "observation_key", "evidence_fingerprint"):
        value = move[member]
        for what, other in [
            ("ends with a newline", value + "\n"),
            ("ends with a NUL", value[:-1] + "\x00"),
            ("has a non-ASCII digit", value[:-1] + "\u0661"),
            ("has a non-ASCII letter", value[:-1] + "\u00e9"),
            ("begins with a space", " " + value),
        ]:
            yield changed("WC-IN-3", f"`{member}` {what}", move, **{member: other})
    yield changed("WC-IN-3", "`namespace` ends with a newline", move, namespace="conformance\n")
    yield changed("WC-IN-1", "`namespace` begins with a dot", move, namespace=".conformance")
    yield changed("WC-IN-1", "`namespace` is empty", move, namespace="")
    yield changed("WC-IN-1", "`namespace` has 129 characters", move, namespace="n" * 129)
    for member, prefix in [("holder", "h_"), ("workflow_key", "w_"), ("observation_key", "o_")]:
        yield changed("WC-IN-1", f"`{member}` is short", move, **{member: prefix + "a" * 15})
        yield changed("WC-IN-1", f"`{member}` is long", move, **{member: prefix + "a" * 65})
        yield changed(
            "WC-IN-1", f"`{member}` has another prefix", move, **{member: "x_" + "a" * 16}
        )
    for value in (0, 17, -1, 10**30):
        yield changed("WC-IN-1", f"`generation` is {value}", move, generation=value)
    yield changed("WC-IN-1", "`to_stage` is `claimed`", move, to_stage="claimed")
    yield changed("WC-IN-1", "`evidence_type` is unknown", move, evidence_type="hearsay")
    upper = FINGERPRINT.replace("a", "A")
    yield changed("WC-IN-1", "the fingerprint is in capitals", move, evidence_fingerprint=upper)
    for value in (0, 901):
        yield changed("WC-IN-1", f"`claim_ttl_seconds` is {value}", claim, claim_ttl_seconds=value)
    for value in (0, 3601):
        yield changed("WC-IN-1", f"`state_ttl_seconds` is {value}", claim, state_ttl_seconds=value)
    for what, seconds in [("equal to", 900), ("less than", 899)]:
        yield changed(
            "WC-IN-5",
            f"`state_ttl_seconds` is {what} `claim_ttl_seconds`",
            claim,
            state_ttl_seconds=seconds,
        )
    yield changed("WC-IN-1", "a member that no action has", move, comment="hello")
    yield changed("WC-IN-1", "a member of another action", claim, generation=1)
    yield changed("WC-IN-1", "`action` is unknown", claim, action="renew")
    yield changed("WC-IN-1", "`action` is in capitals", claim, action="CLAIM")
    for action, body in valid.items():
        optional = {"evidence_fingerprint"} | ({"holder"} if action == "status" else set())
        for member in body.keys() - optional:
            what = f"`{member}` is missing from {action}"
            yield _Case(
                rule="WC-IN-1",
                what=what,
                body=_json({name: value for name, value in body.items() if name != member}),
            )
    text = _json(move)
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
        ("a content coding is used", (*JSON_HEADERS, ("content-encoding", "gzip"))),
    ]:
        yield _Case(rule="WC-IN-1", what=what, body=text, statuses=(_MEDIA,), headers=headers)


def refused(run: Run) -> None:
    """Each body that is no request: INVALID_INPUT, with its status, and the record as it was."""
    cast, session = Cast(), run.session()
    with run.guarded():
        session.send(cast.claim(cast.ann))
        cases = list(_cases(session.identity, cast))
        for number, case in enumerate(cases):
            run.progress.advance(number, len(cases))
            try:
                right = _is_refused(run, session, case)
            except LostError:
                right = False
            if not right:
                # It may have been applied: go on with a workflow that is known.
                cast, session = Cast(), run.session()
                session.send(cast.claim(cast.ann))
                continue
            _unchanged(run, session, Status(holder=cast.ann))


def _is_refused(run: Run, session: Session, case: _Case) -> bool:
    sequence = list(session.sequence)
    try:
        exchange, came = session.ask(case.body, case.headers)
        right = isinstance(came, Problem) and came.code is ErrorCode.INVALID_INPUT
        status = came.members.get("status") if isinstance(came, Problem) else None
        if not right or status not in case.statuses:
            wanted = " or ".join(map(str, case.statuses))
            fault = Fault(
                rules=(case.rule,) if not right else ("WC-ERR-1", case.rule),
                what=case.what,
                expected=f"{wanted} INVALID_INPUT",
                got=session.sequence[-1].answered,
            )
            session.report(fault)
            return False
        assert isinstance(came, Problem)
        for fault in came.faults:
            session.report(fault)
        decided = {"observed_at", "stage", "generation", "claim_expires_at"} & came.members.keys()
        if decided:
            session.report(
                Fault(
                    rules=("WC-ERR-2",),
                    what=f"INVALID_INPUT ({case.what}) tells of a record",
                    expected="none of the members of an error that section 6 decides",
                    got=", ".join(sorted(decided)),
                )
            )
        try:
            sent = json.loads(case.body)
        except (ValueError, RecursionError):
            sent = None
        for fault in leaks(sent if isinstance(sent, dict) else {}, exchange):
            session.report(fault)
        run.tally.hit("WC-IN-1", "WC-ERR-1", case.rule)
        return True
    finally:
        # Each case stands alone: a failure is told with the claim and its own request.
        session.sequence[:] = sequence


def _unchanged(run: Run, session: Session, status: Status) -> None:
    """WC-IN-6, WC-ERR-4: the oracle still knows the record; each body would have changed it."""
    length = len(session.sequence)
    session.send(status)
    del session.sequence[length:]
    run.tally.hit("WC-IN-6", "WC-ERR-4")


def accepted(run: Run) -> None:
    """The longest, shortest and largest that the schema admits, each on a fresh workflow."""
    key = "Az09_-" * 11
    for namespace, tail in [("n", key[:16]), ("N" + "._:/-0aZ" * 15 + "1234567", key[:64])]:
        for claim_ttl, state_ttl, retry in [(1, 2, True), (900, 3600, False), (899, 900, True)]:
            with run.guarded():
                session = run.session()
                unique = fresh_key("w")[2:]
                session.rename(
                    Identity(namespace=namespace, workflow_key="w_" + (unique + tail)[: len(tail)])
                )
                holder = "h_" + tail
                session.send(
                    Claim(
                        holder=holder,
                        claim_ttl_seconds=claim_ttl,
                        state_ttl_seconds=state_ttl,
                        retry_failed=retry,
                    )
                )
    with run.guarded():
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
    accepted(run)


CHECKS = (Check(name="inputs", title="What is a request and what is none", run=input_checks),)
