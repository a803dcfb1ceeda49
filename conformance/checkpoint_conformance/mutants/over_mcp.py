"""Mutants of the MCP binding."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from checkpoint_conformance.checks import doors, mcp
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mcp_client import Revision, arguments_of
from checkpoint_conformance.mutants.mutant import InFront, Kind, Mutant, Part, always
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper
from checkpoint_conformance.rules import Binding
from checkpoint_model.vocabulary import MCP_PATH

Members: TypeAlias = dict[str, Any]


def is_mcp_message(message: Message) -> bool:
    """Whether a request is a message to the MCP endpoint."""
    return message.path == MCP_PATH and message.method == "POST"


def is_a_call(message: Message) -> bool:
    """Whether a request calls a tool, with whatever arguments."""
    called = is_mcp_message(message) and message.json.get("method") == "tools/call"
    return called and isinstance(message.json.get("params"), dict)


def changed(method: str, change: Callable[[Members], object]) -> Tamper:
    """Change the message that answers a method, in place, or put what is returned for it."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if not is_mcp_message(message) or message.json.get("method") != method:
            return answer
        if answer.status != 200:
            return answer  # refused before it was understood
        members = json.loads(answer.body)
        if "result" in members:
            change(members)
        return replace(answer, body=json.dumps(members).encode())

    return tamper


def problems(change: Callable[[Members], object]) -> Tamper:
    """Change the tool results that are problems."""
    return changed("tools/call", lambda m: change(m) if m["result"].get("isError") else None)


def results(change: Callable[[Members], object]) -> Tamper:
    """Change the tool results that are results."""
    return changed("tools/call", lambda m: None if m["result"].get("isError") else change(m))


def tool(change: Callable[[Members], object]) -> Tamper:
    """Change the tool that is listed."""
    return changed("tools/list", lambda m: change(m["result"]["tools"][0]))


def _protocol_error(members: Members) -> None:
    del members["result"]
    members["error"] = {"code": -32602, "message": "Invalid arguments"}


def _no_old_clients(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    params = message.json.get("params") or {}
    if answer.status == 200 and params.get("protocolVersion") == Revision.JUNE_2025:
        members = json.loads(answer.body)
        members["result"]["protocolVersion"] = str(Revision.NOVEMBER_2025)
        return replace(answer, body=json.dumps(members).encode())
    return answer


def _records_of_its_own(message: Message, forward: Forward) -> HttpAnswer:
    """As if MCP were served by a process with a store of its own."""
    arguments = arguments_of(message.body) if is_a_call(message) else None
    if arguments is None or not isinstance(arguments.get("workflow_key"), str):
        return forward(message)  # to be refused, as it should
    arguments["workflow_key"] = arguments["workflow_key"][:30] + "-mcp"
    params = {**message.json["params"], "arguments": arguments}
    return forward(message.with_json(params=params))


def _wants_arguments(message: Message, forward: Forward) -> HttpAnswer:
    if is_a_call(message) and "arguments" not in message.json["params"]:
        error = {"code": -32602, "message": "arguments are missing"}
        body = {"jsonrpc": "2.0", "id": message.json.get("id"), "error": error}
        headers = (("content-type", "application/json"),)
        return HttpAnswer(status=200, headers=headers, body=json.dumps(body).encode())
    return forward(message)


def _echoes(message: Message, forward: Forward) -> HttpAnswer:
    """A protocol error that says what it did not understand."""
    answer = forward(message)
    if is_mcp_message(message) and b'"error"' in answer.body:
        members = json.loads(answer.body)
        members["error"]["data"] = message.body.decode("utf-8", "replace")
        return replace(answer, body=json.dumps(members).encode())
    return answer


def _another_text(members: Members) -> None:
    members["result"]["content"][0]["text"] = "{}"


def _mutant(
    name: str, wrong: str, tamper: Tamper, *rules: str, part: Part = mcp.mcp_checks
) -> Mutant:
    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.MCP,
        fault=InFront(always(tamper)),
        rules=rules,
        part=part,
        binding=Binding.MCP,
    )


