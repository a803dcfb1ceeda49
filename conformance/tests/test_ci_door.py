"""The action and the image: what can be held of them where neither a runner nor Docker is."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_check_command import wrong_server

from checkpoint_conformance.launch import reference_server
from checkpoint_conformance.run import Target
from checkpoint_conformance.targets import load_description

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def fits(schema: str, *files: Path) -> None:
    """Hold files against a schema that is published for them; check-jsonschema brings it along."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- the action -----------------------------------------------------------------------------

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]


def test_action_and_workflows_fit_their_schemas() -> None:
    """The public ones of SchemaStore, for what a runner would refuse."""
    fits("github-actions", ROOT / "action.yml")
    fits("github-workflows", *(ROOT / ".github/workflows").glob("*.yml"))


def test_no_input_is_pasted_into_a_script() -> None:
    """One with a quote in it would be run: they come as environment variables."""
    scripts = [step for step in STEPS if "run" in step]
    assert [step["id"] for step in scripts] == ["install", "check"]
    assert all("${{" not in step["run"] for step in scripts)
    used = re.findall(r"inputs\.([a-z-]+)", json.dumps(STEPS))
    assert set(used) == set(ACTION["inputs"])


def test_what_is_installed_is_the_action_s_own_checkout() -> None:
    """So that whoever pins the action has pinned the harness."""
    script = STEPS[1]["run"]
    installs = [line for line in script.splitlines() if "/pip" in line]
    assert [shlex.split(line)[-1] for line in installs] == ["$GITHUB_ACTION_PATH"]


def play_check(folder: Path, **inputs: str) -> tuple[int, str, dict[str, str], str]:
    """Run the action's check step as a runner does: status, what it printed, outputs, summary."""
    outputs, summary = folder / "output", folder / "summary"
    for file in (outputs, summary):  # a runner has new ones for each step
        file.unlink(missing_ok=True)
    given = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
    given |= inputs
    (step,) = [step for step in STEPS if step.get("id") == "check"]
    environment = {
        name: str(BIN) if "steps.install" in value else given[value.split(".")[1].strip(" }")]
        for name, value in step["env"].items()
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            **environment,
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_STEP_SUMMARY": str(summary),
        },
    )
    told = outputs.read_text(encoding="utf-8").splitlines() if outputs.exists() else []
    page = summary.read_text(encoding="utf-8") if summary.exists() else ""
    return (
        done.returncode,
        done.stdout + done.stderr,
        dict(line.split("=", 1) for line in told),
        page,
    )


@pytest.fixture(scope="module")
def right_server() -> Iterator[Target]:
    """The reference server."""
    with reference_server() as target:
        yield target


def test_the_action_passes_a_right_server(tmp_path: Path) -> None:
    """From a target file alone, one with a blank in its path; the verdict is an output too."""
    described = load_description(ROOT / ".github/reference-server.yaml")
    assert described.start is not None
    assert (described.start.directory, described.start.command[0]) == (
        ROOT,
        ".venv/bin/workflow-checkpoint",
    )
    folder = tmp_path / "a folder"
    folder.mkdir()
    text = (ROOT / ".github/reference-server.yaml").read_text(encoding="utf-8")
    text = text.replace(".venv/bin/workflow-checkpoint", str(BIN / "workflow-checkpoint"))
    (folder / "target.yaml").write_text(text, encoding="utf-8")
    status, said, outputs, summary = play_check(
        tmp_path, target="a folder/target.yaml", profile="quick", report="a folder/r"
    )
    assert (status, outputs) == (0, {"verdict": "pass"}), said
    assert "PASS" in summary
    assert (folder / "r/report.json").is_file()


def test_the_action_fails_a_wrong_server(tmp_path: Path) -> None:
    """With the command's own status; the summary names the rule."""
    with wrong_server("ignores-the-generation", tmp_path) as server:
        status, said, outputs, summary = play_check(tmp_path, url=server["url"], profile="quick")
    assert (status, outputs) == (1, {"verdict": "fail"}), said
    assert "WC-TRANS-4" in summary


