"""Stored histories: what is written is what the schema says, and is read as it was."""

import dataclasses
import json
import tracemalloc
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from checkpoint_conformance import history
from checkpoint_conformance.client import Exchange, HttpAnswer, Lost, LostReason
from checkpoint_conformance.history import (
    Call,
    ClockStep,
    End,
    Entry,
    Header,
    HistoryError,
    HistoryWriter,
    begin_header,
    call_of,
    read_file,
    read_folder,
    this_clock,
)
from checkpoint_model.linearizability import Answered

SCHEMA = json.loads(
    resources.files("checkpoint_conformance").joinpath("history.schema.json").read_text("utf-8")
)
CHECKER = jsonschema.Draft202012Validator(SCHEMA)
REQUEST = {"action": "status", "namespace": "n", "workflow_key": "w_0123456789abcdef"}
FULL = Call(
    client="c1",
    round=0,
    burst="claims",
    request=REQUEST,
    called_ns=5,
    sent_ns=6,
    returned_ns=9,
    answer=Answered(status=404, members={"code": "CHECKPOINT_NOT_FOUND"}),
)
BARE = Call(
    client="c2",
    request=REQUEST,
    called_ns=5,
    returned_ns=9,
    answer=Answered(status=502, members=None),
)
LOST = Call(
    client="c3",
    request=REQUEST,
    called_ns=5,
    returned_ns=None,
    gave_up_ns=11,
    answer=Lost(reason=LostReason.TIMED_OUT, detail=""),
    attempts=2,
)
STEP = ClockStep(called_ns=20, returned_ns=21)


def header() -> Header:
    """A header as a storm begins one."""
    return begin_header("claim", {"url": "http://127.0.0.1:1"}, {"contenders": 3, "seed": 7})


