"""Every check proves that it can fail: a server with one thing wrong, and the rule it is caught by.

The right server runs on a real Valkey; a proxy before it makes one thing wrong.
"""

import base64
import hashlib
import hmac
import itertools
import json
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import redis
from looking_away import Quiet
from wrong import Forward, Message, Tamper, tampering, with_header, with_members

from checkpoint_conformance.checks import (
    CHECKS,
    controls,
    deadlines,
    example,
    fuzzing,
    http,
    inputs,
    races,
    stateful,
    store,
    storm,
    vectors,
    walk,
)
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.shortening import shorten_failures
from checkpoint_conformance.verdict import Verdict, judge
from checkpoint_model import format_timestamp, parse_timestamp
from checkpoint_model.vocabulary import HEALTH_PATH, TOOL_PATH


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The right server, with controls and store."""
    with reference_server() as target:
        yield target


def run_of(target: Target) -> Run:
    """A run with one round of everything."""
    profile = replace(PROFILES["quick"], race_rounds=1, contenders=20)
    return Run(target=target, profile=profile, seed=1, progress=Quiet())


PlayedCheck = Callable[[Run], None]
ALL: list[PlayedCheck] = [
    example.examples,
    example.examples_at_their_time,
    inputs.input_checks,
    fuzzing.fuzz,
    http.http_checks,
    walk.walk_frozen,
    vectors.vectors,
    races.races,
    storm.storm,
    controls.control_checks,
    store.store_checks,
]


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_the_right_server_is_never_blamed(target: Target, check: PlayedCheck) -> None:
    """No failure, nothing left out, and something was counted."""
    run = run_of(target)
    check(run)
    run.close()
    assert run.tally.failures == {}
    assert run.tally.incomplete == []
    assert run.tally.lost == 0
    assert run.tally.hits.total() > 0


# -- servers with one thing wrong ---------------------------------------------------------


def on_tool(message: Message) -> bool:
    """Whether a request is one to the tool."""
    return message.path == TOOL_PATH and message.method == "POST"


def accepting(**corrected: object) -> Tamper:
    """Take a request with this kind of member for one with the member that it stands for."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if answer.status == 400 and set(corrected) <= message.json.keys():
            answer = forward(message.with_json(**corrected))
        return answer

    return tamper


