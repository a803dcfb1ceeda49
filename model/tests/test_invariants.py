"""The invariants: they cite the contract, they hold of every walk, and each of them can fail."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from sequences import LINKS, T0, walk

from checkpoint_model import (
    CONTRACT_LIMITS,
    ERRORS,
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Record,
    Request,
    Stage,
    Status,
    Step,
    Success,
    Transition,
    step,
)
from checkpoint_model.invariants import (
    ALWAYS,
    DECISION_ROWS,
    ON_STEPS,
    SOMETIMES,
    Always,
    OnStep,
    Sometimes,
)

CONTRACT = (Path(__file__).parents[1] / "CONTRACT.md").read_text()
LIMITS = CONTRACT_LIMITS
NAMED: tuple[Always | OnStep | Sometimes, ...] = (*ALWAYS, *ON_STEPS, *SOMETIMES)

FRESH = Record(
    stage=Stage.CLAIMED,
    generation=1,
    holder="ann",
    claim_expires_at_ms=T0 + 60_000,
    state_expires_at_ms=T0 + 600_000,
    changed_at_ms=T0,
    claim_ttl_seconds=60,
    state_ttl_seconds=600,
    retry_failed=False,
)
FAILED = replace(
    FRESH,
    stage=Stage.FAILED,
    claim_expires_at_ms=T0,
    evidence_type=EvidenceType.NOT_ATTEMPTED,
    observations=(("one", ("ann", 1, Stage.FAILED, EvidenceType.NOT_ATTEMPTED, None)),),
)
RETRYABLE = replace(FAILED, retry_failed=True)
ABANDONED = replace(FRESH, claim_expires_at_ms=T0, abandoned=True)
SECOND = replace(FRESH, stage=Stage.UNCERTAIN, generation=2, holder="bob")
UNSURE = ("ann", 1, Stage.UNCERTAIN, None, None)


def test_every_rule_that_is_cited_is_a_rule_of_the_contract() -> None:
    """A mistyped id would cite nothing."""
    known = set(re.findall(r"\*\*(WC-[A-Z]+-[0-9]+)\*\*", CONTRACT))
    for named in NAMED:
        assert named.rules
        assert set(named.rules) <= known, named.name


def test_names_are_unique_and_sentences_are_sentences() -> None:
    """A report names an invariant by its name alone."""
    assert len({named.name for named in NAMED}) == len(NAMED)
    assert all(re.fullmatch(r"\S+( \S+){3,}\.", named.sentence) for named in NAMED)


def test_the_decision_rows_are_those_of_the_contract_with_their_pens() -> None:
    """Ids and ✎ marks, read from the tables of section 6."""
    rows = re.findall(
        r"^\| \*\*(WC-(?:CLAIM|TRANS|ABANDON|STATUS)-\d+)\*\*( ✎)? \|", CONTRACT, re.MULTILINE
    )
    assert [(rule, row.changes) for rule, row in DECISION_ROWS.items()] == [
        (rule, bool(pen)) for rule, pen in rows
    ]


def test_the_goals_are_every_row_stage_code_and_cell_and_the_stories() -> None:
    """24 rows, 5 stages, the 8 codes that section 6 decides, 17 cells, and 21 stories."""
    kinds = ("row", "stage", "error", "move")
    counts = {kind: sum(goal.name.startswith(f"{kind} ") for goal in SOMETIMES) for kind in kinds}
    assert counts == {"row": 24, "stage": 5, "error": 8, "move": 17}
    assert len(SOMETIMES) - sum(counts.values()) == 21
    assert {f"error {code}" for code, row in ERRORS.items() if row.decided} <= {
        goal.name for goal in SOMETIMES
    }
    assert all(goal.on <= DECISION_ROWS.keys() for goal in SOMETIMES)


@given(LINKS)
def test_no_walk_breaks_an_invariant(links: list[tuple[Request, int]]) -> None:
    """With the contract's own limits, arbitrary evidence, and a clock that may step back."""
    for before, request, now_ms, done in walk(links):
        for on_step in ON_STEPS:
            assert on_step.holds(before, request, now_ms, done, LIMITS), on_step.name
        if done.record is not None:
            for always in ALWAYS:
                assert always.holds(done.record, done.observed_at_ms, LIMITS), always.name


# -- Each can fail ------------------------------------------------------------------------


def broken_always(record: Record, now_ms: int) -> set[str]:
    """The names of the state invariants that this record breaks."""
    return {always.name for always in ALWAYS if not always.holds(record, now_ms, LIMITS)}


