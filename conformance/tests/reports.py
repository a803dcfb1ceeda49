"""Reports to render: of every verdict, and of a target that is out to do harm."""

import time
from dataclasses import replace
from typing import Any, Final

from looking_away import Quiet
from test_verdict import EVERYTHING, FULL, enough

from checkpoint_conformance import report
from checkpoint_conformance.answers import Fault
from checkpoint_conformance.graph import cells
from checkpoint_conformance.mcp_client import REVISION_HEADER, SESSION_HEADER, Revision
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import PROFILES, ExpectedFailure, Run, Target
from checkpoint_conformance.tally import Failure, Sent, Tally, Timing, in_short
from checkpoint_conformance.verdict import judge
from checkpoint_model import Claim, Identity
from checkpoint_model.vocabulary import TOOL_PATH

EVIL: Final = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "'\"]]>&amp;</pre></details>`` ``` | @everyone https://evil.example/ **bold** [a](b) ${{ x }}\n"
    "::error::forged\r\n\x1b[31mred\x1b[0m\x00\x07\u202etxt\ud800 \ufffe %0A"
)
"""What no format may be upset by."""


def failure(rule: str = "WC-CLAIM-8", *, evil: str = "", others: tuple[str, ...] = ()) -> Failure:
    """A recovery that was left ``claimed``; with ``evil``, in all that the target says."""
    expected = {"action": "claim", "stage": "uncertain", "generation": 2, "recovered": True}
    got: dict[str, Any] = {**expected, "stage": "claimed" + evil}
    if evil:
        got |= {evil: evil, "deep": 1e999, "generation": [[[[[[[[[[[[[[[evil]]]]]]]]]]]]]]]}
    claim = b'{"action":"claim","namespace":"n:x","workflow_key":"w_1","holder":"h_1"}'
    sent = [
        Sent(
            method="POST",
            path=TOOL_PATH,
            headers=(("content-type", "application/json"),),
            body=body,
            answered=in_short(200, answered),
        )
        for body, answered in ((claim, {"stage": "claimed"}), (claim[:-1] + b"}", got))
    ]
    fault = Fault(
        rules=(rule, *others),
        what=f"`stage`{evil}",
        expected='"uncertain"',
        got=f'"claimed"{evil * 400}',
    )
    who = Identity(namespace="n:x", workflow_key="w_1")
    asked = Claim(holder="h_1", claim_ttl_seconds=1, state_ttl_seconds=9, retry_failed=True)
    return Failure(
        check="walk",
        fault=fault,
        sequence=tuple(sent),
        got=got,
        expected=expected,
        identity=who,
        moves=(asked, 1000, asked),
    )


def document(tally: Tally, target: Target = FULL, **judging: Any) -> dict[str, Any]:
    """The report of a run that saw this."""
    started = time.monotonic()
    run = Run(target=target, profile=PROFILES["quick"], seed=7, progress=Quiet(), tally=tally)
    run.close()
    return report.document(
        report.Outcome(
            run=run,
            judged=judge(tally, target, **judging),
            started_at="2026-07-25T12:00:00Z",
            seconds=time.monotonic() - started,
        )
    )


def passing() -> dict[str, Any]:
    """All that could be reached was, and held."""
    tally = enough(FULL)
    for number, cell in enumerate(cells()):
        tally.moves[cell] = 3**number % 2000 + 1
    tally.timings += [
        Timing(name="example", title="The example of the contract", seconds=0.2, requests=9),
        Timing(name="walk", title="Every stage in turn", seconds=3.25, requests=4000),
    ]
    tally.remarks.append("The races had 90 contenders: too few files may be open.")
    return document(tally)


