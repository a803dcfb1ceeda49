"""``report.json``: everything that a run saw, versioned, for programs and later renderings."""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from checkpoint_conformance.reproduction import script
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import Run
from checkpoint_conformance.tally import Failure
from checkpoint_conformance.vectors import Vector, write_vectors
from checkpoint_conformance.vectors.making import make_vector
from checkpoint_conformance.verdict import Judged, RuleStatus, Status, Verdict
from checkpoint_model import CONTRACT_VERSION

FORMAT: Final = 1
"""The version of the report's shape; a member that changes its meaning raises it."""
FILE_NAME: Final = "report.json"


class FolderError(Exception):
    """The report cannot be written; the message says where and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended, as the report and the terminal tell it."""

    run: Run
    judged: Judged
    started_at: str
    """RFC 3339, UTC."""
    seconds: float


def versions() -> dict[str, str]:
    """What took part: the contract, the harness, Hypothesis, Python."""
    return {
        "contract": CONTRACT_VERSION,
        "workflow-checkpoint": metadata.version("workflow-checkpoint"),
        "hypothesis": metadata.version("hypothesis"),
        "python": platform.python_version(),
    }


def document(outcome: Outcome) -> dict[str, Any]:
    """The report as JSON."""
    run, judged = outcome.run, outcome.judged
    target = run.target
    return {
        "format": FORMAT,
        "verdict": str(judged.verdict),
        "line": judged.line,
        "incomplete_because": list(judged.gaps),
        "rules": {rule_id: _rule(status) for rule_id, status in judged.rules.items()},
        "failures": [_failure(failure, run) for failure in run.tally.failures.values()],
        "requests": run.tally.requests,
        "unanswered": run.tally.lost,
        "remarks": list(run.tally.remarks),
        "target": {
            "url": target.address.url,
            "controls": target.controls.url if target.controls else None,
            "store": "given" if target.store_url else None,
            "description": target.description or None,
        },
        "versions": versions(),
        "profile": run.profile.name,
        "seed": run.seed,
        "started_at": outcome.started_at,
        "seconds": round(outcome.seconds, 1),
    }


def error_document(message: str, **facts: object) -> dict[str, Any]:
    """The report of a run that could not be made: every rule is listed, none was run."""
    return {
        "format": FORMAT,
        "verdict": str(Verdict.ERROR),
        "line": f"ERROR: {message}",
        "rules": {
            rule.id: _rule(RuleStatus(rule=rule, status=Status.NOT_RUN, hits=0, reason=message))
            for rule in rules().values()
        },
        "failures": [],
        "versions": versions(),
        **facts,
    }


def unfinished_document(why: str, **facts: object) -> dict[str, Any]:
    """The report of a run that has not come to its end."""
    line = f"INCOMPLETE: {why}"
    return {
        **error_document(why, **facts),
        "verdict": str(Verdict.INCOMPLETE),
        "line": line,
        "incomplete_because": [why],
    }


def write(folder: Path, report: Mapping[str, Any], outcome: Outcome | None = None) -> None:
    """Write ``report.json``, and a shell script for each failure.

    Raises:
        FolderError: the folder cannot be written.
    """
    text = json.dumps(report, indent=2) + "\n"
    files = {FILE_NAME: text}
    if outcome is not None:
        target = outcome.run.target
        for failure in outcome.run.tally.failures.values():
            name = f"{failure.rule}.sh"
            files[name] = script(failure.sequence, target.address, target.controls)
            vector = vector_of(failure)
            if vector is not None:
                name = f"{failure.rule}.vectors.jsonl"
                files[name] = write_vectors([vector], contract=CONTRACT_VERSION)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise FolderError(f"cannot write the report to {folder}: {error.strerror}") from None


def vector_of(failure: Failure) -> Vector | None:
    """The failure as a vector that `replay` sends again; None where it was more than requests."""
    if not failure.moves or isinstance(failure.moves[-1], int):
        return None
    return make_vector(failure.moves, failure.identity)


def _rule(status: RuleStatus) -> dict[str, Any]:
    members: dict[str, Any] = {"status": str(status.status), "hits": status.hits}
    if status.reason:
        members["reason"] = status.reason
    members["floor"] = status.rule.floor
    members["class"] = str(status.rule.rule_class)
    members["access"] = str(status.rule.access)
    members["text"] = status.rule.text
    return members


def _failure(failure: Failure, run: Run) -> dict[str, Any]:
    return {
        "rules": list(failure.fault.rules),
        "check": failure.check,
        "what": failure.fault.what,
        "expected": failure.fault.expected,
        "got": failure.fault.got,
        "expected_members": failure.expected,
        "got_members": failure.got,
        "sequence": [
            {
                "on": "controls" if sent.on_controls else "target",
                "method": sent.method,
                "path": sent.path,
                "headers": dict(sent.headers),
                "body": sent.body.decode("utf-8", "backslashreplace"),
                "answered": sent.answered,
            }
            for sent in failure.sequence
        ],
        "reproduction": script(failure.sequence, run.target.address, run.target.controls),
    }
