"""Every check proves that it can fail: a server with one thing wrong, and the rule it is caught by.

The right server runs on a real Valkey; a proxy before it makes one thing wrong.
"""

import base64
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
from typing import Any

import pytest
import redis
from looking_away import Quiet
from refusals import BAD_GATEWAY, refusing

from checkpoint_conformance import run as run_module
from checkpoint_conformance import session
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
from checkpoint_conformance.client import Client, Flight, HttpAnswer
from checkpoint_conformance.controls import ControlError
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.answers import drop_unknown_members
from checkpoint_conformance.mutants.leavings import of_record
from checkpoint_conformance.mutants.proxy import (
    Forward,
    Message,
    Tamper,
    tampering,
    with_header,
    with_members,
)
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import TargetGoneError, fresh_identity
from checkpoint_conformance.shortening import shorten_failures
from checkpoint_conformance.verdict import Verdict, judge
from checkpoint_model import Status, format_request, format_timestamp, parse_timestamp


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


def every(number: int, instead: HttpAnswer) -> Tamper:
    """Every so many requests to the tool are answered otherwise, and not forwarded."""
    count = iter(range(1, 10**9))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        return instead if message.is_to_tool and next(count) % number == 0 else forward(message)

    return tamper


def _in_two_lines(message: Message, forward: Forward) -> HttpAnswer:
    answer = with_header(forward(message), "cache-control", "no-cache,\tNo-Store")
    return replace(answer, headers=(("cache-control", "private"), *answer.headers))


RIGHT: list[tuple[str, Tamper]] = [
    ("the store is away now and then", every(61, refusing("DEPENDENCY_UNAVAILABLE", 503))),
    ("a gateway fails now and then", every(61, HttpAnswer(status=502, headers=(), body=b"<p>"))),
    ("the rate is limited now and then", every(401, refusing("RATE_LIMITED", 429))),
    ("Cache-Control in two lines, with a tab", _in_two_lines),
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


@pytest.mark.parametrize("status", [401, 407])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
def test_credentials_that_expire_end_the_run(target: Target, status: int, kind: str) -> None:
    """WC-ERR-9 has them outside the table; without any, a 401 is no answer of the contract."""
    count = iter(range(10**6))
    headers = (("content-type", kind),)

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if next(count) < 20:
            return forward(message)
        return HttpAnswer(status=status, headers=headers, body=b'{"error": "invalid_token"}')

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address, headers={"authorization": "Bearer x"}))
        with pytest.raises(TargetGoneError, match="no longer takes the credentials"):
            inputs.refused(run)
        run.close()
        assert run.tally.failures == {}
        run = run_of(replace(target, address=address))
        inputs.accepted(run)
        run.close()
    assert run.tally.failures.keys() <= {"WC-HTTP-1", "WC-ERR-1"}
    assert run.tally.failures


@pytest.mark.parametrize("lasts", [2, 3])
def test_a_body_that_makes_the_server_fail_each_time_is_told(target: Target, lasts: int) -> None:
    """A moment's 5xx is not: the body is sent again, of another workflow."""
    count = iter(range(10**6))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.is_to_tool and b"[" * 1000 in message.body and next(count) < lasts:
            return HttpAnswer(status=500, headers=(), body=b"oops")
        return forward(message)

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        inputs.refused(run)
        run.close()
    assert run.tally.lost == lasts
    assert run.tally.incomplete == []
    told = {rule: f.fault.what for rule, f in run.tally.failures.items()}
    assert told == ({"WC-IN-4": "nested a thousand deep"} if lasts == 3 else {})


