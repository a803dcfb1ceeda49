"""What is judged of a storm besides its orders, where faults were made while it went on.

1. A generation of a record is made once, whatever its store may lose (WC-CONC-2): a record that was
   lost whole begins anew with another end of its life, so the same generation with the same
   end is the same one, issued twice.
2. While the store answers nothing no request is decided: what is answered then is
   ``DEPENDENCY_UNAVAILABLE``, or nothing (WC-ERR-5).
3. ``DEPENDENCY_UNAVAILABLE`` comes within 5 s of the request's last byte (WC-ERR-5).
4. What was acknowledged before a crash of the store is there afterwards, as far as its durability
   goes (WC-PRIV-5). The orders show it: :meth:`FaultJudge.crashes` is what they may lose.
"""

import statistics
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkpoint_conformance.client import Lost
from checkpoint_conformance.faults import AWAY, CRASHES, Durability, Kind
from checkpoint_conformance.history import DROPPED, Call, HistoryFile, Injected
from checkpoint_conformance.plain import plain
from checkpoint_model import ErrorCode, Identity
from checkpoint_model.linearizability import (
    Answered,
    Crash,
    Linearizable,
    Offsets,
    Seen,
    retrace,
)

ANSWER_MS_MAX: Final = 5000
"""From a request's last byte to `DEPENDENCY_UNAVAILABLE`, by WC-ERR-5."""
ANSWER_SLACK_MS: Final = 500
"""Added to it: an answer waits for our own reading, too, on a machine that is busy with faults."""
AFTERMATH_NS: Final = 2_000_000_000
"""For so long after a fault what has no answer is still laid to it: a server finds the connections
that it kept to be dead one by one."""
SECOND_LOSS_MS: Final = 2000
"""What a store may lose of which :attr:`Durability.SECOND` is declared."""
FAILURES_MAX: Final = 5
"""Of each kind so many are told."""
_MS: Final = 1_000_000


class _Window(NamedTuple):
    fault: Injected
    clock: str


class _Late(NamedTuple):
    milliseconds: float
    client: str
    identity: Identity