def mended(mend: Callable[[bytes], bytes]) -> Tamper:
    """Mend the body before it is looked at."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        return forward(replace(message, body=mend(message.body)))

    return tamper


def _drop_unknown(message: Message, forward: Forward) -> HttpAnswer:
    kept = {name: value for name, value in message.json.items() if name != "comment"}
    return forward(replace(message, body=json.dumps(kept).encode()) if message.json else message)


def _strip(message: Message, forward: Forward) -> HttpAnswer:
    stripped = {n: v.strip() if isinstance(v, str) else v for n, v in message.json.items()}
    return forward(message.with_json(**stripped) if message.json else message)


def _longer_claim(message: Message, forward: Forward) -> HttpAnswer:
    sent = message.json
    if sent.get("claim_ttl_seconds") == sent.get("state_ttl_seconds") == 900:
        return forward(message.with_json(state_ttl_seconds=901))
    return forward(message)


def _refuse_the_largest(message: Message, forward: Forward) -> HttpAnswer:
    if message.json.get("state_ttl_seconds") == 3600:
        return forward(message.with_json(state_ttl_seconds=3601))
    return forward(message)


def _quote(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 400:
        return with_members(answer, detail=f"not accepted: {message.json.get('holder')}")
    return answer


def _any_media(message: Message, forward: Forward) -> HttpAnswer:
    return forward(
        replace(message, headers={**message.headers, "content-type": "application/json"})
    )


def _refusals_change(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    sent = message.json
    if answer.status == 400 and sent.get("action") == "transition" and "comment" in sent:
        del sent["comment"]
        forward(replace(message, body=json.dumps(sent).encode()))
    return answer


def _all_hashes_alike(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if on_tool(message) and answer.status == 200:
        return with_members(answer, workflow_hash="hmac-sha256:" + "0" * 64)
    return answer


def _join_identities(message: Message, forward: Forward) -> HttpAnswer:
    sent = message.json
    if "namespace" in sent and sent["workflow_key"].startswith("w_w_"):
        moved = sent["workflow_key"].removeprefix("w_")
        return forward(message.with_json(namespace=sent["namespace"] + "w_", workflow_key=moved))
    return forward(message)


def _by_idempotency_key() -> Tamper:
    answers: dict[str, HttpAnswer] = {}

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        key = message.headers.get("idempotency-key")
        if key is None:
            return forward(message)
        if key not in answers:
            answers[key] = forward(message)
        return answers[key]

    return tamper


def _get_works(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return (
        replace(answer, status=200) if message.method == "GET" and answer.status == 405 else answer
    )


def _no_allow(message: Message, forward: Forward) -> HttpAnswer:
    return with_header(forward(message), "allow", None)


def _coded_404(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 404 and not on_tool(message):
        return replace(answer, body=b'{"code":"CHECKPOINT_NOT_FOUND"}')
    return answer


def _always_healthy(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return replace(answer, status=200) if message.path == HEALTH_PATH else answer


def _never_healthy(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return replace(answer, status=503) if message.path == HEALTH_PATH else answer


def _no_retry_after(message: Message, forward: Forward) -> HttpAnswer:
    return with_header(forward(message), "retry-after", None)


def _cacheable(message: Message, forward: Forward) -> HttpAnswer:
    return with_header(forward(message), "cache-control", None)


def _two_winners() -> Tamper:
    lock = threading.Lock()
    winners: dict[str, HttpAnswer] = {}
    seconds: set[str] = set()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        key = str(message.json.get("workflow_key"))
        with lock:
            if answer.status == 200 and json.loads(answer.body).get("acquired"):
                winners[key] = answer
            elif answer.status == 409 and key in winners and key not in seconds:
                seconds.add(key)
                return winners[key]
        return answer

    return tamper


def _two_movers() -> Tamper:
    lock = threading.Lock()
    moved: set[str] = set()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if answer.status != 200 or not json.loads(answer.body).get("observation_replayed"):
            return answer
        with lock:
            if str(message.json["observation_key"]) in moved:
                return answer
            moved.add(str(message.json["observation_key"]))
        return with_members(answer, transitioned=True, observation_replayed=False)

    return tamper


def _claims_block_each_other() -> Tamper:
    lock = threading.Lock()
    busy: set[str] = set()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.json.get("action") != "claim":
            return forward(message)
        key = str(message.json["workflow_key"])
        with lock:
            blocked = len(busy) > 5 and key not in busy
            busy.add(key)
        if blocked:
            other = message.with_json(holder="h_" + "z" * 20)
            forward(message)
            return forward(other)
        return forward(message)

    return tamper


def _paused_claims_renew(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 503 and json.loads(answer.body).get("code") == "TOOL_PAUSED":
        return with_members(
            replace(answer, status=200), code=..., acquired=True, stage="claimed", generation=1
        )
    return answer


def _clock_ignores_advance(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == "/clock" and "advance_ms" in message.json:
        return forward(message.with_json(advance_ms=0))
    return forward(message)


def _control_does_nothing(path: str) -> Tamper:
    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == path and forward(message).status == 200:
            forward(Message(method="POST", path="/reset", headers=message.headers, body=b"{}"))
            return HttpAnswer(status=200, headers=(), body=b"{}")
        return forward(message)

    return tamper


def _reset_leaves_the_store_away(message: Message, forward: Forward) -> HttpAnswer:
    if message.path != "/reset":
        return forward(message)
    answer = forward(message)
    forward(replace(message, path="/dependency", body=b'{"available": false}'))
    return answer


def _controls_take_anything(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return replace(answer, status=200, body=b"{}") if answer.status == 400 else answer


def _lax_abandon(message: Message, forward: Forward) -> HttpAnswer:
    if message.json.get("action") == "abandon" and message.json.get("generation") == "1":
        return forward(message.with_json(generation=1))
    return forward(message)


def _applies_refused_claims(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    sent = message.json
    if answer.status == 400 and sent.get("action") == "claim" and sent.get("comment"):
        del sent["comment"]
        forward(replace(message, body=json.dumps(sent).encode()))
    return answer


def _names_without_case(message: Message, forward: Forward) -> HttpAnswer:
    lower = {m: message.json[m].lower() for m in ("holder",) if m in message.json}
    return forward(message.with_json(**lower) if lower else message)


def _names_cut_short(message: Message, forward: Forward) -> HttpAnswer:
    cut = {m: message.json[m][:50] for m in ("observation_key",) if m in message.json}
    return forward(message.with_json(**cut) if cut else message)


def _quotes_what_it_cannot_read(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 400 and not message.json:
        return with_members(answer, detail=message.body.decode("utf-8", "replace"))
    return answer


def _echoes_unknown_paths(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 404 and not on_tool(message):
        return replace(answer, body=f"nothing at {message.path}".encode())
    return answer


def _tells_of_records_when_paused(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 503 and on_tool(message):
        return with_members(answer, stage="claimed", generation=1)
    return answer


def _utf16(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 200 and on_tool(message):
        return replace(answer, body=answer.body.decode().encode("utf-16"))
    return answer


def _empty_recovery(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return with_members(answer, recovery="") if answer.status == 409 else answer


def _swapped_answers() -> Tamper:
    lock = threading.Lock()
    waiting: list[HttpAnswer] = []

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        # Only the claims of the race of many workflows have these lifetimes.
        if message.json.get("claim_ttl_seconds") in range(100, 130):
            with lock:
                waiting.append(answer)
                if len(waiting) == 2:
                    return waiting.pop(0)
        return answer

    return tamper


def _drop_extra(message: Message, forward: Forward) -> HttpAnswer:
    known = {"action", "namespace", "workflow_key", "holder", "claim_ttl_seconds", "generation"}
    known |= {"state_ttl_seconds", "retry_failed", "to_stage", "observation_key"}
    known |= {"evidence_type", "evidence_fingerprint"}
    sent = message.json
    if not sent or sent.keys() <= known:
        return forward(message)
    kept = {name: value for name, value in sent.items() if name in known}
    return forward(replace(message, body=json.dumps(kept).encode()))


def _no_hash(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 200 and on_tool(message):
        return with_members(answer, workflow_hash=...)
    return answer


def _the_end_of_time(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 200 and on_tool(message):
        return with_members(answer, observed_at="9999-12-31T23:59:59.999Z")
    return answer


def _frozen_for_good(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == "/clock" and message.json.get("freeze") is False:
        return forward(message.with_json(freeze=True))
    return forward(message)


def _shifts_only_when_frozen() -> Tamper:
    frozen: list[bool] = [False]

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == "/reset":
            frozen[0] = False
        if message.path == "/clock":
            frozen[0] = message.json.get("freeze", frozen[0])
            if not frozen[0] and "advance_ms" in message.json:
                return forward(message.with_json(advance_ms=0))
        return forward(message)

    return tamper


def _admits_one_less(message: Message, forward: Forward) -> HttpAnswer:
    remaining = message.json.get("remaining")
    if message.path == "/rate-limit" and remaining:
        return forward(message.with_json(remaining=remaining - 1))
    return forward(message)


def _limits_for_good(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == "/rate-limit" and message.json.get("remaining", 0) is None:
        return replace(forward(replace(message, path="/clock", body=b"{}")), body=b"{}")
    return forward(message)


def _stale_replica() -> Tamper:
    """A status tells how its workflow stood at the status before, at a time that is right."""
    before: dict[object, dict[str, object]] = {}

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if not on_tool(message) or message.json.get("action") != "status" or answer.status != 200:
            return answer
        told = json.loads(answer.body)
        known = before.get(message.json["workflow_key"])
        before[message.json["workflow_key"]] = {m: told[m] for m in ("stage", "generation")}
        return answer if known is None else with_members(answer, **known)

    return tamper


TOOL_FAULTS: list[tuple[str, Tamper, PlayedCheck, str]] = [
    ('"1" for 1', accepting(generation=1), inputs.refused, "WC-IN-2"),
    ("0 for false", accepting(retry_failed=False), inputs.refused, "WC-IN-2"),
    ("strips white space", _strip, inputs.refused, "WC-IN-3"),
    ("strips a BOM", mended(lambda b: b.removeprefix(b"\xef\xbb\xbf")), inputs.refused, "WC-IN-4"),
    ("cuts long bodies", mended(lambda b: b[:8192]), inputs.refused, "WC-IN-4"),
    ("takes NaN", mended(lambda b: b.replace(b"NaN", b"1")), inputs.refused, "WC-IN-4"),
    ("no lapse can be seen", _longer_claim, inputs.refused, "WC-IN-5"),
    ("ignores unknown members", _drop_unknown, inputs.refused, "WC-IN-1"),
    ("refuses the largest", _refuse_the_largest, inputs.accepted, "WC-IN-1"),
    ("quotes what it refuses", _quote, inputs.refused, "WC-PRIV-1"),
    ("takes any media type", _any_media, inputs.refused, "WC-IN-1"),
    ("applies what it refuses", _refusals_change, inputs.refused, "WC-STATUS-2"),
    ("one hash for all", _all_hashes_alike, http.identities, "WC-ID-3"),
    ("joins namespace and key", _join_identities, http.identities, "WC-STATUS-1"),
    ("answers by Idempotency-Key", _by_idempotency_key(), http.idempotency_key, "WC-IDEM-2"),
    ("GET works", _get_works, http.methods_and_paths, "WC-HTTP-2"),
    ("no Allow", _no_allow, http.methods_and_paths, "WC-HTTP-2"),
    ("404 with a code", _coded_404, http.methods_and_paths, "WC-ERR-9"),
    ("never healthy", _never_healthy, http.health, "WC-HTTP-3"),
    ("always healthy", _always_healthy, controls.control_checks, "WC-HTTP-3"),
    ("no Retry-After", _no_retry_after, controls.control_checks, "WC-ERR-3"),
    ("cacheable", _cacheable, example.examples, "WC-HTTP-1"),
    ("claims while paused", _paused_claims_renew, controls.control_checks, "WC-ERR-7"),
    ("two winners", _two_winners(), races.races, "WC-CONC-2"),
    ("two moves", _two_movers(), races.races, "WC-CONC-3"),
    ("across workflows", _claims_block_each_other(), races.races, "WC-CONC-4"),
    ("swapped answers", _swapped_answers(), races.races, "WC-CLAIM-1"),
    ("two winners in a storm", _two_winners(), storm.storm, "WC-CONC-2"),
    ("answers of a stale replica", _stale_replica(), storm.storm, "WC-CONC-1"),
    ("lax in abandon", _lax_abandon, inputs.refused, "WC-IN-2"),
    ("applies refused claims", _applies_refused_claims, inputs.refused, "WC-STATUS-1"),
    ("names without case", _names_without_case, http.names_in_full, "WC-CLAIM-5"),
    ("names cut short", _names_cut_short, http.names_in_full, "WC-TRANS-8"),
    ("quotes what it cannot read", _quotes_what_it_cannot_read, inputs.refused, "WC-PRIV-1"),
    ("echoes unknown paths", _echoes_unknown_paths, http.methods_and_paths, "WC-PRIV-1"),
    (
        "tells of records when paused",
        _tells_of_records_when_paused,
        controls.control_checks,
        "WC-ERR-2",
    ),
    ("UTF-16", _utf16, example.examples, "WC-HTTP-1"),
    ("empty recovery", _empty_recovery, http.names_in_full, "WC-ERR-1"),
    ("takes 17 for 16", accepting(generation=16), fuzzing.fuzz, "WC-IN-1"),
    ("ignores members by fuzz", _drop_extra, fuzzing.fuzz, "WC-IN-1"),
    ("no hash", _no_hash, example.examples, "WC-VIEW-1"),
    ("the end of time", _the_end_of_time, example.examples, "WC-TIME-1"),
]
CONTROL_FAULTS: list[tuple[str, Tamper, PlayedCheck, str]] = [
    ("the clock stays", _clock_ignores_advance, walk.walk_frozen, "WC-CTL-1"),
    ("pause does nothing", _control_does_nothing("/pause"), controls.control_checks, "WC-ERR-7"),
    ("no limit", _control_does_nothing("/rate-limit"), controls.control_checks, "WC-CTL-3"),
    ("never away", _control_does_nothing("/dependency"), controls.control_checks, "WC-CTL-4"),
    ("reset leaves a rest", _reset_leaves_the_store_away, controls.control_checks, "WC-CTL-5"),
    ("takes anything", _controls_take_anything, controls.control_checks, "WC-CTL-1"),
    ("frozen for good", _frozen_for_good, controls.control_checks, "WC-CTL-1"),
    ("shifts only when frozen", _shifts_only_when_frozen(), controls.control_checks, "WC-CTL-1"),
    ("admits one less", _admits_one_less, controls.control_checks, "WC-CTL-3"),
    ("limits for good", _limits_for_good, controls.control_checks, "WC-CTL-3"),
]


def every(number: int, instead: HttpAnswer) -> Tamper:
    """Every so many requests to the tool are answered otherwise, and not forwarded."""
    count = iter(range(1, 10**9))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        return instead if on_tool(message) and next(count) % number == 0 else forward(message)

    return tamper


def refusing(status: int, code: str) -> HttpAnswer:
    """A retryable error that nobody provoked."""
    members = {
        "type": "about:blank",
        "title": "t",
        "status": status,
        "detail": "d",
        "code": code,
        "retry": True,
        "charged": False,
        "recovery": "r",
        "retry_after_seconds": 1,
    }
    headers = (
        ("content-type", "application/problem+json"),
        ("cache-control", "no-store"),
        ("retry-after", "1"),
    )
    return HttpAnswer(status=status, headers=headers, body=json.dumps(members).encode())


def _in_two_lines(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return replace(answer, headers=(("cache-control", "private"), *answer.headers))


RIGHT: list[tuple[str, Tamper]] = [
    ("the store is away now and then", every(61, refusing(503, "DEPENDENCY_UNAVAILABLE"))),
    ("a gateway fails now and then", every(61, HttpAnswer(status=502, headers=(), body=b"<p>"))),
    ("the rate is limited now and then", every(401, refusing(429, "RATE_LIMITED"))),
    ("Cache-Control in two lines", _in_two_lines),
]


@pytest.mark.parametrize(
    "tamper", [pytest.param(right[1], id=right[0].replace(" ", "-")) for right in RIGHT]
)
def test_what_the_contract_allows_is_never_blamed(target: Target, tamper: Tamper) -> None:
    """Whatever is left out because of it is said; no rule is broken."""
    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        for check in (
            inputs.input_checks,
            http.http_checks,
            walk.walk_frozen,
            races.races,
            storm.storm,
            deadlines.deadlines,
        ):
            check(run)
        run.close()
    assert {rule: f.fault for rule, f in run.tally.failures.items()} == {}


def test_what_others_write_to_the_store_is_not_judged(target: Target) -> None:
    """A shared store: keys without expiry come and go while the check looks."""
    assert target.store_url is not None
    with redis.Redis.from_url(target.store_url) as client:
        number = iter(range(10**6))

        def tamper(message: Message, forward: Forward) -> HttpAnswer:
            n = next(number)
            if n % 3 == 0:
                client.set(f"shop:cart:{n}", "1")
            return forward(message)

        with tampering(target.address, tamper) as address:
            run = run_of(replace(target, address=address))
            store.store_checks(run)
            run.close()
        for key in client.scan_iter("shop:*"):
            client.delete(key)
    assert run.tally.failures == {}
    assert run.tally.hits["WC-PRIV-3"] > 0


@pytest.mark.parametrize(
    ("tamper", "check", "rule"),
    [pytest.param(*fault[1:], id=fault[0].replace(" ", "-")) for fault in TOOL_FAULTS],
)
def test_one_thing_wrong_is_caught_by_its_rule(
    target: Target, tamper: Tamper, check: PlayedCheck, rule: str
) -> None:
    """The fault's own rule is among those blamed."""
    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        check(run)
        run.close()
    assert rule in {rule for f in run.tally.failures.values() for rule in f.fault.rules}


