"""Who may call the server, how often, and over what: tokens, hosts, origins, limits, TLS."""

import base64
import json
import os
import re
import secrets
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trustme
from mcp_calls import REVISIONS, headers_of, message
from openapi_spec_validator import validate
from real_server import (
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    environment,
    get,
    own_store,
    same,
    send,
    serving,
    start_process,
    status,
    told,
    wait_until,
)
from test_serve import PROGRAM

from checkpoint_conformance.client import JSON_HEADERS, Address, Client, HttpAnswer
from checkpoint_lua import KEY_PREFIX
from checkpoint_model import schemas
from checkpoint_model.vocabulary import (
    ARD_PATH,
    HEALTH_PATH,
    LLMS_PATH,
    MANIFEST_PATH,
    MCP_PATH,
    MCP_TOOL,
    OPENAPI_PATH,
    TOOL_PATH,
)
from checkpoint_reference_server.limiter import read_rate
from checkpoint_reference_server.tls import Tls, TlsError

PROBLEM = jsonschema.Draft202012Validator(schemas.load("problem.schema.json"))
OPEN = (HEALTH_PATH, OPENAPI_PATH, MANIFEST_PATH, LLMS_PATH, ARD_PATH)
SCHEMAS = Path(__file__).with_name("schemas")


@dataclass(frozen=True)
class Tokens:
    """A tokens file, and the tokens in it by their account."""

    file: Path
    of: dict[str, str]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """Two accounts."""
    of = {account: secrets.token_hex(32) for account in ("alice", "bob")}
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("".join(f"{account} {token}\n" for account, token in of.items()))
    return Tokens(file, of)


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore, tokens: Tokens) -> Iterator[Server]:
    """A server that asks for tokens."""
    arguments = ("--mcp", "--tokens-file", str(tokens.file))
    with serving(*arguments, store_url=own.url) as running:
        yield running


@pytest.fixture(scope="module")
def everybody_s(own: OwnStore) -> Iterator[Server]:
    """A server on the same store, with the same key, that asks for none."""
    with serving("--mcp", store_url=own.url) as running:
        yield running


def caller(server: Server, token: str | None, *others: tuple[str, str]) -> Client:
    """Somebody with a token."""
    headers = dict(others)
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return Client(Address.parse(server.url), headers=headers, seconds_max=SECONDS_MAX)


def call_by_mcp(client: Client, request: Mapping[str, Any], revision: str) -> HttpAnswer:
    """A call of the tool, in a revision."""
    body = message("tools/call", {"name": MCP_TOOL, "arguments": request}, revision=revision)
    return send(client, body, headers_of(revision, "tools/call", MCP_TOOL), path=MCP_PATH)


def is_refused(answer: HttpAnswer, http_status: int) -> None:
    """WC-ERR-9: without a code, in plain text."""
    assert answer.status == http_status
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    assert answer.header("cache-control") == "no-store"
    assert b"code" not in answer.body


# -- Tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["http", *REVISIONS])
def test_without_a_token_nobody_is_let_in(server: Server, own: OwnStore, door: str) -> None:
    """401 with a challenge by either binding; nothing is changed (WC-ERR-4)."""
    request = claim()
    before = own.steps()
    bad: dict[str, list[str | None]] = {
        'Bearer realm="workflow-checkpoint"': [None],
        'Bearer realm="workflow-checkpoint", error="invalid_token"': ["zq" * 32, "zq"],
    }
    for challenge, given in bad.items():
        for token in given:
            with caller(server, token) as client:
                answer = (
                    send(client, request) if door == "http" else call_by_mcp(client, request, door)
                )
            is_refused(answer, 401)
            assert answer.header("www-authenticate") == challenge
            assert b"zq" not in answer.body
    assert own.steps() == before


