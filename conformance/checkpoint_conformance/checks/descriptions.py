"""Section 13: what a deployment publishes of itself, held against the contract and what it serves.

Descriptions are compared by what they do and name, never by their words: those are free.
"""

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from checkpoint_conformance import openapi
from checkpoint_conformance.acceptance import (
    Probe,
    SchemaError,
    compile_schema,
    differing,
    problem_probes,
    request_probes,
    result_probes,
    vocabulary,
)
from checkpoint_conformance.answers import Fault, Problem, Result, json_object
from checkpoint_conformance.checks.example import MOVING
from checkpoint_conformance.checks.mcp import spoken_to, tool_of
from checkpoint_conformance.mcp_client import Revision
from checkpoint_conformance.rules import RuleClass
from checkpoint_conformance.run import Check, Run
from checkpoint_conformance.session import Session
from checkpoint_model import CONTRACT_LIMITS, CONTRACT_VERSION, ERRORS, MOVES, ErrorCode, schemas
from checkpoint_model.vocabulary import (
    ARD_PATH,
    BODY_BYTES_MAX,
    LLMS_PATH,
    MANIFEST_PATH,
    MCP_PATH,
    OPENAPI_PATH,
    TOOL_PATH,
)

_JSON: Final = "application/json"
_MOMENTARY: Final = MOVING | {"workflow_hash"}
"""What an example's response need not repeat (WC-REG-3)."""
_OWED: Final = ("held_by_caller", "recovery_required")
"""The members of a result that section 1's duties are about; its wording is free."""
_OF_THIS_TOOL: Final = re.compile("workflow[-_]checkpoint")
_OPEN: Final = frozenset(
    {"input_schema", "output_schema", "error_schema", "request", "response", "given"}
)
"""Members of the manifest whose own members are another matter."""
_NOT_SERVED: Final = frozenset({404, 405, 501})
_STRINGS: Final[dict[str, Any]] = {"type": "array", "items": {"type": "string"}}
_ARD: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["entries"],
    "properties": {
        "entries": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["identifier", "displayName", "type"],
                "properties": {
                    "identifier": {"pattern": "^urn:air:[A-Za-z0-9.-]+(:[A-Za-z0-9._-]+)+$"},
                    "displayName": {"type": "string"},
                    "type": {"type": "string"},
                    "url": {"type": "string"},
                    "data": {"type": "object"},
                    "description": {"type": "string"},
                    "version": {"type": "string"},
                    "tags": _STRINGS,
                    "capabilities": _STRINGS,
                    "representativeQueries": _STRINGS,
                    "metadata": {"type": "object"},
                },
                "oneOf": [{"required": ["url"]}, {"required": ["data"]}],
            },
        },
    },
}
"""What ARD 0.91 asks of a manifest, as far as a server of this contract has to do with it."""


@dataclass(kw_only=True)
class _Published:
    """What a deployment says of itself, as far as it could be had."""

    manifest: dict[str, Any] = field(default_factory=dict)
    openapi: dict[str, Any] = field(default_factory=dict)
    ard: dict[str, Any] = field(default_factory=dict)
    llms: str = ""
    tool: dict[str, Any] = field(default_factory=dict)
    server_info: Mapping[str, Any] | None = None
    """What the server says of itself when it lets an MCP client in; None where it does not."""


class _Looking:
    """One document looked at: what is wrong goes to the tally, the rest counts as a hit."""

    def __init__(self, run: Run, session: Session, rule: str) -> None:
        self.run, self.session, self.rule = run, session, rule
        self.fine = True

    def wrong(self, what: str, expected: object, got: object, *also: str) -> None:
        """Report a fault."""
        self.fine = False
        fault = Fault(rules=(self.rule, *also), what=what, expected=_told(expected), got=_told(got))
        self.session.report(fault)

    def same(self, what: str, expected: object, got: object) -> None:
        """Report a difference, if there is one."""
        if expected != got or type(expected) is not type(got):
            self.wrong(what, expected, got)

    def accepts(self, what: str, schema: object, probes: Iterable[Probe], *also: str) -> None:
        """Report the first request or answer that a schema decides otherwise than the contract."""
        try:
            probe = next(differing(schema, probes), None)
        except SchemaError as error:
            self.wrong(what, "a JSON Schema", str(error), *also)
            return
        if probe is not None:
            expected, got = ("accepts", "refuses") if probe.accepted else ("refuses", "accepts")
            told = f"what {what} does with {probe.what}: {probe.told}"
            self.wrong(told, f"it {expected} it", f"it {got} it", *also)

    def done(self) -> None:
        """Count the rule, if nothing was wrong."""
        if self.fine:
            self.run.tally.hit(self.rule)


