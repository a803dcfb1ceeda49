"""Section 13: descriptions of another making are understood, and what is wrong of one is named."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from looking_away import Quiet
from raw_server import request_of, talking
from refusals import BAD_GATEWAY

from checkpoint_conformance import run as run_module
from checkpoint_conformance.answers import Fault
from checkpoint_conformance.checks import descriptions, fuzzing
from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.documents import ard, manifest, openapi
from checkpoint_conformance.mutants.keeping import behind
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import Session
from checkpoint_model import CONTRACT_VERSION
from checkpoint_model.vocabulary import (
    ARD_PATH,
    LLMS_PATH,
    MANIFEST_PATH,
    MCP_PATH,
    OPENAPI_PATH,
    TOOL_PATH,
)

Members = dict[str, Any]
Change = Callable[[Members], object]
DOCUMENTS = (MANIFEST_PATH, OPENAPI_PATH, ARD_PATH, LLMS_PATH)
RULES = [f"WC-REG-{number}" for number in range(1, 7)]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The right server, with everything."""
    with reference_server() as target:
        yield target


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and none of the hundreds of requests that are no description's business."""
    monkeypatch.setattr(run_module, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(descriptions, "_accepted", lambda *_: None)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Fault]:
    """Every fault that is told; of several of one rule the tally keeps one."""
    faults: list[Fault] = []
    report = Session.report

    def listen(session: Session, fault: Fault) -> None:
        faults.append(fault)
        report(session, fault)

    monkeypatch.setattr(Session, "report", listen)
    return faults


def seen_through(target: Target, tamper: Tamper) -> Run:
    """The run of the check, over."""
    with tampering(target.address, tamper) as address:
        profile = replace(PROFILES["quick"], fuzz_examples=1)
        run = Run(target=behind(target, address), profile=profile, seed=1, progress=Quiet())
        descriptions.description_checks(run)
        run.close()
    return run


def named_through(target: Target, tamper: Tamper) -> set[str]:
    """The rules that are blamed."""
    failures = seen_through(target, tamper).tally.failures.values()
    return {rule for failure in failures for rule in failure.fault.rules}


# -- what is not there, or not yet --------------------------------------------------------


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "always"])
def test_a_description_that_a_gateway_has_not_is_asked_for_again(
    target: Target, times: int
) -> None:
    """A 502 to each of them; for good, each is missed by its own rule."""
    failed = Counter[str]()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        failed[message.path] += 1
        away = message.path in DOCUMENTS and failed[message.path] <= times
        return BAD_GATEWAY if away else forward(message)

    tally = seen_through(target, tamper).tally
    assert tally.incomplete == []
    if times == 1:
        assert {rule: f.fault for rule, f in tally.failures.items()} == {}
        assert tally.lost == len(DOCUMENTS)
        assert [rule for rule in RULES if not tally.hits[rule]] == []
    else:
        assert set(tally.failures) == {"WC-REG-4", "WC-REG-5", "WC-REG-6"}


def test_a_description_that_is_lost_takes_no_other_with_it(target: Target) -> None:
    """Whoever hangs up when asked for one is asked for all the others."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == ARD_PATH:
            raise ConnectionAbortedError
        return forward(message)

    tally = seen_through(target, tamper).tally
    assert tally.failures == {}
    assert tally.incomplete == ["a sequence of the check «» lost its answers"]
    assert [rule for rule in RULES if not tally.hits[rule]] == ["WC-REG-6"]


def test_what_a_description_points_at_is_lost_alone(target: Target) -> None:
    """The MCP endpoint hangs up on whoever only looks whether it is there."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == MCP_PATH and message.body == b"{}":
            raise ConnectionAbortedError
        return forward(message)

    tally = seen_through(target, tamper).tally
    assert tally.failures == {}
    assert tally.incomplete == ["a sequence of the check «» lost its answers"]
    assert all(tally.hits[rule] for rule in RULES if rule != "WC-REG-6")


