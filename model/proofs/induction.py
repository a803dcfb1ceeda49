"""Safety of the checkpoint machine, proved by induction for all times and lifetimes.

An *always* invariant is a statement about a record. It is proved by showing that the state in
which nothing is remembered satisfies it, and that no request at any reading of the clock leads
from a record that satisfies all of them to one that does not. A *step* invariant is a statement
about what one request may do, and is proved of every step from a record that satisfies all
*always* invariants. An exploration of small worlds shows the same for those worlds; this shows
it for lifetimes, clocks, holders, keys and generations without bound.

What is and is not proved: the relation of :mod:`symbolic`, not Python. Tests hold the two equal
on many concrete steps, also from records that cannot arise.

Statements about *every* observation key are proved without quantifiers: about one key of which
nothing is known, assuming the statement of that key and of the request's own key.

``python model/proofs/induction.py`` proves everything, refutes every fault of :mod:`faults`, and
prints what it found, with exit code 1 where anything was not as it should be.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

import z3
from faults import FAULTS
from safety import ALWAYS, INVARIANTS, NAMED, Always, Invariant, Move, Steps, World
from symbolic import (
    MOVES_A_GENERATION,
    NO_EVIDENCE,
    RULE,
    Evaluated,
    FingerprintSort,
    Machine,
    SymbolicLimits,
    SymbolicRecord,
    SymbolicRequest,
    admitted,
    decode_record,
    same,
    symbols,
)

from checkpoint_model import (
    Abandon,
    Action,
    Claim,
    EvidenceType,
    Limits,
    Request,
    Stage,
    Status,
    Transition,
)

MachineType = Callable[[SymbolicLimits], Machine]

# -- Proving ----------------------------------------------------------------------------


def _all_of(
    invariants: Iterable[Always],
    record: SymbolicRecord,
    limits: SymbolicLimits,
    *keys: z3.ArithRef,
) -> z3.BoolRef:
    """These invariants of one record, and what they say of a key for each of these keys."""
    return z3.And(
        [
            _of_record(invariant, World(record=record, limits=limits, key=key))
            for invariant in invariants
            for key in keys
        ]
    )


def _of_record(invariant: Always, world: World) -> z3.BoolRef:
    return z3.Implies(world.record.remembered, invariant.holds(world))


def _of_step(invariant: Invariant, move: Move) -> z3.BoolRef:
    if isinstance(invariant, Steps):
        return invariant.holds(move)
    return _of_record(invariant, World(record=move.after, limits=move.machine.limits, key=move.key))


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What came of proving one invariant of one machine."""

    invariant: Invariant
    proved: bool
    """False also where z3 gave up."""
    seconds: float
    counterexample: str
    """The record before, the request and the record after; empty where z3 found none."""


def prove(
    invariant: Invariant, machine: MachineType = Machine, *, assuming: Iterable[Always] = ALWAYS
) -> Proof:
    """Prove one invariant of a machine, or show a record and a request that break it.

    ``assuming`` is the induction's hypothesis: that the record before the step satisfies these.
    It is sound where each of them is proved too.

    The record of such a counterexample satisfies these invariants, yet it may be one
    that cannot arise; :func:`trace` finds one that does.
    """
    started = time.perf_counter()
    limits = symbols(SymbolicLimits, "limits")
    nothing = replace(symbols(SymbolicRecord, "initial"), remembered=z3.BoolVal(False))
    before, request = symbols(SymbolicRecord, "before"), symbols(SymbolicRequest, "request")
    key, other, clock_ms = z3.Ints("key other clock_ms")
    relation = machine(limits)
    move = Move(
        machine=relation,
        before=before,
        request=request,
        clock_ms=clock_ms,
        done=relation.step(before, request, clock_ms),
        key=key,
        other=other,
    )
    base = z3.Solver()
    base.add(limits.sensible(), z3.Not(_all_of(ALWAYS, nothing, limits, key)))
    solver = z3.Solver()
    solver.add(
        limits.sensible(),
        admitted(request, limits),
        _all_of(assuming, before, limits, key, request.observation_key),
        z3.Not(_of_step(invariant, move)),
    )
    found = solver.check()
    return Proof(
        invariant=invariant,
        proved=base.check() == z3.unsat and found == z3.unsat,
        seconds=time.perf_counter() - started,
        counterexample=_show(solver, move) if found == z3.sat else "",
    )


