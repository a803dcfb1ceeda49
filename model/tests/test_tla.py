"""The TLA+ text: held to the model in the graph, the limits and every decision row.

It is not model-checked, and its header says so.
"""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from test_decisions import ROWS
from tools import not_run_here

from checkpoint_model import CONTRACT_LIMITS, CONTRACT_VERSION, MOVES, SETTLED, EvidenceType, Stage

TEXT = (Path(__file__).parents[1] / "tla" / "WorkflowCheckpoint.tla").read_text("utf-8")
HEADER = TEXT[: TEXT.index("EXTENDS")]
BARE = re.sub(r"\(\*.*?\*\)|\\\*[^\n]*", "", TEXT, flags=re.DOTALL)
"""The text without its comments."""
DEFINITIONS = {
    match["name"]: match["body"]
    for match in re.finditer(
        r"^(?P<name>\w+)(\([^=\n]*\))? *==(?P<body>.*?)(?=^\w+(\([^=\n]*\))? *==|^-{4}|^={4}|\Z)",
        BARE,
        flags=re.DOTALL | re.MULTILINE,
    )
}
"""What each definition says, by its name."""
ROW = re.compile(r'\b(?P<kind>Keep|Change)\("(?P<rule>WC-[A-Z]+-\d+)", "(?P<outcome>\w+)"')


def words(text: str) -> list[str]:
    """The quoted words of a text, in order."""
    return re.findall(r'"(\w+)"', text)


def test_it_says_that_it_is_not_checked_and_what_to_trust_instead() -> None:
    """Nobody may take a text that looks like a proof for one."""
    told = " ".join(re.sub(r"[(*)]", " ", HEADER).split())
    assert "THIS MODULE HAS NOT BEEN MODEL-CHECKED" in told
    assert f"contract, version {CONTRACT_VERSION}" in told
    for trusted in ("model/CONTRACT.md", "model/checkpoint_model/machine.py", "model/proofs/"):
        assert f"`{trusted}`" in told
        assert (Path(__file__).parents[2] / trusted).exists()


def test_its_graph_is_the_models() -> None:
    """WC-GRAPH-1 … WC-GRAPH-3: the same moves with the same evidence, each written once."""
    moves = re.findall(
        r'\[from \|-> "(\w+)",\s*to \|-> "(\w+)",\s*evidence \|->\s*\{([^}]*)\}\]',
        DEFINITIONS["Moves"],
    )
    assert DEFINITIONS["Moves"].count("[from") == len(moves) == 7
    assert {(source, target): set(words(evidence)) for source, target, evidence in moves} == {
        (str(source), str(target)): {str(each) for each in evidence}
        for source, targets in MOVES.items()
        for target, evidence in targets.items()
    }


def test_its_words_are_the_models() -> None:
    """The stages and the types of evidence, each once."""
    assert words(DEFINITIONS["Stages"]) == [str(stage) for stage in Stage]
    assert words(DEFINITIONS["EvidenceTypes"]) == [str(evidence) for evidence in EvidenceType]
    assert {stage for stage in Stage if not MOVES[stage]} == SETTLED
    assert r"\A move \in Moves : move.from # stage" in DEFINITIONS["Settled"]


def test_its_limits_are_the_models() -> None:
    """WC-LIMIT-1, WC-LIMIT-2 and the bounds of section 3."""
    limits = CONTRACT_LIMITS
    expected = {
        "GenerationsMax": limits.generations,
        "ObservationsMax": limits.observations,
        "ClaimTtlSecondsMin": limits.claim_ttl_seconds[0],
        "ClaimTtlSecondsMax": limits.claim_ttl_seconds[1],
        "StateTtlSecondsMin": limits.state_ttl_seconds[0],
        "StateTtlSecondsMax": limits.state_ttl_seconds[1],
    }
    assert {
        name: int(body) for name, body in DEFINITIONS.items() if body.strip().isdigit()
    } == expected


def test_every_decision_row_is_where_its_action_is_defined() -> None:
    """In the order of the contract's tables, and nowhere else."""
    rows = {name: [m["rule"] for m in ROW.finditer(body)] for name, body in DEFINITIONS.items()}
    assert {name: rules for name, rules in rows.items() if rules} == {
        "Claim": [f"WC-CLAIM-{n}" for n in range(1, 9)],
        "Transition": [f"WC-TRANS-{n}" for n in range(1, 9)],
        "Abandon": [f"WC-ABANDON-{n}" for n in range(1, 7)],
        "Status": [f"WC-STATUS-{n}" for n in range(1, 3)],
    }
    assert len(re.findall(r'"WC-', BARE)) == 24


def test_every_decision_row_has_its_outcome_and_its_pen() -> None:
    """What the row answers, and whether it changes the record, as in the cases of the model."""
    assert {m["rule"]: (m["outcome"], m["kind"] == "Change") for m in ROW.finditer(BARE)} == {
        row.rule: (row.outcome.name, row.after is not None) for row in ROWS
    }


def test_every_property_names_its_rule() -> None:
    """What is stated can be looked up."""
    properties = TEXT[TEXT.index("ClaimEndsWithinTheRecord") :]
    heads = re.findall(r"^(?!Within)\w+ ==[^\n]*", properties, flags=re.MULTILINE)
    assert len(heads) == 12
    assert [head for head in heads if r"\* WC-" not in head] == []


def test_a_parser_accepts_its_syntax() -> None:
    """A text that nobody runs is soon no TLA+ any more."""
    try:
        # By the distribution: `import tla` finds this project's own folder of that name
        # too, where `model/` is on the path, as it is in an editable installation.
        version("tla")
    except PackageNotFoundError:
        not_run_here("the syntax of the TLA+ module", "the parser tla", "pip install tla")
    assert import_module("tla").parse(TEXT).name == "WorkflowCheckpoint"
