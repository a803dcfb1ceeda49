"""The example in JavaScript, which knows the contract and nothing of us, against the harness."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tools import not_run_here

from checkpoint_conformance.rules import Access, RuleClass, rules
from checkpoint_reference_server.store import open_store

EXAMPLE = Path(__file__).parents[2] / "examples/javascript"
SCHEMA = Path(__file__).parents[2] / "model/checkpoint_model/schemas/request.schema.json"
CHECK = [sys.executable, "-c", "from checkpoint_conformance.cli import main; main()", "check"]
NODE_MAJOR_MIN = 18
INSTALL_SECONDS_MAX = 120
READY_SECONDS_MAX = 30
CHECK_SECONDS_MAX = 200
STOP_SECONDS_MAX = 10
NO_REGISTRY = re.compile(r"code (E?AI_AGAIN|ENOTFOUND|ECONN\w+|E\w*TIMEDOUT|EHOSTUNREACH)")
"""What npm says where there is no network."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, with what its lock file names."""
    what = "the example in JavaScript"
    remedy = f"install Node {NODE_MAJOR_MIN} or later, with npm"
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            not_run_here(what, program, remedy)
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.strip().removeprefix("v").split(".")[0]) < NODE_MAJOR_MIN:
        not_run_here(what, f"a later Node than {version.stdout.strip()}", remedy)
    copy = tmp_path_factory.mktemp("example") / "javascript"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("node_modules"))
    done = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if NO_REGISTRY.search(done.stderr):
        not_run_here(what, "npm's registry", "connect to the network")
    assert done.returncode == 0, done.stderr
    return copy


