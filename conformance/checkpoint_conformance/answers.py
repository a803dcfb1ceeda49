"""From an exchange to an answer, with everything that is wrong with its form.

``Answer = Result | Problem | Unknown``: refused and unknown are different. A refusal is known;
after ``DEPENDENCY_UNAVAILABLE``, a 5xx without a code or no answer at all, nobody knows.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from checkpoint_conformance.client import Exchange, HttpAnswer, Lost
from checkpoint_conformance.mcp_client import is_cut_stream, message_of
from checkpoint_conformance.plain import plain
from checkpoint_conformance.rules import Binding
from checkpoint_model import ERRORS, ErrorCode
from checkpoint_model.vocabulary import WORKFLOW_HASH_PREFIX


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that is wrong, and the rules that it breaks, the nearest first."""

    rules: tuple[str, ...]
    what: str
    expected: str
    got: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A success."""

    members: dict[str, Any]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """An error of section 8."""

    code: ErrorCode
    members: dict[str, Any]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """Nothing that tells whether the request was applied."""

    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreign:
    """A complete answer that is neither a result nor an error of the contract."""

    why: str
    faults: tuple[Fault, ...]


Answer: TypeAlias = Result | Problem | Unknown | Foreign


def is_decided(answer: Answer) -> bool:
    """Whether section 6 decided it, for or against."""
    return isinstance(answer, Result) or (
        isinstance(answer, Problem) and ERRORS[answer.code].decided
    )


JSONRPC_INTERNAL_ERROR: Final = -32603
EXCERPT_MAX: Final = 120
"""Characters of an answer that is no answer of the contract."""
_FREE_STRINGS: Final = ("type", "title", "detail", "recovery")
_PROBLEM_MEMBERS: Final = frozenset(
    {*_FREE_STRINGS, "status", "code", "retry", "charged", "observed_at", "stage", "generation"}
    | {"claim_expires_at", "retry_after_seconds", "configuration"}
)
_DECIDED_MEMBERS: Final = frozenset(
    {"observed_at", "stage", "generation", "claim_expires_at", "configuration"}
)
"""Members of an error that section 6 decides, and of no other (WC-ERR-2, WC-ERR-8)."""


def read(exchange: Exchange) -> Answer:
    """Classify the answer of a tool request and check its form (sections 8, 11 and 12)."""
    answer = exchange.answer
    if isinstance(answer, Lost):
        return Unknown(why=answer.why)
    if exchange.binding is Binding.MCP:
        return _read_call(answer, exchange.request_id)
    members = json_object(answer.body)
    code = members.get("code") if members is not None else None
    # By its code first: an error that comes with status 200 is an error with a wrong status, and
    # taken for a result it would break every rule there is.
    if members is not None and isinstance(code, str) and code in ErrorCode.__members__:
        faults = (
            *_binding(answer, "application/problem+json"),
            *_form_of_problem(answer.status, members, ErrorCode(code)),
            *_retry_after_header(answer, members, ErrorCode(code)),
        )
        return Problem(code=ErrorCode(code), members=members, faults=faults)
    if members is not None and answer.status == 200:
        faults = (*_binding(answer, "application/json"), *_form_of_result(members))
        return Result(members=members, faults=faults)
    if answer.status >= 500:
        return Unknown(why=f"HTTP {answer.status} without a code")
    return _foreign(answer, members)


def _foreign(answer: HttpAnswer, members: dict[str, Any] | None) -> Foreign:
    kind = answer.header("content-type") or "no content type"
    got = f"HTTP {answer.status}, {kind}: {_excerpt(answer.body)}"
    rule = "WC-HTTP-1" if answer.status == 200 or members is None else "WC-ERR-1"
    fault = Fault(
        rules=(rule,),
        what="the answer is neither a result nor an error of the contract",
        expected="200 with a result, or a problem object with a code of section 8",
        got=got,
    )
    return Foreign(why=got, faults=(fault,))


def _read_call(answer: HttpAnswer, request_id: int | None) -> Answer:
    """What a call of the tool over MCP came to (WC-MCP-2, WC-MCP-3)."""
    message = message_of(answer, request_id)
    if "result" not in (message or {}) and (answer.status >= 500 or answer.status == 404):
        # 404: a session that the server has forgotten; what it says of it is unspecified.
        return Unknown(why=f"HTTP {answer.status} without a tool result")
    if message is None:
        if is_cut_stream(answer):
            # One that a server closed as it was stopped: the call may have been made.
            return Unknown(why="an event stream that ended without the answer")
        what = "the call was not answered with a JSON-RPC message of its id"
        return _no_tool_result("WC-MCP-1", what, f"HTTP {answer.status}: {_excerpt(answer.body)}")
    error = message.get("error")
    if error is not None:
        if isinstance(error, dict) and error.get("code") == JSONRPC_INTERNAL_ERROR:
            return Unknown(why="a JSON-RPC internal error")
        what = "the call was answered with a protocol error"
        return _no_tool_result("WC-MCP-3", what, plain(json.dumps(error), EXCERPT_MAX))
    result = message["result"]
    members = result.get("structuredContent") if isinstance(result, dict) else None
    if not isinstance(members, dict):
        told = plain(json.dumps(result), EXCERPT_MAX)
        return _no_tool_result("WC-MCP-2", "the tool result has no `structuredContent`", told)
    code = members.get("code")
    if isinstance(code, str) and code in ErrorCode.__members__:
        faults = (
            *_form_of_problem(None, members, ErrorCode(code)),
            *_form_of_call("WC-MCP-3", result, members, is_error=True),
        )
        return Problem(code=ErrorCode(code), members=members, faults=faults)
    faults = (
        *_form_of_result(members),
        *_form_of_call("WC-MCP-2", result, members, is_error=False),
    )
    return Result(members=members, faults=faults)


def _no_tool_result(rule: str, what: str, got: str) -> Foreign:
    fault = Fault(
        rules=(rule,),
        what=what,
        expected="a tool result with a result or a problem object as `structuredContent`",
        got=got,
    )
    return Foreign(why=got, faults=(fault,))


def _form_of_call(
    rule: str, result: dict[str, Any], members: dict[str, Any], *, is_error: bool
) -> Iterable[Fault]:
    if (result.get("isError", False) is True) is not is_error:
        # An error is told from a success by either alone; a result that says both misleads.
        yield Fault(
            rules=(rule,),
            what=f"`isError` with a {'problem object' if is_error else 'result'}",
            expected=json.dumps(is_error),
            got=shown(result, "isError"),
        )
    content = result.get("content")
    texts = [
        block.get("text")
        for block in (content if isinstance(content, list) else ())
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    if not any(_json_of(text) == members for text in texts):
        yield Fault(
            rules=(rule,),
            what="the text of the tool result",
            expected="the same JSON as `structuredContent`",
            got=plain(json.dumps(texts), EXCERPT_MAX),
        )


def _json_of(text: object) -> dict[str, Any] | None:
    # A lone surrogate can be escaped in JSON, and is no text to encode.
    return json_object(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else None


def _form_of_result(members: dict[str, Any]) -> Iterable[Fault]:
    if "code" in members:
        yield Fault(
            rules=("WC-ERR-1",),
            what="a problem object came with status 200",
            expected="the status of its code",
            got=f"200, code {members['code']!r}",
        )
    workflow_hash = members.get("workflow_hash")
    if not is_workflow_hash(workflow_hash):
        yield Fault(
            rules=("WC-ID-1" if "workflow_hash" in members else "WC-VIEW-1",),
            what="`workflow_hash`",
            expected=f"{WORKFLOW_HASH_PREFIX} and 64 lower-case hex digits",
            got=shown(members, "workflow_hash"),
        )


def is_workflow_hash(value: object) -> bool:
    """Whether a value has the form of WC-ID-1."""
    if not isinstance(value, str) or not value.startswith(WORKFLOW_HASH_PREFIX):
        return False
    digits = value.removeprefix(WORKFLOW_HASH_PREFIX)
    return len(digits) == 64 and set(digits) <= set("0123456789abcdef")


def _form_of_problem(
    http_status: int | None, members: dict[str, Any], code: ErrorCode
) -> Iterable[Fault]:
    """What is wrong with a problem object; it came without a status of HTTP's own where None."""
    row = ERRORS[code]
    statuses = row.http_statuses
    said = members.get("status")
    one_of = " or ".join(map(str, statuses))
    if http_status is None:
        if as_integer(said) not in statuses:
            yield Fault(
                rules=("WC-MCP-3", "WC-ERR-1"),
                what=f"the `status` of {code}",
                expected=f"{one_of}, as over HTTP",
                got=shown(members, "status"),
            )
    elif http_status not in statuses or as_integer(said) != http_status:
        yield Fault(
            rules=("WC-ERR-1",),
            what=f"the status of {code}",
            expected=f"{one_of}, the same as HTTP's and as `status`",
            got=f"HTTP {http_status}, `status` {said!r}",
        )
    for member, expected in (("retry", row.retry), ("charged", False)):
        if members.get(member) is not expected:
            yield Fault(
                rules=("WC-ERR-1",),
                what=f"`{member}` of {code}",
                expected=json.dumps(expected),
                got=shown(members, member),
            )
    for member in _FREE_STRINGS:
        text = members.get(member)
        if not isinstance(text, str) or (member == "recovery" and not text):
            yield Fault(
                rules=("WC-ERR-1",),
                what=f"`{member}` of the problem object",
                expected="a string" + (" that is not empty" if member == "recovery" else ""),
                got=shown(members, member),
            )
    allowed = _PROBLEM_MEMBERS if row.decided else _PROBLEM_MEMBERS - _DECIDED_MEMBERS
    unknown = sorted(members.keys() - allowed)
    if unknown:
        yield Fault(
            rules=("WC-ERR-2",),
            what=f"members that a problem object of {code} does not have",
            expected="none",
            got=", ".join(unknown),
        )
    yield from _retry_after(members, code)


