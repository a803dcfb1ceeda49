"""Conformance tests to inherit, for suites that run under pytest.

    from checkpoint_conformance.testing import ConformanceTests


    @pytest.fixture(scope="module")
    def checkpoint_target():
        with my_server() as url:
            yield url


    class TestMyCheckpoint(ConformanceTests):
        "It keeps the contract."

What is tested, and what is said of it, is what ``workflow-checkpoint check`` tests and says:

- ``test_part[walk]`` … go through the run, part by part. One fails where the target went away.
- ``test_rule[WC-CLAIM-8]`` … tell what came of each rule. A broken rule is one failed test.
- ``test_nothing_is_missing`` fails where the command would say INCOMPLETE, or where a failure was
  expected that did not come.
- ``test_nothing_inherited_is_changed`` fails where the class takes away from any of these.

Asked for one rule alone, pytest still goes through the whole run: a rule is exercised by all of it.
"""

import hashlib
import io
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from inspect import getattr_static
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, Self, TypeAlias

import click
import pytest
from rich.console import Console

from checkpoint_conformance import report
from checkpoint_conformance.checks import CHECKS
from checkpoint_conformance.checks.logs import judge_logs
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.preflight import UnreachableError, preflight, serves_several
from checkpoint_conformance.processes import running
from checkpoint_conformance.renderings import write_all
from checkpoint_conformance.renderings.terminal import show_failure
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.shortening import shorten_failures
from checkpoint_conformance.tally import Failure
from checkpoint_conformance.target_options import describe
from checkpoint_conformance.targets import Description, TargetError
from checkpoint_conformance.verdict import Judged, Status, judge

__all__ = ["Checking", "ConformanceTests", "Description", "Target"]

Given: TypeAlias = str | Description | Target
"""What a ``checkpoint_target`` fixture may return; a string is the server's root URL."""

PARTS: Final = tuple(dict.fromkeys(check.name for check in CHECKS))
"""The parts of a run, in their order."""
COLUMNS: Final = 100
_UNUSABLE: Final = (
    LaunchError,
    TargetError,
    UnreachableError,
    report.FolderError,
    pytest.UsageError,
)
"""What says all that there is to say in its message."""
_NO_TARGET: Final = (
    "Which server? Give --checkpoint-url or --checkpoint-target, or override the fixture "
    "`checkpoint_target`."
)
_SPLIT: Final = (
    "Two workers of pytest-xdist were given parts of one conformance run, and would turn the "
    "same controls against each other. Keep them together: --dist loadscope."
)


def described_by(config: pytest.Config) -> Description:
    """The target that the options describe.

    Raises:
        pytest.UsageError: they describe none, or one is wrong.
    """
    try:
        description = describe(
            target_file=config.getoption("--checkpoint-target"),
            url=config.getoption("--checkpoint-url"),
            controls=config.getoption("--checkpoint-controls"),
            mcp=config.getoption("--checkpoint-mcp"),
            store=config.getoption("--checkpoint-store"),
            logs=tuple(config.getoption("--checkpoint-log")),
            headers=tuple(config.getoption("--checkpoint-header")),
            classes=tuple(config.getoption("--checkpoint-class")),
            expected=(),
            seconds_max=None,
        )
    except click.UsageError as error:
        raise pytest.UsageError(error.format_message()) from None
    if description is None:
        raise pytest.UsageError(_NO_TARGET)
    return description


class _Silent:
    """Progress that pytest shows in its own way."""

    def check(self, title: str) -> None:
        """Nothing."""

    def advance(self, done: int, of: int) -> None:
        """Nothing."""


