"""A failing sequence is made as short as it can be, and still fails, by the same rule."""

from dataclasses import replace

import pytest
from modelled import model_server, run_on

from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.proxy import Forward, Message, with_members
from checkpoint_conformance.session import ViolationError
from checkpoint_conformance.shortening import shorten_failures
from checkpoint_model import Stage, Status


def test_a_shorter_sequence_shows_the_same_rule_broken() -> None:
    """Without its claim the sequence breaks another rule, which is no shorter way to say this."""
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        answer = right(message, forward)
        if b"OBSERVATION_CONFLICT" in answer.body:
            return with_members(answer, code="INVALID_TRANSITION")
        if b"CHECKPOINT_NOT_FOUND" in answer.body and message.json["action"] == "transition":
            return replace(with_members(answer, code="STALE_GENERATION", status=409), status=409)
        return answer

    run, cast = run_on(serve), Cast()
    claim, doubt = cast.claim(cast.ann), cast.move(cast.ann, 1, Stage.UNCERTAIN)
    other = cast.move(cast.bob, 1, Stage.UNCERTAIN, key=doubt.observation_key)
    session = run.session()
    for move in (Status(), claim, Status(), claim, doubt, doubt, Status(holder=cast.ann)):
        session.send(move)
    with pytest.raises(ViolationError) as raised:
        session.send(other)
    run.tally.fail(raised.value.failure)
    assert len(run.tally.failures["WC-TRANS-3"].sequence) == 8

    shorten_failures(run)

    assert list(run.tally.failures) == ["WC-TRANS-3"]
    failure = run.tally.failures["WC-TRANS-3"]
    assert failure.moves == (claim, doubt, other)
    again = run.session()
    again.send(claim)
    again.send(doubt)
    with pytest.raises(ViolationError, match="WC-TRANS-3"):
        again.send(other)
