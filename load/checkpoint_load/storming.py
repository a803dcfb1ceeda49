"""The whole of ``storm``: the target, Locust in a process of its own, what it found.

Locust patches a process for its own purposes, so it has one; this one starts the target where
that is asked for, shows how far the storms are, and ends with their exit status.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from checkpoint_conformance.deployment import Deployment, fault_access
from checkpoint_conformance.faults import Kind
from checkpoint_conformance.history import begin_header
from checkpoint_conformance.launch import (
    FAULTED_SERVERS,
    LaunchError,
    described_for_faults,
    installed,
    reference_server,
)
from checkpoint_conformance.plain import plain
from checkpoint_conformance.preflight import UnreachableError, preflight
from checkpoint_conformance.processes import running
from checkpoint_conformance.report import FolderError
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import Description, TargetError
from checkpoint_conformance.terminal import LiveProgress
from checkpoint_conformance.verdict import (
    EXIT_CODES,
    EXIT_HARNESS_FAULT,
    EXIT_UNREACHABLE,
    Verdict,
)
from checkpoint_load import report
from checkpoint_load.faulting import FILE_NAME, Faulting
from checkpoint_load.limits import (
    DURATION_DEFAULT_SECONDS,
    DURATION_MAX_SECONDS,
    OPEN_FILES_BESIDES,
    ROUNDS_DEFAULT,
)
from checkpoint_load.open_files import OpenFilesError, allow_open_files
from checkpoint_load.plan import HEADERS_VARIABLE, LIFELINE_VARIABLE
from checkpoint_load.storms import STORMS
from checkpoint_load.terminal import show

END_SECONDS_MAX: Final = 20.0
"""How long Locust may take to end once it was interrupted."""
_LOG_LINES_SHOWN: Final = 20
_JUDGING: Final = "Judging by the model"
_UNREACHABLE: Final = (LaunchError, TargetError, UnreachableError, OpenFilesError, FolderError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command was told; see its ``--help``."""

    names: Sequence[str]
    contenders: int
    rounds: int | None
    duration_seconds: float | None
    lose_percent: int
    seed: int | None
    folder: Path | None
    processes: int
    expect_workers: int | None
    master_port: int
    web: bool
    web_port: int
    nemesis: Sequence[Kind] = ()
    """Faults that are made meanwhile."""


def storm_target(
    description: Description | None, options: Options, *, server_workers: int = 1
) -> int:
    """Storm a target, or the reference server where none is given; the exit status."""
    console, errors = Console(), Console(stderr=True)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    folder = options.folder or Path(f"storm-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    try:
        with ExitStack() as stack:
            # Before anything is started, because what is started inherits it.
            allow_open_files(options.contenders + OPEN_FILES_BESIDES)
            report.begin(folder, seed=seed)
            deployment = None
            if options.nemesis:
                with console.status("Starting what is harmed"):
                    deployment, options = _deployed(stack, description, options, server_workers)
                target = deployment.target
            elif description is None:
                with console.status("Starting Valkey and the reference server"):
                    target = stack.enter_context(
                        reference_server(command="storm", workers=server_workers)
                    )
            else:
                target = stack.enter_context(running(description, folder))
            preflight(target)
            status = _storm(console, target, options, seed, folder, deployment)
    except _UNREACHABLE as error:
        told = plain(error, lines=True)
        errors.print(f"Error: {told}", markup=False, highlight=False, soft_wrap=True)
        with suppress(FolderError):
            report.write(folder, report.error_document(told, seed=seed))
        return EXIT_UNREACHABLE
    except KeyboardInterrupt:
        errors.print("Interrupted before the first storm.")
        return EXIT_CODES[Verdict.INCOMPLETE]
    found = report.read(folder)
    # An interpreter that fails has exit status 1 too, but leaves no report of a failure.
    if status != EXIT_CODES.get(Verdict(found["verdict"]), EXIT_HARNESS_FAULT):
        _tell_fault(errors, status, folder)
        report.write(folder, report.error_document("Locust ended early", seed=seed))
        return EXIT_HARNESS_FAULT
    try:
        show(console, found, folder)
    except BrokenPipeError:
        # `… | head`: the verdict is known, and the interpreter must not say otherwise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _deployed(
    stack: ExitStack, description: Description | None, options: Options, server_workers: int
) -> tuple[Deployment, Options]:
    """Start what faults are made of; with the faults that can be made of it.

    Raises:
        LaunchError: it did not start, or a fault that was named cannot be made of it.
    """
    if description is None:
        installed("storm")
        description = described_for_faults(servers=max(server_workers, FAULTED_SERVERS))
    access = fault_access(description)
    if access is None:
        raise LaunchError("No fault can be made: the target's description has no `faults`.")
    missing = [kind for kind in options.nemesis if kind not in access.kinds]
    if missing and len(options.nemesis) < len(Kind):
        raise LaunchError(f"{missing[0]} cannot be made: it needs {access.missing[missing[0]]}.")
    for kind in missing:
        Console().print(f"[dim]not run: {kind} needs {access.missing[kind]}[/]", highlight=False)
    kinds = [kind for kind in options.nemesis if kind in access.kinds]
    return stack.enter_context(access.deploy()), replace(options, nemesis=kinds)


def _faulting(
    deployment: Deployment,
    target: Target,
    options: Options,
    seed: int,
    folder: Path,
    process: "subprocess.Popen[bytes]",
) -> Faulting:
    """What makes faults beside Locust, and ends its storm by closing its input."""

    def end() -> None:
        # Taken away first: an interrupt meanwhile would find it closed.
        given, process.stdin = process.stdin, None
        if given is not None:
            given.close()

    parameters = {
        "seed": seed,
        "nemesis": list(options.nemesis),
        "durability": deployment.durability,
    }
    return Faulting(
        deployment,
        options.nemesis,
        seed=seed,
        seconds_min=options.duration_seconds or 0,
        path=folder / FILE_NAME,
        header=begin_header("mixed", {"url": target.address.url}, parameters),
        end=end,
    )


