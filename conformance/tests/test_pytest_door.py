"""The pytest door, as suites of other people go through it: each test runs a suite of its own."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modelled import one_connection_at_a_time
from raw_server import http, request_of, talking
from test_check_command import PROBLEM, wrong_server

from checkpoint_conformance import testing
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.proxy import Forward, Message, tampering
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import Run, Target
from checkpoint_conformance.targets import Description
from checkpoint_conformance.testing import PARTS, Checking

pytest_plugins = ["pytester"]

SUITE = """
from checkpoint_conformance.testing import ConformanceTests

class TestMine(ConformanceTests):
    "Nothing of its own."
"""
NOBODY = "--checkpoint-url=http://127.0.0.1:1"
BROKEN = "WC-CLAIM-8"
ALL = len(PARTS) + len(rules()) + 2


@pytest.fixture(scope="module")
def right_server() -> Iterator[Target]:
    """The reference server, with controls and store."""
    with reference_server() as target:
        yield target


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    """How many tests came to what."""
    return {kind: n for kind, n in result.parseoutcomes().items() if kind != "seconds"}


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the suite in a process of its own, as its owner does who installed nothing else.

    The plugins of all that our tests need take ten times as long to load as pytest itself.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return run_among_others(pytester, "-p", "checkpoint_conformance.pytest_plugin", *arguments)


def run_among_others(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run it beside the plugins of everything else that is installed here."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", *arguments)


def test_a_right_server_passes_by_options_alone(
    pytester: pytest.Pytester, right_server: Target
) -> None:
    """One test for each part and each rule; the report as data, of the very same run."""
    assert right_server.controls is not None
    pytester.makepyfile(
        SUITE
        + """
seen = []

def test_a_report(checkpoint_report):
    assert checkpoint_report["verdict"] == "pass"
    seen.append(checkpoint_report["requests"])

def test_the_same_report(checkpoint_report):
    assert seen == [checkpoint_report["requests"]]
"""
    )
    result = run(
        pytester,
        f"--checkpoint-url={right_server.address.url}",
        f"--checkpoint-controls={right_server.controls.url}",
        f"--checkpoint-store={right_server.store_url}",
        "--checkpoint-profile=quick",
        "--checkpoint-seed=7",
        "--checkpoint-report=r",
        "--strict-markers",
        "-Werror",
    )
    assert result.ret == 0, result.stdout.str()
    report = json.loads((pytester.path / "r/report.json").read_text(encoding="utf-8"))
    passed = [rule for rule in report["rules"].values() if rule["status"] == "passed"]
    assert (report["verdict"], report["seed"]) == ("pass", 7)
    counted = outcomes(result)
    assert counted["passed"] + counted["skipped"] == ALL + 2
    # Of classes that are not claimed there are three; and nothing says which faults may be made.
    not_gone_through = 3 + 1
    assert counted["passed"] == len(PARTS) - not_gone_through + len(passed) + 2 + 2
    result.stdout.fnmatch_lines(["SKIPPED*: the class mcp is not claimed"])
    result.stdout.fnmatch_lines(["SKIPPED*: the class descriptions is not claimed"])
    result.stdout.fnmatch_lines(["PASSED *::test_rule[[]WC-CLAIM-8]"])
    result.stdout.fnmatch_lines(["*inspection: no test can tell"])
    result.stdout.fnmatch_lines(["PASS: * rules passed*", "*--checkpoint-seed 7 repeats it"])


def test_a_broken_rule_is_one_failed_test_with_the_command_s_words(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """Rule and text, expected and got, the shortest sequence as curl; parts are not blamed too."""
    with wrong_server("recovers-as-claimed", tmp_path) as server:
        pytester.makepyfile(
            f"""
import pytest
from checkpoint_conformance.testing import ConformanceTests, Description

class TestMine(ConformanceTests):
    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint_target(cls):
        return Description(url={server["url"]!r}, controls={server["controls"]!r})
