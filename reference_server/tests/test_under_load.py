"""What a server that has much to do is spared, counted in turns and objects rather than seconds."""

import asyncio
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack

import uvloop
from real_server import SECONDS_MAX

from checkpoint_reference_server import serving

CONNECTIONS = 4 * serving.ACCEPTED_AT_ONCE


COLLECTOR = """
import gc
from checkpoint_reference_server import serving

here = []
here.append(here)
serving._collect_seldom()
print(gc.get_freeze_count(), any(one is here for one in gc.get_objects()), gc.get_threshold()[0])
"""


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


def test_the_collector_leaves_alone_what_stays() -> None:
    """Before the first request: what there is then is not looked through again."""
    command = [sys.executable, "-c", COLLECTOR]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    frozen, looked_at, objects = done.stdout.split()
    assert int(frozen) > serving.COLLECT_AFTER_OBJECTS
    assert (looked_at, objects) == ("False", str(serving.COLLECT_AFTER_OBJECTS))
