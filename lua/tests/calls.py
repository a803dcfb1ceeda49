"""Single calls of the scripts, few and unlike each other, each with all that it may do.

Where the differential goes through every step of a world, this is what tells one fault from none
in milliseconds: of all those steps one of each kind, under a clock that stands still; the same
under every kind of clock, and with the native expiry that each leaves; and the calls that a script
must refuse. Whatever single fault the scripts may have, some call here shows it, or
``listed_mutants.yaml`` says why none can.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

import redis
from differential import arguments_of, moved_up, reply_of, request_moved_up
from hiredis import pack_command
from scripted import as_stored, digest

from checkpoint_lua import ACTIONS, record_key
from checkpoint_model import (
    CONTRACT_LIMITS,
    Abandon,
    Claim,
    Record,
    Request,
    Status,
    Step,
    Transition,
    step,
)
from checkpoint_model.exploration import NOW_MS, explore
from checkpoint_model.vocabulary import EvidenceType, Stage
from checkpoint_model.worlds import WORLDS

if TYPE_CHECKING:
    from redis.connection import Connection

STEPS: Final = "steps"
"""One step of each kind, under a clock that stands still."""
CLOCKS: Final = "clocks"
"""Steps under the store's own clock, and under one that is shifted or goes back."""
MISUSE: Final = "misuse"
"""Calls that the server never makes, so that nobody sees from outside what comes of them."""
PARTS: Final = (CLOCKS, STEPS, MISUSE)
WORLDS_OF_STEPS: Final = ("cells", "configurations")
SLACK_MS: Final = 3600 * 1000
"""WC-CTL-6."""
KEY: Final = record_key(digest("calls"))
_SHA1: Final = "?" * 40
"""Stands where the digest of the script will."""
_NO_KEY, _NO_EXPIRY = -2, -1
"""What PEXPIRETIME says."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Call:
    """One call of a script, what lies in the store before it, and what it must do."""

    part: str
    action: str
    arguments: tuple[str, ...]
    """The clock first."""
    record: Record | None = None
    """What lies there, expired or not."""
    expires_ms: int | None = None
    """Native expiry of what lies there."""
    request: Request | None = None
    """None where the call is to be refused."""
    refused: str = ""
    """Of what the error speaks, where it is."""
    keys: tuple[str, ...] = (KEY,)

    def commands(self) -> Iterator[tuple[str | int, ...]]:
        """Put there what lies there, read the clock on both sides of the call, look."""
        yield "DEL", KEY
        if self.record is not None:
            stored = as_stored(self.record)
            yield "HSET", KEY, *(text for field in stored.items() for text in field)
            if self.expires_ms is not None:
                yield "PEXPIREAT", KEY, self.expires_ms
        yield ("TIME",)
        yield "EVALSHA", _SHA1, len(self.keys), *self.keys, *self.arguments
        yield ("TIME",)
        yield "HGETALL", KEY
        yield "PEXPIRETIME", KEY

    def __str__(self) -> str:
        """The call, for people."""
        return f"{self.part}: {self.action} {self.arguments} on {self.record}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a call did."""

    before_ms: int
    """The store's clock before the call."""
    reply: object
    after_ms: int
    stored: Mapping[str, str]
    expires_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A call that did something else than it must."""

    call: Call
    what: str
    """``reply``, ``error``, ``stored`` or ``expiry``."""
    expected: object
    got: object

    def __str__(self) -> str:
        """The call with both, for people."""
        return f"{self.call}\n  {self.what}: expected {self.expected}\n  got {self.got}"


def judge(call: Call, seen: Seen) -> Difference | None:
    """What is wrong with what a call did; None where nothing is."""

    def difference(what: str, expected: object, got: object) -> Difference:
        return Difference(call=call, what=what, expected=expected, got=got)

    if call.request is None:
        expected = f"malformed call: {call.refused}"
        if not isinstance(seen.reply, redis.ResponseError) or str(seen.reply) != expected:
            return difference("reply", expected, seen.reply)
        if seen.stored != as_stored(call.record):
            return difference("stored", as_stored(call.record), seen.stored)
        return None
    if isinstance(seen.reply, Exception):
        return difference("error", "a reply", seen.reply)
    earliest_ms, latest_ms = _at(call.arguments[0], seen.before_ms, seen.after_ms)
    if earliest_ms == latest_ms:
        done, wanted, stored = _known(call, earliest_ms)
    else:
        # The only thing that is not known beforehand: when, between the two readings, it was.
        now_ms = min(max(_told_ms(seen.reply), earliest_ms), latest_ms)
        done, wanted, stored = _expected(call, now_ms)
    if seen.reply != wanted:
        return difference("reply", wanted, seen.reply)
    if seen.stored != stored:
        return difference("stored", stored, seen.stored)
    least, most = _expiry(call, done, seen)
    if not least <= seen.expires_ms <= most:
        return difference("expiry", (least, most), seen.expires_ms)
    return None


def _expected(call: Call, now_ms: int) -> tuple[Step, list[str], dict[str, str]]:
    """The model's step, and what the script must reply and leave there."""
    assert call.request is not None
    done = step(call.record, call.request, now_ms)
    # Where the record has expired, what lies there lies there unchanged.
    return done, reply_of(done), as_stored(done.record or call.record)


