"""Section 10 with the store: nothing raw anywhere in it, and everything expires.

Reads only. Which keys belong to a workflow is found by effect: workflows are made one after the
other, and what appears each time, once for each, under a name of the same shape, is theirs. What
others write to the same store meanwhile is not judged; where it cannot be told apart, the check
says so and judges nothing.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import IDENTIFIERS, Session, fresh_key
from checkpoint_model import EvidenceType, Request, Stage, Status, format_request

if TYPE_CHECKING:
    import redis

KEYS_MAX: Final = 200_000
"""A store with more keys is not read whole; the check then says that it was not done."""
VALUE_BYTES_MAX: Final = 1 << 20
"""Longer values are nobody's record, and are passed over."""
WORKFLOWS: Final = 3
STORE_SECONDS_MAX: Final = 5
_STATE_TTL_SECONDS: Final = 600
_SLACK_MS: Final = 3600 * 1000
_READING_MS: Final = 50
"""How long reading a key's expiry and the time may take apart."""
_BATCH: Final = 500
_VARIABLE: Final = re.compile(rb"[A-Za-z0-9_-]{16,}|[0-9]+")
"""The part of a key's name that differs from record to record: a digest, or a number."""


class StoreAddressError(Exception):
    """The store's URL is wrong, or nothing answers there; the message says which."""


def open_store(url: str) -> "redis.Redis":
    """A client of the store that answers and may be read.

    Raises:
        StoreAddressError: the URL is wrong, nothing answers there, or it may not be read.
    """
    import redis

    shown = url.rpartition("@")[2]
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=STORE_SECONDS_MAX, socket_connect_timeout=STORE_SECONDS_MAX
        )
        client.dbsize()
        client.scan(count=1)
        client.pttl("workflow-checkpoint")
        client.type("workflow-checkpoint")
        client.time()
    except ValueError as error:
        raise StoreAddressError(
            f"{url!r} is no store's URL ({error}); one looks like redis://127.0.0.1:6379/0"
        ) from None
    except redis.ResponseError as error:
        raise StoreAddressError(f"the store at {shown} may not be read: {error}") from None
    except redis.RedisError as error:
        raise StoreAddressError(f"no store answers at {shown} ({type(error).__name__})") from None
    return client


def store_checks(run: Run) -> None:
    """Drive workflows, then look at what lies in the store."""
    import redis

    assert run.target.store_url is not None
    try:
        with open_store(run.target.store_url) as client, run.guarded():
            if client.dbsize() > KEYS_MAX:
                run.tally.leave_out(f"the store has more than {KEYS_MAX} keys and was not read")
                return
            _look(run, client)
    except (redis.RedisError, StoreAddressError) as error:
        run.tally.leave_out(f"the store could not be read: {type(error).__name__}: {error}")


def _look(run: Run, client: "redis.Redis") -> None:
    made = _make(run, client)
    raw = {text for session, _ in made for text in _raw_texts(session)}
    _nothing_raw(run, made[-1][0], client, raw)
    shapes = _own_shapes([new for _, new in made])
    if shapes is None:
        run.tally.leave_out(
            "what a workflow leaves in the store could not be told from what others write there"
            if any(new for _, new in made)
            else "no key appeared in the store while workflows were made: "
            "is --store the one behind the server?"
        )
        return
    for session, new in made:
        own = [key for key in new if _shape(key) in shapes]
        _expiry(run, session, client, own, slack_ms=0, rule="WC-PRIV-3")
    if run.controls is not None:
        with run.frozen():
            for session, new in _make(run, client):
                own = [key for key in new if _shape(key) in shapes]
                _expiry(run, session, client, own, slack_ms=_SLACK_MS, rule="WC-CTL-6")


def _make(run: Run, client: "redis.Redis") -> list[tuple[Session, set[bytes]]]:
    """Workflows, each with the keys that appeared while it was driven."""
    made = []
    before = _keys(client)
    for _ in range(WORKFLOWS):
        session = _drive(run)
        after = _keys(client)
        made.append((session, after - before))
        before = after
    return made


def _keys(client: "redis.Redis") -> set[bytes]:
    found: Iterable[Any] = client.scan_iter(count=1000)
    return set(found)


