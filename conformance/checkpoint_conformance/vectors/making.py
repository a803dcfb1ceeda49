"""Makes a vector of a sequence: the model says what its last request must be answered."""

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from checkpoint_conformance.vectors import TIMES, Timed, Vector
from checkpoint_model import (
    Identity,
    Record,
    Request,
    Transition,
    answer,
    format_request,
    graph_rules,
    parse_timestamp,
    step,
)

START_MS: Final = 1_000_000_000_000
"""What the times of a vector count from, while it is made; any other would do."""


def make_vector(moves: Sequence[Request | int], identity: Identity) -> Vector:
    """The vector of a sequence of requests and of milliseconds that pass between them.

    ``moves`` ends with the request that the vector is about.
    """
    *before, request = moves
    assert not isinstance(request, int)
    record: Record | None = None
    now_ms = START_MS
    given = []
    for move in before:
        if isinstance(move, int):
            now_ms += move
        else:
            given.append(Timed(at_ms=now_ms - START_MS, request=format_request(identity, move)))
            record = step(record, move, now_ms).record
    done = step(record, request, now_ms)
    told = answer(done, request)
    members = {
        name: _after_start(value) if name in TIMES else value
        for name, value in told.items()
        if name != "status"
    }
    rules = [done.rule]
    if isinstance(request, Transition) and done.rule in ("WC-TRANS-7", "WC-TRANS-8"):
        assert record is not None
        rules += graph_rules(record.stage, request)
    vector = Vector(
        id="",
        rules=tuple(rules),
        given=tuple(given),
        at_ms=now_ms - START_MS,
        request=format_request(identity, request),
        http_status=told.get("status", 200),
        members=members,
    )
    return replace(vector, id=_id(vector))


def _id(vector: Vector) -> str:
    """Of what is sent alone, so that adding a vector renames no other."""
    sent = [[timed.at_ms, timed.request] for timed in vector.given]
    sent.append([vector.at_ms, vector.request])
    digest = sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    return f"{vector.rules[0]}-{digest[:8]}"


def _after_start(text: str | None) -> int | None:
    return None if text is None else parse_timestamp(text) - START_MS
