"""Sections 8 and 14 with the controls: pause, rate limit, lost store, the clock, reset.

A control is exercised when its effect is seen and can be taken back. What a control was told to
bring about and does not go away is that control's fault, not a moment of the target's; a store that
is away for a moment, or the target's own rate limit, is no control's, as anywhere else.
"""

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from checkpoint_conformance.answers import Fault, Problem, json_object
from checkpoint_conformance.checks.http import expect_health
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.clock import RunningClock
from checkpoint_conformance.controls import Controls
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import LostError, Session, as_sent, wait_seconds
from checkpoint_model import (
    Abandon,
    ErrorCode,
    EvidenceType,
    Request,
    Stage,
    Status,
    parse_timestamp,
)
from checkpoint_model.vocabulary import ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

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
_PROVOKED: Final = frozenset(code for code, row in ERRORS.items() if row.retry)
"""What the controls can bring about."""
WORKS_TRIES_MAX: Final = 3
"""How often the target is asked until a refusal that a moment may bring, too, is a control's."""
RUNNING_TOLERANCE_MS: Final = 2_000
"""How exactly a running clock is read across two calls; a slow moment is no fault."""
RUNS_ON_SECONDS: Final = 0.05
"""No poll of anything: a clock that runs must have gone on by itself in the meantime."""
STANDING_SECONDS: Final = 2.2
"""How long a record of two seconds is left alone under a clock that stands still."""


def control_checks(run: Run) -> None:
    """Each control, its effect, and that it can be taken back."""
    controls = run.controls
    assert controls is not None
    parts: tuple[Callable[[Run, Controls], None], ...] = (
        _paused,
        _limited,
        _unavailable,
        _clock_back,
    )
    if run.tally.binding is Binding.HTTP:
        # What is the controls' own; the door that looks at it makes no difference.
        parts = (_reset, *parts, _clock_runs, _clock_stands)
    for number, part in enumerate(parts):
        run.progress.advance(number, len(parts))
        try:
            run.attempt(_undone, part, run, controls)
        finally:
            controls.reset()
            run.clock = RunningClock()  # whatever was learned of a clock that was moved
    for path, body in _BAD_BODIES if run.tally.binding is Binding.HTTP else ():
        run.attempt(_refused, run, controls, path, body)


def _undone(part: "Callable[[Run, Controls], None]", run: Run, controls: Controls) -> None:
    try:
        part(run, controls)
    except LostError:
        # It may have come while the tool was paused, and is begun anew.
        controls.reset()
        raise


def _expect(
    run: Run, session: Session, request: Request, code: ErrorCode, rules: tuple[str, ...]
) -> None:
    """Send a request that must be refused with a code that section 6 does not decide.

    Raises:
        LostError: the store was away, for which no control was to blame.
        ViolationError: it was answered otherwise.
    """
    # TOOL_PAUSED as well, which would end the run: nobody but a control pauses it just now.
    _, came = session.ask(session.body(request), expecting={code, ErrorCode.TOOL_PAUSED})
    if not (isinstance(came, Problem) and came.code is code):
        session.fail(
            Fault(
                rules=rules,
                what=f"a `{request.action}`",
                expected=str(code),
                got=session.sequence[-1].answered,
            )
        )
    if not came.faults:
        run.tally.hit("WC-ERR-3", *rules)


def _works(session: Session, request: Request, rule: str, *codes: ErrorCode) -> None:
    """Send a request that must be decided again.

    Args:
        session: of the workflow.
        request: one that changes nothing where ``codes`` are such that it may have been applied.
        rule: of the control.
        codes: what the control had brought about.

    Raises:
        LostError: nobody knows what was decided.
        ViolationError: what the control was told to end goes on, or the decision is wrong.
    """
    for _ in range(WORKS_TRIES_MAX):
        exchange, came = session.ask(
            session.body(request), expecting={*codes, ErrorCode.TOOL_PAUSED}
        )
        code = came.code if isinstance(came, Problem) else None
        if code not in _PROVOKED:
            session.judge_answer(request, exchange, came)
            return
        if code is ErrorCode.TOOL_PAUSED:
            break
        time.sleep(wait_seconds(came))
    session.fail(
        Fault(
            rules=(rule,),
            what=f"a `{request.action}`, when the control was told that it may be decided",
            expected="a decision of section 6",
            got=str(code),
        )
    )


