"""What a store is set to, as far as records depend on it: eviction, persistence, replicas.

Asked once, when a server starts. A provider may forbid ``CONFIG``; what ``INFO`` does not say
either is then said to be unknown, and never guessed in a record's favour.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from checkpoint_reference_server import clients
from checkpoint_reference_server.store import CONNECT_SECONDS_MAX, StoreError, without_password

if TYPE_CHECKING:
    import redis

NO_EVICTION: Final = "noeviction"
Sync = Literal["always", "everysec", "no", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSettings:
    """One server that takes writes."""

    eviction_policy: str
    appends: bool
    """Whether it keeps an append-only file."""
    sync: Sync
    """When that is written through to the disk."""
    snapshots: bool
    """Whether it saves itself from time to time, as far as that is known."""
    replicas: int
    """That are connected."""

    @classmethod
    def of(cls, client: "redis.Redis") -> "NodeSettings":
        """Ask one server; raises what the client raises."""
        info = {**client.info("memory"), **client.info("persistence")}
        configured = _configured(client)
        appends = bool(int(info.get("aof_enabled", 0)))
        sync = configured.get("appendfsync", "unknown")
        return cls(
            eviction_policy=str(info.get("maxmemory_policy", "unknown")),
            appends=appends,
            sync=sync if sync in ("always", "everysec", "no") else "unknown",
            snapshots=bool(configured.get("save", "")),
            replicas=int(client.info("replication").get("connected_slaves", 0)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSettings:
    """A store: one server, or every primary of a cluster."""

    is_cluster: bool
    nodes: tuple[NodeSettings, ...]

    @property
    def evicts(self) -> str | None:
        """The policy by which some node may drop a live record (WC-PRIV-4); None where none may."""
        policies = [node.eviction_policy for node in self.nodes]
        return next((policy for policy in policies if policy != NO_EVICTION), None)

    def durability(self, wait_replicas: int) -> str:
        """What survives a crash, in one line for the manifest (WC-PRIV-5): of the weakest node."""
        sentences = [_after_a_crash(self.nodes)]
        if wait_replicas or any(node.replicas for node in self.nodes):
            sentences.append(_after_a_failover(wait_replicas))
        return " ".join(sentences)


def read_settings(url: str) -> StoreSettings:
    """Ask the store at ``url``.

    Raises:
        StoreError: it does not answer.
    """
    try:
        with clients.one_client(url, CONNECT_SECONDS_MAX) as client:
            is_cluster = clients.is_cluster(client)
        with clients.primaries(url, CONNECT_SECONDS_MAX) as primaries:
            nodes = tuple(NodeSettings.of(primary) for primary in primaries)
    except (*clients.STORE_ERRORS, OSError) as error:
        raise StoreError(
            f"the store at {without_password(url)} does not tell its settings "
            f"({type(error).__name__}). Is it up, and may its user run INFO?"
        ) from None
    return StoreSettings(is_cluster=is_cluster, nodes=nodes)


def refuse_if_it_evicts(settings: StoreSettings) -> None:
    """WC-PRIV-4: a live record must never be evicted.

    Raises:
        StoreError: the store is set to evict.
    """
    if settings.evicts is not None:
        everywhere = " on every node" if settings.is_cluster else ""
        raise StoreError(
            f"the store's maxmemory-policy is {settings.evicts}: it may drop a live record, and "
            "its workflow would then start again at generation 1 (WC-PRIV-4).\n"
            f"Set it{everywhere} with: valkey-cli CONFIG SET maxmemory-policy noeviction\n"
            "and in its configuration file, or it is back after a restart."
        )


def refuse_if_too_few_replicas(settings: StoreSettings, wait_replicas: int) -> None:
    """Every step would be refused otherwise.

    Raises:
        StoreError: a node has fewer replicas connected than are to be waited for.
    """
    fewest = min(node.replicas for node in settings.nodes)
    if fewest < wait_replicas:
        raise StoreError(
            f"--wait-replicas is {wait_replicas}, and the store has {fewest} connected: every step "
            "would be DEPENDENCY_UNAVAILABLE.\n"
            "Connect the replicas (INFO replication lists them), or wait for fewer."
        )


def _configured(client: "redis.Redis") -> dict[str, Any]:
    import redis

    try:
        told: dict[str, Any] = client.config_get("appendfsync", "save")  # type: ignore[assignment]
    except redis.ResponseError:
        return {}  # forbidden or renamed, as where a provider runs the store
    return told


def _after_a_crash(nodes: tuple[NodeSettings, ...]) -> str:
    if not all(node.appends for node in nodes):
        if all(node.snapshots for node in nodes):
            return (
                "After a crash of the store only what its last snapshot has is left: every change "
                "since is lost, and so is every record made since."
            )
        return "Nothing survives a crash of the store: every record is gone after one."
    syncs = {node.sync for node in nodes}
    if syncs == {"always"}:
        return (
            "Every acknowledged change survives a crash of the store (it is synced to disk first)."
        )
    if syncs <= {"always", "everysec"}:
        # Not of its machine alone: while the disk is busy with the sync of the second before, the
        # store also puts off writing to the file, and goes on answering.
        return (
            "A crash of the store may lose the changes of its last two seconds "
            "(they are synced to disk every second)."
        )
    if syncs <= {"always", "everysec", "no"}:
        return (
            "A crash of the store may lose the changes of its last two seconds, and one of its "
            "machine those of half a minute (when they are synced to disk is left to it)."
        )
    return (
        "A crash of the store may lose changes: it keeps an append-only file, and does not tell "
        "when it is synced to disk."
    )


def _after_a_failover(wait_replicas: int) -> str:
    if wait_replicas:
        count = "one replica" if wait_replicas == 1 else f"{wait_replicas} replicas"
        return f"An answer is given once {count} received what it tells of, against a fail-over."
    return "A fail-over to a replica may lose changes that had not reached it."
