"""The oracle names the rule of whatever is wrong with an answer, and is silent when nothing is."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from checkpoint_conformance.answers import as_integer, read
from checkpoint_conformance.client import Exchange, HttpAnswer, Lost, LostReason
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.oracle import Judgement, Oracle
from checkpoint_conformance.session import fresh_identity
from checkpoint_model import (
    Abandon,
    Claim,
    EvidenceType,
    Record,
    Request,
    Stage,
    Status,
    Success,
    Transition,
    answer,
    format_request,
    format_timestamp,
    step,
)

T0 = 1_785_000_000_000
HASH = "hmac-sha256:" + "0a" * 32
CLAIM = Claim(holder="h_ann", claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=True)
BOB = Claim(holder="h_bob", claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=True)
OTHER = Claim(holder="h_ann", claim_ttl_seconds=61, state_ttl_seconds=600, retry_failed=True)
DOUBT = Transition(holder="h_ann", generation=1, to_stage=Stage.UNCERTAIN, observation_key="o_1")
FAIL = Transition(
    holder="h_ann",
    generation=1,
    to_stage=Stage.FAILED,
    observation_key="o_2",
    evidence_type=EvidenceType.EXTERNAL_ABSENCE,
    evidence_fingerprint="sha256:" + "0" * 64,
)
REJECTED = Transition(
    holder="h_ann",
    generation=1,
    to_stage=Stage.FAILED,
    observation_key="o_3",
    evidence_type=EvidenceType.PROVIDER_REJECTION,
)
STALE = Transition(holder="h_ann", generation=2, to_stage=Stage.UNCERTAIN, observation_key="o_4")
ABANDON = Abandon(holder="h_ann", generation=1)
STATUS = Status(holder="h_ann")
LAPSE_MS = 60_000


class Wire:
    """Answers as a right server gives them, to be made wrong, and the oracle that judges them."""

    def __init__(self) -> None:
        self.clock = FrozenClock(T0)
        self.identity = fresh_identity()
        self.oracle = Oracle(self.identity, self.clock)
        self.record: Record | None = None

    def right(self, request: Request) -> tuple[int, dict[str, Any]]:
        """What a right server answers, and the record that it then has."""
        done = step(self.record, request, self.clock.now_ms)
        self.record = done.record
        members = answer(done, request)
        if isinstance(done.outcome, Success):
            return 200, {**members, "workflow_hash": HASH}
        words = {"type": "about:blank", "title": "t", "detail": "d", "recovery": "r"}
        return members["status"], {**members, **words}

    def judge(
        self,
        request: Request,
        status: int,
        members: dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> Judgement:
        """Judge an answer, its form included."""
        kind = "application/json" if status == 200 else "application/problem+json"
        given = {"content-type": kind, "cache-control": "no-store", **(headers or {})}
        exchange = Exchange(
            method="POST",
            path="/",
            headers=(),
            body=json.dumps(format_request(self.identity, request)).encode(),
            called_ns=0,
            returned_ns=1,
            answer=HttpAnswer(
                status=status, headers=tuple(given.items()), body=json.dumps(members).encode()
            ),
        )
        came = read(exchange)
        judged = self.oracle.judge(request, exchange, came)
        form = getattr(came, "faults", ())
        broken = {rule for fault in form for rule in fault.rules}
        hits = tuple(rule for rule in judged.hits if rule not in broken)
        return Judgement(step=judged.step, faults=(*judged.faults, *form), hits=hits)


Move = Request | int
LIFE: list[Move] = [
    STATUS,
    DOUBT,
    ABANDON,
    CLAIM,
    CLAIM,
    BOB,
    OTHER,
    STATUS,
    Status(),
    STALE,
    Abandon(holder="h_ann", generation=2),
    Abandon(holder="h_bob", generation=1),
    DOUBT,
    DOUBT,
    REJECTED,
    LAPSE_MS,
    STATUS,
    FAIL,
    BOB,
    DOUBT,
    Abandon(holder="h_bob", generation=2),
    Abandon(holder="h_bob", generation=2),
    CLAIM,
]


def test_a_right_server_is_never_blamed() -> None:
    """A life with every kind of answer: no fault, and the rows that it went through."""
    wire, hits = Wire(), set()
    for move in LIFE:
        if isinstance(move, int):
            wire.clock.now_ms += move
            continue
        judged = wire.judge(move, *wire.right(move))
        assert judged.faults == ()
        hits |= set(judged.hits)
    assert {"WC-CLAIM-8", "WC-TRANS-2", "WC-ABANDON-4", "WC-ERR-8", "WC-IDEM-1"} <= hits
    assert {"WC-GRAPH-3", "WC-TIME-2", "WC-STATUS-1"} <= hits


OF_EVERY_STEP = {"WC-TIME-1", "WC-TIME-5", "WC-IN-1"}
OF_A_RESULT = OF_EVERY_STEP | {"WC-ID-1", "WC-VIEW-1", "WC-VIEW-2", "WC-VIEW-3"}
OF_A_RESULT |= {"WC-TIME-3", "WC-TIME-6"}
STEPS: list[tuple[int, Request, set[str]]] = [
    (0, STATUS, OF_EVERY_STEP | {"WC-STATUS-1", "WC-ERR-2"}),
    (0, CLAIM, OF_A_RESULT | {"WC-CLAIM-1"}),
    (0, STATUS, OF_A_RESULT | {"WC-STATUS-2", "WC-ID-2"}),
    (LAPSE_MS - 2, CLAIM, OF_A_RESULT | {"WC-CLAIM-4", "WC-ID-2"}),
    (1, CLAIM, OF_A_RESULT | {"WC-CLAIM-4", "WC-ID-2", "WC-IDEM-1", "WC-TIME-2"}),
    (0, OTHER, OF_EVERY_STEP | {"WC-CLAIM-3", "WC-ERR-2", "WC-ERR-8", "WC-TIME-2"}),
    (1, BOB, OF_A_RESULT | {"WC-CLAIM-8", "WC-ID-2", "WC-TIME-2"}),
    (2, BOB, OF_A_RESULT | {"WC-CLAIM-4", "WC-ID-2", "WC-IDEM-1"}),
]


def test_what_a_step_exercised_is_counted_and_nothing_else() -> None:
    """A deadline only a millisecond from it, a repetition only with nothing in between."""
    wire = Wire()
    for wait_ms, request, expected in STEPS:
        wire.clock.now_ms += wait_ms
        judged = wire.judge(request, *wire.right(request))
        assert (judged.faults, set(judged.hits)) == ((), expected)


class Wrong(NamedTuple):
    """What came before, the request, what is changed in the right answer, the rules blamed."""

    name: str
    before: list[Move]
    request: Request
    change: Callable[[dict[str, Any]], dict[str, Any]]
    rules: tuple[str, ...]


def put(**members: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change members; ``...`` removes one."""

    def change(right: dict[str, Any]) -> dict[str, Any]:
        changed = {**right, **members}
        return {name: value for name, value in changed.items() if value is not ...}

    return change


