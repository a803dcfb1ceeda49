"""A short storm: many clients at a few workflows at once, and one order that explains every answer.

The races ask who wins; here everything meets everything, over several bursts, and what was
answered is a history that the linearizability checker judges (WC-CONC-1). The long storms, with
lost answers and lapsing claims, are `workflow-checkpoint storm`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from checkpoint_conformance.answers import Fault, Result, read
from checkpoint_conformance.checks.races import CONTENDERS_MIN, at_once, those_that_connect
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import JSON_HEADERS, Client
from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.history import HistoryWriter, begin_header, call_of
from checkpoint_conformance.judging import UNDECIDED, judge_folder
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import fresh_identity, fresh_key
from checkpoint_conformance.tally import Failure, Sent, in_short
from checkpoint_model import (
    Abandon,
    EvidenceType,
    Identity,
    Request,
    Stage,
    Status,
    Transition,
    format_request,
)
from checkpoint_model.vocabulary import TOOL_PATH

WORKFLOWS: Final = 5
"""At which the clients of a round are, as many at each."""
BURSTS: Final = 8
_STORM: Final = "check"


@dataclass(kw_only=True)
class _Workflow:
    """One workflow of a round, as far as the answers so far tell how it stands."""

    identity: Identity
    cast: Cast
    holders: Sequence[str]
    """One for each client that is at it."""
    holder: str = ""
    generation: int = 1

    def learn(self, request: Request, came: object) -> None:
        """Take note of who holds it now, if the answer tells."""
        if isinstance(came, Result) and came.members.get("acquired") is True:
            generation = came.members.get("generation")
            if isinstance(generation, int) and generation >= self.generation:
                self.generation = generation
                self.holder = str(getattr(request, "holder", ""))

    def draw(self, random: Random) -> list[Request]:
        """What its clients ask at once: what goes on about it, and others who come in between."""
        claims = [self.cast.claim(holder, retry=True) for holder in self.holders]
        if not self.holder:
            return [*claims]
        abandon = Abandon(holder=self.holder, generation=self.generation)
        drawn = [*_moves(self.holder, self.generation, random)]
        mine: list[Request] = []
        for number, claim in enumerate(claims):
            what = random.random()
            if what < 0.35:
                mine.append(drawn[number % len(drawn)])
            elif what < 0.45:
                mine.append(abandon)
            elif what < 0.6:
                mine.append(Status(holder=claim.holder))
            else:
                mine.append(claim)
        return mine


def _moves(holder: str, generation: int, random: Random) -> Iterator[Transition]:
    """A transition that is sent again and again, one of the same key that says another thing, and
    one of its own."""
    key = fresh_key("o")
    settled = random.choice(
        [
            (Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE),
            (Stage.FAILED, EvidenceType.OPERATOR_ATTESTATION),
            (Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
        ]
        # Mostly what may be retried: what is terminal ends the workflow's part in the storm.
        + [(Stage.UNCERTAIN, None)] * 2
    )
    for observation_key, (to_stage, evidence_type) in (
        (key, settled),
        (key, settled),
        (key, (Stage.COMPENSATED, EvidenceType.COMPENSATION_RECEIPT)),
        (fresh_key("o"), (Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE)),
    ):
        yield Transition(
            holder=holder,
            generation=generation,
            to_stage=to_stage,
            observation_key=observation_key,
            evidence_type=evidence_type,
            evidence_fingerprint=None,
        )


class Crowd:
    """Workflows that nobody has used, with as many clients at each, who learn from what comes.

    Args:
        at_each: how many clients.
    """

    def __init__(self, at_each: int) -> None:
        self._of = [place % WORKFLOWS for place in range(at_each * WORKFLOWS)]
        self._workflows = [
            _Workflow(
                identity=fresh_identity(),
                cast=Cast(),
                holders=[fresh_key("h") for place in self._of if place == which],
            )
            for which in range(WORKFLOWS)
        ]
        self._asked: list[tuple[Identity, Request]] = []

    def draw(self, random: Random) -> list[tuple[Identity, Request]]:
        """What all ask next, and at which workflow."""
        drawn = [iter(workflow.draw(random)) for workflow in self._workflows]
        self._asked = [(self._workflows[which].identity, next(drawn[which])) for which in self._of]
        return self._asked

    def learn(self, came: Sequence[object]) -> None:
        """Take note of what was answered to what was drawn last, in its order."""
        for which, (_, request), answer in zip(self._of, self._asked, came, strict=True):
            self._workflows[which].learn(request, answer)


def storm(run: Run) -> None:
    """The profile's rounds, then the verdict on all of them.

    Not where something is broken already: no order explains what is decided wrongly one by one,
    and one fault would be told as two.
    """
    if run.tally.failures:
        return
    clients = [run.new_client() for _ in range(run.profile.contenders)]
    try:
        with temporary_folder() as folder:
            header = begin_header(_STORM, {"url": run.target.address.url}, {"seed": run.seed})
            with HistoryWriter(folder / "check.jsonl", header) as writer:
                for number in range(run.profile.storm_rounds):
                    run.progress.advance(number, run.profile.storm_rounds)
                    clients = those_that_connect(run, clients)
                    if len(clients) < CONTENDERS_MIN:
                        return
                    _round(run, clients, writer, number)
            (judged,) = judge_folder(folder)["storms"]
    finally:
        for client in clients:
            client.close()
    _take(run, judged)


def _round(run: Run, clients: Sequence[Client], writer: HistoryWriter, number: int) -> None:
    random = Random(f"{run.seed}:{number}")  # noqa: S311 - draws, no secrets
    names = [f"{number}.{place}" for place in range(len(clients))]
    crowd = Crowd(len(clients) // WORKFLOWS)
    for burst in range(BURSTS):
        bodies = [format_request(identity, request) for identity, request in crowd.draw(random)]
        exchanges = at_once(clients[: len(bodies)], [json.dumps(body).encode() for body in bodies])
        crowd.learn([read(exchange) for exchange in exchanges])
        for place, exchange in enumerate(exchanges):
            run.tally.sent()
            call = call_of(
                exchange,
                client=names[place],
                request=bodies[place],
                round=number,
                burst=str(burst),
            )
            writer.call(call)
            if call.returned_ns is None:
                # What it asked may still take effect; what is asked in its place is another's.
                names[place] = f"{names[place]}'"


def _take(run: Run, judged: Mapping[str, Any]) -> None:
    """Turn what was judged into hits and failures of this run."""
    take_failures(run, judged, "the short storm")
    for _ in range(judged["lost"] + judged["not_told"]):
        run.tally.lose("nothing came that tells what was decided", "a request of the short storm")
    if judged["decided"]:
        run.tally.answered()
    for why in judged["incomplete_because"]:
        run.tally.leave_out(f"the short storm: {why}")
    for rule in ("WC-CONC-1", "WC-CONC-2", "WC-CONC-3"):
        run.tally.hit(*[rule] * judged["rules"].get(rule, {}).get("hits", 0))


def take_failures(run: Run, judged: Mapping[str, Any], of: str) -> None:
    """Tell what is broken; what could not be decided says nothing against the target."""
    for failure in judged["failures"]:
        if failure["kind"] == UNDECIDED:
            run.tally.leave_out(f"{of}: {failure['what']}: {failure['got']}")
            continue
        run.tally.fail(failure_of(run, judged, failure))


def failure_of(run: Run, judged: Mapping[str, Any], failure: Mapping[str, Any]) -> Failure:
    """A failure with the calls that led to it, in the order found; then those without a place."""
    workflow = failure["workflow"] or dict.fromkeys(("namespace", "workflow_key"), "")
    identity = Identity(**workflow)
    sequence: list[Sent] = []
    for shown in judged["shown"]:
        if failure["workflow"] is None or any(shown[m] != workflow[m] for m in workflow):
            continue
        operations = shown["operations"]
        placed = [entry["operation"] for entry in shown["order"] if entry["operation"] >= 0]
        last = failure.get("operation")
        if last is not None and last not in placed:
            placed.append(last)
        sequence += [_sent(operations[number], identity) for number in placed]
    return Failure(
        check=run.check_name,
        fault=Fault(
            rules=tuple(failure["rules"]),
            what=f"{failure['what']}, among {judged['calls']:,} calls at once",
            expected=failure["expected"],
            got=failure["got"],
        ),
        sequence=tuple(sequence),
        got=failure.get("got_members"),
        expected=failure.get("expected_members"),
        identity=identity,
        binding=run.tally.binding,
        of_many=True,
    )


def _sent(shown: Mapping[str, Any], identity: Identity) -> Sent:
    """A call of the history as a line of a sequence."""
    answer = shown["answer"]
    members = None if answer is None else answer["members"]
    named = {"namespace": identity.namespace, "workflow_key": identity.workflow_key}
    body = {"action": shown["request"]["action"], **named, **shown["request"]}
    return Sent(
        method="POST",
        path=TOOL_PATH,
        headers=tuple(JSON_HEADERS),
        body=json.dumps(body, separators=(",", ":")).encode(),
        answered=shown["lost"]["reason"] if answer is None else in_short(answer["status"], members),
        members=members,
    )


CHECKS = (
    Check(
        name="storm",
        title="Everything at once, judged by one order",
        run=storm,
        alone=True,
        only_unbroken=True,
        seconds=4,
    ),
)
