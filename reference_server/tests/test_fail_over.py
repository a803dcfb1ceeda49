"""A primary that is lost with what its replica never got, and what keeps that from mattering.

The hazard is real and documented: a store acknowledges before its replicas have a change. A claim
that is answered then, and lost with its primary, is answered a second time as the same generation.
``--wait-replicas`` is held against the same fault.
"""

import json
import secrets
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from real_server import (
    Server,
    claim,
    environment,
    fresh,
    same,
    send,
    serving,
    start_process,
    status,
    told,
    wait_until,
)
from topologies import HOST, Node, Nodes, cut_off, move_slot, nodes

from checkpoint_conformance.client import JSON_HEADERS, Client, HttpAnswer
from checkpoint_lua import KEY_PREFIX
from checkpoint_model import parse_request
from checkpoint_model.linearizability import Answered, Illegal, Operation, check
from checkpoint_model.vocabulary import HEALTH_PATH, TOOL_PATH
from checkpoint_reference_server.multiplexer import MARK_PREFIX, WAIT_SECONDS_MAX
from checkpoint_reference_server.switch import FLAG_KEY

SERVICE = "checkpoints"
KEY = secrets.token_hex(32)
"""Of all servers here: those that share a store speak of the same records."""
CLI = (sys.executable, "-c", "from checkpoint_conformance.cli import main; main()")


SLOTS_MOVED = 6


@pytest.fixture
def started() -> Iterator[Nodes]:
    """Servers of a store, for one test."""
    with nodes() as started:
        yield started


def code(answer: HttpAnswer) -> str | None:
    """The problem's code, or None for a result."""
    told: str | None = json.loads(answer.body).get("code")
    return told


def watched(started: Nodes, primary: Node) -> tuple[str, Node]:
    """A Sentinel that watches a primary and its replicas, and the URL by which it is asked."""
    sentinel = started.sentinel_of(primary, SERVICE, quorum=1)
    wait_until(lambda: sentinel.call("SENTINEL", "REPLICAS", SERVICE), "it knows the replica")
    return f"redis+sentinel://{HOST}:{sentinel.port}/{SERVICE}/0", sentinel


def called(client: Client, request: dict[str, Any]) -> Operation:
    """A call, as the judge of histories sees it."""
    raw = json.dumps(request).encode()
    exchange = client.exchange("POST", TOOL_PATH, raw, JSON_HEADERS)
    assert isinstance(exchange.answer, HttpAnswer)
    answer = Answered(status=exchange.answer.status, members=json.loads(exchange.answer.body))
    return Operation(
        client=request["holder"],
        request=parse_request(request)[1],
        called_ns=exchange.called_ns,
        returned_ns=exchange.returned_ns,
        answer=answer,
    )


def test_without_waiting_a_fail_over_gives_a_generation_twice(started: Nodes) -> None:
    """The hazard, and that the judge finds it: the next test's success is no matter of course."""
    primary = started.start()
    replica = started.replica_of(primary)
    request = claim()
    with serving(store_url=primary.url, key=KEY) as server, server.client() as client:
        cut_off(primary, replica)
        history = [called(client, request)]
    primary.kill()
    replica.continue_process()
    replica.call("REPLICAOF", "NO", "ONE")
    with serving(store_url=replica.url, key=KEY) as server, server.client() as client:
        history.append(called(client, {**request, "holder": fresh("h")}))
    for operation in history:
        assert operation.answer is not None
        assert operation.answer.members is not None
        assert (operation.answer.members["acquired"], operation.answer.members["generation"]) == (
            True,
            1,
        )
    verdict = check(history)
    assert isinstance(verdict, Illegal)
    assert (verdict.operation, verdict.rule) == (1, "WC-CLAIM-5")


def test_waiting_acknowledges_nothing_that_a_fail_over_could_take_away(started: Nodes) -> None:
    """The same fault, and a claim that was repeated: neither is told that it holds anything."""
    primary = started.start()
    replica = started.replica_of(primary)
    request, repeated = claim(), claim()
    with (
        serving("--wait-replicas", "1", store_url=primary.url, key=KEY) as waiting,
        serving(store_url=primary.url, key=KEY) as careless,
        waiting.client() as client,
        careless.client() as other,
    ):
        assert told(client, claim())["acquired"] is True
        cut_off(primary, replica)
        assert told(other, repeated)["acquired"] is True
        # `reused` changes nothing, and yet it would tell of a change that no replica has.
        assert code(send(client, repeated)) == "DEPENDENCY_UNAVAILABLE"
        assert code(send(client, request)) == "DEPENDENCY_UNAVAILABLE"
        assert code(send(client, status(request))) == "DEPENDENCY_UNAVAILABLE"
    primary.kill()
    replica.continue_process()
    replica.call("REPLICAOF", "NO", "ONE")
    with serving(store_url=replica.url, key=KEY) as server, server.client() as client:
        assert told(client, {**request, "holder": fresh("h")})["generation"] == 1


