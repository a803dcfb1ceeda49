"""The judge of one workflow: what the model says, member by member, against what came.

It steps the model at each answer's own ``observed_at`` and holds every member of the answer
against section 7 or 8. Where they differ it names the rule: the decision row when the decision
itself is wrong, else the rule of the member that does not follow from a right decision.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from checkpoint_conformance.answers import Answer, Fault, Foreign, Problem, Result, Unknown, shown
from checkpoint_conformance.client import Exchange
from checkpoint_conformance.clock import Clock, RunningClock
from checkpoint_model import (
    ErrorCode,
    Identity,
    Record,
    Request,
    Stage,
    Step,
    Success,
    Transition,
    answer,
    graph_rules,
    parse_timestamp,
    step,
)

LATEST_OBSERVED_MS: Final = parse_timestamp("9999-12-31T00:00:00.000Z")
_DECISION: Final = ("stage", "generation")
"""Members that are wrong only when the decision is."""
_FLAG_OWNERS: Final = {
    "acquired": "claim",
    "recovered": "claim",
    "reused": "claim",
    "transitioned": "transition",
    "observation_replayed": "transition",
    "abandoned": "abandon",
}
_MEMBER_RULES: Final = {
    "observed_at": ("WC-TIME-1",),
    "state_expires_at": ("WC-TIME-3",),
    "claim_expires_at": ("WC-TIME-3",),
    "claim_ttl_seconds_remaining": ("WC-TIME-6",),
    "state_ttl_seconds_remaining": ("WC-TIME-6",),
    "allowed_next_actions": ("WC-VIEW-2",),
    "configuration": ("WC-ERR-8",),
}
_FOLLOWS: Final = {
    "claim_expires_at": ("claim_ttl_seconds_remaining",),
    "state_expires_at": ("state_ttl_seconds_remaining",),
    "held_by_caller": ("allowed_next_actions",),
    "claim_active": (
        "claim_expires_at",
        "claim_ttl_seconds_remaining",
        "held_by_caller",
        "allowed_next_actions",
        "recovery_required",
    ),
}
"""Members that follow from another: where that is wrong, they are rightly wrong too."""
_DEADLINE_NEAR_MS: Final = 1
"""How near to a deadline, under a controlled clock, a step tests the deadline itself."""
REAL_DEADLINE_NEAR_MS: Final = 100
"""How near to a deadline, in real time, a step tests the deadline itself."""
_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What the oracle says of one answer."""

    step: Step | None
    """None where the answer does not tell what was decided."""
    faults: tuple[Fault, ...]
    hits: tuple[str, ...]
    """Every rule that the answer exercised and that held."""


