"""The published descriptions as a real server serves them, and what they say as it does it."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from types import ModuleType
from typing import Any

import pytest
from real_server import (
    KEY_VARIABLE,
    MODULE,
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    environment,
    fresh,
    get,
    own_store,
    send,
    serving,
)

from checkpoint_conformance.client import Address, Client, HttpAnswer
from checkpoint_model.vocabulary import MCP_PATH
from checkpoint_reference_server.documents import CACHE_SECONDS
from checkpoint_reference_server.registry import FORMATS, RECORD, Deployment
from checkpoint_reference_server.registry.examples import Example

SERVED = {name: form.path for name, form in FORMATS.items() if form.path is not None}
VOLATILE = {
    "workflow_hash",
    "observed_at",
    "claim_expires_at",
    "state_expires_at",
    "claim_ttl_seconds_remaining",
    "state_ttl_seconds_remaining",
}
"""WC-REG-3: what differs each time."""


FORGETS = "Nothing survives a crash of the store: every record is gone after one."
"""What is said of a store without persistence, as those of the tests are."""


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore) -> Iterator[Server]:
    """A server that was told nothing of its deployment."""
    with serving(store_url=own.url) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A connection for each test."""
    with server.client() as client:
        yield client


def conditional(client: Client, path: str, tags: str) -> HttpAnswer:
    """GET, unless what is there has one of the tags."""
    answer = client.exchange("GET", path, b"", (("if-none-match", tags),)).answer
    assert isinstance(answer, HttpAnswer), answer
    return answer


@pytest.mark.parametrize("name", SERVED)
def test_a_description_is_served(server: Server, client: Client, name: str) -> None:
    """As it is generated, of the address that the server listens at."""
    answer = get(client, SERVED[name])
    assert answer.status == 200
    assert answer.header("content-type") == FORMATS[name].media_type
    assert answer.header("cache-control") == f"public, max-age={CACHE_SECONDS}"
    assert answer.header("access-control-allow-origin") == "*"
    here = Deployment(public_url=server.url, offers_mcp=False, durability=FORGETS)
    assert answer.body.decode() == FORMATS[name].text(here)


@pytest.mark.parametrize("path", SERVED.values())
def test_head_is_get_without_a_body(client: Client, path: str) -> None:
    """The same headers, and nothing after them."""
    whole, head = get(client, path), get(client, path, "HEAD")
    assert (head.status, head.body) == (200, b"")
    for name in ("content-type", "content-length", "etag", "cache-control"):
        assert head.header(name) == whole.header(name)


@pytest.mark.parametrize("path", SERVED.values())
def test_what_is_known_is_not_sent_again(client: Client, path: str) -> None:
    """By its tag, strong or weak, alone or among others."""
    tag = get(client, path).header("etag")
    assert tag is not None
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = conditional(client, path, known)
        assert (answer.status, answer.body, answer.header("etag")) == (304, b"", tag)
    for unknown in ('"other"', tag.strip('"')):
        assert conditional(client, path, unknown).status == 200


@pytest.mark.parametrize("path", SERVED.values())
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_other_methods_are_refused(client: Client, path: str, method: str) -> None:
    """WC-ERR-9: 405 with ``Allow``, and without a code."""
    answer = get(client, path, method)
    assert answer.status == 405
    assert {word.strip() for word in (answer.header("allow") or "").split(",")} == {"GET", "HEAD"}
    assert b"code" not in answer.body


def test_no_host_of_a_request_is_published(server: Server) -> None:
    """Whoever sends one of their own could otherwise have others sent there."""
    address = Address.parse(server.url)
    connection = HTTPConnection(address.host, address.port, timeout=SECONDS_MAX)
    for path in SERVED.values():
        connection.request("GET", path, headers={"Host": "evil.example"})
        answer = connection.getresponse()
        assert (answer.status, b"evil.example" in answer.read()) == (421, False)
        sent = {"Host": "another.localhost:99", "X-Forwarded-Host": "evil.example"}
        connection.request("GET", path, headers=sent)
        body = connection.getresponse().read()
        assert b"evil.example" not in body
        assert b"another.localhost" not in body
        if path != SERVED["manifest"]:  # which has no URL
            assert server.url.encode() in body
    connection.close()


