"""What a schema accepts, against what the contract's own schema accepts.

Two schemas of one thing are seldom the same text: one host wants no ``oneOf`` at the root, another
no ``$ref``. So they are compared by what they do, on requests at both sides of every bound that
the contract's schema has, and on answers that the model gives.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from checkpoint_conformance.vectors import load_vectors
from checkpoint_model import (
    ERRORS,
    ErrorCode,
    EvidenceType,
    Record,
    Stage,
    answer,
    parse_request,
    schemas,
    step,
)
from checkpoint_model.vocabulary import WORKFLOW_HASH_PREFIX

if TYPE_CHECKING:
    import jsonschema_rs

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_NOW_MS: Final = 1_785_000_000_000
_FINGERPRINT: Final = "sha256:" + "0123456789abcdef" * 4
_KEY_CHARACTERS: Final = "AZaz09_-" * 8
_LENGTHS: Final = (15, 16, 64, 65)
"""Of what follows the prefix of a key: just too short, and so on."""


class SchemaError(Exception):
    """It is no JSON Schema; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A value to try on a schema."""

    what: str
    value: dict[str, Any]
    accepted: bool
    """Whether the contract's schema accepts it."""

    @property
    def told(self) -> str:
        """The value as people read it."""
        return json.dumps(self.value)


def compile_schema(schema: object) -> "jsonschema_rs.Validator":
    """A validator.

    Raises:
        SchemaError: it is no JSON Schema.
    """
    import jsonschema_rs

    if not isinstance(schema, dict):
        raise SchemaError(f"it is {json.dumps(schema)[:80]}")
    try:
        jsonschema_rs.meta.validate(schema)
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(str(error).partition("\n")[0]) from None


def _refuse(uri: str) -> Any:
    # A description is what the target serves: nothing is fetched from elsewhere on its word.
    raise ValueError(f"it refers to {uri}, which is no part of it")


def differing(schema: object, probes: Iterable[Probe]) -> Iterator[Probe]:
    """The probes that a schema decides otherwise than the contract's.

    Raises:
        SchemaError: it is no JSON Schema.
    """
    validator = compile_schema(schema)
    for probe in probes:
        if validator.is_valid(probe.value) is not probe.accepted:
            yield probe


@cache
def request_probes() -> tuple[Probe, ...]:
    """Requests of every action, and what comes near to one."""
    validator = compile_schema(schemas.load("request.schema.json"))
    seen: dict[str, Probe] = {}
    for what, value in _requests():
        told = json.dumps(value, sort_keys=True)
        if told not in seen:
            seen[told] = Probe(what=what, value=value, accepted=validator.is_valid(value))
    return tuple(seen.values())


def _requests() -> Iterator[tuple[str, dict[str, Any]]]:
    members = members_by_action()
    other = {name: _usual(name, schema) for of in members.values() for name, schema in of.items()}
    for action, of_action in members.items():
        whole = {name: _usual(name, schema) for name, schema in of_action.items()}
        for base in _without_optional(action, whole):
            yield f"a {action}", base
            for member, value in base.items():
                for what, tried in _values(member, value, of_action[member]):
                    yield f"`{member}` of {action} {what}", {**base, member: tried}
                rest = {name: kept for name, kept in base.items() if name != member}
                yield f"{action} without `{member}`", rest
            for member, value in other.items():
                if member not in of_action:
                    yield f"{action} with `{member}`", {**base, member: value}
            yield f"{action} with a member of no action", {**base, "comment": "hello"}
            for another in members:
                if another != action:
                    yield f"{action} that calls itself {another}", {**base, "action": another}
    yield "an object without members", {}


def members_by_action() -> dict[str, dict[str, dict[str, Any]]]:
    """By action, each member's own schema."""
    branches = schemas.load("request.schema.json")["oneOf"]
    return {branch["title"]: branch["properties"] for branch in branches}