def _json_with_a_parameter(case: object) -> tuple[tuple[str, str], ...]:
    del case
    return (("content-type", "Application/JSON; charset=utf-8"),)


@pytest.mark.parametrize(
    ("tamper", "blamed"),
    [(_drop_extra, {"WC-IN-1"}), (lambda message, forward: forward(message), set())],
    ids=["ignores members", "right"],
)
def test_a_media_type_with_a_parameter_hides_no_wrong_body(
    target: Target, monkeypatch: pytest.MonkeyPatch, tamper: Tamper, blamed: set[str]
) -> None:
    """Parameters are ignored, by a right server and by the check that judges it."""
    monkeypatch.setattr(fuzzing, "_headers", _json_with_a_parameter)
    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        fuzzing.fuzz(run)
        run.close()
    assert set(run.tally.failures) == blamed
    assert run.tally.hits["WC-CLAIM-1"] > 0


@pytest.mark.parametrize(
    ("tamper", "check", "rule"),
    [pytest.param(*fault[1:], id=fault[0].replace(" ", "-")) for fault in CONTROL_FAULTS],
)
def test_a_wrong_control_is_caught_by_its_rule(
    target: Target, tamper: Tamper, check: PlayedCheck, rule: str
) -> None:
    """The same for the controls' own listener."""
    assert target.controls is not None
    with tampering(target.controls, tamper) as address:
        run = run_of(replace(target, controls=address))
        with run.guarded(), suppress(TargetGoneError):
            check(run)
        run.close()
    assert rule in {rule for f in run.tally.failures.values() for rule in f.fault.rules}
    # Whatever a wrong control left behind is put right for the next test.
    right = run_of(target)
    right.close()