def instead(
    request: Request, before: list[Move], *, told_at_ms: int | None = None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The whole answer to another request after another history."""

    def change(_: dict[str, Any]) -> dict[str, Any]:
        wire = Wire()
        for move in before:
            if isinstance(move, int):
                wire.clock.now_ms += move
            else:
                wire.right(move)
        members = wire.right(request)[1]
        if told_at_ms is not None:
            members["observed_at"] = format_timestamp(T0 + told_at_ms)
        return members

    return change


SOON = format_timestamp(T0 + LAPSE_MS + 1)
WRONG = [
    # The decision itself.
    Wrong("not found", [CLAIM], STATUS, instead(STATUS, []), ("WC-STATUS-2",)),
    Wrong("not forgotten", [], STATUS, instead(STATUS, [CLAIM]), ("WC-STATUS-1",)),
    Wrong("no reuse", [CLAIM], CLAIM, instead(BOB, [CLAIM]), ("WC-CLAIM-4", "WC-IDEM-1")),
    Wrong("shared", [CLAIM], BOB, instead(CLAIM, [CLAIM]), ("WC-CLAIM-5",)),
    Wrong("another refusal", [CLAIM], BOB, put(code="STALE_GENERATION"), ("WC-CLAIM-5",)),
    Wrong("reconfigured", [CLAIM], OTHER, instead(CLAIM, [CLAIM]), ("WC-CLAIM-3",)),
    Wrong("stale accepted", [CLAIM], STALE, instead(DOUBT, [CLAIM]), ("WC-TRANS-4",)),
    Wrong(
        "rejection after doubt",
        [CLAIM, DOUBT],
        REJECTED,
        instead(REJECTED, [CLAIM]),
        ("WC-TRANS-7", "WC-GRAPH-3"),
    ),
    Wrong(
        "replayed at once",
        [CLAIM],
        DOUBT,
        instead(DOUBT, [CLAIM, DOUBT]),
        ("WC-TRANS-8",),
    ),
    Wrong(
        "a millisecond too long",
        [CLAIM, LAPSE_MS],
        BOB,
        instead(BOB, [CLAIM], told_at_ms=LAPSE_MS),
        ("WC-TIME-2", "WC-CLAIM-8"),
    ),
    Wrong(
        "a millisecond too short",
        [CLAIM, LAPSE_MS - 1],
        BOB,
        instead(BOB, [CLAIM, LAPSE_MS], told_at_ms=LAPSE_MS - 1),
        ("WC-TIME-2", "WC-CLAIM-5"),
    ),
    Wrong("recovered as claimed", [CLAIM, LAPSE_MS], BOB, put(stage="claimed"), ("WC-CLAIM-8",)),
    Wrong("generation kept", [CLAIM, LAPSE_MS], BOB, put(generation=1), ("WC-CLAIM-8",)),
    Wrong("not recovered", [CLAIM, LAPSE_MS], BOB, put(recovered=False), ("WC-CLAIM-8",)),
    # What follows from a right decision.
    Wrong(
        "renewed",
        [CLAIM, 1],
        CLAIM,
        put(claim_expires_at=SOON),
        ("WC-CLAIM-4", "WC-TIME-3", "WC-IDEM-1"),
    ),
    Wrong(
        "status renews",
        [CLAIM, 1],
        STATUS,
        put(claim_expires_at=SOON),
        ("WC-STATUS-2", "WC-TIME-3"),
    ),
    Wrong("state moves", [CLAIM, 1], STATUS, put(state_expires_at=SOON), ("WC-TIME-3",)),
    Wrong(
        "active for ever",
        [CLAIM, LAPSE_MS],
        STATUS,
        put(
            claim_active=True,
            claim_expires_at=SOON,
            held_by_caller=True,
            recovery_required=False,
            allowed_next_actions=["transition", "status", "abandon"],
        ),
        ("WC-VIEW-3",),
    ),
    Wrong("rounded up", [CLAIM, 1], STATUS, put(claim_ttl_seconds_remaining=60), ("WC-TIME-6",)),
    Wrong("order", [CLAIM], STATUS, put(allowed_next_actions=["status"]), ("WC-VIEW-2",)),
    Wrong("proof", [CLAIM], STATUS, put(external_proof=True), ("WC-VIEW-3",)),
    Wrong("margin", [CLAIM], STATUS, put(minimum_action_safety_margin_seconds=16), ("WC-VIEW-3",)),
    Wrong("held", [CLAIM], Status(), put(held_by_caller=True), ("WC-VIEW-3",)),
    Wrong("no flag of status", [CLAIM], STATUS, put(acquired=True), ("WC-VIEW-1",)),
    Wrong("a member more", [CLAIM], STATUS, put(holder_hash="x"), ("WC-VIEW-1",)),
    Wrong("a member less", [CLAIM], STATUS, put(observed_at=...), ("WC-VIEW-1",)),
    Wrong("true for 1", [CLAIM], STATUS, put(generation=True), ("WC-STATUS-2",)),
    Wrong("text for 1", [CLAIM], STATUS, put(generation="1"), ("WC-STATUS-2",)),
    Wrong("60.5 for 60", [], CLAIM, put(claim_ttl_seconds_remaining=60.5), ("WC-TIME-6",)),
    Wrong(
        "evidence stays",
        [CLAIM, FAIL],
        BOB,
        put(evidence_type="external_absence"),
        ("WC-VIEW-4",),
    ),
    Wrong(
        "fingerprint lost",
        [CLAIM],
        FAIL,
        put(evidence_fingerprint_present=False),
        ("WC-TRANS-8",),
    ),
    # Times and hashes.
    Wrong(
        "two digits", [CLAIM], STATUS, put(observed_at="2026-07-25T12:00:00.00Z"), ("WC-TIME-5",)
    ),
    Wrong(
        "invented",
        [CLAIM],
        STATUS,
        put(observed_at=format_timestamp(T0 + 1), state_ttl_seconds_remaining=599),
        ("WC-TIME-1",),
    ),
    Wrong(
        "backwards",
        [CLAIM],
        STATUS,
        put(observed_at=format_timestamp(T0 - 1)),
        ("WC-TIME-4",),
    ),
    Wrong("capitals", [], CLAIM, put(workflow_hash=HASH.upper()), ("WC-ID-1",)),
    Wrong("another", [CLAIM], STATUS, put(workflow_hash=HASH[:-1] + "b"), ("WC-ID-2",)),
    # Errors.
    Wrong("status", [], STATUS, put(status=400), ("WC-ERR-1",)),
    Wrong("retry", [], STATUS, put(retry=True), ("WC-ERR-1",)),
    Wrong("charged", [], STATUS, put(charged=True), ("WC-ERR-1",)),
    Wrong("no recovery", [], STATUS, put(recovery=...), ("WC-ERR-1",)),
    Wrong("no stage", [CLAIM], BOB, put(stage=...), ("WC-ERR-2",)),
    Wrong("no deadline", [CLAIM], BOB, put(claim_expires_at=...), ("WC-ERR-2",)),
    Wrong("no time", [], STATUS, put(observed_at=...), ("WC-ERR-2",)),
    Wrong("stage of nothing", [], STATUS, put(stage="claimed"), ("WC-ERR-2",)),
    Wrong("no configuration", [CLAIM], OTHER, put(configuration=...), ("WC-ERR-8",)),
    Wrong("retry after", [], STATUS, put(retry_after_seconds=1), ("WC-ERR-3",)),
    Wrong("its own", [], STATUS, put(holder="x"), ("WC-ERR-2",)),
    Wrong(
        "refused for no reason",
        [],
        CLAIM,
        lambda _: {
            "type": "t",
            "title": "t",
            "detail": "d",
            "recovery": "r",
            "status": 400,
            "code": "INVALID_INPUT",
            "retry": False,
            "charged": False,
        },
        ("WC-IN-1",),
    ),
]


def test_an_integer_may_be_written_with_a_fraction() -> None:
    """Whether it is one is unspecified (WC-IN-2), so nobody is blamed for it."""
    wire = Wire()
    status, members = wire.right(STATUS)
    assert wire.judge(STATUS, status, {**members, "status": 404.0}).faults == ()
    status, members = wire.right(CLAIM)
    changed = put(generation=1.0, claim_ttl_seconds_remaining=60.0)(members)
    assert wire.judge(CLAIM, status, changed).faults == ()
    assert [as_integer(n) for n in (2, 2.0, 2.5, True, "2", None)] == [2, 2, None, None, None, None]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name.replace(" ", "-"))
def test_what_is_wrong_is_named(wrong: Wrong) -> None:
    """One change of a right answer; its rule is blamed, and first."""
    wire = Wire()
    for move in wrong.before:
        if isinstance(move, int):
            wire.clock.now_ms += move
        else:
            assert wire.judge(move, *wire.right(move)).faults == ()
    status, members = wire.right(wrong.request)
    changed = wrong.change(members)
    if ("code" in changed) != ("code" in members):
        status = changed["status"] if "code" in changed else 200
    elif changed.get("code") != members.get("code"):
        status = changed["status"]
    judged = wire.judge(wrong.request, status, changed)
    assert judged.faults != ()
    assert judged.faults[0].rules == wrong.rules
    assert not {*wrong.rules} & {*judged.hits}


@pytest.mark.parametrize(
    ("headers", "rule"),
    [
        ({"cache-control": "max-age=1"}, "WC-HTTP-1"),
        ({"content-type": "text/html"}, "WC-HTTP-1"),
    ],
)
def test_what_is_wrong_with_the_headers_is_named(headers: dict[str, str], rule: str) -> None:
    """Form and leaks are faults beside the decision, which is judged all the same."""
    wire = Wire()
    request = Status(holder="h_ann_" + "x" * 20)
    wire.judge(CLAIM, *wire.right(CLAIM))
    judged = wire.judge(request, *wire.right(request), headers)
    assert [fault.rules[0] for fault in judged.faults] == [rule]
    assert judged.step is not None
    assert judged.step.rule == "WC-STATUS-2"


@pytest.mark.parametrize(
    "lost",
    [
        Lost(reason=LostReason.TIMED_OUT, detail=""),
        HttpAnswer(status=502, headers=(), body=b"<html>bad gateway</html>"),
    ],
)
def test_what_is_unknown_is_no_fault(lost: HttpAnswer | Lost) -> None:
    """Refused and unknown are different: an unknown answer blames nobody and moves nothing."""
    oracle = Oracle(fresh_identity(), FrozenClock(T0))
    exchange = Exchange(
        method="POST", path="/", headers=(), body=b"", called_ns=0, returned_ns=1, answer=lost
    )
    judged = oracle.judge(CLAIM, exchange, read(exchange))
    assert (judged.step, judged.faults, judged.hits, oracle.record) == (None, (), (), None)
