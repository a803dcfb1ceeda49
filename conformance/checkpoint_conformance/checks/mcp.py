"""Section 12: the endpoint, its one tool, and what a call of it may come to.

What the tool decides is judged by the other checks, which go through this door as well.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from checkpoint_conformance.acceptance import (
    Probe,
    SchemaError,
    answer_probes,
    differing,
    request_probes,
)
from checkpoint_conformance.answers import Fault, Problem
from checkpoint_conformance.checks.walk import FINGERPRINT, Cast
from checkpoint_conformance.client import Client
from checkpoint_conformance.mcp_client import (
    McpClient,
    ProtocolError,
    Revision,
    UnansweredError,
    envelope,
)
from checkpoint_conformance.rules import Binding, RuleClass
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session
from checkpoint_model import ErrorCode, EvidenceType, Stage, Status, format_request
from checkpoint_model.vocabulary import BODY_BYTES_MAX, MCP_TOOL

_HINTS: Final = {
    "idempotentHint": True,
    "readOnlyHint": False,
    "destructiveHint": False,
    "openWorldHint": False,
}
ROOT_COMBINATORS: Final = ("oneOf", "anyOf", "allOf", "$ref")
"""What hosts of models refuse at a schema's root (WC-MCP-6)."""


def mcp_checks(run: Run) -> None:
    """All of them."""
    for revision in Revision:
        run.attempt(_spoken, run, revision)
    run.attempt(_one_tool, run)
    run.attempt(_arguments, run)
    run.attempt(_strays, run)


def _spoken(run: Run, revision: Revision) -> None:
    """WC-MCP-1: a client of this revision is let in, sees the tool, and calls it."""
    session = run.session()
    endpoint = run.target.endpoint()
    endpoint.heard = lambda exchange: session.note(exchange, None)
    with spoken_to(
        session, f"a client of protocol revision {revision}", "it is let in, and is shown the tool"
    ):
        endpoint.meet(revision)
        tools = endpoint.list_tools()
    names = [tool.get("name") for tool in tools]
    if names != [MCP_TOOL]:
        session.fail(
            Fault(
                rules=("WC-MCP-1",),
                what=f"the tools that a client of protocol revision {revision} is shown",
                expected=f"one, {MCP_TOOL}",
                got=json.dumps(names),
            )
        )
    with McpClient(endpoint, run.target.client()) as client:
        session.go_by(client)
        cast = Cast()
        session.send(cast.claim(cast.ann))
        session.send(cast.claim(cast.bob))
        session.send(Status(holder=cast.ann))
    run.tally.hit("WC-MCP-1")


@contextmanager
def spoken_to(session: Session, what: str, expected: str) -> Iterator[None]:
    """Speak with the endpoint itself; what it does not understand breaks WC-MCP-1.

    Raises:
        ViolationError: it does not.
        LostError: nothing came that tells.
    """
    try:
        yield
    except ProtocolError as error:
        fault = Fault(rules=("WC-MCP-1",), what=what, expected=expected, got=str(error))
        if isinstance(error, UnansweredError):
            session.lose(error.exchange, fault)
        session.fail(fault)


def _one_tool(run: Run) -> None:
    """WC-MCP-5 and WC-MCP-6: what a host of models is told of the tool."""
    session = run.session()
    tool = tool_of(run, session)
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    wrong = {name for name, expected in _HINTS.items() if hints.get(name) is not expected}
    if wrong:
        session.report(
            Fault(
                rules=("WC-MCP-5",),
                what=f"the annotations {', '.join(sorted(wrong))}",
                expected=json.dumps({name: _HINTS[name] for name in sorted(wrong)}),
                got=json.dumps({name: hints.get(name) for name in sorted(wrong)}),
            )
        )
    else:
        run.tally.hit("WC-MCP-5")
    _schema(run, session, tool, "inputSchema", request_probes())
    _schema(run, session, tool, "outputSchema", answer_probes())


def tool_of(run: Run, session: Session) -> dict[str, Any]:
    """The tool as it is listed, the exchanges noted in the session.

    Raises:
        ViolationError: it is not.
        LostError: nothing came that tells.
    """
    endpoint, expected = run.endpoint, f"the tool {MCP_TOOL}"
    try:
        with spoken_to(session, "tools/list", expected):
            if endpoint.introduced is None:  # or else that would be a part of the sequence, or not
                endpoint.meet()
            endpoint.heard = lambda exchange: session.note(exchange, None)
            tools = endpoint.list_tools()
    finally:
        endpoint.heard = None
    tool = next((tool for tool in tools if tool.get("name") == MCP_TOOL), None)
    if tool is None:
        told = f"the tools {json.dumps([tool.get('name') for tool in tools])}"
        session.fail(Fault(rules=("WC-MCP-1",), what="tools/list", expected=expected, got=told))
    return tool


