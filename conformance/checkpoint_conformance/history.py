"""Stored histories: every call of a storm, one JSON line each, as it went over the wire.

A history is a folder of ``*.jsonl`` files. The first line of each file is its header, every other
line a call or an event; ``history.schema.json`` describes them, ``docs/histories.md`` tells how to
use them. Whoever makes traffic writes one (:class:`HistoryWriter`), whoever judges reads it
(:func:`read_folder`), at once or years later. Neither holds more than one line in memory.
"""

import itertools
import json
import platform
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, TypeAlias

import msgspec

from checkpoint_conformance.answers import json_object
from checkpoint_conformance.client import Exchange, HttpAnswer, Lost
from checkpoint_conformance.plain import TEXT_MAX, bounded, plain
from checkpoint_model import CONTRACT_VERSION
from checkpoint_model.linearizability import Answered

FORMAT: Final = "workflow-checkpoint-history"
VERSION: Final = 1
"""The version of the files' shape; it rises only when an old reader could misread a new file."""
SUFFIX: Final = ".jsonl"
DROPPED: Final = "the answer was dropped on purpose"
"""The reason of a lost answer that a storm itself threw away, to see what follows."""
_LINE_BYTES_MAX: Final = 1 << 20
"""A longer line is no call of this contract: requests have 8 KiB, answers about one."""
_NOT_OF_THE_FORMAT: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_WORKFLOW_KEY: Final = re.compile(rb'"workflow_key":\s*"([^"\\]*)"')
"""Where a line names its workflow; within a string of JSON the quotes would be escaped."""
_CLOCK_STEP: Final = b"clock-step"
_FAULT: Final = b'"event":"fault"'
_DECODER: Final = json.JSONDecoder()
"""Reads what Python writes: numbers beyond JSON, and halves of characters."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class HistoryError(ValueError):
    """The folder or file is no history, or cannot be written; the message says where and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockIdentity:
    """Which monotonic clock stamped a file: files are compared in real time only under one."""

    id: str
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a file says of itself: where it comes from, and nothing secret."""

    storm: str
    """The storm's name, such as ``claim``."""
    target: Mapping[str, Any]
    """What was asked: ``url``, and ``name`` and ``version`` where known; never credentials."""
    clock: ClockIdentity
    epoch_offset_ns: int
    """Our wall clock less our monotonic clock when the file was begun. For people, to say when
    something was; nothing is judged by it."""
    started_at: str
    """RFC 3339, UTC, by our wall clock."""
    contract: str = CONTRACT_VERSION
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """With what the storm was started: contenders, rounds, seed and the like."""