class Checking:
    """One target, checked part by part as tests ask for it, and judged once.

    Whatever keeps it from being checked fails the test that comes upon it first, with the whole
    message; the others are skipped with its first line: one fault, one failed test.
    """

    def __init__(
        self,
        given: Given | None,
        *,
        profile: str,
        seed: int | None = None,
        report_folder: Path | None = None,
        trouble: BaseException | None = None,
    ) -> None:
        self.given = given
        self._profile = PROFILES[profile]
        self._seed = secrets.randbits(32) if seed is None else seed
        self._folder = report_folder
        self._stack = ExitStack()
        self._run: Run | None = None
        self._done: dict[str, int] = {}
        """Of each part that was gone through, how many hits of rules it counted."""
        self._interrupted = ""
        self._outcome: report.Outcome | None = None
        self._trouble = trouble
        self._told = False

    # -- going through it ----------------------------------------------------------------

    def go_through(self, part: str, *, told_elsewhere: frozenset[str] = frozenset()) -> None:
        """Go through one part; the outcome of the test that asks for it.

        Args:
            part: one of :data:`PARTS`.
            told_elsewhere: rules that have a test of their own in this session.
        """
        run = self._opened()
        if self._interrupted:
            pytest.skip(f"the run ended before it: {self._interrupted}")
        reason = _beyond(part, run.target)
        if reason:
            pytest.skip(reason)
        self._play(run, part)
        if self._interrupted:
            pytest.fail(f"The run ended here: {self._interrupted}", pytrace=False)
        found = [f for f in run.tally.failures.values() if f.check == part]
        if not found and not self._done[part] and run.tally.failures:
            pytest.skip(f"could not run: {', '.join(sorted(run.tally.failures))} is broken already")
        if not found and not self._done[part]:
            why = ", ".join(run.tally.lost_why) or "it found no occasion"
            pytest.fail(f"Not one rule was exercised here: {why}", pytrace=False)
        expected = {entry.rule for entry in run.target.expected_failures}
        untold = [f for f in found if f.rule not in told_elsewhere | expected]
        if untold:
            self._fail(run, *untold)

    def rule(self, rule_id: str) -> None:
        """What came of one rule, as the outcome of the test that asks."""
        outcome = self._whole()
        found = outcome.judged.rules[rule_id]
        if found.status is Status.FAILED:
            failures = outcome.run.tally.failures
            failure = failures.get(rule_id) or next(
                failure for failure in failures.values() if rule_id in failure.fault.rules
            )
            self._fail(outcome.run, failure)
        if found.status is Status.EXPECTED_FAILURE:
            pytest.xfail(found.reason)
        if found.status is not Status.PASSED:
            pytest.skip(f"{found.status}: {found.reason}")

    def nothing_missing(self) -> None:
        """Fail where the command line would say INCOMPLETE, or an expectation is stale."""
        if self._trouble is not None:
            self._stop()
        judged = self._whole().judged
        if judged.gaps or judged.stale:
            lines = [*judged.stale, *judged.gaps, judged.line, self._again()]
            pytest.fail("\n".join(lines), pytrace=False)

    def document(self) -> dict[str, Any]:
        """The report of the whole run, as ``report.json`` has it."""
        return report.document(self._whole())

    @property
    def judged(self) -> Judged | None:
        """What came of it, once it was gone through."""
        return None if self._outcome is None else self._outcome.judged

    def summary(self) -> str:
        """The verdict, for the end of a session; nothing where there is none yet."""
        return "" if self.judged is None else f"{self.judged.line}\n{self._again()}"

    def close(self) -> None:
        """Leave the target as it was, and stop it if it was started here."""
        if self._run is not None and self._outcome is None:
            self._run.close()
        self._run = None
        self._stack.close()

    # -- how -----------------------------------------------------------------------------

    def _opened(self) -> Run:
        if self._trouble is not None:
            if self._told:
                pytest.skip(f"not checked: {str(self._trouble).partition(chr(10))[0]}")
            self._stop()
        if self._run is None:
            self._open()
        assert self._run is not None
        return self._run

    def _open(self) -> None:
        try:
            target = self._stack.enter_context(_target_of(self.given, self._folder))
            preflight(target)
            if not serves_several(target):
                target = replace(target, one_by_one=True)
            self._write(report.unfinished_document("the run has not ended", seed=self._seed))
        except _UNUSABLE as error:
            self._stack.close()
            self._trouble = error
        if self._trouble is not None:
            self._stop()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started = time.monotonic()
        self._run = Run(target=target, profile=self._profile, seed=self._seed, progress=_Silent())

    def _stop(self) -> NoReturn:
        assert self._trouble is not None
        self._told = True
        if isinstance(self._trouble, _UNUSABLE):
            pytest.fail(str(self._trouble), pytrace=False)
        raise self._trouble

    def _play(self, run: Run, part: str) -> None:
        if part in self._done or self._interrupted:
            return
        before = run.tally.hits.total()
        try:
            for check in CHECKS:
                if check.name == part and check.applies_to(run.target):
                    run.play(check)
        except TargetGoneError as error:
            self._interrupted = str(error)
        except Exception as error:  # a fault of the harness: no verdict may come of it
            self._trouble, self._told = error, True
            raise
        finally:
            self._done[part] = run.tally.hits.total() - before

    def _whole(self) -> report.Outcome:
        if self._outcome is None:
            run = self._opened()
            for part in PARTS:
                self._play(run, part)
            if run.tally.failures and not self._interrupted:
                with run.guarded():
                    shorten_failures(run)
            run.close()
            # What was started has stopped, and will log nothing more.
            self._stack.close()
            judge_logs(run)
            self._outcome = report.Outcome(
                run=run,
                judged=judge(run.tally, run.target, interrupted=self._interrupted),
                started_at=self._started_at.replace("+00:00", "Z"),
                seconds=time.monotonic() - self._started,
            )
            self._write(report.document(self._outcome))
        return self._outcome

    def _write(self, document: dict[str, Any]) -> None:
        if self._folder is not None:
            report.write(self._folder, document)
            write_all(self._folder, document)

    def _fail(self, run: Run, *failures: Failure) -> NoReturn:
        """Say of failures just what the command line says."""
        text = io.StringIO()
        console = Console(file=text, width=COLUMNS, color_system=None, force_terminal=False)
        told = report.of_run(run)
        rules_told = {failure.rule for failure in failures}
        for failure in told["failures"]:
            if failure["rules"][0] in rules_told:
                show_failure(console, failure, told)
        pytest.fail(f"{text.getvalue().strip()}\n\n{self._again()}", pytrace=False)

    def _again(self) -> str:
        return f"profile {self._profile.name}; --checkpoint-seed {self._seed} repeats it"


