"""What the README says is what is there."""

from pathlib import Path

from click.testing import CliRunner

from checkpoint_conformance.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEST_COMMAND = "python3 -m venv .venv && .venv/bin/pip install nox && .venv/bin/nox"


def test_ci_runs_the_readme_s_test_command() -> None:
    """Word for word, as a line of its own."""
    assert TEST_COMMAND in README.splitlines()
    assert TEST_COMMAND in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()


def test_every_option_that_the_readme_names_exists() -> None:
    """In the help of the command that it is given to."""
    runner = CliRunner()
    check = runner.invoke(main, ["check", "--help"]).output
    serve = runner.invoke(main, ["serve", "--help"]).output
    rows = [line for line in README.splitlines() if line.startswith("| `--")]
    options = {row.split("`")[1].split()[0] for row in rows}
    assert len(options) >= 7
    assert {option for option in options if option not in check} == set()
    for option in ("--dev-key", "--valkey-url", "--hmac-key-file", "--workers"):
        assert option in serve


def test_the_verdict_in_the_readme_is_today_s() -> None:
    """The line that a newcomer is promised is the one that a right server gets."""
    from test_verdict import EVERYTHING, enough

    from checkpoint_conformance.verdict import judge

    assert judge(enough(EVERYTHING), EVERYTHING).line in README


def test_the_picture_in_the_readme_is_today_s_graph() -> None:
    """To be drawn anew: workflow-checkpoint model graph --format svg > docs/graph.svg."""
    drawn = CliRunner().invoke(main, ["model", "graph", "--format", "svg"])
    assert drawn.exit_code == 0
    assert drawn.output == (ROOT / "docs/graph.svg").read_text(encoding="utf-8")
    assert "](docs/graph.svg)" in README


def test_the_number_of_vectors_in_the_docs_is_today_s() -> None:
    """The head of the file, as the page shows it."""
    from checkpoint_conformance.vectors import load_vectors

    page = (ROOT / "docs/vectors.md").read_text(encoding="utf-8")
    assert f'"vectors":{len(load_vectors())}}}' in page
