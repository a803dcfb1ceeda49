"""Which bodies are requests: against the contract's schema by another validator, and in words."""

import json
import math
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from request_bodies import (
    ABANDON,
    CLAIM,
    DOCUMENT,
    GOOD,
    JUNK,
    MEMBERS,
    REQUIRED,
    STATUS,
    TRANSITION,
    nearly_requests,
)
from starlette.datastructures import Headers

from checkpoint_model.vocabulary import BODY_BYTES_MAX
from checkpoint_reference_server.inputs import InvalidInputError, check_headers, parse, validate

# Draft 2020-12 by a validator that the server does not use: the oracle.
SCHEMA = jsonschema.Draft202012Validator(DOCUMENT)
INTEGERS = ("claim_ttl_seconds", "state_ttl_seconds", "generation")


def encoded(request: object) -> bytes:
    """The body of a request."""
    return json.dumps(request).encode()


def refusal(body: bytes) -> InvalidInputError:
    """How a body is refused."""
    with pytest.raises(InvalidInputError) as refused:
        parse(body)
    return refused.value


@given(nearly_requests() | JUNK)
def test_a_body_is_accepted_exactly_when_the_contract_accepts_it(request: Any) -> None:
    """WC-IN-1: the request schema and WC-IN-5, nothing more and nothing less."""
    if isinstance(request, dict):
        # WC-IN-2 leaves it open whether 120.0 is an integer.
        numbers = [request.get(name) for name in INTEGERS]
        assume(not any(isinstance(n, float) and n.is_integer() for n in numbers))
    body = encoded(request)
    assume(len(body) <= BODY_BYTES_MAX)
    expected = SCHEMA.is_valid(request) and not (
        request["action"] == "claim"
        and request["claim_ttl_seconds"] >= request["state_ttl_seconds"]
    )
    event("accepted" if expected else "refused")
    if expected:
        assert parse(body) == request
    else:
        assert refusal(body).http_status == 400


@pytest.mark.parametrize("action", GOOD)
def test_each_action_is_accepted(action: str) -> None:
    """With all of its members, and without the optional ones."""
    assert parse(encoded(GOOD[action])) == GOOD[action]
    least = {name: GOOD[action][name] for name in REQUIRED[action]}
    assert parse(encoded(least)) == least


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", ["120", True, None, 1.5, [1], {}, -1, 0, 10**18, 10**400])
def test_integers_are_strict(name: str, value: object) -> None:
    """WC-IN-2: text, truth and nothing are no integers; nor is what no bound allows."""
    good = CLAIM if name in CLAIM else ABANDON
    assert refusal(encoded({**good, name: value})).http_status == 400


@pytest.mark.parametrize("value", [0, 1, "true", "false", None, "", []])
def test_booleans_are_strict(value: object) -> None:
    """WC-IN-2."""
    assert (
        "`retry_failed` must be true or false"
        in refusal(encoded({**CLAIM, "retry_failed": value})).detail
    )


@pytest.mark.parametrize("name", ["holder", "evidence_type", "evidence_fingerprint"])
def test_null_is_not_an_absent_member(name: str) -> None:
    """WC-IN-2."""
    good = STATUS if name == "holder" else TRANSITION
    refusal(encoded({**good, name: None}))


def test_a_whole_number_with_a_fraction_becomes_an_integer_or_is_refused() -> None:
    """WC-IN-2 leaves it open; a float must not travel on to the store, where it is other text."""
    got = parse(encoded({**CLAIM, "claim_ttl_seconds": 120.0}))["claim_ttl_seconds"]
    assert (got, type(got)) == (120, int)