OVER_MCP: tuple[Mutant, ...] = (
    _mutant(
        "problems-are-protocol-errors",
        "Sends problems as protocol errors.",
        problems(_protocol_error),
        "WC-MCP-3",
    ),
    _mutant(
        "problems-are-no-errors",
        "Sends problems without `isError`.",
        problems(lambda m: m["result"].pop("isError")),
        "WC-MCP-3",
    ),
    _mutant(
        "problems-have-another-text",
        "Sends another text than the problem object.",
        problems(_another_text),
        "WC-MCP-3",
    ),
    _mutant(
        "problems-have-status-200",
        "Sends problems with the status of the message that carries them.",
        problems(lambda m: m["result"]["structuredContent"].update(status=200)),
        "WC-MCP-3",
    ),
    _mutant(
        "results-have-another-text",
        "Sends another text than the result.",
        results(_another_text),
        "WC-MCP-2",
    ),
    _mutant(
        "results-have-no-text",
        "Sends results as structured content alone.",
        results(lambda m: m["result"].update(content=[])),
        "WC-MCP-2",
    ),
    _mutant(
        "results-are-text-alone",
        "Sends results as text alone.",
        results(lambda m: m["result"].pop("structuredContent")),
        "WC-MCP-2",
    ),
    _mutant(
        "results-are-errors",
        "Sends results with `isError`.",
        results(lambda m: m["result"].update(isError=True)),
        "WC-MCP-2",
    ),
    _mutant(
        "arguments-are-wanted",
        "Refuses a call without arguments instead of taking them for `{}`.",
        _wants_arguments,
        "WC-MCP-2",
    ),
    _mutant(
        "old-clients-are-refused",
        "Answers a client of 2025-06-18 in a later revision.",
        _no_old_clients,
        "WC-MCP-1",
    ),
    _mutant(
        "a-second-tool",
        "Lists a second tool.",
        changed(
            "tools/list",
            lambda m: m["result"]["tools"].append(
                {"name": "ping", "inputSchema": {"type": "object"}}
            ),
        ),
        "WC-MCP-1",
    ),
    _mutant(
        "a-tool-of-another-name",
        "Lists the tool under another name.",
        tool(lambda t: t.update(name="checkpoint")),
        "WC-MCP-1",
    ),
    _mutant(
        "no-annotations",
        "Lists the tool without annotations.",
        tool(lambda t: t.pop("annotations")),
        "WC-MCP-5",
    ),
    _mutant(
        "a-destructive-tool",
        "Calls the tool destructive.",
        tool(lambda t: t["annotations"].update(destructiveHint=True)),
        "WC-MCP-5",
    ),
    _mutant(
        "a-combinator-at-the-root",
        "Has `oneOf` at the root of `inputSchema`.",
        tool(lambda t: t["inputSchema"].update(oneOf=[{}])),
        "WC-MCP-6",
    ),
    _mutant(
        "a-root-without-type",
        "Has no `type` at the root of `outputSchema`.",
        tool(lambda t: t["outputSchema"].pop("type")),
        "WC-MCP-6",
    ),
    _mutant(
        "an-input-schema-that-takes-anything",
        "Has an `inputSchema` that any object matches.",
        tool(lambda t: t.update(inputSchema={"type": "object"})),
        "WC-MCP-6",
    ),
    _mutant(
        "an-input-schema-that-is-none",
        "Has an `inputSchema` that is no JSON Schema.",
        tool(lambda t: t["inputSchema"].update(properties=7)),
        "WC-MCP-6",
    ),
    _mutant(
        "an-output-schema-that-refers-elsewhere",
        "Has an `outputSchema` that refers to another document.",
        tool(
            lambda t: t["outputSchema"].update(
                properties={"code": {"$ref": "https://elsewhere.test/code"}}
            )
        ),
        "WC-MCP-6",
    ),
    _mutant(
        "an-output-schema-for-results-alone",
        "Has an `outputSchema` that no problem object matches.",
        tool(lambda t: t["outputSchema"].update(required=["workflow_hash"])),
        "WC-MCP-6",
    ),
    _mutant(
        "records-of-its-own",
        "Keeps records of its own behind MCP.",
        _records_of_its_own,
        "WC-MCP-4",
        part=doors.doors,
    ),
    _mutant(
        "protocol-errors-repeat-the-message",
        "Repeats in a protocol error what was sent.",
        _echoes,
        "WC-PRIV-1",
    ),
)
