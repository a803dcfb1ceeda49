"""The verdict on a history: every workflow by the model, every rule by what the storm did to it.

:func:`judge_folder` is the one judge of storms, whoever made them and whenever. It reads a history
once, keeps of each call what the checker compares, judges workflow by workflow, and reads the
history again only for those workflows that are shown. What it finds is a document
(``judgement.json``, described by ``judgement.schema.json``) from which every view is rendered.
"""

import gc
import json
import statistics
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from checkpoint_conformance.contention import (
    in_flight_max,
    most_at_once,
    percentile,
    spread_ns,
)
from checkpoint_conformance.forked import each, processes_for
from checkpoint_conformance.history import (
    DROPPED,
    Call,
    End,
    HistoryError,
    HistoryFile,
    read_folder,
)
from checkpoint_conformance.judging_faults import FaultJudge, acknowledged_lost
from checkpoint_conformance.oracle import rules_of_member
from checkpoint_conformance.plain import bounded, number, plain
from checkpoint_conformance.verdict import EXIT_CODES, LOST_SHARE_MAX, Verdict
from checkpoint_model import (
    CONTRACT_VERSION,
    Claim,
    ErrorCode,
    Identity,
    Record,
    Request,
    Success,
    Transition,
    format_timestamp,
    parse_request,
    parse_timestamp,
    step,
)
from checkpoint_model.linearizability import (
    STEPS_MAX,
    Answered,
    AnswerError,
    ClockViolation,
    Crash,
    Illegal,
    Linearizable,
    Loss,
    OffsetFault,
    Offsets,
    Operation,
    Placed,
    Seen,
    Unknown,
    check,
    find_order,
    retrace,
    see_call,
)
from checkpoint_model.linearizability import Verdict as WorkflowVerdict
from checkpoint_model.wire import FLAGS

FORMAT: Final = "workflow-checkpoint-judgement"
VERSION: Final = 1
"""The version of the document's shape; it rises when a member changes its meaning."""
FILE_NAME: Final = "judgement.json"
CONTENDERS_MIN: Final = 10
"""Fewer requests in flight at once than this are no contention."""
UNDECIDED: Final = "unknown"
"""The kind of a failure that is none of the target's: the budget of steps was spent."""
LOSS_STEPS_MAX: Final = 200_000
"""How many are tried, of a workflow that is wrong, to tell that a crash took too much."""
FAILURES_SHOWN_MAX: Final = 5
WORKFLOWS_SHOWN_MAX: Final = 24
OPERATIONS_SHOWN_MAX: Final = 12_000
"""Of all workflows that are shown together: what a page can still draw."""
PERCENTILES: Final = (50, 90, 95, 99)
BURSTS_SHOWN_MAX: Final = 1000
RULES: Final = ("WC-CONC-1", "WC-CONC-2", "WC-CONC-3", "WC-CONC-4", "WC-TIME-1", "WC-ID-2")
"""What a storm exercises; others are named where they are broken."""
_TELL_EVERY: Final = 5000
_SEEN_MIN: Final = 20_000
"""So many operations a process judges at least: some tenths of a second."""
_MS: Final = 1_000_000
_DECISIVE: Final = frozenset(
    {"code", "observed_at", "stage", "generation", "acquired", "recovered", "reused"}
    | {"transitioned", "observation_replayed", "abandoned", "claim_active", "held_by_caller"}
    | {"claim_expires_at", "state_expires_at", "evidence_type", "evidence_fingerprint_present"}
)
"""Members that are wrong only where the state or the decision is."""
_WORDING: Final = frozenset({"type", "title", "detail", "recovery"})
_CODES: Final = frozenset(map(str, ErrorCode))

Tell: TypeAlias = Callable[[str, int, int], None]
"""Told now and then what is being done, how far it is, and of how much (0: not known)."""


class JudgementError(Exception):
    """There is no judgement that can be read, or it cannot be written; the message says why."""


def judge_folder(
    folder: Path, *, steps_max: int = STEPS_MAX, tell: Tell | None = None
) -> dict[str, Any]:
    """Judge a history.

    Args:
        folder: with its files, or one of them.
        steps_max: how many steps of the model may be tried for one workflow.
        tell: is told how far it is.

    Returns:
        The judgement, as ``judgement.schema.json`` has it.

    Raises:
        HistoryError: there is no history, or none that this version can read.
    """
    storms: dict[str, list[HistoryFile]] = defaultdict(list)
    for file in read_folder(folder):
        storms[file.header.storm].append(file)
    with _no_collector():
        judged = [
            _Storm(name, files, steps_max, tell or _say_nothing).judge()
            for name, files in storms.items()
        ]
    verdict = _worst(Verdict(storm["verdict"]) for storm in judged)
    return {
        "format": FORMAT,
        "version": VERSION,
        "contract": CONTRACT_VERSION,
        "verdict": str(verdict),
        "line": f"{verdict.upper()}: " + "; ".join(f"{s['storm']}: {s['line']}" for s in judged),
        "storms": judged,
    }


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without the garbage collector: of what is kept of a million calls nothing is a cycle.

    It would look through all of them, again and again, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def exit_code(judgement: Mapping[str, Any]) -> int:
    """What a command says with its exit code (decision D5)."""
    return EXIT_CODES[Verdict(judgement["verdict"])]


