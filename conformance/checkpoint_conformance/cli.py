"""``workflow-checkpoint``: one command, whose subcommands their own packages bring.

Each subcommand is an entry point of the group ``workflow_checkpoint.commands`` and is loaded
when it is called, or when ``--help`` wants its one line; the modules behind them import nothing
heavy before they run.
"""

from importlib import metadata
from typing import Final

import click

DISTRIBUTION: Final = "workflow-checkpoint"
GROUP: Final = "workflow_checkpoint.commands"


class _Commands(click.Group):
    """Finds subcommands among the entry points of this distribution alone.

    Asking every installed distribution for its entry points would take longer than the rest.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every subcommand's name."""
        del ctx
        return [point.name for point in self._points()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one subcommand."""
        del ctx
        for point in self._points():
            if point.name == cmd_name:
                command: click.Command = point.load()
                return command
        return None

    @staticmethod
    def _points() -> list[metadata.EntryPoint]:
        return list(metadata.distribution(DISTRIBUTION).entry_points.select(group=GROUP))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name=DISTRIBUTION)
def main() -> None:
    """Tell whether an implementation of the Workflow Checkpoint contract is right, and why not.

    \b
    Begin with:
      workflow-checkpoint check                              the reference server, here
      workflow-checkpoint check --url http://127.0.0.1:8080  whatever runs there
    """
