"""Bad inputs by the hundred thousand, to a server that runs: framing, JSON, headers, MCP messages.

    python reference_server/tests/fuzzing.py --inputs 100000 --seed 1

Each input is drawn from a seed of its own, made from the run's seed, its kind and its number, so
that any of them can be made again alone. Each has marks in it, and what is held of every answer:

- its status is not 5xx, but for 501, and a body with a code is a problem object of section 8;
- it has no mark in it (WC-PRIV-1); nor has, at the end, anything that the server said or stored.

And of the server: it is the same process, answers, has logged no fault, and is not much larger
than it was after a fifth of the inputs.
"""

import argparse
import asyncio
import json
import random
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from mcp_calls import REVISIONS, headers_of, message
from real_server import Server, claim, get, own_store, serving, told
from request_bodies import GOOD

from checkpoint_conformance.acceptance import members_by_action
from checkpoint_conformance.checks.inputs import _wrong_values
from checkpoint_conformance.client import Address
from checkpoint_model import schemas
from checkpoint_model.vocabulary import HEALTH_PATH, MCP_PATH, MCP_TOOL, TOOL_PATH

MARK: Final = "zqfuzz"
"""In every mark, and in nothing that the server says by itself."""
GROWTH_BYTES_MAX: Final = 16 << 20
AT_ONCE: Final = 32
NOT_IMPLEMENTED: Final = b"HTTP/1.1 501 Not Implemented\r\n"
"""What is said to a transfer coding that is not known, and no fault."""
PATIENCE_SECONDS: Final = 0.1
"""How long an answer is waited for before the client ends its side of the connection; one that
comes later is not looked at, but for what the server logs of it."""
HASTY: Final = """
from checkpoint_reference_server import protocol
from checkpoint_reference_server.commands import serve

protocol.REQUEST_SECONDS_MAX = 1.0  # else half of the time is spent on waiting for cuts
if __name__ == "__main__":
    serve()
"""
_PROBLEM: Final = jsonschema_rs.Draft202012Validator(schemas.load("problem.schema.json"))
_SCHEMAS: Final = members_by_action()
_ODD: Final = ("\x00", "\n", "\r", "\t", "\x7f", "\u00e9", "\u0661", "\ufeff", "\U0001f600", "%00")


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes for a connection of their own."""

    wire: bytes
    mark: str


Maker = Callable[[random.Random, str], bytes]


# -- JSON -------------------------------------------------------------------------------------


def good_request(draw: random.Random, mark: str) -> dict[str, Any]:
    """A request of any action, on a workflow of its own, with marks in its identifiers."""
    request = dict(GOOD[draw.choice(sorted(GOOD))])
    for member, prefix in (("workflow_key", "w"), ("holder", "h"), ("observation_key", "o")):
        if member in request:
            request[member] = f"{prefix}_{mark}{draw.randbytes(8).hex()}"
    request["namespace"] = f"n/{mark}"
    return request


def junk(draw: random.Random, mark: str, depth: int = 0) -> Any:
    """Any JSON value, with a mark where there is a place for one."""
    kinds: list[Callable[[], Any]] = [
        lambda: None,
        lambda: draw.choice((True, False)),
        lambda: draw.choice((0, -1, 1, 16, 901, 2**53, 10**30, -(10**400), 1e308, 0.5)),
        lambda: mark * draw.choice((1, 1, 2, 60)) + draw.choice(("", *_ODD)),
    ]
    if depth < 4:
        kinds.append(lambda: [junk(draw, mark, depth + 1) for _ in range(draw.randrange(4))])
        kinds.append(
            lambda: {
                f"{mark}{number}": junk(draw, mark, depth + 1)
                for number in range(draw.randrange(4))
            }
        )
    return draw.choice(kinds)()


def spoiled(draw: random.Random, mark: str) -> bytes:
    """A request that went wrong: in its members, in its text, or in its bytes."""
    request = good_request(draw, mark)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        member = draw.choice(sorted(request))
        how = draw.randrange(6)
        if how == 0:
            del request[member]
            if not request:
                break
        elif how == 1:
            request[f"{mark}{member}"] = junk(draw, mark)
        elif how == 2:
            schema = _SCHEMAS.get(str(request.get("action")), {}).get(member)
            good = GOOD.get(str(request.get("action")), {}).get(member)
            if schema is not None and repr(request[member]) == repr(good):  # 0 is not False
                request[member] = draw.choice(
                    [w for *_, w in _wrong_values(request[member], schema)]
                )
        elif how == 3:
            request["action"] = draw.choice((*sorted(GOOD), mark, "", "Claim", "claim\n"))
        else:
            request[member] = junk(draw, mark)
    return damaged(draw, mark, json.dumps(request).encode())


def damaged(draw: random.Random, mark: str, body: bytes) -> bytes:
    """Sometimes the text itself: cut, doubled, with what no JSON has, or with bytes flipped."""
    how = draw.randrange(16) if body else None
    at = draw.randrange(len(body) + 1)
    match how:
        case 0:
            return body[:at]
        case 1:
            return body + draw.choice((body, b"}", b"null", mark.encode(), b"\x00"))
        case 2:
            odd = (b"NaN", b"-Infinity", b"\xff", b"\xef\xbb\xbf", b'"\\ud800"', b"\\u0000", b"//")
            return body[:at] + draw.choice(odd) + body[at:]
        case 3:
            flipped = bytearray(body)
            for _ in range(draw.randrange(1, 6)):
                flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
            return bytes(flipped)
        case 4:
            depth = draw.choice((10, 500, 3000))
            return body.replace(
                b":", b":" + b"[" * depth + b"]" * draw.choice((0, depth)) + b",", 1
            )
        case 5:
            return body.ljust(draw.choice((8191, 8192, 8193, 20_000)))
        case 6:
            return draw.choice((b"", b"[]", b"null", b'"' + mark.encode() + b'"', b"[" * 8000))
        case 7:
            return body.decode("latin-1").encode(draw.choice(("utf-16", "utf-32", "utf-16-le")))
    return body


# -- HTTP -------------------------------------------------------------------------------------


def request_bytes(
    body: bytes,
    *headers: tuple[str, str],
    path: str = TOOL_PATH,
    method: str = "POST",
    version: str = "HTTP/1.1",
) -> bytes:
    """A request that ends its connection, whatever is in it."""
    lines = [f"{method} {path} {version}", "host: localhost", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


JSON: Final = ("content-type", "application/json")


def json_input(draw: random.Random, mark: str) -> bytes:
    """A body that went wrong, in a request that is right."""
    return request_bytes(spoiled(draw, mark), JSON)


_NAMES: Final = (
    "content-type",
    "content-encoding",
    "content-length",
    "transfer-encoding",
    "host",
    "origin",
    "authorization",
    "idempotency-key",
    "accept",
    "expect",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "cookie",
    "traceparent",
    "x-forwarded-for",
    "range",
    "if-none-match",
    "mcp-protocol-version",
)


def header_input(draw: random.Random, mark: str) -> bytes:
    """Headers that went wrong, to any path by any method, with a body that is right."""

    def value() -> str:
        return draw.choice(
            (
                mark,
                f"{mark}{draw.choice(_ODD)}{mark}",
                f"application/json; {mark}={mark}",
                f"application/json, {mark}",
                "application/json",
                f"Bearer {mark}",
                f"http://{mark}.example",
                f"{mark}.example:80",
                "100-continue",
                "chunked",
                "gzip",
                "-1",
                "close",
                f'"{mark}", *',
                mark * draw.choice((10, 300, 6000)),
                "",
                "\udcff\udcfe",
            )
        )

    names = [*_NAMES, mark, f"x-{mark}", "x y", "", "(", f"x\udcff{mark}"]
    count = draw.choice((1, 1, 2, 3, 8, 120))
    headers = [(draw.choice(names), value()) for _ in range(count)]
    if draw.random() < 0.8:
        headers.insert(0, JSON)
    paths = (TOOL_PATH, TOOL_PATH, MCP_PATH, HEALTH_PATH, "/openapi.json", "/llms.txt")
    path = draw.choice((*paths, f"/{mark}", f"{TOOL_PATH}/{mark}", f"{TOOL_PATH}?{mark}={mark}"))
    method = draw.choice(("POST", "POST", "POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD"))
    body = json.dumps(good_request(draw, mark)).encode() if method in ("POST", "PUT") else b""
    return request_bytes(body, *headers, path=path, method=method)


def framing_input(draw: random.Random, mark: str) -> bytes:
    """What is hardly HTTP any more."""
    body = json.dumps(good_request(draw, mark)).encode()
    right = request_bytes(body, JSON, (f"x-{mark}", mark))
    head, _, _ = right.partition(b"\r\n\r\n")
    without = head.rpartition(b"\r\n")[0]  # without the length
    at = draw.randrange(len(right))
    m = mark.encode()
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    sizes = (b"-1", b"zz", b"f" * 17, b"0x10", b" 5", b"5 ;" + m * 3, b"%x" % len(body))
    lengths = (b"-1", b"+5", b"5, 5", b"1e3", b"9" * 30, b"0", b" ", m, b"%d" % (len(body) + 1))
    targets = (m, b"*", b"/" + m * 8000, b"http://" + m, b"//" + m, b"/%zz" + m, b"/\xff" + m)
    shapes: tuple[Callable[[], bytes], ...] = (
        lambda: right[:at],
        lambda: right[:at] + draw.randbytes(draw.randrange(1, 40)) + right[at:],
        lambda: draw.randbytes(draw.randrange(1, 400)),
        lambda: right.replace(b"\r\n", draw.choice((b"\n", b"\r", b"\r\r\n", b"\n\r"))),
        lambda: right.replace(b"HTTP/1.1", draw.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", m))),
        lambda: right.replace(
            b"POST", draw.choice((m, b"post", b"PRI", b"CONNECT", b"", b"M-" + m))
        ),
        lambda: right.replace(TOOL_PATH.encode(), draw.choice(targets)),
        lambda: without + b"\r\ncontent-length: " + draw.choice(lengths) + b"\r\n\r\n" + body,
        lambda: head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n",
        lambda: (
            without
            + b"\r\ntransfer-encoding: "
            + draw.choice(
                (b"chunked", b"gzip, chunked", b"chunked, " + m, b"identity", b"Chunked ")
            )
            + b"\r\n\r\n"
            + draw.choice((chunk, draw.choice(sizes) + b"\r\n" + body + b"\r\n"))
            + draw.choice((b"0\r\n\r\n", b"0\r\n" + m + b": " + m + b"\r\n\r\n", b"", b"0"))
        ),
        lambda: right + right,
        lambda: right.replace(b"connection: close\r\n", b"") + right,
        lambda: right + m * draw.randrange(1, 3000),
        lambda: head + b"\r\n " + m + b"\r\n\r\n" + body,
        lambda: head + b"\r\n" + m + b"\r\n\r\n" + body,
        lambda: head.replace(b"host: localhost\r\n", b"") + b"\r\n\r\n" + body,
        lambda: head + b"\r\nconnection: upgrade\r\nupgrade: " + m + b"\r\n\r\n" + body + m,
        lambda: head + b"\r\nexpect: 100-continue\r\n\r\n" + body,
        lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(200) + m,
        lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + draw.randbytes(40) + m,
        lambda: bytes(
            byte ^ (1 << draw.randrange(8)) if draw.random() < 0.01 else byte for byte in right
        ),
    )
    return draw.choice(shapes)()


# -- MCP --------------------------------------------------------------------------------------


def mcp_input(draw: random.Random, mark: str) -> bytes:
    """A message that went wrong, or one with arguments that did."""
    revision = draw.choice(REVISIONS)
    method = draw.choice(
        ("tools/call", "tools/call", "tools/call", "tools/list", "initialize", "ping", mark)
    )
    call: dict[str, Any] = message(
        method,
        {"name": MCP_TOOL, "arguments": "HERE"},
        revision=revision,
        id_=draw.choice((7, "x")),
    )
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        target = draw.choice((call, call.get("params")))
        if not isinstance(target, dict):
            continue
        member = draw.choice((*sorted(target), mark))
        if member == "id":
            continue  # an answer has the same: it would be found in it
        if draw.random() < 0.3:
            target.pop(member, None)
        else:
            target[member] = junk(draw, mark)
    body = json.dumps(call).encode().replace(b'"HERE"', spoiled(draw, mark) or b"null")
    if draw.random() < 0.3:
        body = damaged(draw, mark, body)
    if b'"id"' in body and _id_is_marked(body):
        body = body.replace(b'"id"', b'"no"')
    headers = [list(header) for header in headers_of(revision, method, MCP_TOOL)]
    if draw.random() < 0.3:
        draw.choice(headers)[1] = draw.choice((mark, "", "*/*", "text/plain", mark * 40))
    if draw.random() < 0.1:
        headers.append([draw.choice(("origin", "mcp-session-id", "last-event-id")), mark])
    return request_bytes(body, *((name, value) for name, value in headers), path=MCP_PATH)


def _id_is_marked(body: bytes) -> bool:
    """Whether the identifier of a message has come to hold what is looked for in its answer."""
    return any(MARK.encode() in part[:80] for part in body.split(b'"id"')[1:])


KINDS: Final[dict[str, Maker]] = {
    "framing": framing_input,
    "json": json_input,
    "headers": header_input,
    "mcp": mcp_input,
}


def make(kind: str, seed: int, number: int) -> Input:
    """One input; the same for the same arguments."""
    draw = random.Random(f"{seed}/{kind}/{number}")
    mark = MARK + "".join(draw.choices(string.ascii_lowercase, k=14))
    return Input(KINDS[kind](draw, mark), mark)


# -- The run ----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Findings:
    """What came of a run."""

    inputs: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What must not be, each with what makes its input again."""
    resident_bytes: list[int] = field(default_factory=list)
    """Of the server: before, after a fifth, at the end."""
    seconds: float = 0.0


