"""Mutants of what is done with a request before it is decided, and with an answer afterwards."""

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from checkpoint_conformance.checks import (
    controls,
    example,
    fuzzing,
    http,
    inputs,
    races,
    storm,
    walk,
)
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.mutant import InFront, Kind, Mutant, Part, always
from checkpoint_conformance.mutants.proxy import (
    Forward,
    Message,
    Tamper,
    with_header,
    with_members,
)
from checkpoint_model.vocabulary import HEALTH_PATH


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


def _faults_on_deep_nesting(message: Message, forward: Forward) -> HttpAnswer:
    if message.is_to_tool and b"[" * 100 in message.body:
        return HttpAnswer(status=500, headers=(), body=b"Internal Server Error")
    return forward(message)


def _unzips(message: Message, forward: Forward) -> HttpAnswer:
    if message.headers.get("content-encoding") != "gzip":
        return forward(message)
    try:
        body = gzip.decompress(message.body)
    except (OSError, EOFError):
        return forward(message)
    headers = {name: v for name, v in message.headers.items() if name != "content-encoding"}
    return forward(replace(message, headers=headers, body=body))


def _takes_any_length_in_chunks(message: Message, forward: Forward) -> HttpAnswer:
    if message.headers.get("transfer-encoding") == "chunked":
        return forward(replace(message, body=message.body.rstrip()))
    return forward(message)


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
    if message.is_to_tool and answer.status == 200:
        return with_members(answer, workflow_hash="hmac-sha256:" + "0" * 64)
    return answer


def _join_identities(message: Message, forward: Forward) -> HttpAnswer:
    namespace, key = (message.json.get(name) for name in ("namespace", "workflow_key"))
    if isinstance(namespace, str) and isinstance(key, str) and key.startswith("w_w_"):
        joined = {"namespace": f"{namespace}w_", "workflow_key": key.removeprefix("w_")}
        return forward(message.with_json(**joined))
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
    if answer.status == 404 and not message.is_to_tool:
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
        if not message.is_to_tool:
            return answer  # a description need not be JSON
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
        if not message.is_to_tool or answer.status != 200:
            return answer
        if not json.loads(answer.body).get("observation_replayed"):
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
        key = str(message.json.get("workflow_key"))
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
    if (
        message.is_to_tool
        and answer.status == 503
        and json.loads(answer.body).get("code") == "TOOL_PAUSED"
    ):
        return with_members(
            replace(answer, status=200), code=..., acquired=True, stage="claimed", generation=1
        )
    return answer


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


def _renamed(member: str, rename: Callable[[str], str]) -> Tamper:
    """What is no text, and what keeps its name, goes on as it came."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        name = message.json.get(member)
        if isinstance(name, str) and rename(name) != name:
            return forward(message.with_json(**{member: rename(name)}))
        return forward(message)

    return tamper


def _quotes_what_it_cannot_read(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 400 and not message.json:
        return with_members(answer, detail=message.body.decode("utf-8", "replace"))
    return answer


def _echoes_unknown_paths(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 404 and not message.is_to_tool:
        return replace(answer, body=f"nothing at {message.path}".encode())
    return answer


def _tells_of_records_when_paused(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 503 and message.is_to_tool:
        return with_members(answer, stage="claimed", generation=1)
    return answer


def _utf16(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 200 and message.is_to_tool:
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


def drop_unknown_members(message: Message, forward: Forward) -> HttpAnswer:
    """Take a body with members that no action has for the one without them."""
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
    if answer.status == 200 and message.is_to_tool:
        return with_members(answer, workflow_hash=...)
    return answer


def _the_end_of_time(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if answer.status == 200 and message.is_to_tool:
        return with_members(answer, observed_at="9999-12-31T23:59:59.999Z")
    return answer


def _stale_replica() -> Tamper:
    """A status that meets other requests tells how its workflow stood at the status before, at a
    time that is right. For one caller at a time it is right too."""
    lock, under_way, before = threading.Lock(), Counter[str](), dict[str, dict[str, object]]()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        key = str(message.json.get("workflow_key"))
        with lock:
            under_way[key] += 1
            meets_others = under_way[key] > 1
        try:
            answer = forward(message)
        finally:
            with lock:
                under_way[key] -= 1
        is_status = message.is_to_tool and message.json.get("action") == "status"
        if not is_status or answer.status != 200:
            return answer
        told = json.loads(answer.body)
        known = before.get(key)
        before[key] = {member: told[member] for member in ("stage", "generation")}
        return with_members(answer, **known) if meets_others and known is not None else answer

    return tamper


def _mutant(
    name: str,
    wrong: str,
    make: Callable[[], Tamper],
    part: Part,
    *rules: str,
    kind: Kind = Kind.ANSWER,
) -> Mutant:
    return Mutant(name=name, wrong=wrong, kind=kind, fault=InFront(make), rules=rules, part=part)


def _results(change: Callable[[dict[str, Any]], dict[str, object]]) -> Callable[[], Tamper]:
    """Change members of every result, as a function of the members says; ``...`` removes one."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.is_to_tool and answer.status == 200:
            return with_members(answer, **change(json.loads(answer.body)))
        return answer

    return always(tamper)


