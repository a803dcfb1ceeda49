"""What an implementation logs is looked through for what a run sent."""

import json
import secrets
import sys
from pathlib import Path

import pytest
from looking_away import Quiet

from checkpoint_conformance import logs
from checkpoint_conformance.checks.logs import judge_logs
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import Address
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.processes import running
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import fresh_fingerprint, fresh_identity, fresh_key
from checkpoint_conformance.targets import parse_description
from checkpoint_model import Stage, Status, format_request

COMMAND = json.dumps([sys.executable, "server.py", "${port}"])
SERVER = """
import http.server, os, signal, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        if "holder" in body:
            Handler.last = body
        answer = (b'{"type":"about:blank","title":"t","status":404,"detail":"d","retry":false,'
            b'"code":"CHECKPOINT_NOT_FOUND","charged":false,"recovery":"r",'
            b'"observed_at":"2026-07-25T12:00:00.000Z"}')
        self.send_response(404)
        self.send_header("content-type", "application/problem+json")
        self.send_header("cache-control", "no-store")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

def stop(*_):
    print("the last request was", Handler.last, flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def identifiers() -> dict[str, str]:
    """One of each kind, made as a run makes them."""
    identity = fresh_identity()
    return {
        "namespace": identity.namespace,
        "workflow_key": identity.workflow_key,
        "holder": fresh_key("h"),
        "observation_key": fresh_key("o"),
        "evidence_fingerprint": fresh_fingerprint(),
    }


def places(found: Logs) -> list[tuple[int, str]]:
    """The lines and members that were found."""
    return [(place.line, place.member) for place in found.places]


def test_each_identifier_is_found_with_its_line_and_member(tmp_path: Path) -> None:
    """Whole or without its prefix, in capitals, in the middle of anything."""
    log = tmp_path / "server.log"
    log.write_text(f"of an earlier run: {fresh_key('h')}\n")
    found = Logs([log])
    known = identifiers()
    with log.open("a") as out:
        for text in known.values():
            out.write(f'started\n{{"got":"{text}"}}\n')
        out.write(known["holder"].partition("_")[2].upper() + "\n")
        out.write(f"only a part of one: {known['holder'][:-1]}\n")
    found.look()
    lines = range(3, 13, 2)
    assert places(found) == [*zip(lines, known, strict=True), (12, "holder")]
    assert str(found.places[0]) == "the `namespace` of a request at server.log:3"


def test_a_log_is_read_in_pieces_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An identifier on the edge of two pieces is found, and none is found twice."""
    log, holder = tmp_path / "server.log", fresh_key("h")
    for piece in (*range(300, 340), 4096):
        monkeypatch.setattr(logs, "PIECE_BYTES", piece)
        log.write_bytes(b"x\n" * 150)
        found = Logs([log])
        with log.open("a") as out:
            out.write(f"y\n{holder}\n" * 9)
        found.look()
        with log.open("a") as out:
            out.write(f"z\n{holder}")
        found.look()
        found.look()
        assert places(found) == [(number, "holder") for number in range(152, 172, 2)]
        assert found.read_bytes == {log: log.stat().st_size - 300}


def test_a_log_that_is_turned_over_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Shorter than it was: another file, or the same one emptied."""
    log = tmp_path / "server.log"
    log.write_text("x\n" * 1000)
    found = Logs([log])
    log.write_text(f"\n{fresh_key('w')}\n")
    found.look()
    assert places(found) == [(2, "workflow_key")]


def test_boundary_identifiers_are_remembered_one_by_one(tmp_path: Path) -> None:
    """Those that no mark tells: so many of them and no more."""
    log = tmp_path / "server.log"
    found = Logs([log])
    holder, fingerprint = "h_" + "z" * 16, "sha256:" + "ab" * 32
    found.know(holder, "holder")
    found.know(fingerprint, "evidence_fingerprint")
    found.know(fresh_key("h"), "holder")
    assert len(found.others) == 2
    log.write_text(f"h_{'z' * 17}\n{holder}\n{'ab' * 32}\n")
    found.look()
    assert places(found) == [(2, "holder"), (3, "evidence_fingerprint")]
    for number in range(logs.OTHERS_MAX + 10):
        found.know(f"h_{number:016}", "holder")
    assert len(found.others) == logs.OTHERS_MAX


def test_half_a_character_is_no_identifier_of_ours(tmp_path: Path) -> None:
    """A check may send one; whoever looks through the logs goes on."""
    found = Logs([tmp_path / "server.log"])
    found.know("h_" + "z" * 16 + "\ud800", "holder")
    assert list(found.others.values()) == ["holder"]


def run_with(*paths: Path) -> Run:
    """A run against nobody, whose target logs to these files."""
    address = Address.parse("http://127.0.0.1:9")
    target = Target(address=address, logs=Logs(paths))
    return Run(target=target, profile=PROFILES["quick"], seed=1, progress=Quiet())


def test_a_leak_is_a_failure_of_its_rule(tmp_path: Path) -> None:
    """What a session sent, found in one of two logs."""
    clean, leaky = tmp_path / "clean.log", tmp_path / "leaky.log"
    clean.touch()
    leaky.touch()
    run = run_with(clean, leaky)
    session = run.session()
    move = Cast().move("h_" + "q" * 20, 1, Stage.UNCERTAIN)
    session.know(format_request(session.identity, move))
    leaky.write_text("fine\nclaimed by h_qqqqqqqqqqqqqqqqqqqq\n")
    judge_logs(run)
    run.close()
    (failure,) = run.tally.failures.values()
    assert (failure.rule, failure.check) == ("WC-PRIV-1", "logs")
    assert failure.fault.got == "the `holder` of a request at leaky.log:2"


def test_clean_logs_are_said_to_be(tmp_path: Path) -> None:
    """With their size; one without a line is told as well, and a missing one is a gap."""
    clean, silent, missing = (tmp_path / f"{name}.log" for name in ("clean", "silent", "missing"))
    silent.touch()
    run = run_with(clean, silent, missing)
    clean.write_text(f"{secrets.token_hex(16)}\n")
    judge_logs(run)
    run.close()
    assert run.tally.failures == {}
    assert run.tally.hits["WC-PRIV-1"] == 2
    assert run.tally.remarks == [
        "No raw identifier is in the 33 bytes that the run left in the log clean.log.",
        "Nothing was written to the log silent.log during the run.",
    ]
    assert run.tally.incomplete == [
        f"the log {missing} could not be read: No such file or directory"
    ]


def test_what_a_server_logs_while_it_stops_is_looked_through(tmp_path: Path) -> None:
    """Started by the harness, its output kept nowhere: it says the worst at its very end."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    text = f"{{url: 'http://127.0.0.1:${{port}}', logs: [own.log], start: {{command: {COMMAND}}}}}"
    description = parse_description(text, tmp_path / "target.yaml")
    (tmp_path / "own.log").touch()
    with running(description) as target:
        run = Run(target=target, profile=PROFILES["quick"], seed=1, progress=Quiet())
        session = run.session()
        session.ask(session.body(Status(holder=fresh_key("h"))))
        judge_logs(run)
        assert run.tally.failures == {}
        run.close()
    judge_logs(run)
    (failure,) = run.tally.failures.values()
    assert failure.fault.got.count("at target.log:") == 3
    assert "the `holder` of a request at target.log:" in failure.fault.got
