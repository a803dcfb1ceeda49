"""The verdict is never vacuous, and the line counts what was not done."""

from dataclasses import replace
from datetime import date

import pytest

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.client import Address
from checkpoint_conformance.deployment import deployed
from checkpoint_conformance.faults import Durability, FaultAccess, Kind
from checkpoint_conformance.rules import Access, Binding, RuleClass, rules
from checkpoint_conformance.run import ExpectedFailure, Target
from checkpoint_conformance.session import fresh_identity
from checkpoint_conformance.tally import Failure, Sent, Tally
from checkpoint_conformance.targets import Description
from checkpoint_conformance.verdict import EXIT_CODES, Status, Verdict, judge

HERE = Address.parse("http://127.0.0.1:1")
BARE = Target(address=HERE)
FULL = Target(address=HERE, controls=HERE, store_url="unix:///x")
HARMED = FaultAccess(
    kinds=tuple(Kind),
    missing={},
    durability=Durability.CHANGE,
    starts=True,
    apart=True,
    deploy=lambda: deployed(Description(url=HERE.url)),
)
EVERYTHING = replace(FULL, mcp=HERE, classes=frozenset(RuleClass), fault_access=HARMED)


def enough(target: Target) -> Tally:
    """A tally in which every rule that is reachable was exercised to its floor."""
    tally = Tally(requests=1000)
    for tally.binding in Binding if target.mcp else (Binding.HTTP,):
        for rule in rules().values():
            if rule.floor is None or tally.binding not in rule.bindings:
                continue
            needs = {
                Access.CONTROLS: target.controls,
                Access.STORE: target.store_url,
                Access.FAULTS: target.fault_access,
            }
            if needs.get(rule.access, True) and rule.rule_class in target.claimed_classes:
                tally.hit(*[rule.id] * rule.floor)
    tally.binding = Binding.HTTP
    return tally


def failing(*rule_ids: str, binding: Binding = Binding.HTTP) -> Failure:
    """A failure of these rules."""
    fault = Fault(rules=rule_ids, what="w", expected="e", got="g")
    return Failure(
        check="c",
        fault=fault,
        sequence=(),
        got=None,
        expected=None,
        identity=fresh_identity(),
        binding=binding,
    )


@pytest.mark.parametrize("target", [BARE, FULL, EVERYTHING], ids=["bare", "full", "everything"])
def test_all_floors_reached_is_a_pass(target: Target) -> None:
    """And every status that is not obvious has a reason."""
    judged = judge(enough(target), target)
    assert (judged.verdict, judged.gaps) == (Verdict.PASS, ())
    for status in judged.rules.values():
        assert bool(status.reason) is (status.status not in (Status.PASSED, Status.FAILED))
    passed = sum(status.status is Status.PASSED for status in judged.rules.values())
    assert judged.line.startswith(f"PASS: {passed} of 92 rules passed")
    total = sum(int(word) for word in judged.line.split() if word.isdigit())
    assert total == 92 + 92, "the parts of the line add up to all rules"


def test_an_empty_run_is_incomplete() -> None:
    """Nothing exercised is nothing shown."""
    judged = judge(Tally(), BARE)
    assert judged.verdict is Verdict.INCOMPLETE
    assert "rules exercised too little" in judged.gaps[0]


@pytest.mark.parametrize("rule_id", sorted(i for i, rule in rules().items() if rule.floor))
def test_one_hit_less_than_the_floor_is_incomplete(rule_id: str) -> None:
    """For every rule that has a floor."""
    tally = enough(EVERYTHING)
    tally.hits[rule_id] -= 1
    for hits in tally.hits_over.values():
        hits[rule_id] -= 1
    judged = judge(tally, EVERYTHING)
    assert judged.verdict is Verdict.INCOMPLETE
    status = judged.rules[rule_id]
    assert (status.status, status.counts_as_gap) == (Status.NOT_RUN, True)
    assert rule_id in judged.gaps[0]


