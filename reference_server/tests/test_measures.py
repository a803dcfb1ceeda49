"""What operators see of a server: metrics by Prometheus, metrics and traces by OpenTelemetry."""

import json
import os
import re
import secrets
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector import Collector, collecting
from mcp_calls import REVISIONS, call_raw
from real_server import (
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    environment,
    held_back,
    in_flight,
    own_store,
    same,
    send,
    serving,
    start_process,
    status,
    wait_until,
)
from test_security import caller, with_headers

from checkpoint_conformance.client import Client
from checkpoint_model.vocabulary import TOOL_PATH
from checkpoint_reference_server.measures import _RULES
from checkpoint_reference_server.telemetry import TelemetryError, wanted_signals

PREFIX = "workflow_checkpoint_"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


def page(server: Server) -> str:
    """The metrics, as Prometheus scrapes them."""
    assert server.metrics_url is not None
    with urllib.request.urlopen(server.metrics_url, timeout=SECONDS_MAX) as answer:
        text: str = answer.read().decode()
        return text


def samples(server: Server, name: str) -> dict[str, float]:
    """The values of a metric by the text of its labels."""
    found = re.findall(rf"^{PREFIX}{name}(?:\{{(.*)\}})? (\S+)$", page(server), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def every_outcome(client: Client) -> dict[tuple[str, str], tuple[str, int]]:
    """Requests with what is decided of each: (action, outcome) → (rule, how often)."""
    one = claim(retry_failed=True)
    key = {"observation_key": f"o_{secrets.token_hex(16)}", "to_stage": "uncertain"}
    move = same(one, "transition", generation=1, **key)
    seen: dict[tuple[str, str], tuple[str, int]] = {}

    def ask(request: dict[str, Any] | bytes, action: str, outcome: str, rule: str) -> None:
        send(client, request)
        _, count = seen.get((action, outcome), (rule, 0))
        seen[action, outcome] = (rule, count + 1)

    ask(status(one), "status", "CHECKPOINT_NOT_FOUND", "WC-STATUS-1")
    ask(one, "claim", "acquired", "WC-CLAIM-1")
    ask(one, "claim", "reused", "WC-CLAIM-4")
    ask(move, "transition", "transitioned", "WC-TRANS-8")
    ask(move, "transition", "observation_replayed", "WC-TRANS-2")
    ask({**move, "generation": 2}, "transition", "OBSERVATION_CONFLICT", "WC-TRANS-3")
    ask(same(one, "abandon", generation=1), "abandon", "abandoned", "none")
    ask(one, "claim", "recovered", "WC-CLAIM-8")
    ask(status(one), "status", "reported", "WC-STATUS-2")
    ask(b"{}", "none", "INVALID_INPUT", "none")
    return seen


def answers_of(server: Server) -> dict[tuple[str, str, str, str], float]:
    """The counter of answers by (binding, action, outcome, rule)."""
    counted = {}
    for labels, value in samples(server, "answers_total").items():
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counted[of["binding"], of["action"], of["outcome"], of["rule"]] = value
    return counted


def test_answers_are_counted_by_what_was_decided(own: OwnStore) -> None:
    """By every process, on one page, whichever of them a request came to."""
    arguments = ("--mcp", "--metrics-port", "0", "--workers", "2")
    with serving(*arguments, store_url=own.url) as server:
        expected: dict[tuple[str, str, str, str], float] = {}
        for _ in range(6):  # a connection each, so that both workers have some
            with server.client() as client:
                for (action, outcome), (rule, count) in every_outcome(client).items():
                    known = expected.get(("http", action, outcome, rule), 0)
                    expected["http", action, outcome, rule] = known + count
        with server.client() as client:
            call_raw(client, json.dumps(claim()).encode(), revision=REVISIONS[0])
        expected["mcp", "claim", "acquired", "WC-CLAIM-1"] = 1
        assert answers_of(server) == expected
        assert samples(server, "claims_lapsed_total") == {"": 6}
        of_claims = 'action="claim",binding="http"'
        assert samples(server, "answer_seconds_count")[of_claims] == 18
        assert samples(server, "store_seconds_count")['action="claim"'] == 19
        assert 0 < samples(server, "store_seconds_sum")['action="claim"'] < 20 * SECONDS_MAX
        assert samples(server, "requests_in_flight") == {"": 0}


def test_every_row_that_an_outcome_tells_is_a_rule() -> None:
    """Each once: an outcome of an action is one row's."""
    assert len(set(_RULES.values())) == len(_RULES)
    assert all(rule.startswith("WC-") for rule in _RULES.values())


def test_what_is_in_flight_is_seen(own: OwnStore) -> None:
    """While the store holds it back, and no more when it was answered."""
    with serving("--metrics-port", "0", store_url=own.url) as server, server.client() as client:
        with held_back(own):
            flight = in_flight(client, own, claim())
            assert samples(server, "requests_in_flight") == {"": 1}
        flight.land()
        assert samples(server, "requests_in_flight") == {"": 0}


def test_faults_and_refusals_are_counted(own: OwnStore, tmp_path: Path) -> None:
    """Of the store by kind, of callers by reason, of connections by bound."""
    token = secrets.token_hex(32)
    (tmp_path / "tokens").write_text(f"alice {token}\n")
    arguments = ("--tokens-file", str(tmp_path / "tokens"), "--metrics-port", "0")
    with serving(*arguments, store_url=own.url) as server:
        with caller(server, "wrong") as client:
            send(client, claim())
        with_headers(server, ("origin", "https://x.example"), path=TOOL_PATH)
        with_headers(server, ("host", "x.example"), path=TOOL_PATH)
        with caller(server, token, ("x-pad", "p" * 20_000)) as client:
            send(client, claim())
        own.kill()
        try:
            with caller(server, token) as client:
                send(client, claim())
        finally:
            own.start()
        assert samples(server, "refusals_total") == {
            'reason="token"': 1,
            'reason="origin"': 1,
            'reason="host"': 1,
        }
        assert samples(server, "connections_cut_total") == {'reason="large head"': 1}
        assert samples(server, "store_errors_total") == {'kind="ConnectionError"': 1}


def test_a_worker_that_died_has_nothing_in_flight(own: OwnStore) -> None:
    """And what it counted goes on counting."""
    arguments = ("--workers", "2", "--metrics-port", "0")
    with (
        serving(*arguments, store_url=own.url) as server,
        server.client() as client,
        held_back(own),
    ):
        in_flight(client, own, claim())
        assert samples(server, "requests_in_flight") == {"": 1}
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if not children.exists():
            pytest.skip("not run: the kernel does not tell a process's children")
        for pid in children.read_text().split():
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: samples(server, "requests_in_flight").get("", 0) == 0, "forgotten")