def description_checks(run: Run) -> None:
    """Fetch every description, then hold each against the contract, the others and the server."""
    published, session = _Published(), run.session()
    manifest = _Looking(run, session, "WC-REG-4")
    served = _Looking(run, session, "WC-REG-6")
    llms = _Looking(run, session, "WC-REG-5")
    published.manifest = run.attempt(_fetch, manifest, MANIFEST_PATH) or {}
    published.openapi = run.attempt(_fetch, served, OPENAPI_PATH) or {}
    published.ard = run.attempt(_fetch, served, ARD_PATH) or {}
    published.llms = (run.attempt(_fetch_text, llms, LLMS_PATH) or b"").decode("utf-8", "replace")
    if _has_mcp(run):
        published.tool = run.attempt(tool_of, run, session) or {}
        published.server_info = run.attempt(_server_info, run, session)
    if published.manifest:
        _manifest(manifest, published)
        manifest.done()
        _examples(run, published.manifest)
    if published.openapi:
        openapi.point(published.openapi)
        _openapi(served, published.openapi)
    if published.ard:
        _ard(served, published.ard)
    if published.openapi and published.ard:
        served.done()
    if published.llms:
        _llms(llms, published.llms)
        llms.done()
    _versions(_Looking(run, session, "WC-REG-2"), published)
    _requests(_Looking(run, session, "WC-REG-1"), published)


# -- having them --------------------------------------------------------------------------


def _fetch_text(looking: _Looking, path: str) -> bytes:
    answer = looking.session.expect(200, (looking.rule,), "GET", path)
    if not answer.body:
        looking.wrong(f"GET {path}", "a description", "nothing")
    return answer.body


def _fetch(looking: _Looking, path: str) -> dict[str, Any]:
    body = _fetch_text(looking, path)
    members = json_object(body)
    if body and not members:
        got = body[:80].decode("utf-8", "replace")
        looking.wrong(f"GET {path}", "a JSON object with members", got)
    return members or {}


def _server_info(run: Run, session: Session) -> Mapping[str, Any]:
    """The server's own words, which only a handshake is sure to have."""
    revision = Revision.NOVEMBER_2025
    with spoken_to(session, f"a client of protocol revision {revision}", "it is let in"):
        return run.target.endpoint().meet(revision).server_info


# -- WC-REG-4 -----------------------------------------------------------------------------


def _manifest(looking: _Looking, published: _Published) -> None:
    manifest = published.manifest
    for what, expected, got in _kinds(schemas.load("manifest.example.json"), manifest, ""):
        looking.wrong(f"the manifest's {what}", expected, got)
    if not looking.fine:
        return
    if published.tool:
        looking.same(
            "the manifest's `mcp`, where the binding is offered", True, bool(manifest["mcp"])
        )
    # In whatever order: the contract has none for them.
    looking.same("the manifest's stages", sorted(map(str, MOVES)), sorted(manifest["stages"]))
    looking.same("the manifest's graph", _graph(), _graph_of(manifest["graph"]))
    looking.same("the manifest's limits", _limits(), manifest["limits"])
    errors = {
        error["code"]: (error["http_status"], error["retry"], error["charged"])
        for error in manifest["errors"]
    }
    table = {str(code): (row.http_statuses[0], row.retry, False) for code, row in ERRORS.items()}
    looking.same("the manifest's errors", table, errors)
    looking.accepts("the manifest's output_schema", manifest["output_schema"], result_probes())
    looking.accepts("the manifest's error_schema", manifest["error_schema"], problem_probes())


