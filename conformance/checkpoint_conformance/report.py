"""``report.json``: everything that a run saw, versioned; every other format is rendered from it.

``report.schema.json`` beside this file says what stands in it.
"""

import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from checkpoint_conformance.graph import Cell, cells
from checkpoint_conformance.plain import bounded, plain
from checkpoint_conformance.reproduction import HEAD, script
from checkpoint_conformance.rules import SECTIONS, Binding, rules
from checkpoint_conformance.run import Run
from checkpoint_conformance.tally import Failure, Sent
from checkpoint_conformance.vectors import write_vectors
from checkpoint_conformance.vectors.making import make_vector
from checkpoint_conformance.verdict import Judged, RuleStatus, Status, Verdict, judge
from checkpoint_model import CONTRACT_VERSION

FORMAT: Final = 1
"""The version of the report's shape; a member that changes its meaning raises it."""
FILE_NAME: Final = "report.json"
VECTORS_SUFFIX: Final = ".vectors.jsonl"


class FolderError(Exception):
    """The report cannot be written; the message says where and why."""


class ReportError(Exception):
    """There is no report that can be read; the message says what was found and what to do."""


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
        "not_as_expected": list(judged.stale),
        "sections": _sections(),
        "rules": {rule_id: _rule(status) for rule_id, status in judged.rules.items()},
        "moves": [_move(cell, run) for cell in cells()],
        "checks": [
            {
                "name": timing.name,
                "title": timing.title,
                "seconds": round(timing.seconds, 2),
                "requests": timing.requests,
            }
            for timing in run.tally.timings
        ],
        "failures": [_failure(failure, run) for failure in run.tally.failures.values()],
        "requests": run.tally.requests,
        "unanswered": run.tally.lost,
        "lost": [
            {"what": what, "times": times} for what, times in run.tally.lost_what.most_common()
        ],
        "remarks": list(run.tally.remarks),
        **({"faults": dict(run.tally.faults)} if run.tally.faults is not None else {}),
        "target": {
            "url": target.address.url,
            "controls": target.controls.url if target.controls else None,
            "mcp": target.mcp.url if target.mcp else None,
            "store": "given" if target.store_url else None,
            "description": target.description or None,
            "name": target.name or None,
            "version": target.version or None,
            "homepage": target.homepage or None,
        },
        "versions": versions(),
        "profile": run.profile.name,
        "seed": run.seed,
        "started_at": outcome.started_at,
        "seconds": round(outcome.seconds, 1),
    }


def of_run(run: Run) -> dict[str, Any]:
    """The report of a run as it stands, for whoever shows its failures before it has ended."""
    judged = judge(run.tally, run.target)
    return document(Outcome(run=run, judged=judged, started_at="", seconds=0))


