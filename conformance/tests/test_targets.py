"""Targets as data: what may be written, what is said when it is wrong, and what is started."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib import resources
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from checkpoint_conformance import process_guardian
from checkpoint_conformance.client import Address
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.processes import LOG_NAME, running
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.target_options import describe
from checkpoint_conformance.targets import (
    Description,
    Start,
    TargetError,
    load_description,
    parse_description,
)

HERE = Path("target.yaml")
WHOLE = """
name: a checkpoint
version: "2"
homepage: https://example.test/
url: http://127.0.0.1:${port}/base
controls: http://127.0.0.1:${controls_port}
store: redis://127.0.0.1:6379/0
classes: [core, controls]
timeout_seconds: 5
headers:
  Authorization: Bearer ${env:CHECKPOINT_TEST_TOKEN}
start:
  command: [node, server.js, "${port}"]
  directory: sub
  environment: {CONTROLS: "${controls_port}"}
  ready: http://127.0.0.1:${port}/ready
  ready_seconds: 7
  stop_seconds: 1
expected_failures:
  - rule: WC-ERR-8
    reason: no configuration yet
    issue: https://example.test/1
    expires: 2030-01-31
"""


UNKNOWN_RULE = """url: http://a
expected_failures:
  - rule: WC-CLAIM-1
    reason: r
  - rule: WC-CLAIM-99
    reason: r
"""


def test_all_that_may_be_said_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member, its placeholders filled in."""
    monkeypatch.setenv("CHECKPOINT_TEST_TOKEN", "t0ken")
    description = parse_description(WHOLE, Path("/somewhere/target.yaml"))
    assert description.ports == ("port", "controls_port")
    filled = description.filled_in({"port": 1111, "controls_port": 2222})
    target = filled.target()
    assert filled.start is not None
    assert filled.start.command == ("node", "server.js", "1111")
    assert filled.start.environment == {"CONTROLS": "2222"}
    assert filled.start.directory == Path("/somewhere/sub")
    assert (target.address.port, target.address.base_path) == (1111, "/base")
    assert target.controls is not None
    assert target.controls.port == 2222
    assert target.headers == {"authorization": "Bearer t0ken"}
    assert (target.name, target.version, target.seconds_max) == ("a checkpoint", "2", 5)
    assert target.classes == {RuleClass.CORE, RuleClass.CONTROLS}
    (expected,) = target.expected_failures
    assert (expected.rule, str(expected.expires)) == ("WC-ERR-8", "2030-01-31")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty; it needs at least `url`"),
        ("url: [", "target.yaml:1:"),
        ("name: x\n", 'target.yaml:1: "url" is a required property'),
        ("url: http://a\n\nnmae: x\n", "target.yaml:1: Additional properties"),
        ("url: http://a\nname:\n  - x\n", "target.yaml:2: `name`:"),
        ("url: ftp://a\n", "target.yaml:1: `url`:"),
        ("url: http://a\nclasses:\n  - core\n  - extra\n", "target.yaml:4: `classes.1`:"),
        (
            "url: http://a\nstart:\n  command: [x]\n  ready_seconds: soon\n",
            "target.yaml:4: `start.ready_seconds`:",
        ),
        (
            UNKNOWN_RULE,
            "target.yaml:5: the contract has no rule WC-CLAIM-99",
        ),
        ("url: http://a\nheaders: {a: 1}\n", "target.yaml:2: `headers.a`:"),
        ("- url\n", "target.yaml:1:"),
    ],
)
def test_what_is_wrong_points_at_its_line(text: str, said: str) -> None:
    """File, line, and what it should have been."""
    with pytest.raises(TargetError) as error:
        parse_description(text, HERE)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:${port}", "is no placeholder"),
        ("http://${env:CHECKPOINT_NOT_SET}", "CHECKPOINT_NOT_SET is not set"),
        ("http://${}", "is no placeholder"),
        ("http://a?b", "a base URL has no query"),
    ],
)
def test_what_cannot_be_filled_in_is_said(url: str, said: str) -> None:
    """A placeholder that there is not, a variable that is not set, an address that is none."""
    with pytest.raises(TargetError, match=said):
        Description(url=url).filled_in({}).target()