@dataclass(kw_only=True, slots=True)
class Call:
    """One request that was sent, once, and what came of it; nobody changes it.

    (That it be frozen would double the time that making one takes, and a judge makes a million.)
    Times are nanoseconds by the monotonic clock of the file's header.
    """

    client: str
    """Unique within the folder. A client's calls follow one another; one that lost an answer
    calls no more, what goes on in its place has another name."""
    request: Mapping[str, Any]
    """As section 3 has it, with the identities as they were sent."""
    called_ns: int
    """Just before the request's last byte was handed over."""
    returned_ns: int | None
    """Just after the answer's last byte; None when there was none."""
    answer: Answered | Lost
    sent_ns: int | None = None
    """Just after the last byte was handed over, where that was stamped."""
    gave_up_ns: int | None = None
    """When the caller stopped waiting; only of a lost answer."""
    round: int | None = None
    """The round of the storm, from 0; None where it has none."""
    burst: str | None = None
    """Calls of the same round and burst were released together; None where it was alone."""
    attempts: int = 1
    """How often it went over the wire. More than one makes the history worthless, since the
    first may have been applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockStep:
    """Somebody moved the target's clock, between these times of ours: a control, or a fault."""

    called_ns: int
    returned_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Injected:
    """A fault that was made, from its beginning to the first good answer after it.

    Times are nanoseconds by the monotonic clock of the file's header.
    """

    kind: str
    """One of :class:`checkpoint_conformance.faults.Kind`."""
    called_ns: int
    """Just before it was begun."""
    returned_ns: int
    """When it was in force."""
    healed_ns: int
    """When it was begun to be healed."""
    recovered_ns: int | None
    """When a probe that was sent afterwards had a decided answer; None where none came."""
    cuts: int | None = None
    """How many connections were cut; None of what is no cut."""

    @property
    def recovery_ms(self) -> float | None:
        """From the beginning of its healing to the first good answer."""
        if self.recovered_ns is None:
            return None
        return (self.recovered_ns - self.healed_ns) / 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The writer came to its end; a file without this line was cut off."""

    calls: int


Entry: TypeAlias = Call | ClockStep | Injected | End


@cache
def this_clock() -> ClockIdentity:
    """The monotonic clock of this process.

    On Linux every process since the last start of the machine shares one. Elsewhere nothing
    portable says so, and each process counts as a clock of its own: that loses some sharpness,
    and is never wrong.
    """
    try:
        clock_id = "boot-" + _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        clock_id = f"process-{uuid.uuid4()}"
    return ClockIdentity(id=clock_id, host=platform.node())


def begin_header(
    storm: str, target: Mapping[str, Any], parameters: Mapping[str, Any] | None = None
) -> Header:
    """The header of a file that is begun now, by this process."""
    return Header(
        storm=storm,
        target=dict(target),
        clock=this_clock(),
        epoch_offset_ns=time.time_ns() - time.monotonic_ns(),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        parameters=dict(parameters or {}),
    )


def answer_of(status: int, body: bytes) -> Answered:
    """A complete answer as it is stored: its status and the members of its body."""
    members = json_object(body)
    if members is not None and len(body) > TEXT_MAX:
        members = bounded(members)
    return Answered(status=status, members=members)


def call_of(
    exchange: Exchange,
    *,
    client: str,
    request: Mapping[str, Any],
    round: int | None = None,  # noqa: A002 - the storm's word for it
    burst: str | None = None,
) -> Call:
    """An exchange of the harness's own client, as it is stored."""
    answer = exchange.answer
    lost = not isinstance(answer, HttpAnswer)
    return Call(
        client=client,
        request=request,
        called_ns=exchange.called_ns,
        returned_ns=None if lost else exchange.returned_ns,
        gave_up_ns=exchange.returned_ns if lost else None,
        answer=answer if isinstance(answer, Lost) else answer_of(answer.status, answer.body),
        round=round,
        burst=burst,
    )


# -- writing ----------------------------------------------------------------------------