# -- Refuting ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests with their clock readings that lead from nothing to what was asked for."""

    limits: Limits
    requests: tuple[tuple[Request, int], ...]
    """Each with the clock's reading, in milliseconds."""
    steps: tuple[Evaluated, ...]
    """What the machine said to each."""

    def __str__(self) -> str:
        """Every request with its time, the row that decided, and the record that it left."""
        lines = [f"  limits {self.limits.generations} generations"]
        for (request, clock_ms), done in zip(self.requests, self.steps, strict=True):
            lines += [
                f"  clock {clock_ms} ms  {_asked(request)}",
                f"    {done.rule} {done.outcome}",
                f"    record  {_told(done.record)}",
            ]
        return "\n".join(lines)


def trace(
    goal: Callable[[Move], z3.BoolRef], *, machine: MachineType = Machine, steps_max: int = 5
) -> Trace | None:
    """The shortest way from nothing to a step for which ``goal`` holds, if there is one so short.

    Readings of the clock and lifetimes are kept small, so that people can read it, and
    generations at most 4.
    """
    limits = symbols(SymbolicLimits, "limits")
    relation = machine(limits)
    key, other = z3.Ints("key other")
    record = replace(symbols(SymbolicRecord, "record0"), remembered=z3.BoolVal(False))
    solver = z3.Solver()
    solver.add(
        limits.sensible(),
        limits.generations_max <= 4,
        limits.observations_max == MOVES_A_GENERATION * limits.generations_max,
        other >= 0,
    )
    moves: list[Move] = []
    for number in range(1, steps_max + 1):
        request = symbols(SymbolicRequest, f"request{number}")
        clock_ms = z3.Int(f"clock{number}_ms")
        done = relation.step(record, request, clock_ms)
        after = symbols(SymbolicRecord, f"record{number}")
        solver.add(
            same(after, done.after),
            admitted(request, limits),
            request.state_ttl_seconds <= 10,
            _few(request.holder),
            _few(request.observation_key),
            z3.Or(
                request.evidence_fingerprint == FingerprintSort.no_fingerprint,
                _few(FingerprintSort.digest(request.evidence_fingerprint)),
            ),
            clock_ms >= 0,
            clock_ms <= 100_000,
        )
        move = Move(
            machine=relation,
            before=record,
            request=request,
            clock_ms=clock_ms,
            done=replace(done, after=after),
            key=key,
            other=other,
        )
        moves.append(move)
        solver.push()
        solver.add(goal(move))
        if solver.check() == z3.sat:
            return _read(solver, moves, limits)
        solver.pop()
        record = after
    return None


def _few(number: z3.ArithRef) -> z3.BoolRef:
    return z3.And(number >= 1, number <= 9)


def breach(invariant: Invariant) -> Callable[[Move], z3.BoolRef]:
    """The goal of a :func:`trace` that ends in breaking an invariant."""
    return lambda move: z3.Not(_of_step(invariant, move))


def decided_by(rule: str) -> Callable[[Move], z3.BoolRef]:
    """The goal of a :func:`trace` that ends in a decision row."""
    return lambda move: move.done.rule == RULE[rule]


def _read(solver: z3.Solver, moves: list[Move], limits: SymbolicLimits) -> Trace:
    model = solver.model()

    def number(term: z3.ArithRef) -> int:
        return int(model.eval(term, model_completion=True).as_long())

    return Trace(
        limits=Limits(
            generations=number(limits.generations_max),
            observations=number(limits.observations_max),
        ),
        requests=tuple((_request(model, move.request), number(move.clock_ms)) for move in moves),
        steps=tuple(
            Evaluated(
                rule=str(model.eval(move.done.rule, model_completion=True)),
                outcome=str(model.eval(move.done.outcome, model_completion=True)),
                observed_at_ms=number(move.done.now_ms),
                record=_record(model, move.after, moves),
            )
            for move in moves
        ),
    )