def _without_optional(action: str, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield whole
    if action == "transition":
        for left_out in (("evidence_fingerprint",), ("evidence_type", "evidence_fingerprint")):
            yield {name: value for name, value in whole.items() if name not in left_out}
    if action == "status":
        yield {name: value for name, value in whole.items() if name != "holder"}


def _usual(member: str, schema: Mapping[str, Any]) -> Any:
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "boolean":
        return True
    if schema.get("type") == "integer":
        return schema["maximum"]
    if member == "namespace":
        return "acme:import/2026"
    if member == "evidence_fingerprint":
        return _FINGERPRINT
    return f"{member[0]}_0123456789abcdef"


def _values(member: str, value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Other values of a member, some of them right, in words and as they are."""
    yield "is null", None
    yield "is an array", [value]
    if isinstance(value, bool):
        yield "is false", False
        yield from ((f"is {tried!r}", tried) for tried in (0, 1, "true"))
    elif isinstance(value, int):
        least, most = schema["minimum"], schema["maximum"]
        for tried in (least - 1, least, least + 1, most - 1, most, most + 1, -most, 10**12):
            yield f"is {tried}", tried
        yield from ((f"is {tried!r}", tried) for tried in (str(value), True, least + 0.5))
    else:
        yield "is a number", 1
        yield "is an object", {"value": value}
        yield "ends with a newline", f"{value}\n"
        yield "begins with a space", f" {value}"
        yield "has a NUL", f"{value[:-1]}\x00"
        yield "has an Arabic digit", f"{value[:-1]}\u0661"
        yield "has an umlaut", f"{value[:-1]}\u00e4"
        yield "is empty", ""
        yield "is in capitals", value.upper()
        yield from _strings(member, value, schema)


def _strings(member: str, value: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for word in schema.get("enum", ()):
        yield f"is {word}", word
    if member == "to_stage":
        yield "is claimed", "claimed"
    if member == "namespace":
        yield "has 1 character", "a"
        yield "has 128 characters", "a" * 128
        yield "has 129 characters", "a" * 129
        yield "has every character that is admitted", "aZ09._:/-"
        for first in "._:/-":
            yield f"begins with {first}", f"{first}a"
        for character in "+@#~ ":
            yield f"has a {character!r}", f"a{character}a"
    elif member == "evidence_fingerprint":
        yield "is short", value[:-1]
        yield "is long", f"{value}0"
        yield "has a letter that is no digit", f"{value[:-1]}g"
        yield "is of another hash", value.replace("sha256", "sha512")
    elif "pattern" in schema:
        for length in _LENGTHS:
            yield f"has {length} characters after its prefix", f"{value[:2]}{'a' * length}"
        yield "has every character that is admitted", f"{value[:2]}{_KEY_CHARACTERS}"
        for character in ".:/+":
            yield f"has a {character!r}", f"{value}{character}"
        yield "has another prefix", f"x{value[1:]}"


@cache
def answer_probes() -> tuple[Probe, ...]:
    """Results and problem objects, every code and every kind of success among them."""
    return tuple(Probe(what=_kind(members), value=members, accepted=True) for members in _answers())


@cache
def result_probes() -> tuple[Probe, ...]:
    """Answers, and what comes near to a result; what the result schema says of each."""
    return _with_near_misses(schemas.load("result.schema.json"))


@cache
def problem_probes() -> tuple[Probe, ...]:
    """Answers, and what comes near to a problem object; what the problem schema says of each."""
    return _with_near_misses(schemas.load("problem.schema.json"))


def _with_near_misses(schema: dict[str, Any]) -> tuple[Probe, ...]:
    validator = compile_schema(schema)
    probes: list[Probe] = []
    kinds: set[str] = set()
    for members in _answers():
        kind = _kind(members)
        tries = [(kind, members)]
        if kind not in kinds and validator.is_valid(members):
            kinds.add(kind)
            tries += _near(kind, members)
        probes += [
            Probe(what=what, value=tried, accepted=validator.is_valid(tried))
            for what, tried in tries
        ]
    assert any(probe.accepted for probe in probes)
    return tuple(probes)


def _near(kind: str, members: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for member, value in members.items():
        yield (
            f"{kind} without `{member}`",
            {name: kept for name, kept in members.items() if name != member},
        )
        for wrong in (None, [value], 0 if isinstance(value, bool) else True):
            yield f"{kind} with `{member}` {json.dumps(wrong)}", {**members, member: wrong}
    yield f"{kind} with a member of its own", {**members, "comment": "hello"}


def _kind(members: Mapping[str, Any]) -> str:
    return members["code"] if "code" in members else f"the result of a {members['action']}"


def _answers() -> Iterator[dict[str, Any]]:
    for vector in load_vectors():
        record: Record | None = None
        timed = [*((given.at_ms, given.request) for given in vector.given)]
        for at_ms, body in (*timed, (vector.at_ms, vector.request)):
            _, request = parse_request(body)
            decided = step(record, request, _NOW_MS + at_ms)
            record = decided.record
        yield _whole(answer(decided, request))
    for code, row in ERRORS.items():
        if not row.decided:
            members = {"code": str(code), "retry": row.retry, "charged": False}
            if row.retry:
                members["retry_after_seconds"] = 1
            for status in row.http_statuses:
                yield _whole({**members, "status": status})


def _whole(members: dict[str, Any]) -> dict[str, Any]:
    """With what the model has no say in."""
    if "code" not in members:
        return {**members, "workflow_hash": WORKFLOW_HASH_PREFIX + "0" * 64}
    words = {"type": "about:blank", "title": "A title", "detail": "A detail", "recovery": "Do so."}
    return {**words, **members}


def vocabulary() -> dict[str, tuple[str, ...]]:
    """Every word that a description must name, by its kind."""
    return {
        "action": tuple(members_by_action()),
        "stage": tuple(map(str, Stage)),
        "evidence type": tuple(map(str, EvidenceType)),
        "error code": tuple(map(str, ErrorCode)),
    }
