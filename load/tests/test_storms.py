"""Storms as people run them: the command, Locust in its own process, a verdict."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
import trustme
from modelled import one_connection_at_a_time
from real_server import SECONDS_MAX, Server, serving, wait_until
from storm_runs import COMMAND, CONTENDERS, RUN_SECONDS_MAX, SMALL, Stormed, played, storm
from storm_targets import two_steps

from checkpoint_conformance.client import Address, Client, HttpAnswer, Lost
from checkpoint_conformance.history import DROPPED, HistoryWriter, begin_header
from checkpoint_conformance.mutants.proxy import Forward, Message, tampering
from checkpoint_load.limits import NAMES
from checkpoint_load.storms import STORMS
from checkpoint_model import Action


@pytest.fixture(scope="module")
def server(valkey_url: str) -> Iterator[Server]:
    """The reference server, with two processes."""
    with serving("--workers", "2", "--log-level", "warning", store_url=valkey_url) as running:
        yield running


def test_each_storm_passes_on_the_reference_server(server: Server, tmp_path: Path) -> None:
    """Each of them plays its rounds with all contenders, and one order explains the answers."""
    run = storm(tmp_path, *SMALL, "--seed", "7", url=server.url)
    assert run.status == 0, run.out + run.err
    report = run.report
    assert report["verdict"] == "pass"
    assert [one["name"] for one in report["storms"]] == list(NAMES) == list(STORMS)
    for one in report["storms"]:
        assert (one["rounds"], one["verdict"], one["not_connected"]) == (2, "pass", 0), one
        assert one["in_flight"]["median"] >= 10
        if one["winners"] is not None:
            assert one["winners"]["rounds_by_number"] == {"1": 2}
    told = {one["name"]: one["outcomes"] for one in report["storms"]}
    others = 2 * (CONTENDERS - 1)
    assert told["claim"] == {"CHECKPOINT_NOT_HELD": others, "acquired": 2}
    # One claim of two was left to lapse, the other was abandoned.
    assert told["recovery"] == {"CHECKPOINT_NOT_HELD": others, "acquired": 4, "abandoned": 1}
    assert told["retry"] == {"CHECKPOINT_NOT_HELD": others, "acquired": 4, "transitioned": 2}
    assert told["replay"] == {"observation_replayed": others, "acquired": 2, "transitioned": 2}
    assert told["conflict"] == {"OBSERVATION_CONFLICT": others, "acquired": 2, "transitioned": 2}
    for name in ("locust.html", "locust.json", "judgement.json"):
        assert (tmp_path / name).stat().st_size > 0
    counted = {entry["name"]: entry for entry in _locust_statistics(tmp_path, "claim")}
    assert counted["claim"]["num_requests"] == 2 * CONTENDERS  # one event for each contender
    assert "Judging by the model" in run.out
    assert "PASS: " in run.out
    assert str(tmp_path) in run.out


def _locust_statistics(folder: Path, storm_name: str) -> list[dict[str, Any]]:
    entries = json.loads((folder / "locust.json").read_text())
    return [entry for entry in entries if entry["method"] == storm_name]


def test_what_a_take_over_says_is_in_the_history(server: Server, tmp_path: Path) -> None:
    """Generation 2, uncertain, and claimed anew by one alone; every call was made once."""
    calls = played(server, "recovery", tmp_path)
    winners = []
    for call in calls:
        assert call.attempts == 1
        assert call.sent_ns is not None
        assert call.called_ns <= call.sent_ns
        members = getattr(call.answer, "members", None) or {}
        if members.get("recovered"):
            winners.append((call.round, members["generation"], members["stage"]))
    assert sorted(winners) == [(0, 2, "uncertain"), (1, 2, "uncertain")]


def test_who_lost_an_answer_calls_no_more(server: Server, tmp_path: Path) -> None:
    """Its request is open to the end, so what goes on in its place has another name."""
    calls = played(server, "mixed", tmp_path, lose_share=0.2)
    assert len(calls) == 10 * CONTENDERS
    lost_by: set[str] = set()
    for call in calls:
        assert call.client not in lost_by
        if call.returned_ns is None:
            lost_by.add(call.client)
            assert getattr(call.answer, "reason", "") == DROPPED
    assert CONTENDERS <= len(lost_by) <= 3 * CONTENDERS


def test_a_seed_repeats_the_choices(server: Server, tmp_path: Path) -> None:
    """What each contender asks first, and whose answers are dropped."""

    def choices(name: str, seed: int) -> list[tuple[str, str, bool]]:
        calls = played(server, "mixed", tmp_path / name, seed=seed, lose_share=0.2)
        return [
            (call.client, str(call.request["action"]), call.returned_ns is None)
            for call in calls[:CONTENDERS]
        ]

    first = choices("a", 5)
    assert first == choices("b", 5)
    assert first != choices("c", 6)


def test_the_mixed_storm_with_lost_answers_passes(server: Server, tmp_path: Path) -> None:
    """Whatever became of the requests whose answers were dropped, one order explains the rest."""
    run = storm(tmp_path, "mixed", "--lose", "20", *SMALL, "--seed", "3", url=server.url)
    assert run.status == 0, run.out + run.err
    (told,) = run.report["storms"]
    assert CONTENDERS <= told["dropped"] <= 3 * CONTENDERS  # of ten times as many
    assert told["lost"] == 0


@pytest.mark.parametrize(
    ("name", "actions", "rule"),
    [
        ("claim", [Action.CLAIM], "WC-CONC-2"),
        ("replay", [Action.TRANSITION], "WC-CONC-3"),
        ("conflict", [Action.TRANSITION], "WC-CONC-3"),
    ],
)
def test_check_and_write_in_two_steps_is_caught(
    name: str, actions: Sequence[Action], rule: str, tmp_path: Path
) -> None:
    """No order explains that two won; the rule is named, and what would have been right."""
    with two_steps(*actions) as url:
        run = storm(tmp_path, name, "--contenders", "20", "--rounds", "3", url=url)
    assert run.status == 1, run.out + run.err
    report = run.report
    assert report["verdict"] == "fail"
    (told,) = report["storms"]
    assert told["verdict"] == "fail"
    assert rule == told["failures"][0]["rules"][0]
    assert "WC-CONC-1" in told["failures"][0]["rules"]
    assert f"{name}: {rule} is broken" in run.out


def test_a_target_that_serves_one_connection_at_a_time_is_not_stormed(tmp_path: Path) -> None:
    """It may be right; nothing can be said of it."""
    with one_connection_at_a_time() as url:
        run = storm(
            tmp_path, "claim", "--contenders", "20", "--rounds", "1", "--timeout", "1", url=url
        )
    assert run.status == 3, run.out + run.err
    (told,) = run.report["storms"]
    assert told["verdict"] == "incomplete"
    assert told["in_flight"]["median"] < 10
    assert any("too little contention" in why for why in told["incomplete_because"])
    assert "too little contention" in run.out


def test_tls_and_headers(server: Server, tmp_path: Path) -> None:
    """A storm over TLS is a storm, and the headers that were given go with every request."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trusted)
    seen: list[str | None] = []

    def watch(message: Message, forward: Forward) -> HttpAnswer:
        seen.append(message.headers.get("x-tenant"))
        return forward(message)

    with tampering(Address.parse(server.url), watch, tls=context) as front:
        run = storm(
            tmp_path / "report",
            "claim",
            *SMALL,
            "--header",
            "X-Tenant: seven",
            url=front.url,
            env={"SSL_CERT_FILE": str(trusted)},
        )
    assert run.status == 0, run.out + run.err
    assert run.report["storms"][0]["winners"]["rounds_by_number"] == {"1": 2}
    assert seen[1:] == ["seven"] * 2 * CONTENDERS, "the first is the look before the storm"
    for path in (tmp_path / "report").iterdir():
        assert "seven" not in path.read_text(encoding="utf-8"), f"a header's value is in {path}"