def _target_of(given: object, folder: Path | None) -> AbstractContextManager[Target]:
    if isinstance(given, Target):
        return nullcontext(given)
    if isinstance(given, str):
        given = Description(url=given)
    if isinstance(given, Description):
        return running(given, folder)
    raise TargetError(
        "The fixture `checkpoint_target` returns a URL, a Description or a running Target, "
        f"not {type(given).__name__}."
    )


def _beyond(part: str, target: Target) -> str:
    """Why a part is not for this target; empty where it is."""
    checks = [check for check in CHECKS if check.name == part]
    if any(check.applies_to(target) for check in checks):
        return ""
    unclaimed = {check.needs_class for check in checks} - {None, *target.claimed_classes}
    if unclaimed:
        return f"the class {', '.join(sorted(map(str, unclaimed)))} is not claimed"
    if any(check.needs_store for check in checks):
        return "needs --checkpoint-store, or `store` in the target"
    if any(check.needs_controls for check in checks):
        return "needs --checkpoint-controls, or `controls` in the target"
    return "tested otherwise with controls"


class Checkings:
    """The targets of one pytest session, each checked once however many tests ask."""

    def __init__(self, config: pytest.Config, temporary: Path) -> None:
        self._config = config
        self._temporary = temporary
        self._all: list[Checking] = []

    def __enter__(self) -> Self:
        """Nothing is opened before it is asked for."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close whatever is still open."""
        for checking in self._all:
            checking.close()

    @contextmanager
    def of(self, request: pytest.FixtureRequest, profile: str) -> Iterator[Checking]:
        """The checking of what ``checkpoint_target`` gives here."""
        given, trouble = None, None
        try:
            given = request.getfixturevalue("checkpoint_target")
            self._keep_together(request, given)
        # A fixture that fails does so for each of a hundred tests: once is enough.
        except (Exception, pytest.fail.Exception) as error:
            trouble = error
        # The same object, not an equal one: another server may have come to the same port.
        checking = next((c for c in self._all if given is not None and c.given is given), None)
        if checking is None:
            folder = self._config.getoption("--checkpoint-report")
            if folder is not None and self._all:
                folder /= str(len(self._all) + 1)
            seed = self._config.getoption("--checkpoint-seed")
            checking = Checking(
                given, profile=profile, seed=seed, report_folder=folder, trouble=trouble
            )
            self._all.append(checking)
            summaries = self._config.stash.setdefault(_SUMMARIES, [])
            summaries.append(checking)
        try:
            yield checking
        finally:
            if checking.judged is None:
                # Its server may be stopped next, by the fixture that started it.
                checking.close()
                self._all.remove(checking)

    def _keep_together(self, request: pytest.FixtureRequest, given: object) -> None:
        """See to it that one worker of pytest-xdist has the whole of a run."""
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        if worker is None:
            return
        what = request.cls.__qualname__ + str(request.path) if request.cls else str(given)
        name = hashlib.sha256(what.encode()).hexdigest()[:16]
        claim = self._temporary.parent / f"checkpoint-{name}"
        try:
            with claim.open("x", encoding="utf-8") as file:
                file.write(worker)
        except FileExistsError:
            if claim.read_text(encoding="utf-8") != worker:
                raise TargetError(_SPLIT) from None


