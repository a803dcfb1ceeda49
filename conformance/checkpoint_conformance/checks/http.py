"""Sections 4, 9 and 11 where no sequence is needed: identities, headers, methods, paths, health."""

import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NoReturn

from checkpoint_conformance.answers import Fault, Result, json_object
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import Headers
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import (
    LostError,
    Session,
    ViolationError,
    fresh_identity,
    fresh_key,
)
from checkpoint_model import Abandon, EvidenceType, Identity, Request, Stage, Status, format_request
from checkpoint_model.vocabulary import HEALTH_PATH, TOOL_PATH

COMPARISONS: Final = 10
"""How often a sequence is sent without the header before the header is blamed."""
_METHODS: Final = ("GET", "HEAD", "PUT", "PATCH", "DELETE")
_MOMENT_SECONDS: Final = 0.002
"""Longer than a clock of whole milliseconds can stand still."""
_PATHS: Final = ("/nothing-here", TOOL_PATH + "/more", "/v1/tools/another-tool")


def identities(run: Run) -> None:
    """WC-ID-3: identities that are easily confused have different hashes and records."""
    pairs = [
        # The same text when namespace and key are put together …
        (("{scope}", "w_w_{unique}"), ("{scope}w_", "w_{unique}")),
        # … with a separator that somebody may have thought of …
        (("{scope}", "w_{unique}"), ("{scope}:", "w_{unique}")),
        (("{scope}", "w_{unique}"), ("{scope}/", "w_{unique}")),
        # … in another case, and in another namespace alone …
        (("{scope}", "w_a{unique}"), ("{scope}", "w_A{unique}")),
        (("{scope}", "w_{unique}a"), ("{scope}", "w_{unique}A")),
        (("a{scope}", "w_{unique}"), ("A{scope}", "w_{unique}")),
        (("{scope}-a", "w_{unique}"), ("{scope}-b", "w_{unique}")),
        # … and in the last character of the longest that there are.
        (("{scope:-<127}a", "w_{unique}"), ("{scope:-<127}b", "w_{unique}")),
        (("{scope}", "w_{unique:-<63}a"), ("{scope}", "w_{unique:-<63}b")),
    ]
    for pair in pairs:
        run.attempt(_are_apart, run, pair)


def _are_apart(run: Run, pair: Iterable[tuple[str, str]]) -> None:
    cast = Cast()
    fresh = {"scope": fresh_identity().namespace, "unique": fresh_key("w")[2:]}
    hashes: list[object] = []
    for namespace, key in pair:
        session = run.session()
        session.rename(
            Identity(namespace=namespace.format(**fresh), workflow_key=key.format(**fresh))
        )
        # The oracle expects a record of its own for each; the namespaces are fresh. One that is
        # there already is first of all the other identity's.
        exchange, came = session.ask(session.body(Status()))
        if isinstance(came, Result) and came.members.get("workflow_hash") in hashes:
            _are_one(session, hashes[0], "WC-STATUS-1")
        session.judge_answer(Status(), exchange, came)
        told = session.send(cast.claim(cast.ann))
        hashes.append(told.members.get("workflow_hash"))
    if hashes[0] == hashes[1]:
        _are_one(session, hashes[0])
    run.tally.hit("WC-ID-3")


def _are_one(session: Session, workflow_hash: object, *also: str) -> NoReturn:
    session.fail(
        Fault(
            rules=("WC-ID-3", *also),
            what="two identities have the same workflow_hash",
            expected="different hashes for different identities",
            got=str(workflow_hash),
        )
    )


def names_in_full(run: Run) -> None:
    """Holders and observation keys are told apart to their last character, and by case."""
    stem = fresh_key("x")[2:] + fresh_key("x")[2:][:31]
    for one, other in [
        (stem + "a", stem + "b"),
        (stem + "a", stem + "A"),
        ("A" + stem, "a" + stem),
    ]:
        with run.guarded():
            cast, session = Cast(), run.session()
            session.send(cast.claim("h_" + one))
            session.send(cast.claim("h_" + other))
            session.send(cast.move("h_" + other, 1, Stage.UNCERTAIN))
            session.send(cast.move("h_" + one, 1, Stage.UNCERTAIN, key="o_" + one))
            verified = EvidenceType.EXTERNAL_READ
            session.send(
                cast.move("h_" + one, 1, Stage.CALLER_VERIFIED, verified, key="o_" + other)
            )