def test_controls_that_are_claimed_must_be_given() -> None:
    """Nothing could be said of them otherwise."""
    claims = frozenset({RuleClass.CORE, RuleClass.CONTROLS})
    with pytest.raises(TargetError, match="they have no URL"):
        Description(url="http://a", classes=claims).target()


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(TargetError, match=r"nothing\.yaml: No such file"):
        load_description(tmp_path / "nothing.yaml")


def test_the_schema_is_one() -> None:
    """By the meta-schema; and the example of the docs matches it."""
    text = resources.files("checkpoint_conformance").joinpath("target.schema.json").read_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    page = (Path(__file__).parents[2] / "docs/targets.md").read_text(encoding="utf-8")
    examples = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert len(examples) >= 2
    for example in examples:
        parse_description(example, HERE)


SERVER = textwrap.dedent(
    """
    import http.server, os, subprocess, sys

    print("listening, with a child", flush=True)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["PIDS"], "w") as file:
        file.write(f"{os.getpid()} {child.pid}")


    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503)
            self.end_headers()


    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """
)
GONE_SECONDS_MAX = 15


def described(folder: Path, *, stubborn: bool = False) -> Description:
    """A server that starts a child of its own."""
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if stubborn else ""
    (folder / "server.py").write_text(ignore + SERVER)
    return Description(
        url="http://127.0.0.1:${port}",
        start=Start(
            command=(sys.executable, "server.py", "${port}"),
            directory=folder,
            environment={"PIDS": str(folder / "pids")},
            stop_seconds=0.3,
        ),
    )


def is_there(pid: int) -> bool:
    """Whether a process is there, and no mere entry that nobody waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(pids: list[int]) -> None:
    """Wait for their end, with a bound."""
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline, "it was not stopped"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="not run: reads /proc")
@pytest.mark.parametrize("stubborn", [False, True], ids=["obedient", "stubborn"])
def test_what_was_started_is_stopped_whole(tmp_path: Path, stubborn: bool) -> None:
    """The server and its children, also when it does not listen; what it printed is kept."""
    with running(described(tmp_path, stubborn=stubborn), tmp_path / "logs") as target:
        assert target.address.port > 0
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert all(map(is_there, pids))
    wait_until_gone(pids)
    assert "listening, with a child" in (tmp_path / "logs" / LOG_NAME).read_text()


LEAVES_A_CHILD = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child says its word first
leader = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == leader:
    time.sleep(0.001)
print(os.getppid(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only process 1 adopts")
def test_a_program_whose_number_cannot_be_told_is_stopped(tmp_path: Path) -> None:
    """As where whoever wanted it was killed while it started, and its folder is gone."""
    pid_file = tmp_path / "gone" / "pid"
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    # Its output ends with the last of the processes that have it.
    done = subprocess.run(
        [sys.executable, "-I", process_guardian.__file__, "5", str(pid_file), *sleeping],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (127, f"{pid_file}: No such file or directory\n")


def test_what_a_program_leaves_behind_is_reaped_by_its_guardian() -> None:
    """Process 1 takes its time over it: what was killed is gone at once all the same."""
    guarded = (sys.executable, "-c", LEAVES_A_CHILD)
    with subprocess.Popen(
        [sys.executable, "-I", process_guardian.__file__, "30", "-", *guarded],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as guardian:
        assert guardian.stdout is not None
        assert guardian.stdout.read() == f"{guardian.pid}\n"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="not run: reads /proc")
def test_it_is_stopped_when_the_harness_is_killed(tmp_path: Path) -> None:
    """By a signal that nothing can catch."""
    described(tmp_path)
    program = textwrap.dedent(
        f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_targets import described
        from checkpoint_conformance.processes import running
        with running(described(Path({str(tmp_path)!r}))):
            print("running", flush=True)
            time.sleep(600)
        """
    )
    harness = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    assert harness.stdout.readline() == "running\n"
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    wait_until_gone(pids)


