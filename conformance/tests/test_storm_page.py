"""``storm.html``: true to the judgement, in one file, and in a real browser clear to look at."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import reports
from browsing import DARK, DESK, PHONE, Browser, browser_in, layout
from click.testing import CliRunner
from formats import parsed_html
from PIL import Image
from simulated import Load
from storms import claim_calls, mixed_calls, with_members, write_history

from checkpoint_conformance.client import HttpAnswer, Lost, land_all
from checkpoint_conformance.history import Call, HistoryWriter, begin_header, call_of
from checkpoint_conformance.judging import judge_folder, write_judgement
from checkpoint_conformance.judging_commands import recheck
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering
from checkpoint_conformance.renderings.storm import FILE_NAME, render, write_storm_page
from checkpoint_conformance.run import Target
from checkpoint_conformance.session import fresh_identity, fresh_key
from checkpoint_model import Claim, format_request

OWN: Final = Path(__file__).with_name("measure_storm.js").read_text(encoding="utf-8")
CONTENDERS = 100
CROWD = Load(clients=100, calls_each=50, workflows=1, lost=0.05)
MIXED = Load(clients=30, calls_each=20, workflows=12, lost=0.2)


def judged(*storms: tuple[str, list[Call]]) -> dict[str, Any]:
    """The judgement of a history with these storms."""
    with TemporaryDirectory() as made:
        for storm, calls in storms:
            write_history(Path(made) / f"{storm}.jsonl", calls, storm=storm)
        return judge_folder(Path(made))


@cache
def judgement_of(name: str) -> dict[str, Any]:
    """Of every verdict, and of a target that is out to do harm."""
    match name:
        case "passing":
            claims, mixed = claim_calls(contenders=CONTENDERS), mixed_calls(3, MIXED)
            return judged(("claim", claims), ("mixed", mixed))
        case "failing":
            return judged(("claim", claim_calls(rounds=2, contenders=CONTENDERS, atomic=False)))
        case "crowded":
            return judged(("mixed", mixed_calls(3, CROWD)))
        case "alone":
            return judged(("claim", claim_calls(together=False)))
    assert name == "hostile"
    return judged(("claim", [_harmful(*pair) for pair in enumerate(claim_calls(rounds=2))]))


def _harmful(number: int, call: Call) -> Call:
    evil = reports.EVIL
    if number % 7 == 1:
        wrong = with_members(call, stage=evil, detail=evil)
        return replace(wrong, client=f"{call.client}{evil}")
    if number % 7 == 2:
        return replace(call, answer=Lost(reason=evil, detail=evil), returned_ns=None)
    return call


def data_of(page: str) -> list[dict[str, Any]]:
    """What the page's script draws."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    storms: list[dict[str, Any]] = json.loads(text)["storms"]
    return storms


def words_of(page: str) -> str:
    """All that stands in a page, with one space between the words."""
    return " ".join(" ".join(parsed_html(page).itertext()).split())


@pytest.mark.parametrize("name", ["passing", "failing", "crowded", "hostile", "alone"])
def test_the_page_is_one_file_without_an_error(name: str) -> None:
    """By the standard's own parser; nothing is loaded, and nothing is anybody else's script."""
    page = parsed_html(render(judgement_of(name)))
    loading = {"src", "href", "srcset", "action", "data", "poster"}
    for element in page.iter():
        for attribute, value in element.attrib.items():
            assert attribute not in loading or value.startswith("#"), (element.tag, attribute)
            assert not attribute.startswith("on")
    scripts = [e for e in page.iter() if str(e.tag) == "script"]
    assert [script.get("type") for script in scripts] == ["application/json", None]
    assert not any(str(e.tag).endswith(("img", "link", "iframe")) for e in page.iter())