def test_every_method_of_mcp_asks_for_a_token(server: Server) -> None:
    """Its authorization: on every request, also the first of a handshake."""
    for revision in REVISIONS:
        for method in ("initialize", "tools/list", "server/discover", "notifications/initialized"):
            body = message(method, {}, revision=revision)
            with caller(server, None) as client:
                is_refused(send(client, body, headers_of(revision, method), path=MCP_PATH), 401)


def test_what_tells_of_nobody_s_work_is_open(server: Server) -> None:
    """Health and descriptions."""
    with caller(server, None) as client:
        for path in OPEN:
            assert get(client, path).status == 200, path


def test_the_account_is_part_of_the_identity(server: Server, tokens: Tokens) -> None:
    """Section 2, WC-ID-2, WC-ID-3: the same names, another workflow."""
    request = claim()
    with (
        caller(server, tokens.of["alice"]) as alice,
        caller(server, tokens.of["bob"]) as bob,
    ):
        first, second = told(alice, request), told(bob, request)
        assert (first["acquired"], second["acquired"]) == (True, True)
        assert first["workflow_hash"] != second["workflow_hash"]
        told(bob, same(request, "abandon", generation=1))
        assert told(alice, status(request))["claim_active"] is True
        assert told(bob, status(request))["claim_active"] is False
        again = json.loads(call_by_mcp(alice, request, REVISIONS[0]).body)  # WC-MCP-4
        result = again["result"]["structuredContent"]
        assert (result["reused"], result["workflow_hash"]) == (True, first["workflow_hash"])


def test_an_account_has_nothing_of_before_there_were_any(
    server: Server, everybody_s: Server, tokens: Tokens
) -> None:
    """Turned on, tokens give nobody the records of everybody."""
    request = claim()
    with everybody_s.client() as client, caller(server, tokens.of["alice"]) as alice:
        told(client, request)
        assert told(alice, status(request))["code"] == "CHECKPOINT_NOT_FOUND"


def test_requests_of_one_packet_are_each_their_own_account_s(
    server: Server, tokens: Tokens
) -> None:
    """As a proxy may send them that shares a connection: the second's token is not the first's."""
    request = claim()
    body = json.dumps(request).encode()
    with caller(server, tokens.of["alice"]) as alice:
        expected = told(alice, request)["workflow_hash"]
    packet = b""
    for account, last in (("alice", ""), ("bob", "connection: close\r\n")):
        head = f"POST {TOOL_PATH} HTTP/1.1\r\nhost: localhost\r\n{last}"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        packet += f"{head}authorization: Bearer {tokens.of[account]}\r\n\r\n".encode() + body
    address = Address.parse(server.url)
    came = b""
    with socket.create_connection((address.host, address.port), timeout=SECONDS_MAX) as wire:
        wire.sendall(packet)
        while part := wire.recv(65536):
            came += part
    hashes = re.findall(rb'"workflow_hash":"([^"]*)"', came)
    assert len(set(hashes)) == 2
    assert hashes[0].decode() == expected


def put(file: Path, text: str) -> None:
    """Put another tokens file in its place, in one step."""
    file.with_name("other").write_text(text)
    file.with_name("other").replace(file)


def statuses(server: Server, token: str) -> set[int]:
    """What a token gets on connections of their own, which may come to any worker."""
    found = set()
    for _ in range(6):
        with caller(server, token) as client:
            found.add(send(client, status(claim())).status)
    return found


def test_tokens_are_read_again(own: OwnStore, tmp_path: Path) -> None:
    """By every worker, without a restart."""
    old, new = secrets.token_hex(32), secrets.token_hex(32)
    file = tmp_path / "tokens"
    file.write_text(f"alice {old}\n")
    arguments = ("--tokens-file", str(file), "--workers", "2")
    with serving(*arguments, store_url=own.url) as server:
        wait_until(lambda: statuses(server, old) == {404}, "the token is known")
        put(file, f"alice {new}\n")
        wait_until(lambda: statuses(server, new) == {404}, "the new token is known")
        # A worker that was not asked since may look at the file up to a second later.
        wait_until(lambda: statuses(server, old) == {401}, "the old one is known no more")