def idempotency_key(run: Run) -> None:
    """WC-IDEM-2: the header changes nothing, neither repeated nor renewed."""
    try:
        _repeated(run, (), ())
        try:
            _repeated(run, (("idempotency-key", "k" * 255),), (("idempotency-key", "!~"),))
        except ViolationError as error:
            # A fault that shows now and then may have waited for this moment: a claim that is
            # renewed differs only when a millisecond has passed. What shows without the header
            # as well is no fault of the header.
            for _ in range(COMPARISONS):
                _repeated(run, (), ())
            fault = error.failure.fault
            blamed = replace(fault, rules=("WC-IDEM-2", *fault.rules))
            run.tally.fail(replace(error.failure, fault=blamed))
            return
    except ViolationError as error:
        run.tally.fail(error.failure)
    except LostError:
        run.tally.leave_out("an answer that Idempotency-Key is compared with was lost")
    else:
        run.tally.hit(*["WC-IDEM-2"] * 5)


def _repeated(run: Run, same: Headers, other: Headers) -> None:
    """The same request with the same header, which a cache would answer with its first answer;
    another request with that header; the same request with another.

    Each a moment after the one before: what is wrong without the header as well, such as a claim
    that is renewed, would otherwise show in some rounds only, and be blamed on the header.
    """
    cast, session = Cast(), run.session()

    def send(request: Request, headers: Headers) -> None:
        time.sleep(_MOMENT_SECONDS)
        session.send(request, headers=headers)

    doubt = cast.move(cast.ann, 1, Stage.UNCERTAIN)
    abandon = Abandon(holder=cast.ann, generation=1)
    for request in (cast.claim(cast.ann), doubt):
        send(request, same)
        send(request, same)
    send(cast.claim(cast.bob), same)
    send(doubt, other)
    send(Status(holder=cast.ann), same)
    send(abandon, same)
    send(Status(holder=cast.ann), same)
    send(abandon, same)


def methods_and_paths(run: Run) -> None:
    """WC-HTTP-2 and WC-ERR-9: other methods 405 with Allow, unknown paths 404, no code."""
    for method in _METHODS:
        run.attempt(_plain, run, method, TOOL_PATH, 405, "WC-HTTP-2")
    for path in _PATHS:
        run.attempt(_plain, run, "POST", path, 404, "WC-HTTP-2")


def _plain(run: Run, method: str, path: str, status: int, rule: str) -> None:
    """Send a whole request where none is taken; nothing of it may come back (WC-PRIV-1)."""
    cast, session = Cast(), run.session()
    request = format_request(session.identity, cast.move(cast.ann, 1, Stage.UNCERTAIN))
    session.know(request)
    body = json.dumps(request).encode() if method in ("POST", "PUT", "PATCH") else b""
    if status == 404:
        # Not those of the body: an access log may well show a path that there is not.
        key, holder = f"w_{secrets.token_hex(16)}", f"h_{secrets.token_hex(16)}"
        session.know({"workflow_key": key, "holder": holder}, in_logs=False)
        path += f"/{key}?holder={holder}"
    answer = session.expect(status, (rule,), method, path, body)
    allowed = {word.strip().upper() for word in (answer.header("allow") or "").split(",")}
    if status == 405 and not ("POST" in allowed and allowed <= {"POST", "OPTIONS"}):
        session.fail(
            Fault(
                rules=(rule,),
                what=f"the Allow header of {method} {path}",
                expected="POST",
                got=repr(answer.header("allow")),
            )
        )
    if "code" in (json_object(answer.body) or {}):
        session.fail(
            Fault(
                rules=("WC-ERR-9",),
                what=f"{method} {path} is no error of section 8",
                expected="an answer without `code`",
                got=session.sequence[-1].answered,
            )
        )
    run.tally.hit(rule, "WC-ERR-9")


def health(run: Run) -> None:
    """WC-HTTP-3, while the store answers."""
    run.attempt(expect_health, run, 200)


def expect_health(
    run: Run,
    status: int,
    session: Session | None = None,
    rules: tuple[str, ...] = ("WC-HTTP-3",),
) -> None:
    """Ask for the health and hold its status; ``rules`` are blamed for another.

    Raises as :meth:`Session.expect` does.
    """
    session = session or run.session()
    session.expect(status, rules, "GET", HEALTH_PATH)
    run.tally.hit("WC-HTTP-3")


def http_checks(run: Run) -> None:
    """All of them."""
    identities(run)
    names_in_full(run)
    idempotency_key(run)
    methods_and_paths(run)
    health(run)


CHECKS = (Check(name="http", title="Identities, headers, methods and paths", run=http_checks),)