class FaultJudge:
    """Of one storm, over all the files of its history.

    Args:
        files: whose headers tell in their parameters what the store's durability is, and which
            faults were to be made.
    """

    def __init__(self, files: Sequence[HistoryFile]) -> None:
        self._windows = [
            _Window(fault, file.header.clock.id) for file in files for fault in file.faults()
        ]
        parameters = [file.header.parameters for file in files]
        self._asked = sorted({kind for one in parameters for kind in one.get("nemesis") or ()})
        said = [one["durability"] for one in parameters if one.get("durability")]
        self.durability = Durability(said[0]) if said else Durability.NONE
        self._generations: dict[tuple[Identity, object, object], list[str]] = defaultdict(list)
        self._decided_while_away: list[tuple[str, Identity, str]] = []
        self._late: list[_Late] = []
        self.unavailable_ms = array("d")
        """How long each `DEPENDENCY_UNAVAILABLE` took."""
        self.excused = 0
        """Calls without an answer that are laid to a fault."""
        self.lost_within = 0
        """Acknowledged changes that were lost within the declared durability."""
        self.lost_beyond = 0
        """... and beyond it."""
        self.survived = 0
        """Workflows that went through a crash and are explained by an order."""

    def __bool__(self) -> bool:
        """Whether faults were made, or were to be."""
        return bool(self._windows or self._asked)

    # -- reading ------------------------------------------------------------------------------

    def take(
        self,
        call: Call,
        clock: str,
        identity: Identity,
        answered: Answered | None,
        seen: Seen | None,
    ) -> None:
        """Look at one call; ``seen`` is what it contributes to its workflow's order."""
        members = (answered.members if answered is not None else None) or {}
        decided = seen is not None and seen.observed_at_ms is not None
        if members.get("code") == ErrorCode.DEPENDENCY_UNAVAILABLE and call.returned_ns is not None:
            took_ms = (call.returned_ns - (call.sent_ns or call.called_ns)) / _MS
            self.unavailable_ms.append(took_ms)
            if took_ms > ANSWER_MS_MAX + ANSWER_SLACK_MS:
                self._late.append(_Late(took_ms, call.client, identity))
        if not self._windows:
            return
        if members.get("acquired") is True:
            made = (identity, members.get("state_expires_at"), members.get("generation"))
            self._generations[made].append(call.client)
        if decided:
            for window in self._windows:
                if window.clock == clock and _while_away(call, window.fault):
                    told = (call.client, identity, str(members.get("code", "a result")))
                    self._decided_while_away.append(told)
        elif (
            seen is not None
            and not _dropped(call)
            and any(
                window.clock == clock and _touches(call, window.fault) for window in self._windows
            )
        ):
            self.excused += 1

    def reached_store_ns(self, called_ns: int, clock: str) -> int:
        """From when on a call can have been decided: not while the store decides nothing."""
        for fault, of in self._windows:
            away = of == clock and fault.kind in AWAY
            if away and fault.returned_ns < called_ns < fault.healed_ns:
                return fault.healed_ns
        return called_ns

    # -- the orders ---------------------------------------------------------------------------

    def crashes(
        self, first_ns: int, last_ns: int, offsets: Mapping[str, Offsets | None], *, any_loss: bool
    ) -> list[Crash]:
        """The crashes that a workflow went through, with what its store may lose by them.

        Args:
            first_ns: when its first call was made.
            last_ns: when its last was answered.
            offsets: of each clock of ours how the store's stands to it.
            any_loss: whether to take it as if the store had promised nothing.
        """
        found = []
        for fault, clock in self._windows:
            if (
                fault.kind not in CRASHES
                or fault.returned_ns < first_ns
                or fault.called_ns > last_ns
            ):
                continue
            lost_from_ms = None
            if not any_loss and self.durability is Durability.CHANGE:
                continue
            offset = offsets.get(clock)
            if not any_loss and self.durability is Durability.SECOND and offset is not None:
                earliest_ms = offset.earliest_ms(fault.called_ns, fault.returned_ns)
                lost_from_ms = None if earliest_ms is None else earliest_ms - SECOND_LOSS_MS
            found.append(
                Crash(
                    called_ns=fault.called_ns,
                    returned_ns=fault.returned_ns,
                    clock=clock,
                    lost_from_ms=lost_from_ms,
                )
            )
        return found

    def explained(
        self, found: Linearizable, seen: Sequence[Seen], first_ns: int, last_ns: int
    ) -> None:
        """Count what an order that was found says of crashes."""
        self.lost_within += acknowledged_lost(found, seen)
        self.survived += any(
            fault.kind in CRASHES
            and first_ns < fault.called_ns
            and fault.recovered_ns is not None
            and fault.recovered_ns < last_ns
            for fault, _ in self._windows
        )

    # -- telling ------------------------------------------------------------------------------

    def failures(self) -> Iterator[dict[str, Any]]:
        """What is wrong whatever the order."""
        repeated = [(made, who) for made, who in self._generations.items() if len(who) > 1]
        for (identity, state_ends, generation), who in repeated[:FAILURES_MAX]:
            yield _failure(
                ("WC-CONC-2",),
                identity,
                what=f"generation {plain(generation, 20)} of the record that ends at "
                f"{plain(state_ends, 40)}",
                expected="acquired once, whatever crashes in between",
                got=f"acquired {len(who)} times: by {', '.join(plain(c, 40) for c in who[:4])}",
            )
        for client, identity, told in self._decided_while_away[:FAILURES_MAX]:
            yield _failure(
                ("WC-ERR-5",),
                identity,
                what=f"an answer to {plain(client, 40)} while the store answered nothing",
                expected=str(ErrorCode.DEPENDENCY_UNAVAILABLE),
                got=plain(told, 60),
            )
        for late in sorted(self._late, reverse=True)[:1]:
            yield _failure(
                ("WC-ERR-5",),
                late.identity,
                what=f"how long {plain(late.client, 40)} waited for DEPENDENCY_UNAVAILABLE",
                expected=f"at most {ANSWER_MS_MAX} ms after the request's last byte",
                got=f"{late.milliseconds:.0f} ms",
            )

    def gaps(self) -> Iterator[str]:
        """Why too little was done to it, where it was."""
        made = Counter(fault.kind for fault, _ in self._windows)
        missing = [kind for kind in self._asked if not made[kind]]
        if missing:
            yield f"faults that were to be made, and were not: {', '.join(missing)}"
        without = {fault.kind for fault, _ in self._windows if fault.cuts}
        idle = {f.kind for f, _ in self._windows if f.cuts is not None} - without
        if idle:
            yield f"no connection came to where it was to be cut: {', '.join(sorted(idle))}"
        for kind in sorted({f.kind for f, _ in self._windows if f.recovered_ns is None}):
            yield f"there was no good answer any more after {kind}"

    def hits(self) -> dict[str, int]:
        """How often each rule of faults was exercised and held."""
        wrong = {rule for failure in self.failures() for rule in failure["rules"]}
        return {
            "WC-ERR-5": 0 if "WC-ERR-5" in wrong else len(self.unavailable_ms),
            "WC-PRIV-5": 0 if self.lost_beyond else self.survived,
        }

    @property
    def document(self) -> dict[str, Any] | None:
        """The figures; None of a storm without faults."""
        if not self:
            return None
        kinds: dict[str, dict[str, Any]] = {}
        for kind in Kind:
            of = [fault for fault, _ in self._windows if fault.kind == kind]
            if not of:
                continue
            took = sorted(ms for fault in of if (ms := fault.recovery_ms) is not None)
            cuts = [fault.cuts for fault in of if fault.cuts is not None]
            kinds[kind] = {
                "runs": len(of),
                "recovered": len(took),
                "cuts": sum(cuts) if cuts else None,
                "recovery_ms": {
                    "median": round(statistics.median(took), 1),
                    "max": round(took[-1], 1),
                }
                if took
                else None,
            }
        return {
            "durability": str(self.durability),
            "kinds": kinds,
            "workflows_through_a_crash": self.survived,
            "acknowledged_lost": self.lost_beyond,
            "acknowledged_lost_as_declared": self.lost_within,
            "unavailable": len(self.unavailable_ms),
            "unavailable_ms_max": round(max(self.unavailable_ms, default=0.0), 1),
        }


