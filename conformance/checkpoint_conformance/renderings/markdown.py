"""Markdown for the summary of a CI job, as GitHub and GitLab show it."""

import re
from functools import cache
from typing import Final

import jinja2
from markupsafe import Markup

from checkpoint_conformance.plain import number, plain
from checkpoint_conformance.renderings.facts import (
    VALUE_MAX,
    Report,
    cause_of,
    commands,
    counts,
    is_expected,
    members,
    remarks,
    sections,
    text_of,
)
from checkpoint_conformance.verdict import Status, Verdict

FAILURES_MAX: Final = 25
"""GitHub takes a summary of a MiB and shows none of a longer one."""
COMMANDS_MAX: Final = 24
_LINE_MAX: Final = 1200
_SIGNS: Final = {
    Verdict.PASS: "✅",
    Verdict.FAIL: "❌",
    Verdict.INCOMPLETE: "⚠️",
    Verdict.ERROR: "⛔",
}


def render(report: Report) -> str:
    """Verdict, failures, and the numbers of each section."""
    failures = [
        {
            "rules": [(plain(rule, 40), text_of(report, rule)) for rule in failure["rules"]],
            "what": failure["what"],
            "expected": failure["expected"],
            "got": failure["got"],
            "others": [
                member
                for member in members(failure)
                if member.differs and f"`{member.name}`" not in failure["what"]
            ],
            "cause": cause_of(report, failure["rules"][0]),
            "expected_failure": is_expected(report, failure),
            "check": failure["check"],
            "requests": number(len(failure.get("sequence", [])), "request"),
            "commands": [line[:_LINE_MAX] for line in commands(failure)[-COMMANDS_MAX:]],
        }
        for failure in report["failures"][:FAILURES_MAX]
    ]
    return _template().render(
        report=report,
        sign=_SIGNS[Verdict(report["verdict"])],
        failures=failures,
        more=len(report["failures"]) - len(failures),
        sections=sections(report),
        found=counts(report),
        statuses=list(Status),
        not_as_expected=report.get("not_as_expected") or [],
        gaps=report.get("incomplete_because") or [],
        remarks=remarks(report),
        numbers=_numbers(report),
        target={"url": "", "description": "", **(report.get("target") or {})},
    )


def _numbers(report: Report) -> list[str]:
    """The run in numbers, and who made it; as much as the report tells."""
    parts = []
    if "requests" in report:
        parts.append(f"{report['requests']:,} requests in {report.get('seconds', 0)} s")
    if "profile" in report:
        parts.append(f"profile {report['profile']}")
    if "seed" in report:
        parts.append(f"`--seed {report['seed']}` repeats it")
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return [*(["; ".join(parts) + "."] if parts else []), f"Versions: {versions}."]


@cache
def _template() -> jinja2.Template:
    # Escaping is on, so that a filter which is forgotten shows too much and not too little.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("checkpoint_conformance.renderings"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"words": _words, "code": _code, "fenced": _fenced, "rule": _rule_text}
    return environment.get_template("summary.md.j2")


def _words(text: object, limit: int = VALUE_MAX * 4) -> Markup:
    """Text that Markdown shows as it is, on one line, in a table's cell too."""
    kept = plain(text, limit).strip()
    kept = re.sub(r"([\\`*_{}\[\]#|~$])", r"\\\1", kept)
    kept = re.sub(r"^([-+=]|[0-9]+(?=[.)]( |$)))", r"&#8203;\1", kept)  # would begin a list
    kept = re.sub("&(?!#8203;)", "&amp;", kept).replace("<", "&lt;").replace(">", "&gt;")
    # `@name` would tell a person, and a bare address would become a link.
    kept = kept.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")
    return Markup(kept)  # noqa: S704 - Markdown, escaped


def _rule_text(text: str) -> Markup:
    """The contract's words, whose code stays code."""
    parts = plain(text).split("`")
    if len(parts) % 2 == 0:
        return _words(text)
    shown = [_code(part) if n % 2 else _words(part) for n, part in enumerate(parts)]
    return Markup("").join(shown)


def _code(text: object, limit: int = VALUE_MAX) -> Markup:
    """Code on one line: fenced by more backticks than it has in a row."""
    kept = plain(text, limit)
    ticks = "`" * (_longest_run(kept) + 1)
    pad = " " if kept.startswith("`") or kept.endswith("`") or not kept.strip() else ""
    # A table ends a cell at a bar even in code.
    return Markup(f"{ticks}{pad}{kept}{pad}{ticks}".replace("|", "\\|"))  # noqa: S704 - Markdown


def _fenced(lines: list[str], language: str = "sh") -> Markup:
    """A block of code."""
    text = "\n".join(lines)
    ticks = "`" * max(_longest_run(text) + 1, 3)
    return Markup(f"{ticks}{language}\n{text}\n{ticks}")  # noqa: S704 - Markdown, fenced


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
