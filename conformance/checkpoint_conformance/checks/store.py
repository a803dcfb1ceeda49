"""Section 10 with the store: nothing raw anywhere in it, no more than a record may have, all gone.

Reads only. Which keys belong to a workflow is found by effect: workflows are made one after the
other, and what appears each time, once for each, under a name of the same shape, is theirs. What
others write to the same store meanwhile is not judged; where it cannot be told apart, the check
says so and judges nothing.

How a record is laid out is the implementation's business: one key or many, text or binary, its own
names for everything. So nothing is said of what is not known. What can be said of any layout:

1. an identifier that was sent lies nowhere, neither plain (WC-PRIV-1) nor in another alphabet,
   nor as a digest that needs no key (WC-PRIV-2);
2. what else a request carried, such as its headers, lies in no record (WC-PRIV-2);
3. a record with all that it can have does not grow by what is refused, replayed or only asked
   (WC-LIMIT-2, WC-PRIV-2), and by what is applied no more than digests and numbers need;
4. its keys expire with it, and are gone afterwards (WC-PRIV-3).
"""

import base64
import hashlib
import re
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import IDENTIFIERS, Session, fresh_fingerprint
from checkpoint_model import (
    Abandon,
    EvidenceType,
    Request,
    Stage,
    Status,
    Transition,
    format_request,
)
from checkpoint_model.vocabulary import CONTRACT_LIMITS

if TYPE_CHECKING:
    import redis

KEYS_MAX: Final = 200_000
"""A store with more keys is not read whole; the check then says that it was not done."""
VALUE_BYTES_MAX: Final = 1 << 20
"""Longer values are nobody's record, and are passed over."""
WORKFLOWS: Final = 5
BRIEF_WORKFLOWS: Final = 2
BRIEF_REQUESTS: Final = 4
"""As few as make a key of each kind: on a slow target a record of 2 s must still be there then."""
BRIEF_CLAIM_SECONDS: Final = 1
BRIEF_SECONDS: Final = 2
STORE_SECONDS_MAX: Final = 5
FULL_RECORDS: Final = 2
"""Filled to the brim. What only one of them showed was somebody else's doing."""
OBSERVATION_BYTES_MAX: Final = 1024
"""By how much a record may grow with each observation: two digests, a few numbers, their names."""
GROWTH_BYTES_MAX: Final = 256
"""What may come and go beside a record, such as a lock; not one digest for each request."""
GONE_SECONDS_MAX: Final = 60
"""After `state_expires_at`, by WC-PRIV-3."""
_POLL_SECONDS: Final = 0.1
_STATE_TTL_SECONDS: Final = 600
_SLACK_MS: Final = 3600 * 1000
_READING_MS: Final = 50
"""How long reading a key's expiry and the time may take apart."""
_BATCH: Final = 500
_IN_BASE64: Final = re.compile(
    rb"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{27}=|[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}=="
    rb"|(?<![A-Za-z0-9+])(?:[A-Za-z0-9+/]{43}|[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{86})(?![A-Za-z0-9+/])"
)
"""Digests of 16, 20, 32 and 64 bytes, and of 32, 48 and 64 that are not filled up.

By their lengths, as the alphabet has a slash, which parts the words of other names.
"""
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
    """Drive workflows, look at what lies in the store, and wait until some of it is gone."""
    _look_into_the_store(run, waits=True)


def what_lies_there(run: Run) -> None:
    """The same but for the wait: whatever lies there while its record lives."""
    _look_into_the_store(run, waits=False)


