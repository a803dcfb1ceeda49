"""How Hypothesis is run in a check: what it is given, and what it makes of a fault."""

import gzip
import json
import unicodedata
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal import charmap
from modelled import model_server, run_on

from checkpoint_conformance.checks import drawing, stateful
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.proxy import Forward, Message
from checkpoint_conformance.session import TargetGoneError

PECULIAR = 987_654_321_123


def test_what_is_known_of_utf_8_is_what_hypothesis_finds_out(tmp_path: Path) -> None:
    """In the very file in which it looks, and the same in it."""
    found_out, given = tmp_path / "found-out", tmp_path / "given"
    set_hypothesis_home_dir(found_out)
    try:
        charmap.intervals_from_codec.__wrapped__("utf-8")  # beside what it remembers
    finally:
        set_hypothesis_home_dir(None)
    drawing._put_codec(given)
    assert _intervals(given) == _intervals(found_out)


def _intervals(home: Path) -> object:
    file = home / "unicode_data" / unicodedata.unidata_version / drawing.CODEC_FILE
    return json.loads(gzip.decompress(file.read_bytes()))


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
    by_us = seed(1)(given(near)(note))
    drawing.draw(lambda ours: ours(by_us)(), examples=500)
    assert len(drawn) > 400
    assert PECULIAR not in drawn


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
    actions = [json.loads(sent.body)["action"] for sent in failure.sequence]
    assert actions == ["claim", "abandon", "claim"]


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
