"""Bursts: what is held back, what is stamped, and every way in which an answer fails to come."""

import contextlib
import errno
import itertools
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
from raw_server import Talk, answering, http, request_of, talking

from checkpoint_conformance.client import Address, HttpAnswer, Lost, LostReason
from checkpoint_conformance.contention import in_flight_max, spread_ns
from checkpoint_conformance.history import DROPPED
from checkpoint_load.burst import (
    INTERRUPTED,
    Contender,
    Endpoint,
    Landed,
    Stop,
    burst,
)
from checkpoint_load.open_files import OpenFilesError, allow_open_files

OK = http("200 OK", b'{"a":1}')
SECONDS_MAX = 20.0


def landing(
    url: str,
    count: int = 1,
    *,
    seconds_max: float = SECONDS_MAX,
    dropped: Sequence[int] = (),
    times: int = 1,
    after_each: Callable[[], object] = lambda: None,
    headers: dict[str, str] | None = None,
) -> list[Landed]:
    """Release requests by so many contenders, and again; what came of the last."""
    address = Address.parse(url)
    contenders = [Contender(address, Endpoint(address), headers) for _ in range(count)]
    landed: list[Landed] = []
    with closing(Stop()) as stop:
        for _ in range(times):
            bodies = [b'{"n":%d}' % n for n in range(count)]
            landed = burst(contenders, bodies, seconds_max=seconds_max, stop=stop, dropped=dropped)
            after_each()
    for contender in contenders:
        contender.close()
    return landed


def _silent(connection: socket.socket) -> None:
    request_of(connection)
    connection.recv(1)  # until the other side gives up


def _chunked(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{"a"\r\n')
    connection.sendall(b"3\r\n:1}\r\n0\r\n\r\n")


def _informing(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK)


def _until_closed(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}')


def _in_pieces(connection: socket.socket) -> None:
    request_of(connection)
    for byte in OK:
        connection.sendall(bytes([byte]))


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (_silent, LostReason.TIMED_OUT),
        (answering(b""), LostReason.CLOSED),
        (answering(OK[:-1]), LostReason.CUT),
        (answering(OK[:20]), LostReason.CUT),
        (answering(b"SSH-2.0-OpenSSH_9.2\r\n"), LostReason.NOT_HTTP),
        (answering(http("200 OK", b"x" * (1 << 21))), LostReason.TOO_LONG),
    ],
)
def test_an_answer_that_does_not_come_is_lost_for_a_reason(talk: Talk, reason: str) -> None:
    """It is open to the end: there is no time at which it returned."""
    with talking(talk) as url:
        (landed,) = landing(url, seconds_max=0.4)
    assert isinstance(landed.answer, Lost)
    assert landed.answer.reason == reason
    assert landed.called_ns is not None
    assert landed.returned_ns is None


@pytest.mark.parametrize("talk", [answering(OK), _chunked, _informing, _until_closed, _in_pieces])
def test_an_answer_is_whole_however_its_length_is_told(talk: Talk) -> None:
    """By a length, in chunks, by the connection's end, after a hint, byte by byte."""
    with talking(talk) as url:
        (landed,) = landing(url)
    assert isinstance(landed.answer, HttpAnswer), landed.answer
    assert landed.answer.body == b'{"a":1}'
    assert landed.called_ns is not None
    assert landed.sent_ns is not None
    assert landed.returned_ns is not None
    assert landed.called_ns <= landed.sent_ns <= landed.returned_ns


