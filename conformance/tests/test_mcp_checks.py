"""The checks of sections 12 and 13: the right server is never blamed, a wrong one by its rule."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from looking_away import Quiet
from wrong import Forward, Message, Tamper, tampering

from checkpoint_conformance.checks import (
    controls,
    deadlines,
    descriptions,
    doors,
    example,
    fuzzing,
    inputs,
    mcp,
    races,
    stateful,
    vectors,
    walk,
)
from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mcp_client import Revision
from checkpoint_conformance.reproduction import script
from checkpoint_conformance.rules import Binding, RuleClass
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.verdict import Status, judge
from checkpoint_model import schemas
from checkpoint_model.vocabulary import (
    ARD_PATH,
    LLMS_PATH,
    MANIFEST_PATH,
    MCP_PATH,
    OPENAPI_PATH,
    TOOL_PATH,
)

Part = Callable[[Run], None]
Members = dict[str, Any]
SESSION = "a-session-of-the-proxy"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The right server, with everything."""
    with reference_server() as target:
        assert target.mcp is not None
        yield target


def run_of(target: Target) -> Run:
    """A run with a little of everything."""
    profile = replace(
        PROFILES["quick"], race_rounds=1, contenders=20, stateful_examples=20, mcp_vectors=40
    )
    return Run(target=target, profile=profile, seed=1, progress=Quiet())


def behind(target: Target, address: Address) -> Target:
    """The same server, seen through a proxy."""
    return replace(target, address=address, mcp=Address.parse(address.url + MCP_PATH))


def faults_of(target: Target, *parts: Part, binding: Binding = Binding.MCP) -> dict[str, object]:
    """Each rule that is blamed, with what is said of it."""
    run = run_of(target)
    with run.over(binding):
        for part in parts:
            with run.guarded():
                part(run)
    run.close()
    return {rule: f.fault for f in run.tally.failures.values() for rule in f.fault.rules}


OVER_MCP: list[Part] = [
    example.examples_at_their_time,
    inputs.input_checks,
    walk.walk_frozen,
    vectors.vectors,
    stateful.stateful_frozen,
    deadlines.deadlines,
    races.races,
    controls.control_checks,
    mcp.mcp_checks,
    doors.doors,
]


@pytest.mark.parametrize("part", OVER_MCP, ids=lambda part: part.__name__)
def test_the_right_server_is_never_blamed_over_mcp(target: Target, part: Part) -> None:
    """No failure, nothing left out, and what was counted was counted for this binding."""
    run = run_of(target)
    with run.over(Binding.MCP):
        part(run)
    run.close()
    assert {key: f.fault for key, f in run.tally.failures.items()} == {}
    assert run.tally.incomplete == []
    assert run.tally.lost == 0
    assert run.tally.hits_over[Binding.MCP].total() > 0
    assert run.tally.hits_over[Binding.HTTP].total() == 0


def test_what_it_publishes_is_never_blamed(target: Target) -> None:
    """Every rule of the class is exercised."""
    run = run_of(target)
    descriptions.description_checks(run)
    fuzzing.fuzz_by_its_own_description(run)
    run.close()
    assert {key: f.fault for key, f in run.tally.failures.items()} == {}
    judged = judge(run.tally, target)
    statuses = {
        s.rule.id: s.status
        for s in judged.rules.values()
        if s.rule.rule_class is RuleClass.DESCRIPTIONS
    }
    assert statuses == dict.fromkeys(statuses, Status.PASSED)


def test_what_else_a_deployment_publishes_is_not_judged(target: Target) -> None:
    """Tools of others in the same ARD manifest, of versions of their own."""
    other = {
        "identifier": "urn:air:example.com:api:weather",
        "displayName": "Weather",
        "type": "application/json",
        "url": "https://weather.example.com/",
        "version": "7",
    }
    with tampering(target.address, ard(lambda m: m["entries"].append(other))) as address:
        part = descriptions.description_checks
        assert faults_of(behind(target, address), part, binding=Binding.HTTP) == {}


