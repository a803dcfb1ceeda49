"""A store of its own: what it keeps through a crash, and how it is stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from real_server import SECONDS_MAX, environment, runs, valkey_binary, wait_until

from checkpoint_reference_server import store_commands
from checkpoint_reference_server.store_service import SETTINGS

MODULE = (sys.executable, "-m", "checkpoint_reference_server.store_commands")


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def storing(folder: Path, port: int, durability: str) -> Iterator[tuple[redis.Redis, int]]:
    """The command while it runs: a client, and the store's own process."""
    valkey_binary()  # or word that nothing was run
    ready = folder / "ready.json"
    where = ("--port", str(port), "--folder", str(folder / "data"), "--ready-file", str(ready))
    with subprocess.Popen(
        [*MODULE, *where, "--durability", durability],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            wait_until(lambda: ready.exists() or process.poll() is not None, "the store is ready")
            facts = json.loads(ready.read_text())
            assert facts["durability"] == durability
            with redis.Redis.from_url(facts["url"], decode_responses=True) as client:
                yield client, facts["pid"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS_MAX)
            ready.unlink()


@pytest.mark.parametrize(("durability", "kept"), [("change", "1"), ("none", None)])
def test_what_survives_a_crash_is_what_was_said(
    tmp_path: Path, durability: str, kept: str | None
) -> None:
    """Killed just after it had answered, and started again in the same place."""
    port = free_port()
    with storing(tmp_path, port, durability) as (client, pid):
        client.set("key", "1")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not runs(pid), "the store is gone")
    with storing(tmp_path, port, durability) as (client, _):
        assert client.get("key") == kept
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_it_ends_with_its_command(tmp_path: Path) -> None:
    """Asked to stop, it leaves no process; what it keeps is in its folder."""
    with storing(tmp_path, free_port(), "second") as (client, pid):
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
        assert runs(pid)
    wait_until(lambda: not runs(pid), "the store is gone")
    assert (tmp_path / "data/appendonlydir").is_dir()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    """Not waited for."""
    valkey_binary()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        done = subprocess.run(
            [*MODULE, "--port", port, "--folder", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            env=environment(),
        )
    assert done.returncode == 1
    assert f"no Valkey answers at redis://127.0.0.1:{port}/0" in done.stderr


def test_the_command_knows_every_durability() -> None:
    """It states them anew, to be light."""
    assert tuple(SETTINGS) == store_commands.DURABILITIES
    help_text = CliRunner().invoke(store_commands.store, ["--help"]).output
    assert "[none|second|change]" in help_text
