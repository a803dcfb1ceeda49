"""What goes through a session is counted, its form held, its leaks found; the lost stays lost."""

import json
from collections.abc import Callable

import pytest
from modelled import model_server, run_on
from refusals import refusing

from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.proxy import (
    Forward,
    Message,
    Tamper,
    with_header,
    with_members,
)
from checkpoint_conformance.session import (
    IDENTIFIERS,
    LOST_IN_A_ROW_MAX,
    LostError,
    Session,
    TargetGoneError,
    TargetPausedError,
    ViolationError,
    fresh_fingerprint,
    fresh_key,
)
from checkpoint_model import Claim, ErrorCode, EvidenceType, Stage, Transition

CLAIM = Claim(
    holder=fresh_key("h"), claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=False
)
VERIFIED = Transition(
    holder=CLAIM.holder,
    generation=1,
    to_stage=Stage.CALLER_VERIFIED,
    observation_key=fresh_key("o"),
    evidence_type=EvidenceType.EXTERNAL_READ,
    evidence_fingerprint=fresh_fingerprint(),
)


def session_with(serve: Tamper) -> Session:
    """A workflow at a server in this process."""
    run = run_on(serve)
    return run.session()


def test_a_right_server_is_counted_and_never_blamed() -> None:
    """Each answer of a life brings its row and its form; nothing is reported."""
    session = session_with(model_server())
    for request in (CLAIM, CLAIM, VERIFIED):
        session.send(request)
    tally = session._tally
    assert (tally.failures, tally.lost, tally.requests) == ({}, 0, 3)
    counted = {rule: tally.hits[rule] for rule in ("WC-CLAIM-1", "WC-CLAIM-4", "WC-TRANS-8")}
    assert counted == {"WC-CLAIM-1": 1, "WC-CLAIM-4": 1, "WC-TRANS-8": 1}
    assert (tally.hits["WC-PRIV-1"], tally.hits["WC-HTTP-1"]) == (3, 3)


@pytest.mark.parametrize("place", ["body", "headers"])
@pytest.mark.parametrize("member", IDENTIFIERS)
def test_an_identifier_is_found_wherever_an_answer_repeats_it(member: str, place: str) -> None:
    """Each of the five, at the end of a long body as well as among the headers."""

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        del forward
        said = str(message.json[member])
        if place == "headers":
            return HttpAnswer(status=404, headers=(("x-request", f"of {said}"),), body=b"")
        return HttpAnswer(status=404, headers=(), body=b"." * 20_000 + said.encode())

    session = session_with(serve)
    session.know(json.loads(session.body(VERIFIED)))
    session.http("POST", "/nowhere", session.body(VERIFIED))
    assert list(session._tally.failures) == ["WC-PRIV-1"]
    failure = session._tally.failures["WC-PRIV-1"]
    assert failure.fault.what.startswith(f"the {place} of the answer repeats an identifier")


def _hangs_up(*_: object) -> HttpAnswer:
    raise ConnectionAbortedError


def _fails(*_: object) -> HttpAnswer:
    return HttpAnswer(status=502, headers=(), body=b"<p>bad gateway")


def _has_no_store(*_: object) -> HttpAnswer:
    return refusing("DEPENDENCY_UNAVAILABLE", 503)


@pytest.mark.parametrize("serve", [_hangs_up, _fails, _has_no_store], ids=lambda f: f.__name__[1:])
def test_what_may_have_been_applied_is_lost(serve: Tamper) -> None:
    """Neither a pass nor a refusal: counted as lost, no rule exercised, nothing known of it."""
    session = session_with(serve)
    with pytest.raises((LostError, ViolationError)) as ended:
        session.send(CLAIM)
    tally = session._tally
    assert ended.type is LostError
    assert (tally.lost, dict(tally.hits), tally.failures) == (1, {}, {})
    assert session.oracle.record is None


def test_a_target_that_answers_no_more_is_gone() -> None:
    """Five requests in a row, and the run ends; one answer in between begins the count anew."""
    right, asked = model_server(), iter(range(100))

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        if next(asked) == LOST_IN_A_ROW_MAX - 1:
            return right(message, forward)
        raise ConnectionAbortedError

    session = session_with(serve)
    for number in range(2 * LOST_IN_A_ROW_MAX):
        if number == LOST_IN_A_ROW_MAX - 1:
            session.send(CLAIM)
            continue
        with pytest.raises(LostError):
            session.send(CLAIM)
    with pytest.raises((LostError, TargetGoneError)) as ended:
        session.send(CLAIM)
    assert ended.type is TargetGoneError


def test_what_nobody_provoked_ends_the_sequence() -> None:
    """A paused tool ends the run; where a control was told to pause it, it is an answer."""
    session = session_with(lambda *_: refusing("TOOL_PAUSED", 503))
    with pytest.raises(TargetPausedError):
        session.send(CLAIM)
    _, came = session.ask(session.body(CLAIM), expecting=[ErrorCode.TOOL_PAUSED])
    assert getattr(came, "code", None) is ErrorCode.TOOL_PAUSED


def _cacheable(answer: HttpAnswer) -> HttpAnswer:
    return with_header(answer, "cache-control", None)


def _in_capitals(answer: HttpAnswer) -> HttpAnswer:
    return with_members(answer, workflow_hash=json.loads(answer.body)["workflow_hash"].upper())


@pytest.mark.parametrize(("spoil", "rule"), [(_cacheable, "WC-HTTP-1"), (_in_capitals, "WC-ID-1")])
def test_a_wrong_form_is_reported_and_the_decision_judged_all_the_same(
    spoil: Callable[[HttpAnswer], HttpAnswer], rule: str
) -> None:
    """Of all that the answer shows, only the rule that it breaks is not counted."""
    right = model_server()
    session = session_with(lambda message, forward: spoil(right(message, forward)))
    session.send(CLAIM)
    tally = session._tally
    assert set(tally.failures) == {rule}
    counted = {r for r in ("WC-CLAIM-1", "WC-PRIV-1", "WC-HTTP-1", "WC-ID-1") if tally.hits[r]}
    assert counted == {"WC-CLAIM-1", "WC-PRIV-1", "WC-HTTP-1", "WC-ID-1"} - {rule}


def test_a_wrong_decision_ends_the_sequence_with_all_that_led_to_it() -> None:
    """The failure has the sequence as requests to be sent again, and what was expected."""
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        answer = right(message, forward)
        return with_members(answer, reused=False) if b'"reused": true' in answer.body else answer

    session = session_with(serve)
    session.send(CLAIM)
    with pytest.raises(ViolationError) as raised:
        session.send(CLAIM)
    failure = raised.value.failure
    assert failure.fault.rules == ("WC-CLAIM-4", "WC-IDEM-1")
    assert failure.moves == (CLAIM, CLAIM)
    assert [sent.answered for sent in failure.sequence] == [
        "200 acquired claimed generation 1",
        "200 claimed generation 1",
    ]
    assert failure.expected is not None
    assert (failure.expected["reused"], session._tally.hits["WC-CLAIM-4"]) == (True, 0)
