"""The published descriptions, by tools that are not ours, and against the contract."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import llms_txt
import pytest
from answer_bodies import PROBLEM_SCHEMA, RESULT_SCHEMA, near_answers
from click.testing import CliRunner
from hypothesis import given
from markdown_it import MarkdownIt
from mcp_calls import REVISIONS
from openapi_spec_validator import OpenAPIV31SpecValidator
from request_bodies import JUNK, nearly_requests

import checkpoint_reference_server.registry
from checkpoint_conformance.cli import main
from checkpoint_conformance.run import PROFILES
from checkpoint_model import (
    CONTRACT_VERSION,
    ERRORS,
    MOVES,
    Action,
    ErrorCode,
    EvidenceType,
    Stage,
    schemas,
)
from checkpoint_model.vocabulary import TOOL_PATH
from checkpoint_reference_server.registry import FORMATS, RECORD, Deployment, listening_url
from checkpoint_reference_server.registry.ard import make_server_card
from checkpoint_reference_server.registry.record import RecordLimits, RegistryRecord

PUBLISHED = Path(checkpoint_reference_server.registry.__file__).parent / "published"
SCHEMAS = Path(__file__).parent / "schemas"
REMEDY = "write them anew: nox -s descriptions"
HERE = Deployment()
ELSEWHERE = Deployment(
    public_url="https://tools.example.org/checkpoint/",
    publisher_domain="Example.ORG",
    offers_mcp=False,
    durability="Every change that was acknowledged survives.",
)
JSON_FORMATS = [name for name, form in FORMATS.items() if form.file_name.endswith(".json")]
CONTRACT_SCHEMAS = {
    "input_schema": schemas.load("request.schema.json"),
    "output_schema": schemas.load("result.schema.json"),
    "error_schema": schemas.load("problem.schema.json"),
}


def document(name: str, deployment: Deployment = HERE, record: RegistryRecord = RECORD) -> Any:
    """One of the JSON documents."""
    return json.loads(FORMATS[name].text(deployment, record))


def public_schema(file_name: str, definition: str | None = None) -> Any:
    """A validator of somebody else's schema, with formats asserted."""
    schema = json.loads((SCHEMAS / file_name).read_text(encoding="utf-8"))
    if definition is not None:
        schema["$ref"] = f"#/$defs/{definition}"
    return jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )


# -- Freshness and agreement ------------------------------------------------------------------


def test_the_committed_copies_are_fresh() -> None:
    """Every format, and nothing besides."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in PUBLISHED.iterdir()}
    assert committed == {form.file_name: form.text(HERE) for form in FORMATS.values()}, REMEDY


def test_the_versions_agree() -> None:
    """WC-REG-2."""
    ard = document("ard")
    assert document("manifest")["version"] == CONTRACT_VERSION
    assert document("openapi")["info"]["version"] == CONTRACT_VERSION
    assert [entry["version"] for entry in ard["entries"]] == [CONTRACT_VERSION] * 2
    assert ard["entries"][1]["data"]["version"] == CONTRACT_VERSION
    assert CONTRACT_VERSION in FORMATS["llms"].text(HERE)


EVERYWHERE = {"manifest", "openapi", "llms", "ard"}
CHANGED = [
    (RecordLimits(generations=15), {*EVERYWHERE, "mcp"}),
    (RecordLimits(claim_ttl_seconds=(1, 899)), {*EVERYWHERE, "mcp"}),
    (RecordLimits(state_ttl_seconds=(2, 3600)), {*EVERYWHERE, "mcp"}),
    (RecordLimits(observations=31), EVERYWHERE),
    (RecordLimits(body_bytes=8000), EVERYWHERE),
]


@pytest.mark.parametrize(("limits", "changed"), CHANGED)
def test_a_limit_that_changes_does_so_in_every_document(
    limits: RecordLimits, changed: set[str]
) -> None:
    """Each limit stands in the record alone; a tool's schemas know of three of them."""
    other = replace(RECORD, limits=limits)
    differing = {
        name for name, form in FORMATS.items() if form.text(HERE, other) != form.text(HERE)
    }
    assert differing == changed


def test_every_limit_was_changed_once() -> None:
    """The test above forgets none."""
    usual = RecordLimits()
    tried = {
        field.name
        for limits, _ in CHANGED
        for field in fields(limits)
        if getattr(limits, field.name) != getattr(usual, field.name)
    }
    assert tried == {field.name for field in fields(RecordLimits)}