@pytest.mark.parametrize("record", [FRESH, FAILED, RETRYABLE, ABANDONED, SECOND])
def test_a_record_that_can_be_breaks_nothing(record: Record) -> None:
    """The examples below each differ from one of these."""
    assert broken_always(record, T0) == set()


IMPOSSIBLE: Mapping[str, Record] = {
    "generation-in-bounds": replace(FRESH, generation=17),
    "observations-in-bounds": replace(
        RETRYABLE,
        observations=(
            ("one", UNSURE),
            ("two", ("ann", 1, Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE, None)),
            ("three", ("ann", 1, Stage.FAILED, EvidenceType.NOT_ATTEMPTED, None)),
        ),
    ),
    "keys-are-unique": replace(
        FRESH,
        stage=Stage.FAILED,
        claim_expires_at_ms=T0,
        evidence_type=EvidenceType.EXTERNAL_ABSENCE,
        observations=(
            ("one", UNSURE),
            ("one", ("ann", 1, Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE, None)),
        ),
    ),
    "claim-ends-with-the-record": replace(FRESH, state_expires_at_ms=T0 + 59_999),
    "lifetimes-in-bounds": replace(FRESH, claim_expires_at_ms=T0 + 60_001),
    "settled-is-unclaimed": replace(FAILED, claim_expires_at_ms=T0 + 1),
    "abandoned-is-lapsed": replace(FRESH, abandoned=True),
    "evidence-fits-the-stage": replace(FRESH, evidence_type=EvidenceType.EXTERNAL_READ),
    "observations-tell-the-stage": replace(FRESH, observations=(("one", UNSURE),)),
    "observations-walk-the-graph": replace(
        FRESH,
        stage=Stage.FAILED,
        claim_expires_at_ms=T0,
        evidence_type=EvidenceType.PROVIDER_REJECTION,
        observations=(
            ("one", UNSURE),
            ("two", ("ann", 1, Stage.FAILED, EvidenceType.PROVIDER_REJECTION, None)),
        ),
    ),
    "one-holder": replace(
        FRESH, stage=Stage.UNCERTAIN, observations=(("one", ("bob", *UNSURE[1:])),)
    ),
    "superseded-were-open-or-retried": replace(
        SECOND, stage=Stage.CLAIMED, observations=FAILED.observations
    ),
}


@pytest.mark.parametrize("name", [always.name for always in ALWAYS])
def test_every_state_invariant_can_fail(name: str) -> None:
    """For each there is a record that breaks it."""
    assert name in broken_always(IMPOSSIBLE[name], T0)


CLAIM = Claim(holder="ann", claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=False)
BY_BOB = replace(CLAIM, holder="bob")
RETRY = replace(CLAIM, retry_failed=True)
FAIL = Transition(
    holder="ann",
    generation=1,
    to_stage=Stage.FAILED,
    observation_key="one",
    evidence_type=EvidenceType.NOT_ATTEMPTED,
)
ABANDON = Abandon(holder="ann", generation=1)
LAPSE = T0 + 60_000


def told(
    record: Record | None,
    outcome: Success | ErrorCode,
    rule: str,
    at_ms: int = T0,
) -> Step:
    """A step as a faulty machine might tell it."""
    return Step(record=record, outcome=outcome, rule=rule, observed_at_ms=at_ms)


