"""Bodies that Schemathesis makes from the contract's request schema, right ones and wrong ones.

Schemathesis generates; what must come back is our oracle's business, not a status code's. The
document that it is given has one operation for each action, told apart by a fragment of the path
that is never sent, so that each action's boundaries are gone through and none is lost in a union.

Whatever it makes, only fresh identities are touched: a valid namespace and workflow key are
replaced before a body is sent (decision D9).
"""

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from checkpoint_conformance import openapi
from checkpoint_conformance.answers import Fault, Problem, json_object
from checkpoint_conformance.checks.drawing import at_home, by_its_rule, draw
from checkpoint_conformance.client import Headers
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import LostError, TargetGoneError, ViolationError
from checkpoint_model import ErrorCode, parse_request, schemas
from checkpoint_model.vocabulary import BODY_BYTES_MAX, ERRORS, OPENAPI_PATH, TOOL_PATH

if TYPE_CHECKING:
    import jsonschema_rs
    from hypothesis.strategies import SearchStrategy
    from schemathesis import GenerationMode
    from schemathesis.schemas import BaseSchema

MEDIA_TYPE: Final = "application/json"


def fuzz(run: Run) -> None:
    """Every boundary case of every action, then drawn ones, valid and invalid."""
    run.begin_drawing()
    with at_home():
        _fuzz(run, _schema())


def fuzz_by_its_own_description(run: Run) -> None:
    """The same, made from the OpenAPI document that the target serves.

    What its schema says of a body is its own affair; what comes back is judged as ever.
    """
    import schemathesis

    document = run.attempt(_own_document, run) or {}
    openapi.point(document)
    tool = [o.key for o in openapi.operations(document, run.target.address) if o.is_the_tool]
    if not tool:
        return  # WC-REG-6 has it
    run.begin_drawing()
    with at_home():
        try:
            whole = schemathesis.openapi.from_dict(document)
            whole.validate()
            schema = whole.include(path=tool, method="POST")
            if not any(True for _ in schema.get_all_operations()):
                return
        except Exception:
            return
        _fuzz(run, schema)


def _own_document(run: Run) -> dict[str, Any]:
    answer = run.session().expect(200, ("WC-REG-6",), "GET", OPENAPI_PATH)
    return json_object(answer.body) or {}


def _fuzz(run: Run, schema: "BaseSchema") -> None:
    from schemathesis import GenerationMode

    found: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in found]
    total = len(operations) * (1 + len(GenerationMode))
    done = 0
    for operation in operations:
        run.progress.advance(done, total)
        _boundaries(run, schema, operation, list(GenerationMode))
        done += 1
        for mode in GenerationMode:
            run.progress.advance(done, total)
            _drawn(run, operation, mode)
            done += 1


def _schema() -> "BaseSchema":
    import schemathesis

    paths = {}
    for branch in schemas.load("request.schema.json")["oneOf"]:
        action = branch["title"]
        paths[f"{TOOL_PATH}#{action}"] = {
            "post": {
                "operationId": action,
                "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": branch}}},
                "responses": {"default": {"description": "a result or a problem object"}},
            }
        }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "workflow-checkpoint", "version": "1"},
        "paths": paths,
    }
    return schemathesis.openapi.from_dict(document)


def _boundaries(
    run: Run, schema: "BaseSchema", operation: Any, modes: "list[GenerationMode]"
) -> None:
    cases = schema.iter_coverage_cases(
        operation, generation_modes=modes, generation_config=schema.config.generation
    )
    for case in cases:
        if case.method.upper() == "POST":
            run.attempt(_send, run, case)


def _drawn(run: Run, operation: Any, mode: "GenerationMode") -> None:
    from hypothesis import given, seed

    stopped: list[TargetGoneError] = []

    def send(case: Any) -> None:
        if stopped or run.out_of_time:
            return
        try:
            _send(run, case)
        except ViolationError as error:
            run.tally.fail(error.failure)
            raise by_its_rule(error) from None
        except LostError:
            return
        except TargetGoneError as error:
            stopped.append(error)

    strategy: SearchStrategy[Any] = operation.as_strategy(generation_mode=mode)
    drawn: Callable[[], None] = seed(run.seed)(given(strategy)(send))
    draw(lambda settings: _play(settings, drawn), examples=run.profile.fuzz_examples)
    for why in stopped:
        raise why


