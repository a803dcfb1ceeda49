"""The options that say what to check, shared by the commands that need a target.

Light: loaded with the commands for ``--help``.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from checkpoint_conformance.targets import Description

Command = TypeVar("Command", bound=Callable[..., Any])
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[\x20-\x7e\t]*")

_TARGET: Final = click.option(
    "--target",
    "target_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A target.yaml that says all of the following, or how to start the server.",
)
_URL: Final = click.option(
    "--url",
    metavar="BASE",
    help="Root of the server, such as http://127.0.0.1:8080.",
)
_HEADER: Final = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header to send with every request; may be given again.",
)
_TIMEOUT: Final = click.option(
    "--timeout",
    "seconds_max",
    type=click.FloatRange(0.1, 60),
    metavar="SECONDS",
    help="How long one answer may take before it counts as lost.  [default: 10]",
)
_OPTIONS: Final = (
    _TARGET,
    _URL,
    click.option("--controls", metavar="URL", help="Base of its test controls (section 14)."),
    click.option("--mcp", metavar="URL", help="Its MCP endpoint; claims the class mcp."),
    click.option("--store", metavar="URL", help="The Valkey behind it, to see what is stored."),
    click.option(
        "--log",
        "logs",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A file that it logs to, to look for raw identifiers; may be given again.",
    ),
    _HEADER,
    click.option(
        "--class",
        "classes",
        multiple=True,
        type=click.Choice(["core", "mcp", "descriptions", "controls"]),
        help="A conformance class that it claims besides core and what has a URL here.",
    ),
    click.option(
        "--expect-failure",
        "expected",
        multiple=True,
        metavar="'RULE: REASON'",
        help="A rule that is known to be broken; may be given again.",
    ),
    _TIMEOUT,
)


def address_options(command: Command) -> Command:
    """Add those of the options that say where the target is and how to speak to it."""
    for option in (_TIMEOUT, _HEADER, _URL, _TARGET):
        command = option(command)
    return command


def target_options(command: Command) -> Command:
    """Add the options; the command is called with what :func:`describe` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def describe(
    *,
    target_file: Path | None,
    url: str | None,
    headers: tuple[str, ...],
    seconds_max: float | None,
    controls: str | None = None,
    store: str | None = None,
    logs: tuple[Path, ...] = (),
    mcp: str | None = None,
    classes: tuple[str, ...] = (),
    expected: tuple[str, ...] = (),
) -> "Description | None":
    """The target that the options describe; None where they name none.

    Raises:
        click.UsageError: they contradict each other, or one is wrong.
    """
    if target_file is None and url is None:
        if controls or store or logs or mcp or headers or classes or expected:
            raise click.UsageError("These options describe a target: give --url or --target too.")
        return None
    from dataclasses import replace

    from checkpoint_conformance.client import Address, UrlError
    from checkpoint_conformance.rules import RuleClass
    from checkpoint_conformance.targets import (
        Description,
        TargetError,
        expected_failure,
        load_description,
    )

    try:
        if target_file is not None:
            description = load_description(target_file)
        else:
            assert url is not None
            description = Description(url=url)
        if url is not None:
            # Faults are of what is started, where anything is.
            faults = None if description.start is not None else description.faults
            description = replace(description, url=url, start=None, faults=faults)
        for given in filter(None, (url, controls, mcp)):
            Address.parse(given)
        description = replace(
            description,
            controls=controls or description.controls,
            store=store or description.store,
            logs=logs or description.logs,
            mcp=mcp or description.mcp,
            headers={**description.headers, **dict(map(_header, headers))},
            # Never instead of those that it claims anyhow: a gate would pass with less than before.
            also_claimed=frozenset({*map(RuleClass, classes), *([RuleClass.MCP] if mcp else [])}),
            timeout_seconds=seconds_max or description.timeout_seconds,
            expected_failures=(
                *description.expected_failures,
                *(expected_failure(*_expectation(text)) for text in expected),
            ),
        )
    except (TargetError, UrlError) as error:
        raise click.UsageError(str(error)) from None
    if url is not None and target_file is not None:
        _needs_no_start(description, target_file)
    return description


def _needs_no_start(description: "Description", file: Path) -> None:
    """Of what is not started nothing can have a port that is found for it.

    Raises:
        click.UsageError: something has.
    """
    found = description.placeholders
    ported = [
        member
        for member in ("controls", "mcp", "store")
        if any(f"${{{name}}}" in (getattr(description, member) or "") for name in found)
    ]
    if ported:
        options = ", ".join(f"--{member}" for member in ported)
        raise click.UsageError(
            f"With --url nothing is started, so the ports in {file} are not known: give "
            f"{options} as well, or leave --url out."
        )


def _header(text: str) -> tuple[str, str]:
    """By RFC 9110: a token, and visible characters of ASCII."""
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.fullmatch(name.strip()):
        raise click.BadParameter(f"{text!r} is not 'NAME: VALUE'", param_hint="--header")
    if not _VISIBLE.fullmatch(value.strip()):
        raise click.BadParameter(
            f"the value of {name.strip()} has characters that no header may have",
            param_hint="--header",
        )
    return name.strip().lower(), value.strip()


def _expectation(text: str) -> tuple[str, str]:
    rule, colon, reason = text.partition(":")
    if not colon or not reason.strip():
        raise click.BadParameter(f"{text!r} is not 'RULE: REASON'", param_hint="--expect-failure")
    return rule.strip(), reason.strip()