async def exchange(address: Address, wire: bytes) -> bytes:
    """Send, and read what comes until the server ends, or the client's patience does."""
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    except OSError as error:
        return f"NOT CONNECTED: {error}".encode()
    came = bytearray()
    try:
        writer.write(wire)
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS if not came else 5.0):
                    part = await reader.read(65536)
            except TimeoutError:
                if not writer.can_write_eof() or writer.is_closing():
                    break
                writer.write_eof()
                async with asyncio.timeout(5.0):
                    part = await reader.read(65536)
            if not part:
                break
            came += part
    except (OSError, TimeoutError):
        pass  # cut
    finally:
        writer.close()
    return bytes(came)


def judge(findings: Findings, name: str, given: Input, came: bytes) -> None:
    """Hold one answer against what holds of every answer."""
    status = came[9:12].decode("latin-1") if came.startswith(b"HTTP/1.") else "cut"
    if came and status == "cut":
        findings.wrong.append(f"{name}: no HTTP: {came[:60]!r}")
    findings.statuses[status] += 1
    if came.count(b"HTTP/1.1 5") > came.count(NOT_IMPLEMENTED):
        findings.wrong.append(f"{name}: status {status}")
    if given.mark.encode() in came.lower():
        findings.wrong.append(f"{name}: what was sent is in the answer")
    head, _, body = came.partition(b"\r\n\r\n")
    if b"application/problem+json" in head and body.startswith(b"{"):
        try:
            problem = json.loads(body)
        except ValueError:
            return  # of several answers, or chunked
        if not _PROBLEM.is_valid(problem):
            findings.wrong.append(f"{name}: no problem object")


