"""Linearizability of one workflow, with the store's own time (WC-CONC-1).

Given what many clients asked and were told, is there one order of the atomic steps that explains
every answer? :func:`check` says so with one of four results, and only :class:`Linearizable` is
a pass.

Rule 1: nothing here decides a request. Every step of every order is one of
        :func:`checkpoint_model.machine.step`, from no record on; nothing is taken over from the
        target but what its answer is compared with.
Rule 2: a refusal is an answer like any other: the state at its place must justify it.
Rule 3: what is not known to be applied, and not known not to be, stays both.

How it works. An order must respect real time (who was answered before another was asked comes
first; intervals are closed) and, among what changes the record, the store's time: no step has an
``observed_at`` earlier than that of a change before it. Trying all orders is hopeless from a few
dozen operations on. Three observations make it nearly linear:

*Observers first.* An operation that may come next, whose answer is what the model says now, and
which changes nothing, is placed at once. No other choice is lost: whatever order exists with it
further back exists with it here too.

*Time orders the changes.* What changes the record next must have the least ``observed_at`` of all
that is not placed, for everything after it must have that time or a later one. So there is a
choice only among equal times. (An observer may have a later time than a change after it: the
contract orders times after changes, and a clock may have stepped back in between.)

*Lost operations are optional and late.* One whose answer is not known is placed only where nothing
else goes on, and only where it changes the record. Its time is free, but whether an answer fits
depends on it only through deadlines: it is enough to try the least possible time and those at
which a deadline comes to lie on one side or the other of something.

*A crash may take changes with it.* Where a store began anew in the meantime, and what it declares
lets it lose something, the record may at that point be one that it was before, or gone
(:class:`Crash`). That is tried only where no order without a loss explains the answers.

First comes a plain walk in the order of time (:func:`_walk`), which is all that most histories
take. Where it does not come through, :class:`_Search` tries everything.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import floor
from operator import itemgetter
from random import Random
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from checkpoint_model.machine import (
    SETTLED,
    Abandon,
    Claim,
    Record,
    Request,
    Status,
    Step,
    Success,
    Transition,
    step,
)
from checkpoint_model.vocabulary import ERRORS, ErrorCode, Stage
from checkpoint_model.wire import FLAGS, answer, format_timestamp, parse_timestamp

STEPS_MAX: Final = 2_000_000
"""How many steps of the model are tried before the verdict is :class:`Unknown`."""
_WORDING_STEPS_MAX: Final = 20_000
"""How many are tried, of a history that is known to be wrong, to tell a clock's fault."""
_LOSSLESS_STEPS_MAX: Final = 20_000
"""How many are tried without a loss, where a crash may have taken something."""
_SHAPES_MAX: Final = 1 << 14
"""So many forms of answers are remembered; a storm has some hundreds."""
_MS_PER_SECOND: Final = 1000
_FOREVER_NS: Final = 1 << 100
"""The return of what never returned."""


# -- What is judged ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What came back, complete: the HTTP status, and the members of its JSON object if it is one.

    What does not tell whether the request was applied (``DEPENDENCY_UNAVAILABLE``, a 5xx without
    a code) is an answer as well; the checker takes it as lost.
    """

    status: int
    members: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One call on the workflow. Times are nanoseconds of a monotonic clock; both ends belong to
    the interval in which the step took place."""

    client: str
    request: Request
    called_ns: int
    returned_ns: int | None
    """None where no answer came: the request may take effect at any later time."""
    answer: Answered | None
    """None where no answer came."""
    clock: str = ""
    """Which monotonic clock; only times of the same one are compared."""
    earliest_ms: int | None = None
    """By the store's clock, the least time at which the step can have taken place, where that
    is known (:class:`Offsets`). Only a lost answer's place depends on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """The store ended between these times of ours and began anew with what it had kept (WC-PRIV-5).

    Only of a store that may lose what it acknowledged; a crash of one that may not is none.
    """

    called_ns: int
    returned_ns: int
    clock: str = ""
    lost_from_ms: int | None = None
    """Changes of this time of the store or later may be lost, earlier ones not; None: any may."""


class Loss(NamedTuple):
    """What a crash took: of an order, the changes from one place on that come before another."""

    kept: int
    """So many steps of the order survived."""
    before: int
    """The crash comes just before this place of the order."""


class Placed(NamedTuple):
    """One step of an order: which operation, and the store's time at which it took place."""

    operation: int
    """Its place in the sequence that was checked."""
    observed_at_ms: int
    """Milliseconds since the epoch: the answer's own, or the one found for a lost answer."""


# -- What is said of it -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Linearizable:
    """One order explains every answer; lost answers that are not in it were not applied."""

    order: tuple[Placed, ...]
    """The witness. What was known to change nothing is not in it; :func:`retrace` tells the
    states between."""
    remarks: tuple[str, ...] = ()
    """What is not wrong, and worth saying."""
    losses: tuple[Loss, ...] = ()
    """What crashes took, in the order in which they were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Illegal:
    """No order explains the answers."""

    order: tuple[Placed, ...]
    """The shortest prefix, by the store's time, that fails, as far as it can be ordered."""
    operation: int
    """The first that cannot be placed after it."""
    rule: str
    """The decision row that applies to it there, such as ``WC-CLAIM-5``."""
    expected: Mapping[str, Any]
    """The members that its answer would have there."""
    got: Mapping[str, Any]
    """The members that it has."""
    differs: tuple[str, ...]
    """The members that are not as expected; empty where the answer fits and real time forbids
    the place."""
    record: Record | None
    """The state after ``order``."""
    why: str
    """One sentence for people."""
    losses: tuple[Loss, ...] = ()
    """As of :class:`Linearizable`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockViolation:
    """Only an order that ignores the store's time explains the answers: it went back."""

    order: tuple[Placed, ...]
    """The order that explains all but the times."""
    operation: int
    """The first whose time cannot be."""
    earlier: int
    """The change that it follows and yet claims to precede."""
    expected: str
    got: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """Not decided, which is no pass: the budget was spent, or there was nothing to judge."""

    steps: int
    """How many steps of the model were tried."""
    why: str


Verdict: TypeAlias = Linearizable | Illegal | ClockViolation | Unknown


# -- What an answer says ----------------------------------------------------------------


class Seen(NamedTuple):
    """An operation as the search compares it: a few hundred bytes, whatever the answer's size.

    Made by :func:`see` or :func:`see_call`. Of a result or an error of section 6 everything that
    follows from the record is kept: the times as numbers, all else in ``shape``.
    """

    request: Request
    called_ns: int
    returned_ns: int
    clock: str
    earliest_ms: int | None
    observed_at_ms: int | None
    """None where the answer does not tell what was decided, and the request may be applied."""
    shape: tuple[Any, ...]
    """Equal for two answers exactly where they say the same of anything but times."""
    claim_expires_at_ms: int | None = None
    state_expires_at_ms: int | None = None
    stage: object = None
    generation: object = None
    members: Mapping[str, Any] | None = None
    """The answer itself, where it was kept."""