def _paused(run: Run, controls: Controls) -> None:
    """WC-ERR-7: every claim is refused; what is in flight may still be decided."""
    cast, held, untouched = Cast(), run.session(), run.session()
    held.send(cast.claim(cast.ann))
    paused = controls.pause(True)
    rules = ("WC-ERR-7", "WC-CTL-2")
    for session in (held, untouched):
        session.noted([paused])
    _expect(run, held, cast.claim(cast.ann), ErrorCode.TOOL_PAUSED, rules)
    _expect(run, held, cast.claim(cast.bob), ErrorCode.TOOL_PAUSED, rules)
    _expect(run, untouched, cast.claim(cast.cy), ErrorCode.TOOL_PAUSED, rules)
    move = cast.move(cast.ann, 1, Stage.UNCERTAIN)
    for request in (move, Status(holder=cast.ann)):
        exchange, came = held.ask(held.body(request), expecting={ErrorCode.TOOL_PAUSED})
        # Refused as paused is allowed, and must have changed nothing.
        if not (isinstance(came, Problem) and came.code is ErrorCode.TOOL_PAUSED):
            held.judge_answer(request, exchange, came)
    resumed = controls.pause(False)
    for session in (held, untouched):
        session.noted([resumed])
    _works(held, Status(holder=cast.ann), "WC-CTL-2")
    _works(held, move, "WC-CTL-2")
    _works(untouched, Status(), "WC-CTL-2")
    _works(untouched, cast.claim(cast.cy), "WC-CTL-2")
    run.tally.hit("WC-ERR-4", "WC-CTL-2")


def _limited(run: Run, controls: Controls) -> None:
    """WC-CTL-3: so many more are admitted, then none, then all again."""
    cast, session, code = Cast(), run.session(), ErrorCode.RATE_LIMITED
    session.send(cast.claim(cast.ann))
    for admitted in (2, 1, 0):
        session.noted([controls.rate_limit(admitted)])
        for _ in range(admitted):
            _works(session, Status(holder=cast.ann), "WC-CTL-3", code)
        refused: list[Request] = [
            Abandon(holder=cast.ann, generation=1),
            cast.move(cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ),
            cast.claim(cast.bob),
        ]
        for request in refused:
            _expect(run, session, request, code, ("WC-CTL-3",))
    session.noted([controls.rate_limit(None)])
    for _ in range(3):
        _works(session, Status(holder=cast.ann), "WC-CTL-3", code)
    run.tally.hit("WC-ERR-4", "WC-CTL-3")


def _unavailable(run: Run, controls: Controls) -> None:
    """WC-CTL-4: nothing is applied and the health says so, until it is back."""
    cast, session, code = Cast(), run.session(), ErrorCode.DEPENDENCY_UNAVAILABLE
    session.send(cast.claim(cast.ann))
    session.noted([controls.dependency(False)])
    requests: list[Request] = [
        Abandon(holder=cast.ann, generation=1),
        cast.claim(cast.bob),
        Status(holder=cast.ann),
    ]
    for request in requests:
        _expect(run, session, request, code, ("WC-CTL-4",))
    expect_health(run, 503, session)
    session.noted([controls.dependency(True)])
    # The tool first: a health of 503 breaks nothing while that says that the store is away.
    _works(session, Status(holder=cast.ann), "WC-CTL-4", code)
    expect_health(run, 200, session, ("WC-CTL-4", "WC-HTTP-3"))
    run.tally.hit("WC-CTL-4")


