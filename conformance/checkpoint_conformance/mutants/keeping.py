"""Keeps the servers that mutants are made from, and plays one mutant after another on them.

A server that can be many mutants is started once: the reference server, in front of which a proxy
is put, and one more whose Lua scripts are changed while it runs. Every mutant is checked on
workflows of its own, so nothing of one is seen by the next.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from checkpoint_conformance.checks import CHECKS
from checkpoint_conformance.checks.logs import judge_logs
from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.deployment import Deployment, fault_access
from checkpoint_conformance.faults import FaultAccess
from checkpoint_conformance.folders import put_text, temporary_folder
from checkpoint_conformance.launch import described_for_faults, reference_server
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.mutants.mutant import (
    BeforeControls,
    Edit,
    Edited,
    Faulty,
    InFront,
    Instead,
    LeavesBehind,
    Mutant,
    Part,
    Writes,
)
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import PROFILES, Profile, Run, Target
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.tally import Failure, Tally
from checkpoint_conformance.tcp_proxy import Upstream
from checkpoint_conformance.verdict import Verdict, judge
from checkpoint_model.vocabulary import ERRORS, MCP_PATH

BRIEF: Final = replace(
    PROFILES["quick"],
    name="brief",
    race_rounds=1,
    contenders=20,
    stateful_examples=20,
    mcp_vectors=40,
)
"""One round of everything: what each mutant must be killed by."""
SEED: Final = 1
_EDITED: Final = "checkpoint_reference_server.edited"

_DECIDED: Final = {200}.union(*(row.http_statuses for row in ERRORS.values() if row.decided))
"""The statuses of what section 6 decides."""


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    """Every rule that must be named was."""
    WRONG_RULE = "killed by the wrong rule"
    """Rules were named, but not all that must be, or others where none may be."""
    SURVIVED = "survived"
    UNFIT = "is none: its edit does not fit"
    """Nothing was changed, so nothing can be said of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the assigned check said of a mutant."""

    mutant: Mutant
    fate: Fate
    named: tuple[str, ...]
    """The rules that were named until the check ended, in order."""
    why: tuple[str, ...]
    """What the check left out, where it did."""
    lost: int
    seconds: float
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the checks that failed, the first of them first, the rules that each named."""
    unanswered: bool = False
    """Whether so much was lost that a run of every check would not pass."""

    @property
    def killed(self) -> bool:
        """Whether every rule that must be named was."""
        return self.fate is Fate.KILLED

    @property
    def layers(self) -> tuple[str, ...]:
        """The checks that failed, the first of them first."""
        return tuple(self.found)


class _EnoughError(BaseException):
    """The mutant is dead. No check may take this for a fault of its own, so it is no Exception."""


class Silent:
    """Progress that nobody looks at."""

    def check(self, title: str) -> None:
        """Nothing."""

    def advance(self, done: int, of: int) -> None:
        """Nothing."""


@dataclass
class _Watch(Tally):
    """A tally that knows what to wait for, and ends the run when it has come."""

    wanted: frozenset[str] = frozenset()
    stops: bool = True
    goes_through_all: bool = False
    named: dict[str, None] = field(default_factory=dict)
    found: dict[str, dict[str, None]] = field(default_factory=dict)

    def fail(self, failure: Failure) -> None:
        super().fail(failure)
        rules = dict.fromkeys(failure.fault.rules)
        self.named |= rules
        self.found.setdefault(layer_of(failure), {}).update(rules)
        if self.stops and self.wanted <= self.named.keys():
            raise _EnoughError

    def leave_out(self, why: str) -> None:
        super().leave_out(why)
        # A sequence whose answers are lost again and again: no run that goes on will pass.
        if self.stops and self.goes_through_all and self.lost:
            raise _EnoughError


