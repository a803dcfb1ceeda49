"""The checkpoint machine as a relation between symbols, for z3 to reason about.

Rule 1: every decision row is written here by hand, from section 6 of the contract and not
from :mod:`checkpoint_model.machine`; only what is data there is taken from there: the words,
and the graph ``MOVES``.
Rule 2: nothing is bounded. Times, lifetimes, generations, holders, observation keys and the
two limits are integers of any size, and observations are a map from every key there is.
Rule 3: a seeded fault is a subclass of :class:`Machine` that overrides one method
(:mod:`faults`), so each decision that a fault could be made in is a method of its own.

How to read it beside the contract: each action has one method, which returns its decision
table as data, row by row in the same order; the first row whose ``when`` holds decides.
:class:`Evaluator` computes the relation for concrete values, which is how the tests hold it
equal to :func:`checkpoint_model.step`: what is proved here is proved of that function as
far as they agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

import z3

from checkpoint_model import (
    CONTRACT_LIMITS,
    MOVES,
    SETTLED,
    Abandon,
    Action,
    Claim,
    ErrorCode,
    EvidenceType,
    Limits,
    Record,
    Request,
    Stage,
    Step,
    Success,
    Transition,
    TransitionBody,
)

# -- Words ------------------------------------------------------------------------------


def _words(sort_name: str, words: Sequence[str]) -> tuple[z3.DatatypeSortRef, dict[str, Any]]:
    """A sort with exactly these members, and each member by its word."""
    sort, members = z3.EnumSort(sort_name, list(words))
    return sort, dict(zip(words, members, strict=True))


NO_EVIDENCE: Final = "none"
"""The word for an absent ``evidence_type``."""
RULES: Final = (
    *(f"WC-CLAIM-{n}" for n in range(1, 9)),
    *(f"WC-TRANS-{n}" for n in range(1, 9)),
    *(f"WC-ABANDON-{n}" for n in range(1, 7)),
    *(f"WC-STATUS-{n}" for n in range(1, 3)),
)
"""The ids of the 24 decision rows of section 6."""

StageSort, STAGE = _words("Stage", [str(stage) for stage in Stage])
ActionSort, ACTION = _words("Action", [str(action) for action in Action])
EvidenceSort, EVIDENCE = _words("Evidence", [NO_EVIDENCE, *(str(e) for e in EvidenceType)])
OutcomeSort, OUTCOME = _words("Outcome", [*(s.name for s in Success), *(e.name for e in ErrorCode)])
RuleSort, RULE = _words("Rule", RULES)

_fingerprint = z3.Datatype("Fingerprint")
_fingerprint.declare("no_fingerprint")
_fingerprint.declare("sha256", ("digest", z3.IntSort()))
FingerprintSort = _fingerprint.create()

_body = z3.Datatype("Body")
_body.declare("not_applied")
_body.declare(
    "applied",
    ("body_holder", z3.IntSort()),
    ("body_generation", z3.IntSort()),
    ("body_to_stage", StageSort),
    ("body_evidence", EvidenceSort),
    ("body_fingerprint", FingerprintSort),
)
BodySort = _body.create()
"""A transition body (section 6) under an observation key, or that there is none."""


def settled(stage: z3.DatatypeRef) -> z3.BoolRef:
    """Section 2: the stages that nothing leaves, by the model's graph."""
    return z3.Or([stage == STAGE[str(each)] for each in Stage if each in SETTLED])


def moves_left(stage: z3.DatatypeRef) -> z3.ArithRef:
    """How many moves the model's graph can still make from a stage: the longest way out."""

    def longest(from_stage: Stage) -> int:
        return max((1 + longest(to_stage) for to_stage in MOVES[from_stage]), default=0)

    left = z3.IntVal(0)
    for each in Stage:
        left = z3.If(stage == STAGE[str(each)], longest(each), left)
    return left


MOVES_A_GENERATION: Final = int(z3.simplify(moves_left(STAGE[str(Stage.CLAIMED)])).as_long())
"""WC-LIMIT-2: how often a generation can move, by the model's graph."""


