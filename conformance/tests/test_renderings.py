"""Every format: valid by a judge that is not ours, true to the report, and unimpressed."""

import io
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest
import reports
from formats import parsed_html, parsed_junit, parsed_markdown, parsed_sarif
from rich.console import Console

from checkpoint_conformance.renderings import FORMATS
from checkpoint_conformance.renderings.terminal import show
from checkpoint_conformance.rules import rules


def rendered(format_name: str, report: str) -> str:
    """One format of one report, as whoever reads the file gets it."""
    return FORMATS[format_name].render(json.loads(json.dumps(reports.ALL[report]())))


@pytest.mark.parametrize("report", reports.ALL)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_every_report_is_fit_to_be_written(name: str, report: str) -> None:
    """UTF-8, nothing but what prints and line ends, and not without end."""
    text = rendered(name, report)
    text.encode()
    odd = set(text) - {"\n", "\t"}
    assert [c for c in odd if not c.isprintable() and c not in "\ufe0f\u200b"] == []
    assert len(text) < 1_000_000
    assert text.endswith("\n")


def test_all_formats_together_are_made_at_once() -> None:
    """Well under a second, so that every run can afford them."""
    report = reports.hostile()
    for made in FORMATS.values():
        made.render(report)
    started = time.process_time()
    for made in FORMATS.values():
        made.render(report)
    assert time.process_time() - started < 1


# -- JUnit -------------------------------------------------------------------------------


@pytest.mark.parametrize("report", reports.ALL)
def test_junit_is_valid_and_has_every_rule(report: str) -> None:
    """One suite; a case for each rule and binding, and one for the verdict; counts that add up."""
    (suite,) = parsed_junit(rendered("junit", report))
    cases = list(suite)
    names = [case.name for case in cases]
    assert len(names) == len(set(names))
    assert {name.split(" ")[0] for name in names} == {"the", *rules()}
    of_rules = sum(len(r.get("bindings") or [1]) for r in reports.ALL[report]()["rules"].values())
    assert suite.tests == len(cases) == of_rules + 1
    kinds = [type(result).__name__ for case in cases for result in case.result]
    assert suite.failures == kinds.count("Failure")
    assert suite.errors == kinds.count("Error")
    assert suite.skipped == kinds.count("Skipped")
    red = suite.failures + suite.errors > 0
    assert red is (report not in ("passing", "with_bindings", "knowing", "harmed"))


def test_junit_tells_a_failure_whole() -> None:
    """The rule's text, expected and got, every member, and the commands."""
    (suite,) = parsed_junit(rendered("junit", "failing"))
    by_name = {case.name: case for case in suite}
    broken = by_name["WC-CLAIM-8 [http]"]
    assert broken.classname == "workflow-checkpoint.6 Decisions"
    (failure,) = broken.result
    assert failure.type == "WC-CLAIM-8"
    assert failure.message == '`stage`: expected "uncertain", got "claimed"'
    assert rules()["WC-CLAIM-8"].text in failure.text
    assert "curl -sS" in failure.text
    # A rule that is named beside another has that one's failure.
    assert by_name["WC-IDEM-1 [http]"].result[0].type == "WC-IDEM-1"
    assert by_name["WC-MCP-1 [mcp]"].result[0].message.startswith("not-applicable: ")
    assert by_name["WC-ID-4 [http]"].result[0].message == "inspection: no test can tell"


# -- SARIF -------------------------------------------------------------------------------


@pytest.mark.parametrize("report", reports.ALL)
def test_sarif_is_valid(report: str) -> None:
    """Every rule once, a result for each failure, and whether the run was made at all."""
    run = parsed_sarif(rendered("sarif", report))
    driver = run["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == list(rules())
    assert len(run["results"]) == len(reports.ALL[report]()["failures"])
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["level"], result["kind"]) == ("error", "fail")
        # Only what is expected to be broken: whoever shows the findings hides the suppressed.
        assert ("suppressions" in result) is (report in ("excused", "knowing"))
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is (report != "erroneous")


def test_sarif_says_what_to_do() -> None:
    """The script as the place, and a help text with each rule."""
    run = parsed_sarif(rendered("sarif", "failing"))
    first = run["results"][0]
    place = first["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "WC-CLAIM-8.sh", "uriBaseId": "REPORT"}
    assert "curl -sS" in first["message"]["text"]
    assert all(rule["help"]["markdown"] for rule in run["tool"]["driver"]["rules"])
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"].startswith(
        "a sequence of the check"
    )


def test_sarif_suppresses_what_is_expected() -> None:
    """With the reason."""
    (result,) = parsed_sarif(rendered("sarif", "excused"))["results"]
    (suppression,) = result["suppressions"]
    assert suppression["justification"] == "expected: known (https://issues.example/8)"


# -- Markdown ----------------------------------------------------------------------------