LeaveBehind = Callable[["redis.Redis", Message], None]


def _raw_holder(client: "redis.Redis", message: Message) -> None:
    client.set(f"session:{secrets.token_hex(16)}", str(message.json.get("holder")), ex=60)


def _for_ever(client: "redis.Redis", message: Message) -> None:
    client.set(f"wc:{_of(message)}:more", "1")


def _too_long(client: "redis.Redis", message: Message) -> None:
    client.set(f"wc:{_of(message)}:more", "1", ex=601)


def _of(message: Message) -> str:
    """A name for a record, as a server would derive one: a digest under a key."""
    identity = f"{message.json.get('namespace')} {message.json.get('workflow_key')}"
    return hmac.digest(b"k" * 32, identity.encode(), "sha256").hex()


def _digest(message: Message, member: str, algorithm: str = "sha256") -> "hashlib._Hash":
    return hashlib.new(algorithm, str(message.json.get(member)).encode(), usedforsecurity=False)


def _beside(client: "redis.Redis", message: Message, value: str | bytes) -> None:
    """Keep something in a key of the record's own, for as long as it lives."""
    client.set(f"wc:{_of(message)}:more", value, ex=2)


def _unkeyed(client: "redis.Redis", message: Message) -> None:
    _beside(client, message, _digest(message, "workflow_key").hexdigest())