# -- the same protocol, spoken otherwise --------------------------------------------------


def _is_message(message: Message) -> bool:
    return message.path == MCP_PATH and message.method == "POST"


def _as_events(message: Message, forward: Forward) -> HttpAnswer:
    """Every answer as an event stream, after a comment and a notification."""
    answer = forward(message)
    if not _is_message(message) or not answer.body or answer.status != 200:
        return answer
    told = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}'
    stream = b": hello\r\n\r\nevent: message\r\ndata: " + told + b"\r\n\r\n"
    lines = json.dumps(json.loads(answer.body), indent=1).encode().split(b"\n")
    stream += b"".join(b"data: " + line + b"\r\n" for line in lines) + b"\r\n"
    kept = [header for header in answer.headers if header[0] != "content-type"]
    return replace(answer, headers=(*kept, ("content-type", "text/event-stream")), body=stream)


def _with_sessions(message: Message, forward: Forward) -> HttpAnswer:
    """A session for whoever shakes hands, and nobody else let in."""
    if not _is_message(message):
        return forward(message)
    if message.json.get("method") == "initialize":
        answer = forward(message)
        return replace(answer, headers=(*answer.headers, ("mcp-session-id", SESSION)))
    if message.headers.get("mcp-session-id") != SESSION:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}}
        body = json.dumps(error).encode()
        return HttpAnswer(status=400, headers=(("content-type", "application/json"),), body=body)
    headers = {name: text for name, text in message.headers.items() if name != "mcp-session-id"}
    return forward(replace(message, headers=headers))


@pytest.mark.parametrize("tamper", [_as_events, _with_sessions], ids=["events", "sessions"])
def test_event_streams_and_sessions_are_understood(target: Target, tamper: Tamper) -> None:
    """A server may answer as a stream, and may give out sessions."""
    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        run.endpoint.meet(Revision.NOVEMBER_2025)
        with run.over(Binding.MCP):
            for part in (inputs.accepted, walk.walk_frozen, races.races, doors.doors):
                part(run)
        run.close()
    assert {key: f.fault for key, f in run.tally.failures.items()} == {}
    assert run.tally.lost == 0
    assert run.tally.hits_over[Binding.MCP].total() > 0


def test_a_forgotten_session_is_begun_anew(target: Target) -> None:
    """A call whose session is gone is lost; the next is made on a new one."""
    forgotten = iter([True])

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.json.get("method") == "tools/call" and next(forgotten, False):
            return HttpAnswer(status=404, headers=(), body=b"")
        return _with_sessions(message, forward)

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        run.endpoint.meet(Revision.NOVEMBER_2025)
        with run.over(Binding.MCP):
            inputs.accepted(run)
        run.close()
    assert run.tally.failures == {}
    assert run.tally.lost == 1