def write_judgement(folder: Path, judgement: Mapping[str, Any]) -> Path:
    """Write ``judgement.json`` beside the history, and say where it is.

    Raises:
        JudgementError: the folder cannot be written.
    """
    path = (folder if folder.is_dir() else folder.parent) / FILE_NAME
    try:
        path.write_text(json.dumps(judgement, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise JudgementError(f"cannot write {path}: {error.strerror}") from None
    return path


def read_judgement(folder: Path) -> dict[str, Any]:
    """The judgement that was written beside a history.

    Raises:
        JudgementError: there is none, or none that this version can read.
    """
    path = folder / FILE_NAME if folder.is_dir() else folder
    try:
        judgement = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JudgementError(
            f"cannot read {path}: {error.strerror}. workflow-checkpoint recheck writes one"
        ) from None
    except (ValueError, RecursionError) as error:
        raise JudgementError(f"{path} is not JSON: {plain(error, 200)}") from None
    if not isinstance(judgement, dict) or judgement.get("format") != FORMAT:
        raise JudgementError(f"{path} is no judgement of a history")
    if judgement.get("version") != VERSION:
        raise JudgementError(f"{path} has another version than {VERSION}: judge it again")
    return judgement


def _say_nothing(what: str, done: int, of: int) -> None:
    del what, done, of


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.INCOMPLETE):
        if verdict in found:
            return verdict
    return Verdict.PASS


# -- one storm --------------------------------------------------------------------------


class _Release(NamedTuple):
    """What is remembered of a call that was released together with others."""

    called_ns: int
    sent_ns: int | None
    returned_ns: int | None
    decided: bool
    flag: str
    """``acquired`` or ``transitioned`` where its answer raised one, else empty."""
    kind: object
    """What it contends for: of a claim the workflow, of a transition its whole request."""
    client: str
    generation: object


@dataclass(slots=True)
class _Workflow:
    """What is kept of one workflow until it is judged."""

    identity: Identity
    seen: list[Seen] = field(default_factory=list)
    calls: int = 0
    round: int | None = None
    first_ns: int = 1 << 62
    last_ns: int = 0
    hashes: set[str] = field(default_factory=set)
    fault: str = ""
    """What is wrong with an answer whatever the order, if anything."""

    @property
    def tells(self) -> bool:
        """Whether any answer tells what was decided."""
        return any(one.observed_at_ms is not None for one in self.seen)


@dataclass(slots=True)
class _Counts:
    calls: int = 0
    decided: int = 0
    unchanged: int = 0
    lost: int = 0
    """Without an answer, whether dropped on purpose or not."""
    dropped: int = 0
    untold: int = 0
    """Answers that do not tell whether the request was applied."""
    repeated: int = 0
    """Calls that went over the wire more than once."""
    answers: Counter[str] = field(default_factory=Counter)
    lost_why: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Clock:
    """What is gathered of the calls that one monotonic clock stamped."""

    id: str
    offsets: Offsets | None
    """None where its times are not held against the target's."""
    sent: "array[float]" = field(default_factory=lambda: array("d"))
    returned: "array[float]" = field(default_factory=lambda: array("d"))
    """When those that were answered were sent, and when they returned, in nanoseconds."""


class _Requests:
    """Requests, each read once: most of a storm's ask what another did of some other workflow."""

    _ASKED: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
        "claim": itemgetter("holder", "claim_ttl_seconds", "state_ttl_seconds", "retry_failed"),
        "transition": itemgetter("holder", "generation", "to_stage", "observation_key"),
        "abandon": itemgetter("holder", "generation"),
    }
    """What each action must bring, beside the workflow."""

    def __init__(self) -> None:
        self._known: dict[Any, Request] = {}

    def read(self, body: Mapping[str, Any]) -> Request:
        """As :func:`parse_request` does, with the same errors, and one object for equal ones."""
        action = body["action"]
        try:
            # What need not be there says the same as null.
            if action == "status":
                asked: Any = (action, body.get("holder"))
            elif action == "transition":
                evidence = body.get("evidence_type"), body.get("evidence_fingerprint")
                asked = (action, self._ASKED[action](body), evidence)
            else:
                asked = (action, self._ASKED[action](body))
        except KeyError:
            return parse_request(body)[1]
        request = self._known.get(asked)
        if request is None:
            request = self._known[asked] = parse_request(body)[1]
        return request