@pytest.mark.parametrize("name", ["passing", "failing", "crowded"])
def test_every_operation_is_drawn_as_it_was_judged(name: str) -> None:
    """Its lane, its times, its place in the order, and what it came to."""
    judgement = judgement_of(name)
    for storm, drawn in zip(judgement["storms"], data_of(render(judgement)), strict=True):
        clients = {o["client"].split(".")[0] for w in storm["shown"] for o in w["operations"]}
        assert sorted(drawn["lanes"]) == sorted(clients)
        for shown, workflow in zip(storm["shown"], drawn["workflows"], strict=True):
            assert len(workflow["ops"]) == len(shown["operations"])
            changing = {state["place"] for state in shown["states"]}
            for op, operation in zip(workflow["ops"], shown["operations"], strict=True):
                lane, client, _, _, _, called, _, returned, _, answer, kind, place = op
                assert client.split(".")[0] == drawn["lanes"][lane]
                assert place == operation["place"]
                assert (returned is None) is (operation["lost"] is not None)
                if returned is not None:
                    took_ns = operation["returned_ns"] - operation["called_ns"]
                    assert abs((returned - called) * 1000 - took_ns) <= 200
                assert (kind == 0) is (operation["place"] in changing)
                assert (kind == 4) is (operation["answer"] is None and kind != 0)
                if operation["answer"] is not None and "code" in operation["answer"]["members"]:
                    assert drawn["answers"][answer][0] == operation["answer"]["members"]["code"]
                    assert kind == 2


def test_the_page_says_what_the_figures_are() -> None:
    """Latency, throughput, spread, contention, winners: in words, without any script."""
    judgement = judgement_of("passing")
    text = words_of(render(judgement))
    claim = judgement["storms"][0]
    latency = claim["latency_ms"]["claim"]
    for member in ("p50", "p99", "max"):
        assert f"{latency[member]:.1f}" in text
    assert f"{claim['requests_per_second']:,.0f} answers a second" in text
    assert "0.99 ms in the median of 6 bursts" in text
    assert "100 in the median burst, 100 at most" in text
    assert "c0 acquired generation 1 after 5.0 ms" in text
    assert "WC-CONC-2 passed 3" in text


def test_what_could_not_be_decided_is_called_broken_nowhere(tmp_path: Path) -> None:
    """The budget was spent: that is no pass, and says nothing against the target."""
    calls = mixed_calls(0, replace(MIXED, workflows=1))
    judgement = judge_folder(write_history(tmp_path / "a.jsonl", calls), steps_max=5)
    page = render(judgement)
    text = words_of(page)
    assert "WC-CONC-1 could not be decided in the storm claim" in text
    assert "What is not known: whether one order explains every answer" in text
    assert "<h1>Whether one order explains every answer could not be decided</h1>" in page
    assert "broken" not in text


def test_what_is_broken_and_what_could_not_be_decided_are_told_apart(tmp_path: Path) -> None:
    """Each by its own heading; the whole is what is broken."""
    calls = [*claim_calls(rounds=1, atomic=False), *mixed_calls(0, replace(MIXED, workflows=1))]
    judgement = judge_folder(write_history(tmp_path / "a.jsonl", calls), steps_max=200)
    page = render(judgement)
    text = words_of(page)
    assert "WC-CONC-2 is broken in the storm claim" in text
    assert "WC-CONC-1 could not be decided in the storm claim" in text
    assert "<h1>No order explains the answers</h1>" in page


def test_what_fails_stands_in_the_page_itself() -> None:
    """Rules with their text, expected and got, the state before it, and why."""
    judgement = judgement_of("failing")
    page = render(judgement)
    text = words_of(page)
    failure = judgement["storms"][0]["failures"][0]
    assert failure["rules"][0] == "WC-CONC-2"
    assert f"expected {failure['expected']}" in text
    assert f"got {failure['got']}" in text
    assert "Of concurrent claims at most one makes any given generation" in text
    assert f"claimed, generation 1, held by {failure['state']['holder']}" in text
    assert 'data-goto="0,0,1"' in page


