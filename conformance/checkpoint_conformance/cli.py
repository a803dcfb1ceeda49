"""``workflow-checkpoint``: one command, whose subcommands their own packages bring.

Each subcommand is an entry point of the group ``workflow_checkpoint.commands``. The table below
says the same: asking the installed distributions for their entry points, or loading every
subcommand for its one line of help, takes longer than everything else that a start needs. A test
holds the table to the entry points. The modules behind them import nothing heavy before they run.
"""

from importlib import import_module
from typing import Final

import click

DISTRIBUTION: Final = "workflow-checkpoint"
GROUP: Final = "workflow_checkpoint.commands"
COMMANDS: Final = {
    "check": (
        "checkpoint_conformance.commands:check",
        "Check an implementation against the formal model, rule by rule.",
    ),
    "doctor": (
        "checkpoint_conformance.commands:doctor",
        "Look at a target before it is checked, and explain what is found.",
    ),
    "drain": (
        "checkpoint_reference_server.commands:drain",
        "Pause claims, wait until no record is left, and let the HMAC key be changed.",
    ),
    "explain": (
        "checkpoint_conformance.commands:explain",
        "Explain one rule: its text, how it is tested, what breaks it.",
    ),
    "model": (
        "checkpoint_conformance.model_commands:model",
        "Explore the formal model exhaustively, or draw its graph.",
    ),
    "mutants": (
        "checkpoint_conformance.mutants_commands:mutants",
        "List or run deliberately wrong servers, and see them caught.",
    ),
    "pause": (
        "checkpoint_reference_server.commands:pause",
        "Refuse every claim, in every server on the store.",
    ),
    "recheck": (
        "checkpoint_conformance.judging_commands:recheck",
        "Judge a history that a storm wrote, by the model of this version.",
    ),
    "registry": (
        "checkpoint_reference_server.registry_commands:registry",
        "Generate what is published about the tool, from one record.",
    ),
    "replay": (
        "checkpoint_conformance.commands:replay",
        "Send the vectors of a file to a target, such as those of a failure.",
    ),
    "report": (
        "checkpoint_conformance.report_commands:report",
        "Render the report that `check --report DIR` wrote.",
    ),
    "resume": (
        "checkpoint_reference_server.commands:resume",
        "Decide claims again, in every server on the store.",
    ),
    "rules": (
        "checkpoint_conformance.commands:rules",
        "List every rule of the contract, and what testing it takes.",
    ),
    "serve": (
        "checkpoint_reference_server.commands:serve",
        "Serve the contract over HTTP and MCP, on a real Valkey.",
    ),
    "store": (
        "checkpoint_reference_server.store_commands:store",
        "Run a Valkey in the foreground that keeps what it is told to.",
    ),
    "storm": (
        "checkpoint_load.commands:storm",
        "Storm a target with many requests at once, and judge the answers.",
    ),
}
"""Where each subcommand is, and what it does in one line."""


class _Commands(click.Group):
    """The subcommands, each loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every subcommand's name."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one subcommand."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name=DISTRIBUTION)
def main() -> None:
    """Tell whether an implementation of the Workflow Checkpoint contract is right, and why not.

    \b
    Begin with:
      workflow-checkpoint check                              the reference server, here
      workflow-checkpoint check --url http://127.0.0.1:8080  whatever runs there
    """
