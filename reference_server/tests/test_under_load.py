"""What a server that has much to do is spared, counted in turns and objects rather than seconds."""

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import uvloop
from real_server import SECONDS_MAX

from checkpoint_reference_server import serving

CONNECTIONS = 4 * serving.ACCEPTED_AT_ONCE


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector of cycles is as it was afterwards."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


async def turns_that_let_in(listeners: list[socket.socket], port: int) -> Counter[int]:
    """In which turns of the event loop how many of the waiting connections were let in."""
    loop = asyncio.get_running_loop()
    turn, let_in, done = 0, Counter[int](), asyncio.Event()

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    class Visitor(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            let_in[turn] += 1
            transport.close()
            if let_in.total() == CONNECTIONS:
                done.set()

    with ExitStack() as waiting:
        for _ in range(CONNECTIONS):
            waiting.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS_MAX))
        servers = [await loop.create_server(Visitor, sock=listener) for listener in listeners]
        count()
        async with asyncio.timeout(SECONDS_MAX):
            await done.wait()
        for server in servers:
            server.close()
            await server.wait_closed()
    return let_in


def test_waiting_connections_are_let_in_by_many_at_a_time() -> None:
    """Not one for each turn, which is long where many connections are busy."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        shared = serving._shared(listener, stack)
        let_in = uvloop.run(turns_that_let_in(shared, listener.getsockname()[1]))
    assert set(let_in.values()) == {serving.ACCEPTED_AT_ONCE}


@pytest.mark.usefixtures("collector")
def test_the_collector_leaves_alone_what_stays() -> None:
    """Before the first request: what there is then is not looked through again."""
    here: list[object] = []
    here.append(here)
    serving._collect_seldom()
    frozen = gc.get_freeze_count()
    assert frozen > serving.COLLECT_AFTER_OBJECTS
    assert not any(one is here for one in gc.get_objects())
    assert gc.get_threshold()[0] == serving.COLLECT_AFTER_OBJECTS
