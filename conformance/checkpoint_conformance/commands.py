"""``workflow-checkpoint check``.

Loaded for ``--help`` too, so nothing heavy is imported before the command runs.
"""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from checkpoint_conformance.run import Target

SEED_MAX = 2**32 - 1


@click.command()
@click.option(
    "--url",
    metavar="BASE",
    help="Root of the server to check, such as http://127.0.0.1:8080; without it the reference "
    "server is started and checked.",
)
@click.option("--controls", metavar="URL", help="Base of its test controls (section 14).")
@click.option("--store", metavar="URL", help="The Valkey behind it, to see what is stored.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header to send with every request; may be given again.",
)
@click.option(
    "--profile",
    type=click.Choice(["quick", "default", "thorough"]),
    default="default",
    show_default=True,
    help="How much to do: about 10 s, 60 s, 10 min.",
)
@click.option(
    "--seed", type=click.IntRange(0, SEED_MAX), help="Repeat the draws of an earlier run."
)
@click.option(
    "--report",
    "report_folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.json there, and a curl script for each failure.",
)
@click.option(
    "--timeout",
    "seconds_max",
    type=click.FloatRange(0.1, 60),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="How long one answer may take before it counts as lost.",
)
@click.option(
    "--require-all", is_flag=True, help="Count rules that need more access as a gap (exit 3)."
)
def check(
    url: str | None,
    controls: str | None,
    store: str | None,
    headers: tuple[str, ...],
    profile: str,
    seed: int | None,
    report_folder: Path | None,
    seconds_max: float,
    require_all: bool,
) -> None:
    """Check an implementation against the formal model, rule by rule.

    \b
    Exit status: 0 it conforms; 1 it does not; 2 it could not be reached, or the
    options are wrong; 3 too little could be exercised to say; 4 the harness
    itself failed.
    """
    if url is None and (controls or store or headers):
        raise click.UsageError(
            "--controls, --store and --header describe a target: give --url too."
        )
    from checkpoint_conformance.checking import check_target

    target = None if url is None else _target(url, controls, store, headers, seconds_max)
    sys.exit(
        check_target(
            target,
            profile=profile,
            seed=seed,
            report_folder=report_folder,
            require_all=require_all,
        )
    )


def _target(
    url: str,
    controls: str | None,
    store: str | None,
    headers: tuple[str, ...],
    seconds_max: float,
) -> "Target":
    from checkpoint_conformance.client import Address, UrlError
    from checkpoint_conformance.run import Target

    named = {}
    for header in headers:
        name, colon, value = header.partition(":")
        # By RFC 9110: a token, and visible characters of ASCII.
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()):
            raise click.BadParameter(f"{header!r} is not 'NAME: VALUE'", param_hint="--header")
        if not re.fullmatch(r"[\x20-\x7e\t]*", value.strip()):
            raise click.BadParameter(
                f"the value of {name.strip()} has characters that no header may have",
                param_hint="--header",
            )
        named[name.strip().lower()] = value.strip()
    try:
        return Target(
            address=Address.parse(url),
            controls=None if controls is None else Address.parse(controls),
            store_url=store,
            headers=named,
            seconds_max=seconds_max,
        )
    except UrlError as error:
        raise click.UsageError(str(error)) from None
