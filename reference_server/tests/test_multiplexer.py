"""One connection for many requests: who gets which answer, and what becomes of them without one.

On a server that says what the test wants it to, byte by byte; the real store is in the tests of
faults and of fail-overs.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio as redis
import trustme
import uvloop
from real_server import claim, status
from redis.asyncio.connection import AbstractConnection

from checkpoint_lua import loader
from checkpoint_model.vocabulary import DEPENDENCY_ANSWER_SECONDS_MAX, HMAC_KEY_BYTES_MIN
from checkpoint_reference_server import multiplexer
from checkpoint_reference_server.digests import Digests
from checkpoint_reference_server.gate import Caller
from checkpoint_reference_server.multiplexer import (
    COMMANDS_IN_A_WRITE,
    COMMANDS_MAX,
    STORE_ANSWER_SECONDS_MAX,
    STORE_CONNECT_SECONDS_MAX,
    Multiplexer,
    ReplicasMissingError,
)
from checkpoint_reference_server.steps import SingleSteps
from checkpoint_reference_server.tool import Tool

KEY = "wc:{workflow}"
PRIMARY = b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
REPLICA = b"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:0\r\n"
Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def store(
    *conversations: Conversation, authority: trustme.CA | None = None, hangs_up: bool = False
) -> AsyncIterator[Callable[[], AbstractConnection]]:
    """A server that holds one conversation after the other, each on a connection of its own.

    Behind the first command on each, which asks for its role and is answered: a primary's. With an
    authority, it speaks TLS by a certificate of that one's; one that hangs up says nothing at all.
    """
    left = list(conversations)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if hangs_up:
                return
            assert await _words(reader) == ["ROLE"]
            writer.write(PRIMARY)
            await left.pop(0)(reader, writer)
        finally:
            writer.close()

    tls = None
    trusted: dict[str, Any] = {}
    if authority is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        trusted = {"ssl_ca_data": authority.cert_pem.bytes().decode()}
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()

    def connection() -> AbstractConnection:
        # Old enough a protocol to begin with no conversation of its own.
        kind = redis.Connection if authority is None else redis.SSLConnection
        return kind(
            host=host, port=port, protocol=2, driver_info=None, decode_responses=True, **trusted
        )

    try:
        yield connection
    finally:
        server.close()
        await server.wait_closed()


async def commands(reader: asyncio.StreamReader, count: int) -> list[list[str]]:
    """The next commands, each as its words."""
    return [await _command(reader) for _ in range(count)]


async def _command(reader: asyncio.StreamReader) -> list[str]:
    while (words := await _words(reader)) == ["ROLE"]:
        reader._transport.write(PRIMARY)  # type: ignore[attr-defined]  # it is asked now and then
    return words


async def _words(reader: asyncio.StreamReader) -> list[str]:
    words = []
    for _ in range(int((await reader.readline())[1:])):
        await reader.readline()
        words.append((await reader.readline())[:-2].decode())
    return words


def test_each_gets_its_own_answer_and_one_turn_is_one_write() -> None:
    """In the order of the commands, whoever waits for them."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        assert first.count(b"ECHO") == 3
        writer.write(b":1\r\n-ERR no\r\n:3\r\n")

    async def run() -> list[object]:
        async with store(conversation) as connection:
            one = Multiplexer(connection)
            futures = [one.send("ECHO", number) for number in range(3)]
            answers = await asyncio.gather(*futures, return_exceptions=True)
            await one.aclose()
            return list(answers)

    first, refused, third = asyncio.run(run())
    assert (first, third) == (1, 3)
    assert isinstance(refused, redis.ResponseError)