def test_a_tokens_file_that_became_bad_changes_nothing(own: OwnStore, tmp_path: Path) -> None:
    """What was known goes on working, and the log says why."""
    token = secrets.token_hex(32)
    file = tmp_path / "tokens"
    file.write_text(f"alice {token}\n")
    with serving("--tokens-file", str(file), store_url=own.url) as server:
        put(file, f"{token} alice\n")

        def refused() -> bool:
            statuses(server, token)  # it is when somebody calls that the file is looked at
            return "the tokens file was not taken over: line 1: " in server.err

        wait_until(refused, "the bad file is told of")
        assert statuses(server, token) == {404}
        assert token not in server.err + server.out


def test_a_tokens_file_that_is_wrong_is_told_at_the_start(tmp_path: Path) -> None:
    """By its name and line, never by what is in it."""
    file = tmp_path / "tokens"
    file.write_text("alice zq-short\n")
    said = refused_to_start("--tokens-file", str(file))
    assert f"{file}: line 1: a token has 32 to 512" in said


def refused_to_start(*arguments: str) -> str:
    """What a server says that does not start: one message, without the words of a secret."""
    given = ("--dev-key", "--port", "0", "--exit-with-input", *arguments)
    process = start_process(given, env=environment())
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (2, b""), err
    assert b"Traceback" not in err
    assert b"zq" not in err
    return err.decode()


def test_what_is_asked_for_is_described(server: Server, everybody_s: Server) -> None:
    """In OpenAPI, the MCP server's card and llms.txt; the manifest has no place for it."""

    def described(of: Server) -> tuple[Any, Any, str, Any]:
        with caller(of, None) as client:
            openapi, ard, llms, manifest = (
                get(client, path).body
                for path in (OPENAPI_PATH, ARD_PATH, LLMS_PATH, MANIFEST_PATH)
            )
        return json.loads(openapi), json.loads(ard), llms.decode(), json.loads(manifest)

    openapi, ard, llms, manifest = described(server)
    validate(openapi)
    operation = openapi["paths"][TOOL_PATH]["post"]
    (scheme,) = operation["security"]
    assert openapi["components"]["securitySchemes"][next(iter(scheme))]["scheme"] == "bearer"
    assert operation["responses"]["401"]["headers"].keys() == {"WWW-Authenticate"}
    card = next(entry["data"] for entry in ard["entries"] if "data" in entry)
    jsonschema.Draft202012Validator(
        {**json.loads((SCHEMAS / "mcp-server-card.schema.json").read_text())}
    ).validate(card)
    (header,) = card["remotes"][0]["headers"]
    assert (header["name"], header["isRequired"], header["isSecret"]) == (
        "Authorization",
        True,
        True,
    )
    assert "Authorization: Bearer TOKEN" in llms
    other_openapi, other_ard, other_llms, other_manifest = described(everybody_s)
    assert "securitySchemes" not in other_openapi["components"]
    assert "security" not in other_openapi["paths"][TOOL_PATH]["post"]
    assert "401" not in other_openapi["paths"][TOOL_PATH]["post"]["responses"]
    assert "Authorization" not in json.dumps(other_ard) + other_llms
    assert manifest == other_manifest


# -- Hosts and origins -----------------------------------------------------------------------


def with_headers(
    server: Server, *headers: tuple[str, str], path: str, method: str = "POST"
) -> HttpAnswer:
    """An answer to a request whose Host is one of these headers, if they have any."""
    import http.client

    address = Address.parse(server.url)
    wire = http.client.HTTPConnection(address.host, address.port, timeout=SECONDS_MAX)
    try:
        names = {name for name, _ in headers}
        wire.putrequest(method, path, skip_host="host" in names, skip_accept_encoding=True)
        body = json.dumps(status(claim())).encode() if method == "POST" else b""
        for name, value in (*headers, *JSON_HEADERS, ("content-length", str(len(body)))):
            wire.putheader(name, value)
        wire.endheaders(body)
        answer = wire.getresponse()
        came = tuple((name.lower(), value) for name, value in answer.getheaders())
        return HttpAnswer(status=answer.status, headers=came, body=answer.read())
    finally:
        wire.close()


