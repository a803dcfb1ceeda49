"""``doctor``, ``replay``, ``rules`` and ``explain``."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from modelled import NOWHERE, model_at_url, model_server
from raw_server import answering, http, talking

from checkpoint_conformance import doctor
from checkpoint_conformance.cli import main
from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.proxy import Forward, Message, tampering, with_members
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import Target
from checkpoint_conformance.vectors import load_vectors, write_vectors
from checkpoint_model import format_timestamp
from checkpoint_model.vocabulary import MCP_PATH


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The reference server, with controls and store."""
    with reference_server() as target:
        yield target


def run(*arguments: str) -> Result:
    """A command, in this process."""
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, list(arguments))


def whole(target: Target) -> list[str]:
    """The options that describe it."""
    assert target.controls is not None
    assert target.store_url is not None
    options = ["--url", target.address.url, "--controls", target.controls.url]
    assert target.mcp is not None
    return [*options, "--mcp", target.mcp.url, "--store", target.store_url]


def test_the_doctor_finds_nothing_wrong_with_the_reference_server(target: Target) -> None:
    """All that is given is looked at."""
    result = run("doctor", *whole(target))
    assert result.exit_code == 0, result.output
    assert "✗" not in result.output
    for what in ("tool", "clock", "health", "MCP", "controls", "store"):
        assert f"✓ {what}" in result.output
    assert "It can be checked." in result.output


def test_the_doctor_says_what_is_not_given(target: Target) -> None:
    """And that it can be checked all the same."""
    result = run("doctor", "--url", target.address.url)
    assert result.exit_code == 0
    assert "· MCP" in result.output
    assert "· controls" in result.output
    assert "· store" in result.output