def test_too_little_contention_is_no_pass(tmp_path: Path) -> None:
    """Whether the judge says so, or what the storm wrote beside the judgement does."""
    assert ">Too little was seen to say<" in render(judgement_of("alone"))
    write_judgement(tmp_path, judgement_of("passing"))
    gap = "too little contention: in the median burst 9 of 100 requests were in flight at once"
    told = {"name": "claim", "title": "Claims of a new workflow", "incomplete_because": [gap]}
    (tmp_path / "storm.json").write_text(json.dumps({"storms": [told]}))
    page = write_storm_page(tmp_path).read_text(encoding="utf-8")
    assert '<body class="v-incomplete">' in page
    assert gap in page
    assert "Claims of a new workflow" in page


def test_recheck_writes_the_page(tmp_path: Path) -> None:
    """And says where it is."""
    folder = write_history(tmp_path / "a.jsonl", claim_calls())
    done = CliRunner().invoke(recheck, [str(folder)])
    assert done.exit_code == 0, done.output
    assert f"To look at it: {folder / FILE_NAME}" in done.output
    assert len(data_of((folder / FILE_NAME).read_text(encoding="utf-8"))) == 1


# -- in a browser ------------------------------------------------------------------------


@pytest.fixture
def browser(tool: Callable[[str], str], tmp_path: Path) -> Browser:
    """Chromium, with a profile of its own."""
    return browser_in(tmp_path, tool("chromium"))


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("passing", DESK, "light"),
        ("failing", DESK, "dark"),
        ("failing", PHONE, "light"),
        ("hostile", PHONE, "dark"),
    ],
)
def test_the_page_fits_can_be_read_and_does_what_its_keys_say(
    name: str, width: int, scheme: str, browser: Browser
) -> None:
    """Nothing beyond the edge, cut off or faint; zoom, steps, rounds, lanes, the first error."""
    page = render(judgement_of(name))
    found = layout(browser, page, width, OWN, *([DARK] if scheme == "dark" else []))
    assert found["page"] == {"light": "rgb(244, 246, 248)", "dark": "rgb(13, 17, 23)"}[scheme]
    assert found["scrollWidth"] <= width
    assert (found["outside"], found["cut"], found["faint"]) == ([], [], [])
    assert found["title"].endswith(" · Workflow Checkpoint storm")
    assert (found["all"]["from"], found["all"]["to"]) == (0, 1)
    zoomed, moved = found["zoomed"], found["moved"]
    assert zoomed["to"] - zoomed["from"] == pytest.approx(0.6, abs=0.01)
    assert moved["from"] > zoomed["from"]
    assert found["next"]["selected"] == found["before"]["selected"] != found["after"]["selected"]
    assert "THE RECORD AFTER, BY WC-CLAIM-1" in found["next"]["details"].upper()
    assert found["named"]["lanes"] == found["byOrder"]["lanes"] == found["all"]["lanes"]
    assert found["clicked"]["selected"] != ""
    assert found["error"] is (name != "passing")
    if name == "passing":
        assert "One order explains every answer" in found["begin"]["details"]
        assert (found["begin"]["ops"], found["begin"]["lanes"]) == (201, 100)
        assert (found["workflows"], found["whole"]["ops"]) == (4, 603)
        assert (found["rounds"], found["round"]["ops"]) == (3, 201)
    if name == "failing":
        assert found["begin"]["selected"] == found["again"]["selected"] == "c1 claim"
        assert "cannot be placed" in found["begin"]["details"]
        assert "CHECKPOINT_NOT_HELD: claimed, gen. 1" in found["begin"]["details"]
        assert found["gotos"] == 2
        assert "round 1" in found["second"]["details"]


def test_the_script_calls_nothing_wrong_that_could_not_be_decided(
    browser: Browser, tmp_path: Path
) -> None:
    """Of the one workflow alone, and of all that are drawn."""
    calls = mixed_calls(0, replace(MIXED, workflows=2))
    judgement = judge_folder(write_history(tmp_path / "a.jsonl", calls), steps_max=5)
    found = layout(browser, render(judgement), DESK, OWN)
    begin, whole = found["begin"]["details"], found["whole"]["details"]
    assert "Not decided whether one order explains this workflow" in begin
    assert "2 workflows" in whole
    assert "1 of those drawn could not be decided." in whole
    assert "No order explains" not in begin + whole
    assert "cannot be explained" not in begin + whole


