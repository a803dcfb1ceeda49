"""``workflow-checkpoint serve``, ``pause`` and ``resume`` as people and programs start them."""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from real_server import (
    KEY_VARIABLE,
    MODULE,
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    environment,
    fresh,
    get,
    held_back,
    in_flight,
    own_store,
    runs,
    same,
    send,
    serving,
    start_process,
    status,
    told,
    wait_until,
)
from tools import not_run_here

from checkpoint_conformance.client import HttpAnswer
from checkpoint_model.vocabulary import CONTRACT_VERSION, HEALTH_PATH, TOOL_PATH
from checkpoint_reference_server import ready_file
from checkpoint_reference_server.app import Settings
from checkpoint_reference_server.digests import Digests
from checkpoint_reference_server.key_change import MARK_KEY
from checkpoint_reference_server.multiplexer import STORE_ANSWER_SECONDS_MAX
from checkpoint_reference_server.serving import Options

PROGRAM = (str(Path(sysconfig.get_path("scripts"), "workflow-checkpoint")),)
STOPS = [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
WORKERS = [(), ("--workers", "2")]


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(autouse=True)
def _anybody_s(own: OwnStore) -> None:
    """No test minds under which key the one before made its records."""
    own.admin.delete(MARK_KEY)


def run(
    *arguments: str, key: str | None = "k" * 32, command: Sequence[str] = MODULE, **env: str
) -> tuple[int, str, str]:
    """Run the program to its end: status, standard output, standard error."""
    given = {KEY_VARIABLE: key} if key is not None else {}
    process = start_process(arguments, env=environment(**given, **env), command=command)
    out, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out.decode(), err.decode()


def is_refused(came: tuple[int, str, str], *texts: str) -> None:
    """Exit status 2, nothing on standard output, and a plain message with these texts."""
    code, out, err = came
    assert (code, out) == (2, ""), came
    assert "Traceback" not in err
    assert err.count("Error: ") == 1
    for text in texts:
        assert text in err


# -- Starting -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [MODULE, (*PROGRAM, "serve")], ids=["module", "program"])
def test_it_says_where_everything_is(own: OwnStore, command: Sequence[str]) -> None:
    """In lines for people and in a file for programs, and what they say is true."""
    with serving("--test-controls", store_url=own.url, command=command) as server:
        lines = server.out.splitlines()
        assert lines == [
            f"Workflow Checkpoint {CONTRACT_VERSION}, reference server",
            f"  tool      {server.url}{TOOL_PATH}",
            "  MCP       not offered (--no-mcp)",
            f"  store     {own.url}  ({server.store_description})",
            f"  controls  {server.controls_url}  (for tests alone: they set its clock)",
        ]
        assert re.fullmatch(r"Valkey \d+\.\d+\.\d+, at the URL given", server.store_description)
        assert server.store_url == own.url
        with server.client() as client, server.controls() as controls:
            assert get(client, HEALTH_PATH).status == 200
            assert told(controls, b"{}", path="/reset") == {}
    assert server.out.splitlines() == lines


def test_without_a_store_it_brings_its_own() -> None:
    """A Valkey at a socket that only this user can reach, set not to evict, saving nothing."""
    with serving() as server, server.client() as client:
        path = Path(server.store_url.removeprefix("unix://"))
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0
        with redis.Redis.from_url(server.store_url, decode_responses=True) as store:
            kept = {name: store.config_get(name)[name] for name in ("save", "appendonly", "port")}
            assert kept == {"save": "", "appendonly": "no", "port": "0"}
            assert store.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert told(client, claim())["acquired"] is True
    assert not path.parent.exists()


def test_the_ready_file_of_an_earlier_server_is_not_believed(own: OwnStore, tmp_path: Path) -> None:
    """Whoever waits for the file would read addresses where nobody answers."""
    ready = tmp_path / "ready.json"
    ready.write_text("{}")
    is_refused(run("--ready-file", str(ready), "--valkey-url", f"{own.url}.not"), "no Valkey")
    assert list(tmp_path.iterdir()) == []


def test_the_ready_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask, and whatever lies there: a store's URL has the password in it."""
    ready = tmp_path / "ready.json"
    for left in ("ready.json", "ready.json.partial"):
        (tmp_path / left).touch(0o666)
        (tmp_path / left).chmod(0o666)
    before = os.umask(0)
    try:
        ready_file.write(ready, {"store": "redis://:secret@localhost"})
    finally:
        os.umask(before)
    assert stat.filemode(ready.stat().st_mode) == "-rw-------"
    assert list(tmp_path.iterdir()) == [ready]


@pytest.mark.parametrize("name", ["missing/ready.json", "folder/ready.json/x"])
def test_a_ready_file_that_cannot_be_written(own: OwnStore, tmp_path: Path, name: str) -> None:
    """Said before anything is served."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "ready.json").touch()
    came = run("--port", "0", "--valkey-url", own.url, "--ready-file", str(tmp_path / name))
    is_refused(came, f"cannot write the ready file {tmp_path / name}: ")


def test_a_port_that_is_taken(own: OwnStore) -> None:
    """Said with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        is_refused(
            run("--port", port, "--valkey-url", own.url),
            f"cannot listen at 127.0.0.1 port {port}: Address already in use. "
            "Give another with --port, or 0 for any free one.",
        )


def test_a_host_that_is_none(own: OwnStore) -> None:
    """An address of nobody here."""
    came = run("--host", "192.0.2.1", "--port", "0", "--valkey-url", own.url)
    is_refused(came, "cannot listen at 192.0.2.1 port 0: ")


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://127.0.0.1:6379", "redis://127.0.0.1:port/0", "redis://[::1:1"]
)
def test_a_url_that_is_no_store_s(url: str) -> None:
    """Said with what one looks like."""
    is_refused(run("--port", "0", "--valkey-url", url), f"{url!r} is no store's URL; one looks ")


