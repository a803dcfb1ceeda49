"""Mutants whose steps are not atomic: right for one caller, wrong for two at once."""

import json
import random
import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from checkpoint_conformance.checks import races, storm
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.mutant import Instead, Kind, Mutant, Part
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper
from checkpoint_model import (
    Action,
    ErrorCode,
    Identity,
    Record,
    Request,
    Step,
    answer,
    parse_request,
    step,
)
from checkpoint_model.machine import Success

_APART_SECONDS: Final = (0.001, 0.005)
"""How long a record that was read is thought about before what was decided is written."""


@dataclass
class TwoSteps:
    """The machine with check and write apart: right for one caller, wrong for two at once.

    Every decision is the model's own, on a record that was read some milliseconds before what
    was decided is written. No other kind of test can tell it from a right one.
    """

    actions: frozenset[Action] = frozenset({Action.CLAIM, Action.TRANSITION})
    records: dict[Identity, Record | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, message: Message, forward: Forward) -> HttpAnswer:
        """Decide a request."""
        del forward
        identity, request = parse_request(message.json)
        if request.action in self.actions:
            with self.lock:
                before = self.records.get(identity)
            decided = step(before, request, time.time_ns() // 1_000_000)
            time.sleep(random.uniform(*_APART_SECONDS))  # noqa: S311 - no secret
            with self.lock:
                if decided.record is not before:
                    self.records[identity] = decided.record
        else:
            with self.lock:
                decided = step(self.records.get(identity), request, time.time_ns() // 1_000_000)
                self.records[identity] = decided.record
        return as_http(identity, decided, request)


def as_http(identity: Identity, decided: Step, request: Request) -> HttpAnswer:
    """What a right server answers for a step."""
    members = answer(decided, request)
    if isinstance(decided.outcome, Success):
        digest = sha256(repr(identity).encode()).hexdigest()
        members["workflow_hash"] = f"hmac-sha256:{digest}"
        status, kind = 200, "application/json"
    else:
        assert isinstance(decided.outcome, ErrorCode)
        members |= {"type": "about:blank", "title": "No", "detail": "", "recovery": "Look first."}
        status, kind = int(str(members["status"])), "application/problem+json"
    return HttpAnswer(
        status=status,
        headers=(("content-type", kind), ("cache-control", "no-store")),
        body=json.dumps(members).encode(),
    )


def _mutant(
    name: str, wrong: str, *rules: str, actions: frozenset[Action], part: Part = races.races
) -> Mutant:
    def make() -> Tamper:
        return TwoSteps(actions=actions)

    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.CONCURRENCY,
        fault=Instead(make),
        rules=rules,
        part=part,
    )


CONCURRENCY: tuple[Mutant, ...] = (
    _mutant(
        "claims-in-two-steps",
        "Reads the record and writes it in two steps in `claim`.",
        "WC-CONC-2",
        actions=frozenset({Action.CLAIM}),
    ),
    _mutant(
        "transitions-in-two-steps",
        "Reads the record and writes it in two steps in `transition`.",
        "WC-CONC-3",
        actions=frozenset({Action.TRANSITION}),
    ),
    _mutant(
        "abandons-in-two-steps",
        "Reads the record and writes it in two steps in `abandon`.",
        "WC-CONC-1",
        actions=frozenset({Action.ABANDON}),
        part=storm.storm,
    ),
)
