"""What the harness takes: to a verdict, to storm, to explore, to judge, to render, to start.

Each figure is of the commands that people run, on the reference server with an embedded store; the
processor time is that of all processes that a command started.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import judging

from checkpoint_conformance import report
from checkpoint_conformance.judging import read_judgement
from checkpoint_conformance.renderings import FORMATS
from checkpoint_conformance.renderings.storm import render as render_storm
from checkpoint_model.exploration import explore
from checkpoint_model.worlds import WORLDS

PROFILES: Final = ("quick", "default")
STARTS: Final = 15
"""Pairs of starts of the command line and of an empty Click program."""
SIZES: Final = (1_000, 10_000, 100_000)
"""Operations of the histories that are judged. The next power of ten takes minutes to make:
``nox -s bench_judging``."""
WORLD: Final = "pair"
BARE: Final = "import click\n@click.command()\ndef main(): pass\nmain()\n"
"""An empty Click program."""


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Everything, one after the other; with ``quick`` only what takes seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {"start": start()}
        _tell("start-up")
        found["profiles"] = {}
        for profile in PROFILES[:1] if quick else PROFILES:
            found["profiles"][profile] = verdict(profile, folder / profile)
            _tell(f"profile {profile}")
        found["storm"] = storm(folder / "storm")
        _tell("storm")
        found["rendering"] = rendering(folder / "quick", folder / "storm")
        found["exploration"] = exploration()
        _tell("exploration")
        sizes = SIZES[:2] if quick else SIZES
        found["judging"] = [one._asdict() for one in judging.measure(sizes, folder / "histories")]
        _tell("judging")
        milliseconds, operations = judging.one_workflow(0.2)
        found["one_workflow"] = {"operations": operations, "milliseconds": milliseconds}
    return found


def _tell(what: str) -> None:
    print(f"harness: {what}", file=sys.stderr, flush=True)  # noqa: T201 - what it is for


def _run(*command: str) -> dict[str, float]:
    """Seconds of the clock and of the processor that a command takes, with all it starts."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor": used}


def _command(*arguments: str) -> dict[str, float]:
    return _run(str(Path(sys.executable).with_name("workflow-checkpoint")), *arguments)


def start() -> dict[str, float]:
    """Milliseconds of the processor for ``--help``, and for an empty Click program, in pairs."""
    ours, bare = [], []
    for _ in range(STARTS):
        ours.append(_command("--help")["processor"] * 1000)
        bare.append(_run(sys.executable, "-c", BARE)["processor"] * 1000)
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    return {"ours_ms": statistics.median(ours), "bare_ms": statistics.median(bare), "ratio": ratio}


def verdict(profile: str, folder: Path) -> dict[str, Any]:
    """A whole check of the reference server."""
    took = _command("check", "--profile", profile, "--seed", "1", "--report", str(folder))
    found = report.read(folder)
    stateful = [check for check in found["checks"] if check["name"] == "stateful"]
    return {
        **took,
        "verdict": found["verdict"],
        "requests": found["requests"],
        "stateful": [
            {
                "title": check["title"],
                "requests": check["requests"],
                "per_second": check["requests"] / max(check["seconds"], 0.01),
            }
            for check in stateful
        ],
    }


def storm(folder: Path) -> dict[str, float]:
    """How fast a storm makes histories, and how long all of it takes."""
    took = _command("storm", "mixed", "--seed", "1", "--report", str(folder))
    (judged,) = read_judgement(folder)["storms"]
    return {**took, "operations": judged["calls"], "per_second": judged["requests_per_second"]}


def rendering(check: Path, storm: Path) -> dict[str, float]:
    """Seconds of the processor for each format of a report, for a storm's page, and for all."""
    found = {}
    read = report.read(check)
    for name, made in FORMATS.items():
        found[name] = _processor(lambda made=made: made.render(read))
    judgement, figures = read_judgement(storm), json.loads((storm / "storm.json").read_text())
    found["storm"] = _processor(lambda: render_storm(judgement, figures))
    found["command"] = _command("report", str(check), "--format", "all")["seconds"]
    return found


def _processor(function: Any) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def exploration() -> dict[str, Any]:
    """States of a world that are explored in a second, with every invariant on every step."""
    began = time.process_time()
    found = explore(WORLDS[WORLD])
    seconds = time.process_time() - began
    return {
        "world": WORLD,
        "states": found.states,
        "transitions": found.transitions,
        "states_per_second": found.states / seconds,
        "transitions_per_second": found.transitions / seconds,
    }
