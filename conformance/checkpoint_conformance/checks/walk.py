"""Every decision row and every cell of graph and evidence, once, by fixed sequences.

What the drawn sequences reach by chance this one reaches for certain, so that no run lacks a
row. Nothing here says what to expect: the oracle does. All sequences are under way at once.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Final

from checkpoint_conformance.fixed_sequences import Due, FixedSequence, Making, at_once, send_all
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import fresh_key
from checkpoint_model import Abandon, Claim, EvidenceType, Request, Stage, Status, Transition

CLAIM_TTL_SECONDS: Final = 900
STATE_TTL_SECONDS: Final = 3600
"""As long as can be: without controls no deadline must come in the middle."""
FINGERPRINT: Final = "sha256:" + "0123456789abcdef" * 4
OTHER_FINGERPRINT: Final = "sha256:" + "fedcba9876543210" * 4
_SETTLED_BY: Final = {
    Stage.CALLER_VERIFIED: EvidenceType.PROVIDER_RECEIPT,
    Stage.FAILED: EvidenceType.NOT_ATTEMPTED,
    Stage.COMPENSATED: EvidenceType.COMPENSATION_RECEIPT,
}
_TO_STAGES: Final = [stage for stage in Stage if stage is not Stage.CLAIMED]


class Cast:
    """Fresh names for the workers of one sequence, and the requests that they send."""

    def __init__(self) -> None:
        self.ann, self.bob, self.cy = (fresh_key("h") for _ in range(3))

    def claim(
        self,
        holder: str,
        *,
        retry: bool = False,
        claim_ttl_seconds: int = CLAIM_TTL_SECONDS,
        state_ttl_seconds: int = STATE_TTL_SECONDS,
    ) -> Claim:
        """A claim as every one of the sequence sends it, but for what is changed."""
        return Claim(
            holder=holder,
            claim_ttl_seconds=claim_ttl_seconds,
            state_ttl_seconds=state_ttl_seconds,
            retry_failed=retry,
        )

    def brief_claim(self, holder: str) -> Claim:
        """A claim whose deadlines come within the sequence: after 20 s and 30 s."""
        return self.claim(holder, claim_ttl_seconds=20, state_ttl_seconds=30)

    def move(
        self,
        holder: str,
        generation: int,
        to_stage: Stage,
        evidence_type: EvidenceType | None = None,
        *,
        key: str | None = None,
        fingerprint: str | None = None,
    ) -> Transition:
        """A transition under a fresh observation key, or the one given."""
        return Transition(
            holder=holder,
            generation=generation,
            to_stage=to_stage,
            observation_key=key or fresh_key("o"),
            evidence_type=evidence_type,
            evidence_fingerprint=fingerprint,
        )


def _claims_and_moves() -> FixedSequence:
    """From a first claim to settlement, with everything that is refused on the way."""
    cast = Cast()
    ann, bob, cy = cast.ann, cast.bob, cast.cy
    seen = fresh_key("o")
    doubt = cast.move(ann, 1, Stage.UNCERTAIN, key=seen)
    done = cast.move(
        bob, 2, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=FINGERPRINT
    )
    return at_once(
        # Nothing is there, whoever asks and for whatever generation.
        Status(),
        Status(holder=ann),
        cast.move(ann, 1, Stage.UNCERTAIN, key=seen),
        cast.move(bob, 2, Stage.FAILED, EvidenceType.NOT_ATTEMPTED),
        cast.move(cy, 16, Stage.UNCERTAIN, EvidenceType.NOT_ATTEMPTED),
        Abandon(holder=ann, generation=1),
        Abandon(holder=bob, generation=2),
        Abandon(holder=cy, generation=16),
        cast.claim(ann),
        cast.claim(ann),
        Status(holder=ann),
        Status(holder=bob),
        Status(),
        cast.claim(bob),
        cast.claim(ann, claim_ttl_seconds=899),
        cast.claim(bob, state_ttl_seconds=3599),
        cast.claim(ann, retry=True),
        cast.move(ann, 2, Stage.UNCERTAIN),
        cast.move(bob, 1, Stage.UNCERTAIN),
        # Refused under a key, corrected, and sent again under the same key.
        cast.move(ann, 1, Stage.UNCERTAIN, EvidenceType.EXTERNAL_READ, key=seen),
        doubt,
        doubt,
        cast.move(bob, 1, Stage.UNCERTAIN, key=seen),
        cast.move(ann, 2, Stage.UNCERTAIN, key=seen),
        cast.move(ann, 1, Stage.COMPENSATED, key=seen),
        cast.move(ann, 1, Stage.UNCERTAIN, EvidenceType.EXTERNAL_READ, key=seen),
        cast.claim(ann),
        cast.move(ann, 1, Stage.UNCERTAIN),
        Abandon(holder=ann, generation=2),
        Abandon(holder=bob, generation=1),
        *[Abandon(holder=ann, generation=1)] * 4,
        Abandon(holder=ann, generation=2),
        Abandon(holder=bob, generation=1),
        Status(holder=ann),
        cast.move(ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
        cast.claim(cy, claim_ttl_seconds=1),
        cast.claim(bob),
        cast.claim(bob),
        cast.claim(cy),
        doubt,  # replayed after a take-over: its generation is lower than the result's
        cast.move(ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
        Abandon(holder=ann, generation=1),
        Abandon(holder=bob, generation=1),
        cast.move(ann, 2, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
        done,
        done,
        doubt,
        Status(holder=bob),
        cast.claim(bob),
        cast.claim(cy, claim_ttl_seconds=1),
        cast.move(bob, 2, Stage.COMPENSATED, EvidenceType.COMPENSATION_RECEIPT),
        cast.move(ann, 2, Stage.COMPENSATED, EvidenceType.COMPENSATION_RECEIPT),
        cast.move(bob, 1, Stage.COMPENSATED, EvidenceType.COMPENSATION_RECEIPT),
        cast.move(
            bob,
            2,
            Stage.CALLER_VERIFIED,
            EvidenceType.EXTERNAL_READ,
            key=done.observation_key,
            fingerprint=OTHER_FINGERPRINT,
        ),
        Abandon(holder=bob, generation=2),
        Abandon(holder=bob, generation=1),
        Abandon(holder=cy, generation=2),
    )


def _retries(retry: bool) -> FixedSequence:
    """A failure that may be retried, three times over, or one that may not."""
    cast = Cast()
    requests: list[Request] = [cast.claim(cast.ann, retry=retry)]
    for generation, holder in enumerate((cast.ann, cast.bob, cast.cy, cast.ann), start=1):
        failure = cast.move(
            holder,
            generation,
            Stage.FAILED,
            EvidenceType.PROVIDER_REJECTION,
            fingerprint=FINGERPRINT,
        )
        following = (cast.bob, cast.cy, cast.ann, cast.bob)[generation - 1]
        requests += [
            failure,
            failure,
            Status(holder=holder),
            Status(),
            cast.move(holder, generation, Stage.COMPENSATED, EvidenceType.OPERATOR_ATTESTATION),
            Abandon(holder=holder, generation=generation),
            cast.claim(cast.bob, retry=not retry),
            cast.claim(following, retry=retry),
            Status(holder=following),
            failure,
        ]
        if not retry:
            break
    return at_once(*requests)


def _limit(ends_with: str) -> FixedSequence:
    """All 16 generations, by abandoning each; the last can be settled, or lapses for good.

    On the way every generation moves twice at most, so one record keeps all the observations
    that it can, and its first is still replayed at the end.
    """
    cast = Cast()
    requests: list[Request] = []
    retry = ends_with == "failed"
    first = None
    for generation in range(1, 17):
        holder = (cast.ann, cast.bob)[generation % 2]
        requests.append(cast.claim(holder, retry=retry))
        if generation == 16:
            # The last claim is held like any other: the limit is for whoever wants another.
            requests += [cast.claim(holder, retry=retry), cast.claim(cast.cy, retry=retry)]
        doubt = cast.move(holder, generation, Stage.UNCERTAIN)
        failure = cast.move(holder, generation, Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE)
        if retry:
            requests += [doubt, failure]
        elif generation == 1:
            requests.append(doubt)
        first = first or doubt
        if generation == 16 and ends_with == "settled":
            settled = EvidenceType.OPERATOR_ATTESTATION
            requests.append(cast.move(holder, 16, Stage.COMPENSATED, settled))
        elif not retry:
            requests.append(Abandon(holder=holder, generation=generation))
    assert first is not None
    requests += [
        cast.claim(cast.cy, retry=retry),
        cast.claim(cast.ann, retry=retry),
        Status(holder=cast.ann),
        first,
    ]
    return at_once(*requests)


def cells(run: Run) -> None:
    """Every cell of the matrix of graph and evidence, and what is settled, by themselves."""
    send_all(run, _cells())


def _cells() -> list[Making]:
    """Every cell of the matrix of graph and evidence, with and without a fingerprint.

    Then what is settled, which no evidence moves.
    """
    evidence = [
        (None, None),
        *product(EvidenceType, (None, FINGERPRINT)),
    ]
    moves = product((False, True), _TO_STAGES, evidence)
    settled = product(_SETTLED_BY, _TO_STAGES, (False, True))
    return [
        *(partial(_cell, doubtful, to_stage, *kind) for doubtful, to_stage, kind in moves),
        *(partial(_settled_cell, *cell) for cell in settled),
    ]


def _cell(
    doubtful: bool, to_stage: Stage, kind: EvidenceType | None, fingerprint: str | None
) -> FixedSequence:
    cast = Cast()
    return at_once(
        cast.claim(cast.ann),
        *([cast.move(cast.ann, 1, Stage.UNCERTAIN)] if doubtful else []),
        cast.move(cast.ann, 1, to_stage, kind, fingerprint=fingerprint),
    )


def _settled_cell(stage: Stage, to_stage: Stage, retry: bool) -> FixedSequence:
    cast = Cast()
    return at_once(
        cast.claim(cast.ann, retry=retry),
        cast.move(cast.ann, 1, stage, _SETTLED_BY[stage]),
        cast.move(cast.ann, 1, to_stage, _SETTLED_BY.get(to_stage)),
    )


def _deadlines() -> list[Making]:
    """Both deadlines, a millisecond before, at, and after, for every action (WC-TIME-2)."""
    return [
        partial(_deadline, deadline_ms + offset_ms, doubtful, abandoned, asking, first)
        for offset_ms, doubtful, abandoned in product((-1, 0, 1), (False, True), (False, True))
        for deadline_ms, asking in product((20_000, 30_000), ("holder", "other"))
        for first in ("status", "transition", "abandon", "claim")
    ]


def _deadline(
    at_ms: int, doubtful: bool, abandoned: bool, asking: str, first: str
) -> FixedSequence:
    cast = Cast()
    caller = cast.ann if asking == "holder" else cast.bob
    by_name: dict[str, Request] = {
        "status": Status(holder=caller),
        "transition": cast.move(caller, 1, Stage.CALLER_VERIFIED, EvidenceType.PROVIDER_RECEIPT),
        "abandon": Abandon(holder=caller, generation=1),
        "claim": cast.brief_claim(caller),
    }
    before: list[Request] = [cast.brief_claim(cast.ann)]
    if doubtful:
        before.append(cast.move(cast.ann, 1, Stage.UNCERTAIN))
    if abandoned:
        before.append(Abandon(holder=cast.ann, generation=1))
    # One of them first, undisturbed; then a status shows what it left behind.
    return _timed((0, *before), (at_ms, by_name[first], by_name["status"]))


def _timed(*moments: tuple[int, *tuple[Request, ...]]) -> FixedSequence:
    """Requests by the moments that they are due at, in milliseconds."""
    return FixedSequence(
        requests=[
            Due(request=request, at_ms=at_ms)
            for at_ms, *requests in moments
            for request in requests
        ]
    )


def _capped_claim(offset_ms: int) -> FixedSequence:
    """WC-TIME-3: a late generation's claim ends with the record, not after it."""
    cast = Cast()
    return _timed(
        (0, cast.brief_claim(cast.ann)),
        (25_000, cast.brief_claim(cast.bob), Status(holder=cast.bob)),
        (30_000 + offset_ms, Status(holder=cast.bob), cast.brief_claim(cast.bob)),
    )


