"""Makes one fault after another, heals each, and waits until the target has recovered.

A fault is *begun*: from then on it is in force, and whatever is sent meets it. It is *healed*: what
was killed is started again, what was frozen goes on, nothing more is cut. And the target has
*recovered* with the first decided answer to a probe of ours after that; a probe asks for the status
of a workflow that nobody has used, so it needs the store and changes nothing.
"""

import json
import random
import time
from typing import Final

from checkpoint_conformance.answers import Problem, read
from checkpoint_conformance.client import JSON_HEADERS
from checkpoint_conformance.deployment import Deployment
from checkpoint_conformance.faults import Kind
from checkpoint_conformance.history import ClockStep, Injected
from checkpoint_conformance.session import fresh_identity
from checkpoint_conformance.tcp_proxy import Cut, TcpProxy
from checkpoint_model import Status, format_request
from checkpoint_model.vocabulary import ERRORS, TOOL_PATH

RECOVERY_SECONDS_MAX: Final = 30.0
"""A target that has no good answer by then does not recover by itself."""
CUTS: Final = 8
"""So many connections are cut by one fault at most."""
SLOW_SECONDS: Final = (0.02, 0.2)
"""How late a slow store's answers come: from, to."""
CLOCK_SECONDS: Final = (2.0, 20.0)
"""How far a clock is set: from, to."""
_PROBE_SECONDS_MAX: Final = 6.0
_PAUSE_SECONDS: Final = 0.01


class Nemesis:
    """Of one deployment; one fault at a time.

    Args:
        deployment: what is harmed.
        seed: chooses how much, where there is a choice.
    """

    def __init__(self, deployment: Deployment, *, seed: object) -> None:
        self._deployment = deployment
        self._random = random.Random(f"nemesis:{seed}")  # noqa: S311 - draws, no secrets
        self._kind: Kind | None = None
        self._called_ns = self._returned_ns = 0
        self.injected: list[Injected] = []
        """Every fault so far, in order."""
        self.clock_steps: list[ClockStep] = []
        """When the store's clock was moved."""

    def begin(self, kind: Kind) -> None:
        """Make a fault; it is in force when this returns.

        Raises:
            DeploymentError, LaunchError: it could not be made.
        """
        assert self._kind is None, "one at a time"
        self._kind = kind
        self._called_ns = time.monotonic_ns()
        self._begin(kind)
        self._returned_ns = time.monotonic_ns()
        self._note_clock(kind, self._called_ns, self._returned_ns)

    def heal(self) -> Injected:
        """Heal it, wait until the target has recovered, and tell of it.

        Raises:
            DeploymentError, LaunchError: it could not be healed.
        """
        kind = self._kind
        assert kind is not None
        link = self._link(kind)
        cuts = None if link is None else link.wait_until_cut(0)
        healed_ns = time.monotonic_ns()
        self._heal(kind)
        self._kind = None
        self._note_clock(kind, healed_ns, time.monotonic_ns())
        recovered_ns = self._recovered()
        if recovered_ns is not None:
            self._deployment.wait_for_servers()
        injected = Injected(
            kind=kind,
            called_ns=self._called_ns,
            returned_ns=self._returned_ns,
            healed_ns=healed_ns,
            recovered_ns=recovered_ns,
            cuts=cuts,
        )
        self.injected.append(injected)
        return injected

    def settle(self) -> None:
        """Heal what is in force, if anything is, and wait for no more than that it is done.

        Raises:
            DeploymentError, LaunchError: it could not be healed.
        """
        if self._kind is not None:
            kind, self._kind = self._kind, None
            self._heal(kind)
            self._deployment.wait_for_servers()

    def _begin(self, kind: Kind) -> None:
        deployment = self._deployment
        link = self._link(kind)
        if link is not None:
            link.cut(Cut(kind.partition("-cut-")[2]), self._random.randint(1, CUTS))
            return
        match kind:
            case Kind.SERVER_KILL:
                deployment.kill_servers()
            case Kind.SERVER_KILL_ONE:
                deployment.kill_servers(1)
            case Kind.STORE_KILL:
                deployment.kill_store()
            case Kind.STORE_FREEZE:
                deployment.freeze_store()
            case Kind.STORE_PARTITION:
                self._store_link.freeze()
            case Kind.STORE_SLOW:
                self._store_link.delay(self._random.uniform(*SLOW_SECONDS))
            case Kind.STORE_FULL:
                deployment.fill_store()
            case Kind.CLOCK_FORWARD:
                deployment.move_clock(self._random.uniform(*CLOCK_SECONDS))
            case Kind.CLOCK_BACK:
                deployment.move_clock(-self._random.uniform(*CLOCK_SECONDS))

    def _heal(self, kind: Kind) -> None:
        deployment = self._deployment
        link = self._link(kind)
        if link is not None:
            link.heal()
            return
        match kind:
            case Kind.SERVER_KILL:
                deployment.start_servers()
            case Kind.SERVER_KILL_ONE:
                deployment.start_servers(1)
            case Kind.STORE_KILL:
                deployment.start_store()
            case Kind.STORE_FREEZE:
                deployment.thaw_store()
            case Kind.STORE_SLOW | Kind.STORE_PARTITION:
                self._store_link.heal()
            case Kind.STORE_FULL:
                deployment.restore_settings()
            case Kind.CLOCK_FORWARD | Kind.CLOCK_BACK:
                deployment.move_clock(0)

    @property
    def _store_link(self) -> TcpProxy:
        assert self._deployment.store_link is not None
        return self._deployment.store_link

    def _link(self, kind: Kind) -> TcpProxy | None:
        """The link that a kind cuts; None where it is no cut."""
        if kind.startswith("client-cut-"):
            return self._deployment.client_link
        return self._store_link if kind.startswith("store-cut-") else None

    def _note_clock(self, kind: Kind, called_ns: int, returned_ns: int) -> None:
        if kind in (Kind.CLOCK_FORWARD, Kind.CLOCK_BACK):
            self.clock_steps.append(ClockStep(called_ns=called_ns, returned_ns=returned_ns))

    def _recovered(self) -> int | None:
        """When the first good answer came."""
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        body = json.dumps(format_request(fresh_identity(), Status())).encode()
        while time.monotonic() < deadline:
            with self._deployment.target.client() as client:
                client.seconds_max = _PROBE_SECONDS_MAX
                exchange = client.exchange("POST", TOOL_PATH, body, JSON_HEADERS)
            came = read(exchange)
            if isinstance(came, Problem) and ERRORS[came.code].decided:
                return exchange.returned_ns
            time.sleep(_PAUSE_SECONDS)
        return None
