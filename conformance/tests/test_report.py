"""``report.json``: what its schema admits, what reading it again says, and what it keeps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reports
from click.testing import CliRunner
from formats import report_schema

from checkpoint_conformance import report
from checkpoint_conformance.cli import main
from checkpoint_conformance.graph import Cell, arrows, cell_of, cells
from checkpoint_conformance.plain import DEPTH_MAX, MEMBERS_MAX, TEXT_MAX, bounded, plain
from checkpoint_conformance.renderings import FORMATS
from checkpoint_conformance.rules import SECTIONS, rules
from checkpoint_conformance.verdict import Status, Verdict
from checkpoint_model import Claim, EvidenceType, Stage, Transition, step

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", reports.ALL)
def test_every_report_is_admitted_by_the_schema(name: str) -> None:
    """Of each verdict, and of a hostile target: written and read again, as anybody reads it."""
    found = json.loads(json.dumps(reports.ALL[name](), allow_nan=False))
    report_schema().validate(found)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("passing", lambda r: r.update(verdict="passed")),
        ("passing", lambda r: r.update(format=2)),
        ("passing", lambda r: r.pop("moves")),
        ("passing", lambda r: r["incomplete_because"].append("something")),
        ("passing", lambda r: r["rules"]["WC-CLAIM-1"].update(status="ok")),
        ("passing", lambda r: r["rules"]["WC-MCP-1"].pop("reason")),
        ("passing", lambda r: r["moves"][0].update(to="nowhere")),
        ("failing", lambda r: r["failures"].clear()),
        ("failing", lambda r: r["failures"][0].update(rules=[])),
        ("excused", lambda r: r["not_as_expected"].clear() or r["failures"].clear()),
        ("failing", lambda r: r["failures"][0]["sequence"][0].pop("answered")),
        ("incomplete", lambda r: r["incomplete_because"].clear()),
        ("erroneous", lambda r: r.pop("line")),
    ],
)
def test_the_schema_refuses_what_is_no_report(
    name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Each change makes it say something else, or too little."""
    found = reports.ALL[name]()
    change(found)
    assert not report_schema().is_valid(found)


def test_schema_and_code_have_the_same_words() -> None:
    """Verdicts, statuses, and the number of the format."""
    schema: Any = report_schema().schema
    assert schema["properties"]["verdict"]["enum"] == list(Verdict)
    assert set(schema["$defs"]["status"]["enum"]) == set(Status)
    assert schema["properties"]["format"]["const"] == report.FORMAT
    assert schema["$defs"]["stage"]["enum"] == list(Stage)


def test_sections_are_titled_as_in_the_contract() -> None:
    """And every rule is in one of them."""
    contract = (ROOT / "model/CONTRACT.md").read_text(encoding="utf-8")
    for number, title in SECTIONS.items():
        assert f"\n## {number} {title}\n" in contract
    assert {rule.section for rule in rules().values()} == set(SECTIONS)


# -- moves -------------------------------------------------------------------------------


def test_the_cells_are_the_graph_s() -> None:
    """The first claim, seventeen moves with their evidence, the retry and two take-overs."""
    assert len(cells()) == len(set(cells())) == 1 + 17 + 3
    assert {(c.source, c.target, c.is_claim) for c in cells() if c.source} == {
        (arrow.source, arrow.target, arrow.is_claim) for arrow in arrows()
    }