def test_markdown_has_verdict_failures_and_sections() -> None:
    """As GitHub's own dialect: headings, tables of one width, and fenced commands."""
    tokens = parsed_markdown(rendered("markdown", "failing"))
    text = " ".join(token.content for token in tokens if token.type in ("text", "code_inline"))
    assert reports.failing()["line"] in text
    assert [word for word in ("WC-CLAIM-8", "WC-TRANS-4") if f"{word} is broken" not in text] == []
    assert [t.content for t in tokens if t.type == "code_inline"].count("uncertain") == 1
    tables = [t for t in tokens if t.type == "table_open"]
    assert len(tables) == 3
    fences = [t for t in tokens if t.type == "fence"]
    assert [fence.info for fence in fences] == ["sh", "sh"]
    assert all("curl -sS" in fence.content for fence in fences)


@pytest.mark.parametrize("report", reports.ALL)
def test_markdown_is_nothing_but_what_we_wrote(report: str) -> None:
    """No link, no picture, no markup of the target's."""
    tokens = parsed_markdown(rendered("markdown", report))
    html = {t.content.strip() for t in tokens if t.type in ("html_block", "html_inline")}
    summary = r"<summary>To see it again: \d+ requests?, found by the check «\w+»</summary>"
    shape = f"</details>|<details>{summary}"
    assert {block for block in html if not re.fullmatch(shape, block)} == set()
    assert {t.type for t in tokens} & {"link_open", "image", "hr"} == set()
    bold = [t for t in tokens if t.type == "strong_open"]
    own = sum(len(failure["rules"]) for failure in reports.ALL[report]()["failures"])
    statuses = {rule["status"] for rule in reports.ALL[report]()["rules"].values()}
    assert len(bold) == own + 1 + len(statuses)


# -- annotations -------------------------------------------------------------------------


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Workflow commands as GitHub's runner reads them: kind, properties, message."""
    found = []
    for line in text.splitlines():
        matched = re.fullmatch(r"::(\w+)(?: ([^:]*))?::(.*)", line)
        assert matched, line
        kind, listed, message = matched.groups()
        properties = dict(part.split("=", 1) for part in (listed or "").split(",") if part)
        found.append((kind, {n: unescaped(v) for n, v in properties.items()}, unescaped(message)))
    return found


def unescaped(text: str) -> str:
    """In the runner's order, the percent sign last."""
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        text = text.replace(code, character)
    return text.replace("%25", "%")


@pytest.mark.parametrize("report", reports.ALL)
def test_annotations_are_commands_of_ours_alone(report: str) -> None:
    """An error for each failure, a warning for each gap, and the verdict's line."""
    found = reports.ALL[report]()
    read = commands(rendered("annotations", report))
    kinds = [kind for kind, _, _ in read]
    # What is expected is no error, and that it no longer is, is one.
    errors = {"erroneous": 1, "excused": 1, "knowing": 0}.get(report, len(found["failures"]))
    assert kinds.count("error") == errors
    assert kinds.count("warning") == len(found.get("incomplete_because", []))
    assert kinds.count("notice") == (report != "erroneous")
    assert read[-1][2] == found["line"]


def test_annotations_beyond_what_github_shows_are_counted() -> None:
    """Ten of a kind for one step."""
    found = reports.failing()
    found["failures"] = [{**found["failures"][0], "rules": [rule]} for rule in list(rules())[:15]]
    read = commands(FORMATS["annotations"].render(found))
    errors = [properties["title"] for kind, properties, _ in read if kind == "error"]
    assert len(errors) == 10
    assert errors[-1] == "6 more rules are broken"


# -- badge -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "message", "colour"),
    [
        ("passing", "pass, 74 of 92 rules", "brightgreen"),
        ("failing", "3 rules broken", "red"),
        ("incomplete", "incomplete, 0 of 92 rules", "yellow"),
        ("erroneous", "could not be checked", "lightgrey"),
        ("knowing", "pass, 73 of 92 rules", "brightgreen"),
        ("excused", "expected failures to be removed", "red"),
    ],
)
def test_the_badge_is_what_shields_io_reads(report: str, message: str, colour: str) -> None:
    """Its documented members, of their types."""
    badge = json.loads(rendered("badge", report))
    assert badge == {
        "schemaVersion": 1,
        "label": "workflow checkpoint 1.1.0",
        "message": message,
        "color": colour,
        "isError": report in ("failing", "erroneous", "excused"),
    }


# -- terminal ----------------------------------------------------------------------------


def test_the_terminal_s_text_sends_no_escape() -> None:
    """Whatever the target sent, and however wide the terminal."""
    text = rendered("terminal", "hostile")
    assert "\x1b" not in text
    assert "WC-CLAIM-8 is broken" in text
    assert text.splitlines()[-2].startswith("FAIL: 3 rules broken")


def shown(
    report: Mapping[str, Any], *, whole: bool, width: int = 80, terminal: bool = False
) -> str:
    """What the end of a run shows where there is no colour."""
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, force_terminal=terminal)
    show(console, report, whole=whole)
    return text.getvalue()


def test_a_run_that_passed_ends_with_what_was_not_reached() -> None:
    """No line for what passed; each rule that did not, by its reason; the verdict in one line."""
    report = reports.passing()
    lines = shown(report, whole=False).splitlines()
    assert len(lines) < 12
    assert report["line"] in lines
    not_passed = " ".join(lines[: lines.index(report["line"])])
    for rule_id, rule in report["rules"].items():
        first = rule["status"] != "passed" and f"{rule_id}," in f"{not_passed},"
        assert not (rule["status"] == "passed" and first)
    assert "inspection: no test can tell: WC-ID-4 … 5, WC-ERR-6" in lines
    assert "not-applicable: the class mcp is not claimed: WC-MCP-1 … 6" in lines