def test_a_changed_limit_is_the_same_in_every_document() -> None:
    """The longest claim, wherever it stands."""
    other = replace(RECORD, limits=RecordLimits(claim_ttl_seconds=(1, 123)))
    manifest, openapi = document("manifest", HERE, other), document("openapi", HERE, other)
    claim = openapi["components"]["schemas"]["ClaimRequest"]["properties"]
    tool = document("mcp", HERE, other)["inputSchema"]["properties"]
    branch = manifest["input_schema"]["oneOf"][0]["properties"]
    assert manifest["limits"]["claim_ttl_seconds"] == [1, 123]
    assert {schema["claim_ttl_seconds"]["maximum"] for schema in (claim, tool, branch)} == {123}
    assert (
        "A claim lasts 1 to 123 seconds"
        in document("ard", HERE, other)["entries"][0]["description"]
    )
    assert "integer 1 to 123" in FORMATS["llms"].text(HERE, other)


@pytest.mark.parametrize("name", FORMATS)
def test_every_description_says_what_callers_owe(name: str) -> None:
    """Section 1; as JSON writes it, where it is JSON."""
    text = FORMATS[name].text(HERE)
    for duty in RECORD.callers_owe:
        assert (json.dumps(duty)[1:-1] if name in JSON_FORMATS else duty) in text


# -- Manifest ---------------------------------------------------------------------------------


def test_the_manifest_has_the_members_of_the_example() -> None:
    """WC-REG-4: exactly those, of the same kinds, in the same order."""
    manifest, example = document("manifest"), schemas.load("manifest.example.json")

    def shape(value: Any) -> Any:
        """Members and kinds; of a list, of its first item."""
        if isinstance(value, dict):
            return {name: shape(inner) for name, inner in value.items()}
        return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value)

    for name in ("input_schema", "output_schema", "error_schema", "examples"):
        manifest[name] = type(manifest[name])()
        example[name] = type(example[name])()
    manifest["graph"][0] = manifest["graph"][1]
    example["graph"][0] = example["graph"][1]
    assert shape(manifest) == shape(example)
    assert list(manifest) == list(example)


def test_the_manifest_says_what_the_contract_says() -> None:
    """WC-REG-4: stages, graph, errors, limits and schemas."""
    manifest, example = document("manifest"), schemas.load("manifest.example.json")
    assert {name: manifest[name] for name in CONTRACT_SCHEMAS} == CONTRACT_SCHEMAS
    for name in ("limits", "idempotency", "endpoint", "mcp", "mode", "stages", "version", "name"):
        assert manifest[name] == example[name]
    assert manifest["retention"]["maximum_seconds"] == 3600
    assert manifest["stages"] == list(Stage)
    graph = {(move["from"], move["to"]): set(move["evidence"]) for move in manifest["graph"]}
    assert graph == {
        (source, target): set(evidence)
        for source, moves in MOVES.items()
        for target, evidence in moves.items()
    }
    assert len(graph) == len(manifest["graph"])
    assert [
        (error["code"], error["http_status"], error["retry"], error["charged"])
        for error in manifest["errors"]
    ] == [(code, row.http_statuses[0], row.retry, False) for code, row in ERRORS.items()]


def test_the_manifest_is_of_its_deployment() -> None:
    """``mcp`` is null where that binding is not offered."""
    manifest = document("manifest", ELSEWHERE)
    assert manifest["mcp"] is None
    assert manifest["durability"] == "Every change that was acknowledged survives."


