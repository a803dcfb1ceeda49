"""Sections 8 and 14 with the controls: pause, rate limit, lost store, clock set back, reset."""

from typing import Final

from checkpoint_conformance.answers import Fault, Problem
from checkpoint_conformance.checks.http import expect_health
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import Exchange, HttpAnswer
from checkpoint_conformance.controls import Controls
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session, as_sent, json_members
from checkpoint_model import Abandon, ErrorCode, EvidenceType, Request, Stage, Status

_BAD_BODIES: Final = (
    ("/clock", b'{"freeze": 1}'),
    ("/clock", b'{"advance_ms": "1"}'),
    ("/clock", b'{"ahead": 1}'),
    ("/pause", b"{}"),
    ("/pause", b'{"paused": null}'),
    ("/rate-limit", b'{"remaining": -1}'),
    ("/rate-limit", b'{"remaining": true}'),
    ("/dependency", b'{"available": "no"}'),
    ("/reset", b"[]"),
)
_RULES: Final = {
    "/clock": "WC-CTL-1",
    "/pause": "WC-CTL-2",
    "/rate-limit": "WC-CTL-3",
    "/dependency": "WC-CTL-4",
    "/reset": "WC-CTL-5",
}


def control_checks(run: Run) -> None:
    """Each control, its effect, and that it can be taken back."""
    controls = run.controls
    assert controls is not None
    for check in (_reset, _paused, _limited, _unavailable, _clock_back):
        try:
            with run.guarded():
                check(run, controls)
        finally:
            controls.reset()
    for path, body in _BAD_BODIES:
        with run.guarded():
            _refused(run, controls, path, body)


def _expect(
    run: Run, session: Session, request: Request, code: ErrorCode, rules: list[str]
) -> None:
    """Send a request that must be refused with a code that section 6 does not decide.

    Raises:
        ViolationError: it was answered otherwise.
    """
    _, came = session.ask(session.body(request))
    if not (isinstance(came, Problem) and came.code is code):
        session.fail(
            Fault(
                rules=tuple(rules),
                what=f"a `{request.action}`",
                expected=str(code),
                got=session.sequence[-1].answered,
            )
        )
    assert isinstance(came, Problem)
    for fault in came.faults:
        session.report(fault)
    if not came.faults:
        run.tally.hit("WC-ERR-3", "WC-ERR-1", *rules)


def _note(session: Session, exchange: Exchange) -> None:
    session.sequence.append(as_sent(exchange, None, on_controls=True))
    session.moves = None


def _paused(run: Run, controls: Controls) -> None:
    """WC-ERR-7: every claim is refused; what is in flight may still be decided."""
    cast, held, untouched = Cast(), run.session(), run.session()
    held.send(cast.claim(cast.ann))
    for session in (held, untouched):
        _note(session, controls.pause(True))
    _expect(run, held, cast.claim(cast.ann), ErrorCode.TOOL_PAUSED, ["WC-ERR-7", "WC-CTL-2"])
    _expect(run, held, cast.claim(cast.bob), ErrorCode.TOOL_PAUSED, ["WC-ERR-7", "WC-CTL-2"])
    _expect(run, untouched, cast.claim(cast.cy), ErrorCode.TOOL_PAUSED, ["WC-ERR-7", "WC-CTL-2"])
    move = cast.move(cast.ann, 1, Stage.UNCERTAIN)
    for request in (move, Status(holder=cast.ann)):
        exchange, came = held.ask(held.body(request))
        # Refused as paused is allowed, and must have changed nothing.
        if not (isinstance(came, Problem) and came.code is ErrorCode.TOOL_PAUSED):
            del held.sequence[-1]
            held.judge(request, exchange, came)
    for session in (held, untouched):
        _note(session, controls.pause(False))
    held.send(Status(holder=cast.ann))
    held.send(move)
    untouched.send(Status())
    untouched.send(cast.claim(cast.cy))
    run.tally.hit("WC-ERR-4", "WC-CTL-2")