@pytest.mark.parametrize(
    ("revision", "sessions"),
    [
        (Revision.NOVEMBER_2025, False),
        (Revision.NOVEMBER_2025, True),
        (Revision.JULY_2026, False),
    ],
    ids=["handshake", "session", "no-handshake"],
)
def test_a_sequence_over_mcp_can_be_sent_again_by_its_script(
    target: Target,
    revision: Revision,
    sessions: bool,
    tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The script alone, on a workflow and a session of its own."""
    tool("curl")
    with tampering(target.address, _with_sessions if sessions else _as_it_is) as address:
        seen = behind(target, address)
        run = run_of(seen)
        run.endpoint.meet(revision)
        with run.over(Binding.MCP):
            session, cast = run.session(), walk.Cast()
            session.send(cast.claim(cast.ann))
            session.send(cast.claim(cast.bob))
        run.close()
        path = tmp_path / "again.sh"
        path.write_text(script(session.sequence, seen))
        done = subprocess.run(
            ["sh", str(path)], capture_output=True, text=True, check=True, timeout=30
        )
    first, second = re.findall(r'"structuredContent": ?(\{.*?\})', done.stdout)
    assert json.loads(first)["acquired"] is True
    assert json.loads(second)["code"] == "CHECKPOINT_NOT_HELD"


def _as_it_is(message: Message, forward: Forward) -> HttpAnswer:
    return forward(message)


# -- servers with one thing wrong ---------------------------------------------------------


def changed(method: str, change: Callable[[Members], object]) -> Tamper:
    """Change the message that answers a method, in place, or put what is returned for it."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if not _is_message(message) or message.json.get("method") != method:
            return answer
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
    if params.get("protocolVersion") == Revision.JUNE_2025:
        members = json.loads(answer.body)
        members["result"]["protocolVersion"] = str(Revision.NOVEMBER_2025)
        return replace(answer, body=json.dumps(members).encode())
    return answer


def _records_of_its_own(message: Message, forward: Forward) -> HttpAnswer:
    """As if MCP were served by a process with a store of its own."""
    if not _is_message(message) or message.json.get("method") != "tools/call":
        return forward(message)
    params = message.json["params"]
    arguments = params.get("arguments") or {}
    if isinstance(arguments.get("workflow_key"), str):
        arguments = {**arguments, "workflow_key": arguments["workflow_key"][:30] + "-mcp"}
    return forward(message.with_json(params={**params, "arguments": arguments}))


def _wants_arguments(message: Message, forward: Forward) -> HttpAnswer:
    params = message.json.get("params") or {}
    if message.json.get("method") == "tools/call" and "arguments" not in params:
        error = {"code": -32602, "message": "arguments are missing"}
        body = {"jsonrpc": "2.0", "id": message.json["id"], "error": error}
        headers = (("content-type", "application/json"),)
        return HttpAnswer(status=200, headers=headers, body=json.dumps(body).encode())
    return forward(message)


def _echoes(message: Message, forward: Forward) -> HttpAnswer:
    """A protocol error that says what it did not understand."""
    answer = forward(message)
    if _is_message(message) and b'"error"' in answer.body:
        members = json.loads(answer.body)
        members["error"]["data"] = message.body.decode("utf-8", "replace")
        return replace(answer, body=json.dumps(members).encode())
    return answer


def _another_text(members: Members) -> None:
    members["result"]["content"][0]["text"] = "{}"


MCP_FAULTS: list[tuple[str, Tamper, Part, str]] = [
    ("problems are protocol errors", problems(_protocol_error), mcp.mcp_checks, "WC-MCP-3"),
    (
        "problems are no errors",
        problems(lambda m: m["result"].pop("isError")),
        mcp.mcp_checks,
        "WC-MCP-3",
    ),
    ("problems have another text", problems(_another_text), mcp.mcp_checks, "WC-MCP-3"),
    (
        "problems have status 200",
        problems(lambda m: m["result"]["structuredContent"].update(status=200)),
        mcp.mcp_checks,
        "WC-MCP-3",
    ),
    ("results have another text", results(_another_text), mcp.mcp_checks, "WC-MCP-2"),
    (
        "results have no text",
        results(lambda m: m["result"].update(content=[])),
        mcp.mcp_checks,
        "WC-MCP-2",
    ),
    (
        "results are text alone",
        results(lambda m: m["result"].pop("structuredContent")),
        mcp.mcp_checks,
        "WC-MCP-2",
    ),
    (
        "results are errors",
        results(lambda m: m["result"].update(isError=True)),
        mcp.mcp_checks,
        "WC-MCP-2",
    ),
    ("arguments are wanted", _wants_arguments, mcp.mcp_checks, "WC-MCP-2"),
    ("old clients are refused", _no_old_clients, mcp.mcp_checks, "WC-MCP-1"),
    (
        "a second tool",
        changed(
            "tools/list",
            lambda m: m["result"]["tools"].append(
                {"name": "ping", "inputSchema": {"type": "object"}}
            ),
        ),
        mcp.mcp_checks,
        "WC-MCP-1",
    ),
    (
        "a tool of another name",
        tool(lambda t: t.update(name="checkpoint")),
        mcp.mcp_checks,
        "WC-MCP-1",
    ),
    ("no annotations", tool(lambda t: t.pop("annotations")), mcp.mcp_checks, "WC-MCP-5"),
    (
        "a destructive tool",
        tool(lambda t: t["annotations"].update(destructiveHint=True)),
        mcp.mcp_checks,
        "WC-MCP-5",
    ),
    (
        "a combinator at the root",
        tool(lambda t: t["inputSchema"].update(oneOf=[{}])),
        mcp.mcp_checks,
        "WC-MCP-6",
    ),
    (
        "a root without type",
        tool(lambda t: t["outputSchema"].pop("type")),
        mcp.mcp_checks,
        "WC-MCP-6",
    ),
    (
        "an input schema that takes anything",
        tool(lambda t: t.update(inputSchema={"type": "object"})),
        mcp.mcp_checks,
        "WC-MCP-6",
    ),
    (
        "an input schema that is none",
        tool(lambda t: t["inputSchema"].update(properties=7)),
        mcp.mcp_checks,
        "WC-MCP-6",
    ),
    (
        "an output schema that refers elsewhere",
        tool(
            lambda t: t["outputSchema"].update(
                properties={"code": {"$ref": "https://elsewhere.test/code"}}
            )
        ),
        mcp.mcp_checks,
        "WC-MCP-6",
    ),
    (
        "an output schema for results alone",
        tool(lambda t: t["outputSchema"].update(required=["workflow_hash"])),
        mcp.mcp_checks,
        "WC-MCP-6",
    ),
    ("records of its own", _records_of_its_own, doors.doors, "WC-MCP-4"),
    ("errors repeat what was sent", _echoes, mcp.mcp_checks, "WC-PRIV-1"),
]


@pytest.mark.parametrize(
    ("tamper", "part", "rule"),
    [pytest.param(*fault[1:], id=fault[0].replace(" ", "-")) for fault in MCP_FAULTS],
)
def test_one_thing_wrong_over_mcp_is_caught_by_its_rule(
    target: Target, tamper: Tamper, part: Part, rule: str
) -> None:
    """The fault's own rule is among those blamed."""
    with tampering(target.address, tamper) as address:
        assert rule in faults_of(behind(target, address), part)


def test_bodies_made_from_its_own_document_show_what_is_accepted_beyond_it(target: Target) -> None:
    """A member that no schema has is dropped by the server: found by the document alone."""
    known = set(vocabulary_of_members())

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        kept = {name: value for name, value in message.json.items() if name in known}
        on_tool = message.path == TOOL_PATH and bool(message.json)
        return forward(replace(message, body=json.dumps(kept).encode()) if on_tool else message)

    with tampering(target.address, tamper) as address:
        part = fuzzing.fuzz_by_its_own_description
        assert "WC-IN-1" in faults_of(behind(target, address), part, binding=Binding.HTTP)


def vocabulary_of_members() -> Iterator[str]:
    """Every member that some action has."""
    for branch in schemas.load("request.schema.json")["oneOf"]:
        yield from branch["properties"]


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


DRIFTS: list[tuple[str, Tamper, str]] = [
    (
        "a limit of the manifest's schema",
        manifest(lambda m: raise_a_limit(m["input_schema"])),
        "WC-REG-1",
    ),
    ("a limit of the OpenAPI document", openapi(raise_a_limit), "WC-REG-1"),
    ("a limit of the MCP tool", tool(lambda t: raise_a_limit(t["inputSchema"])), "WC-REG-1"),
    ("an implementation that takes less", _strict, "WC-REG-1"),
    ("the manifest's version", manifest(lambda m: m.update(version="1.0.9")), "WC-REG-2"),
    ("the OpenAPI version", openapi(lambda m: m["info"].update(version="1")), "WC-REG-2"),
    ("the version in llms.txt", text(b"1.1.0", b"1.1"), "WC-REG-2"),
    ("the version of an ARD entry", ard(lambda m: m["entries"][0].update(version="2")), "WC-REG-2"),
    (
        "the version over MCP",
        changed("initialize", lambda m: m["result"]["serverInfo"].update(version="0.1")),
        "WC-REG-2",
    ),
    (
        "an example's answer",
        manifest(lambda m: m["examples"][0]["response"].update(generation=2)),
        "WC-REG-3",
    ),
    ("a member too many in the manifest", manifest(lambda m: m.update(vendor="us")), "WC-REG-4"),
    (
        "a member too few in the manifest",
        manifest(lambda m: m["retention"].pop("stored")),
        "WC-REG-4",
    ),
    ("a member of another kind", manifest(lambda m: m.update(use_when="always")), "WC-REG-4"),
    ("a stage of the manifest", manifest(lambda m: m["stages"].append("done")), "WC-REG-4"),
    (
        "a move of the manifest",
        manifest(lambda m: m["graph"][0]["evidence"].append("external_read")),
        "WC-REG-4",
    ),
    ("a limit of the manifest", manifest(lambda m: m["limits"].update(generations=17)), "WC-REG-4"),
    ("an error of the manifest", manifest(lambda m: m["errors"][1].update(retry=True)), "WC-REG-4"),
    (
        "the manifest's result schema",
        manifest(lambda m: m["output_schema"].update(additionalProperties=True)),
        "WC-REG-4",
    ),
    ("the manifest hides MCP", manifest(lambda m: m.update(mcp=None)), "WC-REG-4"),
    ("llms.txt lacks a code", text(b"OBSERVATION_CONFLICT", b"CONFLICT"), "WC-REG-5"),
    ("llms.txt lacks an evidence type", text(b"external_absence", b"absence"), "WC-REG-5"),
    ("llms.txt lacks MCP", text(b"/mcp", b"/rpc"), "WC-REG-5"),
    ("llms.txt lacks what callers owe", text(b"recovery_required", b"recovery"), "WC-REG-5"),
    ("no OpenAPI document", _missing, "WC-REG-6"),
    ("an OpenAPI document that is none", openapi(lambda m: m.pop("info")), "WC-REG-6"),
    (
        "an OpenAPI document of another version",
        openapi(lambda m: m.update(openapi="3.0.3")),
        "WC-REG-6",
    ),
    ("a reference to nothing", openapi(lambda m: m["components"].update(schemas={})), "WC-REG-6"),
    (
        "a path that is not served",
        openapi(lambda m: m["paths"].update({"/v2": m["paths"][TOOL_PATH]})),
        "WC-REG-6",
    ),
    ("an ARD manifest that is none", ard(lambda m: m.pop("entries")), "WC-REG-6"),
    (
        "an ARD entry that points at nothing",
        ard(lambda m: [e.update(url="https://a.test/nowhere") for e in m["entries"] if "url" in e]),
        "WC-REG-6",
    ),
    (
        "an ARD manifest without this tool",
        ard(lambda m: m.update(entries=[])),
        "WC-REG-6",
    ),
    (
        "a server card that points at nothing",
        ard(lambda m: [r.update(url="https://a.test/rpc") for r in remotes_of(m)]),
        "WC-REG-6",
    ),
]


@pytest.mark.parametrize(
    ("tamper", "rule"),
    [pytest.param(*drift[1:], id=drift[0].replace(" ", "-")) for drift in DRIFTS],
)
def test_a_description_that_drifts_is_caught_by_its_rule(
    target: Target, tamper: Tamper, rule: str
) -> None:
    """The rule that says so is among those blamed."""
    with tampering(target.address, tamper) as address:
        part = descriptions.description_checks
        assert rule in faults_of(behind(target, address), part, binding=Binding.HTTP)