def _forgotten(offset_ms: int) -> FixedSequence:
    """WC-TIME-2 for observations: what a record that expired had applied is applied no more."""
    cast = Cast()
    doubt = cast.move(cast.ann, 1, Stage.UNCERTAIN)
    again = cast.move(cast.bob, 1, Stage.UNCERTAIN, key=doubt.observation_key)
    return _timed((0, cast.brief_claim(cast.ann), doubt), (30_000 + offset_ms, doubt, again))


def _without_time() -> Sequence[Making]:
    """The sequences in which no time passes, the longest first."""
    return [
        *(partial(_limit, ends_with) for ends_with in ("settled", "abandoned", "failed")),
        _claims_and_moves,
        *(partial(_retries, retry) for retry in (True, False)),
        *_cells(),
    ]


def walk(run: Run) -> None:
    """All of the sequences; each goes to its end or to its first fault."""
    send_all(run, _without_time())


def walk_frozen(run: Run) -> None:
    """The same under a frozen clock, and the deadlines to the millisecond."""
    with run.frozen():
        send_all(
            run,
            [
                *_without_time(),
                *_deadlines(),
                *(partial(_capped_claim, offset_ms) for offset_ms in (-1, 0, 1)),
                *(partial(_forgotten, offset_ms) for offset_ms in (-1, 0)),
            ],
        )


CHECKS = (
    Check(
        name="walk",
        title="Every decision row and graph cell",
        run=walk,
        seconds=4,
        only_without_controls=True,
    ),
    Check(
        name="walk",
        title="Every decision row, graph cell and deadline, clock frozen",
        run=walk_frozen,
        seconds=4,
        needs_controls=True,
    ),
)
