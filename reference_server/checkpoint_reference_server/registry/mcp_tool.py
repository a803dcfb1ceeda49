"""The MCP tool as plain data (WC-MCP-5, WC-MCP-6): what ``tools/list`` shows.

Hosts hand the schemas of a tool to models, and refuse ``oneOf``, ``anyOf`` and ``allOf`` at the
root; some refuse ``not`` and ``enum`` there too. So the root lists every member of a request,
described, and a chain of ``if``/``then``/``else`` says which of them each action has. That
says exactly what the contract's ``oneOf`` says. It uses no keyword younger than draft 7 and names
no dialect: official clients validate by different drafts, and these words mean the same in each.
"""

from typing import Final

from checkpoint_reference_server.registry.record import (
    MEMBER_WORDS,
    PROBLEM_WORDS,
    RECORD,
    RESULT_WORDS,
    JsonObject,
    RegistryRecord,
)

DESCRIPTION_CHARACTERS_MAX: Final = 1024
"""Hosts that hand tools to OpenAI's models are refused with a longer one."""
ANNOTATIONS: Final = {
    "readOnlyHint": False,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
"""WC-MCP-5."""


def make_mcp_tool(record: RegistryRecord = RECORD) -> JsonObject:
    """The tool: name, title, description, both schemas, annotations. Each call makes a new one."""
    return {
        "name": record.mcp_tool,
        "title": record.title,
        "description": _description(record),
        "inputSchema": make_input_schema(record),
        "outputSchema": make_output_schema(record),
        "annotations": dict(ANNOTATIONS),
    }


def make_input_schema(record: RegistryRecord = RECORD) -> JsonObject:
    """Accepts exactly what the request schema accepts, without a combinator at the root."""
    branches = record.request_schema()["oneOf"]
    properties: JsonObject = {}
    for branch in branches:
        properties |= branch["properties"]
    properties["action"] = {
        "enum": [branch["properties"]["action"]["const"] for branch in branches]
    }
    always = [name for name in branches[0]["required"] if _everywhere(name, branches)]
    return {
        "type": "object",
        "properties": {
            # Some hosts want a type beside every enumeration.
            name: {"type": "string", **schema, "description": _words(name, branches)}
            for name, schema in properties.items()
        },
        "required": always,
        "additionalProperties": False,
        **_chain(branches, always),
    }


def make_output_schema(record: RegistryRecord = RECORD) -> JsonObject:
    """Accepts the result and the problem object, told apart by ``code``, and nothing else."""
    result, problem = record.result_schema(), record.problem_schema()
    words = {**PROBLEM_WORDS, **RESULT_WORDS}
    # Where both have a member, the result's schema admits what the problem's does, and more.
    properties = problem["properties"] | result["properties"]
    # An annotation to some drafts, and to others a condition that the contract does not make.
    properties["type"].pop("format")
    return {
        "type": "object",
        "properties": {
            name: {**properties[name], "description": words[name]}
            for name in result["properties"] | problem["properties"]
        },
        "additionalProperties": False,
        "if": {"required": ["code"]},
        "then": _one_of_two(problem, properties),
        "else": _one_of_two(result, properties),
    }


def _description(record: RegistryRecord) -> str:
    sentences = [record.summary, record.use_in_short, record.do_not_use_in_short]
    duties = [f"- {duty}" for duty in record.callers_owe]
    return "\n".join([" ".join(sentences), "Callers:", *duties])


def _words(member: str, branches: list[JsonObject]) -> str:
    """What a member is, and with which actions: here they all stand in one list."""
    having = [branch for branch in branches if member in branch["properties"]]
    optional = [branch["title"] for branch in having if member not in branch["required"]]
    words = MEMBER_WORDS[member]
    if len(having) < len(branches):
        return f"{' and '.join(branch['title'] for branch in having)} only: {words}"
    return f"{words} Optional with {' and '.join(optional)}." if optional else words


def _everywhere(member: str, branches: list[JsonObject]) -> bool:
    return all(member in branch["required"] for branch in branches)


def _chain(branches: list[JsonObject], always: list[str]) -> JsonObject:
    """Each action's members, in an ``if`` whose ``else`` holds the next; the last needs none."""
    branch, *others = branches
    action = branch["properties"]["action"]
    members = _members(branch, always)
    if not others:
        return members
    return {
        "if": {"properties": {"action": action}, "required": ["action"]},
        "then": members,
        "else": _chain(others, always),
    }


def _members(branch: JsonObject, always: list[str]) -> JsonObject:
    """Which members one action may have, and which it must have."""
    members: JsonObject = {
        "required": [name for name in branch["required"] if name not in always],
        # Not `additionalProperties`, which looks only at the `properties` beside it.
        "propertyNames": {"enum": list(branch["properties"])},
    }
    dependent: dict[str, list[str]] = branch.get("dependentRequired", {})
    for member, needed in dependent.items():  # that keyword is younger than draft 7
        assert "if" not in members, "one schema has one `if`"
        members |= {"if": {"required": [member]}, "then": {"required": needed}}
    return members


def _one_of_two(schema: JsonObject, properties: JsonObject) -> JsonObject:
    """Which members one kind of answer has, and those of them that are narrower in it."""
    narrower = {
        name: member for name, member in schema["properties"].items() if member != properties[name]
    }
    return {
        **({"properties": narrower} if narrower else {}),
        "required": schema["required"],
        "propertyNames": {"enum": list(schema["properties"])},
    }
