"""Produces the examples that the published descriptions show, by running the model.

The server takes nothing from the model that decides, so its examples are data: a committed file,
which a test compares with what is produced here. Every example is a sequence that whoever has a
server can send as it stands, with a ``workflow_key`` of their own and without waiting.

    python reference_server/tests/registry_examples.py    writes the committed file anew
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema

import checkpoint_reference_server.registry
from checkpoint_model import (
    ERRORS,
    Abandon,
    Claim,
    ErrorCode,
    EvidenceType,
    Identity,
    Record,
    Request,
    Stage,
    Status,
    Transition,
    answer,
    format_request,
    parse_timestamp,
    schemas,
    step,
)
from checkpoint_model.vocabulary import CONTRACT_LIMITS, WORKFLOW_HASH_PREFIX
from checkpoint_reference_server.registry.examples import FILE_NAME

COMMITTED: Final = Path(checkpoint_reference_server.registry.__file__).with_name(FILE_NAME)
IDENTITY: Final = Identity(
    namespace="crm-sync:invoices/2026", workflow_key="w_put-a-fresh-one-here"
)
ANN: Final = "h_worker-ann-run-0001"
BOB: Final = "h_worker-bob-run-0001"
SEEN: Final = "o_what-the-worker-saw"
NEW: Final = "o_what-it-saw-later-on"
FINGERPRINT: Final = "sha256:" + "5eed" * 16
WORKFLOW_HASH: Final = WORKFLOW_HASH_PREFIX + "c0de" * 16
"""A digest by some key; whoever tries an example gets another."""
NOW_MS: Final = parse_timestamp("2026-03-02T09:30:00.000Z")


def claim(holder: str = ANN, **members: Any) -> Claim:
    """A claim by a holder, but for the members given."""
    usual = {"claim_ttl_seconds": 120, "state_ttl_seconds": 900, "retry_failed": False}
    return Claim(holder=holder, **{**usual, **members})


def move(
    to_stage: Stage,
    evidence_type: EvidenceType | None = None,
    *,
    holder: str = ANN,
    generation: int = 1,
    observation_key: str = SEEN,
    evidence_fingerprint: str | None = None,
) -> Transition:
    """A transition, by the first holder in the first generation unless told otherwise."""
    return Transition(
        holder=holder,
        generation=generation,
        to_stage=to_stage,
        observation_key=observation_key,
        evidence_type=evidence_type,
        evidence_fingerprint=evidence_fingerprint,
    )


VERIFIED: Final = move(
    Stage.CALLER_VERIFIED, EvidenceType.PROVIDER_RECEIPT, evidence_fingerprint=FINGERPRINT
)
TAKEN_OVER: Final = (claim(), Abandon(holder=ANN, generation=1), claim(BOB))
WORN_OUT: Final = tuple(
    request
    for generation in range(1, CONTRACT_LIMITS.generations + 1)
    for request in (claim(), Abandon(holder=ANN, generation=generation))
)

SEQUENCES: Final[tuple[tuple[str, tuple[Request, ...]], ...]] = (
    ("claim: the first of a workflow", (claim(),)),
    ("claim: the same again, after a lost answer", (claim(), claim())),
    ("claim: taking over a generation whose claim was abandoned", TAKEN_OVER),
    (
        "claim: retrying a failed effect in a record that allows it",
        (
            claim(retry_failed=True),
            move(Stage.FAILED, EvidenceType.PROVIDER_REJECTION),
            claim(retry_failed=True),
        ),
    ),
    ("transition: the effect happened", (claim(), VERIFIED)),
    ("transition: the outcome is not known", (claim(), move(Stage.UNCERTAIN))),
    (
        "transition: settling a generation that was taken over",
        (
            *TAKEN_OVER,
            move(Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, holder=BOB, generation=2),
        ),
    ),
    ("transition: the same again, after a lost answer", (claim(), VERIFIED, VERIFIED)),
    ("status: by the holder", (claim(), Status(holder=ANN))),
    ("status: by somebody who is no holder", (claim(), Status())),
    ("abandon: before the claim ends", (claim(), Abandon(holder=ANN, generation=1))),
    ("CHECKPOINT_NOT_FOUND: nothing is remembered", (Status(holder=ANN),)),
    ("CHECKPOINT_NOT_HELD: another holder's claim is active", (claim(), claim(BOB))),
    ("CHECKPOINT_TERMINAL: settled for good", (claim(), VERIFIED, claim(BOB))),
    (
        "STALE_GENERATION: the holder was superseded",
        (*TAKEN_OVER, move(Stage.CALLER_VERIFIED, EvidenceType.PROVIDER_RECEIPT)),
    ),
    (
        "INVALID_TRANSITION: a rejection says nothing of an earlier attempt",
        (
            *TAKEN_OVER,
            move(Stage.FAILED, EvidenceType.PROVIDER_REJECTION, holder=BOB, generation=2),
        ),
    ),
    (
        "OBSERVATION_CONFLICT: one key for two outcomes",
        (
            claim(),
            move(Stage.UNCERTAIN),
            move(Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE),
        ),
    ),
    (
        "CONFIGURATION_CONFLICT: the record was made with another lifetime",
        (claim(), claim(state_ttl_seconds=1800)),
    ),
    ("CHECKPOINT_LIMIT_REACHED: every generation was used up", (*WORN_OUT, claim())),
)
"""What each example is called, and its requests; the last of them is the one answered."""

REFUSED: Final = (
    "INVALID_INPUT: a lifetime beyond the limit",
    {**format_request(IDENTITY, claim()), "state_ttl_seconds": 86_400},
)
"""Refused by the schema, so that the model is not asked at all."""


def produce() -> list[dict[str, Any]]:
    """All examples, in the order in which they read best."""
    return [*(_example(name, requests) for name, requests in SEQUENCES), _refused(*REFUSED)]


def text() -> str:
    """The committed file: one example a line."""
    lines = ",\n".join(json.dumps(example) for example in produce())
    return f"[\n{lines}\n]\n"


def _example(name: str, requests: Sequence[Request]) -> dict[str, Any]:
    record: Record | None = None
    for request in requests[:-1]:
        record = step(record, request, NOW_MS).record
    told = answer(step(record, requests[-1], NOW_MS), requests[-1])
    *given, asked = (format_request(IDENTITY, request) for request in requests)
    if "code" not in told:
        action, *others = told.items()
        told = dict([action, ("workflow_hash", WORKFLOW_HASH), *others])
    return {"name": name, "given": given, "request": asked, "response": told}


def _refused(name: str, request: dict[str, Any]) -> dict[str, Any]:
    schema = jsonschema.Draft202012Validator(schemas.load("request.schema.json"))
    assert not schema.is_valid(request)
    code = ErrorCode.INVALID_INPUT
    row = ERRORS[code]
    response = {
        "status": row.http_statuses[0],
        "code": str(code),
        "retry": row.retry,
        "charged": False,
    }
    return {"name": name, "given": [], "request": request, "response": response}


if __name__ == "__main__":
    COMMITTED.write_text(text(), encoding="utf-8")
