"""The scripts as typed calls.

Conversation with the store, for each action:

1. ``EVALSHA`` of the script's digest, its one key, its arguments.
2. ``NOSCRIPT`` (the store restarted, or never saw the script): nothing was executed, so the
   call is made once more with the script's text, ``EVAL``, by which the store knows it from
   then on. Nothing else is ever repeated: after any other fault it is unknown whether the step
   was applied (WC-ERR-5).
3. A reply: the outcome in the contract's words, the time of the step, the record after it.

An error that a script itself raises (``malformed call``) is a fault of the program that
called, and surfaces as ``redis.exceptions.ResponseError``.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib import resources
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

ACTIONS: Final = ("claim", "transition", "abandon", "status")
KEY_PREFIX: Final = "wc:"
_INCLUDE: Final = re.compile(r"^-- @include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """One action's script, assembled: what the store is given."""

    action: str
    text: str
    sha1: str
    """By which ``EVALSHA`` names it."""


def source(path: str) -> str:
    """The text of one file of the scripts, by its path below their folder."""
    return resources.files("checkpoint_lua.scripts").joinpath(path).read_text(encoding="utf-8")


def assemble(action: str, read: Callable[[str], str] = source) -> str:
    """One action's script with its includes put in; ``read`` gives the text of each file."""
    return _INCLUDE.sub(
        lambda match: read(f"include/{match[1]}.lua").rstrip("\n"), read(f"{action}.lua")
    )


@cache
def scripts() -> Mapping[str, Script]:
    """Every action's script, its includes put in."""

    def assembled(action: str) -> Script:
        whole = assemble(action)
        digest = sha1(whole.encode(), usedforsecurity=False).hexdigest()
        return Script(action=action, text=whole, sha1=digest)

    return MappingProxyType({action: assembled(action) for action in ACTIONS})


def record_key(workflow_digest: str) -> str:
    """The one key of a record; the digest is its hash tag, so that a cluster can place it."""
    return f"{KEY_PREFIX}{{{workflow_digest}}}"


class StoredRecord(NamedTuple):
    """The record as a script reports it. Times are milliseconds since the epoch."""

    stage: str
    generation: int
    holder: str
    """Digest."""
    claim_end_ms: int
    """When the claim ends or ended; at or before the step's time it is over."""
    state_end_ms: int
    claim_ttl_seconds: int
    state_ttl_seconds: int
    retry_failed: bool
    evidence_type: str | None
    evidence_fingerprint_present: bool


class Reply(NamedTuple):
    """What a script answered."""

    outcome: str
    """A code of section 8, or one of ``acquired``, ``recovered``, ``reused``,
    ``transitioned``, ``observation_replayed``, ``abandoned``, ``reported``."""
    now_ms: int
    record: StoredRecord | None

    @classmethod
    def parse(cls, raw: Sequence[str]) -> "Reply":
        """Read the flat reply of ``include/reply.lua``."""
        outcome, now_ms, *fields = raw
        if not fields:
            return cls(outcome, int(now_ms), None)
        stage, generation, holder, claim_end, state_end, claim_ttl, state_ttl, *rest = fields
        retry_failed, evidence_type, evidence_fingerprint = rest
        record = StoredRecord(
            stage,
            int(generation),
            holder,
            int(claim_end),
            int(state_end),
            int(claim_ttl),
            int(state_ttl),
            retry_failed == "1",
            evidence_type or None,
            evidence_fingerprint == "1",
        )
        return cls(outcome, int(now_ms), record)


class Store(Protocol):
    """What the scripts need of a client: ``redis.asyncio``'s has it, among others."""

    def evalsha(self, sha: str, numkeys: int, /, *keys_and_args: Any) -> Awaitable[Any]:
        """Run the script that has this digest."""

    def eval(self, script: str, numkeys: int, /, *keys_and_args: Any) -> Awaitable[Any]:
        """Run a script, and know it from then on."""


class Checkpoints:
    """The four actions on one store, each one atomic step.

    Args:
        store: a client that decodes responses and never repeats a command by itself.
        seconds_max: how long both calls together may take where the store does not know a
            script; None where its client alone bounds each of them.

    What every method returns raises what the client raises: ``redis.exceptions.RedisError`` when
    the store refuses, ``OSError`` or the client's connection errors when it cannot be reached;
    and ``TimeoutError``. After those it is unknown whether the step was applied.

    ``clock`` is empty for the store's own time; the test controls give ``shift:<ms>`` or
    ``at:<ms>`` (WC-CTL-1). Every identifier is a digest of 43 characters.
    """

    def __init__(self, store: Store, seconds_max: float | None = None) -> None:
        self._store = store
        self._seconds_max = seconds_max
        self._scripts = scripts()

    def claim(
        self,
        workflow: str,
        *,
        holder: str,
        claim_ttl_seconds: int,
        state_ttl_seconds: int,
        retry_failed: bool,
        clock: str = "",
    ) -> Coroutine[Any, Any, Reply]:
        """WC-CLAIM-1 … WC-CLAIM-8."""
        retry = "1" if retry_failed else "0"
        return self._call(
            "claim", workflow, clock, holder, claim_ttl_seconds, state_ttl_seconds, retry
        )

    def transition(
        self,
        workflow: str,
        *,
        holder: str,
        generation: int,
        to_stage: str,
        observation: str,
        body: str,
        evidence_type: str | None,
        evidence_fingerprint_present: bool,
        clock: str = "",
    ) -> Coroutine[Any, Any, Reply]:
        """WC-TRANS-1 … WC-TRANS-8; ``observation`` and ``body`` are digests."""
        return self._call(
            "transition",
            workflow,
            clock,
            holder,
            generation,
            to_stage,
            observation,
            body,
            evidence_type or "",
            "1" if evidence_fingerprint_present else "0",
        )

    def abandon(
        self, workflow: str, *, holder: str, generation: int, clock: str = ""
    ) -> Coroutine[Any, Any, Reply]:
        """WC-ABANDON-1 … WC-ABANDON-6."""
        return self._call("abandon", workflow, clock, holder, generation)

    def status(self, workflow: str, *, clock: str = "") -> Coroutine[Any, Any, Reply]:
        """WC-STATUS-1 and WC-STATUS-2."""
        return self._call("status", workflow, clock)

    async def _call(self, action: str, workflow: str, *arguments: str | int) -> Reply:
        script = self._scripts[action]
        key = record_key(workflow)
        began = monotonic()  # and not the loop's: to ask which one runs is a system call
        try:
            raw = await self._store.evalsha(script.sha1, 1, key, *arguments)
        except _no_script_error():
            left = None
            if self._seconds_max is not None:
                left = began + self._seconds_max - monotonic()
            async with asyncio.timeout(left):
                raw = await self._store.eval(script.text, 1, key, *arguments)
        return Reply.parse(raw)


def _no_script_error() -> type[Exception]:
    """What a client raises; imported only once something was, for the scripts need no client."""
    from redis.exceptions import NoScriptError

    return NoScriptError