def test_what_callers_read_is_one_sentence_each() -> None:
    """Section 13: so that models and people can take them one by one."""
    manifest = document("manifest")
    lists = [manifest[name] for name in ("use_when", "do_not_use_when", "callers_owe")]
    sentences = [s for several in lists for s in several] + [manifest["durability"]]
    sentences += [error["recovery"] for error in manifest["errors"]]
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z`].*[^.]\.", sentence)
        assert ". " not in sentence


def test_the_manifest_names_what_is_really_tested() -> None:
    """The revisions that our MCP tests speak, and the contenders that `check` lets race."""
    tested = " ".join(document("manifest")["tested_with"])
    assert re.findall(r"\d{4}-\d{2}-\d{2}", tested) == list(REVISIONS)
    assert f"{PROFILES['default'].contenders} concurrent contenders" in tested
    (server,) = document("ard")["entries"][1]["data"]["remotes"]
    assert server["supportedProtocolVersions"] == list(REVISIONS)


# -- Schemas ----------------------------------------------------------------------------------


def published_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema that is published, with where it stands."""
    manifest, tool = document("manifest"), document("mcp")
    for name in CONTRACT_SCHEMAS:
        yield f"manifest {name}", manifest[name]
    for name in ("inputSchema", "outputSchema"):
        yield f"mcp {name}", tool[name]
    for name, schema in document("openapi")["components"]["schemas"].items():
        yield f"openapi {name}", schema


@pytest.mark.parametrize(
    "schema", [pytest.param(schema, id=where) for where, schema in published_schemas()]
)
def test_a_published_schema_is_valid_by_the_meta_schema(schema: dict[str, Any]) -> None:
    """JSON Schema 2020-12, by two implementations of it."""
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema_rs.Draft202012Validator({**schema, "components": document("openapi")["components"]})


def openapi_validator(name: str) -> Any:
    """A validator of one of the OpenAPI document's schemas, references resolved inside it."""
    components = document("openapi")["components"]
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": components}
    )


REQUESTS = openapi_validator("Request")
CONTRACT_REQUESTS = jsonschema.Draft202012Validator(CONTRACT_SCHEMAS["input_schema"])


@given(nearly_requests() | JUNK)
def test_the_openapi_request_is_the_contracts(body: Any) -> None:
    """WC-REG-1."""
    assert REQUESTS.is_valid(body) == CONTRACT_REQUESTS.is_valid(body)


ANSWERS = {
    "Result": (openapi_validator("Result"), jsonschema.Draft202012Validator(RESULT_SCHEMA)),
    "Problem": (openapi_validator("Problem"), jsonschema.Draft202012Validator(PROBLEM_SCHEMA)),
}


@given(near_answers())
def test_the_openapi_answers_are_the_contracts(answer: Any) -> None:
    """Results and problems, good ones and nearly good ones."""
    for validator, contracts in ANSWERS.values():
        assert validator.is_valid(answer) == contracts.is_valid(answer)


def test_the_openapi_result_lists_next_actions_as_the_contract_does() -> None:
    """In words that generators read; no other list of actions is admitted for that."""
    validator, contracts = ANSWERS["Result"]
    lists = [list(some) for length in range(5) for some in product(Action, repeat=length)]
    results = [{**RECORD.examples[0].response, "allowed_next_actions": some} for some in lists]
    admitted = [result for result in results if validator.is_valid(result)]
    assert admitted == [result for result in results if contracts.is_valid(result)]
    assert len(admitted) == 3


# -- OpenAPI ----------------------------------------------------------------------------------


@pytest.mark.parametrize("deployment", [HERE, ELSEWHERE])
def test_the_openapi_document_is_valid(deployment: Deployment) -> None:
    """WC-REG-6, by a public validator of OpenAPI 3.1."""
    openapi = document("openapi", deployment)
    OpenAPIV31SpecValidator(openapi).validate()
    assert openapi["servers"][0]["url"] == deployment.public_url
    assert openapi["paths"].keys() == {TOOL_PATH, "/healthz"}


def test_the_openapi_document_has_every_status_and_code() -> None:
    """Each with an example that its schema accepts, and with what the headers say."""
    operation = document("openapi")["paths"][TOOL_PATH]["post"]
    responses = operation["responses"]
    statuses = {status for row in ERRORS.values() for status in row.http_statuses}
    assert responses.keys() == {"200", "500", *map(str, statuses)}
    problems = openapi_validator("Problem")
    for code, row in ERRORS.items():
        for status in row.http_statuses:
            response = responses[str(status)]
            example = response["content"]["application/problem+json"]["examples"][code]["value"]
            assert (example["code"], example["status"]) == (code, status)
            problems.validate(example)
            assert ("retry_after_seconds" in example) == row.retry
            assert ("Retry-After" in response["headers"]) == row.retry
            assert ("observed_at" in example) == row.decided
    assert responses["429"]["headers"]["Cache-Control"]["schema"]["const"] == "no-store"


def test_the_openapi_document_shows_every_action() -> None:
    """Request and result of each, told apart by ``action``."""
    openapi = document("openapi")
    operation = openapi["paths"][TOOL_PATH]["post"]
    requests = operation["requestBody"]["content"]["application/json"]["examples"]
    results = operation["responses"]["200"]["content"]["application/json"]["examples"]
    validator = openapi_validator("Result")
    assert list(requests) == list(results) == list(Action)
    for action in Action:
        assert requests[action]["value"]["action"] == results[action]["value"]["action"] == action
        REQUESTS.validate(requests[action]["value"])
        validator.validate(results[action]["value"])
    discriminator = openapi["components"]["schemas"]["Request"]["discriminator"]
    assert discriminator["propertyName"] == "action"
    for action, reference in discriminator["mapping"].items():
        schema = openapi["components"]["schemas"][reference.rpartition("/")[2]]
        assert schema["properties"]["action"]["const"] == action


def test_the_openapi_document_reads_well() -> None:
    """Titles and descriptions wherever a page of documentation shows them."""
    openapi = document("openapi")
    for schema in openapi["components"]["schemas"].values():
        assert schema["title"]
        assert schema["description"]
        for member in schema.get("properties", {}).values():
            assert member["description"]
    for item in openapi["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert operation["description"]
            assert operation["operationId"].isidentifier()
            assert all(response["description"] for response in operation["responses"].values())


# -- llms.txt ---------------------------------------------------------------------------------


def test_llms_txt_has_the_form_of_its_format() -> None:
    """By its own parser and as Markdown: title, quote, text without headings, lists of links."""
    text = FORMATS["llms"].text(HERE)
    parsed = llms_txt.parse_llms_file(text)
    assert (parsed.title, parsed.summary) == (RECORD.title, RECORD.summary)
    assert [link.url for link in parsed.sections["Descriptions"]] == [
        HERE.url(path)
        for path in (f"{TOOL_PATH}/manifest.json", "/openapi.json", "/.well-known/ard.json")
    ]
    assert all(link.desc for link in parsed.sections["Descriptions"])
    blocks = [
        token for token in MarkdownIt().parse(text) if token.level == 0 and token.nesting >= 0
    ]
    kinds = [f"{token.type} {token.tag}" for token in blocks]
    assert kinds[:3] == ["heading_open h1", "blockquote_open blockquote", "paragraph_open p"]
    assert kinds[-2:] == ["heading_open h2", "bullet_list_open ul"]
    assert not any("heading" in kind for kind in kinds[1:-2])


def test_llms_txt_names_everything() -> None:
    """WC-REG-5: version, endpoints, actions, stages, evidence types, codes, what callers owe."""
    text = FORMATS["llms"].text(HERE)
    for words in (Action, Stage, EvidenceType, ErrorCode):
        assert all(f"`{word}`" in text for word in words)
    for url in (HERE.url(TOOL_PATH), HERE.url("/mcp"), HERE.url("/healthz")):
        assert url in text
    elsewhere = FORMATS["llms"].text(ELSEWHERE)
    assert "/mcp" not in elsewhere
    assert "https://tools.example.org/checkpoint/v1/tools/workflow-checkpoint`" in elsewhere