@pytest.mark.parametrize(
    "name", ["namespace", "workflow_key", "holder", "observation_key", "evidence_fingerprint"]
)
@pytest.mark.parametrize(
    "wrong", ["{}\n", "\n{}", "{}\0", "{} ", "{}é", "{}\u0661", "{}\u017f", ""]
)
def test_patterns_match_the_whole_text(name: str, wrong: str) -> None:
    """WC-IN-3: no trailing newline, no NUL, no letter or digit of another script."""
    refusal(encoded({**TRANSITION, name: wrong.format(TRANSITION[name])}))


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("namespace", "a" * 128),
        ("workflow_key", "w_" + "-" * 64),
        ("holder", "h_" + "_" * 64),
        ("observation_key", "o_" + "0" * 64),
    ],
)
def test_lengths_end_where_the_contract_says(name: str, longest: str) -> None:
    """Section 3: the longest is accepted, one more is not."""
    assert parse(encoded({**TRANSITION, name: longest}))[name] == longest
    refusal(encoded({**TRANSITION, name: longest + "a"}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"claim"',
        b"\xef\xbb\xbf" + encoded(STATUS),
        encoded(STATUS) + b"x",
        encoded(STATUS) + encoded(STATUS),
        encoded(STATUS)[:-1],
        encoded(STATUS)[:-1] + b",}",
        encoded(STATUS).replace(b'"', b"'"),
        encoded(STATUS) + b"\x0b",
        encoded(STATUS) + b"\xc2\xa0",
        json.dumps(STATUS).encode("utf-16"),
        encoded(STATUS).replace(b"shop", b"sh\xffp"),
        encoded(STATUS).replace(b"shop", b"sh\x01p"),
        encoded(STATUS).replace(b"shop", rb"\ud800"),
        encoded(STATUS).replace(b"shop", rb"\x73hop"),
        encoded(CLAIM).replace(b"60,", b"NaN,"),
        encoded(CLAIM).replace(b"60,", b"Infinity,"),
        encoded(CLAIM).replace(b"60,", b"060,"),
        encoded(CLAIM).replace(b"60,", b"+60,"),
        encoded(CLAIM).replace(b"60,", b"0x3c,"),
        encoded(CLAIM).replace(b"60,", b"1e400,"),
    ],
)
def test_a_body_is_one_json_object_in_utf_8(body: bytes) -> None:
    """WC-IN-4, RFC 8259."""
    assert refusal(body).http_status == 400


def test_white_space_and_escapes_are_json_too() -> None:
    """RFC 8259: space around the object, any character as an escape."""
    body = b" \t\r\n" + encoded(CLAIM).replace(b'"claim"', rb'"\u0063laim"') + b"\n"
    assert parse(body) == CLAIM


def test_the_bound_on_the_body_is_exact() -> None:
    """WC-IN-4: 8192 bytes are read, 8193 are 413 whatever they hold."""
    assert parse(encoded(CLAIM).ljust(BODY_BYTES_MAX)) == CLAIM
    assert refusal(encoded(CLAIM).ljust(BODY_BYTES_MAX + 1)).http_status == 413
    assert refusal(b"\xff" * (BODY_BYTES_MAX + 1)).http_status == 413


