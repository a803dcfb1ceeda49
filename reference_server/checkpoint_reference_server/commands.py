"""``workflow-checkpoint serve``, ``pause`` and ``resume``.

Loaded for ``--help`` too, so nothing heavy is imported before a command runs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from checkpoint_reference_server.deployment_options import deployment_options

if TYPE_CHECKING:
    import redis

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
    "--allowed-host",
    "allowed_hosts",
    envvar="WORKFLOW_CHECKPOINT_ALLOWED_HOSTS",
    show_envvar=True,
    multiple=True,
    metavar="NAME[:PORT]",
    help="Host name that clients reach the server by; any address and localhost are allowed.",
)
@click.option(
    "--allowed-origin",
    "allowed_origins",
    envvar="WORKFLOW_CHECKPOINT_ALLOWED_ORIGINS",
    show_envvar=True,
    multiple=True,
    metavar="ORIGIN",
    help="Origin whose pages may call the tool, such as https://example.com; localhost's may.",
)
@click.option(
    "--tokens-file",
    envvar="WORKFLOW_CHECKPOINT_TOKENS_FILE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with an account and a bearer token in each line; read again when it changes.",
)
@click.option(
    "--rate-limit",
    envvar="WORKFLOW_CHECKPOINT_RATE_LIMIT",
    show_envvar=True,
    metavar="RATE",
    help="Requests of each account, or address without tokens, such as 100/minute.",
)
@click.option(
    "--max-connections",
    envvar="WORKFLOW_CHECKPOINT_MAX_CONNECTIONS",
    show_envvar=True,
    default=4096,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="Open connections of each process; one more is closed at once.",
)
@click.option(
    "--tls-certificate",
    envvar="WORKFLOW_CHECKPOINT_TLS_CERTIFICATE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file with the certificate, and those that lead to its authority; serves https.",
)
@click.option(
    "--tls-key",
    envvar="WORKFLOW_CHECKPOINT_TLS_KEY",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file with the certificate's private key, if that is in a file of its own.",
)
@click.option(
    "--tls-key-password-file",
    envvar="WORKFLOW_CHECKPOINT_TLS_KEY_PASSWORD_FILE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the private key's password; one final newline is not part of it.",
)
@click.option(
    "--metrics-port",
    envvar="WORKFLOW_CHECKPOINT_METRICS_PORT",
    show_envvar=True,
    type=click.IntRange(0, 65535),
    help="Port to show metrics at, for Prometheus; 0 for any free one. Needs the extra [metrics].",
)
@click.option(
    "--metrics-host",
    envvar="WORKFLOW_CHECKPOINT_METRICS_HOST",
    show_envvar=True,
    default="127.0.0.1",
    show_default=True,
    help="Address to show metrics at.",
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
    "--forget-records",
    is_flag=True,
    help="Start although records made under another key may live, which are then lost.",
)
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
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    tokens_file: Path | None,
    rate_limit: str | None,
    max_connections: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
    tls_key_password_file: Path | None,
    metrics_port: int | None,
    metrics_host: str,
    hmac_key_file: Path | None,
    dev_key: bool,
    forget_records: bool,
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
        from checkpoint_reference_server import serving, tls
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
                allowed_hosts=allowed_hosts,
                allowed_origins=allowed_origins,
                tokens_file=tokens_file,
                rate_limit=rate_limit,
                max_connections=max_connections,
                tls=tls.Tls.of(tls_certificate, tls_key, tls_key_password_file),
                metrics_port=metrics_port,
                metrics_host=metrics_host,
                test_controls=test_controls,
                hmac_key=key,
                marks_key=not dev_key,
                forget_records=forget_records,
                log_level=log_level,
                ready_file=ready_file,
                exit_with_input=exit_with_input,
                public_url=public_url,
                publisher_domain=publisher_domain,
                durability=durability,
            )
        )
    except (serving.ServeError, tls.TlsError) as error:
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


@click.command()
@valkey_url_option
def drain(valkey_url: str | None) -> None:
    """Pause claims, wait until no record is left, and let the HMAC key be changed.

    Takes an hour at most, for no record lives longer. Work in flight is still recorded under the
    old key meanwhile. Afterwards stop every server on the store, start them with the new key, and
    `resume`. Stopped early (Ctrl-C), it leaves the tool paused.
    """
    from datetime import timedelta

    from checkpoint_reference_server import key_change, switch

    def tell(records: int, longest_seconds: float) -> None:
        left = timedelta(seconds=round(longest_seconds))
        click.echo(f"{records} records left; the last expires in {left}.")

    with _store(valkey_url) as client:
        switch.set_paused(client, paused=True)
        click.echo("Paused: claims are refused. Work in flight is still recorded.")
        try:
            key_change.drain(client, tell)
        except KeyboardInterrupt:
            click.echo("Stopped waiting. The tool stays paused until: workflow-checkpoint resume")
            raise SystemExit(130) from None
    click.echo(
        "No record is left: the HMAC key may be changed. Stop every server on this store, start "
        "it with the new key, then: workflow-checkpoint resume"
    )


def _set_paused(valkey_url: str | None, *, paused: bool) -> None:
    from checkpoint_reference_server import switch

    with _store(valkey_url) as client:
        switch.set_paused(client, paused=paused)


@contextmanager
def _store(valkey_url: str | None) -> Iterator["redis.Redis | redis.RedisCluster"]:
    """A client of a store that answers, and the end of the command where it does not."""
    if valkey_url is None:
        raise click.UsageError("Which store? Give --valkey-url or set VALKEY_URL.")
    from checkpoint_reference_server import clients, store

    try:
        store.wait_until_ready(valkey_url, store.CONNECT_SECONDS_MAX)
        with clients.client_of(valkey_url, store.CONNECT_SECONDS_MAX) as client:
            yield client
    except (store.StoreError, *clients.STORE_ERRORS) as error:
        raise _UnusableError(str(error)) from None
