"""The end of a run that did not come to a verdict, and the options that are no plan."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest
from simulated import Load
from storm_runs import SCHEMA
from storms import claim_calls, mixed_calls, write_history

from checkpoint_conformance.judging import judge_folder
from checkpoint_load import report
from checkpoint_load.concluding import conclude
from checkpoint_load.plan import Plan, PlanError


def planned(folder: Path, **changed: object) -> Plan:
    """The plan in Locust's options as they are by default, but for some."""
    options: dict[str, object] = {
        "storms": "",
        "contenders": 100,
        "rounds": 0,
        "duration": 0,
        "seed": 7,
        "storm_nemesis": "",
        "storm_durability": "",
        "lose": 5,
        "report": str(folder),
        "answer_timeout": 0,
        "storm_headers": {},
        "target_name": "",
        "target_version": "",
        "target_description": "",
    }
    host = changed.pop("host", "http://127.0.0.1:9")
    return Plan.of(SimpleNamespace(host=host, parsed_options=SimpleNamespace(**options | changed)))


def concluded(folder: Path, **how: Any) -> tuple[int, dict[str, Any]]:
    """The exit status, and the report, which matches its schema."""
    told = {"users": 1, "interrupted": "", "faults": [], **how}
    report.begin(folder, seed=7)
    status = conclude(planned(folder), **told, tell=lambda *_: None)
    document = report.read(folder)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(schema).validate(document)
    return status, document


def test_a_fault_of_the_harness_is_no_verdict(tmp_path: Path) -> None:
    """Its exit status is its own, and what happened is told."""
    status, document = concluded(tmp_path, faults=["Traceback: a fault"])
    assert (status, document["verdict"]) == (4, "error")
    assert document["details"] == "Traceback: a fault"


def test_an_interrupted_run_is_incomplete(tmp_path: Path) -> None:
    """For the reason that is given, and no other."""
    status, document = concluded(tmp_path, interrupted="stopped before the end")
    assert (status, document["verdict"]) == (3, "incomplete")
    assert document["incomplete_because"] == ["stopped before the end"]


def test_a_history_that_is_none_is_a_fault(tmp_path: Path) -> None:
    """Nothing is concluded from what cannot be read."""
    (tmp_path / "claim.jsonl").write_text("no history\n")
    status, document = concluded(tmp_path)
    assert (status, document["verdict"]) == (4, "error")
    assert "claim.jsonl" in document["details"]


@pytest.mark.parametrize("during", ["judge_folder", "read_folder"])
def test_judging_that_is_interrupted_leaves_an_incomplete_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    """Whether the figures are there already or not."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"checkpoint_load.concluding.{during}", interrupted)
    report.begin(tmp_path, seed=7)
    write_history(tmp_path / "claim.jsonl", claim_calls(), storm="claim")
    status = conclude(
        planned(tmp_path, storms="claim"), users=1, interrupted="", faults=[], tell=None
    )
    document = report.read(tmp_path)
    assert (status, document["verdict"]) == (3, "incomplete")
    assert document["incomplete_because"] == ["stopped while its answers were judged"]
    assert len(document["storms"]) == (during == "judge_folder")


def test_what_could_not_be_decided_fails_in_words_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No rule is called broken where nobody knows."""
    judge = functools.partial(judge_folder, steps_max=200)
    monkeypatch.setattr("checkpoint_load.concluding.judge_folder", judge)
    lossy = Load(clients=30, calls_each=20, lost=0.2)
    write_history(tmp_path / "mixed.jsonl", mixed_calls(0, lossy), storm="mixed")
    status = conclude(
        planned(tmp_path, storms="mixed"), users=1, interrupted="", faults=[], tell=None
    )
    shown = capsys.readouterr().out
    document = report.read(tmp_path)
    assert (status, document["verdict"]) == (1, "fail")
    assert document["line"].startswith("FAIL: WC-CONC-1 could not be decided; ")
    assert "WC-CONC-1 could not be decided" in shown
    assert "it could not be decided within 200 steps of the model" in shown
    assert "broken" not in shown + document["line"]


def test_the_whole_is_as_bad_as_the_worst_of_its_storms(tmp_path: Path) -> None:
    """One passes by its answers but was too little of a storm, one breaks a rule."""
    report.begin(tmp_path, seed=7)
    write_history(tmp_path / "claim.jsonl", claim_calls(), storm="claim")
    plan = planned(tmp_path, storms="claim", contenders=20, rounds=5)
    conclude(plan, users=1, interrupted="", faults=[], tell=lambda *_: None)
    document = report.read(tmp_path)
    assert document["storms"][0]["failures"] == []
    assert document["incomplete_because"] == ["claim: 3 of 5 rounds were played"]
    assert document["verdict"] == "incomplete"

    write_history(tmp_path / "transition.jsonl", claim_calls(atomic=False), storm="replay")
    plan = planned(tmp_path, storms="claim,replay", contenders=20, rounds=3)
    status = conclude(plan, users=1, interrupted="", faults=[], tell=lambda *_: None)
    document = report.read(tmp_path)
    assert [storm["verdict"] for storm in document["storms"]] == ["pass", "fail"]
    assert (status, document["verdict"]) == (1, "fail")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"storms": "claim, clam"}, "--storms: there is no 'clam'"),
        ({"contenders": 9}, "--contenders: from 10 to 10000"),
        ({"contenders": 10_001}, "--contenders: from 10 to 10000"),
        ({"rounds": -1}, "--rounds: from 0 to"),
        ({"duration": 86_401}, "--duration: from 0 to 86400"),
        ({"lose": 51}, "--lose: from 0 to 50"),
        ({"host": "127.0.0.1:8080"}, "--host: .* is no base URL"),
        ({"host": None}, "--host: '' is no base URL"),
    ],
)
def test_options_that_are_no_plan_are_refused(
    changed: dict[str, object], told: str, tmp_path: Path
) -> None:
    """By name and bound: no loop is without a limit."""
    with pytest.raises(PlanError, match=told):
        planned(tmp_path, **changed)


@pytest.mark.parametrize(
    ("changed", "rounds_max", "seconds_max"),
    [
        ({}, 20, 900),
        ({"rounds": 3}, 3, 900),
        ({"duration": 60}, 1_000_000, 60),
        ({"rounds": 3, "duration": 60}, 3, 60),
    ],
)
def test_rounds_and_time_are_bounded(
    changed: dict[str, object], rounds_max: int, seconds_max: float, tmp_path: Path
) -> None:
    """Whichever comes first."""
    plan = planned(tmp_path, **changed)
    assert (plan.rounds_max, plan.time_max_seconds) == (rounds_max, seconds_max)
