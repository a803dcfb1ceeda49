"""The pytest door: options and fixtures for suites that test an implementation already.

Loaded in every pytest run wherever this distribution is installed, so nothing but pytest is
imported before a fixture is asked for; the tests to inherit are in
:mod:`checkpoint_conformance.testing`.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checkpoint_conformance.targets import Description
    from checkpoint_conformance.testing import Checking, Checkings

_TESTING = "checkpoint_conformance.testing"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what ``workflow-checkpoint check`` is told, by options of the same meaning."""
    group = parser.getgroup("workflow-checkpoint", "check a Workflow Checkpoint implementation")
    group.addoption(
        "--checkpoint-url", metavar="BASE", help="root of the server, as check --url takes it"
    )
    group.addoption("--checkpoint-controls", metavar="URL", help="base of its test controls")
    group.addoption("--checkpoint-mcp", metavar="URL", help="its MCP endpoint")
    group.addoption("--checkpoint-store", metavar="URL", help="the Valkey behind it")
    group.addoption(
        "--checkpoint-log",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a file that it logs to; may be given again",
    )
    group.addoption(
        "--checkpoint-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header to send with every request; may be given again",
    )
    group.addoption(
        "--checkpoint-class",
        action="append",
        default=[],
        choices=["core", "mcp", "descriptions", "controls"],
        help="a conformance class that it claims besides core and what has a URL here; may be "
        "given again",
    )
    group.addoption(
        "--checkpoint-target",
        metavar="FILE",
        type=Path,
        help="a target.yaml that says all of that, or how to start the server",
    )
    group.addoption(
        "--checkpoint-profile",
        choices=["quick", "default", "thorough"],
        default="default",
        help="how much to do; on a target with every class, on two quiet cores: quick about 25 s, "
        "default a minute, thorough many minutes (default: %(default)s)",
    )
    group.addoption(
        "--checkpoint-seed",
        metavar="N",
        type=int,
        help="draw what an earlier run drew",
    )
    group.addoption(
        "--checkpoint-report", metavar="DIR", type=Path, help="write the report there as well"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Look at the conformance tests, where there are any."""
    testing = sys.modules.get(_TESTING)
    if testing is not None:
        testing.collected(config, items)


@pytest.fixture(scope="session")
def checkpoint_target(pytestconfig: pytest.Config) -> "Description":
    """What the options describe. Override it: with a URL, a Description or a running Target."""
    from checkpoint_conformance.testing import described_by

    return described_by(pytestconfig)


@pytest.fixture(scope="session")
def checkpoint_profile(pytestconfig: pytest.Config) -> str:
    """How much to do: quick, default or thorough."""
    profile: str = pytestconfig.getoption("--checkpoint-profile")
    return profile


@pytest.fixture(scope="session")
def checkpoint_checkings(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Checkings]":
    """Every target that was checked in this session."""
    from checkpoint_conformance.testing import Checkings

    with Checkings(pytestconfig, tmp_path_factory.getbasetemp()) as checkings:
        yield checkings


@pytest.fixture(scope="class")
def checkpoint_run(
    request: pytest.FixtureRequest, checkpoint_checkings: "Checkings", checkpoint_profile: str
) -> "Iterator[Checking]":
    """The run of ``checkpoint_target``, gone through as far as tests ask for it."""
    with checkpoint_checkings.of(request, checkpoint_profile) as checking:
        yield checking


@pytest.fixture(scope="class")
def checkpoint_report(checkpoint_run: "Checking") -> dict[str, Any]:
    """The report of the whole run of ``checkpoint_target``, as ``report.json`` has it."""
    return checkpoint_run.document()
