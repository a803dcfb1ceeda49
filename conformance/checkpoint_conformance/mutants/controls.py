"""Mutants of the test controls."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from checkpoint_conformance.checks import controls, walk
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.mutant import BeforeControls, Kind, Mutant, Part, always
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper

HOUR_MS: Final = 3_600_000


def _clock_ignores_advance(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == "/clock" and "advance_ms" in message.json:
        return forward(message.with_json(advance_ms=0))
    return forward(message)


def _control_does_nothing(path: str) -> Tamper:
    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == path and forward(message).status == 200:
            forward(Message(method="POST", path="/reset", headers=message.headers, body=b"{}"))
            return HttpAnswer(status=200, headers=(), body=b"{}")
        return forward(message)

    return tamper


def _reset_leaves_the_store_away() -> Tamper:
    away = [False]

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.path == "/dependency" and answer.status == 200:
            away[0] = message.json["available"] is False
        elif message.path == "/reset" and away[0]:
            forward(replace(message, path="/dependency", body=b'{"available": false}'))
        return answer

    return tamper


def _reset_but_for_the_clock(clock: bytes) -> Tamper:
    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if message.path == "/reset" and answer.status == 200 and shifted[0]:
            shifted[0] = False
            forward(replace(message, path="/clock", body=clock))
        elif message.path == "/clock" and answer.status == 200:
            shifted[0] |= message.json.get("advance_ms", 0) >= HOUR_MS
        return answer

    shifted = [False]
    return tamper


def _controls_take_anything(message: Message, forward: Forward) -> HttpAnswer:
    answer = forward(message)
    return replace(answer, status=200, body=b"{}") if answer.status == 400 else answer


def _frozen_for_good(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == "/clock" and message.json.get("freeze") is False:
        return forward(message.with_json(freeze=True))
    return forward(message)


def _shifts_only_when_frozen() -> Tamper:
    frozen: list[bool] = [False]

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        if message.path == "/reset":
            frozen[0] = False
        if message.path == "/clock":
            frozen[0] = message.json.get("freeze", frozen[0])
            if not frozen[0] and "advance_ms" in message.json:
                return forward(message.with_json(advance_ms=0))
        return forward(message)

    return tamper


def _admits_one_less(message: Message, forward: Forward) -> HttpAnswer:
    remaining = message.json.get("remaining")
    if message.path == "/rate-limit" and remaining:
        return forward(message.with_json(remaining=remaining - 1))
    return forward(message)


def _limits_for_good(message: Message, forward: Forward) -> HttpAnswer:
    if message.path == "/rate-limit" and message.json.get("remaining", 0) is None:
        return replace(forward(replace(message, path="/clock", body=b"{}")), body=b"{}")
    return forward(message)


def _mutant(name: str, wrong: str, make: Callable[[], Tamper], part: Part, *rules: str) -> Mutant:
    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.CONTROL,
        fault=BeforeControls(make),
        rules=rules,
        part=part,
    )


CONTROLS: tuple[Mutant, ...] = (
    _mutant(
        "the-clock-stays",
        "Answers that the clock advanced, and leaves it.",
        always(_clock_ignores_advance),
        walk.walk_frozen,
        "WC-CTL-1",
    ),
    _mutant(
        "pause-does-nothing",
        "Answers that the tool is paused, and goes on.",
        always(_control_does_nothing("/pause")),
        controls.control_checks,
        "WC-ERR-7",
        "WC-CTL-2",
    ),
    _mutant(
        "rate-limit-does-nothing",
        "Answers that the rate is limited, and admits everything.",
        always(_control_does_nothing("/rate-limit")),
        controls.control_checks,
        "WC-CTL-3",
    ),
    _mutant(
        "dependency-does-nothing",
        "Answers that the store is away, and goes on.",
        always(_control_does_nothing("/dependency")),
        controls.control_checks,
        "WC-CTL-4",
    ),
    _mutant(
        "reset-leaves-the-store-away",
        "Resets all but the dependency.",
        _reset_leaves_the_store_away,
        controls.control_checks,
        "WC-CTL-5",
    ),
    _mutant(
        "reset-leaves-the-clock-ahead",
        "Resets all but a shift of the clock by an hour or more.",
        lambda: _reset_but_for_the_clock(b'{"advance_ms": %d}' % HOUR_MS),
        controls.control_checks,
        "WC-CTL-5",
    ),
    _mutant(
        "reset-leaves-the-clock-standing",
        "Sets a frozen clock right at a reset, and does not let it run on.",
        lambda: _reset_but_for_the_clock(b'{"freeze": true}'),
        controls.control_checks,
        "WC-CTL-5",
    ),
    _mutant(
        "controls-take-anything",
        "Answers 200 to bodies that no control has.",
        always(_controls_take_anything),
        controls.control_checks,
        "WC-CTL-1",
    ),
    _mutant(
        "frozen-for-good",
        "Lets a frozen clock never run on.",
        always(_frozen_for_good),
        controls.control_checks,
        "WC-CTL-1",
    ),
    _mutant(
        "shifts-only-when-frozen",
        "Shifts the clock only while it is frozen.",
        _shifts_only_when_frozen,
        controls.control_checks,
        "WC-CTL-1",
    ),
    _mutant(
        "admits-one-less",
        "Admits one request less than it was told.",
        always(_admits_one_less),
        controls.control_checks,
        "WC-CTL-3",
    ),
    _mutant(
        "limits-for-good",
        "Never lifts the rate limit.",
        always(_limits_for_good),
        controls.control_checks,
        "WC-CTL-3",
    ),
)
