"""The scripts on a real Valkey: against the model, and on their own promises."""

import asyncio
import itertools
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import redis
import redis.asyncio
from hypothesis import event, given
from scripted import as_outcome, as_stored, digest
from sequences import LINKS, T0

from checkpoint_lua import ACTIONS, Checkpoints, Reply, record_key, scripts
from checkpoint_model import (
    Abandon,
    Claim,
    Record,
    Request,
    Stage,
    Status,
    Transition,
    step,
)

T = TypeVar("T")
SLACK_MS = 3600 * 1000


class Lua:
    """The scripts, called with the model's requests."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = redis.asyncio.Redis.from_url(url, decode_responses=True)
        self.checkpoints = Checkpoints(self._client)
        self.store = redis.Redis.from_url(url, decode_responses=True)

    def run(self, awaitable: Awaitable[T]) -> T:
        """Run one call on this object's own loop."""

        async def wait() -> T:
            return await awaitable

        return self._runner.run(wait())

    def close(self) -> None:
        """Close both clients and the loop."""
        self._runner.run(self._client.aclose())
        self._runner.close()
        self.store.close()

    def decide(self, workflow: str, request: Request, clock: str = "") -> Reply:
        """Send one of the model's requests."""
        match request:
            case Claim():
                call = self.checkpoints.claim(
                    workflow,
                    holder=digest(request.holder),
                    claim_ttl_seconds=request.claim_ttl_seconds,
                    state_ttl_seconds=request.state_ttl_seconds,
                    retry_failed=request.retry_failed,
                    clock=clock,
                )
            case Transition():
                call = self.checkpoints.transition(
                    workflow,
                    holder=digest(request.holder),
                    generation=request.generation,
                    to_stage=request.to_stage,
                    observation=digest(request.observation_key),
                    body=digest(repr(request.body)),
                    evidence_type=request.evidence_type,
                    evidence_fingerprint_present=request.evidence_fingerprint is not None,
                    clock=clock,
                )
            case Abandon():
                call = self.checkpoints.abandon(
                    workflow,
                    holder=digest(request.holder),
                    generation=request.generation,
                    clock=clock,
                )
            case Status():
                call = self.checkpoints.status(workflow, clock=clock)
        return self.run(call)

    def stored(self, workflow: str) -> dict[str, str]:
        """The record's hash as it lies in the store."""
        fields = self.store.hgetall(record_key(workflow))
        return {str(name): str(value) for name, value in fields.items()}


@pytest.fixture(scope="module")
def lua(valkey_url: str) -> Iterator[Lua]:
    """One pair of clients for this file."""
    lua = Lua(valkey_url)
    yield lua
    lua.close()


@pytest.fixture
def workflow() -> str:
    """A workflow that nobody else uses."""
    return digest(secrets.token_hex(16))


@given(LINKS)
def test_the_scripts_decide_as_the_model(lua: Lua, links: list[tuple[Request, int]]) -> None:
    """Two statements of section 6, written apart: same outcome, time and stored record."""
    workflow = digest(secrets.token_hex(16))
    record: Record | None = None
    now_ms = T0
    for request, delay_ms in links:
        now_ms += delay_ms
        expected = step(record, request, now_ms)
        reply = lua.decide(workflow, request, f"at:{now_ms}")
        event(expected.rule)
        assert reply.outcome == as_outcome(expected.outcome), expected.rule
        assert reply.now_ms == expected.observed_at_ms
        assert lua.stored(workflow) == as_stored(expected.record), expected.rule
        record = expected.record


CLAIM = Claim(holder="ann", claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=False)
MOVE = Transition(
    holder="ann",
    generation=1,
    to_stage=Stage.UNCERTAIN,
    observation_key="one",
)


def test_the_store_s_clock_is_the_time(lua: Lua, workflow: str) -> None:
    """WC-TIME-1: the reply's time lies between two readings of the store's own."""

    def store_ms() -> int:
        seconds, microseconds = lua.store.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    before = store_ms()
    reply = lua.decide(workflow, CLAIM)
    assert before <= reply.now_ms <= store_ms()


def test_native_expiry_is_the_record_s_deadline(lua: Lua, workflow: str) -> None:
    """WC-PRIV-3: every key has one, at ``state_expires_at``, and no change moves it."""
    reply = lua.decide(workflow, CLAIM)
    assert reply.record is not None
    key = record_key(workflow)
    assert lua.store.pexpiretime(key) == reply.record.state_end_ms == reply.now_ms + 600_000
    for request in (MOVE, Abandon(holder="ann", generation=1), CLAIM):
        lua.decide(workflow, request)
        assert lua.store.pexpiretime(key) == reply.record.state_end_ms


@pytest.mark.parametrize("clock", ["at:1000000", "shift:-5000000", "shift:9000000"])
def test_a_controlled_clock_gives_native_expiry_an_hour_more(
    lua: Lua, workflow: str, clock: str
) -> None:
    """WC-CTL-6: a record does not vanish under a clock that stands still, nor stays for ever."""
    key = record_key(workflow)
    lua.decide(workflow, CLAIM, clock)
    assert 600_000 + SLACK_MS - 5_000 < lua.store.pttl(key) <= 600_000 + SLACK_MS
    lua.store.pexpire(key, 1_000)
    lua.decide(workflow, MOVE, clock)
    assert 600_000 + SLACK_MS - 5_000 < lua.store.pttl(key) <= 600_000 + SLACK_MS


def test_a_new_record_has_nothing_of_an_expired_one(lua: Lua, workflow: str) -> None:
    """WC-TIME-2: what lies there after the deadline is replaced, observations and all."""
    lua.decide(workflow, CLAIM, "at:1000")
    lua.decide(workflow, MOVE, "at:1001")
    assert f"o{digest('one')}" in lua.stored(workflow)
    lua.decide(workflow, CLAIM, "at:601000")
    assert lua.stored(workflow) == as_stored(step(None, CLAIM, 601_000).record)


