"""Real stores of more than one server: a primary with replicas, Sentinels, a cluster.

Every process is the embedded binary on loopback, ends with this one, and is waited for by what it
says of itself. Ports are free ones; a cluster's bus is at the port plus ten thousand.
"""

import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from real_server import GuardedStore, valkey_binary, wait_until

HOST = "127.0.0.1"
SLOTS = 16384
BUS_OFFSET = 10_000


def free_port(*, bus: bool = False) -> int:
    """A port that was free a moment ago, and where it is asked for, its bus's too."""
    while True:
        with socket.create_server((HOST, 0)) as listener:
            port: int = listener.getsockname()[1]
            if not bus:
                return port
            if port + BUS_OFFSET < 2**16:
                try:
                    socket.create_server((HOST, port + BUS_OFFSET)).close()
                except OSError:
                    continue
                return port


class Node(GuardedStore):
    """One server of a store, at a fixed port."""

    def __init__(
        self, home: Path, *settings: str, port: int | None = None, binary: Path | None = None
    ) -> None:
        self.port = port or free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        self.admin = redis.Redis(HOST, self.port, decode_responses=True, socket_timeout=10)
        self._home = home
        self._settings = settings
        self._binary = binary or valkey_binary()
        self.start()

    def start(self) -> None:
        """Start it, in the folder of its last run."""
        folder = self._home / str(self.port)
        folder.mkdir(exist_ok=True)
        guarded = Path(tempfile.mkdtemp(prefix="guard-", dir=self._home))
        settings = self._settings
        if not settings or settings[0] != "--sentinel":
            settings = ("--save", "", "--dir", str(folder), *settings)
            settings = (*settings, "--repl-diskless-sync-delay", "0")
        command = [str(self._binary), *_first(settings), "--port", str(self.port)]
        self._launch(guarded, [*command, "--bind", HOST, *_rest(settings)])
        wait_until(self._answers, f"the store at {self.port} answers")
        self.pid = int(self.admin.info("server")["process_id"])

    def _answers(self) -> bool:
        try:
            return bool(self.admin.ping())
        except redis.RedisError:
            return False

    def call(self, *command: Any) -> Any:
        """What the server answers to a command that the client has no method for."""
        return self.admin.execute_command(*command)  # type: ignore[no-untyped-call]

    def raw(self, *command: Any) -> Any:
        """The same where the client would take the answer apart."""
        return self.call("EVAL", f"return redis.call({', '.join(map(repr, command))})", 0)

    def info(self, section: str, name: str) -> Any:
        """One of the things that it says of itself; None where it does not."""
        return self.admin.info(section).get(name)


def _first(settings: Sequence[str]) -> Sequence[str]:
    """A configuration file stands before everything else."""
    return settings[1:2] if settings and settings[0] == "--sentinel" else ()


def _rest(settings: Sequence[str]) -> Sequence[str]:
    return ["--sentinel"] if settings and settings[0] == "--sentinel" else settings


@contextmanager
def nodes() -> Iterator["Nodes"]:
    """Whatever is started of it is ended with this context."""
    with tempfile.TemporaryDirectory(prefix="wc-test-", ignore_cleanup_errors=True) as home:
        started = Nodes(Path(home))
        try:
            yield started
        finally:
            started.close()


class Nodes:
    """Servers that are started one after the other and ended together."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._all = ExitStack()

    def close(self) -> None:
        """End them all, the youngest first."""
        self._all.close()

    def start(self, *settings: str, port: int | None = None, binary: Path | None = None) -> Node:
        """Start one: the embedded Valkey, or another binary."""
        node = Node(self._home, *settings, port=port, binary=binary)
        self._all.callback(node.close)
        return node

    def replica_of(self, primary: Node, *settings: str) -> Node:
        """Start one that has everything its primary has."""
        before = int(primary.info("replication", "connected_slaves"))
        node = self.start("--replicaof", f"{HOST} {primary.port}", *settings)
        wait_until(
            lambda: (
                node.admin.info("replication")["master_link_status"] == "up"
                and int(primary.admin.info("replication")["connected_slaves"]) > before
            ),
            "the replica is in step",
        )
        return node

    def sentinel_of(self, primary: Node, service: str, *, quorum: int) -> Node:
        """Start a Sentinel that gives a silent primary up after a third of a second."""
        port = free_port()
        file = self._home / f"sentinel-{port}.conf"
        file.write_text(
            f"sentinel monitor {service} {HOST} {primary.port} {quorum}\n"
            f"sentinel down-after-milliseconds {service} 300\n"
            f"sentinel failover-timeout {service} 2000\n"
        )
        return self.start("--sentinel", str(file), port=port)

    def cluster(self, primaries: int = 3, replicas: int = 0) -> list[Node]:
        """Start a cluster: its primaries, then their replicas, one each at most."""
        settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "500"]
        settings += ["--cluster-replica-validity-factor", "0"]
        members = [
            self.start(*settings, port=free_port(bus=True)) for _ in range(primaries + replicas)
        ]
        for number, node in enumerate(members[:primaries]):
            first, last = (SLOTS * edge // primaries for edge in (number, number + 1))
            node.call("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in members[1:]:
            node.call("CLUSTER", "MEET", HOST, members[0].port)
        wait_until(
            lambda: all(_knows(node, len(members)) for node in members), "the nodes have met"
        )
        for primary, node in zip(members, members[primaries:], strict=False):
            node.call("CLUSTER", "REPLICATE", identity(primary))
        wait_until(
            lambda: all(
                node.info("replication", "master_link_status") == "up"
                for node in members[primaries:]
            ),
            "the replicas are in step",
        )
        wait_until(lambda: all(map(_is_ok, members)), "the cluster is whole")
        return members


def cut_off(primary: Node, replica: Node) -> None:
    """From here on the replica gets nothing, not even into its socket's buffer."""
    replica.pause_process()
    primary.admin.client_kill_filter(_type="replica")


def identity(node: Node) -> str:
    """A cluster node's own name."""
    return str(node.call("CLUSTER", "MYID"))


def _knows(node: Node, count: int) -> bool:
    lines = _cluster_lines(node)
    return len(lines) == count and not any("handshake" in line for line in lines)


def _cluster_lines(node: Node) -> list[str]:
    return str(node.raw("CLUSTER", "NODES")).splitlines()


def _is_ok(node: Node) -> bool:
    info = dict(line.split(":") for line in str(node.raw("CLUSTER", "INFO")).split())
    return info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == SLOTS


def owner(node: Node, slot: int) -> int | None:
    """The port of the node that has a slot, as far as this one knows."""
    for first, last, primary, *_ in node.call("CLUSTER", "SLOTS"):
        if int(first) <= slot <= int(last):
            return int(primary[1])
    return None


def move_slot(slot: int, source: Node, target: Node, members: Sequence[Node]) -> None:
    """Move a slot with all that is in it, as an operator's tool does, and let everybody know."""
    source_id, target_id = identity(source), identity(target)
    target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.call("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
    others = [node for node in members if node not in (source, target)]
    for node in (target, source, *others):
        node.call("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    # Faster than the gossip, two moves of one slot can leave a node with the wrong owner for good:
    # what tells new from old is the epoch, and both owners may have taken the same one.
    wait_until(lambda: _agree(slot, members), "all know who has it, and since when")


def _agree(slot: int, members: Sequence[Node]) -> bool:
    owners = {owner(node, slot) for node in members}
    epochs = {tuple(sorted(map(_epoch, _cluster_lines(node)))) for node in members}
    return len(owners) == len(epochs) == 1


def _epoch(line: str) -> tuple[str, str]:
    words = line.split()
    return words[0], words[6]