@pytest.mark.parametrize(
    ("command", "ready_seconds", "said"),
    [
        (("no-such-program-anywhere",), 30, "No such file or directory"),
        (
            (sys.executable, "-c", "print('cannot find the store'); raise SystemExit(3)"),
            30,
            "status 3",
        ),
        ((sys.executable, "-c", "import time; time.sleep(600)"), 0.5, "Nothing answered at"),
    ],
)
def test_what_does_not_start_is_explained(
    tmp_path: Path, command: tuple[str, ...], ready_seconds: float, said: str
) -> None:
    """With what it printed, in bounded time."""
    start = Start(
        command=command, directory=tmp_path, ready_seconds=ready_seconds, stop_seconds=0.2
    )
    with (
        pytest.raises(LaunchError) as error,
        running(Description(url="http://127.0.0.1:${port}", start=start)),
    ):
        pass
    assert said in str(error.value)
    if "3" in said:
        assert "cannot find the store" in str(error.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("url: http://127.0.0.1:1\n", None),
        ("url: http://127.0.0.1:1\nclasses: [core, mcp]\n", "http://127.0.0.1:1/mcp"),
        ("url: http://127.0.0.1:1\nmcp: http://127.0.0.1:2/rpc\n", "http://127.0.0.1:2/rpc"),
        ("url: http://127.0.0.1:1\nmcp: http://127.0.0.1:2/rpc\nclasses: [core]\n", None),
    ],
    ids=["neither", "claimed", "given", "given-and-not-claimed"],
)
def test_mcp_is_where_it_is_said_or_where_the_contract_says(text: str, url: str | None) -> None:
    """Given it is claimed, claimed it is at `/mcp`."""
    target = parse_description(text, Path("target.yaml")).target()
    assert (target.mcp and target.mcp.url) == url
    assert (RuleClass.MCP in target.claimed_classes) is (url is not None)


@pytest.mark.parametrize(
    ("file", "options", "claimed"),
    [
        ("", {}, "core"),
        ("", {"classes": ("descriptions",)}, "core descriptions"),
        (
            "",
            {"classes": ("descriptions",), "mcp": "http://a/mcp", "controls": "http://b"},
            "core mcp descriptions controls",
        ),
        ("", {"classes": ("mcp",)}, "core mcp"),
        ("classes: [core, descriptions]\n", {}, "core descriptions"),
        ("classes: [core, descriptions]\n", {"mcp": "http://a/mcp"}, "core mcp descriptions"),
        ("classes: [core]\n", {"classes": ("descriptions",)}, "core descriptions"),
        ("mcp: http://a/mcp\n", {"classes": ("descriptions",)}, "core mcp descriptions"),
    ],
)
def test_an_option_never_claims_less(
    tmp_path: Path, file: str, options: dict[str, Any], claimed: str
) -> None:
    """Than the target claims anyhow: a gate would pass with rules of one class alone."""
    (tmp_path / "target.yaml").write_text(f"url: http://a\n{file}")
    description = describe(
        target_file=tmp_path / "target.yaml", url=None, headers=(), seconds_max=None, **options
    )
    assert description is not None
    target = description.target()
    assert target.classes == set(map(RuleClass, claimed.split()))
    assert (target.mcp is not None) is ("mcp" in claimed)


STARTED = """\
url: http://127.0.0.1:${port}
controls: http://127.0.0.1:${controls_port}
store: redis://127.0.0.1:${store_listen_port}
mcp: ${env:MCP_URL}
start: {command: [server, "${port}"]}
durability: none
faults: {store: {command: [store, "${folder}"]}}
"""


def test_a_url_takes_the_place_of_what_would_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So all whose ports would be found for it has to be said as well, and has no faults."""
    monkeypatch.setenv("MCP_URL", "http://a/mcp")
    file = tmp_path / "target.yaml"
    file.write_text(STARTED)
    said = "the ports in .*target.yaml are not known: give --controls, --store as well"
    with pytest.raises(click.UsageError, match=said):
        describe(target_file=file, url="http://a", headers=(), seconds_max=None)
    description = describe(
        target_file=file,
        url="http://a",
        controls="http://b",
        store="redis://c",
        headers=(),
        seconds_max=None,
    )
    assert description is not None
    assert (description.start, description.faults) == (None, None)
    assert description.filled_in({}).target().mcp == Address.parse("http://a/mcp")


def test_an_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it, or a part."""
    monkeypatch.setenv("SERVER", "http://a")
    text = "url: ${env:SERVER}\ncontrols: ${env:SERVER}:81\n"
    target = parse_description(text, Path("target.yaml")).filled_in({}).target()
    assert (target.address.url, target.controls and target.controls.url) == (
        "http://a",
        "http://a:81",
    )
    monkeypatch.setenv("SERVER", "a")
    with pytest.raises(TargetError, match="'a:81' is no base URL"):
        parse_description(text, Path("target.yaml")).filled_in({}).target()
