"""The link: the relation that is proved about is the model's ``step``, on records of any kind."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sequences import LINKS, walk
from test_decisions import CELLS, FRESH, LATER, ROWS, UNCERTAIN, Row
from tools import not_run

if find_spec("z3") is None:
    not_run("the link between the proofs and the model", "z3", "pip install z3-solver")

from faults import FAULTS, Fault
from symbolic import RULES, Evaluated, Evaluator

from checkpoint_model import (
    CONTRACT_LIMITS,
    Abandon,
    Claim,
    EvidenceType,
    Limits,
    Record,
    Request,
    Stage,
    Status,
    Transition,
    step,
)

EVALUATOR = Evaluator()


def agree(record: Record | None, request: Request, now_ms: int, limits: Limits) -> str:
    """Ask both, expect the same rule, outcome, time and record; return the rule."""
    done = step(record, request, now_ms, limits=limits)
    assert EVALUATOR.step(record, request, now_ms, limits=limits) == Evaluated.of(done)
    return done.rule


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule}-{row.name}".replace(" ", "_"))
def test_the_model_and_the_relation_agree_on_every_case_of_every_row(row: Row) -> None:
    """The cases that were written from the contract."""
    assert agree(row.given, row.request, row.now_ms, CONTRACT_LIMITS) == row.rule


def test_the_model_and_the_relation_agree_on_every_cell_of_the_graph() -> None:
    """Every move with every evidence, with a fingerprint and without."""
    for source, target, evidence, fingerprint in CELLS:
        request = Transition(
            holder="ann",
            generation=1,
            to_stage=Stage(target),
            observation_key="seen-2",
            evidence_type=None if evidence is None else EvidenceType(evidence),
            evidence_fingerprint=fingerprint,
        )
        agree(FRESH if source == "claimed" else UNCERTAIN, request, LATER, CONTRACT_LIMITS)


NOW_MS = 5_000
SMALL = Limits(generations=2, observations=4)
GENERATION_2 = Record(
    stage=Stage.CLAIMED,
    generation=2,
    holder="ann",
    claim_expires_at_ms=NOW_MS + 1,
    state_expires_at_ms=NOW_MS + 1,
    changed_at_ms=4_000,
    claim_ttl_seconds=3,
    state_ttl_seconds=5,
    retry_failed=False,
)
RECORDS = [
    replace(
        GENERATION_2,
        stage=stage,
        generation=generation,
        claim_expires_at_ms=claim_expires_at_ms,
        state_expires_at_ms=state_expires_at_ms,
        retry_failed=retry_failed,
        abandoned=abandoned,
    )
    for stage in Stage
    for generation in (1, 2, 3)
    for claim_expires_at_ms in (NOW_MS, NOW_MS + 1)
    for state_expires_at_ms in (NOW_MS, NOW_MS + 1)
    for retry_failed in (False, True)
    for abandoned in (False, True)
]
"""Every combination of what the rows ask of a record, most of which cannot arise."""
CLAIM = Claim(holder="ann", claim_ttl_seconds=3, state_ttl_seconds=5, retry_failed=False)
CLAIMS = [
    CLAIM,
    replace(CLAIM, holder="bob"),
    replace(CLAIM, retry_failed=True),
    replace(CLAIM, holder="bob", retry_failed=True),
    replace(CLAIM, claim_ttl_seconds=2),
    replace(CLAIM, state_ttl_seconds=6),
]
ABANDONS = [Abandon(holder=holder, generation=2) for holder in ("ann", "bob")]
MOVES_ASKED = [
    Transition(
        holder=holder,
        generation=2,
        to_stage=to_stage,
        observation_key="one",
        evidence_type=None if to_stage is Stage.UNCERTAIN else EvidenceType.OPERATOR_ATTESTATION,
    )
    for holder in ("ann", "bob")
    for to_stage in (Stage.UNCERTAIN, Stage.FAILED)
]
OBSERVATIONS = [(), (("one", MOVES_ASKED[1].body),)]


@pytest.mark.parametrize(
    ("action", "requests"),
    [("CLAIM", CLAIMS), ("ABANDON", ABANDONS), ("TRANS", MOVES_ASKED), ("STATUS", [Status()])],
    ids=["claim", "abandon", "transition", "status"],
)
def test_the_model_and_the_relation_agree_whatever_the_record(
    action: str, requests: list[Request]
) -> None:
    """Exhaustively in a small world, also of records that cannot arise."""
    rules = {
        agree(
            record if record is None else replace(record, observations=observations),
            request,
            NOW_MS,
            SMALL,
        )
        for record in (None, *RECORDS)
        for request in requests
        for observations in (OBSERVATIONS if action == "TRANS" else OBSERVATIONS[:1])
    }
    assert rules == {rule for rule in RULES if rule.startswith(f"WC-{action}-")}


TIMES_MS = st.sampled_from([0, 999, 1_000, 1_001, 2_000, 3_000]) | st.integers()
SECONDS = st.sampled_from([1, 2, 3])
ANYBODY = st.sampled_from(["ann", "bob"])
KEYS = st.sampled_from(["one", "two", "three"])
ANY_TRANSITION = st.builds(
    Transition,
    holder=ANYBODY,
    generation=st.integers(1, 3),
    to_stage=st.sampled_from(Stage),
    observation_key=KEYS,
    evidence_type=st.none() | st.sampled_from(EvidenceType),
    evidence_fingerprint=st.none() | st.sampled_from(["sha256:1", "sha256:2"]),
)
ANY_REQUEST = (
    st.builds(
        Claim,
        holder=ANYBODY,
        claim_ttl_seconds=SECONDS,
        state_ttl_seconds=SECONDS,
        retry_failed=st.booleans(),
    )
    | ANY_TRANSITION
    | st.builds(Abandon, holder=ANYBODY, generation=st.integers(1, 3))
    | st.builds(Status, holder=st.none() | ANYBODY)
)
ANY_RECORD = st.builds(
    Record,
    stage=st.sampled_from(Stage),
    generation=st.integers(0, 4),
    holder=ANYBODY,
    claim_expires_at_ms=TIMES_MS,
    state_expires_at_ms=TIMES_MS,
    changed_at_ms=TIMES_MS,
    claim_ttl_seconds=SECONDS,
    state_ttl_seconds=SECONDS,
    retry_failed=st.booleans(),
    abandoned=st.booleans(),
    evidence_type=st.none() | st.sampled_from(EvidenceType),
    evidence_fingerprint_present=st.booleans(),
    observations=st.lists(
        st.tuples(KEYS, ANY_TRANSITION.map(lambda request: request.body)), max_size=4
    ).map(tuple),
)


@settings(max_examples=500)
@given(st.none() | ANY_RECORD, ANY_REQUEST, TIMES_MS, st.integers(1, 4))
def test_the_model_and_the_relation_agree_on_anything(
    record: Record | None, request: Request, now_ms: int, generations: int
) -> None:
    """Also of times, evidence and observations that no sequence of requests leaves."""
    event(agree(record, request, now_ms, Limits(generations=generations, observations=8)))


@settings(max_examples=50)
@given(LINKS)
def test_the_model_and_the_relation_agree_along_the_way(links: list[tuple[Request, int]]) -> None:
    """Of records as they arise by stepping."""
    for before, request, now_ms, done in walk(links):
        assert EVALUATOR.step(before, request, now_ms) == Evaluated.of(done)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_link_would_notice_every_fault(fault: type[Fault]) -> None:
    """If the relation were one of the faulty ones, the small world would tell it from the model."""
    faulty = Evaluator(fault)
    assert any(
        faulty.step(given, request, now_ms, limits=limits)
        != Evaluated.of(step(given, request, now_ms, limits=limits))
        for given, request, now_ms, limits in _telling()
    )


def _telling() -> Iterator[tuple[Record | None, Request, int, Limits]]:
    for row in ROWS:
        yield row.given, row.request, row.now_ms, CONTRACT_LIMITS
    for source, target, evidence, _ in CELLS:
        given = FRESH if source == "claimed" else UNCERTAIN
        request = Transition(
            holder="ann",
            generation=1,
            to_stage=Stage(target),
            observation_key="seen-2",
            evidence_type=None if evidence is None else EvidenceType(evidence),
        )
        yield given, request, LATER, CONTRACT_LIMITS
    yield FRESH, Abandon(holder="ann", generation=1), FRESH.changed_at_ms - 1, CONTRACT_LIMITS
    full = replace(FRESH, observations=tuple((str(n), MOVES_ASKED[0].body) for n in range(31)))
    yield full, replace(MOVES_ASKED[0], generation=1), LATER, CONTRACT_LIMITS
