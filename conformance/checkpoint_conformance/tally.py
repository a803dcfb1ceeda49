"""What a run has seen so far: hits of each rule, failures, answers lost, checks done."""

import copy
import json
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.graph import Cell
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.plain import plain
from checkpoint_conformance.rules import Binding
from checkpoint_model import Identity, Request
from checkpoint_model.wire import FLAGS


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One request of a sequence, and its answer in short."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    """Those of this request alone."""
    target_headers: tuple[str, ...] = ()
    """Names of the headers that go with every request to the target, such as credentials."""
    body: bytes
    answered: str
    """In a few words."""
    members: dict[str, Any] | None = None
    """The answer, where it was a JSON object."""
    on_controls: bool = False
    binding: Binding = Binding.HTTP


ANSWER_MAX: Final = 400
"""Characters of an answer in a few words."""

Move: TypeAlias = Request | int
"""What a sequence is made of: a request, or milliseconds by which a frozen clock moves on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A fault, and the sequence that showed it."""

    check: str
    fault: Fault
    sequence: tuple[Sent, ...]
    got: dict[str, Any] | None
    """The answer to the last request, where it was JSON."""
    expected: dict[str, Any] | None
    """What the model says that the answer must have."""
    identity: Identity
    """The workflow that the sequence is about."""
    moves: tuple[Move, ...] | None = None
    """The sequence as requests to send again; None where it was more than that."""
    binding: Binding = Binding.HTTP
    """The one that its last request went by."""
    of_many: bool = False
    """Whether no single answer shows it, but only the order of many."""

    @property
    def key(self) -> str:
        """What it is known by: a rule may be broken over one binding and not over another."""
        return self.rule if self.binding is Binding.HTTP else f"{self.rule}.{self.binding}"

    @property
    def rule(self) -> str:
        """The rule that is broken in the first place."""
        return self.fault.rules[0]

    @property
    def size(self) -> tuple[int, int]:
        """How long the sequence is: the shorter is the better to read."""
        return len(self.sequence), sum(len(sent.body) for sent in self.sequence)


Hits: TypeAlias = Counter[str]
LOST_KINDS_MAX: Final = 50
"""Of requests that were lost, how many kinds are told apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """What one check took."""

    name: str
    title: str
    seconds: float
    requests: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """What was lost since the target answered last."""

    requests: int = 0
    why: str = ""
    """Of the last one; empty where there is none."""


