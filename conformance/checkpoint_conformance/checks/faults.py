"""Faults: a store that is away, full or crashes, servers that are killed, connections that are cut.

All of it is done to a deployment of its own (:mod:`checkpoint_conformance.deployment`). What is
asked and answered meanwhile is a history, which is judged under the durability that the target
declares; what must hold of single answers is looked at here as well:

1. while the store answers nothing, every request is answered `DEPENDENCY_UNAVAILABLE` within 5 s;
2. a step whose outcome is lost is not repeated by the server: its own repetition would be
   answered as one (`reused`, `observation_replayed`);
3. a full store refuses writes and loses nothing, and no server starts on a store that evicts.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final

from checkpoint_conformance.answers import (
    Answer,
    Fault,
    Problem,
    Result,
    Unknown,
    is_decided,
    json_object,
    read,
)
from checkpoint_conformance.checks.storm import WORKFLOWS, Crowd, take_failures
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import (
    JSON_HEADERS,
    Address,
    Client,
    Exchange,
    HttpAnswer,
    Lost,
    LostReason,
    land_all,
)
from checkpoint_conformance.deployment import Deployment, DeploymentError
from checkpoint_conformance.faults import AWAY, Kind
from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.history import HistoryWriter, begin_header, call_of
from checkpoint_conformance.judging import judge_folder
from checkpoint_conformance.judging_faults import ANSWER_MS_MAX, ANSWER_SLACK_MS
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.nemesis import Nemesis
from checkpoint_conformance.processes import Program
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import as_sent, fresh_identity, fresh_key
from checkpoint_conformance.tally import Failure
from checkpoint_conformance.targets import TargetError
from checkpoint_model import (
    Abandon,
    ErrorCode,
    EvidenceType,
    Identity,
    Request,
    Stage,
    Status,
    format_request,
)
from checkpoint_model.vocabulary import HEALTH_PATH, TOOL_PATH

CONTENDERS: Final = 30
"""Requests that are released together: enough to be in flight when a fault comes."""
KEPT_WORKFLOWS: Final = 8
"""Claimed before a fault, and looked at after it."""
CLAIM_SECONDS: Final = 800
STATE_SECONDS: Final = 1200
"""So long that nothing of these workflows ends by itself."""
EXCHANGE_SECONDS_MAX: Final = 10.0
EVICTING_POLICIES: Final = ("allkeys-lru", "volatile-ttl")
"""Every record has an expiry, so what evicts no other keys evicts live records all the same."""
_STORM: Final = "faults"
_POLL_SECONDS: Final = 0.05
_MS: Final = 1_000_000


class _Stage:
    """A deployment, its nemesis, clients, and the history of all that they do."""

    def __init__(self, run: Run, deployment: Deployment, writer: HistoryWriter) -> None:
        self.run = run
        self.access = run.target.fault_access
        self.deployment = deployment
        self.nemesis = Nemesis(deployment, seed=run.seed)
        self._writer = writer
        self.clients = [deployment.target.client() for _ in range(CONTENDERS)]
        for client in self.clients:
            client.seconds_max = EXCHANGE_SECONDS_MAX
        self._names = [f"c{place}" for place in range(CONTENDERS)]
        self._burst = 0

    def can(self, kind: Kind) -> bool:
        """Whether a fault can be made here."""
        assert self.access is not None
        return kind in self.access.kinds

    def together(
        self, asks: Sequence[tuple[Identity, Request]], *, begin: Kind | None = None
    ) -> list[tuple[Exchange, Answer]]:
        """Send requests by one client each, released together; in the middle a fault is begun."""
        bodies = [format_request(identity, request) for identity, request in asks]
        deadline = self.clients[0].deadline()
        flights = [
            client.prepare(
                "POST", TOOL_PATH, json.dumps(body).encode(), JSON_HEADERS, deadline=deadline
            )
            for client, body in zip(self.clients, bodies, strict=False)
        ]
        for place, flight in enumerate(flights):
            if begin is not None and place == len(flights) // 2:
                self.nemesis.begin(begin)
            flight.release()
        came = []
        self._burst += 1
        for place, exchange in enumerate(land_all(flights)):
            self.run.tally.sent()
            answer = read(exchange)
            came.append((exchange, answer))
            if isinstance(exchange.answer, Lost) and exchange.answer.reason == LostReason.REFUSED:
                continue  # nothing was sent, so nothing may be applied
            self._writer.call(
                call_of(
                    exchange,
                    client=self._names[place],
                    request=bodies[place],
                    round=0,
                    burst=str(self._burst),
                )
            )
            if isinstance(answer, Unknown) or _is_unavailable(answer):
                # What it asked may still take effect; what is asked in its place is another's.
                self._names[place] += "'"
        return came

    def heal(self) -> bool:
        """Heal what was begun; whether the target has recovered."""
        injected = self.nemesis.heal()
        self._writer.fault(injected)
        for step in self.nemesis.clock_steps:
            self._writer.clock_step(step)
        self.nemesis.clock_steps.clear()
        return injected.recovered_ns is not None

    def kept(self) -> list[tuple[Identity, str]]:
        """Workflows that are claimed, some of them moved on; each with its holder."""
        cast = Cast()
        made = [(fresh_identity(), fresh_key("h")) for _ in range(KEPT_WORKFLOWS)]
        self.together([(identity, _claim(cast, holder)) for identity, holder in made])
        self.together(
            [
                (identity, cast.move(holder, 1, Stage.UNCERTAIN))
                for identity, holder in made[: KEPT_WORKFLOWS // 2]
            ]
        )
        return made

    def look_at(self, kept: Sequence[tuple[Identity, str]]) -> list[tuple[Exchange, Answer]]:
        """Ask for the status of workflows by their holders."""
        return self.together([(identity, Status(holder=holder)) for identity, holder in kept])

    def fail(self, rule: str, exchange: Exchange, came: Answer, **what: str) -> None:
        """Report a fault of one answer."""
        sent = as_sent(exchange, came)
        body = json_object(exchange.body) or {}
        identity = Identity(
            namespace=str(body.get("namespace")), workflow_key=str(body.get("workflow_key"))
        )
        self.run.tally.fail(
            Failure(
                check=self.run.check_name,
                fault=Fault(rules=(rule,), **what),
                sequence=(sent,),
                got=sent.members,
                expected=None,
                identity=identity,
            )
        )

    def close(self) -> None:
        """Close every connection."""
        for client in self.clients:
            client.close()


@contextmanager
def _staged(run: Run) -> Iterator[_Stage]:
    """A stage; at its end the history of what was done on it is judged."""
    access = run.target.fault_access
    assert access is not None
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        header = begin_header(
            _STORM,
            {"url": run.target.address.url},
            {"seed": run.seed, "durability": str(access.durability)},
        )
        with HistoryWriter(folder / "faults.jsonl", header) as writer, ExitStack() as made:
            stage = _Stage(run, made.enter_context(access.deploy()), writer)
            made.callback(stage.close)
            # However it ends: a deployment may be one that lives on.
            made.callback(stage.nemesis.settle)
            yield stage
        (judged,) = judge_folder(folder)["storms"]
    _take(run, judged)


def _take(run: Run, judged: Mapping[str, Any]) -> None:
    """Turn what was judged into hits, failures and figures of this run."""
    take_failures(run, judged, "under faults")
    for why in judged["incomplete_because"]:
        run.tally.leave_out(f"under faults: {why}")
    run.tally.hit(*["WC-PRIV-5"] * judged["rules"].get("WC-PRIV-5", {}).get("hits", 0))
    figures = judged["faults"]
    if figures is not None:
        workflows = judged["workflows"]
        run.tally.faults = {
            **figures,
            "calls": judged["calls"],
            "histories": sum(workflows.values()) - workflows.get("nothing to judge", 0),
        }


def _claim(cast: Cast, holder: str) -> Request:
    return cast.claim(holder, claim_ttl_seconds=CLAIM_SECONDS, state_ttl_seconds=STATE_SECONDS)


def _is_unavailable(came: Answer) -> bool:
    return isinstance(came, Problem) and came.code is ErrorCode.DEPENDENCY_UNAVAILABLE


# -- the parts --------------------------------------------------------------------------------


def _away(stage: _Stage) -> None:
    """While the store is silent or dead, everything is answered, and so (WC-ERR-5, WC-HTTP-3)."""
    silent = [kind for kind in (Kind.STORE_FREEZE, Kind.STORE_PARTITION) if stage.can(kind)]
    dead = [Kind.STORE_KILL] if stage.can(Kind.STORE_KILL) else []
    for kind in (*silent[:1], *dead):
        kept = stage.kept()
        stage.nemesis.begin(kind)
        health = stage.deployment.target.client()
        try:
            asked = health.prepare("GET", HEALTH_PATH)
            asked.release()
            came = stage.together(_everything(kept))
            healthy = asked.land()
        finally:
            health.close()
        for exchange, answer in came:
            _judge_while_away(stage, exchange, answer)
        if isinstance(healthy.answer, HttpAnswer) and healthy.answer.status == 503:
            stage.run.tally.hit("WC-HTTP-3")
        else:
            stage.fail(
                "WC-HTTP-3",
                healthy,
                read(healthy),
                what=f"{HEALTH_PATH} while the store answers nothing",
                expected="503",
                got=as_sent(healthy, None).answered,
            )
        if not stage.heal():
            return
        stage.look_at(kept)


def _everything(kept: Sequence[tuple[Identity, str]]) -> list[tuple[Identity, Request]]:
    """Every action, on workflows that there are and on some that there are not."""
    cast = Cast()
    asks: list[tuple[Identity, Request]] = []
    for number, (identity, holder) in enumerate(kept):
        asks.append((identity, Status(holder=holder)))
        if number % 2:
            asks.append((identity, Abandon(holder=holder, generation=1)))
        else:
            verified = cast.move(holder, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ)
            asks.append((identity, verified))
        asks.append((fresh_identity(), _claim(cast, fresh_key("h"))))
    return asks


def _judge_while_away(stage: _Stage, exchange: Exchange, came: Answer) -> None:
    took_ms = (exchange.returned_ns - exchange.called_ns) / _MS
    expected = f"{ErrorCode.DEPENDENCY_UNAVAILABLE} within {ANSWER_MS_MAX} ms of the last byte"
    if _is_unavailable(came) and took_ms <= ANSWER_MS_MAX + ANSWER_SLACK_MS:
        stage.run.tally.hit("WC-ERR-5")
    elif isinstance(came, Problem) and not is_decided(came) and not _is_unavailable(came):
        pass  # refused for another reason, which may come first (WC-ERR-6)
    else:
        stage.fail(
            "WC-ERR-5",
            exchange,
            came,
            what="an answer while the store answers nothing",
            expected=expected,
            got=f"{as_sent(exchange, came).answered}, after {took_ms:.0f} ms",
        )


def _cut_off(stage: _Stage) -> None:
    """A step whose answer the server never had is not sent again by it (WC-ERR-5)."""
    if not stage.can(Kind.STORE_CUT_BEFORE_ANSWER):
        return
    cast = Cast()
    for moves in (False, True) * 2:
        identity, holder = fresh_identity(), fresh_key("h")
        request: Request = _claim(cast, holder)
        flag = "reused"
        if moves:
            stage.together([(identity, request)])
            request, flag = cast.move(holder, 1, Stage.UNCERTAIN), "observation_replayed"
        # Whoever keeps connections may send this by one that is used for the first time.
        stage.nemesis.begin(Kind.STORE_CUT_BEFORE_ANSWER)
        ((exchange, came),) = stage.together([(identity, request)])
        if isinstance(came, Result) and came.members.get(flag) is True:
            stage.fail(
                "WC-ERR-5",
                exchange,
                came,
                what=f"the first {request.action} of its kind, whose answer was cut off between "
                "store and server",
                expected=str(ErrorCode.DEPENDENCY_UNAVAILABLE),
                got=f"`{flag}`: the server sent it twice",
            )
        elif _is_unavailable(came):
            stage.run.tally.hit("WC-ERR-5")
        if not stage.heal():
            return
        stage.together([(identity, request)])


def _crash(stage: _Stage) -> None:
    """What was acknowledged just before a crash of the store is there after it (WC-PRIV-5).

    And no generation is issued again, of a record that a second worker had just taken over.
    """
    if not stage.can(Kind.STORE_KILL):
        return
    cast = Cast()
    kept = stage.kept()
    others = [(identity, _claim(cast, fresh_key("h"))) for identity, _ in kept]
    stage.together([(i, Abandon(holder=holder, generation=1)) for i, holder in kept[::2]])
    stage.together(others[::2])
    stage.nemesis.begin(Kind.STORE_KILL)
    if stage.heal():
        stage.look_at(kept)
        stage.together([(identity, _claim(cast, fresh_key("h"))) for identity, _ in kept])


def _full(stage: _Stage) -> None:
    """A full store refuses the write, and no live record goes (WC-PRIV-4)."""
    if not stage.can(Kind.STORE_FULL):
        return
    kept = stage.kept()
    stage.nemesis.begin(Kind.STORE_FULL)
    cast = Cast()
    claims = [(fresh_identity(), _claim(cast, fresh_key("h"))) for _ in range(KEPT_WORKFLOWS)]
    refused = [came for _, came in stage.together(claims) if _is_unavailable(came)]
    if not stage.heal():
        return
    looked = stage.look_at(kept)
    gone = [
        (exchange, came)
        for exchange, came in looked
        if isinstance(came, Problem) and came.code is ErrorCode.CHECKPOINT_NOT_FOUND
    ]
    for exchange, came in gone[:1]:
        stage.fail(
            "WC-PRIV-4",
            exchange,
            came,
            what="a live record after the store was full",
            expected="the record as it was",
            got=f"CHECKPOINT_NOT_FOUND, and so of {len(gone)} of {len(looked)}",
        )
    if refused and not gone:
        stage.run.tally.hit("WC-PRIV-4")


def _evicting(stage: _Stage) -> None:
    """No server starts on a store that is set to evict (WC-PRIV-4)."""
    assert stage.access is not None
    if not stage.can(Kind.STORE_FULL):
        return
    if not stage.access.starts:
        stage.run.tally.remark(
            "Whether it refuses to start on a store that evicts was not tried: nothing says how "
            "it is started."
        )
        return
    drawn = EVICTING_POLICIES[stage.run.seed % len(EVICTING_POLICIES)]
    # A server that starts takes a second: where there is little time, one of them each run.
    for policy in EVICTING_POLICIES if stage.run.profile.fault_rounds else (drawn,):
        _evicting_by(stage, policy)


def _evicting_by(stage: _Stage, policy: str) -> None:
    stage.deployment.set_store("maxmemory-policy", policy)
    program, described = stage.deployment.another_server()
    assert described.start is not None
    program.start()
    try:
        decided = _first_decision(described.url, program, described.start.ready_seconds)
        if decided is None:
            stage.run.tally.hit("WC-PRIV-4")
            return
        exchange, came = decided
        stage.fail(
            "WC-PRIV-4",
            exchange,
            came,
            what=f"a server that was started on a store set to {policy}",
            expected="that it does not start",
            got=f"it decided a claim: {as_sent(exchange, came).answered}",
        )
    finally:
        program.stop()
        stage.deployment.restore_settings()


def _first_decision(
    url: str, program: Program, seconds_max: float
) -> tuple[Exchange, Answer] | None:
    """What a server that is starting decides first; None where it ends, or decides nothing."""
    deadline = time.monotonic() + seconds_max
    body = json.dumps(format_request(fresh_identity(), _claim(Cast(), fresh_key("h")))).encode()
    while program.ended is None and time.monotonic() < deadline:
        with Client(Address.parse(url)) as client:
            exchange = client.exchange("POST", TOOL_PATH, body, JSON_HEADERS)
        came = read(exchange)
        if is_decided(came):
            return exchange, came
        time.sleep(_POLL_SECONDS)
    return None


def _mixed(stage: _Stage) -> None:
    """Everything at once while one fault after the other comes, in an order of the seed's.

    Not where something is broken already: no order explains what is decided wrongly one by one.
    """
    assert stage.access is not None
    if stage.run.tally.failures:
        return
    random = Random(f"{stage.run.seed}:faults")  # noqa: S311 - draws, no secrets
    kinds = list(stage.access.kinds) * stage.run.profile.fault_rounds
    random.shuffle(kinds)
    for number, kind in enumerate(kinds):
        stage.run.progress.advance(number, len(kinds))
        crowd = Crowd(CONTENDERS // WORKFLOWS)
        _burst(stage, crowd, random)
        _burst(stage, crowd, random, begin=kind)
        if kind not in AWAY:
            _burst(stage, crowd, random)
        if not stage.heal():
            return
        _burst(stage, crowd, random)


def _burst(stage: _Stage, crowd: Crowd, random: Random, *, begin: Kind | None = None) -> None:
    asks = crowd.draw(random)
    came = stage.together(asks, begin=begin)
    crowd.learn([answer for _, answer in came])


# -- the checks -------------------------------------------------------------------------------


def _play(run: Run, *parts: Callable[[_Stage], None]) -> None:
    """Go through parts on one deployment."""
    try:
        with _staged(run) as stage:
            for part in parts:
                part(stage)
    except (DeploymentError, LaunchError, TargetError) as error:
        run.tally.leave_out(f"faults could not be made: {error}")


def store_away(run: Run) -> None:
    """While the store answers nothing."""
    _play(run, _away)


def connections_cut(run: Run) -> None:
    """Answers that are cut off between store and server."""
    _play(run, _cut_off)


def store_crash(run: Run) -> None:
    """A store that is killed."""
    _play(run, _crash)


def store_full(run: Run) -> None:
    """A store without memory."""
    _play(run, _full)


def store_evicts(run: Run) -> None:
    """A store that is set to evict."""
    _play(run, _evicting)


def faults(run: Run) -> None:
    """All of it, on one deployment, and then everything at once."""
    # The full store first: once it was killed, its settings are its command's again, and one that
    # was set to evict while it ran would be found as it should be.
    _play(run, _full, _away, _cut_off, _crash, _evicting, _mixed)


CHECKS = (
    Check(
        name="faults",
        title="Faults, one after another",
        run=faults,
        needs_faults=True,
        alone=True,
        seconds=30,
    ),
)