def _look_into_the_store(run: Run, *, waits: bool) -> None:
    import redis

    assert run.target.store_url is not None
    try:
        with open_store(run.target.store_url) as client, run.guarded():
            if client.dbsize() > KEYS_MAX:
                run.tally.leave_out(f"the store has more than {KEYS_MAX} keys and was not read")
                return
            _look(run, client, waits=waits)
    except (redis.RedisError, StoreAddressError) as error:
        run.tally.leave_out(f"the store could not be read: {type(error).__name__}: {error}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """A workflow, what was sent for it, and what appeared in the store meanwhile."""

    session: Session
    requests: Sequence[Request]
    mark: str
    """What the headers of one of its requests said."""
    new: Collection[bytes]

    def own(self, shapes: Collection[bytes]) -> list[bytes]:
        """The keys that are its own: those of the shapes that every workflow brings."""
        return [key for key in self.new if _shape(key) in shapes]

    def identifiers(self) -> Iterator[tuple[str, str]]:
        """Each identifier that was sent, with the name of its member."""
        for request in self.requests:
            body: dict[str, Any] = format_request(self.session.identity, request)
            for name in IDENTIFIERS:
                if name in body:
                    yield name, body[name]


def _look(run: Run, client: "redis.Redis", *, waits: bool) -> None:
    # First, so that their lives are over when all else is done.
    brief = _make(run, client, BRIEF_WORKFLOWS, BRIEF_REQUESTS, BRIEF_CLAIM_SECONDS, BRIEF_SECONDS)
    made = _make(run, client)
    _nothing_raw(run, made, client)
    shapes = _own_shapes(made)
    if shapes is None:
        run.tally.leave_out(
            "what a workflow leaves in the store could not be told from what others write there"
            if any(one.new for one in made)
            else "no key appeared in the store while workflows were made: "
            "is --store the one behind the server?"
        )
        return
    with run.guarded():
        for one in made:
            _keyed(one, client, shapes)
        _full_records(run, client, shapes)
    for one in made:
        _expiry(one, client, shapes, slack_ms=0, rule="WC-PRIV-3")
    for one in brief if waits else ():
        _gone(run, one, client, shapes)
    if run.controls is not None:
        with run.frozen():
            for one in _make(run, client):
                _expiry(one, client, shapes, slack_ms=_SLACK_MS, rule="WC-CTL-6")
                run.tally.hit("WC-CTL-6")


def _make(
    run: Run,
    client: "redis.Redis",
    workflows: int = WORKFLOWS,
    requests_max: int | None = None,
    claim_ttl_seconds: int = 60,
    state_ttl_seconds: int = _STATE_TTL_SECONDS,
) -> list[_Made]:
    """Workflows, each with the keys that appeared while it was driven."""
    made = []
    before = _keys(client)
    for _ in range(workflows):
        session, mark = run.session(), secrets.token_hex(16)
        requests = _requests(Cast(), claim_ttl_seconds, state_ttl_seconds)[:requests_max]
        marked = [("idempotency-key", f"key-{mark}"), ("x-request-id", f"request-{mark}")]
        session.send(requests[0], headers=marked)
        for request in requests[1:]:
            session.send(request)
        after = _keys(client)
        new = after - before
        made.append(_Made(session=session, requests=requests, mark=mark, new=new))
        before = after
    return made


def _keys(client: "redis.Redis") -> set[bytes]:
    found: Iterable[Any] = client.scan_iter(count=1000)
    return set(found)


def _requests(cast: Cast, claim_ttl_seconds: int, state_ttl_seconds: int) -> list[Request]:
    """Every kind of identifier, and nearly every kind of answer.

    What is kept of any of these appears for each workflow alike, and is known from then on.
    """
    claim = cast.claim(
        cast.ann, claim_ttl_seconds=claim_ttl_seconds, state_ttl_seconds=state_ttl_seconds
    )
    fingerprint = fresh_fingerprint()
    uncertain = cast.move(cast.ann, 1, Stage.UNCERTAIN)
    verified = cast.move(
        cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ, fingerprint=fingerprint
    )
    key = uncertain.observation_key
    return [
        claim,
        claim,
        cast.claim(cast.bob),
        uncertain,
        uncertain,
        cast.move(cast.bob, 1, Stage.UNCERTAIN, key=key),
        cast.move(cast.bob, 1, Stage.UNCERTAIN),
        Abandon(holder=cast.bob, generation=1),
        verified,
        Status(holder=cast.bob),
    ]


def _raw_texts(one: _Made) -> Iterator[bytes]:
    """The raw identifiers of a workflow, whole and without their prefixes."""
    for _, text in one.identifiers():
        yield text.encode()
        # A store that cuts the prefix off has the identifier all the same.
        yield _without_prefix(text).encode()


def _without_prefix(text: str) -> str:
    return text.split("_", 1)[-1].split(":", 1)[-1]


def _shape(key: bytes) -> bytes:
    return _VARIABLE.sub(b"*", _IN_BASE64.sub(b"*", key))


def _own_shapes(made: Iterable[_Made]) -> Collection[bytes] | None:
    """The shapes of which every workflow brought equally many keys; None where that is no shape."""
    counts = [Counter(map(_shape, one.new)) for one in made]
    shapes = {shape for shape in counts[0] if len({count[shape] for count in counts}) == 1}
    return shapes or None


def _nothing_raw(run: Run, made: Sequence[_Made], client: "redis.Redis") -> None:
    """All of the store, what was there before as well: a log that is appended to is no new key."""
    keys = sorted(_keys(client))
    raw = {text for one in made for text in _raw_texts(one)}
    longest_first = sorted(raw, key=len, reverse=True)
    for start in range(0, len(keys), _BATCH):
        batch = keys[start : start + _BATCH]
        for key, content in zip(batch, _contents(client, batch), strict=True):
            stored = b"\0".join((key, *content))
            found = next((text for text in longest_first if text in stored), None)
            if found is not None:
                made[-1].session.fail(
                    Fault(
                        rules=("WC-PRIV-1",),
                        what="a raw identifier lies in the store",
                        expected="keyed digests alone",
                        got=f"{found.decode()} under {_name(key)}",
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


def _name(key: bytes) -> str:
    return key.decode("utf-8", "replace")


# -- what a record consists of ------------------------------------------------------------

_DIGESTS: Final = ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b", "blake2s")
_SEPARATORS: Final = ("", ":", "/", "|", "\0", "\n", " ", ".", "#", "-", "_", ",")
_DIGEST_BYTES_MIN: Final = 8
"""So much of a digest tells it: one that was cut off is found as well, and none by chance."""


def _keyed(one: _Made, client: "redis.Redis", shapes: Collection[bytes]) -> None:
    """WC-PRIV-2: no identifier in another alphabet or under no key, and nothing of the headers."""
    own = one.own(shapes)
    stored = b"\0".join((*own, *(part for parts in _contents(client, own) for part in parts)))
    for what, needle in _never_stored(one):
        if needle in stored:
            one.session.fail(
                Fault(
                    rules=("WC-PRIV-2",),
                    what="what lies in the store for a record",
                    expected="of what a caller sent keyed digests alone",
                    got=what,
                )
            )


def _never_stored(one: _Made) -> Iterator[tuple[str, bytes]]:
    """What could lie in the store of a request, and is no keyed digest."""
    yield "the value of a header", one.mark.encode()
    known = dict.fromkeys(one.identifiers())
    for name, text in known:
        for variant in (text.encode(), _without_prefix(text).encode()):
            yield f"the `{name}` in hexadecimal digits", variant.hex().encode()
            yield f"the `{name}` in hexadecimal digits", variant.hex().upper().encode()
            for encoded in _base64(variant):
                yield f"the `{name}` in base64", encoded
        if name == "evidence_fingerprint":
            yield f"the `{name}` in bytes", bytes.fromhex(_without_prefix(text))
    texts = {text: f"the `{name}`" for name, text in known}
    texts |= {_without_prefix(text): what for text, what in texts.items()}
    identity = one.session.identity
    for separator in _SEPARATORS:
        texts[f"{identity.namespace}{separator}{identity.workflow_key}"] = "the workflow identity"
    for text, what in texts.items():
        for algorithm in _DIGESTS:
            digest = hashlib.new(algorithm, text.encode(), usedforsecurity=False).digest()
            told = f"{what} as a {algorithm} digest without a key"
            cut = digest[:_DIGEST_BYTES_MIN]
            yield told, cut
            yield told, cut.hex().encode()
            yield told, cut.hex().upper().encode()
            # Eleven characters of base64 hold eight bytes, the last of them in part.
            yield told, base64.b64encode(digest)[:10]
            yield told, base64.urlsafe_b64encode(digest)[:10]


def _base64(text: bytes) -> Iterator[bytes]:
    """How a text looks inside base64, wherever it begins: the characters that it alone decides."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + text)
        yield encoded[(0, 2, 3)[before] : (before + len(text)) * 8 // 6]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Filled:
    """A record with all that it can have, weighed now and then."""

    session: Session
    weights: Sequence[Mapping[bytes, tuple[int, int]]]
    """By the shape of a key's name, how many keys there were, and how many bytes."""


_BEGUN, _NEARLY_FULL, _AFTER_REFUSALS, _FULL, _AFTER_REPLAYS, _AFTER_QUESTIONS = range(6)
"""When a record is weighed."""


def _full_records(run: Run, client: "redis.Redis", shapes: Collection[bytes]) -> None:
    """WC-LIMIT-2 and WC-PRIV-2: neither what is refused nor what is only asked leaves anything.

    Raises:
        ViolationError: each of the records shows the same fault.
    """
    filled = [_fill(run, client) for _ in range(FULL_RECORDS)]

    def weight(record: _Filled, moment: int) -> int:
        return sum(size for shape, (_, size) in record.weights[moment].items() if shape in shapes)

    def grew(since: int, until: int) -> int:
        """The least of the records: others may be writing too."""
        return min(weight(record, until) - weight(record, since) for record in filled)

    session = filled[-1].session

    def bounded(what: str, since: int, until: int, most: int, rules: tuple[str, ...]) -> None:
        grown = grew(since, until)
        if grown > most:
            session.fail(
                Fault(
                    rules=rules,
                    what=f"what lies in the store for a record, {what}",
                    expected=f"at most {most} bytes more",
                    got=f"{grown} bytes more",
                )
            )

    kept = ("WC-LIMIT-2", "WC-PRIV-2")
    for since, until in ((_BEGUN, _NEARLY_FULL), (_AFTER_REFUSALS, _FULL)):
        applied = CONTRACT_LIMITS.observations - 1 if until == _NEARLY_FULL else 1
        most = applied * OBSERVATION_BYTES_MAX + GROWTH_BYTES_MAX
        what = f"after {applied} more of its observations"
        bounded(what, since, until, most, ("WC-PRIV-2",))
    bounded(
        "after transitions that were refused, each under an observation key of its own",
        *(_NEARLY_FULL, _AFTER_REFUSALS, GROWTH_BYTES_MAX, kept),
    )
    bounded(
        f"after all {CONTRACT_LIMITS.observations} observations were replayed and contradicted",
        *(_FULL, _AFTER_REPLAYS, GROWTH_BYTES_MAX, kept),
    )
    bounded(
        "after claims and abandons that were refused, and after statuses",
        *(_AFTER_REPLAYS, _AFTER_QUESTIONS, GROWTH_BYTES_MAX, ("WC-PRIV-2",)),
    )
    for _ in filled:
        run.tally.hit(*kept)


def _fill(run: Run, client: "redis.Redis") -> _Filled:
    """Sixteen generations, each moved twice, so that 32 observations are remembered."""
    cast, session = Cast(), run.session()
    before = _keys(client)
    weights = []

    def weigh() -> None:
        weights.append(_weights(client, _keys(client) - before))

    claim = cast.claim(
        cast.ann, retry=True, claim_ttl_seconds=300, state_ttl_seconds=_STATE_TTL_SECONDS
    )
    applied: list[Transition] = []

    def apply(generation: int, to_stage: Stage, evidence: EvidenceType | None = None) -> None:
        move = cast.move(cast.ann, generation, to_stage, evidence)
        session.send(move)
        applied.append(move)

    absent = EvidenceType.EXTERNAL_ABSENCE
    session.send(claim)
    weigh()
    for generation in range(1, CONTRACT_LIMITS.generations + 1):
        if generation > 1:
            session.send(claim)
        apply(generation, Stage.UNCERTAIN)
        if generation < CONTRACT_LIMITS.generations:
            apply(generation, Stage.FAILED, absent)
    weigh()
    last = CONTRACT_LIMITS.generations
    for generation in range(1, last):
        session.send(cast.move(cast.ann, generation, Stage.UNCERTAIN))  # stale
        session.send(cast.move(cast.bob, generation, Stage.FAILED, absent))
        session.send(cast.move(cast.bob, last, Stage.FAILED, absent))  # not held
        session.send(cast.move(cast.ann, last, Stage.UNCERTAIN))  # not in the graph
    weigh()
    apply(last, Stage.FAILED, absent)
    weigh()
    assert len(applied) == CONTRACT_LIMITS.observations
    for move in applied:
        session.send(move)
        session.send(
            cast.move(cast.bob, move.generation, Stage.UNCERTAIN, key=move.observation_key)
        )
    weigh()
    for _ in range(CONTRACT_LIMITS.generations):
        questions: list[Request] = [
            Status(holder=cast.bob),
            claim,
            cast.claim(cast.cy),
            Abandon(holder=cast.ann, generation=last),
        ]
        for request in questions:
            session.send(request)
    weigh()
    return _Filled(session=session, weights=weights)


def _weights(client: "redis.Redis", keys: Collection[bytes]) -> dict[bytes, tuple[int, int]]:
    weights: dict[bytes, tuple[int, int]] = {}
    listed = list(keys)
    for key, content in zip(listed, _contents(client, listed), strict=True):
        number, size = weights.get(_shape(key), (0, 0))
        weights[_shape(key)] = number + 1, size + len(key) + sum(map(len, content))
    return weights


# -- when it is over ----------------------------------------------------------------------


def _expiry(
    one: _Made,
    client: "redis.Redis",
    shapes: Collection[bytes],
    *,
    slack_ms: int,
    rule: str,
) -> None:
    record = one.session.oracle.record
    assert record is not None
    for key in one.own(shapes):
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
            one.session.fail(
                Fault(
                    rules=(rule,),
                    what=f"native expiry of the key {_name(key)}",
                    expected="one no later than `state_expires_at`"
                    if slack_ms == 0
                    else "one at most 3600 s later than what is left of the record's life",
                    got="none at all" if left_ms < 0 else f"in {left_ms / 1000:.1f} s",
                )
            )


def _gone(run: Run, one: _Made, client: "redis.Redis", shapes: Collection[bytes]) -> None:
    """WC-PRIV-3: nothing is left of a record that expired, whatever is asked about it then.

    Raises:
        ViolationError: a key of it is still there a minute later.
    """
    session, own = one.session, one.own(shapes)
    record = session.oracle.record
    assert record is not None
    if not own:
        run.tally.leave_out("the target is slow: a record of 2 s was gone before it was looked at")
        return
    waited_until = time.monotonic() + BRIEF_SECONDS + STORE_SECONDS_MAX
    while _store_ms(client) <= record.state_expires_at_ms:
        if time.monotonic() > waited_until:
            run.tally.leave_out("the store's clock is not the one that the target goes by")
            return
        time.sleep(_POLL_SECONDS)
    transitions: list[Request] = [
        request for request in one.requests if isinstance(request, Transition)
    ]
    cast = Cast()
    late = [*transitions, Status(holder=cast.ann), Abandon(holder=cast.ann, generation=1)]
    for request in late:
        session.send(request)
    ends_ms = record.state_expires_at_ms + GONE_SECONDS_MAX * 1000
    while left := [key for key in own if client.exists(key)]:
        if _store_ms(client) > ends_ms:
            session.fail(
                Fault(
                    rules=("WC-PRIV-3",),
                    what=f"the key {_name(left[0])}, {GONE_SECONDS_MAX} s after `state_expires_at`",
                    expected="it is gone from the store",
                    got="it is still there",
                )
            )
        time.sleep(_POLL_SECONDS)
    run.tally.hit("WC-PRIV-3")


def _store_ms(client: "redis.Redis") -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


CHECKS = (
    Check(
        name="store",
        title="What lies in the store",
        run=store_checks,
        needs_store=True,
        alone=True,
        seconds=2,
        waits=True,
    ),
)