@dataclass
class Tally:
    """Counts from all checks; safe for several threads."""

    hits: Hits = field(default_factory=Counter)
    """Over all bindings."""
    hits_over: dict[Binding, Hits] = field(default_factory=lambda: {b: Counter() for b in Binding})
    binding: Binding = Binding.HTTP
    """The one that the check at hand goes by."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """By :attr:`Failure.key`, the shortest seen."""
    requests: int = 0
    lost: int = 0
    silence: Silence = Silence()
    """In a run of several processes it goes from check to check at one target."""
    lost_why: Counter[str] = field(default_factory=Counter)
    lost_what: Counter[str] = field(default_factory=Counter)
    """Which requests those were, and why, in one line each; as many kinds as `LOST_KINDS_MAX`."""
    incomplete: list[str] = field(default_factory=list)
    """Why the run did not do all that it set out to do."""
    remarks: list[str] = field(default_factory=list)
    """What is worth knowing and changes no verdict."""
    moves: Counter[Cell] = field(default_factory=Counter)
    """How often each cell of the graph was gone through and held."""
    broken_moves: Counter[Cell] = field(default_factory=Counter)
    """How often the answer to one was wrong."""
    logs: Logs | None = None
    """The target's, which look out for what is sent."""
    timings: list["Timing"] = field(default_factory=list)
    """The checks that were done, in their order."""
    faults: Mapping[str, Any] | None = None
    """Figures of the faults that were made, as `report.schema.json` has them; None of none."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """What goes from one process to another: all but the lock."""
        with self._lock:
            return {
                name: value if name == "logs" else copy.deepcopy(value)
                for name, value in self.__dict__.items()
                if name != "_lock"
            }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take it up in another process."""
        self.__dict__.update(state, _lock=threading.Lock())

    def add(self, part: "Tally") -> None:
        """Count what a later part of the same run saw, as if it had been counted here.

        What only the order of many answers shows is told only where no single one was wrong
        before: no order explains what is decided wrongly one by one.
        """
        dropped: set[str] = set()
        broken_before = bool(self.failures)
        for failure in part.failures.values():
            if failure.of_many and broken_before:
                dropped.update(failure.fault.rules)
            else:
                self.fail(failure)
        with self._lock:
            self.hits.update(_without(part.hits, dropped))
            for binding, hits in part.hits_over.items():
                self.hits_over[binding].update(_without(hits, dropped))
            self.requests += part.requests
            self.lost += part.lost
            self.lost_why.update(part.lost_why)
            for line, times in part.lost_what.items():
                if line in self.lost_what or len(self.lost_what) < LOST_KINDS_MAX:
                    self.lost_what[line] += times
            self.moves.update(part.moves)
            self.broken_moves.update(part.broken_moves)
            for timing in part.timings:
                self._add_timing(timing)
            if part.faults is not None:
                self.faults = part.faults
            if self.logs is not None and part.logs is not None:
                for text, member in part.logs.others.items():
                    self.logs.know(text, member)
        for why in part.incomplete:
            self.leave_out(why)
        for what in part.remarks:
            self.remark(what)

    def _add_timing(self, timing: Timing) -> None:
        """A check that was done in several parts, one after the other in the list, is one."""
        last = self.timings[-1] if self.timings else None
        if last is not None and (last.name, last.title) == (timing.name, timing.title):
            self.timings[-1] = replace(
                last,
                seconds=last.seconds + timing.seconds,
                requests=last.requests + timing.requests,
            )
        else:
            self.timings.append(timing)

    def hit(self, *rules: str) -> None:
        """Count that rules were exercised and held."""
        with self._lock:
            self.hits.update(rules)
            self.hits_over[self.binding].update(rules)

    def moved(self, cell: Cell, *, held: bool) -> None:
        """Count that a cell of the graph was gone through."""
        with self._lock:
            (self.moves if held else self.broken_moves)[cell] += 1

    def sent(self) -> None:
        """Count a request."""
        with self._lock:
            self.requests += 1

    def answered(self) -> None:
        """Note that the target answered, so that whatever was lost before was a moment's."""
        self.silence = Silence()

    def lose(self, why: str, what: str = "a request") -> None:
        """Count a request whose outcome is unknown; ``what`` names it for people."""
        with self._lock:
            self.lost += 1
            self.silence = Silence(requests=self.silence.requests + 1, why=why)
            self.lost_why[why] += 1
            line = f"{what}: {why}"
            if line in self.lost_what or len(self.lost_what) < LOST_KINDS_MAX:
                self.lost_what[line] += 1

    def fail(self, failure: Failure) -> None:
        """Keep a failure, unless a shorter one of its rule and binding is known."""
        with self._lock:
            known = self.failures.get(failure.key)
            if known is None or failure.size < known.size:
                self.failures[failure.key] = failure

    def remark(self, what: str) -> None:
        """Say something that changes no verdict."""
        with self._lock:
            if what not in self.remarks:
                self.remarks.append(what)

    def leave_out(self, why: str) -> None:
        """Say that something was not done that should have been."""
        with self._lock:
            if why not in self.incomplete:
                self.incomplete.append(why)


def _without(hits: Hits, rules: set[str]) -> Hits:
    return Counter({rule: times for rule, times in hits.items() if rule not in rules})


def in_short(status: int, members: dict[str, Any] | None) -> str:
    """An answer in a few words, for the lines of a sequence: one line, whatever it holds."""
    return plain(_in_short(status, members), ANSWER_MAX)


def _in_short(status: int, members: dict[str, Any] | None) -> str:
    if members is None:
        return f"{status}"
    if "code" in members:
        return f"{status} {members['code']}"
    if "stage" not in members:
        return f"{status} {json.dumps(members)}"
    raised = [flag for flag in FLAGS if members.get(flag) is True]
    flags = f" {' '.join(raised)}" if raised else ""
    return f"{status}{flags} {members['stage']} generation {members.get('generation')}"
