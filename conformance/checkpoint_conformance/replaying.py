"""``workflow-checkpoint replay``: vectors from a file, sent to a target and judged."""

from contextlib import ExitStack, nullcontext
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from checkpoint_conformance import report, terminal
from checkpoint_conformance.checks.vectors import send_vectors
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.preflight import UnreachableError, preflight
from checkpoint_conformance.processes import running
from checkpoint_conformance.renderings.terminal import show_failure
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import PROFILES, Run, Target
from checkpoint_conformance.session import TargetGoneError
from checkpoint_conformance.targets import Description, TargetError
from checkpoint_conformance.vectors import Vector, VectorError, read_vectors
from checkpoint_conformance.verdict import EXIT_CODES, EXIT_UNREACHABLE, Verdict


def replay_file(file: Path, description: Description, over: str = Binding.HTTP) -> int:
    """Send every vector of a file by a binding; the exit status."""
    console, errors = terminal.Output(), Console(stderr=True)
    try:
        vectors = read_vectors(file.read_text(encoding="utf-8"))
        with ExitStack() as stack:
            target = stack.enter_context(running(description))
            preflight(target)
            _needs_no_more(target, vectors, Binding(over))
            progress = stack.enter_context(terminal.LiveProgress(console))
            run = Run(target=target, profile=PROFILES["quick"], seed=0, progress=progress)
            stack.callback(run.close)
            run.check_name = "replay"
            progress.check(f"{len(vectors)} vectors of {file.name}")
            frozen = run.frozen() if run.controls is not None else nullcontext()
            with run.over(Binding(over)), run.guarded(), frozen:
                send_vectors(run, vectors)
    except OSError as error:
        errors.print(f"Error: {file}: {error.strerror}", markup=False, highlight=False)
        return EXIT_UNREACHABLE
    except (VectorError, TargetError, LaunchError, UnreachableError, TargetGoneError) as error:
        errors.print(f"Error: {error}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_UNREACHABLE
    told = report.of_run(run)
    for failure in told["failures"]:
        show_failure(console, failure, told)
    for why in run.tally.incomplete:
        console.print(f"[yellow]Incomplete:[/] {escape(why)}", highlight=False)
    verdict = Verdict.PASS
    if run.tally.failures:
        verdict = Verdict.FAIL
    elif run.tally.incomplete:
        verdict = Verdict.INCOMPLETE
    broken = len(run.tally.failures)
    console.print(
        f"{verdict.upper()}: {len(vectors)} vectors sent; {broken} rules broken", highlight=False
    )
    return EXIT_CODES[verdict]


def _needs_no_more(target: Target, vectors: list[Vector], binding: Binding) -> None:
    if binding is Binding.MCP and target.mcp is None:
        raise UnreachableError("Over MCP? Give --mcp, the URL of the endpoint, too.")
    if target.controls is None and any(vector.takes_time for vector in vectors):
        raise UnreachableError("Time passes in these vectors: give --controls too.")
