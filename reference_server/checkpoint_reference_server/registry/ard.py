"""The Agentic Resource Discovery manifest, revision 0.91: for services that index tools.

ARD asks for ``entries`` alone; ``specVersion`` and ``host`` are of its predecessor, whose readers
want them. The identifier begins with the domain of whoever answers for the deployment.
"""

from typing import Final

from checkpoint_model.vocabulary import LLMS_PATH, MCP_PATH, OPENAPI_PATH
from checkpoint_reference_server.registry.deployment import Deployment
from checkpoint_reference_server.registry.record import (
    MCP_PROTOCOL_REVISIONS,
    REPRESENTATIVE_QUERIES,
    TAGS,
    JsonObject,
    RegistryRecord,
)

OPENAPI_TYPE: Final = "application/vnd.oai.openapi+json"
SERVER_CARD_TYPE: Final = "application/mcp-server-card+json"
_SERVER_CARD_SCHEMA: Final = (
    "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
)
_AUTHORIZATION: Final = {
    "name": "Authorization",
    "description": "`Bearer` and a token of the caller's account.",
    "value": "Bearer {token}",
    "variables": {"token": {"description": "The token.", "isSecret": True, "isRequired": True}},
    "isRequired": True,
    "isSecret": True,
}
_PREDECESSOR_VERSION: Final = "1.0"


def make_ard_manifest(record: RegistryRecord, deployment: Deployment) -> JsonObject:
    """One entry for each binding."""
    entries = [
        {
            **_entry(record, deployment, "api", f"{record.title} (HTTP)"),
            "type": OPENAPI_TYPE,
            "url": deployment.url(OPENAPI_PATH),
        }
    ]
    if deployment.offers_mcp:
        entries.append(
            {
                **_entry(record, deployment, "mcp", f"{record.title} (MCP)"),
                "type": SERVER_CARD_TYPE,
                "data": make_server_card(record, deployment),
            }
        )
    return {
        "specVersion": _PREDECESSOR_VERSION,
        "host": {
            "displayName": deployment.publisher_domain,
            "documentationUrl": deployment.url(LLMS_PATH),
        },
        "entries": entries,
    }


def make_server_card(record: RegistryRecord, deployment: Deployment) -> JsonObject:
    """What an MCP client reads before it connects."""
    domain = ".".join(reversed(deployment.publisher_domain.split(".")))
    return {
        "$schema": _SERVER_CARD_SCHEMA,
        "name": f"{domain}/{record.name}",
        "title": record.title,
        "description": record.tagline,
        "version": record.version,
        "remotes": [
            {
                "type": "streamable-http",
                "url": deployment.url(MCP_PATH),
                "supportedProtocolVersions": list(MCP_PROTOCOL_REVISIONS),
                **({"headers": [_AUTHORIZATION]} if deployment.asks_for_token else {}),
            }
        ],
    }


def _entry(record: RegistryRecord, deployment: Deployment, namespace: str, name: str) -> JsonObject:
    return {
        "identifier": f"urn:air:{deployment.publisher_domain}:{namespace}:{record.name}",
        "displayName": name,
        "description": " ".join(
            [
                record.description,
                record.use_in_short,
                record.limits_in_words,
                "What callers owe:",
                *record.callers_owe,
            ]
        ),
        "tags": list(TAGS),
        "capabilities": [record.mcp_tool],
        "representativeQueries": list(REPRESENTATIVE_QUERIES),
        "version": record.version,
    }
