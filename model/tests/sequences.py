"""Sequences of requests as they arise: what the model's tests draw from, and how they step."""

from hypothesis import strategies as st

from checkpoint_model import (
    Abandon,
    Claim,
    EvidenceType,
    Record,
    Request,
    Stage,
    Status,
    Step,
    Transition,
    step,
)

T0 = 1_700_000_000_000
HOLDERS = st.sampled_from(["ann", "bob", "cy"])
CLAIMS = st.builds(
    Claim,
    holder=HOLDERS,
    claim_ttl_seconds=st.sampled_from([1, 2]),
    state_ttl_seconds=st.sampled_from([3, 60]),
    retry_failed=st.booleans(),
)
TRANSITIONS = st.builds(
    Transition,
    holder=HOLDERS,
    generation=st.integers(1, 4),
    to_stage=st.sampled_from([s for s in Stage if s is not Stage.CLAIMED]),
    observation_key=st.sampled_from(["one", "two", "three"]),
    evidence_type=st.none() | st.sampled_from(EvidenceType),
    evidence_fingerprint=st.none(),
) | st.builds(
    Transition,
    holder=HOLDERS,
    generation=st.integers(1, 16),
    to_stage=st.sampled_from([s for s in Stage if s is not Stage.CLAIMED]),
    observation_key=st.sampled_from(["one", "two", "three"]),
    evidence_type=st.sampled_from(EvidenceType),
    evidence_fingerprint=st.sampled_from(["sha256:1", "sha256:2"]),
)
ABANDONS = st.builds(Abandon, holder=HOLDERS, generation=st.integers(1, 4))
STATUSES = st.builds(Status, holder=st.none() | HOLDERS)
REQUESTS = CLAIMS | TRANSITIONS | ABANDONS | STATUSES
DELAYS_MS = st.sampled_from([0, 0, 0, 1, 999, 1000, 1001, 2000, 3000]) | st.integers(-2000, 4000)
LINKS = st.lists(st.tuples(REQUESTS, DELAYS_MS), max_size=25)


def walk(links: list[tuple[Request, int]]) -> list[tuple[Record | None, Request, int, Step]]:
    """Step through a sequence of requests, each so much later than the one before."""
    record: Record | None = None
    now_ms = T0
    path = []
    for request, delay_ms in links:
        now_ms += delay_ms
        done = step(record, request, now_ms)
        path.append((record, request, now_ms, done))
        record = done.record
    return path
