"""What is judged of a storm under faults, on histories that are made up for it."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from checkpoint_conformance.client import Lost, LostReason
from checkpoint_conformance.faults import Kind
from checkpoint_conformance.history import (
    DROPPED,
    Call,
    ClockIdentity,
    Header,
    HistoryWriter,
    Injected,
    read_file,
)
from checkpoint_conformance.judging import judge_folder
from checkpoint_conformance.judging_faults import AFTERMATH_NS, ANSWER_MS_MAX, ANSWER_SLACK_MS
from checkpoint_model import (
    Abandon,
    Claim,
    Identity,
    Record,
    Request,
    Status,
    answer,
    format_request,
    step,
)
from checkpoint_model.linearizability import Answered
from checkpoint_model.machine import Success

MS = 1_000_000
EPOCH_MS = 1_795_000_000_000
"""The store's time when our clock reads 0."""
UNAVAILABLE = Answered(status=503, members={"code": "DEPENDENCY_UNAVAILABLE", "status": 503})
LONG = Claim(
    holder="h_" + "a" * 20, claim_ttl_seconds=600, state_ttl_seconds=900, retry_failed=True
)
OTHER = replace(LONG, holder="h_" + "b" * 20)


class Story:
    """A store that is right, what it was asked, and what was done to it; times are ms of ours."""

    def __init__(self, folder: Path, writer: HistoryWriter) -> None:
        self.folder = folder
        self._writer = writer
        self.records: dict[str, Record | None] = {}
        self._calls = 0

    def ask(self, name: str, request: Request, at_ms: int, *, took_ms: int = 2) -> None:
        """A call in whose middle the store decided."""
        now_ms = EPOCH_MS + at_ms + took_ms // 2
        done = step(self.records.get(name), request, now_ms)
        self.records[name] = done.record
        status = 200 if isinstance(done.outcome, Success) else 409
        members = answer(done, request)
        if status == 200:
            members["workflow_hash"] = f"hmac-sha256:{name:0>64}"
        self._call(name, request, at_ms, took_ms, Answered(status=status, members=members))

    def unavailable(self, name: str, request: Request, at_ms: int, took_ms: int = 2) -> None:
        """A call that nobody decided."""
        self._call(name, request, at_ms, took_ms, UNAVAILABLE)

    def lose(self, name: str, request: Request, at_ms: int, reason: str) -> None:
        """A call without an answer."""
        self._call(name, request, at_ms, None, Lost(reason=reason, detail=""))

    def fault(
        self,
        kind: str,
        at_ms: int,
        until_ms: int,
        *,
        recovers: bool = True,
        cuts: int | None = None,
    ) -> None:
        """Something that is done to it."""
        self._writer.fault(
            Injected(
                kind=kind,
                called_ns=at_ms * MS,
                returned_ns=(at_ms + 1) * MS,
                healed_ns=until_ms * MS,
                recovered_ns=(until_ms + 10) * MS if recovers else None,
                cuts=cuts,
            )
        )

    def _call(
        self,
        name: str,
        request: Request,
        at_ms: int,
        took_ms: int | None,
        came: Answered | Lost,
    ) -> None:
        self._calls += 1
        identity = Identity(namespace="made-up", workflow_key=f"w_{name:_<20}")
        called_ns = at_ms * MS
        self._writer.call(
            Call(
                client=f"c{self._calls}",
                request=format_request(identity, request),
                called_ns=called_ns,
                returned_ns=None if took_ms is None else called_ns + took_ms * MS,
                answer=came,
            )
        )


@contextmanager
def told(folder: Path, **parameters: Any) -> Iterator[Story]:
    """A story that is being told."""
    header = Header(
        storm="mixed",
        target={"url": "http://127.0.0.1:1"},
        clock=ClockIdentity(id="c", host="h"),
        epoch_offset_ns=0,
        started_at="2026-11-29T20:00:00.000Z",
        parameters=parameters,
    )
    with HistoryWriter(folder / "mixed.jsonl", header) as writer:
        yield Story(folder, writer)