def test_a_stream_that_is_opened_by_get_is_not_waited_for(target: Target) -> None:
    """MCP's may stay silent for hours; that it is there is seen by its head."""
    asked: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        asked.append(request_of(connection).partition(b" HTTP")[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        connection.recv(1)  # until the client hangs up

    with talking(talk) as url:
        at = replace(target, address=Address.parse(url), controls=None, seconds_max=30)
        run = Run(target=at, profile=PROFILES["quick"], seed=1, progress=Quiet())
        started = time.monotonic()
        _, answer = run.session().http("GET", MCP_PATH)
        run.close()
    assert (answer.status, answer.body, run.tally.lost) == (200, b"", 0)
    assert asked == [b"GET /mcp"]
    assert time.monotonic() - started < 15


def test_what_is_spoken_to_by_post_is_looked_at_by_post(target: Target) -> None:
    """A GET of the MCP endpoint may open a stream, whose head may be kept until its first event."""
    asked: set[tuple[str, str]] = set()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        asked.add((message.method, message.path))
        return forward(message)

    assert named_through(target, tamper) == set()
    assert {method for method, path in asked if path in (MCP_PATH, TOOL_PATH)} == {"POST"}


# -- OpenAPI ------------------------------------------------------------------------------


def _operation(members: Members) -> Members:
    operation: Members = members["paths"][TOOL_PATH]["post"]
    return operation


def _has_schema(members: Members, reference: str) -> None:
    content = _operation(members)["requestBody"]["content"]
    content["application/json"]["schema"] = {"$ref": reference}


def _below_a_server(members: Members) -> None:
    folder, _, name = TOOL_PATH.rpartition("/")
    members["servers"] = [{"url": f"https://public.test{folder}/"}]
    members["paths"] = {f"/{name}": members["paths"][TOOL_PATH]}


def _below_a_server_of_its_own(members: Members) -> None:
    item = members["paths"].pop(TOOL_PATH)
    item["servers"] = [{"url": "{base}/tools", "variables": {"base": {"default": "/v1"}}}]
    members["paths"]["/workflow-checkpoint"] = item


def _below_a_public_path(members: Members) -> None:
    members["servers"] = [{"url": "https://public.test/behind/a/proxy"}]


def _a_path_by_reference(members: Members) -> None:
    members["components"]["pathItems"] = {"tool": members["paths"][TOOL_PATH]}
    members["paths"][TOOL_PATH] = {"$ref": "#/components/pathItems/tool"}


def _a_body_by_reference(members: Members) -> None:
    members["components"]["requestBodies"] = {"tool": _operation(members)["requestBody"]}
    _operation(members)["requestBody"] = {"$ref": "#/components/requestBodies/tool"}


def _a_percent_encoded_reference(members: Members) -> None:
    _has_schema(members, "#/components/%73chemas/Request")


def _a_reference_into_a_list(members: Members) -> None:
    members["components"]["schemas"]["Whole"] = {
        "oneOf": [members["components"]["schemas"]["Request"]]
    }
    _has_schema(members, "#/components/schemas/Whole/oneOf/0")


def _a_reference_by_anchor(members: Members) -> None:
    members["components"]["schemas"]["Request"]["$anchor"] = "request"
    _has_schema(members, "#request")


@pytest.mark.parametrize(
    "change",
    [
        _below_a_server,
        _below_a_server_of_its_own,
        _below_a_public_path,
        _a_path_by_reference,
        _a_body_by_reference,
        _a_percent_encoded_reference,
        _a_reference_into_a_list,
        _a_reference_by_anchor,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_an_openapi_document_of_another_making_is_understood(
    target: Target, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """All that OpenAPI 3.1 allows; bodies are made from it as from any other."""
    tally = seen_through(target, openapi(change)).tally
    assert {rule: f.fault for rule, f in tally.failures.items()} == {}
    assert tally.hits["WC-REG-6"] == tally.hits["WC-REG-1"] == 1
    made: list[str] = []

    def fuzz(_: Run, schema: Any) -> None:
        made.extend(found.ok().path for found in schema.get_all_operations())

    monkeypatch.setattr(fuzzing, "_fuzz", fuzz)
    with tampering(target.address, openapi(change)) as address:
        run = Run(
            target=replace(target, address=address),
            profile=PROFILES["quick"],
            seed=1,
            progress=Quiet(),
        )
        fuzzing.fuzz_by_its_own_description(run)
        run.close()
    assert len(made) == 1


def _below_another_server(members: Members) -> None:
    members["servers"] = [{"url": "/v2"}]
    members["paths"]["/tool"] = members["paths"].pop(TOOL_PATH)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (_below_another_server, '["/healthz", "/tool"]'),
        (lambda m: m["paths"].update({TOOL_PATH: {"$ref": "#/paths/nothing"}}), "#/paths/nothing"),
        (lambda m: _has_schema(m, "#/servers/7"), "#/servers/7"),
        (lambda m: _has_schema(m, "#no-anchor"), "#no-anchor"),
        (lambda m: m["paths"].update({"/ü": m["paths"][TOOL_PATH]}), "404"),
    ],
    ids=["another server", "no such path", "beyond a list", "no such anchor", "not in ASCII"],
)
def test_an_openapi_document_that_points_at_nothing_is_found(
    target: Target, found: list[Fault], change: Change, got: str
) -> None:
    """However it does."""
    assert "WC-REG-6" in named_through(target, openapi(change))
    assert got in [fault.got for fault in found if fault.rules[0] == "WC-REG-6"]


@pytest.mark.parametrize("url", ["http://[", "https://a.test/ü", "https://a.test"])
def test_a_url_of_the_ard_manifest_that_leads_nowhere_is_named(target: Target, url: str) -> None:
    """Also one that no library reads, one that no request line takes, and one without a path."""
    assert named_through(target, ard(lambda m: m["entries"][0].update(url=url))) == {"WC-REG-6"}


# -- the others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("# Workflow Checkpoint v1.1.0", True),
        ("(V1.1.0)", True),
        ("version 1.1.0.", True),
        ("version 11.1.0", False),
        ("rev1.1.0", False),
        ("1.1.01", False),
    ],
)
def test_a_version_may_have_its_letter_before_it(text: str, is_named: bool) -> None:
    """And no other."""
    assert descriptions._names(text, CONTRACT_VERSION) is is_named


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda m: m["stages"].reverse(), set()),
        (lambda m: m["stages"].append(m["stages"][0]), {"WC-REG-4"}),
        (lambda m: m["graph"][0].update(evidence=[1, None, "x"]), {"WC-REG-4"}),
        (lambda m: m["examples"][0].update(given=[None]), {"WC-REG-3"}),
    ],
    ids=["stages in another order", "a stage twice", "evidence of many kinds", "given nothing"],
)
def test_a_manifest_is_held_to_what_it_says_whatever_it_holds(
    target: Target, change: Change, named: set[str]
) -> None:
    """Sets have no order; what is of another kind is named, and nothing stumbles over it."""
    assert named_through(target, manifest(change)) == named


def test_a_document_without_members_is_none(target: Target) -> None:
    """It says nothing that is wrong, and nothing at all."""
    assert "WC-REG-4" in named_through(target, manifest(lambda m: m.clear()))