def _unkeyed_and_cut(client: "redis.Redis", message: Message) -> None:
    _beside(client, message, _digest(message, "namespace", "md5").digest()[:9])


def _in_base64(client: "redis.Redis", message: Message) -> None:
    text = json.dumps({"n": 1, "by": message.json.get("holder")})
    _beside(client, message, base64.urlsafe_b64encode(text.encode()))


def _fingerprint_in_bytes(client: "redis.Redis", message: Message) -> None:
    if "evidence_fingerprint" in message.json:
        _beside(client, message, bytes.fromhex(message.json["evidence_fingerprint"][7:]))


def _headers_too(client: "redis.Redis", message: Message) -> None:
    if "x-request-id" in message.headers:
        _beside(client, message, json.dumps({"trace": message.headers["x-request-id"]}))


def _grows(name: str, size: int, *actions: str) -> LeaveBehind:
    """A list beside the record, with an entry for each request of these actions."""

    def leave_behind(client: "redis.Redis", message: Message) -> None:
        if message.json.get("action") in actions:
            key = f"wc:{_of(message)}:{name}"
            client.rpush(key, secrets.token_bytes(size))
            client.expire(key, 2)

    return leave_behind


def _refused_too(client: "redis.Redis", message: Message) -> None:
    """As one entry for each observation key: what is replayed takes no more room."""
    if message.json.get("action") == "transition":
        key = f"wc:{_of(message)}:seen"
        observation = _of(message) + str(message.json.get("observation_key"))
        client.hset(key, hashlib.sha256(observation.encode()).digest(), "1")
        client.expire(key, 2)