class Oracle:
    """One workflow as it must be, if the target is right.

    After a fault or an unknown answer the oracle no longer knows; whoever drives it starts
    another workflow.
    """

    def __init__(self, identity: Identity, clock: Clock) -> None:
        self.identity = identity
        self.clock = clock
        self.record: Record | None = None
        self.workflow_hash: str | None = None
        self._previous: tuple[Request, Step] | None = None

    def judge(self, request: Request, exchange: Exchange, came: Answer) -> Judgement:
        """Judge what was decided, and step on when it is right.

        The answer's form is not looked at here: ``came.faults`` has what is wrong with that.
        """
        if isinstance(came, Unknown):
            return Judgement(step=None, faults=(), hits=())
        if isinstance(came, Foreign):
            return Judgement(step=None, faults=came.faults, hits=())
        observed_ms, wrong_time = self._observed(came, exchange)
        if observed_ms is None or wrong_time:
            # Whatever else differs follows from a time that cannot be.
            return Judgement(step=None, faults=tuple(wrong_time), hits=())
        decided = step(self.record, request, observed_ms)
        expected = answer(decided, request)
        faults = [*self._compare(request, decided, expected, came)]
        if faults:
            if any(self._repeat(request, decided)):
                first, *others = faults
                faults = [replace(first, rules=(*first.rules, "WC-IDEM-1")), *others]
            return Judgement(step=decided, faults=tuple(faults), hits=())
        hits = (*self._hits(request, decided, came), *self._repeat(request, decided))
        self.record = decided.record
        self._previous = (request, decided)
        if isinstance(came, Result):
            self.workflow_hash = came.members.get("workflow_hash")
        return Judgement(step=decided, faults=(), hits=hits)

    def _observed(
        self, came: Result | Problem, exchange: Exchange
    ) -> tuple[int | None, list[Fault]]:
        """The time of the step, and what is wrong with it."""
        if "observed_at" not in came.members:
            return None, [_undecided(came)]
        text = came.members["observed_at"]
        try:
            observed_ms = parse_timestamp(text)
        except ValueError:
            fault = Fault(
                rules=("WC-TIME-5",),
                what="observed_at has another form",
                expected="RFC 3339, UTC, three fraction digits and Z",
                got=json.dumps(text),
            )
            return None, [fault]
        if observed_ms > LATEST_OBSERVED_MS:
            fault = Fault(
                rules=("WC-TIME-1",),
                what="observed_at",
                expected="a time whose deadlines timestamps can show",
                got=text,
            )
            return None, [fault]
        if self.record is not None and observed_ms < self.record.changed_at_ms:
            fault = Fault(
                rules=("WC-TIME-4",),
                what="observed_at is earlier than the record's last change",
                expected="that change's time or later",
                got=f"{self.record.changed_at_ms - observed_ms} ms earlier",
            )
            return observed_ms, [fault]
        wrong = self.clock.judge(observed_ms, exchange.called_ns, exchange.returned_ns)
        if wrong is None:
            return observed_ms, []
        fault = Fault(
            rules=("WC-TIME-1",), what="observed_at", expected=wrong.expected, got=wrong.got
        )
        return observed_ms, [fault]

    # -- comparing -----------------------------------------------------------------------

    def _compare(
        self, request: Request, decided: Step, expected: dict[str, Any], came: Result | Problem
    ) -> Iterator[Fault]:
        outcome = decided.outcome
        same_kind = (
            isinstance(came, Result)
            if isinstance(outcome, Success)
            else isinstance(came, Problem) and came.code is outcome
        )
        if not same_kind:
            yield self._wrong_decision(request, decided, came)
            return
        got = came.members
        if isinstance(came, Problem):
            compared = {"observed_at", "stage", "generation", "claim_expires_at", "configuration"}
            yield from self._members(decided, expected, got, compared)
            return
        yield from self._members(decided, expected, got, expected.keys())
        unknown = sorted(got.keys() - expected.keys() - {"workflow_hash"})
        if unknown:
            yield Fault(
                rules=("WC-VIEW-1",),
                what="members that a result does not have",
                expected="none",
                got=", ".join(unknown),
            )
        if self.workflow_hash not in (None, got.get("workflow_hash")):
            yield Fault(
                rules=("WC-ID-2",),
                what="workflow_hash changed for the same workflow",
                expected=str(self.workflow_hash),
                got=str(got.get("workflow_hash")),
            )

    def _wrong_decision(self, request: Request, decided: Step, came: Result | Problem) -> Fault:
        rules = [decided.rule]
        if self._would_follow_from_another_moment(request, decided, came):
            rules.insert(0, "WC-TIME-2")
        elif decided.rule in ("WC-TRANS-7", "WC-TRANS-8") and isinstance(request, Transition):
            rules += graph_rules(_stage(self.record), request)
        elif decided.outcome is ErrorCode.CHECKPOINT_LIMIT_REACHED:
            rules.append("WC-LIMIT-1")
        return Fault(
            rules=tuple(rules),
            what=f"the decision on {_article(request.action)} `{request.action}`",
            expected=_decision(decided.outcome, decided.record),
            got=_came(came),
        )

    def _would_follow_from_another_moment(
        self, request: Request, decided: Step, came: Result | Problem
    ) -> bool:
        """Whether the answer would be right a millisecond away, across a deadline."""
        for shift_ms in (-1, 1):
            other = step(self.record, request, decided.observed_at_ms + shift_ms)
            if other.rule == decided.rule:
                continue
            if isinstance(other.outcome, Success):
                matches = isinstance(came, Result) and all(
                    came.members.get(flag) is (flag in other.outcome.value) for flag in _FLAG_OWNERS
                )
            else:
                matches = isinstance(came, Problem) and came.code is other.outcome
            if matches:
                return True
        return False

    def _members(
        self,
        decided: Step,
        expected: dict[str, Any],
        got: dict[str, Any],
        compared: Iterable[str],
    ) -> Iterator[Fault]:
        wrong = []
        for member in compared:
            due, came = expected.get(member, _MISSING), got.get(member, _MISSING)
            if not _is_same(due, came):
                wrong.append(member)
        if not wrong:
            return
        wrong = [m for m in wrong if not any(m in _FOLLOWS.get(cause, ()) for cause in wrong)]
        # What follows from a wrong decision is no fault of its own: a record that was wrongly
        # left `claimed` is then rightly reported with `recovery_required` false.
        action = expected.get("action")  # a problem has none, and decides nothing by its members
        decisive = [
            member
            for member in wrong
            if action is not None and (member in _DECISION or _FLAG_OWNERS.get(member) == action)
        ]
        for member in decisive or wrong:
            yield Fault(
                rules=self._rules_of(member, decided, decisive=bool(decisive)),
                what=f"`{member}`",
                expected=shown(expected, member),
                got=shown(got, member),
            )

    def _rules_of(self, member: str, decided: Step, *, decisive: bool) -> tuple[str, ...]:
        if decisive:
            return (decided.rule,)
        if not isinstance(decided.outcome, Success) and member != "configuration":
            return ("WC-ERR-2",)
        if member.startswith("evidence_"):
            if decided.rule in ("WC-CLAIM-7", "WC-CLAIM-8"):
                return ("WC-VIEW-4",)
            return (decided.rule if decided.rule == "WC-TRANS-8" else "WC-VIEW-3",)
        if member == "claim_expires_at":
            # "No deadline moves" is said of the row too.
            return (decided.rule, "WC-TIME-3")
        return rules_of_member(member)

    # -- counting ------------------------------------------------------------------------

    def _hits(self, request: Request, decided: Step, came: Result | Problem) -> Iterator[str]:
        before, now_ms = self.record, decided.observed_at_ms
        yield decided.rule
        yield from ("WC-TIME-1", "WC-TIME-5", "WC-IN-1")
        if before is not None:
            near_ms = (
                REAL_DEADLINE_NEAR_MS if isinstance(self.clock, RunningClock) else _DEADLINE_NEAR_MS
            )
            # A claim that was cut short has no deadline left to be near to.
            deadlines = [before.state_expires_at_ms]
            if before.claim_expires_at_ms > before.changed_at_ms:
                deadlines.append(before.claim_expires_at_ms)
            if any(abs(now_ms - deadline_ms) <= near_ms for deadline_ms in deadlines):
                yield "WC-TIME-2"
        if isinstance(request, Transition) and decided.rule in ("WC-TRANS-7", "WC-TRANS-8"):
            yield from graph_rules(_stage(before), request)
        if decided.outcome is ErrorCode.CHECKPOINT_LIMIT_REACHED:
            yield "WC-LIMIT-1"
        if isinstance(came, Problem):
            yield "WC-ERR-2"
            if came.code is ErrorCode.CONFIGURATION_CONFLICT:
                yield "WC-ERR-8"
            return
        yield from ("WC-ID-1", "WC-VIEW-1", "WC-VIEW-2", "WC-VIEW-3", "WC-TIME-3", "WC-TIME-6")
        if self.workflow_hash is not None:
            yield "WC-ID-2"
        if (
            before is not None
            and before.evidence_type
            and decided.rule
            in (
                "WC-CLAIM-7",
                "WC-CLAIM-8",
            )
        ):
            yield "WC-VIEW-4"

    def _repeat(self, request: Request, decided: Step) -> Iterator[str]:
        """WC-IDEM-1 is exercised by the same request again, with nothing in between."""
        if self._previous is None or self._previous[0] != request:
            return
        if self._previous[1].record is decided.record:
            yield "WC-IDEM-1"


