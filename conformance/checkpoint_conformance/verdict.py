"""From hits and failures to the status of every rule, and from those to one verdict (D5)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Final

from checkpoint_conformance.plain import number
from checkpoint_conformance.rules import Access, Binding, Rule, RuleClass, rules
from checkpoint_conformance.run import ExpectedFailure, Target
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
NEEDS: Final = "needs"
"""How the reason begins of a rule that more access would reach."""
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
    over: Mapping[Binding, "RuleStatus"] = field(default_factory=dict)
    """The same for each binding, where it was tested over several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The whole of a run, judged."""

    verdict: Verdict
    line: str
    """One line for people."""
    rules: Mapping[str, RuleStatus]
    gaps: tuple[str, ...]
    """Why the run is incomplete, where it is."""
    stale: tuple[str, ...] = ()
    """Expected failures that make the run fail: they did not fail, or have expired."""


def judge(
    tally: Tally,
    target: Target,
    *,
    require_all: bool = False,
    interrupted: str = "",
    day: date | None = None,
) -> Judged:
    """Judge a run.

    Args:
        tally: what it saw.
        target: what it had access to.
        require_all: whether rules that need more access make it incomplete.
        interrupted: why it ended early; empty when it did not.
        day: by which expected failures expire; today if None.
    """
    expected = {entry.rule: entry for entry in target.expected_failures}
    broken = {binding: _Broken() for binding in Binding}
    for failure in tally.failures.values():
        # A fault that is expected is expected whole: what it names beside its own rule follows.
        entry = expected.get(failure.rule)
        if entry is None:
            broken[failure.binding].failed.update(failure.fault.rules)
        else:
            excuses = dict.fromkeys(failure.fault.rules, _excuse(entry))
            broken[failure.binding].excused.update(excuses)
    failed = {rule for found in broken.values() for rule in found.failed}
    statuses = {rule.id: _status(rule, tally, target, broken) for rule in rules().values()}
    stale = [
        why
        for entry in target.expected_failures
        if (why := _stale(entry, statuses[entry.rule], day or today()))
    ]
    gaps = list(tally.incomplete)
    if interrupted:
        gaps.insert(0, interrupted)
    if tally.lost > LOST_SHARE_MAX * max(tally.requests, 1):
        reasons = "; ".join(f"{why} ({n} times)" for why, n in tally.lost_why.most_common(3))
        gaps.append(f"{tally.lost} of {tally.requests} requests were not answered: {reasons}")
    short = [s for s in statuses.values() if s.counts_as_gap]
    if short:
        named = ", ".join(s.rule.id for s in short[:6]) + (" …" if len(short) > 6 else "")
        gaps.append(f"{number(len(short), 'rule')} exercised too little: {named}")
    if require_all:
        beyond = [
            s.rule.id
            for s in statuses.values()
            if s.status is Status.NOT_RUN and s.reason.startswith(NEEDS)
        ]
        if beyond:
            named = ", ".join(beyond)
            gaps.append(f"more access is needed, and --require-all is set: {named}")
    if failed or stale:
        verdict = Verdict.FAIL
    elif gaps:
        verdict = Verdict.INCOMPLETE
    else:
        verdict = Verdict.PASS
    return Judged(
        verdict=verdict,
        line=_line(verdict, statuses, stale),
        rules=statuses,
        gaps=tuple(gaps),
        stale=tuple(stale),
    )


def today() -> date:
    """The day by which expected failures expire, in UTC."""
    return datetime.now(UTC).date()


def _excuse(entry: ExpectedFailure) -> str:
    return f"expected: {entry.reason}" + (f" ({entry.issue})" if entry.issue else "")


def _stale(entry: ExpectedFailure, status: RuleStatus, day: date) -> str:
    """Why an expected failure makes the run fail; empty where it does not."""
    if entry.expires is not None and day > entry.expires:
        return f"the expected failure of {entry.rule} was to be mended by {entry.expires}"
    if status.status is Status.PASSED:
        return f"{entry.rule} is expected to fail, and passed: remove the expectation"
    return ""


@dataclass(frozen=True, slots=True)
class _Broken:
    """What is broken over one binding."""

    failed: set[str] = field(default_factory=set)
    excused: dict[str, str] = field(default_factory=dict)
    """Why, of what is expected to be."""


def _status(
    rule: Rule, tally: Tally, target: Target, broken: Mapping[Binding, _Broken]
) -> RuleStatus:
    """The status of a rule over the bindings by which it was tested."""
    has_mcp = RuleClass.MCP in target.claimed_classes
    over = [b for b in rule.bindings if b is not Binding.MCP or has_mcp]
    if len(over) < 2:
        failed = {found for b in broken.values() for found in b.failed}
        excused = {found: why for b in broken.values() for found, why in b.excused.items()}
        hits = tally.hits[rule.id]
        return _status_over(rule, hits, rule.id in failed, target, excused, failed)
    each = {
        b: _status_over(
            rule,
            tally.hits_over[b][rule.id],
            rule.id in broken[b].failed,
            target,
            broken[b].excused,
            broken[b].failed,
        )
        for b in over
    }
    worst = min(each, key=lambda b: _WORST_FIRST.index(each[b].status))
    reason = each[worst].reason
    alike = len({(status.status, status.reason) for status in each.values()}) == 1
    return replace(
        each[worst],
        hits=tally.hits[rule.id],
        reason=reason if alike or not reason else f"over {worst.upper()}: {reason}",
        counts_as_gap=any(status.counts_as_gap for status in each.values()),
        over=each,
    )


_WORST_FIRST: Final = (
    Status.FAILED,
    Status.EXPECTED_FAILURE,
    Status.NOT_RUN,
    Status.NOT_APPLICABLE,
    Status.INSPECTION,
    Status.PASSED,
)


def _status_over(
    rule: Rule,
    hits: int,
    failed: bool,
    target: Target,
    excused: Mapping[str, str],
    broken: Collection[str],
) -> RuleStatus:
    def status(kind: Status, reason: str = "", *, gap: bool = False) -> RuleStatus:
        return RuleStatus(rule=rule, status=kind, hits=hits, reason=reason, counts_as_gap=gap)

    if failed:
        return status(Status.FAILED)
    if rule.id in excused:
        return status(Status.EXPECTED_FAILURE, excused[rule.id])
    if rule.access is Access.INSPECTION:
        return status(Status.INSPECTION, "no test can tell")
    if rule.rule_class not in target.claimed_classes:
        if rule.rule_class is RuleClass.CONTROLS:
            return status(Status.NOT_APPLICABLE, "no controls given (--controls)")
        if rule.rule_class in target.classes:
            return status(Status.NOT_APPLICABLE, "no MCP endpoint given (--mcp)")
        return status(Status.NOT_APPLICABLE, f"the class {rule.rule_class} is not claimed")
    if rule.floor is None:
        return status(Status.NOT_RUN, "no check yet")
    if hits >= rule.floor:
        return status(Status.PASSED)
    if rule.access is Access.CONTROLS and target.controls is None:
        return status(Status.NOT_RUN, f"{NEEDS} --controls")
    if rule.access is Access.STORE and target.store_url is None:
        return status(Status.NOT_RUN, f"{NEEDS} --store")
    if rule.access is Access.FAULTS:
        if target.fault_access is None:
            return status(Status.NOT_RUN, f"{NEEDS} faults in target.yaml")
        lacks = target.fault_access.lacks(rule.id)
        if lacks:
            return status(Status.NOT_RUN, f"{NEEDS} {lacks}")
    if broken or excused:
        cause = ", ".join(sorted({*broken, *excused})[:3])
        why = f"could not run: the sequences that test it ended at what is broken ({cause})"
        return status(Status.NOT_RUN, why)
    return status(Status.NOT_RUN, f"{hits} of at least {rule.floor} hits", gap=True)


def _line(verdict: Verdict, statuses: Mapping[str, RuleStatus], stale: Sequence[str]) -> str:
    """One line that counts everything, so that no green hides what was not done."""
    by_status = {kind: [s for s in statuses.values() if s.status is kind] for kind in Status}
    parts = []
    if by_status[Status.FAILED]:
        parts.append(f"{number(len(by_status[Status.FAILED]), 'rule')} broken")
    if stale:
        parts.append(f"{number(len(stale), 'expected failure')} to be removed")
    parts.append(f"{len(by_status[Status.PASSED])} of {len(statuses)} rules passed")
    if by_status[Status.EXPECTED_FAILURE]:
        parts.append(f"{len(by_status[Status.EXPECTED_FAILURE])} failed as expected")
    not_run: dict[str, int] = {}
    for s in by_status[Status.NOT_RUN]:
        reason = "exercised too little" if s.counts_as_gap else s.reason.partition(":")[0]
        not_run[reason] = not_run.get(reason, 0) + 1
    parts += [
        f"{times} {reason}" if reason == "exercised too little" else f"{times} not run ({reason})"
        for reason, times in not_run.items()
    ]
    beyond = len(by_status[Status.NOT_APPLICABLE])
    if beyond:
        parts.append(f"{beyond} not applicable")
    parts.append(f"{len(by_status[Status.INSPECTION])} by inspection")
    return f"{verdict.upper()}: " + "; ".join(parts)
