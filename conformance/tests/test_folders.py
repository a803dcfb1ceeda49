"""Folders of a run are gone however it ends, also where it ends while they are made."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

SECONDS_MAX = 30
"""Of waiting for a guardian; it takes a fraction of a second."""
KILLED = """
import os, signal, subprocess
from checkpoint_conformance.folders import temporary_folder
from checkpoint_reference_server.store import open_store

def killed(what):
    def one_call(*args, **kwargs):
        {order}
    return one_call

{where} = killed({where})
with {folder}:
    pass
"""
BEFORE = "os.kill(os.getpid(), signal.SIGKILL)"
AFTER = f"what(*args, **kwargs); {BEFORE}"


def wait_until_empty(folder: Path) -> None:
    """See what is in a folder removed, by those whose business it is."""
    deadline = time.monotonic() + SECONDS_MAX
    while left := list(folder.iterdir()):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


@pytest.mark.parametrize("folder", ["temporary_folder()", "open_store(None)"])
@pytest.mark.parametrize("where", ["os.mkdir", "subprocess.Popen"])
@pytest.mark.parametrize("order", [BEFORE, AFTER], ids=["before", "after"])
def test_whoever_is_killed_while_it_is_made_leaves_none(
    folder: str, where: str, order: str
) -> None:
    """There is a guardian before there is a folder."""
    # Not `tmp_path`: the store's socket has a short name or none.
    with tempfile.TemporaryDirectory(prefix="wc-") as made:
        done = subprocess.run(
            [sys.executable, "-c", KILLED.format(folder=folder, where=where, order=order)],
            env={**os.environ, "TMPDIR": made, "PATH": os.defpath},
            check=False,
            timeout=SECONDS_MAX,
        )
        # A store's folder is its guardian's to make.
        makes_none = (folder, where) == ("open_store(None)", "os.mkdir")
        assert done.returncode == (0 if makes_none else -9)
        wait_until_empty(Path(made))
