"""Section 14: each control, what it refuses, where it cannot be reached, and that it is undone."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio
from real_server import (
    OwnStore,
    Server,
    claim,
    fresh,
    get,
    own_store,
    same,
    send,
    serving,
    status,
    told,
)

from checkpoint_conformance.client import JSON_HEADERS, Client, HttpAnswer
from checkpoint_lua import KEY_PREFIX
from checkpoint_model import format_timestamp, parse_timestamp
from checkpoint_model.vocabulary import HEALTH_PATH, TOOL_PATH
from checkpoint_reference_server.controls import CONTROLLED_SLACK_MS, LATEST_NOW_MS
from checkpoint_reference_server.switch import FLAG_AGE_SECONDS_MAX, FLAG_KEY, Switch

PATHS = ("/clock", "/pause", "/rate-limit", "/dependency", "/reset")
GOOD: dict[str, dict[str, Any]] = {
    "/clock": {"advance_ms": 0, "freeze": False},
    "/pause": {"paused": False},
    "/rate-limit": {"remaining": None},
    "/dependency": {"available": True},
    "/reset": {},
}
HOUR_MS = 3600 * 1000


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore) -> Iterator[Server]:
    """One server with controls for this file."""
    with serving("--test-controls", store_url=own.url) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A connection for each test."""
    with server.client() as client:
        yield client


@pytest.fixture
def controls(server: Server, own: OwnStore) -> Iterator[Client]:
    """The controls on an empty store, reset afterwards."""
    own.admin.flushdb()
    with server.controls() as controls:
        yield controls
        assert told(controls, {}, path="/reset") == {}


def clock(controls: Client, **members: Any) -> int:
    """Set the clock; the time that it shows."""
    answered = told(controls, members, path="/clock")
    assert list(answered) == ["now"]
    return parse_timestamp(answered["now"])


def store_ms(own: OwnStore) -> int:
    """The store's own clock."""
    seconds, microseconds = own.admin.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def observed(client: Client, request: dict[str, Any]) -> int:
    """The time of a step."""
    return parse_timestamp(told(client, request)["observed_at"])


def record_key(own: OwnStore) -> str:
    """The one key of the one record."""
    (key,) = own.admin.scan_iter(match=f"{KEY_PREFIX}{{*")
    return str(key)


# -- The clock ----------------------------------------------------------------------------


def test_unset_the_clock_is_the_store_s(client: Client, controls: Client, own: OwnStore) -> None:
    """WC-CTL-1, WC-TIME-1: asking for it changes nothing."""
    before = store_ms(own)
    shown = clock(controls)
    seen = observed(client, status(claim()))
    assert before <= shown <= seen <= store_ms(own)


def test_a_frozen_clock_stands_still(client: Client, controls: Client) -> None:
    """WC-CTL-1: every step is at the same millisecond, whenever it is made."""
    now_ms = clock(controls, freeze=True)
    request = claim()
    assert {observed(client, r) for r in (request, status(request), claim())} == {now_ms}
    assert clock(controls) == now_ms


def test_shifts_of_a_frozen_clock_add_up(client: Client, controls: Client) -> None:
    """WC-CTL-1: to the millisecond, and a claim is gone at its very deadline (WC-TIME-2)."""
    start_ms = clock(controls, freeze=True)
    request = claim(claim_ttl_seconds=60, state_ttl_seconds=600)
    told(client, request)
    assert clock(controls, advance_ms=59_998) == start_ms + 59_998
    assert clock(controls, advance_ms=1) == start_ms + 59_999
    assert told(client, status(request))["claim_active"] is True
    assert clock(controls, advance_ms=1) == start_ms + 60_000
    assert told(client, status(request))["claim_active"] is False
    assert clock(controls, advance_ms=539_999) == start_ms + 599_999
    assert told(client, status(request))["stage"] == "claimed"
    assert clock(controls, advance_ms=1) == start_ms + 600_000
    assert told(client, status(request))["code"] == "CHECKPOINT_NOT_FOUND"


