"""A store that is slow, stopped, killed, restarted, forgetful, full, read-only or busy.

WC-ERR-5 is what callers rely on then: an answer within five seconds of the request's last byte,
and no step that is ever taken twice by the server's own doing.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import redis
from real_server import (
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    environment,
    fresh,
    get,
    held_back,
    in_flight,
    own_store,
    same,
    send,
    serving,
    start_process,
    status,
    told,
    wait_until,
)

from checkpoint_conformance.client import JSON_HEADERS, Address, Client, HttpAnswer, Lost, land_all
from checkpoint_lua import KEY_PREFIX
from checkpoint_model.vocabulary import DEPENDENCY_ANSWER_SECONDS_MAX, HEALTH_PATH, TOOL_PATH

NS = 1_000_000_000


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore) -> Iterator[Server]:
    """One server on it, which every test leaves able to answer."""
    with serving(store_url=own.url) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A connection for each test."""
    with server.client() as client:
        yield client


def is_unavailable(answer: HttpAnswer | Lost) -> None:
    """WC-ERR-1: the code of section 8, its status, and when to come again."""
    assert isinstance(answer, HttpAnswer), answer
    members = json.loads(answer.body)
    assert (answer.status, members["code"]) == (503, "DEPENDENCY_UNAVAILABLE")
    assert answer.header("retry-after") == str(members["retry_after_seconds"])


@contextmanager
def stopped(own: OwnStore) -> Iterator[None]:
    """While the store's process stands still."""
    own.pause_process()
    try:
        yield
    finally:
        own.continue_process()


def test_a_stopped_store_is_told_in_time_and_nothing_is_sent_twice(
    own: OwnStore, server: Server, client: Client
) -> None:
    """WC-ERR-5, WC-HTTP-3, and that each answer afterwards belongs to its own request.

    Many at once, so that the connection is given up with answers still to come on it.
    """
    requests = [claim() for _ in range(16)]
    hashes = [told(client, request)["workflow_hash"] for request in requests]
    assert len(set(hashes)) == 16
    clients = [server.client() for _ in requests]
    # So that the store knows both scripts.
    told(client, same(claim(), "abandon", generation=1))
    told(client, status(requests[0]))
    steps = own.steps()
    bodies = [same(r, "abandon", generation=1) if n % 2 else status(r) for n, r in _nth(requests)]
    with stopped(own), server.client() as health:
        flights = [
            one.prepare("POST", TOOL_PATH, json.dumps(body).encode(), JSON_HEADERS)
            for one, body in zip(clients, bodies, strict=True)
        ]
        flights.append(health.prepare("GET", HEALTH_PATH))
        for flight in flights:
            flight.release()
        *exchanges, healthy = land_all(flights)
    assert isinstance(healthy.answer, HttpAnswer)
    assert healthy.answer.status == 503
    for exchange in (*exchanges, healthy):
        assert exchange.returned_ns - exchange.called_ns < DEPENDENCY_ANSWER_SECONDS_MAX * NS
    for exchange in exchanges:
        is_unavailable(exchange.answer)
    # Each was sent once and is applied late, as WC-ERR-5 allows; what follows shows that no
    # second one was on its way: the count is exact to the end.
    wait_until(lambda: own.steps() == steps + 16, "the store has taken what was sent to it")
    for number, request in _nth(requests):
        assert told(client, status(request))["claim_active"] is (number % 2 == 0)
        again = told(clients[number], bodies[number])
        assert again["workflow_hash"] == hashes[number]
        assert again["abandoned"] is (number % 2 == 1)
    assert own.steps() == steps + 16 + 32
    for one in clients:
        one.close()


