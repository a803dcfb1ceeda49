"""The options by which a deployment is described, in every command that needs one.

Loaded for ``--help`` too, so nothing heavy is imported before a command runs.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--public-url",
        envvar="WORKFLOW_CHECKPOINT_PUBLIC_URL",
        show_envvar=True,
        metavar="URL",
        help="How callers reach the server, for what is published; else where it listens.",
    ),
    click.option(
        "--publisher-domain",
        envvar="WORKFLOW_CHECKPOINT_PUBLISHER_DOMAIN",
        show_envvar=True,
        metavar="DOMAIN",
        default="",
        help="Who answers for the deployment (ARD manifest); else the public URL's host.",
    ),
    click.option(
        "--durability",
        envvar="WORKFLOW_CHECKPOINT_DURABILITY",
        show_envvar=True,
        metavar="SENTENCE",
        help="What survives a crash of the store, in one sentence; else what its settings give.",
    ),
)


def deployment_options(command: _Command) -> _Command:
    """Give a command ``public_url``, ``publisher_domain`` and ``durability``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