"""
        )
        result = run(pytester, "--checkpoint-profile=quick", "--checkpoint-seed=7")
        alone = run(pytester, "--checkpoint-profile=quick", "-k", "part and walk")
    assert result.ret == 1
    assert outcomes(result)["failed"] == 1
    said = result.stdout.str()
    assert "FAILED test_a_broken_rule" in said
    assert f"::test_rule[{BROKEN}]" in said
    assert "lapsed → generation + 1, stage `uncertain`, holder = caller;" in said
    assert 'expected  "uncertain"' in said
    assert 'got       "claimed"' in said
    assert "found by the check «" in said
    assert 'curl -sSi "$BASE/v1/tools/workflow-checkpoint"' in said
    assert "FAIL: 1 rule broken" in said
    # Where no rule has a test of its own in the session, the part that found it fails.
    assert outcomes(alone) == {"failed": 1, "deselected": ALL - 1}
    assert f"{BROKEN} is broken" in alone.stdout.str()


def test_a_failure_is_expected_by_the_declared_list_alone(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """It is told as xfailed with its reason; one that did not come fails."""
    with wrong_server("recovers-as-claimed", tmp_path) as server:
        (pytester.path / "target.yaml").write_text(
            f"url: {server['url']}\ncontrols: {server['controls']}\n"
            "expected_failures:\n"
            f"  - {{rule: {BROKEN}, reason: not done yet}}\n"
            "  - {rule: WC-CLAIM-1, reason: was broken once}\n",
            encoding="utf-8",
        )
        pytester.makepyfile(SUITE)
        result = run(pytester, "--checkpoint-target=target.yaml", "--checkpoint-profile=quick")
    assert outcomes(result)["xfailed"] == 1
    result.stdout.fnmatch_lines([f"XFAIL *::test_rule[[]{BROKEN}] - expected: not done yet"])
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines(["FAILED *::test_nothing_is_missing*"])
    result.stdout.fnmatch_lines(["*WC-CLAIM-1 is expected to fail, and passed*"])


def test_what_the_target_logs_is_looked_through(
    right_server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has stopped, as the command does."""
    monkeypatch.setattr(testing, "PARTS", ("example",))
    log = tmp_path / "server.log"
    log.touch()

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        with log.open("ab") as file:
            file.write(message.body)
        return forward(message)

    with tampering(right_server.address, tamper) as address:
        checking = Checking(Description(url=address.url, logs=(log,)), profile="quick")
        found = checking.document()["rules"]["WC-PRIV-1"]
    assert found["status"] == "failed"


def test_a_target_of_one_connection_is_checked_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a second one nothing would ever be answered."""
    runs: list[Run] = []

    def run_of(**of: Any) -> Run:
        runs.append(Run(**of))
        return runs[-1]

    monkeypatch.setattr(testing, "Run", run_of)
    with one_connection_at_a_time() as url:
        checking = Checking(url, profile="quick")
        checking._opened()
        checking.close()
    assert [run.target.one_by_one for run in runs] == [True]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("def test_rule(self): pass", "test_rule"),
        ("test_part = None", "test_part"),
        ("def test_nothing_is_missing(self): pass", "test_nothing_is_missing"),
    ],
    ids=["overridden", "removed", "emptied"],
)
def test_what_is_inherited_cannot_be_weakened_in_silence(
    pytester: pytest.Pytester, body: str, named: str
) -> None:
    """The guard fails and names what was changed."""
    pytester.makepyfile(f"{SUITE}    {body}\n")
    result = run(pytester, NOBODY, "-k", "nothing_inherited")
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines([f"TestMine changes what it inherits: {named}.*"])


def test_a_mixin_and_a_patch_are_seen_too(pytester: pytest.Pytester) -> None:
    """However the test went away."""
    pytester.makepyfile(
        """
from checkpoint_conformance.testing import ConformanceTests

class Mixin:
    def test_rule(self): pass

class TestMixed(Mixin, ConformanceTests): pass

ConformanceTests.test_part = lambda self: None
"""
    )
    result = run(pytester, NOBODY, "-k", "nothing_inherited")
    result.stdout.fnmatch_lines(["TestMixed changes what it inherits: test_part, test_rule.*"])


def test_the_guard_itself_cannot_be_overridden(pytester: pytest.Pytester) -> None:
    """The class is not even made."""
    pytester.makepyfile(f"{SUITE}    def test_nothing_inherited_is_changed(self): pass\n")
    result = run(pytester, NOBODY)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*TestMine overrides test_nothing_inherited_is_changed*"])


@pytest.mark.parametrize("marked", ["xfail", "xfail(run=False)"])
def test_a_mark_is_no_declaration(pytester: pytest.Pytester, marked: str) -> None:
    """Under an `xfail` of pytest's a broken rule would be green, whichever it is."""
    pytester.makepyfile(f"{SUITE}\nimport pytest\npytest.mark.{marked}(TestMine)\n")
    result = run(pytester, NOBODY)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*is marked xfail. A failure that is known is declared in*"])