def test_a_store_that_is_not_there(own: OwnStore) -> None:
    """Said with where it was looked for, without the password."""
    is_refused(
        run("--port", "0", "--valkey-url", f"{own.url}.not?password=zq-secret"),
        f"no Valkey answers at {own.url}.not (ConnectionError). Is it running, and is the URL ",
    )


def test_something_else_at_the_store_s_address() -> None:
    """A server that speaks first, and not RESP."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"redis://user:zq-secret@127.0.0.1:{other.getsockname()[1]}/0"
        process = start_process(
            ["--port", "0", "--valkey-url", url], env=environment(**{KEY_VARIABLE: "k" * 32})
        )
        other.settimeout(SECONDS_MAX)
        accepted, _ = other.accept()
        with accepted:
            accepted.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            out, err = process.communicate(timeout=SECONDS_MAX)
    is_refused((process.returncode, out.decode(), err.decode()), "no Valkey answers at redis://127")
    assert b"zq-secret" not in err


def test_a_store_that_wants_another_password(own: OwnStore) -> None:
    """Said at once: waiting does not make it right."""
    own.admin.config_set("requirepass", "right")
    try:
        for url in (own.url, f"{own.url}?password=zq-secret"):
            came = run("--port", "0", "--valkey-url", url)
            is_refused(came, f"the Valkey at {own.url} wants another password")
            assert "zq-secret" not in came[2]
        with serving(store_url=f"{own.url}?password=right") as server, server.client() as client:
            assert told(client, claim())["acquired"] is True
            assert "right" not in server.out + server.err
            assert server.store_url == f"{own.url}?password=right"  # programs need it
    finally:
        own.admin.config_set("requirepass", "")


def test_controls_are_for_one_worker() -> None:
    """WC-CTL: their state lies in the process."""
    came = run("--dev-key", "--test-controls", "--workers", "2", key=None)
    is_refused(came, "--test-controls works with one worker only")


@pytest.mark.parametrize("missing", ["uvicorn", "starlette", "msgspec", "jsonschema_rs"])
def test_a_server_that_is_not_installed(missing: str) -> None:
    """The bare distribution has the command, and it says what to install."""
    program = f"import sys; sys.modules[{missing!r}] = None\n"
    program += "from checkpoint_reference_server.commands import serve\nserve()"
    is_refused(
        run(command=(sys.executable, "-c", program)),
        f"the server is not installed ({missing} is missing). Install it with:\n"
        "  pip install 'workflow-checkpoint[server,embedded]'\n",
    )


# -- The key ----------------------------------------------------------------------------------


def test_no_key() -> None:
    """WC-ID-5: a server that was given none does not start."""
    is_refused(
        run(key=None),
        f"No HMAC key. Set {KEY_VARIABLE} or give --hmac-key-file; "
        "--dev-key makes one up for development.",
    )


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_short_key(tmp_path: Path, length: int) -> None:
    """WC-ID-5: from the environment and from a file; the message does not show it."""
    file = tmp_path / "key"
    file.write_text("\u00e9" * (length // 2) + "z" * (length % 2))
    for came in (
        run(key=file.read_text()),
        run("--hmac-key-file", str(file), key=None),
    ):
        is_refused(came, f"The HMAC key has {length} bytes; it needs at least 32.")
        assert "\u00e9" not in came[2]
        assert "openssl rand -hex 32" in came[2]


def test_a_key_that_is_given_twice(tmp_path: Path) -> None:
    """Which of them counts would be a guess."""
    file = tmp_path / "key"
    file.write_text("k" * 32)
    for arguments in (("--dev-key",), ("--hmac-key-file", str(file))):
        is_refused(run(*arguments), "Give the HMAC key once: ")
    is_refused(run("--dev-key", "--hmac-key-file", str(file), key=None), "Give the HMAC key once: ")


def test_a_key_file_that_is_not_there(tmp_path: Path) -> None:
    """Said by its name."""
    is_refused(run("--hmac-key-file", str(tmp_path / "none"), key=None), str(tmp_path / "none"))


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_key_file_has_the_key_but_for_one_final_newline(
    own: OwnStore, tmp_path: Path, ending: str
) -> None:
    """The same key gives the same hash, wherever it comes from."""
    key, request, file = secrets.token_hex(16), claim(), tmp_path / "key"
    file.write_text(key + ending)
    expected = Digests(key.encode()).workflow(request["namespace"], request["workflow_key"])
    program = f"import os; del os.environ[{KEY_VARIABLE!r}]\n"
    program += "from checkpoint_reference_server.commands import serve\nserve()"
    with (
        serving(
            *("--hmac-key-file", str(file)),
            store_url=own.url,
            command=(sys.executable, "-c", program),
        ) as server,
        server.client() as client,
    ):
        assert told(client, request)["workflow_hash"] == expected.workflow_hash


def test_a_key_made_up_for_development_is_another_each_time(own: OwnStore) -> None:
    """WC-ID-5."""
    request, hashes = claim(), set()
    program = f"import os; del os.environ[{KEY_VARIABLE!r}]\n"
    program += "from checkpoint_reference_server.commands import serve\nserve()"
    for _ in range(2):
        command = (sys.executable, "-c", program)
        with (
            serving("--dev-key", store_url=own.url, command=command) as server,
            server.client() as client,
        ):
            hashes.add(told(client, request)["workflow_hash"])
    assert len(hashes) == 2


def test_the_key_is_seen_nowhere(own: OwnStore) -> None:
    """Not among the processes' arguments, in no log, in the text of no object."""
    ps = shutil.which("ps") or not_run_here("who can see the key", "ps", "apt-get install procps")
    key = secrets.token_hex(32)
    with (
        serving("--log-level", "debug", "--workers", "2", store_url=own.url, key=key) as server,
        server.client() as client,
    ):
        told(client, claim())
        send(client, b"\xff")
        listed = subprocess.run(
            [ps, "-A", "-o", "args"], capture_output=True, text=True, check=True
        ).stdout
        assert "checkpoint_reference_server" in listed
    assert key not in listed + server.out + server.err
    options = Options(
        host="127.0.0.1",
        port=0,
        valkey_url="redis://:zq-secret@127.0.0.1/0",
        workers=1,
        mcp=None,
        test_controls=False,
        hmac_key=key.encode(),
        log_level="info",
        ready_file=None,
        exit_with_input=False,
    )
    settings = Settings(store_url="redis://:zq-secret@127.0.0.1/0", hmac_key=key.encode())
    digests = Digests(key.encode())
    shown = [options, settings, digests, digests.workflow("n", "w")]
    assert not any(key in repr(one) or "zq-secret" in repr(one) for one in shown)


