"""``report.html``: one page that needs nothing else, to be looked at, sent and printed.

The page's policy lets no script run but its own, by its digest, and nothing be loaded: whatever a
target answered stays text, should an escape ever be missing.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup, escape

from checkpoint_conformance.graph import Cell, Covered, cells, svg
from checkpoint_conformance.mcp_client import arguments_of
from checkpoint_conformance.plain import plain
from checkpoint_conformance.renderings.facts import (
    SEQUENCE_MAX,
    Report,
    cause_of,
    counts,
    failure_of,
    is_expected,
    members,
    remarks,
    script,
    sections,
    text_of,
)
from checkpoint_conformance.renderings.faults import fault_rows, faults_line
from checkpoint_conformance.renderings.pages import digest, environment, own_file
from checkpoint_conformance.report import VECTORS_SUFFIX, file_stem
from checkpoint_conformance.verdict import Status, Verdict

_BODY_MAX: Final = 2000
_TOLD_MAX: Final = 1500
_HEADLINES: Final = {
    Verdict.PASS: "It conforms",
    Verdict.FAIL: "It does not conform",
    Verdict.INCOMPLETE: "Too little was exercised to say",
    Verdict.ERROR: "The run could not be made",
}
_SIGNS: Final = {
    Status.PASSED: "✓",
    Status.FAILED: "✕",
    Status.EXPECTED_FAILURE: "!",
    Status.NOT_RUN: "○",
    Status.NOT_APPLICABLE: "·",
    Status.INSPECTION: "◇",
}


def render(report: Report) -> str:
    """The page."""
    page_script = own_file("report.js")
    # What is expected to be broken comes after what is not.
    by_surprise = sorted(report["failures"], key=lambda failure: is_expected(report, failure))
    failures = [_failure(report, failure) for failure in by_surprise]
    own = {failure["id"] for failure in failures}
    leads_to = {}
    for rule_id in report["rules"]:
        failure = failure_of(report, rule_id)
        if failure is not None and file_stem(failure) in own:
            leads_to[rule_id] = file_stem(failure)
    target = report.get("target") or {}
    checks = report.get("checks") or []
    coverage = _coverage(report)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            verdict=report["verdict"],
            headline=_HEADLINES[Verdict(report["verdict"])],
            line=report["line"],
            subject=target.get("description") or target.get("name") or target.get("url") or "",
            facts=_facts(report),
            not_as_expected=report.get("not_as_expected") or [],
            gaps=report.get("incomplete_because") or [],
            remarks=remarks(report),
            details=report.get("details") or "",
            failures=failures,
            leads_to=leads_to,
            # Our own drawing: its words come from the model, its numbers are numbers.
            graph=Markup(svg(coverage)) if coverage else "",  # noqa: S704
            moves=_moves(coverage),
            sections=sections(report),
            found={status: n for status in _SIGNS if (n := counts(report)[status])},
            rules=len(report["rules"]),
            signs=_SIGNS,
            checks=checks,
            faults=list(fault_rows(report["faults"])) if report.get("faults") else [],
            faults_line=faults_line(report["faults"]) if report.get("faults") else "",
            slowest=max((check["seconds"] for check in checks), default=0),
            again=_again(report),
            style=own_file("report.css"),
            script=page_script,
            script_digest=digest(page_script),
            contract=report["versions"].get("contract", ""),
        )
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    target, versions = report.get("target") or {}, report["versions"]
    facts = []
    if target:
        named = " ".join(filter(None, (target.get("name"), target.get("version"))))
        facts += [("Implementation", named)] if named else []
        facts.append(("Target", target.get("url") or ""))
        access = ["the tool"]
        access += ["its MCP endpoint"] if target.get("mcp") else []
        access += ["test controls"] if target.get("controls") else []
        access += ["its store"] if target.get("store") else []
        access += ["faults"] if report.get("faults") else []
        facts.append(("Access to", ", ".join(access)))
    facts.append(("Contract", versions.get("contract", "?")))
    others = {name: v for name, v in versions.items() if name != "contract"}
    facts.append(("Checked by", ", ".join(f"{name} {version}" for name, version in others.items())))
    if "requests" in report:
        lost = f", {report['unanswered']:,} not answered" if report.get("unanswered") else ""
        facts.append(("Requests", f"{report['requests']:,} in {report.get('seconds', 0)} s{lost}"))
    if "seed" in report:
        profile = f"profile {report['profile']}, " if report.get("profile") else ""
        facts.append(("Draws", f"{profile}seed {report['seed']}"))
    if "started_at" in report:
        facts.append(("Started", report["started_at"].replace("T", " ").replace("Z", " UTC")))
    return [(name, plain(value, 600)) for name, value in facts]


def _failure(report: Report, failure: Mapping[str, Any]) -> dict[str, Any]:
    told = members(failure)
    sequence = failure.get("sequence") or []
    return {
        "id": plain(file_stem(failure), 60),
        "rules": [(plain(rule, 40), text_of(report, rule)) for rule in failure["rules"]],
        **{member: plain(failure[member], _TOLD_MAX) for member in ("what", "expected", "got")},
        "differing": [member for member in told if member.differs],
        "equal": [member for member in told if not member.differs],
        "cause": cause_of(report, failure["rules"][0]),
        "is_expected": is_expected(report, failure),
        "vectors": f"{plain(file_stem(failure), 60)}{VECTORS_SUFFIX}"
        if failure.get("vector")
        else "",
        "binding": plain(failure.get("binding") or "", 20),
        "check": failure["check"],
        "requests": len(sequence),
        "left_out": max(len(sequence) - SEQUENCE_MAX, 0),
        "sequence": [
            {
                "number": position,
                "is_last": position == len(sequence),
                "on_controls": sent.get("on") == "controls",
                "method": plain(sent.get("method", ""), 20),
                "path": plain(sent.get("path", ""), 200),
                "action": _action(sent.get("body", "")),
                "body": _pretty(sent.get("body", "")),
                "answered": sent.get("answered", ""),
            }
            for position, sent in list(enumerate(sequence, start=1))[-SEQUENCE_MAX:]
        ],
        "script": escape(script(failure)),
    }


def _action(body: str) -> str:
    """What a request asks for, where it says so."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    call = arguments_of(body.encode("utf-8", "backslashreplace"))
    request = request if call is None else call
    action = request.get("action") if isinstance(request, dict) else None
    return plain(action, 40) if isinstance(action, str) else ""


