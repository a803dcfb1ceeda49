"""The change of the HMAC key: no claim under one key while records of another live (WC-ID-5)."""

import asyncio
import gc
import re
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_server import (
    KEY_VARIABLE,
    MODULE,
    SECONDS_MAX,
    OwnStore,
    claim,
    environment,
    own_store,
    same,
    send,
    serving,
    start_process,
    status,
    told,
    wait_until,
)
from redis.exceptions import RedisClusterException
from test_serve import PROGRAM
from topologies import SLOTS, free_port, nodes

from checkpoint_reference_server import key_change
from checkpoint_reference_server.digests import Digests
from checkpoint_reference_server.key_change import (
    CLAIM_UNDER_WAY_SECONDS,
    MARK_KEY,
    MARK_MS,
    MARK_SLACK_SECONDS,
    RENEW_SECONDS,
    KeyMark,
)
from checkpoint_reference_server.switch import FLAG_KEY

OLD, NEW = secrets.token_hex(32), secrets.token_hex(32)


@pytest.fixture
def own() -> Iterator[OwnStore]:
    """A store for each test."""
    with own_store() as store:
        yield store


def refused_to_start(url: str, key: str) -> str:
    """What a server with a key says that does not start."""
    process = start_process(
        ("--port", "0", "--exit-with-input", "--valkey-url", url),
        env=environment(**{KEY_VARIABLE: key}),
    )
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (2, b""), err
    assert b"Traceback" not in err
    return err.decode()


def is_marked(own: OwnStore, key: str) -> bool:
    """Whether the store has the fingerprint of a key."""
    return bool(own.admin.get(MARK_KEY) == Digests(key.encode()).fingerprint)


def test_the_fingerprint_outlives_every_record() -> None:
    """Also one whose claim came just before it was renewed, to a store that then stood still."""
    assert MARK_MS == (3600 + MARK_SLACK_SECONDS) * 1000
    assert MARK_SLACK_SECONDS > RENEW_SECONDS + CLAIM_UNDER_WAY_SECONDS


def test_claims_mark_the_store(own: OwnStore) -> None:
    """With a keyed digest that expires by itself: the first, and any after it was forgotten."""
    with serving(store_url=own.url, key=OLD) as server, server.client() as client:
        told(client, status(claim()))
        assert not own.admin.exists(MARK_KEY)
        told(client, claim())
        wait_until(lambda: is_marked(own, OLD), "the store is marked")
        assert MARK_MS - 60_000 < own.admin.pttl(MARK_KEY) <= MARK_MS
        assert OLD not in str(own.admin.get(MARK_KEY))
        own.admin.flushall()

        def marked_again() -> bool:
            told(client, claim())
            return is_marked(own, OLD)

        wait_until(marked_again, "it is marked again")


def test_another_key_does_not_start_while_records_may_live(own: OwnStore) -> None:
    """Told with how long, and what to do; the same key starts, another does later."""
    with serving(store_url=own.url, key=OLD) as server, server.client() as client:
        told(client, claim())
        wait_until(lambda: is_marked(own, OLD), "the store is marked")
    own.admin.pexpire(MARK_KEY, 600_500)
    said = refused_to_start(own.url, NEW)
    left = re.search(r"may live for another (\d+) s\.", said.replace("\n", " "))
    assert left is not None
    assert 500 < int(left[1]) <= 600
    assert "workflow-checkpoint drain" in said
    assert "--forget-records" in said
    with serving(store_url=own.url, key=OLD) as server, server.client() as client:
        assert told(client, claim())["acquired"] is True
        wait_until(lambda: own.admin.pttl(MARK_KEY) > MARK_MS - 60_000, "the claim renewed it")
    own.admin.delete(MARK_KEY)  # as it does by itself
    with serving(store_url=own.url, key=NEW) as server, server.client() as client:
        assert told(client, claim())["acquired"] is True


def test_a_key_made_up_for_development_neither_marks_nor_minds(own: OwnStore) -> None:
    """It takes no store away from anybody."""
    own.admin.set(MARK_KEY, "another")
    program = f"import os; os.environ.pop({KEY_VARIABLE!r}, None)\n"
    program += "from checkpoint_reference_server.commands import serve\nserve()"
    command = (MODULE[0], "-c", program)
    with (
        serving("--dev-key", store_url=own.url, command=command) as server,
        server.client() as client,
    ):
        assert told(client, claim())["acquired"] is True
        assert told(client, claim())["acquired"] is True
    assert own.admin.get(MARK_KEY) == "another"


def test_a_store_that_was_taken_over_gets_no_claims_of_the_old_key(own: OwnStore) -> None:
    """The new server claims, the old one refuses, and still records work in flight (WC-ERR-7)."""
    with serving(store_url=own.url, key=OLD) as old, old.client() as client:
        request = claim()
        told(client, request)
        wait_until(lambda: is_marked(own, OLD), "the store is marked")
        with (
            serving("--forget-records", store_url=own.url, key=NEW) as new,
            new.client() as other,
        ):
            assert is_marked(own, NEW)
            assert told(other, claim())["acquired"] is True
            wait_until(lambda: told(client, claim()).get("code") == "TOOL_PAUSED", "it refuses")
            assert is_marked(own, NEW)
            abandoned = told(client, same(request, "abandon", generation=1))
            assert abandoned["abandoned"] is True
            assert told(other, claim())["acquired"] is True
        said = "claims are refused: the store has another key's records"
        assert old.err.count(said) == 1