_known = cache(_expected)
"""For clocks that stand still: the same for whichever script."""


def _told_ms(reply: object) -> int:
    try:
        return int(reply[1])  # type: ignore[index]
    except (TypeError, ValueError, IndexError, KeyError):
        return 0


def _at(clock: str, before_ms: int, after_ms: int) -> tuple[int, int]:
    """Between which times a step is, by what its clock says."""
    kind, _, text = clock.partition(":")
    if kind == "at":
        return int(text), int(text)
    shift_ms = int(text or 0)
    return before_ms + shift_ms, after_ms + shift_ms


def _expiry(call: Call, done: Step, seen: Seen) -> tuple[int, int]:
    """Between which times native expiry must be afterwards (WC-PRIV-3, WC-CTL-6)."""
    record, controlled = done.record, call.arguments[0] != ""
    written = record is not None and record is not call.record
    if record is not None and written and controlled:
        left_ms = record.state_expires_at_ms - done.observed_at_ms + SLACK_MS
        return seen.before_ms + left_ms, seen.after_ms + left_ms
    if record is not None and done.rule == "WC-CLAIM-1":
        return record.state_expires_at_ms, record.state_expires_at_ms
    untouched = _NO_KEY if call.record is None else call.expires_ms or _NO_EXPIRY
    return untouched, untouched


# -- which calls --------------------------------------------------------------------------


FIRST: Final = 120
"""How many of the calls that a server makes come before those of misuse."""
BATCH_FIRST, BATCH_GROWTH = 20, 3
"""How many calls are sent at once, and by what that grows: most faults show in the first few."""
KEEN_MAX: Final = 30
"""How many calls that have told a fault are tried first on the next."""


def all_calls(base_ms: int) -> dict[str, list[Call]]:
    """Every call of every part, by action, in an order in which most faults show soon.

    Args:
        base_ms: the store's clock about now, for records that are alive under it.
    """
    made = [*_clocks(base_ms), *_steps()]
    random.Random(FIRST).shuffle(made)  # neighbours are alike, and what one misses others do
    misuse = list(_misuse())
    by_action = {}
    for action in ACTIONS:
        of = [call for call in made if call.action == action]
        wrong = [call for call in misuse if call.action == action]
        by_action[action] = [*of[:FIRST], *wrong, *of[FIRST:]]
    return by_action


def _steps() -> Iterator[Call]:
    """Of all steps of some worlds one of each kind."""
    kinds: set[object] = set()
    for name in WORLDS_OF_STEPS:
        world = WORLDS[name]
        up = CONTRACT_LIMITS.generations - world.limits.generations
        for state in explore(world).space.states:
            record = moved_up(state, up)
            for sent in world.sent(state):
                request = request_moved_up(sent.request, up)
                if sent.clock_back_ms:
                    continue
                kind = _kind(record, request)
                if kind not in kinds:
                    kinds.add(kind)
                    yield _call(STEPS, record, request, f"at:{NOW_MS}")