def _kinds(example: Any, got: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Where a document has other members than an example, or a member of another kind."""
    name = path.rpartition(".")[2].partition("[")[0]
    here = f"`{path}`" if path else "own members"
    if _kind(example) != _kind(got):
        if not (name == "mcp" and got is None):
            yield here, _kind(example), _kind(got)
    elif isinstance(example, dict):
        if name in _OPEN:
            return
        for member in example.keys() - got.keys():
            yield f"`{path}.{member}`".replace("`.", "`"), "a member", "none"
        for member in got.keys() - example.keys():
            yield f"`{path}.{member}`".replace("`.", "`"), "no such member", "one"
        for member in example.keys() & got.keys():
            yield from _kinds(example[member], got[member], f"{path}.{member}".lstrip("."))
    elif isinstance(example, list) and name not in _OPEN:
        for number, entry in enumerate(got):
            if example:
                like = example[min(number, len(example) - 1)]
                yield from _kinds(like, entry, f"{path}[{number}]")


def _kind(value: object) -> str:
    kinds = ((bool, "a boolean"), (int, "a number"), (float, "a number"), (str, "a string"))
    for of, name in kinds:
        if isinstance(value, of):
            return name
    return (
        "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "null"
    )


def _graph() -> dict[str, list[str]]:
    return {
        f"{source} → {target}": sorted(map(str, evidence))
        for source, targets in MOVES.items()
        for target, evidence in targets.items()
    }


def _graph_of(moves: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    # Sorted as text: of the one move that needs none the example does not tell of what kind it is.
    return {f"{move['from']} → {move['to']}": sorted(move["evidence"], key=_told) for move in moves}


def _limits() -> dict[str, object]:
    return {
        "generations": CONTRACT_LIMITS.generations,
        "observations": CONTRACT_LIMITS.observations,
        "claim_ttl_seconds": [*CONTRACT_LIMITS.claim_ttl_seconds],
        "state_ttl_seconds": [*CONTRACT_LIMITS.state_ttl_seconds],
        "body_bytes": BODY_BYTES_MAX,
    }


# -- WC-REG-3 -----------------------------------------------------------------------------


def _examples(run: Run, manifest: Mapping[str, Any]) -> None:
    examples = manifest.get("examples")
    for number, example in enumerate(examples if isinstance(examples, list) else ()):
        run.progress.advance(number, len(manifest["examples"]))
        run.attempt(_reproduced, run, example)


def _reproduced(run: Run, example: Any) -> None:
    session = run.session()
    if not isinstance(example, dict) or not isinstance(example.get("request"), dict):
        return  # WC-REG-4 has it
    keys: dict[object, str] = {}
    given = example.get("given")
    for body in (*(given if isinstance(given, list) else ()), example["request"]):
        if not isinstance(body, dict):
            session.fail(
                Fault(
                    rules=("WC-REG-3",),
                    what=f"the requests of the manifest's example «{example.get('name')}»",
                    expected="objects",
                    got=_told(body),
                )
            )
        whole = dict(body)
        if isinstance(whole.get("workflow_key"), str):
            key = whole["workflow_key"]
            whole["workflow_key"] = keys.setdefault(key, _fresh(key))
        _, came = session.ask(json.dumps(whole).encode())
    members = came.members if isinstance(came, Result | Problem) else {}
    response = example.get("response")
    wrong = {
        member: (expected, members.get(member, "(absent)"))
        for member, expected in (response if isinstance(response, dict) else {}).items()
        if member not in _MOMENTARY
        if member not in members or members[member] != expected
    }
    if wrong:
        session.fail(
            Fault(
                rules=("WC-REG-3",),
                what=f"the manifest's example «{example.get('name')}»",
                expected=_told({member: expected for member, (expected, _) in wrong.items()}),
                got=_told({member: got for member, (_, got) in wrong.items()}),
            )
        )
    run.tally.hit("WC-REG-3")


def _fresh(key: str) -> str:
    """A workflow key as long as another, that nobody has used; what is none is left alone."""
    if not re.fullmatch(r"w_[A-Za-z0-9_-]{16,64}", key):
        return key
    return "w_" + secrets.token_urlsafe(64)[: len(key) - 2]


# -- WC-REG-6 -----------------------------------------------------------------------------


def _openapi(looking: _Looking, document: dict[str, Any]) -> None:
    import jsonschema_rs
    import schemathesis

    if not str(document.get("openapi", "")).startswith("3.1."):
        looking.wrong("`openapi`", "3.1", document.get("openapi"))
        return
    try:
        schemathesis.openapi.from_dict(document).validate()
    except jsonschema_rs.ValidationError as error:
        where = "/".join(map(str, error.instance_path))
        looking.wrong(f"the OpenAPI document, at /{where}", "a valid one", error.message)
    except Exception as error:  # whatever a library makes of whatever a target serves
        looking.wrong("the OpenAPI document", "one that can be read", type(error).__name__)
    for problem in openapi.unresolved(document):
        looking.wrong("a reference in the OpenAPI document", "to a part of it", problem)
    operations = list(openapi.operations(document, looking.run.target.address))
    if not any(operation.is_the_tool for operation in operations):
        paths = document.get("paths")
        got = sorted(paths) if isinstance(paths, dict) else "no paths"
        looking.wrong("the paths of the OpenAPI document", f"POST {TOOL_PATH}", got)
    for operation in operations:
        if "{" not in operation.key:
            looking.run.attempt(
                _served, looking, operation.method, operation.places, "the OpenAPI document"
            )


def _served(looking: _Looking, method: str, places: Sequence[str], by: str) -> None:
    """See that something is there, in one of the places where it may be."""
    for place in places:
        path = quote(place, safe="/%:@!$&'()*+,;=~", errors="replace")
        _, answer = looking.session.http(method, path, b"{}" if method == "POST" else b"")
        if answer.status not in _NOT_SERVED:
            return
    looking.wrong(f"{method} {places[0]}, which {by} points at", "it is served", answer.status)


def _ard(looking: _Looking, manifest: dict[str, Any]) -> None:
    error = next(compile_schema(_ARD).iter_errors(manifest), None)
    if error is not None:
        where = "/".join(map(str, error.instance_path))
        looking.wrong(f"the ARD manifest, at /{where}", "a valid one", error.message)
        return
    entries = _entries(manifest)
    if not entries:
        looking.wrong("the entries of the ARD manifest", "one of this tool", "none")
    for url in {url for entry in entries for url in _urls(entry)}:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            looking.wrong("a URL in the ARD manifest", f"one that can be read ({error})", url)
            continue
        # Its host is the deployment's public one, which need not be how it is reached here.
        path = (parts.path or "/").removeprefix(looking.run.target.address.base_path)
        method = "POST" if path in (MCP_PATH, TOOL_PATH) else "GET"
        looking.run.attempt(_served, looking, method, (path,), "the ARD manifest")


def _entries(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of this tool; a deployment may publish others beside it."""
    entries = manifest.get("entries")
    return [
        entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and _OF_THIS_TOOL.search(json.dumps(entry))
    ]


def _urls(entry: Mapping[str, Any]) -> Iterator[str]:
    """Where an entry, or the card of an MCP server in it, says that something is served."""
    if isinstance(entry.get("url"), str):
        yield entry["url"]
    data = entry.get("data")
    remotes = data.get("remotes") if isinstance(data, dict) else None
    for remote in remotes if isinstance(remotes, list) else ():
        if isinstance(remote, dict) and isinstance(remote.get("url"), str):
            yield remote["url"]


def _has_mcp(run: Run) -> bool:
    return RuleClass.MCP in run.target.claimed_classes


# -- WC-REG-5, WC-REG-2, WC-REG-1 ---------------------------------------------------------


def _llms(looking: _Looking, text: str) -> None:
    endpoints = (TOOL_PATH, *((MCP_PATH,) if _has_mcp(looking.run) else ()))
    words = {
        **vocabulary(),
        "version": (CONTRACT_VERSION,),
        "endpoint": endpoints,
        "duty of callers": _OWED,
    }
    for kind, of_kind in words.items():
        missing = [word for word in of_kind if not _names(text, word)]
        if missing:
            looking.wrong(f"llms.txt names every {kind}", list(of_kind), f"no {', '.join(missing)}")


def _names(text: str, word: str) -> bool:
    # A path may follow a host, a word may not follow a letter.
    before = "" if word.startswith("/") else "(?<![A-Za-z0-9_])"
    if word == CONTRACT_VERSION:
        before += "[vV]?"
    return re.search(rf"{before}{re.escape(word)}(?![A-Za-z0-9_])", text) is not None


def _versions(looking: _Looking, published: _Published) -> None:
    info = published.openapi.get("info")
    said: dict[str, object] = {}
    if published.manifest:
        said["the manifest's `version`"] = published.manifest.get("version")
    if published.openapi:
        said["the OpenAPI document's `info.version`"] = (
            info.get("version") if isinstance(info, dict) else None
        )
    if published.ard:
        versions = {json.dumps(entry.get("version")) for entry in _entries(published.ard)}
        said["the `version` of the ARD manifest's entries"] = (
            json.loads(versions.pop()) if len(versions) == 1 else sorted(versions)
        )
    if published.server_info is not None:
        said["`serverInfo.version` over MCP"] = published.server_info.get("version")
    for what, version in said.items():
        looking.same(what, CONTRACT_VERSION, version)
    if published.llms and not _names(published.llms, CONTRACT_VERSION):
        looking.wrong("the version in llms.txt", CONTRACT_VERSION, "not named")
    if said:
        looking.done()


def _requests(looking: _Looking, published: _Published) -> None:
    probes = request_probes()
    if published.manifest:
        schema = published.manifest.get("input_schema")
        looking.accepts("the manifest's input_schema", schema, probes, "WC-REG-4")
    if published.openapi:
        schema = _request_schema(looking.run, published.openapi)
        looking.accepts("the OpenAPI document's request schema", schema, probes, "WC-REG-6")
    if published.tool:
        schema = published.tool.get("inputSchema")
        looking.accepts("the MCP tool's inputSchema", schema, probes, "WC-MCP-6")
    published_any = published.manifest or published.openapi or published.tool
    if not (published_any and looking.fine):
        return  # what they accept is not one thing that an implementation could be held to
    for probe in probes:
        if probe.accepted and not _refused_by_another_rule(probe.value):
            with looking.run.guarded():
                _accepted(looking, probe)
    looking.done()


def _request_schema(run: Run, document: dict[str, Any]) -> object:
    """The schema of the tool's request body, in the document that it refers to."""
    tool = (o for o in openapi.operations(document, run.target.address) if o.is_the_tool)
    part: Any = next((operation.described for operation in tool), None)
    for step in ("requestBody", "content", _JSON):
        part = openapi.followed(document, part.get(step)) if isinstance(part, dict) else None
    part = part.get("schema") if isinstance(part, dict) else None
    return {**document, **part} if isinstance(part, dict) else part


def _refused_by_another_rule(request: Mapping[str, Any]) -> bool:
    """WC-IN-5, the one relation that the schema cannot state."""
    is_claim = request.get("action") == "claim"
    return is_claim and request["claim_ttl_seconds"] >= request["state_ttl_seconds"]


def _accepted(looking: _Looking, probe: Probe) -> None:
    """Send a request that every schema accepts; the implementation must decide it."""
    session = looking.run.session()
    value = {**probe.value, "workflow_key": _fresh(probe.value["workflow_key"])}
    _, came = session.ask(json.dumps(value).encode())
    if isinstance(came, Problem) and came.code is ErrorCode.INVALID_INPUT:
        looking.fine = False
        fault = Fault(
            rules=("WC-REG-1", "WC-IN-1"),
            what=f"the implementation, with what the schemas accept: {probe.what}",
            expected="a decision of section 6",
            got=session.sequence[-1].answered,
        )
        session.fail(fault)


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


CHECKS = (
    Check(
        name="descriptions",
        title="What it publishes of itself",
        run=description_checks,
        needs_class=RuleClass.DESCRIPTIONS,
    ),
)