def test_metrics_are_on_a_listener_of_their_own(own: OwnStore) -> None:
    """Told, and not on the public one; without the option there is none."""
    with serving("--metrics-port", "0", store_url=own.url) as server:
        assert server.metrics_url is not None
        assert server.metrics_url.startswith("http://127.0.0.1:")
        assert f"  metrics   {server.metrics_url}" in server.out
        with server.client() as client:
            assert client.exchange("GET", "/metrics").answer.status == 404  # type: ignore[union-attr]
        port = server.metrics_url.rpartition(":")[2].partition("/")[0]
        taken = start_process(
            ("--dev-key", "--port", "0", "--exit-with-input", "--metrics-port", port),
            env=environment(),
        )
        _, err = taken.communicate(timeout=SECONDS_MAX)
        assert taken.returncode == 2
        assert f"cannot show metrics at 127.0.0.1 port {port}: ".encode() in err


@pytest.mark.parametrize("missing", ["prometheus_client"])
def test_metrics_without_the_extra(missing: str) -> None:
    """Told with what to install."""
    program = f"import sys; sys.modules[{missing!r}] = None\n"
    program += "import importlib.util as u; find = u.find_spec\n"
    program += f"u.find_spec = lambda name, *a: None if name == {missing!r} else find(name, *a)\n"
    program += "from checkpoint_reference_server.commands import serve\nserve()"
    process = start_process(
        ("--dev-key", "--port", "0", "--exit-with-input", "--metrics-port", "0"),
        env=environment(),
        command=(sys.executable, "-c", program),
    )
    _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2
    assert b"pip install 'workflow-checkpoint[metrics]'" in err


# -- OpenTelemetry ----------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One for each test."""
    with collecting() as one:
        yield one


def attributes(of: Any) -> dict[str, Any]:
    """Of a span or a data point."""
    return {a.key: a.value.string_value or a.value.int_value for a in of.attributes}


