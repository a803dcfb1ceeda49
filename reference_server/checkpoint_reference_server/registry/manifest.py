"""The machine manifest: exactly the members that the contract's example has (WC-REG-4)."""

from dataclasses import asdict

from checkpoint_model.vocabulary import ERRORS, MCP_PATH, TOOL_PATH, Stage
from checkpoint_reference_server.registry.deployment import Deployment
from checkpoint_reference_server.registry.record import (
    ERROR_WORDS,
    IDEMPOTENCY_IDENTITY,
    NEVER_STORED,
    STORED,
    JsonObject,
    RegistryRecord,
)


def make_manifest(record: RegistryRecord, deployment: Deployment) -> JsonObject:
    """What a program reads that wants to use the tool."""
    limits = record.limits
    return {
        "name": record.name,
        "version": record.version,
        "description": record.description,
        "use_when": list(record.use_when),
        "do_not_use_when": list(record.do_not_use_when),
        "mode": "atomic",
        "endpoint": {"method": "POST", "path": TOOL_PATH},
        "mcp": ({"path": MCP_PATH, "tool": record.mcp_tool} if deployment.offers_mcp else None),
        "idempotency": {
            "requirement": "required",
            "identity": {
                str(action): list(members) for action, members in IDEMPOTENCY_IDENTITY.items()
            },
        },
        "limits": {
            "generations": limits.generations,
            "observations": limits.observations,
            "claim_ttl_seconds": list(limits.claim_ttl_seconds),
            "state_ttl_seconds": list(limits.state_ttl_seconds),
            "body_bytes": limits.body_bytes,
        },
        "retention": {
            "maximum_seconds": limits.state_ttl_seconds[1],
            "stored": list(STORED),
            "never_stored": list(NEVER_STORED),
        },
        "durability": deployment.durability,
        "callers_owe": list(record.callers_owe),
        "stages": [str(stage) for stage in Stage],
        "graph": [
            {
                "from": str(move.source),
                "to": str(move.target),
                "evidence": [str(evidence) for evidence in move.evidence],
            }
            for move in record.graph
        ],
        "errors": [
            {
                "code": str(code),
                "http_status": row.http_statuses[0],
                "retry": row.retry,
                "charged": False,
                "recovery": ERROR_WORDS[code].recovery,
            }
            for code, row in ERRORS.items()
        ],
        "input_schema": record.request_schema(),
        "output_schema": record.result_schema(),
        "error_schema": record.problem_schema(),
        "examples": [asdict(example) for example in record.examples],
        "tested_with": list(record.tested_with),
    }