# -- Stopping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS, ids=["one", "two"])
@pytest.mark.parametrize(("sig", "code"), STOPS)
def test_a_signal_lets_requests_in_flight_finish(
    own: OwnStore, workers: tuple[str, ...], sig: signal.Signals, code: int
) -> None:
    """Sent to the whole process group, as Ctrl-C is; nobody new is let in meanwhile."""
    with serving(*workers, store_url=own.url) as server, server.client() as client:
        with held_back(own):
            flight = in_flight(client, own, claim())
            os.killpg(server.process.pid, sig)
            # Short of the time after which the server gives up a store that stands still: on a
            # busy machine another worker may take longer to begin than this request may wait.
            deadline = time.monotonic() + STORE_ANSWER_SECONDS_MAX / 2
            while _accepts(server.url) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert server.process.poll() is None
        answer = flight.land().answer
        assert isinstance(answer, HttpAnswer)
        assert json.loads(answer.body)["acquired"] is True
        wait_until(lambda: not _accepts(server.url), "it takes no more connections")
        assert server.wait() == code
    _is_clean(server)


def _accepts(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_MAX).close()
    except ConnectionRefusedError:
        return False
    return True


def _is_clean(server: Server) -> None:
    """Nothing on standard error but log lines, none of which tells of a fault."""
    for line in server.err.splitlines():
        assert json.loads(line)["level"] in ("debug", "info"), line