def test_who_cannot_connect_has_called_nothing() -> None:
    """No request went out, so there is none whose outcome is unknown."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (landed,) = landing(f"http://127.0.0.1:{port}")
    assert isinstance(landed.answer, Lost)
    assert (landed.answer.reason, landed.called_ns) == (LostReason.REFUSED, None)


def test_all_but_the_last_byte_is_sent_before_the_release() -> None:
    """What the server has then is the request less one byte, and no more than that byte follows."""
    parts: list[bytes] = []
    arrived = threading.Event()

    def talk(connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b'{"n":0'):
            data += connection.recv(65536)
        parts.append(data)
        arrived.set()
        parts.append(connection.recv(65536))
        connection.sendall(OK)

    with talking(talk) as url:
        address = Address.parse(url)
        contender = Contender(address, Endpoint(address))
        while contender.open():
            pass
        event = 1
        while event:
            event = contender.advance()
        assert contender.load(b'{"n":0}') == 0
        assert arrived.wait(SECONDS_MAX)
        assert len(parts) == 1
        contender.release()
        while not contender.read():
            pass
        assert isinstance(contender.landed().answer, HttpAnswer)
        contender.close()
    assert parts[1] == b"}"


def test_all_are_in_flight_at_once() -> None:
    """A server that answers none before it has all of them answers all."""
    count = 50
    meeting = threading.Barrier(count)

    def talk(connection: socket.socket) -> None:
        request_of(connection)
        meeting.wait(SECONDS_MAX)
        connection.sendall(OK)

    with talking(talk) as url:
        landed = landing(url, count)
    assert {type(one.answer) for one in landed} == {HttpAnswer}
    assert in_flight_max(landed) == count
    stamps = [one.called_ns for one in landed if one.called_ns is not None]
    assert spread_ns(landed) == max(stamps) - min(stamps) > 0


def _policies_of_a_burst(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int]:
    """How this thread is scheduled at each release of a burst, and after it."""
    at_release: list[int] = []
    release = Contender.release

    def spied(contender: Contender) -> None:
        at_release.append(os.sched_getscheduler(0))
        release(contender)

    monkeypatch.setattr(Contender, "release", spied)
    with talking(answering(OK)) as url:
        landed = landing(url, 3)
    assert {type(one.answer) for one in landed} == {HttpAnswer}
    return at_release, os.sched_getscheduler(0)


with_priorities = pytest.mark.skipif(
    not hasattr(os, "SCHED_RR"), reason="the system has no real-time priority"
)


@with_priorities
def test_nobody_pushes_the_sender_aside_while_it_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the server that each byte wakes; before and after it is one thread among others."""
    set_scheduler = os.sched_setscheduler
    asked: list[int] = []
    usual = as_asked = os.sched_getscheduler(0)

    def granting(pid: int, policy: int, parameters: os.sched_param) -> None:
        nonlocal as_asked
        asked.append(policy)
        with contextlib.suppress(PermissionError):  # as it is for whoever is not root
            set_scheduler(pid, policy, parameters)
            as_asked = policy if policy == os.SCHED_RR else as_asked

    monkeypatch.setattr(os, "sched_setscheduler", granting)
    at_release, afterwards = _policies_of_a_burst(monkeypatch)
    assert asked == [os.SCHED_RR, usual]
    assert at_release == [as_asked] * 3
    assert afterwards == usual