def test_a_shortfall_is_told_in_time_and_ends_with_it(started: Nodes) -> None:
    """WC-ERR-5; and the step was applied, as it allows: its repetition finds it."""
    primary = started.start()
    replica = started.replica_of(primary)
    with (
        serving("--wait-replicas", "1", store_url=primary.url, key=KEY) as server,
        server.client() as client,
    ):
        assert told(client, claim())["acquired"] is True  # the store knows the script
        replica.pause_process()
        request = claim()
        exchange = client.exchange(
            "POST",
            "/v1/tools/workflow-checkpoint",
            json.dumps(request).encode(),
            (("content-type", "application/json"),),
        )
        assert isinstance(exchange.answer, HttpAnswer)
        assert code(exchange.answer) == "DEPENDENCY_UNAVAILABLE"
        assert exchange.returned_ns - exchange.called_ns < 2 * WAIT_SECONDS_MAX * 1_000_000_000
        replica.continue_process()
        assert told(client, request)["reused"] is True
        # What was put behind the steps to wait for says nothing and does not stay.
        marks = list(primary.admin.scan_iter(match=f"{MARK_PREFIX}*"))
        assert all(primary.admin.get(mark) == "" for mark in marks)
        wait_until(
            lambda: not list(primary.admin.scan_iter(match=f"{MARK_PREFIX}*")), "they are gone"
        )


def test_a_server_refuses_to_start_without_the_replicas_to_wait_for(started: Nodes) -> None:
    """Else every answer would be DEPENDENCY_UNAVAILABLE, and nobody would know why."""
    primary = started.start()
    with (
        pytest.raises(AssertionError, match="the store has 0 connected"),
        serving("--wait-replicas", "1", store_url=primary.url, key=KEY),
    ):
        pass


# -- Sentinel -----------------------------------------------------------------------------------


def test_a_server_follows_sentinel_to_the_new_primary(started: Nodes) -> None:
    """WC-HTTP-3 and section 8 meanwhile; afterwards what the replica had is there."""
    primary = started.start()
    started.replica_of(primary)
    url, sentinel = watched(started, primary)
    with serving(store_url=url, key=KEY) as server, server.client() as client:
        request = claim()
        assert told(client, request)["acquired"] is True
        primary.admin.wait(1, 5000)
        primary.kill()
        seen: set[Any] = set()

        def is_back() -> bool:
            answer = send(client, status(request))
            seen.add(code(answer))
            return answer.status == 200

        wait_until(is_back, "the server found the new primary")
        assert seen <= {None, "DEPENDENCY_UNAVAILABLE"}
        assert told(client, request)["reused"] is True
        assert client.exchange("GET", HEALTH_PATH).answer.status == 200  # type: ignore[union-attr]
    assert sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1] != str(primary.port)


def test_a_primary_that_became_a_replica_is_left(started: Nodes) -> None:
    """A planned fail-over: the old primary still answers, and takes no writes."""
    primary = started.start()
    replica = started.replica_of(primary)
    url, sentinel = watched(started, primary)
    with serving(store_url=url, key=KEY) as server, server.client() as client:
        request = claim()
        assert told(client, request)["acquired"] is True
        primary.admin.wait(1, 5000)
        wait_until(lambda: _begins(sentinel), "the Sentinel moves the service")
        wait_until(
            lambda: (
                primary.info("replication", "role") == "slave"
                and replica.info("replication", "role") == "master"
            ),
            "the roles have changed",
        )
        wait_until(lambda: send(client, claim()).status == 200, "claims are taken again")
        assert told(client, same(request, "abandon", generation=1))["abandoned"] is True


def _begins(sentinel: Node) -> bool:
    try:
        sentinel.call("SENTINEL", "FAILOVER", SERVICE)
    except redis.ResponseError:
        return False  # no replica that it would trust yet
    return True


# -- A cluster ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Node]]:
    """Three primaries."""
    with nodes() as started:
        yield started.cluster(3)


@pytest.fixture(scope="module")
def on_cluster(cluster: list[Node]) -> Iterator[Server]:
    """A server that was told of one of them."""
    with serving(store_url=cluster[1].url, key=KEY) as server:
        yield server