class HistoryWriter:
    """Appends entries to one file; each is on its way to the disk when the method returns.

    One writer belongs to one process. Threads may share it: a line is one write.

    Raises:
        HistoryError: the file exists, or cannot be written.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._calls = itertools.count()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what was written is in the file, even if the process is killed next.
            self._file: BinaryIO = path.open("xb", buffering=0)
        except OSError as error:
            raise HistoryError(f"cannot write the history {path}: {error.strerror}") from None
        self._write({"format": FORMAT, "version": VERSION, **_header_members(header)})

    def call(self, call: Call) -> None:
        """Append a call."""
        self._write(_call_members(call))
        next(self._calls)

    def clock_step(self, step: ClockStep) -> None:
        """Append that the target's clock was moved."""
        self._write(
            {"event": "clock-step", "called_ns": step.called_ns, "returned_ns": step.returned_ns}
        )

    def fault(self, fault: Injected) -> None:
        """Append that a fault was made and healed."""
        self._write({"event": "fault", **asdict(fault)})

    def close(self) -> None:
        """Say that this is all, and close the file."""
        if not self._file.closed:
            self._write({"event": "end", "calls": next(self._calls)})
            self._file.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; after an error without the last line, for something may be missing."""
        if error is None:
            self.close()
        else:
            self._file.close()

    def _write(self, members: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(members, separators=(",", ":"), allow_nan=False)
        except (ValueError, RecursionError):  # a number of the target's that is none of JSON's
            line = json.dumps(bounded(members), separators=(",", ":"), allow_nan=False)
        try:
            self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError as error:
            raise HistoryError(f"cannot write the history {self.path}: {error.strerror}") from None


def _header_members(header: Header) -> dict[str, Any]:
    return {
        "contract": header.contract,
        "storm": header.storm,
        "target": dict(header.target),
        "clock": {"id": header.clock.id, "host": header.clock.host},
        "epoch_offset_ns": header.epoch_offset_ns,
        "started_at": header.started_at,
        "parameters": dict(header.parameters),
    }


def _call_members(call: Call) -> dict[str, Any]:
    members: dict[str, Any] = {"client": call.client}
    if call.round is not None:
        members["round"] = call.round
    if call.burst is not None:
        members["burst"] = call.burst
    members["request"] = call.request
    members["called_ns"] = call.called_ns
    if call.sent_ns is not None:
        members["sent_ns"] = call.sent_ns
    members["returned_ns"] = call.returned_ns
    if isinstance(call.answer, Lost):
        if call.gave_up_ns is not None:
            members["gave_up_ns"] = call.gave_up_ns
        members["lost"] = {"reason": call.answer.reason, "detail": plain(call.answer.detail)}
    else:
        members["answer"] = {"status": call.answer.status, "members": call.answer.members}
    members["attempts"] = call.attempts
    return members


# -- reading ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryFile:
    """One file of a history: its header, and what follows, read as it is asked for."""

    path: Path
    header: Header

    def __iter__(self) -> Iterator[Entry]:
        """Every entry after the header, in the order in which they were written.

        Raises:
            HistoryError: a line is not what the format says. That the last one was cut off is
                no error: there is then no :class:`End`.
        """
        for number, line in _lines(self.path):
            if number == 1:
                continue
            try:
                yield _read(line)
            except _NOT_OF_THE_FORMAT as error:
                if not line.endswith(b"\n"):
                    return
                raise _wrong_line(self.path, number, error) from None

    def clock_steps(self) -> list[ClockStep]:
        """Only the steps of the target's clock, which are few and bear on all that is before."""
        if not _has(self.path, _CLOCK_STEP):
            return []
        return [
            entry
            for entry in self._some(lambda line: _CLOCK_STEP in line)
            if isinstance(entry, ClockStep)
        ]

    def faults(self) -> list[Injected]:
        """Only the faults that were made."""
        if not _has(self.path, _FAULT):
            return []
        return [entry for entry in self._some(lambda x: _FAULT in x) if isinstance(entry, Injected)]

    def calls_with(self, workflow_keys: Collection[str]) -> Iterator[Call]:
        """Only the calls on a few workflows, far faster than all entries."""
        wanted = set(workflow_keys)
        written = {key.encode() for key in wanted}

        def may_be_wanted(line: bytes) -> bool:
            found = _WORKFLOW_KEY.search(line)
            # One that is written with escapes is read to be sure.
            return found is None or found[1] in written

        for entry in self._some(may_be_wanted):
            if isinstance(entry, Call) and entry.request["workflow_key"] in wanted:
                yield entry

    def _some(self, chosen: Callable[[bytes], bool]) -> Iterator[Entry]:
        for number, line in _lines(self.path):
            if number > 1 and line.endswith(b"\n") and chosen(line):
                yield _read(line)


def read_folder(folder: Path) -> list[HistoryFile]:
    """The files of a history, by name; or the one file that the path names.

    Raises:
        HistoryError: there is none, or one of them has no header that this version can read.
    """
    paths = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else [folder]
    if not paths:
        raise HistoryError(
            f"there is no history in {folder}: no file that ends in {SUFFIX}. "
            "A storm writes one: workflow-checkpoint storm --history DIR"
        )
    return [read_file(path) for path in paths]


def read_file(path: Path) -> HistoryFile:
    """One file of a history: the header is read, the rest when it is asked for.

    Raises:
        HistoryError: it has no header that this version can read.
    """
    for _, line in _lines(path):
        try:
            return HistoryFile(path=path, header=_header(json.loads(line)))
        except HistoryError as error:
            raise HistoryError(f"{path}: {error}") from None
        except _NOT_OF_THE_FORMAT as error:
            raise _wrong_line(path, 1, error) from None
    raise HistoryError(f"{path} is empty: it has not even a header")


class _AnswerMembers(msgspec.Struct, gc=False):
    status: Any
    members: Any


class _LostMembers(msgspec.Struct, gc=False):
    reason: Any
    detail: Any