def test_spans_and_counts_are_sent(own: OwnStore, collector: Collector) -> None:
    """A span for each request with one for its step, in the caller's trace; the same counts."""
    with serving("--mcp", store_url=own.url, **collector.environment) as server:
        header = ("traceparent", f"00-{TRACE}-{SPAN}-01")
        state = (("tracestate", "zq=secret"), ("baggage", "zq=secret"))
        with caller(server, None, header, *state) as client:
            send(client, claim())
            send(client, b"{}")
        with server.client() as client:
            call_raw(client, json.dumps(status(claim())).encode(), revision=REVISIONS[-1])
    spans = collector.spans()
    roots = [span for span in spans if span.name.startswith("workflow_checkpoint ")]
    told = {span.name.split()[1]: attributes(span) for span in roots}
    assert told == {
        "claim": {
            "workflow_checkpoint.binding": "http",
            "workflow_checkpoint.action": "claim",
            "workflow_checkpoint.outcome": "acquired",
            "workflow_checkpoint.rule": "WC-CLAIM-1",
            "http.response.status_code": 200,
        },
        "none": {
            "workflow_checkpoint.binding": "http",
            "workflow_checkpoint.action": "none",
            "workflow_checkpoint.outcome": "INVALID_INPUT",
            "workflow_checkpoint.rule": "none",
            "http.response.status_code": 400,
        },
        "status": {
            "workflow_checkpoint.binding": "mcp",
            "workflow_checkpoint.action": "status",
            "workflow_checkpoint.outcome": "CHECKPOINT_NOT_FOUND",
            "workflow_checkpoint.rule": "WC-STATUS-1",
            "http.response.status_code": 404,
        },
    }
    claimed = next(span for span in roots if span.name.endswith("claim"))
    assert (claimed.trace_id.hex(), claimed.parent_span_id.hex()) == (TRACE, SPAN)
    steps = [span for span in spans if span.name == "store step"]
    assert len(steps) == 2
    assert {step.parent_span_id for step in steps} < {root.span_id for root in roots}
    for step in steps:
        root = next(root for root in roots if root.span_id == step.parent_span_id)
        assert root.start_time_unix_nano <= step.start_time_unix_nano
        assert step.end_time_unix_nano <= root.end_time_unix_nano
    assert not any(b"zq" in body for body in collector.raw)
    counted = {}
    for who, metric in collector.metrics():
        assert who["service.name"] == "workflow-checkpoint"
        # Of each process another: else their counts, each from zero, would be one that jumps.
        assert re.fullmatch(r"[0-9a-f-]{36}", who["service.instance.id"])
        if metric.name == "workflow_checkpoint.answers":
            for point in metric.sum.data_points:
                of = attributes(point)
                counted[of["binding"], of["action"], of["outcome"]] = point.as_int
    assert counted == {
        ("http", "claim", "acquired"): 1,
        ("http", "none", "INVALID_INPUT"): 1,
        ("mcp", "status", "CHECKPOINT_NOT_FOUND"): 1,
    }


def test_a_collector_that_is_away_is_no_harm(own: OwnStore) -> None:
    """Requests are answered, the end comes, and the log is still JSON."""
    with (
        serving(store_url=own.url, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as server,
        server.client() as client,
    ):
        assert send(client, claim()).status == 200
        assert server.metrics_url is None
        assert "metrics" not in server.out
    assert server.wait() == 0
    for line in server.err.splitlines():
        assert json.loads(line)["where"].startswith("opentelemetry"), line


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, set()),
        ({"OTEL_SERVICE_NAME": "x"}, set()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, {"TRACES", "METRICS"}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, {"TRACES"}),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, {"METRICS"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "c", "OTEL_TRACES_EXPORTER": "none"}, {"METRICS"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "c", "OTEL_SDK_DISABLED": "true"}, set()),
    ],
)
def test_the_environment_asks_for_it(variables: dict[str, str], wanted: set[str]) -> None:
    """By the standard's own variables, and for nothing otherwise."""
    assert wanted_signals(variables) == wanted


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_what_there_is_not_is_told(variables: dict[str, str]) -> None:
    """By the variable that asks for it."""
    with pytest.raises(TelemetryError, match=next(reversed(variables))):
        wanted_signals(variables)


def test_a_server_that_would_trace_to_nowhere_does_not_start() -> None:
    """They would be missed when they are needed."""
    variables = {"OTEL_TRACES_EXPORTER": "zipkin"}
    process = start_process(
        ("--dev-key", "--port", "0", "--exit-with-input"), env=environment(**variables)
    )
    _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2
    assert next(reversed(variables)).encode() in err
    assert b"Traceback" not in err


# -- Of whom ----------------------------------------------------------------------------------


def test_nobody_is_seen(own: OwnStore, tmp_path: Path, collector: Collector) -> None:
    """Neither accounts nor tokens, addresses, paths or headers: what callers send is no label.

    Identifiers of requests are looked for in ``test_logs_are_clean.py``.
    """
    account, token, wrong = "zqaccount", secrets.token_hex(32), secrets.token_hex(32)
    (tmp_path / "tokens").write_text(f"{account} {token}\n")
    arguments = ("--tokens-file", str(tmp_path / "tokens"), "--rate-limit", "2/minute")
    more = ("--metrics-port", "0", "--log-level", "debug")
    with serving(*arguments, *more, store_url=own.url, **collector.environment) as server:
        for given in (token, token, token, wrong):
            with caller(server, given, ("x-zqheader", "zqvalue")) as client:
                send(client, claim())
                send(client, claim(), path="/zqpath")
        metrics = page(server)
    assert 'outcome="RATE_LIMITED"' in metrics
    assert len(collector.spans()) > 3
    everything = "\n".join([metrics, server.out, server.err])
    exported = b"\n".join(collector.raw)
    for secret in (account, token, wrong, "zq", "x-zqheader"):
        assert secret not in everything
        assert secret.encode() not in exported
    assert "127.0.0.1" not in metrics
