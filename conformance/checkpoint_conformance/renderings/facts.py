"""What several renderers ask of a report."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from checkpoint_conformance.plain import number, plain
from checkpoint_conformance.reproduction import HEAD
from checkpoint_conformance.verdict import Status

Report: TypeAlias = Mapping[str, Any]
"""A report as :func:`checkpoint_conformance.report.read` gives it."""
ABSENT: Final = "(absent)"
VALUE_MAX: Final = 300
SEQUENCE_MAX: Final = 60
"""Requests of a sequence that are shown, the last ones; ``report.json`` has them all."""
HTTP: Final = "http"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One rule over one binding."""

    rule: str
    binding: str
    status: Status
    hits: int
    reason: str
    text: str
    floor: int | None
    gap: bool
    rule_class: str
    access: str

    @property
    def share(self) -> float:
        """How far hits are towards the floor, 0 to 1."""
        return min(self.hits / self.floor, 1) if self.floor else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section of the contract with its cases."""

    number: int | None
    title: str
    cases: Sequence[Case]

    @property
    def name(self) -> str:
        """As people call it."""
        return f"{self.number} {self.title}" if self.number else self.title


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One member of an answer, as it should be and as it was."""

    name: str
    expected: str
    got: str
    differs: bool


def cases(report: Report) -> Iterator[Case]:
    """Every rule over every binding that it was tested on, in the contract's order."""
    for rule_id, rule in report["rules"].items():
        usual = "mcp" if rule.get("class") == "mcp" else HTTP
        for binding, told in (rule.get("bindings") or {usual: rule}).items():
            yield Case(
                rule=plain(rule_id, 40),
                binding=plain(binding, 20),
                status=Status(told["status"]),
                hits=told["hits"],
                reason=plain(told.get("reason") or ""),
                text=plain(rule["text"]),
                floor=rule.get("floor"),
                gap=rule.get("gap") is True,
                rule_class=plain(rule.get("class") or "", 40),
                access=plain(rule.get("access") or "", 40),
            )


def sections(report: Report) -> list[Section]:
    """The cases by the contract's sections; one nameless section where a report has none."""
    titles = report.get("sections") or {}
    by_section: dict[int | None, list[Case]] = {}
    for case in cases(report):
        by_section.setdefault(report["rules"][case.rule].get("section"), []).append(case)
    return [
        Section(number=number, title=plain(titles.get(str(number)) or "Rules", 80), cases=found)
        for number, found in by_section.items()
    ]


def counts(report: Report) -> Counter[Status]:
    """How many rules have each status."""
    return Counter(Status(rule["status"]) for rule in report["rules"].values())


def failure_of(
    report: Report, rule_id: str, binding: str | None = None
) -> Mapping[str, Any] | None:
    """The failure that broke a rule: its own, or else another's that names it too.

    Rather one over the binding, where one is given.
    """
    naming = [failure for failure in report["failures"] if rule_id in failure["rules"]]
    naming.sort(key=lambda failure: binding is not None and failure.get("binding") != binding)
    own = [failure for failure in naming if failure["rules"][0] == rule_id]
    return next(iter(own or naming), None)


def members(failure: Mapping[str, Any]) -> list[Member]:
    """Expected against got, member by member; empty where only one of them is known.

    A member that the model has no opinion of, such as ``workflow_hash``, is not listed, nor
    are those of an answer that is of another kind altogether.
    """
    expected, got = failure.get("expected_members"), failure.get("got_members")
    if not isinstance(expected, dict) or not isinstance(got, dict):
        return []
    if ("code" in expected) != ("code" in got):
        return []
    return [
        Member(
            name=plain(name, 80),
            expected=_value(expected, name),
            got=_value(got, name),
            differs=name not in got or not _equal(expected[name], got[name]),
        )
        for name in expected
    ]


def commands(failure: Mapping[str, Any]) -> list[str]:
    """The lines of its script that send something, without the script's own head."""
    lines = failure["reproduction"].splitlines()
    return [plain(line) for line in lines if line not in HEAD]


def script(failure: Mapping[str, Any]) -> str:
    """The whole script, for copying."""
    return plain(failure["reproduction"], 20_000, lines=True)


def cause_of(report: Report, rule_id: str) -> str:
    """What usually breaks a rule; empty where nothing is known."""
    return plain((report["rules"].get(rule_id) or {}).get("usual_cause") or "")


def lost(report: Report) -> list[str]:
    """Which requests had no answer that tells what was decided, a line each."""
    return [
        f"{plain(kind['what'], VALUE_MAX)} ({number(kind['times'], 'time')})"
        for kind in report.get("lost") or []
    ]


def remarks(report: Report) -> list[str]:
    """What is worth knowing and changes no verdict."""
    return [*(report.get("remarks") or []), *(f"Not answered: {kind}" for kind in lost(report))]


def is_expected(report: Report, failure: Mapping[str, Any]) -> bool:
    """Whether a failure is one that the target's description says there is."""
    rule = report["rules"].get(failure["rules"][0]) or {}
    return bool(rule.get("status") == Status.EXPECTED_FAILURE)


def summary(failure: Mapping[str, Any], limit: int = VALUE_MAX) -> str:
    """A failure in one line."""
    what, expected, got = (plain(failure[m], limit) for m in ("what", "expected", "got"))
    return f"{what}: expected {expected}, got {got}"


def text_of(report: Report, rule_id: str) -> str:
    """A rule's own words."""
    return plain((report["rules"].get(rule_id) or {}).get("text") or "")


def _value(of: Mapping[str, Any], name: str) -> str:
    return plain(json.dumps(of[name], ensure_ascii=False), VALUE_MAX) if name in of else ABSENT


def _equal(expected: object, got: object) -> bool:
    """Equal, and of one JSON type: ``true`` is not 1."""
    return type(expected) is type(got) and expected == got
