"""Many at once: of concurrent claims one wins, of concurrent sends of one transition one moves.

Every request is sent but for its last byte, then all last bytes in one loop, so that they meet
in the server rather than queue up in the harness.
"""

from collections.abc import Sequence
from typing import Final

from checkpoint_conformance.answers import Answer, Fault, Problem, Result, read
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import JSON_HEADERS, Client, Exchange, land_all
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import LostError, Session, fresh_key
from checkpoint_model import Abandon, ErrorCode, EvidenceType, Request, Stage
from checkpoint_model.vocabulary import TOOL_PATH

_TRANSITION_SENDS: Final = 50


def races(run: Run) -> None:
    """The profile's rounds of each race."""
    clients = [run.new_client() for _ in range(run.profile.contenders)]
    try:
        for number in range(run.profile.race_rounds):
            run.progress.advance(number, run.profile.race_rounds)
            with run.guarded():
                _claim_race(run, clients)
            with run.guarded():
                _many_workflows(run, clients)
    finally:
        for client in clients:
            client.close()


def _claim_race(run: Run, clients: list[Client]) -> None:
    """One workflow: a first claim, a transition sent many times, a take-over after an abandon."""
    cast, session = Cast(), run.session()
    holders = [fresh_key("h") for _ in clients]
    claims = [cast.claim(holder) for holder in holders]
    winner = _one_wins(run, session, clients, claims, rule="WC-CONC-2", flag="acquired")
    move = cast.move(holders[winner], 1, Stage.UNCERTAIN)
    sends = clients[:_TRANSITION_SENDS]
    _one_wins(run, session, sends, [move] * len(sends), rule="WC-CONC-3", flag="transitioned")
    session.send(Abandon(holder=holders[winner], generation=1))
    winner = _one_wins(run, session, clients, claims, rule="WC-CONC-2", flag="acquired")
    move = cast.move(holders[winner], 2, Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE)
    _one_wins(run, session, sends, [move] * len(sends), rule="WC-CONC-3", flag="transitioned")


def _one_wins(
    run: Run,
    session: Session,
    clients: Sequence[Client],
    requests: Sequence[Request],
    *,
    rule: str,
    flag: str,
) -> int:
    """Send all at once; exactly one must have the flag, and all follow from it going first.

    Returns the winner's place in the list.
    """
    exchanges = _at_once(clients, [session.body(request) for request in requests])
    came = [read(exchange) for exchange in exchanges]
    winners = [i for i, answer in enumerate(came) if _has(answer, flag)]
    answered = sum(isinstance(answer, Result | Problem) for answer in came)
    if len(winners) > 1 or (not winners and answered == len(came)):
        for index in [*winners[:3], *(i for i in range(len(came)) if i not in winners)][:4]:
            session.note(exchanges[index], came[index])
        session.fail(
            Fault(
                rules=(rule,),
                what=f"{len(requests)} at once: how many were `{flag}`",
                expected="exactly one",
                got=f"{len(winners)} of {answered} that were answered",
            )
        )
    if not winners:
        run.tally.lose("the answer of a race's winner did not come")
        raise LostError("nobody knows who won")
    # A step that was decided before the winner's change would be another; so the winner's is
    # the first, and every other answer follows from the record that it left.
    order = [winners[0], *(i for i in range(len(came)) if i != winners[0])]
    kept = len(session.sequence) + 1
    for index in order:
        try:
            session.judge(requests[index], exchanges[index], came[index])
        except LostError:
            continue
        del session.sequence[kept:]  # what the losers were told led to nothing
    run.tally.hit(rule)
    return winners[0]


def _many_workflows(run: Run, clients: list[Client]) -> None:
    """WC-CONC-4: as many workflows at once, each claimed as if it were alone."""
    cast = Cast()
    sessions = [run.session(client) for client in clients]
    request = cast.claim(cast.ann)
    exchanges = _at_once(clients, [session.body(request) for session in sessions])
    for session, exchange in zip(sessions, exchanges, strict=True):
        came = read(exchange)
        if isinstance(came, Problem) and came.code is ErrorCode.CHECKPOINT_NOT_HELD:
            session.note(exchange, came)
            session.fail(
                Fault(
                    rules=("WC-CONC-4",),
                    what="a claim of a workflow of its own, among claims of others",
                    expected="a result with `acquired`",
                    got=session.sequence[-1].answered,
                )
            )
        with run.guarded():
            session.judge(request, exchange, came)
    run.tally.hit("WC-CONC-4")


def _at_once(clients: Sequence[Client], bodies: Sequence[bytes]) -> list[Exchange]:
    flights = [
        client.prepare("POST", TOOL_PATH, body, JSON_HEADERS)
        for client, body in zip(clients, bodies, strict=True)
    ]
    for flight in flights:
        flight.release()
    return land_all(flights)


def _has(answer: Answer, flag: str) -> bool:
    return isinstance(answer, Result) and answer.members.get(flag) is True


CHECKS = (Check(name="races", title="Claims and transitions at once", run=races),)