def write(path: Path, *entries: Entry) -> Path:
    """A file with these entries, written to its end."""
    with HistoryWriter(path, header()) as writer:
        for entry in entries:
            if isinstance(entry, Call):
                writer.call(entry)
            elif isinstance(entry, ClockStep):
                writer.clock_step(entry)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Every member of every kind of entry comes back."""
    path = write(tmp_path / "a.jsonl", FULL, BARE, LOST, STEP)
    found = read_file(path)
    assert list(found) == [FULL, BARE, LOST, STEP, End(calls=3)]
    assert dataclasses.replace(found.header, epoch_offset_ns=0, started_at="") == (
        dataclasses.replace(header(), epoch_offset_ns=0, started_at="")
    )


def test_every_line_is_of_the_schema(tmp_path: Path) -> None:
    """The schema admits what is written, so others may rely on it."""
    path = write(tmp_path / "a.jsonl", FULL, BARE, LOST, STEP)
    for line in path.read_text("utf-8").splitlines():
        CHECKER.validate(json.loads(line))


@pytest.mark.parametrize(
    "change",
    [
        {"returned_ns": None},
        {"answer": None},
        {"lost": {"reason": "x", "detail": ""}},
        {"client": ""},
        {"attempts": 0},
        {"called_ns": 1.5},
        {"gave_up_ns": 3},
        {"round": -1},
        {"more": 1},
    ],
)
def test_the_schema_refuses_what_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    """A schema that admits everything would tell nothing."""
    path = write(tmp_path / "a.jsonl", FULL)
    entry = json.loads(path.read_text("utf-8").splitlines()[1])
    assert CHECKER.is_valid(entry)
    assert not CHECKER.is_valid(entry | change)


@pytest.mark.parametrize("url", ["http://user:secret@host", "host", "http://host?key=secret"])
def test_the_schema_refuses_credentials_in_the_url(tmp_path: Path, url: str) -> None:
    """A history is passed on; what opens a deployment has no place in it."""
    path = write(tmp_path / "a.jsonl")
    entry = json.loads(path.read_text("utf-8").splitlines()[0])
    assert not CHECKER.is_valid(entry | {"target": {"url": url}})


def test_the_files_of_a_folder_are_told_apart(tmp_path: Path) -> None:
    """By name, each with its own header; what is no history beside them is left alone."""
    write(tmp_path / "b.jsonl", FULL)
    write(tmp_path / "a.jsonl", BARE, LOST)
    (tmp_path / "judgement.json").write_text("{}")
    assert [(file.path.name, len(list(file))) for file in read_folder(tmp_path)] == [
        ("a.jsonl", 3),
        ("b.jsonl", 2),
    ]


def test_a_history_is_never_overwritten(tmp_path: Path) -> None:
    """It may be the only witness of a fault that took hours to meet."""
    path = write(tmp_path / "a.jsonl", FULL)
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="File exists"):
        HistoryWriter(path, header())
    assert path.read_bytes() == before


def test_a_file_that_was_cut_off_has_no_end(tmp_path: Path) -> None:
    """Killed in the middle of a line: what is whole is read, and that is not all."""
    path = write(tmp_path / "a.jsonl", FULL, LOST)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:2]) + whole[2][:40])
    assert list(read_file(path)) == [FULL]


def test_a_writer_that_fails_does_not_say_that_it_ended(tmp_path: Path) -> None:
    """Something may be missing, and only the last line could deny it."""

    def write_and_fail() -> None:
        with HistoryWriter(tmp_path / "a.jsonl", header()) as writer:
            writer.call(FULL)
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert list(read_file(tmp_path / "a.jsonl")) == [FULL]


def test_each_call_is_in_the_file_at_once(tmp_path: Path) -> None:
    """A storm that is killed leaves what it saw."""
    writer = HistoryWriter(tmp_path / "a.jsonl", header())
    writer.call(FULL)
    assert list(read_file(tmp_path / "a.jsonl")) == [FULL]
    writer.close()


def test_memory_stays_flat(tmp_path: Path) -> None:
    """Neither side keeps what went through it: a MB of history costs a small part of that."""
    path = tmp_path / "a.jsonl"
    tracemalloc.start()
    try:
        with HistoryWriter(path, header()) as writer:
            for _ in range(4000):
                writer.call(FULL)
        assert sum(1 for _ in read_file(path)) == 4001
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 4
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[]\n", "line 1"),
        ("{}\n", "no history"),
        ('{"format":"workflow-checkpoint-history","version":2}\n', "version 2"),
        ('{"format":"workflow-checkpoint-history","version":1}\n', "line 1"),
    ],
)
def test_a_file_without_a_header_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With words that say what was found."""
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(HistoryError, match=said):
        read_folder(tmp_path)


@pytest.mark.parametrize("line", ["{}", "[]", "nonsense", '{"event":"lunch"}'])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    """By file and number; silence would drop a call that happened."""
    path = write(tmp_path / "a.jsonl", FULL)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(HistoryError, match=r"a\.jsonl, line 4"):
        list(read_file(path))


def test_a_step_of_the_clock_is_found_wherever_it_stands(tmp_path: Path) -> None:
    """Also across the pieces in which a file is looked through."""
    path = write(tmp_path / "a.jsonl", FULL)
    begun = path.read_bytes()
    event = b'{"event":"clock-step","called_ns":1,"returned_ns":2}\n'
    for before in range(8, 24):
        blanks = b" " * ((1 << 20) - len(begun) - before - 1)
        path.write_bytes(begun + blanks + event)
        assert read_file(path).clock_steps() == [ClockStep(called_ns=1, returned_ns=2)]


def test_a_few_calls_are_found_among_many(tmp_path: Path) -> None:
    """By workflow key, however the line spells it; and the steps of the clock alone."""
    other = dataclasses.replace(FULL, request={**REQUEST, "workflow_key": "w_fedcba9876543210"})
    path = write(tmp_path / "a.jsonl", FULL, other, LOST, STEP, other)
    with path.open("a") as file:
        spelled = json.loads(path.read_text().splitlines()[2])
        file.write(json.dumps(spelled).replace("w_fedc", "w_\\u0066edc") + "\n")
    found = read_file(path)
    assert list(found.calls_with(["w_fedcba9876543210"])) == [other] * 3
    assert found.clock_steps() == [STEP]