_SUMMARIES: Final = pytest.StashKey[list[Checking]]()


class _Summary:
    """Says the verdict at the end of a session."""

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        for checking in config.stash.get(_SUMMARIES, []):
            if checking.summary():
                terminalreporter.section("workflow checkpoint")
                terminalreporter.line(checking.summary())


def collected(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Look at the conformance tests that pytest found, once.

    Raises:
        pytest.UsageError: one is marked `xfail`, under which a broken rule would be green.
    """
    ours = [item for item in items if _is_ours(item)]
    for item in ours:
        if next(item.iter_markers("xfail"), None) is not None:
            raise pytest.UsageError(
                f"{item.nodeid} is marked xfail. A failure that is known is declared in the "
                "target's `expected_failures`, with rule and reason."
            )
    if ours:
        config.pluginmanager.register(_Summary(), "workflow_checkpoint_summary")


def _is_ours(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and issubclass(item.cls or object, ConformanceTests)


class ConformanceTests:
    """Inherit this, and say in the fixture ``checkpoint_target`` what is to be tested.

    The fixture's scope is `class` or wider; it returns the root URL of a server that runs, a
    :class:`Description` (with which one can be started) or a :class:`Target`.
    """

    __test__ = False
    """Whatever a suite's `python_classes` say, this is not collected where it is imported."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Keep the guard from being taken away."""
        super().__init_subclass__(**given)
        cls.__test__ = cls.__dict__.get("__test__", True)
        if _GUARD in _changed(cls):
            raise TypeError(f"{cls.__name__} overrides {_GUARD}, which guards the other tests")

    @pytest.mark.parametrize("part", PARTS)
    def test_part(
        self, request: pytest.FixtureRequest, checkpoint_run: Checking, part: str
    ) -> None:
        """The target can be taken through this part of the run; its rules tell what came of it."""
        told = {
            str(item.callspec.params["rule"])
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.cls is type(self)
            if hasattr(item, "callspec") and "rule" in item.callspec.params
        }
        checkpoint_run.go_through(part, told_elsewhere=frozenset(told))

    @pytest.mark.parametrize("rule", rules())
    def test_rule(self, checkpoint_run: Checking, rule: str) -> None:
        """The rule holds, or it is said why nothing can be said."""
        checkpoint_run.rule(rule)

    def test_nothing_is_missing(self, checkpoint_run: Checking) -> None:
        """What the access reaches was exercised enough, and failed as expected where expected."""
        checkpoint_run.nothing_missing()

    def test_nothing_inherited_is_changed(self, checkpoint_run: Checking) -> None:
        """No test is overridden or removed, and the fixtures behind them are our own."""
        changed = _changed(type(self))
        if changed:
            pytest.fail(
                f"{type(self).__name__} changes what it inherits: {', '.join(changed)}. A failure "
                "that is known is declared in the target's `expected_failures`, with rule and "
                "reason.",
                pytrace=False,
            )
        assert type(checkpoint_run) is Checking, "the fixture checkpoint_run is overridden"


_GUARD: Final = "test_nothing_inherited_is_changed"
_INHERITED: Final = MappingProxyType(
    {name: value for name, value in vars(ConformanceTests).items() if name.startswith("test_")}
)


def _changed(cls: type) -> list[str]:
    """The inherited tests that are no longer what they were."""
    return [
        name for name, value in _INHERITED.items() if getattr_static(cls, name, None) is not value
    ]