_ABSENT: Final = object()
_MALFORMED: Final = ("malformed",)
_STEADY: Final = (
    "action",
    "stage",
    "generation",
    *FLAGS,
    "recovery_required",
    "claim_active",
    "held_by_caller",
    "evidence_type",
    "evidence_fingerprint_present",
    "retry_failed_allowed",
    "minimum_action_safety_margin_seconds",
    "external_proof",
)
"""The members of a result that are neither times, nor the list, nor the hash."""
_steady = itemgetter(*_STEADY)
_PROBLEM_MEMBERS: Final = (
    "code",
    "observed_at",
    "stage",
    "generation",
    "claim_expires_at",
    "configuration",
)
"""The members of an error that follow from the record (WC-ERR-2, WC-ERR-8), and its code."""
_NO_SHAPE: Final[tuple[Any, ...]] = ()
# By plain strings, like all that is asked of every answer: members of an enumeration are hashed by
# a function of Python's, which costs more than all the rest.
_UNCHANGED: Final = frozenset(
    map(str, (ErrorCode.INVALID_INPUT, ErrorCode.TOOL_PAUSED, ErrorCode.RATE_LIMITED))
)
"""WC-ERR-4: whoever is refused so has changed nothing, and learned nothing of the record."""
_DECIDED: Final[Mapping[str, bool]] = {str(code): ERRORS[code].decided for code in ErrorCode}
"""Every code, and whether it tells what was decided."""


_RANKS: Final[Mapping[object, int]] = {
    stage: 2 if stage in SETTLED else 1 if stage is Stage.UNCERTAIN else 0 for stage in Stage
}
"""Within a generation a stage is followed only by those of a higher rank (WC-GRAPH-1)."""


class AnswerError(ValueError):
    """An answer of section 6 that lacks what every such answer has; the message names it."""


def see(operation: Operation) -> Seen | None:
    """What an operation contributes; None where it is known to have changed nothing.

    Raises:
        AnswerError: it was decided, and does not say when.
    """
    return see_call(
        operation.request,
        operation.called_ns,
        operation.returned_ns,
        operation.answer,
        clock=operation.clock,
        earliest_ms=operation.earliest_ms,
        keep_members=True,
    )


def see_call(
    request: Request,
    called_ns: int,
    returned_ns: int | None,
    answered: Answered | None,
    *,
    clock: str = "",
    earliest_ms: int | None = None,
    keep_members: bool = False,
    kept: dict[Any, Any] | None = None,
) -> Seen | None:
    """The same, from the parts of an operation.

    Args:
        request: with all the others but the last, as :class:`Operation` has them.
        called_ns: see there.
        returned_ns: see there.
        answered: its ``answer``.
        clock: see there.
        earliest_ms: see there.
        keep_members: whether the answer itself is kept, too.
        kept: one object for whatever is equal, where many are seen: most answers are much alike.

    Raises:
        AnswerError: it was decided, and does not say when.
    """
    members = None if answered is None else answered.members
    code = None if members is None else members.get("code")
    if isinstance(code, str) and code in _DECIDED:
        if code in _UNCHANGED:
            return None
        decided = _DECIDED[code]
    else:
        assert answered is not None or members is None
        decided = members is not None and answered is not None and answered.status == 200
        code = None
    if not decided or members is None or returned_ns is None:
        return Seen(request, called_ns, _FOREVER_NS, clock, earliest_ms, None, _NO_SHAPE)
    try:
        observed_at_ms = _timestamp(members.get("observed_at"))
    except (ValueError, TypeError):
        raise AnswerError("its answer has no observed_at that could be read") from None
    if kept is None:
        kept = {}
    if code is None:
        shape, claim_ms, state_ms = _see_result(members, observed_at_ms, kept)
    else:
        shape, claim_ms = _see_problem(members, kept)
        state_ms = None
    return Seen(
        request,
        called_ns,
        returned_ns,
        clock,
        None,
        observed_at_ms,
        shape,
        claim_ms,
        state_ms,
        members.get("stage"),
        members.get("generation"),
        members if keep_members else None,
    )