class Keeper:
    """Starts each server when the first mutant needs it, and stops them at the end."""

    def __init__(self, *, command: str = "mutants run") -> None:
        self._command = command
        self._stack = ExitStack()
        self._right: Target | None = None
        self._editable: tuple[Target, Path] | None = None
        self._harmed: tuple[FaultAccess, Deployment] | None = None

    def __enter__(self) -> "Keeper":
        """Nothing is started yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what was started."""
        self._stack.close()

    @property
    def right(self) -> Target:
        """The reference server as it is.

        Raises:
            LaunchError: it is not installed, or did not start.
        """
        if self._right is None:
            self._right = self._stack.enter_context(reference_server(command=self._command))
        return self._right

    @contextmanager
    def mounted(self, mutant: Mutant) -> Iterator[Target]:
        """The mutant as a target, with the access that its check has.

        Raises:
            LaunchError: the server is not installed, or did not start.
        """
        with ExitStack() as stack:
            target = stack.enter_context(self._made(mutant))
            if mutant.real_time:
                target = replace(target, controls=None)
            if not isinstance(mutant.fault, Faulty):
                # Faults would be made of a deployment of right servers, and show nothing.
                target = replace(target, fault_access=None)
            if target.logs is not None:
                # What one mutant made the server log is not the next one's.
                target = replace(target, logs=target.logs.anew())
            yield target

    @contextmanager
    def _made(self, mutant: Mutant) -> Iterator[Target]:
        match mutant.fault:
            case Edited(edits):
                with self._edited(edits) as target:
                    yield target
            case InFront(make):
                with tampering(self.right.address, make()) as address:
                    yield behind(self.right, address)
            case BeforeControls(make):
                assert self.right.controls is not None
                with tampering(self.right.controls, make()) as address:
                    yield replace(self.right, controls=address)
            case LeavesBehind():
                with self._leaving(mutant.fault) as target:
                    yield target
            case Writes():
                with self._writing(mutant.fault) as target:
                    yield target
            case Instead(make):
                with tampering(self.right.address, _instead(make())) as address:
                    yield Target(address=address)
            # As in a run, whatever is not about faults is asked of another instance.
            case Faulty(make=None):
                yield replace(self.right, fault_access=_faulty(mutant.fault))
            case Faulty():
                with self._before_servers(mutant.fault) as access:
                    yield replace(self.right, fault_access=access)

    @contextmanager
    def _before_servers(self, fault: Faulty) -> Iterator[FaultAccess]:
        """The deployment of a right server, healed after each mutant, with a proxy in it."""
        if self._harmed is None:
            access = fault_access(described_for_faults(servers=1))
            assert access is not None
            self._harmed = access, self._stack.enter_context(access.deploy())
        access, deployment = self._harmed
        assert fault.make is not None
        before = deployment.client_link.upstreams
        with tampering(deployment.server_address, fault.make()) as address:
            deployment.client_link.upstreams = (Upstream(host=address.host, port=address.port),)
            try:
                yield replace(access, deploy=lambda: nullcontext(deployment))
            finally:
                deployment.client_link.cut_all()
                deployment.client_link.upstreams = before

    @contextmanager
    def _edited(self, edits: Sequence[Edit]) -> Iterator[Target]:
        if self._editable is None:
            path = self._stack.enter_context(temporary_folder()) / "edits.json"
            write_edits(path, ())
            server = reference_server(command=self._command, program=(_EDITED, str(path)))
            self._editable = self._stack.enter_context(server), path
        target, path = self._editable
        write_edits(path, edits)
        _emptied(target)
        try:
            yield target
        finally:
            write_edits(path, ())

    def _misfit(self) -> str:
        """Why the edits that were tried last do not fit; empty where they do."""
        if self._editable is None:
            return ""
        path = self._editable[1]
        said = path.with_name(f"{path.name}.unfit")
        if not said.exists():
            return ""
        why = said.read_text(encoding="utf-8")
        said.unlink()
        return why

    @contextmanager
    def _leaving(self, fault: LeavesBehind) -> Iterator[Target]:
        import redis

        assert self.right.store_url is not None
        _emptied(self.right)
        with redis.Redis.from_url(self.right.store_url) as client:

            def tamper(message: Message, forward: Forward) -> HttpAnswer:
                if not message.is_to_tool:
                    return forward(message)
                if not fault.afterwards:
                    fault.leave(client, message, True)
                answer = forward(message)
                if fault.afterwards:
                    fault.leave(client, message, answer.status != 404)
                return answer

            with tampering(self.right.address, tamper) as address:
                yield behind(self.right, address)

    @contextmanager
    def _writing(self, fault: Writes) -> Iterator[Target]:
        with temporary_folder() as folder:
            log = folder / "server.log"
            log.touch()

            def tamper(message: Message, forward: Forward) -> HttpAnswer:
                if message.is_to_tool:
                    fault.write(log, message)
                return forward(message)

            with tampering(self.right.address, tamper) as address:
                yield replace(behind(self.right, address), logs=Logs([log]))

    def play(
        self,
        mutant: Mutant,
        *,
        profile: Profile = BRIEF,
        whole: bool = False,
        instead: Part | None = None,
    ) -> Outcome:
        """Check a mutant with what is assigned to it, until all that must be named was.

        Args:
            mutant: one of the zoo, or another.
            profile: how much the check does.
            whole: whether to go on to the end of the check.
            instead: what to go through, where it is not what is assigned, such as
                :func:`every_check`.

        Raises:
            LaunchError: the server is not installed, or did not start.
        """
        part = instead or mutant.part
        interrupted = ""
        with self.mounted(mutant) as target:
            started = time.monotonic()
            stops = not (whole or mutant.only)
            tally = _Watch(
                wanted=frozenset(mutant.rules),
                stops=stops,
                goes_through_all=instead is not None,
            )
            run = Run(target=target, profile=profile, seed=SEED, progress=Silent(), tally=tally)
            run.check_name = mutant.check
            try:
                with (
                    suppress(_EnoughError),
                    run.over(Binding.HTTP if instead else mutant.binding),
                    run.guarded(),
                ):
                    part(run)
            except TargetGoneError as error:
                interrupted = str(error)
            finally:
                run.close()
            seconds = time.monotonic() - started
        if isinstance(mutant.fault, BeforeControls):
            # Whatever a wrong control left behind is put right for the next.
            Run(target=self.right, profile=profile, seed=SEED, progress=Silent()).close()
        judged = judge(tally, target, interrupted=interrupted)
        misfit = self._misfit() if isinstance(mutant.fault, Edited) else ""
        return Outcome(
            mutant=mutant,
            fate=Fate.UNFIT if misfit else _fate(mutant, tally),
            named=tuple(tally.named),
            why=(misfit,) if misfit else judged.gaps if instead else tuple(tally.incomplete),
            lost=tally.lost,
            seconds=seconds,
            found={layer: tuple(rules) for layer, rules in tally.found.items()},
            unanswered=tally.lost > 0 and judged.verdict is not Verdict.PASS,
        )

    def alarms(
        self, seed: int, *, profile: Profile = BRIEF, part: Part | None = None
    ) -> tuple[str, ...]:
        """Which rules the right server is said to break: each is a false alarm.

        Args:
            seed: of the run.
            profile: how much the run does.
            part: what it goes through; :func:`every_check` where none is given.

        Raises:
            LaunchError: the server is not installed, or did not start.
            TargetGoneError: it stopped answering.
        """
        logs = self.right.logs
        target = replace(self.right, logs=logs and logs.anew())
        run = Run(target=target, profile=profile, seed=seed, progress=Silent())
        run.check_name = "the right server"
        try:
            with run.guarded():
                (part or every_check)(run)
        finally:
            run.close()
        return tuple(dict.fromkeys(r for f in run.tally.failures.values() for r in f.fault.rules))