def error_document(message: str, **facts: object) -> dict[str, Any]:
    """The report of a run that could not be made: every rule is listed, none was run."""
    return {
        "format": FORMAT,
        "verdict": str(Verdict.ERROR),
        "line": f"ERROR: {message}",
        "sections": _sections(),
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


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """Write ``report.json``, and a shell script for each failure.

    Raises:
        FolderError: the folder cannot be written.
    """
    files = {FILE_NAME: json.dumps(report, indent=2, allow_nan=False) + "\n"}
    for failure in report["failures"]:
        stem = file_stem(failure)
        files[f"{stem}.sh"] = failure["reproduction"]
        if failure.get("vector"):
            files[f"{stem}{VECTORS_SUFFIX}"] = failure["vector"]
    write_files(folder, files)
    _remove_scripts(folder, besides=files)


def file_stem(failure: Mapping[str, Any]) -> str:
    """How the files of a failure begin: a rule may be broken over each binding in its own way."""
    suffix = f".{Binding.MCP}" if failure.get("binding") == Binding.MCP else ""
    return f"{failure['rules'][0]}{suffix}"


def _door(sent: Sent) -> str:
    if sent.on_controls:
        return "controls"
    return "mcp" if sent.binding is Binding.MCP else "target"


def _remove_scripts(folder: Path, besides: Iterable[str]) -> None:
    """Remove the scripts of an earlier run: they would tell of failures that are none now."""
    for ending, head in ((".sh", "\n".join(HEAD)), (VECTORS_SUFFIX, '{"format":')):
        for path in folder.glob(f"WC-*{ending}"):
            rule_id = path.name.removesuffix(ending).removesuffix(f".{Binding.MCP}")
            if path.name in besides or rule_id not in rules():
                continue
            with suppress(OSError, ValueError):
                if path.read_text(encoding="utf-8").startswith(head):
                    path.unlink()


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into a folder, which is made where it is missing.

    Raises:
        FolderError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise FolderError(f"cannot write the report to {folder}: {error.strerror}") from None


def vector_of(failure: Failure) -> str | None:
    """The failure as a file that `replay` sends again; None where it was more than requests."""
    if not failure.moves or isinstance(failure.moves[-1], int):
        return None
    vector = make_vector(failure.moves, failure.identity)
    return write_vectors([vector], contract=CONTRACT_VERSION)


def read(folder: Path) -> dict[str, Any]:
    """The report that an earlier run wrote.

    Args:
        folder: the folder, or the file itself.

    Raises:
        ReportError: there is none, or none that this version can read.
    """
    path = folder / FILE_NAME if folder.is_dir() else folder
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(
            f"there is no {path}. A run writes one: workflow-checkpoint check --report DIR"
        ) from None
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not JSON: {plain(error, 200)}") from None
    if not isinstance(report, dict) or type(report.get("format")) is not int:
        raise ReportError(f"{path} is no report of workflow-checkpoint: it has no format number")
    if report["format"] > FORMAT:
        raise ReportError(
            f"{path} has format {report['format']}, this version reads {FORMAT}: "
            "update it with pip install --upgrade workflow-checkpoint"
        )
    wrong = _misshapen(report)
    if wrong:
        raise ReportError(f"{path} is no report of workflow-checkpoint: {wrong}")
    return report


def _misshapen(report: Mapping[str, Any]) -> str:
    """What keeps a report from being rendered, if anything; the schema says the rest."""
    if report.get("verdict") not in Verdict.__members__.values():
        return "its verdict is none"
    for member, kind in (("line", str), ("rules", dict), ("failures", list), ("versions", dict)):
        if not isinstance(report.get(member), kind):
            return f"its member {member} is missing or of another type"
    for rule_id, rule in report["rules"].items():
        if not isinstance(rule, dict) or not isinstance(rule.get("text"), str):
            return f"its rule {plain(rule_id, 40)} has no text"
        if rule.get("status") not in Status.__members__.values():
            return f"its rule {plain(rule_id, 40)} has no status"
        if type(rule.get("hits")) is not int:
            return f"its rule {plain(rule_id, 40)} has no number of hits"
    for failure in report["failures"]:
        texts = ("check", "what", "expected", "got", "reproduction")
        if not isinstance(failure, dict) or not all(isinstance(failure.get(t), str) for t in texts):
            return "a failure lacks one of " + ", ".join(texts)
        if not failure.get("rules") or not all(isinstance(r, str) for r in failure["rules"]):
            return "a failure names no rule"
        if not all(isinstance(sent, dict) for sent in failure.get("sequence", [None])):
            return "a failure has no sequence"
    return ""


def _sections() -> dict[str, str]:
    return {str(number): title for number, title in SECTIONS.items()}


def _move(cell: Cell, run: Run) -> dict[str, Any]:
    return {
        "from": None if cell.source is None else str(cell.source),
        "to": str(cell.target),
        "by": "claim" if cell.is_claim else "transition",
        "evidence": None if cell.evidence is None else str(cell.evidence),
        "count": run.tally.moves[cell],
        "broken": run.tally.broken_moves[cell],
    }


def _rule(status: RuleStatus) -> dict[str, Any]:
    members: dict[str, Any] = {"status": str(status.status), "hits": status.hits}
    if status.reason:
        members["reason"] = status.reason
    if status.counts_as_gap:
        members["gap"] = True
    members["floor"] = status.rule.floor
    members["section"] = status.rule.section
    members["class"] = str(status.rule.rule_class)
    members["access"] = str(status.rule.access)
    members["text"] = status.rule.text
    if status.rule.breaks:
        members["usual_cause"] = status.rule.breaks
    if status.over:
        members["bindings"] = {
            str(binding): {
                "status": str(told.status),
                "hits": told.hits,
                **({"reason": told.reason} if told.reason else {}),
            }
            for binding, told in status.over.items()
        }
    return members


def _failure(failure: Failure, run: Run) -> dict[str, Any]:
    return {
        "rules": list(failure.fault.rules),
        "binding": str(failure.binding),
        "check": failure.check,
        "what": bounded(failure.fault.what),
        "expected": bounded(failure.fault.expected),
        "got": bounded(failure.fault.got),
        "expected_members": failure.expected,
        "got_members": bounded(failure.got),
        "sequence": [
            {
                "on": _door(sent),
                "method": sent.method,
                "path": sent.path,
                "headers": dict(sent.headers),
                "body": sent.body.decode("utf-8", "backslashreplace"),
                "answered": sent.answered,
            }
            for sent in failure.sequence
        ],
        "reproduction": script(failure.sequence, run.target),
        "vector": vector_of(failure),
    }