def test_workflows_lie_on_every_node_of_a_cluster(cluster: list[Node], on_cluster: Server) -> None:
    """Each record is one key, so each step is one node's (decision 0002)."""
    with on_cluster.client() as client:
        requests = [claim() for _ in range(60)]
        assert all(told(client, request)["acquired"] for request in requests)
        for request in requests:
            move = {"to_stage": "uncertain", "observation_key": fresh("o")}
            moved = told(client, same(request, "transition", generation=1, **move))
            assert moved["transitioned"] is True
    counts = [len(list(node.admin.scan_iter(match=f"{KEY_PREFIX}*"))) for node in cluster]
    assert sum(counts) >= 60
    assert min(counts) > 0


def test_the_nodes_of_a_cluster_are_not_asked_for_their_role(
    cluster: list[Node], on_cluster: Server
) -> None:
    """A step is sent on by MOVED, where a connection to a replica would be given up with it."""
    with on_cluster.client() as client:
        assert told(client, claim())["acquired"] is True
    assert not any("cmdstat_role" in node.admin.info("commandstats") for node in cluster)


def test_an_operator_pauses_a_cluster_by_any_node(cluster: list[Node], on_cluster: Server) -> None:
    """WC-ERR-7: the flag lies in one slot, wherever that is."""

    def command(name: str, node: Node) -> None:
        process = start_process([name, "--valkey-url", node.url], env=environment(), command=CLI)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0, (out, err)

    with on_cluster.client() as client:
        command("pause", cluster[0])
        assert code(send(client, claim())) == "TOOL_PAUSED"
        command("resume", cluster[2])
        assert told(client, claim())["acquired"] is True
    assert not any(node.admin.keys(FLAG_KEY) for node in cluster)


def test_slots_move_under_load_and_no_claim_is_given_twice(
    cluster: list[Node], on_cluster: Server
) -> None:
    """WC-CONC-2: there and back again, with other holders asking all the while."""
    ends = threading.Event()
    requests = [claim() for _ in range(40)]
    with on_cluster.client() as client:
        for request in requests:
            told(client, request)
    slots = {
        int(node.call("CLUSTER", "KEYSLOT", key)): number
        for number, node in enumerate(cluster)
        for key in node.admin.scan_iter(match=f"{KEY_PREFIX}{{*")
    }

    def ask(number: int) -> set[Any]:
        seen: set[Any] = set()
        with on_cluster.client() as client:
            while not ends.is_set():
                request = requests[number % len(requests)]
                answer = json.loads(send(client, {**request, "holder": fresh("h")}).body)
                seen.add(answer.get("code") or ("acquired", answer["generation"]))
                number += 1
        return seen

    with ThreadPoolExecutor(4) as background:
        asking = [background.submit(ask, number) for number in range(4)]
        try:
            for slot, number in list(slots.items())[:SLOTS_MOVED]:
                there = (number + 1) % len(cluster)
                move_slot(slot, cluster[number], cluster[there], cluster)
                move_slot(slot, cluster[there], cluster[number], cluster)
        finally:
            ends.set()
        seen = set().union(*(one.result() for one in asking))
    # DEPENDENCY_UNAVAILABLE where a slot moved on between two redirections.
    assert seen <= {"CHECKPOINT_NOT_HELD", "DEPENDENCY_UNAVAILABLE"}
    assert "CHECKPOINT_NOT_HELD" in seen
    with on_cluster.client() as client:
        assert all(told(client, request)["reused"] for request in requests)


def test_a_node_that_is_lost_comes_back_as_its_replica(started: Nodes) -> None:
    """Its own workflows are unavailable meanwhile; nothing that was acknowledged is lost."""
    members = started.cluster(3, replicas=3)
    requests = [claim() for _ in range(30)]
    waiting = serving("--wait-replicas", "1", store_url=members[0].url, key=KEY)
    with waiting as server, server.client() as client:
        assert all(told(client, request)["acquired"] for request in requests)
    # From here on without: the one that takes over has no replica of its own.
    with serving(store_url=members[0].url, key=KEY) as server, server.client() as client:
        assert all(told(client, request)["reused"] for request in requests)
        members[2].kill()
        answers = [send(client, request) for request in requests]
        codes = {code(answer) for answer in answers}
        assert codes == {None, "DEPENDENCY_UNAVAILABLE"}
        assert client.exchange("GET", HEALTH_PATH).answer.status == 503  # type: ignore[union-attr]
        wait_until(
            lambda: members[5].info("replication", "role") == "master", "its replica took over"
        )
        wait_until(
            lambda: all(send(client, request).status == 200 for request in requests),
            "every workflow is decided again",
        )
        assert all(told(client, request)["reused"] for request in requests)
        assert client.exchange("GET", HEALTH_PATH).answer.status == 200  # type: ignore[union-attr]
