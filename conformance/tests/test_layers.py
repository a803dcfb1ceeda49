"""Imports go one way: model ← conformance ← load, and lua ← reference server (DESIGN)."""

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from checkpoint_conformance.cli import COMMANDS, DISTRIBUTION, GROUP, main

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "checkpoint_model": ROOT / "model/checkpoint_model",
    "checkpoint_conformance": ROOT / "conformance/checkpoint_conformance",
    "checkpoint_load": ROOT / "load/checkpoint_load",
    "checkpoint_lua": ROOT / "lua/checkpoint_lua",
    "checkpoint_reference_server": ROOT / "reference_server/checkpoint_reference_server",
}
MAY_IMPORT = {
    "checkpoint_model": set[str](),
    "checkpoint_conformance": {"checkpoint_model"},
    "checkpoint_load": {"checkpoint_model", "checkpoint_conformance"},
    "checkpoint_lua": set[str](),
    "checkpoint_reference_server": {"checkpoint_model", "checkpoint_lua"},
}
DECIDING = {"step", "answer", "permitted", "MOVES", "machine", "wire", "Record", "Step", "Success"}
"""What the server must not take from the model: it states those anew."""


def imports_of(package: str) -> set[tuple[str, str]]:
    """Every ``(module, name)`` that a package imports, at any depth of its files."""
    found = set()
    for path in FOLDERS[package].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {(alias.name, "") for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: a relative import"
                found |= {(node.module or "", alias.name) for alias in node.names}
    return found


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_imports_what_it_may(package: str) -> None:
    """Of our own packages, those below it and itself."""
    ours = {module.split(".")[0] for module, _ in imports_of(package)} & FOLDERS.keys()
    assert ours - {package} <= MAY_IMPORT[package]


def test_the_model_needs_the_standard_library_alone() -> None:
    """So that whoever judges by it need install nothing."""
    roots = {module.split(".")[0] for module, _ in imports_of("checkpoint_model")}
    assert roots - {"checkpoint_model"} <= sys.stdlib_module_names


def test_the_server_takes_nothing_that_decides() -> None:
    """Vocabulary and schemas, no more: shared code would hide a shared mistake (D2)."""
    taken = {
        (module, name)
        for module, name in imports_of("checkpoint_reference_server")
        if module.startswith("checkpoint_model")
    }
    assert {module for module, _ in taken} <= {"checkpoint_model", "checkpoint_model.vocabulary"}
    assert {name for _, name in taken} & DECIDING == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "--help"],
        ["storm", "--help"],
        ["serve", "--help"],
        ["report", "--help"],
        ["registry", "emit", "--help"],
        ["recheck", "--help"],
        ["mutants", "run", "--help"],
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """The command line answers at once: what is heavy waits until a command runs."""
    program = (
        "import sys\n"
        "from checkpoint_conformance.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        "heavy = {'hypothesis', 'rich', 'redis', 'uvicorn', 'starlette', 'yaml', 'h11', 'asyncio',"
        " 'msgspec', 'structlog', 'jinja2', 'pytest', 'gevent', 'locust',"
        " 'checkpoint_model'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_the_table_of_subcommands_is_that_of_the_entry_points() -> None:
    """The command line reads the table, for speed; whoever installs it, the entry points."""
    points = metadata.distribution(DISTRIBUTION).entry_points.select(group=GROUP)
    assert {name: where for name, (where, _) in COMMANDS.items()} == {
        point.name: point.value for point in points
    }


def test_every_subcommand_has_its_line() -> None:
    """And none of them is loaded for it."""
    done = CliRunner().invoke(main, ["--help"], terminal_width=100)
    lines = done.output.splitlines()
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name:<{max(map(len, COMMANDS))}}  {summary}" in lines
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2