# -- Records and requests ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SymbolicRecord:
    """The members of :class:`checkpoint_model.Record`, and whether there is one at all.

    Times are milliseconds, lifetimes seconds, holders and observation keys are numbers.
    """

    remembered: z3.BoolRef
    """False: nothing is stored, and the other members mean nothing."""
    stage: z3.DatatypeRef
    generation: z3.ArithRef
    holder: z3.ArithRef
    claim_expires_at_ms: z3.ArithRef
    state_expires_at_ms: z3.ArithRef
    changed_at_ms: z3.ArithRef
    claim_ttl_seconds: z3.ArithRef
    state_ttl_seconds: z3.ArithRef
    retry_failed: z3.BoolRef
    abandoned: z3.BoolRef
    evidence_type: z3.DatatypeRef
    evidence_fingerprint_present: z3.BoolRef
    observations: z3.ArrayRef
    """From every observation key to the body that it was applied with, if it was."""
    observation_count: z3.ArithRef
    """How many observations the record keeps (WC-LIMIT-2)."""


@dataclass(frozen=True, kw_only=True)
class SymbolicRequest:
    """A request of any action (section 3); members that its action lacks mean nothing."""

    action: z3.DatatypeRef
    holder: z3.ArithRef
    generation: z3.ArithRef
    to_stage: z3.DatatypeRef
    observation_key: z3.ArithRef
    evidence_type: z3.DatatypeRef
    evidence_fingerprint: z3.DatatypeRef
    claim_ttl_seconds: z3.ArithRef
    state_ttl_seconds: z3.ArithRef
    retry_failed: z3.BoolRef

    @property
    def body(self) -> z3.DatatypeRef:
        """What must be equal for a repeated observation key to be a replay (section 6)."""
        return BodySort.applied(
            self.holder,
            self.generation,
            self.to_stage,
            self.evidence_type,
            self.evidence_fingerprint,
        )


@dataclass(frozen=True, kw_only=True)
class SymbolicLimits:
    """The limits of WC-LIMIT-1 and WC-LIMIT-2, of any size that :meth:`sensible` admits."""

    generations_max: z3.ArithRef
    observations_max: z3.ArithRef

    def sensible(self) -> z3.BoolRef:
        """There is a generation, and room for what its moves record (16 and 32 are so)."""
        return z3.And(
            self.generations_max >= 1,
            self.observations_max >= MOVES_A_GENERATION * self.generations_max,
        )


_SORTS: Final[Mapping[str, z3.SortRef]] = {
    "remembered": z3.BoolSort(),
    "action": ActionSort,
    "stage": StageSort,
    "to_stage": StageSort,
    "evidence_type": EvidenceSort,
    "evidence_fingerprint": FingerprintSort,
    "evidence_fingerprint_present": z3.BoolSort(),
    "retry_failed": z3.BoolSort(),
    "abandoned": z3.BoolSort(),
    "observations": z3.ArraySort(z3.IntSort(), BodySort),
}
"""The sorts of the members that are no integers."""

_Symbols = TypeVar("_Symbols", SymbolicRecord, SymbolicRequest, SymbolicLimits)


def symbols(kind: type[_Symbols], prefix: str) -> _Symbols:
    """A record, request or limits about which nothing is known, its members named by a prefix."""
    return kind(
        **{
            member.name: z3.Const(f"{prefix}.{member.name}", _SORTS.get(member.name, z3.IntSort()))
            for member in fields(kind)
        }
    )


def same(one: SymbolicRecord, other: SymbolicRecord, *but: str) -> z3.BoolRef:
    """Whether two records agree in every member, apart from those named."""
    return z3.And(
        [
            getattr(one, member.name) == getattr(other, member.name)
            for member in fields(SymbolicRecord)
            if member.name not in but
        ]
    )