def test_settings_of_the_deployment_are_published(own: OwnStore) -> None:
    """By each of two processes, which serve the same bytes."""
    durability = "Every change that was acknowledged survives."
    options = [
        *("--public-url", "https://tools.example.org/", "--publisher-domain", "example.org"),
        *("--durability", durability, "--workers", "2"),
    ]
    deployment = Deployment(
        public_url="https://tools.example.org",
        publisher_domain="example.org",
        offers_mcp=False,
        durability=durability,
    )
    with serving(*options, store_url=own.url) as server:
        for name, path in SERVED.items():
            for _ in range(4):
                with server.client() as client:
                    assert get(client, path).body.decode() == FORMATS[name].text(deployment)


def test_where_mcp_is_offered_it_is_described(own: OwnStore) -> None:
    """And called by the name that is published, which no page of another name can use."""
    url = "https://tools.example.org"
    with (
        serving("--public-url", url, store_url=own.url, WORKFLOW_CHECKPOINT_MCP="true") as server,
        server.client() as client,
    ):
        for name, path in SERVED.items():
            text = FORMATS[name].text(Deployment(public_url=url, durability=FORGETS))
            assert get(client, path).body.decode() == text
        address = Address.parse(server.url)
        connection = HTTPConnection(address.host, address.port, timeout=SECONDS_MAX)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        for host, status in [("tools.example.org", 200), ("evil.example", 421)]:
            connection.request("POST", MCP_PATH, listing, {**headers, "Host": host})
            answer = connection.getresponse()
            assert (answer.status, b"workflow_checkpoint" in answer.read()) == (
                status,
                status == 200,
            )
        connection.close()


def test_a_deployment_that_cannot_be_described_is_not_served() -> None:
    """Before any store is started."""
    done = subprocess.run(
        [*MODULE, "--port", "0", "--public-url", "tools.example.org"],
        env=environment(**{KEY_VARIABLE: "k" * 32}),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "'tools.example.org' is no http or https URL" in done.stderr


@pytest.mark.parametrize("example", RECORD.examples, ids=lambda example: example.name)
def test_an_example_is_reproduced(client: Client, example: Example) -> None:
    """WC-REG-3."""
    key = fresh("w")
    for given in example.given:
        assert send(client, {**given, "workflow_key": key}).status == 200
    told = json.loads(send(client, {**example.request, "workflow_key": key}).body)
    steady = {name: value for name, value in example.response.items() if name not in VOLATILE}
    assert steady == {name: told.get(name) for name in steady}
    assert example.response.keys() <= told.keys()


# -- A client that a generator made -----------------------------------------------------------


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """What ``openapi-python-client`` makes of the OpenAPI document, imported."""
    folder = tmp_path_factory.mktemp("generated")
    document = folder / "openapi.json"
    document.write_text(FORMATS["openapi"].text(Deployment()), encoding="utf-8")
    config = folder / "config.yaml"
    config.write_text("post_hooks: []\n", encoding="utf-8")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"]
    done = subprocess.run(
        [
            *(*command, "--path", str(document), "--config", str(config)),
            *("--meta", "none", "--output-path", str(folder / "generated_client")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("generated_client")
    finally:
        sys.path.remove(str(folder))


def test_a_generated_client_works(server: Server, generated: ModuleType) -> None:
    """It claims, reads the result's members, and is told a problem as a problem."""
    models = importlib.import_module(f"{generated.__name__}.models")
    tool = importlib.import_module(f"{generated.__name__}.api.checkpoint.workflow_checkpoint")
    request = claim()
    own_claim = models.ClaimRequest.from_dict(request)
    others = models.ClaimRequest.from_dict({**request, "holder": fresh("h")})
    with generated.Client(base_url=server.url) as client:
        result = tool.sync(client=client, body=own_claim)
        problem: Any = tool.sync(client=client, body=others)
        asked = models.StatusRequest.from_dict(
            {name: request[name] for name in ("namespace", "workflow_key", "holder")}
            | {"action": "status"}
        )
        answer = tool.sync_detailed(client=client, body=asked)
    assert (type(result), result.acquired, result.generation) == (models.Result, True, 1)
    assert [item.value for item in result.allowed_next_actions] == [
        "transition",
        "status",
        "abandon",
    ]
    assert (type(problem), problem.code.value) == (models.Problem, "CHECKPOINT_NOT_HELD")
    assert (answer.status_code, answer.parsed.held_by_caller) == (200, True)