def test_a_body_that_is_never_answered_is_left_out(target: Target) -> None:
    """Nobody knows what became of it, and no verdict is complete without it."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.is_to_tool and b"[" * 1000 in message.body:
            raise ConnectionAbortedError
        return forward(message)

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        inputs.refused(run)
        run.close()
    assert run.tally.failures == {}
    assert run.tally.lost == 3
    assert len(run.tally.incomplete) == 1


@pytest.mark.parametrize("tamper_every", [2, 3, 5, 7, 11, 13])
@pytest.mark.parametrize(
    "instead",
    [
        refusing("DEPENDENCY_UNAVAILABLE", 503),
        refusing("RATE_LIMITED", 429),
        HttpAnswer(status=502, headers=(), body=b"<p>"),
    ],
    ids=["away", "limited", "gateway"],
)
def test_no_control_is_blamed_for_a_moment_of_the_target(
    target: Target, instead: HttpAnswer, tamper_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the run end with a tool that a control had paused."""
    monkeypatch.setattr(controls, "STANDING_SECONDS", 0.0)
    for module in (controls, session):
        monkeypatch.setattr(module, "wait_seconds", lambda _: 0.0)
    with tampering(target.address, every(tamper_every, instead)) as address:
        run = run_of(replace(target, address=address))
        controls.control_checks(run)
        run.close()
    assert {rule: f.fault for rule, f in run.tally.failures.items()} == {}


