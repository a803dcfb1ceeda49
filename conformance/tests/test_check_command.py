"""``workflow-checkpoint check`` as its users run it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from formats import assert_all_hold
from raw_server import Talk, answering, http, request_of, talking
from test_folders import wait_until_empty

from checkpoint_conformance.cli import main
from checkpoint_conformance.mutants.keeping import write_edits
from checkpoint_conformance.mutants.mutant import Edited
from checkpoint_conformance.mutants.zoo import ZOO
from checkpoint_conformance.rules import rules

PAUSED = b'{"code":"TOOL_PAUSED","status":503,"retry":true,"charged":false}'
COMMAND = [sys.executable, "-c", "from checkpoint_conformance.cli import main; main()"]
READY_SECONDS_MAX = 30
WRONG_DECISIONS = ("renews-on-reuse", "ignores-the-generation", "recovers-as-claimed")
PROBLEM = (
    b'{"type":"about:blank","title":"t","status":404,"detail":"d","code":"CHECKPOINT_NOT_FOUND",'
    b'"retry":false,"charged":false,"recovery":"r","observed_at":"2026-07-25T12:00:00.000Z"}'
)


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, "check", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )


def report_in(folder: Path) -> dict[str, Any]:
    """The report that a run wrote, which its schema admits, as every other format's does."""
    return assert_all_hold(folder)