def every_check(run: Run) -> None:
    """Every check that the target has the access for, and its logs at the end."""
    for check in CHECKS:
        if check.applies_to(run.target):
            run.play(check)
    judge_logs(run)


def layer_of(failure: Failure) -> str:
    """The check that found a fault, by its name and, over MCP, its binding."""
    name = failure.check.partition(".")[0]
    return f"{name} over MCP" if failure.binding is Binding.MCP else name


def _emptied(target: Target) -> None:
    """Leave a mutant nothing in the store of what the one before it kept there."""
    import redis

    assert target.store_url is not None
    with redis.Redis.from_url(target.store_url) as client:
        client.flushall()


def _instead(decide: Tamper) -> Tamper:
    """Let the right server refuse what is no request."""

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        was_decided = message.is_to_tool and answer.status in _DECIDED
        return decide(message, forward) if was_decided else answer

    return tamper


def _faulty(fault: Faulty) -> FaultAccess:
    """Access to a deployment that is wrong from its start."""
    described = described_for_faults(
        servers=1,
        durability=fault.durability,
        kept=fault.kept,
        **({"program": fault.program} if fault.program else {}),
    )
    assert described.faults is not None
    assert described.faults.store is not None
    command = (*fault.store_prefix, *(described.faults.store.command or ()))
    store = replace(described.faults.store, command=command)
    described = replace(described, faults=replace(described.faults, store=store))

    @contextmanager
    def with_settings(deployment: Deployment) -> Iterator[None]:
        for name, value in fault.settings:
            deployment.set_store(name, value, for_good=True)
        yield

    access = fault_access(described, with_settings)
    assert access is not None
    return access


def _fate(mutant: Mutant, tally: _Watch) -> Fate:
    if not tally.named:
        return Fate.SURVIVED
    missing = set(mutant.rules) - tally.named.keys()
    first = {failure.rule for failure in tally.failures.values()}
    beyond = first - {mutant.rules[0]} if mutant.only else set()
    return Fate.WRONG_RULE if missing or beyond else Fate.KILLED


def behind(target: Target, address: Address) -> Target:
    """The same server, seen through a proxy."""
    return replace(target, address=address, mcp=Address.parse(address.url + MCP_PATH))


def write_edits(path: Path, edits: Sequence[Edit]) -> None:
    """Put a file of edits in the place of another, in one step."""
    put_text(path, json.dumps([asdict(edit) for edit in edits]))


__all__ = ["BRIEF", "Fate", "Keeper", "Outcome", "behind", "every_check", "layer_of", "write_edits"]