def _kind(record: Record | None, request: Request) -> object:
    """What two steps have in common that no fault is likely to tell apart."""
    decided = step(record, request, NOW_MS).rule
    if record is None:
        return request.action, decided
    asked: tuple[object, ...] = ()
    if decided in ("WC-TRANS-7", "WC-TRANS-8"):
        assert isinstance(request, Transition)
        asked = (request.to_stage, request.evidence_type)
    if isinstance(request, Transition | Abandon):
        asked = (*asked, request.generation - record.generation)
    if isinstance(request, Claim):
        asked = (
            request.claim_ttl_seconds == record.claim_ttl_seconds,
            request.state_ttl_seconds == record.state_ttl_seconds,
            request.retry_failed == record.retry_failed,
        )
    return (
        request.action,
        decided,
        asked,
        request.holder == record.holder,
        record.stage,
        record.retry_failed,
        record.abandoned,
        record.generation == CONTRACT_LIMITS.generations,
        max(-1, min(1, record.claim_expires_at_ms - NOW_MS)),
        max(-1, min(1, record.state_expires_at_ms - NOW_MS)),
    )


CLAIM: Final = Claim(holder="ann", claim_ttl_seconds=900, state_ttl_seconds=3600, retry_failed=True)
SHORTEST: Final = replace(CLAIM, claim_ttl_seconds=1, state_ttl_seconds=2, retry_failed=False)
DOUBT: Final = Transition(
    holder="ann", generation=1, to_stage=Stage.UNCERTAIN, observation_key="one"
)
FAILURE: Final = replace(
    DOUBT,
    to_stage=Stage.FAILED,
    observation_key="two",
    evidence_type=EvidenceType.EXTERNAL_ABSENCE,
    evidence_fingerprint="sha256:" + "a" * 64,
)
SUCCESS: Final = replace(
    FAILURE,
    to_stage=Stage.CALLER_VERIFIED,
    observation_key="three",
    evidence_type=EvidenceType.EXTERNAL_READ,
    evidence_fingerprint=None,
)
ABANDON: Final = Abandon(holder="ann", generation=1)
REQUESTS: Final = (
    CLAIM,
    replace(CLAIM, holder="bob"),
    replace(CLAIM, claim_ttl_seconds=899),
    SHORTEST,
    DOUBT,
    FAILURE,
    SUCCESS,
    replace(DOUBT, generation=16),
    replace(DOUBT, holder="bob"),
    ABANDON,
    replace(ABANDON, generation=16),
    Status(),
)
HISTORIES: Final[Mapping[str, tuple[Request, ...]]] = {
    "nothing": (),
    "claimed": (CLAIM,),
    "uncertain": (CLAIM, DOUBT),
    "abandoned": (CLAIM, ABANDON),
    "failed": (CLAIM, FAILURE),
    "failed for good": (replace(CLAIM, retry_failed=False), FAILURE),
    "verified": (CLAIM, DOUBT, SUCCESS),
    "second generation": (CLAIM, DOUBT, ABANDON, replace(CLAIM, holder="bob")),
    "briefly claimed": (SHORTEST,),
}
"""What led to the records that lie there under the store's own clock."""
LATE: Final = "at:123456789012345"
"""A time of 15 digits, of which Lua by itself would write 14."""
AGES_MS: Final = (1_500, 890_000, 1_000_000, 4_000_000)
"""How long ago the last of it was: lately, with some of the claim left, lapsed, expired."""


def _clocks(base_ms: int) -> Iterator[Call]:
    for requests in HISTORIES.values():
        for age_ms in AGES_MS:
            record: Record | None = None
            for request in requests:
                record = step(record, request, base_ms - age_ms).record
            for clock in _clocks_of(base_ms, age_ms):
                for request in REQUESTS:
                    call = _call(CLOCKS, record, request, clock)
                    if record is not None:
                        call = replace(call, expires_ms=_natively(record, clock, base_ms))
                    yield call
            if record is None:
                break


