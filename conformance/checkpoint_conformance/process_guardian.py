"""Runs an implementation for as long as somebody holds this program's standard input open.

Started by :mod:`checkpoint_conformance.processes` as a program of its own, so it imports nothing
but the standard library. The implementation is started as the leader of a process group; when
the input ends, because its holder closed it or was killed, the whole group is asked to stop, and
killed when it does not. What the group leaves behind is reaped here, where the system allows it
(Linux): process 1 may take a second over it, or in a container never do so, and a process that is
dead and not reaped is still one of its group.

    python -I process_guardian.py STOP_SECONDS PID_FILE COMMAND [ARGUMENT ...]

PID_FILE is where to write the number of that group; ``-`` for nowhere.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

POLL_SECONDS = 0.02
PR_SET_CHILD_SUBREAPER = 36


def main(stop_seconds: float, pid_file: str, command: list[str]) -> int:
    """Start the command and wait for either end; its exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(  # noqa: S603 - whoever wrote the target's description chose it
            command, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 127
    if pid_file != "-":
        try:
            _write(Path(pid_file), process.pid)
        except OSError as error:
            # Its folder is gone where whoever started this was killed meanwhile.
            _stop_group(process, stop_seconds)
            print(f"{pid_file}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 127

    def stop_at_end_of_input() -> None:
        while os.read(0, 4096):
            pass
        _stop_group(process, stop_seconds)

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    status = process.wait()
    _stop_group(process, stop_seconds)  # children that the command left behind
    return status


def _write(pid_file: Path, group: int) -> None:
    # Renamed into place, so that whoever reads it never reads half of it.
    partial = Path(f"{pid_file}.partial")
    partial.write_text(str(group), encoding="ascii")
    partial.replace(pid_file)


def _stop_group(process: "subprocess.Popen[bytes]", stop_seconds: float) -> None:
    deadline = time.monotonic() + stop_seconds
    _signal(process.pid, signal.SIGTERM)
    while _is_there(process) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _signal(process.pid, signal.SIGKILL)


def _is_there(process: "subprocess.Popen[bytes]") -> bool:
    """Whether any process of the group is left."""
    if process.poll() is not None:
        # Not before: the leader's own status is for whoever waits for it.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-process.pid, os.WNOHANG) != (0, 0):
                pass
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