def _retry_after(members: dict[str, Any], code: ErrorCode) -> Iterable[Fault]:
    seconds = as_integer(members.get("retry_after_seconds"))
    if not ERRORS[code].retry:
        if "retry_after_seconds" in members:
            yield Fault(
                rules=("WC-ERR-3",),
                what=f"{code} is not retryable",
                expected="no `retry_after_seconds`",
                got=shown(members, "retry_after_seconds"),
            )
        return
    if seconds is None or seconds < 1:
        yield Fault(
            rules=("WC-ERR-3",),
            what=f"`retry_after_seconds` of {code}",
            expected="an integer, at least 1",
            got=shown(members, "retry_after_seconds"),
        )


def as_integer(value: object) -> int | None:
    """A JSON number as an integer, if it is one; whether 60.0 is, is unspecified (WC-IN-2)."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _retry_after_header(
    answer: HttpAnswer, members: dict[str, Any], code: ErrorCode
) -> Iterable[Fault]:
    if not ERRORS[code].retry:
        return
    seconds = as_integer(members.get("retry_after_seconds"))
    if seconds is None or seconds < 1:
        return  # what is wrong with the member is said already
    if answer.header("retry-after") != str(seconds):
        yield Fault(
            rules=("WC-ERR-3",),
            what="the Retry-After header",
            expected=str(seconds),
            got=_header(answer, "retry-after"),
        )


def _binding(answer: HttpAnswer, media_type: str) -> Iterable[Fault]:
    got = (answer.header("content-type") or "").partition(";")[0].strip().lower()
    if got != media_type:
        yield Fault(
            rules=("WC-HTTP-1",),
            what="the answer's content type",
            expected=media_type,
            got=_header(answer, "content-type"),
        )
    directives = [
        part.strip() for part in (answer.header("cache-control") or "").lower().split(",")
    ]
    if "no-store" not in directives:
        yield Fault(
            rules=("WC-HTTP-1",),
            what="the answer's Cache-Control header",
            expected="no-store",
            got=_header(answer, "cache-control"),
        )


def _header(answer: HttpAnswer, name: str) -> str:
    return answer.header(name) or "(absent)"


def json_object(body: bytes) -> dict[str, Any] | None:
    """The members of a body that is one JSON object in UTF-8, without BOM and NaN; else None."""
    try:
        # Decoded here: given bytes, the library would guess at UTF-16 and be content.
        members = _DECODER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: `json.loads` would make one for every text that it is to be so strict with."""


def shown(members: dict[str, Any], member: str) -> str:
    """A member's value as people read it."""
    return json.dumps(members[member]) if member in members else "(absent)"


def _excerpt(body: bytes) -> str:
    text = " ".join(body.decode("utf-8", "replace").split())
    return text[:EXCERPT_MAX] + "…" if len(text) > EXCERPT_MAX else text or "(empty)"