class _Storm:
    """The judge of one storm of a history, all its files together."""

    def __init__(self, name: str, files: Sequence[HistoryFile], steps_max: int, tell: Tell) -> None:
        self.name = name
        self.files = files
        self._steps_max = steps_max
        self._tell = tell
        self._counts = _Counts()
        self._clients: set[str] = set()
        self._workflows: dict[Identity, _Workflow] = {}
        self._named: dict[tuple[str, str], _Workflow] = {}
        """The same by namespace and key: hashing an identity takes longer than all else of it."""
        self._requests = _Requests()
        self._latencies: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._releases: dict[tuple[int, str], list[_Release]] = defaultdict(list)
        self._clocks: dict[str, _Clock] = {}
        self._steps: list[tuple[int, int]] = []
        self._kept: dict[Any, Any] = {}
        self._cut_off: list[str] = []
        self._verdicts: Counter[str] = Counter()
        self._broken: dict[Identity, None] = {}
        self._undecided: dict[Identity, None] = {}
        self._judged_rounds: set[int] = set()
        self._remarks: list[str] = []
        self._faults = FaultJudge(files)
        self._lost_more: set[Identity] = set()
        """Workflows that an order explains only if a crash took more than it may."""

    def judge(self) -> dict[str, Any]:
        """Read, judge, look closer at what is shown, and say what was found."""
        self._read()
        faults = [self._offset_failure(fault) for fault in self._offset_faults()]
        faults += self._hash_failures()
        faults += self._faults.failures()
        self._judge_workflows()
        broken = [*self._broken, *self._undecided]
        shown = self._shown(broken)
        faults = [f for _, f in shown if f is not None] + faults
        return self._document(broken, shown, faults)

    # -- reading -------------------------------------------------------------------------

    def _read(self) -> None:
        steps = self._clock_steps()
        self._steps = [step for moved in steps.values() for step in moved]
        for file in self.files:
            clock_id = file.header.clock.id
            clock = self._clocks.get(clock_id)
            if clock is None:
                # Where the clock was moved is known by one clock of ours alone; times that another
                # stamped are not held against the target's then.
                known = not steps or clock_id in steps
                offsets = Offsets(steps.get(clock_id, ())) if known else None
                clock = self._clocks[clock_id] = _Clock(clock_id, offsets)
            ended = False
            for entry in file:
                if isinstance(entry, Call):
                    self._take(entry, clock)
                    if self._counts.calls % _TELL_EVERY == 0:
                        self._tell(f"reading {self.name}", self._counts.calls, 0)
                elif isinstance(entry, End):
                    ended = True
            if not ended:
                self._cut_off.append(file.path.name)
        for workflow in self._workflows.values():
            workflow.seen = [self._with_earliest(one, workflow.last_ns) for one in workflow.seen]

    def _clock_steps(self) -> dict[str, list[tuple[int, int]]]:
        """When the target's clock was moved, by the clock of ours that says so.

        They are looked for before anything else, for they bear on calls that stand before them.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        for file in self.files:
            steps = [(s.called_ns, s.returned_ns) for s in file.clock_steps()]
            if steps:
                found.setdefault(file.header.clock.id, []).extend(steps)
        return found

    def _take(self, call: Call, clock: _Clock) -> None:
        counts = self._counts
        counts.calls += 1
        counts.repeated += call.attempts > 1
        self._clients.add(call.client)
        called_ns, returned_ns = call.called_ns, call.returned_ns
        try:
            workflow = self._workflow_of(call.request)
            request = self._requests.read(call.request)
        except (KeyError, ValueError, TypeError) as error:
            raise HistoryError(
                f"a call of {plain(call.client, 40)} has a request that section 3 does not admit: "
                f"{type(error).__name__}: {plain(error, 200)}"
            ) from None
        answered = call.answer if isinstance(call.answer, Answered) else None
        workflow.calls += 1
        if workflow.round is None:
            workflow.round = call.round
        if called_ns < workflow.first_ns:
            workflow.first_ns = called_ns
        last_ns = returned_ns or called_ns
        if last_ns > workflow.last_ns:
            workflow.last_ns = last_ns
        try:
            seen = see_call(
                request, called_ns, returned_ns, answered, clock=clock.id, kept=self._kept
            )
        except AnswerError as error:
            workflow.fault = workflow.fault or str(error)
            counts.decided += 1
            counts.answers["(no observed_at)"] += 1
            return
        self._count(call, answered, seen)
        self._faults.take(call, clock.id, workflow.identity, answered, seen)
        decided = seen is not None and seen.observed_at_ms is not None
        if seen is not None:
            workflow.seen.append(seen)
        if answered is not None and returned_ns is not None:
            self._latencies[call.request["action"]].append((returned_ns - called_ns) / _MS)
            clock.sent.append(call.sent_ns or called_ns)
            clock.returned.append(returned_ns)
            if decided:
                assert seen is not None
                assert seen.observed_at_ms is not None
                if clock.offsets is not None and not self._went_over_a_step(workflow):
                    who = (call.client, called_ns, returned_ns, seen.observed_at_ms)
                    clock.offsets.add(who, called_ns, returned_ns, seen.observed_at_ms)
                workflow_hash = (answered.members or {}).get("workflow_hash")
                if isinstance(workflow_hash, str):
                    workflow.hashes.add(self._kept.setdefault(workflow_hash, workflow_hash))
        if call.round is not None and call.burst is not None:
            self._take_release(call, request, workflow.identity, answered, decided=decided)

    def _workflow_of(self, body: Mapping[str, Any]) -> _Workflow:
        name = (body["namespace"], body["workflow_key"])
        workflow = self._named.get(name)
        if workflow is None:
            identity = Identity(namespace=name[0], workflow_key=name[1])
            workflow = self._named[name] = self._workflows[identity] = _Workflow(identity)
        return workflow

    def _count(self, call: Call, answered: Answered | None, seen: Seen | None) -> None:
        counts = self._counts
        if answered is None:
            counts.lost += 1
            reason = "" if isinstance(call.answer, Answered) else call.answer.reason
            counts.dropped += reason == DROPPED
            counts.lost_why[plain(reason, 80)] += 1
            return
        code = (answered.members or {}).get("code")
        told = seen is not None and seen.observed_at_ms is not None
        if seen is None:
            counts.unchanged += 1
        elif told:
            counts.decided += 1
        else:
            counts.untold += 1
        if isinstance(code, str) and code in _CODES:
            counts.answers[code] += 1
        elif told:
            counts.answers["result"] += 1
        else:
            counts.answers[f"HTTP {answered.status}"] += 1

    def _take_release(
        self,
        call: Call,
        request: Request,
        identity: Identity,
        answered: Answered | None,
        *,
        decided: bool,
    ) -> None:
        assert call.round is not None
        assert call.burst is not None
        members = (answered.members if answered is not None else None) or {}
        flag = next((f for f in ("acquired", "transitioned") if members.get(f) is True), "")
        kind: object = None
        if isinstance(request, Claim):
            kind = identity
        elif isinstance(request, Transition):
            kind = (identity, request)
        self._releases[call.round, call.burst].append(
            _Release(
                call.called_ns,
                call.sent_ns,
                call.returned_ns,
                decided,
                flag,
                kind,
                call.client,
                members.get("generation"),
            )
        )

    def _with_earliest(self, seen: Seen, until_ns: int) -> Seen:
        if seen.observed_at_ms is not None:
            return seen
        offsets = self._clocks[seen.clock].offsets
        if offsets is None:
            return seen
        from_ns = self._faults.reached_store_ns(seen.called_ns, seen.clock)
        return seen._replace(earliest_ms=offsets.earliest_ms(from_ns, until_ns))

    # -- judging -------------------------------------------------------------------------

    def _judge_workflows(self) -> None:
        orders = self._orders()
        sound_rounds: dict[int, bool] = {}
        for identity, workflow in self._workflows.items():
            sound = False
            if workflow.fault:
                self._broken[identity] = None
                self._verdicts["illegal"] += 1
            elif not workflow.tells:
                self._verdicts["nothing to judge"] += 1
                continue
            else:
                found = orders[identity]
                if isinstance(found, Linearizable):
                    sound = True
                    self._faults.explained(
                        found, workflow.seen, workflow.first_ns, workflow.last_ns
                    )
                    self._verdicts["linearizable"] += 1
                    self._remarks += [r for r in found.remarks if r not in self._remarks][:5]
                elif isinstance(found, Unknown):
                    self._undecided[identity] = None
                    self._verdicts["unknown"] += 1
                elif self._clock_was_moved_during(workflow):
                    self._verdicts["clock moved"] += 1
                else:
                    self._broken[identity] = None
                    self._verdicts["illegal"] += 1
                    self._look_for_a_loss(workflow)
            if workflow.round is not None:
                sound_rounds[workflow.round] = sound_rounds.get(workflow.round, True) and sound
        self._judged_rounds = {number for number, sound in sound_rounds.items() if sound}

    def _orders(self) -> dict[Identity, Linearizable | Unknown | None]:
        """An order of each workflow that tells enough; each by itself, so by many processes."""
        asked = [w for w in self._workflows.values() if w.tells and not w.fault]
        seen = sum(len(workflow.seen) for workflow in asked)

        def find(number: int) -> Linearizable | Unknown | None:
            workflow = asked[number]
            crashes = self._crashes(workflow)
            found = find_order(workflow.seen, crashes=crashes, steps_max=self._steps_max)
            if isinstance(found, Linearizable) and not found.losses:
                return replace(found, order=())  # nobody asks for it, and it may be long
            return found

        def tell(done: int) -> None:
            if done % _TELL_EVERY < processes:
                self._tell(f"judging {self.name}", done, len(asked))

        processes = processes_for(seen, _SEEN_MIN)
        tell(0)
        orders = each(find, len(asked), processes=processes, tell=tell)
        return {w.identity: found for w, found in zip(asked, orders, strict=True)}

    def _crashes(self, workflow: _Workflow, *, any_loss: bool = False) -> list[Crash]:
        """The crashes that a workflow went through, of a store that may lose something by them."""
        if not self._faults:
            return []
        offsets = {clock_id: clock.offsets for clock_id, clock in self._clocks.items()}
        return self._faults.crashes(workflow.first_ns, workflow.last_ns, offsets, any_loss=any_loss)

    def _look_for_a_loss(self, workflow: _Workflow) -> None:
        """Whether what no order explains is a loss beyond what the store may lose."""
        crashes = self._crashes(workflow, any_loss=True)
        if not crashes:
            return
        steps_max = min(self._steps_max, LOSS_STEPS_MAX)
        found = find_order(workflow.seen, crashes=crashes, steps_max=steps_max)
        if isinstance(found, Linearizable):
            self._lost_more.add(workflow.identity)
            self._faults.lost_beyond += acknowledged_lost(found, workflow.seen)

    def _went_over_a_step(self, workflow: _Workflow) -> bool:
        """Whether the target's clock was moved since its first call.

        Set back, it reads earlier than the last change, whose time is used then (WC-TIME-4).
        """
        return bool(self._steps) and self._clock_was_moved_during(workflow)

    def _clock_was_moved_during(self, workflow: _Workflow) -> bool:
        """Whether it went on while somebody moved the target's clock.

        Where that is set back, whether what had expired or lapsed is back is unspecified
        (WC-TIME-4), and the model says one of the two.
        """
        return any(
            begun_ns <= workflow.last_ns and workflow.first_ns <= done_ns
            for begun_ns, done_ns in self._steps
        )

    def _offset_faults(self) -> Iterator[OffsetFault]:
        for clock in self._clocks.values():
            fault = None if clock.offsets is None else clock.offsets.fault()
            if fault is not None:
                yield fault

    @staticmethod
    def _offset_failure(fault: OffsetFault) -> dict[str, Any]:
        def said(who: Any) -> str:
            client, called_ns, returned_ns, observed_ms = who
            return (
                f"client {plain(client, 40)} called at {called_ns / _MS:.3f} ms and had the answer "
                f"at {returned_ns / _MS:.3f} ms of our clock, with observed_at "
                f"{format_timestamp(observed_ms)}"
            )

        return {
            "rules": ["WC-TIME-1"],
            "kind": "clock violation",
            "what": "two answers whose observed_at cannot both lie within their calls",
            "expected": "one constant offset between the target's clock and ours",
            "got": f"{fault.off_by_ms:.0f} ms too much between: {said(fault.early)}; and "
            f"{said(fault.late)}",
            "workflow": None,
        }

    def _hash_failures(self) -> Iterator[dict[str, Any]]:
        owners: dict[str, Identity] = {}
        for identity, workflow in self._workflows.items():
            if len(workflow.hashes) > 1:
                yield _plain_failure(
                    ("WC-ID-2", "WC-CONC-4"),
                    what=f"workflow_hash of {identity.workflow_key}",
                    expected="the same in every answer",
                    got=f"{len(workflow.hashes)} different ones",
                )
                return
            for workflow_hash in workflow.hashes:
                other = owners.setdefault(workflow_hash, identity)
                if other != identity:
                    yield _plain_failure(
                        ("WC-ID-3", "WC-CONC-4"),
                        what=f"workflow_hash of {other.workflow_key} and {identity.workflow_key}",
                        expected="different ones",
                        got="the same",
                    )
                    return

    # -- showing -------------------------------------------------------------------------

    def _shown(
        self, broken: Sequence[Identity]
    ) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """The workflows that are shown, with what fails of each; the broken ones first."""
        first_ns = {identity: self._workflows[identity].first_ns for identity in broken}
        # What a crash took tells more than what follows from it.
        by_weight = sorted(broken, key=lambda i: (i not in self._lost_more, first_ns[i]))
        chosen = by_weight[:FAILURES_SHOWN_MAX]
        room = OPERATIONS_SHOWN_MAX - sum(self._workflows[i].calls for i in chosen)
        others = [i for i in self._workflows if i not in set(chosen)]
        others.sort(key=lambda identity: -self._workflows[identity].calls)
        for identity in others:
            calls = self._workflows[identity].calls
            if len(chosen) >= WORKFLOWS_SHOWN_MAX or calls > room:
                break
            if identity in self._broken or identity in self._undecided:
                continue
            chosen.append(identity)
            room -= calls
        calls_of = self._calls_of(chosen)
        return [self._show(identity, calls_of[identity]) for identity in chosen]

    def _calls_of(self, chosen: Collection[Identity]) -> dict[Identity, list[tuple[Call, str]]]:
        """All calls of a few workflows, from the files again."""
        wanted = set(chosen)
        keys = {identity.workflow_key for identity in wanted}
        found: dict[Identity, list[tuple[Call, str]]] = defaultdict(list)
        for place, file in enumerate(self.files):
            self._tell(f"looking closer at {self.name}", place, len(self.files))
            for call in file.calls_with(keys):
                identity = Identity(
                    namespace=call.request["namespace"], workflow_key=call.request["workflow_key"]
                )
                if identity in wanted:
                    found[identity].append((call, file.header.clock.id))
        return found

    def _show(
        self, identity: Identity, calls: list[tuple[Call, str]]
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        calls.sort(key=lambda pair: (pair[1], pair[0].called_ns))
        until_ns = self._workflows[identity].last_ns
        operations = [self._operation(call, clock, until_ns) for call, clock in calls]
        crashes = self._crashes(self._workflows[identity])
        verdict = check(operations, crashes=crashes, steps_max=self._steps_max)
        failure = None
        if identity in self._broken or identity in self._undecided:
            failure = _failure(identity, operations, verdict, self._steps_max)
            if identity in self._lost_more:
                failure["rules"] = ["WC-PRIV-5", *failure["rules"]]
                failure["why"] += (
                    " Only if the crash of the store took changes with it that it acknowledged "
                    f"is there an order; declared is that it keeps: {self._faults.durability}."
                )
        base_ns = min((call.called_ns for call, _ in calls), default=0)
        order = () if isinstance(verdict, Unknown) else verdict.order
        losses = verdict.losses if isinstance(verdict, Linearizable | Illegal) else ()
        places = {placed.operation: place for place, placed in enumerate(order)}
        shown = {
            "namespace": identity.namespace,
            "workflow_key": identity.workflow_key,
            "round": self._workflows[identity].round,
            "verdict": _VERDICT_NAMES[type(verdict)],
            "why": "" if isinstance(verdict, Linearizable) else verdict.why,
            "remarks": list(verdict.remarks) if isinstance(verdict, Linearizable) else [],
            "base_ns": base_ns,
            "operations": [
                _shown_call(call, clock, base_ns, places.get(index))
                for index, (call, clock) in enumerate(calls)
            ],
            "order": [
                {"operation": placed.operation, "observed_at_ms": placed.observed_at_ms}
                for placed in order
            ],
            "states": _states(operations, order, losses),
            "failure": failure,
        }
        return shown, failure

    def _operation(self, call: Call, clock: str, until_ns: int) -> Operation:
        offsets = self._clocks[clock].offsets
        from_ns = self._faults.reached_store_ns(call.called_ns, clock)
        answered = call.answer if isinstance(call.answer, Answered) else None
        return Operation(
            client=call.client,
            request=parse_request(call.request)[1],
            called_ns=call.called_ns,
            returned_ns=call.returned_ns,
            answer=answered,
            clock=clock,
            earliest_ms=None if offsets is None else offsets.earliest_ms(from_ns, until_ns),
        )

    # -- telling -------------------------------------------------------------------------

    def _document(
        self,
        broken: Sequence[Identity],
        shown: Sequence[tuple[dict[str, Any], dict[str, Any] | None]],
        failures: Sequence[dict[str, Any]],
    ) -> dict[str, Any]:
        counts = self._counts
        bursts = [
            _burst(number, name, released)
            for (number, name), released in sorted(self._releases.items())
        ]
        in_flight = self._in_flight()
        hits = self._hits(bursts, in_flight, failures)
        gaps = self._gaps(bursts, in_flight)
        failed = _rules_of(one for one in failures if one["kind"] != UNDECIDED)
        undecided = _rules_of(one for one in failures if one["kind"] == UNDECIDED) - failed
        if failures:  # what could not be decided is one, too
            verdict = Verdict.FAIL
        elif gaps:
            verdict = Verdict.INCOMPLETE
        else:
            verdict = Verdict.PASS
        header = self.files[0].header
        judged = self._verdicts.total() - self._verdicts["nothing to judge"]
        line = (
            f"{number(judged, 'workflow')} and {number(counts.decided, 'answer')} judged, "
            f"{counts.lost + counts.untold:,} lost"
        )
        if broken:
            said = []
            if self._broken:
                fail = f"{len(self._broken):,} of {judged:,} workflows fail"
                said.append(f"{fail} ({', '.join(sorted(failed))})")
            if self._undecided:
                said.append(
                    f"{len(self._undecided):,} of {judged:,} workflows could not be decided "
                    f"within {self._steps_max:,} steps"
                )
            line = "; ".join(said)
        elif failures:
            line = f"{', '.join(sorted(failed))} broken; {line}"
        elif gaps:
            line = f"{gaps[0]}; {line}"
        return {
            "storm": self.name,
            "verdict": str(verdict),
            "line": line,
            "incomplete_because": gaps,
            "target": dict(header.target),
            "parameters": dict(header.parameters),
            "started_at": min(file.header.started_at for file in self.files),
            "hosts": sorted({file.header.clock.host for file in self.files}),
            "files": [file.path.name for file in self.files],
            "calls": counts.calls,
            "decided": counts.decided,
            "unchanged": counts.unchanged,
            "lost": counts.lost,
            "dropped_on_purpose": counts.dropped,
            "not_told": counts.untold,
            "answers": dict(counts.answers.most_common()),
            "lost_because": dict(counts.lost_why.most_common(10)),
            "clients": len(self._clients),
            "workflows": dict(self._verdicts),
            "rules": {
                rule: {"status": _status_of(rule, n, failed, undecided), "hits": n}
                for rule, n in (
                    hits | dict.fromkeys(sorted((failed | undecided) - hits.keys()), 0)
                ).items()
            },
            "failures": list(failures),
            "remarks": list(self._remarks),
            "contention": _contention(bursts, in_flight),
            "bursts": bursts[:BURSTS_SHOWN_MAX],
            "latency_ms": {
                action: _percentiles(values) for action, values in sorted(self._latencies.items())
            },
            "requests_per_second": self._per_second(),
            "shown": [entry for entry, _ in shown],
            "faults": self._faults.document,
        }

    def _in_flight(self) -> list[int]:
        """Of each clock, the most requests that were in flight at once."""
        return [most_at_once(clock.sent, clock.returned) for clock in self._clocks.values()]

    def _per_second(self) -> float:
        clocks = [clock for clock in self._clocks.values() if clock.sent]
        seconds = [(max(clock.returned) - min(clock.sent)) / 1e9 for clock in clocks]
        answered = sum(len(clock.sent) for clock in clocks)
        return round(answered / max(seconds), 1) if seconds and max(seconds) > 0 else 0.0

    def _hits(
        self,
        bursts: Sequence[Mapping[str, Any]],
        in_flight: Sequence[int],
        failures: Sequence[Mapping[str, Any]],
    ) -> dict[str, int]:
        """How often each rule was exercised where it could have been broken, and held.

        A round counts when all of it was judged and its requests really met.
        """
        met = [b for b in bursts if b["in_flight"] >= CONTENDERS_MIN]
        judged = [b for b in met if b["round"] in self._judged_rounds]
        crowded = max(in_flight, default=0) >= CONTENDERS_MIN
        workflows = self._verdicts["linearizable"]
        alone = workflows if crowded else 0
        held_against = any(clock.offsets is not None for clock in self._clocks.values())
        clock_held = not any("WC-TIME-1" in failure["rules"] for failure in failures)
        return {
            "WC-CONC-1": len({b["round"] for b in judged}) if bursts else alone,
            "WC-CONC-2": len({b["round"] for b in judged if b["claims"] >= CONTENDERS_MIN}),
            "WC-CONC-3": len({b["round"] for b in judged if b["sends"] >= CONTENDERS_MIN}),
            "WC-CONC-4": self._met_others(),
            "WC-TIME-1": self._counts.decided if held_against and clock_held else 0,
            "WC-ID-2": sum(len(w.hashes) == 1 and w.calls > 1 for w in self._workflows.values()),
            **(self._faults.hits() if self._faults else {}),
        }

    def _met_others(self) -> int:
        """How many sound workflows had at least nine others going on beside them."""
        sound = [
            w
            for i, w in self._workflows.items()
            if i not in self._broken and i not in self._undecided and w.hashes
        ]
        starts = sorted(w.first_ns for w in sound)
        ends = sorted(w.last_ns for w in sound)
        return sum(
            bisect_left(starts, w.last_ns) - bisect_left(ends, w.first_ns) >= CONTENDERS_MIN
            for w in sound
        )

    def _gaps(self, bursts: Sequence[Mapping[str, Any]], in_flight: Sequence[int]) -> list[str]:
        """Why the storm says too little, where it does."""
        counts = self._counts
        gaps = []
        if not counts.decided:
            gaps.append("no answer tells what was decided")
        if self._cut_off:
            gaps.append(f"the history was cut off: {', '.join(self._cut_off)} has no last line")
        moved = self._verdicts["clock moved"]
        if moved:
            said = (
                f"{number(moved, 'workflow')} without an order went on while the target's clock "
                "was moved, which the contract leaves partly open (WC-TIME-4)"
            )
            # A fault that was made on purpose leaves no more open than it must.
            excused = self._faults and self._verdicts["linearizable"]
            (self._remarks if excused else gaps).append(said)
        if counts.repeated:
            gaps.append(f"{number(counts.repeated, 'call')} went over the wire more than once")
        unwanted = counts.lost - counts.dropped + counts.untold - self._faults.excused
        gaps += self._faults.gaps()
        if unwanted > LOST_SHARE_MAX * max(counts.calls, 1):
            reasons = [(w, n) for w, n in counts.lost_why.most_common(4) if w != DROPPED]
            reasons += [
                (answer, n)
                for answer, n in counts.answers.most_common()
                if answer.startswith("HTTP ") or answer == ErrorCode.DEPENDENCY_UNAVAILABLE
            ]
            said = "; ".join(f"{why} ({n:,} times)" for why, n in reasons[:3])
            gaps.append(f"{unwanted:,} of {counts.calls:,} requests were not answered: {said}")
        if counts.unchanged > counts.calls / 2:
            gaps.append(f"{counts.unchanged:,} of {counts.calls:,} requests were turned away")
        most = [b["in_flight"] for b in bursts]
        typical = statistics.median(most) if most else max(in_flight, default=0)
        # Under faults there may be little of it: what a fault does to whom counts for itself.
        if counts.decided and typical < CONTENDERS_MIN and not self._faults:
            where = "in flight at once in the median burst" if most else "ever in flight at once"
            gaps.append(
                f"too little contention: {typical:.0f} requests were {where}, "
                f"at least {CONTENDERS_MIN} are needed"
            )
        return gaps


# -- what is said of a failure ----------------------------------------------------------

_VERDICT_NAMES: Final[Mapping[type, str]] = {
    Linearizable: "linearizable",
    Illegal: "illegal",
    ClockViolation: "clock violation",
    Unknown: UNDECIDED,
}


def _plain_failure(rules: Sequence[str], *, what: str, expected: str, got: str) -> dict[str, Any]:
    return {
        "rules": list(rules),
        "kind": "identity",
        "what": what,
        "expected": expected,
        "got": got,
        "workflow": None,
    }


def _failure(
    identity: Identity,
    operations: Sequence[Operation],
    verdict: WorkflowVerdict,
    steps_max: int,
) -> dict[str, Any]:
    failure: dict[str, Any] = {
        "kind": _VERDICT_NAMES[type(verdict)],
        "workflow": {"namespace": identity.namespace, "workflow_key": identity.workflow_key},
    }
    if isinstance(verdict, Illegal):
        operation = operations[verdict.operation]
        failure |= {
            "rules": list(_rules_broken(operation, verdict)),
            "what": f"the answer to {operation.request.action} of {plain(operation.client, 60)}",
            "expected": _told(verdict.expected),
            "got": _told(verdict.got),
            "why": verdict.why,
            "operation": verdict.operation,
            "earlier": None,
            "expected_members": dict(verdict.expected),
            "got_members": _members(verdict.got),
            "differs": list(verdict.differs),
            "state": _state(verdict.record),
        }
    elif isinstance(verdict, ClockViolation):
        operation = operations[verdict.operation]
        failure |= {
            "rules": ["WC-TIME-4", "WC-CONC-1"],
            "what": f"observed_at of {operation.request.action} of {plain(operation.client, 60)}",
            "expected": verdict.expected,
            "got": verdict.got,
            "why": verdict.why,
            "operation": verdict.operation,
            "earlier": verdict.earlier,
            "expected_members": None,
            "got_members": None,
            "differs": ["observed_at"],
            "state": None,
        }
    else:
        spent = isinstance(verdict, Unknown)
        failure |= {
            "kind": UNDECIDED,
            "rules": ["WC-CONC-1"],
            "what": "whether one order explains every answer",
            "expected": "one, or certainty that there is none",
            "got": f"it could not be decided within {steps_max:,} steps of the model"
            if spent
            else "the two readings disagree",
            "why": "This says nothing against the target, and nothing for it: it is no pass. "
            "Judge it again with more steps (workflow-checkpoint recheck --steps), or storm "
            "with fewer lost answers.",
            "operation": None,
            "earlier": None,
            "expected_members": None,
            "got_members": None,
            "differs": [],
            "state": None,
        }
    return failure


def _rules_broken(operation: Operation, verdict: Illegal) -> Iterator[str]:
    """The rules that a failure breaks, the nearest first."""
    expected, got = verdict.expected, verdict.got
    if verdict.differs and not _DECISIVE & set(verdict.differs):
        for member in verdict.differs:
            yield from rules_of_member(member)
        return
    if verdict.rule == "WC-TIME-5":
        yield verdict.rule
        return
    if got.get("acquired") is True and expected.get("acquired") is not True:
        yield "WC-CONC-2"
    if isinstance(operation.request, Transition) and (
        got.get("transitioned") is True or expected.get("observation_replayed") is True
    ):
        yield "WC-CONC-3"
    yield "WC-CONC-1"
    if _across_a_deadline(operation, verdict):
        yield "WC-TIME-2"
    if verdict.rule != "WC-STATUS-2" or verdict.differs:
        yield verdict.rule


def _across_a_deadline(operation: Operation, verdict: Illegal) -> bool:
    """Whether another row would have decided a millisecond away."""
    at_ms = parse_timestamp(verdict.expected["observed_at"])
    for shift_ms in (-1, 1):
        other = step(verdict.record, operation.request, at_ms + shift_ms)
        if isinstance(other.outcome, Success):
            raised = {flag for flag in FLAGS if verdict.got.get(flag) is True}
            same = "code" not in verdict.got and raised == other.outcome.value
        else:
            same = verdict.got.get("code") == other.outcome
        if same and other.rule != verdict.rule:
            return True
    return False


def _told(members: Mapping[str, Any]) -> str:
    """An answer in a few words."""
    if not members:
        return "(not kept)"
    stands = f"{members.get('stage')}, gen. {members.get('generation')}"
    if "code" in members:
        said = plain(members["code"], 60)
        return f"{said}: {plain(stands, 80)}" if "stage" in members else said
    raised = " and ".join(f"`{m}`" for m, value in members.items() if value is True)
    return f"a result{f' with {raised}' if raised else ''}: {plain(stands, 80)}"


def _members(members: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if members is None:
        return None
    kept: dict[str, Any] = bounded({k: v for k, v in members.items() if k not in _WORDING})
    return kept


def _state(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "stage": str(record.stage),
        "generation": record.generation,
        "holder": record.holder,
        "claim_expires_at": format_timestamp(record.claim_expires_at_ms),
        "state_expires_at": format_timestamp(record.state_expires_at_ms),
        "changed_at": format_timestamp(record.changed_at_ms),
        "abandoned": record.abandoned,
        "retry_failed": record.retry_failed,
        "evidence_type": None if record.evidence_type is None else str(record.evidence_type),
        "observations": len(record.observations),
    }


def _states(
    operations: Sequence[Operation], order: Sequence[Placed], losses: Sequence[Loss]
) -> list[dict[str, Any]]:
    """The record after each step of an order that changed it."""
    found = []
    record: Record | None = None
    for place, done in enumerate(retrace(operations, order, losses)):
        if done.record != record:
            record = done.record
            found.append({"place": place, "rule": done.rule, "record": _state(record)})
    return found


def _shown_call(call: Call, clock: str, base_ns: int, place: int | None) -> dict[str, Any]:
    """A call as a page draws it; times are nanoseconds after the workflow's first call."""

    def since(at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - base_ns

    answer: dict[str, Any] | None = None
    lost = None
    if isinstance(call.answer, Answered):
        answer = {"status": call.answer.status, "members": _members(call.answer.members)}
    else:
        lost = {"reason": call.answer.reason, "detail": plain(call.answer.detail, 200)}
    return {
        "client": call.client,
        "clock": clock,
        "round": call.round,
        "burst": call.burst,
        "request": {
            member: value
            for member, value in call.request.items()
            if member not in ("namespace", "workflow_key")
        },
        "called_ns": since(call.called_ns),
        "sent_ns": since(call.sent_ns),
        "returned_ns": since(call.returned_ns),
        "gave_up_ns": since(call.gave_up_ns),
        "answer": answer,
        "lost": lost,
        "place": place,
    }


# -- numbers ----------------------------------------------------------------------------


def _burst(number: int, name: str, released: Sequence[_Release]) -> dict[str, Any]:
    """How closely the calls of one burst met, and who won."""
    first_ns = min(one.called_ns for one in released)
    kinds = Counter(one.kind for one in released if one.decided and one.kind is not None)
    claims = max((n for k, n in kinds.items() if isinstance(k, Identity)), default=0)
    sends = max((n for k, n in kinds.items() if not isinstance(k, Identity)), default=0)
    return {
        "round": number,
        "burst": name,
        "calls": len(released),
        "spread_ms": round(spread_ns(released) / _MS, 3),
        "in_flight": in_flight_max(released),
        "claims": claims,
        "sends": sends,
        "winners": [
            {
                "client": one.client,
                "flag": one.flag,
                "generation": one.generation if isinstance(one.generation, int) else None,
                "after_ms": round(((one.returned_ns or first_ns) - first_ns) / _MS, 3),
            }
            for one in released
            if one.flag
        ][:10],
    }


def _rules_of(failures: Iterable[Mapping[str, Any]]) -> set[str]:
    return {rule for failure in failures for rule in failure["rules"]}


def _status_of(rule: str, hits: int, failed: Collection[str], undecided: Collection[str]) -> str:
    """As `judgement.schema.json` has it; what could not be decided is not said to be broken."""
    if rule in failed:
        return "failed"
    if rule in undecided:
        return "undecided"
    return "passed" if hits else "not-run"


def _contention(bursts: Sequence[Mapping[str, Any]], in_flight: Sequence[int]) -> dict[str, Any]:
    def middle(member: str) -> float | None:
        return statistics.median(b[member] for b in bursts) if bursts else None

    return {
        "bursts": len(bursts),
        "spread_ms_median": middle("spread_ms"),
        "spread_ms_max": max((b["spread_ms"] for b in bursts), default=None),
        "in_flight_median": middle("in_flight"),
        "in_flight_max": max(in_flight, default=0),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    found = {f"p{percent}": round(percentile(ordered, percent), 3) for percent in PERCENTILES}
    return (
        {"count": len(ordered), "min": round(ordered[0], 3)}
        | found
        | {"max": round(ordered[-1], 3)}
    )