@pytest.mark.parametrize("workers", WORKERS, ids=["one", "two"])
@pytest.mark.parametrize(("sig", "code"), STOPS)
def test_its_own_store_outlives_the_requests_in_flight_and_then_ends(
    workers: tuple[str, ...], sig: signal.Signals, code: int
) -> None:
    """Ctrl-C does not reach the store, which answers to the last; then it and its folder go."""
    with (
        serving(*workers) as server,
        redis.Redis.from_url(server.store_url, decode_responses=True) as admin,
        server.client() as client,
    ):
        pid = int(admin.info("server")["process_id"])
        folder = Path(server.store_url.removeprefix("unix://")).parent
        told(client, claim())
        os.killpg(server.process.pid, sig)
        assert server.wait() == code
        assert not runs(pid)
        assert not folder.exists()
    _is_clean(server)


@pytest.mark.parametrize("workers", WORKERS, ids=["one", "two"])
def test_killed_it_leaves_nothing_behind(workers: tuple[str, ...]) -> None:
    """SIGKILL, which nothing can catch: its store, its folder and its workers are gone."""
    with (
        serving(*workers) as server,
        redis.Redis.from_url(server.store_url, decode_responses=True) as admin,
        server.client() as client,
    ):
        pid = int(admin.info("server")["process_id"])
        folder = Path(server.store_url.removeprefix("unix://")).parent
        told(client, claim())
        server.process.kill()
        assert server.wait() == -signal.SIGKILL
        wait_until(lambda: not runs(pid), "its store has ended")
        wait_until(lambda: not folder.exists(), "its folder is gone")
        wait_until(lambda: not _accepts(server.url), "no worker holds the port")


