"""The page for third parties: what it says to type, to write and to expect is what there is."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from test_check_command import wrong_server
from test_ci_door import ACTION, BIN, ROOT, fits

from checkpoint_conformance.cli import main
from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.rules import rules
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import parse_description

pytest_plugins = ["pytester"]

PAGE = (ROOT / "docs/third-parties.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def right_server() -> Iterator[Target]:
    """The reference server."""
    with reference_server() as target:
        yield target


def blocks(language: str) -> list[str]:
    """The code blocks of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[list[str]]:
    """Every call of our command on the page, wherever it stands."""
    for block in (*blocks("sh"), *blocks("yaml")):
        for line in block.splitlines():
            found = re.search(r"workflow-checkpoint ([a-z]+ .*)", line)
            if found and "pip install" not in line:
                yield shlex.split(found[1].removesuffix(" || exit"))


def test_every_command_on_the_page_is_one() -> None:
    """Its options and its arguments are there, and every one is shown somewhere."""
    shown = list(commands())
    assert {command[0] for command in shown} == {"doctor", "check", "explain", "replay"}
    for command in shown:
        subcommand = main.get_command(None, command[0])  # type: ignore[arg-type] # it takes none
        assert subcommand is not None
        subcommand.make_parser(subcommand.context_class(subcommand)).parse_args(command[1:])


def test_doctor_and_check_do_what_the_page_says(right_server: Target) -> None:
    """The two of the first three minutes, with the page's own words but for the port."""
    ready = CliRunner().invoke(main, ["doctor", "--url", right_server.address.url])
    assert ready.exit_code == 0, ready.output
    (check,) = [c for c in commands() if "--profile" in c]
    check[check.index("--url") + 1] = right_server.address.url
    done = CliRunner().invoke(main, check)
    assert done.exit_code == 0, done.output
    assert "PASS" in done.output


def test_a_failure_is_read_as_the_page_says(
    tmp_path: Path, tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explained, shown again by the script alone, and replayed: all three as they stand there."""
    tool("curl")
    (block,) = [block for block in blocks("sh") if "replay" in block]
    monkeypatch.chdir(tmp_path)
    with wrong_server("recovers-as-claimed", tmp_path) as server:
        arguments = ["--url", server["url"], "--controls", server["controls"], "--profile", "quick"]
        CliRunner().invoke(main, ["check", *arguments, "--report", "checkpoint-report"])
        codes = []
        for line in block.replace(
            "http://127.0.0.1:8080", f"{server['url']} --controls {server['controls']}"
        ).splitlines():
            done = subprocess.run(
                ["bash", "-c", line],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
            )
            codes.append((done.returncode, done.stdout + done.stderr))
    assert [code for code, _ in codes] == [0, 0, 1], codes
    assert rules()["WC-CLAIM-8"].text.split("`")[0].strip() in " ".join(codes[0][1].split())
    assert '"recovered":true' in codes[1][1].replace(" ", "")


def test_the_page_s_targets_are_targets() -> None:
    """Read as a file would be."""
    targets = [block for block in blocks("yaml") if re.search("^url: ", block, re.MULTILINE)]
    assert len(targets) == 2
    for target in targets:
        parse_description(target, Path("target.yaml"))


def test_the_page_s_pipelines_fit_their_schemas(tmp_path: Path) -> None:
    """GitHub's and GitLab's; and the action has the inputs that the page names."""
    (github,) = [block for block in blocks("yaml") if "runs-on" in block]
    (gitlab,) = [block for block in blocks("yaml") if "artifacts:" in block]
    for schema, text in (("github-workflows", github), ("gitlab-ci", gitlab)):
        (tmp_path / f"{schema}.yml").write_text(text, encoding="utf-8")
        fits(schema, tmp_path / f"{schema}.yml")
    steps = yaml.safe_load(github)["jobs"]["conformance"]["steps"]
    assert set(steps[-1]["with"]) <= set(ACTION["inputs"])
    (sentence,) = [line for line in PAGE.split("\n\n") if line.startswith("OWNER/")]
    named = set(re.findall(r"`([a-z]+)`", sentence))
    assert named == {*ACTION["inputs"], *ACTION["outputs"]}


def test_the_page_s_suite_runs(pytester: pytest.Pytester) -> None:
    """With nobody there: one test tells, and each rule has its test."""
    (suite,) = blocks("python")
    pytester.makepyfile(suite.replace(":8080", ":1"))
    (arguments,) = [b.split()[1:] for b in blocks("sh") if b.startswith("pytest")]
    result = pytester.runpytest_subprocess(*arguments)
    counted = result.parseoutcomes()
    assert (counted["failed"], counted["passed"]) == (2, 1)
    assert counted["skipped"] > len(rules())
    result.stdout.fnmatch_lines(["*Is the server running, and are host and port right?*"])


def test_every_option_of_the_pytest_door_on_the_page_exists() -> None:
    """Under the name that it has there."""
    from checkpoint_conformance import pytest_plugin

    parser = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    (group,) = [g for g in parser._groups if g.name == "workflow-checkpoint"]
    options = {name for option in group.options for name in option.names()}
    assert set(re.findall(r"--checkpoint-[a-z]+", PAGE)) <= options


def test_the_readme_leads_to_the_page() -> None:
    """In one line."""
    assert "(docs/third-parties.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
