"""The steps of a cluster: each goes to the node that holds its key's slot.

Conversation:

1. the slots are asked for, from any node that answers; which node has which is remembered;
2. a step goes to its node, on a connection that all steps of that node share;
3. ``MOVED``: nothing was executed there; the map is corrected and the step sent where it says;
   ``ASK``: nothing was executed there; this one step goes where it says, after ``ASKING``;
4. a lost connection: the step may have been applied and is not sent again (WC-ERR-5); the slots
   are asked for anew before the next one, for another node may have taken over.
"""

import asyncio
from typing import Any, Final

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import AskError, MovedError

from checkpoint_reference_server.multiplexer import Multiplexer
from checkpoint_reference_server.steps import Steps

REDIRECTIONS_MAX: Final = 5
"""Of one step: two while a slot moves, more where slots move faster than the map is read."""
MAP_AGE_SECONDS_MIN: Final = 0.5
"""The slots are not asked for more often, however many steps are lost."""


class ClusterSteps(Steps):
    """Steps on a cluster."""

    def __init__(self, cluster: redis.RedisCluster, *, wait_replicas: int) -> None:
        self._cluster = cluster
        self._wait_replicas = wait_replicas
        self._nodes: dict[str, Multiplexer] = {}
        self._stale = False
        self._read_at_seconds = float("-inf")

    async def send(self, key: str, *command: str | int, is_step: bool = False) -> Any:
        """Send a command about a key to the node that has it.

        Raises what the client raises; see :meth:`Multiplexer.send`.
        """
        await self._read_map()
        node = self._cluster.get_node_from_key(key)
        step_key = key if is_step else None
        asking = False
        for _ in range(REDIRECTIONS_MAX):
            if node is None:
                break
            try:
                return await self._at(node).send(*command, step_key=step_key, asking=asking)
            except AskError as error:
                asking = True
                node = self._named(error.host, error.port)
            except MovedError as error:
                asking = False
                await self._cluster.nodes_manager.move_slot(error)
                self._stale = True
                node = self._cluster.get_node_from_key(key)
            except (redis.ConnectionError, redis.TimeoutError):
                self._stale = True
                raise
        raise redis.ConnectionError("the step was sent from node to node, and none has its slot")

    async def ping(self) -> None:
        """Return when every primary answered; raises what the client raises."""
        await self._read_map()
        await asyncio.gather(
            *(self._at(node).send("PING") for node in self._cluster.get_primaries())
        )

    async def aclose(self) -> None:
        """Give up every connection."""
        for multiplexer in self._nodes.values():
            await multiplexer.aclose()
        await self._cluster.aclose()

    async def _read_map(self) -> None:
        await self._cluster.initialize()
        now = asyncio.get_running_loop().time()
        if self._stale and now - self._read_at_seconds >= MAP_AGE_SECONDS_MIN:
            self._stale, self._read_at_seconds = False, now
            try:
                await self._cluster.nodes_manager.initialize()
            except BaseException:
                self._stale = True
                raise

    def _named(self, host: str, port: int) -> ClusterNode:
        """The node of an ``ASK``, which may be newer than the map."""
        known = self._cluster.get_node(host=host, port=port)
        if known is not None:
            return known
        return ClusterNode(host, port, **self._cluster.nodes_manager.connection_kwargs)

    def _at(self, node: ClusterNode) -> Multiplexer:
        if node.name not in self._nodes:
            # The keywords and not the node: a map that was read anew has other objects.
            kind, keywords = node.connection_class, node.connection_kwargs
            self._nodes[node.name] = Multiplexer(
                lambda: kind(**keywords),
                wait_replicas=self._wait_replicas,
                asks_role=False,  # by ``MOVED`` one that became a replica tells who has the slot
            )
        return self._nodes[node.name]