def _clocks_of(base_ms: int, age_ms: int) -> tuple[str, ...]:
    """The store's own, shifted either way, and standing still before the last change and late."""
    return "", "shift:7000", f"shift:-{age_ms + 500}", f"at:{base_ms - age_ms - 1}", LATE


def _natively(record: Record, clock: str, base_ms: int) -> int | None:
    """The native expiry with which a record lies there; none where it would be gone."""
    ends_ms = record.state_expires_at_ms + (SLACK_MS if clock else 0)
    return ends_ms if ends_ms > base_ms + SLACK_MS // 2 else None


def _call(part: str, record: Record | None, request: Request, clock: str) -> Call:
    return Call(
        part=part,
        action=request.action,
        arguments=(clock, *map(str, arguments_of(request))),
        record=record,
        request=request,
    )


GOOD: Final = digest("x")
NUMBERS: Final = ("", "x", "1.5", "nan", "-1", "0")
DIGESTS: Final = ("", GOOD[:-1], GOOD + "x", GOOD[:-1] + ".", "h_raw_identifier")
FLAGS: Final = ("", "2", "true", "00")
RIGHT: Final[Mapping[str, tuple[str, ...]]] = {
    "claim": ("", GOOD, "60", "600", "0"),
    "transition": ("", GOOD, "1", "uncertain", GOOD, GOOD, "", "0"),
    "abandon": ("", GOOD, "1"),
    "status": ("",),
}
REFUSED: Final[Mapping[str, Mapping[int, tuple[str, tuple[str, ...]]]]] = {
    "claim": {
        1: ("holder", DIGESTS),
        2: ("claim_ttl_seconds", (*NUMBERS, "901")),
        3: ("state_ttl_seconds", (*NUMBERS, "3601")),
        4: ("retry_failed", FLAGS),
    },
    "transition": {
        1: ("holder", DIGESTS),
        2: ("generation", (*NUMBERS, "17")),
        4: ("observation", DIGESTS),
        5: ("body", DIGESTS),
        7: ("fingerprint_present", FLAGS),
    },
    "abandon": {1: ("holder", DIGESTS), 2: ("generation", (*NUMBERS, "17"))},
    "status": {},
}
"""Of each action and argument: what the error speaks of, and what is refused."""
CLOCKS_REFUSED: Final = ("at:", "at:1.5", "shift:x", "now:1", " ", "at:1 ", "1:1", "at:1:2")
TAKES: Final = {
    "claim": "claim takes 1 key and 5 arguments",
    "transition": "transition takes 1 key and 8 arguments",
    "abandon": "abandon takes 1 key and 3 arguments",
    "status": "status takes 1 key and 1 argument",
}


def _misuse() -> Iterator[Call]:
    record = step(None, CLAIM, NOW_MS).record

    def refused(action: str, what: str, arguments: Sequence[str], keys: int = 1) -> Call:
        return Call(
            part=MISUSE,
            action=action,
            arguments=tuple(arguments),
            record=record,
            refused=what,
            keys=(KEY, "another")[:keys],
        )

    # WC-IN-5 lets no claim outlive its record, and the script does not rely on it.
    longer = replace(CLAIM, claim_ttl_seconds=2, state_ttl_seconds=1)
    yield _call(MISUSE, None, longer, f"at:{NOW_MS}")
    for action in ACTIONS:
        right = RIGHT[action]
        yield refused(action, TAKES[action], right, keys=0)
        yield refused(action, TAKES[action], right, keys=2)
        yield refused(action, TAKES[action], (*right, "more"))
        yield refused(action, TAKES[action], right[:-1])
        yield refused(action, TAKES[action], (*["!"] * len(right), "more"))
        for clock in CLOCKS_REFUSED:
            yield refused(action, "clock", (clock, *right[1:]))
        for index, (what, values) in REFUSED[action].items():
            for value in values:
                yield refused(action, what, (*right[:index], value, *right[index + 1 :]))
            # The first that is wrong is named, and an argument is looked at before the clock.
            yield refused(action, what, ("x", *right[1:index], *["!"] * (len(right) - index)))


