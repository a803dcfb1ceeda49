"""Clients of the store by its URL, whatever stands behind it: one server, Sentinel, a cluster.

===========================================================  =======================================
URL                                                          store
===========================================================  =======================================
``redis://HOST:PORT/DB``, ``rediss://…`` (TLS), ``unix://…``  one server, or one name that leads to
                                                             the primary; a cluster where the server
                                                             there says that it is a part of one
``redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB``          the primary of a service, as Sentinel
                                                             names it; ``rediss+sentinel`` for TLS
===========================================================  =======================================

A password is written where a URL has one; Sentinel's own as ``?sentinel_password=…``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.exceptions import RedisClusterException, RedisError

if TYPE_CHECKING:
    import redis
    import redis.asyncio

SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
SENTINEL_PORT: Final = 26379
STORE_ERRORS: Final = (RedisError, RedisClusterException)
"""What a client raises where the store is at fault: a cluster's is no kind of the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentinelAddress:
    """Where a service's primary is asked for. Its text has no password."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    options: dict[str, Any]
    sentinel_options: dict[str, Any]

    def __repr__(self) -> str:
        """Without the passwords."""
        return f"SentinelAddress({self.service!r})"

    @classmethod
    def parse(cls, url: str) -> "SentinelAddress | None":
        """The address in a URL; None where it is of another kind.

        Raises:
            ValueError: it has no service, or a port that is none.
        """
        scheme, _, _ = url.partition("://")
        if scheme not in SENTINEL_SCHEMES:
            return None
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        service, _, database = parts.path.strip("/").partition("/")
        query = dict(parse_qsl(parts.query))
        if not hosts or not service:
            raise ValueError("a Sentinel's URL is redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB")
        options: dict[str, Any] = {"db": int(database or 0), "ssl": scheme.startswith("rediss")}
        name, _, password = user.partition(":")
        if name:
            options["username"] = unquote(name)
        if password:
            options["password"] = unquote(password)
        prefix = "sentinel_"
        own = {key.removeprefix(prefix): query[key] for key in query if key.startswith(prefix)}
        sentinels = tuple(_host_and_port(host) for host in hosts.split(","))
        return cls(sentinels=sentinels, service=service, options=options, sentinel_options=own)


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "", parts.port or SENTINEL_PORT


def pool(url: str, **options: Any) -> "redis.asyncio.ConnectionPool":
    """A maker of asynchronous connections to a single server or to the primary of a service.

    Raises:
        ValueError: it is no store's URL.
    """
    import redis.asyncio
    from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

    sentinel = SentinelAddress.parse(url)
    if sentinel is None:
        return redis.asyncio.ConnectionPool.from_url(url, **options)
    manager = Sentinel(  # type: ignore[no-untyped-call]
        list(sentinel.sentinels),
        sentinel_kwargs={
            "socket_timeout": options.get("socket_connect_timeout"),
            "socket_connect_timeout": options.get("socket_connect_timeout"),
            **sentinel.sentinel_options,
        },
    )
    options |= sentinel.options
    return SentinelConnectionPool(sentinel.service, manager, **options)  # type: ignore[no-untyped-call]


@contextmanager
def client_of(url: str, seconds_max: float) -> Iterator["redis.Redis | redis.RedisCluster"]:
    """A blocking client of the whole store, one server or a cluster.

    Raises:
        ValueError: it is no store's URL.
        redis.exceptions.RedisError, OSError: nothing answers, or not as a store does.
    """
    with one_client(url, seconds_max) as one:
        if not is_cluster(one):
            yield one
            return
    with cluster_client(url, seconds_max) as cluster:
        yield cluster


@contextmanager
def primaries(url: str, seconds_max: float) -> Iterator["list[redis.Redis]"]:
    """A blocking client of each server that takes writes: several in a cluster, else one.

    Raises what :func:`client_of` raises.
    """
    import redis

    with client_of(url, seconds_max) as client:
        if isinstance(client, redis.Redis):
            yield [client]
        else:
            nodes = client.get_primaries()  # type: ignore[no-untyped-call]
            yield [client.get_redis_connection(node) for node in nodes]


def is_cluster(client: "redis.Redis") -> bool:
    """Whether a server is part of a cluster."""
    return bool(int(client.info("cluster").get("cluster_enabled", 0)))


@contextmanager
def one_client(url: str, seconds_max: float) -> Iterator["redis.Redis"]:
    """A blocking client of the server that the URL leads to.

    Raises:
        ValueError: it is no store's URL.
    """
    import redis
    from redis.sentinel import Sentinel

    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": seconds_max,
        "socket_connect_timeout": seconds_max,
    }
    sentinel = SentinelAddress.parse(url)
    if sentinel is None:
        with redis.Redis.from_url(url, **options) as client:
            yield client
        return
    manager = Sentinel(  # type: ignore[no-untyped-call]
        list(sentinel.sentinels),
        sentinel_kwargs={"socket_timeout": seconds_max, **sentinel.sentinel_options},
    )
    options |= sentinel.options
    with manager.master_for(sentinel.service, **options) as client:  # type: ignore[no-untyped-call]
        yield client


@contextmanager
def cluster_client(url: str, seconds_max: float) -> Iterator["redis.RedisCluster"]:
    """A blocking client of a whole cluster.

    Raises:
        redis.exceptions.RedisClusterException: no node of it answers.
    """
    import redis

    cluster = redis.RedisCluster.from_url(
        url, decode_responses=True, socket_timeout=seconds_max, require_full_coverage=False
    )
    try:
        yield cluster
    finally:
        cluster.close()