@pytest.mark.parametrize("workers", WORKERS, ids=["one", "two"])
def test_it_ends_with_its_input(own: OwnStore, workers: tuple[str, ...]) -> None:
    """``--exit-with-input``: what a program that started it gets by dying."""
    with serving(*workers, store_url=own.url) as server, server.client() as client:
        told(client, claim())
        assert server.process.stdin is not None
        server.process.stdin.write(b"whatever\n")
        server.process.stdin.flush()
        assert told(client, claim())["acquired"] is True
        server.process.stdin.close()
        assert server.wait() == 0
    _is_clean(server)


@pytest.mark.parametrize(("sig", "code"), STOPS)
def test_stopped_while_it_looks_for_its_store(sig: signal.Signals, code: int) -> None:
    """Before anything is served, too, it ends at once and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS_MAX)
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        process = start_process(
            ["--port", "0", "--valkey-url", url], env=environment(**{KEY_VARIABLE: "k" * 32})
        )
        accepted, _ = silent.accept()
        with accepted:
            process.send_signal(sig)
            assert process.communicate(timeout=SECONDS_MAX) == (b"", b"")
    assert process.returncode == code


def test_workers_share_the_port_and_the_store() -> None:
    """Either may answer, and both act on the same records."""
    with serving("--workers", "2") as server:
        request = claim()
        clients = [server.client() for _ in range(8)]
        answers = [told(client, request) for client in clients]
        for client in clients:
            client.close()
    assert [answer["acquired"] for answer in answers].count(True) == 1
    assert [answer["reused"] for answer in answers].count(True) == 7


# -- Pausing --------------------------------------------------------------------------------------


def test_a_pause_holds_in_every_server_when_the_command_returns(own: OwnStore) -> None:
    """WC-ERR-7: claims are refused at once and everywhere, work in flight is still recorded."""
    key = secrets.token_hex(32)
    with (
        serving(store_url=own.url, key=key) as one,
        serving("--workers", "2", store_url=own.url, key=key) as other,
    ):
        # Several connections each, so that the second one's workers both take part.
        clients = [server.client() for server in (one, *[other] * 8)]
        request = claim()
        for client in clients:
            told(client, request)  # each process has now read that the tool is not paused
        assert run("--valkey-url", own.url, command=(*PROGRAM, "pause"), key=None) == (
            0,
            "Paused: claims are refused. Work in flight is still recorded.\n",
            "",
        )
        for client in clients:
            assert told(client, claim())["code"] == "TOOL_PAUSED"
            assert told(client, request)["code"] == "TOOL_PAUSED"
            assert told(client, status(request))["stage"] == "claimed"
        move: dict[str, Any] = {"to_stage": "uncertain", "observation_key": fresh("o")}
        moved = told(clients[0], same(request, "transition", generation=1, **move))
        assert moved["transitioned"] is True
        abandoned = told(clients[1], same(request, "abandon", generation=1))
        assert abandoned["abandoned"] is True
        assert run(command=(*PROGRAM, "resume"), key=None, VALKEY_URL=own.url) == (
            0,
            "Resumed: claims are decided again.\n",
            "",
        )
        for client in clients:
            assert told(client, claim())["acquired"] is True
            client.close()


def test_a_pause_outlives_the_server(own: OwnStore) -> None:
    """It is the operator's, who takes it back: a restart does not."""
    run("--valkey-url", own.url, command=(*PROGRAM, "pause"), key=None)
    try:
        with serving(store_url=own.url) as server, server.client() as client:
            assert told(client, claim())["code"] == "TOOL_PAUSED"
    finally:
        run("--valkey-url", own.url, command=(*PROGRAM, "resume"), key=None)


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_pause_of_no_store(own: OwnStore, command: str) -> None:
    """Which store, and is it there?"""
    program = (*PROGRAM, command)
    is_refused(run(command=program, key=None), "Which store? Give --valkey-url or set VALKEY_URL.")
    is_refused(run("--valkey-url", "x", command=program, key=None), "'x' is no store's URL")
    is_refused(
        run("--valkey-url", f"{own.url}.not", command=program, key=None), "no Valkey answers at "
    )
