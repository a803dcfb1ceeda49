"""Mutants of what is written to the log."""

import json
from pathlib import Path

from checkpoint_conformance.checks import example, logs
from checkpoint_conformance.mutants.mutant import Kind, Mutant, Writes
from checkpoint_conformance.mutants.proxy import Message
from checkpoint_conformance.run import Run


def examples_and_logs(run: Run) -> None:
    """What the examples send, then a look at the log."""
    example.examples(run)
    logs.judge_logs(run)


def _holder(log: Path, message: Message) -> None:
    with log.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"level": "info", "holder": message.json.get("holder")}) + "\n")


def _body(log: Path, message: Message) -> None:
    with log.open("ab") as out:
        out.write(b"got " + message.body + b"\n")


LOGS: tuple[Mutant, ...] = (
    Mutant(
        name="logs-the-holder",
        wrong="Writes a line with the raw holder of every request to its log.",
        kind=Kind.LOG,
        fault=Writes(_holder),
        rules=("WC-PRIV-1",),
        part=examples_and_logs,
        only=True,
    ),
    Mutant(
        name="logs-bodies",
        wrong="Writes every request's body to its log.",
        kind=Kind.LOG,
        fault=Writes(_body),
        rules=("WC-PRIV-1",),
        part=examples_and_logs,
        only=True,
    ),
)