def _play(settings: Any, drawn: Callable[[], None]) -> None:
    settings(drawn)()


def _send(run: Run, case: Any) -> None:
    """Send what a case has for a body, and hold the answer against the oracle.

    Raises:
        ViolationError: it was accepted though it is no request, or decided otherwise.
    """
    session = run.session()
    value, body = _body(case, session.identity.namespace, session.identity.workflow_key)
    headers = _headers(case)
    if body is None:
        return  # unspecified, either way
    if not _is_json(headers) or not _is_request(value, body):
        _, came = session.ask(body, headers)
        if isinstance(came, Problem) and came.code is ErrorCode.INVALID_INPUT:
            run.tally.hit("WC-IN-1")
            return
        statuses = " or ".join(map(str, ERRORS[ErrorCode.INVALID_INPUT].http_statuses))
        session.fail(
            Fault(
                rules=("WC-IN-1",),
                what="a body that the request schema refuses"
                if _is_json(headers)
                else f"a body of the media type {headers[0][1]}",
                expected=f"{statuses} INVALID_INPUT",
                got=session.sequence[-1].answered,
            )
        )
    identity, request = parse_request(value)
    session.rename(identity)
    exchange, came = session.ask(body, headers)
    session.judge_answer(request, exchange, came)


def _body(case: Any, namespace: str, workflow_key: str) -> tuple[Any, bytes | None]:
    """A case's body as data and as bytes, its identity fresh; no bytes where all is allowed."""
    value = case.body
    if isinstance(value, bytes):
        return None, value
    if type(value).__name__ == "NotSet":
        return None, b""
    if isinstance(value, dict):
        value = dict(value)
        for member, fresh in (("namespace", namespace), ("workflow_key", workflow_key)):
            if member in value and _matches(member, value[member]):
                value[member] = fresh
        if any(isinstance(v, float) and v.is_integer() for v in value.values()):
            return None, None  # whether 120.0 is an integer is unspecified (WC-IN-2)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return None, None  # no JSON at all
    return value, text.encode("utf-8", "surrogatepass")


def _headers(case: Any) -> Headers:
    given = {name.lower(): value for name, value in (case.headers or {}).items()}
    kind = given.get("content-type", case.media_type or MEDIA_TYPE)
    return (("content-type", str(kind)),)


def _is_json(headers: Headers) -> bool:
    """Whether the media type is the contract's: case and parameters are ignored (section 8)."""
    return headers[0][1].partition(";")[0].strip().lower() == MEDIA_TYPE


@cache
def _validators() -> "dict[str, jsonschema_rs.Draft202012Validator]":
    import jsonschema_rs

    request = schemas.load("request.schema.json")
    members = request["oneOf"][0]["properties"]
    return {
        "request": jsonschema_rs.Draft202012Validator(request),
        "namespace": jsonschema_rs.Draft202012Validator(members["namespace"]),
        "workflow_key": jsonschema_rs.Draft202012Validator(members["workflow_key"]),
    }


def _matches(member: str, value: object) -> bool:
    try:
        return isinstance(value, str) and _validators()[member].is_valid(value)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _is_request(value: object, body: bytes) -> bool:
    """WC-IN-1: the schema admits it, and neither WC-IN-4 nor WC-IN-5 refuses it."""
    if len(body) > BODY_BYTES_MAX or not isinstance(value, dict):
        return False
    try:
        if not _validators()["request"].is_valid(value):
            return False
    except (UnicodeEncodeError, ValueError, OverflowError):
        return False
    return bool(
        value["action"] != "claim" or value["claim_ttl_seconds"] < value["state_ttl_seconds"]
    )


CHECKS = (
    Check(name="fuzzing", title="Bodies made from the request schema", run=fuzz, seconds=10),
    Check(
        name="fuzzing",
        title="Bodies made from its own OpenAPI document",
        run=fuzz_by_its_own_description,
        needs_class=RuleClass.DESCRIPTIONS,
        seconds=5,
    ),
)