def test_a_clock_set_back_does_not_undo_a_change(client: Client, controls: Client) -> None:
    """WC-CTL-1 possibly negative, WC-TIME-4: the time of the last change is used."""
    start_ms = clock(controls, freeze=True)
    request = claim()
    told(client, request)
    assert clock(controls, advance_ms=-5_000) == start_ms - 5_000
    assert observed(client, status(request)) == start_ms
    assert observed(client, status(claim())) == start_ms - 5_000


def test_a_clock_that_runs_on_runs_from_where_it_stood(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-CTL-1: frozen an hour ahead and let go, it is an hour ahead and running."""
    frozen_ms = clock(controls, advance_ms=HOUR_MS, freeze=True)
    before = store_ms(own)
    shown = clock(controls, freeze=False)
    after = store_ms(own)
    assert shown == frozen_ms
    seen = observed(client, status(claim()))
    later = store_ms(own)
    # It stood at `frozen_ms` when the store's clock read something from `before` to `after`.
    assert frozen_ms + 0 <= seen <= frozen_ms + (later - before)
    assert seen - frozen_ms <= later - before
    assert after >= before


def test_a_running_clock_can_be_shifted(client: Client, controls: Client, own: OwnStore) -> None:
    """WC-CTL-1: without being frozen, and back."""
    before = store_ms(own)
    shown = clock(controls, advance_ms=HOUR_MS)
    assert before + HOUR_MS <= shown <= observed(client, status(claim()))
    assert observed(client, status(claim())) <= store_ms(own) + HOUR_MS
    before = store_ms(own)
    assert before <= clock(controls, advance_ms=-HOUR_MS) <= store_ms(own)


def test_the_clock_stays_where_timestamps_can_write_it(client: Client, controls: Client) -> None:
    """WC-TIME-5: further is refused and changes nothing; the last moment works with every TTL."""
    start_ms = clock(controls, freeze=True)
    for too_far in (LATEST_NOW_MS - start_ms + 1, -start_ms - 1, 10**30, -(10**30)):
        assert send(controls, {"advance_ms": too_far}, path="/clock").status == 400
        assert clock(controls) == start_ms
    assert clock(controls, advance_ms=LATEST_NOW_MS - start_ms) == LATEST_NOW_MS
    request = claim(claim_ttl_seconds=900, state_ttl_seconds=3600)
    assert told(client, request)["state_expires_at"] == "9999-12-31T23:59:59.999Z"
    assert clock(controls, advance_ms=-LATEST_NOW_MS) == 0
    assert told(client, claim())["observed_at"] == format_timestamp(0)


# -- Native expiry under a clock that is not the store's ----------------------------------


def test_a_record_does_not_vanish_under_a_frozen_clock(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-CTL-6: neither one made before the clock was frozen nor one made since."""
    for order in ("claim first", "freeze first"):
        own.admin.flushdb()
        told(controls, {}, path="/reset")
        request = claim(claim_ttl_seconds=1, state_ttl_seconds=2)
        if order == "claim first":
            told(client, request)
        now_ms = clock(controls, freeze=True)
        ends_ms = parse_timestamp(told(client, request)["state_expires_at"])
        left_ms = ends_ms - now_ms
        kept_ms = own.admin.pttl(record_key(own))
        assert HOUR_MS < kept_ms <= left_ms + CONTROLLED_SLACK_MS, order


def test_native_expiry_is_never_more_than_an_hour_late(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-CTL-6: however often the clock is taken and given back."""
    request = claim(claim_ttl_seconds=60, state_ttl_seconds=600)
    told(client, request)
    for _ in range(3):
        clock(controls, freeze=True)
        assert own.admin.pttl(record_key(own)) <= 600_000 + CONTROLLED_SLACK_MS
        told(controls, {}, path="/reset")


def test_a_shift_counts_as_life_that_is_gone(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-CTL-6: an hour later than what is left of the record's life by the shifted clock."""
    told(client, claim(claim_ttl_seconds=60, state_ttl_seconds=600))
    clock(controls, advance_ms=500_000)
    assert HOUR_MS < own.admin.pttl(record_key(own)) <= 100_000 + CONTROLLED_SLACK_MS


@pytest.mark.parametrize("given_back", ["/reset", "/clock"])
def test_unshifted_again_native_expiry_is_the_deadline(
    client: Client, controls: Client, own: OwnStore, given_back: str
) -> None:
    """WC-CTL-6: while the clock runs unshifted, it is as WC-PRIV-3 says, for every record."""
    before = told(client, claim())["state_expires_at"]
    clock(controls, advance_ms=1_000)
    since = told(client, claim())["state_expires_at"]
    if given_back == "/reset":
        told(controls, {}, path="/reset")
    else:
        clock(controls, advance_ms=-1_000)
    keys = own.admin.scan_iter(match=f"{KEY_PREFIX}{{*")
    assert sorted(own.admin.pexpiretime(key) for key in keys) == [
        parse_timestamp(before),
        parse_timestamp(since),
    ]


def test_a_record_of_a_shifted_clock_stays_when_it_is_reset(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-CTL-5, WC-TIME-4: held at its last change until real time has caught up."""
    made_ms = clock(controls, advance_ms=10 * HOUR_MS, freeze=True)
    request = claim()
    told(client, request)
    told(controls, {}, path="/reset")
    assert observed(client, status(request)) == made_ms
    assert told(client, status(request))["claim_active"] is True
    assert own.admin.pexpiretime(record_key(own)) == made_ms + 600_000


def test_a_record_whose_time_is_over_when_the_clock_is_reset_is_gone(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-PRIV-3: made in the past, it has expired by the store's own clock."""
    clock(controls, advance_ms=-10 * HOUR_MS, freeze=True)
    request = claim()
    told(client, request)
    told(controls, {}, path="/reset")
    assert told(client, status(request))["code"] == "CHECKPOINT_NOT_FOUND"
    assert list(own.admin.scan_iter(match=f"{KEY_PREFIX}{{*")) == []


# -- Pause, limit, dependency, reset ------------------------------------------------------


def test_a_pause_holds_from_its_answer_on(client: Client, controls: Client) -> None:
    """WC-CTL-2, WC-ERR-7: again and again, without waiting."""
    request = claim()
    told(client, request)
    for _ in range(20):
        assert told(controls, {"paused": True}, path="/pause") == {"paused": True}
        assert told(client, claim())["code"] == "TOOL_PAUSED"
        assert told(client, request)["code"] == "TOOL_PAUSED"
        assert told(client, status(request))["stage"] == "claimed"
        assert told(controls, {"paused": False}, path="/pause") == {"paused": False}
        assert told(client, request)["reused"] is True


def test_a_paused_tool_records_work_in_flight(client: Client, controls: Client) -> None:
    """WC-ERR-7."""
    request, other = claim(), claim()
    told(client, request)
    told(client, other)
    told(controls, {"paused": True}, path="/pause")
    move = {"to_stage": "uncertain", "observation_key": fresh("o")}
    assert told(client, same(request, "transition", generation=1, **move))["transitioned"] is True
    assert told(client, same(other, "abandon", generation=1))["abandoned"] is True


def test_so_many_requests_are_admitted(client: Client, controls: Client) -> None:
    """WC-CTL-3: n more, whatever they ask, then none; `null` lifts it."""
    request = claim()
    assert told(controls, {"remaining": 3}, path="/rate-limit") == {"remaining": 3}
    assert told(client, request)["acquired"] is True
    assert told(client, status(request))["stage"] == "claimed"
    assert told(client, claim())["acquired"] is True
    for refused in (request, status(request), same(request, "abandon", generation=1)):
        answer = send(client, refused)
        assert (answer.status, json.loads(answer.body)["code"]) == (429, "RATE_LIMITED")
    assert get(client, HEALTH_PATH).status == 200
    assert told(controls, {"remaining": None}, path="/rate-limit") == {"remaining": None}
    assert told(client, status(request))["claim_active"] is True


def test_a_store_that_seems_away(client: Client, controls: Client, own: OwnStore) -> None:
    """WC-CTL-4: nothing is applied, the health says so, and it comes back."""
    request = claim()
    told(client, request)
    steps = own.steps()
    assert told(controls, {"available": False}, path="/dependency") == {"available": False}
    for refused in (claim(), status(request), same(request, "abandon", generation=1)):
        answer = send(client, refused)
        assert (answer.status, json.loads(answer.body)["code"]) == (503, "DEPENDENCY_UNAVAILABLE")
    assert get(client, HEALTH_PATH).status == 503
    assert own.steps() == steps
    assert told(controls, {"available": True}, path="/dependency") == {"available": True}
    assert get(client, HEALTH_PATH).status == 200
    assert told(client, status(request))["claim_active"] is True


def test_a_reset_undoes_everything_and_keeps_the_records(
    client: Client, controls: Client, own: OwnStore
) -> None:
    """WC-CTL-5."""
    request = claim()
    told(client, request)
    clock(controls, advance_ms=HOUR_MS, freeze=True)
    told(controls, {"paused": True}, path="/pause")
    told(controls, {"remaining": 0}, path="/rate-limit")
    told(controls, {"available": False}, path="/dependency")
    before = store_ms(own)
    assert told(controls, {}, path="/reset") == {}
    assert told(client, request)["reused"] is True
    assert before <= observed(client, status(request)) <= store_ms(own)
    assert get(client, HEALTH_PATH).status == 200
    assert own.admin.exists(FLAG_KEY) == 0


# -- What is refused ----------------------------------------------------------------------


NO_BOOLEANS: list[Any] = [1, 0, "true", None, []]
WRONG: dict[tuple[str, str], list[Any]] = {
    ("/clock", "advance_ms"): ["1", None, True, 1.5, [], {}, ""],
    ("/clock", "freeze"): NO_BOOLEANS,
    ("/pause", "paused"): NO_BOOLEANS,
    ("/rate-limit", "remaining"): [-1, "1", True, False, 1.5, []],
    ("/dependency", "available"): NO_BOOLEANS,
}
BAD = [
    *((path, body) for path in PATHS for body in ("", "[]", "null", "1", '"x"', "{", "{}{}")),
    *((path, json.dumps({**GOOD[path], "more": 1})) for path in PATHS),
    *((path, "{}") for path in ("/pause", "/rate-limit", "/dependency")),
    *(
        (path, json.dumps({member: value}))
        for (path, member), values in WRONG.items()
        for value in values
    ),
    ("/clock", "[" * 100_000),
]


@pytest.mark.parametrize(("path", "body"), BAD)
def test_other_members_are_400_without_a_code(
    client: Client, controls: Client, path: str, body: str
) -> None:
    """Section 14: and nothing has changed."""
    answer = send(controls, body.encode(), path=path)
    assert answer.status == 400
    members = json.loads(answer.body)
    assert isinstance(members, dict)
    assert "code" not in members
    assert told(client, claim())["acquired"] is True


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_controls_are_posted(controls: Client, path: str, method: str) -> None:
    """Section 14."""
    answer = controls.exchange(method, path, b"{}", JSON_HEADERS).answer
    assert isinstance(answer, HttpAnswer)
    assert (answer.status, answer.header("allow")) == (405, "POST")


# -- Who can reach what -------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_the_controls_are_not_on_the_public_listener(
    client: Client, server: Server, path: str
) -> None:
    """Section 14: whatever a request says of where it is meant for."""
    assert server.controls_url is not None
    forged = ("host", server.controls_url.removeprefix("http://"))
    for headers in [JSON_HEADERS, (*JSON_HEADERS, ("x-forwarded-host", forged[1]), ("via", "1"))]:
        assert send(client, GOOD[path], headers, path=path).status == 404
    absolute = f"{server.controls_url}{path}"
    answer = client.exchange("POST", absolute, b"{}", JSON_HEADERS).answer
    assert isinstance(answer, HttpAnswer)
    assert answer.status in (400, 404)


def test_the_tool_is_not_on_the_controls_listener(controls: Client) -> None:
    """Nobody mistakes one for the other."""
    assert send(controls, claim(), path=TOOL_PATH).status == 404
    assert get(controls, HEALTH_PATH).status == 404


def test_the_controls_listen_on_loopback_alone(server: Server) -> None:
    """Section 14: never on a public listener."""
    assert server.controls_url is not None
    assert server.controls_url.startswith("http://127.0.0.1:")


def test_without_the_option_there_are_none(own: OwnStore) -> None:
    """Section 14: off unless the operator turns them on."""
    with serving(store_url=own.url) as server, server.client() as client:
        assert server.controls_url is None
        for path in PATHS:
            assert send(client, GOOD[path], path=path).status == 404


SAME_PORT = """
from checkpoint_reference_server import serving
from checkpoint_reference_server.commands import serve
listen, given = serving._listen, []
def listen_at_one_port(host, port):
    given.append(listen(host, serving._port(given[0]) if given else port))
    return given[-1]
serving._listen = listen_at_one_port
serve()
"""


def test_a_public_address_with_the_controls_port_is_still_public(own: OwnStore) -> None:
    """The kernel gives ports for each address: two addresses may have the same one."""
    try:
        socket.create_server(("127.0.0.2", 0)).close()
    except OSError:
        pytest.skip("not run: 127.0.0.2 is no address of this machine")
    command = (sys.executable, "-c", SAME_PORT)
    arguments = ("--test-controls", "--host", "127.0.0.2")
    with (
        serving(*arguments, store_url=own.url, command=command) as server,
        server.client() as client,
        server.controls() as controls,
    ):
        assert client.address.port == controls.address.port
        assert client.address.host != controls.address.host
        assert send(client, {}, path="/reset").status == 404
        assert told(client, claim())["acquired"] is True
        assert told(controls, {}, path="/reset") == {}
        assert send(controls, claim()).status == 404


# -- The switch by itself -----------------------------------------------------------------


class _Late(redis.asyncio.Redis):
    """A real client whose first answer is handed on only when it is told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def exists(self, *names: Any) -> Any:
        answer = await super().exists(*names)
        if not self.asked.is_set():
            self.asked.set()
            await self.go_on.wait()
        return answer


def test_an_answer_from_before_a_pause_is_not_remembered_after_it(own: OwnStore) -> None:
    """It was asked before, came after, and would let claims through for another second."""

    async def story() -> list[bool]:
        store = _Late.from_pool(redis.asyncio.ConnectionPool.from_url(own.url))
        assert isinstance(store, _Late)
        switch = Switch(store, monotonic_seconds=lambda: 0.0)
        early = asyncio.create_task(switch.paused())
        await store.asked.wait()
        await store.set(FLAG_KEY, "1")
        switch.forget()
        seen = [await switch.paused()]
        store.go_on.set()
        await early
        seen.append(await switch.paused())
        await store.delete(FLAG_KEY)
        await store.aclose()
        return seen

    assert asyncio.run(story()) == [True, True]


def test_the_switch_is_read_anew_when_its_age_is_reached(own: OwnStore) -> None:
    """What was read holds for less than ``FLAG_AGE_SECONDS_MAX``, and no read is made before."""
    now = [100.0]

    async def story() -> list[bool]:
        async with redis.asyncio.Redis.from_url(own.url) as store:
            switch = Switch(store, monotonic_seconds=lambda: now[0])
            seen = [await switch.paused()]
            await store.set(FLAG_KEY, "1")
            for age in (FLAG_AGE_SECONDS_MAX - 0.001, FLAG_AGE_SECONDS_MAX):
                now[0] = 100.0 + age
                seen.append(await switch.paused())
            await store.delete(FLAG_KEY)
            return seen

    assert asyncio.run(story()) == [False, False, True]
