"""The contract's words and numbers: stages, actions, evidence, errors, limits.

Everything here is data. What decides is in :mod:`checkpoint_model.machine`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

CONTRACT_VERSION: Final = "1.1.0"
"""The version of the contract that this package states (head of ``CONTRACT.md``)."""


class Stage(StrEnum):
    """Where a record stands (section 2)."""

    CLAIMED = "claimed"
    UNCERTAIN = "uncertain"
    CALLER_VERIFIED = "caller_verified"
    FAILED = "failed"
    COMPENSATED = "compensated"


class Action(StrEnum):
    """What a request asks for (section 3)."""

    CLAIM = "claim"
    TRANSITION = "transition"
    STATUS = "status"
    ABANDON = "abandon"


class EvidenceType(StrEnum):
    """What a caller says that it saw (section 3)."""

    PROVIDER_RECEIPT = "provider_receipt"
    EXTERNAL_READ = "external_read"
    PROVIDER_REJECTION = "provider_rejection"
    EXTERNAL_ABSENCE = "external_absence"
    NOT_ATTEMPTED = "not_attempted"
    COMPENSATION_RECEIPT = "compensation_receipt"
    OPERATOR_ATTESTATION = "operator_attestation"


class ErrorCode(StrEnum):
    """The ``code`` of a problem object (section 8)."""

    INVALID_INPUT = "INVALID_INPUT"
    CHECKPOINT_NOT_FOUND = "CHECKPOINT_NOT_FOUND"
    CHECKPOINT_NOT_HELD = "CHECKPOINT_NOT_HELD"
    CHECKPOINT_TERMINAL = "CHECKPOINT_TERMINAL"
    STALE_GENERATION = "STALE_GENERATION"
    INVALID_TRANSITION = "INVALID_TRANSITION"
    OBSERVATION_CONFLICT = "OBSERVATION_CONFLICT"
    CONFIGURATION_CONFLICT = "CONFIGURATION_CONFLICT"
    CHECKPOINT_LIMIT_REACHED = "CHECKPOINT_LIMIT_REACHED"
    TOOL_PAUSED = "TOOL_PAUSED"
    RATE_LIMITED = "RATE_LIMITED"
    DEPENDENCY_UNAVAILABLE = "DEPENDENCY_UNAVAILABLE"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorRow:
    """One row of the error table of section 8 (WC-ERR-1).

    ``http_statuses`` lists every status that the code may have over HTTP, the usual one first.
    """

    http_statuses: tuple[int, ...]
    retry: bool
    decided: bool
    """Whether section 6 decides it, so that WC-ERR-2 gives it the record's members."""


def _row(*http_statuses: int, retry: bool = False, decided: bool = False) -> ErrorRow:
    return ErrorRow(http_statuses=http_statuses, retry=retry, decided=decided)


ERRORS: Final[Mapping[ErrorCode, ErrorRow]] = MappingProxyType(
    {
        ErrorCode.INVALID_INPUT: _row(400, 413, 415),
        ErrorCode.CHECKPOINT_NOT_FOUND: _row(404, decided=True),
        ErrorCode.CHECKPOINT_NOT_HELD: _row(409, decided=True),
        ErrorCode.CHECKPOINT_TERMINAL: _row(409, decided=True),
        ErrorCode.STALE_GENERATION: _row(409, decided=True),
        ErrorCode.INVALID_TRANSITION: _row(409, decided=True),
        ErrorCode.OBSERVATION_CONFLICT: _row(409, decided=True),
        ErrorCode.CONFIGURATION_CONFLICT: _row(409, decided=True),
        ErrorCode.CHECKPOINT_LIMIT_REACHED: _row(409, decided=True),
        ErrorCode.TOOL_PAUSED: _row(503, retry=True),
        ErrorCode.RATE_LIMITED: _row(429, retry=True),
        ErrorCode.DEPENDENCY_UNAVAILABLE: _row(503, retry=True),
    }
)
"""The error table of section 8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The numbers that bound a record; smaller ones make small worlds to explore."""

    generations: int = 16
    """WC-LIMIT-1."""
    observations: int = 32
    """WC-LIMIT-2: what a record keeps; it follows from two moves a generation."""
    claim_ttl_seconds: tuple[int, int] = (1, 900)
    state_ttl_seconds: tuple[int, int] = (1, 3600)


CONTRACT_LIMITS: Final = Limits()
"""The limits of the contract itself."""

BODY_BYTES_MAX: Final = 8192
"""WC-IN-4: a longer body is refused."""
MINIMUM_ACTION_SAFETY_MARGIN_SECONDS: Final = 15
"""Section 7: the same in every result."""
DEPENDENCY_ANSWER_SECONDS_MAX: Final = 5
"""WC-ERR-5: ``DEPENDENCY_UNAVAILABLE`` comes within this time of the request's last byte."""
HMAC_KEY_BYTES_MIN: Final = 32
"""WC-ID-5."""
WORKFLOW_HASH_PREFIX: Final = "hmac-sha256:"
"""WC-ID-1."""
TOOL_PATH: Final = "/v1/tools/workflow-checkpoint"
"""WC-HTTP-1."""
HEALTH_PATH: Final = "/healthz"
"""WC-HTTP-3."""
MCP_PATH: Final = "/mcp"
"""WC-MCP-1."""
MCP_TOOL: Final = "workflow_checkpoint"
"""WC-MCP-1: the name of the one tool."""
MANIFEST_PATH: Final = f"{TOOL_PATH}/manifest.json"
OPENAPI_PATH: Final = "/openapi.json"
LLMS_PATH: Final = "/llms.txt"
ARD_PATH: Final = "/.well-known/ard.json"
"""Where the descriptions of section 13 are."""