STORE_FAULTS: list[tuple[str, LeaveBehind, str]] = [
    ("raw holder", _raw_holder, "WC-PRIV-1"),
    ("immortal", _for_ever, "WC-PRIV-3"),
    ("too long", _too_long, "WC-PRIV-3"),
    ("digests without a key", _unkeyed, "WC-PRIV-2"),
    ("digests cut off", _unkeyed_and_cut, "WC-PRIV-2"),
    ("base64", _in_base64, "WC-PRIV-2"),
    ("fingerprints in bytes", _fingerprint_in_bytes, "WC-PRIV-2"),
    ("headers", _headers_too, "WC-PRIV-2"),
    ("whole answers", _grows("answers", 1500, "transition"), "WC-PRIV-2"),
    ("a log of statuses", _grows("log", 16, "status"), "WC-PRIV-2"),
    ("a log of claims", _grows("log", 16, "claim"), "WC-PRIV-2"),
    ("refused observations", _refused_too, "WC-LIMIT-2"),
    ("replayed observations", _grows("log", 16, "transition"), "WC-LIMIT-2"),
]


@pytest.mark.parametrize(
    ("leave_behind", "rule"),
    [pytest.param(*fault[1:], id=fault[0].replace(" ", "-")) for fault in STORE_FAULTS],
)
def test_what_a_server_should_not_store_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch, leave_behind: LeaveBehind, rule: str
) -> None:
    """Each in keys of its own beside the right server's."""
    monkeypatch.setattr(store, "_gone", lambda *_: None)  # a wait that no fault here needs
    assert target.store_url is not None
    with redis.Redis.from_url(target.store_url) as client:

        def tamper(message: Message, forward: Forward) -> HttpAnswer:
            if on_tool(message):
                leave_behind(client, message)
            return forward(message)

        with tampering(target.address, tamper) as address:
            run = run_of(replace(target, address=address, controls=None))
            store.store_checks(run)
            run.close()
    assert list(run.tally.failures) == [rule]


def _other_layouts(client: "redis.Redis", message: Message, answer: HttpAnswer) -> None:
    """All that a right server of another kind might keep: each of these is allowed.

    A key for each observation, one for each generation, an index in base64 and binary, JSON with
    words of its own, and a lock that every request takes and leaves behind.
    """
    if answer.status != 200:
        client.set(f"lock:{{{_of(message)}}}", secrets.token_hex(16), px=1500)
        return
    members = json.loads(answer.body)
    ends_ms = parse_timestamp(members["state_expires_at"])
    left_ms = max(ends_ms - parse_timestamp(members["observed_at"]), 1)
    name = f"checkpoint/{{{_of(message)}}}"
    if members["transitioned"]:
        observation = hmac.digest(b"o" * 32, message.json["observation_key"].encode(), "sha256")
        record = {
            "applied_observation": f"hmac-sha256:{observation.hex()}",
            "transition_body": f"hmac-sha256:{observation[::-1].hex()}",
            "to_stage": members["stage"],
            "evidence_type": members["evidence_type"],
            "evidence_fingerprint_present": members["evidence_fingerprint_present"],
            "applied_at": members["observed_at"],
            "claim_generation": members["generation"],
        }
        client.set(f"{name}/observations/{observation.hex()}", json.dumps(record), px=left_ms)
        client.set(
            f"{name}/index/" + base64.b64encode(observation).decode(), observation, px=left_ms
        )
    client.set(f"{name}/generations/{members['generation']}", json.dumps(members), px=left_ms)