def test_our_own_fixtures_are_behind_the_tests(pytester: pytest.Pytester) -> None:
    """One that always says yes is found out."""
    pytester.makeconftest(
        "import pytest\nfrom unittest.mock import Mock\n"
        "@pytest.fixture(scope='class')\ndef checkpoint_run(): return Mock()\n"
    )
    pytester.makepyfile(SUITE)
    result = run(pytester, NOBODY)
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines(["*the fixture checkpoint_run is overridden*"])


def test_the_options_say_what_those_of_check_say(pytester: pytest.Pytester) -> None:
    """A server that asks for a token can be tested without a file."""
    pytester.makepyfile(
        """
from pathlib import Path
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.testing import described_by

def test_it(pytestconfig):
    described = described_by(pytestconfig)
    assert described.headers == {"authorization": "Bearer x", "x-tenant": "1"}
    assert described.logs == (Path("a.log"), Path("b.log"))
    assert described.also_claimed == {RuleClass.MCP, RuleClass.DESCRIPTIONS}
"""
    )
    result = run(
        pytester,
        NOBODY,
        "--checkpoint-header=Authorization: Bearer x",
        "--checkpoint-header=X-Tenant: 1",
        "--checkpoint-log=a.log",
        "--checkpoint-log=b.log",
        "--checkpoint-class=descriptions",
        "--checkpoint-mcp=http://127.0.0.1:1/mcp",
    )
    assert outcomes(result) == {"passed": 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([NOBODY], "Is the server running, and are host and port right?"),
        ([], "Which server? Give --checkpoint-url or --checkpoint-target"),
        (["--checkpoint-target=none.yaml"], "none.yaml: No such file or directory"),
        (["--checkpoint-url=127.0.0.1"], "is no base URL"),
        ([NOBODY, "--checkpoint-store=redis://127.0.0.1:1"], "Is the server running"),
    ],
    ids=["nobody", "none", "no-file", "no-url", "store"],
)
def test_a_target_that_is_not_there_is_not_a_hundred_faults(
    pytester: pytest.Pytester, options: list[str], said: str
) -> None:
    """The first test says it whole, the verdict's test again, and nothing is green by it."""
    pytester.makepyfile(SUITE)
    result = run(pytester, *options)
    assert outcomes(result) == {"failed": 2, "skipped": ALL - 3, "passed": 1}
    assert said in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    assert "another exception" not in result.stdout.str()


def test_a_fixture_that_fails_is_told_once(pytester: pytest.Pytester) -> None:
    """With its own traceback; a skip of its own skips all."""
    pytester.makepyfile(
        """
import pytest
from checkpoint_conformance.testing import ConformanceTests

class TestBroken(ConformanceTests):
    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint_target(cls):
        raise ZeroDivisionError("theirs")

class TestElsewhere(ConformanceTests):
    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint_target(cls):
        pytest.skip("only on Tuesdays")

class TestOdd(ConformanceTests):
    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint_target(cls):
        return 8080
"""
    )
    result = run(pytester)
    assert outcomes(result) == {"failed": 4, "skipped": 2 * (ALL - 3) + ALL, "passed": 2}
    result.stdout.fnmatch_lines(["E * ZeroDivisionError: theirs"])
    result.stdout.fnmatch_lines(["*a URL, a Description or a running Target, not int.*"])