_NAMES: Final = {"holder": "holder-", "key": "key-", "fingerprint": "sha256:"}


def _name(kind: str, number: object) -> str:
    return f"{_NAMES[kind]}{number}"


def _record(
    model: z3.ModelRef, record: SymbolicRecord, moves: list[Move]
) -> Mapping[str, object] | None:
    """A record as the solver has it, with its observations under the keys of these moves."""

    def read(term: z3.ExprRef) -> z3.ExprRef:
        return model.eval(term, model_completion=True)

    keys = [term for move in moves for term in (move.request.observation_key, move.key)]
    return decode_record(
        [read(getattr(record, member.name)) for member in fields(SymbolicRecord)],
        {_name("key", read(key)): read(record.observations[read(key)]) for key in keys},
        _name,
    )


def _request(model: z3.ModelRef, request: SymbolicRequest) -> Request:
    def read(term: z3.ExprRef) -> z3.ExprRef:
        return model.eval(term, model_completion=True)

    holder = _name("holder", read(request.holder))
    action = Action(str(read(request.action)))
    if action is Action.CLAIM:
        return Claim(
            holder=holder,
            claim_ttl_seconds=read(request.claim_ttl_seconds).as_long(),
            state_ttl_seconds=read(request.state_ttl_seconds).as_long(),
            retry_failed=z3.is_true(read(request.retry_failed)),
        )
    if action is Action.STATUS:
        return Status(holder=holder)
    generation = read(request.generation).as_long()
    if action is Action.ABANDON:
        return Abandon(holder=holder, generation=generation)
    evidence = str(read(request.evidence_type))
    digest = read(request.evidence_fingerprint).children()
    return Transition(
        holder=holder,
        generation=generation,
        to_stage=Stage(str(read(request.to_stage))),
        observation_key=_name("key", read(request.observation_key)),
        evidence_type=None if evidence == NO_EVIDENCE else EvidenceType(evidence),
        evidence_fingerprint=_name("fingerprint", digest[0]) if digest else None,
    )


def _show(solver: z3.Solver, move: Move) -> str:
    model = solver.model()

    def read(term: z3.ExprRef) -> z3.ExprRef:
        return model.eval(term, model_completion=True)

    return "\n".join(
        [
            f"  before  {_told(_record(model, move.before, [move]))}",
            f"  clock {read(move.clock_ms)} ms  {_asked(_request(model, move.request))}",
            f"    {read(move.done.rule)} {read(move.done.outcome)}",
            f"  after   {_told(_record(model, move.after, [move]))}",
        ]
    )


def _asked(request: Request) -> str:
    members = (
        f"{member.name} {getattr(request, member.name)}"
        for member in fields(request)
        if getattr(request, member.name) is not None
    )
    return f"{request.action}  {', '.join(members)}"


def _told(record: Mapping[str, object] | None) -> str:
    if record is None:
        return "none"
    return ", ".join(f"{member} {value}" for member, value in record.items())


def report() -> Iterator[str]:
    """The lines that the command prints, as they are found."""
    for invariant in INVARIANTS:
        proof = prove(invariant)
        word = "proved" if proof.proved else "NOT PROVED"
        yield f"{word:10} {proof.seconds:5.2f} s  {invariant.name}  {' '.join(invariant.rules)}"
        if proof.counterexample:
            yield proof.counterexample
    for fault in FAULTS:
        yield f"{fault.__name__}: {fault.__doc__}"
        for name in fault.breaks:
            started = time.perf_counter()
            found = trace(breach(NAMED[name]), machine=fault)
            seconds = time.perf_counter() - started
            yield f"{'refuted' if found else 'NOT REFUTED':10} {seconds:5.2f} s  {name}"
            if found:
                yield str(found)


if __name__ == "__main__":
    failed = False
    for line in report():
        failed |= line.startswith("NOT ")
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    sys.exit(failed)
