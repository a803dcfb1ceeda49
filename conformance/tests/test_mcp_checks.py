"""The checks of sections 12 and 13: the right server is never blamed, a wrong one by its rule."""

import itertools
import json
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from looking_away import Quiet
from refusals import BAD_GATEWAY, refusing

from checkpoint_conformance import run as run_module
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
from checkpoint_conformance.client import JSON_HEADERS, HttpAnswer
from checkpoint_conformance.conversations import IN_FLIGHT_MAX
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mcp_client import Revision
from checkpoint_conformance.mutants.documents import ard
from checkpoint_conformance.mutants.keeping import behind
from checkpoint_conformance.mutants.over_mcp import is_mcp_message
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering
from checkpoint_conformance.reproduction import script
from checkpoint_conformance.rules import Binding, RuleClass
from checkpoint_conformance.run import ATTEMPTS_MAX, PROFILES, Run, Target
from checkpoint_conformance.vectors import load_vectors
from checkpoint_conformance.verdict import Status, judge
from checkpoint_model.vocabulary import TOOL_PATH

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


def _as_events(message: Message, forward: Forward) -> HttpAnswer:
    """Every answer as an event stream, after a comment and a notification."""
    answer = forward(message)
    if not is_mcp_message(message) or not answer.body or answer.status != 200:
        return answer
    told = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}'
    stream = b": hello\r\n\r\nevent: message\r\ndata: " + told + b"\r\n\r\n"
    lines = json.dumps(json.loads(answer.body), indent=1).encode().split(b"\n")
    stream += b"".join(b"data: " + line + b"\r\n" for line in lines) + b"\r\n"
    kept = [header for header in answer.headers if header[0] != "content-type"]
    return replace(answer, headers=(*kept, ("content-type", "text/event-stream")), body=stream)


def _with_sessions(message: Message, forward: Forward) -> HttpAnswer:
    """A session for whoever shakes hands, and nobody else let in."""
    if not is_mcp_message(message):
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


@pytest.mark.parametrize(
    ("part", "over", "by"),
    [
        (inputs.refused, Binding.HTTP, {Binding.HTTP}),
        (inputs.refused, Binding.MCP, {Binding.MCP}),
        (doors.doors, Binding.MCP, {Binding.HTTP, Binding.MCP}),
    ],
    ids=["inputs", "inputs over MCP", "doors"],
)
def test_workflows_apart_are_asked_about_at_once(
    target: Target, part: Part, over: Binding, by: set[Binding]
) -> None:
    """A target that answers nobody before as many have asked by a binding is not waited for."""
    meeting = {binding: threading.Barrier(IN_FLIGHT_MAX, timeout=30) for binding in by}
    first = {binding: itertools.count() for binding in by}

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        binding = Binding.HTTP if message.is_to_tool else Binding.MCP
        is_call = message.is_to_tool or message.json.get("method") == "tools/call"
        if is_call and next(first[binding]) < IN_FLIGHT_MAX:
            meeting[binding].wait()
        return forward(message)

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        with run.over(over):
            part(run)
        run.close()
    assert {key: f.fault for key, f in run.tally.failures.items()} == {}
    assert run.tally.lost == 0
    assert all(next(count) > IN_FLIGHT_MAX for count in first.values())


