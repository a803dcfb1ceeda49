"""Folders for the length of a run, removed however it ends.

A context manager removes nothing when its process is killed. So a second process, this file run
as a program, waits for the end of its standard input, which is also the end of its parent.

    python -I folders.py FOLDER
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "workflow-checkpoint-"
NAME_BYTES = 8
"""Random ones, so that nobody can have made a folder of that name before."""
POLL_SECONDS = 0.05
SECONDS_MAX = 30.0
"""What is still written to after so long is left."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """An empty folder, removed at the end of the context, or of this process if that is sooner."""
    # Named before it is made: killed between the two, this process would leave it to nobody.
    folder = Path(tempfile.gettempdir(), f"{PREFIX}{os.urandom(NAME_BYTES).hex()}")
    guardian = subprocess.Popen(  # noqa: S603 - this very file, by our own interpreter
        [sys.executable, "-I", "-S", __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the harness
    )
    assert guardian.stdin is not None
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        guardian.stdin.close()
        guardian.wait()
        shutil.rmtree(folder, ignore_errors=True)  # if the guardian was killed


def put_text(path: Path, text: str) -> None:
    """Put a text in the place of a file's own in one step, so that nobody reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def main(folder: str) -> None:
    """Wait for the end of the input, and remove the folder."""
    while os.read(0, 4096):
        pass
    # Programs that stop at the same time may still write there.
    deadline = time.monotonic() + SECONDS_MAX
    while Path(folder).exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