def test_the_action_says_when_nothing_was_checked(tmp_path: Path) -> None:
    """An old report is not taken for a new one."""
    status, said, _, _ = play_check(tmp_path)
    assert status == 2
    assert "::error::Which server? Give the input target or url." in said
    folder = tmp_path / "checkpoint-report"
    folder.mkdir()
    (folder / "report.json").write_text('{"verdict": "pass", "line": "PASS"}', encoding="utf-8")
    status, _, outputs, _ = play_check(tmp_path, target="none.yaml")
    assert (status, outputs) == (2, {"verdict": "error"})
    status, _, outputs, summary = play_check(tmp_path, url="http://127.0.0.1:1")
    assert (status, outputs) == (2, {"verdict": "error"})
    assert "Is the server running" in summary


# -- the image ------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each as one line."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, rest) for name, rest in found]


def values(name: str) -> list[str]:
    """What an instruction is given, each time it is there."""
    return [rest for instruction, rest in instructions() if instruction == name]


def test_the_image_is_built_from_a_pinned_base() -> None:
    """An exact version of Python and of the system, in both stages the same."""
    bases = [rest.split()[0] for rest in values("FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", bases[0])


def test_the_image_runs_as_nobody_in_particular() -> None:
    """By number, so that an orchestrator can see it; set in the stage that is shipped."""
    names = [name for name, _ in instructions()]
    last_stage = len(names) - 1 - names[::-1].index("FROM")
    assert names.index("USER") > last_stage
    (user,) = values("USER")
    assert user.isdigit()
    assert int(user) >= 1000
    assert all(name != "RUN" for name in names[names.index("USER") :])


def test_the_image_holds_no_secret_and_no_surprise() -> None:
    """Nothing is fetched but by pip; no key, and no argument to carry one, is in a layer."""
    assert values("ADD") == []
    assert values("ARG") == []
    assert not any("KEY" in rest or "TOKEN" in rest for rest in values("ENV"))
    assert not any(re.search(r"\b(curl|wget|sudo|chmod 777)\b", rest) for rest in values("RUN"))
    assert all("--no-cache-dir" in rest for rest in values("RUN") if "pip install" in rest)


@pytest.mark.parametrize("name", ["ENTRYPOINT", "CMD"])
def test_the_image_s_commands_go_through_no_shell(name: str) -> None:
    """A shell as process 1 would not pass on the signal that stops the server."""
    (given,) = values(name)
    arguments = json.loads(given)
    assert all(isinstance(argument, str) for argument in arguments)


def test_the_image_is_healthy_with_a_server_that_answers(right_server: Target) -> None:
    """The health check itself, run here."""
    (given,) = values("HEALTHCHECK")
    command = json.loads(given.split("CMD", 1)[1])

    def healthy(port: int) -> bool:
        environment = {**os.environ, "WORKFLOW_CHECKPOINT_PORT": str(port)}
        done = subprocess.run(
            [sys.executable, *command[1:]], check=False, capture_output=True, env=environment
        )
        return done.returncode == 0

    assert healthy(right_server.address.port)
    assert right_server.controls is not None
    assert not healthy(right_server.controls.port)
    assert not healthy(1)


def test_the_image_gets_what_the_wheel_is_built_from() -> None:
    """Everything else, such as a key that lies about, stays outside."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert kept == {"pyproject.toml", "README.md", "LICENSE", *packages}
    assert all((ROOT / path).exists() for path in kept)


def test_the_image_s_variables_are_the_command_s() -> None:
    """A misspelt one would leave the server at loopback, where nobody reaches it."""
    from checkpoint_reference_server.commands import serve

    known = {parameter.envvar for parameter in serve.params if isinstance(parameter.envvar, str)}
    named = set(re.findall(r"WORKFLOW_CHECKPOINT_[A-Z_]+(?==)", " ".join(values("ENV"))))
    assert named == {"WORKFLOW_CHECKPOINT_HOST", "WORKFLOW_CHECKPOINT_PORT"}
    assert named <= known