def _pretty(body: str) -> Markup:
    """A body as people read it; as it is where it is no plain JSON object."""
    text = body
    try:
        request = json.loads(body)
        if isinstance(request, dict) and len(body) <= _BODY_MAX:
            text = json.dumps(request, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        pass
    return escape(plain(text, _BODY_MAX, lines=True))


def _coverage(report: Report) -> dict[Cell, Covered] | None:
    """What a run did on each cell; None where the report does not tell."""
    if not report.get("moves"):
        return None
    told = {
        (move["from"], move["to"], move["evidence"], move["by"]): Covered(
            held=move["count"], broken=move["broken"]
        )
        for move in report["moves"]
    }
    return {
        cell: told.get(
            (cell.source, cell.target, cell.evidence, "claim" if cell.is_claim else "transition"),
            Covered(),
        )
        for cell in cells()
    }


def _moves(coverage: Mapping[Cell, Covered] | None) -> list[dict[str, Any]]:
    return [
        {
            "source": str(cell.source or "(nothing)"),
            "target": str(cell.target),
            "by": "claim" if cell.is_claim else str(cell.evidence or "no evidence"),
            "held": covered.held,
            "broken": covered.broken,
        }
        for cell, covered in (coverage or {}).items()
    ]


def _again(report: Report) -> str:
    """The command that repeats the run, as far as the report knows its options."""
    target = report.get("target") or {}
    if not target.get("url") or "seed" not in report:
        return ""
    words = ["workflow-checkpoint", "check", "--url", shlex.quote(plain(target["url"], 400))]
    if target.get("controls"):
        words += ["--controls", shlex.quote(plain(target["controls"], 400))]
    if target.get("store"):
        words += ["--store", "URL"]
    profile = plain(report.get("profile") or "default", 40)
    return " ".join([*words, "--profile", shlex.quote(profile), "--seed", str(report["seed"])])