def test_the_whole_has_every_rule_uncut() -> None:
    """In a pipe, however narrow: no width is anybody's there."""
    report = reports.passing()
    lines = shown(report, whole=True, width=40).splitlines()
    for rule_id, rule in report["rules"].items():
        (line,) = [line for line in lines if line.startswith(f"{rule_id} ")]
        assert rule["status"] in line
        assert rule.get("reason", "") in line


def test_a_narrow_terminal_breaks_lines_between_words() -> None:
    """Not in the middle of one, as the terminal itself would."""
    report = reports.passing()
    lines = shown(report, whole=False, width=40, terminal=True).splitlines()
    assert max(map(len, lines)) <= 40
    verdict = next(n for n, line in enumerate(lines) if line.startswith("PASS: "))
    told = " ".join(line.strip() for line in lines[verdict:])
    assert told.startswith(report["line"])


def test_what_was_not_answered_is_named() -> None:
    """Which request, of which check, and why; in each format that people read."""
    kinds = [{"what": f"a `claim` of the check «c{n}»: cut", "times": 9 - n} for n in range(7)]
    report = {**reports.passing(), "unanswered": 42, "lost": kinds}
    text = shown(report, whole=False)
    assert "42 requests not answered:" in text
    assert "  a `claim` of the check «c0»: cut (9 times)" in text
    assert "and 2 other kinds" in text
    for name in ("html", "markdown"):
        assert "of the check «c6»: cut (3 times)" in FORMATS[name].render(report)


# -- HTML --------------------------------------------------------------------------------


@pytest.mark.parametrize("report", reports.ALL)
def test_html_is_parsed_without_an_error(report: str) -> None:
    """By the standard's own algorithm; and it is all in one file."""
    text = rendered("html", report)
    page = parsed_html(text)
    for element in page.iter():
        for name in ("src", "href", "action", "data", "srcset"):
            value = element.attrib.get(name, "#")
            assert value.startswith("#"), f"{element.tag} {name}={value}"
        assert not [name for name in element.attrib if str(name).startswith("on")]
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert len(page.findall(".//script")) == 1
    assert page.find(".//img") is None


def test_html_has_every_rule_and_every_failure() -> None:
    """With its text, its status, its numbers, and a place to go to."""
    page = parsed_html(rendered("html", "failing"))
    identified = {e.attrib["id"]: e for e in page.iter() if "id" in e.attrib}
    for rule_id, rule in rules().items():
        text = "".join(identified[rule_id].itertext())
        assert rule.text.replace("`", "") in text
    assert {"failure-1", "failure-2", "script-1", "graph", "checks"} <= set(identified)
    targets = {e.attrib["href"][1:] for e in page.iter("a")}
    assert targets <= set(identified)
    script = "".join(identified["script-1"].itertext())
    assert script == reports.failing()["failures"][0]["reproduction"]


LOST = (
    "Faults: 4 of 2 kinds; 2 acknowledged changes lost (a crash is to leave all but the last "
    "two seconds, and took 5); a good answer at the latest 1,257 ms after each"
)


def test_html_has_a_row_for_each_kind_of_fault() -> None:
    """With what was lost above them; what did not recover has no time."""
    page = parsed_html(rendered("html", "harmed"))
    (section,) = [e for e in page.iter("section") if e.attrib.get("id") == "faults"]
    assert LOST in "".join(section.itertext())
    rows = [["".join(cell.itertext()) for cell in row] for row in section.iter("tr")]
    assert rows[1:] == [
        ["store-kill", "3", "3", "", "238", "1,257"],
        ["client-cut-in-answer", "1", "0", "4", "", ""],
    ]


def test_the_terminal_tells_what_faults_took() -> None:
    """In one line above the verdict, and nothing of them where none were made."""
    assert LOST in rendered("terminal", "harmed")
    assert "Faults:" not in rendered("terminal", "passing")


def test_html_keeps_the_drawing_s_names_to_the_drawing() -> None:
    """Its style is for the whole page, so no element outside may have a class of its."""
    page: Any = parsed_html(rendered("html", "hostile"))

    def classes(elements: Any) -> set[str]:
        return {c for e in elements for c in e.attrib.get("class", "").split()}

    svg = page.find(".//{http://www.w3.org/2000/svg}svg")
    if svg is None:
        svg = page.find(".//svg")
    drawn = set(svg.iter())
    assert classes(drawn) & classes(e for e in page.iter() if e not in drawn) == set()


def test_html_draws_what_was_gone_and_what_was_not() -> None:
    """Counts on the moves; faint where never; red where an answer was wrong."""
    text = rendered("html", "failing")
    assert text.count('class="arrow') == 11 + 2
    assert ", 3 wrong</tspan>" in text
    assert text.count("untried") > 0
    assert "#215;12</tspan>" in text