def admitted(request: SymbolicRequest, limits: SymbolicLimits) -> z3.BoolRef:
    """Section 3 without its upper bounds on lifetimes, which nothing here relies on."""
    is_ = {action: request.action == ACTION[str(action)] for action in Action}
    return z3.And(
        z3.Implies(
            is_[Action.CLAIM],
            z3.And(
                request.claim_ttl_seconds >= 1,
                request.claim_ttl_seconds < request.state_ttl_seconds,  # WC-IN-5
            ),
        ),
        z3.Implies(
            z3.Or(is_[Action.TRANSITION], is_[Action.ABANDON]),
            z3.And(request.generation >= 1, request.generation <= limits.generations_max),
        ),
        z3.Implies(
            is_[Action.TRANSITION],
            z3.And(
                request.to_stage != STAGE[str(Stage.CLAIMED)],
                z3.Implies(
                    request.evidence_type == EVIDENCE[NO_EVIDENCE],
                    request.evidence_fingerprint == FingerprintSort.no_fingerprint,
                ),
            ),
        ),
    )


# -- The contract's terms (section 2, WC-TIME-2), as its invariants use them --------------


def exists(record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
    """WC-TIME-2: at the deadline itself the record is gone."""
    return z3.And(record.remembered, now_ms < record.state_expires_at_ms)


def claim_active(record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
    """WC-TIME-2, and false when settled (section 7)."""
    return z3.And(z3.Not(settled(record.stage)), now_ms < record.claim_expires_at_ms)


def lapsed(record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
    """Section 2: in `claimed` or `uncertain`, and the claim is not active."""
    return z3.And(z3.Not(settled(record.stage)), z3.Not(claim_active(record, now_ms)))


def may_be_retried(record: SymbolicRecord) -> z3.BoolRef:
    """`failed` in a record whose `retry_failed` is true."""
    return z3.And(record.stage == STAGE[str(Stage.FAILED)], record.retry_failed)


def terminal(record: SymbolicRecord) -> z3.BoolRef:
    """Section 2: settled, except what may be retried."""
    return z3.And(settled(record.stage), z3.Not(may_be_retried(record)))


def held_by(record: SymbolicRecord, caller: z3.ArithRef, now_ms: z3.ArithRef) -> z3.BoolRef:
    """Section 7, `held_by_caller`."""
    return z3.And(caller == record.holder, claim_active(record, now_ms))


def permitted(
    from_stage: z3.DatatypeRef, to_stage: z3.DatatypeRef, evidence_type: z3.DatatypeRef
) -> z3.BoolRef:
    """The graph with the evidence that each move needs, unrolled from the model's ``MOVES``."""
    return z3.Or(
        [
            z3.And(
                from_stage == STAGE[str(source)],
                to_stage == STAGE[str(target)],
                evidence_type == EVIDENCE[str(evidence)],
            )
            for source, targets in MOVES.items()
            for target, needed in targets.items()
            for evidence in (needed or {NO_EVIDENCE})
        ]
    )


def earlier_of(one: z3.ArithRef, other: z3.ArithRef) -> z3.ArithRef:
    """The lesser of two times."""
    return z3.If(one <= other, one, other)


# -- The machine ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a decision table: the first whose ``when`` holds decides."""

    rule: str
    when: z3.BoolRef
    outcome: z3.DatatypeRef
    after: SymbolicRecord | None = None
    """The record that a row marked ✎ leaves; None where the row changes nothing."""


@dataclass(frozen=True, kw_only=True)
class SymbolicStep:
    """What one request did: the record after it, the outcome, and the row that decided."""

    after: SymbolicRecord
    outcome: z3.DatatypeRef
    rule: z3.DatatypeRef
    now_ms: z3.ArithRef
    """The step's time (WC-TIME-1, WC-TIME-4)."""


class Machine:
    """The machine of section 6. Seeded faults override one of its methods each."""

    def __init__(self, limits: SymbolicLimits) -> None:
        """Take the limits, which may be symbols."""
        self.limits = limits

    def now_ms(self, record: SymbolicRecord, clock_ms: z3.ArithRef) -> z3.ArithRef:
        """WC-TIME-4: never earlier than the last change."""
        return z3.If(
            z3.And(record.remembered, clock_ms < record.changed_at_ms),
            record.changed_at_ms,
            clock_ms,
        )

    def exists(self, record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
        """WC-TIME-2, of the record."""
        return exists(record, now_ms)

    def claim_active(self, record: SymbolicRecord, now_ms: z3.ArithRef) -> z3.BoolRef:
        """WC-TIME-2, of the claim."""
        return claim_active(record, now_ms)

    def terminal(self, record: SymbolicRecord) -> z3.BoolRef:
        """Section 2."""
        return terminal(record)

    def claim_deadline_ms(
        self, now_ms: z3.ArithRef, claim_ttl_seconds: z3.ArithRef, state_expires_at_ms: z3.ArithRef
    ) -> z3.ArithRef:
        """WC-TIME-3: where a new generation's claim ends."""
        return earlier_of(now_ms + claim_ttl_seconds * 1000, state_expires_at_ms)

    def permitted(
        self, from_stage: z3.DatatypeRef, to_stage: z3.DatatypeRef, evidence_type: z3.DatatypeRef
    ) -> z3.BoolRef:
        """The graph with the evidence that each move needs (WC-GRAPH-1 … WC-GRAPH-3)."""
        return permitted(from_stage, to_stage, evidence_type)

    def new_record(self, request: SymbolicRequest, now_ms: z3.ArithRef) -> SymbolicRecord:
        """What WC-CLAIM-1 makes."""
        state_expires_at_ms = now_ms + request.state_ttl_seconds * 1000
        return SymbolicRecord(
            remembered=z3.BoolVal(True),
            stage=STAGE[str(Stage.CLAIMED)],
            generation=z3.IntVal(1),
            holder=request.holder,
            claim_expires_at_ms=self.claim_deadline_ms(
                now_ms, request.claim_ttl_seconds, state_expires_at_ms
            ),
            state_expires_at_ms=state_expires_at_ms,
            changed_at_ms=now_ms,
            claim_ttl_seconds=request.claim_ttl_seconds,
            state_ttl_seconds=request.state_ttl_seconds,
            retry_failed=request.retry_failed,
            abandoned=z3.BoolVal(False),
            evidence_type=EVIDENCE[NO_EVIDENCE],
            evidence_fingerprint_present=z3.BoolVal(False),
            observations=z3.K(z3.IntSort(), BodySort.not_applied),
            observation_count=z3.IntVal(0),
        )

    def next_generation(
        self, record: SymbolicRecord, request: SymbolicRequest, stage: Stage, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        """What WC-CLAIM-7 and WC-CLAIM-8 make; without evidence (WC-VIEW-4)."""
        return replace(
            record,
            stage=STAGE[str(stage)],
            generation=record.generation + 1,
            holder=request.holder,
            claim_expires_at_ms=self.claim_deadline_ms(
                now_ms, record.claim_ttl_seconds, record.state_expires_at_ms
            ),
            changed_at_ms=now_ms,
            abandoned=z3.BoolVal(False),
            evidence_type=EVIDENCE[NO_EVIDENCE],
            evidence_fingerprint_present=z3.BoolVal(False),
        )

    def moved(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> SymbolicRecord:
        """What WC-TRANS-8 makes."""
        return replace(
            record,
            stage=request.to_stage,
            claim_expires_at_ms=z3.If(
                settled(request.to_stage), now_ms, record.claim_expires_at_ms
            ),
            changed_at_ms=now_ms,
            evidence_type=request.evidence_type,
            evidence_fingerprint_present=(
                request.evidence_fingerprint != FingerprintSort.no_fingerprint
            ),
            observations=z3.Store(record.observations, request.observation_key, request.body),
            observation_count=record.observation_count + 1,
        )

    def claim(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> tuple[Row, ...]:
        """The decision table of `claim`."""
        active = self.claim_active(record, now_ms)
        return (
            Row(
                rule="WC-CLAIM-1",
                when=z3.Not(self.exists(record, now_ms)),
                outcome=OUTCOME["ACQUIRED"],
                after=self.new_record(request, now_ms),
            ),
            Row(
                rule="WC-CLAIM-2",
                when=self.terminal(record),
                outcome=OUTCOME["CHECKPOINT_TERMINAL"],
            ),
            Row(
                rule="WC-CLAIM-3",
                when=z3.Or(
                    request.claim_ttl_seconds != record.claim_ttl_seconds,
                    request.state_ttl_seconds != record.state_ttl_seconds,
                    request.retry_failed != record.retry_failed,
                ),
                outcome=OUTCOME["CONFIGURATION_CONFLICT"],
            ),
            Row(
                rule="WC-CLAIM-4",
                when=z3.And(active, request.holder == record.holder),
                outcome=OUTCOME["REUSED"],
            ),
            Row(
                rule="WC-CLAIM-5",
                when=z3.And(active, request.holder != record.holder),
                outcome=OUTCOME["CHECKPOINT_NOT_HELD"],
            ),
            Row(
                rule="WC-CLAIM-6",
                # The contract says "is 16". Of every record that can arise `>=` says the same
                # (`generations_are_bounded`); to one of generation 17, `==` would give an 18th.
                when=record.generation >= self.limits.generations_max,
                outcome=OUTCOME["CHECKPOINT_LIMIT_REACHED"],
            ),
            Row(
                rule="WC-CLAIM-7",
                when=record.stage == STAGE[str(Stage.FAILED)],
                outcome=OUTCOME["ACQUIRED"],
                after=self.next_generation(record, request, Stage.CLAIMED, now_ms),
            ),
            Row(
                rule="WC-CLAIM-8",
                when=lapsed(record, now_ms),
                outcome=OUTCOME["RECOVERED"],
                after=self.next_generation(record, request, Stage.UNCERTAIN, now_ms),
            ),
        )

    def transition(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> tuple[Row, ...]:
        """The decision table of `transition`."""
        applied = record.observations[request.observation_key]
        return (
            Row(
                rule="WC-TRANS-1",
                when=z3.Not(self.exists(record, now_ms)),
                outcome=OUTCOME["CHECKPOINT_NOT_FOUND"],
            ),
            Row(
                rule="WC-TRANS-2",
                when=applied == request.body,
                outcome=OUTCOME["OBSERVATION_REPLAYED"],
            ),
            Row(
                rule="WC-TRANS-3",
                when=z3.And(applied != BodySort.not_applied, applied != request.body),
                outcome=OUTCOME["OBSERVATION_CONFLICT"],
            ),
            Row(
                rule="WC-TRANS-4",
                when=request.generation != record.generation,
                outcome=OUTCOME["STALE_GENERATION"],
            ),
            Row(
                rule="WC-TRANS-5",
                when=self.terminal(record),
                outcome=OUTCOME["CHECKPOINT_TERMINAL"],
            ),
            Row(
                rule="WC-TRANS-6",
                when=z3.Or(
                    request.holder != record.holder, z3.Not(self.claim_active(record, now_ms))
                ),
                outcome=OUTCOME["CHECKPOINT_NOT_HELD"],
            ),
            Row(
                rule="WC-TRANS-7",
                when=z3.Not(self.permitted(record.stage, request.to_stage, request.evidence_type)),
                outcome=OUTCOME["INVALID_TRANSITION"],
            ),
            Row(
                rule="WC-TRANS-8",
                when=z3.BoolVal(True),
                outcome=OUTCOME["TRANSITIONED"],
                after=self.moved(record, request, now_ms),
            ),
        )

    def abandon(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> tuple[Row, ...]:
        """The decision table of `abandon`."""
        return (
            Row(
                rule="WC-ABANDON-1",
                when=z3.Not(self.exists(record, now_ms)),
                outcome=OUTCOME["CHECKPOINT_NOT_FOUND"],
            ),
            Row(
                rule="WC-ABANDON-2",
                when=request.generation != record.generation,
                outcome=OUTCOME["STALE_GENERATION"],
            ),
            Row(
                rule="WC-ABANDON-3",
                when=self.terminal(record),
                outcome=OUTCOME["CHECKPOINT_TERMINAL"],
            ),
            Row(
                rule="WC-ABANDON-4",
                # That an abandoned record is lapsed need not be asked: it is proved
                # (`abandoned_means_lapsed`).
                when=z3.And(record.abandoned, request.holder == record.holder),
                outcome=OUTCOME["ABANDONED"],
            ),
            Row(
                rule="WC-ABANDON-5",
                when=z3.Or(
                    request.holder != record.holder, z3.Not(self.claim_active(record, now_ms))
                ),
                outcome=OUTCOME["CHECKPOINT_NOT_HELD"],
            ),
            Row(
                rule="WC-ABANDON-6",
                when=z3.BoolVal(True),
                outcome=OUTCOME["ABANDONED"],
                after=replace(
                    record,
                    claim_expires_at_ms=now_ms,
                    changed_at_ms=now_ms,
                    abandoned=z3.BoolVal(True),
                ),
            ),
        )

    def status(self, record: SymbolicRecord, now_ms: z3.ArithRef) -> tuple[Row, ...]:
        """The decision table of `status`."""
        return (
            Row(
                rule="WC-STATUS-1",
                when=z3.Not(self.exists(record, now_ms)),
                outcome=OUTCOME["CHECKPOINT_NOT_FOUND"],
            ),
            Row(rule="WC-STATUS-2", when=z3.BoolVal(True), outcome=OUTCOME["REPORTED"]),
        )

    def tables(
        self, record: SymbolicRecord, request: SymbolicRequest, now_ms: z3.ArithRef
    ) -> dict[Action, tuple[Row, ...]]:
        """The four decision tables of section 6."""
        return {
            Action.CLAIM: self.claim(record, request, now_ms),
            Action.TRANSITION: self.transition(record, request, now_ms),
            Action.ABANDON: self.abandon(record, request, now_ms),
            Action.STATUS: self.status(record, now_ms),
        }

    def step(
        self, record: SymbolicRecord, request: SymbolicRequest, clock_ms: z3.ArithRef
    ) -> SymbolicStep:
        """One request, decided by the first row that applies in the table of its action.

        Where no row applied, the last one would be taken; that this never happens is an
        obligation of its own (``every_request_has_a_row``).
        """
        now_ms = self.now_ms(record, clock_ms)
        rows = [
            replace(row, when=z3.And(request.action == ACTION[str(action)], row.when))
            for action, table in self.tables(record, request, now_ms).items()
            for row in (*table[:-1], replace(table[-1], when=z3.BoolVal(True)))
        ]
        rule, outcome = RULE[rows[-1].rule], rows[-1].outcome
        for row in reversed(rows[:-1]):
            rule = z3.If(row.when, RULE[row.rule], rule)
            outcome = z3.If(row.when, row.outcome, outcome)
        after = record
        for row in rows:
            if row.after is not None:
                after = _either(rule == RULE[row.rule], row.after, after)
        return SymbolicStep(after=after, outcome=outcome, rule=rule, now_ms=now_ms)


def _either(when: z3.BoolRef, then: SymbolicRecord, other: SymbolicRecord) -> SymbolicRecord:
    return SymbolicRecord(
        **{
            member.name: (
                getattr(other, member.name)
                if getattr(then, member.name) is getattr(other, member.name)
                else z3.If(when, getattr(then, member.name), getattr(other, member.name))
            )
            for member in fields(SymbolicRecord)
        }
    )


# -- Between symbols and the model's own values -----------------------------------------


class Numbering:
    """Gives each holder, observation key or fingerprint a number, and back."""

    def __init__(self) -> None:
        """Start with nothing numbered."""
        self._numbers: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The number of a name, the same each time."""
        return self._numbers.setdefault(name, len(self._numbers))

    def names(self) -> list[str]:
        """Every name so far, each at its number."""
        return list(self._numbers)


class Evaluator:
    """Computes one step of a symbolic machine for concrete values, by z3's own simplifier.

    The relation is built once, about symbols; :meth:`step` puts values in their place.
    """

    def __init__(self, machine: Callable[[SymbolicLimits], Machine] = Machine) -> None:
        """Build the relation of a machine."""
        self._record = symbols(SymbolicRecord, "record")
        self._request = symbols(SymbolicRequest, "request")
        self._limits = symbols(SymbolicLimits, "limits")
        self._clock_ms = z3.Int("clock_ms")
        done = machine(self._limits).step(self._record, self._request, self._clock_ms)
        self._key = z3.Int("key")
        members = [getattr(done.after, member.name) for member in fields(SymbolicRecord)]
        members[_OBSERVATIONS] = done.after.observations[self._key]
        # One term, so that one call puts every value in its place.
        terms = [done.rule, done.outcome, done.now_ms, *members]
        self._answer = z3.Function("answer", *(term.sort() for term in terms), z3.BoolSort())(
            *terms
        )

    def step(
        self,
        record: Record | None,
        request: Request,
        clock_ms: int,
        *,
        limits: Limits = CONTRACT_LIMITS,
    ) -> "Evaluated":
        """What the relation says of these values, told in the model's own words."""
        numbers = Numbering()
        keys = {key for key, _ in record.observations} if record is not None else set()
        if isinstance(request, Transition):
            keys.add(request.observation_key)
        values = [
            *_pairs(self._record, _encode_record(record, numbers)),
            *_pairs(self._request, _encode_request(request, numbers)),
            (self._limits.generations_max, z3.IntVal(limits.generations)),
            (self._limits.observations_max, z3.IntVal(limits.observations)),
            (self._clock_ms, z3.IntVal(clock_ms)),
        ]
        answer = z3.substitute(self._answer, *values)
        # A key that nobody mentioned stands for all the others.
        asked = {key: z3.IntVal(numbers.of(key)) for key in sorted(keys)} | {"": z3.IntVal(-1)}
        told = {
            key: z3.simplify(z3.substitute(answer, (self._key, number))).children()
            for key, number in asked.items()
        }
        rule, outcome, now_ms, *members = told[""]
        observations = {key: terms[3 + _OBSERVATIONS] for key, terms in told.items()}
        names = numbers.names()
        return Evaluated(
            rule=str(rule),
            outcome=str(outcome),
            observed_at_ms=now_ms.as_long(),
            record=decode_record(members, observations, lambda _, number: names[number]),
        )


_OBSERVATIONS: Final = [member.name for member in fields(SymbolicRecord)].index("observations")


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A step, told so that a step of the model and one of the relation can be compared.

    Of the observations a relation knows the map and the count, not the order.
    """

    rule: str
    outcome: str
    observed_at_ms: int
    record: Mapping[str, object] | None

    @classmethod
    def of(cls, done: Step) -> "Evaluated":
        """A step of the model, in these words."""
        record: dict[str, object] | None = None
        if done.record is not None:
            record = {
                member.name: getattr(done.record, member.name)
                for member in fields(Record)
                if member.name not in ("holder", "observations")
            }
            record["holder"] = done.record.holder
            # Where a key is there twice, which cannot arise, the first one counts.
            record["observations"] = dict(reversed(done.record.observations))
            record["observation_count"] = len(done.record.observations)
        return cls(
            rule=done.rule,
            outcome=done.outcome.name,
            observed_at_ms=done.observed_at_ms,
            record=record,
        )


def _pairs(
    of: SymbolicRecord | SymbolicRequest, values: Mapping[str, z3.ExprRef]
) -> list[tuple[z3.ExprRef, z3.ExprRef]]:
    return [(getattr(of, name), value) for name, value in values.items()]


def _encode_record(record: Record | None, numbers: Numbering) -> dict[str, z3.ExprRef]:
    if record is None:
        return {"remembered": z3.BoolVal(False)}
    observations = z3.K(z3.IntSort(), BodySort.not_applied)
    for key, body in reversed(record.observations):
        observations = z3.Store(observations, numbers.of(key), _encode_body(body, numbers))
    return {
        "remembered": z3.BoolVal(True),
        "stage": STAGE[str(record.stage)],
        "generation": z3.IntVal(record.generation),
        "holder": z3.IntVal(numbers.of(record.holder)),
        "claim_expires_at_ms": z3.IntVal(record.claim_expires_at_ms),
        "state_expires_at_ms": z3.IntVal(record.state_expires_at_ms),
        "changed_at_ms": z3.IntVal(record.changed_at_ms),
        "claim_ttl_seconds": z3.IntVal(record.claim_ttl_seconds),
        "state_ttl_seconds": z3.IntVal(record.state_ttl_seconds),
        "retry_failed": z3.BoolVal(record.retry_failed),
        "abandoned": z3.BoolVal(record.abandoned),
        "evidence_type": EVIDENCE[str(record.evidence_type or NO_EVIDENCE)],
        "evidence_fingerprint_present": z3.BoolVal(record.evidence_fingerprint_present),
        "observations": observations,
        "observation_count": z3.IntVal(len(record.observations)),
    }


def _encode_body(body: TransitionBody, numbers: Numbering) -> z3.DatatypeRef:
    holder, generation, to_stage, evidence_type, evidence_fingerprint = body
    return BodySort.applied(
        numbers.of(holder),
        generation,
        STAGE[str(to_stage)],
        EVIDENCE[str(evidence_type or NO_EVIDENCE)],
        _encode_fingerprint(evidence_fingerprint, numbers),
    )


def _encode_fingerprint(fingerprint: str | None, numbers: Numbering) -> z3.DatatypeRef:
    if fingerprint is None:
        return FingerprintSort.no_fingerprint
    return FingerprintSort.sha256(numbers.of(fingerprint))


def _encode_request(request: Request, numbers: Numbering) -> dict[str, z3.ExprRef]:
    members: dict[str, z3.ExprRef] = {"action": ACTION[str(request.action)]}
    if request.holder is not None:
        members["holder"] = z3.IntVal(numbers.of(request.holder))
    if isinstance(request, Claim):
        members["claim_ttl_seconds"] = z3.IntVal(request.claim_ttl_seconds)
        members["state_ttl_seconds"] = z3.IntVal(request.state_ttl_seconds)
        members["retry_failed"] = z3.BoolVal(request.retry_failed)
    if isinstance(request, Transition | Abandon):
        members["generation"] = z3.IntVal(request.generation)
    if isinstance(request, Transition):
        members["to_stage"] = STAGE[str(request.to_stage)]
        members["observation_key"] = z3.IntVal(numbers.of(request.observation_key))
        members["evidence_type"] = EVIDENCE[str(request.evidence_type or NO_EVIDENCE)]
        members["evidence_fingerprint"] = _encode_fingerprint(request.evidence_fingerprint, numbers)
    return members


Naming = Callable[[str, int], str]
"""From ``holder`` or ``fingerprint`` and its number to its name."""


def decode_record(
    members: Sequence[z3.ExprRef], observations: Mapping[str, z3.ExprRef], name: Naming
) -> Mapping[str, object] | None:
    """A record of z3's values in the model's own words, as :class:`Evaluated` has it.

    Args:
        members: the values, in the order of :class:`SymbolicRecord`; that of ``observations``
            is not looked at.
        observations: the body under each observation key that matters.
        name: how to call what has a number.
    """
    values = dict(zip((f.name for f in fields(SymbolicRecord)), members, strict=True))
    if not _decode(values.pop("remembered")):
        return None
    del values["observations"]
    record = {member: _decode(value) for member, value in values.items()}
    record["holder"] = name("holder", record["holder"])
    record["observations"] = {
        key: _decode_body(body, name)
        for key, body in observations.items()
        if not body.decl().eq(BodySort.not_applied.decl())
    }
    return record


def _decode(value: z3.ExprRef) -> Any:  # of whichever sort the member has
    if z3.is_int_value(value):
        return value.as_long()
    if z3.is_true(value) or z3.is_false(value):
        return z3.is_true(value)
    return None if str(value) == NO_EVIDENCE else str(value)


def _decode_body(body: z3.DatatypeRef, name: Naming) -> tuple[object, ...]:
    holder, generation, to_stage, evidence_type, fingerprint = body.children()
    digest = fingerprint.children()
    return (
        name("holder", holder.as_long()),
        _decode(generation),
        _decode(to_stage),
        _decode(evidence_type),
        name("fingerprint", digest[0].as_long()) if digest else None,
    )