@pytest.mark.parametrize(
    ("wait_replicas", "in_writes"),
    [(0, [COMMANDS_IN_A_WRITE, COMMANDS_IN_A_WRITE, 2]), (1, [2 * COMMANDS_IN_A_WRITE + 2])],
)
def test_the_store_may_begin_before_a_long_turn_ends(
    wait_replicas: int, in_writes: list[int]
) -> None:
    """But where replicas are waited for, which is done once for all that was in the write."""
    count = sum(in_writes)
    writes: list[int] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(1 + count):
            assert (await _command(reader))[0] == "ECHO"
            writer.write(b":1\r\n")

    async def run() -> list[object]:
        async with store(conversation) as connection:
            one = Multiplexer(connection, wait_replicas=wait_replicas)
            await one.send("ECHO", 0)  # from now on there is a connection
            assert one._carrier is not None
            transport: Any = one._carrier._transport

            class Spied:
                def write(self, data: bytes) -> None:
                    if b"ECHO" in data:
                        writes.append(data.count(b"ECHO"))
                    transport.write(data)

            one._carrier._transport = Spied()  # type: ignore[assignment]
            answers = await asyncio.gather(*(one.send("ECHO", number) for number in range(count)))
            await one.aclose()
            return list(answers)

    assert asyncio.run(run()) == [1] * count
    assert writes == in_writes


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run])
def test_with_tls_it_is_the_same(run_loop: Callable[[Coroutine[Any, Any, object]], object]) -> None:
    """The library makes the connection, and what comes on it is read here, on either loop."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await commands(reader, 1)
        writer.write(b":1\r\n")
        await commands(reader, 1)

    async def run() -> object:
        async with store(conversation, authority=trustme.CA()) as connection:
            one = Multiplexer(connection)
            first = await one.send("FIRST")
            with pytest.raises(redis.ConnectionError, match="was lost"):
                await one.send("LAST")
            await one.aclose()
            return first

    assert run_loop(run()) == 1


def test_what_is_under_way_on_a_lost_connection_fails_and_the_next_makes_another() -> None:
    """WC-ERR-5: none of it is sent again."""
    seen: list[list[str]] = []

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await commands(reader, 2))
        writer.write(b":1\r\n")

    async def lives(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await commands(reader, 1))
        writer.write(b":3\r\n")
        await reader.read()

    async def run() -> list[object]:
        async with store(dies, lives) as connection:
            one = Multiplexer(connection)
            answers = await asyncio.gather(
                one.send("FIRST"), one.send("SECOND"), return_exceptions=True
            )
            third = await one.send("THIRD")
            await one.aclose()
            return [*answers, third]

    first, second, third = asyncio.run(run())
    assert (first, third) == (1, 3)
    assert isinstance(second, redis.ConnectionError)
    assert seen == [["FIRST"], ["SECOND"], ["THIRD"]]


def test_a_connection_that_ended_before_it_was_used_is_not_waited_for() -> None:
    """Its end was told to the library, and not again to whoever reads it from then on."""

    async def run() -> BaseException | None:
        async with store(hangs_up=True) as connection:

            def ended() -> Any:
                one: Any = connection()
                connect = one.connect

                async def until_it_ends() -> None:
                    await connect()
                    assert await one._reader.read() == b""

                one.connect = until_it_ends
                return one

            one = Multiplexer(ended)
            with pytest.raises(redis.ConnectionError, match="was lost") as lost:
                await one.send("ANYTHING")
            await one.aclose()
        return lost.value.__cause__

    assert "ended before" in str(asyncio.run(run()))


def test_an_answer_that_nobody_waits_for_any_more_is_nobody_elses() -> None:
    """A request that was given up leaves its place in the order."""

    async def run() -> object:
        given_up = asyncio.Event()

        async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await commands(reader, 2)
            await given_up.wait()
            writer.write(b":1\r\n:2\r\n")
            await reader.read()

        async with store(conversation) as connection:
            one = Multiplexer(connection)
            first, second = one.send("FIRST"), one.send("SECOND")
            first.cancel()
            given_up.set()
            answer = await second
            await one.aclose()
            return answer

    assert asyncio.run(run()) == 2


def test_silence_is_the_end_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that vanished without a word is not waited for for ever (WC-ERR-5)."""
    monkeypatch.setattr(multiplexer, "STORE_ANSWER_SECONDS_MAX", 0.05)
    monkeypatch.setattr(multiplexer, "_WATCH_SECONDS", 0.01)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        hung_up.set()

    async def run() -> None:
        async with store(silent) as connection:
            one = Multiplexer(connection)
            with pytest.raises(redis.ConnectionError, match="was lost"):
                await asyncio.wait_for(one.send("ANYTHING"), 10)
            await asyncio.wait_for(hung_up.wait(), 10)
            await one.aclose()

    hung_up = asyncio.Event()
    asyncio.run(run())


