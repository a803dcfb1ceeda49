"""Drawn sequences: what bytes stand for, and that a fault in one is found and made short."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from modelled import model_server, run_on

from checkpoint_conformance.checks import stateful
from checkpoint_conformance.checks.drawing import draw
from checkpoint_conformance.checks.stateful import Dice, Drawn
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.proxy import Forward, Message
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.tally import Failure

STEPS = 40
BEGINNING_BYTES, STEP_BYTES = 32, 8
PECULIAR = 987_654_321_123


def test_a_byte_is_one_choice() -> None:
    """Around and around the choices, from the first at zero."""
    dice = Dice(bytes([0, 1, 2, 3, 255]))
    assert [dice.of("abc") for _ in range(5)] == ["a", "b", "c", "a", "a"]


def test_zeros_are_the_simplest() -> None:
    """The first claim, and nothing after it."""
    run = run_on(model_server())
    Drawn(run, []).play(bytes(BEGINNING_BYTES + STEPS * STEP_BYTES))
    assert run.tally.requests == 1
    assert run.tally.hits["WC-CLAIM-1"] == 1


@settings(max_examples=20, deadline=None)
@given(drawn=st.binary(min_size=BEGINNING_BYTES + STEPS * STEP_BYTES))
def test_all_bytes_are_a_sequence(drawn: bytes) -> None:
    """Whatever is drawn can be sent, and a right server is right about it."""
    run = run_on(model_server())
    sequence = Drawn(run, [])
    sequence.play(drawn[: BEGINNING_BYTES + STEPS * STEP_BYTES])
    assert not sequence.over
    assert run.tally.failures == {}


def test_every_kind_of_step_is_taken() -> None:
    """Where no kind is left out, the number of a step is its first byte's, from one on."""
    run = run_on(model_server())
    sequence = Drawn(run, [])
    kinds = [bytes([kind, *[0] * (STEP_BYTES - 1)]) for kind in range(1, len(Drawn.STEPS) + 1)]
    sequence.play(bytes(BEGINNING_BYTES) + b"".join(kinds))
    actions = [json.loads(sent.body)["action"] for sent in sequence.session.sequence]
    # The first claim; then a status, its repetition, and so on in the order of the table. Of two
    # moves that are right the first settles the workflow, so there is no second, nor a lapse.
    expected = "claim status status claim abandon abandon claim transition transition transition"
    assert actions == expected.split()


def test_the_same_sequences_are_drawn_from_a_seed() -> None:
    """And others from another."""

    def rows(seed: int) -> dict[str, int]:
        run = run_on(model_server())
        run.seed, run.profile = seed, replace(run.profile, stateful_examples=5)
        stateful.stateful(run)
        assert run.tally.failures == {}
        return dict(run.tally.hits)

    assert rows(1) == rows(1) != rows(2)


def test_a_fault_is_shrunk_to_what_shows_it() -> None:
    """A server that takes a claim over to a second generation without saying so."""
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        answer = right(message, forward)
        wrong = answer.body.replace(b'"recovered":true', b'"recovered":false')
        return replace(answer, body=wrong.replace(b'"recovered": true', b'"recovered": false'))

    run = run_on(serve)
    run.profile = replace(run.profile, stateful_examples=30, stateful_steps=12)
    stateful.stateful(run)
    failure = run.tally.failures["WC-CLAIM-8"]
    assert _actions(failure) == ["claim", "abandon", "claim"]


def test_a_target_that_is_gone_ends_the_drawing() -> None:
    """At once, and not as a fault to be shrunk."""

    def serve(_: Message, __: Forward) -> HttpAnswer:
        raise ConnectionAbortedError

    run = run_on(serve)
    run.profile = replace(run.profile, stateful_examples=100)
    with pytest.raises(TargetGoneError, match="stopped answering"):
        stateful.stateful(run)
    assert run.tally.failures == {}
    assert run.tally.requests < 20


def test_what_is_drawn_depends_on_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant of a module outside site-packages is drawn by Hypothesis, and not by us."""
    (tmp_path / "peculiar.py").write_text(f"PECULIAR = {PECULIAR}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_module("peculiar").PECULIAR == PECULIAR
    drawn: list[int] = []

    def note(number: int) -> None:
        drawn.append(number)

    # Of two thousand million numbers, of which no other stands in a source.
    near = st.integers(PECULIAR - 10**9, PECULIAR + 10**9)
    by_itself = seed(1)(given(near)(note))
    settings(max_examples=500, database=None, phases=[Phase.generate])(by_itself)()
    assert drawn.count(PECULIAR) >= 1
    drawn.clear()
    draw(seed(1)(given(near)(note)), examples=500)
    assert len(drawn) > 400
    assert PECULIAR not in drawn


def _actions(failure: Failure) -> list[str]:
    return [json.loads(sent.body)["action"] for sent in failure.sequence]