def test_another_way_to_lay_out_a_record_is_not_blamed(target: Target) -> None:
    """Many keys, digests of any alphabet, words of its own: neither is said anything of."""
    assert target.store_url is not None
    with redis.Redis.from_url(target.store_url) as client:

        def tamper(message: Message, forward: Forward) -> HttpAnswer:
            answer = forward(message)
            _other_layouts(client, message, answer)
            return answer

        with tampering(target.address, tamper) as address:
            run = run_of(replace(target, address=address, controls=None))
            store.store_checks(run)
            run.close()
    assert {rule: f.fault for rule, f in run.tally.failures.items()} == {}
    assert run.tally.incomplete == []
    for rule in ("WC-LIMIT-2", "WC-PRIV-2", "WC-PRIV-3"):
        assert run.tally.hits[rule] >= (rules()[rule].floor or 0) > 0


def test_what_is_left_of_a_record_that_expired_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that comes too late makes one of its keys anew, and that one stays."""
    assert target.store_url is not None
    monkeypatch.setattr(store, "GONE_SECONDS_MAX", 0.5)
    with redis.Redis.from_url(target.store_url) as client:

        def tamper(message: Message, forward: Forward) -> HttpAnswer:
            answer = forward(message)
            if on_tool(message):
                lives = answer.status != 404
                client.set(f"wc:{_of(message)}:last-asked", "1", px=1500 if lives else 60_000)
            return answer

        with tampering(target.address, tamper) as address:
            run = run_of(replace(target, address=address, controls=None))
            store.store_checks(run)
            run.close()
        for key in client.scan_iter("wc:*"):
            client.delete(key)
    (failure,) = run.tally.failures.values()
    assert (failure.rule, failure.fault.got) == ("WC-PRIV-3", "it is still there")


def test_another_store_is_noticed(target: Target, valkey_url: str) -> None:
    """The one given must be the one behind the server; that is nobody's broken rule."""
    run = run_of(replace(target, store_url=valkey_url))
    store.store_checks(run)
    run.close()
    assert run.tally.failures == {}
    assert "is --store the one behind the server?" in run.tally.incomplete[0]


def test_a_seed_repeats_what_is_drawn(target: Target) -> None:
    """The same seed draws the same sequences, another one others."""

    def rows(seed: int) -> dict[str, int]:
        profile = replace(PROFILES["quick"], stateful_examples=15)
        run = Run(target=target, profile=profile, seed=seed, progress=Quiet())
        stateful.stateful_frozen(run)
        run.close()
        assert run.tally.failures == {}
        return dict(run.tally.hits)

    assert rows(1) == rows(1) != rows(2)


def test_a_slow_target_is_given_up_and_said_so(target: Target) -> None:
    """The drawn sequences stop when the run takes far longer than its profile should."""
    profile = replace(PROFILES["quick"], stateful_examples=10, drawing_seconds_max=0)
    run = Run(target=target, profile=profile, seed=1, progress=Quiet())
    stateful.stateful_frozen(run)
    run.close()
    assert "only 0 sequences were drawn, of at least 1" in run.tally.incomplete[0]


def test_deadlines_are_tested_in_real_time(target: Target) -> None:
    """Without controls both sides of both deadlines are seen, and all waiting is done at once."""
    run = run_of(replace(target, controls=None))
    deadlines.deadlines(run)
    run.close()
    assert run.tally.failures == {}
    assert run.tally.hits["WC-TIME-2"] >= 20
    rows = {"WC-CLAIM-1", "WC-CLAIM-5", "WC-CLAIM-8", "WC-TRANS-1", "WC-TRANS-4", "WC-TRANS-6"}
    assert rows <= set(run.tally.hits)


def test_a_clock_that_jumps_is_caught_in_real_time(target: Target) -> None:
    """``observed_at`` that no one clock explains: the target's own goes ten seconds ahead."""
    assert target.controls is not None
    answered = iter(range(10**6))
    with target.controls_client() as clock:

        def tamper(message: Message, forward: Forward) -> HttpAnswer:
            if next(answered) == 30:
                clock.exchange("POST", "/clock", b'{"advance_ms": 10000}')
            return forward(message)

        with tampering(target.address, tamper) as address:
            run = run_of(replace(target, address=address, controls=None))
            deadlines.deadlines(run)
            run.close()
        clock.exchange("POST", "/reset", b"{}")
    assert "WC-TIME-1" in run.tally.failures


