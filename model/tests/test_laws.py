"""Laws of the machine, over records that arise by stepping and over arbitrary requests."""

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st
from sequences import HOLDERS, LINKS, REQUESTS, T0, TRANSITIONS, walk

from checkpoint_model import (
    CONTRACT_LIMITS,
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Identity,
    Limits,
    Record,
    Request,
    Stage,
    Success,
    Transition,
    answer,
    format_request,
    format_timestamp,
    parse_request,
    parse_timestamp,
    step,
)

CHANGING = {"WC-CLAIM-1", "WC-CLAIM-7", "WC-CLAIM-8", "WC-TRANS-8", "WC-ABANDON-6"}

ANY_RECORD = st.builds(
    Record,
    stage=st.sampled_from(Stage),
    generation=st.integers(0, 20),
    holder=HOLDERS,
    claim_expires_at_ms=st.integers(),
    state_expires_at_ms=st.integers(),
    changed_at_ms=st.integers(),
    claim_ttl_seconds=st.integers(),
    state_ttl_seconds=st.integers(),
    retry_failed=st.booleans(),
    abandoned=st.booleans(),
    evidence_type=st.none() | st.sampled_from(EvidenceType),
    evidence_fingerprint_present=st.booleans(),
    observations=st.lists(
        st.tuples(
            st.sampled_from(["one", "two"]), st.builds(lambda request: request.body, TRANSITIONS)
        ),
        max_size=3,
    ).map(tuple),
)


@given(st.none() | ANY_RECORD, REQUESTS, st.integers())
def test_step_is_total(record: Record | None, request: Request, now_ms: int) -> None:
    """Every request in every state at every time has a row, also in states that cannot arise."""
    done = step(record, request, now_ms)
    event(done.rule)
    assert done.rule.startswith("WC-")
    assert isinstance(done.outcome, Success | ErrorCode)


@given(st.none() | ANY_RECORD, REQUESTS, st.integers())
def test_step_is_a_function(record: Record | None, request: Request, now_ms: int) -> None:
    """The same arguments give the same step: nothing is remembered between calls."""
    assert step(record, request, now_ms) == step(record, request, now_ms)


@given(LINKS)
def test_only_a_row_with_a_pen_changes_the_record(links: list[tuple[Request, int]]) -> None:
    """A refusal, a status, a reuse and a replay leave the record identical (WC-IN-6 in spirit)."""
    for before, _, now_ms, done in walk(links):
        if done.rule not in CHANGING:
            assert done.record is before
        else:
            assert done.record != before
            assert done.record is not None
            assert done.record.changed_at_ms == done.observed_at_ms >= now_ms


@given(LINKS)
def test_a_request_sent_again_changes_nothing_more(links: list[tuple[Request, int]]) -> None:
    """WC-IDEM-1, the flags and the state."""
    repeated = {
        Success.ACQUIRED: Success.REUSED,
        Success.RECOVERED: Success.REUSED,
        Success.TRANSITIONED: Success.OBSERVATION_REPLAYED,
    }
    flags = {
        "acquired",
        "recovered",
        "reused",
        "recovery_required",
        "transitioned",
        "observation_replayed",
    }
    for _, request, now_ms, first in walk(links):
        again = step(first.record, request, now_ms)
        assert again.record is first.record
        outcome = first.outcome
        if isinstance(outcome, Success):
            assert again.outcome is repeated.get(outcome, outcome)
        else:
            assert again.outcome is outcome
        told, retold = answer(first, request), answer(again, request)
        assert {k: v for k, v in told.items() if k not in flags} == {
            k: v for k, v in retold.items() if k not in flags
        }
        if again.outcome is Success.REUSED:
            assert retold["recovery_required"] is True


@given(LINKS)
def test_observations_are_bounded_by_two_a_generation(links: list[tuple[Request, int]]) -> None:
    """WC-LIMIT-2 follows from the graph: a generation moves at most twice."""
    for *_, done in walk(links):
        if done.record is not None:
            assert len(done.record.observations) <= 2 * done.record.generation
            assert len(done.record.observations) <= CONTRACT_LIMITS.observations