def _drive(run: Run) -> Session:
    """A workflow with every kind of identifier."""
    cast, session = Cast(), run.session()
    claim = cast.claim(cast.ann, claim_ttl_seconds=60, state_ttl_seconds=_STATE_TTL_SECONDS)
    fingerprint = "sha256:" + fresh_key("f")[2:] * 2
    verified = cast.move(
        cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=fingerprint
    )
    requests: list[Request] = [
        claim,
        cast.move(cast.ann, 1, Stage.UNCERTAIN),
        verified,
        Status(holder=cast.bob),
    ]
    for request in requests:
        session.send(request)
    return session


def _raw_texts(session: Session) -> Iterator[bytes]:
    """The raw identifiers of a session, whole and without their prefixes."""
    for move in session.moves or ():
        if isinstance(move, int):
            continue
        body: dict[str, Any] = format_request(session.identity, move)
        for name in IDENTIFIERS:
            if name in body:
                text: str = body[name]
                yield text.encode()
                # A store that cuts the prefix off has the identifier all the same.
                yield text.split("_", 1)[-1].split(":", 1)[-1].encode()


def _shape(key: bytes) -> bytes:
    return _VARIABLE.sub(b"*", key)


def _own_shapes(news: list[set[bytes]]) -> Collection[bytes] | None:
    """The shapes of which every workflow brought equally many keys; None where that is no shape."""
    counts = [Counter(map(_shape, new)) for new in news]
    shapes = {shape for shape in counts[0] if len({count[shape] for count in counts}) == 1}
    return shapes or None


def _nothing_raw(run: Run, session: Session, client: "redis.Redis", raw: Collection[bytes]) -> None:
    """All of the store, what was there before as well: a log that is appended to is no new key."""
    any_of_them = re.compile(b"|".join(map(re.escape, sorted(raw, key=len, reverse=True))))
    keys = sorted(_keys(client))
    for start in range(0, len(keys), _BATCH):
        batch = keys[start : start + _BATCH]
        for key, content in zip(batch, _contents(client, batch), strict=True):
            found = next(filter(None, map(any_of_them.search, (key, *content))), None)
            if found is not None:
                session.fail(
                    Fault(
                        rules=("WC-PRIV-1",),
                        what="a raw identifier lies in the store",
                        expected="keyed digests alone",
                        got=f"{found[0].decode()} under {key.decode('utf-8', 'replace')}",
                    )
                )
    run.tally.hit("WC-PRIV-1")


_READERS: Final = {
    b"string": ("GET", ()),
    b"hash": ("HGETALL", ()),
    b"list": ("LRANGE", (0, -1)),
    b"set": ("SMEMBERS", ()),
    b"zset": ("ZRANGE", (0, -1)),
    b"stream": ("XRANGE", ("-", "+")),
}


def _contents(client: "redis.Redis", keys: list[bytes]) -> list[list[bytes]]:
    """Every byte string that lies under each key, whatever kind it is of."""
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.type(key)
        kinds = pipeline.execute()
        for key, kind in zip(keys, kinds, strict=True):
            command, arguments = _READERS.get(kind, ("DUMP", ()))
            pipeline.execute_command(command, key, *arguments)  # type: ignore[no-untyped-call]
        return [list(_byte_strings(value)) for value in pipeline.execute(raise_on_error=False)]


def _byte_strings(value: object) -> Iterator[bytes]:
    if isinstance(value, bytes):
        if len(value) <= VALUE_BYTES_MAX:
            yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _byte_strings(pair)
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from _byte_strings(part)


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
        with client.pipeline(transaction=False) as pipeline:
            pipeline.time()
            pipeline.pttl(key)
            (seconds, microseconds), left_ms = pipeline.execute()
        if left_ms == -2:
            continue  # it is gone already
        ends_ms = int(seconds) * 1000 + int(microseconds) // 1000 + left_ms
        if slack_ms:
            late = left_ms > _STATE_TTL_SECONDS * 1000 + slack_ms
        else:
            late = ends_ms > record.state_expires_at_ms + _READING_MS
        if left_ms < 0 or late:
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


CHECKS = (Check(name="store", title="What lies in the store", run=store_checks, needs_store=True),)
