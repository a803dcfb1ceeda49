"""Section 10 with the store: nothing raw anywhere in it, and everything expires.

Reads only, and only what it must: the keys that appeared while this check's own workflows were
driven, found by looking before and after. Nothing is ever flushed or changed.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session, fresh_key
from checkpoint_model import EvidenceType, Request, Stage, Status, format_request

if TYPE_CHECKING:
    import redis

KEYS_MAX: Final = 200_000
"""A store with more keys is not read whole; the check then says that it was not done."""
_STATE_TTL_SECONDS: Final = 600
_SLACK_MS: Final = 3600 * 1000


class StoreAddressError(Exception):
    """The store's URL is wrong, or nothing answers there; the message says which."""


def open_store(url: str) -> "redis.Redis":
    """A client of the store that answers.

    Raises:
        StoreAddressError: the URL is wrong, or nothing answers there.
    """
    import redis

    try:
        client = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
        client.ping()
    except ValueError as error:
        raise StoreAddressError(
            f"{url!r} is no store's URL ({error}); one looks like redis://127.0.0.1:6379/0"
        ) from None
    except redis.RedisError as error:
        shown = url.rpartition("@")[2]
        raise StoreAddressError(f"no store answers at {shown} ({type(error).__name__})") from None
    return client


def store_checks(run: Run) -> None:
    """Drive workflows, then look at what lies in the store."""
    assert run.target.store_url is not None
    with open_store(run.target.store_url) as client, run.guarded():
        if client.dbsize() > KEYS_MAX:
            run.tally.leave_out(f"the store has more than {KEYS_MAX} keys and was not read")
            return
        before = set(client.scan_iter(count=1000))
        session, sent = _drive(run)
        after = set(client.scan_iter(count=1000))
        new = after - before
        if not new:
            session.fail(
                Fault(
                    rules=("WC-PRIV-3",),
                    what="no key appeared in the store: is it the one behind the server?",
                    expected="the record's keys",
                    got="none",
                )
            )
        _nothing_raw(run, session, client, new, sent)
        _expiry(run, session, client, new, slack_ms=0, rule="WC-PRIV-3")
        if run.controls is not None:
            _controlled_expiry(run, client)


def _drive(run: Run) -> tuple[Session, list[bytes]]:
    """A workflow with every kind of identifier; the raw texts that must not be found."""
    cast, session = Cast(), run.session()
    claim = cast.claim(cast.ann, claim_ttl_seconds=60, state_ttl_seconds=_STATE_TTL_SECONDS)
    moves = [
        cast.move(cast.ann, 1, Stage.UNCERTAIN),
        cast.move(
            cast.ann,
            1,
            Stage.CALLER_VERIFIED,
            EvidenceType.EXTERNAL_READ,
            fingerprint="sha256:" + fresh_key("f")[2:] * 2,
        ),
    ]
    requests: list[Request] = [claim, *moves, Status(holder=cast.bob)]
    raw: set[str] = set()
    for request in requests:
        session.send(request)
        body: dict[str, Any] = format_request(session.identity, request)
        names = ("namespace", "workflow_key", "holder", "observation_key", "evidence_fingerprint")
        raw |= {body[name] for name in names if name in body}
    # Without its prefix as well: a store that cuts it off has the identifier all the same.
    raw |= {text.split("_", 1)[-1].split(":", 1)[-1] for text in set(raw)}
    return session, [text.encode() for text in raw]


def _nothing_raw(
    run: Run, session: Session, client: "redis.Redis", keys: Iterable[bytes], raw: list[bytes]
) -> None:
    for key in keys:
        content = [key, *_content(client, key)]
        for text in raw:
            if any(text in part for part in content):
                session.fail(
                    Fault(
                        rules=("WC-PRIV-1",),
                        what="a raw identifier lies in the store",
                        expected="keyed digests alone",
                        got=f"{text.decode()} under the key {key.decode('utf-8', 'replace')}",
                    )
                )
    run.tally.hit("WC-PRIV-1")


def _content(client: "redis.Redis", key: bytes) -> Iterable[bytes]:
    """Every byte string that lies under a key, whatever kind it is of."""
    parts: Any
    match client.type(key):
        case b"string":
            parts = [client.get(key) or b""]
        case b"hash":
            parts = [part for pair in client.hgetall(key).items() for part in pair]
        case b"list":
            parts = client.lrange(key, 0, -1)
        case b"set":
            parts = client.smembers(key)
        case b"zset":
            parts = client.zrange(key, 0, -1)
        case _:
            parts = [client.dump(key) or b""]
    return list(parts)


def _expiry(
    run: Run,
    session: Session,
    client: "redis.Redis",
    keys: Iterable[bytes],
    *,
    slack_ms: int,
    rule: str,
) -> None:
    record = session.oracle.record
    assert record is not None
    for key in keys:
        left_ms = client.pttl(key)
        if left_ms == -2:
            continue  # it is gone already
        most_ms = _STATE_TTL_SECONDS * 1000 + slack_ms
        ends_ms: Any = client.pexpiretime(key.decode("latin-1"))
        late = slack_ms == 0 and ends_ms > record.state_expires_at_ms
        if left_ms < 0 or left_ms > most_ms or late:
            session.fail(
                Fault(
                    rules=(rule,),
                    what=f"native expiry of the key {key.decode('utf-8', 'replace')}",
                    expected="one no later than `state_expires_at`"
                    if slack_ms == 0
                    else "one at most 3600 s later than what is left of the record's life",
                    got="none at all" if left_ms < 0 else f"in {left_ms / 1000:.1f} s",
                )
            )
    run.tally.hit(rule)


def _controlled_expiry(run: Run, client: "redis.Redis") -> None:
    """WC-CTL-6: under a frozen clock a record outlives its native time, yet has one."""
    with run.frozen():
        before = set(client.scan_iter(count=1000))
        session, _ = _drive(run)
        new = set(client.scan_iter(count=1000)) - before
        _expiry(run, session, client, new, slack_ms=_SLACK_MS, rule="WC-CTL-6")
        # Far from now by the frozen clock, whatever the store's own clock says of its keys.
        session.send(Status())


CHECKS = (Check(name="store", title="What lies in the store", run=store_checks, needs_store=True),)