@pytest.mark.parametrize("times", [1, ATTEMPTS_MAX])
def test_a_rate_limit_of_somebody_else_is_not_the_control_s(
    target: Target, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Once a request too many may be refused, as a gateway does; each time the control is wrong."""
    monkeypatch.setattr(doors, "load_vectors", list)
    monkeypatch.setattr(run_module, "PAUSE_SECONDS", 0)
    refused = iter(range(times))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        is_status = message.is_to_tool and message.json["action"] == "status"
        if is_status and next(refused, None) is not None:
            return refusing("RATE_LIMITED", 429)
        return forward(message)

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        with run.over(Binding.MCP):
            doors.doors(run)
        run.close()
    broken = set() if times == 1 else {"WC-CTL-3"}
    assert {failure.rule for failure in run.tally.failures.values()} == broken
    assert (run.tally.hits["WC-CTL-3"] > 0) is not bool(broken)
    assert next(refused, None) is None


def test_a_deadline_between_the_doors_is_no_difference(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the clock runs a claim may lapse after the answer by one door, and before the other's.

    A claim of a second, of which an abandon comes in time by HTTP and too late by MCP.
    """
    brief = next(
        vector
        for vector in load_vectors()
        if "WC-ABANDON-6" in vector.rules
        and [given.request.get("claim_ttl_seconds") for given in vector.given] == [1]
    )
    monkeypatch.setattr(doors, "load_vectors", lambda: [brief])
    answered: list[tuple[Binding, int]] = []

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        arguments = message.json.get("params", {}).get("arguments", message.json)
        if arguments.get("action") != "abandon":
            return forward(message)
        give_up_at = time.monotonic() + 20
        while not message.is_to_tool and not lapsed(arguments) and time.monotonic() < give_up_at:
            pass
        answer = forward(message)
        answered.append((Binding.HTTP if message.is_to_tool else Binding.MCP, answer.status))
        return answer

    def lapsed(arguments: Members) -> bool:
        with target.client() as client:
            names = {name: arguments[name] for name in ("namespace", "workflow_key")}
            body = json.dumps({"action": "status", **names}).encode()
            told = client.exchange("POST", TOOL_PATH, body, JSON_HEADERS).answer
        assert isinstance(told, HttpAnswer)
        return json.loads(told.body)["claim_active"] is False

    with tampering(target.address, tamper) as address:
        run = run_of(replace(behind(target, address), controls=None))
        with run.over(Binding.MCP):
            doors.doors(run)
        run.close()
    assert {key: f.fault for key, f in run.tally.failures.items()} == {}
    assert run.tally.lost == 0
    assert (Binding.HTTP, 200) in answered


NO_SESSION = b'{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}'
STREAM = (("content-type", "text/event-stream"),)


@pytest.mark.parametrize(
    "instead",
    [
        HttpAnswer(status=404, headers=(), body=b""),
        HttpAnswer(status=404, headers=(), body=NO_SESSION),
        HttpAnswer(status=503, headers=(), body=NO_SESSION),
        HttpAnswer(status=200, headers=STREAM, body=b""),
        HttpAnswer(status=200, headers=STREAM, body=b": soon\n\nevent: message\n\n"),
    ],
    ids=["forgotten", "forgotten-and-told", "restarted", "cut", "cut-later"],
)
def test_a_forgotten_session_is_begun_anew(target: Target, instead: HttpAnswer) -> None:
    """A call whose session is gone is lost, as one whose answer never came; the next goes on."""
    forgotten = iter([True])

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.json.get("method") == "tools/call" and next(forgotten, False):
            return instead
        return _with_sessions(message, forward)

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        run.endpoint.meet(Revision.NOVEMBER_2025)
        with run.over(Binding.MCP):
            inputs.accepted(run)
        run.close()
    assert run.tally.failures == {}
    assert run.tally.lost == 1


def test_an_endpoint_that_lets_nobody_in_for_a_moment_ends_no_run(target: Target) -> None:
    """It forgot the session because it starts again: the calls until it is back are lost."""
    forgotten, away = iter([True]), iter([True])
    met = False

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        method = message.json.get("method")
        if method == "tools/call" and next(forgotten, False):
            return HttpAnswer(status=404, headers=(), body=b"")
        if method == "server/discover":  # nothing that a server of 2025 knows
            return HttpAnswer(status=400, headers=(), body=b"")
        if method == "initialize" and met and next(away, False):
            return BAD_GATEWAY
        return _with_sessions(message, forward)

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        run.endpoint.meet()
        met = True
        with run.over(Binding.MCP):
            inputs.accepted(run)
        run.close()
    assert run.tally.failures == {}
    assert run.tally.lost == 2
    assert "no MCP client was let in" in " ".join(run.tally.lost_what)


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "always"])
@pytest.mark.parametrize("method", ["initialize", "server/discover", "tools/list"])
@pytest.mark.parametrize("away", ["502", "404", "hangs up"])
def test_what_keeps_an_mcp_client_out_for_a_moment_breaks_no_rule(
    target: Target, monkeypatch: pytest.MonkeyPatch, times: int, method: str, away: str
) -> None:
    """Each kind of client, whatever it says first; what keeps one out for good is still named."""
    monkeypatch.setattr(run_module, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(descriptions, "_accepted", lambda *_: None)
    seen = Counter[str]()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        said, revision = message.json.get("method"), message.headers.get("mcp-protocol-version")
        client = f"{said} {revision} {message.json.get('params')}"
        seen[client] += 1
        if said != method or seen[client] > times:
            return forward(message)
        if away == "hangs up":
            raise ConnectionAbortedError
        return HttpAnswer(status=int(away), headers=(), body=b"<p>")

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        with run.over(Binding.MCP):
            mcp.mcp_checks(run)
        descriptions.description_checks(run)
        run.close()
    named = {rule for failure in run.tally.failures.values() for rule in failure.fault.rules}
    if times == 1:
        assert (named, run.tally.incomplete) == (set(), [])
        assert run.tally.hits["WC-MCP-1"] == len(Revision)
        assert run.tally.hits["WC-REG-2"] == 1
    else:
        assert named == {"WC-MCP-1"}


@pytest.mark.parametrize(
    ("message", "rule"),
    [(b'{"jsonrpc":"2.0","id":"another","result":{}}', "WC-MCP-1"), (NO_SESSION, "WC-MCP-3")],
    ids=["of-another-id", "an-error"],
)
def test_a_stream_that_answers_wrongly_is_told(target: Target, message: bytes, rule: str) -> None:
    """It was not cut: it is no answer to the call."""

    def tamper(asked: Message, forward: Forward) -> HttpAnswer:
        if asked.json.get("method") == "tools/call":
            return HttpAnswer(status=200, headers=STREAM, body=b"data: " + message + b"\n\n")
        return forward(asked)

    with tampering(target.address, tamper) as address:
        run = run_of(behind(target, address))
        with run.over(Binding.MCP):
            inputs.accepted(run)
        run.close()
    assert {failure.rule for failure in run.tally.failures.values()} == {rule}


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
