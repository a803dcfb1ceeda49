"""``llms.txt``: the tool as text for language models (WC-REG-5).

Its format has a title, a summary as a block quote, then text without headings, and only at the
end sections, which hold links alone.
"""

import json

from checkpoint_model.vocabulary import (
    ARD_PATH,
    ERRORS,
    HEALTH_PATH,
    MANIFEST_PATH,
    MCP_PATH,
    OPENAPI_PATH,
    TOOL_PATH,
)
from checkpoint_reference_server.registry.deployment import Deployment
from checkpoint_reference_server.registry.markdown import bullets, code_list, steps
from checkpoint_reference_server.registry.mcp_tool import make_input_schema
from checkpoint_reference_server.registry.record import (
    ACTION_WORDS,
    ERROR_WORDS,
    EVIDENCE_WORDS,
    IDEMPOTENCY_IDENTITY,
    MCP_PROTOCOL_REVISIONS,
    STAGE_WORDS,
    JsonObject,
    RegistryRecord,
)


def make_llms_txt(record: RegistryRecord, deployment: Deployment) -> str:
    """The whole text."""
    first = record.examples[0]
    parts = [
        f"# {record.title}",
        f"> {record.summary}",
        f"{record.caveats} This is version {record.version} of the contract.",
        "Endpoints:",
        bullets(_endpoints(record, deployment)),
        "Use it when:",
        bullets(record.use_when),
        "Do not use it when:",
        bullets(record.do_not_use_when),
        "What callers owe:",
        bullets(record.callers_owe),
        "A typical run:",
        steps(record.typical_run),
        f"For example (put a `workflow_key` of your own in), {first.name}:",
        f"```json\n{json.dumps(first.request, indent=2)}\n```",
        "Actions:",
        bullets(_actions(record)),
        "Members (one that the action does not have is refused):",
        bullets(_members(record)),
        "Stages:",
        bullets(f"`{stage}`: {words}" for stage, words in STAGE_WORDS.items()),
        (
            "Moves within a generation, by a `transition` of the holder while its claim is active, "
            "each with exactly one of the evidence types named; there are no others:"
        ),
        bullets(_moves(record)),
        "Evidence types (nothing checks them: they are what the caller says that it saw):",
        bullets(f"`{evidence}`: {words}" for evidence, words in EVIDENCE_WORDS.items()),
        (
            "Errors are problem objects (RFC 9457). Decide by `code`; where `retry` is true, send "
            "the same request again after `retry_after_seconds`:"
        ),
        bullets(_errors()),
        f"Limits: {record.limits_in_words}",
        f"Durability: {deployment.durability}",
        (
            "Privacy: keys, holders and fingerprints are hashed with the server's key; they are "
            "neither stored nor returned nor logged."
        ),
        "## Descriptions",
        bullets(_links(deployment)),
    ]
    return "\n\n".join(parts) + "\n"


def _endpoints(record: RegistryRecord, deployment: Deployment) -> list[str]:
    endpoints = [
        f"HTTP: `POST {deployment.url(TOOL_PATH)}`, one JSON object in, one out.",
        f"Health: `GET {deployment.url(HEALTH_PATH)}`, 200 while the store answers, else 503.",
    ]
    if deployment.asks_for_token:
        endpoints.append(
            "The tool asks for a token of your account, by HTTP as by MCP: "
            "`Authorization: Bearer TOKEN`; without one the answer is 401. The account is part of "
            "the workflow identity."
        )
    if deployment.offers_mcp:
        endpoints.insert(
            1,
            f"MCP: Streamable HTTP at `{deployment.url(MCP_PATH)}`, tool `{record.mcp_tool}`, "
            f"protocol revisions {', '.join(MCP_PROTOCOL_REVISIONS)}; it acts on the same records.",
        )
    return endpoints


def _actions(record: RegistryRecord) -> list[str]:
    branches = {branch["title"]: branch for branch in record.request_schema()["oneOf"]}
    lines = []
    for action, words in ACTION_WORDS.items():
        branch = branches[action]
        optional = [name for name in branch["properties"] if name not in branch["required"]]
        line = f"`{action}`: {words} Members: {code_list(branch['required'])}"
        line += f"; optional {code_list(optional)}." if optional else "."
        known = IDEMPOTENCY_IDENTITY[action]
        if known:
            line += f" Sent again, it is known by {code_list(known)}."
        lines.append(line)
    return lines


def _members(record: RegistryRecord) -> list[str]:
    properties: JsonObject = make_input_schema(record)["properties"]
    return [
        f"`{name}` ({_kind(schema)}): {schema['description']}"
        for name, schema in properties.items()
    ]


def _kind(schema: JsonObject) -> str:
    """What values a member takes, in words."""
    if "enum" in schema:
        return f"one of {code_list(schema['enum'])}"
    if "minimum" in schema:
        return f"integer {schema['minimum']} to {schema['maximum']}"
    if "pattern" in schema:
        return f"string, all of it `{schema['pattern'].removeprefix('^').removesuffix('$')}`"
    return str(schema["type"])


def _moves(record: RegistryRecord) -> list[str]:
    return [
        f"`{move.source}` to `{move.target}`: {code_list(move.evidence) or 'no evidence'}."
        for move in record.graph
    ]


def _errors() -> list[str]:
    return [
        f"`{code}` ({'/'.join(map(str, row.http_statuses))}"
        f"{', retry' if row.retry else ''}): {ERROR_WORDS[code].detail} "
        f"{ERROR_WORDS[code].recovery}"
        for code, row in ERRORS.items()
    ]


def _links(deployment: Deployment) -> list[str]:
    links = (
        ("Manifest", MANIFEST_PATH, "all of this for programs, with schemas and more examples"),
        ("OpenAPI", OPENAPI_PATH, "the HTTP binding, for client generators"),
        ("Discovery", ARD_PATH, "the entries for discovery services (ARD)"),
    )
    return [f"[{name}]({deployment.url(path)}): {notes}" for name, path, notes in links]