def failing(*, evil: str = "") -> dict[str, Any]:
    """Two rules broken in the first place, a third with one of them, and a gap beside."""
    tally = enough(FULL)
    tally.hits["WC-CLAIM-6"] = 1
    tally.leave_out("a sequence of the check «races» lost its answers")
    for cell in cells()[:-2]:
        tally.moves[cell] = 12
    tally.broken_moves[cells()[-1]] = 3
    tally.timings.append(Timing(name="walk", title="Every stage", seconds=2, requests=70))
    tally.fail(failure(evil=evil))
    tally.fail(replace(failure("WC-TRANS-4", evil=evil, others=("WC-IDEM-1",)), check="vectors"))
    target = replace(FULL, description=evil or "a target of the tests")
    return document(tally, target)


def incomplete() -> dict[str, Any]:
    """Interrupted."""
    return document(Tally(), interrupted="interrupted before the end")


def erroneous() -> dict[str, Any]:
    """A target that could not be reached."""
    return report.error_document("nobody answers", seed=7)


def unfinished() -> dict[str, Any]:
    """Written at the start."""
    return report.unfinished_document("the run has not ended", seed=7)


def hostile() -> dict[str, Any]:
    """A target that answers with whatever could upset a format, and much of it."""
    return failing(evil=EVIL)


def with_bindings() -> dict[str, Any]:
    """One rule tested over two bindings, one of which it is broken on, and one expected to be."""
    found = passing()
    found["rules"]["WC-CLAIM-1"]["bindings"] = {
        "http": {"status": "passed", "hits": 12},
        "mcp": {"status": "not-run", "hits": 1, "reason": "1 of at least 3 hits"},
    }
    found["rules"]["WC-CLAIM-2"] |= {"status": "expected-failure", "reason": "issue 12, known"}
    return found


def over_mcp() -> dict[str, Any]:
    """One rule broken over both bindings, each in its own way."""
    tally = enough(EVERYTHING)
    tally.fail(failure())
    found = failure()
    calls = [
        replace(
            sent,
            path="/mcp",
            binding=Binding.MCP,
            headers=(
                *sent.headers,
                (REVISION_HEADER, Revision.NOVEMBER_2025),
                (SESSION_HEADER, "s"),
            ),
        )
        for sent in found.sequence
    ]
    tally.fail(replace(found, sequence=tuple(calls), binding=Binding.MCP))
    return document(tally, EVERYTHING)


def excused() -> dict[str, Any]:
    """One rule is broken as expected, and one is not although it was expected to be."""
    tally = enough(FULL)
    tally.fail(failure())
    known = ExpectedFailure(rule="WC-CLAIM-8", reason="known", issue="https://issues.example/8")
    mended = ExpectedFailure(rule="WC-CLAIM-1", reason="was known")
    return document(tally, replace(FULL, expected_failures=(known, mended), name="theirs"))


def knowing() -> dict[str, Any]:
    """One rule is broken, as expected, so the run passes."""
    tally = enough(FULL)
    tally.fail(failure())
    known = ExpectedFailure(rule="WC-CLAIM-8", reason="known")
    return document(tally, replace(FULL, expected_failures=(known,)))


def harmed() -> dict[str, Any]:
    """A run that made faults: one kind was recovered from, the other was not."""
    tally = enough(EVERYTHING)
    tally.faults = {
        "durability": "second",
        "kinds": {
            "store-kill": {
                "runs": 3,
                "recovered": 3,
                "cuts": None,
                "recovery_ms": {"median": 237.7, "max": 1256.7},
            },
            "client-cut-in-answer": {"runs": 1, "recovered": 0, "cuts": 4, "recovery_ms": None},
        },
        "workflows_through_a_crash": 21,
        "acknowledged_lost": 2,
        "acknowledged_lost_as_declared": 5,
        "unavailable": 52,
        "unavailable_ms_max": 4028.9,
        "calls": 2006,
        "histories": 116,
    }
    return document(tally, EVERYTHING)


ALL: Final = {
    made.__name__: made
    for made in (
        passing,
        failing,
        incomplete,
        erroneous,
        unfinished,
        hostile,
        with_bindings,
        over_mcp,
        excused,
        knowing,
        harmed,
    )
}
"""Each by its name."""
