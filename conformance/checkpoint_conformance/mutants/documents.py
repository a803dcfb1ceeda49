"""Mutants of the published descriptions."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from checkpoint_conformance.checks import descriptions, fuzzing
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.mutant import InFront, Kind, Mutant, Part, always
from checkpoint_conformance.mutants.over_mcp import Members, changed, tool
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper
from checkpoint_model import schemas
from checkpoint_model.vocabulary import (
    ARD_PATH,
    LLMS_PATH,
    MANIFEST_PATH,
    OPENAPI_PATH,
    TOOL_PATH,
)


def _every_member() -> Iterator[str]:
    """Every member that some action has."""
    for branch in schemas.load("request.schema.json")["oneOf"]:
        yield from branch["properties"]


def _known_members_alone(message: Message, forward: Forward) -> HttpAnswer:
    known = set(_every_member())
    kept = {name: value for name, value in message.json.items() if name in known}
    on_tool = message.path == TOOL_PATH and bool(message.json)
    return forward(replace(message, body=json.dumps(kept).encode()) if on_tool else message)


def document(path: str, change: Callable[[Members], object]) -> Tamper:
    """Change one published document, in place."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.path != path or message.method != "GET":
            return answer
        members = json.loads(answer.body)
        change(members)
        return replace(answer, body=json.dumps(members).encode())

    return tamper


