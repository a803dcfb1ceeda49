"""JUnit XML, in the dialect that Jenkins defines and every CI reads: a case for each rule."""

from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from checkpoint_conformance.plain import plain
from checkpoint_conformance.renderings.facts import (
    Case,
    Report,
    cause_of,
    commands,
    failure_of,
    members,
    sections,
    summary,
)
from checkpoint_conformance.verdict import Status, Verdict

SUITE: Final = "workflow-checkpoint"
VERDICT_CASE: Final = "the run comes to a verdict"
"""The case that is red where every rule's own is not: an incomplete run, or none."""
MESSAGE_MAX: Final = 1000


def render(report: Report) -> str:
    """One suite; names are made of rule ids alone, so that a CI can follow a case over time."""
    suite = ET.Element("testsuite", name=SUITE)
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ET.SubElement(properties, "property", name=name, value=plain(value, MESSAGE_MAX))
    _verdict_case(suite, report)
    for section in sections(report):
        for case in section.cases:
            _rule_case(suite, report, case, f"{SUITE}.{section.name}")
    tests = suite.findall("testcase")
    suite.set("tests", str(len(tests)))
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(sum(test.find(tag) is not None for test in tests)))
    if "seconds" in report:
        suite.set("time", f"{report['seconds']:.3f}")
    if "started_at" in report:
        suite.set("timestamp", plain(report["started_at"], 40))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _properties(report: Report) -> dict[str, object]:
    target = report.get("target") or {}
    facts = {f"target {name}": value for name, value in target.items() if value}
    facts |= {f"version of {name}": value for name, value in report["versions"].items()}
    facts |= {name: report[name] for name in ("profile", "seed", "requests") if name in report}
    return {"verdict": report["line"], **facts}


def _verdict_case(suite: ET.Element, report: Report) -> None:
    case = ET.SubElement(suite, "testcase", name=VERDICT_CASE, classname=SUITE)
    if report.get("not_as_expected"):
        failure = ET.SubElement(
            case, "failure", type="not-as-expected", message=plain(report["line"], MESSAGE_MAX)
        )
        failure.text = "\n".join(plain(why) for why in report["not_as_expected"])
    if report["verdict"] in (Verdict.INCOMPLETE, Verdict.ERROR):
        error = ET.SubElement(
            case, "error", type=report["verdict"], message=plain(report["line"], MESSAGE_MAX)
        )
        reasons = report.get("incomplete_because") or [report.get("details") or report["line"]]
        error.text = "\n".join(plain(reason, lines=True) for reason in reasons)
    ET.SubElement(case, "system-out").text = plain(report["line"])


def _rule_case(suite: ET.Element, report: Report, case: Case, classname: str) -> None:
    element = ET.SubElement(
        suite, "testcase", name=f"{case.rule} [{case.binding}]", classname=classname
    )
    if case.status is Status.FAILED:
        failure = failure_of(report, case.rule, case.binding)
        message = summary(failure) if failure else case.reason or "broken"
        broken = ET.SubElement(
            element, "failure", type=case.rule, message=plain(message, MESSAGE_MAX)
        )
        broken.text = _told(case, failure, cause_of(report, case.rule)) if failure else message
    elif case.status is not Status.PASSED:
        ET.SubElement(
            element, "skipped", type=str(case.status), message=f"{case.status}: {case.reason}"
        )
    least = f" of at least {case.floor}" if case.floor else ""
    ET.SubElement(element, "system-out").text = f"{case.text}\n{case.hits} hits{least}"


def _told(case: Case, failure: Mapping[str, Any], cause: str) -> str:
    lines = [
        f"{case.rule}: {case.text}",
        "",
        f"What is wrong: {plain(failure['what'])}",
        f"  expected  {plain(failure['expected'])}",
        f"  got       {plain(failure['got'])}",
    ]
    lines += [f"  usual cause: {cause}"] if cause else []
    lines += [
        f"  and {member.name} is {member.got}, expected {member.expected}"
        for member in members(failure)
        if member.differs and f"`{member.name}`" not in failure["what"]
    ]
    lines += ["", f"To see it again (found by the check «{plain(failure['check'], 80)}»):"]
    return "\n".join([*lines, *commands(failure)])
