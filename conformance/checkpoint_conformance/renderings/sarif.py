"""SARIF 2.1.0, for what shows the findings of tools: the rules, and a result for each broken one.

A conformance run looks at a server and not at files, so a result points at the request as its
logical place, and at the script that shows it again as its physical one.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from checkpoint_conformance.plain import plain
from checkpoint_conformance.renderings.facts import (
    SEQUENCE_MAX,
    Case,
    Report,
    cause_of,
    commands,
    is_expected,
    members,
    sections,
    summary,
)
from checkpoint_conformance.report import file_stem
from checkpoint_conformance.verdict import Verdict

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
FOLDER: Final = "REPORT"
"""The folder that the report is in, as SARIF's base of relative places."""


def render(report: Report) -> str:
    """One log with one run."""
    verdict = Verdict(report["verdict"])
    ids = list(report["rules"])
    version = plain(report["versions"].get("workflow-checkpoint", "0"), 40)
    notes = [
        note
        for member in ("not_as_expected", "incomplete_because", "remarks")
        for note in report.get(member) or []
    ]
    if verdict is Verdict.ERROR:
        notes.append(report["line"])
    invocation: dict[str, Any] = {
        "executionSuccessful": verdict is not Verdict.ERROR,
        "toolExecutionNotifications": [
            {"level": _level(verdict), "message": {"text": plain(note)}} for note in notes
        ],
    }
    if "started_at" in report:
        invocation["startTimeUtc"] = plain(report["started_at"], 40)
    target = report.get("target") or {}
    run = {
        "tool": {
            "driver": {
                "name": "workflow-checkpoint",
                "version": version,
                "rules": [
                    _rule(case, section.name, cause_of(report, case.rule))
                    for section in sections(report)
                    for case in _once(section.cases)
                ],
            }
        },
        "automationDetails": {"id": "workflow-checkpoint/"},
        "invocations": [invocation],
        "originalUriBaseIds": {
            FOLDER: {"description": {"text": "The folder that check --report was given."}}
        },
        "results": [_result(report, failure, ids) for failure in report["failures"]],
        "properties": {
            "verdict": report["verdict"],
            "line": plain(report["line"]),
            **{name: report[name] for name in ("profile", "seed") if name in report},
            **({"target": plain(target["url"], 400)} if "url" in target else {}),
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _level(verdict: Verdict) -> str:
    if verdict is Verdict.ERROR:
        return "error"
    return "warning" if verdict is Verdict.INCOMPLETE else "note"


def _once(found: Any) -> list[Case]:
    """A rule once, over however many bindings it was tested."""
    return list({case.rule: case for case in found}.values())


def _rule(case: Case, section: str, cause: str) -> dict[str, Any]:
    least = f"at least {case.floor} hits" if case.floor else "no floor"
    facts = f"Section {section}; class {case.rule_class}; tested {case.access}; {least}."
    if cause:
        facts += f"\n\nWhat usually breaks it: {cause}"
    return {
        "id": case.rule,
        "shortDescription": {"text": plain(case.text, 160)},
        "fullDescription": {"text": case.text},
        "help": {
            "text": f"{case.text}\n\n{facts}",
            "markdown": f"**{case.rule}**: {case.text}\n\n{facts}",
        },
        "defaultConfiguration": {"level": "error"},
        "properties": {
            "tags": ["conformance", section, f"class {case.rule_class}"],
            "status": str(case.status),
            "hits": case.hits,
        },
    }


def _result(report: Report, failure: Mapping[str, Any], ids: list[str]) -> dict[str, Any]:
    rule = failure["rules"][0]
    lines = failure["reproduction"].splitlines()
    sent = failure["sequence"][-1] if failure.get("sequence") else {}
    place = f"{sent.get('method', '')} {sent.get('path', '')}".strip() or "the target"
    differing = [
        f"{member.name}: expected {member.expected}, got {member.got}"
        for member in members(failure)
        if member.differs
    ]
    message = "\n".join(
        [summary(failure), *differing, "", "To see it again:", *commands(failure)[-SEQUENCE_MAX:]]
    )
    result: dict[str, Any] = {
        "ruleId": plain(rule, 40),
        "level": "error",
        "kind": "fail",
        "message": {"text": message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {
                        "uri": f"{plain(file_stem(failure), 60)}.sh",
                        "uriBaseId": FOLDER,
                    },
                    "region": {"startLine": max(len(lines), 1)},
                },
                "logicalLocations": [{"fullyQualifiedName": plain(place, 200), "kind": "function"}],
            }
        ],
        "partialFingerprints": {"rule/v1": plain(rule, 40)},
        "properties": {"check": plain(failure["check"], 80), "rules": failure["rules"]},
    }
    if rule in ids:
        result["ruleIndex"] = ids.index(rule)
        if is_expected(report, failure):
            why = plain(report["rules"][rule].get("reason") or "expected")
            result["suppressions"] = [{"kind": "external", "justification": why}]
    return result
