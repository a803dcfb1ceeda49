"""``workflow-checkpoint report``: render an earlier run again.

Loaded for ``--help`` too, so nothing heavy is imported before the command runs.
"""

from pathlib import Path

import click


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_name",
    # By hand: the renderers themselves are too much to import for a --help.
    type=click.Choice(
        ["terminal", "html", "junit", "markdown", "annotations", "sarif", "badge", "all"]
    ),
    default="terminal",
    show_default=True,
    help="What to render; all writes every file into DIR.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Where to; without it, or with -, to standard output.",
)
def report(folder: Path, format_name: str, output: Path | None) -> None:
    """Render the report that `check --report DIR` wrote.

    Everything comes from DIR/report.json, so nothing is checked again.
    """
    from checkpoint_conformance.renderings import FORMATS, write_all
    from checkpoint_conformance.report import FolderError, ReportError, read, write_files

    to_stdout = output is None or str(output) == "-"
    if format_name == "all" and (not folder.is_dir() or output is not None):
        raise click.UsageError("--format all writes into the report's folder DIR, and nowhere else")
    try:
        found = read(folder)
        if format_name == "all":
            for name in write_all(folder, found):
                click.echo(str(folder / name))
        elif format_name == "terminal" and to_stdout:
            from checkpoint_conformance.renderings.terminal import show
            from checkpoint_conformance.terminal import Output

            show(Output(), found)
        elif to_stdout:
            # Bytes, so that no platform makes other line ends or another encoding of it.
            click.echo(FORMATS[format_name].render(found).encode(), nl=False)
        else:
            assert output is not None
            write_files(output.parent, {output.name: FORMATS[format_name].render(found)})
    except (ReportError, FolderError) as error:
        raise click.UsageError(str(error)) from None
