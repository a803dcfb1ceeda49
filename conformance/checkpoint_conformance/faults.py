"""What may be done to a target: its faults as data, and what its store promises to keep.

``target.yaml`` says them (``faults``, ``durability``; ``docs/faults.md``), a deployment
(:mod:`checkpoint_conformance.deployment`) makes use of them, a nemesis chooses among them.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from checkpoint_conformance.deployment import Deployment

SERVERS_MAX: Final = 8
"""So many servers over one store are started at most."""
Command: TypeAlias = tuple[str, ...]
"""A program and its arguments; no shell."""


class Durability(StrEnum):
    """What survives a crash of the store, as a program reads it (WC-PRIV-5)."""

    NONE = "none"
    """Nothing need."""
    SECOND = "second"
    """What is synced every second keeps: all but what was acknowledged within the last two. While
    the disk is busy with one sync, such a store puts off writing, too, and goes on answering."""
    CHANGE = "change"
    """Every change that was acknowledged."""


class Kind(StrEnum):
    """The faults that there are. Each is begun, holds for some time, and is healed."""

    SERVER_KILL = "server-kill"
    """Every server is killed with SIGKILL, and started again."""
    SERVER_KILL_ONE = "server-kill-one"
    """One of several over one store is, while the others go on."""
    STORE_KILL = "store-kill"
    """The store is killed with SIGKILL, and started again with what it kept."""
    STORE_FREEZE = "store-freeze"
    """The store is stopped with SIGSTOP, and goes on with SIGCONT."""
    STORE_PARTITION = "store-partition"
    """Nothing passes between servers and store; what was under way arrives when it is healed."""
    STORE_SLOW = "store-slow"
    """The store's answers come late."""
    STORE_FULL = "store-full"
    """The store has no more memory for a write."""
    CLIENT_CUT_BEFORE_REQUEST = "client-cut-before-request"
    """Connections of clients are cut: before a request arrives,"""
    CLIENT_CUT_IN_REQUEST = "client-cut-in-request"
    """in the middle of one,"""
    CLIENT_CUT_BEFORE_ANSWER = "client-cut-before-answer"
    """after it arrived, so that its answer is lost,"""
    CLIENT_CUT_IN_ANSWER = "client-cut-in-answer"
    """in the middle of the answer,"""
    CLIENT_CUT_AFTER_ANSWER = "client-cut-after-answer"
    """after the answer."""
    STORE_CUT_BEFORE_REQUEST = "store-cut-before-request"
    """The same between server and store."""
    STORE_CUT_IN_REQUEST = "store-cut-in-request"
    STORE_CUT_BEFORE_ANSWER = "store-cut-before-answer"
    STORE_CUT_IN_ANSWER = "store-cut-in-answer"
    STORE_CUT_AFTER_ANSWER = "store-cut-after-answer"
    CLOCK_FORWARD = "clock-forward"
    """The clock of the store's host is set forward, and back again."""
    CLOCK_BACK = "clock-back"
    """It is set back, and forward again."""


CRASHES: Final = frozenset({Kind.STORE_KILL})
"""After which the store has only what it kept."""
AWAY: Final = frozenset({Kind.STORE_KILL, Kind.STORE_FREEZE, Kind.STORE_PARTITION})
"""While which the store answers nothing at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFaults:
    """How a server that runs already is killed and started again."""

    kill: Command
    start: Command


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreFaults:
    """How the store is reached: by its process, or by commands that others gave."""

    command: Command | None = None
    """The store itself, run in the foreground for as long as the deployment: it is ours."""
    pid_file: Path | None = None
    """Where its process id stands, of a store that runs already."""
    kill: Command | None = None
    start: Command | None = None
    """Starts it again once it was killed, and returns."""
    freeze: Command | None = None
    thaw: Command | None = None
    may_be_spoiled: bool = False
    """Whether its settings may be changed, and put back."""
    clock_file: Path | None = None
    """Whose text libfaketime reads as the clock's offset, such as ``+5.0``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Faults:
    """What may be done."""

    servers: int = 1
    """How many are started over one store."""
    server: ServerFaults | None = None
    store: StoreFaults | None = None


@dataclass(frozen=True, kw_only=True)
class FaultAccess:
    """Access to faults: a deployment can be had that may be harmed."""

    kinds: tuple[Kind, ...]
    """Those that can be made there."""
    missing: Mapping[Kind, str]
    """Why each of the others cannot."""
    durability: Durability
    starts: bool
    """Whether another server of the kind can be started."""
    apart: bool
    """Whether servers and store are started for it: what is done there nobody else sees."""
    deploy: Callable[[], AbstractContextManager["Deployment"]]
    """Raises LaunchError or TargetError where it cannot be started."""

    def lacks(self, rule: str) -> str:
        """What more a rule needs that is tested with faults; empty where all is there."""
        needed = _NEEDED.get(rule, ())
        if not needed or any(kind in self.kinds for kind in needed):
            return ""
        return f"faults: {self.missing[needed[0]]}"


_NEEDED: Final[Mapping[str, tuple[Kind, ...]]] = MappingProxyType(
    {
        "WC-ERR-5": (Kind.STORE_FREEZE, Kind.STORE_KILL, Kind.STORE_PARTITION),
        "WC-PRIV-4": (Kind.STORE_FULL,),
        "WC-PRIV-5": (Kind.STORE_KILL,),
    }
)
"""Any one of which shows the rule."""


class FaultNameError(ValueError):
    """There is no fault of a name; the message says which there are."""


def kinds_named(text: str) -> tuple[Kind, ...]:
    """The kinds in a list with commas, or every kind of ``all``, in their own order.

    Raises:
        FaultNameError: there is none of a name.
    """
    names = [name for name in text.replace(" ", "").split(",") if name]
    unknown = [name for name in names if name != "all" and name not in set(Kind)]
    if unknown or not names:
        said = f"there is no fault {unknown[0]!r}" if unknown else "name at least one fault"
        raise FaultNameError(f"{said}; there are all, {', '.join(Kind)}")
    return tuple(kind for kind in Kind if "all" in names or kind in names)