def resident_bytes(pid: int) -> int:
    """How much memory a process has; 0 where the system does not tell."""
    statm = Path(f"/proc/{pid}/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


async def send_all(
    server: Server, findings: Findings, inputs: Iterator[tuple[str, Input]], total: int
) -> None:
    """Send every input, some at once."""
    address = Address.parse(server.url)
    done = 0
    findings.resident_bytes.append(resident_bytes(server.process.pid))

    async def one_after_the_other() -> None:
        nonlocal done
        for name, given in inputs:  # which all of them share
            judge(findings, name, given, await exchange(address, given.wire))
            findings.inputs[name.split("/")[1]] += 1
            done += 1
            if done == total // 5:
                findings.resident_bytes.append(resident_bytes(server.process.pid))

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
    findings.resident_bytes.append(resident_bytes(server.process.pid))


def fuzz(inputs: int, seed: int, kinds: tuple[str, ...] = tuple(KINDS)) -> Findings:
    """Start a server with everything on, send it so many inputs, and look at what it left."""
    findings = Findings()

    def drawn() -> Iterator[tuple[str, Input]]:
        for number in range(inputs):
            kind = kinds[number % len(kinds)]
            yield f"{seed}/{kind}/{number}", make(kind, seed, number)

    with tempfile.TemporaryDirectory(prefix="wc-fuzz-") as folder, own_store() as own:
        program = Path(folder, "hasty.py")
        program.write_text(HASTY)
        arguments = ("--mcp", "--metrics-port", "0", "--log-level", "debug")
        command = (sys.executable, str(program))
        with serving(*arguments, store_url=own.url, command=command) as server:
            began = time.monotonic()
            asyncio.run(send_all(server, findings, drawn(), inputs))
            findings.seconds = time.monotonic() - began
            with server.client() as client:
                if get(client, HEALTH_PATH).status != 200:
                    findings.wrong.append("afterwards: it is not healthy")
                if told(client, claim()).get("acquired") is not True:
                    findings.wrong.append("afterwards: a claim is not granted")
            if server.process.poll() is not None:
                findings.wrong.append("afterwards: the process has ended")
            kept = " ".join(str(key) for key in own.admin.scan_iter(count=1000))
        said = server.out + server.err
    for where, text in (("says", said), ("stores", kept)):
        if MARK in text:
            findings.wrong.append(f"the server {where} what was sent")
    faults = [line for line in said.splitlines() if '"level":"error"' in line.replace(" ", "")]
    if faults:
        findings.wrong.append(f"{len(faults)} faults are logged, such as {faults[0][-1400:]}")
    if findings.resident_bytes[-1] - findings.resident_bytes[1] > GROWTH_BYTES_MAX:
        findings.wrong.append(f"it grew: {findings.resident_bytes}")
    return findings


def main() -> None:
    """Run, and print the figures as JSON; status 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    findings = fuzz(given.inputs, given.seed)
    figures = {
        "seed": given.seed,
        "inputs": dict(findings.inputs),
        "statuses": dict(findings.statuses.most_common()),
        "resident_mebibytes": [round(size / (1 << 20), 1) for size in findings.resident_bytes],
        "seconds": round(findings.seconds),
        "wrong": len(findings.wrong),
        "the_first": findings.wrong[:20],
    }
    print(json.dumps(figures, indent=2))  # noqa: T201 - this is what the program is for
    sys.exit(bool(findings.wrong))


if __name__ == "__main__":
    main()