def _limited(run: Run, controls: Controls) -> None:
    """WC-CTL-3: so many more are admitted, then none, then all again."""
    cast, session = Cast(), run.session()
    session.send(cast.claim(cast.ann))
    _note(session, controls.rate_limit(2))
    session.send(Status(holder=cast.ann))
    session.send(Status(holder=cast.ann))
    moves: list[Request] = [
        Abandon(holder=cast.ann, generation=1),
        cast.move(cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
    ]
    for request in moves:
        _expect(run, session, request, ErrorCode.RATE_LIMITED, ["WC-CTL-3"])
    _note(session, controls.rate_limit(None))
    session.send(Status(holder=cast.ann))
    run.tally.hit("WC-ERR-4", "WC-CTL-3")


def _unavailable(run: Run, controls: Controls) -> None:
    """WC-CTL-4: nothing is applied and the health says so, until it is back."""
    cast, session = Cast(), run.session()
    session.send(cast.claim(cast.ann))
    _note(session, controls.dependency(False))
    requests: list[Request] = [
        Abandon(holder=cast.ann, generation=1),
        cast.claim(cast.bob),
        Status(holder=cast.ann),
    ]
    for request in requests:
        _expect(run, session, request, ErrorCode.DEPENDENCY_UNAVAILABLE, ["WC-CTL-4"])
    expect_health(run, 503, session)
    _note(session, controls.dependency(True))
    expect_health(run, 200, session)
    session.send(Status(holder=cast.ann))
    run.tally.hit("WC-CTL-4")


def _clock_back(run: Run, controls: Controls) -> None:
    """WC-TIME-4: a clock that was set back does not move a step before the last change.

    ``observed_at`` then stands at the change, while the clock that the controls show does not,
    so what the oracle is told is the time that the rule asks for.
    """
    with run.frozen() as clock:
        for action in ("abandon", "move", "claim", "status"):
            with run.guarded():
                cast, session = Cast(), run.session()
                session.send(cast.claim(cast.ann))
                now_ms = clock.now_ms
                run.advance(-5_000, session)
                shown_ms, clock.now_ms = clock.now_ms, now_ms
                requests: dict[str, Request] = {
                    "abandon": Abandon(holder=cast.ann, generation=1),
                    "move": cast.move(cast.ann, 1, Stage.UNCERTAIN),
                    "claim": cast.claim(cast.ann),
                    "status": Status(holder=cast.ann),
                }
                try:
                    session.send(requests[action])
                    session.send(Status(holder=cast.ann))
                finally:
                    clock.now_ms = shown_ms
                run.tally.hit("WC-TIME-4")
                # Another workflow has no change to be held at: it sees the clock as it stands.
                run.session().send(cast.claim(cast.bob))
                run.advance(5_000)
    del controls


def _reset(run: Run, controls: Controls) -> None:
    """WC-CTL-5: clock, pause, limit and dependency as at the start."""
    cast, session = Cast(), run.session()
    sent = [
        controls.raw("/clock", b'{"advance_ms": 3600000, "freeze": true}'),
        controls.pause(True),
        controls.rate_limit(0),
        controls.dependency(False),
        controls.reset(),
    ]
    for exchange in sent:
        _note(session, exchange)
    expect_health(run, 200, session, ("WC-CTL-5", "WC-HTTP-3"))
    session.send(cast.claim(cast.ann))  # judged by the running clock, which nobody moved
    session.send(Status(holder=cast.ann))
    run.tally.hit("WC-CTL-5")


def _refused(run: Run, controls: Controls, path: str, body: bytes) -> None:
    """400 without a code where the members are not as the table says."""
    exchange = controls.raw(path, body)
    session = run.session()
    _note(session, exchange)
    answer = exchange.answer
    status = answer.status if isinstance(answer, HttpAnswer) else None
    if status != 400 or "code" in (json_members(exchange) or {}):
        session.fail(
            Fault(
                rules=(_RULES[path],),
                what=f"POST {path} with {body.decode()}",
                expected="400 without a code",
                got=session.sequence[-1].answered,
            )
        )
    run.tally.hit(_RULES[path])


CHECKS = (
    Check(
        name="controls",
        title="Pause, rate limit, lost store, clock set back",
        run=control_checks,
        needs_controls=True,
    ),
)