def test_no_more_is_taken_than_can_wait() -> None:
    """The queue to a store that does not answer has an end."""

    async def run() -> None:
        async with store() as connection:
            one = Multiplexer(connection)
            waiting = [one.send("PING") for _ in range(COMMANDS_MAX - len(["ROLE"]))]
            with pytest.raises(redis.ConnectionError, match="too many"):
                await one.send("PING")
            await one.aclose()
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(answer, redis.ConnectionError) for answer in answers)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("mark_and_wait", "gives"),
    [
        (b"+OK\r\n:2\r\n", 1),
        (b"+OK\r\n:1\r\n", ReplicasMissingError),
        (b"-OOM full\r\n:2\r\n", ReplicasMissingError),
    ],
)
def test_a_steps_answer_waits_for_the_replicas(mark_and_wait: bytes, gives: object) -> None:
    """Behind a mark, without which WAIT would not speak of what others wrote."""
    seen: list[list[str]] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await commands(reader, 5))
        writer.write(b":1\r\n-NOSCRIPT\r\n+PONG\r\n")
        await writer.drain()
        # What tells of no record does not wait; and only it came by now.
        assert await pong == "PONG"
        assert isinstance((await asyncio.gather(unknown, return_exceptions=True))[0], Exception)
        assert not step.done()
        writer.write(mark_and_wait)
        await reader.read()

    step: asyncio.Future[object]
    unknown: asyncio.Future[object]
    pong: asyncio.Future[object]

    async def run() -> object:
        nonlocal step, unknown, pong
        async with store(conversation) as connection:
            one = Multiplexer(connection, wait_replicas=2)
            step = one.send("EVALSHA", step_key=KEY)
            unknown = one.send("EVALSHA", step_key=KEY)
            pong = one.send("PING")
            (answer,) = await asyncio.gather(step, return_exceptions=True)
            await one.aclose()
            return answer

    answer = asyncio.run(run())
    assert answer == gives or (isinstance(gives, type) and isinstance(answer, gives))
    assert [words[0] for words in seen] == ["EVALSHA", "EVALSHA", "PING", "SET", "WAIT"]
    assert seen[3][1:] == ["wc:mark:{workflow}", "", "PX", "1000"]
    assert seen[4][1] == "2"


def test_what_was_held_is_given_up_with_the_connection() -> None:
    """An answer that came, and a primary that died before its replicas had it."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await commands(reader, 3)
        writer.write(b":1\r\n+OK\r\n")

    async def run() -> None:
        async with store(conversation) as connection:
            one = Multiplexer(connection, wait_replicas=1)
            with pytest.raises(redis.ConnectionError, match="was lost"):
                await asyncio.wait_for(one.send("EVALSHA", step_key=KEY), 10)
            await one.aclose()

    asyncio.run(run())


def test_a_server_that_is_no_primary_any_more_is_left() -> None:
    """READONLY: a name may lead to another by now."""

    async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await commands(reader, 1)
        writer.write(b"-READONLY You can't write against a read only replica.\r\n")
        assert await reader.read() == b""

    async def primary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await commands(reader, 1)
        writer.write(b":1\r\n")
        await reader.read()

    async def run() -> object:
        async with store(replica, primary) as connection:
            one = Multiplexer(connection)
            with pytest.raises(redis.ResponseError):
                await one.send("EVALSHA")
            answer = await one.send("EVALSHA")
            await one.aclose()
            return answer

    assert asyncio.run(run()) == 1


def test_a_server_that_was_made_a_replica_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it still answers what only reads: by then that may be old (WC-CONC-1)."""
    monkeypatch.setattr(multiplexer, "_WATCH_SECONDS", 0.01)

    async def demoted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await commands(reader, 1)
        writer.write(b":1\r\n")
        assert await _words(reader) == ["ROLE"]
        # Whatever was sent behind the question is answered as well, and nobody is told.
        second.append(one.send("EVALSHA", "SECOND"))
        writer.write(REPLICA + b":2\r\n")
        await reader.read()

    async def primary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await commands(reader, 1)
        writer.write(b":3\r\n")
        await reader.read()

    one: Multiplexer
    second: list[asyncio.Future[object]] = []

    async def run() -> list[object]:
        nonlocal one
        async with store(demoted, primary) as connection:
            one = Multiplexer(connection)
            first = await one.send("EVALSHA", "FIRST")
            while not second:
                await asyncio.sleep(0)
            with pytest.raises(redis.ConnectionError, match="was lost") as lost:
                await second[0]
            third = await one.send("EVALSHA", "THIRD")
            await one.aclose()
            return [first, str(lost.value.__cause__), third]

    assert asyncio.run(run()) == [1, "the server there is a replica", 3]


class ShiftedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock a test may put forward."""

    shift_seconds = 0.0

    def time(self) -> float:
        """The system's, and what it was put forward."""
        return super().time() + self.shift_seconds


def test_a_script_that_the_store_does_not_know_has_one_bound_for_both_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WC-ERR-5: not so long for NOSCRIPT and so long again for the script itself."""

    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ShiftedLoop)
        monkeypatch.setattr(loader, "monotonic", loop.time)
        asked: list[str] = []

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.extend(words[0] for words in await commands(reader, 1))
            loop.shift_seconds += STORE_ANSWER_SECONDS_MAX / 2
            writer.write(b"-NOSCRIPT No matching script.\r\n")
            asked.extend(words[0] for words in await commands(reader, 1))
            # The second alone has time left, and both together have none.
            loop.shift_seconds += STORE_ANSWER_SECONDS_MAX / 2
            await reader.read()

        async with store(slow) as connection:
            pool: Any = SimpleNamespace(make_connection=connection)
            steps = SingleSteps(pool, wait_replicas=0)
            tool = Tool(steps, Digests(bytes(HMAC_KEY_BYTES_MIN)), None)
            answer = await tool.answer(json.dumps(status(claim())).encode(), Caller(None, ""))
            assert answer.store_error == "TimeoutError"
            await steps.aclose()
        return asked

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        assert runner.run(run()) == ["EVALSHA", "EVAL"]


@pytest.mark.parametrize("answered", [1, 2])
def test_the_wait_for_replicas_counts_from_the_oldest_step(answered: int) -> None:
    """WC-ERR-5: not from when it was sent, nor from a younger step that has no answer yet."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ShiftedLoop)
        connecting_seconds = STORE_CONNECT_SECONDS_MAX * 0.95

        async def freezes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await commands(reader, 4)
            writer.write(b":1\r\n" * answered)
            assert one._carrier is not None
            while len(one._carrier._held) < answered:
                await asyncio.sleep(0)
            loop.shift_seconds += STORE_ANSWER_SECONDS_MAX - connecting_seconds
            await reader.read()

        async with store(freezes) as connection:

            def slow() -> Any:
                made: Any = connection()
                connect = made.connect

                async def in_time() -> None:
                    loop.shift_seconds += connecting_seconds
                    steps.append(one.send("SECOND", step_key=KEY))
                    await connect()

                made.connect = in_time
                return made

            one = Multiplexer(slow, wait_replicas=1)
            began = loop.time()
            steps = [one.send("FIRST", step_key=KEY)]
            with pytest.raises(redis.ConnectionError, match="was lost"):
                await steps[0]
            took_seconds = loop.time() - began
            await one.aclose()
            await asyncio.gather(*steps, return_exceptions=True)
        return took_seconds

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        took_seconds = runner.run(run())
    assert STORE_ANSWER_SECONDS_MAX < took_seconds < DEPENDENCY_ANSWER_SECONDS_MAX
