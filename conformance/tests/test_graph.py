"""The drawings say what the tables say, and the commands of ``model`` say what was found."""

import re
from dataclasses import replace
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from checkpoint_conformance.graph import DRAWINGS, RETRY, TAKE_OVER, arrows, dot, mermaid, svg
from checkpoint_conformance.model_commands import model
from checkpoint_model import (
    MOVES,
    Limits,
    Record,
    Request,
    Stage,
    Status,
    Step,
    exploration,
    step,
    worlds,
)
from checkpoint_model.exploration import World
from checkpoint_model.worlds import WORLDS

CELLS = {
    (source, target, str(kind))
    for source, targets in MOVES.items()
    for target, kinds in targets.items()
    for kind in kinds or ("no evidence",)
}


def test_the_arrows_are_the_moves_the_retry_and_the_take_overs() -> None:
    """Seven moves with their seventeen cells, one retry, and one take-over of each open stage."""
    moves = [arrow for arrow in arrows() if not arrow.is_claim]
    assert len(moves) == 7
    assert {(a.source, a.target, word) for a in moves for word in a.label} == CELLS
    assert [(a.source, a.target, a.label) for a in arrows() if a.is_claim] == [
        (Stage.FAILED, Stage.CLAIMED, RETRY),
        (Stage.CLAIMED, Stage.UNCERTAIN, TAKE_OVER),
        (Stage.UNCERTAIN, Stage.UNCERTAIN, TAKE_OVER),
    ]


def test_mermaid_has_every_arrow_and_no_colon_in_a_label() -> None:
    """A second colon ends a label in Mermaid."""
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert (
        "    claimed --> failed: provider_rejection, external_absence, not_attempted or "
        "operator_attestation"
    ) in lines
    assert "    failed --> claimed: claim if retry_failed, generation + 1" in lines
    assert all(line.count(":") == 1 for line in lines if "-->" in line and "--> [*]" not in line)
    assert len([line for line in lines if "-->" in line]) == 1 + len(arrows()) + 3


def test_dot_has_every_arrow() -> None:
    """One edge for each, and one from the start."""
    edges = re.findall(r'^    (\w+) -> (\w+) \[label="([^"]+)"', dot(), re.MULTILINE)
    assert edges[1:] == [(a.source, a.target, r"\n".join(a.label)) for a in arrows()]
    assert dot().count("{") == dot().count("}") == 1


def test_svg_is_well_formed_and_has_every_word_once_for_each_arrow() -> None:
    """Every label of every arrow stands there as text, and every stage has its box."""
    root = ET.fromstring(svg())
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for stage in Stage:
        assert texts.count(str(stage)) == 1
    for word in {word for arrow in arrows() for word in arrow.label}:
        assert texts.count(word) == sum(arrow.label.count(word) for arrow in arrows())
    # Nothing is fetched, so the drawing is the same wherever it is shown.
    assert "href" not in svg()
    assert "http" not in svg().replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_graph_command_writes_the_drawing(name: str) -> None:
    """To standard output, and nothing besides."""
    done = CliRunner().invoke(model, ["graph", "--format", name])
    assert (done.exit_code, done.stdout, done.stderr) == (0, DRAWINGS[name](), "")


def test_the_graph_command_draws_mermaid_when_not_told() -> None:
    """What a README can hold."""
    assert CliRunner().invoke(model, ["graph"]).stdout == mermaid()


def test_the_explore_command_prints_the_table() -> None:
    """States, transitions and depth, one line to a world; progress goes to standard error."""
    done = CliRunner().invoke(
        model, ["explore", "--world", "tiny", "--world", "last", "--world", "tiny"]
    )
    assert done.exit_code == 0
    lines = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    rows = {line[0]: line for line in lines if line[0] in WORLDS}
    assert list(rows) == ["tiny", "last"]
    assert rows["tiny"][1:4] == ["419", "18,637", "7"]
    assert rows["tiny"][5:] == ["47 of 47", "hold"]
    assert done.stderr == "exploring tiny\nexploring last\n"


def test_the_explore_command_lists_the_worlds() -> None:
    """Without exploring any."""
    done = CliRunner().invoke(model, ["explore", "--list"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert all(name in done.stdout for name in WORLDS)


def test_an_unknown_world_is_a_usage_error_that_names_the_known_ones() -> None:
    """Exit code 2, as for all usage errors."""
    done = CliRunner().invoke(model, ["explore", "--world", "tinny"])
    assert done.exit_code == 2
    assert "there is no world 'tinny'" in done.stderr
    assert "contract-limits" in done.stderr


def test_ctrl_c_leaves_what_was_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table so far, which world was interrupted, and the shell's exit code for it."""

    def explore(world: World, **options: Any) -> exploration.Exploration:
        if world.name == "last":
            raise KeyboardInterrupt
        return right(world, **options)

    right = exploration.explore
    monkeypatch.setattr(exploration, "explore", explore)
    done = CliRunner().invoke(model, ["explore", "--world", "tiny", "--world", "last"])
    assert done.exit_code == 130
    assert done.stderr.endswith("Interrupted in the world last.\n")
    head, _, row = done.stdout.strip().splitlines()
    assert (head.split()[-1], row.split()[-1]) == ("invariants", "hold")


def test_a_broken_invariant_is_printed_with_its_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, the invariant's name, its rules, and each event on a line of its own."""

    def status_settles(
        record: Record | None, request: Request, now_ms: int, /, *, limits: Limits
    ) -> Step:
        if isinstance(request, Status) and request.holder == "bob" and record is not None:
            request = next(
                sent.request
                for sent in WORLDS["tiny"].sent(record)
                if sent.request.action == "abandon" and sent.request.holder == record.holder
            )
        return step(record, request, now_ms, limits=limits)

    monkeypatch.setattr(exploration, "explore", partial(exploration.explore, step=status_settles))
    done = CliRunner().invoke(model, ["explore", "--world", "tiny"])
    assert done.exit_code == 1
    assert "broken" in done.stdout
    assert "In the world tiny:\nobservers-change-nothing is broken: " in done.stdout
    assert "\n  2. at 0 ms: bob asks: abandoned by WC-ABANDON-6; " in done.stdout


def test_a_missed_goal_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1: nothing broken, and nothing shown either."""
    silent = replace(WORLDS["tiny"], evidence=())
    monkeypatch.setattr(worlds, "WORLDS", {"tiny": silent})
    done = CliRunner().invoke(model, ["explore", "--world", "tiny"])
    assert done.exit_code == 1
    assert "fall short" in done.stdout
    assert "In the world tiny, missed: stage failed" in done.stdout