def test_a_folder_without_history_is_refused(tmp_path: Path) -> None:
    """Nothing judged is never a pass."""
    with pytest.raises(HistoryError, match="no history"):
        read_folder(tmp_path)
    with pytest.raises(HistoryError, match="there is no"):
        read_folder(tmp_path / "missing")


def test_what_is_no_json_of_ours_is_stored_all_the_same(tmp_path: Path) -> None:
    """A target may answer anything: numbers beyond JSON, lone surrogates, no object at all."""
    body = b'{"a":1e999,"b":"\\ud800"}'
    for name, answered in (("a", body), ("b", b"<html>")):
        exchange = Exchange(
            method="POST",
            path="/",
            headers=(),
            body=b"",
            called_ns=1,
            returned_ns=2,
            answer=HttpAnswer(status=200, headers=(), body=answered),
        )
        write(tmp_path / f"{name}.jsonl", call_of(exchange, client="c", request=REQUEST))
    answers = [
        entry.answer.members
        for file in read_folder(tmp_path)
        for entry in file
        if isinstance(entry, Call) and isinstance(entry.answer, Answered)
    ]
    assert answers == [{"a": "inf", "b": "\ud800"}, None]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"called_ns": 1 << 70},
        {"called_ns": 5.5},
        {"client": None},
        {"client": ["c", {"d": 1e-7}]},
        {"request": {"a": "\ud800", "b": float("inf"), "c": float("nan")}},
        {"answer": {"status": "200", "members": [1, -0.0, True]}},
        {"answer": {"status": 200, "members": {"deep": [[[[{"a": "é\u0000"}]]]]}, "more": 1}},
        {"answer": None},
        {"answer": {"status": 200}},
        {"lost": {"reason": "r", "detail": "d"}},
        {"lost": None},
        {"lost": {"reason": "r"}},
        {"answer": None, "lost": {"reason": 1, "detail": None}},
        {"event": None},
        {"event": "end", "calls": 3},
        {"event": "end"},
        {"event": "other"},
        {"unknown": [1]},
        {"attempts": ...},
        {"answer": ...},
        {"answer": ..., "lost": {"reason": "r", "detail": "d"}},
        {"returned_ns": ...},
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_fast_reader_of_lines_reads_what_the_other_does(
    change: dict[str, Any], ascii_only: bool
) -> None:
    """Whatever stands in a line, and what is wrong with it is the same fault."""
    members: dict[str, Any] = {
        "client": "c",
        "request": dict(REQUEST),
        "called_ns": 5,
        "returned_ns": 9,
        "answer": {"status": 200, "members": {"stage": "claimed"}},
        "attempts": 1,
    }
    members = {k: v for k, v in (members | change).items() if v is not ...}
    text = json.dumps(members, ensure_ascii=ascii_only)
    line = text.encode("utf-8", "surrogatepass") + b"\n"

    def read(reader: Callable[[bytes], Entry]) -> tuple[type, str]:
        try:
            entry = reader(line)
        except (KeyError, ValueError, TypeError) as error:
            return type(error), str(error)
        return type(entry), repr(entry)  # for a number that is none is not equal to itself

    assert read(history._read) == read(lambda one: history._entry(history._members(one)))


def test_a_lost_exchange_stays_open(tmp_path: Path) -> None:
    """It has no return; when the caller gave up is told apart."""
    lost = Lost(reason=LostReason.CUT, detail="by peer")
    exchange = Exchange(
        method="POST", path="/", headers=(), body=b"", called_ns=1, returned_ns=2, answer=lost
    )
    path = write(tmp_path / "a.jsonl", call_of(exchange, client="c", request=REQUEST))
    (call, _) = read_file(path)
    assert isinstance(call, Call)
    assert (call.returned_ns, call.gave_up_ns, call.answer) == (None, 2, lost)


def test_this_process_names_its_clock() -> None:
    """The same each time: files of one process are compared with one another."""
    assert this_clock() == this_clock()
    assert this_clock().id.startswith(("boot-", "process-"))
