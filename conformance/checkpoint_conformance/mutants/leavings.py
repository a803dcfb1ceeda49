"""Mutants that leave something in the store, in keys of their own beside a right server's."""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from checkpoint_conformance.checks import store
from checkpoint_conformance.mutants.mutant import Kind, LeavesBehind, Mutant
from checkpoint_conformance.mutants.proxy import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

Leave: TypeAlias = "Callable[[redis.Redis, Message, bool], None]"


def _raw_holder(client: "redis.Redis", message: Message, _: bool) -> None:
    client.set(f"session:{secrets.token_hex(16)}", str(message.json.get("holder")), ex=60)


def _for_ever(client: "redis.Redis", message: Message, _: bool) -> None:
    client.set(f"wc:{of_record(message)}:more", "1")


def _too_long(client: "redis.Redis", message: Message, _: bool) -> None:
    client.set(f"wc:{of_record(message)}:more", "1", ex=601)


def of_record(message: Message) -> str:
    """A name for a record, as a server would derive one: a digest under a key."""
    identity = f"{message.json.get('namespace')} {message.json.get('workflow_key')}"
    return hmac.digest(b"k" * 32, identity.encode(), "sha256").hex()


_FINGERPRINT: Final = re.compile("sha256:[0-9a-f]{64}")
_ENDS: dict[str, int] = {}
"""By record, the second in which it ends, or the one before: what is left behind ends with it."""


def _end_s(message: Message) -> int:
    """Until when something of a record may be kept; now where nothing is known of the record."""
    record, ttl_s = of_record(message), message.json.get("state_ttl_seconds")
    if isinstance(ttl_s, int):
        _ENDS.setdefault(record, int(time.time()) + ttl_s)
    return _ENDS.get(record, int(time.time()))


def _digest(message: Message, member: str, algorithm: str = "sha256") -> "hashlib._Hash":
    return hashlib.new(algorithm, str(message.json.get(member)).encode(), usedforsecurity=False)


def _beside(client: "redis.Redis", message: Message, value: str | bytes) -> None:
    """Keep something in a key of the record's own, for as long as it lives."""
    client.set(f"wc:{of_record(message)}:more", value, exat=_end_s(message))


def _unkeyed(client: "redis.Redis", message: Message, _: bool) -> None:
    _beside(client, message, _digest(message, "workflow_key").hexdigest())


def _unkeyed_and_cut(client: "redis.Redis", message: Message, _: bool) -> None:
    _beside(client, message, _digest(message, "namespace", "md5").digest()[:9])


def _in_base64(client: "redis.Redis", message: Message, _: bool) -> None:
    text = json.dumps({"n": 1, "by": message.json.get("holder")})
    _beside(client, message, base64.urlsafe_b64encode(text.encode()))


def _fingerprint_in_bytes(client: "redis.Redis", message: Message, _: bool) -> None:
    fingerprint = message.json.get("evidence_fingerprint")
    if isinstance(fingerprint, str) and _FINGERPRINT.fullmatch(fingerprint):
        _beside(client, message, bytes.fromhex(fingerprint.removeprefix("sha256:")))


def _headers_too(client: "redis.Redis", message: Message, _: bool) -> None:
    if "x-request-id" in message.headers:
        _beside(client, message, json.dumps({"trace": message.headers["x-request-id"]}))


def _grows(name: str, size: int, *actions: str) -> Leave:
    """A list beside the record, with an entry for each request of these actions."""

    def leave_behind(client: "redis.Redis", message: Message, _: bool) -> None:
        if message.json.get("action") in actions:
            key = f"wc:{of_record(message)}:{name}"
            client.rpush(key, secrets.token_bytes(size))
            client.expireat(key, _end_s(message))

    return leave_behind


def _refused_too(client: "redis.Redis", message: Message, _: bool) -> None:
    """As one entry for each observation key: what is replayed takes no more room."""
    if message.json.get("action") == "transition":
        key = f"wc:{of_record(message)}:seen"
        observation = of_record(message) + str(message.json.get("observation_key"))
        client.hset(key, hashlib.sha256(observation.encode()).digest(), "1")
        client.expireat(key, _end_s(message))


def _mutant(name: str, wrong: str, leave: Leave, rule: str) -> Mutant:
    def knowing_its_end(client: "redis.Redis", message: Message, there: bool) -> None:
        _end_s(message)  # only a claim tells
        leave(client, message, there)

    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.STORE,
        fault=LeavesBehind(knowing_its_end),
        rules=(rule,),
        part=store.what_lies_there,
        only=True,
        real_time=True,
    )


LEAVINGS: tuple[Mutant, ...] = (
    _mutant(
        "stores-the-raw-holder",
        "Keeps a session with the holder as it was sent.",
        _raw_holder,
        "WC-PRIV-1",
    ),
    _mutant(
        "stores-for-ever",
        "Keeps a key beside the record that never expires.",
        _for_ever,
        "WC-PRIV-3",
    ),
    _mutant(
        "stores-for-too-long", "Keeps a key that expires after the record.", _too_long, "WC-PRIV-3"
    ),
    _mutant(
        "stores-digests-without-a-key",
        "Keeps a digest of the workflow key that anybody can compute.",
        _unkeyed,
        "WC-PRIV-2",
    ),
    _mutant(
        "stores-digests-cut-off",
        "Keeps the first bytes of a digest that anybody can compute.",
        _unkeyed_and_cut,
        "WC-PRIV-2",
    ),
    _mutant("stores-base64", "Keeps the holder in base64.", _in_base64, "WC-PRIV-2"),
    _mutant(
        "stores-the-fingerprint-in-bytes",
        "Keeps the evidence's fingerprint as bytes.",
        _fingerprint_in_bytes,
        "WC-PRIV-2",
    ),
    _mutant("stores-headers", "Keeps a request's headers.", _headers_too, "WC-PRIV-2"),
    _mutant(
        "stores-whole-answers",
        "Keeps the answer to every transition.",
        _grows("answers", 1500, "transition"),
        "WC-PRIV-2",
    ),
    _mutant(
        "logs-statuses-in-the-store",
        "Keeps an entry for every status.",
        _grows("log", 16, "status"),
        "WC-PRIV-2",
    ),
    _mutant(
        "logs-claims-in-the-store",
        "Keeps an entry for every claim.",
        _grows("log", 16, "claim"),
        "WC-PRIV-2",
    ),
    _mutant(
        "stores-refused-observations",
        "Keeps the observation key of a transition that it refuses.",
        _refused_too,
        "WC-LIMIT-2",
    ),
    _mutant(
        "stores-replayed-observations",
        "Keeps an entry for every transition, replayed ones too.",
        _grows("log", 16, "transition"),
        "WC-LIMIT-2",
    ),
)