@pytest.mark.parametrize("path", [TOOL_PATH, MCP_PATH])
def test_a_page_of_another_origin_cannot_act(everybody_s: Server, path: str) -> None:
    """A browser says whose page it is; a name that was pointed here is none that is served."""
    foreign = ("origin", "https://zq.example")
    is_refused(with_headers(everybody_s, foreign, path=path), 403)
    is_refused(with_headers(everybody_s, ("host", "zq.example"), path=path), 421)
    both = (("host", "zq.example"), ("origin", "http://zq.example"))
    is_refused(with_headers(everybody_s, *both, path=path), 421)
    own = ("origin", everybody_s.url)
    assert with_headers(everybody_s, own, path=path).status in (400, 404)


def test_a_page_is_refused_before_its_token_is_looked_at(server: Server) -> None:
    """A browser that has it must not lend it."""
    is_refused(with_headers(server, ("origin", "null"), path=TOOL_PATH), 403)


def test_descriptions_are_for_every_page_and_for_names_that_are_served(
    everybody_s: Server,
) -> None:
    """What they say is no secret; health is asked for by any name, as probes do."""
    for path in OPEN:
        page = with_headers(everybody_s, ("origin", "https://zq.example"), path=path, method="GET")
        assert page.status == 200
        named = with_headers(everybody_s, ("host", "zq.example"), path=path, method="GET")
        assert named.status == (200 if path == HEALTH_PATH else 421)


def test_names_and_origins_are_allowed(own: OwnStore) -> None:
    """By an operator; a proxy passes on the name that it was called by."""
    arguments = ("--allowed-host", "tools.example.com", "--allowed-origin", "https://app.example")
    public = ("--public-url", "https://public.example/base")
    with serving(*arguments, *public, store_url=own.url) as running:
        for host in ("tools.example.com", "tools.example.com:8443", "public.example", "[::1]:9"):
            assert with_headers(running, ("host", host), path=TOOL_PATH).status == 404
        origin = ("origin", "https://app.example")
        assert with_headers(running, origin, path=TOOL_PATH).status == 404


# -- Limits ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited_for_all(own: OwnStore, tokens: Tokens) -> Iterator[Server]:
    """Three requests a minute for each account."""
    arguments = ("--mcp", "--tokens-file", str(tokens.file), "--rate-limit", "3/minute")
    with serving(*arguments, store_url=own.url) as running:
        yield running


@pytest.fixture
def limited(limited_for_all: Server, own: OwnStore) -> Server:
    """The same, and nobody has sent any yet."""
    own.admin.flushall()
    return limited_for_all


def is_limited(answer: HttpAnswer) -> int:
    """WC-ERR-1, WC-ERR-3; the seconds to wait."""
    members = json.loads(answer.body)
    PROBLEM.validate(members)
    assert (answer.status, members["code"], members["retry"]) == (429, "RATE_LIMITED", True)
    assert answer.header("retry-after") == str(members["retry_after_seconds"])
    return int(members["retry_after_seconds"])


