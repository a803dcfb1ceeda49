"""Whatever is done to a target's answers, a run ends with a verdict, and with a right one."""

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from random import Random

import pytest
from chaos import CHANGING, LOSING, harmed
from rich.console import Console

from checkpoint_conformance.checking import check_target
from checkpoint_conformance.client import Client, HttpAnswer
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.proxy import Tamper
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.run import PROFILES, Target
from checkpoint_conformance.targets import Description
from checkpoint_conformance.verdict import EXIT_CODES, EXIT_HARNESS_FAULT, Verdict

SECONDS_MAX = 240
"""Of one run; most end within five seconds."""
MANY = 30
SEED = "WORKFLOW_CHECKPOINT_CHAOS_SEED"
"""The environment's variable by which a run is repeated."""
BRIEF = replace(
    PROFILES["quick"],
    stateful_examples=8,
    fuzz_examples=2,
    race_rounds=1,
    storm_rounds=1,
    contenders=20,
    mcp_vectors=10,
    drawing_seconds_max=5,
)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The reference server, with controls and store."""
    with reference_server() as target:
        yield target


def ended(target: Target, harm: Callable[[Random], Tamper], seed: int) -> tuple[int, str]:
    """The exit status of a run against it under this harm, and what was told."""
    draw = Random(seed)
    assert target.controls is not None
    with Client(target.controls) as client:  # what a run that broke off may have left
        assert isinstance(client.exchange("POST", "/reset", b"{}").answer, HttpAnswer)
    with harmed(target.address, target.controls, harm, seed) as (address, controls):
        description = Description(
            url=address.url,
            controls=draw.choice((controls.url, None)),
            store=draw.choice((target.store_url, None)),
            mcp=draw.choice((f"{address.url}/mcp", None)),
            also_claimed=frozenset(draw.sample([RuleClass.DESCRIPTIONS], draw.randrange(2))),
            timeout_seconds=2,
        )
        told = StringIO()
        status = check_target(
            description,
            profile="quick",
            seed=seed,
            report_folder=None,
            require_all=False,
            jobs=draw.choice((1, 2, 3)),
            console=Console(file=told, width=100),
        )
    return status, told.getvalue()


def hold_the_law(
    target: Target, harm: Callable[[Random], Tamper], seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run is no fault of the harness, and what only loses answers is none of the target's."""
    status, told = ended(target, harm, seed)
    errors = capfd.readouterr().err
    again = f"{SEED}={seed} repeats it\n{told}\n{errors}"
    assert status != EXIT_HARNESS_FAULT, again
    assert "Traceback" not in errors, again
    if harm in LOSING:
        assert status != EXIT_CODES[Verdict.FAIL], again


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the least done that goes through every check."""
    monkeypatch.setitem(PROFILES, "quick", BRIEF)


@pytest.mark.parametrize("harm", LOSING + CHANGING)
def test_a_run_ends_with_a_verdict_whatever_comes(
    target: Target, harm: Callable[[Random], Tamper], capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a seed that is drawn anew each time."""
    hold_the_law(target, harm, int(os.environ.get(SEED, secrets.randbits(32))), capfd)


@pytest.mark.large
@pytest.mark.timeout(MANY * SECONDS_MAX)
@pytest.mark.parametrize("harm", LOSING + CHANGING)
def test_many_runs_end_with_a_verdict_whatever_comes(
    target: Target, harm: Callable[[Random], Tamper], capfd: pytest.CaptureFixture[str]
) -> None:
    """The same, for nox -s chaos."""
    for _ in range(MANY):
        hold_the_law(target, harm, secrets.randbits(32), capfd)
