"""The proxy that makes a right server wrong is HTTP as it should be, in all that is not wrong."""

import socket

import pytest
from modelled import model_at_url

from checkpoint_conformance.client import HttpAnswer, Lost
from checkpoint_conformance.mutants.proxy import Forward, Message


@pytest.mark.parametrize(
    ("error", "told"), [(ConnectionResetError(), ""), (RuntimeError("a fault"), "a fault")]
)
def test_a_connection_that_ended_is_no_news(
    error: Exception, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A check that ends at its first fault hangs up on the rest; any other error is told."""

    def serve(_: Message, __: Forward) -> HttpAnswer:
        raise error

    with model_at_url(serve) as target, target.client() as client:
        # The connection ends after the proxy has said whatever it says.
        assert isinstance(client.exchange("POST", "/x", b"{}").answer, Lost)
    said = capfd.readouterr().err
    assert told in said
    assert bool(told) is bool(said)


def retold(message: Message, _: Forward) -> HttpAnswer:
    """What of a request arrived."""
    told = f"{message.method} {message.path} {message.headers.get('x')} ".encode("latin-1")
    return HttpAnswer(status=200, headers=(("x", "y"),), body=told + message.body)


def answer_of(body: str) -> bytes:
    """A whole answer of ``retold``."""
    head = f"HTTP/1.1 200 \r\nx: y\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode("latin-1")


LAST = "GET /end HTTP/1.1\r\nconnection: close\r\n\r\n"
ENDED = answer_of("GET /end None ")


@pytest.mark.parametrize(
    ("sent", "came"),
    [
        ("", b""),
        ("OPTIONS /a?b HTTP/1.1\r\nX: \xe9\r\n\r\n", answer_of("OPTIONS /a?b \xe9 ")),
        (
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            answer_of("POST / None abc"),
        ),
        (
            "PUT / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\na",
            b"HTTP/1.1 100 Continue\r\n\r\n" + answer_of("PUT / None a"),
        ),
        (
            "HEAD / HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 200 \r\nx: y\r\ncontent-length: 12\r\n\r\n",
        ),
    ],
    ids=["nothing", "options", "chunked", "expecting", "head"],
)
@pytest.mark.parametrize("at_a_time", [1, 1000])
def test_requests_arrive_as_they_are(sent: str, came: bytes, at_a_time: int) -> None:
    """Whatever the method, in whatever pieces, until a request is the last one."""
    until_closed = (sent + LAST).encode("latin-1")
    assert exchanged(until_closed, at_a_time, LAST.encode("latin-1")) == came + ENDED


def exchanged(sent: bytes, at_a_time: int, behind: bytes) -> bytes:
    """All that comes back until the connection is closed.

    Args:
        sent: what is sent in pieces; the connection is closed for its last byte.
        at_a_time: how long a piece is, in bytes.
        behind: what arrives together with the last piece. In pieces of its own it might arrive
            at a connection that is closed, and what came back would be lost with it.
    """
    pieces = [sent[start : start + at_a_time] for start in range(0, len(sent), at_a_time)]
    pieces[-1] += behind
    with (
        model_at_url(retold) as target,
        socket.create_connection((target.address.host, target.address.port), 20) as connection,
        connection.makefile("rb") as answers,
    ):
        for piece in pieces:
            connection.sendall(piece)
        return answers.read()


def test_what_is_no_request_is_refused() -> None:
    """After what was one."""
    sent = b"GET / HTTP/1.1\r\n\r\nn"
    refused = b"HTTP/1.1 400 \r\ncontent-length: 0\r\n\r\n"
    assert exchanged(sent, 1, b"othing of the kind\r\n\r\n") == answer_of("GET / None ") + refused