def test_a_target_that_goes_away_is_told_where_it_went(pytester: pytest.Pytester) -> None:
    """Parts that exercised nothing fail, later ones are skipped; nothing unseen passes."""
    answered = iter(range(10**6))

    def talk(connection: socket.socket) -> None:
        while request_of(connection):
            if next(answered) > 0:
                return
            connection.sendall(http("404 Not Found", PROBLEM, "application/problem+json"))

    pytester.makepyfile(SUITE)
    with talking(talk) as url:
        result = run(pytester, f"--checkpoint-url={url}", "--checkpoint-profile=quick")
    assert outcomes(result) == {"failed": 3, "skipped": ALL - 4, "passed": 1}
    result.stdout.fnmatch_lines(["Not one rule was exercised here: the connection was closed*"])
    result.stdout.fnmatch_lines(["The run ended here: the target stopped answering*"])
    result.stdout.fnmatch_lines(["INCOMPLETE: 0 of * rules passed*"])


def test_a_fault_of_the_harness_passes_nothing(pytester: pytest.Pytester) -> None:
    """Neither the rules before it nor those after."""
    pytester.makeconftest(
        "from checkpoint_conformance import testing\n"
        "def broken(target): raise ZeroDivisionError('ours')\n"
        "testing.preflight = lambda target: None\n"
        "testing.Run.session = broken\n"
    )
    pytester.makepyfile(SUITE)
    result = run(pytester, NOBODY)
    assert outcomes(result)["passed"] == 1
    result.stdout.fnmatch_lines(["E * ZeroDivisionError: ours"])


def test_workers_do_not_share_a_run(pytester: pytest.Pytester) -> None:
    """Two would turn the same controls; kept together on one they do not."""
    pytester.makepyfile(SUITE)
    split = run(pytester, "-p", "xdist", NOBODY, "-n", "2", "--dist", "load")
    assert "Keep them together: --dist loadscope." in split.stdout.str()
    together = run(pytester, "-p", "xdist", NOBODY, "-n", "2", "--dist", "loadscope")
    assert outcomes(together) == {"failed": 2, "skipped": ALL - 3, "passed": 1}
    assert "Keep them together" not in together.stdout.str()


def test_the_base_class_is_collected_nowhere(pytester: pytest.Pytester) -> None:
    """Not even where every class is a test."""
    pytester.makepyfile(SUITE)
    result = run(pytester, "--collect-only", "-q", "-o", "python_classes=*")
    assert f"{ALL} tests collected" in result.stdout.str()


def test_the_plugin_weighs_nothing() -> None:
    """Everybody who installed us loads it, in every run of pytest: it imports but pytest."""
    program = (
        "import sys, pytest, pathlib, typing\n"
        "before = set(sys.modules)\n"
        "import checkpoint_conformance.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(
        ["checkpoint_conformance", "checkpoint_conformance.pytest_plugin"]
    )


def test_it_is_there_for_whoever_installed_us(pytester: pytest.Pytester) -> None:
    """Options and fixtures, with nothing to configure; and it can be turned off."""
    pytester.makepyfile("def test_theirs(): pass")
    assert "--checkpoint-url=BASE" in run_among_others(pytester, "--help").stdout.str()
    fixtures = run_among_others(pytester, "--fixtures").stdout.str()
    assert "checkpoint_target [session scope]" in fixtures
    off = run_among_others(pytester, "-p", "no:workflow_checkpoint", "--help").stdout.str()
    assert "--checkpoint-url" not in off


def test_the_command_loads_nobody_s_conftest(tmp_path: Path) -> None:
    """It is run in the target's repository, whose conftest.py is no business of ours."""
    for name in ("conftest.py", "test_theirs.py", "sitecustomize.py"):
        (tmp_path / name).write_text(f"raise SystemExit('{name} was loaded')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from checkpoint_conformance.cli import main\n"
        "done = CliRunner().invoke(main, ['check', '--url', sys.argv[1], '--timeout', '1'])\n"
        "print(done.exit_code, sorted({'pytest', '_pytest', 'conftest'} & set(sys.modules)))\n"
    )
    answered = iter(range(10**6))

    def talk(connection: socket.socket) -> None:
        while request_of(connection):
            if next(answered) > 50:
                return
            connection.sendall(http("404 Not Found", PROBLEM, "application/problem+json"))

    with talking(talk) as url:
        done = subprocess.run(
            [sys.executable, "-c", program, url],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        command = subprocess.run(
            [str(Path(sys.executable).with_name("workflow-checkpoint")), "check", "--url", url],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    assert done.stdout.split() == ["3", "[]"] or done.stdout.split() == ["1", "[]"], done.stderr
    assert "was loaded" not in command.stdout + command.stderr