def test_a_long_failure_is_shortened(target: Target) -> None:
    """The fixed walk finds the fault after dozens of requests; four of them show it."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        members = json.loads(answer.body) if on_tool(message) else {}
        if members.get("code") == "OBSERVATION_CONFLICT":
            return with_members(answer, code="INVALID_TRANSITION")
        return answer

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        walk.walk_frozen(run)
        assert len(run.tally.failures["WC-TRANS-3"].sequence) > 10
        shorten_failures(run)
        run.close()
    failure = run.tally.failures["WC-TRANS-3"]
    assert [sent.answered.split()[1] for sent in failure.sequence] == [
        "acquired",
        "transitioned",
        "INVALID_TRANSITION",
    ]


@pytest.mark.parametrize("access", ["controls and store", "real time"])
def test_no_floor_depends_on_chance(target: Target, access: str) -> None:
    """Without the drawn sequences every rule still reaches its floor, so no green is luck."""
    if access == "real time":
        target = replace(target, controls=None, store_url=None)
    run = Run(target=target, profile=PROFILES["quick"], seed=1, progress=Quiet())
    for check in CHECKS:
        if check.applies_to(target) and check.name != "stateful":
            run.play(check)
    run.close()
    judged = judge(run.tally, target)
    short = [f"{s.rule.id}: {s.reason}" for s in judged.rules.values() if s.counts_as_gap]
    assert short == []
    assert judged.verdict is Verdict.PASS


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "always"])
def test_a_lost_answer_that_is_none_of_the_tool_s_is_no_fault(target: Target, times: int) -> None:
    """A target that hangs up on health, other methods and other paths: asked again, then left."""
    hung_up = Counter[tuple[str, str]]()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        asked = (message.method, message.path.partition("/w_")[0])
        if not on_tool(message) and hung_up[asked] < times:
            hung_up[asked] += 1
            raise ConnectionAbortedError  # the proxy's connection ends without an answer
        return forward(message)

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        for part in (http.health, http.methods_and_paths):
            with suppress(TargetGoneError):
                part(run)
        run.close()
    assert run.tally.failures == {}
    assert run.tally.lost >= 2
    seen = run.tally.hits["WC-HTTP-3"], run.tally.hits["WC-HTTP-2"]
    if times == 1:
        assert (seen, run.tally.incomplete) == ((1, len(hung_up) - 1), [])
    else:
        assert seen == (0, 0)
        assert "lost its answers" in run.tally.incomplete[0]


def test_an_answer_that_was_lost_in_a_race_may_have_been_applied(target: Target) -> None:
    """Every fifth claim is decided, and its answer lost: both worlds stay possible (D8)."""
    numbers = itertools.count()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.json.get("action") == "claim" and next(numbers) % 5 == 0:
            raise ConnectionAbortedError
        return answer

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        races.races(run)
        run.close()
    assert run.tally.failures == {}
    assert run.tally.lost > 0
    assert run.tally.hits["WC-CONC-4"] == 1
    kinds = {"a `claim` of the check «»: the connection was closed before an answer"}
    assert kinds <= set(run.tally.lost_what)
    assert run.tally.lost_what.total() == run.tally.lost


def test_after_a_lost_answer_the_next_body_is_of_the_next_workflow(target: Target) -> None:
    """A claim's answer is lost, then one to each kind of refused body."""
    lost, claimed, strange = set[tuple[int, str]](), set[str](), set[str]()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        action, key = (str(message.json.get(name)) for name in ("action", "workflow_key"))
        if answer.status == 200 and action == "claim":
            claimed.add(key)
        if answer.status == 400 and claimed and re.fullmatch(r"w_[0-9a-f]{32}", key):
            strange.update({key} - claimed)
        kind = (answer.status, action)
        if kind not in lost and action in ("claim", "transition", "abandon"):
            lost.add(kind)
            raise ConnectionAbortedError
        return answer

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        inputs.refused(run)
        run.close()
    assert (run.tally.failures, strange) == ({}, set())
    assert {(200, "claim"), (400, "claim"), (400, "transition"), (400, "abandon")} <= lost
    assert run.tally.hits["WC-IN-6"] > 100


def test_what_was_accepted_wrongly_brings_no_rule_in_beside_its_own(target: Target) -> None:
    """A trailing newline is cut off, so that claims and abandons are applied that are none."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        cut = {n: v[:-1] for n, v in message.json.items() if str(v).endswith("\n")}
        return forward(message.with_json(**cut) if cut else message)

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        inputs.refused(run)
        run.close()
    assert set(run.tally.failures) == {"WC-IN-3"}


def test_what_is_wrong_without_the_header_too_is_not_blamed_on_it(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is renewed on reuse, which shows only where the clock has moved since."""
    answered_at, moment = 0.0, 0.1
    monkeypatch.setattr(http, "_MOMENT_SECONDS", moment)

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        nonlocal answered_at
        moved = time.monotonic() - answered_at >= moment
        answer = forward(message)
        members = json.loads(answer.body)
        if members.get("reused") and moved:
            observed_ms = parse_timestamp(members["observed_at"])
            ends_ms = observed_ms + message.json["claim_ttl_seconds"] * 1000
            answer = with_members(answer, claim_expires_at=format_timestamp(ends_ms))
        answered_at = time.monotonic()
        return answer

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        http.idempotency_key(run)
        run.close()
    assert "WC-CLAIM-4" in run.tally.failures
    assert "WC-IDEM-2" not in run.tally.failures