def test_a_decision_s_cell_is_told_from_what_it_changed() -> None:
    """First claim, move, replay, refusal, take-over, and a new record after the old one's end."""

    def claim(holder: str) -> Claim:
        return Claim(holder=holder, claim_ttl_seconds=1, state_ttl_seconds=9, retry_failed=False)

    def move(key: str) -> Transition:
        return Transition(holder="a", generation=1, to_stage=Stage.UNCERTAIN, observation_key=key)

    first = step(None, claim("a"), 0)
    assert cell_of(None, claim("a"), first) == Cell(
        source=None, target=Stage.CLAIMED, is_claim=True
    )
    moved = step(first.record, move("k"), 1)
    assert cell_of(first.record, move("k"), moved) == Cell(
        source=Stage.CLAIMED, target=Stage.UNCERTAIN
    )
    for refused in (move("k"), move("l"), claim("b"), claim("a")):
        assert cell_of(moved.record, refused, step(moved.record, refused, 2)) is None
    taken = step(first.record, claim("b"), 1000)
    assert cell_of(first.record, claim("b"), taken) == Cell(
        source=Stage.CLAIMED, target=Stage.UNCERTAIN, is_claim=True
    )
    anew = step(first.record, claim("b"), 9000)
    assert cell_of(first.record, claim("b"), anew) == cells()[0]
    settled = Transition(
        holder="a",
        generation=1,
        to_stage=Stage.FAILED,
        observation_key="m",
        evidence_type=EvidenceType.EXTERNAL_ABSENCE,
        evidence_fingerprint=None,
    )
    done = step(moved.record, settled, 3)
    if done.record is not moved.record:
        assert cell_of(moved.record, settled, done) in cells()


# -- what a target says ------------------------------------------------------------------


def test_plain_text_is_printable_and_bounded() -> None:
    """Line ends only where they are asked for; what does not print as an escape."""
    assert plain("a\nb\x1b\u202e\ud800é→") == "a\\nb\\x1b\\u202e\\ud800é→"
    assert plain("a\n\tb\r", lines=True) == "a\n\tb\\r"
    assert plain("x" * 10, 4) == "xxxx… (6 more characters)"
    assert plain(reports.EVIL * 1000).isprintable()


def test_json_is_bounded_in_every_direction() -> None:
    """Text, members, items and depth; and no number that JSON does not have."""
    deep: Any = 1
    for _ in range(10 * DEPTH_MAX):
        deep = [deep]
    value = {"t": "x" * (TEXT_MAX + 1), "l": list(range(MEMBERS_MAX * 3)), "d": deep, "n": 1e999}
    value |= {f"m{n}": n for n in range(MEMBERS_MAX * 2)}
    cut = bounded(value)
    assert cut["t"].endswith("… (1 more characters)")
    assert len(cut["l"]) == len(cut) == MEMBERS_MAX + 1
    assert json.dumps(cut["d"]).count("[") <= DEPTH_MAX
    assert cut["n"] == "inf"
    assert bounded({"a": [1, None, True, "b", 1.5]}) == {"a": [1, None, True, "b", 1.5]}


def test_no_answer_gets_a_line_of_its_own_into_a_script() -> None:
    """A line end in an answer would else start a command of the target's choice."""
    for failure in reports.hostile()["failures"]:
        lines = failure["reproduction"].splitlines()
        assert all(line.isprintable() for line in lines)
        told = [line for line in lines if "forged" in line]
        assert told
        assert all(line.startswith("#") for line in told)


def test_a_script_sends_the_whole_sequence_on_a_workflow_of_its_own() -> None:
    """A call for each request, and the key that the run has used up in none of them."""
    (failure,) = reports.knowing()["failures"]
    script = failure["reproduction"]
    assert script.count("curl -sSi") == len(failure["sequence"]) == 2
    assert script.count("'\"$KEY\"'") == 2
    assert "w_1" not in script


def test_a_rule_broken_over_each_binding_leaves_a_script_for_each(tmp_path: Path) -> None:
    """And what the schema says of the bindings is what there is."""
    found = reports.over_mcp()
    report.write(tmp_path, found)
    assert {path.name for path in tmp_path.glob("*.sh")} == {"WC-CLAIM-8.sh", "WC-CLAIM-8.mcp.sh"}
    bindings = found["rules"]["WC-CLAIM-8"]["bindings"]
    assert {name: told["status"] for name, told in bindings.items()} == {
        "http": "failed",
        "mcp": "failed",
    }
    assert "bindings" not in found["rules"]["WC-HTTP-1"]
    report.write(tmp_path, reports.passing())
    assert list(tmp_path.glob("*.sh")) == [], "those of an earlier run are removed"


# -- reading it again --------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the report of a failing run."""
    report.write(tmp_path / "r", reports.failing())
    return tmp_path / "r"