def _expect_ms(
    run: Run,
    session: Session,
    rule: str,
    what: str,
    elapsed_ms: float,
    between_ms: tuple[float, float],
) -> None:
    """Hold the time between two looks at a clock against what may have passed.

    Raises:
        ViolationError: it is another one.
    """
    least_ms, most_ms = between_ms
    if not least_ms <= elapsed_ms <= most_ms + RUNNING_TOLERANCE_MS:
        session.fail(
            Fault(
                rules=(rule,),
                what=what,
                expected=f"about {least_ms:.0f} ms",
                got=f"{elapsed_ms:.0f} ms",
            )
        )
    run.tally.hit(rule)


def _clock_runs(run: Run, controls: Controls) -> None:
    """WC-CTL-1 for a clock that runs: it goes on by itself, can be shifted, stopped and let go."""
    session = run.session()
    expect = partial(_expect_ms, run, session, "WC-CTL-1")

    def elapsed(since: float) -> float:
        return (time.monotonic() - since) * 1000

    began = time.monotonic()
    first_ms = controls.now_ms()
    shifted_ms = controls.shift(60_000)
    expect(
        "the running clock, shifted by 60 s",
        shifted_ms - first_ms,
        (60_000, 60_000 + elapsed(began)),
    )
    shifted_ms = controls.shift(-60_000)
    expect("the running clock, shifted back", shifted_ms - first_ms, (-1, elapsed(began)))
    frozen, sent = controls.freeze()
    session.noted([sent])
    stopped_ms = controls.now_ms()
    expect("the frozen clock, read again", stopped_ms - frozen.now_ms, (0, 0))
    controls.advance(frozen, 5_000)
    began = time.monotonic()
    on_ms = controls.run_on()
    expect("the clock, running on from where it stood", on_ms - frozen.now_ms, (0, elapsed(began)))
    time.sleep(RUNS_ON_SECONDS)
    later_ms = controls.now_ms()
    expect("the clock, 50 ms after it ran on", later_ms - on_ms, (45, elapsed(began)))
    # The tool's own answers go by the clock that the controls show.
    cast, session.oracle.clock = Cast(), RunningClock()
    told = session.send(cast.claim(cast.ann))
    expect(
        "observed_at, against the controls' clock",
        parse_timestamp(told.members["observed_at"]) - later_ms,
        (0, elapsed(began)),
    )


def _requests(cast: Cast) -> dict[str, Request]:
    """One of each action, of the holder."""
    return {
        "abandon": Abandon(holder=cast.ann, generation=1),
        "move": cast.move(cast.ann, 1, Stage.UNCERTAIN),
        "claim": cast.claim(cast.ann),
        "status": Status(holder=cast.ann),
    }


def _clock_back(run: Run, _: Controls) -> None:
    """WC-TIME-4: a clock that was set back does not move a step before the last change.

    ``observed_at`` then stands at the change, while the clock that the controls show does not,
    so what the oracle is told is the time that the rule asks for.
    """
    with run.frozen() as clock:
        # An abandon is a change as well, and a later one than the claim.
        for action, change in (
            *((action, None) for action in ("abandon", "move", "claim", "status")),
            ("status", "abandon"),
            ("status", "move"),
        ):
            cast, session = Cast(), run.session()
            session.send(cast.claim(cast.ann))
            if change is not None:
                run.advance(1_000, session)
                session.send(_requests(cast)[change])
            now_ms = clock.now_ms
            run.advance(-5_000, session)
            session.moves = None
            shown_ms, clock.now_ms = clock.now_ms, now_ms
            try:
                session.send(_requests(cast)[action])
                session.send(Status(holder=cast.ann))
            finally:
                clock.now_ms = shown_ms
            run.tally.hit("WC-TIME-4")
            # Another workflow has no change to be held at: it sees the clock as it stands.
            run.session().send(cast.claim(cast.bob))
            run.advance(5_000)