def test_each_account_has_its_limit(limited: Server, tokens: Tokens, own: OwnStore) -> None:
    """By both bindings together; what is refused changes nothing (WC-ERR-4)."""
    request = claim()
    with (
        caller(limited, tokens.of["alice"]) as alice,
        caller(limited, tokens.of["bob"]) as bob,
    ):
        assert told(alice, status(request))["code"] == "CHECKPOINT_NOT_FOUND"
        assert send(alice, b"{}").status == 400  # without a step it does not count
        assert call_by_mcp(alice, status(request), REVISIONS[0]).status == 200
        assert send(alice, status(request)).status == 404
        before = set(own.admin.scan_iter())
        assert 55 <= is_limited(send(alice, request)) <= 60
        by_mcp = json.loads(call_by_mcp(alice, request, REVISIONS[-1]).body)["result"]
        assert by_mcp["isError"] is True
        assert by_mcp["structuredContent"]["code"] == "RATE_LIMITED"
        assert set(own.admin.scan_iter()) == before
        assert told(bob, request)["acquired"] is True


def test_a_limit_ends_when_it_said(limited: Server, tokens: Tokens, own: OwnStore) -> None:
    """WC-ERR-3: the window's own key says when, and expires then."""
    with caller(limited, tokens.of["alice"]) as alice:
        for _ in range(3):
            send(alice, status(claim()))
        (key,) = own.admin.scan_iter(match=f"{KEY_PREFIX}limit:*")
        for left_ms, seconds in ((59_001, 60), (58_000, 58), (1_700, 2), (700, 1)):
            own.admin.pexpire(key, left_ms)
            assert seconds - 1 <= is_limited(send(alice, claim())) <= seconds
        own.admin.delete(key)  # as it does by itself
        assert told(alice, claim())["acquired"] is True


def test_counts_lie_in_the_store_without_names_and_not_for_long(
    limited: Server, tokens: Tokens, own: OwnStore
) -> None:
    """WC-PRIV-1, WC-PRIV-2, WC-PRIV-3."""
    for account in tokens.of:
        with caller(limited, tokens.of[account]) as client:
            send(client, status(claim()))
    keys = list(own.admin.scan_iter(match="*"))
    counts = [key for key in keys if key.startswith(f"{KEY_PREFIX}limit:")]
    assert len(counts) == 2
    for key in counts:
        assert own.admin.get(key) == "1"
        assert 0 < own.admin.pttl(key) <= 60_000
    whole = "\n".join(keys)
    for secret in (*tokens.of, *tokens.of.values()):
        assert secret not in whole
        assert secret.encode().hex() not in whole


def test_a_lost_store_is_no_limit(limited: Server, tokens: Tokens, own: OwnStore) -> None:
    """Nobody knows how many there were: DEPENDENCY_UNAVAILABLE."""
    own.kill()
    try:
        with caller(limited, tokens.of["alice"]) as alice:
            assert told(alice, status(claim()))["code"] == "DEPENDENCY_UNAVAILABLE"
    finally:
        own.start()


def test_without_accounts_an_address_has_the_limit(own: OwnStore) -> None:
    """And the controls' limit is one beside it."""
    own.admin.flushall()
    with serving("--rate-limit", "2/hour", store_url=own.url) as running:
        for expected in (404, 404, 429, 429):
            with running.client() as client:
                assert send(client, status(claim())).status == expected
    (key,) = own.admin.scan_iter(match=f"{KEY_PREFIX}limit:*")
    assert "127.0.0.1" not in key


@pytest.mark.parametrize("rate", ["zero", "0/minute", "2/day", "5/90minutes", "1/minute;2/hour"])
def test_a_rate_that_is_none(rate: str) -> None:
    """Told with what one looks like, or what it may be."""
    with pytest.raises(ValueError, match=f"^{re.escape(repr(rate))}"):
        read_rate(rate)


def test_a_rate_that_is_none_is_told_at_the_start() -> None:
    """And not by the first worker."""
    assert "--rate-limit: '2/day'" in refused_to_start("--rate-limit", "2/day")


# -- TLS -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """Files with a certificate for this machine's addresses, and its authority."""

    authority: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Of an authority that is made up."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    files = Certificate(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    authority.cert_pem.write_to_path(str(files.authority))
    issued.cert_chain_pems[0].write_to_path(str(files.certificate))
    issued.private_key_pem.write_to_path(str(files.key))
    return files


