"""Runs a store for as long as somebody holds this program's standard input open.

Started by :mod:`checkpoint_reference_server.store` as a program of its own, so it imports
nothing but the standard library. Whoever started it keeps the writing end of its input; when
that end closes, because its holder closed it, crashed or was killed with a signal that nothing
can catch, the store is stopped and its folder removed.

    python -I store_guardian.py FOLDER COMMAND [ARGUMENT ...]
"""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

STOP_SECONDS_MAX = 5
"""How long the store may take to stop before it is killed."""


def main(folder: Path, command: list[str]) -> None:
    """Make the folder, start the command in it, wait for either end, leave nothing behind."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "store.log").open("wb") as log:
        store = subprocess.Popen(  # noqa: S603 - the command is its starter's own
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder
        )
    threading.Thread(target=_stop_at_end_of_input, args=(store,), daemon=True).start()
    status = store.wait()
    # A store that failed by itself leaves its log to be read; its starter removes the folder.
    if status <= 0 or _input_has_ended.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if status > 0 else 0)


_input_has_ended = threading.Event()


def _stop_at_end_of_input(store: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    _input_has_ended.set()
    store.terminate()
    try:
        store.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        store.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
