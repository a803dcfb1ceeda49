"""What is said of a store's durability, and which stores are refused (WC-PRIV-4, WC-PRIV-5)."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from real_server import OwnStore, get, own_store, serving
from topologies import Node, nodes

from checkpoint_reference_server.clients import SentinelAddress
from checkpoint_reference_server.store import StoreError
from checkpoint_reference_server.store_settings import (
    NodeSettings,
    StoreSettings,
    read_settings,
    refuse_if_it_evicts,
    refuse_if_too_few_replicas,
)

FORGETS = NodeSettings(
    eviction_policy="noeviction", appends=False, sync="everysec", snapshots=False, replicas=0
)
ALWAYS = replace(FORGETS, appends=True, sync="always")


def sentence(*several: NodeSettings, wait_replicas: int = 0) -> str:
    """What the manifest says of a store of these nodes."""
    settings = StoreSettings(is_cluster=len(several) > 1, nodes=several)
    return settings.durability(wait_replicas)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ((FORGETS,), "Nothing survives a crash of the store"),
        ((replace(FORGETS, snapshots=True),), "only what its last snapshot has"),
        ((ALWAYS,), "Every acknowledged change survives a crash"),
        ((replace(ALWAYS, sync="everysec"),), "last two seconds (they are synced"),
        ((replace(ALWAYS, sync="no"),), "half a minute"),
        ((replace(ALWAYS, sync="unknown"),), "does not tell when"),
        # A workflow may lie on any node, so the weakest counts.
        ((ALWAYS, replace(ALWAYS, sync="everysec")), "last two seconds (they are synced"),
        ((ALWAYS, FORGETS), "Nothing survives"),
        ((ALWAYS, replace(ALWAYS, sync="unknown")), "does not tell when"),
    ],
)
def test_the_manifest_promises_what_the_weakest_node_keeps(
    settings: tuple[NodeSettings, ...], says: str
) -> None:
    """WC-PRIV-5."""
    told = sentence(*settings)
    assert says in told
    assert "fail-over" not in told
    followed = [replace(node, replicas=1) for node in settings]
    assert sentence(*followed).endswith("may lose changes that had not reached it.")
    assert told.isprintable()
    assert sentence(*settings, wait_replicas=1).endswith("against a fail-over.")


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store whose settings the tests change."""
    with own_store() as own:
        yield own


def test_the_settings_are_the_stores_own(own: OwnStore) -> None:
    """As INFO and CONFIG tell them, now."""
    assert read_settings(own.url).nodes == (FORGETS,)
    own.admin.config_set("appendonly", "yes")
    own.admin.config_set("appendfsync", "always")
    own.admin.config_set("save", "60 1")
    try:
        assert read_settings(own.url).nodes == (replace(ALWAYS, snapshots=True),)
        with serving(store_url=own.url) as server, server.client() as client:
            manifest = get(client, "/v1/tools/workflow-checkpoint/manifest.json")
        assert b"Every acknowledged change survives a crash of the store" in manifest.body
    finally:
        own.admin.config_set("save", "")
        own.admin.config_set("appendonly", "no")


def test_a_store_that_hides_its_configuration_is_not_trusted_with_more(own: OwnStore) -> None:
    """As providers do: INFO says that it appends, and nothing says when that reaches the disk."""
    own.admin.config_set("appendonly", "yes")
    own.admin.acl_setuser(
        "guest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"]
    )
    try:
        (node,) = read_settings(own.url.replace("unix://", "unix://guest:any@")).nodes
    finally:
        own.admin.acl_deluser("guest")
        own.admin.config_set("appendonly", "no")
    assert (node.appends, node.sync, node.snapshots) == (True, "unknown", False)


def test_a_cluster_is_known_by_any_node_and_refused_for_one_that_evicts() -> None:
    """WC-PRIV-4: a workflow may lie on that one."""
    with nodes() as started:
        members: list[Node] = started.cluster(3)
        settings = read_settings(members[0].url)
        assert settings == StoreSettings(is_cluster=True, nodes=(FORGETS,) * 3)
        refuse_if_it_evicts(settings)
        members[2].admin.config_set("maxmemory-policy", "allkeys-lfu")
        with pytest.raises(StoreError, match=r"is allkeys-lfu:(.|\n)*on every node with"):
            refuse_if_it_evicts(read_settings(members[0].url))


def test_replicas_are_counted_where_there_are_fewest() -> None:
    """A step may go to any node, and would wait there."""
    settings = StoreSettings(is_cluster=True, nodes=(replace(ALWAYS, replicas=2), ALWAYS))
    refuse_if_too_few_replicas(settings, 0)
    with pytest.raises(StoreError, match=r"--wait-replicas is 1, and the store has 0 connected"):
        refuse_if_too_few_replicas(settings, 1)


# -- Sentinel's URL -------------------------------------------------------------------------------


def test_a_sentinels_url_is_taken_apart() -> None:
    """With a password of the store and another of Sentinel."""
    address = SentinelAddress.parse(
        "rediss+sentinel://me:p%40ss@one:1,[::1]:2,three/main/3?sentinel_password=other"
    )
    assert address is not None
    assert address.sentinels == (("one", 1), ("::1", 2), ("three", 26379))
    assert address.service == "main"
    assert address.options == {"db": 3, "ssl": True, "username": "me", "password": "p@ss"}
    assert address.sentinel_options == {"password": "other"}
    assert not re.search("p@ss|p%40ss|other", repr(address))


@pytest.mark.parametrize("url", ["redis://one:1/0", "unix:///run/valkey.sock"])
def test_another_url_is_not_sentinels(url: str) -> None:
    """It is the library's to read."""
    assert SentinelAddress.parse(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://one:1",
        "redis+sentinel://one:1/",
        "redis+sentinel:///main",
        "redis+sentinel://one:port/main",
        "redis+sentinel://one:1/main/first",
    ],
)
def test_a_sentinels_url_without_a_service_is_refused(url: str) -> None:
    """Before anything is asked of anybody."""
    with pytest.raises(ValueError, match=r"URL|port|Port|literal"):
        SentinelAddress.parse(url)
