"""Section 3: which bodies are requests. Nothing that is refused here reaches the store.

The contract's own schema validates, split by action so that a refusal can say which member is
wrong and what it must be. It never says what was sent: validators' messages quote the value,
and values are what WC-PRIV-1 keeps out of answers.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import jsonschema_rs
import msgspec
from starlette.datastructures import Headers

from checkpoint_model import schemas
from checkpoint_model.vocabulary import BODY_BYTES_MAX

JsonObject: TypeAlias = dict[str, Any]
MEDIA_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True)
class InvalidInputError(Exception):
    """The body is refused with ``INVALID_INPUT``; ``detail`` quotes nothing of it."""

    detail: str
    http_status: int = 400


class _Branch(NamedTuple):
    """What is asked of the requests of one action."""

    schema: JsonObject
    validator: jsonschema_rs.Draft202012Validator
    integers: tuple[str, ...]
    """The members that are, all of them required."""


def _by_action() -> dict[str, _Branch]:
    branches = {}
    for schema in schemas.load("request.schema.json")["oneOf"]:
        properties = schema["properties"]
        integers = tuple(name for name in properties if properties[name].get("type") == "integer")
        assert set(integers) <= set(schema["required"])
        validator = jsonschema_rs.Draft202012Validator(schema)
        branches[properties["action"]["const"]] = _Branch(schema, validator, integers)
    return branches


_BRANCHES: Final = _by_action()
_ACTIONS: Final = ", ".join(_BRANCHES)


def check_headers(headers: Headers) -> None:
    """Refuse what is not plain JSON.

    Raises:
        InvalidInputError: with status 415 (section 8).
    """
    content_type = headers.get("content-type")
    if content_type != MEDIA_TYPE:
        media_type = (content_type or "").partition(";")[0].strip().lower()
        if media_type != MEDIA_TYPE:
            raise InvalidInputError(f"The media type must be {MEDIA_TYPE}.", 415)
    if headers.get("content-encoding") is not None:
        # Repeated, a header is one list (RFC 9110): `identity` first may be followed by `gzip`.
        codings = ", ".join(headers.getlist("content-encoding"))
        if codings and codings.strip().lower() != "identity":
            raise InvalidInputError("A content coding is not accepted; send plain JSON.", 415)


def parse(body: bytes) -> JsonObject:
    """The request in a body, or in the JSON of an MCP call's arguments.

    Raises:
        InvalidInputError: WC-IN-4, the schema, or WC-IN-5 refuses it.
    """
    if len(body) > BODY_BYTES_MAX:
        raise InvalidInputError(f"The request is longer than {BODY_BYTES_MAX} bytes.", 413)
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidInputError("The request is not one JSON object in UTF-8.") from None
    return validate(request)


def validate(request: object) -> JsonObject:
    """A decoded body, if it is a request.

    Raises:
        InvalidInputError: the schema or WC-IN-5 refuses it.
    """
    if not isinstance(request, dict):
        raise InvalidInputError("The request must be one JSON object.")
    action = request.get("action")
    if not isinstance(action, str) or action not in _BRANCHES:
        raise InvalidInputError(f"`action` must be one of: {_ACTIONS}.")
    schema, validator, integers = _BRANCHES[action]
    try:
        wrong = None if validator.is_valid(request) else _explain(schema, validator, request)
    except ValueError:  # the validator gives up on nesting that the parser still takes
        wrong = "No member has an object or an array as its value."
    if wrong is not None:
        raise InvalidInputError(wrong)
    for member in integers:
        if type(request[member]) is float:
            request[member] = int(request[member])  # 120.0, an integer by the schema (WC-IN-2)
    if action == "claim" and request["claim_ttl_seconds"] >= request["state_ttl_seconds"]:
        raise InvalidInputError("`claim_ttl_seconds` must be less than `state_ttl_seconds`.")
    return request


def _explain(
    schema: JsonObject, validator: jsonschema_rs.Draft202012Validator, request: JsonObject
) -> str:
    """What is wrong first, in words that come from the schema alone."""
    properties = schema["properties"]
    for member in schema["required"]:
        if member not in request:
            return f"`{member}` is missing; `{request['action']}` needs it."
    if not request.keys() <= properties.keys():
        members = ", ".join(f"`{member}`" for member in properties)
        return f"There is a member that `{request['action']}` does not have. It has: {members}."
    for error in validator.iter_errors(request):
        for member in error.instance_path:
            return f"`{member}` must be {_words(properties[str(member)])}."
    return "`evidence_fingerprint` is sent only together with `evidence_type`."


def _words(member: JsonObject) -> str:
    if "enum" in member:
        return "one of: " + ", ".join(member["enum"])
    if member["type"] == "integer":
        return f"an integer from {member['minimum']} to {member['maximum']}"
    if member["type"] == "boolean":
        return "true or false"
    return f"a string, all of it matching {member['pattern']}"