def colours_of(picture: Path) -> dict[tuple[int, ...], int]:
    """How many pixels of a picture have each colour."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    found = image.getcolors(image.width * image.height)
    assert found is not None
    return {tuple(colour): number for number, colour in found if not isinstance(colour, float)}


def test_a_hundred_lanes_with_five_thousand_operations_are_drawn(
    browser: Browser, tmp_path: Path
) -> None:
    """A screenshot of the whole: bars of each kind in their colours, lane by lane."""
    picture = tmp_path / "picture.png"
    browser(render(judgement_of("crowded")), "--window-size=1440,1500", f"--screenshot={picture}")
    found = colours_of(picture)
    refused, result, changed = (179, 189, 200), (127, 178, 229), (31, 95, 168)
    assert found[refused] > 50_000
    assert found[result] > 20_000
    assert changed in found


# -- what was really recorded ------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Any:
    """The reference server."""
    with reference_server() as target:
        yield target


def as_it_is(message: Message, forward: Forward) -> HttpAnswer:
    """What the server answers."""
    return forward(message)


def two_winners() -> Tamper:
    """Every tenth claim that is refused is told that it was acquired."""
    winner: list[HttpAnswer] = []
    refused: list[int] = []

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if answer.status == 200:
            winner[:] = [answer]
        elif winner and message.json.get("action") == "claim":
            refused.append(1)
            if len(refused) == 10:
                return winner[0]
        return answer

    return tamper


def record(target: Target, path: Path) -> None:
    """A hundred claims of one workflow, released together, as a history."""
    identity = fresh_identity()
    claims = [
        Claim(
            holder=fresh_key("h"), claim_ttl_seconds=60, state_ttl_seconds=600, retry_failed=False
        )
        for _ in range(CONTENDERS)
    ]
    requests = [format_request(identity, claim) for claim in claims]
    clients = [target.client() for _ in claims]
    headers = (("content-type", "application/json"),)
    flights = [
        client.prepare("POST", "/v1/tools/workflow-checkpoint", json.dumps(body).encode(), headers)
        for client, body in zip(clients, requests, strict=True)
    ]
    for flight in flights:
        flight.release()
    with HistoryWriter(path, begin_header("claim", {"url": target.address.url})) as writer:
        for number, exchange in enumerate(land_all(flights)):
            call = call_of(
                exchange, client=f"c{number}.1", request=requests[number], round=0, burst="storm"
            )
            writer.call(call)
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("tamper", "verdict", "scheme"),
    [(as_it_is, "pass", "light"), (two_winners(), "fail", "dark")],
    ids=["right", "two winners"],
)
def test_a_storm_that_was_recorded_looks_like_its_verdict(
    server: Target, tamper: Tamper, verdict: str, scheme: str, browser: Browser, tmp_path: Path
) -> None:
    """The band in the verdict's colour; the winner's bar; in red what cannot be placed."""
    with tampering(server.address, tamper) as address:
        record(replace(server, address=address), tmp_path / "a.jsonl")
    judgement = judge_folder(tmp_path)
    assert judgement["verdict"] == verdict, judgement["line"]
    write_judgement(tmp_path, judgement)
    page = write_storm_page(tmp_path).read_text(encoding="utf-8")
    picture = tmp_path / "picture.png"
    arguments = ["--window-size=1440,2100", f"--screenshot={picture}"]
    browser(page, *arguments, *([DARK] if scheme == "dark" else []))
    found = colours_of(picture)
    changed = {"light": (31, 95, 168), "dark": (108, 178, 255)}[scheme]
    red = {"light": (192, 39, 29), "dark": (255, 107, 96)}[scheme]
    band = {"pass": (27, 127, 69), "fail": (255, 107, 96)}[verdict]
    assert found[band] > 1440 * 6
    assert changed in found
    assert (found.get(red, 0) > 1440 * 8) is (verdict == "fail")
    assert len(found) > 200
