"""The whole of ``check``: target, preflight, checks, verdict, report, exit status."""

import secrets
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from checkpoint_conformance import github, report, terminal
from checkpoint_conformance.checks import CHECKS
from checkpoint_conformance.checks.logs import judge_logs
from checkpoint_conformance.interrupts import insistent
from checkpoint_conformance.lanes import jobs_by_default, lanes, load_what_checks_need
from checkpoint_conformance.launch import LaunchError, reference_servers
from checkpoint_conformance.plain import plain
from checkpoint_conformance.preflight import UnreachableError, preflight, serves_several
from checkpoint_conformance.processes import running
from checkpoint_conformance.renderings import FORMATS, write_all
from checkpoint_conformance.renderings.terminal import show
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.shortening import shorten_failures
from checkpoint_conformance.targets import Description, TargetError
from checkpoint_conformance.verdict import (
    EXIT_CODES,
    EXIT_HARNESS_FAULT,
    EXIT_UNREACHABLE,
    Verdict,
    judge,
)

INSTANCES_MAX: Final = 2
"""So many servers of ours are started for one run: each costs a second of processor time, and of
what must be alone there is not more to do at a time on the machines that this is for."""
_UNREACHABLE = (LaunchError, TargetError, UnreachableError)


def check_target(
    description: Description | None,
    *,
    profile: str,
    seed: int | None,
    report_folder: Path | None,
    require_all: bool,
    jobs: int | None = None,
    verbose: bool = False,
    console: Console | None = None,
) -> int:
    """Check a target, or the reference server where none is given; the exit status.

    Tells the terminal everything, and ``report_folder`` too where one is given. ``jobs`` is how
    many checks are done at a time; as many as suit the processors if None.
    """
    if seed is None:
        seed = secrets.randbits(32)
    with github.as_plain_text():
        status, found = _checked(
            description,
            profile,
            seed,
            report_folder,
            require_all,
            console or terminal.Output(),
            verbose,
            jobs,
        )
    github.tell(found)
    return status


def _checked(
    description: Description | None,
    profile: str,
    seed: int,
    folder: Path | None,
    require_all: bool,
    console: Console,
    verbose: bool,
    jobs: int | None,
) -> tuple[int, dict[str, Any]]:
    """The exit status, and the report."""
    errors = Console(stderr=True)
    jobs = jobs or jobs_by_default()
    try:
        with ExitStack() as stack:
            if description is None:
                with console.status("Starting Valkey and the reference server"):
                    targets = stack.enter_context(
                        reference_servers(min(jobs, INSTANCES_MAX), meanwhile=load_what_checks_need)
                    )
            else:
                targets = (stack.enter_context(running(description, folder)),)
            target = targets[0]
            for instance in targets:
                preflight(instance)
            # Written first and replaced at the end: whoever reads it after a run that was
            # killed learns that it says nothing.
            _write(folder, report.unfinished_document("the run has not ended", seed=seed))
            if description is not None and not serves_several(target):
                target = replace(target, one_by_one=True)
                targets, jobs = (target,), 1
            ended = _go_through(targets, profile, seed, console, jobs)
        # What was started has stopped, and will log nothing more.
        judge_logs(ended.run)
        outcome = report.Outcome(
            run=ended.run,
            judged=judge(
                ended.run.tally, target, require_all=require_all, interrupted=ended.interrupted
            ),
            started_at=ended.started_at,
            seconds=ended.seconds,
        )
        found = report.document(outcome)
        # Before anything is printed: whoever reads the output may stop reading it.
        _write(folder, found)
    except report.FolderError as error:
        errors.print(f"Error: {error}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_UNREACHABLE, report.error_document(str(error), seed=seed)
    except _UNREACHABLE as error:
        told = plain(error, lines=True)
        errors.print(f"Error: {told}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_UNREACHABLE, _write_error(folder, told, seed)
    except KeyboardInterrupt:
        errors.print("Interrupted before the first check.")
        found = report.unfinished_document("interrupted before the first check", seed=seed)
        _write(folder, found)
        return EXIT_CODES[Verdict.INCOMPLETE], found
    except Exception:
        errors.print(
            "This is a fault of the harness, not of the target. Please report it, with this:",
            highlight=False,
        )
        errors.print(traceback.format_exc(), markup=False, highlight=False)
        errors.print(f"(--seed {seed})", highlight=False)
        found = _write_error(folder, "a fault of the harness", seed, traceback.format_exc())
        return EXIT_HARNESS_FAULT, found
    show(console, found, whole=verbose)
    if folder is not None:
        page = escape(str(folder / FORMATS["html"].file_name))
        console.print(f"[dim]Report: {page}[/]", highlight=False, soft_wrap=True)
    if not verbose:
        whole = f"workflow-checkpoint report {shlex.quote(str(folder))}" if folder else "--verbose"
        console.print(
            f"[dim]Every rule with its hits: {escape(whole)}[/]", highlight=False, soft_wrap=True
        )
    return EXIT_CODES[outcome.judged.verdict], found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    """A run that went through its checks, as far as it came."""

    run: Run
    interrupted: str
    started_at: str
    seconds: float


def _go_through(
    targets: Sequence[Target], profile: str, seed: int, console: Console, jobs: int
) -> _Ended:
    started_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    started = time.monotonic()
    target = targets[0]
    described = target.address.url + (f"  ({target.description})" if target.description else "")
    console.print(f"Checking {described}", markup=False, highlight=False, soft_wrap=True)
    amount = PROFILES[profile]
    with ExitStack() as stack:
        side_by_side = None
        if jobs > 1:
            side_by_side = stack.enter_context(
                lanes(jobs, CHECKS, targets, profile=amount, seed=seed)
            )
        progress = stack.enter_context(terminal.LiveProgress(console))
        run = Run(target=target, profile=amount, seed=seed, progress=progress)
        stack.callback(run.close)
        stack.enter_context(insistent())
        interrupted = ""
        try:
            if side_by_side is None:
                for check in CHECKS:
                    if check.applies_to(target):
                        progress.check(check.title)
                        run.play(check)
            else:
                seen = side_by_side.go_through(progress)
                run.take(seen.tally)
                interrupted = seen.interrupted
            if run.tally.failures and not interrupted:
                progress.check("Shortening what failed")
                with run.guarded():
                    shorten_failures(run)
        except TargetGoneError as error:
            interrupted = str(error)
        except KeyboardInterrupt:
            interrupted = "interrupted before the end"
        if interrupted:
            progress.stopped()
    return _Ended(
        run=run,
        interrupted=interrupted,
        started_at=started_at,
        seconds=time.monotonic() - started,
    )


def _write(folder: Path | None, found: dict[str, Any]) -> None:
    """The report and whatever is rendered from it, so that none of an earlier run is left."""
    if folder is not None:
        report.write(folder, found)
        write_all(folder, found)


def _write_error(folder: Path | None, message: str, seed: int, details: str = "") -> dict[str, Any]:
    found = report.error_document(message, seed=seed, details=details)
    try:
        _write(folder, found)
    except report.FolderError as error:
        sys.stderr.write(f"{error}\n")
    except Exception:  # the fault may be a renderer's own; report.json was written before it
        sys.stderr.write(traceback.format_exc())
    return found
