"""The end of a run of storms: figures, judgement, verdict, report."""

import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from checkpoint_conformance.history import SUFFIX, read_folder
from checkpoint_conformance.judging import UNDECIDED, Tell, judge_folder, write_judgement
from checkpoint_conformance.renderings.storm import write_storm_page
from checkpoint_conformance.verdict import EXIT_CODES, EXIT_HARNESS_FAULT, Verdict
from checkpoint_load import report
from checkpoint_load.figures import Figures
from checkpoint_load.plan import Plan
from checkpoint_load.terminal import show

_JUDGING_STOPPED: Final = "stopped while its answers were judged"


def conclude(
    plan: Plan,
    *,
    users: int,
    interrupted: str,
    faults: Sequence[str],
    tell: Tell | None,
    interruptible: AbstractContextManager[None] | None = None,
) -> int:
    """Judge what a run left in its folder, and write the report; the exit status (D5).

    A KeyboardInterrupt ends the judging at once; the report is then incomplete, and says so.

    Args:
        plan: what was to be done.
        users: how many did it, each with histories of its own.
        interrupted: why it ended early; empty where it did not.
        faults: what went wrong in the harness itself.
        tell: is told how far the judge is, by a process that another one shows; that one will
            show the result too. The result is printed here if None.
        interruptible: while it is entered, Ctrl-C comes as a KeyboardInterrupt.
    """
    try:
        # Once there is a verdict it stands: what follows is not interrupted.
        with interruptible or nullcontext():
            document = _document(plan, users, interrupted, faults, tell)
        status = EXIT_CODES.get(Verdict(document["verdict"]), EXIT_HARNESS_FAULT)
    except KeyboardInterrupt:  # before there were even figures
        document = report.unfinished_document(_JUDGING_STOPPED, seed=plan.seed)
        status = EXIT_CODES[Verdict.INCOMPLETE]
    except Exception:  # whatever it is, there is no verdict
        details = traceback.format_exc()
        document = report.error_document("a fault of the harness", seed=plan.seed, details=details)
        status = EXIT_HARNESS_FAULT
    report.write(plan.folder, document)
    if (plan.folder / report.JUDGEMENT).exists():
        write_storm_page(plan.folder)  # which reads the report, too
    if tell is None:
        show(Console(), document, plan.folder)
    return status


def _document(
    plan: Plan, users: int, interrupted: str, faults: Sequence[str], tell: Tell | None
) -> dict[str, Any]:
    files = read_folder(plan.folder) if list(plan.folder.glob(f"*{SUFFIX}")) else []
    storms = {
        storm.name: Figures(
            storm=storm,
            contenders=plan.contenders,
            rounds_asked=None if plan.duration_seconds else plan.rounds_max * users,
            under_faults=bool(plan.nemesis),
        )
        for storm in plan.storms
    }
    for file in files:
        storms[file.header.storm].read(file)
    judged: Mapping[str, Mapping[str, Any]] = {}
    # One that was stopped ends at once; `recheck` judges what there is of it.
    if files and not interrupted and not faults:
        try:
            judged = _judged(plan.folder, tell)
        except KeyboardInterrupt:
            interrupted = _JUDGING_STOPPED
    told = [_storm(figures, judged.get(name)) for name, figures in storms.items()]
    incomplete = [f"{one['name']}: {why}" for one in told for why in one["incomplete_because"]]
    if interrupted:
        incomplete = [interrupted]
    verdict = Verdict.ERROR if faults else _worst(one["verdict"] for one in told)
    return {
        "format": report.FORMAT,
        "verdict": str(verdict),
        "line": _line(verdict, told, interrupted),
        "incomplete_because": incomplete,
        "storms": told,
        "histories": [file.path.name for file in files],
        "target": {**plan.asked, "description": plan.description},
        "users": users,
        "parameters": plan.parameters,
        "versions": report.versions(),
        **({"details": "\n".join(faults)} if faults else {}),
    }


def _judged(folder: Path, tell: Tell | None) -> dict[str, dict[str, Any]]:
    """The judgement of each storm, by the judge of all histories; it is written beside them."""
    judgement = judge_folder(folder, tell=tell)
    write_judgement(folder, judgement)
    return {storm["storm"]: storm for storm in judgement["storms"]}


def _storm(figures: Figures, judged: Mapping[str, Any] | None) -> dict[str, Any]:
    incomplete = list(figures.incomplete_because)
    if judged is None:
        incomplete.append("its answers were not judged")
        verdict = Verdict.INCOMPLETE
    else:
        said = {_kind(why) for why in incomplete}
        incomplete += [why for why in judged["incomplete_because"] if _kind(why) not in said]
        verdict = Verdict(judged["verdict"])
        if incomplete and verdict is Verdict.PASS:
            verdict = Verdict.INCOMPLETE
    return {
        **figures.document,
        "verdict": str(verdict),
        "incomplete_because": incomplete,
        "failures": [] if judged is None else [_failure(one) for one in judged["failures"]],
        "faults": None if judged is None else judged["faults"],
    }


def _kind(why: str) -> str:
    """A reason without its figures: the judge has its own for too little contention."""
    return why.partition(":")[0]


def _failure(judged: Mapping[str, Any]) -> dict[str, Any]:
    """What a person needs of a failure; the whole of it is in the judgement."""
    members = ["rules", "kind", "what", "expected", "got", "why", "workflow", "operation", "state"]
    return {member: judged.get(member) for member in members}


def _worst(verdicts: Iterable[str]) -> Verdict:
    found = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.PASS):
        if verdict in found:
            return verdict
    return Verdict.INCOMPLETE


def _rules(failures: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(rule for one in failures for rule in one["rules"]))


def _faults(storms: Sequence[Mapping[str, Any]]) -> str:
    """What was made of faults, and what was lost, in a few words."""
    made = [storm["faults"] for storm in storms if storm["faults"] is not None]
    if not made:
        return ""
    runs = sum(kind["runs"] for faults in made for kind in faults["kinds"].values())
    lost = sum(faults["acknowledged_lost"] for faults in made)
    return f", {runs:,} faults, {lost:,} acknowledged changes lost"


def _line(verdict: Verdict, storms: Sequence[Mapping[str, Any]], interrupted: str) -> str:
    requests = sum(storm["requests"] + storm["setup_requests"] for storm in storms)
    rounds = sum(storm["rounds"] for storm in storms)
    kinds = "one storm" if len(storms) == 1 else f"{len(storms)} storms"
    did = f"{rounds:,} rounds of {kinds}, {requests:,} requests{_faults(storms)}"
    match verdict:
        case Verdict.PASS:
            return f"PASS: one order explains every answer; {did}"
        case Verdict.FAIL:
            failures = [one for storm in storms for one in storm["failures"]]
            broken = _rules(one for one in failures if one["kind"] != UNDECIDED)
            said = [f"{', '.join(broken)} broken"] if broken else []
            undecided = _rules(one for one in failures if one["kind"] == UNDECIDED)
            if undecided:
                said.append(f"{', '.join(undecided)} could not be decided")
            return f"FAIL: {'; '.join([*said, did])}"
        case Verdict.INCOMPLETE:
            why = interrupted or "too little was seen to say"
            return f"INCOMPLETE: {why}; {did}"
    return f"ERROR: the harness itself failed; {did}"
