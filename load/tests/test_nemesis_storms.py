"""Storms under faults: the command, what it leaves, and what it does not take."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from real_server import SECONDS_MAX
from storm_runs import storm
from storm_targets import two_steps

from checkpoint_conformance.cli import main
from checkpoint_conformance.deployment import deployed
from checkpoint_conformance.faults import Faults, Kind
from checkpoint_conformance.history import End, begin_header, read_file
from checkpoint_conformance.renderings.storm import FILE_NAME as PAGE
from checkpoint_conformance.targets import Description
from checkpoint_load import faulting
from checkpoint_load.faulting import FILE_NAME, Faulting

KINDS = ("store-kill", "store-cut-before-answer")
CUTS = [kind for kind in Kind if kind.startswith("client-cut-")]


def test_nothing_is_lost_while_faults_are_made(tmp_path: Path) -> None:
    """Two reference servers over one store: each fault is made, recovered from, and told of."""
    run = storm(tmp_path, "mixed", "--nemesis", ",".join(KINDS), "--contenders", "30")
    assert run.status == 0, run.out + run.err
    report = run.report
    (told,) = report["storms"]
    figures = told["faults"]
    assert tuple(figures["kinds"]) == KINDS
    for kind in figures["kinds"].values():
        assert kind["runs"] == kind["recovered"] == 1
        assert kind["recovery_ms"]["max"] > 0
    assert (figures["durability"], figures["acknowledged_lost"]) == ("change", 0)
    assert report["parameters"]["nemesis"] == list(KINDS)
    assert [fault.kind for fault in read_file(tmp_path / FILE_NAME).faults()]
    assert report["line"].endswith("2 faults, 0 acknowledged changes lost")
    assert "store-kill" in run.out
    assert "a crash is to leave every acknowledged change" in run.out
    assert "a crash is to leave every acknowledged change" in (tmp_path / PAGE).read_text()
    assert tuple(told["outcomes"])  # and it was a storm


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("claim", "--nemesis", "all"), "--nemesis is for the mixed storm alone"),
        (("--nemesis", "flood"), "there is no fault 'flood'; there are all, server-kill"),
        (("--nemesis", "all", "--rounds", "3"), "--rounds does not go with --nemesis"),
        (("--nemesis", "all", "--web"), "--web does not go with --nemesis"),
        (("--nemesis", "all", "--processes", "2"), "--processes does not go with --nemesis"),
        (("--nemesis", "all", "--expect-workers", "2"), "--expect-workers does not go"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: tuple[str, ...], said: str) -> None:
    """Exit 2, before anything is started."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["storm", *arguments])
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("nemesis", "faults", "said"),
    [
        ("all", "", "the target's description has no `faults`"),
        ("store-kill", "faults: {}\n", "store-kill cannot be made: it needs `faults.store`"),
    ],
)
def test_what_cannot_be_made_of_a_target_is_said(
    tmp_path: Path, nemesis: str, faults: str, said: str
) -> None:
    """Exit 2, with what its description lacks."""
    path = tmp_path / "target.yaml"
    path.write_text(f"url: http://127.0.0.1:9\n{faults}")
    report = str(tmp_path / "r")
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        main, ["storm", "--nemesis", nemesis, "--target", str(path), "--report", report]
    )
    assert result.exit_code == 2
    assert said in result.output


@contextmanager
def made(folder: Path, seed: int) -> Iterator[tuple[Faulting, threading.Event, Path]]:
    """Faults of a right server that are begun, whatever its storm; the event is their end."""
    ended = threading.Event()
    path = folder / f"{seed}.jsonl"
    with two_steps() as url, deployed(Description(url=url, faults=Faults())) as deployment:
        making = Faulting(
            deployment,
            CUTS,
            seed=seed,
            seconds_min=0,
            path=path,
            header=begin_header("mixed", {"url": url}, {}),
            end=ended.set,
        )
        making.start()
        yield making, ended, path
        making.stop()


def order_of(folder: Path, seed: int) -> list[str]:
    """In which order faults are made while a storm has answers enough."""
    with made(folder, seed) as (making, ended, path):
        answers, deadline = 0, time.monotonic() + SECONDS_MAX
        while not ended.wait(0.005):
            assert time.monotonic() < deadline, "it does not end"
            answers += faulting.ANSWERS[1]
            making.answered(answers)
        assert making.fault == ""
    return [fault.kind for fault in read_file(path).faults()]


def test_a_seed_repeats_the_order_of_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind, once; another seed has another order."""
    monkeypatch.setattr(faulting, "HOLD_SECONDS", (0.0, 0.01))
    first = order_of(tmp_path, 5)
    assert sorted(first) == sorted(CUTS)
    (tmp_path / "5.jsonl").unlink()
    assert order_of(tmp_path, 5) == first
    assert order_of(tmp_path, 6) != first


def test_without_answers_no_fault_is_made(tmp_path: Path) -> None:
    """And what is stopped leaves a whole file."""
    with made(tmp_path, 1) as (making, ended, path):
        making.answered(faulting.ANSWERS[0] - 1)
        assert not ended.is_set()
        making.stop()
        assert ended.is_set()
    assert list(read_file(path)) == [End(calls=0)]
