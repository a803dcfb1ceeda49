"""One run: a target, a profile, a seed, and the checks that go through them in order."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Final, ParamSpec, Protocol

from checkpoint_conformance.client import EXCHANGE_SECONDS_MAX, Address, Client
from checkpoint_conformance.clock import Clock, FrozenClock, RunningClock
from checkpoint_conformance.controls import ControlError, Controls
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.session import LostError, Session, ViolationError
from checkpoint_conformance.tally import Sent, Tally, Timing


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
    store_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds_max: float = EXCHANGE_SECONDS_MAX
    """How long one exchange may take."""
    description: str = ""
    """One line for people."""
    name: str = ""
    version: str = ""
    homepage: str = ""
    classes: frozenset[RuleClass] = frozenset({RuleClass.CORE, RuleClass.CONTROLS})
    """The conformance classes that are claimed; controls count only where they are given."""
    expected_failures: tuple[ExpectedFailure, ...] = ()

    def client(self) -> Client:
        """A connection to the tool."""
        return Client(self.address, headers=self.headers, seconds_max=self.seconds_max)

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
    contenders: int
    drawing_seconds_max: float
    """On a slow target sequences are drawn for no longer than this, and the run says so."""


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            name="quick",
            stateful_examples=60,
            stateful_steps=30,
            fuzz_examples=8,
            race_rounds=2,
            contenders=100,
            drawing_seconds_max=30,
        ),
        Profile(
            name="default",
            stateful_examples=1000,
            stateful_steps=40,
            fuzz_examples=60,
            race_rounds=10,
            contenders=100,
            drawing_seconds_max=120,
        ),
        Profile(
            name="thorough",
            stateful_examples=10000,
            stateful_steps=50,
            fuzz_examples=600,
            race_rounds=50,
            contenders=100,
            drawing_seconds_max=1500,
        ),
    )
}
"""About 10 s, 60 s and 10 min on two cores against the reference server."""


Parts = ParamSpec("Parts")
ATTEMPTS_MAX: Final = 3
"""How often a fixed sequence is begun before it is left out."""


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

    def __post_init__(self) -> None:
        """Open the doors."""
        self._drawing_since = time.monotonic()
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
            self.controls.close()
        self.client.close()

    def begin_drawing(self) -> None:
        """Count the time for drawn sequences from now."""
        self._drawing_since = time.monotonic()

    @property
    def out_of_time(self) -> bool:
        """Whether sequences have been drawn for as long as the profile allows."""
        return time.monotonic() - self._drawing_since > self.profile.drawing_seconds_max

    def new_client(self) -> Client:
        """A connection of its own to the target."""
        return self.target.client()

    def session(self, client: Client | None = None) -> Session:
        """A workflow that nobody has used."""
        return Session(
            check=self.check_name,
            client=client or self.client,
            clock=self.clock,
            tally=self.tally,
        )

    def advance(self, milliseconds: int, *sessions: Session) -> None:
        """Move the frozen clock, and note it in the sequences that go on after it."""
        assert self.controls is not None
        assert isinstance(self.clock, FrozenClock)
        sent = self.controls.advance(self.clock, milliseconds)
        for session in sessions:
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
        self, part: Callable[Parts, None], *args: Parts.args, **kwargs: Parts.kwargs
    ) -> None:
        """Go through a fixed sequence; begin it anew when an answer was lost in the middle."""
        for _ in range(ATTEMPTS_MAX):
            try:
                part(*args, **kwargs)
            except (ViolationError, ControlError) as error:
                self.tally.fail(error.failure)
            except LostError:
                continue
            return
        self.tally.leave_out(f"a sequence of the check «{self.check_name}» lost its answers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One part of a run."""

    name: str
    title: str
    run: Callable[[Run], None]
    needs_controls: bool = False
    needs_store: bool = False
    only_without_controls: bool = False

    def applies_to(self, target: Target) -> bool:
        """Whether the access that it needs is given."""
        if self.needs_controls and target.controls is None:
            return False
        if self.needs_store and target.store_url is None:
            return False
        return not (self.only_without_controls and target.controls is not None)
