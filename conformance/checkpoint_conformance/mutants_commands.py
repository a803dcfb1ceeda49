"""``workflow-checkpoint mutants``: the wrong servers that the harness must catch.

Only Click is imported up here, so that ``--help`` costs nothing; the rest comes when called.
"""

import sys
from pathlib import Path

import click

_KINDS = (
    "decision",
    "answer",
    "control",
    "store",
    "log",
    "mcp",
    "description",
    "concurrency",
    "fault",
)
"""Stated anew, as the mutants are not loaded for ``--help``; a test holds them equal."""


@click.group()
def mutants() -> None:
    """List or run deliberately wrong servers, and see the harness catch them."""


@mutants.command("list")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Only of this kind."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or for programs.",
)
def list_mutants(kinds: tuple[str, ...], form: str) -> None:
    """Say which mutants there are, what is wrong with each, and which rules must be named."""
    from checkpoint_conformance.mutants import showing
    from checkpoint_conformance.mutants.zoo import chosen

    shown = chosen((), kinds)
    if form == "json":
        click.echo(showing.as_json(shown))
    else:
        showing.show_list(shown)


@mutants.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Those of this kind as well."
)
@click.option(
    "--profile",
    type=click.Choice(["brief", "quick", "default"]),
    default="brief",
    show_default=True,
    help="How much the assigned checks do.",
)
@click.option("--whole", is_flag=True, help="Go on to the end of each check.")
@click.option(
    "--every-check",
    is_flag=True,
    help="Go through every check of a run, not through the assigned one alone.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="First check the right server, N times over: a rule called broken is a false alarm.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many mutants are run at a time, each on servers of its own.",
)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Add what became of each to FILE (JSON lines), and skip those that are in it.",
)
@click.option(
    "--matrix",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Run all of them, and write which rules each was named by, as Markdown.",
)
def run(
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    profile: str,
    whole: bool,
    every_check: bool,
    seeds: int,
    jobs: int,
    results: Path | None,
    matrix: Path | None,
) -> None:
    """Run mutants by name, or all of them, each against the checks assigned to it.

    The reference server is started on a Valkey of its own, made wrong in one
    place, and checked until every rule that must be named was.

    \b
    Exit status: 0 all were killed by the rules that must be named; 1 one was
    not, or the right server was said to break a rule; 2 there is no such
    mutant, or the server could not be started.
    """
    from checkpoint_conformance.launch import LaunchError
    from checkpoint_conformance.mutants import showing
    from checkpoint_conformance.mutants.playing import How, PlayerLostError, ResultsError
    from checkpoint_conformance.mutants.zoo import UnknownMutantError, chosen

    if matrix is not None and (names or kinds):
        raise click.UsageError("--matrix is of all mutants: give no names with it.")
    try:
        played = chosen(names, kinds)
    except UnknownMutantError as error:
        raise click.UsageError(str(error)) from None
    how = How(profile=profile, whole=whole, every_check=every_check)
    try:
        ran = showing.play(played, how, seeds=seeds, jobs=jobs, results=results)
    except (LaunchError, PlayerLostError, ResultsError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    if matrix is not None:
        matrix.write_text(showing.as_matrix(ran), encoding="utf-8")
        click.echo(f"Written to {matrix}.")
    sys.exit(0 if ran.all_well else 1)