def text(old: bytes, new: bytes) -> Tamper:
    """Change the text of llms.txt."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.path != LLMS_PATH:
            return answer
        assert old in answer.body
        return replace(answer, body=answer.body.replace(old, new))

    return tamper


def manifest(change: Callable[[Members], object]) -> Tamper:
    """Change the manifest."""
    return document(MANIFEST_PATH, change)


def openapi(change: Callable[[Members], object]) -> Tamper:
    """Change the OpenAPI document."""
    return document(OPENAPI_PATH, change)


def ard(change: Callable[[Members], object]) -> Tamper:
    """Change the ARD manifest."""
    return document(ARD_PATH, change)


def remotes_of(members: Members) -> list[Members]:
    """Where the ARD manifest says that MCP is spoken."""
    return [r for entry in members["entries"] for r in entry.get("data", {}).get("remotes", ())]


def raise_a_limit(schema: Any) -> None:
    """Let claims last a second longer, wherever a schema says how long."""
    if isinstance(schema, dict):
        for name, part in schema.items():
            if name == "claim_ttl_seconds" and isinstance(part, dict) and "maximum" in part:
                part["maximum"] += 1
            raise_a_limit(part)
    elif isinstance(schema, list):
        for part in schema:
            raise_a_limit(part)


def _missing(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == OPENAPI_PATH:
        return HttpAnswer(status=404, headers=(), body=b"")
    return forward(message)


def _strict(message: Message, forward: Forward) -> HttpAnswer:
    """An implementation that takes less than what it publishes."""
    if message.path == TOOL_PATH and "." in str(message.json.get("namespace")):
        return forward(message.with_json(namespace=""))
    return forward(message)


def _mutant(
    name: str,
    wrong: str,
    tamper: Tamper,
    *rules: str,
    part: Part = descriptions.description_checks,
) -> Mutant:
    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.DESCRIPTION,
        fault=InFront(always(tamper)),
        rules=rules,
        part=part,
    )


DOCUMENTS: tuple[Mutant, ...] = (
    _mutant(
        "ignores-what-its-document-does-not-have",
        "Ignores members that its OpenAPI document does not have.",
        _known_members_alone,
        "WC-IN-1",
        part=fuzzing.fuzz_by_its_own_description,
    ),
    _mutant(
        "a-limit-of-the-manifest-schema",
        "Has a limit in the manifest's request schema that is one too high.",
        manifest(lambda m: raise_a_limit(m["input_schema"])),
        "WC-REG-1",
    ),
    _mutant(
        "a-limit-of-the-openapi-document",
        "Has a limit in the OpenAPI document that is one too high.",
        openapi(raise_a_limit),
        "WC-REG-1",
    ),
    _mutant(
        "a-limit-of-the-mcp-tool",
        "Has a limit in the MCP tool that is one too high.",
        tool(lambda t: raise_a_limit(t["inputSchema"])),
        "WC-REG-1",
    ),
    _mutant(
        "takes-less-than-it-publishes",
        "Refuses namespaces with a dot, which its schemas admit.",
        _strict,
        "WC-REG-1",
    ),
    _mutant(
        "the-version-of-the-manifest",
        "Has another version in the manifest.",
        manifest(lambda m: m.update(version="1.0.9")),
        "WC-REG-2",
    ),
    _mutant(
        "the-version-of-openapi",
        "Has another version in the OpenAPI document.",
        openapi(lambda m: m["info"].update(version="1")),
        "WC-REG-2",
    ),
    _mutant(
        "the-version-in-llms-txt",
        "Has another version in llms.txt.",
        text(b"1.1.0", b"1.1"),
        "WC-REG-2",
    ),
    _mutant(
        "the-version-of-an-ard-entry",
        "Has another version in the ARD entry.",
        ard(lambda m: m["entries"][0].update(version="2")),
        "WC-REG-2",
    ),
    _mutant(
        "the-version-over-mcp",
        "Has another version in MCP's `serverInfo`.",
        changed("initialize", lambda m: m["result"]["serverInfo"].update(version="0.1")),
        "WC-REG-2",
    ),
    _mutant(
        "an-example-that-is-not-reproduced",
        "Has an example in the manifest that is answered otherwise.",
        manifest(lambda m: m["examples"][0]["response"].update(generation=2)),
        "WC-REG-3",
    ),
    _mutant(
        "a-member-too-many-in-the-manifest",
        "Has a member in the manifest that nobody knows.",
        manifest(lambda m: m.update(vendor="us")),
        "WC-REG-4",
    ),
    _mutant(
        "a-member-too-few-in-the-manifest",
        "Lacks `retention.stored` in the manifest.",
        manifest(lambda m: m["retention"].pop("stored")),
        "WC-REG-4",
    ),
    _mutant(
        "a-member-of-another-kind",
        "Has a text in the manifest where a list belongs.",
        manifest(lambda m: m.update(use_when="always")),
        "WC-REG-4",
    ),
    _mutant(
        "a-stage-of-the-manifest",
        "Has a sixth stage in the manifest.",
        manifest(lambda m: m["stages"].append("done")),
        "WC-REG-4",
    ),
    _mutant(
        "a-move-of-the-manifest",
        "Has an evidence type too many in the manifest's graph.",
        manifest(lambda m: m["graph"][0]["evidence"].append("external_read")),
        "WC-REG-4",
    ),
    _mutant(
        "a-limit-of-the-manifest",
        "Has 17 generations in the manifest.",
        manifest(lambda m: m["limits"].update(generations=17)),
        "WC-REG-4",
    ),
    _mutant(
        "an-error-of-the-manifest",
        "Calls an error retryable in the manifest that is not.",
        manifest(lambda m: m["errors"][1].update(retry=True)),
        "WC-REG-4",
    ),
    _mutant(
        "the-result-schema-of-the-manifest",
        "Has a result schema in the manifest that admits other members.",
        manifest(lambda m: m["output_schema"].update(additionalProperties=True)),
        "WC-REG-4",
    ),
    _mutant(
        "the-manifest-hides-mcp",
        "Has `mcp` null in the manifest, and offers it.",
        manifest(lambda m: m.update(mcp=None)),
        "WC-REG-4",
    ),
    _mutant(
        "llms-txt-lacks-a-code",
        "Lacks an error code in llms.txt.",
        text(b"OBSERVATION_CONFLICT", b"CONFLICT"),
        "WC-REG-5",
    ),
    _mutant(
        "llms-txt-lacks-an-evidence-type",
        "Lacks an evidence type in llms.txt.",
        text(b"external_absence", b"absence"),
        "WC-REG-5",
    ),
    _mutant(
        "llms-txt-lacks-mcp",
        "Lacks the MCP endpoint in llms.txt.",
        text(b"/mcp", b"/rpc"),
        "WC-REG-5",
    ),
    _mutant(
        "llms-txt-lacks-what-callers-owe",
        "Lacks what callers owe in llms.txt.",
        text(b"recovery_required", b"recovery"),
        "WC-REG-5",
    ),
    _mutant("no-openapi-document", "Serves no OpenAPI document.", _missing, "WC-REG-6"),
    _mutant(
        "an-openapi-document-that-is-none",
        "Serves an OpenAPI document without `info`.",
        openapi(lambda m: m.pop("info")),
        "WC-REG-6",
    ),
    _mutant(
        "an-openapi-document-of-another-version",
        "Serves an OpenAPI document of 3.0.",
        openapi(lambda m: m.update(openapi="3.0.3")),
        "WC-REG-6",
    ),
    _mutant(
        "a-reference-to-nothing",
        "Serves an OpenAPI document that refers to schemas that it lacks.",
        openapi(lambda m: m["components"].update(schemas={})),
        "WC-REG-6",
    ),
    _mutant(
        "a-path-that-is-not-served",
        "Has a path in the OpenAPI document that is not served.",
        openapi(lambda m: m["paths"].update({"/v2": m["paths"][TOOL_PATH]})),
        "WC-REG-6",
    ),
    _mutant(
        "an-ard-manifest-that-is-none",
        "Serves an ARD manifest without entries.",
        ard(lambda m: m.pop("entries")),
        "WC-REG-6",
    ),
    _mutant(
        "an-ard-entry-that-points-at-nothing",
        "Has an ARD entry whose URL is not served.",
        ard(lambda m: [e.update(url="https://a.test/nowhere") for e in m["entries"] if "url" in e]),
        "WC-REG-6",
    ),
    _mutant(
        "an-ard-manifest-without-this-tool",
        "Lacks this tool in the ARD manifest.",
        ard(lambda m: m.update(entries=[])),
        "WC-REG-6",
    ),
    _mutant(
        "a-server-card-that-points-at-nothing",
        "Has a server card whose remote is not served.",
        ard(lambda m: [r.update(url="https://a.test/rpc") for r in remotes_of(m)]),
        "WC-REG-6",
    ),
)
