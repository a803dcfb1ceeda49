"""From an exchange to an answer: its kind, and everything that is wrong with its form."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from checkpoint_conformance.answers import Foreign, Problem, Result, Unknown, json_object, read
from checkpoint_conformance.client import Exchange, HttpAnswer
from checkpoint_conformance.rules import Binding

RESULT: dict[str, Any] = {"stage": "claimed", "workflow_hash": "hmac-sha256:" + "0a" * 32}
LIMITED: dict[str, Any] = {
    "type": "about:blank",
    "title": "t",
    "detail": "d",
    "recovery": "r",
    "code": "RATE_LIMITED",
    "status": 429,
    "retry": True,
    "charged": False,
    "retry_after_seconds": 3,
}
TEXT = object()
"""Stands for the same JSON as the structured content, as text."""


def rules_of(came: Any) -> list[tuple[str, ...]]:
    """The rules of each fault of its form."""
    return [fault.rules for fault in came.faults]


def over_http(
    status: int, members: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Any:
    """What an answer over HTTP is read as."""
    kind = "application/problem+json" if "code" in members else "application/json"
    given = {"content-type": kind, "cache-control": "no-store", **(headers or {})}
    body = json.dumps(members).encode()
    return read(exchange(HttpAnswer(status=status, headers=tuple(given.items()), body=body)))


def over_mcp(result: object, **message: object) -> Any:
    """What the result of a call over MCP is read as."""
    whole = {"jsonrpc": "2.0", "id": 7, "result": result, **message}
    whole = {name: value for name, value in whole.items() if value is not ...}
    headers = (("content-type", "application/json"),)
    answer = HttpAnswer(status=200, headers=headers, body=json.dumps(whole).encode())
    return read(exchange(answer, Binding.MCP))


def exchange(answer: HttpAnswer, binding: Binding = Binding.HTTP) -> Exchange:
    """The exchange that an answer ended."""
    return Exchange(
        method="POST",
        path="/",
        headers=(),
        body=b"",
        called_ns=0,
        returned_ns=1,
        answer=answer,
        binding=binding,
        request_id=7,
    )


def tool_result(members: Mapping[str, Any], *, text: object = TEXT, **more: Any) -> dict[str, Any]:
    """A right tool result, or one with another text or more members."""
    said = json.dumps(members) if text is TEXT else text
    return {
        "structuredContent": members,
        "content": [] if said is None else [{"type": "text", "text": said}],
        "isError": "code" in members,
        **more,
    }


@pytest.mark.parametrize(
    ("status", "changed", "header", "rules"),
    [
        (429, {}, "3", []),
        (429, {}, "4", [("WC-ERR-3",)]),
        (429, {}, "", [("WC-ERR-3",)]),
        (429, {"retry_after_seconds": 0}, "0", [("WC-ERR-3",)]),
        (503, {"status": 503}, "3", [("WC-ERR-1",)]),
        (429, {"status": 503}, "3", [("WC-ERR-1",)]),
        (429, {"retry": False}, "3", [("WC-ERR-1",)]),
        (429, {"stage": "claimed"}, "3", [("WC-ERR-2",)]),
    ],
)
def test_a_refusal_is_held_to_the_table_and_to_its_header(
    status: int, changed: dict[str, Any], header: str, rules: list[tuple[str, ...]]
) -> None:
    """One status for each code, the same twice; seconds to wait, the same in the header."""
    came = over_http(status, {**LIMITED, **changed}, {"retry-after": header})
    assert isinstance(came, Problem)
    assert rules_of(came) == rules


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(RESULT).encode("utf-16"),
        b"\xef\xbb\xbf" + json.dumps(RESULT).encode(),
        b'{"stage": NaN}',
        b"[]",
        b'{"a":' * 100_000,
    ],
    ids=["utf-16", "bom", "nan", "array", "deep"],
)
def test_what_is_not_one_json_object_in_utf_8_is_none(body: bytes) -> None:
    """However much a library would guess."""
    assert json_object(body) is None
    answer = HttpAnswer(status=200, headers=(), body=body)
    assert isinstance(read(exchange(answer)), Foreign)


def test_a_right_tool_result_has_no_fault() -> None:
    """A result, and a problem object that says what HTTP would."""
    came = over_mcp(tool_result(RESULT))
    assert isinstance(came, Result)
    assert came.faults == ()
    came = over_mcp(tool_result(LIMITED))
    assert isinstance(came, Problem)
    assert came.faults == ()


@pytest.mark.parametrize(
    ("result", "rules"),
    [
        (tool_result(RESULT, text=None), ("WC-MCP-2",)),
        (tool_result(RESULT, text='{"stage":"failed"}'), ("WC-MCP-2",)),
        (tool_result(RESULT, text="claimed"), ("WC-MCP-2",)),
        (tool_result(RESULT, isError=True), ("WC-MCP-2",)),
        (tool_result(LIMITED, isError=False), ("WC-MCP-3",)),
        (tool_result(LIMITED, text="slow down"), ("WC-MCP-3",)),
        (tool_result({**LIMITED, "status": 200}), ("WC-MCP-3", "WC-ERR-1")),
        (tool_result({**RESULT, "workflow_hash": "x"}), ("WC-ID-1",)),
    ],
)
def test_a_tool_result_is_held_to_its_own_text_and_kind(
    result: dict[str, Any], rules: tuple[str, ...]
) -> None:
    """Told apart by its code alone; all else must say the same."""
    assert rules_of(over_mcp(result)) == [rules]


@pytest.mark.parametrize(
    ("result", "message", "rule"),
    [
        (..., {"error": {"code": -32602, "message": "no"}}, "WC-MCP-3"),
        (tool_result(RESULT), {"id": 8}, "WC-MCP-1"),
        ({"content": [{"type": "text", "text": "{}"}]}, {}, "WC-MCP-2"),
    ],
    ids=["protocol-error", "another-call-s", "text-alone"],
)
def test_what_is_no_tool_result_is_named(
    result: object, message: dict[str, Any], rule: str
) -> None:
    """A protocol error, the answer to another call, and a result without structure."""
    came = over_mcp(result, **message)
    assert isinstance(came, Foreign)
    assert rules_of(came) == [(rule,)]


def test_a_fault_of_the_server_s_own_tells_nothing() -> None:
    """Whether the request was applied is then unknown (decision D8)."""
    inside = over_mcp(..., error={"code": -32603, "message": "oh"})
    assert isinstance(inside, Unknown)
    gateway = HttpAnswer(status=502, headers=(), body=b"<p>")
    assert isinstance(read(exchange(gateway, Binding.MCP)), Unknown)
    assert isinstance(read(exchange(gateway)), Unknown)
