"""Every row of every decision table of section 6, written from the contract, not from the code."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from checkpoint_model import (
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Outcome,
    Record,
    Request,
    Stage,
    Status,
    Success,
    Transition,
    step,
)

T0 = 1_000_000
CLAIM_MS = 60_000
STATE_MS = 600_000
CLAIM_END = T0 + CLAIM_MS
STATE_END = T0 + STATE_MS
LATER = T0 + 10

FRESH = Record(
    stage=Stage.CLAIMED,
    generation=1,
    holder="ann",
    claim_expires_at_ms=CLAIM_END,
    state_expires_at_ms=STATE_END,
    changed_at_ms=T0,
    claim_ttl_seconds=60,
    state_ttl_seconds=600,
    retry_failed=False,
)
FIRST_BODY = ("ann", 1, Stage.UNCERTAIN, None, None)
UNCERTAIN = replace(
    FRESH,
    stage=Stage.UNCERTAIN,
    changed_at_ms=T0 + 1,
    observations=(("seen-1", FIRST_BODY),),
)
RETRYABLE = replace(FRESH, retry_failed=True)


def settled(stage: Stage, evidence: EvidenceType, *, retry_failed: bool = False) -> Record:
    """A record settled in its first generation, one millisecond after it was made."""
    return replace(
        FRESH,
        stage=stage,
        claim_expires_at_ms=T0 + 1,
        changed_at_ms=T0 + 1,
        retry_failed=retry_failed,
        evidence_type=evidence,
        observations=(("seen-1", ("ann", 1, stage, evidence, None)),),
    )


VERIFIED = settled(Stage.CALLER_VERIFIED, EvidenceType.PROVIDER_RECEIPT)
COMPENSATED = settled(Stage.COMPENSATED, EvidenceType.COMPENSATION_RECEIPT)
FAILED = settled(Stage.FAILED, EvidenceType.NOT_ATTEMPTED)
FAILED_RETRYABLE = settled(Stage.FAILED, EvidenceType.NOT_ATTEMPTED, retry_failed=True)
ABANDONED = replace(FRESH, claim_expires_at_ms=T0 + 1, changed_at_ms=T0 + 1, abandoned=True)
LAST = replace(FRESH, generation=16)
LAST_FAILED_RETRYABLE = replace(FAILED_RETRYABLE, generation=16)

CLAIM = Claim(holder="ann", claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=False)
CLAIM_BY_BOB = replace(CLAIM, holder="bob")
RETRY_CLAIM = replace(CLAIM, retry_failed=True)
MOVE = Transition(holder="ann", generation=1, to_stage=Stage.UNCERTAIN, observation_key="seen-1")
VERIFY = Transition(
    holder="ann",
    generation=1,
    to_stage=Stage.CALLER_VERIFIED,
    observation_key="seen-2",
    evidence_type=EvidenceType.PROVIDER_RECEIPT,
    evidence_fingerprint="sha256:1",
)
SAME_AS_VERIFIED = replace(VERIFY, observation_key="seen-1", evidence_fingerprint=None)
ABANDON = Abandon(holder="ann", generation=1)


class Row(NamedTuple):
    """One case of one decision row; ``after`` is None where nothing may change."""

    name: str
    rule: str
    given: Record | None
    request: Request
    now_ms: int
    outcome: Outcome
    after: Record | None = None


ROWS = [
    # -- claim ---------------------------------------------------------------------------
    Row("no record", "WC-CLAIM-1", None, CLAIM, T0, Success.ACQUIRED, FRESH),
    Row(
        "a claim as long as the state allows",
        "WC-CLAIM-1",
        None,
        replace(CLAIM, claim_ttl_seconds=599),
        T0,
        Success.ACQUIRED,
        replace(FRESH, claim_ttl_seconds=599, claim_expires_at_ms=T0 + 599_000),
    ),
    Row(
        "the record has expired",
        "WC-CLAIM-1",
        VERIFIED,
        replace(CLAIM_BY_BOB, retry_failed=True),
        STATE_END,
        Success.ACQUIRED,
        replace(
            FRESH,
            holder="bob",
            retry_failed=True,
            changed_at_ms=STATE_END,
            claim_expires_at_ms=STATE_END + CLAIM_MS,
            state_expires_at_ms=STATE_END + STATE_MS,
        ),
    ),
    *(
        Row(f"{r.stage}", "WC-CLAIM-2", r, CLAIM, LATER, ErrorCode.CHECKPOINT_TERMINAL)
        for r in (VERIFIED, COMPENSATED, FAILED)
    ),
    Row(
        "terminal comes before the configuration",
        "WC-CLAIM-2",
        VERIFIED,
        replace(CLAIM, claim_ttl_seconds=61),
        LATER,
        ErrorCode.CHECKPOINT_TERMINAL,
    ),
    *(
        Row(
            member,
            "WC-CLAIM-3",
            FRESH,
            request,
            LATER,
            ErrorCode.CONFIGURATION_CONFLICT,
        )
        for member, request in [
            ("a longer claim_ttl", replace(CLAIM, claim_ttl_seconds=61)),
            ("a shorter claim_ttl", replace(CLAIM, claim_ttl_seconds=59)),
            ("a longer state_ttl", replace(CLAIM, state_ttl_seconds=601)),
            ("a shorter state_ttl", replace(CLAIM, state_ttl_seconds=599)),
            ("another retry_failed", replace(CLAIM, retry_failed=True)),
        ]
    ),
    Row(
        "the configuration comes before the claim",
        "WC-CLAIM-3",
        FRESH,
        replace(CLAIM_BY_BOB, retry_failed=True),
        LATER,
        ErrorCode.CONFIGURATION_CONFLICT,
    ),
    Row(
        "the configuration comes before the limit",
        "WC-CLAIM-3",
        LAST,
        RETRY_CLAIM,
        CLAIM_END,
        ErrorCode.CONFIGURATION_CONFLICT,
    ),
    Row("its own claim", "WC-CLAIM-4", FRESH, CLAIM, CLAIM_END - 1, Success.REUSED),
    Row("its own uncertain claim", "WC-CLAIM-4", UNCERTAIN, CLAIM, LATER, Success.REUSED),
    Row("its own last claim", "WC-CLAIM-4", LAST, CLAIM, LATER, Success.REUSED),
    Row(
        "another's claim",
        "WC-CLAIM-5",
        FRESH,
        CLAIM_BY_BOB,
        CLAIM_END - 1,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "another's last claim",
        "WC-CLAIM-5",
        LAST,
        CLAIM_BY_BOB,
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "lapsed in the last generation",
        "WC-CLAIM-6",
        LAST,
        CLAIM,
        CLAIM_END,
        ErrorCode.CHECKPOINT_LIMIT_REACHED,
    ),
    Row(
        "failed in the last generation",
        "WC-CLAIM-6",
        LAST_FAILED_RETRYABLE,
        RETRY_CLAIM,
        LATER,
        ErrorCode.CHECKPOINT_LIMIT_REACHED,
    ),
    Row(
        "failed, retry allowed",
        "WC-CLAIM-7",
        FAILED_RETRYABLE,
        replace(RETRY_CLAIM, holder="bob"),
        LATER,
        Success.ACQUIRED,
        replace(
            FAILED_RETRYABLE,
            stage=Stage.CLAIMED,
            generation=2,
            holder="bob",
            claim_expires_at_ms=LATER + CLAIM_MS,
            changed_at_ms=LATER,
            evidence_type=None,
        ),
    ),
    Row(
        "failed, retried after the claim's first deadline",
        "WC-CLAIM-7",
        FAILED_RETRYABLE,
        RETRY_CLAIM,
        STATE_END - 1,
        Success.ACQUIRED,
        replace(
            FAILED_RETRYABLE,
            stage=Stage.CLAIMED,
            generation=2,
            claim_expires_at_ms=STATE_END,  # never past the record (WC-TIME-3)
            changed_at_ms=STATE_END - 1,
            evidence_type=None,
        ),
    ),
    *(
        Row(
            f"lapsed by its deadline, claimed by {caller}",
            "WC-CLAIM-8",
            given,
            replace(CLAIM, holder=caller),
            CLAIM_END,
            Success.RECOVERED,
            replace(
                given,
                stage=Stage.UNCERTAIN,
                generation=2,
                holder=caller,
                claim_expires_at_ms=CLAIM_END + CLAIM_MS,
                changed_at_ms=CLAIM_END,
            ),
        )
        for given in (FRESH, UNCERTAIN)
        for caller in ("ann", "bob")
    ),
    Row(
        "lapsed by an abandon",
        "WC-CLAIM-8",
        ABANDONED,
        CLAIM_BY_BOB,
        T0 + 1,
        Success.RECOVERED,
        replace(
            FRESH,
            stage=Stage.UNCERTAIN,
            generation=2,
            holder="bob",
            claim_expires_at_ms=T0 + 1 + CLAIM_MS,
            changed_at_ms=T0 + 1,
        ),
    ),
    Row(
        "lapsed in the last generation but one",
        "WC-CLAIM-8",
        replace(FRESH, generation=15),
        CLAIM,
        CLAIM_END,
        Success.RECOVERED,
        replace(
            FRESH,
            stage=Stage.UNCERTAIN,
            generation=16,
            claim_expires_at_ms=CLAIM_END + CLAIM_MS,
            changed_at_ms=CLAIM_END,
        ),
    ),
    # -- transition ----------------------------------------------------------------------
    Row("no record", "WC-TRANS-1", None, MOVE, T0, ErrorCode.CHECKPOINT_NOT_FOUND),
    Row("expired", "WC-TRANS-1", FRESH, MOVE, STATE_END, ErrorCode.CHECKPOINT_NOT_FOUND),
    Row("repeated", "WC-TRANS-2", UNCERTAIN, MOVE, LATER, Success.OBSERVATION_REPLAYED),
    Row(
        "repeated after a lapse, before the generation is looked at",
        "WC-TRANS-2",
        replace(UNCERTAIN, generation=2, holder="bob"),
        MOVE,
        CLAIM_END,
        Success.OBSERVATION_REPLAYED,
    ),
    Row(
        "repeated after settlement, before terminal is looked at",
        "WC-TRANS-2",
        VERIFIED,
        SAME_AS_VERIFIED,
        LATER,
        Success.OBSERVATION_REPLAYED,
    ),
    *(
        Row(
            f"same key, another {member}",
            "WC-TRANS-3",
            VERIFIED,
            request,
            LATER,
            ErrorCode.OBSERVATION_CONFLICT,
        )
        for member, request in [
            ("holder", replace(SAME_AS_VERIFIED, holder="bob")),
            ("generation", replace(SAME_AS_VERIFIED, generation=2)),
            ("stage", replace(SAME_AS_VERIFIED, to_stage=Stage.COMPENSATED)),
            ("evidence", replace(SAME_AS_VERIFIED, evidence_type=EvidenceType.EXTERNAL_READ)),
            ("evidence, none", replace(SAME_AS_VERIFIED, evidence_type=None)),
            ("fingerprint", replace(SAME_AS_VERIFIED, evidence_fingerprint="sha256:1")),
        ]
    ),
    *(
        Row(
            f"generation {generation} of 2",
            "WC-TRANS-4",
            replace(FRESH, generation=2),
            replace(MOVE, generation=generation),
            LATER,
            ErrorCode.STALE_GENERATION,
        )
        for generation in (1, 3, 16)
    ),
    Row(
        "the generation comes before terminal",
        "WC-TRANS-4",
        VERIFIED,
        replace(VERIFY, generation=2),
        LATER,
        ErrorCode.STALE_GENERATION,
    ),
    Row(
        "the generation comes before the holder",
        "WC-TRANS-4",
        FRESH,
        replace(VERIFY, generation=2, holder="bob"),
        LATER,
        ErrorCode.STALE_GENERATION,
    ),
    *(
        Row(f"{r.stage}", "WC-TRANS-5", r, VERIFY, LATER, ErrorCode.CHECKPOINT_TERMINAL)
        for r in (VERIFIED, COMPENSATED, FAILED)
    ),
    Row(
        "terminal comes before the holder",
        "WC-TRANS-5",
        VERIFIED,
        replace(VERIFY, holder="bob"),
        LATER,
        ErrorCode.CHECKPOINT_TERMINAL,
    ),
    Row(
        "another caller",
        "WC-TRANS-6",
        FRESH,
        replace(VERIFY, holder="bob"),
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "the holder, too late",
        "WC-TRANS-6",
        FRESH,
        VERIFY,
        CLAIM_END,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "the holder, after abandoning",
        "WC-TRANS-6",
        ABANDONED,
        VERIFY,
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "failed that may be retried",
        "WC-TRANS-6",
        FAILED_RETRYABLE,
        VERIFY,
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "the holder comes before the graph",
        "WC-TRANS-6",
        FRESH,
        replace(VERIFY, holder="bob", evidence_type=EvidenceType.NOT_ATTEMPTED),
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "not in the graph",
        "WC-TRANS-7",
        UNCERTAIN,
        replace(MOVE, observation_key="seen-2"),
        LATER,
        ErrorCode.INVALID_TRANSITION,
    ),
    Row(
        "becomes uncertain, claim goes on",
        "WC-TRANS-8",
        FRESH,
        MOVE,
        T0 + 1,
        Success.TRANSITIONED,
        UNCERTAIN,
    ),
    Row(
        "settles, claim ends",
        "WC-TRANS-8",
        UNCERTAIN,
        VERIFY,
        CLAIM_END - 1,
        Success.TRANSITIONED,
        replace(
            UNCERTAIN,
            stage=Stage.CALLER_VERIFIED,
            claim_expires_at_ms=CLAIM_END - 1,
            changed_at_ms=CLAIM_END - 1,
            evidence_type=EvidenceType.PROVIDER_RECEIPT,
            evidence_fingerprint_present=True,
            observations=(("seen-1", FIRST_BODY), ("seen-2", VERIFY.body)),
        ),
    ),
    # -- abandon -------------------------------------------------------------------------
    Row("no record", "WC-ABANDON-1", None, ABANDON, T0, ErrorCode.CHECKPOINT_NOT_FOUND),
    Row("expired", "WC-ABANDON-1", FRESH, ABANDON, STATE_END, ErrorCode.CHECKPOINT_NOT_FOUND),
    *(
        Row(
            f"generation {generation} of 2",
            "WC-ABANDON-2",
            replace(FRESH, generation=2),
            replace(ABANDON, generation=generation),
            LATER,
            ErrorCode.STALE_GENERATION,
        )
        for generation in (1, 3)
    ),
    Row(
        "the generation comes before terminal",
        "WC-ABANDON-2",
        VERIFIED,
        replace(ABANDON, generation=2),
        LATER,
        ErrorCode.STALE_GENERATION,
    ),
    *(
        Row(f"{r.stage}", "WC-ABANDON-3", r, ABANDON, LATER, ErrorCode.CHECKPOINT_TERMINAL)
        for r in (VERIFIED, COMPENSATED, FAILED)
    ),
    Row(
        "terminal comes before the holder",
        "WC-ABANDON-3",
        VERIFIED,
        replace(ABANDON, holder="bob"),
        LATER,
        ErrorCode.CHECKPOINT_TERMINAL,
    ),
    Row("repeated", "WC-ABANDON-4", ABANDONED, ABANDON, LATER, Success.ABANDONED),
    Row(
        "repeated after the claim would have ended anyway",
        "WC-ABANDON-4",
        ABANDONED,
        ABANDON,
        CLAIM_END,
        Success.ABANDONED,
    ),
    Row(
        "another caller",
        "WC-ABANDON-5",
        FRESH,
        replace(ABANDON, holder="bob"),
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "another caller, already abandoned",
        "WC-ABANDON-5",
        ABANDONED,
        replace(ABANDON, holder="bob"),
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "the holder, lapsed by its deadline",
        "WC-ABANDON-5",
        FRESH,
        ABANDON,
        CLAIM_END,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "failed that may be retried",
        "WC-ABANDON-5",
        FAILED_RETRYABLE,
        ABANDON,
        LATER,
        ErrorCode.CHECKPOINT_NOT_HELD,
    ),
    Row(
        "the claim ends at now, the stage stays",
        "WC-ABANDON-6",
        FRESH,
        ABANDON,
        T0 + 1,
        Success.ABANDONED,
        ABANDONED,
    ),
    Row(
        "uncertain stays uncertain",
        "WC-ABANDON-6",
        UNCERTAIN,
        ABANDON,
        CLAIM_END - 1,
        Success.ABANDONED,
        replace(
            UNCERTAIN,
            claim_expires_at_ms=CLAIM_END - 1,
            changed_at_ms=CLAIM_END - 1,
            abandoned=True,
        ),
    ),
    # -- status --------------------------------------------------------------------------
    Row("no record", "WC-STATUS-1", None, Status(), T0, ErrorCode.CHECKPOINT_NOT_FOUND),
    Row("expired", "WC-STATUS-1", FRESH, Status(), STATE_END, ErrorCode.CHECKPOINT_NOT_FOUND),
    Row("just before it expires", "WC-STATUS-2", FRESH, Status(), STATE_END - 1, Success.REPORTED),
    Row("anybody may ask", "WC-STATUS-2", FRESH, Status(holder="bob"), LATER, Success.REPORTED),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule}-{row.name}".replace(" ", "_"))
def test_the_first_row_that_applies_decides(row: Row) -> None:
    """The rule, the outcome and the record after it, member by member."""
    got = step(row.given, row.request, row.now_ms)
    assert (got.rule, got.outcome, got.observed_at_ms) == (row.rule, row.outcome, row.now_ms)
    assert got.record == (row.after if row.after is not None else row.given)


@pytest.mark.parametrize("row", [row for row in ROWS if row.after is None])
def test_a_row_without_a_pen_returns_the_record_itself(row: Row) -> None:
    """Rows not marked ✎ change nothing: not even the object is another."""
    assert step(row.given, row.request, row.now_ms).record is row.given


def test_every_decision_row_of_the_contract_has_a_case() -> None:
    """The ids are those of the tables: 8 + 8 + 6 + 2."""
    expected = {
        *(f"WC-CLAIM-{n}" for n in range(1, 9)),
        *(f"WC-TRANS-{n}" for n in range(1, 9)),
        *(f"WC-ABANDON-{n}" for n in range(1, 7)),
        *(f"WC-STATUS-{n}" for n in range(1, 3)),
    }
    assert {row.rule for row in ROWS} == expected


# The graph as section 6 writes it: from, to, the evidence that it asks for.
GRAPH = """
claimed   uncertain       none
claimed   caller_verified provider_receipt external_read operator_attestation
claimed   failed          not_attempted provider_rejection external_absence operator_attestation
claimed   compensated     compensation_receipt operator_attestation
uncertain caller_verified provider_receipt external_read operator_attestation
uncertain failed          external_absence operator_attestation
uncertain compensated     compensation_receipt operator_attestation
"""
ALLOWED = {
    (source, target, None if evidence == "none" else evidence)
    for source, target, *kinds in (line.split() for line in GRAPH.strip().splitlines())
    for evidence in kinds
}
CELLS = [
    (source, target, evidence, fingerprint)
    for source in ("claimed", "uncertain")
    for target in ("uncertain", "caller_verified", "failed", "compensated")
    for evidence in (None, *(str(e) for e in EvidenceType))
    for fingerprint in ((None,) if evidence is None else (None, "sha256:1"))
]


@pytest.mark.parametrize(("source", "target", "evidence", "fingerprint"), CELLS)
def test_every_cell_of_the_graph_and_evidence_matrix(
    source: str, target: str, evidence: str | None, fingerprint: str | None
) -> None:
    """WC-GRAPH-1 … WC-GRAPH-4: the holder may make exactly the moves that the table lists."""
    given = FRESH if source == "claimed" else UNCERTAIN
    request = Transition(
        holder="ann",
        generation=1,
        to_stage=Stage(target),
        observation_key="seen-2",
        evidence_type=None if evidence is None else EvidenceType(evidence),
        evidence_fingerprint=fingerprint,
    )
    got = step(given, request, LATER)
    if (source, target, evidence) not in ALLOWED:
        assert (got.rule, got.outcome) == ("WC-TRANS-7", ErrorCode.INVALID_TRANSITION)
        assert got.record is given
        return
    assert (got.rule, got.outcome) == ("WC-TRANS-8", Success.TRANSITIONED)
    assert got.record is not None
    assert got.record.stage == target
    assert got.record.evidence_type == evidence
    assert got.record.evidence_fingerprint_present is (fingerprint is not None)


def test_the_matrix_has_seven_moves_and_seventeen_cells_that_are_allowed() -> None:
    """Counted by hand in the contract: 1 + 3 + 4 + 2 and 3 + 2 + 2."""
    assert len({(source, target) for source, target, _ in ALLOWED}) == 7
    assert len(ALLOWED) == 17


def test_a_step_is_never_earlier_than_the_last_change() -> None:
    """WC-TIME-4: a clock set back ends the claim at the last change, not before the claim."""
    got = step(FRESH, ABANDON, T0 - 5_000)
    assert got.observed_at_ms == T0
    assert got.record == replace(FRESH, claim_expires_at_ms=T0, changed_at_ms=T0, abandoned=True)
