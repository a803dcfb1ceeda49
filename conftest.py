"""What every test shares: Hypothesis profiles of our own, a real Valkey, tools or a loud skip.

With ``CI=true`` Hypothesis would load a derandomised profile, and every run would repeat the
same examples. Ours draws anew each time and prints what repeats a failure.
"""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from tools import not_run_here

from checkpoint_conformance.forked import processors

PACKAGES = {"chromium": "chromium", "curl": "curl", "luacheck": "lua-check"}
"""The programs that some tests need, with Debian's package of each."""

for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
    # What is checked in tests is not for the page of the job that runs them.
    os.environ.pop(name, None)

settings.register_profile(
    "tests",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("soak", settings.get_profile("tests"), max_examples=5_000)
settings.load_profile(os.environ.get("WORKFLOW_CHECKPOINT_HYPOTHESIS_PROFILE", "tests"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are processors: a test waits for a third of its time.

    For a process to start, a record to expire, a store to be found away.
    """
    return max(processors() * 3 // 2, 1)


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Find a program on PATH, or say that the test was not run."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            not_run_here(f"what needs {name}", name, f"apt-get install {PACKAGES[name]}")
        return path

    return find


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A real Valkey that lives as long as this test process."""
    from checkpoint_reference_server.store import open_store

    with open_store(os.environ.get("VALKEY_URL")) as store:
        yield store.url