# -- ARD --------------------------------------------------------------------------------------


@pytest.mark.parametrize("deployment", [HERE, ELSEWHERE])
def test_the_ard_manifest_is_valid_by_the_public_schemas(deployment: Deployment) -> None:
    """Revision 0.91, whose schema looks at the entries, and its predecessor's, at the rest."""
    manifest = document("ard", deployment)
    public_schema("ard-entry.schema.json", "ArdManifest").validate(manifest)
    for entry in manifest["entries"]:
        public_schema("ard-entry.schema.json", "ArdEntry").validate(entry)
        assert 2 <= len(entry["representativeQueries"]) <= 5  # else its tester warns
    public_schema("ai-catalog.schema.json").validate(manifest)


def test_the_ard_validator_refuses() -> None:
    """The schema is one that can fail."""
    manifest = document("ard")
    del manifest["entries"][0]["url"]
    assert not public_schema("ard-entry.schema.json", "ArdManifest").is_valid(manifest)


def test_the_ard_manifest_is_of_its_deployment() -> None:
    """An entry for each binding that is offered, named by the publisher's domain."""
    here, elsewhere = document("ard")["entries"], document("ard", ELSEWHERE)["entries"]
    assert [entry["identifier"] for entry in here] == [
        "urn:air:localhost:api:workflow-checkpoint",
        "urn:air:localhost:mcp:workflow-checkpoint",
    ]
    assert [(entry["identifier"], entry["url"]) for entry in elsewhere] == [
        (
            "urn:air:example.org:api:workflow-checkpoint",
            "https://tools.example.org/checkpoint/openapi.json",
        )
    ]


def test_the_server_card_is_valid_by_the_public_schema() -> None:
    """What the ARD entry of the MCP binding holds."""
    validator = public_schema("mcp-server-card.schema.json", "ServerCard")
    card = make_server_card(RECORD, replace(ELSEWHERE, offers_mcp=True))
    validator.validate(card)
    assert card["name"] == "org.example/workflow-checkpoint"
    assert card["remotes"][0]["url"] == "https://tools.example.org/checkpoint/mcp"
    assert not validator.is_valid({**card, "description": "x" * 101})