def _storm(
    console: Console,
    target: Target,
    options: Options,
    seed: int,
    folder: Path,
    deployment: Deployment | None = None,
) -> int:
    """Run Locust to its end; its exit status."""
    described = target.address.url + (f"  ({target.description})" if target.description else "")
    console.print(f"Storming {described}", markup=False, highlight=False)
    if options.web:
        console.print(f"Start and watch it at http://127.0.0.1:{options.web_port} (Ctrl-C ends it)")
    if options.expect_workers:
        console.print(
            f"Waiting for {options.expect_workers} workers: locust -f … --worker "
            f"--master-host … --master-port {options.master_port}",
            markup=False,
        )
    # Ours to hold, and closed by the system however this process ends.
    theirs, ours = os.pipe()
    environment = {
        **os.environ,
        HEADERS_VARIABLE: json.dumps(dict(target.headers)),
        LIFELINE_VARIABLE: str(theirs),
    }
    with (folder / report.LOCUST_LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - Locust, by our own interpreter
            _command(target, options, seed, folder, deployment),
            stdin=subprocess.DEVNULL if deployment is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            pass_fds=(theirs,),
            # Ctrl-C is for this process, which then tells Locust, and that its workers.
            start_new_session=True,
        )
    os.close(theirs)
    faulting = None
    if deployment is not None:
        faulting = _faulting(deployment, target, options, seed, folder, process)
        faulting.start()
    try:
        with LiveProgress(console) as progress:
            _follow(process, progress, options.rounds, faulting)
        return process.wait()
    except KeyboardInterrupt:
        return _interrupt(process)
    finally:
        if faulting is not None:
            faulting.stop()
            if faulting.fault:
                console.print(f"The faults ended early: {faulting.fault}", markup=False)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(ours)


def _follow(
    process: "subprocess.Popen[bytes]",
    progress: LiveProgress,
    rounds: int | None,
    faulting: Faulting | None = None,
) -> None:
    """Show how far it is, and tell whoever makes faults, until its standard output ends."""
    assert process.stdout is not None
    current = ""
    for line in process.stdout:
        try:
            told = json.loads(line)
            if "judging" in told:
                title, done, of = _JUDGING, int(told["judging"]), int(told["of"])
            else:
                title = STORMS[told["storm"]].title
                done, of = int(told["round"]) + 1, rounds or ROUNDS_DEFAULT
                if faulting is not None:
                    faulting.answered(int(told["answers"]))
        except (ValueError, KeyError, TypeError):
            continue  # whatever a library prints
        if title != current:
            current = title
            progress.check(title)
        progress.advance(done, max(done, of, 1))


def _interrupt(process: "subprocess.Popen[bytes]") -> int:
    """Let Locust end at once, and say so in its report."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.communicate(timeout=END_SECONDS_MAX)
    if process.poll() is None:
        return EXIT_CODES[Verdict.INCOMPLETE]  # what was written at the beginning stands
    return process.wait()


def _command(
    target: Target,
    options: Options,
    seed: int,
    folder: Path,
    deployment: Deployment | None = None,
) -> list[str]:
    users = options.expect_workers or options.processes
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py"))]
    command += ["--host", target.address.url, "--users", str(users), "--spawn-rate", str(users)]
    command += ["--storms", ",".join(options.names), "--contenders", str(options.contenders)]
    command += ["--rounds", str(options.rounds or 0)]
    seconds = options.duration_seconds or 0
    if deployment is not None:
        # It ends when the faults do; this is only so that it ends at all.
        seconds = min(seconds + DURATION_DEFAULT_SECONDS, DURATION_MAX_SECONDS)
        command += ["--storm-nemesis", ",".join(options.nemesis)]
        command += ["--storm-durability", deployment.durability]
    command += ["--duration", str(seconds)]
    command += ["--lose", str(options.lose_percent), "--seed", str(seed), "--report", str(folder)]
    command += ["--answer-timeout", str(target.seconds_max), "--storm-progress"]
    command += ["--target-name", target.name, "--target-version", target.version]
    command += ["--target-description", target.description]
    command += ["--html", str(folder / report.LOCUST_HTML)]
    command += ["--json-file", str(folder / report.LOCUST_JSON.removesuffix(".json"))]
    command += ["--logfile", str(folder / report.LOCUST_LOG), "--only-summary"]
    if options.web:
        command += ["--web-host", "127.0.0.1", "--web-port", str(options.web_port)]
    else:
        command += ["--headless"]
    if options.processes > 1:
        command += ["--processes", str(options.processes)]
    if options.processes > 1 or options.expect_workers:
        command += ["--master-bind-port", str(options.master_port)]
        command += ["--master-port", str(options.master_port)]
    if options.expect_workers:
        command += ["--master", "--expect-workers", str(options.expect_workers)]
    return command


def _tell_fault(errors: Console, status: int, folder: Path) -> None:
    log = folder / report.LOCUST_LOG
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = "\n".join(f"  {plain(line)}" for line in said.splitlines()[-_LOG_LINES_SHOWN:])
    errors.print(
        f"Locust ended with status {status} and no verdict. The end of {log}:\n"
        f"{lines or '  (nothing)'}\n"
        "If that does not tell why, it is a fault of the harness: please report it.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