def run(*arguments: str) -> tuple[int, str]:
    """The command's exit status and everything that it said."""
    done = CliRunner().invoke(main, ["report", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no"),
        ("{", "is not JSON"),
        ("\x00" * 9, "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no report of workflow-checkpoint"),
        ('{"verdict":"pass"}', "it has no format number"),
        ('{"format":true}', "it has no format number"),
        ('{"format":1,"verdict":"great"}', "its verdict is none"),
        ('{"format":1,"verdict":"pass","line":"x"}', "its member rules is missing"),
        ('{"format":2}', "has format 2, this version reads 1: update it"),
    ],
)
def test_what_is_no_report_is_explained(text: str | None, said: str, tmp_path: Path) -> None:
    """Exit 2, what was found, and what to do."""
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    status, output = run(str(tmp_path))
    assert (status, said in " ".join(output.split())) == (2, True), output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["rules"]["WC-ID-1"].pop("text"),
        lambda r: r["rules"]["WC-ID-1"].update(status="?"),
        lambda r: r["rules"]["WC-ID-1"].update(hits="3"),
        lambda r: r["failures"][0].pop("reproduction"),
        lambda r: r["failures"][0].update(rules=[3]),
        lambda r: r["failures"].append(3),
        lambda r: r["failures"][0].update(sequence=[3]),
    ],
)
def test_a_report_with_a_part_missing_is_explained(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    """Nothing is rendered from it."""
    found = reports.failing()
    change(found)
    (tmp_path / "report.json").write_text(json.dumps(found))
    with pytest.raises(report.ReportError, match="is no report of workflow-checkpoint"):
        report.read(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_rendered_again(name: str, folder: Path, tmp_path: Path) -> None:
    """To standard output, to a file, and the same as a run writes."""
    status, output = run(str(folder), "--format", name)
    assert status == 0, output
    assert "WC-CLAIM-8" in output or name == "badge"
    written = tmp_path / "new" / "file"
    assert run(str(folder / "report.json"), "--format", name, "--output", str(written)) == (0, "")
    assert written.read_text(encoding="utf-8") == FORMATS[name].render(report.read(folder))
    assert run(str(folder), "--format", name, "--output", "-") == (0, output)


def test_all_formats_are_written_beside_the_report(folder: Path) -> None:
    """Their names are printed, one a line."""
    status, output = run(str(folder), "--format", "all")
    names = {made.file_name for made in FORMATS.values() if made.file_name}
    assert status == 0
    assert {Path(line).name for line in output.split()} == names
    assert names < {path.name for path in folder.iterdir()}
    assert {path.name for path in folder.glob("*.sh")} == {"WC-CLAIM-8.sh", "WC-TRANS-4.sh"}
    assert len(list(folder.glob("*.vectors.jsonl"))) == 2
    assert run(str(folder), "--format", "all", "--output", "x")[0] == 2


def test_the_scripts_of_an_earlier_run_are_removed(folder: Path) -> None:
    """Ours alone."""
    (folder / "WC-CLAIM-4.sh").write_text("#!/bin/sh\n# Somebody else's\n")
    (folder / "mine.sh").write_text("")
    report.write(folder, reports.passing())
    assert {path.name for path in folder.glob("*.sh")} == {"WC-CLAIM-4.sh", "mine.sh"}
    assert list(folder.glob("*.jsonl")) == []


def test_the_command_s_choices_are_the_formats() -> None:
    """They stand in the command by hand."""
    from checkpoint_conformance.report_commands import report as command

    (choices,) = [p.type.choices for p in command.params if hasattr(p.type, "choices")]
    assert set(choices) == {*FORMATS, "all"}


def test_a_report_without_what_was_added_to_its_format_is_rendered(tmp_path: Path) -> None:
    """Coverage, checks, sections: whatever a program of another version left out."""
    found = reports.failing()
    for member in (
        "moves",
        "checks",
        "sections",
        "remarks",
        "target",
        "seed",
        "incomplete_because",
    ):
        found.pop(member)
    for rule in found["rules"].values():
        for member in ("section", "class", "access", "floor"):
            rule.pop(member)
    (tmp_path / "report.json").write_text(json.dumps(found))
    assert run(str(tmp_path), "--format", "all")[0] == 0
    assert run(str(tmp_path))[0] == 0
