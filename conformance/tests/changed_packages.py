"""Runs chosen tests of ours on copies of our packages in which one place is changed.

Rule 1: the working tree is read, and nothing in it is written.
Rule 2: a text that does not stand exactly once in its file is an error, never a survivor.
Rule 3: a test kills by an assertion of its own. A copy that cannot be loaded, a test that is not
        there, an error on the way to its assertions or a skipped test kills nobody.

One process loads whatever the tests need that is not ours, which takes most of a test run's time,
and then forks for each change. The child has the changed copy first on its path, and on that of
every process that it starts, so it loads each of our modules from there and nowhere else.

    python conformance/tests/changed_packages.py [NAME]...
"""

import argparse
import atexit
import gc
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import pytest

ROOT: Final = Path(__file__).parents[2]
OURS: Final = "checkpoint_"
"""What the name of each of our packages begins with."""
SECONDS_MAX: Final = 120
"""How long the tests of one change may take; whatever goes on for longer is no kill."""
_BEFOREHAND: Final = ("click", "h11", "jinja2", "jsonschema_rs", "redis", "rich", "yaml")
"""What the tests load besides pytest's plugins."""


class Change(Protocol):
    """One place of one file, changed, and the tests that must notice."""

    @property
    def name(self) -> str:
        """By which it is called."""

    @property
    def file(self) -> str:
        """In the repository: a package's folder, the package, and on."""

    @property
    def old(self) -> str:
        """What stands there, exactly once."""

    @property
    def new(self) -> str:
        """What stands there instead."""

    @property
    def tests(self) -> Sequence[str]:
        """Node ids of pytest, every one of which must fail."""


class MisfitError(Exception):
    """What is to be changed does not stand in its file exactly once."""


class Fate(StrEnum):
    """What became of a change."""

    KILLED = "killed"
    """Each of its tests failed, by an assertion of its own."""
    SURVIVED = "survived"
    """One of its tests passed."""
    BROKEN = "broken"
    """One of its tests came to no assertion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What the tests of one change said."""

    name: str
    fate: Fate
    why: str
    """The first words of the first failure, or what was wrong instead."""
    seconds: float
    """Of a processor, for the child and whatever it started."""


def changed_text(change: Change) -> str:
    """The whole file, with the change.

    Raises:
        MisfitError: its text does not stand in the file exactly once.
    """
    text = (ROOT / change.file).read_text(encoding="utf-8")
    count = text.count(change.old)
    if count != 1 or change.new == change.old:
        raise MisfitError(f"{change.name}: its text stands in {change.file} {count} times")
    return text.replace(change.old, change.new)


@contextmanager
def changed(change: Change, folder: Path | None = None) -> Iterator[Path]:
    """A folder to be put first on the path: the change's package, with the change.

    Args:
        change: what is changed.
        folder: an empty one to be used; a temporary one if None.

    Raises:
        MisfitError: the text does not stand in the file exactly once.
    """
    text = changed_text(change)
    part, package, *_ = Path(change.file).parts
    with ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="workflow-checkpoint-changed-")
            folder = Path(stack.enter_context(made))
        stack.callback(shutil.rmtree, folder / package)
        # With their times, so that what was compiled of the rest is good for every copy.
        shutil.copytree(ROOT / part / package, folder / package)
        copy = folder.joinpath(*Path(change.file).parts[1:])
        copy.unlink()
        copy.write_text(text, encoding="utf-8")
        # What was compiled is known by second and size, and two changes may be alike in both.
        seconds = next(_MOMENTS)
        os.utime(copy, (seconds, seconds))
        yield folder


_MOMENTS: Final = itertools.count(1)


def play(change: Change) -> Played:
    """Play a change in a child of its own.

    Raises:
        MisfitError: its text does not stand in its file exactly once.
    """
    with changed(change, _beforehand()) as folder:
        return _forked(change.name, folder, change.tests)