def _clock_stands(run: Run, _: Controls) -> None:
    """WC-CTL-6: a record does not vanish under a clock that stands still.

    One made before the clock was frozen and one after, each of two seconds; both are left alone
    for longer than that by any other clock.
    """
    cast = Cast()
    claim = cast.claim(cast.ann, claim_ttl_seconds=1, state_ttl_seconds=2)
    before = run.session()
    before.send(claim)
    with run.frozen() as clock:
        frozen_at_ms = clock.now_ms
        after = run.session()
        after.send(claim)
        time.sleep(STANDING_SECONDS)
        before.oracle.clock = clock
        for session in (before, after):
            session.moves = None
            exchange, came = session.ask(session.body(Status(holder=cast.ann)))
            gone = isinstance(came, Problem) and came.code is ErrorCode.CHECKPOINT_NOT_FOUND
            record = session.oracle.record
            assert record is not None
            if gone and frozen_at_ms < record.state_expires_at_ms:
                session.fail(
                    Fault(
                        rules=("WC-CTL-6", "WC-TIME-2"),
                        what=f"a record of 2 s, {STANDING_SECONDS} s later, its clock frozen",
                        expected="a result: by the frozen clock it still exists",
                        got=str(ErrorCode.CHECKPOINT_NOT_FOUND),
                    )
                )
            session.judge_answer(Status(holder=cast.ann), exchange, came)
    run.tally.hit("WC-CTL-6")


def _reset(run: Run, controls: Controls) -> None:
    """WC-CTL-5: clock, pause, limit and dependency as at the start."""
    cast, session, rule = Cast(), run.session(), "WC-CTL-5"
    # From a clock that nobody moved: what an earlier reset left ahead, this one leaves there too.
    session.noted([controls.reset()])
    began, began_ms = time.monotonic(), controls.now_ms()
    clock = controls.raw("/clock", json.dumps({"advance_ms": 3_600_000, "freeze": True}).encode())
    session.noted([as_sent(clock, None, on_controls=True)])
    session.noted([controls.pause(True), controls.rate_limit(0), controls.dependency(False)])
    session.noted([controls.reset()])
    # A status first: after DEPENDENCY_UNAVAILABLE nobody would know of a claim.
    _works(session, Status(holder=cast.ann), rule, *_PROVOKED)
    expect_health(run, 200, session, (rule, "WC-HTTP-3"))
    _works(session, cast.claim(cast.ann), rule, ErrorCode.RATE_LIMITED)
    # Judged by no clock that was seen before: each check may have its own idea of it.
    reset_ms = controls.now_ms()
    elapsed = (time.monotonic() - began) * 1000
    _expect_ms(
        run,
        session,
        rule,
        "the clock after the reset, to what it was before it was shifted",
        reset_ms - began_ms,
        (0, elapsed),
    )
    began = time.monotonic()
    time.sleep(RUNS_ON_SECONDS)
    _expect_ms(
        run,
        session,
        rule,
        "the clock, 50 ms after the reset",
        controls.now_ms() - reset_ms,
        (45, (time.monotonic() - began) * 1000),
    )


def _refused(run: Run, controls: Controls, path: str, body: bytes) -> None:
    """400 without a code where the members are not as the table says."""
    exchange = controls.tell(path, body)
    session = run.session()
    session.noted([as_sent(exchange, None, on_controls=True)])
    answer = exchange.answer
    if not isinstance(answer, HttpAnswer):
        run.tally.lose(answer.reason, f"the control POST {path}")
        return
    if answer.status != 400 or "code" in (json_object(answer.body) or {}):
        session.fail(
            Fault(
                rules=(_RULES[path],),
                what=f"POST {path} with {body.decode()}",
                expected="400 without a code",
                got=session.sequence[-1].answered,
            )
        )


CHECKS = (
    Check(
        name="controls",
        title="Pause, rate limit, lost store, clock",
        run=control_checks,
        needs_controls=True,
        seconds=3,
        waits=True,
    ),
)
