"""``workflow-checkpoint registry``: what is published about the tool.

Loaded for ``--help`` too, so nothing heavy is imported before a command runs.
"""

from pathlib import Path

import click

from checkpoint_reference_server.deployment_options import deployment_options


@click.group()
def registry() -> None:
    """Generate what is published about the tool, from one record."""


@registry.command()
@click.argument(
    "format_name",
    metavar="FORMAT",
    # By hand: the record itself is too much to import for a --help.
    type=click.Choice(["manifest", "openapi", "llms", "ard", "mcp", "all"]),
)
@deployment_options
@click.option("--mcp/--no-mcp", default=True, show_default=True, help="Whether MCP is offered.")
@click.option("--bearer-tokens", is_flag=True, help="Say that callers need a bearer token.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="File to write to, or folder for `all`; without it, standard output.",
)
def emit(
    format_name: str,
    public_url: str | None,
    publisher_domain: str,
    durability: str | None,
    mcp: bool,
    bearer_tokens: bool,
    output: Path | None,
) -> None:
    """Write one description, or all of them.

    \b
    FORMAT is one of
      manifest  the machine manifest
      openapi   OpenAPI 3.1 of the HTTP binding
      llms      llms.txt, for language models
      ard       the Agentic Resource Discovery manifest, revision 0.91
      mcp       the MCP tool as `tools/list` shows it
      all       every one of them as files into a folder
    """
    from checkpoint_reference_server.registry import FORMATS, Deployment
    from checkpoint_reference_server.registry.deployment import (
        DEFAULT_PUBLIC_URL,
        DURABILITY_UNSAID,
    )

    try:
        deployment = Deployment(
            public_url=public_url or DEFAULT_PUBLIC_URL,
            publisher_domain=publisher_domain,
            offers_mcp=mcp,
            durability=durability or DURABILITY_UNSAID,
            asks_for_token=bearer_tokens,
        )
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    if format_name != "all":
        _write(output, FORMATS[format_name].text(deployment))
        return
    if output is None:
        raise click.UsageError("`all` are several files: give the folder with --output.")
    output.mkdir(parents=True, exist_ok=True)
    for form in FORMATS.values():
        _write(output / form.file_name, form.text(deployment))


def _write(file: Path | None, text: str) -> None:
    """As bytes, so that no platform makes other line ends or another encoding of them."""
    if file is None:
        click.echo(text.encode(), nl=False)
        return
    try:
        file.write_bytes(text.encode())
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from None
