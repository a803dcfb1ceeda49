"""The same machine in Murphi, checked by rumur: as many states, as many transitions.

Two people who read one text wrongly in the same place would still agree; two state spaces of
the same size to the last transition are hard to come by otherwise.
"""

import os
import subprocess
import sys
from pathlib import Path

import murphi_worlds
import pytest
from test_exploration import LARGE, SMALL
from tools import REQUIRE_TOOLS, not_run_here

from checkpoint_model.worlds import WORLDS

COUNTED = [name for name, world in WORLDS.items() if murphi_worlds.expressible(world)]


@pytest.fixture(scope="session")
def rumur() -> None:
    """Skip, saying so, where rumur or a compiler is missing; fail where tools are required."""
    missing = " and ".join(murphi_worlds.missing())
    if missing:
        not_run_here("the count by Murphi", missing, "apt-get install rumur gcc")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.large) if name in LARGE else name for name in COUNTED],
)
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("rumur")
def test_murphi_counts_what_the_exploration_counts(name: str, tmp_path: Path) -> None:
    """The pinned numbers of the exploration are those of rumur."""
    states, transitions, _depth = (SMALL | LARGE)[name]
    assert murphi_worlds.count(WORLDS[name], tmp_path) == (states, transitions)


@pytest.mark.usefixtures("rumur")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("h != holder | !claim_active() then -- WC-TRANS-6", "!claim_active() then"),
        ("elsif terminal() then -- WC-CLAIM-2", "elsif false then"),
        (
            "    claim_left := record_left;\n  end;\n  note",
            "    claim_left := 1000;\n  end;\n  note",
        ),
    ],
    ids=["the holder is not compared", "a terminal stage is left", "a claim outlives its record"],
)
def test_murphi_refutes_what_is_wrong(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Murphi text has invariants of its own, and they can fail."""
    text = murphi_worlds.MACHINE.read_text()
    assert text.count(right) == 1
    faulty = tmp_path / "faulty.m"
    faulty.write_text(text.replace(right, wrong))
    monkeypatch.setattr(murphi_worlds, "MACHINE", faulty)
    with pytest.raises(RuntimeError, match="1 error"):
        murphi_worlds.count(WORLDS["pair"], tmp_path)


def test_the_exploration_and_murphi_are_in_the_same_worlds() -> None:
    """The committed constants are those of the worlds; none is left over."""
    committed = {path.stem: path.read_text() for path in murphi_worlds.CONSTANTS.glob("*.m")}
    assert committed == {name: murphi_worlds.constants(WORLDS[name]) for name in COUNTED}
    assert len(COUNTED) == 11


def test_a_missing_tool_fails_where_tools_are_required() -> None:
    """The switch under which "not run" is a failure (design, D14)."""
    program = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
    outcomes = {}
    for switch in ("", "1"):
        environment = {
            **os.environ,
            "PATH": "",
            REQUIRE_TOOLS: switch,
            "PYTEST_ADDOPTS": "-p no:xdist -p no:cacheprovider",
        }
        environment.pop("PYTEST_XDIST_WORKER", None)
        done = subprocess.run(
            [sys.executable, "-c", program, __file__, "-q", "-k", "counts and tiny"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        outcomes[switch] = (done.returncode, done.stdout)
    assert outcomes[""][0] == 0
    assert "not run: the count by Murphi, because rumur and cc" in outcomes[""][1]
    assert outcomes["1"][0] == 1
    assert "the count by Murphi: rumur and cc" in outcomes["1"][1]
