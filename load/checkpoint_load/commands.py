"""``workflow-checkpoint storm``.

Loaded for ``--help`` too, so nothing heavy is imported before the command runs.
"""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from checkpoint_conformance.target_options import address_options, describe
from checkpoint_load.limits import (
    CONTENDERS_DEFAULT,
    CONTENDERS_MAX,
    CONTENDERS_MIN,
    DURATION_MAX_SECONDS,
    LOSE_DEFAULT_PERCENT,
    LOSE_MAX_PERCENT,
    NAMES,
    PROCESSES_MAX,
    ROUNDS_DEFAULT,
    ROUNDS_MAX,
)

_UNDER_FAULTS: Final = ("mixed",)
if TYPE_CHECKING:
    from checkpoint_conformance.faults import Kind

SEED_MAX: Final = 2**32 - 1
_EXTRA_MISSING: Final = (
    "Locust is not installed. Install it with:\n"
    "  pip install 'workflow-checkpoint[load]'\n"
    "  (from a clone of the repository: pip install '.[load]')"
)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]…")
@address_options
@click.option(
    "--contenders",
    type=click.IntRange(CONTENDERS_MIN, CONTENDERS_MAX),
    default=CONTENDERS_DEFAULT,
    show_default=True,
    help="Requests that are released together.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, ROUNDS_MAX),
    help=f"Of each storm.  [default: {ROUNDS_DEFAULT}, or what --duration allows]",
)
@click.option(
    "--duration",
    "duration_seconds",
    type=click.FloatRange(1, DURATION_MAX_SECONDS),
    metavar="SECONDS",
    help="Of all storms together; each gets its share.",
)
@click.option(
    "--lose",
    "lose_percent",
    type=click.IntRange(0, LOSE_MAX_PERCENT),
    default=LOSE_DEFAULT_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="Of the answers that the mixed storm drops on purpose.",
)
@click.option(
    "--nemesis",
    metavar="FAULTS",
    help="Faults to make while the mixed storm goes on: names with commas, or all.",
)
@click.option(
    "--seed", type=click.IntRange(0, SEED_MAX), help="Repeat the choices of an earlier run."
)
@click.option(
    "--report",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Histories, figures and verdict go there.  [default: a new folder here]",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Processes that storm, each with so many contenders.",
)
@click.option(
    "--expect-workers",
    type=click.IntRange(1, PROCESSES_MAX),
    metavar="N",
    help="Wait for so many Locust workers, of this or other machines, and let them storm.",
)
@click.option("--master-port", type=click.IntRange(1, 65535), default=5557, show_default=True)
@click.option("--web", is_flag=True, help="Start and watch storms on Locust's web page.")
@click.option("--web-port", type=click.IntRange(1, 65535), default=8089, show_default=True)
@click.option(
    "--server-workers",
    type=click.IntRange(1, 64),
    help="Processes of the reference server, where that is what is stormed.  [default: 1]",
)
def storm(
    names: tuple[str, ...], server_workers: int | None, nemesis: str | None, **options: Any
) -> None:
    """Storm a target with many requests at once, and judge what it answered by the model.

    \b
    NAME is any of these, or all where none is given:
      claim      a new workflow is claimed by all: one may win
      recovery   the same for a claim that has lapsed
      retry      the same for a failed workflow that may be retried
      replay     one transition is sent by all: one may act
      conflict   all send another body under one observation key
      hand-over  abandon, transitions and claims, at the claim's deadline and before
      mixed      everything, on many workflows; some answers are never read

    Without --url or --target the reference server is started, on a Valkey of its own.

    With --nemesis servers and store are killed, frozen and cut off meanwhile, and the
    storm goes on until every fault was made, or for --duration if that is longer.

    \b
    Exit status: 0 one order explains every answer; 1 none does; 2 the target could
    not be reached, or the options are wrong; 3 too little to say; 4 the harness
    itself failed.
    """
    where = ("target_file", "url", "headers", "seconds_max")
    description = describe(**{name: options.pop(name) for name in where})
    if server_workers is not None and description is not None:
        raise click.UsageError("--server-workers is for the reference server, without --url.")
    if options["expect_workers"] and options["processes"] > 1:
        raise click.UsageError("Give --processes, or --expect-workers for those of other machines.")
    if nemesis is not None:
        options["nemesis"] = _faults(nemesis, names, options)
        names = _UNDER_FAULTS
    # Imported it would patch this process for its own purposes.
    if importlib.util.find_spec("locust") is None:
        raise click.UsageError(_EXTRA_MISSING)
    from checkpoint_load.storming import Options, storm_target

    chosen = Options(names=names or NAMES, **options)
    sys.exit(storm_target(description, chosen, server_workers=server_workers or 1))


def _faults(nemesis: str, names: tuple[str, ...], options: dict[str, Any]) -> "tuple[Kind, ...]":
    """The faults that are named; raises UsageError where an option does not go with them."""
    from checkpoint_conformance.faults import FaultNameError, kinds_named

    if names not in ((), _UNDER_FAULTS):
        raise click.UsageError("--nemesis is for the mixed storm alone.")
    for name in ("web", "expect_workers", "rounds"):
        if options[name]:
            shown = name.replace("_", "-")
            raise click.UsageError(f"--{shown} does not go with --nemesis.")
    if options["processes"] > 1:
        raise click.UsageError("--processes does not go with --nemesis.")
    try:
        return kinds_named(nemesis)
    except FaultNameError as error:
        raise click.BadParameter(str(error), param_hint="--nemesis") from None