class _CallMembers(msgspec.Struct, gc=False):
    """A call, as a line of the file has it; what it may hold is not looked at."""

    client: Any
    request: Any
    called_ns: Any
    returned_ns: Any
    attempts: Any
    answer: _AnswerMembers | msgspec.UnsetType = msgspec.UNSET
    lost: _LostMembers | msgspec.UnsetType = msgspec.UNSET
    round: Any = None
    burst: Any = None
    sent_ns: Any = None
    gave_up_ns: Any = None
    event: None = None


_CALLS: Final = msgspec.json.Decoder(_CallMembers)


def _read(line: bytes) -> Entry:
    """One line after the header.

    Nearly all are calls, which are read straight into what they are, in half the time. The reader
    that does so is stricter than ours and finds the same in what it takes, so whatever it does not
    take is read by ours.
    """
    try:
        call = _CALLS.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _entry(_members(line))
    answer: Answered | Lost
    if call.lost is not msgspec.UNSET:
        answer = Lost(reason=call.lost.reason, detail=call.lost.detail)
    elif call.answer is not msgspec.UNSET:
        answer = Answered(status=call.answer.status, members=call.answer.members)
    else:
        return _entry(_members(line))
    return Call(
        client=call.client,
        round=call.round,
        burst=call.burst,
        request=call.request,
        called_ns=call.called_ns,
        sent_ns=call.sent_ns,
        returned_ns=call.returned_ns,
        gave_up_ns=call.gave_up_ns,
        answer=answer,
        attempts=call.attempts,
    )


def _members(line: bytes) -> Any:
    # What `json.loads` does, which looks at each line for other encodings than this.
    return _DECODER.decode(line.decode("utf-8", "surrogatepass"))


def _has(path: Path, what: bytes) -> bool:
    """Whether a file has some words anywhere, which is much faster to tell than where."""
    try:
        with path.open("rb") as file:
            before = b""
            while piece := file.read(_LINE_BYTES_MAX):
                if what in before + piece:
                    return True
                before = piece[-len(what) :]
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {error.strerror}") from None
    return False


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LINE_BYTES_MAX):
                number += 1
                yield number, line
    except FileNotFoundError:
        raise HistoryError(f"there is no {path}") from None
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {error.strerror}") from None


def _wrong_line(path: Path, number: int, error: Exception) -> HistoryError:
    said = f"{type(error).__name__}: {plain(error, 200)}"
    return HistoryError(f"{path}, line {number} is not what a history has: {said}")


def _header(members: Mapping[str, Any]) -> Header:
    if members.get("format") != FORMAT:
        raise HistoryError(f"it is no history: its first line has no format {FORMAT!r}")
    if members["version"] != VERSION:
        raise HistoryError(
            f"it has version {plain(members['version'], 40)}, this version reads {VERSION}: "
            "update it with pip install --upgrade workflow-checkpoint"
        )
    clock = members["clock"]
    return Header(
        storm=members["storm"],
        target=members["target"],
        clock=ClockIdentity(id=clock["id"], host=clock["host"]),
        epoch_offset_ns=members["epoch_offset_ns"],
        started_at=members["started_at"],
        contract=members["contract"],
        parameters=members["parameters"],
    )


def _entry(members: Mapping[str, Any]) -> Entry:
    event = members.get("event")
    if event is not None:
        if event == "clock-step":
            return ClockStep(called_ns=members["called_ns"], returned_ns=members["returned_ns"])
        if event == "fault":
            return Injected(
                kind=members["kind"],
                called_ns=members["called_ns"],
                returned_ns=members["returned_ns"],
                healed_ns=members["healed_ns"],
                recovered_ns=members["recovered_ns"],
                cuts=members["cuts"],
            )
        if event == "end":
            return End(calls=members["calls"])
        raise ValueError(f"an event {event!r}")
    answer: Answered | Lost
    if "lost" in members:
        lost = members["lost"]
        answer = Lost(reason=lost["reason"], detail=lost["detail"])
    else:
        answered = members["answer"]
        answer = Answered(status=answered["status"], members=answered["members"])
    found = members.get
    return Call(
        client=members["client"],
        round=found("round"),
        burst=found("burst"),
        request=members["request"],
        called_ns=members["called_ns"],
        sent_ns=found("sent_ns"),
        returned_ns=members["returned_ns"],
        gave_up_ns=found("gave_up_ns"),
        answer=answer,
        attempts=members["attempts"],
    )