@with_priorities
@pytest.mark.parametrize("lacks", ["permission", "the system call"])
def test_a_burst_goes_without_real_time_priority(
    monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Where the system has none, or grants none."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if lacks == "permission":
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
    else:
        monkeypatch.delattr(os, "sched_setscheduler")
    at_release, afterwards = _policies_of_a_burst(monkeypatch)
    assert at_release == [afterwards] * 3


def test_a_dropped_answer_is_never_read_and_its_request_is_whole() -> None:
    """The client hangs up after its last byte: the server has the request, and nobody to tell."""
    requests: list[bytes] = []
    ended = threading.Semaphore(0)

    def talk(connection: socket.socket) -> None:
        request = request_of(connection)
        requests.append(request)
        if b'{"n":1}' in request:
            assert connection.recv(1) == b""
            ended.release()
        connection.sendall(OK)

    with talking(talk) as url:
        landed = landing(url, 2, dropped=[1])
        assert ended.acquire(timeout=SECONDS_MAX)
    kept, dropped = landed
    assert isinstance(kept.answer, HttpAnswer)
    assert isinstance(dropped.answer, Lost)
    assert (dropped.answer.reason, dropped.returned_ns) == (DROPPED, None)
    assert sorted(request[-7:] for request in requests) == [b'{"n":0}', b'{"n":1}']


def test_a_stop_ends_a_burst_and_what_was_answered_is_kept() -> None:
    """What was sent and not answered is lost, not forgotten."""
    stop, others = Stop(), threading.Semaphore(0)

    def talk(connection: socket.socket) -> None:
        if b'{"n":0}' in request_of(connection):
            assert others.acquire(timeout=SECONDS_MAX)
            assert others.acquire(timeout=SECONDS_MAX)
            connection.sendall(OK)
            connection.recv(1)  # until its answer was read, and the burst is over
        else:
            others.release()
            connection.recv(1)

    def stop_once_answered() -> None:
        # The only answer comes when all requests have; what waits then waits for nothing.
        assert answered.wait(SECONDS_MAX)
        stop.set()

    answered = threading.Event()
    with talking(talk) as url:
        address = Address.parse(url)
        contenders = [Contender(address, Endpoint(address)) for _ in range(3)]
        read = contenders[0].read

        def read_and_tell() -> bool:
            done = read()
            if done:
                answered.set()
            return done

        contenders[0].read = read_and_tell  # type: ignore[method-assign]
        waiting = threading.Thread(target=stop_once_answered)
        waiting.start()
        bodies = [b'{"n":%d}' % n for n in range(3)]
        kept, *lost = burst(contenders, bodies, seconds_max=SECONDS_MAX, stop=stop)
        waiting.join()
        for contender in contenders:
            contender.close()
        stop.close()
    assert isinstance(kept.answer, HttpAnswer)
    for one in lost:
        assert isinstance(one.answer, Lost)
        assert (one.answer.reason, one.returned_ns) == (INTERRUPTED, None)
        assert one.called_ns is not None
        assert one.gave_up_ns is not None


def test_a_stop_before_the_release_releases_nothing() -> None:
    """Whoever was to drop its answer has sent nothing either."""
    stop, begun = Stop(), threading.Semaphore(0)
    whole: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        data = b""
        while b'{"n":' not in data:
            data += connection.recv(65536)
        begun.release()
        while part := connection.recv(65536):
            whole.append(part)

    def stop_once_begun() -> None:
        assert begun.acquire(timeout=SECONDS_MAX)
        assert begun.acquire(timeout=SECONDS_MAX)
        stop.set()

    with talking(talk) as url:
        address = Address.parse(url)
        contenders = [Contender(address, Endpoint(address)) for _ in range(2)]
        waiting = threading.Thread(target=stop_once_begun)
        waiting.start()
        landed = burst(
            contenders,
            [b'{"n":0}', b'{"n":1}'],
            seconds_max=SECONDS_MAX,
            stop=stop,
            dropped=[1],
            release_at_ns=time.monotonic_ns() + 60_000_000_000,
        )
        waiting.join()
        stop.close()
    assert [(one.called_ns, one.returned_ns) for one in landed] == [(None, None)] * 2
    assert whole == []


def test_a_connection_that_was_closed_while_idle_is_opened_anew() -> None:
    """Nothing had been sent on it, so nothing is sent twice."""
    connections = itertools.count()
    closed = threading.Semaphore(0)

    def talk(connection: socket.socket) -> None:
        next(connections)
        request_of(connection)
        connection.sendall(OK)
        connection.close()
        closed.release()

    with talking(talk) as url:
        (landed,) = landing(url, times=3, after_each=lambda: closed.acquire(timeout=SECONDS_MAX))
    assert isinstance(landed.answer, HttpAnswer)
    assert next(connections) == 3


def test_a_connection_is_kept_from_burst_to_burst() -> None:
    """So that a round costs no handshakes."""
    connections = itertools.count()

    def talk(connection: socket.socket) -> None:
        next(connections)
        while request_of(connection):
            connection.sendall(OK)

    with talking(talk) as url:
        landed = landing(url, 2, times=3)
    assert {type(one.answer) for one in landed} == {HttpAnswer}
    assert next(connections) == 2


def test_the_targets_headers_go_with_every_request() -> None:
    """Such as credentials."""
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        seen.append(request_of(connection))
        connection.sendall(OK)

    with talking(talk) as url:
        landing(url, 3, headers={"authorization": "Bearer x"})
    assert len(seen) == 3
    assert all(b"authorization: Bearer x\r\n" in request for request in seen)


def _stamped(*stamps: tuple[int, int, int | None]) -> list[Landed]:
    answers: list[HttpAnswer | Lost] = [
        Lost(reason="", detail="")
        if returned is None
        else HttpAnswer(status=200, headers=(), body=b"")
        for _, _, returned in stamps
    ]
    return [
        Landed(called_ns=called, sent_ns=sent, returned_ns=returned, answer=answer)
        for (called, sent, returned), answer in zip(stamps, answers, strict=True)
    ]


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        ([(1, 2, 10), (3, 4, 9), (5, 6, 8)], 3),
        ([(1, 2, 3), (4, 5, 6), (7, 8, 9)], 1),  # each was answered before the next was sent
        ([(1, 2, 5), (4, 5, 6)], 1),  # one ends as the other begins
        ([(1, 2, None), (3, 4, 9)], 1),  # what was never answered contends with nothing
        ([], 0),
    ],
)
def test_in_flight_is_counted_from_the_last_byte_sent_to_the_answer(
    stamps: list[tuple[int, int, int | None]], expected: int
) -> None:
    """Of those that were answered, the most at any one moment."""
    assert in_flight_max(_stamped(*stamps)) == expected


def test_more_open_files_than_the_hard_limit_is_an_error_that_says_so() -> None:
    """It names the limit and the way out."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system sets no limit")
    with pytest.raises(OpenFilesError, match=f"the hard limit is {hard}.*fewer --contenders"):
        allow_open_files(hard + 1)


def test_open_files_are_raised_and_never_lowered() -> None:
    """The soft limit is ours to raise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        allow_open_files(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200
        allow_open_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
