"""The proof by induction: every invariant proved, every seeded fault refuted, every row reached."""

from importlib.util import find_spec

import pytest
from tools import not_run

if find_spec("z3") is None:
    not_run("the proofs", "z3", "pip install z3-solver")

from faults import FAULTS, Fault
from induction import breach, decided_by, prove, trace
from safety import ALWAYS, INVARIANTS, NAMED, Invariant
from symbolic import MOVES_A_GENERATION, RULES, Evaluated

from checkpoint_model import CONTRACT_LIMITS, Record, step

# -- What is proved ---------------------------------------------------------------------


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
def test_every_invariant_is_proved(invariant: Invariant) -> None:
    """For all times, lifetimes, holders, keys and sensible limits."""
    proof = prove(invariant)
    assert proof.proved, f"{invariant.name} ({', '.join(invariant.rules)})\n{proof.counterexample}"


def test_the_contracts_limits_are_among_those_that_the_proof_is_for() -> None:
    """Sixteen generations of two moves each fit into 32 observations (WC-LIMIT-2)."""
    assert (CONTRACT_LIMITS.generations, CONTRACT_LIMITS.observations) == (16, 32)
    assert MOVES_A_GENERATION == 2
    assert CONTRACT_LIMITS.observations >= MOVES_A_GENERATION * CONTRACT_LIMITS.generations


def test_every_invariant_has_a_name_of_its_own_and_cites_rules() -> None:
    """A failure is told by the name, and judged by the rule."""
    assert len(NAMED) == len(INVARIANTS)
    assert all(rule.startswith("WC-") for each in INVARIANTS for rule in each.rules)
    assert all(each.rules for each in INVARIANTS)


# -- What is refuted --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "name"),
    [(fault, name) for fault in FAULTS for name in fault.breaks],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_fault_is_refuted(fault: type[Fault], name: str) -> None:
    """From nothing, requests lead the faulty machine to where the named invariant fails."""
    found = trace(breach(NAMED[name]), machine=fault)
    assert found is not None, f"nothing breaks {name} of {fault.__name__}"
    assert str(found).count("\n  clock ") == len(found.requests)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_no_fault_passes_the_induction(fault: type[Fault]) -> None:
    """The proof itself refuses it, by the invariant that the fault was made for."""
    proof = prove(NAMED[fault.breaks[0]], fault)
    assert not proof.proved
    assert "after" in proof.counterexample


def test_every_invariant_is_broken_by_a_fault() -> None:
    """An invariant that no fault breaks might say nothing."""
    assert {name for fault in FAULTS for name in fault.breaks} == set(NAMED)


def test_the_bound_on_observations_is_not_inductive_alone() -> None:
    """What makes the proof possible is the room left for the moves that may yet come."""
    room = NAMED["observations_leave_room_for_the_moves_left"]
    others = [invariant for invariant in ALWAYS if invariant is not room]
    assert not prove(NAMED["observations_are_bounded"], assuming=others).proved


# -- What is reached ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_every_row_is_reached_from_nothing_and_the_model_agrees(rule: str) -> None:
    """The shortest way that z3 finds to each row, replayed by the model step by step.

    So the proofs are not about a machine in which hardly anything can happen.
    """
    found = trace(decided_by(rule))
    assert found is not None
    assert found.steps[-1].rule == rule
    record: Record | None = None
    for (request, clock_ms), told in zip(found.requests, found.steps, strict=True):
        done = step(record, request, clock_ms, limits=found.limits)
        assert Evaluated.of(done) == told
        record = done.record