def _nth(requests: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return list(enumerate(requests))


def test_a_request_behind_another_is_answered_in_time_too(
    own: OwnStore, server: Server, client: Client
) -> None:
    """WC-ERR-5: it counts from its own last byte, not from when the one before was answered."""
    told(client, claim())  # so that there is a connection, which is waited on for longest
    address = Address.parse(server.url)
    body = json.dumps(claim()).encode()
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head = head % TOOL_PATH.encode() + b"content-length: %d\r\n" % len(body)
    with (
        stopped(own),
        socket.create_connection((address.host, address.port), timeout=SECONDS_MAX) as wire,
    ):
        sent_seconds = time.monotonic()
        wire.sendall(head + b"\r\n" + body + head + b"connection: close\r\n\r\n" + body)
        with wire.makefile("rb") as file:
            said = file.read()
        took_seconds = time.monotonic() - sent_seconds
    assert said.count(b"HTTP/1.1 503") == said.count(b'"code":"DEPENDENCY_UNAVAILABLE"') == 2
    assert took_seconds < DEPENDENCY_ANSWER_SECONDS_MAX


def test_a_lost_connection_is_not_repeated(own: OwnStore, client: Client) -> None:
    """WC-ERR-5: the step may have been applied, so only its caller may send it again."""
    request = claim()
    told(client, status(request))
    steps = own.steps()
    with held_back(own):
        flight = in_flight(client, own, request)
        (waiting,) = own.waiting_steps()
        before = _connection_number(own)
        own.admin.client_kill_filter(_id=waiting["id"])
        is_unavailable(flight.land().answer)
        # To send it again the server would have had to connect again.
        assert _connection_number(own) == before + 1
        assert own.waiting_steps() == []
    assert own.steps() == steps
    # It was not applied, and nobody applied it since.
    assert told(client, status(request))["code"] == "CHECKPOINT_NOT_FOUND"
    assert told(client, request)["acquired"] is True


def _connection_number(own: OwnStore) -> int:
    """The store numbers its connections; this is the number of one made now."""
    with redis.Redis.from_url(own.url) as one:
        return int(one.client_id())


def test_what_was_held_back_for_a_moment_is_answered(own: OwnStore, client: Client) -> None:
    """Slow is not unavailable."""
    request = claim()
    with held_back(own):
        flight = in_flight(client, own, request)
    answer = flight.land().answer
    assert isinstance(answer, HttpAnswer)
    assert json.loads(answer.body)["acquired"] is True


def test_a_killed_store_is_told_and_found_again(own: OwnStore, client: Client) -> None:
    """WC-ERR-5, WC-HTTP-3, WC-PRIV-5: what is acknowledged survives nothing here, and it recovers.

    The very first request after the restart is answered, although the connections are dead and
    the new store never saw the scripts.
    """
    request = claim()
    assert told(client, request)["acquired"] is True
    own.kill()
    for body in (status(request), request, claim()):
        is_unavailable(send(client, body))
    assert get(client, HEALTH_PATH).status == 503
    own.start()
    assert told(client, status(request))["code"] == "CHECKPOINT_NOT_FOUND"
    assert get(client, HEALTH_PATH).status == 200
    assert told(client, request)["acquired"] is True
    # Each script was unknown once and was then sent whole; nothing else was repeated.
    stats = own.admin.info("commandstats")
    assert (stats["cmdstat_evalsha"]["calls"], stats["cmdstat_eval"]["calls"]) == (2, 2)


def test_a_store_killed_with_requests_in_flight(own: OwnStore, server: Server) -> None:
    """WC-ERR-5: each of them is answered, in time."""
    clients = [server.client() for _ in range(4)]
    own.admin.client_pause(60_000, all=False)
    flights = [in_flight(one, own, claim()) for one in clients]
    own.kill()
    try:
        for exchange in land_all(flights):
            is_unavailable(exchange.answer)
            assert exchange.returned_ns - exchange.called_ns < DEPENDENCY_ANSWER_SECONDS_MAX * NS
    finally:
        own.start()
    for one in clients:
        assert told(one, claim())["acquired"] is True
        one.close()


def test_a_store_that_forgot_the_scripts_is_given_them_again(own: OwnStore, client: Client) -> None:
    """NOSCRIPT means that nothing was executed, so this one repetition is safe."""
    request = claim()
    assert told(client, request)["acquired"] is True
    own.admin.script_flush()
    assert told(client, request)["reused"] is True
    own.admin.script_flush()
    members = told(client, same(request, "abandon", generation=1))
    assert members["abandoned"] is True


def test_many_requests_at_once_after_the_scripts_are_gone(own: OwnStore, server: Server) -> None:
    """All meet NOSCRIPT together; each is applied once."""
    own.admin.script_flush()
    clients = [server.client() for _ in range(8)]
    bodies = [json.dumps(claim()).encode() for _ in clients]
    flights = [
        one.prepare("POST", TOOL_PATH, body, JSON_HEADERS)
        for one, body in zip(clients, bodies, strict=True)
    ]
    for flight in flights:
        flight.release()
    for exchange in land_all(flights):
        assert isinstance(exchange.answer, HttpAnswer)
        assert json.loads(exchange.answer.body)["acquired"] is True
    for one in clients:
        one.close()


def test_scripts_that_vanish_again_and_again_are_a_store_that_cannot_be_used(
    own: OwnStore, client: Client
) -> None:
    """Flushed between the load and the call: not executed, and no fault of the server's."""
    ends = threading.Event()

    def flush() -> None:
        with redis.Redis.from_url(own.url) as admin, admin.pipeline(transaction=False) as flushes:
            while not ends.is_set():
                for _ in range(200):
                    flushes.script_flush("ASYNC")
                flushes.execute()

    with ThreadPoolExecutor(1) as background:
        done = background.submit(flush)
        try:
            request = claim()
            seen = set()
            for _ in range(60):
                answer = send(client, request)
                seen.add(answer.status)
                if answer.status == 503:
                    is_unavailable(answer)
        finally:
            ends.set()
            done.result()
    assert seen <= {200, 503}
    assert told(client, request)["generation"] == 1


# -- A store that answers and refuses --------------------------------------------------------


@contextmanager
def full(own: OwnStore) -> Iterator[None]:
    """Over its memory limit."""
    own.admin.config_set("maxmemory", "1")
    try:
        yield
    finally:
        own.admin.config_set("maxmemory", "0")


@contextmanager
def without_replicas(own: OwnStore) -> Iterator[None]:
    """Told to write only while a replica listens."""
    own.admin.config_set("min-replicas-to-write", "1")
    try:
        yield
    finally:
        own.admin.config_set("min-replicas-to-write", "0")


@contextmanager
def read_only(own: OwnStore) -> Iterator[None]:
    """Made a replica, as after a failover; of nobody, so that its data stay."""
    own.admin.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        own.admin.replicaof("NO", "ONE")


@contextmanager
def without_its_primary(own: OwnStore) -> Iterator[None]:
    """A replica that will not show old data."""
    own.admin.config_set("replica-serve-stale-data", "no")
    own.admin.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        own.admin.replicaof("NO", "ONE")
        own.admin.config_set("replica-serve-stale-data", "yes")


@contextmanager
def unable_to_save(own: OwnStore) -> Iterator[None]:
    """Told to write only while its snapshots succeed, and they do not."""
    own.admin.config_set("save", "3600 1")
    own.admin.config_set("dbfilename", "x" * 300)  # longer than a file's name may be
    own.admin.bgsave()
    wait_until(
        lambda: own.admin.info("persistence")["rdb_last_bgsave_status"] == "err", "it failed"
    )
    try:
        yield
    finally:
        own.admin.config_set("save", "")
        own.admin.config_set("dbfilename", "dump.rdb")


@contextmanager
def busy(own: OwnStore) -> Iterator[None]:
    """Running somebody's script that does not end."""
    own.admin.config_set("busy-reply-threshold", "1")

    def spin() -> None:
        with redis.Redis.from_url(own.url) as other, pytest.raises(redis.ResponseError):
            other.eval("while true do end", 0)

    with ThreadPoolExecutor(1) as background:
        spinning = background.submit(spin)
        wait_until(lambda: _refuses(own, "BUSY"), "the script runs for too long")
        try:
            yield
        finally:
            own.admin.script_kill()
            spinning.result()
    own.admin.config_set("busy-reply-threshold", "5000")


def _refuses(own: OwnStore, word: str) -> bool:
    try:
        own.admin.ping()
    except redis.ResponseError as error:
        return str(error).startswith(word)
    return False


@pytest.mark.parametrize(
    "refusing",
    [full, without_replicas, read_only, without_its_primary, unable_to_save, busy],
)
def test_a_store_that_refuses_the_write_is_unavailable_and_keeps_its_records(
    own: OwnStore,
    client: Client,
    refusing: Callable[[OwnStore], AbstractContextManager[None]],
) -> None:
    """WC-PRIV-4, section 8: "cannot take the write". Afterwards everything is as before."""
    request = claim()
    assert told(client, request)["acquired"] is True
    before = _content(own)
    with refusing(own):
        is_unavailable(send(client, claim()))
        is_unavailable(send(client, same(request, "abandon", generation=1)))
        move = {"to_stage": "uncertain", "observation_key": fresh("o")}
        is_unavailable(send(client, same(request, "transition", generation=1, **move)))
    assert _content(own) == before
    assert told(client, status(request))["held_by_caller"] is True
    assert told(client, same(request, "abandon", generation=1))["abandoned"] is True


def test_a_primary_that_became_a_replica_tells_nothing_any_more(
    own: OwnStore, client: Client
) -> None:
    """WC-CONC-1: who holds what is by now another's to say, also while the name leads here."""
    request = claim()
    assert told(client, request)["acquired"] is True
    with read_only(own):
        wait_until(lambda: send(client, status(request)).status != 200, "the server has found out")
        # By a connection that is made anew each time.
        for body in (status(request), request, same(request, "abandon", generation=2)):
            is_unavailable(send(client, body))
        assert get(client, HEALTH_PATH).status == 503
    assert told(client, request)["reused"] is True


def test_a_store_that_does_not_tell_its_role_is_used_all_the_same(
    own: OwnStore, client: Client
) -> None:
    """Where a provider forbids the question, nothing is known."""
    own.admin.execute_command("ACL", "SETUSER", "default", "-role")  # type: ignore[no-untyped-call]
    try:
        own.admin.client_kill_filter(skipme=True, _type="normal")  # so that it is asked first
        wait_until(lambda: send(client, claim()).status == 200, "a step is taken")
        assert own.admin.info("commandstats")["cmdstat_role"]["rejected_calls"] > 0
    finally:
        own.admin.execute_command("ACL", "SETUSER", "default", "+role")  # type: ignore[no-untyped-call]


def _content(own: OwnStore) -> dict[Any, Any]:
    keys = sorted(own.admin.scan_iter(match=f"{KEY_PREFIX}{{*"))
    return {key: own.admin.hgetall(key) for key in keys}


def test_a_full_store_still_says_how_things_stand(own: OwnStore, client: Client) -> None:
    """WC-PRIV-4: what writes nothing is decided as ever."""
    request = claim()
    assert told(client, request)["acquired"] is True
    with full(own):
        assert told(client, status(request))["held_by_caller"] is True
        assert told(client, request)["reused"] is True
        assert told(client, same(request, "abandon", generation=2))["code"] == "STALE_GENERATION"


def test_a_store_with_no_connection_to_spare(own: OwnStore, server: Server) -> None:
    """Somebody else has them all: unavailable, and back when they are given up."""
    limit = own.admin.config_get("maxclients")["maxclients"]
    own.admin.client_kill_filter(skipme=True, _type="normal")  # so that the server needs a new one
    with server.client() as client:
        own.admin.config_set("maxclients", "1")
        try:
            is_unavailable(send(client, claim()))
            assert get(client, HEALTH_PATH).status == 503
        finally:
            own.admin.config_set("maxclients", str(limit))
        assert told(client, claim())["acquired"] is True


# -- A store that evicts ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_refuses_to_start_on_a_store_that_evicts(own: OwnStore, policy: str) -> None:
    """WC-PRIV-4, with the command that mends it."""
    own.admin.config_set("maxmemory-policy", policy)
    try:
        process = start_process(
            ["--port", "0", "--dev-key", "--valkey-url", own.url], env=environment()
        )
        out, err = process.communicate(timeout=20)
    finally:
        own.admin.config_set("maxmemory-policy", "noeviction")
    assert (process.returncode, out) == (2, b"")
    assert err.decode() == (
        f"Error: the store's maxmemory-policy is {policy}: it may drop a live record, and its "
        "workflow would then start again at generation 1 (WC-PRIV-4).\n"
        "Set it with: valkey-cli CONFIG SET maxmemory-policy noeviction\n"
        "and in its configuration file, or it is back after a restart.\n"
    )


def test_the_server_never_answers_later_than_the_bound(own: OwnStore, server: Server) -> None:
    """WC-ERR-5 with many requests behind one another on one connection."""
    with server.client() as first:
        told(first, claim())
        with stopped(own):
            clients = [server.client() for _ in range(150)]
            flights = [
                one.prepare("POST", TOOL_PATH, json.dumps(claim()).encode(), JSON_HEADERS)
                for one in clients
            ]
            for flight in flights:
                flight.release()
            exchanges = land_all(flights)
        for exchange in exchanges:
            is_unavailable(exchange.answer)
            assert exchange.returned_ns - exchange.called_ns < DEPENDENCY_ANSWER_SECONDS_MAX * NS
        for one in clients:
            one.close()
        assert told(first, claim())["acquired"] is True