def _schema(
    run: Run, session: Session, tool: dict[str, Any], member: str, probes: Iterable[Probe]
) -> None:
    schema = tool.get(member)

    def wrong(what: str, expected: str, got: str) -> None:
        session.report(Fault(rules=("WC-MCP-6",), what=what, expected=expected, got=got))

    if not isinstance(schema, dict) or schema.get("type") != "object":
        got = schema.get("type") if isinstance(schema, dict) else schema
        wrong(f"the root of `{member}`", "an object with `type`: `object`", json.dumps(got))
        return
    found = [name for name in ROOT_COMBINATORS if name in schema]
    if found:
        wrong(f"the root of `{member}`", "no combinator", ", ".join(found))
        return
    try:
        probe = next(differing(schema, probes), None)
    except SchemaError as error:
        wrong(f"`{member}`", "a JSON Schema", str(error))
        return
    if probe is not None:
        expected, got = ("accepts", "refuses") if probe.accepted else ("refuses", "accepts")
        told = f"it {expected} it, as the contract's schema does"
        wrong(f"what `{member}` does with {probe.what}: {probe.told}", told, f"it {got} it")
        return
    run.tally.hit("WC-MCP-6")


def _arguments(run: Run) -> None:
    """WC-MCP-2 and WC-MCP-3: no arguments are `{}`; what is no request is a tool result."""
    cast, session = Cast(), run.session()
    move = cast.move(
        cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=FINGERPRINT
    )
    request = format_request(session.identity, move)
    session.know(request)
    for what, rules, arguments in (
        ("a call without arguments", ("WC-MCP-2", "WC-MCP-3"), None),
        ("a call with the arguments {}", ("WC-MCP-3",), {}),
        ("a call with a member too many", ("WC-MCP-3",), {**request, "comment": "hello"}),
        ("a call with a wrong type", ("WC-MCP-3",), {**request, "generation": "1"}),
        ("a call of an unknown action", ("WC-MCP-3",), {**request, "action": "another"}),
        (
            f"a call whose arguments have more than {BODY_BYTES_MAX} bytes",
            ("WC-MCP-3", "WC-IN-4"),
            {**request, "comment": "x" * BODY_BYTES_MAX},
        ),
    ):
        body = None if arguments is None else json.dumps(arguments).encode()
        with run.new_client() as client:
            assert isinstance(client, McpClient)
            flight = client.compose_call(body)
            flight.release()
            exchange = flight.land()
        came = session.settle(exchange)
        if not (isinstance(came, Problem) and came.code is ErrorCode.INVALID_INPUT):
            session.report(
                Fault(
                    rules=rules,
                    what=what,
                    expected="a tool result with isError and the problem INVALID_INPUT",
                    got=session.sequence[-1].answered,
                )
            )
        elif not came.faults:
            run.tally.hit(*rules)


def _strays(run: Run) -> None:
    """WC-PRIV-1: messages that are no call of the tool say nothing of what they held either."""
    cast, session = Cast(), run.session()
    move = cast.move(
        cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=FINGERPRINT
    )
    request = format_request(session.identity, move)
    session.know(request)
    with spoken_to(session, "a client", "it is let in"):
        met = run.endpoint.introduced or run.endpoint.meet()
    call = {"name": MCP_TOOL, "arguments": request}
    text = json.dumps(call).encode()
    strays: list[tuple[str, bytes]] = [
        ("tools/call", json.dumps({**call, "name": cast.ann}).encode()),
        ("tools/call", json.dumps({**call, "name": request}).encode()),
        ("tools/call", json.dumps({"name": MCP_TOOL, "arguments": [request]}).encode()),
        ("tools/call", json.dumps({"name": MCP_TOOL, "arguments": cast.ann}).encode()),
        ("tools/call", json.dumps({**request, "arguments": request}).encode()),
        ("tools/call", text[:-1] + b",}"),
        ("tools/call", text.replace(b'"generation": 1', b'"generation": NaN')),
        (cast.ann, text),
        ("prompts/get", json.dumps({"name": request["workflow_key"], "arguments": {}}).encode()),
        ("resources/read", json.dumps({"uri": f"checkpoint:{request['namespace']}"}).encode()),
    ]
    with Client(
        run.endpoint.address,
        headers=run.target.headers,
        seconds_max=run.target.seconds_max,
    ) as client:
        for method, params in strays:
            request_id = run.endpoint.next_id()
            body, headers = envelope(
                method,
                params,
                request_id=request_id,
                revision=met.revision,
                session_id=met.session_id,
                name=MCP_TOOL,
            )
            session.heard(run.endpoint.post(client, body, headers, request_id))
    # It goes on serving.
    session.send(cast.claim(cast.ann))
    run.tally.hit("WC-PRIV-1")


CHECKS = (
    Check(
        name="mcp",
        title="The MCP endpoint and its tool",
        run=mcp_checks,
        binding=Binding.MCP,
        needs_class=RuleClass.MCP,
    ),
)