def test_a_failure_is_a_fail_whatever_else_was_reached() -> None:
    """Every rule that the fault names is failed, even with hits."""
    tally = enough(FULL)
    tally.fail(failing("WC-CLAIM-4", "WC-TIME-3"))
    judged = judge(tally, FULL)
    assert judged.verdict is Verdict.FAIL
    assert judged.line.startswith("FAIL: 2 rules broken; ")
    failed = {i for i, status in judged.rules.items() if status.status is Status.FAILED}
    assert failed == {"WC-CLAIM-4", "WC-TIME-3"}


def test_a_rule_that_failed_at_once_is_failed() -> None:
    """Not one hit, and nothing but the failure: neither could it not run, nor was it too little."""
    tally = enough(FULL)
    tally.hits["WC-CLAIM-4"] = 0
    tally.fail(failing("WC-CLAIM-4"))
    assert judge(tally, FULL).rules["WC-CLAIM-4"].status is Status.FAILED


def test_what_was_left_out_makes_a_run_incomplete() -> None:
    """Whatever else it reached."""
    tally = enough(FULL)
    tally.leave_out("a sequence of the check «walk» lost its answers")
    judged = judge(tally, FULL)
    assert judged.verdict is Verdict.INCOMPLETE
    assert judged.gaps == ("a sequence of the check «walk» lost its answers",)


def test_what_needs_more_access_is_counted_and_not_a_gap() -> None:
    """Unless everything is required."""
    tally = enough(BARE)
    judged = judge(tally, BARE)
    assert judged.rules["WC-ERR-7"].reason == "needs --controls"
    assert judged.rules["WC-PRIV-3"].reason == "needs --store"
    assert judged.rules["WC-MCP-1"].status is Status.NOT_APPLICABLE
    assert "3 not run (needs --controls)" in judged.line
    assert judge(tally, BARE, require_all=True).verdict is Verdict.INCOMPLETE


def test_lost_answers_make_a_run_incomplete() -> None:
    """One in a hundred is a hiccup; more, and the run says too little."""
    tally = enough(FULL)
    for _ in range(10):
        tally.lose("no complete answer in time")
    assert judge(tally, FULL).verdict is Verdict.PASS
    tally.lose("no complete answer in time")
    judged = judge(tally, FULL)
    assert judged.verdict is Verdict.INCOMPLETE
    assert judged.gaps == (
        "11 of 1000 requests were not answered: no complete answer in time (11 times)",
    )


def test_an_interrupted_run_is_incomplete() -> None:
    """However much it had seen."""
    judged = judge(enough(FULL), FULL, interrupted="interrupted before the end")
    assert (judged.verdict, judged.gaps) == (
        Verdict.INCOMPLETE,
        ("interrupted before the end",),
    )


def test_the_shortest_failure_of_a_rule_is_kept() -> None:
    """Whichever came first."""
    sent = Sent(method="POST", path="/", headers=(), body=b"{}", answered="200")
    short = failing("WC-CLAIM-4")
    long = replace(short, sequence=(sent, sent))
    for order in ((short, long), (long, short)):
        tally = Tally()
        for failure in order:
            tally.fail(failure)
        assert tally.failures["WC-CLAIM-4"] is short


def test_exit_codes_are_the_design_s() -> None:
    """0 conforms, 1 does not, 3 incomplete."""
    assert EXIT_CODES == {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCOMPLETE: 3}


def test_classes_that_are_not_claimed_do_not_apply() -> None:
    """Controls are claimed by giving them."""
    for target, applies in ((BARE, False), (FULL, True)):
        statuses = judge(enough(target), target).rules.values()
        of_controls = [s for s in statuses if s.rule.rule_class is RuleClass.CONTROLS]
        assert all((s.status is Status.PASSED) is applies for s in of_controls)


def expecting(*entries: ExpectedFailure) -> Target:
    """The full target with expected failures."""
    return replace(FULL, expected_failures=entries)


KNOWN = ExpectedFailure(rule="WC-CLAIM-4", reason="known", expires=date(2027, 1, 31))


