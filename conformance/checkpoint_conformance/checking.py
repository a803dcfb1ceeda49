"""The whole of ``check``: target, preflight, checks, verdict, report, exit status."""

import os
import secrets
import sys
import time
import traceback
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from checkpoint_conformance import report, terminal
from checkpoint_conformance.checks import CHECKS
from checkpoint_conformance.launch import LaunchError, reference_server
from checkpoint_conformance.preflight import UnreachableError, preflight
from checkpoint_conformance.processes import running
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

_UNREACHABLE = (LaunchError, TargetError, UnreachableError)


def check_target(
    description: Description | None,
    *,
    profile: str,
    seed: int | None,
    report_folder: Path | None,
    require_all: bool,
    console: Console | None = None,
) -> int:
    """Check a target, or the reference server where none is given; the exit status.

    Tells the terminal everything, and ``report_folder`` too where one is given.
    """
    console = console or Console()
    errors = Console(stderr=True)
    if seed is None:
        seed = secrets.randbits(32)
    try:
        with ExitStack() as stack:
            if description is None:
                with console.status("Starting Valkey and the reference server"):
                    target = stack.enter_context(reference_server())
            else:
                target = stack.enter_context(running(description, report_folder))
            preflight(target)
            if report_folder is not None:
                # Written first and replaced at the end: whoever reads it after a run that was
                # killed learns that it says nothing.
                unfinished = report.unfinished_document("the run has not ended", seed=seed)
                report.write(report_folder, unfinished)
            outcome = _go_through(target, profile, seed, require_all, console)
            # Before anything is printed: whoever reads the output may stop reading it.
            if report_folder is not None:
                report.write(report_folder, report.document(outcome), outcome)
    except report.FolderError as error:
        errors.print(f"Error: {error}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_UNREACHABLE
    except _UNREACHABLE as error:
        errors.print(f"Error: {error}", markup=False, highlight=False, soft_wrap=True)
        _write_error(report_folder, str(error), seed)
        return EXIT_UNREACHABLE
    except KeyboardInterrupt:
        errors.print("Interrupted before the first check.")
        if report_folder is not None:
            why = "interrupted before the first check"
            report.write(report_folder, report.unfinished_document(why, seed=seed))
        return EXIT_CODES[Verdict.INCOMPLETE]
    except Exception:
        errors.print(
            "This is a fault of the harness, not of the target. Please report it, with this:",
            highlight=False,
        )
        errors.print(traceback.format_exc(), markup=False, highlight=False)
        errors.print(f"(--seed {seed})", highlight=False)
        _write_error(report_folder, "a fault of the harness", seed, traceback.format_exc())
        return EXIT_HARNESS_FAULT
    try:
        terminal.show(console, outcome)
        if report_folder is not None:
            console.print(f"[dim]Report: {report_folder / report.FILE_NAME}[/]", highlight=False)
    except BrokenPipeError:
        # `… | head`: the verdict is known, and the interpreter must not say otherwise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_CODES[outcome.judged.verdict]


def _go_through(
    target: Target, profile: str, seed: int, require_all: bool, console: Console
) -> report.Outcome:
    started_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    started = time.monotonic()
    described = target.address.url + (f"  ({target.description})" if target.description else "")
    console.print(f"Checking {described}", markup=False, highlight=False, soft_wrap=True)
    interrupted = ""
    with terminal.LiveProgress(console) as progress:
        run = Run(target=target, profile=PROFILES[profile], seed=seed, progress=progress)
        try:
            for check in CHECKS:
                if check.applies_to(target):
                    run.check_name = check.name
                    progress.check(check.title)
                    with run.guarded():
                        check.run(run)
            if run.tally.failures:
                progress.check("Shortening what failed")
                with run.guarded():
                    shorten_failures(run)
        except TargetGoneError as error:
            interrupted = str(error)
        except KeyboardInterrupt:
            interrupted = "interrupted before the end"
        finally:
            run.close()
    return report.Outcome(
        run=run,
        judged=judge(run.tally, target, require_all=require_all, interrupted=interrupted),
        started_at=started_at,
        seconds=time.monotonic() - started,
    )


def _write_error(folder: Path | None, message: str, seed: int, details: str = "") -> None:
    if folder is None:
        return
    try:
        report.write(folder, report.error_document(message, seed=seed, details=details))
    except report.FolderError as error:
        sys.stderr.write(f"{error}\n")
