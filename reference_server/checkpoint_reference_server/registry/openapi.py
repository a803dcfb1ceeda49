"""The OpenAPI 3.1 document of the HTTP binding (section 11)."""

from collections.abc import Iterable, Mapping
from typing import Final

from checkpoint_model.vocabulary import (
    ERRORS,
    HEALTH_PATH,
    LLMS_PATH,
    MANIFEST_PATH,
    TOOL_PATH,
    Action,
    ErrorCode,
)
from checkpoint_reference_server.registry.deployment import Deployment
from checkpoint_reference_server.registry.examples import Example
from checkpoint_reference_server.registry.markdown import bullets, code_list, steps, table
from checkpoint_reference_server.registry.record import (
    ACTION_WORDS,
    ERROR_WORDS,
    EVIDENCE_WORDS,
    MEMBER_WORDS,
    PROBLEM_WORDS,
    RESULT_WORDS,
    STAGE_WORDS,
    JsonObject,
    RegistryRecord,
    problem_type,
)

_EXAMPLE_RETRY_AFTER_SECONDS: Final = 1
_TYPE_NAMES: Final = {str: "string", int: "integer", bool: "boolean"}
_PROBLEM_TYPE: Final = "application/problem+json"
_NO_STORE: Final = {
    "Cache-Control": {
        "description": "An answer is true of its moment alone.",
        "schema": {"type": "string", "const": "no-store"},
    }
}
_SCHEME: Final = "bearer"
_SCHEMES: Final = {
    _SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": (
            "A token of the caller's account. The account is part of the workflow identity: what "
            "one account calls by a key is another workflow than what another calls by it."
        ),
    }
}
_UNAUTHORIZED: Final = {
    "description": "There is no token, or none that is known. In plain text and without a code.",
    "headers": {
        "WWW-Authenticate": {
            "description": "That a bearer token is asked for.",
            "required": True,
            "schema": {"type": "string"},
        }
    },
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "Seconds to wait, as in `retry_after_seconds`.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}


def make_openapi(record: RegistryRecord, deployment: Deployment) -> JsonObject:
    """What a client generator or a page of documentation is made from."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": record.title,
            "version": record.version,
            "summary": record.summary,
            "description": _description(record, deployment),
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": deployment.public_url, "description": "This deployment."}],
        "externalDocs": {
            "description": "The same for language models",
            "url": deployment.url(LLMS_PATH),
        },
        # Of the tool alone where a token is asked for, and said there.
        "security": [],
        "tags": [
            {"name": "checkpoint", "description": "The tool."},
            {"name": "operations", "description": "For whoever operates the deployment."},
        ],
        "paths": {
            TOOL_PATH: {"post": _tool_operation(record, deployment)},
            HEALTH_PATH: {"get": _health_operation()},
        },
        "components": {
            "schemas": _schemas(record),
            **({"securitySchemes": _SCHEMES} if deployment.asks_for_token else {}),
        },
    }


def _description(record: RegistryRecord, deployment: Deployment) -> str:
    parts = [
        record.caveats,  # what stands before them is the summary of `info`
        "## When to use it",
        bullets(record.use_when),
        "## When not to use it",
        bullets(record.do_not_use_when),
        "## What callers owe",
        bullets(record.callers_owe),
        "## A typical run",
        steps(record.typical_run),
        "## Limits and durability",
        record.limits_in_words,
        deployment.durability,
        "## Stages",
        table(("stage", "meaning"), ((f"`{s}`", words) for s, words in STAGE_WORDS.items())),
        "## Moves, and the evidence that each needs",
        table(
            ("from", "to", "`evidence_type`"),
            (
                (
                    f"`{move.source}`",
                    f"`{move.target}`",
                    code_list(move.evidence) or "none",
                )
                for move in record.graph
            ),
        ),
        "## Evidence",
        table(
            ("`evidence_type`", "what the caller says"),
            ((f"`{evidence}`", words) for evidence, words in EVIDENCE_WORDS.items()),
        ),
        f"A program finds all of this, with more examples, in the manifest at `{MANIFEST_PATH}`.",
    ]
    return "\n\n".join(parts)


def _tool_operation(record: RegistryRecord, deployment: Deployment) -> JsonObject:
    by_status: dict[int, list[ErrorCode]] = {}
    for code, row in ERRORS.items():
        for status in row.http_statuses:
            by_status.setdefault(status, []).append(code)
    return {
        "operationId": record.mcp_tool,
        "tags": ["checkpoint"],
        **({"security": [{_SCHEME: []}]} if deployment.asks_for_token else {}),
        "summary": "Claim, record an outcome, read, or abandon",
        "description": (
            "One request is one atomic step. `action` says which, and which members the request "
            "has. A request sent again unchanged, after an answer that was lost, changes nothing "
            "more."
        ),
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": (
                    "Accepted and without effect: every request carries its identity in its body."
                ),
                "schema": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 255,
                    "pattern": "^[!-~]+$",
                },
            }
        ],
        "requestBody": {
            "required": True,
            "description": f"At most {record.limits.body_bytes} bytes of JSON in UTF-8.",
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Request"},
                    "examples": {
                        action: {"summary": example.name, "value": example.request}
                        for action, example in _one_for_each_action(record.examples)
                    },
                }
            },
        },
        "responses": {
            "200": {
                "description": "Decided.",
                "headers": _NO_STORE,
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/Result"},
                        "examples": {
                            action: {"summary": example.name, "value": example.response}
                            for action, example in _one_for_each_action(record.examples)
                        },
                    }
                },
            },
            **{
                str(status): _problem_response(record, status, by_status[status])
                for status in sorted(by_status)
            },
            **({"401": _UNAUTHORIZED} if deployment.asks_for_token else {}),
            "500": {
                "description": "A fault of the server itself, in plain text and without a code.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
        },
    }


def _problem_response(record: RegistryRecord, status: int, codes: list[ErrorCode]) -> JsonObject:
    retry = all(ERRORS[code].retry for code in codes)
    return {
        "description": "\n\n".join(f"`{code}`: {_when(code, status)}" for code in codes),
        "headers": {**_NO_STORE, **(_RETRY_AFTER if retry else {})},
        "content": {
            _PROBLEM_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": {
                    code: {
                        "summary": ERROR_WORDS[code].title,
                        "value": _problem_example(record, status, code),
                    }
                    for code in codes
                },
            }
        },
    }


def _when(code: ErrorCode, status: int) -> str:
    special = {
        413: "The body is longer than the limit.",
        415: "The media type is not `application/json`, or a content coding is used.",
    }
    return special.get(status, ERROR_WORDS[code].detail)


def _problem_example(record: RegistryRecord, status: int, code: ErrorCode) -> JsonObject:
    """The words of the record around what the model decided, where it decides that code."""
    words, row = ERROR_WORDS[code], ERRORS[code]
    decided = next((e.response for e in record.examples if e.code == code), {})
    return {
        "type": problem_type(code),
        "title": words.title,
        "status": status,
        "detail": _when(code, status),
        "code": str(code),
        "retry": row.retry,
        "charged": False,
        "recovery": words.recovery,
        **({"retry_after_seconds": _EXAMPLE_RETRY_AFTER_SECONDS} if row.retry else {}),
        **{name: value for name, value in decided.items() if name != "status"},
    }


def _one_for_each_action(examples: Iterable[Example]) -> list[tuple[Action, Example]]:
    """The first example of each action that succeeds."""
    chosen: dict[str, Example] = {}
    for example in examples:
        if example.code is None:
            chosen.setdefault(example.request["action"], example)
    return [(action, chosen[action]) for action in Action]


def _health_operation() -> JsonObject:
    def answer(description: str, store: str) -> JsonObject:
        return {
            "description": description,
            "headers": _NO_STORE,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Health"},
                    "examples": {"health": {"summary": description, "value": {"store": store}}},
                }
            },
        }

    return {
        "operationId": "health",
        "tags": ["operations"],
        "summary": "Whether the store answers",
        "description": "For load balancers and monitors. It says nothing of any workflow.",
        "responses": {
            "200": answer("The store answers.", "answers"),
            "503": answer("The store does not answer.", "does not answer"),
        },
    }


def _schemas(record: RegistryRecord) -> JsonObject:
    branches = record.request_schema()["oneOf"]
    names = {branch["title"]: f"{branch['title'].capitalize()}Request" for branch in branches}
    return {
        "Request": {
            "title": "Request",
            "description": "One of four, told apart by `action`.",
            "oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names.values()],
            "discriminator": {
                "propertyName": "action",
                "mapping": {
                    action: f"#/components/schemas/{name}" for action, name in names.items()
                },
            },
        },
        **{
            names[branch["title"]]: _described(
                branch, names[branch["title"]], ACTION_WORDS[Action(branch["title"])], MEMBER_WORDS
            )
            for branch in branches
        },
        "Result": _described(
            record.result_schema(), "Result", "The record as it is after the step.", RESULT_WORDS
        ),
        "Problem": _described(
            record.problem_schema(),
            "Problem",
            "Why a request was refused, and what to do next (RFC 9457).",
            PROBLEM_WORDS,
        ),
        "Health": {
            "title": "Health",
            "description": "Whether the store answers.",
            "type": "object",
            "properties": {
                "store": {
                    "type": "string",
                    "description": "In words: `answers` or `does not answer`.",
                }
            },
            "required": ["store"],
        },
    }


def _described(
    schema: JsonObject, title: str, description: str, words: Mapping[str, str]
) -> JsonObject:
    """A schema of the contract, named, and with a description of every member."""
    schema.pop("$schema", None)
    schema["properties"] = {
        name: {**_as_generators_read_it(member), "description": words[name]}
        for name, member in schema["properties"].items()
    }
    return {**schema, "title": title, "description": description}


def _as_generators_read_it(member: JsonObject) -> JsonObject:
    """The same, with the type that values which are listed have: they ask for one beside them.

    Lists of arrays they do not know at all; beside ``allOf`` they find an array of words.
    """
    if "type" in member:
        return member
    values = member.get("enum", [member.get("const")])
    if isinstance(values[0], list):
        items = list(dict.fromkeys(item for value in values for item in value))
        return {
            "type": "array",
            "items": {"type": "string", "enum": items},
            "allOf": [member],
        }
    kinds = {type(value) for value in values}
    # With two, one of them null, generators make one class for each and then some.
    return {"type": _TYPE_NAMES[kinds.pop()], **member} if len(kinds) == 1 else member