# -- Deployments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8123"),
        ("0.0.0.0", "http://127.0.0.1:8123"),
        ("::", "http://[::1]:8123"),
        ("::1", "http://[::1]:8123"),
        ("localhost", "http://localhost:8123"),
    ],
)
def test_without_a_public_url_it_is_where_the_server_listens(host: str, url: str) -> None:
    """An address that stands for all is no address to call."""
    assert listening_url(host, 8123) == url
    assert Deployment(public_url=url).publisher_domain == "localhost"


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://tools.example.org", "tools.example.org"),
        ("https://Tools.Example.org:8443/base", "tools.example.org"),
        ("http://192.0.2.7:8080", "localhost"),
        ("http://my_container:8080", "localhost"),
    ],
)
def test_without_a_domain_it_is_that_of_the_public_url(url: str, domain: str) -> None:
    """Where that has none, nobody's domain is claimed."""
    assert Deployment(public_url=url).publisher_domain == domain


@pytest.mark.parametrize(
    ("setting", "wrong", "said"),
    [
        ("public_url", "tools.example.org", "no http or https URL"),
        ("public_url", "ftp://tools.example.org", "no http or https URL"),
        ("public_url", "https://", "no http or https URL"),
        ("public_url", "https://tools.example.org:port", "no URL"),
        ("public_url", "https://[tools", "no URL"),
        ("public_url", "https://user@tools.example.org", "nothing else"),
        ("public_url", "https://tools.example.org?x=1", "nothing else"),
        ("public_url", "https://tools.example.org#x", "nothing else"),
        ("public_url", "https://tools.example.org/a b", "nothing else"),
        ("publisher_domain", "not a domain", "no domain name"),
        ("publisher_domain", "example.org.", "no domain name"),
        ("publisher_domain", "192.0.2.7", "no domain name"),
        ("publisher_domain", "a" * 64 + ".org", "no domain name"),
        ("durability", " ", "one line of text"),
        ("durability", "two\nlines", "one line of text"),
    ],
)
def test_what_cannot_be_published_is_refused(setting: str, wrong: str, said: str) -> None:
    """With a message that can be shown."""
    settings: dict[str, Any] = {setting: wrong}
    with pytest.raises(ValueError, match=said):
        Deployment(**settings)


# -- The command ------------------------------------------------------------------------------


def emit(*arguments: str) -> Any:
    """What ``workflow-checkpoint registry emit`` did."""
    return CliRunner().invoke(main, ["registry", "emit", *arguments])


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_emitted(name: str, tmp_path: Path) -> None:
    """To standard output or into a file, as bytes."""
    assert emit(name).stdout_bytes == FORMATS[name].text(HERE).encode()
    assert emit(name, "--output", str(tmp_path / "out")).stdout_bytes == b""
    assert (tmp_path / "out").read_bytes() == FORMATS[name].text(HERE).encode()


def test_a_token_that_is_asked_for_is_emitted() -> None:
    """As a server that has tokens publishes it."""
    asking = replace(HERE, asks_for_token=True)
    for name in FORMATS:
        assert emit(name, "--bearer-tokens").stdout_bytes == FORMATS[name].text(asking).encode()
    assert emit("openapi", "--bearer-tokens").stdout_bytes != emit("openapi").stdout_bytes


def test_all_formats_are_emitted_into_a_folder(tmp_path: Path) -> None:
    """Which is made, if need be; what they say is of the deployment that the options describe."""
    done = emit(
        *("all", "--output", str(tmp_path / "out"), "--public-url", ELSEWHERE.public_url),
        *("--publisher-domain", "example.org", "--no-mcp", "--durability", ELSEWHERE.durability),
    )
    assert done.exit_code == 0, done.output
    emitted = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert emitted == {form.file_name: form.text(ELSEWHERE) for form in FORMATS.values()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["all"], "--output"),
        (["yaml"], "manifest"),
        (["ard", "--publisher-domain", "no domain"], "no domain name"),
        (["ard", "--output", "/nonexistent/folder/ard.json"], "/nonexistent/folder/ard.json"),
    ],
)
def test_what_cannot_be_emitted_is_said(arguments: list[str], said: str) -> None:
    """As usage, with a message and no traceback."""
    done = emit(*arguments)
    assert done.exit_code in (1, 2)
    assert isinstance(done.exception, SystemExit)
    assert said in done.output


def test_emitting_needs_no_extra() -> None:
    """Whoever describes an implementation of their own installs no server for it."""
    program = (
        "import sys\n"
        "from checkpoint_conformance.cli import main\n"
        "try:\n"
        "    main(['registry', 'emit', 'manifest'])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        "extras = {'starlette', 'uvicorn', 'msgspec', 'structlog', 'jsonschema_rs', 'mcp'}\n"
        "print('loaded:', sorted(extras & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "loaded: []\n")