@given(st.lists(st.sampled_from(["settle", "abandon", "expire"]), min_size=20, max_size=20))
def test_sixteen_generations_and_no_more(ends: list[str]) -> None:
    """WC-LIMIT-1 and WC-LIMIT-2 at the full limits: 16 generations, each moved as often as it can.

    The last generation can still be settled while its claim is active.
    """
    record: Record | None = None
    now_ms = T0
    claim = Claim(holder="ann", claim_ttl_seconds=1, state_ttl_seconds=3600, retry_failed=True)
    refused = 0
    for number, end in enumerate(ends):
        done = step(record, claim, now_ms)
        record = done.record
        assert record is not None
        if done.outcome is ErrorCode.CHECKPOINT_LIMIT_REACHED:
            refused += 1
            continue
        generation = record.generation
        assert generation == number + 1
        move = Transition(
            holder="ann",
            generation=generation,
            to_stage=Stage.UNCERTAIN,
            observation_key=f"{number}-uncertain",
        )
        if record.stage is Stage.CLAIMED:
            record = step(record, move, now_ms).record
        failure = replace(
            move,
            to_stage=Stage.FAILED,
            observation_key=f"{number}-failed",
            evidence_type=EvidenceType.EXTERNAL_ABSENCE,
        )
        if end == "settle":
            settled = step(record, failure, now_ms)
            assert settled.outcome is Success.TRANSITIONED
            record = settled.record
        elif end == "abandon":
            record = step(record, Abandon(holder="ann", generation=generation), now_ms).record
        else:
            now_ms += 1000
        assert record is not None
        assert len(record.observations) <= CONTRACT_LIMITS.observations
    assert record is not None
    assert (record.generation, refused) == (16, 4)


@given(LINKS)
def test_deadlines_and_configuration_never_move(links: list[tuple[Request, int]]) -> None:
    """WC-TIME-3 and WC-CLAIM-1: within a record, and the claim's within a generation."""
    for before, _, _, done in walk(links):
        after = done.record
        if before is None or after is None or done.rule == "WC-CLAIM-1":
            continue
        assert after.state_expires_at_ms == before.state_expires_at_ms
        assert (after.claim_ttl_seconds, after.state_ttl_seconds, after.retry_failed) == (
            before.claim_ttl_seconds,
            before.state_ttl_seconds,
            before.retry_failed,
        )
        assert after.claim_expires_at_ms <= after.state_expires_at_ms
        if after.generation == before.generation:
            assert after.holder == before.holder
            assert after.claim_expires_at_ms <= before.claim_expires_at_ms
        else:
            assert after.generation == before.generation + 1


@given(LINKS)
def test_smaller_limits_refuse_earlier(links: list[tuple[Request, int]]) -> None:
    """The limits are parameters: a world of two generations has two."""
    record: Record | None = None
    now_ms = T0
    for request, delay_ms in links:
        now_ms += delay_ms
        done = step(record, request, now_ms, limits=Limits(generations=2))
        record = done.record
        if record is not None:
            assert record.generation <= 2


@given(
    REQUESTS,
    st.text(min_size=1, max_size=8),
    st.text(min_size=1, max_size=8),
)
def test_requests_survive_the_wire(request: Request, namespace: str, workflow_key: str) -> None:
    """``parse_request`` undoes ``format_request``; absent members stay absent."""
    identity = Identity(namespace=namespace, workflow_key=workflow_key)
    body = format_request(identity, request)
    assert None not in body.values()
    assert parse_request(body) == (identity, request)


@given(st.integers(parse_timestamp("0001-01-01T00:00:00.000Z"), 253_402_300_799_999))
def test_timestamps_survive_the_wire(time_ms: int) -> None:
    """WC-TIME-5, to the millisecond, over all the years that the form can write."""
    assert parse_timestamp(format_timestamp(time_ms)) == time_ms
