"""The judge of stored histories, on storms whose verdict is known."""

import gzip
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click.testing import CliRunner
from looking_away import Quiet
from simulated import EPOCH_MS, Load
from storms import claim_calls, mixed_calls, with_members, write_history

from checkpoint_conformance import judging
from checkpoint_conformance.checks.storm import take_failures
from checkpoint_conformance.client import Address, Lost, LostReason
from checkpoint_conformance.history import (
    Call,
    ClockStep,
    HistoryError,
    HistoryWriter,
    begin_header,
)
from checkpoint_conformance.judging import (
    FAILURES_SHOWN_MAX,
    JudgementError,
    judge_folder,
    read_judgement,
    write_judgement,
)
from checkpoint_conformance.judging_commands import recheck
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_model import format_timestamp
from checkpoint_model.linearizability import Answered

SCHEMA = json.loads(
    resources.files("checkpoint_conformance").joinpath("judgement.schema.json").read_text("utf-8")
)
MIXED = Load(clients=30, calls_each=20, workflows=12, lost=0.2, claim_ttl_seconds=1)


def judge(folder: Path, **options: Any) -> dict[str, Any]:
    """The judgement, which must be of its schema, and survive being written and read."""
    judgement = judge_folder(folder, **options)
    jsonschema_rs.validate(SCHEMA, judgement)
    write_judgement(folder, judgement)
    assert read_judgement(folder) == json.loads(json.dumps(judgement))
    return judgement


def only(judgement: dict[str, Any]) -> dict[str, Any]:
    """The one storm that was judged."""
    (storm,) = judgement["storms"]
    assert isinstance(storm, dict)
    return storm


def test_a_right_claim_storm_passes(tmp_path: Path) -> None:
    """Each rule counts the rounds in which it could have been broken."""
    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls())))
    assert (storm["verdict"], storm["incomplete_because"], storm["failures"]) == ("pass", [], [])
    hits = {rule: found["hits"] for rule, found in storm["rules"].items()}
    assert hits == {
        "WC-CONC-1": 3,
        "WC-CONC-2": 3,
        "WC-CONC-3": 3,
        "WC-CONC-4": 0,
        "WC-TIME-1": 123,
        "WC-ID-2": 3,
    }
    assert storm["workflows"] == {"linearizable": 3}
    assert storm["contention"] == {
        "bursts": 6,
        "spread_ms_median": 0.19,
        "spread_ms_max": 0.19,
        "in_flight_median": 20,
        "in_flight_max": 20,
    }
    assert [w["client"] for b in storm["bursts"] for w in b["winners"]] == ["c0"] * 6
    assert storm["latency_ms"]["claim"]["count"] == 60