def encrypted(key: Path, password: str) -> bytes:
    """The key, for whoever knows the password."""
    from cryptography.hazmat.primitives import serialization as forms

    loaded = forms.load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(
        forms.Encoding.PEM,
        forms.PrivateFormat.PKCS8,
        forms.BestAvailableEncryption(password.encode()),
    )


def test_it_serves_https(own: OwnStore, certificate: Certificate, tmp_path: Path) -> None:
    """With an encrypted key, by two workers; the addresses say so, and nobody else is answered."""
    key, password = tmp_path / "key.pem", tmp_path / "password"
    key.write_bytes(encrypted(certificate.key, "zq secret"))
    password.write_text("zq secret\n")
    arguments = ("--tls-certificate", str(certificate.certificate), "--tls-key", str(key))
    more = ("--tls-key-password-file", str(password), "--workers", "2")
    with serving(*arguments, *more, store_url=own.url) as running:
        assert running.url.startswith("https://127.0.0.1:")
        assert f"tool      {running.url}" in running.out
        context = ssl.create_default_context(cafile=str(certificate.authority))
        import urllib.request

        with urllib.request.urlopen(
            f"{running.url}{OPENAPI_PATH}", timeout=SECONDS_MAX, context=context
        ) as answer:
            described = json.loads(answer.read())
        assert described["servers"][0]["url"] == running.url
        plain = Client(Address.parse(running.url.replace("https", "http")))
        with plain:
            assert not isinstance(plain.exchange("GET", HEALTH_PATH).answer, HttpAnswer)
        assert "zq secret" not in running.out + running.err


def test_a_certificate_that_is_none(certificate: Certificate, tmp_path: Path) -> None:
    """Told at the start: not its key, no PEM, encrypted without a password."""
    other = trustme.CA().issue_cert("localhost")
    key, locked, junk = (tmp_path / name for name in ("key", "locked", "junk"))
    other.private_key_pem.write_to_path(str(key))
    locked.write_bytes(encrypted(certificate.key, "x"))
    junk.write_text("zq")
    for given in (None, key, locked, junk):
        with pytest.raises(TlsError, match=r"^TLS cannot be served with the certificate"):
            Tls.of(certificate.certificate, given, None)
    with pytest.raises(TlsError, match="needs its certificate"):
        Tls.of(None, key, None)
    said = refused_to_start(
        *("--tls-certificate", str(certificate.certificate), "--tls-key", str(locked))
    )
    assert "an encrypted key needs --tls-key-password-file" in said


# -- All of it at once -----------------------------------------------------------------------


@pytest.mark.large
def test_the_harness_passes_a_server_with_everything_on(
    tokens: Tokens, certificate: Certificate
) -> None:
    """`check --header 'Authorization: Bearer …'` over TLS: both bindings and the descriptions."""
    arguments = ("--mcp", "--test-controls", "--tokens-file", str(tokens.file))
    tls = ("--tls-certificate", str(certificate.certificate), "--tls-key", str(certificate.key))
    more = ("--rate-limit", "1000000/minute", "--metrics-port", "0")
    with serving(*arguments, *tls, *more) as running:
        command = [*PROGRAM, "check", "--url", running.url, "--mcp", f"{running.url}{MCP_PATH}"]
        command += ["--controls", str(running.controls_url), "--store", running.store_url]
        for claimed in ("core", "mcp", "controls", "descriptions"):
            command += ["--class", claimed]
        command += ["--header", f"Authorization: Bearer {tokens.of['alice']}"]
        done = subprocess.run(
            [*command, "--profile", "quick"],
            env={**os.environ, "SSL_CERT_FILE": str(certificate.authority)},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: " in done.stdout
    said = done.stdout + done.stderr + running.out + running.err
    encoded = base64.b64encode(tokens.of["alice"].encode()).decode()
    assert not any(secret in said for secret in (*tokens.of.values(), encoded))