def acknowledged_lost(found: Linearizable, seen: Sequence[Seen]) -> int:
    """How many changes that were answered an order has crashes take."""
    if not found.losses:
        return 0
    acknowledged = []
    before = None
    kept_before = {loss.before: loss.kept for loss in found.losses}
    records: list[Any] = [None]
    for number, done in enumerate(retrace(seen, found.order, found.losses)):
        if number in kept_before:
            before = records[kept_before[number]]
        answered = seen[found.order[number].operation].observed_at_ms is not None
        acknowledged.append(answered and done.record is not before)
        before = done.record
        records.append(before)
    return sum(sum(acknowledged[loss.kept : loss.before]) for loss in found.losses)


def _while_away(call: Call, fault: Injected) -> bool:
    """Whether a call was made and answered while the store answered nothing."""
    return (
        fault.kind in AWAY
        and call.called_ns > fault.returned_ns
        and call.returned_ns is not None
        and call.returned_ns < fault.healed_ns
    )


def _dropped(call: Call) -> bool:
    """Whether the storm itself threw the answer away."""
    return isinstance(call.answer, Lost) and call.answer.reason == DROPPED


def _touches(call: Call, fault: Injected) -> bool:
    """Whether what became of a call may be laid to a fault."""
    ended_ns = call.returned_ns or call.gave_up_ns or call.called_ns
    until_ns = (fault.recovered_ns or 1 << 62) + AFTERMATH_NS
    return call.called_ns <= until_ns and ended_ns >= fault.called_ns


def _failure(
    rules: Iterable[str], identity: Identity, *, what: str, expected: str, got: str
) -> dict[str, Any]:
    return {
        "rules": list(rules),
        "kind": "fault",
        "what": what,
        "expected": expected,
        "got": got,
        "workflow": {"namespace": identity.namespace, "workflow_key": identity.workflow_key},
    }
