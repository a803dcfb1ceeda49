"""The worked examples of the contract (``manifest.example.json``), with a fresh workflow key."""

import json
from dataclasses import replace
from typing import Any, Final

from checkpoint_conformance.answers import Fault, Problem, Result
from checkpoint_conformance.clock import FrozenClock
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import fresh_identity
from checkpoint_model import parse_request, parse_timestamp, schemas

MOVING: Final = frozenset(
    {
        "observed_at",
        "claim_expires_at",
        "state_expires_at",
        "claim_ttl_seconds_remaining",
        "state_ttl_seconds_remaining",
    }
)
"""What depends on the moment; compared only where the clock can be set."""


def examples(run: Run) -> None:
    """Send each example's request and hold the answer against its response, member by member."""
    for example in schemas.load("manifest.example.json")["examples"]:
        with run.guarded():
            if "observed_at" in example["response"]:
                _a_decision(run, example)
            else:
                _a_refusal(run, example)


def examples_at_their_time(run: Run) -> None:
    """The same with the clock standing where the examples say, so that times are compared too."""
    with run.frozen() as clock:
        for example in schemas.load("manifest.example.json")["examples"]:
            observed_at = example["response"].get("observed_at")
            with run.guarded():
                if observed_at is None:
                    _a_refusal(run, example)
                else:
                    run.advance(parse_timestamp(observed_at) - clock.now_ms)
                    _a_decision(run, example)


def _a_decision(run: Run, example: dict[str, Any]) -> None:
    session = run.session()
    identity, request = parse_request(example["request"])
    session.rename(replace(identity, workflow_key=session.identity.workflow_key))
    told = session.send(request)
    left_out = {"workflow_hash"}
    if not isinstance(run.clock, FrozenClock):
        left_out |= MOVING
    for member, expected in example["response"].items():
        got = told.members.get(member)
        if member not in left_out and got != expected:
            # The oracle compared the same members with the model; only an example that is not
            # what the model says can come here, and that is a fault of the contract's own text.
            raise AssertionError(f"example {example['name']!r}: {member} is {got!r}")


def _a_refusal(run: Run, example: dict[str, Any]) -> None:
    body = {**example["request"], "workflow_key": fresh_identity().workflow_key}
    session = run.session()
    _, came = session.ask(json.dumps(body).encode())
    members = came.members if isinstance(came, Result | Problem) else {}
    wrong = [m for m, expected in example["response"].items() if members.get(m) != expected]
    if wrong:
        session.fail(
            Fault(
                rules=("WC-IN-1",),
                what=f"the contract's example «{example['name']}»",
                expected=json.dumps(example["response"]),
                got=session.sequence[-1].answered,
            )
        )
    run.tally.hit("WC-IN-1")


CHECKS = (
    Check(
        name="examples",
        title="The contract's worked examples",
        run=examples,
        only_without_controls=True,
    ),
    Check(
        name="examples",
        title="The contract's worked examples, at their own time",
        run=examples_at_their_time,
        needs_controls=True,
    ),
)
