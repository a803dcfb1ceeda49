"""Many at once: of concurrent claims one wins, of concurrent sends of one transition one moves.

Every request is sent but for its last byte, then all last bytes in one loop, so that they meet
in the server rather than queue up in the harness.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from checkpoint_conformance.answers import Answer, Fault, Problem, Result, is_decided, read
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import (
    JSON_HEADERS,
    Client,
    Exchange,
    Flight,
    Lost,
    LostReason,
    land_all,
)
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import LostError, Session, fresh_key
from checkpoint_model import Abandon, Claim, ErrorCode, EvidenceType, Request, Stage, Status
from checkpoint_model.vocabulary import TOOL_PATH

_TRANSITION_SENDS: Final = 50
OPENING_AT_ONCE: Final = 16
CONTENDERS_MIN: Final = 10
"""Fewer connections at once than this are no race."""


def races(run: Run) -> None:
    """The profile's rounds of each race."""
    clients = [run.new_client() for _ in range(run.profile.contenders)]
    try:
        for number in range(run.profile.race_rounds):
            run.progress.advance(number, run.profile.race_rounds)
            clients = those_that_connect(run, clients)
            if len(clients) < CONTENDERS_MIN:
                return
            run.attempt(_claim_race, run, clients)
            run.attempt(_many_workflows, run, clients)
    finally:
        for client in clients:
            client.close()


def those_that_connect(run: Run, clients: list[Client]) -> list[Client]:
    """The clients whose connections the target accepts while others hold theirs.

    A server that serves one connection at a time, and keeps few more waiting, is slow but
    right; it is raced by as many as it lets in.
    """
    run.client.close()  # which is no contender, and would be the one that is served
    sessions = [run.session(client) for client in clients]
    exchanges = at_once(clients, [session.body(Status()) for session in sessions])
    refused = {
        index
        for index, exchange in enumerate(exchanges)
        if isinstance(exchange.answer, Lost)
        and exchange.answer.reason in (LostReason.REFUSED, LostReason.TIMED_OUT)
    }
    if not refused:
        return clients
    for index in refused:
        clients[index].close()
    left = [client for index, client in enumerate(clients) if index not in refused]
    why = f"{len(left)} of {len(clients)} connections were served at once"
    if len(left) < CONTENDERS_MIN:
        run.tally.leave_out(f"no race could be run: {why}")
    else:
        run.tally.remark(f"The races had {len(left)} contenders: {why}.")
    return left


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
    exchanges = at_once(clients, [session.body(request) for request in requests])
    came = [read(exchange) for exchange in exchanges]
    winners = [i for i, answer in enumerate(came) if _has(answer, flag)]
    decided = sum(is_decided(answer) for answer in came)
    if len(winners) > 1 or (not winners and decided == len(came)):
        for index in [*winners[:3], *(i for i in range(len(came)) if i not in winners)][:4]:
            session.note(exchanges[index], came[index])
        session.fail(
            Fault(
                rules=(rule,),
                what=f"{len(requests)} at once: how many were `{flag}`",
                expected="exactly one",
                got=f"{len(winners)} of {decided} that were decided",
            )
        )
    if not winners:
        run.tally.lose("the answer of the winner did not come", "a race")
        raise LostError("nobody knows who won")
    # A step that was decided before the winner's change would be another; so the winner's is
    # the first, and every other answer follows from the record that it left.
    order = [winners[0], *(i for i in range(len(came)) if i != winners[0])]
    kept = len(session.sequence) + 1
    for index in order:
        try:
            session.judge(requests[index], exchanges[index])
        except LostError:
            continue
        finally:
            # What the losers were told led to nothing.
            if index != winners[0] and len(session.sequence) > kept:
                last = session.sequence[-1]
                session.sequence[kept:] = [last]
    del session.sequence[kept:]
    if decided >= CONTENDERS_MIN:
        run.tally.hit(rule)
    return winners[0]


def _many_workflows(run: Run, clients: list[Client]) -> None:
    """WC-CONC-4: as many workflows at once, each decided as if it were alone.

    Holders and lifetimes differ, so that an answer given to the wrong request shows; then each
    is asked how it stands, but for those of whose claim nobody knows what became.
    """
    sessions = [run.session(client) for client in clients]
    claims = [
        Claim(
            holder=fresh_key("h"),
            claim_ttl_seconds=100 + number,
            state_ttl_seconds=1000 + 2 * number,
            retry_failed=bool(number % 2),
        )
        for number in range(len(sessions))
    ]
    bursts: list[list[Request]] = [[*claims], [Status(holder=c.holder) for c in claims]]
    hashes: set[object] = set()
    unknown: set[Session] = set()
    judged = 0
    for requests in bursts:
        exchanges = at_once(
            clients, [s.body(request) for s, request in zip(sessions, requests, strict=True)]
        )
        for session, request, exchange in zip(sessions, requests, exchanges, strict=True):
            if session in unknown:
                continue
            came = read(exchange)
            if isinstance(came, Result):
                hashes.add(came.members.get("workflow_hash"))
            if isinstance(came, Problem) and came.code is ErrorCode.CHECKPOINT_NOT_HELD:
                session.note(exchange, came)
                session.fail(
                    Fault(
                        rules=("WC-CONC-4",),
                        what=f"a {request.action} of a workflow of its own, among those of others",
                        expected="a result",
                        got=session.sequence[-1].answered,
                    )
                )
            try:
                told = session.judge(request, exchange)
            except LostError:
                unknown.add(session)
                told = None
            judged += told is not None
    if len(hashes) > len(sessions) or (judged == 2 * len(sessions) and len(hashes) < len(sessions)):
        sessions[0].fail(
            Fault(
                rules=("WC-CONC-4", "WC-ID-2"),
                what=f"the hashes of {len(sessions)} workflows, asked for at once",
                expected=f"{len(sessions)} different ones",
                got=f"{len(hashes)}",
            )
        )
    if judged >= CONTENDERS_MIN:
        run.tally.hit("WC-CONC-4")


def at_once(clients: Sequence[Client], bodies: Sequence[bytes]) -> list[Exchange]:
    """Send each client's request but for its last byte, then all last bytes; what came of each."""
    # One deadline for all: a server that lets in one connection at a time would otherwise be
    # waited for by each in turn.
    deadline = time.monotonic() + clients[0].seconds_max

    def prepare(client: Client, body: bytes) -> Flight:
        return client.prepare("POST", TOOL_PATH, body, JSON_HEADERS, deadline=deadline)

    # Side by side: over a way of 100 ms a hundred connections, opened in turn, take all of it.
    with ThreadPoolExecutor(OPENING_AT_ONCE) as pool:
        flights = list(pool.map(prepare, clients, bodies))
    for flight in flights:
        flight.release()
    return land_all(flights)


def _has(answer: Answer, flag: str) -> bool:
    return isinstance(answer, Result) and answer.members.get(flag) is True


CHECKS = (
    Check(name="races", title="Claims and transitions at once", run=races, alone=True, seconds=4),
)