def play_elsewhere(changes: Sequence[Change]) -> list[Played]:
    """Play changes one after the other, from a process that has loaded nothing of ours."""
    members = ("name", "file", "old", "new", "tests")
    asked = [{member: getattr(change, member) for member in members} for change in changes]
    done = subprocess.run(
        [sys.executable, __file__, "--json"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [Played(**{**one, "fate": Fate(one["fate"])}) for one in json.loads(done.stdout)]


# -- a child ------------------------------------------------------------------------------


class _Watch:
    """What became of each test, as pytest tells it."""

    def __init__(self) -> None:
        self.by_assertion: dict[str, str] = {}
        self.passed: list[str] = []
        self.otherwise: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Tell an assertion of a test's own from whatever else may end it."""
        report: Any = yield
        error = call.excinfo
        if error is None:
            if call.when == "call":
                self.passed.append(item.nodeid)
        else:
            said = error.exconly().splitlines()[0]
            if call.when == "call" and _is_of_a_test(error):
                self.by_assertion[item.nodeid] = said
            else:
                self.otherwise.append(f"{item.nodeid}, {call.when}: {said}")
        return report  # type: ignore[no-any-return]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be loaded."""
        if report.failed:
            self.otherwise.append(f"{report.nodeid}: {str(report.longrepr)[-400:]}")

    def told(self, status: int) -> tuple[Fate, str]:
        """What all of them together say."""
        ours = _loaded_from_elsewhere()
        if ours:
            return Fate.BROKEN, f"{ours} was loaded from the working tree"
        if self.otherwise:
            return Fate.BROKEN, self.otherwise[0]
        if self.passed:
            return Fate.SURVIVED, f"{self.passed[0]} passed"
        if not self.by_assertion:
            return Fate.BROKEN, f"no test was run (pytest: {status})"
        return Fate.KILLED, next(iter(self.by_assertion.values()))

    def all_passed(self) -> tuple[Fate, str]:
        """Of tests that were run with nothing changed: a reason where they did not pass."""
        failed = [*self.otherwise, *(f"{test}: {why}" for test, why in self.by_assertion.items())]
        return (Fate.SURVIVED, "") if self.passed and not failed else (Fate.BROKEN, failed[0])


def _is_of_a_test(error: pytest.ExceptionInfo[BaseException]) -> bool:
    if isinstance(error.value, pytest.fail.Exception):
        return not str(error.value).startswith("Timeout")
    is_assertion = isinstance(error.value, AssertionError)
    return is_assertion and Path(error.traceback[-1].path).parent.name == "tests"


def _loaded_from_elsewhere() -> str:
    """A module of the changed package that is not the copy's; empty where there is none."""
    folder = os.environ.get("WORKFLOW_CHECKPOINT_CHANGED")
    if folder is None:
        return ""
    (package,) = (path.name for path in Path(folder).iterdir())
    for name, module in sys.modules.items():
        path = getattr(module, "__file__", None)
        if name.partition(".")[0] == package and path and not path.startswith(folder):
            return name
    return ""


def _forked(name: str, folder: Path | None, tests: Sequence[str]) -> Played:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - what a child does ends here
        os.close(reader)
        try:
            told = _play_here(folder, tests)
        except BaseException as error:
            told = Fate.BROKEN, repr(error)
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        answer = said.read()
    _, status, usage = os.wait4(pid, 0)
    fate, why = json.loads(answer) if answer else (Fate.BROKEN, f"it ended with status {status}")
    seconds = usage.ru_utime + usage.ru_stime
    return Played(name=name, fate=Fate(fate), why=why, seconds=round(seconds, 2))


def _play_here(folder: Path | None, tests: Sequence[str]) -> tuple[Fate, str]:
    if folder is not None:
        signal.alarm(SECONDS_MAX)
        sys.path.insert(0, str(folder))
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
        os.environ["WORKFLOW_CHECKPOINT_CHANGED"] = str(folder)
    watch = _Watch()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    settings = ["-q", "--tb=native", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    # The plugins are loaded already, and have no assertions that matter here.
    settings += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*settings, "--rootdir", str(ROOT), *tests], plugins=[watch])
    return watch.told(int(status)) if folder is not None else watch.all_passed()


@cache
def _beforehand() -> Path:
    """Load everything that is not ours, and make the folder that copies are put in.

    What is compiled is kept beside it for as long as this process lives, by the path: all copies
    have one, so that only what is changed is compiled anew.
    """
    folder = Path(tempfile.mkdtemp(prefix="workflow-checkpoint-changed-"))
    atexit.register(shutil.rmtree, folder)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in ("copy", "no tests"):
        (folder / name).mkdir()
    for name in _BEFOREHAND:
        import_module(name)
    # Of a session without tests remains all that pytest and its plugins load for any.
    settings = ["-q", "-p", "no:cacheprovider", "-p", "no:workflow_checkpoint", "-c", os.devnull]
    with redirect_stdout(StringIO()):
        pytest.main([*settings, "--rootdir", str(folder / "no tests"), str(folder / "no tests")])
    ours = [name for name in sys.modules if name.startswith(OURS)]
    assert ours == [], f"loaded before the change: {ours}"
    assert threading.active_count() == 1, "no process with several threads may be forked"
    gc.freeze()  # nothing of it is garbage, and pytest looks through it again and again
    return folder / "copy"


# -- the command --------------------------------------------------------------------------


def main() -> int:
    """Play mutants of the harness: those that are named, or all and write the page."""
    from harness_mutants import HARNESS_MUTANTS, PAGE, page

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--json", action="store_true", help="play what stands in the input, for programs"
    )
    given = parser.parse_args()
    if given.json:
        played = [play(SimpleNamespace(**asked)) for asked in json.load(sys.stdin)]
        print(json.dumps([asdict(one) for one in played]))  # noqa: T201 - read by the caller
        return 0
    mutants = [HARNESS_MUTANTS[name] for name in given.names or HARNESS_MUTANTS]
    # Tests that fail by themselves would kill whatever is put before them.
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    _beforehand()
    unchanged = _forked("nothing changed", None, tests)
    outcomes = [] if unchanged.why else [play(mutant) for mutant in mutants]
    for one in [unchanged, *outcomes]:
        mark = "✓" if one.fate is Fate.KILLED or (one is unchanged and not one.why) else "✗"
        print(f"{mark} {one.name}: {one.fate}  {one.seconds:.1f} s  {one.why}")  # noqa: T201
    killed = sum(one.fate is Fate.KILLED for one in outcomes)
    print(f"\n{killed} of {len(mutants)} killed")  # noqa: T201 - for people
    if outcomes and not given.names:
        (ROOT / PAGE).write_text(page(outcomes), encoding="utf-8")
    return 0 if killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
