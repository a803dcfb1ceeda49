"""``workflow-checkpoint serve``, ``pause`` and ``resume``.

Loaded for ``--help`` too, so nothing heavy is imported before a command runs.
"""

import os
from pathlib import Path
from typing import Final

import click

from checkpoint_reference_server.deployment_options import deployment_options

KEY_VARIABLE: Final = "WORKFLOW_CHECKPOINT_HMAC_KEY"
UNUSABLE: Final = 2
"""Exit status where the command cannot do what it was told: usage, port, store, key."""
_EXTRA_MISSING: Final = (
    "the server is not installed ({name} is missing). Install it with:\n"
    "  pip install 'workflow-checkpoint[server,embedded]'\n"
    "  (from a clone of the repository: pip install '.[server,embedded]')"
)


class _UnusableError(click.ClickException):
    exit_code = UNUSABLE


valkey_url_option = click.option(
    "--valkey-url",
    envvar=["WORKFLOW_CHECKPOINT_VALKEY_URL", "VALKEY_URL"],
    show_envvar=True,
    metavar="URL",
    help="The store, such as redis://127.0.0.1:6379/0, unix:///run/valkey.sock or "
    "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0; a cluster by any of its nodes.",
)


@click.command()
@click.option(
    "--host",
    envvar="WORKFLOW_CHECKPOINT_HOST",
    show_envvar=True,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at.",
)
@click.option(
    "--port",
    envvar="WORKFLOW_CHECKPOINT_PORT",
    show_envvar=True,
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen at; 0 for any free one.",
)
@valkey_url_option
@click.option(
    "--wait-replicas",
    envvar="WORKFLOW_CHECKPOINT_WAIT_REPLICAS",
    show_envvar=True,
    default=0,
    show_default=True,
    type=click.IntRange(0, 16),
    metavar="N",
    help="Acknowledge once N replicas of the store have what an answer tells of.",
)
@click.option(
    "--workers",
    envvar="WORKFLOW_CHECKPOINT_WORKERS",
    show_envvar=True,
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Server processes.",
)
@click.option(
    "--mcp/--no-mcp",
    envvar="WORKFLOW_CHECKPOINT_MCP",
    show_envvar=True,
    default=None,
    help="Offer MCP at /mcp; by default where the extra [mcp] is installed.",
)
@click.option(
    "--mcp-host",
    "mcp_hosts",
    envvar="WORKFLOW_CHECKPOINT_MCP_HOSTS",
    show_envvar=True,
    multiple=True,
    metavar="NAME[:PORT]",
    help="Host name that MCP clients reach the server by; any address and localhost are allowed.",
)
@click.option(
    "--mcp-origin",
    "mcp_origins",
    envvar="WORKFLOW_CHECKPOINT_MCP_ORIGINS",
    show_envvar=True,
    multiple=True,
    metavar="ORIGIN",
    help="Origin whose pages may call MCP, such as https://example.com; localhost's may.",
)
@click.option(
    "--hmac-key-file",
    envvar="WORKFLOW_CHECKPOINT_HMAC_KEY_FILE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the HMAC key, at least 32 bytes; one final newline is not part of it.",
)
@click.option("--dev-key", is_flag=True, help="Make up a key, for development alone.")
@click.option(
    "--test-controls",
    envvar="WORKFLOW_CHECKPOINT_TEST_CONTROLS",
    show_envvar=True,
    is_flag=True,
    help="Offer the controls of section 14 on a loopback listener of their own.",
)
@click.option(
    "--log-level",
    envvar="WORKFLOW_CHECKPOINT_LOG_LEVEL",
    show_envvar=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log, as JSON lines on standard error; debug has a line for each request.",
)
@deployment_options
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the addresses to, as JSON, once requests are answered.",
)
@click.option(
    "--exit-with-input", is_flag=True, help="Stop when standard input ends, as its writer dies."
)
def serve(
    host: str,
    port: int,
    valkey_url: str | None,
    wait_replicas: int,
    workers: int,
    mcp: bool | None,
    mcp_hosts: tuple[str, ...],
    mcp_origins: tuple[str, ...],
    hmac_key_file: Path | None,
    dev_key: bool,
    test_controls: bool,
    log_level: str,
    public_url: str | None,
    publisher_domain: str,
    durability: str | None,
    ready_file: Path | None,
    exit_with_input: bool,
) -> None:
    """Serve the Workflow Checkpoint contract over HTTP and MCP, on a real Valkey.

    Without --valkey-url a private Valkey is started that forgets everything at the end.

    The HMAC key comes from the environment variable WORKFLOW_CHECKPOINT_HMAC_KEY or from
    --hmac-key-file, never from an argument, which other users of the machine could read.
    """
    key = _hmac_key(hmac_key_file, dev_key=dev_key)
    if test_controls and workers > 1:
        raise click.UsageError("--test-controls works with one worker only: they set its clock.")
    try:
        from checkpoint_reference_server import serving
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        raise _UnusableError(_EXTRA_MISSING.format(name=name)) from None
    try:
        serving.serve(
            serving.Options(
                host=host,
                port=port,
                valkey_url=valkey_url,
                wait_replicas=wait_replicas,
                workers=workers,
                mcp=mcp,
                mcp_hosts=mcp_hosts,
                mcp_origins=mcp_origins,
                test_controls=test_controls,
                hmac_key=key,
                log_level=log_level,
                ready_file=ready_file,
                exit_with_input=exit_with_input,
                public_url=public_url,
                publisher_domain=publisher_domain,
                durability=durability,
            )
        )
    except serving.ServeError as error:
        raise _UnusableError(str(error)) from None
    except KeyboardInterrupt:
        # The HTTP layer drains on the signal, then raises it again for whoever started it.
        raise SystemExit(130) from None


