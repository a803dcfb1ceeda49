"""The scripts' view of the model: digests, stored fields and outcomes of its values."""

from base64 import urlsafe_b64encode
from functools import cache
from hashlib import sha256

from checkpoint_model import ErrorCode, Record, Success


@cache
def digest(text: str) -> str:
    """A digest of the form that the scripts take; keyed digests are the server's business."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def as_stored(record: Record | None) -> dict[str, str]:
    """What ``include/record.lua`` says that a record looks like in the store."""
    if record is None:
        return {}
    return {
        "stage": str(record.stage),
        "gen": str(record.generation),
        "holder": digest(record.holder),
        "claim_end": str(record.claim_expires_at_ms),
        "state_end": str(record.state_expires_at_ms),
        "changed": str(record.changed_at_ms),
        "claim_ttl": str(record.claim_ttl_seconds),
        "state_ttl": str(record.state_ttl_seconds),
        "retry": str(int(record.retry_failed)),
        "abandoned": str(int(record.abandoned)),
        "evidence": str(record.evidence_type or ""),
        "print": str(int(record.evidence_fingerprint_present)),
        **{f"o{digest(key)}": digest(repr(body)) for key, body in record.observations},
    }


def as_outcome(outcome: Success | ErrorCode) -> str:
    """The model's outcome in the scripts' words."""
    return outcome.name.lower() if isinstance(outcome, Success) else str(outcome)
