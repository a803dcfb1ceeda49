"""``workflow-checkpoint check``, ``doctor``, ``replay``, ``rules`` and ``explain``.

Loaded for ``--help`` too, so nothing heavy is imported before a command runs.
"""

import sys
from pathlib import Path
from typing import Any, Final

import click

from checkpoint_conformance.target_options import describe, target_options

SEED_MAX: Final = 2**32 - 1
JOBS_MAX: Final = 64
_NO_TARGET: Final = "Which server? Give --url or --target."


@click.command()
@target_options
@click.option(
    "--profile",
    type=click.Choice(["quick", "default", "thorough"]),
    default="default",
    show_default=True,
    help="How much to do. Of the reference server, on two quiet cores: quick about 12 s, default "
    "40 s, thorough many minutes; a target that is one instance takes up to "
    "twice as long.",
)
@click.option(
    "--seed", type=click.IntRange(0, SEED_MAX), help="Repeat the draws of an earlier run."
)
@click.option(
    "--report",
    "report_folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the report there, and for each failure a curl script and a vector.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, JOBS_MAX),
    metavar="N",
    help="How many checks at a time; 1 for one after the other.  [default: by the processors]",
)
@click.option("-v", "--verbose", is_flag=True, help="Show every rule with its hits at the end.")
@click.option(
    "--require-all", is_flag=True, help="Count rules that need more access as a gap (exit 3)."
)
def check(
    profile: str,
    seed: int | None,
    report_folder: Path | None,
    jobs: int | None,
    verbose: bool,
    require_all: bool,
    **target: Any,
) -> None:
    """Check an implementation against the formal model, rule by rule.

    Without --url or --target the reference server is started, on a Valkey of
    its own, and checked.

    \b
    Exit status: 0 it conforms; 1 it does not; 2 it could not be reached, or the
    options are wrong; 3 too little could be exercised to say; 4 the harness
    itself failed.
    """
    description = describe(**target)
    from checkpoint_conformance.checking import check_target

    sys.exit(
        check_target(
            description,
            profile=profile,
            seed=seed,
            report_folder=report_folder,
            require_all=require_all,
            jobs=jobs,
            verbose=verbose,
        )
    )


@click.command()
@target_options
def doctor(**target: Any) -> None:
    """Look at a target before it is checked, and explain what is found.

    Is it reached, is it a Workflow Checkpoint and of which version, how does its
    clock stand to ours, do its controls work, is the store the one behind it?
    """
    description = describe(**target)
    if description is None:
        raise click.UsageError(_NO_TARGET)
    from checkpoint_conformance.doctor import examine

    sys.exit(examine(description))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--over",
    type=click.Choice(["http", "mcp"]),
    default="http",
    show_default=True,
    help="The binding to send them by.",
)
@target_options
def replay(file: Path, over: str, **target: Any) -> None:
    """Send the vectors of a file to a target, such as those of an earlier failure.

    Times are the controls' business: a vector in which time passes needs them.
    Exit status as for `check`.
    """
    description = describe(**target)
    if description is None:
        raise click.UsageError(_NO_TARGET)
    from checkpoint_conformance.replaying import replay_file

    sys.exit(replay_file(file, description, over))


@click.command()
@click.option("--section", type=int, help="Of one section of the contract alone.")
def rules(section: int | None) -> None:
    """List every rule of the contract, and what testing it takes."""
    from checkpoint_conformance.explaining import show_rules

    show_rules(section)


@click.command()
@click.argument("rule")
def explain(rule: str) -> None:
    """Explain one rule: its text, how it is tested, what breaks it, how to see it."""
    from checkpoint_conformance.explaining import UnknownRuleError, explain_rule

    try:
        explain_rule(rule.upper())
    except UnknownRuleError as error:
        raise click.UsageError(str(error)) from None