def _hmac_key(key_file: Path | None, *, dev_key: bool) -> bytes:
    """The key, from exactly one place (WC-ID-5)."""
    from_variable = os.environ.get(KEY_VARIABLE)
    if [from_variable is not None, key_file is not None, dev_key].count(True) > 1:
        raise click.UsageError(
            f"Give the HMAC key once: {KEY_VARIABLE}, --hmac-key-file or --dev-key."
        )
    if dev_key:
        import secrets

        return secrets.token_bytes(32)
    if key_file is not None:
        key = key_file.read_bytes().removesuffix(b"\n")
    elif from_variable is not None:
        key = os.fsencode(from_variable)
    else:
        raise click.UsageError(
            f"No HMAC key. Set {KEY_VARIABLE} or give --hmac-key-file; "
            "--dev-key makes one up for development."
        )
    from checkpoint_model.vocabulary import HMAC_KEY_BYTES_MIN

    if len(key) < HMAC_KEY_BYTES_MIN:
        raise click.UsageError(
            f"The HMAC key has {len(key)} bytes; it needs at least {HMAC_KEY_BYTES_MIN}. "
            "One is made by: openssl rand -hex 32"
        )
    return key


@click.command()
@valkey_url_option
def pause(valkey_url: str | None) -> None:
    """Refuse every claim, in every server on the store, until `resume`.

    Transitions, abandons and status are still decided, so that work in flight is recorded.
    Returns when every process has had time to see it.
    """
    _set_paused(valkey_url, paused=True)
    click.echo("Paused: claims are refused. Work in flight is still recorded.")


@click.command()
@valkey_url_option
def resume(valkey_url: str | None) -> None:
    """Decide claims again, in every server on the store."""
    _set_paused(valkey_url, paused=False)
    click.echo("Resumed: claims are decided again.")


def _set_paused(valkey_url: str | None, *, paused: bool) -> None:
    if valkey_url is None:
        raise click.UsageError("Which store? Give --valkey-url or set VALKEY_URL.")
    import redis

    from checkpoint_reference_server import clients, store, switch

    try:
        store.wait_until_ready(valkey_url, store.CONNECT_SECONDS_MAX)
        with clients.client_of(valkey_url, store.CONNECT_SECONDS_MAX) as client:
            switch.set_paused(client, paused=paused)
    except (store.StoreError, redis.RedisError) as error:
        raise _UnusableError(str(error)) from None
