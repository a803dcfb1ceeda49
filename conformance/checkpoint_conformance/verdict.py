"""From hits and failures to the status of every rule, and from those to one verdict (D5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from checkpoint_conformance.rules import Access, Rule, RuleClass, rules
from checkpoint_conformance.run import Target
from checkpoint_conformance.tally import Tally

LOST_SHARE_MAX: Final = 0.01
"""Of all requests, how many may stay unanswered before the run says too little."""


class Status(StrEnum):
    """What a run says of one rule."""

    PASSED = "passed"
    FAILED = "failed"
    EXPECTED_FAILURE = "expected-failure"
    NOT_APPLICABLE = "not-applicable"
    NOT_RUN = "not-run"
    INSPECTION = "inspection"


class Verdict(StrEnum):
    """What a run says of the target."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INCOMPLETE = "incomplete"
    ERROR = "error"


EXIT_CODES: Final[Mapping[Verdict, int]] = {
    Verdict.PASS: 0,
    Verdict.FAIL: 1,
    Verdict.INCOMPLETE: 3,
}
EXIT_UNREACHABLE: Final = 2
EXIT_HARNESS_FAULT: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleStatus:
    """One rule's line in the report."""

    rule: Rule
    status: Status
    hits: int
    reason: str = ""
    """Where the status is not obvious; empty elsewhere."""
    counts_as_gap: bool = False
    """Whether it could have been reached with the access given, and was not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The whole of a run, judged."""

    verdict: Verdict
    line: str
    """One line for people."""
    rules: Mapping[str, RuleStatus]
    gaps: tuple[str, ...]
    """Why the run is incomplete, where it is."""


def claimed_classes(target: Target) -> frozenset[RuleClass]:
    """The conformance classes that a target is checked for."""
    claimed = {RuleClass.CORE}
    if target.controls is not None:
        claimed.add(RuleClass.CONTROLS)
    return frozenset(claimed)


def judge(
    tally: Tally, target: Target, *, require_all: bool = False, interrupted: str = ""
) -> Judged:
    """Judge a run.

    Args:
        tally: what it saw.
        target: what it had access to.
        require_all: whether rules that need more access make it incomplete.
        interrupted: why it ended early; empty when it did not.
    """
    failed = {
        rule_id: failure for failure in tally.failures.values() for rule_id in failure.fault.rules
    }
    statuses = {
        rule.id: _status(rule, tally.hits[rule.id], rule.id in failed, target)
        for rule in rules().values()
    }
    gaps = list(tally.incomplete)
    if interrupted:
        gaps.insert(0, interrupted)
    if tally.lost > LOST_SHARE_MAX * max(tally.requests, 1):
        reasons = "; ".join(f"{why} ({n} times)" for why, n in tally.lost_why.most_common(3))
        gaps.append(f"{tally.lost} of {tally.requests} requests were not answered: {reasons}")
    short = [s for s in statuses.values() if s.counts_as_gap]
    if short:
        named = ", ".join(s.rule.id for s in short[:6]) + (" …" if len(short) > 6 else "")
        gaps.append(f"{_count(len(short), 'rule')} exercised too little: {named}")
    if require_all:
        beyond = [
            s.rule.id
            for s in statuses.values()
            if s.status is Status.NOT_RUN and not s.counts_as_gap
        ]
        if beyond:
            gaps.append(f"{_count(len(beyond), 'rule')} not run, and --require-all is set")
    if failed:
        verdict = Verdict.FAIL
    elif gaps:
        verdict = Verdict.INCOMPLETE
    else:
        verdict = Verdict.PASS
    return Judged(
        verdict=verdict,
        line=_line(verdict, statuses),
        rules=statuses,
        gaps=tuple(gaps),
    )


def _status(rule: Rule, hits: int, failed: bool, target: Target) -> RuleStatus:
    def status(kind: Status, reason: str = "", *, gap: bool = False) -> RuleStatus:
        return RuleStatus(rule=rule, status=kind, hits=hits, reason=reason, counts_as_gap=gap)

    if failed:
        return status(Status.FAILED)
    if rule.access is Access.INSPECTION:
        return status(Status.INSPECTION, "no test can tell")
    if rule.rule_class not in claimed_classes(target):
        if rule.rule_class is RuleClass.CONTROLS:
            return status(Status.NOT_APPLICABLE, "no controls given (--controls)")
        return status(Status.NOT_APPLICABLE, f"the class {rule.rule_class} is not claimed")
    if rule.floor is None:
        return status(Status.NOT_RUN, "no check yet")
    if hits >= rule.floor:
        return status(Status.PASSED)
    if rule.access is Access.CONTROLS and target.controls is None:
        return status(Status.NOT_RUN, "needs --controls")
    if rule.access is Access.STORE and target.store_url is None:
        return status(Status.NOT_RUN, "needs --store")
    return status(Status.NOT_RUN, f"{hits} of at least {rule.floor} hits", gap=True)


def _line(verdict: Verdict, statuses: Mapping[str, RuleStatus]) -> str:
    """One line that counts everything, so that no green hides what was not done."""
    by_status = {kind: [s for s in statuses.values() if s.status is kind] for kind in Status}
    parts = []
    if by_status[Status.FAILED]:
        parts.append(f"{_count(len(by_status[Status.FAILED]), 'rule')} broken")
    parts.append(f"{len(by_status[Status.PASSED])} of {len(statuses)} rules passed")
    not_run: dict[str, int] = {}
    for s in by_status[Status.NOT_RUN]:
        reason = "exercised too little" if s.counts_as_gap else s.reason
        not_run[reason] = not_run.get(reason, 0) + 1
    parts += [
        f"{number} {reason}" if reason == "exercised too little" else f"{number} not run ({reason})"
        for reason, number in not_run.items()
    ]
    beyond = len(by_status[Status.NOT_APPLICABLE])
    if beyond:
        parts.append(f"{beyond} not applicable")
    parts.append(f"{len(by_status[Status.INSPECTION])} by inspection")
    return f"{verdict.upper()}: " + "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