def judged(folder: Path) -> dict[str, Any]:
    """The judgement, which its schema admits, as the history's schema admits each line."""
    package = resources.files("checkpoint_conformance")
    lines = (folder / "mixed.jsonl").read_text().splitlines()
    schema = json.loads(package.joinpath("history.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for line in lines:
        validator.validate(json.loads(line))
    judgement = judge_folder(folder)
    schema = json.loads(package.joinpath("judgement.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(judgement)
    (storm,) = judgement["storms"]
    return dict(storm)


def crashed(folder: Path, durability: str, *, lost: bool, again: bool = False) -> dict[str, Any]:
    """A workflow that a first worker let go and a second took over, then a crash."""
    with told(folder, durability=durability) as story:
        story.ask("x", LONG, 10)
        story.ask("x", Abandon(holder=LONG.holder, generation=1), 20)
        before = story.records["x"]
        story.ask("x", OTHER, 30)
        story.fault("store-kill", 100, 200)
        if lost:
            story.records["x"] = before if again else None
        third = replace(LONG, holder="h_" + "c" * 20)
        story.ask("x", third if again else Status(holder=OTHER.holder), 300)
    return judged(folder)


def test_what_survives_a_crash_is_counted(tmp_path: Path) -> None:
    """Right before, right after: one workflow came through, and nothing was lost."""
    storm = crashed(tmp_path, "change", lost=False)
    assert (storm["verdict"], storm["failures"]) == ("pass", [])
    assert storm["faults"] == {
        "durability": "change",
        "kinds": {
            "store-kill": {
                "runs": 1,
                "recovered": 1,
                "cuts": None,
                "recovery_ms": {"median": 10.0, "max": 10.0},
            }
        },
        "workflows_through_a_crash": 1,
        "acknowledged_lost": 0,
        "acknowledged_lost_as_declared": 0,
        "unavailable": 0,
        "unavailable_ms_max": 0.0,
    }
    assert storm["rules"]["WC-PRIV-5"] == {"status": "passed", "hits": 1}


def test_a_loss_beyond_what_is_declared_is_told(tmp_path: Path) -> None:
    """Three changes are gone of a store that keeps every one."""
    storm = crashed(tmp_path, "change", lost=True)
    assert storm["verdict"] == "fail"
    assert storm["failures"][0]["rules"][0] == "WC-PRIV-5"
    assert "declared is that it keeps: change" in storm["failures"][0]["why"]
    assert storm["faults"]["acknowledged_lost"] == 3
    assert storm["rules"]["WC-PRIV-5"]["status"] == "failed"


@pytest.mark.parametrize("durability", ["none", "second"])
def test_a_loss_within_what_is_declared_is_counted(tmp_path: Path, durability: str) -> None:
    """The same of a store that promises less; all of it is of the last moment."""
    storm = crashed(tmp_path, durability, lost=True)
    assert (storm["verdict"], storm["failures"]) == ("pass", [])
    assert storm["faults"]["acknowledged_lost"] == 0
    assert storm["faults"]["acknowledged_lost_as_declared"] == 3


@pytest.mark.parametrize(("before_ms", "may_be_lost"), [(1900, True), (2100, False)])
def test_what_is_synced_every_second_may_lose_two(
    tmp_path: Path, before_ms: int, may_be_lost: bool
) -> None:
    """A claim so long before the crash: such a store writes late while its disk is busy."""
    with told(tmp_path, durability="second") as story:
        story.ask("x", LONG, 10)
        story.ask("x", Status(holder=None), before_ms)
        story.fault("store-kill", before_ms + 10, before_ms + 20)
        story.records["x"] = None
        story.ask("x", Status(holder=LONG.holder), before_ms + 100)
    storm = judged(tmp_path)
    broken = [failure["rules"][0] for failure in storm["failures"]]
    assert broken == ([] if may_be_lost else ["WC-PRIV-5"])
    assert storm["faults"]["acknowledged_lost"] == (0 if may_be_lost else 1)


def test_what_a_crash_took_among_lost_answers_is_decided_in_time(tmp_path: Path) -> None:
    """Of a storm over a store that promises nothing: 285 of 350 answers lost, two crashes.

    This history once had every sequence of lost requests before the crashes tried.
    """
    stored = Path(__file__).with_name("histories") / "crashes_among_lost_answers.jsonl.gz"
    (tmp_path / "mixed.jsonl").write_bytes(gzip.decompress(stored.read_bytes()))
    (storm,) = judge_folder(tmp_path, steps_max=60_000)["storms"]
    assert storm["workflows"] == {"linearizable": 1}
    assert storm["faults"]["acknowledged_lost_as_declared"] > 0


@pytest.mark.parametrize("durability", ["none", "second"])
def test_a_generation_that_is_issued_again_is_fatal(tmp_path: Path, durability: str) -> None:
    """Of the same record, whatever may be lost."""
    storm = crashed(tmp_path, durability, lost=True, again=True)
    (failure,) = storm["failures"]
    assert (failure["rules"], failure["kind"]) == (["WC-CONC-2"], "fault")
    assert failure["got"] == "acquired 2 times: by c3, c4"
    assert storm["verdict"] == "fail"


def test_a_record_that_was_lost_whole_begins_anew(tmp_path: Path) -> None:
    """Generation 1 once more, of another record: that is what no durability means."""
    with told(tmp_path, durability="none") as story:
        story.ask("x", LONG, 10)
        story.fault("store-kill", 100, 200)
        story.records["x"] = None
        story.ask("x", OTHER, 300)
    assert judged(tmp_path)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("kind", "at_ms", "took_ms", "fails"),
    [
        ("store-freeze", 110, 80, True),
        ("store-kill", 110, 80, True),
        ("store-freeze", 90, 100, False),  # was under way before
        ("store-freeze", 110, 100, False),  # came when it was healed already
        ("store-slow", 110, 80, False),
        ("server-kill-one", 110, 80, False),
    ],
)
def test_no_answer_while_the_store_is_away(
    tmp_path: Path, kind: str, at_ms: int, took_ms: int, fails: bool
) -> None:
    """Decided between the fault and its healing, though nobody was there to decide."""
    with told(tmp_path, durability="change") as story:
        story.fault(kind, 100, 200)
        story.ask("x", Status(holder=None), at_ms, took_ms=took_ms)
    failures = judged(tmp_path)["failures"]
    assert [failure["rules"] for failure in failures] == ([["WC-ERR-5"]] if fails else [])


@pytest.mark.parametrize("late", [False, True])
def test_unavailable_comes_in_time(tmp_path: Path, late: bool) -> None:
    """To the millisecond; the time of the slowest is told."""
    took_ms = ANSWER_MS_MAX + ANSWER_SLACK_MS + late
    with told(tmp_path, durability="change") as story:
        story.ask("x", LONG, 1)
        story.fault("store-freeze", 100, 9000)
        story.unavailable("x", Status(holder=None), 200, took_ms)
    storm = judged(tmp_path)
    assert [failure["rules"] for failure in storm["failures"]] == [["WC-ERR-5"]] * late
    assert storm["faults"]["unavailable_ms_max"] == took_ms
    assert storm["rules"]["WC-ERR-5"]["hits"] == (0 if late else 1)


@pytest.mark.parametrize(
    ("at_ms", "reason", "excused"),
    [
        (150, LostReason.CLOSED, True),
        (210 + AFTERMATH_NS // MS, LostReason.CLOSED, True),
        (211 + AFTERMATH_NS // MS, LostReason.CLOSED, False),
        (50, LostReason.CLOSED, False),
        (150, DROPPED, True),
    ],
)
def test_what_has_no_answer_is_laid_to_a_fault_at_hand(
    tmp_path: Path, at_ms: int, reason: str, excused: bool
) -> None:
    """Else one lost answer of two makes the storm say too little."""
    with told(tmp_path, durability="change") as story:
        story.ask("x", LONG, 1)
        story.fault("server-kill", 100, 200)
        story.lose("x", Status(holder=None), at_ms, reason)
    storm = judged(tmp_path)
    assert storm["verdict"] == ("pass" if excused else "incomplete")
    assert bool(storm["incomplete_because"]) is not excused


@pytest.mark.parametrize("kind", ["store-freeze", "store-kill", "store-partition", "store-slow"])
def test_nothing_is_applied_while_the_store_is_away(tmp_path: Path, kind: str) -> None:
    """A claim that was lost meanwhile cannot have lapsed before the store was there again."""
    with told(tmp_path, durability="change") as story:
        story.ask("y", LONG, 1)
        story.fault(kind, 100, 3000)
        brief = replace(OTHER, claim_ttl_seconds=1)
        story.lose("x", brief, 500, LostReason.CLOSED)
        # As if it had been applied at 500 ms: its claim is over at 1500 ms.
        story.records["x"] = step(None, brief, EPOCH_MS + 500).record
        story.ask("x", replace(brief, holder=LONG.holder), 3100)
        story.ask("y", Status(holder=None), 3200)
    assert judged(tmp_path)["verdict"] == ("pass" if kind == "store-slow" else "fail")


def test_what_was_to_be_made_and_was_not_is_a_gap(tmp_path: Path) -> None:
    """A kind that never came, a cut that met nobody, a target that did not recover."""
    with told(tmp_path, durability="change", nemesis=["store-slow", "store-full"]) as story:
        story.ask("x", LONG, 1)
        story.fault("store-cut-in-answer", 100, 200, cuts=0)
        story.fault("store-full", 300, 400, recovers=False)
    assert judged(tmp_path)["incomplete_because"] == [
        "faults that were to be made, and were not: store-slow",
        "no connection came to where it was to be cut: store-cut-in-answer",
        "there was no good answer any more after store-full",
    ]


def test_the_format_knows_every_kind() -> None:
    """What may be made may be written."""
    text = resources.files("checkpoint_conformance").joinpath("history.schema.json").read_text()
    assert json.loads(text)["$defs"]["fault"]["properties"]["kind"]["enum"] == list(Kind)


def test_a_fault_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every member, also when it is looked for alone."""
    with told(tmp_path) as story:
        story.ask("x", LONG, 1)
        story.fault("client-cut-in-answer", 5, 6, cuts=3)
    file = read_file(tmp_path / "mixed.jsonl")
    (fault,) = file.faults()
    assert fault in list(file)
    assert (fault.kind, fault.cuts, fault.recovery_ms) == ("client-cut-in-answer", 3, 10.0)