def _refusals(change: Callable[[dict[str, Any]], dict[str, object]]) -> Callable[[], Tamper]:
    """Change members of every error that section 6 decides."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.is_to_tool and answer.status in (404, 409):
            return with_members(answer, **change(json.loads(answer.body)))
        return answer

    return always(tamper)


def _hash_of(members: dict[str, Any]) -> dict[str, object]:
    digit = {"claim": "0", "transition": "1", "abandon": "2", "status": "3"}[members["action"]]
    return {"workflow_hash": members["workflow_hash"][:-1] + digit}


ANSWERS: tuple[Mutant, ...] = (
    _mutant(
        "text-for-an-integer",
        'Takes a generation of any type for 1, also `"1"` and `true`.',
        always(accepting(generation=1)),
        inputs.refused,
        "WC-IN-2",
    ),
    _mutant(
        "integer-for-a-boolean",
        'Takes `0` and `"true"` in `retry_failed` for false.',
        always(accepting(retry_failed=False)),
        inputs.refused,
        "WC-IN-2",
    ),
    _mutant(
        "strips-white-space",
        "Strips white space off every string before it matches the pattern.",
        always(_strip),
        inputs.refused,
        "WC-IN-3",
    ),
    _mutant(
        "strips-a-bom",
        "Takes a body that begins with a byte order mark.",
        always(mended(lambda b: b.removeprefix(b"\xef\xbb\xbf"))),
        inputs.refused,
        "WC-IN-4",
    ),
    _mutant(
        "cuts-long-bodies",
        "Cuts a body at 8192 bytes instead of refusing it.",
        always(mended(lambda b: b[:8192])),
        inputs.refused,
        "WC-IN-4",
    ),
    _mutant(
        "takes-nan",
        "Reads `NaN` as a number.",
        always(mended(lambda b: b.replace(b"NaN", b"1"))),
        inputs.refused,
        "WC-IN-4",
    ),
    _mutant(
        "claim-as-long-as-the-state",
        "Admits a claim whose lifetime equals that of the record.",
        always(_longer_claim),
        inputs.refused,
        "WC-IN-5",
    ),
    _mutant(
        "ignores-unknown-members",
        "Ignores a member that the action does not have.",
        always(_drop_unknown),
        inputs.refused,
        "WC-IN-1",
    ),
    _mutant(
        "refuses-the-largest",
        "Refuses `state_ttl_seconds` of 3600, the largest there is.",
        always(_refuse_the_largest),
        inputs.accepted,
        "WC-IN-1",
    ),
    _mutant(
        "quotes-what-it-refuses",
        "Repeats the holder of a body that it refuses.",
        always(_quote),
        inputs.refused,
        "WC-PRIV-1",
    ),
    _mutant(
        "takes-any-media-type",
        "Takes a body of whatever media type for JSON.",
        always(_any_media),
        inputs.refused,
        "WC-IN-1",
    ),
    _mutant(
        "applies-refused-transitions",
        "Refuses a transition with an unknown member, and applies it all the same.",
        always(_refusals_change),
        inputs.refused,
        "WC-STATUS-2",
        "WC-IN-6",
    ),
    _mutant(
        "one-hash-for-all",
        "Gives every workflow the same `workflow_hash`.",
        always(_all_hashes_alike),
        http.identities,
        "WC-ID-3",
    ),
    _mutant(
        "joins-namespace-and-key",
        "Derives the identity from namespace and key put together without a bound.",
        always(_join_identities),
        http.identities,
        "WC-STATUS-1",
    ),
    _mutant(
        "answers-by-idempotency-key",
        "Answers whatever comes with an `Idempotency-Key` as it answered its first request.",
        _by_idempotency_key,
        http.idempotency_key,
        "WC-IDEM-2",
    ),
    _mutant(
        "get-works",
        "Answers GET on the tool with 200.",
        always(_get_works),
        http.methods_and_paths,
        "WC-HTTP-2",
    ),
    _mutant(
        "405-without-allow",
        "Answers other methods with 405 but no `Allow`.",
        always(_no_allow),
        http.methods_and_paths,
        "WC-HTTP-2",
    ),
    _mutant(
        "404-with-a-code",
        "Answers unknown paths with a problem of section 8.",
        always(_coded_404),
        http.methods_and_paths,
        "WC-ERR-9",
    ),
    _mutant(
        "never-healthy",
        "Answers `/healthz` with 503 while the store answers.",
        always(_never_healthy),
        http.health,
        "WC-HTTP-3",
    ),
    _mutant(
        "always-healthy",
        "Answers `/healthz` with 200 while the store is away.",
        always(_always_healthy),
        controls.control_checks,
        "WC-HTTP-3",
    ),
    _mutant(
        "no-retry-after",
        "Sends no `Retry-After` with a retryable error.",
        always(_no_retry_after),
        controls.control_checks,
        "WC-ERR-3",
    ),
    _mutant(
        "cacheable", "Sends no `Cache-Control`.", always(_cacheable), example.examples, "WC-HTTP-1"
    ),
    _mutant(
        "claims-while-paused",
        "Grants claims while the tool is paused.",
        always(_paused_claims_renew),
        controls.control_checks,
        "WC-ERR-7",
    ),
    _mutant(
        "two-winners",
        "Tells two of those that claim at once that they acquired the generation.",
        _two_winners,
        races.races,
        "WC-CONC-2",
        kind=Kind.CONCURRENCY,
    ),
    _mutant(
        "two-movers",
        "Tells two of those that send one transition at once that they moved the stage.",
        _two_movers,
        races.races,
        "WC-CONC-3",
        kind=Kind.CONCURRENCY,
    ),
    _mutant(
        "one-lock-for-all",
        "Lets a claim of one workflow be taken by another while a few are being made.",
        _claims_block_each_other,
        races.races,
        "WC-CONC-4",
        kind=Kind.CONCURRENCY,
    ),
    _mutant(
        "swapped-answers",
        "Gives two that ask at once the answers of each other.",
        _swapped_answers,
        races.races,
        "WC-CLAIM-1",
        kind=Kind.CONCURRENCY,
    ),
    _mutant(
        "two-winners-in-a-storm",
        "Tells two of those that claim amid a storm that they acquired the generation.",
        _two_winners,
        storm.storm,
        "WC-CONC-2",
        kind=Kind.CONCURRENCY,
    ),
    _mutant(
        "stale-replica",
        "Answers a status that meets other requests as the workflow stood at the status before.",
        _stale_replica,
        storm.storm,
        "WC-CONC-1",
        kind=Kind.CONCURRENCY,
    ),
    _mutant(
        "faults-on-deep-nesting",
        "Answers 500 to a body that is nested a hundred deep.",
        always(_faults_on_deep_nesting),
        inputs.refused,
        "WC-IN-4",
    ),
    _mutant(
        "any-length-in-chunks",
        "Holds a body to the greatest length where its length is said before, and not in chunks.",
        always(_takes_any_length_in_chunks),
        inputs.input_checks,
        "WC-IN-4",
    ),
    _mutant(
        "takes-gzip",
        "Takes a body that is compressed by gzip.",
        always(_unzips),
        inputs.refused,
        "WC-IN-1",
    ),
    _mutant(
        "lax-in-abandon",
        'Takes `"1"` for 1 in `abandon` alone.',
        always(_lax_abandon),
        inputs.refused,
        "WC-IN-2",
    ),
    _mutant(
        "applies-refused-claims",
        "Refuses a claim with an unknown member, and makes it all the same.",
        always(_applies_refused_claims),
        inputs.refused,
        "WC-STATUS-1",
        "WC-ERR-4",
    ),
    _mutant(
        "holders-without-case",
        "Takes holders that differ in case for one.",
        always(_renamed("holder", str.lower)),
        http.names_in_full,
        "WC-CLAIM-5",
    ),
    _mutant(
        "namespaces-in-small-letters",
        "Tells namespaces apart without their case.",
        always(_renamed("namespace", str.lower)),
        http.identities,
        "WC-ID-3",
    ),
    _mutant(
        "namespaces-cut-short",
        "Tells namespaces apart by their first 64 characters.",
        always(_renamed("namespace", lambda name: name[:64])),
        http.identities,
        "WC-ID-3",
    ),
    _mutant(
        "workflow-keys-cut-short",
        "Tells workflow keys apart by their first 40 characters.",
        always(_renamed("workflow_key", lambda name: name[:40])),
        http.identities,
        "WC-ID-3",
    ),
    _mutant(
        "observation-keys-cut-short",
        "Tells observation keys apart by their first 50 characters.",
        always(_renamed("observation_key", lambda name: name[:50])),
        http.names_in_full,
        "WC-TRANS-8",
    ),
    _mutant(
        "quotes-what-it-cannot-read",
        "Repeats a body that is no JSON object.",
        always(_quotes_what_it_cannot_read),
        inputs.refused,
        "WC-PRIV-1",
    ),
    _mutant(
        "echoes-unknown-paths",
        "Repeats a path that it does not know.",
        always(_echoes_unknown_paths),
        http.methods_and_paths,
        "WC-PRIV-1",
    ),
    _mutant(
        "tells-of-records-when-paused",
        "Tells stage and generation in an error that section 6 does not decide.",
        always(_tells_of_records_when_paused),
        controls.control_checks,
        "WC-ERR-2",
    ),
    _mutant(
        "utf-16", "Sends its results in UTF-16.", always(_utf16), example.examples, "WC-HTTP-1"
    ),
    _mutant(
        "empty-recovery",
        "Sends a problem whose `recovery` says nothing.",
        always(_empty_recovery),
        http.names_in_full,
        "WC-ERR-1",
    ),
    _mutant(
        "17-for-16",
        "Takes a generation of 17 for 16.",
        always(accepting(generation=16)),
        fuzzing.fuzz,
        "WC-IN-1",
    ),
    _mutant(
        "ignores-members-that-no-action-has",
        "Ignores members that no action has, found by drawn bodies.",
        always(drop_unknown_members),
        fuzzing.fuzz,
        "WC-IN-1",
    ),
    _mutant(
        "no-hash",
        "Sends results without `workflow_hash`.",
        always(_no_hash),
        example.examples,
        "WC-VIEW-1",
    ),
    _mutant(
        "the-end-of-time",
        "Observes everything at the end of the year 9999.",
        always(_the_end_of_time),
        example.examples,
        "WC-TIME-1",
    ),
    _mutant(
        "hash-in-capitals",
        "Sends `workflow_hash` in capital digits.",
        _results(lambda m: {"workflow_hash": "hmac-sha256:" + m["workflow_hash"][12:].upper()}),
        example.examples,
        "WC-ID-1",
    ),
    _mutant(
        "hash-by-action",
        "Derives `workflow_hash` from the action as well.",
        _results(_hash_of),
        http.names_in_full,
        "WC-ID-2",
    ),
    _mutant(
        "timestamps-of-six-digits",
        "Sends timestamps with six fraction digits.",
        _results(lambda m: {"observed_at": m["observed_at"][:-1] + "000Z"}),
        example.examples,
        "WC-TIME-5",
    ),
    _mutant(
        "remaining-seconds-rounded-up",
        "Rounds the remaining seconds of the record up.",
        _results(lambda m: {"state_ttl_seconds_remaining": m["state_ttl_seconds_remaining"] + 1}),
        walk.walk_frozen,
        "WC-TIME-6",
    ),
    _mutant(
        "actions-in-another-order",
        "Lists the next actions in another order.",
        _results(lambda m: {"allowed_next_actions": m["allowed_next_actions"][::-1]}),
        http.names_in_full,
        "WC-VIEW-2",
    ),
    _mutant(
        "everybody-holds",
        "Tells everybody that the claim is held by them.",
        _results(lambda m: {"held_by_caller": m["claim_active"]}),
        walk.walk_frozen,
        "WC-VIEW-3",
    ),
    _mutant(
        "no-recovery-required",
        "Never asks for a look at the external system.",
        _results(lambda _: {"recovery_required": False}),
        walk.walk_frozen,
        "WC-VIEW-3",
    ),
    _mutant(
        "a-member-too-many",
        "Sends a member that no result has.",
        _results(lambda _: {"server": "us"}),
        example.examples,
        "WC-VIEW-1",
    ),
    _mutant(
        "a-flag-of-another-action",
        "Raises `reused` in every answer to a status.",
        _results(lambda m: {"reused": m["reused"] or m["action"] == "status"}),
        walk.walk_frozen,
        "WC-VIEW-1",
    ),
    _mutant(
        "no-record-in-refusals",
        "Does not tell the stage in a refusal.",
        _refusals(lambda _: {"stage": ...}),
        walk.walk_frozen,
        "WC-ERR-2",
    ),
    _mutant(
        "refusals-are-retryable",
        "Calls a refusal retryable.",
        _refusals(lambda _: {"retry": True}),
        http.names_in_full,
        "WC-ERR-1",
    ),
    _mutant(
        "refusals-are-charged",
        "Charges for a refusal.",
        _refusals(lambda _: {"charged": True}),
        http.names_in_full,
        "WC-ERR-1",
    ),
    _mutant(
        "another-configuration",
        "Tells a configuration in a conflict that is not the record's.",
        _refusals(
            lambda m: (
                {"configuration": {**m["configuration"], "claim_ttl_seconds": 1}}
                if "configuration" in m
                else {}
            )
        ),
        walk.walk_frozen,
        "WC-ERR-8",
    ),
)