def test_several_processes_come_to_the_same_judgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of workflows that are right, wrong and undecided, to the last letter."""
    wrong = [
        with_members(call, stage="failed") if number % 50 == 49 else call
        for number, call in enumerate(mixed_calls(3, MIXED))
        if isinstance(call.answer, Answered) or number % 2
    ]
    folder = write_history(tmp_path / "a.jsonl", wrong)
    judgements = []
    for processes in (1, 2, 3):
        monkeypatch.setattr(judging, "processes_for", lambda *_, n=processes: n)
        judgements.append(json.dumps(judge(folder, steps_max=40)))
    assert judgements[1] == judgements[0] == judgements[2]
    storm = only(json.loads(judgements[0]))
    assert storm["workflows"].keys() == {"linearizable", "illegal", "unknown"}


def test_one_of_anything_is_told_as_one(tmp_path: Path) -> None:
    """The line is for people."""
    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(rounds=1))))
    assert storm["line"] == "1 workflow and 41 answers judged, 0 lost"


def test_a_workflow_is_shown_with_its_order_and_states(tmp_path: Path) -> None:
    """All that a page needs to draw it: lanes, places, and the record after each change."""
    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(rounds=1))))
    (shown,) = storm["shown"]
    assert shown["verdict"] == "linearizable"
    assert [shown["operations"][one["operation"]]["place"] for one in shown["order"]] == list(
        range(41)
    )
    assert [(s["rule"], s["record"]["stage"]) for s in shown["states"]] == [
        ("WC-CLAIM-1", "claimed"),
        ("WC-TRANS-8", "uncertain"),
    ]
    assert [s["place"] for s in shown["states"]] == [0, 20]


def test_a_store_that_writes_after_a_look_fails(tmp_path: Path) -> None:
    """Two claims acquired the same generation: the second of them cannot be placed."""
    calls = claim_calls(atomic=False)
    judgement = judge(write_history(tmp_path / "a.jsonl", calls))
    storm = only(judgement)
    assert judgement["verdict"] == storm["verdict"] == "fail"
    assert storm["workflows"] == {"illegal": 3}
    first = storm["failures"][0]
    assert first["rules"] == ["WC-CONC-2", "WC-CONC-1", "WC-CLAIM-5"]
    assert (first["expected"], first["differs"]) == (
        "CHECKPOINT_NOT_HELD: claimed, gen. 1",
        ["code"],
    )
    assert first["got_members"]["acquired"] is True
    assert first["state"]["generation"] == 1
    shown = storm["shown"][0]
    assert shown["failure"] == first
    assert shown["operations"][first["operation"]]["client"] in ("c0", "c1")
    assert storm["rules"]["WC-CONC-2"]["status"] == "failed"


def test_mixed_storms_with_lost_answers_pass(tmp_path: Path) -> None:
    """Both worlds of every lost answer are carried, in five storms of twelve workflows each."""
    for seed in range(5):
        folder = tmp_path / str(seed)
        storm = only(judge(write_history(folder / "a.jsonl", mixed_calls(seed, MIXED))))
        assert storm["verdict"] == "pass", storm["failures"]
        assert storm["workflows"] == {"linearizable": 12}
        assert storm["rules"]["WC-CONC-4"]["hits"] == 12
        assert storm["lost"] == storm["dropped_on_purpose"] > 60


def test_many_broken_workflows_are_counted_and_some_are_shown(tmp_path: Path) -> None:
    """A verdict is of all; what is explained at length is bounded."""
    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(rounds=9, atomic=False))))
    assert storm["workflows"] == {"illegal": 9}
    assert storm["line"].startswith("9 of 9 workflows fail")
    assert len(storm["failures"]) == FAILURES_SHOWN_MAX
    assert storm["rules"]["WC-CONC-1"] == {"status": "failed", "hits": 0}


def test_a_member_that_does_not_follow_is_no_fault_of_the_order(tmp_path: Path) -> None:
    """It is named by its own rule."""

    def twist(_: int, call: Call) -> Call:
        if call.request["action"] == "status":
            return with_members(call, minimum_action_safety_margin_seconds=10)
        return call

    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(rounds=1), twist=twist)))
    (failure,) = storm["failures"]
    assert failure["rules"] == ["WC-VIEW-3"]
    assert failure["differs"] == ["minimum_action_safety_margin_seconds"]


@pytest.mark.parametrize(
    ("shift_ms", "verdict"), [(40, "pass"), (-40, "pass"), (200, "fail"), (-200, "fail")]
)
def test_a_time_outside_the_call_breaks_wc_time_1(
    tmp_path: Path, shift_ms: int, verdict: str
) -> None:
    """One constant offset must explain all calls, but for what clocks do."""

    def twist(_: int, call: Call) -> Call:
        if call.request["action"] != "status":
            return call
        assert call.round is not None
        at_ms = EPOCH_MS + call.called_ns // 1_000_000 + shift_ms
        made_ms = EPOCH_MS + 1005 + 1000 * call.round
        return with_members(
            call,
            observed_at=format_timestamp(at_ms),
            claim_ttl_seconds_remaining=(made_ms + 30_000 - at_ms) // 1000,
            state_ttl_seconds_remaining=(made_ms + 60_000 - at_ms) // 1000,
        )

    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(), twist=twist)))
    assert storm["verdict"] == verdict, storm["failures"]
    if verdict == "fail":
        assert any(failure["rules"] == ["WC-TIME-1"] for failure in storm["failures"])
        assert storm["rules"]["WC-TIME-1"] == {"status": "failed", "hits": 0}


def test_a_hash_that_changes_is_found(tmp_path: Path) -> None:
    """WC-ID-2, whatever else is right."""
    calls = claim_calls()
    first = next(i for i, c in enumerate(calls) if c.request["action"] == "status")
    calls[first] = with_members(calls[first], workflow_hash="hmac-sha256:" + "f" * 64)
    storm = only(judge(write_history(tmp_path / "a.jsonl", calls)))
    assert [failure["rules"] for failure in storm["failures"]] == [["WC-ID-2", "WC-CONC-4"]]


def test_a_hash_of_two_workflows_is_found(tmp_path: Path) -> None:
    """WC-ID-3: answers are mixed up, or identities taken for one another."""

    def twist(_: int, call: Call) -> Call:
        assert isinstance(call.answer, Answered)
        if "workflow_hash" in (call.answer.members or {}):
            return with_members(call, workflow_hash="hmac-sha256:" + "f" * 64)
        return call

    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(), twist=twist)))
    assert [failure["rules"] for failure in storm["failures"]] == [["WC-ID-3", "WC-CONC-4"]]


def test_an_empty_history_is_no_pass(tmp_path: Path) -> None:
    """Nothing judged says nothing."""
    storm = only(judge(write_history(tmp_path / "a.jsonl", [])))
    assert storm["verdict"] == "incomplete"
    assert storm["incomplete_because"] == ["no answer tells what was decided"]


def test_a_history_without_a_decided_answer_is_no_pass(tmp_path: Path) -> None:
    """All refused before section 6."""

    def twist(_: int, call: Call) -> Call:
        return replace(call, answer=Answered(status=429, members={"code": "RATE_LIMITED"}))

    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(), twist=twist)))
    assert storm["verdict"] == "incomplete"
    assert (storm["unchanged"], storm["decided"]) == (123, 0)


def test_too_little_contention_is_incomplete(tmp_path: Path) -> None:
    """A storm in single file is none."""
    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(together=False))))
    assert storm["verdict"] == "incomplete"
    (gap,) = storm["incomplete_because"]
    assert gap.startswith("too little contention: 1 requests were in flight at once in the median")
    assert storm["rules"]["WC-CONC-2"] == {"status": "not-run", "hits": 0}


def test_a_history_that_was_cut_off_is_incomplete(tmp_path: Path) -> None:
    """What is missing might be what fails."""
    folder = write_history(tmp_path / "a.jsonl", claim_calls())
    path = tmp_path / "a.jsonl"
    path.write_bytes(path.read_bytes().rpartition(b'{"event"')[0])
    storm = only(judge(folder))
    assert storm["verdict"] == "incomplete"
    assert storm["incomplete_because"] == ["the history was cut off: a.jsonl has no last line"]


def test_repeated_calls_make_a_history_worthless(tmp_path: Path) -> None:
    """The first attempt may have been applied, and nobody recorded when."""
    folder = write_history(
        tmp_path / "a.jsonl", claim_calls(), twist=lambda n, c: replace(c, attempts=1 + (n == 3))
    )
    storm = only(judge(folder))
    assert storm["incomplete_because"] == ["1 call went over the wire more than once"]


def test_answers_lost_against_the_will_make_it_incomplete(tmp_path: Path) -> None:
    """A target that answers every other request says little of itself."""

    def twist(number: int, call: Call) -> Call:
        if number % 2:
            return call
        return replace(call, returned_ns=None, answer=Lost(reason=LostReason.TIMED_OUT, detail=""))

    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(), twist=twist)))
    assert storm["verdict"] == "incomplete"
    assert (
        "requests were not answered: no complete answer in time" in (storm["incomplete_because"][0])
    )


def test_answers_that_do_not_tell_make_it_incomplete(tmp_path: Path) -> None:
    """They came in time, and nobody knows whether what was asked was done."""
    unavailable = Answered(status=503, members={"code": "DEPENDENCY_UNAVAILABLE"})

    def twist(number: int, call: Call) -> Call:
        return replace(call, answer=unavailable) if number % 20 == 7 else call

    storm = only(judge(write_history(tmp_path / "a.jsonl", claim_calls(), twist=twist)))
    assert (storm["verdict"], storm["not_told"], storm["failures"]) == ("incomplete", 6, [])
    assert storm["incomplete_because"] == [
        "6 of 123 requests were not answered: DEPENDENCY_UNAVAILABLE (6 times)"
    ]


def test_a_target_that_turns_most_away_says_too_little(tmp_path: Path) -> None:
    """What is left is right, and no storm."""
    limited = Answered(status=429, members={"code": "RATE_LIMITED"})

    def twist(_: int, call: Call) -> Call:
        return replace(call, answer=limited) if int(call.client[1:]) % 3 else call

    calls = claim_calls(contenders=40)
    storm = only(judge(write_history(tmp_path / "a.jsonl", calls, twist=twist)))
    assert (storm["verdict"], storm["failures"]) == ("incomplete", [])
    assert storm["incomplete_because"] == ["156 of 243 requests were turned away"]


def test_what_is_broken_fails_whatever_else_was_missing(tmp_path: Path) -> None:
    """A history that was cut off says too little to pass, and enough to fail."""
    folder = write_history(tmp_path / "a.jsonl", claim_calls(atomic=False))
    path = tmp_path / "a.jsonl"
    path.write_bytes(path.read_bytes().rpartition(b'{"event"')[0])
    storm = only(judge(folder))
    assert storm["incomplete_because"] == ["the history was cut off: a.jsonl has no last line"]
    assert storm["verdict"] == "fail"


def test_a_budget_that_is_spent_is_a_failure(tmp_path: Path) -> None:
    """Not decided is not passed."""
    calls = mixed_calls(0, replace(MIXED, workflows=1))
    storm = only(judge(write_history(tmp_path / "a.jsonl", calls), steps_max=5))
    assert storm["verdict"] == "fail"
    (failure,) = storm["failures"]
    assert (failure["kind"], failure["rules"]) == ("unknown", ["WC-CONC-1"])
    assert failure["got"] == "it could not be decided within 5 steps of the model"
    assert storm["line"] == "1 of 1 workflows could not be decided within 5 steps"
    assert storm["rules"]["WC-CONC-1"] == {"status": "undecided", "hits": 0}
    result = CliRunner().invoke(recheck, [str(tmp_path), "--steps", "5"])
    assert result.exit_code == 1
    assert "could not be decided within 5 steps" in result.output
    assert "broken" not in result.output


def test_a_budget_that_is_spent_leaves_a_check_incomplete_and_breaks_no_rule(
    tmp_path: Path,
) -> None:
    """What says nothing against the target is no failure of it, in the short storm as in faults."""
    calls = mixed_calls(0, replace(MIXED, workflows=1))
    judged = only(judge(write_history(tmp_path / "a.jsonl", calls), steps_max=5))
    target = Target(address=Address.parse("http://127.0.0.1:9"))
    run = Run(target=target, profile=PROFILES["quick"], seed=1, progress=Quiet())
    take_failures(run, judged, "the short storm")
    assert run.tally.failures == {}
    (why,) = run.tally.incomplete
    assert why.startswith("the short storm: whether one order explains every answer: ")
    assert why.endswith("it could not be decided within 5 steps of the model")


def test_a_workflow_with_many_lost_answers_is_decided_in_few_steps(tmp_path: Path) -> None:
    """Of a recorded storm, two hundred calls, forty lost: two million steps were once too few."""
    recorded = Path(__file__).with_name("histories") / "a_fifth_lost.jsonl.gz"
    (tmp_path / "a.jsonl").write_bytes(gzip.decompress(recorded.read_bytes()))
    storm = only(judge(tmp_path, steps_max=4000))
    assert (storm["calls"], storm["lost"]) == (200, 40)
    assert (storm["workflows"], storm["failures"]) == ({"linearizable": 1}, [])


def test_what_is_broken_is_told_apart_from_what_could_not_be_decided(tmp_path: Path) -> None:
    """Of one storm: only the rules of the first are named as failing."""
    rounds = [
        with_members(call, stage="failed") if call.request["action"] == "status" else call
        for call in claim_calls(rounds=2)
        if call.round == 1
    ]
    calls = [*rounds, *mixed_calls(0, replace(MIXED, workflows=1))]
    storm = only(judge(write_history(tmp_path / "a.jsonl", calls), steps_max=200))
    assert {failure["kind"] for failure in storm["failures"]} == {"illegal", "unknown"}
    assert storm["line"] == (
        "1 of 2 workflows fail (WC-CONC-1, WC-STATUS-2); "
        "1 of 2 workflows could not be decided within 200 steps"
    )
    told = {rule: found["status"] for rule, found in storm["rules"].items()}
    assert (told["WC-CONC-1"], told["WC-STATUS-2"]) == ("failed", "failed")


def test_an_answer_without_a_time_fails(tmp_path: Path) -> None:
    """It cannot be placed anywhere."""
    calls = claim_calls(rounds=1)
    calls[-1] = with_members(calls[-1], observed_at=None)
    storm = only(judge(write_history(tmp_path / "a.jsonl", calls)))
    assert [failure["rules"] for failure in storm["failures"]] == [["WC-TIME-5"]]


@pytest.mark.parametrize("member", ["stage", "generation", "configuration", "observed_at"])
@pytest.mark.parametrize("value", [[], {}, ["claimed"], {"a": []}])
def test_an_answer_of_another_kind_is_a_failure_and_no_fault_of_the_judge(
    tmp_path: Path, member: str, value: Any
) -> None:
    """Lists where words belong, in an answer that the search meets."""
    calls = claim_calls(rounds=1)
    calls = [calls[0], *(with_members(c, **{member: value}) for c in calls[1:4]), *calls[4:]]
    storm = only(judge(write_history(tmp_path / "a.jsonl", calls)))
    assert storm["failures"][0]["kind"] == "illegal"


@pytest.mark.parametrize("missing", ["action", "workflow_key", "holder", "retry_failed"])
def test_a_request_that_lacks_a_member_is_no_history(tmp_path: Path, missing: str) -> None:
    """Also where one like it, whole, was read before."""
    first, second, *rest = claim_calls(rounds=1)
    request = {k: v for k, v in first.request.items() if k != missing}
    folder = write_history(
        tmp_path / "a.jsonl", [first, replace(second, request=request), *rest], storm="claim"
    )
    with pytest.raises(HistoryError, match=f"of c1 has a request .* KeyError: '{missing}'"):
        judge_folder(folder)


def test_the_files_of_several_workers_are_judged_together(tmp_path: Path) -> None:
    """Half of the calls of each workflow in each file."""
    calls = claim_calls(atomic=False)
    write_history(tmp_path / "a.jsonl", calls[::2])
    folder = write_history(tmp_path / "b.jsonl", calls[1::2])
    assert only(judge(folder))["workflows"] == {"illegal": 3}


def test_clocks_of_two_machines_are_not_compared(tmp_path: Path) -> None:
    """The second machine's clock began an hour later; the store's time still orders."""
    hour_ns = 3600 * 10**9
    calls = claim_calls()
    later = [
        replace(
            call,
            called_ns=call.called_ns + hour_ns,
            sent_ns=None,
            returned_ns=(call.returned_ns or 0) + hour_ns,
        )
        for call in calls[1::2]
    ]
    for clock, verdict in (("two", "pass"), ("one", "fail")):
        folder = tmp_path / clock
        write_history(folder / "a.jsonl", calls[::2], clock="one")
        write_history(folder / "b.jsonl", later, clock=clock)
        storm = only(judge(folder))
        assert storm["verdict"] == verdict, storm["incomplete_because"]


def test_times_before_and_after_a_told_step_need_not_agree(tmp_path: Path) -> None:
    """A control that sets the clock forward starts a new offset; untold, it is a fault."""

    def twist(_: int, call: Call) -> Call:
        if call.round != 2:
            return call
        assert isinstance(call.answer, Answered)
        members = dict(call.answer.members or {})
        for name in ("observed_at", "claim_expires_at", "state_expires_at"):
            if members.get(name):
                hour, rest = int(members[name][11:13]), members[name][13:]
                members[name] = f"{members[name][:11]}{hour + 1:02}{rest}"
        return with_members(call, **members)

    for told, verdict in ((True, "pass"), (False, "fail")):
        path = tmp_path / str(told) / "a.jsonl"
        with HistoryWriter(path, begin_header("claim", {"url": "http://h"})) as writer:
            for number, call in enumerate(claim_calls()):
                writer.call(twist(number, call))
            if told:
                writer.clock_step(ClockStep(called_ns=2_900_000_000, returned_ns=2_950_000_000))
        assert only(judge(path.parent))["verdict"] == verdict


def test_what_a_moved_clock_leaves_open_is_not_held_against_the_target(tmp_path: Path) -> None:
    """A workflow that went on meanwhile, and has no order, says too little to fail or pass."""
    during, later = 1_001_000_000, 9_000_000_000
    for moved_ns, verdict in ((during, "incomplete"), (later, "fail"), (None, "fail")):
        path = tmp_path / str(moved_ns) / "a.jsonl"
        with HistoryWriter(path, begin_header("claim", {"url": "http://h"})) as writer:
            for call in claim_calls(rounds=1, atomic=False):
                writer.call(call)
            if moved_ns is not None:
                writer.clock_step(ClockStep(called_ns=moved_ns, returned_ns=moved_ns + 1_000_000))
        storm = only(judge(path.parent))
        assert storm["verdict"] == verdict
        assert storm["workflows"] == {"clock moved" if moved_ns == during else "illegal": 1}


def test_storms_of_one_folder_have_verdicts_of_their_own(tmp_path: Path) -> None:
    """The whole is as bad as the worst."""
    write_history(tmp_path / "a.jsonl", claim_calls())
    write_history(tmp_path / "b.jsonl", claim_calls(atomic=False), storm="recovery")
    judgement = judge(tmp_path)
    assert [(s["storm"], s["verdict"]) for s in judgement["storms"]] == [
        ("claim", "pass"),
        ("recovery", "fail"),
    ]
    assert judgement["verdict"] == "fail"


@pytest.mark.parametrize(
    ("calls", "code", "said"),
    [
        (claim_calls(), 0, "PASS  claim"),
        (claim_calls(atomic=False), 1, "WC-CONC-2, WC-CONC-1, WC-CLAIM-5: the answer to claim"),
        (claim_calls(together=False), 3, "incomplete: too little contention"),
    ],
)
def test_recheck_says_so_with_words_and_exit_code(
    tmp_path: Path, calls: list[Call], code: int, said: str
) -> None:
    """Decision D5."""
    folder = write_history(tmp_path / "a.jsonl", calls)
    done = CliRunner().invoke(recheck, [str(folder)])
    assert done.exit_code == code, done.output
    assert said in done.output
    assert read_judgement(folder)["verdict"] == {0: "pass", 1: "fail", 3: "incomplete"}[code]
    if code == 1:
        assert "expected  CHECKPOINT_NOT_HELD: claimed, gen. 1" in done.output
        assert "got       a result with `acquired`" in done.output
        assert "state     claimed, generation 1" in done.output


def test_an_interrupted_recheck_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit status is neither that of a pass nor that of a failure."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(judging, "judge_folder", interrupted)
    result = CliRunner().invoke(recheck, [str(write_history(tmp_path / "a.jsonl", claim_calls()))])
    assert result.exit_code == 3
    assert "Interrupted: there is no verdict" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_recheck_of_no_history_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    done = CliRunner().invoke(recheck, [str(tmp_path)])
    assert done.exit_code == 2
    assert "no history" in done.output


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format":"workflow-checkpoint-judgement"}'])
def test_what_is_no_judgement_is_refused(tmp_path: Path, text: str) -> None:
    """By a view that would render it."""
    (tmp_path / "judgement.json").write_text(text)
    with pytest.raises(JudgementError):
        read_judgement(tmp_path)