def test_the_key_is_changed_by_drain(own: OwnStore, tmp_path: Path) -> None:
    """The whole way: drain, while work in flight is recorded; the new key; resume."""
    request = claim()
    with serving(store_url=own.url, key=OLD) as server, server.client() as client:
        told(client, request)
        wait_until(lambda: is_marked(own, OLD), "the store is marked")
        out = tmp_path / "out"
        with out.open("wb") as file:
            process = start_process(
                ("drain", "--valkey-url", own.url), env=environment(), out=file, command=PROGRAM
            )
        wait_until(lambda: "1 records left; the last expires in 0:0" in out.read_text(), "waits")
        assert told(client, claim())["code"] == "TOOL_PAUSED"
        applied = told(client, same(request, "abandon", generation=1))
        assert applied["abandoned"] is True
        assert process.poll() is None
        assert NEW not in refused_to_start(own.url, NEW)
        (record,) = own.admin.scan_iter(match="wc:{*")
        own.admin.pexpire(record, 1)
        process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0
    assert "No record is left: the HMAC key may be changed." in out.read_text()
    assert not own.admin.exists(MARK_KEY)
    with serving(store_url=own.url, key=NEW) as server, server.client() as client:
        assert told(client, claim())["code"] == "TOOL_PAUSED"
        own.admin.delete(FLAG_KEY)
        wait_until(lambda: told(client, claim()).get("acquired"), "claims are decided again")
        assert send(client, status(request)).status == 404
        wait_until(lambda: is_marked(own, NEW), "the store is marked by the new key")


def test_a_drain_that_is_stopped_leaves_the_tool_paused(own: OwnStore) -> None:
    """And says so; the key is still the old one's."""
    with serving(store_url=own.url, key=OLD) as server, server.client() as client:
        told(client, claim())
        wait_until(lambda: is_marked(own, OLD), "the store is marked")
    process = start_process(("drain", "--valkey-url", own.url), env=environment(), command=PROGRAM)
    assert process.stdout is not None
    while b"records left" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, err) == (130, b"")
    assert b"The tool stays paused until: workflow-checkpoint resume" in out
    assert own.admin.exists(FLAG_KEY)
    assert is_marked(own, OLD)


def test_a_drain_waits_for_the_last_record(own: OwnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it has to look, and whatever else lies there; then the key is forgotten."""
    monkeypatch.setattr(key_change, "CLAIM_UNDER_WAY_SECONDS", 0.0)
    monkeypatch.setattr(key_change, "DRAIN_POLL_SECONDS", 0.01)
    own.admin.set(FLAG_KEY, "1")
    own.admin.set(MARK_KEY, "a fingerprint")
    records = [f"wc:{{{number}}}" for number in range(3)]
    for number, record in enumerate(records):
        own.admin.set(record, "", ex=100 * (number + 1))
    seen: list[tuple[int, bool]] = []

    def tell(left: int, longest_seconds: float) -> None:
        seen.append((left, own.admin.exists(MARK_KEY) == 1))
        assert 100 * left - 50 < longest_seconds <= 100 * left
        own.admin.delete(records[left - 1])

    key_change.drain(own.admin, tell)
    assert seen == [(3, True), (2, True), (1, True)]
    assert own.admin.keys() == [FLAG_KEY]


def test_which_store_is_to_be_drained() -> None:
    """None is taken for granted."""
    process = start_process(("drain",), env=environment(), command=PROGRAM)
    _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2
    assert b"Which store? Give --valkey-url" in err


class Emptied:
    """A store that somebody empties between any two commands."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def get(self, key: str) -> None:
        """Nothing is there."""
        self.said.append(f"GET {key}")

    async def set(self, key: str, value: str, *, nx: bool, px: int) -> None:
        """And what is written does not stay."""
        assert nx
        assert (value, px) == ("ours", MARK_MS)
        self.said.append(f"SET {key}")


def test_a_store_that_is_emptied_meanwhile_is_nobody_else_s() -> None:
    """Claims go on: there are no records of any key."""
    store = Emptied()
    mark = KeyMark(store, "ours")  # type: ignore[arg-type]  # the commands that it sends
    asyncio.run(mark.keep(0.0))
    assert store.said == [f"GET {MARK_KEY}", f"SET {MARK_KEY}", f"GET {MARK_KEY}"]
    assert mark._ours


class Unreachable:
    """A cluster of which no node answers."""

    async def get(self, _: str) -> None:
        """Nobody to ask; and this is no kind of the library's other errors."""
        raise RedisClusterException("no node answers")


def test_a_cluster_that_is_away_is_no_fault_of_the_look() -> None:
    """Nothing is left in the log for each second of it; the claims themselves tell."""

    async def run() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
        mark = KeyMark(Unreachable(), "ours")  # type: ignore[arg-type]  # all that it is asked
        assert mark.holds()
        looking = mark._looking
        assert looking is not None
        await asyncio.wait([looking])
        del looking
        gc.collect()
        return told

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("command", ["serve", "pause"])
def test_a_cluster_without_the_slot_of_what_is_asked_is_told_in_a_sentence(command: str) -> None:
    """And by no traceback."""
    with nodes() as started:
        node = started.start("--cluster-enabled", "yes", port=free_port(bus=True))
        slot = int(node.call("CLUSTER", "KEYSLOT", MARK_KEY if command == "serve" else FLAG_KEY))
        node.call("CLUSTER", "ADDSLOTSRANGE", 0, slot - 1, slot + 1, SLOTS - 1)
        if command == "serve":
            said = refused_to_start(node.url, OLD)
        else:
            process = start_process(
                ("pause", "--valkey-url", node.url), env=environment(), command=PROGRAM
            )
            _, err = process.communicate(timeout=SECONDS_MAX)
            assert process.returncode == 2, err
            said = err.decode()
    assert "Traceback" not in said
    assert f'Slot "{slot}" not covered' in said
