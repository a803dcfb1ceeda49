"""Harm that is drawn: what a network, a gateway or a broken server may do to any exchange.

Two kinds of it. What only loses answers breaks no rule, whatever it takes away: a run says then
that it could not see enough. What changes answers breaks rules, and which ones is not foreseen.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final

from refusals import BAD_GATEWAY, refusing

from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering

_VALUES: Final[tuple[object, ...]] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 10**400, "", "x" * 5000, "\0", "\ud800"),
    *([], {}, [[[]]], {"a": {"b": []}}, "9999-12-31T23:59:59.999Z", "0000-00-00T00:00:00Z"),
)
_BODIES: Final = (
    *(b"", b"null", b"[]", b"{}", b"\xff\xfe", b"NaN", b"1" * 6000, b'{"stage": 1e999}'),
    *(b"[" * 100_000, b'{"a":' * 5_000, b"\xef\xbb\xbf{}", b"\0" * 10),
)
_NAMES: Final = ("content-type", "retry-after", "cache-control", "allow", "mcp-session-id", "date")
_SAID: Final = (
    *("", "text/html", "application/json; charset=utf-16", "-1", "1e9", "9" * 20, "soon"),
    *("\xff", "gzip", "no-store, no-store", "a" * 7000),
)


# -- what only loses answers ---------------------------------------------------------------


def silent(draw: Random) -> Tamper:
    """Hang up on everything from some request on."""
    since = draw.choice((0, 1, 3, 10, 51, 100, 200, 400, 800, 1500))
    return _away(lambda number: number >= since)


def in_phases(draw: Random) -> Tamper:
    """Be away for some requests, and there for twice as many."""
    length = draw.choice((1, 4, 6, 20, 100, 500))
    return _away(lambda number: number // length % 3 == 1)


def _away(is_away: Callable[[int], bool]) -> Tamper:
    seen = count()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if is_away(next(seen)):
            raise ConnectionAbortedError
        return forward(message)

    return tamper


def flaky(draw: Random) -> Tamper:
    """Lose one exchange in some, its request or its answer."""
    share = draw.choice((0.001, 0.005, 0.02))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if draw.random() >= share:
            return forward(message)
        if draw.random() < 0.5:
            forward(message)
        raise ConnectionAbortedError

    return tamper


def behind_a_gateway(draw: Random) -> Tamper:
    """Answer one request in some without looking at it: a gateway does, or a store is away."""
    share = draw.choice((0.001, 0.005, 0.02))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if draw.random() >= share:
            return forward(message)
        refusals = [BAD_GATEWAY]
        if message.is_to_tool:
            refusals += [refusing("DEPENDENCY_UNAVAILABLE", 503), refusing("RATE_LIMITED", 429)]
        return draw.choice(refusals)

    return tamper


# -- what changes them -----------------------------------------------------------------------


def corrupt(draw: Random) -> Tamper:
    """Change one answer in some: its status, its headers, its body."""
    share = draw.choice((0.001, 0.01, 0.05, 0.2))

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        return draw.choice(_CHANGES)(draw, answer) if draw.random() < share else answer

    return tamper


def _other_status(draw: Random, answer: HttpAnswer) -> HttpAnswer:
    return replace(answer, status=draw.choice((200, 204, 302, 304, 400, 404, 429, 500, 599, 999)))


def _other_header(draw: Random, answer: HttpAnswer) -> HttpAnswer:
    name = draw.choice(_NAMES)
    kept = tuple(header for header in answer.headers if header[0].lower() != name)
    if draw.random() < 0.2:
        return replace(answer, headers=kept)
    beside = answer.headers if draw.random() < 0.3 else kept
    return replace(answer, headers=(*beside, (name, draw.choice(_SAID))))


def _other_body(draw: Random, answer: HttpAnswer) -> HttpAnswer:
    return replace(answer, body=draw.choice(_BODIES))


def _cut_off(draw: Random, answer: HttpAnswer) -> HttpAnswer:
    return replace(answer, body=answer.body[: draw.randrange(len(answer.body) + 1)])


def _other_bytes(draw: Random, answer: HttpAnswer) -> HttpAnswer:
    body = bytearray(answer.body)
    for _ in range(draw.randrange(1, 5)):
        if body:
            body[draw.randrange(len(body))] = draw.randrange(256)
    return replace(answer, body=bytes(body))


def _other_member(draw: Random, answer: HttpAnswer) -> HttpAnswer:
    """Also one deeper down, such as in the result of an MCP call."""
    try:
        whole = json.loads(answer.body)
    except ValueError:
        return answer
    members = whole
    while isinstance(members, dict) and members:
        name = draw.choice(list(members))
        if draw.random() < 0.2:
            del members[name]
            break
        if not isinstance(members[name], dict) or draw.random() < 0.3:
            members[name] = draw.choice(_VALUES)
            break
        members = members[name]
    return replace(answer, body=json.dumps(whole).encode())


_CHANGES: Final[tuple[Callable[[Random, HttpAnswer], HttpAnswer], ...]] = (
    *(_other_status, _other_header, _other_body, _cut_off, _other_bytes),
    *(_other_member, _other_member, _other_member),
)

LOSING: Final = (silent, in_phases, flaky, behind_a_gateway)
CHANGING: Final = (corrupt,)


@contextmanager
def harmed(
    address: Address, controls: Address, harm: Callable[[Random], Tamper], seed: int
) -> Iterator[tuple[Address, Address]]:
    """A server and its controls behind one harm."""
    tamper = harm(Random(seed))
    with tampering(address, tamper) as first, tampering(controls, tamper) as second:
        yield first, second