def test_the_doctor_finds_what_is_wrong(target: Target, valkey_url: str) -> None:
    """Another store, another's controls, a clock of whole seconds, no checkpoint at all."""

    def whole_seconds(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        told = json.loads(answer.body) if answer.body.startswith(b"{") else {}
        if "observed_at" in told:
            return with_members(answer, observed_at=told["observed_at"][:-4] + "000Z")
        return answer

    result = run("doctor", "--url", target.address.url, "--store", valkey_url)
    assert result.exit_code == 2
    assert "is it the one behind the server?" in result.output
    result = run("doctor", "--url", target.address.url, "--mcp", f"{target.address.url}/rpc")
    assert result.exit_code == 2
    assert "✗ MCP" in result.output
    assert "initialize was answered with HTTP 404" in " ".join(result.output.split())
    with reference_server() as other:
        assert other.controls is not None
        result = run("doctor", "--url", target.address.url, "--controls", other.controls.url)
    assert result.exit_code == 2
    assert "the tool does not go by it" in " ".join(result.output.split())
    with tampering(target.address, whole_seconds) as address:
        result = run("doctor", "--url", address.url)
    assert "stood still meanwhile" in result.output or "in steps of 1000 ms" in result.output
    with talking(answering(http("200 OK", b"<p>hello", "text/html"))) as url:
        result = run("doctor", "--url", url)
    assert result.exit_code == 2
    assert "not as a Workflow Checkpoint" in result.output


def test_the_doctor_takes_a_slow_way_for_no_coarse_clock(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two answers are as far apart as they travel; a coarse clock shows a multiple each time."""

    def told(*times_ms: int) -> doctor.Finding:
        monkeypatch.setattr(doctor, "_samples", lambda _: [(150_000_000, ms) for ms in times_ms])
        return doctor._clock(target)

    assert told(0, 151, 304, 455).fine
    assert "in steps of 1 ms" in told(0, 151, 304, 455).told
    assert not told(0, 200, 300, 500).fine
    assert "in steps of 100 ms" in told(0, 200, 300, 500).told


def test_the_doctor_waits_as_long_as_the_target_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every request of a run; and it asks the tool alone."""
    asked: list[Target] = []
    monkeypatch.setattr(doctor, "preflight", asked.append)
    url = "http://127.0.0.1:9"
    run("doctor", "--url", url, "--controls", url, "--timeout", "33")
    (target,) = asked
    assert (target.seconds_max, target.controls) == (33, None)


def test_the_vectors_replay(target: Target, tmp_path: Path) -> None:
    """All that come with the harness, from a file."""
    file = tmp_path / "vectors.jsonl"
    file.write_text(write_vectors(load_vectors()[:40], contract="1.1.0"))
    result = run("replay", str(file), *whole(target))
    assert result.exit_code == 0, result.output
    assert "PASS: 40 vectors sent; 0 rules broken" in result.output


def test_a_failure_s_vector_shows_it_again(target: Target, tmp_path: Path) -> None:
    """What `check --report` left fails on the same server, and passes on the right one."""

    def recovered_as_claimed(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        told = json.loads(answer.body) if answer.body.startswith(b"{") else {}
        if told.get("recovered"):
            return with_members(answer, stage="claimed", recovery_required=False)
        return answer

    with tampering(target.address, recovered_as_claimed) as address:
        options = whole(replace(target, address=address))
        checked = run("check", *options, "--profile", "quick", "--report", str(tmp_path))
        assert checked.exit_code == 1, checked.output
        file = tmp_path / "WC-CLAIM-8.vectors.jsonl"
        result = run("replay", str(file), *options)
    assert result.exit_code == 1
    assert "WC-CLAIM-8 is broken" in result.output
    assert run("replay", str(file), *whole(target)).exit_code == 0


def _recovers_nothing(message: Message, answer: HttpAnswer) -> HttpAnswer:
    del message
    told = json.loads(answer.body)
    return with_members(answer, stage="uncertain") if told.get("acquired") else answer


def _says_nothing(message: Message, answer: HttpAnswer) -> HttpAnswer:
    lost = message.json["action"] == "transition"
    return HttpAnswer(status=502, headers=(), body=b"<p>") if lost else answer


@pytest.mark.parametrize(
    ("spoil", "status", "said"),
    [
        (lambda _, answer: answer, 0, "PASS: 8 vectors sent; 0 rules broken"),
        (_recovers_nothing, 1, "FAIL: 8 vectors sent; 1 rules broken"),
        (_says_nothing, 3, "INCOMPLETE: 8 vectors sent; 0 rules broken"),
    ],
    ids=["right", "wrong", "silent"],
)
def test_a_replay_without_controls_says_what_came_of_it(
    tmp_path: Path, spoil: Callable[[Message, HttpAnswer], HttpAnswer], status: int, said: str
) -> None:
    """Vectors in which no time passes need none; its exit status is that of a check."""
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        answer = right(message, forward)
        return spoil(message, answer) if message.is_to_tool else answer

    file = tmp_path / "vectors.jsonl"
    at_once = [v for v in load_vectors() if not v.takes_time]
    of_transitions = [v for v in at_once if v.request["action"] == "transition"]
    file.write_text(write_vectors(of_transitions[:8], contract="1.1.0"))
    with model_at_url(serve) as target:
        result = run("replay", str(file), "--url", target.address.url)
    assert (result.exit_code, said in result.output) == (status, True), result.output


def test_the_doctor_mends_nothing_by_looking_away() -> None:
    """One thing that is not as it was said to be, and it cannot be checked."""

    def idle_controls(message: Message, forward: Forward) -> HttpAnswer:
        del forward
        moved_ms = 60_000 if b"advance_ms" in message.body else 0
        body = json.dumps({"now": format_timestamp(1_785_000_000_000 + moved_ms)}).encode()
        return HttpAnswer(status=200, headers=(("content-type", "application/json"),), body=body)

    with model_at_url() as target, tampering(NOWHERE, idle_controls) as controls:
        url = ["--url", target.address.url]
        results = {
            "none": run("doctor", *url),
            "mcp": run("doctor", *url, "--mcp", f"{target.address.url}/mcp"),
            "controls": run("doctor", *url, "--controls", controls.url),
        }
    assert {name: result.exit_code for name, result in results.items()} == {
        "none": 0,
        "mcp": 2,
        "controls": 2,
    }
    assert "Mend that first" in results["mcp"].output
    assert "the tool does not go by it" in " ".join(results["controls"].output.split())


def test_vectors_are_replayed_over_mcp(target: Target, tmp_path: Path) -> None:
    """By the binding that is asked for: what is wrong behind that door alone shows there alone."""

    def recovered_as_claimed(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        wrong = answer.body.replace(b'"recovered":true', b'"recovered":false')
        return replace(answer, body=wrong) if message.path == MCP_PATH else answer

    file = tmp_path / "vectors.jsonl"
    recovering = [v for v in load_vectors() if v.members.get("recovered") is True][:3]
    file.write_text(write_vectors(recovering, contract="1.1.0"))
    with tampering(target.address, recovered_as_claimed) as address:
        seen = replace(target, address=address, mcp=Address.parse(address.url + MCP_PATH))
        result = run("replay", str(file), *whole(seen), "--over", "mcp")
        assert run("replay", str(file), *whole(seen)).exit_code == 0
    assert result.exit_code == 1, result.output
    assert "WC-CLAIM-8 is broken" in result.output
    assert "MCP=" in result.output
    result = run("replay", str(file), *whole(target), "--over", "mcp")
    assert result.exit_code == 0, result.output


def test_what_cannot_be_replayed_is_said(target: Target, tmp_path: Path) -> None:
    """No file, no vectors, time without controls, no target."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    timed = tmp_path / "timed.jsonl"
    timed.write_text(
        write_vectors([v for v in load_vectors() if v.at_ms > 0][:1], contract="1.1.0")
    )
    url = ["--url", target.address.url]
    for arguments, said in [
        ([str(tmp_path / "none.jsonl"), *url], "No such file"),
        ([str(bad), *url], "line 1"),
        ([str(timed), *url], "give --controls too"),
        ([str(timed)], "Give --url or --target"),
        ([str(timed), *url, "--over", "mcp"], "Give --mcp"),
    ]:
        result = run("replay", *arguments)
        assert result.exit_code == 2
        assert said in result.output


@pytest.mark.parametrize("rule_id", rules())
def test_every_rule_is_explained(rule_id: str) -> None:
    """Its text, how it is tested, and for a decision row how to see it."""
    result = run("explain", rule_id)
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert " ".join(rules()[rule_id].text.split()) in said
    assert "Tested" in said
    if rule_id.split("-")[1] in ("CLAIM", "TRANS", "ABANDON", "STATUS", "GRAPH"):
        assert "must be answered" in said


def test_a_rule_that_there_is_not_is_said() -> None:
    """With those that come near."""
    result = run("explain", "WC-CLAIM-88")
    assert result.exit_code == 2
    assert "Did you mean WC-CLAIM-8" in result.output


def test_all_rules_are_listed() -> None:
    """One line each; or those of one section."""
    assert sum(line.startswith("WC-") for line in run("rules").output.splitlines()) == 92
    of_clock = run("rules", "--section", "5").output.splitlines()
    assert [line.split()[0] for line in of_clock[1:]] == [f"WC-TIME-{n}" for n in range(1, 7)]