def test_a_store_that_forgot_the_scripts_is_given_them_again(lua: Lua, workflow: str) -> None:
    """NOSCRIPT means that nothing was executed: load, and call once more."""
    lua.store.script_flush()
    assert lua.decide(workflow, CLAIM).outcome == "acquired"
    lua.store.script_flush()
    assert lua.decide(workflow, CLAIM).outcome == "reused"


GOOD = digest("x")
CALLS = {
    "claim": ["", GOOD, "60", "600", "0"],
    "transition": ["", GOOD, "1", "uncertain", GOOD, GOOD, "", "0"],
    "abandon": ["", GOOD, "1"],
    "status": [""],
}
MALFORMED = [
    *((action, [*arguments, "more"]) for action, arguments in CALLS.items()),
    *((action, arguments[:-1]) for action, arguments in CALLS.items()),
    *(
        (action, [*CALLS[action][:index], value, *CALLS[action][index + 1 :]])
        for action, index, values in [
            *((action, 0, ["at:", "at:1.5", "shift:x", "now:1", " "]) for action in ACTIONS),
            *((a, 1, ["", GOOD[:-1], GOOD + "x", "h_raw_identifier"]) for a in list(CALLS)[:3]),
            ("claim", 2, ["0", "901", "1.5", "x", ""]),
            ("claim", 3, ["0", "3601", "nan"]),
            ("claim", 4, ["true", "2", ""]),
            ("transition", 2, ["0", "17"]),
            ("transition", 4, ["o_raw_identifier"]),
            ("transition", 5, ["", GOOD[:-1]]),
            ("transition", 7, ["", "2"]),
            ("abandon", 2, ["0", "17", "one"]),
        ]
        for value in values
    ),
]


@pytest.mark.parametrize(("action", "arguments"), MALFORMED)
def test_a_malformed_call_errs_before_it_writes(
    lua: Lua, workflow: str, action: str, arguments: list[str]
) -> None:
    """A script that errs after a write keeps the write, so it must err before."""
    key = record_key(workflow)
    lua.decide(workflow, CLAIM)
    before = lua.stored(workflow)
    with pytest.raises(redis.ResponseError, match="malformed call"):
        lua.store.eval(scripts()[action].text, 1, key, *arguments)
    assert lua.stored(workflow) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_a_call_without_its_key_errs(lua: Lua, action: str) -> None:
    """Every key of a record is passed in KEYS, and there is one."""
    with pytest.raises(redis.ResponseError, match="malformed call"):
        lua.store.eval(scripts()[action].text, 0, *CALLS[action])


def test_the_scripts_touch_their_own_key_alone(lua: Lua, workflow: str) -> None:
    """In a cluster a key that is not in KEYS may lie elsewhere; seen by listening to the store."""
    abandon = Abandon(holder="ann", generation=1)
    requests: list[Request] = [CLAIM, MOVE, Status(), abandon, CLAIM]
    with lua.store.monitor() as listening:  # type: ignore[no-untyped-call]  # not annotated there
        for request in requests:
            lua.decide(workflow, request)
        lua.store.echo("the end")
        seen = itertools.takewhile(lambda c: c["command"] != "ECHO the end", listening.listen())
        inside = [c["command"].split() for c in seen if c["client_type"] == "lua"]
    keyed = [command for command in inside if command[0] != "TIME"]
    assert len(keyed) >= 2 * len(requests) - 1
    assert {command[1] for command in keyed} == {record_key(workflow)}
    assert sum(command[0] == "TIME" for command in inside) == len(requests)


def test_a_full_store_refuses_the_write_and_keeps_the_record(lua: Lua, workflow: str) -> None:
    """WC-PRIV-4: what changes nothing is still answered; what would write is refused whole."""
    other = digest(workflow)
    lua.decide(workflow, CLAIM)
    before = lua.stored(workflow)
    lua.store.config_set("maxmemory", "1")
    try:
        assert lua.decide(workflow, CLAIM).outcome == "reused"
        writes: list[tuple[Request, str]] = [(MOVE, workflow), (CLAIM, other)]
        for request, target in writes:
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                lua.decide(target, request)
        assert lua.decide(workflow, Status()).outcome == "reported"
        assert lua.stored(workflow) == before
        assert lua.stored(other) == {}
    finally:
        lua.store.config_set("maxmemory", "0")


@pytest.mark.parametrize("action", ACTIONS)
def test_the_assembled_text_passes_the_linter(
    action: str, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """Lint what the store is given. The includes define more than each action uses."""
    assert "@include" not in scripts()[action].text
    assembled = tmp_path / f"{action}.lua"
    assembled.write_text(scripts()[action].text)
    done = subprocess.run(
        [
            *(
                tool("luacheck"),
                str(assembled),
                "--no-color",
                "--std",
                "lua51",
                "--max-line-length",
                "100",
            ),
            *("--read-globals", "redis", "KEYS", "ARGV"),
            *("--ignore", "211/terminal", "211/claim_active", "211/whole", "211/is_digest"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_script_says_which_rules_it_keeps() -> None:
    """Each decision row of section 6 is named in the script of its action."""
    rows = {"claim": ("CLAIM", 8), "transition": ("TRANS", 8)}
    rows |= {"abandon": ("ABANDON", 6), "status": ("STATUS", 2)}
    for action, (prefix, count) in rows.items():
        body = scripts()[action].text.partition("local record_key")[2]
        assert [n for n in range(1, count + 1) if f"-- WC-{prefix}-{n}" not in body] == []