def test_an_expected_failure_passes_and_is_counted() -> None:
    """With what else the same fault names."""
    tally = enough(FULL)
    tally.fail(failing("WC-CLAIM-4", "WC-TIME-3"))
    judged = judge(tally, expecting(KNOWN), day=date(2027, 1, 31))
    assert judged.verdict is Verdict.PASS
    assert "2 failed as expected" in judged.line
    assert judged.rules["WC-TIME-3"].status is Status.EXPECTED_FAILURE
    assert judged.rules["WC-CLAIM-4"].reason == "expected: known"


def test_another_failure_is_not_excused_by_it() -> None:
    """Nor is the rule itself, where another fault names it."""
    tally = enough(FULL)
    tally.fail(failing("WC-CLAIM-4"))
    tally.fail(failing("WC-CLAIM-8", "WC-CLAIM-4", "WC-TIME-3"))
    judged = judge(tally, expecting(KNOWN), day=date(2027, 1, 1))
    assert judged.verdict is Verdict.FAIL
    assert judged.rules["WC-CLAIM-8"].status is Status.FAILED
    assert judged.rules["WC-CLAIM-4"].status is Status.FAILED


@pytest.mark.parametrize(
    ("broken", "day", "why"),
    [
        (False, date(2027, 1, 1), "WC-CLAIM-4 is expected to fail, and passed"),
        (True, date(2027, 2, 1), "the expected failure of WC-CLAIM-4 was to be mended by"),
    ],
)
def test_an_expectation_that_no_longer_holds_fails(broken: bool, day: date, why: str) -> None:
    """So a list of known failures can only shrink."""
    tally = enough(FULL)
    if broken:
        tally.fail(failing("WC-CLAIM-4"))
    judged = judge(tally, expecting(KNOWN), day=day)
    assert judged.verdict is Verdict.FAIL
    assert judged.stale[0].startswith(why)
    assert "1 expected failure to be removed" in judged.line


def test_what_could_not_run_because_of_a_failure_is_no_gap_of_its_own() -> None:
    """One fault is not told as many."""
    tally = enough(FULL)
    tally.hits["WC-CLAIM-6"] = 0
    tally.fail(failing("WC-CLAIM-8"))
    judged = judge(tally, FULL)
    assert judged.gaps == ()
    assert judged.rules["WC-CLAIM-6"].reason.startswith("could not run")
    assert "1 not run (could not run)" in judged.line


def test_mcp_counts_only_where_it_is_given() -> None:
    """Whoever claims the class says where it is; then its rules are gaps like any other."""
    claimed = replace(FULL, classes=frozenset(RuleClass))
    reason = judge(enough(claimed), claimed).rules["WC-MCP-1"].reason
    assert reason == "no MCP endpoint given (--mcp)"
    judged = judge(Tally(), EVERYTHING)
    assert judged.rules["WC-MCP-1"].counts_as_gap


def test_each_binding_has_a_status_of_its_own_and_the_worst_is_the_rule_s() -> None:
    """Broken over MCP and held over HTTP is broken, and the report says where."""
    tally = enough(EVERYTHING)
    tally.fail(failing("WC-CLAIM-8", binding=Binding.MCP))
    tally.hits_over[Binding.MCP]["WC-CLAIM-6"] -= 1
    rules_judged = judge(tally, EVERYTHING).rules
    broken, short, held = (rules_judged[f"WC-CLAIM-{n}"] for n in (8, 6, 1))
    assert broken.status is Status.FAILED
    assert {b: s.status for b, s in broken.over.items()} == {
        Binding.HTTP: Status.PASSED,
        Binding.MCP: Status.FAILED,
    }
    assert (short.status, short.counts_as_gap) == (Status.NOT_RUN, False)
    assert short.reason.startswith("over MCP: could not run")
    assert held.status is Status.PASSED
    assert held.hits == 2 * (held.rule.floor or 0)
    assert rules_judged["WC-HTTP-2"].over == {}, "it is of one binding alone"


def test_the_same_rule_broken_over_both_bindings_is_told_twice() -> None:
    """The shorter sequence of one must not hide the other."""
    tally = Tally()
    for binding in Binding:
        tally.fail(failing("WC-CLAIM-8", binding=binding))
    assert list(tally.failures) == ["WC-CLAIM-8", "WC-CLAIM-8.mcp"]
