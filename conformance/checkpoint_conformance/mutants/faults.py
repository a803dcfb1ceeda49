"""Mutants that are right until something fails: a store, a connection, a process."""

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_conformance.checks import faults
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.faults import Durability
from checkpoint_conformance.mutants.concurrency import as_http
from checkpoint_conformance.mutants.mutant import Faulty, Kind, Mutant, Part
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, with_members
from checkpoint_model import Action, ErrorCode, Identity, parse_request, step

_LONGER_SECONDS: Final = 2.5
_REPEATS_MAX: Final = 20
_FLAGS_OF_A_CLAIM: Final = ("acquired", "recovered", "reused", "transitioned", "abandoned")


def _unavailable(answer: HttpAnswer) -> bool:
    if answer.status != 503:
        return False
    members = json.loads(answer.body)
    return bool(members.get("code") == ErrorCode.DEPENDENCY_UNAVAILABLE)


@dataclass
class WriteBehind:
    """Acknowledges the first claim of a workflow at once, and writes it with the next change.

    A status is the store's own, which knows nothing of such a claim yet; from then on nobody does.
    """

    pending: dict[Identity, Message] = field(default_factory=dict)
    known: set[Identity] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, message: Message, forward: Forward) -> HttpAnswer:
        """Answer a claim of something new from the model; let every other change follow it."""
        if not message.is_to_tool:
            return forward(message)
        identity, request = parse_request(message.json)
        with self.lock:
            if request.action is Action.CLAIM and identity not in self.known:
                self.known.add(identity)
                self.pending[identity] = message
                decided = step(None, request, time.time_ns() // 1_000_000)
                return as_http(identity, decided, request)
            behind = self.pending.pop(identity, None)
        if behind is not None and request.action is not Action.STATUS:
            forward(behind)
        return forward(message)


@dataclass
class FromMemory:
    """Answers a status from memory where the store does not answer."""

    answers: dict[tuple[str, str], HttpAnswer] = field(default_factory=dict)

    def __call__(self, message: Message, forward: Forward) -> HttpAnswer:
        """Remember every result, and use it where there is none."""
        answer = forward(message)
        if not message.is_to_tool:
            return answer
        asked: dict[str, Any] = message.json
        key = (asked["namespace"], asked["workflow_key"])
        if answer.status == 200:
            self.answers[key] = answer
        elif asked["action"] == Action.STATUS and key in self.answers and _unavailable(answer):
            down = dict.fromkeys(_FLAGS_OF_A_CLAIM, False)
            return with_members(self.answers[key], action="status", **down)
        return answer


def _repeats(message: Message, forward: Forward) -> HttpAnswer:
    """Send again what came to nothing, until it comes to something."""
    answer = forward(message)
    for _ in range(_REPEATS_MAX):
        if not message.is_to_tool or not _unavailable(answer):
            break
        answer = forward(message)
    return answer


def _waits_longer(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if message.is_to_tool and _unavailable(answer):
        time.sleep(_LONGER_SECONDS)
    return answer


def _without_code(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    if message.is_to_tool and _unavailable(answer):
        return HttpAnswer(status=500, headers=(("content-type", "text/plain"),), body=b"Fault\n")
    return answer


_LOSES_THE_LAST_WRITE: Final = """
import os, pathlib, sys
logs = pathlib.Path(sys.argv[1], "appendonlydir").glob("*.incr.aof")
for log in logs:
    size = log.stat().st_size
    if size:
        os.truncate(log, size - 10)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Cuts a piece off the end of what the store kept, so that it reads all but its last write."""
_STARTS_ANYWHERE: Final = """
from checkpoint_reference_server import serving
serving.refuse_if_it_evicts = lambda *_, **__: None
from checkpoint_reference_server.commands import serve
serve()
"""

_KNOWS_ALL_KEYS = """
from checkpoint_reference_server import serving
refuse = serving.refuse_if_it_evicts
def refuse_some(settings):
    if (settings.evicts or "").startswith("allkeys"):
        refuse(settings)
serving.refuse_if_it_evicts = refuse_some
from checkpoint_reference_server.commands import serve
serve()
"""


def _mutant(name: str, wrong: str, rule: str, part: Part, fault: Faulty) -> Mutant:
    return Mutant(name=name, wrong=wrong, kind=Kind.FAULT, fault=fault, rules=(rule,), part=part)


def _always(tamper: Tamper) -> Callable[[], Tamper]:
    return lambda: tamper


FAULTS: tuple[Mutant, ...] = (
    _mutant(
        "acknowledges-before-the-store",
        "Answers a claim before the store has it.",
        "WC-PRIV-5",
        faults.store_crash,
        Faulty(make=WriteBehind),
    ),
    _mutant(
        "forgets-at-a-crash",
        "Promises every change, on a store that keeps nothing.",
        "WC-PRIV-5",
        faults.store_crash,
        Faulty(kept=Durability.NONE),
    ),
    _mutant(
        "issues-a-generation-again",
        "Loses the last write by a crash, as it may, and grants that generation once more.",
        "WC-CONC-2",
        faults.store_crash,
        Faulty(
            durability=Durability.SECOND,
            store_prefix=(sys.executable, "-c", _LOSES_THE_LAST_WRITE, "${folder}/store"),
        ),
    ),
    _mutant(
        "repeats-a-lost-step",
        "Sends a step to the store again when its answer was lost.",
        "WC-ERR-5",
        faults.connections_cut,
        Faulty(make=_always(_repeats)),
    ),
    _mutant(
        "answers-from-memory",
        "Answers `status` from memory while the store is away.",
        "WC-ERR-5",
        faults.store_away,
        Faulty(make=FromMemory),
    ),
    _mutant(
        "waits-longer-for-the-store",
        "Waits for more than 5 s for a store that does not answer.",
        "WC-ERR-5",
        faults.store_away,
        Faulty(make=_always(_waits_longer)),
    ),
    _mutant(
        "a-lost-store-is-a-fault-of-its-own",
        "Answers 500 without a code while the store is away.",
        "WC-ERR-5",
        faults.store_away,
        Faulty(make=_always(_without_code)),
    ),
    _mutant(
        "evicts-when-full",
        "Runs on a store whose policy was changed to evict after it started.",
        "WC-PRIV-4",
        faults.store_full,
        Faulty(settings=(("maxmemory-policy", "allkeys-lru"),)),
    ),
    _mutant(
        "starts-on-an-evicting-store",
        "Starts whatever the store's policy is.",
        "WC-PRIV-4",
        faults.store_evicts,
        Faulty(program=("-c", _STARTS_ANYWHERE)),
    ),
    _mutant(
        "starts-where-what-expires-is-evicted",
        "Refuses to start on a store that evicts any key, and not where only keys that expire are.",
        "WC-PRIV-4",
        faults.store_evicts,
        Faulty(program=("-c", _KNOWS_ALL_KEYS)),
    ),
)
