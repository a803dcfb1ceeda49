"""Histories that the search gives up before it stands still are explained as well."""

from checkpoint_model import Claim, Stage, Status, Transition, answer, step
from checkpoint_model.linearizability import Answered, Illegal, Operation, check

NOW_MS = 1_785_000_000_000
HASH = "hmac-sha256:" + "0" * 64


def test_what_is_too_late_beside_what_could_go_on_is_named() -> None:
    """After a claim, at one and the same time: nothing was found, and a transition was applied.

    The transition could go on, but nothing that follows it explains the other.
    """
    claim = Claim(holder="h", claim_ttl_seconds=60, state_ttl_seconds=90, retry_failed=False)
    move = Transition(
        holder="h",
        generation=1,
        to_stage=Stage.UNCERTAIN,
        observation_key="o",
        evidence_type=None,
        evidence_fingerprint=None,
    )
    claimed = step(None, claim, NOW_MS)
    moved = step(claimed.record, move, NOW_MS + 2)
    nothing = step(None, Status(holder=None), NOW_MS + 2)

    def operation(
        client: str, asked: Claim | Transition | Status, told: dict[str, object], at: int
    ) -> Operation:
        status = 404 if "code" in told else 200
        members = told if "code" in told else {**told, "workflow_hash": HASH}
        return Operation(
            client=client,
            request=asked,
            called_ns=at,
            returned_ns=at + 5,
            answer=Answered(status=status, members=members),
        )

    found = check(
        [
            operation("a", claim, answer(claimed, claim), 0),
            operation("b", Status(holder=None), answer(nothing, Status(holder=None)), 10),
            operation("a", move, answer(moved, move), 12),
        ]
    )
    assert isinstance(found, Illegal)
    assert (found.operation, found.rule) == (1, "WC-STATUS-2")
