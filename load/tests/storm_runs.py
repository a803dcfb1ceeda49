"""Runs the command as people do, and reads what it left."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
from real_server import SECONDS_MAX, Server

from checkpoint_conformance.client import Address
from checkpoint_conformance.history import (
    Call,
    HistoryWriter,
    begin_header,
    read_file,
    read_folder,
)
from checkpoint_conformance.run import Target
from checkpoint_load.arena import Arena
from checkpoint_load.burst import Stop
from checkpoint_load.storms import STORMS, play

SCHEMA = Path(__file__).parents[1] / "checkpoint_load/storm.schema.json"
COMMAND = (sys.executable, "-c", "from checkpoint_conformance.cli import main; main()", "storm")
RUN_SECONDS_MAX = 120.0


@dataclass(frozen=True, kw_only=True)
class Stormed:
    """A run of the command, and what it left."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """``storm.json``, which matches its schema."""
        report: dict[str, Any] = json.loads((self.folder / "storm.json").read_text())
        schema = json.loads(SCHEMA.read_text())
        jsonschema_rs.Draft202012Validator(schema).validate(report)
        return report

    def calls(self) -> Iterator[Call]:
        """Everything in its histories."""
        for file in read_folder(self.folder):
            yield from (entry for entry in file if isinstance(entry, Call))


def storm(
    folder: Path, *arguments: str, url: str | None = None, env: dict[str, str] | None = None
) -> Stormed:
    """Run the command to its end."""
    where = [] if url is None else ["--url", url]
    command = [*COMMAND, *arguments, *where, "--report", str(folder)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
        env={**os.environ, "COLUMNS": "120", **(env or {})},
    )
    return Stormed(status=done.returncode, out=done.stdout, err=done.stderr, folder=folder)


CONTENDERS = 30
SMALL = ("--contenders", str(CONTENDERS), "--rounds", "2")


def played(
    server: Server,
    name: str,
    folder: Path,
    *,
    contenders: int = CONTENDERS,
    rounds: int = 2,
    seed: int = 1,
    lose_share: float = 0,
) -> list[Call]:
    """Play a storm in this process, without Locust; its calls as its history has them."""
    target = Target(address=Address.parse(server.url), seconds_max=SECONDS_MAX)
    path = folder / f"{name}.jsonl"
    with closing(Stop()) as stop:
        arena = Arena(target, contenders=contenders, seed=seed, stop=stop, lose_share=lose_share)
        header = begin_header(name, {"url": server.url}, {"contenders": contenders})
        with closing(arena), HistoryWriter(path, header) as writer:
            arena.begin(name, writer, time.monotonic() + RUN_SECONDS_MAX)
            play(STORMS[name], arena, rounds)
    return [entry for entry in read_file(path) if isinstance(entry, Call)]
