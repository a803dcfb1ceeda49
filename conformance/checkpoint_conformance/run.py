"""One run: a target, a profile, a seed, and the checks that go through them in order."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final, ParamSpec, Protocol, TypeVar

from checkpoint_conformance.client import EXCHANGE_SECONDS_MAX, Address, Client
from checkpoint_conformance.clock import Clock, FrozenClock, RunningClock
from checkpoint_conformance.controls import ControlError, Controls
from checkpoint_conformance.faults import FaultAccess
from checkpoint_conformance.logs import Logs
from checkpoint_conformance.mcp_client import Endpoint, McpClient
from checkpoint_conformance.rules import Binding, RuleClass
from checkpoint_conformance.session import LostError, Session, ViolationError
from checkpoint_conformance.tally import Failure, Sent, Tally, Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedFailure:
    """A rule that is known to be broken (D10)."""

    rule: str
    reason: str
    issue: str = ""
    """URL of where it is dealt with; empty where there is none."""
    expires: date | None = None
    """The last day on which the failure is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What is checked, and what access to it there is."""

    address: Address
    controls: Address | None = None
    mcp: Address | None = None
    """Its MCP endpoint."""
    store_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    logs: Logs | None = None
    """What it writes, where that may be read."""
    seconds_max: float = EXCHANGE_SECONDS_MAX
    """How long one exchange may take."""
    description: str = ""
    """One line for people."""
    name: str = ""
    version: str = ""
    homepage: str = ""
    classes: frozenset[RuleClass] = frozenset({RuleClass.CORE, RuleClass.CONTROLS})
    """The conformance classes that are claimed; controls and MCP count only where given."""
    expected_failures: tuple[ExpectedFailure, ...] = ()
    fault_access: FaultAccess | None = None
    """How faults are made of it; None where they cannot be."""
    one_by_one: bool = False
    """Whether it serves one connection at a time, or limits the rate: nothing is sent beside
    anything else then, but where that is what is checked."""

    @property
    def claimed_classes(self) -> frozenset[RuleClass]:
        """The conformance classes that it is checked for."""
        beyond = set()
        if self.controls is None:
            beyond.add(RuleClass.CONTROLS)
        if self.mcp is None:
            beyond.add(RuleClass.MCP)
        return self.classes - beyond

    def client(self) -> Client:
        """A connection to the tool."""
        return Client(self.address, headers=self.headers, seconds_max=self.seconds_max)

    def endpoint(self) -> Endpoint:
        """Its MCP endpoint, not met yet."""
        assert self.mcp is not None
        return Endpoint(self.mcp, headers=self.headers, seconds_max=self.seconds_max)

    def controls_client(self) -> Client:
        """A connection to the controls, which get no header that is meant for the tool."""
        assert self.controls is not None
        return Client(self.controls, seconds_max=self.seconds_max)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """How much a run does. Counts, not seconds, so that a seed repeats a run."""

    name: str
    stateful_examples: int
    stateful_steps: int
    fuzz_examples: int
    """Of each action, valid and invalid apart."""
    race_rounds: int
    storm_rounds: int
    contenders: int
    mcp_vectors: int
    """Vectors that go over MCP as well, and by both doors in turn, where the target has both."""
    fault_rounds: int
    """How often each kind of fault is made in the middle of everything."""
    drawing_seconds_max: float
    """On a slow target sequences are drawn for no longer than this, and the run says so."""

    @property
    def stateful_shards(self) -> int:
        """In how many parts its sequences are drawn, each by a seed of its own.

        What a seed draws is the same however many of them are drawn at a time.
        """
        return max(math.ceil(self.stateful_examples / SHARD_EXAMPLES_MAX), 1)

    def shards_of(self, check: "Check") -> int:
        """In how many parts a check is done."""
        profile = self.over_mcp() if check.binding is Binding.MCP else self
        return profile.stateful_shards if check.drawn_in_shards else 1

    def over_mcp(self) -> "Profile":
        """The share of it that goes over MCP too: what is decided is the same behind both doors."""
        return replace(
            self,
            stateful_examples=max(self.stateful_examples // MCP_SHARE, MCP_EXAMPLES_MIN),
            race_rounds=max(self.race_rounds // MCP_SHARE, MCP_ROUNDS_MIN),
        )


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            name="quick",
            stateful_examples=60,
            stateful_steps=30,
            fuzz_examples=8,
            race_rounds=2,
            storm_rounds=2,
            contenders=100,
            mcp_vectors=40,
            fault_rounds=0,
            drawing_seconds_max=30,
        ),
        Profile(
            name="default",
            stateful_examples=1000,
            stateful_steps=40,
            fuzz_examples=60,
            race_rounds=10,
            storm_rounds=5,
            contenders=100,
            mcp_vectors=160,
            fault_rounds=1,
            drawing_seconds_max=120,
        ),
        Profile(
            name="thorough",
            stateful_examples=10000,
            stateful_steps=50,
            fuzz_examples=600,
            race_rounds=50,
            storm_rounds=30,
            contenders=100,
            mcp_vectors=400,
            fault_rounds=10,
            drawing_seconds_max=1500,
        ),
    )
}
"""Of a target with every class, one check after the other on a quiet machine: half a minute, a
minute and a half, and many minutes. In lanes it is half of that."""


SHARD_EXAMPLES_MAX: Final = 250
"""Sequences that are drawn in one go: enough that beginning does not count, few enough that a
profile has several to share out. Hypothesis remembers all that it drew and forgets it afterwards;
twelve thousand in one go were found to hold 1.7 GB."""
MCP_SHARE: Final = 20
"""One in so many drawn sequences and races of a profile goes over MCP as well."""
MCP_EXAMPLES_MIN: Final = 20
MCP_ROUNDS_MIN: Final = 2
Parts = ParamSpec("Parts")
Came = TypeVar("Came")
ATTEMPTS_MAX: Final = 3
"""How often a fixed sequence is begun before it is left out."""
PAUSE_SECONDS: Final = 2.0
"""Before one is begun anew that would be a failure if it went on like this: a gateway answers for a
server that starts again, asked at once, as often as one likes."""


class Progress(Protocol):
    """Who is told how far a run is."""

    def check(self, title: str) -> None:
        """A check begins."""

    def advance(self, done: int, of: int) -> None:
        """The check at hand has done so much of so many."""


@dataclass(kw_only=True)
class Run:
    """What the checks share."""

    target: Target
    profile: Profile
    seed: int
    progress: Progress
    tally: Tally = field(default_factory=Tally)
    clock: Clock = field(default_factory=RunningClock)
    check_name: str = ""
    shard: int | None = None
    """Which of a check's shards is drawn; every one, in turn, if None."""

    def __post_init__(self) -> None:
        """Open the doors."""
        self.begin_drawing()
        self._whole_profile = self.profile
        self.tally.logs = self.target.logs
        self._endpoint: Endpoint | None = None
        self.client = self.new_client()
        self.controls: Controls | None = None
        self._freeze: Sent | None = None
        if self.target.controls is not None:
            self.controls = Controls(self.target.controls_client(), self.tally)

    def close(self) -> None:
        """Close the doors, and put the controls back."""
        if self.controls is not None:
            with suppress(ControlError, LostError):
                self.controls.reset()
        self.leave()

    def leave(self) -> None:
        """Close the doors, the controls as they are."""
        if self.controls is not None:
            self.controls.close()
        self.client.close()

    def take(self, tally: Tally) -> None:
        """Go on from what others saw of the same target."""
        tally.requests += self.tally.requests
        self.tally = tally
        if self.target.controls is not None and self.controls is not None:
            self.controls.close()
            self.controls = Controls(self.target.controls_client(), tally)

    def begin_drawing(self, share: float = 1) -> None:
        """Count the time for drawn sequences from now: all of the profile's, or a share of it."""
        self._drawing_since = time.monotonic()
        self.drawing_seconds_max = self.profile.drawing_seconds_max * share

    @property
    def out_of_time(self) -> bool:
        """Whether sequences have been drawn for as long as the profile allows."""
        return time.monotonic() - self._drawing_since > self.drawing_seconds_max

    @property
    def endpoint(self) -> Endpoint:
        """The target's MCP endpoint, which all of the run's clients have been introduced to."""
        if self._endpoint is None:
            self._endpoint = self.target.endpoint()
        return self._endpoint

    def new_client(self, binding: Binding | None = None) -> Client:
        """A connection of its own to the target, by the binding that the check at hand goes by."""
        if (binding or self.tally.binding) is Binding.MCP:
            return McpClient(self.endpoint, self.target.client())
        return self.target.client()

    @contextmanager
    def over(self, binding: Binding) -> Iterator[None]:
        """Let all that follows go by a binding."""
        before, self.tally.binding = self.tally.binding, binding
        client = self.client
        if binding is not before:
            self.client = self.new_client()
            profile = self._whole_profile
            self.profile = profile.over_mcp() if binding is Binding.MCP else profile
        try:
            yield
        finally:
            if self.client is not client:
                self.client.close()
            self.client, self.tally.binding = client, before
            self.profile = self._whole_profile

    def play(self, check: "Check") -> None:
        """Go through a check; what ends it early is in the tally, but for a target that is gone."""
        self.check_name = check.name
        with self.over(check.binding), self.timed(check.title), self.guarded():
            check.run(self)

    def session(self, client: Client | None = None) -> Session:
        """A workflow that nobody has used."""
        return Session(
            check=self.check_name,
            client=client or self.client,
            clock=self.clock,
            tally=self.tally,
        )

    def advance(self, milliseconds: int, *sessions: Session) -> Sent:
        """Move the frozen clock, and note it in the sequences that go on after it."""
        assert self.controls is not None
        assert isinstance(self.clock, FrozenClock)
        sent = self.controls.advance(self.clock, milliseconds)
        for session in sessions:
            self.waited(session, milliseconds, sent)
        return sent

    def waited(self, session: Session, milliseconds: int, sent: Sent) -> None:
        """Note in a sequence that the frozen clock moved; ``sent`` is what moved it."""
        # A sequence that moves the clock begins by freezing it, or it cannot be repeated.
        frozen = any(line.on_controls for line in session.sequence)
        if not frozen and self._freeze is not None:
            session.sequence.insert(0, self._freeze)
        session.waited(milliseconds, [sent])

    @contextmanager
    def frozen(self) -> Iterator[FrozenClock]:
        """Freeze the clock, and put every control back afterwards."""
        assert self.controls is not None
        clock, self._freeze = self.controls.freeze()
        self.clock = clock
        try:
            yield clock
        finally:
            self.clock = RunningClock()
            self.controls.reset()

    @contextmanager
    def timed(self, title: str) -> Iterator[None]:
        """Note what the check at hand takes, however it ends."""
        started, requests = time.monotonic(), self.tally.requests
        try:
            yield
        finally:
            timing = Timing(
                name=self.check_name,
                title=title,
                seconds=time.monotonic() - started,
                requests=self.tally.requests - requests,
            )
            self.tally.timings.append(timing)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn what ends one sequence into its entry in the tally, and go on after it."""
        try:
            yield
        except (ViolationError, ControlError) as error:
            self.tally.fail(error.failure)
        except LostError:
            pass  # counted where it was lost; the verdict says when there were too many

    def attempt(
        self, part: Callable[Parts, Came], *args: Parts.args, **kwargs: Parts.kwargs
    ) -> Came | None:
        """Go through a fixed sequence; begin it anew when an answer was lost in the middle.

        What it comes to; None where it ended early.
        """
        lost: list[Failure | None] = []
        while len(lost) < ATTEMPTS_MAX:
            try:
                return part(*args, **kwargs)
            except (ViolationError, ControlError) as error:
                self.tally.fail(error.failure)
                return None
            except LostError as error:
                lost.append(error.failure)
                if error.failure is not None and len(lost) < ATTEMPTS_MAX:
                    time.sleep(PAUSE_SECONDS)
        self.give_up(lost)
        return None

    def give_up(self, lost: Sequence[Failure | None]) -> None:
        """Begin a sequence no more that lost its answers each time; what each time was, if it is
        anything against the target."""
        last = lost[-1]
        if last is None or None in lost:
            self.leave_sequence_out()
        else:
            self.tally.fail(last)

    def leave_sequence_out(self) -> None:
        """Say that a fixed sequence was begun in vain as often as it may be."""
        self.tally.leave_out(f"a sequence of the check «{self.check_name}» lost its answers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One part of a run."""

    name: str
    title: str
    run: Callable[[Run], None]
    binding: Binding = Binding.HTTP
    needs_controls: bool = False
    needs_store: bool = False
    needs_faults: bool = False
    only_without_controls: bool = False
    needs_class: RuleClass | None = None
    alone: bool = False
    """Whether nothing else may be done to the target meanwhile. What needs controls is alone in any
    case: a clock stands still for everybody."""
    only_unbroken: bool = False
    """Whether it says nothing where something before it in the list is broken."""
    drawn_in_shards: bool = False
    seconds: float = 1
    """About how long it, or a shard of it, takes in the default profile on a quiet machine. What
    takes longest is begun first; nothing else depends on it."""
    waits: bool = False
    """Whether it mostly waits, and leaves a processor to others: one such is begun before what
    takes longest, so that they are not waited for at the end, with nothing else to do."""

    def over_mcp(self, *, only_without_controls: bool = False) -> "Check":
        """The same by the other door."""
        return replace(
            self,
            title=f"{self.title}, over MCP",
            binding=Binding.MCP,
            only_without_controls=self.only_without_controls or only_without_controls,
        )

    def applies_to(self, target: Target) -> bool:
        """Whether the access that it needs is given."""
        if self.binding is Binding.MCP and target.mcp is None:
            return False
        if self.needs_class is not None and self.needs_class not in target.claimed_classes:
            return False
        if self.needs_controls and target.controls is None:
            return False
        if self.needs_store and target.store_url is None:
            return False
        if self.needs_faults and target.fault_access is None:
            return False
        return not (self.only_without_controls and target.controls is not None)
