"""``workflow-checkpoint recheck``: judge a stored history again.

Loaded for ``--help`` too, so nothing heavy is imported before the command runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--steps",
    "steps_max",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many steps of the model to try for one workflow before giving it up.",
)
def recheck(folder: Path, steps_max: int | None) -> None:
    """Judge a history that a storm wrote, by the model of this version.

    Nothing is sent to anybody. DIR is the folder with the history, or one file of it; the verdict
    is printed, and written beside the history as judgement.json and, to be looked at, storm.html.

    Exit code 0 if every storm passes, 1 if one fails, 3 if one says too little to pass or you
    interrupted it, 2 if there is no history.
    """
    from rich.console import Console

    from checkpoint_conformance.history import HistoryError
    from checkpoint_conformance.judging import (
        JudgementError,
        exit_code,
        judge_folder,
        write_judgement,
    )
    from checkpoint_conformance.renderings.storm import write_storm_page
    from checkpoint_conformance.report import FolderError
    from checkpoint_conformance.terminal import Output
    from checkpoint_conformance.verdict import EXIT_CODES, Verdict
    from checkpoint_model.linearizability import STEPS_MAX

    output, progress = Output(highlight=False), Console(stderr=True, highlight=False)
    try:
        judgement = judge_folder(folder, steps_max=steps_max or STEPS_MAX, tell=_tell(progress))
        path = write_judgement(folder, judgement)
        page = write_storm_page(path.parent)
    except (HistoryError, JudgementError, FolderError) as error:
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt:
        progress.print("\nInterrupted: there is no verdict.", markup=False)
        raise SystemExit(EXIT_CODES[Verdict.INCOMPLETE]) from None
    show_judgement(output, judgement)
    output.print(f"\nThe whole judgement is in {path}.", markup=False, soft_wrap=True)
    output.print(f"To look at it: {page}", markup=False, soft_wrap=True)
    raise SystemExit(exit_code(judgement))


def show_judgement(console: "Console", judgement: "Mapping[str, Any]") -> None:
    """Print a judgement: what each storm came to, its rules, and what fails first."""
    for storm in judgement["storms"]:
        _show_storm(console, storm)
    console.print()
    console.print(judgement["line"], style=_STYLES[judgement["verdict"]], markup=False)


_STYLES = {"pass": "bold green", "fail": "bold red", "incomplete": "bold yellow"}


def _show_storm(console: "Console", storm: "Mapping[str, Any]") -> None:
    console.print()
    console.print(
        f"{storm['verdict'].upper()}  {storm['storm']}: {storm['line']}",
        style=_STYLES[storm["verdict"]],
        markup=False,
    )
    console.print(
        f"  {storm['calls']:,} calls of {storm['clients']:,} clients on {storm['target']['url']}, "
        f"{storm['requests_per_second']:,.0f} answers/s",
        markup=False,
    )
    met = storm["contention"]
    spread = (
        f"released within {met['spread_ms_median']:.1f} ms (median of {met['bursts']:,} bursts), "
        f"{met['in_flight_median']:.0f} in flight at once; "
        if met["bursts"]
        else ""
    )
    console.print(f"  {spread}at most {met['in_flight_max']:,} in flight at once", markup=False)
    rules = ", ".join(
        f"{rule} {r['status']}" + (f" ({r['hits']:,})" if r["hits"] else "")
        for rule, r in storm["rules"].items()
    )
    console.print(f"  {rules}", markup=False)
    if storm.get("faults"):
        from checkpoint_conformance.renderings.faults import faults_line

        console.print(f"  {faults_line(storm['faults'])}", markup=False)
    for gap in storm["incomplete_because"]:
        console.print(f"  incomplete: {gap}", markup=False)
    for remark in storm["remarks"]:
        console.print(f"  {remark}", markup=False)
    for failure in storm["failures"]:
        show_failure(console, failure)


def show_failure(console: "Console", failure: "Mapping[str, Any]") -> None:
    """Print one failure of a judgement: what came, what was expected, and after what."""
    console.print()
    console.print(f"  {', '.join(failure['rules'])}: {failure['what']}", style="bold", markup=False)
    if failure["workflow"]:
        console.print(f"    workflow  {failure['workflow']['workflow_key']}", markup=False)
    console.print(f"    expected  {failure['expected']}", markup=False)
    console.print(f"    got       {failure['got']}", markup=False)
    state = failure.get("state")
    if state:
        console.print(
            f"    state     {state['stage']}, generation {state['generation']}, holder "
            f"{state['holder']}, claim until {state['claim_expires_at']}, changed at "
            f"{state['changed_at']}",
            markup=False,
            soft_wrap=True,
        )
    elif failure.get("operation") is not None and failure["kind"] == "illegal":
        console.print("    state     no record", markup=False)
    if failure.get("why"):
        console.print(f"    {failure['why']}", markup=False)


def _tell(console: "Console") -> "Callable[[str, int, int], None]":
    """Tell how far it is: on a terminal only, in one line that is written over."""

    def tell(what: str, done: int, of: int) -> None:
        if console.is_terminal:
            counted = f"{done:,} of {of:,}" if of else f"{done:,}"
            console.print(f"{what}: {counted}".ljust(60), end="\r", markup=False)

    return tell