NOT_HELD = ErrorCode.CHECKPOINT_NOT_HELD
MOVED_ON = replace(FRESH, changed_at_ms=T0 + 1)
WRONG_STEPS: Mapping[str, tuple[Record | None, Request, int, Step]] = {
    "refusals-change-nothing": (FRESH, BY_BOB, T0, told(MOVED_ON, NOT_HELD, "WC-CLAIM-5")),
    "observers-change-nothing": (
        FRESH,
        CLAIM,
        T0 + 5,
        told(
            replace(FRESH, claim_expires_at_ms=LAPSE + 5, changed_at_ms=T0 + 5),
            Success.REUSED,
            "WC-CLAIM-4",
            T0 + 5,
        ),
    ),
    "terminal-is-final": (FAILED, CLAIM, T0, told(SECOND, Success.ACQUIRED, "WC-CLAIM-7")),
    "only-the-entitled-change": (
        FRESH,
        replace(ABANDON, holder="bob"),
        T0,
        told(ABANDONED, Success.ABANDONED, "WC-ABANDON-6"),
    ),
    "generations-grow-by-one": (
        ABANDONED,
        BY_BOB,
        T0,
        told(replace(SECOND, generation=3), Success.RECOVERED, "WC-CLAIM-8"),
    ),
    "stages-move-along-the-graph": (
        ABANDONED,
        BY_BOB,
        T0,
        told(replace(SECOND, stage=Stage.CLAIMED), Success.RECOVERED, "WC-CLAIM-8"),
    ),
    "deadlines-and-configuration-stay": (
        ABANDONED,
        BY_BOB,
        T0,
        told(replace(SECOND, state_expires_at_ms=T0 + 600_001), Success.RECOVERED, "WC-CLAIM-8"),
    ),
    "holders-stay": (
        FRESH,
        FAIL,
        T0,
        told(replace(FAILED, holder="bob"), Success.TRANSITIONED, "WC-TRANS-8"),
    ),
    "grants-are-whole": (
        RETRYABLE,
        replace(RETRY, holder="bob"),
        T0,
        told(
            replace(
                RETRYABLE,
                generation=2,
                holder="bob",
                stage=Stage.CLAIMED,
                claim_expires_at_ms=LAPSE,
            ),
            Success.ACQUIRED,
            "WC-CLAIM-7",
        ),
    ),
    "observations-only-grow": (
        FRESH,
        FAIL,
        T0,
        told(replace(FAILED, observations=()), Success.TRANSITIONED, "WC-TRANS-8"),
    ),
    "time-never-goes-back": (
        FRESH,
        Status(),
        T0 - 1,
        told(FRESH, Success.REPORTED, "WC-STATUS-2", T0 - 1),
    ),
    "changes-are-dated": (
        FRESH,
        ABANDON,
        T0 + 1,
        told(
            replace(ABANDONED, claim_expires_at_ms=T0 + 1),
            Success.ABANDONED,
            "WC-ABANDON-6",
            T0 + 1,
        ),
    ),
    "successes-are-what-they-say": (
        FRESH,
        ABANDON,
        T0,
        told(FRESH, Success.ABANDONED, "WC-ABANDON-6"),
    ),
    "replays-are-exact": (
        FAILED,
        replace(FAIL, holder="bob"),
        T0,
        told(FAILED, Success.OBSERVATION_REPLAYED, "WC-TRANS-2"),
    ),
    "refusals-are-true": (
        FRESH,
        ABANDON,
        T0,
        told(FRESH, ErrorCode.STALE_GENERATION, "WC-ABANDON-2"),
    ),
    "the-free-is-granted": (FRESH, BY_BOB, LAPSE, told(FRESH, NOT_HELD, "WC-CLAIM-5", LAPSE)),
    "reuse-is-true": (FRESH, BY_BOB, T0, told(FRESH, Success.REUSED, "WC-CLAIM-4")),
    "the-holder-can-settle": (
        FRESH,
        FAIL,
        LAPSE - 1,
        told(FRESH, NOT_HELD, "WC-TRANS-6", LAPSE - 1),
    ),
    "the-holder-can-abandon": (
        FRESH,
        ABANDON,
        LAPSE - 1,
        told(FRESH, NOT_HELD, "WC-ABANDON-5", LAPSE - 1),
    ),
    "everyone-may-look": (FRESH, Status(), T0, told(FRESH, NOT_HELD, "WC-STATUS-1")),
    "rows-are-as-written": (FRESH, CLAIM, T0, told(FRESH, Success.REUSED, "WC-CLAIM-5")),
    "the-first-row-decides": (
        FAILED,
        replace(CLAIM, claim_ttl_seconds=61),
        T0,
        told(FAILED, ErrorCode.CONFIGURATION_CONFLICT, "WC-CLAIM-3"),
    ),
}


@pytest.mark.parametrize("name", [on_step.name for on_step in ON_STEPS])
def test_every_step_invariant_can_fail(name: str) -> None:
    """For each there is a step that breaks it, and the real step from there breaks none."""
    before, request, now_ms, done = WRONG_STEPS[name]
    broken = {
        on_step.name
        for on_step in ON_STEPS
        if not on_step.holds(before, request, now_ms, done, LIMITS)
    }
    assert name in broken
    right = step(before, request, now_ms)
    assert all(on_step.holds(before, request, now_ms, right, LIMITS) for on_step in ON_STEPS)


def test_a_machine_without_fencing_satisfies_every_state_invariant() -> None:
    """Why there are step invariants: bob ends ann's claim, and the record looks in order."""
    before, request, now_ms, done = WRONG_STEPS["only-the-entitled-change"]
    assert done.record is not None
    assert broken_always(done.record, now_ms) == set()
    assert request.holder != FRESH.holder
    assert before is FRESH