def _see_result(
    members: Mapping[str, Any], observed_at_ms: int, kept: dict[Any, Any]
) -> tuple[tuple[Any, ...], int | None, int | None]:
    try:
        steady = _steady(members)
        actions = members["allowed_next_actions"]
        until_claim = members["claim_expires_at"]
        claim_ms = None if until_claim is None else _timestamp(until_claim)
        state_ms = _timestamp(members["state_expires_at"])
        left = (members["claim_ttl_seconds_remaining"], members["state_ttl_seconds_remaining"])
        shape: tuple[Any, ...] = (steady, tuple(map(type, steady)), tuple(actions))
        shape = kept.setdefault(shape, shape)
    except (KeyError, ValueError, TypeError):
        return _MALFORMED, None, None
    # WC-TIME-6 follows from the answer's own times, so no record is needed to compare it.
    claim_left = 0 if claim_ms is None else (claim_ms - observed_at_ms) // _MS_PER_SECOND
    follows = (claim_left, (state_ms - observed_at_ms) // _MS_PER_SECOND)
    if left != follows or type(left[0]) is not int or type(left[1]) is not int:
        return _MALFORMED, claim_ms, state_ms
    return shape, claim_ms, state_ms


def _see_problem(
    members: Mapping[str, Any], kept: dict[Any, Any]
) -> tuple[tuple[Any, ...], int | None]:
    claim_ms = None
    try:
        if "claim_expires_at" in members:
            claim_ms = _timestamp(members["claim_expires_at"])
        stage, generation = members.get("stage", _ABSENT), members.get("generation", _ABSENT)
        configuration = members.get("configuration", _ABSENT)
        if isinstance(configuration, Mapping):
            configuration = tuple(sorted((k, type(v), v) for k, v in configuration.items()))
        shape: tuple[Any, ...] = (
            members["code"],
            stage,
            type(generation),
            generation,
            configuration,
        )
        return kept.setdefault(shape, shape), claim_ms
    except (ValueError, TypeError):
        return _MALFORMED, None


@lru_cache(maxsize=1 << 14)
def _timestamp(text: object) -> int:
    """A time stands in many answers; reading each once is a good part of the time saved."""
    return parse_timestamp(text)


class _Expecting:
    """What :func:`checkpoint_model.wire.answer` says, in the form of :class:`Seen`.

    Of one shape the members are made once, by that function itself, and then remembered. They
    follow from the key alone, so they are for every workflow.
    """

    _shapes: ClassVar[dict[tuple[Any, ...], tuple[Any, ...]]] = {}

    def fits(self, done: Step, seen: Seen) -> bool:
        """Whether an answer is the one that a step must have."""
        now_ms = done.observed_at_ms
        if now_ms != seen.observed_at_ms:
            return False
        outcome, record = done.outcome, done.record
        claim_ms: int | None = None
        if isinstance(outcome, Success):
            assert record is not None
            if record.state_expires_at_ms != seen.state_expires_at_ms:
                return False
            request = seen.request
            active = record.claim_active(now_ms)
            if active:
                claim_ms = record.claim_expires_at_ms
            if claim_ms != seen.claim_expires_at_ms:
                return False
            evidence = record.evidence_type
            # By plain strings: hashing a member of an enumeration costs more than all the rest.
            key: tuple[Any, ...] = (
                type(request),
                outcome._name_,
                record.stage._value_,
                record.generation,
                active,
                request.holder == record.holder,
                None if evidence is None else evidence._value_,
                record.evidence_fingerprint_present,
                record.retry_failed,
            )
        else:
            key = (outcome._name_,)
            if record is not None and now_ms < record.state_expires_at_ms:
                if record.claim_active(now_ms):
                    claim_ms = record.claim_expires_at_ms
                key = (outcome._name_, record.stage._value_, record.generation)
                if outcome is ErrorCode.CONFIGURATION_CONFLICT:
                    key += (
                        record.claim_ttl_seconds,
                        record.state_ttl_seconds,
                        record.retry_failed,
                    )
            if claim_ms != seen.claim_expires_at_ms or seen.state_expires_at_ms is not None:
                return False
        shape = self._shapes.get(key)
        if shape is None:
            members = answer(done, seen.request)
            if isinstance(outcome, Success):
                shape = _see_result(members, now_ms, {})[0]
            else:
                shape = _see_problem(members, {})[0]
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            self._shapes[key] = shape
        return shape == seen.shape


# -- The verdict ------------------------------------------------------------------------


def check(
    operations: Sequence[Operation],
    *,
    crashes: Sequence[Crash] = (),
    steps_max: int = STEPS_MAX,
) -> Verdict:
    """Judge every operation on one workflow, given in any order.

    The workflow is one that nobody touched before: it has no record at first.

    Args:
        operations: all of them, those that were refused or lost too.
        crashes: of a store that may lose something by them.
        steps_max: how many steps of the model may be tried.
    """
    seen: list[Seen] = []
    places: list[int] = []
    for place, operation in enumerate(operations):
        try:
            one = see(operation)
        except AnswerError as error:
            members = None if operation.answer is None else operation.answer.members
            return Illegal(
                order=(),
                operation=place,
                rule="WC-TIME-5",
                expected={},
                got=members or {},
                differs=("observed_at",),
                record=None,
                why=f"Whatever the order: {error}.",
            )
        if one is not None:
            seen.append(one)
            places.append(place)
    return _moved(check_seen(seen, crashes=crashes, steps_max=steps_max), places)


def _moved(verdict: Verdict, places: Sequence[int]) -> Verdict:
    """A verdict whose operations are counted as in the longer sequence that was given."""
    if isinstance(verdict, Unknown):
        return verdict
    order = tuple(Placed(places[i], at_ms) for i, at_ms in verdict.order)
    if isinstance(verdict, Linearizable):
        return replace(verdict, order=order)
    if isinstance(verdict, Illegal):
        return replace(verdict, order=order, operation=places[verdict.operation])
    return replace(
        verdict,
        order=order,
        operation=places[verdict.operation],
        earlier=places[verdict.earlier],
    )


def check_seen(
    seen: Sequence[Seen], *, crashes: Sequence[Crash] = (), steps_max: int = STEPS_MAX
) -> Verdict:
    """Judge one workflow from what :func:`see` made of its operations."""
    found, search = _find(seen, steps_max, crashes)
    if found is not None:
        return found
    assert search is not None
    # A clock that went back says nothing where the record may have gone back itself.
    clock = None if crashes else _clock_violation(seen, search)
    return clock or _illegal(seen, search, steps_max)


def find_order(
    seen: Sequence[Seen], *, crashes: Sequence[Crash] = (), steps_max: int = STEPS_MAX
) -> Linearizable | Unknown | None:
    """The same without an explanation, which takes far longer: None where there is no order."""
    return _find(seen, steps_max, crashes)[0]


def _find(
    seen: Sequence[Seen], steps_max: int, crashes: Sequence[Crash] = ()
) -> "tuple[Linearizable | Unknown | None, _Search | None]":
    if all(one.observed_at_ms is None for one in seen):
        why = "No answer tells what was decided: there is nothing to judge."
        return Unknown(steps=0, why=why), None
    in_time = sorted(
        (i for i, one in enumerate(seen) if one.observed_at_ms is not None),
        key=lambda i: (seen[i].observed_at_ms, seen[i].called_ns, seen[i].returned_ns),
    )
    out_of_order = _out_of_order(seen, in_time)
    if not out_of_order:
        order = _walk(seen, in_time)
        if order is not None:
            return Linearizable(order=tuple(order)), None
    lost = [i for i, one in enumerate(seen) if one.observed_at_ms is None]
    # Where something may have been lost, an order without a loss is only tried first.
    first_max = min(steps_max, _LOSSLESS_STEPS_MAX) if crashes else steps_max
    search = _Search(seen, in_time, lost, steps_max=first_max)
    explained = search.run()
    if crashes and not explained:
        search = _Search(seen, in_time, lost, crashes=crashes, steps_max=steps_max)
        explained = search.run()
    if explained:
        remark = (
            f"{out_of_order} observed_at earlier than that of an answer that had come before the "
            "request was sent, with no change in between: the clock stepped back, or time is not "
            "read inside the step."
        )
        remarks = (remark,) if out_of_order else ()
        placed, losses = search.order
        return Linearizable(order=placed, remarks=remarks, losses=losses), search
    if search.spent:
        why = f"Not decided within {steps_max:,} steps of the model."
        return Unknown(steps=search.steps, why=why), search
    return None, search


def retrace(
    operations: Sequence[Operation | Seen], order: Iterable[Placed], losses: Sequence[Loss] = ()
) -> Iterator[Step]:
    """The steps of an order, one after the other: what the record was after each."""
    record: Record | None = None
    records = [record]
    kept_before = {loss.before: loss.kept for loss in losses}
    for number, (place, at_ms) in enumerate(order):
        if number in kept_before:
            record = records[kept_before[number]]
        done = step(record, operations[place].request, at_ms)
        record = done.record
        records.append(record)
        yield done


def _illegal(seen: Sequence[Seen], whole: "_Search", steps_max: int) -> Illegal:
    """Tell what fails of a history that is known to.

    What has a later time than some moment can be left out without harm to what is explained, so
    the prefixes by time fail from one of them on.
    """
    in_time, lost = whole.in_time, whole.lost

    def fails(count: int) -> "_Search | None":
        search = _Search(seen, in_time[:count], lost, crashes=whole.crashes, steps_max=steps_max)
        return None if search.run() or search.spent else search

    ends = [
        end
        for end in range(1, len(in_time) + 1)
        if end == len(in_time)
        or seen[in_time[end]].observed_at_ms != seen[in_time[end - 1]].observed_at_ms
    ]
    failing = whole
    low, high = 0, len(ends) - 1
    assert whole.deepest is not None
    # Nearly always the search stood still just where the shortest failing prefix ends.
    stood_at = bisect_right(ends, in_time.index(whole.deepest.least))
    guesses = [stood_at - 1, stood_at]
    while low < high:
        middle = guesses.pop() if guesses else (low + high) // 2
        if not low <= middle < high:
            continue
        found = fails(ends[middle])
        if found is None:
            low = middle + 1
        else:
            failing, high = found, middle
    assert failing.deepest is not None
    return _blame(seen, failing.deepest)


def _blame(seen: Sequence[Seen], deepest: "_Deepest") -> Illegal:
    """Name one operation that cannot follow the best attempt."""
    record = deepest.record
    i = min(
        deepest.open or (deepest.least,),
        key=lambda i: (i != deepest.least, seen[i].observed_at_ms, seen[i].called_ns, i),
    )
    one = seen[i]
    assert one.observed_at_ms is not None
    done = step(record, one.request, one.observed_at_ms)
    expected = answer(done, one.request)
    got = dict(one.members or {})
    differs = _differing(expected, got) if one.members is not None else ()
    at = format_timestamp(one.observed_at_ms)
    if done.observed_at_ms != one.observed_at_ms:
        why = (
            f"Its time is {at}, and the record was changed at "
            f"{format_timestamp(done.observed_at_ms)} before it."
        )
    elif not _Expecting().fits(done, one):
        why = (
            f"At {at} it was told {_said(got) if got else 'something else'}; after all that came "
            f"before, {done.rule} says {_said(expected)}."
        )
    else:
        late = format_timestamp(seen[deepest.least].observed_at_ms or 0)
        why = (
            f"It changed the record at {at} and had returned before another was called whose "
            f"time is {late}."
        )
    order, losses = _without_crashes(deepest.trail, len(seen))
    return Illegal(
        order=order,
        losses=losses,
        operation=i,
        rule=done.rule,
        expected=expected,
        got=got,
        differs=differs,
        record=record,
        why=why,
    )


def _without_crashes(
    trail: Sequence[Placed], operations: int
) -> tuple[tuple[Placed, ...], tuple[Loss, ...]]:
    """The steps of a trail, and the losses by the crashes in it.

    A crash stands in a trail under a number beyond the operations', with how many steps it left
    in the place of a time.
    """
    order: list[Placed] = []
    losses: list[Loss] = []
    for i, said in trail:
        if i < operations:
            order.append(Placed(i, said))
        elif said < len(order):
            losses.append(Loss(kept=said, before=len(order)))
    return tuple(order), tuple(losses)


def _differing(expected: Mapping[str, Any], got: Mapping[str, Any]) -> tuple[str, ...]:
    if expected.get("code") != got.get("code"):
        return ("code",)
    compared = _PROBLEM_MEMBERS if "code" in expected else tuple(expected)
    return tuple(
        member
        for member in compared
        if (type(expected.get(member, _ABSENT)), expected.get(member, _ABSENT))
        != (type(got.get(member, _ABSENT)), got.get(member, _ABSENT))
    )


def _said(members: Mapping[str, Any]) -> str:
    """An answer in a few words."""
    stands = f"{members.get('stage')}, generation {members.get('generation')}"
    if "code" in members:
        return f"{members['code']}" + (f" ({stands})" if "stage" in members else "")
    raised = [f"`{flag}`" for flag in FLAGS if members.get(flag) is True]
    return f"{' and '.join(raised) or 'a result'} ({stands})"


def _clock_violation(seen: Sequence[Seen], failed: "_Search") -> ClockViolation | None:
    """Whether some order explains all but the times."""
    search = _Search(seen, failed.in_time, failed.lost, steps_max=_WORDING_STEPS_MAX, timeless=True)
    if not search.run():
        return None
    changed_at_ms: int | None = None
    changed_by = 0
    record: Record | None = None
    for i, at_ms in search.trail:
        if changed_at_ms is not None and at_ms < changed_at_ms:
            last, early = format_timestamp(changed_at_ms), format_timestamp(at_ms)
            return ClockViolation(
                order=tuple(search.trail),
                operation=i,
                earlier=changed_by,
                expected=f"{last} or later",
                got=early,
                why=(
                    f"The answers are explained by one order, but only if the clock went back: "
                    f"a step at {early} follows a change at {last}."
                ),
            )
        done = step(_as_of(record, at_ms), seen[i].request, at_ms)
        if not _unchanged(done, record, at_ms, timeless=True):
            record, changed_at_ms, changed_by = done.record, at_ms, i
    return None


def _out_of_order(seen: Sequence[Seen], in_time: Sequence[int]) -> int:
    """How many claim a time before that of an answer which had come before they were sent."""
    least: dict[str, int] = {}
    found = 0
    for _, group in groupby(reversed(in_time), key=lambda i: seen[i].observed_at_ms):
        together = list(group)
        found += sum(seen[i].called_ns > least.get(seen[i].clock, _FOREVER_NS) for i in together)
        for i in together:
            one = seen[i]
            if one.returned_ns < least.get(one.clock, _FOREVER_NS):
                least[one.clock] = one.returned_ns
    return found


def _walk(seen: Sequence[Seen], in_time: Sequence[int]) -> list[Placed] | None:
    """One pass in the order of time, without choices and without lost operations.

    Finds an order of nearly every history that has one without a lost operation in it; None says
    nothing yet.
    """
    expecting = _Expecting()
    fits = expecting.fits
    record: Record | None = None
    order: list[Placed] = []
    count = len(in_time)
    begin = 0
    while begin < count:
        first = seen[in_time[begin]]
        at_ms = first.observed_at_ms
        assert at_ms is not None
        end = begin + 1
        while end < count and seen[in_time[end]].observed_at_ms == at_ms:
            end += 1
        if end == begin + 1:
            done = step(record, first.request, at_ms)
            if not fits(done, first):
                return None
            record = done.record
            order.append(Placed(in_time[begin], at_ms))
        else:
            rest = list(in_time[begin:end])
            while rest:
                returns = _least_returns(seen, rest)
                changer: tuple[int, Step] | None = None
                left = []
                for i in rest:
                    one = seen[i]
                    if one.called_ns <= returns[one.clock]:
                        done = step(record, one.request, at_ms)
                        if fits(done, one):
                            if done.record is record:
                                order.append(Placed(i, at_ms))
                                continue
                            if changer is None:
                                changer = i, done
                    left.append(i)
                if len(left) == len(rest):
                    if changer is None:
                        return None
                    order.append(Placed(changer[0], at_ms))
                    record = changer[1].record
                    left.remove(changer[0])
                rest = left
        begin = end
    return order


def _least_returns(seen: Sequence[Seen], among: Iterable[int]) -> dict[str, int]:
    least: dict[str, int] = {}
    for i in among:
        one = seen[i]
        if one.returned_ns < least.get(one.clock, _FOREVER_NS):
            least[one.clock] = one.returned_ns
    return least


# -- The search -------------------------------------------------------------------------


@dataclass(slots=True)
class _Choice:
    """A place in an order at which more than one thing may come next."""

    key: Hashable
    length: int
    """Of the trail up to here."""
    record: Record | None
    open: list[int]
    next_called: dict[str, int]
    next_returned: dict[str, int]
    next_in_time: int
    others: Iterator[tuple[int, int, Record | None]]
    """What has not been tried: which operation, its time, the record after it."""


class _Search:
    """Every order, depth first, that the three observations leave.

    ``run`` says whether there is one; ``trail`` is then that order. Else ``spent`` says whether
    the budget ended it, and ``deepest`` how far the best attempt came.
    """

    def __init__(
        self,
        seen: Sequence[Seen],
        in_time: Sequence[int],
        lost: Sequence[int],
        *,
        steps_max: int,
        timeless: bool = False,
        crashes: Sequence[Crash] = (),
    ) -> None:
        self._operations = len(seen)
        if crashes:
            # Each is an event that has its place in real time, and may take changes with it.
            seen = [*seen, *map(_seen_crash, crashes)]
        self._seen = seen
        self.in_time = in_time
        self.lost = lost
        self.crashes = crashes
        self._timeless = timeless
        self._steps_max = steps_max
        self._fits = _Expecting().fits
        self.steps = 0
        self.spent = False
        self.trail: list[Placed] = []
        self._after: list[Record | None] = []
        """The record after each step of the trail."""
        self.record: Record | None = None
        self.deepest: _Deepest | None = None
        placed = [*in_time, *range(self._operations, len(seen))]
        self._by_called = _by_clock(seen, sorted(placed, key=lambda i: seen[i].called_ns))
        self._by_returned = _by_clock(seen, sorted(placed, key=lambda i: seen[i].returned_ns))
        self._next_called = dict.fromkeys(self._by_called, 0)
        self._next_returned = dict.fromkeys(self._by_called, 0)
        self._next_in_time = 0
        self._placed = bytearray(len(seen))
        self._left = len(in_time)
        self._open: list[int] = []
        # States that lead nowhere are remembered by what is placed and the record. What is placed
        # is kept as the sum, bit by bit, of one random number each: two sets are taken for one
        # another once in 2^128.
        numbers = Random(0)  # noqa: S311 - no secret
        self._numbers = [numbers.getrandbits(128) for _ in seen]
        self._sum = 0
        self._dead: set[Hashable] = set()
        self._candidates = _Lost(seen, in_time, lost)

    def run(self) -> bool:
        """Whether there is an order."""
        choices: list[_Choice] = []
        while True:
            changers = self._observe()
            if not self._left:
                return True
            if self.steps > self._steps_max:
                self.spent = True
                return False
            key: Hashable = (self._sum, self._standing())
            if self._crash_is_to_come:
                # What it may take depends on all that was.
                key = (key, tuple(record for record, _ in self._past().records))
            too_far = self._too_far(self.record)
            if too_far or not changers:
                self._note_how_far()
            if key not in self._dead and not too_far:
                choices.append(self._choice(key, changers))
            while choices:
                choice = choices[-1]
                self._return_to(choice)
                following = next(choice.others, None)
                if following is not None:
                    break
                self._dead.add(choice.key)
                choices.pop()
            else:
                return False
            self._place(*following)

    @property
    def order(self) -> tuple[tuple[Placed, ...], tuple[Loss, ...]]:
        """The trail as an order of operations, with what crashes took."""
        return _without_crashes(self.trail, self._operations)

    def _standing(self) -> Hashable:
        """What of the record bears on anything that is not placed.

        Of one that will be gone by the next answer, whatever it is, only when it goes: before that
        nothing can begin anew, and all that was in it is seen no more.
        """
        record = self.record
        if record is None or self._timeless or self.crashes or record.exists(self._least_time()):
            return record
        return record.state_expires_at_ms

    # -- what can come next --------------------------------------------------------------

    def _observe(self) -> list[tuple[int, Step]]:
        """Place every observer that fits, and tell what fits and changes the record."""
        seen, fits, timeless = self._seen, self._fits, self._timeless
        record = self.record
        changers: list[tuple[int, Step]] = []
        waiting: list[int] = []
        fresh = self._open
        while True:
            for i in fresh:
                one = seen[i]
                at_ms = one.observed_at_ms
                if at_ms is None:  # a crash
                    waiting.append(i)
                    continue
                if not _may_fit(record, at_ms, one.generation):
                    waiting.append(i)
                    continue
                self.steps += 1
                done = step(_as_of(record, at_ms) if timeless else record, one.request, at_ms)
                if not fits(done, one):
                    waiting.append(i)
                elif _unchanged(done, record, at_ms, timeless=timeless):
                    self._mark(i, at_ms)
                else:
                    changers.append((i, done))
                    waiting.append(i)
            fresh = self._newly_open()
            if not fresh:
                break
        self._open = waiting
        if timeless or len(changers) == 0:
            return changers
        # What comes later may have no earlier time, so the next change has the least of all.
        least_ms = self._least_time()
        return [(i, done) for i, done in changers if seen[i].observed_at_ms == least_ms]

    def _newly_open(self) -> list[int]:
        """What may come next since the last look: nothing left has returned before its call."""
        seen, placed = self._seen, self._placed
        fresh: list[int] = []
        for clock, returned in self._by_returned.items():
            at = self._next_returned[clock]
            while at < len(returned) and placed[returned[at]]:
                at += 1
            self._next_returned[clock] = at
            if at == len(returned):
                continue
            bound_ns = seen[returned[at]].returned_ns
            called = self._by_called[clock]
            at = self._next_called[clock]
            while at < len(called) and seen[called[at]].called_ns <= bound_ns:
                fresh.append(called[at])
                at += 1
            self._next_called[clock] = at
        return fresh

    def _least_time(self) -> int:
        """The least ``observed_at`` of what is not placed."""
        at = self._next_in_time
        while self._placed[self.in_time[at]]:
            at += 1
        self._next_in_time = at
        least_ms = self._seen[self.in_time[at]].observed_at_ms
        assert least_ms is not None
        return least_ms

    def _others(self, changers: list[tuple[int, Step]]) -> Iterator[tuple[int, int, Record | None]]:
        """What may come next, the likeliest first."""
        record = self.record
        for i, done in changers:
            yield i, done.observed_at_ms, done.record
        crashes = [i for i in self._open if i >= self._operations]
        for i in crashes:
            for kept, survived in self._survivors(self.crashes[i - self._operations]):
                self.steps += 1
                yield i, kept, survived
        if crashes and len(crashes) == len(self._open):
            # Nothing that was answered can come before the crash any more. A lost operation that
            # did, and survived, may as well follow it.
            return
        least_ms = self._least_time()
        bounds = self._return_bounds()
        until_ms = least_ms
        if self._timeless:
            until_ms = max(self._seen[i].observed_at_ms or 0 for i in self._open or self.in_time)
        # A change that a crash took is earlier all the same, and the store's time did not go back.
        from_ms = self._past().changed_at_ms if self.crashes else -_FOREVER_NS
        if record is not None and not self._timeless and not record.exists(least_ms):
            # What it still was before it went is seen no more.
            from_ms = max(from_ms, record.state_expires_at_ms)
        tried = {record}
        for i, at_ms in self._candidates.of(record, until_ms, bounds, self._placed):
            if at_ms < from_ms:
                continue
            self.steps += 1
            done = step(record, self._seen[i].request, at_ms)
            if done.record not in tried and from_ms <= done.observed_at_ms <= until_ms:
                tried.add(done.record)
                if self._too_far(done.record):
                    continue
                yield i, done.observed_at_ms, done.record

    @property
    def _crash_is_to_come(self) -> bool:
        return bool(self.crashes) and any(
            not self._placed[i] for i in range(self._operations, len(self._seen))
        )

    def _crash_may_precede(self, one: Seen) -> bool:
        """Whether a crash that is to come may have its place before an operation."""
        return bool(self.crashes) and any(
            not self._placed[i]
            and (self._seen[i].clock != one.clock or self._seen[i].called_ns <= one.returned_ns)
            for i in range(self._operations, len(self._seen))
        )

    def _past(self) -> "_Past":
        """What was so far, of a trail with crashes in it or to come."""
        records: list[tuple[Record | None, int]] = [(None, 0)]
        record: Record | None = None
        steps = 0
        changed_at_ms = -_FOREVER_NS
        for (i, said), after in zip(self.trail, self._after, strict=True):
            if i >= self._operations:
                while records[-1][1] > said:
                    records.pop()
                record = records[-1][0]
                continue
            steps += 1
            if after is not record:
                record, changed_at_ms = after, said
                records.append((record, steps))
        return _Past(records=records, steps=steps, changed_at_ms=changed_at_ms)

    def _survivors(self, crash: Crash) -> Iterator[tuple[int, Record | None]]:
        """What a record may be after a crash, with how many steps that leaves.

        First what loses nothing, then what loses all, then what lies between: so stores fail.
        """
        past = self._past()
        records = past.records
        yield past.steps, self.record
        least = len(records) - 1
        while least > 0:
            changed = records[least][0]
            assert changed is not None
            if crash.lost_from_ms is not None and changed.changed_at_ms < crash.lost_from_ms:
                break
            least -= 1
        for number in dict.fromkeys((least, *range(len(records) - 2, least, -1))):
            if number < len(records) - 1:
                record, kept = records[number]
                yield kept, record

    def _too_far(self, record: Record | None) -> bool:
        """Whether a record has moved on from what the next answer by time still shows.

        It neither goes back nor goes away before that answer's time, so that answer would never
        be explained.
        """
        if record is None or self._timeless:
            return False
        at_ms = self._least_time()
        if not record.exists(at_ms):
            return False
        one = self._seen[self.in_time[self._next_in_time]]
        if self._crash_may_precede(one):
            return False
        if one.generation is None:
            return True
        if not isinstance(one.generation, int) or not isinstance(one.stage, str):
            return False
        if one.stage not in _RANKS:
            return False
        if one.state_expires_at_ms not in (None, record.state_expires_at_ms):
            return True  # of another life
        if record.generation != one.generation:
            return record.generation > one.generation
        if one.claim_expires_at_ms not in (None, record.claim_expires_at_ms):
            return True  # within a generation a claim only ends, and then shows no time
        stands, shows = _RANKS[record.stage], _RANKS[one.stage]
        return stands > shows or (stands == shows and record.stage != one.stage)

    def _return_bounds(self) -> dict[str, int]:
        """For each clock the least return of what is not placed: none may follow it."""
        return {
            clock: self._seen[returned[at]].returned_ns
            for clock, returned in self._by_returned.items()
            if (at := self._next_returned[clock]) < len(returned)
        }

    # -- going on and going back ---------------------------------------------------------

    def _mark(self, i: int, at_ms: int) -> None:
        self.trail.append(Placed(i, at_ms))
        self._after.append(self.record)
        self._placed[i] = 1
        self._sum ^= self._numbers[i]
        if self._seen[i].observed_at_ms is not None:
            self._left -= 1

    def _place(self, i: int, at_ms: int, record: Record | None) -> None:
        self._mark(i, at_ms)
        if i in self._open:
            self._open.remove(i)
        self.record = self._after[-1] = record

    def _choice(self, key: Hashable, changers: list[tuple[int, Step]]) -> _Choice:
        return _Choice(
            key=key,
            length=len(self.trail),
            record=self.record,
            open=self._open,
            next_called=dict(self._next_called),
            next_returned=dict(self._next_returned),
            next_in_time=self._next_in_time,
            others=self._others(changers),
        )

    def _return_to(self, choice: _Choice) -> None:
        while len(self.trail) > choice.length:
            i, _ = self.trail.pop()
            self._after.pop()
            self._placed[i] = 0
            self._sum ^= self._numbers[i]
            if self._seen[i].observed_at_ms is not None:
                self._left += 1
        self.record = choice.record
        self._open = list(choice.open)
        self._next_called = dict(choice.next_called)
        self._next_returned = dict(choice.next_returned)
        self._next_in_time = choice.next_in_time

    def _note_how_far(self) -> None:
        if self.deepest is None or self._left < self.deepest.left:
            self.deepest = _Deepest(
                left=self._left,
                trail=tuple(self.trail),
                record=self.record,
                open=tuple(i for i in self._open if i < self._operations),
                least=self.in_time[self._next_of_least()],
            )

    def _next_of_least(self) -> int:
        self._least_time()
        return self._next_in_time


@dataclass(frozen=True, kw_only=True, slots=True)
class _Past:
    """What came before a place in an order that has crashes in it."""

    records: list[tuple[Record | None, int]]
    """Every record that still stands or stood, with the number of steps that led to it."""
    steps: int
    changed_at_ms: int
    """The time of the last change, whether it was lost or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Deepest:
    """How far the best attempt came: what was placed, the state, and what could have followed."""

    left: int
    trail: tuple[Placed, ...]
    record: Record | None
    open: tuple[int, ...]
    least: int
    """The one with the least time of those that are not placed."""


def _seen_crash(crash: Crash) -> Seen:
    """A crash in the form of an operation, as far as real time goes."""
    return Seen(
        Status(holder=None),
        crash.called_ns,
        crash.returned_ns,
        crash.clock,
        None,
        None,
        _NO_SHAPE,
    )


def _may_fit(record: Record | None, at_ms: int, generation: object) -> bool:
    """Whether an answer may be right by its generation alone, which is cheap to see."""
    if record is None or at_ms >= record.state_expires_at_ms:
        return generation is None or generation == 1
    return generation == record.generation or generation == record.generation + 1


def _as_of(record: Record | None, at_ms: int) -> Record | None:
    """The record as a store would see it that lets its clock go back."""
    if record is None or record.changed_at_ms <= at_ms:
        return record
    return replace(record, changed_at_ms=at_ms)


def _unchanged(done: Step, record: Record | None, at_ms: int, *, timeless: bool) -> bool:
    if done.record is record:
        return True
    # The record that a clock which went back was given is not the same object.
    return timeless and done.record == _as_of(record, at_ms)


def _by_clock(seen: Sequence[Seen], order: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i in order:
        found.setdefault(seen[i].clock, []).append(i)
    return found


class _Lost:
    """The lost operations of a workflow, and when each may have taken place.

    Of those that ask the same the one called first stands for all: whatever order has a later one
    has that one in its place. The same goes for claims with the same configuration of holders that
    nothing else is known of, for such a holder is never compared with anybody.
    """

    def __init__(self, seen: Sequence[Seen], in_time: Sequence[int], lost: Sequence[int]) -> None:
        self._seen = seen
        # By each of these times, a deadline that a lost claim set has come or has not.
        self._times = _sorted_unique(
            [*(seen[i].observed_at_ms for i in in_time), *(seen[i].earliest_ms for i in lost)]
        )
        self._claim_deadlines = _sorted_unique(seen[i].claim_expires_at_ms for i in in_time)
        self._state_deadlines = _sorted_unique(seen[i].state_expires_at_ms for i in in_time)
        mentions: dict[str | None, int] = defaultdict(int)
        for one in seen:
            mentions[one.request.holder] += 1
        classes: dict[object, list[int]] = {}
        for i in sorted(lost, key=lambda i: seen[i].called_ns):
            request = seen[i].request
            if isinstance(request, Status):
                continue  # changes nothing, and nobody knows what it was told
            kind: object = request
            if isinstance(request, Claim) and mentions[request.holder] == 1:
                kind = replace(request, holder="")
            alike = classes.setdefault((kind, seen[i].clock), [])
            # Who was called first may be placed first, but that says nothing where it is given
            # a later time all the same.
            if alike and self._earliest(i) < self._earliest(alike[-1]):
                alike = classes.setdefault((kind, seen[i].clock, i), [])
            alike.append(i)
        self._claims: list[list[int]] = []
        self._moves: dict[tuple[str, int], list[list[int]]] = {}
        for members in classes.values():
            request = seen[members[0]].request
            if isinstance(request, Transition | Abandon):
                key = (request.holder, request.generation)
                self._moves.setdefault(key, []).append(members)
            else:
                self._claims.append(members)

    def of(
        self,
        record: Record | None,
        until_ms: int,
        bounds: Mapping[str, int],
        placed: bytearray,
    ) -> Iterator[tuple[int, int]]:
        """Lost operations that may change a record, each with the times worth trying.

        Args:
            record: as it stands.
            until_ms: no step may be later, for what comes next is at this time.
            bounds: by clock, what must have been called by then.
            placed: nonzero where an operation is in the order already.
        """
        if record is not None and record.exists(until_ms):
            for members in self._moves.get((record.holder, record.generation), ()):
                i = self._first(members, bounds, placed)
                if i is not None:
                    # The sooner the better: later deadlines do not depend on it.
                    at_ms = max(record.changed_at_ms, self._earliest(i))
                    if at_ms <= until_ms:
                        yield i, at_ms
            if record.terminal or (record.claim_active(until_ms) and not record.may_be_retried):
                return
        for members in self._claims:
            i = self._first(members, bounds, placed)
            if i is not None:
                request = self._seen[i].request
                assert isinstance(request, Claim)
                for at_ms in self._times_of_claim(request, record, self._earliest(i), until_ms):
                    yield i, at_ms

    def _first(
        self, members: Sequence[int], bounds: Mapping[str, int], placed: bytearray
    ) -> int | None:
        for i in members:
            if not placed[i]:
                one = self._seen[i]
                return i if one.called_ns <= bounds.get(one.clock, _FOREVER_NS) else None
        return None

    def _earliest(self, i: int) -> int:
        earliest_ms = self._seen[i].earliest_ms
        return -_FOREVER_NS if earliest_ms is None else earliest_ms

    def _times_of_claim(
        self, request: Claim, record: Record | None, earliest_ms: int, until_ms: int
    ) -> list[int]:
        """Times at which a claim may have taken place, between the two that are given.

        Everything known of it later is that its deadlines are these (they stand in answers), or
        that one had not come yet by some time: so it is the time that makes them so, or the
        least that is possible, or the least at which that holds. That a deadline *had* come by
        some time favours the least, too.
        """
        claim_ms = request.claim_ttl_seconds * _MS_PER_SECOND
        state_ms = request.state_ttl_seconds * _MS_PER_SECOND
        # Before this it would have expired by now.
        from_ms = max(earliest_ms, until_ms - state_ms + 1)
        found = []
        if record is not None:
            from_ms = max(earliest_ms, record.changed_at_ms)
            found += [record.claim_expires_at_ms, record.state_expires_at_ms]
        found += [from_ms, until_ms]
        found += _between(self._claim_deadlines, from_ms, until_ms, claim_ms)
        found += _between(self._state_deadlines, from_ms, until_ms, state_ms)
        # The claim of a later generation ends with the record at the latest (WC-TIME-3), and of
        # two refusals only that end may be seen.
        found += _between(self._claim_deadlines, from_ms, until_ms, state_ms)
        found += _between(self._times, from_ms, until_ms, claim_ms - 1)
        found += _between(self._times, from_ms, until_ms, state_ms - 1)
        return [at_ms for at_ms in dict.fromkeys(found) if from_ms <= at_ms <= until_ms]


def _sorted_unique(values: Iterable[int | None]) -> list[int]:
    return sorted({value for value in values if value is not None})


def _between(values: Sequence[int], from_ms: int, until_ms: int, less_ms: int) -> list[int]:
    """The values, each less a span, that lie between two times."""
    first, last = (
        bisect_left(values, from_ms + less_ms),
        bisect_right(values, until_ms + less_ms),
    )
    return [value - less_ms for value in values[first:last]]


# -- The two clocks ---------------------------------------------------------------------

OFFSET_TOLERANCE_MS: Final = 50.0
"""Room for a clock that is coarse, or was set a little while the storm went on."""
OFFSET_DRIFT_PPM: Final = 500
"""How much faster one clock may run than the other: as far as clocks are disciplined."""
_SPAN_NS: Final = 1_000_000_000
"""Calls are put together by the second in which they were made."""
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class OffsetFault:
    """Two answers whose times no one offset between the two clocks explains (WC-TIME-1)."""

    early: Hashable
    """The call that was answered with a time too early beside that of ``late``."""
    late: Hashable
    off_by_ms: float
    """By how much, after all tolerances."""


@dataclass(slots=True)
class _Span:
    """Of the calls of one second, the bounds of how far the store's clock is ahead of ours."""

    least_ms: float
    least_by: Hashable
    most_ms: float
    most_by: Hashable


class Offsets:
    """Whether one constant offset between our clock and the store's explains every call.

    For each call it must put ``observed_at`` between the two ends. Order does not matter, and
    memory grows by the second, not by the call.

    Args:
        steps: when somebody moved the store's clock, as (begun, done) in nanoseconds of ours.
            Before and after need not agree, and calls that overlap a step are not looked at.
    """

    def __init__(self, steps: Iterable[tuple[int, int]] = ()) -> None:
        self._steps = sorted(steps)
        self._eras: dict[int, dict[int, _Span]] = {}
        self._ahead_ms: dict[tuple[int, int], float] = {}

    def add(self, who: Hashable, called_ns: int, returned_ns: int, observed_at_ms: int) -> None:
        """Take one call into account; ``who`` names it in a fault."""
        if self._ahead_ms:
            self._ahead_ms.clear()
        era = self._era(called_ns, returned_ns) if self._steps else 0
        if era is None:
            return
        # A whole millisecond m was read somewhere in [m, m + 1).
        least_ms = observed_at_ms - returned_ns / _NS_PER_MS
        most_ms = observed_at_ms + 1 - called_ns / _NS_PER_MS
        spans = self._eras.get(era)
        if spans is None:
            spans = self._eras[era] = {}
        second = called_ns // _SPAN_NS
        span = spans.get(second)
        if span is None:
            spans[second] = _Span(least_ms, who, most_ms, who)
            return
        if least_ms > span.least_ms:
            span.least_ms, span.least_by = least_ms, who
        if most_ms < span.most_ms:
            span.most_ms, span.most_by = most_ms, who

    def fault(self) -> OffsetFault | None:
        """The worst pair of calls that no offset explains, or None."""
        worst: OffsetFault | None = None
        for spans in self._eras.values():
            for one, other, apart in self._pairs(spans):
                off_by_ms = one.least_ms - other.most_ms - _tolerance_ms(apart)
                if off_by_ms > (0 if worst is None else worst.off_by_ms):
                    worst = OffsetFault(early=other.most_by, late=one.least_by, off_by_ms=off_by_ms)
        return worst

    def earliest_ms(self, called_ns: int, until_ns: int | None = None) -> int | None:
        """The least time by the store's clock at which a call may have taken place.

        None where nothing tells: no call was answered then, or the clock was just being moved.

        Args:
            called_ns: when it was made.
            until_ns: when it is too late for it to matter; a clock that is set back later bears on
                no time before. Never if None.
        """
        era = self._era(called_ns, called_ns)
        if era is None:
            return None
        earliest = [self._store_ms(era, called_ns)]
        for later, (begun_ns, _) in enumerate(self._steps[era:], start=era + 1):
            if until_ns is not None and begun_ns > until_ns:
                break
            # Set back, it may show a time before that of the call; from the step's beginning on.
            earliest.append(self._store_ms(later, begun_ns))
        known = [at_ms for at_ms in earliest if at_ms is not None]
        return min(known) if len(known) == len(earliest) else None

    def _store_ms(self, era: int, at_ns: int) -> int | None:
        """The least time that the store's clock may have shown at a time of ours, in an era."""
        if era not in self._eras:
            return None
        second = at_ns // _SPAN_NS
        ahead_ms = self._ahead_ms.get((era, second))
        if ahead_ms is None:
            ahead_ms = self._ahead_ms[era, second] = max(
                span.least_ms - _tolerance_ms(abs(second - other))
                for other, span in self._eras[era].items()
            )
        return floor(at_ns / _NS_PER_MS + ahead_ms)

    def _era(self, called_ns: int, returned_ns: int) -> int | None:
        era = 0
        for begun_ns, done_ns in self._steps:
            if returned_ns < begun_ns:
                break
            if called_ns <= done_ns:
                return None
            era += 1
        return era

    @staticmethod
    def _pairs(spans: Mapping[int, _Span]) -> Iterator[tuple[_Span, _Span, int]]:
        """For each span the others that may contradict it most, each with how far apart.

        The tolerance grows with the distance, so of all before (and of all after) the one counts
        whose least offset is the greatest when that growth is taken off.
        """
        for seconds in (sorted(spans), sorted(spans, reverse=True)):
            best: int | None = None
            for second in seconds:
                if best is None or spans[second].least_ms >= spans[best].least_ms - _drift_ms(
                    abs(second - best)
                ):
                    best = second
                yield spans[best], spans[second], abs(second - best)


def _drift_ms(seconds: int) -> float:
    return seconds * OFFSET_DRIFT_PPM / 1000


def _tolerance_ms(seconds: int) -> float:
    # Two calls of neighbouring seconds are up to two seconds apart.
    return OFFSET_TOLERANCE_MS + _drift_ms(seconds + 1)