def rules_of_member(member: str) -> tuple[str, ...]:
    """The rules that a wrong member breaks where the decision is right."""
    if member in _FLAG_OWNERS:
        return ("WC-VIEW-1",)
    return _MEMBER_RULES.get(member, ("WC-VIEW-3",))


def _undecided(came: Result | Problem) -> Fault:
    """An answer without a time, where the request was one that section 6 decides."""
    if isinstance(came, Result):
        rule, what = "WC-VIEW-1", "a result without observed_at"
    elif came.code is ErrorCode.INVALID_INPUT:
        rule, what = "WC-IN-1", "a request that matches the contract was refused"
    else:
        rule, what = "WC-ERR-2", "an error of section 6 without observed_at"
    detail = came.members.get("detail")
    return Fault(
        rules=(rule,),
        what=what,
        expected="an answer of section 6, with its time",
        got=f"{_came(came)}{f': {detail}' if detail else ''}",
    )


def _stage(record: Record | None) -> Stage:
    return Stage.CLAIMED if record is None else record.stage


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _decision(outcome: Success | ErrorCode, record: Record | None) -> str:
    if isinstance(outcome, ErrorCode):
        return str(outcome)
    assert record is not None
    said = " and ".join(f"`{flag}`" for flag in sorted(outcome.value))
    return f"a result{f' with {said}' if said else ''}: {record.stage}, gen. {record.generation}"


def _came(came: Result | Problem) -> str:
    if isinstance(came, Problem):
        return str(came.code)
    raised = [f"`{flag}`" for flag in _FLAG_OWNERS if came.members.get(flag) is True]
    said = " and ".join(raised)
    stage, generation = came.members.get("stage"), came.members.get("generation")
    return f"a result{f' with {said}' if said else ''}: {stage}, gen. {generation}"


def _is_same(due: object, came: object) -> bool:
    # Of one JSON type too: ``true`` is not 1. But whether 15.0 is an integer is unspecified.
    if isinstance(due, bool) or isinstance(came, bool):
        return due is came
    return due == came
