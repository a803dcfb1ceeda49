"""Sections 4, 9 and 11 where no sequence is needed: identities, headers, methods, paths, health."""

from typing import Final

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session, fresh_identity, fresh_key, json_members
from checkpoint_model import EvidenceType, Identity, Stage, Status
from checkpoint_model.vocabulary import HEALTH_PATH, TOOL_PATH

_METHODS: Final = ("GET", "HEAD", "PUT", "PATCH", "DELETE")
_PATHS: Final = ("/nothing-here", TOOL_PATH + "/more", "/v1/tools/another-tool")


def identities(run: Run) -> None:
    """WC-ID-3: identities that are easily confused have different hashes and records."""
    pairs = [
        # The same text when namespace and key are put together …
        (("", "w_w_"), ("w_", "w_")),
        # … with a separator that somebody may have thought of …
        (("", "w_"), (":", "w_")),
        (("", "w_"), ("/", "w_")),
        # … in another case, and in another namespace alone.
        (("", "w_a"), ("", "w_A")),
        (("-a", "w_"), ("-b", "w_")),
    ]
    for (one_suffix, one_prefix), (other_suffix, other_prefix) in pairs:
        scope, unique = fresh_identity().namespace, fresh_key("w")[2:]
        one = Identity(namespace=scope + one_suffix, workflow_key=one_prefix + unique)
        other = Identity(namespace=scope + other_suffix, workflow_key=other_prefix + unique)
        with run.guarded():
            _are_apart(run, one, other)


def _are_apart(run: Run, one: Identity, other: Identity) -> None:
    cast = Cast()
    hashes = []
    for identity in (one, other):
        session = run.session()
        session.rename(identity)
        # The oracle expects a record of its own for each; the namespaces are fresh.
        session.send(Status())
        told = session.send(cast.claim(cast.ann))
        hashes.append(told.members.get("workflow_hash"))
    if hashes[0] == hashes[1]:
        session.fail(
            Fault(
                rules=("WC-ID-3",),
                what="two identities have the same workflow_hash",
                expected="different hashes for different identities",
                got=str(hashes[0]),
            )
        )
    run.tally.hit("WC-ID-3")


def idempotency_key(run: Run) -> None:
    """WC-IDEM-2: the header changes nothing, neither repeated nor renewed."""
    with run.guarded():
        cast, session = Cast(), run.session()
        header = {"idempotency-key": "k" * 255}
        session.send(cast.claim(cast.ann), headers=header)
        # Another request under the same key, then the same request under another key.
        session.send(cast.claim(cast.bob), headers=header)
        move = cast.move(cast.ann, 1, Stage.CALLER_VERIFIED, EvidenceType.EXTERNAL_READ)
        session.send(move, headers=header)
        session.send(move, headers={"idempotency-key": "!~"})
        session.send(Status(), headers=header)
        run.tally.hit(*["WC-IDEM-2"] * 5)


def methods_and_paths(run: Run) -> None:
    """WC-HTTP-2 and WC-ERR-9: other methods 405 with Allow, unknown paths 404, no code."""
    for method in _METHODS:
        with run.guarded():
            body = b"{}" if method in ("PUT", "PATCH") else b""
            _plain(run, method, TOOL_PATH, body, 405, "WC-HTTP-2")
    for path in _PATHS:
        with run.guarded():
            _plain(run, "POST", path, b"{}", 404, "WC-HTTP-2")


def _plain(run: Run, method: str, path: str, body: bytes, status: int, rule: str) -> None:
    session = run.session()
    exchange, answer = session.http(method, path, body)
    if answer.status != status:
        session.fail(
            Fault(
                rules=(rule,),
                what=f"{method} {path}",
                expected=str(status),
                got=session.sequence[-1].answered,
            )
        )
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
    if "code" in (json_members(exchange) or {}):
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
    with run.guarded():
        expect_health(run, 200)


def expect_health(
    run: Run,
    status: int,
    session: Session | None = None,
    rules: tuple[str, ...] = ("WC-HTTP-3",),
) -> None:
    """Ask for the health and hold its status; ``rules`` are blamed for another.

    Raises:
        ViolationError: it is another.
    """
    session = session or run.session()
    _, answer = session.http("GET", HEALTH_PATH)
    if answer.status != status:
        session.fail(
            Fault(
                rules=rules,
                what=f"GET {HEALTH_PATH}",
                expected=str(status),
                got=session.sequence[-1].answered,
            )
        )
    run.tally.hit("WC-HTTP-3")


def http_checks(run: Run) -> None:
    """All of them."""
    identities(run)
    idempotency_key(run)
    methods_and_paths(run)
    health(run)


CHECKS = (Check(name="http", title="Identities, headers, methods and paths", run=http_checks),)