@pytest.mark.parametrize("path", ["/clock", "/pause", "/rate-limit", "/dependency", "/reset"])
@pytest.mark.parametrize("moment", [True, False])
def test_a_control_that_fails_for_a_moment_is_told_again(
    target: Target, path: str, moment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a gateway; one that fails each time is broken."""
    monkeypatch.setattr(controls, "STANDING_SECONDS", 0.0)
    assert target.controls is not None
    count = iter(range(10**6))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == path and (not moment or next(count) % 3 == 0):
            return HttpAnswer(status=502, headers=(), body=b"<p>")
        return forward(message)

    with tampering(target.controls, tamper) as address:
        run = run_of(replace(target, controls=address))
        with suppress(ControlError):
            controls.control_checks(run)
        assert run.controls is not None
        run.controls.close()
        run.controls = None  # they cannot be put back through it
        run.close()
    run_of(target).close()  # what was left is put right for the next
    broken = {rule for f in run.tally.failures.values() for rule in f.fault.rules}
    assert broken == (set() if moment else {controls._RULES[path]})


def test_contenders_open_their_connections_side_by_side(target: Target) -> None:
    """A hundred of them in turn, over a slow way, would take all the time that answers have."""
    two_of_them = threading.Barrier(2)

    class Slow(Client):
        def compose(self, *args: Any, **kwargs: Any) -> Flight:
            two_of_them.wait(20)
            return super().compose(*args, **kwargs)

    clients = [Slow(target.address) for _ in range(4)]
    body = json.dumps(format_request(fresh_identity(), Status())).encode()
    exchanges = races.at_once(clients, [body] * len(clients))
    for client in clients:
        client.close()
    assert [isinstance(e.answer, HttpAnswer) for e in exchanges] == [True] * len(clients)


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


def _json_with_a_parameter(case: object) -> tuple[tuple[str, str], ...]:
    del case
    return (("content-type", "Application/JSON; charset=utf-8"),)


@pytest.mark.parametrize(
    ("tamper", "blamed"),
    [(drop_unknown_members, {"WC-IN-1"}), (lambda message, forward: forward(message), set())],
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


def _other_layouts(client: "redis.Redis", message: Message, answer: HttpAnswer) -> None:
    """All that a right server of another kind might keep: each of these is allowed.

    A key for each observation, one for each generation, an index in base64 and binary, JSON with
    words of its own, and a lock that every request takes and leaves behind.
    """
    if answer.status != 200:
        client.set(f"lock:{{{of_record(message)}}}", secrets.token_hex(16), px=1500)
        return
    members = json.loads(answer.body)
    ends_ms = parse_timestamp(members["state_expires_at"])
    left_ms = max(ends_ms - parse_timestamp(members["observed_at"]), 1)
    name = f"checkpoint/{{{of_record(message)}}}"
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
    kept = ("stage", "generation", "observed_at", "claim_expires_at", "state_expires_at")
    generation = json.dumps({name: members[name] for name in kept})
    client.set(f"{name}/generations/{members['generation']}", generation, px=left_ms)


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
            if message.is_to_tool:
                lives = answer.status != 404
                client.set(f"wc:{of_record(message)}:last-asked", "1", px=1500 if lives else 60_000)
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
    rows = {"WC-CLAIM-1", "WC-CLAIM-5", "WC-CLAIM-8", "WC-TRANS-1", "WC-TRANS-4", "WC-TRANS-6"}
    for _ in range(3):  # a machine that stands still for a second misses what only lives that long
        deadlines.deadlines(run)
        if rows <= set(run.tally.hits):
            break
    run.close()
    assert run.tally.failures == {}
    assert run.tally.hits["WC-TIME-2"] >= 20
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
        members = json.loads(answer.body) if message.is_to_tool else {}
        if members.get("code") == "OBSERVATION_CONFLICT":
            return with_members(answer, code="INVALID_TRANSITION")
        return answer

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        with run.frozen():
            walk.walk(run)
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
        target = replace(target, controls=None, store_url=None, fault_access=None)
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
        if not message.is_to_tool and hung_up[asked] < times:
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


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "always"])
@pytest.mark.parametrize("everywhere", [False, True], ids=["elsewhere", "everywhere"])
def test_a_gateway_that_fails_is_a_fault_only_for_good_and_beside_a_tool_that_answers(
    target: Target, monkeypatch: pytest.MonkeyPatch, times: int, everywhere: bool
) -> None:
    """A 502 to health, other methods and other paths; to the tool too while all starts again."""
    monkeypatch.setattr(run_module, "PAUSE_SECONDS", 0)
    failed = Counter[tuple[str, str]]()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        asked = (message.method, message.path.partition("/w_")[0])
        failed[asked] += 1
        fails = everywhere or not message.is_to_tool
        return BAD_GATEWAY if fails and failed[asked] <= times else forward(message)

    with tampering(target.address, tamper) as address:
        run = run_of(replace(target, address=address))
        http.health(run)
        http.methods_and_paths(run)
        run.close()
    named = {rule for failure in run.tally.failures.values() for rule in failure.fault.rules}
    hits = run.tally.hits["WC-HTTP-3"], run.tally.hits["WC-HTTP-2"]
    if times == 1:
        assert (named, hits, run.tally.incomplete) == (set(), (1, 8), [])
    elif everywhere:
        assert (named, hits) == (set(), (0, 0))
        assert "lost its answers" in run.tally.incomplete[0]
    else:
        assert (named, hits, run.tally.incomplete) == ({"WC-HTTP-2", "WC-HTTP-3"}, (0, 0), [])
        failure = run.tally.failures["WC-HTTP-3"]
        assert (failure.fault.got, len(failure.sequence)) == ("502", 1)


@pytest.mark.parametrize(
    ("expected", "said", "named"),
    [(200, 503, set()), (503, 503, set()), (503, 500, {"WC-HTTP-3"})],
    ids=["away unasked", "away as asked", "away and at fault"],
)
def test_a_store_that_is_away_by_both_accounts_breaks_no_rule_of_health(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    expected: int,
    said: int,
    named: set[str],
) -> None:
    """503 is what `/healthz` says then; one that says another 5xx is wrong all the same."""
    monkeypatch.setattr(run_module, "PAUSE_SECONDS", 0)
    away = refusing("DEPENDENCY_UNAVAILABLE", 503)
    healthz = HttpAnswer(status=said, headers=(), body=b"{}")
    with tampering(target.address, lambda m, _: away if m.is_to_tool else healthz) as address:
        run = run_of(replace(target, address=address))
        with suppress(TargetGoneError):
            run.attempt(http.expect_health, run, expected)
        run.close()
    assert set(run.tally.failures) == named
    assert run.tally.hits["WC-HTTP-3"] == (expected == said)


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
        of_held = action in ("transition", "abandon", "status")
        if answer.status == 400 and of_held and re.fullmatch(r"w_[0-9a-f]{32}", key):
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
