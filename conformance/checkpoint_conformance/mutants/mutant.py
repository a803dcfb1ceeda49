"""What a mutant is: one fault of one server, and what must be said of it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from checkpoint_conformance.faults import Command, Durability
from checkpoint_conformance.mutants.proxy import Message, Tamper
from checkpoint_conformance.rules import Access, Binding
from checkpoint_conformance.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    import redis

Part: TypeAlias = Callable[[Run], None]
"""A check, or a part of one."""


class Kind(StrEnum):
    """What of a server is wrong, by which mutants share what they are made from."""

    DECISION = "decision"
    """One place, or one swap, of the reference server's Lua scripts."""
    ANSWER = "answer"
    """What is done with requests before they are decided, and with answers afterwards."""
    CONTROL = "control"
    """The test controls."""
    STORE = "store"
    """What lies in the store beside the record."""
    LOG = "log"
    """What is written to the log."""
    MCP = "mcp"
    """The MCP binding."""
    DESCRIPTION = "description"
    """A published description."""
    CONCURRENCY = "concurrency"
    """Steps that are not atomic."""
    FAULT = "fault"
    """What is done when a store, a connection or a process fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One place of the assembled Lua scripts, changed: in every script that has the text.

    The text must be there exactly once in each of those.
    """

    old: str
    new: str
    action: str = ""
    """The one script that is changed; empty for each that has the text."""


@dataclass(frozen=True, slots=True)
class Edited:
    """The reference server with its scripts changed, by one edit after the other."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class InFront:
    """A proxy before the tool, made anew for each run; it may keep a memory of its own."""

    make: Callable[[], Tamper]


@dataclass(frozen=True, slots=True)
class BeforeControls:
    """A proxy before the controls."""

    make: Callable[[], Tamper]


@dataclass(frozen=True, slots=True)
class LeavesBehind:
    """What each request to the tool leaves in the store, besides what the server stores.

    Called with the request; after it was answered, with whether a record was there, if
    ``afterwards``, else before with True.
    """

    leave: "Callable[[redis.Redis, Message, bool], None]"
    afterwards: bool = False


@dataclass(frozen=True, slots=True)
class Writes:
    """What each request to the tool adds to a log."""

    write: "Callable[[Path, Message], None]"


@dataclass(frozen=True, slots=True)
class Instead:
    """A program that decides requests in the server's place, with neither controls nor MCP nor
    store. What is none, or no request to the tool, is answered by the right server."""

    make: Callable[[], Tamper]


@dataclass(frozen=True, kw_only=True, slots=True)
class Faulty:
    """The deployment of which faults are made, with something wrong about it."""

    make: Callable[[], Tamper] | None = None
    """A proxy before its servers, made anew for each run."""
    durability: Durability = Durability.CHANGE
    """What its store declares."""
    kept: Durability | None = None
    """What its store keeps in truth; the same if None."""
    store_prefix: Command = ()
    """Stands before the command that runs the store."""
    program: Command = ()
    """What is run in the server's place, with its options."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of the store that are changed once the server has started."""


Fault: TypeAlias = Faulty | Edited | InFront | BeforeControls | LeavesBehind | Writes | Instead


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One server with one thing wrong."""

    name: str
    """By which it is called: lower-case words with hyphens."""
    wrong: str
    """One sentence of what is wrong."""
    kind: Kind
    fault: Fault
    rules: tuple[str, ...]
    """Those that must be named, every one of them: a kill by others is none."""
    part: Part
    """The part of a check that is assigned to it."""
    binding: Binding = Binding.HTTP
    """The one that the part goes by."""
    only: bool = False
    """Whether no fault may be found that does not break the first of these in the first place."""
    real_time: bool = False
    """Whether it is checked without controls, where with them it would be less of a test."""

    @property
    def check(self) -> str:
        """The assigned part by name, such as ``walk.walk_frozen``."""
        return f"{self.part.__module__.rpartition('.')[2]}.{self.part.__name__}"

    @property
    def access(self) -> Access:
        """What access its part makes use of."""
        if self.kind is Kind.FAULT:
            return Access.FAULTS
        if self.kind in (Kind.STORE, Kind.LOG):
            return Access.STORE
        if self.check in _WITH_CONTROLS and not self.real_time:
            return Access.CONTROLS
        return Access.BLACK_BOX


_WITH_CONTROLS: Final = frozenset(
    {
        "controls.control_checks",
        "doors.doors",
        "example.examples_at_their_time",
        "stateful.stateful_frozen",
        "vectors.vectors",
        "walk.walk_frozen",
    }
)


def always(tamper: Tamper) -> Callable[[], Tamper]:
    """The maker of a proxy that remembers nothing."""
    return lambda: tamper
