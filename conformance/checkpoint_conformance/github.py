"""What ``check`` does besides where GitHub's runner reads its output."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoint_conformance.renderings import FORMATS
from checkpoint_conformance.renderings.facts import Report
from checkpoint_conformance.terminal import closed_early


def here() -> bool:
    """Whether this is a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def as_plain_text() -> Iterator[None]:
    """Keep the runner from taking any line for a command: a target could have sent one."""
    if not here():
        yield
        return
    token = secrets.token_hex(16)
    _say(f"::stop-commands::{token}\n")
    try:
        yield
    finally:
        _say(f"::{token}::\n")


def tell(report: Report) -> None:
    """Print the annotations, and put the summary on the job's page."""
    if not here():
        return
    _say(FORMATS["annotations"].render(report))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as page:
            page.write(FORMATS["markdown"].render(report))


def _say(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        closed_early()