# -- calling ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A call as bytes."""

    call: Call
    head: bytes
    """Up to the digest of the script."""
    tail: bytes
    replies: int


def _prepared(call: Call) -> _Prepared:
    commands: list[Any] = list(call.commands())  # hiredis says of tuples that they have one item
    head, tail = b"".join(pack_command(command) for command in commands).split(_SHA1.encode())
    return _Prepared(call, head, tail, len(commands))


class Caller:
    """Calls scripts as nothing else does: a batch of prepared bytes, whichever script it is for.

    Faults that lie near each other show in the same calls, so what told one is tried first on the
    next. That changes how soon a fault is found, and not whether.
    """

    def __init__(self, client: "redis.Redis") -> None:
        seconds, _ = client.time()
        calls = all_calls(int(seconds) * 1000)
        self._calls = {action: [*map(_prepared, calls[action])] for action in ACTIONS}
        self._keen: dict[str, list[_Prepared]] = {action: [] for action in ACTIONS}
        self._client = client

    @cached_property
    def _connection(self) -> "Connection":
        connection: Connection = self._client.connection_pool.get_connection()
        return connection

    @property
    def calls(self) -> list[Call]:
        """Every call of every action."""
        return [prepared.call for calls in self._calls.values() for prepared in calls]

    def first_difference(
        self, texts: Mapping[str, str], parts: Collection[str] = PARTS
    ) -> Difference | None:
        """The first call on which some scripts are wrong; None where they are right in all.

        Args:
            texts: by action; the others are not called.
            parts: which calls are made.

        Raises:
            redis.ResponseError: a text is no Lua.
        """
        loaded = {action: str(self._client.script_load(text)) for action, text in texts.items()}
        batches = [
            (action, batch)
            for action in loaded
            for batch in _batches(self._keen[action], self._calls[action], parts)
        ]
        # All that is called soon for any action comes before what is called late for another.
        for action, batch in sorted(batches, key=lambda entry: len(entry[1])):
            for prepared, seen in zip(batch, self._seen(batch, loaded[action]), strict=True):
                if (found := judge(prepared.call, seen)) is not None:
                    keen = self._keen[action]
                    self._keen[action] = [prepared, *(k for k in keen if k is not prepared)]
                    del self._keen[action][KEEN_MAX:]
                    return found
        return None

    def _seen(self, batch: Sequence[_Prepared], sha1: str) -> list[Seen]:
        name = sha1.encode()
        whole = b"".join(part for call in batch for part in (call.head, name, call.tail))
        self._connection.send_packed_command([whole])  # type: ignore[no-untyped-call]
        read = self._connection.read_response

        def answer() -> Any:
            try:
                return read()
            except redis.ResponseError as error:
                return error

        seen = []
        for call in batch:
            before, reply, after, stored, expires_ms = [answer() for _ in range(call.replies)][-5:]
            seen.append(
                Seen(
                    before_ms=_milliseconds(before),
                    reply=reply,
                    after_ms=_milliseconds(after),
                    stored=stored,
                    expires_ms=expires_ms,
                )
            )
        return seen


def _batches(
    keen: Sequence[_Prepared], calls: Sequence[_Prepared], parts: Collection[str]
) -> Iterator[Sequence[_Prepared]]:
    start, size = 0, BATCH_FIRST
    batch = [prepared for prepared in keen if prepared.call.part in parts]
    calls = [prepared for prepared in calls if prepared.call.part in parts]
    while batch or start < len(calls):
        if batch:
            yield batch
        batch = calls[start : start + size]
        start, size = start + size, size * BATCH_GROWTH


def _milliseconds(time: Any) -> int:
    seconds, microseconds = time
    return int(seconds) * 1000 + int(microseconds) // 1000