def test_ctrl_c_ends_it_at_once_with_what_there_is(server: Server, tmp_path: Path) -> None:
    """Incomplete, and every call that was made is in the history."""
    process = subprocess.Popen(
        [*COMMAND, "claim", "--rounds", "100000", "--url", server.url, "--report", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    history = tmp_path / "claim.jsonl"
    try:
        wait_until(
            lambda: (history.exists() and history.stat().st_size > 200_000) or process.poll(),
            "some rounds were played",
            RUN_SECONDS_MAX,
        )
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 3, out
    run = Stormed(status=3, out=out, err="", folder=tmp_path)
    report = run.report
    assert report["verdict"] == "incomplete"
    assert any("stopped before the end" in why for why in report["incomplete_because"])
    calls = list(run.calls())
    assert len(calls) == report["storms"][0]["requests"] > 0
    assert "INCOMPLETE" in out


def test_a_storm_ends_with_whoever_started_it(server: Server, tmp_path: Path) -> None:
    """Killed, so that it could tell nobody: the target is stormed no longer."""
    process = subprocess.Popen(
        [*COMMAND, "claim", "--rounds", "100000", "--url", server.url, "--report", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: (tmp_path / "claim.jsonl").exists() or process.poll(),
            "some rounds were played",
            RUN_SECONDS_MAX,
        )
        locust = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert locust
    _, left = psutil.wait_procs(locust, timeout=SECONDS_MAX)
    assert not left


_JUDGES_FOR_EVER = """
from pathlib import Path

from checkpoint_load import concluding
from checkpoint_load.locustfile import StormUser as StormUser


def judge_for_ever(folder, **_):
    Path("judging").touch()
    while True:
        pass


concluding.judge_folder = judge_for_ever
"""


def test_ctrl_c_ends_the_judge_too(server: Server, tmp_path: Path) -> None:
    """One that calculates, and lets nothing else go on."""
    (tmp_path / "storms.py").write_text(_JUDGES_FOR_EVER)
    locust = [sys.executable, "-m", "locust", "-f", "storms.py", "--headless", "--users", "1"]
    process = subprocess.Popen(
        [*locust, "--host", server.url, "--storms", "claim", *SMALL, "--report", "report"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        judging = (tmp_path / "judging").exists
        wait_until(lambda: judging() or process.poll(), "it is judging", RUN_SECONDS_MAX)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 3, out
    run = Stormed(status=3, out=out, err="", folder=tmp_path / "report")
    assert run.report["incomplete_because"] == ["stopped while its answers were judged"]
    assert run.report["storms"][0]["requests"] > 0
    assert "INCOMPLETE: stopped while its answers were judged" in out


def test_processes_storm_side_by_side_and_their_histories_are_judged_together(
    server: Server, tmp_path: Path
) -> None:
    """Each has its workflows and its file; clients' names never meet."""
    run = storm(tmp_path, "claim", *SMALL, "--processes", "2", *_port(), url=server.url)
    assert run.status == 0, run.out + run.err
    report = run.report
    assert len(report["histories"]) == 2
    (told,) = report["storms"]
    assert (told["rounds"], told["rounds_asked"], told["requests"]) == (4, 4, 4 * CONTENDERS)
    assert told["winners"]["rounds_by_number"] == {"1": 4}
    assert len({call.client for call in run.calls()}) == 2 * CONTENDERS


def test_the_master_gathers_the_histories_of_workers_elsewhere(
    server: Server, tmp_path: Path
) -> None:
    """A worker that writes where the master cannot see it sends what it wrote."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    port = _port()
    arguments = [*COMMAND, "claim", *SMALL, "--url", server.url, "--report", "report"]
    locustfile = Path(__file__).parents[1] / "checkpoint_load/locustfile.py"
    worker = subprocess.Popen(
        [sys.executable, "-m", "locust", "-f", str(locustfile), "--worker", *port],
        cwd=there,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        done = subprocess.run(
            [*arguments, "--expect-workers", "1", *port],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        worker.wait(SECONDS_MAX)
    finally:
        worker.kill()
        worker.wait()
    (written,) = (there / "report").glob("*.jsonl")
    assert (here / "report" / written.name).read_bytes() == written.read_bytes()
    run = Stormed(status=0, out=done.stdout, err="", folder=here / "report")
    assert run.report["storms"][0]["winners"]["rounds_by_number"] == {"1": 2}


def _port() -> tuple[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "--master-port", str(listener.getsockname()[1])


def test_a_target_that_is_started_for_the_storm(tmp_path: Path) -> None:
    """By the command of its `target.yaml`; it is stopped at the end."""
    program = [sys.executable, "-m", "checkpoint_reference_server", "--dev-key", "--port"]
    target = tmp_path / "target.yaml"
    target.write_text(
        "url: http://127.0.0.1:${port}\n"
        "name: mine\n"
        f"start: {{command: {json.dumps([*program, '${port}'])}}}\n"
    )
    run = storm(tmp_path / "report", "claim", *SMALL, "--target", str(target))
    assert run.status == 0, run.out + run.err
    asked = run.report["target"]
    assert asked["name"] == "mine"
    with Client(Address.parse(asked["url"]), seconds_max=SECONDS_MAX) as client:
        assert isinstance(client.exchange("GET", "/healthz").answer, Lost)


def test_the_reference_server_with_several_processes(tmp_path: Path) -> None:
    """Started where no target is given, as `check` does."""
    run = storm(tmp_path, "claim", *SMALL, "--server-workers", "2")
    assert run.status == 0, run.out + run.err
    assert "the reference server, on Valkey" in run.report["target"]["description"]


def test_an_unreachable_target_is_an_error(tmp_path: Path) -> None:
    """Told in one line, and in the report."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    run = storm(tmp_path, "claim", url=f"http://127.0.0.1:{port}")
    assert run.status == 2
    assert "Is the server running" in run.err
    assert run.report["verdict"] == "error"


def test_more_contenders_than_there_may_be_files_is_an_error(tmp_path: Path) -> None:
    """Before anything is started."""
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "from checkpoint_conformance.cli import main\n"
        "main()"
    )
    arguments = ["storm", "claim", "--contenders", "1000", "--report", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
    )
    assert done.returncode == 2
    assert "hard limit is 300" in done.stderr


def test_the_web_page_starts_a_storm_and_its_end_is_judged(server: Server, tmp_path: Path) -> None:
    """Started by the page's own request; the command ends with the verdict on Ctrl-C."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    arguments = [*COMMAND, "claim", *SMALL, "--web", "--web-port", str(port)]
    process = subprocess.Popen(
        [*arguments, "--url", server.url, "--report", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        page = Client(Address.parse(f"http://127.0.0.1:{port}"), seconds_max=SECONDS_MAX)
        with page:
            wait_until(
                lambda: (
                    isinstance(page.exchange("GET", "/").answer, HttpAnswer)
                    or process.poll() is not None
                ),
                "the page is there",
                RUN_SECONDS_MAX,
            )
            form = urlencode({"user_count": 1, "spawn_rate": 1, "host": server.url}).encode()
            kind = (("content-type", "application/x-www-form-urlencoded"),)
            started = page.exchange("POST", "/swarm", form, kind).answer
            assert isinstance(started, HttpAnswer)
            assert started.status == 200
        # Drawn last of all: before the report stands, Ctrl-C leaves it incomplete, and rightly so.
        wait_until((tmp_path / "storm.html").exists, "it is judged", RUN_SECONDS_MAX)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 0, out
    run = Stormed(status=0, out=out, err="", folder=tmp_path)
    assert run.report["verdict"] == "pass"
    assert run.report["storms"][0]["winners"]["rounds_by_number"] == {"1": 2}
    assert "PASS: " in out


def test_a_locust_file_of_ones_own(server: Server, tmp_path: Path) -> None:
    """Locust's own command, with the file that the documentation shows: verdict and exit status."""
    documented = (Path(__file__).parents[2] / "docs/storms.md").read_text(encoding="utf-8")
    line = "from checkpoint_load.locustfile import StormUser"
    assert f"{line}\n" in documented
    (tmp_path / "storms.py").write_text(f"{line}\n")
    earlier = begin_header("claim", {"url": "http://127.0.0.1:9"})
    HistoryWriter(tmp_path / "report/claim.jsonl", earlier).close()
    locust = [sys.executable, "-m", "locust", "-f", "storms.py", "--headless", "--users", "1"]
    done = subprocess.run(
        [*locust, "--host", server.url, "--storms", "claim,replay", *SMALL, "--report", "report"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = Stormed(status=0, out=done.stdout, err="", folder=tmp_path / "report")
    assert [one["verdict"] for one in run.report["storms"]] == ["pass", "pass"]
    assert "PASS: " in done.stdout


def test_a_locust_file_with_options_that_are_none(tmp_path: Path) -> None:
    """Told before anything is started."""
    (tmp_path / "storms.py").write_text("from checkpoint_load.locustfile import StormUser\n")
    locust = [sys.executable, "-m", "locust", "-f", "storms.py", "--headless", "--users", "1"]
    done = subprocess.run(
        [*locust, "--host", "http://127.0.0.1:9", "--storms", "claims"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
    )
    assert done.returncode == 2
    assert "--storms: there is no 'claims'; there are claim, recovery" in done.stderr