@pytest.mark.parametrize("depth", [100, 250, 300, 500, 1000, 4000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("name", ["namespace", "zq_unknown", "action"])
def test_deep_nesting_is_refused_as_any_other_value(depth: int, opening: str, name: str) -> None:
    """Parsers and validators give up on it in their own ways; none of them is an internal fault."""
    closing = "]" if opening == "[" else "}"
    deep = opening * depth + "1" + closing * depth
    body = encoded({**CLAIM, name: "DEEP"}).replace(b'"DEEP"', deep.encode())
    if len(body) <= BODY_BYTES_MAX:
        assert refusal(body).http_status == 400


def test_a_deep_value_beside_a_wrong_one_is_refused() -> None:
    """The wrong one is found first, and the deep one while it is explained."""
    deep = "[" * 400 + "]" * 400
    body = encoded({**CLAIM, "namespace": "", "holder": "DEEP"}).replace(b'"DEEP"', deep.encode())
    assert refusal(body).http_status == 400


def test_the_claim_ends_before_the_record() -> None:
    """WC-IN-5: the one relation that the schema cannot state."""
    near = {**CLAIM, "claim_ttl_seconds": 599, "state_ttl_seconds": 600}
    assert parse(encoded(near)) == near
    for claim_ttl in (600, 601):
        detail = refusal(encoded({**near, "claim_ttl_seconds": claim_ttl})).detail
        assert detail == "`claim_ttl_seconds` must be less than `state_ttl_seconds`."


@pytest.mark.parametrize(
    ("request_", "detail"),
    [
        ({}, "`action` must be one of: claim, transition, status, abandon."),
        (
            {**CLAIM, "action": "steal"},
            "`action` must be one of: claim, transition, status, abandon.",
        ),
        (
            {name: CLAIM[name] for name in CLAIM if name != "holder"},
            "`holder` is missing; `claim` needs it.",
        ),
        (
            {**ABANDON, "to_stage": "failed"},
            (
                "There is a member that `abandon` does not have. It has: `action`, `namespace`, "
                "`workflow_key`, `holder`, `generation`."
            ),
        ),
        ({**ABANDON, "generation": 17}, "`generation` must be an integer from 1 to 16."),
        (
            {**CLAIM, "holder": "ann"},
            "`holder` must be a string, all of it matching ^h_[A-Za-z0-9_-]{16,64}$.",
        ),
        ({**CLAIM, "retry_failed": "no"}, "`retry_failed` must be true or false."),
        (
            {**TRANSITION, "to_stage": "claimed"},
            "`to_stage` must be one of: uncertain, caller_verified, failed, compensated.",
        ),
        (
            {name: TRANSITION[name] for name in TRANSITION if name != "evidence_type"},
            "`evidence_fingerprint` is sent only together with `evidence_type`.",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_is_right(
    request_: dict[str, Any], detail: str
) -> None:
    """In words of the contract's own."""
    assert refusal(encoded(request_)).detail == detail


MARK = "zQ7zQ7"
MARKED = st.text("ab_-", max_size=20).map(lambda text: MARK + text)
MARKED_JSON = st.recursive(
    MARKED | st.just(739_281_739) | MARKED.map(lambda text: f"w_{text}_0123456789\n"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(MARKED, inner, max_size=2),
    max_leaves=3,
)


@given(nearly_requests(), st.dictionaries(st.sampled_from(MEMBERS) | MARKED, MARKED_JSON))
def test_no_refusal_quotes_what_was_sent(request: dict[str, Any], marked: dict[str, Any]) -> None:
    """WC-PRIV-1: neither a value nor the name of a member that the contract does not know."""
    refused = refusal(encoded({**request, **marked, f"{MARK}!": marked}))
    text = f"{refused.detail} {refused.args} {refused!r} {refused.__cause__}"
    assert MARK not in text
    assert "739281739" not in text


@pytest.mark.parametrize(
    "sent", [None, [], "claim", 1, {1: 2}, {"action": ["claim"]}, {"action": {}}, math.nan]
)
def test_whatever_was_decoded_is_validated(sent: object) -> None:
    """A caller that decodes by itself gets the same refusals."""
    with pytest.raises(InvalidInputError):
        validate(sent)


def headers_of(media_type: str | None, *codings: str | None) -> Headers:
    """The head of a request, as far as it tells of the body."""
    told = [("content-type", media_type), *(("content-encoding", coding) for coding in codings)]
    return Headers(raw=[(name.encode(), text.encode()) for name, text in told if text is not None])


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=latin-1",
        "application/json ;",
    ],
)
@pytest.mark.parametrize("coding", [None, "identity", " Identity "])
def test_plain_json_is_admitted(media_type: str, coding: str | None) -> None:
    """Section 8: parameters of the media type are ignored."""
    check_headers(headers_of(media_type, coding))


@pytest.mark.parametrize(
    ("media_type", "coding"),
    [
        (None, None),
        ("", None),
        ("text/json", None),
        ("application/jsonx", None),
        ("application/problem+json", None),
        ("application/json, text/plain", None),
        ("application/json", "gzip"),
        ("application/json", "identity, gzip"),
    ],
)
def test_other_media_types_and_codings_are_415(media_type: str | None, coding: str | None) -> None:
    """Section 8."""
    with pytest.raises(InvalidInputError) as refused:
        check_headers(headers_of(media_type, coding))
    assert refused.value.http_status == 415


def test_a_coding_behind_another_is_415() -> None:
    """Repeated, a header is one list."""
    with pytest.raises(InvalidInputError):
        check_headers(headers_of("application/json", "identity", "gzip"))