@contextmanager
def serving(folder: Path, log: Path) -> Iterator[dict[str, str]]:
    """Run the example on a store of its own; where it, its controls and its store are."""
    with open_store(None) as store, log.open("w") as errors:
        process = subprocess.Popen(
            ["node", "src/main.js"],
            cwd=folder,
            env={
                **os.environ,
                "PORT": "0",
                "CONTROLS_PORT": "0",
                "VALKEY_URL": store.url,
                "HMAC_KEY": os.urandom(32).hex(),
            },
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        # A server that says nothing is ended, and so the reading of what it says.
        bound = threading.Timer(READY_SECONDS_MAX, process.kill)
        bound.start()
        try:
            said = [process.stdout.readline().split() for _ in range(2)]
            bound.cancel()
            assert all(said), log.read_text()
            yield {"url": said[0][-1], "controls": said[1][-1], "store": store.url}
            process.terminate()
            assert process.wait(STOP_SECONDS_MAX) == 0, log.read_text()
        finally:
            bound.cancel()
            process.kill()
            process.wait()
            process.stdout.close()


def check(
    server: Mapping[str, str], folder: Path, *options: str
) -> tuple[int, str, dict[str, Any]]:
    """Exit status, what was printed, and the report of a run with the access that is named."""
    arguments = ["--profile", "quick", "--report", str(folder / "report")]
    for option in ("url", *options):
        arguments += [f"--{option}", server[option]]
    done = subprocess.run(
        [*CHECK, *arguments],
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS_MAX,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    report = json.loads((folder / "report/report.json").read_text(encoding="utf-8"))
    return done.returncode, done.stdout + done.stderr, report


@pytest.mark.parametrize("with_controls", [True, False], ids=["controls", "real-time"])
def test_the_example_conforms(installed: Path, with_controls: bool, tmp_path: Path) -> None:
    """Exit 0, verdict *pass*, and every rule hit that has a check and is within reach."""
    classes, reach = {RuleClass.CORE}, {Access.BLACK_BOX, Access.STORE}
    if with_controls:
        classes.add(RuleClass.CONTROLS)
        reach.add(Access.CONTROLS)
    within = {
        rule.id: "passed"
        for rule in rules().values()
        if rule.rule_class in classes and rule.access in reach and rule.floor is not None
    }
    log = tmp_path / "log"
    with serving(installed, log) as server:
        options = ("store", "controls") if with_controls else ("store",)
        status, said, report = check(server, tmp_path, *options)
    assert status == 0, said
    assert (report["verdict"], report["failures"]) == ("pass", [])
    assert {rule_id: report["rules"][rule_id]["status"] for rule_id in within} == within
    # So no fault inside, and no raw identifier (WC-PRIV-1).
    assert log.read_text() == ""


FAULTS = {
    # A recovered generation begins as if nothing could have happened in the one before.
    "WC-CLAIM-8": (
        "decisions.js",
        "const stage = record.stage === 'failed' ? 'claimed' : 'uncertain';",
        "const stage = 'claimed';",
    ),
    # The step is no longer atomic: two contenders read the same record, and both write it.
    "WC-CONC-2": ("store.js", "connection.watch(key)", "connection.ping()"),
    # The identifier is looked for under its own name in the store.
    "WC-PRIV-1": (
        "requests.js",
        "return { workflow, request };",
        "return { workflow: `${workflow}:${body.workflow_key}`, request };",
    ),
}
"""By the rule that must be named: the file, what stands there, and what is put in its place."""


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_in_the_example_is_named(installed: Path, rule: str, tmp_path: Path) -> None:
    """Exit 1, and the rule, in a copy where one line is wrong."""
    name, right, wrong = FAULTS[rule]
    copy = shutil.copytree(installed, tmp_path / "wrong", symlinks=True)
    source = (copy / "src" / name).read_text(encoding="utf-8")
    assert source.count(right) == 1
    (copy / "src" / name).write_text(source.replace(right, wrong), encoding="utf-8")
    with serving(copy, tmp_path / "log") as server:
        status, said, report = check(server, tmp_path, "store", "controls")
    assert (status, report["verdict"]) == (1, "fail"), said
    assert report["rules"][rule]["status"] == "failed", said
    assert f"{rule} is broken" in said


def test_a_store_that_hangs_is_unavailable_in_time(installed: Path, tmp_path: Path) -> None:
    """WC-ERR-5: within 5 s, also for those who wait for a connection; then all is well again."""
    pause_ms, contenders, seconds_max = 6_000, 40, 5
    claim = {
        "action": "claim",
        "namespace": "example:hang",
        "holder": "h_" + "a" * 16,
        "claim_ttl_seconds": 60,
        "state_ttl_seconds": 120,
        "retry_failed": False,
    }

    def send(number: int) -> tuple[int, str, float]:
        began = time.monotonic()
        body = json.dumps({**claim, "workflow_key": f"w_{number:016}"}).encode()
        status, answer = ask(f"{server['url']}/v1/tools/workflow-checkpoint", body)
        return status, answer.get("code", ""), time.monotonic() - began

    with serving(installed, tmp_path / "log") as server:
        with redis.Redis.from_url(server["store"]) as store:
            store.client_pause(pause_ms)
        ends = time.monotonic() + pause_ms / 1000
        with ThreadPoolExecutor(contenders) as pool:
            answers = list(pool.map(send, range(contenders)))
        assert {answer[:2] for answer in answers} == {(503, "DEPENDENCY_UNAVAILABLE")}
        assert max(seconds for _, _, seconds in answers) < seconds_max
        assert time.monotonic() < ends, "the store was back too early to tell"
        while ask(f"{server['url']}/healthz")[0] != 200:
            assert time.monotonic() < ends + seconds_max
        with ThreadPoolExecutor(contenders) as pool:
            assert {status for status, _, _ in pool.map(send, range(contenders))} == {200}


def test_the_clock_stays_within_the_calendar(installed: Path, tmp_path: Path) -> None:
    """WC-CTL-1: what no timestamp can show is refused without a code, and the clock stays."""
    with serving(installed, tmp_path / "log") as server:
        clock = f"{server['controls']}/clock"
        before = ask(clock, b'{"freeze": true}')
        for advance_ms in (-(10**14), 10**15, 2**53 - 1, 2**53):
            status, members = ask(clock, json.dumps({"advance_ms": advance_ms}).encode())
            assert (status, members.get("code")) == (400, None)
        assert ask(clock, b"{}") == before


def ask(url: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    """Status and members of an answer, whatever its status."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_does_not_start_without_a_key_or_on_a_store_that_evicts(installed: Path) -> None:
    """WC-ID-5 and WC-PRIV-4, each said in one line."""

    def said(url: str, key: str) -> str:
        environment = {**os.environ, "PORT": "0", "VALKEY_URL": url, "HMAC_KEY": key}
        done = subprocess.run(
            ["node", "src/main.js"],
            cwd=installed,
            env=environment,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS_MAX,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    with open_store(None) as store:
        assert said(store.url, "k" * 31) == "HMAC_KEY must have at least 32 bytes.\n"
        with redis.Redis.from_url(store.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        policy = "The store's maxmemory-policy is allkeys-lru; it must be noeviction.\n"
        assert said(store.url, "k" * 32) == policy
    assert "cannot be used" in said("redis://127.0.0.1:1/0", "k" * 32)


def test_the_example_has_the_contract_s_schema() -> None:
    """Byte by byte: it is a copy of what belongs to the contract."""
    assert (EXAMPLE / "request.schema.json").read_bytes() == SCHEMA.read_bytes()


def test_the_lock_file_names_no_registry() -> None:
    """So that each machine installs from the one that it is set up for."""
    lock = json.loads((EXAMPLE / "package-lock.json").read_text(encoding="utf-8"))
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all("integrity" in package for name, package in lock["packages"].items() if name)
