"""Section 13: what a deployment publishes of itself, held against the contract and what it serves.

Descriptions are compared by what they do and name, never by their words: those are free.
"""

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

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
from checkpoint_conformance.checks.mcp import tool_of
from checkpoint_conformance.mcp_client import ProtocolError, Revision
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
    mcp_version: object = None


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
    openapi = _Looking(run, session, "WC-REG-6")
    llms = _Looking(run, session, "WC-REG-5")
    published.manifest = _fetch(manifest, MANIFEST_PATH)
    published.openapi = _fetch(openapi, OPENAPI_PATH)
    published.ard = _fetch(openapi, ARD_PATH)
    published.llms = _fetch_text(llms, LLMS_PATH).decode("utf-8", "replace")
    if RuleClass.MCP in run.target.claimed_classes:
        with run.guarded():
            published.tool = tool_of(run, session)
            published.mcp_version = _mcp_version(run)
    if published.manifest:
        _manifest(manifest, published)
        manifest.done()
        _examples(run, published.manifest)
    if published.openapi:
        _openapi(openapi, published.openapi)
    if published.ard:
        _ard(openapi, published.ard)
    openapi.done()
    if published.llms:
        _llms(llms, published.llms)
        llms.done()
    _versions(_Looking(run, session, "WC-REG-2"), published)
    _requests(_Looking(run, session, "WC-REG-1"), published)


# -- having them --------------------------------------------------------------------------


def _fetch_text(looking: _Looking, path: str) -> bytes:
    _, answer = looking.session.http("GET", path)
    if answer.status != 200:
        looking.wrong(f"GET {path}", 200, answer.status)
        return b""
    if not answer.body:
        looking.wrong(f"GET {path}", "a description", "nothing")
    return answer.body


def _fetch(looking: _Looking, path: str) -> dict[str, Any]:
    body = _fetch_text(looking, path)
    members = json_object(body) if body else {}
    if members is None:
        looking.wrong(f"GET {path}", "a JSON object", body[:80].decode("utf-8", "replace"))
    return members or {}


def _mcp_version(run: Run) -> object:
    """The server's own version, which only a handshake is sure to tell."""
    try:
        return run.target.endpoint().meet(Revision.NOVEMBER_2025).server_info.get("version")
    except ProtocolError:
        return None  # the check of WC-MCP-1 has it


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
    looking.same("the manifest's stages", [str(stage) for stage in MOVES], manifest["stages"])
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
    return {f"{move['from']} → {move['to']}": sorted(move["evidence"]) for move in moves}


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
    for problem in _unresolved(document, document):
        looking.wrong("a reference in the OpenAPI document", "to a part of it", problem)
    paths = document.get("paths")
    paths = paths if isinstance(paths, dict) else {}
    if "post" not in (paths.get(TOOL_PATH) or {}):
        looking.wrong("the paths of the OpenAPI document", f"POST {TOOL_PATH}", sorted(paths))
    for path, item in paths.items():
        if "{" in path or not isinstance(item, dict):
            continue
        for method in sorted(item.keys() & {"get", "post"}):
            _served(looking, method.upper(), path, "the OpenAPI document")


def _served(looking: _Looking, method: str, path: str, by: str, *, refused: int = 0) -> None:
    """See that something is there; ``refused`` is a status that says so as well."""
    _, answer = looking.session.http(method, path, b"{}" if method == "POST" else b"")
    if answer.status in {404, 405, 501} - {refused}:
        looking.wrong(f"{method} {path}, which {by} points at", "it is served", answer.status)


def _unresolved(part: Any, document: dict[str, Any]) -> Iterator[str]:
    """References to what is no part of the document."""
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str) and not _resolves(reference, document):
            yield reference
        for value in part.values():
            yield from _unresolved(value, document)
    elif isinstance(part, list):
        for value in part:
            yield from _unresolved(value, document)


def _resolves(reference: str, document: dict[str, Any]) -> bool:
    if not reference.startswith("#/"):
        return not reference.startswith("#")  # elsewhere: not ours to fetch
    part: Any = document
    for escaped in reference[2:].split("/"):
        step = escaped.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, dict) or step not in part:
            return False
        part = part[step]
    return True


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
        # Its host is the deployment's public one, which need not be how it is reached here.
        path = urlsplit(url).path.removeprefix(looking.run.target.address.base_path)
        if path in (MCP_PATH, TOOL_PATH):
            _served(looking, "GET", path, "the ARD manifest", refused=405)
        else:
            _served(looking, "GET", path, "the ARD manifest")


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
    if published.tool:
        said["`serverInfo.version` over MCP"] = published.mcp_version
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
        schema = _request_schema(published.openapi)
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


def _request_schema(document: dict[str, Any]) -> object:
    """The schema of the tool's request body, with the components that it refers to."""
    part: Any = document
    for step in ("paths", TOOL_PATH, "post", "requestBody"):
        part = part.get(step) if isinstance(part, dict) else None
    if isinstance(part, dict) and "$ref" in part:
        part = (
            document.get("components", {})
            .get("requestBodies", {})
            .get(str(part["$ref"]).rpartition("/")[2])
        )
    for step in ("content", _JSON, "schema"):
        part = part.get(step) if isinstance(part, dict) else None
    if not isinstance(part, dict):
        return part
    return {**part, "components": document.get("components", {})}


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