def test_the_reference_server_conforms(tmp_path: Path) -> None:
    """No arguments but a profile: a real server on a real Valkey, green, and all accounted for."""
    done = check("--profile", "quick", "--report", str(tmp_path / "r"), "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: 89 of 92 rules passed; 3 by inspection" in done.stdout
    report = report_in(tmp_path / "r")
    assert (report["format"], report["verdict"], report["seed"]) == (1, "pass", 7)
    assert list(report["rules"]) == list(rules())
    statuses = {rule_id: rule["status"] for rule_id, rule in report["rules"].items()}
    assert sorted(set(statuses.values())) == ["inspection", "passed"]
    for rule in report["rules"].values():
        assert rule["status"] != "passed" or rule["hits"] >= rule["floor"]
        assert rule["status"] == "passed" or rule["reason"]
    assert report["failures"] == []
    # Of each of the two instances.
    assert "the log server.log" in " ".join(report["remarks"])
    assert "the log server-2.log" in " ".join(report["remarks"])
    assert all(move["count"] > 0 and move["broken"] == 0 for move in report["moves"])
    assert len(report["checks"]) > 5
    # The last request of all puts the controls back.
    assert sum(check["requests"] for check in report["checks"]) == report["requests"] - 1
    assert set(report["versions"]) == {"contract", "workflow-checkpoint", "hypothesis", "python"}


def test_github_gets_annotations_and_a_summary(tmp_path: Path) -> None:
    """What a target says is kept from being a command; what we say comes after it."""
    forged = http("200 OK", b"x\n::error::forged\n##[error]forged", "text/plain")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    with talking(answering(forged)) as url:
        done = subprocess.run(
            [*COMMAND, "check", "--url", url, "--timeout", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **github},
        )
    assert done.returncode == 2
    stop, *said, resume, annotation = done.stdout.splitlines()
    token = stop.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert resume == f"::{token}::"
    assert "forged" in " ".join(said)
    assert annotation.startswith("::error title=The conformance run could not be made::ERROR: ")
    assert summary.read_text().startswith("before\n## ⛔ Workflow Checkpoint conformance: error\n")


@contextmanager
def wrong_server(name: str, folder: Path) -> Iterator[dict[str, str]]:
    """A mutant with one decision wrong; where it is."""
    fault = ZOO[name].fault
    assert isinstance(fault, Edited)
    ready, edits = folder / f"{name}.json", folder / f"{name}.edits.json"
    write_edits(edits, fault.edits)
    command = [sys.executable, "-m", "checkpoint_reference_server.edited", str(edits)]
    command += ["--dev-key", "--port", "0", "--test-controls"]
    command += ["--ready-file", str(ready), "--log-level", "warning", "--exit-with-input"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not ready.exists():
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server was not ready in time"
            time.sleep(0.02)
        yield json.loads(ready.read_text(encoding="utf-8"))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


@pytest.mark.parametrize("name", WRONG_DECISIONS)
@pytest.mark.parametrize("with_controls", [True, False], ids=["controls", "real-time"])
def test_one_wrong_decision_is_named(name: str, with_controls: bool, tmp_path: Path) -> None:
    """Exit 1, the rule with its text, the shortest sequence as curl, expected and got."""
    (rule,) = ZOO[name].rules
    with wrong_server(name, tmp_path) as server:
        arguments = ["--url", server["url"], "--profile", "quick", "--report", str(tmp_path)]
        if with_controls:
            arguments += ["--controls", server["controls"]]
        done = check(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{rule} is broken" in done.stdout
    assert rules()[rule].text.split("→")[0].strip() in " ".join(done.stdout.split())
    assert "expected" in done.stdout
    assert 'curl -sSi "$BASE/v1/tools/workflow-checkpoint"' in done.stdout
    report = report_in(tmp_path)
    assert report["verdict"] == "fail"
    assert report["rules"][rule]["status"] == "failed"
    assert [failure["rules"][0] for failure in report["failures"]] == [rule]
    assert len(report["failures"][0]["sequence"]) <= 4
    assert (tmp_path / f"{rule}.sh").read_text() == report["failures"][0]["reproduction"]
    if rule == "WC-CLAIM-8":
        broken = {(m["by"], m["to"]) for m in report["moves"] if m["broken"]}
        assert broken == {("claim", "uncertain")}


def test_the_reproduction_shows_the_fault_again(tmp_path: Path, tool: Callable[[str], str]) -> None:
    """The shell script alone, on a fresh workflow: the recovered generation is `claimed`."""
    tool("curl")
    with wrong_server("recovers-as-claimed", tmp_path) as server:
        check("--url", server["url"], "--profile", "quick", "--report", str(tmp_path))
        script = tmp_path / "WC-CLAIM-8.sh"
        done = subprocess.run(
            ["sh", str(script)], capture_output=True, text=True, check=True, timeout=30
        )
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["recovered"], last["stage"]) == (True, "claimed")


def _hang(connection: socket.socket) -> None:
    request_of(connection)
    connection.recv(1)


HTML = http("404 Not Found", b"<!doctype html><title>Not here</title>", "text/html")


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        (_hang, "no complete answer in time"),
        (answering(b""), "closed before an answer"),
        (answering(http("200 OK", b"{}")[:-1]), "closed in the middle of an answer"),
        (answering(b"220 smtp ready\r\n"), "what came back is not http"),
        (answering(HTML), "answers, but not as a Workflow Checkpoint"),
        (answering(http("200 OK", b"[]")), "answers, but not as a Workflow Checkpoint"),
        (answering(http("401 Unauthorized", b"{}")), "give them with --header"),
        (
            answering(b"HTTP/1.1 308 x\r\nlocation: https://e\r\ncontent-length: 0\r\n\r\n"),
            "It redirects to https://e",
        ),
        (
            answering(http("503 x", PROBLEM.replace(b"CHECKPOINT_NOT_FOUND", b"TOOL_PAUSED"))),
            "resume",
        ),
    ],
    ids=[
        *("hangs", "hangs-up", "half-an-answer", "not-http", "html", "not-an-object"),
        *("unauthorized", "redirect", "paused"),
    ],
)
def test_a_target_that_is_none_is_explained(talk: Talk, said: str, tmp_path: Path) -> None:
    """Exit 2, what was found in one message, a report that says *error*, and no traceback."""
    with talking(talk) as url:
        done = check("--url", url, "--timeout", "0.5", "--report", str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    report = report_in(tmp_path)
    assert report["verdict"] == "error"
    assert {rule["status"] for rule in report["rules"].values()} == {"not-run"}
    assert list(report["rules"]) == list(rules())


def test_nobody_there_is_explained() -> None:
    """The most usual mistake of all."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = check("--url", f"http://127.0.0.1:{port}")
    assert done.returncode == 2
    assert "Is the server running, and are host and port right?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ulr", "x"], "No such option '--ulr'"),
        (["--url", "127.0.0.1:8080"], "is no base URL"),
        (["--controls", "http://127.0.0.1:1"], "give --url or --target too"),
        (["--profile", "huge"], "'huge' is not one of"),
        (["--url", "http://127.0.0.1:1", "--header", "nothing"], "is not 'NAME: VALUE'"),
        (["--seed", "-1"], "is not in the range"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str], said: str) -> None:
    """Exit 2 and what is wrong, before anything is sent."""
    result = CliRunner().invoke(main, ["check", *arguments])
    assert result.exit_code == 2
    assert said in result.output


@pytest.fixture(scope="module")
def right_server() -> Iterator[dict[str, str]]:
    """The reference server, with controls."""
    from checkpoint_conformance.launch import reference_server

    with reference_server() as target:
        assert target.controls is not None
        yield {"url": target.address.url, "controls": target.controls.url}


def test_a_store_that_does_not_answer_is_explained(right_server: dict[str, str]) -> None:
    """Exit 2, naming the option; a password in the URL is not shown."""
    done = check(
        "--url", right_server["url"], "--store", "redis://me:secret@127.0.0.1:1/0", "--timeout", "1"
    )
    assert done.returncode == 2
    assert "--store: no store answers at 127.0.0.1:1/0" in done.stderr
    assert "secret" not in done.stderr
    done = check("--url", right_server["url"], "--store", "postgres://127.0.0.1/0")
    assert done.returncode == 2
    assert "is no store's URL" in done.stderr


def test_controls_that_are_none_are_explained(right_server: dict[str, str]) -> None:
    """The tool's own address given for the controls'."""
    done = check("--url", right_server["url"], "--controls", right_server["url"])
    assert done.returncode == 2
    assert "No test controls at" in done.stderr


def test_an_mcp_endpoint_that_is_none_is_explained(right_server: dict[str, str]) -> None:
    """Before the run, like everything that is given."""
    done = check("--url", right_server["url"], "--mcp", f"{right_server['url']}/rpc")
    assert done.returncode == 2
    assert "No MCP at" in done.stderr
    assert "HTTP 404" in done.stderr


def test_a_report_that_cannot_be_written_is_said_before_the_run(
    right_server: dict[str, str], tmp_path: Path
) -> None:
    """Not after a minute of work."""
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    done = check("--url", right_server["url"], "--report", str(in_the_way / "r"))
    assert done.returncode == 2
    assert "cannot write the report" in done.stderr
    assert "Drawn sequences" not in done.stdout


def _once_and_never_again() -> Talk:
    """A target that answers the first request alone."""
    answered = iter(range(10**6))

    def talk(connection: socket.socket) -> None:
        while request_of(connection):
            if next(answered) > 0:
                return
            connection.sendall(http("404 Not Found", PROBLEM, "application/problem+json"))

    return talk


def test_a_target_that_goes_away_makes_the_run_incomplete(tmp_path: Path) -> None:
    """Exit 3: what was seen is kept, and the reason is given."""
    with talking(_once_and_never_again()) as url:
        done = check("--url", url, "--profile", "quick", "--report", str(tmp_path))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the target stopped answering" in done.stdout
    assert report_in(tmp_path)["verdict"] == "incomplete"


def test_ctrl_c_ends_a_run_at_once_with_what_it_saw(
    right_server: dict[str, str], tmp_path: Path
) -> None:
    """The report is marked incomplete, and the terminal says why."""
    arguments = ("--url", right_server["url"], "--profile", "quick", "--report", str(tmp_path))
    process = subprocess.Popen(
        [*COMMAND, "check", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        # What takes longest is begun first: by now the walk has come to its end, or two others.
        if "What is a request" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(30) == 3, rest
    assert "interrupted before the end" in rest
    report = report_in(tmp_path)
    assert report["verdict"] == "incomplete"
    assert report["rules"]["WC-CLAIM-1"]["hits"] > 0


@pytest.mark.parametrize("lines", [0, 1], ids=["at once", "during progress"])
def test_output_that_nobody_reads_changes_nothing(tmp_path: Path, lines: int) -> None:
    """``… | head -1``: the run goes on to its verdict, its report and its own exit status."""
    with talking(_once_and_never_again()) as url:
        process = subprocess.Popen(
            [*COMMAND, "check", "--url", url, "--report", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(lines):
            assert process.stdout.readline().startswith("Checking ")
        process.stdout.close()
        told = process.stderr.read()
        process.stderr.close()
        assert (process.wait(60), told) == (3, "")
    assert report_in(tmp_path)["verdict"] == "incomplete"


def test_a_run_that_is_killed_leaves_nothing_behind() -> None:
    """Neither its own folders nor those of the server and the store that it started."""
    # Not `tmp_path`: the store's socket has a short name or none.
    with tempfile.TemporaryDirectory(prefix="wc-") as made:
        process = subprocess.Popen(
            [*COMMAND, "check"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": made},
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "Bodies made" in line:
                break
        found = list(Path(made).iterdir())
        process.kill()
        process.stdout.close()
        process.wait(30)
        assert len(found) >= 2
        wait_until_empty(Path(made))


def test_a_fault_of_the_harness_is_its_own(
    right_server: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit 4, with a traceback, the seed and an apology; never blamed on the target."""
    from checkpoint_conformance.oracle import Oracle

    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Oracle, "judge", broken)
    arguments = ("--url", right_server["url"], "--seed", "5", "--report", str(tmp_path))
    # In this process, where the fault is; that of another is in `test_lanes.py`.
    result = CliRunner().invoke(main, ["check", *arguments, "--jobs", "1"])
    assert result.exit_code == 4
    assert "a fault of the harness, not of the target" in result.output
    assert "ZeroDivisionError" in result.output
    assert "--seed 5" in result.output
    assert report_in(tmp_path)["verdict"] == "error"


def test_without_the_extras_the_line_that_installs_them_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bare distribution has neither server nor store."""
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "checkpoint_conformance.launch.importlib.util.find_spec",
        lambda name: None if name == "uvicorn" else found(name),
    )
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 2
    assert "pip install 'workflow-checkpoint[server,embedded]'" in result.output


def test_nothing_is_left_in_the_working_directory(
    right_server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder of Hypothesis, no report that nobody asked for."""
    monkeypatch.chdir(tmp_path)
    done = check("--url", right_server["url"], "--profile", "quick")
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.iterdir()) == []
